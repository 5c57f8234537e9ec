//! `zinc-cubin`: lists, shows, runs and verifies the CUDA kernels that this binary carries.

mod cli;
mod commands;
mod context;
mod failure;
mod output;
mod target;

use std::process::ExitCode;

use clap::FromArgMatches;

use cli::{Cli, Command};
use context::Context;
use failure::Outcome;
use zinc_runtime::Driver;

fn main() -> ExitCode {
    // SAFETY: this is the only thread. Every command has one stream.
    unsafe { Driver::prefer_one_connection() };
    let command = cli::command().long_version(long_version());
    let cli = match command
        .try_get_matches()
        .and_then(|matches| Cli::from_arg_matches(&matches))
    {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("zinc-cubin: {failure}");
            failure.exit_code()
        }
    }
}

fn run(cli: &Cli) -> Outcome {
    let context = || Context::open(&cli.global);
    match &cli.command {
        Command::Completions(arguments) => commands::generate::completions(arguments),
        Command::Man(arguments) => commands::generate::man(arguments),
        Command::List(arguments) => commands::list::run(&context()?, arguments),
        Command::Show(arguments) => commands::show::run(&context()?, arguments),
        Command::Run(arguments) => commands::run::run(&context()?, arguments),
        Command::Verify(arguments) => commands::verify::run(&context()?, arguments),
        Command::Bench(arguments) => commands::bench::run(&context()?, arguments),
        Command::Export(arguments) => commands::export::run(&context()?, arguments),
        Command::Doctor(_) => commands::doctor::run(&context()?),
    }
}

/// `--version`: this program's version, and what it carries.
fn long_version() -> String {
    match zinc_cuda::archive() {
        Ok(archive) => format!(
            "{}\n{} kernels, compiled by {}\nsources {}",
            env!("CARGO_PKG_VERSION"),
            archive.kernels().len(),
            archive.metadata().compiler,
            archive.metadata().source_hash
        ),
        Err(error) => format!(
            "{}\nthe embedded archive is damaged: {error}",
            env!("CARGO_PKG_VERSION")
        ),
    }
}
