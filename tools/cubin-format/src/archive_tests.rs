use proptest::prelude::*;

use super::*;

fn target(text: &str) -> Target {
    text.parse().unwrap()
}

fn new_target(text: &str, raw: &[u8]) -> NewTarget {
    NewTarget {
        target: target(text),
        resources: Resources {
            registers: 32,
            shared_bytes: 1024,
            local_bytes: 8,
            spill_store_bytes: 4,
            spill_load_bytes: 12,
        },
        compiler: "nvcc 13.0".to_owned(),
        payload: Payload::compress(raw).unwrap(),
    }
}

fn new_kernel(name: &str, targets: Vec<NewTarget>) -> NewKernel {
    NewKernel {
        name: name.to_owned(),
        family: "elementwise".to_owned(),
        summary: "c = a + b".to_owned(),
        entry: name.to_owned(),
        extended: name.starts_with('x'),
        contract_hash: Digest::of(name.as_bytes()),
        targets,
    }
}

fn metadata() -> Metadata {
    Metadata {
        source_hash: Digest::of(b"sources"),
        compiler: "V13.0.88".to_owned(),
    }
}

fn build(kernels: Vec<NewKernel>) -> Result<Vec<u8>, ArchiveError> {
    let mut builder = ArchiveBuilder::new(metadata());
    kernels.into_iter().for_each(|kernel| builder.push(kernel));
    builder.finish()
}

/// Two kernels; `vadd` and `vmul` differ in one letter of name and image, so that the parts of one
/// fit the other.
fn small() -> Vec<u8> {
    build(vec![
        new_kernel(
            "vmul",
            vec![
                new_target("sm_90", b"image of vmul"),
                new_target("sm_75", b"older vmul"),
            ],
        ),
        new_kernel(
            "vadd",
            vec![
                new_target("compute_90", b".version 8"),
                new_target("sm_90", b"image of vadd"),
            ],
        ),
    ])
    .unwrap()
}

/// Recomputes lengths and the hash of header and index, as a writer with a bug would.
fn reseal(mut blob: Vec<u8>) -> Vec<u8> {
    let index_bytes = u64::from_le_bytes(blob[24..32].try_into().unwrap()) as usize;
    let total = blob.len() as u64;
    blob[16..24].copy_from_slice(&total.to_le_bytes());
    let seal = Digest::of_parts(&[&blob[..SEALED_HEADER], &blob[HEADER..HEADER + index_bytes]]);
    blob[SEALED_HEADER..HEADER].copy_from_slice(&seal.0);
    blob
}

fn find(blob: &[u8], what: &[u8]) -> usize {
    blob.windows(what.len())
        .position(|window| window == what)
        .unwrap()
}

/// Byte positions of the fields of the first image of the first kernel of [`small`].
struct Fields {
    kernel_flags: usize,
    count: usize,
    image: usize,
}

fn fields(blob: &[u8]) -> Fields {
    let kernel_flags = find(blob, &Digest::of(b"vadd").0) - 1;
    Fields {
        kernel_flags,
        count: kernel_flags + 33,
        image: kernel_flags + 35,
    }
}

fn patched(at: impl Fn(&Fields) -> usize, bytes: &[u8]) -> Vec<u8> {
    let mut blob = small();
    let at = at(&fields(&blob));
    blob[at..at + bytes.len()].copy_from_slice(bytes);
    reseal(blob)
}

/// What a reader of the whole archive sees; the error of the first damaged image counts.
fn read_all(blob: &[u8]) -> Result<(), ArchiveError> {
    Archive::open(blob)?
        .verify_all()
        .into_iter()
        .try_for_each(|checked| checked.result)
}

macro_rules! assert_error {
    ($result:expr, $pattern:pat $(if $guard:expr)?) => {
        match $result {
            Err($pattern) $(if $guard)? => {}
            other => panic!("wanted {}, found {:?}", stringify!($pattern $(if $guard)?), other.map(|_| ())),
        }
    };
}

