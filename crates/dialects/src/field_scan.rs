//! Texts of named fields in a JSON body, found in one pass that builds no tree.

use canon::ApiError;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

use crate::json;
use crate::text::BorrowedText;
use crate::text::to_camel_case;

/// Object keys from the root to a field, with dots between them. List indexes are not part of the
/// path. A step is a key, or several with `|` between them; one with `?` behind it may be absent. `*`
/// is any key, and `**` is any number of keys.
pub(crate) type KeyPath = &'static str;

const ANY_KEY: &str = "*";
const ANY_KEYS: &str = "**";

/// Returns true for a key that `**` does not stand for: schemas and data of the caller, whose fields
/// may have any name.
fn is_free(key: &str) -> bool {
    let others = ["parameters", "response", "examples", "input_examples", "metadata", "headers"];
    key == "spec" || key.ends_with("chema") || others.contains(&key)
}

/// The fields to find in a body.
pub(crate) struct FieldScan<'s> {
    /// The paths of the fields.
    pub(crate) paths: &'s [KeyPath],
    /// True if keys may be in snake_case as well.
    pub(crate) allows_snake_case: bool,
    /// True if the facts of the object around a field are wanted.
    pub(crate) wants_parents: bool,
    /// Returns the part to keep of a text at the path of this index; `None` for one that is not wanted.
    /// Most of them are long.
    pub(crate) keeps: &'s dyn for<'t> Fn(usize, &'t str) -> Option<&'t str>,
}

/// The text of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldText {
    /// JSON path of the field.
    pub(crate) path: String,
    /// Index of its key path.
    pub(crate) row: usize,
    /// The text.
    pub(crate) text: String,
    /// Facts of the object around it.
    pub(crate) parent: ParentFacts,
    /// Number of keys from the root to the field.
    depth: usize,
}

/// Facts of an object. A key may stand in it more than once, and readers differ in the one that
/// counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ParentFacts {
    /// The texts of `type`.
    kinds: Vec<String>,
    /// True if there is a text in `result`, and never anything else; `None` without the field.
    result: Option<bool>,
    /// The same of `encrypted_content`.
    encrypted_content: Option<bool>,
}

impl ParentFacts {
    /// Returns true if the object may be taken for one of this type.
    pub(crate) fn may_be(&self, kind: &str) -> bool {
        self.kinds.iter().any(|own| own == kind)
    }

    pub(crate) fn has_result(&self) -> bool {
        self.result == Some(true)
    }

    pub(crate) fn has_encrypted_content(&self) -> bool {
        self.encrypted_content == Some(true)
    }

    /// Returns true if the object is of this type for every reader.
    pub(crate) fn is(&self, kind: &str) -> bool {
        !self.kinds.is_empty() && self.kinds.iter().all(|own| own == kind)
    }
}

fn note_text(has_text: &mut Option<bool>, value: &RawValue) {
    let is_text = value.get().starts_with('"') && value.get() != "\"\"";
    *has_text = Some(is_text && has_text.unwrap_or(true));
}

impl FieldScan<'_> {
    /// Returns the texts of the fields in the order of the body.
    pub(crate) fn run(&self, body: &[u8]) -> Result<Vec<FieldText>, ApiError> {
        let steps = |path: &KeyPath| path.split('.').map(PathStep::read).collect();
        let paths = self.paths.iter().map(steps).collect();
        let mut state = ScanState { scan: self, paths, path: String::new(), found: Vec::new() };
        let rows = (0..self.paths.len()).map(|row| (row, 0)).collect();
        let visitor = PathVisitor { state: &mut state, rows, depth: 0 };
        let mut from = serde_json::Deserializer::from_slice(body);
        match visitor.deserialize(&mut from) {
            Ok(()) => Ok(state.found),
            Err(e) => Err(ApiError::invalid("", format!("the body cannot be read: {e}"))),
        }
    }
}

/// Visits the values without texts and without fields, which hold nothing to look at.
macro_rules! ignore_scalars {
    () => {
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
}
pub(crate) use ignore_scalars;

/// One step of a path.
struct PathStep {
    keys: Vec<&'static str>,
    may_be_absent: bool,
}

impl PathStep {
    fn read(text: &'static str) -> Self {
        let keys = text.trim_end_matches('?').split('|').collect();
        Self { keys, may_be_absent: text == ANY_KEYS || text.ends_with('?') }
    }
}

/// A path, and the number of its steps that were taken.
type PathProgress = (usize, usize);

struct ScanState<'s> {
    scan: &'s FieldScan<'s>,
    /// The steps of each path.
    paths: Vec<Vec<PathStep>>,
    path: String,
    found: Vec<FieldText>,
}

/// Visits one value that lies on some of the paths, `depth` keys below the root.
struct PathVisitor<'f, 's> {
    state: &'f mut ScanState<'s>,
    /// These paths.
    rows: Vec<PathProgress>,
    depth: usize,
}

impl PathVisitor<'_, '_> {
    /// Returns the paths that continue with this key.
    fn rows_on(&self, name: &str) -> Vec<PathProgress> {
        let mut next = Vec::new();
        for (row, taken) in &self.rows {
            let steps = self.state.paths.get(*row).into_iter().flatten().enumerate().skip(*taken);
            for (at, step) in steps {
                if step.keys.contains(&ANY_KEYS) {
                    next.extend((!is_free(name)).then_some((*row, at)));
                } else if step.keys.contains(&name) || step.keys.contains(&ANY_KEY) {
                    next.push((*row, at + 1));
                }
                if !step.may_be_absent {
                    break;
                }
            }
        }
        next
    }
}

