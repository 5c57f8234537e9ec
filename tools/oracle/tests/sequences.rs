//! References of batched and of split kernels against repeated dispatches of the plain ones.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use zinc_contract::Kernel;
use zinc_oracle::Case;

/// A case of a kernel by its label.
fn case(kernel: &str, label: &str) -> Case {
    let cases = zinc_oracle::cases(zinc_contract::kernel(kernel).unwrap()).unwrap();
    let found = cases.into_iter().find(|c| c.label == label);
    found.unwrap_or_else(|| panic!("{kernel} has no case {label}"))
}

/// Position of a field or, failing that, of a buffer.
fn position(kernel: &Kernel, name: &str) -> usize {
    let field = kernel.fields.iter().position(|f| f.name == name);
    let buffer = || kernel.buffers.iter().position(|b| b.name == name);
    field.or_else(buffer).unwrap()
}

/// A field of a case.
fn field(case: &Case, name: &str) -> usize {
    case.words[position(case.kernel, name)] as usize
}

/// The contents of a buffer of a case.
fn buffer<'a>(case: &'a Case, name: &str) -> &'a [u8] {
    case.contents()[position(case.kernel, name)]
}

/// What the reference leaves in the buffers of one dispatch.
fn dispatch(kernel: &str, fields: &[(&str, usize)], buffers: &[&[u8]]) -> Vec<Vec<u8>> {
    let kernel = zinc_contract::kernel(kernel).unwrap();
    let mut words: Vec<u32> = vec![0; kernel.fields.len()];
    for (name, value) in fields {
        words[position(kernel, name)] = *value as u32;
    }
    let mut outputs: Vec<Vec<u8>> = buffers.iter().map(|b| b.to_vec()).collect();
    for expected in zinc_oracle::expect(kernel, &words, buffers).unwrap() {
        outputs[expected.buffer] = expected.sample(buffers[expected.buffer]);
    }
    outputs
}

/// The first `len` f32 values of row `t`, where rows are `stride` apart.
fn row(bytes: &[u8], t: usize, stride: usize, len: usize) -> &[u8] {
    &bytes[t * stride * 4..][..len * 4]
}

/// The outputs that leave every buffer as it is.
fn unchanged(case: &Case) -> Vec<Vec<u8>> {
    case.contents().iter().map(|b| b.to_vec()).collect()
}

#[test]
fn a_batched_convolution_is_the_convolution_token_by_token() {
    for kind in ["f32", "f16"] {
        let case = case(
            "ssm_conv1d_batched",
            &format!("{kind}: 512 tokens of 64 channels"),
        );
        let (channels, past) = (field(&case, "conv_channels"), field(&case, "d_conv") - 1);
        let mut outputs = unchanged(&case);
        let mut state = buffer(&case, "state").to_vec();
        for t in 0..512 {
            let input = row(buffer(&case, "qkv"), t, channels, channels);
            let result = dispatch(
                "ssm_conv1d",
                &[
                    ("conv_channels", channels),
                    ("d_conv", past + 1),
                    ("kernel_is_f16", field(&case, "kernel_is_f16")),
                    ("state_offset", (field(&case, "state_offset") + t) % past),
                ],
                &[
                    input,
                    buffer(&case, "kernel"),
                    &state,
                    &vec![0; channels * 4],
                ],
            );
            state.clone_from(&result[2]);
            outputs[0][t * channels * 4..][..channels * 4].copy_from_slice(&result[3]);
        }
        outputs[2] = state;
        let report = case.compare(&outputs).unwrap();
        assert!(report.ok(), "{report}");
    }
}

#[test]
fn a_delta_net_over_512_tokens_is_the_one_token_by_token() {
    for kernel in ["ssm_delta_net_cols8", "ssm_delta_net_cols8_normed"] {
        let case = case(kernel, "four heads, 512 tokens");
        let strides = ["conv_stride_tok", "ab_stride_tok", "y_stride_tok"];
        let [conv, ab, y] = strides.map(|s| field(&case, s));
        let fields: Vec<(&str, usize)> = (case.kernel.fields.iter())
            .map(|f| (f.name, field(&case, f.name)))
            .chain([("n_tok", 1)])
            .collect();
        let mut outputs = unchanged(&case);
        let mut state = buffer(&case, "state").to_vec();
        for t in 0..512 {
            let result = dispatch(
                kernel,
                &fields,
                &[
                    row(buffer(&case, "conv_out"), t, conv, conv),
                    buffer(&case, "dt_bias"),
                    row(buffer(&case, "alpha"), t, ab, ab),
                    row(buffer(&case, "beta"), t, ab, ab),
                    buffer(&case, "ssm_a"),
                    &state,
                    &vec![0; y * 4],
                ],
            );
            state.clone_from(&result[5]);
            outputs[6][t * y * 4..][..y * 4].copy_from_slice(&result[6]);
        }
        outputs[5] = state;
        let report = case.compare(&outputs).unwrap();
        assert!(report.ok(), "{report}");
    }
}

