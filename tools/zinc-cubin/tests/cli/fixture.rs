//! `run --fixture`.

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use safetensors::Dtype;
use tempfile::TempDir;
use zinc_oracle::fixture;

use crate::common::{
    CHECK_FAILED, Ended, File, WRONG_INPUT, end, fixture_path, implemented, names, program, root,
    run,
};

/// Runs a fixture on the emulator, and writes the buffers to `out`.
fn run_to(path: &Path, out: &Path) -> Ended {
    let mut command = program();
    command.args(["run", "--device", "cpu", "--repeat", "1", "--json"]);
    end(command.arg("--fixture").arg(path).arg("--out").arg(out))
}

/// A changed fixture in a folder of its own.
struct Changed {
    folder: TempDir,
    path: PathBuf,
}

impl Changed {
    fn new(kernel: &str, change: impl FnOnce(&mut File)) -> Self {
        let mut file = File::fixture(kernel);
        change(&mut file);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("changed.safetensors");
        file.write(&path);
        Self { folder, path }
    }

    fn bytes(bytes: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("changed.safetensors");
        std::fs::write(&path, bytes).unwrap();
        Self { folder, path }
    }

    fn run(&self) -> Ended {
        run_to(&self.path, &self.folder.path().join("out.safetensors"))
    }

    /// The run is refused with the fixture's name and these texts, and leaves no file behind.
    #[track_caller]
    fn refused(&self, texts: &[&str]) {
        let ended = self.run();
        ended.refused(WRONG_INPUT, texts);
        ended.refused(WRONG_INPUT, [self.path.to_str().unwrap()]);
        self.nothing_written();
    }

    #[track_caller]
    fn nothing_written(&self) {
        assert_eq!(names(self.folder.path()), ["changed.safetensors"]);
    }
}

/// A fixture of dmmv_q4k whose contract is broken. The file itself is good, so it is the contract that refuses it.
#[track_caller]
fn contract_refuses(change: impl FnOnce(&mut File), texts: &[&str]) {
    let changed = Changed::new("dmmv_q4k", change);
    changed.run().refused(WRONG_INPUT, texts);
    changed.nothing_written();
}

/// The fixtures with expected values of other libraries; a folder that has only their script gives none.
fn independent_fixtures() -> Vec<PathBuf> {
    let folder = root().join("tests/fixtures/independent");
    let files = names(&folder).into_iter().map(|name| folder.join(name));
    files
        .filter(|path| path.extension().is_some_and(|e| e == "safetensors"))
        .collect()
}

#[test]
fn every_fixture_passes_and_its_buffers_are_written() {
    let golden = ["golden/vadd", "golden/dmmv_q8_0"].map(str::to_owned);
    let fixtures = implemented().map(|kernel| kernel.name.to_owned());
    let fixtures: Vec<PathBuf> = fixtures
        .chain(golden)
        .map(|name| fixture_path(&name))
        .filter(|path| path.exists())
        .collect();
    let own = implemented().filter(|kernel| !kernel.extended).count();
    assert!(fixtures.len() >= own + 2, "a kernel has no fixture");
    let fixtures = [fixtures, independent_fixtures()].concat();
    fixtures.par_iter().for_each(|path| {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.safetensors");
        let report = run_to(path, &out).json();
        let fixture = fixture::read(&std::fs::read(path).unwrap(), zinc_contract::kernel).unwrap();
        assert_eq!(report["ok"], true, "{report:#}");
        assert_eq!(report["device"]["kind"], "cpu");
        assert_eq!(report["runs"][0]["kernel"], fixture.kernel.name);

        // The file can be read again, has every buffer in its size, and meets the expectation.
        let written = fixture::read(&std::fs::read(&out).unwrap(), zinc_contract::kernel).unwrap();
        assert_eq!(
            (&written.kernel, &written.words),
            (&fixture.kernel, &fixture.words)
        );
        let kernel = fixture.kernel;
        for ((buffer, before), after) in kernel
            .buffers
            .iter()
            .zip(&fixture.buffers)
            .zip(&written.buffers)
        {
            let name = format!("{} of {}", buffer.name, path.display());
            assert_eq!(after.bytes.len(), before.bytes.len(), "{name}");
            assert_eq!(after.element, before.element, "{name}");
            if !buffer.access.writes() {
                assert_eq!(after.bytes, before.bytes, "{name} changed");
            }
        }
        let compared = fixture::compare(&fixture, &written.contents());
        assert!(compared.ok(), "{compared}");
        assert_eq!(names(folder.path()), ["out.safetensors"]);
    });
}

