//! Attention over the paged KV cache.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::Entry;
use super::kv::physical_pages;
use crate::case::{Cases, Draft, Fill, float_bytes};
use crate::{Call, Check, Element, Expected, OracleError, Outcome, Region, Want};

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "flash_attn",
        reference: flash_attn,
        cases: flash_attn_cases,
        random: |d| {
            let shape = random_shape(d);
            flash_attn_fill(d, shape);
        },
    },
    Entry {
        name: "flash_attn_batched",
        reference: flash_attn_batched,
        cases: flash_attn_batched_cases,
        random: |d| {
            let shape = random_shape(d);
            let queries = d.rng.below(shape.len.min(5) + 1);
            flash_attn_batched_fill(d, queries, shape);
        },
    },
    Entry {
        name: "flash_attn_split_merge",
        reference: split_merge,
        cases: split_merge_cases,
        random: |d| {
            let shape = Slices {
                heads: d.rng.below(4),
                dim: 4 * d.rng.between(1, 20),
                chunks: d.rng.between(1, 16),
                empty: d.rng.below(3) as usize,
                ..SLICES
            };
            split_merge_fill(d, shape);
        },
    },
];

/// Floor of the running maximum.
const LOWEST_SCORE: f64 = -1e30;

/// Weights up to this do not count in f32, so the errors of their scores do not matter.
const NO_WEIGHT: f64 = 1e-60;

/// Attention of one head over one slice of the sequence, not yet divided by the sum.
#[derive(Debug, Clone)]
struct Partial {
    /// M
    maximum: f64,
    /// L
    sum: f64,
    /// O
    values: Vec<f64>,
    /// error that f32 may make in a score
    score_error: f64,
    /// largest |score|
    largest_score: f64,
    /// largest finite |V|
    largest_value: f64,
    /// elements in which an infinity of V takes part
    infinite: Vec<bool>,
}

/// The buffers and sizes of one attention call.
struct Cache<'a> {
    call: &'a Call<'a>,
    dim: usize,
    kv_heads: usize,
    page: usize,
    table: Vec<usize>,
    /// query heads per kv head
    group: usize,
    /// a
    scale: f64,
}

impl<'a> Cache<'a> {
    /// The cache of a call that attends to the first `len` tokens.
    fn of(call: &'a Call<'a>, len: usize) -> Result<Self, OracleError> {
        let (dim, page) = (call.count("head_dim")?, call.count("page_size")?);
        let (heads, kv_heads) = (call.count("n_heads")?, call.count("n_kv_heads")?);
        Ok(Self {
            call,
            dim,
            kv_heads,
            page,
            table: physical_pages(call, 0, len.div_ceil(page))?,
            group: (heads / kv_heads).max(1),
            scale: match call.word("attn_scale_bits")? {
                0 => 1.0 / (dim as f64).sqrt(),
                bits => f64::from(f32::from_bits(bits)),
            },
        })
    }

    /// The K or V row of token `t` for a kv head.
    fn row(&self, buffer: &str, t: usize, head: usize) -> Result<Vec<f64>, OracleError> {
        let slot = self.table[t / self.page] * self.page + t % self.page;
        let start = (slot * self.kv_heads + head) * self.dim * 4;
        self.call.doubles(buffer, start, self.dim)
    }

    /// Attention of the query `q` of a query head over the tokens `slice`.
    fn attend(
        &self,
        q: &[f64],
        head: usize,
        slice: std::ops::Range<usize>,
    ) -> Result<Partial, OracleError> {
        let head = head / self.group;
        let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
        let mut scores = Vec::with_capacity(slice.len());
        for t in slice.clone() {
            let k = self.row("k_cache", t, head)?;
            let score = self.scale * q.iter().zip(&k).map(|(q, k)| q * k).sum::<f64>();
            scores.push((score, norm(q) * norm(&k) * self.scale.abs()));
        }
        let mut partial = Partial {
            maximum: scores.iter().fold(LOWEST_SCORE, |m, s| m.max(s.0)),
            sum: 0.0,
            values: vec![0.0; self.dim],
            score_error: 0.0,
            largest_score: 0.0,
            largest_value: 0.0,
            infinite: vec![false; self.dim],
        };
        if scores
            .iter()
            .any(|(s, _)| s.is_nan() || *s == f64::INFINITY)
        {
            partial.maximum = f64::NAN;
        }
        for (t, (score, bound)) in slice.zip(scores) {
            let weight = (score - partial.maximum).exp();
            partial.sum += weight;
            if weight > NO_WEIGHT {
                let error = self.dim as f64 * 2.0_f64.powi(-24) * bound;
                partial.score_error = partial.score_error.max(error);
                partial.largest_score = partial.largest_score.max(score.abs());
            }
            for (d, v) in self.row("v_cache", t, head)?.into_iter().enumerate() {
                partial.values[d] += weight * v;
                partial.infinite[d] |= v.is_infinite();
                if v.is_finite() {
                    partial.largest_value = partial.largest_value.max(v.abs());
                }
            }
        }
        Ok(partial)
    }
}

