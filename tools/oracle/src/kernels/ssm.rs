//! Gated delta-net (linear attention) kernels.

use rayon::prelude::*;

use super::Entry;
use super::norm_act::{Norm, SIGMOID_FLOOR, inverse_rms, sigmoid};
use crate::case::{Cases, Draft, Fill};
use crate::{Call, Element, Expected, OracleError, Region, Want};

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "ssm_conv1d",
        reference: |call| conv1d(call, ["input", "output"], 1),
        cases: conv1d_cases,
        random: |d| conv1d_random(d, None),
    },
    Entry {
        name: "ssm_conv1d_batched",
        reference: |call| conv1d(call, ["qkv", "qkv"], call.count("n_tokens")?),
        cases: conv1d_batched_cases,
        random: |d| {
            let tokens = d.rng.below(9);
            conv1d_random(d, Some(tokens));
        },
    },
    Entry {
        name: "ssm_qk_norm",
        reference: qk_norm,
        cases: qk_norm_cases,
        random: |d| {
            let groups = d.rng.below(6);
            let x = d.rng.pick(&[Fill::Normal(1.0), Fill::Normal(1e-9)]);
            qk_norm_fill(d, groups, x);
        },
    },
    Entry {
        name: "ssm_delta_net",
        reference: |call| delta_net(call, false),
        cases: delta_net_cases,
        random: delta_net_random,
    },
    Entry {
        name: "ssm_delta_net_cols8",
        reference: |call| delta_net(call, false),
        cases: |cases| cols8_cases(cases, COLS8),
        random: |d| cols8_random(d, COLS8),
    },
    Entry {
        name: "ssm_delta_net_cols8_normed",
        reference: |call| delta_net(call, true),
        cases: |cases| cols8_cases(cases, NORMED),
        random: |d| cols8_random(d, NORMED),
    },
    Entry {
        name: "ssm_gated_norm",
        reference: |call| gated_norm(call, 1, 0),
        cases: gated_norm_cases,
        random: |d| {
            let heads = random_heads(d);
            gated_norm_fill(d, heads);
        },
    },
    Entry {
        name: "ssm_gated_norm_batch_tok",
        reference: |call| gated_norm(call, call.count("n_tok")?, call.count("d_inner")?),
        cases: gated_norm_batch_tok_cases,
        random: |d| {
            let (heads, tokens) = (random_heads(d), d.rng.between(1, 4));
            let gap = d.rng.below(4);
            gated_norm_batch_tok_fill(d, tokens, gap, heads);
        },
    },
    Entry {
        name: "ssm_gated_norm_batched",
        reference: norm_and_copy,
        cases: norm_and_copy_cases,
        random: |d| {
            let n = 4 * d.rng.between(1, 60);
            norm_and_copy_fill(d, n, 1e-6, Fill::Normal(1.0));
        },
    },
];

/// a[t] = sum over taps of tap * input; output = a * sigmoid(a) within 1e-5 relative plus 1e-6 * max(1,
/// sum of |tap * input|). The ring slots of the last tokens become their raw inputs, bit for bit.
fn conv1d(
    call: &Call,
    [input, output]: [&str; 2],
    tokens: usize,
) -> Result<Vec<Expected>, OracleError> {
    let (channels, taps) = (call.count("conv_channels")?, call.count("d_conv")?);
    let oldest = call.count("state_offset")?;
    let halves = call.word("kernel_is_f16")? != 0;
    let past = taps - 1;
    let x = call.doubles(input, 0, tokens * channels)?;
    let state = call.doubles("state", 0, past * channels)?;
    let kernel = call.halves_or_floats("kernel", halves, channels * taps)?;
    // The inputs in order of time: those of the ring from the oldest on, then those of the tokens.
    let ring = (0..past).map(|j| &state[(oldest + j) % past * channels..][..channels]);
    let inputs = ring.chain((0..tokens).map(|t| &x[t * channels..][..channels]));
    let inputs: Vec<&[f64]> = inputs.collect();
    let sum = |t: usize, c: usize| {
        let window = inputs[t..t + taps].iter().enumerate();
        let products = window.map(|(j, x)| kernel[c * taps + j] * x[c]);
        products.fold((0.0, 0.0), |(s, m), p| (s + p, m + f64::abs(p)))
    };
    let outputs = (0..tokens).into_par_iter().flat_map_iter(|t| {
        (0..channels).map(move |c| {
            let (a, magnitude) = sum(t, c);
            silu_element(a, magnitude)
        })
    });
    let outputs = Expected::floats(call.index(output)?, 0, outputs.collect());
    let slots = (tokens.saturating_sub(past)..tokens).map(|t| {
        Ok(Region {
            start: (oldest + t) % past * channels * 4,
            want: Want::Bytes(call.slice(input, t * channels * 4, channels * 4)?.to_vec()),
        })
    });
    let state = Expected {
        buffer: call.index("state")?,
        regions: slots.collect::<Result<_, OracleError>>()?,
    };
    Ok(vec![state, outputs])
}

/// a * sigmoid(a) of a convolution sum `a` whose terms have the absolute sum `magnitude`.
fn silu_element(a: f64, magnitude: f64) -> Element {
    let wanted = a * sigmoid(a);
    let mut tolerance = 1e-5 * wanted.abs() + 1e-6 * magnitude.max(1.0);
    if a < SIGMOID_FLOOR {
        tolerance += wanted.abs();
    }
    Element::near_unless_overflow(wanted, tolerance, magnitude)
}

/// What a case of the convolutions is made of.
#[derive(Clone, Copy)]
struct Conv {
    /// None for the kernel of one token
    tokens: Option<u32>,
    channels: u32,
    taps: u32,
    /// ring position
    oldest: u32,
    /// taps are f16
    halves: bool,
    input: Fill,
}

