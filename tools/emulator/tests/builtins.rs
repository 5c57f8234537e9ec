//! Every built-in against a plain computation of what CUDA says it gives.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::slice;

use common::{all_orders, bytes, emulator, grid, launch, read_f32, read_u32, test_kernels};
use zinc_emulator::{Emulator, Options};

test_kernels! {
    test_shuffle test_votes test_halves test_counting_barriers test_collective
    test_integers test_floats test_functions test_atomics
}

/// The lane that a shuffle reads, by the rules of PTX: `None` for the lane's own value.
fn source(operation: u32, lane: i64, argument: i64, width: i64) -> Option<i64> {
    let segment = lane - lane % width;
    match operation {
        0 => Some(segment + argument.rem_euclid(width)),
        1 => Some(lane - argument % 32).filter(|&from| from >= segment),
        2 => Some(lane + argument % 32).filter(|&from| from < segment + width),
        _ => Some(lane ^ (argument % 32)).filter(|&from| from < segment + width),
    }
}

#[test]
fn shuffles_read_the_lane_that_width_and_direction_say() {
    for emulator in all_orders() {
        for threads in [64u32, 40] {
            for width in [1u32, 2, 4, 8, 16, 32] {
                for argument in [0u32, 1, 3, 5, 16, 31, 32, 33] {
                    for operation in 0..4 {
                        let out = emulator.alloc(u64::from(threads) * 16);
                        let words = [operation, argument, width];
                        launch(
                            &emulator,
                            test_shuffle(),
                            grid(1, threads),
                            &words,
                            slice::from_ref(&out),
                        )
                        .unwrap();
                        check_shuffle(&read_u32(&out), threads, words);
                    }
                }
            }
        }
    }
}

fn check_shuffle(out: &[u32], threads: u32, [operation, argument, width]: [u32; 3]) {
    for (thread, found) in (0u32..).zip(out.as_chunks::<4>().0) {
        let lane = thread % 32;
        let from = source(operation, lane.into(), argument.into(), width.into());
        let from = thread - lane + from.map_or(lane, |from| from as u32);
        if from >= threads {
            // A lane that the block does not have: poison.
            assert_eq!((found[0], found[2]), (u32::MAX, u32::MAX));
            continue;
        }
        assert_eq!(
            *found, [from; 4],
            "operation {operation}, argument {argument}, width {width}, thread {thread}"
        );
    }
}

#[test]
fn negative_index_wraps_in_its_segment() {
    let emulator = emulator();
    let out = emulator.alloc(32 * 16);
    let words = [0, -1i32 as u32, 8];
    launch(
        &emulator,
        test_shuffle(),
        grid(1, 32),
        &words,
        slice::from_ref(&out),
    )
    .unwrap();
    assert_eq!(read_u32(&out)[0], 7);
}

#[test]
fn votes_and_reductions_see_exactly_the_lanes_of_the_mask() {
    let value = |lane: u32| match lane % 5 {
        0 => -7i32,
        1 => 0,
        2 => 12 + lane as i32,
        _ => 3,
    };
    for emulator in all_orders() {
        for (threads, mask) in [
            (32u32, u32::MAX),
            (32, 0x00f0_1234),
            (20, 0x000f_ffff),
            (20, 0x8_0001),
            (1, 1),
        ] {
            let lanes = Vec::from_iter((0..threads).filter(|lane| mask >> lane & 1 == 1));
            let values = Vec::from_iter(lanes.iter().map(|&lane| value(lane)));
            let data = Vec::from_iter((0..32).flat_map(|lane| value(lane).to_ne_bytes()));
            let buffers = [emulator.upload(&data).unwrap(), emulator.alloc(32 * 64)];
            launch(&emulator, test_votes(), grid(1, threads), &[mask], &buffers).unwrap();
            let out = read_u32(&buffers[1]);
            let ballot_of = |holds: &dyn Fn(i32) -> bool| {
                lanes
                    .iter()
                    .filter(|&&lane| holds(value(lane)))
                    .fold(0u32, |ballot, lane| ballot | 1 << lane)
            };
            let unsigned = || values.iter().map(|&value| value as u32);
            let all_equal = values.iter().all(|&value| value == values[0]);
            for &lane in &lanes {
                let positive = ballot_of(&|value| value > 0);
                let wanted = [
                    positive,
                    u32::from(positive != 0),
                    u32::from(values.iter().all(|&value| value > 0)),
                    ballot_of(&|other| other == value(lane)),
                    if all_equal { mask } else { 0 },
                    all_equal.into(),
                    unsigned().fold(0, u32::wrapping_add),
                    *values.iter().min().unwrap() as u32,
                    *values.iter().max().unwrap() as u32,
                    unsigned().min().unwrap(),
                    unsigned().max().unwrap(),
                    unsigned().fold(!0, |a, b| a & b),
                    unsigned().fold(0, |a, b| a | b),
                    unsigned().fold(0, |a, b| a ^ b),
                    1,
                ];
                let start = lane as usize * 16;
                assert_eq!(out[start..start + 15], wanted, "lane {lane} of {mask:#x}");
            }
        }
    }
}

