//! Kernels of later revisions: what they differ in from the families that they belong to.

use super::Entry;
use super::attention::{self, PLAIN, SCORES, SINKS, VALUES, flash_attn_batched_fill};
use super::dmmv::{self, Dense, Sixth};
use super::dmmv_fused::{self, Gated};
use super::dmmv_moe_cols::Cols;
use super::gemm::{Gate, gelu};
use super::mul_mm::{self, Product};
use super::norm_act::{
    Norm, Projections, RAGGED, largest, norm_project, norm_project_cases, norm_project_random,
};
use crate::case::{Cases, Draft, Fill};
use crate::quant::Format;
use crate::{Call, Element, Expected, OracleError};

use rayon::prelude::*;

pub(super) const ENTRIES: &[Entry] = &[
    entry!("dmmv_q4k_q8_1", Q4K_Q8_1),
    entry!("dmmv_q8_0_kpar_batch", Q8_0_KPAR_BATCH),
    entry!("dmmv_q8_0_fused_gate_up_geglu", Q8_0_GEGLU),
    entry!("dmmv_q6k_moe_cols", Q6K_COLS),
    entry!("mul_mm_q4k_gate_up_geglu", MM_GEGLU),
    Entry {
        name: "rms_norm_scale_dmmv_f32",
        reference: |call| norm_project(call, &SCALED_ROUTER),
        cases: |cases| norm_project_cases(cases, &SCALED_ROUTER, 128),
        random: |d| norm_project_random(d, &SCALED_ROUTER),
    },
    Entry {
        name: "post_norm_residual_rms_norm",
        reference: sandwich,
        cases: sandwich_cases,
        random: |d| {
            let (tokens, n) = (d.rng.below(6), d.rng.between(1, 200));
            let scale = d.rng.pick(&[1.0, 0.5, -2.0, 0.0]);
            sandwich_fill(d, tokens, n, Sandwich { scale, ..SANDWICH });
        },
    },
    Entry {
        name: "flash_attn_batched_gqa",
        reference: attention::flash_attn_batched,
        cases: gqa_cases,
        random: |d| {
            let queries = d.rng.below(4);
            let shape = attention::Shape {
                page: d.rng.between(1, 20),
                scale: d.rng.pick(&[0.0, 0.1]),
                sink_offset: d.rng.below(9),
                sinks: d.rng.pick(&[Fill::Equal(f32::NAN), Fill::Normal(1.0)]),
                ..gqa_shape(1, queries + d.rng.below(20))
            };
            flash_attn_batched_fill(d, queries, shape);
        },
    },
    Entry {
        name: "embed_gather",
        reference: embed,
        cases: embed_cases,
        random: |d| {
            let qtype = d.rng.below(TABLES.len() as u32);
            let last = d.rng.below(9);
            let unit = TABLES[qtype as usize].elements().max(7) as u32;
            let table = Table {
                qtype,
                cols: unit * d.rng.between(1, 3),
                last,
                index_offset: d.rng.below(4),
                out_offset: d.rng.below(4),
                edges: d.rng.flip(),
            };
            let count = d.rng.below(6);
            let ids: Vec<u32> = (0..count).map(|_| d.rng.below(last + 3)).collect();
            embed_fill(d, table, &ids);
        },
    },
];

const Q4K_Q8_1: Dense = Dense {
    weights: Format::Q4K,
    a_align: 4,
    ..dmmv::Q8_0_Q8_1
};
const Q8_0_KPAR_BATCH: Dense = Dense {
    sixth: Sixth::Mode,
    ..dmmv::Q8_0
};
const Q8_0_GEGLU: Gated = Gated {
    gate: Gate {
        activation: gelu,
        ..dmmv_fused::SILU
    },
    ..dmmv_fused::Q8_0_SWIGLU
};
const Q6K_COLS: Cols = Cols {
    weights: Format::Q6K,
    a_align: 2,
    x_align: 4,
};
const MM_GEGLU: Product = Product {
    gate: Some(Gate {
        activation: gelu,
        ..mul_mm::SILU
    }),
    ..mul_mm::SWIGLU
};
const SCALED_ROUTER: Projections = Projections {
    weight: "in_scale",
    normalised: None,
    matrices: &[("router_weight", "router_logits")],
};

