//! The report as one page: a roofline plot and a bar chart per family, drawn as SVG, and nothing from elsewhere.

use std::fmt::Write as _;

use super::report::{Report, RowReport};

/// Size of the roofline plot, and the margins for its axes.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 44.0;
/// Size of the bar charts: where bars begin, how long the longest is, and the height of one.
const BARS: f64 = 430.0;
const BAR_LENGTH: f64 = 380.0;
const BAR: f64 = 18.0;
/// Hues of the families' dots, in degrees; neighbours are far apart.
const HUES: [u32; 13] = [210, 30, 130, 280, 0, 180, 60, 320, 240, 95, 15, 160, 345];

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #6a737d; --line: #d8dde3; --back: #ffffff; --bar: #2f6feb;
  --warm: #d9822b; --wrong: #d1242f; --light: 42%; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9aa4af; --line: #30363d; --back: #0d1117; --bar: #58a6ff; --warm: #e3a04f;
    --wrong: #ff7b72; --light: 64%; }
}
body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; font: 15px/1.45 system-ui, sans-serif; color: var(--ink);
  background: var(--back); }
h1 { font-size: 1.4rem; margin: 0 0 .2rem } h2 { font-size: 1.1rem; margin: 2rem 0 .4rem }
p { margin: .2rem 0; color: var(--soft) } p.wrong { color: var(--wrong); font-weight: 600 }
svg { width: 100%; height: auto; display: block; overflow: visible }
text { fill: var(--ink); font: 12px system-ui, sans-serif } text.soft { fill: var(--soft) }
.grid { stroke: var(--line); stroke-width: 1 } .roof { stroke: var(--ink); stroke-width: 2; fill: none }
.dot { stroke: var(--back); stroke-width: 1; fill-opacity: .85 } .dot:hover { stroke: var(--ink); stroke-width: 2 }
.bar { fill: var(--bar) } .bar.warm { fill: var(--warm) } .bar.wrong { fill: var(--wrong) }
.copy { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 4 3 }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1rem; color: var(--soft) }
.key i { display: inline-block; width: .7em; height: .7em; border-radius: 50%; margin-right: .35em }
table { border-collapse: collapse; margin: .4rem 0 } td, th { text-align: left; padding: .1rem 1rem .1rem 0 }
td.n { text-align: right; font-variant-numeric: tabular-nums }
";

/// The whole page.
pub fn page(report: &Report) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Kernels on {device}</title>\n<style>{STYLE}</style>\n<h1>Kernels on {device}</h1>\n",
        device = escape(&report.device.to_string()),
    );
    let wrong = report.rows.iter().filter(|row| !row.check.ok).count();
    let _ = writeln!(
        out,
        "<p>{} rows, each compared with the reference after timing. Medians of graph replays{}.</p>",
        report.rows.len(),
        report.copy_gb_s.map_or_else(String::new, |copy| format!(
            "; a copy on the device moves {copy:.0} GB/s, bytes read and written"
        ))
    );
    if report.emulator {
        out.push_str(
            "<p class=\"wrong\">Times of the emulator: they say nothing about a GPU.</p>\n",
        );
    }
    if wrong > 0 {
        let _ = writeln!(
            out,
            "<p class=\"wrong\">{wrong} rows have wrong results.</p>"
        );
    }
    roofline(&mut out, report);
    for family in report.families() {
        bars(&mut out, report, family);
    }
    if let Some(host) = &report.host {
        let _ = writeln!(out, "<h2>Host side</h2>\n<table>");
        for (what, figure) in host.figures() {
            let _ = writeln!(
                out,
                "<tr><td>{}</td><td class=\"n\">{}</td></tr>",
                escape(&what),
                escape(&figure)
            );
        }
        out.push_str("</table>\n");
    }
    out.push_str("</html>\n");
    out
}

/// A logarithmic axis.
struct Axis {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
}

impl Axis {
    /// An axis over whole decades that holds all values, drawn from `start` to `end`.
    fn over(values: impl Iterator<Item = f64>, start: f64, end: f64) -> Self {
        let (mut low, mut high) = (f64::MAX, f64::MIN);
        for value in values.filter(|value| *value > 0.0) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        let from = low.log10().floor();
        Self {
            from,
            to: high.log10().ceil().max(from + 1.0),
            start,
            end,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value.log10() - self.from) / (self.to - self.from);
        self.start + part * (self.end - self.start)
    }

