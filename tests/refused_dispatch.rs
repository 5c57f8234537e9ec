//! A dispatch that breaks a kernel's contract is an error that says how, and leaves every buffer as it was. For every
//! kernel that has code, on the emulator.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use zinc_contract::{ContractError, KERNELS, Kernel, Reason, Scalar};
use zinc_emulator::{Buffer, Emulator, EmulatorError};
use zinc_oracle::Case;

/// A multiple of every alignment that contracts ask for.
const ALIGN: u64 = 256;

fn implemented() -> impl Iterator<Item = &'static Kernel> {
    KERNELS.iter().filter(|kernel| kernel.pending.is_none())
}

/// One legal dispatch that is then broken in one place.
struct Legal {
    emulator: Emulator,
    kernel: &'static Kernel,
    words: Vec<u32>,
    /// Initial contents, in binding order.
    contents: Vec<Vec<u8>>,
    /// The touched bytes of each buffer: first and end. Equal where nothing is touched.
    touched: Vec<(u64, u64)>,
}

impl Legal {
    /// Of the small cases that touch most buffers, the one with most bytes.
    fn of(kernel: &'static Kernel) -> Self {
        let cases = zinc_oracle::light_cases(kernel).unwrap();
        let shared = |case: &Case| case.buffers.iter().any(|buffer| buffer.alias_of.is_some());
        let count = |case: &Case| {
            let buffers = touched(kernel, &case.words);
            buffers.iter().filter(|(start, end)| start < end).count()
        };
        let bytes = |case: &Case| case.contents().iter().map(|b| b.len()).sum::<usize>();
        let case = cases
            .iter()
            .filter(|case| !shared(case))
            .max_by_key(|case| (count(case), bytes(case)))
            .unwrap_or_else(|| panic!("{} has no case without shared buffers", kernel.name));
        let legal = Self {
            emulator: Emulator::default(),
            kernel,
            words: case.words.clone(),
            contents: case.contents().iter().map(|bytes| bytes.to_vec()).collect(),
            touched: touched(kernel, &case.words),
        };
        // What is broken below is nothing but the one thing.
        let stats = legal
            .emulator
            .dispatch(kernel, &legal.words, &legal.buffers())
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(stats.blocks > 0, "{}: nothing to refuse", kernel.name);
        legal
    }

    fn buffers(&self) -> Vec<Buffer> {
        let upload = |bytes: &Vec<u8>| self.emulator.upload(bytes).unwrap();
        self.contents.iter().map(upload).collect()
    }

    /// Indices of the buffers that the dispatch touches.
    fn used(&self) -> impl Iterator<Item = usize> {
        let used = |index: &usize| self.touched[*index].0 < self.touched[*index].1;
        (0..self.touched.len()).filter(used)
    }

    /// The dispatch is refused, and no byte changes.
    #[track_caller]
    fn refused(
        &self,
        what: &str,
        words: &[u32],
        buffers: &[Buffer],
        wanted: impl Fn(&ContractError) -> bool,
    ) {
        let what = format!("{}: {what}", self.kernel.name);
        let before = Vec::from_iter(buffers.iter().map(Buffer::read));
        for twice in [false, true] {
            let result = if twice {
                self.emulator
                    .dispatch_checked_twice(self.kernel, words, buffers)
            } else {
                self.emulator.dispatch(self.kernel, words, buffers)
            };
            match result {
                Err(EmulatorError::Contract(error)) if wanted(&error) => {
                    let shown = error.to_string();
                    assert!(shown.contains(self.kernel.name), "{what}: {shown}");
                }
                other => panic!("{what}: {other:?}"),
            }
            let after = Vec::from_iter(buffers.iter().map(Buffer::read));
            assert!(before == after, "{what}: a buffer changed");
        }
    }
}

/// What the contract says is touched of each buffer.
fn touched(kernel: &Kernel, words: &[u32]) -> Vec<(u64, u64)> {
    let range = |buffer: &zinc_contract::Buffer| {
        let end = (buffer.bytes.eval)(words).unwrap().max(0) as u64;
        let start = (buffer.start.eval)(words).unwrap().max(0) as u64;
        (start.min(end), end)
    };
    kernel.buffers.iter().map(range).collect()
}

