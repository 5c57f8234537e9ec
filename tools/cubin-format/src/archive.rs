//! The archive: one blob with every image of every kernel, an index, and a SHA-256 for each part.
//!
//! All numbers are little endian. Nothing is aligned, nothing depends on the time or the machine of
//! the build, and every byte belongs to exactly one of the parts below.
//!
//! ```text
//! header, 80 bytes
//!   0  [u8; 8]   magic "ZNCUBIN\n"
//!   8  u32       version, 3
//!  12  u32       flags, 0; a set bit is refused
//!  16  u64       bytes of the whole archive
//!  24  u64       bytes of the index
//!  32  u64       bytes of the payloads
//!  40  u32       kernels
//!  44  u32       images, summed over the kernels
//!  48  [u8; 32]  SHA-256 of bytes 0..48 followed by the index
//! index
//!      [u8; 32]  SHA-256 of the sources
//!      text      compiler build
//!      per kernel, sorted by name, no name twice:
//!        text      name: 1 or more of A-Z a-z 0-9 _
//!        text      family
//!        text      summary
//!        text      entry symbol
//!        u8        bit 0: extended; other bits are refused
//!        [u8; 32]  contract hash
//!        u16       images, at least 1
//!        per image, sorted by target (machine code before PTX, then number, then suffix):
//!          u32       architecture number
//!          u8        suffix: 0 none, 1 f, 2 a
//!          u8        kind: 0 machine code, 1 PTX
//!          u32       base: 0 none, else 1 + the number of an image before this one, counted over all kernels
//!          u64       offset of the payload from the end of the index
//!          u64       stored bytes (compressed)
//!          u64       raw bytes
//!          [u8; 32]  SHA-256 of the stored bytes
//!          [u8; 32]  SHA-256 of the raw bytes
//!          u32       registers per thread
//!          u32       static shared memory per block, bytes
//!          u32       local memory per thread, bytes
//!          u32       spill stores, bytes
//!          u32       spill loads, bytes
//!          text      compiler of this image; empty: the archive's
//! payloads
//!      zstd frames in index order, without gaps; the frame of an image with a base has the base, raw, as its dictionary
//!
//! text = u16 bytes, then that many bytes of UTF-8
//! ```
//!
//! The header binds the index and the index binds each payload to its kernel and target, so a
//! changed byte, a cut or a swap anywhere is detected: in header and index by [`Archive::open`], in
//! a payload by [`Archive::image`] and [`Archive::verify_all`]. The hashes detect damage; they are
//! no signature.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use crate::arch::{Arch, ArchError, Capability, ImageKind, NoTarget, Suffix, Target, choose};
use crate::digest::Digest;

const MAGIC: [u8; 8] = *b"ZNCUBIN\n";
/// The version of the format that this crate reads and writes.
pub const VERSION: u32 = 3;
/// Header bytes in front of the index hash.
const SEALED_HEADER: usize = 48;
const HEADER: usize = SEALED_HEADER + 32;
const FLAG_EXTENDED: u8 = 1;
/// Index bytes of a kernel or an image whose texts are empty.
const MIN_KERNEL: usize = 4 * 2 + 1 + 32 + 2;
const MIN_IMAGE: usize = 4 + 2 + 4 + 3 * 8 + 2 * 32 + 5 * 4 + 2;
const COMPRESSION_LEVEL: i32 = 19;
/// The zstd level that tells which base is best.
const ESTIMATE_LEVEL: i32 = 3;

/// The largest raw image that an archive may hold: 64 MiB.
pub const MAX_RAW_BYTES: u64 = 64 << 20;