    fn decades(&self) -> impl Iterator<Item = f64> + use<> {
        (self.from as i32..=self.to as i32).map(|power| 10_f64.powi(power))
    }
}

fn roofline(out: &mut String, report: &Report) {
    let dots: Vec<(&RowReport, f64, f64)> = report
        .rows
        .iter()
        .filter(|row| row.operations > 0 && row.regime == "cold")
        .filter_map(|row| {
            let intensity = row.operations as f64 / row.bytes as f64;
            Some((row, intensity, row.tops.filter(|tops| *tops > 0.0)?))
        })
        .collect();
    if dots.is_empty() {
        return;
    }
    let x = Axis::over(dots.iter().map(|dot| dot.1), LEFT, WIDTH - RIGHT);
    let rates = dots.iter().map(|dot| dot.2).chain(report.peak_tops);
    let y = Axis::over(rates, HEIGHT - BOTTOM, TOP);
    let _ = writeln!(
        out,
        "<h2>Roofline</h2>\n<p>Operations per second over operations per byte that must move. The slope is the copy of this \
         run{}. Rows without arithmetic, and those whose data is in the cache, are not \
         shown.</p>\n\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Roofline plot\">",
        report.peak_tops.map_or_else(String::new, |peak| format!(
            ", the level line the nominal {peak:.0} TFLOP/s of the tensor cores on f16"
        ))
    );
    for value in x.decades() {
        let at = x.at(value);
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/><text class=\"soft\" \
             text-anchor=\"middle\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 16.0,
            tick(value)
        );
    }
    for value in y.decades() {
        let at = y.at(value);
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text class=\"soft\" \
             text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            tick(value)
        );
    }
    let _ = writeln!(
        out,
        "<text class=\"soft\" text-anchor=\"middle\" x=\"{:.0}\" y=\"{:.0}\">operations per byte</text><text class=\"soft\" \
         x=\"{}\" y=\"{}\">TFLOP/s</text>",
        f64::midpoint(LEFT, WIDTH),
        HEIGHT - 6.0,
        LEFT + 6.0,
        TOP + 12.0
    );
    if let Some(copy) = report.copy_gb_s {
        roof(out, report, copy, &x, &y);
    }
    let families = report.families();
    let hue = |family: &str| {
        let at = families.iter().position(|known| *known == family);
        HUES[at.unwrap_or(0) % HUES.len()]
    };
    for (row, intensity, tops) in &dots {
        let _ = writeln!(
            out,
            "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"5\" style=\"fill:hsl({} 70% var(--light))\"><title>{}</title>\
             </circle>",
            x.at(*intensity),
            y.at(*tops),
            hue(row.family),
            escape(&title(row))
        );
    }
    out.push_str("</svg>\n<div class=\"key\">");
    for family in &families {
        let _ = write!(
            out,
            "<span><i style=\"background:hsl({} 70% var(--light))\"></i>{}</span>",
            hue(family),
            escape(family)
        );
    }
    out.push_str("</div>\n");
}

/// The two ceilings, cut where they leave the plot.
fn roof(out: &mut String, report: &Report, copy: f64, x: &Axis, y: &Axis) {
    let (low, high) = (10_f64.powf(x.from), 10_f64.powf(x.to));
    let (bottom, top) = (10_f64.powf(y.from), 10_f64.powf(y.to));
    let peak = report.peak_tops.unwrap_or(f64::MAX).min(top);
    let rate = |intensity: f64| intensity * copy / 1e3;
    let first = (bottom * 1e3 / copy).max(low);
    let ridge = (peak * 1e3 / copy).min(high);
    if first >= high {
        return;
    }
    let mut points = vec![(first, rate(first)), (ridge, rate(ridge))];
    if ridge < high && report.peak_tops.is_some() {
        points.push((high, peak));
    }
    let points: Vec<String> = points
        .iter()
        .map(|(intensity, rate)| format!("{:.1},{:.1}", x.at(*intensity), y.at(*rate)))
        .collect();
    let _ = writeln!(
        out,
        "<polyline class=\"roof\" points=\"{}\"/>",
        points.join(" ")
    );
}

