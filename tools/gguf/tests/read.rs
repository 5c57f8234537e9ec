//! Files made byte by byte: what is right reads back, what is wrong is refused by name and place.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use proptest::prelude::*;
use zinc_gguf::writer::{NewTensor, NewValue, Writer};
use zinc_gguf::{Gguf, GgufError, TensorType, Value, ValueType};

/// Positions in every file: after the magic come version, tensor count, key count.
const AT_VERSION: usize = 4;
const AT_TENSORS: usize = 8;
const AT_KEYS: usize = 16;
const AT_FIRST_KEY: usize = 24;

/// One of everything, and two tensors.
fn sample() -> Writer {
    let strings = ["a", "", "ü"].map(|text| NewValue::String(text.to_owned()));
    let nested =
        [vec![NewValue::I16(-1)], Vec::new()].map(|items| NewValue::Array(ValueType::I16, items));
    Writer::default()
        .with("general.architecture", NewValue::String("llama".to_owned()))
        .with("u8", NewValue::U8(200))
        .with("i8", NewValue::I8(-100))
        .with("u16", NewValue::U16(60_000))
        .with("i16", NewValue::I16(-30_000))
        .with("u32", NewValue::U32(4_000_000_000))
        .with("i32", NewValue::I32(-2_000_000_000))
        .with("f32", NewValue::F32(1.5))
        .with("bool", NewValue::Bool(true))
        .with("u64", NewValue::U64(u64::MAX))
        .with("i64", NewValue::I64(i64::MIN))
        .with("f64", NewValue::F64(-2.5))
        .with(
            "strings",
            NewValue::Array(ValueType::String, strings.to_vec()),
        )
        .with("nested", NewValue::Array(ValueType::Array, nested.to_vec()))
        .with(
            "floats",
            NewValue::Array(ValueType::F32, vec![NewValue::F32(0.5); 3]),
        )
        .with_tensor("norm", &[5], TensorType::F32, &[7; 20])
        .with_tensor(
            "weight",
            &[256, 3],
            TensorType::Q4K,
            &(0..432u32).map(|i| i as u8).collect::<Vec<_>>(),
        )
}

/// A file with one tensor and no keys, whose table starts at [`AT_FIRST_KEY`].
fn one(tensor: impl FnOnce(&mut NewTensor)) -> Result<Gguf, GgufError> {
    let mut writer = Writer::default().with_tensor("w", &[64, 2], TensorType::Q8_0, &[1; 136]);
    tensor(&mut writer.tensors[0]);
    Gguf::from_bytes(writer.bytes())
}

/// A file with one key and no tensors.
fn key(value: NewValue) -> Vec<u8> {
    Writer::default().with("k", value).bytes()
}

/// Where the value of the only key of [`key`] starts.
const AT_VALUE: usize = AT_FIRST_KEY + 8 + 1 + 4;

fn patched(mut bytes: Vec<u8>, at: usize, patch: &[u8]) -> Result<Gguf, GgufError> {
    bytes[at..at + patch.len()].copy_from_slice(patch);
    Gguf::from_bytes(bytes)
}

macro_rules! assert_error {
    ($result:expr, $pattern:pat $(if $guard:expr)?) => {
        match $result {
            Err($pattern) $(if $guard)? => {}
            other => panic!("wanted {}, found {other:?}", stringify!($pattern $(if $guard)?)),
        }
    };
}