/// 1/t for a positive t, else 0
fn reciprocal(t: f64) -> f64 {
    if t > 0.0 { 1.0 / t } else { 0.0 }
}

impl Partial {
    /// Tolerance of an output: 2e-5 * max|V| + 1e-6 for scores of ordinary size; beyond that the error
    /// of a score, which enters exponentially, comes on top.
    fn tolerance(&self) -> f64 {
        let ordinary = 2e-5 * self.largest_value + 1e-6;
        if self.largest_score < 100.0 {
            ordinary
        } else {
            ordinary + 2.0 * self.largest_value * (2.0 * self.score_error).exp_m1()
        }
    }

    /// The output elements with a sink (NaN for none).
    fn output(&self, sink: f64) -> Vec<Element> {
        let factor = if sink.is_nan() {
            reciprocal(self.sum)
        } else {
            let m = if self.maximum.is_nan() {
                f64::NAN
            } else {
                self.maximum.max(sink)
            };
            let e = if self.sum > 0.0 {
                (self.maximum - m).exp()
            } else {
                0.0
            };
            e * reciprocal(self.sum * e + (sink - m).exp())
        };
        let tolerance = self.tolerance();
        let values = self.values.iter().zip(&self.infinite);
        let element = |(o, infinite): (&f64, &bool)| {
            if *infinite && !o.is_nan() {
                // A weight that underflows makes NaN of the infinity.
                return Element::NotFinite;
            }
            Element::near(o * factor, tolerance)
        };
        values.map(element).collect()
    }
}

/// The attention of every head, in `out` itself or, in split mode, as partials that are compared after
/// dividing by their sum.
fn flash_attn(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (dim, heads) = (call.count("head_dim")?, call.count("n_heads")?);
    let (len, chunks) = (call.count("seq_len")?, call.count("n_i_chunks")?);
    let cache = Cache::of(call, len)?;
    let queries = call.doubles("q", 0, heads * dim)?;
    let tasks = (0..heads * chunks).into_par_iter().map(|i| {
        let (h, c) = (i / chunks, i % chunks);
        let slice = c * len / chunks..(c + 1) * len / chunks;
        cache.attend(&queries[h * dim..(h + 1) * dim], h, slice)
    });
    let partials: Vec<Partial> = tasks.collect::<Result<_, _>>()?;
    let buffer = call.index("out")?;
    if chunks == 1 {
        let sinks = call.doubles("sinks", call.count("sink_offset")? * 4, heads)?;
        let outputs = partials.iter().zip(sinks).flat_map(|(p, z)| p.output(z));
        return Ok(vec![Expected::floats(buffer, 0, outputs.collect())]);
    }
    let rule = "partials: O / L as the attention of the slice, M and L as its sum of exponentials";
    let sample = float_bytes(&partial_layout(&partials));
    let check = Check::new(rule, sample, move |bytes, _| {
        judge_partials(bytes, &partials, dim)
    });
    Ok(vec![Expected {
        buffer,
        regions: vec![Region {
            start: 0,
            want: Want::Check(check),
        }],
    }])
}

/// The attention of query j of every head, over the tokens up to seq_start + j
pub(super) fn flash_attn_batched(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (dim, heads) = (call.count("head_dim")?, call.count("n_heads")?);
    let (start, queries) = (call.count("seq_start")?, call.count("n_queries")?);
    let len = if queries == 0 { 0 } else { start + queries };
    let cache = Cache::of(call, len)?;
    let q = call.doubles("q", 0, queries * heads * dim)?;
    let sinks = call.doubles("sinks", call.count("sink_offset")? * 4, heads)?;
    let rows = (0..queries * heads).into_par_iter().map(|i| {
        let (j, h) = (i / heads, i % heads);
        let partial = cache.attend(&q[i * dim..(i + 1) * dim], h, 0..start + j + 1)?;
        Ok(partial.output(sinks[h]))
    });
    let rows: Vec<Vec<Element>> = rows.collect::<Result<_, OracleError>>()?;
    let elements = rows.into_iter().flatten().collect();
    Ok(vec![Expected::floats(call.index("out")?, 0, elements)])
}

