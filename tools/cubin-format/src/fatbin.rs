//! The container that holds one image per target for the driver to choose from (a fatbin).
//!
//! The layout is that of the `fatbinary` tool of CUDA 13.0 with compression off, read from its
//! output:
//!
//! ```text
//! container header, 16 bytes
//!   0  u32   magic 0xba55ed50
//!   4  u16   version, 1
//!   6  u16   bytes of this header, 16
//!   8  u64   bytes of all entries
//! per entry a header of 64 bytes, an extension, and the payload, each a multiple of 8 bytes
//!   0  u16   kind: 1 PTX, 2 cubin
//!   2  u16   0x0101
//!   4  u32   bytes of header and extension
//!   8  u64   bytes of the payload, with padding
//!  16  u32   compressed bytes, 0: not compressed
//!  20  u32   offset of the extension, 0: none
//!  24  u16   cubin: ELF ABI version; PTX: minor version
//!  26  u16   cubin: 1; PTX: major version
//!  28  u32   architecture number
//!  32  u32   offset and, at 36, bytes of an identifier, 0: none
//!  40  u64   flags: 0x1 64 bits, 0x10 Linux, 0x10_0000 suffix a, 0x20_0000 suffix f,
//!            0x100_0000 the extension has the compatibility attributes
//!  48  u64   0
//!  56  u64   uncompressed bytes, 0: not compressed
//! extension: PTX, and cubins for architecture 100 and later
//!   0  u32   offset of the options text
//!   4  u32   bytes of the compatibility attributes (cubin) or of the options (PTX)
//!   8        options text with its NUL, then the contents of the cubin's `.nv.compat`
//! ```
//!
//! PTX text is followed by a NUL.

use std::fmt;

use crate::arch::{Arch, ArchError, ImageKind, Suffix, Target};
use crate::cubin::{Cubin, CubinError};

const MAGIC: u32 = 0xba55_ed50;
const VERSION: u16 = 1;
const CONTAINER_HEADER: usize = 16;
const ENTRY_HEADER: usize = 64;
const ENTRY_VERSION: u16 = 0x0101;
const KIND_PTX: u16 = 1;
const KIND_ELF: u16 = 2;
const ALIGN: usize = 8;

const FLAG_64_BITS: u64 = 0x1;
const FLAG_LINUX: u64 = 0x10;
const FLAG_SUFFIX_A: u64 = 0x10_0000;
const FLAG_SUFFIX_F: u64 = 0x20_0000;
const FLAG_COMPAT: u64 = 0x100_0000;

/// From this architecture on the compatibility attributes are repeated in front of the cubin.
const COMPAT_SINCE: u32 = 100;

/// Why a fatbin can't be made or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FatbinError {
    /// An image that should be a cubin is none.
    #[error("the image for {target} is no cubin")]
    Cubin {
        /// The target of the image.
        target: Target,
        /// What is wrong with it.
        source: CubinError,
    },
    /// A cubin is for another architecture than its target says.
    #[error("the image for {wanted} is for sm_{found}")]
    Arch {
        /// The target of the image.
        wanted: Target,
        /// The architecture in the cubin.
        found: Arch,
    },
    /// PTX text has no `.version` directive.
    #[error("the image for {target} is no PTX: no .version directive")]
    PtxVersion {
        /// The target of the image.
        target: Target,
    },
    /// PTX text has a NUL, where the driver would stop reading.
    #[error("the PTX for {target} has a NUL at byte {at}")]
    PtxNul {
        /// The target of the image.
        target: Target,
        /// Its position in the text.
        at: usize,
    },
    /// Two images have the same target.
    #[error("two images for {target}")]
    DuplicateTarget {
        /// The target.
        target: Target,
    },
    /// The first bytes are not those of a fatbin.
    #[error("not a fatbin: wanted the magic {MAGIC:#x}, found {found:#x}")]
    Magic {
        /// The first four bytes.
        found: u32,
    },
    /// A field has a value that this reader does not know.
    #[error("unknown {what} at byte {at}: wanted {wanted}, found {found:#x}")]
    Unknown {
        /// The field.
        what: &'static str,
        /// Its byte position.
        at: usize,
        /// What is known.
        wanted: &'static str,
        /// The value found.
        found: u64,
    },
    /// A part reaches past the end.
    #[error("{what} at byte {at} needs {wanted} bytes, found {found}")]
    Truncated {
        /// The part.
        what: &'static str,
        /// Its byte position.
        at: usize,
        /// The bytes it needs.
        wanted: u64,
        /// The bytes left.
        found: u64,
    },
    /// Bytes follow the last entry.
    #[error("{found} bytes follow the fatbin at byte {at}")]
    Trailing {
        /// Where they start.
        at: usize,
        /// How many.
        found: usize,
    },
    /// The architecture of an entry is out of range.
    #[error("the entry at byte {at} is for no architecture")]
    EntryArch {
        /// The byte position of the entry.
        at: usize,
        /// What is wrong with the number.
        source: ArchError,
    },
}

