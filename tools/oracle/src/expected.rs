//! What a dispatch has to leave in a buffer: regions with wanted values and tolerances.

use std::fmt;

/// The wanted final contents of one buffer; bytes outside the regions keep their initial value.
#[derive(Debug)]
pub struct Expected {
    /// binding position of the buffer
    pub buffer: usize,
    /// what is wanted where, in ascending order, without overlap
    pub regions: Vec<Region>,
}

/// A run of bytes of a buffer and what is wanted there.
#[derive(Debug)]
pub struct Region {
    /// first byte
    pub start: usize,
    /// the wanted contents
    pub want: Want,
}

/// The wanted contents of a region.
pub enum Want {
    /// consecutive f32 values
    Floats(Vec<Element>),
    /// these bytes
    Bytes(Vec<u8>),
    /// consecutive integers, each within `tolerance`
    Integers {
        /// how an integer is stored
        kind: Integer,
        /// the wanted values
        wanted: Vec<i64>,
        /// largest allowed difference of one value
        tolerance: i64,
    },
    /// consecutive u32 values, each equal to one of its choices
    Choices(Vec<Vec<u32>>),
    /// a rule that is none of the above
    Check(Check),
}

/// How an integer of [`Want::Integers`] is stored (little endian).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Integer {
    /// one unsigned byte
    U8,
    /// one signed byte
    I8,
    /// two unsigned bytes
    U16,
    /// four unsigned bytes
    U32,
}

impl Integer {
    /// Bytes of one value.
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 => 2,
            Self::U32 => 4,
        }
    }

    /// The value in `bytes`, which has the right length.
    pub(crate) fn load(self, bytes: &[u8]) -> i64 {
        match self {
            Self::U8 => i64::from(bytes[0]),
            Self::I8 => i64::from(bytes[0] as i8),
            Self::U16 => i64::from(u16::from_le_bytes([bytes[0], bytes[1]])),
            Self::U32 => i64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
        }
    }
}

/// One wanted f32 value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Element {
    /// At most `tolerance` away from `wanted`. The f32 nearest to `wanted` is always right. A NaN
    /// wants any NaN, an infinity (also of a finite value beyond the range of f32) the same infinity.
    Near {
        /// the value, not rounded to f32
        wanted: f64,
        /// largest allowed difference
        tolerance: f64,
    },
    /// This bit pattern.
    Bits(u32),
    /// This f32 bit for bit, the sign of a zero included; a NaN wants any NaN.
    Exact(f32),
    /// Any infinity or NaN: the contract leaves open which.
    NotFinite,
    /// Anything: the contract says nothing, for example where f32 intermediates overflow.
    Free,
}

impl Element {
    /// `wanted` within `tolerance`.
    pub fn near(wanted: f64, tolerance: f64) -> Self {
        Self::Near { wanted, tolerance }
    }

    /// `wanted` within `tolerance`; free if `magnitude`, the largest intermediate value that a
    /// conforming implementation may form, is finite but too large for f32.
    pub fn near_unless_overflow(wanted: f64, tolerance: f64, magnitude: f64) -> Self {
        if magnitude.is_finite() && magnitude > f64::from(f32::MAX) {
            Self::Free
        } else {
            Self::Near { wanted, tolerance }
        }
    }

    /// A value that satisfies the element.
    pub(crate) fn sample(self) -> f32 {
        match self {
            Self::Near { wanted, .. } => wanted as f32,
            Self::Bits(bits) => f32::from_bits(bits),
            Self::Exact(value) => value,
            Self::NotFinite => f32::NAN,
            Self::Free => 0.0,
        }
    }
}

/// One ulp of f32 at the magnitude of `value`.
pub(crate) fn ulp(value: f64) -> f64 {
    let magnitude = (value.abs() as f32).min(f32::MAX);
    if magnitude.is_nan() {
        return 0.0;
    }
    let next = f32::from_bits(magnitude.to_bits() + 1);
    if next.is_finite() {
        f64::from(next) - f64::from(magnitude)
    } else {
        f64::from(magnitude) - f64::from(f32::from_bits(magnitude.to_bits() - 1))
    }
}

/// What a custom check found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// values looked at
    pub compared: u64,
    /// values outside the contract
    pub mismatches: u64,
    /// largest absolute error
    pub max_abs_err: f64,
    /// largest quotient of error and tolerance
    pub max_err_over_tol: f64,
    /// the worst one: element index within the region, wanted, found
    pub worst: Option<(usize, String, String)>,
}

