//! Reasons that a format cannot carry media.

use canon::{Losses, Media, MediaKind, MediaSource, WireFormat};
use std::borrow::Cow;

use crate::fields::FOREIGN_FILE;

/// The reason that a format cannot carry media.
#[derive(Debug)]
pub struct MediaProblem {
    /// Path of the loss.
    pub(crate) what: &'static str,
    /// Reason, in one short sentence.
    pub(crate) why: Cow<'static, str>,
}

impl MediaProblem {
    /// Creates a problem with the path of its loss.
    pub(crate) fn new(what: &'static str, why: impl Into<Cow<'static, str>>) -> Self {
        Self { what, why: why.into() }
    }

    /// Returns the problem of a file in the storage of another provider than those of this format.
    pub(crate) fn of_file(media: &Media, me: WireFormat) -> Option<Self> {
        match &media.source {
            MediaSource::File { origin, .. } if *origin != me => {
                Some(Self::new("media.file", FOREIGN_FILE))
            }
            MediaSource::File { .. }
            | MediaSource::Inline { .. }
            | MediaSource::Url { .. }
            | MediaSource::Text(_) => None,
        }
    }

    /// Notes the loss in place of the media.
    pub(crate) fn lose<T>(&self, losses: &mut Losses) -> Option<T> {
        losses.add(self.what, &self.why);
        None
    }
}

/// Returns the kind of the bytes: a file may hold an image.
pub(crate) fn content_kind(media: &Media) -> MediaKind {
    match &media.source {
        MediaSource::Inline { mime, .. } => MediaKind::from_mime(mime),
        MediaSource::Url { .. } | MediaSource::File { .. } | MediaSource::Text(_) => media.kind,
    }
}
