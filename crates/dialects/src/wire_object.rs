//! Descriptions of JSON objects: `wire_object!` and `wire_union!`.
//!
//! One line describes one field: its name, its type, its rule and its meaning. From it come the
//! borrowed view that a body is parsed into once, the refusal of a value with the caller's own path,
//! the fields that only the caller's format has, and the way from an error to a field of another
//! format. A view borrows from the body; text without escapes is not copied.

use canon::{ExtraFields, WireFormat};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use crate::json;
use crate::request_option::RequestOption;
use crate::text::BorrowedText;
use crate::wire_rule::{FieldProblem, RuleResult};

/// One field of a described object.
#[derive(Debug)]
pub(crate) struct FieldSpec {
    /// Name in JSON.
    pub(crate) name: &'static str,
    pub(crate) meaning: FieldMeaning,
    /// Fields of the object inside.
    pub(crate) inside: &'static [Self],
}

/// The meaning of a field across formats.
#[derive(Debug)]
pub(crate) enum FieldMeaning {
    /// A field of this format only.
    Own,
    /// An option of the request.
    Option(RequestOption),
    /// An option that callers send and that providers of this format refuse.
    ReadOnly(RequestOption),
    /// Instructions or turns.
    Conversation,
    /// The offered tools.
    Tools,
}

/// A value that counts as absent.
pub(crate) const NULL: &str = "null";

/// Fields that a description does not name, in the order of the body.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnknownFields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> UnknownFields<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a field as it was sent.
    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(own, _)| own == name).map(|(_, value)| *value)
    }

    /// Returns the fields without nulls: clients send back the nulls they were sent.
    pub(crate) fn present(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        let read = self.0.iter().take_while(|_| !canon::is_abandoned());
        let present = read.filter(|(_, value)| value.get() != NULL);
        present.map(|(name, value)| (&**name, *value))
    }

    /// Returns the first field that has no description either.
    pub(crate) fn undescribed(&self, fields: &[FieldSpec]) -> Option<&str> {
        let is_known = |name: &str| fields.iter().any(|field| field.name == name);
        self.0.iter().map(|(name, _)| &**name).find(|name| !is_known(name))
    }

    /// Returns the fields without nulls, parsed.
    pub(crate) fn to_map(&self) -> Map<String, Value> {
        self.present().map(|(name, value)| (name.to_owned(), raw_value(value))).collect()
    }

    /// Returns the fields without nulls and without those of some names.
    pub(crate) fn to_map_without(&self, is_left_out: impl Fn(&str) -> bool) -> Map<String, Value> {
        let fields = self.present().filter(|(name, _)| !is_left_out(name));
        fields.map(|(name, value)| (name.to_owned(), raw_value(value))).collect()
    }

    /// Returns all fields as an object.
    pub(crate) fn to_value(&self) -> Value {
        let fields = self.0.iter();
        fields.map(|(name, value)| (name.clone().into_owned(), raw_value(value))).collect()
    }

    /// Returns the fields as extras of a format.
    pub(crate) fn to_extras(&self, origin: WireFormat) -> ExtraFields {
        ExtraFields::from_fields(origin, self.to_map())
    }

    /// Keeps the fields of an inner object in the extras, under its name.
    pub(crate) fn keep_in(&self, extras: &mut ExtraFields, origin: WireFormat, name: &str) {
        let fields = self.to_map();
        extras.insert_some(origin, name, (!fields.is_empty()).then_some(Value::Object(fields)));
    }

    /// Returns the place of a field that is null in the text of its body.
    pub(crate) fn null_range(&self, name: &str, text: &str) -> Option<Range<usize>> {
        let null = self.get(name).filter(|value| value.get() == NULL)?;
        Some(json::range_of(text, null))
    }

    /// Takes a field out. Of fields with one name, the last counts.
    pub(crate) fn take(&mut self, name: &str) -> Option<&'a RawValue> {
        let value = self.get(name)?;
        self.0.retain(|(own, _)| own != name);
        Some(value).filter(|value| value.get() != "null")
    }

    /// Returns the text of a field.
    pub(crate) fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        let value = self.get(name)?;
        json::read(value.get()).ok().map(|BorrowedText(text)| text)
    }

    pub(crate) fn push(&mut self, name: Cow<'a, str>, value: &'a RawValue) {
        self.0.push((name, value));
    }
}

