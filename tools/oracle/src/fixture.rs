//! Fixtures: a dispatch and its expected result in one safetensors file.
//!
//! Tensors `buffer.<name>` are the initial contents of the kernel's buffers and `expect.<name>` wanted
//! final contents, each as raw bytes (U8) or typed. The string metadata holds
//!
//! | key | meaning |
//! |---|---|
//! | `kernel` | kernel name |
//! | `push.<field>`, `launch.<count>`, `spec.<name>` | the fields: u32 in decimal, f32 as a decimal float; only fields with a default may be missing |
//! | `rtol`, `atol` | an f32 may differ by atol + rtol * abs(wanted); 0 if missing |
//! | `int_tol` | largest difference of an integer element, of a byte for a U8 tensor; 0 if missing |
//! | `exact` | buffers, separated by commas, whose expected contents count bit for bit |
//! | `f32_words.<buffer>` | ranges `a:b`, separated by commas, of the words of a u32 buffer that hold f32 |
//! | `compare.<buffer>` | a [`SetRule`] in words |
//! | `note` | for people |
//!
//! An expected NaN is matched by any NaN and an expected infinity by the same one; poison that has to
//! survive is compared like any other value.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::{fmt, str};

use safetensors::{Dtype, SafeTensors};
use zinc_contract_types::{ContractError, EvalError, FieldKind, Kernel, Scalar};

use crate::call::words_of;
use crate::expected::{Check, Integer, Outcome, Region, Want};
use crate::{Element, Expected, Report};

/// A dispatch with expected final contents.
#[derive(Debug, Clone, PartialEq)]
pub struct Fixture {
    /// the kernel
    pub kernel: &'static Kernel,
    /// the whole push struct: push fields, launch counts, specialization values
    pub words: Vec<u32>,
    /// initial contents in binding order; empty for a buffer that is not bound
    pub buffers: Vec<Tensor>,
    /// expected final contents in binding order
    pub expect: Vec<Option<Tensor>>,
    /// how results are judged
    pub rules: Rules,
    /// for people
    pub note: String,
}

/// Finds a kernel by its name, as `zinc_contract::kernel` does.
pub type FindKernel = fn(&str) -> Result<&'static Kernel, ContractError>;

/// How the results of a fixture are judged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    /// relative tolerance of f32 values
    pub rtol: f64,
    /// absolute tolerance of f32 values
    pub atol: f64,
    /// largest difference of an integer element or packed byte
    pub int_tol: u32,
    /// buffers that count bit for bit
    pub exact: BTreeSet<String>,
    /// word ranges of u32 buffers that hold f32 values
    pub f32_words: BTreeMap<String, Vec<Range<usize>>>,
    /// buffers whose entries are unordered
    pub compare: BTreeMap<String, SetRule>,
}

/// Contents of one buffer in a fixture.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tensor {
    /// element type in the file
    pub element: ElementType,
    /// the bytes, little endian
    pub bytes: Vec<u8>,
}

/// Element types of the tensors of a fixture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the format")]
pub enum ElementType {
    #[default]
    U8,
    I8,
    F16,
    F32,
    U32,
    I32,
}

/// A buffer in which some words form an unordered set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetRule {
    /// `first COUNT[I] words as a set, all other words exactly`: as many leading words as word I of the
    /// expected buffer COUNT says
    Prefix {
        /// buffer with the number of words
        count: String,
        /// word of that buffer
        word: usize,
    },
    /// `first COUNTS[e] words of row e as a set, all other words exactly`: row e of the buffer has as
    /// many unordered leading words as word e of the expected buffer COUNTS says. There are as many rows
    /// as the contract's byte count of COUNTS has words, all of equal length.
    Rows {
        /// buffer with the numbers of words
        counts: String,
    },
}

impl fmt::Display for SetRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix { count, word } => {
                write!(f, "first {count}[{word}] words as a set{OTHERS}")
            }
            Self::Rows { counts } => write!(f, "first {counts}[e] words of row e as a set{OTHERS}"),
        }
    }
}

/// The second half of the wording of every [`SetRule`].
const OTHERS: &str = ", all other words exactly";

