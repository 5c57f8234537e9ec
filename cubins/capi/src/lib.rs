//! The C interface: the kernels, their contracts and the runtime for engines in C, C++ and Zig.
//!
//! `include/zinc_cuda.h` is generated from this crate (its head from `header.txt`) and says what every function does and what
//! its pointers have to be. Each function turns its pointers into references, runs the safe layer below, and keeps what is
//! known of a failure for the calling thread. No panic leaves it.
#![allow(
    non_camel_case_types,
    reason = "the names are those of the C header, which is generated from them"
)]

mod archive;
mod buffer;
mod contract;
mod device;
mod graph;
mod list;
mod pointer;
mod queue;
mod status;
mod upload;

use std::ffi::c_char;

/// Number of this interface. It changes whenever a function or struct changes in a way that a compiled caller would notice.
pub const ZCU_INTERFACE: u32 = 1;

/// ZCU_INTERFACE of the library, to be compared with that of the header.
#[unsafe(no_mangle)]
pub extern "C" fn zcu_interface() -> u32 {
    ZCU_INTERFACE
}

/// Version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn zcu_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
