//! The table of all contracts.

use zinc_contract_types::arithmetic::*;
use zinc_contract_types::*;

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// The kernel with this name; the error suggests the most similar one.
pub fn kernel(name: &str) -> Result<&'static Kernel, ContractError> {
    match KERNELS.binary_search_by(|kernel| kernel.name.cmp(name)) {
        Ok(index) => Ok(&KERNELS[index]),
        Err(_) => Err(ContractError::UnknownKernel {
            name: name.to_owned(),
            nearest: nearest(name),
        }),
    }
}

/// The most similar kernel name, if one is similar at all.
fn nearest(name: &str) -> Option<&'static str> {
    let most = name.len() / 3 + 1;
    KERNELS
        .iter()
        .map(|kernel| (distance(name, kernel.name), kernel.name))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, name)| name)
}

/// Levenshtein distance in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
