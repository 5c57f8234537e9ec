//! Quantisers of activations.

use rayon::prelude::*;

use super::Entry;
use super::norm_act::{SUM, SUMS, Sum, Updated, sum_fill};
use crate::call::words_of;
use crate::case::{Cases, Draft, Fill};
use crate::{Call, Check, Element, Expected, OracleError, Outcome, Region, Want};

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "quantize_q8_1",
        reference: quantize_q8_1,
        cases: quantize_q8_1_cases,
        random: |d| {
            let (blocks, scale) = (d.rng.below(12), d.rng.pick(&[1.0, 1e-3, 100.0]));
            quantize_q8_1_fill(d, blocks, Fill::Normal(scale));
        },
    },
    Entry {
        name: "quantize_act_q8",
        reference: |call| planar(call, "scale", false),
        cases: |cases| planar_cases(cases, "scale"),
        random: |d| planar_random(d, "scale"),
    },
    Entry {
        name: "quantize_act_q8_1",
        reference: |call| planar(call, "scale_dsum", true),
        cases: |cases| planar_cases(cases, "scale_dsum"),
        random: |d| planar_random(d, "scale_dsum"),
    },
    Entry {
        name: "residual_rms_norm_quant_q8_1",
        reference: residual_rms_norm_quant_q8_1,
        cases: residual_rms_norm_quant_q8_1_cases,
        random: |d| {
            let (tokens, n) = (d.rng.below(4), 256 * d.rng.between(1, 3));
            let write_norm = d.rng.flip();
            residual_rms_norm_quant_q8_1_fill(d, tokens, n, write_norm, SUM);
        },
    },
];

/// Elements of a block.
const BLOCK: usize = 32;

/// Below this the f32 d of a block is subnormal and may be flushed to 0.
const SUBNORMAL_D: f64 = 1.5e-36;

/// A quantised block: what the contracts allow.
#[derive(Debug, Clone, PartialEq)]
struct Quants {
    /// amax / 127
    d: f64,
    /// smallest and largest right quant of each element
    ranges: Vec<(i64, i64)>,
    /// the quants by rounding halves to even
    nearest: Vec<i64>,
}

/// Quantises a block to x * 127 / amax, where a quant may be `reach` away from the quotient. Below
/// `zero`, where the f32 reciprocal overflows, all quants are 0; up to `unsure` both that and the
/// quotient are right. A NaN or an infinity leaves the block open.
fn quantise(x: &[f64], reach: f64, [zero, unsure]: [f64; 2]) -> Quants {
    let amax = x.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
    let d = amax / 127.0;
    if x.iter().any(|x| !x.is_finite()) {
        return Quants {
            d,
            ranges: vec![(-128, 127); x.len()],
            nearest: vec![0; x.len()],
        };
    }
    let mut ranges = Vec::with_capacity(x.len());
    let mut nearest = Vec::with_capacity(x.len());
    for x in x {
        let quotient = if amax < zero || amax == 0.0 {
            0.0
        } else {
            x * 127.0 / amax
        };
        let low = ((quotient - reach).ceil() as i64).max(-127);
        let high = ((quotient + reach).floor() as i64).min(127);
        ranges.push(if amax < unsure {
            (low.min(0), high.max(0))
        } else {
            (low, high)
        });
        nearest.push(quotient.round_ties_even() as i64);
    }
    Quants { d, ranges, nearest }
}

/// Judges signed bytes against the ranges of blocks that follow each other.
fn judge_quants(outcome: &mut Outcome, first: usize, quants: &Quants, found: &[u8]) {
    let pairs = quants.ranges.iter().zip(&quants.nearest).zip(found);
    for (i, (((low, high), nearest), found)) in pairs.enumerate() {
        let found = i64::from(*found as i8);
        outcome.exact(first + i, (*low..=*high).contains(&found), || {
            let wanted = format!("quant {nearest} within {low}..={high}");
            (wanted, found.to_string())
        });
    }
}

/// Largest difference of d and s from their f16 roundings, in ulps.
const HALF_ULPS: [i32; 2] = [1, 2];

