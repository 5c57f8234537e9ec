//! Normalisations and activations.

use rayon::prelude::*;

use super::Entry;
use super::elementwise::accumulate;
use super::rope::{Frequencies, rotate};
use crate::case::{Cases, Draft, Fill};
use crate::{Call, Element, Expected, OracleError};

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "rms_norm_mul",
        reference: rms_norm_mul,
        cases: rms_norm_mul_cases,
        random: |d| {
            let (rows, n) = (d.rng.below(6), 4 * d.rng.between(1, 50));
            rms_norm_mul_fill(d, rows, n, 1e-6, Fill::Normal(1.0));
        },
    },
    Entry {
        name: "rms_norm_add",
        reference: rms_norm_add,
        cases: rms_norm_add_cases,
        random: |d| {
            let (tokens, n) = (d.rng.below(6), d.rng.between(1, 200));
            rms_norm_add_fill(d, tokens, n, 1e-6, [Fill::Normal(1.0); 2]);
        },
    },
    Entry {
        name: "residual_rms_norm",
        reference: residual_rms_norm,
        cases: residual_rms_norm_cases,
        random: |d| {
            let (tokens, n) = (d.rng.below(6), d.rng.between(1, 200));
            let scale = d.rng.pick(&[1.0, 0.5, -2.0]);
            residual_rms_norm_fill(d, tokens, n, Sum { scale, ..SUM });
        },
    },
    Entry {
        name: "norm_rope",
        reference: norm_rope,
        cases: norm_rope_cases,
        random: norm_rope_random,
    },
    Entry {
        name: "qk_norm_rope_kv_write",
        reference: qk_norm_rope_kv_write,
        cases: qk_norm_rope_kv_write_cases,
        random: qk_norm_rope_kv_write_random,
    },
    Entry {
        name: "rms_norm_dmmv_f32",
        reference: |call| norm_project(call, &ROUTER),
        cases: |cases| norm_project_cases(cases, &ROUTER, 256),
        random: |d| norm_project_random(d, &ROUTER),
    },
    Entry {
        name: "rms_norm_dmmv_q4k_alpha_beta",
        reference: |call| norm_project(call, &ALPHA_BETA),
        cases: |cases| norm_project_cases(cases, &ALPHA_BETA, 32),
        random: |d| norm_project_random(d, &ALPHA_BETA),
    },
    Entry {
        name: "swiglu",
        reference: |call| gated(call, ["gate", "up", "y"], swiglu),
        cases: |cases| gated_cases(cases, ["gate", "up", "y"], f32::NEG_INFINITY),
        random: |d| gated_random(d, ["gate", "up", "y"]),
    },
    Entry {
        name: "swiglu_oai",
        reference: |call| gated(call, ["gate", "up", "y"], swiglu_oai),
        cases: swiglu_oai_cases,
        random: |d| gated_random(d, ["gate", "up", "y"]),
    },
    Entry {
        name: "geglu",
        reference: |call| gated(call, ["gate", "up", "y"], geglu),
        // gate = -inf is left open, hence not among the cases.
        cases: |cases| gated_cases(cases, ["gate", "up", "y"], f32::INFINITY),
        random: |d| gated_random(d, ["gate", "up", "y"]),
    },
    Entry {
        name: "sigmoid_mul",
        reference: |call| gated(call, ["gate", "x", "y"], sigmoid_mul),
        cases: |cases| gated_cases(cases, ["gate", "x", "y"], f32::NEG_INFINITY),
        random: |d| gated_random(d, ["gate", "x", "y"]),
    },
    Entry {
        name: "sigmoid_scale_acc",
        reference: sigmoid_scale_acc,
        cases: sigmoid_scale_acc_cases,
        random: |d| {
            let (n, gate) = (4 * d.rng.below(60), d.rng.normal() * 3.0);
            sigmoid_scale_acc_fill(d, n, gate, Fill::Normal(1.0));
        },
    },
    Entry {
        name: "sigmoid_scale_acc_batch",
        reference: sigmoid_scale_acc_batch,
        cases: sigmoid_scale_acc_batch_cases,
        random: |d| {
            let (width, base) = (4 * d.rng.below(40), d.rng.below(4));
            let tokens = d.rng.below(5);
            let gates = d.rng.normals(tokens as usize, 3.0);
            sigmoid_scale_acc_batch_fill(d, width, base, &gates, Fill::Normal(1.0));
        },
    },
];

/// 1 / (1 + exp(-x))
pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Below this argument exp(-x), or the reciprocal of 1 + exp(-x), may leave the range of f32, so that
/// the f32 sigmoid is anything between 0 and its value.
pub(super) const SIGMOID_FLOOR: f64 = -87.0;

/// Smallest mean square, eps included, that f32 squares represent to full precision.
const SMALLEST_MEAN: f64 = 1e-30;

/// 1 / sqrt(mean square + eps) of a row, and false if f32 may not be able to form the squares: they
/// overflow, or they underflow and eps does not cover them.
pub(super) fn inverse_rms(row: &[f64], eps: f64) -> (f64, bool) {
    let sum: f64 = row.iter().map(|x| x * x).sum();
    let mean = sum / row.len() as f64 + eps;
    let overflow = sum.is_finite() && sum > f64::from(f32::MAX);
    let underflow = sum > 0.0 && mean < SMALLEST_MEAN;
    (1.0 / mean.sqrt(), !overflow && !underflow)
}

/// The largest finite magnitude.
pub(super) fn largest(values: &[f64]) -> f64 {
    let magnitudes = values.iter().map(|v| v.abs()).filter(|v| v.is_finite());
    magnitudes.fold(0.0, f64::max)
}

/// A normalised row.
pub(super) struct Norm {
    /// weight * x / rms
    pub(super) y: Vec<f64>,
    /// f32 can form the squares
    pub(super) representable: bool,
}

impl Norm {
    /// Normalises `row` with `weight`.
    pub(super) fn of(row: &[f64], weight: &[f64], eps: f64) -> Self {
        let (r, representable) = inverse_rms(row, eps);
        Self {
            y: row.iter().zip(weight).map(|(x, w)| w * (x * r)).collect(),
            representable,
        }
    }

    /// `elements` if f32 can form the squares, else anything.
    fn guarded(&self, elements: Vec<Element>) -> Vec<Element> {
        if self.representable {
            elements
        } else {
            vec![Element::Free; elements.len()]
        }
    }

    /// y within 1e-5 relative plus `absolute`.
    pub(super) fn elements(&self, absolute: f64) -> Vec<Element> {
        let near = |y: &f64| Element::near(*y, 1e-5 * y.abs() + absolute);
        self.guarded(self.y.iter().map(near).collect())
    }

