//! Contents of the buffers: random, never zeros, and the same on every run.

use std::ops::Range;
use std::sync::Arc;

use zinc_contract::Access;
use zinc_oracle::Rng;
use zinc_oracle::quant::{Flavor, Format};

use super::shape::{Fill, Row, RowBuffer};

/// Bytes that are drawn; longer buffers repeat them, each row of a matrix from another place on.
const DRAWN: usize = 4 << 20;
/// What a buffer holds that is only written: a NaN that is easy to recognise.
const POISON: u32 = 0x7fc0_a5a5;

/// Contents of one buffer: bytes that repeat up to its end.
#[derive(Debug, Clone)]
pub struct Content {
    /// Not empty; the last repetition may be cut.
    pub period: Arc<[u8]>,
    pub bytes: u64,
}

impl Content {
    /// The bytes of some ranges, one after another.
    pub fn view(&self, view: &[Range<u64>]) -> Vec<u8> {
        let mut out = Vec::with_capacity(view.iter().map(|r| (r.end - r.start) as usize).sum());
        for range in view {
            let mut at = range.start;
            while at < range.end {
                let inside = (at % self.period.len() as u64) as usize;
                let count = (range.end - at).min((self.period.len() - inside) as u64) as usize;
                out.extend_from_slice(&self.period[inside..inside + count]);
                at += count as u64;
            }
        }
        out
    }
}

/// Contents of a row's buffers: one set for every round of its routing, usually one.
pub fn contents(row: &Row) -> Vec<Vec<Content>> {
    let mut rng = Rng::from_names(&[row.kernel.name, &row.shape.label]);
    let rounds = row.buffers.iter().map(|buffer| match &buffer.fill {
        Fill::Rounds(rounds) => rounds.len(),
        _ => 1,
    });
    let rounds = rounds.max().unwrap_or(1);
    let first: Vec<Content> = row
        .buffers
        .iter()
        .map(|buffer| content(buffer, &mut rng))
        .collect();
    let round = |index: usize| {
        let mut set = first.clone();
        for (content, buffer) in set.iter_mut().zip(&row.buffers) {
            if let Fill::Rounds(rounds) = &buffer.fill {
                content.period = integers(&rounds[index]);
            }
        }
        set
    };
    (0..rounds).map(round).collect()
}

fn content(buffer: &RowBuffer, rng: &mut Rng) -> Content {
    let bytes = buffer.bytes as usize;
    // At least one unit, and an odd number of them, so that equal rows of a matrix are far apart.
    let units = |unit: usize| (bytes.div_ceil(unit)).clamp(1, (DRAWN / unit) | 1);
    let period: Arc<[u8]> = match &buffer.fill {
        Fill::Words(words) => integers(words),
        Fill::Rounds(rounds) => integers(&rounds[0]),
        Fill::Constant(value) => integers(&vec![value.to_bits(); units(4).min(1 << 14)]),
        Fill::Bytes => rng.bytes(units(1)).into(),
        Fill::Floats(low, high) => floats(units(4), || low + (high - low) * rng.unit() as f32),
        Fill::FactorsAndSums => {
            let pair = |_| {
                let factor = 0.005 + 0.015 * rng.unit() as f32;
                [factor, factor * rng.normal() * 400.0]
            };
            let pairs: Vec<[f32; 2]> = (0..units(8)).map(pair).collect();
            pairs
                .iter()
                .flatten()
                .flat_map(|v| v.to_le_bytes())
                .collect()
        }
        Fill::Blocks(format) => blocks(*format, units(format.bytes()), rng),
        Fill::Type if buffer.access == Access::Write => {
            integers(&vec![POISON; units(4).min(1 << 14)])
        }
        Fill::Type => match Format::from_dtype(buffer.dtype) {
            Some(Format::F32) | None => floats(units(4), || rng.normal()),
            Some(format) => blocks(format, units(format.bytes()), rng),
        },
    };
    Content {
        period,
        bytes: buffer.bytes,
    }
}

fn integers(words: &[u32]) -> Arc<[u8]> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn floats(count: usize, mut draw: impl FnMut() -> f32) -> Arc<[u8]> {
    (0..count).flat_map(|_| draw().to_le_bytes()).collect()
}

fn blocks(format: Format, count: usize, rng: &mut Rng) -> Arc<[u8]> {
    (0..count)
        .flat_map(|_| format.random_block(rng, Flavor::Plain))
        .collect()
}
