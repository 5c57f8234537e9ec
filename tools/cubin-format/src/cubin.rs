//! Reads what a cubin ELF file says about itself: architecture, entries, parameters, resources.
//!
//! Facts about the format that no public document states were read from cubins of the CUDA 12.4 and
//! 13.0 assemblers, and each is named where it is used.

use std::collections::BTreeMap;

use object::elf::{FileHeader64, SectionHeader64, SymbolSection};
use object::read::elf::{FileHeader as _, SectionHeader as _, Sym as _};
use object::{LittleEndian, SectionIndex, SymbolIndex};

use crate::arch::{Arch, ArchError, Suffix};
use crate::archive::Resources;

type Elf = FileHeader64<LittleEndian>;
type Section = SectionHeader64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

const MAGIC: &[u8] = b"\x7fELF";
const CLASS_64: u8 = 2;
const DATA_LITTLE: u8 = 1;
/// Positions in the identification bytes.
const AT_CLASS: usize = 4;
const AT_DATA: usize = 5;
const AT_ABI: usize = 8;
const EM_CUDA: u16 = 190;

/// ELF ABI versions: 7 is written up to CUDA 12, 8 from CUDA 13 on.
const ABI_12: u8 = 7;
const ABI_13: u8 = 8;
/// ABI 7: the bit of `e_flags` that an `a` suffix sets.
const ABI_12_ACCELERATED: u32 = 1 << 11;
/// ABI 8: the attribute of `.nv.compat` that an `a` suffix sets to 1.
const COMPAT_ACCELERATED: u8 = 0x09;

/// Symbols that can be launched have this bit in `st_other`.
const STO_ENTRY: u8 = 0x10;
const STT_FUNC: u8 = 2;

/// From this architecture on, `.nv.shared.<entry>` starts with the kilobyte that the driver
/// reserves.
const RESERVED_SHARED_SINCE: u32 = 90;
const RESERVED_SHARED_BYTES: u64 = 1024;

/// Attributes of the `.nv.info` sections, by cuobjdump's names.
mod attribute {
    /// EIATTR_MAX_THREADS: x, y, z of the launch bounds.
    pub const MAX_THREADS: u8 = 0x05;
    /// EIATTR_FRAME_SIZE: symbol, bytes.
    pub const FRAME_SIZE: u8 = 0x11;
    /// EIATTR_MIN_STACK_SIZE: symbol, bytes, including what it calls.
    pub const MIN_STACK_SIZE: u8 = 0x12;
    /// EIATTR_KPARAM_INFO: index, ordinal, offset, and the size in the upper 14 bits of a word.
    pub const KPARAM_INFO: u8 = 0x17;
    /// EIATTR_CBANK_PARAM_SIZE: bytes of all parameters.
    pub const CBANK_PARAM_SIZE: u8 = 0x19;
    /// EIATTR_REGCOUNT: symbol, registers.
    pub const REGCOUNT: u8 = 0x2f;
    /// EIATTR_KPARAM_INFO_V2: as KPARAM_INFO, with a size of 16 bits; where a parameter is large.
    pub const KPARAM_INFO_V2: u8 = 0x45;
}

