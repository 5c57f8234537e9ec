//! The build against a made-up nvcc: what is compiled again, what is refused, and with which words. Needs no toolkit.

#![allow(
    clippy::unwrap_used,
    clippy::result_large_err,
    reason = "a failed unwrap fails the test, and tests need no speed"
)]

mod support;

use std::fs;
use std::path::Path;

use cubin_format::{Archive, Target};
use kernel_build::{BuildError, Environment, UnitError, chain};
use support::{FakeNvcc, Project, compiled, entry, set};

const ALL: [&str; 6] = [
    "alpha compute_90",
    "alpha sm_80",
    "alpha sm_90",
    "beta compute_90",
    "beta sm_80",
    "beta sm_90",
];

fn without_nvcc(project: &Project) -> Environment {
    Environment::of(&[("ZINC_CUDA_CACHE", project.cache.as_os_str())])
}

#[test]
fn first_build_compiles_everything_and_the_archive_has_it() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    let report = project.build(&project.environment(&nvcc.path)).unwrap();
    assert_eq!(compiled(&report), set(&ALL));
    assert!(
        report.summary.contains("nvcc 99.1.7 (fake_99.1) at "),
        "{}",
        report.summary
    );
    assert!(
        report
            .summary
            .contains("; sm_80 sm_90 compute_90; host compiler c++ ("),
        "{}",
        report.summary
    );

    let archive = Archive::read(&report.archive).unwrap();
    assert_eq!(archive.metadata().compiler, "nvcc 99.1.7 (fake_99.1)");
    assert_eq!(archive.metadata().source_hash, report.source_hash);
    let names: Vec<_> = archive
        .kernels()
        .iter()
        .map(|kernel| kernel.name.as_str())
        .collect();
    assert_eq!(names, ["alpha", "beta"]);
    let target: Target = "sm_90".parse().unwrap();
    let resources = archive
        .kernel("beta")
        .unwrap()
        .target(target)
        .unwrap()
        .resources;
    assert_eq!(resources.registers, 33);
    let image = fs::read(project.root.join("out/images/sm_90/beta.cubin")).unwrap();
    assert_eq!(archive.image("beta", target).unwrap(), image);
    assert!(
        project
            .root
            .join("out/images/fatbin/alpha.fatbin")
            .is_file()
    );
    assert!(
        fs::read_to_string(project.root.join("out/build.log"))
            .unwrap()
            .contains("alpha sm_80 Compiled")
    );
}

#[test]
fn nothing_changed_compiles_nothing_even_in_a_new_checkout() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    let environment = project.environment(&nvcc.path);
    let first = project.build(&environment).unwrap();
    assert_eq!(compiled(&project.build(&environment).unwrap()), set(&[]));

    let other = Project::new();
    let elsewhere = other
        .environment(&nvcc.path)
        .with("ZINC_CUDA_CACHE", &project.cache);
    let second = other.build(&elsewhere).unwrap();
    assert_eq!(compiled(&second), set(&[]));
    assert_eq!(nvcc.calls(), ALL.len());
    assert_eq!(
        fs::read(first.archive).unwrap(),
        fs::read(second.archive).unwrap()
    );
}

#[test]
fn header_edit_compiles_exactly_what_includes_it() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    let environment = project.environment(&nvcc.path);
    project.build(&environment).unwrap();

    project.write(
        "kernels-cu/include/zinc/only_beta.cuh",
        "#pragma once\n#define BETA_FACTOR 3.0f\n",
    );
    let report = project.build(&environment).unwrap();
    assert_eq!(compiled(&report), set(&ALL[3..]));
    assert_eq!(report.units.len(), ALL.len());

    project.write(
        "kernels-cu/include/zinc/common.cuh",
        "#pragma once\n// edited\n",
    );
    assert_eq!(compiled(&project.build(&environment).unwrap()), set(&ALL));

    project.write("kernels-cu/include/zinc/unused.cuh", "#pragma once\n");
    assert_eq!(compiled(&project.build(&environment).unwrap()), set(&[]));
}

