//! `zinc-cubin run`: one kernel on a fixture, or on tensors of a GGUF model, compared with the reference.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use zinc_contract::{Kernel, Scalar};
use zinc_gguf::{Gguf, TensorView};
use zinc_oracle::fixture::{self, Fixture};
use zinc_oracle::{Case, CaseBuffer, Rng};

use super::export::write_whole;
use crate::cli::Run;
use crate::context::Context;
use crate::failure::{Failure, OnDevice, Outcome};
use crate::output::{self, Align, Table};
use crate::target::{DeviceInfo, Layout, Target};

/// The fields of the kernels that multiply one matrix with one vector: what a GGUF tensor can be given to.
const MATRIX_VECTOR_FIELDS: [&str; 6] = ["m", "k", "a_offset", "x_offset", "y_offset", "acc_mode"];

#[derive(Serialize)]
struct Report {
    device: DeviceInfo,
    ok: bool,
    runs: Vec<RunReport>,
}

#[derive(Serialize)]
struct RunReport {
    kernel: &'static str,
    /// The fixture's file, or the tensor's name.
    input: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensor_type: Option<&'static str>,
    /// The fields that the kernel got.
    fields: serde_json::Map<String, serde_json::Value>,
    ok: bool,
    comparison: zinc_oracle::Report,
    max_error: f64,
    max_error_over_tolerance: f64,
    seconds: f64,
    /// What the contract's buffers hold, each counted once.
    bytes: u64,
    gigabytes_per_second: f64,
}

/// Runs what the arguments ask for.
pub fn run(context: &Context, arguments: &Run) -> Outcome {
    let wanted = arguments.kernel.as_deref().map(implemented).transpose()?;
    let (runs, device) = match (&arguments.fixture, &arguments.gguf) {
        (Some(path), _) => run_fixture(context, arguments, wanted, path)?,
        (None, Some(path)) => run_tensors(context, arguments, wanted, path)?,
        (None, None) => return Err(Failure::input("wanted --fixture or --gguf")),
    };
    let report = Report {
        device,
        ok: runs.iter().all(|run| run.ok),
        runs,
    };
    if context.json {
        output::json(&report)?;
    } else {
        output::text(&human(context, &report))?;
    }
    match report.runs.iter().filter(|run| !run.ok).count() {
        0 => Ok(()),
        wrong => Err(Failure::check(format!(
            "{wrong} of {} results are wrong",
            report.runs.len()
        ))),
    }
}

/// The kernel of this name, if it has code.
fn implemented(name: &str) -> Result<&'static Kernel, Failure> {
    let kernel = zinc_contract::kernel(name)?;
    match kernel.pending {
        Some(reason) => Err(Failure::input(format!(
            "kernel {name} has no code yet: {reason}"
        ))),
        None => Ok(kernel),
    }
}

fn run_fixture(
    context: &Context,
    arguments: &Run,
    wanted: Option<&'static Kernel>,
    path: &Path,
) -> Result<(Vec<RunReport>, DeviceInfo), Failure> {
    let input = || format!("fixture {}", path.display());
    let bytes = std::fs::read(path).with_context(input)?;
    let fixture = fixture::read(&bytes, zinc_contract::kernel).with_context(input)?;
    let kernel = implemented(fixture.kernel.name)?;
    if let Some(wanted) = wanted.filter(|wanted| wanted.name != kernel.name) {
        return Err(Failure::input(format!(
            "{} is for kernel {}, wanted {}",
            input(),
            kernel.name,
            wanted.name
        )));
    }
    let case = Case {
        kernel,
        label: path.display().to_string(),
        words: fixture.words.clone(),
        buffers: fixture
            .buffers
            .iter()
            .map(|tensor| owned(tensor.bytes.clone()))
            .collect(),
        heavy: false,
    };
    check(&case)?;
    let target = open(context, arguments, &[kernel])?;
    let (outputs, time) = target.time_case(&case, arguments.repeat).or_check()?;
    let comparison = fixture::compare(&fixture, &outputs);
    write_outputs(arguments, &fixture, &outputs)?;
    let report = report(&case, path.display().to_string(), None, comparison, time);
    Ok((vec![report], target.info()))
}