fn check_sample(file: &Gguf, version: u32) {
    assert_eq!((file.version(), file.alignment()), (version, 32));
    assert_eq!(file.str("general.architecture").unwrap(), "llama");
    for (key, value) in [
        ("u8", Value::U8(200)),
        ("i8", Value::I8(-100)),
        ("u16", Value::U16(60_000)),
        ("i16", Value::I16(-30_000)),
        ("u32", Value::U32(4_000_000_000)),
        ("i32", Value::I32(-2_000_000_000)),
        ("f32", Value::F32(1.5)),
        ("bool", Value::Bool(true)),
        ("u64", Value::U64(u64::MAX)),
        ("i64", Value::I64(i64::MIN)),
        ("f64", Value::F64(-2.5)),
    ] {
        assert_eq!(file.value(key), Some(value));
    }
    assert_eq!(file.metadata().count(), 15);
    let shown =
        ["f32", "general.architecture", "strings"].map(|key| file.value(key).unwrap().to_string());
    assert_eq!(shown, ["1.5", "\"llama\"", "[string; 3]"]);
    let strings = file.value("strings").unwrap().as_array().unwrap();
    assert_eq!((strings.kind(), strings.len()), (ValueType::String, 3));
    assert_eq!(
        strings
            .iter()
            .map(|item| item.as_str().unwrap())
            .collect::<Vec<_>>(),
        ["a", "", "ü"]
    );
    let nested = file.value("nested").unwrap().as_array().unwrap();
    let inner: Vec<Vec<Value>> = nested
        .iter()
        .map(|item| item.as_array().unwrap().iter().collect())
        .collect();
    assert_eq!(inner, [vec![Value::I16(-1)], Vec::new()]);
    let floats = file.value("floats").unwrap().as_array().unwrap();
    assert_eq!(
        floats.iter().filter_map(|item| item.as_f64()).sum::<f64>(),
        1.5
    );

    let names: Vec<&str> = file
        .tensors()
        .iter()
        .map(|tensor| tensor.name.as_str())
        .collect();
    assert_eq!(names, ["norm", "weight"]);
    let norm = file.tensor("norm").unwrap();
    assert_eq!(
        (norm.dims, norm.kind, norm.bytes),
        ([5].as_slice(), TensorType::F32, [7; 20].as_slice())
    );
    assert_eq!(
        (
            norm.columns(),
            norm.rows(),
            norm.elements(),
            norm.row_bytes()
        ),
        (5, 1, 5, 20)
    );
    let weight = file.tensor("weight").unwrap();
    assert_eq!(
        (
            weight.columns(),
            weight.rows(),
            weight.elements(),
            weight.row_bytes()
        ),
        (256, 3, 768, 144)
    );
    assert!(
        weight
            .bytes
            .iter()
            .enumerate()
            .all(|(i, &byte)| byte == i as u8)
    );
    assert_eq!(weight.offset % 32, 0);
    assert_eq!(
        file.views()
            .map(|view| view.bytes.len())
            .collect::<Vec<_>>(),
        [20, 432]
    );
}

#[test]
fn versions_2_and_3_read_back_in_full() {
    for version in [2, 3] {
        let mut writer = sample();
        writer.version = version;
        check_sample(&Gguf::from_bytes(writer.bytes()).unwrap(), version);
    }
}

#[test]
fn mapped_file_reads_like_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    assert_error!(Gguf::open(&path), GgufError::Io { path: named, .. } if named == path);
    std::fs::write(&path, sample().bytes()).unwrap();
    check_sample(&Gguf::open(&path).unwrap(), 3);
    std::fs::write(directory.path().join("empty"), b"").unwrap();
    assert_error!(Gguf::open(&directory.path().join("empty")), GgufError::Magic { found } if found.is_empty());
}

#[test]
fn file_without_tensors_and_keys_is_legal() {
    let file = Gguf::from_bytes(Writer::default().bytes()).unwrap();
    assert_eq!((file.tensors().len(), file.metadata().count()), (0, 0));
}

#[test]
fn alignment_of_the_file_is_obeyed() {
    let writer = sample().with("general.alignment", NewValue::U32(64));
    let file = Gguf::from_bytes(writer.bytes()).unwrap();
    assert_eq!(file.alignment(), 64);
    assert!(file.views().all(|view| view.offset % 64 == 0));
    assert_eq!(file.tensor("norm").unwrap().bytes, [7; 20]);
    for found in [0, 48] {
        let writer = sample().with("general.alignment", NewValue::U32(found));
        assert_error!(Gguf::from_bytes(writer.bytes()), GgufError::Alignment { found: f } if f == u64::from(found));
    }
    let writer = sample().with("general.alignment", NewValue::String("32".to_owned()));
    assert_error!(
        Gguf::from_bytes(writer.bytes()),
        GgufError::KeyType {
            found: ValueType::String,
            ..
        }
    );
    let writer = sample().with("general.alignment", NewValue::U64(1 << 63));
    assert_error!(
        Gguf::from_bytes(writer.bytes()),
        GgufError::PastEnd { .. } | GgufError::Misaligned { .. }
    );
}

