//! Gemini embeddings, `:embedContent` and `:batchEmbedContents`.
//!
//! Reference: <https://ai.google.dev/api/embeddings>. The input is proto-JSON
//! (<https://protobuf.dev/programming-guides/json/>): snake_case and camelCase names, one object in
//! place of a list, and integers as strings.

use bytes::Bytes;
use canon::{Extras, Fault, Losses, Lossy, Origin, Usage};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::raw_json::{self, refuse};
use super::reply::{Embedded, error_of, finite, numbers, unreadable};
use super::request::{Embed, Glimpse, Input, VectorEncoding};
use crate::fields::Object;
use crate::json::{self, Edit, Segments};
use crate::{Lane, Outgoing, Passage, Peek, Target};

const ORIGIN: Origin = Origin::Native;
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

pub(super) fn read_facts_one(target: &Target, body: &[u8]) -> Result<Glimpse, Fault> {
    let text = json::text(body)?;
    let mut facts = empty_facts(target)?;
    check_request(text, &raw_json::body(text)?, "", &mut facts)?;
    Ok(facts)
}

pub(super) fn read_facts_batch(target: &Target, body: &[u8]) -> Result<Glimpse, Fault> {
    let text = json::text(body)?;
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

fn empty_facts(target: &Target) -> Result<Glimpse, Fault> {
    let model = raw_json::model(target.model.as_deref().unwrap_or_default())?;
    Ok(Glimpse { model, ..Glimpse::default() })
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
    facts: &mut Glimpse,
) -> Result<(), Fault> {
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
        facts.named.push(json::range_of(text, value));
    }
    let content = content.ok_or_else(|| refuse(&path("content"), "is required"))?;
    facts.weight += check_content(content, &path("content"))?;
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

fn check_content(content: &RawValue, at: &str) -> Result<u64, Fault> {
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

pub(super) fn patch(body: &Bytes, facts: &Glimpse, model: &str, method: &str) -> Outgoing {
    let edits = if facts.model == model {
        Vec::new()
    } else {
        let name = json::quoted(&full_name(model));
        facts.named.iter().map(|at| Edit { at: at.clone(), with: name.clone() }).collect()
    };
    Outgoing { path: path(model, method), body: Segments::edited(body, edits) }
}

/// Returns the model name as used in bodies.
fn full_name(model: &str) -> String {
    format!("models/{}", model.strip_prefix("models/").unwrap_or(model))
}

/// Returns the path of the model's conversations with another method name.
fn path(model: &str, method: &str) -> String {
    let lane = Lane { model, limit: None, max_output: None, steering: None };
    let content = crate::native::Native.patch(&Bytes::new(), &Peek::default(), &lane).path;
    let front = content.rsplit_once(':').map_or(content.as_str(), |(front, _)| front);
    format!("{front}:{method}")
}

pub(super) fn read_one(target: &Target, body: &[u8]) -> Result<Embed, Fault> {
    let mut embed = empty_request(target);
    read(parse(body)?, "", &mut embed)?;
    Ok(embed)
}

pub(super) fn read_batch(target: &Target, body: &[u8]) -> Result<Embed, Fault> {
    let mut embed = empty_request(target);
    let Value::Object(mut fields) = parse(body)? else {
        return Err(Fault::invalid("", "the body must be a JSON object"));
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

fn parse(body: &[u8]) -> Result<Value, Fault> {
    serde_json::from_str(json::text(body)?)
        .map_err(|e| Fault::invalid("", format!("the body is not valid JSON: {e}")))
}

fn empty_request(target: &Target) -> Embed {
    Embed {
        model: target.model.clone().unwrap_or_default(),
        inputs: Vec::new(),
        dimensions: None,
        task: None,
        title: None,
        encoding: VectorEncoding::Float,
        user: None,
        extras: Extras::none(),
    }
}

/// Removes a field under either spelling.
fn take(fields: &mut Map<String, Value>, camel: &str, snake: &str) -> Option<Value> {
    let value = fields.shift_remove(camel).or_else(|| fields.shift_remove(snake));
    value.filter(|value| !value.is_null())
}

fn keep(fields: Map<String, Value>, scope: &str, extras: &mut Extras) {
    for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_null()) {
        extras.put(ORIGIN, &format!("{scope}{name}"), value);
    }
}

/// Adds one request of a batch.
fn read(request: Value, at: &str, embed: &mut Embed) -> Result<(), Fault> {
    let Value::Object(mut fields) = request else {
        return Err(Fault::invalid(at, "a request must be an object"));
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
    embed.inputs.push(Input::Text(words(content, at, &mut embed.extras)?));
    keep(fields, "", &mut embed.extras);
    Ok(())
}

/// Returns the joined text of the parts.
fn words(content: Value, at: &str, extras: &mut Extras) -> Result<String, Fault> {
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

pub(super) fn write_ones(embed: &Embed, lane: &str) -> Result<Lossy<Vec<Outgoing>>, Fault> {
    let (requests, losses) = requests(embed, lane)?;
    let write = |request: Value| Outgoing {
        path: path(lane, EMBED_METHOD),
        body: Segments::whole(request.to_string()),
    };
    Ok((requests.into_iter().map(write).collect(), losses))
}

pub(super) fn write_batches(embed: &Embed, lane: &str) -> Result<Lossy<Vec<Outgoing>>, Fault> {
    let (requests, losses) = requests(embed, lane)?;
    let write = |requests: &[Value]| {
        let body: Value = Object::new().set("requests", requests).into();
        Outgoing { path: path(lane, BATCH_METHOD), body: Segments::whole(body.to_string()) }
    };
    Ok((requests.chunks(MAX_BATCH_REQUESTS).map(write).collect(), losses))
}

fn requests(embed: &Embed, lane: &str) -> Result<Lossy<Vec<Value>>, Fault> {
    // The encoding is applied when the reply is written.
    let Embed { model: _, inputs, dimensions, task, title, encoding: _, user, extras } = embed;
    let mut losses = Losses::new();
    losses.add_if(user.is_some(), "user", "the format has no user id");
    for name in extras.foreign_to(ORIGIN) {
        losses.add(name, "only the caller's format has this field");
    }
    let kept = extras.for_origin(ORIGIN).into_iter().flatten();
    let (inner, kept): (Vec<_>, Vec<_>) = kept.partition(|(name, _)| name.contains('.'));
    for (name, _) in inner {
        losses.add(name, "the gateway writes its own contents around texts");
    }
    let write = |input: &Input| match input {
        Input::Text(text) => {
            let part: Value = Object::new().set("text", text.as_str()).into();
            let request = Object::new()
                .set("model", full_name(lane))
                .set("content", Object::new().set("parts", vec![part]))
                .maybe("taskType", task.as_deref())
                .maybe("title", title.as_deref())
                .maybe("outputDimensionality", *dimensions);
            let all = kept
                .iter()
                .fold(request, |request, (name, value)| request.set(name, Value::clone(value)));
            Ok(all.into())
        }
        Input::Tokens(_) => Err(refuse("input", "must be text: this model takes no token lists")),
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

fn reply<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<NativeEmbedReply<T>, Fault> {
    let reply: NativeEmbedReply<T> =
        serde_json::from_slice(body).map_err(|e| unreadable(&e.to_string()))?;
    if reply.error.is_some() {
        return Err(error_of(crate::native::Native.sniff_reply(body)));
    }
    Ok(reply)
}

pub(super) fn read_usage_one(body: &[u8]) -> Result<Option<Usage>, Fault> {
    let reply: NativeEmbedReply<IgnoredAny> = reply(body)?;
    match reply.embedding {
        Some(_) => Ok(reply.usage()),
        None => Err(unreadable("there is no `embedding`")),
    }
}

pub(super) fn read_usage_batch(body: &[u8]) -> Result<Option<Usage>, Fault> {
    let reply: NativeEmbedReply<IgnoredAny> = reply(body)?;
    match reply.embeddings {
        Some(_) => Ok(reply.usage()),
        None => Err(unreadable("there is no `embeddings`")),
    }
}

pub(super) fn read_reply_one(body: &[u8]) -> Result<Embedded, Fault> {
    let mut reply: NativeEmbedReply<NativeVector> = reply(body)?;
    let one = reply.embedding.take().ok_or_else(|| unreadable("there is no `embedding`"))?;
    read_vectors(vec![one], reply)
}

pub(super) fn read_reply_batch(body: &[u8]) -> Result<Embedded, Fault> {
    let mut reply: NativeEmbedReply<NativeVector> = reply(body)?;
    let all = reply.embeddings.take().ok_or_else(|| unreadable("there is no `embeddings`"))?;
    read_vectors(all, reply)
}

fn read_vectors(
    vectors: Vec<NativeVector>,
    reply: NativeEmbedReply<NativeVector>,
) -> Result<Embedded, Fault> {
    let usage = reply.usage();
    let mut extras = Extras::none();
    keep(reply.rest, "", &mut extras);
    let mut read = Vec::with_capacity(vectors.len());
    for NativeVector { values, rest } in vectors {
        keep(rest, "embeddings.", &mut extras);
        read.push(finite(values)?);
    }
    Ok(Embedded { vectors: read, usage, extras })
}

pub(super) fn write_reply_one(embedded: &Embedded) -> Lossy<Vec<u8>> {
    let vector = embedded.vectors.first().map(Vec::as_slice).unwrap_or_default();
    write_reply(embedded, &format!("\"embedding\":{{\"values\":{}}}", numbers(vector)))
}

pub(super) fn write_reply_batch(embedded: &Embedded) -> Lossy<Vec<u8>> {
    let values = |vector: &Vec<f32>| format!("{{\"values\":{}}}", numbers(vector));
    let all: Vec<String> = embedded.vectors.iter().map(values).collect();
    write_reply(embedded, &format!("\"embeddings\":[{}]", all.join(",")))
}

fn write_reply(embedded: &Embedded, vectors: &str) -> Lossy<Vec<u8>> {
    let Embedded { vectors: _, usage, extras } = embedded;
    let mut losses = Losses::new();
    for name in extras.foreign_to(ORIGIN) {
        losses.add(&format!("reply.{name}"), "only the provider's format has this field");
    }
    let usage = usage.map_or_else(String::new, |Usage { input, .. }| {
        format!(",\"usageMetadata\":{{\"promptTokenCount\":{input},\"totalTokenCount\":{input}}}")
    });
    (format!("{{{vectors}{usage}}}").into_bytes(), losses.into_vec())
}
