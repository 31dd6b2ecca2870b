//! Gemini embeddings, `:embedContent` and `:batchEmbedContents`.
//!
//! Reference: <https://ai.google.dev/api/embeddings>. The input is proto-JSON
//! (<https://protobuf.dev/programming-guides/json/>): snake_case and camelCase names, one object in
//! place of a list, and integers as strings.

use bytes::Bytes;
use canon::{ApiError, ExtraFields, Losses, Lossy, Usage, WireFormat};
use serde_json::Value;
use serde_json::value::RawValue;

use super::reply::{EmbeddingReply, error_of, finite, numbers, unreadable};
use super::request::{EmbeddingFacts, EmbeddingInput, EmbeddingRequest, VectorEncoding};
use crate::checks::{MAX_MODEL_BYTES, invalid_field};
use crate::fields::ObjectWriter;
use crate::json::{self, BodySegments};
use crate::proto_json::ProtoInteger;
use crate::text::BorrowedText;
use crate::wire_object::{UnknownFields, wire_object};
use crate::wire_rule::{FieldProblem, RuleResult, refuse};
use crate::wire_value::{AnyValue, EnumWord, OneOrMany, OpaqueObject, PlacedValue};
use crate::{LaneSettings, PassThrough, ProviderRequest, RequestFacts, RequestTarget};

const ORIGIN: WireFormat = WireFormat::Native;
pub(super) const EMBED_METHOD: &str = "embedContent";
pub(super) const BATCH_METHOD: &str = "batchEmbedContents";
/// Maximum requests per batch.
const MAX_BATCH_REQUESTS: usize = 100;
/// Estimated bytes of an image or audio input: the smallest costs 258 tokens.
const MEDIA_BYTES: u64 = 1_032;

wire_object! {
    struct BatchEmbedView<'a>("a JSON object") {
        requests required: OneOrMany<EmbedContentView<'a>> where batch_size,
    }

    struct EmbedContentView<'a>("a request object", camel_case) {
        model: PlacedValue<'a, BorrowedText<'a>>,
        content required: EmbedContent<'a>,
        /// The set of task types is open, so the provider checks it.
        task_type "taskType": EnumWord<'a>,
        title: BorrowedText<'a>,
        dimensions "outputDimensionality": ProtoInteger<true> where |count: &ProtoInteger<true>| match count.0 {
            1.. => Ok(()),
            _ => refuse("must be a whole number not below 1"),
        },
    }

    struct EmbedContent<'a>("an object") {
        /// It does not affect the vector.
        role: AnyValue,
        parts required: OneOrMany<EmbedPart<'a>> where some_input,
    }

    struct EmbedPart<'a>("a part object", camel_case) {
        text: BorrowedText<'a>,
        inline_data "inlineData": OpaqueObject<'a>,
    }
    check |part| match (&part.text, &part.inline_data) {
        (None, None) => Err(FieldProblem::new("text", "is required")),
        _ => Ok(()),
    };
}

fn batch_size(requests: &OneOrMany<EmbedContentView<'_>>) -> RuleResult {
    match requests.0.len() {
        0 => refuse("must not be empty"),
        1..=MAX_BATCH_REQUESTS => Ok(()),
        _ => refuse(format!("must have at most {MAX_BATCH_REQUESTS} items")),
    }
}

fn some_input(parts: &OneOrMany<EmbedPart<'_>>) -> RuleResult {
    match (parts.0.is_empty(), input_bytes(&parts.0)) {
        (true, _) => refuse("must not be empty"),
        (false, 0) => Err(FieldProblem::new("[0].text", "must not be empty")),
        (false, _) => Ok(()),
    }
}

fn input_bytes(parts: &[EmbedPart<'_>]) -> u64 {
    let bytes = |part: &EmbedPart<'_>| match &part.text {
        Some(text) => text.len() as u64,
        None => MEDIA_BYTES,
    };
    parts.iter().map(bytes).sum()
}

pub(super) fn read_facts_one(
    target: &RequestTarget,
    body: &[u8],
) -> Result<EmbeddingFacts, ApiError> {
    let text = json::checked_text(body)?;
    let mut facts = empty_facts(target)?;
    add_facts(text, &json::parse(text)?, "", &mut facts)?;
    Ok(facts)
}

