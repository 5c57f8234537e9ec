//! Contract files: `[[kernel]]` entries.

use super::{ExprSource, Report, Scope};
use crate::error::{CatalogError, Problem};
use crate::expr::Expr;
use crate::model::*;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// What a contract file holds.
#[derive(Default)]
pub struct ContractFile {
    /// The file's kernels, in file order, without implementation.
    pub kernels: Vec<Kernel>,
    /// The mistakes that were found. Kernels with mistakes are left out of `kernels`.
    pub errors: Vec<CatalogError>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    directory: Option<String>,
    #[serde(default)]
    kernel: Vec<Spanned<RawKernel>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawKernel {
    name: Spanned<String>,
    family: Spanned<String>,
    summary: String,
    #[serde(default, rename = "derived")]
    _derived: bool,
    buffers: Vec<RawBuffer>,
    push: Vec<RawField>,
    #[serde(default)]
    launch: Vec<RawField>,
    #[serde(default)]
    spec: Vec<RawField>,
    math: String,
    requires: Vec<Spanned<String>>,
    reference_grid: String,
    edge: String,
    numerics: String,
    used_in: String,
    #[serde(default)]
    may_alias: Vec<Spanned<[String; 2]>>,
    #[serde(default)]
    ignored_push_bytes: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBuffer {
    name: Spanned<String>,
    access: Spanned<String>,
    dtype: String,
    bytes: Spanned<ExprSource>,
    shape: String,
    start: Option<Spanned<ExprSource>>,
    align: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawField {
    name: Spanned<String>,
    #[serde(rename = "type")]
    scalar: Spanned<String>,
    doc: String,
    default: Option<Spanned<toml::Value>>,
}

/// Parses a contract file. `file` is its path for messages, `toml` its path relative to the catalog's root.
pub fn contract_file(file: &Path, toml: &Path, extended: bool, text: &str) -> ContractFile {
    let mut report = Report {
        file,
        text,
        kernel: None,
        errors: Vec::new(),
    };
    let raw: RawFile = match toml::from_str(text) {
        Ok(raw) => raw,
        Err(error) => {
            report.kernel = kernel_around(text, error.span().map_or(0, |span| span.start));
            report.toml(&error);
            return ContractFile {
                kernels: Vec::new(),
                errors: report.errors,
            };
        }
    };
    let directory = match raw.directory {
        Some(directory) => PathBuf::from(directory),
        None if extended => PathBuf::from("extended"),
        None => PathBuf::from(toml.file_stem().unwrap_or_default()),
    };
    let mut kernels = Vec::new();
    for raw_kernel in raw.kernel {
        let at = raw_kernel.span();
        let line = report.line(at.start);
        let mistakes = report.errors.len();
        let kernel = contract(&mut report, raw_kernel.into_inner(), |kernel| {
            kernel.extended = extended;
            kernel.toml = toml.to_owned();
            kernel.line = line;
            kernel.cu = directory.join(format!("{}.cu", kernel.name));
        });
        if report.errors.len() == mistakes {
            kernels.push(kernel);
        }
    }
    ContractFile {
        kernels,
        errors: report.errors,
    }
}

/// The name of the `[[kernel]]` that a syntax error lies in, found without a parser.
fn kernel_around(text: &str, offset: usize) -> Option<String> {
    const HEAD: &str = "[[kernel]]";
    let start = text[..text.floor_char_boundary(offset + HEAD.len())].rfind(HEAD)? + HEAD.len();
    let entry = &text[start..];
    let entry = &entry[..entry.find(HEAD).unwrap_or(entry.len())];
    let name = entry
        .lines()
        .find_map(|line| line.strip_prefix("name")?.trim_start().strip_prefix('='))?;
    Some(name.trim().trim_matches(['"', '\'']).to_owned())
}

fn contract(report: &mut Report<'_>, raw: RawKernel, place: impl FnOnce(&mut Kernel)) -> Kernel {
    report.kernel = Some(raw.name.get_ref().clone());
    report.identifier("kernel", &raw.name);
    if !FAMILIES.contains(&raw.family.get_ref().as_str()) {
        let found = raw.family.get_ref().clone();
        report.push(raw.family.span(), Problem::Family { found });
    }

    let mut scope = Scope {
        names: BTreeMap::new(),
        what: "a push, launch or spec field",
    };
    let mut fields = Vec::new();
    let push_words = raw.push.len();
    let last_field = raw.push.iter().chain(&raw.launch).chain(&raw.spec).last();
    let fields_end = last_field.map_or(raw.name.span(), |field| field.name.span());
    for (kind, raw_fields) in [
        (FieldKind::Push, raw.push),
        (FieldKind::Launch, raw.launch),
        (FieldKind::Spec, raw.spec),
    ] {
        for raw_field in raw_fields {
            let field = field(report, raw_field, kind, &mut scope);
            fields.push(field);
        }
    }
    report.too_many(
        &fields_end,
        "4-byte fields",
        fields.len() as i64,
        MAX_WORDS as i64,
    );

    let mut buffers = Vec::<Buffer>::new();
    for raw_buffer in raw.buffers {
        let at = raw_buffer.name.span();
        let buffer = buffer(report, raw_buffer, &scope);
        let taken = buffers.iter().any(|other| other.name == buffer.name);
        if taken || scope.names.contains_key(&buffer.name) {
            let name = buffer.name.clone();
            report.push(
                at,
                Problem::Duplicate {
                    what: "name",
                    name,
                    first: None,
                },
            );
        }
        buffers.push(buffer);
    }
    report.too_many(
        &raw.name.span(),
        "buffers",
        buffers.len() as i64,
        MAX_BUFFERS as i64,
    );

    let may_alias = raw
        .may_alias
        .iter()
        .filter_map(|pair| alias(report, pair, &buffers))
        .collect();
    let requires = raw
        .requires
        .iter()
        .filter_map(|source| report.condition(source, &scope))
        .collect();
    let ignored_push_bytes = raw.ignored_push_bytes.map_or(0, |bytes| {
        if bytes.get_ref() % 4 != 0 {
            report.push(
                bytes.span(),
                Problem::Value {
                    key: "ignored_push_bytes",
                    found: bytes.get_ref().to_string(),
                    wanted: "a multiple of 4",
                },
            );
        }
        bytes.into_inner()
    });

    let mut kernel = Kernel {
        name: raw.name.into_inner(),
        family: raw.family.into_inner(),
        extended: false,
        summary: raw.summary.trim().to_owned(),
        math: raw.math.trim_end().to_owned(),
        edge: raw.edge.trim_end().to_owned(),
        numerics: raw.numerics.trim_end().to_owned(),
        used_in: raw.used_in.trim_end().to_owned(),
        reference_grid: raw.reference_grid.trim().to_owned(),
        fields,
        push_words,
        ignored_push_bytes,
        buffers,
        may_alias,
        requires,
        toml: PathBuf::new(),
        line: 0,
        cu: PathBuf::new(),
        pending: None,
        launch: Vec::new(),
        overlap: false,
        early: Vec::new(),
        allow: Allow::default(),
    };
    place(&mut kernel);
    report.kernel = None;
    kernel
}

fn field(report: &mut Report<'_>, raw: RawField, kind: FieldKind, scope: &mut Scope) -> Field {
    report.identifier("field", &raw.name);
    let scalar = match raw.scalar.get_ref().as_str() {
        "f32" => Scalar::F32,
        "u32" => Scalar::U32,
        found => {
            let found = found.to_owned();
            report.push(
                raw.scalar.span(),
                Problem::Value {
                    key: "type",
                    found,
                    wanted: "u32 or f32",
                },
            );
            Scalar::U32
        }
    };
    let default = raw.default.and_then(|value| {
        let bits = match (value.get_ref(), scalar) {
            (toml::Value::Integer(integer), Scalar::U32) => u32::try_from(*integer).ok(),
            (toml::Value::Float(float), Scalar::F32) => Some((*float as f32).to_bits()),
            _ => None,
        };
        if bits.is_none() {
            let found = value.get_ref().to_string();
            report.push(
                value.span(),
                Problem::Value {
                    key: "default",
                    found,
                    wanted: "a value of the field's type",
                },
            );
        }
        bits
    });
    let name = raw.name.get_ref().clone();
    if scope.names.insert(name.clone(), scalar).is_some() {
        let what = "field";
        report.push(
            raw.name.span(),
            Problem::Duplicate {
                what,
                name: name.clone(),
                first: None,
            },
        );
    }
    Field {
        name,
        doc: raw.doc,
        kind,
        scalar,
        default,
    }
}

fn buffer(report: &mut Report<'_>, raw: RawBuffer, scope: &Scope) -> Buffer {
    report.identifier("buffer", &raw.name);
    let access = match raw.access.get_ref().as_str() {
        "write" => Access::Write,
        "read_write" => Access::ReadWrite,
        "read" => Access::Read,
        found => {
            let found = found.to_owned();
            report.push(
                raw.access.span(),
                Problem::Value {
                    key: "access",
                    found,
                    wanted: "read, write or read_write",
                },
            );
            Access::Read
        }
    };
    let bytes = report.expr(raw.bytes.span(), raw.bytes.get_ref().text(), scope);
    let start = match raw.start {
        Some(start) => report.expr(start.span(), start.get_ref().text(), scope),
        None => ExprText {
            text: "0".to_owned(),
            expr: Expr::Int(0),
        },
    };
    let align = raw.align.map_or(16, |align| {
        if !align.get_ref().is_power_of_two() || *align.get_ref() > 256 {
            report.push(
                align.span(),
                Problem::Value {
                    key: "align",
                    found: align.get_ref().to_string(),
                    wanted: "a power of two up to 256",
                },
            );
        }
        align.into_inner()
    });
    Buffer {
        name: raw.name.into_inner(),
        dtype: raw.dtype,
        shape: raw.shape,
        access,
        bytes,
        start,
        align,
    }
}

fn alias(
    report: &mut Report<'_>,
    pair: &Spanned<[String; 2]>,
    buffers: &[Buffer],
) -> Option<(usize, usize)> {
    let [a, b] = pair.get_ref();
    let find = |name: &String| buffers.iter().position(|buffer| buffer.name == *name);
    let reason = match (find(a), find(b)) {
        (Some(i), Some(j)) if i == j => "a buffer always aliases itself",
        (Some(i), Some(j)) if !buffers[i].access.writes() && !buffers[j].access.writes() => {
            "both are only read, which is always allowed"
        }
        (Some(i), Some(j)) => return Some((i.min(j), i.max(j))),
        _ => "no such buffer",
    };
    let (a, b) = (a.clone(), b.clone());
    report.push(pair.span(), Problem::MayAlias { a, b, reason });
    None
}
