//! Fields only one format knows, kept for the way back into that format.

use crate::Origin;
use serde_json::{Map, Value};

/// Unknown fields, keyed by the format they were read from.
///
/// They are written only into the same format again; to every other format they are a loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extras(Vec<(Origin, Map<String, Value>)>);

impl Extras {
    /// Nothing extra.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// The fields left over after reading; empty maps are not kept.
    pub fn of(origin: Origin, fields: Map<String, Value>) -> Self {
        if fields.is_empty() { Self::none() } else { Self(vec![(origin, fields)]) }
    }

    /// Keeps one more field of that format.
    pub fn put(&mut self, origin: Origin, name: &str, value: Value) {
        if let Some((_, fields)) = self.0.iter_mut().find(|(at, _)| *at == origin) {
            fields.insert(name.to_owned(), value);
        } else {
            let mut fields = Map::new();
            fields.insert(name.to_owned(), value);
            self.0.push((origin, fields));
        }
    }

    /// The fields of one format; `None` when it left none.
    pub fn for_origin(&self, origin: Origin) -> Option<&Map<String, Value>> {
        self.0.iter().find(|(at, _)| *at == origin).map(|(_, fields)| fields)
    }

    /// One field of one format.
    pub fn get(&self, origin: Origin, name: &str) -> Option<&Value> {
        self.for_origin(origin)?.get(name)
    }

    /// The names of fields which `origin` cannot be given, for the list of losses. A name that
    /// begins with `portunus.` is a reader's own note, which nobody misses.
    pub fn foreign_to(&self, origin: Origin) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(at, _)| *at != origin)
            .flat_map(|(_, fields)| fields.keys().map(String::as_str))
            .filter(|name| !name.starts_with("portunus."))
    }

    /// Whether there is nothing extra.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
