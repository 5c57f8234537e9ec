//! Products of a weight matrix with the f32 activations of many tokens.

use super::Entry;
use super::gemm::{
    Gate, INPUTS, Row, Sum, Vector, map_rows, output_rows, pitched, random_matrix, silu,
    special_factor, vectors,
};
use crate::case::{Cases, Draft, Fill};
use crate::quant::Format;
use crate::{Call, Expected, OracleError};

pub(super) const ENTRIES: &[Entry] = &[
    entry!("mul_mm_q4k", Q4K),
    entry!("mul_mm_q5k", Q5K),
    entry!("mul_mm_q6k", Q6K),
    entry!("mul_mm_q6k_full", Q6K_FULL),
    entry!("mul_mm_q8_0", Q8_0),
    entry!("mul_mm_q4k_gate_up_swiglu", SWIGLU),
    entry!("mul_mm_q4k_gate_up_swiglu_full", SWIGLU_FULL),
];

/// One kernel.
pub(super) struct Product {
    pub(super) weights: Format,
    /// required alignment of a_offset
    pub(super) a_align: u32,
    /// m and n are multiples of 32
    pub(super) full: bool,
    /// weights may be rounded once to f16
    pub(super) halves: bool,
    /// the activation of one matrix, which another one is multiplied with
    pub(super) gate: Option<Gate>,
}

const Q4K: Product = Product {
    weights: Format::Q4K,
    a_align: 4,
    full: false,
    halves: false,
    gate: None,
};
const Q5K: Product = Product {
    weights: Format::Q5K,
    ..Q4K
};
const Q6K: Product = Product {
    weights: Format::Q6K,
    a_align: 2,
    halves: true,
    ..Q4K
};
const Q6K_FULL: Product = Product { full: true, ..Q6K };
const Q8_0: Product = Product {
    weights: Format::Q8_0,
    halves: false,
    ..Q6K
};
pub(super) const SWIGLU: Product = Product {
    halves: true,
    gate: Some(SILU),
    ..Q4K
};
const SWIGLU_FULL: Product = Product {
    full: true,
    ..SWIGLU
};

/// What the contracts count for silu of complete sums.
pub(super) const SILU: Gate = Gate {
    activation: silu,
    slope: 1.2,
    relative: 0.0,
};

/// The size of a product of many tokens, and where things are.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) m: u32,
    pub(super) n: u32,
    pub(super) k: u32,
    /// elements between the rows of the activations, and of the outputs
    pub(super) pads: [u32; 2],
    /// bytes before the weights, elements before the activations (where there is an offset) and outputs
    pub(super) offsets: [u32; 3],
    /// weight blocks of all flavors, not only plain ones
    pub(super) edges: bool,
}

impl Size {
    /// No pads and offsets.
    pub(super) const fn new(m: u32, n: u32, k: u32) -> Self {
        Self {
            m,
            n,
            k,
            pads: [0; 2],
            offsets: [0; 3],
            edges: false,
        }
    }

    /// The sizes that every product of many tokens is verified with, labelled; `unit` is what k is a
    /// multiple of. The flag marks the heavy ones.
    pub(super) fn all(unit: u32, full: bool, a_align: u32) -> Vec<(String, Self, bool)> {
        let mut all = Vec::new();
        let mut add = |label: &str, size: Self, heavy| all.push((label.to_owned(), size, heavy));
        let k = unit.max(64);
        let sizes: &[(u32, u32, u32)] = if full {
            &[
                (32, 64, 1),
                (64, 32, 1),
                (96, 32, 2),
                (32, 96, 1),
                (160, 32, 1),
                (32, 160, 1),
                (32, 32, 4),
            ]
        } else {
            &[
                (1, 2, 1),
                (2, 1, 3),
                (3, 5, 1),
                (31, 33, 1),
                (33, 31, 2),
                (32, 32, 1),
                (65, 7, 1),
                (5, 66, 1),
                (129, 17, 1),
                (17, 130, 1),
                (1, 64, 2),
                (64, 1, 2),
                (7, 3, 8),
            ]
        };
        for (m, n, units) in sizes {
            let k = k * units;
            add(
                &format!("{m} x {k}, {n} tokens"),
                Self::new(*m, *n, k),
                false,
            );
        }
        let (least, some) = if full {
            (Self::new(32, 32, unit), Self::new(32, 32, k))
        } else {
            (Self::new(1, 1, unit), Self::new(13, 7, k))
        };
        add("smallest", least, false);
        for pads in [[4, 0], [0, 1], [1, 3], [64, 32]] {
            let label = format!("rows {pads:?} elements apart");
            add(&label, Self { pads, ..some }, false);
        }
        let offsets = [3 * a_align, 5, 7];
        add("offsets", Self { offsets, ..some }, false);
        let offsets = [a_align, 1, 1];
        add(
            "smallest offsets, rows apart",
            Self {
                offsets,
                pads: [2, 5],
                ..some
            },
            false,
        );
        add(
            "edge blocks",
            Self {
                edges: true,
                ..some
            },
            false,
        );
        for (m, n, k) in [
            (2048, 32, 2048),
            (512, 128, 2048),
            (672, 32, 5376),
            (256, 96, 4096),
            // Enough rows for the largest tiles.
            (6464, 96, 256),
        ] {
            if k % unit == 0 {
                add(&format!("{m} x {k}, {n} tokens"), Self::new(m, n, k), true);
            }
        }
        if !full {
            add("1031 x 2048, 45 tokens", Self::new(1031, 45, 2048), true);
            add("8192 x 1024, one token", Self::new(8192, 1, 1024), true);
        }
        all
    }