#[test]
fn every_type_has_the_size_that_a_file_gives_it() {
    let sizes: Vec<_> = [
        TensorType::F32,
        TensorType::F16,
        TensorType::Bf16,
        TensorType::Q4_0,
        TensorType::Q4_1,
        TensorType::Q5_0,
        TensorType::Q5_1,
        TensorType::Q8_0,
        TensorType::Q8_1,
        TensorType::Q2K,
        TensorType::Q3K,
        TensorType::Q4K,
        TensorType::Q5K,
        TensorType::Q6K,
        TensorType::Q8K,
        TensorType::Iq4Nl,
        TensorType::Iq4Xs,
        TensorType::Mxfp4,
        TensorType::I8,
        TensorType::I16,
        TensorType::I32,
        TensorType::I64,
    ]
    .iter()
    .map(|kind| {
        (
            kind.number(),
            kind.name(),
            kind.block_elements(),
            kind.block_bytes(),
        )
    })
    .collect();
    let wanted = [
        (0, "f32", 1, 4),
        (1, "f16", 1, 2),
        (30, "bf16", 1, 2),
        (2, "q4_0", 32, 18),
        (3, "q4_1", 32, 20),
        (6, "q5_0", 32, 22),
        (7, "q5_1", 32, 24),
        (8, "q8_0", 32, 34),
        (9, "q8_1", 32, 36),
        (10, "q2_K", 256, 84),
        (11, "q3_K", 256, 110),
        (12, "q4_K", 256, 144),
        (13, "q5_K", 256, 176),
        (14, "q6_K", 256, 210),
        (15, "q8_K", 256, 292),
        (20, "iq4_nl", 32, 18),
        (23, "iq4_xs", 256, 136),
        (39, "mxfp4", 32, 17),
        (24, "i8", 1, 1),
        (25, "i16", 1, 2),
        (26, "i32", 1, 4),
        (27, "i64", 1, 8),
    ];
    assert_eq!(sizes, wanted);
    for &kind in TensorType::ALL {
        assert_eq!(TensorType::from_number(kind.number()), Some(kind));
        let bytes = vec![9; 2 * kind.block_bytes() as usize];
        let writer = Writer::default().with_tensor("t", &[kind.block_elements(), 2], kind, &bytes);
        assert_eq!(
            Gguf::from_bytes(writer.bytes())
                .unwrap()
                .tensor("t")
                .unwrap()
                .bytes,
            bytes,
            "{kind}"
        );
    }
}

#[test]
fn every_truncation_is_refused() {
    let good = sample().bytes();
    for length in 0..good.len() {
        let error = Gguf::from_bytes(good[..length].to_vec()).unwrap_err();
        let named = matches!(
            error,
            GgufError::Magic { .. }
                | GgufError::Truncated { .. }
                | GgufError::Count { .. }
                | GgufError::PastEnd { .. }
        );
        assert!(named, "cut to {length} bytes: {error}");
    }
}

#[test]
fn bad_magic_is_refused() {
    assert_error!(patched(sample().bytes(), 0, b"GGML"), GgufError::Magic { found } if found == b"GGML");
    assert_error!(Gguf::from_bytes(b"GG".to_vec()), GgufError::Magic { found } if found == b"GG");
}

#[test]
fn unsupported_version_is_refused() {
    for version in [0u32, 1, 4, 0x0100_0000] {
        let result = patched(sample().bytes(), AT_VERSION, &version.to_le_bytes());
        assert_error!(result, GgufError::Version { at: 4, found } if found == version);
    }
}

