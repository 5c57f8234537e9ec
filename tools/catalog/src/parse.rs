//! Parses one contract file or one launch block and checks everything that can be judged from it alone.

use crate::error::{CatalogError, Problem};
use crate::expr::{Condition, Expr};
use crate::model::*;
use crate::names::is_identifier;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
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

/// What the `//@ ` lines of an implementation say.
pub struct LaunchBlock {
    pub rules: Vec<LaunchRule>,
    pub allow: Allow,
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

/// An expression may be written as a bare integer.
#[derive(Deserialize)]
#[serde(untagged)]
enum ExprSource {
    Int(u32),
    Text(String),
}

impl ExprSource {
    fn text(&self) -> String {
        match self {
            ExprSource::Int(value) => value.to_string(),
            ExprSource::Text(text) => text.clone(),
        }
    }
}

/// Collects the mistakes of one file; turns byte offsets into lines.
struct Report<'a> {
    file: &'a Path,
    text: &'a str,
    /// Lines of the file before the first line of `text`.
    skipped_lines: usize,
    kernel: Option<String>,
    errors: Vec<CatalogError>,
}

impl Report<'_> {
    fn line(&self, offset: usize) -> usize {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        self.skipped_lines + before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    fn push(&mut self, at: Range<usize>, problem: Problem) {
        let error = CatalogError {
            file: self.file.to_owned(),
            line: Some(self.line(at.start)),
            kernel: self.kernel.clone(),
            problem,
        };
        self.errors.push(error);
    }

    /// Reports what the TOML parser found.
    fn toml(&mut self, error: &toml::de::Error) {
        let at = error.span().unwrap_or(0..0);
        self.push(at, Problem::Toml(error.message().replace('\n', ", ")));
    }

    fn identifier(&mut self, what: &'static str, name: &Spanned<String>) {
        if !is_identifier(name.get_ref()) {
            let name_text = name.get_ref().clone();
            self.push(
                name.span(),
                Problem::Identifier {
                    what,
                    name: name_text,
                },
            );
        }
    }

    fn names(&mut self, at: Range<usize>, text: &str, names: &[&str], scope: &Scope) {
        for name in names {
            let problem = match scope.names.get(*name) {
                Some(Scalar::U32) => continue,
                Some(Scalar::F32) => Problem::FloatName {
                    text: text.to_owned(),
                    name: (*name).to_owned(),
                },
                None => Problem::UnknownName {
                    text: text.to_owned(),
                    name: (*name).to_owned(),
                    known: scope.what.to_owned(),
                },
            };
            self.push(at.clone(), problem);
        }
    }

    fn expr(&mut self, at: Range<usize>, text: String, scope: &Scope) -> ExprText {
        match Expr::parse(&text) {
            Ok(expr) => {
                self.names(at, &text, &Vec::from_iter(expr.names()), scope);
                ExprText { text, expr }
            }
            Err(error) => {
                self.push(
                    at,
                    Problem::Syntax {
                        text: text.clone(),
                        error,
                    },
                );
                ExprText {
                    text,
                    expr: Expr::Int(0),
                }
            }
        }
    }

    fn condition(&mut self, source: &Spanned<String>, scope: &Scope) -> Option<ConditionText> {
        let text = source.get_ref().clone();
        match Condition::parse(&text) {
            Ok(condition) => {
                self.names(
                    source.span(),
                    &text,
                    &Vec::from_iter(condition.names()),
                    scope,
                );
                Some(ConditionText { text, condition })
            }
            Err(error) => {
                self.push(source.span(), Problem::Syntax { text, error });
                None
            }
        }
    }
}

/// The names that expressions may use.
struct Scope {
    names: BTreeMap<String, Scalar>,
    what: &'static str,
}

