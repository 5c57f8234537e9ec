//! The fake driver, and archives for it and for real devices.
#![allow(dead_code, missing_docs, reason = "each test file uses its own part")]

pub mod ptx;

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use cubin_format::archive::Payload;
use cubin_format::{Archive, ArchiveBuilder, Metadata, NewKernel, NewTarget, Resources};
use zinc_contract::{Kernel, kernel};
use zinc_runtime::{Buffer, Device, DeviceSelector, Driver, Library, Queue, QueueOptions};

/// The fake driver's library, compiled once per test program.
fn compiled() -> &'static [u8] {
    static COMPILED: OnceLock<Vec<u8>> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("fake.so");
        let status = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g"])
            .args(["-shared", "-fPIC", "-fvisibility=hidden", "-pthread"])
            .arg("-I")
            .arg(root.join("shim"))
            .arg(root.join("tests/fake_driver/fake_driver.c"))
            .arg("-o")
            .arg(&out)
            .status()
            .unwrap();
        assert!(status.success(), "the fake driver does not compile");
        std::fs::read(out).unwrap()
    })
}

/// What the fake driver keeps of a launch.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Launch {
    name: [u8; 64],
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub pointer_count: u32,
    pub push_bytes: u32,
    pub pointers: [u64; 16],
    pub push: [u8; 128],
    /// Whether it may start while the launch before it runs.
    pub overlap: u32,
    /// Blocks per cluster, 1 for none.
    pub cluster: u32,
}

impl Launch {
    pub fn name(&self) -> &str {
        let end = self.name.iter().position(|byte| *byte == 0).unwrap();
        std::str::from_utf8(&self.name[..end]).unwrap()
    }

    pub fn words(&self) -> Vec<u32> {
        let bytes = &self.push[..self.push_bytes as usize];
        bytes
            .chunks(4)
            .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
            .collect()
    }
}

/// A driver of the test's own.
pub struct Fake {
    library: libloading::Library,
    pub path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Fake {
    pub fn new() -> Self {
        Self::named("libcuda.so.1")
    }

    /// A fake whose path ends in `name`, which may have directories.
    pub fn named(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, compiled()).unwrap();
        // SAFETY: the fake's constructor reads an environment variable and no more.
        let library = unsafe { libloading::Library::new(&path) }.unwrap();
        Self {
            library,
            path,
            _dir: dir,
        }
    }

    pub fn set(&self, key: &str, value: i64) -> &Self {
        let key = CString::new(key).unwrap();
        // SAFETY: the fake declares the function so.
        unsafe {
            let set: libloading::Symbol<unsafe extern "C" fn(*const std::ffi::c_char, i64)> =
                self.library.get(b"fake_set").unwrap();
            set(key.as_ptr(), value);
        }
        self
    }

    /// Lets a function fail with `code` after `after` more calls that succeed.
    pub fn fail(&self, function: &str, code: i64, after: i64) {
        let function = CString::new(function).unwrap();
        // SAFETY: the fake declares the function so.
        unsafe {
            let fail: libloading::Symbol<unsafe extern "C" fn(*const std::ffi::c_char, i64, i64)> =
                self.library.get(b"fake_fail").unwrap();
            fail(function.as_ptr(), code, after);
        }
    }

    pub fn count(&self, what: &str) -> i64 {
        // SAFETY: the fake declares its counters so.
        unsafe {
            let get: libloading::Symbol<unsafe extern "C" fn() -> i64> =
                self.library.get(format!("fake_{what}").as_bytes()).unwrap();
            get()
        }
    }

    /// Live device (0) or pinned (1) allocations, or references to the context of a device.
    pub fn count_of(&self, what: &str, argument: i32) -> i64 {
        // SAFETY: the fake declares these counters so.
        unsafe {
            let get: libloading::Symbol<unsafe extern "C" fn(i32) -> i64> =
                self.library.get(format!("fake_{what}").as_bytes()).unwrap();
            get(argument)
        }
    }

    pub fn live_buffers(&self) -> i64 {
        self.count_of("live", 0)
    }

    pub fn advance(&self, steps: i64) {
        // SAFETY: the fake declares the function so.
        unsafe {
            let advance: libloading::Symbol<unsafe extern "C" fn(i64)> =
                self.library.get(b"fake_advance").unwrap();
            advance(steps);
        }
    }

    pub fn launches(&self) -> Vec<Launch> {
        // SAFETY: the fake declares the function so, and its records stay in place.
        unsafe {
            let get: libloading::Symbol<unsafe extern "C" fn(i64) -> *const Launch> =
                self.library.get(b"fake_launch").unwrap();
            (0..self.count("launches"))
                .map(|index| *get(index))
                .collect()
        }
    }

    pub fn driver(&self) -> Driver {
        Driver::load_from(&self.path).unwrap()
    }

    pub fn device(&self) -> Device {
        Device::open_with(&self.driver(), &DeviceSelector::Best).unwrap()
    }

    pub fn library(&self) -> Library {
        Library::new(&self.device(), vadd_archive(VADD)).unwrap()
    }

    pub fn queue(&self) -> Queue {
        Queue::new(&self.library()).unwrap()
    }

    pub fn queue_with_ring(&self, ring: usize) -> Queue {
        let options = QueueOptions {
            ring,
            ..QueueOptions::default()
        };
        Queue::with_options(&self.library(), options).unwrap()
    }
}

/// The fake's image of vadd.
pub const VADD: &str = "FAKE vadd pointers=3 push=4";

pub fn vadd() -> &'static Kernel {
    kernel("vadd").unwrap()
}

/// An archive of kernels, each with images for targets such as "90" or "compute_75".
pub fn archive(kernels: &[(&str, &[(&str, &str)])]) -> Archive<'static> {
    let mut builder = ArchiveBuilder::new(Metadata::default());
    for (name, images) in kernels {
        let targets = images.iter().map(|(target, image)| {
            let mut image = image.as_bytes().to_vec();
            // PTX gets its NUL from the runtime; the fake reads every image as text.
            if !target.starts_with("compute_") {
                image.push(0);
            }
            NewTarget {
                target: target.parse().unwrap(),
                resources: Resources::default(),
                compiler: String::new(),
                payload: Payload::compress(&image).unwrap(),
            }
        });
        builder.push(NewKernel {
            name: (*name).to_owned(),
            entry: (*name).to_owned(),
            targets: targets.collect(),
            ..NewKernel::default()
        });
    }
    Archive::from_vec(builder.finish().unwrap()).unwrap()
}

pub fn vadd_archive(image: &str) -> Archive<'static> {
    archive(&[("vadd", &[("90", image)])])
}

pub fn floats(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

pub fn to_floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks(4)
        .map(|value| f32::from_ne_bytes(value.try_into().unwrap()))
        .collect()
}

/// A buffer with these values.
pub fn filled(queue: &Queue, values: &[f32]) -> Buffer {
    let buffer = queue.device().buffer(4 * values.len() as u64).unwrap();
    queue.write(buffer.all(), &floats(values)).unwrap();
    buffer
}

pub fn values(queue: &Queue, buffer: &Buffer) -> Vec<f32> {
    let mut bytes = vec![0; buffer.bytes() as usize];
    queue.read(buffer.all(), &mut bytes).unwrap();
    to_floats(&bytes)
}

/// An error with everything that it was caused by.
pub fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}
