//! OpenAI embeddings, `POST /v1/embeddings`.
//!
//! Reference: <https://platform.openai.com/docs/api-reference/embeddings/create>.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use canon::{ApiError, Losses, Lossy, Usage, WireFormat};
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fmt;

use super::raw_json::{self, refuse};
use super::reply::{EmbeddingReply, error_of, finite, numbers, unreadable};
use super::request::{EmbeddingFacts, EmbeddingInput, EmbeddingRequest, VectorEncoding};
use crate::fields::{JsonPath, ObjectReader, ObjectWriter};
use crate::json::{self, BodyEdit, BodySegments};
use crate::{PassThrough as _, ProviderRequest};

const ORIGIN: WireFormat = WireFormat::Chat;
const PATH: &str = "/v1/embeddings";
const MAX_INPUTS: usize = 2_048;
const MAX_USER_BYTES: usize = 4_096;
/// Estimated bytes per token.
const BYTES_PER_TOKEN: u64 = 4;

#[derive(Deserialize)]
struct EmbeddingsRequestView<'a> {
    #[serde(borrow, default)]
    model: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    dimensions: Option<&'a RawValue>,
    #[serde(borrow, default)]
    encoding_format: Option<&'a RawValue>,
    #[serde(borrow, default)]
    user: Option<&'a RawValue>,
}

pub(super) fn read_facts(body: &[u8]) -> Result<EmbeddingFacts, ApiError> {
    let text = json::checked_text(body)?;
    let EmbeddingsRequestView { model, input, dimensions, encoding_format, user } =
        raw_json::body(text)?;
    let named = model.ok_or_else(|| refuse("model", "is required"))?;
    let model = raw_json::string(named).ok_or_else(|| refuse("model", "must be a string"))?;
    let model = raw_json::model(&model)?;
    let weight = check_input(input.ok_or_else(|| refuse("input", "is required"))?)?;
    if dimensions.is_some_and(|value| raw_json::count(value).is_none_or(|count| count == 0)) {
        return Err(refuse("dimensions", "must be a whole number not below 1"));
    }
    if let Some(value) = encoding_format {
        let word = raw_json::string(value);
        if word.as_deref().and_then(encoding).is_none() {
            return Err(refuse("encoding_format", "must be `float` or `base64`"));
        }
    }
    if let Some(value) = user {
        let user = raw_json::string(value).ok_or_else(|| refuse("user", "must be a string"))?;
        if user.len() > MAX_USER_BYTES {
            return Err(refuse("user", &format!("must be at most {MAX_USER_BYTES} bytes")));
        }
    }
    Ok(EmbeddingFacts {
        model,
        input_bytes: weight,
        model_ranges: vec![json::range_of(text, named)],
    })
}

fn encoding(word: &str) -> Option<VectorEncoding> {
    match word {
        "float" => Some(VectorEncoding::Float),
        "base64" => Some(VectorEncoding::Base64),
        _ => None,
    }
}

/// Checks the inputs and returns their estimated size in bytes.
fn check_input(input: &RawValue) -> Result<u64, ApiError> {
    if let Some(text) = raw_json::string(input) {
        return check_text("input", &text);
    }
    let items = raw_json::list(input).ok_or_else(|| {
        refuse("input", "must be a text, a list of texts, a list of tokens or a list of those")
    })?;
    let Some(first) = items.first() else { return Err(refuse("input", "must not be empty")) };
    // A list that starts with a number is one tokenized text.
    if raw_json::count(first).is_some() {
        return check_tokens("input", &items);
    }
    if items.len() > MAX_INPUTS {
        return Err(refuse("input", &format!("must have at most {MAX_INPUTS} items")));
    }
    let texts = raw_json::string(first).is_some();
    let mut weight = 0;
    for (at, item) in items.iter().enumerate() {
        let path = format!("input[{at}]");
        weight += match (texts, raw_json::string(item), raw_json::list(item)) {
            (true, Some(text), _) => check_text(&path, &text)?,
            (true, None, _) => return Err(refuse(&path, "must be a text like the first item")),
            (false, _, Some(tokens)) if !tokens.is_empty() => check_tokens(&path, &tokens)?,
            (false, _, Some(_)) => return Err(refuse(&path, "must not be empty")),
            (false, _, None) => return Err(refuse(&path, "must be a text or a list of tokens")),
        };
    }
    Ok(weight)
}

