//! The oracle against data of independent implementations.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use zinc_oracle::quant::Format;
use zinc_oracle::{Case, Expected, fixture, unit};

/// The fixtures of the repository.
fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

/// All fixture files.
fn fixture_files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = ["", "golden", "independent"]
        .iter()
        .flat_map(|dir| std::fs::read_dir(fixtures().join(dir)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "safetensors"))
        .filter(|path| path.file_stem().is_some_and(|s| s != "dequant"))
        .collect();
    files.sort();
    files
}

#[test]
fn every_fixture_is_read_and_written_without_loss() {
    let files = fixture_files();
    let generated = |path: &&PathBuf| path.parent().is_some_and(|p| p.ends_with("independent"));
    let generated = files.iter().filter(generated).count();
    assert_eq!(files.len() - generated, 112);
    for path in files {
        let bytes = std::fs::read(&path).unwrap();
        let read = fixture::read(&bytes, zinc_contract::kernel)
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let written = fixture::write(&read).unwrap();
        assert_eq!(
            fixture::read(&written, zinc_contract::kernel).unwrap(),
            read,
            "{}",
            path.display()
        );
        assert_eq!(fixture::write(&read).unwrap(), written);
    }
}

#[test]
fn expected_contents_satisfy_their_own_fixture_and_initial_ones_do_not() {
    for path in fixture_files() {
        let fixture = fixture::read(&std::fs::read(&path).unwrap(), zinc_contract::kernel).unwrap();
        let pairs = fixture.buffers.iter().zip(&fixture.expect);
        let outputs: Vec<Vec<u8>> = pairs
            .map(|(b, e)| e.as_ref().unwrap_or(b).bytes.clone())
            .collect();
        let report = fixture::compare(&fixture, &outputs);
        assert!(report.ok(), "{}: {report}", path.display());
        let report = fixture::compare(&fixture, &fixture.contents());
        assert!(!report.ok(), "{}: {report}", path.display());
    }
}

/// The oracle's own final contents of all buffers.
fn sample(initial: &[&[u8]], expected: &[Expected]) -> Vec<Vec<u8>> {
    let mut outputs: Vec<Vec<u8>> = initial.iter().map(|b| b.to_vec()).collect();
    for one in expected {
        outputs[one.buffer] = one.sample(initial[one.buffer]);
    }
    outputs
}