fn conv1d_fill(d: &mut Draft, conv: Conv) {
    let Conv {
        tokens,
        channels,
        taps,
        halves,
        ..
    } = conv;
    d.set_all(&[
        ("conv_channels", channels),
        ("d_conv", taps),
        ("kernel_is_f16", u32::from(halves)),
        ("state_offset", conv.oldest),
    ]);
    if let Some(tokens) = tokens {
        d.set("n_tokens", tokens);
    }
    let count = tokens.unwrap_or(1) * channels;
    let inputs = conv.input.make(&mut d.rng, count as usize);
    if tokens.is_some() {
        d.update("qkv", 0, &inputs);
    } else {
        d.read_floats("input", 0, &inputs);
        d.write("output");
    }
    let kernel = d.rng.normals((channels * taps) as usize, 0.7);
    d.read_halves_or_floats("kernel", halves, &kernel);
    let state = d.rng.normals(((taps - 1) * channels) as usize, 1.0);
    d.update("state", 0, &state);
}

fn conv1d_random(d: &mut Draft, tokens: Option<u32>) {
    let taps = d.rng.between(2, 6);
    let conv = Conv {
        tokens,
        channels: d.rng.below(150),
        taps,
        oldest: d.rng.below(taps - 1),
        halves: d.rng.flip(),
        input: Fill::Normal(1.0),
    };
    conv1d_fill(d, conv);
}

/// Inputs at the edges.
const INPUTS: [(&str, Fill); 5] = [
    ("zeros", Fill::Equal(0.0)),
    ("very positive and negative", Fill::Alternating(300.0)),
    ("huge", Fill::Normal(1e20)),
    ("tiny", Fill::Normal(1e-20)),
    ("NaN", Fill::Sprinkled(f32::NAN)),
];

fn conv1d_cases(cases: &mut Cases) {
    let plain = Conv {
        tokens: None,
        channels: 90,
        taps: 4,
        oldest: 1,
        halves: false,
        input: Fill::Normal(1.0),
    };
    for halves in [false, true] {
        let kind = if halves { "f16" } else { "f32" };
        let plain = Conv { halves, ..plain };
        let mut add = |label: String, conv: Conv| {
            cases.add(format!("{kind}: {label}"), |d| conv1d_fill(d, conv));
        };
        for (channels, taps) in [
            (1, 2),
            (0, 4),
            (3, 3),
            (63, 4),
            (64, 4),
            (65, 4),
            (127, 5),
            (257, 4),
            (1000, 8),
            (8192, 4),
        ] {
            for oldest in 0..(taps - 1).min(3) {
                let conv = Conv {
                    channels,
                    taps,
                    oldest,
                    ..plain
                };
                add(
                    format!("{channels} channels, {taps} taps, oldest {oldest}"),
                    conv,
                );
            }
        }
        let last = Conv {
            channels: 70,
            taps: 8,
            oldest: 6,
            ..plain
        };
        add("last slot of 7".to_owned(), last);
        for (label, input) in INPUTS {
            add(format!("input {label}"), Conv { input, ..plain });
        }
        cases.add(format!("{kind}: fresh sequence"), |d| {
            let conv = Conv {
                channels: 75,
                oldest: 0,
                ..plain
            };
            conv1d_fill(d, conv);
            d.patch("state", 0, &[0; 75 * 3 * 4]);
        });
        cases.heavy(format!("{kind}: 262144 channels"), |d| {
            let conv = Conv {
                channels: 1 << 18,
                oldest: 2,
                ..plain
            };
            conv1d_fill(d, conv);
        });
    }
}

fn conv1d_batched_cases(cases: &mut Cases) {
    let plain = Conv {
        tokens: Some(5),
        channels: 90,
        taps: 4,
        oldest: 1,
        halves: false,
        input: Fill::Normal(1.0),
    };
    for halves in [false, true] {
        let kind = if halves { "f16" } else { "f32" };
        let plain = Conv { halves, ..plain };
        let mut add = |label: String, conv: Conv| {
            cases.add(format!("{kind}: {label}"), |d| conv1d_fill(d, conv));
        };
        for (tokens, channels, taps) in [
            (1, 1, 2),
            (0, 65, 4),
            (3, 0, 4),
            (1, 64, 4),
            (2, 63, 4),
            (3, 65, 4),
            (4, 64, 4),
            (5, 127, 4),
            (7, 3, 3),
            (64, 5, 2),
            (65, 33, 4),
            (2, 257, 5),
            (6, 100, 8),
            (9, 30, 9),
            (20, 30, 12),
            (3, 1000, 4),
            // every warp has several steps of tokens, the last one a part of a step
            (300, 6, 4),
            (515, 130, 4),
            (290, 5, 4),
            (260, 7, 6),
        ] {
            for oldest in 0..(taps - 1).min(3) {
                let conv = Conv {
                    tokens: Some(tokens),
                    channels,
                    taps,
                    oldest,
                    ..plain
                };
                let shape = format!("{tokens} tokens of {channels} channels, {taps} taps");
                add(format!("{shape}, oldest {oldest}"), conv);
            }
        }
        for (label, input) in INPUTS {
            add(format!("input {label}"), Conv { input, ..plain });
            let conv = Conv {
                tokens: Some(270),
                channels: 8,
                input,
                ..plain
            };
            add(format!("input {label}, 270 tokens"), conv);
        }
        cases.add(format!("{kind}: fresh sequence"), |d| {
            let conv = Conv {
                channels: 75,
                oldest: 0,
                ..plain
            };
            conv1d_fill(d, conv);
            d.patch("state", 0, &[0; 75 * 3 * 4]);
        });
        for (label, tokens, channels) in
            [("", 512, 64), ("35B-A3B, ", 64, 8192), ("27B, ", 33, 10240)]
        {
            cases.heavy(
                format!("{kind}: {label}{tokens} tokens of {channels} channels"),
                |d| {
                    let conv = Conv {
                        tokens: Some(tokens),
                        channels,
                        ..plain
                    };
                    conv1d_fill(d, conv);
                },
            );
        }
    }
}

