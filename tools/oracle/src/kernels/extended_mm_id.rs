//! Products of the activations of tokens with the matrices of the experts that a table of ids names.

use super::Entry;
use super::gemm::{
    INPUTS, Vector, output_rows, pitched, products, random_matrices, special_factor, vectors,
};
use crate::case::{Cases, Draft, Fill};
use crate::quant::Format;
use crate::{Call, Element, Expected, OracleError};

pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: "mul_mm_id_q4k",
    reference,
    cases,
    random: |d| {
        let rng = &mut d.rng;
        let shape = Shape {
            m: rng.between(1, 40),
            k: 256 * rng.between(1, 2),
            experts: rng.between(1, 5),
            slots: rng.between(1, 3),
            tokens: rng.between(1, 12),
            ids_gap: rng.below(4),
            pads: [rng.below(5), rng.below(5), rng.below(5)],
            gap: 4 * rng.below(4),
            offsets: [4 * rng.below(4), rng.below(5), rng.below(5), rng.below(5)],
            surplus: [rng.below(3) * 9, rng.below(2)],
            x: Fill::Normal(1.0),
            edges: rng.flip(),
        };
        let limit = shape.experts + rng.below(2);
        fill(d, shape, |d, _| d.rng.below(limit));
    },
}];

/// The format of the weights.
const WEIGHTS: Format = Format::Q4K;
/// Pairs of a tile.
const TILE: u32 = 16;

/// d[t*batch_stride_d + s*stride_d + r] = sum over c of A_e[r,c] * b[t*stride_b + c], e = ids[t*nbi1 + s]
fn reference(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (m, k) = (call.count("m")?, call.count("k")?);
    let (slots, tokens) = (call.count("nei0")?, call.count("nei1")?);
    let (pitch, offset) = (call.count("nbi1")?, call.count("ids_offset")?);
    let limit = call.count("n_experts")?;
    let tiles = call.word("n_tile_y")?;
    let inputs = vectors(
        call,
        "b",
        4 * call.count("b_offset")?,
        tokens,
        call.count("stride_b")?,
        k,
    )?;
    let mut pairs: Vec<Vec<[usize; 2]>> = vec![Vec::new(); limit];
    for t in 0..tokens {
        for (s, id) in (call.integers("ids", offset + t * pitch, slots)?.iter()).enumerate() {
            if let Some(pairs) = pairs.get_mut(*id as usize) {
                pairs.push([t, s]);
            }
        }
    }
    let mut rows: Vec<Vec<Vec<Element>>> = vec![vec![Vec::new(); slots]; tokens];
    let counts = call.integers("expert_count", 0, limit)?;
    for (expert, (pairs, count)) in pairs.iter().zip(counts).enumerate() {
        let what = format!("expert {expert}");
        let least = pairs.len();
        if (count as usize) < least || count.div_ceil(TILE) > tiles {
            let wanted = format!("{least} or more pairs, in {tiles} or fewer tiles");
            return Err(call.contents("expert_count", what, wanted, count));
        }
        if pairs.is_empty() {
            continue;
        }
        let start = call.count("a_offset")? + expert * call.count("batch_stride_a")?;
        let weights = call.slice("a", start, m * WEIGHTS.row_bytes(k))?;
        let mine: Vec<Vector> = pairs.iter().map(|[t, _]| inputs[*t].clone()).collect();
        let sums = products(WEIGHTS, weights, m, &mine);
        for (j, [t, s]) in pairs.iter().enumerate() {
            rows[*t][*s] = sums.iter().map(|row| row[j].element(true)).collect();
        }
    }
    let mut expected = Expected::unchanged(call.index("d")?);
    let (slot_pitch, token_pitch) = (call.count("stride_d")?, call.count("batch_stride_d")?);
    for (t, rows) in rows.into_iter().enumerate() {
        let start = 4 * (call.count("d_offset")? + t * token_pitch);
        let row = output_rows(expected.buffer, start, slot_pitch, rows);
        expected.regions.extend(row.regions);
    }
    Ok(vec![expected])
}