/// The slices combined: within 4e-6 * sum of |w_c * O_c| * r plus 1e-7. A weight below the range of f32
/// may be 0.
fn split_merge(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (dim, heads) = (call.count("head_dim")?, call.count("n_heads")?);
    let chunks = call.count("n_i_chunks")?;
    let values = call.doubles("partial", 0, heads * chunks * dim)?;
    let pairs = call.doubles("partial", heads * chunks * dim * 4, heads * chunks * 2)?;
    let sinks = call.doubles("sinks", call.count("sink_offset")? * 4, heads)?;
    let mut elements = Vec::with_capacity(heads * dim);
    for (h, sink) in sinks.into_iter().enumerate() {
        let slices = || (h * chunks..(h + 1) * chunks).map(|i| (i, pairs[2 * i], pairs[2 * i + 1]));
        // f64::max takes the other operand of a NaN: that of a sink, or of a slice that is NaN anyway.
        let largest = slices().fold(LOWEST_SCORE, |m, (_, maximum, _)| m.max(maximum));
        let largest = largest.max(sink);
        let weights = slices().map(|(_, maximum, sum)| {
            let weight = (maximum - largest).exp();
            if sum > 0.0 { weight } else { 0.0 }
        });
        let weights: Vec<f64> = weights.collect();
        let terms = slices().zip(&weights).map(|((_, _, sum), w)| w * sum);
        let total = terms.sum::<f64>()
            + if sink.is_nan() {
                0.0
            } else {
                (sink - largest).exp()
            };
        let factor = reciprocal(total);
        elements.extend((0..dim).map(|d| {
            let (mut value, mut magnitude, mut lost) = (0.0, 0.0, 0.0);
            for ((i, _, sum), w) in slices().zip(&weights) {
                let o = values[i * dim + d];
                if sum == 0.0 && !o.is_finite() {
                    // A port may skip the slice.
                    return Element::Free;
                }
                value += w * o;
                magnitude += (w * o).abs();
                lost += if *w < 1e-37 { (w * o).abs() } else { 0.0 };
            }
            if value.is_nan() || magnitude.is_infinite() {
                let inputs = slices().any(|(i, ..)| values[i * dim + d].is_nan());
                return if inputs {
                    Element::near(f64::NAN, 0.0)
                } else {
                    Element::NotFinite
                };
            }
            let tolerance = (4e-6 * magnitude + lost) * factor + 1e-7;
            Element::near_unless_overflow(value * factor, tolerance, magnitude)
        }));
    }
    Ok(vec![Expected::floats(call.index("out")?, 0, elements)])
}

/// The partial buffer: all O, then all pairs (M, L).
fn partial_layout(partials: &[Partial]) -> Vec<f32> {
    let values = partials
        .iter()
        .flat_map(|p| p.values.iter().map(|v| *v as f32));
    let pairs = partials
        .iter()
        .flat_map(|p| [p.maximum as f32, p.sum as f32]);
    values.chain(pairs).collect()
}

