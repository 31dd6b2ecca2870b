//! Strings borrowed from the input unless they contain escapes, and the spelling of field names. Serde's `Option<Cow<str>>` always
//! copies: <https://github.com/serde-rs/serde/issues/2016>.

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// The methods of a visitor that takes a text, borrowed if possible.
macro_rules! visit_text {
    ($de:lifetime, $take:expr) => {
        fn visit_borrowed_str<E>(self, text: &$de str) -> Result<Self::Value, E> {
            Ok($take(::std::borrow::Cow::Borrowed(text)))
        }
        fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
            Ok($take(::std::borrow::Cow::Owned(text.to_owned())))
        }
        fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
            Ok($take(::std::borrow::Cow::Owned(text)))
        }
    };
}
pub(crate) use visit_text;

/// A string borrowed from the input if possible.
#[derive(Clone, Debug, Default)]
pub(crate) struct BorrowedText<'a>(pub(crate) Cow<'a, str>);

impl BorrowedText<'_> {
    pub(crate) fn into_owned(self) -> String {
        self.0.into_owned()
    }
}

/// Returns the number of characters. Most texts are ASCII, which takes less work to see than to count.
pub(crate) fn char_count(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

/// Returns the text of a field; an empty one if there is none.
pub(crate) fn owned(text: Option<BorrowedText<'_>>) -> String {
    text.map(BorrowedText::into_owned).unwrap_or_default()
}

impl std::ops::Deref for BorrowedText<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// Returns the text of a field, unless it is empty.
pub(crate) fn present(text: Option<BorrowedText<'_>>) -> Option<String> {
    text.map(BorrowedText::into_owned).filter(|text| !text.is_empty())
}

impl From<BorrowedText<'_>> for Value {
    fn from(text: BorrowedText<'_>) -> Self {
        Self::from(text.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for BorrowedText<'a> {
    #[inline]
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = BorrowedText<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            visit_text!('de, BorrowedText);
        }
        from.deserialize_str(TextVisitor)
    }
}

/// Converts a field name to camelCase.
pub(crate) fn to_camel_case(name: &str) -> Cow<'_, str> {
    if !name.contains('_') || name.starts_with('_') {
        return Cow::Borrowed(name);
    }
    let mut out = String::with_capacity(name.len());
    for word in name.split('_') {
        let mut letters = word.chars();
        let first = letters.next();
        let is_first_word = out.is_empty();
        out.extend(first.map(|c| if is_first_word { c } else { c.to_ascii_uppercase() }));
        out.push_str(letters.as_str());
    }
    Cow::Owned(out)
}

/// Returns the value of a word.
pub(crate) fn by_word<T: Copy>(table: &[(T, &str)], word: &str) -> Option<T> {
    table.iter().find(|(_, own)| *own == word).map(|(value, _)| *value)
}

/// Returns the word of a value.
pub(crate) fn word_for<T: PartialEq>(
    table: &[(T, &'static str)],
    value: &T,
) -> Option<&'static str> {
    table.iter().find(|(own, _)| own == value).map(|(_, word)| *word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct BorrowedFields<'a> {
        #[serde(borrow, default)]
        text: Option<BorrowedText<'a>>,
    }

    #[test]
    fn borrows_strings_without_escapes() {
        let read = |json| serde_json::from_str::<BorrowedFields<'_>>(json).map(|said| said.text);
        let plain = read(r#"{"text":"as it stands"}"#).unwrap();
        assert!(matches!(plain, Some(BorrowedText(Cow::Borrowed("as it stands")))));
        let escaped = read(r#"{"text":"a\nb"}"#).unwrap();
        assert!(matches!(escaped, Some(BorrowedText(Cow::Owned(text))) if text == "a\nb"));
        assert!(read(r#"{"text":null}"#).unwrap().is_none());
        assert!(read("{}").unwrap().is_none());
        let wrong = read(r#"{"text":5}"#).map(|_| ()).unwrap_err().to_string();
        assert!(wrong.contains("invalid type: integer `5`, expected a string"), "{wrong}");
    }

    #[test]
    fn field_names_are_read_in_either_spelling() {
        for (name, expected) in [
            ("inline_data", "inlineData"),
            ("inlineData", "inlineData"),
            ("parameters_json_schema", "parametersJsonSchema"),
            ("_private", "_private"),
            ("top_k", "topK"),
        ] {
            assert_eq!(to_camel_case(name), expected);
        }
    }
}
