//! Standard output: JSON objects, tables for people, and colour where it belongs.

use std::io::{IsTerminal, Write};

use serde::Serialize;

use crate::cli::ColorWhen;
use crate::failure::Outcome;

/// Whether standard output gets colour.
pub fn colour(when: ColorWhen) -> bool {
    match when {
        ColorWhen::Always => true,
        ColorWhen::Never => false,
        ColorWhen::Auto => {
            std::env::var_os("NO_COLOR").is_none() && std::io::stdout().is_terminal()
        }
    }
}

/// Writes text to standard output; a closed pipe (as in `zinc-cubin list | head`) ends the output quietly.
pub fn text(text: &str) -> Outcome {
    write_quietly(text.as_bytes())
}

/// Writes one JSON object and a line end.
pub fn json(value: &impl Serialize) -> Outcome {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    write_quietly(&bytes)
}

fn write_quietly(bytes: &[u8]) -> Outcome {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// A byte count for people, with a binary unit.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// An error as a multiple of its tolerance, for people. Values without a tolerance have none.
pub fn ratio(value: f64) -> String {
    if value >= 1e6 {
        "wrong".to_owned()
    } else {
        format!("{value:.3}")
    }
}

/// How a column lines up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table without lines: a bold header, columns two spaces apart.
#[derive(Debug)]
pub struct Table {
    table: comfy_table::Table,
    colour: bool,
}

impl Table {
    /// An empty table with these columns.
    pub fn new(colour: bool, columns: &[(&str, Align)]) -> Self {
        use comfy_table::{Attribute, Cell, CellAlignment};
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        if colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        table.set_header(columns.iter().map(|(name, _)| {
            let cell = Cell::new(name);
            if colour {
                cell.add_attribute(Attribute::Bold)
            } else {
                cell
            }
        }));
        for (column, (_, align)) in table.column_iter_mut().zip(columns) {
            column.set_padding((0, 2));
            column.set_cell_alignment(match align {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            });
        }
        Self { table, colour }
    }

    /// Adds a row of plain cells.
    pub fn row<S: ToString>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.table.add_row(cells);
    }

    /// Adds a row that stands out because something in it is wrong.
    pub fn bad_row<S: ToString>(&mut self, cells: impl IntoIterator<Item = S>) {
        let colour = self.colour;
        self.table.add_row(cells.into_iter().map(|text| {
            let cell = comfy_table::Cell::new(text);
            if colour {
                cell.fg(comfy_table::Color::Red)
            } else {
                cell
            }
        }));
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in self.table.lines() {
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align_numbers_right_and_end_without_blanks() {
        let mut table = Table::new(false, &[("name", Align::Left), ("bytes", Align::Right)]);
        table.row(["vadd", "7"]);
        table.row(["argmax", "1234"]);
        assert_eq!(
            table.to_string(),
            "name    bytes\nvadd        7\nargmax   1234\n"
        );
    }

    #[test]
    fn byte_counts_have_units() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(2048), "2.0 KiB");
        assert_eq!(bytes(5 << 30), "5.0 GiB");
    }
}
