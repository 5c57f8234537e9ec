//! Writes what is generated from the catalog to files, for use outside the build:
//! `zinc-codegen [--partial] <kernels-cu> <out>` puts the device headers at `<out>/zinc`, the C header at
//! `<out>/zinc_kernels.h` and the kernel reference at `<out>/reference`.

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
    match generate(Path::new(root), Path::new(out), tolerance) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn generate(
    root: &Path,
    out: &Path,
    tolerance: Tolerance,
) -> Result<(), Box<dyn std::error::Error>> {
    let catalog = Catalog::load(root, tolerance)?;
    for warning in &catalog.warnings {
        eprintln!("warning: {warning}");
    }
    let mut files = vec![(out.join("zinc_kernels.h"), codegen::c_header(&catalog))];
    for kernel in catalog.implemented() {
        let path = out.join("zinc").join(format!("{}.h", kernel.name));
        files.push((path, codegen::device_header(kernel)));
    }
    for page in codegen::reference(&catalog) {
        files.push((out.join("reference").join(page.file), page.text));
    }
    let mut written = 0;
    for (path, text) in &files {
        written += usize::from(codegen::write_if_changed(path, text)?);
    }
    let (kernels, files) = (catalog.kernels.len(), files.len());
    println!("{kernels} kernels: {written} of {files} files written, the others are current");
    Ok(())
}
