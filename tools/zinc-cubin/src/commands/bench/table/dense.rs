//! Dense matrix-vector and matrix-matrix products.

use super::*;

/// Rows of a matrix that a check looks at in each place.
const ROWS: u32 = 16;

/// The format of a kernel's weights, from its name.
fn format(kernel: &str) -> Format {
    let formats = [
        ("q4k", Format::Q4K),
        ("q5k", Format::Q5K),
        ("q6k", Format::Q6K),
        ("q5_0", Format::Q5_0),
        ("q5_1", Format::Q5_1),
        ("mxfp4", Format::Mxfp4),
        ("q8_0", Format::Q8_0),
        ("f16", Format::F16),
        ("f32", Format::F32),
    ];
    // Products name the format of their activations last.
    let found = formats.iter().find(|(name, _)| kernel.contains(name));
    found.map_or(Format::Q8_0, |(_, format)| *format)
}

/// Bytes of a row of `k` weights.
pub(super) fn row_bytes(kernel: &str, k: u32) -> u64 {
    format(kernel).row_bytes(k as usize) as u64
}

pub(super) fn shapes(kernel: &'static str) -> Vec<Shape> {
    match kernel {
        "dmmv_f16" | "dmmv_mxfp4" | "dmmv_q5_0" | "dmmv_q5_1" => {
            let mut rows = vec![vector(kernel, 65536, 4096)];
            rows.extend(small(
                kernel,
                &[(8192, HIDDEN), (HIDDEN, 4096), (512, HIDDEN)],
            ));
            rows.push(vector(kernel, 33, 256).test());
            rows
        }
        "dmmv_f32" => vec![
            vector(kernel, 32768, 4096),
            vector(kernel, EXPERTS, HIDDEN).warm(),
            vector(kernel, 32, HIDDEN).warm(),
            vector(kernel, 33, 256).test(),
        ],
        "dmmv_q4k" | "dmmv_q5k" | "dmmv_q6k" | "dmmv_q8_0" => {
            let mut rows = vec![
                vector(kernel, 65536, 4096),
                vector(kernel, VOCABULARY, HIDDEN),
            ];
            rows.extend(small(
                kernel,
                &[
                    (8192, HIDDEN),
                    (4096, HIDDEN),
                    (HIDDEN, 4096),
                    (512, HIDDEN),
                    (HIDDEN, 512),
                ],
            ));
            if kernel == "dmmv_q5k" {
                rows.extend([2, 4, 8].map(|n| columns(kernel, 65536, 4096, n)));
            }
            rows.push(vector(kernel, 33, 512).test());
            rows
        }
        "dmmv_q5_1_acc" => [
            vector(kernel, 65536, 4096),
            vector(kernel, HIDDEN, 4096).warm(),
            vector(kernel, 33, 256).test(),
        ]
        .map(|row| row.float("scale_bits", 0.25))
        .into(),
        "dmmv_q4k_wide" | "dmmv_q6k_wide" | "dmmv_q8_0_wide" => vec![
            vector(kernel, 65536, 4096),
            vector(kernel, VOCABULARY, HIDDEN),
            vector(kernel, 33, 512).test(),
        ],
        "dmmv_q8_0_q8_1" | "dmmv_q4k_q8_1" => vec![
            vector(kernel, 65536, 4096),
            vector(kernel, VOCABULARY, HIDDEN),
            vector(kernel, 8192, HIDDEN).warm(),
            vector(kernel, 33, 512).test(),
        ],
        "dmmv_q8_0_batch" => vec![
            vector(kernel, 65536, 4096),
            vector(kernel, 8192, HIDDEN).warm(),
            vector(kernel, 33, 256).test(),
        ],
        "dmmv_q4k_batch"
        | "dmmv_q4k_batch_kpar"
        | "dmmv_q6k_batch"
        | "dmmv_q6k_batch_kpar"
        | "dmmv_q8_0_kpar_batch" => {
            let mut rows: Vec<Shape> = [2, 4, 8, 16]
                .map(|n| columns(kernel, 65536, 4096, n))
                .into();
            rows.push(columns(kernel, 8192, HIDDEN, 8).warm());
            rows.push(columns(kernel, 17, 512, 3).test());
            rows
        }
        "dmmv_f32_dual_batch" => vec![dual(32, HIDDEN, PROMPT), dual(5, 64, 3).test()],
        "dmmv_q8_0_fused_pair" => vec![
            pair(8192, 4096, HIDDEN),
            pair(8192, 4096, HIDDEN).warm(),
            pair(33, 17, 256).test(),
        ],
        "dmmv_q4k_fused_gate_up_swiglu"
        | "dmmv_q8_0_fused_gate_up_swiglu"
        | "dmmv_q8_0_fused_gate_up_swiglu_gate"
        | "dmmv_q8_0_fused_gate_up_geglu" => vec![
            gate_up(kernel, 17408, 5120),
            gate_up(kernel, INTERMEDIATE, HIDDEN),
            gate_up(kernel, INTERMEDIATE, HIDDEN).warm(),
            gate_up(kernel, 33, 512).test(),
        ],
        "dmmv_q4k_fused_gate_up_geglu" => vec![
            packed_gate_up(704, 2816),
            packed_gate_up(704, 2816).warm(),
            packed_gate_up(33, 512).test(),
        ],
        "dmmv_q8_0_sigmoid_acc" => [
            vector(kernel, 65536, 4096),
            vector(kernel, HIDDEN, INTERMEDIATE),
            vector(kernel, HIDDEN, INTERMEDIATE).warm(),
            vector(kernel, 33, 256).test(),
        ]
        .map(|row| row.set(&[("gate_offset", 0)]))
        .into(),
        "dmmv_q4k_o_proj_merge" => vec![
            merge_projection(4096, 32, 128, 4),
            merge_projection(4096, 32, 128, 4).warm(),
            merge_projection(33, 4, 64, 2).test(),
        ],
        "rms_norm_dmmv_f32" => vec![
            router(kernel, EXPERTS, HIDDEN, 1).warm(),
            router(kernel, 9, 256, 1).test(),
        ],
        "rms_norm_scale_dmmv_f32" => vec![
            router(kernel, 128, 2816, 1).warm(),
            router(kernel, 9, 256, 1).test(),
        ],
        "rms_norm_dmmv_q4k_alpha_beta" => vec![
            router(kernel, 32, HIDDEN, 2).warm(),
            router(kernel, 9, 256, 2).test(),
        ],
        "router_f32_batch" => vec![
            router_batch(EXPERTS, HIDDEN, PROMPT),
            router_batch(EXPERTS, HIDDEN, PROMPT).warm(),
            router_batch(1, HIDDEN, PROMPT),
            router_batch(9, 256, 3).test(),
        ],
        "mul_mm_q4k" | "mul_mm_q5k" | "mul_mm_q6k" | "mul_mm_q8_0" => vec![
            product(kernel, 16384, 4096, 512),
            product(kernel, 8192, HIDDEN, PROMPT),
            product(kernel, HIDDEN, 4096, PROMPT),
            product(kernel, 8192, HIDDEN, 37),
            product(kernel, 40, 256, 20).test(),
        ],
        "mul_mm_q6k_full"
        | "mul_mm_q4k_full_dp4a"
        | "mul_mm_q5k_full_dp4a"
        | "mul_mm_q6k_full_dp4a"
        | "mul_mm_q6k_full_dp4a_q8_1"
        | "mul_mm_q8_0_full_dp4a" => vec![
            product(kernel, 16384, 4096, 512),
            product(kernel, 8192, HIDDEN, PROMPT),
            product(kernel, HIDDEN, 4096, PROMPT),
            product(kernel, 64, 256, 32).test(),
        ],
        "mul_mm_q4k_f16" | "mul_mm_q5k_f16" | "mul_mm_q6k_f16" | "mul_mm_q8_0_f16" => vec![
            product(kernel, 16384, 4096, 512),
            product(kernel, 8192, HIDDEN, PROMPT),
            product(kernel, HIDDEN, 4096, PROMPT),
            product(kernel, 8192, HIDDEN, 64),
            product(kernel, 8192, HIDDEN, 2048),
            product(kernel, 40, 256, 20).test(),
        ],
        "mul_mm_q4k_gate_up_swiglu"
        | "mul_mm_q4k_gate_up_swiglu_full"
        | "mul_mm_q4k_gate_up_swiglu_full_dp4a"
        | "mul_mm_q4k_gate_up_swiglu_full_dp4a_q8"
        | "mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_1"
        | "mul_mm_q4k_gate_up_geglu" => vec![
            product(kernel, 17408, 5120, 512),
            product(kernel, 64, 256, 32).test(),
        ],
        _ => Vec::new(),
    }
}

