//! Rotary embeddings.

use rayon::prelude::*;

use super::Entry;
use crate::case::{Cases, Draft, Fill};
use crate::{Call, Element, Expected, OracleError};

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "rope_fused",
        reference: |call| rope(call, 1, "position"),
        cases: rope_fused_cases,
        random: |d| rope_random(d, None),
    },
    Entry {
        name: "rope_batched",
        reference: |call| rope(call, call.count("n_tokens")?, "position_base"),
        cases: rope_batched_cases,
        random: |d| {
            let tokens = d.rng.below(4);
            rope_random(d, Some(tokens));
        },
    },
];

/// The angles of one token, and how exactly f32 can know them.
pub(super) struct Frequencies {
    /// position * f_i for each pair
    angles: Vec<f64>,
    /// factor on sine and cosine
    scale: f64,
    /// relative error of an angle, in units of 2^-23: 4 with a table, 16 where f_i is computed
    units: f64,
}

impl Frequencies {
    /// Those of a call with rope_dim, freq_base_bits, attn_scale_bits and the buffer inv_freq, for a
    /// token at `position`.
    pub(super) fn of(call: &Call, position: f64) -> Result<Self, OracleError> {
        let rope = call.count("rope_dim")?;
        let position = f64::from(position as f32);
        let table = call.word("freq_base_bits")? == 0;
        let frequencies = if table {
            call.doubles("inv_freq", 0, rope / 2)?
        } else {
            let base = call.float("freq_base_bits")?;
            let power = |i: usize| base.powf(-2.0 * i as f64 / rope as f64);
            (0..rope / 2).map(power).collect()
        };
        let scale = match call.word("attn_scale_bits")? {
            0 => 1.0,
            bits => f64::from(f32::from_bits(bits)),
        };
        Ok(Self {
            angles: frequencies.iter().map(|f| position * f).collect(),
            scale,
            units: if table { 4.0 } else { 16.0 },
        })
    }
}

/// The rotated head `u`: pairs (i, i + H) within (|lo| + |hi|) * |a| * (`floor` + c * theta * 2^-23),
/// the elements behind them as `tail` says.
pub(super) fn rotate(
    u: &[f64],
    frequencies: &Frequencies,
    floor: f64,
    tail: impl Fn(f64) -> Element,
) -> Vec<Element> {
    let half = frequencies.angles.len();
    let mut elements: Vec<Element> = u.iter().map(|u| tail(*u)).collect();
    for (i, theta) in frequencies.angles.iter().enumerate() {
        let (low, high) = (u[i], u[i + half]);
        let (sin, cos) = theta.sin_cos();
        let (c, s) = (frequencies.scale * cos, frequencies.scale * sin);
        let angle_error = frequencies.units * theta.abs() * 2.0_f64.powi(-23);
        let magnitude = (low.abs() + high.abs()) * frequencies.scale.abs();
        let tolerance = magnitude * (floor + angle_error);
        let infinite = !magnitude.is_finite() && !low.is_nan() && !high.is_nan();
        let near = |wanted: f64| {
            if infinite {
                // The sign of an infinity depends on the sign of a sine or cosine near 0.
                Element::NotFinite
            } else {
                Element::near_unless_overflow(wanted, tolerance, magnitude)
            }
        };
        elements[i] = near(low * c - high * s);
        elements[i + half] = near(low * s + high * c);
    }
    elements
}

/// The pairs rotated, the rest of each head copied bit for bit; token t is at `position` + t
fn rope(call: &Call, tokens: usize, position: &str) -> Result<Vec<Expected>, OracleError> {
    let (heads, stride) = (call.count("n_heads")?, call.count("stride")?);
    let row = heads * stride;
    let x = call.integers("x", 0, tokens * row)?;
    let first = f64::from(call.word(position)?);
    let mut elements = Vec::with_capacity(x.len());
    for t in 0..tokens {
        let frequencies = Frequencies::of(call, first + t as f64)?;
        let heads = x[t * row..][..row].par_chunks(stride);
        elements.par_extend(heads.flat_map_iter(|head| {
            let u: Vec<f64> = head.iter().map(|&b| f64::from(f32::from_bits(b))).collect();
            let rotated = 2 * frequencies.angles.len();
            let mut elements = rotate(&u, &frequencies, 1e-5, |_| Element::Free);
            for (element, bits) in elements.iter_mut().zip(head).skip(rotated) {
                *element = Element::Bits(*bits);
            }
            elements
        }));
    }
    Ok(vec![Expected::floats(call.index("y")?, 0, elements)])
}

