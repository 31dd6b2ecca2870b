//! Judgement of a request by the record of its model, before a lane is chosen.

use canon::{
    ApiError, JsonOutput, MediaKind, MediaNeed, Modality, NeedKind, RequestNeed, SamplingParameter,
    ThinkingRange, ToolKind,
};

use crate::{MediaLimits, ModelCapabilities, ParameterSupport, ThinkingSupport};

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

impl ModelCapabilities {
    /// Returns true if the model reads media of that kind, or if that is not known. Some providers read
    /// documents for models that cannot.
    pub fn may_read(&self, kind: MediaKind) -> bool {
        self.input.is_empty()
            || kind == MediaKind::Document
            || self.input.iter().any(|own| own == media_word(kind))
    }

    /// Refuses the first need that the model with this id cannot meet, with the caller's own path. What is not
    /// known of a model is not judged.
    pub fn check_needs<'n>(
        &self,
        id: &str,
        needs: impl IntoIterator<Item = &'n RequestNeed>,
    ) -> Result<(), ApiError> {
        let unmet = needs.into_iter().find_map(|need| {
            let Unmet { path, why } = self.unmet(id, need)?;
            let path = path.unwrap_or(&need.path);
            Some(ApiError::invalid(path, format!("`{path}` {why}")))
        });
        unmet.map_or(Ok(()), Err)
    }

    /// Returns true if a writer of another format sends the nearest thing that the model does instead, and
    /// tells the loss. A budget beyond the largest is no wish for the nearest, and a model that does not think
    /// has none.
    pub fn may_lower(&self, need: &NeedKind) -> bool {
        match need {
            NeedKind::ThinkingOff | NeedKind::ThinkingDynamic | NeedKind::ThinkingLevel(_) => {
                self.thinking.range().is_some()
            }
            NeedKind::ThinkingBudget(tokens) => {
                let range = self.thinking.range();
                range.is_some_and(|range| range.max.is_none_or(|max| *tokens <= max))
            }
            NeedKind::Media(_)
            | NeedKind::Output(_)
            | NeedKind::AspectRatio(_)
            | NeedKind::ImageSize(_)
            | NeedKind::Tool(_)
            | NeedKind::UnknownTool(_)
            | NeedKind::OwnField
            | NeedKind::Json(_)
            | NeedKind::Logprobs
            | NeedKind::Parameter(..)
            | NeedKind::Candidates(_)
            | NeedKind::Dimensions(_) => false,
        }
    }

    /// Returns the reason that the model cannot meet a need.
    fn unmet<'n>(&self, id: &str, need: &'n RequestNeed) -> Option<Unmet<'n>> {
        if let NeedKind::Media(media) = &need.kind {
            return self.unread(id, media);
        }
        self.unable(id, &need.kind).map(|why| Unmet { path: None, why })
    }

    /// Returns the reason that the model does not read media.
    fn unread<'n>(&self, id: &str, media: &'n MediaNeed) -> Option<Unmet<'n>> {
        let MediaNeed { kind, count, largest } = media;
        let word = media_word(*kind);
        if !self.may_read(*kind) {
            let takes = self.input.join(", ");
            let why = format!("is {word}, which `{id}` does not read; it takes {takes}");
            return Some(Unmet { path: None, why });
        }
        // The length and the pages of a file are known only to who reads it.
        let MediaLimits { max_count, max_bytes, max_seconds: _, max_pages: _, types: _ } =
            self.media_limits.get(word)?;
        if let Some(most) = max_count.filter(|most| count > most) {
            let why = format!("is one of {count} media of the kind {word}; `{id}` takes {most}");
            return Some(Unmet { path: None, why });
        }
        let (path, bytes) = largest.as_ref()?;
        let most = max_bytes.filter(|most| bytes > most)?;
        let why = format!("has {bytes} bytes; `{id}` takes {word} of at most {most}");
        Some(Unmet { path: Some(path), why })
    }

    /// Returns the reason that the model cannot do what a request asks for.
    fn unable(&self, id: &str, need: &NeedKind) -> Option<String> {
        let can = self;
        match need {
            NeedKind::Media(_) => None,
            NeedKind::Output(modality) => {
                let word = modality_word(*modality);
                (!can.output.is_empty() && !can.output.iter().any(|own| own == word)).then(|| {
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
                let images = can.images.as_ref()?;
                // Sizes in pixels say nothing about named ones.
                let sizes =
                    images.sizes.iter().filter(|size| !size.contains('x') && *size != "auto");
                let named: Vec<&str> =
                    images.classes.iter().chain(sizes).map(|size| &**size).collect();
                (!named.is_empty() && !named.contains(&size.as_str())).then(|| {
                    format!("is not a size that `{id}` makes; allowed: {}", named.join(", "))
                })
            }
            NeedKind::ThinkingBudget(_)
            | NeedKind::ThinkingOff
            | NeedKind::ThinkingDynamic
            | NeedKind::ThinkingLevel(_) => unable_to_think(&can.thinking, id, need),
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
            // The format of the lane decides, and not the model.
            NeedKind::OwnField => None,
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
            NeedKind::Parameter(parameter, value) => {
                let range = can.parameter(parameter.as_str())?;
                (!range.accepts(*value)).then(|| match parameter {
                    SamplingParameter::StopSequences => {
                        format!("has {value} texts; for `{id}` the number must be {range}")
                    }
                    SamplingParameter::Temperature
                    | SamplingParameter::TopP
                    | SamplingParameter::TopK
                    | SamplingParameter::PresencePenalty
                    | SamplingParameter::FrequencyPenalty
                    | SamplingParameter::Seed
                    | SamplingParameter::Logprobs => format!("must be {range} for `{id}`"),
                })
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

/// A need that a model cannot meet.
struct Unmet<'n> {
    /// The place, if it is not that of the need.
    path: Option<&'n str>,
    why: String,
}

/// Returns the reason that the model cannot think as asked. Models without budgets take one as a level, and
/// it is not known of them if they must think.
fn unable_to_think(thinking: &ThinkingSupport, id: &str, need: &NeedKind) -> Option<String> {
    let range = match thinking {
        ThinkingSupport::Unknown => return None,
        ThinkingSupport::Never => {
            let is_met = matches!(need, NeedKind::ThinkingOff | NeedKind::ThinkingDynamic);
            return (!is_met).then(|| format!("asks `{id}` to think, which it does not"));
        }
        ThinkingSupport::Range(range) => range,
    };
    let ThinkingRange { min, max, can_disable, dynamic, levels } = range;
    let has_budgets = range.accepts_budget();
    let limits = || {
        let max = max.map(|max| format!(" and {max}")).unwrap_or_default();
        format!("must be between {}{max}, the thinking budget of `{id}`", min.unwrap_or(0))
    };
    match need {
        NeedKind::ThinkingBudget(tokens) => {
            let is_met = max.is_none_or(|max| (min.unwrap_or(0)..=max).contains(tokens));
            (!is_met).then(limits)
        }
        NeedKind::ThinkingOff => (has_budgets && !can_disable)
            .then(|| format!("switches off the thinking of `{id}`, which always thinks")),
        NeedKind::ThinkingDynamic => (has_budgets && !dynamic)
            .then(|| format!("leaves the budget to `{id}`, which needs one; it {}", limits())),
        NeedKind::ThinkingLevel(level) => {
            let words: Vec<_> = levels.iter().map(|own| own.as_str()).collect();
            (!levels.is_empty() && !levels.contains(level)).then(|| {
                let words = words.join(", ");
                format!("is not a level of the thinking of `{id}`; allowed: {words}")
            })
        }
        NeedKind::Media(_)
        | NeedKind::Output(_)
        | NeedKind::AspectRatio(_)
        | NeedKind::ImageSize(_)
        | NeedKind::Tool(_)
        | NeedKind::UnknownTool(_)
        | NeedKind::OwnField
        | NeedKind::Json(_)
        | NeedKind::Logprobs
        | NeedKind::Parameter(..)
        | NeedKind::Candidates(_)
        | NeedKind::Dimensions(_) => None,
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
