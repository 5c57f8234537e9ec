//! `export`.

use std::collections::BTreeMap;
use std::path::Path;

use cubin_format::{ImageKind, fatbin};

use crate::common::{Ended, WRONG_INPUT, end, names, program, run};

fn export(folder: &Path, arguments: &[&str]) -> Ended {
    end(program().arg("export").arg(folder).args(arguments))
}

/// Every image of the embedded archive that becomes a file, by the file's name.
fn images() -> BTreeMap<String, Vec<u8>> {
    let archive = zinc_cuda::archive().unwrap();
    let mut files = BTreeMap::new();
    for kernel in archive.kernels() {
        for entry in &kernel.targets {
            let end = match entry.target.kind {
                ImageKind::Sass => "cubin",
                ImageKind::Ptx => "ptx",
            };
            let name = format!("{}.{}.{end}", kernel.name, entry.target);
            files.insert(name, archive.image(&kernel.name, entry.target).unwrap());
        }
    }
    files
}

fn read(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn everything_is_written_as_embedded() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("new/folder");
    let report = export(&folder, &["--json"]).json();
    let archive = zinc_cuda::archive().unwrap();
    let images = images();

    let mut wanted = Vec::from_iter(images.keys().cloned());
    wanted.extend(
        archive
            .kernels()
            .iter()
            .map(|kernel| format!("{}.fatbin", kernel.name)),
    );
    wanted.extend(["zinc-cuda.zca", "zinc_cuda.h", "zinc_kernels.h"].map(str::to_owned));
    wanted.sort();
    assert_eq!(names(&folder), wanted);

    for (name, image) in &images {
        assert!(
            read(&folder, name) == *image,
            "{name} is not the embedded image"
        );
    }
    assert!(read(&folder, "zinc-cuda.zca") == zinc_cuda::ARCHIVE_BYTES);
    assert!(read(&folder, "zinc_kernels.h") == zinc_cuda::C_HEADER.as_bytes());
    for kernel in archive.kernels() {
        let bytes = read(&folder, &format!("{}.fatbin", kernel.name));
        let fatbin = fatbin::read(&bytes).unwrap();
        let found = fatbin.iter().map(|image| image.target);
        let targets = kernel.targets.iter().map(|entry| entry.target);
        assert_eq!(Vec::from_iter(found), Vec::from_iter(targets));
        for image in fatbin {
            assert!(image.bytes == archive.image(&kernel.name, image.target).unwrap());
        }
    }

    let files = report["files"].as_array().unwrap();
    let mut reported = Vec::new();
    for file in files {
        let name = file["file"].as_str().unwrap();
        assert_eq!(file["bytes"], read(&folder, name).len());
        reported.push(name);
    }
    reported.sort_unstable();
    assert_eq!(reported, wanted);
}

#[test]
fn exported_archive_opens_and_is_listed_like_the_embedded_one() {
    let folder = tempfile::tempdir().unwrap();
    export(folder.path(), &["--what", "archive"]).good();
    assert_eq!(names(folder.path()), ["zinc-cuda.zca"]);
    let path = folder.path().join("zinc-cuda.zca");
    let list = |arguments: &[&str]| run(arguments).json()["kernels"].clone();
    assert_eq!(
        list(&[
            "list",
            "--extended",
            "--json",
            "--archive",
            path.to_str().unwrap()
        ]),
        list(&["list", "--extended", "--json"])
    );
}

#[test]
fn kinds_and_filters_select_files() {
    let folder = tempfile::tempdir().unwrap();
    let archive = zinc_cuda::archive().unwrap();
    let kernel = archive.kernel("vadd").unwrap();
    let first = kernel
        .targets
        .iter()
        .find(|entry| entry.target.kind == ImageKind::Sass);
    let arch = first.unwrap().target.arch.to_string();
    let name = format!("vadd.sm_{arch}.cubin");
    let text = export(
        folder.path(),
        &["--what", "cubin", "--name", "vadd", "--arch", &arch],
    );
    assert!(text.good().contains("1 files"), "{text:?}");
    assert_eq!(names(folder.path()), std::slice::from_ref(&name));
    export(
        folder.path(),
        &["--what", "header,fatbin", "--name", "vadd"],
    )
    .good();
    assert_eq!(
        names(folder.path()),
        ["vadd.fatbin", &name, "zinc_cuda.h", "zinc_kernels.h"]
    );
}

#[test]
fn existing_file_is_kept_and_nothing_else_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zinc_kernels.h");
    std::fs::write(&path, "mine").unwrap();
    let ended = export(folder.path(), &["--name", "vadd"]);
    ended.refused(WRONG_INPUT, ["zinc_kernels.h exists", "--force"]);
    assert_eq!(names(folder.path()), ["zinc_kernels.h"]);
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");

    export(folder.path(), &["--what", "header", "--force"]).good();
    assert!(read(folder.path(), "zinc_kernels.h") == zinc_cuda::C_HEADER.as_bytes());
}

#[test]
fn folder_that_is_a_file_or_can_not_be_made_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "mine").unwrap();
    for below in [path.clone(), path.join("below")] {
        let ended = export(&below, &["--what", "header"]);
        ended.refused(WRONG_INPUT, [below.to_str().unwrap()]);
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    assert_eq!(names(folder.path()), ["file"]);
}

#[test]
fn unknown_kind_and_empty_selection_are_refused_before_a_folder_is_made() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("new");
    export(&folder, &["--what", "spirv"]).refused(WRONG_INPUT, ["spirv", "cubin", "fatbin"]);
    export(&folder, &["--name", "no_such_kernel"]).refused(WRONG_INPUT, ["no kernel"]);
    export(&folder, &["--arch", "sm_52"]).refused(WRONG_INPUT, ["52"]);
    assert!(names(parent.path()).is_empty());
}
