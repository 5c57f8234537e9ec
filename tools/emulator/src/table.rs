//! The kernels that the build script has compiled.

use crate::abi::Entry;

include!(concat!(env!("OUT_DIR"), "/entries.rs"));

/// The compiled kernel with this name.
pub(crate) fn entry(kernel: &str) -> Option<&'static Entry> {
    let index = ENTRIES
        .binary_search_by(|(name, _)| (*name).cmp(kernel))
        .ok()?;
    Some(ENTRIES[index].1())
}

/// Names of the kernels that this build can run, sorted.
pub fn kernels() -> impl ExactSizeIterator<Item = &'static str> {
    ENTRIES.iter().map(|(name, _)| *name)
}
