//! Routed experts over columns that moe_route_pack has grouped by expert.

use std::collections::BTreeMap;

use super::Entry;
use super::gemm::{INPUTS, Vector, output_rows, products, random_matrices, special_factor};
use crate::case::{Cases, Draft, Fill};
use crate::quant::Format;
use crate::{Call, Expected, OracleError};

pub(super) const ENTRIES: &[Entry] = &[
    entry!("dmmv_q4k_moe_cols", Q4K),
    entry!("dmmv_q5k_moe_cols", Q5K),
];

/// List positions that one entry of the work list covers.
const GROUP: usize = 8;
/// An entry of the work list that is not used.
const UNUSED: u32 = u32::MAX;

/// The table of one call: expert of every covered route.
fn routes(call: &Call) -> Result<BTreeMap<usize, usize>, OracleError> {
    let (experts, stride) = (call.count("n_experts")?, call.count("ids_stride")?);
    let limit = call.count("n_routes")?;
    let counts = call.integers("counts", 0, experts)?;
    let ids = call.integers("packed_ids", 0, experts * stride)?;
    let blocks = call.integers("active_blocks", 0, call.count("n_blocks")?)?;
    let mut routes = BTreeMap::new();
    for (b, block) in blocks.into_iter().enumerate() {
        if block == UNUSED {
            continue;
        }
        let (expert, group) = (block as usize & 0xffff, block as usize >> 16);
        let Some(count) = counts.get(expert) else {
            let wanted = format!("an expert below {experts}");
            return Err(call.contents("active_blocks", format!("entry {b}"), wanted, expert));
        };
        if *count as usize > stride {
            let what = format!("expert {expert}");
            return Err(call.contents("counts", what, format!("at most {stride}"), count));
        }
        for i in GROUP * group..(GROUP * (group + 1)).min(*count as usize) {
            let route = ids[expert * stride + i] as usize;
            if route >= limit || routes.insert(route, expert).is_some() {
                let what = format!("position {i} of expert {expert}");
                let wanted = format!("a route below {limit} that is covered once");
                return Err(call.contents("packed_ids", what, wanted, route));
            }
        }
    }
    Ok(routes)
}

/// One kernel.
pub(super) struct Cols {
    pub(super) weights: Format,
    /// required alignment of a_offset and expert_stride
    pub(super) a_align: u32,
    /// required alignment of x_offset
    pub(super) x_align: u32,
}

const Q4K: Cols = Cols {
    weights: Format::Q4K,
    a_align: 4,
    x_align: 16,
};
const Q5K: Cols = Cols {
    weights: Format::Q5K,
    ..Q4K
};

/// What a case is made of.
#[derive(Clone)]
struct Shape {
    m: u32,
    k: u32,
    /// the routes of every expert
    lists: Vec<Vec<u32>>,
    routes: u32,
    /// unused words at the end of every list
    slack: u32,
    /// unused entries of the work list
    surplus: u32,
    /// leaves out every third entry of the work list
    holes: bool,
    divisor: u32,
    accumulate: u32,
    /// of the weights, x and y
    offsets: [u32; 3],
    gap: u32,
    x: Fill,
    edges: bool,
}

/// Lists of `tokens` tokens, each with `used` different experts, in random order.
fn random_lists(d: &mut Draft, experts: u32, tokens: u32, used: u32) -> Vec<Vec<u32>> {
    let mut lists = vec![Vec::new(); experts as usize];
    let order = d.rng.permutation(tokens);
    for token in order {
        let chosen = d.rng.permutation(experts);
        for (slot, expert) in chosen.into_iter().take(used as usize).enumerate() {
            lists[expert as usize].push(token * used + slot as u32);
        }
    }
    lists
}

impl Cols {
    /// y[q*m + r] (+)= sum over c of W_e[r,c] * x[(q / divisor)*k + c] for every covered route q of
    /// expert e
    pub(super) fn reference(&self, call: &Call) -> Result<Vec<Expected>, OracleError> {
        let (m, k) = (call.count("m")?, call.count("k")?);
        let (x, y) = (call.count("x_offset")?, call.count("y_offset")?);
        let divisor = call.count("x_route_divisor")?.max(1);
        let accumulates = call.count("accumulate")? != 0;
        let routes = routes(call)?;
        let mut rows = BTreeMap::new();
        for expert in 0..call.count("n_experts")? {
            let mine = routes.iter().filter(|(_, e)| **e == expert);
            let mine: Vec<usize> = mine.map(|(route, _)| *route).collect();
            if mine.is_empty() {
                continue;
            }
            let start = call.count("a_offset")? + expert * call.count("expert_stride")?;
            let weights = call.slice("weights", start, m * self.weights.row_bytes(k))?;
            let inputs = mine
                .iter()
                .map(|q| Ok(call.doubles("x", x + q / divisor * k * 4, k)?.into()));
            let inputs = inputs.collect::<Result<Vec<Vector>, OracleError>>()?;
            let sums = products(self.weights, weights, m, &inputs);
            for (j, route) in mine.into_iter().enumerate() {
                let old = if accumulates {
                    call.doubles("y", y + route * m * 4, m)?
                } else {
                    Vec::new()
                };
                let sums = sums.iter().enumerate();
                let row = sums.map(|(r, s)| {
                    let sum = old.get(r).map_or(s[j], |old| s[j].loosely_onto(*old));
                    sum.element(true)
                });
                rows.insert(route, row.collect());
            }
        }
        let all = (0..call.count("n_routes")?).map(|q| rows.remove(&q).unwrap_or_default());
        Ok(vec![output_rows(call.index("y")?, y, m, all.collect())])
    }

