//! Expert selection and recombination of expert outputs.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::Entry;
use super::dmmv_moe::experts;
use super::elementwise::exact;
use super::norm_act::product;
use crate::call::words_of;
use crate::case::{Cases, Draft, Fill, float_bytes, integer_bytes};
use crate::{Call, Check, Element, Expected, OracleError, Outcome, Region, Want};

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "softmax_topk",
        reference: softmax_topk,
        cases: softmax_topk_cases,
        random: |d| {
            let n = d.rng.between(1, 256);
            let k = d.rng.between(1, n.min(12));
            // Few distinct values, so that ties occur.
            let logits: Vec<f32> = (0..n).map(|_| d.rng.below(30) as f32 * 0.5 - 9.0).collect();
            softmax_topk_fill(d, k, &logits);
        },
    },
    Entry {
        name: "softmax_topk_v2",
        reference: softmax_topk_v2,
        cases: softmax_topk_v2_cases,
        random: |d| {
            let (n, k, scale) = random_selection(d);
            let logits = few_values(d, n);
            softmax_topk_v2_fill(d, k, scale, &logits);
        },
    },
    Entry {
        name: "softmax_topk_batch",
        reference: softmax_topk_batch,
        cases: softmax_topk_batch_cases,
        random: |d| {
            let (experts, k, scale) = random_selection(d);
            let tokens = d.rng.between(1, 4);
            let batch = Selection {
                experts,
                k,
                scale,
                base: d.rng.below(3),
                gaps: [d.rng.below(3), d.rng.below(3)],
            };
            let logits = few_values(d, tokens * experts);
            softmax_topk_batch_fill(d, batch, &logits);
        },
    },
    Entry {
        name: "router_f32_batch",
        reference: router_f32_batch,
        cases: router_f32_batch_cases,
        random: |d| {
            let shape = Router {
                m: d.rng.between(1, 20),
                k: 4 * d.rng.between(1, 40),
                tokens: d.rng.between(1, 6),
                gaps: [4 * d.rng.below(3), d.rng.below(4)],
                x: Fill::Normal(1.0),
                weights: Fill::Normal(0.3),
            };
            router_f32_batch_fill(d, shape);
        },
    },
    Entry {
        name: "count_experts",
        reference: count_experts,
        cases: count_experts_cases,
        random: |d| {
            let view = View {
                cells: d.rng.between(1, 9),
                rows: d.rng.between(1, 30),
                strides: [d.rng.between(1, 3), d.rng.below(40)],
                offset: d.rng.below(20),
                experts: d.rng.below(40),
            };
            count_experts_fill(d, view, |d, _| d.rng.below(40));
        },
    },
    Entry {
        name: "moe_route_pack",
        reference: moe_route_pack,
        cases: moe_route_pack_cases,
        random: |d| {
            let (tokens, k) = (d.rng.between(1, 30), d.rng.between(1, 6));
            let experts = d.rng.between(1, 20);
            let pack = Pack {
                tokens,
                experts,
                k,
                gap: d.rng.below(9),
                capacity: d.rng.between(1, tokens * k),
                base: d.rng.below(4),
            };
            moe_route_pack_fill(d, pack, |d, _| d.rng.below(experts + 2));
        },
    },
    Entry {
        name: "moe_weighted_acc",
        reference: moe_weighted_acc,
        cases: moe_weighted_acc_cases,
        random: |d| {
            let (n, used, gap) = (d.rng.between(1, 150), d.rng.between(1, 6), d.rng.below(3));
            moe_weighted_acc_fill(d, n, used, n + gap, Fill::Normal(1.0));
        },
    },
    Entry {
        name: "moe_weighted_acc_batch",
        reference: moe_weighted_acc_batch,
        cases: moe_weighted_acc_batch_cases,
        random: |d| {
            let shape = Combine {
                width: d.rng.between(1, 100),
                tokens: d.rng.between(1, 5),
                used: d.rng.between(1, 6),
                gap: d.rng.below(4),
                bases: [d.rng.below(3), d.rng.below(3)],
                src: Fill::Normal(1.0),
            };
            moe_weighted_acc_batch_fill(d, shape);
        },
    },
    Entry {
        name: "per_expert_scale",
        reference: per_expert_scale,
        cases: per_expert_scale_cases,
        random: |d| {
            let (width, slots) = (d.rng.between(1, 150), d.rng.between(1, 6));
            let scales = d.rng.normals(7, 1.0);
            let routing: Vec<u32> = (0..slots).map(|_| d.rng.below(7)).collect();
            per_expert_scale_fill(d, width, &routing, &scales, Fill::Normal(1.0));
        },
    },
];

/// The experts with the largest logits: in descending order, among equal logits the one with the
/// smallest (id mod 64, id). NaN and -inf are never chosen; slots that remain get id 0 and -inf.
pub(super) fn select(logits: &[f32], k: usize) -> Vec<(u32, f64)> {
    let mut left: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    left.retain(|(_, v)| *v > f32::NEG_INFINITY);
    // partial_cmp never fails, as no NaN is left; it takes zeros of both signs as equal.
    left.sort_by(|a, b| {
        let by_value = b.1.partial_cmp(&a.1).unwrap_or(std::cmp::Ordering::Equal);
        by_value.then((a.0 % 64, a.0).cmp(&(b.0 % 64, b.0)))
    });
    let chosen = left.into_iter().map(|(id, v)| (id, f64::from(v)));
    chosen
        .chain(std::iter::repeat((0, f64::NEG_INFINITY)))
        .take(k)
        .collect()
}