/// Query heads / |q| / sqrt(d_state) and key heads / |k|, the sums of squares clamped: 1e-6 relative. A
/// head with a NaN or an infinity, or whose sum of squares overflows f32, is open.
fn qk_norm(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (groups, width) = (call.count("n_group")?, call.count("d_state")?);
    let elements = |start: usize, factor: f64| -> Result<Vec<Element>, OracleError> {
        let heads = call.doubles("conv_out", start * 4, groups * width)?;
        let heads = heads.chunks(width).flat_map(|head| {
            let sum: f64 = head.iter().map(|x| x * x).sum();
            let open = sum.is_nan() || sum > f64::from(f32::MAX);
            let near = move |x: f64| {
                if open {
                    Element::Free
                } else {
                    Element::near(x, 1e-6 * x.abs())
                }
            };
            l2_normalised(head, factor).into_iter().map(near)
        });
        Ok(heads.collect())
    };
    let keys = call.count("qk_dim")?;
    let mut all = elements(0, 1.0 / (width as f64).sqrt())?;
    all.extend(elements(keys, 1.0)?);
    Ok(vec![Expected::floats(call.index("conv_out")?, 0, all)])
}

fn qk_norm_fill(d: &mut Draft, groups: u32, x: Fill) {
    d.set_all(&[
        ("d_state", 128),
        ("n_group", groups),
        ("qk_dim", groups * 128),
    ]);
    let x = x.make(&mut d.rng, 2 * groups as usize * 128);
    d.update("conv_out", 0, &x);
}

fn qk_norm_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    for groups in [0, 1, 2, 3, 5, 7, 16, 33] {
        cases.add(format!("{groups} groups"), |d| {
            qk_norm_fill(d, groups, normal)
        });
    }
    for (label, x) in [
        ("zeros", Fill::Equal(0.0)),
        ("all equal", Fill::Equal(0.7)),
        ("alternating", Fill::Alternating(3.0)),
        ("large", Fill::Normal(1e15)),
        ("squares overflow", Fill::Normal(1e25)),
        ("just above the clamp", Fill::Normal(1.2e-7)),
        ("just below the clamp", Fill::Normal(7e-8)),
        ("below the clamp", Fill::Normal(1e-9)),
        ("squares underflow", Fill::Normal(1e-25)),
        ("one element dominates", Fill::One(9, 1e6)),
        ("one key has a single element", Fill::One(0, 5.0)),
        ("a NaN in the last key", Fill::One(0, f32::NAN)),
        ("an infinity in the last key", Fill::One(0, f32::INFINITY)),
    ] {
        cases.add(label, |d| qk_norm_fill(d, 3, x));
    }
    cases.add("a single element per head", |d| {
        qk_norm_fill(d, 2, Fill::Equal(0.0));
        for (head, place) in [(0, 0), (1, 127), (2, 63), (3, 64)] {
            let value = (-2.5_f32 - head as f32).to_le_bytes();
            d.patch("conv_out", (head * 128 + place) * 4, &value);
        }
    });
    cases.add("V stays", |d| {
        qk_norm_fill(d, 2, normal);
        d.extend("conv_out", 3 * 128 * 4);
    });
    cases.heavy("4096 groups", |d| qk_norm_fill(d, 4096, normal));
}

/// Result of the recurrence for one head: its state and its outputs, token by token.
struct Head {
    state: Vec<f64>,
    outputs: Vec<f64>,
    /// no gate was above 1
    decays: bool,
}

/// Per-token inputs of one head.
struct Token {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    gate: f64,
    beta: f64,
}

/// The recurrence of one head over its tokens. Rows have `width` elements; the leading ones, as many
/// as q and k have, take part in the products, all of them decay.
fn recur(mut state: Vec<f64>, width: usize, tokens: impl Iterator<Item = Token>) -> Head {
    let mut outputs = Vec::new();
    let mut decays = true;
    for token in tokens {
        decays &= token.gate <= 1.0;
        for (row, v) in state.chunks_exact_mut(width).zip(&token.v) {
            row.iter_mut().for_each(|s| *s *= token.gate);
            let predicted: f64 = row.iter().zip(&token.k).map(|(s, k)| s * k).sum();
            let correction = token.beta * (v - predicted);
            row.iter_mut()
                .zip(&token.k)
                .for_each(|(s, k)| *s += correction * k);
            outputs.push(row.iter().zip(&token.q).map(|(s, q)| s * q).sum());
        }
    }
    Head {
        state,
        outputs,
        decays,
    }
}

/// ln(1 + exp(z)) without overflow
fn softplus(z: f64) -> f64 {
    if z > 40.0 { z } else { z.exp().ln_1p() }
}

/// x / sqrt(max(sum of squares, 1e-12)) * factor
fn l2_normalised(x: &[f64], factor: f64) -> Vec<f64> {
    let sum: f64 = x.iter().map(|x| x * x).sum();
    // f64::max would turn a NaN sum into the clamp.
    let clamped = if sum.is_nan() { sum } else { sum.max(1e-12) };
    x.iter().map(|x| x / clamped.sqrt() * factor).collect()
}

