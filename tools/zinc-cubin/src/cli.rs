//! The command line: every argument, with the help text that also makes the man pages and completions.

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

const EXIT_CODES: &str =
    "Exit codes: 0 good, 1 a check failed, 2 wrong usage or input, 3 no device.";

/// Lists, shows, runs and verifies the CUDA kernels that this binary carries
///
/// Nothing here needs a CUDA toolkit or a network. Without an NVIDIA driver the kernels run on the emulator: the
/// same sources, compiled for this CPU.
#[derive(Debug, Parser)]
#[command(name = "zinc-cubin", version, after_help = EXIT_CODES, max_term_width = 110)]
#[command(
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// Options that every command takes.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The whole command line; the help of every command ends with the exit codes.
pub fn command() -> clap::Command {
    Cli::command().mut_subcommands(|command| command.after_help(EXIT_CODES))
}

/// Options that every command takes.
#[derive(Debug, Args)]
pub struct Global {
    /// Print one JSON object on standard output instead of text for people
    #[arg(long, global = true)]
    pub json: bool,
    /// Use this archive of kernels instead of the embedded one
    #[arg(long, global = true, value_name = "FILE", env = "ZINC_ARCHIVE")]
    pub archive: Option<PathBuf>,
    /// Colour on standard output
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = ColorWhen::Auto)]
    pub color: ColorWhen,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the kernels with their families, architectures and sizes
    List(List),
    /// Show one kernel: its contract, and registers, shared memory, spills, size and hash per architecture
    Show(Show),
    /// Run one kernel on a fixture, or on a tensor of a GGUF model, and compare with the reference
    Run(Run),
    /// Run the kernels over their table of cases and compare each result with the reference
    Verify(Verify),
    /// Time the kernels at real shapes, check their results, and measure the host side of a dispatch
    Bench(Bench),
    /// Write cubins, fatbins, PTX or the whole archive to a folder
    Export(Export),
    /// Say what driver, devices and architectures there are, and what would be loaded
    Doctor(Doctor),
    /// Print a shell completion script
    Completions(Completions),
    /// Print the man page, or write one page per command to a folder
    Man(Man),
}

/// Which kernels a command is about.
#[derive(Debug, Args)]
pub struct Filter {
    /// Only kernels whose name contains this text (may be repeated; any of them)
    #[arg(long, value_name = "TEXT")]
    pub name: Vec<String>,
    /// Only kernels of this family (may be repeated)
    #[arg(long, value_name = "FAMILY")]
    pub family: Vec<String>,
    /// Only targets of this architecture, as 90 or sm_90 (may be repeated)
    #[arg(long, value_name = "ARCH")]
    pub arch: Vec<String>,
}

/// Arguments of `list`.
#[derive(Debug, Args)]
pub struct List {
    /// Which kernels.
    #[command(flatten)]
    pub filter: Filter,
    /// Also list the kernels beyond the engine's own set
    #[arg(long)]
    pub extended: bool,
    /// Also list the kernels that have a contract but no code yet, with the reason
    #[arg(long)]
    pub pending: bool,
}

/// Arguments of `show`.
#[derive(Debug, Args)]
pub struct Show {
    /// The kernel's name, as `list` prints it
    pub kernel: String,
}

/// Where something runs.
#[derive(Debug, Args)]
pub struct DeviceArg {
    /// auto (a GPU if there is one), cpu (the emulator), gpu, or gpu:N (the driver's ordinal N)
    #[arg(
        long,
        value_name = "DEVICE",
        default_value = "auto",
        env = "ZINC_CUBIN_DEVICE"
    )]
    pub device: String,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("input").required(true).args(["fixture", "gguf"]))]