fn run_tensors(
    context: &Context,
    arguments: &Run,
    wanted: Option<&'static Kernel>,
    path: &Path,
) -> Result<(Vec<RunReport>, DeviceInfo), Failure> {
    let model = Gguf::open(path)?;
    let tensors = match &arguments.tensor {
        Some(name) => vec![model.tensor(name)?],
        None => smallest_of_each_type(&model)?,
    };
    let cases = tensors
        .iter()
        .map(|tensor| tensor_case(tensor, wanted, arguments.seed))
        .collect::<Result<Vec<_>, _>>()?;
    let kernels: Vec<_> = cases.iter().map(|case| case.kernel).collect();
    let target = open(context, arguments, &kernels)?;
    let mut reports = Vec::new();
    for (tensor, case) in tensors.iter().zip(&cases) {
        check(case)?;
        let expected = case.expect()?;
        let (outputs, time) = target.time_case(case, arguments.repeat).or_check()?;
        let comparison = zinc_oracle::compare(
            case.kernel,
            &case.label,
            &case.contents(),
            &expected,
            &outputs,
        );
        write_outputs(arguments, &as_fixture(case), &outputs)?;
        let name = tensor.name.to_owned();
        reports.push(report(
            case,
            name,
            Some(tensor.kind.name()),
            comparison,
            time,
        ));
    }
    Ok((reports, target.info()))
}

/// Opens the device; a GPU needs the kernels' images.
fn open(context: &Context, arguments: &Run, kernels: &[&Kernel]) -> Result<Target, Failure> {
    let target = Target::open(&arguments.device.device, context, Layout::Guarded)?;
    if target.info().is_gpu() {
        for kernel in kernels {
            context.archive.kernel(kernel.name)?;
        }
    }
    Ok(target)
}

/// Refuses what the contract forbids before a device is opened.
fn check(case: &Case) -> Result<(), Failure> {
    // Made-up addresses, far apart and aligned: the device's own are checked again at the dispatch.
    let bindings: Vec<_> = (1u64..)
        .zip(&case.buffers)
        .map(|(place, buffer)| zinc_contract::Binding {
            address: place << 44,
            bytes: buffer.bytes.len() as u64,
        })
        .collect();
    Ok(case.kernel.check(&case.words, &bindings)?)
}

/// The smallest matrix of each type that has a kernel, in the file's order.
fn smallest_of_each_type(model: &Gguf) -> Result<Vec<TensorView<'_>>, Failure> {
    let mut smallest: Vec<TensorView<'_>> = Vec::new();
    for view in model.views() {
        let tensor = &view;
        if tensor.rows() < 2 || matrix_vector_kernel(tensor.kind.name()).is_none() {
            continue;
        }
        match smallest.iter_mut().find(|other| other.kind == tensor.kind) {
            Some(other) if view.bytes.len() < other.bytes.len() => *other = view,
            Some(_) => {}
            None => smallest.push(view),
        }
    }
    if smallest.is_empty() {
        return Err(Failure::input(
            "no matrix of the file has a type that a kernel reads",
        ));
    }
    Ok(smallest)
}

/// The kernel that multiplies a matrix of this type with an f32 vector: the plain one of those with its fields.
fn matrix_vector_kernel(type_name: &str) -> Option<&'static Kernel> {
    zinc_contract::KERNELS
        .iter()
        .filter(|kernel| kernel.pending.is_none() && takes_matrix(kernel, type_name))
        .min_by_key(|kernel| kernel.name.len())
}

fn takes_matrix(kernel: &Kernel, type_name: &str) -> bool {
    kernel
        .fields
        .iter()
        .map(|field| field.name)
        .eq(MATRIX_VECTOR_FIELDS)
        && matches!(kernel.buffers, [weights, x, _y] if weights.dtype.eq_ignore_ascii_case(type_name) && x.dtype == "f32")
}

fn tensor_case(
    tensor: &TensorView<'_>,
    wanted: Option<&'static Kernel>,
    seed: u64,
) -> Result<Case, Failure> {
    let description = tensor;
    let type_name = description.kind.name();
    let kernel = match wanted {
        Some(kernel) if takes_matrix(kernel, type_name) => kernel,
        Some(kernel) => {
            return Err(Failure::input(format!(
                "kernel {} does not multiply a {type_name} matrix with a vector",
                kernel.name
            )));
        }
        None => matrix_vector_kernel(type_name).ok_or_else(|| {
            Failure::input(format!(
                "no kernel multiplies a {type_name} matrix (tensor {}) with a vector",
                description.name
            ))
        })?,
    };
    let (rows, columns) = (
        u32::try_from(description.rows())?,
        u32::try_from(description.columns())?,
    );
    let words = kernel.words_by_name(&[
        ("m", rows),
        ("k", columns),
        ("a_offset", 0),
        ("x_offset", 0),
        ("y_offset", 0),
        ("acc_mode", 0),
    ])?;
    let x = Rng::new(seed).normals(columns as usize, 1.0);
    Ok(Case {
        kernel,
        label: description.name.to_owned(),
        words: words.to_vec(),
        buffers: vec![
            owned(tensor.bytes.to_vec()),
            owned(x.iter().flat_map(|value| value.to_le_bytes()).collect()),
            owned(f32::NAN.to_le_bytes().repeat(rows as usize)),
        ],
        heavy: false,
    })
}

