//! The output projection that merges the partial results of a split attention first.

use super::Entry;
use super::gemm::{Row, Vector, map_rows, output_rows, random_matrix, special_factor};
use crate::case::{Cases, Draft};
use crate::quant::Format;
use crate::{Call, Expected, OracleError};

const FORMAT: Format = Format::Q4K;

pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: "dmmv_q4k_o_proj_merge",
    reference: o_proj_merge,
    cases: o_proj_merge_cases,
    random: |d| {
        let rng = &mut d.rng;
        let (heads, dim) = rng.pick(&[(1, 256), (2, 128), (4, 64), (8, 32), (3, 256), (16, 48)]);
        let shape = Shape {
            m: rng.below(20),
            heads,
            dim,
            chunks: rng.between(1, 6),
            a_offset: 4 * rng.below(5),
            y_offset: 4 * rng.below(5),
            acc_mode: rng.below(3),
            sink_offset: rng.below(9),
            sinks: rng.pick(&[Sinks::None, Sinks::All(1.0), Sinks::Some]),
            empty: rng.pick(&[Empty::None, Empty::Some, Empty::Heads]),
            spread: rng.pick(&[1.0, 30.0]),
            edges: rng.flip(),
        };
        o_proj_merge_fill(d, shape);
    },
}];

/// Which heads have a sink.
#[derive(Clone, Copy)]
enum Sinks {
    None,
    /// all, bell-shaped with this width
    All(f32),
    /// every other head
    Some,
    /// all, with this value
    Equal(f32),
}

/// Which slices are empty.
#[derive(Clone, Copy)]
enum Empty {
    None,
    /// the last slice, and some at random
    Some,
    /// like `Some`, and every slice of every third head
    Heads,
}

#[derive(Clone, Copy)]
struct Shape {
    m: u32,
    heads: u32,
    dim: u32,
    chunks: u32,
    a_offset: u32,
    y_offset: u32,
    acc_mode: u32,
    sink_offset: u32,
    sinks: Sinks,
    empty: Empty,
    /// width of the maxima of the slices
    spread: f32,
    edges: bool,
}

/// a = merged attention output of every head, y[r] (+)= sum over c of W[r,c] * a[c]
fn o_proj_merge(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (m, k) = (call.count("m")?, call.count("k")?);
    let (heads, dim) = (call.count("n_heads")?, call.count("head_dim")?);
    let chunks = call.count("n_i_chunks")?;
    let slices = heads * chunks;
    let o = call.doubles("partial", 0, slices * dim)?;
    let pairs = call.doubles("partial", slices * dim * 4, slices * 2)?;
    let sinks = call.doubles("sinks", call.count("sink_offset")? * 4, heads)?;
    let (mut a, mut magnitudes) = (Vec::with_capacity(k), Vec::with_capacity(k));
    for (h, sink) in sinks.into_iter().enumerate() {
        let used: Vec<usize> = (h * chunks..(h + 1) * chunks)
            .filter(|j| pairs[2 * j + 1] > 0.0)
            .collect();
        let maxima = used.iter().map(|j| pairs[2 * j]);
        // f64::max leaves out a NaN, which is no sink.
        let largest = maxima.chain([sink]).fold(f64::NEG_INFINITY, f64::max);
        let weight = |j: &usize| (pairs[2 * j] - largest).exp();
        let mut total: f64 = used.iter().map(|j| weight(j) * pairs[2 * j + 1]).sum();
        if !sink.is_nan() {
            total += (sink - largest).exp();
        }
        for e in 0..dim {
            let (mut value, mut magnitude) = (0.0, 0.0);
            for j in &used {
                value += weight(j) * o[j * dim + e] / total;
                magnitude += weight(j) * o[j * dim + e].abs() / total;
            }
            a.push(value);
            magnitudes.push(magnitude);
        }
    }
    let a = Vector {
        values: a,
        magnitudes,
    };
    let y = call.count("y_offset")?;
    let old = if call.count("acc_mode")? == 0 {
        Vec::new()
    } else {
        call.doubles("y", y, m)?
    };
    let start = call.count("a_offset")?;
    let weights = call.slice("weights", start, m * FORMAT.row_bytes(k))?;
    let sums = map_rows(weights, m, |row| {
        let mut sum = Row::new(FORMAT, row).dot(&a);
        // The merge counts as much as the product.
        sum.error *= 2.0;
        sum
    });
    let sums = sums.into_iter().enumerate();
    let row = sums.map(|(r, sum)| old.get(r).map_or(sum, |old| sum.onto(*old)).element(true));
    Ok(vec![output_rows(
        call.index("y")?,
        y,
        0,
        vec![row.collect()],
    )])
}