fn check_text(path: &str, text: &str) -> Result<u64, ApiError> {
    if text.is_empty() {
        return Err(refuse(path, "must not be empty"));
    }
    Ok(text.len() as u64)
}

fn check_tokens(path: &str, tokens: &[&RawValue]) -> Result<u64, ApiError> {
    match tokens.iter().position(|token| raw_json::count(token).is_none()) {
        Some(at) => Err(refuse(&format!("{path}[{at}]"), "must be a token, a whole number")),
        None => Ok(tokens.len() as u64 * BYTES_PER_TOKEN),
    }
}

pub(super) fn patch(body: &Bytes, facts: &EmbeddingFacts, model: &str) -> ProviderRequest {
    let edits = if facts.model == model {
        Vec::new()
    } else {
        let edit = |at: &std::ops::Range<usize>| BodyEdit {
            range: at.clone(),
            replacement: json::to_json_string(model),
        };
        facts.model_ranges.iter().map(edit).collect()
    };
    ProviderRequest { path: PATH.to_owned(), body: BodySegments::with_edits(body, edits) }
}

pub(super) fn read_request(body: &[u8]) -> Result<EmbeddingRequest, ApiError> {
    let value: Value = serde_json::from_str(json::checked_text(body)?)
        .map_err(|e| ApiError::invalid("", format!("the body is not valid JSON: {e}")))?;
    let mut fields = ObjectReader::new(value, &JsonPath::Root)?;
    let model = fields.required("model")?;
    let inputs = inputs(fields.take("input"))
        .ok_or_else(|| fields.fault("input", "must be a text, or a list of texts or tokens"))?;
    let dimensions = fields.count("dimensions")?;
    let encoding = match fields.string("encoding_format")? {
        None => VectorEncoding::default(),
        Some(word) => encoding(&word)
            .ok_or_else(|| fields.fault("encoding_format", "must be `float` or `base64`"))?,
    };
    let user = fields.string("user")?;
    let extras = fields.extras(ORIGIN);
    Ok(EmbeddingRequest {
        model,
        inputs,
        dimensions,
        task: None,
        title: None,
        encoding,
        user,
        extras,
    })
}

fn inputs(value: Option<Value>) -> Option<Vec<EmbeddingInput>> {
    let items = match value? {
        Value::String(text) => return Some(vec![EmbeddingInput::Text(text)]),
        Value::Array(items) => items,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
    };
    if items.first().is_some_and(Value::is_number) {
        return Some(vec![EmbeddingInput::Tokens(tokens(&items)?)]);
    }
    let read = |item: Value| match item {
        Value::String(text) => Some(EmbeddingInput::Text(text)),
        Value::Array(list) => tokens(&list).map(EmbeddingInput::Tokens),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    };
    items.into_iter().map(read).collect()
}

fn tokens(items: &[Value]) -> Option<Vec<u64>> {
    items.iter().map(Value::as_u64).collect()
}

pub(super) fn write_request(embed: &EmbeddingRequest, lane: &str) -> Lossy<Vec<ProviderRequest>> {
    // Requests the default encoding, which every provider supports.
    let EmbeddingRequest { model: _, inputs, dimensions, task, title, encoding: _, user, extras } =
        embed;
    let mut losses = Losses::new();
    losses.add_if(task.is_some(), "task", "the format has no task type");
    losses.add_if(title.is_some(), "title", "the format has no titles");
    for name in extras.foreign_to(ORIGIN) {
        losses.add(name, "only the caller's format has this field");
    }
    let write = |input: &EmbeddingInput| match input {
        EmbeddingInput::Text(text) => Value::from(text.as_str()),
        EmbeddingInput::Tokens(tokens) => Value::from(tokens.as_slice()),
    };
    let body: Value = ObjectWriter::new()
        .set("model", lane)
        .set("input", inputs.iter().map(write).collect::<Vec<Value>>())
        .set_some("dimensions", *dimensions)
        .set_some("user", user.as_deref())
        .with_extras(extras, ORIGIN)
        .into();
    let body = BodySegments::single(body.to_string());
    (vec![ProviderRequest { path: PATH.to_owned(), body }], losses.into_vec())
}

#[derive(Clone, Copy, Deserialize)]
struct EmbeddingsUsage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    total_tokens: Option<u64>,
}