/// Why an archive can't be made, opened or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The file can't be read.
    #[error("can't read the archive {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The first bytes are not those of an archive.
    #[error("not a kernel archive: wanted the magic {MAGIC:02x?}, found {found:02x?}")]
    Magic {
        /// Up to eight bytes at the start.
        found: Vec<u8>,
    },
    /// This reader does not know the version.
    #[error("archive version {found} is not supported: wanted {wanted}")]
    Version {
        /// The version of this reader.
        wanted: u32,
        /// The version in the header.
        found: u32,
    },
    /// A reserved bit is set.
    #[error("unknown bits {found:#x} in {what} at byte {at}")]
    UnknownBits {
        /// The field.
        what: &'static str,
        /// Its byte position.
        at: usize,
        /// The unknown bits.
        found: u64,
    },
    /// The blob has another length than the header says.
    #[error("the archive should have {wanted} bytes, found {found}: cut or extended")]
    Length {
        /// Bytes that the header asks for.
        wanted: u64,
        /// Bytes of the blob.
        found: u64,
    },
    /// A field reaches past the end of the header or the index.
    #[error("{what} at byte {at} needs {wanted} bytes, found {found}")]
    Truncated {
        /// The field.
        what: &'static str,
        /// Its byte position.
        at: usize,
        /// The bytes it needs.
        wanted: u64,
        /// The bytes left.
        found: u64,
    },
    /// The header or the index was changed.
    #[error("header and index have the SHA-256 {found}, wanted {wanted}: the archive is damaged")]
    IndexHash {
        /// The hash in the header.
        wanted: Digest,
        /// The hash of what is there.
        found: Digest,
    },
    /// A count in the header differs from the index, or could not fit in it.
    #[error("the header counts {wanted} {what}, the index has {found}")]
    Count {
        /// What is counted.
        what: &'static str,
        /// The header's count.
        wanted: u64,
        /// The index's count, or the most that would fit.
        found: u64,
    },
    /// Bytes follow the last kernel of the index.
    #[error("{found} bytes follow the last kernel of the index at byte {at}")]
    TrailingIndex {
        /// Where they start.
        at: usize,
        /// How many.
        found: u64,
    },
    /// A text is not UTF-8.
    #[error("{what} at byte {at} is not UTF-8")]
    Text {
        /// The field.
        what: &'static str,
        /// Its byte position.
        at: usize,
    },
    /// A kernel name has characters that could not be part of a C name or a file name.
    #[error("kernel name {name:?} has something else than A-Z a-z 0-9 _")]
    KernelName {
        /// The name.
        name: String,
    },
    /// A name occurs twice.
    #[error("kernel {kernel} occurs twice")]
    DuplicateKernel {
        /// The kernel.
        kernel: String,
    },
    /// The index is not sorted by name.
    #[error("kernel {kernel} is listed after {after}: the index is not sorted")]
    UnsortedKernel {
        /// The kernel.
        kernel: String,
        /// The name in front of it.
        after: String,
    },
    /// A kernel has two images for the same target.
    #[error("kernel {kernel} has {target} twice")]
    DuplicateTarget {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
    },
    /// The images of a kernel are not sorted by target.
    #[error("kernel {kernel} lists {target} after {after}: the index is not sorted")]
    UnsortedTarget {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// The target in front of it.
        after: Target,
    },
    /// A kernel has no image.
    #[error("kernel {kernel} has no image")]
    NoImages {
        /// The kernel.
        kernel: String,
    },
    /// An architecture number is out of range.
    #[error("kernel {kernel} has an image of no architecture")]
    Arch {
        /// The kernel.
        kernel: String,
        /// What is wrong with the number.
        source: ArchError,
    },
    /// A payload starts before the end of the one in front of it.
    #[error(
        "the payload of {kernel} for {target} starts at {found}, inside another that ends at {wanted}"
    )]
    Overlap {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// Where it should start.
        wanted: u64,
        /// Where it starts.
        found: u64,
    },
    /// Bytes that belong to no payload lie in front of one, or after the last.
    #[error("{} unused bytes at payload byte {wanted}", found - wanted)]
    Gap {
        /// Where the next payload should start, or the payloads end.
        wanted: u64,
        /// Where it starts, or the payloads should end.
        found: u64,
    },
    /// A payload ends after the last byte of the archive.
    #[error("the payload of {kernel} for {target} has {found} bytes, {wanted} are left")]
    PastEnd {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// The bytes left.
        wanted: u64,
        /// The bytes that the index gives.
        found: u64,
    },
    /// The raw size is above [`MAX_RAW_BYTES`].
    #[error("the image of {kernel} for {target} has {found} bytes, at most {wanted} are allowed")]
    RawTooLarge {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// The limit.
        wanted: u64,
        /// The raw size in the index.
        found: u64,
    },
    /// The stored bytes of an image were changed.
    #[error(
        "the payload of {kernel} for {target} has the SHA-256 {found}, wanted {wanted}: the archive is damaged"
    )]
    StoredHash {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// The hash in the index.
        wanted: Digest,
        /// The hash of what is there.
        found: Digest,
    },
    /// A payload is not a zstd frame of at most the raw size.
    #[error("the payload of {kernel} for {target} does not decompress to {wanted} bytes")]
    Decompress {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// The raw size in the index.
        wanted: u64,
        /// zstd's reason.
        source: io::Error,
    },
    /// A payload decompresses to fewer bytes than the index says.
    #[error("the image of {kernel} for {target} should have {wanted} bytes, found {found}")]
    RawSize {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// The raw size in the index.
        wanted: u64,
        /// The size of what came out.
        found: u64,
    },
    /// A payload decompresses to something else than the index says.
    #[error("the image of {kernel} for {target} has the SHA-256 {found}, wanted {wanted}")]
    RawHash {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// The hash in the index.
        wanted: Digest,
        /// The hash of what came out.
        found: Digest,
    },
    /// There is no kernel of that name.
    #[error("no kernel {name:?} in the archive{}", hint(nearest))]
    UnknownKernel {
        /// What was asked for.
        name: String,
        /// The most similar name, if one is close.
        nearest: Option<String>,
    },
    /// The base of an image is not an image before it.
    #[error(
        "the image of {kernel} for {target} has image {found} as its base, wanted one of the {wanted} before it"
    )]
    Base {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// The images before this one.
        wanted: usize,
        /// The number in the index.
        found: usize,
    },
    /// A payload was compressed with a base that is not among the images before it.
    #[error(
        "the image of {kernel} for {target} needs the image with the SHA-256 {wanted} as its base, and there is no such one before it"
    )]
    NoBase {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// The hash of the base.
        wanted: Digest,
    },
    /// The kernel has no image for that target.
    #[error("kernel {kernel} has no image for {wanted}; embedded: {}", found.iter().map(Target::to_string).collect::<Vec<_>>().join(" "))]
    UnknownTarget {
        /// The kernel.
        kernel: String,
        /// What was asked for.
        wanted: Target,
        /// What there is.
        found: Vec<Target>,
    },
    /// The kernel has no image that runs on the device.
    #[error("kernel {kernel}")]
    NoTarget {
        /// The kernel.
        kernel: String,
        /// The device, and what there is.
        source: NoTarget,
    },
    /// Something does not fit in its field of the format.
    #[error("{what} of kernel {kernel:?} is {found}, the format allows at most {wanted}")]
    TooLong {
        /// The kernel, empty for the archive itself.
        kernel: String,
        /// What does not fit.
        what: &'static str,
        /// The limit.
        wanted: u64,
        /// Its size.
        found: u64,
    },
    /// zstd failed to compress an image.
    #[error("can't compress an image of {bytes} bytes")]
    Compress {
        /// The size of the image.
        bytes: u64,
        /// zstd's reason.
        source: io::Error,
    },
}

