//! Kernels that compute something, and what they must give under every order of threads.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::slice;

use common::{all_orders, bytes, emulator, grid, launch, read_f32, read_u32, test_kernels};
use std::time::Duration;
use zinc_contract::Geometry;
use zinc_emulator::{Emulator, EmulatorError, Options, Schedule};

test_kernels! {
    test_vadd test_block_sum test_histogram test_indices test_last_block test_speed test_async_copy
}

#[test]
fn vadd_adds_every_element_and_no_other() {
    let emulator = emulator();
    let n = 1000u32;
    let a = Vec::from_iter((0..n).map(|i| i as f32));
    let b = Vec::from_iter((0..n).map(|i| 0.5 * i as f32));
    let buffers = [
        emulator.upload(&bytes(&a)).unwrap(),
        emulator.upload(&bytes(&b)).unwrap(),
        emulator.alloc(u64::from(n) * 4),
    ];
    let stats = launch(&emulator, test_vadd(), grid(4, 256), &[n], &buffers).unwrap();
    assert_eq!((stats.blocks, stats.threads), (4, 1024));
    assert_eq!(
        stats.switches,
        4 * 8,
        "one coroutine per warp, no rendezvous"
    );
    let sums = Vec::from_iter(a.iter().zip(&b).map(|(a, b)| a + b));
    assert_eq!(read_f32(&buffers[2]), sums);
}

#[test]
fn block_sum_meets_in_shuffles_and_barriers() {
    for emulator in all_orders() {
        for threads in [32, 96, 1024] {
            let values = Vec::from_iter((0..5000u32).flat_map(|i| (i * i).to_ne_bytes()));
            let buffers = [emulator.upload(&values).unwrap(), emulator.alloc(4)];
            let stats = launch(
                &emulator,
                test_block_sum(),
                grid(1, threads),
                &[5000],
                &buffers,
            )
            .unwrap();
            let sum = (0..5000u32).fold(0u32, |sum, i| sum.wrapping_add(i * i));
            assert_eq!(read_u32(&buffers[1]), [sum]);
            assert_eq!((stats.barriers, stats.shared_bytes), (1, 128));
            assert_eq!(stats.warp_operations, u64::from(threads / 32) * 5);
        }
    }
}

#[test]
fn histogram_counts_across_blocks() {
    for emulator in all_orders() {
        let values =
            Vec::from_iter((0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8));
        let mut wanted = [0u32; 256];
        for &value in &values {
            wanted[usize::from(value)] += 1;
        }
        let buffers = [
            emulator.upload(&values).unwrap(),
            emulator.upload(&[0; 1024]).unwrap(),
        ];
        let geometry = Geometry {
            cluster: 1,
            shared_bytes: 1024,
            ..grid(37, 128)
        };
        launch(&emulator, test_histogram(), geometry, &[100_000], &buffers).unwrap();
        assert_eq!(read_u32(&buffers[1]), wanted);
    }
}

#[test]
fn indices_are_those_of_the_geometry() {
    for emulator in all_orders() {
        let geometry = Geometry {
            grid: [3, 4, 5],
            block: [7, 3, 2],
            cluster: 1,
            shared_bytes: 0,
        };
        let out = emulator.alloc(60 * 42 * 16);
        launch(
            &emulator,
            test_indices(),
            geometry,
            &[0],
            slice::from_ref(&out),
        )
        .unwrap();
        let words = read_u32(&out);
        for (place, words) in words.as_chunks::<4>().0.iter().enumerate() {
            let (block, thread) = (place as u32 / 42, place as u32 % 42);
            let wanted = [
                (block % 3) | ((block / 3 % 4) << 8) | ((block / 12) << 16),
                (thread % 7) | ((thread / 7 % 3) << 8) | ((thread / 21) << 16),
                thread % 32,
                32,
            ];
            assert_eq!(*words, wanted, "block {block}, thread {thread}");
        }
    }
}

#[test]
fn last_block_sees_what_all_blocks_wrote() {
    for emulator in all_orders() {
        let buffers = [
            emulator.alloc(400),
            emulator.upload(&[0; 4]).unwrap(),
            emulator.alloc(4),
        ];
        launch(&emulator, test_last_block(), grid(100, 64), &[0], &buffers).unwrap();
        assert_eq!(read_u32(&buffers[2]), [5050]);
    }
}