#[test]
fn normalising_first_gives_the_result_of_the_delta_net_that_normalises() {
    let case = case("ssm_delta_net_cols8", "5 heads, 3 groups, 1 tokens");
    let groups = field(&case, "n_group");
    let fields = [
        ("d_state", 128),
        ("n_group", groups),
        ("qk_dim", groups * 128),
    ];
    let normed = dispatch("ssm_qk_norm", &fields, &[buffer(&case, "conv_out")]);
    let fields: Vec<(&str, usize)> = (case.kernel.fields.iter())
        .map(|f| (f.name, field(&case, f.name)))
        .collect();
    let mut buffers = case.contents();
    buffers[0] = &normed[0];
    let mut outputs = dispatch("ssm_delta_net_cols8_normed", &fields, &buffers);
    outputs[0] = buffer(&case, "conv_out").to_vec();
    let report = case.compare(&outputs).unwrap();
    assert!(report.ok(), "{report}");
}

#[test]
fn merged_slices_are_the_attention_in_one_piece() {
    for label in [
        "300 tokens of 32, 1 slices",
        "2 tokens, 1 slices",
        "sinks normal, 40 tokens",
        "sinks normal, 0 tokens",
        "sinks large, 1 tokens",
        "sinks some NaN, 40 tokens",
    ] {
        let case = case("flash_attn", label);
        for chunks in [2, 3, 4, 7] {
            let fields = |chunks: usize| -> Vec<(&str, usize)> {
                let fields = case.kernel.fields.iter();
                let fields = fields.map(|f| (f.name, field(&case, f.name)));
                fields.chain([("n_i_chunks", chunks)]).collect()
            };
            let (heads, dim) = (field(&case, "n_heads"), field(&case, "head_dim"));
            let mut partial = vec![0; heads * chunks * (dim + 2) * 4];
            let mut buffers = case.contents();
            buffers[4] = &partial;
            let split = dispatch("flash_attn", &fields(chunks), &buffers);
            partial.clone_from(&split[4]);
            let merged = dispatch(
                "flash_attn_split_merge",
                &[
                    ("head_dim", dim),
                    ("n_heads", heads),
                    ("sink_offset", field(&case, "sink_offset")),
                    ("n_i_chunks", chunks),
                ],
                &[&partial, buffer(&case, "out"), buffer(&case, "sinks")],
            );
            let mut outputs = unchanged(&case);
            outputs[4].clone_from(&merged[1]);
            let report = case.compare(&outputs).unwrap();
            assert!(report.ok(), "{chunks} slices: {report}");
        }
    }
}

#[test]
fn every_query_of_a_batch_is_the_attention_of_its_prefix() {
    let case = case("flash_attn_batched", "17 queries after 16");
    let width = field(&case, "n_heads") * field(&case, "head_dim");
    let mut outputs = unchanged(&case);
    for j in 0..17 {
        let names = [
            "head_dim",
            "n_heads",
            "n_kv_heads",
            "page_size",
            "attn_scale_bits",
            "sink_offset",
            "n_pages",
        ];
        let mut fields: Vec<(&str, usize)> = names.map(|n| (n, field(&case, n))).to_vec();
        fields.extend([("seq_len", 16 + j + 1), ("n_i_chunks", 1)]);
        let result = dispatch(
            "flash_attn",
            &fields,
            &[
                row(buffer(&case, "q"), j, width, width),
                buffer(&case, "k_cache"),
                buffer(&case, "v_cache"),
                buffer(&case, "page_table"),
                &vec![0; width * 4],
                buffer(&case, "sinks"),
            ],
        );
        outputs[4][j * width * 4..][..width * 4].copy_from_slice(&result[4]);
    }
    let report = case.compare(&outputs).unwrap();
    assert!(report.ok(), "{report}");
}

#[test]
fn a_quantised_norm_is_the_norm_and_its_quantisation() {
    let case = case(
        "residual_rms_norm_quant_q8_1",
        "3 tokens of 512, with norm_out",
    );
    let names = ["n", "n_tokens", "eps", "scale"];
    let fields = names.map(|n| (n, field(&case, n)));
    let rows = 3 * 512;
    let [hidden, residual, weights] =
        ["hidden", "residual", "weights"].map(|name| buffer(&case, name));
    let norm = dispatch(
        "residual_rms_norm",
        &fields,
        &[hidden, residual, &vec![0; rows * 4], weights],
    );
    let blocks = [
        ("n_tokens", 3),
        ("k", 512),
        ("blocks_per_token", 16),
        ("total_blocks", 48),
    ];
    let quants = dispatch(
        "quantize_act_q8_1",
        &blocks,
        &[&norm[2], &vec![0; rows], &vec![0; 48 * 8]],
    );
    let mut outputs = unchanged(&case);
    outputs[0].clone_from(&norm[0]);
    for (index, bytes) in [(2, &norm[2]), (4, &quants[1]), (5, &quants[2])] {
        outputs[index][..bytes.len()].copy_from_slice(bytes);
    }
    let report = case.compare(&outputs).unwrap();
    assert!(report.ok(), "{report}");
}

