//! Writes small GGUF files, for tests and fixtures.
//!
//! The writer does not check what it is given, so that tests can make damaged files with it.

use crate::read::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC};
use crate::tensor_type::TensorType;
use crate::value::ValueType;

/// A metadata value to write.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the variants are those of ValueType")]
pub enum NewValue {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(ValueType, Vec<NewValue>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl NewValue {
    /// The type.
    pub fn kind(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(..) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::U8(value) => out.extend(value.to_le_bytes()),
            Self::I8(value) => out.extend(value.to_le_bytes()),
            Self::U16(value) => out.extend(value.to_le_bytes()),
            Self::I16(value) => out.extend(value.to_le_bytes()),
            Self::U32(value) => out.extend(value.to_le_bytes()),
            Self::I32(value) => out.extend(value.to_le_bytes()),
            Self::F32(value) => out.extend(value.to_le_bytes()),
            Self::Bool(value) => out.push((*value).into()),
            Self::String(value) => put_string(out, value),
            Self::Array(kind, items) => {
                out.extend(kind.number().to_le_bytes());
                out.extend((items.len() as u64).to_le_bytes());
                items.iter().for_each(|item| item.put(out));
            }
            Self::U64(value) => out.extend(value.to_le_bytes()),
            Self::I64(value) => out.extend(value.to_le_bytes()),
            Self::F64(value) => out.extend(value.to_le_bytes()),
        }
    }
}

/// A tensor to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTensor {
    /// The name.
    pub name: String,
    /// Elements per dimension, the row first.
    pub dims: Vec<u64>,
    /// The number of the element type; see [`TensorType::number`].
    pub kind: u32,
    /// Where the data should seem to start; none: where it does.
    pub offset: Option<u64>,
    /// The data.
    pub bytes: Vec<u8>,
}

/// A file to write.
#[derive(Debug, Clone, PartialEq)]
pub struct Writer {
    /// The format version.
    pub version: u32,
    /// Keys and values, in order. `general.alignment`, if it is a power of two in a `u32`, is
    /// obeyed.
    pub metadata: Vec<(String, NewValue)>,
    /// The tensors, in order.
    pub tensors: Vec<NewTensor>,
}

impl Default for Writer {
    fn default() -> Self {
        Self {
            version: 3,
            metadata: Vec::new(),
            tensors: Vec::new(),
        }
    }
}

impl Writer {
    /// Adds a key.
    #[must_use]
    pub fn with(mut self, key: &str, value: NewValue) -> Self {
        self.metadata.push((key.to_owned(), value));
        self
    }

    /// Adds a tensor.
    #[must_use]
    pub fn with_tensor(mut self, name: &str, dims: &[u64], kind: TensorType, bytes: &[u8]) -> Self {
        self.tensors.push(NewTensor {
            name: name.to_owned(),
            dims: dims.to_vec(),
            kind: kind.number(),
            offset: None,
            bytes: bytes.to_vec(),
        });
        self
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> Vec<u8> {
        let alignment = self.metadata.iter().find_map(|(key, value)| match value {
            NewValue::U32(value) if key == ALIGNMENT_KEY && value.is_power_of_two() => {
                Some(*value as usize)
            }
            _ => None,
        });
        let alignment = alignment.unwrap_or(DEFAULT_ALIGNMENT as usize);
        let mut out = MAGIC.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            put_string(&mut out, key);
            out.extend(value.kind().number().to_le_bytes());
            value.put(&mut out);
        }
        let mut data: Vec<u8> = Vec::new();
        for tensor in &self.tensors {
            data.resize(data.len().next_multiple_of(alignment), 0);
            put_string(&mut out, &tensor.name);
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor
                .dims
                .iter()
                .for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(tensor.kind.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(data.len() as u64).to_le_bytes());
            data.extend(&tensor.bytes);
        }
        if !self.tensors.is_empty() {
            out.resize(out.len().next_multiple_of(alignment), 0);
        }
        out.extend(data);
        out
    }
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
