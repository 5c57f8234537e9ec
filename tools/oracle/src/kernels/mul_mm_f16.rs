//! The f16 form of products of a weight matrix with the activations of many tokens: activations that are
//! packed as f16 with a scale per token, and the products of those with weights that are rounded to f16.

use rayon::prelude::*;

use super::Entry;
use super::gemm::{
    INPUTS, Row, Sum, Vector, extreme_quants, map_rows, output_rows, pitched, special_factor,
};
use super::mul_mm::Size;
use crate::case::{Cases, Draft, Fill, float_bytes};
use crate::quant::{Flavor, Format};
use crate::{Call, Check, Element, Expected, OracleError, Outcome, Region, Want};

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "pack_act_f16",
        reference: pack,
        cases: pack_cases,
        random: |d| {
            let shape = Shape {
                n: d.rng.between(1, 12),
                k: 32 * d.rng.between(1, 9),
                pad: d.rng.below(5),
                offset: d.rng.below(5),
            };
            let scale = d.rng.pick(&[1.0, 1e-3, 100.0]);
            shape.fill(d, Fill::Normal(scale));
        },
    },
    entry!("mul_mm_q4k_f16", Q4K),
    entry!("mul_mm_q5k_f16", Q5K),
    entry!("mul_mm_q6k_f16", Q6K),
    entry!("mul_mm_q8_0_f16", Q8_0),
];

/// Columns that lie together for all tokens.
const STRETCH: usize = 64;

/// Index of the f16 number of column `c` of token `t`, of `n`.
fn place(n: usize, t: usize, c: usize) -> usize {
    let (q, j) = (c / STRETCH, c % STRETCH);
    let piece = 4 * (j / 32) + 2 * (j % 8 / 4) + j % 2;
    let place = 2 * (j % 32 / 8) + j % 4 / 2;
    (q * n + t) * STRETCH + (piece ^ (t % 8)) * 8 + place
}

/// f16 numbers of `n` tokens of `k` columns.
fn numbers(n: usize, k: usize) -> usize {
    k.div_ceil(STRETCH) * n * STRETCH
}

/// The scale of a token with the activations `x`, and their f16 numbers.
fn pack_token(x: &[f64]) -> (f64, Vec<u16>) {
    let sizes = x.iter().map(|x| x.abs()).filter(|x| x.is_finite());
    let largest = sizes.fold(0.0, f64::max);
    let scale = if largest == 0.0 {
        1.0
    } else {
        // The exponent of an f32, which is a normal f64.
        let exponent = (largest.to_bits() >> 52) as i32 - 1023;
        f64::from((exponent - 14).max(-126)).exp2()
    };
    // The quotient is an f32 as well, or so small that both are rounded to 0.
    let half = |x: &f64| half::f16::from_f32((x / scale) as f32).to_bits();
    (scale, x.iter().map(half).collect())
}

/// Numbers in the order of the contract, and scales.
struct Packed {
    h: Vec<u16>,
    scales: Vec<f32>,
}

impl Packed {
    /// Those of tokens of `k` columns.
    fn of(tokens: &[Vec<f64>], k: usize) -> Self {
        let n = tokens.len();
        let packed: Vec<_> = tokens.par_iter().map(|x| pack_token(x)).collect();
        let mut h = vec![0; numbers(n, k)];
        for (t, (_, token)) in packed.iter().enumerate() {
            for (c, bits) in token.iter().enumerate() {
                h[place(n, t, c)] = *bits;
            }
        }
        let scales = packed.iter().map(|(scale, _)| *scale as f32).collect();
        Self { h, scales }
    }

    fn bytes(&self) -> Vec<u8> {
        self.h.iter().flat_map(|bits| bits.to_le_bytes()).collect()
    }
}

