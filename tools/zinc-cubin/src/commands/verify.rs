//! `zinc-cubin verify`: every kernel over its cases on one device, each result against the reference.

use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;
use serde::Serialize;
use zinc_contract::Kernel;
use zinc_oracle::Case;

use super::{export::write_whole, verify_static};
use crate::cli::Verify;
use crate::context::{Context, check_families};
use crate::failure::{Failure, OnDevice, Outcome};
use crate::output::{self, Align, Table};
use crate::target::{DeviceInfo, Layout, Target};

/// The report that `--report` writes and `--json` prints; attestations are made of it.
#[derive(Serialize)]
struct Report {
    tool: &'static str,
    version: &'static str,
    compiler: String,
    source_hash: String,
    device: DeviceInfo,
    /// How often each case ran, always with the same bits.
    repeat: u32,
    /// Whether each case gave the emulator's bits, too.
    same_bits_as_emulator: bool,
    kernels: Vec<KernelReport>,
    cases: usize,
    passed: usize,
}

#[derive(Serialize)]
struct KernelReport {
    name: String,
    /// The image that ran; nothing on the emulator.
    target: Option<String>,
    sha256: Option<String>,
    cases: usize,
    passed: usize,
    max_error_over_tolerance: f64,
    worst_case: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failures: Vec<CaseFailure>,
}

#[derive(Serialize)]
struct CaseFailure {
    case: String,
    error: String,
}

/// What one case came to: the largest quotient of error and tolerance, or what was wrong.
struct Verdict {
    ratio: f64,
    error: Option<String>,
}

/// Runs the selected cases and reports.
pub fn run(context: &Context, arguments: &Verify) -> Outcome {
    if arguments.static_only {
        return verify_static::run(context, arguments);
    }
    let kernels = select(context, arguments)?;
    let layout = if arguments.no_guards {
        Layout::Exact
    } else {
        Layout::Guarded
    };
    let target = Target::open(&arguments.device.device, context, layout)?;
    let info = target.info();
    if !context.json {
        eprintln!("device: {info}");
    }
    let heavy = arguments.heavy || (info.is_gpu() && !arguments.light);

    let mut reports = Vec::new();
    let progress = progress(kernels.len(), context.json);
    for kernel in kernels {
        progress.set_message(kernel.name);
        let report = verify_kernel(context, kernel, arguments, heavy, &target)?;
        for failure in &report.failures {
            progress.suspend(|| eprintln!("{} [{}]: {}", report.name, failure.case, failure.error));
        }
        if report.cases > 0 {
            reports.push(report);
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    if reports.is_empty() {
        return Err(Failure::input("no case matches"));
    }

    let report = Report {
        tool: "zinc-cubin",
        version: env!("CARGO_PKG_VERSION"),
        compiler: context.archive.metadata().compiler.clone(),
        source_hash: context.archive.metadata().source_hash.to_string(),
        device: info,
        repeat: arguments.repeat,
        same_bits_as_emulator: arguments.same_bits,
        cases: reports.iter().map(|report| report.cases).sum(),
        passed: reports.iter().map(|report| report.passed).sum(),
        kernels: reports,
    };
    if let Some(path) = &arguments.report {
        let mut text = serde_json::to_vec_pretty(&report)?;
        text.push(b'\n');
        write_whole(path, &text)
            .map_err(|error| Failure::input(format!("can't write {}: {error}", path.display())))?;
    }
    if context.json {
        output::json(&report)?;
    } else {
        output::text(&human(context, &report))?;
    }
    match report.cases - report.passed {
        0 => Ok(()),
        wrong => Err(Failure::check(format!(
            "{wrong} of {} cases failed",
            report.cases
        ))),
    }
}

/// The kernels that the arguments name, or all that have code.
fn select(context: &Context, arguments: &Verify) -> Result<Vec<&'static Kernel>, Failure> {
    check_families(&arguments.family)?;
    let named = arguments
        .kernels
        .iter()
        .map(|name| zinc_contract::kernel(name))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some((kernel, reason)) = named
        .iter()
        .find_map(|kernel| Some((kernel, kernel.pending?)))
    {
        return Err(Failure::input(format!(
            "kernel {} has no code yet: {reason}",
            kernel.name
        )));
    }
    let candidates: Vec<&'static Kernel> = if named.is_empty() {
        zinc_contract::KERNELS
            .iter()
            .filter(|kernel| kernel.pending.is_none())
            .collect()
    } else {
        named
    };
    let selected: Vec<_> = candidates
        .into_iter()
        .filter(|kernel| {
            arguments.family.is_empty()
                || arguments
                    .family
                    .iter()
                    .any(|family| family == kernel.family)
        })
        .collect();
    for kernel in &selected {
        context.archive.kernel(kernel.name)?;
    }
    Ok(selected)
}

