//! Everything that can be wrong with a GGUF file.

use std::path::PathBuf;

use crate::tensor_type::TensorType;
use crate::value::ValueType;

/// Why a file can't be read. Positions are bytes from the start of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The file can't be opened or mapped.
    #[error("can't read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The first bytes are not `GGUF`.
    #[error("not a GGUF file: wanted the magic \"GGUF\", found {found:02x?}")]
    Magic {
        /// Up to four bytes at the start.
        found: Vec<u8>,
    },
    /// The file was written for a big-endian machine.
    #[error("big-endian GGUF (version {version}): wanted little endian; convert the file")]
    BigEndian {
        /// The version after swapping its bytes.
        version: u32,
    },
    /// The version is neither 2 nor 3.
    #[error("GGUF version {found} at byte {at} is not supported: wanted 2 or 3")]
    Version {
        /// Its position.
        at: u64,
        /// The version.
        found: u32,
    },
    /// A field reaches past the end of the file.
    #[error("{what} at byte {at} needs {wanted} bytes, found {found}: the file is cut or damaged")]
    Truncated {
        /// The field.
        what: &'static str,
        /// Its position.
        at: u64,
        /// The bytes it needs.
        wanted: u64,
        /// The bytes left in the file.
        found: u64,
    },
    /// A count is larger than what could fit in the rest of the file.
    #[error("{wanted} {what} at byte {at}: the file has room for {found} at most")]
    Count {
        /// What is counted.
        what: &'static str,
        /// The position of the count.
        at: u64,
        /// The count.
        wanted: u64,
        /// The most that could fit.
        found: u64,
    },
    /// A key or a tensor name is not UTF-8.
    #[error("{what} at byte {at} is not UTF-8")]
    Utf8 {
        /// The field.
        what: &'static str,
        /// Its position.
        at: u64,
    },
    /// A key or a tensor name is too long.
    #[error("{what} at byte {at} has {found} bytes: wanted {wanted} at most")]
    NameLength {
        /// The field.
        what: &'static str,
        /// Its position.
        at: u64,
        /// The limit.
        wanted: u64,
        /// Its length.
        found: u64,
    },
    /// A metadata value has an unknown type.
    #[error("unknown value type {found} at byte {at} in key {key:?}")]
    ValueType {
        /// The key.
        key: String,
        /// The position of the type.
        at: u64,
        /// The type number.
        found: u32,
    },
    /// A boolean is neither 0 nor 1.
    #[error("boolean {found} at byte {at} in key {key:?}: wanted 0 or 1")]
    Bool {
        /// The key.
        key: String,
        /// The position of the value.
        at: u64,
        /// The value.
        found: u8,
    },
    /// Arrays are nested too deeply.
    #[error("arrays in key {key:?} are nested more than {wanted} deep at byte {at}")]
    Nesting {
        /// The key.
        key: String,
        /// The position of the array.
        at: u64,
        /// The limit.
        wanted: usize,
    },
    /// A key occurs twice.
    #[error("key {key:?} occurs twice, again at byte {at}")]
    DuplicateKey {
        /// The key.
        key: String,
        /// The position of the second.
        at: u64,
    },
    /// The alignment of the file is not a power of two.
    #[error("general.alignment is {found}: wanted a power of two")]
    Alignment {
        /// The value.
        found: u64,
    },
    /// A tensor name occurs twice.
    #[error("tensor {tensor:?} occurs twice, again at byte {at}")]
    DuplicateTensor {
        /// The tensor.
        tensor: String,
        /// The position of the second.
        at: u64,
    },
    /// A tensor has too many dimensions.
    #[error("tensor {tensor:?} has {found} dimensions at byte {at}: wanted {wanted} at most")]
    Dimensions {
        /// The tensor.
        tensor: String,
        /// The position of the count.
        at: u64,
        /// The limit.
        wanted: u32,
        /// The count.
        found: u32,
    },
    /// A tensor has an unknown element type.
    #[error("tensor {tensor:?} has the unknown type {found} at byte {at}")]
    TensorType {
        /// The tensor.
        tensor: String,
        /// The position of the type.
        at: u64,
        /// The type number.
        found: u32,
    },
    /// The size of a tensor does not fit in 64 bits.
    #[error("the size of tensor {tensor:?} overflows: dimensions {found:?} at byte {at}")]
    Overflow {
        /// The tensor.
        tensor: String,
        /// The position of the dimensions.
        at: u64,
        /// The dimensions.
        found: Vec<u64>,
    },
    /// The rows of a tensor are no whole number of blocks.
    #[error(
        "rows of tensor {tensor:?} have {found} elements at byte {at}: wanted a multiple of {wanted} for {kind}"
    )]
    PartialBlock {
        /// The tensor.
        tensor: String,
        /// The element type.
        kind: TensorType,
        /// The position of the dimensions.
        at: u64,
        /// Elements of a block.
        wanted: u64,
        /// Elements of a row.
        found: u64,
    },
    /// The data of a tensor does not start at a multiple of the file's alignment.
    #[error(
        "data of tensor {tensor:?} is at offset {found} (at byte {at}): wanted a multiple of {wanted}"
    )]
    Misaligned {
        /// The tensor.
        tensor: String,
        /// The position of the offset.
        at: u64,
        /// The alignment.
        wanted: u64,
        /// The offset.
        found: u64,
    },
    /// The data of a tensor reaches past the end of the file.
    #[error(
        "data of tensor {tensor:?} (offset at byte {at}) ends at byte {wanted}, the file at {found}: it is cut or damaged"
    )]
    PastEnd {
        /// The tensor.
        tensor: String,
        /// The position of the offset.
        at: u64,
        /// Where the data ends.
        wanted: u64,
        /// Where the file ends.
        found: u64,
    },
    /// Two tensors share bytes.
    #[error(
        "data of tensor {tensor:?} starts at byte {found}, inside tensor {other:?} that ends at {wanted}"
    )]
    Overlap {
        /// The tensor.
        tensor: String,
        /// The tensor in front of it.
        other: String,
        /// Where the other ends.
        wanted: u64,
        /// Where it starts.
        found: u64,
    },
    /// The file has no tensor of that name.
    #[error("no tensor {name:?} among the {found} of the file")]
    UnknownTensor {
        /// What was asked for.
        name: String,
        /// How many there are.
        found: usize,
    },
    /// The file has no such key.
    #[error("no key {key:?} in the metadata")]
    MissingKey {
        /// What was asked for.
        key: String,
    },
    /// A key has a value of another type, or outside the range asked for.
    #[error("key {key:?} is {found}, wanted {wanted}")]
    KeyType {
        /// The key.
        key: String,
        /// What was asked for.
        wanted: &'static str,
        /// What it is.
        found: ValueType,
    },
}
