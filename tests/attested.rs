//! Every kernel's machine code for the GPU that the project is tested on has run there: its SHA-256 stands in an
//! attestation under `tests/attested`, with every case passed and nothing found by the sanitizers. Proofs of the same code
//! in several reports add up. Proofs that have not been run for some code yet stand in `outstanding.txt` there, one by
//! one.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cubin_format::ImageKind;
use serde::Deserialize;
use zinc_cuda::Archive;
use zinc_cuda::zinc_runtime::Capability;

/// The GPU whose machine code is attested: for each kernel what is loaded there.
const DEVICE: Capability = Capability::new(9, 0);
/// The sanitizers that an attestation needs.
const SANITIZERS: [&str; 4] = ["memcheck", "racecheck", "initcheck", "synccheck"];
/// So many runs of a case have to give the same bits.
const REPEATS: u32 = 20;
/// How to make a new attestation.
const RENEW: &str = "renew it on a machine with a GPU of that architecture: cargo build --release && tools/attest \
                     OUT/h200.json, then move that file to tests/attested";

/// What `tools/attest` writes, as far as it is looked at.
#[derive(Deserialize)]
struct Attestation {
    compiler: String,
    device: DeviceInfo,
    kernels: Vec<Kernel>,
    sanitizers: BTreeMap<String, Verdict>,
    repeated: Option<Repeated>,
    same_bits_as_emulator: Option<SameBits>,
}

/// Runs of each small case, and whether all gave the same bits.
#[derive(Deserialize)]
struct Repeated {
    ok: bool,
    runs: u32,
}

/// Whether the kernels of exact integer sums gave the emulator's bits.
#[derive(Deserialize)]
struct SameBits {
    ok: bool,
}

#[derive(Deserialize)]
struct DeviceInfo {
    kind: String,
}

#[derive(Deserialize)]
struct Kernel {
    name: String,
    target: Option<String>,
    sha256: Option<String>,
    cases: usize,
    passed: usize,
}

#[derive(Deserialize)]
struct Verdict {
    clean: bool,
    summary: String,
}

/// What an attestation says of an image: the proofs that have not been run, or what failed.
type Judgement = Result<BTreeSet<&'static str>, String>;

impl Attestation {
    /// What it says of an image: nothing, or a judgement.
    fn judge(&self, kernel: &str, target: &str, sha256: &str) -> Option<Judgement> {
        let entry = self.kernels.iter().find(|entry| {
            let names = (
                entry.name.as_str(),
                entry.target.as_deref(),
                entry.sha256.as_deref(),
            );
            names == (kernel, Some(target), Some(sha256))
        })?;
        Some(self.judgement(entry))
    }

    fn judgement(&self, entry: &Kernel) -> Judgement {
        if self.device.kind != "gpu" {
            return Err(format!("ran on a {} and not on a GPU", self.device.kind));
        }
        if entry.cases == 0 || entry.passed != entry.cases {
            return Err(format!("{} of {} cases passed", entry.passed, entry.cases));
        }
        let mut missing = BTreeSet::new();
        match &self.repeated {
            None => {
                missing.insert("repeated");
            }
            Some(repeated) if !repeated.ok || repeated.runs < REPEATS => {
                return Err(format!("not the same bits in {REPEATS} runs"));
            }
            Some(_) => {}
        }
        match &self.same_bits_as_emulator {
            None => {
                missing.insert("same_bits_as_emulator");
            }
            Some(same) if !same.ok => {
                return Err("integer kernels did not give the emulator's bits".to_owned());
            }
            Some(_) => {}
        }
        for tool in SANITIZERS {
            match self.sanitizers.get(tool) {
                None => {
                    missing.insert(tool);
                }
                Some(verdict) if !verdict.clean => {
                    return Err(format!("{tool} is not clean: {}", verdict.summary));
                }
                Some(_) => {}
            }
        }
        Ok(missing)
    }
}

