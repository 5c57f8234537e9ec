//! Matrix-vector products over routed experts.

use rayon::prelude::*;

use super::Entry;
use super::dmmv::{dot, output};
use crate::case::{Cases, Draft, Fill};
use crate::quant::Format;
use crate::{Call, Expected, OracleError};

/// One kernel with one matrix per routing slot.
struct Routed {
    weights: Format,
}

const Q4K: Routed = Routed {
    weights: Format::Q4K,
};
const Q5K: Routed = Routed {
    weights: Format::Q5K,
};

macro_rules! entry {
    ($name:literal, $routed:ident) => {
        Entry {
            name: $name,
            reference: |call| $routed.reference(call),
            cases: |cases| $routed.cases(cases),
            random: |draft| $routed.random(draft),
        }
    };
}

pub(super) const ENTRIES: &[Entry] = &[entry!("dmmv_q4k_moe", Q4K), entry!("dmmv_q5k_moe", Q5K)];

/// What a case is made of.
#[derive(Clone)]
struct Shape {
    m: u32,
    k: u32,
    experts: u32,
    /// expert of each slot
    routing: Vec<u32>,
    /// bytes between the end of an expert's matrix and the next one
    gap: u32,
    /// elements between the input vectors of slots
    x_stride: u32,
    x_offset: u32,
    y_offset: u32,
    x: Fill,
    edges: bool,
}

impl Routed {
    /// y[j*m + r] = sum over c of W_e[r,c] * x[j*x_expert_stride + c],  e = routing[j]
    fn reference(&self, call: &Call) -> Result<Vec<Expected>, OracleError> {
        let (m, k) = (call.count("m")?, call.count("k")?);
        let stride = call.count("expert_stride")?;
        let x_stride = call.count("x_expert_stride")? * 4;
        let (x, y) = (call.count("x_offset")?, call.count("y_offset")?);
        let slots = call.count("n_slots")?;
        let row = self.weights.row_bytes(k);
        let mut elements = Vec::with_capacity(slots * m);
        for (j, expert) in experts(call, slots)?.into_iter().enumerate() {
            let weights = call.slice("weights", expert * stride, m * row)?;
            let input = call.doubles("x", x + j * x_stride, k)?;
            elements.par_extend((0..m).into_par_iter().map(|r| {
                let row = &weights[r * row..(r + 1) * row];
                output(dot(self.weights, row, &input), true, None)
            }));
        }
        Ok(vec![Expected::floats(call.index("y")?, y, elements)])
    }

    fn cases(&self, cases: &mut Cases) {
        let plain = Shape {
            m: 1,
            k: 256,
            experts: 1,
            routing: vec![0],
            gap: 0,
            x_stride: 0,
            x_offset: 0,
            y_offset: 0,
            x: Fill::Normal(1.0),
            edges: false,
        };
        let some = Shape {
            m: 7,
            k: 512,
            experts: 5,
            routing: vec![4, 0, 2],
            ..plain.clone()
        };
        let mut add = |label: &str, shape: Shape| cases.add(label, |d| self.fill(d, &shape));
        add("smallest", plain.clone());
        add(
            "no rows",
            Shape {
                m: 0,
                ..some.clone()
            },
        );
        add(
            "no columns",
            Shape {
                k: 0,
                ..some.clone()
            },
        );
        add("one vector for all slots", some.clone());
        add(
            "one vector per slot",
            Shape {
                x_stride: 512,
                ..some.clone()
            },
        );
        add(
            "vectors apart",
            Shape {
                x_stride: 515,
                x_offset: 12,
                ..some.clone()
            },
        );
        add(
            "overlapping vectors",
            Shape {
                x_stride: 1,
                ..some.clone()
            },
        );
        add(
            "offsets",
            Shape {
                x_offset: 20,
                y_offset: 36,
                x_stride: 512,
                ..some.clone()
            },
        );
        add(
            "experts apart",
            Shape {
                gap: 4,
                ..some.clone()
            },
        );
        add(
            "experts far apart",
            Shape {
                gap: 1028,
                x_stride: 512,
                ..some.clone()
            },
        );
        add(
            "repeated expert",
            Shape {
                routing: vec![3, 3, 0, 3],
                x_stride: 512,
                ..some.clone()
            },
        );
        add(
            "last expert only",
            Shape {
                routing: vec![4],
                ..some.clone()
            },
        );
        for m in [2, 31, 33, 63, 64, 65, 129] {
            let shape = Shape {
                m,
                k: 256,
                routing: vec![1, 4],
                x_stride: 256,
                ..some.clone()
            };
            add(&format!("{m} rows"), shape);
        }
        for k in [768, 1280, 2048] {
            add(
                &format!("k = {k}"),
                Shape {
                    m: 3,
                    k,
                    ..some.clone()
                },
            );
        }
        add(
            "edge blocks",
            Shape {
                m: 12,
                edges: true,
                ..some.clone()
            },
        );
        for (label, x) in [
            ("zeros", Fill::Equal(0.0)),
            ("all equal", Fill::Equal(-0.5)),
            ("cancelling", Fill::Alternating(1.0)),
            ("huge", Fill::Normal(1e30)),
            ("tiny", Fill::Normal(1e-30)),
            ("a NaN in the last slot", Fill::One(2, f32::NAN)),
            ("an infinity in the last slot", Fill::One(1, f32::INFINITY)),
        ] {
            add(
                &format!("x: {label}"),
                Shape {
                    x,
                    x_stride: 512,
                    ..some.clone()
                },
            );
        }
        cases.add("NaN scale in one expert", |d| {
            self.fill(d, &some);
            let row = self.weights.row_bytes(512) as u32;
            let at = 2 * some.m * row + 3 * row;
            d.patch("weights", at as usize, &0x7e00_u16.to_le_bytes());
        });
        cases.add("8 of 16 experts, 32 x 2048", |d| {
            let routing = d.rng.permutation(16)[..8].to_vec();
            self.fill(
                d,
                &Shape {
                    m: 32,
                    k: 2048,
                    experts: 16,
                    routing,
                    ..plain.clone()
                },
            );
        });
        for (m, k, per_slot) in [(512, 2048, false), (2048, 512, true)] {
            cases.heavy(format!("8 of 64 experts, {m} x {k}"), |d| {
                let routing = d.rng.permutation(64)[..8].to_vec();
                let x_stride = if per_slot { k } else { 0 };
                self.fill(
                    d,
                    &Shape {
                        m,
                        k,
                        experts: 64,
                        routing,
                        x_stride,
                        ..plain.clone()
                    },
                );
            });
        }
    }