/// Within 1e-5 + 1e-4 * |ref| for up to 64 tokens whose gates are at most 1; beyond that the absolute
/// part is 1e-3.
/// q and k are taken as they are if `normalised`.
fn delta_net(call: &Call, normalised: bool) -> Result<Vec<Expected>, OracleError> {
    let (heads, width) = (call.count("dt_rank")?, call.count("head_v_dim")?);
    let (key, groups) = (call.count("d_state")?, call.count("n_group")?);
    let tokens = call.count("n_tok")?;
    let conv_stride = call.count("conv_stride_tok")?;
    let ab_stride = call.count("ab_stride_tok")?;
    let y_stride = call.count("y_stride_tok")?;
    let parameters = |present: &str, halves: &str, buffer: &str| {
        let halves = call.word(halves)? != 0;
        let present = call.word(present)? != 0;
        let values = present.then(|| call.halves_or_floats(buffer, halves, heads));
        values.transpose()
    };
    let dt_bias = parameters("has_dt_bias", "dt_bias_is_f16", "dt_bias")?;
    let ssm_a = parameters("has_ssm_a", "ssm_a_is_f16", "ssm_a")?;
    let last = tokens - 1;
    let conv_width = 2 * groups * key + heads * width;
    let conv = call.doubles("conv_out", 0, last * conv_stride + conv_width)?;
    let alpha = call.doubles("alpha", 0, last * ab_stride + heads)?;
    let beta = call.doubles("beta", 0, last * ab_stride + heads)?;
    let state = call.doubles("state", 0, heads * width * width)?;

    let shared = width.min(key);
    let token = |h: usize, t: usize| {
        let x = &conv[t * conv_stride..][..conv_width];
        let q = &x[h % groups * key..][..shared];
        let k = &x[(groups + h % groups) * key..][..shared];
        let z = alpha[t * ab_stride + h] + dt_bias.as_ref().map_or(0.0, |bias| bias[h]);
        let decay = ssm_a.as_ref().map_or(-1.0, |a| a[h]);
        let unit = |x: &[f64], factor: f64| {
            if normalised {
                x.to_vec()
            } else {
                l2_normalised(x, factor)
            }
        };
        Token {
            q: unit(q, 1.0 / (key as f64).sqrt()),
            k: unit(k, 1.0),
            v: x[2 * groups * key + h * width..][..width].to_vec(),
            gate: (softplus(z) * decay).exp(),
            beta: sigmoid(beta[t * ab_stride + h]),
        }
    };
    let square = width * width;
    let results = (0..heads).into_par_iter().map(|h| {
        let state = state[h * square..(h + 1) * square].to_vec();
        recur(state, width, (0..tokens).map(|t| token(h, t)))
    });
    let results: Vec<Head> = results.collect();

    let near = |head: &Head, wanted: f64| {
        let floor = if head.decays && tokens <= 64 {
            1e-5
        } else {
            1e-3
        };
        Element::near(wanted, floor + 1e-4 * wanted.abs())
    };
    let states = results
        .iter()
        .flat_map(|r| r.state.iter().map(|s| near(r, *s)));
    let states = Expected::floats(call.index("state")?, 0, states.collect());
    let rows = (0..tokens).map(|t| {
        let outputs = results.iter().flat_map(|r| {
            let row = &r.outputs[t * width..(t + 1) * width];
            row.iter().map(|o| near(r, *o))
        });
        Region {
            start: t * y_stride * 4,
            want: Want::Floats(outputs.collect()),
        }
    });
    let out = Expected {
        buffer: call.index("out")?,
        regions: rows.collect(),
    };
    Ok(vec![states, out])
}

/// What a case of ssm_delta_net is made of.
#[derive(Clone, Copy)]
struct Net {
    heads: u32,
    width: u32,
    key: u32,
    groups: u32,
    tokens: u32,
    /// elements beyond a dense row of conv_out, alpha and beta, out
    gaps: [u32; 3],
    /// dt_bias, ssm_a: absent, f32 or f16
    parameters: [Option<bool>; 2],
    alpha: Fill,
    beta: Fill,
    qkv: Fill,
    /// q and k are normalised already
    normed: bool,
}

fn delta_net_fill(d: &mut Draft, net: Net) {
    let Net {
        heads,
        width,
        key,
        groups,
        tokens,
        ..
    } = net;
    let dense = 2 * groups * key + heads * width;
    let conv = dense + net.gaps[0];
    let ab = heads + net.gaps[1];
    let y = heads * width + net.gaps[2];
    let [bias, a] = net.parameters;
    d.set_all(&[
        ("d_inner", heads * width),
        ("dt_rank", heads),
        ("head_v_dim", width),
        ("d_state", key),
        ("n_group", groups),
        ("ssm_a_is_f16", u32::from(a == Some(true))),
        ("dt_bias_is_f16", u32::from(bias == Some(true))),
        ("has_dt_bias", u32::from(bias.is_some())),
        ("has_ssm_a", u32::from(a.is_some())),
        ("n_tok", tokens),
        ("conv_stride_tok", conv),
        ("ab_stride_tok", ab),
        ("y_stride_tok", y),
    ]);
    let mut conv_out = net.qkv.rows(&mut d.rng, tokens, dense, conv);
    if net.normed {
        for row in conv_out.chunks_mut(conv as usize) {
            let (q, rest) = row.split_at_mut((groups * key) as usize);
            let k = &mut rest[..q.len()];
            for (heads, factor) in [(q, 1.0 / f64::from(key).sqrt()), (k, 1.0)] {
                for head in heads.chunks_exact_mut(key as usize) {
                    let wide: Vec<f64> = head.iter().map(|x| f64::from(*x)).collect();
                    let unit = l2_normalised(&wide, factor);
                    head.iter_mut().zip(unit).for_each(|(x, u)| *x = u as f32);
                }
            }
        }
    }
    d.read_floats("conv_out", 0, &conv_out);
    for (buffer, fill) in [("alpha", net.alpha), ("beta", net.beta)] {
        let values = fill.rows(&mut d.rng, tokens, heads, ab);
        d.read_floats(buffer, 0, &values);
    }
    if let Some(halves) = bias {
        let values = d.rng.normals(heads as usize, 0.5);
        d.read_halves_or_floats("dt_bias", halves, &values);
    }
    if let Some(halves) = a {
        let values: Vec<f32> = (0..heads).map(|_| -0.05 - d.rng.unit() as f32).collect();
        d.read_halves_or_floats("ssm_a", halves, &values);
    }
    let state = d.rng.normals((heads * width * width) as usize, 0.3);
    d.update("state", 0, &state);
    d.write("out");
}

