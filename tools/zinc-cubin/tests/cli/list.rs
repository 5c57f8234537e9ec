//! `list` and `show`.

use std::collections::{BTreeMap, BTreeSet};

use cubin_format::{Archive, ImageKind, KernelEntry, TargetEntry};
use serde_json::{Value, json};
use zinc_contract::KERNELS;

use crate::common::{WRONG_INPUT, implemented, run};

/// What `ZINC_CUDA_ARCHS` = `default` promises.
const DEFAULT_TARGETS: [&str; 8] = [
    "sm_75",
    "sm_80",
    "sm_86",
    "sm_89",
    "sm_90",
    "sm_100",
    "sm_120",
    "compute_120",
];

fn archive() -> Archive<'static> {
    zinc_cuda::archive().unwrap()
}

/// What `list` and `show` have to say of an image.
fn target(entry: &TargetEntry) -> Value {
    let resources = &entry.resources;
    json!({
        "arch": entry.target.to_string(),
        "kind": match entry.target.kind { ImageKind::Sass => "cubin", ImageKind::Ptx => "ptx" },
        "bytes": entry.raw_bytes,
        "compressed_bytes": entry.stored_bytes,
        "sha256": entry.raw_hash.to_string(),
        "registers": resources.registers,
        "shared_bytes": resources.shared_bytes,
        "local_bytes": resources.local_bytes,
        "spill_bytes": resources.spill_store_bytes + resources.spill_load_bytes,
    })
}

fn kernel(entry: &KernelEntry) -> Value {
    json!({
        "name": entry.name,
        "family": entry.family,
        "extended": entry.extended,
        "summary": entry.summary,
        "targets": Vec::from_iter(entry.targets.iter().map(target)),
    })
}

fn names(listing: &Value) -> Vec<&str> {
    let kernels = listing["kernels"].as_array().unwrap();
    kernels
        .iter()
        .map(|kernel| kernel["name"].as_str().unwrap())
        .collect()
}

#[test]
fn list_in_json_is_what_the_archive_holds() {
    let archive = archive();
    let listing = run(["list", "--extended", "--json"]).json();
    let wanted = json!({
        "kernels": Vec::from_iter(archive.kernels().iter().map(kernel)),
        "archive": "embedded",
        "archive_bytes": zinc_cuda::ARCHIVE_BYTES.len(),
        "compiler": archive.metadata().compiler,
        "source_hash": archive.metadata().source_hash.to_string(),
    });
    assert_eq!(listing, wanted);
}

#[test]
fn list_has_every_kernel_that_has_code() {
    let all = run(["list", "--extended", "--json"]).json();
    let wanted = Vec::from_iter(implemented().map(|kernel| kernel.name));
    assert!(!wanted.is_empty());
    assert_eq!(names(&all), wanted);
    let own = run(["list", "--json"]).json();
    let wanted = implemented().filter(|kernel| !kernel.extended);
    assert_eq!(
        names(&own),
        Vec::from_iter(wanted.map(|kernel| kernel.name))
    );
}

#[test]
fn list_of_pending_kernels_completes_the_catalog() {
    let listing = run(["list", "--pending", "--extended", "--json"]).json();
    let pending = listing["pending"].as_array().into_iter().flatten();
    let pending: BTreeMap<_, _> = pending
        .map(|kernel| {
            let text = |key: &str| kernel[key].as_str().unwrap();
            (text("name"), text("reason"))
        })
        .collect();
    for kernel in KERNELS {
        let listed = names(&listing).contains(&kernel.name);
        assert_eq!(listed, kernel.pending.is_none(), "{}", kernel.name);
        assert_eq!(pending.get(kernel.name).copied(), kernel.pending);
    }
}

#[test]
fn default_build_has_code_for_every_gpu_from_turing_on() {
    // The build script reads the same variable in the same run of cargo.
    if !matches!(option_env!("ZINC_CUDA_ARCHS"), None | Some("" | "default")) {
        println!("not checked: ZINC_CUDA_ARCHS names other architectures");
        return;
    }
    for kernel in archive().kernels() {
        let targets = kernel.targets.iter().map(|entry| entry.target.to_string());
        let targets = BTreeSet::from_iter(targets);
        for wanted in DEFAULT_TARGETS {
            assert!(targets.contains(wanted), "{} has no {wanted}", kernel.name);
        }
    }
}

#[test]
fn filters_select_and_combine() {
    let archive = archive();
    let first = archive.kernels()[0].targets[0].target;
    let arch = first.arch.to_string();
    for text in [arch.clone(), format!("sm_{arch}")] {
        let listing = run(["list", "--json", "--extended", "--arch", &text]).json();
        assert_eq!(names(&listing).len(), archive.kernels().len());
        for kernel in listing["kernels"].as_array().unwrap() {
            for target in kernel["targets"].as_array().unwrap() {
                let shown = target["arch"].as_str().unwrap();
                assert!(shown.ends_with(&format!("_{arch}")), "{shown}");
            }
        }
    }
    let listing = run(["list", "--json", "--family", "utility", "--name", "add"]).json();
    assert_eq!(names(&listing), ["vadd"]);
    let listing = run(["list", "--json", "--name", "vadd", "--name", "argmax"]).json();
    assert_eq!(names(&listing), ["argmax", "vadd"]);
}

