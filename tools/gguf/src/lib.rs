//! Reads GGUF model files without copying them.
//!
//! A file is mapped into memory; opening it checks every count, length, type and offset against the
//! bytes that are there, before anything is allocated for them. What is handed out afterwards
//! borrows from the map. Format: GGUF versions 2 and 3, little endian, as ggml's documentation
//! describes them.

mod error;
mod read;
mod tensor_type;
mod value;
pub mod writer;

pub use error::GgufError;
pub use read::{Gguf, Tensor, TensorView};
pub use tensor_type::TensorType;
pub use value::{Array, Items, Value, ValueType};
