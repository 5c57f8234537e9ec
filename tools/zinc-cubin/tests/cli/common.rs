//! Runs the program, and makes the files and the driver that it is given.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use zinc_contract::{KERNELS, Kernel};

/// Exit codes of the program.
pub const CHECK_FAILED: i32 = 1;
pub const WRONG_INPUT: i32 = 2;
pub const NO_DEVICE: i32 = 3;

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The program, with nothing set in its environment, and without a driver on any machine.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zinc-cubin"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ZINC_") {
            command.env_remove(name);
        }
    }
    command
        .env_remove("FAKE_CUDA")
        .env_remove("NO_COLOR")
        .env("ZINC_LIBCUDA", "/nowhere/libcuda.so.1");
    command
}

/// The program on a fake driver with these settings (`version=13000,devices=1,capability=90`).
pub fn on_driver(settings: &str) -> Command {
    let mut command = program();
    command
        .env("ZINC_LIBCUDA", fake_driver())
        .env("FAKE_CUDA", settings);
    command
}

/// The runtime's fake driver, compiled once per test program.
fn fake_driver() -> &'static Path {
    static COMPILED: OnceLock<PathBuf> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let runtime = root().join("runtime");
        let out = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("libcuda-fake-{}.so", std::process::id()));
        let status = Command::new("cc")
            .args(["-std=gnu11", "-O1", "-shared", "-fPIC", "-pthread"])
            .args(["-fvisibility=hidden", "-I"])
            .arg(runtime.join("shim"))
            .arg(runtime.join("tests/fake_driver/fake_driver.c"))
            .arg("-o")
            .arg(&out)
            .status()
            .unwrap();
        assert!(status.success(), "the fake driver does not compile");
        out
    })
}

/// How a run of the program ended.
pub struct Ended {
    shown: String,
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command to its end.
pub fn end(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let ended = Ended {
        shown: format!("{:?}", Vec::from_iter(command.get_args())),
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    };
    assert!(!ended.stderr.contains("panicked"), "{ended:?}");
    ended
}

/// Runs the program without a driver.
pub fn run<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ended {
    end(program().args(arguments))
}

impl std::fmt::Debug for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: exit code {}\nstdout: {}\nstderr: {}",
            self.shown, self.code, self.stdout, self.stderr
        )
    }
}

impl Ended {
    /// Standard output of a run that went well.
    #[track_caller]
    pub fn good(&self) -> &str {
        assert_eq!(self.code, 0, "{self:?}");
        &self.stdout
    }

    /// The JSON object of a run that went well.
    #[track_caller]
    pub fn json(&self) -> Value {
        self.good();
        self.object()
    }

    /// The JSON object on standard output, however the run ended.
    #[track_caller]
    pub fn object(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The run ended with this code, and standard error has all of these texts.
    #[track_caller]
    pub fn failed<S: AsRef<str>>(&self, code: i32, texts: impl IntoIterator<Item = S>) {
        assert_eq!(self.code, code, "{self:?}");
        for text in texts {
            let text = text.as_ref();
            assert!(
                self.stderr.contains(text),
                "{text:?} is missing in {self:?}"
            );
        }
    }

    /// As [`Ended::failed`], with nothing on standard output.
    #[track_caller]
    pub fn refused<S: AsRef<str>>(&self, code: i32, texts: impl IntoIterator<Item = S>) {
        self.failed(code, texts);
        assert_eq!(self.stdout, "", "{self:?}");
    }
}

/// The names of all files in a folder.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names = Vec::from_iter(entries.map(|e| name(e).into_string().unwrap()));
    names.sort();
    names
}

/// The kernels that have code.
pub fn implemented() -> impl Iterator<Item = &'static Kernel> {
    KERNELS.iter().filter(|kernel| kernel.pending.is_none())
}

/// The path of a kernel's fixture.
pub fn fixture_path(kernel: &str) -> PathBuf {
    root().join(format!("tests/fixtures/{kernel}.safetensors"))
}

/// A safetensors file to change, written by another library than the program's own.
pub struct File {
    pub metadata: HashMap<String, String>,
    pub tensors: BTreeMap<String, (Dtype, Vec<u8>)>,
}

impl File {
    /// The fixture of a kernel.
    pub fn fixture(kernel: &str) -> Self {
        Self::read(&fixture_path(kernel))
    }

    pub fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        Self {
            metadata: header.metadata().clone().unwrap_or_default(),
            tensors: tensors
                .tensors()
                .into_iter()
                .map(|(name, view)| (name, (view.dtype(), view.data().to_vec())))
                .collect(),
        }
    }

    /// Sets a string of the metadata.
    pub fn set(&mut self, key: &str, value: &str) {
        self.metadata.insert(key.to_owned(), value.to_owned());
    }

    /// A tensor as raw bytes.
    pub fn raw(&mut self, name: &str) -> &mut Vec<u8> {
        let (dtype, bytes) = self.tensors.get_mut(name).unwrap();
        *dtype = Dtype::U8;
        bytes
    }

    /// Writes the file.
    pub fn write(&self, path: &Path) {
        let views = self.tensors.iter().map(|(name, (dtype, bytes))| {
            let shape = vec![bytes.len() * 8 / dtype.bitsize()];
            (name, TensorView::new(*dtype, shape, bytes).unwrap())
        });
        let bytes = safetensors::serialize(views, Some(self.metadata.clone())).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}