#[test]
fn big_endian_file_is_refused_as_such() {
    let result = patched(sample().bytes(), AT_VERSION, &3u32.to_be_bytes());
    assert_error!(result, GgufError::BigEndian { version: 3 });
}

#[test]
fn absurd_counts_are_refused_before_allocating() {
    for absurd in [u64::MAX, 1 << 40, 1000] {
        let patch = absurd.to_le_bytes();
        assert_error!(
            patched(sample().bytes(), AT_TENSORS, &patch),
            GgufError::Count { what: "tensors", at: 8, wanted, .. } if wanted == absurd
        );
        assert_error!(
            patched(sample().bytes(), AT_KEYS, &patch),
            GgufError::Count { what: "metadata keys", at: 16, wanted, .. } if wanted == absurd
        );
        let array = key(NewValue::Array(ValueType::U32, vec![NewValue::U32(0)]));
        assert_error!(
            patched(array, AT_VALUE + 4, &patch),
            GgufError::Count { what: "array items", wanted, found: 1, .. } if wanted == absurd
        );
    }
}

#[test]
fn tensor_count_that_only_the_keys_make_room_for_is_refused() {
    let bytes = key(NewValue::String("x".repeat(1000)));
    let result = patched(bytes, AT_TENSORS, &20u64.to_le_bytes());
    assert_error!(
        result,
        GgufError::Count {
            what: "tensors",
            at: 8,
            wanted: 20,
            found: 0
        }
    );
}

#[test]
fn string_past_the_end_is_refused() {
    let bytes = key(NewValue::String("text".to_owned()));
    for length in [5, u64::MAX] {
        assert_error!(
            patched(bytes.clone(), AT_VALUE, &length.to_le_bytes()),
            GgufError::Truncated { what: "a string", at: 45, wanted, found: 4 } if wanted == length
        );
    }
    assert_error!(
        patched(bytes, AT_FIRST_KEY, &u64::MAX.to_le_bytes()),
        GgufError::Truncated {
            what: "a key",
            at: 32,
            wanted: u64::MAX,
            ..
        }
    );
}

#[test]
fn names_that_are_too_long_or_not_utf8_are_refused() {
    let long = Writer::default().with(&"k".repeat(65_536), NewValue::U8(0));
    assert_error!(
        Gguf::from_bytes(long.bytes()),
        GgufError::NameLength {
            what: "a key",
            at: 24,
            wanted: 65_535,
            found: 65_536
        }
    );
    let bytes = key(NewValue::U8(0));
    assert_error!(
        patched(bytes, AT_FIRST_KEY + 8, &[0xff]),
        GgufError::Utf8 {
            what: "a key",
            at: 24
        }
    );
}

#[test]
fn string_value_that_is_not_utf8_is_readable_as_bytes() {
    let file = patched(key(NewValue::String("x".to_owned())), AT_VALUE + 8, &[0xff]).unwrap();
    assert_eq!(file.value("k"), Some(Value::String(&[0xff])));
    assert_error!(
        file.str("k"),
        GgufError::KeyType {
            wanted: "a UTF-8 string",
            ..
        }
    );
}

#[test]
fn unknown_value_types_and_booleans_are_refused() {
    assert_error!(
        patched(key(NewValue::U8(0)), AT_VALUE - 4, &13u32.to_le_bytes()),
        GgufError::ValueType { key, at: 33, found: 13 } if key == "k"
    );
    let array = key(NewValue::Array(ValueType::U8, vec![NewValue::U8(1)]));
    assert_error!(
        patched(array, AT_VALUE, &[99]),
        GgufError::ValueType {
            at: 37,
            found: 99,
            ..
        }
    );
    assert_error!(
        patched(key(NewValue::Bool(true)), AT_VALUE, &[2]),
        GgufError::Bool {
            at: 37,
            found: 2,
            ..
        }
    );
    let array = key(NewValue::Array(
        ValueType::Bool,
        vec![NewValue::Bool(true); 2],
    ));
    assert_error!(
        patched(array, AT_VALUE + 13, &[7]),
        GgufError::Bool {
            at: 50,
            found: 7,
            ..
        }
    );
}