/// Every number and every scale, bit for bit; a NaN is any NaN.
fn pack(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (n, k) = (call.count("n")?, call.count("k")?);
    let (start, stride) = (call.count("x_offset")?, call.count("stride_x")?);
    let token = |t: usize| call.doubles("x", 4 * (start + t * stride), k);
    let tokens: Vec<_> = (0..n).map(token).collect::<Result<_, _>>()?;
    let packed = Packed::of(&tokens, k);
    let scales = packed.scales.iter().map(|s| Element::Bits(s.to_bits()));
    let scales = Expected::floats(call.index("scale")?, 0, scales.collect());
    let sample = packed.bytes();
    let rule = "f16 by rounding once, a NaN for a NaN, in the order of the contract";
    let check = Check::new(rule, sample, move |bytes, _| {
        let mut outcome = Outcome::default();
        let found = bytes
            .chunks_exact(2)
            .map(|b| u16::from_le_bytes([b[0], b[1]]));
        for (index, (found, wanted)) in found.zip(&packed.h).enumerate() {
            let nan = |bits| half::f16::from_bits(bits).is_nan();
            let good = found == *wanted || nan(found) && nan(*wanted);
            outcome.exact(index, good, || {
                (format!("{wanted:#06x}"), format!("{found:#06x}"))
            });
        }
        outcome
    });
    let h = Expected {
        buffer: call.index("h")?,
        regions: vec![Region {
            start: 0,
            want: Want::Check(check),
        }],
    };
    Ok(vec![h, scales])
}

/// A matrix to pack.
#[derive(Clone, Copy)]
struct Shape {
    n: u32,
    k: u32,
    /// floats behind every token, and before the first one
    pad: u32,
    offset: u32,
}

impl Shape {
    const fn new(n: u32, k: u32) -> Self {
        Self {
            n,
            k,
            pad: 0,
            offset: 0,
        }
    }

    fn fill(self, d: &mut Draft, x: Fill) {
        let values = x.make(&mut d.rng, (self.n * self.k) as usize);
        self.values(d, &values);
    }

    fn values(self, d: &mut Draft, values: &[f32]) {
        let stride = self.k + self.pad;
        d.set_all(&[("n", self.n), ("k", self.k)]);
        d.set_all(&[("stride_x", stride), ("x_offset", self.offset)]);
        let values = pitched(values, self.k as usize, stride as usize);
        d.read_floats("x", 4 * self.offset as usize, &values);
        d.write("h");
        d.write("scale");
    }
}

/// Quotients half way between f16 numbers and next to that, of both signs, in a token whose scale is
/// `scale`; among them subnormal ones.
fn ties(scale: f32) -> Vec<f32> {
    let mut values = vec![16_384.0];
    for exponent in [-24, -15, -14, 0, 11, 13] {
        // The distance of f16 numbers there.
        let unit = 2.0_f32.powi((exponent - 10).max(-24));
        let first = if exponent == -24 {
            0.0
        } else {
            2.0_f32.powi(exponent)
        };
        for i in 0..6 {
            let tie = first + (i as f32 + 0.5) * unit;
            for bits in [tie.to_bits() - 1, tie.to_bits(), tie.to_bits() + 1] {
                values.push(f32::from_bits(bits));
            }
        }
    }
    let signed = values.iter().flat_map(|v| [*v, -v]);
    let mut values: Vec<f32> = signed.map(|v| v * scale).collect();
    values.resize(values.len().next_multiple_of(32), 0.0);
    values
}

