//! Expert selection and recombination of expert outputs.

use super::Entry;
use crate::case::{Cases, Draft, Fill};
use crate::{Call, Element, Expected, OracleError, Region, Want};

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
        name: "moe_weighted_acc",
        reference: moe_weighted_acc,
        cases: moe_weighted_acc_cases,
        random: |d| {
            let (n, used, gap) = (d.rng.between(1, 150), d.rng.between(1, 6), d.rng.below(3));
            moe_weighted_acc_fill(d, n, used, n + gap, Fill::Normal(1.0));
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

/// Ids exactly, weights within 1e-6 absolute or 1e-5 relative
fn softmax_topk(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (experts, k) = (call.count("n_experts")?, call.count("k")?);
    let chosen = select(&call.floats("logits", 0, experts)?, k);
    let ids = chosen.iter().flat_map(|c| c.0.to_le_bytes()).collect();
    let weights = weights(&chosen);
    let near = |w: f64| Element::near(w, 1e-6_f64.max(1e-5 * w.abs()));
    Ok(vec![Expected {
        buffer: call.index("routing")?,
        regions: vec![
            Region {
                start: 0,
                want: Want::Bytes(ids),
            },
            Region {
                start: 4 * k,
                want: Want::Floats(weights.into_iter().map(near).collect()),
            },
        ],
    }])
}

fn softmax_topk_fill(d: &mut Draft, k: u32, logits: &[f32]) {
    d.set_all(&[("n_experts", logits.len() as u32), ("k", k)]);
    d.read_floats("logits", 0, logits);
    d.write("routing");
}

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
    let minus = f32::NEG_INFINITY;
    let shapes: [(&str, &dyn Fn(usize) -> f32); 19] = [
        ("all equal", &|_| 0.5),
        ("all zero, both signs", &|i| {
            if i % 3 == 0 { -0.0 } else { 0.0 }
        }),
        ("all below -1", &|i| -5.0 - (i * 37 % 101) as f32),
        ("far below -1", &|i| -1e30 * (1.0 + (i * 37 % 101) as f32)),
        ("equal runs", &|i| (i / 5 % 7) as f32),
        ("64 and 1 tie", &|i| {
            if i == 64 || i == 1 { 9.0 } else { 0.0 }
        }),
        ("200, 72 and 8 tie", &|i| {
            if [200, 72, 8].contains(&i) { 3.0 } else { -1.0 }
        }),
        ("same lane ties", &|i| if i % 64 == 5 { 2.0 } else { 1.0 }),
        ("large", &|i| 80.0 + (i * 29 % 97) as f32),
        ("one dominates", &|i| if i == 77 { 500.0 } else { -500.0 }),
        ("tiny differences", &|i| {
            1.0 + (i * 31 % 61) as f32 * f32::EPSILON
        }),
        ("NaN sprinkled", &|i| {
            if i % 5 == 0 {
                f32::NAN
            } else {
                (i * 17 % 43) as f32
            }
        }),
        ("-inf sprinkled", &|i| {
            if i % 2 == 0 {
                minus
            } else {
                -((i * 17 % 43) as f32)
            }
        }),
        ("only three finite", &|i| {
            if [3, 70, 130].contains(&i) {
                i as f32 * 0.01
            } else {
                minus
            }
        }),
        ("only two are not NaN", &|i| {
            if [9, 190].contains(&i) {
                -2.0
            } else {
                f32::NAN
            }
        }),
        ("all -inf", &|_| minus),
        ("all NaN", &|_| f32::NAN),
        ("one +inf", &|i| {
            if i == 100 {
                f32::INFINITY
            } else {
                i as f32 * 0.1
            }
        }),
        ("two +inf", &|i| {
            if i == 100 || i == 40 {
                f32::INFINITY
            } else {
                i as f32 * 0.1
            }
        }),
    ];
    for (label, make) in shapes {
        for (n, k) in [(256, 8), (201, 5)] {
            cases.add(format!("{label}, {k} of {n}"), |d| {
                let logits: Vec<f32> = (0..n).map(make).collect();
                softmax_topk_fill(d, k, &logits);
            });
        }
    }
    cases.add("all -inf, all chosen", |d| {
        softmax_topk_fill(d, 4, &[minus; 4])
    });
}

/// accum[i] += sum over j of w_j * src[j * src_stride + i], within 2e-6 of the sum of magnitudes
fn moe_weighted_acc(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (n, used) = (call.count("n")?, call.count("n_used")?);
    let stride = call.count("src_stride")?;
    let accum = call.doubles("accum", 0, n)?;
    let weights = call.doubles("routing", 4 * used, used)?;
    let src = call.doubles("src", 0, (used - 1) * stride + n)?;
    let element = |(i, old): (usize, &f64)| {
        let terms = weights
            .iter()
            .enumerate()
            .map(|(j, w)| w * src[j * stride + i]);
        let (sum, magnitude) = terms.fold((0.0, 0.0), |(s, m), t| (s + t, m + f64::abs(t)));
        let magnitude = old.abs() + magnitude;
        Element::near_unless_overflow(old + sum, 2e-6 * magnitude, magnitude)
    };
    let elements = accum.iter().enumerate().map(element).collect();
    Ok(vec![Expected::floats(call.index("accum")?, 0, elements)])
}

fn moe_weighted_acc_fill(d: &mut Draft, n: u32, used: u32, stride: u32, src: Fill) {
    d.set_all(&[("n", n), ("n_used", used), ("src_stride", stride)]);
    let mut rows = Vec::new();
    for row in 0..used {
        rows.resize((row * stride) as usize, f32::NAN);
        rows.extend(src.make(&mut d.rng, n as usize));
    }
    d.read_floats("src", 0, &rows);
    let accum = d.rng.normals(n as usize, 2.0);
    d.update("accum", 0, &accum);
    // The ids are not read, so they may be anything.
    let ids = (0..used).map(|j| if j % 2 == 0 { u32::MAX - j } else { j });
    let ids: Vec<u32> = ids.collect();
    let weights = d.rng.normals(used as usize, 0.4);
    let row: Vec<u32> = ids
        .into_iter()
        .chain(weights.iter().map(|w| w.to_bits()))
        .collect();
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
            d.patch("routing", 12, &crate::case::float_bytes(&weights));
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
}