    /// y within 1e-5 relative plus 1e-6 of the largest |y|.
    pub(super) fn elements_of_row(&self) -> Vec<Element> {
        self.elements(1e-6 * largest(&self.y))
    }
}

/// y[t,i] = weight[i] * (x[t,i] * r): rtol 1e-5, atol 1e-6 * the largest |y| of the row
fn rms_norm_mul(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (rows, n) = (call.count("n_rows")?, call.count("n")?);
    let eps = call.float("eps")?;
    let x = call.doubles("x", 0, rows * n)?;
    let weight = call.doubles("weight", 0, n)?;
    let rows = x.par_chunks(n).map(|row| Norm::of(row, &weight, eps));
    let elements = rows.flat_map_iter(|norm| norm.elements_of_row()).collect();
    Ok(vec![Expected::floats(call.index("y")?, 0, elements)])
}

fn rms_norm_mul_fill(d: &mut Draft, rows: u32, n: u32, eps: f32, x: Fill) {
    d.set_all(&[("n", n), ("n_rows", rows)]);
    d.set_float("eps", eps);
    let x = x.make(&mut d.rng, (rows * n) as usize);
    let weight = d.rng.normals(n as usize, 1.5);
    d.read_floats("x", 0, &x);
    d.read_floats("weight", 0, &weight);
    d.write("y");
}

fn rms_norm_mul_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    for (rows, n) in [
        (1, 4),
        (0, 4),
        (2, 8),
        (3, 12),
        (5, 60),
        (1, 64),
        (4, 68),
        (2, 128),
        (16, 128),
        (3, 252),
        (2, 256),
        (3, 260),
        (2, 1020),
        (1, 2048),
        (3, 2048),
        (1, 4100),
        (1, 6656),
        (9, 256),
        (17, 4),
        (2, 8196),
        (1, 16_388),
    ] {
        cases.add(format!("{rows} rows of {n}"), |d| {
            rms_norm_mul_fill(d, rows, n, 1e-6, normal);
        });
    }
    for (label, eps, x) in [
        ("zero rows", 1e-6, Fill::Equal(0.0)),
        ("zero rows, eps 0", 0.0, Fill::Equal(0.0)),
        ("eps 0", 0.0, normal),
        ("large eps", 10.0, normal),
        ("all equal", 1e-5, Fill::Equal(-3.0)),
        ("alternating", 1e-6, Fill::Alternating(0.01)),
        ("large", 1e-6, Fill::Normal(1e15)),
        ("small", 1e-6, Fill::Normal(1e-4)),
        ("eps dominates", 1e-6, Fill::Normal(1e-12)),
        ("squares underflow", 1e-6, Fill::Normal(1e-25)),
        ("a NaN in the last row", 1e-6, Fill::One(2, f32::NAN)),
        (
            "an infinity in the last row",
            1e-6,
            Fill::One(0, f32::INFINITY),
        ),
        ("one huge element", 1e-6, Fill::One(5, 1e18)),
    ] {
        cases.add(label, |d| rms_norm_mul_fill(d, 3, 100, eps, x));
    }
    for (rows, n) in [(5, 128), (2, 2048)] {
        cases.add(format!("in place, {rows} rows of {n}"), |d| {
            rms_norm_mul_fill(d, rows, n, 1e-6, normal);
            d.own("y", "x");
        });
    }
    cases.heavy("512 tokens of 2048", |d| {
        rms_norm_mul_fill(d, 512, 2048, 1e-6, normal);
    });
}

/// hidden[t,i] += (weights[i] * src[t,i]) * r: rtol 1e-5, atol 1e-6 * (largest |hidden| before + largest
/// |added term|) of the row
fn rms_norm_add(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (tokens, n) = (call.count("n_tokens")?, call.count("n")?);
    let eps = call.float("eps")?;
    let hidden = call.doubles("hidden", 0, tokens * n)?;
    let src = call.doubles("src", 0, tokens * n)?;
    let weights = call.doubles("weights", 0, n)?;
    let rows = hidden.par_chunks(n).zip(src.par_chunks(n));
    let elements = rows.flat_map_iter(|(hidden, src)| {
        let norm = Norm::of(src, &weights, eps);
        let absolute = 1e-6 * (largest(hidden) + largest(&norm.y));
        let element = |(h, y): (&f64, &f64)| {
            let wanted = h + y;
            Element::near_unless_overflow(wanted, 1e-5 * wanted.abs() + absolute, h.abs() + y.abs())
        };
        norm.guarded(hidden.iter().zip(&norm.y).map(element).collect())
    });
    let elements = elements.collect();
    Ok(vec![Expected::floats(call.index("hidden")?, 0, elements)])
}

/// `fills` are those of hidden and src.
fn rms_norm_add_fill(d: &mut Draft, tokens: u32, n: u32, eps: f32, fills: [Fill; 2]) {
    d.set_all(&[("n", n), ("n_tokens", tokens)]);
    d.set_float("eps", eps);
    let [hidden, src] = fills.map(|fill| fill.make(&mut d.rng, (tokens * n) as usize));
    let weights = d.rng.normals(n as usize, 1.5);
    d.update("hidden", 0, &hidden);
    d.read_floats("src", 0, &src);
    d.read_floats("weights", 0, &weights);
}

/// Rows and lengths that no vector or block width divides.
pub(super) const RAGGED: [(u32, u32); 20] = [
    (1, 1),
    (0, 4),
    (2, 2),
    (3, 3),
    (5, 7),
    (2, 31),
    (1, 63),
    (3, 64),
    (2, 65),
    (4, 127),
    (2, 255),
    (3, 257),
    (2, 1023),
    (1, 2048),
    (1, 2816),
    (2, 4099),
    (3, 260),
    (2, 4100),
    (1, 8193),
    (2, 8196),
];

