//! Judgement of a request by the record of its model, before a lane is chosen.

use canon::{
    ApiError, JsonOutput, MediaKind, Modality, NeedKind, RequestNeeds, ThinkingRange, ToolKind,
};

use crate::{Model, ModelCapabilities, ParameterSupport, ThinkingSupport};

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
        self.capabilities.input.is_empty()
            || kind == MediaKind::Document
            || self.accepts_input(media_word(kind))
    }

    /// Refuses the first need that the model cannot meet, with the caller's own path. What is not known of a
    /// model is not judged.
    pub fn check_needs(&self, needs: &RequestNeeds) -> Result<(), ApiError> {
        let unmet = needs.iter().find_map(|need| {
            let why = self.unmet(&need.kind)?;
            Some(ApiError::invalid(&*need.path, format!("`{}` {why}", need.path)))
        });
        unmet.map_or(Ok(()), Err)
    }

    /// Returns the reason that the model cannot meet a need.
    fn unmet(&self, need: &NeedKind) -> Option<String> {
        let (id, can) = (&self.id, &self.capabilities);
        match need {
            NeedKind::Media(kind) => (!self.may_read(*kind)).then(|| {
                let (word, takes) = (media_word(*kind), can.input.join(", "));
                format!("is {word}, which `{id}` does not read; it takes {takes}")
            }),
            NeedKind::Output(modality) => {
                let word = modality_word(*modality);
                (!can.output.is_empty() && !self.produces_output(word)).then(|| {
                    let makes = can.output.join(", ");
                    format!("asks for {word} output, which `{id}` does not make; it makes {makes}")
                })
            }
            NeedKind::AspectRatio(ratio) => {
                let known = can.images.as_ref().map(|images| &images.ratios)?;
                (!known.is_empty() && !known.contains(ratio)).then(|| {
                    format!("is not a ratio that `{id}` takes; allowed: {}", known.join(", "))
                })
            }
            NeedKind::ImageSize(size) => {
                let sizes = can.images.as_ref().map(|images| &images.sizes)?;
                // Sizes in pixels say nothing about named ones.
                let named: Vec<&str> =
                    sizes.iter().map(String::as_str).filter(|size| size.ends_with('K')).collect();
                (!named.is_empty() && !sizes.contains(size)).then(|| {
                    format!("is not a size that `{id}` makes; allowed: {}", named.join(", "))
                })
            }
            NeedKind::ThinkingBudget(tokens) => match &can.thinking {
                ThinkingSupport::Unknown => None,
                ThinkingSupport::Never => Some(format!("asks `{id}` to think, which it does not")),
                ThinkingSupport::Range(ThinkingRange { min, max, .. }) => {
                    let (min, max) = (min.unwrap_or(0), (*max)?);
                    (!(min..=max).contains(tokens)).then(|| {
                        format!("must be between {min} and {max}, the thinking budget of `{id}`")
                    })
                }
            },
            // A level that the model does not have becomes the nearest one, which is told as a loss.
            NeedKind::ThinkingLevel => (can.thinking == ThinkingSupport::Never)
                .then(|| format!("asks `{id}` to think, which it does not")),
            NeedKind::Tool(kind) => {
                let tools = closed_list(can).filter(|tools| !tools.contains(kind))?;
                Some(format!(
                    "is a tool of the kind {kind}, which `{id}` does not use; {}",
                    list(tools)
                ))
            }
            NeedKind::UnknownTool(name) => {
                let tools = closed_list(can)?;
                let name: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
                Some(format!("is a tool that `{id}` does not have: `{name}`; {}", list(tools)))
            }
            NeedKind::Json(form) => {
                let forms = can.structured_output.as_ref().filter(|known| !known.contains(form))?;
                let also = match form {
                    JsonOutput::Schema if forms.contains(&JsonOutput::Object) => {
                        "; it answers in JSON without a schema"
                    }
                    JsonOutput::Schema | JsonOutput::Object => "",
                };
                Some(format!("asks for {}, which `{id}` cannot promise{also}", form.as_str()))
            }
            NeedKind::Logprobs => {
                let is_unsupported =
                    can.parameters.get("logprobs") == Some(&ParameterSupport::Unsupported);
                is_unsupported
                    .then(|| format!("asks for log probabilities, which `{id}` does not give"))
            }
            NeedKind::Candidates(count) => can
                .candidates
                .filter(|most| count > most)
                .map(|most| format!("must be at most {most}, the number of answers of `{id}`")),
            NeedKind::Dimensions(length) => {
                let known = can.dimensions.as_ref().filter(|known| !known.accepts(*length))?;
                Some(format!("is not a length of the vectors of `{id}`; allowed: {known}"))
            }
        }
    }
}

/// Returns the tools of a model if all of them are known.
fn closed_list(can: &ModelCapabilities) -> Option<&[ToolKind]> {
    can.tools.as_deref().filter(|tools| !tools.contains(&ToolKind::Other))
}

/// Lists the tools of a model, for an error message.
fn list(tools: &[ToolKind]) -> String {
    let words: Vec<_> = tools.iter().map(|kind| kind.as_str()).collect();
    match words.is_empty() {
        true => "it uses no tools".to_owned(),
        false => format!("it uses {}", words.join(", ")),
    }
}
