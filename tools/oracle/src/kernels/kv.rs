//! Writers of the KV cache.

use super::Entry;
use crate::case::{Cases, Draft, integer_bytes};
use crate::{Call, Expected, OracleError, Region, Want};

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "kv_cache_write",
        reference: kv_cache_write,
        cases: kv_cache_write_cases,
        random: |d| {
            let (dim, offset) = (d.rng.below(150), d.rng.below(200));
            kv_cache_write_fill(d, dim, offset);
        },
    },
    Entry {
        name: "kv_cache_write_batched",
        reference: kv_cache_write_batched,
        cases: kv_cache_write_batched_cases,
        random: |d| {
            let batch = Batch {
                dim: d.rng.below(40),
                tokens: d.rng.below(40),
                page: d.rng.between(1, 20),
                base: d.rng.below(50),
            };
            kv_cache_write_batched_fill(d, batch);
        },
    },
];

/// The physical pages of `count` logical pages from `first` on, all below n_pages.
pub(super) fn physical_pages(
    call: &Call,
    first: usize,
    count: usize,
) -> Result<Vec<usize>, OracleError> {
    let limit = call.count("n_pages")?;
    let ids = call.integers("page_table", first, count)?;
    let mut ids = ids.into_iter().enumerate();
    ids.try_fold(Vec::new(), |mut pages, (i, id)| {
        if id as usize >= limit {
            let (what, wanted) = (
                format!("entry {}", first + i),
                format!("a page below {limit}"),
            );
            return Err(call.contents("page_table", what, wanted, id));
        }
        pages.push(id as usize);
        Ok(pages)
    })
}

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

/// Row t of k_src goes to the slot of token base_token + t in k_dst, v likewise, bit for bit
fn kv_cache_write_batched(call: &Call) -> Result<Vec<Expected>, OracleError> {
    let (dim, tokens) = (call.count("kv_dim")?, call.count("n_tokens")?);
    let (page, base) = (call.count("page_size")?, call.count("base_token")?);
    let first = base / page;
    let count = if tokens == 0 {
        0
    } else {
        (base + tokens).div_ceil(page) - first
    };
    let pages = physical_pages(call, first, count)?;
    for (i, id) in pages.iter().enumerate() {
        if pages[..i].contains(id) {
            let what = format!("entry {}", first + i);
            return Err(call.contents("page_table", what, "a page of its own".to_owned(), id));
        }
    }
    let copy = |from: &str, to: &str| -> Result<Expected, OracleError> {
        let regions = (0..tokens).map(|t| {
            let slot = pages[(base + t) / page - first] * page + (base + t) % page;
            Ok(Region {
                start: slot * dim * 4,
                want: Want::Bytes(call.slice(from, t * dim * 4, dim * 4)?.to_vec()),
            })
        });
        Ok(Expected {
            buffer: call.index(to)?,
            regions: regions.collect::<Result<_, OracleError>>()?,
        })
    };
    Ok(vec![copy("k_src", "k_dst")?, copy("v_src", "v_dst")?])
}

/// What a case of kv_cache_write_batched is made of.
#[derive(Clone, Copy)]
struct Batch {
    dim: u32,
    tokens: u32,
    page: u32,
    base: u32,
}

fn kv_cache_write_batched_fill(d: &mut Draft, batch: Batch) {
    let Batch {
        dim,
        tokens,
        page,
        base,
    } = batch;
    let first = base / page;
    let used = (base + tokens).div_ceil(page).saturating_sub(first);
    let pages = used + 2;
    d.set_all(&[("kv_dim", dim), ("n_tokens", tokens), ("page_size", page)]);
    d.set_all(&[("base_token", base), ("n_pages", pages)]);
    for source in ["k_src", "v_src"] {
        let bits = d.rng.bytes((tokens * dim) as usize * 4);
        d.read(source, 0, &bits);
    }
    d.write("k_dst");
    d.write("v_dst");
    // Pages of earlier tokens are never looked up.
    let table = d.rng.permutation(pages)[..used as usize].to_vec();
    let table = if tokens == 0 { Vec::new() } else { table };
    d.read("page_table", first as usize * 4, &integer_bytes(&table));
}

fn kv_cache_write_batched_cases(cases: &mut Cases) {
    for (dim, tokens, page, base) in [
        (1, 1, 1, 0),
        (4, 0, 16, 0),
        (4, 0, 16, 16),
        (0, 3, 2, 1),
        (3, 5, 1, 2),
        (5, 7, 2, 3),
        (64, 15, 16, 0),
        (64, 16, 16, 0),
        (64, 17, 16, 0),
        (65, 1, 16, 15),
        (65, 2, 16, 15),
        (63, 33, 16, 31),
        (127, 9, 5, 4),
        (128, 1, 16, 4095),
        (128, 3, 16, 4095),
        (257, 4, 3, 100),
        (512, 20, 16, 7),
        (1, 100, 64, 63),
    ] {
        cases.add(
            format!("{tokens} tokens of {dim} from token {base}, pages of {page}"),
            |d| {
                let batch = Batch {
                    dim,
                    tokens,
                    page,
                    base,
                };
                kv_cache_write_batched_fill(d, batch);
            },
        );
    }
    let some = Batch {
        dim: 24,
        tokens: 11,
        page: 4,
        base: 6,
    };
    cases.add("v_src is k_src", |d| {
        kv_cache_write_batched_fill(d, some);
        d.alias("v_src", "k_src");
    });
    cases.add("the last page of the pool comes first", |d| {
        kv_cache_write_batched_fill(d, some);
        let descending: Vec<u32> = (0..4).map(|i| 5 - i).collect();
        d.patch("page_table", 4, &integer_bytes(&descending));
    });
    for (label, dim, base) in [("Qwen3.6", 512, 1000), ("gpt-oss", 512, 4090)] {
        cases.heavy(format!("{label}, 512 tokens from {base}"), |d| {
            let batch = Batch {
                dim,
                tokens: 512,
                page: 16,
                base,
            };
            kv_cache_write_batched_fill(d, batch);
        });
    }
}
