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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_take_what_their_contracts_say() {
        for (name, entry) in ENTRIES {
            let contract = zinc_contract::kernel(name).unwrap();
            let entry = entry();
            let found = (entry.buffers as usize, entry.push_bytes as usize);
            let wanted = (contract.buffers.len(), contract.fields.len() * 4);
            assert_eq!(found, wanted, "{name}");
        }
    }

    #[test]
    fn entries_are_sorted_for_the_search() {
        assert!(ENTRIES.is_sorted_by_key(|(name, _)| *name));
        assert!(ENTRIES.iter().all(|(name, _)| entry(name).is_some()));
        assert!(entry("no_such_kernel").is_none());
    }
}