fn rms_norm_add_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    for (tokens, n) in RAGGED {
        cases.add(format!("{tokens} tokens of {n}"), |d| {
            rms_norm_add_fill(d, tokens, n, 1e-6, [normal; 2]);
        });
    }
    for (label, eps, hidden, src) in [
        ("src zero", 1e-6, normal, Fill::Equal(0.0)),
        ("hidden zero", 1e-6, Fill::Equal(0.0), normal),
        ("eps 0", 0.0, normal, normal),
        ("large eps", 10.0, normal, normal),
        ("hidden large", 1e-6, Fill::Normal(1e6), normal),
        ("hidden tiny", 1e-6, Fill::Normal(1e-20), normal),
        ("src large", 1e-6, normal, Fill::Normal(1e15)),
        ("src small", 1e-6, normal, Fill::Normal(1e-4)),
        ("eps dominates", 1e-6, normal, Fill::Normal(1e-12)),
        ("one huge element", 1e-6, normal, Fill::One(5, 1e18)),
        ("a NaN in src", 1e-6, normal, Fill::One(2, f32::NAN)),
        (
            "an infinity in src",
            1e-6,
            normal,
            Fill::One(0, f32::INFINITY),
        ),
        ("NaN in hidden", 1e-6, Fill::Sprinkled(f32::NAN), normal),
        (
            "infinity in hidden",
            1e-6,
            Fill::Sprinkled(f32::NEG_INFINITY),
            normal,
        ),
    ] {
        cases.add(label, |d| {
            rms_norm_add_fill(d, 3, 101, eps, [hidden, src]);
        });
    }
    cases.add("cancelling", |d| {
        rms_norm_add_fill(d, 2, 90, 1e-6, [Fill::Equal(-1.0), Fill::Equal(5.0)]);
        d.patch("weights", 0, &crate::case::float_bytes(&[1.0; 90]));
    });
    for n in [2816, 5376] {
        cases.heavy(format!("Gemma, 256 tokens of {n}"), |d| {
            rms_norm_add_fill(d, 256, n, 1e-6, [normal; 2]);
        });
    }
}

/// A residual stream after an addition, and its normalised rows.
pub(super) struct Updated {
    /// the stream, within 1e-6 relative
    pub(super) hidden: Vec<Element>,
    /// one per token
    pub(super) norms: Vec<Norm>,
}

impl Updated {
    /// h = hidden + scale * residual, rounded once, and (weights * h) / rms of every row, for a call with
    /// n, n_tokens, scale and eps.
    pub(super) fn of(call: &Call) -> Result<Self, OracleError> {
        let (tokens, n) = (call.count("n_tokens")?, call.count("n")?);
        let (scale, eps) = (call.float("scale")?, call.float("eps")?);
        let hidden = call.doubles("hidden", 0, tokens * n)?;
        let residual = call.doubles("residual", 0, tokens * n)?;
        let weights = call.doubles("weights", 0, n)?;
        let sums = hidden.iter().zip(&residual).map(|(h, r)| h + scale * r);
        let sums: Vec<f64> = sums.collect();
        let near = |h: &f64| Element::near(*h, 1e-6 * h.abs());
        let rows = sums.par_chunks(n).map(|row| {
            let rounded: Vec<f64> = row.iter().map(|h| f64::from(*h as f32)).collect();
            Norm::of(&rounded, &weights, eps)
        });
        Ok(Self {
            norms: rows.collect(),
            hidden: sums.iter().map(near).collect(),
        })
    }

    /// The normalised rows, within 1e-5 relative plus 1e-6 of the largest value of the row.
    pub(super) fn norm_elements(&self) -> Vec<Element> {
        self.norms.iter().flat_map(Norm::elements_of_row).collect()
    }
}

/// The updated stream in `hidden`, its normalised rows in `norm_out`
fn residual_rms_norm(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let updated = Updated::of(call)?;
    Ok(vec![
        Expected::floats(call.index("norm_out")?, 0, updated.norm_elements()),
        Expected::floats(call.index("hidden")?, 0, updated.hidden),
    ])
}

/// What the rows of a residual addition are made of.
#[derive(Clone, Copy)]
pub(super) struct Sum {
    pub(super) scale: f32,
    pub(super) eps: f32,
    pub(super) hidden: Fill,
    pub(super) residual: Fill,
}

/// Ordinary rows.
pub(super) const SUM: Sum = Sum {
    scale: 1.0,
    eps: 1e-6,
    hidden: Fill::Normal(1.0),
    residual: Fill::Normal(0.5),
};

/// Rows at the edges.
pub(super) const SUMS: [(&str, Sum); 11] = [
    ("scale 0.37", Sum { scale: 0.37, ..SUM }),
    ("scale -2.5", Sum { scale: -2.5, ..SUM }),
    ("scale zero", Sum { scale: 0.0, ..SUM }),
    (
        "rows of zeros",
        Sum {
            hidden: Fill::Equal(0.0),
            residual: Fill::Equal(0.0),
            ..SUM
        },
    ),
    (
        "rows that cancel to zero",
        Sum {
            hidden: Fill::Equal(0.75),
            residual: Fill::Equal(-0.75),
            ..SUM
        },
    ),
    (
        "rows that nearly cancel",
        Sum {
            scale: 0.1,
            hidden: Fill::Equal(-0.3),
            residual: Fill::Equal(3.0),
            ..SUM
        },
    ),
    ("large eps", Sum { eps: 10.0, ..SUM }),
    ("eps 0", Sum { eps: 0.0, ..SUM }),
    (
        "large",
        Sum {
            hidden: Fill::Normal(1e15),
            residual: Fill::Normal(1e14),
            ..SUM
        },
    ),
    (
        "small",
        Sum {
            hidden: Fill::Normal(1e-4),
            residual: Fill::Normal(1e-6),
            ..SUM
        },
    ),
    (
        "one huge element",
        Sum {
            hidden: Fill::One(5, 1e18),
            ..SUM
        },
    ),
];

/// Fills what both kernels with a residual addition have.
pub(super) fn sum_fill(d: &mut Draft, tokens: u32, n: u32, sum: Sum) {
    d.set_all(&[("n", n), ("n_tokens", tokens)]);
    d.set_float("eps", sum.eps);
    d.set_float("scale", sum.scale);
    let count = (tokens * n) as usize;
    let hidden = sum.hidden.make(&mut d.rng, count);
    let residual = sum.residual.make(&mut d.rng, count);
    let weights = d.rng.normals(n as usize, 1.5);
    d.update("hidden", 0, &hidden);
    d.read_floats("residual", 0, &residual);
    d.read_floats("weights", 0, &weights);
}

fn residual_rms_norm_fill(d: &mut Draft, tokens: u32, n: u32, sum: Sum) {
    sum_fill(d, tokens, n, sum);
    d.write("norm_out");
}

fn residual_rms_norm_cases(cases: &mut Cases) {
    for (tokens, n) in RAGGED {
        cases.add(format!("{tokens} tokens of {n}"), |d| {
            residual_rms_norm_fill(d, tokens, n, SUM);
        });
    }
    for (label, sum) in SUMS {
        cases.add(label, |d| residual_rms_norm_fill(d, 3, 101, sum));
    }
    for (label, value) in [("a NaN", f32::NAN), ("an infinity", f32::INFINITY)] {
        let fill = Fill::One(2, value);
        let hidden = Sum {
            hidden: fill,
            ..SUM
        };
        let residual = Sum {
            residual: fill,
            ..SUM
        };
        let zero = Sum {
            scale: 0.0,
            ..residual
        };
        for (place, sum) in [
            ("hidden", hidden),
            ("residual", residual),
            ("residual, scale 0", zero),
        ] {
            cases.add(format!("{label} in {place}"), |d| {
                residual_rms_norm_fill(d, 3, 101, sum)
            });
        }
    }
    for n in [2048, 2816, 5376] {
        cases.heavy(format!("256 tokens of {n}"), |d| {
            residual_rms_norm_fill(d, 256, n, SUM)
        });
    }
}

