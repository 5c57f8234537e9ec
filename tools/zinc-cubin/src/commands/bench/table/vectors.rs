//! Kernels that move vectors: norms, activations, rotations, caches, quantization, attention, delta net and the rest.

use super::dense::{packed_tokens, tokens_checked};
use super::*;

/// Elements that a check of a flat vector looks at in each place.
const ELEMENTS: u32 = 65536;
/// A large square: 64 MiB of floats.
const SIDE: u32 = 4096;

pub(super) fn shapes(kernel: &'static str) -> Vec<Shape> {
    match kernel {
        // One operation per element and name.
        "vadd" => flat(kernel, 1, &["a", "b", "c"], &[]),
        "swiglu" | "swiglu_oai" | "geglu" => flat(kernel, 5, &["gate", "up", "y"], &[]),
        "sigmoid_mul" => flat(kernel, 4, &["x", "gate", "y"], &[]),
        "mul_elementwise" => flat(kernel, 1, &["a", "b"], &[("b", Fill::Floats(0.999, 1.001))]),
        "bias_add" => flat(
            kernel,
            1,
            &["out", "bias"],
            &[("bias", Fill::Floats(-1e-3, 1e-3))],
        )
        .into_iter()
        .map(|row| row.set(&[("src_offset", 0)]))
        .collect(),
        "scale_accumulate" => flat(kernel, 2, &["accum", "src"], &[])
            .into_iter()
            .map(|row| row.float("scale_bits", 0.125))
            .collect(),
        "scale_in_place" => flat(kernel, 1, &["data"], &[])
            .into_iter()
            .map(|row| row.float("scale_bits", 0.9995))
            .collect(),
        "sigmoid_scale_acc" => flat(kernel, 2, &["accum", "src"], &[]),
        "deinterleave" => sizes(
            |heads, test| {
                Shape::new(kernel, format!("{heads} heads of {}", width(test)))
                    .set(&[("head_dim", width(test)), ("n_heads", heads)])
            },
            &[8 * SIDE, 16],
            3,
        ),
        "deinterleave_batched" => tokens(|n, test| {
            let (heads, dim) = if test { (2, 32) } else { (16, 256) };
            let row = Shape::new(
                kernel,
                format!("{}, {heads} heads of {dim}", tokens_text(n)),
            )
            .set(&[("head_dim", dim), ("n_heads", heads), ("n_tokens", n)]);
            let size = words(heads * dim);
            tokens_checked(
                row,
                n,
                16,
                "n_tokens",
                &[("packed", 2 * size), ("q", size), ("gate", size)],
            )
        }),
        "rms_norm_mul" => norms(kernel, 4, "n_rows", &["x", "y"], &["eps"]),
        "rms_norm_add" => norms(kernel, 5, "n_tokens", &["hidden", "src"], &["eps"]),
        "residual_rms_norm" => norms(
            kernel,
            6,
            "n_tokens",
            &["hidden", "residual", "norm_out"],
            &["eps", "scale"],
        ),
        "post_norm_residual_rms_norm" => norms(
            kernel,
            9,
            "n_tokens",
            &["hidden", "residual", "norm_out"],
            &["eps", "hidden_scale"],
        ),
        "residual_rms_norm_quant_q8_1" => tokens(|t, test| {
            let n = if test {
                256
            } else if t == SIDE {
                SIDE
            } else {
                HIDDEN
            };
            let row = Shape::new(kernel, format!("{t}x{n}"))
                .set(&[
                    ("n", n),
                    ("blocks_per_token", n / 32),
                    ("stride_packed", n / 4),
                ])
                .set(&[("write_norm_out", 1), ("n_tokens", t)])
                .float("eps", 1e-6)
                .float("scale", 0.5)
                .operations(10 * u64::from(n) * u64::from(t));
            let strides = [
                ("hidden", words(n)),
                ("residual", words(n)),
                ("norm_out", words(n)),
                ("packed", u64::from(n)),
                ("scale_dsum", u64::from(n) / 4),
            ];
            tokens_checked(row, t, 16, "n_tokens", &strides)
        }),
        "ssm_gated_norm_batched" => vec![
            vec_norm(kernel, 5120).warm(),
            vec_norm(kernel, HIDDEN).warm(),
            vec_norm(kernel, 64).test(),
        ],
        "norm_rope" => [16, 2, 3].map(|heads| norm_rope(kernel, heads)).into(),
        "qk_norm_rope_kv_write" => vec![
            write_heads(16, 2, 256, 64).warm(),
            write_heads(3, 2, 32, 16).test(),
        ],
        "rope_fused" => [(16, false), (2, false), (3, true)]
            .map(|(heads, test)| rope(kernel, heads, 1, test))
            .into(),
        "rope_batched" => vec![
            rope(kernel, 16, SIDE, false),
            rope(kernel, 16, PROMPT, false),
            rope(kernel, 16, PROMPT, false).warm(),
            rope(kernel, 2, PROMPT, false),
            rope(kernel, 3, 2, true),
        ],
        "sigmoid_scale_acc_batch" => tokens(|t, test| {
            let n = if test {
                64
            } else if t == SIDE {
                SIDE
            } else {
                HIDDEN
            };
            let row = Shape::new(kernel, format!("{t}x{n}"))
                .set(&[("hidden_dim", n), ("n_tokens", t), ("accum_token_base", 0)])
                .operations(2 * u64::from(n) * u64::from(t));
            tokens_checked(
                row,
                t,
                16,
                "n_tokens",
                &[("accum", words(n)), ("src", words(n)), ("gate", 4)],
            )
        }),
        "quantize_q8_1" => [SIDE * SIDE, HIDDEN * PROMPT, HIDDEN, 96]
            .map(quantize_flat)
            .into(),
        "quantize_act_q8" | "quantize_act_q8_1" => vec![
            quantize_rows(kernel, SIDE, SIDE),
            quantize_rows(kernel, PROMPT, SIDE),
            quantize_rows(kernel, PROMPT, HIDDEN),
            quantize_rows(kernel, 1, HIDDEN).warm(),
            quantize_rows(kernel, 3, 96).test(),
        ],
        "pack_act_f16" => vec![
            pack_rows(SIDE, SIDE),
            pack_rows(PROMPT, SIDE),
            pack_rows(PROMPT, HIDDEN),
            pack_rows(1, HIDDEN).warm(),
            pack_rows(3, 96).test(),
        ],
        "kv_cache_write" => sizes(
            |n, _| Shape::new(kernel, format!("{n}")).set(&[("kv_dim", n), ("dst_offset", 0)]),
            &[SIDE * SIDE, 512],
            48,
        ),
        "kv_cache_write_batched" => tokens(|t, test| {
            let (kv, page) = if test { (32, 4) } else { (512, 16) };
            let pages = t.div_ceil(page);
            let table: Vec<u32> = zinc_oracle::Rng::from_names(&["pages"]).permutation(pages);
            Shape::new(kernel, format!("{} of {kv}", tokens_text(t)))
                .set(&[
                    ("kv_dim", kv),
                    ("n_tokens", t),
                    ("page_size", page),
                    ("base_token", 0),
                ])
                .set(&[("n_pages", pages)])
                .moves("k_dst", words(kv * t))
                .moves("v_dst", words(kv * t))
                .fill("page_table", Fill::Words(table.into()))
        }),
        "ssm_conv1d" => vec![conv(8192).warm(), conv(96).test()],
        "ssm_conv1d_batched" => vec![
            conv_batched(8192, PROMPT),
            conv_batched(8192, PROMPT).warm(),
            conv_batched(8192, 2048),
            conv_batched(96, 7).test(),
        ],
        "ssm_qk_norm" => [(16, false), (2, true)]
            .map(|(groups, test)| qk_norm(groups, test))
            .into(),
        "ssm_delta_net" | "ssm_delta_net_cols8" | "ssm_delta_net_cols8_normed" => vec![
            delta(kernel, 32, 16, 128, 1024),
            delta(kernel, 32, 16, 128, PROMPT),
            delta(kernel, 32, 16, 128, PROMPT).warm(),
            delta(kernel, 32 * 64, 16, 128, 1),
            delta(kernel, 32, 16, 128, 1),
            delta(kernel, 32, 16, 128, 1).warm(),
            delta(kernel, 2, 2, 128, 3).test(),
        ],
        "ssm_gated_norm" => vec![gated_norm(32).warm(), gated_norm(3).test()],
        "ssm_gated_norm_batch_tok" => tokens(|t, test| {
            let heads = if test { 3 } else { 32 };
            let row = gated_norm_fields(
                kernel,
                format!("{}, {heads} heads of 128", tokens_text(t)),
                heads,
            )
            .set(&[("n_tok", t)])
            .operations(9 * u64::from(heads * 128) * u64::from(t));
            let stride = words(heads * 128);
            tokens_checked(
                row,
                t,
                8,
                "n_tok",
                &[("delta_out", stride), ("z", stride), ("out", stride)],
            )
        }),
        "flash_attn" => {
            let mut rows: Vec<Shape> = [(32768, 1), (32768, 4), (4096, 4)]
                .map(|(context, chunks)| decode_attention(16, 2, 256, context, chunks))
                .into();
            rows.push(decode_attention(32, 8, 128, 32768, 4));
            rows.push(decode_attention(16, 2, 256, 4096, 4).warm());
            rows.push(decode_attention(4, 2, 32, 70, 2).test());
            rows
        }
        "flash_attn_batched" => vec![
            prefill_attention(kernel, 16, 2, 256, 0, 512),
            prefill_attention(kernel, 16, 2, 256, 0, 2048),
            prefill_attention(kernel, 32, 8, 128, 0, 512),
            prefill_attention(kernel, 16, 2, 256, 4096, 16),
            prefill_attention(kernel, 4, 2, 32, 5, 9).test(),
        ],
        "flash_attn_batched_gqa" => vec![
            prefill_attention(kernel, 24, 4, 256, 0, 512),
            prefill_attention(kernel, 24, 4, 256, 0, 2048),
            prefill_attention(kernel, 6, 1, 256, 3, 5).test(),
        ],
        "flash_attn_split_merge" => vec![merge(16, 256, 4).warm(), merge(3, 32, 2).test()],
        "argmax" => vec![
            argmax(VOCABULARY, 512).warm(),
            argmax_pairs(512).warm(),
            argmax(1000, 4).test(),
            argmax_pairs(16).test(),
        ],
        "embed_gather" => vec![
            gather(VOCABULARY, HIDDEN, 3, PROMPT),
            gather(VOCABULARY, HIDDEN, 2, 1).warm(),
            gather(40, 256, 4, 3).test(),
        ],
        _ => Vec::new(),
    }
}

