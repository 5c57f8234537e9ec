//! Dense matrix-vector products: one matrix, and one or a few vectors.

use super::Entry;
use super::gemm::{
    EPSILON, INPUTS, Sum, map_rows, output_rows, products, random_matrix, special_factor, vectors,
};
use super::norm_act::{SIGMOID_FLOOR, sigmoid};
use crate::case::{Cases, Draft, Fill};
use crate::quant::{Flavor, Format};
use crate::{Call, Expected, OracleError};

/// What the sixth push field is.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Sixth {
    /// 0 overwrites, anything else accumulates
    Flag,
    /// 0 overwrites, 1 accumulates, more is the number of vectors
    Mode,
    /// the number of vectors, at most this
    Columns(u32),
    /// the bits of a factor of the accumulated product
    Factor,
    /// the index of a logit, whose sigmoid is the factor of the accumulated product
    Logit,
}

impl Sixth {
    fn field(self) -> &'static str {
        match self {
            Self::Flag | Self::Mode => "acc_mode",
            Self::Columns(_) => "num_cols",
            Self::Factor => "scale_bits",
            Self::Logit => "gate_offset",
        }
    }

    fn vectors(self, value: u32) -> u32 {
        match self {
            Self::Mode => value.max(1),
            Self::Columns(_) => value,
            _ => 1,
        }
    }

    fn accumulates(self, value: u32) -> bool {
        match self {
            Self::Flag => value != 0,
            Self::Mode => value == 1,
            Self::Columns(_) => false,
            Self::Factor | Self::Logit => true,
        }
    }

    /// The value of the plain cases: one vector, overwrite, or a factor that is no special one.
    fn plain(self) -> u32 {
        match self {
            Self::Flag | Self::Mode | Self::Logit => 0,
            Self::Columns(_) => 1,
            Self::Factor => 0.75_f32.to_bits(),
        }
    }

    /// Values that the contract tells apart, with their labels.
    fn values(self) -> Vec<(String, u32)> {
        match self {
            Self::Flag => [1, 2, 7, u32::MAX].map(|v| (format!("mode {v}"), v)).into(),
            Self::Mode => [1, 2, 3, 17, 39, 40]
                .map(|v| (format!("mode {v}"), v))
                .into(),
            Self::Columns(limit) => [0, 2, 3, 8, 17, limit - 1, limit]
                .map(|n| (format!("{n} columns"), n))
                .into(),
            Self::Factor => [0.0, -0.0, 1.0, -2.5, 1e-40, 1e20, -1e-20]
                .map(|v: f32| (format!("factor {v:e}"), v.to_bits()))
                .into(),
            Self::Logit => [1, 2, 5, 64].map(|v| (format!("logit {v}"), v)).into(),
        }
    }
}

/// One kernel of the six-field family (m, k, a_offset, x_offset, y_offset, sixth).
pub(super) struct Dense {
    pub(super) weights: Format,
    pub(super) x: Format,
    /// required alignment of a_offset
    pub(super) a_align: u32,
    /// required alignment of x_offset
    pub(super) x_align: u32,
    pub(super) sixth: Sixth,
    /// made for very tall matrices
    pub(super) wide: bool,
}

const F32: Dense = Dense {
    weights: Format::F32,
    x: Format::F32,
    a_align: 4,
    x_align: 4,
    sixth: Sixth::Flag,
    wide: false,
};
const F16: Dense = Dense {
    weights: Format::F16,
    a_align: 2,
    ..F32
};
const MXFP4: Dense = Dense {
    weights: Format::Mxfp4,
    a_align: 1,
    ..F32
};
const Q4K: Dense = Dense {
    weights: Format::Q4K,
    x_align: 16,
    ..F32
};
const Q4K_WIDE: Dense = Dense { wide: true, ..Q4K };
const Q4K_BATCH: Dense = Dense {
    x_align: 4,
    sixth: Sixth::Columns(32),
    ..Q4K
};
const Q4K_BATCH_KPAR: Dense = Dense {
    sixth: Sixth::Columns(40),
    ..Q4K
};
const Q5K: Dense = Dense {
    weights: Format::Q5K,
    sixth: Sixth::Mode,
    ..Q4K
};
const Q6K: Dense = Dense {
    weights: Format::Q6K,
    a_align: 2,
    ..Q4K
};
const Q6K_WIDE: Dense = Dense { wide: true, ..Q6K };
const Q6K_BATCH: Dense = Dense {
    x_align: 4,
    sixth: Sixth::Columns(24),
    ..Q6K
};
const Q6K_BATCH_KPAR: Dense = Dense {
    x_align: 4,
    sixth: Sixth::Columns(40),
    ..Q6K
};
pub(super) const Q8_0: Dense = Dense {
    weights: Format::Q8_0,
    ..Q6K
};
const Q8_0_WIDE: Dense = Dense { wide: true, ..Q8_0 };
const Q8_0_SIGMOID: Dense = Dense {
    sixth: Sixth::Logit,
    ..Q8_0
};
pub(super) const Q8_0_Q8_1: Dense = Dense {
    x: Format::Q8_1,
    x_align: 36,
    ..Q8_0
};
const Q5_0: Dense = Dense {
    weights: Format::Q5_0,
    a_align: 2,
    ..F32
};
const Q5_1: Dense = Dense {
    weights: Format::Q5_1,
    ..F32
};
const Q5_1_ACC: Dense = Dense {
    sixth: Sixth::Factor,
    ..Q5_1
};

