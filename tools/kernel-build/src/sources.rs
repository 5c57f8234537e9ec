//! What decides a kernel: its file, the project headers that it includes, and the generated header.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cubin_format::Digest;

use crate::compile::FLAGS;

/// Where the device code lies under the project's root.
pub const KERNELS: &str = "kernels-cu";
/// Where the shared device headers lie under [`KERNELS`].
const INCLUDE: &str = "include";
/// The extensions of files that decide what the kernels are.
const EXTENSIONS: [&str; 4] = ["cu", "cuh", "h", "toml"];

/// Why the sources cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file or directory cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file name is not UTF-8, so it cannot be part of a hash that is the same everywhere.
    #[error("{} is not UTF-8", path.display())]
    Name {
        /// Which.
        path: PathBuf,
    },
    /// An `#include` whose file only the preprocessor could tell.
    #[error(
        "{file}:{line}: `{text}` names no file; the build needs the plain name to know what to rebuild"
    )]
    ComputedInclude {
        /// The file.
        file: String,
        /// Its line, from 1.
        line: usize,
        /// The directive.
        text: String,
    },
    /// A use of `ZINC_ARCH` from which the build cannot tell for which architectures the code is the same.
    #[error("{file}:{line}: `{text}`: ZINC_ARCH is only compared with a number, by >=, < or ==")]
    ArchUse {
        /// The file.
        file: String,
        /// Its line, from 1.
        line: usize,
        /// The line.
        text: String,
    },
}

/// All sources in memory, by their path below [`KERNELS`], with `/` between the parts. Generated headers have their path below
/// the generated include directory behind [`GENERATED`].
#[derive(Debug, Clone, Default)]
pub struct Sources {
    files: BTreeMap<String, Vec<u8>>,
}

/// The bounds of [`Sources::arch_bounds`] by file: most files are part of many kernels.
pub type ArchBounds = BTreeMap<String, BTreeSet<u32>>;

/// The prefix of generated headers in [`Sources`].
const GENERATED: &str = "generated/";

impl Sources {
    /// Reads everything under `root`/kernels-cu that decides the kernels. `generated` has the generated headers by the path that
    /// an `#include` uses.
    ///
    /// # Errors
    /// Where something cannot be read.
    pub fn read(root: &Path, generated: &BTreeMap<String, String>) -> Result<Self, SourceError> {
        let mut files = BTreeMap::new();
        walk(&root.join(KERNELS), "", &mut files)?;
        for (name, text) in generated {
            files.insert(format!("{GENERATED}{name}"), text.clone().into_bytes());
        }
        Ok(Self { files })
    }

    /// The SHA-256 of all paths, contents and compiler flags: equal hash, equal kernels for equal targets and compiler.
    pub fn hash(&self) -> Digest {
        hash(
            self.files
                .iter()
                .map(|(name, bytes)| (name.as_str(), bytes.as_slice())),
        )
    }

    /// The SHA-256 of `file` and everything that it includes, directly or not.
    ///
    /// Files that are not ours are passed over: kernels include no system header, and nvcc reports a missing one.
    ///
    /// # Errors
    /// `ComputedInclude`.
    pub fn closure_hash(&self, file: &str) -> Result<Digest, SourceError> {
        let closure = self.closure(file)?;
        Ok(hash(
            closure
                .iter()
                .map(|name| (name.as_str(), self.files[name].as_slice())),
        ))
    }

    /// The numbers with which `file` and what it includes compare the architecture: architectures with none of them above
    /// the one and up to the other have the same code. `known` has those of single files, and gets what it lacks.
    ///
    /// # Errors
    /// `ComputedInclude`, `ArchUse`.
    pub fn arch_bounds(
        &self,
        file: &str,
        known: &mut ArchBounds,
    ) -> Result<BTreeSet<u32>, SourceError> {
        let mut bounds = BTreeSet::new();
        for name in self.closure(file)? {
            let own = match known.entry(name) {
                Entry::Occupied(own) => own.into_mut(),
                Entry::Vacant(place) => {
                    let text = String::from_utf8_lossy(&self.files[place.key()]);
                    let own = arch_bounds(place.key(), &text)?;
                    place.insert(own)
                }
            };
            bounds.extend(own.iter());
        }
        Ok(bounds)
    }

