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

write_by!(json::write_value: Value, Map<String, Value>, bool, u8, u16, u32, u64, usize, i32, i64, f64);
write_by!(json::write_string: &str, String);

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
        out.push(b'[');
        for (at, item) in self.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            item.write_json(out);
        }
        out.push(b']');
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