/// Why bytes are not a cubin that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CubinError {
    /// The bytes are no ELF file.
    #[error("not an ELF file: wanted the magic {MAGIC:02x?}, found {found:02x?}")]
    Magic {
        /// Up to four bytes at the start.
        found: Vec<u8>,
    },
    /// The file is no 64-bit little-endian ELF.
    #[error(
        "ELF class {class} and data encoding {data}: wanted {CLASS_64} (64 bits) and {DATA_LITTLE} (little endian)"
    )]
    Class {
        /// The class byte.
        class: u8,
        /// The data encoding byte.
        data: u8,
    },
    /// The file is for another machine.
    #[error("ELF machine {found}: wanted {wanted} (CUDA)")]
    Machine {
        /// The number of CUDA.
        wanted: u16,
        /// The number in the header.
        found: u16,
    },
    /// The reader does not know where this ABI keeps the architecture.
    #[error("cubin ABI version {found}: wanted {ABI_12} or {ABI_13}")]
    Abi {
        /// The ABI version byte.
        found: u8,
    },
    /// The architecture number is out of range.
    #[error("the cubin is for no architecture")]
    Arch(#[from] ArchError),
    /// The ELF structure is damaged.
    #[error("damaged ELF file: {what}: {reason}")]
    Damaged {
        /// What was read.
        what: String,
        /// Why that failed.
        reason: String,
    },
    /// Two sections that are looked up by name have the same one.
    #[error("the cubin has two sections {name}")]
    DuplicateSection {
        /// The name.
        name: String,
    },
    /// A section that an entry needs is missing.
    #[error("entry {entry} has no section {section}")]
    MissingSection {
        /// The entry.
        entry: String,
        /// The section.
        section: String,
    },
    /// An entry symbol lies in another section than its own.
    #[error("entry {entry} should lie in {wanted}, found in {found}")]
    EntrySection {
        /// The entry.
        entry: String,
        /// Its own section.
        wanted: String,
        /// The section it lies in.
        found: String,
    },
    /// An attribute of an information section is cut or has the wrong size.
    #[error(
        "{section}: attribute {attribute:#04x} at byte {at} needs {wanted} bytes, found {found}"
    )]
    Attribute {
        /// The section.
        section: String,
        /// The attribute number.
        attribute: u8,
        /// Its position in the section.
        at: usize,
        /// The bytes it needs.
        wanted: usize,
        /// The bytes there are.
        found: usize,
    },
    /// An attribute has an encoding that the reader does not know.
    #[error("{section}: unknown attribute format {found} at byte {at}")]
    AttributeFormat {
        /// The section.
        section: String,
        /// Its position in the section.
        at: usize,
        /// The format byte.
        found: u8,
    },
    /// The parameter ordinals are not 0, 1, 2, ...
    #[error("entry {entry}: wanted parameter {wanted}, found {found}")]
    ParameterOrdinal {
        /// The entry.
        entry: String,
        /// The next ordinal.
        wanted: u16,
        /// The ordinal found.
        found: u16,
    },
    /// Two entries have the same name.
    #[error("the cubin has two entries {entry}")]
    DuplicateEntry {
        /// The name.
        entry: String,
    },
    /// There is no entry of that name.
    #[error("the cubin has no entry {wanted}; it has: {}", if found.is_empty() { "none".to_owned() } else { found.join(" ") })]
    UnknownEntry {
        /// What was asked for.
        wanted: String,
        /// What there is.
        found: Vec<String>,
    },
    /// No register count is recorded for an entry.
    #[error("entry {entry} has no register count")]
    NoRegisterCount {
        /// The entry.
        entry: String,
    },
}

/// One parameter of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// Its position in the parameter list, from 0.
    pub ordinal: u16,
    /// Its byte offset in the parameter block.
    pub offset: u32,
    /// Its size in bytes.
    pub size: u32,
}

/// One launchable function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The symbol.
    pub name: String,
    /// The parameters, by ordinal.
    pub parameters: Vec<Parameter>,
    /// Bytes of the parameter block.
    pub parameter_bytes: u32,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per block, bytes, without what the driver reserves.
    pub shared_bytes: u32,
    /// Stack of the entry itself per thread, bytes.
    pub frame_bytes: u32,
    /// Stack of the entry and what it calls per thread, bytes.
    pub stack_bytes: u32,
    /// Threads of the launch bounds in x, y, z, where given.
    pub max_threads: Option<[u32; 3]>,
}

impl Entry {
    /// Local memory per thread, bytes.
    pub fn local_bytes(&self) -> u32 {
        self.frame_bytes.max(self.stack_bytes)
    }

    /// The resources for the archive. The ELF file does not record spills; the assembler prints
    /// them.
    pub fn resources(&self, spill_store_bytes: u32, spill_load_bytes: u32) -> Resources {
        Resources {
            registers: self.registers,
            shared_bytes: self.shared_bytes,
            local_bytes: self.local_bytes(),
            spill_store_bytes,
            spill_load_bytes,
        }
    }
}

