//! Gemini embeddings, `:embedContent` and `:batchEmbedContents`.
//!
//! Reference: <https://ai.google.dev/api/embeddings>. The input is proto-JSON
//! (<https://protobuf.dev/programming-guides/json/>): snake_case and camelCase names, one object in
//! place of a list, and integers as strings.

use bytes::Bytes;
use canon::{ApiError, ExtraFields, Losses, Lossy, Usage, WireFormat};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::raw_json::{self, refuse};
use super::reply::{EmbeddingReply, error_of, finite, numbers, unreadable};
use super::request::{EmbeddingFacts, EmbeddingInput, EmbeddingRequest, VectorEncoding};
use crate::fields::ObjectWriter;
use crate::json::{self, BodyEdit, BodySegments};
use crate::{LaneSettings, PassThrough, ProviderRequest, RequestFacts, RequestTarget};

const ORIGIN: WireFormat = WireFormat::Native;
pub(super) const EMBED_METHOD: &str = "embedContent";
pub(super) const BATCH_METHOD: &str = "batchEmbedContents";
/// Maximum requests per batch.
const MAX_BATCH_REQUESTS: usize = 100;
/// Estimated bytes of an image or audio input: the smallest costs 258 tokens.
const MEDIA_BYTES: u64 = 1_032;

#[derive(Deserialize)]
struct BatchEmbedView<'a> {
    #[serde(borrow, default)]
    requests: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct EmbedContentView<'a> {
    #[serde(borrow, default)]
    model: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "taskType", alias = "task_type")]
    task: Option<&'a RawValue>,
    #[serde(borrow, default)]
    title: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "outputDimensionality", alias = "output_dimensionality")]
    dimensions: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct EmbedPartsView<'a> {
    #[serde(borrow, default)]
    parts: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct EmbedPartView<'a> {
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "inlineData", alias = "inline_data")]
    media: Option<&'a RawValue>,
}

pub(super) fn read_facts_one(
    target: &RequestTarget,
    body: &[u8],
) -> Result<EmbeddingFacts, ApiError> {
    let text = json::checked_text(body)?;
    let mut facts = empty_facts(target)?;
    check_request(text, &raw_json::body(text)?, "", &mut facts)?;
    Ok(facts)
}

pub(super) fn read_facts_batch(
    target: &RequestTarget,
    body: &[u8],
) -> Result<EmbeddingFacts, ApiError> {
    let text = json::checked_text(body)?;
    let mut facts = empty_facts(target)?;
    let BatchEmbedView { requests } = raw_json::body(text)?;
    let requests = requests.ok_or_else(|| refuse("requests", "is required"))?;
    let requests = items_of(requests).ok_or_else(|| refuse("requests", "must be a list"))?;
    if requests.is_empty() {
        return Err(refuse("requests", "must not be empty"));
    }
    if requests.len() > MAX_BATCH_REQUESTS {
        return Err(refuse("requests", &format!("must have at most {MAX_BATCH_REQUESTS} items")));
    }
    for (at, request) in requests.into_iter().enumerate() {
        let path = format!("requests[{at}]");
        check_request(text, &raw_json::object(request, &path)?, &path, &mut facts)?;
    }
    Ok(facts)
}

fn empty_facts(target: &RequestTarget) -> Result<EmbeddingFacts, ApiError> {
    let model = raw_json::model(target.model.as_deref().unwrap_or_default())?;
    Ok(EmbeddingFacts { model, ..EmbeddingFacts::default() })
}

/// Returns the items of a list. One object counts as a list of one.
fn items_of(value: &RawValue) -> Option<Vec<&RawValue>> {
    if value.get().starts_with('{') { Some(vec![value]) } else { raw_json::list(value) }
}