fn pack_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    for (n, k) in [
        (1, 32),
        (1, 64),
        (1, 96),
        (2, 32),
        (3, 160),
        (5, 256),
        (7, 64),
        (8, 96),
        (9, 128),
        (17, 224),
        (64, 32),
        (65, 64),
        (257, 32),
        (2, 1056),
        (3, 2048),
        (1, 4096),
        (1, 8224),
    ] {
        cases.add(format!("{n} tokens of {k}"), |d| {
            Shape::new(n, k).fill(d, normal);
        });
    }
    for (pad, offset) in [(1, 0), (0, 1), (2, 3), (4, 4), (3, 2), (32, 8), (1000, 5)] {
        for k in [96, 256] {
            let label = format!("tokens of {k}, {pad} apart, from {offset}");
            cases.add(label, |d| {
                let shape = Shape::new(5, k);
                Shape {
                    pad,
                    offset,
                    ..shape
                }
                .fill(d, normal);
            });
        }
    }
    let some = Shape::new(5, 160);
    for (label, x) in INPUTS {
        cases.add(label, |d| some.fill(d, x));
    }
    for (label, x) in [
        ("minus zeros", Fill::Equal(-0.0)),
        ("the largest f32", Fill::Equal(-f32::MAX)),
        ("the smallest f32", Fill::Equal(f32::from_bits(1))),
        ("the smallest normal f32", Fill::Equal(f32::MIN_POSITIVE)),
        ("around the clamped exponent", Fill::Normal(2e-34)),
        (
            "below a power of two",
            Fill::Equal(f32::from_bits(0x3fff_ffff)),
        ),
        ("a power of two", Fill::Equal(2.0)),
        ("of many sizes", Fill::Spread(-40.0, 38.0)),
        ("of f16's sizes", Fill::Spread(-9.0, 4.0)),
        ("growing", Fill::Growing(-35.0, 30.0)),
        ("one outlier", Fill::One(40, 1e6)),
        ("NaNs", Fill::Equal(f32::NAN)),
        ("infinities", Fill::Equal(f32::NEG_INFINITY)),
        ("some infinite", Fill::Sprinkled(f32::INFINITY)),
        ("some NaN", Fill::Sprinkled(f32::NAN)),
    ] {
        cases.add(label, |d| some.fill(d, x));
    }
    for scale in [1.0, 2.0_f32.powi(-60), 2.0_f32.powi(100)] {
        let values = ties(scale);
        cases.add(format!("ties, scale {scale:e}"), |d| {
            Shape::new(1, values.len() as u32).values(d, &values);
        });
    }
    cases.add("the largest value in every place", |d| {
        let (n, k) = (96, 96);
        let mut values = d.rng.normals(n * k, 0.01);
        for t in 0..n {
            values[t * k + t] = if t % 2 == 0 { 100.0 } else { -3e9 };
        }
        Shape::new(n as u32, k as u32).values(d, &values);
    });
    cases.add("tokens of very different sizes, some special", |d| {
        let k = 96;
        let mut values = Vec::new();
        for scale in [
            1e-44,
            1.0,
            f32::NAN,
            1e30,
            0.0,
            f32::INFINITY,
            1e-30,
            3e38,
            -0.0,
        ] {
            values.extend((0..k).map(|_| d.rng.uniform(1.0) * scale));
        }
        Shape::new(9, k as u32).values(d, &values);
    });
    for (n, k) in [(1, 32_768), (2, 40_992), (512, 4096), (1031, 2048)] {
        cases.heavy(format!("{n} tokens of {k}"), |d| {
            Shape::new(n, k).fill(d, normal);
        });
    }
    cases.heavy("37 tokens of 5376, misaligned", |d| {
        let shape = Shape::new(37, 5376);
        Shape {
            pad: 3,
            offset: 1,
            ..shape
        }
        .fill(d, normal);
    });
}

/// One product.
struct Product {
    weights: Format,
    /// required alignment of a_offset
    a_align: u32,
}

const Q4K: Product = Product {
    weights: Format::Q4K,
    a_align: 4,
};
const Q5K: Product = Product {
    weights: Format::Q5K,
    ..Q4K
};
const Q6K: Product = Product {
    weights: Format::Q6K,
    a_align: 2,
};
const Q8_0: Product = Product {
    weights: Format::Q8_0,
    ..Q6K
};

/// The part of S that a product may be off.
const EPSILON: f64 = 1.1e-3;
/// What a product may be off for every unit of the activations.
const ABSOLUTE: f64 = 1e-7;
/// Largest finite f16, beyond which a weight and what it is made of leave a row open.
const RANGE: f64 = 65_504.0;

/// Where the numbers and scales of a product come from.
#[derive(Clone, Copy)]
enum Activations {
    /// packed from these
    Packed(Fill),
    /// packed from these, where every token has another size and every fifth one is zero
    Sizes(Fill),
    /// any finite f16, with scales of this kind
    Bits(Fill),
}

