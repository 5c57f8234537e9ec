//! The C interface, from a C program that is linked with the static library as a host does it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{Fake, VADD, archive, ptx::VADD_PTX};

fn check(output: &Output, what: &str) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{what}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// Builds the static library beside the test, with what was built for it, and the client.
fn client(dir: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = std::env::current_exe().unwrap();
    // target/profile/deps/program
    let profile = program.ancestors().nth(2).unwrap();
    let name = match profile.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        name => name,
    };
    let built = Command::new(env!("CARGO"))
        .args([
            "rustc",
            "--lib",
            "--crate-type",
            "staticlib",
            "--features",
            "capi",
            "--profile",
            name,
        ])
        .arg("--manifest-path")
        .arg(root.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(profile.parent().unwrap())
        .output()
        .unwrap();
    check(&built, "cargo");
    let client = dir.join("client");
    let linked = Command::new("cc")
        .args([
            "-std=c99",
            "-pedantic",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-g",
            "-I",
        ])
        .arg(root.join("include"))
        .arg(root.join("tests/c/client.c"))
        .arg(profile.join("libzinc_runtime.a"))
        .args(["-ldl", "-lpthread", "-lm", "-o"])
        .arg(&client)
        .output()
        .unwrap();
    check(&linked, "cc");
    client
}

#[test]
fn c_client_runs_on_the_fake_driver_and_on_a_gpu() {
    let dir = tempfile::tempdir().unwrap();
    let client = client(dir.path());
    let write = |name: &str, images: &[(&str, &str)]| {
        let path = dir.path().join(name);
        std::fs::write(&path, archive(&[("vadd", images)]).bytes()).unwrap();
        path
    };
    let for_fake = write("fake.zca", &[("90", VADD)]);
    let for_gpu = write("gpu.zca", &[("compute_75", VADD_PTX)]);

    for settings in ["lazy=0", "lazy=1"] {
        let fake = Fake::new();
        let output = Command::new(&client)
            .arg(&for_fake)
            .env("ZINC_LIBCUDA", &fake.path)
            .env("FAKE_CUDA", settings)
            .output()
            .unwrap();
        check(&output, settings);
        assert!(
            String::from_utf8_lossy(&output.stdout).contains("Fake GPU 0, 0000:3b:00.0, GPU-1010")
        );
    }

    let fake = Fake::new();
    let none = Command::new(&client)
        .arg(&for_fake)
        .env("ZINC_LIBCUDA", &fake.path)
        .env("FAKE_CUDA", "devices=0")
        .output()
        .unwrap();
    assert_eq!(
        none.status.code(),
        Some(3),
        "a machine without a GPU is told apart from an error"
    );

    let real = Command::new(&client)
        .arg(&for_gpu)
        .env_remove("ZINC_LIBCUDA")
        .output()
        .unwrap();
    match real.status.code() {
        Some(3) => println!("skipped on a real GPU: there is none"),
        _ => check(&real, "on the GPU"),
    }
}
