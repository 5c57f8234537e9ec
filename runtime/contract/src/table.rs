//! The table of all contracts.

use strsim::levenshtein;
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
        .map(|kernel| (levenshtein(name, kernel.name), kernel.name))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, name)| name)
}
