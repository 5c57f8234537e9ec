//! What the references of all matrix products share: dequantized rows, sums with what the bounds of the
//! contracts need of them, gated activations, and the inputs that every product is verified with.

use rayon::prelude::*;

use crate::case::{Draft, Fill};
use crate::expected::ulp;
use crate::quant::Format;
use crate::{Call, Element, Expected, OracleError, Region, Want};

/// The part of S, the sum of the absolute values of its terms, that a sum may be off.
pub(super) const EPSILON: f64 = 1e-5;
/// What any output may be off.
pub(super) const FLOOR: f64 = 1e-6;

/// A sum of products, or a value made of such sums.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sum {
    /// the exact value
    pub(super) value: f64,
    /// the largest intermediate value: S of the contracts
    pub(super) magnitude: f64,
    /// how far a result may be off, without [`FLOOR`]
    pub(super) error: f64,
    /// a NaN among the factors
    pub(super) nan: bool,
}

impl Sum {
    /// A sum whose terms have the absolute sum `magnitude`.
    pub(super) fn new(value: f64, magnitude: f64, nan: bool) -> Self {
        Self {
            value,
            magnitude,
            error: EPSILON * magnitude,
            nan,
        }
    }

    /// The sum times a factor.
    pub(super) fn scaled(self, factor: f64) -> Self {
        Self {
            value: self.value * factor,
            magnitude: self.magnitude * factor.abs().max(1.0),
            error: self.error * factor.abs(),
            nan: self.nan || factor.is_nan(),
        }
    }

    /// The sum of two sums.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            value: self.value + other.value,
            magnitude: self.magnitude + other.magnitude,
            error: self.error + other.error,
            nan: self.nan || other.nan,
        }
    }

    /// The sum added to an old value: one more ulp of f32.
    pub(super) fn onto(self, old: f64) -> Self {
        let value = self.value + old;
        Self {
            value,
            error: self.error + ulp(old.abs().max(value.abs())),
            nan: self.nan || old.is_nan(),
            ..self
        }
    }

    /// The sum added to an old value, of which [`EPSILON`] may be lost too.
    pub(super) fn loosely_onto(self, old: f64) -> Self {
        Self {
            value: self.value + old,
            error: self.error + EPSILON * old.abs(),
            nan: self.nan || old.is_nan(),
            ..self
        }
    }

    /// The element of an output. `grouped` products leave open what an infinity becomes, because the
    /// products of a block may be grouped in any way.
    pub(super) fn element(self, grouped: bool) -> Element {
        if !self.magnitude.is_finite() {
            if grouped && !self.nan {
                return Element::NotFinite;
            }
        } else if !self.error.is_finite() && !self.value.is_nan() {
            return Element::Free;
        }
        Element::near_unless_overflow(self.value, self.error + FLOOR, self.magnitude)
    }
}

/// A row of weights, dequantized.
pub(super) struct Row {
    values: Vec<f64>,
    /// what the bounds count for a value
    magnitudes: Vec<f64>,
    /// distance of a value to the nearest f16; empty if values must not be rounded
    roundings: Vec<f64>,
    /// a NaN among the factors
    nan: bool,
}

impl Row {
    /// The row that consists of `blocks`.
    pub(super) fn new(format: Format, blocks: &[u8]) -> Self {
        let elements = format.elements();
        let k = blocks.len() / format.bytes() * elements;
        let (mut values, mut magnitudes) = (vec![0.0; k], vec![0.0; k]);
        let places = values.chunks_exact_mut(elements);
        let places = places.zip(magnitudes.chunks_exact_mut(elements));
        let blocks = blocks.chunks_exact(format.bytes());
        for (block, (values, magnitudes)) in blocks.clone().zip(places) {
            format.decode(block, values, magnitudes);
        }
        Self {
            values,
            magnitudes,
            roundings: Vec::new(),
            nan: blocks.into_iter().any(|b| format.has_nan_factor(b)),
        }
    }

