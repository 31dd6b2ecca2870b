//! How much work goes on without its caller.

use crate::raw::RawTasks;

/// Tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLimits {
    /// How many run at once on this node.
    pub max_running: usize,
    /// How many of one provider run at once, on all nodes together.
    pub max_per_provider: u32,
    /// How often a task is begun before it is given up.
    pub max_attempts: u32,
}

/// Checks the terms of tasks.
pub(super) fn check(raw: &RawTasks) -> Result<TaskLimits, String> {
    let RawTasks { running, per_provider, runs } = raw;
    let terms = TaskLimits {
        max_running: running.unwrap_or(16),
        max_per_provider: per_provider.unwrap_or(8),
        max_attempts: runs.unwrap_or(3),
    };
    let counts = [
        ("running", terms.max_running == 0),
        ("per_provider", terms.max_per_provider == 0),
        ("runs", terms.max_attempts == 0),
    ];
    match counts.iter().find(|(_, none)| *none) {
        Some((name, _)) => Err(format!("tasks.{name}: must be at least one")),
        None => Ok(terms),
    }
}
