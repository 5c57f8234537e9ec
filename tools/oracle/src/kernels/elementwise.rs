//! Plain element-wise kernels.

use super::Entry;
use crate::case::{Cases, Draft, Fill, integer_bytes};
use crate::{Call, Element, Expected, OracleError};

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "scale_accumulate",
        reference: scale_accumulate,
        cases: scale_accumulate_cases,
        random: |d| {
            let n = 4 * d.rng.below(40);
            let scale = d.rng.normal();
            scale_accumulate_fill(d, n, scale, Fill::Normal(1.0));
        },
    },
    Entry {
        name: "scale_in_place",
        reference: scale_in_place,
        cases: scale_in_place_cases,
        random: |d| {
            let (n, scale) = (d.rng.below(300), d.rng.normal());
            scale_in_place_fill(d, n, scale, Fill::Normal(1.0));
        },
    },
    Entry {
        name: "bias_add",
        reference: bias_add,
        cases: bias_add_cases,
        random: |d| {
            let (n, offset) = (d.rng.below(300), d.rng.below(100));
            bias_add_fill(d, n, offset, [Fill::Normal(1.0); 2]);
        },
    },
    Entry {
        name: "mul_elementwise",
        reference: mul_elementwise,
        cases: mul_elementwise_cases,
        random: |d| {
            let n = d.rng.below(300);
            mul_elementwise_fill(d, n, [Fill::Normal(1.0); 2]);
        },
    },
    Entry {
        name: "deinterleave",
        reference: |call| deinterleave(call, call.count("n_heads")?),
        cases: deinterleave_cases,
        random: |d| {
            let (heads, dim) = (d.rng.below(6), d.rng.between(1, 70));
            deinterleave_fill(d, None, heads, dim);
        },
    },
    Entry {
        name: "deinterleave_batched",
        reference: |call| deinterleave(call, call.count("n_tokens")? * call.count("n_heads")?),
        cases: deinterleave_batched_cases,
        random: |d| {
            let (tokens, heads) = (d.rng.below(5), d.rng.below(5));
            let dim = d.rng.between(1, 50);
            deinterleave_fill(d, Some(tokens), heads, dim);
        },
    },
];

/// Element counts around the sizes of warps and blocks.
const SIZES: [u32; 14] = [0, 1, 2, 3, 5, 63, 64, 65, 127, 255, 256, 257, 1025, 2048];

/// Values of `buffer`, from its start on, that are right bit for bit.
pub(super) fn exact(
    call: &Call,
    buffer: &str,
    values: impl Iterator<Item = f32>,
) -> Result<Vec<Expected>, OracleError> {
    let elements = values.map(Element::Exact).collect();
    Ok(vec![Expected::floats(call.index(buffer)?, 0, elements)])
}

/// accum[i] + factor * src[i], within `relative` of |accum| + |factor * src| plus `extra` of
/// |factor * src|.
pub(super) fn accumulate(
    accum: &[f64],
    src: &[f64],
    factor: f64,
    relative: f64,
    extra: f64,
) -> Vec<Element> {
    let pairs = accum.iter().zip(src);
    let element = |(a, s): (&f64, &f64)| {
        let term = factor * s;
        let magnitude = a.abs() + term.abs();
        let tolerance = relative * magnitude + extra * term.abs();
        Element::near_unless_overflow(a + term, tolerance, magnitude)
    };
    pairs.map(element).collect()
}

/// accum[i] = accum[i] + scale * src[i], within 1e-6 of |accum| + |scale * src|
fn scale_accumulate(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let n = call.count("n")?;
    let scale = call.float("scale_bits")?;
    let (accum, src) = (call.doubles("accum", 0, n)?, call.doubles("src", 0, n)?);
    let elements = accumulate(&accum, &src, scale, 1e-6, 0.0);
    Ok(vec![Expected::floats(call.index("accum")?, 0, elements)])
}

fn scale_accumulate_fill(d: &mut Draft, n: u32, scale: f32, src: Fill) {
    d.set("n", n);
    d.set_float("scale_bits", scale);
    let src = src.make(&mut d.rng, n as usize);
    let accum = d.rng.normals(n as usize, 2.0);
    d.read_floats("src", 0, &src);
    d.update("accum", 0, &accum);
}

fn scale_accumulate_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    for n in [0, 4, 8, 60, 64, 252, 256, 260, 1020, 1024, 1028, 2048] {
        cases.add(format!("n = {n}"), |d| {
            scale_accumulate_fill(d, n, 0.37, normal)
        });
    }
    for (label, scale) in [
        ("one", 1.0),
        ("zero", 0.0),
        ("minus zero", -0.0),
        ("negative", -2.5),
        ("tiny", 1e-30),
        ("subnormal", 1e-40),
        ("huge", 1e30),
        ("infinite", f32::INFINITY),
        ("NaN", f32::NAN),
    ] {
        cases.add(format!("scale {label}"), |d| {
            scale_accumulate_fill(d, 132, scale, normal)
        });
    }
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, 1e38] {
        let src = Fill::Sprinkled(value);
        cases.add(format!("src with {value:e}"), |d| {
            scale_accumulate_fill(d, 76, 0.5, src)
        });
        cases.add(format!("scale 0, src with {value:e}"), |d| {
            scale_accumulate_fill(d, 76, 0.0, src);
        });
    }
    cases.add("src is accum", |d| {
        scale_accumulate_fill(d, 100, 0.25, normal);
        d.alias("src", "accum");
    });
    cases.heavy("2048 tokens x 2048", |d| {
        scale_accumulate_fill(d, 1 << 22, 1.0, normal);
    });
}

