//! Writes the device headers of all implemented kernels: `zinc-codegen [--partial] <kernels-cu> <out>`.

use std::path::Path;
use std::process::ExitCode;
use zinc_catalog::{Catalog, Tolerance, codegen};

fn main() -> ExitCode {
    let mut arguments = Vec::from_iter(std::env::args().skip(1));
    let before = arguments.len();
    arguments.retain(|argument| argument != "--partial");
    let tolerance = match arguments.len() < before {
        true => Tolerance::Partial,
        false => Tolerance::Strict,
    };
    let [root, out] = arguments.as_slice() else {
        eprintln!("usage: zinc-codegen [--partial] <kernels-cu directory> <output directory>");
        return ExitCode::from(2);
    };
    match write_headers(Path::new(root), Path::new(out), tolerance) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn write_headers(
    root: &Path,
    out: &Path,
    tolerance: Tolerance,
) -> Result<(), Box<dyn std::error::Error>> {
    let catalog = Catalog::load(root, tolerance)?;
    for warning in &catalog.warnings {
        eprintln!("warning: {warning}");
    }
    let (mut written, mut current) = (0, 0);
    for kernel in catalog.implemented() {
        let path = out.join("zinc").join(format!("{}.h", kernel.name));
        match codegen::write_if_changed(&path, &codegen::device_header(kernel))? {
            true => written += 1,
            false => current += 1,
        }
    }
    println!(
        "{} kernels: {written} headers written, {current} already current",
        catalog.kernels.len()
    );
    Ok(())
}