#[test]
fn full_mask_is_tolerated_in_a_partial_warp() {
    let emulator = emulator();
    let data = [1u8; 128];
    let buffers = [emulator.upload(&data).unwrap(), emulator.alloc(32 * 64)];
    launch(&emulator, test_votes(), grid(1, 20), &[u32::MAX], &buffers).unwrap();
    let out = read_u32(&buffers[1]);
    assert_eq!(out[0], 0xf_ffff, "ballot of the 20 lanes that exist");
    assert_eq!(out[4], 0xf_ffff);
}

#[test]
fn halves_of_a_warp_meet_with_masks_of_their_own() {
    for emulator in all_orders() {
        let out = emulator.alloc(128);
        launch(
            &emulator,
            test_halves(),
            grid(1, 32),
            &[0],
            slice::from_ref(&out),
        )
        .unwrap();
        let thirds = (16..32)
            .filter(|lane| lane % 3 == 0)
            .fold(0u32, |ballot, lane| ballot | 1 << lane);
        let words = read_u32(&out);
        assert_eq!(words[..16], [!0x0000_aaaa; 16]);
        assert_eq!(words[16..], [!thirds; 16]);
    }
}

#[test]
fn counting_barriers_count() {
    for emulator in all_orders() {
        for (below, wanted) in [(0, [0, 0, 0]), (33, [33, 1, 0]), (100, [100, 1, 1])] {
            let out = emulator.alloc(100 * 12);
            launch(
                &emulator,
                test_counting_barriers(),
                grid(1, 100),
                &[below],
                slice::from_ref(&out),
            )
            .unwrap();
            assert!(
                read_u32(&out)
                    .as_chunks::<3>()
                    .0
                    .iter()
                    .all(|found| *found == wanted)
            );
        }
    }
}

#[test]
fn collectives_see_all_lanes_once() {
    for emulator in all_orders() {
        let out = emulator.alloc(40 * 4);
        launch(
            &emulator,
            test_collective(),
            grid(1, 40),
            &[0],
            slice::from_ref(&out),
        )
        .unwrap();
        let first = (0..32).map(|lane: u32| lane * lane.saturating_sub(1) / 2);
        let second = (0..8).map(|lane: u32| (32..32 + lane).sum());
        assert_eq!(read_u32(&out), Vec::from_iter(first.chain(second)));
    }
}

fn each_byte(a: u32, b: u32, f: impl Fn(u8, u8) -> u8) -> u32 {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    u32::from_le_bytes([0, 1, 2, 3].map(|i| f(a[i], b[i])))
}

fn byte_perm(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = [a.to_le_bytes(), b.to_le_bytes()].concat();
    let pick = |i: u32| {
        let nibble = selector >> (4 * i) & 15;
        let byte = bytes[(nibble & 7) as usize];
        if nibble & 8 == 0 {
            byte
        } else if byte >= 128 {
            255
        } else {
            0
        }
    };
    u32::from_le_bytes([0, 1, 2, 3].map(pick))
}