#[test]
fn archive_round_trips_everything() {
    let blob = small();
    let archive = Archive::open(&blob).unwrap();
    assert_eq!(archive.metadata(), &metadata());
    assert_eq!(archive.bytes(), blob);
    let names: Vec<&str> = archive
        .kernels()
        .iter()
        .map(|kernel| kernel.name.as_str())
        .collect();
    assert_eq!(names, ["vadd", "vmul"]);
    let kernel = archive.kernel("vadd").unwrap();
    assert_eq!(
        (kernel.family.as_str(), kernel.summary.as_str()),
        ("elementwise", "c = a + b")
    );
    assert_eq!((kernel.entry.as_str(), kernel.extended), ("vadd", false));
    assert_eq!(kernel.contract_hash, Digest::of(b"vadd"));
    let listed: Vec<String> = kernel
        .targets
        .iter()
        .map(|entry| entry.target.to_string())
        .collect();
    assert_eq!(listed, ["sm_90", "compute_90"]);
    let entry = kernel.target(target("sm_90")).unwrap();
    assert_eq!(
        (entry.raw_bytes, entry.raw_hash),
        (13, Digest::of(b"image of vadd"))
    );
    assert_eq!(
        (entry.resources.registers, entry.resources.spill_bytes()),
        (32, 16)
    );
    assert_eq!(entry.compiler, "nvcc 13.0");
    assert_eq!(
        archive.image("vadd", target("sm_90")).unwrap(),
        b"image of vadd"
    );
    assert_eq!(
        archive.image("vadd", target("compute_90")).unwrap(),
        b".version 8"
    );
    assert_eq!(
        archive.image("vmul", target("sm_75")).unwrap(),
        b"older vmul"
    );
    let (entry, image) = archive.image_for("vmul", Capability::new(7, 5)).unwrap();
    assert_eq!(
        (entry.target, image.as_slice()),
        (target("sm_75"), b"older vmul".as_slice())
    );
    let checked = archive.verify_all();
    assert_eq!(checked.len(), 4);
    assert!(checked.iter().all(|checked| checked.result.is_ok()));
}

#[test]
fn archive_bytes_do_not_depend_on_the_order_of_adding() {
    let reordered = build(vec![
        new_kernel(
            "vadd",
            vec![
                new_target("sm_90", b"image of vadd"),
                new_target("compute_90", b".version 8"),
            ],
        ),
        new_kernel(
            "vmul",
            vec![
                new_target("sm_75", b"older vmul"),
                new_target("sm_90", b"image of vmul"),
            ],
        ),
    ]);
    assert_eq!(reordered.unwrap(), small());
}

#[test]
fn archive_file_and_owned_bytes_open_like_borrowed_ones() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kernels.zca");
    assert_error!(Archive::read(&path), ArchiveError::Io { path: named, .. } if named == path);
    std::fs::write(&path, small()).unwrap();
    let archive = Archive::read(&path).unwrap();
    assert_eq!(
        archive.image("vmul", target("sm_90")).unwrap(),
        b"image of vmul"
    );
}

#[test]
fn empty_archive_is_legal() {
    let blob = build(Vec::new()).unwrap();
    assert!(Archive::open(&blob).unwrap().kernels().is_empty());
}

#[test]
fn every_flipped_bit_is_detected() {
    let good = small();
    read_all(&good).unwrap();
    let mut blob = good.clone();
    for at in 0..blob.len() {
        for bit in 0..8 {
            blob[at] ^= 1 << bit;
            assert!(
                read_all(&blob).is_err(),
                "bit {bit} of byte {at} flipped unnoticed"
            );
            blob[at] ^= 1 << bit;
        }
    }
    assert_eq!(blob, good);
}

#[test]
fn every_truncation_and_an_extension_is_detected_at_opening() {
    let good = small();
    for length in 0..good.len() {
        assert!(
            Archive::open(&good[..length]).is_err(),
            "cut to {length} bytes unnoticed"
        );
    }
    let mut longer = good.clone();
    longer.push(0);
    let (wanted, found) = (good.len() as u64, longer.len() as u64);
    assert_error!(Archive::open(&longer), ArchiveError::Length { wanted: w, found: f } if (w, f) == (wanted, found));
}

#[test]
fn swapped_kernel_names_are_detected() {
    let mut blob = small();
    let (vadd, vmul) = (find(&blob, b"vadd"), find(&blob, b"vmul"));
    blob[vadd..vadd + 4].copy_from_slice(b"vmul");
    blob[vmul..vmul + 4].copy_from_slice(b"vadd");
    assert_error!(Archive::open(&blob), ArchiveError::IndexHash { .. });
}

