//! The environment variables and well-known places that decide which tools a build uses, as a value that tests can make up.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Every variable that changes what a build does; a build script tells cargo to watch these.
pub const VARIABLES: [&str; 13] = [
    "ZINC_NVCC",
    "NVCC",
    "CUDA_HOME",
    "CUDA_PATH",
    "ZINC_CUDA_ARCHS",
    "ZINC_CUBINS",
    "ZINC_CUDA_CACHE",
    "XDG_CACHE_HOME",
    "HOME",
    "CXX",
    "NVCC_CCBIN",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
];

/// What a build sees of the machine around it.
#[derive(Debug, Clone)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
    /// Where a system-wide toolkit lies: `/usr/local/cuda`.
    pub system_toolkit: PathBuf,
}

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        Self {
            variables: std::env::vars_os().collect(),
            system_toolkit: PathBuf::from("/usr/local/cuda"),
        }
    }

    /// An environment with just these variables and no system-wide toolkit.
    pub fn of(variables: &[(&str, &OsStr)]) -> Self {
        let variables = variables
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        Self {
            variables,
            system_toolkit: PathBuf::new(),
        }
    }

    /// The value of a variable; an empty one counts as unset.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables
            .get(OsStr::new(name))
            .map(OsString::as_os_str)
            .filter(|value| !value.is_empty())
    }

    /// The value of a variable as text; what is not UTF-8 is replaced, so that it appears in the error that follows.
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name)
            .map(|value| value.to_string_lossy().into_owned())
    }

    /// Sets a variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables.insert(name.into(), value.as_ref().into());
        self
    }

    /// The first executable file called `program` in PATH; a name with a slash is a path of its own.
    pub fn program(&self, program: impl AsRef<OsStr>) -> Option<PathBuf> {
        let program = Path::new(program.as_ref());
        if program.components().count() > 1 || program.is_absolute() {
            return is_executable(program).then(|| program.to_path_buf());
        }
        std::env::split_paths(self.get("PATH")?)
            .map(|folder| folder.join(program))
            .find(|path| is_executable(path))
    }

    /// Where toolkits and compiled kernels are kept.
    pub fn cache(&self) -> Option<PathBuf> {
        content_cache::user_folder(|name| self.get(name).map(PathBuf::from))
    }

    /// A command with exactly these variables.
    pub fn command(&self, program: impl AsRef<OsStr>) -> std::process::Command {
        let mut command = std::process::Command::new(program);
        command
            .env_clear()
            .envs(&self.variables)
            .stdin(std::process::Stdio::null());
        command
    }
}

/// Whether `path` is a file that may be executed.
pub(crate) fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
