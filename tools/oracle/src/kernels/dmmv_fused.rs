//! Dense matrix-vector products of two matrices in one launch, and what is fused to them.

use super::Entry;
use super::gemm::{
    Gate, INPUTS, Row, gelu, output_rows, pitched, products, random_matrix, silu, special_factor,
    vectors,
};
use crate::case::{Cases, Draft, Fill};
use crate::quant::Format;
use crate::{Call, Expected, OracleError};

macro_rules! gated_entry {
    ($name:literal, $gated:ident) => {
        Entry {
            name: $name,
            reference: |call| $gated.reference(call),
            cases: |cases| $gated.cases(cases),
            random: |draft| $gated.random(draft),
        }
    };
}
pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "dmmv_f32_dual_batch",
        reference: dual_batch,
        cases: dual_batch_cases,
        random: |d| {
            let rng = &mut d.rng;
            let shape = Dual {
                m: rng.between(1, 20),
                k: 4 * rng.below(40),
                tokens: rng.between(1, 6),
                pads: [4 * rng.below(3), rng.below(5)],
                x: Fill::Normal(1.0),
            };
            dual_batch_fill(d, shape);
        },
    },
    Entry {
        name: "dmmv_q8_0_fused_pair",
        reference: fused_pair,
        cases: fused_pair_cases,
        random: |d| {
            let rng = &mut d.rng;
            let shape = Pair {
                m: [rng.below(20), rng.below(20)],
                k: 32 * rng.below(5),
                a: [2 * rng.below(9), 2 * rng.below(9)],
                x_offset: 16 * rng.below(5),
                y: [4 * rng.below(5), 4 * rng.below(5)],
                x: Fill::Normal(1.0),
                edges: rng.flip(),
            };
            fused_pair_fill(d, shape);
        },
    },
    gated_entry!("dmmv_q4k_fused_gate_up_swiglu", Q4K_SWIGLU),
    gated_entry!("dmmv_q4k_fused_gate_up_geglu", Q4K_GEGLU),
    gated_entry!("dmmv_q8_0_fused_gate_up_swiglu", Q8_0_SWIGLU),
    gated_entry!("dmmv_q8_0_fused_gate_up_swiglu_gate", Q8_0_SWIGLU_GATE),
];

/// Two matrices of f32 and a batch of vectors.
#[derive(Clone, Copy)]
struct Dual {
    m: u32,
    k: u32,
    tokens: u32,
    /// floats between the rows of x, and between those of the outputs
    pads: [u32; 2],
    x: Fill,
}

/// alpha_out[t*stride_y + r] = sum over c of alpha_w[r*k + c] * x[t*stride_x + c], and beta likewise
fn dual_batch(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (m, k) = (call.count("m")?, call.count("k")?);
    let tokens = call.count("n_tokens")?;
    let (stride_x, stride_y) = (call.count("stride_x")?, call.count("stride_y")?);
    let inputs = vectors(call, "x", 0, tokens, stride_x, k)?;
    [("alpha_w", "alpha_out"), ("beta_w", "beta_out")]
        .map(|(weights, y)| {
            let weights = call.slice(weights, 0, m * k * 4)?;
            let sums = products(Format::F32, weights, m, &inputs);
            let rows = (0..tokens).map(|t| sums.iter().map(|s| s[t].element(false)).collect());
            Ok(output_rows(call.index(y)?, 0, stride_y, rows.collect()))
        })
        .into_iter()
        .collect()
}

fn dual_batch_fill(d: &mut Draft, shape: Dual) {
    let Dual { m, k, tokens, .. } = shape;
    let strides = [k + shape.pads[0], m + shape.pads[1]];
    d.set_all(&[("m", m), ("k", k), ("n_tokens", tokens)]);
    d.set_all(&[("stride_x", strides[0]), ("stride_y", strides[1])]);
    for weights in ["alpha_w", "beta_w"] {
        let matrix = random_matrix(d, Format::F32, m, k, false);
        d.read(weights, 0, &matrix);
    }
    let x = shape.x.make(&mut d.rng, (tokens * k) as usize);
    d.read_floats("x", 0, &pitched(&x, k as usize, strides[0] as usize));
    d.write("alpha_out");
    d.write("beta_out");
}

