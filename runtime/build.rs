//! Compiles the C shim; with `regenerate-bindings`, rewrites its committed bindings.

fn main() {
    println!("cargo::rerun-if-changed=shim");
    println!("cargo::rerun-if-changed=build.rs");
    cc::Build::new()
        .file("shim/zinc_shim.c")
        .include("shim")
        .std("c11")
        .warnings(true)
        .extra_warnings(true)
        .compile("zinc_shim");
    println!("cargo::rustc-link-lib=dl");
    #[cfg(feature = "regenerate-bindings")]
    regenerate();
}

#[cfg(feature = "regenerate-bindings")]
fn regenerate() {
    let text = bindings::generate("shim/zinc_shim.h").expect("bindgen reads shim/zinc_shim.h");
    let path = "src/shim_bindings.rs";
    if std::fs::read_to_string(path).ok().as_deref() != Some(text.as_str()) {
        std::fs::write(path, text).expect("src/shim_bindings.rs is writable");
    }
}

#[cfg(feature = "regenerate-bindings")]
#[path = "shim/bindings.rs"]
mod bindings;
