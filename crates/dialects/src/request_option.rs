//! Options of a request that more than one format has.
//!
//! The description of a format names the option that a field stands for. An option without a field
//! in a format is lost there; an error at a field leads to the field of the same option in the
//! caller's format.

use canon::{ChatRequest, Losses, WireFormat};
use serde_json::Value;

use crate::fields::{ObjectWriter, number};
use crate::wire_object::{FieldMeaning, FieldSpec};

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestOption {
    Model,
    Stream,
    StreamOptions,
    MaxOutputTokens,
    Temperature,
    TopP,
    TopK,
    PresencePenalty,
    FrequencyPenalty,
    Seed,
    StopSequences,
    Candidates,
    Logprobs,
    ToolChoice,
    ParallelToolCalls,
    ResponseSchema,
    SchemaName,
    ResponseFormat,
    Thinking,
    Modalities,
    ImageConfig,
    Verbosity,
    ServiceTier,
    User,
    Metadata,
    CacheKey,
    Store,
}

/// Returns the value of an option, if it is set.
type OptionValue = fn(&ChatRequest) -> Option<Value>;
/// Sets an option.
type OptionReader = fn(&Value, &mut ChatRequest);

impl RequestOption {
    /// Options that are carried as they are, with the name of their loss and their value.
    const PLAIN: [(Self, &'static str, OptionValue); 9] = [
        (Self::Temperature, "sampling.temperature", |c| c.sampling.temperature.map(number)),
        (Self::TopP, "sampling.top_p", |c| c.sampling.top_p.map(number)),
        (Self::TopK, "sampling.top_k", |c| c.sampling.top_k.map(Value::from)),
        (Self::PresencePenalty, "sampling.presence_penalty", |c| {
            c.sampling.presence_penalty.map(number)
        }),
        (Self::FrequencyPenalty, "sampling.frequency_penalty", |c| {
            c.sampling.frequency_penalty.map(number)
        }),
        (Self::Seed, "sampling.seed", |c| c.sampling.seed.map(Value::from)),
        (Self::CacheKey, "hints.cache_key", |c| c.hints.cache_key.as_deref().map(Value::from)),
        (Self::Verbosity, "hints.verbosity", |c| c.hints.verbosity.as_deref().map(Value::from)),
        (Self::Store, "state.store", |c| c.state.store.map(Value::from)),
    ];

    /// The places of the options that are read as they are.
    const READERS: [(Self, OptionReader); 12] = [
        (Self::Temperature, |value, chat| chat.sampling.temperature = value.as_f64()),
        (Self::TopP, |value, chat| chat.sampling.top_p = value.as_f64()),
        (Self::TopK, |value, chat| chat.sampling.top_k = value.as_i64()),
        (Self::PresencePenalty, |value, chat| chat.sampling.presence_penalty = value.as_f64()),
        (Self::FrequencyPenalty, |value, chat| chat.sampling.frequency_penalty = value.as_f64()),
        (Self::Seed, |value, chat| chat.sampling.seed = value.as_i64()),
        (Self::ParallelToolCalls, |value, chat| chat.tool_choice.parallel = value.as_bool()),
        (Self::CacheKey, |value, chat| chat.hints.cache_key = text(value)),
        (Self::Verbosity, |value, chat| chat.hints.verbosity = text(value)),
        (Self::Store, |value, chat| chat.state.store = value.as_bool()),
        (Self::Stream, |value, chat| chat.stream = value.as_bool().unwrap_or_default()),
        (Self::User, |value, chat| chat.hints.user = text(value)),
    ];

    /// Sets the option of a request.
    pub(crate) fn read(self, value: &Value, chat: &mut ChatRequest) {
        if let Some((_, read)) = Self::READERS.iter().find(|(option, _)| *option == self) {
            read(value, chat);
        }
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// Writes the options that are carried as they are and that stand directly in an object.
pub(crate) fn write_options(
    mut body: ObjectWriter,
    fields: &[FieldSpec],
    chat: &ChatRequest,
) -> ObjectWriter {
    for field in fields {
        let plain = RequestOption::PLAIN.iter().find(|(option, ..)| field.is_option(*option));
        if let Some(value) = plain.and_then(|(.., value)| value(chat)) {
            body = body.set(field.name, value);
        }
    }
    body
}

/// Notes the options of a request for which format `me` has no field.
pub(crate) fn note_lost_options(
    fields: &[FieldSpec],
    chat: &ChatRequest,
    me: WireFormat,
    losses: &mut Losses,
) {
    for (option, name, value) in RequestOption::PLAIN {
        // An answer that is not to be stored is not stored anywhere else.
        let is_set = value(chat).is_some_and(|value| value != Value::Bool(false));
        if is_set && !has_option(fields, option) {
            losses.add(name, &format!("the {me} format has no such field"));
        }
    }
}

fn has_option(fields: &[FieldSpec], option: RequestOption) -> bool {
    fields.iter().any(|field| field.is_option(option) || has_option(field.inside, option))
}

impl FieldSpec {
    fn is_option(&self, option: RequestOption) -> bool {
        matches!(self.meaning, FieldMeaning::Option(own) if own == option)
    }
}

/// Returns the fields of a description with their paths. The fields of an object come before the
/// object. Of several fields with one meaning, the first one is the one to recommend.
pub(crate) fn described_paths(
    fields: &'static [FieldSpec],
) -> Vec<(String, &'static FieldMeaning)> {
    let mut paths = Vec::new();
    for field in fields {
        let inside = described_paths(field.inside).into_iter();
        paths.extend(inside.map(|(path, meaning)| (format!("{}.{path}", field.name), meaning)));
        paths.push((field.name.to_owned(), &field.meaning));
    }
    paths
}
