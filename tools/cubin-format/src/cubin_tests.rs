use proptest::prelude::*;

use super::*;
use crate::test_support::{
    Elf as TestElf, SMALL_SOURCE, SOURCE, Section, Symbol, attribute, parameter, short_attribute,
    toolkit,
};

fn changed(change: impl FnOnce(&mut TestElf)) -> Result<Cubin, CubinError> {
    let mut elf = TestElf::vadd(90, false);
    change(&mut elf);
    Cubin::parse(&elf.bytes())
}

fn vadd() -> Entry {
    changed(|_| {}).unwrap().entry("vadd").unwrap().clone()
}

#[test]
fn synthesised_cubin_reads_back() {
    for (number, accelerated, arch) in [
        (75, false, "75"),
        (89, false, "89"),
        (90, true, "90a"),
        (120, false, "120"),
    ] {
        let cubin = Cubin::parse(&TestElf::vadd(number, accelerated).bytes()).unwrap();
        assert_eq!((cubin.arch, cubin.abi_version), (arch.parse().unwrap(), 8));
        assert_eq!(cubin.entries.len(), 1);
        let entry = cubin.entry("vadd").unwrap();
        let places: Vec<_> = entry
            .parameters
            .iter()
            .map(|p| (p.ordinal, p.offset, p.size))
            .collect();
        assert_eq!(places, [(0, 0, 8), (1, 8, 8), (2, 16, 8), (3, 24, 12)]);
        assert_eq!(
            (entry.parameter_bytes, entry.registers, entry.shared_bytes),
            (36, 40, 512),
            "{arch}"
        );
        assert_eq!(
            (entry.frame_bytes, entry.stack_bytes, entry.local_bytes()),
            (48, 64, 64)
        );
        assert_eq!(entry.max_threads, Some([256, 1, 1]));
        let resources = entry.resources(4, 8);
        assert_eq!(
            (
                resources.registers,
                resources.local_bytes,
                resources.spill_bytes()
            ),
            (40, 64, 12)
        );
    }
}

#[test]
fn cubin_of_cuda_12_keeps_the_architecture_in_the_low_byte() {
    for (flags, arch) in [
        (0x4b054b, "75"),
        (0x560556, "86"),
        (0x5a055a, "90"),
        (0x5a0d5a, "90a"),
    ] {
        let cubin = changed(|elf| (elf.abi, elf.flags) = (7, flags)).unwrap();
        assert_eq!((cubin.arch, cubin.abi_version), (arch.parse().unwrap(), 7));
    }
}

#[test]
fn cubin_is_for_its_number_and_a_suffix_but_does_not_know_f() {
    let plain = changed(|_| {}).unwrap();
    let accelerated = Cubin::parse(&TestElf::vadd(90, true).bytes()).unwrap();
    let is_for =
        |cubin: &Cubin| ["90", "90f", "90a", "89"].map(|arch| cubin.is_for(arch.parse().unwrap()));
    assert_eq!(is_for(&plain), [true, true, false, false]);
    assert_eq!(is_for(&accelerated), [false, false, true, false]);
}

#[test]
fn what_is_no_cubin_is_refused_by_reason() {
    assert_eq!(
        Cubin::parse(b""),
        Err(CubinError::Magic { found: Vec::new() })
    );
    assert_eq!(
        Cubin::parse(b".version 9.0"),
        Err(CubinError::Magic {
            found: b".ver".to_vec()
        })
    );
    let good = TestElf::vadd(90, false).bytes();
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Cubin::parse(&bytes)
    };
    assert_eq!(with(4, 1), Err(CubinError::Class { class: 1, data: 1 }));
    assert_eq!(with(5, 2), Err(CubinError::Class { class: 2, data: 2 }));
    assert_eq!(with(8, 9), Err(CubinError::Abi { found: 9 }));
    assert_eq!(
        changed(|elf| elf.machine = 62),
        Err(CubinError::Machine {
            wanted: 190,
            found: 62
        })
    );
    assert!(matches!(
        changed(|elf| elf.flags = 4),
        Err(CubinError::Arch(ArchError::NotANumber { .. }))
    ));
    for length in 0..good.len() {
        assert!(
            Cubin::parse(&good[..length]).is_err(),
            "cut to {length} bytes"
        );
    }
}

#[test]
fn unaligned_cubin_reads_like_an_aligned_one() {
    let good = TestElf::vadd(90, false).bytes();
    for shift in 1..8 {
        let shifted = [vec![0; shift], good.clone()].concat();
        assert_eq!(Cubin::parse(&shifted[shift..]), Cubin::parse(&good));
    }
}

