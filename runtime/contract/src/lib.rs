//! The kernel contracts as Rust data: fields, buffers, preconditions, launch geometry and the dispatch check.
//!
//! [`KERNELS`] is generated from the catalog. A dispatch needs three steps, none of which touches a device:
//! [`Kernel::words`] assembles the push struct, [`Kernel::check`] compares words and bindings with the contract, and
//! [`Kernel::geometry`] gives grid, block and shared memory.
//!
//! ```
//! use zinc_contract::{Binding, kernel};
//!
//! let vadd = kernel("vadd")?;
//! let words = vadd.words(&1000u32.to_ne_bytes(), &[], &[])?;
//! let at = |address| Binding { address, bytes: 4000 };
//! vadd.check(&words, &[at(0x10000), at(0x20000), at(0x30000)])?;
//! # Ok::<(), zinc_contract::ContractError>(())
//! ```

pub mod launch;
mod table;

pub use table::{KERNELS, index, kernel};
pub use zinc_contract_types::*;
