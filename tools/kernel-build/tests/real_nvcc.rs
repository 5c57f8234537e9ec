//! The build against the nvcc of this machine. Without one there is nothing to test, which is a failure only where
//! `ZINC_TEST_NEEDS_NVCC` is set, as tools/test does.

#![allow(
    clippy::unwrap_used,
    clippy::result_large_err,
    reason = "a failed unwrap fails the test, and tests need no speed"
)]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use cubin_format::{Archive, fatbin};
use kernel_build::{Environment, Request, Toolkit, toolkit};
use support::{Project, compiled, set};

/// The nvcc of this machine, if there is one.
fn nvcc() -> Option<PathBuf> {
    match toolkit::find_nvcc(&Environment::of_process()) {
        Ok(nvcc) => Some(nvcc),
        Err(error) if std::env::var_os("ZINC_TEST_NEEDS_NVCC").is_some() => panic!("{error}"),
        Err(error) => {
            eprintln!("nothing is tested here: {error}");
            None
        }
    }
}

/// Two kernels with internal symbols that nvcc would name after the directory they lie in.
fn project_with_internal_symbols() -> Project {
    let project = Project::new();
    project.write(
        "kernels-cu/include/zinc/common.cuh",
        "#pragma once\nnamespace {\n__device__ __noinline__ float twice(float x) { return x * x + 1.0f; }\n}\n\
         static __constant__ float table[4] = {1, 2, 3, 4};\nstatic __device__ int counter;\n",
    );
    project.kernel(
        "alpha",
        "#include \"zinc/common.cuh\"",
        "y[i] = twice(x[i]) * table[i % 4] + float(counter++);",
    );
    project
}

#[test]
fn two_directories_give_the_same_bytes() {
    let Some(nvcc) = nvcc() else { return };
    let build = || {
        let project = project_with_internal_symbols();
        let report = project.build(&project.environment(&nvcc)).unwrap();
        assert_eq!(report.units.len(), compiled(&report).len());
        let fatbin = fs::read(project.root.join("out/images/fatbin/alpha.fatbin")).unwrap();
        (fs::read(report.archive).unwrap(), fatbin)
    };
    let (first, second) = (build(), build());
    assert!(
        first == second,
        "the same sources give other bytes in another directory"
    );
    let archive = Archive::open(&first.0).unwrap();
    assert!(
        archive
            .verify_all()
            .iter()
            .all(|checked| checked.result.is_ok())
    );
    let targets: Vec<_> = fatbin::read(&first.1)
        .unwrap()
        .iter()
        .map(|image| image.target.to_string())
        .collect();
    assert_eq!(targets, ["sm_80", "sm_90", "compute_90"]);
}

#[test]
fn header_edit_compiles_exactly_what_includes_it() {
    let Some(nvcc) = nvcc() else { return };
    let project = Project::new();
    let environment = project.environment(&nvcc).with("ZINC_CUDA_ARCHS", "90");
    project.build(&environment).unwrap();
    project.write(
        "kernels-cu/include/zinc/only_beta.cuh",
        "#pragma once\n#define BETA_FACTOR 3.0f\n",
    );
    assert_eq!(
        compiled(&project.build(&environment).unwrap()),
        set(&["beta compute_90", "beta sm_90"])
    );
    assert_eq!(compiled(&project.build(&environment).unwrap()), set(&[]));
}

