//! The embedded kernels and their typed launch functions.
//!
//! The build script compiles `kernels-cu` into one archive, which is part of every binary that uses this crate: at run time
//! there is no toolkit, no file and no network, only the driver.

pub use cubin_format::{Archive, ArchiveError};
pub use zinc_contract::{self, launch};
pub use zinc_runtime;

/// The archive with every kernel for every architecture; its format is that of [`Archive`].
pub static ARCHIVE_BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.zca"));

/// The C header with the push block and the buffer indices of each kernel, for hosts in C, C++ and Zig.
pub static C_HEADER: &str = include_str!(concat!(env!("OUT_DIR"), "/zinc_kernels.h"));

/// Opens the embedded archive: checks its index, and decompresses nothing.
///
/// # Errors
/// Where the binary was damaged: see [`ArchiveError`].
pub fn archive() -> Result<Archive<'static>, ArchiveError> {
    Archive::open(ARCHIVE_BYTES)
}
