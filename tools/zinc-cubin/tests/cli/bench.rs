//! `bench` on the emulator: the table of shapes and the checks, without times that mean anything.

use serde_json::Value;

use crate::common::{WRONG_INPUT, end, program, run};

#[test]
fn every_kernel_gives_right_results_at_its_test_shapes() {
    let folder = tempfile::tempdir().unwrap();
    let (csv, html) = (
        folder.path().join("rows.csv"),
        folder.path().join("page.html"),
    );
    let mut command = program();
    let written = folder.path().join("report.json");
    command.args(["bench", "--device", "cpu", "--quick", "--json", "--csv"]);
    command
        .arg(&csv)
        .arg("--html")
        .arg(&html)
        .arg("--report")
        .arg(&written);
    let report = end(&mut command).json();
    let written: Value = serde_json::from_slice(&std::fs::read(written).unwrap()).unwrap();
    assert_eq!(report, written);
    assert_eq!(report["emulator"], true);
    assert_eq!(
        (&report["failed"], &report["copy_gb_s"]),
        (&Value::from(0), &Value::Null)
    );
    let rows = report["rows"].as_array().unwrap();
    for kernel in zinc_contract::KERNELS
        .iter()
        .filter(|k| k.pending.is_none())
    {
        let row = rows.iter().find(|row| row["kernel"] == kernel.name);
        let row = row.unwrap_or_else(|| panic!("no row for {}", kernel.name));
        assert_eq!(row["family"], kernel.family);
        assert_eq!(row["check"]["ok"], true, "{row}");
        assert!(row["check"]["values"].as_u64().unwrap() > 0, "{row}");
        assert!(row["us"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["bytes"].as_u64().unwrap() > 0, "{row}");
    }

    let csv = std::fs::read_to_string(csv).unwrap();
    assert_eq!(csv.lines().count(), rows.len() + 1);
    let html = std::fs::read_to_string(html).unwrap();
    assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"));
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    for family in rows.iter().map(|row| row["family"].as_str().unwrap()) {
        assert!(html.contains(&format!("<h2>{family}</h2>")), "{family}");
    }
    assert!(
        !html.contains("http") && !html.contains("<script"),
        "the page needs nothing else"
    );
}

#[test]
fn names_and_filters_select_kernels() {
    let kernels = |arguments: &[&str]| -> Vec<String> {
        let mut command = program();
        command.args(["bench", "--device", "cpu", "--quick", "--json"]);
        let report = end(command.args(arguments)).json();
        let rows = report["rows"].as_array().unwrap().clone();
        let names = rows
            .iter()
            .map(|row| row["kernel"].as_str().unwrap().to_owned());
        let mut names: Vec<String> = names.collect();
        names.dedup();
        names
    };
    assert_eq!(kernels(&["vadd"]), ["vadd"]);
    assert_eq!(
        kernels(&["--family", "rope"]),
        ["rope_batched", "rope_fused"]
    );
    assert_eq!(
        kernels(&["--filter", "geglu", "--family", "norm_act"]),
        ["geglu"]
    );
}

#[test]
fn what_cannot_be_measured_is_refused() {
    run(["bench", "--device", "cpu"]).refused(WRONG_INPUT, ["--quick"]);
    run(["bench", "--device", "cpu", "--quick", "vad"]).refused(WRONG_INPUT, ["vadd"]);
    run([
        "bench", "--device", "cpu", "--quick", "--family", "nonsense",
    ])
    .refused(WRONG_INPUT, ["unknown family"]);
    run([
        "bench", "--device", "cpu", "--quick", "vadd", "--filter", "swi",
    ])
    .refused(WRONG_INPUT, ["no row matches"]);
}
