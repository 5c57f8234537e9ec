//! What the emulator needs of the catalog: one C++ translation unit per kernel, and a table of their entries.

use crate::model::{Catalog, Kernel};

/// A C++ translation unit that compiles `kernel` for the emulator and gives it a C entry.
///
/// `cu` is how the implementation is named in `#include`. The entry takes the arguments as CUDA's launch does: a
/// pointer to each buffer's pointer in binding order, then a pointer to the push struct.
pub fn emulator_entry(kernel: &Kernel, cu: &str) -> String {
    let name = &kernel.name;
    format!(
        "// Generated from the catalog; do not edit.\n\
         #include \"{cu}\"\n\
         \n\
         extern \"C\" void zinc_emulator_entry_{name}(void** args) {{ zinc_emulator::call(&{name}, args); }}\n"
    )
}

/// Rust source that declares the C entries of all implemented kernels and lists them, sorted by name, as
/// `pub static ENTRIES: &[(&str, unsafe extern "C" fn(*mut *mut std::ffi::c_void))]`.
pub fn emulator_table(catalog: &Catalog) -> String {
    let mut declarations = String::new();
    let mut rows = String::new();
    for Kernel { name, .. } in catalog.implemented() {
        declarations +=
            &format!("    fn zinc_emulator_entry_{name}(args: *mut *mut std::ffi::c_void);\n");
        rows += &format!("    (\"{name}\", zinc_emulator_entry_{name}),\n");
    }
    format!(
        "unsafe extern \"C\" {{\n{declarations}}}\n\
         \n\
         /// The emulator's entry of every implemented kernel, sorted by name.\n\
         pub static ENTRIES: &[(&str, unsafe extern \"C\" fn(*mut *mut std::ffi::c_void))] = &[\n{rows}];\n"
    )
}
