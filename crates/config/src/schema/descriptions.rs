//! Descriptions of keys: the comments behind them in the example configuration.

use std::collections::BTreeMap;

/// The example configuration, which explains every key.
pub(super) const EXAMPLE: &str = include_str!("../../../../config/portunus.toml");

/// Tables whose entries have names that the operator chooses.
const NAMED_TABLES: [&str; 4] = ["providers", "models", "identity", "mcp.servers"];

/// Comments by dotted path, with `*` for a name that the operator chooses.
pub(super) struct Descriptions(BTreeMap<String, String>);

impl Descriptions {
    /// Reads the comments of the example.
    pub(super) fn of_example() -> Self {
        Self::read(EXAMPLE)
    }

    /// Returns the description of a path.
    pub(super) fn of(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    fn read(text: &str) -> Self {
        let mut found: BTreeMap<String, String> = BTreeMap::new();
        let mut section = String::new();
        let mut open: Option<String> = None;
        for line in text.lines() {
            let bare = line.strip_prefix("# ").unwrap_or(line);
            if let Some((head, _)) = bare.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                section = any_name(head);
                open = None;
            } else if let Some((key, comment)) = key_and_comment(bare) {
                let path = format!("{section}.{key}");
                open = comment.is_some().then(|| path.clone());
                // The first entry explains a key that several entries have.
                if let Some(comment) = comment {
                    found.entry(path).or_insert_with(|| comment.to_owned());
                }
            } else if let (Some(path), Some(more)) = (&open, continued(line)) {
                if let Some(description) = found.get_mut(path) {
                    description.push(' ');
                    description.push_str(more);
                }
            } else {
                open = None;
            }
        }
        Self(found)
    }
}

/// Replaces the name of an entry by `*`.
fn any_name(head: &str) -> String {
    let named = NAMED_TABLES
        .iter()
        .find(|table| head.strip_prefix(**table).is_some_and(|rest| rest.starts_with('.')));
    named.map_or_else(|| head.to_owned(), |table| format!("{table}.*"))
}

/// Splits `key = value  # comment`.
fn key_and_comment(line: &str) -> Option<(&str, Option<&str>)> {
    let (key, value) = line.split_once('=')?;
    let key = key.trim();
    let is_key = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    if key.is_empty() || !key.chars().all(is_key) {
        return None;
    }
    let comment =
        value.split_once("  #").or_else(|| value.split_once(" # ")).map(|(_, c)| c.trim());
    Some((key, comment.filter(|comment| !comment.is_empty())))
}

/// Returns the text of a comment that stands far to the right, as the continuation of the line above.
fn continued(line: &str) -> Option<&str> {
    let indented = line.strip_prefix("          ").or_else(|| line.strip_prefix("#          "))?;
    indented.trim_start().strip_prefix('#').map(str::trim)
}
