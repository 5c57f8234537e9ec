//! `zinc-cubin show`: one kernel's contract and its images.

use serde::Serialize;
use zinc_contract::{Access, FieldKind, Kernel, Scalar};

use super::list::ListedTarget;
use crate::cli::Show;
use crate::context::Context;
use crate::failure::Outcome;
use crate::output::{self, Align, Table};

#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    family: &'a str,
    extended: bool,
    pending: Option<&'a str>,
    summary: &'a str,
    buffers: Vec<ShownBuffer<'a>>,
    push: Vec<ShownField<'a>>,
    push_bytes: usize,
    requires: Vec<&'a str>,
    math: &'a str,
    edge: &'a str,
    numerics: &'a str,
    used_in: &'a str,
    entry: Option<&'a str>,
    compiler: &'a str,
    targets: Vec<ListedTarget>,
}

#[derive(Serialize)]
struct ShownBuffer<'a> {
    name: &'a str,
    access: &'static str,
    dtype: &'a str,
    bytes: &'a str,
    shape: &'a str,
    align: u64,
}

#[derive(Serialize)]
struct ShownField<'a> {
    name: &'a str,
    kind: &'static str,
    r#type: &'static str,
    default: Option<u32>,
    doc: &'a str,
}

fn access(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
        Access::ReadWrite => "read_write",
    }
}

fn kind(kind: FieldKind) -> &'static str {
    match kind {
        FieldKind::Push => "push",
        FieldKind::Launch => "launch",
        FieldKind::Spec => "spec",
    }
}

fn scalar(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::U32 => "u32",
        Scalar::F32 => "f32",
    }
}

/// Shows the kernel's contract, and what the archive holds of it.
pub fn run(context: &Context, arguments: &Show) -> Outcome {
    let kernel = zinc_contract::kernel(&arguments.kernel)?;
    let entry = context
        .archive
        .kernels()
        .iter()
        .find(|entry| entry.name == kernel.name);
    let shown = Shown {
        name: kernel.name,
        family: kernel.family,
        extended: kernel.extended,
        pending: kernel.pending,
        summary: kernel.summary,
        buffers: kernel
            .buffers
            .iter()
            .map(|buffer| ShownBuffer {
                name: buffer.name,
                access: access(buffer.access),
                dtype: buffer.dtype,
                bytes: buffer.bytes.text,
                shape: buffer.shape,
                align: buffer.align,
            })
            .collect(),
        push: kernel
            .fields
            .iter()
            .map(|field| ShownField {
                name: field.name,
                kind: kind(field.kind),
                r#type: scalar(field.scalar),
                default: field.default,
                doc: field.doc,
            })
            .collect(),
        push_bytes: kernel.push_words * 4,
        requires: kernel
            .requires
            .iter()
            .map(|condition| condition.text)
            .collect(),
        math: kernel.math,
        edge: kernel.edge,
        numerics: kernel.numerics,
        used_in: kernel.used_in,
        entry: entry.map(|entry| entry.entry.as_str()),
        compiler: &context.archive.metadata().compiler,
        targets: entry
            .map(|entry| entry.targets.iter().map(ListedTarget::new).collect())
            .unwrap_or_default(),
    };
    if context.json {
        return output::json(&shown);
    }
    output::text(&human(context, kernel, &shown))
}

fn human(context: &Context, kernel: &Kernel, shown: &Shown<'_>) -> String {
    let mut text = format!("{}: {}\n", kernel.name, kernel.summary.trim());
    text.push_str(&format!(
        "family {}{}\n",
        kernel.family,
        if kernel.extended { ", extended" } else { "" }
    ));
    if let Some(reason) = kernel.pending {
        text.push_str(&format!("pending: {reason}\n"));
    }

    let mut buffers = Table::new(
        context.colour,
        &[
            ("buffer", Align::Left),
            ("access", Align::Left),
            ("type", Align::Left),
            ("bytes", Align::Left),
            ("shape", Align::Left),
        ],
    );
    for buffer in &shown.buffers {
        buffers.row([
            buffer.name,
            buffer.access,
            buffer.dtype,
            buffer.bytes,
            buffer.shape,
        ]);
    }
    text.push_str(&format!("\nBuffers, in binding order\n{buffers}"));

    let mut fields = Table::new(
        context.colour,
        &[
            ("field", Align::Left),
            ("kind", Align::Left),
            ("type", Align::Left),
            ("meaning", Align::Left),
        ],
    );
    for field in &shown.push {
        fields.row([field.name, field.kind, field.r#type, field.doc]);
    }
    text.push_str(&format!(
        "\nPush block: {} bytes from the host; launch and spec values follow on the device\n{fields}",
        shown.push_bytes
    ));

    if !shown.requires.is_empty() {
        text.push_str(&format!("\nRequires\n  {}\n", shown.requires.join("\n  ")));
    }
    for (title, body) in [
        ("Math", kernel.math),
        ("Edge cases", kernel.edge),
        ("Numerics", kernel.numerics),
        ("Used in", kernel.used_in),
    ] {
        if !body.trim().is_empty() {
            text.push_str(&format!("\n{title}\n{}\n", indented(body)));
        }
    }

    if shown.targets.is_empty() {
        text.push_str(&format!(
            "\nNo images in the {} archive.\n",
            context.archive_name
        ));
        return text;
    }
    let mut targets = Table::new(
        context.colour,
        &[
            ("target", Align::Left),
            ("registers", Align::Right),
            ("shared", Align::Right),
            ("local", Align::Right),
            ("spills", Align::Right),
            ("bytes", Align::Right),
            ("stored", Align::Right),
            ("sha256", Align::Left),
        ],
    );
    for target in &shown.targets {
        targets.row(target.cells());
    }
    text.push_str(&format!("\nImages, by {}\n{targets}", shown.compiler));
    text
}

fn indented(text: &str) -> String {
    let lines: Vec<String> = text
        .trim_matches('\n')
        .lines()
        .map(|line| format!("  {line}").trim_end().to_owned())
        .collect();
    lines.join("\n")
}