/// What a cubin says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cubin {
    /// The architecture. An `f` suffix is not recorded in the file and reads as none; see
    /// [`Cubin::is_for`].
    pub arch: Arch,
    /// The ELF ABI version: 7 up to CUDA 12, 8 from CUDA 13 on.
    pub abi_version: u8,
    /// The launchable functions, by name.
    pub entries: Vec<Entry>,
    /// The contents of `.nv.compat`, where there is one.
    pub(crate) compat: Option<Vec<u8>>,
}

impl Cubin {
    /// Reads a cubin.
    ///
    /// # Errors
    /// Bytes that are no cubin, and cubins that are damaged or whose parts contradict each other.
    pub fn parse(bytes: &[u8]) -> Result<Self, CubinError> {
        let abi_version = check_identity(bytes)?;
        let header = Elf::parse(bytes).map_err(damaged("file header"))?;
        let machine = header.e_machine(LE).0;
        if machine != EM_CUDA {
            return Err(CubinError::Machine {
                wanted: EM_CUDA,
                found: machine,
            });
        }
        let file = File::read(bytes, header)?;
        let compat = file
            .find(".nv.compat")
            .map(|section| file.data(".nv.compat", section))
            .transpose()?;
        let arch = architecture(abi_version, header.e_flags(LE).0, compat)?;
        let entries = file.entries(arch)?;
        Ok(Self {
            arch,
            abi_version,
            entries,
            compat: compat.map(<[u8]>::to_vec),
        })
    }

    /// The entry called `name`.
    ///
    /// # Errors
    /// `UnknownEntry` names what there is.
    pub fn entry(&self, name: &str) -> Result<&Entry, CubinError> {
        self.entries
            .iter()
            .find(|entry| entry.name == name)
            .ok_or_else(|| CubinError::UnknownEntry {
                wanted: name.to_owned(),
                found: self
                    .entries
                    .iter()
                    .map(|entry| entry.name.clone())
                    .collect(),
            })
    }

    /// Whether this is what a compiler makes for `arch`: the same number and `a` suffix. An `f`
    /// suffix is not recorded in the file.
    pub fn is_for(&self, arch: Arch) -> bool {
        self.arch.number() == arch.number()
            && (self.arch.suffix() == Suffix::A) == (arch.suffix() == Suffix::A)
    }
}

fn damaged(what: &str) -> impl Fn(object::Error) -> CubinError {
    move |error| CubinError::Damaged {
        what: what.to_owned(),
        reason: error.to_string(),
    }
}

/// Checks the identification bytes and returns the ABI version.
fn check_identity(bytes: &[u8]) -> Result<u8, CubinError> {
    let magic = &bytes[..bytes.len().min(MAGIC.len())];
    if magic != MAGIC {
        return Err(CubinError::Magic {
            found: magic.to_vec(),
        });
    }
    let byte = |at: usize| {
        bytes.get(at).copied().ok_or_else(|| CubinError::Damaged {
            what: "file header".to_owned(),
            reason: format!("the file has only {} bytes", bytes.len()),
        })
    };
    let (class, data, abi) = (byte(AT_CLASS)?, byte(AT_DATA)?, byte(AT_ABI)?);
    if (class, data) != (CLASS_64, DATA_LITTLE) {
        return Err(CubinError::Class { class, data });
    }
    Ok(abi)
}

/// The architecture: in ABI 7 the lowest byte of the flags and bit 11 for the suffix `a`, in ABI 8
/// the second byte and an attribute of `.nv.compat`.
fn architecture(abi: u8, flags: u32, compat: Option<&[u8]>) -> Result<Arch, CubinError> {
    let (number, accelerated) = match abi {
        ABI_12 => (flags & 0xff, flags & ABI_12_ACCELERATED != 0),
        ABI_13 => {
            let mut accelerated = false;
            for item in Attributes::new(".nv.compat", compat.unwrap_or_default()) {
                let item = item?;
                accelerated |= item.number == COMPAT_ACCELERATED && item.value & 0xff != 0;
            }
            (flags >> 8 & 0xff, accelerated)
        }
        found => return Err(CubinError::Abi { found }),
    };
    let suffix = if accelerated { Suffix::A } else { Suffix::None };
    Ok(Arch::new(number, suffix)?)
}

