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

    use cubin_format::{Arch, ImageKind, Suffix};
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
        // Beside the code for exactly one architecture that some kernels have in addition.
        let targets = |kernel: &cubin_format::KernelEntry| -> BTreeSet<_> {
            let rules = zinc_contract::kernel(&kernel.name).unwrap().launch.iter();
            let own = Vec::from_iter(rules.filter(|rule| rule.specific).map(|rule| rule.min_arch));
            let all: BTreeSet<_> = kernel.targets.iter().map(|entry| entry.target).collect();
            let is_own = |target: &cubin_format::Target| {
                let arch = target.arch;
                arch.suffix() == Suffix::A && own.contains(&arch.number())
            };
            let (own, mut general): (BTreeSet<_>, BTreeSet<_>) = all.into_iter().partition(is_own);
            for target in own {
                let plain = Arch::new(target.arch.number(), Suffix::None)
                    .unwrap()
                    .sass();
                if !general.contains(&plain) {
                    general.insert(target);
                }
            }
            general
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