#[test]
fn swapped_payloads_are_detected_in_both_kernels() {
    let mut blob = small();
    let archive = Archive::open(&blob).unwrap();
    let range = |kernel: &str| {
        let entry = archive
            .kernel(kernel)
            .unwrap()
            .target(target("sm_90"))
            .unwrap();
        let start = archive.payloads + entry.offset as usize;
        start..start + entry.stored_bytes as usize
    };
    let (a, b) = (range("vadd"), range("vmul"));
    assert_eq!(a.len(), b.len());
    let (old_a, old_b) = (blob[a.clone()].to_vec(), blob[b.clone()].to_vec());
    blob[a].copy_from_slice(&old_b);
    blob[b].copy_from_slice(&old_a);
    let archive = Archive::open(&blob).unwrap();
    for kernel in ["vadd", "vmul"] {
        let result = archive.image(kernel, target("sm_90"));
        assert_error!(result, ArchiveError::StoredHash { kernel: named, .. } if named == kernel);
    }
    assert_eq!(
        archive
            .verify_all()
            .iter()
            .filter(|checked| checked.result.is_err())
            .count(),
        2
    );
}

#[test]
fn header_fields_are_refused_by_name() {
    let mut blob = small();
    blob[0] = b'X';
    assert_error!(Archive::open(&blob), ArchiveError::Magic { found } if found == b"XNCUBIN\n");
    assert_error!(Archive::open(b"ZNC"), ArchiveError::Magic { found } if found == b"ZNC");
    let with = |at: usize, bytes: &[u8]| {
        let mut blob = small();
        blob[at..at + bytes.len()].copy_from_slice(bytes);
        blob
    };
    assert_error!(
        Archive::open(&with(8, &[1])),
        ArchiveError::Version {
            wanted: 3,
            found: 1
        }
    );
    assert_error!(
        Archive::open(&with(12, &[0, 0, 0, 0x80])),
        ArchiveError::UnknownBits {
            what: "flags",
            at: 12,
            found: 0x8000_0000
        }
    );
    assert_error!(
        Archive::open(&with(24, &u64::MAX.to_le_bytes())),
        ArchiveError::Truncated {
            what: "the index",
            wanted: u64::MAX,
            ..
        }
    );
    assert_error!(
        Archive::open(&with(32, &u64::MAX.to_le_bytes())),
        ArchiveError::Length {
            wanted: u64::MAX,
            ..
        }
    );
    let absurd = reseal(with(40, &u32::MAX.to_le_bytes()));
    assert_error!(
        Archive::open(&absurd),
        ArchiveError::Count {
            what: "kernels",
            wanted: 0xffff_ffff,
            ..
        }
    );
    let fewer = reseal(with(40, &1u32.to_le_bytes()));
    assert_error!(Archive::open(&fewer), ArchiveError::TrailingIndex { .. });
    let more = reseal(with(44, &5u32.to_le_bytes()));
    assert_error!(
        Archive::open(&more),
        ArchiveError::Count {
            what: "images",
            wanted: 5,
            found: 4
        }
    );
}

#[test]
fn index_fields_are_refused_by_name() {
    let open = |blob: Vec<u8>| Archive::from_vec(blob);
    assert_error!(
        open(patched(|f| f.kernel_flags, &[3])),
        ArchiveError::UnknownBits {
            what: "kernel flags",
            found: 2,
            ..
        }
    );
    assert_error!(open(patched(|f| f.count, &[0, 0])), ArchiveError::NoImages { kernel } if kernel == "vadd");
    assert_error!(
        open(patched(|f| f.count, &[255, 255])),
        ArchiveError::Truncated { what: "images", .. }
    );
    assert_error!(
        open(patched(|f| f.image, &[0; 4])),
        ArchiveError::Arch { .. }
    );
    assert_error!(
        open(patched(|f| f.image + 4, &[3])),
        ArchiveError::UnknownBits {
            what: "architecture suffix",
            found: 3,
            ..
        }
    );
    assert_error!(
        open(patched(|f| f.image + 5, &[2])),
        ArchiveError::UnknownBits {
            what: "image kind",
            found: 2,
            ..
        }
    );
    assert_error!(
        open(patched(|f| f.image + 5, &[1])),
        ArchiveError::DuplicateTarget { .. }
    );
    assert_error!(
        open(patched(|f| f.image, &[100, 0, 0, 0, 0, 1])),
        ArchiveError::UnsortedTarget { target: t, after, .. }
            if t == target("compute_90") && after == target("compute_100")
    );
    assert_error!(
        open(patched(|f| f.image + 6, &[1])),
        ArchiveError::Base { kernel, wanted: 0, found: 0, .. } if kernel == "vadd"
    );
    assert_error!(
        open(patched(|f| f.image + 10, &[1])),
        ArchiveError::Gap {
            wanted: 0,
            found: 1
        }
    );
    assert_error!(
        open(patched(|f| f.image + 18, &[200])),
        ArchiveError::PastEnd { kernel, found: 200, .. } if kernel == "vadd"
    );
    assert_error!(
        open(patched(|f| f.image + 18, &[60])),
        ArchiveError::Overlap {
            wanted: 60,
            found: 22,
            ..
        }
    );
    assert_error!(
        open(patched(|f| f.image + 18, &[1])),
        ArchiveError::Gap {
            wanted: 1,
            found: 22
        }
    );
    assert_error!(
        open(patched(
            |f| f.image + 26,
            &(MAX_RAW_BYTES + 1).to_le_bytes()
        )),
        ArchiveError::RawTooLarge {
            wanted: MAX_RAW_BYTES,
            ..
        }
    );
}