#[test]
fn arrays_nested_too_deeply_are_refused() {
    let nest = |depth: usize| {
        let inner = NewValue::Array(ValueType::U8, vec![NewValue::U8(1)]);
        (1..depth).fold(inner, |inner, _| {
            NewValue::Array(ValueType::Array, vec![inner])
        })
    };
    assert!(Gguf::from_bytes(key(nest(4))).is_ok());
    for depth in [5, 500] {
        let result = Gguf::from_bytes(key(nest(depth)));
        assert_error!(result, GgufError::Nesting { key, wanted: 4, .. } if key == "k");
    }
}

#[test]
fn duplicate_keys_are_refused() {
    let writer = Writer::default()
        .with("k", NewValue::U8(0))
        .with("k", NewValue::U8(1));
    assert_error!(Gguf::from_bytes(writer.bytes()), GgufError::DuplicateKey { key, at: 38 } if key == "k");
}

#[test]
fn duplicate_tensors_are_refused() {
    let writer = Writer::default()
        .with_tensor("w", &[1], TensorType::I8, &[0])
        .with_tensor("w", &[1], TensorType::I8, &[0]);
    assert_error!(Gguf::from_bytes(writer.bytes()), GgufError::DuplicateTensor { tensor, .. } if tensor == "w");
}

#[test]
fn unknown_tensor_types_are_refused_with_the_tensor() {
    for number in [4, 5, 31, 36, 38, 42, u32::MAX] {
        assert_error!(
            one(|tensor| tensor.kind = number),
            GgufError::TensorType { tensor, at: 53, found } if tensor == "w" && found == number
        );
    }
}

#[test]
fn too_many_dimensions_are_refused() {
    let result = one(|tensor| tensor.dims = vec![32, 1, 1, 1, 1]);
    assert_error!(
        result,
        GgufError::Dimensions {
            wanted: 4,
            found: 5,
            at: 33,
            ..
        }
    );
    let bytes = Writer::default()
        .with_tensor("w", &[1], TensorType::I8, &[0])
        .bytes();
    let result = patched(bytes, 33, &u32::MAX.to_le_bytes());
    assert_error!(
        result,
        GgufError::Dimensions {
            found: u32::MAX,
            ..
        }
    );
}

#[test]
fn dimensions_that_overflow_are_refused() {
    let huge = 1 << 40;
    for (kind, dims) in [
        (TensorType::Q8_0, vec![huge, huge]),
        (TensorType::F32, vec![u64::MAX]),
        (TensorType::F32, vec![1, u64::MAX, 2]),
        // The bytes fit in 64 bits, the elements do not.
        (TensorType::Q4_0, vec![32, 1 << 59]),
        // No elements, but a number of rows that does not fit.
        (TensorType::F32, vec![0, huge, huge]),
    ] {
        let result = one(|tensor| (tensor.kind, tensor.dims) = (kind.number(), dims.clone()));
        assert_error!(result, GgufError::Overflow { tensor, at: 37, found } if tensor == "w" && found == dims);
    }
}

#[test]
fn tensors_of_no_elements_and_of_no_dimensions_are_legal() {
    let file = one(|tensor| tensor.dims = vec![64, 0]).unwrap();
    assert!(file.tensor("w").unwrap().bytes.is_empty());
    let scalar = Writer::default().with_tensor("w", &[], TensorType::F32, &[1, 2, 3, 4]);
    let file = Gguf::from_bytes(scalar.bytes()).unwrap();
    let view = file.tensor("w").unwrap();
    assert_eq!(
        (view.bytes, view.columns(), view.elements()),
        ([1, 2, 3, 4].as_slice(), 1, 1)
    );
}

