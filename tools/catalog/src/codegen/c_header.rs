//! The C header for hosts in C, C++ and Zig: push blocks, names, and what must be passed to each kernel.

use crate::model::*;

/// The text of `zinc_kernels.h`.
pub fn c_header(catalog: &Catalog) -> String {
    let mut kernels = String::new();
    for kernel in &catalog.kernels {
        kernels += &declarations(kernel);
    }
    let total = catalog.kernels.len();
    let extended = catalog
        .kernels
        .iter()
        .filter(|kernel| kernel.extended)
        .count();
    format!(
        "/* Generated from the kernel catalog; do not edit.\n\
         \x20*\n\
         \x20* For each kernel: its name, its push block (byte for byte that of the original shader), how many buffers,\n\
         \x20* launch counts and specialization values a dispatch passes, and the index of each. */\n\
         #ifndef ZINC_KERNELS_H\n\
         #define ZINC_KERNELS_H\n\
         \n\
         #include <stdint.h>\n\
         \n\
         enum {{\n  ZINC_KERNEL_COUNT = {total}, /* of which extended: */\n  ZINC_EXTENDED_KERNEL_COUNT = {extended}\n}};\n\
         {kernels}\n\
         #endif /* ZINC_KERNELS_H */\n"
    )
}

fn declarations(kernel: &Kernel) -> String {
    let name = &kernel.name;
    let upper = name.to_ascii_uppercase();
    let fields: String = kernel
        .fields_of(FieldKind::Push)
        .map(|field| {
            format!(
                "  {} {}; /* {} */\n",
                field.scalar.c_name(),
                field.name,
                comment(&field.doc)
            )
        })
        .collect();
    let mut constants = vec![format!("ZINC_{upper}_BUFFERS = {}", kernel.buffers.len())];
    for (index, buffer) in kernel.buffers.iter().enumerate() {
        constants.push(format!(
            "ZINC_{upper}_BUFFER_{} = {index}",
            buffer.name.to_ascii_uppercase()
        ));
    }
    for (kind, word) in [(FieldKind::Launch, "LAUNCH"), (FieldKind::Spec, "SPEC")] {
        constants.push(format!(
            "ZINC_{upper}_{word}_VALUES = {}",
            kernel.fields_of(kind).count()
        ));
        for (index, field) in kernel.fields_of(kind).enumerate() {
            constants.push(format!(
                "ZINC_{upper}_{word}_{} = {index}",
                field.name.to_ascii_uppercase()
            ));
        }
    }
    format!(
        "\n/* {}{} */\n\
         #define ZINC_{upper}_NAME \"{name}\"\n\
         typedef struct zinc_{name}_push {{\n{fields}}} zinc_{name}_push;\n\
         enum {{\n  {}\n}};\n",
        if kernel.extended { "Extended. " } else { "" },
        comment(&kernel.summary),
        constants.join(",\n  ")
    )
}

/// Text that cannot end the comment it stands in.
fn comment(text: &str) -> String {
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    one_line.replace("*/", "* /").replace("/*", "/ *")
}