#[test]
fn index_names_and_texts_are_refused_by_name() {
    let renamed = |from: &[u8], to: &[u8]| {
        let mut blob = small();
        let at = find(&blob, from);
        blob[at..at + to.len()].copy_from_slice(to);
        Archive::from_vec(reseal(blob))
    };
    assert_error!(renamed(b"vmul", b"vadd"), ArchiveError::DuplicateKernel { kernel } if kernel == "vadd");
    assert_error!(
        renamed(b"vmul", b"aaaa"),
        ArchiveError::UnsortedKernel { kernel, after } if kernel == "aaaa" && after == "vadd"
    );
    assert_error!(renamed(b"vadd", b"../x"), ArchiveError::KernelName { name } if name == "../x");
    assert_error!(
        renamed(b"elementwise", b"\xff"),
        ArchiveError::Text { what: "family", .. }
    );
    let mut blob = small();
    let at = find(&blob, b"vadd") - 2;
    blob[at..at + 2].copy_from_slice(&[255, 255]);
    assert_error!(
        Archive::open(&reseal(blob)),
        ArchiveError::Truncated {
            what: "kernel name",
            wanted: 65535,
            ..
        }
    );
}

#[test]
fn unused_bytes_after_the_last_payload_are_refused() {
    let mut blob = small();
    blob.push(0);
    let payload_bytes = u64::from_le_bytes(blob[32..40].try_into().unwrap()) + 1;
    blob[32..40].copy_from_slice(&payload_bytes.to_le_bytes());
    assert_error!(Archive::open(&reseal(blob)), ArchiveError::Gap { .. });
}

#[test]
fn decompression_bomb_stops_at_the_declared_size() {
    let mut kernel = new_kernel("bomb", vec![new_target("sm_90", &[0; 1 << 20])]);
    kernel.targets[0].payload.raw_bytes = 16;
    let blob = build(vec![kernel]).unwrap();
    let result = Archive::open(&blob).unwrap().image("bomb", target("sm_90"));
    assert_error!(result, ArchiveError::Decompress { wanted: 16, .. });
}

#[test]
fn image_that_is_not_what_the_index_says_is_refused() {
    let extract = |change: fn(&mut Payload)| {
        let mut kernel = new_kernel("k", vec![new_target("sm_90", b"image")]);
        change(&mut kernel.targets[0].payload);
        Archive::from_vec(build(vec![kernel]).unwrap())
            .unwrap()
            .image("k", target("sm_90"))
    };
    assert_error!(
        extract(|payload| payload.raw_bytes = 6),
        ArchiveError::RawSize {
            wanted: 6,
            found: 5,
            ..
        }
    );
    assert_error!(
        extract(|payload| payload.raw_hash.0[31] ^= 1),
        ArchiveError::RawHash { .. }
    );
    assert_error!(
        extract(|payload| {
            payload.stored = b"no zstd frame".to_vec();
            payload.stored_hash = Digest::of(&payload.stored);
        }),
        ArchiveError::Decompress { .. }
    );
}

/// Four images, of which the second needs the first, and the third the second.
fn chained() -> NewKernel {
    let mut state = 1u32;
    let noise = Vec::from_iter((0..5000).map(|_| {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (state >> 24) as u8
    }));
    let raw = Vec::from_iter((0..4).map(|i| {
        let mut raw = noise.clone();
        raw[100 * i] ^= 1;
        raw
    }));
    let mut targets = Vec::new();
    for (i, name) in ["sm_80", "sm_86", "sm_89", "sm_90"].iter().enumerate() {
        let mut new = new_target(name, &raw[i]);
        if i == 1 || i == 2 {
            new.payload = Payload::compress_on(&raw[i], &raw[i - 1]).unwrap();
        }
        targets.push(new);
    }
    new_kernel("k", targets)
}