/// An f16 on a scale where neighbours differ by 1 and zeros of both signs are equal.
fn half_steps(bits: u16) -> i32 {
    let magnitude = i32::from(bits & 0x7fff);
    if bits & 0x8000 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

/// Blocks of 32 quants, f16 d, f16 s: a quant may be either neighbour within 1e-4 of a half, d is within 1
/// f16 ulp of amax / 127 and s within 2 of d * (sum of the stored quants)
fn quantize_q8_1(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let count = call.count("num_blocks")?;
    let src = call.doubles("src", 0, count * BLOCK)?;
    let blocks = src
        .par_chunks(BLOCK)
        .map(|x| quantise(x, 0.5001, [4e-37, SUBNORMAL_D]));
    let blocks: Vec<Quants> = blocks.collect();
    let half = |value: f64| half::f16::from_f32(value as f32).to_bits();
    let mut sample = Vec::with_capacity(count * 36);
    for block in &blocks {
        sample.extend(block.nearest.iter().map(|q| *q as u8));
        let sum: i64 = block.nearest.iter().sum();
        sample.extend(half(block.d).to_le_bytes());
        sample.extend(half(block.d * sum as f64).to_le_bytes());
    }
    let rule = "quants by rounding, f16 of d, f16 of d times the sum of the quants";
    let check = Check::new(rule, sample, move |bytes, _| {
        let mut outcome = Outcome::default();
        for (b, (block, found)) in blocks.iter().zip(bytes.chunks_exact(36)).enumerate() {
            judge_quants(&mut outcome, 36 * b, block, &found[..32]);
            if !block.d.is_finite() || block.ranges[0] == (-128, 127) {
                continue;
            }
            let sum: i64 = found[..32].iter().map(|q| i64::from(*q as i8)).sum();
            let factors = [block.d, block.d * sum as f64];
            for (i, (factor, ulps)) in factors.into_iter().zip(HALF_ULPS).enumerate() {
                let at = 32 + 2 * i;
                let wanted = half(factor);
                let bits = u16::from_le_bytes([found[at], found[at + 1]]);
                let error = (half_steps(wanted) - half_steps(bits)).abs();
                outcome.value(36 * b + at, f64::from(error), f64::from(ulps), || {
                    let name = ["d", "s"][i];
                    let wanted = format!("{name} = {wanted:#06x} +- {ulps} ulp");
                    (wanted, format!("{bits:#06x}"))
                });
            }
        }
        outcome
    });
    Ok(vec![Expected {
        buffer: call.index("dst")?,
        regions: vec![Region {
            start: 0,
            want: Want::Check(check),
        }],
    }])
}

/// Planar blocks: packed quants, and per block d, or d and d * (sum of the stored quants).
struct Planar {
    blocks: Vec<Quants>,
    /// relative error of d
    d_error: f64,
}

impl Planar {
    /// The packed quants, and the scales in the buffer `scales`.
    fn expected(self, call: &Call, scales: &str, sums: bool) -> Result<Vec<Expected>, OracleError> {
        let packed = call.index("packed")?;
        let quants = self.blocks.iter().flat_map(|b| b.nearest.iter());
        let sample: Vec<u8> = quants.map(|q| *q as u8).collect();
        let scale = if sums {
            Expected {
                buffer: call.index(scales)?,
                regions: vec![Region {
                    start: 0,
                    want: Want::Check(self.pairs_check(packed)),
                }],
            }
        } else {
            let elements = self.blocks.iter().map(|b| self.d_element(b)).collect();
            Expected::floats(call.index(scales)?, 0, elements)
        };
        let rule = "quants by rounding";
        let check = Check::new(rule, sample, move |bytes, _| {
            let mut outcome = Outcome::default();
            let found = bytes.chunks_exact(BLOCK);
            for (b, (block, found)) in self.blocks.iter().zip(found).enumerate() {
                judge_quants(&mut outcome, BLOCK * b, block, found);
            }
            outcome
        });
        let packed = Expected {
            buffer: packed,
            regions: vec![Region {
                start: 0,
                want: Want::Check(check),
            }],
        };
        Ok(vec![packed, scale])
    }

    /// What d may be.
    fn d_element(&self, block: &Quants) -> Element {
        if block.ranges[0] == (-128, 127) {
            return Element::Free;
        }
        let flushed = if block.d * 127.0 < SUBNORMAL_D {
            block.d
        } else {
            0.0
        };
        Element::near(block.d, self.d_error * block.d + flushed)
    }

    /// Pairs of d and d * sum, where the sum is that of the quants in the buffer `packed`.
    fn pairs_check(&self, packed: usize) -> Check {
        let mut sample = Vec::new();
        let mut wanted = Vec::new();
        for block in &self.blocks {
            let sum: i64 = block.nearest.iter().sum();
            let d = block.d as f32;
            sample.extend(d.to_le_bytes());
            sample.extend((d * sum as f32).to_le_bytes());
            wanted.push(self.d_element(block));
        }
        let rule = "d, and d times the sum of the stored quants";
        Check::new(rule, sample, move |bytes, all| {
            let mut outcome = Outcome::default();
            let words: Vec<u32> = words_of(bytes).collect();
            let quants = all.get(packed).copied().unwrap_or(&[]);
            let blocks = words.chunks_exact(2).zip(quants.chunks_exact(BLOCK));
            for (b, ((pair, quants), wanted)) in blocks.zip(&wanted).enumerate() {
                let Element::Near { wanted, tolerance } = *wanted else {
                    continue;
                };
                let found = [0, 1].map(|i| f64::from(f32::from_bits(pair[i])));
                let mut value = |i: usize, wanted: f64, tolerance: f64| {
                    outcome.value(2 * b + i, (found[i] - wanted).abs(), tolerance, || {
                        let name = ["d", "d * sum"][i];
                        let wanted = format!("{name} = {wanted:e} +- {tolerance:.1e}");
                        (wanted, format!("{:e}", found[i]))
                    });
                };
                value(0, wanted, tolerance);
                let sum: i64 = quants.iter().map(|q| i64::from(*q as i8)).sum();
                let product = found[0] * sum as f64;
                let flushed = if product.abs() < SUBNORMAL_D {
                    product.abs()
                } else {
                    0.0
                };
                value(1, product, 1e-6 * product.abs() + flushed);
            }
            outcome
        })
    }
}

/// Below the first bound the f32 quotient 127 / amax overflows and all quants are 0; the second one is
/// that of the contracts, above which they are the rounded quotients.
const RECIPROCAL: [f64; 2] = [3.7e-37, 3.9e-37];

/// A quant may be either neighbour within 1e-4 of a half; d = amax / 127 within 1e-6 relative.
fn planar(call: &Call, scales: &str, sums: bool) -> Result<Vec<Expected>, OracleError> {
    let src = call.doubles("src", 0, call.count("total_blocks")? * BLOCK)?;
    let blocks = src
        .par_chunks(BLOCK)
        .map(|x| quantise(x, 0.5001, RECIPROCAL));
    let planar = Planar {
        blocks: blocks.collect(),
        d_error: 1e-6,
    };
    planar.expected(call, scales, sums)
}

/// The updated stream, its normalised rows if wanted, and those quantised: |d * q - y| <= 0.51 * d, d within
/// 1e-5 relative
fn residual_rms_norm_quant_q8_1(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let updated = Updated::of(call)?;
    let blocks = updated.norms.par_iter().flat_map_iter(|norm| {
        let open = !norm.representable;
        norm.y.chunks(BLOCK).map(move |y| {
            if open {
                quantise(&[f64::NAN; BLOCK], 0.51, RECIPROCAL)
            } else {
                quantise(y, 0.51, RECIPROCAL)
            }
        })
    });
    let planar = Planar {
        blocks: blocks.collect(),
        d_error: 1e-5,
    };
    let mut expected = planar.expected(call, "scale_dsum", true)?;
    if call.word("write_norm_out")? != 0 {
        let elements = updated.norm_elements();
        expected.push(Expected::floats(call.index("norm_out")?, 0, elements));
    }
    expected.push(Expected::floats(call.index("hidden")?, 0, updated.hidden));
    Ok(expected)
}

fn quantize_q8_1_fill(d: &mut Draft, blocks: u32, src: Fill) {
    d.set_all(&[("ne", blocks * 32), ("num_blocks", blocks)]);
    let src = src.make(&mut d.rng, blocks as usize * BLOCK);
    d.read_floats("src", 0, &src);
    d.write("dst");
}

/// Values at the edges that all quantisers share.
const EDGES: [(&str, Fill); 13] = [
    ("zeros", Fill::Equal(0.0)),
    ("minus zeros", Fill::Equal(-0.0)),
    ("all equal", Fill::Equal(1.0)),
    ("all equal and negative", Fill::Equal(-3.3)),
    ("alternating", Fill::Alternating(2.5)),
    ("small", Fill::Normal(1e-4)),
    ("tiny", Fill::Normal(1e-20)),
    ("far above the smallest", Fill::Normal(1e-34)),
    ("reciprocal overflows", Fill::Normal(1e-38)),
    ("subnormal", Fill::Normal(1e-40)),
    ("large", Fill::Normal(1e4)),
    ("huge", Fill::Normal(1e30)),
    ("one outlier", Fill::One(40, 1e6)),
];

/// A block whose quotients are exact halves, with amax 127, and one whose quotients are integers.
fn halves() -> Vec<f32> {
    let mut values: Vec<f32> = (0..32).map(|i| i as f32 * 3.0 - 47.5).collect();
    values[31] = -127.0;
    values.extend((0..32).map(|i| 127.0 - i as f32 * 8.0));
    values
}

/// Blocks with one value each, of both signs and in every place.
fn single_values() -> Vec<f32> {
    let mut values = vec![0.0; 32 * 32];
    for block in 0..32 {
        let magnitude = (block as f32 + 1.0) * 0.7;
        let value = if block % 2 == 0 {
            magnitude
        } else {
            -magnitude
        };
        values[block * 32 + block] = value;
    }
    values
}

fn quantize_q8_1_cases(cases: &mut Cases) {
    for blocks in [0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 33, 64, 65, 88] {
        cases.add(format!("{blocks} blocks"), |d| {
            quantize_q8_1_fill(d, blocks, Fill::Normal(1.0));
        });
    }
    for (label, src) in EDGES {
        cases.add(label, |d| quantize_q8_1_fill(d, 5, src));
    }
    for (label, src) in [
        ("s overflows f16", Fill::Equal(3000.0)),
        ("s overflows f16, negative", Fill::Equal(-3000.0)),
        ("d overflows f16", Fill::Normal(1e7)),
        ("d is the largest f16", Fill::Equal(65_504.0 * 127.0)),
        ("d is a subnormal f16", Fill::Normal(1e-3)),
        ("d is around the smallest f16", Fill::Normal(4e-6)),
    ] {
        cases.add(label, |d| quantize_q8_1_fill(d, 6, src));
    }
    for (label, values) in [("halves", halves()), ("single values", single_values())] {
        cases.add(label, |d| {
            quantize_q8_1_fill(d, values.len() as u32 / 32, Fill::Equal(0.0));
            d.patch("src", 0, &crate::case::float_bytes(&values));
        });
    }
    cases.heavy("512 x 2048", |d| {
        quantize_q8_1_fill(d, 512 * 64, Fill::Normal(1.0))
    });
}

fn planar_fill(d: &mut Draft, scales: &str, tokens: u32, blocks: u32, src: Fill) {
    d.set_all(&[
        ("n_tokens", tokens),
        ("k", blocks * 32),
        ("blocks_per_token", blocks),
        ("total_blocks", tokens * blocks),
    ]);
    let src = src.make(&mut d.rng, (tokens * blocks) as usize * BLOCK);
    d.read_floats("src", 0, &src);
    d.write("packed");
    d.write(scales);
}

fn planar_cases(cases: &mut Cases, scales: &str) {
    let normal = Fill::Normal(1.0);
    for (tokens, blocks) in [
        (1, 1),
        (0, 1),
        (1, 2),
        (3, 1),
        (5, 3),
        (7, 8),
        (1, 31),
        (2, 33),
        (1, 64),
        (3, 85),
        (16, 16),
        (257, 1),
        (1, 88),
    ] {
        cases.add(
            format!("{tokens} tokens of {} elements", blocks * 32),
            |d| {
                planar_fill(d, scales, tokens, blocks, normal);
            },
        );
    }
    for (label, src) in EDGES {
        cases.add(label, |d| planar_fill(d, scales, 2, 3, src));
    }
    for (label, values) in [("halves", halves()), ("single values", single_values())] {
        cases.add(label, |d| {
            planar_fill(d, scales, 1, values.len() as u32 / 32, Fill::Equal(0.0));
            d.patch("src", 0, &crate::case::float_bytes(&values));
        });
    }
    for k in [2048, 2816, 5376] {
        cases.heavy(format!("256 tokens of {k} elements"), |d| {
            planar_fill(d, scales, 256, k / 32, normal);
        });
    }
}

fn planar_random(d: &mut Draft, scales: &str) {
    let (tokens, blocks) = (d.rng.below(6), d.rng.between(1, 9));
    let scale = d.rng.pick(&[1.0, 1e-3, 100.0]);
    planar_fill(d, scales, tokens, blocks, Fill::Normal(scale));
}

fn residual_rms_norm_quant_q8_1_fill(
    d: &mut Draft,
    tokens: u32,
    n: u32,
    write_norm: bool,
    sum: Sum,
) {
    d.set_all(&[
        ("blocks_per_token", n / 32),
        ("stride_packed", n / 4),
        ("write_norm_out", u32::from(write_norm)),
    ]);
    sum_fill(d, tokens, n, sum);
    for buffer in ["norm_out", "packed", "scale_dsum"] {
        d.write(buffer);
    }
}

fn residual_rms_norm_quant_q8_1_cases(cases: &mut Cases) {
    for write_norm in [true, false] {
        let kind = if write_norm { "with" } else { "without" };
        for (tokens, n) in [
            (1, 256),
            (0, 512),
            (2, 256),
            (3, 512),
            (5, 768),
            (1, 1280),
            (2, 2048),
            (1, 2816),
            (1, 5376),
            (33, 256),
            (2, 8448),
        ] {
            cases.add(format!("{tokens} tokens of {n}, {kind} norm_out"), |d| {
                residual_rms_norm_quant_q8_1_fill(d, tokens, n, write_norm, SUM);
            });
        }
        for (label, sum) in SUMS {
            cases.add(format!("{label}, {kind} norm_out"), |d| {
                residual_rms_norm_quant_q8_1_fill(d, 2, 256, write_norm, sum);
            });
        }
        cases.add(format!("weights zero in a block, {kind} norm_out"), |d| {
            residual_rms_norm_quant_q8_1_fill(d, 2, 256, write_norm, SUM);
            d.patch("weights", 64 * 4, &[0; 32 * 4]);
        });
        cases.heavy(format!("27B, 256 tokens of 5120, {kind} norm_out"), |d| {
            residual_rms_norm_quant_q8_1_fill(d, 256, 5120, write_norm, SUM);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_may_be_either_neighbour_and_others_not() {
        let mut x = vec![0.0; 32];
        (x[0], x[1], x[2], x[3]) = (127.0, 2.5, -3.5, 4.4);
        let quants = quantise(&x, 0.5001, RECIPROCAL);
        assert_eq!(quants.ranges[..4], [(127, 127), (2, 3), (-4, -3), (4, 4)]);
        assert_eq!(quants.nearest[..4], [127, 2, -4, 4]);
    }

    #[test]
    fn blocks_whose_reciprocal_overflows_are_zero() {
        let quants = quantise(&[1e-38; 32], 0.5001, RECIPROCAL);
        assert_eq!(quants.ranges, [(0, 0); 32]);
        let quants = quantise(&[3.8e-37; 32], 0.5001, RECIPROCAL);
        assert_eq!(quants.ranges, [(0, 127); 32]);
        let quants = quantise(&[4e-37; 32], 0.5001, RECIPROCAL);
        assert_eq!(quants.ranges, [(127, 127); 32]);
    }

    #[test]
    fn half_steps_join_at_zero_and_reach_infinity() {
        assert_eq!(half_steps(0), half_steps(0x8000));
        assert_eq!(half_steps(0x7c00) - half_steps(0x7bff), 1);
        assert_eq!(half_steps(0x8001), -1);
    }
}
