//! The expression language of the catalog: integer expressions over the words of a push struct.
//!
//! ```text
//! condition  = sum ("==" | "!=" | "<" | "<=" | ">" | ">=") sum
//! expression = sum | condition "?" expression ":" expression
//! sum        = term (("+" | "-") term)*
//! term       = factor (("*" | "/" | "%") factor)*
//! factor     = integer | name | function "(" expression ("," expression)+ ")" | "(" expression ")"
//! function   = "ceil_div" | "max" | "min"
//! ```
//!
//! Everything is evaluated in checked `i64`. `/` is exact: a remainder is an error and never lost. The divisor of
//! `/`, `%` and `ceil_div` must be positive; `%` and `ceil_div` round as in mathematics also for a negative left side. Of
//! the two sides of a choice only the chosen one is evaluated.

use std::collections::BTreeSet;
use std::fmt;

/// Deepest nesting of parentheses and calls that is accepted, so that no input can exhaust the stack.
const MAX_DEPTH: usize = 32;

/// Longest text that is accepted, for the same reason.
const MAX_LENGTH: usize = 1000;

/// A parsed integer expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    /// An integer literal.
    Int(i64),
    /// A field, tile constant or `sm_count`.
    Name(String),
    /// An operator or function applied to two operands.
    Apply(Op, Box<Expr>, Box<Expr>),
    /// `condition ? first : second`
    Choice(Box<Condition>, Box<Expr>, Box<Expr>),
}

/// The operators and functions, all of two operands. `max` and `min` of more are folded from the left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`, without remainder
    Div,
    /// `a % b`, never negative
    Rem,
    /// `ceil_div(a, b)`
    CeilDiv,
    /// `max(a, b)`
    Max,
    /// `min(a, b)`
    Min,
}

/// A comparison of two expressions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Left side.
    pub left: Expr,
    /// How the sides must relate.
    pub relation: Relation,
    /// Right side.
    pub right: Expr,
}

/// The comparison operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

/// What is wrong with the text of an expression, and at which byte of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} at column {}", offset + 1)]
pub struct SyntaxError {
    /// What was expected or found.
    pub message: String,
    /// Byte offset inside the expression.
    pub offset: usize,
}

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// A result does not fit in 64 bits.
    #[error("the value does not fit in 64 bits")]
    Overflow,
    /// `/` left a remainder.
    #[error("{dividend} / {divisor} leaves a remainder")]
    Inexact {
        /// Left side.
        dividend: i64,
        /// Right side.
        divisor: i64,
    },
    /// The divisor of `/`, `%` or `ceil_div` is zero or negative.
    #[error("division by {divisor}")]
    Divisor {
        /// Right side.
        divisor: i64,
    },
    /// A name without a value.
    #[error("`{name}` has no value")]
    Unknown {
        /// The name.
        name: String,
    },
}

impl Expr {
    /// Parses an integer expression.
    pub fn parse(text: &str) -> Result<Expr, SyntaxError> {
        let mut parser = Parser::new(text)?;
        let expr = parser.expression(0)?;
        parser.end()?;
        Ok(expr)
    }

    /// All names in the expression.
    pub fn names(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        self.collect_names(&mut names);
        names
    }