/// A number that is replaced: its token, its column and the new value.
type Special = (usize, usize, f32);

/// A token as the product reads it.
struct Token {
    scale: f64,
    v: Vector,
    /// sum of |v|
    size: f64,
}

impl Product {
    fn tokens(&self, call: &Call) -> Result<Vec<Token>, OracleError> {
        let (n, k) = (call.count("n")?, call.count("k")?);
        let h = call.slice("h", 0, 2 * numbers(n, k))?;
        let scales = call.doubles("scale", 0, n)?;
        let token = |(t, scale)| {
            let number = |c| {
                let at = 2 * place(n, t, c);
                half::f16::from_le_bytes([h[at], h[at + 1]]).to_f64()
            };
            let v = Vector::from((0..k).map(number).collect::<Vec<f64>>());
            let size = v.magnitudes.iter().sum();
            Token { scale, v, size }
        };
        Ok(scales.into_iter().enumerate().map(token).collect())
    }

    /// True if a weight of the row, or what it is formed of, is beyond the range of f16.
    fn is_open(&self, blocks: &[u8]) -> bool {
        let (elements, group) = (self.weights.elements(), self.weights.group());
        let (mut quants, mut factors) = (vec![0; elements], vec![(0.0, 0.0); elements / group]);
        blocks.chunks_exact(self.weights.bytes()).any(|block| {
            self.weights.split(block, &mut quants, &mut factors);
            let groups = quants.chunks_exact(group).zip(&factors);
            let weights = groups.flat_map(|(quants, f)| quants.iter().map(move |q| (*q, *f)));
            let mut weights = weights.map(|(q, (scale, minimum))| (f64::from(q), scale, minimum));
            // q8_0 has one factor, which no port rounds.
            let inner = self.weights != Format::Q8_0;
            weights.any(|(q, scale, minimum)| {
                let parts = [scale * q, minimum, scale * q - minimum];
                parts.iter().any(|part| part.abs() > RANGE) || inner && scale.abs() > RANGE
            })
        })
    }

    /// d[t*stride_d + r] = scale[t] * sum over c of A[r,c] * v[t,c]
    fn reference(&self, call: &Call) -> Result<Vec<Expected>, OracleError> {
        let (m, n, k) = (call.count("m")?, call.count("n")?, call.count("k")?);
        let tokens = self.tokens(call)?;
        let bytes = m * self.weights.row_bytes(k);
        let weights = call.slice("a", call.count("a_offset")?, bytes)?;
        let elements = map_rows(weights, m, |blocks| {
            if self.is_open(blocks) {
                return vec![Element::Free; n];
            }
            let row = Row::new(self.weights, blocks);
            let element = |token: &Token| {
                if !token.scale.is_finite() {
                    return Element::Free;
                }
                let sum = row.dot(&token.v);
                let error = EPSILON * sum.magnitude + ABSOLUTE * token.size;
                Sum { error, ..sum }.scaled(token.scale).element(true)
            };
            tokens.iter().map(element).collect::<Vec<_>>()
        });
        let rows = (0..n).map(|t| elements.iter().map(|row| row[t]).collect());
        let (start, stride) = (call.count("d_offset")?, call.count("stride_d")?);
        let d = call.index("d")?;
        Ok(vec![output_rows(d, 4 * start, stride, rows.collect())])
    }

    fn unit(&self) -> u32 {
        self.weights.elements() as u32
    }

    fn has_minimum(&self) -> bool {
        matches!(self.weights, Format::Q4K | Format::Q5K)
    }

