use proptest::prelude::*;

use super::*;
use crate::test_support::{Elf, SOURCE, toolkit};

const PTX: &[u8] = b"//\n// made by hand\n//\n\n.version 8.4\n.target sm_90\n.address_size 64\n";

fn target(text: &str) -> Target {
    text.parse().unwrap()
}

fn small() -> Vec<u8> {
    let (plain, accelerated) = (Elf::vadd(75, false).bytes(), Elf::vadd(100, true).bytes());
    write(&[
        Image {
            target: target("sm_75"),
            bytes: &plain,
        },
        Image {
            target: target("sm_100a"),
            bytes: &accelerated,
        },
        Image {
            target: target("compute_90"),
            bytes: PTX,
        },
    ])
    .unwrap()
}

#[test]
fn fatbin_round_trips_targets_and_bytes() {
    let fatbin = small();
    let images = read(&fatbin).unwrap();
    let targets: Vec<String> = images
        .iter()
        .map(|image| image.target.to_string())
        .collect();
    assert_eq!(targets, ["sm_75", "sm_100a", "compute_90"]);
    assert_eq!(images[0].bytes, Elf::vadd(75, false).bytes());
    assert_eq!(images[1].bytes, Elf::vadd(100, true).bytes());
    assert_eq!(images[2].bytes, PTX);
    assert_eq!(write(&images).unwrap(), fatbin);
}

#[test]
fn empty_fatbin_round_trips() {
    let fatbin = write(&[]).unwrap();
    assert_eq!(fatbin.len(), 16);
    assert_eq!(read(&fatbin), Ok(Vec::new()));
}

#[test]
fn image_that_does_not_fit_its_target_is_refused() {
    let cubin = Elf::vadd(90, false).bytes();
    let one = |text: &str, bytes: &[u8]| {
        write(&[Image {
            target: target(text),
            bytes,
        }])
    };
    let wanted = target("sm_90a");
    assert_eq!(
        one("sm_90a", &cubin),
        Err(FatbinError::Arch {
            wanted,
            found: "90".parse().unwrap()
        })
    );
    assert!(matches!(
        one("sm_90", PTX),
        Err(FatbinError::Cubin {
            source: CubinError::Magic { .. },
            ..
        })
    ));
    for text in [
        b"" as &[u8],
        b"\xff",
        b".version",
        b".version nine",
        b".target sm_90",
    ] {
        let target = target("compute_90");
        assert_eq!(
            one("compute_90", text),
            Err(FatbinError::PtxVersion { target })
        );
    }
    let error = FatbinError::PtxNul {
        target: target("compute_90"),
        at: 12,
    };
    assert_eq!(one("compute_90", b".version 8.4\0"), Err(error));
    let image = Image {
        target: target("compute_90"),
        bytes: PTX,
    };
    assert_eq!(
        write(&[image, image]),
        Err(FatbinError::DuplicateTarget {
            target: image.target
        })
    );
}

#[test]
fn damaged_fatbin_is_refused_by_field() {
    let with = |at: usize, bytes: &[u8]| {
        let mut fatbin = small();
        fatbin[at..at + bytes.len()].copy_from_slice(bytes);
        read(&fatbin).map(|images| images.len())
    };
    assert_eq!(
        with(0, &[0]),
        Err(FatbinError::Magic { found: 0xba55_ed00 })
    );
    let unknown = |result: Result<usize, FatbinError>| match result {
        Err(FatbinError::Unknown { what, at, .. }) => (what, at),
        other => panic!("{other:?}"),
    };
    assert_eq!(unknown(with(4, &[2])), ("container version", 4));
    assert_eq!(unknown(with(6, &[24])), ("container header size", 6));
    assert_eq!(unknown(with(16, &[4])), ("entry kind", 16));
    assert_eq!(unknown(with(18, &[2])), ("entry version", 18));
    assert_eq!(unknown(with(20, &[56])), ("entry header size", 20));
    assert_eq!(unknown(with(32, &[1])), ("compression", 32));
    assert_eq!(unknown(with(58, &[0x30])), ("entry flags", 56));
    assert!(matches!(
        with(24, &[0xff; 8]),
        Err(FatbinError::Truncated {
            what: "payload",
            wanted: u64::MAX,
            ..
        })
    ));
    assert!(matches!(
        with(8, &[0xff; 8]),
        Err(FatbinError::Truncated {
            what: "entries",
            wanted: u64::MAX,
            ..
        })
    ));
    assert!(matches!(
        with(44, &[1]),
        Err(FatbinError::EntryArch { at: 16, .. })
    ));
    let good = small();
    for length in 0..good.len() {
        assert!(read(&good[..length]).is_err(), "cut to {length} bytes");
    }
    let error = FatbinError::Trailing {
        at: good.len(),
        found: 3,
    };
    assert_eq!(read(&[good, vec![0; 3]].concat()), Err(error));
}