#[test]
fn wrong_number_of_buffers() {
    for legal in implemented().map(Legal::of) {
        let count = legal.kernel.buffers.len();
        let wrong = |error: &ContractError, number: usize| matches!(error, ContractError::BufferCount { wanted, found, .. } if (*wanted, *found) == (count, number));
        let mut buffers = legal.buffers();
        buffers.push(legal.emulator.alloc(64));
        legal.refused("one more buffer", &legal.words, &buffers, |error| {
            wrong(error, count + 1)
        });
        buffers.truncate(count - 1);
        legal.refused("one buffer less", &legal.words, &buffers, |error| {
            wrong(error, count - 1)
        });
        legal.refused("no buffer", &legal.words, &[], |error| wrong(error, 0));
    }
}

#[test]
fn push_struct_of_another_length() {
    for legal in implemented().map(Legal::of) {
        let count = legal.words.len();
        let wrong = |error: &ContractError| matches!(error, ContractError::WordCount { wanted, .. } if *wanted == count);
        let longer = [legal.words.as_slice(), &[0]].concat();
        legal.refused("one more word", &longer, &legal.buffers(), wrong);
        let shorter = &legal.words[..count - 1];
        legal.refused("one word less", shorter, &legal.buffers(), wrong);
    }
}

#[test]
fn push_block_of_the_host_that_is_too_short_or_too_long() {
    for kernel in implemented() {
        let fields = &kernel.fields[..kernel.push_words];
        let optional = fields
            .iter()
            .rev()
            .take_while(|field| field.default.is_some());
        let least = 4 * (kernel.push_words - optional.count());
        let most = 4 * kernel.push_words + kernel.ignored_push_bytes;
        let launch = |kind| Vec::from_iter(kernel.fields_of(kind).map(|_| 1));
        let launch = launch(zinc_contract::FieldKind::Launch);
        let words = |bytes: usize| kernel.words(&vec![0; bytes], &launch, &[]);
        for good in [least, most] {
            assert!(words(good).is_ok(), "{}: {good} bytes", kernel.name);
        }
        let short = [least.checked_sub(4), least.checked_sub(1)];
        for bad in short.into_iter().flatten().chain([most + 1, most + 4]) {
            let error = words(bad).unwrap_err();
            assert!(
                matches!(error, ContractError::PushBytes { found, .. } if found == bad),
                "{}: {error}",
                kernel.name
            );
        }
    }
}

#[test]
fn buffer_one_byte_too_small() {
    for legal in implemented().map(Legal::of) {
        for index in legal.used() {
            let wanted_bytes = legal.touched[index].1;
            let name = legal.kernel.buffers[index].name;
            let mut buffers = legal.buffers();
            buffers[index] = buffers[index].slice(0..wanted_bytes - 1).unwrap();
            legal.refused(name, &legal.words, &buffers, |error| {
                matches!(error, ContractError::BufferTooSmall { buffer, wanted, found, .. }
                    if (*buffer, *wanted, *found) == (name, wanted_bytes, wanted_bytes - 1))
            });
            buffers[index] = Buffer::unbound();
            legal.refused(name, &legal.words, &buffers, |error| {
                matches!(error, ContractError::BufferTooSmall { buffer, found: 0, .. } if *buffer == name)
            });
        }
    }
}

#[test]
fn misaligned_buffer() {
    for legal in implemented().map(Legal::of) {
        for index in legal.used() {
            let contract = &legal.kernel.buffers[index];
            for shift in [1, contract.align / 2] {
                let mut buffers = legal.buffers();
                let bytes = buffers[index].bytes();
                let larger = legal.emulator.alloc(bytes + shift);
                buffers[index] = larger.slice(shift..bytes + shift).unwrap();
                legal.refused(contract.name, &legal.words, &buffers, |error| {
                    matches!(error, ContractError::Misaligned { buffer, wanted, .. }
                        if (*buffer, *wanted) == (contract.name, contract.align))
                });
            }
        }
    }
}

#[test]
fn written_buffer_over_another_one() {
    for legal in implemented().map(Legal::of) {
        let mut tried = false;
        for a in legal.used() {
            for b in legal.used().filter(|b| *b > a) {
                for shift in [0, ALIGN] {
                    tried |= overlap(&legal, a, b, shift);
                }
            }
        }
        let alone = legal.used().count() < 2;
        assert!(tried || alone, "{}: no overlap", legal.kernel.name);
    }
}

