//! Dispatches of catalog kernels: contract, aliasing, concurrent use and the checks after a run.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{bytes, emulator, read_f32};
use zinc_contract::{Access, Buffer as BufferContract, ContractError, Expr, Kernel, kernel};
use zinc_emulator::{Buffer, EmulatorError};

fn vadd() -> &'static Kernel {
    kernel("vadd").unwrap()
}

fn inputs(n: usize) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    let a = Vec::from_iter((0..n).map(|i| i as f32 * 0.25));
    let b = Vec::from_iter((0..n).map(|i| 1000.0 - i as f32));
    let sum = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    (a, b, sum)
}

#[test]
fn vadd_runs_from_the_catalog() {
    let emulator = emulator();
    for n in [1usize, 31, 1000, 5000] {
        let (a, b, sum) = inputs(n);
        let buffers = [
            emulator.upload(&bytes(&a)).unwrap(),
            emulator.upload(&bytes(&b)).unwrap(),
            emulator.alloc(n as u64 * 4),
        ];
        let words = [n as u32];
        emulator.dispatch(vadd(), &words, &buffers).unwrap();
        assert_eq!(read_f32(&buffers[2]), sum);
        buffers[2].write(&vec![0; n * 4]).unwrap();
        let stats = emulator
            .dispatch_checked_twice(vadd(), &words, &buffers)
            .unwrap();
        assert!(stats.blocks > 0);
        assert_eq!(read_f32(&buffers[2]), sum);
    }
}

#[test]
fn nothing_to_do_runs_nothing() {
    let emulator = emulator();
    let empty = [(); 3].map(|()| Buffer::unbound());
    let stats = emulator.dispatch(vadd(), &[0], &empty).unwrap();
    assert_eq!(stats.blocks, 0);
}

#[test]
fn broken_contracts_are_refused_before_anything_runs() {
    let emulator = emulator();
    let buffers = [
        emulator.alloc(400),
        emulator.alloc(400),
        emulator.alloc(396),
    ];
    let error = emulator.dispatch(vadd(), &[100], &buffers).unwrap_err();
    assert!(
        matches!(
            error,
            EmulatorError::Contract(ContractError::BufferTooSmall { .. })
        ),
        "{error}"
    );
    assert_eq!(buffers[2].read(), vec![0xff; 396]);
}

#[test]
fn slices_of_one_allocation_can_be_bound_together() {
    let emulator = emulator();
    let (a, b, sum) = inputs(64);
    let all = emulator.alloc(3 * 256);
    let part = |index: u64| all.slice(index * 256..(index + 1) * 256).unwrap();
    part(0).write(&bytes(&a)).unwrap();
    part(1).write(&bytes(&b)).unwrap();
    let buffers = [part(0), part(1), part(2)];
    emulator
        .dispatch_checked_twice(vadd(), &[64], &buffers)
        .unwrap();
    assert_eq!(read_f32(&all)[128..], sum);
    assert_eq!(read_f32(&all)[..64], a);
}

/// vadd with a contract that says its result is only read.
fn vadd_that_reads_its_result() -> &'static Kernel {
    let copy = |expr: &Expr| Expr { ..*expr };
    let buffer = |buffer: &BufferContract| BufferContract {
        access: Access::Read,
        bytes: copy(&buffer.bytes),
        start: copy(&buffer.start),
        ..*buffer
    };
    let buffers = Vec::from_iter(vadd().buffers.iter().map(buffer)).leak();
    Box::leak(Box::new(Kernel { buffers, ..*vadd() }))
}

#[test]
fn change_of_a_read_only_buffer_is_found() {
    let emulator = emulator();
    let buffers = [(); 3].map(|()| emulator.upload(&bytes(&[1.0, 2.0])).unwrap());
    let error = emulator
        .dispatch_checked_twice(vadd_that_reads_its_result(), &[2], &buffers)
        .unwrap_err();
    let EmulatorError::ReadOnlyChanged { buffer, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(buffer, vadd().buffers[2].name);
    assert_eq!(
        read_f32(&buffers[2]),
        [1.0, 2.0],
        "the original is untouched"
    );
}

#[test]
fn kernel_without_an_implementation_is_an_error() {
    let emulator = emulator();
    let unknown = Kernel {
        name: "vadd_of_tomorrow",
        ..*vadd()
    };
    let empty = [(); 3].map(|()| Buffer::unbound());
    let error = emulator.dispatch(&unknown, &[0], &empty).unwrap_err();
    assert!(
        matches!(error, EmulatorError::NotEmulated { .. }),
        "{error}"
    );
}

#[test]
fn tasks_may_share_what_they_read() {
    use rayon::prelude::*;
    let emulator = emulator();
    let (a, b, sum) = inputs(20_000);
    let (a, b) = (
        emulator.upload(&bytes(&a)).unwrap(),
        emulator.upload(&bytes(&b)).unwrap(),
    );
    (0..32).into_par_iter().for_each(|_| {
        let out = emulator.alloc(80_000);
        let buffers = [a.clone(), b.clone(), out.clone()];
        emulator.dispatch(vadd(), &[20_000], &buffers).unwrap();
        assert_eq!(read_f32(&out), sum);
    });
}

#[test]
fn kernel_that_may_overlap_and_does_not_wait_is_found() {
    let kernel = zinc_contract::KERNELS
        .iter()
        .find(|kernel| kernel.pending.is_none() && !kernel.overlap);
    let kernel = kernel.unwrap();
    let hasty = Kernel {
        overlap: true,
        ..*kernel
    };
    let case = zinc_oracle::light_cases(kernel)
        .unwrap()
        .into_iter()
        .find(|case| case.buffers.iter().all(|buffer| !buffer.bytes.is_empty()));
    let case = case.unwrap();
    let emulator = emulator();
    let buffers = case.buffers.iter().map(|buffer| &buffer.bytes);
    let buffers = Vec::from_iter(buffers.map(|bytes| emulator.upload(bytes).unwrap()));
    emulator.dispatch(kernel, &case.words, &buffers).unwrap();
    let error = emulator
        .dispatch(&hasty, &case.words, &buffers)
        .unwrap_err();
    assert!(matches!(error, EmulatorError::NoWait { .. }), "{error}");
}
