//! JSON values that borrow their strings. Their objects are lists of fields: a reader takes a few
//! fields out of each, which costs less than a map.

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::fmt;

use crate::text::BorrowedText;

/// A parsed JSON value.
#[derive(Debug)]
pub(crate) enum BorrowedJson<'a> {
    Text(Cow<'a, str>),
    List(Vec<Self>),
    Object(Vec<(Cow<'a, str>, Self)>),
    /// A scalar, or a value that was parsed before.
    Value(Value),
}

impl BorrowedJson<'_> {
    pub(crate) const NULL: Self = Self::Value(Value::Null);

    pub(crate) const fn is_null(&self) -> bool {
        matches!(self, Self::Value(Value::Null))
    }

    /// Returns the value without borrowed strings. Of fields with one name, the last counts.
    pub(crate) fn into_value(self) -> Value {
        match self {
            Self::Text(text) => Value::String(text.into_owned()),
            Self::List(items) => items.into_iter().map(Self::into_value).collect(),
            Self::Object(fields) => {
                let fields = fields.into_iter();
                let fields = fields.map(|(name, value)| (name.into_owned(), value.into_value()));
                Value::Object(fields.collect::<Map<String, Value>>())
            }
            Self::Value(value) => value,
        }
    }

    /// Returns the text of `{"type":"text","text":"…"}`, the most frequent part of a message.
    pub(crate) fn plain_text(&self) -> Option<&str> {
        let Self::Object(fields) = self else { return None };
        match fields.as_slice() {
            [(kind, Self::Text(word)), (name, Self::Text(text))]
                if kind == "type" && word == "text" && name == "text" =>
            {
                Some(text)
            }
            _ => None,
        }
    }
}

impl From<Value> for BorrowedJson<'_> {
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

impl<'de: 'a, 'a> Deserialize<'de> for BorrowedJson<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct JsonVisitor;
        impl<'de> Visitor<'de> for JsonVisitor {
            type Value = BorrowedJson<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any valid JSON value")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(BorrowedJson::Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(BorrowedJson::Text(Cow::Owned(text.to_owned())))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(BorrowedJson::NULL)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
                Ok(BorrowedJson::Value(Value::Bool(value)))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
                Ok(BorrowedJson::Value(Value::from(value)))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
                Ok(BorrowedJson::Value(Value::from(value)))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
                let number = Number::from_f64(value).map_or(Value::Null, Value::Number);
                Ok(BorrowedJson::Value(number))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(BorrowedJson::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(BorrowedText(name)) = map.next_key()? {
                    fields.push((name, map.next_value()?));
                }
                Ok(BorrowedJson::Object(fields))
            }
        }
        from.deserialize_any(JsonVisitor)
    }
}