/// Fills inv_freq with the plain table of base 1e6 if `base` is 0, else leaves it unbound.
pub(super) fn fill_table(d: &mut Draft, rope: u32, base: f32) {
    if base.to_bits() != 0 {
        return;
    }
    let frequency = |i: u32| 1e6_f64.powf(-2.0 * f64::from(i) / f64::from(rope)) as f32;
    let table: Vec<f32> = (0..rope / 2).map(frequency).collect();
    d.read_floats("inv_freq", 0, &table);
}

/// What a case is made of.
#[derive(Clone, Copy)]
struct Shape {
    /// None for the kernel of one token
    tokens: Option<u32>,
    heads: u32,
    stride: u32,
    rope: u32,
    /// of the first token
    position: u32,
    /// 0 for the table
    base: f32,
    /// 0 for 1.0
    scale: f32,
    x: Fill,
}

fn rope_fill(d: &mut Draft, shape: Shape) {
    let Shape {
        heads,
        stride,
        rope,
        ..
    } = shape;
    d.set_all(&[("stride", stride), ("rope_dim", rope), ("n_heads", heads)]);
    match shape.tokens {
        None => d.set("position", shape.position),
        Some(tokens) => d.set_all(&[("position_base", shape.position), ("n_tokens", tokens)]),
    }
    d.set_float("freq_base_bits", shape.base);
    d.set_float("attn_scale_bits", shape.scale);
    let count = shape.tokens.unwrap_or(1) * heads * stride;
    let x = shape.x.make(&mut d.rng, count as usize);
    d.read_floats("x", 0, &x);
    d.write("y");
    fill_table(d, rope, shape.base);
}

/// Heads that both kernels are verified with.
const PLAIN: Shape = Shape {
    tokens: None,
    heads: 2,
    stride: 128,
    rope: 128,
    position: 3,
    base: 0.0,
    scale: 0.0,
    x: Fill::Normal(1.0),
};

/// The two sources of frequencies: the table, and a base.
const PATHS: [(&str, f32); 2] = [("table", 0.0), ("base", 1e6)];

/// Cases of both kernels; `plain` has the tokens.
fn rope_cases(cases: &mut Cases, plain: Shape) {
    let mut add = |label: String, shape: Shape| cases.add(label, |d| rope_fill(d, shape));
    for (heads, stride, rope) in [
        (1, 2, 2),
        (1, 1, 0),
        (2, 3, 2),
        (3, 7, 4),
        (5, 9, 0),
        (2, 64, 64),
        (3, 65, 10),
        (4, 96, 62),
        (16, 128, 128),
        (2, 131, 66),
        (16, 256, 64),
        (2, 256, 256),
        (64, 64, 64),
        (1, 512, 512),
    ] {
        for (path, base) in PATHS {
            add(
                format!("{path}: {heads} heads of {stride}, {rope} rotated"),
                Shape {
                    heads,
                    stride,
                    rope,
                    base,
                    ..plain
                },
            );
        }
    }
    for position in [0, 1, 127, 4095, 40_000, 262_143] {
        for (path, base) in PATHS {
            add(
                format!("{path}: position {position}"),
                Shape {
                    position,
                    base,
                    ..plain
                },
            );
        }
    }
    for (label, x) in [
        ("zeros", Fill::Equal(0.0)),
        ("all equal", Fill::Equal(2.0)),
        ("huge", Fill::Normal(1e30)),
        ("tiny", Fill::Normal(1e-35)),
        ("NaN", Fill::Sprinkled(f32::NAN)),
        ("infinity", Fill::Sprinkled(f32::INFINITY)),
    ] {
        add(
            format!("x: {label}"),
            Shape {
                rope: 64,
                x,
                ..plain
            },
        );
    }
    add(
        "scale 1.25, table".to_owned(),
        Shape {
            rope: 32,
            scale: 1.25,
            ..plain
        },
    );
    add(
        "scale -0.5, base".to_owned(),
        Shape {
            rope: 32,
            scale: -0.5,
            base: 500.0,
            ..plain
        },
    );
    add(
        "position 0, scale 0.75".to_owned(),
        Shape {
            position: 0,
            scale: 0.75,
            ..plain
        },
    );
    cases.add("negative and zero frequencies", |d| {
        rope_fill(
            d,
            Shape {
                rope: 8,
                position: 9,
                ..plain
            },
        );
        d.patch(
            "inv_freq",
            0,
            &crate::case::float_bytes(&[-0.5, 0.0, -0.0, 2.0]),
        );
    });
    for (path, base) in PATHS {
        cases.add(format!("{path}: in place"), |d| {
            rope_fill(
                d,
                Shape {
                    stride: 96,
                    rope: 64,
                    base,
                    ..plain
                },
            );
            d.own("y", "x");
        });
    }
}

