//! The device header of a kernel: its push struct and tile constants, for nvcc and the emulator alike.

use crate::model::{FieldKind, Kernel, LaunchRule};

/// The text of `zinc/<kernel>.h`.
///
/// It holds exactly what an implementation sees of the catalog, and no prose: a kernel has to be compiled again when
/// this text changes, and not when only a description or an expression of its launch rule does.
pub fn device_header(kernel: &Kernel) -> String {
    let name = &kernel.name;
    let mut fields = String::new();
    let mut kind = FieldKind::Push;
    for field in &kernel.fields {
        if field.kind != kind {
            kind = field.kind;
            fields += match kind {
                FieldKind::Push => "  // push\n",
                FieldKind::Launch => "  // launch counts\n",
                FieldKind::Spec => "  // specialization values\n",
            };
        }
        fields += &format!("  {} {};\n", field.scalar.c_name(), field.name);
    }
    let words = kernel.fields.len();
    let tiles = tiles(kernel);
    format!(
        "// Generated from the catalog entry and the launch file of {name}; do not edit.\n\
         #pragma once\n\
         #include \"zinc/platform.cuh\"\n\
         \n\
         struct {name}_push {{\n{fields}}};\n\
         static_assert(sizeof({name}_push) == 4 * {words}, \"{words} words of 4 bytes\");\n\
         {tiles}"
    )
}

/// The tile constants, chosen by architecture where an override changes them.
fn tiles(kernel: &Kernel) -> String {
    let Some((base, overrides)) = kernel.launch.split_first() else {
        return String::new();
    };
    if base.tile.is_empty() {
        return String::new();
    }
    let constants = |rule: &LaunchRule| -> String {
        let constant =
            |(name, value): &(String, u32)| format!("constexpr unsigned {name} = {value};\n");
        rule.tile.iter().map(constant).collect()
    };
    let chosen = if overrides.iter().all(|rule| rule.tile == base.tile) {
        constants(base)
    } else {
        let mut chain = String::new();
        for (index, rule) in overrides.iter().rev().enumerate() {
            let directive = if index == 0 { "#if" } else { "#elif" };
            let arch = rule.min_arch;
            // The compiler defines the second where it compiles for this architecture alone.
            let condition = match rule.specific {
                true => format!("ZINC_ARCH == {arch} && defined(__CUDA_ARCH_FEAT_SM{arch}_ALL)"),
                false => format!("ZINC_ARCH >= {arch}"),
            };
            chain += &format!("{directive} {condition}\n{}", constants(rule));
        }
        format!("{chain}#else\n{}#endif\n", constants(base))
    };
    let name = &kernel.name;
    format!("\nnamespace {name}_tile {{\n{chosen}}}  // namespace {name}_tile\n")
}
