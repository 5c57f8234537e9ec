//! Metadata values, read in place.

use std::fmt;

use crate::error::GgufError;

/// How deep arrays may be nested.
pub(crate) const MAX_NESTING: usize = 4;

/// The format's limit for keys.
pub(crate) const MAX_NAME_BYTES: u64 = 65_535;

macro_rules! value_types {
    ($($number:literal $type:ident $name:literal $bytes:literal;)*) => {
        /// The type of a metadata value.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ValueType {
            $(#[doc = concat!("`", $name, "`.")] $type,)*
        }

        impl ValueType {
            /// The type with this number in a file.
            pub fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$type),)*
                    _ => None,
                }
            }

            /// The number in a file.
            pub fn number(self) -> u32 {
                match self {
                    $(Self::$type => $number,)*
                }
            }

            /// The fewest bytes that a value takes in a file.
            pub(crate) fn min_bytes(self) -> u64 {
                match self {
                    $(Self::$type => $bytes,)*
                }
            }
        }

        impl fmt::Display for ValueType {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$type => $name,)*
                })
            }
        }
    };
}

value_types! {
    0 U8 "u8" 1;
    1 I8 "i8" 1;
    2 U16 "u16" 2;
    3 I16 "i16" 2;
    4 U32 "u32" 4;
    5 I32 "i32" 4;
    6 F32 "f32" 4;
    7 Bool "bool" 1;
    8 String "string" 8;
    9 Array "array" 12;
    10 U64 "u64" 8;
    11 I64 "i64" 8;
    12 F64 "f64" 8;
}

/// A metadata value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// An 8-bit unsigned integer.
    U8(u8),
    /// An 8-bit signed integer.
    I8(i8),
    /// A 16-bit unsigned integer.
    U16(u16),
    /// A 16-bit signed integer.
    I16(i16),
    /// A 32-bit unsigned integer.
    U32(u32),
    /// A 32-bit signed integer.
    I32(i32),
    /// A 32-bit float.
    F32(f32),
    /// A boolean.
    Bool(bool),
    /// A string, which should be UTF-8, but vocabularies have others too.
    String(&'a [u8]),
    /// An array.
    Array(Array<'a>),
    /// A 64-bit unsigned integer.
    U64(u64),
    /// A 64-bit signed integer.
    I64(i64),
    /// A 64-bit float.
    F64(f64),
}

impl<'a> Value<'a> {
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
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// Any integer that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U8(value) => Some(value.into()),
            Self::U16(value) => Some(value.into()),
            Self::U32(value) => Some(value.into()),
            Self::U64(value) => Some(value),
            Self::I8(value) => value.try_into().ok(),
            Self::I16(value) => value.try_into().ok(),
            Self::I32(value) => value.try_into().ok(),
            Self::I64(value) => value.try_into().ok(),
            _ => None,
        }
    }

    /// Any float.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::F32(value) => Some(value.into()),
            Self::F64(value) => Some(value),
            _ => None,
        }
    }

    /// A boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// A string that is UTF-8.
    pub fn as_str(&self) -> Option<&'a str> {
        match self {
            Self::String(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// An array.
    pub fn as_array(&self) -> Option<Array<'a>> {
        match self {
            Self::Array(array) => Some(*array),
            _ => None,
        }
    }
}

/// Strings are quoted, with what is not UTF-8 replaced; of an array only type and length are shown.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U8(value) => value.fmt(f),
            Self::I8(value) => value.fmt(f),
            Self::U16(value) => value.fmt(f),
            Self::I16(value) => value.fmt(f),
            Self::U32(value) => value.fmt(f),
            Self::I32(value) => value.fmt(f),
            Self::F32(value) => value.fmt(f),
            Self::Bool(value) => value.fmt(f),
            Self::String(bytes) => write!(f, "{:?}", String::from_utf8_lossy(bytes)),
            Self::Array(array) => write!(f, "{array:?}"),
            Self::U64(value) => value.fmt(f),
            Self::I64(value) => value.fmt(f),
            Self::F64(value) => value.fmt(f),
        }
    }
}

/// An array in the metadata; its items are read from the file as they are asked for.
#[derive(Clone, Copy, PartialEq)]
pub struct Array<'a> {
    kind: ValueType,
    len: u64,
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// The type of every item.
    pub fn kind(&self) -> ValueType {
        self.kind
    }

    /// The number of items.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The items in order.
    pub fn iter(&self) -> Items<'a> {
        Items {
            kind: self.kind,
            left: self.len,
            cursor: Cursor::new(self.bytes),
        }
    }
}

impl fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}; {}]", self.kind, self.len)
    }
}

impl<'a> IntoIterator for &Array<'a> {
    type Item = Value<'a>;
    type IntoIter = Items<'a>;

    fn into_iter(self) -> Items<'a> {
        self.iter()
    }
}

/// The items of an [`Array`].
#[derive(Debug, Clone)]
pub struct Items<'a> {
    kind: ValueType,
    left: u64,
    cursor: Cursor<'a>,
}