pub(super) const ENTRIES: &[Entry] = &[
    entry!("dmmv_f32", F32),
    entry!("dmmv_f16", F16),
    entry!("dmmv_mxfp4", MXFP4),
    entry!("dmmv_q4k", Q4K),
    entry!("dmmv_q4k_wide", Q4K_WIDE),
    entry!("dmmv_q4k_batch", Q4K_BATCH),
    entry!("dmmv_q4k_batch_kpar", Q4K_BATCH_KPAR),
    entry!("dmmv_q5k", Q5K),
    entry!("dmmv_q6k", Q6K),
    entry!("dmmv_q6k_wide", Q6K_WIDE),
    entry!("dmmv_q6k_batch", Q6K_BATCH),
    entry!("dmmv_q6k_batch_kpar", Q6K_BATCH_KPAR),
    entry!("dmmv_q8_0", Q8_0),
    entry!("dmmv_q8_0_wide", Q8_0_WIDE),
    // One vector, despite its name.
    entry!("dmmv_q8_0_batch", Q8_0_WIDE),
    entry!("dmmv_q8_0_sigmoid_acc", Q8_0_SIGMOID),
    entry!("dmmv_q8_0_q8_1", Q8_0_Q8_1),
    entry!("dmmv_q5_0", Q5_0),
    entry!("dmmv_q5_1", Q5_1),
    entry!("dmmv_q5_1_acc", Q5_1_ACC),
];

/// What a case of the family is made of.
#[derive(Clone, Copy)]
struct Shape {
    m: u32,
    k: u32,
    offsets: [u32; 3],
    sixth: u32,
    /// the logit, where there is one
    logit: f32,
    x: Fill,
    /// weight blocks of all flavors, not only plain ones
    edges: bool,
}

impl Dense {
    /// True if the contract leaves open what an infinity becomes.
    fn grouped(&self) -> bool {
        let single = matches!(self.weights, Format::F32 | Format::F16 | Format::Mxfp4);
        (self.x == Format::F32 || self.weights == Format::Q4K) && !single
    }

    /// Columns of which k is a multiple.
    fn unit(&self) -> u32 {
        self.weights.elements() as u32
    }

    /// y[j*m + r] (+)= factor * sum over c of W[r,c] * x[j*k + c]
    pub(super) fn reference(&self, call: &Call) -> Result<Vec<Expected>, OracleError> {
        let (m, k) = (call.count("m")?, call.count("k")?);
        let (a, x) = (call.count("a_offset")?, call.count("x_offset")?);
        let y = call.count("y_offset")?;
        let sixth = call.word(self.sixth.field())?;
        let old = if self.sixth.accumulates(sixth) {
            call.doubles("y", y, m)?
        } else {
            Vec::new()
        };
        let weights = call.slice("weights", a, m * self.weights.row_bytes(k))?;
        let sums = if self.x == Format::Q8_1 {
            let blocks = call.slice("x", x, self.x.row_bytes(k))?;
            map_rows(weights, m, |row| vec![dot_q8_1(self.weights, row, blocks)])
        } else {
            let count = self.sixth.vectors(sixth) as usize;
            products(
                self.weights,
                weights,
                m,
                &vectors(call, "x", x, count, k, k)?,
            )
        };
        let logit = match self.sixth {
            Sixth::Logit => call.doubles("gate", sixth as usize * 4, 1)?[0],
            _ => 0.0,
        };
        let element = |r: usize, sum: Sum| {
            let sum = match self.sixth {
                Sixth::Factor => sum.scaled(f64::from(f32::from_bits(sixth))),
                Sixth::Logit => gated_by(sum, logit),
                _ => sum,
            };
            let sum = old.get(r).map_or(sum, |old| sum.onto(*old));
            sum.element(self.grouped())
        };
        let rows = (0..self.sixth.vectors(sixth) as usize).map(|j| {
            let rows = sums.iter().enumerate();
            rows.map(|(r, sums)| element(r, sums[j])).collect()
        });
        let rows = rows.collect();
        Ok(vec![output_rows(call.index("y")?, y, m, rows)])
    }

