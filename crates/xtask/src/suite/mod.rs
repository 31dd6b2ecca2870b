//! `cargo xtask test`: the complete test suite in steps, with a summary at the end.
//!
//! A failed step does not stop the next ones, so that one run shows all failures. Only a failed
//! build ends the run. Steps run beside others whose tests mostly wait.

mod agents;
mod documented;
mod e2e;
mod linear;
mod metrics;
pub(crate) mod node;
mod openapi;
mod package;
pub(crate) mod postgres;
mod unit;
mod versions;

use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::ValueEnum;

use crate::bench::instructions;
use crate::tools::{self, cargo};
use crate::{browser, tidy, workspace};

/// One step of the suite, in order. Quick checks come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Step {
    /// The code is formatted
    Fmt,
    /// The house rules hold
    Tidy,
    /// Everything compiles, tests included, without warnings of Clippy
    Build,
    /// No warnings of Clippy, without a build; only when asked for by name
    Clippy,
    /// Licences, sources and banned crates
    Deny,
    /// Every test in Rust, with a throw-away PostgreSQL, Valkey, S3 server and nginx
    Unit,
    /// Every parser of foreign bytes on kept inputs and mutations of them
    Fuzz,
    /// Doubling a list at most doubles the instructions
    Linear,
    /// Reading, metering and translating bodies costs no more instructions than the repository allows
    Translations,
    /// No kind of call costs more instructions, allocations or socket calls than the repository
    /// allows; only when asked for by name
    Instructions,
    /// Each command of the pages for operators, on real services
    Docs,
    /// A linter on the API description, and a client generated from it
    Openapi,
    /// Alert rules, dashboard and metrics, read by Prometheus' own checker
    Metrics,
    /// Packages, image, units and compose file: made twice, installed and started; only when asked for by name
    Package,
    /// The Helm chart, read by Helm; only when asked for by name
    Chart,
    /// The official clients against a running gateway
    E2e,
    /// The console in a real browser, with real mail and a real identity provider
    Browser,
    /// The real coding agents against a running gateway; only when asked for by name
    Agents,
    /// The version before and this one on one PostgreSQL; only when asked for by name
    Versions,
}

impl Step {
    /// Returns true if the step runs by default. Heavy steps run only by name: real agents, the
    /// optimised build of the whole gateway, packages, the build of Helm, and that of an earlier version.
    fn runs_by_default(self) -> bool {
        !matches!(
            self,
            // The step `build` lints.
            Self::Clippy
                | Self::Agents
                | Self::Instructions
                | Self::Package
                | Self::Chart
                | Self::Versions
        )
    }

    /// Returns the step beside which this one runs. Nothing that it measures depends on time.
    fn runs_beside(self) -> Option<Self> {
        match self {
            // These need no server.
            Self::Deny | Self::Linear | Self::Translations => Some(Self::Unit),
            Self::Browser => Some(Self::E2e),
            Self::Fmt
            | Self::Tidy
            | Self::Build
            | Self::Clippy
            | Self::Unit
            | Self::Fuzz
            | Self::Instructions
            | Self::Docs
            | Self::Openapi
            | Self::Metrics
            | Self::Package
            | Self::Chart
            | Self::E2e
            | Self::Agents
            | Self::Versions => None,
        }
    }
}

/// Some seconds for each target, unoptimised.
const FUZZ_ITERATIONS: &str = "5000";

/// Result of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StepResult {
    Passed,
    Failed,
    NotRun,
}

/// Result of a step and the time it took.
type StepRow = (Step, StepResult, Duration);

/// Runs the suite or one step of it. Returns true if everything passed. `arguments` are for the
/// `cargo test` of the step `unit`.
pub(crate) fn run(only: Option<Step>, arguments: &[String]) -> bool {
    if let Some(step) = only {
        let row = run_and_tell(step, arguments);
        return summary(&[row], row.2);
    }
    let steps = Step::value_variants().iter().copied().filter(|step| step.runs_by_default());
    let (beside, steps): (Vec<Step>, Vec<Step>) =
        steps.partition(|step| step.runs_beside().is_some());
    // Asked for now: the step `build` puts another file in its place.
    let program = std::env::current_exe().unwrap_or_else(|_| "xtask".into());
    let begin = Instant::now();
    let mut rows: Vec<StepRow> = Vec::new();
    let mut is_broken = false;
    for step in steps {
        let others: Vec<Step> =
            beside.iter().copied().filter(|other| other.runs_beside() == Some(step)).collect();
        if is_broken {
            let unrun = std::iter::once(step).chain(others);
            rows.extend(unrun.map(|step| (step, StepResult::NotRun, Duration::ZERO)));
        } else {
            let done = run_with_others(&program, step, &others, arguments);
            is_broken = step == Step::Build && done.iter().any(|row| row.1 == StepResult::Failed);
            rows.extend(done);
        }
    }
    summary(&rows, begin.elapsed())
}

/// Runs a step and, at the same time, these other steps.
fn run_with_others(
    program: &Path,
    step: Step,
    others: &[Step],
    arguments: &[String],
) -> Vec<StepRow> {
    let mut done: Vec<(StepRow, String)> = Vec::new();
    let own = thread::scope(|scope| {
        scope.spawn(|| done.extend(others.iter().map(|step| run_silently(program, *step))));
        run_and_tell(step, arguments)
    });
    done.iter().for_each(|(_, output)| println!("{output}"));
    std::iter::once(own).chain(done.into_iter().map(|(row, _)| row)).collect()
}

