//! The dispatch check: what passes, and each kind of error with its contents.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::hint::black_box;
use std::time::Instant;
use zinc_catalog::{Catalog, Tolerance};
use zinc_contract::*;

/// A binding at `address` with exactly the bytes that the contract asks for.
fn fitting(kernel: &Kernel, words: &[u32]) -> Vec<Binding> {
    let mut address = 1 << 20;
    let mut bind = |buffer: &Buffer| {
        let bytes = (buffer.bytes.eval)(words).unwrap().max(0) as u64;
        let binding = Binding { address, bytes };
        address += (bytes + 511) & !255;
        binding
    };
    kernel.buffers.iter().map(&mut bind).collect()
}

/// dmmv_q4k with m = 5, k = 512 and all offsets 0, overwriting.
fn matvec() -> (&'static Kernel, Words, Vec<Binding>) {
    let kernel = kernel("dmmv_q4k").unwrap();
    let words = kernel
        .words_by_name(&[
            ("m", 5),
            ("k", 512),
            ("a_offset", 0),
            ("x_offset", 0),
            ("y_offset", 0),
            ("acc_mode", 0),
        ])
        .unwrap();
    let bindings = fitting(kernel, &words);
    (kernel, words, bindings)
}

#[test]
fn fitting_dispatch_passes() {
    let (kernel, words, bindings) = matvec();
    assert_eq!(
        bindings.iter().map(|b| b.bytes).collect::<Vec<_>>(),
        [5 * 2 * 144, 2048, 20]
    );
    assert_eq!(kernel.check(&words, &bindings), Ok(()));
}

#[test]
fn unknown_kernel_suggests_the_nearest() {
    let error = kernel("dmmv_q4_k").unwrap_err();
    assert_eq!(
        error,
        ContractError::UnknownKernel {
            name: "dmmv_q4_k".to_owned(),
            nearest: Some("dmmv_q4k")
        }
    );
    assert_eq!(
        error.to_string(),
        "no kernel is named `dmmv_q4_k`, did you mean `dmmv_q4k`?"
    );
    assert_eq!(
        kernel("convolution").unwrap_err().to_string(),
        "no kernel is named `convolution`"
    );
}

#[test]
fn buffer_count_is_checked() {
    let (kernel, words, bindings) = matvec();
    let error = kernel.check(&words, &bindings[..2]).unwrap_err();
    assert_eq!(
        error,
        ContractError::BufferCount {
            kernel: "dmmv_q4k",
            wanted: 3,
            found: 2
        }
    );
}

#[test]
fn word_count_is_checked() {
    let (kernel, words, bindings) = matvec();
    let error = kernel.check(&words[..5], &bindings).unwrap_err();
    assert_eq!(
        error,
        ContractError::WordCount {
            kernel: "dmmv_q4k",
            wanted: 6,
            found: 5
        }
    );
    assert_eq!(kernel.geometry(90, 132, &words[..5]).unwrap_err(), error);
}

#[test]
fn one_missing_byte_is_noticed_in_every_buffer() {
    let (kernel, words, bindings) = matvec();
    for index in 0..3 {
        let mut short = bindings.clone();
        short[index].bytes -= 1;
        let error = kernel.check(&words, &short).unwrap_err();
        assert_eq!(
            error,
            ContractError::BufferTooSmall {
                kernel: "dmmv_q4k",
                buffer: ["weights", "x", "y"][index],
                wanted: bindings[index].bytes,
                found: bindings[index].bytes - 1,
            }
        );
    }
}

#[test]
fn failing_precondition_shows_its_text_and_values() {
    let (kernel, _, bindings) = matvec();
    let error = kernel.check(&[5, 100, 0, 0, 0, 0], &bindings).unwrap_err();
    assert_eq!(
        error.to_string(),
        "kernel dmmv_q4k: `k % 256 == 0` does not hold for k = 100"
    );
}

