//! What a contract is: one [`Kernel`] per catalog entry.

use crate::arithmetic::EvalError;
use crate::geometry::Extents;

/// One kernel of the catalog: its contract and the launch rules of its implementation.
#[derive(Debug)]
pub struct Kernel {
    /// Name of the kernel, its entry point and its file.
    pub name: &'static str,
    /// Family, such as `gemm` or `attention`.
    pub family: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// The definition of the result.
    pub math: &'static str,
    /// Edge cases.
    pub edge: &'static str,
    /// Precision and tolerance.
    pub numerics: &'static str,
    /// Which parts of a model use it.
    pub used_in: &'static str,
    /// The grid of the original shader.
    pub reference_grid: &'static str,
    /// The contract's file, relative to `kernels-cu`.
    pub source: &'static str,
    /// The implementation's file, relative to `kernels-cu`; it exists unless the kernel is pending.
    pub implementation: &'static str,
    /// Beyond the 110.
    pub extended: bool,
    /// Why there is no implementation; `None` if there is one.
    pub pending: Option<&'static str>,
    /// Words of the device's push struct: push fields, then launch counts, then specialization values.
    pub fields: &'static [Field],
    /// How many of `fields` the host's Vulkan push block holds.
    pub push_words: usize,
    /// Trailing push bytes of later hosts that are accepted and ignored.
    pub ignored_push_bytes: usize,
    /// Buffers in binding order.
    pub buffers: &'static [Buffer],
    /// Pairs of buffer indices, smaller first, that may be the same range although one of them is written.
    pub may_alias: &'static [(u8, u8)],
    /// Preconditions, in the order in which they are checked.
    pub requires: &'static [Condition],
    /// The base rule, then overrides by ascending architecture; empty while pending.
    pub launch: &'static [LaunchRule],
    /// Whether the implementation waits by itself for the kernel before it on the stream, so that it may be started while
    /// that one still runs (from compute capability 9.0 on).
    pub overlap: bool,
    /// Indices of the buffers, ascending, that the implementation reads before that wait where the launch allows it by
    /// [`EARLY_SHARED_BYTES`](crate::EARLY_SHARED_BYTES): when the kernel before it on the stream writes none of them. None of
    /// them is written by the kernel.
    pub early: &'static [u8],
}

/// Bytes of dynamic shared memory that a launch asks for beyond its geometry's, a multiple of 16, to tell the code that the
/// kernel before it on the stream writes none of the [`early`](Kernel::early) buffers. Only for kernels that have some.
pub const EARLY_SHARED_BYTES: u32 = 8;

/// One 4-byte word of a push struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Name.
    pub name: &'static str,
    /// Meaning and unit.
    pub doc: &'static str,
    /// Who supplies it.
    pub kind: FieldKind,
    /// Type.
    pub scalar: Scalar,
    /// The word used when the caller gives none.
    pub default: Option<u32>,
}

/// Where a field comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// The host's Vulkan push block.
    Push,
    /// A count that the original encodes in its grid.
    Launch,
    /// A specialization constant of the original.
    Spec,
}

/// Type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// Unsigned 32-bit integer.
    U32,
    /// IEEE single.
    F32,
}

impl Scalar {
    /// The type's name in the catalog and in Rust.
    pub fn name(self) -> &'static str {
        match self {
            Scalar::U32 => "u32",
            Scalar::F32 => "f32",
        }
    }

    /// The type's name in C and C++.
    pub fn c_name(self) -> &'static str {
        match self {
            Scalar::U32 => "uint32_t",
            Scalar::F32 => "float",
        }
    }
}

/// One buffer of a contract.
#[derive(Debug)]
pub struct Buffer {
    /// Name.
    pub name: &'static str,
    /// Element type or block format.
    pub dtype: &'static str,
    /// Layout, in words.
    pub shape: &'static str,
    /// Direction.
    pub access: Access,
    /// Least size in bytes, which is also the end of the touched range; zero or less means that it is not touched.
    pub bytes: Expr,
    /// First touched byte.
    pub start: Expr,
    /// Required alignment of the bound address, in bytes.
    pub align: u64,
}