fn hint(nearest: &Option<String>) -> String {
    nearest
        .as_ref()
        .map(|name| format!("; did you mean {name}?"))
        .unwrap_or_default()
}

/// What the archive was made from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// SHA-256 of the sources, by the builder's rule.
    pub source_hash: Digest,
    /// The exact build of the compiler.
    pub compiler: String,
}

/// What an image needs on the device. All zero for PTX, where the driver's compiler decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Resources {
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per block, bytes.
    pub shared_bytes: u32,
    /// Local memory per thread, bytes.
    pub local_bytes: u32,
    /// Register spill stores, bytes, as the assembler reports them.
    pub spill_store_bytes: u32,
    /// Register spill loads, bytes, as the assembler reports them.
    pub spill_load_bytes: u32,
}

impl Resources {
    /// Spill stores and loads together, bytes.
    pub fn spill_bytes(&self) -> u64 {
        u64::from(self.spill_store_bytes) + u64::from(self.spill_load_bytes)
    }
}

/// Which image of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageNumber {
    /// The number of the kernel in [`Archive::kernels`].
    pub kernel: usize,
    /// The number of the image in [`KernelEntry::targets`].
    pub target: usize,
}

/// One image of a kernel, as the index describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetEntry {
    /// What the image is compiled for.
    pub target: Target,
    /// The image that is needed to decompress this one; it stands before this one.
    pub base: Option<ImageNumber>,
    /// Where its payload starts, from the end of the index.
    pub offset: u64,
    /// Bytes in the archive.
    pub stored_bytes: u64,
    /// Bytes of the image itself.
    pub raw_bytes: u64,
    /// SHA-256 of the stored bytes.
    pub stored_hash: Digest,
    /// SHA-256 of the image itself.
    pub raw_hash: Digest,
    /// What it needs on the device.
    pub resources: Resources,
    /// The compiler of this image; empty where it is the archive's.
    pub compiler: String,
}

impl AsRef<Target> for TargetEntry {
    fn as_ref(&self) -> &Target {
        &self.target
    }
}

/// One kernel, as the index describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelEntry {
    /// The unique name.
    pub name: String,
    /// The family it belongs to.
    pub family: String,
    /// One line of what it does.
    pub summary: String,
    /// The entry symbol in its images.
    pub entry: String,
    /// Whether it is beyond the base table.
    pub extended: bool,
    /// SHA-256 of its contract, by the builder's rule.
    pub contract_hash: Digest,
    /// Its images, sorted by target.
    pub targets: Vec<TargetEntry>,
}

impl KernelEntry {
    /// The image for exactly `target`.
    ///
    /// # Errors
    /// `UnknownTarget` names what there is.
    pub fn target(&self, target: Target) -> Result<&TargetEntry, ArchiveError> {
        self.targets
            .iter()
            .find(|entry| entry.target == target)
            .ok_or_else(|| ArchiveError::UnknownTarget {
                kernel: self.name.clone(),
                wanted: target,
                found: self.targets.iter().map(|entry| entry.target).collect(),
            })
    }

    /// The image to load on `device`, by [`choose`].
    ///
    /// # Errors
    /// `NoTarget` names the device's capability and what there is.
    pub fn choose(&self, device: Capability) -> Result<&TargetEntry, ArchiveError> {
        choose(&self.targets, device).map_err(|source| ArchiveError::NoTarget {
            kernel: self.name.clone(),
            source,
        })
    }
}

/// The result of checking one image.
#[derive(Debug)]
pub struct Checked {
    /// The kernel.
    pub kernel: String,
    /// The target.
    pub target: Target,
    /// Whether the payload is what the index says.
    pub result: Result<(), ArchiveError>,
}

/// An opened archive. The payloads stay in the blob until they are asked for.
#[derive(Debug, Clone)]
pub struct Archive<'a> {
    blob: Cow<'a, [u8]>,
    payloads: usize,
    metadata: Metadata,
    kernels: Vec<KernelEntry>,
}

impl<'a> Archive<'a> {
    /// Opens an archive in memory: checks and parses header and index, and touches no payload.
    ///
    /// # Errors
    /// Any damage to header or index, and any blob that is cut or extended.
    pub fn open(blob: &'a [u8]) -> Result<Self, ArchiveError> {
        Self::parse(Cow::Borrowed(blob))
    }

    fn parse(blob: Cow<'a, [u8]>) -> Result<Self, ArchiveError> {
        let header = Header::read(&blob)?;
        let mut reader = Reader {
            bytes: &blob[..header.payloads],
            at: HEADER,
        };
        let metadata = Metadata {
            source_hash: reader.digest("source hash")?,
            compiler: reader.text("compiler build")?,
        };
        let kernels = read_kernels(&mut reader, &header)?;
        Ok(Self {
            payloads: header.payloads,
            metadata,
            kernels,
            blob,
        })
    }

