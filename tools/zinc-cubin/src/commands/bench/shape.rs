//! One measured dispatch: its words, what its buffers hold, what it must move and compute, and how its result is checked.

use std::ops::Range;
use std::sync::Arc;

use zinc_contract::{Access, Binding, ContractError, Kernel};
use zinc_oracle::quant::Format;

/// What the L2 cache holds of a row's large buffers when the kernel starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Regime {
    /// Nothing: replays go round copies that together are at least three times as large.
    Cold,
    /// All that fits: every replay uses the same buffers.
    Warm,
}

impl Regime {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
        }
    }
}

/// What a row is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// A real shape, measured on a GPU.
    Model,
    /// A small shape, which the emulator runs to prove that the table and the checks are right.
    Test,
}

/// Initial contents of a buffer.
#[derive(Debug, Clone)]
pub enum Fill {
    /// What the type of the buffer suggests: quantized blocks and floats of magnitude 1.
    Type,
    /// Blocks of a format, where the type does not say which.
    Blocks(Format),
    /// Floats in a range.
    Floats(f32, f32),
    /// Random bytes: packed int8 values.
    Bytes,
    /// Pairs of a factor and the factor times a sum of 32 quants.
    FactorsAndSums,
    /// One value everywhere.
    Constant(f32),
    /// These words.
    Words(Arc<[u32]>),
    /// These words, others for every round of a cold row: routings that select other experts of the same weights.
    Rounds(Arc<[Arc<[u32]>]>),
}

/// The bytes of a buffer that a part of a dispatch sees, in order.
pub type View = Vec<Range<u64>>;

