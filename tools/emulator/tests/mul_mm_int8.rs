//! The int8 matrix-matrix kernels give the same bits with `__dp4a` and with the tensor cores' instructions.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::Path;

use common::{Kernel, all_orders, emulator, grid, launch, read_u32, test_kernels};
use zinc_contract::kernel as contract;
use zinc_emulator::Buffer;
use zinc_oracle::{Rng, fixture};

test_kernels! {
    test_mma_int8_16 test_mma_int8_32
    test_dp4a_mul_mm_q4k_full_dp4a test_mma_mul_mm_q4k_full_dp4a test_wgmma_mul_mm_q4k_full_dp4a
    test_dp4a_mul_mm_q5k_full_dp4a test_mma_mul_mm_q5k_full_dp4a test_wgmma_mul_mm_q5k_full_dp4a
    test_dp4a_mul_mm_q6k_full_dp4a test_mma_mul_mm_q6k_full_dp4a test_wgmma_mul_mm_q6k_full_dp4a
    test_dp4a_mul_mm_q6k_full_dp4a_q8_1 test_mma_mul_mm_q6k_full_dp4a_q8_1 test_wgmma_mul_mm_q6k_full_dp4a_q8_1
    test_dp4a_mul_mm_q8_0_full_dp4a test_mma_mul_mm_q8_0_full_dp4a test_wgmma_mul_mm_q8_0_full_dp4a
    test_dp4a_mul_mm_q4k_gate_up_swiglu_full_dp4a test_mma_mul_mm_q4k_gate_up_swiglu_full_dp4a test_wgmma_mul_mm_q4k_gate_up_swiglu_full_dp4a
    test_dp4a_mul_mm_q4k_gate_up_swiglu_full_dp4a_q8 test_mma_mul_mm_q4k_gate_up_swiglu_full_dp4a_q8 test_wgmma_mul_mm_q4k_gate_up_swiglu_full_dp4a_q8
    test_dp4a_mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_1 test_mma_mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_1 test_wgmma_mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_1
}

/// Every kernel with its `__dp4a`, its mma and its wgmma form.
fn kernels() -> Vec<(&'static zinc_contract::Kernel, [Kernel; 3])> {
    let forms = [
        [
            test_dp4a_mul_mm_q4k_full_dp4a(),
            test_mma_mul_mm_q4k_full_dp4a(),
            test_wgmma_mul_mm_q4k_full_dp4a(),
        ],
        [
            test_dp4a_mul_mm_q5k_full_dp4a(),
            test_mma_mul_mm_q5k_full_dp4a(),
            test_wgmma_mul_mm_q5k_full_dp4a(),
        ],
        [
            test_dp4a_mul_mm_q6k_full_dp4a(),
            test_mma_mul_mm_q6k_full_dp4a(),
            test_wgmma_mul_mm_q6k_full_dp4a(),
        ],
        [
            test_dp4a_mul_mm_q6k_full_dp4a_q8_1(),
            test_mma_mul_mm_q6k_full_dp4a_q8_1(),
            test_wgmma_mul_mm_q6k_full_dp4a_q8_1(),
        ],
        [
            test_dp4a_mul_mm_q8_0_full_dp4a(),
            test_mma_mul_mm_q8_0_full_dp4a(),
            test_wgmma_mul_mm_q8_0_full_dp4a(),
        ],
        [
            test_dp4a_mul_mm_q4k_gate_up_swiglu_full_dp4a(),
            test_mma_mul_mm_q4k_gate_up_swiglu_full_dp4a(),
            test_wgmma_mul_mm_q4k_gate_up_swiglu_full_dp4a(),
        ],
        [
            test_dp4a_mul_mm_q4k_gate_up_swiglu_full_dp4a_q8(),
            test_mma_mul_mm_q4k_gate_up_swiglu_full_dp4a_q8(),
            test_wgmma_mul_mm_q4k_gate_up_swiglu_full_dp4a_q8(),
        ],
        [
            test_dp4a_mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_1(),
            test_mma_mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_1(),
            test_wgmma_mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_1(),
        ],
    ];
    let found = Vec::from_iter(forms.map(|forms| {
        let name = forms[0].0.trim_start_matches("test_dp4a_");
        (contract(name).unwrap(), forms)
    }));
    let all = zinc_contract::KERNELS.iter().filter(|kernel| {
        kernel.name.starts_with("mul_mm_") && kernel.name.contains("dp4a") && !kernel.extended
    });
    assert_eq!(found.len(), all.count(), "a kernel is missing here");
    found
}

