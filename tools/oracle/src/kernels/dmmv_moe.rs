//! Matrix-vector products over routed experts, one per routing slot, and what they share: the shapes of
//! slots, and the reading of routing tables.

use super::Entry;
use super::gemm::{
    INPUTS, Vector, output_rows, pitched, products, random_matrices, special_factor, vectors,
};
use crate::case::{Cases, Draft, Fill};
use crate::quant::Format;
use crate::{Call, Expected, OracleError};

/// The experts of the first `slots` routing slots.
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

/// What a kernel over routing slots asks of its buffers.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) weights: Format,
    /// required alignment of expert_stride
    pub(super) stride_align: u32,
    /// required alignment of x_offset, and of x_expert_stride in bytes
    pub(super) x_align: u32,
    /// there is an x_expert_stride
    pub(super) strided: bool,
}

/// What a case is made of.
#[derive(Clone)]
pub(super) struct Slots {
    pub(super) m: u32,
    pub(super) k: u32,
    pub(super) experts: u32,
    /// expert of each slot
    pub(super) routing: Vec<u32>,
    /// bytes between the end of an expert's matrix and the next one
    pub(super) gap: u32,
    /// elements between the input vectors of slots
    pub(super) x_stride: u32,
    pub(super) x_offset: u32,
    pub(super) y_offset: u32,
    pub(super) x: Fill,
    pub(super) edges: bool,
}

impl Slots {
    /// Number of slots.
    pub(super) fn count(&self) -> u32 {
        self.routing.len() as u32
    }

    /// Bytes from one matrix to the next.
    pub(super) fn stride(&self, format: Format) -> u32 {
        self.m * format.row_bytes(self.k as usize) as u32 + self.gap
    }
}

impl Layout {
    /// The smallest case.
    pub(super) fn plain(&self) -> Slots {
        let k = self.weights.elements() as u32;
        Slots {
            m: 1,
            k,
            experts: 1,
            routing: vec![0],
            gap: 0,
            x_stride: 0,
            x_offset: 0,
            y_offset: 0,
            x: Fill::Normal(1.0),
            edges: false,
        }
    }

    /// A small case with several experts.
    pub(super) fn some(&self) -> Slots {
        Slots {
            m: 7,
            k: 2 * self.plain().k.max(96),
            experts: 5,
            routing: vec![4, 0, 2],
            ..self.plain()
        }
    }