impl SetRule {
    /// Reads the wording.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().strip_suffix(OTHERS)?.strip_prefix("first ")?;
        let (name, rest) = text.split_once('[')?;
        let (index, rest) = rest.split_once(']')?;
        match (index, rest) {
            ("e", " words of row e as a set") => Some(Self::Rows {
                counts: name.to_owned(),
            }),
            (index, " words as a set") => Some(Self::Prefix {
                count: name.to_owned(),
                word: index.parse().ok()?,
            }),
            _ => None,
        }
    }

    /// The buffer with the number or numbers of words.
    fn counts(&self) -> &str {
        match self {
            Self::Prefix { count, .. } => count,
            Self::Rows { counts } => counts,
        }
    }
}

/// What is wrong with a fixture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FixtureError {
    /// The file is no safetensors file.
    #[error("not a safetensors file: {reason}")]
    NotSafetensors {
        /// what the reader says
        reason: String,
    },
    /// Something that every fixture has is missing.
    #[error("{kernel}: wanted metadata {key}, found none")]
    MissingKey {
        /// kernel name, or "fixture" while it is not known
        kernel: String,
        /// the missing key
        key: String,
    },
    /// A metadata key or tensor name that the format or the kernel does not have.
    #[error("{kernel}: wanted {wanted}, found {what} {found:?}")]
    Unknown {
        /// kernel name
        kernel: String,
        /// metadata key, field, buffer or tensor
        what: &'static str,
        /// the name in the file
        found: String,
        /// what there could be
        wanted: String,
    },
    /// The kernel is not in the catalog.
    #[error(transparent)]
    UnknownKernel(#[from] ContractError),
    /// The fields break a precondition of the contract.
    #[error(transparent)]
    Precondition(ContractError),
    /// A value is no number of the wanted kind.
    #[error("{kernel}: {key}: wanted {wanted}, found {found:?}")]
    BadValue {
        /// kernel name
        kernel: String,
        /// metadata key
        key: String,
        /// the kind of value
        wanted: String,
        /// the text in the file
        found: String,
    },
    /// A tensor that has to be there is missing.
    #[error("{kernel}: wanted a tensor {tensor} of {wanted} bytes, found none")]
    MissingTensor {
        /// kernel name
        kernel: String,
        /// tensor name
        tensor: String,
        /// least number of bytes
        wanted: u64,
    },
    /// A tensor has an element type that its buffer does not have.
    #[error("{kernel}: tensor {tensor}: wanted {wanted}, found {found}")]
    WrongType {
        /// kernel name
        kernel: String,
        /// tensor name
        tensor: String,
        /// types that would do
        wanted: String,
        /// type in the file
        found: String,
    },
    /// A tensor has the wrong size.
    #[error("{kernel}: tensor {tensor}: wanted {wanted} bytes, found {found}")]
    WrongSize {
        /// kernel name
        kernel: String,
        /// tensor name
        tensor: String,
        /// number of bytes, with "at least" where that is meant
        wanted: String,
        /// number of bytes in the file
        found: u64,
    },
    /// The contract's byte count has no value for these fields.
    #[error("{kernel}: buffer {buffer}: {expression}: {source}")]
    Eval {
        /// kernel name
        kernel: String,
        /// buffer name
        buffer: &'static str,
        /// the expression as the catalog states it
        expression: &'static str,
        /// what went wrong
        source: EvalError,
    },
}

impl ElementType {
    /// Every type.
    const ALL: [Self; 6] = [
        Self::U8,
        Self::I8,
        Self::F16,
        Self::F32,
        Self::U32,
        Self::I32,
    ];

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::F16 => 2,
            Self::F32 | Self::U32 | Self::I32 => 4,
        }
    }

    /// The safetensors type.
    fn dtype(self) -> Dtype {
        match self {
            Self::U8 => Dtype::U8,
            Self::I8 => Dtype::I8,
            Self::F16 => Dtype::F16,
            Self::F32 => Dtype::F32,
            Self::U32 => Dtype::U32,
            Self::I32 => Dtype::I32,
        }
    }

    /// The types in which a buffer of the catalog's `dtype` may be stored.
    fn of_buffer(dtype: &str) -> &'static [Self] {
        match dtype {
            "f32" => &[Self::F32, Self::U8],
            "f16" => &[Self::F16, Self::U8],
            "f32|f16" => &[Self::F32, Self::F16, Self::U8],
            "u32" => &[Self::U32, Self::I32, Self::U8],
            _ => &[Self::U8, Self::I8],
        }
    }
}

