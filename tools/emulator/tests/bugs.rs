//! Kernels with planted bugs, and the errors that must name them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::slice;

use common::{Kernel, all_orders, emulator, grid, launch, read_u32, test_kernels};
use zinc_contract::Geometry;
use zinc_emulator::{Buffer, Emulator, EmulatorError, Index, Options};

test_kernels! {
    bug_divergent_barrier bug_barrier_after_exit bug_different_masks bug_different_operations bug_not_in_mask
    bug_warp_after_exit bug_warp_and_barrier bug_shuffle_width bug_global_overrun bug_static_shared_overrun
    bug_dynamic_shared_overrun bug_too_much_shared bug_trap bug_race bug_uninitialised bug_block_race
    bug_missing_lane bug_global_read bug_read_before_wait test_speed
}

/// With sanitizers, the first access outside ends the process before any check of ours.
const SANITIZED: bool = match option_env!("ZINC_EMULATOR_SANITIZE") {
    Some(list) => !list.is_empty(),
    None => false,
};

/// The error of one block of 64 threads.
fn error_of(emulator: &Emulator, kernel: Kernel, word: u32) -> EmulatorError {
    let out = emulator.alloc(256);
    launch(emulator, kernel, grid(1, 64), &[word], &[out]).unwrap_err()
}

/// Where a comment stands in bugs.cu.
fn location(comment: &str) -> String {
    let text = include_str!("kernels/bugs.cu");
    let line = text
        .lines()
        .position(|line| line.contains(comment))
        .unwrap();
    format!("tools/emulator/tests/kernels/bugs.cu:{}", line + 1)
}

