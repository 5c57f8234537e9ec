//! The fixture format: what it means, and an error value for everything that is wrong.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use serde_json::{Value, json};
use zinc_oracle::fixture::{self, ElementType, Fixture, FixtureError, Rules, SetRule, Tensor};

/// Bytes of words.
fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// A tensor of f32 values.
fn floats(values: &[f32]) -> Tensor {
    Tensor {
        element: ElementType::F32,
        bytes: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    }
}

/// A tensor of u32 values.
fn integers(values: &[u32]) -> Tensor {
    Tensor {
        element: ElementType::U32,
        bytes: bytes(values),
    }
}

/// A fixture of vadd with two elements and one guard element.
fn vadd() -> Fixture {
    Fixture {
        kernel: zinc_contract::kernel("vadd").unwrap(),
        words: vec![2],
        buffers: vec![
            floats(&[1.0, f32::NAN]),
            floats(&[2.0, 0.0]),
            floats(&[f32::NAN; 3]),
        ],
        expect: vec![None, None, Some(floats(&[3.0, f32::NAN, f32::NAN]))],
        rules: Rules::default(),
        note: "a note".to_owned(),
    }
}

/// The file with its header changed by `change`.
fn edited(file: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let len = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&file[8..8 + len]).unwrap();
    change(&mut header);
    let header = header.to_string().into_bytes();
    let mut result = (header.len() as u64).to_le_bytes().to_vec();
    result.extend(header);
    result.extend(&file[8 + len..]);
    result
}

/// The error of the vadd fixture with metadata `key` set to `value`, or removed.
fn with_metadata(fixture: &Fixture, key: &str, value: Option<&str>) -> FixtureError {
    let file = edited(&fixture::write(fixture).unwrap(), |header| {
        let metadata = header["__metadata__"].as_object_mut().unwrap();
        match value {
            Some(value) => metadata.insert(key.to_owned(), json!(value)),
            None => metadata.remove(key),
        };
    });
    fixture::read(&file, zinc_contract::kernel).unwrap_err()
}

#[test]
fn what_is_no_safetensors_file_is_refused() {
    let file = fixture::write(&vadd()).unwrap();
    for bad in [&[][..], b"{}", &file[..40], &file[..file.len() - 1]] {
        let error = fixture::read(bad, zinc_contract::kernel).unwrap_err();
        assert!(
            matches!(error, FixtureError::NotSafetensors { .. }),
            "{error}"
        );
    }
}

#[test]
fn kernels_are_looked_up() {
    let error = with_metadata(&vadd(), "kernel", None);
    assert!(
        matches!(&error, FixtureError::MissingKey { key, .. } if key == "kernel"),
        "{error}"
    );
    let error = with_metadata(&vadd(), "kernel", Some("vad"));
    assert!(error.to_string().contains("vadd"), "{error}");
}

#[test]
fn fields_have_to_be_there_and_to_be_numbers() {
    let error = with_metadata(&vadd(), "push.n", None);
    assert!(
        matches!(&error, FixtureError::MissingKey { key, .. } if key == "push.n"),
        "{error}"
    );
    for text in ["", "two", "-1", "2.0", "4294967296"] {
        let error = with_metadata(&vadd(), "push.n", Some(text));
        assert!(
            matches!(&error, FixtureError::BadValue { found, .. } if found == text),
            "{error}"
        );
    }
    for key in [
        "push.m",
        "launch.n",
        "spec.n",
        "rtoll",
        "f32_words.d",
        "compare.d",
    ] {
        let error = with_metadata(&vadd(), key, Some("0"));
        assert!(
            matches!(&error, FixtureError::Unknown { found, .. } if found == key),
            "{error}"
        );
    }
    for (key, text) in [
        ("rtol", "-1"),
        ("rtol", "nan"),
        ("atol", "inf"),
        ("atol", "x"),
        ("int_tol", "-1"),
        ("exact", "c,d"),
        ("f32_words.c", "0:4"),
        ("f32_words.c", "2:1"),
        ("f32_words.c", "1"),
        ("compare.c", "any order"),
        (
            "compare.c",
            "first c[3] words as a set, all other words exactly",
        ),
        (
            "compare.c",
            "first d[0] words as a set, all other words exactly",
        ),
    ] {
        let error = with_metadata(&vadd(), key, Some(text));
        assert!(
            matches!(error, FixtureError::BadValue { .. }),
            "{key} {text}: {error}"
        );
    }
}

