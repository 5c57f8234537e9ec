//! Finds nvcc and asks it what it is and what it can compile for.

use std::fmt;
use std::path::{Path, PathBuf};

use cubin_format::{Arch, Suffix};

use crate::environment::{Environment, is_executable};

/// The versions that `tools/setup` installs; the one place that names them.
const PINS: &str = include_str!("../../pins/toolkit.txt");

/// Why there is no nvcc to use, or what it refused to tell.
#[derive(Debug, thiserror::Error)]
pub enum ToolkitError {
    /// No place has an nvcc.
    #[error(
        "no nvcc found; looked at:\n{}\nrun tools/setup to install one, or set ZINC_NVCC",
        list(tried)
    )]
    Missing {
        /// Every place, in order, with what was there.
        tried: Vec<String>,
    },
    /// `ZINC_NVCC` names something else.
    #[error("ZINC_NVCC={} is not an executable file", path.display())]
    NotExecutable {
        /// What it names.
        path: PathBuf,
    },
    /// nvcc could not be run at all.
    #[error("cannot run {}", nvcc.display())]
    Run {
        /// The nvcc.
        nvcc: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// nvcc failed, or printed something else than expected.
    #[error("{} {query} did not answer as nvcc does:\n{output}", nvcc.display())]
    Query {
        /// The nvcc.
        nvcc: PathBuf,
        /// The argument.
        query: String,
        /// All that it printed.
        output: String,
    },
    /// The host compiler that nvcc preprocesses with is missing.
    #[error("{} found no host compiler ({wanted}); install g++, or name one in NVCC_CCBIN", nvcc.display())]
    HostCompiler {
        /// The nvcc.
        nvcc: PathBuf,
        /// What was tried.
        wanted: String,
    },
}

fn list(lines: &[String]) -> String {
    lines
        .iter()
        .map(|line| format!("  {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The nvcc of a build.
#[derive(Debug, Clone)]
pub struct Toolkit {
    /// The executable.
    pub nvcc: PathBuf,
    /// Its version, such as `13.0.88`.
    pub version: String,
    /// Its exact build, such as `cuda_13.0.r13.0/compiler.36424714_0`.
    pub build: String,
    /// The architectures that it makes machine code for, without suffixes, ascending.
    pub codes: Vec<Arch>,
    /// The architectures that it makes PTX for, without suffixes, ascending.
    pub virtuals: Vec<Arch>,
    /// The compiler that it preprocesses with.
    pub host: HostCompiler,
    /// The environment to run it in.
    pub environment: Environment,
}

/// A C++ compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCompiler {
    /// The name or path.
    pub program: PathBuf,
    /// The first line that `--version` prints.
    pub version: String,
    /// Whether nvcc must be told of it, because it would look for another.
    pub explicit: bool,
}

impl fmt::Display for HostCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.program.display(), self.version)
    }
}

impl fmt::Display for Toolkit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "nvcc {} ({}) at {}",
            self.version,
            self.build,
            self.nvcc.display()
        )
    }
}

/// The version of nvcc that `tools/setup` installs.
pub fn pinned_version() -> &'static str {
    let pin = PINS
        .lines()
        .find_map(|line| line.strip_prefix("nvidia-cuda-nvcc=="));
    pin.and_then(|rest| rest.split_whitespace().next())
        .unwrap_or_default()
}

/// Looks for nvcc: `ZINC_NVCC`, `NVCC`, `CUDA_HOME`, `CUDA_PATH`, PATH, `/usr/local/cuda`, then what `tools/setup` installed.
///
/// # Errors
/// `NotExecutable` where `ZINC_NVCC` is wrong, which is never passed over; `Missing` with every place tried.
pub fn find_nvcc(environment: &Environment) -> Result<PathBuf, ToolkitError> {
    if let Some(named) = environment.get("ZINC_NVCC") {
        return environment
            .program(named)
            .ok_or_else(|| ToolkitError::NotExecutable { path: named.into() });
    }
    let mut tried = vec!["ZINC_NVCC: not set".to_owned()];
    match environment
        .get("NVCC")
        .map(|named| (named, environment.program(named)))
    {
        Some((_, Some(nvcc))) => return Ok(nvcc),
        Some((named, None)) => {
            tried.push(format!("NVCC={}: not an executable file", named.display()))
        }
        None => tried.push("NVCC: not set".to_owned()),
    }
    for name in ["CUDA_HOME", "CUDA_PATH"] {
        match environment
            .get(name)
            .map(|home| Path::new(home).join("bin/nvcc"))
        {
            Some(nvcc) if is_executable(&nvcc) => return Ok(nvcc),
            Some(nvcc) => tried.push(format!("{name}: no executable {}", nvcc.display())),
            None => tried.push(format!("{name}: not set")),
        }
    }
    if let Some(nvcc) = environment.program("nvcc") {
        return Ok(nvcc);
    }
    tried.push("PATH: no nvcc in it".to_owned());
    let pin = pinned_version();
    let major = pin.split('.').next().unwrap_or_default();
    let installed = environment
        .cache()
        .map(|cache| cache.join(format!("toolkit-{pin}/nvidia/cu{major}/bin/nvcc")));
    for nvcc in [Some(environment.system_toolkit.join("bin/nvcc")), installed]
        .into_iter()
        .flatten()
    {
        if is_executable(&nvcc) {
            return Ok(nvcc);
        }
        tried.push(format!("{}: not there", nvcc.display()));
    }
    Err(ToolkitError::Missing { tried })
}

