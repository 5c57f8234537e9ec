//! Dense matrix-vector products.

use rayon::prelude::*;

use super::Entry;
use crate::case::{Cases, Draft, Fill};
use crate::expected::ulp;
use crate::quant::Format;
use crate::{Call, Element, Expected, OracleError};

/// A dot product with the sum of the absolute values of its terms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dot {
    /// the sum
    pub(super) value: f64,
    /// S of the contracts
    pub(super) magnitude: f64,
    /// a NaN among the factors
    pub(super) nan: bool,
}

/// Dot product of a row of blocks with `x`.
pub(super) fn dot(format: Format, row: &[u8], x: &[f64]) -> Dot {
    let elements = format.elements();
    let (mut values, mut magnitudes) = (vec![0.0; elements], vec![0.0; elements]);
    let mut dot = Dot {
        value: 0.0,
        magnitude: 0.0,
        nan: false,
    };
    for (block, x) in row
        .chunks_exact(format.bytes())
        .zip(x.chunks_exact(elements))
    {
        format.decode(block, &mut values, &mut magnitudes);
        let factors = values.iter().zip(&magnitudes).zip(x);
        for ((w, m), x) in factors {
            dot.value += w * x;
            dot.magnitude += m * x.abs();
        }
    }
    if !dot.magnitude.is_finite() {
        let mut blocks = row.chunks_exact(format.bytes());
        dot.nan = x.iter().any(|x| x.is_nan()) || blocks.any(|b| format.has_nan_factor(b));
    }
    dot
}

/// The element of an output: `|y - y64| <= 1e-5 * S + 1e-6`, plus one ulp when accumulating onto
/// `old`. `grouped` formats leave open what an infinity becomes, because the products of a block may
/// be grouped in any way.
pub(super) fn output(dot: Dot, grouped: bool, old: Option<f32>) -> Element {
    let old = old.map(f64::from);
    let wanted = dot.value + old.unwrap_or(0.0);
    if !dot.magnitude.is_finite() && grouped && !dot.nan && !old.is_some_and(f64::is_nan) {
        return Element::NotFinite;
    }
    let rounding = old.map_or(0.0, |old| ulp(old.abs().max(wanted.abs())));
    let tolerance = 1e-5 * dot.magnitude + 1e-6 + rounding;
    Element::near_unless_overflow(wanted, tolerance, dot.magnitude)
}

/// One kernel of the six-field family (m, k, a_offset, x_offset, y_offset, acc_mode).
struct Dense {
    weights: Format,
    x: Format,
    /// required alignment of a_offset
    a_align: u32,
    /// required alignment of x_offset
    x_align: u32,
    /// acc_mode >= 2 is a number of vectors
    batches: bool,
}

const F32: Dense = Dense {
    weights: Format::F32,
    x: Format::F32,
    a_align: 4,
    x_align: 4,
    batches: false,
};
const F16: Dense = Dense {
    weights: Format::F16,
    a_align: 2,
    ..F32
};
const Q4K: Dense = Dense {
    weights: Format::Q4K,
    x_align: 16,
    ..F32
};
const Q5K: Dense = Dense {
    weights: Format::Q5K,
    batches: true,
    ..Q4K
};
const Q6K: Dense = Dense {
    weights: Format::Q6K,
    a_align: 2,
    ..Q4K
};
const Q8_0: Dense = Dense {
    weights: Format::Q8_0,
    ..Q6K
};
const Q5_0: Dense = Dense {
    weights: Format::Q5_0,
    a_align: 2,
    ..F32
};
const Q8_0_Q8_1: Dense = Dense {
    weights: Format::Q8_0,
    x: Format::Q8_1,
    a_align: 2,
    x_align: 36,
    batches: false,
};

macro_rules! entry {
    ($name:literal, $dense:ident) => {
        Entry {
            name: $name,
            reference: |call| $dense.reference(call),
            cases: |cases| $dense.cases(cases),
            random: |draft| $dense.random(draft),
        }
    };
}

