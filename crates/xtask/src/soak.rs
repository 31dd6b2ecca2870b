//! `cargo xtask soak`: runs the tests of the ledger for a chosen time, with larger parameters.
//!
//! The tests of the suite run one after the other in rounds: the simulations with thousands of
//! seeds, processes under `kill -9`, caps with hundreds of callers, a full disk, and a database
//! outage; on one to three nodes. A failed round prints its parameters.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::{ChildServer, TempFolder};
use crate::suite::postgres::Postgres;
use crate::tools::{self, cargo};
use crate::workspace;

/// Number of seeds per round of the simulation with faults, and of that with administrators at work.
const SEEDS_PER_ROUND: u64 = 20_000;
const ADMIN_SEEDS_PER_ROUND: u64 = 10_000;
/// Interval of progress lines without a terminal.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(30);
const BAR_WIDTH: usize = 24;

/// A test with its parameters.
struct SoakRound {
    /// Short description.
    about: String,
    test: &'static str,
    figures: Vec<(&'static str, u64)>,
    /// Number of seeds, if it is a simulation.
    seeds: Option<u64>,
}

/// Returns the rounds of one turn. Each turn has other numbers of nodes and callers.
fn rounds(turn: u64, seed: u64) -> Vec<SoakRound> {
    let nodes = 1 + turn % 3;
    let callers = 64 << (turn % 4);
    let real = |about: String, test, figures: &[(&'static str, u64)]| SoakRound {
        about,
        test,
        figures: [figures, &[("PORTUNUS_SOAK_SEED", seed.wrapping_add(turn))]].concat(),
        seeds: None,
    };
    let simulated = |about: &str, test, name, seeds: u64| SoakRound {
        about: format!("{seeds} seeds{about}"),
        test,
        figures: vec![
            ("FIRST_SEED", seed.wrapping_add(turn.wrapping_mul(seeds)) >> 8),
            (name, seeds),
        ],
        seeds: Some(seeds),
    };
    vec![
        simulated(
            "",
            "simulation::the_cap_holds_and_no_call_is_lost_or_doubled_under_faults",
            "SEEDS",
            SEEDS_PER_ROUND,
        ),
        simulated(
            " of administration",
            "administration::the_books_are_right_whatever_administrators_do",
            "ADMIN_SEEDS",
            ADMIN_SEEDS_PER_ROUND,
        ),
        real(
            format!("kill -9 of {nodes} nodes"),
            "nodes::kills::killed_nodes_leave_every_answered_call_charged_as_metered",
            &[
                ("PORTUNUS_SOAK_NODES", nodes),
                ("PORTUNUS_SOAK_KILLS", 40),
                ("PORTUNUS_SOAK_CALLERS", 32),
            ],
        ),
        real(
            format!("a cap, {callers} callers, {nodes} nodes"),
            "nodes::nodes_spend_a_cap_to_its_end_and_not_beyond",
            &[
                ("PORTUNUS_SOAK_NODES", nodes),
                ("PORTUNUS_SOAK_CALLERS", callers),
                ("PORTUNUS_SOAK_CALLS", 4_000),
            ],
        ),
        real(
            "a full disk".to_owned(),
            "nodes::disk_full::a_full_disk_lets_nothing_in_and_loses_nothing",
            &[],
        ),
        real("a store that goes away".to_owned(), "nodes::the_store_goes_away_and_comes_back", &[]),
        real(
            "one of three dies".to_owned(),
            "nodes::one_of_three_nodes_dies_and_nothing_is_lost_or_spent_twice",
            &[],
        ),
    ]
}

/// Progress of the run.
#[derive(Default)]
struct SoakProgress {
    rounds: u64,
    seeds: u64,
    calls: u64,
    kills: u64,
}

impl SoakProgress {
    /// Adds the counts that a test printed.
    fn add_counts(&mut self, log_text: &str) {
        for line in log_text.lines() {
            // The test's name precedes its first line.
            let Some((_, printed)) = line.rsplit_once("soak ") else { continue };
            let Some((name, count)) = printed.split_once(' ') else { continue };
            let count: u64 = count.trim().parse().unwrap_or_default();
            match name {
                "calls" => self.calls += count,
                "kills" => self.kills += count,
                _ => {}
            }
        }
    }

    fn line(&self, spent: Duration, whole: Duration, about: &str) -> String {
        let part = spent.as_secs_f64() / whole.as_secs_f64().max(1.0);
        let full = ((part * BAR_WIDTH as f64) as usize).min(BAR_WIDTH);
        let seconds = spent.as_secs_f64().max(1.0);
        let clock = |time: Duration| format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60);
        let mut line = String::new();
        // Writing to a string cannot fail.
        let _ = write!(
            line,
            "[{}{}] {} of {} · round {} · {} calls ({:.0}/s) · {} kills · {} seeds · {about}",
            "#".repeat(full),
            ".".repeat(BAR_WIDTH - full),
            clock(spent),
            clock(whole),
            self.rounds + 1,
            self.calls,
            self.calls as f64 / seconds,
            self.kills,
            self.seeds,
        );
        line
    }
}

/// Runs rounds until the time is over. Fails with the first failed round.
pub(crate) fn run(minutes: u64, seed: Option<u64>, year: Option<u64>) -> Result<()> {
    let nodes = build_test(tools::cargo_test()?.args(["--test", "portunus"]))?;
    // Optimised, because more seeds make the simulation more thorough.
    let ledger =
        build_test(&mut cargo(&["test", "--release", "-p", "ledger", "--test", "ledger"]))?;
    // A new seed per run; the randomness of the standard library is sufficient.
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(()) >> 32);
    println!("soak: {minutes} minutes, --seed {seed}");
    let postgres = Postgres::start()?;
    let soaked = soak(minutes, seed, &nodes, &ledger, &postgres.url).and_then(|()| match year {
        Some(calls) => time_a_year(calls, &postgres.url),
        None => Ok(()),
    });
    postgres.end(soaked)
}

