//! The statements of the API specification in `tests/spec`, each tried on every lane it names, whole
//! and as a stream.
//!
//! The files are read when the test runs, so a changed statement needs no build. `PORTUNUS_SPEC`
//! limits the run to the statements whose id begins with its value.

mod checks;
mod exchange;
mod fold;
mod json_path;
mod statement;

use exchange::StatementRun;
use futures_util::StreamExt as _;
use statement::{Specification, Statement};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use testkit::TestGateway;

/// Least number of statements: a file that is no longer read must not go unnoticed.
const MIN_STATEMENTS: usize = 400;

/// Runs at the same time. The gateway and its callers share the cores of the machine.
const CONCURRENT_RUNS: usize = 8;

#[test]
fn statements_are_many_and_have_ids_of_their_own() {
    let specification = Specification::load();
    let mut ids = BTreeSet::new();
    let mut sentences = BTreeSet::new();
    for statement in &specification.statements {
        assert!(ids.insert(&statement.id), "two statements are called {}", statement.id);
        let same = (statement.caller, &statement.sentence);
        assert!(sentences.insert(same), "two statements say {:?}", statement.sentence);
    }
    assert!(ids.len() >= MIN_STATEMENTS, "only {} statements", ids.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_holds_on_every_lane() {
    let specification = Specification::load();
    let wanted = std::env::var("PORTUNUS_SPEC").unwrap_or_default();
    let chosen = specification.statements.iter().filter(|one| one.id.starts_with(&wanted));
    let chosen: Vec<&Statement> = chosen.collect();
    let gateway = TestGateway::start().await;
    let runs = chosen.iter().flat_map(|one| StatementRun::all_of(one, &specification.values));
    let results: Vec<_> = futures_util::stream::iter(runs)
        .map(|run| async {
            let result = run.result(&gateway).await;
            (run, result)
        })
        .buffer_unordered(CONCURRENT_RUNS)
        .collect()
        .await;
    let gaps = chosen.iter().filter(|one| one.known_gap.is_some()).count();
    let checks: usize = results.iter().map(|(_, result)| result.checks).sum();
    eprintln!(
        "{} statements, {} runs, {checks} checks, {gaps} known gaps",
        chosen.len(),
        results.len()
    );

    let mut report = Vec::new();
    for (run, result) in results {
        let statement = run.statement;
        let text = match (&statement.known_gap, result.failures.is_empty()) {
            (None, true) | (Some(_), false) => continue,
            (None, false) => result.failures.join("\n    "),
            (Some(gap), true) => format!("holds now, so `known_gap` must go: {gap}"),
        };
        let Statement { id, sentence, .. } = statement;
        report.push(format!("{id} [{}, {}] {sentence}\n    {text}", run.lane, run.mode.name()));
    }
    report.sort();
    let mut text = String::new();
    for failure in &report {
        let _ = writeln!(text, "{failure}");
    }
    assert!(report.is_empty(), "{} runs are not as their statement says:\n{text}", report.len());
}
