//! Kinds of models by their output: text, images or vectors.

use std::fmt;

/// Kind of a model. It decides which endpoints accept the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModelKind {
    /// Answers in text, optionally with other modalities.
    #[default]
    Chat,
    /// Generates or edits images.
    Image,
    /// Turns text into vectors.
    Embedding,
}

impl ModelKind {
    /// All kinds, in display order.
    pub const ALL: [Self; 3] = [Self::Chat, Self::Image, Self::Embedding];

    /// Returns the word used in configuration and as `model_type` in the catalog.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Image => "image",
            Self::Embedding => "embedding",
        }
    }

    /// Returns the kind with that word; `None` if there is no such kind.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_word() {
        for kind in ModelKind::ALL {
            assert_eq!(ModelKind::parse(kind.as_str()), Some(kind));
        }
        assert_eq!(ModelKind::parse("Chat"), None);
    }
}
