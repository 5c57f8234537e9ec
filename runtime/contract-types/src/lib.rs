//! What the kernel contracts are made of, apart from the kernels: fields, buffers, preconditions, launch geometry and the
//! dispatch check. The crate `zinc-contract` has the contracts themselves, and everything of this one.
//!
//! What needs no more than that, such as the references, is not compiled again when a contract or a launch file changes.

pub mod arithmetic;
mod check;
mod dispatch;
mod error;
mod geometry;
mod kernel;
mod words;

pub use arithmetic::EvalError;
pub use check::{Binding, MAX_BUFFERS};
pub use dispatch::Dispatch;
pub use error::{ContractError, Reason, Value, Values};
pub use geometry::{Extents, Geometry, MAX_BLOCK_THREADS, PORTABLE_CLUSTER};
pub use kernel::{
    Access, Buffer, CompiledArch, Condition, EARLY_SHARED_BYTES, Expr, Field, FieldKind, Kernel,
    LaunchRule, Scalar,
};
pub use words::{MAX_WORDS, Words};
