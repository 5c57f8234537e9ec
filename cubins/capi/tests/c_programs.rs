//! C programs that are compiled against the header and linked with the library, as an engine does it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cubin_format::archive::Payload;
use cubin_format::{ArchiveBuilder, Metadata, NewKernel, NewTarget, Resources};
use tempfile::TempDir;

const C: &[&str] = &["-std=c11"];
const CXX: &[&str] = &["-x", "c++", "-std=c++17"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo put the libraries of this build: beside this program.
fn libraries() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().unwrap().to_owned()
}

fn check(output: &Output, what: &str) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{what}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// A folder with the kernels' header, an archive, and the programs that are built in it.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("zinc_kernels.h"), zinc_cuda::C_HEADER).unwrap();
        std::fs::write(dir.path().join("whole.zca"), zinc_cuda::ARCHIVE_BYTES).unwrap();
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles a program with all warnings as errors and links it with the static or the shared library.
    fn compile(&self, source: &Path, language: &[&str], library: &str) -> PathBuf {
        let program = self.path("program");
        let mut command = Command::new("cc");
        command
            .args(language)
            .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-O1"])
            .arg("-I")
            .arg(root().join("include"))
            .arg("-I")
            .arg(self.0.path())
            .arg(source)
            .args(["-x", "none"])
            .arg(libraries().join(library))
            .args(["-ldl", "-lpthread", "-lm", "-o"])
            .arg(&program);
        check(&command.output().unwrap(), "cc");
        program
    }

    fn run(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .arg(self.0.path())
            .env("LD_LIBRARY_PATH", libraries())
            .env_remove("ZINC_DEVICE")
            .env_remove("ZINC_LIBCUDA")
            .env_remove("FAKE_CUDA");
        command
    }
}

fn test_source(name: &str) -> PathBuf {
    root().join("tests").join(name)
}

fn smoke(language: &[&str], library: &str) {
    let scratch = Scratch::new();
    let program = scratch.compile(&test_source("capi_smoke.c"), language, library);
    let absent = scratch.path("absent/libcuda.so.1");
    let output = scratch.run(&program).env("ZINC_LIBCUDA", absent).output();
    check(&output.unwrap(), "capi_smoke");
}

#[test]
fn c_program_with_the_shared_library_works_without_a_driver() {
    smoke(C, "libzinc_capi.so");
}

#[test]
fn c_program_with_the_static_library_works_without_a_driver() {
    smoke(C, "libzinc_capi.a");
}

#[test]
fn cxx_program_works_without_a_driver() {
    smoke(CXX, "libzinc_capi.so");
}

/// An archive whose only image is one that the fake driver understands.
fn fake_archive() -> Vec<u8> {
    let mut builder = ArchiveBuilder::new(Metadata::default());
    builder.push(NewKernel {
        name: "vadd".to_owned(),
        entry: "vadd".to_owned(),
        targets: vec![NewTarget {
            target: "90".parse().unwrap(),
            resources: Resources::default(),
            compiler: String::new(),
            payload: Payload::compress(b"FAKE vadd pointers=3 push=4\0").unwrap(),
        }],
        ..NewKernel::default()
    });
    builder.finish().unwrap()
}

fn fake_driver(scratch: &Scratch) -> PathBuf {
    let runtime = root().join("../../runtime");
    let library = scratch.path("libcuda.so.1");
    let mut command = Command::new("cc");
    command
        .args(["-std=gnu11", "-O1", "-g", "-shared", "-fPIC"])
        .args(["-fvisibility=hidden", "-pthread", "-I"])
        .arg(runtime.join("shim"))
        .arg(runtime.join("tests/fake_driver/fake_driver.c"))
        .arg("-o")
        .arg(&library);
    check(&command.output().unwrap(), "cc");
    library
}