    /// What the archive was made from.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All kernels, sorted by name.
    pub fn kernels(&self) -> &[KernelEntry] {
        &self.kernels
    }

    /// The whole archive as bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.blob
    }

    /// The kernel called `name`.
    ///
    /// # Errors
    /// `UnknownKernel`, with the most similar name if one is close.
    pub fn kernel(&self, name: &str) -> Result<&KernelEntry, ArchiveError> {
        self.kernels
            .binary_search_by(|kernel| kernel.name.as_str().cmp(name))
            .map(|at| &self.kernels[at])
            .map_err(|_| ArchiveError::UnknownKernel {
                name: name.to_owned(),
                nearest: nearest(name, &self.kernels),
            })
    }

    /// The raw image of `kernel` for exactly `target`: decompressed, and checked against both
    /// hashes.
    ///
    /// # Errors
    /// An unknown kernel or target, or a payload that is not what the index says.
    pub fn image(&self, kernel: &str, target: Target) -> Result<Vec<u8>, ArchiveError> {
        let kernel = self.kernel(kernel)?;
        self.extract(kernel, kernel.target(target)?)
    }

    /// The raw image of `kernel` to load on `device`, and which one it is.
    ///
    /// # Errors
    /// An unknown kernel, no image that runs on the device, or a payload that is not what the index
    /// says.
    pub fn image_for(
        &self,
        kernel: &str,
        device: Capability,
    ) -> Result<(&TargetEntry, Vec<u8>), ArchiveError> {
        let kernel = self.kernel(kernel)?;
        let entry = kernel.choose(device)?;
        Ok((entry, self.extract(kernel, entry)?))
    }

    /// Extracts and checks every image, and reports each.
    pub fn verify_all(&self) -> Vec<Checked> {
        let images = self
            .kernels
            .iter()
            .flat_map(|kernel| kernel.targets.iter().map(move |entry| (kernel, entry)));
        images
            .map(|(kernel, entry)| Checked {
                kernel: kernel.name.clone(),
                target: entry.target,
                result: self.extract(kernel, entry).map(|_| ()),
            })
            .collect()
    }

    fn extract(&self, kernel: &KernelEntry, entry: &TargetEntry) -> Result<Vec<u8>, ArchiveError> {
        // Every base stands before the image that needs it: this ends, and loops stand in for recursion of any depth.
        let mut chain = vec![(kernel, entry)];
        let mut next = entry.base;
        while let Some(base) = next {
            let kernel = &self.kernels[base.kernel];
            let entry = &kernel.targets[base.target];
            chain.push((kernel, entry));
            next = entry.base;
        }
        let mut raw = Vec::new();
        for (kernel, entry) in chain.into_iter().rev() {
            raw = self.decompress(kernel, entry, &raw)?;
        }
        Ok(raw)
    }

    /// One image, of whose base `base` is the raw image, empty if it has none.
    fn decompress(
        &self,
        kernel: &KernelEntry,
        entry: &TargetEntry,
        base: &[u8],
    ) -> Result<Vec<u8>, ArchiveError> {
        let (name, target) = (|| kernel.name.clone(), entry.target);
        // The index was checked at opening: offsets and sizes lie inside the blob.
        let start = self.payloads + entry.offset as usize;
        let stored = &self.blob[start..start + entry.stored_bytes as usize];
        let found = Digest::of(stored);
        if found != entry.stored_hash {
            return Err(ArchiveError::StoredHash {
                kernel: name(),
                target,
                wanted: entry.stored_hash,
                found,
            });
        }
        let raw = decompress(stored, entry.raw_bytes, base).map_err(|source| {
            ArchiveError::Decompress {
                kernel: name(),
                target,
                wanted: entry.raw_bytes,
                source,
            }
        })?;
        if raw.len() as u64 != entry.raw_bytes {
            let found = raw.len() as u64;
            return Err(ArchiveError::RawSize {
                kernel: name(),
                target,
                wanted: entry.raw_bytes,
                found,
            });
        }
        let found = Digest::of(&raw);
        if found != entry.raw_hash {
            return Err(ArchiveError::RawHash {
                kernel: name(),
                target,
                wanted: entry.raw_hash,
                found,
            });
        }
        Ok(raw)
    }
}

impl Archive<'static> {
    /// Opens an archive that owns its bytes. See [`Archive::open`].
    ///
    /// # Errors
    /// Those of [`Archive::open`].
    pub fn from_vec(blob: Vec<u8>) -> Result<Self, ArchiveError> {
        Self::parse(Cow::Owned(blob))
    }

    /// Reads and opens an archive file. See [`Archive::open`].
    ///
    /// # Errors
    /// `Io`, and those of [`Archive::open`].
    pub fn read(path: &Path) -> Result<Self, ArchiveError> {
        let blob = std::fs::read(path).map_err(|source| ArchiveError::Io {
            path: path.to_owned(),
            source,
        })?;
        Self::from_vec(blob)
    }
}

/// The header, checked against the length of the blob and the hash of the index.
struct Header {
    kernels: u32,
    images: u32,
    /// Where the payloads start in the blob.
    payloads: usize,
    payload_bytes: u64,
}

