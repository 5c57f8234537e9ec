/// Every kernel of the catalog, sorted by name.
#[allow(clippy::manual_clamp, reason = "expressions as written; clamp panics on an empty range")]
#[allow(clippy::eq_op, clippy::if_same_then_else, reason = "tile constants may be equal")]
pub static KERNELS: &[Kernel] = &[
    Kernel {
        name: "demo_scale",
        family: "utility",
        summary: "Scales a vector.",
        math: "y = factor * x",
        edge: "n = 0 is a no-op.",
        numerics: "f32",
        used_in: "Tests.",
        reference_grid: "rows workgroups",
        source: "catalog/demo.toml",
        implementation: "demo/demo_scale.cu",
        extended: false,
        pending: None,
        fields: &[
            Field { name: "n", doc: "elements of a row", kind: FieldKind::Push, scalar: Scalar::U32, default: None },
            Field { name: "x_offset", doc: "first element", kind: FieldKind::Push, scalar: Scalar::U32, default: None },
            Field { name: "factor", doc: "factor", kind: FieldKind::Push, scalar: Scalar::F32, default: None },
            Field { name: "rows", doc: "rows", kind: FieldKind::Launch, scalar: Scalar::U32, default: None },
            Field { name: "wide", doc: "layout", kind: FieldKind::Spec, scalar: Scalar::U32, default: Some(1) },
        ],
        push_words: 3,
        ignored_push_bytes: 4,
        buffers: &[
            Buffer { name: "x", dtype: "f32", shape: "[rows, n]", access: Access::Read, align: 4,
                bytes: Expr { text: "(x_offset + n * rows) * 4", fields: &[0, 1, 3], eval: |w| mul(add(word(w, 1)?, mul(word(w, 0)?, word(w, 3)?)?)?, 4) },
                start: Expr { text: "x_offset * 4", fields: &[1], eval: |w| mul(word(w, 1)?, 4) } },
            Buffer { name: "y", dtype: "f32", shape: "[rows, n]", access: Access::Write, align: 16,
                bytes: Expr { text: "n * rows * 4", fields: &[0, 3], eval: |w| mul(mul(word(w, 0)?, word(w, 3)?)?, 4) },
                start: Expr::ZERO },
        ],
        may_alias: &[(0, 1)],
        requires: &[
            Condition { text: "n % 4 == 0", fields: &[0], holds: |w| Ok(rem(word(w, 0)?, 4)? == 0) },
            Condition { text: "wide <= 1", fields: &[4], holds: |w| Ok(word(w, 4)? <= 1) },
        ],
        overlap: false,
        early: &[],
        launch: &[
            LaunchRule { min_arch: 0, specific: false, tile: &[("rows_per_warp", 1), ("warps", 8)],
                lets: &[], grid: ["ceil_div(n, 32 * warps)", "ceil_div(rows, rows_per_warp)", "1"], block: ["32 * warps", "1", "1"], cluster: "1", shared: "n * 4",
                extents: |w, sm_count| {
                    let (_, _) = (w, sm_count);
                    Ok(Extents { grid: [ceil_div(word(w, 0)?, mul(32, 8)?)?, ceil_div(word(w, 3)?, 1)?, 1], block: [mul(32, 8)?, 1, 1], cluster: 1, shared_bytes: mul(word(w, 0)?, 4)? })
                } },
            LaunchRule { min_arch: 90, specific: false, tile: &[("rows_per_warp", 1), ("warps", 16)],
                lets: &[], grid: ["ceil_div(n, 32 * warps)", "ceil_div(rows, rows_per_warp)", "1"], block: ["32 * warps", "1", "1"], cluster: "1", shared: "n * 4",
                extents: |w, sm_count| {
                    let (_, _) = (w, sm_count);
                    Ok(Extents { grid: [ceil_div(word(w, 0)?, mul(32, 16)?)?, ceil_div(word(w, 3)?, 1)?, 1], block: [mul(32, 16)?, 1, 1], cluster: 1, shared_bytes: mul(word(w, 0)?, 4)? })
                } },
            LaunchRule { min_arch: 90, specific: true, tile: &[("rows_per_warp", 2), ("warps", 8)],
                lets: &[], grid: ["ceil_div(n, 32 * warps)", "ceil_div(rows, rows_per_warp)", "1"], block: ["64 * warps", "1", "1"], cluster: "1", shared: "n * 4",
                extents: |w, sm_count| {
                    let (_, _) = (w, sm_count);
                    Ok(Extents { grid: [ceil_div(word(w, 0)?, mul(32, 8)?)?, ceil_div(word(w, 3)?, 2)?, 1], block: [mul(64, 8)?, 1, 1], cluster: 1, shared_bytes: mul(word(w, 0)?, 4)? })
                } },
            LaunchRule { min_arch: 120, specific: false, tile: &[("rows_per_warp", 1), ("warps", 8)],
                lets: &[], grid: ["min(n, sm_count) * cluster", "1", "1"], block: ["32 * warps", "1", "1"], cluster: "rows <= 8 ? 8 : 4", shared: "n * 4",
                extents: |w, sm_count| {
                    let (_, _) = (w, sm_count);
                    Ok(Extents { grid: [mul(Ord::min(word(w, 0)?, i64::from(sm_count)), if word(w, 3)? <= 8 { 8 } else { 4 })?, 1, 1], block: [mul(32, 8)?, 1, 1], cluster: if word(w, 3)? <= 8 { 8 } else { 4 }, shared_bytes: mul(word(w, 0)?, 4)? })
                } },
        ],
    },
];

/// The position of each kernel in [`KERNELS`].
pub mod index {
    /// Position of `demo_scale`.
    pub const DEMO_SCALE: usize = 0;
}
