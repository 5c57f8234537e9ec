//! Mixture of experts: routing, and products with the experts that it selects.

use zinc_oracle::Rng;

use super::dense::{row_bytes, tokens_checked};
use super::*;

pub(super) fn shapes(kernel: &'static str) -> Vec<Shape> {
    match kernel {
        "dmmv_mxfp4_moe" | "dmmv_q4k_moe" | "dmmv_q4k_moe_kpar" | "dmmv_q5_1_moe"
        | "dmmv_q5k_moe" | "dmmv_q5k_moe_kpar" | "dmmv_q6k_moe" => {
            let gate = decode(kernel, INTERMEDIATE, HIDDEN, &Slots::shared());
            let down = decode(kernel, HIDDEN, INTERMEDIATE, &Slots::own());
            vec![
                gate.clone(),
                gate.warm(),
                down.clone(),
                down.warm(),
                decode(kernel, 17, 256, &Slots::test()).test(),
            ]
        }
        "dmmv_q4k_fused_gate_up_moe"
        | "dmmv_q4k_fused_gate_up_swiglu_moe"
        | "dmmv_q4k_moe_fused_gate_up_geglu" => {
            let gate = decode(kernel, INTERMEDIATE, HIDDEN, &Slots::shared());
            let test = Slots {
                own_x: false,
                ..Slots::test()
            };
            vec![
                gate.clone(),
                gate.warm(),
                decode(kernel, 17, 256, &test).test(),
            ]
        }
        "dmmv_q4k_moe_fused_down_acc"
        | "dmmv_q5_1_moe_fused_down_acc"
        | "dmmv_q5_1_moe_fused_down_acc_scaled"
        | "dmmv_q8_0_moe_fused_down_acc_scaled"
        | "dmmv_q5k_moe_fused_down_acc" => {
            let down = decode(kernel, HIDDEN, INTERMEDIATE, &Slots::own());
            vec![
                down.clone(),
                down.warm(),
                decode(kernel, 17, 256, &Slots::test()).test(),
            ]
        }
        "dmmv_q4k_moe_batched" => vec![
            batched(INTERMEDIATE, HIDDEN, EXPERTS, USED, 32),
            batched(17, 256, 6, 2, 3).test(),
        ],
        "dmmv_q4k_moe_cols" | "dmmv_q5k_moe_cols" | "dmmv_q6k_moe_cols" => vec![
            grouped(kernel, INTERMEDIATE, HIDDEN, EXPERTS, USED, PROMPT, USED),
            grouped(kernel, HIDDEN, INTERMEDIATE, EXPERTS, USED, PROMPT, 1),
            grouped(kernel, 8, 256, 6, 2, 7, 2).test(),
        ],
        "mul_mm_id_q4k" => vec![
            by_id(INTERMEDIATE, HIDDEN, EXPERTS, USED, PROMPT),
            by_id(INTERMEDIATE, HIDDEN, 32, USED, 2048),
            by_id(8, 256, 6, 2, 7).test(),
        ],
        "softmax_topk" | "softmax_topk_v2" => {
            vec![top(kernel, EXPERTS, USED).warm(), top(kernel, 32, 4).test()]
        }
        "softmax_topk_batch" => vec![top_batch(EXPERTS, USED, PROMPT), top_batch(32, 4, 3).test()],
        "count_experts" => vec![count(EXPERTS, USED, PROMPT).warm(), count(8, 2, 7).test()],
        "moe_route_pack" => vec![
            pack(EXPERTS, USED, PROMPT).warm(),
            pack(EXPERTS, USED, 2048).warm(),
            pack(8, 2, 7).test(),
        ],
        "moe_weighted_acc" => vec![weighted(HIDDEN, USED).warm(), weighted(64, 3).test()],
        "moe_weighted_acc_batch" => vec![
            weighted_batch(HIDDEN, PROMPT, USED),
            weighted_batch(64, 3, 2).test(),
        ],
        "per_expert_scale" => vec![scale(2816, USED, 128).warm(), scale(64, 3, 8).test()],
        _ => Vec::new(),
    }
}

/// How the slots of one decoded token use their inputs and experts.
struct Slots {
    experts: u32,
    used: u32,
    /// Every slot has its own input vector.
    own_x: bool,
}

impl Slots {
    fn shared() -> Self {
        Self {
            experts: EXPERTS,
            used: USED,
            own_x: false,
        }
    }

    fn own() -> Self {
        Self {
            own_x: true,
            ..Self::shared()
        }
    }

    fn test() -> Self {
        Self {
            experts: 5,
            used: 3,
            own_x: true,
        }
    }

    fn label(&self) -> String {
        format!("{} of {}", self.used, self.experts)
    }

