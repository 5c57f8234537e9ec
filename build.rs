//! The counterpart of a shader compilation step: the catalog and the device code become one archive of cubins in OUT_DIR,
//! which `cubins/lib.rs` embeds.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use kernel_build::{Build, Environment, VARIABLES, chain};
use zinc_catalog::{Catalog, Tolerance, codegen};

fn main() {
    println!("cargo::rerun-if-changed=kernels-cu");
    // A failed build runs again by itself, so an archive that is dropped in where nvcc is missing needs no watch.
    for archive in kernel_build::prebuilt::dropped(Path::new(".")) {
        println!("cargo::rerun-if-changed={}", archive.display());
    }
    for name in VARIABLES {
        println!("cargo::rerun-if-env-changed={name}");
    }
    if let Err(error) = run() {
        for line in chain(error.as_ref()).lines() {
            println!("cargo::error={line}");
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let catalog = Catalog::load(Path::new("kernels-cu"), Tolerance::Strict)?;
    fs::write(out.join("zinc_kernels.h"), codegen::c_header(&catalog))?;
    let build = Build {
        root: &root,
        catalog: &catalog,
        out: &out,
        environment: &Environment::of_process(),
        progress: |done, all| eprintln!("{done} of {all} kernel images"),
    };
    let report = build.run()?;
    for line in report.warnings.iter().flat_map(|warning| warning.lines()) {
        println!("cargo::warning={line}");
    }
    println!("cargo::rerun-if-changed={}", report.tool.display());
    println!("cargo::warning=kernels: {}", report.summary);
    Ok(())
}