#[test]
fn rows_that_are_no_whole_number_of_blocks_are_refused() {
    // 128 elements are four blocks, but not in rows of 16.
    let result = one(|tensor| tensor.dims = vec![16, 8]);
    assert_error!(
        result,
        GgufError::PartialBlock {
            kind: TensorType::Q8_0,
            at: 37,
            wanted: 32,
            found: 16,
            ..
        }
    );
    let result = one(|tensor| (tensor.kind, tensor.dims) = (TensorType::Q6K.number(), vec![384]));
    assert_error!(
        result,
        GgufError::PartialBlock {
            wanted: 256,
            found: 384,
            ..
        }
    );
}

#[test]
fn offset_past_the_end_is_refused() {
    for offset in [32, 1 << 40, u64::MAX - 31] {
        let result = one(|tensor| tensor.offset = Some(offset));
        assert_error!(result, GgufError::PastEnd { tensor, at: 57, found: 232, .. } if tensor == "w");
    }
    let result = one(|tensor| {
        tensor.bytes.pop();
    });
    assert_error!(
        result,
        GgufError::PastEnd {
            wanted: 232,
            found: 231,
            ..
        }
    );
}

#[test]
fn misaligned_offset_is_refused() {
    let result = one(|tensor| tensor.offset = Some(8));
    assert_error!(result, GgufError::Misaligned { tensor, at: 57, wanted: 32, found: 8 } if tensor == "w");
}

#[test]
fn overlapping_tensors_are_refused() {
    let mut writer = sample();
    writer.tensors[1].offset = Some(0);
    let result = Gguf::from_bytes(writer.bytes());
    assert_error!(result, GgufError::Overlap { .. });
}

#[test]
fn missing_names_and_wrong_types_are_named() {
    let file = Gguf::from_bytes(sample().bytes()).unwrap();
    let error = file.tensor("absent").unwrap_err();
    assert_eq!(
        error.to_string(),
        "no tensor \"absent\" among the 2 of the file"
    );
    assert_eq!(
        file.u64("absent").unwrap_err().to_string(),
        "no key \"absent\" in the metadata"
    );
    assert_eq!(
        file.u64("f32").unwrap_err().to_string(),
        "key \"f32\" is f32, wanted an unsigned integer"
    );
    assert_eq!(
        (file.u64("u8").unwrap(), file.f64("f64").unwrap()),
        (200, -2.5)
    );
    assert_error!(
        file.u64("i8"),
        GgufError::KeyType {
            found: ValueType::I8,
            ..
        }
    );
}

/// Reads everything that a file says.
fn read_all(bytes: Vec<u8>) {
    fn walk(value: Value) -> u64 {
        value
            .as_array()
            .map_or(1, |array| array.iter().map(walk).sum())
    }
    if let Ok(file) = Gguf::from_bytes(bytes) {
        let _ = file.metadata().map(|(_, value)| walk(value)).sum::<u64>();
        for view in file.views() {
            let _ = (
                view.columns(),
                view.rows(),
                view.elements(),
                view.row_bytes(),
            );
            assert_eq!(view.rows() * view.row_bytes(), view.bytes.len() as u64);
        }
    }
}

#[test]
fn no_changed_byte_of_header_and_table_panics() {
    let good = sample().bytes();
    let mut bytes = good.clone();
    for at in 0..bytes.len() {
        for value in [
            0,
            1,
            9,
            0x7f,
            0xff,
            good[at] ^ 0x80,
            good[at].wrapping_add(1),
            good[at].wrapping_sub(1),
        ] {
            bytes[at] = value;
            read_all(bytes.clone());
        }
        bytes[at] = good[at];
    }
}

proptest! {
    #[test]
    fn mutated_files_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = sample().bytes();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        read_all(bytes);
    }

    #[test]
    fn random_tables_never_panic(body in prop::collection::vec(prop_oneof![3 => 0u8..13, 1 => any::<u8>()], 0..200)) {
        let header = [b"GGUF".as_slice(), &[3, 0, 0, 0], &[1, 0, 0, 0, 0, 0, 0, 0], &[1, 0, 0, 0, 0, 0, 0, 0]];
        read_all([header.concat(), body].concat());
    }
}