    /// Routings that select disjoint sets of experts: ids, then weights that add up to 1.
    fn rounds(&self, weights: bool) -> Fill {
        let mut rng = Rng::from_names(&["routing"]);
        let order = rng.permutation(self.experts);
        let share = (1.0 / self.used as f32).to_bits();
        let rounds = order.chunks_exact(self.used as usize).map(|ids| {
            let mut words = ids.to_vec();
            if weights {
                words.extend(vec![share; ids.len()]);
            }
            Arc::from(words)
        });
        Fill::Rounds(rounds.collect())
    }
}

/// One decoded token.
fn decode(kernel: &'static str, m: u32, k: u32, slots: &Slots) -> Shape {
    let contract = zinc_contract::kernel(kernel);
    let fields = contract
        .as_ref()
        .map_or(&[] as &[_], |kernel| kernel.fields);
    let buffers = contract
        .as_ref()
        .map_or(&[] as &[_], |kernel| kernel.buffers);
    let has = |name: &str| fields.iter().any(|field| field.name == name);
    let matrix = m * row_bytes(kernel, k) as u32;
    let packed = has("up_offset");
    let matrices = if packed || buffers.iter().any(|b| b.name == "w_up") {
        2
    } else {
        1
    };
    let label = match matrices {
        1 => format!("{} x {m}x{k}", slots.label()),
        _ => format!("{} x 2 x {m}x{k}", slots.label()),
    };
    let mut row = Shape::new(kernel, label)
        .set(&[("m", m), ("k", k), ("x_offset", 0), ("y_offset", 0)])
        .set(&[("expert_stride", if packed { 2 * matrix } else { matrix })])
        .operations(2 * u64::from(m) * u64::from(k) * u64::from(slots.used) * matrices);
    let weighted = has("n_used");
    let values = [
        ("x_expert_stride", if slots.own_x { k } else { 0 }),
        ("up_offset", matrix),
        ("n_used", slots.used),
        ("n_slots", slots.used),
        ("n_experts", slots.experts),
    ];
    for field in values.iter().filter(|(name, _)| has(name)) {
        row = row.set(&[*field]);
    }
    let read = u64::from(slots.used) * u64::from(matrix);
    for buffer in buffers {
        row = match buffer.name {
            "weights" => row.moves("weights", read * matrices),
            "w_gate" => row.moves("w_gate", read),
            "w_up" => row.moves("w_up", read),
            "expert_scales" => row
                .fill("expert_scales", Fill::Floats(0.5, 1.5))
                .moves("expert_scales", words(slots.used)),
            _ => row,
        };
    }
    row.fill("routing", slots.rounds(weighted))
}

/// Expert ids of every token, different ones within a token.
fn routing(experts: u32, used: u32, tokens: u32) -> Vec<Vec<u32>> {
    let mut rng = Rng::from_names(&["tokens"]);
    let token = |_| {
        let mut order = rng.permutation(experts);
        order.truncate(used as usize);
        order
    };
    (0..tokens).map(token).collect()
}

fn batched(m: u32, k: u32, experts: u32, used: u32, tokens: u32) -> Shape {
    let kernel = "dmmv_q4k_moe_batched";
    let ids = routing(experts, used, tokens);
    let matrix = m * row_bytes(kernel, k) as u32;
    let touched = distinct(&ids);
    let row = Shape::new(
        kernel,
        format!("{tokens} tokens, {used} of {experts} x {m}x{k}"),
    )
    .set(&[
        ("m", m),
        ("k", k),
        ("expert_stride", matrix),
        ("n_experts_used", used),
    ])
    .set(&[("x_token_stride", k), ("y_token_stride", used * m)])
    .set(&[("n_tokens", tokens), ("n_experts", experts)])
    .fill("routing", Fill::Words(ids.concat().into()))
    .moves("weights", touched * u64::from(matrix))
    .operations(2 * u64::from(m) * u64::from(k) * u64::from(used * tokens));
    let strides = [
        ("x", words(k)),
        ("y", words(used * m)),
        ("routing", words(used)),
    ];
    tokens_checked(row, tokens, 1, "n_tokens", &strides)
}

fn distinct(ids: &[Vec<u32>]) -> u64 {
    let mut all = ids.concat();
    all.sort_unstable();
    all.dedup();
    all.len() as u64
}

