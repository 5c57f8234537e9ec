//! Gated integer products whose outputs are quantized again, in blocks of 32 rows of a token.

use super::Entry;
use super::gemm::{EPSILON, FLOOR, Gate, Sum, silu};
use super::mul_mm_int::REQUANTIZED;
use crate::call::words_of;
use crate::case::Draft;
use crate::{Call, Check, Element, Expected, OracleError, Outcome, Region, Want};

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "mul_mm_q4k_gate_up_swiglu_full_dp4a_q8",
        reference: |call| reference(call, false),
        cases: |cases| REQUANTIZED.cases(cases, &|d| poison(d, "d_scale")),
        random: |draft| REQUANTIZED.random(draft, &|d| poison(d, "d_scale")),
    },
    Entry {
        name: "mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_1",
        reference: |call| reference(call, true),
        cases: |cases| REQUANTIZED.cases(cases, &|d| poison(d, "d_scale_dsum")),
        random: |draft| REQUANTIZED.random(draft, &|d| poison(d, "d_scale_dsum")),
    },
];

fn poison(draft: &mut Draft, scales: &str) {
    draft.write("d_packed");
    draft.write(scales);
}

/// Rows of a block of outputs.
const BLOCK: usize = 32;
/// Largest quant.
const LIMIT: f64 = 127.0;
/// A block whose largest value is below this may have any quants.
const SMALLEST: f64 = 3.8e-37;
/// Where a gate is cut off.
const CUTOFF: f64 = 8.0;
/// What the cutoff changes of silu.
const STEP: f64 = 0.0027;

/// silu with cutoffs.
fn silu8(x: f64) -> f64 {
    if x > CUTOFF {
        x
    } else if x < -CUTOFF {
        0.0
    } else {
        silu(x)
    }
}

/// The activation and what the contract counts for it, apart from the cutoffs.
const SILU8: Gate = Gate {
    activation: silu8,
    slope: 1.1,
    relative: 0.0,
};

/// A block of values before it is quantized.
#[derive(Clone)]
struct Block {
    values: Vec<f64>,
    /// how far a value may be off
    error: f64,
}

impl Block {
    /// silu8(gate) * up of 32 rows.
    fn new(rows: &[Vec<Sum>]) -> Self {
        let value = |row: &Vec<Sum>| {
            let (gate, up) = (row[0], row[1]);
            let mut value = SILU8.apply(gate, up);
            if (gate.value.abs() - CUTOFF).abs() <= EPSILON * gate.magnitude {
                value.error += STEP * (up.value.abs() + up.error);
            }
            value
        };
        let values: Vec<Sum> = rows.iter().map(value).collect();
        Self {
            error: values.iter().fold(0.0, |e, v| v.error.max(e)) + FLOOR,
            values: values.iter().map(|v| v.value).collect(),
        }
    }

    fn scale(&self) -> f64 {
        self.values.iter().fold(0.0_f64, |a, v| a.max(v.abs())) / LIMIT
    }

    fn scale_tolerance(&self) -> f64 {
        self.error / LIMIT + 1e-6 * self.scale()
    }

    fn quants(&self) -> Vec<i8> {
        let scale = self.scale();
        let quant = |v: &f64| {
            if scale * LIMIT < SMALLEST {
                return 0;
            }
            (v / scale).round_ties_even().clamp(-LIMIT, LIMIT) as i8
        };
        self.values.iter().map(quant).collect()
    }

    /// Judges the quants in `bytes`, the first of which is element `base`, that go with `scale`.
    fn judge(&self, bytes: &[u8], scale: f64, base: usize, outcome: &mut Outcome) {
        let mut largest = 0;
        for (i, (byte, wanted)) in bytes.iter().zip(&self.values).enumerate() {
            let quant = i32::from(*byte as i8);
            largest = largest.max(quant.abs());
            let describe = || (format!("{wanted:e} / {scale:e}"), quant.to_string());
            if f64::from(quant).abs() > LIMIT || (scale == 0.0 && quant != 0) {
                outcome.exact(base + i, false, describe);
                continue;
            }
            let error = (scale * f64::from(quant) - wanted).abs();
            outcome.value(base + i, error, 0.51 * scale.abs() + self.error, describe);
        }
        // The largest value of a block is its scale times 127.
        if scale * LIMIT >= SMALLEST {
            outcome.exact(base, largest == LIMIT as i32, || {
                (
                    "a quant of +-127 in the block".to_owned(),
                    largest.to_string(),
                )
            });
        }
    }
}

/// The f32 at byte `at` of a buffer.
fn float_at(bytes: Option<&&[u8]>, at: usize) -> f32 {
    let word = bytes.and_then(|b| b.get(at..at + 4));
    word.and_then(|b| words_of(b).next())
        .map_or(f32::NAN, f32::from_bits)
}

