//! What the binary needs to start.

use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn, FileHeader};

/// The libraries that the system's loader opens before `main`.
fn needed() -> Vec<String> {
    let bytes = std::fs::read(env!("CARGO_BIN_EXE_zinc-cubin")).unwrap();
    let data = bytes.as_slice();
    let header = FileHeader64::<Endianness>::parse(data).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, data).unwrap();
    let (entries, index) = sections
        .dynamic(endian, data)
        .unwrap()
        .expect("the binary is linked dynamically");
    let strings = sections.strings(endian, data, index).unwrap();
    entries
        .iter()
        .filter(|entry| entry.tag(endian) == DT_NEEDED)
        .map(|entry| entry.string(endian, strings).unwrap())
        .map(|name| String::from_utf8(name.to_vec()).unwrap())
        .collect()
}

#[test]
fn no_library_of_cuda_is_needed_to_start() {
    let needed = needed();
    assert!(
        needed.iter().any(|name| name.starts_with("libc.")),
        "{needed:?}"
    );
    let nvidia = ["cuda", "cudart", "nvrtc", "nvidia", "nvptx", "nvjitlink"];
    for name in &needed {
        let lower = name.to_lowercase();
        assert!(
            !nvidia.iter().any(|part| lower.contains(part)),
            "{needed:?}"
        );
    }
}