    /// Adds the cases that every kernel over slots has.
    pub(super) fn cases(&self, cases: &mut Cases, fill: impl Fn(&mut Draft, &Slots)) {
        let (plain, some) = (self.plain(), self.some());
        let (unit, k) = (plain.k, some.k);
        let floats = self.x_align / 4;
        let mut add = |label: &str, change: &dyn Fn(&mut Slots)| {
            let mut shape = some.clone();
            change(&mut shape);
            cases.add(label, |d| fill(d, &shape));
        };
        add("smallest", &|s| s.clone_from(&plain));
        add("no rows", &|s| s.m = 0);
        add("no columns", &|s| s.k = 0);
        add("one vector for all slots", &|_| {});
        if self.strided {
            add("one vector per slot", &|s| s.x_stride = k);
            add("vectors apart", &|s| {
                (s.x_stride, s.x_offset) = (k + 3 * floats, 3 * self.x_align);
            });
            add("overlapping vectors", &|s| s.x_stride = floats);
        }
        add("offsets", &|s| {
            (s.x_offset, s.y_offset, s.x_stride) = (5 * self.x_align, 36, k);
        });
        add("smallest offsets", &|s| {
            (s.x_offset, s.y_offset, s.gap) = (self.x_align, 4, self.stride_align);
        });
        add("experts apart", &|s| s.gap = self.stride_align);
        add("experts far apart", &|s| {
            (s.gap, s.x_stride) = (257 * self.stride_align, k)
        });
        add("repeated expert", &|s| {
            (s.routing, s.x_stride) = (vec![3, 3, 0, 3], k);
        });
        add("last expert only", &|s| s.routing = vec![4]);
        add("8 slots", &|s| {
            (s.experts, s.routing) = (8, vec![7, 1, 0, 6, 5, 2, 4, 3]);
            s.x_stride = k;
        });
        for m in [2, 31, 33, 63, 64, 65, 129] {
            add(&format!("{m} rows"), &|s| {
                (s.m, s.k, s.routing, s.x_stride) = (m, unit, vec![1, 4], unit);
            });
        }
        for units in [1, 3, 5, 22, 33] {
            let k = units * unit;
            if k <= 1280 {
                add(&format!("k = {k}"), &|s| (s.m, s.k) = (3, k));
            }
        }
        // One step of 256 columns more than there are warps, and more than they have room for.
        for (m, k) in [(17, 2304), (3, 16640)] {
            add(&format!("{m} x {k}"), &|s| {
                (s.m, s.k, s.x_stride) = (m, k, k)
            });
        }
        // Rows in fours, and experts 16-byte aligned: of less than a step, of several and of the most columns that a
        // row group has, and of one more.
        for (m, k) in [
            (4, 256),
            (12, 512),
            (20, 768),
            (36, 1024),
            (8, 1280),
            (12, 4352),
            (4, 8192),
            (4, 8448),
        ] {
            add(&format!("{m} x {k}, rows in fours"), &|s| {
                (s.m, s.k, s.x_stride, s.edges) = (m, k, k, k < 1024);
            });
        }
        add("rows in fours, vectors apart", &|s| {
            (s.m, s.x_offset, s.y_offset) = (16, 48, 20);
            (s.k, s.x_stride, s.gap) = (512, 512 + 4, 16);
        });
        add("edge blocks", &|s| (s.m, s.edges) = (12, true));
        for (label, x) in INPUTS {
            add(&format!("x: {label}"), &|s| (s.x, s.x_stride) = (x, k));
        }
        // Copied rows, or rows of several slots: with tiles that are not whole, and with a vector that has to be
        // multiplied in f32.
        for (m, k) in [(72, 2048), (20, 1024)] {
            add(&format!("{m} x {k}, x: an outlier"), &|s| {
                (s.m, s.k, s.x_stride, s.x) = (m, k, k, Fill::One(9, -1e6));
            });
            add(&format!("{m} x {k}"), &|s| {
                (s.m, s.k, s.x_stride) = (m, k, k)
            });
        }
        let routing: Vec<u32> = [15, 3, 8, 0, 11, 6, 14, 2].into();
        add("8 of 16 experts, 32 x 2048", &|s| {
            (s.m, s.k, s.experts) = (32, 2048, 16);
            s.routing.clone_from(&routing);
        });
        // Qwen3.6 A3B, Gemma 4 26B A4B and gpt-oss 20B, with fewer rows where the experts are many.
        for (m, k, experts, used) in [
            (512, 2048, 64, 8),
            (2048, 512, 64, 8),
            (64, 2048, 256, 8),
            (256, 2816, 128, 8),
            (256, 704, 128, 8),
            (288, 2880, 32, 4),
        ] {
            if k % unit == 0 {
                cases.heavy(format!("{used} of {experts} experts, {m} x {k}"), |d| {
                    let mut routing = d.rng.permutation(experts);
                    routing.truncate(used);
                    let x_stride = if m > k { k } else { 0 };
                    let shape = Slots {
                        m,
                        k,
                        experts,
                        routing,
                        x_stride,
                        ..plain.clone()
                    };
                    fill(d, &shape);
                });
            }
        }
    }

    /// A small random shape.
    pub(super) fn random(&self, d: &mut Draft) -> Slots {
        let rng = &mut d.rng;
        let experts = rng.between(1, 5);
        let slots = rng.between(1, 4);
        let routing = (0..slots).map(|_| rng.below(experts)).collect();
        let k = self.weights.elements() as u32 * rng.below(3);
        let floats = self.x_align / 4;
        Slots {
            m: rng.below(20),
            k,
            experts,
            routing,
            gap: self.stride_align * rng.below(4),
            x_stride: rng.pick(&[0, k, k + 3 * floats]),
            x_offset: self.x_align * rng.below(5),
            y_offset: 4 * rng.below(5),
            x: Fill::Normal(1.0),
            edges: rng.flip(),
        }
    }

    /// Sets the fields that all kernels over slots have, and fills x and the routing ids.
    pub(super) fn fill(&self, draft: &mut Draft, shape: &Slots) {
        draft.set_all(&[
            ("m", shape.m),
            ("k", shape.k),
            ("expert_stride", shape.stride(self.weights)),
            ("x_offset", shape.x_offset),
            ("y_offset", shape.y_offset),
            ("n_experts", shape.experts),
        ]);
        let mut count = shape.k;
        if self.strided {
            draft.set("x_expert_stride", shape.x_stride);
            if shape.k > 0 {
                count += shape.count().max(1).saturating_sub(1) * shape.x_stride;
            }
        }
        let x = shape.x.make(&mut draft.rng, count as usize);
        draft.read_floats("x", shape.x_offset as usize, &x);
    }

    /// The matrices of all experts.
    pub(super) fn matrices(&self, draft: &mut Draft, shape: &Slots) -> Vec<u8> {
        let stride = shape.stride(self.weights);
        let size = [shape.m, shape.k];
        random_matrices(
            draft,
            self.weights,
            shape.experts,
            size,
            stride,
            shape.edges,
        )
    }

