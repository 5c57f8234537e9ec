//! Launch files: how an implementation is launched, beside its code.

use super::{ExprSource, Report, Scope};
use crate::error::{CatalogError, Problem};
use crate::expr::Expr;
use crate::model::*;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use toml::Spanned;

/// What a launch file says.
pub struct Launch {
    pub rules: Vec<LaunchRule>,
    pub overlap: bool,
    pub early: Vec<usize>,
    pub allow: Allow,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLaunch {
    #[serde(default)]
    tile: BTreeMap<Spanned<String>, Spanned<u32>>,
    #[serde(default, rename = "let")]
    lets: BTreeMap<Spanned<String>, Spanned<ExprSource>>,
    block: Spanned<Vec<Spanned<ExprSource>>>,
    grid: Spanned<Vec<Spanned<ExprSource>>>,
    cluster: Option<Spanned<ExprSource>>,
    shared: Option<Spanned<ExprSource>>,
    overlap: Option<Spanned<bool>>,
    early: Option<Spanned<Vec<Spanned<String>>>>,
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
    #[serde(default, rename = "let")]
    lets: BTreeMap<Spanned<String>, Spanned<ExprSource>>,
    block: Option<Spanned<Vec<Spanned<ExprSource>>>>,
    grid: Option<Spanned<Vec<Spanned<ExprSource>>>>,
    cluster: Option<Spanned<ExprSource>>,
    shared: Option<Spanned<ExprSource>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawAllow {
    spills: Option<String>,
    local: Option<String>,
}

/// Parses the launch file of `kernel`'s implementation. `file` is its path for messages.
pub fn launch_file(file: &Path, kernel: &Kernel, text: &str) -> Result<Launch, Vec<CatalogError>> {
    let mut report = Report {
        file,
        text,
        kernel: Some(kernel.name.clone()),
        errors: Vec::new(),
    };
    let raw: RawLaunch = match toml::from_str(text) {
        Ok(raw) => raw,
        Err(error) => {
            report.toml(&error);
            return Err(report.errors);
        }
    };
    let rules = launch_rules(&mut report, kernel, &raw);
    let overlap = raw
        .overlap
        .as_ref()
        .is_some_and(|overlap| *overlap.get_ref());
    let early = early_buffers(&mut report, kernel, overlap, raw.early.as_ref());
    if report.errors.is_empty() {
        let allow = Allow {
            spills: raw.allow.spills,
            local: raw.allow.local,
        };
        Ok(Launch {
            rules,
            overlap,
            early,
            allow,
        })
    } else {
        Err(report.errors)
    }
}

/// The buffers that are read before the wait, as indices in binding order.
fn early_buffers(
    report: &mut Report<'_>,
    kernel: &Kernel,
    overlap: bool,
    early: Option<&Spanned<Vec<Spanned<String>>>>,
) -> Vec<usize> {
    let Some(early) = early else {
        return Vec::new();
    };
    if !overlap {
        let problem = Problem::Launch("`early` belongs to a kernel with `overlap = true`");
        report.push(early.span(), problem);
    }
    let mut indices = Vec::new();
    for name in early.get_ref() {
        let text = name.get_ref();
        let found = kernel
            .buffers
            .iter()
            .position(|buffer| buffer.name == *text);
        let reason = match found {
            None => "is no buffer of the kernel",
            Some(index) if kernel.buffers[index].access.writes() => "is written by the kernel",
            Some(index) if indices.contains(&index) => "is named twice",
            Some(index) => {
                indices.push(index);
                continue;
            }
        };
        let buffer = text.clone();
        report.push(name.span(), Problem::Early { buffer, reason });
    }
    indices.sort_unstable();
    indices
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
    scope.names.insert(CLUSTER.to_owned(), Scalar::U32);
    for name in raw.tile.keys() {
        declare(report, &mut scope, "tile constant", name);
    }
    // Values are made of fields and constants, and not of one another.
    let mut inner = scope.clone();
    inner.names.remove(CLUSTER);
    for name in raw.lets.keys() {
        declare(report, &mut scope, "value", name);
        scope.what = "a field, a tile constant, a value of `let` or sm_count";
    }
    let scopes = Scopes { inner, scope };
    let base = Keys {
        tile: BTreeMap::from_iter(&raw.tile),
        lets: BTreeMap::from_iter(&raw.lets),
        block: &raw.block,
        grid: &raw.grid,
        cluster: raw.cluster.as_ref(),
        shared: raw.shared.as_ref(),
    };
    let mut rules = vec![rule(report, &scopes, (0, false), &base)];
    for (arch, raw) in &raw.arch {
        let name = arch.get_ref();
        let (digits, specific) = match name.strip_suffix('a') {
            Some(digits) => (digits, true),
            None => (name.as_str(), false),
        };
        let number = digits
            .parse::<u32>()
            .ok()
            .filter(|n| (10..1000).contains(n));
        let Some(min_arch) = number else {
            report.push(arch.span(), Problem::Arch(arch.get_ref().clone()));
            continue;
        };
        let keys = Keys {
            tile: replaced(report, "tile constant", &base.tile, &raw.tile),
            lets: replaced(report, "value", &base.lets, &raw.lets),
            block: raw.block.as_ref().unwrap_or(base.block),
            grid: raw.grid.as_ref().unwrap_or(base.grid),
            cluster: raw.cluster.as_ref().or(base.cluster),
            shared: raw.shared.as_ref().or(base.shared),
        };
        rules.push(rule(report, &scopes, (min_arch, specific), &keys));
    }
    rules.sort_by_key(|rule| (rule.min_arch, rule.specific));
    rules
}

/// What the expressions of a rule may name.
struct Scopes {
    /// Those of values.
    inner: Scope,
    /// All others.
    scope: Scope,
}

/// What a rule is made from.
struct Keys<'a> {
    tile: BTreeMap<&'a Spanned<String>, &'a Spanned<u32>>,
    lets: BTreeMap<&'a Spanned<String>, &'a Spanned<ExprSource>>,
    block: &'a Spanned<Vec<Spanned<ExprSource>>>,
    grid: &'a Spanned<Vec<Spanned<ExprSource>>>,
    cluster: Option<&'a Spanned<ExprSource>>,
    shared: Option<&'a Spanned<ExprSource>>,
}

/// Adds a name of a launch file to those that expressions may use.
fn declare(report: &mut Report<'_>, scope: &mut Scope, what: &'static str, name: &Spanned<String>) {
    report.identifier(what, name);
    let text = name.get_ref().clone();
    if scope.names.insert(text.clone(), Scalar::U32).is_some() {
        let problem = Problem::Duplicate {
            what: "name",
            name: text,
            first: None,
        };
        report.push(name.span(), problem);
    }
}

/// The base rule's table with the entries that an override replaces.
fn replaced<'a, T>(
    report: &mut Report<'_>,
    what: &'static str,
    base: &BTreeMap<&'a Spanned<String>, &'a T>,
    own: &'a BTreeMap<Spanned<String>, T>,
) -> BTreeMap<&'a Spanned<String>, &'a T> {
    let mut table = base.clone();
    for (name, value) in own {
        if table.insert(name, value).is_none() {
            let problem = Problem::NotInBase {
                what,
                name: name.get_ref().clone(),
            };
            report.push(name.span(), problem);
        }
    }
    table
}