impl Outcome {
    /// Counts a value with an error of `error` where `tolerance` is allowed; `describe` gives wanted
    /// and found, and is asked only for the worst one.
    pub fn value(
        &mut self,
        index: usize,
        error: f64,
        tolerance: f64,
        describe: impl FnOnce() -> (String, String),
    ) {
        self.compared += 1;
        let ratio = if error == 0.0 { 0.0 } else { error / tolerance };
        // A NaN error compares false and is a mismatch too.
        let good = error <= tolerance;
        let ratio = if good { ratio } else { ratio.max(1.0) };
        let ratio = if ratio.is_nan() { f64::INFINITY } else { ratio };
        self.mismatches += u64::from(!good);
        self.max_abs_err = self
            .max_abs_err
            .max(if error.is_nan() { f64::INFINITY } else { error });
        if ratio > self.max_err_over_tol || (!good && self.mismatches == 1) {
            self.max_err_over_tol = self.max_err_over_tol.max(ratio);
            let (wanted, found) = describe();
            self.worst = Some((index, wanted, found));
        }
    }

    /// Counts a value that is either right or wrong.
    pub fn exact(&mut self, index: usize, good: bool, describe: impl FnOnce() -> (String, String)) {
        self.value(index, if good { 0.0 } else { f64::INFINITY }, 0.0, describe);
    }
}

/// Judges the final bytes of a region; the second argument has all buffers.
type Judge = Box<dyn Fn(&[u8], &[&[u8]]) -> Outcome + Send + Sync>;

/// A rule over the bytes of a region, and a content that satisfies it.
pub struct Check {
    /// the rule in words
    pub rule: &'static str,
    /// contents that satisfy the rule; its length is the length of the region
    pub sample: Vec<u8>,
    pub(crate) judge: Judge,
}

impl Check {
    /// A rule `judge` over as many bytes as `sample` has.
    pub fn new(
        rule: &'static str,
        sample: Vec<u8>,
        judge: impl Fn(&[u8], &[&[u8]]) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        Self {
            rule,
            sample,
            judge: Box::new(judge),
        }
    }
}

impl fmt::Debug for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Floats(elements) => f.debug_tuple("Floats").field(elements).finish(),
            Self::Bytes(bytes) => f.debug_tuple("Bytes").field(bytes).finish(),
            Self::Integers {
                kind,
                wanted,
                tolerance,
            } => (f.debug_struct("Integers").field("kind", kind))
                .field("wanted", wanted)
                .field("tolerance", tolerance)
                .finish(),
            Self::Choices(choices) => f.debug_tuple("Choices").field(choices).finish(),
            Self::Check(check) => f.debug_tuple("Check").field(&check.rule).finish(),
        }
    }
}

impl Want {
    /// Length of the region in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Floats(elements) => elements.len() * 4,
            Self::Bytes(bytes) => bytes.len(),
            Self::Integers { kind, wanted, .. } => wanted.len() * kind.bytes(),
            Self::Choices(choices) => choices.len() * 4,
            Self::Check(check) => check.sample.len(),
        }
    }

    /// Contents that satisfy the region.
    fn sample(&self) -> Vec<u8> {
        match self {
            Self::Floats(elements) => elements
                .iter()
                .flat_map(|e| match e {
                    Element::Bits(bits) => bits.to_le_bytes(),
                    other => other.sample().to_le_bytes(),
                })
                .collect(),
            Self::Bytes(bytes) => bytes.clone(),
            Self::Integers { kind, wanted, .. } => wanted
                .iter()
                .flat_map(|w| w.to_le_bytes()[..kind.bytes()].to_vec())
                .collect(),
            Self::Choices(choices) => choices
                .iter()
                .flat_map(|c| c.first().copied().unwrap_or(0).to_le_bytes())
                .collect(),
            Self::Check(check) => check.sample.clone(),
        }
    }
}

impl Expected {
    /// Nothing in the buffer may change.
    pub fn unchanged(buffer: usize) -> Self {
        Self {
            buffer,
            regions: Vec::new(),
        }
    }

    /// f32 values from byte `start` on.
    pub(crate) fn floats(buffer: usize, start: usize, elements: Vec<Element>) -> Self {
        Self {
            buffer,
            regions: vec![Region {
                start,
                want: Want::Floats(elements),
            }],
        }
    }

    /// The final contents that the reference would produce: a buffer with the initial contents
    /// `initial` in which every region holds the wanted values, rounded to f32.
    pub fn sample(&self, initial: &[u8]) -> Vec<u8> {
        let mut bytes = initial.to_vec();
        for region in &self.regions {
            let content = region.want.sample();
            if let Some(place) = bytes.get_mut(region.start..region.start + content.len()) {
                place.copy_from_slice(&content);
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ulp_is_the_distance_to_the_next_f32() {
        assert_eq!(ulp(1.0), f64::from(f32::EPSILON));
        assert_eq!(ulp(-1.5), f64::from(f32::EPSILON));
        assert_eq!(ulp(0.0), f64::from(f32::from_bits(1)));
        assert!(ulp(f64::from(f32::MAX)) > 1e31 && ulp(f64::INFINITY) > 1e31);
    }

    #[test]
    fn outcome_counts_nan_errors_as_mismatches() {
        let mut outcome = Outcome::default();
        outcome.value(3, f64::NAN, 1.0, || ("1".into(), "NaN".into()));
        assert_eq!((outcome.compared, outcome.mismatches), (1, 1));
        assert_eq!(outcome.worst.map(|w| w.0), Some(3));
    }
}