fn dual_batch_cases(cases: &mut Cases) {
    let plain = Dual {
        m: 1,
        k: 4,
        tokens: 1,
        pads: [0; 2],
        x: Fill::Normal(1.0),
    };
    let some = Dual {
        m: 5,
        k: 132,
        tokens: 3,
        ..plain
    };
    let mut add = |label: &str, shape: Dual| cases.add(label, |d| dual_batch_fill(d, shape));
    add("smallest", plain);
    add("no columns", Dual { k: 0, ..some });
    for (m, k, tokens) in [
        (1, 128, 1),
        (2, 8, 2),
        (3, 60, 5),
        (7, 124, 3),
        (33, 132, 2),
        (31, 256, 9),
        (8, 260, 17),
        (65, 64, 4),
        (1, 1028, 33),
        (48, 2048, 2),
    ] {
        let label = format!("{m} x {k}, {tokens} tokens");
        add(
            &label,
            Dual {
                m,
                k,
                tokens,
                ..plain
            },
        );
    }
    for pads in [[4, 0], [0, 1], [8, 5], [256, 64]] {
        let label = format!("rows {pads:?} floats apart");
        add(&label, Dual { pads, ..some });
    }
    for (label, x) in INPUTS {
        add(&format!("x: {label}"), Dual { x, ..some });
    }
    cases.add("one matrix for both", |d| {
        dual_batch_fill(d, some);
        d.alias("beta_w", "alpha_w");
    });
    for (row, what) in [(0, f32::NAN), (4, f32::INFINITY)] {
        cases.add(format!("{what} in row {row} of beta"), |d| {
            dual_batch_fill(d, some);
            if let Some((at, bytes)) = special_factor(Format::F32, row, some.k as usize, what) {
                d.patch("beta_w", at, &bytes);
            }
        });
    }
    for (m, k, tokens) in [(48, 5120, 128), (32, 2048, 512)] {
        cases.heavy(format!("{m} x {k}, {tokens} tokens"), |d| {
            dual_batch_fill(
                d,
                Dual {
                    m,
                    k,
                    tokens,
                    ..plain
                },
            );
        });
    }
}

/// Two matrices with their own rows and offsets, and one vector.
#[derive(Clone, Copy)]
struct Pair {
    m: [u32; 2],
    k: u32,
    a: [u32; 2],
    x_offset: u32,
    y: [u32; 2],
    x: Fill,
    edges: bool,
}

/// y0[r] = sum over c of W0[r,c] * x[c], and y1 likewise
fn fused_pair(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let k = call.count("k")?;
    let x = vectors(call, "x", call.count("x_offset")?, 1, 0, k)?;
    let one = |m: &str, a: &str, weights: &str, y_offset: &str, y: &str| {
        let (m, a) = (call.count(m)?, call.count(a)?);
        let weights = call.slice(weights, a, m * Format::Q8_0.row_bytes(k))?;
        let sums = products(Format::Q8_0, weights, m, &x);
        let row = sums.iter().map(|s| s[0].element(true)).collect();
        let start = call.count(y_offset)?;
        Ok::<_, OracleError>(output_rows(call.index(y)?, start, 0, vec![row]))
    };
    Ok(vec![
        one("m0", "a0_offset", "weights0", "y0_offset", "y0")?,
        one("m1", "a1_offset", "weights1", "y1_offset", "y1")?,
    ])
}

fn fused_pair_fill(d: &mut Draft, shape: Pair) {
    let Pair { m, k, a, y, .. } = shape;
    d.set_all(&[("m0", m[0]), ("m1", m[1]), ("k", k)]);
    d.set_all(&[("a0_offset", a[0]), ("a1_offset", a[1])]);
    d.set("x_offset", shape.x_offset);
    d.set_all(&[("y0_offset", y[0]), ("y1_offset", y[1])]);
    for (weights, m, a) in [("weights0", m[0], a[0]), ("weights1", m[1], a[1])] {
        let matrix = random_matrix(d, Format::Q8_0, m, k, shape.edges);
        d.read(weights, a as usize, &matrix);
    }
    let x = shape.x.make(&mut d.rng, k as usize);
    d.read_floats("x", shape.x_offset as usize, &x);
    d.write("y0");
    d.write("y1");
}