    /// The row for a kernel that may round every weight once to f16.
    pub(super) fn or_halves(mut self) -> Self {
        let distance = |w: &f64| (w - half::f16::from_f64(*w).to_f64()).abs();
        self.roundings = self.values.iter().map(distance).collect();
        self
    }

    /// The dot product with `x`.
    pub(super) fn dot(&self, x: &Vector) -> Sum {
        let magnitude = inner(&self.magnitudes, &x.magnitudes);
        let nan = !magnitude.is_finite() && (self.nan || x.values.iter().any(|x| x.is_nan()));
        let mut sum = Sum::new(inner(&self.values, &x.values), magnitude, nan);
        sum.error += inner(&self.roundings, &x.magnitudes);
        sum
    }
}

/// What rows are multiplied with.
#[derive(Debug, Clone)]
pub(super) struct Vector {
    pub(super) values: Vec<f64>,
    /// the absolute values, or for computed values the absolute sums of their terms
    pub(super) magnitudes: Vec<f64>,
}

impl From<Vec<f64>> for Vector {
    fn from(values: Vec<f64>) -> Self {
        Self {
            magnitudes: values.iter().map(|x| x.abs()).collect(),
            values,
        }
    }
}

/// Sum of the products of two vectors, as long as the shorter one.
fn inner(a: &[f64], b: &[f64]) -> f64 {
    // Independent partial sums, which the processor forms side by side.
    let mut partial = [0.0; 8];
    let chunks = a.chunks(partial.len()).zip(b.chunks(partial.len()));
    for (a, b) in chunks {
        for ((sum, a), b) in partial.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    partial.iter().sum()
}

/// The dot products of every row of a matrix of `m` rows in `weights` with every vector.
pub(super) fn products(
    format: Format,
    weights: &[u8],
    m: usize,
    vectors: &[Vector],
) -> Vec<Vec<Sum>> {
    map_rows(weights, m, |row| {
        let row = Row::new(format, row);
        vectors.iter().map(|x| row.dot(x)).collect()
    })
}

/// `map` of the bytes of each of the `m` rows of `weights`.
pub(super) fn map_rows<T: Send>(
    weights: &[u8],
    m: usize,
    map: impl Fn(&[u8]) -> T + Sync + Send,
) -> Vec<T> {
    let bytes = weights.len() / m.max(1);
    let rows = (0..m).into_par_iter();
    rows.map(|r| map(&weights[r * bytes..(r + 1) * bytes]))
        .collect()
}

/// The activation of a gate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gate {
    pub(super) activation: fn(f64) -> f64,
    /// its largest slope, as the contract counts it
    pub(super) slope: f64,
    /// relative error of the activation, where the contract states one
    pub(super) relative: f64,
}

impl Gate {
    /// activation(gate) * up
    pub(super) fn apply(self, gate: Sum, up: Sum) -> Sum {
        let activated = (self.activation)(gate.value);
        let value = activated * up.value;
        Sum {
            value,
            // Not the maximum, which would hide a NaN.
            magnitude: gate.magnitude + up.magnitude,
            error: up.error * activated.abs()
                + self.slope * gate.error * (up.value.abs() + up.error)
                + self.relative * value.abs(),
            nan: gate.nan || up.nan,
        }
    }
}

/// x / (1 + exp(-x))
pub(super) fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// The tanh form of gelu, with the argument of tanh limited to +-15, where tanh counts as +-1.
pub(super) fn gelu(x: f64) -> f64 {
    let t = 0.797_884_560_8 * (x + 0.044_715 * x * x * x);
    let tanh = if t.abs() >= 15.0 {
        t.signum()
    } else {
        t.tanh()
    };
    0.5 * x * (1.0 + tanh)
}

/// `count` vectors of `k` f32 values of a buffer, the first at byte `start`, `pitch` floats apart.
pub(super) fn vectors(
    call: &Call,
    buffer: &str,
    start: usize,
    count: usize,
    pitch: usize,
    k: usize,
) -> Result<Vec<Vector>, OracleError> {
    (0..count)
        .map(|j| Ok(call.doubles(buffer, start + j * pitch * 4, k)?.into()))
        .collect()
}

