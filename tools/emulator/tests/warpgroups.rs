//! What kernels with warps of different roles are made of: phase barriers, and products by warpgroups.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{all_orders, bytes, emulator, grid, launch, read_f32, read_u32, test_kernels};
use zinc_emulator::EmulatorError;
use zinc_oracle::Rng;

test_kernels! {
    test_phase_ring bug_phase_never_ends bug_phase_not_made test_wgmma_64 test_wgmma_128
}

/// Where a comment stands in warpgroups.cu.
fn location(comment: &str) -> String {
    let text = include_str!("kernels/warpgroups.cu");
    let line = text
        .lines()
        .position(|line| line.contains(comment))
        .unwrap();
    format!("tools/emulator/tests/kernels/warpgroups.cu:{}", line + 1)
}

#[test]
fn ring_hands_every_stage_from_writer_to_readers() {
    for emulator in all_orders() {
        for rounds in [1u32, 3, 4, 40] {
            let values = Vec::from_iter((0..rounds * 32).map(|i| i.wrapping_mul(2_654_435_761)));
            let data = Vec::from_iter(values.iter().flat_map(|value| value.to_ne_bytes()));
            let buffers = [emulator.upload(&data).unwrap(), emulator.alloc(96 * 4)];
            let stats = launch(
                &emulator,
                test_phase_ring(),
                grid(1, 96),
                &[rounds],
                &buffers,
            )
            .unwrap();
            assert_eq!(stats.barriers, 1 + u64::from((rounds + 2) / 8));
            let wanted = (0..96).map(|thread| {
                let (lane, reads) = (thread % 32, thread >= 32);
                let rounds = values.as_chunks::<32>().0.iter().filter(|_| reads);
                rounds.fold(0u32, |sum, round| {
                    let both = round[31 - lane].wrapping_add(round[31 - (lane ^ 1)]);
                    sum.wrapping_add(both)
                })
            });
            assert_eq!(read_u32(&buffers[1]), Vec::from_iter(wanted), "{rounds}");
        }
    }
}

#[test]
fn phase_that_never_ends_names_thread_and_line() {
    for emulator in all_orders() {
        let out = emulator.alloc(256);
        let error =
            launch(&emulator, bug_phase_never_ends(), grid(1, 64), &[0], &[out]).unwrap_err();
        let EmulatorError::EndlessPhase {
            waiting,
            missing,
            arrivals,
            ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!((*missing, *arrivals), (1, 64));
        assert_eq!(waiting.thread.0[0], 0);
        assert_eq!(waiting.location, location("line: endless phase"));
    }
}

#[test]
fn barrier_that_nobody_made_names_the_line() {
    for emulator in all_orders() {
        let out = emulator.alloc(256);
        let error = launch(&emulator, bug_phase_not_made(), grid(1, 64), &[0], &[out]).unwrap_err();
        let EmulatorError::Trap {
            location: found, ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(*found, location("line: nobody made it"));
    }
}

#[test]
fn warpgroup_multiplies_rows_with_tokens() {
    const ROWS: usize = 64;
    const COLUMNS: usize = 64;
    // Whole numbers, so that every order of the sums gives the same.
    let mut rng = Rng::new(64);
    let mut draw = |count| Vec::from_iter((0..count).map(|_| rng.between(0, 16) as f32 - 8.0));
    for (kernel, tokens) in [(test_wgmma_64(), 64), (test_wgmma_128(), 128)] {
        let (a, b) = (draw(ROWS * COLUMNS), draw(tokens * COLUMNS));
        let before = draw(ROWS * tokens);
        for adds in [false, true] {
            let emulator = emulator();
            let halves = |values: &[f32]| {
                Vec::from_iter(values.iter().flat_map(|&value| half(value).to_ne_bytes()))
            };
            let buffers = [halves(&a), halves(&b), bytes(&before)]
                .map(|data| emulator.upload(&data).unwrap());
            launch(&emulator, kernel, grid(1, 128), &[adds.into()], &buffers).unwrap();
            let wanted = (0..ROWS * tokens).map(|i| {
                let (row, token) = (i / tokens * COLUMNS, i % tokens * COLUMNS);
                let sum = (0..COLUMNS).map(|c| a[row + c] * b[token + c]).sum::<f32>();
                if adds { before[i] + sum } else { sum }
            });
            assert_eq!(read_f32(&buffers[2]), Vec::from_iter(wanted), "{tokens}");
        }
    }
}

/// Binary16 of a small whole number.
fn half(value: f32) -> u16 {
    if value == 0.0 {
        return 0;
    }
    let bits = value.to_bits();
    let exponent = (bits >> 23 & 0xff) + 15 - 127;
    ((bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3ff)) as u16
}