/// Names, for messages.
fn list<T: ToString>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<String> = names.into_iter().map(|n| n.to_string()).collect();
    match names.as_slice() {
        [] => "nothing here".to_owned(),
        names => format!("one of {}", names.join(", ")),
    }
}

/// Reads a fixture from the bytes of a file.
///
/// # Errors
/// Every deviation from the format and from the kernel's contract, with what was wanted and found.
pub fn read(bytes: &[u8], find: FindKernel) -> Result<Fixture, FixtureError> {
    let broken = |e: safetensors::SafeTensorError| FixtureError::NotSafetensors {
        reason: e.to_string(),
    };
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(broken)?;
    let tensors = SafeTensors::deserialize(bytes).map_err(broken)?;
    let metadata: BTreeMap<&str, &str> = header
        .metadata()
        .iter()
        .flatten()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    let name = metadata
        .get("kernel")
        .ok_or_else(|| FixtureError::MissingKey {
            kernel: "fixture".to_owned(),
            key: "kernel".to_owned(),
        })?;
    let reader = Reader {
        kernel: find(name)?,
        metadata,
        tensors,
    };
    reader.check_names()?;
    let words = reader.words()?;
    let checked = reader.kernel.check_preconditions(&words);
    checked.map_err(FixtureError::Precondition)?;
    let buffers = reader.buffers(&words)?;
    let expect = reader.expect(&buffers)?;
    Ok(Fixture {
        kernel: reader.kernel,
        rules: reader.rules(&expect)?,
        note: (reader.metadata.get("note").copied().unwrap_or_default()).to_owned(),
        words,
        buffers,
        expect,
    })
}

/// A fixture while it is read.
struct Reader<'a> {
    kernel: &'static Kernel,
    metadata: BTreeMap<&'a str, &'a str>,
    tensors: SafeTensors<'a>,
}

/// The prefix of the metadata keys of a kind of field.
fn prefix(kind: FieldKind) -> &'static str {
    match kind {
        FieldKind::Push => "push.",
        FieldKind::Launch => "launch.",
        FieldKind::Spec => "spec.",
    }
}