/// Each size cold and warm.
fn small(kernel: &'static str, sizes: &[(u32, u32)]) -> Vec<Shape> {
    let rows = sizes.iter().map(|(m, k)| vector(kernel, *m, *k));
    rows.flat_map(|row| [row.clone(), row.warm()]).collect()
}

/// A matrix with one vector.
fn vector(kernel: &'static str, m: u32, k: u32) -> Shape {
    columns(kernel, m, k, 1)
}

/// A matrix with `n` vectors. Where one vector is meant, the result overwrites.
fn columns(kernel: &'static str, m: u32, k: u32, n: u32) -> Shape {
    let label = match n {
        1 => format!("{m}x{k}"),
        _ => format!("{m}x{k} n={n}"),
    };
    let mut row = Shape::new(kernel, label).set(&[
        ("m", m),
        ("k", k),
        ("a_offset", 0),
        ("x_offset", 0),
        ("y_offset", 0),
    ]);
    let named = |field| {
        zinc_contract::kernel(kernel).is_ok_and(|k| k.fields.iter().any(|f| f.name == field))
    };
    let adds = ["dmmv_q5_1_acc", "dmmv_q8_0_sigmoid_acc"].contains(&kernel);
    if named("num_cols") {
        row = row.set(&[("num_cols", n)]);
    } else if named("acc_mode") {
        row = row.set(&[("acc_mode", if n > 1 { n } else { 0 })]);
    }
    if !adds {
        row = row.moves("y", words(n * m));
    }
    row = row.operations(2 * u64::from(m) * u64::from(k) * u64::from(n));
    if u64::from(m) * u64::from(k) * u64::from(n) <= 4 << 20 {
        return row;
    }
    let count = (ROWS / n).max(4);
    let parts = places(m, count, 1).into_iter().map(|r| Part {
        fields: vec![("m", count)],
        views: vec![
            ("weights", from(u64::from(r) * row_bytes(kernel, k))),
            ("y", pieces(words(r), words(count), words(m), u64::from(n))),
        ],
    });
    let parts: Vec<Part> = parts.collect();
    let text = format!("{} of {m} rows", parts.len() as u32 * count);
    row.parts(text, parts)
}

