//! Generates the table of contracts and the typed launch functions from the catalog.

use std::path::{Path, PathBuf};
use std::{env, error::Error, fs};
use zinc_catalog::{Catalog, Tolerance, codegen};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../kernels-cu");
    // The table must also exist while a kernel is being written; the build of the cubins accepts no gaps.
    let catalog = Catalog::load(&root, Tolerance::Partial)?;
    for warning in &catalog.warnings {
        println!("cargo::warning={warning}");
    }
    for path in catalog.watched() {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("kernels.rs"), codegen::rust_table(&catalog))?;
    fs::write(out.join("launch.rs"), codegen::rust_launch(&catalog))?;
    Ok(())
}