/// The ELF file with the sections that are looked up by name.
struct File<'b> {
    bytes: &'b [u8],
    table: object::read::elf::SectionTable<'b, Elf>,
    named: BTreeMap<&'b str, &'b Section>,
}

impl<'b> File<'b> {
    fn read(bytes: &'b [u8], header: &Elf) -> Result<Self, CubinError> {
        let table = header
            .sections(LE, bytes)
            .map_err(damaged("section table"))?;
        let mut named = BTreeMap::new();
        for section in table.iter() {
            let name = table
                .section_name(LE, section)
                .map_err(damaged("section name"))?;
            // Only names that are read here; a name that is not UTF-8 can't be one of them.
            let Ok(name) = std::str::from_utf8(name) else {
                continue;
            };
            let wanted = [".nv.info", ".nv.shared.", ".nv.compat", ".text."];
            if wanted.iter().any(|prefix| name.starts_with(prefix))
                && named.insert(name, section).is_some()
            {
                return Err(CubinError::DuplicateSection {
                    name: name.to_owned(),
                });
            }
        }
        Ok(Self {
            bytes,
            table,
            named,
        })
    }

    fn find(&self, name: &str) -> Option<&'b Section> {
        self.named.get(name).copied()
    }

    fn data(&self, name: &str, section: &'b Section) -> Result<&'b [u8], CubinError> {
        section.data(LE, self.bytes).map_err(damaged(name))
    }

    fn entries(&self, arch: Arch) -> Result<Vec<Entry>, CubinError> {
        let symbols = self
            .table
            .symbols(LE, self.bytes, object::elf::SHT_SYMTAB)
            .map_err(damaged("symbol table"))?;
        let functions = self.functions()?;
        let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
        for (index, symbol) in symbols.enumerate() {
            if symbol.st_type().0 != STT_FUNC || symbol.st_other().0 & STO_ENTRY == 0 {
                continue;
            }
            let name = symbols
                .symbol_name(LE, symbol)
                .map_err(damaged("symbol name"))?;
            let name = std::str::from_utf8(name).map_err(|_| CubinError::Damaged {
                what: "symbol name".to_owned(),
                reason: format!("{name:02x?} is not UTF-8"),
            })?;
            self.check_section(name, symbol.st_shndx(LE))?;
            let entry = self.entry(name, index, &functions, arch)?;
            if entries.insert(name.to_owned(), entry).is_some() {
                return Err(CubinError::DuplicateEntry {
                    entry: name.to_owned(),
                });
            }
        }
        Ok(entries.into_values().collect())
    }

    fn check_section(&self, entry: &str, index: SymbolSection) -> Result<(), CubinError> {
        let wanted = format!(".text.{entry}");
        let section = self
            .table
            .section(SectionIndex(index.0.into()))
            .map_err(damaged("section of an entry"))?;
        let found = self
            .table
            .section_name(LE, section)
            .map_err(damaged("section name"))?;
        if found == wanted.as_bytes() {
            return Ok(());
        }
        let found = String::from_utf8_lossy(found).into_owned();
        Err(CubinError::EntrySection {
            entry: entry.to_owned(),
            wanted,
            found,
        })
    }

    /// Per symbol, what `.nv.info` says.
    fn functions(&self) -> Result<BTreeMap<u32, Function>, CubinError> {
        let mut functions: BTreeMap<u32, Function> = BTreeMap::new();
        let Some(section) = self.find(".nv.info") else {
            return Ok(functions);
        };
        for item in Attributes::new(".nv.info", self.data(".nv.info", section)?) {
            let item = item?;
            let field: fn(&mut Function) -> &mut Option<u32> = match item.number {
                attribute::REGCOUNT => |function| &mut function.registers,
                attribute::FRAME_SIZE => |function| &mut function.frame,
                attribute::MIN_STACK_SIZE => |function| &mut function.stack,
                _ => continue,
            };
            let [symbol, value] = item.words()?;
            *field(functions.entry(symbol).or_default()) = Some(value);
        }
        Ok(functions)
    }

    fn entry(
        &self,
        name: &str,
        symbol: SymbolIndex,
        functions: &BTreeMap<u32, Function>,
        arch: Arch,
    ) -> Result<Entry, CubinError> {
        let function = u32::try_from(symbol.0)
            .ok()
            .and_then(|index| functions.get(&index))
            .copied()
            .unwrap_or_default();
        let registers = function
            .registers
            .ok_or_else(|| CubinError::NoRegisterCount {
                entry: name.to_owned(),
            })?;
        let mut entry = Entry {
            name: name.to_owned(),
            parameters: Vec::new(),
            parameter_bytes: 0,
            registers,
            shared_bytes: self.shared_bytes(name, arch)?,
            frame_bytes: function.frame.unwrap_or(0),
            stack_bytes: function.stack.unwrap_or(0),
            max_threads: None,
        };
        let info = format!(".nv.info.{name}");
        let Some(section) = self.find(&info) else {
            return Err(CubinError::MissingSection {
                entry: name.to_owned(),
                section: info,
            });
        };
        for item in Attributes::new(&info, self.data(&info, section)?) {
            let item = item?;
            match item.number {
                attribute::KPARAM_INFO => {
                    let [_, place, packed] = item.words()?;
                    entry.parameters.push(parameter(place, packed >> 18));
                }
                attribute::KPARAM_INFO_V2 => {
                    let [_, place, size] = item.words()?;
                    entry.parameters.push(parameter(place, size & 0xffff));
                }
                attribute::CBANK_PARAM_SIZE => entry.parameter_bytes = item.value.into(),
                attribute::MAX_THREADS => entry.max_threads = Some(item.words()?),
                _ => {}
            }
        }
        entry.parameters.sort_by_key(|parameter| parameter.ordinal);
        for (wanted, parameter) in (0u16..).zip(&entry.parameters) {
            if parameter.ordinal != wanted {
                let (entry, found) = (name.to_owned(), parameter.ordinal);
                return Err(CubinError::ParameterOrdinal {
                    entry,
                    wanted,
                    found,
                });
            }
        }
        Ok(entry)
    }

    fn shared_bytes(&self, entry: &str, arch: Arch) -> Result<u32, CubinError> {
        let name = format!(".nv.shared.{entry}");
        let Some(section) = self.find(&name) else {
            return Ok(0);
        };
        let reserved = if arch.number() >= RESERVED_SHARED_SINCE {
            RESERVED_SHARED_BYTES
        } else {
            0
        };
        let bytes = section.sh_size(LE).saturating_sub(reserved);
        u32::try_from(bytes).map_err(|_| CubinError::Damaged {
            what: name,
            reason: format!("{bytes} bytes of shared memory"),
        })
    }
}