    fn collect_names<'a>(&'a self, names: &mut BTreeSet<&'a str>) {
        match self {
            Expr::Int(_) => {}
            Expr::Name(name) => {
                names.insert(name);
            }
            Expr::Apply(_, a, b) => {
                a.collect_names(names);
                b.collect_names(names);
            }
            Expr::Choice(condition, a, b) => {
                for side in [&condition.left, &condition.right, a, b] {
                    side.collect_names(names);
                }
            }
        }
    }

    /// The expression with `value` in the place of every `name`.
    pub fn with(&self, name: &str, value: &Expr) -> Expr {
        let inner = |side: &Expr| Box::new(side.with(name, value));
        match self {
            Expr::Name(own) if own == name => value.clone(),
            Expr::Int(_) | Expr::Name(_) => self.clone(),
            Expr::Apply(op, a, b) => Expr::Apply(*op, inner(a), inner(b)),
            Expr::Choice(condition, a, b) => {
                let condition = Condition {
                    left: condition.left.with(name, value),
                    relation: condition.relation,
                    right: condition.right.with(name, value),
                };
                Expr::Choice(Box::new(condition), inner(a), inner(b))
            }
        }
    }

    /// Evaluates the expression with the values that `value_of` gives to its names.
    pub fn eval(&self, value_of: &dyn Fn(&str) -> Option<i64>) -> Result<i64, EvalError> {
        match self {
            Expr::Int(value) => Ok(*value),
            Expr::Name(name) => {
                value_of(name).ok_or_else(|| EvalError::Unknown { name: name.clone() })
            }
            Expr::Apply(op, a, b) => op.apply(a.eval(value_of)?, b.eval(value_of)?),
            Expr::Choice(condition, a, b) => match condition.eval(value_of)? {
                true => a.eval(value_of),
                false => b.eval(value_of),
            },
        }
    }
}

impl Op {
    /// Applies the operator to two values.
    pub fn apply(self, a: i64, b: i64) -> Result<i64, EvalError> {
        let positive = |divisor| {
            if divisor > 0 {
                Ok(divisor)
            } else {
                Err(EvalError::Divisor { divisor })
            }
        };
        let value = match self {
            Op::Add => a.checked_add(b),
            Op::Sub => a.checked_sub(b),
            Op::Mul => a.checked_mul(b),
            Op::Div => {
                if a % positive(b)? != 0 {
                    return Err(EvalError::Inexact {
                        dividend: a,
                        divisor: b,
                    });
                }
                Some(a / b)
            }
            Op::Rem => Some(a.rem_euclid(positive(b)?)),
            Op::CeilDiv => {
                let quotient = a.div_euclid(positive(b)?);
                Some(quotient + i64::from(a.rem_euclid(b) != 0))
            }
            Op::Max => Some(a.max(b)),
            Op::Min => Some(a.min(b)),
        };
        value.ok_or(EvalError::Overflow)
    }

    fn precedence(self) -> u8 {
        match self {
            Op::Add | Op::Sub => 1,
            Op::Mul | Op::Div | Op::Rem => 2,
            Op::CeilDiv | Op::Max | Op::Min => 3,
        }
    }

    fn symbol(self) -> &'static str {
        match self {
            Op::Add => "+",
            Op::Sub => "-",
            Op::Mul => "*",
            Op::Div => "/",
            Op::Rem => "%",
            Op::CeilDiv => "ceil_div",
            Op::Max => "max",
            Op::Min => "min",
        }
    }
}

impl fmt::Display for Expr {
    /// Writes the expression with as few parentheses as its meaning allows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Int(value) => write!(f, "{value}"),
            Expr::Name(name) => f.write_str(name),
            Expr::Apply(op @ (Op::CeilDiv | Op::Max | Op::Min), a, b) => {
                write!(f, "{}({a}, {b})", op.symbol())
            }
            Expr::Apply(op, a, b) => {
                let operand = |f: &mut fmt::Formatter<'_>, side: &Expr, least: u8| match side {
                    Expr::Apply(inner, ..) if inner.precedence() < least => write!(f, "({side})"),
                    Expr::Choice(..) => write!(f, "({side})"),
                    _ => write!(f, "{side}"),
                };
                operand(f, a, op.precedence())?;
                write!(f, " {} ", op.symbol())?;
                operand(f, b, op.precedence() + 1)
            }
            Expr::Choice(condition, a, b) => write!(f, "{condition} ? {a} : {b}"),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |f: &mut fmt::Formatter<'_>, side: &Expr| match side {
            Expr::Choice(..) => write!(f, "({side})"),
            _ => write!(f, "{side}"),
        };
        side(f, &self.left)?;
        write!(f, " {} ", self.relation.symbol())?;
        side(f, &self.right)
    }
}

