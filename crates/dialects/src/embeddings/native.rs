//! Gemini embeddings, `:embedContent` and `:batchEmbedContents`.
//!
//! Reference: <https://ai.google.dev/api/embeddings>. The input is proto-JSON
//! (<https://protobuf.dev/programming-guides/json/>): snake_case and camelCase names, one object in
//! place of a list, and integers as strings.

use bytes::Bytes;
use canon::{
    ApiError, ExtraFields, Losses, Lossy, MediaKind, NeedKind, RequestNeeds, Usage, WireFormat,
};
use serde_json::value::RawValue;

use super::endpoint::{EmbeddingFormat, WrittenEmbeddings};
use super::reply::{EmbeddingReply, ParsedVectors, error_of, numbers, unreadable};
use super::request::{EmbeddingFacts, EmbeddingInput, EmbeddingRequest};
use crate::checks::{ensure_field, invalid_field, path_model};
use crate::fields::ObjectWriter;
use crate::json;
use crate::media_rules::base64_bytes;
use crate::native::dotted_extras::keep;
use crate::native::operator_path;
use crate::proto_json::ProtoInteger;
use crate::text::BorrowedText;
use crate::wire_object::{UnknownFields, wire_object};
use crate::wire_rule::{FieldProblem, RuleResult, ensure, refuse, require};
use crate::wire_value::{AnyValue, EnumWord, OneOrMany, OpaqueObject, PlacedValue};
use crate::{PassThrough as _, ProviderRequest, RequestTarget};

const ORIGIN: WireFormat = WireFormat::Native;
/// Maximum requests per batch.
const MAX_BATCH_REQUESTS: usize = 100;
/// Estimated bytes of an image or audio input: the smallest costs 258 tokens.
const MEDIA_BYTES: u64 = 1_032;

wire_object! {
    struct BatchEmbedView<'a>("a JSON object") {
        requests required: OneOrMany<EmbedContentView<'a>, MAX_BATCH_REQUESTS>
            where some_requests,
    }

    struct EmbedContentView<'a>("a request object", camel_case) {
        model: PlacedValue<'a, BorrowedText<'a>>,
        content required: EmbedContent<'a>,
        /// The set of task types is open, so the provider checks it.
        task_type "taskType": EnumWord<'a>,
        title: BorrowedText<'a>,
        dimensions "outputDimensionality": ProtoInteger<true>
            where |count: &ProtoInteger<true>| ensure(count.0 > 0, "must be a whole number not below 1"),
    }

    struct EmbedContent<'a>("an object") {
        /// It does not affect the vector.
        role: AnyValue,
        parts required: OneOrMany<EmbedPart<'a>> where some_input,
    }

    struct EmbedBlob<'a>("an object", camel_case) {
        mime_type "mimeType": BorrowedText<'a>,
        data: BorrowedText<'a>,
    }

    struct EmbedPart<'a>("a part object", camel_case) {
        text: BorrowedText<'a>,
        inline_data "inlineData": OpaqueObject<'a>,
    }
    check |part| require("text", part.text.is_some() || part.inline_data.is_some());
}

fn some_requests(requests: &OneOrMany<EmbedContentView<'_>, MAX_BATCH_REQUESTS>) -> RuleResult {
    ensure(!requests.0.is_empty(), "must not be empty")
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

/// The requests of a body with their paths, and the fields beside them.
type EmbedRequests<'a> = (Vec<(String, EmbedContentView<'a>)>, UnknownFields<'a>);

/// The format of `:embedContent` and `:batchEmbedContents`.
pub(super) struct NativeEmbeddings {
    pub(super) is_batch: bool,
}

impl NativeEmbeddings {
    /// Parses a body: one request, or a batch of them.
    fn parse<'a>(&self, text: &'a str) -> Result<EmbedRequests<'a>, ApiError> {
        if !self.is_batch {
            return Ok((vec![(String::new(), json::parse(text)?)], UnknownFields::default()));
        }
        let view: BatchEmbedView<'_> = json::parse(text)?;
        let requests = view.requests.into_iter().flat_map(|list| list.0).enumerate();
        let placed = requests.map(|(at, request)| (format!("requests[{at}]."), request));
        Ok((placed.collect(), view.rest))
    }

    fn path(&self, model: &str) -> String {
        operator_path(model, if self.is_batch { "batchEmbedContents" } else { "embedContent" })
    }
}