fn dual(m: u32, k: u32, tokens: u32) -> Shape {
    let row = Shape::new(
        "dmmv_f32_dual_batch",
        format!("2 x {m}x{k}, {tokens} tokens"),
    )
    .set(&[("m", m), ("k", k), ("stride_x", k), ("stride_y", m)])
    .set(&[("n_tokens", tokens)])
    .operations(4 * u64::from(m) * u64::from(k) * u64::from(tokens));
    tokens_checked(
        row,
        tokens,
        16,
        "n_tokens",
        &[
            ("x", words(k)),
            ("alpha_out", words(m)),
            ("beta_out", words(m)),
        ],
    )
}

/// Checks `count` tokens in three places, where buffers hold tokens one after another.
pub(super) fn tokens_checked(
    row: Shape,
    tokens: u32,
    count: u32,
    field: &'static str,
    strides: &[(&'static str, u64)],
) -> Shape {
    if tokens <= 2 * count {
        return row;
    }
    let parts = places(tokens, count, 1).into_iter().map(|t| Part {
        fields: vec![(field, count)],
        views: strides
            .iter()
            .map(|(buffer, stride)| (*buffer, from(u64::from(t) * stride)))
            .collect(),
    });
    let parts: Vec<Part> = parts.collect();
    let text = format!("{} of {tokens} rows", parts.len() as u32 * count);
    row.parts(text, parts)
}

fn pair(m0: u32, m1: u32, k: u32) -> Shape {
    let kernel = "dmmv_q8_0_fused_pair";
    let row = Shape::new(kernel, format!("{m0}x{k} and {m1}x{k}"))
        .set(&[
            ("m0", m0),
            ("m1", m1),
            ("k", k),
            ("a0_offset", 0),
            ("a1_offset", 0),
        ])
        .set(&[("x_offset", 0), ("y0_offset", 0), ("y1_offset", 0)])
        .operations(2 * u64::from(m0 + m1) * u64::from(k));
    let count = ROWS;
    if m0.min(m1) <= 2 * count {
        return row;
    }
    let parts = places(m0, count, 1).into_iter().zip(places(m1, count, 1));
    let parts = parts.map(|(r0, r1)| Part {
        fields: vec![("m0", count), ("m1", count)],
        views: vec![
            ("weights0", from(u64::from(r0) * row_bytes(kernel, k))),
            ("weights1", from(u64::from(r1) * row_bytes(kernel, k))),
            ("y0", from(words(r0))),
            ("y1", from(words(r1))),
        ],
    });
    let parts: Vec<Part> = parts.collect();
    row.parts(format!("{} rows of each matrix", 3 * count), parts)
}

fn gate_up(kernel: &'static str, m: u32, k: u32) -> Shape {
    let mut row = Shape::new(kernel, format!("2 x {m}x{k}"))
        .set(&[("m", m), ("k", k), ("a_offset", 0), ("x_offset", 0)])
        .set(&[("y_offset", 0), ("acc_mode", 0)])
        .operations(4 * u64::from(m) * u64::from(k));
    if k <= 512 {
        return row;
    }
    let parts = places(m, ROWS, 1).into_iter().map(|r| Part {
        fields: vec![("m", ROWS)],
        views: vec![
            ("w_gate", from(u64::from(r) * row_bytes(kernel, k))),
            ("w_up", from(u64::from(r) * row_bytes(kernel, k))),
            ("y", from(words(r))),
        ],
    });
    row.checked = Checked::Parts(format!("{} of {m} rows", 3 * ROWS), parts.collect());
    row
}

fn packed_gate_up(m: u32, k: u32) -> Shape {
    let kernel = "dmmv_q4k_fused_gate_up_geglu";
    let up = m * row_bytes(kernel, k) as u32;
    Shape::new(kernel, format!("2 x {m}x{k}"))
        .set(&[("m", m), ("k", k), ("gate_offset", 0), ("up_offset", up)])
        .set(&[("x_offset", 0), ("y_offset", 0)])
        .operations(4 * u64::from(m) * u64::from(k))
}

fn merge_projection(m: u32, heads: u32, dim: u32, chunks: u32) -> Shape {
    let kernel = "dmmv_q4k_o_proj_merge";
    let k = heads * dim;
    let row = Shape::new(kernel, format!("{m}x{k}, {heads} heads in {chunks} slices"))
        .set(&[
            ("m", m),
            ("k", k),
            ("a_offset", 0),
            ("x_offset", 0),
            ("y_offset", 0),
        ])
        .set(&[("acc_mode", 1), ("n_heads", heads), ("n_i_chunks", chunks)])
        .set(&[("sink_offset", 0), ("head_dim", dim)])
        .fill("partial", Fill::Floats(0.25, 1.5))
        .fill("sinks", Fill::Constant(f32::NAN))
        .operations(2 * u64::from(m) * u64::from(k));
    if m <= 2 * ROWS {
        return row;
    }
    let parts = places(m, ROWS, 1).into_iter().map(|r| Part {
        fields: vec![("m", ROWS)],
        views: vec![
            ("weights", from(u64::from(r) * row_bytes(kernel, k))),
            ("y", from(words(r))),
        ],
    });
    let parts: Vec<Part> = parts.collect();
    row.parts(format!("{} of {m} rows", 3 * ROWS), parts)
}

/// A norm with `weights` small matrices behind it.
fn router(kernel: &'static str, m: u32, k: u32, weights: u32) -> Shape {
    let mut row = Shape::new(kernel, format!("{m}x{k}"))
        .set(&[("m", m), ("k", k)])
        .float("eps_bits", 1e-6)
        .operations(2 * u64::from(m) * u64::from(k) * u64::from(weights));
    if weights > 1 {
        row.label = format!("{weights} x {m}x{k}");
    }
    row
}

fn router_batch(m: u32, k: u32, tokens: u32) -> Shape {
    let row = Shape::new("router_f32_batch", format!("{m}x{k}, {tokens} tokens"))
        .set(&[
            ("m", m),
            ("k", k),
            ("n_tokens", tokens),
            ("stride_x", k),
            ("stride_y", m),
        ])
        .operations(2 * u64::from(m) * u64::from(k) * u64::from(tokens));
    let row = tokens_checked(
        row,
        tokens,
        8,
        "n_tokens",
        &[("x", words(k)), ("y", words(m))],
    );
    match m {
        1 => row.warm(),
        _ => row,
    }
}

/// A matrix with many vectors: dense weights, one or two of them, against floats, packed f16 or int8 blocks.
fn product(kernel: &'static str, m: u32, k: u32, n: u32) -> Shape {
    let fields = zinc_contract::kernel(kernel).map_or(&[] as &[_], |kernel| kernel.fields);
    let has = |name: &str| fields.iter().any(|field| field.name == name);
    let matrices: &[&'static str] = match kernel.contains("gate_up") {
        true => &["a_gate", "a_up"],
        false => &["a"],
    };
    let label = match matrices.len() {
        1 => format!("{m}x{k}x{n}"),
        _ => format!("2 x {m}x{k}x{n}"),
    };
    let mut row = Shape::new(kernel, label)
        .set(&[("m", m), ("n", n), ("k", k), ("a_offset", 0)])
        .operations(2 * u64::from(m) * u64::from(k) * u64::from(n) * matrices.len() as u64);
    let defaults = [
        ("stride_b", k),
        ("stride_d", m),
        ("stride_b_packed", k / 4),
        ("stride_b_scale", k / 32),
        ("stride_d_packed", m / 4),
        ("stride_d_scale", m / 32),
        ("b_offset", 0),
        ("d_offset", 0),
        ("d_packed_offset", 0),
        ("d_scale_offset", 0),
    ];
    for field in defaults.iter().filter(|(name, _)| has(name)) {
        row = row.set(&[*field]);
    }
    let buffers = zinc_contract::kernel(kernel).map_or(&[] as &[_], |kernel| kernel.buffers);
    for buffer in buffers {
        row = match buffer.name {
            "b_packed" => row.fill("b_packed", Fill::Bytes),
            "b_scale" | "scale" => row.fill(buffer.name, Fill::Floats(0.005, 0.02)),
            "b_scale_dsum" => row.fill("b_scale_dsum", Fill::FactorsAndSums),
            _ => row,
        };
    }
    let count = 32;
    if m <= 64 {
        return row;
    }
    // A square of the result at three places of its diagonal.
    let tile = count.min(n);
    let parts = places(m, count, 32).into_iter().zip(places(n, tile, 1));
    let parts: Vec<Part> = parts
        .map(|(r, c)| {
            let c = if n >= 64 { c / 32 * 32 } else { c };
            let mut views = Vec::new();
            for matrix in matrices {
                views.push((*matrix, from(u64::from(r) * row_bytes(kernel, k))));
            }
            let at = |unit: u64, row_units: u64| from(u64::from(c) * row_units * unit);
            let tile_of = |unit: u64, row_units: u64, column: u64, width: u64| {
                let start = (u64::from(c) * row_units + column) * unit;
                pieces(start, width * unit, row_units * unit, u64::from(tile))
            };
            let (k, m, r, wide) = (u64::from(k), u64::from(m), u64::from(r), u64::from(count));
            for buffer in buffers {
                let view = match buffer.name {
                    "b" => at(4, k),
                    "b_packed" => at(4, k / 4),
                    "h" => packed_tokens(c, tile, n, k),
                    "scale" => at(4, 1),
                    "b_scale" => at(4, k / 32),
                    "b_scale_dsum" => at(8, k / 32),
                    "d" => tile_of(4, m, r, wide),
                    "d_packed" => tile_of(4, m / 4, r / 4, wide / 4),
                    "d_scale" => tile_of(4, m / 32, r / 32, wide / 32),
                    "d_scale_dsum" => tile_of(8, m / 32, r / 32, wide / 32),
                    _ => continue,
                };
                views.push((buffer.name, view));
            }
            let mut fields = vec![("m", count), ("n", tile)];
            let strides = [
                ("stride_d", count),
                ("stride_d_packed", count / 4),
                ("stride_d_scale", count / 32),
            ];
            fields.extend(strides.iter().filter(|(name, _)| has(name)));
            Part { fields, views }
        })
        .collect();
    let text = format!("{} tiles of {count}x{tile} results", parts.len());
    row.parts(text, parts)
}

/// The packed f16 numbers of `count` of `n` tokens from `first` on, a multiple of 8.
pub(super) fn packed_tokens(first: u32, count: u32, n: u32, k: u64) -> View {
    let [first, count, n] = [first, count, n].map(|tokens| u64::from(tokens) * 128);
    pieces(first, count, n, k.div_ceil(64))
}

/// Small shapes that are checked in parts.
#[cfg(test)]
pub(super) fn with_parts(kernel: &'static str) -> Vec<Shape> {
    match kernel {
        "dmmv_q8_0_fused_pair" => vec![pair(100, 80, 256)],
        "dmmv_f32_dual_batch" => vec![dual(5, 64, 40)],
        "dmmv_q5_1_acc" => vec![vector(kernel, 1030, 4096).float("scale_bits", 0.25)],
        "dmmv_q8_0_sigmoid_acc" => vec![vector(kernel, 1030, 4096).set(&[("gate_offset", 0)])],
        "dmmv_q4k_o_proj_merge" => vec![merge_projection(70, 8, 64, 2)],
        "router_f32_batch" => vec![router_batch(5, 64, 20)],
        "dmmv_q4k_batch"
        | "dmmv_q4k_batch_kpar"
        | "dmmv_q6k_batch"
        | "dmmv_q6k_batch_kpar"
        | "dmmv_q8_0_kpar_batch" => vec![columns(kernel, 530, 4096, 2)],
        "dmmv_q5k" => vec![vector(kernel, 1030, 4096), columns(kernel, 530, 4096, 2)],
        "rms_norm_dmmv_f32"
        | "rms_norm_scale_dmmv_f32"
        | "rms_norm_dmmv_q4k_alpha_beta"
        | "dmmv_q4k_fused_gate_up_geglu" => Vec::new(),
        name if name.contains("moe") => Vec::new(),
        name if name.starts_with("dmmv") && name.contains("fused_gate_up") => {
            vec![gate_up(kernel, 70, 1024)]
        }
        name if name.starts_with("dmmv") => vec![vector(kernel, 1030, 4096)],
        name if name.starts_with("mul_mm") && name != "mul_mm_id_q4k" => {
            vec![product(kernel, 128, 256, 96)]
        }
        _ => Vec::new(),
    }
}
