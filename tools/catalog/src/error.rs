//! What can be wrong with a catalog, and where.

use crate::expr::SyntaxError;
use std::fmt;
use std::path::PathBuf;

/// One mistake in the catalog or in a launch file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogError {
    /// The file to look at.
    pub file: PathBuf,
    /// Its line, from 1; `None` where the file as a whole is meant.
    pub line: Option<usize>,
    /// The kernel whose contract or launch file it is, where known.
    pub kernel: Option<String>,
    /// What is wrong.
    pub problem: Problem,
}

/// The kinds of mistakes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A file or directory cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// Not TOML, a missing or unknown key, or a value of the wrong type.
    #[error("{0}")]
    Toml(String),
    /// A name that is not lower-case `snake_case`, or that C++ or Rust reserves.
    #[error("{what} `{name}` is not usable as an identifier in C++ and Rust")]
    Identifier {
        /// What is named.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Two kernels, fields, buffers or constants share a name.
    #[error("{what} `{name}` is already defined{}", first.as_ref().map(|at| format!(" at {at}")).unwrap_or_default())]
    Duplicate {
        /// What is named.
        what: &'static str,
        /// The name.
        name: String,
        /// Place of the first definition, where that is in another file or entry.
        first: Option<String>,
    },
    /// A family that does not exist.
    #[error("family `{found}` is unknown (known: {})", crate::FAMILIES.join(", "))]
    Family {
        /// The family.
        found: String,
    },
    /// A field type other than `u32` and `f32`, or an unknown access.
    #[error("{key} is `{found}`, wanted {wanted}")]
    Value {
        /// The key.
        key: &'static str,
        /// What it is.
        found: String,
        /// What it may be.
        wanted: &'static str,
    },
    /// An expression that cannot be parsed.
    #[error("`{text}`: {error}")]
    Syntax {
        /// The expression.
        text: String,
        /// What is wrong with it.
        error: SyntaxError,
    },
    /// An expression uses a name that does not exist here.
    #[error("`{text}` uses `{name}`, which is not {known}")]
    UnknownName {
        /// The expression.
        text: String,
        /// The name.
        name: String,
        /// What could be used.
        known: String,
    },
    /// An expression uses a floating-point field.
    #[error("`{text}` uses `{name}`, but f32 fields have no place in integer expressions")]
    FloatName {
        /// The expression.
        text: String,
        /// The field.
        name: String,
    },
    /// `may_alias` is unusable.
    #[error("may_alias [{a}, {b}]: {reason}")]
    MayAlias {
        /// First buffer.
        a: String,
        /// Second buffer.
        b: String,
        /// Why.
        reason: &'static str,
    },
    /// `early` names what cannot be read before the wait.
    #[error("early: `{buffer}` {reason}")]
    Early {
        /// The name.
        buffer: String,
        /// Why.
        reason: &'static str,
    },
    /// Too many fields, buffers, dimensions or threads.
    #[error("{found} {what}, at most {most} are possible")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many.
        found: i64,
        /// The limit.
        most: i64,
    },
    /// A constant launch dimension without any thread or block.
    #[error("{what} is {found}, wanted at least 1")]
    TooFew {
        /// Which dimension.
        what: &'static str,
        /// Its value.
        found: i64,
    },
    /// An override names something that the base rule lacks.
    #[error("{what} `{name}` is not defined by the base rule")]
    NotInBase {
        /// A tile constant, or a value.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// An `[arch.N]` table whose name is not an architecture number, alone or with the suffix `a`.
    #[error("`arch.{0}` is not an architecture number such as 90 or 90a")]
    Arch(String),
    /// A launch file that says what cannot be, or that its code contradicts.
    #[error("{0}")]
    Launch(&'static str),
    /// An implementation without launch file.
    #[error("has no launch file: {} does not exist", wanted.display())]
    MissingLaunch {
        /// Where the launch file belongs.
        wanted: PathBuf,
    },
    /// A launch file without code.
    #[error("has no code: {} does not exist", wanted.display())]
    MissingCode {
        /// Where the code belongs.
        wanted: PathBuf,
    },
    /// A catalog entry without implementation.
    #[error("has no implementation: {} does not exist (add it, or say why not in catalog/pending.toml)", wanted.display())]
    MissingCu {
        /// Where the implementation belongs.
        wanted: PathBuf,
    },
    /// An implementation without catalog entry.
    #[error("has no catalog entry: no kernel is named `{stem}`{}", nearest.as_ref().map(|n| format!(", did you mean `{n}`?")).unwrap_or_default())]
    MissingEntry {
        /// The file's stem.
        stem: String,
        /// The most similar kernel name.
        nearest: Option<String>,
    },
    /// An implementation in the wrong directory.
    #[error("belongs at {}", wanted.display())]
    Misplaced {
        /// Where it belongs.
        wanted: PathBuf,
    },
    /// `pending.toml` lists a kernel whose implementation exists.
    #[error("is listed as pending, but {} exists", cu.display())]
    PendingWithCu {
        /// The implementation.
        cu: PathBuf,
    },
    /// `pending.toml` lists a kernel that does not exist.
    #[error("is listed as pending, but no catalog entry has that name")]
    PendingUnknown,
}

impl std::error::Error for CatalogError {}

impl fmt::Display for CatalogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        if let Some(kernel) = &self.kernel {
            write!(f, " kernel {kernel}:")?;
        }
        write!(f, " {}", self.problem)
    }
}

/// Every mistake that was found, in the order of files and lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogErrors(pub Vec<CatalogError>);

impl std::error::Error for CatalogErrors {}

impl fmt::Display for CatalogErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}
