//! Token selection and plain vector addition.

use super::Entry;
use super::elementwise::exact;
use crate::case::{Cases, Draft, Fill};
use crate::{Call, Check, Expected, OracleError, Outcome, Region, Want};

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "vadd",
        reference: vadd,
        cases: vadd_cases,
        random: |d| {
            let n = d.rng.below(300);
            vadd_fill(d, n, Fill::Normal(1.0), Fill::Normal(1e-3));
        },
    },
    Entry {
        name: "argmax",
        reference: argmax,
        cases: argmax_cases,
        random: argmax_random,
    },
];

/// c[i] = a[i] + b[i], one f32 addition
fn vadd(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let n = call.count("n")?;
    let (a, b) = (call.floats("a", 0, n)?, call.floats("b", 0, n)?);
    exact(call, "c", a.iter().zip(&b).map(|(a, b)| a + b))
}

fn vadd_fill(d: &mut Draft, n: u32, a: Fill, b: Fill) {
    d.set("n", n);
    let a = a.make(&mut d.rng, n as usize);
    let b = b.make(&mut d.rng, n as usize);
    d.read_floats("a", 0, &a);
    d.read_floats("b", 0, &b);
    d.write("c");
}

fn vadd_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    for n in [
        0, 1, 2, 3, 5, 63, 64, 65, 127, 255, 256, 257, 1023, 1025, 2048, 5003,
    ] {
        cases.add(format!("n = {n}"), |d| {
            vadd_fill(d, n, normal, Fill::Normal(0.01))
        });
    }
    for (label, a, b) in [
        ("zeros", Fill::Equal(0.0), Fill::Equal(-0.0)),
        ("minus zeros", Fill::Equal(-0.0), Fill::Equal(-0.0)),
        ("cancelling", Fill::Equal(1.5), Fill::Equal(-1.5)),
        ("overflow", Fill::Equal(3e38), Fill::Equal(2e38)),
        ("subnormals", Fill::Normal(1e-39), Fill::Normal(1e-40)),
        ("far apart", Fill::Normal(1e20), Fill::Normal(1e-20)),
        ("NaN", Fill::Sprinkled(f32::NAN), normal),
        ("infinity", Fill::Sprinkled(f32::INFINITY), normal),
        (
            "opposite infinities",
            Fill::Sprinkled(f32::INFINITY),
            Fill::Equal(f32::NEG_INFINITY),
        ),
    ] {
        cases.add(label, |d| vadd_fill(d, 77, a, b));
    }
    for (buffer, owner) in [("c", "a"), ("c", "b"), ("b", "a")] {
        cases.add(format!("{buffer} is {owner}"), |d| {
            vadd_fill(d, 333, normal, normal);
            if buffer == "c" {
                d.own(buffer, owner);
            } else {
                d.alias(buffer, owner);
            }
        });
    }
    cases.add("c, a and b are one", |d| {
        vadd_fill(d, 70, normal, normal);
        d.own("c", "a");
        d.alias("b", "c");
    });
    cases.heavy("2048 tokens x 2880", |d| {
        vadd_fill(d, 2048 * 2880, normal, normal);
    });
}

/// The value that an empty search stores; only greater values are ever selected.
const LOWEST: f32 = -3.4e38;

/// Lowest index of the largest value above [`LOWEST`].
fn lowest_maximum(values: impl Iterator<Item = f32>) -> Option<(usize, f32)> {
    let mut best = None;
    let mut limit = LOWEST;
    for (index, value) in values.enumerate() {
        if value > limit {
            limit = value;
            best = Some((index, value));
        }
    }
    best
}

