//! Values of which the rules need only the outline, judged while they are read: a text or a list, a
//! list of things, anything at all. Nothing is kept of them but what the rules ask for, so that
//! pictures are not copied.

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// What becomes of each kind of value; `None` refuses it.
pub(crate) trait Outline<'de>: Sized {
    /// What a refusal says should have stood there.
    const EXPECTED: &'static str;

    /// A string.
    fn text(_text: &str) -> Option<Self> {
        Self::other()
    }

    /// `null`.
    fn nothing() -> Option<Self> {
        Self::other()
    }

    /// A list.
    fn list<A: SeqAccess<'de>>(mut items: A) -> Result<Option<Self>, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::other())
    }

    /// An object.
    fn object<A: MapAccess<'de>>(mut fields: A) -> Result<Option<Self>, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::other())
    }

    /// A number, a truth value, and whatever has no rule of its own.
    fn other() -> Option<Self> {
        None
    }
}

/// Reads a value into its outline.
pub(crate) fn read<'de, T: Outline<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_any(Any(PhantomData))
}

struct Any<T>(PhantomData<T>);

impl<'de, T: Outline<'de>> Any<T> {
    fn or_refuse<E: Error>(&self, read: Option<T>, found: Unexpected<'_>) -> Result<T, E> {
        read.ok_or_else(|| E::invalid_type(found, self))
    }
}

impl<'de, T: Outline<'de>> Visitor<'de> for Any<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        self.or_refuse(T::text(text), Unexpected::Str(text))
    }

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        self.or_refuse(T::nothing(), Unexpected::Unit)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<T, E> {
        self.or_refuse(T::other(), Unexpected::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        self.or_refuse(T::other(), Unexpected::Signed(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        self.or_refuse(T::other(), Unexpected::Unsigned(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        self.or_refuse(T::other(), Unexpected::Float(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<T, A::Error> {
        let read = T::list(items)?;
        self.or_refuse(read, Unexpected::Seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        let read = T::object(fields)?;
        self.or_refuse(read, Unexpected::Map)
    }
}

/// An object whose inside does not matter.
#[derive(Debug)]
pub(crate) struct AnyObject;

impl<'de> Outline<'de> for AnyObject {
    const EXPECTED: &'static str = "an object";

    fn object<A: MapAccess<'de>>(mut fields: A) -> Result<Option<Self>, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Some(Self))
    }
}

impl<'de> Deserialize<'de> for AnyObject {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read(from)
    }
}
