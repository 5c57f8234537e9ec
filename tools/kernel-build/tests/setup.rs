//! tools/setup agrees with the build about where nvcc is.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use kernel_build::{Environment, toolkit};

#[test]
fn setup_and_the_build_find_the_same_nvcc() {
    let setup = concat!(env!("CARGO_MANIFEST_DIR"), "/../setup");
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let at = |name: &str| folder.path().join(name).into_os_string();
    let pin = toolkit::pinned_version();
    place(&format!(
        "cache/toolkit-{pin}/nvidia/cu{}/bin/nvcc",
        pin.split('.').next().unwrap()
    ));
    for name in [
        "zinc/nvcc",
        "nvcc/nvcc",
        "home/bin/nvcc",
        "path/bin/nvcc",
        "search/nvcc",
    ] {
        place(name);
    }
    let clean = Environment::of(&[
        ("PATH", "/usr/bin:/bin".as_ref()),
        ("ZINC_CUDA_CACHE", &at("cache")),
    ]);
    let mut environments = vec![clean];
    let search = std::env::join_paths([at("search"), "/usr/bin".into(), "/bin".into()]).unwrap();
    let variables = [
        ("PATH", search),
        ("CUDA_PATH", at("path")),
        ("CUDA_HOME", at("home")),
        ("NVCC", at("nvcc/nvcc")),
        ("ZINC_NVCC", at("zinc/nvcc")),
        ("NVCC", at("missing")),
        ("ZINC_NVCC", at("missing")),
    ];
    for (name, value) in variables {
        environments.push(environments.last().unwrap().clone().with(name, value));
    }
    let mut answers = Vec::new();
    for mut environment in environments {
        // What tools/setup cannot be told to look past.
        environment.system_toolkit = PathBuf::from("/usr/local/cuda");
        let output = environment
            .command("/bin/bash")
            .args([setup, "--print-nvcc"])
            .output()
            .unwrap();
        let said = output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        let found = toolkit::find_nvcc(&environment)
            .ok()
            .map(|path| path.display().to_string());
        assert_eq!(
            said,
            found,
            "{environment:?}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        answers.push(found);
    }
    answers.dedup();
    assert_eq!(answers.len(), 7, "{answers:?}");
    assert_eq!(answers.last().unwrap(), &None);
    let help = Command::new("bash")
        .args([setup, "--help"])
        .output()
        .unwrap();
    assert!(help.status.success());
}