impl Header {
    fn read(blob: &[u8]) -> Result<Self, ArchiveError> {
        let mut reader = Reader { bytes: blob, at: 0 };
        let magic = &blob[..blob.len().min(MAGIC.len())];
        if magic != MAGIC {
            return Err(ArchiveError::Magic {
                found: magic.to_vec(),
            });
        }
        reader.at = MAGIC.len();
        let version = reader.u32("version")?;
        if version != VERSION {
            return Err(ArchiveError::Version {
                wanted: VERSION,
                found: version,
            });
        }
        let flags = reader.u32("flags")?;
        if flags != 0 {
            return Err(ArchiveError::UnknownBits {
                what: "flags",
                at: 12,
                found: flags.into(),
            });
        }
        let (total, index_bytes, payload_bytes) = (
            reader.u64("archive bytes")?,
            reader.u64("index bytes")?,
            reader.u64("payload bytes")?,
        );
        let (kernels, images) = (reader.u32("kernels")?, reader.u32("images")?);
        let wanted = reader.digest("index hash")?;

        let found = blob.len() as u64;
        if total != found {
            return Err(ArchiveError::Length {
                wanted: total,
                found,
            });
        }
        let left = found - HEADER as u64;
        if index_bytes > left {
            let what = "the index";
            return Err(ArchiveError::Truncated {
                what,
                at: HEADER,
                wanted: index_bytes,
                found: left,
            });
        }
        let payloads = HEADER + index_bytes as usize;
        if payload_bytes != left - index_bytes {
            let wanted = (payloads as u64).saturating_add(payload_bytes);
            return Err(ArchiveError::Length { wanted, found });
        }
        let found = Digest::of_parts(&[&blob[..SEALED_HEADER], &blob[HEADER..payloads]]);
        if wanted != found {
            return Err(ArchiveError::IndexHash { wanted, found });
        }
        Ok(Self {
            kernels,
            images,
            payloads,
            payload_bytes,
        })
    }
}

fn read_kernels(reader: &mut Reader, header: &Header) -> Result<Vec<KernelEntry>, ArchiveError> {
    let room = reader.left() / MIN_KERNEL;
    if header.kernels as usize > room {
        let (wanted, found) = (header.kernels.into(), room as u64);
        return Err(ArchiveError::Count {
            what: "kernels",
            wanted,
            found,
        });
    }
    let mut kernels: Vec<KernelEntry> = Vec::with_capacity(header.kernels as usize);
    let mut images = Vec::new();
    let mut end = 0u64;
    for _ in 0..header.kernels {
        let kernel = read_kernel(reader, &mut images, &mut end, header.payload_bytes)?;
        if let Some(last) = kernels.last() {
            check_order(&last.name, &kernel.name)?;
        }
        kernels.push(kernel);
    }
    if reader.left() != 0 {
        return Err(ArchiveError::TrailingIndex {
            at: reader.at,
            found: reader.left() as u64,
        });
    }
    let images = images.len() as u64;
    if images != u64::from(header.images) {
        return Err(ArchiveError::Count {
            what: "images",
            wanted: header.images.into(),
            found: images,
        });
    }
    if end != header.payload_bytes {
        return Err(ArchiveError::Gap {
            wanted: end,
            found: header.payload_bytes,
        });
    }
    Ok(kernels)
}

fn check_order(last: &str, name: &str) -> Result<(), ArchiveError> {
    match last.cmp(name) {
        std::cmp::Ordering::Less => Ok(()),
        std::cmp::Ordering::Equal => Err(ArchiveError::DuplicateKernel {
            kernel: name.to_owned(),
        }),
        std::cmp::Ordering::Greater => Err(ArchiveError::UnsortedKernel {
            kernel: name.to_owned(),
            after: last.to_owned(),
        }),
    }
}

fn check_name(name: &str) -> Result<(), ArchiveError> {
    if !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    {
        Ok(())
    } else {
        Err(ArchiveError::KernelName {
            name: name.to_owned(),
        })
    }
}

/// `places` are those of all images before, and gets those of this kernel's.
fn read_kernel(
    reader: &mut Reader,
    places: &mut Vec<ImageNumber>,
    end: &mut u64,
    payload_bytes: u64,
) -> Result<KernelEntry, ArchiveError> {
    let name = reader.text("kernel name")?;
    check_name(&name)?;
    let family = reader.text("family")?;
    let summary = reader.text("summary")?;
    let entry = reader.text("entry symbol")?;
    let flags = reader.u8("kernel flags")?;
    if flags & !FLAG_EXTENDED != 0 {
        let found = u64::from(flags & !FLAG_EXTENDED);
        return Err(ArchiveError::UnknownBits {
            what: "kernel flags",
            at: reader.at - 1,
            found,
        });
    }
    let contract_hash = reader.digest("contract hash")?;
    let count = reader.u16("image count")?;
    if count == 0 {
        return Err(ArchiveError::NoImages { kernel: name });
    }
    if usize::from(count) > reader.left() / MIN_IMAGE {
        let (at, wanted) = (reader.at, u64::from(count) * MIN_IMAGE as u64);
        return Err(ArchiveError::Truncated {
            what: "images",
            at,
            wanted,
            found: reader.left() as u64,
        });
    }
    let number = places.last().map_or(0, |last| last.kernel + 1);
    let mut targets: Vec<TargetEntry> = Vec::with_capacity(count.into());
    for _ in 0..count {
        let entry = read_target(reader, &name, places)?;
        places.push(ImageNumber {
            kernel: number,
            target: targets.len(),
        });
        let target = entry.target;
        match targets.last().map(|last| last.target) {
            Some(last) if last == target => {
                return Err(ArchiveError::DuplicateTarget {
                    kernel: name,
                    target,
                });
            }
            Some(after) if after > target => {
                return Err(ArchiveError::UnsortedTarget {
                    kernel: name,
                    target,
                    after,
                });
            }
            _ => {}
        }
        if entry.offset < *end {
            return Err(ArchiveError::Overlap {
                kernel: name,
                target,
                wanted: *end,
                found: entry.offset,
            });
        }
        if entry.offset > *end {
            return Err(ArchiveError::Gap {
                wanted: *end,
                found: entry.offset,
            });
        }
        let left = payload_bytes - *end;
        if entry.stored_bytes > left {
            return Err(ArchiveError::PastEnd {
                kernel: name,
                target,
                wanted: left,
                found: entry.stored_bytes,
            });
        }
        if entry.raw_bytes > MAX_RAW_BYTES {
            let (wanted, found) = (MAX_RAW_BYTES, entry.raw_bytes);
            return Err(ArchiveError::RawTooLarge {
                kernel: name,
                target,
                wanted,
                found,
            });
        }
        *end += entry.stored_bytes;
        targets.push(entry);
    }
    let extended = flags & FLAG_EXTENDED != 0;
    Ok(KernelEntry {
        name,
        family,
        summary,
        entry,
        extended,
        contract_hash,
        targets,
    })
}

