//! A place that breaks a rule.

use std::fmt;

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Finding {
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) rule: String,
}

impl Finding {
    pub(super) fn new(path: &str, line: usize, rule: impl Into<String>) -> Self {
        Self { path: path.into(), line, rule: rule.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_that_editors_can_open() {
        let finding = Finding::new("crates/a/src/lib.rs", 7, "too long");
        assert_eq!(finding.to_string(), "crates/a/src/lib.rs:7: too long");
    }
}
