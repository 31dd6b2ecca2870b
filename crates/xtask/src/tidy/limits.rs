//! Limits of the measured rules.

/// Upper bounds of the figures that `tidy` measures. **These numbers only fall**: a change that
/// improves a figure lowers its limit in the same commit, and no change raises one.
pub(super) const LIMITS: Limits = Limits {
    modules_in_a_circle: 6,
    names_in_two_crates: 0,
    relative_clauses: 0,
    untracked_spawns: 0,
    one_word_types_percent: 9,
    doubled_types_percent: 2,
};

/// One upper bound per measured rule.
pub(super) struct Limits {
    /// Modules of one crate that import each other in a circle.
    pub(super) modules_in_a_circle: usize,
    /// Type names that two crates define, without those that `names::ALLOWED_TWICE` explains.
    pub(super) names_in_two_crates: usize,
    /// Comments that open with a relative clause.
    pub(super) relative_clauses: usize,
    /// Calls of `tokio::spawn` outside `spawns::ALLOWED`.
    pub(super) untracked_spawns: usize,
    /// Share of type names of a single word.
    pub(super) one_word_types_percent: usize,
    /// Share of type definitions whose name another file defines too.
    pub(super) doubled_types_percent: usize,
}
