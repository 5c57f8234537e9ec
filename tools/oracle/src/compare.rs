//! The comparison of what a dispatch left in its buffers with what was wanted.

use std::fmt;

use serde::Serialize;
use zinc_contract_types::Kernel;

use crate::call::words_of;
use crate::expected::{Element, Expected, Integer, Outcome, Want};

/// The judgement of one dispatch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// kernel name
    pub kernel: String,
    /// label of the case, or what the caller called it
    pub label: String,
    /// one entry per compared buffer
    pub buffers: Vec<BufferReport>,
}

/// The judgement of one buffer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BufferReport {
    /// buffer name
    pub name: String,
    /// values looked at inside the regions
    pub compared: u64,
    /// values outside their tolerance, and changed bytes outside the regions
    pub mismatches: u64,
    /// largest absolute error of a value; infinite where a NaN or an infinity was wrong
    pub max_abs_err: f64,
    /// largest quotient of error and tolerance; at most 1 if all is well
    pub max_err_over_tol: f64,
    /// the value with the largest quotient
    pub worst: Option<Worst>,
    /// true if nothing is wrong
    pub ok: bool,
}

/// The worst value of a buffer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Worst {
    /// position in the buffer, in elements of the region's type (bytes outside the regions)
    pub index: usize,
    /// what was wanted
    pub wanted: String,
    /// what was there
    pub found: String,
}

impl Report {
    /// True if every buffer is as wanted.
    pub fn ok(&self) -> bool {
        self.buffers.iter().all(|b| b.ok)
    }

    /// Largest quotient of error and tolerance of all buffers.
    pub fn max_err_over_tol(&self) -> f64 {
        self.buffers
            .iter()
            .map(|b| b.max_err_over_tol)
            .fold(0.0, f64::max)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.ok() { "ok" } else { "FAILED" };
        write!(f, "{} [{}] {verdict}", self.kernel, self.label)?;
        for buffer in &self.buffers {
            write!(f, "; {buffer}")?;
        }
        Ok(())
    }
}

impl fmt::Display for BufferReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} of {} wrong, max error {:.3e} = {:.3} of tolerance",
            self.name, self.mismatches, self.compared, self.max_abs_err, self.max_err_over_tol
        )?;
        match &self.worst {
            Some(worst) if !self.ok => write!(
                f,
                " at [{}]: wanted {}, found {}",
                worst.index, worst.wanted, worst.found
            ),
            _ => Ok(()),
        }
    }
}

/// Judges the final contents `outputs` of all buffers of `kernel`, in binding order.
///
/// `initial` are the contents before the dispatch, with which the bytes outside the regions of
/// `expected` are compared. Buffers that `expected` does not list are not looked at.
pub fn compare<I: AsRef<[u8]>, O: AsRef<[u8]>>(
    kernel: &Kernel,
    label: &str,
    initial: &[I],
    expected: &[Expected],
    outputs: &[O],
) -> Report {
    let all: Vec<&[u8]> = outputs.iter().map(AsRef::as_ref).collect();
    let buffers = expected.iter().map(|one| {
        let before = initial.get(one.buffer).map_or(&[][..], AsRef::as_ref);
        let found = all.get(one.buffer).copied().unwrap_or(&[]);
        let name = kernel.buffers.get(one.buffer).map_or("?", |b| b.name);
        compare_buffer(name, before, one, found, &all)
    });
    Report {
        kernel: kernel.name.to_owned(),
        label: label.to_owned(),
        buffers: buffers.collect(),
    }
}

/// Judges one buffer.
fn compare_buffer(
    name: &str,
    before: &[u8],
    expected: &Expected,
    found: &[u8],
    all: &[&[u8]],
) -> BufferReport {
    let mut total = Outcome::default();
    if found.len() != before.len() {
        total.exact(found.len(), false, || {
            let wanted = format!("{} bytes", before.len());
            (wanted, format!("{} bytes", found.len()))
        });
    }
    let mut outside = 0..0;
    let mut changed = 0;
    for region in &expected.regions {
        outside.end = region.start;
        changed += compare_outside(before, found, outside.clone(), &mut total);
        let len = region.want.bytes();
        outside.start = region.start + len;
        match found.get(region.start..region.start + len) {
            Some(bytes) => merge(&mut total, judge(&region.want, bytes, all), region),
            None => total.exact(region.start, false, || {
                let wanted = format!("{len} bytes from byte {}", region.start);
                (wanted, format!("{} bytes", found.len()))
            }),
        }
    }
    outside.end = before.len().min(found.len()).max(outside.start);
    changed += compare_outside(before, found, outside, &mut total);
    BufferReport {
        name: name.to_owned(),
        compared: total.compared,
        mismatches: total.mismatches + changed,
        max_abs_err: total.max_abs_err,
        max_err_over_tol: total.max_err_over_tol,
        ok: total.mismatches == 0 && changed == 0,
        worst: total.worst.map(|(index, wanted, found)| Worst {
            index,
            wanted,
            found,
        }),
    }
}