impl Reader<'_> {
    fn has_buffer(&self, name: &str) -> bool {
        self.kernel.buffers.iter().any(|b| b.name == name)
    }

    fn unknown(&self, what: &'static str, found: &str, wanted: String) -> FixtureError {
        FixtureError::Unknown {
            kernel: self.kernel.name.to_owned(),
            what,
            found: found.to_owned(),
            wanted,
        }
    }

    fn bad_value(&self, key: &str, wanted: &str, found: &str) -> FixtureError {
        FixtureError::BadValue {
            kernel: self.kernel.name.to_owned(),
            key: key.to_owned(),
            wanted: wanted.to_owned(),
            found: found.to_owned(),
        }
    }

    /// Refuses keys and tensors that mean nothing for this kernel.
    fn check_names(&self) -> Result<(), FixtureError> {
        const PLAIN: [&str; 6] = ["kernel", "rtol", "atol", "int_tol", "exact", "note"];
        let buffers = || list(self.kernel.buffers.iter().map(|b| b.name));
        for key in self.metadata.keys() {
            if PLAIN.contains(key) {
                continue;
            }
            let kinds = [FieldKind::Push, FieldKind::Launch, FieldKind::Spec];
            let kind = kinds.into_iter().find(|k| key.starts_with(prefix(*k)));
            if let Some(kind) = kind {
                let fields = || self.kernel.fields.iter().filter(|f| f.kind == kind);
                let name = &key[prefix(kind).len()..];
                if !fields().any(|f| f.name == name) {
                    let names = fields().map(|f| format!("{}{}", prefix(kind), f.name));
                    return Err(self.unknown("metadata key", key, list(names)));
                }
                continue;
            }
            let rule = ["f32_words.", "compare."]
                .into_iter()
                .find_map(|p| key.strip_prefix(p));
            match rule {
                Some(name) if self.has_buffer(name) => {}
                Some(_) => return Err(self.unknown("the buffer of metadata key", key, buffers())),
                None => return Err(self.unknown("metadata key", key, list(PLAIN))),
            }
        }
        for tensor in self.tensors.names() {
            let name = ["buffer.", "expect."]
                .into_iter()
                .find_map(|p| tensor.strip_prefix(p));
            if !name.is_some_and(|n| self.has_buffer(n)) {
                let wanted = format!("buffer. or expect. and {}", buffers());
                return Err(self.unknown("tensor", tensor, wanted));
            }
        }
        Ok(())
    }

    /// All fields as words.
    fn words(&self) -> Result<Vec<u32>, FixtureError> {
        let fields = self.kernel.fields.iter().map(|field| {
            let key = format!("{}{}", prefix(field.kind), field.name);
            let Some(text) = self.metadata.get(key.as_str()) else {
                return field.default.ok_or_else(|| FixtureError::MissingKey {
                    kernel: self.kernel.name.to_owned(),
                    key,
                });
            };
            match field.scalar {
                Scalar::U32 => text
                    .parse()
                    .map_err(|_| self.bad_value(&key, "a u32", text)),
                Scalar::F32 => match text.parse::<f32>() {
                    Ok(value) => Ok(value.to_bits()),
                    Err(_) => Err(self.bad_value(&key, "an f32 in decimal", text)),
                },
            }
        });
        fields.collect()
    }

    /// A tensor, checked against the type of its buffer.
    fn tensor(&self, name: &str, dtype: &str) -> Result<Option<Tensor>, FixtureError> {
        let Ok(view) = self.tensors.tensor(name) else {
            return Ok(None);
        };
        let allowed = ElementType::of_buffer(dtype);
        let element = ElementType::ALL
            .into_iter()
            .find(|e| e.dtype() == view.dtype());
        match element.filter(|e| allowed.contains(e)) {
            Some(element) => Ok(Some(Tensor {
                element,
                bytes: view.data().to_vec(),
            })),
            None => Err(FixtureError::WrongType {
                kernel: self.kernel.name.to_owned(),
                tensor: name.to_owned(),
                wanted: list(allowed.iter().map(|e| format!("{e:?}"))),
                found: format!("{:?}", view.dtype()),
            }),
        }
    }

    /// Initial contents; a buffer of which the contract wants no byte may be missing.
    fn buffers(&self, words: &[u32]) -> Result<Vec<Tensor>, FixtureError> {
        let buffers = self.kernel.buffers.iter().map(|buffer| {
            let wanted = (buffer.bytes.eval)(words).map_err(|source| FixtureError::Eval {
                kernel: self.kernel.name.to_owned(),
                buffer: buffer.name,
                expression: buffer.bytes.text,
                source,
            })?;
            let wanted = u64::try_from(wanted).unwrap_or(0);
            let name = format!("buffer.{}", buffer.name);
            let kernel = self.kernel.name.to_owned();
            match self.tensor(&name, buffer.dtype)? {
                None if wanted == 0 => Ok(Tensor::default()),
                None => Err(FixtureError::MissingTensor {
                    kernel,
                    tensor: name,
                    wanted,
                }),
                Some(tensor) if (tensor.bytes.len() as u64) < wanted => {
                    Err(FixtureError::WrongSize {
                        kernel,
                        tensor: name,
                        wanted: format!("at least {wanted}"),
                        found: tensor.bytes.len() as u64,
                    })
                }
                Some(tensor) => Ok(tensor),
            }
        });
        buffers.collect()
    }

    /// Expected contents, of the same size as the initial ones.
    fn expect(&self, buffers: &[Tensor]) -> Result<Vec<Option<Tensor>>, FixtureError> {
        let pairs = self.kernel.buffers.iter().zip(buffers);
        let expect = pairs.map(|(buffer, initial)| {
            let name = format!("expect.{}", buffer.name);
            match self.tensor(&name, buffer.dtype)? {
                Some(tensor) if tensor.bytes.len() != initial.bytes.len() => {
                    Err(FixtureError::WrongSize {
                        kernel: self.kernel.name.to_owned(),
                        tensor: name,
                        wanted: initial.bytes.len().to_string(),
                        found: tensor.bytes.len() as u64,
                    })
                }
                other => Ok(other),
            }
        });
        expect.collect()
    }

    /// A metadata value, or its default.
    fn value<T: str::FromStr + Default>(
        &self,
        key: &str,
        wanted: &str,
        good: impl Fn(&T) -> bool,
    ) -> Result<T, FixtureError> {
        let Some(text) = self.metadata.get(key) else {
            return Ok(T::default());
        };
        let value = text.trim().parse().ok().filter(good);
        value.ok_or_else(|| self.bad_value(key, wanted, text))
    }

    fn rules(&self, expect: &[Option<Tensor>]) -> Result<Rules, FixtureError> {
        let tolerance = |key: &str| {
            let good = |t: &f64| t.is_finite() && *t >= 0.0;
            self.value(key, "a finite number, 0 or more", good)
        };
        let mut rules = Rules {
            rtol: tolerance("rtol")?,
            atol: tolerance("atol")?,
            int_tol: self.value("int_tol", "a u32", |_| true)?,
            ..Rules::default()
        };
        let exact = self.metadata.get("exact").copied().unwrap_or_default();
        for name in exact.split([',', ' ']).filter(|n| !n.is_empty()) {
            if !self.has_buffer(name) {
                let wanted = list(self.kernel.buffers.iter().map(|b| b.name));
                return Err(self.bad_value("exact", &wanted, name));
            }
            rules.exact.insert(name.to_owned());
        }
        for (key, text) in &self.metadata {
            if let Some(name) = key.strip_prefix("f32_words.") {
                let words = self.word_count(name, expect);
                let wanted = format!("ranges a:b of {words} words");
                let ranges = parse_ranges(text, words);
                let ranges = ranges.ok_or_else(|| self.bad_value(key, &wanted, text))?;
                rules.f32_words.insert(name.to_owned(), ranges);
            } else if let Some(name) = key.strip_prefix("compare.") {
                let rule = SetRule::parse(text).filter(|r| self.rule_fits(r, expect));
                let wanted = format!(
                    "\"first COUNT[I] words as a set{OTHERS}\" or \"first COUNTS[e] words of row e \
                     as a set{OTHERS}\" with a buffer that has expected contents"
                );
                let rule = rule.ok_or_else(|| self.bad_value(key, &wanted, text))?;
                rules.compare.insert(name.to_owned(), rule);
            }
        }
        Ok(rules)
    }

    /// Number of whole words of the expected contents of a buffer.
    fn word_count(&self, name: &str, expect: &[Option<Tensor>]) -> usize {
        let index = self.kernel.buffers.iter().position(|b| b.name == name);
        let tensor = index.and_then(|i| expect[i].as_ref());
        tensor.map_or(0, |t| t.bytes.len() / 4)
    }

    /// True if the counts of a rule are there.
    fn rule_fits(&self, rule: &SetRule, expect: &[Option<Tensor>]) -> bool {
        let words = self.word_count(rule.counts(), expect);
        match rule {
            SetRule::Prefix { word, .. } => *word < words,
            SetRule::Rows { .. } => words > 0,
        }
    }
}