/// Checks one request and adds to the facts.
fn check_request(
    text: &str,
    head: &EmbedContentView<'_>,
    at: &str,
    facts: &mut EmbeddingFacts,
) -> Result<(), ApiError> {
    let EmbedContentView { model, content, task, title, dimensions } = head;
    let path = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
    if let Some(value) = model {
        let name =
            raw_json::string(value).ok_or_else(|| refuse(&path("model"), "must be a string"))?;
        // Each request of a batch names the model as `models/x`. The URL has the authoritative
        // name.
        let bare = name.rsplit_once("models/").map_or(&*name, |(_, bare)| bare);
        if bare != facts.model {
            return Err(refuse(&path("model"), "must be the model in the URL"));
        }
        facts.model_ranges.push(json::range_of(text, value));
    }
    let content = content.ok_or_else(|| refuse(&path("content"), "is required"))?;
    facts.input_bytes += check_content(content, &path("content"))?;
    // The set of task types is open, so the provider checks it.
    let word =
        |value: &&RawValue| raw_json::string(value).is_some() || raw_json::count(value).is_some();
    if !task.as_ref().is_none_or(word) {
        return Err(refuse(&path("taskType"), "must be a string"));
    }
    if !title.is_none_or(|value| raw_json::string(value).is_some()) {
        return Err(refuse(&path("title"), "must be a string"));
    }
    let above = |value: &RawValue| {
        let text = raw_json::string(value).and_then(|text| text.parse().ok());
        raw_json::count(value).or(text).is_some_and(|count| count > 0)
    };
    if !dimensions.is_none_or(above) {
        return Err(refuse(&path("outputDimensionality"), "must be a whole number not below 1"));
    }
    Ok(())
}

fn check_content(content: &RawValue, at: &str) -> Result<u64, ApiError> {
    let EmbedPartsView { parts } = raw_json::object(content, at)?;
    let list = format!("{at}.parts");
    let parts = parts.ok_or_else(|| refuse(&list, "is required"))?;
    let parts = items_of(parts).ok_or_else(|| refuse(&list, "must be a list"))?;
    if parts.is_empty() {
        return Err(refuse(&list, "must not be empty"));
    }
    let mut weight = 0;
    for (number, part) in parts.into_iter().enumerate() {
        let at = format!("{list}[{number}]");
        let EmbedPartView { text, media } = raw_json::object(part, &at)?;
        let path = format!("{at}.text");
        match (text, media) {
            (Some(text), _) => {
                let text =
                    raw_json::string(text).ok_or_else(|| refuse(&path, "must be a string"))?;
                weight += text.len() as u64;
            }
            (None, Some(media)) if media.get().starts_with('{') => weight += MEDIA_BYTES,
            (None, Some(_)) => {
                return Err(refuse(&format!("{at}.inlineData"), "must be an object"));
            }
            (None, None) => return Err(refuse(&path, "is required")),
        }
    }
    if weight == 0 {
        return Err(refuse(&format!("{list}[0].text"), "must not be empty"));
    }
    Ok(weight)
}

pub(super) fn patch(
    body: &Bytes,
    facts: &EmbeddingFacts,
    model: &str,
    method: &str,
) -> ProviderRequest {
    let edits = if facts.model == model {
        Vec::new()
    } else {
        let name = json::to_json_string(&full_name(model));
        facts
            .model_ranges
            .iter()
            .map(|at| BodyEdit { range: at.clone(), replacement: name.clone() })
            .collect()
    };
    ProviderRequest { path: path(model, method), body: BodySegments::with_edits(body, edits) }
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
    read(parse(body)?, "", &mut embed)?;
    Ok(embed)
}

pub(super) fn read_batch(
    target: &RequestTarget,
    body: &[u8],
) -> Result<EmbeddingRequest, ApiError> {
    let mut embed = empty_request(target);
    let Value::Object(mut fields) = parse(body)? else {
        return Err(ApiError::invalid("", "the body must be a JSON object"));
    };
    let requests = match fields.shift_remove("requests") {
        Some(Value::Array(items)) => items,
        Some(one @ Value::Object(_)) => vec![one],
        _ => return Err(refuse("requests", "must be a list")),
    };
    keep(fields, "", &mut embed.extras);
    for (at, request) in requests.into_iter().enumerate() {
        read(request, &format!("requests[{at}]."), &mut embed)?;
    }
    Ok(embed)
}