/// Direction of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only read.
    Read,
    /// Only written.
    Write,
    /// Read and written.
    ReadWrite,
}

impl Access {
    /// Whether the kernel may write to the buffer.
    pub fn writes(self) -> bool {
        self != Access::Read
    }

    /// Whether the kernel may read the buffer's old contents.
    pub fn reads(self) -> bool {
        self != Access::Write
    }

    /// The catalog's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
            Access::ReadWrite => "read_write",
        }
    }
}

/// An integer expression over the words of the push struct.
#[derive(Debug)]
pub struct Expr {
    /// As the catalog has it.
    pub text: &'static str,
    /// Indices of the words that it uses.
    pub fields: &'static [u8],
    /// Its value for given words, in checked 64-bit arithmetic.
    pub eval: fn(&[u32]) -> Result<i64, EvalError>,
}

impl Expr {
    /// The constant 0.
    pub const ZERO: Expr = Expr {
        text: "0",
        fields: &[],
        eval: |_| Ok(0),
    };
}

/// A precondition on the words of the push struct.
#[derive(Debug)]
pub struct Condition {
    /// As the catalog has it.
    pub text: &'static str,
    /// Indices of the words that it uses.
    pub fields: &'static [u8],
    /// Whether it holds for given words.
    pub holds: fn(&[u32]) -> Result<bool, EvalError>,
}

/// What code was compiled for, as far as launch rules go by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompiledArch {
    /// 10 * major + minor; 0 for the emulator.
    pub number: u32,
    /// Whether it runs on exactly this architecture, as `sm_90a` does (suffix `a`).
    pub specific: bool,
}

impl From<u32> for CompiledArch {
    /// The architecture without a suffix.
    fn from(number: u32) -> Self {
        Self {
            number,
            specific: false,
        }
    }
}

/// How an implementation is launched, for compiled architectures from `min_arch` on, or for exactly that one.
#[derive(Debug)]
pub struct LaunchRule {
    /// Least compiled architecture (10 * major + minor); 0 in the base rule.
    pub min_arch: u32,
    /// Whether the rule is for code of exactly `min_arch` alone (suffix `a`).
    pub specific: bool,
    /// Named constants.
    pub tile: &'static [(&'static str, u32)],
    /// Values with names as written, which the expressions below may use.
    pub lets: &'static [(&'static str, &'static str)],
    /// Blocks per grid as written: x, y, z.
    pub grid: [&'static str; 3],
    /// Threads per block as written: x, y, z.
    pub block: [&'static str; 3],
    /// Blocks per cluster as written, `1` where there are none; grid, block and shared bytes may name it `cluster`.
    pub cluster: &'static str,
    /// Dynamic shared bytes as written.
    pub shared: &'static str,
    /// All of them for given words and number of multiprocessors. [`Kernel::geometry`] checks the result.
    pub extents: fn(&[u32], sm_count: u32) -> Result<Extents, EvalError>,
}

impl LaunchRule {
    /// Whether the rule may be used for code compiled for `arch`; of several rules the last one is used.
    pub fn suits(&self, arch: CompiledArch) -> bool {
        match self.specific {
            true => arch.specific && arch.number == self.min_arch,
            false => self.min_arch <= arch.number,
        }
    }
}

/// Names are unique in the catalog.
impl PartialEq for Kernel {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Kernel {}

impl Kernel {
    /// The fields that `kind` supplies, in order.
    pub fn fields_of(&self, kind: FieldKind) -> impl Iterator<Item = &'static Field> + use<> {
        self.fields.iter().filter(move |field| field.kind == kind)
    }

    /// Bytes of the device's push struct.
    pub fn struct_bytes(&self) -> usize {
        self.fields.len() * 4
    }

    /// Index of the buffer with this name.
    pub fn buffer_index(&self, name: &str) -> Option<usize> {
        self.buffers.iter().position(|buffer| buffer.name == name)
    }
}
