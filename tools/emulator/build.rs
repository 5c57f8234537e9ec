//! Compiles the kernels, and those that test the emulator, with the host's C++ compiler.

#[path = "build/compile.rs"]
mod compile;

use std::path::{Path, PathBuf};
use std::{env, error::Error, fs};

use compile::{Compiler, Unit};
use zinc_catalog::{Catalog, Tolerance, codegen};

/// Comma-separated list of `address` and `undefined`.
const SANITIZE: &str = "ZINC_EMULATOR_SANITIZE";

/// When set, a kernel that does not compile is left out with a warning; otherwise it fails the build.
const PARTIAL: &str = "ZINC_EMULATOR_PARTIAL";

fn main() -> Result<(), Box<dyn Error>> {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let workspace = fs::canonicalize(manifest.join("../.."))?;
    let kernels = workspace.join("kernels-cu");
    for path in ["build", "cpp", "include", "tests/kernels"] {
        println!("cargo::rerun-if-changed={path}");
    }
    println!("cargo::rerun-if-changed={}", kernels.display());
    for variable in [SANITIZE, PARTIAL] {
        println!("cargo::rerun-if-env-changed={variable}");
    }

    let sanitizers = sanitizers()?;
    let mut catalog = Catalog::load(&kernels, Tolerance::Partial)?;
    let include = out.join("include");
    let compiler = Compiler::new(
        &out.join("objects"),
        &workspace,
        &[
            manifest.join("include"),
            kernels.join("include"),
            include.clone(),
            kernels.clone(),
        ],
        &sanitizers,
    )?;

    let mut units = vec![Unit::new("runtime", &manifest.join("cpp/runtime.cpp"))];
    for kernel in catalog.implemented() {
        let header = include.join("zinc").join(format!("{}.h", kernel.name));
        codegen::write_if_changed(&header, &codegen::device_header(kernel))?;
        let unit = out.join("units").join(format!("{}.cpp", kernel.name));
        let cu = kernel.cu.to_str().ok_or("a path that is not Unicode")?;
        codegen::write_if_changed(&unit, &codegen::emulator_entry(kernel, cu))?;
        units.push(Unit::new(&format!("kernel-{}", kernel.name), &unit));
    }
    let own = units.len();
    units.extend(test_units(&manifest.join("tests/kernels"))?);

    let objects = compiler.compile(&units)?;
    let mut failed = false;
    for (unit, object) in units.iter().zip(&objects) {
        let Err(text) = object else { continue };
        match unit.name.strip_prefix("kernel-") {
            Some(name) if env::var_os(PARTIAL).is_some() => {
                println!("cargo::warning={name} does not compile for the emulator");
                for line in text.lines() {
                    println!("cargo::warning={line}");
                }
                if let Some(kernel) = catalog.kernels.iter_mut().find(|k| k.name == name) {
                    kernel.pending = Some("does not compile".to_owned());
                }
            }
            _ => {
                eprintln!("{text}");
                failed = true;
            }
        }
    }
    if failed {
        return Err("the host compiler refused a kernel (its messages are above)".into());
    }
    let made = |range: &[Result<PathBuf, String>]| {
        Vec::from_iter(range.iter().filter_map(|object| object.clone().ok()))
    };
    fs::write(out.join("entries.rs"), codegen::emulator_table(&catalog))?;
    archive("zinc_emulator_kernels", &made(&objects[..own]), true);
    archive("zinc_emulator_test_kernels", &made(&objects[own..]), false);
    let tests = out.join("libzinc_emulator_test_kernels.a");
    println!("cargo::rustc-link-arg-tests={}", tests.display());
    for sanitizer in &sanitizers {
        let library = match sanitizer.as_str() {
            "address" => "asan",
            _ => "ubsan",
        };
        println!("cargo::rustc-link-lib=dylib={library}");
    }
    Ok(())
}

fn sanitizers() -> Result<Vec<String>, Box<dyn Error>> {
    let list = env::var(SANITIZE).unwrap_or_default();
    let names = list
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let names = Vec::from_iter(names.map(str::to_owned));
    for name in &names {
        if name != "address" && name != "undefined" {
            return Err(format!("{SANITIZE} knows address and undefined, not {name}").into());
        }
    }
    Ok(names)
}

/// The kernels that test the emulator: every file is a translation unit with its own entries.
fn test_units(directory: &Path) -> Result<Vec<Unit>, Box<dyn Error>> {
    let mut units = Vec::new();
    for file in fs::read_dir(directory)? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "cu") {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            units.push(Unit::new(&format!("test-{stem}"), &path));
        }
    }
    units.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(units)
}

/// Makes a static library, which the crate links if `link` is set.
fn archive(name: &str, objects: &[PathBuf], link: bool) {
    cc::Build::new()
        .cargo_metadata(link)
        .objects(objects)
        .compile(name);
}