/// Heads normalised and rotated. Tolerances of the contract: rotated pairs within (|u_lo| + |u_hi|) *
/// |a| * (2e-5 + c * theta * 2^-23), the rest rtol 2e-5.
fn rotated_heads(
    data: &[f64],
    weight: &[f64],
    eps: f64,
    frequencies: &Frequencies,
) -> Vec<Element> {
    let heads = data.par_chunks(weight.len()).flat_map_iter(|head| {
        let norm = Norm::of(head, weight, eps);
        let tail = |u: f64| Element::near(u, 2e-5 * u.abs());
        norm.guarded(rotate(&norm.y, frequencies, 2e-5, tail))
    });
    heads.collect()
}

/// Every head of `data` in place
fn norm_rope(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (heads, dim) = (call.count("n_heads")?, call.count("head_dim")?);
    let data = call.doubles("data", 0, heads * dim)?;
    let weight = call.doubles("weight", 0, dim)?;
    let frequencies = Frequencies::of(call, f64::from(call.word("position")?))?;
    let elements = rotated_heads(&data, &weight, call.float("eps_bits")?, &frequencies);
    Ok(vec![Expected::floats(call.index("data")?, 0, elements)])
}

/// What a case of norm_rope is made of.
#[derive(Clone, Copy)]
struct Heads {
    heads: u32,
    dim: u32,
    rope: u32,
    position: u32,
    /// 0 for the table
    base: f32,
    /// 0 for 1.0
    scale: f32,
    data: Fill,
}

fn norm_rope_fill(d: &mut Draft, shape: Heads) {
    let Heads {
        heads, dim, rope, ..
    } = shape;
    d.set_all(&[("head_dim", dim), ("rope_dim", rope), ("n_heads", heads)]);
    d.set("position", shape.position);
    d.set_float("freq_base_bits", shape.base);
    d.set_float("attn_scale_bits", shape.scale);
    d.set_float("eps_bits", 1e-6);
    let data = shape.data.make(&mut d.rng, (heads * dim) as usize);
    let weight = d.rng.normals(dim as usize, 1.0);
    d.update("data", 0, &data);
    d.read_floats("weight", 0, &weight);
    super::rope::fill_table(d, rope, shape.base);
}

fn norm_rope_cases(cases: &mut Cases) {
    let plain = Heads {
        heads: 1,
        dim: 128,
        rope: 128,
        position: 3,
        base: 0.0,
        scale: 0.0,
        data: Fill::Normal(1.0),
    };
    let mut add = |label: String, shape: Heads| cases.add(label, |d| norm_rope_fill(d, shape));
    for (heads, dim, rope) in [
        (1, 2, 2),
        (0, 8, 4),
        (1, 1, 0),
        (2, 3, 2),
        (3, 6, 4),
        (5, 7, 0),
        (2, 64, 64),
        (3, 65, 10),
        (4, 96, 62),
        (16, 128, 128),
        (2, 130, 66),
        (16, 256, 64),
        (2, 256, 256),
        (1, 512, 512),
        (1, 520, 256),
        (2, 1100, 36),
        (1, 1090, 1090),
    ] {
        for (path, base) in [("table", 0.0), ("base", 1e6)] {
            add(
                format!("{path}: {heads} heads of {dim}, {rope} rotated"),
                Heads {
                    heads,
                    dim,
                    rope,
                    base,
                    ..plain
                },
            );
        }
    }
    for position in [0, 1, 127, 4095, 40_000, 262_143] {
        for (path, base) in [("table", 0.0), ("base", 1e4)] {
            add(
                format!("{path}: position {position}"),
                Heads {
                    heads: 2,
                    position,
                    base,
                    ..plain
                },
            );
        }
    }
    for (label, data) in [
        ("zeros", Fill::Equal(0.0)),
        ("all equal", Fill::Equal(2.0)),
        ("large", Fill::Normal(1e15)),
        ("small", Fill::Normal(1e-5)),
        ("a NaN in the last head", Fill::One(1, f32::NAN)),
    ] {
        add(
            label.to_owned(),
            Heads {
                heads: 3,
                rope: 64,
                data,
                ..plain
            },
        );
    }
    add(
        "scale 1.25, table".to_owned(),
        Heads {
            heads: 3,
            rope: 32,
            scale: 1.25,
            ..plain
        },
    );
    add(
        "scale -0.5, base".to_owned(),
        Heads {
            heads: 3,
            rope: 32,
            scale: -0.5,
            base: 500.0,
            ..plain
        },
    );
    cases.heavy("64 x 64 heads of 256", |d| {
        norm_rope_fill(
            d,
            Heads {
                heads: 4096,
                dim: 256,
                rope: 64,
                base: 1e7,
                ..plain
            },
        );
    });
}

fn norm_rope_random(d: &mut Draft) {
    let dim = d.rng.between(1, 140);
    let shape = Heads {
        heads: d.rng.below(4),
        dim,
        rope: 2 * d.rng.below(dim / 2 + 1),
        position: d.rng.below(5000),
        base: d.rng.pick(&[0.0, 1e4, 1e6]),
        scale: d.rng.pick(&[0.0, 1.0, 1.3]),
        data: Fill::Normal(1.0),
    };
    norm_rope_fill(d, shape);
}

/// Q as norm_rope in place, K likewise into its slot of the cache, V bit for bit or normalised without
/// weights within 1e-5 relative
fn qk_norm_rope_kv_write(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (dim, slot) = (call.count("head_dim")?, call.count("dst_offset")? * 4);
    let eps = call.float("eps_bits")?;
    let frequencies = Frequencies::of(call, f64::from(call.word("position")?))?;
    let rotated = |heads: &str, data: &str, weight: &str| -> Result<_, OracleError> {
        let data = call.doubles(data, 0, call.count(heads)? * dim)?;
        let weight = call.doubles(weight, 0, dim)?;
        Ok(rotated_heads(&data, &weight, eps, &frequencies))
    };
    let q = rotated("n_q_heads", "q", "q_weight")?;
    let k = rotated("n_k_heads", "k_src", "k_weight")?;
    let count = k.len();
    let v: Vec<Element> = if call.word("v_norm")? == 0 {
        let bits = call.integers("v_src", 0, count)?;
        bits.into_iter().map(Element::Bits).collect()
    } else {
        let heads = call.doubles("v_src", 0, count)?;
        let ones = vec![1.0; dim];
        let norms = heads.chunks(dim).map(|head| Norm::of(head, &ones, eps));
        norms.flat_map(|norm| norm.elements(0.0)).collect()
    };
    Ok(vec![
        Expected::floats(call.index("q")?, 0, q),
        Expected::floats(call.index("k_cache")?, slot, k),
        Expected::floats(call.index("v_cache")?, slot, v),
    ])
}