    /// `file` and everything of ours that it includes, directly or not.
    ///
    /// # Errors
    /// `ComputedInclude`.
    pub fn closure(&self, file: &str) -> Result<BTreeSet<String>, SourceError> {
        let mut closure = BTreeSet::new();
        let mut open = vec![file.to_owned()];
        while let Some(name) = open.pop() {
            let Some(bytes) = self.files.get(&name) else {
                continue;
            };
            if closure.insert(name.clone()) {
                let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
                for include in includes(&name, &String::from_utf8_lossy(bytes))? {
                    let places = [
                        format!("{folder}/{include}"),
                        format!("{INCLUDE}/{include}"),
                        format!("{GENERATED}{include}"),
                    ];
                    open.extend(
                        places
                            .iter()
                            .map(|place| normal(place))
                            .find(|place| self.files.contains_key(place)),
                    );
                }
            }
        }
        Ok(closure)
    }
}

fn walk(
    folder: &Path,
    name: &str,
    files: &mut BTreeMap<String, Vec<u8>>,
) -> Result<(), SourceError> {
    let error = |path: &Path, source| SourceError::Read {
        path: path.to_path_buf(),
        source,
    };
    for entry in std::fs::read_dir(folder).map_err(|source| error(folder, source))? {
        let path = entry.map_err(|source| error(folder, source))?.path();
        let own = path
            .file_name()
            .and_then(|own| own.to_str())
            .ok_or_else(|| SourceError::Name { path: path.clone() })?;
        let name = if name.is_empty() {
            own.to_owned()
        } else {
            format!("{name}/{own}")
        };
        if path.is_dir() {
            walk(&path, &name, files)?;
        } else if !own.starts_with('.')
            && EXTENSIONS
                .iter()
                .any(|wanted| path.extension().is_some_and(|found| found == *wanted))
        {
            files.insert(
                name,
                std::fs::read(&path).map_err(|source| error(&path, source))?,
            );
        }
    }
    Ok(())
}

fn hash<'a>(files: impl Iterator<Item = (&'a str, &'a [u8])>) -> Digest {
    let mut text = Vec::new();
    let mut put = |bytes: &[u8]| {
        text.extend((bytes.len() as u64).to_le_bytes());
        text.extend(bytes);
    };
    FLAGS.iter().for_each(|flag| put(flag.as_bytes()));
    for (name, bytes) in files {
        put(name.as_bytes());
        put(bytes);
    }
    Digest::of(&text)
}

/// The names in the `#include` directives of a file, whether or not an `#if` hides them.
fn includes(file: &str, text: &str) -> Result<Vec<String>, SourceError> {
    let mut names = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(directive) = line.trim_start().strip_prefix('#') else {
            continue;
        };
        let Some(rest) = directive.trim_start().strip_prefix("include") else {
            continue;
        };
        let rest = rest.trim_start();
        let name = [('"', '"'), ('<', '>')]
            .iter()
            .find_map(|(open, close)| rest.strip_prefix(*open)?.split(*close).next());
        let name =
            name.filter(|name| !name.is_empty())
                .ok_or_else(|| SourceError::ComputedInclude {
                    file: format!("{KERNELS}/{file}"),
                    line: index + 1,
                    text: line.trim().to_owned(),
                })?;
        names.push(name.to_owned());
    }
    Ok(names)
}

/// The numbers with which a file compares `ZINC_ARCH`.
fn arch_bounds(file: &str, text: &str) -> Result<BTreeSet<u32>, SourceError> {
    let mut bounds = BTreeSet::new();
    for (index, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default().trim();
        if code.starts_with("#define ZINC_ARCH ") {
            continue;
        }
        for rest in code.split("ZINC_ARCH").skip(1).map(str::trim_start) {
            let operator = [">=", "==", "<"]
                .into_iter()
                .find(|it| rest.starts_with(it));
            let number = operator.and_then(|operator| {
                let number = rest[operator.len()..].trim_start();
                let end = number.find(|c: char| !c.is_ascii_digit());
                number[..end.unwrap_or(number.len())].parse::<u32>().ok()
            });
            let number = number.ok_or_else(|| SourceError::ArchUse {
                file: format!("{KERNELS}/{file}"),
                line: index + 1,
                text: line.trim().to_owned(),
            })?;
            bounds.insert(number);
            if operator == Some("==") {
                bounds.insert(number + 1);
            }
        }
    }
    Ok(bounds)
}