#[test]
fn float_fields_are_decimal_floats() {
    let kernel = zinc_contract::kernel("rms_norm_mul").unwrap();
    let index = kernel.fields.iter().position(|f| f.name == "eps").unwrap();
    let mut fixture = Fixture {
        kernel: zinc_contract::kernel("rms_norm_mul").unwrap(),
        words: vec![4, 0, 1],
        buffers: vec![floats(&[1.0; 4]); 3],
        expect: vec![None; 3],
        ..vadd()
    };
    for value in [1e-6_f32, 0.0, -0.0, 1e-45, f32::MAX, f32::INFINITY] {
        fixture.words[index] = value.to_bits();
        let file = fixture::write(&fixture).unwrap();
        assert_eq!(
            fixture::read(&file, zinc_contract::kernel).unwrap().words[index],
            value.to_bits()
        );
    }
    let error = with_metadata(&fixture, "push.eps", Some("0x1p-20"));
    assert!(matches!(error, FixtureError::BadValue { .. }), "{error}");
}

#[test]
fn tensors_have_the_size_and_type_of_their_buffer() {
    let mut small = vadd();
    small.buffers[1] = floats(&[2.0]);
    let error = fixture::read(&fixture::write(&small).unwrap(), zinc_contract::kernel).unwrap_err();
    assert!(
        matches!(&error, FixtureError::WrongSize { wanted, found: 4, .. } if wanted == "at least 8"),
        "{error}"
    );
    let mut unequal = vadd();
    unequal.expect[2] = Some(floats(&[3.0, 0.0]));
    let error =
        fixture::read(&fixture::write(&unequal).unwrap(), zinc_contract::kernel).unwrap_err();
    assert!(
        matches!(&error, FixtureError::WrongSize { wanted, found: 8, .. } if wanted == "12"),
        "{error}"
    );
    let mut missing = vadd();
    missing.buffers[0] = Tensor::default();
    let error =
        fixture::read(&fixture::write(&missing).unwrap(), zinc_contract::kernel).unwrap_err();
    assert!(
        matches!(error, FixtureError::MissingTensor { wanted: 8, .. }),
        "{error}"
    );
    let mut integer = vadd();
    integer.buffers[0].element = ElementType::U32;
    let error =
        fixture::read(&fixture::write(&integer).unwrap(), zinc_contract::kernel).unwrap_err();
    assert!(matches!(error, FixtureError::WrongType { .. }), "{error}");
    let file = fixture::write(&vadd()).unwrap();
    let half = edited(&file, |h| {
        h["buffer.a"] = json!({"dtype": "F64", "shape": [1], "data_offsets": [0, 8]});
    });
    let error = fixture::read(&half, zinc_contract::kernel).unwrap_err();
    assert!(matches!(error, FixtureError::WrongType { .. }), "{error}");
    for name in ["buffer.d", "expect.", "a", "result.c"] {
        let renamed = edited(&file, |h| {
            let tensor = h.as_object_mut().unwrap().remove("buffer.a").unwrap();
            h[name] = tensor;
        });
        let error = fixture::read(&renamed, zinc_contract::kernel).unwrap_err();
        assert!(
            matches!(&error, FixtureError::Unknown { found, .. } if found == name),
            "{error}"
        );
    }
}

