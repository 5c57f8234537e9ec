//! `zinc-cubin bench`: what every kernel and the host side of a dispatch cost on this machine's GPU.

mod check;
mod data;
mod host;
mod measure;
mod page;
mod report;
mod shape;
mod table;

use indicatif::{ProgressBar, ProgressStyle};
use zinc_contract::Kernel;
use zinc_emulator::Emulator;

use crate::cli::Bench;
use crate::context::{Context, check_families};
use crate::failure::{Failure, OnDevice, Outcome};
use crate::target::{DeviceInfo, Layout, Target};

use check::Verdict;
use measure::{Gpu, Ran};
use report::{Report, RowReport};
use shape::{Row, Scale};

/// Timed replays of a row, and of one with `--quick`.
const REPLAYS: usize = 9;
const QUICK_REPLAYS: usize = 3;

/// Where the rows run.
enum Place {
    Gpu(Box<Gpu>),
    Emulator(Emulator),
}

/// Measures what the arguments select, and reports.
pub fn run(context: &Context, arguments: &Bench) -> Outcome {
    if arguments.first_result {
        return host::first_result(context, &arguments.device.device);
    }
    let named_host = arguments.kernels.iter().any(|name| name == HOST);
    let everything = arguments.kernels.is_empty()
        && arguments.filter.is_empty()
        && arguments.family.is_empty()
        && arguments.shape.is_none();
    let kernels = match arguments.kernels.iter().all(|name| name == HOST) && named_host {
        true => Vec::new(),
        false => select(context, arguments)?,
    };
    let (place, device) = open(context, arguments)?;
    let with_host = (named_host || everything) && matches!(place, Place::Gpu(_));
    let wanted = match place {
        Place::Gpu(_) => Scale::Model,
        Place::Emulator(_) => Scale::Test,
    };
    if !context.json {
        eprintln!("device: {device}");
    }
    let mut rows = Vec::new();
    for kernel in kernels {
        for shape in table::shapes(kernel) {
            let named = |text: &String| shape.label.contains(text);
            if shape.scale == wanted && arguments.shape.as_ref().is_none_or(named) {
                rows.push(Row::resolve(shape).or_check()?);
            }
        }
    }
    if rows.is_empty() && !with_host {
        return Err(Failure::input("no row matches"));
    }
    let mut report = Report::new(context, device);
    if let Place::Gpu(gpu) = &place {
        report.peak_tops = peak_tops(gpu.device.info());
        report.copy_gb_s = Some(gpu.copy_bandwidth().or_check()? / 1e9);
        // Before anything else keeps the processor busy.
        if with_host {
            report.host = Some(host::measure(context, gpu, &arguments.device.device).or_check()?);
        }
    }
    report.rows = measure_all(&place, &rows, report.copy_gb_s, context.json);
    report.finish(context, arguments)
}

/// What the tensor cores of a device do at most on f16 at its highest clock, in 10^12 operations per second: operations per
/// clock and multiprocessor from NVIDIA's architecture papers, without sparsity.
fn peak_tops(device: &zinc_runtime::DeviceInfo) -> Option<f64> {
    let per_clock = match (device.capability.major, device.capability.minor) {
        (8, 0) => 2048,
        (9, _) => 4096,
        (10, _) => 8192,
        (7 | 8 | 12, _) => 1024,
        _ => return None,
    };
    let clocks = f64::from(device.sm_count) * f64::from(device.sm_clock_khz) * 1e3;
    (device.sm_clock_khz > 0).then(|| f64::from(per_clock) * clocks / 1e12)
}

/// The word that names the host section among the kernels.
const HOST: &str = "host";

/// Times one row after the other; results are checked in the background meanwhile.
fn measure_all(place: &Place, rows: &[Row], copy: Option<f64>, quiet: bool) -> Vec<RowReport> {
    let progress = progress(rows.len(), quiet);
    let results: Vec<std::sync::OnceLock<RowReport>> =
        rows.iter().map(|_| std::sync::OnceLock::new()).collect();
    rayon::in_place_scope(|scope| {
        for (row, result) in rows.iter().zip(&results) {
            progress.set_message(format!("{} {}", row.kernel.name, row.shape.label));
            let ran = match place {
                Place::Gpu(gpu) => gpu.run(row),
                Place::Emulator(emulator) => measure::emulate(emulator, row),
            };
            progress.inc(1);
            match ran {
                Ok(ran) => scope.spawn(move |_| {
                    let Ran {
                        timing,
                        initial,
                        outputs,
                    } = ran;
                    let verdict = check::check(row, &initial, &outputs);
                    result.get_or_init(|| RowReport::new(row, Some(timing), verdict, copy));
                }),
                Err(error) => {
                    let verdict = Verdict::failed(format!("{error:#}"));
                    result.get_or_init(|| RowReport::new(row, None, verdict, copy));
                }
            }
        }
    });
    progress.finish_and_clear();
    results
        .into_iter()
        .filter_map(std::sync::OnceLock::into_inner)
        .collect()
}