    /// The input vector of every slot.
    pub(super) fn inputs(&self, call: &Call, slots: usize) -> Result<Vec<Vector>, OracleError> {
        let stride = if self.strided {
            call.count("x_expert_stride")?
        } else {
            0
        };
        vectors(
            call,
            "x",
            call.count("x_offset")?,
            slots,
            stride,
            call.count("k")?,
        )
    }

    /// The bytes of the matrix of an expert, `offset` bytes behind the start of the expert.
    pub(super) fn matrix<'a>(
        &self,
        call: &Call<'a>,
        weights: &str,
        expert: usize,
        offset: usize,
    ) -> Result<&'a [u8], OracleError> {
        let start = expert * call.count("expert_stride")? + offset;
        let row = self.weights.row_bytes(call.count("k")?);
        call.slice(weights, start, call.count("m")? * row)
    }
}

/// One matrix per slot.
struct Routed(Layout);

const MXFP4: Routed = Routed(Layout {
    weights: Format::Mxfp4,
    stride_align: 1,
    x_align: 4,
    strided: true,
});
const Q4K: Routed = Routed(Layout {
    weights: Format::Q4K,
    stride_align: 4,
    ..MXFP4.0
});
const Q4K_KPAR: Routed = Routed(Layout {
    x_align: 16,
    ..Q4K.0
});
const Q5K: Routed = Routed(Layout {
    weights: Format::Q5K,
    ..Q4K.0
});
const Q5K_KPAR: Routed = Routed(Layout {
    x_align: 16,
    ..Q5K.0
});
const Q5_1: Routed = Routed(Layout {
    weights: Format::Q5_1,
    ..Q4K.0
});
const Q6K: Routed = Routed(Layout {
    weights: Format::Q6K,
    stride_align: 2,
    ..Q4K.0
});

macro_rules! entry {
    ($name:literal, $routed:ident) => {
        Entry {
            name: $name,
            reference: |call| $routed.reference(call),
            cases: |cases| $routed.cases(cases),
            random: |draft| {
                let shape = $routed.0.random(draft);
                $routed.fill(draft, &shape);
            },
        }
    };
}

pub(super) const ENTRIES: &[Entry] = &[
    entry!("dmmv_mxfp4_moe", MXFP4),
    entry!("dmmv_q4k_moe", Q4K),
    entry!("dmmv_q4k_moe_kpar", Q4K_KPAR),
    entry!("dmmv_q5_1_moe", Q5_1),
    entry!("dmmv_q5k_moe", Q5K),
    entry!("dmmv_q5k_moe_kpar", Q5K_KPAR),
    entry!("dmmv_q6k_moe", Q6K),
    Entry {
        name: "dmmv_q4k_moe_batched",
        reference: batched,
        cases: batched_cases,
        random: |d| {
            let rng = &mut d.rng;
            let shape = Batch {
                m: rng.below(12),
                k: 256 * rng.below(3),
                experts: rng.between(1, 5),
                used: rng.between(1, 3),
                tokens: rng.between(1, 4),
                pads: [4 * rng.below(3), rng.below(5)],
                gap: 4 * rng.below(3),
                x: Fill::Normal(1.0),
                edges: rng.flip(),
            };
            batched_fill(d, shape);
        },
    },
];

impl Routed {
    /// y[j*m + r] = sum over c of W_e[r,c] * x[j*x_expert_stride + c],  e = routing[j]
    fn reference(&self, call: &Call) -> Result<Vec<Expected>, OracleError> {
        let (m, slots) = (call.count("m")?, call.count("n_slots")?);
        let inputs = self.0.inputs(call, slots)?;
        let experts = experts(call, slots)?.into_iter();
        let rows = experts.zip(inputs).map(|(expert, input)| {
            let weights = self.0.matrix(call, "weights", expert, 0)?;
            let sums = products(self.0.weights, weights, m, &[input]);
            Ok(sums.iter().map(|s| s[0].element(true)).collect())
        });
        let rows = rows.collect::<Result<_, OracleError>>()?;
        let start = call.count("y_offset")?;
        Ok(vec![output_rows(call.index("y")?, start, m, rows)])
    }

    fn cases(&self, cases: &mut Cases) {
        self.0.cases(cases, |d, shape| self.fill(d, shape));
        let some = self.0.some();
        let special = special_factor(self.0.weights, 3, some.k as usize, f32::NAN);
        if let Some((at, bytes)) = special {
            cases.add("NaN scale in one expert", |d| {
                self.fill(d, &some);
                let expert = 2 * some.stride(self.0.weights) as usize;
                d.patch("weights", expert + at, &bytes);
            });
        }
    }

    fn fill(&self, draft: &mut Draft, shape: &Slots) {
        draft.set("n_slots", shape.count());
        self.0.fill(draft, shape);
        let weights = self.0.matrices(draft, shape);
        draft.read("weights", 0, &weights);
        draft.write("y");
        draft.read_integers("routing", &shape.routing);
    }
}