#[test]
fn result_for_people_names_kernel_and_device() {
    let path = fixture_path("vadd");
    let text = run([
        "run",
        "vadd",
        "--fixture",
        path.to_str().unwrap(),
        "--device",
        "cpu",
    ]);
    for part in ["vadd", "ok", "emulator"] {
        assert!(text.good().contains(part), "{part} is missing in {text:?}");
    }
}

#[test]
fn wrong_expectation_fails_the_check() {
    let changed = Changed::new("vadd", |file| {
        let expected = file.raw("expect.c");
        expected[2] ^= 0x40;
    });
    let ended = changed.run();
    ended.failed(CHECK_FAILED, ["1 of 1 results are wrong"]);
    let report = ended.object();
    assert_eq!(report["ok"], false);
    assert_eq!(report["runs"][0]["ok"], false);
    // What came out is there to be looked at.
    let written = File::read(&changed.folder.path().join("out.safetensors"));
    let right = File::fixture("vadd");
    assert_eq!(written.tensors["buffer.c"].1, right.tensors["expect.c"].1);

    let path = changed.path.to_str().unwrap();
    let text = run(["run", "--device", "cpu", "--fixture", path]);
    text.failed(CHECK_FAILED, ["1 of 1"]);
    for part in ["WRONG", "vadd", " c: 1 of 1 wrong", "wrong  "] {
        assert!(text.stdout.contains(part), "{part} is missing in {text:?}");
    }
}

#[test]
fn changed_poison_behind_the_result_fails_the_check() {
    let changed = Changed::new("vadd", |file| {
        *file.raw("expect.c").last_mut().unwrap() ^= 1
    });
    changed
        .run()
        .failed(CHECK_FAILED, ["1 of 1 results are wrong"]);
}

#[test]
fn missing_file_and_what_is_no_safetensors_file_are_refused() {
    run(["run", "--fixture", "/nowhere/x.safetensors"])
        .refused(WRONG_INPUT, ["/nowhere/x.safetensors", "No such file"]);
    let folder = root().join("tests");
    run(["run", "--fixture", folder.to_str().unwrap()]).refused(WRONG_INPUT, ["tests"]);
    Changed::bytes(b"").refused(&["not a safetensors file"]);
    Changed::bytes(b"GGUF\x03\0\0\0 something else").refused(&["not a safetensors file"]);
    let whole = std::fs::read(fixture_path("vadd")).unwrap();
    for length in [4, 100, whole.len() - 1] {
        Changed::bytes(&whole[..length]).refused(&["not a safetensors file"]);
    }
}

#[test]
fn fixture_of_an_unknown_kernel_is_refused_with_the_nearest_name() {
    Changed::new("vadd", |file| file.set("kernel", "vad")).refused(&["`vad`", "`vadd`"]);
    Changed::new("vadd", |file| {
        file.metadata.remove("kernel");
    })
    .refused(&["kernel"]);
}

#[test]
fn fixture_of_another_kernel_than_asked_for_is_refused() {
    let path = fixture_path("vadd");
    run(["run", "argmax", "--fixture", path.to_str().unwrap()])
        .refused(WRONG_INPUT, ["vadd", "argmax"]);
}

#[test]
fn push_block_with_a_missing_or_an_additional_field_is_refused() {
    Changed::new("dmmv_q4k", |file| {
        file.metadata.remove("push.k");
    })
    .refused(&["dmmv_q4k", "push.k"]);
    Changed::new("dmmv_q4k", |file| file.set("push.n", "1")).refused(&["dmmv_q4k", "push.n"]);
    Changed::new("rms_norm_mul", |file| {
        file.metadata.remove("launch.n_rows");
    })
    .refused(&["rms_norm_mul", "launch.n_rows"]);
}

#[test]
fn field_that_is_no_number_of_its_kind_is_refused() {
    for text in ["", "-1", "1.5", "4294967296", "0x10"] {
        Changed::new("vadd", |file| file.set("push.n", text)).refused(&["push.n", "u32"]);
    }
    Changed::new("rms_norm_mul", |file| file.set("push.eps", "small")).refused(&["push.eps"]);
}