/// What a case is made of.
#[derive(Clone, Copy)]
struct Shape {
    m: u32,
    k: u32,
    experts: u32,
    slots: u32,
    tokens: u32,
    /// words between the ids of tokens
    ids_gap: u32,
    /// floats between tokens in b, slots in d, and tokens in d
    pads: [u32; 3],
    /// bytes between experts
    gap: u32,
    /// bytes before the weights, floats before b and d, words before the ids
    offsets: [u32; 4],
    /// of the counts of experts, and of the tiles
    surplus: [u32; 2],
    x: Fill,
    edges: bool,
}

/// `id` gives the expert of each pair, by its place among all pairs.
fn fill(draft: &mut Draft, shape: Shape, id: impl Fn(&mut Draft, u32) -> u32) {
    let Shape {
        m,
        k,
        experts,
        slots,
        tokens,
        offsets: [a, b, d, ids],
        ..
    } = shape;
    let (stride_b, stride_d) = (k + shape.pads[0], m + shape.pads[1]);
    let stride_a = m * WEIGHTS.row_bytes(k as usize) as u32 + shape.gap;
    let nbi1 = slots + shape.ids_gap;
    // Words that are no ids name expert 0.
    let mut table = vec![0; (ids + (tokens - 1) * nbi1 + slots) as usize];
    let mut counts = vec![shape.surplus[0]; experts as usize];
    for t in 0..tokens {
        for s in 0..slots {
            let expert = id(draft, t * slots + s);
            table[(ids + t * nbi1 + s) as usize] = expert;
            if let Some(count) = counts.get_mut(expert as usize) {
                *count += 1;
            }
        }
    }
    let most = counts.iter().max().copied().unwrap_or(0);
    let tiles = most.div_ceil(TILE).max(1) + shape.surplus[1];
    draft.set_all(&[("m", m), ("k", k), ("n_experts", experts)]);
    draft.set_all(&[("stride_b", stride_b), ("stride_d", stride_d)]);
    draft.set_all(&[("nei0", slots), ("nei1", tokens), ("nbi1", nbi1)]);
    draft.set_all(&[("batch_stride_a", stride_a), ("n_tile_y", tiles)]);
    let stride = (slots - 1) * stride_d + m + shape.pads[2];
    draft.set("batch_stride_d", stride);
    draft.set_all(&[("a_offset", a), ("b_offset", b)]);
    draft.set_all(&[("d_offset", d), ("ids_offset", ids)]);
    let weights = random_matrices(draft, WEIGHTS, experts, [m, k], stride_a, shape.edges);
    draft.read("a", a as usize, &weights);
    let values = shape.x.make(&mut draft.rng, (tokens * k) as usize);
    let values = pitched(&values, k as usize, stride_b as usize);
    draft.read_floats("b", 4 * b as usize, &values);
    draft.read_integers("ids", &table);
    draft.read_integers("expert_count", &counts);
    draft.write("d");
}

