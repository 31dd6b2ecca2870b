//! Rules for single files, and the list of required files.

use std::collections::BTreeSet;

use super::finding::Finding;
use crate::workspace::Source;

/// Maximum length of a file. A longer file has more than one purpose.
const MAX_LINES: usize = 600;

/// Files that newcomers, reproducible builds or the checks rely on.
const MUST_EXIST: [&str; 5] = ["Cargo.lock", "README.md", "deny.toml", ".ci/run", "docs/losses.md"];

/// Words of unfinished work, and paths of a single machine. Each is written in two halves, so that
/// this list does not report itself.
const FORBIDDEN: [(&str, &str); 10] = [
    (concat!("to", "do!("), "unfinished code"),
    (concat!("unimpl", "emented!("), "unfinished code"),
    (concat!("#[ig", "nore"), "a test that never runs"),
    (concat!("FIX", "ME"), "leftover"),
    (concat!("XX", "X"), "leftover"),
    (concat!("not impl", "emented yet"), "unfinished work"),
    (concat!("not yet impl", "emented"), "unfinished work"),
    (concat!("/ho", "me/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/wo", "rk/"), "a path of one machine"),
];

/// Reports a file that is too long.
pub(super) fn length(source: &Source) -> Option<Finding> {
    let lines = source.text.lines().count();
    (lines > MAX_LINES).then(|| {
        let rule = format!("{lines} lines, at most {MAX_LINES}: split it by what its parts do");
        Finding::new(&source.path, MAX_LINES + 1, rule)
    })
}

/// Reports a file without an opening paragraph.
pub(super) fn opening(source: &Source) -> Option<Finding> {
    (!source.text.starts_with("//!"))
        .then(|| Finding::new(&source.path, 1, "does not open with a `//!` paragraph"))
}

/// Reports leftovers. Only whole words count: a URL or a checksum may contain the same letters.
pub(super) fn leftovers(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(source.text.lines()) {
        for (word, why) in FORBIDDEN {
            if stands_alone(text, word) {
                findings.push(Finding::new(&source.path, line, format!("`{word}`: {why}")));
            }
        }
    }
    findings
}

fn stands_alone(text: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let ends_open = word.ends_with(part_of_word);
    text.match_indices(word).any(|(at, found)| {
        let before = text.get(..at).and_then(|head| head.chars().next_back());
        let after = text.get(at + found.len()..).and_then(|tail| tail.chars().next());
        // A dot or dash before the word continues a relative path or a host name.
        let inside = |c: char| part_of_word(c) || (word.starts_with('/') && "-.}".contains(c));
        !(before.is_some_and(inside) || ends_open && after.is_some_and(part_of_word))
    })
}

/// Reports `From` between a wire format and canon, because `From` cannot report losses.
pub(super) fn no_from(source: &Source) -> Vec<Finding> {
    if !source.path.starts_with("crates/dialects/") {
        return Vec::new();
    }
    let imported = names_from_canon(&source.text);
    let is_canon = |name: &str| name.starts_with("canon::") || imported.contains(head(name));
    (1..)
        .zip(source.text.lines())
        .filter(|(_, text)| {
            from_impl(text).is_some_and(|(from, to)| is_canon(from) || is_canon(to))
        })
        .map(|(line, _)| {
            let rule = "`From` between a dialect and canon: return `Lossy` instead";
            Finding::new(&source.path, line, rule)
        })
        .collect()
}

/// Returns the two types of `impl From<A> for B` or `impl TryFrom<A> for B`.
fn from_impl(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    if !line.starts_with("impl") {
        return None;
    }
    let (_, rest) = line.split_once("From<")?;
    let (from, to) = rest.split_once("> for ")?;
    Some((from.trim_start_matches('&'), to))
}

/// Returns the names that `use canon::…;` imports. The text up to the semicolon is split at every
/// character that is not part of a name, which is precise enough.
fn names_from_canon(text: &str) -> BTreeSet<&str> {
    text.split("use canon::")
        .skip(1)
        .filter_map(|rest| rest.split(';').next())
        .flat_map(|list| list.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .filter(|name| !name.is_empty())
        .collect()
}

fn head(name: &str) -> &str {
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(name)
}

/// Reports required files that are missing.
pub(super) fn missing_files(paths: &BTreeSet<&str>) -> Vec<Finding> {
    let missing = MUST_EXIST.iter().filter(|path| !paths.contains(**path));
    missing.map(|path| Finding::new(path, 1, "this file must exist")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    #[test]
    fn a_long_file_is_found_at_the_first_line_too_many() {
        assert_eq!(length(&source("a.rs", &"\n".repeat(600))), None);
        assert_eq!(length(&source("a.rs", &"\n".repeat(601))).unwrap().line, 601);
    }

    #[test]
    fn a_file_must_open_with_its_purpose() {
        assert_eq!(opening(&source("a.rs", "//! What it is.\n")), None);
        assert!(opening(&source("a.rs", "// What it is.\n")).is_some());
        assert!(opening(&source("a.rs", "")).is_some());
    }

    #[test]
    fn every_forbidden_word_is_found_where_it_stands() {
        for (word, _) in FORBIDDEN {
            let found = leftovers(&source("a.md", &format!("fine\nsome {word} here\n")));
            assert_eq!(found.len(), 1, "{word}");
            assert_eq!(found[0].line, 2, "{word}");
        }
    }

    #[test]
    fn letters_inside_a_word_or_a_link_are_no_leftovers() {
        let triple = "X".repeat(3);
        for text in [
            format!("checksum = \"a{triple}b\""),
            concat!("https://example.com/ho", "me/page").into(),
            concat!("see crates/wo", "rk/").into(),
            concat!("${GITHUB}/wo", "rk/").into(),
        ] {
            assert_eq!(leftovers(&source("a.md", &text)), [], "{text}");
        }
    }

    #[test]
    fn from_between_a_dialect_and_canon_is_found() {
        for text in [
            "impl From<canon::Chat> for Wire {",
            "impl From<Wire> for canon::Chat {",
            "use canon::Chat;\nimpl From<Chat> for Wire {",
            "use canon::{\n    Chat,\n    Part,\n};\nimpl<'a> TryFrom<&Part> for Wire<'a> {",
        ] {
            let found = no_from(&source("crates/dialects/src/chat/wire.rs", text));
            assert_eq!(found.len(), 1, "{text}");
        }
    }

    #[test]
    fn other_conversions_are_free() {
        let text = "use canon::Chat;\nimpl From<Object> for Value {";
        assert_eq!(no_from(&source("crates/dialects/src/fields.rs", text)), []);
        let text = "impl From<canon::Chat> for Row {";
        assert_eq!(no_from(&source("crates/store/src/row.rs", text)), []);
    }

    #[test]
    fn files_that_must_exist_are_missed() {
        assert_eq!(missing_files(&MUST_EXIST.into_iter().collect()), []);
        assert_eq!(missing_files(&BTreeSet::new()).len(), MUST_EXIST.len());
    }
}
