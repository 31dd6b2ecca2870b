//! Tasks that a shutdown waits for: `tokio::spawn` belongs to the task tracker alone.
//!
//! A task that nothing tracks outlives its owner, and a shutdown cuts it off in the middle of a
//! write.

use super::finding::Finding;
use super::limits::LIMITS;
use crate::workspace::Source;

/// Files and folders that may start untracked tasks, each with the reason.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/testkit/", "servers of tests end with the runtime of the test"),
    (
        "crates/transport/src/client/",
        "a pooled connection is driven until it closes, and holds no data of a call",
    ),
    (
        "crates/upstream/src/renewed_secret.rs",
        "a credential is fetched for all calls that wait for it, within a timeout",
    ),
    ("crates/xtask/", "developer commands end as a whole"),
];

/// Calls that start a task. `spawn_blocking` is not one of them: its caller waits for it.
const SPAWNS: [&str; 3] = ["tokio::spawn", "tokio::task::spawn", "task::spawn"];

/// Reports untracked tasks, if there are more than the limit allows.
pub(super) fn check(files: &[Source]) -> Vec<Finding> {
    let found = untracked(files);
    if found.len() > LIMITS.untracked_spawns { found } else { Vec::new() }
}

/// All places in product code that start a task outside the task tracker.
pub(super) fn untracked(files: &[Source]) -> Vec<Finding> {
    let is_allowed = |file: &Source| ALLOWED.iter().any(|(path, _)| file.path.starts_with(path));
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !is_allowed(file)) {
        for (line, _) in (1..).zip(file.text.lines()).filter(|(_, text)| spawns(text)) {
            let rule = "`tokio::spawn` outside the task tracker: a shutdown does not wait for it";
            findings.push(Finding::new(&file.path, line, rule));
        }
    }
    findings
}

fn spawns(line: &str) -> bool {
    SPAWNS.iter().any(|call| {
        line.match_indices(call).any(|(at, _)| {
            let before = line.get(..at).and_then(|head| head.chars().next_back());
            let after = line.get(at + call.len()..).and_then(|tail| tail.chars().next());
            !before.is_some_and(|c| c.is_alphanumeric() || "_:".contains(c))
                && !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::code::product_files;
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let sources = [Source { path: path.into(), text: text.into() }];
        untracked(&product_files(&sources)).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn an_untracked_task_is_found() {
        let path = "crates/a/src/lib.rs";
        assert_eq!(lines(path, "fn a() {\n    tokio::spawn(b());\n}"), [2]);
        assert_eq!(lines(path, "use tokio::task;\nlet a = task::spawn(b());"), [2]);
        assert_eq!(lines(path, "use tokio::spawn;"), [1]);
    }

    #[test]
    fn tracked_and_blocking_tasks_and_tests_are_fine() {
        let path = "crates/a/src/lib.rs";
        assert_eq!(lines(path, "tracker.spawn(a());"), [0; 0]);
        assert_eq!(lines(path, "tokio::task::spawn_blocking(a);"), [0; 0]);
        assert_eq!(lines(path, "// tokio::spawn(a)"), [0; 0]);
        assert_eq!(
            lines(path, "#[cfg(test)]\nmod tests { fn a() { tokio::spawn(b()); } }"),
            [0; 0]
        );
        assert_eq!(lines("crates/a/tests/b.rs", "tokio::spawn(b());"), [0; 0]);
        assert_eq!(lines("crates/testkit/src/lib.rs", "tokio::spawn(b());"), [0; 0]);
    }

    #[test]
    fn every_exception_has_a_reason() {
        assert!(ALLOWED.iter().all(|(_, reason)| !reason.is_empty()));
    }
}