/// Rows of f32 outputs, row `j` at byte `start + j * pitch * 4`; rows that leave no gap become one
/// region.
pub(super) fn output_rows(
    buffer: usize,
    start: usize,
    pitch: usize,
    rows: Vec<Vec<Element>>,
) -> Expected {
    let mut expected = Expected::unchanged(buffer);
    for (j, row) in rows.into_iter().enumerate() {
        if row.is_empty() {
            continue;
        }
        let start = start + j * pitch * 4;
        if let Some(Region { start: first, want }) = expected.regions.last_mut() {
            let end = *first + want.bytes();
            if let (true, Want::Floats(elements)) = (end == start, want) {
                elements.extend(row);
                continue;
            }
        }
        expected.regions.push(Region {
            start,
            want: Want::Floats(row),
        });
    }
    expected
}

/// The kinds of inputs that every product is verified with. The last two values of the last vector are
/// the special ones, so that they must not reach other vectors.
pub(super) const INPUTS: [(&str, Fill); 9] = [
    ("zeros", Fill::Equal(0.0)),
    ("all equal", Fill::Equal(0.75)),
    ("cancelling", Fill::Alternating(1.0)),
    ("huge", Fill::Normal(1e30)),
    ("tiny", Fill::Normal(1e-30)),
    ("subnormal", Fill::Normal(1e-40)),
    ("a NaN", Fill::One(2, f32::NAN)),
    ("an infinity", Fill::One(1, f32::INFINITY)),
    ("negative infinity last", Fill::One(0, f32::NEG_INFINITY)),
];

/// `count` random matrices of `m` x `k`, `stride` bytes apart, with 0xFF between them.
pub(super) fn random_matrices(
    draft: &mut Draft,
    format: Format,
    count: u32,
    [m, k]: [u32; 2],
    stride: u32,
    edges: bool,
) -> Vec<u8> {
    let blocks = m as usize * (k as usize / format.elements());
    let mut bytes = Vec::new();
    for matrix in 0..count as usize {
        bytes.resize(matrix * stride as usize, 0xff);
        bytes.extend(format.random_blocks(&mut draft.rng, blocks, edges));
    }
    bytes
}

/// A random matrix of `m` x `k`.
pub(super) fn random_matrix(
    draft: &mut Draft,
    format: Format,
    m: u32,
    k: u32,
    edges: bool,
) -> Vec<u8> {
    random_matrices(draft, format, 1, [m, k], 0, edges)
}

/// Position and bytes that make `value` a factor of the middle block of a row of `k` columns; none if
/// the format has no such factors.
pub(super) fn special_factor(
    format: Format,
    row: usize,
    k: usize,
    value: f32,
) -> Option<(usize, Vec<u8>)> {
    let block = (k / format.elements() / 2) * format.bytes();
    let at = row * format.row_bytes(k) + block;
    if format == Format::F32 {
        return Some((at, value.to_le_bytes().to_vec()));
    }
    let half = half::f16::from_f32(value).to_le_bytes().to_vec();
    format.factors().first().map(|first| (at + first, half))
}

/// Gives all quants of the first `count` blocks of a buffer their limit, and the inner scales and minimums where
/// they lie with them; the factors stay as they are.
pub(super) fn extreme_quants(draft: &mut Draft, buffer: &str, format: Format, count: usize) {
    let bytes = format.bytes();
    let (start, len, limit) = match format {
        Format::Q8_0 => (2, 32, 0x80),
        Format::Q6K => (0, 192, 0x00),
        _ => (4, bytes - 4, 0xff),
    };
    for block in 0..count {
        draft.patch(buffer, block * bytes + start, &vec![limit; len]);
    }
}

/// `count` rows of `k` values each, `pitch` apart, with NaNs that must not be read between them.
pub(super) fn pitched(values: &[f32], k: usize, pitch: usize) -> Vec<f32> {
    let mut all = Vec::new();
    for (j, row) in values.chunks(k.max(1)).enumerate() {
        all.resize(j * pitch, f32::from_bits(u32::MAX));
        all.extend(row);
    }
    all
}