fn owned(bytes: Vec<u8>) -> CaseBuffer {
    CaseBuffer {
        bytes,
        alias_of: None,
    }
}

/// The case as a fixture without expectations, to write its buffers.
fn as_fixture(case: &Case) -> Fixture {
    let element = |dtype: &str| match dtype {
        "f32" => fixture::ElementType::F32,
        "u32" => fixture::ElementType::U32,
        _ => fixture::ElementType::U8,
    };
    Fixture {
        kernel: case.kernel,
        words: case.words.clone(),
        buffers: case
            .buffers
            .iter()
            .zip(case.kernel.buffers)
            .map(|(buffer, contract)| fixture::Tensor {
                element: element(contract.dtype),
                bytes: buffer.bytes.clone(),
            })
            .collect(),
        expect: vec![None; case.buffers.len()],
        rules: fixture::Rules::default(),
        note: String::new(),
    }
}

fn write_outputs(arguments: &Run, fixture: &Fixture, outputs: &[Vec<u8>]) -> Result<(), Failure> {
    if let Some(path) = &arguments.out {
        let bytes = fixture::write_outputs(fixture, outputs)?;
        write_whole(path, &bytes).with_context(|| format!("can't write {}", path.display()))?;
    }
    Ok(())
}

fn report(
    case: &Case,
    input: String,
    tensor_type: Option<&'static str>,
    comparison: zinc_oracle::Report,
    time: Duration,
) -> RunReport {
    let bytes: u64 = case
        .buffers
        .iter()
        .map(|buffer| buffer.bytes.len() as u64)
        .sum();
    let seconds = time.as_secs_f64();
    // JSON has no infinity.
    let largest = |value: fn(&zinc_oracle::BufferReport) -> f64| {
        comparison
            .buffers
            .iter()
            .map(value)
            .fold(0.0, f64::max)
            .min(f64::MAX)
    };
    RunReport {
        kernel: case.kernel.name,
        input,
        tensor_type,
        fields: case
            .kernel
            .fields
            .iter()
            .zip(&case.words)
            .map(|(field, word)| {
                let value = match field.scalar {
                    Scalar::U32 => (*word).into(),
                    Scalar::F32 => f32::from_bits(*word).into(),
                };
                (field.name.to_owned(), value)
            })
            .collect(),
        ok: comparison.ok(),
        max_error: largest(|buffer| buffer.max_abs_err),
        max_error_over_tolerance: largest(|buffer| buffer.max_err_over_tol),
        comparison,
        seconds,
        bytes,
        gigabytes_per_second: if seconds > 0.0 {
            bytes as f64 / seconds / 1e9
        } else {
            0.0
        },
    }
}

fn human(context: &Context, report: &Report) -> String {
    let mut table = Table::new(
        context.colour,
        &[
            ("kernel", Align::Left),
            ("input", Align::Left),
            ("type", Align::Left),
            ("result", Align::Left),
            ("max error", Align::Right),
            ("of tolerance", Align::Right),
            ("µs", Align::Right),
            ("GB/s", Align::Right),
        ],
    );
    let mut details = String::new();
    for run in &report.runs {
        let row = [
            run.kernel.to_owned(),
            run.input.clone(),
            run.tensor_type.unwrap_or("-").to_owned(),
            if run.ok { "ok" } else { "WRONG" }.to_owned(),
            format!("{:.2e}", run.max_error),
            output::ratio(run.max_error_over_tolerance),
            format!("{:.1}", run.seconds * 1e6),
            format!("{:.2}", run.gigabytes_per_second),
        ];
        if run.ok {
            table.row(row);
        } else {
            table.bad_row(row);
            details.push_str(&format!("{}\n", run.comparison));
        }
    }
    format!("{table}{details}device: {}\n", report.device)
}