/// Judges a partial buffer slice by slice.
///
/// M may be off by 1e-5 relative plus the error of a score. L is compared after moving it to the
/// oracle's M, within 2e-5 relative plus that error. O / L has the tolerance of an output of the slice.
fn judge_partials(bytes: &[u8], partials: &[Partial], dim: usize) -> Outcome {
    let mut outcome = Outcome::default();
    let found: Vec<f64> = crate::call::words_of(bytes)
        .map(|w| f64::from(f32::from_bits(w)))
        .collect();
    let pairs = partials.len() * dim;
    for (i, partial) in partials.iter().enumerate() {
        let values = &found[i * dim..(i + 1) * dim];
        let (maximum, sum) = (found[pairs + 2 * i], found[pairs + 2 * i + 1]);
        let mut value = |at: usize, wanted: f64, got: f64, tolerance: f64| {
            let error = if wanted.is_nan() && got.is_nan() {
                0.0
            } else {
                (wanted - got).abs()
            };
            outcome.value(at, error, tolerance, || {
                (format!("{wanted:e} +- {tolerance:.1e}"), format!("{got:e}"))
            });
        };
        if partial.maximum.is_nan() {
            // M is unspecified.
            value(pairs + 2 * i + 1, f64::NAN, sum, 0.0);
            for (d, v) in values.iter().enumerate() {
                value(i * dim + d, f64::NAN, *v, 0.0);
            }
            continue;
        }
        if partial.sum == 0.0 {
            value(pairs + 2 * i, f64::from(-1e30_f32), maximum, 0.0);
            value(pairs + 2 * i + 1, 0.0, sum, 0.0);
            for (d, v) in values.iter().enumerate() {
                value(i * dim + d, partial.values[d], *v, 0.0);
            }
            continue;
        }
        let score_error = 1e-5 * partial.maximum.abs() + 1e-6 + partial.score_error;
        value(pairs + 2 * i, partial.maximum, maximum, score_error);
        let moved = sum * (maximum - partial.maximum).exp();
        let sum_error = (2e-5 + 2.0 * score_error) * partial.sum;
        value(pairs + 2 * i + 1, partial.sum, moved, sum_error);
        for (d, v) in values.iter().enumerate() {
            let wanted = partial.values[d] / partial.sum;
            if partial.infinite[d] && !wanted.is_nan() {
                value(i * dim + d, 0.0, f64::from(u8::from(v.is_finite())), 0.0);
            } else {
                value(i * dim + d, wanted, v / sum, partial.tolerance());
            }
        }
    }
    outcome
}

/// What a case is made of.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) heads: u32,
    pub(super) kv_heads: u32,
    pub(super) dim: u32,
    pub(super) len: u32,
    pub(super) page: u32,
    pub(super) chunks: u32,
    /// 0 for 1/sqrt(head_dim)
    pub(super) scale: f32,
    pub(super) sink_offset: u32,
    pub(super) sinks: Fill,
    pub(super) q: Fill,
    pub(super) k: Fill,
    pub(super) v: Fill,
}

fn flash_attn_fill(d: &mut Draft, shape: Shape) {
    d.set_all(&[("seq_len", shape.len), ("n_i_chunks", shape.chunks)]);
    cache_fill(d, 1, shape);
}

/// The queries are the last `queries` of the tokens.
pub(super) fn flash_attn_batched_fill(d: &mut Draft, queries: u32, shape: Shape) {
    d.set_all(&[("seq_start", shape.len - queries), ("n_queries", queries)]);
    cache_fill(d, queries, shape);
}

/// The fields and buffers that both kernels have.
fn cache_fill(d: &mut Draft, queries: u32, shape: Shape) {
    let Shape {
        heads,
        kv_heads,
        dim,
        len,
        page,
        ..
    } = shape;
    let used = len.div_ceil(page);
    // Two pages more than needed, in random order; slots that no token occupies are NaN.
    let pages = used + 2;
    d.set_all(&[
        ("head_dim", dim),
        ("n_heads", heads),
        ("n_kv_heads", kv_heads),
        ("page_size", page),
        ("sink_offset", shape.sink_offset),
        ("n_pages", pages),
    ]);
    d.set_float("attn_scale_bits", shape.scale);
    let q = (shape.q).make(&mut d.rng, (queries * heads * dim) as usize);
    d.read_floats("q", 0, &q);
    let table = d.rng.permutation(pages)[..used as usize].to_vec();
    d.read_integers("page_table", &table);
    let row = (kv_heads * dim) as usize;
    for (buffer, fill) in [("k_cache", shape.k), ("v_cache", shape.v)] {
        let values = fill.make(&mut d.rng, len as usize * row);
        let mut cache = vec![f32::NAN; (pages * page) as usize * row];
        for (t, values) in values.chunks_exact(row).enumerate() {
            let slot = table[t / page as usize] as usize * page as usize + t % page as usize;
            cache[slot * row..(slot + 1) * row].copy_from_slice(values);
        }
        d.read_floats(buffer, 0, &cache);
    }
    let sinks = shape.sinks.make(&mut d.rng, heads as usize);
    d.read_floats("sinks", shape.sink_offset as usize * 4, &sinks);
    d.write("out");
}

/// A short sequence without sinks.
pub(super) const PLAIN: Shape = Shape {
    heads: 4,
    kv_heads: 2,
    dim: 64,
    len: 20,
    page: 16,
    chunks: 1,
    scale: 0.0,
    sink_offset: 0,
    sinks: Fill::Equal(f32::NAN),
    q: Fill::Normal(1.0),
    k: Fill::Normal(1.0),
    v: Fill::Normal(1.0),
};

