//! The block formats of weights and activations: their values in `f64`, and random blocks.
//!
//! Layouts are those of GGML, little endian; the activation format [`Format::Q8_1`] is this project's
//! own (quants first, then the two f16 factors).

use half::f16;

use crate::Rng;

/// How the elements of a matrix row are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the formats")]
pub enum Format {
    F32,
    F16,
    Q8_0,
    Q5_0,
    Q5_1,
    Q4K,
    Q5K,
    Q6K,
    Mxfp4,
    Q8_1,
}

/// What a random block is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    /// random quants, factors such that the values are around 1
    Plain,
    /// all bits zero
    Zero,
    /// all quant bits set, factor 0.5
    Ones,
    /// random quants, the factors negative
    Negative,
    /// random quants, the factors subnormal f16 values
    Subnormal,
    /// random quants, the factors zero
    NoScale,
    /// random quants, the factors a few thousand
    Large,
}

impl Flavor {
    /// Every flavor.
    pub const ALL: [Self; 7] = [
        Self::Plain,
        Self::Zero,
        Self::Ones,
        Self::Negative,
        Self::Subnormal,
        Self::NoScale,
        Self::Large,
    ];
}

/// Value of the f16 at byte `at`.
fn half_at(block: &[u8], at: usize) -> f64 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f64()
}

/// Six-bit scale and minimum of sub-block `s` of a Q4_K or Q5_K block with the scale bytes `bytes`.
fn scale_and_minimum(bytes: &[u8], s: usize) -> (f64, f64) {
    let (scale, minimum) = if s < 4 {
        (bytes[s] & 63, bytes[s + 4] & 63)
    } else {
        (
            (bytes[s + 4] & 15) | (bytes[s - 4] >> 6) << 4,
            (bytes[s + 4] >> 4) | (bytes[s] >> 6) << 4,
        )
    };
    (f64::from(scale), f64::from(minimum))
}

/// Values of the 16 codes of MXFP4 times 2 (the scale is halved).
const MXFP4_VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

impl Format {
    /// The format with the catalog's dtype name.
    pub fn from_dtype(dtype: &str) -> Option<Self> {
        Some(match dtype {
            "f32" => Self::F32,
            "f16" => Self::F16,
            "q8_0" => Self::Q8_0,
            "q5_0" => Self::Q5_0,
            "q5_1" => Self::Q5_1,
            "q4_k" => Self::Q4K,
            "q5_k" => Self::Q5K,
            "q6_k" => Self::Q6K,
            "mxfp4" => Self::Mxfp4,
            "q8_1" => Self::Q8_1,
            _ => return None,
        })
    }

