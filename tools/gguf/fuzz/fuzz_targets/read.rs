//! GGUF files: opening, and reading every value and tensor.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zinc_gguf::{Gguf, Value};

fn walk(value: Value) -> u64 {
    value
        .as_array()
        .map_or(1, |array| array.iter().map(walk).sum())
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(file) = Gguf::from_bytes(bytes.to_vec()) {
        let _ = file.metadata().map(|(_, value)| walk(value)).sum::<u64>();
        for view in file.views() {
            assert_eq!(view.rows() * view.row_bytes(), view.bytes.len() as u64);
        }
    }
});
