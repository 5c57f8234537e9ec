//! Archives that were compiled elsewhere: accepted only if they were made from exactly these sources.

use std::path::{Path, PathBuf};

use cubin_format::{Archive, ArchiveError, Digest, Target};
use zinc_catalog::Catalog;

use crate::targets::Request;

/// Why a prebuilt archive is refused.
#[derive(Debug, thiserror::Error)]
pub enum PrebuiltError {
    /// It cannot be read or is damaged.
    #[error("the prebuilt archive {} cannot be used", path.display())]
    Archive {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ArchiveError,
    },
    /// It was made from other sources.
    #[error(
        "the prebuilt archive {} was made from sources with the hash {found}, these have {wanted}; \
         compile the kernels instead (tools/setup installs nvcc), or take the archive of this revision",
        path.display()
    )]
    SourceHash {
        /// The file.
        path: PathBuf,
        /// The hash of the sources here.
        wanted: Digest,
        /// The hash in the archive.
        found: Digest,
    },
    /// It lacks a kernel of the catalog, though its hash matches.
    #[error("the prebuilt archive {} has no kernel {kernel}", path.display())]
    MissingKernel {
        /// The file.
        path: PathBuf,
        /// The kernel.
        kernel: String,
    },
    /// It lacks an architecture that `ZINC_CUDA_ARCHS` names.
    #[error("the prebuilt archive {} has no {target} of kernel {kernel}, which ZINC_CUDA_ARCHS asks for", path.display())]
    MissingTarget {
        /// The file.
        path: PathBuf,
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
    },
}

/// Reads the archive at `path` and checks that it is whole, has every kernel and comes from sources with the hash `wanted`.
///
/// # Errors
/// Where any of that does not hold.
pub fn open(
    path: &Path,
    wanted: Digest,
    catalog: &Catalog,
    request: &Request,
) -> Result<Archive<'static>, PrebuiltError> {
    let refused = |source| PrebuiltError::Archive {
        path: path.to_path_buf(),
        source,
    };
    let archive = Archive::read(path).map_err(refused)?;
    let found = archive.metadata().source_hash;
    if found != wanted {
        return Err(PrebuiltError::SourceHash {
            path: path.to_path_buf(),
            wanted,
            found,
        });
    }
    for kernel in catalog.implemented() {
        let missing = |_| PrebuiltError::MissingKernel {
            path: path.to_path_buf(),
            kernel: kernel.name.clone(),
        };
        let entry = archive.kernel(&kernel.name).map_err(missing)?;
        if let Request::List(archs) = request {
            let absent = archs
                .iter()
                .map(|arch| arch.sass())
                .find(|target| entry.target(*target).is_err());
            if let Some(target) = absent {
                let (path, kernel) = (path.to_path_buf(), kernel.name.clone());
                return Err(PrebuiltError::MissingTarget {
                    path,
                    kernel,
                    target,
                });
            }
        }
    }
    archive
        .verify_all()
        .into_iter()
        .try_for_each(|checked| checked.result)
        .map_err(refused)?;
    Ok(archive)
}

/// The archives that were dropped into `cubins/`, sorted by name.
pub fn dropped(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root.join("cubins"))
        .into_iter()
        .flatten()
        .flatten();
    let mut paths: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "zca"))
        .collect();
    paths.sort();
    paths
}
