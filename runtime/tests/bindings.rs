//! The committed bindings are those of the shim's header.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};

#[path = "../shim/bindings.rs"]
mod bindings;

/// Where a libclang may be: what the environment says, then what `tools/setup` installed.
fn libclang_directory() -> Option<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if set("LIBCLANG_PATH").is_some() {
        return set("LIBCLANG_PATH");
    }
    find(&content_cache::user_folder(set)?, 6)
}

/// The directory below `dir` that holds a libclang.
fn find(dir: &Path, depth: usize) -> Option<PathBuf> {
    let entries: Vec<PathBuf> = std::fs::read_dir(dir)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    let is_libclang = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("libclang") && name.contains(".so"))
    };
    if entries.iter().any(is_libclang) {
        return Some(dir.to_owned());
    }
    let next = depth.checked_sub(1)?;
    entries
        .iter()
        .filter(|path| path.is_dir())
        .find_map(|path| find(path, next))
}

#[test]
fn committed_bindings_match_the_header() {
    let Some(directory) = libclang_directory() else {
        println!("skipped: no libclang; set LIBCLANG_PATH to its directory or run tools/setup");
        return;
    };
    // SAFETY: this program has one test, so no other thread reads the environment.
    unsafe { std::env::set_var("LIBCLANG_PATH", directory) };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let generated = bindings::generate(root.join("shim/zinc_shim.h").to_str().unwrap()).unwrap();
    let committed = std::fs::read_to_string(root.join("src/shim_bindings.rs")).unwrap();
    assert!(
        generated == committed,
        "src/shim_bindings.rs is stale: cargo build -p zinc-runtime --features regenerate-bindings"
    );
}
