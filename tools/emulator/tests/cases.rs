//! The light cases of every kernel that has code, once each. In a build with sanitizers, this is what they look at.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use rayon::prelude::*;
use zinc_contract::{KERNELS, Kernel};
use zinc_emulator::{Buffer, Emulator, Options};
use zinc_oracle::Case;

/// The final contents of all buffers of a case, or why there are none.
fn run(emulator: &Emulator, case: &Case) -> Result<Vec<Vec<u8>>, String> {
    let owned = case.buffers.iter().map(|buffer| &buffer.bytes);
    let owned = Vec::from_iter(owned.map(|bytes| emulator.upload(bytes).unwrap()));
    let bound = (0..owned.len()).map(|index| owned[case.owner(index)].clone());
    let bound = Vec::from_iter(bound);
    emulator
        .dispatch(case.kernel, &case.words, &bound)
        .map_err(|error| format!("[{}] {error}", case.label))?;
    Ok(bound.iter().map(Buffer::read).collect())
}

/// The number of cases of a kernel, or the first that fails.
fn check(kernel: &'static Kernel) -> Result<usize, String> {
    // Kernels run in parallel, and the blocks of one do not.
    let emulator = |may_read_early| {
        Emulator::new(Options {
            threads: 1,
            may_read_early,
            watch_overlap: true,
            ..Options::default()
        })
    };
    let ways: &[bool] = match kernel.early {
        [] => &[true],
        _ => &[true, false],
    };
    let cases = zinc_oracle::light_cases(kernel).map_err(|error| error.to_string())?;
    for case in &cases {
        for way in ways {
            let outputs = run(&emulator(*way), case)?;
            let report = case.compare(&outputs).map_err(|error| error.to_string())?;
            if !report.ok() {
                return Err(report.to_string());
            }
        }
    }
    Ok(cases.len())
}

#[test]
fn every_kernel_passes_its_light_cases() {
    let kernels = KERNELS.iter().filter(|kernel| kernel.pending.is_none());
    let kernels = Vec::from_iter(kernels);
    let results = kernels
        .par_iter()
        .map(|kernel| check(kernel).map_err(|why| format!("{}: {why}", kernel.name)));
    let results = Vec::from_par_iter(results);
    let passed = results.iter().flatten().sum::<usize>();
    let failures = Vec::from_iter(results.iter().filter_map(|result| result.as_ref().err()));
    println!("{} kernels, {passed} cases", kernels.len());
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(passed >= 8 * kernels.len(), "{passed} cases are too few");
}