/// Routes grouped by expert, as moe_route_pack leaves them. `divisor` routes share an input row.
fn grouped(
    kernel: &'static str,
    m: u32,
    k: u32,
    experts: u32,
    used: u32,
    tokens: u32,
    divisor: u32,
) -> Shape {
    /// Routes that one entry of the work list covers.
    const GROUP: u32 = 8;
    let ids = routing(experts, used, tokens);
    let routes = tokens * used;
    let mut lists = vec![Vec::new(); experts as usize];
    for (route, expert) in ids.concat().into_iter().enumerate() {
        lists[expert as usize].push(route as u32);
    }
    let counts: Vec<u32> = lists.iter().map(|list| list.len() as u32).collect();
    let longest = counts.iter().copied().max().unwrap_or(1);
    let mut packed = Vec::new();
    let mut blocks = Vec::new();
    for (expert, list) in lists.iter().enumerate() {
        packed.extend(list);
        packed.extend(vec![0; longest as usize - list.len()]);
        let groups = (list.len() as u32).div_ceil(GROUP);
        blocks.extend((0..groups).map(|group| expert as u32 | group << 16));
    }
    let matrix = m * row_bytes(kernel, k) as u32;
    let touched = distinct(&ids);
    let row = Shape::new(
        kernel,
        format!("{tokens} tokens, {used} of {experts} x {m}x{k}"),
    )
    .set(&[
        ("m", m),
        ("k", k),
        ("a_offset", 0),
        ("expert_stride", matrix),
    ])
    .set(&[("x_offset", 0), ("y_offset", 0), ("ids_stride", longest)])
    .set(&[
        ("x_route_divisor", divisor),
        ("accumulate", 0),
        ("n_experts", experts),
    ])
    .set(&[("n_blocks", blocks.len() as u32), ("n_routes", routes)])
    .fill("counts", Fill::Words(counts.into()))
    .fill("packed_ids", Fill::Words(packed.into()))
    .fill("active_blocks", Fill::Words(blocks.into()))
    .moves("weights", touched * u64::from(matrix))
    .moves("y", words(routes * m))
    .operations(2 * u64::from(m) * u64::from(k) * u64::from(routes));
    if m <= 8 {
        return row;
    }
    let count = if k > 1024 { 2 } else { 8 };
    let parts = places(m, count, 1).into_iter().map(|r| Part {
        fields: vec![("m", count)],
        views: vec![
            ("weights", from(u64::from(r) * row_bytes(kernel, k))),
            (
                "y",
                pieces(words(r), words(count), words(m), u64::from(routes)),
            ),
        ],
    });
    let parts: Vec<Part> = parts.collect();
    row.parts(format!("{} of {m} rows of all routes", 3 * count), parts)
}

/// Every token against the experts that an id table names.
fn by_id(m: u32, k: u32, experts: u32, used: u32, tokens: u32) -> Shape {
    let kernel = "mul_mm_id_q4k";
    let ids = routing(experts, used, tokens);
    let mut counts = vec![0_u32; experts as usize];
    for id in ids.concat() {
        counts[id as usize] += 1;
    }
    let tiles = counts.iter().copied().max().unwrap_or(1).div_ceil(16);
    let matrix = m * row_bytes(kernel, k) as u32;
    let touched = distinct(&ids);
    let row = Shape::new(
        kernel,
        format!("{tokens} tokens, {used} of {experts} x {m}x{k}"),
    )
    .set(&[("m", m), ("k", k), ("stride_b", k), ("stride_d", m)])
    .set(&[("batch_stride_a", matrix), ("batch_stride_d", used * m)])
    .set(&[
        ("nei0", used),
        ("nei1", tokens),
        ("nbi1", used),
        ("a_offset", 0),
    ])
    .set(&[("b_offset", 0), ("d_offset", 0), ("ids_offset", 0)])
    .set(&[("n_experts", experts), ("n_tile_y", tiles)])
    .fill("ids", Fill::Words(ids.concat().into()))
    .fill("expert_count", Fill::Words(counts.into()))
    .moves("a", touched * u64::from(matrix))
    .operations(2 * u64::from(m) * u64::from(k) * u64::from(used * tokens));
    if m <= 8 {
        return row;
    }
    let parts = places(m, 2, 1).into_iter().map(|r| Part {
        fields: vec![("m", 2), ("stride_d", 2), ("batch_stride_d", 2 * used)],
        views: vec![
            ("a", from(u64::from(r) * row_bytes(kernel, k))),
            ("d", pieces(words(r), 8, words(m), u64::from(used * tokens))),
        ],
    });
    let parts: Vec<Part> = parts.collect();
    row.parts(format!("6 of {m} rows of all routes"), parts)
}

fn top(kernel: &'static str, experts: u32, used: u32) -> Shape {
    let row = Shape::new(kernel, format!("{used} of {experts}"))
        .set(&[("n_experts", experts), ("k", used)])
        .operations(u64::from(experts));
    match kernel {
        "softmax_topk" => row,
        _ => row.float("scale_bits", 1.0),
    }
}

