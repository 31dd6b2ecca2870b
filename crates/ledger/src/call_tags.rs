//! Tags of a call: names and values by which its caller groups calls.

use std::collections::BTreeMap;
use std::fmt;

use canon::SharedText;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Character between the tags of the text. Neither a name nor a value has a control character.
const BETWEEN_TAGS: char = '\n';
/// Character between the name and the value of a tag.
const BEFORE_VALUE: char = '\t';

/// Tags of a call, sorted by name, each name once. A tag may have an empty value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallTags(SharedText);

impl CallTags {
    /// Returns true without a tag.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = self.0.split(BETWEEN_TAGS).filter(|line| !line.is_empty());
        lines.map(|line| line.split_once(BEFORE_VALUE).unwrap_or((line, "")))
    }

    /// Returns the value of a tag; `None` without this tag.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// Returns true if a tag is written so: `name`, or `name=value`.
    pub fn has(&self, text: &str) -> bool {
        self.iter().any(|(name, value)| {
            let rest = text.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('=') == Some(value))
        })
    }

    /// The tags as one text, in which two equal lists are equal.
    pub fn as_text(&self) -> &str {
        &self.0
    }

    /// Reads the tags from such a text.
    pub fn from_text(text: &str) -> Self {
        let lines = text.split(BETWEEN_TAGS).filter(|line| !line.is_empty());
        lines.map(|line| line.split_once(BEFORE_VALUE).unwrap_or((line, ""))).collect()
    }
}

/// Collects tags. Of two with the same name the first one stays. Control characters and empty names are left out.
impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for CallTags {
    fn from_iter<T: IntoIterator<Item = (N, V)>>(tags: T) -> Self {
        let mut sorted = BTreeMap::new();
        for (name, value) in tags {
            let plain = |text: &str| text.replace(char::is_control, "");
            let name = plain(name.as_ref());
            if !name.is_empty() {
                sorted.entry(name).or_insert_with(|| plain(value.as_ref()));
            }
        }
        let mut text = String::new();
        for (name, value) in sorted {
            if !text.is_empty() {
                text.push(BETWEEN_TAGS);
            }
            text.push_str(&name);
            if !value.is_empty() {
                text.push(BEFORE_VALUE);
                text.push_str(&value);
            }
        }
        Self(text.into())
    }
}

/// Writes the tags for people: `feature=search, team=blue`.
impl fmt::Display for CallTags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, value)) in self.iter().enumerate() {
            let between = if number == 0 { "" } else { ", " };
            let equals = if value.is_empty() { "" } else { "=" };
            write!(f, "{between}{name}{equals}{value}")?;
        }
        Ok(())
    }
}

impl Serialize for CallTags {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.iter().count()))?;
        for (name, value) in self.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for CallTags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::<String, String>::deserialize(deserializer).map(|tags| tags.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Tags are read back as they were kept, from their text, JSON and MessagePack.
        #[test]
        fn tags_are_read_as_they_are_written(pairs in prop::collection::vec((".{0,4}", ".{0,4}"), 0..5)) {
            let tags: CallTags = pairs.iter().map(|(name, value)| (name, value)).collect();
            prop_assert_eq!(&CallTags::from_text(tags.as_text()), &tags);
            prop_assert_eq!(&tags.iter().collect::<CallTags>(), &tags);
            let json = serde_json::to_string(&tags).unwrap();
            prop_assert_eq!(&serde_json::from_str::<CallTags>(&json).unwrap(), &tags);
            let packed = rmp_serde::to_vec_named(&tags).unwrap();
            prop_assert_eq!(&rmp_serde::from_slice::<CallTags>(&packed).unwrap(), &tags);
            for (name, value) in tags.iter() {
                let whole = format!("{name}={value}");
                prop_assert!(tags.has(name) && tags.has(&whole), "{}", whole);
                prop_assert_eq!(tags.value(name), Some(value));
            }
            prop_assert_eq!(tags.is_empty(), tags.iter().next().is_none());
        }
    }

    #[test]
    fn a_tag_is_found_by_its_name_and_by_its_value() {
        let tags: CallTags =
            [("team", "blue"), ("beta", ""), ("team", "red")].into_iter().collect();
        for text in ["team", "team=blue", "beta", "beta="] {
            assert!(tags.has(text), "{text}");
        }
        for text in ["", "tea", "team=", "team=red", "team=bluer", "teams", "beta=1", "blue"] {
            assert!(!tags.has(text), "{text}");
        }
        assert_eq!(tags.to_string(), "beta, team=blue");
    }
}
