//! Work in proportion to the size of a body: doubling a list may at most double the instructions.
//! callgrind counts them, so the result does not depend on the machine.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::tools::{self, cargo};
use crate::workspace;

/// Twice the work and a margin for growing buffers. Quadratic work is four times as much.
const MAX_RATIO: f64 = 2.5;

pub(crate) fn run() -> Result<()> {
    let valgrind = tools::valgrind()?;
    tools::run(&mut cargo(&["build", "--release", "-p", "dialects", "--example", "doubling"]))?;
    let folder = workspace::target().join("linear");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let counts = folder.join("callgrind");
    let mut command = Command::new(valgrind);
    command
        .args([
            "--tool=callgrind",
            "-q",
            "--toggle-collect=doubling::measured",
            "--dump-after=doubling::measured",
        ])
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .arg(workspace::target().join("release/examples/doubling"))
        .current_dir(workspace::root());
    let output = command.output().context("starting valgrind")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout)?;
    let mut steep = Vec::new();
    let mut steepest = 0.0_f64;
    for (at, name) in names.lines().enumerate() {
        let half = instructions(&counts, 2 * at + 1)?;
        let whole = instructions(&counts, 2 * at + 2)?;
        let ratio = whole / half.max(1.0);
        steepest = steepest.max(ratio);
        if ratio > MAX_RATIO {
            steep.push(format!("{name}: {half:.0} instructions, doubled {whole:.0} ({ratio:.2})"));
        }
    }
    println!(
        "{} lists doubled, at most {steepest:.2} times the instructions",
        names.lines().count()
    );
    if !steep.is_empty() {
        bail!("work grows faster than the body:\n{}", steep.join("\n"));
    }
    Ok(())
}

/// Returns the instructions of one measured call.
fn instructions(counts: &Path, number: usize) -> Result<f64> {
    let path = format!("{}.{number}", counts.display());
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let total = total.or_else(|| text.lines().find_map(|line| line.strip_prefix("summary: ")));
    total.and_then(|total| total.trim().parse().ok()).context("callgrind wrote no total")
}