pub(super) const ENTRIES: &[Entry] = &[
    entry!("dmmv_f32", F32),
    entry!("dmmv_f16", F16),
    entry!("dmmv_q4k", Q4K),
    entry!("dmmv_q5k", Q5K),
    entry!("dmmv_q6k", Q6K),
    entry!("dmmv_q8_0", Q8_0),
    entry!("dmmv_q5_0", Q5_0),
    entry!("dmmv_q8_0_q8_1", Q8_0_Q8_1),
];

/// What a case of the family is made of.
#[derive(Clone, Copy)]
struct Shape {
    m: u32,
    k: u32,
    offsets: [u32; 3],
    acc_mode: u32,
    x: Fill,
    /// weight blocks of all flavors, not only plain ones
    edges: bool,
}

impl Dense {
    /// True if the contract leaves open what an infinity becomes.
    fn grouped(&self) -> bool {
        self.x == Format::F32 && !matches!(self.weights, Format::F32 | Format::F16)
    }

    /// Columns of which k is a multiple.
    fn unit(&self) -> u32 {
        self.weights.elements() as u32
    }

    /// y[j*m + r] (+)= sum over c of W[r,c] * x[j*k + c]
    fn reference(&self, call: &Call) -> Result<Vec<Expected>, OracleError> {
        let (m, k) = (call.count("m")?, call.count("k")?);
        let (a, x) = (call.count("a_offset")?, call.count("x_offset")?);
        let y = call.count("y_offset")?;
        let mode = call.count("acc_mode")?;
        let vectors = if self.batches { mode.max(1) } else { 1 };
        let accumulate = if self.batches { mode == 1 } else { mode != 0 };
        let row = self.weights.row_bytes(k);
        let weights = call.slice("weights", a, m * row)?;
        let old = if accumulate {
            call.floats("y", y, m)?
        } else {
            Vec::new()
        };
        let mut elements = Vec::with_capacity(vectors * m);
        for j in 0..vectors {
            let input = self.vector(call, x + j * self.x.row_bytes(k), k)?;
            let outputs = (0..m).into_par_iter().map(|r| {
                let row = &weights[r * row..(r + 1) * row];
                let dot = match self.x {
                    Format::Q8_1 => dot_q8_1(row, &input),
                    _ => dot(self.weights, row, &input),
                };
                output(dot, self.grouped(), old.get(r).copied())
            });
            elements.par_extend(outputs);
        }
        Ok(vec![Expected::floats(call.index("y")?, y, elements)])
    }

    /// An input vector: its values, or for Q8_1 the quants of each block followed by its factor.
    fn vector(&self, call: &Call, start: usize, k: usize) -> Result<Vec<f64>, OracleError> {
        if self.x == Format::F32 {
            return call.doubles("x", start, k);
        }
        let blocks = call.slice("x", start, self.x.row_bytes(k))?;
        Ok(blocks
            .chunks_exact(36)
            .flat_map(|b| {
                let d = half::f16::from_le_bytes([b[32], b[33]]).to_f64();
                let quants = b[..32].iter().map(|&q| f64::from(q as i8));
                quants.chain([d]).collect::<Vec<f64>>()
            })
            .collect())
    }