/// What a case of qk_norm_rope_kv_write is made of.
#[derive(Clone, Copy)]
struct Token {
    q_heads: u32,
    k_heads: u32,
    dim: u32,
    rope: u32,
    position: u32,
    /// 0 for the table
    base: f32,
    /// 0 for 1.0
    scale: f32,
    /// first element of the slot in the caches
    offset: u32,
    v_norm: u32,
    q: Fill,
    k: Fill,
    v: Fill,
}

/// Four heads on two.
const TOKEN: Token = Token {
    q_heads: 4,
    k_heads: 2,
    dim: 64,
    rope: 64,
    position: 3,
    base: 0.0,
    scale: 0.0,
    offset: 3 * 128,
    v_norm: 0,
    q: Fill::Normal(1.0),
    k: Fill::Normal(1.0),
    v: Fill::Normal(1.0),
};

fn qk_norm_rope_kv_write_fill(d: &mut Draft, token: Token) {
    let Token { dim, rope, .. } = token;
    d.set_all(&[
        ("head_dim", dim),
        ("rope_dim", rope),
        ("n_q_heads", token.q_heads),
        ("n_k_heads", token.k_heads),
        ("position", token.position),
        ("dst_offset", token.offset),
        ("v_norm", token.v_norm),
    ]);
    d.set_float("freq_base_bits", token.base);
    d.set_float("attn_scale_bits", token.scale);
    d.set_float("eps_bits", 1e-6);
    let q = (token.q).make(&mut d.rng, (token.q_heads * dim) as usize);
    d.update("q", 0, &q);
    for (buffer, fill) in [("k_src", token.k), ("v_src", token.v)] {
        let values = fill.make(&mut d.rng, (token.k_heads * dim) as usize);
        d.read_floats(buffer, 0, &values);
    }
    for buffer in ["q_weight", "k_weight"] {
        let weight = d.rng.normals(dim as usize, 1.0);
        d.read_floats(buffer, 0, &weight);
    }
    super::rope::fill_table(d, rope, token.base);
    d.write("k_cache");
    d.write("v_cache");
}

fn qk_norm_rope_kv_write_cases(cases: &mut Cases) {
    let mut add = |label: String, token: Token| {
        cases.add(label, |d| qk_norm_rope_kv_write_fill(d, token));
    };
    for (q_heads, k_heads, dim, rope) in [
        (1, 1, 1, 0),
        (1, 1, 2, 2),
        (2, 1, 3, 2),
        (3, 2, 7, 0),
        (5, 5, 6, 4),
        (4, 1, 63, 62),
        (3, 3, 65, 10),
        (6, 2, 96, 64),
        (1, 3, 128, 128),
        (8, 2, 130, 66),
        (16, 2, 256, 64),
        (8, 4, 256, 256),
        (4, 1, 512, 512),
    ] {
        for (path, base) in [("table", 0.0), ("base", 1e6)] {
            for v_norm in [0, 1] {
                let token = Token {
                    q_heads,
                    k_heads,
                    dim,
                    rope,
                    base,
                    v_norm,
                    offset: 5 * k_heads * dim,
                    ..TOKEN
                };
                let shape = format!("{q_heads} and {k_heads} heads of {dim}, {rope} rotated");
                add(format!("{path}: {shape}, v_norm {v_norm}"), token);
            }
        }
    }
    for position in [0, 1, 127, 4095, 40_000, 262_143] {
        for (path, base) in [("table", 0.0), ("base", 1e4)] {
            let token = Token {
                position,
                base,
                ..TOKEN
            };
            add(format!("{path}: position {position}"), token);
        }
    }
    for offset in [0, 1, 130] {
        let token = Token {
            offset,
            v_norm: 1,
            ..TOKEN
        };
        add(format!("offset {offset}"), token);
    }
    for v_norm in [2, u32::MAX] {
        add(format!("v_norm {v_norm}"), Token { v_norm, ..TOKEN });
    }
    for (scale, base) in [(1.25, 0.0), (-0.5, 500.0)] {
        let token = Token {
            rope: 32,
            scale,
            base,
            ..TOKEN
        };
        add(format!("scale {scale}"), token);
    }
    for (label, fill) in [
        ("zeros", Fill::Equal(0.0)),
        ("all equal", Fill::Equal(2.0)),
        ("large", Fill::Normal(1e15)),
        ("small", Fill::Normal(1e-5)),
        ("a NaN in the last head", Fill::One(1, f32::NAN)),
    ] {
        for v_norm in [0, 1] {
            let token = Token {
                rope: 32,
                v_norm,
                q: fill,
                k: fill,
                v: fill,
                ..TOKEN
            };
            add(format!("{label}, v_norm {v_norm}"), token);
        }
    }
    for v_norm in [0, 1] {
        cases.add(format!("v_src is k_src, v_norm {v_norm}"), |d| {
            qk_norm_rope_kv_write_fill(d, Token { v_norm, ..TOKEN });
            d.alias("v_src", "k_src");
        });
    }
    cases.add("any bits in V", |d| {
        qk_norm_rope_kv_write_fill(d, TOKEN);
        let bits = d.rng.bytes(128 * 4);
        d.patch("v_src", 0, &bits);
    });
    cases.heavy("Gemma, slot 4095, 512 wide", |d| {
        let token = Token {
            q_heads: 16,
            k_heads: 4,
            dim: 512,
            rope: 512,
            position: 4095,
            offset: 4095 * 4 * 512,
            v_norm: 1,
            ..TOKEN
        };
        qk_norm_rope_kv_write_fill(d, token);
    });
}

fn qk_norm_rope_kv_write_random(d: &mut Draft) {
    let dim = d.rng.between(1, 140);
    let token = Token {
        q_heads: d.rng.between(1, 4),
        k_heads: d.rng.between(1, 3),
        dim,
        rope: 2 * d.rng.below(dim / 2 + 1),
        position: d.rng.below(5000),
        base: d.rng.pick(&[0.0, 1e4, 1e6]),
        scale: d.rng.pick(&[0.0, 1.0, 1.3]),
        offset: d.rng.below(500),
        v_norm: d.rng.below(2),
        ..TOKEN
    };
    qk_norm_rope_kv_write_fill(d, token);
}