fn fused_pair_cases(cases: &mut Cases) {
    let plain = Pair {
        m: [1, 1],
        k: 32,
        a: [0; 2],
        x_offset: 0,
        y: [0; 2],
        x: Fill::Normal(1.0),
        edges: false,
    };
    let some = Pair {
        m: [7, 10],
        k: 160,
        ..plain
    };
    let mut add = |label: &str, shape: Pair| cases.add(label, |d| fused_pair_fill(d, shape));
    add("smallest", plain);
    add("no columns", Pair { k: 0, ..some });
    for m in [
        [0, 0],
        [0, 3],
        [4, 0],
        [1, 2],
        [2, 1],
        [3, 64],
        [65, 2],
        [17, 16],
        [129, 130],
    ] {
        add(&format!("{m:?} rows"), Pair { m, k: 64, ..plain });
    }
    for k in [32, 96, 1024, 1056, 2048] {
        add(&format!("k = {k}"), Pair { k, ..some });
    }
    add(
        "offsets",
        Pair {
            a: [22, 102],
            x_offset: 48,
            y: [28, 4],
            ..some
        },
    );
    add(
        "smallest offsets",
        Pair {
            a: [2, 4],
            x_offset: 16,
            y: [4, 8],
            ..some
        },
    );
    add(
        "edge blocks",
        Pair {
            m: [20, 13],
            edges: true,
            ..some
        },
    );
    for (label, x) in INPUTS {
        add(&format!("x: {label}"), Pair { x, ..some });
    }
    // Rows that are copied whole, in one piece and in two; the emulator's last ones are too many.
    for (m, k) in [
        ([200, 150], 2048),
        ([5, 300], 2304),
        ([0, 50], 4096),
        ([130, 100], 4096),
        ([300, 130], 512),
    ] {
        add(
            &format!("{m:?} x {k}, copied"),
            Pair {
                m,
                k,
                a: [48, 160],
                y: [28, 4],
                edges: k == 2048,
                ..plain
            },
        );
    }
    add(
        "copied, x: an outlier",
        Pair {
            m: [200, 150],
            k: 2048,
            x: Fill::One(9, -1e6),
            ..plain
        },
    );
    cases.add("one buffer for both matrices", |d| {
        fused_pair_fill(
            d,
            Pair {
                m: [10, 10],
                ..some
            },
        );
        d.set("a1_offset", 5 * 34);
        d.set("m1", 9);
        d.alias("weights1", "weights0");
        d.write("y1");
    });
    for (weights, what) in [("weights0", f32::NAN), ("weights1", f32::INFINITY)] {
        cases.add(format!("{what} in row 3 of {weights}"), |d| {
            fused_pair_fill(d, some);
            if let Some((at, bytes)) = special_factor(Format::Q8_0, 3, some.k as usize, what) {
                d.patch(weights, at, &bytes);
            }
        });
    }
    cases.heavy("8192 and 4096 x 2048, as in models", |d| {
        fused_pair_fill(
            d,
            Pair {
                m: [8192, 4096],
                k: 2048,
                ..plain
            },
        );
    });
}

/// One kernel that combines a gate and an up matrix.
pub(super) struct Gated {
    pub(super) weights: Format,
    pub(super) gate: Gate,
    /// required alignment of offsets into the weights
    pub(super) a_align: u32,
    /// both matrices are in one buffer, with an offset each
    pub(super) packed: bool,
    /// an f32 row gives one more output
    pub(super) logit: bool,
}

