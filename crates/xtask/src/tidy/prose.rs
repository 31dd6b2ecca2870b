//! Comments: each opens with a noun phrase or a verb, as rustdoc's own pages do.

use super::finding::Finding;
use super::limits::LIMITS;
use crate::workspace::Source;

/// First words of a relative clause. A clause of this kind has no subject, so that a reader has to
/// guess the noun.
const RELATIVE: [&str; 17] = [
    "What",
    "How",
    "Whether",
    "Who",
    "Whom",
    "Whose",
    "Where",
    "Which",
    "Why",
    "Whoever",
    "Whatever",
    "Every how",
    "By what",
    "As long",
    "As many",
    "As much",
    "Of which",
];

/// Reports comments that open with a relative clause, if there are more than the limit allows.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let found = relative_clauses(sources);
    if found.len() > LIMITS.relative_clauses { found } else { Vec::new() }
}

/// All comments that open with a relative clause.
pub(super) fn relative_clauses(sources: &[Source]) -> Vec<Finding> {
    let rust = sources.iter().filter(|source| {
        source.path.ends_with(".rs")
            && (source.path.starts_with("crates/") || source.path.starts_with("fuzz/"))
    });
    rust.flat_map(in_file).collect()
}

fn in_file(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut inside = false;
    for (line, text) in (1..).zip(source.text.lines()) {
        let text = text.trim_start();
        let comment = text.starts_with("//").then(|| text.trim_start_matches(['/', '!', ' ']));
        // A paragraph begins behind a line of code or an empty comment line.
        if let Some(opening) = comment.filter(|_| !inside).and_then(relative_opening) {
            let rule = format!("the comment opens with \"{opening}\": begin with the noun");
            findings.push(Finding::new(&source.path, line, rule));
        }
        inside = comment.is_some_and(|words| !words.is_empty());
    }
    findings
}

fn relative_opening(comment: &str) -> Option<&'static str> {
    let opens = |words: &&&str| {
        let rest = comment.strip_prefix(**words);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '\''))
    };
    RELATIVE.iter().find(opens).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let source = Source { path: "crates/a/src/lib.rs".into(), text: text.into() };
        in_file(&source).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_comment_that_opens_with_a_relative_clause_is_found() {
        for word in RELATIVE {
            assert_eq!(lines(&format!("//! {word} it is.\n")), [1], "{word}");
            assert_eq!(lines(&format!("/// Fine.\n///\n/// {word} it is.\n")), [3], "{word}");
            assert_eq!(lines(&format!("fn a() {{}}\n    // {word} it is.\n")), [2], "{word}");
        }
    }

    #[test]
    fn a_clause_inside_a_paragraph_is_fine() {
        assert_eq!(lines("/// Returns the word.\n/// What follows is ignored.\n"), [0; 0]);
        assert_eq!(lines("/// Whole answers.\n/// Whose's.\nlet a = \"// What\";\n"), [0; 0]);
    }
}