/// Bars of a family: bandwidth against the copy, or operations per second for matrix products.
fn bars(out: &mut String, report: &Report, family: &str) {
    let rows: Vec<&RowReport> = report
        .rows
        .iter()
        .filter(|row| row.family == family && row.timing.is_some())
        .collect();
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "<h2>{}</h2>", escape(family));
    let (products, moving): (Vec<&RowReport>, Vec<&RowReport>) =
        rows.into_iter().partition(|row| row.is_product());
    chart(out, "GB/s", &moving, report.copy_gb_s, |row| row.gb_s);
    chart(out, "TFLOP/s", &products, report.peak_tops, |row| row.tops);
}

fn chart(
    out: &mut String,
    unit: &str,
    rows: &[&RowReport],
    ceiling: Option<f64>,
    value: impl Fn(&RowReport) -> Option<f64>,
) {
    if rows.is_empty() {
        return;
    }
    let values = rows.iter().filter_map(|row| value(row));
    let most = values.chain(ceiling).fold(f64::MIN_POSITIVE, f64::max);
    let height = BAR * rows.len() as f64 + 22.0;
    let _ = writeln!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{unit} of each kernel\">"
    );
    if let Some(ceiling) = ceiling {
        let at = BARS + ceiling / most * BAR_LENGTH;
        let name = if unit == "GB/s" { "copy" } else { "nominal" };
        let _ = writeln!(
            out,
            "<text class=\"soft\" text-anchor=\"middle\" x=\"{at:.1}\" y=\"12\">{name} {ceiling:.0} {unit}</text><line \
             class=\"copy\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"16\" y2=\"{height}\"/>"
        );
    }
    for (index, row) in rows.iter().enumerate() {
        let top = 20.0 + BAR * index as f64;
        let rate = value(row).unwrap_or(0.0);
        let class = match (row.check.ok, row.regime) {
            (false, _) => "bar wrong",
            (true, "warm") => "bar warm",
            _ => "bar",
        };
        let us = row.timing.map_or(0.0, |timing| timing.us);
        let _ = writeln!(
            out,
            "<g><title>{}</title><text text-anchor=\"end\" x=\"{:.0}\" y=\"{:.1}\">{}</text><rect class=\"{class}\" \
             x=\"{BARS}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\"/><text class=\"soft\" x=\"{:.1}\" \
             y=\"{:.1}\">{rate:.0}, {us:.1} us</text></g>",
            escape(&title(row)),
            BARS - 8.0,
            top + BAR * 0.68,
            escape(&label(row)),
            top + 2.0,
            rate / most * BAR_LENGTH,
            BAR - 4.0,
            BARS + rate / most * BAR_LENGTH + 6.0,
            top + BAR * 0.68
        );
    }
    out.push_str("</svg>\n");
}

/// What a bar is called; long shapes are cut, the tooltip has them whole.
fn label(row: &RowReport) -> String {
    const MOST: usize = 64;
    let mut text = format!("{} {}", row.kernel, row.shape);
    if row.regime == "warm" {
        text.push_str(" (warm)");
    }
    if text.chars().count() > MOST {
        text = text.chars().take(MOST - 1).chain(['…']).collect();
    }
    text
}

fn title(row: &RowReport) -> String {
    let mut text = format!("{} {}, {}", row.kernel, row.shape, row.regime);
    if let (Some(timing), Some(gb_s), Some(tops)) = (row.timing, row.gb_s, row.tops) {
        let _ = write!(
            text,
            "\n{:.2} us, {gb_s:.0} GB/s, {tops:.2} TFLOP/s",
            timing.us
        );
    }
    if let Some(percent) = row.percent_of_copy {
        let _ = write!(text, ", {percent:.0} % of copy");
    }
    let _ = write!(
        text,
        "\n{}: {}",
        if row.check.ok { "right" } else { "WRONG" },
        row.check.checked
    );
    text
}

fn tick(value: f64) -> String {
    match value {
        v if v >= 1.0 => format!("{v:.0}"),
        v => format!("{v:.*}", -v.log10().floor() as usize),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_cover_their_values_in_whole_decades() {
        let axis = Axis::over([0.03, 40.0].into_iter(), 0.0, 100.0);
        assert_eq!((axis.from, axis.to), (-2.0, 2.0));
        assert!((axis.at(1.0) - 50.0).abs() < 1e-9);
        assert_eq!(axis.decades().count(), 5);
    }

    #[test]
    fn ticks_and_texts_are_readable_and_safe() {
        assert_eq!(tick(100.0), "100");
        assert_eq!(tick(0.01), "0.01");
        assert_eq!(escape("a<b & \"c\""), "a&lt;b &amp; &quot;c&quot;");
    }
}