#[test]
fn misaligned_address_is_refused() {
    let (kernel, words, mut bindings) = matvec();
    bindings[1].address += 4;
    let found = bindings[1].address;
    let error = kernel.check(&words, &bindings).unwrap_err();
    assert_eq!(
        error,
        ContractError::Misaligned {
            kernel: "dmmv_q4k",
            buffer: "x",
            wanted: 16,
            found
        }
    );
}

#[test]
fn alignment_is_not_asked_for_where_the_contract_does_not() {
    let vadd = kernel("vadd").unwrap();
    let at = |address| Binding { address, bytes: 40 };
    assert_eq!(
        vadd.check(&[10], &[at(0x1004), at(0x2008), at(0x300c)]),
        Ok(())
    );
}

#[test]
fn written_buffer_overlaps_nothing() {
    let (kernel, words, mut bindings) = matvec();
    bindings[2].address = bindings[1].address + 2032;
    let error = kernel.check(&words, &bindings).unwrap_err();
    assert_eq!(
        error,
        ContractError::Overlap {
            kernel: "dmmv_q4k",
            a: "x",
            b: "y",
            reason: Reason::Never
        }
    );
}

#[test]
fn disjoint_ranges_of_one_buffer_pass() {
    // x and y are the same buffer of 4096 bytes: x in its first half, y behind it.
    let kernel = kernel("dmmv_q4k").unwrap();
    let both = Binding {
        address: 1 << 30,
        bytes: 4096,
    };
    let weights = Binding {
        address: 1 << 20,
        bytes: 1440,
    };
    assert_eq!(
        kernel.check(&[5, 512, 0, 0, 2048, 0], &[weights, both, both]),
        Ok(())
    );
    assert!(
        kernel
            .check(&[5, 512, 0, 0, 2044, 0], &[weights, both, both])
            .is_err()
    );
    assert_eq!(
        kernel.check(&[5, 512, 0, 32, 0, 0], &[weights, both, both]),
        Ok(())
    );
    assert!(
        kernel
            .check(&[9, 512, 0, 32, 0, 0], &[weights, both, both])
            .is_err()
    );
}

#[test]
fn read_only_buffers_may_overlap() {
    let vadd = kernel("vadd").unwrap();
    let a = Binding {
        address: 0x1000,
        bytes: 40,
    };
    let b = Binding {
        address: 0x1010,
        bytes: 40,
    };
    assert_eq!(
        vadd.check(
            &[10],
            &[
                a,
                b,
                Binding {
                    address: 0x2000,
                    bytes: 40
                }
            ]
        ),
        Ok(())
    );
}

#[test]
fn allowed_aliases_must_start_together() {
    let vadd = kernel("vadd").unwrap();
    let at = |address| Binding { address, bytes: 40 };
    assert_eq!(
        vadd.check(&[10], &[at(0x1000), at(0x2000), at(0x1000)]),
        Ok(())
    );
    assert_eq!(
        vadd.check(&[10], &[at(0x1000), at(0x2000), at(0x2000)]),
        Ok(())
    );
    let error = vadd
        .check(&[10], &[at(0x1000), at(0x2000), at(0x1010)])
        .unwrap_err();
    assert_eq!(
        error,
        ContractError::Overlap {
            kernel: "vadd",
            a: "a",
            b: "c",
            reason: Reason::NotSameStart
        }
    );
}

#[test]
fn untouched_buffers_need_not_be_bound() {
    let rope = kernel("rope_fused").unwrap();
    let words = |base: f32| [64, 32, 2, 7, base.to_bits(), 0];
    let data = Binding {
        address: 0x1000,
        bytes: 512,
    };
    assert_eq!(
        rope.check(&words(1e4), &[data, data, Binding::UNBOUND]),
        Ok(())
    );
    assert_eq!(
        rope.check(&words(0.0), &[data, data, Binding::UNBOUND])
            .unwrap_err(),
        ContractError::BufferTooSmall {
            kernel: "rope_fused",
            buffer: "inv_freq",
            wanted: 64,
            found: 0
        }
    );
}