#[test]
fn references_agree_with_the_independent_ones() {
    let mut passed = BTreeMap::new();
    let mut failures = Vec::new();
    for path in fixture_files() {
        let fixture = fixture::read(&std::fs::read(&path).unwrap(), zinc_contract::kernel).unwrap();
        let kernel = fixture.kernel;
        let initial = fixture.contents();
        let expected = zinc_oracle::expect(kernel, &fixture.words, &initial).unwrap();
        let outputs = sample(&initial, &expected);
        let report = fixture::compare(&fixture, &outputs);
        println!("{report}");
        if !report.ok() {
            failures.push(format!("{}: {report}", path.display()));
        }
        // The other way round: the independent result is within the oracle's tolerances.
        let pairs = fixture.buffers.iter().zip(&fixture.expect);
        let wanted: Vec<&[u8]> = pairs
            .map(|(b, e)| e.as_ref().unwrap_or(b).bytes.as_slice())
            .collect();
        let report = zinc_oracle::compare(kernel, "fixture", &initial, &expected, &wanted);
        if !report.ok() {
            failures.push(format!("{}: {report}", path.display()));
        }
        *passed.entry(fixture.kernel.name).or_insert(0) += 1;
    }
    println!(
        "{} kernels, {} fixtures",
        passed.len(),
        passed.values().sum::<u32>()
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let catalog = zinc_contract::KERNELS.iter().filter(|k| !k.extended);
    let missing: Vec<&str> = catalog
        .map(|k| k.name)
        .filter(|name| !passed.contains_key(*name))
        .collect();
    assert!(missing.is_empty(), "no fixture of {missing:?}");
}

/// Blocks and values of a format from the golden file.
fn golden(format: Format) -> (Vec<u8>, Vec<f32>) {
    let bytes = std::fs::read(fixtures().join("golden/dequant.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let blocks = tensors
        .tensor(&format!("{}.blocks", format.dtype()))
        .unwrap();
    let values = tensors
        .tensor(&format!("{}.values", format.dtype()))
        .unwrap();
    let values = values.data().chunks_exact(4);
    let values = values
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect();
    (blocks.data().to_vec(), values)
}

/// The quantized formats of the catalog that the golden file has.
const FORMATS: [Format; 7] = [
    Format::Q8_0,
    Format::Q5_0,
    Format::Q5_1,
    Format::Q4K,
    Format::Q5K,
    Format::Q6K,
    Format::Mxfp4,
];

#[test]
fn dequantization_matches_the_golden_values_bit_for_bit() {
    for format in FORMATS {
        let (blocks, values) = golden(format);
        assert_eq!(blocks.len(), 64 * format.bytes());
        let found = format.dequantize(&blocks);
        assert_eq!(found.len(), values.len());
        for (index, (found, wanted)) in found.iter().zip(&values).enumerate() {
            let (block, element) = (index / format.elements(), index % format.elements());
            assert_eq!(
                found.to_bits(),
                wanted.to_bits(),
                "{format:?} block {block} element {element}: {found:e} {wanted:e}"
            );
        }
    }
}

#[test]
fn unit_vectors_give_the_golden_values_through_the_references() {
    for (name, format) in [
        ("dmmv_q4k", Format::Q4K),
        ("dmmv_q5k", Format::Q5K),
        ("dmmv_q6k", Format::Q6K),
        ("dmmv_q8_0", Format::Q8_0),
        ("dmmv_q5_0", Format::Q5_0),
        ("dmmv_q4k_moe", Format::Q4K),
        ("dmmv_q5k_moe", Format::Q5K),
        ("dmmv_q8_0_q8_1", Format::Q8_0),
        ("dmmv_q4k_q8_1", Format::Q4K),
        ("dmmv_q8_0_kpar_batch", Format::Q8_0),
        ("dmmv_mxfp4", Format::Mxfp4),
        ("dmmv_q5_1", Format::Q5_1),
        ("dmmv_q4k_wide", Format::Q4K),
        ("dmmv_q6k_wide", Format::Q6K),
        ("dmmv_q8_0_wide", Format::Q8_0),
        ("dmmv_q8_0_batch", Format::Q8_0),
        ("dmmv_q4k_batch", Format::Q4K),
        ("dmmv_q4k_batch_kpar", Format::Q4K),
        ("dmmv_q6k_batch", Format::Q6K),
        ("dmmv_q6k_batch_kpar", Format::Q6K),
        ("dmmv_mxfp4_moe", Format::Mxfp4),
        ("dmmv_q4k_moe_kpar", Format::Q4K),
        ("dmmv_q5k_moe_kpar", Format::Q5K),
        ("dmmv_q5_1_moe", Format::Q5_1),
        ("dmmv_q6k_moe", Format::Q6K),
    ] {
        let kernel = zinc_contract::kernel(name).unwrap();
        let (blocks, values) = golden(format);
        let units = unit::cases(kernel, format, &blocks, &values).unwrap();
        assert_eq!(units.len(), format.elements());
        for unit in units {
            let initial = unit.case.contents();
            let outputs = sample(&initial, &unit.case.expect().unwrap());
            let label = &unit.case.label;
            let report = zinc_oracle::compare(kernel, label, &initial, &unit.expected, &outputs);
            assert!(report.ok(), "{report}");
        }
    }
}

/// A case of vadd, for the tests of this file that need any case.
#[test]
fn a_wrong_result_of_a_case_fails() {
    let kernel = zinc_contract::kernel("vadd").unwrap();
    let cases: Vec<Case> = zinc_oracle::cases(kernel).unwrap();
    let case = cases.iter().find(|c| c.label == "n = 5").unwrap();
    let initial = case.contents();
    let mut outputs = sample(&initial, &case.expect().unwrap());
    assert!(case.compare(&outputs).unwrap().ok());
    for (buffer, byte) in [(2, 0), (2, 19), (2, 20), (0, 0), (1, 3)] {
        outputs[buffer][byte] ^= 1;
        let report = case.compare(&outputs).unwrap();
        assert!(!report.ok(), "buffer {buffer} byte {byte}: {report}");
        outputs[buffer][byte] ^= 1;
    }
}