fn soak(minutes: u64, seed: u64, nodes: &Path, ledger: &Path, postgres: &str) -> Result<()> {
    let (begun, whole) = (Instant::now(), Duration::from_secs(minutes * 60));
    let scratch = TempFolder::new("soak")?;
    let mut progress = SoakProgress::default();
    for turn in 0.. {
        for round in rounds(turn, seed) {
            if begun.elapsed() >= whole {
                println!("\nsoak: {} rounds held", progress.rounds);
                return Ok(());
            }
            let mut test = Command::new(if round.seeds.is_some() { ledger } else { nodes });
            test.args(["--exact", round.test, "--nocapture", "--test-threads=1"]);
            test.env("PORTUNUS_TEST_POSTGRES", postgres).current_dir(workspace::root());
            for (name, figure) in &round.figures {
                test.env(name, figure.to_string());
            }
            let log = scratch.path().join("round.log");
            let running = ChildServer::start(&round.about, &mut test, &log)?;
            let log_text =
                wait_for(running, || progress.line(begun.elapsed(), whole, &round.about));
            let log_text = log_text.with_context(|| {
                let figures = round.figures.iter().map(|(name, value)| format!("{name}={value} "));
                format!("round failed: {}{}", figures.collect::<String>(), round.test)
            })?;
            progress.add_counts(&log_text);
            progress.rounds += 1;
            progress.seeds += round.seeds.unwrap_or_default();
        }
    }
    Ok(())
}

/// Waits for a test while it shows the progress line. Returns the output of a passed test.
fn wait_for(mut running: ChildServer, line: impl Fn() -> String) -> Result<String> {
    let terminal = std::io::stdout().is_terminal();
    let mut shown: Option<Instant> = None;
    loop {
        let exit_status = running.exit_status()?;
        if terminal {
            print!("\r{}\x1b[K", line());
            let _ = std::io::stdout().flush();
        } else if shown.is_none_or(|shown| shown.elapsed() > PROGRESS_INTERVAL) {
            println!("{}", line());
            shown = Some(Instant::now());
        }
        match exit_status {
            Some(status) if status.success() => return running.log_text(),
            Some(status) => bail!("{status}\n{}", running.log_tail()),
            None => thread::sleep(Duration::from_millis(200)),
        }
    }
}

/// Builds a test and returns its path.
fn build_test(test: &mut Command) -> Result<PathBuf> {
    test.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let output = test.stderr(std::process::Stdio::inherit()).output()?;
    anyhow::ensure!(output.status.success(), "the tests do not build");
    let text = String::from_utf8(output.stdout)?;
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_test = |message: &Value| message.pointer("/profile/test") == Some(&Value::Bool(true));
    let mut paths = messages
        .filter(is_test)
        .filter_map(|message| message.get("executable")?.as_str().map(PathBuf::from));
    paths.next_back().context("cargo named no test that was built")
}

/// Fills each database with a year of calls and times the queries.
fn time_a_year(calls: u64, postgres: &str) -> Result<()> {
    let scratch = TempFolder::new("year")?;
    let sqlite = format!("sqlite:{}/year.db", scratch.path().display());
    for url in [sqlite.as_str(), postgres] {
        let mut example = cargo(&["run", "--quiet", "--release", "-p", "store"]);
        example.args(["--example", "year", "--"]);
        tools::run(example.args([url, &calls.to_string()]))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_test_tells_is_counted() {
        let mut progress = SoakProgress::default();
        progress.add_counts(
            "test kills::x ... soak calls 12\nsoak kills 3\nsoak cut 9\nok\nsoak calls 1",
        );
        assert_eq!((progress.calls, progress.kills), (13, 3));
        let line = progress.line(Duration::from_secs(61), Duration::from_secs(122), "now");
        assert!(line.starts_with("[############............] 1:01 of 2:02 · round 1"), "{line}");
    }

    #[test]
    fn every_turn_has_other_figures_and_names_tests_there_are() {
        let sources = workspace::sources(&workspace::root().join("crates")).unwrap();
        for turn in 0..12 {
            for round in rounds(turn, 7) {
                let name = round.test.rsplit("::").next().unwrap();
                let there = format!("fn {name}(");
                assert!(sources.iter().any(|source| source.text.contains(&there)), "{name}");
            }
        }
    }
}
