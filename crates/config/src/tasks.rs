//! Limits of background tasks.

use crate::error::FieldError;
use crate::raw::RawTasks;

/// Limits of background tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLimits {
    /// Tasks that run at once on this node.
    pub max_running: usize,
    /// Tasks of one provider that run at once on all nodes.
    pub max_per_provider: u32,
    /// Attempts before a task fails.
    pub max_attempts: u32,
    /// Unfinished tasks of one key.
    pub max_waiting: u32,
}

/// Checks `[tasks]`.
pub(super) fn check(raw: &RawTasks) -> Result<TaskLimits, FieldError> {
    let RawTasks { running, per_provider, runs, waiting } = raw;
    let terms = TaskLimits {
        max_running: running.unwrap_or(16),
        max_per_provider: per_provider.unwrap_or(8),
        max_attempts: runs.unwrap_or(3),
        max_waiting: waiting.unwrap_or(100),
    };
    let counts = [
        ("running", terms.max_running == 0),
        ("per_provider", terms.max_per_provider == 0),
        ("runs", terms.max_attempts == 0),
        ("waiting", terms.max_waiting == 0),
    ];
    match counts.iter().find(|(_, none)| *none) {
        Some((name, _)) => {
            Err(FieldError::new(format_args!("tasks.{name}"), "must be at least one"))
        }
        None => Ok(terms),
    }
}
