//! Writes of the store and uses of the vault that need rights, checks and a line in the audit log.
//!
//! The use cases of `admin` change the store with an `AuditedChange`, which stores a change and its
//! line together. The same methods of the store itself write no line, so that only tests call them.
//! A second caller of the vault would be a second place for the rules of the same change.

use super::finding::Finding;
use crate::workspace::Source;

/// Paths that may call all methods, each with the reason.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/store/", "the methods themselves"),
    ("crates/testkit/", "tests put a state into the store without asking for rights"),
];

/// Methods by the name of the value they are called on, and the path that may call them as well.
const METHODS: [(&str, &[&str], Option<&str>); 6] = [
    ("store", &ACCOUNT_WRITES, None),
    ("store", &CONFIG_WRITES, None),
    ("store", &SIGN_IN_WRITES, Some("crates/admin/")),
    ("store", &["begin_change"], Some("crates/admin/")),
    ("change", &["commit_unaudited"], Some("crates/admin/src/account_admin.rs")),
    ("vault", &VAULT_WRITES, Some("crates/admin/")),
];

/// Methods of the store that a sign-in needs, which has a line of its own.
const SIGN_IN_WRITES: [&str; 2] = ["drop_factor", "seal_factor"];

/// Methods of the store that change providers, models, credentials and settings.
const CONFIG_WRITES: [&str; 3] = ["configure", "put_setting", "take_setting"];

/// Methods of the vault that seal secrets.
const VAULT_WRITES: [&str; 2] = ["sealer", "rekey"];

/// Methods of the store that change accounts, terms, teams, keys and ways to sign in.
const ACCOUNT_WRITES: [&str; 23] = [
    "add_account",
    "add_account_with_identity",
    "add_account_with_terms",
    "rename_account",
    "change_person",
    "change_roles",
    "set_disabled",
    "set_account_limits",
    "set_account_terms",
    "add_team",
    "add_team_with_terms",
    "set_member",
    "set_members",
    "add_key",
    "revoke_key",
    "rotate_key",
    "update_key",
    "set_password",
    "add_factor",
    "replace_factors",
    "add_identity",
    "drop_identity",
    "drop_sessions_of",
];

/// Reports calls of these methods outside the allowed crates.
pub(super) fn check(files: &[Source]) -> Vec<Finding> {
    let is_allowed = |file: &Source| ALLOWED.iter().any(|(path, _)| file.path.starts_with(path));
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !is_allowed(file)) {
        for (receiver, methods, allowed) in METHODS {
            if allowed.is_some_and(|path| file.path.starts_with(path)) {
                continue;
            }
            for method in methods {
                let rule = format!(
                    "`{receiver}.{method}` writes no line of the audit log: call the use case, or in \
                     `admin` an `AuditedChange`"
                );
                for line in calls(&file.text, receiver, method) {
                    findings.push(Finding::new(&file.path, line, rule.clone()));
                }
            }
        }
    }
    findings
}

/// Line of every `receiver.method(`, also where the call is spread over lines.
fn calls<'a>(
    text: &'a str,
    receiver: &'a str,
    method: &'a str,
) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(method).filter_map(move |(at, _)| {
        let (before, after) = (text.get(..at)?, text.get(at + method.len()..)?);
        let value = before.strip_suffix('.')?.trim_end();
        let value = value.strip_suffix("()").unwrap_or(value);
        let is_call = value.ends_with(receiver) && after.starts_with('(');
        is_call.then(|| before.lines().count())
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
        assert_eq!(lines(path, "fn a() {\n    state.store.change_person(a);\n}"), [2]);
        assert_eq!(lines(path, "state\n    .store\n    .add_team(a);"), [3]);
        assert_eq!(lines(path, "app.store().add_key(a); store.add_key(b);"), [1, 1]);
        assert_eq!(lines(path, "store.configure(1, a);\nstore.put_setting(a, b);"), [1, 2]);
        assert_eq!(lines(path, "store.take_setting(a);\nhost.vault().sealer();"), [1, 2]);
    }

    #[test]
    fn a_write_of_admin_without_a_line_is_found() {
        let path = "crates/admin/src/keys.rs";
        assert_eq!(lines(path, "self.store.add_key(a);\nchange.commit_unaudited();"), [1, 2]);
        assert_eq!(lines("crates/console/src/page.rs", "state.store.begin_change();"), [1]);
    }

    #[test]
    fn use_cases_reads_and_tests_are_fine() {
        let path = "crates/console/src/page.rs";
        assert_eq!(lines(path, "accounts.set_member(a);"), [0; 0]);
        assert_eq!(lines(path, "store.add_accounts(a); store.account(b);"), [0; 0]);
        assert_eq!(lines(path, "// store.change_person(a)"), [0; 0]);
        assert_eq!(lines(path, "store.setting(a); app.reconfigure(b); vault.open(c);"), [0; 0]);
        let path = "crates/admin/src/keys.rs";
        assert_eq!(lines(path, "self.store.begin_change(); change.add_key(a);"), [0; 0]);
        assert_eq!(lines(path, "self.store.seal_factor(a); self.vault.sealer();"), [0; 0]);
        assert_eq!(lines("crates/console/tests/console/a.rs", "store.add_key(a);"), [0; 0]);
    }

    #[test]
    fn every_exception_has_a_reason() {
        assert!(ALLOWED.iter().all(|(_, reason)| !reason.is_empty()));
    }
}
