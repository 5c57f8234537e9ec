//! Opens a file: header, metadata and tensor table, checked against the size of the file.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

use crate::error::GgufError;
use crate::tensor_type::TensorType;
use crate::value::{Cursor, Value};

pub(crate) const MAGIC: [u8; 4] = *b"GGUF";
const VERSIONS: [u32; 2] = [2, 3];
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
pub(crate) const DEFAULT_ALIGNMENT: u64 = 32;
/// ggml's limit.
const MAX_DIMENSIONS: u32 = 4;
/// A key of no letters with a value of one byte.
const MIN_PAIR_BYTES: u64 = 8 + 4 + 1;
/// A tensor without name and dimensions.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;

enum Bytes {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// One tensor, as the table describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// The unique name.
    pub name: String,
    /// Elements per dimension, at most four; the first is the length of a row, whose elements are
    /// adjacent.
    pub dims: Vec<u64>,
    /// The element type.
    pub kind: TensorType,
    /// Where its data lies in the file.
    pub range: Range<u64>,
}

/// A tensor and its data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TensorView<'a> {
    /// The unique name.
    pub name: &'a str,
    /// Elements per dimension, at most four; the first is the length of a row, whose elements are
    /// adjacent.
    pub dims: &'a [u64],
    /// The element type.
    pub kind: TensorType,
    /// Where the data starts in the file.
    pub offset: u64,
    /// The data, in the blocks of `kind`.
    pub bytes: &'a [u8],
}

impl TensorView<'_> {
    /// Elements of a row: the first dimension, 1 for a tensor without dimensions.
    pub fn columns(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// The product of all dimensions but the first.
    pub fn rows(&self) -> u64 {
        self.dims.iter().skip(1).product()
    }

    /// Elements of all rows.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Bytes from one row to the next.
    pub fn row_bytes(&self) -> u64 {
        self.columns() / self.kind.block_elements() * self.kind.block_bytes()
    }
}

impl std::fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} {:?} {} at {} ({} bytes)",
            self.name,
            self.dims,
            self.kind,
            self.offset,
            self.bytes.len()
        )
    }
}

/// An opened GGUF file.
pub struct Gguf {
    bytes: Bytes,
    version: u32,
    alignment: u64,
    /// Positions of the values (their type) by key.
    pairs: BTreeMap<String, usize>,
    tensors: Vec<Tensor>,
    by_name: BTreeMap<String, usize>,
}

impl std::fmt::Debug for Gguf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (version, keys, tensors) = (self.version, self.pairs.len(), self.tensors.len());
        write!(
            f,
            "Gguf(version {version}, {keys} keys, {tensors} tensors, {} bytes)",
            self.bytes.get().len()
        )
    }
}