/// Returns the model name as used in bodies.
fn full_name(model: &str) -> String {
    format!("models/{}", model.strip_prefix("models/").unwrap_or(model))
}

/// Adds media of a part.
fn add_blob(needs: &mut RequestNeeds, blob: OpaqueObject<'_>, path: impl Fn() -> String) {
    let blob: EmbedBlob<'_> = json::read(blob.0.get()).unwrap_or_default();
    let kind = blob.mime_type.as_deref().map_or(MediaKind::Document, MediaKind::from_mime);
    needs.add_media(kind, blob.data.as_deref().map(base64_bytes), path);
}

/// Adds one request of a batch.
fn read(
    view: EmbedContentView<'_>,
    at: &str,
    embed: &mut EmbeddingRequest,
) -> Result<(), ApiError> {
    let first = embed.inputs.is_empty();
    let dimensions = view.dimensions.and_then(|count| u64::try_from(count.0).ok());
    let path = format!("{at}outputDimensionality");
    let why = "must be the same in every request for this model";
    ensure_field(first || dimensions == embed.dimensions, &path, why)?;
    embed.dimensions = dimensions;
    // An unspecified task type equals none.
    let task = view.task_type.map(|word| word.0.into_owned());
    let task = task.filter(|word| !matches!(word.as_str(), "TASK_TYPE_UNSPECIFIED" | "0"));
    embed.task = embed.task.take().or(task);
    embed.title = embed.title.take().or_else(|| view.title.map(BorrowedText::into_owned));
    let content = view.content.unwrap_or_default();
    keep(&mut embed.extras, "content", &content.rest);
    let mut words = String::new();
    for (number, part) in content.parts.into_iter().flat_map(|parts| parts.0).enumerate() {
        // A vector of the text alone must not pass for one of text and media.
        let (Some(text), None) = (part.text, part.inline_data) else {
            let path = format!("{at}content.parts[{number}]");
            return Err(invalid_field(&path, "must be text: this model takes no other input"));
        };
        words.push_str(&text);
        keep(&mut embed.extras, "content.parts", &part.rest);
    }
    embed.inputs.push(EmbeddingInput::Text(words));
    keep(&mut embed.extras, "", &view.rest);
    Ok(())
}

