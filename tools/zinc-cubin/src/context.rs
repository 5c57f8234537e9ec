//! What every command works with: the archive of kernels and the output's form.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cubin_format::{Arch, Archive, KernelEntry, Target, TargetEntry};

use crate::cli::{Filter, Global};
use crate::failure::Failure;
use crate::output;

/// The opened archive and the form of the output.
pub struct Context {
    /// The kernels' images.
    pub archive: Archive<'static>,
    /// Where they come from, for messages: "embedded" or the file.
    pub archive_name: String,
    /// The file that the arguments name.
    pub archive_path: Option<PathBuf>,
    /// Print JSON.
    pub json: bool,
    /// Print colour.
    pub colour: bool,
}

impl Context {
    /// Opens the embedded archive, or the file that the arguments name.
    ///
    /// # Errors
    /// An archive that is damaged or cannot be read.
    pub fn open(global: &Global) -> Result<Self, Failure> {
        let archive = match &global.archive {
            Some(path) => Archive::read(path)?,
            None => zinc_cuda::archive()?,
        };
        Ok(Self {
            archive,
            archive_name: archive_name(global.archive.as_deref()),
            archive_path: global.archive.clone(),
            json: global.json,
            colour: output::colour(global.color),
        })
    }

    /// The kernels and their images that a filter selects; kernels without a selected image are left out.
    ///
    /// # Errors
    /// An unknown family, an architecture that cannot be parsed or of which the archive has no image, or a filter that
    /// selects nothing.
    pub fn select(&self, filter: &Filter, extended: bool) -> Result<Vec<Selected<'_>>, Failure> {
        check_families(&filter.family)?;
        let arches = filter
            .arch
            .iter()
            .map(|text| text.parse::<Arch>())
            .collect::<Result<Vec<_>, _>>()?;
        self.check_arches(&arches)?;
        let selected: Vec<_> = self
            .archive
            .kernels()
            .iter()
            .filter(|kernel| extended || !kernel.extended)
            .filter(|kernel| matches(&filter.name, |text| kernel.name.contains(text)))
            .filter(|kernel| matches(&filter.family, |family| kernel.family == family))
            .map(|kernel| Selected {
                kernel,
                targets: kernel
                    .targets
                    .iter()
                    .filter(|entry| arches.is_empty() || arches.contains(&entry.target.arch))
                    .collect(),
            })
            .filter(|selected| !selected.targets.is_empty())
            .collect();
        if selected.is_empty() {
            return Err(Failure::input(format!(
                "no kernel of the {} archive matches; it has {} kernels",
                self.archive_name,
                self.archive.kernels().len()
            )));
        }
        Ok(selected)
    }

    /// Refuses an architecture of which the archive has no image.
    fn check_arches(&self, arches: &[Arch]) -> Result<(), Failure> {
        let entries = self.archive.kernels().iter();
        let embedded: BTreeSet<Target> = entries
            .flat_map(|kernel| kernel.targets.iter().map(|entry| entry.target))
            .collect();
        let is_embedded = |arch: &Arch| embedded.iter().any(|target| target.arch == *arch);
        match arches.iter().find(|arch| !is_embedded(arch)) {
            Some(arch) => Err(Failure::input(format!(
                "no image for architecture {arch} in the {} archive; it has: {}",
                self.archive_name,
                Vec::from_iter(embedded.iter().map(Target::to_string)).join(", ")
            ))),
            None => Ok(()),
        }
    }
}

/// A kernel and those of its images that were asked for.
pub struct Selected<'a> {
    /// The kernel.
    pub kernel: &'a KernelEntry,
    /// Its images.
    pub targets: Vec<&'a TargetEntry>,
}

/// Refuses a family that no kernel belongs to.
///
/// # Errors
/// Names the families that exist.
pub fn check_families(families: &[String]) -> Result<(), Failure> {
    let mut known: Vec<&str> = zinc_contract::KERNELS
        .iter()
        .map(|kernel| kernel.family)
        .collect();
    known.sort_unstable();
    known.dedup();
    match families
        .iter()
        .find(|family| !known.contains(&family.as_str()))
    {
        Some(unknown) => Err(Failure::input(format!(
            "unknown family {unknown:?}; there are: {}",
            known.join(", ")
        ))),
        None => Ok(()),
    }
}

fn matches(wanted: &[String], holds: impl Fn(&str) -> bool) -> bool {
    wanted.is_empty() || wanted.iter().any(|text| holds(text))
}

fn archive_name(path: Option<&Path>) -> String {
    path.map_or_else(|| "embedded".to_owned(), |path| path.display().to_string())
}
