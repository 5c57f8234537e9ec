//! `--archive`: archives that are damaged, swapped or missing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cubin_format::{Archive, ArchiveBuilder, ImageKind, NewKernel, NewTarget, Payload};
use tempfile::TempDir;

use crate::common::{CHECK_FAILED, Ended, WRONG_INPUT, end, fixture_path, names, program, run};

/// Bytes of the header; the length of the index is at 24.
const HEADER: usize = 80;

fn embedded() -> Vec<u8> {
    zinc_cuda::ARCHIVE_BYTES.to_vec()
}

/// Where the payloads start.
fn payloads(blob: &[u8]) -> usize {
    HEADER + u64::from_le_bytes(blob[24..32].try_into().unwrap()) as usize
}

/// An archive in a folder of its own.
struct File {
    folder: TempDir,
    path: PathBuf,
}

impl File {
    fn new(bytes: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kernels.zca");
        std::fs::write(&path, bytes).unwrap();
        Self { folder, path }
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        end(program().arg("--archive").arg(&self.path).args(arguments))
    }

    /// No command works with the archive, and none leaves a file.
    #[track_caller]
    fn refused_everywhere(&self, texts: &[&str]) {
        every_command(&self.folder.path().join("new"), |arguments| {
            self.run(arguments).refused(WRONG_INPUT, texts);
        });
        assert_eq!(names(self.folder.path()), ["kernels.zca"]);
    }
}

/// Calls `run` with the arguments of each command that opens the archive and writes, if it does, below `out`.
fn every_command(out: &Path, mut run: impl FnMut(&[&str])) {
    let (out, fixture) = (out.to_str().unwrap(), fixture_path("vadd"));
    let fixture = fixture.to_str().unwrap();
    run(&["list"]);
    run(&["list", "--json"]);
    run(&["show", "vadd"]);
    run(&["run", "--device", "cpu", "--fixture", fixture, "--out", out]);
    run(&["verify", "--device", "cpu", "vadd", "--report", out]);
    run(&["verify", "--static"]);
    run(&["export", out]);
    run(&["doctor"]);
}

#[test]
fn copy_of_the_embedded_archive_works_like_it() {
    let file = File::new(&embedded());
    let mut listing = file.run(&["list", "--extended", "--json"]).json();
    assert_eq!(listing["archive"], file.path.to_str().unwrap());
    listing["archive"] = "embedded".into();
    assert_eq!(listing, run(["list", "--extended", "--json"]).json());
    file.run(&["verify", "--static"]).good();
    let listed = end(program()
        .env("ZINC_ARCHIVE", &file.path)
        .args(["list", "--json"]));
    assert_eq!(listed.json()["archive"], file.path.to_str().unwrap());
}

#[test]
fn missing_archive_and_a_folder_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    every_command(&folder.path().join("new"), |arguments| {
        let ended = end(program()
            .args(["--archive", "/nowhere/kernels.zca"])
            .args(arguments));
        ended.refused(WRONG_INPUT, ["/nowhere/kernels.zca", "No such file"]);
    });
    assert!(names(folder.path()).is_empty());
    let path = folder.path().to_str().unwrap();
    run(["--archive", path, "list"]).refused(WRONG_INPUT, [path]);
}

#[test]
fn what_is_no_archive_is_refused() {
    File::new(b"").refused_everywhere(&[]);
    File::new(b"\x7fELF and more, which is certainly no archive of kernels")
        .refused_everywhere(&["magic"]);
}

#[test]
fn truncated_or_extended_archive_is_refused() {
    let blob = embedded();
    for length in [
        50,
        HEADER,
        payloads(&blob) - 1,
        payloads(&blob) + 1,
        blob.len() - 1,
    ] {
        File::new(&blob[..length]).refused_everywhere(&[]);
    }
    let mut longer = blob;
    longer.push(0);
    File::new(&longer).refused_everywhere(&["cut or extended"]);
}

#[test]
fn flipped_byte_in_header_or_index_is_refused_by_every_command() {
    let blob = embedded();
    for at in [3, 8, 20, 60, HEADER + 5, HEADER + 200, payloads(&blob) - 1] {
        let mut blob = blob.clone();
        blob[at] ^= 0x20;
        File::new(&blob).refused_everywhere(&[]);
    }
}

#[test]
fn flipped_byte_in_an_image_fails_the_check_and_is_never_exported() {
    let mut blob = embedded();
    let at = payloads(&blob) + 30;
    blob[at] ^= 1;
    let damaged = {
        let archive = Archive::open(&blob).unwrap();
        // The image, and those that cannot be decompressed without it, by kernel and target.
        let mut needs = BTreeMap::from([((0, 0), true)]);
        for (number, kernel) in archive.kernels().iter().enumerate() {
            for (target, entry) in kernel.targets.iter().enumerate() {
                let base = entry.base.map(|base| needs[&(base.kernel, base.target)]);
                needs.entry((number, target)).or_insert(base == Some(true));
            }
        }
        let damaged = needs.into_iter().filter(|(_, needs)| *needs);
        let damaged = damaged.map(|((kernel, target), _)| {
            let kernel = &archive.kernels()[kernel];
            (
                kernel.name.clone(),
                kernel.targets[target].target.to_string(),
            )
        });
        Vec::from_iter(damaged)
    };
    let file = File::new(&blob);
    let ended = file.run(&["verify", "--static"]);
    let count = format!("{} of", damaged.len());
    ended.failed(CHECK_FAILED, [count.as_str()]);
    for (kernel, target) in &damaged {
        let line = format!("{kernel} {target}: ");
        assert!(ended.stdout.contains(&line), "{ended:?}");
    }

    let ended = file.run(&["verify", "--static", "--json"]);
    ended.failed(CHECK_FAILED, [count.as_str()]);
    let failures = ended.object()["failures"].clone();
    let failures = failures.as_array().unwrap();
    assert_eq!(failures.len(), damaged.len());
    for (failure, (kernel, target)) in failures.iter().zip(&damaged) {
        assert_eq!(failure["kernel"], *kernel.as_str());
        assert_eq!(failure["target"], *target.as_str());
        let error = failure["error"].as_str().unwrap();
        assert!(error.contains("SHA-256"), "{error}");
    }

    let out = file.folder.path().join("new");
    let ended = file.run(&["export", out.to_str().unwrap()]);
    ended.refused(WRONG_INPUT, ["SHA-256"]);
    assert_eq!(names(file.folder.path()), ["kernels.zca"]);
}