fn width(test: bool) -> u32 {
    if test { 32 } else { 256 }
}

/// A large row cold, a small one warm, and a test row.
fn sizes(make: impl Fn(u32, bool) -> Shape, real: &[u32; 2], test: u32) -> Vec<Shape> {
    vec![
        make(real[0], false),
        make(real[1], false).warm(),
        make(test, true).test(),
    ]
}

/// A large row, a prompt and one token.
fn tokens(make: impl Fn(u32, bool) -> Shape) -> Vec<Shape> {
    vec![
        make(SIDE, false),
        make(PROMPT, false),
        make(1, false).warm(),
        make(3, true).test(),
    ]
}

/// Element-wise kernels of `n` elements.
fn flat(
    kernel: &'static str,
    operations: u64,
    buffers: &[&'static str],
    fills: &[(&'static str, Fill)],
) -> Vec<Shape> {
    let make = |label: String, n: u32| {
        let mut row = Shape::new(kernel, label)
            .set(&[("n", n)])
            .operations(operations * u64::from(n));
        row.fills = fills.to_vec();
        if n <= 2 * ELEMENTS {
            return row;
        }
        let parts = places(n, ELEMENTS, 4).into_iter().map(|at| Part {
            fields: vec![("n", ELEMENTS)],
            views: buffers
                .iter()
                .map(|name| (*name, from(words(at))))
                .collect(),
        });
        let parts: Vec<Part> = parts.collect();
        row.parts(format!("{} of {n} elements", 3 * ELEMENTS), parts)
    };
    vec![
        make(format!("{SIDE}x{SIDE}"), SIDE * SIDE),
        make(format!("{PROMPT}x{HIDDEN}"), PROMPT * HIDDEN),
        make(format!("1x{HIDDEN}"), HIDDEN).warm(),
        make("1x100".to_owned(), 100).test(),
    ]
}

/// Norms of rows of `n` elements.
fn norms(
    kernel: &'static str,
    operations: u64,
    count: &'static str,
    buffers: &[&'static str],
    floats: &[&'static str],
) -> Vec<Shape> {
    tokens(|t, test| {
        let n = if test {
            64
        } else if t == SIDE {
            SIDE
        } else {
            HIDDEN
        };
        let mut row = Shape::new(kernel, format!("{t}x{n}"))
            .set(&[("n", n), (count, t)])
            .operations(operations * u64::from(t) * u64::from(n));
        for field in floats {
            row = row.float(field, if *field == "eps" { 1e-6 } else { 0.5 });
        }
        let strides: Vec<_> = buffers.iter().map(|name| (*name, words(n))).collect();
        tokens_checked(row, t, 16, count, &strides)
    })
}

fn vec_norm(kernel: &'static str, n: u32) -> Shape {
    Shape::new(kernel, format!("1x{n}"))
        .set(&[("n", n)])
        .float("eps", 1e-6)
        .operations(4 * u64::from(n))
}

fn norm_rope(kernel: &'static str, heads: u32) -> Shape {
    let test = heads == 3;
    let (dim, rotated) = if test { (32, 16) } else { (256, 64) };
    let row = Shape::new(kernel, format!("{heads} heads of {dim}"))
        .set(&[
            ("head_dim", dim),
            ("rope_dim", rotated),
            ("n_heads", heads),
            ("position", 1000),
        ])
        .float("freq_base_bits", 1e7)
        .float("attn_scale_bits", 1.0)
        .float("eps_bits", 1e-6)
        .operations(4 * u64::from(heads * dim) + 3 * u64::from(heads * rotated))
        .warm();
    if test { row.test() } else { row }
}

fn write_heads(q: u32, k: u32, dim: u32, rotated: u32) -> Shape {
    let offset = 100 * k * dim;
    Shape::new(
        "qk_norm_rope_kv_write",
        format!("{q} and {k} heads of {dim}"),
    )
    .set(&[
        ("head_dim", dim),
        ("rope_dim", rotated),
        ("n_q_heads", q),
        ("n_k_heads", k),
    ])
    .set(&[("position", 1000), ("dst_offset", offset), ("v_norm", 0)])
    .float("freq_base_bits", 1e7)
    .float("attn_scale_bits", 1.0)
    .float("eps_bits", 1e-6)
    .moves("k_cache", words(k * dim))
    .moves("v_cache", words(k * dim))
    .operations(4 * u64::from((q + k) * dim))
}

fn rope(kernel: &'static str, heads: u32, t: u32, test: bool) -> Shape {
    let (stride, rotated) = if test { (32, 16) } else { (256, 64) };
    let batched = kernel == "rope_batched";
    let label = match batched {
        true => format!("{t} tokens, {heads} heads of {stride}"),
        false => format!("{heads} heads of {stride}"),
    };
    let row = Shape::new(kernel, label)
        .set(&[
            ("stride", stride),
            ("rope_dim", rotated),
            ("n_heads", heads),
        ])
        .float("freq_base_bits", 1e7)
        .float("attn_scale_bits", 1.0)
        .operations(3 * u64::from(heads * rotated) * u64::from(t));
    let row = match batched {
        // A part's first token has another position.
        true => row.set(&[("position_base", 0), ("n_tokens", t)]),
        false => row.set(&[("position", 1000)]).warm(),
    };
    if test {
        return row.test();
    }
    if t < 64 {
        return row;
    }
    let size = words(heads * stride);
    let parts = places(t, 16, 1).into_iter().map(|at| Part {
        fields: vec![("n_tokens", 16), ("position_base", at)],
        views: vec![
            ("x", from(u64::from(at) * size)),
            ("y", from(u64::from(at) * size)),
        ],
    });
    let parts: Vec<Part> = parts.collect();
    row.parts(format!("48 of {t} tokens"), parts)
}

fn quantize_rows(kernel: &'static str, t: u32, k: u32) -> Shape {
    let row = Shape::new(kernel, format!("{t}x{k}"))
        .set(&[("n_tokens", t), ("k", k), ("blocks_per_token", k / 32)])
        .set(&[("total_blocks", t * (k / 32))])
        .operations(4 * u64::from(t) * u64::from(k));
    if t < 64 {
        return row;
    }
    let (factors, unit) = match kernel {
        "quantize_act_q8" => ("scale", 4),
        _ => ("scale_dsum", 8),
    };
    let parts = places(t, 16, 1).into_iter().map(|at| {
        let at = u64::from(at) * u64::from(k);
        Part {
            fields: vec![("n_tokens", 16), ("total_blocks", 16 * (k / 32))],
            views: vec![
                ("src", from(at * 4)),
                ("packed", from(at)),
                (factors, from(at / 32 * unit)),
            ],
        }
    });
    let parts: Vec<Part> = parts.collect();
    row.parts(format!("48 of {t} rows"), parts)
}

fn pack_rows(t: u32, k: u32) -> Shape {
    const COUNT: u32 = 16;
    let row = Shape::new("pack_act_f16", format!("{t}x{k}"))
        .set(&[("n", t), ("k", k), ("stride_x", k), ("x_offset", 0)])
        .operations(2 * u64::from(t) * u64::from(k));
    if t < 64 {
        return row;
    }
    // The order of a token's numbers depends on its number modulo 8.
    let parts = places(t, COUNT, 8).into_iter().map(|at| Part {
        fields: vec![("n", COUNT)],
        views: vec![
            ("x", from(u64::from(at) * words(k))),
            ("h", packed_tokens(at, COUNT, t, u64::from(k))),
            ("scale", from(words(at))),
        ],
    });
    let parts: Vec<Part> = parts.collect();
    row.parts(format!("{} of {t} rows", 3 * COUNT), parts)
}

fn quantize_flat(n: u32) -> Shape {
    let label = match n {
        n if n == SIDE * SIDE => format!("{SIDE}x{SIDE}"),
        n if n == HIDDEN * PROMPT => format!("{PROMPT}x{HIDDEN}"),
        n => format!("1x{n}"),
    };
    let row = Shape::new("quantize_q8_1", label)
        .set(&[("ne", n), ("num_blocks", n / 32)])
        .operations(4 * u64::from(n));
    match n {
        96 => row.test(),
        HIDDEN => row.warm(),
        _ => {
            let count = ELEMENTS / 32;
            let parts = places(n / 32, count, 1).into_iter().map(|at| Part {
                fields: vec![("ne", ELEMENTS), ("num_blocks", count)],
                views: vec![
                    ("src", from(u64::from(at) * 128)),
                    ("dst", from(u64::from(at) * 36)),
                ],
            });
            let parts: Vec<Part> = parts.collect();
            row.parts(format!("{} of {n} elements", 3 * ELEMENTS), parts)
        }
    }
}

fn conv(channels: u32) -> Shape {
    Shape::new("ssm_conv1d", format!("{channels} channels"))
        .set(&[
            ("conv_channels", channels),
            ("d_conv", 4),
            ("kernel_is_f16", 0),
            ("state_offset", 1),
        ])
        // One slot of the ring is written.
        .moves("state", words(4 * channels))
        .operations(11 * u64::from(channels))
}

fn conv_batched(channels: u32, t: u32) -> Shape {
    let row = Shape::new(
        "ssm_conv1d_batched",
        format!("{t} tokens, {channels} channels"),
    )
    .set(&[
        ("conv_channels", channels),
        ("d_conv", 4),
        ("kernel_is_f16", 0),
    ])
    .set(&[("state_offset", 1), ("n_tokens", t)])
    .operations(11 * u64::from(channels) * u64::from(t));
    if t < 64 {
        return row;
    }
    // A part is a range of channels of all tokens.
    let count = 64;
    let parts = places(channels, count, 4).into_iter().map(|c| Part {
        fields: vec![("conv_channels", count)],
        views: vec![
            (
                "qkv",
                pieces(words(c), words(count), words(channels), u64::from(t)),
            ),
            ("kernel", from(words(4 * c))),
            ("state", pieces(words(c), words(count), words(channels), 3)),
        ],
    });
    let parts: Vec<Part> = parts.collect();
    row.parts(format!("{} of {channels} channels", 3 * count), parts)
}

fn qk_norm(groups: u32, test: bool) -> Shape {
    let row = Shape::new("ssm_qk_norm", format!("2 x {groups} heads of 128"))
        .set(&[
            ("d_state", 128),
            ("n_group", groups),
            ("qk_dim", groups * 128),
        ])
        .operations(6 * u64::from(groups * 128))
        .warm();
    if test { row.test() } else { row }
}

/// The gated delta rule for `t` tokens of `heads` value heads, whose states are `dim` x `dim`.
fn delta(kernel: &'static str, heads: u32, groups: u32, dim: u32, t: u32) -> Shape {
    let keys = 2 * groups * dim;
    let stride = keys + heads * dim;
    let states = heads / 32;
    let label = match (t, states) {
        (1, 2..) => format!("{states} sequences, 32 heads of {dim}, 1 token"),
        (1, _) => format!("{heads} heads of {dim}, 1 token"),
        _ => format!("{heads} heads of {dim}, {t} tokens"),
    };
    // A key is a unit vector; the normed variant gets one that is normed already.
    let scale = if kernel == "ssm_delta_net_cols8_normed" {
        (1.0 / dim as f32).sqrt()
    } else {
        1.0
    };
    let row = Shape::new(kernel, label)
        .set(&[
            ("d_inner", heads * dim),
            ("dt_rank", heads),
            ("head_v_dim", dim),
            ("d_state", dim),
        ])
        .set(&[
            ("n_group", groups),
            ("ssm_a_is_f16", 0),
            ("dt_bias_is_f16", 0),
        ])
        .set(&[
            ("has_dt_bias", 1),
            ("has_ssm_a", 1),
            ("n_tok", t),
            ("conv_stride_tok", stride),
        ])
        .set(&[("ab_stride_tok", heads), ("y_stride_tok", heads * dim)])
        .fill("conv_out", Fill::Floats(-scale, scale))
        .fill("ssm_a", Fill::Floats(-0.5, -0.01))
        .fill("dt_bias", Fill::Floats(-2.0, 0.0))
        .fill("state", Fill::Floats(-0.1, 0.1))
        // Decay, prediction, update and readout of every state element.
        .operations(7 * u64::from(heads) * u64::from(dim * dim) * u64::from(t));
    if heads <= 2 || (t == 1 && states <= 1) {
        return row;
    }
    // Two value heads that use the first key heads: those at the start, and some behind them.
    let count = 2;
    let parts = [0, heads - groups].map(|h| {
        let own = keys + count * dim;
        let token = |i: u64| {
            let base = i * words(stride);
            let values = base + words(keys + h * dim);
            [
                base..base + words(keys),
                values..values + words(count * dim),
            ]
        };
        Part {
            fields: vec![
                ("d_inner", count * dim),
                ("dt_rank", count),
                ("conv_stride_tok", own),
                ("y_stride_tok", count * dim),
            ],
            views: vec![
                ("conv_out", (0..u64::from(t)).flat_map(token).collect()),
                ("dt_bias", from(words(h))),
                ("alpha", from(words(h))),
                ("beta", from(words(h))),
                ("ssm_a", from(words(h))),
                ("state", from(words(h * dim * dim))),
                (
                    "out",
                    pieces(
                        words(h * dim),
                        words(count * dim),
                        words(heads * dim),
                        u64::from(t),
                    ),
                ),
            ],
        }
    });
    row.parts(format!("{} of {heads} heads", 2 * count), parts.into())
}

fn gated_norm_fields(kernel: &'static str, label: String, heads: u32) -> Shape {
    Shape::new(kernel, label).set(&[
        ("d_inner", heads * 128),
        ("dt_rank", heads),
        ("head_v_dim", 128),
        ("d_state", 128),
        ("norm_per_head", 0),
    ])
}

fn gated_norm(heads: u32) -> Shape {
    gated_norm_fields("ssm_gated_norm", format!("{heads} heads of 128"), heads)
        .operations(9 * u64::from(heads * 128))
}

/// Pages of the cache, in a mixed order.
fn page_table(pages: u32) -> Fill {
    Fill::Words(
        zinc_oracle::Rng::from_names(&["pages"])
            .permutation(pages)
            .into(),
    )
}

const PAGE: u32 = 16;

fn decode_attention(heads: u32, kv: u32, dim: u32, context: u32, chunks: u32) -> Shape {
    let pages = context.div_ceil(PAGE);
    let cached = words(context * kv * dim);
    let label = match chunks {
        1 => format!("{heads}/{kv} heads of {dim}, context {context}"),
        _ => format!("{heads}/{kv} heads of {dim}, context {context}, {chunks} slices"),
    };
    Shape::new("flash_attn", label)
        .set(&[
            ("head_dim", dim),
            ("n_heads", heads),
            ("n_kv_heads", kv),
            ("seq_len", context),
        ])
        .set(&[
            ("page_size", PAGE),
            ("attn_scale_bits", 0),
            ("sink_offset", 0),
        ])
        .set(&[("n_pages", pages), ("n_i_chunks", chunks)])
        .fill("page_table", page_table(pages))
        .fill("sinks", Fill::Constant(f32::NAN))
        .moves("k_cache", cached)
        .moves("v_cache", cached)
        .operations(4 * u64::from(heads * dim) * u64::from(context))
}

fn prefill_attention(
    kernel: &'static str,
    heads: u32,
    kv: u32,
    dim: u32,
    start: u32,
    queries: u32,
) -> Shape {
    let context = start + queries;
    let pages = context.div_ceil(PAGE);
    let cached = words(context * kv * dim);
    let label = match start {
        0 => format!("{heads}/{kv} heads of {dim}, {queries} tokens"),
        _ => format!("{heads}/{kv} heads of {dim}, {queries} tokens at {start}"),
    };
    // Every query looks at the tokens up to itself.
    let pairs =
        u64::from(queries) * u64::from(start) + u64::from(queries) * u64::from(queries + 1) / 2;
    let row = Shape::new(kernel, label)
        .set(&[
            ("head_dim", dim),
            ("n_heads", heads),
            ("n_kv_heads", kv),
            ("seq_start", start),
        ])
        .set(&[
            ("n_queries", queries),
            ("page_size", PAGE),
            ("attn_scale_bits", 0),
        ])
        .set(&[("sink_offset", 0), ("n_pages", pages)])
        .fill("page_table", page_table(pages))
        .fill("sinks", Fill::Constant(f32::NAN))
        .moves("k_cache", cached)
        .moves("v_cache", cached)
        .operations(4 * u64::from(heads * dim) * pairs);
    if queries <= 16 {
        return row;
    }
    let count = 4;
    let stride = words(heads * dim);
    let parts = places(queries, count, 1).into_iter().map(|at| Part {
        fields: vec![("n_queries", count), ("seq_start", start + at)],
        views: vec![
            ("q", from(u64::from(at) * stride)),
            ("out", from(u64::from(at) * stride)),
        ],
    });
    let parts: Vec<Part> = parts.collect();
    row.parts(format!("{} of {queries} tokens", 3 * count), parts)
}

fn merge(heads: u32, dim: u32, chunks: u32) -> Shape {
    Shape::new(
        "flash_attn_split_merge",
        format!("{heads} heads of {dim}, {chunks} slices"),
    )
    .set(&[
        ("head_dim", dim),
        ("n_heads", heads),
        ("sink_offset", 0),
        ("n_i_chunks", chunks),
    ])
    .fill("partial", Fill::Floats(0.25, 1.5))
    .fill("sinks", Fill::Constant(f32::NAN))
    .operations(2 * u64::from(heads * dim * chunks))
}

fn argmax(n: u32, groups: u32) -> Shape {
    Shape::new("argmax", format!("{n} logits to {groups} pairs"))
        .set(&[("n", n), ("phase", 0), ("workgroups", groups)])
        .fill("partials", Fill::Constant(0.0))
        .moves("partials", words(2 * groups))
        .operations(u64::from(n))
}

fn argmax_pairs(n: u32) -> Shape {
    let mut rng = zinc_oracle::Rng::from_names(&["pairs"]);
    let pairs = (0..n).flat_map(|i| [rng.normal().to_bits(), i * 64 + i % 64]);
    Shape::new("argmax", format!("{n} pairs"))
        .set(&[("n", n), ("phase", 1), ("workgroups", 1)])
        .fill("partials", Fill::Words(pairs.collect()))
        .moves("partials", words(2 * n))
        .operations(u64::from(n))
}

/// Rows of the embedding table in the format that `qtype` stands for.
fn gather(vocabulary: u32, cols: u32, qtype: u32, rows: u32) -> Shape {
    let format = match qtype {
        2 => Format::Q8_0,
        3 => Format::Q4K,
        _ => Format::Q6K,
    };
    let row_bytes = format.row_bytes(cols as usize) as u32;
    let mut rng = zinc_oracle::Rng::from_names(&["ids"]);
    let ids = (0..rows).map(|_| rng.below(vocabulary));
    Shape::new(
        "embed_gather",
        format!("{rows} rows of {cols}, {}", format.dtype()),
    )
    .set(&[
        ("cols", cols),
        ("index_offset", 0),
        ("out_offset", 0),
        ("vocab_last", vocabulary - 1),
    ])
    .set(&[("qtype", qtype), ("n_rows", rows), ("row_bytes", row_bytes)])
    .fill("ids", Fill::Words(ids.collect()))
    .fill("table", Fill::Blocks(format))
    .moves("table", u64::from(row_bytes) * u64::from(rows))
    .operations(u64::from(rows * cols))
}

/// Small shapes that are checked in parts.
#[cfg(test)]
pub(super) fn with_parts(kernel: &'static str) -> Vec<Shape> {
    match kernel {
        "ssm_delta_net" | "ssm_delta_net_cols8" | "ssm_delta_net_cols8_normed" => {
            vec![delta(kernel, 4, 2, 128, 2)]
        }
        "flash_attn_batched" => vec![prefill_attention(kernel, 4, 2, 32, 5, 20)],
        "flash_attn_batched_gqa" => vec![prefill_attention(kernel, 6, 1, 256, 5, 20)],
        "ssm_conv1d_batched" => vec![conv_batched(200, 70)],
        "rope_batched" => vec![rope(kernel, 2, 70, false)],
        "quantize_q8_1" => vec![quantize_flat(3 * ELEMENTS)],
        // The smallest of the real rows with parts; one token has none.
        _ => shapes(kernel)
            .into_iter()
            .filter(|row| matches!(row.checked, Checked::Parts(..)))
            .min_by_key(|row| row.operations)
            .into_iter()
            .collect(),
    }
}