fn verify_kernel(
    context: &Context,
    kernel: &'static Kernel,
    arguments: &Verify,
    heavy: bool,
    target: &Target,
) -> Result<KernelReport, Failure> {
    let made = if heavy {
        zinc_oracle::cases(kernel)
    } else {
        zinc_oracle::light_cases(kernel)
    };
    let cases: Vec<Case> = made
        .or_check()?
        .into_iter()
        .filter(|case| {
            arguments
                .case
                .as_ref()
                .is_none_or(|text| case.label.contains(text))
        })
        .collect();
    let verdicts: Vec<Verdict> = cases
        .par_iter()
        .map(|case| verify_case(case, arguments, target))
        .collect();

    let image = target.image(context, kernel);
    let worst = verdicts
        .iter()
        .zip(&cases)
        .max_by(|(a, _), (b, _)| a.ratio.total_cmp(&b.ratio));
    Ok(KernelReport {
        name: kernel.name.to_owned(),
        target: image.as_ref().map(|entry| entry.target.to_string()),
        sha256: image.as_ref().map(|entry| entry.raw_hash.to_string()),
        cases: cases.len(),
        passed: verdicts
            .iter()
            .filter(|verdict| verdict.error.is_none())
            .count(),
        max_error_over_tolerance: worst.map_or(0.0, |(verdict, _)| verdict.ratio),
        worst_case: worst.map_or(String::new(), |(_, case)| case.label.clone()),
        failures: verdicts
            .into_iter()
            .zip(&cases)
            .filter_map(|(verdict, case)| {
                Some(CaseFailure {
                    case: case.label.clone(),
                    error: verdict.error?,
                })
            })
            .collect(),
    })
}

/// References and comparisons of several cases run in parallel; the device takes one case at a time.
fn verify_case(case: &Case, arguments: &Verify, target: &Target) -> Verdict {
    let failed = |error: String| Verdict {
        ratio: f64::MAX,
        error: Some(error),
    };
    let expected = match case.expect() {
        Ok(expected) => expected,
        Err(error) => return failed(format!("the reference failed: {error}")),
    };
    let outputs = match target.run_case(case) {
        Ok(outputs) => outputs,
        Err(error) => return failed(format!("{error:#}")),
    };
    for run in 2..=arguments.repeat {
        if let Err(error) = require_same(case, &outputs, target, &format!("run {run}"), false) {
            return failed(format!("{error:#}"));
        }
    }
    if arguments.same_bits
        && let Err(error) = require_same(case, &outputs, &Target::emulator(), "the emulator", true)
    {
        return failed(format!("{error:#}"));
    }
    let report = zinc_oracle::compare(
        case.kernel,
        &case.label,
        &case.contents(),
        &expected,
        &outputs,
    );
    Verdict {
        // JSON has no infinity.
        ratio: report.max_err_over_tol().min(f64::MAX),
        error: (!report.ok()).then(|| report.to_string()),
    }
}

/// Runs the case again, on `target`, and compares the bits of all buffers. Processors differ in the payload of a NaN that
/// they make, so `nan_is_nan` takes any two NaNs of an f32 buffer for the same.
fn require_same(
    case: &Case,
    first: &[Vec<u8>],
    target: &Target,
    again: &str,
    nan_is_nan: bool,
) -> anyhow::Result<()> {
    let outputs = target.run_case(case)?;
    for ((buffer, first), now) in case.kernel.buffers.iter().zip(first).zip(&outputs) {
        let any_nan = nan_is_nan && buffer.dtype == "f32";
        let differs = |(a, b): (&[u8], &[u8])| a != b && !(any_nan && is_nan(a) && is_nan(b));
        if let Some(word) = first.chunks(4).zip(now.chunks(4)).position(differs) {
            anyhow::bail!(
                "{again} gave other bits: buffer {}, byte {}: {:02x?} before, {:02x?} now",
                buffer.name,
                word * 4,
                &first[word * 4..][..4.min(first.len() - word * 4)],
                &now[word * 4..][..4.min(now.len() - word * 4)],
            );
        }
    }
    Ok(())
}

fn is_nan(bytes: &[u8]) -> bool {
    <[u8; 4]>::try_from(bytes).is_ok_and(|bytes| f32::from_le_bytes(bytes).is_nan())
}

fn progress(kernels: usize, quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    // indicatif draws on standard error, and only on a terminal.
    let bar = ProgressBar::new(kernels as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}

fn human(context: &Context, report: &Report) -> String {
    let mut table = Table::new(
        context.colour,
        &[
            ("kernel", Align::Left),
            ("image", Align::Left),
            ("cases", Align::Right),
            ("passed", Align::Right),
            ("error/tolerance", Align::Right),
            ("worst case", Align::Left),
        ],
    );
    for kernel in &report.kernels {
        let row = [
            kernel.name.clone(),
            kernel
                .target
                .clone()
                .unwrap_or_else(|| "emulator".to_owned()),
            kernel.cases.to_string(),
            kernel.passed.to_string(),
            output::ratio(kernel.max_error_over_tolerance),
            kernel.worst_case.clone(),
        ];
        if kernel.passed == kernel.cases {
            table.row(row)
        } else {
            table.bad_row(row)
        }
    }
    format!(
        "{table}\n{} kernels, {} of {} cases passed on {}\n",
        report.kernels.len(),
        report.passed,
        report.cases,
        report.device
    )
}