#[test]
fn table_of_list_has_every_kernel_and_no_colour() {
    let text = run(["list"]);
    for kernel in implemented().filter(|kernel| !kernel.extended) {
        let row = |line: &str| line.split(' ').next() == Some(kernel.name);
        assert!(text.good().lines().any(row), "{} is missing", kernel.name);
    }
    assert!(!text.stdout.contains('\u{1b}'));
    assert!(run(["list", "--color", "always"]).good().contains('\u{1b}'));
}

#[test]
fn unknown_architecture_is_refused_by_name() {
    run(["list", "--arch", "hopper"]).refused(WRONG_INPUT, ["\"hopper\"", "sm_90a"]);
    run(["list", "--arch", "90x"]).refused(WRONG_INPUT, ["90x"]);
}

#[test]
fn architecture_that_is_not_embedded_is_refused_with_what_is() {
    let embedded = archive().kernels()[0].targets[0].target.to_string();
    run(["list", "--arch", "sm_52"]).refused(WRONG_INPUT, ["52", "embedded", embedded.as_str()]);
}

#[test]
fn unknown_family_is_refused_with_those_that_exist() {
    for command in [
        ["list", "--family", "conv"].as_slice(),
        &["verify", "--family", "conv"],
        &["verify", "--static", "--family", "conv"],
        &["export", "/nowhere/at/all", "--family", "conv"],
    ] {
        run(command).refused(WRONG_INPUT, ["\"conv\"", "attention", "utility"]);
    }
}

#[test]
fn filters_that_select_nothing_are_refused() {
    run(["list", "--name", "vadd", "--family", "rope"]).refused(WRONG_INPUT, ["no kernel"]);
}

#[test]
fn show_in_json_is_the_contract_and_the_images() {
    let archive = archive();
    for contract in implemented() {
        let shown = run(["show", contract.name, "--json"]).json();
        assert_eq!(shown["name"], contract.name);
        assert_eq!(shown["family"], contract.family);
        assert_eq!(shown["extended"], contract.extended);
        assert_eq!(shown["pending"], Value::Null);
        let entry = archive.kernel(contract.name).unwrap();
        assert_eq!(shown["entry"], entry.entry.as_str());
        assert_eq!(
            shown["targets"],
            Value::from_iter(entry.targets.iter().map(target))
        );
        let buffers = contract.buffers.iter().map(|buffer| {
            json!({
                "name": buffer.name,
                "access": buffer.access.name(),
                "dtype": buffer.dtype,
                "bytes": buffer.bytes.text,
                "shape": buffer.shape,
                "align": buffer.align,
            })
        });
        assert_eq!(shown["buffers"], Value::from_iter(buffers), "{shown:#}");
        let fields = shown["push"].as_array().unwrap();
        let fields = fields.iter().map(|field| field["name"].as_str().unwrap());
        let wanted = contract.fields.iter().map(|field| field.name);
        assert_eq!(Vec::from_iter(fields), Vec::from_iter(wanted));
        assert_eq!(shown["push_bytes"], contract.push_words * 4);
        let requires = contract.requires.iter().map(|condition| condition.text);
        assert_eq!(shown["requires"], Value::from_iter(requires));
    }
}

#[test]
fn show_for_people_names_buffers_fields_and_hashes() {
    let text = run(["show", "vadd"]);
    let hash = archive().kernel("vadd").unwrap().targets[0].raw_hash;
    for part in [
        "n * 4",
        "element count",
        "c[i] = a[i] + b[i]",
        &hash.to_string(),
    ] {
        assert!(text.good().contains(part), "{part} is missing in {text:?}");
    }
}

#[test]
fn pending_kernel_is_shown_and_not_run() {
    let Some(kernel) = KERNELS.iter().find(|kernel| kernel.pending.is_some()) else {
        return;
    };
    let shown = run(["show", kernel.name, "--json"]).json();
    assert_eq!(shown["pending"], kernel.pending.unwrap());
    assert_eq!(shown["targets"], json!([]));
    let texts = [kernel.name, kernel.pending.unwrap()];
    run(["verify", kernel.name]).refused(WRONG_INPUT, texts);
    let fixture = crate::common::fixture_path(kernel.name);
    if fixture.exists() {
        run(["run", "--fixture", fixture.to_str().unwrap()]).refused(WRONG_INPUT, texts);
    }
}

#[test]
fn unknown_kernel_is_refused_with_the_nearest_name() {
    for command in [
        ["show", "vad"].as_slice(),
        &["verify", "vad"],
        &["verify", "--static", "vad"],
        &["run", "vad", "--fixture", "nowhere.safetensors"],
        &["run", "vad", "--gguf", "nowhere.gguf", "--tensor", "w"],
    ] {
        run(command).refused(WRONG_INPUT, ["vad", "vadd"]);
    }
    let far = run(["show", "convolution_3d"]);
    far.refused(WRONG_INPUT, ["convolution_3d"]);
    assert!(!far.stderr.contains("did you mean"), "{far:?}");
}
