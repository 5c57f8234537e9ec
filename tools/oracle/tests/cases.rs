//! The table of cases: complete, legal, unique, and satisfiable.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::collections::BTreeSet;

use zinc_contract::{Access, CompiledArch, Kernel};
use zinc_oracle::{Case, Element, Expected, Rng, Want};

/// The kernels that the oracle knows.
fn known() -> Vec<&'static Kernel> {
    let kernels = zinc_contract::KERNELS.iter();
    kernels
        .filter(|k| zinc_oracle::has_reference(k.name))
        .collect()
}

#[test]
fn every_kernel_has_a_reference_and_cases() {
    let kernels = zinc_contract::KERNELS
        .iter()
        .filter(|k| !k.extended || k.pending.is_none());
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

/// The most dynamic shared memory of a block, by architecture (CUDA C++ Programming Guide, technical specifications per compute
/// capability).
const MOST_SHARED: [(u32, u32); 7] = [
    (75, 64 << 10),
    (80, 163 << 10),
    (86, 99 << 10),
    (89, 99 << 10),
    (90, 227 << 10),
    (100, 227 << 10),
    (120, 99 << 10),
];

/// Every rule, also those of code that no machine here can run, has to give a launch within a GPU's limits.
#[test]
fn every_case_has_a_launch_by_every_rule_and_in_the_shared_memory_of_every_architecture() {
    let specific = CompiledArch {
        specific: true,
        ..CompiledArch::from(90)
    };
    let targets = MOST_SHARED.map(|(number, most)| (CompiledArch::from(number), most));
    let targets = targets.into_iter().chain([(specific, 227 << 10)]);
    for kernel in known() {
        let rules = kernel.launch.iter().map(|rule| CompiledArch {
            number: rule.min_arch,
            specific: rule.specific,
        });
        let limits = rules.map(|arch| (arch, u32::MAX)).chain(targets.clone());
        let limits = Vec::from_iter(limits);
        for case in &zinc_oracle::cases(kernel).unwrap() {
            for (arch, most) in &limits {
                let name = format!("{} for {arch:?}, {}", kernel.name, case.label);
                let geometry = kernel.geometry(*arch, 132, &case.words);
                let geometry = geometry.unwrap_or_else(|error| panic!("{name}: {error}"));
                let shared = geometry.map_or(0, |geometry| geometry.shared_bytes);
                assert!(
                    shared <= *most,
                    "{name}: {shared} bytes of shared memory, {most} at most"
                );
                assert!(
                    kernel.early.is_empty() || shared % 16 == 0,
                    "{name}: {shared} bytes of shared memory are no sign to wait first"
                );
            }
        }
    }
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

/// The bytes of a region with one element moved out of tolerance; none if every value is free.
fn spoiled(want: &Want, sample: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let mut bytes = sample.to_vec();
    match want {
        Want::Floats(elements) => {
            let strict: Vec<usize> = (0..elements.len())
                .filter(|&i| elements[i] != Element::Free)
                .collect();
            if strict.is_empty() {
                return None;
            }
            let index = rng.pick(&strict);
            let value = match elements[index] {
                Element::Near { wanted, tolerance } if wanted.is_finite() => {
                    assert!(tolerance.is_finite(), "{wanted} +- {tolerance}");
                    let step = 2.0 * tolerance + 1e-5 * wanted.abs() + 1e-40;
                    let moved = (wanted + step) as f32;
                    if moved.is_finite() { moved } else { f32::NAN }
                }
                Element::Bits(bits) => f32::from_bits(bits ^ 1),
                Element::Exact(value) if !value.is_nan() => f32::from_bits(value.to_bits() ^ 1),
                _ => 0.0,
            };
            bytes[4 * index..4 * index + 4].copy_from_slice(&value.to_le_bytes());
        }
        _ if bytes.is_empty() => return None,
        Want::Check(_) => {
            // An exponent bit in the first half: the end may hold words that a rule leaves open.
            let index = rng.below(bytes.len() as u32 / 2) as usize | 3;
            bytes[index] ^= 0x40;
        }
        _ => {
            let index = rng.below(bytes.len() as u32) as usize;
            bytes[index] ^= 0x10;
        }
    }
    Some(bytes)
}

#[test]
fn one_wrong_value_anywhere_is_found() {
    for kernel in known() {
        let mut rng = Rng::from_names(&["wrong values", kernel.name]);
        let mut spoilt = 0;
        for case in zinc_oracle::light_cases(kernel).unwrap() {
            let name = format!("{} [{}]", kernel.name, case.label);
            let expected = case.expect().unwrap();
            let outputs = sample(&case, &expected);
            for one in &expected {
                let len = outputs[one.buffer].len();
                let mut try_bytes = |range: std::ops::Range<usize>, bytes: &[u8]| {
                    let mut outputs = outputs.clone();
                    outputs[one.buffer][range].copy_from_slice(bytes);
                    let initial = case.contents();
                    let report =
                        zinc_oracle::compare(kernel, &case.label, &initial, &expected, &outputs);
                    assert!(!report.ok(), "{name}: {report}");
                    spoilt += 1;
                };
                let mut free = 0;
                for region in &one.regions {
                    if region.start > free {
                        let at = free + rng.below((region.start - free) as u32) as usize;
                        try_bytes(at..at + 1, &[!outputs[one.buffer][at]]);
                    }
                    free = region.start + region.want.bytes();
                    let range = region.start..free;
                    let before = &outputs[one.buffer][range.clone()];
                    if let Some(bytes) = spoiled(&region.want, before, &mut rng) {
                        try_bytes(range, &bytes);
                    }
                }
                if len > free {
                    let at = free + rng.below((len - free) as u32) as usize;
                    try_bytes(at..at + 1, &[!outputs[one.buffer][at]]);
                }
            }
        }
        assert!(spoilt > 20, "{}: {spoilt}", kernel.name);
    }
}