/// The proofs that `outstanding.txt` of a folder names, by kernel and SHA-256; none without that file.
///
/// # Errors
/// A line that is not a kernel, a hash and proofs.
fn outstanding(folder: &Path) -> Result<BTreeMap<(String, String), BTreeSet<String>>, String> {
    let path = folder.join("outstanding.txt");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let parse = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        let (kernel, hash) = (words.next()?, words.next()?);
        let proofs = BTreeSet::from_iter(words);
        let known = |proof: &String| {
            ["repeated", "same_bits_as_emulator"].contains(&proof.as_str())
                || SANITIZERS.contains(&proof.as_str())
        };
        (!proofs.is_empty() && proofs.iter().all(known)).then_some(((kernel, hash), proofs))
    };
    lines
        .map(|line| parse(line).ok_or_else(|| format!("{}: {line}", path.display())))
        .collect()
}

/// Every attestation of a folder, by its file.
fn read(folder: &Path) -> Result<Vec<(PathBuf, Attestation)>, String> {
    let entries =
        std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    });
    paths.sort();
    let parse = |path: PathBuf| {
        let text = std::fs::read(&path).map_err(|error| error.to_string());
        text.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()))
            .map_err(|error| format!("{}: no attestation: {error}", path.display()))
            .map(|attestation| (path, attestation))
    };
    paths.into_iter().map(parse).collect()
}

/// What there was to compare.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// So many kernels are attested, and of so many some proofs are outstanding.
    Attested { whole: usize, partly: usize },
    /// The archive has no machine code for the device.
    NoCode,
    /// Every attestation is of another compiler's code, whose hashes say nothing about this one's.
    OtherCompiler,
}

/// Holds the archive's machine code against a folder of attestations.
///
/// # Errors
/// Names every kernel without a good attestation, the reason, and what to do.
fn check(archive: &Archive, folder: &Path) -> Result<Outcome, String> {
    let images = archive.kernels().iter().filter_map(|kernel| {
        let entry = kernel.choose(DEVICE).ok()?;
        let image = (
            kernel.name.as_str(),
            entry.target.to_string(),
            entry.raw_hash.to_string(),
        );
        (entry.target.kind == ImageKind::Sass).then_some(image)
    });
    let images = Vec::from_iter(images);
    if images.is_empty() {
        return Ok(Outcome::NoCode);
    }
    let attestations = read(folder).map_err(|error| format!("{error}\n{RENEW}"))?;
    let compiler = &archive.metadata().compiler;
    let same = attestations
        .iter()
        .filter(|(_, attestation)| attestation.compiler == *compiler);
    let same = Vec::from_iter(same);
    if same.is_empty() && !attestations.is_empty() {
        return Ok(Outcome::OtherCompiler);
    }
    let mut outstanding = outstanding(folder)?;
    let (mut failures, mut partly) = (Vec::new(), 0);
    for (name, target, hash) in &images {
        let verdicts = same.iter().filter_map(|(path, attestation)| {
            let verdict = attestation.judge(name, target, hash)?;
            Some(verdict.map_err(|why| format!("{}: {why}", path.display())))
        });
        // What no good report has is missing; a failure counts only where no report is good.
        let best = verdicts.reduce(|one, other| match (one, other) {
            (Ok(one), Ok(other)) => Ok(&one & &other),
            (Ok(missing), Err(_)) | (Err(_), Ok(missing)) => Ok(missing),
            (Err(why), Err(_)) => Err(why),
        });
        let named = outstanding.remove(&(name.to_string(), hash.clone()));
        let named = named.unwrap_or_default();
        let why = match best {
            None => "no attestation has this hash".to_owned(),
            Some(Err(why)) => why,
            Some(Ok(missing)) if missing.iter().all(|proof| named.contains(*proof)) => {
                partly += usize::from(!missing.is_empty());
                match named.iter().find(|proof| !missing.contains(proof.as_str())) {
                    None => continue,
                    Some(proof) => {
                        format!("{proof} is not outstanding: take it from outstanding.txt")
                    }
                }
            }
            Some(Ok(missing)) => {
                let missing = missing.iter().filter(|proof| !named.contains(**proof));
                format!(
                    "did not run: {}",
                    Vec::from_iter(missing.copied()).join(" ")
                )
            }
        };
        failures.push(format!("{name} {target} {hash}: {why}"));
    }
    failures.extend(outstanding.into_keys().map(|(name, hash)| {
        format!("{name} {hash}: this code is not in the archive: take it from outstanding.txt")
    }));
    if failures.is_empty() {
        let whole = images.len() - partly;
        return Ok(Outcome::Attested { whole, partly });
    }
    Err(format!(
        "{} of {} kernels are not attested for compute capability {DEVICE} by {compiler}:\n  {}\n{RENEW}",
        failures.len(),
        images.len(),
        failures.join("\n  ")
    ))
}