/// Matrices times one normalised vector.
pub(super) struct Projections {
    /// the buffer of the factors of the normalised vector
    pub(super) weight: &'static str,
    /// the buffer of the normalised vector, if it is an output
    pub(super) normalised: Option<&'static str>,
    /// matrices and the buffers of their products
    pub(super) matrices: &'static [(&'static str, &'static str)],
}

const ROUTER: Projections = Projections {
    weight: "norm_weight",
    normalised: Some("norm_out"),
    matrices: &[("router_weight", "router_logits")],
};
const ALPHA_BETA: Projections = Projections {
    matrices: &[("alpha_w", "alpha_out"), ("beta_w", "beta_out")],
    ..ROUTER
};

/// Sum of the products of two vectors, and sum of their magnitudes.
pub(super) fn product(a: &[f64], b: &[f64]) -> (f64, f64) {
    let terms = a.iter().zip(b).map(|(a, b)| a * b);
    terms.fold((0.0, 0.0), |(s, m), t| (s + t, m + t.abs()))
}

/// norm = weight * hidden / rms, rtol 1e-5; each output W * norm within 2e-5 of the sum of the
/// terms' magnitudes
pub(super) fn norm_project(
    call: &Call,
    projections: &Projections,
) -> Result<Vec<Expected>, OracleError> {
    let (m, k) = (call.count("m")?, call.count("k")?);
    let hidden = call.doubles("hidden", 0, k)?;
    let weight = call.doubles(projections.weight, 0, k)?;
    let norm = Norm::of(&hidden, &weight, call.float("eps_bits")?);
    let mut expected = Vec::new();
    if let Some(out) = projections.normalised {
        expected.push(Expected::floats(call.index(out)?, 0, norm.elements(0.0)));
    }
    for (matrix, out) in projections.matrices {
        let matrix = call.doubles(matrix, 0, m * k)?;
        let rows = matrix.par_chunks(k).map(|row| {
            let (value, magnitude) = product(row, &norm.y);
            Element::near_unless_overflow(value, 2e-5 * magnitude, magnitude)
        });
        let elements = norm.guarded(rows.collect());
        expected.push(Expected::floats(call.index(out)?, 0, elements));
    }
    Ok(expected)
}

/// `fills` are those of hidden and of the matrices.
fn norm_project_fill(
    d: &mut Draft,
    projections: &Projections,
    [m, k]: [u32; 2],
    eps: f32,
    [hidden, matrix]: [Fill; 2],
) {
    d.set_all(&[("m", m), ("k", k)]);
    d.set_float("eps_bits", eps);
    let hidden = hidden.make(&mut d.rng, k as usize);
    d.read_floats("hidden", 0, &hidden);
    let weight = d.rng.normals(k as usize, 1.2);
    d.read_floats(projections.weight, 0, &weight);
    for (buffer, out) in projections.matrices {
        let values = matrix.make(&mut d.rng, (m * k) as usize);
        d.read_floats(buffer, 0, &values);
        d.write(out);
    }
    if let Some(out) = projections.normalised {
        d.write(out);
    }
}

/// `rows` are those of the model.
pub(super) fn norm_project_cases(cases: &mut Cases, projections: &Projections, rows: u32) {
    let normal = [Fill::Normal(1.0), Fill::Normal(0.5)];
    for shape in [
        [1, 4],
        [2, 4],
        [1, 8],
        [3, 12],
        [5, 60],
        [7, 64],
        [8, 68],
        [9, 124],
        [31, 128],
        [33, 132],
        [64, 256],
        [65, 260],
        [129, 36],
        [2, 1020],
        [3, 1028],
        [1, 2048],
        [4, 2816],
        [1, 5376],
        [2, 8196],
    ] {
        let [m, k] = shape;
        cases.add(format!("{m} x {k}"), |d| {
            norm_project_fill(d, projections, shape, 1e-6, normal);
        });
    }
    for (label, eps, hidden, matrix) in [
        ("hidden zero", 1e-6, Fill::Equal(0.0), normal[1]),
        ("hidden zero, eps 0", 0.0, Fill::Equal(0.0), normal[1]),
        ("eps 0", 0.0, normal[0], normal[1]),
        ("large eps", 10.0, normal[0], normal[1]),
        ("hidden large", 1e-6, Fill::Normal(1e15), normal[1]),
        ("hidden small", 1e-6, Fill::Normal(1e-4), normal[1]),
        ("eps dominates", 1e-6, Fill::Normal(1e-12), normal[1]),
        ("one huge element", 1e-6, Fill::One(5, 1e18), normal[1]),
        ("a NaN in hidden", 1e-6, Fill::One(2, f32::NAN), normal[1]),
        (
            "an infinity in hidden",
            1e-6,
            Fill::One(0, f32::INFINITY),
            normal[1],
        ),
        ("matrix zero", 1e-6, normal[0], Fill::Equal(0.0)),
        ("cancelling", 1e-6, Fill::Equal(1.0), Fill::Alternating(1.0)),
        ("matrix huge", 1e-6, normal[0], Fill::Normal(1e30)),
        ("matrix tiny", 1e-6, normal[0], Fill::Normal(1e-30)),
        (
            "a NaN in the last row",
            1e-6,
            normal[0],
            Fill::One(3, f32::NAN),
        ),
        (
            "an infinity in the last row",
            1e-6,
            normal[0],
            Fill::One(3, f32::INFINITY),
        ),
    ] {
        cases.add(label, |d| {
            norm_project_fill(d, projections, [5, 100], eps, [hidden, matrix]);
        });
    }
    for k in [2048, 5376] {
        cases.heavy(format!("{rows} x {k}"), |d| {
            norm_project_fill(d, projections, [rows, k], 1e-6, normal);
        });
    }
}

pub(super) fn norm_project_random(d: &mut Draft, projections: &Projections) {
    let shape = [d.rng.between(1, 20), 4 * d.rng.between(1, 60)];
    let fills = [Fill::Normal(1.0), Fill::Normal(0.3)];
    norm_project_fill(d, projections, shape, 1e-6, fills);
}

/// An element-wise kernel of n elements with a gate and a value.
fn gated(
    call: &Call,
    [gate, value, y]: [&str; 3],
    element: fn(f64, f64) -> Element,
) -> Result<Vec<Expected>, OracleError> {
    let n = call.count("n")?;
    let (gates, values) = (call.doubles(gate, 0, n)?, call.doubles(value, 0, n)?);
    let pairs = gates.par_iter().zip(&values);
    let elements = pairs.map(|(g, v)| element(*g, *v)).collect();
    Ok(vec![Expected::floats(call.index(y)?, 0, elements)])
}

