//! `--device` and `doctor`: no driver, one that is too old, no device, one that no image fits, and a fake GPU.

use std::path::{Path, PathBuf};

use cubin_format::{
    Archive, ArchiveBuilder, Capability, Digest, Metadata, NewKernel, NewTarget, Payload, Resources,
};
use serde_json::json;
use tempfile::TempDir;

use crate::common::{
    CHECK_FAILED, File, NO_DEVICE, WRONG_INPUT, end, fixture_path, names, on_driver, program,
};

/// The fake driver's image of vadd, and one of another kernel, which it launches but does not compute.
const VADD: &str = "FAKE vadd pointers=3 push=4";
const SWIGLU: &str = "FAKE swiglu pointers=3 push=4";

/// The commands that run something; each would write to `out`.
fn commands(device: &str, out: &Path) -> [Vec<String>; 2] {
    let out = out.to_str().unwrap();
    let fixture = fixture_path("vadd");
    let words = |words: &[&str]| Vec::from_iter(words.iter().map(|word| (*word).to_owned()));
    [
        words(&[
            "run",
            "--device",
            device,
            "--fixture",
            fixture.to_str().unwrap(),
            "--out",
            out,
        ]),
        words(&["verify", "--device", device, "vadd", "--report", out]),
    ]
}

/// Both commands end with "no device" and these texts, and leave nothing behind.
#[track_caller]
fn no_device(make: impl Fn() -> std::process::Command, device: &str, texts: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    for arguments in commands(device, &folder.path().join("out")) {
        end(make().args(arguments)).refused(NO_DEVICE, texts);
    }
    assert!(names(folder.path()).is_empty());
}

#[test]
fn gpu_without_a_driver_is_no_device_and_names_what_was_tried() {
    for device in ["gpu", "gpu:0"] {
        no_device(
            program,
            device,
            &["no NVIDIA driver", "/nowhere/libcuda.so.1", "likely cause"],
        );
    }
}

#[test]
fn auto_without_a_driver_is_the_emulator_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let [run, verify] = commands("auto", &folder.path().join("out"));
    let ended = end(program().args(&run));
    assert!(ended.good().contains("device: emulator"), "{ended:?}");
    assert_eq!(
        end(program().args(&run).arg("--json")).json()["device"]["kind"],
        "cpu"
    );
    let ended = end(program().args(&verify));
    assert!(ended.good().contains("on emulator"), "{ended:?}");
    assert!(ended.stderr.contains("device: emulator"), "{ended:?}");
}

#[test]
fn driver_older_than_the_compiler_asks_for_is_refused_with_both_versions() {
    for device in ["gpu", "auto"] {
        no_device(
            || on_driver("version=12080"),
            device,
            &["12.8", "13.0", "update the driver"],
        );
    }
    let ended = end(on_driver("version=12080").args(["doctor", "--json"]));
    ended.failed(NO_DEVICE, ["12.8"]);
    let driver = &ended.object()["driver"];
    assert_eq!(driver["usable"], false);
    assert_eq!(driver["cuda_version"], "12.8");
    assert_eq!(driver["minimum_cuda_version"], "13.0");
}

#[test]
fn driver_without_a_device_is_no_device_and_auto_is_the_emulator() {
    no_device(|| on_driver("devices=0"), "gpu", &["CUDA_ERROR_NO_DEVICE"]);
    let folder = tempfile::tempdir().unwrap();
    let [run, _] = commands("auto", &folder.path().join("out"));
    let ended = end(on_driver("devices=0").args(&run).arg("--json"));
    assert_eq!(ended.json()["device"]["kind"], "cpu");
    end(on_driver("devices=0").arg("doctor")).failed(NO_DEVICE, ["CUDA_ERROR_NO_DEVICE"]);
}

#[test]
fn device_that_no_image_fits_is_refused_with_its_capability_and_what_is_embedded() {
    let archive = zinc_cuda::archive().unwrap();
    let kernel = &archive.kernels()[0];
    let embedded = kernel.targets[0].target.to_string();
    for device in ["gpu", "auto", "gpu:0"] {
        no_device(|| on_driver("capability=50"), device, &["5.0", &embedded]);
    }
    let ended = end(on_driver("capability=50").args(["doctor", "--json"]));
    ended.failed(NO_DEVICE, ["5.0", &embedded]);
    let device = &ended.object()["devices"][0];
    assert_eq!(device["capability"], "5.0");
    let all = archive.kernels().iter().map(|kernel| kernel.name.as_str());
    assert_eq!(device["missing"], json!(Vec::from_iter(all)));
    assert_eq!(device["loads"], json!({}));
}

#[test]
fn ordinal_that_does_not_exist_is_no_device_with_what_there_is() {
    no_device(|| on_driver("devices=2"), "gpu:7", &["7", "0 (", "1 ("]);
}

