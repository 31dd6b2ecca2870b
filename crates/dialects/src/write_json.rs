//! Values that are written as JSON without a tree between.

use serde_json::{Map, Value};
use std::borrow::Cow;

use crate::fields::ObjectWriter;
use crate::json;

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
        write_items(*b"[]", self, out, WriteJson::write_json);
    }
}

/// The content of a message: a single plain text, or a list of parts.
pub(crate) enum TextOrParts<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<ObjectWriter>),
}

impl TextOrParts<'_> {
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
