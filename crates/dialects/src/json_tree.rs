//! JSON values whose objects are lists of fields. A reader takes a few fields out of an object and a
//! writer searches none, so a map that hashes and copies every name would cost more than it saves.

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::fmt;

use crate::json;
use crate::text::BorrowedText;

/// A JSON value that was parsed, with strings of the text, or that is to be written.
#[derive(Clone, Debug)]
pub(crate) enum JsonTree<'a> {
    Text(Cow<'a, str>),
    List(Vec<Self>),
    Object(Vec<(Cow<'a, str>, Self)>),
    /// A scalar, or a value that was parsed before.
    Value(Value),
}

impl JsonTree<'_> {
    pub(crate) const NULL: Self = Self::Value(Value::Null);

    pub(crate) const fn is_null(&self) -> bool {
        matches!(self, Self::Value(Value::Null))
    }

    /// Returns the value without borrowed strings. Of fields with one name, the last counts.
    pub(crate) fn into_value(self) -> Value {
        match self {
            Self::Text(text) => Value::String(text.into_owned()),
            Self::List(items) => items.into_iter().map(Self::into_value).collect(),
            Self::Object(fields) => Value::Object(into_map(fields)),
            Self::Value(value) => value,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => json::write_string(text, out),
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

/// Number of fields that most objects do not exceed.
const USUAL_FIELDS: usize = 8;

/// Returns the fields as a map.
pub(crate) fn into_map<'a>(
    fields: impl IntoIterator<Item = (Cow<'a, str>, JsonTree<'a>)>,
) -> Map<String, Value> {
    let fields = fields.into_iter();
    fields.map(|(name, value)| (name.into_owned(), value.into_value())).collect()
}

/// Writes the fields as an object.
pub(crate) fn write_object(fields: &[(Cow<'_, str>, JsonTree<'_>)], out: &mut Vec<u8>) {
    out.push(b'{');
    for (at, (name, value)) in fields.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        json::write_string(name, out);
        out.push(b':');
        value.write(out);
    }
    out.push(b'}');
}

/// Values that can be written.
pub(crate) trait IntoTree {
    fn into_tree(self) -> JsonTree<'static>;
}

macro_rules! trees_of_values {
    ($($kind:ty),*) => {
        $(impl IntoTree for $kind {
            fn into_tree(self) -> JsonTree<'static> {
                JsonTree::Value(self.into())
            }
        })*
    };
}

#[rustfmt::skip]
trees_of_values!(Value, Map<String, Value>, &str, String, bool, u8, u16, u32, u64, usize, i32, i64, f64);

impl<T: IntoTree> IntoTree for Option<T> {
    fn into_tree(self) -> JsonTree<'static> {
        self.map_or(JsonTree::NULL, T::into_tree)
    }
}

impl<T: IntoTree> IntoTree for Vec<T> {
    fn into_tree(self) -> JsonTree<'static> {
        JsonTree::List(self.into_iter().map(T::into_tree).collect())
    }
}

impl From<Value> for JsonTree<'_> {
    fn from(value: Value) -> Self {
        match value {
            Value::String(text) => Self::Text(text.into()),
            Value::Array(items) => Self::List(items.into_iter().map(Self::Value).collect()),
            Value::Object(fields) => {
                let fields = fields.into_iter();
                Self::Object(
                    fields.map(|(name, value)| (name.into(), Self::Value(value))).collect(),
                )
            }
            scalar => Self::Value(scalar),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonTree<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct JsonVisitor;
        impl<'de> Visitor<'de> for JsonVisitor {
            type Value = JsonTree<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any valid JSON value")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(JsonTree::Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(JsonTree::Text(Cow::Owned(text.to_owned())))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(JsonTree::NULL)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
                Ok(JsonTree::Value(Value::Bool(value)))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
                Ok(JsonTree::Value(Value::from(value)))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
                Ok(JsonTree::Value(Value::from(value)))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
                let number = Number::from_f64(value).map_or(Value::Null, Value::Number);
                Ok(JsonTree::Value(number))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(JsonTree::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::with_capacity(USUAL_FIELDS);
                while let Some(BorrowedText(name)) = map.next_key()? {
                    fields.push((name, map.next_value()?));
                }
                Ok(JsonTree::Object(fields))
            }
        }
        from.deserialize_any(JsonVisitor)
    }
}