/// Adds the outcome of a region to the total of its buffer.
fn merge(total: &mut Outcome, one: Outcome, region: &crate::Region) {
    let base = region.start / region.want.element_bytes();
    total.compared += one.compared;
    total.mismatches += one.mismatches;
    total.max_abs_err = total.max_abs_err.max(one.max_abs_err);
    if one.max_err_over_tol > total.max_err_over_tol || total.worst.is_none() {
        total.max_err_over_tol = total.max_err_over_tol.max(one.max_err_over_tol);
        total.worst = one
            .worst
            .map(|(index, wanted, found)| (base + index, wanted, found));
    }
}

/// Counts the bytes of `range` that differ from their initial value; the first one becomes the worst
/// value of the buffer.
fn compare_outside(
    before: &[u8],
    found: &[u8],
    range: std::ops::Range<usize>,
    total: &mut Outcome,
) -> u64 {
    let (Some(before), Some(found)) = (before.get(range.clone()), found.get(range.clone())) else {
        return 0;
    };
    if before == found {
        return 0;
    }
    let differs = || (0..before.len()).filter(|&i| before[i] != found[i]);
    if let Some(first) = differs().next() {
        total.max_err_over_tol = f64::INFINITY;
        total.worst = Some((
            range.start + first,
            format!("unchanged byte {:#04x}", before[first]),
            format!("{:#04x}", found[first]),
        ));
    }
    differs().count() as u64
}

impl Want {
    /// Bytes of one element, for indices in reports.
    fn element_bytes(&self) -> usize {
        match self {
            Self::Floats(_) | Self::Choices(_) => 4,
            Self::Bytes(_) => 1,
            Self::Integers { kind, .. } => kind.bytes(),
            Self::Check(_) => 4,
        }
    }
}

/// Judges the final bytes of one region.
fn judge(want: &Want, bytes: &[u8], all: &[&[u8]]) -> Outcome {
    let mut outcome = Outcome::default();
    match want {
        Want::Floats(elements) => {
            for (index, (element, bits)) in elements.iter().zip(words_of(bytes)).enumerate() {
                judge_float(&mut outcome, index, *element, bits);
            }
        }
        Want::Bytes(wanted) => {
            for (index, (wanted, found)) in wanted.iter().zip(bytes).enumerate() {
                outcome.exact(index, wanted == found, || {
                    (format!("{wanted:#04x}"), format!("{found:#04x}"))
                });
            }
        }
        Want::Integers {
            kind,
            wanted,
            tolerance,
        } => judge_integers(&mut outcome, *kind, wanted, *tolerance, bytes),
        Want::Choices(choices) => {
            for (index, (choices, found)) in choices.iter().zip(words_of(bytes)).enumerate() {
                outcome.exact(index, choices.contains(&found), || {
                    (format!("one of {choices:?}"), found.to_string())
                });
            }
        }
        Want::Check(check) => outcome = (check.judge)(bytes, all),
    }
    outcome
}

/// Judges one f32.
fn judge_float(outcome: &mut Outcome, index: usize, element: Element, bits: u32) {
    let found = f32::from_bits(bits);
    match element {
        Element::Free => outcome.compared += 1,
        Element::NotFinite => outcome.exact(index, !found.is_finite(), || {
            ("an infinity or NaN".to_owned(), found.to_string())
        }),
        Element::Bits(wanted) => outcome.exact(index, wanted == bits, || {
            (format!("bits {wanted:#010x}"), format!("bits {bits:#010x}"))
        }),
        Element::Exact(wanted) => {
            let good = wanted.to_bits() == bits || (wanted.is_nan() && found.is_nan());
            let describe = || {
                let wanted = format!("exactly {wanted:e} ({:#010x})", wanted.to_bits());
                (wanted, format!("{found:e} ({bits:#010x})"))
            };
            if good || !wanted.is_finite() || !found.is_finite() {
                outcome.exact(index, good, describe);
            } else {
                // Neighbours and zeros of the other sign are wrong, but the error stays readable.
                let error = (f64::from(wanted) - f64::from(found)).abs();
                outcome.exact(index, false, describe);
                if outcome.max_abs_err.is_infinite() && outcome.mismatches == 1 {
                    outcome.max_abs_err = error;
                }
            }
        }
        Element::Near { wanted, tolerance } => {
            let describe = || {
                let wanted = format!("{wanted:e} +- {tolerance:.1e}");
                (wanted, format!("{found:e}"))
            };
            let nearest = wanted as f32;
            let good = (wanted.is_nan() && found.is_nan())
                || nearest == found
                || (nearest.is_finite()
                    && found.is_infinite()
                    && rounds_up(wanted, tolerance, found));
            if good || !wanted.is_finite() {
                outcome.exact(index, good, describe);
            } else {
                let error = (wanted - f64::from(found)).abs();
                outcome.value(index, error, tolerance, describe);
            }
        }
    }
}