/// Two heads with both parameters in f32.
const NET: Net = Net {
    heads: 2,
    width: 16,
    key: 16,
    groups: 2,
    tokens: 1,
    gaps: [0; 3],
    parameters: [Some(false), Some(false)],
    alpha: Fill::Normal(1.0),
    beta: Fill::Normal(1.0),
    qkv: Fill::Normal(1.0),
    normed: false,
};

/// No dt_bias, no ssm_a.
const BARE: [Option<bool>; 2] = [None, None];

/// The only shape of the column kernels.
const COLS8: Net = Net {
    width: 128,
    key: 128,
    ..NET
};
const NORMED: Net = Net {
    normed: true,
    ..COLS8
};

/// Gates at the edges.
const GATES: [(&str, Fill, [Option<bool>; 2]); 6] = [
    ("alpha 25", Fill::Equal(25.0), NET.parameters),
    ("alpha 100", Fill::Equal(100.0), NET.parameters),
    ("alpha 100, no ssm_a", Fill::Equal(100.0), BARE),
    ("alpha -100", Fill::Equal(-100.0), NET.parameters),
    ("alpha -1e4, no ssm_a", Fill::Equal(-1e4), BARE),
    ("alpha wide", Fill::Normal(20.0), NET.parameters),
];

/// Update strengths at the edges.
const STRENGTHS: [(&str, Fill); 3] = [
    ("beta -100", Fill::Equal(-100.0)),
    ("beta 100", Fill::Equal(100.0)),
    ("beta wide", Fill::Normal(20.0)),
];

/// Queries, keys and values at the edges.
const VECTORS: [(&str, Fill); 4] = [
    ("zeros", Fill::Equal(0.0)),
    ("all equal", Fill::Equal(0.7)),
    // sum of squares below the clamp
    ("tiny", Fill::Normal(1e-8)),
    ("a NaN in the last value head", Fill::One(0, f32::NAN)),
];

/// Every combination of absent, f32 and f16 dt_bias and ssm_a.
fn parameter_kinds() -> impl Iterator<Item = (String, [Option<bool>; 2])> {
    const KINDS: [(&str, Option<bool>); 3] =
        [("absent", None), ("f32", Some(false)), ("f16", Some(true))];
    KINDS.into_iter().flat_map(|(bias, b)| {
        let pair = move |(a_kind, a)| (format!("dt_bias {bias}, ssm_a {a_kind}"), [b, a]);
        KINDS.into_iter().map(pair)
    })
}

fn delta_net_cases(cases: &mut Cases) {
    let (plain, bare) = (NET, BARE);
    let mut add = |label: &str, net: Net| cases.add(label, |d| delta_net_fill(d, net));
    add(
        "smallest",
        Net {
            heads: 1,
            width: 1,
            key: 1,
            groups: 1,
            parameters: bare,
            ..plain
        },
    );
    for (heads, width, key, groups) in [
        (1, 2, 3, 1),
        (3, 5, 5, 1),
        (4, 7, 7, 2),
        (5, 8, 8, 3),
        (2, 31, 31, 2),
        (2, 33, 33, 1),
        (3, 64, 64, 3),
        (2, 65, 65, 2),
        (2, 100, 100, 1),
        (4, 128, 128, 2),
        // Ds != Dv
        (2, 16, 8, 1),
        (2, 8, 16, 2),
        (3, 33, 20, 2),
        (2, 128, 64, 1),
        (2, 64, 128, 2),
        (2, 1, 128, 1),
        (2, 128, 1, 1),
    ] {
        let shape = Net {
            heads,
            width,
            key,
            groups,
            ..plain
        };
        add(
            &format!("{heads} heads of {width}, {groups} groups of {key}"),
            shape,
        );
        let shape = Net { tokens: 3, ..shape };
        add(
            &format!("{heads} heads of {width}, {groups} groups of {key}, 3 tokens"),
            shape,
        );
    }
    for (label, parameters) in parameter_kinds() {
        let net = Net {
            heads: 3,
            tokens: 2,
            parameters,
            ..plain
        };
        add(&label, net);
    }
    for tokens in [2, 5, 17, 64] {
        add(&format!("{tokens} tokens"), Net { tokens, ..plain });
        let gaps = [3, 1, 5];
        add(
            &format!("{tokens} tokens, rows apart"),
            Net {
                tokens,
                gaps,
                groups: 1,
                ..plain
            },
        );
    }
    for (label, alpha, parameters) in GATES {
        add(
            label,
            Net {
                heads: 3,
                tokens: 4,
                alpha,
                parameters,
                ..plain
            },
        );
    }
    for (label, beta) in STRENGTHS {
        add(
            label,
            Net {
                heads: 3,
                tokens: 4,
                beta,
                ..plain
            },
        );
    }
    for (label, qkv) in VECTORS {
        add(
            &format!("q, k, v: {label}"),
            Net {
                heads: 3,
                tokens: 2,
                qkv,
                ..plain
            },
        );
    }
    cases.add("softplus must not overflow: alpha 100, ssm_a -0.01", |d| {
        let shape = Net {
            heads: 4,
            tokens: 3,
            alpha: Fill::Equal(100.0),
            ..plain
        };
        delta_net_fill(d, shape);
        d.patch("ssm_a", 0, &crate::case::float_bytes(&[-0.01; 4]));
    });
    cases.add("fresh state", |d| {
        delta_net_fill(d, Net { tokens: 6, ..plain });
        d.patch("state", 0, &[0; 2 * 16 * 16 * 4]);
    });
    cases.add("absent parameters bound to alpha", |d| {
        delta_net_fill(
            d,
            Net {
                parameters: bare,
                ..plain
            },
        );
        d.alias("dt_bias", "alpha");
        d.alias("ssm_a", "alpha");
    });
    cases.add("one dense token in strides of 0", |d| {
        delta_net_fill(d, plain);
        d.set_all(&[
            ("conv_stride_tok", 0),
            ("ab_stride_tok", 0),
            ("y_stride_tok", 0),
        ]);
    });
    let model = Net {
        heads: 32,
        width: 128,
        key: 128,
        groups: 16,
        ..plain
    };
    cases.add("8 of the heads of 35B-A3B", |d| {
        delta_net_fill(
            d,
            Net {
                heads: 8,
                groups: 4,
                ..model
            },
        );
    });
    for tokens in [1, 64, 200] {
        cases.heavy(format!("35B-A3B, {tokens} tokens"), |d| {
            delta_net_fill(d, Net { tokens, ..model });
        });
    }
}