#[test]
fn front_end_runs_once_for_archs_that_code_does_not_tell_apart() {
    let Some(nvcc) = nvcc() else { return };
    let project = Project::new();
    let body = "\n#if ZINC_ARCH >= 86\n y[i] = x[i];\n#else\n y[i] = 0;\n#endif\n";
    project.kernel("alpha", "#include \"zinc/common.cuh\"", body);
    // Notes what it is given.
    let wrapper = project.cache.with_file_name("nvcc");
    let script = format!(
        "#!/bin/sh\necho \"$*\" >>\"$0.calls\"\nexec {} \"$@\"\n",
        nvcc.display()
    );
    fs::write(&wrapper, script).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let environment = project.environment(&wrapper);
    let report = project.build(&environment.clone().with("ZINC_CUDA_ARCHS", "80,86,89"));
    assert_eq!(report.unwrap().units.len(), 2 * 4);
    let calls = fs::read_to_string(wrapper.with_extension("calls")).unwrap();
    let of = |kernel: &str, front_end: bool| {
        let calls = calls.lines().filter(|call| {
            call.contains(&format!("{kernel}."))
                && call.split(' ').any(|word| word.ends_with(".cu")) == front_end
        });
        let archs = calls.filter_map(|call| call.split("-arch=").nth(1)?.split(' ').next());
        Vec::from_iter(BTreeSet::from_iter(archs)).join(" ")
    };
    // The PTX that the archive has is the newest architecture's own.
    assert_eq!(of("alpha", true), "compute_86 compute_89 sm_80");
    assert_eq!(of("alpha", false), "sm_86 sm_89");
    assert_eq!(of("beta", true), "compute_80 compute_89");
    assert_eq!(of("beta", false), "sm_80 sm_86 sm_89");

    // The same image, whatever else is built.
    let image = |out: &str| fs::read(project.root.join(out).join("images/sm_89/alpha.cubin"));
    let alone = environment
        .with("ZINC_CUDA_ARCHS", "89")
        .with("ZINC_CUDA_CACHE", "");
    project.build_into("alone", &alone).unwrap();
    assert!(image("alone").unwrap() == image("out").unwrap());
}

#[test]
fn compiler_error_names_kernel_arch_and_line() {
    let Some(nvcc) = nvcc() else { return };
    let project = Project::new();
    project.kernel("beta", "", "y[i] = undeclared;");
    let error = project.error(&project.environment(&nvcc).with("ZINC_CUDA_ARCHS", "90"));
    let wanted = "kernels-cu/utility/beta.cu(6): error: identifier \"undeclared\" is undefined";
    assert!(
        error.contains("kernel beta for compute_90: nvcc failed") && error.contains(wanted),
        "{error}"
    );
}

#[test]
fn entry_that_an_arch_condition_removes_is_named() {
    let Some(nvcc) = nvcc() else { return };
    let project = Project::new();
    let entry = "ZINC_KERNEL void beta(const float* x, float* y, beta_push p) { y[p.n] = x[p.n]; }";
    project.kernel_file(
        "beta",
        &format!("#if ZINC_ARCH >= 90\n{entry}\n#endif\n"),
        "",
    );
    let error = project.error(&project.environment(&nvcc));
    assert_eq!(
        error,
        "kernel beta for sm_80: no entry beta in the image; it has none"
    );
}

#[test]
fn other_parameters_than_the_catalog_are_refused_for_every_target() {
    let Some(nvcc) = nvcc() else { return };
    let project = Project::new();
    project.kernel_file(
        "beta",
        "ZINC_KERNEL void beta(const float* x, float* y, unsigned n) { y[n] = x[n]; }\n",
        "",
    );
    let error = project.error(&project.environment(&nvcc).with("ZINC_CUDA_ARCHS", "90"));
    for target in ["sm_90", "compute_90"] {
        let wanted = format!("kernel beta for {target}: not the parameters of the catalog");
        assert!(error.contains(&wanted), "{error}");
    }
}

