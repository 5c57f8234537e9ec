//! The table of references: one module per family, one entry per kernel.

/// The entry of a kernel whose reference, cases and random shapes are methods of one constant.
macro_rules! entry {
    ($name:literal, $kernel:ident) => {
        $crate::kernels::Entry {
            name: $name,
            reference: |call| $kernel.reference(call),
            cases: |cases| $kernel.cases(cases),
            random: |draft| $kernel.random(draft),
        }
    };
}

mod attention;
mod dmmv;
mod dmmv_fused;
mod dmmv_merge;
mod dmmv_moe;
mod dmmv_moe_cols;
mod dmmv_moe_fused;
mod elementwise;
mod extended;
mod extended_mm_id;
mod gemm;
mod kv;
mod moe;
mod mul_mm;
mod mul_mm_f16;
mod mul_mm_int;
mod mul_mm_requant;
mod norm_act;
mod quantize;
mod rope;
mod ssm;
mod utility;

use crate::case::{Cases, Draft};
use crate::{Call, Expected, OracleError};

/// What the oracle knows about one kernel.
pub(crate) struct Entry {
    /// kernel name
    pub(crate) name: &'static str,
    /// the wanted results of a checked call
    pub(crate) reference: fn(&Call) -> Result<Vec<Expected>, OracleError>,
    /// adds the verification cases
    pub(crate) cases: fn(&mut Cases),
    /// completes a draft with a small random shape
    pub(crate) random: fn(&mut Draft),
}

/// All families.
const FAMILIES: &[&[Entry]] = &[
    attention::ENTRIES,
    dmmv::ENTRIES,
    dmmv_fused::ENTRIES,
    dmmv_merge::ENTRIES,
    dmmv_moe::ENTRIES,
    dmmv_moe_cols::ENTRIES,
    dmmv_moe_fused::ENTRIES,
    elementwise::ENTRIES,
    extended::ENTRIES,
    extended_mm_id::ENTRIES,
    kv::ENTRIES,
    moe::ENTRIES,
    mul_mm::ENTRIES,
    mul_mm_f16::ENTRIES,
    mul_mm_int::ENTRIES,
    mul_mm_requant::ENTRIES,
    norm_act::ENTRIES,
    quantize::ENTRIES,
    rope::ENTRIES,
    ssm::ENTRIES,
    utility::ENTRIES,
];

/// Names of the kernels that have a reference, cases and random shapes.
pub fn kernels() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().copied().flatten().map(|e| e.name)
}

/// True if the oracle knows the kernel.
pub fn has_reference(name: &str) -> bool {
    kernels().any(|k| k == name)
}

/// The entry of a kernel.
pub(crate) fn entry(name: &str) -> Result<&'static Entry, OracleError> {
    let mut all = FAMILIES.iter().copied().flatten();
    all.find(|e| e.name == name)
        .ok_or_else(|| OracleError::NoReference {
            kernel: name.to_owned(),
        })
}