impl EmbeddingsUsage {
    fn into_canon(self) -> Option<Usage> {
        let input = self.prompt_tokens.or(self.total_tokens)?;
        Some(Usage { input, ..Usage::default() })
    }
}

pub(super) fn read_usage(body: &[u8]) -> Result<Option<Usage>, ApiError> {
    #[derive(Deserialize)]
    struct EmbeddingsReplyView {
        #[serde(default)]
        data: Option<Vec<IgnoredAny>>,
        #[serde(default)]
        usage: Option<EmbeddingsUsage>,
        #[serde(default)]
        error: Option<IgnoredAny>,
    }
    let whole: EmbeddingsReplyView =
        serde_json::from_slice(body).map_err(|e| unreadable(&e.to_string()))?;
    if whole.error.is_some() {
        return Err(error_of(crate::chat::ChatDialect.meter_reply(body)));
    }
    whole.data.ok_or_else(|| unreadable("there is no `data`"))?;
    Ok(whole.usage.and_then(EmbeddingsUsage::into_canon))
}

#[derive(Deserialize)]
struct EmbeddingsReplyBody {
    data: Vec<EmbeddingItem>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Deserialize)]
struct EmbeddingItem {
    embedding: VectorNumbers,
    #[serde(default)]
    index: Option<usize>,
}

/// One vector, in either encoding.
struct VectorNumbers(Vec<f32>);

impl<'de> Deserialize<'de> for VectorNumbers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct VectorVisitor;
        impl<'de> Visitor<'de> for VectorVisitor {
            type Value = VectorNumbers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of numbers, or base64")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<VectorNumbers, A::Error> {
                let mut vector = Vec::new();
                while let Some(number) = items.next_element()? {
                    vector.push(number);
                }
                Ok(VectorNumbers(vector))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<VectorNumbers, E> {
                let bytes = STANDARD.decode(text).map_err(E::custom)?;
                let (fours, rest) = bytes.as_chunks::<4>();
                if !rest.is_empty() {
                    return Err(E::custom("a vector ends in the middle of a number"));
                }
                Ok(VectorNumbers(fours.iter().map(|four| f32::from_le_bytes(*four)).collect()))
            }
        }
        from.deserialize_any(VectorVisitor)
    }
}

pub(super) fn read_reply(body: &[u8]) -> Result<EmbeddingReply, ApiError> {
    let usage = read_usage(body)?;
    let EmbeddingsReplyBody { mut data, mut rest } =
        serde_json::from_slice(body).map_err(|e| unreadable(&e.to_string()))?;
    // Fields that were read already, and labels without meaning for the vectors.
    rest.retain(|name, value| {
        !value.is_null()
            && !matches!(name.as_str(), "usage" | "object" | "model" | "id" | "created")
    });
    // The sort is stable: items without an index keep their order.
    data.sort_by_key(|item| item.index.unwrap_or_default());
    let vectors =
        data.into_iter().map(|item| finite(item.embedding.0)).collect::<Result<_, _>>()?;
    Ok(EmbeddingReply { vectors, usage, extras: canon::ExtraFields::from_fields(ORIGIN, rest) })
}

pub(super) fn write_reply(embedded: &EmbeddingReply, embed: &EmbeddingRequest) -> Lossy<Vec<u8>> {
    let EmbeddingReply { vectors, usage, extras } = embedded;
    let mut losses = Losses::new();
    for name in extras.foreign_to(ORIGIN) {
        losses.add(&format!("reply.{name}"), "only the provider's format has this field");
    }
    let data: Vec<String> = vectors
        .iter()
        .enumerate()
        .map(|(index, vector)| {
            let vector = written(vector, embed.encoding);
            format!("{{\"object\":\"embedding\",\"index\":{index},\"embedding\":{vector}}}")
        })
        .collect();
    let tokens = usage.unwrap_or_default().input;
    let body = format!(
        "{{\"object\":\"list\",\"data\":[{}],\"model\":{},\"usage\":{{\"prompt_tokens\":{tokens},\
         \"total_tokens\":{tokens}}}}}",
        data.join(","),
        Value::from(embed.model.as_str()),
    );
    (body.into_bytes(), losses.into_vec())
}

fn written(vector: &[f32], encoding: VectorEncoding) -> String {
    match encoding {
        VectorEncoding::Float => numbers(vector),
        VectorEncoding::Base64 => {
            let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
            format!("\"{}\"", STANDARD.encode(bytes))
        }
    }
}