/// data[i] = data[i] * scale, one f32 multiplication
fn scale_in_place(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let data = call.floats("data", 0, call.count("n")?)?;
    let scale = f32::from_bits(call.word("scale_bits")?);
    exact(call, "data", data.iter().map(|x| x * scale))
}

fn scale_in_place_fill(d: &mut Draft, n: u32, scale: f32, data: Fill) {
    d.set("n", n);
    d.set_float("scale_bits", scale);
    let data = data.make(&mut d.rng, n as usize);
    d.update("data", 0, &data);
}

fn scale_in_place_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    for n in SIZES {
        cases.add(format!("n = {n}"), |d| {
            scale_in_place_fill(d, n, 0.37, normal)
        });
    }
    for scale in [
        1.0,
        0.0,
        -0.0,
        -2.5,
        0.022_097_087,
        1e-40,
        1e38,
        f32::INFINITY,
        f32::NAN,
    ] {
        for (label, data) in [
            ("normal values", normal),
            ("NaN among them", Fill::Sprinkled(f32::NAN)),
            ("infinity among them", Fill::Sprinkled(f32::INFINITY)),
            ("subnormals", Fill::Normal(1e-39)),
        ] {
            cases.add(format!("scale {scale:e}, {label}"), |d| {
                scale_in_place_fill(d, 77, scale, data);
            });
        }
    }
    cases.heavy("512 tokens x 5376", |d| {
        scale_in_place_fill(d, 512 * 5376, 0.1, normal)
    });
}

/// out[i] = out[i] + bias[src_offset + i], one f32 addition
fn bias_add(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let n = call.count("n")?;
    let out = call.floats("out", 0, n)?;
    let bias = call.floats("bias", call.count("src_offset")? * 4, n)?;
    exact(call, "out", out.iter().zip(&bias).map(|(o, b)| o + b))
}

fn bias_add_fill(d: &mut Draft, n: u32, offset: u32, [out, bias]: [Fill; 2]) {
    d.set_all(&[("n", n), ("src_offset", offset)]);
    let bias = bias.make(&mut d.rng, n as usize);
    let out = out.make(&mut d.rng, n as usize);
    d.read_floats("bias", offset as usize * 4, &bias);
    d.update("out", 0, &out);
}

fn bias_add_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    for n in SIZES {
        for (expert, offset) in [(0, 0), (3, 3 * n), (1, n + 5)] {
            cases.add(format!("n = {n}, expert {expert}, offset {offset}"), |d| {
                bias_add_fill(d, n, offset, [normal; 2]);
            });
        }
    }
    for (label, out, bias) in [
        ("cancelling", Fill::Equal(1.5), Fill::Equal(-1.5)),
        ("minus zeros", Fill::Equal(-0.0), Fill::Equal(-0.0)),
        ("overflow", Fill::Equal(3e38), Fill::Equal(2e38)),
        ("subnormals", Fill::Normal(1e-39), Fill::Normal(1e-40)),
        ("far apart", Fill::Normal(1e20), Fill::Normal(1e-20)),
        ("NaN in the bias", normal, Fill::Sprinkled(f32::NAN)),
        (
            "opposite infinities",
            Fill::Sprinkled(f32::INFINITY),
            Fill::Equal(f32::NEG_INFINITY),
        ),
    ] {
        cases.add(label, |d| bias_add_fill(d, 70, 9, [out, bias]));
    }
    cases.add("gpt-oss, expert 3", |d| {
        bias_add_fill(d, 2880, 3 * 2880, [normal; 2])
    });
    cases.heavy("expert 127 of 5760 rows", |d| {
        bias_add_fill(d, 5760, 127 * 5760, [normal; 2]);
    });
}

/// a[i] = a[i] * b[i], one f32 multiplication
fn mul_elementwise(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let n = call.count("n")?;
    let (a, b) = (call.floats("a", 0, n)?, call.floats("b", 0, n)?);
    exact(call, "a", a.iter().zip(&b).map(|(a, b)| a * b))
}

fn mul_elementwise_fill(d: &mut Draft, n: u32, fills: [Fill; 2]) {
    d.set("n", n);
    let [a, b] = fills.map(|fill| fill.make(&mut d.rng, n as usize));
    d.update("a", 0, &a);
    d.read_floats("b", 0, &b);
}

