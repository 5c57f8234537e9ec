//! Code generated from the catalog, one module per kind of output. Every function returns text, so that callers
//! decide where it goes; [`write_if_changed`] keeps the timestamps of files whose text stays the same.

mod c_header;
mod device_header;
mod emulator;
mod reference;
mod rust_launch;
mod rust_table;
mod text;

pub use c_header::c_header;
pub use device_header::device_header;
pub use emulator::{emulator_entry, emulator_table};
pub use reference::{Page, reference};
pub use rust_launch::rust_launch;
pub use rust_table::rust_table;

use std::fs;
use std::io;
use std::path::Path;

/// Writes `text` to `path` unless the file already holds exactly that, and creates the directories above it.
/// Returns whether it wrote.
pub fn write_if_changed(path: &Path, text: &str) -> io::Result<bool> {
    if fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(false);
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, text)?;
    Ok(true)
}
