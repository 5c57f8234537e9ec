//! Compiles translation units in parallel, each only if it, something that it includes or its command has changed.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, io, thread};

/// One translation unit.
pub struct Unit {
    /// Its name, which is also that of its object file.
    pub name: String,
    source: PathBuf,
}

impl Unit {
    /// The unit `name` with this source file.
    pub fn new(name: &str, source: &Path) -> Unit {
        Unit {
            name: name.to_owned(),
            source: source.to_owned(),
        }
    }
}

/// The host's C++ compiler with the flags of the emulator.
pub struct Compiler {
    tool: cc::Tool,
    objects: PathBuf,
    jobs: usize,
}

impl Compiler {
    /// A compiler that puts objects into `objects`. Source locations are relative to `root`.
    pub fn new(
        objects: &Path,
        root: &Path,
        include: &[PathBuf],
        sanitizers: &[String],
    ) -> io::Result<Compiler> {
        fs::create_dir_all(objects)?;
        // Instrumented code takes twice as long to optimize fully, and is slow whatever is done.
        let opt_level = if sanitizers.is_empty() { 2 } else { 1 };
        let mut build = cc::Build::new();
        build
            .cpp(true)
            .std("c++17")
            .opt_level(opt_level)
            .debug(false)
            .warnings(false)
            .includes(include)
            .define("ZINC_EMULATOR", None)
            .flag(format!("-ffile-prefix-map={}/=", root.display()));
        let flags = [
            "-x",
            "c++",
            // The arithmetic that a kernel spells out, and nothing else.
            "-ffp-contract=off",
            "-fno-strict-aliasing",
            "-fsigned-char",
            // A coroutine that is abandoned is not unwound.
            "-fno-exceptions",
            "-fno-rtti",
            "-Wall",
            // What kernels have for nvcc, or use on some architectures only.
            "-Wno-unknown-pragmas",
            "-Wno-unused",
        ];
        for flag in flags {
            build.flag(flag);
        }
        if !sanitizers.is_empty() {
            build
                .flag(format!("-fsanitize={}", sanitizers.join(",")))
                .flag("-fno-sanitize-recover=all")
                .flag("-g1");
        }
        let jobs = env::var("NUM_JOBS").ok().and_then(|jobs| jobs.parse().ok());
        Ok(Compiler {
            tool: build.get_compiler(),
            objects: objects.to_owned(),
            jobs: jobs.unwrap_or(1),
        })
    }

    /// Compiles the units: for each its object file, or what the compiler said.
    pub fn compile(&self, units: &[Unit]) -> io::Result<Vec<Result<PathBuf, String>>> {
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..self.jobs.clamp(1, units.len().max(1)) {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(unit) = units.get(index) else { break };
                        let result = self.compile_one(unit);
                        if let Ok(mut results) = results.lock() {
                            results.push((index, result));
                        }
                    }
                });
            }
        });
        let mut results = results.into_inner().unwrap_or_default();
        results.sort_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }

    fn compile_one(&self, unit: &Unit) -> io::Result<Result<PathBuf, String>> {
        let object = self.objects.join(format!("{}.o", unit.name));
        let inputs = self.objects.join(format!("{}.d", unit.name));
        let key = self.objects.join(format!("{}.key", unit.name));
        let mut command = self.command(unit, &object, &inputs);
        let made_from = fingerprint(&command, &inputs);
        if object.exists() && made_from.is_some() && fs::read_to_string(&key).ok() == made_from {
            return Ok(Ok(object));
        }
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            let _ = fs::remove_file(&key);
            return Ok(Err(text.into_owned()));
        }
        for line in text.lines() {
            println!("cargo::warning={line}");
        }
        if let Some(made_from) = fingerprint(&command, &inputs) {
            fs::write(&key, made_from)?;
        }
        Ok(Ok(object))
    }

    fn command(&self, unit: &Unit, object: &Path, inputs: &Path) -> Command {
        let mut command = self.tool.to_command();
        command
            .args(["-MMD", "-MF"])
            .arg(inputs)
            .arg("-c")
            .arg(&unit.source)
            .arg("-o")
            .arg(object);
        command
    }
}

/// A digest of a command and the files that its last run read; `None` if there was none or a file is gone.
fn fingerprint(command: &Command, inputs: &Path) -> Option<String> {
    let mut hasher = DefaultHasher::new();
    format!("{command:?}").hash(&mut hasher);
    let list = fs::read_to_string(inputs).ok()?.replace("\\\n", " ");
    // One rule, `object: file file ...`, with spaces in names escaped.
    let (_, files) = list.split_once(": ")?;
    for file in files.replace("\\ ", "\0").split_whitespace() {
        let file = file.replace('\0', " ");
        fs::read(&file).ok()?.hash(&mut hasher);
    }
    Some(format!("{:016x}", hasher.finish()))
}