/// Ranges `a:b`, separated by commas, within `words` words.
fn parse_ranges(text: &str, words: usize) -> Option<Vec<Range<usize>>> {
    let ranges = text.split(',').map(|range| {
        let (start, end) = range.trim().split_once(':')?;
        let range = start.parse().ok()?..end.parse().ok()?;
        (range.start <= range.end && range.end <= words).then_some(range)
    });
    ranges.collect()
}

/// The bytes of a file with the fixture; equal fixtures give equal bytes.
///
/// # Errors
/// The fixture does not have the words and buffers of its kernel.
pub fn write(fixture: &Fixture) -> Result<Vec<u8>, FixtureError> {
    let kernel = fixture.kernel;
    let counts = [
        ("words", kernel.fields.len(), fixture.words.len()),
        ("buffers", kernel.buffers.len(), fixture.buffers.len()),
        ("expect", kernel.buffers.len(), fixture.expect.len()),
    ];
    for (key, wanted, found) in counts {
        if wanted != found {
            return Err(FixtureError::BadValue {
                kernel: kernel.name.to_owned(),
                key: key.to_owned(),
                wanted: wanted.to_string(),
                found: found.to_string(),
            });
        }
    }
    let mut metadata = BTreeMap::new();
    let mut put = |key: String, value: String| metadata.insert(key, value);
    put("kernel".to_owned(), kernel.name.to_owned());
    for (field, word) in kernel.fields.iter().zip(&fixture.words) {
        let value = match field.scalar {
            Scalar::U32 => word.to_string(),
            // The shortest text that reads back as the same f32.
            Scalar::F32 => format!("{:?}", f32::from_bits(*word)),
        };
        put(format!("{}{}", prefix(field.kind), field.name), value);
    }
    let rules = &fixture.rules;
    put("rtol".to_owned(), format!("{:?}", rules.rtol));
    put("atol".to_owned(), format!("{:?}", rules.atol));
    if rules.int_tol != 0 {
        put("int_tol".to_owned(), rules.int_tol.to_string());
    }
    if !rules.exact.is_empty() {
        let names: Vec<&str> = rules.exact.iter().map(String::as_str).collect();
        put("exact".to_owned(), names.join(","));
    }
    for (name, ranges) in &rules.f32_words {
        let ranges: Vec<String> = ranges
            .iter()
            .map(|r| format!("{}:{}", r.start, r.end))
            .collect();
        put(format!("f32_words.{name}"), ranges.join(","));
    }
    for (name, rule) in &rules.compare {
        put(format!("compare.{name}"), rule.to_string());
    }
    if !fixture.note.is_empty() {
        put("note".to_owned(), fixture.note.clone());
    }
    let initial = kernel.buffers.iter().zip(&fixture.buffers);
    let initial = initial.filter(|(_, t)| !t.bytes.is_empty());
    let initial = initial.map(|(b, t)| (format!("buffer.{}", b.name), t));
    let expect = kernel.buffers.iter().zip(&fixture.expect);
    let expect = expect.filter_map(|(b, t)| Some((format!("expect.{}", b.name), t.as_ref()?)));
    serialize(kernel.name, metadata, initial.chain(expect))
}