/// A relative path without `.` and `..` parts.
fn normal(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Sources {
        Sources {
            files: files
                .iter()
                .map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()))
                .collect(),
        }
    }

    fn closure(sources: &Sources, file: &str) -> String {
        sources
            .closure(file)
            .unwrap()
            .into_iter()
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn closure_follows_every_way_to_include_and_ends_on_cycles() {
        let sources = sources(&[
            (
                "dmmv/k.cu",
                "#include \"zinc/k.h\"\n  #  include <zinc/a.cuh>\n#include \"../near.cuh\"\n#include \"sibling.cuh\"",
            ),
            ("dmmv/sibling.cuh", "#include \"not_ours.h\""),
            ("near.cuh", ""),
            ("include/zinc/a.cuh", "#include \"b.cuh\""),
            ("include/zinc/b.cuh", "#include \"zinc/a.cuh\""),
            ("include/zinc/unused.cuh", ""),
            ("generated/zinc/k.h", ""),
        ]);
        let wanted = "dmmv/k.cu dmmv/sibling.cuh generated/zinc/k.h include/zinc/a.cuh include/zinc/b.cuh near.cuh";
        assert_eq!(closure(&sources, "dmmv/k.cu"), wanted);
    }

    #[test]
    fn closure_hash_changes_with_included_files_only() {
        let with = |used: &str, unused: &str| {
            let sources = sources(&[
                ("k.cu", "#include \"used.cuh\""),
                ("include/used.cuh", used),
                ("include/unused.cuh", unused),
            ]);
            (sources.closure_hash("k.cu").unwrap(), sources.hash())
        };
        let (closure, all) = with("1", "1");
        assert_eq!(closure, with("1", "2").0);
        assert_ne!(closure, with("2", "1").0);
        assert_ne!(all, with("1", "2").1);
    }

    #[test]
    fn hash_tells_a_moved_byte_from_another_name() {
        assert_ne!(
            sources(&[("ab.cu", "c")]).hash(),
            sources(&[("a.cu", "bc")]).hash()
        );
        assert_ne!(
            sources(&[("a.cu", "b"), ("c.cu", "")]).hash(),
            sources(&[("a.cu", ""), ("c.cu", "b")]).hash()
        );
    }

    #[test]
    fn computed_include_is_refused_with_its_place() {
        let error = sources(&[("x/k.cu", "\n#include HEADER\n")])
            .closure("x/k.cu")
            .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("kernels-cu/x/k.cu:2: `#include HEADER` names no file"),
            "{error}"
        );
    }

    #[test]
    fn arch_bounds_are_those_of_all_files() {
        let sources = sources(&[
            (
                "k.cu",
                "#include \"a.cuh\"\n#if ZINC_ARCH >= 80 && ZINC_ARCH < 100 || ZINC_ARCH == 90\n// ZINC_ARCH is 75\n#endif",
            ),
            (
                "a.cuh",
                "#define ZINC_ARCH 0\nconstexpr bool b = ZINC_ARCH >=86;",
            ),
        ]);
        assert_eq!(
            Vec::from_iter(sources.arch_bounds("k.cu", &mut ArchBounds::new()).unwrap()),
            [80, 86, 90, 91, 100]
        );
    }

    #[test]
    fn other_use_of_the_arch_is_refused_with_its_place() {
        for text in [
            "ZINC_ARCH > 89",
            "ZINC_ARCH <= 89",
            "f(ZINC_ARCH)",
            "ZINC_ARCH >= NEW",
        ] {
            let sources = sources(&[("k.cu", &format!("\n#if {text}\n"))]);
            let error = sources.arch_bounds("k.cu", &mut ArchBounds::new());
            let error = error.unwrap_err().to_string();
            let place = format!("kernels-cu/k.cu:2: `#if {text}`: ");
            assert!(error.starts_with(&place), "{error}");
        }
    }
}
