//! Help, version, completions and man pages.

use crate::common::{WRONG_INPUT, names, run};

const COMMANDS: [&str; 9] = [
    "list",
    "show",
    "run",
    "verify",
    "bench",
    "export",
    "doctor",
    "completions",
    "man",
];
const EXIT_CODES: &str =
    "Exit codes: 0 good, 1 a check failed, 2 wrong usage or input, 3 no device.";

#[test]
fn help_lists_every_command_and_the_exit_codes() {
    let help = run(["--help"]);
    for command in COMMANDS {
        let row = format!("\n  {command} ");
        assert!(
            help.good().contains(&row),
            "{command} is missing in {help:?}"
        );
    }
    assert!(help.stdout.contains(EXIT_CODES), "{help:?}");
}

#[test]
fn help_of_every_command_works_and_names_the_exit_codes() {
    for command in COMMANDS {
        for arguments in [[command, "--help"], [command, "-h"], ["help", command]] {
            let help = run(arguments);
            let usage = format!("Usage: zinc-cubin {command}");
            assert!(help.good().contains(&usage), "{help:?}");
            assert!(help.stdout.contains(EXIT_CODES), "{help:?}");
        }
    }
}

#[test]
fn wrong_usage_is_exit_code_2_on_standard_error() {
    for (arguments, text) in [
        ([].as_slice(), "Usage: zinc-cubin"),
        (&["compile"], "'compile'"),
        (&["list", "--no-such-option"], "--no-such-option"),
        (&["show"], "<KERNEL>"),
        (&["list", "--color", "pink"], "'pink'"),
        (&["completions", "cmd"], "bash"),
    ] {
        run(arguments).refused(WRONG_INPUT, [text]);
    }
}

#[test]
fn version_says_what_is_embedded() {
    let archive = zinc_cuda::archive().unwrap();
    let version = run(["--version"]);
    let metadata = archive.metadata();
    let count = format!("{} kernels", archive.kernels().len());
    for part in [
        env!("CARGO_PKG_VERSION"),
        &count,
        &metadata.compiler,
        &metadata.source_hash.to_string(),
    ] {
        assert!(
            version.good().contains(part),
            "{part} is missing in {version:?}"
        );
    }
}

#[test]
fn completions_of_every_shell_know_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = run(["completions", shell]);
        for command in COMMANDS {
            assert!(script.good().contains(command), "{shell}: {command}");
        }
        assert!(script.stdout.contains("gguf"), "{shell} lacks options");
    }
}

#[test]
fn man_page_is_printed_and_one_per_command_is_written() {
    let page = run(["man"]);
    assert!(page.good().contains(".TH zinc-cubin 1"), "{page:?}");
    assert!(page.stdout.contains("Exit codes"), "{page:?}");

    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("man1");
    run(["man", folder.to_str().unwrap()]).good();
    let pages = names(&folder);
    assert!(pages.contains(&"zinc-cubin.1".to_owned()), "{pages:?}");
    for command in COMMANDS {
        let name = format!("zinc-cubin-{command}.1");
        assert!(pages.contains(&name), "{pages:?}");
        let text = std::fs::read_to_string(folder.join(&name)).unwrap();
        assert!(
            text.contains(".TH") && text.contains("Exit codes"),
            "{name}: {text}"
        );
    }
}