#[test]
fn every_kernel_of_the_archive_is_attested() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attested");
    match check(&zinc_cuda::archive().unwrap(), &folder) {
        Ok(Outcome::Attested { whole, partly }) => {
            println!("{whole} kernels are attested, and {partly} with some proofs outstanding");
        }
        Ok(other) => println!("not checked: {other:?}"),
        Err(text) => panic!("{text}"),
    }
}

mod of_the_check {
    use cubin_format::archive::Payload;
    use cubin_format::{ArchiveBuilder, Digest, Metadata, NewKernel, NewTarget, Resources};
    use serde_json::{Value, json};

    use super::*;

    const COMPILER: &str = "nvcc 1.2.3";
    const KERNELS: [&str; 2] = ["argmax", "vadd"];
    const TARGET: &str = "sm_90";

    /// An archive with these kernels for `target`; each image is the kernel's name.
    fn archive(target: &str) -> Archive<'static> {
        let mut builder = ArchiveBuilder::new(Metadata {
            compiler: COMPILER.to_owned(),
            ..Metadata::default()
        });
        for name in KERNELS {
            builder.push(NewKernel {
                name: name.to_owned(),
                entry: name.to_owned(),
                targets: vec![NewTarget {
                    target: target.parse().unwrap(),
                    resources: Resources::default(),
                    compiler: String::new(),
                    payload: Payload::compress(name.as_bytes()).unwrap(),
                }],
                ..NewKernel::default()
            });
        }
        Archive::from_vec(builder.finish().unwrap()).unwrap()
    }

    /// A good attestation of these kernels, in the form that `tools/attest` writes.
    fn attestation(kernels: &[&str]) -> Value {
        let kernel = |name: &&str| {
            json!({
                "name": name,
                "target": TARGET,
                "sha256": Digest::of(name.as_bytes()).to_string(),
                "cases": 7,
                "passed": 7,
                "max_error_over_tolerance": 0.25,
                "worst_case": "all",
            })
        };
        json!({
            "tool": "zinc-cubin",
            "version": "0.1.0",
            "compiler": COMPILER,
            "source_hash": "00",
            "device": {"kind": "gpu", "name": "NVIDIA H200", "capability": "9.0", "driver": "13.0"},
            "kernels": Vec::from_iter(kernels.iter().map(kernel)),
            "cases": 7 * kernels.len(),
            "passed": 7 * kernels.len(),
            "repeated": {"ok": true, "runs": REPEATS, "kernels": "all"},
            "same_bits_as_emulator": {"ok": true, "kernels": []},
            "sanitizers": {
                "memcheck": {"clean": true, "summary": "ERROR SUMMARY: 0 errors"},
                "racecheck": {"clean": true, "summary": "RACECHECK SUMMARY: 0 hazards displayed"},
                "initcheck": {"clean": true, "summary": "ERROR SUMMARY: 0 errors"},
                "synccheck": {"clean": true, "summary": "ERROR SUMMARY: 0 errors"},
            },
        })
    }

    /// Checks the archive against a folder with these attestations.
    fn check_with(attestations: &[Value]) -> Result<Outcome, String> {
        let folder = tempfile::tempdir().unwrap();
        for (index, value) in attestations.iter().enumerate() {
            let path = folder.path().join(format!("{index}.json"));
            std::fs::write(path, value.to_string()).unwrap();
        }
        std::fs::write(folder.path().join("README.md"), "no attestation").unwrap();
        check(&archive(TARGET), folder.path())
    }

    /// The check fails for exactly these kernels, and says why and what to do.
    #[track_caller]
    fn fails(attestations: &[Value], kernels: &[&str], why: &str) {
        let text = check_with(attestations).unwrap_err();
        for name in KERNELS {
            let named = text.contains(&format!("{name} {TARGET} {}", Digest::of(name.as_bytes())));
            assert_eq!(named, kernels.contains(&name), "{name}: {text}");
        }
        for part in [why, "tools/attest", "tests/attested"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    /// A good attestation after a change.
    fn changed(change: impl FnOnce(&mut Value)) -> [Value; 1] {
        let mut value = attestation(&KERNELS);
        change(&mut value);
        [value]
    }

    #[test]
    fn attested_kernels_pass_from_one_file_or_several() {
        assert_eq!(
            check_with(&[attestation(&KERNELS)]),
            Ok(Outcome::Attested {
                whole: 2,
                partly: 0
            })
        );
        let each = KERNELS.map(|name| attestation(&[name]));
        assert_eq!(
            check_with(&each),
            Ok(Outcome::Attested {
                whole: 2,
                partly: 0
            })
        );
    }

    #[test]
    fn kernel_without_an_attestation_fails() {
        fails(&[], &KERNELS, "no attestation has this hash");
        fails(
            &[attestation(&["vadd"])],
            &["argmax"],
            "no attestation has this hash",
        );
    }

    #[test]
    fn changed_code_fails() {
        let other = Digest::of(b"vadd of yesterday").to_string();
        let attestations = changed(|value| value["kernels"][1]["sha256"] = json!(other));
        fails(&attestations, &["vadd"], "no attestation has this hash");
    }

    #[test]
    fn code_of_another_kernel_or_target_attests_nothing() {
        let attestations = changed(|value| value["kernels"][1]["name"] = json!("argmax"));
        fails(&attestations, &["vadd"], "no attestation has this hash");
        let attestations = changed(|value| value["kernels"][0]["target"] = json!("sm_80"));
        fails(&attestations, &["argmax"], "no attestation has this hash");
    }

    #[test]
    fn code_that_a_device_would_not_load_attests_nothing() {
        // The attestation is of sm_90, and the archive's sm_90a would be loaded instead.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.json");
        std::fs::write(path, attestation(&KERNELS).to_string()).unwrap();
        let text = check(&archive("sm_90a"), folder.path()).unwrap_err();
        assert!(
            text.contains("2 of 2") && text.contains("vadd sm_90a"),
            "{text}"
        );
    }

    #[test]
    fn failed_or_missing_cases_fail() {
        let attestations = changed(|value| value["kernels"][0]["passed"] = json!(6));
        fails(&attestations, &["argmax"], "6 of 7 cases passed");
        let attestations = changed(|value| {
            value["kernels"][0]["cases"] = json!(0);
            value["kernels"][0]["passed"] = json!(0);
        });
        fails(&attestations, &["argmax"], "0 of 0 cases passed");
    }

    #[test]
    fn other_bits_in_a_later_run_or_on_the_emulator_fail() {
        let attestations = changed(|value| value["repeated"]["ok"] = json!(false));
        fails(&attestations, &KERNELS, "not the same bits in 20 runs");
        let attestations = changed(|value| value["repeated"]["runs"] = json!(2));
        fails(&attestations, &KERNELS, "not the same bits in 20 runs");
        let attestations = changed(|value| value["same_bits_as_emulator"]["ok"] = json!(false));
        fails(&attestations, &KERNELS, "the emulator's bits");
    }

    #[test]
    fn sanitizer_that_found_something_or_did_not_run_fails() {
        let attestations = changed(|value| {
            value["sanitizers"]["memcheck"] = json!({"clean": false, "summary": "28 errors"});
        });
        fails(&attestations, &KERNELS, "memcheck is not clean: 28 errors");
        let attestations = changed(|value| {
            value["sanitizers"]
                .as_object_mut()
                .unwrap()
                .remove("racecheck");
        });
        fails(&attestations, &KERNELS, "did not run: racecheck");
    }

    #[test]
    fn proofs_that_have_not_run_are_named_one_by_one() {
        let attestations = changed(|value| {
            value.as_object_mut().unwrap().remove("repeated");
        });
        let check_named = |lines: &[String]| {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("0.json"), attestations[0].to_string()).unwrap();
            let text = format!("# proofs\n{}\n", lines.join("\n"));
            std::fs::write(folder.path().join("outstanding.txt"), text).unwrap();
            check(&archive(TARGET), folder.path())
        };
        let line =
            |name: &str, proofs: &str| format!("{name} {} {proofs}", Digest::of(name.as_bytes()));
        let both = [line("argmax", "repeated"), line("vadd", "repeated")];
        let partly = Ok(Outcome::Attested {
            whole: 0,
            partly: 2,
        });
        assert_eq!(check_named(&both), partly);
        fails(&attestations, &KERNELS, "did not run: repeated");
        let refused = |lines: &[String], why: &str| {
            let text = check_named(lines).unwrap_err();
            assert!(text.contains(why), "{why} is missing in {text}");
        };
        refused(&both[..1], "vadd sm_90");
        refused(
            &[line("argmax", "racecheck"), both[1].clone()],
            "did not run: repeated",
        );
        refused(
            &[line("argmax", "repeated racecheck"), both[1].clone()],
            "racecheck is not outstanding",
        );
        let other = [both[0].clone(), both[1].clone(), line("scale", "repeated")];
        refused(&other, "not in the archive");
        refused(&[line("argmax", "luck")], "outstanding.txt: argmax");
        refused(&[line("argmax", "")], "outstanding.txt: argmax");
    }

    #[test]
    fn good_attestation_counts_beside_a_bad_one_of_the_same_code() {
        let [bad] = changed(|value| value["kernels"][0]["passed"] = json!(6));
        assert_eq!(
            check_with(&[bad, attestation(&KERNELS)]),
            Ok(Outcome::Attested {
                whole: 2,
                partly: 0
            })
        );
    }

    #[test]
    fn proofs_of_several_reports_add_up() {
        let without = |tool: &str| {
            let mut value = attestation(&KERNELS);
            let sanitizers = value["sanitizers"].as_object_mut();
            sanitizers.unwrap().remove(tool).unwrap();
            value
        };
        assert_eq!(
            check_with(&[without("racecheck"), without("memcheck")]),
            Ok(Outcome::Attested {
                whole: 2,
                partly: 0
            })
        );
        let twice = [without("racecheck"), without("racecheck")];
        fails(&twice, &KERNELS, "did not run: racecheck");
    }

    #[test]
    fn report_of_the_emulator_attests_nothing() {
        let attestations = changed(|value| value["device"]["kind"] = json!("cpu"));
        fails(&attestations, &KERNELS, "ran on a cpu");
        let attestations = changed(|value| value["kernels"][0]["sha256"] = Value::Null);
        fails(&attestations, &["argmax"], "no attestation has this hash");
    }

    #[test]
    fn code_of_another_compiler_or_target_is_not_compared() {
        let attestations = changed(|value| value["compiler"] = json!("nvcc 9.9"));
        assert_eq!(check_with(&attestations), Ok(Outcome::OtherCompiler));
        let empty = tempfile::tempdir().unwrap();
        let outcome = check(&archive("sm_80"), empty.path());
        assert_eq!(outcome, Ok(Outcome::NoCode));
    }

    #[test]
    fn file_that_is_no_attestation_and_a_missing_folder_fail() {
        let text = check_with(&[json!({"kernels": []})]).unwrap_err();
        assert!(
            text.contains("0.json") && text.contains("no attestation"),
            "{text}"
        );
        let text = check(&archive(TARGET), Path::new("/nowhere")).unwrap_err();
        assert!(
            text.contains("/nowhere") && text.contains("tools/attest"),
            "{text}"
        );
    }
}