/// Parses a contract file. `file` is its path for messages, `toml` its path relative to the catalog's root.
pub fn contract_file(file: &Path, toml: &Path, extended: bool, text: &str) -> ContractFile {
    let mut report = Report {
        file,
        text,
        skipped_lines: 0,
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
    let start = text[..offset.min(text.len())].rfind("[[kernel]]")?;
    let end = text[start + 2..]
        .find("[[kernel]]")
        .map_or(text.len(), |length| start + 2 + length);
    let name = text[start..end]
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
    too_many(
        report,
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
    too_many(
        report,
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
        allow: Allow::default(),
    };
    place(&mut kernel);
    report.kernel = None;
    kernel
}

fn too_many(report: &mut Report<'_>, at: &Range<usize>, what: &'static str, found: i64, most: i64) {
    if found > most {
        report.push(at.clone(), Problem::TooMany { what, found, most });
    }
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

const PREFIX: &str = "//@";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLaunch {
    #[serde(default)]
    tile: BTreeMap<Spanned<String>, Spanned<u32>>,
    block: Spanned<Vec<Spanned<ExprSource>>>,
    grid: Spanned<Vec<Spanned<ExprSource>>>,
    shared: Option<Spanned<ExprSource>>,
    #[serde(default)]
    arch: BTreeMap<Spanned<String>, RawOverride>,
    #[serde(default)]
    allow: RawAllow,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOverride {
    #[serde(default)]
    tile: BTreeMap<Spanned<String>, Spanned<u32>>,
    block: Option<Spanned<Vec<Spanned<ExprSource>>>>,
    grid: Option<Spanned<Vec<Spanned<ExprSource>>>>,
    shared: Option<Spanned<ExprSource>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawAllow {
    spills: Option<String>,
    local: Option<String>,
}

/// Parses the launch block of `kernel`'s implementation. `file` is the implementation's path for messages.
pub fn launch_block(
    file: &Path,
    kernel: &Kernel,
    source: &str,
) -> Result<LaunchBlock, Vec<CatalogError>> {
    let fail = |line: Option<usize>, problem| {
        Err(vec![CatalogError {
            file: file.to_owned(),
            line,
            kernel: Some(kernel.name.clone()),
            problem,
        }])
    };
    let is_block = |line: &&str| line.starts_with(PREFIX);
    let Some(first) = source.lines().position(|line| is_block(&line)) else {
        return fail(
            None,
            Problem::LaunchBlock("has no launch block (`//@ grid = [...]` and so on)"),
        );
    };
    let block = Vec::from_iter(source.lines().skip(first).take_while(is_block));
    let after = first + block.len();
    if let Some(stray) = source.lines().skip(after).position(|line| is_block(&line)) {
        let problem = Problem::LaunchBlock("the launch block must be one run of `//@ ` lines");
        return fail(Some(after + stray + 1), problem);
    }
    if let Some(index) = block
        .iter()
        .position(|line| !matches!(line[PREFIX.len()..].bytes().next(), None | Some(b' ')))
    {
        let problem = Problem::LaunchBlock("`//@` must be followed by a space");
        return fail(Some(first + index + 1), problem);
    }
    let text = block
        .iter()
        .map(|line| line[PREFIX.len()..].trim_start())
        .collect::<Vec<_>>()
        .join("\n");

    let mut report = Report {
        file,
        text: &text,
        skipped_lines: first,
        kernel: Some(kernel.name.clone()),
        errors: Vec::new(),
    };
    let raw: RawLaunch = match toml::from_str(&text) {
        Ok(raw) => raw,
        Err(error) => {
            report.toml(&error);
            return Err(report.errors);
        }
    };
    let rules = launch_rules(&mut report, kernel, &raw);
    if report.errors.is_empty() {
        let allow = Allow {
            spills: raw.allow.spills,
            local: raw.allow.local,
        };
        Ok(LaunchBlock { rules, allow })
    } else {
        Err(report.errors)
    }
}

fn launch_rules(report: &mut Report<'_>, kernel: &Kernel, raw: &RawLaunch) -> Vec<LaunchRule> {
    let mut scope = Scope {
        names: kernel
            .fields
            .iter()
            .map(|f| (f.name.clone(), f.scalar))
            .collect(),
        what: "a field, a tile constant or sm_count",
    };
    scope.names.insert(SM_COUNT.to_owned(), Scalar::U32);
    for name in raw.tile.keys() {
        report.identifier("tile constant", name);
        let text = name.get_ref().clone();
        if scope.names.insert(text.clone(), Scalar::U32).is_some() {
            let what = "name";
            report.push(
                name.span(),
                Problem::Duplicate {
                    what,
                    name: text,
                    first: None,
                },
            );
        }
    }
    let base = rule(
        report,
        &scope,
        0,
        &raw.tile,
        &raw.block,
        &raw.grid,
        raw.shared.as_ref(),
    );
    let mut rules = vec![base];
    for (arch, raw_override) in &raw.arch {
        let number = arch
            .get_ref()
            .parse::<u32>()
            .ok()
            .filter(|n| (10..1000).contains(n));
        let Some(min_arch) = number else {
            report.push(arch.span(), Problem::Arch(arch.get_ref().clone()));
            continue;
        };
        let mut tile = BTreeMap::from_iter(raw.tile.iter().map(|(name, value)| (name, value)));
        for (name, value) in &raw_override.tile {
            if tile.insert(name, value).is_none() {
                report.push(name.span(), Problem::UnknownTile(name.get_ref().clone()));
            }
        }
        let tile = tile
            .into_iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        rules.push(rule(
            report,
            &scope,
            min_arch,
            &tile,
            raw_override.block.as_ref().unwrap_or(&raw.block),
            raw_override.grid.as_ref().unwrap_or(&raw.grid),
            raw_override.shared.as_ref().or(raw.shared.as_ref()),
        ));
    }
    rules.sort_by_key(|rule| rule.min_arch);
    rules
}

fn rule(
    report: &mut Report<'_>,
    scope: &Scope,
    min_arch: u32,
    tile: &BTreeMap<Spanned<String>, Spanned<u32>>,
    block: &Spanned<Vec<Spanned<ExprSource>>>,
    grid: &Spanned<Vec<Spanned<ExprSource>>>,
    shared: Option<&Spanned<ExprSource>>,
) -> LaunchRule {
    let tile = Vec::from_iter(
        tile.iter()
            .map(|(name, value)| (name.get_ref().clone(), *value.get_ref())),
    );
    let block_exprs = dimensions(report, scope, block, "block dimensions");
    let grid = dimensions(report, scope, grid, "grid dimensions");
    let constant = |name: &str| {
        let (_, value) = tile.iter().find(|(constant, _)| constant == name)?;
        Some(i64::from(*value))
    };
    let threads = block_exprs.iter().try_fold(1i64, |threads, dimension| {
        let value = dimension.expr.eval(&constant).ok()?;
        threads.checked_mul(value)
    });
    if let Some(found) = threads {
        too_many(
            report,
            &block.span(),
            "threads in a block",
            found,
            MAX_BLOCK_THREADS,
        );
        if found < 1 {
            report.push(
                block.span(),
                Problem::TooFew {
                    what: "the block",
                    found,
                },
            );
        }
    }
    let shared = match shared {
        Some(shared) => report.expr(shared.span(), shared.get_ref().text(), scope),
        None => ExprText {
            text: "0".to_owned(),
            expr: Expr::Int(0),
        },
    };
    LaunchRule {
        min_arch,
        tile,
        grid,
        block: block_exprs,
        shared,
    }
}

fn dimensions(
    report: &mut Report<'_>,
    scope: &Scope,
    source: &Spanned<Vec<Spanned<ExprSource>>>,
    what: &'static str,
) -> [ExprText; 3] {
    let list = source.get_ref();
    too_many(report, &source.span(), what, list.len() as i64, 3);
    if list.is_empty() {
        report.push(source.span(), Problem::TooFew { what, found: 0 });
    }
    let mut result = [0; 3].map(|_| ExprText {
        text: "1".to_owned(),
        expr: Expr::Int(1),
    });
    for (dimension, source) in result.iter_mut().zip(list) {
        *dimension = report.expr(source.span(), source.get_ref().text(), scope);
    }
    result
}