pub struct Run {
    /// The kernel; left out, the fixture names it, or the tensor's type decides
    pub kernel: Option<String>,
    /// A safetensors fixture: initial buffers, push fields and expected results
    #[arg(long, value_name = "FILE")]
    pub fixture: Option<PathBuf>,
    /// A GGUF model file; the tensor is multiplied with a seeded random vector
    #[arg(long, value_name = "FILE", requires = "tensors")]
    pub gguf: Option<PathBuf>,
    /// The tensor of the GGUF file
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "fixture",
        group = "tensors"
    )]
    pub tensor: Option<String>,
    /// The smallest matrix of each type in the GGUF file that a kernel reads
    #[arg(long, conflicts_with_all = ["fixture", "kernel", "out"], group = "tensors")]
    pub each_type: bool,
    /// Seed of the random vector
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        conflicts_with = "fixture"
    )]
    pub seed: u64,
    /// Write all buffers after the run to this safetensors file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// How many timed runs; the median is reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Where it runs.
    #[command(flatten)]
    pub device: DeviceArg,
}

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// Only these kernels
    pub kernels: Vec<String>,
    /// Only kernels of this family (may be repeated)
    #[arg(long, value_name = "FAMILY")]
    pub family: Vec<String>,
    /// Only cases whose label contains this text
    #[arg(long, value_name = "TEXT")]
    pub case: Option<String>,
    /// Also run the large cases on the emulator (a GPU always runs them)
    #[arg(long)]
    pub heavy: bool,
    /// Leave the large cases out on a GPU too (for slow tools such as a memory checker)
    #[arg(long, conflicts_with = "heavy")]
    pub light: bool,
    /// Give buffers no guard zones, so that a memory checker sees every access past an end (GPU only)
    #[arg(long)]
    pub no_guards: bool,
    /// Run each case so many times and require the same bits every time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Also run each case on the emulator and require the same bits, as kernels with exact integer sums give them
    #[arg(long)]
    pub same_bits: bool,
    /// Check the archive alone: every hash, every entry and every parameter layout; needs no device
    #[arg(long = "static", conflicts_with_all = ["heavy", "light", "case", "report"])]
    pub static_only: bool,
    /// Write a JSON report to this file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Where it runs.
    #[command(flatten)]
    pub device: DeviceArg,
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// Only these kernels; `host` stands for the host side: dispatch cost, loading, first result
    #[arg(value_name = "KERNEL")]
    pub kernels: Vec<String>,
    /// Only kernels whose name contains this text (may be repeated; any of them)
    #[arg(long, value_name = "TEXT")]
    pub filter: Vec<String>,
    /// Only kernels of this family (may be repeated)
    #[arg(long, value_name = "FAMILY")]
    pub family: Vec<String>,
    /// Only rows whose shape contains this text
    #[arg(long, value_name = "TEXT")]
    pub shape: Option<String>,
    /// Fewer replays; with --device cpu, small shapes on the emulator, which checks the results and times nothing
    #[arg(long)]
    pub quick: bool,
    /// Write a JSON report to this file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write the rows to this CSV file
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a page with a roofline plot and a bar chart per family to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// What the host section starts in a process of its own: opens the device, runs one kernel, says what took how long
    #[arg(long, hide = true)]
    pub first_result: bool,
    /// Where it runs.
    #[command(flatten)]
    pub device: DeviceArg,
}

/// What `export` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportKind {
    /// One cubin per kernel and architecture.
    Cubin,
    /// One fatbin per kernel with all its architectures.
    Fatbin,
    /// The PTX of the newest architecture.
    Ptx,
    /// The whole archive, for building without nvcc (ZINC_CUBINS).
    Archive,
    /// The C headers: the push blocks of the kernels, and the C interface.
    Header,
}

/// Arguments of `export`.
#[derive(Debug, Args)]
pub struct Export {
    /// The folder to write to; made when missing
    pub folder: PathBuf,
    /// What to write (may be repeated, or separated by commas); all when left out
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KIND")]
    pub what: Vec<ExportKind>,
    /// Which kernels.
    #[command(flatten)]
    pub filter: Filter,
    /// Overwrite files that exist
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub struct Man {
    /// Write one page per command to this folder instead of the main page to standard output
    pub folder: Option<PathBuf>,
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
