//! Form of the requests that hold only text, and the fields that they may have.

use canon::{Role, SamplingParameter};
use std::sync::OnceLock;

use crate::request_option::RequestOption;
use crate::wire_object::{FieldMeaning, FieldSpec};

/// The form of the requests of a format that hold only text.
#[derive(Debug)]
pub(crate) struct PlainShape {
    /// The field that holds the turns.
    pub(crate) turns: &'static str,
    pub(crate) turn: PlainTurn,
    pub(crate) instructions: PlainInstructions,
    /// True if one text may stand in place of all turns.
    pub(crate) takes_one_text: bool,
    /// True if the path names the model and tells if the reply is to be streamed.
    pub(crate) is_in_path: bool,
    /// True if every stream reports its usage.
    pub(crate) reports_usage: bool,
    /// True if a request must have an output limit.
    pub(crate) needs_limit: bool,
    /// The fields that a plain request may have.
    pub(crate) known: OnceLock<Vec<PlainField>>,
}

/// The form of a turn.
#[derive(Debug)]
pub(crate) struct PlainTurn {
    /// Its type, if it may have one.
    pub(crate) kind: Option<&'static str>,
    /// The words of its roles. A turn with a role of `None` is left to the parse, apart from its facts.
    pub(crate) roles: &'static [(&'static str, Option<Role>)],
    /// True if it must have a role.
    pub(crate) needs_role: bool,
    /// True if adjacent turns of the model are one.
    pub(crate) merges_model: bool,
    /// The field that holds its parts.
    pub(crate) content: &'static str,
    /// True if a text may stand in place of parts.
    pub(crate) may_be_text: bool,
    /// Types of parts with a text; none if parts have no type.
    pub(crate) part_kinds: &'static [&'static str],
}

/// The form of the instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlainInstructions {
    Text,
    TextOrParts,
    Turn,
}

/// A field that a plain request may have.
#[derive(Debug)]
pub(crate) struct PlainField {
    pub(crate) name: &'static str,
    /// Its path.
    pub(crate) path: String,
    pub(crate) kind: PlainKind,
}

/// The content of a field.
#[derive(Debug)]
pub(crate) enum PlainKind {
    Model,
    Stream,
    StreamOptions,
    OutputLimit,
    Parameter(SamplingParameter),
    /// Short texts that the facts do not depend on.
    User,
    CacheKey,
    Turns,
    Instructions,
    Object(Vec<PlainField>),
}

impl PlainShape {
    /// Returns the fields of an object that a plain request may have.
    pub(crate) fn known_fields(&self, fields: &[FieldSpec], outer: &str) -> Vec<PlainField> {
        let known = fields.iter().filter_map(|field| {
            let path = if outer.is_empty() {
                field.name.to_owned()
            } else {
                format!("{outer}.{}", field.name)
            };
            let kind = match &field.meaning {
                FieldMeaning::Option(option) => self.option_kind(*option),
                FieldMeaning::Conversation if field.name == self.turns => Some(PlainKind::Turns),
                FieldMeaning::Conversation => Some(PlainKind::Instructions),
                FieldMeaning::Own | FieldMeaning::ReadOnly(_) | FieldMeaning::Tools => None,
            };
            let inside = || {
                let inside = self.known_fields(field.inside, &path);
                (!inside.is_empty()).then_some(PlainKind::Object(inside))
            };
            let kind = kind.or_else(inside)?;
            Some(PlainField { name: field.name, path, kind })
        });
        known.collect()
    }

    fn option_kind(&self, option: RequestOption) -> Option<PlainKind> {
        match option {
            RequestOption::Model => (!self.is_in_path).then_some(PlainKind::Model),
            RequestOption::Stream => Some(PlainKind::Stream),
            RequestOption::StreamOptions => Some(PlainKind::StreamOptions),
            RequestOption::MaxOutputTokens => Some(PlainKind::OutputLimit),
            RequestOption::User => Some(PlainKind::User),
            RequestOption::CacheKey => Some(PlainKind::CacheKey),
            RequestOption::Temperature
            | RequestOption::TopP
            | RequestOption::PresencePenalty
            | RequestOption::FrequencyPenalty => {
                let parameter = PARAMETERS.iter().find(|(own, _)| *own == option);
                parameter.map(|(_, parameter)| PlainKind::Parameter(*parameter))
            }
            RequestOption::TopK
            | RequestOption::Seed
            | RequestOption::StopSequences
            | RequestOption::Candidates
            | RequestOption::Logprobs
            | RequestOption::ToolChoice
            | RequestOption::ParallelToolCalls
            | RequestOption::ResponseSchema
            | RequestOption::SchemaName
            | RequestOption::ResponseFormat
            | RequestOption::Thinking
            | RequestOption::Modalities
            | RequestOption::ImageConfig
            | RequestOption::Verbosity
            | RequestOption::ServiceTier
            | RequestOption::Metadata
            | RequestOption::Store => None,
        }
    }
}

/// Parameters from zero to one, in the order of the needs.
pub(crate) const PARAMETERS: [(RequestOption, SamplingParameter); 4] = [
    (RequestOption::Temperature, SamplingParameter::Temperature),
    (RequestOption::TopP, SamplingParameter::TopP),
    (RequestOption::PresencePenalty, SamplingParameter::PresencePenalty),
    (RequestOption::FrequencyPenalty, SamplingParameter::FrequencyPenalty),
];