/// The bytes of a file with the final contents of all buffers, under the names that a fixture gives
/// their initial contents.
///
/// # Errors
/// As [`write()`].
pub fn write_outputs(fixture: &Fixture, outputs: &[Vec<u8>]) -> Result<Vec<u8>, FixtureError> {
    let mut result = fixture.clone();
    result.expect.iter_mut().for_each(|e| *e = None);
    result.rules.f32_words.clear();
    result.rules.compare.clear();
    for (tensor, output) in result.buffers.iter_mut().zip(outputs) {
        tensor.bytes.clone_from(output);
    }
    write(&result)
}

/// A safetensors file with its header in a fixed order.
fn serialize<'a>(
    kernel: &str,
    metadata: BTreeMap<String, String>,
    tensors: impl Iterator<Item = (String, &'a Tensor)>,
) -> Result<Vec<u8>, FixtureError> {
    let mut header = serde_json::Map::new();
    header.insert("__metadata__".to_owned(), serde_json::json!(metadata));
    let mut data: Vec<u8> = Vec::new();
    for (name, tensor) in tensors {
        let bytes = tensor.element.bytes();
        if tensor.bytes.len() % bytes != 0 {
            return Err(FixtureError::WrongSize {
                kernel: kernel.to_owned(),
                tensor: name,
                wanted: format!("a multiple of {bytes}"),
                found: tensor.bytes.len() as u64,
            });
        }
        let start = data.len();
        data.extend(&tensor.bytes);
        let entry = serde_json::json!({
            "dtype": format!("{:?}", tensor.element),
            "shape": [tensor.bytes.len() / bytes],
            "data_offsets": [start, data.len()],
        });
        header.insert(name, entry);
    }
    let mut json = serde_json::Value::Object(header).to_string().into_bytes();
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut file = (json.len() as u64).to_le_bytes().to_vec();
    file.extend(json);
    file.extend(data);
    Ok(file)
}

/// Judges the final contents of all buffers, in binding order, against the expected ones. Buffers
/// without expected contents are not looked at.
pub fn compare<O: AsRef<[u8]>>(fixture: &Fixture, outputs: &[O]) -> Report {
    let kernel = fixture.kernel;
    let buffers = kernel.buffers.iter().zip(&fixture.expect).enumerate();
    let expected: Vec<Expected> = buffers
        .filter_map(|(index, (buffer, tensor))| {
            let tensor = tensor.as_ref()?;
            let want = fixture.want(kernel, buffer.name, buffer.dtype, tensor);
            Some(Expected {
                buffer: index,
                regions: vec![Region { start: 0, want }],
            })
        })
        .collect();
    let initial: Vec<&[u8]> = fixture.buffers.iter().map(|t| t.bytes.as_slice()).collect();
    let label = if fixture.note.is_empty() {
        "fixture"
    } else {
        &fixture.note
    };
    crate::compare(kernel, label, &initial, &expected, outputs)
}