/// silu, where the bound counts its slope as 1.2 and 1e-5 of the result
pub(super) const SILU: Gate = Gate {
    activation: silu,
    slope: 1.2,
    relative: 1e-5,
};
const Q4K_SWIGLU: Gated = Gated {
    weights: Format::Q4K,
    gate: SILU,
    a_align: 4,
    packed: false,
    logit: false,
};
const Q4K_GEGLU: Gated = Gated {
    gate: Gate {
        activation: gelu,
        ..SILU
    },
    packed: true,
    ..Q4K_SWIGLU
};
pub(super) const Q8_0_SWIGLU: Gated = Gated {
    weights: Format::Q8_0,
    a_align: 2,
    ..Q4K_SWIGLU
};
const Q8_0_SWIGLU_GATE: Gated = Gated {
    logit: true,
    ..Q8_0_SWIGLU
};

/// What a case of a gated kernel is made of.
#[derive(Clone, Copy)]
struct Shape {
    m: u32,
    k: u32,
    /// of the gate matrix (and of the up matrix, if it is not packed), x and y
    offsets: [u32; 3],
    /// packed: bytes between the gate rows and the up rows
    gap: u32,
    /// packed: the up rows come first
    swapped: bool,
    x: Fill,
    edges: bool,
}

impl Gated {
    /// y[r] = activation(gate row * x) * (up row * x)
    pub(super) fn reference(&self, call: &Call) -> Result<Vec<Expected>, OracleError> {
        let (m, k) = (call.count("m")?, call.count("k")?);
        let x = vectors(call, "x", call.count("x_offset")?, 1, 0, k)?;
        let places = if self.packed {
            [("weights", "gate_offset"), ("weights", "up_offset")]
        } else {
            [("w_gate", "a_offset"), ("w_up", "a_offset")]
        };
        let sums = |(weights, offset): (&str, &str)| {
            let offset = call.count(offset)?;
            let weights = call.slice(weights, offset, m * self.weights.row_bytes(k))?;
            Ok::<_, OracleError>(products(self.weights, weights, m, &x))
        };
        let (gates, ups) = (sums(places[0])?, sums(places[1])?);
        let pairs = gates.iter().zip(&ups);
        let row = pairs.map(|(g, u)| self.gate.apply(g[0], u[0]).element(true));
        let start = call.count("y_offset")?;
        let y = output_rows(call.index("y")?, start, 0, vec![row.collect()]);
        let mut expected = vec![y];
        if self.logit {
            let row = Row::new(Format::F32, call.slice("shared_gate_w", 0, k * 4)?);
            let logit = row.dot(&x[0]).element(true);
            expected.push(Expected::floats(call.index("gate_out")?, 0, vec![logit]));
        }
        Ok(expected)
    }

