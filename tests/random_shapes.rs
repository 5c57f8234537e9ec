//! Every kernel that has code agrees with its reference on dispatches of random shape and contents, on the emulator.
//!
//! Seeds are new on every run; `PROPTEST_CASES` sets how many each kernel gets, and `PROPTEST_RNG_SEED` repeats a run.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use zinc_contract::{KERNELS, Kernel};
use zinc_emulator::{Buffer, Emulator, Options};
use zinc_oracle::{Case, Rng};

/// Seeds per kernel, where the environment says nothing.
const SEEDS: u32 = 16;

fn implemented() -> impl Iterator<Item = &'static Kernel> {
    KERNELS.iter().filter(|kernel| kernel.pending.is_none())
}

fn config() -> Config {
    let config = Config::default();
    let cases = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => config.cases,
        None => SEEDS,
    };
    // A failure names its seed, and nothing is written to the sources.
    Config {
        cases,
        failure_persistence: None,
        ..config
    }
}

/// The final contents of all buffers, after runs with opposite orders of threads that gave the same bits.
fn run(case: &Case) -> Result<Vec<Vec<u8>>, String> {
    // The shapes are too small to be worth more threads.
    let emulator = Emulator::new(Options {
        threads: 1,
        ..Options::default()
    });
    let owned = case.buffers.iter().map(|buffer| &buffer.bytes);
    let owned = Vec::from_iter(owned.map(|bytes| emulator.upload(bytes).unwrap()));
    let bound = (0..owned.len()).map(|index| owned[case.owner(index)].clone());
    let bound = Vec::from_iter(bound);
    emulator
        .dispatch_checked_twice(case.kernel, &case.words, &bound)
        .map_err(|error| error.to_string())?;
    Ok(bound.iter().map(Buffer::read).collect())
}

/// Compares one random dispatch with the reference, after `change` had its way with the result.
///
/// # Errors
/// What is wrong, with the words of the dispatch.
fn check(
    kernel: &'static Kernel,
    seed: u64,
    change: fn(&Case, &mut [Vec<u8>], &mut Rng),
) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let case =
        zinc_oracle::random_case(kernel, &mut rng).map_err(|error| format!("no case: {error}"))?;
    let judge = |rng: &mut Rng| {
        let mut outputs = run(&case)?;
        change(&case, &mut outputs, rng);
        let report = case.compare(&outputs).map_err(|error| error.to_string())?;
        if report.ok() {
            Ok(())
        } else {
            Err(report.to_string())
        }
    };
    judge(&mut rng).map_err(|why| {
        let fields = kernel.fields.iter().zip(&case.words);
        let fields = fields.map(|(field, word)| format!("{} = {word}", field.name));
        format!("{why}; {}", Vec::from_iter(fields).join(", "))
    })
}

/// Checks a kernel with random seeds, up to the first that fails.
///
/// # Errors
/// The kernel, the seed and what is wrong.
fn search(
    kernel: &'static Kernel,
    change: fn(&Case, &mut [Vec<u8>], &mut Rng),
) -> Result<(), (u64, String)> {
    // A smaller seed gives no smaller shape.
    let seeds = any::<u64>().no_shrink();
    let result = TestRunner::new(config()).run(&seeds, |seed| {
        check(kernel, seed, change).map_err(TestCaseError::fail)
    });
    match result {
        Ok(()) => Ok(()),
        Err(TestError::Fail(why, seed)) => {
            Err((seed, format!("{}, seed {seed}: {why}", kernel.name)))
        }
        Err(TestError::Abort(why)) => panic!("{}: {why}", kernel.name),
    }
}

#[test]
fn kernels_agree_with_their_references_on_random_shapes() {
    let failures = implemented().filter_map(|kernel| search(kernel, |_, _, _| ()).err());
    let failures = Vec::from_iter(failures.map(|(_, text)| text));
    assert!(
        failures.is_empty(),
        "{} kernels fail:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Puts a NaN, or 1 over a NaN or an infinity, somewhere into a buffer that the kernel writes: into what it computes or what it has to
/// leave alone. No tolerance is wide enough for that; a sum that cancels may have one that takes it for zero.
fn corrupt(case: &Case, outputs: &mut [Vec<u8>], rng: &mut Rng) {
    let buffers = case.kernel.buffers.iter().enumerate();
    let written = buffers.filter(|(index, buffer)| {
        buffer.access.writes() && case.owner(*index) == *index && outputs[*index].len() >= 4
    });
    let written = Vec::from_iter(written.map(|(index, _)| index));
    let output = &mut outputs[rng.pick(&written)];
    let (words, _) = output.as_chunks_mut::<4>();
    let word = &mut words[rng.below(words.len() as u32) as usize];
    let wrong = match f32::from_le_bytes(*word).is_finite() {
        true => f32::NAN,
        false => 1.0,
    };
    *word = wrong.to_le_bytes();
}

#[test]
fn one_wrong_word_is_found_in_the_result_of_every_kernel() {
    let unseen = implemented().filter(|kernel| {
        let mut rng = Rng::from_names(&["one wrong word", kernel.name]);
        let found = (0..4).filter(|_| check(kernel, rng.next_u64(), corrupt).is_err());
        // Contracts leave elements open whose f32 intermediates overflow; one word may be such.
        found.count() < 3
    });
    let unseen = Vec::from_iter(unseen.map(|kernel| kernel.name));
    assert!(unseen.is_empty(), "not found: {unseen:?}");
}

#[test]
fn failure_names_kernel_and_seed_and_the_seed_repeats_it() {
    let kernel = zinc_contract::kernel("vadd").unwrap();
    let (seed, text) = search(kernel, corrupt).unwrap_err();
    assert!(text.starts_with(&format!("vadd, seed {seed}: ")), "{text}");
    let again = check(kernel, seed, corrupt).unwrap_err();
    assert!(text.ends_with(&again), "{text}\n{again}");
    assert_eq!(check(kernel, seed, |_, _, _| ()), Ok(()));
}
