//! Texts that many records share: names of keys, accounts, models and lanes.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// A text that is not changed. Copies share it, so that a record of a call copies no names.
#[derive(Clone)]
pub struct SharedText(Owner);

#[derive(Clone)]
enum Owner {
    /// A word of the program.
    Fixed(&'static str),
    Shared(Arc<str>),
}

impl SharedText {
    /// Creates a text from a word of the program.
    #[inline]
    pub const fn fixed(word: &'static str) -> Self {
        Self(Owner::Fixed(word))
    }

    /// The text.
    #[inline]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Owner::Fixed(word) => word,
            Owner::Shared(text) => text,
        }
    }

    /// Returns true if the text has no letters.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.as_str().is_empty()
    }
}

impl Default for SharedText {
    #[inline]
    fn default() -> Self {
        Self::fixed("")
    }
}

impl Deref for SharedText {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for SharedText {
    fn as_ref(&self) -> &str {
        self
    }
}

impl Borrow<str> for SharedText {
    fn borrow(&self) -> &str {
        self
    }
}

impl From<&str> for SharedText {
    fn from(text: &str) -> Self {
        // An empty text needs no memory.
        if text.is_empty() { Self::default() } else { Self(Owner::Shared(text.into())) }
    }
}

impl From<String> for SharedText {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<Arc<str>> for SharedText {
    #[inline]
    fn from(text: Arc<str>) -> Self {
        Self(Owner::Shared(text))
    }
}

impl From<SharedText> for String {
    fn from(text: SharedText) -> Self {
        text.as_str().to_owned()
    }
}

impl PartialEq for SharedText {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (self.as_str(), other.as_str());
        // Most equal texts are the same one.
        std::ptr::eq(one, other) || one == other
    }
}

impl Eq for SharedText {}

impl PartialEq<str> for SharedText {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for SharedText {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<String> for SharedText {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<SharedText> for str {
    fn eq(&self, other: &SharedText) -> bool {
        self == other.as_str()
    }
}

impl PartialEq<SharedText> for &str {
    fn eq(&self, other: &SharedText) -> bool {
        *self == other.as_str()
    }
}

impl PartialEq<SharedText> for String {
    fn eq(&self, other: &SharedText) -> bool {
        self == other.as_str()
    }
}

impl PartialOrd for SharedText {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SharedText {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for SharedText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

impl Serialize for SharedText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for SharedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_equals_its_letters_however_it_is_owned() {
        for text in ["", "a", "gpt-5"] {
            let shared = SharedText::from(text);
            assert_eq!(shared, SharedText::from(text.to_owned()));
            assert_eq!(shared, SharedText::from(Arc::<str>::from(text)));
            assert_eq!((&shared, text), (&shared.clone(), shared.as_str()));
            assert_eq!(serde_json::to_value(&shared).unwrap(), serde_json::json!(text));
            let read: SharedText = serde_json::from_value(serde_json::json!(text)).unwrap();
            assert_eq!(read, shared);
        }
        assert_eq!(SharedText::fixed("chat"), SharedText::from("chat"));
        assert_ne!(SharedText::fixed("chat"), SharedText::from("chat-2"));
        let [a, b] = ["a", "b"].map(SharedText::from);
        assert!(a < b);
    }
}
