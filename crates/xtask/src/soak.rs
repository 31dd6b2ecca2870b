//! `cargo xtask soak`: the proofs of the ledger for as long as one likes, with the figures turned up.
//!
//! What runs are the suite's own tests, one after the other and round after round: the simulation
//! by the ten thousand seeds, processes under `kill -9`, caps under hundreds of callers, a full
//! disk, a database that goes away; on one to three nodes. A round that fails is told with the
//! figures it ran with.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::{Running, Scratch};
use crate::suite::postgres::Postgres;
use crate::tools::{self, cargo};
use crate::workspace;

/// How many seeds the simulation runs in one round.
const SEEDS: u64 = 20_000;
/// How often a line is written where there is no terminal to draw on.
const SELDOM: Duration = Duration::from_secs(30);
const WIDTH: usize = 24;

/// A test with the figures it is to run with.
struct Round {
    /// What it tries, in a word or two.
    about: String,
    test: &'static str,
    figures: Vec<(&'static str, u64)>,
    simulated: bool,
}

/// The rounds of one turn; each turn has other numbers of nodes and callers.
fn rounds(turn: u64, seed: u64) -> Vec<Round> {
    let nodes = 1 + turn % 3;
    let callers = 64 << (turn % 4);
    let real = |about: String, test, figures: &[(&'static str, u64)]| Round {
        about,
        test,
        figures: [figures, &[("PORTUNUS_SOAK_SEED", seed.wrapping_add(turn))]].concat(),
        simulated: false,
    };
    vec![
        Round {
            about: format!("{SEEDS} seeds"),
            test: "simulation::whatever_happens_the_cap_holds_and_no_call_is_lost_or_doubled",
            figures: vec![
                ("FIRST_SEED", seed.wrapping_add(turn.wrapping_mul(SEEDS)) >> 8),
                ("SEEDS", SEEDS),
            ],
            simulated: true,
        },
        real(
            format!("kill -9 of {nodes} nodes"),
            "nodes::kills::whoever_is_killed_every_answered_call_costs_what_the_provider_metered",
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
            "nodes::full::a_full_disk_lets_nothing_in_and_loses_nothing",
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

/// What was done so far.
#[derive(Default)]
struct Done {
    rounds: u64,
    seeds: u64,
    calls: u64,
    kills: u64,
}

impl Done {
    /// Adds what a test told of itself.
    fn hear(&mut self, said: &str) {
        for line in said.lines() {
            // The test's name stands before the first of its lines.
            let Some((_, told)) = line.rsplit_once("soak ") else { continue };
            let Some((name, count)) = told.split_once(' ') else { continue };
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
        let full = ((part * WIDTH as f64) as usize).min(WIDTH);
        let seconds = spent.as_secs_f64().max(1.0);
        let clock = |time: Duration| format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60);
        let mut line = String::new();
        // Writing to a text cannot fail.
        let _ = write!(
            line,
            "[{}{}] {} of {} · round {} · {} calls ({:.0}/s) · {} kills · {} seeds · {about}",
            "#".repeat(full),
            ".".repeat(WIDTH - full),
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

/// Runs rounds until the time is over; fails with the first round that does.
pub(crate) fn run(minutes: u64, seed: Option<u64>, year: Option<u64>) -> Result<()> {
    let nodes = built(&["-p", "portunus", "--features", "node-tests", "--test", "portunus"])?;
    // Optimised: a simulation is as good as it has seeds.
    let ledger = built(&["--release", "-p", "ledger", "--test", "ledger"])?;
    // Another one every time; the standard library's own chance will do.
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
    let scratch = Scratch::new("soak")?;
    let mut done = Done::default();
    for turn in 0.. {
        for round in rounds(turn, seed) {
            if begun.elapsed() >= whole {
                println!("\nsoak: {} rounds held", done.rounds);
                return Ok(());
            }
            let mut test = Command::new(if round.simulated { ledger } else { nodes });
            test.args(["--exact", round.test, "--nocapture", "--test-threads=1"]);
            test.env("PORTUNUS_TEST_POSTGRES", postgres).current_dir(workspace::root());
            for (name, figure) in &round.figures {
                test.env(name, figure.to_string());
            }
            let log = scratch.path().join("round.log");
            let running = Running::start(&round.about, &mut test, &log)?;
            let said = watch(running, || done.line(begun.elapsed(), whole, &round.about));
            let said = said.with_context(|| {
                let figures = round.figures.iter().map(|(name, value)| format!("{name}={value} "));
                format!("round failed: {}{}", figures.collect::<String>(), round.test)
            })?;
            done.hear(&said);
            done.rounds += 1;
            done.seeds += if round.simulated { SEEDS } else { 0 };
        }
    }
    Ok(())
}

/// Waits for a test and shows the line meanwhile; all it said, if it passed.
fn watch(mut running: Running, line: impl Fn() -> String) -> Result<String> {
    let terminal = std::io::stdout().is_terminal();
    let mut shown: Option<Instant> = None;
    loop {
        let ended = running.ended()?;
        if terminal {
            print!("\r{}\x1b[K", line());
            let _ = std::io::stdout().flush();
        } else if shown.is_none_or(|shown| shown.elapsed() > SELDOM) {
            println!("{}", line());
            shown = Some(Instant::now());
        }
        match ended {
            Some(status) if status.success() => return running.said(),
            Some(status) => bail!("{status}\n{}", running.last_words()),
            None => thread::sleep(Duration::from_millis(200)),
        }
    }
}

/// The path of a test that is built for this.
fn built(which: &[&str]) -> Result<PathBuf> {
    let mut build = cargo(&["test", "--no-run", "--message-format=json-render-diagnostics"]);
    let output = build.args(which).stderr(std::process::Stdio::inherit()).output()?;
    anyhow::ensure!(output.status.success(), "the tests do not build");
    let text = String::from_utf8(output.stdout)?;
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_test = |message: &Value| message.pointer("/profile/test") == Some(&Value::Bool(true));
    let mut paths = messages
        .filter(is_test)
        .filter_map(|message| message.get("executable")?.as_str().map(PathBuf::from));
    paths.next_back().context("cargo named no test that was built")
}

/// A year of calls in each database, and how long questions about it take.
fn time_a_year(calls: u64, postgres: &str) -> Result<()> {
    let scratch = Scratch::new("year")?;
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
        let mut done = Done::default();
        done.hear("test kills::x ... soak calls 12\nsoak kills 3\nsoak cut 9\nok\nsoak calls 1");
        assert_eq!((done.calls, done.kills), (13, 3));
        let line = done.line(Duration::from_secs(61), Duration::from_secs(122), "now");
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