fn parse(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_str(json::checked_text(body)?)
        .map_err(|e| ApiError::invalid("", format!("the body is not valid JSON: {e}")))
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

/// Removes a field under either spelling.
fn take(fields: &mut Map<String, Value>, camel: &str, snake: &str) -> Option<Value> {
    let value = fields.shift_remove(camel).or_else(|| fields.shift_remove(snake));
    value.filter(|value| !value.is_null())
}

fn keep(fields: Map<String, Value>, scope: &str, extras: &mut ExtraFields) {
    for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_null()) {
        extras.insert(ORIGIN, &format!("{scope}{name}"), value);
    }
}

/// Adds one request of a batch.
fn read(request: Value, at: &str, embed: &mut EmbeddingRequest) -> Result<(), ApiError> {
    let Value::Object(mut fields) = request else {
        return Err(ApiError::invalid(at, "a request must be an object"));
    };
    // The URL names the model, and the rules have checked that the body agrees.
    fields.shift_remove("model");
    let first = embed.inputs.is_empty();
    let dimensions = match take(&mut fields, "outputDimensionality", "output_dimensionality") {
        None => None,
        Some(Value::String(text)) => text.parse().ok(),
        Some(value) => value.as_u64(),
    };
    if !first && dimensions != embed.dimensions {
        let path = format!("{at}outputDimensionality");
        return Err(refuse(&path, "must be the same in every request for this model"));
    }
    embed.dimensions = dimensions;
    let task = take(&mut fields, "taskType", "task_type").map(|value| match value {
        Value::String(word) => word,
        other => other.to_string(),
    });
    // An unspecified task type equals none.
    let task = task.filter(|word| !matches!(word.as_str(), "TASK_TYPE_UNSPECIFIED" | "0"));
    embed.task = embed.task.take().or(task);
    let title = take(&mut fields, "title", "title");
    let title = title.and_then(|value| value.as_str().map(str::to_owned));
    embed.title = embed.title.take().or(title);
    let content = fields.shift_remove("content").unwrap_or_default();
    embed.inputs.push(EmbeddingInput::Text(words(content, at, &mut embed.extras)?));
    keep(fields, "", &mut embed.extras);
    Ok(())
}

/// Returns the joined text of the parts.
fn words(content: Value, at: &str, extras: &mut ExtraFields) -> Result<String, ApiError> {
    let Value::Object(mut content) = content else {
        return Err(refuse(&format!("{at}content"), "must be an object"));
    };
    // The role does not affect the vector.
    content.shift_remove("role");
    let parts = match content.shift_remove("parts") {
        Some(Value::Array(parts)) => parts,
        Some(one @ Value::Object(_)) => vec![one],
        _ => return Err(refuse(&format!("{at}content.parts"), "must be a list")),
    };
    keep(content, "content.", extras);
    let mut words = String::new();
    for (number, part) in parts.into_iter().enumerate() {
        let path = format!("{at}content.parts[{number}]");
        let Value::Object(mut part) = part else {
            return Err(refuse(&path, "must be an object"));
        };
        // A vector of the text alone must not pass for one of text and media.
        match part.shift_remove("text") {
            Some(Value::String(text)) => words.push_str(&text),
            _ => return Err(refuse(&path, "must be text: this model takes no other input")),
        }
        if take(&mut part, "inlineData", "inline_data").is_some() {
            return Err(refuse(&path, "must be text: this model takes no other input"));
        }
        keep(part, "content.parts.", extras);
    }
    Ok(words)
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
            Err(refuse("input", "must be text: this model takes no token lists"))
        }
    };
    Ok((inputs.iter().map(write).collect::<Result<_, _>>()?, losses.into_vec()))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NativeEmbedUsage {
    #[serde(default)]
    prompt_token_count: Option<u64>,
    #[serde(default)]
    total_token_count: Option<u64>,
}