/// h = hidden + post_weights * residual / rms, which is stored times hidden_scale, and norm_weights * h /
/// rms. The stored stream is within 2e-6 of the magnitudes of the two terms plus 1e-6, norm_out within
/// 2e-5 plus 1e-6 of the largest value of the row.
fn sandwich(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (tokens, n) = (call.count("n_tokens")?, call.count("n")?);
    let (eps, scale) = (call.float("eps")?, call.float("hidden_scale")?);
    let hidden = call.doubles("hidden", 0, tokens * n)?;
    let residual = call.doubles("residual", 0, tokens * n)?;
    let post_weights = call.doubles("post_weights", 0, n)?;
    let weights = call.doubles("norm_weights", 0, n)?;
    let rows = hidden.par_chunks(n).zip(residual.par_chunks(n));
    let rows = rows.map(|(hidden, residual)| {
        let branch = Norm::of(residual, &post_weights, eps);
        if !branch.representable {
            return (vec![Element::Free; n], vec![Element::Free; n]);
        }
        let pairs = || hidden.iter().zip(&branch.y);
        let stored = pairs().map(|(h, y)| {
            let magnitude = h.abs() + y.abs();
            let tolerance = 2e-6 * magnitude * scale.abs() + 1e-6;
            let largest = magnitude * scale.abs().max(1.0);
            Element::near_unless_overflow((h + y) * scale, tolerance, largest)
        });
        let sums: Vec<f64> = pairs().map(|(h, y)| h + y).collect();
        let norm = Norm::of(&sums, &weights, eps);
        let absolute = 1e-6 * largest(&norm.y);
        let normed = norm.y.iter().map(|y| {
            if norm.representable {
                Element::near(*y, 2e-5 * y.abs() + absolute)
            } else {
                Element::Free
            }
        });
        (stored.collect(), normed.collect())
    });
    let (stored, normed): (Vec<Vec<_>>, Vec<Vec<_>>) = rows.unzip();
    Ok(vec![
        Expected::floats(call.index("hidden")?, 0, stored.concat()),
        Expected::floats(call.index("norm_out")?, 0, normed.concat()),
    ])
}

/// What the rows of a case of post_norm_residual_rms_norm are made of.
#[derive(Clone, Copy)]
struct Sandwich {
    scale: f32,
    eps: f32,
    hidden: Fill,
    residual: Fill,
}

/// Ordinary rows.
const SANDWICH: Sandwich = Sandwich {
    scale: 1.0,
    eps: 1e-6,
    hidden: Fill::Normal(1.0),
    residual: Fill::Normal(0.5),
};

fn sandwich_fill(d: &mut Draft, tokens: u32, n: u32, rows: Sandwich) {
    d.set_all(&[("n", n), ("n_tokens", tokens)]);
    d.set_float("eps", rows.eps);
    d.set_float("hidden_scale", rows.scale);
    let count = (tokens * n) as usize;
    let hidden = rows.hidden.make(&mut d.rng, count);
    d.update("hidden", 0, &hidden);
    let residual = rows.residual.make(&mut d.rng, count);
    d.read_floats("residual", 0, &residual);
    for weights in ["post_weights", "norm_weights"] {
        let values = d.rng.normals(n as usize, 1.5);
        d.read_floats(weights, 0, &values);
    }
    d.write("norm_out");
}

fn sandwich_cases(cases: &mut Cases) {
    for (tokens, n) in RAGGED {
        cases.add(format!("{tokens} tokens of {n}"), |d| {
            sandwich_fill(d, tokens, n, SANDWICH);
        });
    }
    for (tokens, n) in [(1, 5376), (2, 6656)] {
        cases.add(format!("{tokens} tokens of {n}, scale 0.25"), |d| {
            let rows = Sandwich {
                scale: 0.25,
                ..SANDWICH
            };
            sandwich_fill(d, tokens, n, rows);
        });
    }
    let mut add = |label: &str, rows: Sandwich| {
        cases.add(label, |d| sandwich_fill(d, 3, 101, rows));
    };
    for scale in [0.37, -2.5, 0.0, 1.0 + f32::EPSILON, 1e-3, 1e4] {
        add(&format!("scale {scale:e}"), Sandwich { scale, ..SANDWICH });
    }
    for (label, eps, hidden, residual) in [
        ("zeros", 1e-6, Fill::Equal(0.0), Fill::Equal(0.0)),
        ("zeros, eps 0", 0.0, Fill::Equal(0.0), Fill::Equal(0.0)),
        ("branch zero", 1e-6, Fill::Normal(1.0), Fill::Equal(0.0)),
        ("stream zero", 1e-6, Fill::Equal(0.0), Fill::Normal(1.0)),
        ("eps 0", 0.0, Fill::Normal(1.0), Fill::Normal(1.0)),
        ("large eps", 10.0, Fill::Normal(1.0), Fill::Normal(1.0)),
        ("stream large", 1e-6, Fill::Normal(1e6), Fill::Normal(1.0)),
        ("stream huge", 1e-6, Fill::Normal(1e15), Fill::Normal(1.0)),
        ("stream tiny", 1e-6, Fill::Normal(1e-20), Fill::Normal(1.0)),
        ("branch large", 1e-6, Fill::Normal(1.0), Fill::Normal(1e15)),
        ("branch small", 1e-6, Fill::Normal(1.0), Fill::Normal(1e-4)),
        (
            "eps dominates in the branch",
            1e-6,
            Fill::Normal(1.0),
            Fill::Normal(1e-12),
        ),
        (
            "one huge element in the branch",
            1e-6,
            Fill::Normal(1.0),
            Fill::One(5, 1e18),
        ),
        (
            "one huge element in the stream",
            1e-6,
            Fill::One(5, 1e18),
            Fill::Normal(1.0),
        ),
        (
            "a NaN in the stream",
            1e-6,
            Fill::One(2, f32::NAN),
            Fill::Normal(1.0),
        ),
        (
            "a NaN in the branch",
            1e-6,
            Fill::Normal(1.0),
            Fill::One(2, f32::NAN),
        ),
        (
            "an infinity in the stream",
            1e-6,
            Fill::One(0, f32::INFINITY),
            Fill::Normal(1.0),
        ),
        (
            "an infinity in the branch",
            1e-6,
            Fill::Normal(1.0),
            Fill::One(0, f32::INFINITY),
        ),
    ] {
        let rows = Sandwich {
            eps,
            hidden,
            residual,
            ..SANDWICH
        };
        add(label, rows);
        add(
            &format!("{label}, scale 0.5"),
            Sandwich { scale: 0.5, ..rows },
        );
    }
    for n in [2816, 5376] {
        cases.heavy(format!("256 tokens of {n}"), |d| {
            sandwich_fill(d, 256, n, SANDWICH);
        });
    }
}