    fn cases(&self, cases: &mut Cases) {
        let plain = Activations::Packed(Fill::Normal(1.0));
        for (label, size, heavy) in Size::all(self.unit(), false, self.a_align) {
            let fill = |d: &mut Draft| self.fill(d, size, plain);
            if heavy {
                cases.heavy(label, fill);
            } else {
                cases.add(label, fill);
            }
        }
        let sizes = Activations::Sizes(Fill::Normal(1.0));
        let k = self.unit().max(64);
        for (m, n, k) in [
            (8, 65, k),
            (9, 63, 2 * k),
            (63, 9, k),
            (64, 8, 3 * k),
            (65, 64, k),
            (5, 129, 2 * k),
            (129, 5, 2 * k),
            (3, 257, k),
            (257, 2, k),
            (2, 3, 2048),
        ] {
            cases.add(format!("{m} x {k}, {n} tokens of different sizes"), |d| {
                self.fill(d, Size::new(m, n, k), sizes);
            });
        }
        if self.unit() == 32 {
            for (m, n, k) in [
                (1, 1, 96),
                (7, 9, 32),
                (65, 8, 160),
                (9, 65, 224),
                (3, 1, 2080),
            ] {
                let label = format!("{m} x {k}, {n} tokens, half a stretch of columns");
                cases.add(label, |d| self.fill(d, Size::new(m, n, k), sizes));
            }
        }
        for (m, n, k) in [(257, 257, 256), (200, 520, 256), (130, 300, 512)] {
            let label = format!("{m} x {k}, {n} tokens of different sizes");
            cases.heavy(label, |d| self.fill(d, Size::new(m, n, k), sizes));
        }
        if self.unit() == 32 {
            cases.heavy("513 x 2080, 130 tokens of different sizes", |d| {
                self.fill(d, Size::new(513, 130, 2080), sizes);
            });
        }
        let some = Size::new(9, 5, 256);
        for (label, x) in INPUTS {
            cases.add(format!("activations: {label}"), |d| {
                self.fill(d, some, Activations::Packed(x));
            });
        }
        for (label, activations) in [
            (
                "of many sizes",
                Activations::Packed(Fill::Spread(-8.0, 4.0)),
            ),
            ("growing", Activations::Packed(Fill::Growing(-35.0, 30.0))),
            ("some large", Activations::Packed(Fill::Sprinkled(3e3))),
            ("any number", Activations::Bits(Fill::Normal(1e-4))),
            (
                "any number, scale zero",
                Activations::Bits(Fill::Equal(0.0)),
            ),
            (
                "any number, large scales",
                Activations::Bits(Fill::Normal(1e28)),
            ),
            (
                "any number, tiny scales",
                Activations::Bits(Fill::Normal(1e-38)),
            ),
            (
                "any number, a scale that is NaN",
                Activations::Bits(Fill::One(2, f32::NAN)),
            ),
            (
                "any number, a scale that is infinite",
                Activations::Bits(Fill::One(0, f32::INFINITY)),
            ),
        ] {
            for k in [some.k, 3 * some.k] {
                let label = format!("activations: {label}, {k} columns");
                cases.add(label, |d| self.fill(d, Size { k, ..some }, activations));
            }
        }
        self.special_cases(cases);
        self.weight_cases(cases);
    }

    /// Single tokens and rows with NaNs and infinities.
    fn special_cases(&self, cases: &mut Cases) {
        let plain = Activations::Packed(Fill::Normal(1.0));
        let size = Size::new(17, 19, 256);
        let specials: [(&str, &[Special]); 5] = [
            ("a NaN in the first token", &[(0, 0, f32::NAN)]),
            ("a NaN in token 9", &[(9, 130, f32::NAN)]),
            ("an infinity in token 8", &[(8, 255, f32::INFINITY)]),
            (
                "opposite infinities in token 7",
                &[(7, 3, f32::INFINITY), (7, 4, f32::NEG_INFINITY)],
            ),
            (
                "NaNs and infinities in many tokens",
                &[
                    (1, 17, f32::NAN),
                    (2, 64, f32::INFINITY),
                    (15, 31, f32::NEG_INFINITY),
                    (16, 200, f32::NAN),
                ],
            ),
        ];
        for (label, patches) in specials {
            cases.add(label, |d| {
                self.fill(d, size, plain);
                for (t, c, value) in patches {
                    let at = 2 * place(size.n as usize, *t, *c);
                    d.patch("h", at, &half::f16::from_f32(*value).to_le_bytes());
                }
            });
        }
        for (row, what) in [(0, f32::NAN), (5, f32::INFINITY), (16, f32::NAN)] {
            cases.add(format!("{what} in row {row}"), |d| {
                self.fill(d, size, plain);
                let special = special_factor(self.weights, row, size.k as usize, what);
                let (at, bytes) = special.unwrap_or_default();
                // In the last row the minimum's.
                let minimum = usize::from(row == 16 && self.has_minimum());
                d.patch("a", at + 2 * minimum, &bytes);
            });
        }
    }

