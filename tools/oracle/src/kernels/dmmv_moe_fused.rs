//! Routed experts with more fused to them: gate and up products with their activation, and down
//! products summed over the slots of a token.

use super::Entry;
use super::dmmv_moe::{Layout, Slots, experts};
use super::gemm::{Gate, Sum, gelu, output_rows, products, silu, special_factor};
use crate::case::{Cases, Draft, Fill};
use crate::quant::Format;
use crate::{Call, Element, Expected, OracleError};

pub(super) const ENTRIES: &[Entry] = &[
    entry!("dmmv_q4k_fused_gate_up_moe", GATE_UP),
    entry!("dmmv_q4k_fused_gate_up_swiglu_moe", SWIGLU),
    entry!("dmmv_q4k_moe_fused_gate_up_geglu", GEGLU),
    entry!("dmmv_q4k_moe_fused_down_acc", DOWN_Q4K),
    entry!("dmmv_q5k_moe_fused_down_acc", DOWN_Q5K),
    entry!("dmmv_q5_1_moe_fused_down_acc", DOWN_Q5_1),
    entry!("dmmv_q5_1_moe_fused_down_acc_scaled", DOWN_Q5_1_SCALED),
    entry!("dmmv_q8_0_moe_fused_down_acc_scaled", DOWN_Q8_0_SCALED),
];

/// A gate and an up matrix per slot.
struct GateUp {
    layout: Layout,
    /// how the two products are combined; they are separate outputs without
    gate: Option<Gate>,
    /// both matrices are in one tensor
    packed: bool,
}

const GATE_UP: GateUp = GateUp {
    layout: Layout {
        weights: Format::Q4K,
        stride_align: 4,
        x_align: 16,
        strided: true,
    },
    gate: None,
    packed: false,
};
const SWIGLU: GateUp = GateUp {
    gate: Some(Gate {
        activation: silu,
        slope: 1.1,
        relative: 0.0,
    }),
    ..GATE_UP
};
const GEGLU: GateUp = GateUp {
    layout: Layout {
        strided: false,
        ..GATE_UP.layout
    },
    gate: Some(Gate {
        activation: gelu,
        slope: 1.2,
        relative: 0.0,
    }),
    packed: true,
};

impl GateUp {
    /// The products of both matrices of every slot, for each row.
    fn sums(&self, call: &Call) -> Result<Vec<Vec<[Sum; 2]>>, OracleError> {
        let (m, slots) = (call.count("m")?, call.count("n_slots")?);
        let inputs = self.layout.inputs(call, slots)?;
        let places = if self.packed {
            [("weights", 0), ("weights", call.count("up_offset")?)]
        } else {
            [("w_gate", 0), ("w_up", 0)]
        };
        let slots = experts(call, slots)?.into_iter().zip(inputs);
        slots
            .map(|(expert, input)| {
                let [gates, ups] = places.map(|(weights, offset)| {
                    let weights = self.layout.matrix(call, weights, expert, offset)?;
                    let x = std::slice::from_ref(&input);
                    Ok::<_, OracleError>(products(self.layout.weights, weights, m, x))
                });
                let (gates, ups) = (gates?, ups?);
                Ok(gates.iter().zip(&ups).map(|(g, u)| [g[0], u[0]]).collect())
            })
            .collect()
    }

    /// y[j*m + r] = activation(g) * u, or both
    fn reference(&self, call: &Call) -> Result<Vec<Expected>, OracleError> {
        let (m, start) = (call.count("m")?, call.count("y_offset")?);
        let sums = self.sums(call)?;
        let output = |y: &str, element: &dyn Fn(&[Sum; 2]) -> Element| {
            let rows = sums.iter().map(|slot| slot.iter().map(element).collect());
            Ok::<_, OracleError>(output_rows(call.index(y)?, start, m, rows.collect()))
        };
        Ok(match self.gate {
            Some(gate) => vec![output("y", &|[g, u]| gate.apply(*g, *u).element(true))?],
            None => vec![
                output("y_gate", &|[g, _]| g.element(true))?,
                output("y_up", &|[_, u]| u.element(true))?,
            ],
        })
    }

