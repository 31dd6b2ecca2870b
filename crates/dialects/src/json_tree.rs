//! JSON values to be written, whose objects are lists of fields. A writer searches no fields, so a map
//! that hashes and copies every name would cost more than it saves.

use serde_json::{Map, Value};
use std::borrow::Cow;

use crate::json;

/// A JSON value that is to be written.
#[derive(Clone, Debug)]
pub(crate) enum JsonTree {
    List(Vec<Self>),
    Object(Vec<(Cow<'static, str>, Self)>),
    /// A scalar, or a value that exists already.
    Value(Value),
}

impl JsonTree {
    pub(crate) const NULL: Self = Self::Value(Value::Null);

    /// Returns the value without borrowed strings. Of fields with one name, the last counts.
    pub(crate) fn into_value(self) -> Value {
        match self {
            Self::List(items) => items.into_iter().map(Self::into_value).collect(),
            Self::Object(fields) => Value::Object(into_map(fields)),
            Self::Value(value) => value,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Value(Value::Null) => out.extend_from_slice(b"null"),
            Self::Value(Value::String(text)) => json::write_string(text, out),
            Self::Value(value) => json::write_value(value, out),
            Self::Object(fields) => write_object(fields, out),
            Self::List(items) => {
                out.push(b'[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    item.write(out);
                }
                out.push(b']');
            }
        }
    }
}

/// Returns the fields as a map.
pub(crate) fn into_map(
    fields: impl IntoIterator<Item = (Cow<'static, str>, JsonTree)>,
) -> Map<String, Value> {
    let fields = fields.into_iter();
    fields.map(|(name, value)| (name.into_owned(), value.into_value())).collect()
}

/// Writes the fields as an object.
pub(crate) fn write_object(fields: &[(Cow<'static, str>, JsonTree)], out: &mut Vec<u8>) {
    out.push(b'{');
    for (at, (name, value)) in fields.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        match name {
            // Names in the code have no character that needs an escape.
            Cow::Borrowed(name) => {
                out.push(b'"');
                out.extend_from_slice(name.as_bytes());
                out.push(b'"');
            }
            Cow::Owned(name) => json::write_string(name, out),
        }
        out.push(b':');
        value.write(out);
    }
    out.push(b'}');
}

/// Values that can be written.
pub(crate) trait IntoTree {
    fn into_tree(self) -> JsonTree;
}

macro_rules! trees_of_values {
    ($($kind:ty),*) => {
        $(impl IntoTree for $kind {
            fn into_tree(self) -> JsonTree {
                JsonTree::Value(self.into())
            }
        })*
    };
}

#[rustfmt::skip]
trees_of_values!(Value, Map<String, Value>, &str, String, bool, u8, u16, u32, u64, usize, i32, i64, f64);

impl<T: IntoTree> IntoTree for Option<T> {
    fn into_tree(self) -> JsonTree {
        self.map_or(JsonTree::NULL, T::into_tree)
    }
}

impl<T: IntoTree> IntoTree for Vec<T> {
    fn into_tree(self) -> JsonTree {
        JsonTree::List(self.into_iter().map(T::into_tree).collect())
    }
}
