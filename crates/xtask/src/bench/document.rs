//! `docs/performance.md`: the figures of one run as a table and a picture.

use std::fmt::Write as _;
use std::fs;

use anyhow::Result;

use super::report::Row;
use super::rivals::{self, Seen};
use crate::workspace;

/// What stands above the figures.
const INTRODUCTION: &str = "# Performance

One core for the proxy, one for load and upstream, plain HTTP/1.1 on both sides, rounds of all
targets by turns; medians. Portunus checks a key, sets money aside, journals, counts and settles each
call, with money from the lease of a capped key. nginx is a bare `proxy_pass`. A paced stream sends
an event every five milliseconds, a burst all at once. Processor time per request is the figure to trust:
requests per second depend on how fast load and upstream are. The gateway is the binary to hand out,
`cargo build --profile dist`; `--release` compiles faster and runs a little slower. Made by
`cargo xtask bench --rivals --write`.

";

/// Why the figures are what they are; brought up to date by whoever profiles.
const ACCOUNT: &str = include_str!("account.md");

/// Writes the document and its picture.
pub(super) fn write(about: &str, rows: &[Row], rivals: &[Seen]) -> Result<()> {
    let docs = workspace::root().join("docs");
    let mut text = String::from(INTRODUCTION);
    writeln!(text, "{about}\n")?;
    writeln!(text, "| | direct | nginx | Portunus | × nginx | goal | limit | |")?;
    writeln!(text, "|---|--:|--:|--:|--:|--:|--:|---|")?;
    for row in rows {
        writeln!(text, "{}", row.markdown())?;
    }
    text.push_str(ACCOUNT);
    if !rivals.is_empty() {
        text.push_str(
            "\n## Beside other gateways\n\n![Processor time per request](performance.svg)\n\n",
        );
        text.push_str(
            "Processor microseconds per request. The others had one round each and 16 callers at once under every\n\
             load, not 64. LiteLLM checks one key and keeps no accounts here, Portkey checks no key and counts\n\
             nothing; neither has caps or a ledger on.\n\n",
        );
        table(&mut text, rows, rivals)?;
        fs::write(docs.join("performance.svg"), picture(&bars(rows, rivals)))?;
    }
    fs::write(docs.join("performance.md"), text)?;
    Ok(())
}

fn table(text: &mut String, rows: &[Row], rivals: &[Seen]) -> Result<()> {
    let names: Vec<&str> = rivals.iter().map(|seen| seen.name.as_str()).collect();
    writeln!(text, "| | nginx | Portunus | {} |", names.join(" | "))?;
    writeln!(text, "|---|--:|--:|{}", "--:|".repeat(rivals.len()))?;
    for (at, probe) in rivals::loads().enumerate() {
        let Some(row) = processor_row(rows, probe.name) else { continue };
        let cells: Vec<String> = rivals
            .iter()
            .filter_map(|seen| seen.processor_us.get(at))
            .map(|us| us.map_or_else(|| "errors".to_owned(), |us| format!("{us:.0}")))
            .collect();
        let (nginx, ours) = (row.nginx.unwrap_or_default(), row.gateway.unwrap_or_default());
        writeln!(text, "| {} | {nginx:.1} | {ours:.1} | {} |", probe.name, cells.join(" | "))?;
    }
    for (what, ours, of) in [
        (
            "start to first answer, ms",
            "start to first answer, ms",
            (|s| s.start_ms) as fn(&Seen) -> f64,
        ),
        ("memory after the load, MB", "memory after the load, MB", |s| s.memory_mb),
    ] {
        let row = rows.iter().find(|row| row.what == ours);
        let cell = |figure: Option<f64>| figure.map_or_else(String::new, |f| format!("{f:.0}"));
        let cells: Vec<String> = rivals.iter().map(|seen| format!("{:.0}", of(seen))).collect();
        let (nginx, ours) = (row.and_then(|r| r.nginx), row.and_then(|r| r.gateway));
        writeln!(text, "| {what} | {} | {} | {} |", cell(nginx), cell(ours), cells.join(" | "))?;
    }
    Ok(())
}

fn processor_row<'a>(rows: &'a [Row], probe: &str) -> Option<&'a Row> {
    rows.iter().find(|row| row.what == format!("{probe}: processor µs/request"))
}

/// One bar: whose, how long.
struct Bar {
    name: String,
    us: f64,
}

/// A small chat through everything that was measured.
fn bars(rows: &[Row], rivals: &[Seen]) -> Vec<Bar> {
    let row = rivals::loads().next().and_then(|probe| processor_row(rows, probe.name));
    let ours =
        [("nginx", row.and_then(|row| row.nginx)), ("Portunus", row.and_then(|row| row.gateway))];
    let mut bars: Vec<Bar> = ours
        .into_iter()
        .filter_map(|(name, us)| Some(Bar { name: name.to_owned(), us: us? }))
        .collect();
    for seen in rivals {
        if let Some(us) = seen.processor_us.first().copied().flatten() {
            bars.push(Bar { name: seen.name.clone(), us });
        }
    }
    bars
}

/// Horizontal bars on a logarithmic scale: the others would not fit on any other.
fn picture(bars: &[Bar]) -> String {
    const ROW: usize = 34;
    let most = bars.iter().map(|bar| bar.us).fold(1.0, f64::max).log10();
    let height = 50 + ROW * bars.len();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 {height}\" role=\"img\" \
         aria-label=\"Processor time per request\" font-family=\"system-ui, sans-serif\" font-size=\"14\">\
         <style>text{{fill:#334155}}@media(prefers-color-scheme:dark){{text{{fill:#cbd5e1}}}}</style>\
         <text x=\"0\" y=\"20\" font-weight=\"600\">Processor µs per 1 KB chat, logarithmic; less is better</text>"
    );
    for (at, bar) in bars.iter().enumerate() {
        let y = 38 + ROW * at;
        let width = (bar.us.max(1.0).log10() / most * 440.0).max(2.0);
        let fill = if bar.name == "Portunus" { "#0d9488" } else { "#94a3b8" };
        let (name, us) = (&bar.name, bar.us);
        let _ = write!(
            svg,
            "<text x=\"150\" y=\"{}\" text-anchor=\"end\">{name}</text>\
             <rect x=\"160\" y=\"{y}\" width=\"{width:.0}\" height=\"22\" rx=\"4\" fill=\"{fill}\"/>\
             <text x=\"{:.0}\" y=\"{}\">{us:.0}</text>",
            y + 16,
            168.0 + width,
            y + 16,
        );
    }
    svg + "</svg>\n"
}