#[test]
fn contract_edit_compiles_only_the_kernel_whose_push_struct_changed() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    let environment = project.environment(&nvcc.path);
    project.build(&environment).unwrap();
    let renamed = entry("beta").replace("name = \"unused\"", "name = \"renamed\"");
    project.write(
        "kernels-cu/catalog/utility.toml",
        &format!("{}{renamed}", entry("alpha")),
    );
    assert_eq!(
        compiled(&project.build(&environment).unwrap()),
        set(&ALL[3..])
    );
    let described = entry("beta").replace("summary = \"Test.\"", "summary = \"Other words.\"");
    project.write(
        "kernels-cu/catalog/utility.toml",
        &format!("{}{described}", entry("alpha")),
    );
    let report = project.build(&environment).unwrap();
    assert_eq!(compiled(&report), set(&[]));
    assert_eq!(
        Archive::read(&report.archive)
            .unwrap()
            .kernel("beta")
            .unwrap()
            .summary,
        "Other words."
    );
}

#[test]
fn other_nvcc_build_or_flags_compile_again() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    let environment = project.environment(&nvcc.path);
    project.build(&environment).unwrap();
    let flags = environment.clone().with("NVCC_APPEND_FLAGS", "-lineinfo");
    assert_eq!(compiled(&project.build(&flags).unwrap()), set(&ALL));
    let script = fs::read_to_string(&nvcc.path).unwrap();
    fs::write(
        &nvcc.path,
        script.replace("Build fake_99.1", "Build fake_99.2"),
    )
    .unwrap();
    assert_eq!(compiled(&project.build(&environment).unwrap()), set(&ALL));
}

#[test]
fn corrupt_cache_entries_are_made_again() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    let environment = project.environment(&nvcc.path);
    let first = project.build(&environment).unwrap();
    let mut entries = 0;
    for folder in fs::read_dir(project.cache.join("kernels")).unwrap() {
        for entry in fs::read_dir(folder.unwrap().path()).unwrap() {
            let path = entry.unwrap().path();
            let mut bytes = fs::read(&path).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(&path, bytes).unwrap();
            entries += 1;
        }
    }
    // Compiled images, and those that were compressed on the one for the architecture before.
    assert!(entries > ALL.len());
    let second = project.build_into("out2", &environment).unwrap();
    assert_eq!(compiled(&second).len(), ALL.len());
    let bytes = fs::read(first.archive).unwrap();
    assert_eq!(bytes, fs::read(second.archive).unwrap());
    let archive = Archive::from_vec(bytes).unwrap();
    let mut images = archive.kernels().iter().flat_map(|kernel| &kernel.targets);
    assert!(images.any(|entry| entry.base.is_some()));
    assert!(
        archive
            .verify_all()
            .iter()
            .all(|checked| checked.result.is_ok())
    );
}

#[test]
fn damaged_or_missing_output_is_made_again() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    let environment = project.environment(&nvcc.path);
    let archive = project.build(&environment).unwrap().archive;
    let whole = fs::read(&archive).unwrap();
    fs::write(&archive, b"damaged").unwrap();
    project.build(&environment).unwrap();
    assert_eq!(fs::read(&archive).unwrap(), whole);
    let image = project.root.join("out/images/sm_80/alpha.cubin");
    fs::remove_file(&image).unwrap();
    project.build(&environment).unwrap();
    assert!(image.is_file());
}

#[test]
fn output_of_a_removed_kernel_or_target_goes_away() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    let environment = project.environment(&nvcc.path);
    project.build(&environment).unwrap();
    project.write("kernels-cu/catalog/utility.toml", &entry("alpha"));
    for file in ["beta.cu", "beta.launch.toml"] {
        fs::remove_file(project.root.join("kernels-cu/utility").join(file)).unwrap();
    }
    let report = project
        .build(&environment.with("ZINC_CUDA_ARCHS", "90"))
        .unwrap();
    let out = |path: &str| project.root.join("out").join(path);
    assert!(out("images/sm_90/alpha.cubin").is_file());
    for gone in [
        "images/sm_90/beta.cubin",
        "images/sm_80/alpha.cubin",
        "include/zinc/beta.h",
        "images/fatbin/beta.fatbin",
    ] {
        assert!(!out(gone).exists(), "{gone}");
    }
    assert_eq!(Archive::read(&report.archive).unwrap().kernels().len(), 1);
}

