//! Types of fields in descriptions of JSON objects.

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use crate::json;
use crate::json_reader::LOOSE_VALUE;
use crate::text::{BorrowedText, visit_text};
use crate::wire_object::{FieldSource, WireObject, raw_value, read_raw};
use crate::wire_rule::FieldProblem;

/// Any value of a field whose presence alone matters.
pub(crate) type AnyValue = IgnoredAny;

/// A text, or a list. The length of the list is limited while it is parsed.
#[derive(Debug)]
pub(crate) enum TextOrList<'a, T, const MAX: usize = MAX_LIST_ITEMS> {
    Text(BorrowedText<'a>),
    List(Vec<T>),
}

impl<T, const MAX: usize> TextOrList<'_, T, MAX> {
    /// Reads the items. One text is a list of one.
    pub(crate) fn into_list<R>(
        self,
        read_text: impl FnOnce(String) -> R,
        read_item: impl FnMut(T) -> R,
    ) -> Vec<R> {
        match self {
            Self::Text(text) => vec![read_text(text.into_owned())],
            Self::List(items) => items.into_iter().map(read_item).collect(),
        }
    }
}

impl<'de: 'a, 'a, T: Deserialize<'de>, const MAX: usize> Deserialize<'de>
    for TextOrList<'a, T, MAX>
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct TextOrListVisitor<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for TextOrListVisitor<T, MAX> {
            type Value = TextOrList<'de, T, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list")
            }

            visit_text!('de, |text| TextOrList::Text(BorrowedText(text)));

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
                read_items(items, MAX).map(TextOrList::List)
            }
        }
        from.deserialize_any(TextOrListVisitor(PhantomData))
    }
}

/// Maximum length of a list without a limit of its own. The view of an item is larger than its text.
pub(crate) const MAX_LIST_ITEMS: usize = 100_000;

/// Reads a list of at most `max` items, and stops at the first one more.
pub(crate) fn read_items<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(
    mut items: A,
    max: usize,
) -> Result<Vec<T>, A::Error> {
    let mut list = Vec::new();
    while let Some(item) = items.next_element()? {
        if list.len() == max {
            let why = format!("must have at most {max} items");
            return Err(A::Error::custom(FieldProblem::new("", why)));
        }
        list.push(item);
    }
    Ok(list)
}

/// A text, or an object.
#[derive(Debug)]
pub(crate) enum TextOrObject<'a, T> {
    Text(BorrowedText<'a>),
    Object(T),
}

impl<'de: 'a, 'a, T: WireObject<'de>> Deserialize<'de> for TextOrObject<'a, T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct TextOrObjectVisitor<T>(PhantomData<T>);
        impl<'de, T: WireObject<'de>> Visitor<'de> for TextOrObjectVisitor<T> {
            type Value = TextOrObject<'de, T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a string or {}", T::EXPECTED)
            }

            visit_text!('de, |text| TextOrObject::Text(BorrowedText(text)));

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::read_fields(FieldSource::new(map)).map(TextOrObject::Object)
            }
        }
        from.deserialize_any(TextOrObjectVisitor(PhantomData))
    }
}

/// A list, or one object in place of a list of one. The length is limited while it is parsed.
#[derive(Debug)]
pub(crate) struct OneOrMany<T, const MAX: usize = MAX_LIST_ITEMS>(pub(crate) Vec<T>);

impl<'de, T: WireObject<'de> + Deserialize<'de>, const MAX: usize> Deserialize<'de>
    for OneOrMany<T, MAX>
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OneOrManyVisitor<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: WireObject<'de> + Deserialize<'de>, const MAX: usize> Visitor<'de>
            for OneOrManyVisitor<T, MAX>
        {
            type Value = OneOrMany<T, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list or {}", T::EXPECTED)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
                read_items(items, MAX).map(OneOrMany)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                Ok(OneOrMany(vec![T::read_fields(FieldSource::new(map))?]))
            }
        }
        from.deserialize_any(OneOrManyVisitor(PhantomData))
    }
}