/// gate / (1 + exp(-gate)) * up: rtol 1e-5 plus atol 1e-7. Below [`SIGMOID_FLOOR`] the f32 quotient
/// may be -0, which an infinite or huge `up` makes visible.
fn swiglu(gate: f64, up: f64) -> Element {
    let wanted = gate / (1.0 + (-gate).exp()) * up;
    let mut tolerance = 1e-7 + 1e-5 * wanted.abs();
    if gate < SIGMOID_FLOOR && gate.is_finite() {
        if up.is_infinite() {
            return Element::NotFinite;
        }
        tolerance += (gate * gate.exp() * up).abs();
    }
    Element::near(wanted, tolerance)
}

/// g / (1 + exp(-1.702 * g)) * (u + 1) of the clamped gate and up: rtol 1e-5 plus atol 1e-7. What a NaN
/// becomes is open.
fn swiglu_oai(gate: f64, up: f64) -> Element {
    if gate.is_nan() || up.is_nan() {
        return Element::Free;
    }
    let (g, u) = (gate.min(7.0), up.clamp(-7.0, 7.0));
    let wanted = g / (1.0 + (-1.702 * g).exp()) * (u + 1.0);
    let mut tolerance = 1e-7 + 1e-5 * wanted.abs();
    if 1.702 * g < SIGMOID_FLOOR && g.is_finite() {
        tolerance += wanted.abs();
    }
    Element::near(wanted, tolerance)
}

fn swiglu_oai_cases(cases: &mut Cases) {
    let names = ["gate", "up", "y"];
    gated_cases(cases, names, f32::NEG_INFINITY);
    for gate in [
        6.999_999_5,
        7.0,
        7.000_000_5,
        50.0,
        f32::INFINITY,
        -7.0,
        -51.0,
        -52.0,
    ] {
        for up in [-7.0, 7.0, -7.5, 7.5, -1.0, f32::INFINITY, f32::NEG_INFINITY] {
            cases.add(format!("gate {gate:?}, up {up:?}"), |d| {
                gated_fill(d, names, 5, Fill::Equal(gate), Fill::Equal(up));
            });
        }
    }
    cases.add("both beyond their limits", |d| {
        gated_fill(d, names, 300, Fill::Normal(8.0), Fill::Normal(8.0));
    });
    cases.heavy("gpt-oss, 512 tokens x 4 experts x 2880", |d| {
        gated_fill(
            d,
            names,
            512 * 4 * 2880,
            Fill::Normal(3.0),
            Fill::Normal(3.0),
        );
    });
}

/// 0.5 * g * (1 + tanh(z)) * up: rtol 2e-5 plus atol 1e-6 * max(1, |g * up|). Where 1 + tanh(z) may
/// round to 0 in f32, an infinite `up` gives an infinity or NaN.
fn geglu(gate: f64, up: f64) -> Element {
    if gate == f64::NEG_INFINITY {
        return Element::Free;
    }
    let z = 0.797_884_560_8 * (gate + 0.044_715 * gate * gate * gate);
    let z = if z.is_nan() { z } else { z.clamp(-15.0, 15.0) };
    if z < -7.0 && up.is_infinite() {
        return Element::NotFinite;
    }
    let wanted = 0.5 * gate * (1.0 + z.tanh()) * up;
    let product = (gate * up).abs();
    let product = if product.is_finite() { product } else { 0.0 };
    Element::near(wanted, 2e-5 * wanted.abs() + 1e-6 * product.max(1.0))
}

/// x / (1 + exp(-gate)): rtol 1e-5 plus atol 1e-30. Below [`SIGMOID_FLOOR`] the f32 sigmoid may be 0.
fn sigmoid_mul(gate: f64, x: f64) -> Element {
    let wanted = x * sigmoid(gate);
    let mut tolerance = 1e-5 * wanted.abs() + 1e-30;
    if gate < SIGMOID_FLOOR && gate.is_finite() {
        if x.is_infinite() {
            return Element::NotFinite;
        }
        tolerance += (x * gate.exp()).abs();
    }
    Element::near(wanted, tolerance)
}

/// Gates and values of the given kinds, `n` of them.
fn gated_fill(d: &mut Draft, [gate, value, y]: [&str; 3], n: u32, gates: Fill, values: Fill) {
    d.set("n", n);
    let gates = gates.make(&mut d.rng, n as usize);
    let values = values.make(&mut d.rng, n as usize);
    d.read_floats(gate, 0, &gates);
    d.read_floats(value, 0, &values);
    d.write(y);
}

/// `infinity` is the infinity that the contract defines as a gate besides NaN.
fn gated_cases(cases: &mut Cases, names: [&str; 3], infinity: f32) {
    let normal = Fill::Normal(1.0);
    for n in [
        0, 1, 2, 3, 5, 63, 64, 65, 127, 255, 256, 257, 1023, 1025, 9216,
    ] {
        cases.add(format!("n = {n}"), |d| {
            gated_fill(d, names, n, Fill::Normal(2.0), normal)
        });
    }
    for (label, gates, values) in [
        ("gate wide", Fill::Normal(30.0), normal),
        ("gate very wide", Fill::Normal(300.0), normal),
        ("gate tiny", Fill::Normal(1e-20), normal),
        ("gate subnormal", Fill::Normal(1e-40), normal),
        ("gate zero", Fill::Equal(0.0), normal),
        ("gate minus zero", Fill::Equal(-0.0), normal),
        ("gate 88", Fill::Alternating(88.0), normal),
        ("gate 89", Fill::Alternating(89.0), normal),
        ("gate 104", Fill::Alternating(104.0), normal),
        ("gate 1e4", Fill::Alternating(1e4), normal),
        ("gate 1e20", Fill::Sprinkled(-1e20), normal),
        ("gate -5", Fill::Equal(-5.0), normal),
        ("gate -8", Fill::Equal(-8.0), normal),
        ("value zero", normal, Fill::Equal(0.0)),
        ("value huge", normal, Fill::Normal(1e30)),
        (
            "value huge, gate wide",
            Fill::Normal(40.0),
            Fill::Normal(1e30),
        ),
        ("value tiny", normal, Fill::Normal(1e-30)),
        ("all equal", Fill::Equal(1.25), Fill::Equal(-0.75)),
        ("gate NaN", Fill::Sprinkled(f32::NAN), normal),
        ("gate infinite", Fill::Sprinkled(infinity), normal),
        ("value NaN", normal, Fill::Sprinkled(f32::NAN)),
        ("value infinite", normal, Fill::Sprinkled(f32::INFINITY)),
        (
            "value -inf, gate wide",
            Fill::Normal(40.0),
            Fill::Sprinkled(f32::NEG_INFINITY),
        ),
    ] {
        cases.add(label, |d| gated_fill(d, names, 133, gates, values));
    }
    for owner in [names[0], names[1]] {
        cases.add(format!("{} is {owner}", names[2]), |d| {
            gated_fill(d, names, 200, Fill::Normal(2.0), normal);
            d.own(names[2], owner);
        });
    }
    cases.heavy("512 tokens x 9216", |d| {
        gated_fill(d, names, 512 * 9216, Fill::Normal(2.0), normal);
    });
}