#[test]
fn two_directories_give_the_same_archive() {
    let nvcc = FakeNvcc::new();
    let build = || {
        let project = Project::new();
        let report = project.build(&project.environment(&nvcc.path)).unwrap();
        assert_eq!(compiled(&report), set(&ALL));
        fs::read(report.archive).unwrap()
    };
    assert_eq!(build(), build());
}

#[test]
fn missing_nvcc_lists_every_place_and_what_to_run() {
    let project = Project::new();
    let error = project.error(
        &without_nvcc(&project)
            .with("NVCC", "/no/such/nvcc")
            .with("CUDA_HOME", "/no/such/home"),
    );
    for part in [
        "ZINC_NVCC: not set",
        "NVCC=/no/such/nvcc: not an executable file",
        "CUDA_HOME: no executable /no/such/home/bin/nvcc",
        "CUDA_PATH: not set",
        "PATH: no nvcc in it",
        "/bin/nvcc: not there",
        "run tools/setup",
        "there is no cubins/*.zca",
    ] {
        assert!(error.contains(part), "{part:?} is not in:\n{error}");
    }
}

#[test]
fn wrong_zinc_nvcc_is_never_passed_over() {
    let project = Project::new();
    let error = project.error(&project.environment(Path::new("/no/such/nvcc")));
    assert_eq!(error, "ZINC_NVCC=/no/such/nvcc is not an executable file");
}

#[test]
fn program_that_is_not_nvcc_is_refused_with_its_answer() {
    let project = Project::new();
    let error = project.error(&project.environment(Path::new("/bin/echo")));
    assert!(
        error.contains("/bin/echo --version did not answer as nvcc does:\n"),
        "{error}"
    );
}

#[test]
fn failing_nvcc_shows_its_text_with_kernel_and_arch() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    project.kernel("beta", "// FAKE error identifier \"zz\" is undefined", "");
    let error = project.error(
        &project
            .environment(&nvcc.path)
            .with("ZINC_CUDA_ARCHS", "90"),
    );
    let wanted = "kernels-cu/utility/beta.cu(7): error: identifier \"zz\" is undefined";
    assert!(
        error.contains(wanted)
            && error.contains("kernel beta for compute_90: nvcc failed (exit status: 2)"),
        "{error}"
    );
}

#[test]
fn warning_of_nvcc_reaches_the_user_also_from_the_cache() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    project.kernel("beta", "// FAKE warn variable x is unused", "");
    let environment = project
        .environment(&nvcc.path)
        .with("ZINC_CUDA_ARCHS", "90");
    let wanted =
        "kernel beta for sm_90: kernels-cu/utility/beta.cu(8): warning: variable x is unused";
    assert_eq!(project.build(&environment).unwrap().warnings[0], wanted);
    assert_eq!(project.build(&environment).unwrap().warnings[0], wanted);
    assert_eq!(
        project.build_into("out2", &environment).unwrap().warnings[0],
        wanted
    );
}

#[test]
fn entry_compiled_away_on_one_arch_is_named() {
    let nvcc = FakeNvcc::new();
    for arch in ["sm_80", "compute_90"] {
        let project = Project::new();
        project.kernel("beta", &format!("// FAKE without {arch}"), "");
        let error = project.error(&project.environment(&nvcc.path));
        assert_eq!(
            error,
            format!("kernel beta for {arch}: no entry beta in the image; it has other")
        );
    }
}

#[test]
fn parameters_that_differ_from_the_catalog_are_named() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    project.kernel("beta", "// FAKE params", "");
    let BuildError::Kernels { failures } =
        project.build(&project.environment(&nvcc.path)).unwrap_err()
    else {
        panic!()
    };
    assert!(
        failures
            .iter()
            .all(|failure| matches!(failure, UnitError::Check(_)))
    );
    assert!(!failures.is_empty());
}

#[test]
fn spills_fail_unless_the_launch_file_says_why() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    let environment = project
        .environment(&nvcc.path)
        .with("ZINC_CUDA_ARCHS", "90");
    project.kernel("alpha", "// FAKE spill 24", "");
    let error = project.error(&environment);
    assert!(
        error.contains("kernel alpha for sm_90: 24 bytes of spill stores and 0 of spill loads"),
        "{error}"
    );
    assert!(error.contains("[allow] spills = \"reason\""), "{error}");

    let code =
        "// FAKE spill 24\nZINC_KERNEL void alpha(const float* x, float* y, alpha_push p) {}\n";
    project.kernel_file(
        "alpha",
        code,
        "[allow]\nspills = \"measured faster than two passes\"\n",
    );
    let report = project.build(&environment).unwrap();
    assert!(
        report
            .units
            .iter()
            .any(|unit| unit.kernel == "alpha" && unit.resources.spill_bytes() == 24)
    );
}