    pub(super) fn cases(&self, cases: &mut Cases) {
        let plain = Shape {
            m: 1,
            k: 256,
            lists: vec![vec![0]],
            routes: 1,
            slack: 0,
            surplus: 0,
            holes: false,
            divisor: 1,
            accumulate: 0,
            offsets: [0; 3],
            gap: 0,
            x: Fill::Normal(1.0),
            edges: false,
        };
        // Five experts, one of them without routes; routes 3 and 9 are in no list.
        let some = Shape {
            m: 7,
            lists: vec![
                vec![4, 0],
                vec![],
                vec![11, 2, 8, 1, 10],
                vec![7],
                vec![6, 5],
            ],
            routes: 12,
            ..plain.clone()
        };
        let mut add = |label: &str, change: &dyn Fn(&mut Shape)| {
            let mut shape = some.clone();
            change(&mut shape);
            cases.add(label, |d| self.fill(d, &shape));
        };
        add("smallest", &|s| s.clone_from(&plain));
        add("several experts, one of them empty", &|_| {});
        for accumulate in [1, 2, u32::MAX] {
            add(&format!("accumulate {accumulate}"), &|s| {
                s.accumulate = accumulate
            });
        }
        for divisor in [0, 2, 3, 5, 8, 12, 100] {
            add(&format!("divisor {divisor}"), &|s| s.divisor = divisor);
            add(&format!("divisor {divisor}, accumulate"), &|s| {
                (s.divisor, s.accumulate) = (divisor, 1);
            });
        }
        for count in [2, 7, 8, 9, 15, 16, 17, 25] {
            add(&format!("{count} routes of one expert"), &|s| {
                s.lists = vec![vec![], (0..count).rev().collect(), vec![]];
                s.routes = count;
            });
            add(
                &format!("{count} routes of one expert, groups left out"),
                &|s| {
                    s.lists = vec![(0..count).collect()];
                    (s.routes, s.holes, s.accumulate) = (count + 3, true, 1);
                },
            );
        }
        add("no expert has routes", &|s| {
            (s.lists, s.surplus) = (vec![vec![]; 3], 2)
        });
        for surplus in [1, 5] {
            add(&format!("{surplus} surplus entries"), &|s| {
                s.surplus = surplus
            });
        }
        add("lists with room", &|s| (s.slack, s.surplus) = (9, 3));
        for m in [2, 3, 4, 5, 31, 33, 64, 65] {
            add(&format!("{m} rows"), &|s| s.m = m);
        }
        for k in [512, 768, 1280] {
            add(&format!("k = {k}"), &|s| (s.m, s.k) = (3, k));
        }
        add("offsets", &|s| {
            s.offsets = [3 * self.a_align, 3 * self.x_align, 28];
        });
        add("smallest offsets, accumulate", &|s| {
            (s.offsets, s.accumulate) = ([self.a_align, self.x_align, 4], 1);
        });
        add("experts apart", &|s| {
            (s.gap, s.offsets) = (self.a_align, [2 * self.a_align, 0, 0]);
        });
        add("experts far apart", &|s| s.gap = 257 * self.a_align);
        add("edge blocks", &|s| (s.m, s.edges) = (12, true));
        add("edge blocks, accumulate", &|s| {
            (s.m, s.edges, s.accumulate) = (12, true, 1);
        });
        for (label, x) in INPUTS {
            add(&format!("x: {label}"), &|s| s.x = x);
        }
        cases.add("NaN scale in one expert", |d| {
            self.fill(d, &some);
            let row = self.weights.row_bytes(some.k as usize);
            let special = special_factor(self.weights, 3, some.k as usize, f32::NAN);
            let (at, bytes) = special.unwrap_or_default();
            d.patch("weights", 2 * some.m as usize * row + at, &bytes);
        });
        for (experts, tokens, used, m, k) in [
            (5, 6, 2, 9, 256),
            (16, 11, 8, 4, 256),
            (64, 4, 3, 3, 256),
            (8, 33, 1, 5, 256),
        ] {
            cases.add(
                format!("{tokens} tokens, {used} of {experts} experts"),
                |d| {
                    let lists = random_lists(d, experts, tokens, used);
                    let (routes, divisor) = (tokens * used, used);
                    let surplus = 2;
                    self.fill(
                        d,
                        &Shape {
                            m,
                            k,
                            lists,
                            routes,
                            divisor,
                            surplus,
                            ..plain.clone()
                        },
                    );
                },
            );
        }
        for (experts, tokens, used, m, k, accumulate) in [
            (64, 24, 8, 512, 2048, 0),
            (256, 200, 8, 32, 512, 0),
            (64, 112, 1, 1024, 512, 1),
        ] {
            cases.heavy(
                format!("{tokens} tokens, {used} of {experts} experts, {m} x {k}"),
                |d| {
                    let lists = random_lists(d, experts, tokens, used);
                    let (routes, divisor) = (tokens * used, used);
                    let shape = Shape {
                        m,
                        k,
                        lists,
                        routes,
                        divisor,
                        accumulate,
                        ..plain.clone()
                    };
                    self.fill(d, &shape);
                },
            );
        }
    }

