//! Products of a weight matrix with activations that are quantized to 8 bits, by integer dot products:
//! the shared operand and sums, and the kernels with f32 outputs.

use super::Entry;
use super::gemm::{EPSILON, Gate, Sum, extreme_quants, map_rows, output_rows, silu};
use super::mul_mm::Size;
use crate::case::{Cases, Draft, Fill};
use crate::quant::Format;
use crate::{Call, Element, Expected, OracleError};

macro_rules! entry {
    ($name:literal, $product:ident) => {
        Entry {
            name: $name,
            reference: |call| reference(&$product, call),
            cases: |cases| $product.cases(cases, &|d| d.write("d")),
            random: |draft| $product.random(draft, &|d| d.write("d")),
        }
    };
}

pub(super) const ENTRIES: &[Entry] = &[
    entry!("mul_mm_q4k_full_dp4a", Q4K),
    entry!("mul_mm_q5k_full_dp4a", Q5K),
    entry!("mul_mm_q6k_full_dp4a", Q6K),
    entry!("mul_mm_q6k_full_dp4a_q8_1", Q6K_PAIRS),
    entry!("mul_mm_q8_0_full_dp4a", Q8_0),
    entry!("mul_mm_q4k_gate_up_swiglu_full_dp4a", SWIGLU),
];

/// Columns of a block of activations.
const BLOCK: usize = 32;

/// One kernel.
pub(super) struct IntProduct {
    weights: Format,
    /// required alignment of a_offset
    a_align: u32,
    /// scales are pairs with the sum of the quants times the scale
    pairs: bool,
    /// two matrices
    gated: bool,
    /// f32 outputs, with one offset and one stride; otherwise they are quantized
    floats: bool,
}

const Q4K: IntProduct = IntProduct {
    weights: Format::Q4K,
    a_align: 4,
    pairs: true,
    gated: false,
    floats: true,
};
const Q5K: IntProduct = IntProduct {
    weights: Format::Q5K,
    ..Q4K
};
const Q6K_PAIRS: IntProduct = IntProduct {
    weights: Format::Q6K,
    a_align: 2,
    ..Q4K
};
const Q6K: IntProduct = IntProduct {
    pairs: false,
    ..Q6K_PAIRS
};
const Q8_0: IntProduct = IntProduct {
    weights: Format::Q8_0,
    ..Q6K
};
const SWIGLU: IntProduct = IntProduct { gated: true, ..Q4K };
/// The gated product whose outputs are quantized.
pub(super) const REQUANTIZED: IntProduct = IntProduct {
    floats: false,
    ..SWIGLU
};

/// What the contract counts for silu of complete sums.
const SILU: Gate = Gate {
    activation: silu,
    slope: 1.1,
    relative: 0.0,
};

/// A row of weights, split into quants and the factors of their groups.
struct Row {
    quants: Vec<i32>,
    /// scale and minimum of every group
    factors: Vec<(f64, f64)>,
}

/// The activations of a token.
struct Token {
    quants: Vec<i32>,
    scales: Vec<f64>,
    /// the stored sums, where the product uses them
    sums: Vec<f64>,
}

impl Token {
    /// False for the stale values of padding tokens, whose outputs nobody looks at.
    fn is_real(&self) -> bool {
        self.scales.iter().chain(&self.sums).all(|s| s.is_finite())
    }
}

/// Sum over blocks of scale * sum of (F * I), less M * stored sum, with exact integers I.
fn product(row: &Row, token: &Token, group: usize) -> Sum {
    let mut sum = Sum::default();
    let groups = row
        .quants
        .chunks_exact(group)
        .zip(token.quants.chunks_exact(group));
    for (g, ((qa, qb), (scale, minimum))) in groups.zip(&row.factors).enumerate() {
        let block = g * group / BLOCK;
        let integer: i32 = qa.iter().zip(qb).map(|(a, b)| a * b).sum();
        let scaled = token.scales[block] * scale * f64::from(integer);
        sum.value += scaled;
        sum.magnitude += scaled.abs();
        if let Some(stored) = token.sums.get(block) {
            sum.value -= minimum * stored;
            sum.magnitude += (minimum * stored).abs();
        }
    }
    sum.error = EPSILON * sum.magnitude;
    sum
}

/// Contents of the activations beyond random ones.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Special {
    Nothing,
    /// all quants -127 or 127, row by row
    Extreme,
    /// every third block is zero
    ZeroBlocks,
    /// the stored sums are not those of the quants
    Sums,
    /// the last three tokens have NaN and infinite scales
    Padding,
}

impl IntProduct {
    fn unit(&self) -> u32 {
        self.weights.elements() as u32
    }

    fn minimum(&self) -> bool {
        matches!(self.weights, Format::Q4K | Format::Q5K)
    }

