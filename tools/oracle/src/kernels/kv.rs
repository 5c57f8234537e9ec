//! Writers of the KV cache.

use super::Entry;
use crate::case::{Cases, Draft};
use crate::{Call, Expected, OracleError, Region, Want};

pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: "kv_cache_write",
    reference: kv_cache_write,
    cases: kv_cache_write_cases,
    random: |d| {
        let (dim, offset) = (d.rng.below(150), d.rng.below(200));
        kv_cache_write_fill(d, dim, offset);
    },
}];

/// k_dst[dst_offset + i] = k_src[i], v likewise, bit for bit
fn kv_cache_write(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (dim, offset) = (call.count("kv_dim")?, call.count("dst_offset")?);
    let copy = |from: &str, to: &str| -> Result<Expected, OracleError> {
        Ok(Expected {
            buffer: call.index(to)?,
            regions: vec![Region {
                start: offset * 4,
                want: Want::Bytes(call.slice(from, 0, dim * 4)?.to_vec()),
            }],
        })
    };
    Ok(vec![copy("k_src", "k_dst")?, copy("v_src", "v_dst")?])
}

fn kv_cache_write_fill(d: &mut Draft, dim: u32, offset: u32) {
    d.set_all(&[("kv_dim", dim), ("dst_offset", offset)]);
    for source in ["k_src", "v_src"] {
        let bits = d.rng.bytes(dim as usize * 4);
        d.read(source, 0, &bits);
    }
    d.write("k_dst");
    d.write("v_dst");
}

fn kv_cache_write_cases(cases: &mut Cases) {
    for (dim, slot) in [
        (1, 0),
        (0, 0),
        (1, 3),
        (3, 5),
        (63, 1),
        (64, 0),
        (65, 2),
        (128, 17),
        (255, 3),
        (256, 1),
        (257, 1),
        (512, 31),
        (2048, 16),
    ] {
        cases.add(format!("{dim} values into slot {slot}"), |d| {
            kv_cache_write_fill(d, dim, slot * dim);
        });
    }
    cases.add("no values at an offset", |d| kv_cache_write_fill(d, 0, 7));
    cases.add("offset that is no multiple of the slot", |d| {
        kv_cache_write_fill(d, 66, 5)
    });
    cases.add("v_src is k_src", |d| {
        kv_cache_write_fill(d, 96, 192);
        d.alias("v_src", "k_src");
    });
    cases.heavy("1024 values into slot 4095", |d| {
        kv_cache_write_fill(d, 1024, 4095 * 1024);
    });
}