    pub(super) fn random(&self, draft: &mut Draft) {
        let (experts, tokens) = (draft.rng.between(1, 6), draft.rng.between(1, 20));
        let used = draft.rng.between(1, experts.min(3));
        let lists = random_lists(draft, experts, tokens, used);
        let rng = &mut draft.rng;
        let shape = Shape {
            m: rng.between(1, 9),
            k: 256 * rng.between(1, 2),
            lists,
            routes: tokens * used,
            slack: rng.below(4),
            surplus: rng.below(4),
            holes: rng.flip(),
            divisor: rng.pick(&[0, 1, used, 7]),
            accumulate: rng.below(2),
            offsets: [
                self.a_align * rng.below(4),
                self.x_align * rng.below(4),
                4 * rng.below(4),
            ],
            gap: self.a_align * rng.below(4),
            x: Fill::Normal(1.0),
            edges: rng.flip(),
        };
        self.fill(draft, &shape);
    }

    fn fill(&self, draft: &mut Draft, shape: &Shape) {
        let Shape {
            m,
            k,
            lists,
            routes,
            offsets: [a, x, y],
            ..
        } = shape.clone();
        let experts = lists.len() as u32;
        let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
        let stride = (longest as u32 + shape.slack).max(1);
        let expert_stride = m * self.weights.row_bytes(k as usize) as u32 + shape.gap;
        let mut blocks = vec![UNUSED; shape.surplus as usize];
        for (expert, list) in lists.iter().enumerate() {
            let groups = list.len().div_ceil(GROUP);
            blocks.extend((0..groups).map(|group| (expert | group << 16) as u32));
        }
        if shape.holes {
            for block in blocks.iter_mut().skip(1).step_by(3) {
                *block = UNUSED;
            }
        }
        if shape.slack > 0 {
            // A group behind the end of the list of an expert does nothing.
            blocks.push((longest.div_ceil(GROUP) as u32) << 16);
        }
        if blocks.is_empty() {
            blocks.push(UNUSED);
        }
        let order = draft.rng.permutation(blocks.len() as u32);
        let blocks: Vec<u32> = order.into_iter().map(|i| blocks[i as usize]).collect();
        draft.set_all(&[("m", m), ("k", k), ("expert_stride", expert_stride)]);
        draft.set_all(&[("a_offset", a), ("x_offset", x), ("y_offset", y)]);
        draft.set_all(&[("ids_stride", stride), ("x_route_divisor", shape.divisor)]);
        draft.set_all(&[("accumulate", shape.accumulate), ("n_experts", experts)]);
        draft.set_all(&[("n_blocks", blocks.len() as u32), ("n_routes", routes)]);
        let weights = random_matrices(
            draft,
            self.weights,
            experts,
            [m, k],
            expert_stride,
            shape.edges,
        );
        draft.read("weights", a as usize, &weights);
        let inputs = routes.div_ceil(shape.divisor.max(1));
        let values = shape.x.make(&mut draft.rng, (inputs * k) as usize);
        draft.read_floats("x", x as usize, &values);
        let counts: Vec<u32> = lists.iter().map(|l| l.len() as u32).collect();
        draft.read_integers("counts", &counts);
        let ids = lists.into_iter().flat_map(|mut list| {
            // Behind the end of a list there may be anything.
            list.resize(stride as usize, 0x7fff_fff1);
            list
        });
        draft.read_integers("packed_ids", &ids.collect::<Vec<u32>>());
        draft.read_integers("active_blocks", &blocks);
        let old = if shape.accumulate == 0 {
            Vec::new()
        } else {
            draft.rng.normals((routes * m) as usize, 3.0)
        };
        draft.update("y", y as usize, &old);
    }
}