impl Condition {
    /// Parses a condition.
    pub fn parse(text: &str) -> Result<Condition, SyntaxError> {
        let mut parser = Parser::new(text)?;
        let left = parser.sum(0)?;
        let relation = parser.relation()?;
        let right = parser.sum(0)?;
        parser.end()?;
        Ok(Condition {
            left,
            relation,
            right,
        })
    }

    /// All names in the condition.
    pub fn names(&self) -> BTreeSet<&str> {
        let mut names = self.left.names();
        names.extend(self.right.names());
        names
    }

    /// Whether the condition holds with the values that `value_of` gives to its names.
    pub fn eval(&self, value_of: &dyn Fn(&str) -> Option<i64>) -> Result<bool, EvalError> {
        let left = self.left.eval(value_of)?;
        let right = self.right.eval(value_of)?;
        Ok(match self.relation {
            Relation::Eq => left == right,
            Relation::Ne => left != right,
            Relation::Lt => left < right,
            Relation::Le => left <= right,
            Relation::Gt => left > right,
            Relation::Ge => left >= right,
        })
    }
}

impl Relation {
    /// The operator as text, the same in the catalog, Rust and C.
    pub fn symbol(self) -> &'static str {
        match self {
            Relation::Eq => "==",
            Relation::Ne => "!=",
            Relation::Lt => "<",
            Relation::Le => "<=",
            Relation::Gt => ">",
            Relation::Ge => ">=",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Int(i64),
    Name(String),
    Symbol(&'static str),
}

/// Longer symbols first, so that `<=` is not read as `<`.
const SYMBOLS: [&str; 16] = [
    "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "(", ")", ",", "?", ":",
];

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(Token, usize)>,
    next: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Parser<'a>, SyntaxError> {
        if text.len() > MAX_LENGTH {
            return Err(SyntaxError {
                message: format!("longer than {MAX_LENGTH} bytes"),
                offset: MAX_LENGTH,
            });
        }
        let mut tokens = Vec::new();
        let mut offset = 0;
        while let Some(first) = text[offset..].chars().next() {
            let rest = &text[offset..];
            let length;
            if first.is_whitespace() {
                offset += first.len_utf8();
                continue;
            } else if first.is_ascii_digit() {
                length = rest
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .unwrap_or(rest.len());
                let value = rest[..length].parse().map_err(|_| SyntaxError {
                    message: format!("`{}` is not a decimal integer below 2^63", &rest[..length]),
                    offset,
                })?;
                tokens.push((Token::Int(value), offset));
            } else if first.is_ascii_alphabetic() || first == '_' {
                length = rest
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .unwrap_or(rest.len());
                tokens.push((Token::Name(rest[..length].to_owned()), offset));
            } else if let Some(symbol) = SYMBOLS.iter().find(|s| rest.starts_with(**s)) {
                length = symbol.len();
                tokens.push((Token::Symbol(symbol), offset));
            } else {
                return Err(SyntaxError {
                    message: format!("unexpected `{first}`"),
                    offset,
                });
            }
            offset += length;
        }
        Ok(Parser {
            text,
            tokens,
            next: 0,
        })
    }

    fn offset(&self) -> usize {
        self.tokens
            .get(self.next)
            .map_or(self.text.len(), |(_, offset)| *offset)
    }

    fn unexpected(&self, wanted: &str) -> SyntaxError {
        let found = match self.tokens.get(self.next) {
            None => "the end".to_owned(),
            Some((Token::Int(value), _)) => format!("`{value}`"),
            Some((Token::Name(name), _)) => format!("`{name}`"),
            Some((Token::Symbol(symbol), _)) => format!("`{symbol}`"),
        };
        SyntaxError {
            message: format!("expected {wanted}, found {found}"),
            offset: self.offset(),
        }
    }