#[test]
fn a_norm_sandwich_is_a_norm_and_a_residual_norm() {
    for label in [
        "3 tokens of 64",
        "1 tokens of 2048",
        "2 tokens of 6656, scale 0.25",
    ] {
        let case = case("post_norm_residual_rms_norm", label);
        let (n, tokens) = (field(&case, "n"), field(&case, "n_tokens"));
        let (eps, one) = (field(&case, "eps"), 1.0_f32.to_bits() as usize);
        let poison = vec![0; tokens * n * 4];
        let branch = dispatch(
            "rms_norm_mul",
            &[("n", n), ("eps", eps), ("n_rows", tokens)],
            &[
                buffer(&case, "residual"),
                buffer(&case, "post_weights"),
                &poison,
            ],
        );
        let kernel = zinc_contract::kernel("residual_rms_norm").unwrap();
        let inputs: Vec<&[u8]> = (kernel.buffers.iter())
            .map(|b| match b.name {
                "hidden" => buffer(&case, "hidden"),
                "residual" => &branch[2],
                "weights" => buffer(&case, "norm_weights"),
                _ => &poison,
            })
            .collect();
        let fields = [("n", n), ("eps", eps), ("n_tokens", tokens), ("scale", one)];
        let mut result = dispatch(kernel.name, &fields, &inputs);
        let scale = f32::from_bits(field(&case, "hidden_scale") as u32);
        for value in result[position(kernel, "hidden")].chunks_exact_mut(4) {
            let stored = f32::from_le_bytes(value.try_into().unwrap()) * scale;
            value.copy_from_slice(&stored.to_le_bytes());
        }
        let mut outputs = unchanged(&case);
        for name in ["hidden", "norm_out"] {
            let from = &result[position(kernel, name)][..poison.len()];
            outputs[position(case.kernel, name)][..poison.len()].copy_from_slice(from);
        }
        let report = case.compare(&outputs).unwrap();
        assert!(report.ok(), "{report}");
    }
}

#[test]
fn a_routed_product_is_the_product_of_each_pair_with_its_expert() {
    for label in [
        "round robin",
        "smallest offsets, all apart",
        "5 tokens, 8 of 8",
    ] {
        let case = case("mul_mm_id_q4k", label);
        let [m, k, slots, tokens] = ["m", "k", "nei0", "nei1"].map(|f| field(&case, f));
        let strides = ["stride_b", "stride_d", "batch_stride_d", "batch_stride_a"];
        let [stride_b, stride_d, token_pitch, expert_bytes] = strides.map(|f| field(&case, f));
        let mut outputs = unchanged(&case);
        for t in 0..tokens {
            for s in 0..slots {
                let at = 4 * (field(&case, "ids_offset") + t * field(&case, "nbi1") + s);
                let id = buffer(&case, "ids")[at..at + 4].try_into().unwrap();
                let start =
                    field(&case, "a_offset") + u32::from_le_bytes(id) as usize * expert_bytes;
                let place = field(&case, "d_offset") + t * token_pitch + s * stride_d;
                let fields = [
                    ("m", m),
                    ("n", 1),
                    ("k", k),
                    ("stride_b", stride_b),
                    ("stride_d", stride_d),
                    ("a_offset", start),
                    ("b_offset", field(&case, "b_offset") + t * stride_b),
                    ("d_offset", place),
                ];
                let d = position(case.kernel, "d");
                let inputs = [buffer(&case, "a"), buffer(&case, "b"), &outputs[d]];
                let result = dispatch("mul_mm_q4k", &fields, &inputs);
                outputs[d].clone_from(&result[2]);
            }
        }
        let report = case.compare(&outputs).unwrap();
        assert!(report.ok(), "{report}");
    }
}

#[test]
fn a_scaled_router_is_a_norm_and_the_products_of_its_result() {
    let case = case("rms_norm_scale_dmmv_f32", "9 x 124");
    let (m, k) = (field(&case, "m"), field(&case, "k"));
    let norm = dispatch(
        "rms_norm_mul",
        &[("n", k), ("eps", field(&case, "eps_bits")), ("n_rows", 1)],
        &[
            buffer(&case, "hidden"),
            buffer(&case, "in_scale"),
            &vec![0; k * 4],
        ],
    );
    let mut outputs = unchanged(&case);
    let logits = position(case.kernel, "router_logits");
    let result = dispatch(
        "dmmv_f32",
        &[("m", m), ("k", k)],
        &[buffer(&case, "router_weight"), &norm[2], &outputs[logits]],
    );
    outputs[logits].clone_from(&result[2]);
    let report = case.compare(&outputs).unwrap();
    assert!(report.ok(), "{report}");
}
