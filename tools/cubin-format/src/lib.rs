//! The archive of compiled kernels and the reader of cubin ELF files.
//!
//! Nothing here knows CUDA beyond file formats: the archive holds names, targets and bytes, and the
//! readers never run what they read. Every input is untrusted, and every malformed one is an error
//! value.

pub mod arch;
pub mod archive;
pub mod cubin;
pub mod digest;
pub mod fatbin;
#[cfg(test)]
mod test_support;

pub use arch::{Arch, ArchError, Capability, ImageKind, NoTarget, Suffix, Target, choose};
pub use archive::{
    Archive, ArchiveBuilder, ArchiveError, Checked, KernelEntry, Metadata, NewKernel, NewTarget,
    Payload, Resources, TargetEntry,
};
pub use cubin::{AbiMismatch, Cubin, CubinError, Entry, Parameter, check_abi};
pub use digest::Digest;
pub use fatbin::{FatbinError, Image};