    /// A small random size.
    pub(super) fn random(draft: &mut Draft, unit: u32, full: bool, a_align: u32) -> Self {
        let rng = &mut draft.rng;
        let [m, n] = if full {
            [32 * rng.between(1, 2), 32 * rng.between(1, 2)]
        } else {
            [rng.between(1, 40), rng.between(1, 20)]
        };
        Self {
            m,
            n,
            k: unit * rng.between(1, 2),
            pads: [rng.below(5), rng.below(5)],
            offsets: [a_align * rng.below(4), rng.below(5), rng.below(5)],
            edges: rng.flip(),
        }
    }

    /// Random weights, read from one buffer.
    pub(super) fn fill_weights(&self, draft: &mut Draft, format: Format, buffer: &str) {
        let weights = random_matrix(draft, format, self.m, self.k, self.edges);
        draft.read(buffer, self.offsets[0] as usize, &weights);
    }
}

impl Product {
    fn unit(&self) -> u32 {
        self.weights.elements() as u32
    }

    /// Names of the weight buffers.
    fn matrices(&self) -> &'static [&'static str] {
        if self.gate.is_some() {
            &["a_gate", "a_up"]
        } else {
            &["a"]
        }
    }

    /// For every row of a matrix the sum of every token.
    fn sums(
        &self,
        call: &Call,
        matrix: &str,
        tokens: &[Vector],
    ) -> Result<Vec<Vec<Sum>>, OracleError> {
        let (m, k) = (call.count("m")?, call.count("k")?);
        let bytes = m * self.weights.row_bytes(k);
        let weights = call.slice(matrix, call.count("a_offset")?, bytes)?;
        Ok(map_rows(weights, m, |row| {
            let mut row = Row::new(self.weights, row);
            if self.halves {
                row = row.or_halves();
            }
            tokens.iter().map(|x| row.dot(x)).collect()
        }))
    }

    /// d[t*stride_d + r] = sum over c of A[r,c] * b[t*stride_b + c], or the activation of one times another
    pub(super) fn reference(&self, call: &Call) -> Result<Vec<Expected>, OracleError> {
        let (n, k) = (call.count("n")?, call.count("k")?);
        let (b, d) = (call.count("b_offset")?, call.count("d_offset")?);
        let tokens = vectors(call, "b", 4 * b, n, call.count("stride_b")?, k)?;
        let sums = self.matrices().iter().map(|a| self.sums(call, a, &tokens));
        let sums = sums.collect::<Result<Vec<_>, _>>()?;
        let element = |r: usize, t: usize| match (self.gate, sums.as_slice()) {
            (Some(gate), [g, u]) => gate.apply(g[r][t], u[r][t]).element(true),
            (_, sums) => sums[0][r][t].element(true),
        };
        let rows = (0..n).map(|t| (0..sums[0].len()).map(|r| element(r, t)).collect());
        let stride = call.count("stride_d")?;
        Ok(vec![output_rows(
            call.index("d")?,
            4 * d,
            stride,
            rows.collect(),
        )])
    }

    pub(super) fn cases(&self, cases: &mut Cases) {
        // Gates of a few units.
        let plain = Fill::Normal(if self.gate.is_some() { 0.2 } else { 1.0 });
        for (label, size, heavy) in Size::all(self.unit(), self.full, self.a_align) {
            let fill = |d: &mut Draft| self.fill(d, size, plain);
            if heavy {
                cases.heavy(label, fill);
            } else {
                cases.add(label, fill);
            }
        }
        let some = if self.full {
            Size::new(32, 32, 256)
        } else {
            Size::new(9, 5, 256)
        };
        for (label, x) in INPUTS {
            cases.add(format!("activations: {label}"), |d| self.fill(d, some, x));
        }
        // Where a kernel that splits activations into numbers of less range loses some of them.
        for (label, x) in [
            ("small", Fill::Normal(1e-3)),
            ("large", Fill::Normal(1e3)),
            ("some large", Fill::Sprinkled(3e3)),
            ("some tiny", Fill::Sprinkled(1e-6)),
            ("tiny all over", Fill::Normal(1e-6)),
            ("of many sizes", Fill::Spread(-4.0, 4.0)),
            ("growing", Fill::Growing(-35.0, 30.0)),
            ("shrinking", Fill::Growing(4.0, -6.0)),
        ] {
            // Over several blocks.
            for k in [some.k, 3 * some.k] {
                let label = format!("activations: {label}, {k} columns");
                cases.add(label, |d| self.fill(d, Size { k, ..some }, x));
            }
        }
        cases.add("large activations of weights that are zero", |d| {
            let size = Size { k: 512, ..some };
            self.fill(d, size, Fill::Normal(1e-3));
            let (rows, tokens) = (size.m as usize, size.n as usize);
            let row_bytes = self.weights.row_bytes(512);
            for matrix in self.matrices() {
                for row in 0..rows {
                    d.patch(matrix, row * row_bytes, &vec![0; row_bytes / 2]);
                }
            }
            for token in 0..tokens {
                let large = Fill::Normal(1e4).make(&mut d.rng, 256);
                let bytes = Vec::from_iter(large.iter().flat_map(|v| v.to_le_bytes()));
                d.patch("b", token * 512 * 4, &bytes);
            }
        });
        // More tiles than a GPU has multiprocessors, few more; those of some tokens hold what they are not made for.
        cases.heavy("one large activation, many tiles", |d| {
            let m = if self.gate.is_some() { 8480 } else { 17056 };
            self.fill(d, Size::new(m, 160, 256), plain);
            d.patch("b", 4 * (3 * 256 + 77), &5e3f32.to_le_bytes());
        });
        for (row, what) in [(0, f32::NAN), (5, f32::INFINITY)] {
            cases.add(format!("{what} in row {row}"), |d| {
                self.fill(d, some, plain);
                let special = special_factor(self.weights, row, some.k as usize, what);
                let (at, bytes) = special.unwrap_or_default();
                d.patch(self.matrices()[0], at, &bytes);
            });
        }
        if self.gate.is_some() {
            for scale in [0.01, 1.0, 30.0, 1e4] {
                let x = Fill::Normal(scale);
                cases.add(format!("activations of {scale:e}"), |d| {
                    self.fill(d, some, x)
                });
            }
            cases.add("one matrix for both", |d| {
                self.fill(d, some, plain);
                d.alias("a_up", "a_gate");
            });
        }
        if self.halves {
            cases.add("weights that are f16 values", |d| {
                self.fill(d, some, plain);
                for matrix in self.matrices() {
                    let blocks = (some.m * some.k) as usize / self.weights.elements();
                    let blocks = self.half_blocks(d, blocks);
                    d.patch(matrix, 0, &blocks);
                }
            });
        }
    }

    /// Random blocks whose values have at most 11 significant bits.
    fn half_blocks(&self, draft: &mut Draft, count: usize) -> Vec<u8> {
        let mut blocks = self.weights.random_blocks(&mut draft.rng, count, false);
        for block in blocks.chunks_exact_mut(self.weights.bytes()) {
            for &at in self.weights.factors() {
                block[at..at + 2].copy_from_slice(&half::f16::from_f32(0.015_625).to_le_bytes());
            }
            if self.weights == Format::Q6K {
                // |scale * quant| < 2048
                for scale in &mut block[192..208] {
                    *scale = ((*scale as i8) / 3) as u8;
                }
            }
        }
        blocks
    }

    pub(super) fn random(&self, draft: &mut Draft) {
        let size = Size::random(draft, self.unit(), self.full, self.a_align);
        let x = Fill::Normal(draft.rng.pick(&[0.2, 1.0]));
        self.fill(draft, size, x);
    }

    fn fill(&self, draft: &mut Draft, size: Size, x: Fill) {
        let Size {
            m,
            n,
            k,
            pads,
            offsets: [a, b, d],
            ..
        } = size;
        draft.set_all(&[("m", m), ("n", n), ("k", k), ("a_offset", a)]);
        draft.set_all(&[("stride_b", k + pads[0]), ("stride_d", m + pads[1])]);
        draft.set_all(&[("b_offset", b), ("d_offset", d)]);
        for matrix in self.matrices() {
            size.fill_weights(draft, self.weights, matrix);
        }
        let values = x.make(&mut draft.rng, (n * k) as usize);
        let values = pitched(&values, k as usize, (k + pads[0]) as usize);
        draft.read_floats("b", 4 * b as usize, &values);
        draft.write("d");
    }
}
