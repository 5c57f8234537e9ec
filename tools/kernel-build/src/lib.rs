//! Compiles the kernels with nvcc: toolkit lookup, cache, checks and the archive.
//!
//! [`Build::run`] is all that the root's build script needs; the modules are public for the tools around it.

#![allow(
    clippy::result_large_err,
    reason = "an error ends the build, so its size costs nothing"
)]

pub mod cache;
pub mod check;
pub mod compile;
pub mod environment;
pub mod limits;
pub mod pipeline;
pub mod prebuilt;
pub mod sources;
pub mod targets;
pub mod toolkit;

pub use environment::{Environment, VARIABLES};
pub use pipeline::{Build, BuildError, Origin, Report, Unit, UnitError, chain};
pub use targets::{Request, Targets};
pub use toolkit::{Toolkit, ToolkitError};