/// v = silu8(gate) * up, scale = largest |v| of 32 rows / 127, quants = v / scale
fn reference(call: &Call, pairs: bool) -> Result<Vec<Expected>, OracleError> {
    let m = call.count("m")?;
    let packed_index = call.index("d_packed")?;
    let scale_index = call.index(if pairs { "d_scale_dsum" } else { "d_scale" })?;
    let scale_bytes = if pairs { 8 } else { 4 };
    let (first, stride) = (
        call.count("d_packed_offset")?,
        call.count("stride_d_packed")?,
    );
    let scale_first = call.count("d_scale_offset")?;
    let scale_stride = call.count("stride_d_scale")?;
    let mut packed = Expected::unchanged(packed_index);
    let mut scales = Expected::unchanged(scale_index);
    for (t, token) in REQUANTIZED.sums(call)?.into_iter().enumerate() {
        let start = (first + t * stride) * 4;
        let scale_start = (scale_first + t * scale_stride) * scale_bytes;
        let mut want = |quants: Want, factors: Want| {
            packed.regions.push(Region {
                start,
                want: quants,
            });
            scales.regions.push(Region {
                start: scale_start,
                want: factors,
            });
        };
        let Some(rows) = token else {
            let free = |words: usize| Want::Floats(vec![Element::Free; words]);
            want(free(m / 4), free(m / BLOCK * scale_bytes / 4));
            continue;
        };
        let blocks: Vec<Block> = rows.chunks_exact(BLOCK).map(Block::new).collect();
        let quants: Vec<Vec<i8>> = blocks.iter().map(Block::quants).collect();
        let sample = quants.iter().flatten().map(|q| *q as u8).collect();
        let judged = blocks.clone();
        let check = Check::new("quants of the block's scale", sample, move |bytes, all| {
            let mut outcome = Outcome::default();
            for (w, (block, bytes)) in judged.iter().zip(bytes.chunks_exact(BLOCK)).enumerate() {
                let scale = float_at(all.get(scale_index), scale_start + w * scale_bytes);
                block.judge(bytes, f64::from(scale), w * BLOCK, &mut outcome);
            }
            outcome
        });
        let factors = if pairs {
            pair_check(blocks, &quants, packed_index, start)
        } else {
            let near = |b: &Block| Element::near(b.scale(), b.scale_tolerance());
            Want::Floats(blocks.iter().map(near).collect())
        };
        want(Want::Check(check), factors);
    }
    Ok(vec![packed, scales])
}

/// The rule of the (scale, scale * sum of quants) pairs of a token, whose quants are in the buffer
/// `packed` from byte `start` on.
fn pair_check(blocks: Vec<Block>, quants: &[Vec<i8>], packed: usize, start: usize) -> Want {
    let total = |quants: &[i8]| quants.iter().map(|q| i32::from(*q)).sum::<i32>();
    let pair = |(block, quants): (&Block, &Vec<i8>)| {
        let scale = block.scale() as f32;
        [scale, scale * total(quants) as f32]
    };
    let sample = blocks.iter().zip(quants).flat_map(pair);
    let sample = sample.flat_map(f32::to_le_bytes).collect();
    let check = Check::new(
        "scale, and scale * sum of the quants",
        sample,
        move |bytes, all| {
            let mut outcome = Outcome::default();
            for (w, (block, pair)) in blocks.iter().zip(bytes.chunks_exact(8)).enumerate() {
                let floats: Vec<f64> = words_of(pair)
                    .map(|b| f64::from(f32::from_bits(b)))
                    .collect();
                let (scale, sum) = (floats[0], floats[1]);
                let wanted = block.scale();
                let tolerance = block.scale_tolerance();
                // The f32 nearest to the scale is always right.
                let error = if scale == f64::from(wanted as f32) {
                    0.0
                } else {
                    (scale - wanted).abs()
                };
                outcome.value(2 * w, error, tolerance, || {
                    (format!("{wanted:e} +- {tolerance:.1e}"), scale.to_string())
                });
                let range = start + w * BLOCK..start + (w + 1) * BLOCK;
                let quants = all.get(packed).and_then(|b| b.get(range)).unwrap_or(&[]);
                let total: i32 = quants.iter().map(|q| i32::from(*q as i8)).sum();
                let wanted = scale * f64::from(total);
                let tolerance = 1e-6 * wanted.abs() + f64::from(f32::from_bits(1));
                outcome.value(2 * w + 1, (sum - wanted).abs(), tolerance, || {
                    (format!("{scale:e} * {total}"), sum.to_string())
                });
            }
            outcome
        },
    );
    Want::Check(check)
}