/// Sinks of every kind.
pub(super) const SINKS: [(&str, Fill); 7] = [
    ("normal", Fill::Normal(1.0)),
    ("large", Fill::Equal(30.0)),
    ("very large", Fill::Equal(200.0)),
    ("very small", Fill::Equal(-200.0)),
    ("-inf", Fill::Equal(f32::NEG_INFINITY)),
    ("+inf", Fill::Equal(f32::INFINITY)),
    ("some NaN", Fill::One(1, f32::NAN)),
];

/// Queries and keys with scores at the edges.
pub(super) const SCORES: [(&str, Fill, Fill); 10] = [
    ("zero scores", Fill::Equal(0.0), Fill::Normal(1.0)),
    ("equal scores", Fill::Equal(0.5), Fill::Equal(0.5)),
    ("equal large scores", Fill::Equal(20.0), Fill::Equal(10.0)),
    ("large scores", Fill::Normal(8.0), Fill::Normal(3.0)),
    (
        "a NaN in the last query",
        Fill::One(0, f32::NAN),
        Fill::Normal(1.0),
    ),
    (
        "a NaN in the last key",
        Fill::Normal(1.0),
        Fill::One(0, f32::NAN),
    ),
    (
        "scores of -inf in one key",
        Fill::Equal(1.0),
        Fill::One(3, f32::NEG_INFINITY),
    ),
    (
        "a score of +inf",
        Fill::Equal(1.0),
        Fill::One(3, f32::INFINITY),
    ),
    (
        "only scores of -inf",
        Fill::Equal(1.0),
        Fill::Equal(f32::NEG_INFINITY),
    ),
    (
        "scores below the floor",
        Fill::Equal(1e18),
        Fill::Equal(-1e18),
    ),
];

/// Values at the edges.
pub(super) const VALUES: [(&str, Fill); 5] = [
    ("zeros", Fill::Equal(0.0)),
    ("all equal", Fill::Equal(-3.0)),
    ("large", Fill::Normal(1e5)),
    ("a NaN", Fill::One(70, f32::NAN)),
    ("an infinity", Fill::One(70, f32::INFINITY)),
];