impl Toolkit {
    /// Finds nvcc and asks for its build, its architectures and its host compiler.
    ///
    /// # Errors
    /// As [`find_nvcc`], and where nvcc does not run or does not answer.
    pub fn find(environment: &Environment) -> Result<Self, ToolkitError> {
        Self::at(find_nvcc(environment)?, environment)
    }

    /// The toolkit of the nvcc at a known place.
    ///
    /// # Errors
    /// Where nvcc does not run or does not answer.
    pub fn at(nvcc: PathBuf, environment: &Environment) -> Result<Self, ToolkitError> {
        let query = |argument: &str| {
            let output = environment.command(&nvcc).arg(argument).output();
            let output = output.map_err(|source| ToolkitError::Run {
                nvcc: nvcc.clone(),
                source,
            })?;
            let text = [output.stdout, output.stderr].concat();
            Ok((
                output.status.success(),
                String::from_utf8_lossy(&text).into_owned(),
            ))
        };
        let failed = |argument: &str, output: String| ToolkitError::Query {
            nvcc: nvcc.clone(),
            query: argument.to_owned(),
            output,
        };

        let (good, text) = query("--version")?;
        let version = text
            .split_once(", V")
            .and_then(|(_, rest)| rest.split_whitespace().next());
        let build = text.lines().find_map(|line| line.strip_prefix("Build "));
        let (version, build) = match (good, version, build) {
            (true, Some(version), Some(build)) => (version.to_owned(), build.trim().to_owned()),
            _ => return Err(failed("--version", text)),
        };
        let archs = |argument: &str| {
            let (good, text) = query(argument)?;
            let mut archs: Vec<Arch> = text
                .split_whitespace()
                .filter_map(|name| name.parse().ok())
                .collect();
            archs.retain(|arch| arch.suffix() == Suffix::None);
            archs.sort();
            archs.dedup();
            if good && !archs.is_empty() {
                Ok(archs)
            } else {
                Err(failed(argument, text))
            }
        };
        let (codes, virtuals) = (archs("--list-gpu-code")?, archs("--list-gpu-arch")?);
        let host = host_compiler(&nvcc, environment)?;
        Ok(Self {
            nvcc,
            version,
            build,
            codes,
            virtuals,
            host,
            environment: environment.clone(),
        })
    }

    /// Whether this nvcc makes machine code for `arch`. The lists leave suffixed architectures out, so those are tried.
    pub fn supports(&self, arch: Arch) -> bool {
        let plain = self.codes.iter().any(|code| code.number() == arch.number());
        plain
            && (arch.suffix() == Suffix::None || {
                let mut command = self.environment.command(&self.nvcc);
                command.args([
                    "--dryrun",
                    "-cubin",
                    &format!("-arch=sm_{arch}"),
                    "probe.cu",
                ]);
                command.output().is_ok_and(|output| output.status.success())
            })
    }

    /// What identifies the compilers: equal text, equal output for equal sources and flags.
    pub fn identity(&self) -> String {
        let flags = ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"]
            .map(|name| self.environment.text(name).unwrap_or_default());
        format!(
            "{}\n{}\n{}\n{}\n{}",
            self.version, self.build, self.host.version, flags[0], flags[1]
        )
    }
}

/// Asks nvcc, without compiling, which host compiler it would run; where it finds none of its own, offers it `CXX` or the
/// machine's C++ compiler.
fn host_compiler(nvcc: &Path, environment: &Environment) -> Result<HostCompiler, ToolkitError> {
    let ask = |program: Option<&Path>| {
        let mut command = environment.command(nvcc);
        if let Some(program) = program {
            command.arg("-ccbin").arg(program);
        }
        let output = command
            .args(["--dryrun", "-cubin", "probe.cu"])
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = text.lines().find(|line| line.contains(" -E "))?;
        let used = line.trim_start_matches("#$").trim_start();
        let used = match used.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next()?,
            None => used.split(' ').next()?,
        };
        let answer = environment.command(used).arg("--version").output().ok()?;
        let version = String::from_utf8_lossy(&answer.stdout)
            .lines()
            .next()?
            .to_owned();
        Some(HostCompiler {
            program: used.into(),
            version,
            explicit: program.is_some(),
        })
    };
    if let Some(host) = ask(None) {
        return Ok(host);
    }
    let named = environment.text("CXX");
    let candidates = named
        .as_deref()
        .into_iter()
        .chain(["c++", "g++", "clang++"]);
    let found = candidates
        .clone()
        .filter_map(|name| environment.program(name))
        .find_map(|path| ask(Some(&path)));
    found.ok_or_else(|| ToolkitError::HostCompiler {
        nvcc: nvcc.to_path_buf(),
        wanted: format!("tried gcc {}", candidates.collect::<Vec<_>>().join(" ")),
    })
}