impl<'a> Iterator for Items<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        // The whole array was read once when it was made, so this can't fail.
        self.cursor.value(self.kind, "", 0).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // Items take at least a byte each, so that their number fits in a usize.
        let left = self.left as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Items<'_> {}

/// Reads fields one after the other from bytes that start at position 0 of the file.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn at(&self) -> u64 {
        self.at as u64
    }

    pub(crate) fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    fn take(&mut self, what: &'static str, count: u64) -> Result<&'a [u8], GgufError> {
        let rest = &self.bytes[self.at..];
        let taken = usize::try_from(count)
            .ok()
            .and_then(|count| rest.get(..count));
        let Some(taken) = taken else {
            return Err(GgufError::Truncated {
                what,
                at: self.at(),
                wanted: count,
                found: self.left(),
            });
        };
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], GgufError> {
        let mut value = [0; N];
        value.copy_from_slice(self.take(what, N as u64)?);
        Ok(value)
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, GgufError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, GgufError> {
        self.array(what).map(u64::from_le_bytes)
    }

    pub(crate) fn string(&mut self, what: &'static str) -> Result<&'a [u8], GgufError> {
        let count = self.u64(what)?;
        self.take(what, count)
    }

    /// A string that must be UTF-8 and of moderate length.
    pub(crate) fn name(&mut self, what: &'static str) -> Result<&'a str, GgufError> {
        let at = self.at();
        let bytes = self.string(what)?;
        let found = bytes.len() as u64;
        if found > MAX_NAME_BYTES {
            return Err(GgufError::NameLength {
                what,
                at,
                wanted: MAX_NAME_BYTES,
                found,
            });
        }
        std::str::from_utf8(bytes).map_err(|_| GgufError::Utf8 { what, at })
    }

    /// A count of things that take at least `min_bytes` each.
    pub(crate) fn count(&mut self, what: &'static str, min_bytes: u64) -> Result<u64, GgufError> {
        let at = self.at();
        let wanted = self.u64(what)?;
        let found = self.left() / min_bytes;
        if wanted > found {
            return Err(GgufError::Count {
                what,
                at,
                wanted,
                found,
            });
        }
        Ok(wanted)
    }

    pub(crate) fn value_type(&mut self, key: &str) -> Result<ValueType, GgufError> {
        let at = self.at();
        let found = self.u32("value type")?;
        ValueType::from_number(found).ok_or_else(|| GgufError::ValueType {
            key: key.to_owned(),
            at,
            found,
        })
    }

    /// A value of `key`; `depth` arrays are around it.
    pub(crate) fn value(
        &mut self,
        kind: ValueType,
        key: &str,
        depth: usize,
    ) -> Result<Value<'a>, GgufError> {
        const WHAT: &str = "a value";
        Ok(match kind {
            ValueType::U8 => Value::U8(u8::from_le_bytes(self.array(WHAT)?)),
            ValueType::I8 => Value::I8(i8::from_le_bytes(self.array(WHAT)?)),
            ValueType::U16 => Value::U16(u16::from_le_bytes(self.array(WHAT)?)),
            ValueType::I16 => Value::I16(i16::from_le_bytes(self.array(WHAT)?)),
            ValueType::U32 => Value::U32(u32::from_le_bytes(self.array(WHAT)?)),
            ValueType::I32 => Value::I32(i32::from_le_bytes(self.array(WHAT)?)),
            ValueType::F32 => Value::F32(f32::from_le_bytes(self.array(WHAT)?)),
            ValueType::U64 => Value::U64(u64::from_le_bytes(self.array(WHAT)?)),
            ValueType::I64 => Value::I64(i64::from_le_bytes(self.array(WHAT)?)),
            ValueType::F64 => Value::F64(f64::from_le_bytes(self.array(WHAT)?)),
            ValueType::Bool => {
                let at = self.at();
                match self.array(WHAT)? {
                    [0] => Value::Bool(false),
                    [1] => Value::Bool(true),
                    [found] => {
                        return Err(GgufError::Bool {
                            key: key.to_owned(),
                            at,
                            found,
                        });
                    }
                }
            }
            ValueType::String => Value::String(self.string("a string")?),
            ValueType::Array => Value::Array(self.array_value(key, depth)?),
        })
    }

    fn array_value(&mut self, key: &str, depth: usize) -> Result<Array<'a>, GgufError> {
        let at = self.at();
        if depth == MAX_NESTING {
            return Err(GgufError::Nesting {
                key: key.to_owned(),
                at,
                wanted: MAX_NESTING,
            });
        }
        let kind = self.value_type(key)?;
        let len = self.count("array items", kind.min_bytes())?;
        let start = self.at;
        match kind {
            ValueType::Bool | ValueType::String | ValueType::Array => {
                for _ in 0..len {
                    self.value(kind, key, depth + 1)?;
                }
            }
            // Items of a fixed size: the count was checked against what is left.
            _ => self.at += (len * kind.min_bytes()) as usize,
        }
        Ok(Array {
            kind,
            len,
            bytes: &self.bytes[start..self.at],
        })
    }
}