    fn accept(&mut self, symbols: &[(&str, Op)]) -> Option<Op> {
        let Some((Token::Symbol(found), _)) = self.tokens.get(self.next) else {
            return None;
        };
        let (_, op) = symbols.iter().find(|(symbol, _)| symbol == found)?;
        self.next += 1;
        Some(*op)
    }

    fn expect(&mut self, symbol: &'static str) -> Result<(), SyntaxError> {
        match self.tokens.get(self.next) {
            Some((Token::Symbol(found), _)) if *found == symbol => {
                self.next += 1;
                Ok(())
            }
            _ => Err(self.unexpected(&format!("`{symbol}`"))),
        }
    }

    fn end(&self) -> Result<(), SyntaxError> {
        if self.next == self.tokens.len() {
            Ok(())
        } else {
            Err(self.unexpected("an operator or the end"))
        }
    }

    fn relation(&mut self) -> Result<Relation, SyntaxError> {
        let relation = match self.tokens.get(self.next) {
            Some((Token::Symbol("=="), _)) => Relation::Eq,
            Some((Token::Symbol("!="), _)) => Relation::Ne,
            Some((Token::Symbol("<"), _)) => Relation::Lt,
            Some((Token::Symbol("<="), _)) => Relation::Le,
            Some((Token::Symbol(">"), _)) => Relation::Gt,
            Some((Token::Symbol(">="), _)) => Relation::Ge,
            _ => return Err(self.unexpected("a comparison (== != < <= > >=)")),
        };
        self.next += 1;
        Ok(relation)
    }

    fn expression(&mut self, depth: usize) -> Result<Expr, SyntaxError> {
        let left = self.sum(depth)?;
        const RELATIONS: &[&str] = &["==", "!=", "<", "<=", ">", ">="];
        match self.tokens.get(self.next) {
            Some((Token::Symbol(symbol), _)) if RELATIONS.contains(symbol) => {}
            _ => return Ok(left),
        }
        self.deeper(depth)?;
        let relation = self.relation()?;
        let right = self.sum(depth)?;
        self.expect("?")?;
        let chosen = self.expression(depth + 1)?;
        self.expect(":")?;
        let otherwise = self.expression(depth + 1)?;
        let condition = Condition {
            left,
            relation,
            right,
        };
        Ok(Expr::Choice(
            Box::new(condition),
            Box::new(chosen),
            Box::new(otherwise),
        ))
    }

    /// An error where nothing may be nested any deeper.
    fn deeper(&self, depth: usize) -> Result<(), SyntaxError> {
        if depth < MAX_DEPTH {
            return Ok(());
        }
        Err(SyntaxError {
            message: format!("nested deeper than {MAX_DEPTH}"),
            offset: self.offset(),
        })
    }

    fn sum(&mut self, depth: usize) -> Result<Expr, SyntaxError> {
        let mut left = self.term(depth)?;
        while let Some(op) = self.accept(&[("+", Op::Add), ("-", Op::Sub)]) {
            left = Expr::Apply(op, Box::new(left), Box::new(self.term(depth)?));
        }
        Ok(left)
    }

    fn term(&mut self, depth: usize) -> Result<Expr, SyntaxError> {
        let mut left = self.factor(depth)?;
        while let Some(op) = self.accept(&[("*", Op::Mul), ("/", Op::Div), ("%", Op::Rem)]) {
            left = Expr::Apply(op, Box::new(left), Box::new(self.factor(depth)?));
        }
        Ok(left)
    }

    fn factor(&mut self, depth: usize) -> Result<Expr, SyntaxError> {
        self.deeper(depth)?;
        match self.tokens.get(self.next).cloned() {
            Some((Token::Int(value), _)) => {
                self.next += 1;
                Ok(Expr::Int(value))
            }
            Some((Token::Name(name), offset)) => {
                self.next += 1;
                match self.tokens.get(self.next) {
                    Some((Token::Symbol("("), _)) => self.call(&name, offset, depth),
                    _ => Ok(Expr::Name(name)),
                }
            }
            Some((Token::Symbol("("), _)) => {
                self.next += 1;
                let inner = self.expression(depth + 1)?;
                self.expect(")")?;
                Ok(inner)
            }
            _ => Err(self.unexpected("an integer, a name or `(`")),
        }
    }

