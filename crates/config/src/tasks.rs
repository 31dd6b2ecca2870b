//! How much work goes on without its caller.

use crate::raw::RawTasks;

/// Tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskTerms {
    /// How many run at once on this node.
    pub running: usize,
    /// How many of one provider run at once, on all nodes together.
    pub per_provider: u32,
    /// How often a task is begun before it is given up.
    pub runs: u32,
}

/// Checks the terms of tasks.
pub(super) fn check(raw: &RawTasks) -> Result<TaskTerms, String> {
    let RawTasks { running, per_provider, runs } = raw;
    let terms = TaskTerms {
        running: running.unwrap_or(16),
        per_provider: per_provider.unwrap_or(8),
        runs: runs.unwrap_or(3),
    };
    let counts = [
        ("running", terms.running == 0),
        ("per_provider", terms.per_provider == 0),
        ("runs", terms.runs == 0),
    ];
    match counts.iter().find(|(_, none)| *none) {
        Some((name, _)) => Err(format!("tasks.{name}: must be at least one")),
        None => Ok(terms),
    }
}