fn flash_attn_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    let plain = PLAIN;
    let mut add = |label: &str, shape: Shape| cases.add(label, |d| flash_attn_fill(d, shape));
    add(
        "smallest",
        Shape {
            heads: 1,
            kv_heads: 1,
            dim: 4,
            len: 1,
            page: 1,
            ..plain
        },
    );
    add("no heads", Shape { heads: 0, ..plain });
    for chunks in [1, 2, 4] {
        for len in [0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 127, 128, 129] {
            add(
                &format!("{len} tokens, {chunks} slices"),
                Shape {
                    len,
                    chunks,
                    ..plain
                },
            );
        }
        for len in [255, 256, 257, 300, 515] {
            let shape = Shape {
                len,
                chunks,
                dim: 32,
                heads: 2,
                kv_heads: 1,
                ..plain
            };
            add(&format!("{len} tokens of 32, {chunks} slices"), shape);
        }
        for dim in [4, 8, 12, 60, 68, 100, 128, 256, 512] {
            let shape = Shape {
                dim,
                chunks,
                len: 37,
                ..plain
            };
            add(&format!("head_dim {dim}, {chunks} slices"), shape);
        }
        for page in [1, 2, 5, 64] {
            let shape = Shape {
                page,
                chunks,
                len: 23,
                dim: 16,
                ..plain
            };
            add(&format!("pages of {page}, {chunks} slices"), shape);
        }
    }
    for chunks in [3, 5, 7] {
        add(
            &format!("2 tokens, {chunks} slices"),
            Shape {
                len: 2,
                chunks,
                dim: 16,
                ..plain
            },
        );
        add(
            &format!("50 tokens, {chunks} slices"),
            Shape {
                len: 50,
                chunks,
                dim: 16,
                ..plain
            },
        );
    }
    for (heads, kv_heads) in [(1, 1), (3, 1), (5, 5), (6, 3), (8, 1), (16, 2), (14, 2)] {
        let shape = Shape {
            heads,
            kv_heads,
            dim: 32,
            ..plain
        };
        add(&format!("{heads} heads on {kv_heads}"), shape);
        add(
            &format!("{heads} heads on {kv_heads}, 4 slices"),
            Shape { chunks: 4, ..shape },
        );
    }
    // More query heads than a block takes, heads of every register size, rings that go round several times.
    for (heads, kv_heads) in [(9, 1), (12, 1), (17, 1), (4, 2), (8, 1)] {
        for dim in [64, 132, 260, 512] {
            let shape = Shape {
                heads,
                kv_heads,
                dim,
                len: 330,
                chunks: 2,
                ..plain
            };
            add(
                &format!("{heads} heads of {dim} on {kv_heads}, 330 tokens"),
                shape,
            );
        }
    }
    for (label, v) in VALUES {
        let shape = Shape {
            heads: 8,
            kv_heads: 1,
            len: 290,
            v,
            ..plain
        };
        add(&format!("values: {label}, 8 heads, 290 tokens"), shape);
    }
    for (label, sinks) in SINKS {
        for len in [0, 1, 40] {
            let shape = Shape {
                sinks,
                len,
                sink_offset: 8,
                ..plain
            };
            add(&format!("sinks {label}, {len} tokens"), shape);
        }
    }
    add(
        "sinks are ignored in split mode",
        Shape {
            sinks: Fill::Equal(30.0),
            chunks: 4,
            ..plain
        },
    );
    for scale in [0.125, 1.0, -0.5, 3.0] {
        add(
            &format!("scale {scale}"),
            Shape {
                scale,
                dim: 16,
                ..plain
            },
        );
    }
    for chunks in [1, 2] {
        for (label, q, k) in SCORES {
            add(
                &format!("{label}, {chunks} slices"),
                Shape {
                    q,
                    k,
                    chunks,
                    ..plain
                },
            );
        }
        for (label, v) in VALUES {
            add(
                &format!("values: {label}, {chunks} slices"),
                Shape { v, chunks, ..plain },
            );
        }
    }
    for (label, heads, kv_heads, dim, len) in [
        ("Qwen3", 32, 4, 128, 4096),
        ("Qwen3.6", 16, 2, 256, 8191),
        ("Gemma, global", 8, 1, 512, 1500),
        ("gpt-oss", 64, 8, 64, 2049),
    ] {
        for chunks in [1, 4] {
            cases.heavy(format!("{label}, {len} tokens, {chunks} slices"), |d| {
                let sinks = if label == "gpt-oss" {
                    normal
                } else {
                    plain.sinks
                };
                flash_attn_fill(
                    d,
                    Shape {
                        heads,
                        kv_heads,
                        dim,
                        len,
                        chunks,
                        sinks,
                        ..plain
                    },
                );
            });
        }
    }
}