    pub(super) fn cases(&self, cases: &mut Cases) {
        let unit = self.weights.elements() as u32;
        let plain = Shape {
            m: 1,
            k: unit,
            offsets: [0; 3],
            gap: 0,
            swapped: false,
            x: Fill::Normal(0.2),
            edges: false,
        };
        let some = Shape {
            m: 9,
            k: 4 * unit.max(64),
            ..plain
        };
        let mut add = |label: &str, shape: Shape| cases.add(label, |d| self.fill(d, shape));
        add("smallest", plain);
        if !self.logit {
            add("no rows", Shape { m: 0, ..some });
        }
        add("no columns", Shape { k: 0, ..some });
        for (m, units) in [
            (2, 1),
            (3, 2),
            (5, 3),
            (7, 5),
            (17, 4),
            (33, 9),
            (64, 2),
            (129, 1),
            (1, 33),
        ] {
            let k = units * unit;
            add(&format!("{m} x {k}"), Shape { m, k, ..plain });
        }
        let offsets = [3 * self.a_align, 48, 28];
        add("offsets", Shape { offsets, ..some });
        add(
            "smallest offsets",
            Shape {
                offsets: [self.a_align, 16, 4],
                ..some
            },
        );
        add(
            "edge blocks",
            Shape {
                m: 20,
                edges: true,
                ..some
            },
        );
        if self.packed {
            let gap = self.a_align;
            add("matrices apart", Shape { gap, ..some });
            add(
                "up before gate",
                Shape {
                    swapped: true,
                    ..some
                },
            );
            add(
                "up before gate, apart, offsets",
                Shape {
                    swapped: true,
                    gap: 68,
                    offsets,
                    ..some
                },
            );
        }
        for scale in [0.01, 1.0, 5.0, 30.0, 1e3, 1e8] {
            add(
                &format!("x of {scale:e}"),
                Shape {
                    x: Fill::Normal(scale),
                    ..some
                },
            );
        }
        for (label, x) in INPUTS {
            add(&format!("x: {label}"), Shape { x, ..some });
        }
        for (matrix, what) in [
            (0, f32::NAN),
            (1, f32::NAN),
            (0, f32::INFINITY),
            (1, f32::INFINITY),
        ] {
            let name = ["gate", "up"][matrix];
            cases.add(format!("{what} in row 2 of {name}"), |d| {
                self.fill(d, some);
                let special = special_factor(self.weights, 2, some.k as usize, what);
                let (at, bytes) = special.unwrap_or_default();
                let matrix_bytes = some.m as usize * self.weights.row_bytes(some.k as usize);
                if self.packed {
                    d.patch("weights", matrix * matrix_bytes + at, &bytes);
                } else {
                    d.patch(["w_gate", "w_up"][matrix], at, &bytes);
                }
            });
        }
        if self.logit {
            cases.add("NaN in the logit's row only", |d| {
                self.fill(d, some);
                d.patch("shared_gate_w", 8, &f32::NAN.to_le_bytes());
            });
        }
        if !self.packed {
            cases.add("one matrix for both", |d| {
                self.fill(d, some);
                d.alias("w_up", "w_gate");
            });
            cases.add("acc_mode is not read", |d| {
                self.fill(d, some);
                d.set("acc_mode", 1);
            });
        }
        let model = if unit == 32 {
            [(32, 2048, false), (512, 2048, true), (2112, 2816, true)]
        } else {
            [(32, 2048, false), (704, 2816, true), (1031, 5376, true)]
        };
        for (m, k, heavy) in model {
            let label = format!("{m} x {k}, as in models");
            let fill = |d: &mut Draft| self.fill(d, Shape { m, k, ..plain });
            if heavy {
                cases.heavy(label, fill);
            } else {
                cases.add(label, fill);
            }
        }
    }

    pub(super) fn random(&self, draft: &mut Draft) {
        let rng = &mut draft.rng;
        let shape = Shape {
            m: rng.between(1, 20),
            k: self.weights.elements() as u32 * rng.below(4),
            offsets: [
                self.a_align * rng.below(5),
                16 * rng.below(4),
                4 * rng.below(5),
            ],
            gap: self.a_align * rng.below(4),
            swapped: rng.flip(),
            x: Fill::Normal(rng.pick(&[0.1, 0.5, 3.0])),
            edges: rng.flip(),
        };
        self.fill(draft, shape);
    }

    fn fill(&self, draft: &mut Draft, shape: Shape) {
        let Shape {
            m,
            k,
            offsets: [a, x, y],
            ..
        } = shape;
        draft.set_all(&[("m", m), ("k", k), ("x_offset", x), ("y_offset", y)]);
        let gate = random_matrix(draft, self.weights, m, k, shape.edges);
        let up = random_matrix(draft, self.weights, m, k, shape.edges);
        if self.packed {
            let second = a + gate.len() as u32 + shape.gap;
            let [gate_offset, up_offset] = if shape.swapped {
                [second, a]
            } else {
                [a, second]
            };
            draft.set_all(&[("gate_offset", gate_offset), ("up_offset", up_offset)]);
            draft.read("weights", gate_offset as usize, &gate);
            draft.patch("weights", up_offset as usize, &up);
        } else {
            draft.set("a_offset", a);
            draft.read("w_gate", a as usize, &gate);
            draft.read("w_up", a as usize, &up);
        }
        let values = shape.x.make(&mut draft.rng, k as usize);
        draft.read_floats("x", x as usize, &values);
        if self.logit {
            let row = draft.rng.normals(k as usize, 1.0);
            draft.read_floats("shared_gate_w", 0, &row);
            draft.write("gate_out");
        }
        draft.write("y");
    }
}
