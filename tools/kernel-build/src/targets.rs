//! Decides what a build compiles for: `ZINC_CUDA_ARCHS` against what nvcc can do.

use std::collections::BTreeSet;
use std::path::Path;
use std::str::FromStr;

use cubin_format::{Arch, ArchError, ImageKind, Suffix, Target};

use crate::environment::{Environment, is_executable};
use crate::toolkit::Toolkit;

/// Machine code for these covers every GPU from Turing to Blackwell, by compatibility inside a major revision.
pub const DEFAULT: [u32; 7] = [75, 80, 86, 89, 90, 100, 120];

/// The architecture whose PTX is assembled for `target`: of those of [`DEFAULT`] in its major revision and not above it the
/// lowest from which on code with these bounds stays the same, so that the front end, which takes longest, runs once for
/// several. Else its own.
pub fn front_end(target: Target, bounds: &BTreeSet<u32>, toolkit: &Toolkit) -> Arch {
    let own = target.arch;
    if target.kind == ImageKind::Ptx || own.suffix() != Suffix::None {
        return own;
    }
    let same = |low: &u32| bounds.range(low + 1..=own.number()).next().is_none();
    DEFAULT
        .into_iter()
        .filter(|low| *low < own.number())
        .filter(same)
        .filter_map(|low| Arch::new(low, Suffix::None).ok())
        .find(|low| low.major() == own.major() && toolkit.virtuals.contains(low))
        .unwrap_or(own)
}

/// Why `ZINC_CUDA_ARCHS` cannot be met.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A word of the list is no architecture.
    #[error("ZINC_CUDA_ARCHS={text}: wanted default, all, native, or a list such as 89,120 or 90a")]
    Syntax {
        /// The whole value.
        text: String,
        /// What is wrong.
        source: ArchError,
    },
    /// nvcc cannot compile for an architecture that was asked for.
    #[error("{toolkit} cannot compile for sm_{arch}; it can do {}", names(can))]
    Unsupported {
        /// The architecture.
        arch: Arch,
        /// The nvcc and its build.
        toolkit: String,
        /// What it can do.
        can: Vec<Arch>,
    },
    /// `native` was asked for and no tool reports a GPU.
    #[error(
        "ZINC_CUDA_ARCHS=native: no GPU found ({tried}); name architectures instead, such as 89,120"
    )]
    NoGpu {
        /// What was asked and what it answered.
        tried: String,
    },
    /// nvcc can compile for nothing that is wanted.
    #[error(
        "{toolkit} can compile for none of the default architectures {}; it can do {}",
        names(wanted),
        names(can)
    )]
    Nothing {
        /// The nvcc and its build.
        toolkit: String,
        /// What was wanted.
        wanted: Vec<Arch>,
        /// What it can do.
        can: Vec<Arch>,
    },
}

fn names(archs: &[Arch]) -> String {
    archs
        .iter()
        .map(Arch::to_string)
        .collect::<Vec<_>>()
        .join(" ")
}

/// What `ZINC_CUDA_ARCHS` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// [`DEFAULT`]; what this nvcc cannot do is left out with a warning.
    Default,
    /// Everything that this nvcc can do.
    All,
    /// The GPUs of this machine.
    Native,
    /// Exactly these.
    List(BTreeSet<Arch>),
}

impl FromStr for Request {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        match text.trim() {
            "default" | "" => Ok(Self::Default),
            "all" => Ok(Self::All),
            "native" => Ok(Self::Native),
            list => {
                let archs = list
                    .split([',', ' '])
                    .filter(|word| !word.is_empty())
                    .map(Arch::from_str);
                let archs = archs.collect::<Result<_, _>>();
                archs.map(Self::List).map_err(|source| TargetError::Syntax {
                    text: text.to_owned(),
                    source,
                })
            }
        }
    }
}

/// What a build compiles for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Targets {
    /// Machine code, ascending, then the PTX of the newest.
    pub targets: Vec<Target>,
    /// Architectures of the default list that this nvcc cannot do.
    pub skipped: Vec<Arch>,
}

