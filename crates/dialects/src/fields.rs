//! Reading a JSON object field by field, so that what is left over is known and kept.

use canon::{Extras, Fault, Losses, Origin};
use serde_json::{Map, Number, Value};
use std::fmt;

/// Where in a body something stands, spelled out only when a fault needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'a> {
    /// The body itself.
    Root,
    /// A field of an object.
    Key(&'a Path<'a>, &'a str),
    /// An item of a list.
    Item(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    /// A field of the object here.
    pub(crate) const fn key(&'a self, name: &'a str) -> Self {
        Self::Key(self, name)
    }

    /// An item of the list here.
    pub(crate) const fn item(&'a self, index: usize) -> Self {
        Self::Item(self, index)
    }

    /// A fault at this place.
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

/// Names the fields of a turn, part or tool that `me` cannot be given.
pub(crate) fn note_foreign(extras: &Extras, me: Origin, of: &str, losses: &mut Losses) {
    for name in extras.foreign_to(me).filter(|name| matters(name)) {
        losses.add(&format!("{of}.{name}"), "only another format has this field");
    }
}

/// Whether anybody misses a field of that name: neither what a thing is called elsewhere nor a
/// reader's own note.
pub(crate) fn matters(name: &str) -> bool {
    !matches!(name, "id" | "name" | "status" | "type") && !name.starts_with("portunus.")
}

/// An object being read: every field is taken out, the rest is left.
///
/// `null` counts as absent everywhere: clients replay what they were sent, nulls included.
#[derive(Debug)]
pub(crate) struct Fields<'p> {
    map: Map<String, Value>,
    path: &'p Path<'p>,
}

impl<'p> Fields<'p> {
    /// Begins reading; what is not an object is a fault.
    pub(crate) fn new(value: Value, path: &'p Path<'p>) -> Result<Self, Fault> {
        match value {
            Value::Object(map) => Ok(Self { map, path }),
            _ => Err(path.fault("must be an object")),
        }
    }

    /// Begins reading an object.
    pub(crate) const fn of(map: Map<String, Value>, path: &'p Path<'p>) -> Self {
        Self { map, path }
    }

    /// Any value; `None` when absent or null.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        // A null is left in its place and dropped by `rest`: removing the field would move all
        // behind it, for every field that is taken.
        self.map.get_mut(name).map(Value::take).filter(|value| !value.is_null())
    }

    /// Leaves something for the rest after all.
    pub(crate) fn leave(&mut self, name: &str, value: Value) {
        self.map.insert(name.to_owned(), value);
    }

    /// A string.
    pub(crate) fn string(&mut self, name: &str) -> Result<Option<String>, Fault> {
        self.typed(name, "must be a string", |value| match value {
            Value::String(text) => Some(text),
            _ => None,
        })
    }

    /// A number.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<f64>, Fault> {
        self.typed(name, "must be a number", |value| value.as_f64())
    }

    /// A whole number.
    pub(crate) fn integer(&mut self, name: &str) -> Result<Option<i64>, Fault> {
        self.typed(name, "must be a whole number", |value| value.as_i64())
    }

    /// A whole number not below zero.
    pub(crate) fn count(&mut self, name: &str) -> Result<Option<u64>, Fault> {
        self.typed(name, "must be a whole number not below zero", |value| value.as_u64())
    }

    /// True or false.
    pub(crate) fn flag(&mut self, name: &str) -> Result<Option<bool>, Fault> {
        self.typed(name, "must be true or false", |value| value.as_bool())
    }

    /// A list.
    pub(crate) fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, Fault> {
        self.typed(name, "must be a list", |value| match value {
            Value::Array(items) => Some(items),
            _ => None,
        })
    }

    /// A list of strings.
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

    /// An object.
    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, Fault> {
        self.typed(name, "must be an object", |value| match value {
            Value::Object(map) => Some(map),
            _ => None,
        })
    }

    /// A string that must be there.
    pub(crate) fn required(&mut self, name: &str) -> Result<String, Fault> {
        self.string(name)?.ok_or_else(|| self.fault(name, "is required"))
    }

    /// A fault at one of the fields.
    pub(crate) fn fault(&self, name: &str, say: &str) -> Fault {
        let path = self.path.key(name).to_string();
        Fault::invalid(path.clone(), format!("`{path}` {say}"))
    }

    /// The path of the object.
    pub(crate) const fn path(&self) -> &'p Path<'p> {
        self.path
    }

    /// What nobody took, without nulls.
    pub(crate) fn rest(mut self) -> Map<String, Value> {
        self.map.retain(|_, value| !value.is_null());
        self.map
    }

    /// What nobody took, as extras of that format.
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

/// Writing a JSON object: absent values leave no trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object(Map<String, Value>);

impl Object {
    /// An empty object.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Sets a field.
    #[must_use]
    pub(crate) fn set(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// Sets a field if there is a value.
    #[must_use]
    pub(crate) fn maybe<T: Into<Value>>(self, name: &str, value: Option<T>) -> Self {
        match value {
            Some(value) => self.set(name, value),
            None => self,
        }
    }

    /// Adds what is kept of this format, without overwriting what is there.
    #[must_use]
    pub(crate) fn with(mut self, extras: &Extras, origin: Origin) -> Self {
        for (name, value) in extras.for_origin(origin).into_iter().flatten() {
            // A reader's own note is for the writer's eyes only.
            if name.starts_with("portunus.") {
                continue;
            }
            self.0.entry(name.clone()).or_insert_with(|| value.clone());
        }
        self
    }

    /// The object.
    pub(crate) fn into_map(self) -> Map<String, Value> {
        self.0
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Self {
        Self::Object(object.0)
    }
}

/// A number as JSON; infinities, which JSON has no word for, as null.
pub(crate) fn number(value: f64) -> Value {
    // 1.0 and 1 are the same number, and clients print the shorter.
    if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 {
        #[expect(clippy::cast_possible_truncation, reason = "a whole number within 2^53")]
        return Value::from(value as i64);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}