#[test]
fn fatbin_equals_that_of_the_toolkit() {
    let Some(toolkit) = toolkit("fatbin against fatbinary and cuobjdump") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    // fatbinary rewrites PTX (comments, white space); what it made of it once, it keeps.
    std::fs::write(path.join("ptx"), toolkit.ptx(SOURCE, "120", path)).unwrap();
    toolkit.run(
        "fatbinary",
        &[
            "--create=ptx.fatbin",
            "--compress=false",
            "--image3=kind=ptx,sm=120,file=ptx",
        ],
        path,
    );
    let rewritten = std::fs::read(path.join("ptx.fatbin")).unwrap();
    let ptx = read(&rewritten).unwrap()[0].bytes;
    let names = [
        "sm_75",
        "sm_80",
        "sm_86",
        "sm_89",
        "sm_90",
        "sm_90a",
        "sm_100",
        "sm_100f",
        "sm_120a",
        "compute_120",
    ];
    let images: Vec<(Target, Vec<u8>)> = names
        .iter()
        .map(|name| {
            let image = match target(name).kind {
                ImageKind::Sass => toolkit.cubin(SOURCE, &name["sm_".len()..], path),
                ImageKind::Ptx => ptx.to_vec(),
            };
            (target(name), image)
        })
        .collect();
    let borrowed: Vec<Image> = images
        .iter()
        .map(|(target, bytes)| Image {
            target: *target,
            bytes,
        })
        .collect();
    let ours = write(&borrowed).unwrap();

    let mut arguments = vec![
        "--create=theirs.fatbin".to_owned(),
        "--compress=false".to_owned(),
        "-64".to_owned(),
    ];
    for (target, bytes) in &images {
        std::fs::write(path.join(target.to_string()), bytes).unwrap();
        let kind = if target.kind == ImageKind::Sass {
            "elf"
        } else {
            "ptx"
        };
        arguments.push(format!(
            "--image3=kind={kind},sm={},file={target}",
            target.arch
        ));
    }
    toolkit.run(
        "fatbinary",
        &arguments.iter().map(String::as_str).collect::<Vec<_>>(),
        path,
    );
    let theirs = std::fs::read(path.join("theirs.fatbin")).unwrap();

    assert!(read(&theirs) == read(&ours), "the images differ");
    let difference = ours.iter().zip(&theirs).position(|(a, b)| a != b);
    assert_eq!(
        (difference, ours.len()),
        (None, theirs.len()),
        "first different byte, length"
    );

    std::fs::write(path.join("ours.fatbin"), &ours).unwrap();
    let listed = toolkit.run("cuobjdump", &["-lelf", "-lptx", "ours.fatbin"], path);
    for name in [
        "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120a",
    ] {
        assert!(
            listed.contains(&format!(".{name}.cubin")),
            "{name} not in {listed}"
        );
    }
    assert!(listed.contains(".sm_120.ptx"), "{listed}");
}

proptest! {
    #[test]
    fn mutated_fatbins_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        in_header in prop::collection::vec((0usize..96, any::<u8>()), 0..4),
    ) {
        let mut fatbin = small();
        for (at, value) in changes {
            let at = at.index(fatbin.len());
            fatbin[at] = value;
        }
        for (at, value) in in_header {
            fatbin[at] = value;
        }
        if let Ok(images) = read(&fatbin) {
            let _ = write(&images);
        }
    }
}