/// Several tokens with the same number of slots each.
#[derive(Clone, Copy)]
struct Batch {
    m: u32,
    k: u32,
    experts: u32,
    used: u32,
    tokens: u32,
    /// floats between the rows of x, and between the groups of y
    pads: [u32; 2],
    gap: u32,
    x: Fill,
    edges: bool,
}

/// y[t*y_token_stride + j*m + r] = sum over c of W_e[r,c] * x[t*x_token_stride + c],
/// e = routing[t*n_experts_used + j]
fn batched(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let layout = Q4K_KPAR.0;
    let (m, k) = (call.count("m")?, call.count("k")?);
    let (tokens, used) = (call.count("n_tokens")?, call.count("n_experts_used")?);
    let inputs = vectors(call, "x", 0, tokens, call.count("x_token_stride")?, k)?;
    let experts = experts(call, tokens * used)?;
    let rows = experts.chunks(used).zip(inputs).map(|(experts, input)| {
        let mut row = Vec::with_capacity(used * m);
        for expert in experts {
            let weights = layout.matrix(call, "weights", *expert, 0)?;
            let sums = products(layout.weights, weights, m, std::slice::from_ref(&input));
            row.extend(sums.iter().map(|s| s[0].element(true)));
        }
        Ok(row)
    });
    let rows = rows.collect::<Result<_, OracleError>>()?;
    let stride = call.count("y_token_stride")?;
    Ok(vec![output_rows(call.index("y")?, 0, stride, rows)])
}

fn batched_fill(d: &mut Draft, shape: Batch) {
    let Batch {
        m,
        k,
        experts,
        used,
        tokens,
        ..
    } = shape;
    let stride = m * Format::Q4K.row_bytes(k as usize) as u32 + shape.gap;
    let x_stride = k + shape.pads[0];
    d.set_all(&[("m", m), ("k", k), ("expert_stride", stride)]);
    d.set_all(&[("n_experts_used", used), ("x_token_stride", x_stride)]);
    d.set("y_token_stride", used * m + shape.pads[1]);
    d.set_all(&[("n_tokens", tokens), ("n_experts", experts)]);
    let weights = random_matrices(d, Format::Q4K, experts, [m, k], stride, shape.edges);
    d.read("weights", 0, &weights);
    let x = shape.x.make(&mut d.rng, (tokens * k) as usize);
    d.read_floats("x", 0, &pitched(&x, k as usize, x_stride as usize));
    let ids: Vec<u32> = (0..tokens * used).map(|_| d.rng.below(experts)).collect();
    d.read_integers("routing", &ids);
    d.write("y");
}

fn batched_cases(cases: &mut Cases) {
    let plain = Batch {
        m: 1,
        k: 256,
        experts: 1,
        used: 1,
        tokens: 1,
        pads: [0; 2],
        gap: 0,
        x: Fill::Normal(1.0),
        edges: false,
    };
    let some = Batch {
        m: 7,
        k: 512,
        experts: 5,
        used: 2,
        tokens: 3,
        ..plain
    };
    let mut add = |label: &str, shape: Batch| cases.add(label, |d| batched_fill(d, shape));
    add("smallest", plain);
    add("no rows", Batch { m: 0, ..some });
    add("no columns", Batch { k: 0, ..some });
    for (used, tokens) in [(1, 1), (1, 7), (3, 1), (8, 2), (2, 17), (5, 5)] {
        let label = format!("{tokens} tokens of {used} slots");
        add(
            &label,
            Batch {
                used,
                tokens,
                experts: 9,
                ..some
            },
        );
    }
    add("one expert", Batch { experts: 1, ..some });
    for m in [2, 31, 33, 64, 65, 129] {
        add(&format!("{m} rows"), Batch { m, k: 256, ..some });
    }
    for k in [256, 768, 1280, 2048] {
        add(&format!("k = {k}"), Batch { m: 3, k, ..some });
    }
    for pads in [[4, 0], [0, 1], [12, 5], [256, 64]] {
        add(
            &format!("tokens {pads:?} floats apart"),
            Batch { pads, ..some },
        );
    }
    add("experts apart", Batch { gap: 4, ..some });
    add("experts far apart", Batch { gap: 1028, ..some });
    add(
        "edge blocks",
        Batch {
            m: 12,
            edges: true,
            ..some
        },
    );
    for (label, x) in INPUTS {
        add(&format!("x: {label}"), Batch { x, ..some });
    }
    let model = Batch {
        m: 512,
        k: 2048,
        experts: 32,
        used: 8,
        tokens: 16,
        ..plain
    };
    cases.heavy("16 tokens of 8 slots, 512 x 2048", |d| {
        batched_fill(d, model)
    });
}
