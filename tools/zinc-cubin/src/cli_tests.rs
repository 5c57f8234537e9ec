use std::path::{Path, PathBuf};

use clap::FromArgMatches;

use super::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The commands of this program in the `sh` blocks of a Markdown text, each as its arguments.
fn commands(markdown: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    let mut in_block = false;
    let mut line = String::new();
    for text in markdown.lines().map(str::trim) {
        if let Some(language) = text.strip_prefix("```") {
            in_block = !in_block && language == "sh";
            continue;
        }
        if !in_block {
            continue;
        }
        match text.strip_suffix('\\') {
            Some(start) => line.push_str(start),
            None => {
                let whole = std::mem::take(&mut line) + text;
                commands.extend(arguments(&whole));
            }
        }
    }
    commands
}

/// The arguments of a command line up to the first pipe, redirection or comment, if it runs this program.
fn arguments(line: &str) -> Option<Vec<String>> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for character in line.trim_start_matches("$ ").chars() {
        let last = words.last_mut()?;
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (None, '\'' | '"') => quote = Some(character),
            (None, ' ') if last.is_empty() => {}
            (None, ' ') => words.push(String::new()),
            (None, '|' | '>' | '<' | ';' | '&') => break,
            (None, '#') if last.is_empty() => break,
            _ => last.push(character),
        }
    }
    words.retain(|word| !word.is_empty());
    let program = Path::new(words.first()?).file_name()?;
    (program == "zinc-cubin").then_some(words)
}

#[test]
fn definitions_are_consistent() {
    command().debug_assert();
}

#[test]
fn commands_of_a_text_are_found() {
    let text = "zinc-cubin outside\n```sh\ntarget/release/zinc-cubin list --name 'a b' | head\ncargo build\n\
                zinc-cubin run \\\n  --fixture x # why\n```\n```text\nzinc-cubin no\n```\n";
    let wanted: [&[&str]; 2] = [
        &["target/release/zinc-cubin", "list", "--name", "a b"],
        &["zinc-cubin", "run", "--fixture", "x"],
    ];
    assert_eq!(commands(text), wanted);
}

#[test]
fn commands_of_the_readme_are_accepted_and_name_what_exists() {
    let readme = root().join("README.md");
    let text = std::fs::read_to_string(&readme).unwrap();
    let commands = commands(&text);
    assert!(!commands.is_empty(), "the README shows no command");
    for words in commands {
        let shown = words.join(" ");
        let matches = super::command()
            .try_get_matches_from(&words)
            .unwrap_or_else(|error| panic!("README: {shown}: {error}"));
        let cli = Cli::from_arg_matches(&matches).unwrap();
        let kernels = match &cli.command {
            Command::Show(show) => vec![&show.kernel],
            Command::Run(run) => run.kernel.iter().collect(),
            Command::Verify(verify) => verify.kernels.iter().collect(),
            _ => Vec::new(),
        };
        for kernel in kernels {
            let known = zinc_contract::kernel(kernel);
            assert!(known.is_ok(), "README: {shown}: {}", known.unwrap_err());
        }
        if let Command::Run(Run {
            fixture: Some(fixture),
            ..
        }) = &cli.command
            && fixture.starts_with("tests")
        {
            let there = root().join(fixture).exists();
            assert!(there, "README: {shown}: no such file");
        }
    }
}

#[test]
fn help_of_every_command_names_the_exit_codes() {
    let mut command = command();
    assert!(command.render_long_help().to_string().contains(EXIT_CODES));
    let subcommands = command.get_subcommands_mut();
    for sub in subcommands.filter(|sub| sub.get_name() != "help") {
        for help in [sub.render_help(), sub.render_long_help()] {
            let help = help.to_string();
            assert!(help.contains(EXIT_CODES), "{}: {help}", sub.get_name());
        }
    }
}