#[test]
fn async_copies_arrive_when_they_are_waited_for() {
    let emulator = emulator();
    let data = Vec::from_iter((0..64u32).flat_map(|i| (i | 0xabcd_0000).to_ne_bytes()));
    let buffers = [
        emulator.upload(&data).unwrap(),
        emulator.alloc(256),
        emulator.alloc(256),
    ];
    launch(&emulator, test_async_copy(), grid(1, 32), &[0], &buffers).unwrap();
    assert_eq!(read_u32(&buffers[1]), [u32::MAX; 64]);
    let first = (0..32).rev().map(|i| i | 0xabcd_0000);
    let second = (32..64).rev();
    assert_eq!(read_u32(&buffers[2]), Vec::from_iter(first.chain(second)));
}

#[test]
fn one_thread_and_many_give_the_same() {
    for threads in [0, 1, 2, 5] {
        let emulator = Emulator::new(Options {
            threads,
            ..Options::default()
        });
        let out = emulator.alloc(64 * 256 * 4);
        launch(
            &emulator,
            test_speed(),
            grid(64, 256),
            &[0],
            slice::from_ref(&out),
        )
        .unwrap();
        check_speed_kernel(&read_f32(&out));
    }
}

fn check_speed_kernel(out: &[f32]) {
    for (place, value) in out.iter().enumerate() {
        let t = place % 256;
        // Offsets 16, 8, 4 and 2 join the lanes of equal parity.
        let lanes = (0..16).map(|i| (255 - (t / 32 * 32 + t % 2 + 2 * i)) as f32);
        assert_eq!(*value, lanes.sum::<f32>(), "thread {t}");
    }
}

#[test]
fn dispatches_from_many_tasks_at_once_do_not_disturb_each_other() {
    use rayon::prelude::*;
    for threads in [0, 1, 2] {
        (0..64u32).into_par_iter().for_each(|task| {
            let emulator = Emulator::new(Options {
                threads,
                schedule: Schedule::Seeded(task.into()),
                ..Options::default()
            });
            let out = emulator.alloc(16 * 256 * 4);
            launch(
                &emulator,
                test_speed(),
                grid(16, 256),
                &[0],
                slice::from_ref(&out),
            )
            .unwrap();
            check_speed_kernel(&read_f32(&out));
        });
    }
}

#[test]
fn speed_of_rendezvous() {
    let emulator = Emulator::new(Options {
        threads: 1,
        ..Options::default()
    });
    let out = emulator.alloc(512 * 256 * 4);
    let mut best = Duration::MAX;
    let mut switches = 0;
    for _ in 0..5 {
        let stats = launch(
            &emulator,
            test_speed(),
            grid(512, 256),
            &[0],
            slice::from_ref(&out),
        )
        .unwrap();
        best = best.min(stats.elapsed);
        switches = stats.switches;
    }
    check_speed_kernel(&read_f32(&out));
    let each = best.as_secs_f64() * 1e9 / switches as f64;
    println!(
        "512 blocks of 256 threads, 6 rendezvous each: {best:?} on one core, {each:.1} ns a resumption"
    );
    // A hundred times what it takes on an idle machine, which may be busy.
    assert!(
        cfg!(debug_assertions) || best < Duration::from_secs(3),
        "{best:?}"
    );
}

#[test]
fn wrong_signature_and_impossible_blocks_are_errors() {
    let emulator = emulator();
    let out = emulator.alloc(4);
    let error = launch(
        &emulator,
        test_speed(),
        grid(1, 32),
        &[0, 0],
        slice::from_ref(&out),
    )
    .unwrap_err();
    assert!(matches!(error, EmulatorError::Signature { .. }), "{error}");
    let error = launch(
        &emulator,
        test_speed(),
        grid(1, 1025),
        &[0],
        slice::from_ref(&out),
    )
    .unwrap_err();
    assert!(matches!(error, EmulatorError::Geometry { .. }), "{error}");
    let geometry = Geometry {
        cluster: 1,
        shared_bytes: 1 << 20,
        ..grid(1, 32)
    };
    let error = launch(&emulator, test_speed(), geometry, &[0], &[out]).unwrap_err();
    assert!(matches!(error, EmulatorError::Geometry { .. }), "{error}");
}