/// A list whose length is limited while it is parsed.
#[derive(Debug)]
pub(crate) struct BoundedList<T, const MAX: usize>(pub(crate) Vec<T>);

impl<T, const MAX: usize> std::ops::Deref for BoundedList<T, MAX> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for BoundedList<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ListVisitor<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for ListVisitor<T, MAX> {
            type Value = BoundedList<T, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
                read_items(items, MAX).map(BoundedList)
            }
        }
        from.deserialize_seq(ListVisitor(PhantomData))
    }
}

/// A value together with its place in the body.
#[derive(Clone, Debug)]
pub(crate) struct PlacedValue<'a, T> {
    pub(crate) raw: &'a RawValue,
    pub(crate) value: T,
}

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for PlacedValue<'a, T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(from)?;
        Ok(Self { raw, value: read_raw(raw).map_err(D::Error::custom)? })
    }
}

impl<T> PlacedValue<'_, T> {
    /// Returns the place of a field in the text of its body.
    pub(crate) fn range(field: Option<&Self>, text: &str) -> Option<Range<usize>> {
        field.map(|value| json::range_of(text, value.raw))
    }
}

/// A value that counts as absent if it is malformed, because the reply around it is still useful.
#[derive(Clone, Debug)]
pub(crate) struct LooseValue<T>(pub(crate) Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for LooseValue<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let loosely = |raw: &'de RawValue| json::read(raw.get()).ok();
        from.deserialize_newtype_struct(LOOSE_VALUE, LooseVisitor { loosely }).map(Self)
    }
}

/// A text, or any other value as its JSON text.
#[derive(Clone, Debug, Default)]
pub(crate) struct LooseText<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for LooseText<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let loosely = |raw: &'de RawValue| match json::read(raw.get()) {
            Ok(text) => Some(text),
            Err(_) => Some(BorrowedText(Cow::Borrowed(raw.get()))),
        };
        let text = from.deserialize_newtype_struct(LOOSE_VALUE, LooseVisitor { loosely })?;
        Ok(Self(text.unwrap_or_default().0))
    }
}

/// Reads a value as it should be, or, once a body was found to have a malformed one, by its text.
struct LooseVisitor<F> {
    loosely: F,
}

impl<'de, T: Deserialize<'de>, F: FnOnce(&'de RawValue) -> Option<T>> Visitor<'de>
    for LooseVisitor<F>
{
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        T::deserialize(from).map(Some)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        <&'de RawValue>::deserialize(from).map(self.loosely)
    }
}

/// An object that is carried without being read: a schema, arguments, metadata.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpaqueObject<'a>(pub(crate) &'a RawValue);

impl OpaqueObject<'_> {
    pub(crate) fn to_value(self) -> Value {
        raw_value(self.0)
    }

    pub(crate) fn to_map(self) -> Map<String, Value> {
        match raw_value(self.0) {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for OpaqueObject<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(from)?;
        match raw.get().as_bytes().first() {
            Some(b'{') => Ok(Self(raw)),
            Some(b'[') => Err(D::Error::invalid_type(Unexpected::Seq, &"an object")),
            Some(b'"') => {
                let text: BorrowedText<'_> = json::read(raw.get()).map_err(D::Error::custom)?;
                Err(D::Error::invalid_type(Unexpected::Str(&text.0), &"an object"))
            }
            _ => Err(D::Error::invalid_type(Unexpected::Other(raw.get()), &"an object")),
        }
    }
}

/// A word of an enum in ProtoJSON, or its number.
#[derive(Clone, Debug)]
pub(crate) struct EnumWord<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for EnumWord<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(from)?;
        if raw.get().parse::<u64>().is_ok() {
            return Ok(Self(Cow::Borrowed(raw.get())));
        }
        read_raw(raw).map(|BorrowedText(word)| Self(word)).map_err(D::Error::custom)
    }
}