/// `len` tokens in the only head size and ratio of heads.
fn gqa_shape(kv_heads: u32, len: u32) -> attention::Shape {
    attention::Shape {
        heads: 6 * kv_heads,
        kv_heads,
        dim: 256,
        len,
        ..PLAIN
    }
}

fn gqa_cases(cases: &mut Cases) {
    let mut add = |label: &str, queries: u32, shape: attention::Shape| {
        cases.add(label, |d| flash_attn_batched_fill(d, queries, shape));
    };
    let plain = gqa_shape(1, 20);
    add("no queries", 0, plain);
    add("no queries, no tokens", 0, gqa_shape(1, 0));
    for queries in [1, 2, 3, 7, 16] {
        for start in [0, 1, 15, 16, 17] {
            let shape = gqa_shape(1, start + queries);
            add(&format!("{queries} queries after {start}"), queries, shape);
        }
    }
    for (queries, start) in [(33, 0), (1, 255), (2, 300)] {
        let shape = gqa_shape(1, start + queries);
        add(&format!("{queries} queries after {start}"), queries, shape);
    }
    for kv_heads in [2, 3, 4, 8] {
        add(&format!("{kv_heads} kv heads"), 2, gqa_shape(kv_heads, 9));
    }
    for page in [1, 2, 5, 64] {
        let shape = attention::Shape { page, ..plain };
        add(&format!("pages of {page}"), 4, shape);
    }
    for (label, sinks) in SINKS {
        for (queries, len) in [(1, 1), (3, 40)] {
            let shape = attention::Shape {
                sinks,
                sink_offset: 12,
                ..gqa_shape(2, len)
            };
            let label = format!("sinks {label}, {queries} queries in {len} tokens");
            add(&label, queries, shape);
        }
    }
    for scale in [0.125, 1.0, -0.5] {
        let shape = attention::Shape { scale, ..plain };
        add(&format!("scale {scale}"), 3, shape);
    }
    for (label, q, k) in SCORES {
        add(label, 5, attention::Shape { q, k, ..plain });
    }
    for (label, v) in VALUES {
        add(
            &format!("values: {label}"),
            5,
            attention::Shape { v, ..plain },
        );
    }
    for (queries, len) in [(64, 320), (2, 4097)] {
        cases.heavy(format!("Qwen3.6, {queries} queries of {len} tokens"), |d| {
            flash_attn_batched_fill(d, queries, gqa_shape(4, len));
        });
    }
}

/// The element formats of embedding tables, by qtype.
const TABLES: [Format; 5] = [
    Format::F32,
    Format::F16,
    Format::Q8_0,
    Format::Q4K,
    Format::Q6K,
];

/// out[w*cols + e] = value(min(ids[w], vocab_last), e), bit for bit. Products of a factor, a scale and a
/// quant are exact in f32, so that one rounding of the exact value is what separate roundings give.
fn embed(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (cols, row_bytes) = (call.count("cols")?, call.count("row_bytes")?);
    let format = TABLES[call.count("qtype")?];
    if cols % format.elements() != 0 || row_bytes != format.row_bytes(cols) {
        let what = format!("rows of {cols} elements");
        let wanted = format!("whole {} blocks back to back", format.dtype());
        return Err(call.contents("table", what, wanted, format!("rows of {row_bytes} bytes")));
    }
    let ids = call.integers("ids", call.count("index_offset")?, call.count("n_rows")?)?;
    let last = call.count("vocab_last")?;
    let mut elements = Vec::with_capacity(ids.len() * cols);
    for id in ids {
        let row = (id as usize).min(last);
        let row = call.slice("table", row * row_bytes, row_bytes)?;
        elements.extend(format.dequantize(row).into_iter().map(Element::Exact));
    }
    let start = 4 * call.count("out_offset")?;
    Ok(vec![Expected::floats(call.index("out")?, start, elements)])
}

