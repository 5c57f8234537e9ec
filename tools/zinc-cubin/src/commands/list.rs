//! `zinc-cubin list`: what the archive holds.

use cubin_format::TargetEntry;
use serde::Serialize;

use crate::cli::List;
use crate::context::{Context, Selected};
use crate::failure::Outcome;
use crate::output::{self, Align, Table};

#[derive(Serialize)]
struct Listing<'a> {
    kernels: Vec<ListedKernel<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pending: Vec<PendingKernel>,
    archive: &'a str,
    archive_bytes: usize,
    compiler: &'a str,
    source_hash: String,
}

#[derive(Serialize)]
struct ListedKernel<'a> {
    name: &'a str,
    family: &'a str,
    extended: bool,
    summary: &'a str,
    targets: Vec<ListedTarget>,
}

/// One image in `list --json` and `show --json`.
#[derive(Serialize)]
pub struct ListedTarget {
    arch: String,
    kind: &'static str,
    bytes: u64,
    compressed_bytes: u64,
    sha256: String,
    registers: u32,
    shared_bytes: u32,
    local_bytes: u32,
    spill_bytes: u64,
}

impl ListedTarget {
    /// What the index says of an image.
    pub fn new(entry: &TargetEntry) -> Self {
        Self {
            arch: entry.target.to_string(),
            kind: match entry.target.kind {
                cubin_format::ImageKind::Sass => "cubin",
                cubin_format::ImageKind::Ptx => "ptx",
            },
            bytes: entry.raw_bytes,
            compressed_bytes: entry.stored_bytes,
            sha256: entry.raw_hash.to_string(),
            registers: entry.resources.registers,
            shared_bytes: entry.resources.shared_bytes,
            local_bytes: entry.resources.local_bytes,
            spill_bytes: entry.resources.spill_bytes(),
        }
    }

    /// The row of `show`: target, registers, shared, local, spills, bytes, stored, hash. The driver's compiler decides
    /// the resources of PTX.
    pub fn cells(&self) -> [String; 8] {
        let resource = |value: u64| {
            if self.kind == "ptx" {
                "-".to_owned()
            } else {
                value.to_string()
            }
        };
        [
            self.arch.clone(),
            resource(self.registers.into()),
            resource(self.shared_bytes.into()),
            resource(self.local_bytes.into()),
            resource(self.spill_bytes),
            self.bytes.to_string(),
            self.compressed_bytes.to_string(),
            self.sha256.clone(),
        ]
    }
}

#[derive(Serialize)]
struct PendingKernel {
    name: &'static str,
    family: &'static str,
    extended: bool,
    reason: &'static str,
}

/// Lists the kernels that the filters select.
pub fn run(context: &Context, arguments: &List) -> Outcome {
    let selected = context.select(&arguments.filter, arguments.extended)?;
    let pending: Vec<PendingKernel> = if arguments.pending {
        zinc_contract::KERNELS
            .iter()
            .filter(|kernel| arguments.extended || !kernel.extended)
            .filter(|kernel| {
                arguments.filter.family.is_empty()
                    || arguments.filter.family.iter().any(|f| f == kernel.family)
            })
            .filter_map(|kernel| {
                Some(PendingKernel {
                    name: kernel.name,
                    family: kernel.family,
                    extended: kernel.extended,
                    reason: kernel.pending?,
                })
            })
            .collect()
    } else {
        Vec::new()
    };
    if context.json {
        return output::json(&Listing {
            kernels: selected.iter().map(listed).collect(),
            pending,
            archive: &context.archive_name,
            archive_bytes: context.archive.bytes().len(),
            compiler: &context.archive.metadata().compiler,
            source_hash: context.archive.metadata().source_hash.to_string(),
        });
    }
    output::text(&human(context, &selected, &pending))
}

fn listed<'a>(selected: &Selected<'a>) -> ListedKernel<'a> {
    ListedKernel {
        name: &selected.kernel.name,
        family: &selected.kernel.family,
        extended: selected.kernel.extended,
        summary: &selected.kernel.summary,
        targets: selected
            .targets
            .iter()
            .map(|entry| ListedTarget::new(entry))
            .collect(),
    }
}

fn human(context: &Context, selected: &[Selected<'_>], pending: &[PendingKernel]) -> String {
    let mut table = Table::new(
        context.colour,
        &[
            ("kernel", Align::Left),
            ("family", Align::Left),
            ("targets", Align::Left),
            ("size", Align::Right),
            ("stored", Align::Right),
        ],
    );
    let (mut raw, mut stored, mut images) = (0, 0, 0);
    for Selected { kernel, targets } in selected {
        let kernel_raw: u64 = targets.iter().map(|entry| entry.raw_bytes).sum();
        let kernel_stored: u64 = targets.iter().map(|entry| entry.stored_bytes).sum();
        let mark = if kernel.extended { " (extended)" } else { "" };
        table.row([
            format!("{}{mark}", kernel.name),
            kernel.family.clone(),
            targets
                .iter()
                .map(|entry| short(entry))
                .collect::<Vec<_>>()
                .join(" "),
            output::bytes(kernel_raw),
            output::bytes(kernel_stored),
        ]);
        raw += kernel_raw;
        stored += kernel_stored;
        images += targets.len();
    }
    let mut text = format!(
        "{table}\n{} kernels, {images} images, {} stored in {}; {}\n",
        selected.len(),
        output::bytes(raw),
        output::bytes(stored),
        context.archive.metadata().compiler
    );
    if !pending.is_empty() {
        let mut table = Table::new(
            context.colour,
            &[
                ("pending", Align::Left),
                ("family", Align::Left),
                ("reason", Align::Left),
            ],
        );
        for kernel in pending {
            table.row([kernel.name, kernel.family, kernel.reason]);
        }
        text.push_str(&format!("\n{table}\n{} kernels pending\n", pending.len()));
    }
    text
}

/// Machine code by its number, as `90`; PTX by its full name.
fn short(entry: &TargetEntry) -> String {
    match entry.target.kind {
        cubin_format::ImageKind::Sass => entry.target.arch.to_string(),
        cubin_format::ImageKind::Ptx => entry.target.to_string(),
    }
}