/// A part of a dispatch that the reference computes by itself: other words, and the bytes of each buffer that stand for it.
#[derive(Debug, Clone)]
pub struct Part {
    pub fields: Vec<(&'static str, u32)>,
    /// Buffers not named here are seen from their first byte.
    pub views: Vec<(&'static str, View)>,
}

/// Which results are compared with the reference.
#[derive(Debug, Clone)]
pub enum Checked {
    /// All of them.
    All,
    /// Those of some parts; the text says which.
    Parts(String, Vec<Part>),
}

/// A row of the table.
#[derive(Debug, Clone)]
pub struct Shape {
    pub kernel: &'static str,
    /// Unique among the rows of the kernel and regime.
    pub label: String,
    pub regime: Regime,
    pub scale: Scale,
    pub fields: Vec<(&'static str, u32)>,
    pub fills: Vec<(&'static str, Fill)>,
    /// Bytes that must move for a buffer, where they are not what the contract covers.
    pub moved: Vec<(&'static str, u64)>,
    /// Additions and multiplications, as the contract's formula has them.
    pub operations: u64,
    pub checked: Checked,
}

impl Shape {
    /// A row of the given kernel, checked as a whole.
    pub fn new(kernel: &'static str, label: impl Into<String>) -> Self {
        Self {
            kernel,
            label: label.into(),
            regime: Regime::Cold,
            scale: Scale::Model,
            fields: Vec::new(),
            fills: Vec::new(),
            moved: Vec::new(),
            operations: 0,
            checked: Checked::All,
        }
    }

    /// Sets words.
    pub fn set(mut self, fields: &[(&'static str, u32)]) -> Self {
        self.fields.extend_from_slice(fields);
        self
    }

    /// Sets an f32 word, or one that holds the bits of an f32.
    pub fn float(self, field: &'static str, value: f32) -> Self {
        self.set(&[(field, value.to_bits())])
    }

    /// Says what a buffer holds.
    pub fn fill(mut self, buffer: &'static str, fill: Fill) -> Self {
        self.fills.push((buffer, fill));
        self
    }

    /// Says how many bytes of a buffer must move.
    pub fn moves(mut self, buffer: &'static str, bytes: u64) -> Self {
        self.moved.push((buffer, bytes));
        self
    }

    /// Says how many operations the formula has.
    pub fn operations(mut self, count: u64) -> Self {
        self.operations = count;
        self
    }

    /// Checks parts only.
    pub fn parts(mut self, text: impl Into<String>, parts: Vec<Part>) -> Self {
        self.checked = Checked::Parts(text.into(), parts);
        self
    }

    /// The same shape with its data in the cache.
    pub fn warm(mut self) -> Self {
        self.regime = Regime::Warm;
        self
    }

    /// For the emulator.
    pub fn test(mut self) -> Self {
        self.scale = Scale::Test;
        self
    }
}

/// A buffer of a resolved row.
#[derive(Debug, Clone)]
pub struct RowBuffer {
    pub name: &'static str,
    pub dtype: &'static str,
    pub access: Access,
    /// Bytes that the contract asks for; 0 where the buffer is not used.
    pub bytes: u64,
    /// Bytes that must move.
    pub moved: u64,
    pub fill: Fill,
}

/// A row whose kernel, words and buffers are known to fit the contract.
#[derive(Debug, Clone)]
pub struct Row {
    pub kernel: &'static Kernel,
    pub shape: Shape,
    pub words: Vec<u32>,
    pub buffers: Vec<RowBuffer>,
}

/// Why a row of the table is wrong.
#[derive(Debug, thiserror::Error)]
pub enum ShapeError {
    /// The words or the sizes break the contract.
    #[error("row {label:?}: {source}")]
    Contract {
        label: String,
        source: ContractError,
    },
    /// A buffer is named that the kernel has not.
    #[error("row {label:?}: kernel {kernel} has no buffer {buffer}")]
    NoBuffer {
        kernel: &'static str,
        label: String,
        buffer: &'static str,
    },
    /// Integers that are read must be given.
    #[error(
        "row {label:?}: kernel {kernel} reads integers from {buffer}, and the row says not which"
    )]
    NoIntegers {
        kernel: &'static str,
        label: String,
        buffer: &'static str,
    },
}

impl Row {
    /// Checks a shape against the contract.
    ///
    /// # Errors
    /// A row that breaks the contract or says too little.
    pub fn resolve(shape: Shape) -> Result<Self, ShapeError> {
        let wrong = |source| ShapeError::Contract {
            label: shape.label.clone(),
            source,
        };
        let kernel = zinc_contract::kernel(shape.kernel).map_err(wrong)?;
        let words = kernel.words_by_name(&shape.fields).map_err(wrong)?;
        let words = words.as_slice().to_vec();
        let named = shape
            .fills
            .iter()
            .map(|fill| fill.0)
            .chain(shape.moved.iter().map(|moved| moved.0));
        for buffer in named {
            if kernel.buffer_index(buffer).is_none() {
                return Err(ShapeError::NoBuffer {
                    kernel: kernel.name,
                    label: shape.label.clone(),
                    buffer,
                });
            }
        }
        let mut buffers = Vec::new();
        for buffer in kernel.buffers {
            // What has no value here makes the check below fail.
            let size = |expr: &zinc_contract::Expr| {
                u64::try_from((expr.eval)(&words).unwrap_or(0)).unwrap_or(0)
            };
            let bytes = size(&buffer.bytes);
            let touched = bytes.saturating_sub(size(&buffer.start));
            let ways = u64::from(buffer.access.reads()) + u64::from(buffer.access.writes());
            let moved = lookup(&shape.moved, buffer.name).copied();
            let fill = lookup(&shape.fills, buffer.name).cloned();
            let read = buffer.access.reads() && bytes > 0;
            if fill.is_none() && read && buffer.dtype == "u32" {
                return Err(ShapeError::NoIntegers {
                    kernel: kernel.name,
                    label: shape.label.clone(),
                    buffer: buffer.name,
                });
            }
            buffers.push(RowBuffer {
                name: buffer.name,
                dtype: buffer.dtype,
                access: buffer.access,
                bytes,
                moved: moved.unwrap_or(touched * ways),
                fill: fill.unwrap_or(Fill::Type),
            });
        }
        let row = Self {
            kernel,
            words,
            buffers,
            shape: shape.clone(),
        };
        kernel.check(&row.words, &row.bindings()).map_err(wrong)?;
        Ok(row)
    }

    /// Bytes that must move.
    pub fn moved(&self) -> u64 {
        self.buffers.iter().map(|buffer| buffer.moved).sum()
    }

    /// Bindings at made-up addresses.
    fn bindings(&self) -> Vec<Binding> {
        let mut free = 1 << 20;
        let bind = |buffer: &RowBuffer| {
            let address = free;
            free = (free + buffer.bytes + 1).next_multiple_of(1 << 12);
            match buffer.bytes {
                0 => Binding::UNBOUND,
                bytes => Binding { address, bytes },
            }
        };
        self.buffers.iter().map(bind).collect()
    }

    /// Words of a part, and the bytes of each buffer that it sees.
    ///
    /// # Errors
    /// A part that breaks the contract.
    pub fn part(&self, part: &Part) -> Result<(Vec<u32>, Vec<View>), ShapeError> {
        let mut words = self.words.clone();
        for (field, value) in &part.fields {
            let Some(at) = self.kernel.fields.iter().position(|f| f.name == *field) else {
                return Err(ShapeError::Contract {
                    label: self.shape.label.clone(),
                    source: ContractError::UnknownField {
                        kernel: self.kernel.name,
                        name: (*field).to_owned(),
                    },
                });
            };
            words[at] = *value;
        }
        let mut views = Vec::new();
        for (buffer, contract) in self.buffers.iter().zip(self.kernel.buffers) {
            let bytes = (contract.bytes.eval)(&words).unwrap_or(0);
            let bytes = u64::try_from(bytes).unwrap_or(0);
            let view = match lookup(&part.views, buffer.name) {
                // A view that is one range may leave its end to the contract.
                Some(view) => match view.as_slice() {
                    [one] if one.end == u64::MAX => pieces(one.start, bytes, 0, 1),
                    _ => view.clone(),
                },
                None => pieces(0, bytes, 0, 1),
            };
            views.push(view);
        }
        Ok((words, views))
    }
}

/// A view from a byte on, as far as the contract asks.
pub fn from(start: u64) -> View {
    std::iter::once(start..u64::MAX).collect()
}

/// A view of `count` pieces of `length` bytes, `stride` bytes apart.
pub fn pieces(start: u64, length: u64, stride: u64, count: u64) -> View {
    (0..count)
        .map(|i| start + i * stride..start + i * stride + length)
        .collect()
}

fn lookup<'a, T>(list: &'a [(&'static str, T)], name: &str) -> Option<&'a T> {
    list.iter()
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}
