//! The project's own catalog.

use crate::support::project_root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use zinc_catalog::{Catalog, FieldKind, Tolerance};

fn project() -> Catalog {
    Catalog::load(&project_root(), Tolerance::Partial).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn there_are_110_kernels_in_the_families_of_the_original() {
    let catalog = project();
    let mut families = BTreeMap::new();
    for kernel in catalog.kernels.iter().filter(|kernel| !kernel.extended) {
        *families.entry(kernel.family.as_str()).or_insert(0) += 1;
    }
    let wanted = BTreeMap::from([
        ("attention", 4),
        ("elementwise", 6),
        ("gemm", 59),
        ("kv", 2),
        ("moe", 9),
        ("norm_act", 13),
        ("quantize", 4),
        ("rope", 2),
        ("ssm", 9),
        ("utility", 2),
    ]);
    assert_eq!(families, wanted);
    assert_eq!(wanted.values().sum::<i32>(), 110);
    assert!(
        catalog
            .kernels
            .iter()
            .all(|kernel| kernel.extended == (kernel.family == "extended"))
    );
}

#[test]
fn counts_in_the_readme_are_those_of_the_files() {
    let readme = fs::read_to_string(project_root().join("catalog/README.md")).unwrap();
    let mut per_file = BTreeMap::new();
    let mut extended = 0;
    for kernel in &project().kernels {
        match kernel.extended {
            true => extended += 1,
            false => {
                *per_file
                    .entry(
                        kernel
                            .toml
                            .file_name()
                            .unwrap()
                            .to_str()
                            .unwrap()
                            .to_owned(),
                    )
                    .or_insert(0) += 1
            }
        }
    }
    let row = |file: &str| {
        let line = readme
            .lines()
            .find(|line| line.starts_with('|') && line.contains(file));
        let cell = line
            .unwrap_or_else(|| panic!("{file} is not in the README"))
            .split('|')
            .nth(2)
            .unwrap();
        cell.trim()
            .trim_end_matches(" each")
            .parse::<i32>()
            .unwrap()
    };
    for (file, count) in per_file {
        assert_eq!(row(&file), count, "{file}");
    }
    assert_eq!(row("extended/*.toml"), extended);
}

#[test]
fn camel_case_names_and_header_constants_are_distinct() {
    let catalog = project();
    let rust = zinc_catalog::codegen::rust_launch(&catalog);
    let c = zinc_catalog::codegen::c_header(&catalog);
    for (text, prefix) in [
        (&rust, "pub struct "),
        (&rust, "pub fn "),
        (&c, "#define "),
        (&c, "  ZINC_"),
    ] {
        let names = text
            .lines()
            .filter_map(|line| line.strip_prefix(prefix)?.split([' ', '(', '<']).next());
        let mut seen = BTreeSet::new();
        for name in names.filter(|name| *name != "bytes") {
            assert!(seen.insert(name), "`{prefix}{name}` is there twice");
        }
        assert!(seen.len() >= 110, "`{prefix}` finds too little");
    }
}

#[test]
fn buffers_with_an_offset_field_state_their_first_byte() {
    for kernel in &project().kernels {
        let offsets = kernel
            .fields_of(FieldKind::Push)
            .filter(|field| field.name.ends_with("_offset"));
        for offset in offsets {
            for buffer in &kernel.buffers {
                let ends = buffer.bytes.expr.names().contains(offset.name.as_str());
                let starts = buffer.start.expr.names().contains(offset.name.as_str());
                // The gate rows of this packed tensor lie in front of its up rows.
                let inside =
                    kernel.name == "dmmv_q4k_moe_fused_gate_up_geglu" && offset.name == "up_offset";
                assert_eq!(
                    ends && !inside,
                    starts,
                    "{}: {} and {}",
                    kernel.name,
                    buffer.name,
                    offset.name
                );
            }
        }
    }
}

#[test]
fn buffers_that_the_contract_lets_start_anywhere_ask_for_no_alignment() {
    for kernel in &project().kernels {
        if kernel
            .edge
            .to_lowercase()
            .contains("no alignment requirement")
        {
            assert!(
                kernel.buffers.iter().all(|buffer| buffer.align == 4),
                "{}",
                kernel.name
            );
        }
    }
}