/// True if a value within `tolerance` of `wanted` rounds to the infinity `found`.
fn rounds_up(wanted: f64, tolerance: f64, found: f32) -> bool {
    let reach = wanted.abs() + tolerance;
    (reach as f32).is_infinite() && wanted.is_sign_negative() == found.is_sign_negative()
}

/// Judges integers; values within the tolerance count with their difference.
fn judge_integers(
    outcome: &mut Outcome,
    kind: Integer,
    wanted: &[i64],
    tolerance: i64,
    bytes: &[u8],
) {
    for (index, (wanted, found)) in wanted
        .iter()
        .zip(bytes.chunks_exact(kind.bytes()))
        .enumerate()
    {
        let found = kind.load(found);
        let error = wanted.abs_diff(found) as f64;
        outcome.value(index, error, tolerance as f64, || {
            (format!("{wanted} +- {tolerance}"), found.to_string())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Region;

    /// Judges one f32 and returns whether it is accepted.
    fn accepts(element: Element, found: f32) -> bool {
        let mut outcome = Outcome::default();
        judge_float(&mut outcome, 0, element, found.to_bits());
        assert_eq!(outcome.compared, 1);
        outcome.mismatches == 0
    }

    #[test]
    fn near_accepts_the_tolerance_and_not_more() {
        assert!(accepts(Element::near(1.0, 0.25), 1.25));
        assert!(!accepts(Element::near(1.0, 0.25), 1.26));
        assert!(!accepts(Element::near(1.0, 0.25), f32::NAN));
        assert!(!accepts(Element::near(1.0, 0.25), f32::INFINITY));
        assert!(accepts(Element::near(0.1, 0.0), 0.1));
        assert!(!accepts(Element::near(0.1, 0.0), 0.100_000_01));
    }

    #[test]
    fn near_matches_nan_by_nan_and_infinity_by_the_same_infinity() {
        assert!(accepts(Element::near(f64::NAN, 0.0), -f32::NAN));
        assert!(!accepts(Element::near(f64::NAN, 1e9), 0.0));
        assert!(accepts(Element::near(f64::INFINITY, 0.0), f32::INFINITY));
        assert!(!accepts(
            Element::near(f64::INFINITY, 0.0),
            f32::NEG_INFINITY
        ));
        assert!(!accepts(Element::near(f64::NEG_INFINITY, 0.0), f32::MIN));
        assert!(accepts(Element::near(-1e300, 0.0), f32::NEG_INFINITY));
        assert!(accepts(Element::near(3.402e38, 1e36), f32::INFINITY));
        assert!(!accepts(Element::near(3.402e38, 1e36), f32::NEG_INFINITY));
        assert!(!accepts(Element::near(1e38, 1e36), f32::INFINITY));
    }

    #[test]
    fn exact_tells_signed_zeros_apart_and_bits_tell_nans_apart() {
        assert!(accepts(Element::Exact(-0.0), -0.0));
        assert!(!accepts(Element::Exact(-0.0), 0.0));
        assert!(accepts(
            Element::Exact(f32::NAN),
            f32::from_bits(0x7fc0_0001)
        ));
        assert!(!accepts(
            Element::Bits(0x7fc0_0000),
            f32::from_bits(0x7fc0_0001)
        ));
        assert!(accepts(Element::NotFinite, f32::NAN));
        assert!(!accepts(Element::NotFinite, f32::MAX));
        assert!(accepts(Element::Free, f32::NAN));
    }

    #[test]
    fn a_changed_byte_outside_the_regions_is_found() {
        let expected = Expected {
            buffer: 0,
            regions: vec![Region {
                start: 4,
                want: Want::Bytes(vec![7, 7]),
            }],
        };
        let before = [1; 9];
        let good = expected.sample(&before);
        let report = compare_buffer("y", &before, &expected, &good, &[]);
        assert!(report.ok && report.compared == 2, "{report}");
        for index in [0, 3, 6, 8] {
            let mut bad = good.clone();
            bad[index] = 2;
            let report = compare_buffer("y", &before, &expected, &bad, &[]);
            assert!(!report.ok && report.mismatches == 1, "{report}");
            assert_eq!(report.worst.map(|w| w.index), Some(index));
        }
        let mut bad = good.clone();
        bad[5] = 8;
        let report = compare_buffer("y", &before, &expected, &bad, &[]);
        assert_eq!(report.worst.map(|w| w.index), Some(5));
    }

    #[test]
    fn a_short_output_is_an_error_and_no_panic() {
        let expected = Expected::floats(0, 4, vec![Element::near(1.0, 0.0); 2]);
        for len in 0..12 {
            let report = compare_buffer("y", &[0; 12], &expected, &vec![0; len], &[]);
            assert!(!report.ok, "{len}");
        }
    }

    #[test]
    fn integers_are_signed_where_they_are_stored_so() {
        let mut outcome = Outcome::default();
        judge_integers(&mut outcome, Integer::I8, &[0, 127], 1, &[0xff, 0x80]);
        assert_eq!(outcome.mismatches, 1);
        assert_eq!(outcome.worst.map(|w| w.0), Some(1));
    }
}
