//! The table of contracts as Rust source: the initializer that `zinc-contract` includes.

use crate::expr::{Condition, Expr, Op};
use crate::model::*;
use std::fmt::Write as _;

/// Rust source of `pub static KERNELS: &[Kernel]` and of `pub mod index` with the position of each, for a module that has the types of `zinc-contract` and its
/// arithmetic (`word`, `add`, `sub`, `mul`, `div`, `rem`, `ceil_div`) in scope.
pub fn rust_table(catalog: &Catalog) -> String {
    let mut out = String::from(
        "/// Every kernel of the catalog, sorted by name.\n\
         #[allow(clippy::manual_clamp, reason = \"expressions as written; clamp panics on an empty range\")]\n\
         #[allow(clippy::eq_op, clippy::if_same_then_else, reason = \"tile constants may be equal\")]\n\
         pub static KERNELS: &[Kernel] = &[\n",
    );
    for kernel in &catalog.kernels {
        table_entry(&mut out, kernel).expect("writing to a string cannot fail");
    }
    out += "];\n\n/// The position of each kernel in [`KERNELS`].\npub mod index {\n";
    for (position, kernel) in catalog.kernels.iter().enumerate() {
        let (name, constant) = (&kernel.name, kernel.name.to_ascii_uppercase());
        out += &format!(
            "    /// Position of `{name}`.\n    pub const {constant}: usize = {position};\n"
        );
    }
    out += "}\n";
    out
}

fn table_entry(out: &mut String, kernel: &Kernel) -> std::fmt::Result {
    let words = Words {
        kernel,
        tile: &[],
        lets: &[],
    };
    writeln!(out, "    Kernel {{")?;
    for (key, text) in [
        ("name", &kernel.name),
        ("family", &kernel.family),
        ("summary", &kernel.summary),
        ("math", &kernel.math),
        ("edge", &kernel.edge),
        ("numerics", &kernel.numerics),
        ("used_in", &kernel.used_in),
        ("reference_grid", &kernel.reference_grid),
    ] {
        writeln!(out, "        {key}: {text:?},")?;
    }
    writeln!(out, "        source: {:?},", unix_path(&kernel.toml))?;
    writeln!(out, "        implementation: {:?},", unix_path(&kernel.cu))?;
    writeln!(out, "        extended: {},", kernel.extended)?;
    writeln!(out, "        pending: {:?},", kernel.pending)?;
    writeln!(out, "        fields: &[")?;
    for field in &kernel.fields {
        let Field {
            name,
            doc,
            kind,
            scalar,
            default,
        } = field;
        writeln!(
            out,
            "            Field {{ name: {name:?}, doc: {doc:?}, kind: FieldKind::{kind:?}, scalar: Scalar::{scalar:?}, default: {default:?} }},"
        )?;
    }
    writeln!(out, "        ],")?;
    writeln!(out, "        push_words: {},", kernel.push_words)?;
    writeln!(
        out,
        "        ignored_push_bytes: {},",
        kernel.ignored_push_bytes
    )?;
    writeln!(out, "        buffers: &[")?;
    for buffer in &kernel.buffers {
        writeln!(
            out,
            "            Buffer {{ name: {:?}, dtype: {:?}, shape: {:?}, access: Access::{:?}, align: {},",
            buffer.name, buffer.dtype, buffer.shape, buffer.access, buffer.align
        )?;
        writeln!(out, "                bytes: {},", words.expr(&buffer.bytes))?;
        writeln!(
            out,
            "                start: {} }},",
            words.expr(&buffer.start)
        )?;
    }
    writeln!(out, "        ],")?;
    writeln!(out, "        may_alias: &{:?},", kernel.may_alias)?;
    writeln!(out, "        requires: &[")?;
    for ConditionText { text, condition } in &kernel.requires {
        writeln!(
            out,
            "            Condition {{ text: {text:?}, fields: &{:?}, holds: |w| Ok({}) }},",
            words.indices(condition.names().into_iter()),
            words.condition(condition)
        )?;
    }
    writeln!(out, "        ],")?;
    writeln!(out, "        overlap: {},", kernel.overlap)?;
    writeln!(out, "        early: &{:?},", kernel.early)?;
    writeln!(out, "        launch: &[")?;
    for rule in &kernel.launch {
        launch_rule(out, kernel, rule)?;
    }
    writeln!(out, "        ],")?;
    writeln!(out, "    }},")
}