fn rule(
    report: &mut Report<'_>,
    scopes: &Scopes,
    (min_arch, specific): (u32, bool),
    keys: &Keys<'_>,
) -> LaunchRule {
    let scope = &scopes.scope;
    let tile = Vec::from_iter(
        keys.tile
            .iter()
            .map(|(name, value)| (name.get_ref().clone(), *value.get_ref())),
    );
    let lets = Vec::from_iter(keys.lets.iter().map(|(name, source)| {
        let value = report.expr(source.span(), source.get_ref().text(), &scopes.inner);
        (name.get_ref().clone(), value)
    }));
    let one = || ExprText {
        text: "1".to_owned(),
        expr: Expr::Int(1),
    };
    let cluster = keys.cluster.map_or_else(one, |source| {
        let cluster = report.expr(source.span(), source.get_ref().text(), scope);
        if cluster.expr.names().contains(CLUSTER) {
            let problem = Problem::Launch("the cluster cannot depend on itself");
            report.push(source.span(), problem);
        }
        if min_arch < CLUSTERS_SINCE && cluster.expr != Expr::Int(1) {
            let problem =
                Problem::Launch("`cluster` belongs in `[arch.90]`: no GPU before has clusters");
            report.push(source.span(), problem);
        }
        cluster
    });
    let with_cluster = |text: ExprText| ExprText {
        expr: text.expr.with(CLUSTER, &cluster.expr),
        ..text
    };
    let block_exprs = dimensions(report, scope, keys.block, "block dimensions").map(with_cluster);
    let grid = dimensions(report, scope, keys.grid, "grid dimensions").map(with_cluster);
    let constant = |name: &str| {
        let (_, value) = tile.iter().find(|(constant, _)| constant == name)?;
        Some(i64::from(*value))
    };
    let threads = block_exprs.iter().try_fold(1i64, |threads, dimension| {
        let inlined = lets
            .iter()
            .fold(dimension.expr.clone(), |expr, (name, value)| {
                expr.with(name, &value.expr)
            });
        let value = inlined.eval(&constant).ok()?;
        threads.checked_mul(value)
    });
    if let Some(found) = threads {
        report.too_many(
            &keys.block.span(),
            "threads in a block",
            found,
            MAX_BLOCK_THREADS,
        );
        if found < 1 {
            report.push(
                keys.block.span(),
                Problem::TooFew {
                    what: "the block",
                    found,
                },
            );
        }
    }
    let shared = match keys.shared {
        Some(shared) => with_cluster(report.expr(shared.span(), shared.get_ref().text(), scope)),
        None => ExprText {
            text: "0".to_owned(),
            expr: Expr::Int(0),
        },
    };
    LaunchRule {
        min_arch,
        specific,
        tile,
        lets,
        cluster,
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
    report.too_many(&source.span(), what, list.len() as i64, 3);
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
