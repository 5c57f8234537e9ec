//! What was measured, as a table, JSON, CSV and a page.

use std::fmt::Write as _;

use serde::Serialize;

use super::check::Verdict;
use super::host::HostReport;
use super::measure::Timing;
use super::page;
use super::shape::Row;
use crate::cli::Bench;
use crate::commands::export::write_whole;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Align, Table};
use crate::target::DeviceInfo;

/// Everything that was measured.
#[derive(Serialize)]
pub struct Report {
    tool: &'static str,
    version: &'static str,
    compiler: String,
    source_hash: String,
    pub device: DeviceInfo,
    /// Times are those of the emulator and say nothing about a GPU.
    pub emulator: bool,
    /// The driver's copy on the device, bytes read and written.
    pub copy_gb_s: Option<f64>,
    /// Nominal rate of the device's tensor cores on f16, 10^12 operations per second.
    pub peak_tops: Option<f64>,
    pub rows: Vec<RowReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostReport>,
    failed: usize,
}

/// One measured row.
#[derive(Serialize)]
pub struct RowReport {
    pub family: &'static str,
    pub kernel: &'static str,
    pub shape: String,
    /// `cold`: buffers that the cache cannot hold; `warm`: the same buffers every time.
    pub regime: &'static str,
    /// Bytes that must move.
    pub bytes: u64,
    /// Additions and multiplications of the formula.
    pub operations: u64,
    #[serde(flatten)]
    pub timing: Option<Timing>,
    pub gb_s: Option<f64>,
    /// 10^12 operations per second.
    pub tops: Option<f64>,
    pub percent_of_copy: Option<f64>,
    pub check: Verdict,
}

impl RowReport {
    pub fn new(row: &Row, timing: Option<Timing>, check: Verdict, copy: Option<f64>) -> Self {
        let bytes = row.moved();
        let operations = row.shape.operations;
        let gb_s = timing.map(|timing| bytes as f64 / timing.us / 1e3);
        Self {
            family: row.kernel.family,
            kernel: row.kernel.name,
            shape: row.shape.label.clone(),
            regime: row.shape.regime.name(),
            bytes,
            operations,
            timing,
            gb_s,
            tops: timing.map(|timing| operations as f64 / timing.us / 1e6),
            percent_of_copy: gb_s.zip(copy).map(|(rate, copy)| 100.0 * rate / copy),
            check,
        }
    }

    /// Whether arithmetic and not memory decides the row's time on any GPU with tensor cores.
    pub fn is_product(&self) -> bool {
        self.operations > 100 * self.bytes
    }
}

impl Report {
    pub fn new(context: &Context, device: DeviceInfo) -> Self {
        Self {
            tool: "zinc-cubin",
            version: env!("CARGO_PKG_VERSION"),
            compiler: context.archive.metadata().compiler.clone(),
            source_hash: context.archive.metadata().source_hash.to_string(),
            emulator: !device.is_gpu(),
            device,
            copy_gb_s: None,
            peak_tops: None,
            rows: Vec::new(),
            host: None,
            failed: 0,
        }
    }

    /// Writes the files that were asked for and the report itself; a wrong result is a failure.
    pub fn finish(mut self, context: &Context, arguments: &Bench) -> Outcome {
        let wrong = self.rows.iter().filter(|row| !row.check.ok).count();
        self.failed = wrong;
        if let Some(path) = &arguments.report {
            let mut text = serde_json::to_vec_pretty(&self)?;
            text.push(b'\n');
            write_file(path, &text)?;
        }
        if let Some(path) = &arguments.csv {
            write_file(path, self.csv().as_bytes())?;
        }
        if let Some(path) = &arguments.html {
            write_file(path, page::page(&self).as_bytes())?;
        }
        if context.json {
            output::json(&self)?;
        } else {
            output::text(&self.human(context.colour))?;
        }
        match wrong {
            0 => Ok(()),
            _ => Err(Failure::check(format!(
                "{wrong} of {} rows failed",
                self.rows.len()
            ))),
        }
    }