/// Random bytes, every fourth one an extreme of int8.
fn quants(rng: &mut Rng, count: usize) -> Vec<u8> {
    let mut bytes = rng.bytes(count);
    for byte in &mut bytes {
        if rng.below(4) == 0 {
            *byte = rng.pick(&[0x80, 0x7f, 0x81]);
        }
    }
    bytes
}

#[test]
fn mma_multiplies_rows_with_tokens() {
    for emulator in all_orders() {
        for (kernel, columns) in [(test_mma_int8_16(), 16), (test_mma_int8_32(), 32)] {
            let mut rng = Rng::new(columns as u64);
            for extreme in [false, true] {
                let mut draw = |count| match extreme {
                    true => vec![0x80; count],
                    false => quants(&mut rng, count),
                };
                let (a, b) = (draw(16 * columns), draw(8 * columns));
                let start = Vec::from_iter((0..128).map(|i: i32| i32::MAX - 300_000 * i));
                let sums = Vec::from_iter(start.iter().flat_map(|sum| sum.to_ne_bytes()));
                let buffers = [&a, &b, &sums].map(|data| emulator.upload(data).unwrap());
                launch(&emulator, kernel, grid(1, 32), &[0], &buffers).unwrap();
                let wanted = (0..128).map(|i| {
                    let (row, token) = (i / 8 * columns, i % 8 * columns);
                    let products = (0..columns)
                        .map(|c| i32::from(a[row + c] as i8) * i32::from(b[token + c] as i8));
                    start[i].wrapping_add(products.sum()) as u32
                });
                assert_eq!(
                    read_u32(&buffers[2]),
                    Vec::from_iter(wanted),
                    "{columns} columns"
                );
            }
        }
    }
}

/// Sizes of a block, and where its f16 factors are.
fn layout(dtype: &str) -> (usize, &'static [usize]) {
    match dtype {
        "q4_k" => (144, &[0, 2]),
        "q5_k" => (176, &[0, 2]),
        "q6_k" => (210, &[208]),
        "q8_0" => (34, &[0]),
        _ => panic!("no such format here: {dtype}"),
    }
}

/// Any quants and scales, finite factors.
fn weights(rng: &mut Rng, dtype: &str, offset: usize, bytes: usize) -> Vec<u8> {
    let (block_bytes, factors) = layout(dtype);
    let mut data = quants(rng, bytes);
    for block in data[offset..].chunks_exact_mut(block_bytes) {
        for &at in factors {
            let exponent = rng.between(5, 12) as u16;
            let f16 = (rng.next_u64() as u16 & 0x83ff) | exponent << 10;
            block[at..at + 2].copy_from_slice(&f16.to_le_bytes());
        }
    }
    data
}

/// As much as the kernels in kernels/mul_mm_int8.cu have, for the tile of any form.
const SHARED_BYTES: u32 = 190_000;

/// The threads of a block that multiplies by wgmma, whatever the kernel's launch file says: two warpgroups multiply,
/// and one brings rows and tokens, or two where rows take much work.
fn wgmma_threads(name: &str) -> u32 {
    let bringers = if name.contains("q6k") { 2 } else { 1 };
    (2 + bringers) * 128
}

fn set_geometry(geometry: &mut zinc_contract::Geometry, (name, _): Kernel) {
    geometry.shared_bytes = SHARED_BYTES;
    if name.starts_with("test_wgmma_") {
        geometry.block = [wgmma_threads(name), 1, 1];
    }
}

/// Values of `words` by field name, with offsets and, but for `aligned` tokens, pitches that are no multiples of
/// anything.
fn words(
    kernel: &zinc_contract::Kernel,
    [m, n, k]: [u32; 3],
    a_offset: u32,
    aligned: bool,
) -> Vec<u32> {
    let value = |name: &str| match name {
        "m" => m,
        "n" => n,
        "k" => k,
        "a_offset" => a_offset,
        "stride_b_packed" => k / 4 + if aligned { 4 } else { 3 },
        "stride_b_scale" => k / 32 + 1,
        "stride_d" => m + 1,
        "stride_d_packed" => m / 4 + 1,
        "stride_d_scale" => m / 32 + 2,
        "d_offset" | "d_packed_offset" | "d_scale_offset" => 3,
        _ => panic!("{} has a field {name}", kernel.name),
    };
    kernel
        .fields
        .iter()
        .map(|field| value(field.name))
        .collect()
}