#[test]
fn too_few_and_too_many_buffers_are_refused() {
    Changed::new("vadd", |file| {
        file.tensors.remove("buffer.b");
    })
    .refused(&["vadd", "buffer.b"]);
    Changed::new("vadd", |file| {
        file.tensors
            .insert("buffer.d".to_owned(), (Dtype::U8, vec![0; 64]));
    })
    .refused(&["vadd", "buffer.d"]);
    Changed::new("vadd", |file| {
        file.tensors
            .insert("expect.d".to_owned(), (Dtype::U8, vec![0; 64]));
    })
    .refused(&["vadd", "expect.d"]);
}

#[test]
fn buffer_that_is_one_byte_too_small_is_refused_with_both_sizes() {
    let mut file = File::fixture("vadd");
    let wanted = 4 * file.metadata["push.n"].parse::<usize>().unwrap();
    for buffer in ["buffer.a", "buffer.b"] {
        let found = wanted - 1;
        Changed::new("vadd", |file| file.raw(buffer).truncate(found)).refused(&[
            buffer,
            &wanted.to_string(),
            &found.to_string(),
        ]);
    }
    // Exactly as many bytes as the contract asks for are enough.
    for tensor in ["buffer.a", "buffer.b", "buffer.c", "expect.c"] {
        file.raw(tensor).truncate(wanted);
    }
    let exact = Changed::bytes(&[]);
    file.write(&exact.path);
    assert_eq!(exact.run().json()["ok"], true);
}

#[test]
fn expectation_of_another_size_or_type_is_refused() {
    Changed::new("vadd", |file| {
        file.raw("expect.c").pop();
    })
    .refused(&["expect.c"]);
    Changed::new("vadd", |file| {
        let (dtype, bytes) = file.tensors.get_mut("buffer.a").unwrap();
        *dtype = Dtype::F16;
        bytes.truncate(bytes.len() / 2 * 2);
    })
    .refused(&["buffer.a", "F16"]);
}

#[test]
fn broken_precondition_is_refused_with_its_text_and_the_values() {
    let k = |file: &mut File, change: i64| {
        let k: i64 = file.metadata["push.k"].parse().unwrap();
        file.set("push.k", &(k + change).to_string());
    };
    let texts = ["dmmv_q4k", "k % 256 == 0", "does not hold for k = "];
    contract_refuses(|file| k(file, -1), &texts);
    contract_refuses(|file| k(file, -128), &texts);
}

#[test]
fn misaligned_offset_is_refused() {
    let texts = ["dmmv_q4k", "a_offset % 4 == 0", "a_offset = 2"];
    contract_refuses(
        |file| {
            file.set("push.a_offset", "2");
            file.raw("buffer.weights").extend([0; 4]);
        },
        &texts,
    );
    let texts = ["dmmv_q4k", "x_offset % 16 == 0", "x_offset = 4"];
    contract_refuses(
        |file| {
            file.set("push.x_offset", "4");
            file.raw("buffer.x").extend([0; 4]);
        },
        &texts,
    );
}

#[test]
fn output_that_can_not_be_written_is_named_and_leaves_nothing() {
    let ended = run_to(&fixture_path("vadd"), Path::new("/nowhere/out.safetensors"));
    ended.refused(WRONG_INPUT, ["/nowhere/out.safetensors"]);
    let folder = tempfile::tempdir().unwrap();
    let ended = run_to(&fixture_path("vadd"), folder.path());
    ended.refused(WRONG_INPUT, [folder.path().to_str().unwrap()]);
    assert!(names(folder.path()).is_empty());
}

#[test]
fn usage_without_input_or_with_two_is_refused() {
    for (arguments, text) in [
        (["run"].as_slice(), "--fixture <FILE>|--gguf <FILE>"),
        (&["run", "vadd"], "--fixture <FILE>|--gguf <FILE>"),
        (
            &["run", "--fixture", "a", "--gguf", "b", "--tensor", "c"],
            "cannot be used with",
        ),
        (&["run", "--gguf", "b"], "--tensor <NAME>"),
        (&["run", "--fixture", "a", "--repeat", "0"], "--repeat <N>"),
        (&["run", "--fixture", "a", "--device"], "--device <DEVICE>"),
    ] {
        run(arguments).refused(WRONG_INPUT, [text]);
    }
}
