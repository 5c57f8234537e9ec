//! Plain, slow references of the kernel contracts, the table of verification cases, the fixture
//! format and the comparison of results.
//!
//! Every reference is written from the contract in the catalog and shares nothing with the kernels:
//! it computes in `f64` or exact integers and states, per element, how far a result may be from it.
//! [`expect`] gives that for one dispatch, [`cases`] the dispatches that a kernel is verified with,
//! [`compare`] judges what came out, and [`fixture`] keeps a dispatch and its result in a file.
//!
//! A new kernel needs one entry in the table of its family: its reference, its cases and its random shapes.

pub mod call;
pub mod case;
mod compare;
mod error;
mod expected;

pub mod fixture;
mod kernels;
pub mod quant;
mod rng;
pub mod unit;

pub use call::Call;
pub use case::{Case, CaseBuffer};
pub use compare::{BufferReport, Report, Worst, compare};
pub use error::OracleError;
pub use expected::{Check, Element, Expected, Integer, Outcome, Region, Want};
pub use kernels::{has_reference, kernels};
pub use rng::Rng;

use zinc_contract_types::{Access, Kernel};

/// The wanted final contents of every buffer that the kernel writes, for one dispatch.
///
/// `words` is the whole push struct (push fields, launch counts, specialization values) and
/// `buffers` the initial contents in binding order; they may be longer than the contract asks for.
/// Every byte outside the returned regions has to keep its initial value.
///
/// # Errors
/// A kernel without reference, a wrong number of words or buffers, a buffer that is too small, a
/// violated precondition, and contents that the contract excludes (an expert id out of range).
pub fn expect<B: AsRef<[u8]>>(
    kernel: &'static Kernel,
    words: &[u32],
    buffers: &[B],
) -> Result<Vec<Expected>, OracleError> {
    let buffers: Vec<&[u8]> = buffers.iter().map(AsRef::as_ref).collect();
    let call = Call::new(kernel, words, &buffers)?;
    let mut expected = (kernels::entry(kernel.name)?.reference)(&call)?;
    for (index, buffer) in kernel.buffers.iter().enumerate() {
        let written = buffer.access != Access::Read;
        if written && !expected.iter().any(|e| e.buffer == index) {
            expected.push(Expected::unchanged(index));
        }
    }
    expected.sort_by_key(|e| e.buffer);
    for one in &mut expected {
        one.regions.sort_by_key(|r| r.start);
    }
    Ok(expected)
}

/// The dispatches that `kernel` is verified with; the same ones on every run.
///
/// # Errors
/// A kernel without cases, and a case that does not fit the catalog (a field or buffer was renamed).
pub fn cases(kernel: &'static Kernel) -> Result<Vec<Case>, OracleError> {
    case::Cases::collect(kernel, true, kernels::entry(kernel.name)?.cases)
}

/// The [`cases`] without the heavy ones, which take long on an emulator.
///
/// # Errors
/// As [`cases`].
pub fn light_cases(kernel: &'static Kernel) -> Result<Vec<Case>, OracleError> {
    case::Cases::collect(kernel, false, kernels::entry(kernel.name)?.cases)
}

/// A legal dispatch of `kernel` of small random shape and contents drawn from `rng`.
///
/// # Errors
/// As [`cases`].
pub fn random_case(kernel: &'static Kernel, rng: &mut Rng) -> Result<Case, OracleError> {
    let mut draft = case::Draft::seeded(kernel, "random", rng.next_u64());
    (kernels::entry(kernel.name)?.random)(&mut draft);
    draft.finish()
}
