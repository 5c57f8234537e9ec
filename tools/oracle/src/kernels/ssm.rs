//! Gated delta-net (linear attention) kernels.

use rayon::prelude::*;

use super::Entry;
use super::norm_act::{SIGMOID_FLOOR, inverse_rms, sigmoid};
use crate::case::{Cases, Draft, Fill};
use crate::{Call, Element, Expected, OracleError, Region, Want};

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "ssm_conv1d",
        reference: conv1d,
        cases: conv1d_cases,
        random: |d| {
            let (channels, taps, halves) = (d.rng.below(150), d.rng.between(2, 6), d.rng.flip());
            let offset = d.rng.below(taps - 1);
            conv1d_fill(d, channels, taps, offset, halves, Fill::Normal(1.0));
        },
    },
    Entry {
        name: "ssm_delta_net",
        reference: delta_net,
        cases: delta_net_cases,
        random: delta_net_random,
    },
    Entry {
        name: "ssm_gated_norm",
        reference: gated_norm,
        cases: gated_norm_cases,
        random: |d| {
            let (heads, dim) = (d.rng.between(1, 5), d.rng.between(1, 140));
            let (period, per_head) = (d.rng.between(1, 140), d.rng.flip());
            gated_norm_fill(d, heads, dim, period, per_head, [Fill::Normal(1.0); 2]);
        },
    },
];