/// One image of a fatbin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Image<'b> {
    /// What it is compiled for.
    pub target: Target,
    /// The cubin, or the PTX text without a NUL. A cubin that was read has up to 7 bytes of
    /// padding if its size was no multiple of 8.
    pub bytes: &'b [u8],
}

impl fmt::Debug for Image<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({}, {} bytes)", self.target, self.bytes.len())
    }
}

/// The fatbin of `images`, in their order.
///
/// # Errors
/// Cubins that can't be read or are for another architecture, PTX without a version or with a NUL
/// inside, and two images for one target.
pub fn write(images: &[Image]) -> Result<Vec<u8>, FatbinError> {
    let mut entries = Vec::new();
    for (at, image) in images.iter().enumerate() {
        let target = image.target;
        if images[..at].iter().any(|earlier| earlier.target == target) {
            return Err(FatbinError::DuplicateTarget { target });
        }
        put_entry(&mut entries, image)?;
    }
    let mut fatbin = Vec::with_capacity(CONTAINER_HEADER + entries.len());
    fatbin.extend(MAGIC.to_le_bytes());
    fatbin.extend(VERSION.to_le_bytes());
    fatbin.extend((CONTAINER_HEADER as u16).to_le_bytes());
    fatbin.extend((entries.len() as u64).to_le_bytes());
    fatbin.extend(entries);
    Ok(fatbin)
}

fn put_entry(out: &mut Vec<u8>, image: &Image) -> Result<(), FatbinError> {
    let Target { kind, arch } = image.target;
    let (kind, version, extension, compat_flag) = match kind {
        ImageKind::Sass => {
            let cubin = read_cubin(image)?;
            let compat = cubin.compat.filter(|_| arch.number() >= COMPAT_SINCE);
            let flag = if compat.is_some() { FLAG_COMPAT } else { 0 };
            (KIND_ELF, [cubin.abi_version.into(), 1], compat, flag)
        }
        ImageKind::Ptx => {
            if let Some(at) = image.bytes.iter().position(|&byte| byte == 0) {
                return Err(FatbinError::PtxNul {
                    target: image.target,
                    at,
                });
            }
            (KIND_PTX, ptx_version(image)?, Some(Vec::new()), 0)
        }
    };
    let suffix = match arch.suffix() {
        Suffix::None => 0,
        Suffix::A => FLAG_SUFFIX_A,
        Suffix::F => FLAG_SUFFIX_F,
    };
    let nul = usize::from(kind == KIND_PTX);
    let extension_bytes = extension
        .as_ref()
        .map_or(0, |extra| (8 + 1 + extra.len()).next_multiple_of(ALIGN));
    let payload_bytes = (image.bytes.len() + nul).next_multiple_of(ALIGN);

    let start = out.len();
    out.extend(kind.to_le_bytes());
    out.extend(ENTRY_VERSION.to_le_bytes());
    out.extend(((ENTRY_HEADER + extension_bytes) as u32).to_le_bytes());
    out.extend((payload_bytes as u64).to_le_bytes());
    out.extend(0u32.to_le_bytes());
    out.extend(
        extension
            .as_ref()
            .map_or(0, |_| ENTRY_HEADER as u32)
            .to_le_bytes(),
    );
    out.extend(version[0].to_le_bytes());
    out.extend(version[1].to_le_bytes());
    out.extend(arch.number().to_le_bytes());
    out.extend(0u64.to_le_bytes());
    out.extend((FLAG_64_BITS | FLAG_LINUX | suffix | compat_flag).to_le_bytes());
    out.extend(0u64.to_le_bytes());
    out.extend(0u64.to_le_bytes());
    if let Some(extra) = &extension {
        out.extend((ENTRY_HEADER as u32 + 8).to_le_bytes());
        out.extend((extra.len() as u32).to_le_bytes());
        out.push(0);
        out.extend(extra);
        out.resize(start + ENTRY_HEADER + extension_bytes, 0);
    }
    out.extend(image.bytes);
    out.resize(start + ENTRY_HEADER + extension_bytes + payload_bytes, 0);
    Ok(())
}

fn read_cubin(image: &Image) -> Result<Cubin, FatbinError> {
    let target = image.target;
    let cubin =
        Cubin::parse(image.bytes).map_err(|source| FatbinError::Cubin { target, source })?;
    if cubin.is_for(target.arch) {
        Ok(cubin)
    } else {
        Err(FatbinError::Arch {
            wanted: target,
            found: cubin.arch,
        })
    }
}

/// Minor and major version of the `.version` directive.
fn ptx_version(image: &Image) -> Result<[u16; 2], FatbinError> {
    let parse = || {
        let text = std::str::from_utf8(image.bytes).ok()?;
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(".version"))?;
        let number = line.split("//").next().unwrap_or_default();
        let (major, minor) = number.trim().split_once('.')?;
        Some([minor.parse().ok()?, major.parse().ok()?])
    };
    parse().ok_or(FatbinError::PtxVersion {
        target: image.target,
    })
}