/// The second word of a parameter attribute is the ordinal and, above it, the offset.
fn parameter(place: u32, size: u32) -> Parameter {
    Parameter {
        ordinal: (place & 0xffff) as u16,
        offset: place >> 16,
        size,
    }
}

/// What `.nv.info` says of one symbol.
#[derive(Debug, Clone, Copy, Default)]
struct Function {
    registers: Option<u32>,
    frame: Option<u32>,
    stack: Option<u32>,
}

/// One attribute: format byte, number, and a 16-bit value, which for format 4 is the size of the
/// data that follows.
struct Attribute<'b> {
    section: &'b str,
    at: usize,
    number: u8,
    value: u16,
    data: &'b [u8],
}

impl Attribute<'_> {
    /// The data as exactly `N` words.
    fn words<const N: usize>(&self) -> Result<[u32; N], CubinError> {
        if self.data.len() != 4 * N {
            return Err(CubinError::Attribute {
                section: self.section.to_owned(),
                attribute: self.number,
                at: self.at,
                wanted: 4 * N,
                found: self.data.len(),
            });
        }
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(self.data.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        Ok(words)
    }
}

struct Attributes<'b> {
    section: &'b str,
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Attributes<'b> {
    fn new(section: &'b str, bytes: &'b [u8]) -> Self {
        Self {
            section,
            bytes,
            at: 0,
        }
    }

    fn read(&mut self) -> Result<Attribute<'b>, CubinError> {
        let (section, at) = (self.section, self.at);
        let rest = &self.bytes[at..];
        let cut = |attribute: u8, wanted: usize| CubinError::Attribute {
            section: section.to_owned(),
            attribute,
            at,
            wanted,
            found: rest.len(),
        };
        let &[format, number, low, high, ..] = rest else {
            return Err(cut(rest.get(1).copied().unwrap_or(0), 4));
        };
        let value = u16::from_le_bytes([low, high]);
        let size = match format {
            1..=3 => 0,
            4 => usize::from(value),
            found => {
                return Err(CubinError::AttributeFormat {
                    section: section.to_owned(),
                    at,
                    found,
                });
            }
        };
        let data = rest.get(4..4 + size).ok_or_else(|| cut(number, 4 + size))?;
        self.at += 4 + size;
        Ok(Attribute {
            section,
            at,
            number,
            value,
            data,
        })
    }
}