#[test]
fn integer_intrinsics() {
    let emulator = emulator();
    let mut triples = vec![
        [0, 0, 0],
        [u32::MAX, u32::MAX, 33],
        [0x8000_0001, 1, 32],
        [0x7f80_ff01, 0x8081_7f02, 0x1234_5678],
        [0xffff_ffff, 0x8080_8080, 0xfedc],
        [0x0080_0000, 0x00ff_ffff, 31],
    ];
    let mut state = 1u32;
    triples.extend((0..58).map(|_| {
        [(); 3].map(|()| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state ^ state >> 15
        })
    }));
    let data = Vec::from_iter(triples.iter().flatten().flat_map(|word| word.to_ne_bytes()));
    let out = emulator.alloc(64 * 256);
    let buffers = [emulator.upload(&data).unwrap(), out.clone()];
    launch(&emulator, test_integers(), grid(1, 64), &[0], &buffers).unwrap();
    let out = read_u32(&out);
    for (thread, &[a, b, c]) in triples.iter().enumerate() {
        let (sa, sb) = (a as i32, b as i32);
        let (ab, bb) = (a.to_le_bytes(), b.to_le_bytes());
        let dot = |i: usize| i32::from(ab[i] as i8) * i32::from(bb[i] as i8);
        let dot2 = |first: usize| {
            (0..2).fold(c, |sum, i| {
                let half = (a >> (16 * i)) as i16;
                sum.wrapping_add((i32::from(half) * i32::from(bb[first + i] as i8)) as u32)
            })
        };
        let wide = u64::from(b) << 32 | u64::from(a);
        let shift = c & 31;
        let int24 = |x: i32| i64::from(x << 8 >> 8);
        let swapped = u64::from(a) << 32 | u64::from(b);
        let wanted = [
            (0..4).fold(c, |sum, i| sum.wrapping_add(dot(i) as u32)),
            (0..4).fold(c, |sum, i| {
                sum.wrapping_add(u32::from(ab[i]) * u32::from(bb[i]))
            }),
            dot2(0),
            dot2(2),
            byte_perm(a, b, c),
            (wide << shift >> 32) as u32,
            (wide >> shift) as u32,
            if c >= 32 {
                a
            } else {
                (wide << shift >> 32) as u32
            },
            if c >= 32 { b } else { (wide >> shift) as u32 },
            a.count_ones(),
            a.leading_zeros(),
            if a == 0 { 0 } else { a.trailing_zeros() + 1 },
            a.reverse_bits(),
            ((u64::from(a) * u64::from(b)) >> 32) as u32,
            ((i64::from(sa) * i64::from(sb)) >> 32) as u32,
            (int24(sa) * int24(sb)) as u32,
            (u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff)) as u32,
            sa.min(sb) as u32,
            sa.max(sb) as u32,
            a.min(b),
            a.max(b),
            sa.wrapping_abs() as u32,
            each_byte(a, b, |x, y| (x as i8).saturating_sub(y as i8) as u8),
            each_byte(a, b, u8::wrapping_add),
            each_byte(a, b, u8::wrapping_sub),
            each_byte(a, b, |x, y| if x == y { 0 } else { 255 }),
            each_byte(a, b, |x, _| (x as i8).wrapping_abs() as u8),
            a.abs_diff(b).wrapping_add(c),
            swapped.count_ones(),
            swapped.leading_zeros(),
        ];
        let found = &out[thread * 64..thread * 64 + wanted.len()];
        assert_eq!(found, wanted, "a = {a:#x}, b = {b:#x}, c = {c:#x}");
    }
}

