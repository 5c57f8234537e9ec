//! The committed header is the one that follows from the source.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};

/// The modules in the order of the header, each with the heading of its functions.
const MODULES: &[(&str, &str)] = &[
    ("lib", "version"),
    ("status", "failures"),
    ("contract", "contracts: no device is needed"),
    ("archive", "archives and images: no device is needed"),
    ("device", "devices and their kernels"),
    ("buffer", "device memory"),
    ("queue", "queues"),
    ("graph", "graphs"),
    ("list", "command lists"),
    ("upload", "model weights"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn header_path() -> PathBuf {
    root().join("include/zinc_cuda.h")
}

fn source(module: &str) -> PathBuf {
    root().join(format!("src/{module}.rs"))
}

/// The header as it follows from the source.
fn generated() -> String {
    let mut config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    config.header = Some(
        std::fs::read_to_string(root().join("header.txt"))
            .unwrap()
            .trim_end()
            .to_owned(),
    );
    // One source, because cbindgen sorts several by their names.
    let module = |(name, _): &(&str, &str)| {
        let text = std::fs::read_to_string(source(name)).unwrap();
        format!("mod {name} {{\n{text}\n}}\n")
    };
    let dir = tempfile::tempdir().unwrap();
    let all = dir.path().join("all.rs");
    std::fs::write(&all, MODULES.iter().map(module).collect::<String>()).unwrap();
    let builder = cbindgen::Builder::new().with_config(config).with_src(all);
    let mut bytes = Vec::new();
    builder.generate().unwrap().write(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    MODULES.iter().fold(text, |text, (module, heading)| {
        with_heading(&text, &first_function(module), heading)
    })
}

/// The name of a module's first exported function.
fn first_function(module: &str) -> String {
    let text = std::fs::read_to_string(source(module)).unwrap();
    let start = text.find("extern \"C\" fn ").unwrap() + "extern \"C\" fn ".len();
    let name = &text[start..];
    name[..name.find('(').unwrap()].to_owned()
}

/// Puts a heading before the comment of a function.
fn with_heading(text: &str, function: &str, heading: &str) -> String {
    let call = format!("{function}(");
    let is_comment = |line: &str| line.starts_with("//");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let end_of_head = lines
        .iter()
        .position(|line| line == "#ifndef ZINC_CUDA_H")
        .unwrap();
    let declared = lines[end_of_head..]
        .iter()
        .position(|line| !is_comment(line) && line.contains(&call))
        .unwrap();
    let mut at = end_of_head + declared;
    while is_comment(&lines[at - 1]) {
        at -= 1;
    }
    lines.insert(at, format!("// ---- {heading} ----\n"));
    lines.join("\n") + "\n"
}

#[test]
fn committed_header_is_that_of_the_source() {
    let committed = std::fs::read_to_string(header_path()).unwrap();
    assert!(
        committed == generated(),
        "include/zinc_cuda.h is outdated: cargo test -p zinc-capi --test header -- --ignored"
    );
}

#[test]
#[ignore = "rewrites include/zinc_cuda.h"]
fn rewrite_the_header() {
    std::fs::write(header_path(), generated()).unwrap();
}