#[test]
fn a_fixture_that_does_not_fit_its_kernel_is_not_written() {
    for change in [
        |f: &mut Fixture| f.words.push(0),
        |f: &mut Fixture| drop(f.buffers.pop()),
        |f: &mut Fixture| drop(f.expect.pop()),
        |f: &mut Fixture| f.buffers[0].bytes.truncate(7),
    ] {
        let mut fixture = vadd();
        change(&mut fixture);
        assert!(fixture::write(&fixture).is_err(), "{fixture:?}");
    }
}

/// Whether `output` is accepted in buffer `index`, the others being as expected.
fn accepts(fixture: &Fixture, index: usize, output: &Tensor) -> bool {
    let file = fixture::write(fixture).unwrap();
    let fixture = fixture::read(&file, zinc_contract::kernel).unwrap();
    let pairs = fixture.buffers.iter().zip(&fixture.expect);
    let mut outputs: Vec<Vec<u8>> = pairs
        .map(|(b, e)| e.as_ref().unwrap_or(b).bytes.clone())
        .collect();
    outputs[index].clone_from(&output.bytes);
    fixture::compare(&fixture, &outputs).ok()
}

#[test]
fn floats_are_compared_with_rtol_and_atol() {
    let mut fixture = vadd();
    let nan = f32::NAN;
    assert!(accepts(&fixture, 2, &floats(&[3.0, -nan, nan])));
    assert!(!accepts(&fixture, 2, &floats(&[3.001, nan, nan])));
    assert!(!accepts(&fixture, 2, &floats(&[nan, nan, nan])));
    assert!(!accepts(&fixture, 2, &floats(&[3.0, 0.0, nan])));
    assert!(!accepts(&fixture, 2, &floats(&[3.0, nan])));
    fixture.rules.rtol = 1e-3;
    assert!(accepts(&fixture, 2, &floats(&[3.002, nan, nan])));
    assert!(!accepts(&fixture, 2, &floats(&[3.004, nan, nan])));
    fixture.rules.atol = 0.01;
    assert!(accepts(&fixture, 2, &floats(&[3.012, nan, nan])));
    fixture.rules.exact.insert("c".to_owned());
    assert!(accepts(&fixture, 2, &floats(&[3.0, nan, nan])));
    assert!(!accepts(&fixture, 2, &floats(&[3.0, -nan, nan])));
}

#[test]
fn raw_bytes_of_a_float_buffer_are_floats() {
    let mut fixture = vadd();
    fixture.expect[2] = fixture.expect[2].take().map(|t| Tensor {
        element: ElementType::U8,
        ..t
    });
    fixture.rules.atol = 0.5;
    assert!(accepts(&fixture, 2, &floats(&[3.25, f32::NAN, f32::NAN])));
    assert!(!accepts(&fixture, 2, &floats(&[3.75, f32::NAN, f32::NAN])));
}

/// A fixture of softmax_topk with two experts, one chosen.
fn routing() -> Fixture {
    let wanted = [1, 0.5_f32.to_bits(), 7];
    Fixture {
        kernel: zinc_contract::kernel("softmax_topk").unwrap(),
        words: vec![2, 1],
        buffers: vec![floats(&[0.0, 1.0]), integers(&[7; 3])],
        expect: vec![None, Some(integers(&wanted))],
        ..vadd()
    }
}

#[test]
fn float_words_of_an_integer_buffer_have_a_tolerance_and_the_rest_has_not() {
    let mut fixture = routing();
    fixture.rules.atol = 0.01;
    let near = |w: f32| integers(&[1, w.to_bits(), 7]);
    assert!(!accepts(&fixture, 1, &near(0.505)));
    fixture
        .rules
        .f32_words
        .insert("routing".to_owned(), vec![0..0, 1..2]);
    assert!(accepts(&fixture, 1, &near(0.505)));
    assert!(!accepts(&fixture, 1, &near(0.52)));
    assert!(!accepts(&fixture, 1, &integers(&[2, 0.5_f32.to_bits(), 7])));
    assert!(!accepts(&fixture, 1, &integers(&[1, 0.5_f32.to_bits(), 8])));
}