/// `shape` has the kind of the kernel.
fn cols8_cases(cases: &mut Cases, shape: Net) {
    let plain = Net { tokens: 2, ..shape };
    let mut add = |label: &str, net: Net| cases.add(label, |d| delta_net_fill(d, net));
    for (heads, groups) in [(1, 1), (2, 1), (1, 2), (3, 2), (5, 3), (4, 4)] {
        for tokens in [1, 3] {
            let net = Net {
                heads,
                groups,
                tokens,
                ..plain
            };
            add(
                &format!("{heads} heads, {groups} groups, {tokens} tokens"),
                net,
            );
        }
    }
    let single = Net {
        heads: 1,
        groups: 1,
        ..plain
    };
    add(
        "smallest",
        Net {
            tokens: 1,
            parameters: BARE,
            ..single
        },
    );
    for (label, parameters) in parameter_kinds() {
        add(
            &label,
            Net {
                parameters,
                ..plain
            },
        );
    }
    for tokens in [2, 5, 15, 16, 17, 32, 33, 48, 64] {
        add(&format!("{tokens} tokens"), Net { tokens, ..single });
    }
    for tokens in [2, 9, 49] {
        let net = Net {
            tokens,
            gaps: [3, 1, 5],
            ..single
        };
        add(&format!("{tokens} tokens, rows apart"), net);
    }
    for (label, alpha, parameters) in GATES {
        let net = Net {
            alpha,
            parameters,
            ..plain
        };
        add(label, net);
    }
    for (label, beta) in STRENGTHS {
        add(label, Net { beta, ..plain });
    }
    for (label, qkv) in VECTORS {
        add(&format!("q, k, v: {label}"), Net { qkv, ..plain });
    }
    cases.add("softplus must not overflow: alpha 100, ssm_a -0.01", |d| {
        let net = Net {
            alpha: Fill::Equal(100.0),
            ..plain
        };
        delta_net_fill(d, net);
        d.patch("ssm_a", 0, &crate::case::float_bytes(&[-0.01; 2]));
    });
    cases.add("fresh state", |d| {
        delta_net_fill(d, single);
        d.patch("state", 0, &[0; 128 * 128 * 4]);
    });
    cases.add("absent parameters bound to alpha", |d| {
        let net = Net {
            parameters: BARE,
            ..single
        };
        delta_net_fill(d, net);
        d.alias("dt_bias", "alpha");
        d.alias("ssm_a", "alpha");
    });
    cases.add("one dense token in strides of 0", |d| {
        delta_net_fill(d, Net { tokens: 1, ..plain });
        d.set_all(&[
            ("conv_stride_tok", 0),
            ("ab_stride_tok", 0),
            ("y_stride_tok", 0),
        ]);
    });
    for (label, heads, groups, tokens) in [
        ("35B-A3B", 32, 16, 1),
        ("35B-A3B", 32, 16, 33),
        ("27B", 48, 16, 1),
        ("four heads", 4, 2, 512),
    ] {
        cases.heavy(format!("{label}, {tokens} tokens"), |d| {
            let net = Net {
                heads,
                groups,
                tokens,
                ..plain
            };
            delta_net_fill(d, net);
        });
    }
}

/// Absent, f32 or f16.
fn random_parameter(d: &mut Draft) -> Option<bool> {
    d.rng.pick(&[None, Some(false), Some(true)])
}

fn cols8_random(d: &mut Draft, shape: Net) {
    let net = Net {
        heads: d.rng.between(1, 3),
        groups: d.rng.between(1, 3),
        tokens: d.rng.between(1, 3),
        gaps: [d.rng.below(3), d.rng.below(3), d.rng.below(3)],
        parameters: [random_parameter(d), random_parameter(d)],
        ..shape
    };
    delta_net_fill(d, net);
}

fn delta_net_random(d: &mut Draft) {
    let width = d.rng.between(1, 40);
    let net = Net {
        heads: d.rng.between(1, 5),
        width,
        key: if d.rng.flip() {
            width
        } else {
            d.rng.between(1, 40)
        },
        groups: d.rng.between(1, 4),
        tokens: d.rng.between(1, 5),
        gaps: [d.rng.below(3), d.rng.below(3), d.rng.below(3)],
        parameters: [random_parameter(d), random_parameter(d)],
        ..NET
    };
    delta_net_fill(d, net);
}