#[test]
fn function_that_is_no_entry_is_not_listed() {
    let cubin = changed(|elf| {
        let section = ".text.vadd".to_owned();
        elf.symbols.push(Symbol {
            name: "$vadd$called".to_owned(),
            info: 0x02,
            other: 0,
            section,
        });
    });
    assert_eq!(cubin.unwrap().entries.len(), 1);
}

#[test]
fn entry_in_a_foreign_section_is_refused() {
    let found = changed(|elf| elf.symbols[0].section = ".nv.info".to_owned());
    let (entry, wanted) = ("vadd".to_owned(), ".text.vadd".to_owned());
    assert_eq!(
        found,
        Err(CubinError::EntrySection {
            entry,
            wanted,
            found: ".nv.info".to_owned()
        })
    );
}

#[test]
fn contradictions_between_parts_are_refused_by_name() {
    let entry = || "vadd".to_owned();
    let missing = changed(|elf| elf.section(".nv.info.vadd").name = ".nv.else".to_owned());
    let section = ".nv.info.vadd".to_owned();
    assert_eq!(
        missing,
        Err(CubinError::MissingSection {
            entry: entry(),
            section
        })
    );
    assert_eq!(
        changed(|elf| elf.section(".nv.info").data.clear()),
        Err(CubinError::NoRegisterCount { entry: entry() })
    );
    let twice = changed(|elf| elf.section(".nv.compat").name = ".nv.info".to_owned());
    assert_eq!(
        twice,
        Err(CubinError::DuplicateSection {
            name: ".nv.info".to_owned()
        })
    );
    let twice = changed(|elf| {
        elf.section(".nv.info")
            .data
            .extend(attribute(0x2f, &[2, 32]));
        elf.symbols.push(Symbol {
            name: entry(),
            info: 0x12,
            other: 0x10,
            section: ".text.vadd".to_owned(),
        });
    });
    assert_eq!(twice, Err(CubinError::DuplicateEntry { entry: entry() }));
    let gap = changed(|elf| {
        elf.section(".nv.info.vadd")
            .data
            .extend(parameter(5, 36, 4))
    });
    assert_eq!(
        gap,
        Err(CubinError::ParameterOrdinal {
            entry: entry(),
            wanted: 4,
            found: 5
        })
    );
    let twice = changed(|elf| {
        elf.section(".nv.info.vadd")
            .data
            .extend(parameter(3, 36, 4))
    });
    assert_eq!(
        twice,
        Err(CubinError::ParameterOrdinal {
            entry: entry(),
            wanted: 4,
            found: 3
        })
    );
    let huge = changed(|elf| elf.section(".nv.shared.vadd").nobits = u64::MAX);
    assert!(matches!(huge, Err(CubinError::Damaged { what, .. }) if what == ".nv.shared.vadd"));
}

#[test]
fn damaged_attributes_are_refused_with_their_place() {
    let info = |tail: &[u8]| changed(|elf| elf.section(".nv.info").data = tail.to_vec());
    let section = || ".nv.info".to_owned();
    let cut = |attribute, wanted, found| {
        Err(CubinError::Attribute {
            section: section(),
            attribute,
            at: 0,
            wanted,
            found,
        })
    };
    assert_eq!(info(&[4, 0x2f]), cut(0x2f, 4, 2));
    assert_eq!(info(&[4, 0x2f, 8, 0, 1, 0, 0, 0]), cut(0x2f, 12, 8));
    assert_eq!(info(&attribute(0x2f, &[1])), cut(0x2f, 8, 4));
    assert_eq!(info(&short_attribute(3, 0x2f, 40)), cut(0x2f, 8, 0));
    assert_eq!(
        info(&[9, 0, 0, 0]),
        Err(CubinError::AttributeFormat {
            section: section(),
            at: 0,
            found: 9
        })
    );
}

#[test]
fn unknown_entry_names_what_there_is() {
    let error = changed(|_| {}).unwrap().entry("vmul").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the cubin has no entry vmul; it has: vadd"
    );
}

#[test]
fn abi_of_three_pointers_and_a_push_block_passes() {
    assert_eq!(check_abi(&vadd(), 3, 12), Ok(()));
}