fn cases(cases: &mut Cases) {
    let some = Shape {
        m: 9,
        k: 256,
        experts: 5,
        slots: 2,
        tokens: 7,
        ids_gap: 0,
        pads: [0; 3],
        gap: 0,
        offsets: [0; 4],
        surplus: [0; 2],
        x: Fill::Normal(1.0),
        edges: false,
    };
    let mut add = |label: &str, shape: Shape| {
        cases.add(label, |d| fill(d, shape, |d, _| d.rng.below(shape.experts)));
    };
    let smallest = Shape {
        m: 1,
        experts: 1,
        slots: 1,
        tokens: 1,
        ..some
    };
    add("smallest", smallest);
    for m in [2, 31, 32, 33, 64, 65, 129] {
        add(
            &format!("{m} rows"),
            Shape {
                m,
                tokens: 3,
                ..some
            },
        );
    }
    for k in [512, 768, 2048] {
        let shape = Shape { m: 3, k, ..some };
        add(&format!("k = {k}"), shape);
    }
    for tokens in [1, 2, 15, 16, 17, 33, 50] {
        let shape = Shape {
            experts: 1,
            slots: 1,
            tokens,
            m: 5,
            ..some
        };
        add(&format!("{tokens} tokens of one expert"), shape);
    }
    for (experts, slots, tokens) in [(2, 3, 11), (8, 8, 5), (64, 2, 4), (3, 1, 40), (4, 4, 16)] {
        let shape = Shape {
            experts,
            slots,
            tokens,
            m: 4,
            ..some
        };
        add(&format!("{tokens} tokens, {slots} of {experts}"), shape);
    }
    for ids_gap in [1, 2, 46] {
        let label = format!("ids of tokens {ids_gap} words apart");
        add(&label, Shape { ids_gap, ..some });
    }
    for pads in [[4, 0, 0], [0, 1, 0], [0, 0, 1], [1, 3, 5], [64, 32, 96]] {
        let label = format!("rows {pads:?} floats apart");
        add(&label, Shape { pads, ..some });
    }
    let offsets = [12, 5, 7, 9];
    add("offsets", Shape { offsets, ..some });
    let apart = Shape {
        offsets: [4, 1, 1, 1],
        ids_gap: 1,
        pads: [2, 5, 3],
        gap: 4,
        ..some
    };
    add("smallest offsets, all apart", apart);
    add("experts far apart", Shape { gap: 1028, ..some });
    for surplus in [[1, 0], [40, 0], [0, 2], [17, 1]] {
        let [count, tiles] = surplus;
        let label = format!("{count} pairs too many in each count, {tiles} tiles too many");
        add(&label, Shape { surplus, ..some });
    }
    let edges = Shape {
        m: 12,
        edges: true,
        ..some
    };
    add("edge blocks", edges);
    for (label, x) in INPUTS {
        add(&format!("activations: {label}"), Shape { x, ..some });
    }
    let mut table = |label: &str, shape: Shape, id: fn(u32) -> u32| {
        cases.add(label, |d| fill(d, shape, |_, place| id(place)));
    };
    table("all name the last expert", some, |_| 4);
    table("one expert in both slots", some, |place| place / 2 % 5);
    table("round robin", some, |place| place % 5);
    table("all ids out of range", some, |place| 5 + place);
    table("the largest ids", some, |place| u32::MAX - place);
    table("every second id out of range", some, |place| {
        if place % 2 == 0 { 1 } else { 5 }
    });
    table("all but three pairs in one expert", some, |place| {
        if place < 3 { place } else { 3 }
    });
    let long = Shape {
        tokens: 20,
        m: 5,
        ..some
    };
    table("two tiles of two experts", long, |place| place / 3 % 2 * 3);
    for (label, expert) in [("with", 1), ("without", 2)] {
        cases.add(format!("NaN scale in an expert {label} pairs"), |d| {
            fill(d, some, |_, place| place % 2);
            let special = special_factor(WEIGHTS, 3, some.k as usize, f32::NAN);
            let (at, bytes) = special.unwrap_or_default();
            let matrix = some.m as usize * WEIGHTS.row_bytes(some.k as usize);
            d.patch("a", expert * matrix + at, &bytes);
        });
    }
    for (experts, slots, tokens, m, k) in [
        (64, 8, 32, 512, 2048),
        (64, 1, 256, 2048, 512),
        (256, 8, 200, 32, 512),
    ] {
        let label = format!("{tokens} tokens, {slots} of {experts}, {m} x {k}");
        let shape = Shape {
            experts,
            slots,
            tokens,
            m,
            k,
            ..some
        };
        cases.heavy(label, |d| fill(d, shape, |d, _| d.rng.below(experts)));
    }
}
