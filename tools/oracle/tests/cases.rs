//! The table of cases: complete, legal, unique, and satisfiable.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::collections::BTreeSet;

use zinc_contract::{Access, Kernel};
use zinc_oracle::{Case, Expected, Rng, Want};

/// The kernels that the oracle knows.
fn known() -> Vec<&'static Kernel> {
    let kernels = zinc_contract::KERNELS.iter();
    kernels
        .filter(|k| zinc_oracle::has_reference(k.name))
        .collect()
}

#[test]
fn every_kernel_that_is_not_pending_has_a_reference_and_cases() {
    let kernels = zinc_contract::KERNELS
        .iter()
        .filter(|k| k.pending.is_none());
    let missing: Vec<&str> = kernels
        .map(|k| k.name)
        .filter(|name| !zinc_oracle::has_reference(name))
        .collect();
    assert!(
        missing.is_empty(),
        "{} kernels without reference: {missing:?}",
        missing.len()
    );
}

#[test]
fn every_reference_is_in_the_catalog_once() {
    let names: Vec<&str> = zinc_oracle::kernels().collect();
    let unique: BTreeSet<&&str> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
    for name in names {
        assert!(
            zinc_contract::kernel(name).is_ok(),
            "{name} is not in the catalog"
        );
    }
}

/// The final contents that the reference itself produces.
fn sample(case: &Case, expected: &[Expected]) -> Vec<Vec<u8>> {
    let initial = case.contents();
    let mut outputs: Vec<Vec<u8>> = initial.iter().map(|b| b.to_vec()).collect();
    for one in expected {
        if case.kernel.buffers[one.buffer].access == Access::Read {
            continue;
        }
        let bytes = one.sample(initial[one.buffer]);
        for (index, output) in outputs.iter_mut().enumerate() {
            if case.owner(index) == case.owner(one.buffer) {
                output.clone_from(&bytes);
            }
        }
    }
    outputs
}

/// Checks one case: the regions are ordered and inside the buffer, and the reference's own result is
/// accepted.
fn check(case: &Case) {
    let name = format!("{} [{}]", case.kernel.name, case.label);
    let expected = case.expect().unwrap_or_else(|e| panic!("{name}: {e}"));
    let initial = case.contents();
    for one in &expected {
        let mut end = 0;
        for region in &one.regions {
            assert!(region.start >= end, "{name}: regions overlap");
            end = region.start + region.want.bytes();
        }
        assert!(
            end <= initial[one.buffer].len(),
            "{name}: region past the end"
        );
    }
    let outputs = sample(case, &expected);
    let report = case.compare(&outputs).unwrap();
    assert!(report.ok(), "{report}");
}

#[test]
fn the_reference_satisfies_every_case() {
    let mut count = [0, 0];
    for kernel in known() {
        let cases = zinc_oracle::cases(kernel).unwrap();
        assert!(cases.len() >= 8, "{}: {} cases", kernel.name, cases.len());
        let labels: BTreeSet<&str> = cases.iter().map(|c| c.label.as_str()).collect();
        assert_eq!(labels.len(), cases.len(), "{}: labels repeat", kernel.name);
        let start = std::time::Instant::now();
        for case in &cases {
            count[usize::from(case.heavy)] += 1;
            check(case);
        }
        println!(
            "{}: {} cases in {:?}",
            kernel.name,
            cases.len(),
            start.elapsed()
        );
    }
    println!("{} light and {} heavy cases", count[0], count[1]);
}

#[test]
fn cases_are_the_same_on_every_run() {
    for kernel in known() {
        let (first, second) = (
            zinc_oracle::light_cases(kernel).unwrap(),
            zinc_oracle::light_cases(kernel).unwrap(),
        );
        for (a, b) in first.iter().zip(&second) {
            let name = format!("{} [{}]", kernel.name, a.label);
            assert_eq!(a.words, b.words, "{name}");
            for (a, b) in a.buffers.iter().zip(&b.buffers) {
                assert!(a.bytes == b.bytes && a.alias_of == b.alias_of, "{name}");
            }
        }
    }
}

#[test]
fn the_reference_satisfies_random_cases() {
    for kernel in known() {
        let mut rng = Rng::from_names(&["random cases", kernel.name]);
        for _ in 0..50 {
            check(&zinc_oracle::random_case(kernel, &mut rng).unwrap());
        }
    }
}

#[test]
fn every_case_ignores_what_the_contract_does_not_cover() {
    // Bytes of read buffers behind the contract's byte count do not matter.
    for kernel in known() {
        for case in zinc_oracle::light_cases(kernel).unwrap() {
            let mut cut = case.clone();
            for (index, buffer) in kernel.buffers.iter().enumerate() {
                let bytes = (buffer.bytes.eval)(&case.words).unwrap().max(0) as usize;
                let shared =
                    (0..cut.buffers.len()).any(|i| i != index && cut.owner(i) == cut.owner(index));
                if buffer.access == Access::Read && !shared {
                    cut.buffers[index].bytes.truncate(bytes);
                }
            }
            check(&cut);
        }
    }
}

#[test]
fn every_pair_that_may_alias_has_a_case() {
    for kernel in known() {
        let cases = zinc_oracle::light_cases(kernel).unwrap();
        for &(a, b) in kernel.may_alias {
            let (a, b) = (a as usize, b as usize);
            let found = cases.iter().any(|c| c.owner(a) == c.owner(b));
            let names = (kernel.buffers[a].name, kernel.buffers[b].name);
            assert!(
                found,
                "{}: no case with {names:?} in one memory",
                kernel.name
            );
        }
    }
}

#[test]
fn every_float_of_every_case_can_be_wrong() {
    // A case whose expectations are all free would test nothing.
    for kernel in known() {
        let mut strict = 0;
        for case in zinc_oracle::light_cases(kernel).unwrap() {
            for expected in case.expect().unwrap() {
                for region in &expected.regions {
                    strict += match &region.want {
                        Want::Floats(all) => all
                            .iter()
                            .filter(|e| **e != zinc_oracle::Element::Free)
                            .count(),
                        other => other.bytes(),
                    };
                }
            }
        }
        assert!(strict > 100, "{}: {strict}", kernel.name);
    }
}