#[test]
fn c_program_dispatches_on_the_fake_driver() {
    let scratch = Scratch::new();
    let program = scratch.compile(&test_source("capi_dispatch.c"), C, "libzinc_capi.so");
    let driver = fake_driver(&scratch);
    let archive = scratch.path("fake.zca");
    std::fs::write(&archive, fake_archive()).unwrap();
    for settings in ["lazy=0", "lazy=1", "lazy=1,devices=3"] {
        let output = scratch
            .run(&program)
            .arg(&archive)
            .env("ZINC_LIBCUDA", &driver)
            .env("FAKE_CUDA", settings)
            .output();
        check(&output.unwrap(), settings);
    }
    let none = scratch
        .run(&program)
        .arg(&archive)
        .env("ZINC_LIBCUDA", &driver)
        .env("FAKE_CUDA", "devices=0")
        .output();
    assert_eq!(
        none.unwrap().status.code(),
        Some(3),
        "a driver without a device is no device"
    );
}

#[test]
fn c_program_dispatches_the_embedded_kernels_where_there_is_a_gpu() {
    let scratch = Scratch::new();
    let program = scratch.compile(&test_source("capi_dispatch.c"), C, "libzinc_capi.so");
    let output = scratch.run(&program).output().unwrap();
    match output.status.code() {
        Some(3) => println!("skipped: no device"),
        _ => check(&output, "on the GPU"),
    }
}

/// The program in the comment at the top of the header.
fn example() -> String {
    let header = std::fs::read_to_string(root().join("include/zinc_cuda.h")).unwrap();
    let comment = &header[..header.find("*/").unwrap()];
    let code = comment.lines().filter_map(|line| match line {
        " *" => Some(""),
        _ => line.strip_prefix(" *     "),
    });
    code.map(|line| format!("{line}\n")).collect()
}

#[test]
fn example_of_the_header_compiles_and_runs() {
    let scratch = Scratch::new();
    let source = scratch.path("example.c");
    std::fs::write(&source, example()).unwrap();
    scratch.compile(&source, CXX, "libzinc_capi.so");
    let program = scratch.compile(&source, C, "libzinc_capi.so");
    let output = scratch.run(&program).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.code() {
        Some(0) => assert_eq!(text(&output.stdout), "2 4 6 8\n"),
        _ => assert!(
            text(&output.stderr).starts_with("no NVIDIA driver library was found; likely cause: "),
            "{}",
            text(&output.stderr)
        ),
    }
}

/// Names of the functions that a text declares or calls.
fn functions(text: &str) -> BTreeSet<String> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let calls = text.match_indices("zcu_").filter_map(|(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|character| !is_name(character))?;
        let starts = !text[..at].ends_with(is_name);
        (starts && rest[end..].starts_with('(')).then(|| rest[..end].to_owned())
    });
    calls.collect()
}

fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(root().join("include/zinc_cuda.h")).unwrap();
    let code = header.lines().filter(|line| !line.starts_with("//"));
    let code: String = code.map(|line| format!("{line}\n")).collect();
    functions(&code[code.find("#ifndef").unwrap()..])
}

#[test]
fn shared_library_exports_what_the_header_declares_and_nothing_else() {
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--format=posix"])
        .arg(libraries().join("libzinc_capi.so"))
        .output()
        .unwrap();
    check(&output, "nm");
    let exported: BTreeSet<String> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    assert_eq!(exported, declared());
}

#[test]
fn shared_library_needs_no_cuda_library() {
    let output = Command::new("readelf")
        .args(["-d", "-W"])
        .arg(libraries().join("libzinc_capi.so"))
        .output()
        .unwrap();
    check(&output, "readelf");
    let text = String::from_utf8(output.stdout).unwrap();
    let needed: Vec<_> = text
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .collect();
    assert!(!needed.is_empty());
    assert!(
        !needed.iter().any(|line| line.contains("cuda")),
        "{needed:?}"
    );
}

#[test]
fn every_function_is_called_by_a_test() {
    let called: BTreeSet<String> = ["capi_smoke.c", "capi_dispatch.c"]
        .iter()
        .flat_map(|name| functions(&std::fs::read_to_string(test_source(name)).unwrap()))
        .collect();
    let missing: Vec<_> = declared().difference(&called).cloned().collect();
    assert!(missing.is_empty(), "{missing:?}");
}
