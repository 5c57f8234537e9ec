//! `run --gguf`: good files, and every way in which one is damaged.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use zinc_gguf::TensorType;
use zinc_gguf::writer::{NewValue, Writer};
use zinc_oracle::Rng;
use zinc_oracle::quant::Format;

use crate::common::{Ended, WRONG_INPUT, end, names, program, run};

const COLUMNS: u64 = 512;
const ROWS: u64 = 5;
/// Positions in every file: after the magic come version and tensor count.
const AT_TENSORS: usize = 8;

/// A model with a matrix of two types that kernels read, and one that none reads.
fn model() -> Writer {
    let blocks = |format: Format, kind: TensorType| {
        let count = ROWS * COLUMNS / kind.block_elements();
        format.random_blocks(&mut Rng::new(7), count as usize, false)
    };
    let other = TensorType::Iq2Xxs;
    let other_bytes = other.row_bytes(COLUMNS).unwrap() * ROWS;
    Writer::default()
        .with("general.architecture", NewValue::String("test".to_owned()))
        .with_tensor(
            "first",
            &[COLUMNS, ROWS],
            TensorType::Q4K,
            &blocks(Format::Q4K, TensorType::Q4K),
        )
        .with_tensor(
            "second",
            &[COLUMNS, ROWS],
            TensorType::Q8_0,
            &blocks(Format::Q8_0, TensorType::Q8_0),
        )
        .with_tensor(
            "other",
            &[COLUMNS, ROWS],
            other,
            &vec![0; other_bytes as usize],
        )
}

/// A model file in a folder of its own.
struct Model {
    folder: TempDir,
    path: PathBuf,
}

impl Model {
    fn new(bytes: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        std::fs::write(&path, bytes).unwrap();
        Self { folder, path }
    }

    fn command(&self, arguments: &[&str]) -> Ended {
        let mut command = program();
        command.args([
            "run", "--device", "cpu", "--repeat", "1", "--json", "--gguf",
        ]);
        end(command.arg(&self.path).args(arguments))
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out.safetensors")
    }

    /// Every way to use the file is refused with these texts and leaves no file behind.
    #[track_caller]
    fn refused(&self, texts: &[&str]) {
        self.command(&["--each-type"]).refused(WRONG_INPUT, texts);
        let out = self.out();
        let arguments = ["--tensor", "first", "--out", out.to_str().unwrap()];
        self.command(&arguments).refused(WRONG_INPUT, texts);
        assert_eq!(names(self.folder.path()), ["model.gguf"]);
    }
}

#[test]
fn tensor_is_multiplied_and_its_buffers_are_written() {
    let model = Model::new(&model().bytes());
    let out = model.out();
    let report = model
        .command(&["--tensor", "second", "--out", out.to_str().unwrap()])
        .json();
    assert_eq!(report["ok"], true);
    let run = &report["runs"][0];
    assert_eq!(run["kernel"], "dmmv_q8_0");
    assert_eq!(run["input"], "second");
    assert_eq!(run["tensor_type"], "q8_0");
    assert_eq!(
        (&run["fields"]["m"], &run["fields"]["k"]),
        (&ROWS.into(), &COLUMNS.into())
    );
    let written = crate::common::File::read(&out);
    assert_eq!(written.metadata["kernel"], "dmmv_q8_0");
    let sizes =
        ["buffer.weights", "buffer.x", "buffer.y"].map(|name| written.tensors[name].1.len());
    let weights = TensorType::Q8_0.row_bytes(COLUMNS).unwrap() * ROWS;
    assert_eq!(
        sizes,
        [weights as usize, 4 * COLUMNS as usize, 4 * ROWS as usize]
    );
}

#[test]
fn seed_decides_the_vector() {
    let model = Model::new(&model().bytes());
    let product = |seed: &str| {
        let out = model.out();
        let out_text = out.to_str().unwrap();
        model
            .command(&["--tensor", "first", "--seed", seed, "--out", out_text])
            .good();
        crate::common::File::read(&out).tensors["buffer.y"]
            .1
            .clone()
    };
    let first = product("1");
    assert_eq!(product("1"), first);
    assert_ne!(product("2"), first);
}

#[test]
fn each_type_that_a_kernel_reads_is_run_once() {
    let model = Model::new(&model().bytes());
    let report = model.command(&["--each-type"]).json();
    let runs = report["runs"].as_array().unwrap();
    let kernels = Vec::from_iter(runs.iter().map(|run| run["kernel"].as_str().unwrap()));
    assert_eq!(kernels, ["dmmv_q4k", "dmmv_q8_0"]);
    assert!(runs.iter().all(|run| run["ok"] == true), "{report:#}");
}

#[test]
fn tensor_that_no_kernel_reads_and_unknown_names_are_refused() {
    let model = Model::new(&model().bytes());
    model
        .command(&["--tensor", "other"])
        .refused(WRONG_INPUT, ["iq2_xxs", "other"]);
    model
        .command(&["--tensor", "third"])
        .refused(WRONG_INPUT, ["\"third\""]);
    model
        .command(&["dmmv_q4k", "--tensor", "second"])
        .refused(WRONG_INPUT, ["dmmv_q4k", "q8_0"]);
    model
        .command(&["vadd", "--tensor", "second"])
        .refused(WRONG_INPUT, ["vadd", "q8_0"]);
}

#[test]
fn missing_file_is_named() {
    let path = "/nowhere/model.gguf";
    run(["run", "--gguf", path, "--each-type"]).refused(WRONG_INPUT, [path, "No such file"]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).to_str().unwrap();
    run(["run", "--gguf", folder, "--each-type"]).refused(WRONG_INPUT, [folder]);
}

#[test]
fn bad_magic_is_refused() {
    let mut bytes = model().bytes();
    bytes[..4].copy_from_slice(b"GGML");
    Model::new(&bytes).refused(&["not a GGUF file"]);
    Model::new(b"").refused(&["not a GGUF file"]);
}

#[test]
fn truncated_file_is_refused() {
    let bytes = model().bytes();
    for length in [6, bytes.len() / 2, bytes.len() - 1] {
        Model::new(&bytes[..length]).refused(&["cut or damaged"]);
    }
    Model::new(&bytes[..30]).refused(&["room for"]);
}

#[test]
fn absurd_tensor_count_is_refused_with_what_would_fit() {
    for count in [u64::MAX, 1 << 40] {
        let mut bytes = model().bytes();
        bytes[AT_TENSORS..AT_TENSORS + 8].copy_from_slice(&count.to_le_bytes());
        Model::new(&bytes).refused(&[&count.to_string(), "room for"]);
    }
}

#[test]
fn offset_past_the_end_is_refused_with_the_tensor() {
    for offset in [1 << 20, u64::MAX - 31] {
        let mut writer = model();
        writer.tensors[1].offset = Some(offset);
        Model::new(&writer.bytes()).refused(&["\"second\""]);
    }
}

#[test]
fn unknown_tensor_type_is_refused_with_the_tensor() {
    let mut writer = model();
    writer.tensors[1].kind = 99;
    Model::new(&writer.bytes()).refused(&["\"second\"", "unknown type 99"]);
}

#[test]
fn model_without_a_matrix_for_a_kernel_is_refused() {
    let norm = Writer::default().with_tensor("norm", &[4], TensorType::F32, &[0; 16]);
    Model::new(&norm.bytes())
        .command(&["--each-type"])
        .refused(WRONG_INPUT, ["no matrix"]);
}