#[test]
fn abi_mismatch_names_parameter_place_and_size() {
    let entry = || "vadd".to_owned();
    assert_eq!(
        check_abi(&vadd(), 4, 12),
        Err(AbiMismatch::Count {
            entry: entry(),
            wanted: 5,
            found: 4
        })
    );
    assert_eq!(
        check_abi(&vadd(), 3, 0),
        Err(AbiMismatch::Count {
            entry: entry(),
            wanted: 3,
            found: 4
        })
    );
    let push = AbiMismatch::Parameter {
        entry: entry(),
        ordinal: 3,
        wanted_offset: 24,
        wanted_size: 16,
        found_offset: 24,
        found_size: 12,
    };
    assert_eq!(check_abi(&vadd(), 3, 16), Err(push));
    let mut moved = vadd();
    moved.parameters[1].offset = 12;
    assert!(matches!(
        check_abi(&moved, 3, 12),
        Err(AbiMismatch::Parameter {
            ordinal: 1,
            found_offset: 12,
            ..
        })
    ));
    let mut padded = vadd();
    padded.parameter_bytes = 40;
    assert_eq!(
        check_abi(&padded, 3, 12),
        Err(AbiMismatch::Bytes {
            entry: entry(),
            wanted: 36,
            found: 40
        })
    );
}

#[test]
fn abi_without_a_push_block_has_pointers_only() {
    let mut entry = vadd();
    entry.parameters.pop();
    entry.parameter_bytes = 24;
    assert_eq!(check_abi(&entry, 3, 0), Ok(()));
}

#[test]
fn cubins_of_the_toolkit_read_back_on_every_architecture() {
    let Some(toolkit) = toolkit("reading real cubins") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    for arch in [
        "75", "80", "86", "89", "90", "90a", "100", "100f", "120", "120a",
    ] {
        let bytes = toolkit.cubin(SOURCE, arch, directory.path());
        let cubin = Cubin::parse(&bytes).unwrap();
        let wanted: Arch = arch.parse().unwrap();
        assert!(cubin.is_for(wanted), "{arch} reads as {}", cubin.arch);
        assert_eq!(
            cubin.arch.suffix() == Suffix::A,
            arch.ends_with('a'),
            "{arch}"
        );
        let names: Vec<&str> = cubin
            .entries
            .iter()
            .map(|entry| entry.name.as_str())
            .collect();
        assert_eq!(names, ["dynamic", "local", "nothing", "vadd"], "{arch}");
        let vadd = cubin.entry("vadd").unwrap();
        check_abi(vadd, 3, 12).unwrap();
        assert_eq!((vadd.shared_bytes, vadd.local_bytes()), (512, 0), "{arch}");
        assert_eq!(vadd.max_threads, Some([256, 1, 1]), "{arch}");
        assert!(
            (8..=32).contains(&vadd.registers),
            "{arch}: {} registers",
            vadd.registers
        );
        let local = cubin.entry("local").unwrap();
        check_abi(local, 2, 0).unwrap();
        assert_eq!(
            (local.shared_bytes, local.local_bytes()),
            (0, 256),
            "{arch}"
        );
        let dynamic = cubin.entry("dynamic").unwrap();
        check_abi(dynamic, 1, 20_000).unwrap();
        assert_eq!(dynamic.shared_bytes, 0, "{arch}");
        check_abi(cubin.entry("nothing").unwrap(), 0, 0).unwrap();
    }
}

#[test]
fn mutated_cubins_of_the_toolkit_never_panic() {
    let Some(toolkit) = toolkit("mutating real cubins") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    for arch in ["75", "120"] {
        let good = toolkit.cubin(SMALL_SOURCE, arch, directory.path());
        let mut bytes = good.clone();
        // Every byte once with a few values: headers, tables and attributes are all hit.
        for at in 0..bytes.len() {
            for value in [0, 0xff, good[at] ^ 0x80, good[at].wrapping_add(1)] {
                bytes[at] = value;
                let _ = Cubin::parse(&bytes);
            }
            bytes[at] = good[at];
        }
        for length in 0..good.len() {
            let _ = Cubin::parse(&good[..length]);
        }
    }
}

proptest! {
    #[test]
    fn mutated_cubins_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = TestElf::vadd(90, true).bytes();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = Cubin::parse(&bytes);
    }

    #[test]
    fn random_information_sections_never_panic(
        info in prop::collection::vec(0u8..8, 0..64),
        entry in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let _ = changed(|elf| {
            elf.section(".nv.info").data = info;
            elf.section(".nv.info.vadd").data.extend(&entry);
            elf.sections.push(Section { name: ".nv.shared.x".to_owned(), data: entry, nobits: 0 });
        });
    }
}
