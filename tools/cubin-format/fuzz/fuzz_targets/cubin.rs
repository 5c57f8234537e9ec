//! Cubins: parsing, and the checks on what was parsed.

#![no_main]

use cubin_format::{Cubin, check_abi};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(cubin) = Cubin::parse(bytes) {
        for entry in &cubin.entries {
            let _ = check_abi(entry, 3, 12);
            let _ = entry.resources(0, 0).spill_bytes();
        }
    }
});