#[test]
fn text_that_is_no_device_is_wrong_input() {
    let folder = tempfile::tempdir().unwrap();
    for device in ["cuda", "gpu:", "gpu:first", "cpu:0", ""] {
        for arguments in commands(device, &folder.path().join("out")) {
            end(program().args(arguments)).refused(WRONG_INPUT, [format!("device {device:?}")]);
        }
    }
    assert!(names(folder.path()).is_empty());
}

#[test]
fn doctor_without_a_driver_reports_and_ends_with_no_device() {
    let ended = end(program().args(["doctor", "--json"]));
    ended.failed(NO_DEVICE, ["/nowhere/libcuda.so.1"]);
    let report = ended.object();
    let archive = zinc_cuda::archive().unwrap();
    assert_eq!(report["archive"]["kernels"], archive.kernels().len());
    assert_eq!(report["driver"]["usable"], false);
    assert_eq!(
        report["driver"]["tried"][0]["place"],
        "/nowhere/libcuda.so.1"
    );
    assert_eq!(report["devices"], json!([]));
    assert_eq!(report["emulator_kernels"], zinc_emulator::kernels().len());
    let text = end(program().arg("doctor"));
    text.failed(NO_DEVICE, ["/nowhere/libcuda.so.1"]);
    assert!(text.stdout.contains("none that can be used"), "{text:?}");
}