fn read_target(
    reader: &mut Reader,
    kernel: &str,
    before: &[ImageNumber],
) -> Result<TargetEntry, ArchiveError> {
    let number = reader.u32("architecture number")?;
    let suffix = match reader.u8("architecture suffix")? {
        0 => Suffix::None,
        1 => Suffix::F,
        2 => Suffix::A,
        found => {
            let (what, at) = ("architecture suffix", reader.at - 1);
            return Err(ArchiveError::UnknownBits {
                what,
                at,
                found: found.into(),
            });
        }
    };
    let kind = match reader.u8("image kind")? {
        0 => ImageKind::Sass,
        1 => ImageKind::Ptx,
        found => {
            return Err(ArchiveError::UnknownBits {
                what: "image kind",
                at: reader.at - 1,
                found: found.into(),
            });
        }
    };
    let arch = Arch::new(number, suffix).map_err(|source| ArchiveError::Arch {
        kernel: kernel.to_owned(),
        source,
    })?;
    let target = Target { kind, arch };
    let found = reader.u32("base")?.checked_sub(1);
    let found = found.map(|number| number as usize);
    let place = |found: usize| {
        before
            .get(found)
            .copied()
            .ok_or_else(|| ArchiveError::Base {
                kernel: kernel.to_owned(),
                target,
                wanted: before.len(),
                found,
            })
    };
    let base = found.map(place).transpose()?;
    Ok(TargetEntry {
        target,
        base,
        offset: reader.u64("payload offset")?,
        stored_bytes: reader.u64("stored bytes")?,
        raw_bytes: reader.u64("raw bytes")?,
        stored_hash: reader.digest("stored hash")?,
        raw_hash: reader.digest("raw hash")?,
        resources: Resources {
            registers: reader.u32("registers")?,
            shared_bytes: reader.u32("shared bytes")?,
            local_bytes: reader.u32("local bytes")?,
            spill_store_bytes: reader.u32("spill store bytes")?,
            spill_load_bytes: reader.u32("spill load bytes")?,
        },
        compiler: reader.text("image compiler")?,
    })
}

/// Reads fields one after the other; `at` counts from the start of the archive.
struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, what: &'static str, count: usize) -> Result<&'b [u8], ArchiveError> {
        if count > self.left() {
            let (wanted, found) = (count as u64, self.left() as u64);
            return Err(ArchiveError::Truncated {
                what,
                at: self.at,
                wanted,
                found,
            });
        }
        let taken = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], ArchiveError> {
        let mut value = [0; N];
        value.copy_from_slice(self.take(what, N)?);
        Ok(value)
    }

    fn u8(&mut self, what: &'static str) -> Result<u8, ArchiveError> {
        self.array(what).map(u8::from_le_bytes)
    }

    fn u16(&mut self, what: &'static str) -> Result<u16, ArchiveError> {
        self.array(what).map(u16::from_le_bytes)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, ArchiveError> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, ArchiveError> {
        self.array(what).map(u64::from_le_bytes)
    }

    fn digest(&mut self, what: &'static str) -> Result<Digest, ArchiveError> {
        self.array(what).map(Digest)
    }

    fn text(&mut self, what: &'static str) -> Result<String, ArchiveError> {
        let at = self.at;
        let count = self.u16(what)?;
        let bytes = self.take(what, count.into())?;
        std::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|_| ArchiveError::Text { what, at })
    }
}

/// The name that is closest to `name` by edit distance, if it is closer than half of it.
fn nearest(name: &str, kernels: &[KernelEntry]) -> Option<String> {
    // A name from the command line may be huge; nothing in an archive is close to that.
    if name.len() > 256 {
        return None;
    }
    let (distance, kernel) = kernels
        .iter()
        .map(|kernel| (strsim::levenshtein(name, &kernel.name), kernel))
        .min_by_key(|best| best.0)?;
    (distance * 2 < name.len()).then(|| kernel.name.clone())
}