    fn plain(&self) -> Shape {
        Shape {
            m: 1,
            k: self.unit(),
            offsets: [0; 3],
            sixth: self.sixth.plain(),
            logit: 0.3,
            x: Fill::Normal(1.0),
            edges: false,
        }
    }

    pub(super) fn cases(&self, cases: &mut Cases) {
        let unit = self.unit();
        let plain = self.plain();
        let offsets = [3 * self.a_align, 5 * self.x_align, 28];
        let smallest_steps = [self.a_align, self.x_align, 4];
        let odd = Shape {
            m: 7,
            k: 3 * unit,
            ..plain
        };
        let wide = Shape {
            m: 9,
            k: 4 * unit.max(32),
            ..plain
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
        add("offsets", Shape { offsets, ..odd });
        add(
            "smallest offsets",
            Shape {
                offsets: smallest_steps,
                ..odd
            },
        );
        for (label, sixth) in self.sixth.values() {
            let odd = Shape { sixth, ..odd };
            add(&label, odd);
            add(&format!("{label}, offsets"), Shape { offsets, ..odd });
            add(&format!("{label}, no columns"), Shape { k: 0, ..odd });
        }
        for (edges, sixth) in [
            ("edge blocks", None),
            ("edge blocks, last mode", self.sixth.values().pop()),
        ] {
            let sixth = sixth.map_or(plain.sixth, |(_, value)| value);
            add(
                edges,
                Shape {
                    m: 20,
                    edges: true,
                    sixth,
                    ..wide
                },
            );
        }
        for (label, x) in INPUTS {
            add(&format!("x: {label}"), Shape { x, ..wide });
        }
        if unit > 1 {
            // Activations at the ends of what int8 planes represent, and outliers among small ones.
            for (label, x) in [
                ("large", Fill::Normal(4e28)),
                ("small", Fill::Normal(1e-27)),
                ("outliers", Fill::Sprinkled(1e3)),
                ("wild outliers", Fill::Sprinkled(1e5)),
                ("an outlier", Fill::One(9, -1e6)),
            ] {
                add(&format!("x: {label}"), Shape { x, ..wide });
            }
            // Around tiles of 16 rows, steps of 256 columns, blocks with more tiles than warps, and the longest rows
            // whose planes are kept in shared memory.
            for (m, k) in [
                (15, 512),
                (16, 256),
                (8, 512 - unit.min(256)),
                (32, 256 + unit),
                (1100, 256),
                (1050, 512),
                (3, 72 * 256),
                (3, 72 * 256 + unit),
            ] {
                add(&format!("{m} x {k}, tiles"), Shape { m, k, ..plain });
            }
            // Around what a block of 256 threads has of a row at a time.
            for k in [64.max(unit), 2048 + unit.max(64), 4096 + unit] {
                add(&format!("6 x {k}, pieces"), Shape { m: 6, k, ..plain });
            }
            // Rows too long for pieces.
            let long = Shape {
                m: 40,
                k: 8192 + 256.max(unit),
                ..plain
            };
            let x = Fill::One(9, -1e6);
            add("long rows", long);
            add(
                "long rows, edge blocks",
                Shape {
                    edges: true,
                    ..long
                },
            );
            add("long rows, x: an outlier", Shape { x, ..long });
            // Whole tiles of whole rings of steps, and what does not fit these.
            let rings = Shape {
                m: 1104,
                k: 1024,
                ..plain
            };
            add("1104 x 1024, rings", rings);
            add("1104 x 2048, rings", Shape { k: 2048, ..rings });
            add("1103 x 1024, rings", Shape { m: 1103, ..rings });
            add("1104 x 1280, rings", Shape { k: 1280, ..rings });
            add("rings, offsets", Shape { offsets, ..rings });
            let x = Fill::One(9, -1e6);
            add("rings, x: an outlier", Shape { x, ..rings });
        }
        // Rows that are copied whole, in one piece and in two, also where a piece is not for all warps.
        let x = Fill::One(9, -1e6);
        for (m, k) in [
            (1039, 2048),
            (528, 4096),
            (560, 3840),
            (37, 2304),
            (37, 512),
        ] {
            let copied = Shape { m, k, ..plain };
            add(&format!("{m} x {k}, copied"), copied);
            add(&format!("{m} x {k}, x: an outlier"), Shape { x, ..copied });
        }
        let copied = Shape {
            m: 1039,
            k: 2048,
            ..plain
        };
        let once = self.sixth.values().into_iter().find(|(_, v)| *v == 1);
        add(
            "copied, edge blocks, offsets",
            Shape {
                offsets: [3 * self.a_align.max(16), 5 * self.x_align.max(16), 28],
                sixth: once.map_or(plain.sixth, |(_, value)| value),
                edges: true,
                ..copied
            },
        );
        if let Some((label, sixth)) = self.sixth.values().into_iter().find(|(_, v)| *v > 0) {
            let x = Fill::One(0, f32::NAN);
            add(&format!("x: a NaN, {label}"), Shape { x, sixth, ..wide });
        }
        if self.sixth == Sixth::Logit {
            for logit in [
                0.0,
                -3.0,
                20.0,
                -20.0,
                88.0,
                -88.0,
                -89.0,
                -104.0,
                -1e30,
                f32::INFINITY,
                f32::NEG_INFINITY,
                f32::NAN,
            ] {
                add(&format!("logit is {logit:e}"), Shape { logit, ..odd });
            }
        }
        if unit == 1 {
            for k in [2, 3, 5, 31, 63, 65, 127, 129, 255, 1023] {
                let offsets = smallest_steps;
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
        for (row, what) in [(0, f32::NAN), (3, f32::NAN), (2, f32::INFINITY)] {
            let special = special_factor(self.weights, row, wide.k as usize, what);
            if let Some((at, bytes)) = special {
                cases.add(format!("{what} in row {row}"), |d| {
                    self.fill(d, Shape { m: 6, ..wide });
                    d.patch("weights", at, &bytes);
                });
            }
        }
        let special = special_factor(self.weights, 2, copied.k as usize, f32::INFINITY);
        if let Some((at, bytes)) = special {
            cases.add("copied, inf in row 2", |d| {
                self.fill(d, copied);
                d.patch("weights", at, &bytes);
            });
        }
        if self.x == Format::Q8_1 {
            for stored in [f32::NAN, f32::INFINITY] {
                cases.add(format!("a stored sum of {stored}"), |d| {
                    self.fill(d, wide);
                    let half = half::f16::from_f32(stored).to_le_bytes();
                    d.patch("x", 36 + 34, &half);
                });
            }
            cases.add("extreme quants", |d| {
                self.fill(d, wide);
                let (first, limit) = match self.weights {
                    Format::Q8_0 => (2, 0x80),
                    _ => (16, 0xff),
                };
                let bytes = self.weights.bytes();
                for block in 0..(wide.m * wide.k / unit) as usize {
                    let quants = vec![limit; bytes - first];
                    d.patch("weights", block * bytes + first, &quants);
                }
                for block in 0..wide.k as usize / 32 {
                    let quant = if block % 3 == 0 { 0x81 } else { 0x7f };
                    d.patch("x", block * 36, &[quant; 32]);
                }
            });
        }
        let mut model = vec![(48, 2048, false)];
        model.extend([
            (2048, 2048, true),
            (9216, 2048, true),
            (2048, 9216, true),
            (4099, 4096, true),
        ]);
        if unit == 32 {
            // Expert sizes of Gemma and gpt-oss.
            model.extend([
                (40, 704, false),
                (24, 2880, false),
                (2816, 704, true),
                (2880, 2880, true),
            ]);
        } else {
            model.push((1031, 5376, true));
        }
        if self.wide {
            model.push((32771, 512, true));
        }
        for (m, k, heavy) in model {
            let label = format!("{m} x {k}, as in models");
            let fill = |d: &mut Draft| self.fill(d, Shape { m, k, ..plain });
            if heavy {
                cases.heavy(label, fill);
            } else {
                cases.add(label, fill);
            }
        }
        if let Sixth::Columns(limit) = self.sixth {
            let sixth = limit;
            cases.add("64 rows, all columns", |d| {
                self.fill(
                    d,
                    Shape {
                        m: 64,
                        sixth,
                        ..plain
                    },
                );
            });
            cases.heavy("2048 x 2048, all columns", |d| {
                self.fill(
                    d,
                    Shape {
                        m: 2048,
                        k: 2048,
                        sixth,
                        ..plain
                    },
                );
            });
        }
    }

    pub(super) fn random(&self, draft: &mut Draft) {
        let rng = &mut draft.rng;
        let unit = self.unit();
        let k = if unit == 1 {
            rng.below(300)
        } else {
            unit * rng.below(4)
        };
        let sixth = match self.sixth {
            Sixth::Flag => rng.below(3),
            Sixth::Mode | Sixth::Columns(_) | Sixth::Logit => rng.below(6),
            Sixth::Factor => rng.normal().to_bits(),
        };
        let offsets = [
            self.a_align * rng.below(5),
            self.x_align * rng.below(5),
            4 * rng.below(5),
        ];
        let inputs = [
            Fill::Normal(1.0),
            Fill::Normal(1e-3),
            Fill::Alternating(2.0),
        ];
        let shape = Shape {
            m: rng.below(24),
            k,
            offsets,
            sixth,
            logit: rng.normal() * 4.0,
            x: rng.pick(&inputs),
            edges: rng.flip(),
        };
        self.fill(draft, shape);
    }

    fn fill(&self, draft: &mut Draft, shape: Shape) {
        let Shape {
            m,
            k,
            offsets: [a, x, y],
            sixth,
            ..
        } = shape;
        draft.set_all(&[
            ("m", m),
            ("k", k),
            ("a_offset", a),
            ("x_offset", x),
            ("y_offset", y),
            (self.sixth.field(), sixth),
        ]);
        let weights = random_matrix(draft, self.weights, m, k, shape.edges);
        draft.read("weights", a as usize, &weights);
        if self.x == Format::Q8_1 {
            let blocks = q8_1_vector(draft, k as usize / 32, shape.x);
            draft.read("x", x as usize, &blocks);
        } else {
            let count = self.sixth.vectors(sixth) * k;
            let values = shape.x.make(&mut draft.rng, count as usize);
            draft.read_floats("x", x as usize, &values);
        }
        if self.sixth == Sixth::Logit {
            draft.read_floats("gate", sixth as usize * 4, &[shape.logit]);
        }
        let old = if self.sixth.accumulates(sixth) {
            draft.rng.normals(m as usize, 3.0)
        } else {
            Vec::new()
        };
        draft.update("y", y as usize, &old);
    }
}

/// sigmoid(logit) * sum, with twice the error of a sum. Where the f32 sigmoid may be 0, it may be lost.
fn gated_by(sum: Sum, logit: f64) -> Sum {
    let factor = sigmoid(logit);
    let gated = sum.scaled(factor);
    let lost = if logit < SIGMOID_FLOOR && logit.is_finite() {
        factor * sum.magnitude
    } else {
        0.0
    };
    Sum {
        error: 2.0 * gated.error + lost,
        ..gated
    }
}

/// Activation blocks whose factors follow `fill`.
fn q8_1_vector(draft: &mut Draft, blocks: usize, fill: Fill) -> Vec<u8> {
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

/// Sum over blocks of scale * d8 * (sum of q * q8), less minimum * s8 where the weights have minima, with
/// exact integer sums.
fn dot_q8_1(weights: Format, row: &[u8], x: &[u8]) -> Sum {
    const BLOCK: usize = 32;
    let half = |b: &[u8], at: usize| half::f16::from_le_bytes([b[at], b[at + 1]]).to_f64();
    let (mut quants, mut factors) = ([0; 256], [(0.0, 0.0); 8]);
    let quants = &mut quants[..weights.elements()];
    let factors = &mut factors[..weights.elements() / BLOCK];
    let minima = weights == Format::Q4K;
    let mut dot = Sum::default();
    let vector = x.chunks_exact(factors.len() * Format::Q8_1.bytes());
    for (block, x) in row.chunks_exact(weights.bytes()).zip(vector) {
        weights.split(block, quants, factors);
        dot.nan |= weights.has_nan_factor(block);
        let groups = quants.chunks_exact(BLOCK).zip(factors.iter());
        for ((quants, (scale, minimum)), x) in groups.zip(x.chunks_exact(Format::Q8_1.bytes())) {
            let products = quants.iter().zip(x).map(|(q, &x)| q * i32::from(x as i8));
            let (sum, absolute) = products.fold((0, 0), |(s, a), p| (s + p, a + p.abs()));
            let (d8, s8) = (half(x, 32), half(x, 34));
            dot.nan |= d8.is_nan();
            dot.value += scale * d8 * f64::from(sum);
            dot.magnitude += (scale * d8).abs() * f64::from(absolute);
            if minima {
                dot.nan |= s8.is_nan();
                dot.value -= minimum * s8;
                dot.magnitude += (minimum * s8).abs();
            }
        }
    }
    dot.error = EPSILON * dot.magnitude;
    dot
}