#[test]
fn divergent_barrier_names_both_lines() {
    for emulator in all_orders() {
        let error = error_of(&emulator, bug_divergent_barrier(), 40);
        let EmulatorError::DivergentBarrier {
            kernel,
            block,
            first,
            second,
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(kernel, "bug_divergent_barrier");
        assert_eq!(*block, Index([0, 0, 0]));
        assert_eq!(first.location, location("line: low threads"));
        assert_eq!(second.location, location("line: high threads"));
        assert_eq!(second.thread, Index([40, 0, 0]));
        assert!(error.to_string().contains("__syncthreads"), "{error}");
    }
}

#[test]
fn barrier_after_exit_names_the_thread_that_left() {
    for emulator in all_orders() {
        let error = error_of(&emulator, bug_barrier_after_exit(), 33);
        let EmulatorError::BarrierAfterExit {
            waiting, exited, ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(*exited, Index([33, 0, 0]));
        assert_eq!(waiting.location, location("line: barrier after exit"));
    }
}

#[test]
fn warp_operations_refuse_lanes_that_do_something_else() {
    for emulator in all_orders() {
        let error = error_of(&emulator, bug_different_masks(), 0);
        let EmulatorError::WarpMismatch { first, second, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((first.mask, second.mask), (Some(!0), Some(0xffff_0001)));

        let error = error_of(&emulator, bug_different_operations(), 0);
        let EmulatorError::WarpMismatch { first, second, .. } = &error else {
            panic!("{error}");
        };
        let operations = (first.operation.as_str(), second.operation.as_str());
        assert_eq!(operations, ("__ballot_sync", "__syncwarp"));

        let error = error_of(&emulator, bug_not_in_mask(), 7);
        let EmulatorError::NotInMask { waiting, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(waiting.thread.0[0] % 32, 7);

        let error = error_of(&emulator, bug_warp_after_exit(), 37);
        let EmulatorError::WarpAfterExit { exited, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(*exited, Index([37, 0, 0]));

        let error = error_of(&emulator, bug_warp_and_barrier(), 3);
        let EmulatorError::WarpMismatch { second, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(second.operation, "__syncthreads");
        assert_eq!(second.mask, None);
    }
}

#[test]
fn traps_name_thread_and_line() {
    let error = error_of(&emulator(), bug_trap(), 41);
    let EmulatorError::Trap {
        thread,
        reason,
        location: found,
        ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!(*thread, Index([41, 0, 0]));
    assert!(reason.contains("threadIdx.x != p.where"), "{reason}");
    assert_eq!(*found, location("line: assertion"));

    for width in [0, 3, 64] {
        let error = error_of(&emulator(), bug_shuffle_width(), width);
        assert!(matches!(error, EmulatorError::Trap { .. }), "{error}");
    }
}

#[test]
fn global_overruns_name_buffer_and_offset() {
    if SANITIZED {
        return;
    }
    for at in [-4096, -1, 5, 4100] {
        let emulator = emulator();
        let out = emulator.alloc(5);
        let word = (at as i32) as u32;
        let run = |buffer: &Buffer| {
            launch(
                &emulator,
                bug_global_overrun(),
                grid(1, 1),
                &[word],
                slice::from_ref(buffer),
            )
        };
        let error = run(&out).unwrap_err();
        let EmulatorError::Overrun {
            buffer,
            offset,
            bytes,
            ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!((buffer.as_str(), *offset, *bytes), ("0", at, 5));
    }
    let emulator = emulator();
    let out = emulator.alloc(5);
    launch(
        &emulator,
        bug_global_overrun(),
        grid(1, 1),
        &[4],
        slice::from_ref(&out),
    )
    .unwrap();
    assert_eq!(out.read(), [255, 255, 255, 255, 1]);
}

#[test]
fn shared_overruns_name_array_and_block() {
    if SANITIZED {
        return;
    }
    let emulator = emulator();
    let out = emulator.alloc(256);
    let launch = |kernel, geometry, word| {
        launch(&emulator, kernel, geometry, &[word], slice::from_ref(&out))
    };
    launch(bug_static_shared_overrun(), grid(3, 64), 7).unwrap();
    let error = launch(bug_static_shared_overrun(), grid(3, 64), 9).unwrap_err();
    let EmulatorError::SharedOverrun {
        block,
        array,
        offset,
        ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!(
        (*block, array.as_str(), *offset),
        (Index([1, 0, 0]), "tile", 36)
    );

    let dynamic = Geometry {
        cluster: 1,
        shared_bytes: 101,
        ..grid(1, 1)
    };
    launch(bug_dynamic_shared_overrun(), dynamic, 100).unwrap();
    let error = launch(bug_dynamic_shared_overrun(), dynamic, 101).unwrap_err();
    assert!(
        matches!(&error, EmulatorError::SharedOverrun { offset: 101, .. }),
        "{error}"
    );

    let error = launch(bug_too_much_shared(), grid(1, 32), 0).unwrap_err();
    assert!(
        matches!(
            &error,
            EmulatorError::SharedExhausted { bytes: 240_000, .. }
        ),
        "{error}"
    );
}

#[test]
fn two_runs_differ_when_threads_race_or_read_what_nobody_wrote() {
    let emulator = emulator();
    let twice = |(name, entry): Kernel, geometry| {
        let out = emulator.alloc(256);
        // SAFETY: the kernels write 64 words at most.
        unsafe { emulator.launch_checked_twice(name, entry, geometry, &[0], &[out]) }
    };
    for (kernel, geometry, wanted) in [
        // Every thread finds the poison of its neighbour, except the last one to run.
        (bug_race(), grid(1, 64), 0),
        (bug_uninitialised(), grid(1, 64), 63 * 4 + 3),
        (bug_block_race(), grid(2, 64), 0),
        (bug_missing_lane(), grid(1, 8), 4 * 4 + 3),
    ] {
        let error = twice(kernel, geometry).unwrap_err();
        let EmulatorError::NotDeterministic { buffer, offset, .. } = &error else {
            panic!("{error}");
        };
        let byte = if cfg!(target_endian = "little") {
            *offset
        } else {
            wanted
        };
        assert_eq!((buffer.as_str(), byte / 4), ("0", wanted / 4), "{error}");
    }
}

#[test]
fn checked_twice_leaves_the_result_in_the_buffers() {
    let emulator = emulator();
    let out = emulator.alloc(256 * 4);
    let (name, entry) = test_speed();
    // SAFETY: the kernel writes 256 words per block.
    let stats = unsafe {
        emulator.launch_checked_twice(name, entry, grid(1, 256), &[0], slice::from_ref(&out))
    };
    assert_eq!(stats.unwrap().blocks, 1);
    assert_ne!(read_u32(&out)[255], u32::MAX);
}

#[test]
fn emulator_still_works_after_a_failed_block() {
    for threads in [0, 1] {
        let emulator = Emulator::new(Options {
            threads,
            ..Options::default()
        });
        for _ in 0..20 {
            error_of(&emulator, bug_divergent_barrier(), 40);
            error_of(&emulator, bug_warp_after_exit(), 5);
            let out = emulator.alloc(256 * 4 * 4);
            launch(&emulator, test_speed(), grid(4, 256), &[0], &[out]).unwrap();
        }
    }
}

#[test]
fn sanitizer_finds_reads_and_writes_outside_buffers_and_shared_arrays() {
    if !SANITIZED {
        return;
    }
    for (child, kernel) in [
        ("reads_outside", "bug_global_read"),
        ("writes_outside", "bug_global_overrun"),
        ("writes_outside_shared", "bug_static_shared_overrun"),
        ("reads_before_the_wait", "bug_read_before_wait"),
    ] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", child])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{child} ended well");
        assert!(
            text.contains("use-after-poison") && text.contains(kernel),
            "{text}"
        );
    }
}

#[test]
#[ignore = "ends the process in a build with sanitizers, and is only run by the test above"]
fn reads_outside() {
    let emulator = emulator();
    let buffers = [emulator.alloc(5), emulator.alloc(1)];
    launch(&emulator, bug_global_read(), grid(1, 1), &[5], &buffers).unwrap();
}

#[test]
#[ignore = "ends the process in a build with sanitizers, and is only run by the test above"]
fn writes_outside() {
    let emulator = emulator();
    let out = emulator.alloc(5);
    let _ = launch(
        &emulator,
        bug_global_overrun(),
        grid(1, 1),
        &[u32::MAX],
        &[out],
    );
}

/// Runs a kernel that reads what the kernel before it writes, for which the first `waits` threads of a block wait.
fn overlapping(waits: u32) {
    let emulator = Emulator::new(Options {
        threads: 1,
        watch_overlap: true,
        ..emulator().options()
    });
    let input = emulator.upload(&[7; 256]).unwrap();
    let buffers = [input, emulator.alloc(256)];
    launch(
        &emulator,
        bug_read_before_wait(),
        grid(2, 32),
        &[waits],
        &buffers,
    )
    .unwrap();
    assert_eq!(buffers[1].read(), [7; 256]);
}

#[test]
fn reads_after_the_wait_are_allowed() {
    overlapping(32);
}

#[test]
#[ignore = "ends the process in a build with sanitizers, and is only run by the test above"]
fn reads_before_the_wait() {
    // All threads but the last one.
    overlapping(31);
}

#[test]
#[ignore = "ends the process in a build with sanitizers, and is only run by the test above"]
fn writes_outside_shared() {
    let emulator = emulator();
    let out = emulator.alloc(256);
    let _ = launch(
        &emulator,
        bug_static_shared_overrun(),
        grid(3, 64),
        &[9],
        &[out],
    );
}
