//! Plain element-wise kernels.

use super::Entry;
use crate::case::{Cases, Draft, Fill};
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
        name: "deinterleave",
        reference: deinterleave,
        cases: deinterleave_cases,
        random: |d| {
            let (heads, dim) = (d.rng.below(6), d.rng.between(1, 70));
            deinterleave_fill(d, heads, dim);
        },
    },
];

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

/// q[h,d] = packed[h,0,d],  gate[h,d] = packed[h,1,d], bit for bit
fn deinterleave(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (dim, heads) = (call.count("head_dim")?, call.count("n_heads")?);
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

fn deinterleave_fill(d: &mut Draft, heads: u32, dim: u32) {
    d.set_all(&[("head_dim", dim), ("n_heads", heads)]);
    let packed = d.rng.bytes(8 * (heads * dim) as usize);
    d.read("packed", 0, &packed);
    d.write("q");
    d.write("gate");
}

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
            deinterleave_fill(d, heads, dim);
        });
    }
    cases.add("NaN payloads and signed zeros", |d| {
        deinterleave_fill(d, 2, 3);
        let bits: [u32; 12] = [
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
        let bytes: Vec<u8> = bits.iter().flat_map(|b| b.to_le_bytes()).collect();
        d.patch("packed", 0, &bytes);
    });
    cases.heavy("16 heads x 512 tokens of 256", |d| {
        deinterleave_fill(d, 16 * 512, 256);
    });
}
