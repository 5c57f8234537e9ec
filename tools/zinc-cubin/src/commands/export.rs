//! `zinc-cubin export`: images, fatbins, PTX, the archive and the C header as files.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::Context as _;
use cubin_format::{ImageKind, fatbin};
use serde::Serialize;

use crate::cli::{Export, ExportKind};
use crate::context::{Context, Selected};
use crate::failure::{Failure, Outcome};
use crate::output;

/// Name of the exported archive.
const ARCHIVE_FILE: &str = "zinc-cuda.zca";
/// The exported C headers: the push blocks, and the C interface.
const HEADERS: [(&str, &str); 2] = [
    ("zinc_kernels.h", zinc_cuda::C_HEADER),
    (
        "zinc_cuda.h",
        include_str!("../../../../cubins/capi/include/zinc_cuda.h"),
    ),
];

#[derive(Serialize)]
struct Report {
    folder: String,
    files: Vec<Written>,
}

#[derive(Serialize)]
struct Written {
    file: String,
    bytes: usize,
}

/// Writes what was asked for; every image is checked against its hash first.
pub fn run(context: &Context, arguments: &Export) -> Outcome {
    let wants = |kind| arguments.what.is_empty() || arguments.what.contains(&kind);
    let selected = context.select(&arguments.filter, true)?;
    let mut files = Files::plan(&arguments.folder);
    for Selected { kernel, targets } in &selected {
        let mut images = Vec::new();
        for entry in targets {
            let bytes = context.archive.image(&kernel.name, entry.target)?;
            match entry.target.kind {
                ImageKind::Sass if wants(ExportKind::Cubin) => {
                    files.add(
                        format!("{}.sm_{}.cubin", kernel.name, entry.target.arch),
                        bytes.clone(),
                    );
                }
                ImageKind::Ptx if wants(ExportKind::Ptx) => {
                    files.add(
                        format!("{}.{}.ptx", kernel.name, entry.target),
                        bytes.clone(),
                    );
                }
                _ => {}
            }
            images.push((entry.target, bytes));
        }
        if wants(ExportKind::Fatbin) {
            let images: Vec<_> = images
                .iter()
                .map(|(target, bytes)| fatbin::Image {
                    target: *target,
                    bytes,
                })
                .collect();
            files.add(format!("{}.fatbin", kernel.name), fatbin::write(&images)?);
        }
    }
    if wants(ExportKind::Archive) {
        files.add(ARCHIVE_FILE.to_owned(), context.archive.bytes().to_vec());
    }
    if wants(ExportKind::Header) {
        for (name, text) in HEADERS {
            files.add(name.to_owned(), text.as_bytes().to_vec());
        }
    }
    let report = files.write(arguments.force)?;
    if context.json {
        return output::json(&report);
    }
    let bytes: usize = report.files.iter().map(|file| file.bytes).sum();
    output::text(&format!(
        "{} files, {} written to {}\n",
        report.files.len(),
        output::bytes(bytes as u64),
        report.folder
    ))
}

/// Files to write: all are ready, and none stands in the way, before the first is written.
struct Files<'a> {
    folder: &'a Path,
    files: Vec<(String, Vec<u8>)>,
}

impl<'a> Files<'a> {
    fn plan(folder: &'a Path) -> Self {
        Self {
            folder,
            files: Vec::new(),
        }
    }

    fn add(&mut self, name: String, bytes: Vec<u8>) {
        self.files.push((name, bytes));
    }

    fn write(self, force: bool) -> Result<Report, Failure> {
        if self.files.is_empty() {
            return Err(Failure::input(
                "nothing to export: no selected image is of the kind asked for",
            ));
        }
        if let Some((name, _)) = self
            .files
            .iter()
            .find(|(name, _)| !force && self.folder.join(name).exists())
        {
            return Err(Failure::input(format!(
                "{} exists; --force overwrites",
                self.folder.join(name).display()
            )));
        }
        fs::create_dir_all(self.folder)
            .with_context(|| format!("can't make {}", self.folder.display()))?;
        for (name, bytes) in &self.files {
            let path = self.folder.join(name);
            write_whole(&path, bytes).with_context(|| format!("can't write {}", path.display()))?;
        }
        Ok(Report {
            folder: self.folder.display().to_string(),
            files: self
                .files
                .iter()
                .map(|(name, bytes)| Written {
                    file: name.clone(),
                    bytes: bytes.len(),
                })
                .collect(),
        })
    }
}

/// Writes through a temporary file, so that the name never holds half a file.
pub fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.as_file()
            .set_permissions(fs::Permissions::from_mode(0o644))?;
    }
    file.persist(path)?;
    Ok(())
}