    fn cases(&self, cases: &mut Cases) {
        let unit = self.unit();
        let plain = Shape {
            m: 1,
            k: unit,
            offsets: [0; 3],
            acc_mode: 0,
            x: Fill::Normal(1.0),
            edges: false,
        };
        let mut add = |label: &str, shape: Shape| cases.add(label, |d| self.fill(d, shape));
        add("smallest", plain);
        add("no rows", Shape { m: 0, ..plain });
        add(
            "no columns",
            Shape {
                m: 5,
                k: 0,
                ..plain
            },
        );
        add(
            "no columns, accumulate",
            Shape {
                m: 5,
                k: 0,
                acc_mode: 1,
                ..plain
            },
        );
        for (m, units) in [
            (2, 1),
            (3, 2),
            (5, 3),
            (7, 5),
            (17, 4),
            (33, 9),
            (64, 8),
            (129, 1),
            (1, 33),
        ] {
            let k = units * unit;
            add(&format!("{m} x {k}"), Shape { m, k, ..plain });
        }
        let offsets = [3 * self.a_align, 5 * self.x_align, 28];
        let odd = Shape {
            m: 7,
            k: 3 * unit,
            ..plain
        };
        add("offsets", Shape { offsets, ..odd });
        add(
            "offsets, accumulate",
            Shape {
                offsets,
                acc_mode: 1,
                ..odd
            },
        );
        let smallest_steps = [self.a_align, self.x_align, 4];
        add(
            "smallest offsets",
            Shape {
                offsets: smallest_steps,
                ..odd
            },
        );
        add(
            "accumulate",
            Shape {
                m: 13,
                acc_mode: 1,
                ..odd
            },
        );
        if self.batches {
            for n in [2, 3, 17, 39, 40] {
                add(
                    &format!("batch of {n}"),
                    Shape {
                        m: 5,
                        k: 2 * unit,
                        acc_mode: n,
                        ..plain
                    },
                );
            }
            add(
                "batch of 5, offsets",
                Shape {
                    offsets,
                    acc_mode: 5,
                    ..odd
                },
            );
            add(
                "batch of 2, no columns",
                Shape {
                    m: 3,
                    k: 0,
                    acc_mode: 2,
                    ..plain
                },
            );
            add(
                "batch of 9 x 64 rows",
                Shape {
                    m: 64,
                    k: 4 * unit,
                    acc_mode: 9,
                    ..plain
                },
            );
        } else {
            for mode in [2, 7, u32::MAX] {
                add(
                    &format!("accumulate, mode {mode}"),
                    Shape {
                        acc_mode: mode,
                        ..odd
                    },
                );
            }
        }
        let wide = Shape {
            m: 9,
            k: 4 * unit.max(32),
            ..plain
        };
        add(
            "edge blocks",
            Shape {
                m: 20,
                edges: true,
                ..wide
            },
        );
        add(
            "edge blocks, accumulate",
            Shape {
                m: 20,
                edges: true,
                acc_mode: 1,
                ..wide
            },
        );
        for (label, x) in [
            ("zeros", Fill::Equal(0.0)),
            ("all equal", Fill::Equal(0.75)),
            ("cancelling", Fill::Alternating(1.0)),
            ("huge", Fill::Normal(1e30)),
            ("tiny", Fill::Normal(1e-30)),
            ("subnormal", Fill::Normal(1e-40)),
            ("a NaN", Fill::One(2, f32::NAN)),
            ("an infinity", Fill::One(1, f32::INFINITY)),
            ("negative infinity last", Fill::One(0, f32::NEG_INFINITY)),
        ] {
            add(&format!("x: {label}"), Shape { x, ..wide });
        }
        add(
            "x: a NaN, accumulate",
            Shape {
                x: Fill::One(0, f32::NAN),
                acc_mode: 1,
                ..wide
            },
        );
        if self.unit() == 1 {
            for k in [2, 3, 5, 31, 63, 65, 127, 129, 255, 1023] {
                let offsets = [self.a_align, self.x_align, 4];
                add(
                    &format!("ragged k = {k}"),
                    Shape {
                        m: 6,
                        k,
                        offsets,
                        ..plain
                    },
                );
            }
        }
        for row in [0, 3] {
            cases.add(format!("NaN in row {row}"), |d| {
                self.fill(d, Shape { m: 6, ..wide });
                self.spoil_row(d, row, wide.k, 0x7e00, f32::NAN);
            });
        }
        cases.add("infinity in row 2", |d| {
            self.fill(d, Shape { m: 6, ..wide });
            self.spoil_row(d, 2, wide.k, 0x7c00, f32::INFINITY);
        });
        cases.add("hidden 2048", |d| {
            self.fill(
                d,
                Shape {
                    m: 48,
                    k: 2048,
                    ..plain
                },
            )
        });
        for (m, k) in [(2048, 2048), (9216, 2048), (2048, 9216), (4099, 4096)] {
            cases.heavy(format!("{m} x {k}"), |d| {
                self.fill(d, Shape { m, k, ..plain })
            });
        }
    }