pub(super) fn read_facts_batch(
    target: &RequestTarget,
    body: &[u8],
) -> Result<EmbeddingFacts, ApiError> {
    let text = json::checked_text(body)?;
    let mut facts = empty_facts(target)?;
    let view: BatchEmbedView<'_> = json::parse(text)?;
    for (at, request) in view.requests.iter().flat_map(|list| &list.0).enumerate() {
        add_facts(text, request, &format!("requests[{at}]."), &mut facts)?;
    }
    Ok(facts)
}

fn empty_facts(target: &RequestTarget) -> Result<EmbeddingFacts, ApiError> {
    let model = target.model.clone().unwrap_or_default();
    if model.is_empty() || model.len() > MAX_MODEL_BYTES || model.chars().any(char::is_control) {
        let why = format!("must have 1 to {MAX_MODEL_BYTES} plain characters");
        return Err(invalid_field("model", &why));
    }
    Ok(EmbeddingFacts { model, ..EmbeddingFacts::default() })
}

/// Checks the model of one request and adds to the facts.
fn add_facts(
    text: &str,
    view: &EmbedContentView<'_>,
    at: &str,
    facts: &mut EmbeddingFacts,
) -> Result<(), ApiError> {
    if let Some(PlacedValue { raw, value: name }) = &view.model {
        // Each request of a batch names the model as `models/x`. The URL has the authoritative
        // name.
        let bare = name.rsplit_once("models/").map_or(&**name, |(_, bare)| bare);
        if bare != facts.model {
            return Err(invalid_field(&format!("{at}model"), "must be the model in the URL"));
        }
        facts.model_ranges.push(json::range_of(text, raw));
    }
    let parts = view.content.as_ref().and_then(|content| content.parts.as_ref());
    facts.input_bytes += parts.map(|parts| input_bytes(&parts.0)).unwrap_or_default();
    Ok(())
}

pub(super) fn patch(
    body: &Bytes,
    facts: &EmbeddingFacts,
    model: &str,
    method: &str,
) -> ProviderRequest {
    let body = facts.with_model(body, model, &full_name(model));
    ProviderRequest { path: path(model, method), body }
}

/// Returns the model name as used in bodies.
fn full_name(model: &str) -> String {
    format!("models/{}", model.strip_prefix("models/").unwrap_or(model))
}

/// Returns the path of the model's conversations with another method name.
fn path(model: &str, method: &str) -> String {
    let lane = LaneSettings {
        model,
        max_payable_output: None,
        model_max_output: None,
        thinking_controls: None,
        cache_field: None,
    };
    let content =
        crate::native::NativeDialect.patch(&Bytes::new(), &RequestFacts::default(), &lane).path;
    let front = content.rsplit_once(':').map_or(content.as_str(), |(front, _)| front);
    format!("{front}:{method}")
}

pub(super) fn read_one(target: &RequestTarget, body: &[u8]) -> Result<EmbeddingRequest, ApiError> {
    let mut embed = empty_request(target);
    read(json::parse(json::checked_text(body)?)?, "", &mut embed)?;
    Ok(embed)
}

pub(super) fn read_batch(
    target: &RequestTarget,
    body: &[u8],
) -> Result<EmbeddingRequest, ApiError> {
    let mut embed = empty_request(target);
    let view: BatchEmbedView<'_> = json::parse(json::checked_text(body)?)?;
    keep(&view.rest, "", &mut embed.extras);
    for (at, request) in view.requests.into_iter().flat_map(|list| list.0).enumerate() {
        read(request, &format!("requests[{at}]."), &mut embed)?;
    }
    Ok(embed)
}

fn empty_request(target: &RequestTarget) -> EmbeddingRequest {
    EmbeddingRequest {
        model: target.model.clone().unwrap_or_default(),
        inputs: Vec::new(),
        dimensions: None,
        task: None,
        title: None,
        encoding: VectorEncoding::Float,
        user: None,
        extras: ExtraFields::new(),
    }
}

fn keep(fields: &UnknownFields<'_>, scope: &str, extras: &mut ExtraFields) {
    for (name, value) in fields.to_map() {
        extras.insert(ORIGIN, &format!("{scope}{name}"), value);
    }
}

