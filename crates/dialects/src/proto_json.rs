//! ProtoJSON (<https://protobuf.dev/programming-guides/json/>) as real clients write it: names in
//! camelCase or snake_case, whole numbers as strings, enum words in any case.

use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

use crate::text::BorrowedText;
use crate::wire_rule::{RuleResult, refuse_if};

/// Converts base64 (RFC 4648) to the standard alphabet with padding.
pub(crate) fn standard_base64(data: Cow<'_, str>) -> String {
    if !data.contains(['-', '_']) && data.len().is_multiple_of(4) {
        return data.into_owned();
    }
    media::decode_any_base64(&data).map_or_else(|| data.into_owned(), media::encode_base64)
}

/// A whole number, also written as a string. With `FLOATS`, a float without a fraction is accepted
/// too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProtoInteger<const FLOATS: bool>(pub(crate) i64);

impl<const FLOATS: bool> ProtoInteger<FLOATS> {
    /// Returns the number if it is in the range of another type.
    pub(crate) fn to<T: TryFrom<i64>>(self) -> Option<T> {
        T::try_from(self.0).ok()
    }
}

impl<const FLOATS: bool> From<ProtoInteger<FLOATS>> for Value {
    fn from(number: ProtoInteger<FLOATS>) -> Self {
        Self::from(number.0)
    }
}

impl<'de, const FLOATS: bool> Deserialize<'de> for ProtoInteger<FLOATS> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct IntegerVisitor<const FLOATS: bool>;
        impl<const FLOATS: bool> Visitor<'_> for IntegerVisitor<FLOATS> {
            type Value = ProtoInteger<FLOATS>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
                Ok(ProtoInteger(number))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
                Ok(ProtoInteger(i64::try_from(number).unwrap_or(i64::MAX)))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
                if FLOATS && number.fract() == 0.0 && number.abs() < 9.0e15 {
                    #[expect(clippy::cast_possible_truncation, reason = "checked just above")]
                    return Ok(ProtoInteger(number as i64));
                }
                Err(E::invalid_type(Unexpected::Float(number), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                let wrong = || E::invalid_type(Unexpected::Str(text), &self);
                text.parse().map(ProtoInteger).map_err(|_| wrong())
            }
        }
        from.deserialize_any(IntegerVisitor)
    }
}

/// Reads a whole number of a parsed value.
pub(crate) fn whole_number(value: &Value) -> Option<i64> {
    ProtoInteger::<true>::deserialize(value).ok().map(|number| number.0)
}

/// A count; `None` if the value is no count. The reply around it is still useful.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProtoCount(pub(crate) Option<u64>);

impl<'de> Deserialize<'de> for ProtoCount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "casts of floats saturate"
        )]
        let rounded = || value.as_f64().filter(|count| *count >= 0.0).map(|count| count as u64);
        let written = || value.as_str()?.parse().ok();
        Ok(Self(value.as_u64().or_else(rounded).or_else(written)))
    }
}

/// Refuses a whole number outside of a range, bounds included.
pub(crate) fn whole_between<const FLOATS: bool>(
    low: i64,
    high: i64,
) -> impl Fn(&ProtoInteger<FLOATS>) -> RuleResult {
    move |number| {
        refuse_if(!((low..=high).contains(&number.0)), || {
            format!("must be a whole number between {low} and {high}")
        })
    }
}

/// Refuses an enum word that is in neither list, in any case. The error names the first list.
pub(crate) fn word_of<'a>(
    listed: &'static [&'static str],
    others: &'static [&'static str],
) -> impl Fn(&BorrowedText<'a>) -> RuleResult {
    move |word| {
        refuse_if(!(listed.iter().chain(others).any(|own| own.eq_ignore_ascii_case(word))), || {
            format!("must be one of `{}`", listed.join("`, `"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_read_in_three_spellings() {
        for (json, expected) in
            [("3", Some(3)), ("3.0", Some(3)), ("\"3\"", Some(3)), ("3.5", None), ("\"x\"", None)]
        {
            let read = serde_json::from_str::<ProtoInteger<true>>(json);
            assert_eq!(read.ok().map(|number| number.0), expected);
        }
        assert!(serde_json::from_str::<ProtoInteger<false>>("3.0").is_err());
    }

    #[test]
    fn base64_is_converted_to_the_standard_alphabet() {
        for (data, expected) in
            [("_-8=", "/+8="), ("_-8", "/+8="), ("/+8=", "/+8="), ("not base64", "not base64")]
        {
            assert_eq!(standard_base64(data.into()), expected);
        }
    }
}