#[test]
fn local_memory_fails_unless_the_launch_file_says_why() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    let environment = project
        .environment(&nvcc.path)
        .with("ZINC_CUDA_ARCHS", "90");
    project.kernel("alpha", "// FAKE stack 40", "");
    let error = project.error(&environment);
    assert!(
        error.contains("kernel alpha for sm_90: 40 bytes of local memory per thread"),
        "{error}"
    );
    let code =
        "// FAKE stack 40\nZINC_KERNEL void alpha(const float* x, float* y, alpha_push p) {}\n";
    project.kernel_file(
        "alpha",
        code,
        "[allow]\nlocal = \"a table that is indexed by data\"\n",
    );
    project.build(&environment).unwrap();
}

#[test]
fn removed_file_or_entry_is_an_error_that_names_it() {
    let project = Project::new();
    fs::remove_file(project.root.join("kernels-cu/utility/beta.cu")).unwrap();
    let error = project.catalog().unwrap_err().to_string();
    assert!(error.contains("utility/beta.cu"), "{error}");

    let project = Project::new();
    project.write("kernels-cu/catalog/utility.toml", &entry("alpha"));
    let error = project.catalog().unwrap_err().to_string();
    assert!(error.contains("utility/beta.cu"), "{error}");
}

#[test]
fn empty_table_is_an_error() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    fs::remove_dir_all(project.root.join("kernels-cu/utility")).unwrap();
    project.write("kernels-cu/catalog/utility.toml", &entry("alpha"));
    project.write(
        "kernels-cu/catalog/pending.toml",
        "[pending]\nalpha = \"later\"\n",
    );
    let error = project.build(&project.environment(&nvcc.path)).unwrap_err();
    assert!(matches!(error, BuildError::EmptyTable { .. }), "{error}");
}

#[test]
fn unsupported_arch_names_it_and_the_nvcc_build() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    let error = |archs: &str| {
        project.error(
            &project
                .environment(&nvcc.path)
                .with("ZINC_CUDA_ARCHS", archs),
        )
    };
    for archs in ["120", "80,120"] {
        let error = error(archs);
        assert!(error.starts_with("nvcc 99.1.7 (fake_99.1) at "), "{error}");
        assert!(
            error.ends_with("cannot compile for sm_120; it can do 80 90"),
            "{error}"
        );
    }
    assert!(
        error("80a").contains("cannot compile for sm_80a"),
        "{}",
        error("80a")
    );
    let text = error("90x");
    assert!(text.contains("ZINC_CUDA_ARCHS=90x"), "{text}");
    let failure = project
        .build(
            &project
                .environment(&nvcc.path)
                .with("ZINC_CUDA_ARCHS", "90x"),
        )
        .unwrap_err();
    assert!(
        chain(&failure).contains("unknown suffix \"x\""),
        "{}",
        chain(&failure)
    );
}

#[test]
fn default_list_leaves_out_what_nvcc_cannot_do_and_says_so() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    let report = project
        .build(&project.environment(&nvcc.path).with("ZINC_CUDA_ARCHS", ""))
        .unwrap();
    assert_eq!(compiled(&report), set(&ALL));
    assert_eq!(report.warnings.len(), 5, "{:?}", report.warnings);
    assert!(
        report.warnings[0].ends_with("cannot compile for sm_75 of the default list: left out"),
        "{:?}",
        report.warnings
    );
}

#[test]
fn code_for_exactly_one_arch_is_left_out_where_nvcc_cannot_do_it() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    project.kernel_file("alpha", "", "[arch.80a]\nblock = [\"64\"]\n");
    let report = project.build(&project.environment(&nvcc.path)).unwrap();
    assert_eq!(compiled(&report), set(&ALL));
    assert_eq!(report.warnings.len(), 1, "{:?}", report.warnings);
    assert!(
        report.warnings[0].contains("cannot compile for sm_80a"),
        "{:?}",
        report.warnings
    );
}