/// (o_i * rinv) * w_i * silu(z_i) for tokens that are `stride` apart: 1e-6 absolute + 1e-5 relative
fn gated_norm(call: &Call, tokens: usize, stride: usize) -> Result<Vec<Expected>, OracleError> {
    let (heads, dim) = (call.count("dt_rank")?, call.count("head_v_dim")?);
    let period = call.count("d_state")?;
    let per_head = call.word("norm_per_head")? != 0;
    let weights = if per_head { heads * dim } else { period };
    let weight = call.doubles("norm_weight", 0, weights)?;
    let token = |t: usize| -> Result<Region, OracleError> {
        let start = t * stride * 4;
        let o = call.doubles("delta_out", start, heads * dim)?;
        let z = call.doubles("z", start, heads * dim)?;
        let mut elements = Vec::with_capacity(heads * dim);
        for (h, (o, z)) in o.chunks_exact(dim).zip(z.chunks_exact(dim)).enumerate() {
            let (r, representable) = inverse_rms(o, 1e-6);
            for (i, (o, z)) in o.iter().zip(z).enumerate() {
                let w = weight[if per_head { h * dim + i } else { i % period }];
                let wanted = (o * r) * w * (z / (1.0 + (-z).exp()));
                let mut tolerance = 1e-6 + 1e-5 * wanted.abs();
                if *z < SIGMOID_FLOOR {
                    tolerance += wanted.abs();
                }
                elements.push(if representable {
                    Element::near(wanted, tolerance)
                } else {
                    Element::Free
                });
            }
        }
        Ok(Region {
            start,
            want: Want::Floats(elements),
        })
    };
    Ok(vec![Expected {
        buffer: call.index("out")?,
        regions: (0..tokens).map(token).collect::<Result<_, _>>()?,
    }])
}

/// What the heads of a token are made of.
#[derive(Clone, Copy)]
struct Gated {
    heads: u32,
    dim: u32,
    /// of the shared weights
    period: u32,
    per_head: bool,
    delta_out: Fill,
    z: Fill,
}

/// Three heads with shared weights.
const GATED: Gated = Gated {
    heads: 3,
    dim: 96,
    period: 96,
    per_head: false,
    delta_out: Fill::Normal(1.0),
    z: Fill::Normal(1.0),
};

fn random_heads(d: &mut Draft) -> Gated {
    Gated {
        heads: d.rng.between(1, 5),
        dim: d.rng.between(1, 140),
        period: d.rng.between(1, 140),
        per_head: d.rng.flip(),
        ..GATED
    }
}

fn gated_norm_fill(d: &mut Draft, shape: Gated) {
    tokens_fill(d, 1, 0, shape);
}

fn gated_norm_batch_tok_fill(d: &mut Draft, tokens: u32, gap: u32, shape: Gated) {
    d.set("n_tok", tokens);
    tokens_fill(d, tokens, gap, shape);
}

/// `gap` elements are between the tokens.
fn tokens_fill(d: &mut Draft, tokens: u32, gap: u32, shape: Gated) {
    let dense = shape.heads * shape.dim;
    d.set_all(&[
        ("d_inner", dense + gap),
        ("dt_rank", shape.heads),
        ("head_v_dim", shape.dim),
        ("d_state", shape.period),
        ("norm_per_head", u32::from(shape.per_head)),
    ]);
    for (buffer, fill) in [("delta_out", shape.delta_out), ("z", shape.z)] {
        let values = fill.rows(&mut d.rng, tokens, dense, dense + gap);
        d.read_floats(buffer, 0, &values);
    }
    let weights = if shape.per_head { dense } else { shape.period };
    let weight = d.rng.normals(weights as usize, 1.2);
    d.read_floats("norm_weight", 0, &weight);
    d.write("out");
}

/// Inputs and gates at the edges.
const GATED_EDGES: [(&str, Fill, Fill); 10] = [
    ("zeros", Fill::Equal(0.0), GATED.z),
    ("z zero", GATED.delta_out, Fill::Equal(0.0)),
    ("all equal", Fill::Equal(0.3), Fill::Equal(1.5)),
    ("large", Fill::Normal(1e12), GATED.z),
    ("small", Fill::Normal(1e-4), GATED.z),
    ("below eps", Fill::Normal(1e-10), GATED.z),
    ("z wide", GATED.delta_out, Fill::Normal(60.0)),
    ("z very wide", GATED.delta_out, Fill::Alternating(1e4)),
    ("a NaN in the last head", Fill::One(3, f32::NAN), GATED.z),
    ("z NaN", GATED.delta_out, Fill::Sprinkled(f32::NAN)),
];

/// Adds a case for both kinds of weights.
fn both_kinds(shape: Gated, mut add: impl FnMut(&str, Gated)) {
    for (kind, per_head) in [("shared weights", false), ("one weight each", true)] {
        add(kind, Gated { per_head, ..shape });
    }
}

