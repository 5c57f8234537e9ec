//! Compares results with the reference: all of them, or those of the parts that a row names.

use anyhow::Context;
use serde::Serialize;

use super::data::Content;
use super::shape::{Checked, Part, Row};

/// What a check came to.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// Whether every compared value was within its tolerance.
    pub ok: bool,
    /// Which results were compared.
    pub checked: String,
    /// Values that were compared.
    pub values: u64,
    /// The largest quotient of error and tolerance.
    pub error_over_tolerance: f64,
    /// What was wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Verdict {
    /// Nothing could be compared.
    pub fn failed(error: String) -> Self {
        Self {
            ok: false,
            checked: "nothing".to_owned(),
            values: 0,
            error_over_tolerance: 0.0,
            error: Some(error),
        }
    }
}

/// Judges the final contents of a row's buffers; those that are only read may be left out.
pub fn check(row: &Row, initial: &[Content], outputs: &[Option<Vec<u8>>]) -> Verdict {
    let whole = Part {
        fields: Vec::new(),
        views: Vec::new(),
    };
    let (text, parts) = match &row.shape.checked {
        Checked::All => ("all".to_owned(), std::slice::from_ref(&whole)),
        Checked::Parts(text, parts) => (text.clone(), parts.as_slice()),
    };
    let mut verdict = Verdict {
        ok: true,
        checked: text,
        values: 0,
        error_over_tolerance: 0.0,
        error: None,
    };
    for part in parts {
        match check_part(row, part, initial, outputs) {
            Ok(report) => {
                // JSON has no infinity.
                let ratio = report.max_err_over_tol().min(f64::MAX);
                verdict.error_over_tolerance = verdict.error_over_tolerance.max(ratio);
                verdict.values += report.buffers.iter().map(|b| b.compared).sum::<u64>();
                if !report.ok() {
                    verdict.ok = false;
                    verdict.error.get_or_insert(report.to_string());
                }
            }
            Err(error) => {
                verdict.ok = false;
                verdict.error.get_or_insert(format!("{error:#}"));
            }
        }
    }
    verdict
}

fn check_part(
    row: &Row,
    part: &Part,
    initial: &[Content],
    outputs: &[Option<Vec<u8>>],
) -> anyhow::Result<zinc_oracle::Report> {
    let (words, views) = row.part(part)?;
    let before: Vec<Vec<u8>> = initial
        .iter()
        .zip(&views)
        .map(|(content, view)| content.view(view))
        .collect();
    let expected =
        zinc_oracle::expect(row.kernel, &words, &before).context("the reference failed")?;
    let after: Vec<Vec<u8>> = outputs
        .iter()
        .zip(&views)
        .zip(&before)
        .map(|((output, view), before)| match output {
            Some(bytes) => view
                .iter()
                .flat_map(|range| &bytes[range.start as usize..range.end as usize])
                .copied()
                .collect(),
            None => before.clone(),
        })
        .collect();
    Ok(zinc_oracle::compare(
        row.kernel,
        &row.shape.label,
        &before,
        &expected,
        &after,
    ))
}