/// Softmax over the chosen logits only; the weights are NaN if none of them is above -inf.
pub(super) fn weights(chosen: &[(u32, f64)]) -> Vec<f64> {
    let largest = chosen.iter().map(|c| c.1).fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = chosen.iter().map(|c| (c.1 - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    let factor = if sum > 0.0 { 1.0 / sum } else { 0.0 };
    powers.iter().map(|p| p * factor).collect()
}

/// A routing row from byte `start` on: the ids, then the weights.
fn routing_row(start: usize, chosen: &[(u32, f64)], weights: Vec<Element>) -> [Region; 2] {
    let ids = chosen.iter().flat_map(|c| c.0.to_le_bytes()).collect();
    [
        Region {
            start,
            want: Want::Bytes(ids),
        },
        Region {
            start: start + 4 * chosen.len(),
            want: Want::Floats(weights),
        },
    ]
}

/// Ids exactly, weights within 1e-6 absolute or 1e-5 relative
fn softmax_topk(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (experts, k) = (call.count("n_experts")?, call.count("k")?);
    let chosen = select(&call.floats("logits", 0, experts)?, k);
    let near = |w: f64| Element::near(w, 1e-6_f64.max(1e-5 * w.abs()));
    let weights = weights(&chosen).into_iter().map(near).collect();
    Ok(vec![Expected {
        buffer: call.index("routing")?,
        regions: routing_row(0, &chosen, weights).into(),
    }])
}

fn softmax_topk_fill(d: &mut Draft, k: u32, logits: &[f32]) {
    d.set_all(&[("n_experts", logits.len() as u32), ("k", k)]);
    d.read_floats("logits", 0, logits);
    d.write("routing");
}

/// A label, and the logit of every expert.
type Logits = (&'static str, fn(usize) -> f32);

/// Logits at the edges of both selections.
const LOGITS: [Logits; 19] = [
    ("all equal", |_| 0.5),
    (
        "all zero, both signs",
        |i| {
            if i % 3 == 0 { -0.0 } else { 0.0 }
        },
    ),
    ("all below -1", |i| -5.0 - (i * 37 % 101) as f32),
    ("far below -1", |i| -1e30 * (1.0 + (i * 37 % 101) as f32)),
    ("equal runs", |i| (i / 5 % 7) as f32),
    (
        "64 and 1 tie",
        |i| {
            if i == 64 || i == 1 { 9.0 } else { 0.0 }
        },
    ),
    ("200, 72 and 8 tie", |i| {
        if [200, 72, 8].contains(&i) { 3.0 } else { -1.0 }
    }),
    ("same lane ties", |i| if i % 64 == 5 { 2.0 } else { 1.0 }),
    ("large", |i| 80.0 + (i * 29 % 97) as f32),
    ("one dominates", |i| if i == 77 { 500.0 } else { -500.0 }),
    ("tiny differences", |i| {
        1.0 + (i * 31 % 61) as f32 * f32::EPSILON
    }),
    ("NaN sprinkled", |i| {
        if i % 5 == 0 {
            f32::NAN
        } else {
            (i * 17 % 43) as f32
        }
    }),
    ("-inf sprinkled", |i| {
        if i % 2 == 0 {
            f32::NEG_INFINITY
        } else {
            -((i * 17 % 43) as f32)
        }
    }),
    ("only three finite", |i| {
        if [3, 70, 130].contains(&i) {
            i as f32 * 0.01
        } else {
            f32::NEG_INFINITY
        }
    }),
    ("only two are not NaN", |i| {
        if [9, 190].contains(&i) {
            -2.0
        } else {
            f32::NAN
        }
    }),
    ("all -inf", |_| f32::NEG_INFINITY),
    ("all NaN", |_| f32::NAN),
    ("one +inf", |i| {
        if i == 100 {
            f32::INFINITY
        } else {
            i as f32 * 0.1
        }
    }),
    ("two +inf", |i| {
        if i == 100 || i == 40 {
            f32::INFINITY
        } else {
            i as f32 * 0.1
        }
    }),
];

fn softmax_topk_cases(cases: &mut Cases) {
    for (n, k) in [
        (1, 1),
        (2, 1),
        (2, 2),
        (3, 2),
        (31, 4),
        (32, 4),
        (33, 33),
        (63, 8),
        (64, 64),
        (65, 8),
        (128, 4),
        (129, 5),
        (256, 1),
        (256, 3),
        (256, 8),
        (255, 255),
        (256, 256),
    ] {
        cases.add(format!("{k} of {n}"), |d| {
            let logits = d.rng.normals(n, 3.0);
            softmax_topk_fill(d, k, &logits);
        });
    }
    for (label, make) in LOGITS {
        for (n, k) in [(256, 8), (201, 5)] {
            cases.add(format!("{label}, {k} of {n}"), |d| {
                let logits: Vec<f32> = (0..n).map(make).collect();
                softmax_topk_fill(d, k, &logits);
            });
        }
    }
    cases.add("all -inf, all chosen", |d| {
        softmax_topk_fill(d, 4, &[f32::NEG_INFINITY; 4])
    });
}

/// The f32 `x` with the low 8 bits of its pattern cleared.
fn truncated(x: f32) -> f32 {
    f32::from_bits(x.to_bits() & !0xff)
}

/// The experts that softmax_topk_v2 chooses, with their truncated logits: of every residue modulo 64 the
/// largest exact logit is a candidate (equal ones, also zeros of both signs: the smallest id), and of the
/// candidates the largest truncated one wins, +0 above -0 (equal ones: the smallest id).
fn select_truncated(logits: &[f32], k: usize) -> Vec<(u32, f64)> {
    let mut left: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    left.retain(|(_, v)| *v > f32::NEG_INFINITY);
    let mut chosen = Vec::with_capacity(k);
    while chosen.len() < k {
        let mut candidates: [Option<usize>; 64] = [None; 64];
        for (place, (id, value)) in left.iter().enumerate() {
            let candidate = &mut candidates[*id as usize % 64];
            if candidate.is_none_or(|c: usize| *value > left[c].1) {
                *candidate = Some(place);
            }
        }
        let best = candidates.into_iter().flatten().max_by(|&a, &b| {
            let by_value = truncated(left[a].1).total_cmp(&truncated(left[b].1));
            by_value.then(left[b].0.cmp(&left[a].0))
        });
        chosen.push(match best {
            Some(place) => {
                let (id, value) = left.remove(place);
                (id, f64::from(truncated(value)))
            }
            None => (0, f64::NEG_INFINITY),
        });
    }
    chosen
}

/// Softmax over the chosen truncated logits times `scale`, within 1e-6; where a product is not exact in
/// f32, its rounding enters exponentially and the weight's share of 2^-22 times the largest product comes
/// on top.
fn scaled_weights(chosen: &[(u32, f64)], scale: f32) -> Vec<Element> {
    let product = |v: f64| f64::from(v as f32 * scale);
    let scaled: Vec<(u32, f64)> = chosen.iter().map(|c| (c.0, product(c.1))).collect();
    if scaled.iter().any(|s| s.1.is_nan()) {
        return vec![Element::Free; chosen.len()];
    }
    let pairs = || chosen.iter().zip(&scaled).filter(|(_, s)| s.1.is_finite());
    let rounded = pairs().any(|(c, s)| c.1 * f64::from(scale) != s.1);
    let largest = pairs().fold(0.0_f64, |m, (_, s)| m.max(s.1.abs()));
    let share = if rounded {
        2.0_f64.powi(-22) * largest
    } else {
        0.0
    };
    let near = |w: f64| Element::near(w, if w.is_nan() { 0.0 } else { 1e-6 + share * w });
    weights(&scaled).into_iter().map(near).collect()
}

/// The routing row of the logits from element `logits` on, at element `row` of `routing`
fn truncated_row(call: &Call, logits: usize, row: usize) -> Result<[Region; 2], OracleError> {
    let (experts, k) = (call.count("n_experts")?, call.count("k")?);
    let scale = f32::from_bits(call.word("scale_bits")?);
    let logits = call.floats("logits", logits * 4, experts)?;
    if let Some(id) = logits.iter().position(|l| l.is_nan()) {
        let what = format!("logit of expert {id}");
        return Err(call.contents("logits", what, "a number or an infinity".to_owned(), "NaN"));
    }
    let chosen = select_truncated(&logits, k);
    Ok(routing_row(
        row * 4,
        &chosen,
        scaled_weights(&chosen, scale),
    ))
}

fn softmax_topk_v2(call: &Call) -> Result<Vec<Expected>, OracleError> {
    Ok(vec![Expected {
        buffer: call.index("routing")?,
        regions: truncated_row(call, 0, 0)?.into(),
    }])
}

/// softmax_topk_v2 row by row
fn softmax_topk_batch(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (base, tokens) = (call.count("token_base")?, call.count("n_tokens")?);
    let (from, to) = (call.count("logits_stride")?, call.count("output_stride")?);
    let rows = (base..base + tokens).map(|t| truncated_row(call, t * from, t * to));
    let rows: Vec<[Region; 2]> = rows.collect::<Result<_, _>>()?;
    Ok(vec![Expected {
        buffer: call.index("routing")?,
        regions: rows.into_iter().flatten().collect(),
    }])
}

/// Few distinct values, so that ties occur, half of them in the low bits only.
fn few_values(d: &mut Draft, n: u32) -> Vec<f32> {
    let mut value = || d.rng.below(30) as f32 * 0.5 - 9.0;
    let values: Vec<f32> = (0..n).map(|_| value()).collect();
    let low = values.iter().map(|v| v.to_bits() ^ (d.rng.below(3) * 0x60));
    low.map(f32::from_bits).collect()
}

/// Experts, k and scale.
fn random_selection(d: &mut Draft) -> (u32, u32, f32) {
    let n = d.rng.between(1, 256);
    (
        n,
        d.rng.between(1, n.min(16)),
        d.rng.pick(&[1.0, 0.25, 0.018]),
    )
}

fn softmax_topk_v2_fill(d: &mut Draft, k: u32, scale: f32, logits: &[f32]) {
    softmax_topk_fill(d, k, logits);
    d.set_float("scale_bits", scale);
}

/// Logits whose low 8 bits, or whose residues, decide.
const CLOSE_LOGITS: [Logits; 7] = [
    ("low bits differ, ascending", |i| {
        f32::from_bits(0x4040_0000 + i as u32 % 256)
    }),
    ("low bits differ, descending", |i| {
        f32::from_bits(0x4040_00ff - i as u32 % 256)
    }),
    ("low bits differ, negative", |i| {
        f32::from_bits(0xc040_0000 + (i as u32 * 37) % 256)
    }),
    ("low bits differ within a residue", |i| {
        let low = if i % 64 == 9 { 4 - i as u32 / 64 } else { 0 };
        f32::from_bits(0x4100_0000 + low)
    }),
    ("upper bits differ by one", |i| {
        f32::from_bits(0x3f80_0000 + (i as u32 * 29 % 64) * 0x100 + i as u32 % 7)
    }),
    ("zeros of both signs by residue", |i| {
        if i % 64 % 3 == 0 { 0.0 } else { -0.0 }
    }),
    ("subnormals", |i| f32::from_bits((i as u32 * 91) % 1000)),
];

/// True if no logit is a NaN, which softmax_topk_v2 leaves open.
fn no_nan(make: fn(usize) -> f32) -> bool {
    !(0..256).any(|i| make(i).is_nan())
}

fn softmax_topk_v2_cases(cases: &mut Cases) {
    for (n, k) in [
        (1, 1),
        (2, 1),
        (2, 2),
        (3, 2),
        (16, 16),
        (31, 4),
        (32, 4),
        (33, 5),
        (63, 8),
        (64, 16),
        (65, 8),
        (128, 4),
        (129, 5),
        (256, 1),
        (256, 3),
        (256, 8),
        (255, 15),
        (256, 16),
    ] {
        cases.add(format!("{k} of {n}"), |d| {
            let logits = d.rng.normals(n, 3.0);
            softmax_topk_v2_fill(d, k, 1.0, &logits);
        });
    }
    for (label, make) in LOGITS.into_iter().chain(CLOSE_LOGITS) {
        for (n, k) in [(256, 8), (201, 5), (128, 16)] {
            if no_nan(make) {
                cases.add(format!("{label}, {k} of {n}"), |d| {
                    let logits: Vec<f32> = (0..n).map(make).collect();
                    softmax_topk_v2_fill(d, k, 1.0, &logits);
                });
            }
        }
    }
    for scale in [0.5, 0.022_097_087, 0.018_844_46, 2.0, 1e-30] {
        for (n, k) in [(256, 8), (128, 4)] {
            cases.add(format!("scale {scale:e}, {k} of {n}"), |d| {
                let logits = d.rng.normals(n, 3.0);
                softmax_topk_v2_fill(d, k, scale, &logits);
            });
        }
    }
    cases.add("scale 0", |d| {
        let logits = d.rng.normals(40, 3.0);
        softmax_topk_v2_fill(d, 5, 0.0, &logits);
    });
    cases.add("Gemma, logits of hundreds", |d| {
        let logits = d.rng.normals(128, 400.0);
        softmax_topk_v2_fill(d, 8, 0.018_844_46, &logits);
    });
    for (value, id) in [(0.0, 64), (-0.0, 0)] {
        cases.add(format!("{value:?} among zeros of the other sign"), |d| {
            let mut logits = [-value; 130];
            logits[id] = value;
            softmax_topk_v2_fill(d, 4, 1.0, &logits);
        });
    }
}

/// What a case of softmax_topk_batch is made of.
#[derive(Clone, Copy)]
struct Selection {
    experts: u32,
    k: u32,
    scale: f32,
    base: u32,
    /// elements beyond a dense row of logits and routing
    gaps: [u32; 2],
}

/// `logits` are those of the tokens from `base` on, without gaps.
fn softmax_topk_batch_fill(d: &mut Draft, shape: Selection, logits: &[f32]) {
    let Selection {
        experts, k, base, ..
    } = shape;
    let (from, to) = (experts + shape.gaps[0], 2 * k + shape.gaps[1]);
    d.set_all(&[
        ("n_experts", experts),
        ("k", k),
        ("token_base", base),
        ("n_tokens", logits.len() as u32 / experts),
        ("logits_stride", from),
        ("output_stride", to),
    ]);
    d.set_float("scale_bits", shape.scale);
    let mut rows = Vec::new();
    for (t, row) in logits.chunks_exact(experts as usize).enumerate() {
        rows.resize(t * from as usize, f32::INFINITY);
        rows.extend(row);
    }
    d.read_floats("logits", (base * from) as usize * 4, &rows);
    d.write("routing");
}

fn softmax_topk_batch_cases(cases: &mut Cases) {
    let plain = Selection {
        experts: 64,
        k: 4,
        scale: 1.0,
        base: 0,
        gaps: [0; 2],
    };
    for (tokens, experts, k, base, gaps) in [
        (1, 1, 1, 0, [0, 0]),
        (1, 2, 2, 1, [1, 1]),
        (3, 5, 2, 0, [0, 0]),
        (2, 31, 3, 2, [3, 0]),
        (5, 33, 1, 1, [0, 14]),
        (7, 64, 4, 0, [0, 0]),
        (4, 65, 16, 3, [7, 5]),
        (9, 128, 8, 0, [0, 0]),
        (3, 255, 15, 5, [1, 2]),
        (6, 256, 8, 0, [0, 0]),
        (2, 256, 16, 1, [64, 0]),
        (33, 32, 4, 0, [0, 0]),
        (65, 16, 1, 64, [0, 6]),
    ] {
        cases.add(
            format!("{tokens} tokens from {base}, {k} of {experts}, gaps {gaps:?}"),
            |d| {
                let logits = d.rng.normals((tokens * experts) as usize, 3.0);
                let shape = Selection {
                    experts,
                    k,
                    base,
                    gaps,
                    ..plain
                };
                softmax_topk_batch_fill(d, shape, &logits);
            },
        );
    }
    for (label, make) in LOGITS.into_iter().chain(CLOSE_LOGITS) {
        if no_nan(make) {
            cases.add(format!("second of three tokens: {label}"), |d| {
                let mut logits = d.rng.normals(3 * 201, 2.0);
                (0..201).for_each(|i| logits[201 + i] = make(i));
                let shape = Selection {
                    experts: 201,
                    k: 5,
                    base: 1,
                    gaps: [2, 3],
                    ..plain
                };
                softmax_topk_batch_fill(d, shape, &logits);
            });
        }
    }
    for scale in [0.5, 0.018_844_46, 2.0] {
        cases.add(format!("scale {scale}"), |d| {
            let logits = d.rng.normals(3 * 64, 20.0);
            softmax_topk_batch_fill(d, Selection { scale, ..plain }, &logits);
        });
    }
    for (k, output) in [(8, 0), (1, 14)] {
        cases.heavy(format!("Qwen3.6, 512 tokens, {k} of 256"), |d| {
            let logits = d.rng.normals(512 * 256, 3.0);
            let shape = Selection {
                experts: 256,
                k,
                base: 128,
                gaps: [0, output],
                ..plain
            };
            softmax_topk_batch_fill(d, shape, &logits);
        });
    }
}

/// y[t,r] = sum over c of weights[r,c] * x[t,c], within 4e-6 of the sum of magnitudes plus 1e-6
fn router_f32_batch(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (m, k) = (call.count("m")?, call.count("k")?);
    let (from, to) = (call.count("stride_x")?, call.count("stride_y")?);
    let weights = call.doubles("weights", 0, m * k)?;
    let row = |t: usize| -> Result<Region, OracleError> {
        let x = call.doubles("x", t * from * 4, k)?;
        let elements = weights.par_chunks(k).map(|row| {
            let (value, magnitude) = product(row, &x);
            Element::near_unless_overflow(value, 4e-6 * magnitude + 1e-6, magnitude)
        });
        Ok(Region {
            start: t * to * 4,
            want: Want::Floats(elements.collect()),
        })
    };
    Ok(vec![Expected {
        buffer: call.index("y")?,
        regions: (0..call.count("n_tokens")?)
            .map(row)
            .collect::<Result<_, _>>()?,
    }])
}

/// What a case of router_f32_batch is made of.
#[derive(Clone, Copy)]
struct Router {
    m: u32,
    k: u32,
    tokens: u32,
    /// elements beyond a dense row of x and y
    gaps: [u32; 2],
    x: Fill,
    weights: Fill,
}

fn router_f32_batch_fill(d: &mut Draft, shape: Router) {
    let Router { m, k, tokens, .. } = shape;
    let (from, to) = (k + shape.gaps[0], m + shape.gaps[1]);
    d.set_all(&[("m", m), ("k", k), ("n_tokens", tokens)]);
    d.set_all(&[("stride_x", from), ("stride_y", to)]);
    let x = shape.x.rows(&mut d.rng, tokens, k, from);
    d.read_floats("x", 0, &x);
    let weights = shape.weights.make(&mut d.rng, (m * k) as usize);
    d.read_floats("weights", 0, &weights);
    d.write("y");
}

fn router_f32_batch_cases(cases: &mut Cases) {
    let plain = Router {
        m: 7,
        k: 100,
        tokens: 3,
        gaps: [0; 2],
        x: Fill::Normal(1.0),
        weights: Fill::Normal(0.5),
    };
    let mut add =
        |label: &str, shape: Router| cases.add(label, |d| router_f32_batch_fill(d, shape));
    for (m, k, tokens, gaps) in [
        (1, 4, 1, [0, 0]),
        (1, 8, 2, [4, 1]),
        (2, 12, 3, [0, 0]),
        (3, 60, 1, [0, 2]),
        (5, 64, 7, [8, 0]),
        (8, 68, 8, [0, 0]),
        (9, 124, 9, [12, 7]),
        (17, 128, 17, [0, 0]),
        (33, 132, 5, [4, 3]),
        (64, 256, 4, [0, 0]),
        (65, 260, 3, [0, 0]),
        (129, 36, 6, [0, 1]),
        (1, 2048, 9, [0, 0]),
        (8, 2048, 2, [0, 0]),
        (2, 1028, 33, [0, 0]),
        (4, 16, 130, [0, 0]),
        (8, 16, 9, [0, 0]),
        (32, 132, 32, [0, 0]),
        (41, 260, 39, [4, 3]),
        (9, 64, 9, [0, 0]),
        (64, 64, 32, [0, 0]),
        (65, 192, 33, [4, 3]),
        (63, 128, 31, [0, 1]),
        (128, 320, 64, [0, 0]),
        (8, 192, 65, [0, 0]),
        (5, 64, 66, [8, 1]),
        (1, 64, 67, [0, 0]),
        (9, 32, 129, [0, 0]),
        (128, 32, 192, [0, 0]),
        (127, 96, 191, [4, 1]),
        (129, 160, 193, [0, 3]),
        (40, 48, 150, [0, 0]),
        (127, 256, 79, [0, 1]),
        (129, 192, 161, [4, 3]),
        (256, 64, 85, [0, 0]),
        (130, 1024, 100, [0, 0]),
    ] {
        let shape = Router {
            m,
            k,
            tokens,
            gaps,
            ..plain
        };
        add(&format!("{m} x {k}, {tokens} tokens, gaps {gaps:?}"), shape);
    }
    for (label, x, weights) in [
        ("x zero", Fill::Equal(0.0), plain.weights),
        ("cancelling", Fill::Alternating(1.0), Fill::Equal(0.3)),
        ("x huge", Fill::Normal(1e30), plain.weights),
        ("x tiny", Fill::Normal(1e-30), plain.weights),
        ("products overflow", Fill::Normal(1e25), Fill::Normal(1e25)),
        (
            "a NaN in the last token",
            Fill::One(2, f32::NAN),
            plain.weights,
        ),
        (
            "an infinity in the last token",
            Fill::One(2, f32::INFINITY),
            plain.weights,
        ),
        ("a NaN in the last row", plain.x, Fill::One(1, f32::NAN)),
        (
            "an infinity in the last row",
            plain.x,
            Fill::One(1, f32::NEG_INFINITY),
        ),
    ] {
        add(
            label,
            Router {
                x,
                weights,
                ..plain
            },
        );
    }
    // Where products may be formed in several parts.
    let tile = Router {
        m: 33,
        k: 128,
        tokens: 17,
        gaps: [4, 1],
        ..plain
    };
    let large_tile = Router {
        m: 130,
        k: 96,
        tokens: 131,
        gaps: [0, 3],
        ..plain
    };
    let wide_tile = Router {
        k: 192,
        ..large_tile
    };
    for (label, x, weights) in [
        ("zero", Fill::Equal(0.0), tile.weights),
        ("cancelling", Fill::Alternating(1.0), Fill::Equal(0.3)),
        ("positive", Fill::Equal(1.3), Fill::Equal(0.7)),
        ("large", Fill::Normal(60.0), Fill::Normal(40.0)),
        ("beyond binary16", Fill::Normal(1.0), Fill::One(9, 7e4)),
        ("huge", Fill::Normal(1e30), tile.weights),
        ("tiny", Fill::Normal(1e-30), tile.weights),
        ("tiny with huge", Fill::Normal(1e-30), Fill::Normal(1e30)),
        ("below binary16", Fill::Normal(1e-7), Fill::Normal(50.0)),
        ("products overflow", Fill::Normal(1e25), Fill::Normal(1e25)),
        (
            "NaN in the last token",
            Fill::One(5, f32::NAN),
            tile.weights,
        ),
        ("NaN everywhere", Fill::Sprinkled(f32::NAN), tile.weights),
        (
            "infinity in every token",
            Fill::One(5, f32::INFINITY),
            tile.weights,
        ),
        ("NaN in the last row", tile.x, Fill::One(70, f32::NAN)),
        (
            "infinity in the last row",
            tile.x,
            Fill::One(70, f32::NEG_INFINITY),
        ),
    ] {
        let shape = Router { x, weights, ..tile };
        add(&format!("tile, {label}"), shape);
        let shape = Router {
            x,
            weights,
            ..large_tile
        };
        add(&format!("large tile, {label}"), shape);
        let shape = Router {
            x,
            weights,
            ..wide_tile
        };
        add(&format!("wide tile, {label}"), shape);
    }
    for (m, tokens) in [(256, 128), (1, 512)] {
        cases.heavy(format!("Qwen3.6, {m} rows, {tokens} tokens"), |d| {
            let shape = Router {
                m,
                k: 2048,
                tokens,
                ..plain
            };
            router_f32_batch_fill(d, shape);
        });
    }
}

/// counts[e] = number of cells of the view that hold e
fn count_experts(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (cells, rows) = (call.count("ne00")?, call.count("ne01")?);
    let strides = [call.count("nb00")?, call.count("nb01")?];
    let offset = call.count("a_offset")?;
    let mut counts = vec![0_u32; call.count("n_experts")?];
    let last = offset + (rows - 1) * strides[1] + (cells - 1) * strides[0];
    let words = call.integers("routing", offset, last + 1 - offset)?;
    for row in 0..rows {
        for cell in 0..cells {
            let id = words[row * strides[1] + cell * strides[0]];
            if let Some(count) = counts.get_mut(id as usize) {
                *count += 1;
            }
        }
    }
    Ok(vec![words_at(call, "counts", 0, &counts)?])
}

/// Words of `buffer` from element `start` on, exactly.
fn words_at(
    call: &Call,
    buffer: &str,
    start: usize,
    words: &[u32],
) -> Result<Expected, OracleError> {
    Ok(Expected {
        buffer: call.index(buffer)?,
        regions: vec![Region {
            start: start * 4,
            want: Want::Bytes(integer_bytes(words)),
        }],
    })
}

/// What a case of count_experts is made of.
#[derive(Clone, Copy)]
struct View {
    cells: u32,
    rows: u32,
    /// between cells and rows
    strides: [u32; 2],
    offset: u32,
    experts: u32,
}

/// Cells get the id that `id` makes for their place; words outside the view are id 0, which is wrong to
/// count.
fn count_experts_fill(d: &mut Draft, view: View, id: impl Fn(&mut Draft, u32) -> u32) {
    let View {
        cells,
        rows,
        strides: [cell_stride, row_stride],
        offset,
        experts,
    } = view;
    d.set_all(&[
        ("ne00", cells),
        ("ne01", rows),
        ("nb00", cell_stride),
        ("nb01", row_stride),
        ("a_offset", offset),
        ("n_experts", experts),
    ]);
    let len = offset + (rows - 1) * row_stride + (cells - 1) * cell_stride + 1;
    let mut words = vec![0; len as usize];
    for row in 0..rows {
        for cell in 0..cells {
            let place = offset + row * row_stride + cell * cell_stride;
            words[place as usize] = id(d, row * cells + cell);
        }
    }
    d.read_integers("routing", &words);
    d.write("counts");
}

fn count_experts_cases(cases: &mut Cases) {
    for (cells, rows, strides, offset, experts) in [
        (1, 1, [1, 1], 0, 1),
        (1, 1, [0, 0], 3, 2),
        (2, 1, [1, 0], 0, 0),
        (8, 1, [1, 16], 0, 256),
        (3, 5, [1, 6], 0, 7),
        (4, 63, [1, 8], 2, 32),
        (4, 64, [1, 8], 2, 33),
        (4, 65, [1, 9], 1, 63),
        (8, 33, [1, 48], 16, 64),
        (2, 128, [3, 7], 5, 65),
        (1, 257, [1, 1], 0, 128),
        (256, 2, [1, 256], 0, 255),
        (257, 3, [1, 300], 7, 256),
        (1025, 3, [1, 1025], 0, 33),
        (8, 257, [1, 8], 0, 256),
        (8, 100, [1, 16], 0, 256),
        // overlapping strides
        (5, 6, [1, 2], 0, 9),
        (5, 6, [2, 1], 0, 9),
        (4, 9, [0, 3], 1, 5),
        (4, 9, [1, 0], 1, 5),
    ] {
        let view = View {
            cells,
            rows,
            strides,
            offset,
            experts,
        };
        cases.add(
            format!("{rows} rows of {cells}, strides {strides:?}, {experts} experts"),
            |d| count_experts_fill(d, view, |d, _| d.rng.below(experts + experts / 8 + 1)),
        );
    }
    let view = View {
        cells: 8,
        rows: 40,
        strides: [1, 20],
        offset: 4,
        experts: 64,
    };
    let mut add = |label: &str, id: fn(&mut Draft, u32) -> u32| {
        cases.add(label, |d| count_experts_fill(d, view, id));
    };
    add("all name one expert", |_, _| 37);
    add("all name the last expert", |_, _| 63);
    add("all are out of range", |_, place| 64 + place);
    add("the largest ids", |_, place| u32::MAX - place);
    add("round robin", |_, place| place % 64);
    add("every second expert is empty", |d, _| 2 * d.rng.below(32));
    cases.heavy("layer 17 of 40 layers, 512 tokens, 8 of 256", |d| {
        let view = View {
            cells: 8,
            rows: 512,
            strides: [1, 16 * 40],
            offset: 17 * 16,
            experts: 256,
        };
        count_experts_fill(d, view, |d, _| d.rng.below(256));
    });
}

/// Blocks of up to this many routes.
const BLOCK: usize = 8;

/// Counts, block count and grids exactly; the list of an expert as distinct routes of its own, in any
/// order; the blocks of an expert consecutive and ascending, the experts in any order.
fn moe_route_pack(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (tokens, experts, k) = (
        call.count("n_tokens")?,
        call.count("n_experts")?,
        call.count("k")?,
    );
    let (stride, capacity) = (call.count("routing_stride")?, call.count("ids_stride")?);
    let base = call.count("routing_token_base")?;
    let mut routes = vec![Vec::new(); experts];
    for t in 0..tokens {
        let ids = call.integers("routing", (base + t) * stride, k)?;
        for (slot, id) in ids.into_iter().enumerate() {
            if let Some(list) = routes.get_mut(id as usize) {
                list.push((t * k + slot) as u32);
            }
        }
    }
    let counts: Vec<usize> = routes.iter().map(|l| l.len().min(capacity)).collect();
    let words: Vec<u32> = counts.iter().map(|c| *c as u32).collect();
    let lists = routes.into_iter().zip(&counts).enumerate();
    let lists = lists.filter(|(_, (_, count))| **count > 0);
    let lists = lists.map(|(e, (list, count))| Region {
        start: e * capacity * 4,
        want: Want::Check(list_check(list, *count)),
    });
    let blocks: Vec<usize> = counts.iter().map(|c| c.div_ceil(BLOCK)).collect();
    let active: usize = blocks.iter().sum();
    let mut regions = vec![Region {
        start: active * 4,
        want: Want::Bytes(vec![0xff; (tokens * k - active) * 4]),
    }];
    if active > 0 {
        regions.push(Region {
            start: 0,
            want: Want::Check(blocks_check(blocks)),
        });
    }
    let active = active as u32;
    let (gate_up, down) = (
        call.word("gate_up_workgroups_x")?,
        call.word("down_workgroups_x")?,
    );
    Ok(vec![
        words_at(call, "counts", 0, &words)?,
        Expected {
            buffer: call.index("ids")?,
            regions: lists.collect(),
        },
        words_at(call, "active_block_count", 0, &[active])?,
        Expected {
            buffer: call.index("active_blocks")?,
            regions,
        },
        words_at(
            call,
            "dispatch_args",
            0,
            &[gate_up, active, 1, down, active, 1],
        )?,
    ])
}

/// `count` distinct words of `list`.
fn list_check(list: Vec<u32>, count: usize) -> Check {
    let sample = integer_bytes(&list[..count]);
    let allowed: BTreeSet<u32> = list.into_iter().collect();
    let rule = "distinct routes that name the expert";
    Check::new(rule, sample, move |bytes, _| {
        let mut outcome = Outcome::default();
        let mut seen = BTreeSet::new();
        for (i, route) in words_of(bytes).enumerate() {
            let good = allowed.contains(&route) && seen.insert(route);
            outcome.exact(i, good, || {
                let wanted = "a route of the expert that is not in the list yet";
                (wanted.to_owned(), route.to_string())
            });
        }
        outcome
    })
}

/// The entries of all experts, each with `blocks[e]` blocks.
fn blocks_check(blocks: Vec<usize>) -> Check {
    let entry = |e: usize, b: usize| (e + (b << 16)) as u32;
    let runs = blocks.iter().enumerate();
    let entries = runs.flat_map(|(e, count)| (0..*count).map(move |b| entry(e, b)));
    let sample = integer_bytes(&entries.collect::<Vec<u32>>());
    let rule = "the blocks of every expert with routes, consecutive and ascending";
    Check::new(rule, sample, move |bytes, _| {
        let mut outcome = Outcome::default();
        let mut missing: BTreeSet<usize> = (0..blocks.len()).filter(|&e| blocks[e] > 0).collect();
        let mut words = words_of(bytes).enumerate().peekable();
        while let Some((i, word)) = words.next() {
            let e = word as usize & 0xffff;
            let good = word >> 16 == 0 && missing.remove(&e);
            outcome.exact(i, good, || {
                let wanted = "block 0 of an expert that has routes and no entry yet";
                (wanted.to_owned(), format!("{word:#x}"))
            });
            let rest = if good { blocks[e] } else { 1 };
            for (b, (i, word)) in (1..rest).zip(&mut words) {
                outcome.exact(i, word == entry(e, b), || {
                    (format!("{:#x}", entry(e, b)), format!("{word:#x}"))
                });
            }
        }
        outcome
    })
}

/// What a case of moe_route_pack is made of.
#[derive(Clone, Copy)]
struct Pack {
    tokens: u32,
    experts: u32,
    k: u32,
    /// words beyond the ids of a row
    gap: u32,
    /// ids_stride
    capacity: u32,
    base: u32,
}

/// Route r goes to the expert that `id` makes for it.
fn moe_route_pack_fill(d: &mut Draft, pack: Pack, id: impl Fn(&mut Draft, u32) -> u32) {
    let Pack {
        tokens, k, base, ..
    } = pack;
    let stride = k + pack.gap;
    d.set_all(&[
        ("n_tokens", tokens),
        ("n_experts", pack.experts),
        ("k", k),
        ("routing_stride", stride),
        ("ids_stride", pack.capacity),
        ("gate_up_workgroups_x", 128),
        ("down_workgroups_x", 512),
        ("routing_token_base", base),
    ]);
    let mut words = Vec::new();
    for t in 0..tokens {
        // Between the ids are those of expert 0, which are wrong to read.
        words.resize((t * stride) as usize, 0);
        words.extend((0..k).map(|slot| id(d, t * k + slot)));
    }
    d.read(
        "routing",
        (base * stride) as usize * 4,
        &integer_bytes(&words),
    );
    for buffer in [
        "counts",
        "ids",
        "active_block_count",
        "active_blocks",
        "dispatch_args",
    ] {
        d.write(buffer);
    }
}

fn moe_route_pack_cases(cases: &mut Cases) {
    for (tokens, experts, k, capacity) in [
        (1, 1, 1, 1),
        (1, 256, 8, 1),
        (1, 2, 2, 3),
        (3, 5, 2, 3),
        (7, 3, 2, 14),
        (8, 4, 2, 16),
        (9, 1, 1, 9),
        (16, 2, 1, 17),
        (17, 2, 2, 34),
        (31, 7, 3, 31),
        (33, 32, 4, 40),
        (64, 63, 1, 64),
        (64, 64, 8, 64),
        (65, 65, 5, 70),
        (100, 255, 3, 100),
        (130, 256, 8, 130),
        (257, 16, 2, 300),
        (1030, 40, 5, 200),
    ] {
        for (base, gap) in [(0, k), (3, 2 * k + 1)] {
            let pack = Pack {
                tokens,
                experts,
                k,
                gap,
                capacity,
                base,
            };
            cases.add(
                format!("{tokens} tokens from {base}, {k} of {experts}, lists of {capacity}"),
                |d| moe_route_pack_fill(d, pack, |d, _| d.rng.below(experts)),
            );
        }
    }
    let pack = Pack {
        tokens: 40,
        experts: 64,
        k: 4,
        gap: 4,
        capacity: 160,
        base: 1,
    };
    let mut add = |label: &str, pack: Pack, id: fn(&mut Draft, u32) -> u32| {
        cases.add(label, |d| moe_route_pack_fill(d, pack, id));
    };
    add("all to one expert", pack, |_, _| 37);
    add("all to the last expert", pack, |_, _| 63);
    add("none in range", pack, |_, r| 64 + r);
    add("some out of range", pack, |d, _| d.rng.below(90));
    add("the largest ids", pack, |_, r| u32::MAX - r % 3);
    add("round robin", pack, |_, r| r % 64);
    add("one token to one expert each", pack, |_, r| r / 4);
    add("every second expert is empty", pack, |d, _| {
        2 * d.rng.below(32)
    });
    let dense = Pack { gap: 0, ..pack };
    add("ids only", dense, |d, _| d.rng.below(64));
    for (capacity, label) in [(1, "1"), (7, "7"), (8, "8"), (9, "9"), (100, "100")] {
        let small = Pack { capacity, ..pack };
        add(
            &format!("lists of {label}, all to one expert"),
            small,
            |_, _| 5,
        );
        add(&format!("lists of {label}, two experts"), small, |_, r| {
            r % 3
        });
    }
    for (tokens, k) in [(512, 8), (4096, 1)] {
        cases.heavy(format!("Qwen3.6, {tokens} tokens, {k} of 256"), |d| {
            let pack = Pack {
                tokens,
                experts: 256,
                k,
                gap: 16 - k,
                capacity: tokens,
                base: 100,
            };
            moe_route_pack_fill(d, pack, |d, _| d.rng.below(256));
        });
    }
}

/// accum[i] + the weighted sum of rows of `src`, `stride` apart, within 2e-6 of the sum of magnitudes
fn combine(accum: &[f64], weights: &[f64], src: &[f64], stride: usize) -> Vec<Element> {
    let element = |(i, old): (usize, &f64)| {
        let terms = weights
            .iter()
            .enumerate()
            .map(|(j, w)| w * src[j * stride + i]);
        let (sum, magnitude) = terms.fold((0.0, 0.0), |(s, m), t| (s + t, m + f64::abs(t)));
        let magnitude = old.abs() + magnitude;
        Element::near_unless_overflow(old + sum, 2e-6 * magnitude, magnitude)
    };
    accum.iter().enumerate().map(element).collect()
}

/// accum[i] += sum over j of w_j * src[j * src_stride + i]
fn moe_weighted_acc(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (n, used) = (call.count("n")?, call.count("n_used")?);
    let stride = call.count("src_stride")?;
    let accum = call.doubles("accum", 0, n)?;
    let weights = call.doubles("routing", 4 * used, used)?;
    let src = call.doubles("src", 0, (used - 1) * stride + n)?;
    let elements = combine(&accum, &weights, &src, stride);
    Ok(vec![Expected::floats(call.index("accum")?, 0, elements)])
}

/// accum[accum base + t, i] += sum over j of w_j * src[t * n_used + j, i], with the weights of row
/// routing base + t
fn moe_weighted_acc_batch(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (width, tokens) = (call.count("hidden_dim")?, call.count("n_tokens")?);
    let (used, stride) = (call.count("n_used")?, call.count("routing_stride")?);
    let first = call.count("routing_token_base")?;
    let start = call.count("accum_token_base")? * width * 4;
    let row = |t: usize| -> Result<Vec<Element>, OracleError> {
        let accum = call.doubles("accum", start + t * width * 4, width)?;
        let weights = call.doubles("routing", ((first + t) * stride + used) * 4, used)?;
        let src = call.doubles("src", t * used * width * 4, used * width)?;
        Ok(combine(&accum, &weights, &src, width))
    };
    let rows: Vec<Vec<Element>> = (0..tokens)
        .into_par_iter()
        .map(row)
        .collect::<Result<_, _>>()?;
    let elements = rows.into_iter().flatten().collect();
    Ok(vec![Expected::floats(
        call.index("accum")?,
        start,
        elements,
    )])
}

/// A routing row whose ids are not read, so that they may be anything.
fn weights_row(d: &mut Draft, used: u32) -> Vec<u32> {
    let ids = (0..used).map(|j| if j % 2 == 0 { u32::MAX - j } else { j });
    let weights = d.rng.normals(used as usize, 0.4);
    ids.chain(weights.iter().map(|w| w.to_bits())).collect()
}

/// What a case of moe_weighted_acc_batch is made of.
#[derive(Clone, Copy)]
struct Combine {
    width: u32,
    tokens: u32,
    used: u32,
    /// words beyond a dense routing row
    gap: u32,
    /// first rows of routing and accum
    bases: [u32; 2],
    src: Fill,
}

fn moe_weighted_acc_batch_fill(d: &mut Draft, shape: Combine) {
    let Combine {
        width,
        tokens,
        used,
        bases: [routing_base, accum_base],
        ..
    } = shape;
    let stride = 2 * used + shape.gap;
    d.set_all(&[
        ("hidden_dim", width),
        ("n_tokens", tokens),
        ("n_used", used),
        ("routing_stride", stride),
        ("routing_token_base", routing_base),
        ("accum_token_base", accum_base),
    ]);
    let src = (shape.src).make(&mut d.rng, (tokens * used * width) as usize);
    d.read_floats("src", 0, &src);
    let accum = d.rng.normals((tokens * width) as usize, 2.0);
    d.update("accum", (accum_base * width) as usize * 4, &accum);
    let mut words = Vec::new();
    for t in 0..tokens {
        words.resize((t * stride) as usize, u32::MAX);
        words.extend(weights_row(d, used));
    }
    let start = (routing_base * stride) as usize * 4;
    d.read("routing", start, &integer_bytes(&words));
}

fn moe_weighted_acc_batch_cases(cases: &mut Cases) {
    let plain = Combine {
        width: 90,
        tokens: 3,
        used: 3,
        gap: 1,
        bases: [1, 2],
        src: Fill::Normal(1.0),
    };
    let mut add = |label: String, shape: Combine| {
        cases.add(label, |d| moe_weighted_acc_batch_fill(d, shape));
    };
    for (width, tokens, used, gap, bases) in [
        (1, 1, 1, 0, [0, 0]),
        (2, 3, 1, 5, [1, 0]),
        (3, 2, 2, 0, [0, 1]),
        (63, 5, 4, 0, [0, 0]),
        (64, 3, 8, 0, [2, 3]),
        (65, 7, 3, 1, [5, 1]),
        (127, 2, 8, 16, [0, 0]),
        (257, 4, 5, 0, [1, 1]),
        (1001, 2, 2, 3, [0, 4]),
        (2048, 2, 8, 0, [64, 0]),
        (5, 66, 4, 0, [0, 65]),
        (300, 1, 64, 0, [0, 0]),
    ] {
        let shape = Combine {
            width,
            tokens,
            used,
            gap,
            bases,
            ..plain
        };
        let label =
            format!("{tokens} tokens of {width}, {used} experts, gap {gap}, rows {bases:?}");
        add(label, shape);
    }
    for (label, src) in [
        ("zeros", Fill::Equal(0.0)),
        ("all equal", Fill::Equal(0.3)),
        ("huge", Fill::Normal(1e30)),
        ("tiny", Fill::Normal(1e-35)),
        ("NaN", Fill::Sprinkled(f32::NAN)),
        ("infinity", Fill::Sprinkled(f32::INFINITY)),
    ] {
        add(format!("src: {label}"), Combine { src, ..plain });
    }
    for (label, weights) in [
        ("zero", [0.0, -0.0, 0.0]),
        ("cancelling", [0.5, -0.5, 1e-7]),
        ("NaN", [0.5, f32::NAN, 0.1]),
    ] {
        cases.add(format!("weights of the second token: {label}"), |d| {
            moe_weighted_acc_batch_fill(d, plain);
            d.patch("routing", (2 * 7 + 3) * 4, &float_bytes(&weights));
        });
    }
    cases.heavy("Qwen3.6, 512 tokens of 2048, 8 experts", |d| {
        let shape = Combine {
            width: 2048,
            tokens: 512,
            used: 8,
            gap: 0,
            bases: [128, 128],
            ..plain
        };
        moe_weighted_acc_batch_fill(d, shape);
    });
}

/// down[s, i] * scales[routing[s]], one f32 multiplication
fn per_expert_scale(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (width, slots) = (call.count("hidden_dim")?, call.count("n_used")?);
    let scales = call.floats("scales", 0, call.count("n_experts")?)?;
    let experts = experts(call, slots)?;
    let down = call.floats("down", 0, slots * width)?;
    let rows = down.chunks_exact(width).zip(experts);
    let values = rows.flat_map(|(row, e)| {
        let scale = scales[e];
        row.iter().map(move |v| v * scale)
    });
    exact(call, "down", values)
}

fn per_expert_scale_fill(d: &mut Draft, width: u32, routing: &[u32], scales: &[f32], down: Fill) {
    d.set_all(&[
        ("hidden_dim", width),
        ("n_used", routing.len() as u32),
        ("n_experts", scales.len() as u32),
    ]);
    let down = down.make(&mut d.rng, width as usize * routing.len());
    d.update("down", 0, &down);
    d.read_floats("scales", 0, scales);
    d.read_integers("routing", routing);
}

fn per_expert_scale_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    for (width, slots, experts) in [
        (1, 1, 1),
        (2, 1, 3),
        (3, 2, 2),
        (63, 4, 8),
        (64, 8, 128),
        (65, 3, 5),
        (127, 8, 32),
        (257, 5, 64),
        (1001, 2, 7),
        (2816, 8, 128),
        (7, 100, 256),
    ] {
        cases.add(
            format!("{slots} slots of {width}, {experts} experts"),
            |d| {
                let scales = d.rng.normals(experts as usize, 1.5);
                let routing: Vec<u32> = (0..slots).map(|_| d.rng.below(experts)).collect();
                per_expert_scale_fill(d, width, &routing, &scales, normal);
            },
        );
    }
    let scales = [0.0, -0.0, 1.0, -3.0, 1e-40, 1e38, f32::INFINITY, f32::NAN];
    let routing: Vec<u32> = (0..8).rev().collect();
    for (label, down) in [
        ("normal", normal),
        ("subnormal", Fill::Normal(1e-39)),
        ("NaN", Fill::Sprinkled(f32::NAN)),
        ("infinity", Fill::Sprinkled(f32::INFINITY)),
    ] {
        cases.add(format!("scales of every kind, down {label}"), |d| {
            per_expert_scale_fill(d, 70, &routing, &scales, down);
        });
    }
    cases.add("one expert in every slot", |d| {
        per_expert_scale_fill(d, 66, &[3, 3, 3], &scales, normal);
    });
    cases.heavy("64 slots of 5376", |d| {
        let scales = d.rng.normals(128, 1.0);
        let routing: Vec<u32> = (0..64).map(|s| s * 2).collect();
        per_expert_scale_fill(d, 5376, &routing, &scales, normal);
    });
}

fn moe_weighted_acc_fill(d: &mut Draft, n: u32, used: u32, stride: u32, src: Fill) {
    d.set_all(&[("n", n), ("n_used", used), ("src_stride", stride)]);
    let rows = src.rows(&mut d.rng, used, n, stride);
    d.read_floats("src", 0, &rows);
    let accum = d.rng.normals(n as usize, 2.0);
    d.update("accum", 0, &accum);
    let row = weights_row(d, used);
    d.read_integers("routing", &row);
}

fn moe_weighted_acc_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    for (n, used, gap) in [
        (1, 1, 0),
        (2, 1, 5),
        (3, 2, 0),
        (63, 4, 0),
        (64, 8, 0),
        (65, 3, 7),
        (127, 8, 1),
        (257, 5, 0),
        (1001, 2, 3),
        (2048, 8, 0),
        (300, 64, 0),
    ] {
        cases.add(format!("{n} elements of {used} experts, gap {gap}"), |d| {
            moe_weighted_acc_fill(d, n, used, n + gap, normal);
        });
    }
    for (label, src) in [
        ("zeros", Fill::Equal(0.0)),
        ("all equal", Fill::Equal(0.3)),
        ("huge", Fill::Normal(1e30)),
        ("tiny", Fill::Normal(1e-35)),
        ("NaN", Fill::Sprinkled(f32::NAN)),
        ("infinity", Fill::Sprinkled(f32::INFINITY)),
    ] {
        cases.add(format!("src: {label}"), |d| {
            moe_weighted_acc_fill(d, 90, 3, 91, src)
        });
    }
    for (label, weights) in [
        ("zero", [0.0, -0.0, 0.0]),
        ("cancelling", [0.5, -0.5, 1e-7]),
        ("NaN", [0.5, f32::NAN, 0.1]),
    ] {
        cases.add(format!("weights: {label}"), |d| {
            moe_weighted_acc_fill(d, 75, 3, 75, normal);
            d.patch("routing", 12, &float_bytes(&weights));
        });
    }
    cases.heavy("8 experts x 262144", |d| {
        moe_weighted_acc_fill(d, 1 << 18, 8, 1 << 18, normal);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_smallest_lane_and_then_to_the_smallest_id() {
        let mut logits = [0.0; 256];
        logits[64] = 1.0;
        logits[1] = 1.0;
        logits[128] = 1.0;
        let ids: Vec<u32> = select(&logits, 4).iter().map(|c| c.0).collect();
        assert_eq!(ids, [64, 128, 1, 0]);
    }

    #[test]
    fn weights_of_infinities_follow_the_contract() {
        let chosen = select(&[f32::INFINITY, 1.0, f32::NAN], 3);
        assert_eq!(chosen[2], (0, f64::NEG_INFINITY));
        let w = weights(&chosen);
        assert!(w[0].is_nan() && w[1] == 0.0 && w[2] == 0.0, "{w:?}");
        let w = weights(&select(&[f32::NEG_INFINITY; 2], 2));
        assert!(w.iter().all(|w| w.is_nan()));
        let w = weights(&select(&[2.0, f32::NEG_INFINITY], 2));
        assert_eq!(w, [1.0, 0.0]);
    }

    #[test]
    fn truncated_ties_go_to_the_smallest_id_across_residues_only() {
        let low = |bits: u32| f32::from_bits(0x4040_0000 + bits);
        let mut logits = [0.0; 130];
        // 70 is above 5 in the low bits only; 69 is above 5 in its residue, exactly.
        (logits[5], logits[69], logits[70]) = (low(1), low(2), low(0xff));
        let ids: Vec<u32> = select_truncated(&logits, 3).iter().map(|c| c.0).collect();
        assert_eq!(ids, [69, 5, 70]);
    }

    #[test]
    fn plus_zero_is_above_minus_zero_across_residues_only() {
        let mut logits = [-0.0; 130];
        (logits[66], logits[3]) = (0.0, 0.0);
        let ids: Vec<u32> = select_truncated(&logits, 3).iter().map(|c| c.0).collect();
        // 66 waits for 2 to be chosen, its equal in the same residue.
        assert_eq!(ids, [3, 0, 1]);
    }
}