    fn random(&self, draft: &mut Draft) {
        let rng = &mut draft.rng;
        let experts = rng.between(1, 5);
        let slots = rng.between(1, 4);
        let routing = (0..slots).map(|_| rng.below(experts)).collect();
        let k = 256 * rng.below(3);
        let shape = Shape {
            m: rng.below(20),
            k,
            experts,
            routing,
            gap: 4 * rng.below(4),
            x_stride: rng.pick(&[0, k, k + 3]),
            x_offset: 4 * rng.below(5),
            y_offset: 4 * rng.below(5),
            x: Fill::Normal(1.0),
            edges: rng.flip(),
        };
        self.fill(draft, &shape);
    }

    fn fill(&self, draft: &mut Draft, shape: &Shape) {
        let slots = shape.routing.len() as u32;
        let matrix = shape.m * self.weights.row_bytes(shape.k as usize) as u32;
        let stride = matrix + shape.gap;
        draft.set_all(&[
            ("m", shape.m),
            ("k", shape.k),
            ("expert_stride", stride),
            ("x_expert_stride", shape.x_stride),
            ("x_offset", shape.x_offset),
            ("y_offset", shape.y_offset),
            ("n_slots", slots),
            ("n_experts", shape.experts),
        ]);
        let blocks = shape.m as usize * (shape.k as usize / self.weights.elements());
        let mut weights = Vec::new();
        for expert in 0..shape.experts {
            weights.resize((expert * stride) as usize, 0xff);
            weights.extend(
                self.weights
                    .random_blocks(&mut draft.rng, blocks, shape.edges),
            );
        }
        draft.read("weights", 0, &weights);
        let count = if shape.k == 0 {
            0
        } else {
            (slots - 1) * shape.x_stride + shape.k
        };
        let x = shape.x.make(&mut draft.rng, count as usize);
        draft.read_floats("x", shape.x_offset as usize, &x);
        draft.write("y");
        draft.read_integers("routing", &shape.routing);
    }
}

/// The expert of each of the first `slots` routing slots.
pub(super) fn experts(call: &Call, slots: usize) -> Result<Vec<usize>, OracleError> {
    let limit = call.count("n_experts")?;
    let ids = call.integers("routing", 0, slots)?;
    let mut ids = ids.into_iter().enumerate();
    ids.try_fold(Vec::new(), |mut experts, (slot, id)| {
        if id as usize >= limit {
            let wanted = format!("an expert below {limit}");
            return Err(call.contents("routing", format!("slot {slot}"), wanted, id));
        }
        experts.push(id as usize);
        Ok(experts)
    })
}