#[test]
fn empty_output_overlaps_nothing() {
    let (kernel, _, bindings) = matvec();
    let inside_x = Binding {
        address: bindings[1].address + 16,
        bytes: 0,
    };
    assert_eq!(
        kernel.check(&[0, 512, 0, 0, 0, 0], &[bindings[0], bindings[1], inside_x]),
        Ok(())
    );
}

#[test]
fn overflow_of_a_size_is_an_error_value() {
    let (kernel, _, bindings) = matvec();
    let error = kernel
        .check(&[u32::MAX, 1 << 31, 0, 0, 0, 0], &bindings)
        .unwrap_err();
    let wanted = u64::from(u32::MAX) * (1 << 23) * 144;
    assert_eq!(
        error,
        ContractError::BufferTooSmall {
            kernel: "dmmv_q4k",
            buffer: "weights",
            wanted,
            found: bindings[0].bytes,
        }
    );
    let cache = zinc_contract::kernel("flash_attn").unwrap();
    let words = cache
        .words_by_name(&[
            ("head_dim", 512),
            ("n_heads", u32::MAX),
            ("n_kv_heads", u32::MAX),
            ("seq_len", 1),
            ("page_size", u32::MAX),
            ("attn_scale_bits", 0),
            ("sink_offset", 0),
            ("n_pages", u32::MAX),
        ])
        .unwrap();
    let all = Binding {
        address: 256,
        bytes: u64::MAX,
    };
    let error = cache.check(&words, &[all; 6]).unwrap_err();
    assert!(
        matches!(
            error,
            ContractError::Eval {
                what: "k_cache",
                error: EvalError::Overflow,
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error.to_string().contains("n_pages = 4294967295"),
        "{error}"
    );
}

#[test]
fn push_block_of_the_wrong_size_is_refused() {
    let kernel = kernel("dmmv_q4k").unwrap();
    for found in [0, 20, 23, 25, 28] {
        let error = kernel.words(&vec![0; found], &[], &[]).unwrap_err();
        assert_eq!(
            error,
            ContractError::PushBytes {
                kernel: "dmmv_q4k",
                wanted: 24,
                least: 24,
                most: 24,
                found
            }
        );
    }
    assert_eq!(kernel.words(&[1; 24], &[], &[]).unwrap().len(), 6);
}

#[test]
fn push_blocks_of_later_and_earlier_hosts_are_accepted() {
    let later = kernel("sigmoid_scale_acc").unwrap();
    let block: Vec<u8> = [8u32, 77]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    assert_eq!(later.words(&block, &[], &[]).unwrap().as_slice(), [8]);
    assert!(later.words(&[0; 12], &[], &[]).is_err());

    let earlier = kernel("qk_norm_rope_kv_write").unwrap();
    let words = earlier.words(&[1; 36], &[], &[]).unwrap();
    assert_eq!((words.len(), words[9]), (10, 0));
    assert!(earlier.words(&[1; 32], &[], &[]).is_err());
}

#[test]
fn launch_counts_and_specialization_values_follow_the_push_block() {
    let kernel = kernel("flash_attn").unwrap();
    let push = [0; 28];
    assert_eq!(kernel.words(&push, &[9], &[4]).unwrap()[7..], [9, 4]);
    assert_eq!(
        kernel.words(&push, &[9], &[]).unwrap()[7..],
        [9, 1],
        "the catalog's default"
    );
    let error = kernel.words(&push, &[], &[]).unwrap_err();
    let kind = FieldKind::Launch;
    assert_eq!(
        error,
        ContractError::ValueCount {
            kernel: "flash_attn",
            kind,
            wanted: 1,
            found: 0
        }
    );
    let error = kernel.words(&push, &[9], &[4, 5]).unwrap_err();
    let kind = FieldKind::Spec;
    assert_eq!(
        error,
        ContractError::ValueCount {
            kernel: "flash_attn",
            kind,
            wanted: 1,
            found: 2
        }
    );
}

#[test]
fn named_values_come_in_any_order_and_are_complete() {
    let kernel = kernel("rms_norm_mul").unwrap();
    let eps = 1e-5f32.to_bits();
    let words = kernel
        .words_by_name(&[("n_rows", 3), ("eps", eps), ("n", 8)])
        .unwrap();
    assert_eq!(words.as_slice(), [8, eps, 3]);
    assert_eq!(
        kernel.words_by_name(&[("n", 8), ("eps", eps)]).unwrap_err(),
        ContractError::MissingField {
            kernel: "rms_norm_mul",
            field: "n_rows"
        }
    );
    assert_eq!(
        kernel
            .words_by_name(&[("n", 8), ("epsilon", eps)])
            .unwrap_err(),
        ContractError::UnknownField {
            kernel: "rms_norm_mul",
            name: "epsilon".to_owned()
        }
    );
}

#[test]
fn geometry_covers_the_work_and_is_empty_without_any() {
    let vadd = kernel("vadd").unwrap();
    let geometry = vadd.geometry(0, 1, &[1_000_000]).unwrap().unwrap();
    let threads = u64::from(geometry.grid[0]) * u64::from(geometry.block[0]);
    let per_thread = vadd.launch[0]
        .tile
        .iter()
        .find(|(name, _)| *name == "per_thread")
        .unwrap()
        .1;
    assert!(threads * u64::from(per_thread) >= 1_000_000, "{geometry:?}");
    assert_eq!(vadd.geometry(90, 132, &[0]), Ok(None));
}

/// A kernel with one word and the given launch rules.
fn with_rules(launch: &'static [LaunchRule]) -> Kernel {
    let vadd = kernel("vadd").unwrap();
    Kernel {
        name: "test",
        launch,
        ..*vadd
    }
}

const fn rule(min_arch: u32, extents: fn(&[u32], u32) -> Result<Extents, EvalError>) -> LaunchRule {
    LaunchRule {
        lets: &[],
        min_arch,
        specific: false,
        tile: &[],
        grid: [""; 3],
        block: [""; 3],
        cluster: "",
        shared: "",
        extents,
    }
}

#[test]
fn the_highest_matching_rule_is_used() {
    static RULES: [LaunchRule; 4] = [
        rule(0, |_, _| {
            Ok(Extents {
                grid: [1; 3],
                block: [1, 1, 1],
                cluster: 1,
                shared_bytes: 0,
            })
        }),
        rule(90, |_, _| {
            Ok(Extents {
                grid: [1; 3],
                block: [90, 1, 1],
                cluster: 1,
                shared_bytes: 0,
            })
        }),
        LaunchRule {
            specific: true,
            ..rule(90, |_, _| {
                Ok(Extents {
                    grid: [1, 1, 1],
                    block: [91, 1, 1],
                    cluster: 1,
                    shared_bytes: 0,
                })
            })
        },
        rule(120, |_, sms| {
            Ok(Extents {
                grid: [i64::from(sms), 1, 1],
                block: [120, 1, 1],
                cluster: 1,
                shared_bytes: 0,
            })
        }),
    ];
    let kernel = with_rules(&RULES);
    let block = |arch| kernel.geometry(arch, 7, &[1]).unwrap().unwrap().block[0];
    assert_eq!(
        [0, 75, 89, 90, 103, 120, 121].map(block),
        [1, 1, 1, 90, 90, 120, 120]
    );
    // The rule of code for one architecture alone is for no other code.
    let specific = |number| {
        let arch = CompiledArch {
            number,
            specific: true,
        };
        kernel.geometry(arch, 7, &[1]).unwrap().unwrap().block[0]
    };
    assert_eq!([75, 90, 100, 120].map(specific), [1, 91, 90, 120]);
    assert_eq!(
        kernel.geometry(120, 7, &[1]).unwrap().unwrap().grid,
        [7, 1, 1]
    );
}

#[test]
fn extents_outside_the_limits_are_refused() {
    static LIMITS: [LaunchRule; 1] = [rule(0, |w, _| {
        let mut extents = Extents {
            grid: [1; 3],
            block: [1; 3],
            cluster: 1,
            shared_bytes: 0,
        };
        match w[0] {
            0 => extents.grid[0] = 1 << 31,
            1 => extents.grid[1] = 65536,
            2 => extents.grid[2] = -1,
            3 => extents.block[0] = 0,
            4 => extents.block[2] = 65,
            5 => extents.block = [64, 17, 1],
            6 => extents.shared_bytes = -4,
            7 => extents.shared_bytes = 1 << 32,
            8 => extents.cluster = 0,
            9 => (extents.grid[0], extents.cluster) = (17, 17),
            10 => (extents.grid[0], extents.cluster) = (6, 4),
            11 => (extents.grid[0], extents.cluster) = (32, 16),
            _ => return Err(EvalError::Overflow),
        }
        Ok(extents)
    })];
    let kernel = with_rules(&LIMITS);
    let limit = |what, axis, most, found| ContractError::LaunchLimit {
        kernel: "test",
        what,
        axis,
        most,
        found,
    };
    let cluster = |found, blocks| ContractError::Cluster {
        kernel: "test",
        most: 16,
        found,
        blocks,
    };
    let wanted = [
        limit("grid", 'x', 0x7fff_ffff, 1 << 31),
        limit("grid", 'y', 65535, 65536),
        limit("grid", 'z', 65535, -1),
        limit("block", 'x', 1024, 0),
        limit("block", 'z', 64, 65),
        ContractError::BlockTooLarge {
            kernel: "test",
            most: 1024,
            found: 64 * 17,
        },
        ContractError::SharedMemory {
            kernel: "test",
            found: -4,
        },
        ContractError::SharedMemory {
            kernel: "test",
            found: 1 << 32,
        },
        cluster(0, 1),
        cluster(17, 17),
        cluster(4, 6),
    ];
    let whole = kernel.geometry(0, 1, &[wanted.len() as u32]);
    assert_eq!(whole.unwrap().unwrap().cluster, 16);
    for (word, wanted) in wanted.into_iter().enumerate() {
        assert_eq!(kernel.geometry(0, 1, &[word as u32]), Err(wanted));
    }
    assert!(matches!(
        kernel.geometry(0, 1, &[12]),
        Err(ContractError::Eval {
            error: EvalError::Overflow,
            ..
        })
    ));
}

#[test]
fn pending_kernel_has_no_geometry() {
    let vadd = kernel("vadd").unwrap();
    let kernel = Kernel {
        launch: &[],
        pending: Some("later"),
        ..*vadd
    };
    let error = kernel.geometry(90, 1, &[1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "kernel vadd has no implementation: later"
    );
}

#[test]
fn table_is_sorted_and_every_kernel_is_found() {
    assert!(KERNELS.is_sorted_by(|a, b| a.name < b.name));
    for kernel in KERNELS {
        assert!(std::ptr::eq(
            zinc_contract::kernel(kernel.name).unwrap(),
            kernel
        ));
        assert_eq!(kernel.fields_of(FieldKind::Push).count(), kernel.push_words);
    }
    assert_eq!(
        KERNELS.iter().filter(|kernel| !kernel.extended).count(),
        110
    );
}

#[test]
fn every_contract_is_within_the_limits() {
    for kernel in KERNELS {
        assert!(kernel.fields.len() <= MAX_WORDS, "{}", kernel.name);
        assert!(kernel.buffers.len() <= MAX_BUFFERS, "{}", kernel.name);
    }
}

#[test]
fn expressions_agree_with_the_catalog() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels-cu");
    let catalog = Catalog::load(&root, Tolerance::Partial).unwrap();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = prop::collection::vec(word(), MAX_WORDS);
    for _ in 0..200 {
        let words = strategy.new_tree(&mut runner).unwrap().current();
        for (kernel, source) in KERNELS.iter().zip(&catalog.kernels) {
            let words = &words[..kernel.fields.len()];
            let value_of = |name: &str| {
                let index = source.fields.iter().position(|field| field.name == name)?;
                Some(i64::from(words[index]))
            };
            for (buffer, source) in kernel.buffers.iter().zip(&source.buffers) {
                for (generated, parsed) in [
                    (&buffer.bytes, &source.bytes),
                    (&buffer.start, &source.start),
                ] {
                    let generated = (generated.eval)(words).map_err(|error| error.to_string());
                    let parsed = parsed
                        .expr
                        .eval(&value_of)
                        .map_err(|error| error.to_string());
                    assert_eq!(generated, parsed, "{}: {}", kernel.name, buffer.name);
                }
            }
            for (condition, source) in kernel.requires.iter().zip(&source.requires) {
                let generated = (condition.holds)(words).map_err(|error| error.to_string());
                let parsed = source
                    .condition
                    .eval(&value_of)
                    .map_err(|error| error.to_string());
                assert_eq!(generated, parsed, "{}: {}", kernel.name, condition.text);
            }
        }
    }
}

/// Words of all sizes, with the multiples that contracts ask for among them.
fn word() -> impl Strategy<Value = u32> {
    prop_oneof![
        0u32..9,
        (0u32..64).prop_map(|n| n * 256),
        (0u32..32).prop_map(|n| 1 << n),
        any::<u32>(),
        Just(u32::MAX),
    ]
}

fn binding() -> impl Strategy<Value = Binding> {
    let address = prop_oneof![Just(0), (0u64..1 << 16).prop_map(|n| n * 16), any::<u64>()];
    let bytes = prop_oneof![Just(0), 0u64..1 << 20, any::<u64>(), Just(u64::MAX)];
    (address, bytes).prop_map(|(address, bytes)| Binding { address, bytes })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_words_and_bindings_make_the_check_panic(
        index in 0..KERNELS.len(),
        words in prop::collection::vec(word(), 0..MAX_WORDS),
        exact in any::<bool>(),
        bindings in prop::collection::vec(binding(), 8),
        arch in 0u32..200,
        sm_count in word(),
    ) {
        let kernel = &KERNELS[index];
        let mut words = words;
        if exact {
            words.resize(kernel.fields.len(), 1);
        }
        let bindings = &bindings[..kernel.buffers.len()];
        if let Err(error) = kernel.check(&words, bindings) {
            prop_assert!(error.to_string().contains(kernel.name));
        }
        if let Err(error) = kernel.geometry(arch, sm_count, &words) {
            prop_assert!(error.to_string().contains(kernel.name));
        }
    }

    #[test]
    fn accepted_bindings_hold_the_touched_ranges(
        m in 0u32..100, blocks in 0u32..8, offsets in prop::array::uniform3(0u32..64), gaps in prop::array::uniform3(0u64..4000),
    ) {
        let kernel = kernel("dmmv_q4k").unwrap();
        let words = [m, blocks * 256, offsets[0] * 4, offsets[1] * 16, offsets[2] * 4, 0];
        let sizes = [
            u64::from(words[2]) + u64::from(m * blocks * 144),
            u64::from(words[3]) + u64::from(blocks * 1024),
            u64::from(words[4]) + u64::from(m * 4),
        ];
        let bindings = [0, 1, 2].map(|i| Binding { address: (gaps[i] & !15) + 4096, bytes: sizes[i] });
        let touched = |i: usize| {
            let start = bindings[i].address + u64::from(words[2 + i]);
            start..bindings[i].address + sizes[i]
        };
        let y = touched(2);
        let overlap = [0, 1].map(touched).iter().any(|other| other.start.max(y.start) < other.end.min(y.end));
        let result = kernel.check(&words, &bindings);
        prop_assert_eq!(result.is_err(), overlap, "{:?}", result);
    }
}

#[test]
fn check_of_a_dispatch_is_cheap() {
    let (kernel, words, bindings) = matvec();
    let rounds = 20_000;
    let fastest = (0..20)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..rounds {
                black_box(black_box(kernel).check(black_box(&words), black_box(&bindings)))
                    .unwrap();
            }
            start.elapsed().as_nanos() as f64 / f64::from(rounds)
        })
        .fold(f64::INFINITY, f64::min);
    println!("checking dmmv_q4k (3 buffers, 4 preconditions): {fastest:.1} ns");
    if !cfg!(debug_assertions) {
        assert!(fastest < 200.0, "{fastest:.1} ns");
    }
}
