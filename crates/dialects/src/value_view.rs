//! Values of which the rules need only the shape: a string or a list, a list of objects, any value.
//! They are checked while they are parsed and only what the rules need is kept, so that images are
//! not copied.

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Builds a view from each kind of JSON value; `None` refuses the value.
pub(crate) trait ValueView<'de>: Sized {
    /// The expected value, as named in an error.
    const EXPECTED: &'static str;

    fn from_text(_text: &str) -> Option<Self> {
        Self::from_other()
    }

    fn from_null() -> Option<Self> {
        Self::from_other()
    }

    fn from_list<A: SeqAccess<'de>>(mut items: A) -> Result<Option<Self>, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::from_other())
    }

    fn from_object<A: MapAccess<'de>>(mut fields: A) -> Result<Option<Self>, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::from_other())
    }

    /// A number, a boolean, and every kind without a method of its own.
    fn from_other() -> Option<Self> {
        None
    }
}

/// Parses a value into its view.
pub(crate) fn read<'de, T: ValueView<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_any(ViewVisitor(PhantomData))
}

struct ViewVisitor<T>(PhantomData<T>);

impl<'de, T: ValueView<'de>> ViewVisitor<T> {
    fn or_refuse<E: Error>(&self, read: Option<T>, found: Unexpected<'_>) -> Result<T, E> {
        read.ok_or_else(|| E::invalid_type(found, self))
    }
}

impl<'de, T: ValueView<'de>> Visitor<'de> for ViewVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        self.or_refuse(T::from_text(text), Unexpected::Str(text))
    }

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        self.or_refuse(T::from_null(), Unexpected::Unit)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<T, E> {
        self.or_refuse(T::from_other(), Unexpected::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        self.or_refuse(T::from_other(), Unexpected::Signed(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        self.or_refuse(T::from_other(), Unexpected::Unsigned(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        self.or_refuse(T::from_other(), Unexpected::Float(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<T, A::Error> {
        let read = T::from_list(items)?;
        self.or_refuse(read, Unexpected::Seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        let read = T::from_object(fields)?;
        self.or_refuse(read, Unexpected::Map)
    }
}

/// A string whose content does not matter.
#[derive(Debug)]
pub(crate) struct AnyString;

impl<'de> ValueView<'de> for AnyString {
    const EXPECTED: &'static str = "a string";

    fn from_text(_text: &str) -> Option<Self> {
        Some(Self)
    }
}

impl<'de> Deserialize<'de> for AnyString {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read(from)
    }
}