fn rope_fused_cases(cases: &mut Cases) {
    rope_cases(cases, PLAIN);
    cases.add("no heads", |d| rope_fill(d, Shape { heads: 0, ..PLAIN }));
    cases.heavy("4096 heads of 256", |d| {
        rope_fill(
            d,
            Shape {
                heads: 4096,
                stride: 256,
                rope: 64,
                base: 1e7,
                ..PLAIN
            },
        );
    });
}

fn rope_batched_cases(cases: &mut Cases) {
    let tokens = |tokens: u32| Shape {
        tokens: Some(tokens),
        ..PLAIN
    };
    rope_cases(cases, tokens(3));
    for count in [0, 1, 2, 17, 65] {
        for (path, base) in PATHS {
            cases.add(format!("{path}: {count} tokens"), |d| {
                rope_fill(
                    d,
                    Shape {
                        heads: 3,
                        stride: 24,
                        rope: 16,
                        position: 4090,
                        base,
                        ..tokens(count)
                    },
                );
            });
        }
    }
    for (heads, stride, rope) in [
        (1, 8, 8),
        (5, 12, 8),
        (33, 16, 8),
        (9, 256, 64),
        (3, 2056, 1040),
    ] {
        for (path, base) in PATHS {
            cases.add(
                format!("{path}: wide, {heads} heads of {stride}, {rope} rotated"),
                |d| {
                    rope_fill(
                        d,
                        Shape {
                            heads,
                            stride,
                            rope,
                            base,
                            position: 77,
                            ..tokens(2)
                        },
                    );
                },
            );
        }
    }
    for (label, heads, stride, rope, base) in [
        ("Qwen3.6, queries", 16, 256, 64, 0.0),
        ("Qwen3.6, keys", 2, 256, 64, 0.0),
        ("Gemma, global", 8, 512, 512, 1e6),
        ("gpt-oss, queries", 64, 64, 64, 0.0),
    ] {
        cases.heavy(format!("{label}, 512 tokens"), |d| {
            rope_fill(
                d,
                Shape {
                    heads,
                    stride,
                    rope,
                    base,
                    position: 8192,
                    ..tokens(512)
                },
            );
        });
    }
}

fn rope_random(d: &mut Draft, tokens: Option<u32>) {
    let stride = d.rng.between(1, 140);
    let shape = Shape {
        tokens,
        heads: d.rng.between(u32::from(tokens.is_some()), 4),
        stride,
        rope: 2 * d.rng.below(stride / 2 + 1),
        position: d.rng.below(5000),
        base: d.rng.pick(&[0.0, 1e4, 1e6]),
        scale: d.rng.pick(&[0.0, 1.0, 1.3]),
        x: Fill::Normal(1.0),
    };
    rope_fill(d, shape);
}