/// The kernels that the arguments select.
fn select(context: &Context, arguments: &Bench) -> Result<Vec<&'static Kernel>, Failure> {
    check_families(&arguments.family)?;
    let mut selected = Vec::new();
    for name in arguments.kernels.iter().filter(|name| *name != HOST) {
        selected.push(zinc_contract::kernel(name)?);
    }
    if selected.is_empty() {
        selected.extend(zinc_contract::KERNELS.iter());
    }
    let any = |list: &[String], holds: &dyn Fn(&str) -> bool| {
        list.is_empty() || list.iter().any(|text| holds(text))
    };
    selected.retain(|kernel| {
        kernel.pending.is_none()
            && any(&arguments.filter, &|text| kernel.name.contains(text))
            && any(&arguments.family, &|text| kernel.family == text)
    });
    for kernel in &selected {
        context.archive.kernel(kernel.name)?;
    }
    Ok(selected)
}

fn open(context: &Context, arguments: &Bench) -> Result<(Place, DeviceInfo), Failure> {
    let target = Target::open(&arguments.device.device, context, Layout::Exact)?;
    let device = target.info();
    match target {
        Target::Cpu(_) if arguments.device.device == "auto" => {
            Err(Failure::NoDevice(anyhow::anyhow!(
                "there is no GPU to measure; --device cpu --quick runs small shapes on the emulator instead"
            )))
        }
        Target::Cpu(emulator) if arguments.quick => Ok((Place::Emulator(emulator), device)),
        Target::Cpu(_) => Err(Failure::input(
            "the emulator measures nothing; with --quick it runs small shapes and checks them",
        )),
        Target::Gpu(gpu) => {
            let (device_handle, queue) = gpu.into_parts();
            let gpu = Gpu {
                library: queue.library().clone(),
                device: device_handle,
                queue,
                replays: if arguments.quick {
                    QUICK_REPLAYS
                } else {
                    REPLAYS
                },
            };
            Ok((Place::Gpu(Box::new(gpu)), device))
        }
    }
}

