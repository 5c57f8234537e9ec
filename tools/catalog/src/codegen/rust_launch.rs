//! Typed launch functions as Rust source: push struct, buffers and function of every kernel.

use super::text::{camel_case, escape_markdown, prefixed};
use crate::model::*;

/// Rust source of a module with, for each kernel, `<Kernel>Push`, `<Kernel>Buffers` and the launch function.
///
/// The functions are generic over the trait `Dispatch`, so that the same calls reach a GPU queue or the emulator. The
/// module belongs in the crate that has `Dispatch`, `KERNELS` and `index` at its root, which is `zinc-contract`.
pub fn rust_launch(catalog: &Catalog) -> String {
    let mut out = String::from("use crate::{Dispatch, KERNELS, index};\n");
    for kernel in &catalog.kernels {
        out += &push_struct(kernel);
        out += &buffers_struct(kernel);
        out += &launch_function(kernel);
    }
    out
}

fn push_struct(kernel: &Kernel) -> String {
    let name = &kernel.name;
    let camel = camel_case(name);
    let push = &kernel.fields[..kernel.push_words];
    let bytes = kernel.push_words * 4;
    let mut fields = String::new();
    let mut copies = String::new();
    for (index, field) in push.iter().enumerate() {
        fields += &prefixed("    /// ", &escape_markdown(&field.doc));
        fields += &format!("    pub {}: {},\n", field.name, field.scalar.name());
        let (from, to) = (index * 4, index * 4 + 4);
        copies += &format!(
            "        bytes[{from}..{to}].copy_from_slice(&self.{}.to_ne_bytes());\n",
            field.name
        );
    }
    format!(
        "\n/// Push block of [`{name}`]: byte for byte what a host fills for the original shader.\n\
         #[repr(C)]\n\
         #[derive(Clone, Copy, Debug, Default, PartialEq)]\n\
         pub struct {camel}Push {{\n{fields}}}\n\
         \n\
         impl {camel}Push {{\n\
         \x20   /// The block as bytes, in the order of the fields and the byte order of this machine.\n\
         \x20   pub fn bytes(&self) -> [u8; {bytes}] {{\n\
         \x20       let mut bytes = [0; {bytes}];\n\
         {copies}\
         \x20       bytes\n\
         \x20   }}\n\
         }}\n"
    )
}

fn buffers_struct(kernel: &Kernel) -> String {
    let name = &kernel.name;
    let camel = camel_case(name);
    let mut fields = String::new();
    for buffer in &kernel.buffers {
        let access = match buffer.access {
            Access::Read => "read",
            Access::Write => "written",
            Access::ReadWrite => "read and written",
        };
        let text = format!(
            "{}, {access}: {}; `{}` bytes",
            escape_markdown(&buffer.dtype),
            escape_markdown(&buffer.shape),
            buffer.bytes.text
        );
        fields += &prefixed("    /// ", &text);
        fields += &format!("    pub {}: S,\n", buffer.name);
    }
    format!(
        "\n/// Buffers of [`{name}`], each a buffer or a part of one.\n\
         #[derive(Clone, Copy, Debug)]\n\
         pub struct {camel}Buffers<S> {{\n{fields}}}\n"
    )
}

fn launch_function(kernel: &Kernel) -> String {
    let name = &kernel.name;
    let camel = camel_case(name);
    let mut docs = prefixed("/// ", &escape_markdown(&kernel.summary));
    docs += "///\n/// ```text\n";
    docs += &prefixed("/// ", &kernel.math);
    docs += "/// ```\n";
    let counts = Vec::from_iter(
        kernel
            .fields
            .iter()
            .filter(|field| field.kind != FieldKind::Push),
    );
    if !counts.is_empty() {
        docs += "///\n";
        for field in &counts {
            let default = match (field.default, field.scalar) {
                (None, _) => String::new(),
                (Some(word), Scalar::U32) => format!(" (the original's default is {word})"),
                (Some(word), Scalar::F32) => {
                    format!(" (the original's default is {})", f32::from_bits(word))
                }
            };
            docs += &prefixed(
                "/// ",
                &format!(
                    "- `{}`: {}{default}",
                    field.name,
                    escape_markdown(&field.doc)
                ),
            );
        }
    }
    docs += "///\n/// # Errors\n///\n/// When a buffer is too small, misaligned or overlaps one that it must not overlap";
    docs += match kernel.requires.is_empty() {
        true => ".\n",
        false => ", or when one of these does not hold:\n///\n",
    };
    for condition in &kernel.requires {
        docs += &format!("/// - `{}`\n", condition.text);
    }
    let arguments: String = counts
        .iter()
        .map(|field| format!("    {}: {},\n", field.name, field.scalar.name()))
        .collect();
    let word = |field: &Field| {
        let owner = if field.kind == FieldKind::Push {
            "push."
        } else {
            ""
        };
        let bits = if field.scalar == Scalar::F32 {
            ".to_bits()"
        } else {
            ""
        };
        format!("{owner}{}{bits}", field.name)
    };
    let words = Vec::from_iter(kernel.fields.iter().map(word)).join(", ");
    let slices =
        Vec::from_iter(kernel.buffers.iter().map(|b| format!("buffers.{}", b.name))).join(", ");
    let constant = name.to_ascii_uppercase();
    format!(
        "\n{docs}\
         #[allow(clippy::too_many_arguments)]\n\
         pub fn {name}<'a, Q: Dispatch>(\n\
         \x20   queue: Q,\n\
         \x20   push: &{camel}Push,\n\
         {arguments}\
         \x20   buffers: {camel}Buffers<Q::Slice<'a>>,\n\
         ) -> Result<(), Q::Error> {{\n\
         \x20   queue.dispatch(\n\
         \x20       &KERNELS[index::{constant}],\n\
         \x20       &[{words}],\n\
         \x20       &[{slices}],\n\
         \x20   )\n\
         }}\n"
    )
}
