//! Values that are written as JSON without a tree between.

use canon::ToolCall;
use serde_json::{Map, Value};
use std::borrow::Cow;

use crate::fields::ObjectWriter;
use crate::{json, json_reader};

/// A value that can be written.
pub(crate) trait WriteJson {
    fn write_json(&self, out: &mut Vec<u8>);
}

macro_rules! write_by {
    ($write:path: $($kind:ty),*) => {
        $(impl WriteJson for $kind {
            fn write_json(&self, out: &mut Vec<u8>) {
                $write(self, out);
            }
        })*
    };
}

write_by!(json::write_value: bool, u8, u16, u32, u64, usize, i32, i64, f64);
write_by!(json::write_string: &str, String);

/// Writes a list or an object.
fn write_items<T>(
    brackets: [u8; 2],
    items: impl IntoIterator<Item = T>,
    out: &mut Vec<u8>,
    write: impl Fn(T, &mut Vec<u8>),
) {
    let [open, close] = brackets;
    out.push(open);
    let start = out.len();
    for item in items {
        if canon::is_abandoned() {
            break;
        }
        if out.len() > start {
            out.push(b',');
        }
        write(item, out);
    }
    out.push(close);
}

impl WriteJson for Value {
    fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Self::String(text) => json::write_string(text, out),
            Self::Array(items) => items.write_json(out),
            Self::Object(fields) => fields.write_json(out),
            Self::Null | Self::Bool(_) | Self::Number(_) => json::write_value(self, out),
        }
    }
}

impl WriteJson for Map<String, Value> {
    fn write_json(&self, out: &mut Vec<u8>) {
        write_items(*b"{}", self, out, |(name, value), out| {
            json::write_string(name, out);
            out.push(b':');
            value.write_json(out);
        });
    }
}

impl<T: WriteJson> WriteJson for Option<T> {
    fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Some(value) => value.write_json(out),
            None => out.extend_from_slice(b"null"),
        }
    }
}

impl<T: WriteJson> WriteJson for Vec<T> {
    fn write_json(&self, out: &mut Vec<u8>) {
        self.as_slice().write_json(out);
    }
}

impl<T: WriteJson> WriteJson for &[T] {
    fn write_json(&self, out: &mut Vec<u8>) {
        write_items(*b"[]", *self, out, WriteJson::write_json);
    }
}

/// The content of a message: a single plain text, or a list of parts.
pub(crate) enum TextOrParts<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<ObjectWriter>),
}

impl TextOrParts<'_> {
    /// Returns the length of a single text.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Parts(_) => 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Parts(parts) if parts.is_empty())
    }
}

impl WriteJson for TextOrParts<'_> {
    fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => json::write_string(text, out),
            Self::Parts(parts) => parts.write_json(out),
        }
    }
}

/// A text that is a JSON object, byte for byte. Another text becomes the only field of an object,
/// because a malformed call in the history must not break the request.
pub(crate) struct ObjectText<'a> {
    text: &'a str,
    /// The name of that field.
    field: &'static str,
    pub(crate) is_object: bool,
}

impl<'a> ObjectText<'a> {
    pub(crate) fn new(text: &'a str, field: &'static str) -> Self {
        let object = text.trim();
        let is_object = object.starts_with('{')
            && json_reader::is_value(object)
            && !canon::has_reserved_name(object.as_bytes());
        Self { text, field, is_object }
    }

    /// The arguments of a call.
    pub(crate) fn of_call(call: &'a ToolCall) -> Self {
        match call.arguments.trim() {
            _ if call.custom => Self { text: &call.arguments, field: "input", is_object: false },
            "" => Self::new("{}", ""),
            _ => Self::new(&call.arguments, "_raw"),
        }
    }

    /// Returns the JSON of the object.
    pub(crate) fn to_json(&self) -> String {
        if self.is_object {
            return json::without_half_characters(self.text.trim());
        }
        let object = ObjectWriter::new().set(self.field, self.text).into_json();
        String::from_utf8(object).unwrap_or_default()
    }
}

impl WriteJson for ObjectText<'_> {
    fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.to_json().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(arguments: &str, custom: bool) -> String {
        let (id, name, arguments) = (String::new(), String::new(), arguments.to_owned());
        let mut out = Vec::new();
        ObjectText::of_call(&ToolCall { id, name, arguments, custom }).write_json(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn arguments_keep_every_byte_of_an_object() {
        for exact in [
            r#"{"id":123456789012345678901234567890,"b":0.1000,"a":2}"#,
            "{ \"pretty\":\n\t\"é\\u00e9\" }",
            r#"{"huge":[1e400,-1E+999,2]}"#,
            "{}",
        ] {
            assert_eq!(written(exact, false), exact);
        }
        assert_eq!(written(" \n", false), "{}");
        assert_eq!(written(r#" {"a":"\ud83d"} "#, false), r#"{"a":"\ufffd"}"#);
    }

    #[test]
    fn other_arguments_are_a_field_of_an_object() {
        let deep = "[".repeat(100_000);
        let deep = format!("{{\"a\":{deep}");
        let reserved = format!("{{\"{}\":\"1\"}}", canon::RESERVED_NAME);
        for broken in ["{", "[1]", "{\"a\":1e}", "{\"a\":01}", "no", "{} x", &deep, &reserved] {
            let object: Map<String, Value> = serde_json::from_str(&written(broken, false)).unwrap();
            assert_eq!(object.iter().collect::<Vec<_>>(), [(&"_raw".to_owned(), &broken.into())]);
        }
        assert_eq!(written("free", true), r#"{"input":"free"}"#);
    }
}