/// Returns the parsed value.
pub(crate) fn raw_value(raw: &RawValue) -> Value {
    written_value(raw.get())
}

/// Returns the parsed value. A text that was cut within a character has the replacement character in
/// its place. A number in a reply that is too large for any reader stays a text; requests with one are
/// refused.
pub(crate) fn written_value(text: &str) -> Value {
    json::read(text)
        .or_else(|_| json::read(&json::without_half_characters(text)))
        .unwrap_or_else(|_| Value::from(text))
}

/// Parses a value that was set aside. An error names the path inside of the value.
pub(crate) fn read_raw<'de, T: Deserialize<'de>>(raw: &'de RawValue) -> Result<T, FieldProblem> {
    json::parse_described(raw.get())
}

/// Returns the error of a field.
pub(crate) fn field_error<E: Error>(field: &'static str, why: &'static str) -> E {
    E::custom(FieldProblem::new(field, why))
}

/// An object with a description.
pub(crate) trait WireObject<'de>: Sized {
    /// The expected value, as named in an error.
    const EXPECTED: &'static str;

    /// Reads the fields of an object.
    fn read_fields<A: MapAccess<'de>>(fields: FieldSource<'de, A>) -> Result<Self, A::Error>;
}

/// The fields of an object: those that were set aside before its kind was known, then the rest.
pub(crate) struct FieldSource<'de, A> {
    kept: std::vec::IntoIter<(Cow<'de, str>, &'de RawValue)>,
    /// A field that was set aside and is to be read now.
    current: Option<(Cow<'de, str>, &'de RawValue)>,
    /// The field that told the kind of the object. It must not come again.
    tag: Option<(&'static str, &'de RawValue)>,
    /// Fields that were null. They must not come again either: another reader of the same bytes might
    /// take the second value.
    nulls: Vec<&'static str>,
    map: A,
}