impl<'de> DeserializeSeed<'de> for PathVisitor<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PathVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (length, first) = (self.state.path.len(), self.state.found.len());
        let mut parent = ParentFacts::default();
        while let Some(BorrowedText(key)) = map.next_key::<BorrowedText<'de>>()? {
            let name = if self.state.scan.allows_snake_case {
                to_camel_case(&key)
            } else {
                Cow::Borrowed(&*key)
            };
            let rows = self.rows_on(&name);
            if rows.is_empty() {
                match &*name {
                    "type" if self.state.scan.wants_parents => {
                        let raw: &RawValue = map.next_value()?;
                        parent.kinds.push(json::read(raw.get()).unwrap_or_default());
                    }
                    "result" if self.state.scan.wants_parents => {
                        note_text(&mut parent.result, map.next_value()?);
                    }
                    "encrypted_content" if self.state.scan.wants_parents => {
                        note_text(&mut parent.encrypted_content, map.next_value()?);
                    }
                    _ => drop(map.next_value::<IgnoredAny>()?),
                }
                continue;
            }
            if length > 0 {
                self.state.path.push('.');
            }
            self.state.path.push_str(&name);
            let depth = self.depth + 1;
            map.next_value_seed(PathVisitor { state: &mut *self.state, rows, depth })?;
            self.state.path.truncate(length);
        }
        // The type may stand behind the field.
        for field in self.state.found.iter_mut().skip(first) {
            if field.depth == self.depth + 1 {
                field.parent = parent.clone();
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let length = self.state.path.len();
        for at in 0_usize.. {
            self.state.path.push_str(&format!("[{at}]"));
            let (state, rows) = (&mut *self.state, self.rows.clone());
            let next = list.next_element_seed(PathVisitor { state, rows, depth: self.depth })?;
            self.state.path.truncate(length);
            if next.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        let Self { state, rows, depth } = self;
        let ends = |(row, taken): &&PathProgress| {
            let mut left = state.paths.get(*row).into_iter().flatten().skip(*taken);
            left.all(|step| step.may_be_absent)
        };
        let Some((row, _)) = rows.iter().find(ends).copied() else { return Ok(()) };
        if let Some(text) = (state.scan.keeps)(row, text) {
            let (path, text) = (state.path.clone(), text.to_owned());
            state.found.push(FieldText { path, row, text, parent: ParentFacts::default(), depth });
        }
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<(), E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<(), E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<(), E> {
        self.visit_str(&number.to_string())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(paths: &[KeyPath], body: &str) -> Vec<FieldText> {
        let scan = FieldScan {
            paths,
            allows_snake_case: false,
            wants_parents: true,
            keeps: &|_, text| (text != "no").then_some(text),
        };
        scan.run(body.as_bytes()).unwrap()
    }

    #[test]
    fn texts_are_found_with_path_row_and_parent() {
        let paths: &[KeyPath] = &["a.id", "b.*.id", "c", "c.id"];
        let body = r#"{"a":[{"id":"1","type":"x"},{"type":"y","id":"2","result":"r"},{"id":"no"}],
            "b":{"u":{"id":"3"},"v":[{"id":["4","5"]}]},"c":"6","d":{"id":"7"},
            "c":{"id":"8","type":"x","type":"y","result":1,"result":null}}"#;
        let found = scan(paths, body);
        let shown: Vec<_> =
            found.iter().map(|field| (&*field.path, field.row, &*field.text)).collect();
        assert_eq!(
            shown,
            [
                ("a[0].id", 0, "1"),
                ("a[1].id", 0, "2"),
                ("b.u.id", 1, "3"),
                ("b.v[0].id[0]", 1, "4"),
                ("b.v[0].id[1]", 1, "5"),
                ("c", 2, "6"),
                ("c.id", 3, "8"),
            ]
        );
        let is = |at: usize, kind| (found[at].parent.is(kind), found[at].parent.may_be(kind));
        assert_eq!((is(0, "x"), is(0, "y")), ((true, true), (false, false)));
        assert!(!found[0].parent.has_result() && found[1].parent.has_result());
        assert_eq!(
            (is(2, "x"), is(6, "x"), is(6, "y")),
            ((false, false), (false, true), (false, true))
        );
        assert!(!found[6].parent.has_result());
    }

    #[test]
    fn steps_may_be_several_keys_absent_or_any_number() {
        let found = |path: KeyPath, body: &str| -> Vec<String> {
            scan(&[path], body).into_iter().map(|field| field.path).collect()
        };
        let body =
            r#"{"id":"1","a":{"id":"2","b":[{"id":"3","parameters":{"id":"4"}}]},"x":{"id":"5"}}"#;
        for (path, paths) in [
            ("a?.id", &["id", "a.id"][..]),
            ("a|x.id", &["a.id", "x.id"]),
            ("a.**.id", &["a.id", "a.b[0].id"]),
            ("a.b.parameters?.id", &["a.b[0].id", "a.b[0].parameters.id"]),
            ("x.**", &["x.id"]),
            ("id.**", &["id"]),
            ("**.c.id", &[]),
        ] {
            assert_eq!(found(path, body), paths, "{path}");
        }
    }

    #[test]
    fn a_key_with_escapes_is_found() {
        assert_eq!(scan(&["id"], r#"{"\u0069d":"1"}"#).len(), 1);
    }

    /// A provider whose ids are numbers takes them so.
    #[test]
    fn numbers_are_ids_too() {
        let found = scan(&["id"], r#"{"id":[7,-7,"7",1.5,true,null,{"id":8}]}"#);
        let found: Vec<&str> = found.iter().map(|field| &*field.text).collect();
        assert_eq!(found, ["7", "-7", "7", "1.5"]);
    }
}
