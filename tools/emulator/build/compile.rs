//! Compiles translation units in parallel, each only if it, something that it includes or its command has changed since the
//! last build, and only if no checkout of this user compiled the same text before.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, io, thread};

use content_cache::{Cache, Key};

/// Above this size the objects that were not used for longest are removed.
const LIMIT: u64 = 512 << 20;

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
    shared: Option<Shared>,
}

/// The objects of all checkouts of this user.
struct Shared {
    cache: Cache,
    /// The compiler and all flags that the text after preprocessing does not show.
    command: String,
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
        let tool = build.get_compiler();
        // Instrumented objects name their sources, which differ by checkout.
        let shared = match sanitizers {
            [] => Shared::of(&tool, include, root),
            _ => None,
        };
        Ok(Compiler {
            tool,
            objects: objects.to_owned(),
            jobs: jobs.unwrap_or(1),
            shared,
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
        if let Some(shared) = &self.shared {
            // A cache that cannot be trimmed costs space and nothing else.
            let _ = shared.cache.trim(LIMIT);
        }
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
        let shared = self.shared.as_ref().zip(self.shared_key(unit, &inputs)?);
        if let Some(known) = shared.and_then(|(shared, key)| shared.cache.get(key)) {
            fs::write(&object, known)?;
            self.note(&command, &inputs, &key)?;
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
        // What was warned about is compiled, and so warned about, in every checkout. A cache that cannot be written costs
        // time and nothing else.
        if let Some((shared, key)) = shared.filter(|_| text.is_empty()) {
            let _ = shared.cache.put(key, &[&fs::read(&object)?]);
        }
        self.note(&command, &inputs, &key)?;
        Ok(Ok(object))
    }

    /// Records what an object was made from.
    fn note(&self, command: &Command, inputs: &Path, key: &Path) -> io::Result<()> {
        match fingerprint(command, inputs) {
            Some(made_from) => fs::write(key, made_from),
            None => Ok(()),
        }
    }

    /// The key of a unit among the objects of all checkouts, from the text that the compiler sees after preprocessing;
    /// `None` if there is no such cache or the text does not preprocess. Writes the list of inputs.
    fn shared_key(&self, unit: &Unit, inputs: &Path) -> io::Result<Option<Key>> {
        let Some(shared) = &self.shared else {
            return Ok(None);
        };
        let mut command = self.tool.to_command();
        command
            .args(["-E", "-P", "-MMD", "-MF"])
            .arg(inputs)
            .args(["-MT", "object"])
            .arg(&unit.source);
        let output = command.output()?;
        let key = || Key::of(&[shared.command.as_bytes(), &output.stdout]);
        Ok(output.status.success().then(key))
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

impl Shared {
    /// The cache, where there is a place for one and the compiler says what it is.
    fn of(tool: &cc::Tool, include: &[PathBuf], root: &Path) -> Option<Shared> {
        for variable in content_cache::VARIABLES {
            println!("cargo::rerun-if-env-changed={variable}");
        }
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let folder = content_cache::user_folder(|name| set(name).map(PathBuf::from))?;
        let version = Command::new(tool.path()).arg("--version").output().ok()?;
        let version = String::from_utf8(version.stdout).ok()?;
        // Where this checkout lies shows in the text if it matters.
        let places = include.iter().map(PathBuf::as_path).chain([root]);
        let places = Vec::from_iter(places.filter_map(Path::to_str));
        let flags = tool.args().iter().map(|flag| flag.to_string_lossy());
        let flags = flags.filter(|flag| !places.iter().any(|place| flag.contains(place)));
        let command = flags.fold(version, |command, flag| command + "\n" + &flag);
        Some(Shared {
            cache: Cache::new(folder.join("emulator"), "zinc-cuda object 1"),
            command,
        })
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
