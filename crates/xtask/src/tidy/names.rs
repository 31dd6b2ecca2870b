//! Type names: one meaning per name, and names that say more than one word.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::Finding;
use super::limits::LIMITS;
use crate::workspace::Source;

/// Type names that two crates may define, each with the reason.
const ALLOWED_TWICE: &[(&str, &str)] = &[];

/// A `struct`, `enum`, `trait` or `union`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TypeDefinition {
    name: String,
    path: String,
    line: usize,
}

/// Checks the type names of the workspace.
pub(super) fn check(files: &[Source]) -> Vec<Finding> {
    let types = definitions(files);
    let mut findings = in_two_crates(&types, ALLOWED_TWICE, LIMITS.names_in_two_crates);
    let shares = [
        ("of one word", one_word(&types), LIMITS.one_word_types_percent),
        ("defined in another file too", doubled(&types), LIMITS.doubled_types_percent),
    ];
    let total = types.len();
    let broken = shares.into_iter().filter(|(_, count, percent)| count * 100 > percent * total);
    findings.extend(broken.map(|(what, count, percent)| {
        let rule = format!("{count} of {total} type names are {what}, at most {percent} %");
        Finding::new("crates/xtask/src/tidy/limits.rs", 1, rule)
    }));
    findings
}

/// The figures in one line, for the end of a run.
pub(super) fn figures(files: &[Source]) -> String {
    let types = definitions(files);
    let tenths = |count: usize| (count * 1000).checked_div(types.len()).unwrap_or_default();
    let (one, doubled) = (tenths(one_word(&types)), tenths(doubled(&types)));
    format!(
        "one-word types {}.{} %, doubled type names {}.{} %, names in two crates {}",
        one / 10,
        one % 10,
        doubled / 10,
        doubled % 10,
        shared(&types, ALLOWED_TWICE).len()
    )
}

/// The types of all crates but those for developers.
fn definitions(files: &[Source]) -> Vec<TypeDefinition> {
    let is_product = |file: &&Source| !["testkit", "xtask"].contains(&crate_of(&file.path));
    let mut types = Vec::new();
    for file in files.iter().filter(is_product) {
        for (line, text) in (1..).zip(file.text.lines()) {
            if let Some(name) = defined(text) {
                types.push(TypeDefinition { name: name.into(), path: file.path.clone(), line });
            }
        }
    }
    types
}

/// The name of the type that a line of code defines.
fn defined(line: &str) -> Option<&str> {
    let mut line = line.trim_start();
    if let Some(rest) = line.strip_prefix("pub") {
        line = match rest.strip_prefix('(') {
            Some(scope) => scope.split_once(')')?.1,
            None => rest,
        }
        .trim_start();
    }
    let (word, rest) = line.split_once(' ')?;
    matches!(word, "struct" | "enum" | "trait" | "union").then_some(())?;
    let name = rest.trim_start();
    let name = name.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    name.starts_with(char::is_uppercase).then_some(name)
}

fn in_two_crates(types: &[TypeDefinition], allowed: &[(&str, &str)], limit: usize) -> Vec<Finding> {
    let shared = shared(types, allowed);
    if shared.len() <= limit {
        return Vec::new();
    }
    shared
        .into_iter()
        .filter_map(|(name, places)| {
            let (first, others) = places.split_first()?;
            let others: Vec<_> = others.iter().map(|place| place.path.as_str()).collect();
            let rule =
                format!("type `{name}` is defined in another crate too: {}", others.join(", "));
            Some(Finding::new(&first.path, first.line, rule))
        })
        .collect()
}

/// The names that several crates define without a reason on the list.
fn shared<'a>(
    types: &'a [TypeDefinition],
    allowed: &[(&str, &str)],
) -> BTreeMap<&'a str, Vec<&'a TypeDefinition>> {
    let mut places: BTreeMap<&str, Vec<&TypeDefinition>> = BTreeMap::new();
    for definition in types {
        places.entry(&definition.name).or_default().push(definition);
    }
    places.retain(|name, places| {
        let crates: BTreeSet<_> = places.iter().map(|place| crate_of(&place.path)).collect();
        crates.len() > 1 && !allowed.iter().any(|(explained, _)| explained == name)
    });
    places
}

