//! Generated code: the exact text of a small case, and whether compilers accept all of it.

use crate::support::{Kernels, project_root};
use std::fs;
use std::path::Path;
use std::process::Command;
use zinc_catalog::{Catalog, Tolerance, codegen};

/// Compares with a committed file; `UPDATE_GOLDEN=1` rewrites it.
fn golden(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/catalog/golden")
        .join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).unwrap();
    }
    let wanted = fs::read_to_string(&path).unwrap();
    assert!(
        text == wanted,
        "{} differs; generated:\n{text}",
        path.display()
    );
}

fn project() -> Catalog {
    Catalog::load(&project_root(), Tolerance::Partial).unwrap()
}

#[test]
fn device_header_is_as_committed() {
    let catalog = Kernels::complete().load().unwrap();
    golden("demo_scale.h", &codegen::device_header(&catalog.kernels[0]));
}

#[test]
fn launch_function_is_as_committed() {
    let catalog = Kernels::complete().load().unwrap();
    golden("demo_scale.rs", &codegen::rust_launch(&catalog));
}

#[test]
fn table_entry_is_as_committed() {
    let catalog = Kernels::complete().load().unwrap();
    golden("table.rs", &codegen::rust_table(&catalog));
}

#[test]
fn reference_section_is_as_committed() {
    let catalog = Kernels::complete().load().unwrap();
    let pages = codegen::reference(&catalog);
    assert_eq!(
        pages
            .iter()
            .map(|page| page.file.as_str())
            .collect::<Vec<_>>(),
        ["README.md", "utility.md"]
    );
    golden("utility.md", &pages[1].text);
}

#[test]
fn emulator_entry_includes_the_implementation_and_calls_it() {
    let catalog = Kernels::complete().load().unwrap();
    golden(
        "demo_scale.cpp",
        &codegen::emulator_entry(&catalog.kernels[0], "demo/demo_scale.cu"),
    );
    let table = codegen::emulator_table(&catalog);
    assert!(
        table.contains("(\"demo_scale\", zinc_emulator_entry_demo_scale)"),
        "{table}"
    );
}

#[test]
fn prose_does_not_change_the_device_header() {
    let kernels = Kernels::complete();
    let before = codegen::device_header(&kernels.load().unwrap().kernels[0]);
    kernels.replace(
        "catalog/demo.toml",
        "doc = \"first element\"",
        "doc = \"FIRST element\"",
    );
    kernels.replace("demo/demo_scale.launch.toml", "\"n * 4\"", "\"n * 8\"");
    assert_eq!(
        before,
        codegen::device_header(&kernels.load().unwrap().kernels[0])
    );
    kernels.replace("demo/demo_scale.launch.toml", "warps = 16", "warps = 32");
    assert_ne!(
        before,
        codegen::device_header(&kernels.load().unwrap().kernels[0])
    );
}

#[test]
fn c_and_cpp_compilers_accept_the_header() {
    let directory = tempfile::tempdir().unwrap();
    let header = codegen::c_header(&project());
    fs::write(directory.path().join("zinc_kernels.h"), header).unwrap();
    let source = "#include \"zinc_kernels.h\"\n\
        typedef char words_of_dmmv_q4k[sizeof(zinc_dmmv_q4k_push) == 24 ? 1 : -1];\n\
        typedef char counts[ZINC_KERNEL_COUNT - ZINC_EXTENDED_KERNEL_COUNT == 110 ? 1 : -1];\n";
    for (compiler, file, standard) in [
        ("cc", "use.c", "-std=c99"),
        ("c++", "use.cpp", "-std=c++11"),
    ] {
        let path = directory.path().join(file);
        fs::write(&path, source).unwrap();
        let output = Command::new(compiler)
            .args([
                standard,
                "-Wall",
                "-Wextra",
                "-Werror",
                "-pedantic",
                "-fsyntax-only",
            ])
            .arg(&path)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn output_does_not_depend_on_where_the_catalog_lies() {
    let (a, b) = (Kernels::complete(), Kernels::complete());
    let (a, b) = (a.load().unwrap(), b.load().unwrap());
    assert_eq!(codegen::rust_table(&a), codegen::rust_table(&b));
    assert_eq!(codegen::rust_launch(&a), codegen::rust_launch(&b));
    assert_eq!(codegen::c_header(&a), codegen::c_header(&b));
    assert_eq!(codegen::reference(&a), codegen::reference(&b));
}

#[test]
fn unchanged_files_are_not_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/file");
    assert!(codegen::write_if_changed(&path, "a").unwrap());
    assert!(!codegen::write_if_changed(&path, "a").unwrap());
    assert!(codegen::write_if_changed(&path, "b").unwrap());
}