#[test]
fn image_on_a_base_is_small_and_comes_back() {
    let kernel = chained();
    let hashes = Vec::from_iter(kernel.targets.iter().map(|new| new.payload.raw_hash()));
    let mut reversed = kernel.clone();
    reversed.targets.reverse();
    let blob = build(vec![kernel]).unwrap();
    assert_eq!(build(vec![reversed]).unwrap(), blob);
    let archive = Archive::open(&blob).unwrap();
    let targets = &archive.kernel("k").unwrap().targets;
    let bases = Vec::from_iter(targets.iter().map(|entry| entry.base));
    let base = |target| Some(ImageNumber { kernel: 0, target });
    assert_eq!(bases, [None, base(0), base(1), None]);
    for (entry, hash) in targets.iter().zip(hashes) {
        let small = entry.stored_bytes < 100;
        assert_eq!(small, entry.base.is_some(), "{}", entry.stored_bytes);
        let image = archive.image("k", entry.target).unwrap();
        assert_eq!(Digest::of(&image), hash);
    }
}

#[test]
fn image_of_another_kernel_can_be_a_base() {
    let first = chained();
    let raw = Archive::from_vec(build(vec![first.clone()]).unwrap())
        .unwrap()
        .image("k", target("sm_89"))
        .unwrap();
    let sibling = |name: &str| {
        let image = [raw.as_slice(), b"and more"].concat();
        let mut new = new_target("sm_89", &image);
        new.payload = Payload::compress_on(&image, &raw).unwrap();
        (new_kernel(name, vec![new]), image)
    };
    let (after, image) = sibling("l");
    let mut blob = build(vec![after, first.clone()]).unwrap();
    let archive = Archive::open(&blob).unwrap();
    let entry = &archive.kernel("l").unwrap().targets[0];
    let base = ImageNumber {
        kernel: 0,
        target: 2,
    };
    assert_eq!(entry.base, Some(base));
    assert!(entry.stored_bytes < 100, "{}", entry.stored_bytes);
    assert_eq!(archive.image("l", target("sm_89")).unwrap(), image);
    // Damage at the end of the chain is told by its name.
    let at = archive.payloads;
    blob[at + 20] ^= 1;
    assert_error!(
        Archive::open(&blob).unwrap().image("l", target("sm_89")),
        ArchiveError::StoredHash { kernel, target: t, .. } if kernel == "k" && t == target("sm_80")
    );
    // Bases stand before what needs them.
    assert_error!(
        build(vec![sibling("a").0, first]),
        ArchiveError::NoBase { kernel, .. } if kernel == "a"
    );
}

#[test]
fn damage_to_a_base_is_told_by_its_name_for_every_image_on_it() {
    let mut blob = build(vec![chained()]).unwrap();
    let at = Archive::open(&blob).unwrap().payloads;
    blob[at + 20] ^= 1;
    let archive = Archive::open(&blob).unwrap();
    for name in ["sm_80", "sm_86", "sm_89"] {
        assert_error!(
            archive.image("k", target(name)),
            ArchiveError::StoredHash { target: t, .. } if t == target("sm_80")
        );
    }
    archive.image("k", target("sm_90")).unwrap();
}

#[test]
fn image_whose_base_is_missing_or_comes_later_is_refused() {
    let mut kernel = chained();
    kernel.targets.remove(0);
    assert_error!(
        build(vec![kernel]),
        ArchiveError::NoBase { kernel, target: t, .. } if kernel == "k" && t == target("sm_86")
    );
    let mut kernel = chained();
    kernel.targets[0].target = target("sm_87");
    assert_error!(build(vec![kernel]), ArchiveError::NoBase { target: t, .. } if t == target("sm_86"));
}

#[test]
fn restored_payload_is_the_same_and_needs_the_same_base() {
    let (raw, base) = (b"the image of a kernel", b"the image of another kernel");
    let payload = Payload::compress_on(raw, base).unwrap();
    let restored = Payload::restore(payload.stored().to_vec(), raw, Some(base)).unwrap();
    assert_eq!(restored.stored(), payload.stored());
    assert_eq!(restored.base, payload.base);
    assert!(Payload::restore(payload.stored().to_vec(), b"another", Some(base)).is_none());
    assert!(Payload::restore(b"no frame".to_vec(), raw, Some(base)).is_none());
}