/// Adds one request of a batch.
fn read(
    view: EmbedContentView<'_>,
    at: &str,
    embed: &mut EmbeddingRequest,
) -> Result<(), ApiError> {
    let first = embed.inputs.is_empty();
    let dimensions = view.dimensions.and_then(|count| u64::try_from(count.0).ok());
    if !first && dimensions != embed.dimensions {
        let path = format!("{at}outputDimensionality");
        return Err(invalid_field(&path, "must be the same in every request for this model"));
    }
    embed.dimensions = dimensions;
    // An unspecified task type equals none.
    let task = view.task_type.map(|word| word.0.into_owned());
    let task = task.filter(|word| !matches!(word.as_str(), "TASK_TYPE_UNSPECIFIED" | "0"));
    embed.task = embed.task.take().or(task);
    embed.title = embed.title.take().or_else(|| view.title.map(BorrowedText::into_owned));
    let content = view.content.unwrap_or_default();
    keep(&content.rest, "content.", &mut embed.extras);
    let mut words = String::new();
    for (number, part) in content.parts.into_iter().flat_map(|parts| parts.0).enumerate() {
        // A vector of the text alone must not pass for one of text and media.
        let (Some(text), None) = (part.text, part.inline_data) else {
            let path = format!("{at}content.parts[{number}]");
            return Err(invalid_field(&path, "must be text: this model takes no other input"));
        };
        words.push_str(&text);
        keep(&part.rest, "content.parts.", &mut embed.extras);
    }
    embed.inputs.push(EmbeddingInput::Text(words));
    keep(&view.rest, "", &mut embed.extras);
    Ok(())
}

pub(super) fn write_ones(
    embed: &EmbeddingRequest,
    lane: &str,
) -> Result<Lossy<Vec<ProviderRequest>>, ApiError> {
    let (requests, losses) = requests(embed, lane)?;
    let write = |request: Value| ProviderRequest {
        path: path(lane, EMBED_METHOD),
        body: BodySegments::single(request.to_string()),
    };
    Ok((requests.into_iter().map(write).collect(), losses))
}

pub(super) fn write_batches(
    embed: &EmbeddingRequest,
    lane: &str,
) -> Result<Lossy<Vec<ProviderRequest>>, ApiError> {
    let (requests, losses) = requests(embed, lane)?;
    let write = |requests: &[Value]| {
        let body: Value = ObjectWriter::new().set("requests", requests.to_vec()).into();
        ProviderRequest {
            path: path(lane, BATCH_METHOD),
            body: BodySegments::single(body.to_string()),
        }
    };
    Ok((requests.chunks(MAX_BATCH_REQUESTS).map(write).collect(), losses))
}

fn requests(embed: &EmbeddingRequest, lane: &str) -> Result<Lossy<Vec<Value>>, ApiError> {
    // The encoding is applied when the reply is written.
    let EmbeddingRequest { model: _, inputs, dimensions, task, title, encoding: _, user, extras } =
        embed;
    let mut losses = Losses::new();
    losses.add_if(user.is_some(), "user", "the format has no user id");
    for name in extras.foreign_to(ORIGIN) {
        losses.add(name, "only the caller's format has this field");
    }
    let kept = extras.for_format(ORIGIN).into_iter().flatten();
    let (inner, kept): (Vec<_>, Vec<_>) = kept.partition(|(name, _)| name.contains('.'));
    for (name, _) in inner {
        losses.add(name, "the gateway writes its own contents around texts");
    }
    let write = |input: &EmbeddingInput| match input {
        EmbeddingInput::Text(text) => {
            let part: Value = ObjectWriter::new().set("text", text.as_str()).into();
            let request = ObjectWriter::new()
                .set("model", full_name(lane))
                .set("content", ObjectWriter::new().set("parts", vec![part]))
                .set_some("taskType", task.as_deref())
                .set_some("title", title.as_deref())
                .set_some("outputDimensionality", *dimensions);
            let kept = kept.iter().map(|(name, value)| (name.as_str(), *value));
            Ok(request.with_fields(kept).into())
        }
        EmbeddingInput::Tokens(_) => {
            Err(invalid_field("input", "must be text: this model takes no token lists"))
        }
    };
    Ok((inputs.iter().map(write).collect::<Result<_, _>>()?, losses.into_vec()))
}

