//! The kernel reference in Markdown: an index, and one page per family with a section per kernel.

use super::text::escape_markdown;
use crate::model::*;

/// One file of the reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// File name, such as `gemm.md`.
    pub file: String,
    /// Markdown.
    pub text: String,
}

/// The reference of all kernels: `README.md`, then a page per family.
pub fn reference(catalog: &Catalog) -> Vec<Page> {
    let mut index = String::from(
        "# Kernel reference\n\n\
         Generated from kernels-cu/catalog; do not edit. README.md there explains the terms.\n",
    );
    let mut pages = Vec::new();
    for family in FAMILIES {
        let kernels = Vec::from_iter(
            catalog
                .kernels
                .iter()
                .filter(|kernel| kernel.family == family),
        );
        if kernels.is_empty() {
            continue;
        }
        index += &format!(
            "\n## {family} ({})\n\n| kernel | |\n|---|---|\n",
            kernels.len()
        );
        let mut text = format!(
            "# Kernels of the family {family}\n\nGenerated from kernels-cu/catalog; do not edit.\n"
        );
        for kernel in kernels {
            let Kernel { name, summary, .. } = kernel;
            index += &format!(
                "| [{name}]({family}.md#{name}) | {} |\n",
                escape_markdown(summary)
            );
            text += &section(kernel);
        }
        pages.push(Page {
            file: format!("{family}.md"),
            text,
        });
    }
    pages.insert(
        0,
        Page {
            file: "README.md".to_owned(),
            text: index,
        },
    );
    pages
}

fn section(kernel: &Kernel) -> String {
    let mut out = format!(
        "\n## {}\n\n{}\n",
        kernel.name,
        escape_markdown(&kernel.summary)
    );
    if kernel.extended {
        out += "\nExtended: beyond the 110 kernels.\n";
    }
    if let Some(reason) = &kernel.pending {
        out += &format!("\nNo implementation: {}.\n", escape_markdown(reason));
    }
    out += "\n| buffer | access | type | shape | bytes | first byte | alignment |\n|---|---|---|---|---|---|---|\n";
    for buffer in &kernel.buffers {
        out += &format!(
            "| {} | {} | {} | {} | `{}` | `{}` | {} |\n",
            buffer.name,
            buffer.access.name(),
            escape_markdown(&buffer.dtype),
            escape_markdown(&buffer.shape),
            buffer.bytes.text,
            buffer.start.text,
            buffer.align
        );
    }
    for (a, b) in &kernel.may_alias {
        let (a, b) = (&kernel.buffers[*a].name, &kernel.buffers[*b].name);
        out += &format!("\n{a} and {b} may be the same range.\n");
    }
    out += "\n| word | field | type | passed as | |\n|---|---|---|---|---|\n";
    for (index, field) in kernel.fields.iter().enumerate() {
        let kind = match field.kind {
            FieldKind::Push => "push block",
            FieldKind::Launch => "launch count",
            FieldKind::Spec => "specialization value",
        };
        let default = match (field.default, field.scalar) {
            (None, _) => String::new(),
            (Some(word), Scalar::U32) => format!(" (default {word})"),
            (Some(word), Scalar::F32) => format!(" (default {:?})", f32::from_bits(word)),
        };
        out += &format!(
            "| {index} | {} | {} | {kind} | {}{default} |\n",
            field.name,
            field.scalar.name(),
            escape_markdown(&field.doc)
        );
    }
    if kernel.ignored_push_bytes > 0 {
        out += &format!(
            "\nUp to {} more push bytes are accepted and ignored.\n",
            kernel.ignored_push_bytes
        );
    }
    out += &format!("\n```text\n{}\n```\n", kernel.math);
    if !kernel.requires.is_empty() {
        let list = kernel
            .requires
            .iter()
            .map(|condition| format!("`{}`", condition.text));
        out += &format!("\nRequires {}.\n", Vec::from_iter(list).join(", "));
    }
    for (title, text) in [
        ("Edge cases", &kernel.edge),
        ("Precision", &kernel.numerics),
        ("Used in", &kernel.used_in),
    ] {
        out += &format!("\n**{title}.** {}\n", escape_markdown(text.trim()));
    }
    out += &format!(
        "\n**Grid of the original.** {}\n",
        escape_markdown(&kernel.reference_grid)
    );
    for rule in &kernel.launch {
        out += &launch_rule(rule);
    }
    out
}

fn launch_rule(rule: &LaunchRule) -> String {
    let title = match (rule.min_arch, rule.specific) {
        (0, _) => "Launch".to_owned(),
        (arch, false) => format!("Launch from architecture {arch} on"),
        (arch, true) => format!("Launch of the code for architecture {arch} alone"),
    };
    let dimensions = |exprs: &[ExprText; 3]| {
        let used = exprs.iter().rposition(|expr| expr.text != "1").unwrap_or(0);
        let texts = exprs[..=used].iter().map(|expr| format!("`{}`", expr.text));
        Vec::from_iter(texts).join(" × ")
    };
    let mut out = format!(
        "\n**{title}.** Grid {}, block {}",
        dimensions(&rule.grid),
        dimensions(&rule.block)
    );
    if rule.cluster.text != "1" {
        out += &format!(", cluster `{}`", rule.cluster.text);
    }
    if rule.shared.text != "0" {
        out += &format!(", dynamic shared bytes `{}`", rule.shared.text);
    }
    for (name, value) in &rule.lets {
        out += &format!("; {name} is `{}`", value.text);
    }
    if !rule.tile.is_empty() {
        let constants = rule
            .tile
            .iter()
            .map(|(name, value)| format!("{name} = {value}"));
        out += &format!("; {}", Vec::from_iter(constants).join(", "));
    }
    out + ".\n"
}