fn launch_rule(out: &mut String, kernel: &Kernel, rule: &LaunchRule) -> std::fmt::Result {
    let words = Words {
        kernel,
        tile: &rule.tile,
        lets: &rule.lets,
    };
    let triple = |exprs: &[ExprText; 3]| exprs.each_ref().map(|e| words.value(&e.expr)).join(", ");
    let texts =
        |exprs: &[ExprText; 3]| exprs.each_ref().map(|e| format!("{:?}", e.text)).join(", ");
    writeln!(
        out,
        "            LaunchRule {{ min_arch: {}, specific: {}, tile: &{:?},",
        rule.min_arch, rule.specific, rule.tile
    )?;
    writeln!(
        out,
        "                lets: &{:?}, grid: [{}], block: [{}], cluster: {:?}, shared: {:?},",
        Vec::from_iter(
            rule.lets
                .iter()
                .map(|(name, value)| (name.as_str(), value.text.as_str()))
        ),
        texts(&rule.grid),
        texts(&rule.block),
        rule.cluster.text,
        rule.shared.text
    )?;
    writeln!(out, "                extents: |w, sm_count| {{")?;
    // Every rule takes both arguments, whether its expressions use them or not.
    writeln!(out, "                    let (_, _) = (w, sm_count);")?;
    let exprs = rule.grid.iter().chain(&rule.block);
    let exprs = exprs.chain([&rule.cluster, &rule.shared]);
    let used = Vec::from_iter(exprs.flat_map(|expr| expr.expr.names()));
    for (name, value) in &rule.lets {
        if used.contains(&name.as_str()) {
            let value = words.value(&value.expr);
            writeln!(out, "                    let let_{name} = {value};")?;
        }
    }
    writeln!(
        out,
        "                    Ok(Extents {{ grid: [{}], block: [{}], cluster: {}, shared_bytes: {} }})",
        triple(&rule.grid),
        triple(&rule.block),
        words.value(&rule.cluster.expr),
        words.value(&rule.shared.expr)
    )?;
    writeln!(out, "                }} }},")
}

/// Turns names into words of the push struct or constants.
struct Words<'a> {
    kernel: &'a Kernel,
    tile: &'a [(String, u32)],
    lets: &'a [(String, ExprText)],
}

impl Words<'_> {
    fn index(&self, name: &str) -> Option<usize> {
        self.kernel
            .fields
            .iter()
            .position(|field| field.name == name)
    }

    fn indices<'b>(&self, names: impl Iterator<Item = &'b str>) -> Vec<usize> {
        let mut indices = Vec::from_iter(names.filter_map(|name| self.index(name)));
        indices.sort_unstable();
        indices
    }

    fn expr(&self, expr: &ExprText) -> String {
        if expr.expr == Expr::Int(0) {
            return "Expr::ZERO".to_owned();
        }
        let parameter = if expr.expr.names().is_empty() {
            "_"
        } else {
            "w"
        };
        format!(
            "Expr {{ text: {:?}, fields: &{:?}, eval: |{parameter}| {} }}",
            expr.text,
            self.indices(expr.expr.names().into_iter()),
            self.result(&expr.expr)
        )
    }

    /// A Rust expression of type `Result<i64, EvalError>`.
    fn result(&self, expr: &Expr) -> String {
        self.fallible(expr)
            .unwrap_or_else(|| format!("Ok({})", self.value(expr)))
    }

    /// A Rust expression of type `i64`, which may leave the enclosing function with `?`.
    fn value(&self, expr: &Expr) -> String {
        if let Some(call) = self.fallible(expr) {
            return call + "?";
        }
        match expr {
            Expr::Int(value) => value.to_string(),
            Expr::Name(name) if self.lets.iter().any(|(own, _)| own == name) => {
                format!("let_{name}")
            }
            Expr::Name(name) => match self.tile.iter().find(|(constant, _)| constant == name) {
                Some((_, value)) => value.to_string(),
                None => format!("i64::from({SM_COUNT})"),
            },
            Expr::Apply(op, a, b) => {
                let function = if *op == Op::Max { "max" } else { "min" };
                format!("Ord::{function}({}, {})", self.value(a), self.value(b))
            }
            Expr::Choice(condition, a, b) => format!(
                "if {} {{ {} }} else {{ {} }}",
                self.condition(condition),
                self.value(a),
                self.value(b)
            ),
        }
    }

    /// A Rust expression of type `bool`, which may leave the enclosing function with `?`.
    fn condition(&self, condition: &Condition) -> String {
        let side = |expr: &Expr| match expr {
            Expr::Choice(..) => format!("({})", self.value(expr)),
            _ => self.value(expr),
        };
        let (left, right) = (side(&condition.left), side(&condition.right));
        format!("{left} {} {right}", condition.relation.symbol())
    }

    /// The call that gives the expression's value, if that can fail.
    fn fallible(&self, expr: &Expr) -> Option<String> {
        match expr {
            Expr::Int(_) | Expr::Choice(..) => None,
            Expr::Name(name) => self.index(name).map(|index| format!("word(w, {index})")),
            Expr::Apply(op, a, b) => {
                let function = match op {
                    Op::Add => "add",
                    Op::Sub => "sub",
                    Op::Mul => "mul",
                    Op::Div => "div",
                    Op::Rem => "rem",
                    Op::CeilDiv => "ceil_div",
                    Op::Max | Op::Min => return None,
                };
                Some(format!("{function}({}, {})", self.value(a), self.value(b)))
            }
        }
    }
}

/// The same text on every host.
fn unix_path(path: &std::path::Path) -> String {
    path.to_string_lossy().replace('\\', "/")
}