#[test]
fn swapped_names_of_two_kernels_are_refused_by_every_command() {
    let mut blob = embedded();
    let archive = zinc_cuda::archive().unwrap();
    let names = archive
        .kernels()
        .iter()
        .map(|kernel| kernel.name.as_bytes());
    let names = Vec::from_iter(names);
    let (a, b) = names
        .iter()
        .enumerate()
        .find_map(|(at, a)| Some((*a, *names[at + 1..].iter().find(|b| b.len() == a.len())?)))
        .expect("two kernels have names of the same length");
    // A name follows its length.
    let text = |name: &[u8]| [&(name.len() as u16).to_le_bytes(), name].concat();
    let (a, b) = (text(a), text(b));
    let mut swapped = 0;
    for at in HEADER..payloads(&blob) - a.len() {
        let place = &mut blob[at..at + a.len()];
        if place == a {
            place.copy_from_slice(&b);
        } else if place == b {
            place.copy_from_slice(&a);
        } else {
            continue;
        }
        swapped += 1;
    }
    assert!(swapped >= 2);
    File::new(&blob).refused_everywhere(&["damaged"]);
}

/// A sound archive in which the images and perhaps the entries of vadd and argmax are exchanged.
fn exchanged(entries: bool) -> Vec<u8> {
    let archive = zinc_cuda::archive().unwrap();
    let mut builder = ArchiveBuilder::new(archive.metadata().clone());
    for (name, other) in [("vadd", "argmax"), ("argmax", "vadd")] {
        let (kernel, source) = (
            archive.kernel(name).unwrap(),
            archive.kernel(other).unwrap(),
        );
        let targets = source.targets.iter().map(|entry| NewTarget {
            target: entry.target,
            resources: entry.resources,
            compiler: String::new(),
            payload: Payload::compress(&archive.image(other, entry.target).unwrap()).unwrap(),
        });
        builder.push(NewKernel {
            name: name.to_owned(),
            family: kernel.family.clone(),
            entry: if entries { other } else { name }.to_owned(),
            targets: targets.collect(),
            ..NewKernel::default()
        });
    }
    builder.finish().unwrap()
}

#[test]
fn exchanged_images_of_two_kernels_fail_the_check_one_by_one() {
    for entries in [false, true] {
        let blob = exchanged(entries);
        let ended = File::new(&blob).run(&["verify", "--static", "--json"]);
        let archive = Archive::open(&blob).unwrap();
        let kernels = archive.kernels().iter();
        let wanted = Vec::from_iter(kernels.flat_map(|kernel| {
            let targets = kernel.targets.iter();
            targets.map(|entry| (kernel.name.clone(), entry.target.to_string()))
        }));
        ended.failed(CHECK_FAILED, [format!("{0} of {0} images", wanted.len())]);
        let report = ended.object();
        let failures = report["failures"].as_array().unwrap().iter();
        let found = Vec::from_iter(failures.map(|failure| {
            let text = |key: &str| failure[key].as_str().unwrap().to_owned();
            (text("kernel"), text("target"))
        }));
        assert_eq!(found, wanted, "{report:#}");
    }
}

#[test]
fn image_of_another_architecture_or_with_other_resources_fails_the_check() {
    let archive = zinc_cuda::archive().unwrap();
    let kernel = archive.kernel("vadd").unwrap();
    let sass = kernel
        .targets
        .iter()
        .find(|entry| entry.target.kind == ImageKind::Sass);
    let sass = sass.unwrap();
    let image = archive.image("vadd", sass.target).unwrap();
    let with = |target: &str, registers: u32| {
        let mut builder = ArchiveBuilder::new(archive.metadata().clone());
        let mut resources = sass.resources;
        resources.registers = registers;
        builder.push(NewKernel {
            name: "vadd".to_owned(),
            family: "utility".to_owned(),
            entry: "vadd".to_owned(),
            targets: vec![NewTarget {
                target: target.parse().unwrap(),
                resources,
                compiler: String::new(),
                payload: Payload::compress(&image).unwrap(),
            }],
            ..NewKernel::default()
        });
        File::new(&builder.finish().unwrap())
    };
    let (right, registers) = (sass.target.to_string(), sass.resources.registers);
    with(&right, registers).run(&["verify", "--static"]).good();
    let ended = with("sm_61", registers).run(&["verify", "--static"]);
    ended.failed(CHECK_FAILED, ["1 of 1"]);
    assert!(ended.stdout.contains("sm_61"), "{ended:?}");
    let ended = with(&right, registers + 1).run(&["verify", "--static"]);
    ended.failed(CHECK_FAILED, ["1 of 1"]);
    assert!(ended.stdout.contains("the index records"), "{ended:?}");
}