    /// The catalog's dtype name.
    pub fn dtype(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
            Self::Q4K => "q4_k",
            Self::Q5K => "q5_k",
            Self::Q6K => "q6_k",
            Self::Mxfp4 => "mxfp4",
            Self::Q8_1 => "q8_1",
        }
    }

    /// Elements of a block.
    pub fn elements(self) -> usize {
        match self {
            Self::F32 | Self::F16 => 1,
            Self::Q8_0 | Self::Q5_0 | Self::Q5_1 | Self::Mxfp4 | Self::Q8_1 => 32,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Bytes of a block.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
            Self::Q8_0 => 34,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
            Self::Mxfp4 => 17,
            Self::Q8_1 => 36,
        }
    }

    /// Bytes of a row of `k` elements.
    pub fn row_bytes(self, k: usize) -> usize {
        k / self.elements() * self.bytes()
    }

    /// Byte positions of the f16 factors of a block.
    pub fn factors(self) -> &'static [usize] {
        match self {
            Self::F32 | Self::Mxfp4 => &[],
            Self::F16 | Self::Q8_0 | Self::Q5_0 => &[0],
            Self::Q5_1 | Self::Q4K | Self::Q5K => &[0, 2],
            Self::Q6K => &[208],
            Self::Q8_1 => &[32],
        }
    }

    /// Decodes a block: the value of every element, and the magnitude that the contracts' bounds count
    /// for it, which is the sum of the absolute values of the terms that make up the value:
    /// |scale part| + |minimum part| where a format has a minimum, |d| * (q + 16) for Q5_0.
    ///
    /// # Panics
    /// If `block`, `values` or `magnitudes` is shorter than one block.
    pub fn decode(self, block: &[u8], values: &mut [f64], magnitudes: &mut [f64]) {
        let mut put = |e: usize, value: f64, magnitude: f64| {
            values[e] = value;
            magnitudes[e] = magnitude.abs();
        };
        match self {
            Self::F32 => {
                let value = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
                put(0, f64::from(value), f64::from(value));
            }
            Self::F16 => put(0, half_at(block, 0), half_at(block, 0)),
            Self::Q5_0 | Self::Q5_1 => {
                let (high, low) = if self == Self::Q5_0 { (2, 6) } else { (4, 8) };
                let d = half_at(block, 0);
                for e in 0..32 {
                    let nibble = if e < 16 {
                        block[low + e] & 15
                    } else {
                        block[low + e - 16] >> 4
                    };
                    let fifth = block[high + e / 8] >> (e % 8) & 1;
                    let q = f64::from(nibble | fifth << 4);
                    if self == Self::Q5_0 {
                        put(e, d * (q - 16.0), d * (q + 16.0));
                    } else {
                        let m = half_at(block, 2);
                        put(e, d * q + m, (d * q).abs() + m.abs());
                    }
                }
            }
            Self::Mxfp4 => {
                let scale = f64::from(i32::from(block[0]) - 128).exp2();
                for e in 0..32 {
                    let code = if e < 16 {
                        block[1 + e] & 15
                    } else {
                        block[1 + e - 16] >> 4
                    };
                    let value = f64::from(MXFP4_VALUES[code as usize]) * scale;
                    put(e, value, value);
                }
            }
            Self::Q8_0 | Self::Q4K | Self::Q5K | Self::Q6K | Self::Q8_1 => {
                let (elements, group) = (self.elements(), self.group());
                let (mut quants, mut factors) = ([0; 256], [(0.0, 0.0); 16]);
                let (quants, factors) = (&mut quants[..elements], &mut factors[..elements / group]);
                self.split(block, quants, factors);
                for (e, q) in quants.iter().enumerate() {
                    let (scale, minimum) = factors[e / group];
                    let scaled = scale * f64::from(*q);
                    put(e, scaled - minimum, scaled.abs() + minimum.abs());
                }
            }
        }
    }

    /// Elements that share the factors of [`Format::split`].
    pub fn group(self) -> usize {
        match self {
            Self::F32 | Self::F16 => 1,
            Self::Q6K => 16,
            _ => 32,
        }
    }

    /// Splits a block of a format of integer products into quants and, per group, a scale and a minimum:
    /// an element is scale * quant - minimum.
    ///
    /// # Panics
    /// If the format is none of Q8_0, Q4_K, Q5_K, Q6_K and Q8_1, or a slice is too short.
    pub fn split(self, block: &[u8], quants: &mut [i32], factors: &mut [(f64, f64)]) {
        match self {
            Self::Q8_0 | Self::Q8_1 => {
                let (factor, first) = if self == Self::Q8_0 { (0, 2) } else { (32, 0) };
                for (quant, byte) in quants.iter_mut().zip(&block[first..first + 32]) {
                    *quant = i32::from(*byte as i8);
                }
                factors[0] = (half_at(block, factor), 0.0);
            }
            Self::Q4K | Self::Q5K => {
                let (d, dmin) = (half_at(block, 0), half_at(block, 2));
                for (s, factor) in factors.iter_mut().enumerate() {
                    let (scale, minimum) = scale_and_minimum(&block[4..16], s);
                    *factor = (d * scale, dmin * minimum);
                }
                let low = if self == Self::Q4K { 16 } else { 48 };
                for (e, quant) in quants.iter_mut().enumerate() {
                    let (s, i) = (e / 32, e % 32);
                    let byte = block[low + 32 * (s / 2) + i];
                    let mut q = if s % 2 == 0 { byte & 15 } else { byte >> 4 };
                    if self == Self::Q5K {
                        q |= (block[16 + i] >> s & 1) << 4;
                    }
                    *quant = i32::from(q);
                }
            }
            Self::Q6K => {
                let d = half_at(block, 208);
                for (j, factor) in factors.iter_mut().enumerate() {
                    *factor = (d * f64::from(block[192 + j] as i8), 0.0);
                }
                for (e, quant) in quants.iter_mut().enumerate() {
                    let (h, p, l) = (e / 128, e % 128 / 32, e % 32);
                    let byte = block[64 * h + 32 * (p % 2) + l];
                    let low = if p < 2 { byte & 15 } else { byte >> 4 };
                    let high = block[128 + 32 * h + l] >> (2 * p) & 3;
                    *quant = i32::from(low | high << 4) - 32;
                }
            }
            _ => unreachable!("{self:?} is not a format of integer products"),
        }
    }

    /// The values of consecutive blocks, rounded to f32.
    pub fn dequantize(self, blocks: &[u8]) -> Vec<f32> {
        let (mut values, mut magnitudes) = (vec![0.0; self.elements()], vec![0.0; self.elements()]);
        let mut all = Vec::with_capacity(blocks.len() / self.bytes() * self.elements());
        for block in blocks.chunks_exact(self.bytes()) {
            self.decode(block, &mut values, &mut magnitudes);
            all.extend(values.iter().map(|&v| v as f32));
        }
        all
    }

    /// True if a factor (f32 or f16) of `block` is a NaN.
    pub fn has_nan_factor(self, block: &[u8]) -> bool {
        match self {
            Self::F32 => f32::from_le_bytes([block[0], block[1], block[2], block[3]]).is_nan(),
            _ => self.factors().iter().any(|&at| half_at(block, at).is_nan()),
        }
    }

    /// A random block. [`Flavor::Plain`] blocks have values of magnitude around 1.
    pub fn random_block(self, rng: &mut Rng, flavor: Flavor) -> Vec<u8> {
        let mut block = match flavor {
            Flavor::Zero => return vec![0; self.bytes()],
            Flavor::Ones => vec![0xff; self.bytes()],
            _ => rng.bytes(self.bytes()),
        };
        if self == Self::F32 {
            let plain = rng.normal();
            let value = match flavor {
                Flavor::Plain => plain,
                Flavor::Negative => -plain.abs(),
                Flavor::Subnormal => plain * 1e-39,
                Flavor::Large => plain * 3e4,
                Flavor::Ones => 0.5,
                Flavor::Zero | Flavor::NoScale => 0.0,
            };
            return value.to_le_bytes().to_vec();
        }
        if self == Self::Mxfp4 {
            // 2^(e - 128), with values up to 12 times that.
            block[0] = match flavor {
                Flavor::Subnormal | Flavor::NoScale => rng.below(3) as u8,
                Flavor::Large => 138,
                _ => rng.between(122, 128) as u8,
            };
            return block;
        }
        let range = self.quant_range();
        for &at in self.factors() {
            let plain = (0.2 + rng.unit()) as f32 * if rng.flip() { 1.0 } else { -1.0 } / range;
            let factor = match flavor {
                Flavor::Plain | Flavor::Zero => plain,
                Flavor::Ones => 0.5,
                Flavor::Negative => -plain.abs(),
                Flavor::Subnormal => plain.signum() * (1.0 + 60.0 * rng.unit() as f32) * 5.96e-8,
                Flavor::NoScale => 0.0,
                Flavor::Large => plain.signum() * (2000.0 + rng.uniform(500.0)),
            };
            block[at..at + 2].copy_from_slice(&f16::from_f32(factor).to_le_bytes());
        }
        if self == Self::Q8_1 {
            let sum: i32 = block[..32].iter().map(|&q| i32::from(q as i8)).sum();
            let s = f16::from_f64(half_at(&block, 32) * f64::from(sum));
            block[34..36].copy_from_slice(&s.to_le_bytes());
        }
        block
    }

    /// Largest magnitude of a quant times its inner scale, by which factors are divided.
    fn quant_range(self) -> f32 {
        match self {
            Self::F32 | Self::F16 | Self::Mxfp4 => 1.0,
            Self::Q8_0 | Self::Q8_1 => 128.0,
            Self::Q5_0 => 16.0,
            Self::Q5_1 => 31.0,
            Self::Q4K => 15.0 * 63.0,
            Self::Q5K => 31.0 * 63.0,
            Self::Q6K => 32.0 * 128.0,
        }
    }

    /// `count` random blocks: plain ones, or with `edges` every third one of another flavor.
    pub fn random_blocks(self, rng: &mut Rng, count: usize, edges: bool) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count * self.bytes());
        for index in 0..count {
            let flavor = if edges && index % 3 == 2 {
                Flavor::ALL[1 + index / 3 % (Flavor::ALL.len() - 1)]
            } else {
                Flavor::Plain
            };
            bytes.extend(self.random_block(rng, flavor));
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats whose blocks hold quants.
    const QUANTS: [Format; 8] = [
        Format::Q8_0,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q4K,
        Format::Q5K,
        Format::Q6K,
        Format::Mxfp4,
        Format::Q8_1,
    ];

    #[test]
    fn random_blocks_have_the_promised_size_and_finite_values() {
        let mut rng = Rng::new(7);
        for format in QUANTS {
            for flavor in Flavor::ALL {
                let block = format.random_block(&mut rng, flavor);
                assert_eq!(block.len(), format.bytes(), "{format:?} {flavor:?}");
                let values = format.dequantize(&block);
                assert_eq!(values.len(), format.elements());
                assert!(
                    values.iter().all(|v| v.is_finite()),
                    "{format:?} {flavor:?}"
                );
                let largest = values.iter().fold(0.0_f32, |a, v| a.max(v.abs()));
                match flavor {
                    Flavor::Plain => assert!((0.01..20.0).contains(&largest), "{format:?}"),
                    Flavor::NoScale if format != Format::Mxfp4 => assert_eq!(largest, 0.0),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn magnitudes_bound_the_values() {
        let mut rng = Rng::new(8);
        for format in QUANTS {
            let block = format.random_block(&mut rng, Flavor::Plain);
            let (mut values, mut magnitudes) = ([0.0; 256], [0.0; 256]);
            format.decode(&block, &mut values, &mut magnitudes);
            let mut pairs = values.iter().zip(magnitudes);
            assert!(pairs.all(|(v, m)| v.abs() <= m), "{format:?}");
        }
    }

    #[test]
    fn dtype_names_round_trip() {
        for format in QUANTS.into_iter().chain([Format::F32, Format::F16]) {
            assert_eq!(Format::from_dtype(format.dtype()), Some(format));
        }
        assert_eq!(Format::from_dtype("u32"), None);
    }
}
