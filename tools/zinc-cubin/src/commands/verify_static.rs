//! `zinc-cubin verify --static`: the archive alone, without any device. Every payload against its hash, every cubin's
//! architecture, entry and parameter layout against the contract, every record of resources against the cubin.

use cubin_format::{Cubin, ImageKind, KernelEntry, TargetEntry, check_abi};
use serde::Serialize;

use crate::cli::Verify;
use crate::context::{Context, check_families};
use crate::failure::{Failure, Outcome};
use crate::output;

#[derive(Serialize)]
struct Report<'a> {
    archive: &'a str,
    kernels: usize,
    images: usize,
    failures: Vec<Finding>,
}

#[derive(Serialize)]
struct Finding {
    kernel: String,
    target: String,
    error: String,
}

/// Checks every image of the selected kernels.
pub fn run(context: &Context, arguments: &Verify) -> Outcome {
    check_families(&arguments.family)?;
    for name in &arguments.kernels {
        context.archive.kernel(name)?;
    }
    let kernels: Vec<&KernelEntry> = context
        .archive
        .kernels()
        .iter()
        .filter(|kernel| arguments.kernels.is_empty() || arguments.kernels.contains(&kernel.name))
        .filter(|kernel| arguments.family.is_empty() || arguments.family.contains(&kernel.family))
        .collect();
    if kernels.is_empty() {
        return Err(Failure::input(format!(
            "nothing to check: no selected kernel is in the {} archive",
            context.archive_name
        )));
    }
    let mut failures = Vec::new();
    let mut images = 0;
    for kernel in &kernels {
        for entry in &kernel.targets {
            images += 1;
            if let Err(error) = check_image(context, kernel, entry) {
                failures.push(Finding {
                    kernel: kernel.name.clone(),
                    target: entry.target.to_string(),
                    error: format!("{error:#}"),
                });
            }
        }
    }
    let report = Report {
        archive: &context.archive_name,
        kernels: kernels.len(),
        images,
        failures,
    };
    if context.json {
        output::json(&report)?;
    } else {
        let mut text = String::new();
        for failure in &report.failures {
            text.push_str(&format!(
                "{} {}: {}\n",
                failure.kernel, failure.target, failure.error
            ));
        }
        text.push_str(&format!(
            "{} kernels, {images} images checked without a device, {} wrong\n",
            report.kernels,
            report.failures.len()
        ));
        output::text(&text)?;
    }
    match report.failures.len() {
        0 => Ok(()),
        wrong => Err(Failure::check(format!(
            "{wrong} of {images} images are wrong"
        ))),
    }
}

fn check_image(context: &Context, kernel: &KernelEntry, entry: &TargetEntry) -> anyhow::Result<()> {
    let bytes = context.archive.image(&kernel.name, entry.target)?;
    let contract = zinc_contract::kernel(&kernel.name)?;
    anyhow::ensure!(
        kernel.entry == contract.name,
        "wanted the entry {}, found {}",
        contract.name,
        kernel.entry
    );
    match entry.target.kind {
        ImageKind::Sass => {
            let cubin = Cubin::parse(&bytes)?;
            anyhow::ensure!(
                cubin.is_for(entry.target.arch),
                "wanted code for sm_{}, found sm_{}",
                entry.target.arch,
                cubin.arch
            );
            let found = cubin.entry(&kernel.entry)?;
            check_abi(
                found,
                contract.buffers.len(),
                u32::try_from(contract.struct_bytes())?,
            )?;
            let recorded = &entry.resources;
            let resources = found.resources(recorded.spill_store_bytes, recorded.spill_load_bytes);
            anyhow::ensure!(
                resources == *recorded,
                "the index records {recorded:?}, the cubin has {resources:?}"
            );
        }
        ImageKind::Ptx => {
            let text = std::str::from_utf8(&bytes)?;
            anyhow::ensure!(
                text.contains(&format!(".entry {}(", kernel.entry)),
                "the PTX has no entry {}",
                kernel.entry
            );
            anyhow::ensure!(
                text.contains(&format!(".target sm_{}", entry.target.arch)),
                "the PTX is not for sm_{}",
                entry.target.arch
            );
        }
    }
    Ok(())
}