    fn cases(&self, cases: &mut Cases) {
        self.layout.cases(cases, |d, shape| self.fill(d, shape, 0));
        let some = self.layout.some();
        for scale in [0.01, 0.1, 5.0, 100.0, 1e8] {
            let x = Fill::Normal(scale);
            cases.add(format!("x of {scale:e}"), |d| {
                self.fill(d, &Slots { x, ..some.clone() }, 0);
            });
        }
        if self.packed {
            for gap in [4, 260] {
                cases.add(format!("gate and up {gap} bytes apart"), |d| {
                    self.fill(d, &some, gap);
                });
            }
        } else {
            cases.add("one tensor for both", |d| {
                self.fill(d, &some, 0);
                d.alias("w_up", "w_gate");
            });
        }
        for (matrix, name) in ["gate", "up"].into_iter().enumerate() {
            cases.add(format!("NaN scale in {name} of one expert"), |d| {
                self.fill(d, &some, 0);
                let special = special_factor(self.layout.weights, 3, some.k as usize, f32::NAN);
                let (at, bytes) = special.unwrap_or_default();
                let stride = some.stride(self.layout.weights) as usize;
                if self.packed {
                    d.patch("weights", 2 * 2 * stride + matrix * stride + at, &bytes);
                } else {
                    d.patch(["w_gate", "w_up"][matrix], 2 * stride + at, &bytes);
                }
            });
        }
    }

    fn random(&self, draft: &mut Draft) {
        let mut shape = self.layout.random(draft);
        shape.x = Fill::Normal(draft.rng.pick(&[0.1, 0.3, 2.0]));
        let gap = 4 * draft.rng.below(3);
        self.fill(draft, &shape, gap);
    }

    /// `gap` are the bytes between the gate and the up rows of a packed tensor.
    fn fill(&self, draft: &mut Draft, shape: &Slots, gap: u32) {
        draft.set("n_slots", shape.count());
        self.layout.fill(draft, shape);
        if self.packed {
            // Gate and up rows are like two experts of the unpacked tensor.
            let up_offset = shape.stride(self.layout.weights) + gap;
            let all = Slots {
                experts: 2 * shape.experts,
                gap: shape.gap + gap,
                ..shape.clone()
            };
            draft.set_all(&[("up_offset", up_offset), ("expert_stride", 2 * up_offset)]);
            let weights = self.layout.matrices(draft, &all);
            draft.read("weights", 0, &weights);
        } else {
            for weights in ["w_gate", "w_up"] {
                let matrices = self.layout.matrices(draft, shape);
                draft.read(weights, 0, &matrices);
            }
        }
        match self.gate {
            Some(_) => draft.write("y"),
            None => {
                draft.write("y_gate");
                draft.write("y_up");
            }
        }
        draft.read_integers("routing", &shape.routing);
    }
}

/// One matrix per slot, and one output vector.
struct Down {
    layout: Layout,
    /// adds to the output instead of overwriting it
    accumulates: bool,
    /// a factor per expert
    scaled: bool,
}

const DOWN_Q4K: Down = Down {
    layout: GATE_UP.layout,
    accumulates: true,
    scaled: false,
};
const DOWN_Q5K: Down = Down {
    layout: Layout {
        weights: Format::Q5K,
        ..DOWN_Q4K.layout
    },
    ..DOWN_Q4K
};
const DOWN_Q5_1: Down = Down {
    layout: Layout {
        weights: Format::Q5_1,
        x_align: 4,
        ..DOWN_Q4K.layout
    },
    accumulates: false,
    scaled: false,
};
const DOWN_Q5_1_SCALED: Down = Down {
    scaled: true,
    ..DOWN_Q5_1
};
const DOWN_Q8_0_SCALED: Down = Down {
    layout: Layout {
        weights: Format::Q8_0,
        stride_align: 2,
        ..DOWN_Q5_1.layout
    },
    ..DOWN_Q5_1_SCALED
};

/// Routing weights and factors of experts.
#[derive(Clone, Copy)]
struct Factors {
    weights: Fill,
    scales: Fill,
}

/// What softmax gives, roughly, and factors around 1.
const PLAIN: Factors = Factors {
    weights: Fill::Normal(0.3),
    scales: Fill::Normal(1.0),
};

