//! The matrix-matrix kernels with f32 and f16 tokens by warpgroups pass the cases of the kernels that they are a form of.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Kernel, test_kernels};
use rayon::prelude::*;
use zinc_contract::{Geometry, kernel as contract};
use zinc_emulator::{Buffer, Emulator, Options, Schedule};
use zinc_oracle::Case;

test_kernels! {
    test_wgmma_mul_mm_q4k test_wgmma_mul_mm_q5k test_wgmma_mul_mm_q6k test_wgmma_mul_mm_q8_0
    test_wgmma_mul_mm_q4k_gate_up_swiglu
    test_wgmma_mul_mm_q4k_gate_up_swiglu_full test_wgmma_mul_mm_q4k_gate_up_geglu
    test_wgmma_mul_mm_q6k_full
    test_wgmma_mul_mm_q4k_f16 test_wgmma_mul_mm_q5k_f16 test_wgmma_mul_mm_q6k_f16 test_wgmma_mul_mm_q8_0_f16
}

/// As the kernels in kernels/mul_mm_wgmma.cu have it: with f32 tokens the last tile may be four small ones.
/// Those with f16 tokens walk over the tiles with any grid.
fn geometry(case: &Case, has_small: bool) -> Geometry {
    let word = |name: &str| {
        let field = case.kernel.fields.iter().position(|f| f.name == name);
        case.words[field.unwrap()]
    };
    let matrices = case
        .kernel
        .buffers
        .iter()
        .filter(|b| b.dtype.starts_with('q'));
    let matrices = matrices.count() as u32;
    let tiles = word("m").div_ceil(256 / matrices) * word("n").div_ceil(128);
    let blocks = tiles + if has_small { 3 } else { 0 };
    Geometry {
        grid: [
            if case.kernel.name.ends_with("_f16") {
                2
            } else {
                blocks
            },
            1,
            1,
        ],
        block: [384, 1, 1],
        cluster: 1,
        shared_bytes: 227 * 1024,
    }
}

fn check(schedule: Schedule, kernel: Kernel, case: &Case, has_small: bool) -> Result<(), String> {
    let emulator = Emulator::new(Options {
        threads: 1,
        schedule,
        ..Options::default()
    });
    let owned = case.buffers.iter().map(|buffer| &buffer.bytes);
    let owned = Vec::from_iter(owned.map(|bytes| emulator.upload(bytes).unwrap()));
    let bound = (0..owned.len()).map(|index| owned[case.owner(index)].clone());
    let bound = Vec::from_iter(bound);
    let (name, entry) = kernel;
    // SAFETY: the case meets the contract of the kernel, which this is a form of.
    unsafe { emulator.launch(name, entry, geometry(case, has_small), &case.words, &bound) }
        .map_err(|error| format!("[{}] {error}", case.label))?;
    let outputs = Vec::from_iter(bound.iter().map(Buffer::read));
    let report = case.compare(&outputs).map_err(|error| error.to_string())?;
    match report.ok() {
        true => Ok(()),
        false => Err(format!("[{}] {report}", case.label)),
    }
}

#[test]
fn kernels_pass_their_cases_by_warpgroups() {
    let kernels = [
        test_wgmma_mul_mm_q4k(),
        test_wgmma_mul_mm_q5k(),
        test_wgmma_mul_mm_q6k(),
        test_wgmma_mul_mm_q8_0(),
        test_wgmma_mul_mm_q4k_gate_up_swiglu(),
        test_wgmma_mul_mm_q4k_gate_up_swiglu_full(),
        test_wgmma_mul_mm_q4k_gate_up_geglu(),
        test_wgmma_mul_mm_q6k_full(),
        test_wgmma_mul_mm_q4k_f16(),
        test_wgmma_mul_mm_q5k_f16(),
        test_wgmma_mul_mm_q6k_f16(),
        test_wgmma_mul_mm_q8_0_f16(),
    ];
    let runs = kernels.par_iter().flat_map(|kernel| {
        let name = kernel.0.trim_start_matches("test_wgmma_");
        let cases = zinc_oracle::light_cases(contract(name).unwrap()).unwrap();
        assert!(cases.len() >= 8, "{name}");
        let schedules = [Schedule::Forward, Schedule::Reverse, Schedule::Seeded(3)];
        let checks = cases.into_iter().zip(schedules.into_iter().cycle());
        checks.par_bridge().flat_map_iter(move |(case, schedule)| {
            let grids: &[bool] = if name.ends_with("_f16") {
                &[false]
            } else {
                &[false, true]
            };
            grids.iter().filter_map(move |&has_small| {
                let result = check(schedule, *kernel, &case, has_small);
                result.err().map(|error| format!("{name}: {error}"))
            })
        })
    });
    let failures = Vec::from_par_iter(runs);
    assert!(failures.is_empty(), "{failures:#?}");
}