fn progress(rows: usize, quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    // indicatif draws on standard error, and only on a terminal.
    let bar = ProgressBar::new(rows as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_real_and_test_rows_that_fit_its_contract() {
        for kernel in zinc_contract::KERNELS
            .iter()
            .filter(|k| k.pending.is_none())
        {
            let shapes = table::shapes(kernel);
            for scale in [Scale::Model, Scale::Test] {
                assert!(
                    shapes.iter().any(|shape| shape.scale == scale),
                    "{} has no {scale:?} row",
                    kernel.name
                );
            }
            let mut names = std::collections::BTreeSet::new();
            for shape in shapes {
                assert!(
                    names.insert((shape.label.clone(), shape.regime.name())),
                    "{}: two rows {:?}",
                    kernel.name,
                    shape.label
                );
                let row = Row::resolve(shape).unwrap_or_else(|error| panic!("{error}"));
                assert!(row.moved() > 0, "{} moves nothing", kernel.name);
                let cold = row.shape.regime == shape::Regime::Cold;
                if cold && row.shape.scale == Scale::Model {
                    // Fewer bytes than that fit the cache of a large GPU as often as a graph has dispatches.
                    let name = format!("{} {}", kernel.name, row.shape.label);
                    assert!(row.moved() >= 500_000, "{name} cannot be cold");
                }
                if let shape::Checked::Parts(_, parts) = &row.shape.checked {
                    for part in parts {
                        check_part(&row, part);
                    }
                }
            }
        }
    }

    /// tools/compare-llama, with these arguments.
    fn compare_llama(arguments: &[&str]) -> std::process::Output {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../compare-llama");
        let mut command = std::process::Command::new(script);
        command.args(arguments).output().unwrap()
    }

    #[test]
    fn every_row_that_is_compared_with_llama_is_in_the_table() {
        let listed = compare_llama(&["--list"]);
        assert!(listed.status.success(), "{listed:?}");
        let text = String::from_utf8(listed.stdout).unwrap();
        assert!(text.lines().count() > 50);
        for line in text.lines() {
            let [_, _, kernel, label, regime] = Vec::from_iter(line.split('\t'))[..] else {
                panic!("{line}");
            };
            let kernel = zinc_contract::kernel(kernel).unwrap();
            let found = table::shapes(kernel).iter().any(|shape| {
                let named = shape.label == label && shape.regime.name() == regime;
                named && shape.scale == Scale::Model
            });
            assert!(found, "no row {line:?}");
        }
    }

    #[test]
    fn comparison_with_llama_reads_its_times_and_fails_where_it_is_ahead() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
            folder.path().join(name).to_str().unwrap().to_owned()
        };
        file(
            "ggml.h",
            "enum ggml_type { GGML_TYPE_F32 = 0, GGML_TYPE_I32 = 26, }; enum ggml_op { GGML_OP_ADD, GGML_OP_SCALE, };",
        );
        // As the peer: one statement per case, 50 us each; the second case is not supported.
        let program = file(
            "test-backend-ops",
            "#!/bin/sh\nwhile read -r op rest; do name=${rest##* }; us=50.25; [ \"$op\" = 0 ] || us=0.0; ok=1; \
             [ \"$op\" = 0 ] || ok=0; echo \"INSERT INTO test_backend_ops (op_name, op_params, supported, time_us, \
             error_message) VALUES ('X', 'name=$name,type=f32', '$ok', '$us', 'not supported');\"; done < \"$3\"\n",
        );
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(program, executable).unwrap();
        let build = folder.path().to_str().unwrap();
        let compare = |us: f64, ok: bool| {
            let row = serde_json::json!({"kernel": "vadd", "shape": "4096x4096", "regime": "cold", "us": us, "check": {"ok": ok}});
            let bench = file(
                "bench.json",
                &serde_json::json!({ "rows": [row] }).to_string(),
            );
            let only = ["--only", "add 4096", "--only", "scale 4096", "--json"];
            let mut arguments = vec!["--build", build, "--bench-json", &bench];
            arguments.extend(only);
            let output = compare_llama(&arguments);
            let report = serde_json::from_slice::<serde_json::Value>(&output.stdout);
            (
                output.status.code(),
                report.unwrap_or_else(|_| panic!("{output:?}")),
            )
        };
        let (code, report) = compare(25.125, true);
        assert_eq!(code, Some(0));
        assert_eq!(
            (&report["rows"][0]["peer_us"], &report["rows"][0]["ratio"]),
            (&50.25.into(), &2.0.into())
        );
        assert_eq!(report["rows"][1]["peer_error"], "not supported");
        assert_eq!(compare(100.5, true).0, Some(1), "behind");
        let (code, report) = compare(1.0, false);
        assert_eq!(code, Some(1), "wrong results: {report}");
    }

    /// The parts of a result that a GPU row compares must be where the kernel puts them: here the emulator computes shapes
    /// that are just large enough to have parts.
    #[test]
    #[cfg_attr(debug_assertions, ignore = "slow without optimization")]
    fn parts_of_a_result_are_where_the_kernel_puts_them() {
        let emulator = Emulator::default();
        let mut kernels = std::collections::BTreeSet::new();
        for shape in table::with_parts() {
            let row = Row::resolve(shape).unwrap();
            let name = format!("{} {}", row.kernel.name, row.shape.label);
            assert!(
                matches!(row.shape.checked, shape::Checked::Parts(..)),
                "{name} is checked as a whole"
            );
            let ran = measure::emulate(&emulator, &row).unwrap();
            let verdict = check::check(&row, &ran.initial, &ran.outputs);
            assert!(verdict.ok, "{name}: {verdict:?}");
            assert!(verdict.values > 0, "{name} compares nothing");
            kernels.insert(row.kernel.name);
        }
        for kernel in zinc_contract::KERNELS {
            let parts = table::shapes(kernel)
                .iter()
                .any(|shape| matches!(shape.checked, shape::Checked::Parts(..)));
            assert!(
                !parts || kernels.contains(kernel.name),
                "no small shape with parts for {}",
                kernel.name
            );
        }
    }

    /// A part must fit the contract, too, and see only bytes that the buffers have.
    fn check_part(row: &Row, part: &shape::Part) {
        let name = format!("{} {}", row.kernel.name, row.shape.label);
        let (words, views) = row.part(part).unwrap_or_else(|error| panic!("{error}"));
        row.kernel
            .check_preconditions(&words)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        for (buffer, view) in row.buffers.iter().zip(&views) {
            let end = view.iter().map(|range| range.end).max().unwrap_or(0);
            assert!(end <= buffer.bytes, "{name}: {} ends at {end}", buffer.name);
        }
    }
}
