//! Needs of a request: what it asks of its model beyond text, with the place in the caller's body.
//!
//! Every format reads them while it checks a request, so that they are compared with the model before a
//! lane is chosen.

use crate::{MediaKind, Modality};

/// One need of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestNeed {
    /// Path of the field in the caller's body.
    pub path: String,
    /// The need.
    pub kind: NeedKind,
}

/// The kind of a need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NeedKind {
    /// The model reads media of this kind.
    Media(MediaKind),
    /// The model makes output of this kind.
    Output(Modality),
    /// The model makes images of this aspect ratio.
    AspectRatio(String),
    /// The model makes images of this named size.
    ImageSize(String),
    /// The model thinks within this budget.
    ThinkingBudget(u64),
}

/// Needs of one request. The first place of each kind of media counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestNeeds(Vec<RequestNeed>);

impl RequestNeeds {
    /// Adds a need.
    pub fn add(&mut self, path: impl Into<String>, kind: NeedKind) {
        self.0.push(RequestNeed { path: path.into(), kind });
    }

    /// Adds media, unless the request needs media of that kind already.
    pub fn add_media(&mut self, media: MediaKind, path: impl FnOnce() -> String) {
        if !self.media().any(|(_, known)| known == media) {
            self.add(path(), NeedKind::Media(media));
        }
    }

    /// Returns all needs.
    pub fn iter(&self) -> impl Iterator<Item = &RequestNeed> {
        self.0.iter()
    }

    /// Returns the kinds of media, each with its first place.
    pub fn media(&self) -> impl Iterator<Item = (&str, MediaKind)> {
        self.0.iter().filter_map(|need| match need.kind {
            NeedKind::Media(kind) => Some((&*need.path, kind)),
            NeedKind::Output(_)
            | NeedKind::AspectRatio(_)
            | NeedKind::ImageSize(_)
            | NeedKind::ThinkingBudget(_) => None,
        })
    }

    /// Forgets the media, for a caller that has those dropped that a lane cannot carry.
    pub fn forget_media(&mut self) {
        self.0.retain(|need| !matches!(need.kind, NeedKind::Media(_)));
    }

    /// Returns true if there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
