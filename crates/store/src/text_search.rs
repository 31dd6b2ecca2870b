//! The search for a text in a column, whatever the case of its letters.
//!
//! `LOWER` changes only ASCII letters in SQLite, and in PostgreSQL those that the locale of the cluster has. So the
//! other letters of the text are replaced in the column too, and both databases find the same rows.

use sqlx::{Database, Encode, QueryBuilder, Type};

use crate::db::clean;

/// Letters outside of ASCII whose case does not count. Each is a call in the statement, and the databases bound how
/// deep calls may be nested.
const MAX_LETTERS: usize = 64;

/// Pushes the condition that a column contains a text.
pub(crate) fn push_contains<D: Database>(query: &mut QueryBuilder<D>, column: &str, text: &str)
where
    String: Type<D> + for<'q> Encode<'q, D>,
{
    let (text, letters) = folded(&clean(text));
    for _ in &letters {
        query.push("REPLACE(");
    }
    query.push("LOWER(").push(column).push(")");
    for (from, to) in letters {
        query.push(", ").push_bind(from.to_string());
        query.push(", ").push_bind(to.to_string()).push(")");
    }
    query.push(" LIKE LOWER(").push_bind(like_pattern(&text)).push(") ESCAPE '\\'");
}

/// Returns the text with small letters, and the letters that become small ones in the column.
fn folded(text: &str) -> (String, Vec<(char, char)>) {
    let mut letters = Vec::new();
    let mut small_text = String::with_capacity(text.len());
    for letter in text.chars() {
        let (large, small) = cases(letter);
        let forms = [large, letter].map(|form| (form, small));
        let new = forms.into_iter().filter(|pair| pair.0 != small && !letters.contains(pair));
        let mut new: Vec<_> = new.collect();
        new.dedup();
        if letters.len() + new.len() <= MAX_LETTERS {
            letters.extend(new);
            small_text.push(small);
        } else {
            small_text.push(letter);
        }
    }
    (small_text, letters)
}

/// Returns the large and the small form of a letter. `LOWER` has the forms of ASCII, and a letter with a form of
/// several letters is its own.
fn cases(letter: char) -> (char, char) {
    fn only(mut forms: impl Iterator<Item = char>) -> Option<char> {
        forms.next().filter(|form| !form.is_ascii() && forms.next().is_none())
    }
    let forms =
        only(letter.to_uppercase()).and_then(|large| Some((large, only(large.to_lowercase())?)));
    forms.unwrap_or((letter, letter))
}

/// Returns the pattern of texts that contain this one, for `LIKE … ESCAPE '\\'`.
fn like_pattern(text: &str) -> String {
    let mut pattern = String::from("%");
    for letter in text.chars() {
        if matches!(letter, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern.push('%');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_outside_of_ascii_are_small_ones() {
        for (text, small, letters) in [
            ("Abc", "Abc", &[][..]),
            ("ÄäÖ", "ääö", &[('Ä', 'ä'), ('Ö', 'ö')]),
            ("日本ßı\u{212a}", "日本ßı\u{212a}", &[]),
            // A letter at the end of a word has a form of its own.
            ("ς", "σ", &[('Σ', 'σ'), ('ς', 'σ')]),
        ] {
            assert_eq!(folded(text), (small.to_owned(), letters.to_vec()), "{text}");
        }
        let many: String = ('\u{430}'..='\u{4ff}').collect();
        assert_eq!(folded(&many).1.len(), MAX_LETTERS);
    }
}