    fn call(&mut self, name: &str, offset: usize, depth: usize) -> Result<Expr, SyntaxError> {
        let (op, most) = match name {
            "ceil_div" => (Op::CeilDiv, 2),
            "max" => (Op::Max, usize::MAX),
            "min" => (Op::Min, usize::MAX),
            _ => {
                return Err(SyntaxError {
                    message: format!("`{name}` is not a function (ceil_div, max, min)"),
                    offset,
                });
            }
        };
        self.expect("(")?;
        let mut result = self.expression(depth + 1)?;
        let mut operands = 1;
        while operands < 2
            || (operands < most
                && self.tokens.get(self.next).map(|t| &t.0) == Some(&Token::Symbol(",")))
        {
            self.expect(",")?;
            result = Expr::Apply(op, Box::new(result), Box::new(self.expression(depth + 1)?));
            operands += 1;
        }
        self.expect(")")?;
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(text: &str) -> Result<i64, EvalError> {
        let values = |name: &str| match name {
            "m" => Some(5),
            "k" => Some(512),
            "big" => Some(i64::from(u32::MAX)),
            _ => None,
        };
        Expr::parse(text)
            .expect("the test's expression is well formed")
            .eval(&values)
    }

    #[test]
    fn products_bind_tighter_than_sums_and_operators_of_one_rank_group_from_the_left() {
        assert_eq!(value("2 + 3 * 4"), Ok(14));
        assert_eq!(value("(2 + 3) * 4"), Ok(20));
        assert_eq!(value("10 - 3 - 2"), Ok(5));
        assert_eq!(value("64 / 4 / 2"), Ok(8));
        assert_eq!(value("7 % 4 * 3"), Ok(9));
        assert_eq!(value("k / 256 * 144 + m"), Ok(293));
    }

    #[test]
    fn functions_follow_their_mathematical_definition() {
        assert_eq!(value("ceil_div(m, 2)"), Ok(3));
        assert_eq!(value("ceil_div(0, 8)"), Ok(0));
        assert_eq!(value("ceil_div(m - 8, 2)"), Ok(-1));
        assert_eq!(value("(0 - 7) % 4"), Ok(1));
        assert_eq!(value("max(1, min(m, 3), 2)"), Ok(3));
    }

    #[test]
    fn choice_binds_weakest_groups_from_the_right_and_evaluates_one_side() {
        assert_eq!(value("m < 6 ? 1 : 2"), Ok(1));
        assert_eq!(value("m + 1 < 6 ? 1 : 2 + 3"), Ok(5));
        assert_eq!(value("m == 4 ? 1 : m == 5 ? 2 : 3"), Ok(2));
        assert_eq!(value("8 * (m >= 5 ? 1 : 2)"), Ok(8));
        assert_eq!(value("max(m != 5 ? 1 : 2, 0)"), Ok(2));
        assert_eq!(value("m % 2 == 0 ? m / 2 : 0"), Ok(0));
    }

    #[test]
    fn name_is_replaced_everywhere() {
        let text = "a * (a < b ? a + 1 : max(a, b))";
        let with = |text: &str| Expr::parse(text).expect("the test's expression is well formed");
        assert_eq!(
            with(text).with("a", &with("c - 1")),
            with("(c - 1) * (c - 1 < b ? c - 1 + 1 : max(c - 1, b))")
        );
    }

    #[test]
    fn lost_remainders_bad_divisors_and_overflow_are_errors() {
        assert_eq!(
            value("m / 2"),
            Err(EvalError::Inexact {
                dividend: 5,
                divisor: 2
            })
        );
        assert_eq!(value("m / (5 - m)"), Err(EvalError::Divisor { divisor: 0 }));
        assert_eq!(
            value("m % (0 - m)"),
            Err(EvalError::Divisor { divisor: -5 })
        );
        assert_eq!(
            value("ceil_div(m, 0)"),
            Err(EvalError::Divisor { divisor: 0 })
        );
        assert_eq!(value("big * big * 2"), Err(EvalError::Overflow));
        assert_eq!(value("9223372036854775807 + 1"), Err(EvalError::Overflow));
        assert_eq!(
            value("n"),
            Err(EvalError::Unknown {
                name: "n".to_owned()
            })
        );
    }

    #[test]
    fn syntax_errors_name_the_column() {
        for (text, column, part) in [
            ("m +", 4, "the end"),
            ("m k", 3, "`k`"),
            ("(m", 3, "expected `)`"),
            ("m $ k", 3, "unexpected `$`"),
            ("abs(m, k)", 1, "not a function"),
            ("ceil_div(m)", 11, "expected `,`"),
            ("ceil_div(m, k, 2)", 14, "expected `)`"),
            ("m < 3", 6, "expected `?`"),
            ("m < 3 ? 1", 10, "expected `:`"),
            ("m < 3 < 4 ? 1 : 2", 7, "expected `?`"),
            ("0x10", 1, "decimal"),
            ("99999999999999999999", 1, "2^63"),
        ] {
            let error = Expr::parse(text).expect_err(text);
            assert_eq!(error.offset + 1, column, "{text}: {error}");
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
        assert!(Condition::parse("m").is_err());
        assert!(Condition::parse("1 < m < 3").is_err());
        assert!(Expr::parse(&"1 < 2 ? 3 : ".repeat(80)).is_err());
        assert!(Expr::parse(&"(".repeat(10_000)).is_err());
    }

    #[test]
    fn conditions_compare_both_sides() {
        let holds = |text: &str| {
            Condition::parse(text)
                .expect("the test's condition is well formed")
                .eval(&|_| Some(256))
                .expect("the condition has a value")
        };
        assert!(holds("k % 256 == 0") && holds("k >= 256") && holds("k <= 256") && holds("k != 1"));
        assert!(!holds("k < 256") && !holds("k > 256"));
    }

    fn any_expr() -> impl Strategy<Value = Expr> {
        let leaf = prop_oneof![
            (0..=i64::from(u32::MAX)).prop_map(Expr::Int),
            "[a-c]".prop_map(Expr::Name),
        ];
        let op = prop_oneof![
            Just(Op::Add),
            Just(Op::Sub),
            Just(Op::Mul),
            Just(Op::Div),
            Just(Op::Rem),
            Just(Op::CeilDiv),
            Just(Op::Max),
            Just(Op::Min),
        ];
        let relation = prop_oneof![
            Just(Relation::Eq),
            Just(Relation::Ne),
            Just(Relation::Lt),
            Just(Relation::Le),
            Just(Relation::Gt),
            Just(Relation::Ge),
        ];
        leaf.prop_recursive(5, 40, 4, move |inner| {
            let side = || inner.clone();
            prop_oneof![
                3 => (op.clone(), side(), side())
                    .prop_map(|(op, a, b)| Expr::Apply(op, Box::new(a), Box::new(b))),
                1 => (side(), relation.clone(), side(), side(), side()).prop_map(
                    |(left, relation, right, a, b)| {
                        let condition = Condition { left, relation, right };
                        Expr::Choice(Box::new(condition), Box::new(a), Box::new(b))
                    }
                ),
            ]
        })
    }

    proptest! {
        #[test]
        fn display_and_parse_are_inverse(expr in any_expr()) {
            prop_assert_eq!(Expr::parse(&expr.to_string()), Ok(expr));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,60}") {
            let _ = Expr::parse(&text);
            let _ = Condition::parse(&text);
        }
    }
}