    fn matrices(&self) -> &'static [&'static str] {
        if self.gated {
            &["a_gate", "a_up"]
        } else {
            &["a"]
        }
    }

    fn scales(&self) -> &'static str {
        if self.pairs {
            "b_scale_dsum"
        } else {
            "b_scale"
        }
    }

    fn tokens(&self, call: &Call) -> Result<Vec<Token>, OracleError> {
        let (k, pitch) = (call.count("k")?, call.count("stride_b_packed")?);
        let scale_pitch = call.count("stride_b_scale")?;
        let floats = if self.pairs { 2 } else { 1 };
        let token = |t: usize| {
            let quants = call.slice("b_packed", t * pitch * 4, k)?;
            let start = t * scale_pitch * floats * 4;
            let scales = call.doubles(self.scales(), start, k / BLOCK * floats)?;
            let sums = if self.minimum() {
                scales.as_slice()
            } else {
                &[]
            };
            Ok(Token {
                quants: quants.iter().map(|&q| i32::from(q as i8)).collect(),
                sums: sums.iter().skip(1).step_by(2).copied().collect(),
                scales: scales.into_iter().step_by(floats).collect(),
            })
        };
        (0..call.count("n")?).map(token).collect()
    }

    /// For every token and row the sum of each matrix; none for a padding token.
    pub(super) fn sums(&self, call: &Call) -> Result<Vec<Option<Vec<Vec<Sum>>>>, OracleError> {
        let (m, k) = (call.count("m")?, call.count("k")?);
        let tokens = self.tokens(call)?;
        let (elements, group) = (self.weights.elements(), self.weights.group());
        let mut matrices = Vec::new();
        for matrix in self.matrices() {
            let bytes = m * self.weights.row_bytes(k);
            let weights = call.slice(matrix, call.count("a_offset")?, bytes)?;
            matrices.push(map_rows(weights, m, |blocks| {
                let mut row = Row {
                    quants: vec![0; k],
                    factors: vec![(0.0, 0.0); k / group],
                };
                let places = row.quants.chunks_exact_mut(elements);
                let places = places.zip(row.factors.chunks_exact_mut(elements / group));
                let blocks = blocks.chunks_exact(self.weights.bytes());
                for (block, (quants, factors)) in blocks.zip(places) {
                    self.weights.split(block, quants, factors);
                }
                let sums = tokens.iter().map(|token| product(&row, token, group));
                sums.collect::<Vec<Sum>>()
            }));
        }
        let tokens = tokens.iter().enumerate();
        let sums = tokens.map(|(t, token)| {
            let row = |r: usize| matrices.iter().map(|m| m[r][t]).collect();
            token.is_real().then(|| (0..m).map(row).collect())
        });
        Ok(sums.collect())
    }

    /// The size for which a wrong output shows: with weights of very different sizes the error that the
    /// contract allows one row of a block of outputs would hide what the others are.
    fn judgeable(&self, size: Size) -> Size {
        Size {
            edges: size.edges && self.floats,
            ..size
        }
    }

    /// Adds all cases; `outputs` poisons the output buffers and sets their fields.
    pub(super) fn cases(&self, cases: &mut Cases, outputs: &dyn Fn(&mut Draft)) {
        // Sums of a few units, as many tokens beyond the cutoffs of a gate as before them.
        let plain = Fill::Normal(if self.gated { 0.004 } else { 0.01 });
        for (label, size, heavy) in Size::all(self.unit(), true, self.a_align) {
            let size = self.judgeable(size);
            let fill = |d: &mut Draft| self.fill(d, size, plain, Special::Nothing, outputs);
            if heavy {
                cases.heavy(label, fill);
            } else {
                cases.add(label, fill);
            }
        }
        let some = Size::new(32, 32, 256);
        let mut add = |label: &str, scales: Fill, special: Special| {
            let fill = |d: &mut Draft| self.fill(d, some, scales, special, outputs);
            cases.add(label, fill);
        };
        for (label, scales) in [
            ("zero", Fill::Equal(0.0)),
            ("one", Fill::Equal(1.0)),
            ("of all sizes", Fill::Normal(1.0)),
            ("small", Fill::Normal(1e-3)),
            ("large", Fill::Normal(30.0)),
            ("one large", Fill::One(3, 100.0)),
        ] {
            add(&format!("scales: {label}"), scales, Special::Nothing);
        }
        if self.floats {
            add("scales: huge", Fill::Normal(1e15), Special::Nothing);
            add("scales: tiny", Fill::Normal(1e-30), Special::Nothing);
        }
        add("extreme quants", plain, Special::Extreme);
        add("zero blocks", plain, Special::ZeroBlocks);
        if self.pairs {
            add("stored sums of other quants", plain, Special::Sums);
        }
        add("padding tokens", plain, Special::Padding);
        cases.add("extreme quants and weights", |d| {
            self.fill(d, some, plain, Special::Extreme, outputs);
            for matrix in self.matrices() {
                let blocks = (some.m * some.k) as usize / self.weights.elements();
                extreme_quants(d, matrix, self.weights, blocks);
            }
        });
        cases.add("zero weights", |d| {
            self.fill(d, some, plain, Special::Nothing, outputs);
            for matrix in self.matrices() {
                let bytes = some.m as usize * self.weights.row_bytes(some.k as usize);
                d.patch(matrix, 0, &vec![0; bytes]);
            }
        });
        if self.gated {
            cases.add("one matrix for both", |d| {
                self.fill(d, some, plain, Special::Nothing, outputs);
                d.alias("a_up", "a_gate");
            });
        }
    }

    /// Completes a draft with a small random shape.
    pub(super) fn random(&self, draft: &mut Draft, outputs: &dyn Fn(&mut Draft)) {
        let size = self.judgeable(Size::random(draft, self.unit(), true, self.a_align));
        let scales = Fill::Normal(draft.rng.pick(&[0.002, 0.01, 0.1]));
        let special = draft.rng.pick(&[
            Special::Nothing,
            Special::Extreme,
            Special::ZeroBlocks,
            Special::Padding,
        ]);
        self.fill(draft, size, scales, special, outputs);
    }

    fn fill(
        &self,
        draft: &mut Draft,
        size: Size,
        scales: Fill,
        special: Special,
        outputs: &dyn Fn(&mut Draft),
    ) {
        let Size {
            m,
            n,
            k,
            pads,
            offsets: [a, _, d],
            ..
        } = size;
        let (pitch, scale_pitch) = (k / 4 + pads[0], k / 32 + pads[0]);
        draft.set_all(&[("m", m), ("n", n), ("k", k), ("a_offset", a)]);
        draft.set_all(&[("stride_b_packed", pitch), ("stride_b_scale", scale_pitch)]);
        if self.floats {
            draft.set_all(&[("stride_d", m + pads[1]), ("d_offset", d)]);
        } else {
            draft.set_all(&[("stride_d_packed", m / 4 + pads[1]), ("d_packed_offset", d)]);
            draft.set_all(&[
                ("stride_d_scale", m / 32 + pads[1]),
                ("d_scale_offset", d / 2),
            ]);
        }
        for matrix in self.matrices() {
            size.fill_weights(draft, self.weights, matrix);
        }
        let blocks = k as usize / BLOCK;
        let scales = scales.make(&mut draft.rng, n as usize * blocks);
        let (mut packed, mut factors) = (Vec::new(), Vec::new());
        for (index, scale) in scales.iter().enumerate() {
            let (t, block) = (index / blocks, index % blocks);
            let quant = |draft: &mut Draft| match special {
                Special::Extreme if t % 2 == 0 => 127 - 254 * draft.rng.below(2) as i32,
                Special::Extreme => 127,
                _ => draft.rng.between(0, 254) as i32 - 127,
            };
            let mut quants: Vec<i32> = (0..BLOCK).map(|_| quant(draft)).collect();
            let mut scale = scale.abs();
            if special == Special::ZeroBlocks && index % 3 == 0 {
                (quants, scale) = (vec![0; BLOCK], 0.0);
            }
            let mut sum = quants.iter().sum::<i32>() as f32 * scale;
            match (special, n as usize - t) {
                (Special::Sums, _) => sum = draft.rng.normal(),
                (Special::Padding, 1) => scale = f32::NAN,
                (Special::Padding, 2) if block == 1 % blocks => scale = f32::INFINITY,
                (Special::Padding, 3) if self.minimum() => sum = f32::NEG_INFINITY,
                _ => {}
            }
            if self.pairs && !self.minimum() {
                // Never needed, whatever it holds.
                sum = draft.rng.pick(&[f32::NAN, f32::INFINITY, 1e30]);
            }
            packed.resize(t * 4 * pitch as usize + block * BLOCK, 0xff);
            packed.extend(quants.iter().map(|q| *q as u8));
            let floats = if self.pairs { 2 } else { 1 };
            let place = (t * scale_pitch as usize + block) * floats;
            factors.resize(place, f32::from_bits(u32::MAX));
            factors.extend([scale, sum].into_iter().take(floats));
        }
        draft.read("b_packed", 0, &packed);
        draft.read_floats(self.scales(), 0, &factors);
        outputs(draft);
    }
}

/// d[t*stride_d + r] = the sum, or silu of one times another
fn reference(product: &IntProduct, call: &Call) -> Result<Vec<Expected>, OracleError> {
    let m = call.count("m")?;
    let element = |sums: &Vec<Sum>| match sums.as_slice() {
        [gate, up] => SILU.apply(*gate, *up).element(true),
        sums => sums[0].element(true),
    };
    let rows = product.sums(call)?.into_iter().map(|token| match token {
        Some(sums) => sums.iter().map(element).collect(),
        None => vec![Element::Free; m],
    });
    let (start, stride) = (call.count("d_offset")?, call.count("stride_d")?);
    Ok(vec![output_rows(
        call.index("d")?,
        4 * start,
        stride,
        rows.collect(),
    )])
}
