//! Reads and validates the kernel catalog and generates code from it.
//!
//! The catalog is the only list of kernels: `kernels-cu/catalog/*.toml` holds the contracts, and the launch file beside
//! each `.cu` file holds the launch rules of that implementation. [`Catalog::load`] reads both, checks them against each
//! other and reports every mistake with file, line and kernel. [`codegen`] turns the result into device
//! headers, Rust tables, typed launch functions, a C header, the emulator's dispatch table and the reference.

pub mod codegen;
mod error;
pub mod expr;
mod load;
mod model;
mod names;
mod parse;

pub use error::{CatalogError, CatalogErrors, Problem};
pub use load::Tolerance;
pub use model::{
    Access, Allow, Buffer, Catalog, ConditionText, ExprText, FAMILIES, Field, FieldKind, Kernel,
    LaunchRule, MAX_BLOCK_THREADS, MAX_BUFFERS, MAX_WORDS, SM_COUNT, Scalar,
};