fn mul_elementwise_cases(cases: &mut Cases) {
    let normal = Fill::Normal(1.0);
    for n in SIZES {
        cases.add(format!("n = {n}"), |d| {
            mul_elementwise_fill(d, n, [normal; 2])
        });
    }
    for (label, a, b) in [
        ("zeros of both signs", Fill::Equal(-0.0), normal),
        ("overflow", Fill::Normal(1e20), Fill::Normal(1e20)),
        ("underflow", Fill::Normal(1e-20), Fill::Normal(1e-20)),
        ("subnormals", Fill::Normal(1e-39), Fill::Equal(0.7)),
        ("NaN", Fill::Sprinkled(f32::NAN), normal),
        ("infinity", normal, Fill::Sprinkled(f32::INFINITY)),
        (
            "infinity times zero",
            Fill::Sprinkled(f32::INFINITY),
            Fill::Equal(0.0),
        ),
    ] {
        cases.add(label, |d| mul_elementwise_fill(d, 77, [a, b]));
    }
    cases.add("squares", |d| {
        mul_elementwise_fill(d, 301, [normal; 2]);
        d.alias("b", "a");
    });
    cases.add("Gemma, hidden 2816", |d| {
        mul_elementwise_fill(d, 2816, [normal; 2])
    });
    cases.heavy("1024 tokens x 2816", |d| {
        mul_elementwise_fill(d, 1024 * 2816, [normal; 2]);
    });
}

/// q[h,d] = packed[h,0,d],  gate[h,d] = packed[h,1,d], bit for bit
fn deinterleave(call: &Call, heads: usize) -> Result<Vec<Expected>, OracleError> {
    let dim = call.count("head_dim")?;
    let packed = call.integers("packed", 0, 2 * heads * dim)?;
    let half = |part: usize| {
        let heads = packed.chunks_exact(2 * dim);
        let values = heads.flat_map(|head| &head[part * dim..(part + 1) * dim]);
        values.map(|&bits| Element::Bits(bits)).collect()
    };
    Ok(vec![
        Expected::floats(call.index("q")?, 0, half(0)),
        Expected::floats(call.index("gate")?, 0, half(1)),
    ])
}

/// `tokens` is None for the kernel of one token.
fn deinterleave_fill(d: &mut Draft, tokens: Option<u32>, heads: u32, dim: u32) {
    d.set_all(&[("head_dim", dim), ("n_heads", heads)]);
    if let Some(tokens) = tokens {
        d.set("n_tokens", tokens);
    }
    let packed = (d.rng).bytes(8 * (tokens.unwrap_or(1) * heads * dim) as usize);
    d.read("packed", 0, &packed);
    d.write("q");
    d.write("gate");
}

/// NaNs with payloads, quiet and signalling, and zeros and infinities of both signs.
const SPECIAL_BITS: [u32; 12] = [
    0x7fc0_0001,
    0xffc1_2345,
    0x7f80_0001,
    0x8000_0000,
    0,
    1,
    0x7fff_ffff,
    0xff80_0000,
    0x7f80_0000,
    0x8000_0001,
    0xffff_ffff,
    0x7fa0_0000,
];

fn deinterleave_cases(cases: &mut Cases) {
    for (heads, dim) in [
        (1, 1),
        (0, 4),
        (1, 2),
        (2, 1),
        (3, 3),
        (5, 7),
        (1, 63),
        (7, 64),
        (3, 65),
        (2, 127),
        (16, 128),
        (16, 256),
    ] {
        cases.add(format!("{heads} heads of {dim}, random bits"), |d| {
            deinterleave_fill(d, None, heads, dim);
        });
    }
    cases.add("NaN payloads and signed zeros", |d| {
        deinterleave_fill(d, None, 2, 3);
        d.patch("packed", 0, &integer_bytes(&SPECIAL_BITS));
    });
    cases.heavy("16 heads x 512 tokens of 256", |d| {
        deinterleave_fill(d, None, 16 * 512, 256);
    });
}

fn deinterleave_batched_cases(cases: &mut Cases) {
    for (tokens, heads, dim) in [
        (1, 1, 1),
        (0, 2, 4),
        (3, 0, 4),
        (2, 1, 1),
        (1, 3, 3),
        (3, 5, 7),
        (5, 1, 63),
        (2, 7, 64),
        (7, 3, 65),
        (33, 2, 3),
        (2, 2, 127),
        (1, 16, 256),
        (3, 16, 256),
    ] {
        cases.add(
            format!("{tokens} tokens, {heads} heads of {dim}, random bits"),
            |d| deinterleave_fill(d, Some(tokens), heads, dim),
        );
    }
    cases.add("NaN payloads and signed zeros", |d| {
        deinterleave_fill(d, Some(2), 1, 3);
        d.patch("packed", 0, &integer_bytes(&SPECIAL_BITS));
    });
    cases.heavy("512 tokens, 16 heads of 256", |d| {
        deinterleave_fill(d, Some(512), 16, 256);
    });
}
