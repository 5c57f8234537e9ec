//! `verify` on the emulator and `verify --static`.

use std::path::Path;

use serde_json::{Value, json};

use crate::common::{WRONG_INPUT, end, names, program, run};

const KERNELS: [&str; 4] = ["argmax", "deinterleave", "rms_norm_mul", "vadd"];

#[test]
fn verification_on_the_emulator_passes_and_reports_every_case() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("report.json");
    let mut command = program();
    command.args(["verify", "--device", "cpu", "--json", "--report"]);
    let printed = end(command.arg(&out).args(KERNELS)).json();
    let written: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    assert_eq!(printed, written);
    assert_eq!(names(folder.path()), ["report.json"]);

    let archive = zinc_cuda::archive().unwrap();
    assert_eq!(written["compiler"], archive.metadata().compiler);
    assert_eq!(
        written["source_hash"],
        archive.metadata().source_hash.to_string()
    );
    assert_eq!(written["device"]["kind"], "cpu");
    let mut all = 0;
    for (report, name) in written["kernels"].as_array().unwrap().iter().zip(KERNELS) {
        let kernel = zinc_contract::kernel(name).unwrap();
        let cases = zinc_oracle::light_cases(kernel).unwrap().len();
        all += cases;
        assert_eq!(report["name"], name);
        // Nothing on the emulator attests what was compiled for a GPU.
        assert_eq!(
            (&report["target"], &report["sha256"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(
            (&report["cases"], &report["passed"]),
            (&json!(cases), &json!(cases))
        );
        let error = report["max_error_over_tolerance"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&error), "{report}");
        assert_eq!(report["failures"], Value::Null);
    }
    assert_eq!(
        (&written["cases"], &written["passed"]),
        (&json!(all), &json!(all))
    );
}

#[test]
fn result_for_people_counts_cases_and_names_the_device() {
    let ended = run(["verify", "--device", "cpu", "vadd"]);
    let cases = zinc_oracle::light_cases(zinc_contract::kernel("vadd").unwrap());
    let cases = cases.unwrap().len();
    let summary = format!("1 kernels, {cases} of {cases} cases passed on emulator");
    assert!(ended.good().contains(&summary), "{ended:?}");
    assert!(ended.stderr.contains("device: emulator"), "{ended:?}");
}

#[test]
fn selection_of_cases_runs_those_and_no_others() {
    let report = run([
        "verify", "--device", "cpu", "--json", "vadd", "--case", "n = 5",
    ])
    .json();
    let kernel = zinc_contract::kernel("vadd").unwrap();
    let cases = zinc_oracle::light_cases(kernel).unwrap();
    let wanted = cases.iter().filter(|case| case.label.contains("n = 5"));
    assert_eq!(report["cases"], wanted.count());
}

#[test]
fn verification_of_nothing_is_refused_and_writes_no_report() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("report.json");
    for arguments in [
        ["vadd", "--case", "no such case"].as_slice(),
        &["vadd", "--family", "rope"],
    ] {
        let mut command = program();
        command.args(["verify", "--device", "cpu", "--report"]);
        end(command.arg(&out).args(arguments)).refused(WRONG_INPUT, ["no case matches"]);
    }
    assert!(names(folder.path()).is_empty());
    run(["verify", "--static", "vadd", "--family", "rope"])
        .refused(WRONG_INPUT, ["nothing to check"]);
}

#[test]
fn report_that_can_not_be_written_is_named() {
    let path = Path::new("/nowhere/report.json");
    let mut command = program();
    command.args([
        "verify", "--device", "cpu", "vadd", "--case", "n = 5", "--report",
    ]);
    end(command.arg(path)).refused(WRONG_INPUT, ["/nowhere/report.json"]);
}

#[test]
fn static_verification_checks_every_image() {
    let archive = zinc_cuda::archive().unwrap();
    let images: usize = archive
        .kernels()
        .iter()
        .map(|kernel| kernel.targets.len())
        .sum();
    let report = run(["verify", "--static", "--json"]).json();
    let wanted = json!({
        "archive": "embedded",
        "kernels": archive.kernels().len(),
        "images": images,
        "failures": [],
    });
    assert_eq!(report, wanted);
    let text = run(["verify", "--static"]);
    let summary = format!("{images} images checked without a device, 0 wrong");
    assert!(text.good().contains(&summary), "{text:?}");
    let one = run(["verify", "--static", "--json", "vadd"]).json();
    assert_eq!(one["images"], archive.kernel("vadd").unwrap().targets.len());
}

#[test]
fn static_verification_takes_no_options_of_a_run() {
    for option in ["--heavy", "--light"] {
        run(["verify", "--static", option]).refused(WRONG_INPUT, ["cannot be used with"]);
    }
}
