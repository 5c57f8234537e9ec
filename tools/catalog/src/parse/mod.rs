//! Parses one contract file or one launch file and checks everything that can be judged from it alone. What both
//! share is here: where a mistake is, and how names and expressions are read.

mod contract;
mod launch;

pub use contract::contract_file;
pub use launch::launch_file;

use crate::error::{CatalogError, Problem};
use crate::expr::{Condition, Expr};
use crate::model::*;
use crate::names::is_identifier;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;

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
    kernel: Option<String>,
    errors: Vec<CatalogError>,
}

impl Report<'_> {
    fn line(&self, offset: usize) -> usize {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    fn push(&mut self, at: Range<usize>, problem: Problem) {
        let error = CatalogError {
            file: self.file.to_owned(),
            line: Some(self.line(at.start)),
            kernel: self.kernel.clone(),
            problem,
        };
        // What overrides inherit is read again for each of them.
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    /// Reports what the TOML parser found.
    fn toml(&mut self, error: &toml::de::Error) {
        let at = error.span().unwrap_or(0..0);
        self.push(at, Problem::Toml(error.message().replace('\n', ", ")));
    }

    fn too_many(&mut self, at: &Range<usize>, what: &'static str, found: i64, most: i64) {
        if found > most {
            self.push(at.clone(), Problem::TooMany { what, found, most });
        }
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
#[derive(Clone)]
struct Scope {
    names: BTreeMap<String, Scalar>,
    what: &'static str,
}