/// Binds two buffers to one allocation so that their touched ranges start together, as far as alignment allows, or the
/// second `shift` bytes later. Says whether the contract forbids that.
fn overlap(legal: &Legal, a: usize, b: usize, shift: u64) -> bool {
    let contracts = &legal.kernel.buffers;
    let ((start_a, end_a), (start_b, end_b)) = (legal.touched[a], legal.touched[b]);
    let at_a = start_b.saturating_sub(start_a) / ALIGN * ALIGN;
    let at_b = start_a.saturating_sub(start_b) / ALIGN * ALIGN + shift;
    let disjoint = (at_a + start_a).max(at_b + start_b) >= (at_a + end_a).min(at_b + end_b);
    let only_read = !contracts[a].access.writes() && !contracts[b].access.writes();
    let may_alias = legal.kernel.may_alias.contains(&(a as u8, b as u8));
    if disjoint || only_read || (may_alias && at_a + start_a == at_b + start_b) {
        return false;
    }
    let mut buffers = legal.buffers();
    let (bytes_a, bytes_b) = (buffers[a].bytes(), buffers[b].bytes());
    let (end_a, end_b) = (at_a + bytes_a, at_b + bytes_b);
    let memory = legal.emulator.alloc(end_a.max(end_b));
    buffers[a] = memory.slice(at_a..end_a).unwrap();
    buffers[b] = memory.slice(at_b..end_b).unwrap();
    buffers[a].write(&legal.contents[a]).unwrap();
    let names = (contracts[a].name, contracts[b].name);
    let why = if may_alias {
        Reason::NotSameStart
    } else {
        Reason::Never
    };
    let what = format!("{} at {at_a} and {} at {at_b}", names.0, names.1);
    legal.refused(&what, &legal.words, &buffers, |error| {
        matches!(error, ContractError::Overlap { a, b, reason, .. } if ((*a, *b), *reason) == (names, why))
    });
    true
}

#[test]
fn broken_precondition() {
    let mut untried = Vec::new();
    for legal in implemented().map(Legal::of) {
        for (index, condition) in legal.kernel.requires.iter().enumerate() {
            let Some(words) = breaking(&legal, index) else {
                untried.push(format!("{}: {}", legal.kernel.name, condition.text));
                continue;
            };
            legal.refused(condition.text, &words, &legal.buffers(), |error| {
                matches!(error, ContractError::Precondition { text, .. } if *text == condition.text)
            });
        }
    }
    assert!(untried.is_empty(), "no words break {untried:#?}");
}

/// Words that break this precondition and none in front of it: those of a case, but for one of the condition's fields
/// and perhaps one more.
fn breaking(legal: &Legal, index: usize) -> Option<Vec<u32>> {
    let requires = legal.kernel.requires;
    let breaks = |words: &[u32]| {
        let holds = |condition: &zinc_contract::Condition| (condition.holds)(words) == Ok(true);
        requires[..index].iter().all(holds) && (requires[index].holds)(words) == Ok(false)
    };
    let integer = |field: &usize| legal.kernel.fields[*field].scalar == Scalar::U32;
    let own = requires[index]
        .fields
        .iter()
        .map(|field| usize::from(*field));
    let own = Vec::from_iter(own.filter(integer));
    let change = |case: &Case| {
        own.iter().find_map(|first| {
            candidates(case.words[*first]).find_map(|value| {
                let mut words = case.words.clone();
                words[*first] = value;
                if breaks(&words) {
                    return Some(words);
                }
                (0..words.len()).filter(integer).find_map(|second| {
                    candidates(case.words[second]).find_map(|value| {
                        let mut words = words.clone();
                        words[second] = value;
                        breaks(&words).then_some(words)
                    })
                })
            })
        })
    };
    let cases = zinc_oracle::light_cases(legal.kernel).unwrap();
    cases.iter().find_map(change)
}

/// Values near a word, multiples of it, and values of all sizes.
fn candidates(word: u32) -> impl Iterator<Item = u32> {
    let near = [1, 2, u32::MAX].map(|step| word.wrapping_add(step));
    let multiples = (1..=12).map(move |bits| word.wrapping_shl(bits));
    let powers = (0..20).map(|bits| 1 << bits);
    let far = [0, 3, u32::MAX];
    near.into_iter().chain(multiples).chain(powers).chain(far)
}

#[test]
fn unknown_kernel() {
    let error = zinc_contract::kernel("dmmv_q4_k").unwrap_err();
    assert_eq!(
        error,
        ContractError::UnknownKernel {
            name: "dmmv_q4_k".to_owned(),
            nearest: Some("dmmv_q4k"),
        }
    );
}
