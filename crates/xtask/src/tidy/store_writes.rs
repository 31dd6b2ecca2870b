//! Writes of the store that need rights, checks and a line in the audit log: `admin` alone calls
//! them.
//!
//! A second caller would be a second place for the rules of the same change.

use super::finding::Finding;
use crate::workspace::Source;

/// Crates that may call the methods, each with the reason.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/admin/", "the use cases, with rights, checks and audit"),
    ("crates/store/", "the methods themselves"),
    ("crates/testkit/", "tests put a state into the store without asking for rights"),
];

/// Methods of the store that change accounts, terms, teams, keys and ways to sign in.
const METHODS: [&str; 22] = [
    "add_account",
    "add_account_with_identity",
    "add_account_with_terms",
    "rename_account",
    "set_disabled",
    "set_role",
    "set_account_limits",
    "set_account_terms",
    "add_team",
    "set_member",
    "add_key",
    "revoke_key",
    "rotate_key",
    "update_key",
    "set_password",
    "add_factor",
    "drop_factor",
    "replace_factors",
    "seal_factor",
    "add_identity",
    "drop_identity",
    "drop_sessions_of",
];

/// Reports calls of these methods on a `store` outside the allowed crates.
pub(super) fn check(files: &[Source]) -> Vec<Finding> {
    let is_allowed = |file: &Source| ALLOWED.iter().any(|(path, _)| file.path.starts_with(path));
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !is_allowed(file)) {
        for method in METHODS {
            for line in calls(&file.text, method) {
                let rule = format!("`store.{method}` outside `admin`: call the use case instead");
                findings.push(Finding::new(&file.path, line, rule));
            }
        }
    }
    findings
}

/// Line of every `store.method(`, also where the call is spread over lines.
fn calls<'a>(text: &'a str, method: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(method).filter_map(move |(at, _)| {
        let (before, after) = (text.get(..at)?, text.get(at + method.len()..)?);
        let receiver = before.strip_suffix('.')?.trim_end();
        let receiver = receiver.strip_suffix("()").unwrap_or(receiver);
        let is_store = receiver.ends_with("store") && after.starts_with('(');
        is_store.then(|| before.lines().count())
    })
}

#[cfg(test)]
mod tests {
    use super::super::code::product_files;
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let sources = [Source { path: path.into(), text: text.into() }];
        check(&product_files(&sources)).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_write_outside_admin_is_found() {
        let path = "crates/console/src/page.rs";
        assert_eq!(lines(path, "fn a() {\n    state.store.set_role(a);\n}"), [2]);
        assert_eq!(lines(path, "state\n    .store\n    .add_team(a);"), [3]);
        assert_eq!(lines(path, "app.store().add_key(a); store.add_key(b);"), [1, 1]);
    }

    #[test]
    fn use_cases_reads_and_tests_are_fine() {
        let path = "crates/console/src/page.rs";
        assert_eq!(lines(path, "accounts.set_member(a);"), [0; 0]);
        assert_eq!(lines(path, "store.add_accounts(a); store.account(b);"), [0; 0]);
        assert_eq!(lines(path, "// store.set_role(a)"), [0; 0]);
        assert_eq!(lines("crates/admin/src/keys.rs", "self.store.add_key(a);"), [0; 0]);
        assert_eq!(lines("crates/console/tests/console/a.rs", "store.add_key(a);"), [0; 0]);
    }

    #[test]
    fn every_exception_has_a_reason() {
        assert!(ALLOWED.iter().all(|(_, reason)| !reason.is_empty()));
    }
}
