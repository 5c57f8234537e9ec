//! The element types of tensors and the sizes of their blocks.

use std::fmt;

macro_rules! tensor_types {
    ($($number:literal $type:ident $name:literal $elements:literal $bytes:literal $doc:literal;)*) => {
        /// The type of a tensor's elements. Quantized types store elements in blocks.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum TensorType {
            $(#[doc = $doc] $type,)*
        }

        impl TensorType {
            /// Every known type, by number.
            pub const ALL: &'static [Self] = &[$(Self::$type),*];

            /// The type with this number in a file.
            pub fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$type),)*
                    _ => None,
                }
            }

            /// The number in a file.
            pub fn number(self) -> u32 {
                match self {
                    $(Self::$type => $number,)*
                }
            }

            /// ggml's name, such as `q4_K`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$type => $name,)*
                }
            }

            /// Elements in a block.
            pub fn block_elements(self) -> u64 {
                match self {
                    $(Self::$type => $elements,)*
                }
            }

            /// Bytes of a block.
            pub fn block_bytes(self) -> u64 {
                match self {
                    $(Self::$type => $bytes,)*
                }
            }
        }
    };
}

tensor_types! {
    0 F32 "f32" 1 4 "IEEE binary32.";
    1 F16 "f16" 1 2 "IEEE binary16.";
    2 Q4_0 "q4_0" 32 18 "4 bits, scale.";
    3 Q4_1 "q4_1" 32 20 "4 bits, scale and minimum.";
    6 Q5_0 "q5_0" 32 22 "5 bits, scale.";
    7 Q5_1 "q5_1" 32 24 "5 bits, scale and minimum.";
    8 Q8_0 "q8_0" 32 34 "8 bits, scale.";
    9 Q8_1 "q8_1" 32 36 "8 bits, scale and sum; an activation format.";
    10 Q2K "q2_K" 256 84 "2 bits, super-blocks.";
    11 Q3K "q3_K" 256 110 "3 bits, super-blocks.";
    12 Q4K "q4_K" 256 144 "4 bits, super-blocks.";
    13 Q5K "q5_K" 256 176 "5 bits, super-blocks.";
    14 Q6K "q6_K" 256 210 "6 bits, super-blocks.";
    15 Q8K "q8_K" 256 292 "8 bits, super-blocks; an activation format.";
    16 Iq2Xxs "iq2_xxs" 256 66 "2.06 bits, codebook.";
    17 Iq2Xs "iq2_xs" 256 74 "2.31 bits, codebook.";
    18 Iq3Xxs "iq3_xxs" 256 98 "3.06 bits, codebook.";
    19 Iq1S "iq1_s" 256 50 "1.56 bits, codebook.";
    20 Iq4Nl "iq4_nl" 32 18 "4 bits, non-linear.";
    21 Iq3S "iq3_s" 256 110 "3.44 bits, codebook.";
    22 Iq2S "iq2_s" 256 82 "2.56 bits, codebook.";
    23 Iq4Xs "iq4_xs" 256 136 "4.25 bits, non-linear, super-blocks.";
    24 I8 "i8" 1 1 "8-bit signed integer.";
    25 I16 "i16" 1 2 "16-bit signed integer.";
    26 I32 "i32" 1 4 "32-bit signed integer.";
    27 I64 "i64" 1 8 "64-bit signed integer.";
    28 F64 "f64" 1 8 "IEEE binary64.";
    29 Iq1M "iq1_m" 256 56 "1.75 bits, codebook.";
    30 Bf16 "bf16" 1 2 "The upper half of IEEE binary32.";
    34 Tq1_0 "tq1_0" 256 54 "Ternary, 1.69 bits.";
    35 Tq2_0 "tq2_0" 256 66 "Ternary, 2.06 bits.";
    39 Mxfp4 "mxfp4" 32 17 "4-bit floats, shared power of two.";
    40 Nvfp4 "nvfp4" 64 36 "4-bit floats, shared 8-bit float.";
}

impl TensorType {
    /// Bytes of a row of `elements` elements; none where the row is no whole number of blocks, or
    /// the size does not fit in 64 bits.
    pub fn row_bytes(self, elements: u64) -> Option<u64> {
        if !elements.is_multiple_of(self.block_elements()) {
            return None;
        }
        (elements / self.block_elements()).checked_mul(self.block_bytes())
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
