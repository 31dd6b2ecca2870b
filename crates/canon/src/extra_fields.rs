//! Fields that only one format defines, kept for translation back into that format.

use crate::WireFormat;
use serde_json::{Map, Value};

/// Fields without a canonical meaning, keyed by the format they were read from.
///
/// They are written only into the same format. For every other format they are a loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExtraFields(Vec<(WireFormat, Map<String, Value>)>);

impl ExtraFields {
    /// Creates an empty set.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Creates a set from the fields that a reader did not interpret. Empty maps are dropped.
    pub fn from_fields(origin: WireFormat, fields: Map<String, Value>) -> Self {
        if fields.is_empty() { Self::new() } else { Self(vec![(origin, fields)]) }
    }

    /// Adds one field of that format.
    pub fn insert(&mut self, origin: WireFormat, name: &str, value: Value) {
        if let Some((_, fields)) = self.0.iter_mut().find(|(at, _)| *at == origin) {
            fields.insert(name.to_owned(), value);
        } else {
            let mut fields = Map::new();
            fields.insert(name.to_owned(), value);
            self.0.push((origin, fields));
        }
    }

    /// Adds one field of that format if it has a value.
    pub fn insert_some(&mut self, origin: WireFormat, name: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.insert(origin, name, value);
        }
    }

    /// Returns the fields of all formats.
    pub fn all_fields(&self) -> impl Iterator<Item = (WireFormat, &str, &Value)> {
        let of = |origin| self.for_format(origin).into_iter().flatten().map(move |f| (origin, f));
        let fields = WireFormat::ALL.into_iter().flat_map(of);
        fields.map(|(origin, (name, value))| (origin, name.as_str(), value))
    }

    /// Returns the fields of one format; `None` if there are none.
    pub fn for_format(&self, origin: WireFormat) -> Option<&Map<String, Value>> {
        self.0.iter().find(|(at, _)| *at == origin).map(|(_, fields)| fields)
    }

    /// Returns one field of one format.
    pub fn get(&self, origin: WireFormat, name: &str) -> Option<&Value> {
        self.for_format(origin)?.get(name)
    }

    /// Returns the names of fields that cannot be written to `origin`, for the list of losses.
    /// Names that begin with `portunus.` are internal notes of a reader and are left out.
    pub fn foreign_to(&self, origin: WireFormat) -> impl Iterator<Item = &str> {
        self.foreign_fields(origin)
            .map(|(name, _)| name)
            .filter(|name| !name.starts_with("portunus."))
    }

    /// Returns the fields and internal notes of all formats but `origin`.
    pub fn foreign_fields(&self, origin: WireFormat) -> impl Iterator<Item = (&str, &Value)> {
        self.0
            .iter()
            .filter(move |(at, _)| *at != origin)
            .flat_map(|(_, fields)| fields.iter().map(|(name, value)| (name.as_str(), value)))
    }

    /// Returns true if there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