fn o_proj_merge_fill(d: &mut Draft, shape: Shape) {
    let Shape {
        m,
        heads,
        dim,
        chunks,
        ..
    } = shape;
    let k = heads * dim;
    d.set_all(&[("m", m), ("k", k), ("n_heads", heads), ("head_dim", dim)]);
    d.set_all(&[("a_offset", shape.a_offset), ("y_offset", shape.y_offset)]);
    d.set_all(&[("acc_mode", shape.acc_mode), ("n_i_chunks", chunks)]);
    // There is no x, whatever its offset says.
    d.set_all(&[("sink_offset", shape.sink_offset), ("x_offset", 12)]);
    let weights = random_matrix(d, FORMAT, m, k, shape.edges);
    d.read("weights", shape.a_offset as usize, &weights);
    let (mut o, mut pairs) = (Vec::new(), Vec::new());
    for slice in 0..heads * chunks {
        let (h, j) = (slice / chunks, slice % chunks);
        let empty = match shape.empty {
            Empty::None => false,
            Empty::Heads if h % 3 == 2 => true,
            _ => (j + 1 == chunks && chunks > 1) || d.rng.below(5) == 0,
        };
        if empty {
            // What the attention pass writes for a slice without keys.
            o.extend(vec![0.0; dim as usize]);
            pairs.extend([-1e30, 0.0]);
        } else {
            let sum = 1.0 + 20.0 * d.rng.unit() as f32;
            o.extend(d.rng.normals(dim as usize, sum));
            pairs.extend([d.rng.normal() * shape.spread, sum]);
        }
    }
    o.extend(pairs);
    d.read_floats("partial", 0, &o);
    let sink = |d: &mut Draft, h: u32| match shape.sinks {
        Sinks::All(width) => d.rng.normal() * width,
        Sinks::Some if h % 2 == 1 => d.rng.normal(),
        Sinks::Equal(value) => value,
        Sinks::None | Sinks::Some => f32::NAN,
    };
    let sinks: Vec<f32> = (0..heads).map(|h| sink(d, h)).collect();
    d.read_floats("sinks", shape.sink_offset as usize * 4, &sinks);
    let old = if shape.acc_mode == 0 {
        Vec::new()
    } else {
        d.rng.normals(m as usize, 3.0)
    };
    d.update("y", shape.y_offset as usize, &old);
}

fn o_proj_merge_cases(cases: &mut Cases) {
    let plain = Shape {
        m: 1,
        heads: 1,
        dim: 256,
        chunks: 1,
        a_offset: 0,
        y_offset: 0,
        acc_mode: 0,
        sink_offset: 0,
        sinks: Sinks::None,
        empty: Empty::None,
        spread: 2.0,
        edges: false,
    };
    let some = Shape {
        m: 9,
        heads: 8,
        dim: 64,
        chunks: 4,
        acc_mode: 1,
        ..plain
    };
    let mut add = |label: &str, shape: Shape| cases.add(label, |d| o_proj_merge_fill(d, shape));
    add("smallest", plain);
    add("no rows", Shape { m: 0, ..some });
    for m in [2, 3, 7, 17, 31, 33, 65, 129] {
        add(
            &format!("{m} rows"),
            Shape {
                m,
                heads: 4,
                ..some
            },
        );
    }
    for (heads, dim) in [
        (1, 4096),
        (2, 128),
        (3, 256),
        (16, 80),
        (32, 128),
        (64, 64),
        (64, 4),
        (5, 256),
    ] {
        add(
            &format!("{heads} heads of {dim}"),
            Shape { heads, dim, ..some },
        );
    }
    for chunks in [1, 2, 3, 5, 8, 16] {
        add(&format!("{chunks} slices"), Shape { chunks, ..some });
    }
    add(
        "32 heads, 16 slices",
        Shape {
            heads: 32,
            dim: 8,
            chunks: 16,
            ..some
        },
    );
    for acc_mode in [0, 1, 2, u32::MAX] {
        add(&format!("mode {acc_mode}"), Shape { acc_mode, ..some });
    }
    for (label, sinks) in [
        ("all heads", Sinks::All(1.0)),
        ("every other head", Sinks::Some),
        ("far above the maxima", Sinks::Equal(90.0)),
        ("far below the maxima", Sinks::Equal(-200.0)),
        ("zero", Sinks::Equal(0.0)),
        ("negative infinity", Sinks::Equal(f32::NEG_INFINITY)),
    ] {
        add(&format!("sinks: {label}"), Shape { sinks, ..some });
        let sinks = Shape {
            sinks,
            empty: Empty::Heads,
            sink_offset: 24,
            ..some
        };
        add(&format!("sinks: {label}, empty slices"), sinks);
    }
    add(
        "empty slices",
        Shape {
            empty: Empty::Some,
            ..some
        },
    );
    add(
        "heads without keys",
        Shape {
            empty: Empty::Heads,
            heads: 4,
            ..some
        },
    );
    add(
        "sink offset",
        Shape {
            sink_offset: 3,
            sinks: Sinks::All(1.0),
            ..some
        },
    );
    add(
        "offsets",
        Shape {
            a_offset: 12,
            y_offset: 28,
            ..some
        },
    );
    add(
        "smallest offsets",
        Shape {
            a_offset: 4,
            y_offset: 4,
            acc_mode: 0,
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
    for spread in [0.0, 20.0, 100.0, 1e4] {
        add(
            &format!("maxima of width {spread:e}"),
            Shape { spread, ..some },
        );
    }
    for (label, place, value) in [
        ("NaN in an output of a slice", 64 * 3 + 5, f32::NAN),
        ("infinity in an output of a slice", 5, f32::INFINITY),
    ] {
        cases.add(label, |d| {
            o_proj_merge_fill(d, Shape { chunks: 1, ..some });
            d.patch("partial", place * 4, &value.to_le_bytes());
        });
    }
    cases.add("NaN in a scale of row 3", |d| {
        o_proj_merge_fill(d, some);
        if let Some((at, bytes)) = special_factor(FORMAT, 3, 512, f32::NAN) {
            d.patch("weights", at, &bytes);
        }
    });
    for (m, heads, chunks) in [(48, 16, 8), (2048, 32, 4), (4096, 32, 8)] {
        let shape = Shape {
            m,
            heads,
            dim: 128,
            chunks,
            sinks: Sinks::Some,
            empty: Empty::Some,
            ..some
        };
        let label = format!("{m} rows, {heads} heads of 128, {chunks} slices, as in models");
        if m > 100 {
            cases.heavy(label, |d| o_proj_merge_fill(d, shape));
        } else {
            cases.add(label, |d| o_proj_merge_fill(d, shape));
        }
    }
}