/// a = sum over taps of tap * input; output = a * sigmoid(a) within 1e-5 relative plus 1e-6 * max(1,
/// sum of |tap * input|). The oldest ring slot becomes the raw input, bit for bit.
fn conv1d(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (channels, taps) = (call.count("conv_channels")?, call.count("d_conv")?);
    let oldest = call.count("state_offset")?;
    let halves = call.word("kernel_is_f16")? != 0;
    let past = taps - 1;
    let input = call.doubles("input", 0, channels)?;
    let state = call.doubles("state", 0, past * channels)?;
    let kernel = call.halves_or_floats("kernel", halves, channels * taps)?;
    let output = |c: usize| {
        let ring = (0..past).map(|j| state[(oldest + j) % past * channels + c]);
        let products = ring
            .chain([input[c]])
            .enumerate()
            .map(|(j, x)| kernel[c * taps + j] * x);
        let (a, magnitude) = products.fold((0.0, 0.0), |(s, m), p| (s + p, m + f64::abs(p)));
        silu_element(a, magnitude)
    };
    let outputs = (0..channels).map(output).collect();
    Ok(vec![
        Expected {
            buffer: call.index("state")?,
            regions: vec![Region {
                start: oldest * channels * 4,
                want: Want::Bytes(call.slice("input", 0, channels * 4)?.to_vec()),
            }],
        },
        Expected::floats(call.index("output")?, 0, outputs),
    ])
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

fn conv1d_fill(d: &mut Draft, channels: u32, taps: u32, oldest: u32, halves: bool, input: Fill) {
    d.set_all(&[
        ("conv_channels", channels),
        ("d_conv", taps),
        ("kernel_is_f16", u32::from(halves)),
        ("state_offset", oldest),
    ]);
    let current = input.make(&mut d.rng, channels as usize);
    d.read_floats("input", 0, &current);
    let kernel = d.rng.normals((channels * taps) as usize, 0.7);
    d.read_halves_or_floats("kernel", halves, &kernel);
    let state = d.rng.normals(((taps - 1) * channels) as usize, 1.0);
    d.update("state", 0, &state);
    d.write("output");
}

fn conv1d_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    for halves in [false, true] {
        let kind = if halves { "f16" } else { "f32" };
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
                cases.add(
                    format!("{kind}: {channels} channels, {taps} taps, oldest {oldest}"),
                    |d| {
                        conv1d_fill(d, channels, taps, oldest, halves, normal);
                    },
                );
            }
        }
        cases.add(format!("{kind}: last slot of 7"), |d| {
            conv1d_fill(d, 70, 8, 6, halves, normal);
        });
        for (label, input) in [
            ("zeros", Fill::Equal(0.0)),
            ("very positive and negative", Fill::Alternating(300.0)),
            ("huge", Fill::Normal(1e20)),
            ("tiny", Fill::Normal(1e-20)),
            ("NaN", Fill::Sprinkled(f32::NAN)),
        ] {
            cases.add(format!("{kind}: input {label}"), |d| {
                conv1d_fill(d, 90, 4, 1, halves, input);
            });
        }
        cases.add(format!("{kind}: fresh sequence"), |d| {
            conv1d_fill(d, 75, 4, 0, halves, normal);
            d.patch("state", 0, &[0; 75 * 3 * 4]);
        });
        cases.heavy(format!("{kind}: 262144 channels"), |d| {
            conv1d_fill(d, 1 << 18, 4, 2, halves, normal);
        });
    }
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
fn delta_net(call: &Call) -> Result<Vec<Expected>, OracleError> {
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
        Token {
            q: l2_normalised(q, 1.0 / (key as f64).sqrt()),
            k: l2_normalised(k, 1.0),
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
    let rows = |d: &mut Draft, fill: Fill, len: u32, stride: u32| {
        let mut all = Vec::new();
        for t in 0..tokens {
            all.resize((t * stride) as usize, f32::NAN);
            all.extend(fill.make(&mut d.rng, len as usize));
        }
        all
    };
    let conv_out = rows(d, net.qkv, dense, conv);
    d.read_floats("conv_out", 0, &conv_out);
    let alpha = rows(d, net.alpha, heads, ab);
    d.read_floats("alpha", 0, &alpha);
    let beta = rows(d, net.beta, heads, ab);
    d.read_floats("beta", 0, &beta);
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

fn delta_net_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    let plain = Net {
        heads: 2,
        width: 16,
        key: 16,
        groups: 2,
        tokens: 1,
        gaps: [0; 3],
        parameters: [Some(false), Some(false)],
        alpha: normal,
        beta: normal,
        qkv: normal,
    };
    let mut add = |label: &str, net: Net| cases.add(label, |d| delta_net_fill(d, net));
    let bare = [None, None];
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
    let choices = [None, Some(false), Some(true)];
    for (i, bias) in choices.into_iter().enumerate() {
        for (j, a) in choices.into_iter().enumerate() {
            let kind = ["absent", "f32", "f16"];
            let label = format!("dt_bias {}, ssm_a {}", kind[i], kind[j]);
            add(
                &label,
                Net {
                    heads: 3,
                    tokens: 2,
                    parameters: [bias, a],
                    ..plain
                },
            );
        }
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
    for (label, alpha, parameters) in [
        ("alpha 25", Fill::Equal(25.0), plain.parameters),
        ("alpha 100", Fill::Equal(100.0), plain.parameters),
        ("alpha 100, no ssm_a", Fill::Equal(100.0), bare),
        ("alpha -100", Fill::Equal(-100.0), plain.parameters),
        ("alpha -1e4, no ssm_a", Fill::Equal(-1e4), bare),
        ("alpha wide", Fill::Normal(20.0), plain.parameters),
    ] {
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
    for (label, beta) in [
        ("beta -100", Fill::Equal(-100.0)),
        ("beta 100", Fill::Equal(100.0)),
        ("beta wide", Fill::Normal(20.0)),
    ] {
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
    for (label, qkv) in [
        ("zeros", Fill::Equal(0.0)),
        ("all equal", Fill::Equal(0.7)),
        // sum of squares below the clamp
        ("tiny", Fill::Normal(1e-8)),
        ("a NaN in the last value head", Fill::One(0, f32::NAN)),
    ] {
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

fn delta_net_random(d: &mut Draft) {
    let kind = |d: &mut Draft| d.rng.pick(&[None, Some(false), Some(true)]);
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
        parameters: [kind(d), kind(d)],
        alpha: Fill::Normal(1.0),
        beta: Fill::Normal(1.0),
        qkv: Fill::Normal(1.0),
    };
    delta_net_fill(d, net);
}

/// (o_i * rinv) * w_i * silu(z_i): 1e-6 absolute + 1e-5 relative
fn gated_norm(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (heads, dim) = (call.count("dt_rank")?, call.count("head_v_dim")?);
    let period = call.count("d_state")?;
    let per_head = call.word("norm_per_head")? != 0;
    let o = call.doubles("delta_out", 0, heads * dim)?;
    let z = call.doubles("z", 0, heads * dim)?;
    let weights = if per_head { heads * dim } else { period };
    let weight = call.doubles("norm_weight", 0, weights)?;
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
    Ok(vec![Expected::floats(call.index("out")?, 0, elements)])
}

/// `fills` are those of delta_out and z.
fn gated_norm_fill(
    d: &mut Draft,
    heads: u32,
    dim: u32,
    period: u32,
    per_head: bool,
    fills: [Fill; 2],
) {
    d.set_all(&[
        ("d_inner", heads * dim),
        ("dt_rank", heads),
        ("head_v_dim", dim),
        ("d_state", period),
        ("norm_per_head", u32::from(per_head)),
    ]);
    for (buffer, fill) in ["delta_out", "z"].into_iter().zip(fills) {
        let values = fill.make(&mut d.rng, (heads * dim) as usize);
        d.read_floats(buffer, 0, &values);
    }
    let weights = if per_head { heads * dim } else { period };
    let weight = d.rng.normals(weights as usize, 1.2);
    d.read_floats("norm_weight", 0, &weight);
    d.write("out");
}

fn gated_norm_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
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
    ] {
        for per_head in [false, true] {
            let kind = if per_head {
                "one weight each"
            } else {
                "shared weights"
            };
            cases.add(
                format!("{heads} heads of {dim}, period {period}, {kind}"),
                |d| {
                    gated_norm_fill(d, heads, dim, period, per_head, [normal; 2]);
                },
            );
        }
    }
    for (label, o, z) in [
        ("zeros", Fill::Equal(0.0), normal),
        ("z zero", normal, Fill::Equal(0.0)),
        ("all equal", Fill::Equal(0.3), Fill::Equal(1.5)),
        ("large", Fill::Normal(1e12), normal),
        ("small", Fill::Normal(1e-4), normal),
        ("below eps", Fill::Normal(1e-10), normal),
        ("z wide", normal, Fill::Normal(60.0)),
        ("z very wide", normal, Fill::Alternating(1e4)),
        ("a NaN in the last head", Fill::One(3, f32::NAN), normal),
        ("z NaN", normal, Fill::Sprinkled(f32::NAN)),
    ] {
        cases.add(label, |d| gated_norm_fill(d, 3, 96, 96, false, [o, z]));
    }
    for input in ["delta_out", "z"] {
        let kernel = cases.kernel();
        let position = |name: &str| kernel.buffers.iter().position(|b| b.name == name);
        let pair = (position("out"), position(input));
        let allowed = kernel.may_alias.iter().any(|&(a, b)| {
            let (a, b) = (Some(a as usize), Some(b as usize));
            pair == (a, b) || pair == (b, a)
        });
        // The contract leaves it to the port whether it works in place; the catalog says so.
        if allowed {
            cases.add(format!("out is {input}"), |d| {
                gated_norm_fill(d, 4, 128, 128, false, [normal; 2]);
                d.own("out", input);
            });
        }
    }
    cases.heavy("4096 heads of 128", |d| {
        gated_norm_fill(d, 4096, 128, 128, false, [normal; 2]);
    });
}