#[test]
fn float_intrinsics_round_and_saturate_as_on_a_gpu() {
    let emulator = emulator();
    let tiny = f32::from_bits(1);
    let triples = [
        [0.5f32, 2.0, 1.0],
        [1.5, -3.0, 0.25],
        [-2.5, 7.0, 1e-8],
        [3e9, 1.0, 0.0],
        [-3e9, 4.0, 0.0],
        [f32::NAN, 1.0, 2.0],
        [f32::INFINITY, 2.0, 1.0],
        [tiny, 0.5, tiny],
        [1.0 + f32::EPSILON, 1.0 + f32::EPSILON, -1.0],
        [2_147_483_648.0, 3.0, 1.0],
        [8_388_609.5, 16_777_217.0, -1.0],
    ];
    let data = Vec::from_iter(triples.iter().flat_map(|triple| bytes(triple)));
    let out = emulator.alloc(11 * 128);
    let buffers = [emulator.upload(&data).unwrap(), out.clone()];
    launch(&emulator, test_floats(), grid(1, 11), &[0], &buffers).unwrap();
    let out = read_u32(&out);
    for (thread, &[a, b, c]) in triples.iter().enumerate() {
        let root = (1.0 / f64::from(a.abs()).sqrt()) as f32;
        // Rust's casts saturate and turn NaN into 0 too.
        let wanted = [
            a.round_ties_even() as i32 as u32,
            a.trunc() as i32 as u32,
            a.floor() as i32 as u32,
            a.ceil() as i32 as u32,
            a.round_ties_even() as u32,
            a.mul_add(b, c).to_bits(),
            (a * b + c).to_bits(),
            a.mul_add(b, c).to_bits(),
            (a / b).to_bits(),
            (1.0 / a).to_bits(),
            root.to_bits(),
            a.abs().sqrt().to_bits(),
            if a.is_nan() {
                0.0f32
            } else {
                a.clamp(0.0, 1.0)
            }
            .to_bits(),
            a.min(b).to_bits(),
            a.max(b).to_bits(),
            (a.to_bits() as i32 as f32).to_bits(),
            (a.to_bits() as f32).to_bits(),
            a as i64 as u32,
            a.to_bits(),
        ];
        let found = &out[thread * 32..thread * 32 + wanted.len()];
        for (which, (&found, wanted)) in found.iter().zip(wanted).enumerate() {
            let (x, y) = (f32::from_bits(found), f32::from_bits(wanted));
            let same = found == wanted || (which >= 5 && x.is_nan() && y.is_nan());
            assert!(
                same,
                "result {which} of {a}, {b}, {c}: {found:#x}, not {wanted:#x}"
            );
        }
    }
}

#[test]
fn functions_are_accurate() {
    let emulator = emulator();
    let xs = Vec::from_iter((1..=64).map(|i| i as f32 * 0.17));
    let out = emulator.alloc(64 * 64);
    let buffers = [emulator.upload(&bytes(&xs)).unwrap(), out.clone()];
    launch(&emulator, test_functions(), grid(1, 64), &[0], &buffers).unwrap();
    let out = read_f32(&out);
    for (thread, &x) in xs.iter().enumerate() {
        let x = f64::from(x);
        let wanted = [
            x.exp(),
            x.exp2(),
            x.ln(),
            x.log2(),
            x.powf(1.5),
            x.sin(),
            x.cos(),
            x.tanh(),
            x.sin(),
            x.cos(),
            x.sin(),
            x.cos(),
        ];
        for (which, wanted) in wanted.into_iter().enumerate() {
            let found = f64::from(out[thread * 16 + which]);
            let close = (found - wanted).abs() <= 2e-7 * wanted.abs().max(1e-3);
            assert!(close, "function {which} of {x}: {found}, not {wanted}");
        }
    }
}

#[test]
fn atomics_lose_nothing_between_blocks() {
    for threads in [1, 0, 4] {
        let emulator = Emulator::new(Options {
            threads,
            ..Options::default()
        });
        let start = [0, 0, u32::MAX, 0, 0, 0, i32::MIN as u32, 0, u32::MAX, 7];
        let data = Vec::from_iter(start.iter().flat_map(|word| word.to_ne_bytes()));
        let buffers = [
            emulator.upload(&data).unwrap(),
            emulator.upload(&[0; 4]).unwrap(),
        ];
        launch(&emulator, test_atomics(), grid(100, 100), &[0], &buffers).unwrap();
        let wanted = [
            10_000,
            9_999,
            5,
            u32::MAX,
            77,
            20_000,
            -1i32 as u32,
            0,
            0,
            7u32.wrapping_sub(10_000),
        ];
        assert_eq!(read_u32(&buffers[0]), wanted);
        assert_eq!(read_f32(&buffers[1]), [5000.0]);
    }
}