    /// Unusual weights.
    fn weight_cases(&self, cases: &mut Cases) {
        let plain = Activations::Packed(Fill::Normal(1.0));
        let size = Size::new(9, 5, 512);
        let row_bytes = self.weights.row_bytes(size.k as usize);
        let blocks = (size.m * size.k) as usize / self.weights.elements();
        for flavor in Flavor::ALL {
            // Large ones leave their row open.
            let (first, rows) = match flavor {
                Flavor::Large => (3, 2),
                _ => (0, size.m as usize),
            };
            cases.add(format!("weights: {flavor:?} in {rows} rows"), |d| {
                self.fill(d, size, plain);
                for block in 0..blocks / size.m as usize * rows {
                    let at = first * row_bytes + block * self.weights.bytes();
                    let bytes = self.weights.random_block(&mut d.rng, flavor);
                    d.patch("a", at, &bytes);
                }
            });
        }
        cases.add("extreme quants", |d| {
            self.fill(d, size, plain);
            extreme_quants(d, "a", self.weights, blocks);
        });
        // Factors with which the largest weights, and what they are formed of, are within f16.
        let [factor, minimum] = match self.weights {
            Format::Q4K => [69.0, 1000.0],
            Format::Q5K => [33.0, 1000.0],
            Format::Q6K => [15.5, 0.0],
            _ => [511.0, 0.0],
        };
        for (label, factors) in [
            ("largest factors", [factor, minimum]),
            ("negative factors", [-factor, -minimum]),
            ("minimums only", [0.0, minimum]),
            ("scales only", [factor, 0.0]),
            ("the smallest factors", [5.96e-8, -5.96e-8]),
            ("factors around the smallest normal f16", [6.1e-5, 6e-5]),
        ] {
            for extreme in [false, true] {
                let kind = if extreme { ", extreme quants" } else { "" };
                cases.add(format!("weights: {label}{kind}"), |d| {
                    self.fill(d, size, plain);
                    if extreme {
                        extreme_quants(d, "a", self.weights, blocks);
                    }
                    for block in 0..blocks {
                        for (at, factor) in self.weights.factors().iter().zip(factors) {
                            let at = block * self.weights.bytes() + at;
                            d.patch("a", at, &half::f16::from_f32(factor).to_le_bytes());
                        }
                    }
                });
            }
        }
    }

    fn random(&self, draft: &mut Draft) {
        let size = Size::random(draft, self.unit(), false, self.a_align);
        let activations = draft.rng.pick(&[
            Activations::Packed(Fill::Normal(1.0)),
            Activations::Sizes(Fill::Normal(0.2)),
            Activations::Bits(Fill::Normal(1e-3)),
        ]);
        self.fill(draft, size, activations);
    }

