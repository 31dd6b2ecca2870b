//! Strings borrowed from the input unless they contain escapes, and the spelling of field names. Serde's `Option<Cow<str>>` always
//! copies: <https://github.com/serde-rs/serde/issues/2016>.

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use std::borrow::Cow;
use std::fmt;

/// A string borrowed from the input if possible.
#[derive(Clone, Debug, Default)]
pub(crate) struct BorrowedText<'a>(pub(crate) Cow<'a, str>);

impl BorrowedText<'_> {
    pub(crate) fn into_owned(self) -> String {
        self.0.into_owned()
    }
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

impl<'de: 'a, 'a> Deserialize<'de> for BorrowedText<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = BorrowedText<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<BorrowedText<'de>, E> {
                Ok(BorrowedText(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<BorrowedText<'de>, E> {
                Ok(BorrowedText(Cow::Owned(text.to_owned())))
            }

            fn visit_string<E>(self, text: String) -> Result<BorrowedText<'de>, E> {
                Ok(BorrowedText(Cow::Owned(text)))
            }
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
    let mut raise = false;
    for letter in name.chars() {
        match letter {
            '_' => raise = true,
            _ if raise => {
                out.push(letter.to_ascii_uppercase());
                raise = false;
            }
            _ => out.push(letter),
        }
    }
    Cow::Owned(out)
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