/// Phase 0: pairs (value, index) of which every one is a start pair or one of the logits, and of which
/// one names the lowest index of the largest logit. Phase 1: the lowest index that is stored with the
/// largest value, 0 if no value qualifies.
fn argmax(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let n = call.count("n")?;
    if call.word("phase")? == 1 {
        let pairs = call.integers("partials", 0, 2 * n)?;
        let best = lowest_maximum(pairs.chunks(2).map(|p| f32::from_bits(p[0])));
        let tied = pairs
            .chunks(2)
            .filter(|p| best.is_some_and(|(_, value)| f32::from_bits(p[0]) == value));
        let index = tied.map(|p| p[1]).min().unwrap_or(0);
        return Ok(vec![Expected {
            buffer: call.index("result")?,
            regions: vec![Region {
                start: 0,
                want: Want::Bytes(index.to_le_bytes().to_vec()),
            }],
        }]);
    }
    let groups = call.count("workgroups")?;
    let logits = call.floats("logits", 0, n)?;
    let best = lowest_maximum(logits.iter().copied());
    let mut sample: Vec<u32> = [LOWEST.to_bits(), 0].repeat(groups);
    if let Some((index, value)) = best {
        sample[0] = value.to_bits();
        sample[1] = index as u32;
    }
    let sample = sample.iter().flat_map(|w| w.to_le_bytes()).collect();
    let check = Check::new(
        "each pair is the start pair or a logit, one is the lowest index of the largest logit",
        sample,
        move |bytes, _| judge_pairs(bytes, &logits, best),
    );
    Ok(vec![Expected {
        buffer: call.index("partials")?,
        regions: vec![Region {
            start: 0,
            want: Want::Check(check),
        }],
    }])
}

/// Judges the pairs of phase 0.
fn judge_pairs(bytes: &[u8], logits: &[f32], best: Option<(usize, f32)>) -> Outcome {
    let mut outcome = Outcome::default();
    let words: Vec<u32> = crate::call::words_of(bytes).collect();
    for (w, pair) in words.chunks_exact(2).enumerate() {
        let value = f32::from_bits(pair[0]);
        let start = pair[0] == LOWEST.to_bits() && pair[1] == 0;
        let logit = logits
            .get(pair[1] as usize)
            .is_some_and(|l| l.to_bits() == pair[0]);
        outcome.exact(2 * w, start || (logit && value > LOWEST), || {
            let wanted = format!("the start pair or a logit with its index in pair {w}");
            (wanted, format!("({value:e}, {})", pair[1]))
        });
    }
    let (wanted_index, wanted) = best.map_or((0, LOWEST), |(i, v)| (i as u32, v));
    let named = words
        .chunks_exact(2)
        .any(|p| p == [wanted.to_bits(), wanted_index]);
    outcome.exact(0, named, || {
        let found = lowest_maximum(words.chunks_exact(2).map(|p| f32::from_bits(p[0])));
        let found = found.map(|(pair, value)| (value, words[2 * pair + 1]));
        let wanted = format!("a pair ({wanted:e}, {wanted_index})");
        (wanted, format!("largest pair {found:?}"))
    });
    outcome
}

fn argmax_logits(d: &mut Draft, groups: u32, logits: &[f32]) {
    d.set_all(&[
        ("n", logits.len() as u32),
        ("phase", 0),
        ("workgroups", groups),
    ]);
    d.read_floats("logits", 0, logits);
    d.write("partials");
    d.write("result");
}

fn argmax_pairs(d: &mut Draft, pairs: &[(f32, u32)]) {
    d.set_all(&[("n", pairs.len() as u32), ("phase", 1), ("workgroups", 1)]);
    let words: Vec<u32> = pairs.iter().flat_map(|p| [p.0.to_bits(), p.1]).collect();
    d.read("logits", 0, &[]);
    d.update_integers("partials", &words);
    d.write("result");
}

/// The number of pairs that hosts ask for.
fn host_groups(n: u32) -> u32 {
    n.div_ceil(64).clamp(1, 512)
}

