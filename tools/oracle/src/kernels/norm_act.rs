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
        name: "norm_rope",
        reference: norm_rope,
        cases: norm_rope_cases,
        random: norm_rope_random,
    },
    Entry {
        name: "swiglu",
        reference: |call| gated(call, ["gate", "up", "y"], swiglu),
        cases: |cases| gated_cases(cases, ["gate", "up", "y"], f32::NEG_INFINITY),
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

/// y[t,i] = weight[i] * (x[t,i] * r): rtol 1e-5, atol 1e-6 * the largest |y| of the row
fn rms_norm_mul(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (rows, n) = (call.count("n_rows")?, call.count("n")?);
    let eps = call.float("eps")?;
    let x = call.doubles("x", 0, rows * n)?;
    let weight = call.doubles("weight", 0, n)?;
    let elements = x.par_chunks(n).flat_map_iter(|row| {
        let (r, representable) = inverse_rms(row, eps);
        let y = row.iter().zip(&weight).map(move |(x, w)| w * (x * r));
        let y: Vec<f64> = y.collect();
        let largest = y.iter().fold(0.0_f64, |a, y| a.max(y.abs()));
        y.into_iter().map(move |y| {
            if representable {
                Element::near(y, 1e-5 * y.abs() + 1e-6 * largest)
            } else {
                Element::Free
            }
        })
    });
    let elements = elements.collect();
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

/// Tolerances of the contract: rotated pairs within (|u_lo| + |u_hi|) * |a| * (2e-5 + c * theta *
/// 2^-23), the rest rtol 2e-5.
fn norm_rope(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (heads, dim) = (call.count("n_heads")?, call.count("head_dim")?);
    let data = call.doubles("data", 0, heads * dim)?;
    let weight = call.doubles("weight", 0, dim)?;
    let eps = call.float("eps_bits")?;
    let frequencies = Frequencies::of(call, f64::from(call.word("position")?))?;
    let elements = data.par_chunks(dim).flat_map_iter(|head| {
        let (r, representable) = inverse_rms(head, eps);
        let u: Vec<f64> = head.iter().zip(&weight).map(|(x, w)| w * (x * r)).collect();
        let tail = |u: f64| Element::near(u, 2e-5 * u.abs());
        let elements = rotate(&u, &frequencies, 2e-5, tail);
        elements
            .into_iter()
            .map(move |e| if representable { e } else { Element::Free })
    });
    let elements = elements.collect();
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

/// accum[i] += sigmoid(gate[0]) * src[i], within 1e-6 * (|accum| + |g*src|) + 1e-6 * |g*src|; a g below
/// 1e-37 may be 0.
fn sigmoid_scale_acc(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let n = call.count("n")?;
    let g = sigmoid(call.doubles("gate", 0, 1)?[0]);
    let (accum, src) = (call.doubles("accum", 0, n)?, call.doubles("src", 0, n)?);
    let mut elements = accumulate(&accum, &src, g, 1e-6, 1e-6);
    if g > 0.0 && g < 1e-37 {
        let pairs = elements.iter_mut().zip(&accum).zip(&src);
        for ((element, old), src) in pairs {
            if let Element::Near { tolerance, .. } = element {
                *tolerance += (g * src).abs();
            }
            if src.is_infinite() && !old.is_nan() {
                *element = Element::NotFinite;
            }
        }
    }
    Ok(vec![Expected::floats(call.index("accum")?, 0, elements)])
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