/// Runs a step in a process of its own of this program, and returns its output.
fn run_silently(program: &Path, step: Step) -> (StepRow, String) {
    let begin = Instant::now();
    let (outcome, output) =
        match Command::new(program).args(["test", "--only", &name(step)]).output() {
            Ok(done) => {
                let outcome = match done.status.success() {
                    true => StepResult::Passed,
                    false => StepResult::Failed,
                };
                let text = [done.stdout, done.stderr].concat();
                (outcome, String::from_utf8_lossy(&text).into_owned())
            }
            Err(error) => (StepResult::Failed, format!("{} did not start: {error}", name(step))),
        };
    ((step, outcome, begin.elapsed()), output)
}

fn run_and_tell(step: Step, arguments: &[String]) -> StepRow {
    println!("\n==> {}: {}", name(step), about(step));
    let begin = Instant::now();
    let outcome = match run_step(step, arguments) {
        Ok(()) => StepResult::Passed,
        Err(error) => {
            println!("{error:#}");
            StepResult::Failed
        }
    };
    let took = begin.elapsed();
    println!("<== {}: {} in {}", name(step), result_word(outcome), format_time(took));
    (step, outcome, took)
}

fn run_step(step: Step, arguments: &[String]) -> Result<()> {
    match step {
        Step::Fmt => tools::run(&mut cargo(&["fmt", "--all", "--check"])),
        Step::Tidy => {
            ensure!(tidy::run()?, "the house rules are broken");
            Ok(())
        }
        Step::Build => {
            tools::run(tools::cargo_test()?.arg("--no-run"))?;
            tools::run(&mut tools::cargo_build_programs()?)
        }
        Step::Clippy => tools::run(&mut tools::cargo_clippy()),
        Step::Deny => deny(),
        Step::Unit => unit::run(arguments),
        Step::Fuzz => fuzz(),
        Step::Linear => linear::run(),
        Step::Translations => instructions::check_translations(),
        Step::Instructions => instructions::check(),
        Step::Docs => documented::run(),
        Step::Openapi => openapi::run(),
        Step::Metrics => metrics::run(),
        Step::Package => package::run(),
        Step::Chart => package::run_chart(),
        Step::E2e => e2e::run(),
        Step::Browser => browser::run(),
        Step::Agents => agents::run(),
        Step::Versions => versions::run(),
    }
}

/// The fuzz targets on the stable compiler, longer than the step `unit` runs them.
fn fuzz() -> Result<()> {
    let mut tests = tools::cargo_test()?;
    tools::run(tests.args(["--test", "fuzz"]).env("FUZZ_ITERATIONS", FUZZ_ITERATIONS))
}

/// Checks licences, bans and sources offline. Advisories need a network and are checked if it is
/// available.
fn deny() -> Result<()> {
    let mut command = Command::new(tools::cargo_deny()?);
    command.current_dir(workspace::root()).args(["check", "--hide-inclusion-graph"]);
    if reachable("github.com:443") {
        command.arg("advisories");
    } else {
        println!("the advisory database is out of reach: advisories are not checked here");
    }
    tools::run(command.args(["licenses", "bans", "sources"]))
}

/// Returns true if a connection can be made within a few seconds. It runs on a thread of its own,
/// because a name lookup may hang without a network.
fn reachable(place: &'static str) -> bool {
    let limit = Duration::from_secs(3);
    let (tell, received) = mpsc::channel();
    thread::spawn(move || {
        let address = place.to_socket_addrs().ok().and_then(|mut found| found.next());
        let open = address.is_some_and(|at| TcpStream::connect_timeout(&at, limit).is_ok());
        // The receiver is gone after the timeout.
        tell.send(open).ok();
    });
    received.recv_timeout(limit).unwrap_or(false)
}

fn summary(rows: &[StepRow], total: Duration) -> bool {
    println!("\n{:<16} {:<8} {:>8}", "step", "result", "time");
    for (step, outcome, took) in rows {
        println!("{:<16} {:<8} {:>8}", name(*step), result_word(*outcome), format_time(*took));
    }
    let passed = rows.iter().filter(|(_, outcome, _)| *outcome == StepResult::Passed).count();
    let failed = rows.len() - passed;
    println!("{:<16} {:<8} {:>8}\n", "all", "", format_time(total));
    println!("{passed} passed, {failed} failed");
    failed == 0
}

fn name(step: Step) -> String {
    step.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn about(step: Step) -> String {
    let value = step.to_possible_value();
    value.and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
}

fn result_word(outcome: StepResult) -> &'static str {
    match outcome {
        StepResult::Passed => "passed",
        StepResult::Failed => "FAILED",
        StepResult::NotRun => "not run",
    }
}

fn format_time(took: Duration) -> String {
    let seconds = took.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", took.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        _ => format!("{}:{:02} min", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_did_not_run_is_no_success() {
        let passed = (Step::Fmt, StepResult::Passed, Duration::ZERO);
        let is_success = |rows: &[StepRow]| summary(rows, Duration::ZERO);
        assert!(is_success(&[passed]));
        assert!(!is_success(&[passed, (Step::Unit, StepResult::NotRun, Duration::ZERO)]));
        assert!(!is_success(&[passed, (Step::Unit, StepResult::Failed, Duration::ZERO)]));
    }

    #[test]
    fn steps_have_names_for_the_command_line_and_a_sentence_each() {
        assert_eq!(name(Step::E2e), "e2e");
        for step in Step::value_variants() {
            assert!(!about(*step).is_empty(), "{step:?}");
        }
    }

    #[test]
    fn times_are_told_as_people_tell_them() {
        assert_eq!(format_time(Duration::from_millis(1_240)), "1.2 s");
        assert_eq!(format_time(Duration::from_secs(59)), "59 s");
        assert_eq!(format_time(Duration::from_secs(125)), "2:05 min");
    }
}
