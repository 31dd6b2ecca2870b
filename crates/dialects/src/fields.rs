//! Reads JSON objects field by field, so that the remaining fields are known and kept; writes JSON
//! objects.

use canon::{Extras, Fault, Losses, Origin};
use serde_json::{Map, Number, Value};
use std::fmt;

/// A path in a body. It is formatted only when an error needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    /// Returns the path of a field.
    pub(crate) const fn key(&'a self, name: &'a str) -> Self {
        Self::Key(self, name)
    }

    /// Returns the path of an item.
    pub(crate) const fn item(&'a self, index: usize) -> Self {
        Self::Item(self, index)
    }

    /// Returns an error at this path.
    pub(crate) fn fault(&self, say: impl Into<String>) -> Fault {
        Fault::invalid(self.to_string(), say.into())
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Self::Root, name) => f.write_str(name),
            Self::Key(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Notes the fields of a turn, part or tool that format `me` cannot carry.
pub(crate) fn note_foreign(extras: &Extras, me: Origin, of: &str, losses: &mut Losses) {
    for name in extras.foreign_to(me).filter(|name| matters(name)) {
        losses.add(&format!("{of}.{name}"), "only another format has this field");
    }
}

/// Returns true if the loss of a field matters. Names and ids of another format and the gateway's
/// own notes do not.
pub(crate) fn matters(name: &str) -> bool {
    !matches!(name, "id" | "name" | "status" | "type") && !name.starts_with("portunus.")
}

/// An object being read: fields are taken out, the rest remains.
///
/// `null` counts as absent, because clients send back the nulls they were sent.
#[derive(Debug)]
pub(crate) struct Fields<'p> {
    map: Map<String, Value>,
    path: &'p Path<'p>,
}

impl<'p> Fields<'p> {
    /// Starts reading a value. Anything but an object is an error.
    pub(crate) fn new(value: Value, path: &'p Path<'p>) -> Result<Self, Fault> {
        match value {
            Value::Object(map) => Ok(Self { map, path }),
            _ => Err(path.fault("must be an object")),
        }
    }

    /// Starts reading an object.
    pub(crate) const fn of(map: Map<String, Value>, path: &'p Path<'p>) -> Self {
        Self { map, path }
    }

    /// Takes any value; `None` if absent or null.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        // `shift_remove` keeps the order of what is left.
        self.map.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Puts a value back among the remaining fields.
    pub(crate) fn leave(&mut self, name: &str, value: Value) {
        self.map.insert(name.to_owned(), value);
    }

    /// Takes a string.
    pub(crate) fn string(&mut self, name: &str) -> Result<Option<String>, Fault> {
        self.typed(name, "must be a string", |value| match value {
            Value::String(text) => Some(text),
            _ => None,
        })
    }

    /// Takes a number.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<f64>, Fault> {
        self.typed(name, "must be a number", |value| value.as_f64())
    }

    /// Takes a whole number.
    pub(crate) fn integer(&mut self, name: &str) -> Result<Option<i64>, Fault> {
        self.typed(name, "must be a whole number", |value| value.as_i64())
    }

    /// Takes a whole number that is not negative.
    pub(crate) fn count(&mut self, name: &str) -> Result<Option<u64>, Fault> {
        self.typed(name, "must be a whole number not below zero", |value| value.as_u64())
    }

    /// Takes a boolean.
    pub(crate) fn flag(&mut self, name: &str) -> Result<Option<bool>, Fault> {
        self.typed(name, "must be true or false", |value| value.as_bool())
    }

    /// Takes a list.
    pub(crate) fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, Fault> {
        self.typed(name, "must be a list", |value| match value {
            Value::Array(items) => Some(items),
            _ => None,
        })
    }

    /// Takes a list of strings.
    pub(crate) fn strings(&mut self, name: &str) -> Result<Option<Vec<String>>, Fault> {
        self.typed(name, "must be a list of strings", |value| match value {
            Value::Array(items) => items
                .into_iter()
                .map(|item| match item {
                    Value::String(text) => Some(text),
                    _ => None,
                })
                .collect(),
            _ => None,
        })
    }

    /// Takes an object.
    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, Fault> {
        self.typed(name, "must be an object", |value| match value {
            Value::Object(map) => Some(map),
            _ => None,
        })
    }

    /// Takes a required string.
    pub(crate) fn required(&mut self, name: &str) -> Result<String, Fault> {
        self.string(name)?.ok_or_else(|| self.fault(name, "is required"))
    }

    /// Returns an error at one of the fields.
    pub(crate) fn fault(&self, name: &str, say: &str) -> Fault {
        let path = self.path.key(name).to_string();
        Fault::invalid(path.clone(), format!("`{path}` {say}"))
    }

    /// Returns the path of the object.
    pub(crate) const fn path(&self) -> &'p Path<'p> {
        self.path
    }

    /// Returns the remaining fields, without nulls.
    pub(crate) fn rest(mut self) -> Map<String, Value> {
        self.map.retain(|_, value| !value.is_null());
        self.map
    }

    /// Returns the remaining fields as extras of a format.
    pub(crate) fn extras(self, origin: Origin) -> Extras {
        Extras::of(origin, self.rest())
    }

    fn typed<T>(
        &mut self,
        name: &str,
        rule: &str,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Result<Option<T>, Fault> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match read(value) {
                Some(read) => Ok(Some(read)),
                None => Err(self.fault(name, rule)),
            },
        }
    }
}

/// Writes a JSON object; absent values are left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object(Map<String, Value>);

impl Object {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub(crate) fn set(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// Sets a field if the value is present.
    #[must_use]
    pub(crate) fn maybe<T: Into<Value>>(self, name: &str, value: Option<T>) -> Self {
        match value {
            Some(value) => self.set(name, value),
            None => self,
        }
    }

    /// Adds the extras of a format without overwriting existing fields.
    #[must_use]
    pub(crate) fn with(mut self, extras: &Extras, origin: Origin) -> Self {
        for (name, value) in extras.for_origin(origin).into_iter().flatten() {
            // Notes that a reader left for the writer are not part of the format.
            if name.starts_with("portunus.") {
                continue;
            }
            self.0.entry(name.clone()).or_insert_with(|| value.clone());
        }
        self
    }

    pub(crate) fn into_map(self) -> Map<String, Value> {
        self.0
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Self {
        Self::Object(object.0)
    }
}

/// Returns a number as JSON. Infinities become null, because JSON (RFC 8259) has no infinity.
pub(crate) fn number(value: f64) -> Value {
    // Whole numbers are written without a fraction, as clients print them.
    if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 {
        #[expect(clippy::cast_possible_truncation, reason = "a whole number within 2^53")]
        return Value::from(value as i64);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}
