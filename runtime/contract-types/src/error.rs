//! What can be wrong with a dispatch.

use crate::arithmetic::EvalError;
use crate::kernel::{FieldKind, Kernel, Scalar};
use std::fmt;

/// A dispatch that does not fit the kernel's contract.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ContractError {
    /// No kernel has this name.
    #[error("no kernel is named `{name}`{}", nearest.map(|n| format!(", did you mean `{n}`?")).unwrap_or_default())]
    UnknownKernel {
        /// The name that was asked for.
        name: String,
        /// The most similar name.
        nearest: Option<&'static str>,
    },
    /// The kernel is in the catalog but has no implementation.
    #[error("kernel {kernel} has no implementation: {reason}")]
    Pending {
        /// The kernel.
        kernel: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// The host's push block has the wrong size.
    #[error("kernel {kernel}: push block of {found} bytes, wanted {wanted}{}", if least < most {
        format!(" ({least} to {most} are accepted)")
    } else {
        String::new()
    })]
    PushBytes {
        /// The kernel.
        kernel: &'static str,
        /// Bytes of the contract's push block.
        wanted: usize,
        /// Bytes of the oldest host's block; missing fields take their default.
        least: usize,
        /// Bytes of the newest host's block; what follows the contract's fields is ignored.
        most: usize,
        /// Bytes that were passed.
        found: usize,
    },
    /// Too few or too many launch counts or specialization values.
    #[error("kernel {kernel}: {found} {}, wanted {wanted}", match kind {
        FieldKind::Push => "push fields",
        FieldKind::Launch => "launch counts",
        FieldKind::Spec => "specialization values",
    })]
    ValueCount {
        /// The kernel.
        kernel: &'static str,
        /// Which kind of values.
        kind: FieldKind,
        /// How many the contract has.
        wanted: usize,
        /// How many were passed.
        found: usize,
    },
    /// A value was given for a field that does not exist.
    #[error("kernel {kernel} has no field `{name}`")]
    UnknownField {
        /// The kernel.
        kernel: &'static str,
        /// The name that was given.
        name: String,
    },
    /// A field without default was given no value.
    #[error("kernel {kernel}: field `{field}` has no value")]
    MissingField {
        /// The kernel.
        kernel: &'static str,
        /// The field.
        field: &'static str,
    },
    /// The complete push struct has the wrong length.
    #[error("kernel {kernel}: push struct of {found} words, wanted {wanted}")]
    WordCount {
        /// The kernel.
        kernel: &'static str,
        /// Words of the push struct.
        wanted: usize,
        /// Words that were passed.
        found: usize,
    },
    /// Too few or too many buffers.
    #[error("kernel {kernel}: {found} buffers, wanted {wanted}")]
    BufferCount {
        /// The kernel.
        kernel: &'static str,
        /// Buffers of the contract.
        wanted: usize,
        /// Buffers that were passed.
        found: usize,
    },
    /// A precondition does not hold.
    #[error("kernel {kernel}: `{text}` does not hold for {values}")]
    Precondition {
        /// The kernel.
        kernel: &'static str,
        /// The condition.
        text: &'static str,
        /// The fields that it uses.
        values: Values,
    },
    /// A buffer is smaller than the range that the kernel would touch.
    #[error("kernel {kernel}: buffer {buffer} has {found} bytes, wanted {wanted}")]
    BufferTooSmall {
        /// The kernel.
        kernel: &'static str,
        /// The buffer.
        buffer: &'static str,
        /// Bytes that the contract asks for.
        wanted: u64,
        /// Bytes that are bound.
        found: u64,
    },
    /// A buffer's address is not aligned as the contract asks.
    #[error(
        "kernel {kernel}: buffer {buffer} starts at address {found:#x}, wanted a multiple of {wanted}"
    )]
    Misaligned {
        /// The kernel.
        kernel: &'static str,
        /// The buffer.
        buffer: &'static str,
        /// Required alignment in bytes.
        wanted: u64,
        /// The bound address.
        found: u64,
    },
    /// The touched ranges of two buffers overlap, and one of them is written.
    #[error("kernel {kernel}: {}", match reason {
        Reason::Never => format!("buffers {a} and {b} overlap"),
        Reason::NotSameStart => format!("buffers {a} and {b} overlap without starting at the same address"),
    })]
    Overlap {
        /// The kernel.
        kernel: &'static str,
        /// The buffer that comes first in binding order.
        a: &'static str,
        /// The other buffer.
        b: &'static str,
        /// Which rule it breaks.
        reason: Reason,
    },
    /// An expression of the contract has no value for these fields.
    #[error("kernel {kernel}: {what} (`{text}`) has no value for {values}: {error}")]
    Eval {
        /// The kernel.
        kernel: &'static str,
        /// What the expression describes: a buffer's name, a precondition or the launch rule.
        what: &'static str,
        /// The expression.
        text: &'static str,
        /// The fields that it uses.
        values: Values,
        /// Why it has no value.
        #[source]
        error: EvalError,
    },
    /// A grid or block dimension is outside CUDA's limits.
    #[error("kernel {kernel}: {what} {axis} is {found}, at most {most} is possible")]
    LaunchLimit {
        /// The kernel.
        kernel: &'static str,
        /// `grid` or `block`.
        what: &'static str,
        /// `x`, `y` or `z`.
        axis: char,
        /// CUDA's limit.
        most: i64,
        /// What the launch rule gives.
        found: i64,
    },
    /// A block has too many threads.
    #[error("kernel {kernel}: block of {found} threads, at most {most} are possible")]
    BlockTooLarge {
        /// The kernel.
        kernel: &'static str,
        /// CUDA's limit.
        most: i64,
        /// What the launch rule gives.
        found: i64,
    },
    /// There are no such clusters, or the grid is not made of whole ones.
    #[error(
        "kernel {kernel}: {blocks} blocks in clusters of {found}, wanted whole clusters of 1 to {most}"
    )]
    Cluster {
        /// The kernel.
        kernel: &'static str,
        /// CUDA's limit.
        most: i64,
        /// What the launch rule gives.
        found: i64,
        /// Blocks of the grid along x.
        blocks: i64,
    },
    /// The amount of dynamic shared memory is not representable.
    #[error("kernel {kernel}: {found} bytes of dynamic shared memory are not possible")]
    SharedMemory {
        /// The kernel.
        kernel: &'static str,
        /// What the launch rule gives.
        found: i64,
    },
}

/// Why two overlapping buffers are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The contract lets them never overlap.
    Never,
    /// They may be the same range, but these only overlap in part.
    NotSameStart,
}

/// The fields of a failing expression with their values; displays as `m = 5, eps = 0.00001`.
#[derive(Debug, Clone, PartialEq)]
pub struct Values(pub Vec<(&'static str, Value)>);

/// The value of one field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// Of an unsigned field.
    U32(u32),
    /// Of a floating-point field.
    F32(f32),
}

impl Values {
    /// The values of the kernel's fields with the given indices.
    pub(crate) fn of(kernel: &Kernel, fields: &[u8], words: &[u32]) -> Values {
        let value = |index: &u8| {
            let field = kernel.fields.get(usize::from(*index))?;
            let word = *words.get(usize::from(*index))?;
            let value = match field.scalar {
                Scalar::U32 => Value::U32(word),
                Scalar::F32 => Value::F32(f32::from_bits(word)),
            };
            Some((field.name, value))
        };
        Values(fields.iter().filter_map(value).collect())
    }
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            match value {
                Value::U32(value) => write!(f, "{name} = {value}")?,
                Value::F32(value) => write!(f, "{name} = {value}")?,
            }
        }
        Ok(())
    }
}