impl Gguf {
    /// Maps and checks a file. While it is open nobody may change or cut it: the values that are
    /// handed out are read from the file at that moment.
    ///
    /// # Errors
    /// `Io`, and anything that is wrong with the file.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let io = |source| GgufError::Io {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.len() == 0 {
            return Self::from_bytes(Vec::new());
        }
        // SAFETY: the map is read-only and lives as long as `self`, and the documentation of this
        // function asks the caller to leave the file alone.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        Self::check(Bytes::Mapped(map))
    }

    /// Checks a file in memory.
    ///
    /// # Errors
    /// Anything that is wrong with the file.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, GgufError> {
        Self::check(Bytes::Owned(bytes))
    }

    fn check(bytes: Bytes) -> Result<Self, GgufError> {
        let mut cursor = Cursor::new(bytes.get());
        let version = read_version(&mut cursor, bytes.get())?;
        let at = cursor.at();
        let tensor_count = cursor.count("tensors", MIN_TENSOR_BYTES)?;
        let pair_count = cursor.count("metadata keys", MIN_PAIR_BYTES)?;
        let pairs = read_pairs(&mut cursor, pair_count)?;
        let alignment = read_alignment(&pairs, bytes.get())?;
        // Again, now that the keys have taken their part of the file.
        let found = cursor.left() / MIN_TENSOR_BYTES;
        if tensor_count > found {
            return Err(GgufError::Count {
                what: "tensors",
                at,
                wanted: tensor_count,
                found,
            });
        }
        let (tensors, by_name) = read_tensors(
            &mut cursor,
            tensor_count,
            alignment,
            bytes.get().len() as u64,
        )?;
        Ok(Self {
            version,
            alignment,
            pairs,
            tensors,
            by_name,
            bytes,
        })
    }

    /// The format version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The alignment of tensor data in the file, bytes.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// All keys and values, by key.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.pairs
            .iter()
            .filter_map(|(key, &at)| Some((key.as_str(), value_at(self.bytes.get(), key, at)?)))
    }

    /// The value of `key`.
    pub fn value(&self, key: &str) -> Option<Value<'_>> {
        value_at(self.bytes.get(), key, *self.pairs.get(key)?)
    }

    /// The value of `key`, which must be an integer that is not negative.
    ///
    /// # Errors
    /// `MissingKey`, `KeyType`.
    pub fn u64(&self, key: &str) -> Result<u64, GgufError> {
        self.typed(key, "an unsigned integer", |value| value.as_u64())
    }

    /// The value of `key`, which must be a float.
    ///
    /// # Errors
    /// `MissingKey`, `KeyType`.
    pub fn f64(&self, key: &str) -> Result<f64, GgufError> {
        self.typed(key, "a float", |value| value.as_f64())
    }

    /// The value of `key`, which must be a string in UTF-8.
    ///
    /// # Errors
    /// `MissingKey`, `KeyType`.
    pub fn str(&self, key: &str) -> Result<&str, GgufError> {
        self.typed(key, "a UTF-8 string", |value| value.as_str())
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        wanted: &'static str,
        convert: impl FnOnce(&Value<'a>) -> Option<T>,
    ) -> Result<T, GgufError> {
        let value = self.value(key).ok_or_else(|| GgufError::MissingKey {
            key: key.to_owned(),
        })?;
        convert(&value).ok_or_else(|| GgufError::KeyType {
            key: key.to_owned(),
            wanted,
            found: value.kind(),
        })
    }

    /// All tensors, in the order of the file's table.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensor called `name`, with its data.
    ///
    /// # Errors
    /// `UnknownTensor`.
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>, GgufError> {
        match self.by_name.get(name) {
            Some(&index) => Ok(self.view(&self.tensors[index])),
            None => Err(GgufError::UnknownTensor {
                name: name.to_owned(),
                found: self.tensors.len(),
            }),
        }
    }

    /// All tensors with their data, in the order of the file's table.
    pub fn views(&self) -> impl Iterator<Item = TensorView<'_>> {
        self.tensors.iter().map(|tensor| self.view(tensor))
    }

    fn view<'a>(&'a self, tensor: &'a Tensor) -> TensorView<'a> {
        let Range { start, end } = tensor.range;
        TensorView {
            name: &tensor.name,
            dims: &tensor.dims,
            kind: tensor.kind,
            offset: start,
            // The range was checked against the size of the file.
            bytes: &self.bytes.get()[start as usize..end as usize],
        }
    }
}

fn read_version(cursor: &mut Cursor, bytes: &[u8]) -> Result<u32, GgufError> {
    let magic = &bytes[..bytes.len().min(MAGIC.len())];
    if magic != MAGIC {
        return Err(GgufError::Magic {
            found: magic.to_vec(),
        });
    }
    cursor.u32("magic")?;
    let at = cursor.at();
    let version = cursor.u32("version")?;
    if VERSIONS.contains(&version) {
        Ok(version)
    } else if VERSIONS.contains(&version.swap_bytes()) {
        Err(GgufError::BigEndian {
            version: version.swap_bytes(),
        })
    } else {
        Err(GgufError::Version { at, found: version })
    }
}

fn read_pairs(cursor: &mut Cursor, count: u64) -> Result<BTreeMap<String, usize>, GgufError> {
    let mut pairs = BTreeMap::new();
    for _ in 0..count {
        let at = cursor.at();
        let key = cursor.name("a key")?;
        let position = cursor.at() as usize;
        let kind = cursor.value_type(key)?;
        cursor.value(kind, key, 0)?;
        match pairs.entry(key.to_owned()) {
            Entry::Vacant(entry) => entry.insert(position),
            Entry::Occupied(entry) => {
                return Err(GgufError::DuplicateKey {
                    key: entry.key().clone(),
                    at,
                });
            }
        };
    }
    Ok(pairs)
}

/// The value whose type is at position `at`; it was read once when the file was opened.
fn value_at<'a>(bytes: &'a [u8], key: &str, at: usize) -> Option<Value<'a>> {
    let mut cursor = Cursor::new(&bytes[at..]);
    let kind = cursor.value_type(key).ok()?;
    cursor.value(kind, key, 0).ok()
}

fn read_alignment(pairs: &BTreeMap<String, usize>, bytes: &[u8]) -> Result<u64, GgufError> {
    let Some(&at) = pairs.get(ALIGNMENT_KEY) else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    let Some(value) = value_at(bytes, ALIGNMENT_KEY, at) else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    let (key, wanted, found) = (
        ALIGNMENT_KEY.to_owned(),
        "an unsigned integer",
        value.kind(),
    );
    let alignment = value
        .as_u64()
        .ok_or(GgufError::KeyType { key, wanted, found })?;
    if alignment.is_power_of_two() {
        Ok(alignment)
    } else {
        Err(GgufError::Alignment { found: alignment })
    }
}

