//! Reads a `kernels-cu` directory and checks contracts, implementations and `pending.toml` against each other.

use crate::error::{CatalogError, CatalogErrors, Problem};
use crate::model::{Catalog, Kernel, LAUNCH_EXTENSION};
use crate::names::nearest;
use crate::parse;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// How a load treats implementations that are missing, listed as pending although they exist, or not readable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tolerance {
    /// Each of them is an error.
    Strict,
    /// They become warnings, and kernels without a usable implementation count as pending. The code is not read. For
    /// tables that must also exist while an implementation is being written; the build of the cubins is always strict.
    Partial,
}

/// What an implementation calls, in one of its forms, that may be started before the kernel ahead of it has ended. Where it
/// reads early a header may call it.
const WAIT: &str = "zinc::wait_for_previous";

/// Directories of `kernels-cu` that hold no implementations.
const NOT_KERNELS: [&str; 2] = ["catalog", "include"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPending {
    #[serde(default)]
    pending: BTreeMap<Spanned<String>, String>,
}

impl Catalog {
    /// Reads `root` (a `kernels-cu` directory): `catalog/*.toml`, `catalog/extended/*.toml`, `catalog/pending.toml`
    /// and the launch file of every implementation. Reports all mistakes at once.
    pub fn load(root: &Path, tolerance: Tolerance) -> Result<Catalog, CatalogErrors> {
        let mut loader = Loader {
            root,
            tolerance,
            kernels: BTreeMap::new(),
            files: Vec::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
        };
        loader.contracts();
        let contracts_complete = loader.errors.is_empty();
        let pending = loader.pending(contracts_complete);
        loader.implementations(&pending, contracts_complete);
        if !loader.errors.is_empty() {
            return Err(CatalogErrors(loader.errors));
        }
        Ok(Catalog {
            root: root.to_owned(),
            kernels: loader.kernels.into_values().collect(),
            files: loader.files,
            warnings: loader.warnings,
        })
    }
}

struct Loader<'a> {
    root: &'a Path,
    tolerance: Tolerance,
    kernels: BTreeMap<String, Kernel>,
    files: Vec<PathBuf>,
    errors: Vec<CatalogError>,
    warnings: Vec<CatalogError>,
}