impl Targets {
    /// Of `numbers`, architectures for exactly which some kernel has code of its own (suffix `a`), those that are targets:
    /// what nvcc can compile for them, and what it cannot.
    pub fn specific(
        &self,
        numbers: impl IntoIterator<Item = u32>,
        toolkit: &Toolkit,
    ) -> (BTreeSet<Target>, BTreeSet<Target>) {
        let code = |target: &&Target| target.kind == ImageKind::Sass;
        let compiled: BTreeSet<u32> = self
            .targets
            .iter()
            .filter(code)
            .map(|target| target.arch.number())
            .collect();
        let wanted: BTreeSet<u32> = numbers.into_iter().collect();
        wanted
            .intersection(&compiled)
            .filter_map(|number| Arch::new(*number, Suffix::A).ok())
            .map(Arch::sass)
            .partition(|target| toolkit.supports(target.arch))
    }
}

impl Request {
    /// The request of an environment: `ZINC_CUDA_ARCHS`, else the default list.
    ///
    /// # Errors
    /// `Syntax`.
    pub fn of(environment: &Environment) -> Result<Self, TargetError> {
        environment
            .text("ZINC_CUDA_ARCHS")
            .unwrap_or_default()
            .parse()
    }

    /// The targets that meet this request with `toolkit`. PTX is that of the newest architecture, without a suffix, so that
    /// later GPUs can run it.
    ///
    /// # Errors
    /// An architecture that nvcc cannot do, unless it comes from the default list; `native` without a GPU.
    pub fn targets(&self, toolkit: &Toolkit) -> Result<Targets, TargetError> {
        let plain =
            |number| Arch::new(number, Suffix::None).expect("the default list holds valid numbers");
        let mut skipped = Vec::new();
        let archs: BTreeSet<Arch> = match self {
            Self::Default => {
                let wanted = DEFAULT.map(plain).into_iter();
                let (can, cannot): (Vec<_>, Vec<_>) =
                    wanted.partition(|arch| toolkit.supports(*arch));
                skipped = cannot;
                can.into_iter().collect()
            }
            Self::All => toolkit.codes.iter().copied().collect(),
            Self::Native => native(&toolkit.environment, &toolkit.nvcc)?,
            Self::List(archs) => archs.clone(),
        };
        let unsupported = |arch| TargetError::Unsupported {
            arch,
            toolkit: toolkit.to_string(),
            can: toolkit.codes.clone(),
        };
        if let Some(arch) = archs.iter().find(|arch| !toolkit.supports(**arch)) {
            return Err(unsupported(*arch));
        }
        let newest = archs
            .iter()
            .next_back()
            .ok_or_else(|| TargetError::Nothing {
                toolkit: toolkit.to_string(),
                wanted: DEFAULT.map(plain).to_vec(),
                can: toolkit.codes.clone(),
            })?;
        let virtual_arch =
            Arch::new(newest.number(), Suffix::None).map_err(|_| unsupported(*newest))?;
        if !toolkit.virtuals.contains(&virtual_arch) {
            return Err(unsupported(virtual_arch));
        }
        let targets = archs
            .iter()
            .map(|arch| arch.sass())
            .chain([virtual_arch.ptx()])
            .collect();
        Ok(Targets { targets, skipped })
    }
}

/// The architectures of this machine's GPUs, from the driver's nvidia-smi or else the toolkit's own query tool.
fn native(environment: &Environment, nvcc: &Path) -> Result<BTreeSet<Arch>, TargetError> {
    let mut tried = Vec::new();
    let smi = environment.program("nvidia-smi").or_else(|| {
        let windows = Path::new("/usr/lib/wsl/lib/nvidia-smi");
        is_executable(windows).then(|| windows.to_path_buf())
    });
    let query = nvcc
        .parent()
        .map(|folder| folder.join("__nvcc_device_query"))
        .filter(|path| is_executable(path));
    let smi_arguments: &[&str] = &["--query-gpu=compute_cap", "--format=csv,noheader"];
    for (name, program, arguments) in [
        ("nvidia-smi", smi, smi_arguments),
        ("__nvcc_device_query", query, &[]),
    ] {
        let Some(program) = program else {
            tried.push(format!("{name}: not found"));
            continue;
        };
        let text = match environment.command(program).args(arguments).output() {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(error) => error.to_string(),
        };
        // Capabilities are printed as 9.0 by the one and as 90 by the other.
        let words = text
            .split(['\n', ',', ' '])
            .map(|word| word.trim().replace('.', ""));
        let archs: BTreeSet<Arch> = words.filter_map(|word| word.parse().ok()).collect();
        if !archs.is_empty() {
            return Ok(archs);
        }
        tried.push(format!("{name}: {:?}", text.trim()));
    }
    Err(TargetError::NoGpu {
        tried: tried.join("; "),
    })
}
