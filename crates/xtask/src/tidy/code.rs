//! Rust source text reduced to the code that ships: without comments, literals and tests.
//!
//! Removed characters become spaces, so that line numbers stay what they are in the file.

use crate::workspace::Source;

/// True for files that hold only tests, examples or benchmarks.
fn is_test_file(path: &str) -> bool {
    let folder = |name: &str| path.contains(&format!("/{name}/"));
    let file = |name: &str| path.ends_with(&format!("/{name}.rs"));
    folder("tests")
        || folder("examples")
        || folder("benches")
        || file("tests")
        || file("laws")
        || path.starts_with("fuzz/")
}

/// The Rust files of all crates that ship, each reduced by [`product_code`].
pub(super) fn product_files(sources: &[Source]) -> Vec<Source> {
    let product = sources.iter().filter(|source| {
        let path = &source.path;
        path.starts_with("crates/") && path.ends_with(".rs") && !is_test_file(path)
    });
    product
        .map(|source| Source { path: source.path.clone(), text: product_code(&source.text) })
        .collect()
}

/// The text without comments, literals and items under `#[cfg(test)]`.
fn product_code(text: &str) -> String {
    without_tests(&without_literals(text))
}

/// The text without comments and without the content of string and character literals.
fn without_literals(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let mut code = String::with_capacity(text.len());
    let mut next = 0;
    while next < chars.len() {
        let end = match (at(next), at(next + 1)) {
            ('/', '/') => find(&chars, next, |rest| rest.starts_with(&['\n'])),
            ('/', '*') => block_comment_end(&chars, next),
            ('"', _) => string_end(&chars, next + 1),
            ('r', '"' | '#') if !is_name(at(next.wrapping_sub(1))) || raw_prefix(&chars, next) => {
                raw_string_end(&chars, next).unwrap_or(next)
            }
            ('\'', _) => char_end(&chars, next).unwrap_or(next),
            _ => next,
        };
        if end == next {
            code.push(at(next));
            next += 1;
        } else {
            blank(chars.get(next..end).unwrap_or_default(), &mut code);
            next = end;
        }
    }
    code
}

/// The text without the items that only a test build compiles.
fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    while let Some((before, marked)) = rest.split_once(MARK) {
        kept.push_str(before);
        let length = item_length(marked);
        let (item, after) = marked.split_at_checked(length).unwrap_or((marked, ""));
        blank(&[' '; MARK.len()], &mut kept);
        blank(&item.chars().collect::<Vec<_>>(), &mut kept);
        rest = after;
    }
    kept.push_str(rest);
    kept
}

/// The length in bytes of the item at the beginning of the text. It ends behind the first
/// semicolon outside brackets or behind its body; a `use` ends with its semicolon only.
fn item_length(text: &str) -> usize {
    let mut depth = 0_usize;
    let words = || text.split(|c: char| !is_name(c)).filter(|word| !word.is_empty());
    let is_import = words().find(|word| !matches!(*word, "pub" | "crate" | "super")) == Some("use");
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && c == '}' && !is_import {
                    return at + 1;
                }
            }
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn blank(chars: &[char], code: &mut String) {
    code.extend(chars.iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
}

pub(super) fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The first index from `from` on whose rest satisfies the condition, or the end.
fn find(chars: &[char], from: usize, stop: impl Fn(&[char]) -> bool) -> usize {
    (from..chars.len())
        .find(|index| stop(chars.get(*index..).unwrap_or_default()))
        .unwrap_or(chars.len())
}

fn block_comment_end(chars: &[char], from: usize) -> usize {
    let mut depth = 0_usize;
    let mut next = from;
    while let Some(rest) = chars.get(next..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with(&['/', '*']) {
            depth += 1;
            next += 2;
        } else if rest.starts_with(&['*', '/']) {
            depth -= 1;
            next += 2;
            if depth == 0 {
                break;
            }
        } else {
            next += 1;
        }
    }
    next.min(chars.len())
}

fn string_end(chars: &[char], from: usize) -> usize {
    let mut next = from;
    loop {
        match chars.get(next) {
            Some('\\') => next += 2,
            Some('"') => return next + 1,
            Some(_) => next += 1,
            None => return chars.len(),
        }
    }
}

/// True if the `r` at that index follows the `b` or `c` of a byte or C string.
fn raw_prefix(chars: &[char], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).and_then(|index| chars.get(index)).copied();
    matches!(before(1), Some('b' | 'c')) && !before(2).is_some_and(is_name)
}

fn raw_string_end(chars: &[char], from: usize) -> Option<usize> {
    let hashes = chars.get(from + 1..)?.iter().take_while(|c| **c == '#').count();
    let open = from + 1 + hashes;
    (chars.get(open) == Some(&'"')).then_some(())?;
    let mut close = vec!['"'];
    close.extend(std::iter::repeat_n('#', hashes));
    Some((find(chars, open + 1, |rest| rest.starts_with(&close)) + close.len()).min(chars.len()))
}

/// The end of a character literal; `None` for a lifetime.
fn char_end(chars: &[char], from: usize) -> Option<usize> {
    if chars.get(from + 1) == Some(&'\\') {
        return Some(
            (find(chars, from + 3, |rest| rest.starts_with(&['\''])) + 1).min(chars.len()),
        );
    }
    (chars.get(from + 2) == Some(&'\'')).then_some(from + 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_become_spaces() {
        for (text, code) in [
            ("a // b\nc", "a     \nc"),
            ("a/*/*b*/*/c", "a         c"),
            ("a(\"b\\\"c\", d)", "a(      , d)"),
            ("a(r#\"b\"c\"#, br\"d\", e)", "a(        , b    , e)"),
            ("a('b', '\\'', c)", "a(   ,     , c)"),
            ("fn a<'b>(c: &'b str)", "fn a<'b>(c: &'b str)"),
            ("for r in pair", "for r in pair"),
        ] {
            assert_eq!(without_literals(text), code, "{text}");
        }
    }

    #[test]
    fn test_items_become_spaces_and_lines_stay() {
        let text = "use a;\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nuse c;\n";
        assert_eq!(
            product_code(text).split_whitespace().collect::<Vec<_>>(),
            ["use", "a;", "use", "c;"]
        );
        assert_eq!(product_code(text).lines().count(), text.lines().count());
        assert_eq!(product_code("#[cfg(test)]\nuse a::{b, c};\nd").trim(), "d");
        assert_eq!(product_code("#[cfg(test)]\nmod tests;\nd").trim(), "d");
        assert_eq!(product_code("#[cfg(test)]\nconst A: [u8; 2] = [0; 2];\nd").trim(), "d");
    }

    #[test]
    fn test_files_are_known_by_their_path() {
        for path in ["crates/a/tests/b.rs", "crates/a/src/b/tests.rs", "fuzz/fuzz_targets/a.rs"] {
            assert!(is_test_file(path), "{path}");
        }
        assert!(!is_test_file("crates/a/src/contests.rs"));
    }
}