fn gated_random(d: &mut Draft, names: [&str; 3]) {
    let n = d.rng.below(300);
    let gates = Fill::Normal(d.rng.pick(&[1.0, 10.0, 100.0]));
    gated_fill(d, names, n, gates, Fill::Normal(1.0));
}

/// accum + sigmoid(gate) * src, within 1e-6 * (|accum| + |g*src|) + 1e-6 * |g*src|; a g below 1e-37 may
/// be 0.
fn accumulate_gated(accum: &[f64], src: &[f64], gate: f64) -> Vec<Element> {
    let g = sigmoid(gate);
    let mut elements = accumulate(accum, src, g, 1e-6, 1e-6);
    if g > 0.0 && g < 1e-37 {
        let pairs = elements.iter_mut().zip(accum).zip(src);
        for ((element, old), src) in pairs {
            if let Element::Near { tolerance, .. } = element {
                *tolerance += (g * src).abs();
            }
            if src.is_infinite() && !old.is_nan() {
                *element = Element::NotFinite;
            }
        }
    }
    elements
}

/// accum[i] += sigmoid(gate[0]) * src[i]
fn sigmoid_scale_acc(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let n = call.count("n")?;
    let gate = call.doubles("gate", 0, 1)?[0];
    let (accum, src) = (call.doubles("accum", 0, n)?, call.doubles("src", 0, n)?);
    let elements = accumulate_gated(&accum, &src, gate);
    Ok(vec![Expected::floats(call.index("accum")?, 0, elements)])
}

/// accum[base + t, i] += sigmoid(gate[t]) * src[t, i]
fn sigmoid_scale_acc_batch(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (width, tokens) = (call.count("hidden_dim")?, call.count("n_tokens")?);
    let start = call.count("accum_token_base")? * width * 4;
    let accum = call.doubles("accum", start, tokens * width)?;
    let src = call.doubles("src", 0, tokens * width)?;
    let gates = call.doubles("gate", 0, tokens)?;
    let rows = gates
        .into_par_iter()
        .enumerate()
        .flat_map_iter(|(t, gate)| {
            let row = t * width..(t + 1) * width;
            accumulate_gated(&accum[row.clone()], &src[row], gate)
        });
    let elements = rows.collect();
    Ok(vec![Expected::floats(
        call.index("accum")?,
        start,
        elements,
    )])
}

/// One token per gate; `base` rows of the accumulator come before theirs.
fn sigmoid_scale_acc_batch_fill(d: &mut Draft, width: u32, base: u32, gates: &[f32], src: Fill) {
    let tokens = gates.len() as u32;
    d.set_all(&[
        ("hidden_dim", width),
        ("n_tokens", tokens),
        ("accum_token_base", base),
    ]);
    let src = src.make(&mut d.rng, (tokens * width) as usize);
    let accum = d.rng.normals((tokens * width) as usize, 2.0);
    d.read_floats("src", 0, &src);
    d.read_floats("gate", 0, gates);
    d.update("accum", (base * width) as usize * 4, &accum);
}

fn sigmoid_scale_acc_batch_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    for (tokens, width, base) in [
        (1, 4, 0),
        (0, 8, 0),
        (0, 8, 3),
        (3, 0, 1),
        (2, 8, 1),
        (5, 60, 2),
        (3, 64, 0),
        (4, 252, 7),
        (7, 256, 1),
        (2, 260, 5),
        (33, 12, 1),
        (65, 4, 64),
        (3, 1028, 1),
        (2, 2048, 3),
    ] {
        cases.add(format!("{tokens} tokens of {width} from row {base}"), |d| {
            let gates = d.rng.normals(tokens, 2.0);
            sigmoid_scale_acc_batch_fill(d, width, base, &gates, normal);
        });
    }
    let gates = [
        0.0,
        -0.0,
        5.0,
        -5.0,
        -80.0,
        -88.0,
        -89.0,
        -100.0,
        -1e4,
        1e4,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    for (label, src) in [
        ("normal", normal),
        ("zeros", Fill::Equal(0.0)),
        ("huge", Fill::Normal(1e30)),
        ("tiny", Fill::Normal(1e-35)),
        ("NaN", Fill::Sprinkled(f32::NAN)),
        ("infinity", Fill::Sprinkled(f32::INFINITY)),
    ] {
        cases.add(format!("gates of every kind, src {label}"), |d| {
            sigmoid_scale_acc_batch_fill(d, 76, 2, &gates, src);
        });
    }
    cases.heavy("512 tokens of 2048 from row 512", |d| {
        let gates = d.rng.normals(512, 2.0);
        sigmoid_scale_acc_batch_fill(d, 2048, 512, &gates, normal);
    });
}

fn sigmoid_scale_acc_fill(d: &mut Draft, n: u32, gate: f32, src: Fill) {
    d.set("n", n);
    let src = src.make(&mut d.rng, n as usize);
    let accum = d.rng.normals(n as usize, 2.0);
    d.read_floats("src", 0, &src);
    d.read_floats("gate", 0, &[gate]);
    d.update("accum", 0, &accum);
}

fn sigmoid_scale_acc_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    for n in [0, 4, 8, 60, 64, 252, 256, 260, 1020, 1024, 1028, 2048] {
        cases.add(format!("n = {n}"), |d| {
            sigmoid_scale_acc_fill(d, n, 0.8, normal)
        });
    }
    for gate in [
        0.0,
        -0.0,
        5.0,
        -5.0,
        17.0,
        -17.0,
        -80.0,
        -88.0,
        -89.0,
        -100.0,
        -1e4,
        1e4,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ] {
        cases.add(format!("gate {gate:?}"), |d| {
            sigmoid_scale_acc_fill(d, 132, gate, normal)
        });
    }
    for (label, src) in [
        ("zeros", Fill::Equal(0.0)),
        ("huge", Fill::Normal(1e30)),
        ("tiny", Fill::Normal(1e-35)),
        ("NaN", Fill::Sprinkled(f32::NAN)),
        ("infinity", Fill::Sprinkled(f32::INFINITY)),
    ] {
        for gate in [0.3, -90.0] {
            cases.add(format!("src: {label}, gate {gate}"), |d| {
                sigmoid_scale_acc_fill(d, 76, gate, src);
            });
        }
    }
    cases.heavy("n = 4194304", |d| {
        sigmoid_scale_acc_fill(d, 1 << 22, -0.4, normal);
    });
}