impl<'de, A: MapAccess<'de>> FieldSource<'de, A> {
    pub(crate) fn new(map: A) -> Self {
        Self { kept: Vec::new().into_iter(), current: None, tag: None, nulls: Vec::new(), map }
    }

    pub(crate) fn was_null(&self, name: &str) -> bool {
        self.nulls.contains(&name)
    }

    pub(crate) fn note_null(&mut self, name: &'static str) {
        self.nulls.push(name);
    }

    /// Returns the name of the next field.
    #[inline]
    pub(crate) fn next_name(&mut self) -> Result<Option<Cow<'de, str>>, A::Error> {
        if let Some((name, value)) = self.kept.next() {
            self.current = Some((name.clone(), value));
            return Ok(Some(name));
        }
        // Counted here too for the second parse of an invalid body.
        if canon::is_abandoned() {
            return Err(A::Error::custom(FieldProblem::new("", json::ABANDONED_ERROR)));
        }
        let name = self
            .map
            .next_key_seed(PhantomData::<BorrowedText<'de>>)?
            .map(|BorrowedText(name)| name);
        match (&name, &self.tag) {
            (Some(name), Some((tag, _))) if name == tag => Err(field_error(tag, "is there twice")),
            _ => Ok(name),
        }
    }

    /// Finds the field that tells the kind of an object, and sets the fields before it aside. Null
    /// is no value.
    pub(crate) fn find_kind(
        &mut self,
        tag: &'static str,
    ) -> Result<Option<Cow<'de, str>>, A::Error> {
        let (mut before, mut kind) = (Vec::new(), None);
        while kind.is_none()
            && let Some(name) = self.next_name()?
        {
            let value = self.raw_value()?;
            if name != tag || value.get() == "null" {
                before.push((name, value));
                continue;
            }
            let Ok(BorrowedText(word)) = json::read(value.get()) else {
                return Err(field_error(tag, "must be a string"));
            };
            self.tag = Some((tag, value));
            kind = Some(word);
        }
        before.extend(self.kept.by_ref());
        self.kept = before.into_iter();
        Ok(kind)
    }

    /// Returns the fields together with the one that tells the kind.
    #[must_use]
    pub(crate) fn with_tag(self) -> Self {
        let tag = self.tag.map(|(name, value)| (Cow::Borrowed(name), value));
        let kept: Vec<_> = self.kept.chain(tag).collect();
        Self { kept: kept.into_iter(), ..self }
    }

    /// Returns all fields of an object of a kind without a description.
    pub(crate) fn into_unknown(self) -> Result<UnknownFields<'de>, A::Error> {
        let (mut fields, mut all) = (self.with_tag(), UnknownFields::default());
        while let Some(name) = fields.next_name()? {
            all.push(name, fields.raw_value()?);
        }
        Ok(all)
    }

    /// Returns the value of the field as it was sent.
    fn raw_value(&mut self) -> Result<&'de RawValue, A::Error> {
        match self.current.take() {
            Some((_, raw)) => Ok(raw),
            None => self.map.next_value(),
        }
    }

    /// Returns the name of the next field in camelCase.
    pub(crate) fn next_camel_name(&mut self) -> Result<Option<Cow<'de, str>>, A::Error> {
        Ok(self.next_name()?.map(|name| match name {
            Cow::Borrowed(name) => crate::text::to_camel_case(name),
            Cow::Owned(name) => Cow::Owned(crate::text::to_camel_case(&name).into_owned()),
        }))
    }

    /// Returns the value of the field as it was sent, and leaves it to be read once more.
    pub(crate) fn keep_value(&mut self, name: &Cow<'de, str>) -> Result<&'de RawValue, A::Error> {
        let raw = self.raw_value()?;
        self.current = Some((name.clone(), raw));
        Ok(raw)
    }

    /// Reads the value of the field.
    #[inline]
    pub(crate) fn value<T: Deserialize<'de>>(&mut self) -> Result<T, A::Error> {
        match self.current.take() {
            Some((name, raw)) => {
                read_raw(raw).map_err(|problem| A::Error::custom(problem.inside(&name)))
            }
            None => self.map.next_value(),
        }
    }

    /// Reads the value of the field and applies its rule. Null is no value.
    #[inline]
    pub(crate) fn checked<T: Deserialize<'de>>(
        &mut self,
        rule: impl Fn(&T) -> RuleResult,
    ) -> Result<Option<T>, A::Error> {
        let Some((name, raw)) = self.current.take() else {
            return self.map.next_value_seed(CheckedValue { rule, kind: PhantomData });
        };
        let value: Result<Option<T>, FieldProblem> = read_raw(raw);
        let checked = value.and_then(|value| {
            value.as_ref().map_or(Ok(()), rule)?;
            Ok(value)
        });
        checked.map_err(|problem| A::Error::custom(problem.inside(&name)))
    }
}

struct CheckedValue<T, R> {
    rule: R,
    kind: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>, R: Fn(&T) -> RuleResult> DeserializeSeed<'de>
    for CheckedValue<T, R>
{
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        let value = Option::<T>::deserialize(from)?;
        value.as_ref().map_or(Ok(()), self.rule).map_err(D::Error::custom)?;
        Ok(value)
    }
}

/// Reads an object by its description.
pub(crate) fn read_object<'de, T: WireObject<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    struct ObjectVisitor<T>(PhantomData<T>);
    impl<'de, T: WireObject<'de>> Visitor<'de> for ObjectVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(T::EXPECTED)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::read_fields(FieldSource::new(map))
        }
    }
    from.deserialize_map(ObjectVisitor(PhantomData))
}