impl<'b> Iterator for Attributes<'b> {
    type Item = Result<Attribute<'b>, CubinError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let item = self.read();
        if item.is_err() {
            self.at = self.bytes.len();
        }
        Some(item)
    }
}

/// The parameters of an entry are not what its contract says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AbiMismatch {
    /// The entry has another number of parameters.
    #[error("entry {entry} has {found} parameters, wanted {wanted}")]
    Count {
        /// The entry.
        entry: String,
        /// Pointers, and one more if there is a push block.
        wanted: usize,
        /// The parameters of the entry.
        found: usize,
    },
    /// A parameter has another place or size.
    #[error(
        "entry {entry}: parameter {ordinal} has {found_size} bytes at {found_offset}, wanted {wanted_size} at {wanted_offset}"
    )]
    Parameter {
        /// The entry.
        entry: String,
        /// The parameter's position, from 0; pointers come first, then the push block.
        ordinal: usize,
        /// The contract's offset in bytes.
        wanted_offset: u32,
        /// The contract's size in bytes.
        wanted_size: u32,
        /// The entry's offset in bytes.
        found_offset: u32,
        /// The entry's size in bytes.
        found_size: u32,
    },
    /// The parameter block has another size.
    #[error("entry {entry} takes {found} parameter bytes, wanted {wanted}")]
    Bytes {
        /// The entry.
        entry: String,
        /// The contract's size.
        wanted: u64,
        /// The entry's size.
        found: u64,
    },
}

/// Checks the dispatch ABI: `pointer_count` pointers of 8 bytes at 0, 8, 16, ..., then the push
/// block of `push_bytes` bytes by value, and nothing else. Without push bytes there is no push
/// parameter.
///
/// # Errors
/// The first difference.
pub fn check_abi(entry: &Entry, pointer_count: usize, push_bytes: u32) -> Result<(), AbiMismatch> {
    let name = || entry.name.clone();
    let wanted = pointer_count + usize::from(push_bytes > 0);
    if entry.parameters.len() != wanted {
        return Err(AbiMismatch::Count {
            entry: name(),
            wanted,
            found: entry.parameters.len(),
        });
    }
    let mut wanted_offset = 0u32;
    for (ordinal, parameter) in entry.parameters.iter().enumerate() {
        let wanted_size = if ordinal < pointer_count {
            8
        } else {
            push_bytes
        };
        let (found_offset, found_size) = (parameter.offset, parameter.size);
        if (found_offset, found_size) != (wanted_offset, wanted_size) {
            return Err(AbiMismatch::Parameter {
                entry: name(),
                ordinal,
                wanted_offset,
                wanted_size,
                found_offset,
                found_size,
            });
        }
        wanted_offset = wanted_offset.saturating_add(wanted_size);
    }
    if entry.parameter_bytes != wanted_offset {
        let (wanted, found) = (wanted_offset.into(), entry.parameter_bytes.into());
        return Err(AbiMismatch::Bytes {
            entry: name(),
            wanted,
            found,
        });
    }
    Ok(())
}

#[cfg(test)]
#[path = "cubin_tests.rs"]
mod tests;
