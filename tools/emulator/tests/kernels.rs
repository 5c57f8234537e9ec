//! Kernels that compute something, and what they must give.

mod common;

use common::{emulator, grid, read_f32, test_kernels};

test_kernels! { test_vadd }

#[test]
fn vadd_adds_every_element_and_no_other() {
    let emulator = emulator();
    let n = 1000u32;
    let a = Vec::from_iter((0..n).map(|i| i as f32));
    let b = Vec::from_iter((0..n).map(|i| 0.5 * i as f32));
    let buffers = [
        emulator.upload(&common::bytes(&a)).unwrap(),
        emulator.upload(&common::bytes(&b)).unwrap(),
        emulator.alloc(u64::from(n) * 4),
    ];
    let stats = common::launch(&emulator, test_vadd(), grid(4, 256), &[n], &buffers).unwrap();
    assert_eq!((stats.blocks, stats.threads), (4, 1024));
    let sums = Vec::from_iter(a.iter().zip(&b).map(|(a, b)| a + b));
    assert_eq!(read_f32(&buffers[2]), sums);
}