#[test]
fn all_is_what_nvcc_lists() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    let report = project
        .build(
            &project
                .environment(&nvcc.path)
                .with("ZINC_CUDA_ARCHS", "all"),
        )
        .unwrap();
    assert_eq!(compiled(&report), set(&ALL));
}

#[test]
fn native_asks_the_driver_and_fails_clearly_without_a_gpu() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    let tools = project.root.join("tools-of-the-driver");
    let smi = |text: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        project.write(
            "tools-of-the-driver/nvidia-smi",
            &format!("#!/bin/sh\necho '{text}'\n"),
        );
        fs::set_permissions(tools.join("nvidia-smi"), fs::Permissions::from_mode(0o755)).unwrap();
    };
    let path = std::env::join_paths([&tools, Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
    let environment = project
        .environment(&nvcc.path)
        .with("ZINC_CUDA_ARCHS", "native")
        .with("PATH", path);
    smi("8.0");
    let report = project.build(&environment).unwrap();
    assert_eq!(
        compiled(&report),
        set(&[
            "alpha compute_80",
            "alpha sm_80",
            "beta compute_80",
            "beta sm_80"
        ])
    );
    smi("No devices were found");
    let error = project.error(&environment);
    assert!(
        error.starts_with(
            "ZINC_CUDA_ARCHS=native: no GPU found (nvidia-smi: \"No devices were found\""
        ),
        "{error}"
    );
    smi("12.0");
    assert!(
        project
            .error(&environment)
            .contains("cannot compile for sm_120")
    );
}

#[test]
fn prebuilt_archive_is_used_without_nvcc_and_refused_for_other_sources() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    let built = project.build(&project.environment(&nvcc.path)).unwrap();
    let bytes = fs::read(&built.archive).unwrap();
    fs::create_dir_all(project.root.join("cubins")).unwrap();
    fs::write(project.root.join("cubins/prebuilt.zca"), &bytes).unwrap();

    let environment = without_nvcc(&project);
    let report = project.build_into("out2", &environment).unwrap();
    assert_eq!(fs::read(&report.archive).unwrap(), bytes);
    assert!(
        report
            .summary
            .contains("prebuilt.zca (compiled with nvcc 99.1.7 (fake_99.1)), 2 kernels"),
        "{}",
        report.summary
    );

    let lacking = project.error(&environment.clone().with("ZINC_CUDA_ARCHS", "75"));
    assert!(
        lacking.contains("has no sm_75 of kernel alpha"),
        "{lacking}"
    );

    project.write("kernels-cu/include/zinc/only_beta.cuh", "#pragma once\n");
    let error = project.error(&environment);
    assert!(
        error.contains(&format!(
            "made from sources with the hash {}",
            report.source_hash
        )),
        "{error}"
    );
    assert!(error.contains("run tools/setup"), "{error}");
}

#[test]
fn zinc_cubins_comes_before_nvcc_and_is_refused_by_hash_and_damage() {
    let (project, nvcc) = (Project::new(), FakeNvcc::new());
    let built = project.build(&project.environment(&nvcc.path)).unwrap();
    let path = project.root.join("mine.zca");
    fs::copy(&built.archive, &path).unwrap();
    let environment = project.environment(&nvcc.path).with("ZINC_CUBINS", &path);
    let calls = nvcc.calls();
    assert!(
        project
            .build_into("out2", &environment)
            .unwrap()
            .summary
            .starts_with("prebuilt ")
    );
    assert_eq!(nvcc.calls(), calls);
    let relative = environment.clone().with("ZINC_CUBINS", "mine.zca");
    project.build_into("out2", &relative).unwrap();

    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&path, damaged).unwrap();
    let error = project.build_into("out2", &environment).unwrap_err();
    assert!(
        chain(&error).contains("the archive is damaged"),
        "{}",
        chain(&error)
    );
    fs::write(&path, whole).unwrap();

    project.write("kernels-cu/include/zinc/only_beta.cuh", "#pragma once\n");
    let error = project.error(&environment);
    let now = project
        .build(&project.environment(&nvcc.path))
        .unwrap()
        .source_hash;
    assert!(
        error.contains(&format!("hash {}, these have {now}", built.source_hash)),
        "{error}"
    );
}