impl Loader<'_> {
    fn fail(&mut self, path: &Path, line: Option<usize>, kernel: Option<&str>, problem: Problem) {
        self.errors.push(CatalogError {
            file: self.root.join(path),
            line,
            kernel: kernel.map(str::to_owned),
            problem,
        });
    }

    /// Reports what a tolerant load can live with.
    fn tolerate(&mut self, errors: Vec<CatalogError>) {
        match self.tolerance {
            Tolerance::Strict => self.errors.extend(errors),
            Tolerance::Partial => self.warnings.extend(errors),
        }
    }

    fn read(&mut self, path: &Path) -> Option<String> {
        match fs::read_to_string(self.root.join(path)) {
            Ok(text) => {
                self.files.push(path.to_owned());
                Some(text)
            }
            Err(error) => {
                self.fail(path, None, None, Problem::Unreadable(error.to_string()));
                None
            }
        }
    }

    /// The entries of a directory whose names satisfy `wanted`, sorted, relative to the root.
    fn list(&mut self, directory: &Path, wanted: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.root.join(directory))
            .and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        match entries {
            Ok(entries) => {
                let mut paths = Vec::from_iter(
                    entries
                        .iter()
                        .filter(|entry| wanted(&entry.path()))
                        .map(|entry| directory.join(entry.file_name())),
                );
                paths.sort();
                paths
            }
            Err(error) => {
                self.fail(
                    directory,
                    None,
                    None,
                    Problem::Unreadable(error.to_string()),
                );
                Vec::new()
            }
        }
    }

    fn contracts(&mut self) {
        let is_toml = |path: &Path| {
            path.extension().is_some_and(|e| e == "toml")
                && path.file_stem().is_some_and(|s| s != "pending")
        };
        let base = self.list(Path::new("catalog"), is_toml);
        let extended = match self.root.join("catalog/extended").is_dir() {
            true => self.list(Path::new("catalog/extended"), is_toml),
            false => Vec::new(),
        };
        let base = base.into_iter().map(|path| (path, false));
        for (path, extended) in base.chain(extended.into_iter().map(|path| (path, true))) {
            let Some(text) = self.read(&path) else {
                continue;
            };
            let file = parse::contract_file(&self.root.join(&path), &path, extended, &text);
            self.errors.extend(file.errors);
            for kernel in file.kernels {
                match self.kernels.get(&kernel.name) {
                    None => {
                        self.kernels.insert(kernel.name.clone(), kernel);
                    }
                    Some(first) => {
                        let problem = Problem::Duplicate {
                            what: "kernel",
                            name: kernel.name.clone(),
                            first: Some(format!("{}:{}", first.toml.display(), first.line)),
                        };
                        self.fail(&path, Some(kernel.line), Some(&kernel.name), problem);
                    }
                }
            }
        }
    }

    /// Reads `pending.toml`: the reason for each kernel that has no implementation yet, with the line that says so.
    fn pending(&mut self, contracts_complete: bool) -> BTreeMap<String, (String, usize)> {
        let path = Path::new("catalog/pending.toml");
        if !self.root.join(path).exists() {
            return BTreeMap::new();
        }
        let Some(text) = self.read(path) else {
            return BTreeMap::new();
        };
        let line = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
        let raw: RawPending = match toml::from_str(&text) {
            Ok(raw) => raw,
            Err(error) => {
                let at = error.span().map(|span| line(span.start));
                self.fail(path, at, None, Problem::Toml(error.message().to_owned()));
                return BTreeMap::new();
            }
        };
        let mut pending = BTreeMap::new();
        for (name, reason) in raw.pending {
            let at = line(name.span().start);
            if contracts_complete && !self.kernels.contains_key(name.get_ref()) {
                self.fail(
                    path,
                    Some(at),
                    Some(name.get_ref()),
                    Problem::PendingUnknown,
                );
            }
            pending.insert(name.into_inner(), (reason, at));
        }
        pending
    }

    fn implementations(
        &mut self,
        pending: &BTreeMap<String, (String, usize)>,
        contracts_complete: bool,
    ) {
        let directories = self.list(Path::new(""), |path| {
            path.is_dir() && !NOT_KERNELS.iter().any(|name| path.ends_with(name))
        });
        let mut found = BTreeMap::new();
        let suffix = format!(".{LAUNCH_EXTENSION}");
        for directory in directories {
            let launch = self.list(&directory, |path| {
                path.to_str().is_some_and(|path| path.ends_with(&suffix))
            });
            for path in launch {
                let cu = path.with_extension("").with_extension("cu");
                let wanted = self.root.join(&cu);
                // Kernels of the catalog miss their code below.
                let known = self.kernels.values().any(|kernel| kernel.cu == cu);
                if !known && !wanted.exists() {
                    self.fail(&path, None, None, Problem::MissingCode { wanted });
                }
            }
            for path in self.list(&directory, |path| {
                path.extension().is_some_and(|e| e == "cu")
            }) {
                let stem = path
                    .file_stem()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                match self.kernels.get(&stem) {
                    Some(kernel) if kernel.cu == path => {
                        found.insert(stem, path);
                    }
                    Some(kernel) => {
                        let wanted = self.root.join(&kernel.cu);
                        self.fail(&path, None, Some(&stem), Problem::Misplaced { wanted });
                    }
                    None if contracts_complete => {
                        let names = self.kernels.keys().map(String::as_str);
                        let nearest = nearest(&stem, names).map(str::to_owned);
                        self.fail(&path, None, None, Problem::MissingEntry { stem, nearest });
                    }
                    None => {}
                }
            }
        }
        for name in Vec::from_iter(self.kernels.keys().cloned()) {
            self.implementation(&name, pending.get(&name), found.get(&name));
        }
    }

    /// Attaches the launch rules to a kernel, or the reason why it has none.
    fn implementation(
        &mut self,
        name: &str,
        pending: Option<&(String, usize)>,
        cu: Option<&PathBuf>,
    ) {
        let Some(mut kernel) = self.kernels.remove(name) else {
            return;
        };
        match (pending, cu) {
            (Some((reason, _)), None) => kernel.pending = Some(reason.clone()),
            (None, None) => {
                kernel.pending = Some("no implementation yet".to_owned());
                self.tolerate(vec![CatalogError {
                    file: self.root.join(&kernel.toml),
                    line: Some(kernel.line),
                    kernel: Some(name.to_owned()),
                    problem: Problem::MissingCu {
                        wanted: self.root.join(&kernel.cu),
                    },
                }]);
            }
            (pending, Some(cu)) => {
                if let Some((_, line)) = pending {
                    self.tolerate(vec![CatalogError {
                        file: self.root.join("catalog/pending.toml"),
                        line: Some(*line),
                        kernel: Some(name.to_owned()),
                        problem: Problem::PendingWithCu {
                            cu: self.root.join(cu),
                        },
                    }]);
                }
                if let Err(errors) = self.launch(&mut kernel) {
                    kernel.pending = Some("its launch file is not usable".to_owned());
                    self.tolerate(errors);
                }
            }
        }
        self.kernels.insert(name.to_owned(), kernel);
    }
    /// Reads a kernel's launch file.
    fn launch(&mut self, kernel: &mut Kernel) -> Result<(), Vec<CatalogError>> {
        let path = kernel.launch_file();
        let wanted = self.root.join(&path);
        let error = |file, problem| {
            vec![CatalogError {
                file,
                line: None,
                kernel: Some(kernel.name.clone()),
                problem,
            }]
        };
        if !wanted.exists() {
            let cu = self.root.join(&kernel.cu);
            return Err(error(cu, Problem::MissingLaunch { wanted }));
        }
        // What cannot be read has been reported.
        let Some(text) = self.read(&path) else {
            return Ok(());
        };
        let launch = parse::launch_file(&wanted, kernel, &text)?;
        if self.tolerance == Tolerance::Strict
            && let Some(code) = self.read(&kernel.cu)
            && launch.early.is_empty()
            && launch.overlap != code.contains(WAIT)
        {
            let problem = Problem::Launch(
                "`overlap = true` and a call of `zinc::wait_for_previous()` go together",
            );
            return Err(error(wanted, problem));
        }
        kernel.launch = launch.rules;
        kernel.overlap = launch.overlap;
        kernel.early = launch.early;
        kernel.allow = launch.allow;
        Ok(())
    }
}
