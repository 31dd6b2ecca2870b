//! Rows of another gateway's database. Columns differ between its versions, and so do their types
//! between databases, so every value is read leniently and a missing one is none.

use canon::{Micros, Money};
use serde_json::{Map, Value};
use std::str::FromStr as _;

/// A row by the names of its columns.
pub(super) struct SourceRow(pub(super) Map<String, Value>);

impl SourceRow {
    fn value(&self, column: &str) -> Option<&Value> {
        self.0.get(column).filter(|value| !value.is_null())
    }

    /// Returns a text that is not empty.
    pub(super) fn text(&self, column: &str) -> Option<String> {
        let text = match self.value(column)? {
            Value::String(text) => text.trim().to_owned(),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
        };
        (!text.is_empty()).then_some(text)
    }

    /// Returns a whole number.
    pub(super) fn number(&self, column: &str) -> Option<i64> {
        match self.value(column)? {
            Value::Number(number) => {
                number.as_i64().or_else(|| number.as_f64().map(|number| number as i64))
            }
            Value::String(text) => text.trim().parse().ok(),
            Value::Bool(flag) => Some(i64::from(*flag)),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// Returns true for a flag that is set.
    pub(super) fn flag(&self, column: &str) -> bool {
        match self.value(column) {
            Some(Value::String(text)) => matches!(text.as_str(), "1" | "t" | "true"),
            _ => self.number(column).is_some_and(|number| number != 0),
        }
    }

    /// Returns an amount in dollars, rounded to the nearest nanodollar. `Err` if it is no amount or does not
    /// fit.
    pub(super) fn dollars(&self, column: &str) -> Result<Option<Money>, String> {
        let Some(text) = self.text(column) else { return Ok(None) };
        let wrong = || format!("`{column}` is no amount in dollars: {text}");
        let number = f64::from_str(&text).ok().filter(|number| number.is_finite());
        nearest_nanos(number.ok_or_else(wrong)?).map(Some).ok_or_else(wrong)
    }

    /// Returns a limit in dollars, as [`Self::dollars`] does; infinity is none.
    pub(super) fn dollar_limit(&self, column: &str) -> Result<Option<Money>, String> {
        let text = self.text(column).unwrap_or_default().to_ascii_lowercase();
        if matches!(text.as_str(), "infinity" | "inf") {
            return Ok(None);
        }
        self.dollars(column)
    }

    /// Returns a list of texts: an array, or a text with commas between them.
    pub(super) fn list(&self, column: &str) -> Vec<String> {
        match self.value(column) {
            // An entry that is no text stays an entry: an empty list of models would permit all.
            Some(Value::Array(items)) => {
                items.iter().map(|item| item.as_str().unwrap_or_default().to_owned()).collect()
            }
            Some(Value::String(text)) => split_list(text, &[',', '\n']),
            _ => Vec::new(),
        }
    }

    /// Returns an object, also if it is stored as text.
    pub(super) fn object(&self, column: &str) -> Map<String, Value> {
        let value = match self.value(column) {
            Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
            Some(value) => value.clone(),
            None => Value::Null,
        };
        match value {
            Value::Object(object) => object,
            _ => Map::new(),
        }
    }

    /// Returns an array, also if it is stored as text.
    pub(super) fn array(&self, column: &str) -> Vec<Value> {
        let value = match self.value(column) {
            Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
            Some(value) => value.clone(),
            None => Value::Null,
        };
        match value {
            Value::Array(items) => items,
            _ => Vec::new(),
        }
    }

    /// Returns a time: RFC 3339, without an offset in UTC.
    pub(super) fn time(&self, column: &str) -> Option<Micros> {
        let text = self.text(column)?;
        let time = jiff::Timestamp::from_str(&text).ok().or_else(|| {
            let civil = jiff::civil::DateTime::from_str(&text).ok()?;
            civil.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
        });
        time.map(|time| Micros::new(time.as_microsecond()))
    }

    /// Returns the end of something, as [`Self::time`] does; infinity is none. `Err` if it is set and no
    /// time, because what ends must not go on forever.
    pub(super) fn end(&self, column: &str) -> Result<Option<Micros>, String> {
        match (self.text(column), self.time(column)) {
            (None, _) => Ok(None),
            (Some(text), _) if text.eq_ignore_ascii_case("infinity") => Ok(None),
            (Some(_), Some(time)) => Ok(Some(time)),
            (Some(text), None) => Err(format!("`{column}` is no time: {text}")),
        }
    }

    /// Returns true if the column says anything.
    pub(super) fn is_set(&self, column: &str) -> bool {
        match self.value(column) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(Value::Number(_)) => true,
            Some(Value::String(text)) => !matches!(text.trim(), "" | "{}" | "[]" | "null"),
            Some(Value::Array(items)) => !items.is_empty(),
            Some(Value::Object(fields)) => !fields.is_empty(),
        }
    }
}

/// Returns the parts of a text between separators, without empty ones.
pub(super) fn split_list(text: &str, separators: &[char]) -> Vec<String> {
    let parts = text.split(|letter| separators.contains(&letter)).map(str::trim);
    parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Returns dollars as the nearest nanodollar; `None` if it does not fit. An amount below zero is zero. The
/// decimal text of a binary fraction is exact, and rounded once.
pub(super) fn nearest_nanos(dollars: f64) -> Option<Money> {
    format!("{:.9}", dollars.max(0.0)).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(value: Value) -> SourceRow {
        let Value::Object(fields) = value else { panic!("an object") };
        SourceRow(fields)
    }

    #[test]
    fn dollars_are_rounded_to_the_nearest_nanodollar() {
        let nanos = |value: Value| {
            row(json!({ "spend": value })).dollars("spend").map(|sum| sum.map(Money::as_nanos))
        };
        for (value, expected) in [
            (json!(0.1), 100_000_000),
            (json!(0.30000000000000004), 300_000_000),
            (json!(1.5e-5), 15_000),
            (json!("2.0000000006"), 2_000_000_001),
            (json!(1e-12), 0),
            (json!(3), 3_000_000_000),
            (json!(-0.5), 0),
        ] {
            assert_eq!(nanos(value.clone()), Ok(Some(expected)), "{value}");
        }
        assert_eq!(nanos(Value::Null), Ok(None));
        let infinite =
            row(json!({ "limit": "Infinity", "spend": "Infinity", "less": "-Infinity" }));
        assert_eq!(infinite.dollar_limit("limit"), Ok(None));
        assert!(infinite.dollars("spend").is_err() && infinite.dollar_limit("less").is_err());
        assert!(nanos(json!("NaN")).is_err() && nanos(json!(1e300)).is_err());
    }

    #[test]
    fn an_end_or_a_list_that_cannot_be_read_is_not_none() {
        let row = row(json!({ "good": "2026-01-02T03:04:05.5", "never": "infinity",
            "past": "-infinity", "word": "soon", "none": null, "list": [null, "a", 7] }));
        assert_eq!(row.end("good"), Ok(Some(Micros::new(1_767_323_045_500_000))));
        assert_eq!((row.end("never"), row.end("none")), (Ok(None), Ok(None)));
        assert!(row.end("past").is_err() && row.end("word").is_err());
        assert_eq!(row.list("list"), ["", "a", ""]);
    }

    #[test]
    fn values_are_read_from_either_database() {
        let pg = row(json!({ "on": true, "at": "2026-01-02T03:04:05.5", "list": ["a", "b"],
            "object": { "a": "b" }, "none": null, "number": 7, "empty": {} }));
        let sqlite = row(json!({ "on": "1", "at": "2026-01-02T03:04:05.5Z", "list": "a, b,",
            "object": "{\"a\":\"b\"}", "number": "7", "empty": "" }));
        for row in [&pg, &sqlite] {
            assert!(row.flag("on") && !row.flag("none"));
            assert_eq!(row.list("list"), ["a", "b"]);
            assert_eq!(row.object("object").len(), 1);
            assert_eq!(row.number("number"), Some(7));
            assert_eq!(row.time("at"), Some(Micros::new(1_767_323_045_500_000)));
            assert!(row.is_set("object") && !row.is_set("empty") && !row.is_set("none"));
        }
    }
}