/// A row of the table, before the start of the data is known.
struct Row {
    name: String,
    dims: Vec<u64>,
    kind: TensorType,
    bytes: u64,
    offset: u64,
    /// The position of the offset.
    at: u64,
}

type Tensors = (Vec<Tensor>, BTreeMap<String, usize>);

fn read_tensors(
    cursor: &mut Cursor,
    count: u64,
    alignment: u64,
    file: u64,
) -> Result<Tensors, GgufError> {
    let mut rows = Vec::new();
    let mut by_name = BTreeMap::new();
    for index in 0..count as usize {
        let at = cursor.at();
        let row = read_row(cursor)?;
        match by_name.entry(row.name.clone()) {
            Entry::Vacant(entry) => entry.insert(index),
            Entry::Occupied(entry) => {
                return Err(GgufError::DuplicateTensor {
                    tensor: entry.key().clone(),
                    at,
                });
            }
        };
        rows.push(row);
    }
    // Where the sum overflows, every tensor ends past the file.
    let data = cursor
        .at()
        .checked_next_multiple_of(alignment)
        .unwrap_or(u64::MAX);
    let tensors = rows
        .into_iter()
        .map(|row| place(row, data, alignment, file))
        .collect::<Result<Vec<_>, _>>()?;
    check_overlap(&tensors)?;
    Ok((tensors, by_name))
}

fn read_row(cursor: &mut Cursor) -> Result<Row, GgufError> {
    let name = cursor.name("a tensor name")?.to_owned();
    let at = cursor.at();
    let count = cursor.u32("dimension count")?;
    if count > MAX_DIMENSIONS {
        return Err(GgufError::Dimensions {
            tensor: name,
            at,
            wanted: MAX_DIMENSIONS,
            found: count,
        });
    }
    let dims_at = cursor.at();
    let dims = (0..count)
        .map(|_| cursor.u64("a dimension"))
        .collect::<Result<Vec<_>, _>>()?;
    let at = cursor.at();
    let number = cursor.u32("tensor type")?;
    let Some(kind) = TensorType::from_number(number) else {
        return Err(GgufError::TensorType {
            tensor: name,
            at,
            found: number,
        });
    };
    let columns = dims.first().copied().unwrap_or(1);
    if !columns.is_multiple_of(kind.block_elements()) {
        let (at, wanted) = (dims_at, kind.block_elements());
        return Err(GgufError::PartialBlock {
            tensor: name,
            kind,
            at,
            wanted,
            found: columns,
        });
    }
    let product = |start: u64, dims: &[u64]| {
        dims.iter()
            .try_fold(start, |size, &dim| size.checked_mul(dim))
    };
    let bytes = kind
        .row_bytes(columns)
        .and_then(|row| product(row, dims.get(1..).unwrap_or_default()));
    // The number of elements too: a block has fewer bytes than elements. The number of rows too: a
    // dimension of 0 hides it in the other two.
    let rows = product(1, dims.get(1..).unwrap_or_default());
    let (Some(bytes), Some(_), Some(_)) = (bytes, product(1, &dims), rows) else {
        return Err(GgufError::Overflow {
            tensor: name,
            at: dims_at,
            found: dims,
        });
    };
    let at = cursor.at();
    let offset = cursor.u64("data offset")?;
    Ok(Row {
        name,
        dims,
        kind,
        bytes,
        offset,
        at,
    })
}

fn place(row: Row, data: u64, alignment: u64, file: u64) -> Result<Tensor, GgufError> {
    let Row {
        name,
        dims,
        kind,
        bytes,
        offset,
        at,
    } = row;
    if !offset.is_multiple_of(alignment) {
        return Err(GgufError::Misaligned {
            tensor: name,
            at,
            wanted: alignment,
            found: offset,
        });
    }
    let start = data.saturating_add(offset);
    let end = start.saturating_add(bytes);
    if end > file {
        return Err(GgufError::PastEnd {
            tensor: name,
            at,
            wanted: end,
            found: file,
        });
    }
    Ok(Tensor {
        name,
        dims,
        kind,
        range: start..end,
    })
}

fn check_overlap(tensors: &[Tensor]) -> Result<(), GgufError> {
    let mut by_start: Vec<&Tensor> = tensors
        .iter()
        .filter(|tensor| !tensor.range.is_empty())
        .collect();
    by_start.sort_by_key(|tensor| tensor.range.start);
    for pair in by_start.windows(2) {
        if let [other, tensor] = pair
            && tensor.range.start < other.range.end
        {
            return Err(GgufError::Overlap {
                tensor: tensor.name.clone(),
                other: other.name.clone(),
                wanted: other.range.end,
                found: tensor.range.start,
            });
        }
    }
    Ok(())
}