impl Down {
    /// y[r] (+)= sum over j of p_j * scale_e * (sum over c of W_e[r,c] * x[j*x_expert_stride + c]),
    /// e = routing[j]
    fn reference(&self, call: &Call) -> Result<Vec<Expected>, OracleError> {
        let (m, slots) = (call.count("m")?, call.count("n_used")?);
        if self.accumulates && slots == 0 {
            return Ok(Vec::new());
        }
        let start = call.count("y_offset")?;
        let inputs = self.layout.inputs(call, slots)?;
        let weights = call.floats("routing", slots * 4, slots)?;
        let mut totals = vec![Sum::default(); m];
        let slots = experts(call, slots)?.into_iter().zip(inputs).zip(weights);
        for ((expert, input), weight) in slots {
            let scale = if self.scaled {
                call.floats("expert_scales", expert * 4, 1)?[0]
            } else {
                1.0
            };
            let factor = f64::from(weight * scale);
            let matrix = self.layout.matrix(call, "weights", expert, 0)?;
            let sums = products(self.layout.weights, matrix, m, &[input]);
            for (total, sum) in totals.iter_mut().zip(sums) {
                *total = total.plus(sum[0].scaled(factor));
            }
        }
        let old = if self.accumulates {
            call.doubles("y", start, m)?
        } else {
            Vec::new()
        };
        let totals = totals.into_iter().enumerate();
        let row = totals.map(|(r, total)| {
            let total = old.get(r).map_or(total, |old| total.loosely_onto(*old));
            total.element(true)
        });
        Ok(vec![output_rows(
            call.index("y")?,
            start,
            0,
            vec![row.collect()],
        )])
    }

    fn cases(&self, cases: &mut Cases) {
        self.layout
            .cases(cases, |d, shape| self.fill(d, shape, PLAIN));
        let some = Slots {
            x_stride: self.layout.some().k,
            ..self.layout.some()
        };
        cases.add("no slots", |d| {
            let routing = Vec::new();
            self.fill(
                d,
                &Slots {
                    routing,
                    ..some.clone()
                },
                PLAIN,
            );
        });
        let mut add = |label: &str, factors: Factors| {
            cases.add(label, |d| self.fill(d, &some, factors));
        };
        for (label, fill) in [
            ("zero", Fill::Equal(0.0)),
            ("equal", Fill::Equal(0.125)),
            ("cancelling", Fill::Alternating(1.0)),
            ("large", Fill::Normal(1e10)),
            ("tiny", Fill::Normal(1e-30)),
        ] {
            let factors = Factors {
                weights: fill,
                ..PLAIN
            };
            add(&format!("routing weights: {label}"), factors);
            if self.scaled {
                let factors = Factors {
                    scales: fill,
                    ..PLAIN
                };
                add(&format!("factors of experts: {label}"), factors);
            }
        }
        let special = special_factor(self.layout.weights, 3, some.k as usize, f32::NAN);
        if let Some((at, bytes)) = special {
            cases.add("NaN scale in one expert", |d| {
                self.fill(d, &some, PLAIN);
                let expert = 2 * some.stride(self.layout.weights) as usize;
                d.patch("weights", expert + at, &bytes);
            });
            cases.add("NaN scale in an expert that is not used", |d| {
                self.fill(d, &some, PLAIN);
                let expert = 3 * some.stride(self.layout.weights) as usize;
                d.patch("weights", expert + at, &bytes);
            });
        }
    }

    fn random(&self, draft: &mut Draft) {
        let mut shape = self.layout.random(draft);
        if draft.rng.below(8) == 0 {
            shape.routing.clear();
        }
        self.fill(draft, &shape, PLAIN);
    }

    fn fill(&self, draft: &mut Draft, shape: &Slots, factors: Factors) {
        let slots = shape.count();
        draft.set("n_used", slots);
        self.layout.fill(draft, shape);
        let matrices = self.layout.matrices(draft, shape);
        draft.read("weights", 0, &matrices);
        let weights = factors.weights.make(&mut draft.rng, slots as usize);
        let weights = weights.into_iter().map(f32::to_bits);
        let routing: Vec<u32> = shape.routing.iter().copied().chain(weights).collect();
        draft.read_integers("routing", &routing);
        if self.scaled {
            let scales = factors.scales.make(&mut draft.rng, shape.experts as usize);
            draft.read_floats("expert_scales", 0, &scales);
        }
        let old = if self.accumulates {
            draft.rng.normals(shape.m as usize, 3.0)
        } else {
            Vec::new()
        };
        draft.update("y", shape.y_offset as usize, &old);
    }
}
