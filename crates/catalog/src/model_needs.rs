//! Judgement of a request by the record of its model, before a lane is chosen.

use canon::{ApiError, MediaKind, Modality, NeedKind, RequestNeeds};

use crate::{Model, ThinkingRange};

/// Returns the word for a kind of media in the directory.
const fn media_word(kind: MediaKind) -> &'static str {
    match kind {
        MediaKind::Image => "image",
        MediaKind::Audio => "audio",
        MediaKind::Video => "video",
        MediaKind::Document => "document",
    }
}

const fn modality_word(modality: Modality) -> &'static str {
    match modality {
        Modality::Text => "text",
        Modality::Image => "image",
        Modality::Audio => "audio",
    }
}

impl Model {
    /// Returns true if the model reads media of that kind, or if that is not known. Some providers read
    /// documents for models that cannot.
    pub fn may_read(&self, kind: MediaKind) -> bool {
        !self.is_in_directory()
            || kind == MediaKind::Document
            || self.accepts_input(media_word(kind))
    }

    /// Refuses the first need that the model cannot meet, with the caller's own path. Of a model that only
    /// the operator describes nothing is known.
    pub fn check_needs(&self, needs: &RequestNeeds) -> Result<(), ApiError> {
        let unmet = needs.iter().find_map(|need| {
            let why = self.unmet(&need.kind)?;
            Some(ApiError::invalid(&*need.path, format!("`{}` {why}", need.path)))
        });
        unmet.filter(|_| self.is_in_directory()).map_or(Ok(()), Err)
    }

    /// Returns the reason that the model cannot meet a need.
    fn unmet(&self, need: &NeedKind) -> Option<String> {
        let id = &self.id;
        match need {
            NeedKind::Media(kind) => (!self.may_read(*kind)).then(|| {
                let (word, takes) = (media_word(*kind), self.input.join(", "));
                format!("is {word}, which `{id}` does not read; it takes {takes}")
            }),
            NeedKind::Output(modality) => {
                let word = modality_word(*modality);
                (!self.produces_output(word)).then(|| {
                    let makes = self.output.join(", ");
                    format!("asks for {word} output, which `{id}` does not make; it makes {makes}")
                })
            }
            NeedKind::AspectRatio(ratio) => {
                let known = self.images.as_ref().map(|images| &images.ratios)?;
                (!known.is_empty() && !known.contains(ratio)).then(|| {
                    format!("is not a ratio that `{id}` takes; allowed: {}", known.join(", "))
                })
            }
            NeedKind::ImageSize(size) => {
                let sizes = self.images.as_ref().map(|images| &images.sizes)?;
                // Sizes in pixels say nothing about named ones.
                let named: Vec<&str> =
                    sizes.iter().map(String::as_str).filter(|size| size.ends_with('K')).collect();
                (!named.is_empty() && !sizes.contains(size)).then(|| {
                    format!("is not a size that `{id}` makes; allowed: {}", named.join(", "))
                })
            }
            NeedKind::ThinkingBudget(tokens) => {
                let ThinkingRange { min, max, .. } = self.thinking.as_ref()?;
                let (min, max) = (min.unwrap_or(0), (*max)?);
                (!(min..=max).contains(tokens)).then(|| {
                    format!("must be between {min} and {max}, the thinking budget of `{id}`")
                })
            }
        }
    }
}
