//! What can be wrong with a request to the oracle.

use zinc_contract_types::{ContractError, EvalError};

/// Why no expected result, case or comparison could be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OracleError {
    /// The kernel is in the catalog, but the oracle does not know it (yet).
    #[error("{kernel}: the oracle has no reference of this kernel")]
    NoReference {
        /// kernel name
        kernel: String,
    },
    /// The dispatch violates the contract: words, number or size of buffers, preconditions.
    #[error(transparent)]
    Contract(#[from] ContractError),
    /// The contents of a buffer are outside the contract.
    #[error("{kernel}: buffer {buffer}: {what}: wanted {wanted}, found {found}")]
    Contents {
        /// kernel name
        kernel: &'static str,
        /// buffer name
        buffer: &'static str,
        /// which value is meant
        what: String,
        /// what the contract allows
        wanted: String,
        /// the value
        found: String,
    },
    /// The oracle reads more of a buffer than the contract's byte count covers.
    #[error("{kernel}: buffer {buffer}: the oracle wants {wanted} bytes, found {found}")]
    OutOfBounds {
        /// kernel name
        kernel: &'static str,
        /// buffer name
        buffer: &'static str,
        /// end of the range
        wanted: u64,
        /// bytes of the buffer
        found: u64,
    },
    /// The oracle asks for a field that the catalog does not have.
    #[error("{kernel}: the oracle asks for the field {field}, which the catalog does not have")]
    NoField {
        /// kernel name
        kernel: &'static str,
        /// field asked for
        field: String,
    },
    /// The oracle asks for a buffer that the catalog does not have.
    #[error("{kernel}: the oracle asks for the buffer {buffer}, which the catalog does not have")]
    NoBuffer {
        /// kernel name
        kernel: &'static str,
        /// buffer asked for
        buffer: String,
    },
    /// A byte count of the contract has no value for the fields of a case.
    #[error("{kernel}: {expression}: {source}")]
    Eval {
        /// kernel name
        kernel: &'static str,
        /// the expression as the catalog states it
        expression: &'static str,
        /// what went wrong
        source: EvalError,
    },
    /// A case does not describe a legal dispatch.
    #[error("{kernel}: case {label}: {source}")]
    Case {
        /// kernel name
        kernel: &'static str,
        /// label of the case
        label: String,
        /// what is wrong with it
        source: Box<OracleError>,
    },
}
