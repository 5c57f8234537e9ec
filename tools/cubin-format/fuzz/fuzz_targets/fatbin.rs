//! Fatbins: what can be read and written again reads back the same.

#![no_main]

use cubin_format::fatbin::{read, write};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(images) = read(bytes)
        && let Ok(again) = write(&images)
    {
        let again = read(&again).expect("what was written is well formed");
        assert_eq!(again.len(), images.len());
        for (again, image) in again.iter().zip(&images) {
            // A cubin of an odd size is padded.
            assert_eq!(again.target, image.target);
            assert!(again.bytes.starts_with(image.bytes));
        }
    }
});