    fn fill(&self, draft: &mut Draft, size: Size, activations: Activations) {
        let Size {
            m,
            n,
            k,
            pads,
            offsets: [a, _, d],
            ..
        } = size;
        draft.set_all(&[("m", m), ("n", n), ("k", k), ("a_offset", a)]);
        draft.set_all(&[("stride_d", m + pads[1]), ("d_offset", d)]);
        size.fill_weights(draft, self.weights, "a");
        let (n, k) = (n as usize, k as usize);
        let packed = match activations {
            Activations::Packed(x) | Activations::Sizes(x) => {
                let values = x.make(&mut draft.rng, n * k);
                let tokens = values.chunks_exact(k).enumerate().map(|(t, values)| {
                    let size = match activations {
                        Activations::Packed(_) => 1.0,
                        _ if t % 5 == 3 => 0.0,
                        _ => 10_f64.powf(draft.rng.unit() * 6.0 - 3.0),
                    };
                    // Values of f32, as there are.
                    let value = |x: &f32| f64::from((f64::from(*x) * size) as f32);
                    values.iter().map(value).collect()
                });
                Packed::of(&tokens.collect::<Vec<_>>(), k)
            }
            Activations::Bits(scales) => {
                let mut h = vec![0; numbers(n, k)];
                for (t, c) in (0..n).flat_map(|t| (0..k).map(move |c| (t, c))) {
                    let bits = draft.rng.below(1 << 16) as u16;
                    let finite = half::f16::from_bits(bits).is_finite();
                    h[place(n, t, c)] = if finite { bits } else { bits & 0x83ff };
                }
                let scales = scales.make(&mut draft.rng, n);
                Packed { h, scales }
            }
        };
        draft.read("h", 0, &packed.bytes());
        draft.read("scale", 0, &float_bytes(&packed.scales));
        draft.write("d");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_number_has_a_place_of_its_own() {
        for n in [1, 3, 8, 11] {
            let all = (0..n).flat_map(|t| (0..192).map(move |c| place(n, t, c)));
            let places: BTreeSet<usize> = all.collect();
            assert_eq!(places.len(), n * 192);
            assert_eq!(places.last(), Some(&(numbers(n, 192) - 1)));
        }
    }

    #[test]
    fn pieces_hold_what_a_lane_of_a_matrix_instruction_takes() {
        // Token 0 is not exchanged: piece 0 starts the pairs 0, 2 of every eight columns.
        let columns = |piece: usize| -> Vec<usize> {
            let mut found = vec![0; 8];
            for c in 0..STRETCH {
                if place(1, 0, c) / 8 == piece {
                    found[place(1, 0, c) % 8] = c;
                }
            }
            found
        };
        assert_eq!(columns(0), [0, 2, 8, 10, 16, 18, 24, 26]);
        assert_eq!(columns(1), [1, 3, 9, 11, 17, 19, 25, 27]);
        assert_eq!(columns(2), [4, 6, 12, 14, 20, 22, 28, 30]);
        assert_eq!(columns(7), [37, 39, 45, 47, 53, 55, 61, 63]);
        assert_eq!(place(8, 3, 0), 3 * STRETCH + 3 * 8);
    }

    #[test]
    fn tokens_are_scaled_to_their_largest_finite_value() {
        let (scale, v) = pack_token(&[3.0, -1.0, f64::INFINITY, 0.0]);
        assert_eq!(scale, 2.0_f64.powi(-13));
        assert_eq!(v[..2], [0x7600, 0xf000]);
        assert_eq!(v[2..], [0x7c00, 0]);
        assert_eq!(pack_token(&[0.0, f64::NAN]).0, 1.0);
        assert_eq!(pack_token(&[2.0_f64.powi(-149)]).0, 2.0_f64.powi(-126));
        assert_eq!(pack_token(&[f64::from(f32::MAX)]).0, 2.0_f64.powi(113));
        assert_eq!(pack_token(&[2.0_f64.powi(-112)]).0, 2.0_f64.powi(-126));
    }

    #[test]
    fn rounding_sees_the_last_bit_of_an_activation() {
        let tie = 2049.0_f32;
        let next = |by: i32| f64::from(f32::from_bits(tie.to_bits().wrapping_add_signed(by)));
        let (scale, v) = pack_token(&[16_384.0, next(-1), next(0), next(1)]);
        assert_eq!(scale, 1.0);
        let v: Vec<f32> = v
            .iter()
            .map(|b| half::f16::from_bits(*b).to_f32())
            .collect();
        assert_eq!(v, [16_384.0, 2048.0, 2048.0, 2050.0]);
    }
}