fn argmax_cases(cases: &mut Cases) {
    for n in [0, 1, 2, 63, 64, 65, 127, 1000, 4097, 32704, 33000] {
        cases.add(format!("logits, n = {n}"), |d| {
            let logits = d.rng.normals(n as usize, 4.0);
            argmax_logits(d, host_groups(n), &logits);
        });
    }
    for (n, groups) in [(1, 7), (0, 3), (100, 1), (1000, 1), (50, 512), (3000, 5)] {
        cases.add(format!("logits, n = {n}, {groups} pairs"), |d| {
            let logits = d.rng.normals(n as usize, 4.0);
            argmax_logits(d, groups, &logits);
        });
    }
    for (label, at) in [("first", 0), ("last", 9999), ("in the middle", 4097)] {
        cases.add(format!("logits, maximum {label}"), |d| {
            let mut logits = d.rng.normals(10_000, 1.0);
            logits[at] = 9.0;
            argmax_logits(d, host_groups(10_000), &logits);
        });
    }
    for (label, tied) in [
        ("in one group", [70, 71, 72]),
        ("in one run of 4096", [1, 64, 4000]),
        ("far apart", [64, 4097, 9000]),
        ("same lane", [130, 194, 258]),
    ] {
        cases.add(format!("logits, ties {label}"), |d| {
            let mut logits = d.rng.normals(10_000, 1.0);
            tied.iter().for_each(|&i: &usize| logits[i] = 5.0);
            argmax_logits(d, host_groups(10_000), &logits);
        });
    }
    for (label, values) in [
        ("all equal", [1.5_f32, 1.5]),
        ("zeros of both signs", [-0.0, 0.0]),
        ("all NaN", [f32::NAN, f32::NAN]),
        ("all -inf", [f32::NEG_INFINITY, f32::NEG_INFINITY]),
        ("none above the floor", [-3.4e38, f32::MIN]),
        ("just above the floor", [-3.4e38, -3.399e38]),
        ("NaN and finite", [f32::NAN, -7.0]),
        ("infinity and NaN", [f32::NAN, f32::INFINITY]),
        ("-inf and finite", [f32::NEG_INFINITY, -1e38]),
        ("all negative", [-3.0, -2.0]),
        ("subnormal", [0.0, 1e-42]),
    ] {
        for n in [1, 5, 300] {
            cases.add(format!("logits, {label}, n = {n}"), |d| {
                let logits: Vec<f32> = (0..n).map(|i| values[usize::from(i % 3 != 0)]).collect();
                argmax_logits(d, host_groups(n), &logits);
            });
        }
        cases.add(format!("pairs, {label}"), |d| {
            let pairs: Vec<(f32, u32)> = (0..70)
                .map(|i| (values[usize::from(i % 3 != 0)], 1000 - 7 * i))
                .collect();
            argmax_pairs(d, &pairs);
        });
    }
    for n in [0, 1, 2, 33, 63, 64, 65, 127, 512, 700] {
        cases.add(format!("pairs, n = {n}"), |d| {
            let order = d.rng.permutation(n);
            let pairs: Vec<(f32, u32)> = order.iter().map(|&i| (d.rng.normal(), i * 11)).collect();
            argmax_pairs(d, &pairs);
        });
    }
    cases.add("pairs, ties in descending order of index", |d| {
        let pairs: Vec<(f32, u32)> = (0..200).map(|i| (2.0, 100_000 - i)).collect();
        argmax_pairs(d, &pairs);
    });
    cases.add("pairs, large indices", |d| {
        argmax_pairs(d, &[(1.0, u32::MAX), (1.0, 0x8000_0000), (0.5, 0)]);
    });
    for n in [151_936, 262_144] {
        cases.heavy(format!("logits, vocabulary {n}"), |d| {
            let logits = d.rng.normals(n as usize, 4.0);
            argmax_logits(d, host_groups(n), &logits);
        });
    }
}

fn argmax_random(d: &mut Draft) {
    let n = d.rng.below(700);
    // Few distinct values, so that ties occur.
    let value = |d: &mut Draft| d.rng.below(40) as f32 - 20.0;
    if d.rng.flip() {
        let logits: Vec<f32> = (0..n).map(|_| value(d)).collect();
        let groups = d.rng.between(1, 9);
        argmax_logits(d, groups, &logits);
    } else {
        let pairs: Vec<(f32, u32)> = (0..n).map(|i| (value(d), i ^ 5)).collect();
        argmax_pairs(d, &pairs);
    }
}
