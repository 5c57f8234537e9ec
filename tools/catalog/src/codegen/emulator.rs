//! What the emulator needs of the catalog: one C++ translation unit per kernel, and a table of their entries.

use crate::model::{Catalog, Kernel};

/// A C++ translation unit that compiles `kernel` for the emulator.
///
/// `cu` is how the implementation is named in `#include`. Everything that the implementation defines is local to its
/// unit, because implementations may use one name for different things; only the entry's descriptor is visible. What
/// platform.cuh defines stays outside, and is found from inside.
pub fn emulator_entry(kernel: &Kernel, cu: &str) -> String {
    let name = &kernel.name;
    format!(
        "// Generated from the catalog; do not edit.\n\
         #include \"zinc/platform.cuh\"\n\
         namespace {{\n\
         namespace zinc {{\n\
         using namespace ::zinc;\n\
         }}\n\
         #include \"{cu}\"\n\
         }}  // namespace\n\
         ZINC_EMULATOR_ENTRY({name})\n"
    )
}

/// Rust source that declares the entry descriptors of all implemented kernels and lists them, sorted by name, as
/// `static ENTRIES: &[(&str, extern "C" fn() -> &'static Entry)]`, for a module that defines `Entry`.
pub fn emulator_table(catalog: &Catalog) -> String {
    let mut declarations = String::new();
    let mut rows = String::new();
    for Kernel { name, .. } in catalog.implemented() {
        declarations += &format!("    safe fn zinc_emulator_entry_{name}() -> &'static Entry;\n");
        rows += &format!("    (\"{name}\", zinc_emulator_entry_{name}),\n");
    }
    format!(
        "unsafe extern \"C\" {{\n{declarations}}}\n\
         \n\
         static ENTRIES: &[(&str, extern \"C\" fn() -> &'static Entry)] = &[\n{rows}];\n"
    )
}