#[test]
fn doctor_says_what_each_device_would_load() {
    let archive = zinc_cuda::archive().unwrap();
    let mut wanted = std::collections::BTreeMap::<String, usize>::new();
    for kernel in archive.kernels() {
        let entry = kernel.choose(Capability::new(12, 0)).unwrap();
        *wanted.entry(entry.target.to_string()).or_default() += 1;
    }
    let report = end(on_driver("devices=2,capability=120").args(["doctor", "--json"])).json();
    let devices = report["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 2);
    for (ordinal, device) in devices.iter().enumerate() {
        assert_eq!(device["ordinal"], ordinal);
        assert_eq!(device["capability"], "12.0");
        assert_eq!(device["loads"], json!(wanted));
        assert_eq!(device["missing"], json!([]));
    }
    let chosen = devices.iter().filter(|device| device["chosen"] == true);
    assert_eq!(chosen.count(), 1);
}

/// An archive for the fake driver in a folder of its own.
struct Fake {
    folder: TempDir,
    path: PathBuf,
}

impl Fake {
    fn new(images: &[(&str, &str)]) -> Self {
        let mut builder = ArchiveBuilder::new(Metadata::default());
        for (name, image) in images {
            builder.push(NewKernel {
                name: (*name).to_owned(),
                family: zinc_contract::kernel(name).unwrap().family.to_owned(),
                entry: (*name).to_owned(),
                targets: vec![NewTarget {
                    target: "sm_90".parse().unwrap(),
                    resources: Resources::default(),
                    compiler: String::new(),
                    payload: Payload::compress(format!("{image}\0").as_bytes()).unwrap(),
                }],
                ..NewKernel::default()
            });
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fake.zca");
        let bytes = builder.finish().unwrap();
        assert!(Archive::open(&bytes).is_ok());
        std::fs::write(&path, bytes).unwrap();
        Self { folder, path }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    fn command(&self) -> std::process::Command {
        let mut command = on_driver("capability=90");
        command.arg("--archive").arg(&self.path);
        command
    }
}

#[test]
fn gpu_runs_verifies_and_is_named_in_reports() {
    let fake = Fake::new(&[("vadd", VADD)]);
    for device in ["gpu", "gpu:0", "auto"] {
        let [run, verify] = commands(device, &fake.out());
        let report = end(fake.command().args(run).arg("--json")).json();
        assert_eq!(report["ok"], true);
        assert_eq!(report["device"]["kind"], "gpu");
        assert_eq!(report["device"]["capability"], "9.0");
        let written = File::read(&fake.out());
        let wanted = File::fixture("vadd").tensors["expect.c"].1.clone();
        assert_eq!(written.tensors["buffer.c"].1, wanted);

        let report = end(fake.command().args(verify).arg("--json")).json();
        let kernel = &report["kernels"][0];
        assert_eq!(report["device"]["kind"], "gpu");
        assert_eq!(kernel["target"], "sm_90");
        let hash = Digest::of(format!("{VADD}\0").as_bytes()).to_string();
        assert_eq!(kernel["sha256"], hash);
        let cases = zinc_oracle::cases(zinc_contract::kernel("vadd").unwrap()).unwrap();
        assert_eq!(kernel["cases"], cases.len());
        assert_eq!(kernel["passed"], cases.len());
    }
}

#[test]
fn kernel_that_computes_nothing_fails_the_check_and_the_report_says_where() {
    let fake = Fake::new(&[("swiglu", SWIGLU)]);
    let out = fake.out();
    let mut verify = fake.command();
    verify.args(["verify", "swiglu", "--light", "--device", "gpu", "--report"]);
    let ended = end(verify.arg(&out));
    ended.failed(CHECK_FAILED, ["cases failed", "swiglu ["]);
    let report = std::fs::read(&out).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    let kernel = &report["kernels"][0];
    let (cases, passed) = (
        kernel["cases"].as_u64().unwrap(),
        kernel["passed"].as_u64().unwrap(),
    );
    let failures = kernel["failures"].as_array().unwrap();
    assert!(passed < cases);
    assert_eq!(failures.len() as u64, cases - passed);
    assert!(
        failures
            .iter()
            .all(|failure| failure["error"].as_str().unwrap() != "")
    );

    let fixture = fixture_path("swiglu");
    let mut run = fake.command();
    run.args(["run", "--device", "gpu", "--fixture"])
        .arg(fixture);
    end(&mut run).failed(CHECK_FAILED, ["1 of 1 results are wrong"]);
}

#[test]
fn image_that_does_not_load_fails_with_the_drivers_log() {
    let fake = Fake::new(&[("vadd", "JUNK")]);
    let [run, _] = commands("gpu", &fake.out());
    end(fake.command().args(run)).refused(
        CHECK_FAILED,
        ["vadd", "sm_90", "CUDA_ERROR_INVALID_PTX", "fake assembler"],
    );
    assert_eq!(names(fake.folder.path()), ["fake.zca"]);
}

#[test]
fn image_with_other_parameters_than_the_contract_is_not_launched() {
    for image in ["FAKE vadd pointers=2 push=4", "FAKE vadd pointers=3 push=8"] {
        let fake = Fake::new(&[("vadd", image)]);
        let [run, _] = commands("gpu", &fake.out());
        end(fake.command().args(run)).refused(CHECK_FAILED, ["vadd", "sm_90"]);
        assert_eq!(names(fake.folder.path()), ["fake.zca"]);
    }
}

#[test]
fn kernel_that_the_archive_lacks_is_wrong_input() {
    let fake = Fake::new(&[("swiglu", SWIGLU)]);
    for arguments in commands("gpu", &fake.out()) {
        end(fake.command().args(arguments)).refused(WRONG_INPUT, ["\"vadd\"", "archive"]);
    }
    assert_eq!(names(fake.folder.path()), ["fake.zca"]);
}

#[test]
fn bench_times_and_checks_rows_on_a_gpu_and_measures_the_host_side() {
    let fake = Fake::new(&[("vadd", VADD)]);
    let mut command = fake.command();
    command.args([
        "bench", "vadd", "host", "--shape", "1x2048", "--device", "gpu", "--json",
    ]);
    let report = end(&mut command).json();
    assert_eq!(
        (&report["emulator"], &report["failed"]),
        (&json!(false), &json!(0))
    );
    assert!(report["copy_gb_s"].as_f64().unwrap() > 0.0);
    let [row] = report["rows"].as_array().unwrap().as_slice() else {
        panic!("{report}");
    };
    assert_eq!(
        (&row["kernel"], &row["regime"]),
        (&json!("vadd"), &json!("warm"))
    );
    assert_eq!(row["bytes"], 3 * 2048 * 4);
    assert_eq!(row["check"]["values"], 2048);
    assert!(
        row["us"].as_f64().unwrap() > 0.0 && row["replays"].as_u64().unwrap() > 1,
        "{row}"
    );
    let host = &report["host"];
    assert_eq!(host["dispatch"].as_array().unwrap().len(), 6);
    assert_eq!(host["dispatch"][0]["of_raw"], 1.0);
    for time in ["load_all_ms", "load_one_ms", "first_result_ms", "list_ms"] {
        assert!(host[time].as_f64().unwrap() > 0.0, "{time} of {host}");
    }
    assert!(host["driver_ms"].as_f64() < host["first_result_ms"].as_f64());
}

#[test]
fn bench_of_a_kernel_that_computes_nothing_fails_and_says_which_row() {
    let fake = Fake::new(&[("swiglu", SWIGLU)]);
    let mut command = fake.command();
    command.args(["bench", "swiglu", "--shape", "1x2048", "--device", "gpu"]);
    let ended = end(&mut command);
    ended.failed(CHECK_FAILED, ["1 of 1 rows failed"]);
    assert!(ended.stdout.contains("WRONG") && ended.stdout.contains("swiglu [1x2048, warm]"));
}

#[test]
fn bench_without_a_gpu_is_no_device() {
    end(program().args(["bench", "vadd"])).refused(NO_DEVICE, ["there is no GPU to measure"]);
    end(program().args(["bench", "--device", "gpu"])).refused(NO_DEVICE, ["no NVIDIA driver"]);
}
