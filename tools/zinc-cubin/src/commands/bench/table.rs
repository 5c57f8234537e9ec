//! The measured shapes of every kernel: those of Qwen3.6-35B-A3B in decode and prefill, larger ones that show what a kernel
//! can do, and a small one for the emulator.

use std::sync::Arc;

use zinc_contract::Kernel;
use zinc_oracle::quant::Format;

use super::shape::{Checked, Fill, Part, Shape, View, from, pieces};

mod dense;
mod experts;
mod vectors;

/// Hidden size of the model.
const HIDDEN: u32 = 2048;
/// Intermediate size of an expert.
const INTERMEDIATE: u32 = 512;
/// Experts of a layer, and those that a token uses.
const EXPERTS: u32 = 256;
const USED: u32 = 8;
/// Rows of the LM head.
const VOCABULARY: u32 = 248_320;
/// Tokens of a prefill.
const PROMPT: u32 = 512;

/// The rows of a kernel; none for a name that is not in the catalog.
pub fn shapes(kernel: &Kernel) -> Vec<Shape> {
    let mut rows = Vec::new();
    for family in [dense::shapes, experts::shapes, vectors::shapes] {
        rows.extend(family(kernel.name));
    }
    rows
}

/// Small shapes whose checks look at parts of the result.
#[cfg(test)]
pub fn with_parts() -> Vec<Shape> {
    let mut rows = Vec::new();
    for kernel in zinc_contract::KERNELS
        .iter()
        .filter(|k| k.pending.is_none())
    {
        for family in [dense::with_parts, experts::with_parts, vectors::with_parts] {
            rows.extend(family(kernel.name));
        }
    }
    rows
}

/// Three places of `count` things out of `all`: the first, some in the middle and the last. `step` divides every place.
fn places(all: u32, count: u32, step: u32) -> Vec<u32> {
    let middle = all / 2 / step * step;
    let mut places = vec![0, middle.min(all - count), all - count];
    places.dedup();
    places
}

/// So many tokens, in words.
fn tokens_text(count: u32) -> String {
    match count {
        1 => "1 token".to_owned(),
        _ => format!("{count} tokens"),
    }
}

/// Bytes of `count` 4-byte values.
fn words(count: u32) -> u64 {
    u64::from(count) * 4
}