fn flash_attn_batched_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    let plain = Shape { dim: 32, ..PLAIN };
    let mut add = |label: &str, queries: u32, shape: Shape| {
        cases.add(label, |d| flash_attn_batched_fill(d, queries, shape));
    };
    let smallest = Shape {
        heads: 1,
        kv_heads: 1,
        dim: 4,
        len: 1,
        page: 1,
        ..plain
    };
    add("smallest", 1, smallest);
    add("no heads", 2, Shape { heads: 0, ..plain });
    add("no queries", 0, plain);
    add("no queries, no tokens", 0, Shape { len: 0, ..plain });
    for queries in [1, 2, 3, 7, 16, 17, 33] {
        for start in [0, 1, 15, 16, 17] {
            let shape = Shape {
                heads: 2,
                kv_heads: 1,
                dim: 16,
                len: start + queries,
                ..plain
            };
            add(&format!("{queries} queries after {start}"), queries, shape);
        }
    }
    for (queries, start) in [(1, 255), (2, 255), (3, 300), (2, 511)] {
        let shape = Shape {
            heads: 2,
            kv_heads: 1,
            dim: 16,
            len: start + queries,
            ..plain
        };
        add(&format!("{queries} queries after {start}"), queries, shape);
    }
    for dim in [4, 8, 12, 60, 68, 100, 128, 256, 512] {
        let shape = Shape {
            heads: 2,
            kv_heads: 1,
            dim,
            ..plain
        };
        add(&format!("head_dim {dim}"), 3, shape);
    }
    // Several tiles of queries and of keys, and one more or less.
    for (dim, queries, start) in [
        (16, 31, 33),
        (16, 32, 32),
        (16, 65, 0),
        (64, 64, 1),
        (132, 34, 31),
        (260, 33, 40),
        (512, 17, 30),
    ] {
        let shape = Shape {
            heads: 2,
            kv_heads: 1,
            dim,
            len: start + queries,
            ..plain
        };
        let label = format!("{queries} queries of {dim} after {start}");
        add(&label, queries, shape);
    }
    for (label, v) in VALUES {
        let shape = Shape {
            len: 80,
            v,
            ..plain
        };
        add(&format!("values: {label}, 70 queries"), 70, shape);
    }
    for page in [1, 2, 5, 64] {
        let shape = Shape {
            page,
            len: 23,
            dim: 16,
            ..plain
        };
        add(&format!("pages of {page}"), 4, shape);
    }
    for (heads, kv_heads) in [(1, 1), (3, 1), (5, 5), (6, 3), (8, 1), (16, 2), (14, 2)] {
        let shape = Shape {
            heads,
            kv_heads,
            dim: 16,
            ..plain
        };
        add(&format!("{heads} heads on {kv_heads}"), 3, shape);
    }
    for (label, sinks) in SINKS {
        for (queries, len) in [(1, 1), (3, 40)] {
            let shape = Shape {
                sinks,
                len,
                sink_offset: 8,
                ..plain
            };
            add(
                &format!("sinks {label}, {queries} queries in {len} tokens"),
                queries,
                shape,
            );
        }
    }
    for scale in [0.125, 1.0, -0.5, 3.0] {
        let shape = Shape {
            scale,
            dim: 16,
            ..plain
        };
        add(&format!("scale {scale}"), 3, shape);
    }
    for (label, q, k) in SCORES {
        add(label, 5, Shape { q, k, ..plain });
    }
    for (label, v) in VALUES {
        add(&format!("values: {label}"), 5, Shape { v, ..plain });
    }
    for (label, heads, kv_heads, dim, queries, len) in [
        ("Qwen3.6", 16, 2, 256, 64, 320),
        ("Qwen3.6, 4096 tokens", 16, 2, 256, 2, 4097),
        ("Qwen3", 32, 4, 128, 33, 150),
        ("Gemma, global", 8, 1, 512, 40, 200),
        ("gpt-oss", 64, 8, 64, 65, 129),
    ] {
        cases.heavy(format!("{label}, {queries} queries of {len} tokens"), |d| {
            let sinks = if label == "gpt-oss" {
                normal
            } else {
                plain.sinks
            };
            let shape = Shape {
                heads,
                kv_heads,
                dim,
                len,
                sinks,
                ..plain
            };
            flash_attn_batched_fill(d, queries, shape);
        });
    }
}

fn random_shape(d: &mut Draft) -> Shape {
    let kv_heads = d.rng.between(1, 3);
    Shape {
        heads: kv_heads * d.rng.between(1, 4),
        kv_heads,
        dim: 4 * d.rng.between(1, 24),
        len: d.rng.below(80),
        page: d.rng.between(1, 20),
        chunks: d.rng.pick(&[1, 1, 2, 4]),
        scale: d.rng.pick(&[0.0, 0.1]),
        sink_offset: d.rng.below(9),
        sinks: d.rng.pick(&[Fill::Equal(f32::NAN), Fill::Normal(1.0)]),
        q: Fill::Normal(1.0),
        k: Fill::Normal(1.0),
        v: Fill::Normal(1.0),
    }
}

/// What a case of flash_attn_split_merge is made of.
#[derive(Clone, Copy)]
struct Slices {
    heads: u32,
    dim: u32,
    chunks: u32,
    /// slices of a head, from the last one on, that hold no token
    empty: usize,
    sink_offset: u32,
    sinks: Fill,
    /// maxima of the slices
    maxima: Fill,
    /// outputs of the slices, after dividing by their sums
    values: Fill,
}

/// Four slices without sinks.
const SLICES: Slices = Slices {
    heads: 3,
    dim: 64,
    chunks: 4,
    empty: 0,
    sink_offset: 0,
    sinks: Fill::Equal(f32::NAN),
    maxima: Fill::Normal(2.0),
    values: Fill::Normal(1.0),
};