/// A table and where its rows go.
#[derive(Clone, Copy)]
struct Table {
    qtype: u32,
    cols: u32,
    last: u32,
    index_offset: u32,
    out_offset: u32,
    edges: bool,
}

impl Table {
    fn format(self) -> Format {
        TABLES[self.qtype as usize]
    }
}

fn embed_fill(d: &mut Draft, table: Table, ids: &[u32]) {
    let format = table.format();
    let row_bytes = format.row_bytes(table.cols as usize) as u32;
    d.set_all(&[("cols", table.cols), ("qtype", table.qtype)]);
    d.set_all(&[("vocab_last", table.last), ("row_bytes", row_bytes)]);
    d.set_all(&[("index_offset", table.index_offset)]);
    d.set_all(&[("out_offset", table.out_offset)]);
    d.set("n_rows", ids.len() as u32);
    let blocks = (table.last + 1) as usize * table.cols as usize / format.elements();
    let blocks = format.random_blocks(&mut d.rng, blocks, table.edges);
    d.read("table", 0, &blocks);
    // Ids before the first one name a row as well.
    let ids = [vec![0; table.index_offset as usize], ids.to_vec()].concat();
    d.read_integers("ids", &ids);
    d.write("out");
}

fn embed_cases(cases: &mut Cases) {
    for (qtype, format) in (0..).zip(TABLES) {
        let name = format.dtype();
        let unit = format.elements() as u32;
        let some = Table {
            qtype,
            cols: unit * if unit == 1 { 37 } else { 3 },
            last: 5,
            index_offset: 0,
            out_offset: 0,
            edges: false,
        };
        let mut add = |label: &str, table: Table, ids: &[u32]| {
            cases.add(format!("{name}: {label}"), |d| embed_fill(d, table, ids));
        };
        let smallest = Table {
            cols: unit,
            last: 0,
            ..some
        };
        add("smallest", smallest, &[0]);
        add("no rows", some, &[]);
        add("every row", some, &[0, 1, 2, 3, 4, 5]);
        add("repeated rows", some, &[5, 2, 2, 5, 0, 2]);
        add(
            "ids behind the last row",
            some,
            &[6, 7, u32::MAX, 5, 1 << 31],
        );
        let one = Table { last: 0, ..some };
        add("one row for all ids", one, &[0, 1, 2, u32::MAX]);
        let moved = Table {
            index_offset: 3,
            out_offset: 5,
            ..some
        };
        add("offsets", moved, &[4, 1, 3]);
        let moved = Table {
            index_offset: 1,
            out_offset: 1,
            ..some
        };
        add("smallest offsets", moved, &[2, 0]);
        let edges = Table {
            edges: true,
            last: 8,
            ..some
        };
        add("edge blocks", edges, &[8, 7, 6, 5, 4, 3, 2, 1, 0]);
        let units: &[u32] = if unit == 1 {
            &[2, 3, 31, 33, 127, 255, 256, 257, 1025, 5376]
        } else if unit == 32 {
            &[2, 5, 7, 8, 9, 33, 64, 168]
        } else {
            &[2, 4, 5, 8, 21]
        };
        for units in units {
            let cols = unit * units;
            let table = Table { cols, ..some };
            add(&format!("{cols} columns"), table, &[3, 0, 9]);
        }
        let many: Vec<u32> = (0..70).map(|w| w * 5 % 7).collect();
        add("70 ids", Table { last: 6, ..some }, &many);
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            cases.add(format!("{name}: {value} in row 1"), |d| {
                embed_fill(d, some, &[0, 1, 2]);
                let row = format.row_bytes(some.cols as usize);
                if format == Format::F32 {
                    d.patch("table", row + 8, &value.to_le_bytes());
                } else {
                    let at = row + format.bytes() + format.factors()[0];
                    let half = half::f16::from_f32(value);
                    d.patch("table", at, &half.to_le_bytes());
                }
            });
        }
        cases.heavy(format!("{name}: 512 ids of 5120 columns"), |d| {
            let table = Table {
                cols: 5120,
                last: 599,
                ..some
            };
            let ids: Vec<u32> = (0..512).map(|_| d.rng.below(600)).collect();
            embed_fill(d, table, &ids);
        });
    }
}