/// Reads an uncompressed fatbin: its images in order.
///
/// # Errors
/// Bytes that are no fatbin, damaged ones, and compressed or unknown entries.
pub fn read(fatbin: &[u8]) -> Result<Vec<Image<'_>>, FatbinError> {
    let reader = Reader { bytes: fatbin };
    let magic = u32::from_le_bytes(reader.array("container header", 0)?);
    if magic != MAGIC {
        return Err(FatbinError::Magic { found: magic });
    }
    reader.expect("container version", 4, VERSION, "1")?;
    reader.expect("container header size", 6, CONTAINER_HEADER as u16, "16")?;
    let bytes = u64::from_le_bytes(reader.array("container header", 8)?);
    let body = reader.take("entries", CONTAINER_HEADER, bytes)?;
    let end = CONTAINER_HEADER + body.len();
    if end != fatbin.len() {
        return Err(FatbinError::Trailing {
            at: end,
            found: fatbin.len() - end,
        });
    }
    let mut images = Vec::new();
    let mut at = CONTAINER_HEADER;
    while at < end {
        let (image, next) = read_entry(&reader, at)?;
        images.push(image);
        at = next;
    }
    Ok(images)
}

fn read_entry<'b>(reader: &Reader<'b>, at: usize) -> Result<(Image<'b>, usize), FatbinError> {
    reader.take("entry header", at, ENTRY_HEADER as u64)?;
    let kind = match u16::from_le_bytes(reader.array("entry kind", at)?) {
        KIND_ELF => ImageKind::Sass,
        KIND_PTX => ImageKind::Ptx,
        found => {
            let (what, wanted) = ("entry kind", "1 or 2");
            return Err(FatbinError::Unknown {
                what,
                at,
                wanted,
                found: found.into(),
            });
        }
    };
    reader.expect("entry version", at + 2, ENTRY_VERSION, "0x101")?;
    let header_bytes = u32::from_le_bytes(reader.array("entry header size", at + 4)?);
    if (header_bytes as usize) < ENTRY_HEADER {
        let (what, wanted) = ("entry header size", "at least 64");
        return Err(FatbinError::Unknown {
            what,
            at: at + 4,
            wanted,
            found: header_bytes.into(),
        });
    }
    let payload_bytes = u64::from_le_bytes(reader.array("payload size", at + 8)?);
    let compressed = u32::from_le_bytes(reader.array("compressed size", at + 16)?);
    if compressed != 0 {
        let (what, wanted) = ("compression", "none");
        return Err(FatbinError::Unknown {
            what,
            at: at + 16,
            wanted,
            found: compressed.into(),
        });
    }
    let number = u32::from_le_bytes(reader.array("architecture", at + 28)?);
    let flags = u64::from_le_bytes(reader.array("entry flags", at + 40)?);
    let suffix = match flags & (FLAG_SUFFIX_A | FLAG_SUFFIX_F) {
        0 => Suffix::None,
        FLAG_SUFFIX_A => Suffix::A,
        FLAG_SUFFIX_F => Suffix::F,
        _ => {
            let (what, wanted) = ("entry flags", "suffix a or f, not both");
            return Err(FatbinError::Unknown {
                what,
                at: at + 40,
                wanted,
                found: flags,
            });
        }
    };
    let arch = Arch::new(number, suffix).map_err(|source| FatbinError::EntryArch { at, source })?;
    let header = reader.take("entry header", at, header_bytes.into())?;
    let start = at + header.len();
    let payload = reader.take("payload", start, payload_bytes)?;
    let bytes = match kind {
        ImageKind::Sass => payload,
        ImageKind::Ptx => payload.split(|&byte| byte == 0).next().unwrap_or_default(),
    };
    Ok((
        Image {
            target: Target { kind, arch },
            bytes,
        },
        start + payload.len(),
    ))
}

struct Reader<'b> {
    bytes: &'b [u8],
}

impl<'b> Reader<'b> {
    fn take(&self, what: &'static str, at: usize, count: u64) -> Result<&'b [u8], FatbinError> {
        let left = self.bytes.get(at..).unwrap_or_default();
        match usize::try_from(count)
            .ok()
            .and_then(|count| left.get(..count))
        {
            Some(taken) => Ok(taken),
            None => Err(FatbinError::Truncated {
                what,
                at,
                wanted: count,
                found: left.len() as u64,
            }),
        }
    }

    fn array<const N: usize>(&self, what: &'static str, at: usize) -> Result<[u8; N], FatbinError> {
        let mut value = [0; N];
        value.copy_from_slice(self.take(what, at, N as u64)?);
        Ok(value)
    }

    fn expect(
        &self,
        what: &'static str,
        at: usize,
        value: u16,
        wanted: &'static str,
    ) -> Result<(), FatbinError> {
        let found = u16::from_le_bytes(self.array(what, at)?);
        if found == value {
            Ok(())
        } else {
            Err(FatbinError::Unknown {
                what,
                at,
                wanted,
                found: found.into(),
            })
        }
    }
}

#[cfg(test)]
#[path = "fatbin_tests.rs"]
mod tests;