#[test]
fn int_tol_counts_whole_elements_or_signed_bytes() {
    let mut fixture = routing();
    fixture.rules.int_tol = 1;
    let wanted = [1, 0.5_f32.to_bits(), 7];
    assert!(accepts(&fixture, 1, &integers(&[2, wanted[1], 7])));
    assert!(!accepts(&fixture, 1, &integers(&[3, wanted[1], 7])));
    // As packed bytes: 0 and -1 are neighbours, 127 and -128 are not.
    for (wanted, found, good) in [(0x00, 0xff, true), (0x7f, 0x80, false), (0x05, 0x04, true)] {
        let packed = |byte: u8| Tensor {
            element: ElementType::U8,
            bytes: vec![byte; 12],
        };
        fixture.expect[1] = Some(packed(wanted));
        assert_eq!(
            accepts(&fixture, 1, &packed(found)),
            good,
            "{wanted:#x} {found:#x}"
        );
    }
}

#[test]
fn sets_are_compared_without_order() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/moe_route_pack.safetensors");
    let mut fixture = fixture::read(&std::fs::read(path).unwrap(), zinc_contract::kernel).unwrap();
    let kernel = zinc_contract::kernel("moe_route_pack").unwrap();
    let index = |name: &str| kernel.buffers.iter().position(|b| b.name == name).unwrap();
    let field = |name: &str| kernel.fields.iter().position(|f| f.name == name).unwrap();
    // Two experts with rows of four ids, of which the first three and the first one count.
    for (name, value) in [
        ("n_experts", 2),
        ("ids_stride", 4),
        ("n_tokens", 4),
        ("k", 1),
    ] {
        fixture.words[field(name)] = value;
    }
    fixture.words[field("routing_stride")] = 2;
    fixture.words[field("routing_token_base")] = 0;
    fixture.buffers[index("routing")] = integers(&[0; 8]);
    let mut set = |name: &str, words: &[u32]| {
        fixture.buffers[index(name)] = integers(words);
        fixture.expect[index(name)] = Some(integers(words));
    };
    set("counts", &[3, 1, 9]);
    set("ids", &[0, 1, 2, 77, 3, 77, 77, 77, 88]);
    set("active_block_count", &[2]);
    set("active_blocks", &[5, 6, 77, 77]);
    let ids = index("ids");
    let blocks = index("active_blocks");
    assert!(matches!(fixture.rules.compare["ids"], SetRule::Rows { .. }));
    assert!(matches!(
        fixture.rules.compare["active_blocks"],
        SetRule::Prefix { .. }
    ));
    assert!(accepts(
        &fixture,
        ids,
        &integers(&[2, 0, 1, 77, 3, 77, 77, 77, 88])
    ));
    for bad in [
        [2, 0, 2, 77, 3, 77, 77, 77, 88],
        [0, 1, 77, 2, 3, 77, 77, 77, 88],
        [0, 1, 3, 77, 2, 77, 77, 77, 88],
        [0, 1, 2, 77, 77, 3, 77, 77, 88],
        [0, 1, 2, 77, 3, 77, 77, 77, 89],
    ] {
        assert!(!accepts(&fixture, ids, &integers(&bad)), "{bad:?}");
    }
    assert!(accepts(&fixture, blocks, &integers(&[6, 5, 77, 77])));
    assert!(!accepts(&fixture, blocks, &integers(&[6, 77, 5, 77])));
    assert!(!accepts(&fixture, blocks, &integers(&[6, 6, 77, 77])));
}

#[test]
fn outputs_are_written_under_the_names_of_the_buffers() {
    let fixture = vadd();
    let mut outputs: Vec<Vec<u8>> = fixture.buffers.iter().map(|b| b.bytes.clone()).collect();
    outputs[2] = bytes(&[1, 2, 3]);
    let file = fixture::write_outputs(&fixture, &outputs).unwrap();
    let read = fixture::read(&file, zinc_contract::kernel).unwrap();
    assert_eq!(read.buffers[2].bytes, outputs[2]);
    assert_eq!(read.expect, [None, None, None]);
}