impl Fixture {
    /// The initial contents of all buffers.
    pub fn contents(&self) -> Vec<&[u8]> {
        self.buffers.iter().map(|t| t.bytes.as_slice()).collect()
    }

    /// What is wanted of a whole buffer.
    fn want(&self, kernel: &Kernel, name: &str, dtype: &str, tensor: &Tensor) -> Want {
        let bytes = &tensor.bytes;
        if self.rules.exact.contains(name) {
            return Want::Bytes(bytes.clone());
        }
        if let Some(rule) = self.rules.compare.get(name) {
            return Want::Check(self.set_check(kernel, name, rule, bytes));
        }
        let near = |bits: u32| {
            let wanted = f64::from(f32::from_bits(bits));
            Element::near(wanted, self.rules.atol + self.rules.rtol * wanted.abs())
        };
        if dtype == "f32" {
            return Want::Floats(words_of(bytes).map(near).collect());
        }
        if let Some(ranges) = self.rules.f32_words.get(name) {
            let words = words_of(bytes).enumerate().map(|(i, bits)| {
                let float = ranges.iter().any(|r| r.contains(&i));
                if float {
                    near(bits)
                } else {
                    Element::Bits(bits)
                }
            });
            return Want::Floats(words.collect());
        }
        let kind = match (tensor.element, dtype) {
            (ElementType::U32 | ElementType::I32 | ElementType::F32, _) => Integer::U32,
            (ElementType::F16, _) => Integer::U16,
            (ElementType::I8, _) => Integer::I8,
            // Packed words and quantized blocks hold signed bytes.
            (ElementType::U8, "u32" | "q8_1" | "q8_0") => Integer::I8,
            (ElementType::U8, _) => Integer::U8,
        };
        Want::Integers {
            kind,
            wanted: bytes
                .chunks_exact(kind.bytes())
                .map(|b| kind.load(b))
                .collect(),
            tolerance: i64::from(self.rules.int_tol),
        }
    }

    /// The check of a buffer with unordered words.
    fn set_check(&self, kernel: &Kernel, name: &str, rule: &SetRule, wanted: &[u8]) -> Check {
        let index = kernel.buffers.iter().position(|b| b.name == rule.counts());
        let tensor = index.and_then(|i| self.expect[i].as_ref());
        let counts: Vec<u32> = tensor.map_or_else(Vec::new, |t| words_of(&t.bytes).collect());
        let words: Vec<u32> = words_of(wanted).collect();
        let sets: Vec<Range<usize>> = match rule {
            SetRule::Prefix { word, .. } => std::iter::once(0..counts[*word] as usize).collect(),
            SetRule::Rows { .. } => {
                let bytes = |name: &str| {
                    let buffer = kernel.buffers.iter().find(|b| b.name == name);
                    let bytes = buffer.and_then(|b| (b.bytes.eval)(&self.words).ok());
                    bytes.map_or(0, |b| usize::try_from(b).unwrap_or(0) / 4)
                };
                let rows = bytes(rule.counts()).clamp(1, counts.len());
                let len = bytes(name) / rows;
                let set = |e: usize| e * len..e * len + (counts[e] as usize).min(len);
                (0..rows).map(set).collect()
            }
        };
        let judge = move |found: &[u8], _: &[&[u8]]| {
            let mut found: Vec<u32> = words_of(found).collect();
            let mut wanted = words.clone();
            for set in &sets {
                let end = set.end.min(wanted.len()).min(found.len());
                if let (Some(w), Some(f)) = (
                    wanted.get_mut(set.start..end),
                    found.get_mut(set.start..end),
                ) {
                    w.sort_unstable();
                    f.sort_unstable();
                }
            }
            let mut outcome = Outcome::default();
            for (index, (wanted, found)) in wanted.iter().zip(&found).enumerate() {
                outcome.exact(index, wanted == found, || {
                    (format!("{wanted:#x}"), format!("{found:#x} (sets sorted)"))
                });
            }
            outcome
        };
        Check::new("unordered sets of words", wanted.to_vec(), judge)
    }
}