#[test]
fn unknown_kernel_names_the_nearest() {
    let archive = Archive::from_vec(small()).unwrap();
    let error = archive.kernel("vad").unwrap_err();
    assert_eq!(
        error.to_string(),
        "no kernel \"vad\" in the archive; did you mean vadd?"
    );
    for name in ["", "something_else", &"v".repeat(10_000)] {
        assert_error!(
            archive.kernel(name),
            ArchiveError::UnknownKernel { nearest: None, .. }
        );
    }
}

#[test]
fn unknown_target_and_unsupported_device_name_what_is_embedded() {
    let archive = Archive::from_vec(small()).unwrap();
    let error = archive.image("vadd", target("sm_80")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "kernel vadd has no image for sm_80; embedded: sm_90 compute_90"
    );
    let error = archive
        .image_for("vadd", Capability::new(8, 9))
        .unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(
        source,
        "no code for a device of compute capability 8.9; embedded: sm_90 compute_90"
    );
}

#[test]
fn builder_refuses_what_the_reader_would() {
    let one = || vec![new_target("sm_90", b"image")];
    assert_error!(
        build(vec![new_kernel("k", one()), new_kernel("k", one())]),
        ArchiveError::DuplicateKernel { kernel } if kernel == "k"
    );
    let twice = vec![new_target("sm_90", b"a"), new_target("sm_90", b"b")];
    assert_error!(
        build(vec![new_kernel("k", twice)]),
        ArchiveError::DuplicateTarget { .. }
    );
    assert_error!(
        build(vec![new_kernel("k", Vec::new())]),
        ArchiveError::NoImages { .. }
    );
    assert_error!(
        build(vec![new_kernel("a/b", one())]),
        ArchiveError::KernelName { .. }
    );
    let mut kernel = new_kernel("k", one());
    kernel.summary = "x".repeat(65_536);
    assert_error!(
        build(vec![kernel]),
        ArchiveError::TooLong {
            what: "the summary",
            wanted: 65_535,
            ..
        }
    );
}

/// The index of 110 kernels for 8 targets must not delay the start of a program.
#[test]
#[cfg_attr(debug_assertions, ignore = "measures optimized code")]
fn opening_110_kernels_for_8_targets_takes_less_than_a_millisecond() {
    let names = [
        "sm_75",
        "sm_80",
        "sm_86",
        "sm_89",
        "sm_90",
        "sm_100",
        "sm_120",
        "compute_120",
    ];
    let kernels = (0..110).map(|n| {
        let targets = names
            .iter()
            .map(|name| new_target(name, format!("{name} {n}").as_bytes()))
            .collect();
        let mut kernel = new_kernel(&format!("dmmv_kernel_number_{n:03}"), targets);
        kernel.summary =
            "y = W x over a quantized matrix, with an optional bias and accumulation".repeat(2);
        kernel
    });
    let blob = build(kernels.collect()).unwrap();
    let best = (0..50)
        .map(|_| {
            let start = std::time::Instant::now();
            assert_eq!(Archive::open(&blob).unwrap().kernels().len(), 110);
            start.elapsed()
        })
        .min()
        .unwrap();
    println!("opened {} bytes in {best:?}", blob.len());
    assert!(best.as_micros() < 1000, "{best:?}");
}

proptest! {
    #[test]
    fn mutated_archives_never_panic_even_with_a_valid_seal(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut blob = small();
        for (at, value) in changes {
            let at = at.index(blob.len());
            blob[at] = value;
        }
        let _ = read_all(&blob);
        let index_bytes = u64::from_le_bytes(blob[24..32].try_into().unwrap());
        if index_bytes <= (blob.len() - HEADER) as u64 {
            let _ = read_all(&reseal(blob.clone()));
        }
        if let Some(cut) = cut {
            blob.truncate(cut.index(blob.len()));
            let _ = read_all(&blob);
        }
    }

    #[test]
    fn any_content_round_trips(images in prop::collection::btree_map(75u32..130, prop::collection::vec(any::<u8>(), 0..300), 1..6)) {
        let targets = images.iter().map(|(number, raw)| new_target(&format!("sm_{number}"), raw)).collect();
        let archive = Archive::from_vec(build(vec![new_kernel("k", targets)]).unwrap()).unwrap();
        for (number, raw) in &images {
            prop_assert_eq!(&archive.image("k", target(&format!("sm_{number}"))).unwrap(), raw);
        }
    }
}