    /// Puts an f16 or f32 value into the first factor of the second half of a row.
    fn spoil_row(&self, draft: &mut Draft, row: usize, k: u32, half: u16, float: f32) {
        let bytes = self.weights.row_bytes(k as usize);
        let block = (k as usize / self.weights.elements() / 2) * self.weights.bytes();
        let at = row * bytes + block + self.weights.factors().first().copied().unwrap_or(0);
        let value = match self.weights {
            Format::F32 => float.to_le_bytes().to_vec(),
            _ => half.to_le_bytes().to_vec(),
        };
        draft.patch("weights", at, &value);
    }

    fn random(&self, draft: &mut Draft) {
        let rng = &mut draft.rng;
        let unit = self.unit();
        let k = if unit == 1 {
            rng.below(300)
        } else {
            unit * rng.below(4)
        };
        let acc_mode = if self.batches {
            rng.below(6)
        } else {
            rng.below(3)
        };
        let offsets = [
            self.a_align * rng.below(5),
            self.x_align * rng.below(5),
            4 * rng.below(5),
        ];
        let edges = rng.flip();
        let x = rng.pick(&[
            Fill::Normal(1.0),
            Fill::Normal(1e-3),
            Fill::Alternating(2.0),
        ]);
        let m = rng.below(24);
        self.fill(
            draft,
            Shape {
                m,
                k,
                offsets,
                acc_mode,
                x,
                edges,
            },
        );
    }

    fn fill(&self, draft: &mut Draft, shape: Shape) {
        let Shape {
            m,
            k,
            offsets: [a, x, y],
            acc_mode,
            ..
        } = shape;
        draft.set_all(&[
            ("m", m),
            ("k", k),
            ("a_offset", a),
            ("x_offset", x),
            ("y_offset", y),
        ]);
        draft.set("acc_mode", acc_mode);
        let blocks = m as usize * (k as usize / self.weights.elements());
        let weights = self
            .weights
            .random_blocks(&mut draft.rng, blocks, shape.edges);
        draft.read("weights", a as usize, &weights);
        let vectors = if self.batches { acc_mode.max(1) } else { 1 } as usize;
        if self.x == Format::Q8_1 {
            let blocks = q8_1_vector(draft, k as usize / 32, shape.x);
            draft.read("x", x as usize, &blocks);
        } else {
            let values = shape.x.make(&mut draft.rng, vectors * k as usize);
            draft.read_floats("x", x as usize, &values);
        }
        let accumulates = if self.batches {
            acc_mode == 1
        } else {
            acc_mode != 0
        };
        let old = if accumulates {
            draft.rng.normals(m as usize, 3.0)
        } else {
            Vec::new()
        };
        draft.update("y", y as usize, &old);
    }
}

/// Activation blocks whose factors follow `fill`.
fn q8_1_vector(draft: &mut Draft, blocks: usize, fill: Fill) -> Vec<u8> {
    use crate::quant::Flavor;
    let factors = fill.make(&mut draft.rng, blocks);
    let block = |factor: &f32| {
        let mut block = Format::Q8_1.random_block(&mut draft.rng, Flavor::Plain);
        // f16 reaches 65504; beyond that the factor would be an infinity that nobody asked for.
        let factor = if factor.is_finite() {
            factor.clamp(-6e4, 6e4)
        } else {
            *factor
        };
        block[32..34].copy_from_slice(&half::f16::from_f32(factor * 0.01).to_le_bytes());
        block
    };
    factors.iter().flat_map(block).collect()
}

/// Sum over blocks of d * d8 * (sum of q * q8), with exact integer sums.
fn dot_q8_1(row: &[u8], x: &[f64]) -> Dot {
    let mut dot = Dot {
        value: 0.0,
        magnitude: 0.0,
        nan: false,
    };
    for (w, x) in row.chunks_exact(34).zip(x.chunks_exact(33)) {
        let scale = half::f16::from_le_bytes([w[0], w[1]]).to_f64() * x[32];
        let products = w[2..].iter().zip(x).map(|(&q, x)| f64::from(q as i8) * x);
        let (sum, absolute) = products.fold((0.0, 0.0), |(s, a), p| (s + p, a + p.abs()));
        dot.value += scale * sum;
        dot.magnitude += scale.abs() * absolute;
    }
    dot
}