/// Describes objects of a wire format.
///
/// A line is `name: Type` or `name "json name": Type`, then `= Option` for an option that is
/// carried as it is, `=> Meaning(Object)` for a field with code of its own and the described object
/// inside it, and `where rule` for a rule. A field marked `required` must be present and not null. `rest`
/// keeps the fields without a line, and those marked `kept`: only this format has them, and they are
/// checked. An object `without_rest` keeps none. Of a field marked `placed` it keeps a null, because a lane may have to write a value in its
/// place.
macro_rules! wire_object {
    (
        $(#[$about:meta])*
        $vis:vis struct $name:ident<$life:lifetime>($expected:literal $(, $case:ident)?) {
            $(
                $(#[$note:meta])*
                $field:ident $($json:literal)? $($mark:ident)?: $kind:ty
                $(= $option:ident)?
                $(=> $meaning:ident $(($inner:ident))?)?
                $(where $rule:expr)?
            ),* $(,)?
        }
        $(check $check:expr)?
    ) => {
        $(#[$about])*
        #[derive(Debug, Default)]
        $vis struct $name<$life> {
            $($(#[$note])* $vis $field: Option<$kind>,)*
            /// Fields without a description.
            #[allow(dead_code, reason = "an object without it keeps none")]
            $vis rest: $crate::wire_object::UnknownFields<$life>,
        }

        impl $name<'_> {
            /// The described fields.
            #[allow(dead_code, reason = "objects without options have no use for it")]
            $vis const FIELDS: &'static [$crate::wire_object::FieldSpec] = &[
                $($crate::wire_object::FieldSpec {
                    name: $crate::wire_object::wire_object!(@name $field $($json)?),
                    meaning: $crate::wire_object::wire_object!(
                        @meaning $($option)? $(=> $meaning $(($inner))?)?
                    ),
                    inside: $crate::wire_object::wire_object!(
                        @inside $(=> $meaning $(($inner))?)?
                    ),
                },)*
            ];

            /// Reads the options that are carried as they are.
            #[allow(dead_code, unused_variables, reason = "not every object has options")]
            $vis fn read_options(&self, chat: &mut ::canon::ChatRequest) {
                $($(
                    if let Some(value) = &self.$field {
                        let value = ::serde_json::Value::from(value.clone());
                        $crate::request_option::RequestOption::$option.read(&value, chat);
                    }
                )?)*
            }
        }

        impl<$life> $crate::wire_object::WireObject<$life> for $name<$life> {
            const EXPECTED: &'static str = $expected;

            fn read_fields<A: ::serde::de::MapAccess<$life>>(
                mut fields: $crate::wire_object::FieldSource<$life, A>,
            ) -> Result<Self, A::Error> {
                let mut read = Self::default();
                while let Some(name) = $crate::wire_object::wire_object!(@next fields $($case)?) {
                    match &*name {
                        $($crate::wire_object::wire_object!(@name $field $($json)?) => {
                            let field = $crate::wire_object::wire_object!(@name $field $($json)?);
                            if read.$field.is_some() || fields.was_null(field) {
                                return Err($crate::wire_object::field_error(field, "is there twice"));
                            }
                            $crate::wire_object::wire_object!(@keep fields read name $($mark)?);
                            read.$field =
                                $crate::wire_object::wire_object!(@value fields $($rule)?);
                            if read.$field.is_none() {
                                fields.note_null(field);
                            }
                        })*
                        _ => $crate::wire_object::wire_object!(@other fields read name $($case)?),
                    }
                }
                $($crate::wire_object::wire_object!(
                    @require read $field ($crate::wire_object::wire_object!(@name $field $($json)?))
                    $($mark)?
                );)*
                $(
                    let check: fn(&Self) -> $crate::wire_rule::RuleResult = $check;
                    check(&read).map_err(::serde::de::Error::custom)?;
                )?
                Ok(read)
            }
        }

        impl<'de: $life, $life> ::serde::Deserialize<'de> for $name<$life> {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::wire_object::read_object::<$name<'de>, D>(from)
            }
        }
    };
    // Several objects. A check ends with a semicolon.
    (
        $(#[$about:meta])*
        $vis:vis struct $name:ident<$life:lifetime> $head:tt $fields:tt check $check:expr;
        $($more:tt)*
    ) => {
        $crate::wire_object::wire_object! {
            $(#[$about])* $vis struct $name<$life> $head $fields check $check
        }
        $crate::wire_object::wire_object! { $($more)* }
    };
    (
        $(#[$about:meta])*
        $vis:vis struct $name:ident<$life:lifetime> $head:tt $fields:tt
        $($more:tt)+
    ) => {
        $crate::wire_object::wire_object! {
            $(#[$about])* $vis struct $name<$life> $head $fields
        }
        $crate::wire_object::wire_object! { $($more)+ }
    };
    () => {};
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $json:literal) => { $json };
    (@next $fields:ident) => { $fields.next_name()? };
    (@next $fields:ident camel_case) => { $fields.next_camel_name()? };
    (@next $fields:ident without_rest) => { $fields.next_name()? };
    (@other $fields:ident $read:ident $name:ident without_rest) => {
        { let ::serde::de::IgnoredAny = $fields.value()?; }
    };
    (@other $fields:ident $read:ident $name:ident $($case:ident)?) => {
        { let value = $fields.value()?; $read.rest.push($name, value); }
    };
    (@value $fields:ident) => { $fields.value()? };
    (@value $fields:ident $rule:expr) => { $fields.checked($rule)? };
    (@keep $fields:ident $read:ident $name:ident kept) => {
        let value = $fields.keep_value(&$name)?;
        $read.rest.push($name, value);
    };
    (@keep $fields:ident $read:ident $name:ident placed) => {
        let value = $fields.keep_value(&$name)?;
        if value.get() == $crate::wire_object::NULL {
            $read.rest.push($name, value);
        }
    };
    (@keep $($unmarked:tt)*) => {};
    (@require $read:ident $field:ident $name:tt required) => {
        if $read.$field.is_none() {
            return Err($crate::wire_object::field_error($name, "is required"));
        }
    };
    (@require $($unmarked:tt)*) => {};
    (@meaning) => { $crate::wire_object::FieldMeaning::Own };
    (@meaning $option:ident) => {
        $crate::wire_object::FieldMeaning::Option($crate::request_option::RequestOption::$option)
    };
    (@meaning => Inside($inner:ident)) => { $crate::wire_object::FieldMeaning::Own };
    (@meaning => ReadOnly($option:ident)) => {
        $crate::wire_object::FieldMeaning::ReadOnly($crate::request_option::RequestOption::$option)
    };
    (@meaning => Conversation) => { $crate::wire_object::FieldMeaning::Conversation };
    (@meaning => Tools) => { $crate::wire_object::FieldMeaning::Tools };
    (@meaning => $option:ident $(($inner:ident))?) => {
        $crate::wire_object::FieldMeaning::Option($crate::request_option::RequestOption::$option)
    };
    (@inside => ReadOnly($option:ident)) => { &[] };
    (@inside => $meaning:ident($inner:ident)) => { $inner::FIELDS };
    (@inside $($other:tt)*) => { &[] };
}
pub(crate) use wire_object;

/// Describes objects whose kind stands in one field. An object of another kind is kept as it was
/// sent, in `Unknown`. `default` is the kind of an object without that field; without a default,
/// the field is required. A variant with a prefix takes other kinds that start with it, too; then
/// the field with the kind is kept.
macro_rules! wire_union {
    (
        $(#[$about:meta])*
        $vis:vis enum $name:ident<$life:lifetime>($expected:literal)
        by $tag:literal $(default $default:literal)? {
            $(
                $(#[$note:meta])*
                $variant:ident($kind:ty) = $($word:literal)|+ $(starting $prefix:literal)?
            ),* $(,)?
        }
    ) => {
        $(#[$about])*
        #[derive(Debug)]
        $vis enum $name<$life> {
            $($(#[$note])* $variant($kind),)*
            /// An object of a kind without a description.
            Unknown($crate::wire_object::UnknownFields<$life>),
        }

        impl<$life> $crate::wire_object::WireObject<$life> for $name<$life> {
            const EXPECTED: &'static str = $expected;

            fn read_fields<A: ::serde::de::MapAccess<$life>>(
                mut fields: $crate::wire_object::FieldSource<$life, A>,
            ) -> Result<Self, A::Error> {
                let kind = fields.find_kind($tag)?;
                $(let kind = kind.or(Some(::std::borrow::Cow::Borrowed($default)));)?
                match kind.as_deref() {
                    $($(Some($word))|+ => {
                        <$kind as $crate::wire_object::WireObject<$life>>::read_fields(fields)
                            .map(Self::$variant)
                    })*
                    $($(Some(kind) if kind.starts_with($prefix) => {
                        let fields = fields.with_tag();
                        <$kind as $crate::wire_object::WireObject<$life>>::read_fields(fields)
                            .map(Self::$variant)
                    })?)*
                    Some(_) => fields.into_unknown().map(Self::Unknown),
                    None => Err($crate::wire_object::field_error($tag, "is required")),
                }
            }
        }

        impl<'de: $life, $life> ::serde::Deserialize<'de> for $name<$life> {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::wire_object::read_object::<$name<'de>, D>(from)
            }
        }
    };
}
pub(crate) use wire_union;

#[cfg(test)]
#[path = "wire_object_tests.rs"]
mod tests;
