//! The embedded kernels and their typed launch functions.
//!
//! The build script compiles `kernels-cu` into one archive, which is part of every binary that uses this crate: at run time
//! there is no toolkit, no file and no network, only the driver.

pub use cubin_format::{Archive, ArchiveError};
pub use zinc_contract::{self, launch};
pub use zinc_runtime;

/// The archive with every kernel for every architecture; its format is that of [`Archive`].
pub static ARCHIVE_BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.zca"));

/// The C header with the push block and the buffer indices of each kernel, for hosts in C, C++ and Zig.
pub static C_HEADER: &str = include_str!(concat!(env!("OUT_DIR"), "/zinc_kernels.h"));

/// Opens the embedded archive: checks its index, and decompresses nothing.
///
/// # Errors
/// Where the binary was damaged: see [`ArchiveError`].
pub fn archive() -> Result<Archive<'static>, ArchiveError> {
    Archive::open(ARCHIVE_BYTES)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cubin_format::ImageKind;
    use zinc_contract::KERNELS;

    use super::*;

    #[test]
    fn embedded_archive_is_whole() {
        for image in archive().unwrap().verify_all() {
            let name = format!("{} {}", image.kernel, image.target);
            assert!(image.result.is_ok(), "{name}: {:?}", image.result);
        }
    }

    #[test]
    fn embedded_kernels_are_those_of_the_catalog() {
        let archive = archive().unwrap();
        let embedded: Vec<_> = archive
            .kernels()
            .iter()
            .map(|kernel| kernel.name.as_str())
            .collect();
        let implemented = KERNELS.iter().filter(|kernel| kernel.pending.is_none());
        assert_eq!(
            embedded,
            implemented.map(|kernel| kernel.name).collect::<Vec<_>>()
        );
        for kernel in KERNELS.iter().filter(|kernel| kernel.pending.is_none()) {
            let entry = archive.kernel(kernel.name).unwrap();
            assert_eq!(
                (entry.extended, entry.family.as_str()),
                (kernel.extended, kernel.family)
            );
        }
    }

    #[test]
    fn every_kernel_has_the_same_targets_with_ptx_for_later_gpus() {
        let archive = archive().unwrap();
        let targets = |kernel: &cubin_format::KernelEntry| -> BTreeSet<_> {
            kernel.targets.iter().map(|entry| entry.target).collect()
        };
        let first = targets(&archive.kernels()[0]);
        assert_eq!(
            first
                .iter()
                .filter(|target| target.kind == ImageKind::Ptx)
                .count(),
            1
        );
        for kernel in archive.kernels() {
            assert_eq!(targets(kernel), first, "{}", kernel.name);
            for entry in kernel
                .targets
                .iter()
                .filter(|entry| entry.target.kind == ImageKind::Sass)
            {
                assert!(
                    entry.resources.registers > 0,
                    "{} {}",
                    kernel.name,
                    entry.target
                );
            }
        }
    }
}

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