#[test]
fn spills_are_measured_and_refused() {
    let Some(nvcc) = nvcc() else { return };
    let project = Project::new();
    let code = "ZINC_KERNEL void __launch_bounds__(1024, 2) beta(const float* x, float* y, beta_push p) {\n  float v[64];\n\
                #pragma unroll\n  for (int i = 0; i < 64; i++) v[i] = x[i * blockDim.x + threadIdx.x];\n  __syncthreads();\n\
                #pragma unroll\n  for (int i = 0; i < 64; i++) y[i * blockDim.x + threadIdx.x] = v[63 - i] * v[i];\n}\n";
    project.kernel_file("beta", code, "");
    let environment = project.environment(&nvcc).with("ZINC_CUDA_ARCHS", "90");
    let error = project.error(&environment);
    assert!(
        error.contains("kernel beta for sm_90: ") && error.contains(" bytes of spill stores"),
        "{error}"
    );
    project.kernel_file("beta", code, "[allow]\nspills = \"a test\"\n");
    let report = project.build(&environment).unwrap();
    let unit = report
        .units
        .iter()
        .find(|unit| unit.kernel == "beta")
        .unwrap();
    assert!(
        unit.resources.spill_bytes() > 0 && unit.resources.registers <= 32,
        "{unit:?}"
    );
}

#[test]
fn suffixed_arch_is_compiled_and_its_ptx_stays_portable() {
    let Some(nvcc) = nvcc() else { return };
    let project = Project::new();
    let report = project
        .build(&project.environment(&nvcc).with("ZINC_CUDA_ARCHS", "90a"))
        .unwrap();
    assert_eq!(
        compiled(&report),
        set(&[
            "alpha compute_90",
            "alpha sm_90a",
            "beta compute_90",
            "beta sm_90a"
        ])
    );
}

#[test]
fn kernel_with_code_for_exactly_one_arch_gets_it_beside_the_others() {
    let Some(nvcc) = nvcc() else { return };
    let project = Project::new();
    // The tile constant says which code was compiled, by the size of the shared array.
    project.kernel_file(
        "beta",
        "ZINC_KERNEL void beta(const float* x, float* y, beta_push p) {\n  \
         __shared__ float all[beta_tile::floats];\n  all[threadIdx.x] = x[threadIdx.x];\n  __syncthreads();\n  \
         if (threadIdx.x < p.n) y[threadIdx.x] = all[p.n - threadIdx.x];\n}\n",
        "tile = { floats = 256 }\n[arch.90a]\ntile = { floats = 512 }\n[arch.100]\ntile = { floats = 1024 }\n",
    );
    let build = |archs: &str| {
        project
            .build(&project.environment(&nvcc).with("ZINC_CUDA_ARCHS", archs))
            .unwrap()
    };
    let report = build("80,90,100");
    let shared = report.units.iter().filter(|unit| unit.kernel == "beta");
    let shared = shared.map(|unit| (unit.target.to_string(), unit.resources.shared_bytes / 4));
    let wanted = [
        ("sm_80", 256),
        ("sm_90", 256),
        ("sm_90a", 512),
        ("sm_100", 1024),
    ];
    let machine_code = shared.filter(|(target, _)| target.starts_with("sm_"));
    assert_eq!(
        Vec::from_iter(machine_code),
        wanted.map(|(target, floats)| (target.to_owned(), floats))
    );
    assert!(
        compiled(&report).contains("alpha sm_90") && !compiled(&report).contains("alpha sm_90a")
    );
    // Only where its number is asked for, and once where it is asked for itself.
    assert!(
        !build("80")
            .units
            .iter()
            .any(|unit| unit.target.to_string() == "sm_90a")
    );
    let asked = build("90a");
    assert_eq!(
        asked
            .units
            .iter()
            .filter(|unit| unit.kernel == "beta")
            .count(),
        2
    );
}

#[test]
fn all_is_every_arch_of_this_nvcc() {
    let Some(nvcc) = nvcc() else { return };
    let toolkit = Toolkit::at(nvcc, &Environment::of_process()).unwrap();
    let all = Request::All.targets(&toolkit).unwrap().targets;
    assert_eq!(all.len(), toolkit.codes.len() + 1);
    assert!(!toolkit.supports("80a".parse().unwrap()) && toolkit.supports("90a".parse().unwrap()));
}
