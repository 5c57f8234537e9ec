//! `zinc-cubin completions` and `zinc-cubin man`: made from the same definitions as `--help`.

use crate::cli::{self, Completions, Man};
use crate::failure::Outcome;
use crate::output;

/// Prints a shell's completion script.
pub fn completions(arguments: &Completions) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut cli::command(),
        "zinc-cubin",
        &mut script,
    );
    output::text(&String::from_utf8_lossy(&script))
}

/// Prints the main man page, or writes one page per command.
pub fn man(arguments: &Man) -> Outcome {
    match &arguments.folder {
        Some(folder) => {
            std::fs::create_dir_all(folder)?;
            clap_mangen::generate_to(cli::command(), folder)?;
            Ok(())
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(cli::command()).render(&mut page)?;
            output::text(&String::from_utf8_lossy(&page))
        }
    }
}