/// The frame's image, which the format allows to have `raw_bytes`; `base` is empty or the dictionary.
fn decompress(stored: &[u8], raw_bytes: u64, base: &[u8]) -> io::Result<Vec<u8>> {
    zstd::bulk::Decompressor::with_dictionary(base)?.decompress(stored, raw_bytes as usize)
}

/// A zstd frame of an image, with `base` as its dictionary.
fn zstd_of(level: i32, raw: &[u8], base: Option<&[u8]>) -> Result<Vec<u8>, ArchiveError> {
    zstd::bulk::Compressor::with_dictionary(level, base.unwrap_or_default())
        .and_then(|mut compressor| compressor.compress(raw))
        .map_err(|source| ArchiveError::Compress {
            bytes: raw.len() as u64,
            source,
        })
}

/// One compressed image: made in parallel, then given to an [`ArchiveBuilder`].
#[derive(Debug, Clone)]
pub struct Payload {
    stored: Vec<u8>,
    stored_hash: Digest,
    raw_bytes: u64,
    raw_hash: Digest,
    base: Option<Digest>,
}

impl Payload {
    /// Compresses and hashes an image. The same bytes always give the same payload.
    ///
    /// # Errors
    /// `TooLong` above [`MAX_RAW_BYTES`]; `Compress` where zstd fails.
    pub fn compress(raw: &[u8]) -> Result<Self, ArchiveError> {
        Self::compressed(raw, None)
    }

    /// The same with the help of `base`, another image: code for neighbouring architectures differs little, and kernels
    /// made of the same templates share much. The archive needs `base`, too, before this image.
    ///
    /// # Errors
    /// Those of [`Payload::compress`].
    pub fn compress_on(raw: &[u8], base: &[u8]) -> Result<Self, ArchiveError> {
        Self::compressed(raw, Some(base))
    }

    fn compressed(raw: &[u8], base: Option<&[u8]>) -> Result<Self, ArchiveError> {
        limit("", "an image", raw.len() as u64, MAX_RAW_BYTES)?;
        let stored = zstd_of(COMPRESSION_LEVEL, raw, base)?;
        Ok(Self::of(raw, stored, base))
    }

    /// About how many bytes the compressed form has, relative to that on another base or on none: a tenth of the time that
    /// compressing takes.
    ///
    /// # Errors
    /// `Compress` where zstd fails.
    pub fn estimate(raw: &[u8], base: Option<&[u8]>) -> Result<usize, ArchiveError> {
        zstd_of(ESTIMATE_LEVEL, raw, base).map(|stored| stored.len())
    }

    /// The payload of [`Payload::compress`] or [`Payload::compress_on`] whose compressed form is `stored`; `None` where that
    /// is not so.
    pub fn restore(stored: Vec<u8>, raw: &[u8], base: Option<&[u8]>) -> Option<Self> {
        let found = decompress(&stored, raw.len() as u64, base.unwrap_or_default()).ok()?;
        (found == raw).then(|| Self::of(raw, stored, base))
    }

    fn of(raw: &[u8], stored: Vec<u8>, base: Option<&[u8]>) -> Self {
        Self {
            stored_hash: Digest::of(&stored),
            stored,
            raw_bytes: raw.len() as u64,
            raw_hash: Digest::of(raw),
            base: base.map(Digest::of),
        }
    }

    /// The compressed form, which [`Payload::restore`] takes.
    pub fn stored(&self) -> &[u8] {
        &self.stored
    }

    /// SHA-256 of the image itself.
    pub fn raw_hash(&self) -> Digest {
        self.raw_hash
    }

    /// Bytes of the image itself.
    pub fn raw_bytes(&self) -> u64 {
        self.raw_bytes
    }

    /// Bytes in the archive.
    pub fn stored_bytes(&self) -> u64 {
        self.stored.len() as u64
    }
}

/// An image for the archive.
#[derive(Debug, Clone)]
pub struct NewTarget {
    /// What the image is compiled for.
    pub target: Target,
    /// What it needs on the device.
    pub resources: Resources,
    /// Its compiler; empty where it is the archive's.
    pub compiler: String,
    /// The image.
    pub payload: Payload,
}

/// A kernel for the archive. See [`KernelEntry`].
#[derive(Debug, Clone, Default)]
pub struct NewKernel {
    /// The unique name: A-Z a-z 0-9 _.
    pub name: String,
    /// The family it belongs to.
    pub family: String,
    /// One line of what it does.
    pub summary: String,
    /// The entry symbol in its images.
    pub entry: String,
    /// Whether it is beyond the base table.
    pub extended: bool,
    /// SHA-256 of its contract.
    pub contract_hash: Digest,
    /// Its images, in any order, at least one, and the base of each that has one.
    pub targets: Vec<NewTarget>,
}

/// Makes an archive. The bytes depend on what is added, and not on the order.
#[derive(Debug, Clone, Default)]
pub struct ArchiveBuilder {
    metadata: Metadata,
    kernels: Vec<NewKernel>,
}

impl ArchiveBuilder {
    /// An empty archive.
    pub fn new(metadata: Metadata) -> Self {
        Self {
            metadata,
            kernels: Vec::new(),
        }
    }

    /// Adds a kernel. Everything is checked by [`ArchiveBuilder::finish`].
    pub fn push(&mut self, kernel: NewKernel) {
        self.kernels.push(kernel);
    }