fn crate_of(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or(path)
}

fn one_word(types: &[TypeDefinition]) -> usize {
    types.iter().filter(|definition| words(&definition.name) == 1).count()
}

/// Number of files that define a name which another file defines too.
fn doubled(types: &[TypeDefinition]) -> usize {
    let mut files: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for definition in types {
        files.entry(&definition.name).or_default().insert(&definition.path);
    }
    files.values().map(BTreeSet::len).filter(|count| *count > 1).sum()
}

/// Number of words in a name in camel case. A run of capitals is one word: `HttpError` and
/// `HTTPError` have two.
fn words(name: &str) -> usize {
    let chars: Vec<char> = name.chars().collect();
    let begins = |at: usize| {
        let is = |index: Option<usize>, test: fn(char) -> bool| {
            index.and_then(|index| chars.get(index)).is_some_and(|c| test(*c))
        };
        is(Some(at), char::is_uppercase)
            && (!is(at.checked_sub(1), char::is_uppercase) || is(Some(at + 1), char::is_lowercase))
    };
    (0..chars.len()).filter(|at| begins(*at)).count()
}

#[cfg(test)]
mod tests {
    use super::super::code::product_files;
    use super::*;

    fn types(files: &[(&str, &str)]) -> Vec<TypeDefinition> {
        let source =
            |(path, text): &(&str, &str)| Source { path: (*path).into(), text: (*text).into() };
        definitions(&product_files(&files.iter().map(source).collect::<Vec<_>>()))
    }

    #[test]
    fn definitions_are_found_whatever_their_visibility() {
        let text =
            "pub struct A;\npub(crate) enum B<T> {}\n    trait C {}\n// struct D;\nfn e() {}";
        let found = types(&[("crates/a/src/lib.rs", text), ("crates/xtask/src/main.rs", text)]);
        let names: Vec<_> = found.iter().map(|definition| definition.name.as_str()).collect();
        assert_eq!(names, ["A", "B", "C"]);
    }

    #[test]
    fn a_name_in_two_crates_needs_a_reason() {
        let found = types(&[
            ("crates/a/src/lib.rs", "struct Route;"),
            ("crates/b/src/lib.rs", "struct Route;\nstruct Other;"),
            ("crates/b/src/c.rs", "struct Other;"),
        ]);
        let told = in_two_crates(&found, &[], 0);
        assert_eq!(told.len(), 1);
        assert_eq!(
            told[0].to_string(),
            "crates/a/src/lib.rs:1: type `Route` is defined in another crate too: crates/b/src/lib.rs"
        );
        assert_eq!(in_two_crates(&found, &[("Route", "two kinds of road")], 0), []);
        assert_eq!(in_two_crates(&found, &[], 1), []);
    }

    #[test]
    fn shares_count_words_and_files() {
        let found = types(&[
            ("crates/a/src/lib.rs", "struct Route;\nstruct RouteTable;"),
            ("crates/a/src/b.rs", "struct Route;\nstruct Other;"),
        ]);
        assert_eq!((one_word(&found), doubled(&found), found.len()), (3, 2, 4));
    }

    #[test]
    fn words_of_a_name_are_counted() {
        for (name, count) in [
            ("Route", 1),
            ("HttpError", 2),
            ("HTTPError", 2),
            ("SigV4", 2),
            ("OAuth", 2),
            ("Url", 1),
        ] {
            assert_eq!(words(name), count, "{name}");
        }
    }

    #[test]
    fn every_exception_has_a_reason() {
        assert!(ALLOWED_TWICE.iter().all(|(_, reason)| !reason.is_empty()));
    }
}