fn top_batch(experts: u32, used: u32, tokens: u32) -> Shape {
    Shape::new(
        "softmax_topk_batch",
        format!("{tokens} tokens, {used} of {experts}"),
    )
    .set(&[("n_experts", experts), ("k", used), ("token_base", 0)])
    .set(&[
        ("n_tokens", tokens),
        ("logits_stride", experts),
        ("output_stride", 2 * used),
    ])
    .float("scale_bits", 1.0)
    .operations(u64::from(experts * tokens))
    .warm()
}

fn count(experts: u32, used: u32, tokens: u32) -> Shape {
    Shape::new(
        "count_experts",
        format!("{tokens} tokens, {used} of {experts}"),
    )
    .set(&[
        ("ne00", used),
        ("ne01", tokens),
        ("nb00", 1),
        ("nb01", used),
    ])
    .set(&[("a_offset", 0), ("n_experts", experts)])
    .fill(
        "routing",
        Fill::Words(routing(experts, used, tokens).concat().into()),
    )
    .operations(u64::from(used * tokens))
}

fn pack(experts: u32, used: u32, tokens: u32) -> Shape {
    // A routing row holds the ids, and as many weights behind them.
    let rows = routing(experts, used, tokens).into_iter().flat_map(|ids| {
        let weights = vec![(1.0 / used as f32).to_bits(); ids.len()];
        ids.into_iter().chain(weights)
    });
    let rows: Vec<u32> = rows.collect();
    Shape::new(
        "moe_route_pack",
        format!("{tokens} tokens, {used} of {experts}"),
    )
    .set(&[("n_tokens", tokens), ("n_experts", experts), ("k", used)])
    .set(&[
        ("routing_stride", 2 * used),
        ("ids_stride", tokens),
        ("gate_up_workgroups_x", 128),
    ])
    .set(&[("down_workgroups_x", 512), ("routing_token_base", 0)])
    .fill("routing", Fill::Words(rows.into()))
    .moves("routing", words(used * tokens))
    .moves("ids", words(used * tokens))
    .operations(u64::from(used * tokens))
}

/// Routing rows of `tokens` tokens: ids, then weights.
fn routing_rows(experts: u32, used: u32, tokens: u32) -> Fill {
    let rows = routing(experts, used, tokens).into_iter().flat_map(|ids| {
        let weights = (0..ids.len()).map(|i| (0.05 + 0.02 * i as f32).to_bits());
        ids.clone().into_iter().chain(weights).collect::<Vec<u32>>()
    });
    Fill::Words(rows.collect())
}

fn weighted(n: u32, used: u32) -> Shape {
    Shape::new("moe_weighted_acc", format!("{used} x {n}"))
        .set(&[("n", n), ("n_used", used), ("src_stride", n)])
        .fill("routing", routing_rows(EXPERTS, used, 1))
        .operations(2 * u64::from(n * used))
}

fn weighted_batch(n: u32, tokens: u32, used: u32) -> Shape {
    let row = Shape::new(
        "moe_weighted_acc_batch",
        format!("{tokens} tokens, {used} x {n}"),
    )
    .set(&[("hidden_dim", n), ("n_tokens", tokens), ("n_used", used)])
    .set(&[
        ("routing_stride", 2 * used),
        ("routing_token_base", 0),
        ("accum_token_base", 0),
    ])
    .fill("routing", routing_rows(EXPERTS, used, tokens))
    .operations(2 * u64::from(n) * u64::from(used * tokens));
    let strides = [
        ("accum", words(n)),
        ("src", words(n) * u64::from(used)),
        ("routing", words(2 * used)),
    ];
    tokens_checked(row, tokens, 16, "n_tokens", &strides)
}

fn scale(n: u32, used: u32, experts: u32) -> Shape {
    Shape::new("per_expert_scale", format!("{used} x {n}"))
        .set(&[("hidden_dim", n), ("n_used", used), ("n_experts", experts)])
        .fill(
            "routing",
            Fill::Words(routing(experts, used, 1).concat().into()),
        )
        .fill("scales", Fill::Floats(0.95, 1.05))
        .operations(u64::from(n * used))
}

/// Small shapes that are checked in parts.
#[cfg(test)]
pub(super) fn with_parts(kernel: &'static str) -> Vec<Shape> {
    match kernel {
        "dmmv_q4k_moe_batched" => vec![batched(17, 256, 6, 2, 5)],
        "dmmv_q4k_moe_cols" | "dmmv_q5k_moe_cols" | "dmmv_q6k_moe_cols" => vec![
            grouped(kernel, 20, 256, 6, 2, 7, 2),
            grouped(kernel, 20, 256, 6, 2, 7, 1),
        ],
        "mul_mm_id_q4k" => vec![by_id(20, 256, 6, 2, 7)],
        "moe_weighted_acc_batch" => vec![weighted_batch(64, 40, 2)],
        _ => Vec::new(),
    }
}