/// Metered fields of a reply. `T` is the type a vector is parsed into.
#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
struct NativeEmbedReply<T> {
    #[serde(default)]
    embedding: Option<T>,
    #[serde(default)]
    embeddings: Option<Vec<T>>,
    #[serde(default, rename = "usageMetadata")]
    usage: Option<NativeEmbedUsage>,
    #[serde(default)]
    error: Option<IgnoredAny>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl<T> NativeEmbedReply<T> {
    fn usage(&self) -> Option<Usage> {
        let counts = self.usage.as_ref()?;
        let input = counts.prompt_token_count.or(counts.total_token_count)?;
        Some(Usage { input, ..Usage::default() })
    }
}

#[derive(Deserialize)]
struct NativeVector {
    // The format omits empty lists.
    #[serde(default)]
    values: Vec<f32>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

fn reply<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<NativeEmbedReply<T>, ApiError> {
    let reply: NativeEmbedReply<T> =
        serde_json::from_slice(body).map_err(|e| unreadable(&e.to_string()))?;
    if reply.error.is_some() {
        return Err(error_of(crate::native::NativeDialect.meter_reply(body)));
    }
    Ok(reply)
}

pub(super) fn read_usage_one(body: &[u8]) -> Result<Option<Usage>, ApiError> {
    let reply: NativeEmbedReply<IgnoredAny> = reply(body)?;
    match reply.embedding {
        Some(_) => Ok(reply.usage()),
        None => Err(unreadable("there is no `embedding`")),
    }
}

pub(super) fn read_usage_batch(body: &[u8]) -> Result<Option<Usage>, ApiError> {
    let reply: NativeEmbedReply<IgnoredAny> = reply(body)?;
    match reply.embeddings {
        Some(_) => Ok(reply.usage()),
        None => Err(unreadable("there is no `embeddings`")),
    }
}

pub(super) fn read_reply_one(body: &[u8]) -> Result<EmbeddingReply, ApiError> {
    let mut reply: NativeEmbedReply<NativeVector> = reply(body)?;
    let one = reply.embedding.take().ok_or_else(|| unreadable("there is no `embedding`"))?;
    read_vectors(vec![one], reply)
}

pub(super) fn read_reply_batch(body: &[u8]) -> Result<EmbeddingReply, ApiError> {
    let mut reply: NativeEmbedReply<NativeVector> = reply(body)?;
    let all = reply.embeddings.take().ok_or_else(|| unreadable("there is no `embeddings`"))?;
    read_vectors(all, reply)
}

fn read_vectors(
    vectors: Vec<NativeVector>,
    reply: NativeEmbedReply<NativeVector>,
) -> Result<EmbeddingReply, ApiError> {
    let usage = reply.usage();
    let mut extras = ExtraFields::new();
    keep(reply.rest, "", &mut extras);
    let mut read = Vec::with_capacity(vectors.len());
    for NativeVector { values, rest } in vectors {
        keep(rest, "embeddings.", &mut extras);
        read.push(finite(values)?);
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
    let EmbeddingReply { vectors: _, usage, extras } = embedded;
    let mut losses = Losses::new();
    for name in extras.foreign_to(ORIGIN) {
        losses.add(&format!("reply.{name}"), "only the provider's format has this field");
    }
    let usage = usage.map_or_else(String::new, |Usage { input, .. }| {
        format!(",\"usageMetadata\":{{\"promptTokenCount\":{input},\"totalTokenCount\":{input}}}")
    });
    (format!("{{{vectors}{usage}}}").into_bytes(), losses.into_vec())
}