fn split_merge_fill(d: &mut Draft, shape: Slices) {
    let Slices {
        heads, dim, chunks, ..
    } = shape;
    d.set_all(&[
        ("head_dim", dim),
        ("n_heads", heads),
        ("n_i_chunks", chunks),
        ("sink_offset", shape.sink_offset),
    ]);
    let slices = (heads * chunks) as usize;
    let (dim, chunks) = (dim as usize, chunks as usize);
    let maxima = shape.maxima.make(&mut d.rng, slices);
    let mut values = shape.values.make(&mut d.rng, slices * dim);
    let mut pairs = Vec::new();
    for (i, (maximum, values)) in maxima.iter().zip(values.chunks_exact_mut(dim)).enumerate() {
        let mut pair = [*maximum, 1.0 + d.rng.unit() as f32 * 200.0];
        if i % chunks + shape.empty >= chunks {
            pair = [LOWEST_SCORE as f32, 0.0];
        }
        values.iter_mut().for_each(|v| *v *= pair[1]);
        pairs.extend(pair);
    }
    d.read_floats("partial", 0, &[values, pairs].concat());
    let sinks = shape.sinks.make(&mut d.rng, heads as usize);
    d.read_floats("sinks", shape.sink_offset as usize * 4, &sinks);
    d.write("out");
}

fn split_merge_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    let mut add = |label: &str, shape: Slices| cases.add(label, |d| split_merge_fill(d, shape));
    let smallest = Slices {
        heads: 1,
        dim: 4,
        chunks: 1,
        ..SLICES
    };
    add("smallest", smallest);
    let none = Slices { heads: 0, ..SLICES };
    add("no heads", none);
    for chunks in [1, 2, 3, 4, 5, 8, 15, 16] {
        for empty in BTreeSet::from([0, 1, chunks - 1, chunks]) {
            let empty = empty as usize;
            for (kind, sinks) in [("no sinks", SLICES.sinks), ("sinks", normal)] {
                let shape = Slices {
                    chunks,
                    empty,
                    sinks,
                    ..SLICES
                };
                let label = format!("{chunks} slices, the last {empty} of them empty, {kind}");
                add(&label, shape);
            }
        }
    }
    for (heads, dim) in [
        (1, 4),
        (5, 8),
        (2, 60),
        (7, 68),
        (3, 128),
        (2, 256),
        (16, 256),
        (1, 512),
        (64, 64),
    ] {
        for chunks in [2, 4] {
            let shape = Slices {
                heads,
                dim,
                chunks,
                ..SLICES
            };
            add(&format!("{heads} heads of {dim}, {chunks} slices"), shape);
        }
    }
    for (label, sinks) in SINKS {
        for empty in [0, 4] {
            let shape = Slices {
                sinks,
                empty,
                sink_offset: 8,
                ..SLICES
            };
            add(&format!("sinks {label}, {empty} slices empty"), shape);
        }
    }
    for (label, maxima) in [
        ("equal", Fill::Equal(3.0)),
        ("zero", Fill::Equal(0.0)),
        ("far apart", Fill::Normal(60.0)),
        ("very far apart", Fill::Normal(1e4)),
        ("very low", Fill::Normal(1e29)),
        ("one dominates", Fill::One(2, 500.0)),
    ] {
        for chunks in [2, 4, 7] {
            let shape = Slices {
                maxima,
                chunks,
                ..SLICES
            };
            add(&format!("maxima {label}, {chunks} slices"), shape);
        }
    }
    for (label, values) in [
        ("zeros", Fill::Equal(0.0)),
        ("cancelling", Fill::Alternating(1e3)),
        ("large", Fill::Normal(1e20)),
        ("tiny", Fill::Normal(1e-30)),
        ("a NaN", Fill::One(70, f32::NAN)),
        ("an infinity", Fill::One(70, f32::INFINITY)),
    ] {
        add(&format!("values: {label}"), Slices { values, ..SLICES });
    }
    for (label, lowered) in [("as the others", 0.0), ("far below", 1e4)] {
        for slice in [0, 2] {
            cases.add(format!("slice {slice} is NaN, its maximum {label}"), |d| {
                split_merge_fill(d, SLICES);
                let (dim, slices) = (SLICES.dim as usize, (SLICES.heads * SLICES.chunks) as usize);
                let nan = vec![f32::NAN; dim];
                d.patch("partial", slice * dim * 4, &float_bytes(&nan));
                let pair = [1.0 - lowered, f32::NAN];
                d.patch(
                    "partial",
                    (slices * dim + slice * 2) * 4,
                    &float_bytes(&pair),
                );
            });
        }
    }
    cases.heavy("2048 heads of 128", |d| {
        let shape = Slices {
            heads: 2048,
            dim: 128,
            sinks: normal,
            ..SLICES
        };
        split_merge_fill(d, shape);
    });
}