    /// The bytes of the archive.
    ///
    /// # Errors
    /// Duplicate kernels or targets, bad names, kernels without an image, images without their base, and what does not fit
    /// in its field.
    pub fn finish(mut self) -> Result<Vec<u8>, ArchiveError> {
        self.kernels.sort_by(|a, b| a.name.cmp(&b.name));
        for kernel in &mut self.kernels {
            kernel.targets.sort_by_key(|target| target.target);
        }
        let mut index = Vec::new();
        index.extend(self.metadata.source_hash.0);
        put_text(
            &mut index,
            "",
            "the compiler build",
            &self.metadata.compiler,
        )?;
        let mut payload_bytes = 0u64;
        let mut images = Vec::new();
        let mut last: Option<&str> = None;
        for kernel in &self.kernels {
            check_name(&kernel.name)?;
            if let Some(last) = last.replace(&kernel.name) {
                check_order(last, &kernel.name)?;
            }
            put_kernel(&mut index, kernel, &mut images, &mut payload_bytes)?;
        }
        limit(
            "",
            "the number of images",
            images.len() as u64,
            u32::MAX.into(),
        )?;
        limit(
            "",
            "the number of kernels",
            self.kernels.len() as u64,
            u32::MAX.into(),
        )?;

        let mut blob = Vec::new();
        blob.extend(MAGIC);
        blob.extend(VERSION.to_le_bytes());
        blob.extend(0u32.to_le_bytes());
        blob.extend((HEADER as u64 + index.len() as u64 + payload_bytes).to_le_bytes());
        blob.extend((index.len() as u64).to_le_bytes());
        blob.extend(payload_bytes.to_le_bytes());
        blob.extend((self.kernels.len() as u32).to_le_bytes());
        blob.extend((images.len() as u32).to_le_bytes());
        let seal = Digest::of_parts(&[&blob, &index]);
        blob.extend(seal.0);
        blob.extend(index);
        for target in self.kernels.iter().flat_map(|kernel| &kernel.targets) {
            blob.extend_from_slice(&target.payload.stored);
        }
        Ok(blob)
    }
}

fn limit(kernel: &str, what: &'static str, found: u64, wanted: u64) -> Result<(), ArchiveError> {
    if found <= wanted {
        Ok(())
    } else {
        Err(ArchiveError::TooLong {
            kernel: kernel.to_owned(),
            what,
            wanted,
            found,
        })
    }
}

fn put_text(
    index: &mut Vec<u8>,
    kernel: &str,
    what: &'static str,
    text: &str,
) -> Result<(), ArchiveError> {
    limit(kernel, what, text.len() as u64, u16::MAX.into())?;
    index.extend((text.len() as u16).to_le_bytes());
    index.extend_from_slice(text.as_bytes());
    Ok(())
}

/// `images` are the hashes of all images before, and gets those of this kernel's.
fn put_kernel(
    index: &mut Vec<u8>,
    kernel: &NewKernel,
    images: &mut Vec<Digest>,
    end: &mut u64,
) -> Result<(), ArchiveError> {
    let name = &kernel.name;
    put_text(index, name, "the name", name)?;
    put_text(index, name, "the family", &kernel.family)?;
    put_text(index, name, "the summary", &kernel.summary)?;
    put_text(index, name, "the entry symbol", &kernel.entry)?;
    index.push(if kernel.extended { FLAG_EXTENDED } else { 0 });
    index.extend(kernel.contract_hash.0);
    if kernel.targets.is_empty() {
        return Err(ArchiveError::NoImages {
            kernel: name.clone(),
        });
    }
    limit(
        name,
        "the number of images",
        kernel.targets.len() as u64,
        u16::MAX.into(),
    )?;
    index.extend((kernel.targets.len() as u16).to_le_bytes());
    let mut last = None;
    for new in &kernel.targets {
        if last.replace(new.target) == Some(new.target) {
            return Err(ArchiveError::DuplicateTarget {
                kernel: name.clone(),
                target: new.target,
            });
        }
        let Target { kind, arch } = new.target;
        index.extend(arch.number().to_le_bytes());
        index.push(match arch.suffix() {
            Suffix::None => 0,
            Suffix::F => 1,
            Suffix::A => 2,
        });
        index.push(match kind {
            ImageKind::Sass => 0,
            ImageKind::Ptx => 1,
        });
        let base = match new.payload.base {
            None => 0,
            Some(wanted) => images
                .iter()
                .position(|before| *before == wanted)
                .map(|base| base + 1)
                .ok_or_else(|| ArchiveError::NoBase {
                    kernel: name.clone(),
                    target: new.target,
                    wanted,
                })?,
        };
        images.push(new.payload.raw_hash);
        // The number of all images is limited to 32 bits at the end.
        index.extend((base as u32).to_le_bytes());
        index.extend(end.to_le_bytes());
        index.extend(new.payload.stored_bytes().to_le_bytes());
        index.extend(new.payload.raw_bytes.to_le_bytes());
        index.extend(new.payload.stored_hash.0);
        index.extend(new.payload.raw_hash.0);
        let resources = &new.resources;
        for value in [
            resources.registers,
            resources.shared_bytes,
            resources.local_bytes,
            resources.spill_store_bytes,
            resources.spill_load_bytes,
        ] {
            index.extend(value.to_le_bytes());
        }
        put_text(index, name, "the compiler of an image", &new.compiler)?;
        *end += new.payload.stored_bytes();
    }
    Ok(())
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