fn inputs(
    kernel: &zinc_contract::Kernel,
    words: &[u32],
    a_offset: u32,
    extreme: bool,
) -> Vec<Option<Vec<u8>>> {
    let mut rng = Rng::from_names(&[kernel.name, &format!("{words:?}")]);
    let mut make = |buffer: &zinc_contract::Buffer| {
        let bytes = (buffer.bytes.eval)(words).unwrap() as usize;
        match buffer.name {
            "a" | "a_gate" | "a_up" => {
                let mut data = weights(&mut rng, buffer.dtype, a_offset as usize, bytes);
                if extreme && buffer.dtype == "q8_0" {
                    // The largest sum: -128 times -128 everywhere.
                    for block in data[a_offset as usize..].chunks_exact_mut(34) {
                        block[2..].fill(0x80);
                    }
                }
                Some(data)
            }
            "b_packed" if extreme => Some(vec![0x80; bytes]),
            "b_packed" => Some(quants(&mut rng, bytes)),
            "b_scale" | "b_scale_dsum" => Some(common::bytes(&rng.normals(bytes / 4, 0.01))),
            _ => None,
        }
    };
    kernel.buffers.iter().map(&mut make).collect()
}

#[test]
fn all_forms_give_the_same_bits() {
    let emulator = emulator();
    let shapes: [[u32; 3]; 6] = [
        [1, 1, 256],
        [33, 72, 256],
        [64, 96, 512],
        [70, 33, 256],
        [160, 65, 256],
        [96, 130, 512],
    ];
    for (kernel, forms) in kernels() {
        let whole_blocks = kernel
            .buffers
            .iter()
            .any(|buffer| buffer.name == "d_packed");
        for (index, [m, n, k]) in shapes.into_iter().enumerate() {
            let m = match whole_blocks {
                true => m.div_ceil(32) * 32,
                false => m,
            };
            // Aligned for wide loads, or as little as the contracts allow.
            for (a_offset, extreme) in [(16, false), (4, index == 2)] {
                let words = words(kernel, [m, n, k], a_offset, a_offset == 16);
                let inputs = inputs(kernel, &words, a_offset, extreme);
                let geometry = kernel.geometry(0, 1, &words).unwrap().unwrap();
                let results = forms.map(|form| {
                    let mut geometry = geometry;
                    set_geometry(&mut geometry, form);
                    // A block that multiplies by wgmma goes on with the next tile where there are fewer blocks.
                    if index % 2 == 1 && form.0.starts_with("test_wgmma_") {
                        geometry.grid = [1, 1, 1];
                    }
                    let place = |(input, buffer): (&Option<Vec<u8>>, &zinc_contract::Buffer)| {
                        let bytes = (buffer.bytes.eval)(&words).unwrap() as u64;
                        match input {
                            Some(data) => emulator.upload(data).unwrap(),
                            None => emulator.alloc(bytes),
                        }
                    };
                    let buffers = Vec::from_iter(inputs.iter().zip(kernel.buffers).map(place));
                    launch(&emulator, form, geometry, &words, &buffers).unwrap();
                    let outputs = buffers.iter().zip(&inputs);
                    let outputs = outputs.filter(|(_, input)| input.is_none());
                    Vec::from_iter(outputs.map(|(buffer, _)| read_u32(buffer)))
                });
                let case = format!("{}: {m} x {n} x {k}, offset {a_offset}", kernel.name);
                for (form, result) in forms.iter().zip(&results).skip(1) {
                    for (output, (dp4a, other)) in results[0].iter().zip(result).enumerate() {
                        let first = (0..dp4a.len()).find(|&i| dp4a[i] != other[i]);
                        assert_eq!(
                            first, None,
                            "{case}: first difference of {} in output {output}",
                            form.0
                        );
                        assert!(
                            dp4a.iter().any(|&word| word != u32::MAX),
                            "{case}: nothing written"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn all_forms_meet_their_fixtures() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let emulator = emulator();
    for (kernel, forms) in kernels() {
        let path = fixtures.join(format!("{}.safetensors", kernel.name));
        let fixture = fixture::read(&std::fs::read(&path).unwrap(), zinc_contract::kernel).unwrap();
        for form in forms {
            let mut geometry = kernel.geometry(0, 1, &fixture.words).unwrap().unwrap();
            set_geometry(&mut geometry, form);
            let buffers = Vec::from_iter(
                fixture
                    .contents()
                    .into_iter()
                    .map(|data| emulator.upload(data).unwrap()),
            );
            let (name, entry) = form;
            // SAFETY: the fixture meets the contract of the kernel, which this is a form of.
            unsafe {
                emulator.launch_checked_twice(name, entry, geometry, &fixture.words, &buffers)
            }
            .unwrap();
            let outputs = Vec::from_iter(buffers.iter().map(Buffer::read));
            let report = fixture::compare(&fixture, &outputs);
            assert!(report.ok(), "{name}: {report}");
        }
    }
}