wire_object! {
    struct NativeEmbedReply<'a>("an object") {
        embedding: NativeVector<'a>,
        embeddings: Vec<NativeVector<'a>>,
        usage "usageMetadata": NativeEmbedUsage<'a>,
        error: AnyValue,
    }

    struct NativeEmbedUsage<'a>("an object") {
        prompt "promptTokenCount": u64,
        total "totalTokenCount": u64,
    }

    /// The format omits empty lists.
    struct NativeVector<'a>("an object") {
        values: &'a RawValue,
    }
}

/// Parses a reply. Returns its vectors and its usage.
fn reply<'a>(
    body: &'a [u8],
    vectors: fn(&mut NativeEmbedReply<'a>) -> Option<Vec<NativeVector<'a>>>,
) -> Result<(Vec<NativeVector<'a>>, Option<Usage>, UnknownFields<'a>), ApiError> {
    let mut view: NativeEmbedReply<'_> =
        serde_json::from_slice(body).map_err(|e| unreadable(&e.to_string()))?;
    if view.error.is_some() {
        return Err(error_of(crate::native::NativeDialect.meter_reply(body)));
    }
    let vectors = vectors(&mut view).ok_or_else(|| unreadable("there are no vectors"))?;
    let input = view.usage.and_then(|usage| usage.prompt.or(usage.total));
    Ok((vectors, input.map(|input| Usage { input, ..Usage::default() }), view.rest))
}

fn one<'a>(view: &mut NativeEmbedReply<'a>) -> Option<Vec<NativeVector<'a>>> {
    view.embedding.take().map(|vector| vec![vector])
}

fn batch<'a>(view: &mut NativeEmbedReply<'a>) -> Option<Vec<NativeVector<'a>>> {
    view.embeddings.take()
}

pub(super) fn read_usage_one(body: &[u8]) -> Result<Option<Usage>, ApiError> {
    reply(body, one).map(|(_, usage, _)| usage)
}

pub(super) fn read_usage_batch(body: &[u8]) -> Result<Option<Usage>, ApiError> {
    reply(body, batch).map(|(_, usage, _)| usage)
}

pub(super) fn read_reply_one(body: &[u8]) -> Result<EmbeddingReply, ApiError> {
    read_vectors(reply(body, one)?)
}

pub(super) fn read_reply_batch(body: &[u8]) -> Result<EmbeddingReply, ApiError> {
    read_vectors(reply(body, batch)?)
}

fn read_vectors(
    (vectors, usage, rest): (Vec<NativeVector<'_>>, Option<Usage>, UnknownFields<'_>),
) -> Result<EmbeddingReply, ApiError> {
    let mut extras = ExtraFields::new();
    keep(&rest, "", &mut extras);
    let mut read = Vec::with_capacity(vectors.len());
    for NativeVector { values, rest } in vectors {
        keep(&rest, "embeddings.", &mut extras);
        let values = values.map_or("[]", RawValue::get);
        read.push(finite(serde_json::from_str(values).map_err(|e| unreadable(&e.to_string()))?)?);
    }
    Ok(EmbeddingReply { vectors: read, usage, extras })
}

pub(super) fn write_reply_one(embedded: &EmbeddingReply) -> Lossy<Vec<u8>> {
    let vector = embedded.vectors.first().map(Vec::as_slice).unwrap_or_default();
    write_reply(embedded, &format!("\"embedding\":{{\"values\":{}}}", numbers(vector)))
}

pub(super) fn write_reply_batch(embedded: &EmbeddingReply) -> Lossy<Vec<u8>> {
    let values = |vector: &Vec<f32>| format!("{{\"values\":{}}}", numbers(vector));
    let all: Vec<String> = embedded.vectors.iter().map(values).collect();
    write_reply(embedded, &format!("\"embeddings\":[{}]", all.join(",")))
}

fn write_reply(embedded: &EmbeddingReply, vectors: &str) -> Lossy<Vec<u8>> {
    let usage = embedded.usage.map_or_else(String::new, |Usage { input, .. }| {
        format!(",\"usageMetadata\":{{\"promptTokenCount\":{input},\"totalTokenCount\":{input}}}")
    });
    (format!("{{{vectors}{usage}}}").into_bytes(), embedded.losses(ORIGIN))
}
