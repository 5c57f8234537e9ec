//! Attention over the paged KV cache.

use rayon::prelude::*;

use super::Entry;
use crate::case::{Cases, Draft, Fill, float_bytes};
use crate::{Call, Check, Element, Expected, OracleError, Outcome, Region, Want};

pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: "flash_attn",
    reference: flash_attn,
    cases: flash_attn_cases,
    random: flash_attn_random,
}];

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
    table: Vec<u32>,
    /// a
    scale: f64,
}

impl Cache<'_> {
    /// The K or V row of token `t` for a kv head.
    fn row(&self, buffer: &str, t: usize, head: usize) -> Result<Vec<f64>, OracleError> {
        let slot = self.table[t / self.page] as usize * self.page + t % self.page;
        let start = (slot * self.kv_heads + head) * self.dim * 4;
        self.call.doubles(buffer, start, self.dim)
    }

    /// Attention of the query `q` over the tokens `slice` of a kv head.
    fn attend(
        &self,
        q: &[f64],
        head: usize,
        slice: std::ops::Range<usize>,
    ) -> Result<Partial, OracleError> {
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
    let (kv_heads, len) = (call.count("n_kv_heads")?, call.count("seq_len")?);
    let (page, chunks) = (call.count("page_size")?, call.count("n_i_chunks")?);
    let pages = call.count("n_pages")?;
    let table = call.integers("page_table", 0, len.div_ceil(page))?;
    for (i, id) in table.iter().enumerate() {
        if *id as usize >= pages {
            let wanted = format!("a page below {pages}");
            return Err(call.contents("page_table", format!("entry {i}"), wanted, id));
        }
    }
    let cache = Cache {
        call,
        dim,
        kv_heads,
        page,
        table,
        scale: match call.word("attn_scale_bits")? {
            0 => 1.0 / (dim as f64).sqrt(),
            bits => f64::from(f32::from_bits(bits)),
        },
    };
    let queries = call.doubles("q", 0, heads * dim)?;
    let group = heads / kv_heads;
    let tasks = (0..heads * chunks).into_par_iter().map(|i| {
        let (h, c) = (i / chunks, i % chunks);
        let slice = c * len / chunks..(c + 1) * len / chunks;
        cache.attend(&queries[h * dim..(h + 1) * dim], h / group.max(1), slice)
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
struct Shape {
    heads: u32,
    kv_heads: u32,
    dim: u32,
    len: u32,
    page: u32,
    chunks: u32,
    /// 0 for 1/sqrt(head_dim)
    scale: f32,
    sink_offset: u32,
    sinks: Fill,
    q: Fill,
    k: Fill,
    v: Fill,
}

fn flash_attn_fill(d: &mut Draft, shape: Shape) {
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
        ("seq_len", len),
        ("page_size", page),
        ("sink_offset", shape.sink_offset),
        ("n_pages", pages),
        ("n_i_chunks", shape.chunks),
    ]);
    d.set_float("attn_scale_bits", shape.scale);
    let q = shape.q.make(&mut d.rng, (heads * dim) as usize);
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

fn flash_attn_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    let plain = Shape {
        heads: 4,
        kv_heads: 2,
        dim: 64,
        len: 20,
        page: 16,
        chunks: 1,
        scale: 0.0,
        sink_offset: 0,
        sinks: Fill::Equal(f32::NAN),
        q: normal,
        k: normal,
        v: normal,
    };
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
    for (label, sinks) in [
        ("normal", normal),
        ("large", Fill::Equal(30.0)),
        ("very large", Fill::Equal(200.0)),
        ("very small", Fill::Equal(-200.0)),
        ("-inf", Fill::Equal(f32::NEG_INFINITY)),
        ("+inf", Fill::Equal(f32::INFINITY)),
        ("some NaN", Fill::One(1, f32::NAN)),
    ] {
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
        for (label, q, k) in [
            ("zero scores", Fill::Equal(0.0), normal),
            ("equal scores", Fill::Equal(0.5), Fill::Equal(0.5)),
            ("equal large scores", Fill::Equal(20.0), Fill::Equal(10.0)),
            ("large scores", Fill::Normal(8.0), Fill::Normal(3.0)),
            ("a NaN in the last query", Fill::One(0, f32::NAN), normal),
            ("a NaN in the last key", normal, Fill::One(0, f32::NAN)),
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
        ] {
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
        for (label, v) in [
            ("zeros", Fill::Equal(0.0)),
            ("all equal", Fill::Equal(-3.0)),
            ("large", Fill::Normal(1e5)),
            ("a NaN", Fill::One(70, f32::NAN)),
            ("an infinity", Fill::One(70, f32::INFINITY)),
        ] {
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

fn flash_attn_random(d: &mut Draft) {
    let kv_heads = d.rng.between(1, 3);
    let shape = Shape {
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
    };
    flash_attn_fill(d, shape);
}
