//! Shape of a value in the configuration file: a deserializer that answers no question, and remembers
//! the one that serde asked at a path.

use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use std::cell::Cell;
use std::fmt;

/// A step from a value to one inside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaStep {
    /// A key of a table.
    Key(&'static str),
    /// The entry of any name.
    AnyKey,
    /// An item of a list.
    Item,
}

/// Shape of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueShape {
    /// A table with these keys.
    Table(&'static [&'static str]),
    /// A table whose keys are names.
    Entries,
    /// A list.
    List,
    /// One of these words.
    Words(&'static [&'static str]),
    /// A text.
    Text,
    /// `true` or `false`.
    Bool,
    /// A whole number that is not negative.
    Count,
    /// Another number.
    Number,
    /// A value that the type itself looks at.
    SeveralForms,
}

/// Returns the shape of the value at a path in a type.
pub(super) fn at<'de, T: Deserialize<'de>>(path: &[SchemaStep]) -> ValueShape {
    let found = Cell::new(ValueShape::SeveralForms);
    // The probe always ends with an error: it has no values.
    let _ended = T::deserialize(ShapeProbe { path, found: &found });
    found.get()
}

/// Deserializer that follows a path and remembers the shape at its end.
#[derive(Clone, Copy)]
struct ShapeProbe<'a> {
    path: &'a [SchemaStep],
    found: &'a Cell<ValueShape>,
}

/// End of a probe.
#[derive(Debug)]
struct ProbeEnd;

impl fmt::Display for ProbeEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the probe has no values")
    }
}

impl std::error::Error for ProbeEnd {}

impl de::Error for ProbeEnd {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl<'a> ShapeProbe<'a> {
    /// Remembers the shape if the path ends here.
    fn end<V>(self, shape: ValueShape) -> Result<V, ProbeEnd> {
        if self.path.is_empty() {
            self.found.set(shape);
        }
        Err(ProbeEnd)
    }

    fn next(self) -> Option<(SchemaStep, Self)> {
        let (step, path) = self.path.split_first()?;
        Some((*step, Self { path, ..self }))
    }
}

/// Methods that only remember a shape.
macro_rules! leaf {
    ($($method:ident)* => $shape:expr) => {$(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, ProbeEnd> {
            self.end($shape)
        }
    )*};
}

impl<'de> Deserializer<'de> for ShapeProbe<'_> {
    type Error = ProbeEnd;

    leaf!(deserialize_any deserialize_bytes deserialize_byte_buf deserialize_unit
          deserialize_ignored_any deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
          deserialize_i128 => ValueShape::SeveralForms);
    leaf!(deserialize_str deserialize_string deserialize_char deserialize_identifier
          => ValueShape::Text);
    leaf!(deserialize_bool => ValueShape::Bool);
    leaf!(deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
          => ValueShape::Count);
    leaf!(deserialize_f32 deserialize_f64 => ValueShape::Number);

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProbeEnd> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ProbeEnd> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ProbeEnd> {
        match self.next() {
            Some((SchemaStep::Key(key), inside)) => {
                visitor.visit_map(OneEntry { key: Some(key), inside })
            }
            _ => self.end(ValueShape::Table(fields)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProbeEnd> {
        match self.next() {
            Some((SchemaStep::AnyKey, inside)) => {
                visitor.visit_map(OneEntry { key: Some("name"), inside })
            }
            _ => self.end(ValueShape::Entries),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProbeEnd> {
        match self.next() {
            Some((SchemaStep::Item, inside)) => visitor.visit_seq(inside),
            _ => self.end(ValueShape::List),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, ProbeEnd> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, ProbeEnd> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, ProbeEnd> {
        self.end(ValueShape::Words(variants))
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: V,
    ) -> Result<V::Value, ProbeEnd> {
        self.end(ValueShape::SeveralForms)
    }
}

/// A table with the one entry that the path leads into.
struct OneEntry<'a> {
    key: Option<&'static str>,
    inside: ShapeProbe<'a>,
}

impl<'de> MapAccess<'de> for OneEntry<'_> {
    type Error = ProbeEnd;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ProbeEnd> {
        let key = self.key.take();
        key.map(|key| {
            let key: StrDeserializer<'_, ProbeEnd> = key.into_deserializer();
            seed.deserialize(key)
        })
        .transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ProbeEnd> {
        seed.deserialize(self.inside)
    }
}

impl<'de> SeqAccess<'de> for ShapeProbe<'_> {
    type Error = ProbeEnd;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ProbeEnd> {
        seed.deserialize(*self).map(Some)
    }
}