    /// The families that have rows, in the order of the rows.
    pub fn families(&self) -> Vec<&'static str> {
        let mut families: Vec<&'static str> = self.rows.iter().map(|row| row.family).collect();
        families.sort_unstable();
        families.dedup();
        families
    }

    fn human(&self, colour: bool) -> String {
        let mut text = String::new();
        for family in self.families() {
            let _ = writeln!(text, "{family}");
            let mut table = Table::new(
                colour,
                &[
                    ("kernel", Align::Left),
                    ("shape", Align::Left),
                    ("data", Align::Left),
                    ("us", Align::Right),
                    ("spread", Align::Right),
                    ("GB/s", Align::Right),
                    ("of copy", Align::Right),
                    ("TFLOP/s", Align::Right),
                    ("error/tolerance", Align::Right),
                    ("checked", Align::Left),
                ],
            );
            for row in self.rows.iter().filter(|row| row.family == family) {
                let number = |value: Option<f64>, digits: usize| {
                    value.map_or_else(String::new, |value| format!("{value:.digits$}"))
                };
                let spread = row
                    .timing
                    .map(|timing| 100.0 * (timing.us_high - timing.us_low) / timing.us);
                let percent = |value: Option<f64>| {
                    value.map_or_else(String::new, |value| format!("{value:.0} %"))
                };
                let cells = [
                    row.kernel.to_owned(),
                    row.shape.clone(),
                    row.regime.to_owned(),
                    number(row.timing.map(|timing| timing.us), 2),
                    percent(spread),
                    number(row.gb_s, 0),
                    percent(row.percent_of_copy),
                    number(row.tops, 1),
                    output::ratio(row.check.error_over_tolerance),
                    match row.check.ok {
                        true => row.check.checked.clone(),
                        false => "WRONG".to_owned(),
                    },
                ];
                match row.check.ok {
                    true => table.row(cells),
                    false => table.bad_row(cells),
                }
            }
            let _ = writeln!(text, "{table}");
        }
        for row in self.rows.iter().filter(|row| !row.check.ok) {
            let error = row.check.error.as_deref().unwrap_or("wrong");
            let _ = writeln!(
                text,
                "{} [{}, {}]: {error}",
                row.kernel, row.shape, row.regime
            );
        }
        if let Some(host) = &self.host {
            let _ = writeln!(text, "{}", host.human(colour));
        }
        if let Some(copy) = self.copy_gb_s {
            let _ = writeln!(
                text,
                "copy on the device {copy:.0} GB/s, bytes read and written"
            );
        }
        let marked = if self.emulator {
            ", times of the emulator"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "{} rows, {} wrong, on {}{marked}",
            self.rows.len(),
            self.failed,
            self.device
        );
        text
    }

    fn csv(&self) -> String {
        let mut text = "family,kernel,shape,data,us,us_low,us_high,bytes,operations,gb_s,percent_of_copy,tops,ok,\
             error_over_tolerance,checked,device\n"
            .to_owned();
        for row in &self.rows {
            let number = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.4}"));
            let cells = [
                row.family.to_owned(),
                row.kernel.to_owned(),
                row.shape.clone(),
                row.regime.to_owned(),
                number(row.timing.map(|timing| timing.us)),
                number(row.timing.map(|timing| timing.us_low)),
                number(row.timing.map(|timing| timing.us_high)),
                row.bytes.to_string(),
                row.operations.to_string(),
                number(row.gb_s),
                number(row.percent_of_copy),
                number(row.tops),
                row.check.ok.to_string(),
                format!("{:.6}", row.check.error_over_tolerance),
                row.check.checked.clone(),
                self.device.name.clone(),
            ];
            let quoted = cells.map(|cell| match cell.contains([',', '"']) {
                true => format!("\"{}\"", cell.replace('"', "\"\"")),
                false => cell,
            });
            let _ = writeln!(text, "{}", quoted.join(","));
        }
        text
    }
}

fn write_file(path: &std::path::Path, bytes: &[u8]) -> Outcome {
    write_whole(path, bytes)
        .map_err(|error| Failure::input(format!("can't write {}: {error}", path.display())))
}