fn requests(embed: &EmbeddingRequest, lane: &str) -> Result<Lossy<Vec<ObjectWriter>>, ApiError> {
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
            let part = ObjectWriter::new().set("text", text.as_str());
            let request = ObjectWriter::new()
                .set("model", full_name(lane))
                .set("content", ObjectWriter::new().set("parts", vec![part]))
                .set_some("taskType", task.as_deref())
                .set_some("title", title.as_deref())
                .set_some("outputDimensionality", *dimensions);
            let kept = kept.iter().map(|(name, value)| (name.as_str(), *value));
            Ok(request.with_fields(kept))
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

impl EmbeddingFormat for NativeEmbeddings {
    fn read_facts(&self, target: &RequestTarget, body: &[u8]) -> Result<EmbeddingFacts, ApiError> {
        let text = json::checked_text(body)?;
        let mut facts = EmbeddingFacts { model: path_model(target)?, ..EmbeddingFacts::default() };
        for (at, request) in self.parse(text)?.0 {
            if let Some(PlacedValue { raw, value: name }) = &request.model {
                // Each request of a batch names the model as `models/x`. The URL has the
                // authoritative name.
                let bare = name.rsplit_once("models/").map_or(&**name, |(_, bare)| bare);
                let path = format!("{at}model");
                ensure_field(bare == facts.model, &path, "must be the model in the URL")?;
                facts.model_ranges.push(json::range_of(text, raw));
            }
            let length = request.dimensions.and_then(|length| length.to::<u64>());
            let is_new = |length: &u64| {
                !facts.needs.iter().any(|need| need.kind == NeedKind::Dimensions(*length))
            };
            if let Some(length) = length.filter(is_new) {
                let path = format!("{at}outputDimensionality");
                facts.needs.add(path, NeedKind::Dimensions(length));
            }
            let parts = request.content.and_then(|content| content.parts);
            for (number, part) in parts.iter().flat_map(|parts| &parts.0).enumerate() {
                if let Some(blob) = part.inline_data {
                    let path = || format!("{at}content.parts[{number}]");
                    add_blob(&mut facts.needs, blob, path);
                }
            }
            facts.input_bytes += parts.map(|parts| input_bytes(&parts.0)).unwrap_or_default();
        }
        Ok(facts)
    }

    fn patch(&self, body: &Bytes, facts: &EmbeddingFacts, model: &str) -> ProviderRequest {
        let body = facts.with_model(body, model, &full_name(model));
        ProviderRequest { path: self.path(model), body }
    }

    fn read_request(
        &self,
        target: &RequestTarget,
        body: &[u8],
    ) -> Result<EmbeddingRequest, ApiError> {
        let model = target.model.clone().unwrap_or_default();
        let mut embed = EmbeddingRequest { model, ..EmbeddingRequest::default() };
        let (requests, rest) = self.parse(json::checked_text(body)?)?;
        keep(&mut embed.extras, "", &rest);
        for (at, request) in requests {
            read(request, &at, &mut embed)?;
        }
        Ok(embed)
    }

    fn write_requests(&self, embed: &EmbeddingRequest, model: &str) -> WrittenEmbeddings {
        let (mut requests, losses) = requests(embed, model)?;
        if self.is_batch {
            let batch = |some: &[ObjectWriter]| ObjectWriter::new().set("requests", some.to_vec());
            requests = requests.chunks(MAX_BATCH_REQUESTS).map(batch).collect();
        }
        let write = |request| ProviderRequest::new(self.path(model), request);
        Ok((requests.into_iter().map(write).collect(), losses))
    }

    fn parse_reply<'a>(&self, body: &'a [u8]) -> Result<ParsedVectors<'a>, ApiError> {
        let view: NativeEmbedReply<'_> = json::read_bytes(body).map_err(unreadable)?;
        if view.error.is_some() {
            return Err(error_of(crate::native::NativeDialect.meter_reply(body)));
        }
        let one = view.embedding.map(|vector| vec![vector]);
        let vectors = if self.is_batch { view.embeddings } else { one };
        let vectors = vectors.ok_or_else(|| unreadable("there are no vectors"))?;
        let mut extras = ExtraFields::new();
        keep(&mut extras, "", &view.rest);
        for vector in &vectors {
            keep(&mut extras, "embeddings", &vector.rest);
        }
        Ok(ParsedVectors {
            vectors: vectors.iter().map(|one| one.values.map_or("[]", RawValue::get)).collect(),
            input: view.usage.and_then(|usage| usage.prompt.or(usage.total)),
            extras,
        })
    }

    fn write_reply(&self, embedded: &EmbeddingReply, _: &EmbeddingRequest) -> Lossy<Vec<u8>> {
        let values = |vector: &Vec<f32>| format!("{{\"values\":{}}}", numbers(vector));
        let vectors = if self.is_batch {
            let all: Vec<String> = embedded.vectors.iter().map(values).collect();
            format!("\"embeddings\":[{}]", all.join(","))
        } else {
            let first = embedded.vectors.first().cloned().unwrap_or_default();
            format!("\"embedding\":{}", values(&first))
        };
        let usage = embedded.usage.map_or_else(String::new, |Usage { input, .. }| {
            format!(
                ",\"usageMetadata\":{{\"promptTokenCount\":{input},\"totalTokenCount\":{input}}}"
            )
        });
        (format!("{{{vectors}{usage}}}").into_bytes(), embedded.losses(ORIGIN))
    }
}