fn gated_norm_cases(cases: &mut Cases) {
    for (heads, dim, period) in [
        (1, 1, 1),
        (2, 3, 3),
        (3, 5, 2),
        (1, 63, 63),
        (2, 64, 64),
        (3, 65, 65),
        (4, 128, 128),
        (32, 128, 128),
        (2, 128, 32),
        (2, 100, 128),
        (2, 257, 257),
        (1, 1000, 7),
        (9, 64, 16),
        (2, 132, 6),
        (1, 1028, 1028),
    ] {
        let shape = Gated {
            heads,
            dim,
            period,
            ..GATED
        };
        both_kinds(shape, |kind, shape| {
            cases.add(
                format!("{heads} heads of {dim}, period {period}, {kind}"),
                |d| gated_norm_fill(d, shape),
            );
        });
    }
    for (label, delta_out, z) in GATED_EDGES {
        let shape = Gated {
            delta_out,
            z,
            ..GATED
        };
        cases.add(label, |d| gated_norm_fill(d, shape));
    }
    let model = Gated {
        heads: 4,
        dim: 128,
        period: 128,
        ..GATED
    };
    for input in ["delta_out", "z"] {
        cases.add(format!("out is {input}"), |d| {
            gated_norm_fill(d, model);
            d.own("out", input);
        });
    }
    cases.heavy("4096 heads of 128", |d| {
        let shape = Gated {
            heads: 4096,
            ..model
        };
        gated_norm_fill(d, shape);
    });
}

fn gated_norm_batch_tok_cases(cases: &mut Cases) {
    for (tokens, heads, dim, period, gap) in [
        (1, 1, 1, 1, 0),
        (2, 2, 3, 3, 1),
        (5, 3, 5, 2, 0),
        (3, 1, 63, 63, 0),
        (2, 2, 64, 64, 7),
        (7, 3, 65, 65, 0),
        (3, 4, 128, 128, 128),
        (2, 32, 128, 128, 0),
        (3, 2, 128, 32, 0),
        (2, 2, 100, 128, 4),
        (2, 2, 257, 257, 0),
        (65, 1, 4, 4, 1),
        (2, 1, 1000, 7, 0),
        (3, 2, 132, 132, 2),
        (2, 1, 1028, 4, 0),
    ] {
        let shape = Gated {
            heads,
            dim,
            period,
            ..GATED
        };
        both_kinds(shape, |kind, shape| {
            let label = format!("{tokens} tokens of {heads} heads of {dim}, period {period}");
            cases.add(format!("{label}, gap {gap}, {kind}"), |d| {
                gated_norm_batch_tok_fill(d, tokens, gap, shape);
            });
        });
    }
    for (label, delta_out, z) in GATED_EDGES {
        let shape = Gated {
            delta_out,
            z,
            ..GATED
        };
        cases.add(label, |d| gated_norm_batch_tok_fill(d, 3, 0, shape));
    }
    let model = Gated {
        heads: 4,
        dim: 128,
        period: 128,
        ..GATED
    };
    for input in ["delta_out", "z"] {
        for gap in [0, 12] {
            cases.add(format!("out is {input}, gap {gap}"), |d| {
                gated_norm_batch_tok_fill(d, 3, gap, model);
                d.own("out", input);
            });
        }
    }
    for (label, heads) in [("35B-A3B", 32), ("27B", 48)] {
        cases.heavy(format!("{label}, 256 tokens"), |d| {
            gated_norm_batch_tok_fill(d, 256, 0, Gated { heads, ..model });
        });
    }
}

/// norm_out = weight * hidden / rms within 1e-6 absolute + 1e-5 relative; hidden_out is hidden bit for bit
fn norm_and_copy(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let n = call.count("n")?;
    let hidden = call.doubles("hidden", 0, n)?;
    let weight = call.doubles("weight", 0, n)?;
    let norm = Norm::of(&hidden, &weight, call.float("eps")?);
    Ok(vec![
        Expected::floats(call.index("norm_out")?, 0, norm.elements(1e-6)),
        Expected {
            buffer: call.index("hidden_out")?,
            regions: vec![Region {
                start: 0,
                want: Want::Bytes(call.slice("hidden", 0, n * 4)?.to_vec()),
            }],
        },
    ])
}

fn norm_and_copy_fill(d: &mut Draft, n: u32, eps: f32, hidden: Fill) {
    d.set("n", n);
    d.set_float("eps", eps);
    let hidden = hidden.make(&mut d.rng, n as usize);
    d.read_floats("hidden", 0, &hidden);
    let weight = d.rng.normals(n as usize, 1.5);
    d.read_floats("weight", 0, &weight);
    d.write("norm_out");
    d.write("hidden_out");
}

fn norm_and_copy_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    for n in [
        4, 8, 12, 60, 64, 68, 124, 128, 252, 256, 260, 1020, 1028, 2048, 2816, 5120, 5124, 8196,
    ] {
        cases.add(format!("n = {n}"), |d| {
            norm_and_copy_fill(d, n, 1e-6, normal)
        });
    }
    for (label, eps, hidden) in [
        ("zeros", 1e-6, Fill::Equal(0.0)),
        ("eps 0", 0.0, normal),
        ("large eps", 10.0, normal),
        ("all equal", 1e-5, Fill::Equal(-3.0)),
        ("alternating", 1e-6, Fill::Alternating(0.01)),
        ("large", 1e-6, Fill::Normal(1e15)),
        ("small", 1e-6, Fill::Normal(1e-4)),
        ("eps dominates", 1e-6, Fill::Normal(1e-12)),
        ("squares underflow", 1e-6, Fill::Normal(1e-25)),
        ("a NaN", 1e-6, Fill::One(2, f32::NAN)),
        ("an infinity", 1e-6, Fill::One(0, f32::INFINITY)),
        ("one huge element", 1e-6, Fill::One(5, 1e18)),
    ] {
        cases.add(label, |d| norm_and_copy_fill(d, 100, eps, hidden));
    }
    cases.add("a signalling NaN keeps its payload in the copy", |d| {
        norm_and_copy_fill(d, 72, 1e-6, normal);
        d.patch("hidden", 68 * 4, &0xff81_2345_u32.to_le_bytes());
    });
    cases.heavy("n = 262144", |d| {
        norm_and_copy_fill(d, 1 << 18, 1e-6, normal)
    });
}
