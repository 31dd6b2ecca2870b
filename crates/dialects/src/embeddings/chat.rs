//! OpenAI embeddings, `POST /v1/embeddings`.
//!
//! Reference: <https://platform.openai.com/docs/api-reference/embeddings/create>.

use bytes::Bytes;
use canon::{ApiError, Losses, Lossy, NeedKind, RequestNeeds, WireFormat};
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

use super::endpoint::{EmbeddingFormat, WrittenEmbeddings};
use super::reply::{EmbeddingReply, ParsedVectors, error_of, numbers, unreadable};
use super::request::{EmbeddingFacts, EmbeddingInput, EmbeddingRequest, VectorEncoding};
use crate::checks::model_name;
use crate::fields::ObjectWriter;
use crate::json;
use crate::text::{BorrowedText, visit_text};
use crate::wire_object::wire_object;
use crate::wire_rule::{FieldProblem, RuleResult, ensure, max_bytes, one_of};
use crate::wire_value::{AnyValue, PlacedValue, read_items};
use crate::{CallerLabels, PassThrough as _, ProviderRequest, RequestTarget};

const ORIGIN: WireFormat = WireFormat::Chat;
const PATH: &str = "/v1/embeddings";
const MAX_INPUTS: usize = 2_048;
/// Estimated bytes per token.
const BYTES_PER_TOKEN: usize = 4;

wire_object! {
    struct EmbeddingsRequestView<'a>("a JSON object") {
        model required: PlacedValue<'a, BorrowedText<'a>> where model_name,
        input required: EmbeddingsInput<'a> where not_empty,
        dimensions: u64 where |count: &u64| ensure(*count > 0, "must be a whole number not below 1"),
        encoding_format: BorrowedText<'a> where one_of(&["float", "base64"]),
        user: BorrowedText<'a> where max_bytes(4_096),
    }
}

/// The inputs: a text, a tokenized text, or a list of those.
#[derive(Debug)]
struct EmbeddingsInput<'a, const IS_ITEM: bool = false>(Vec<InputItem<'a>>);

#[derive(Debug)]
enum InputItem<'a> {
    Token(u64),
    Text(Cow<'a, str>),
    Tokens(Vec<u64>),
}

/// Reads the inputs, or an item of their list, where a number is a token.
struct InputVisitor<const IS_ITEM: bool>;

impl<'de, const IS_ITEM: bool> Visitor<'de> for InputVisitor<IS_ITEM> {
    type Value = Vec<InputItem<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match IS_ITEM {
            true => "a text or a list of tokens",
            false => "a text, a list of texts, a list of tokens or a list of those",
        })
    }

    visit_text!('de, |text| vec![InputItem::Text(text)]);

    fn visit_u64<E: de::Error>(self, token: u64) -> Result<Self::Value, E> {
        match IS_ITEM {
            true => Ok(vec![InputItem::Token(token)]),
            false => Err(E::invalid_type(de::Unexpected::Unsigned(token), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        if IS_ITEM {
            return Ok(vec![InputItem::Tokens(read_items(items, usize::MAX)?)]);
        }
        let mut inputs = Vec::new();
        while let Some(EmbeddingsInput::<'de, true>(item)) = items.next_element()? {
            // A list that starts with a number is one tokenized text.
            if let (true, [InputItem::Token(first)]) = (inputs.is_empty(), item.as_slice()) {
                let mut tokens = vec![*first];
                tokens.extend(read_items::<u64, _>(items, usize::MAX)?);
                return Ok(vec![InputItem::Tokens(tokens)]);
            }
            if inputs.len() == MAX_INPUTS {
                let why = format!("must have at most {MAX_INPUTS} items");
                return Err(de::Error::custom(FieldProblem::new("", why)));
            }
            inputs.extend(item);
        }
        Ok(inputs)
    }
}

impl<'de: 'a, 'a, const IS_ITEM: bool> Deserialize<'de> for EmbeddingsInput<'a, IS_ITEM> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(InputVisitor::<IS_ITEM>).map(Self)
    }
}

fn not_empty(input: &EmbeddingsInput<'_>) -> RuleResult {
    ensure(!input.0.is_empty(), "must not be empty")?;
    let texts = matches!(input.0.first(), Some(InputItem::Text(_)));
    for (at, item) in input.0.iter().enumerate() {
        let why = match item {
            InputItem::Text(text) if text.is_empty() => "must not be empty",
            InputItem::Tokens(tokens) if tokens.is_empty() => "must not be empty",
            InputItem::Text(_) if texts => continue,
            InputItem::Tokens(_) if !texts => continue,
            InputItem::Text(_) | InputItem::Tokens(_) | InputItem::Token(_) => {
                "must be of the kind of the first item"
            }
        };
        let path = if input.0.len() == 1 { String::new() } else { format!("[{at}]") };
        return Err(FieldProblem::new(path, why));
    }
    Ok(())
}

wire_object! {
    /// A reply. The labels have no meaning for the vectors.
    struct EmbeddingsReplyView<'a>("an object") {
        data: Vec<EmbeddingItem<'a>>,
        usage: EmbeddingsUsage<'a>,
        error: AnyValue,
        object: AnyValue,
        model: AnyValue,
        id: AnyValue,
        created: AnyValue,
    }

    struct EmbeddingsUsage<'a>("an object") {
        prompt_tokens: u64,
        total_tokens: u64,
    }

    struct EmbeddingItem<'a>("an object") {
        embedding required: &'a RawValue,
        index: usize,
    }
}

/// The format of `/v1/embeddings`.
pub(super) struct ChatEmbeddings;

impl EmbeddingFormat for ChatEmbeddings {
    fn read_facts(&self, _: &RequestTarget, body: &[u8]) -> Result<EmbeddingFacts, ApiError> {
        let text = json::checked_text(body)?;
        let view: EmbeddingsRequestView<'_> = json::parse(text)?;
        let bytes = |item: &InputItem<'_>| match item {
            InputItem::Text(text) => text.len(),
            InputItem::Tokens(tokens) => tokens.len() * BYTES_PER_TOKEN,
            InputItem::Token(_) => BYTES_PER_TOKEN,
        };
        let model = view.model.as_ref();
        let inputs = view.input.iter().flat_map(|input| &input.0);
        let mut needs = RequestNeeds::default();
        if let Some(length) = view.dimensions {
            needs.add("dimensions", NeedKind::Dimensions(length));
        }
        Ok(EmbeddingFacts {
            model: model.map(|model| (*model.value).to_owned()).unwrap_or_default(),
            input_bytes: inputs.map(bytes).sum::<usize>() as u64,
            model_ranges: model.iter().map(|model| json::range_of(text, model.raw)).collect(),
            needs,
            labels: CallerLabels::read(view.user.as_deref(), None),
        })
    }

    fn patch(&self, body: &Bytes, facts: &EmbeddingFacts, model: &str) -> ProviderRequest {
        let body = facts.with_model(body, model, model);
        ProviderRequest { path: PATH.to_owned(), body }
    }

    fn read_request(&self, _: &RequestTarget, body: &[u8]) -> Result<EmbeddingRequest, ApiError> {
        let view: EmbeddingsRequestView<'_> = json::parse(json::checked_text(body)?)?;
        let read = |item| match item {
            InputItem::Text(text) => EmbeddingInput::Text(text.into_owned()),
            InputItem::Tokens(tokens) => EmbeddingInput::Tokens(tokens),
            InputItem::Token(token) => EmbeddingInput::Tokens(vec![token]),
        };
        Ok(EmbeddingRequest {
            model: view.model.map(|model| model.value.into_owned()).unwrap_or_default(),
            inputs: view.input.into_iter().flat_map(|input| input.0).map(read).collect(),
            dimensions: view.dimensions,
            encoding: match view.encoding_format.as_deref() {
                Some("base64") => VectorEncoding::Base64,
                _ => VectorEncoding::Float,
            },
            user: view.user.map(BorrowedText::into_owned),
            extras: view.rest.to_extras(ORIGIN),
            ..EmbeddingRequest::default()
        })
    }

    fn write_requests(&self, embed: &EmbeddingRequest, model: &str) -> WrittenEmbeddings {
        // Requests the default encoding, which every provider supports.
        let EmbeddingRequest {
            model: _,
            inputs,
            dimensions,
            task,
            title,
            encoding: _,
            user,
            extras,
        } = embed;
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
        let body = ObjectWriter::new()
            .set("model", model)
            .set("input", inputs.iter().map(write).collect::<Vec<Value>>())
            .set_some("dimensions", *dimensions)
            .set_some("user", user.as_deref())
            .with_extras(extras, ORIGIN);
        Ok((vec![ProviderRequest::new(PATH, body)], losses.into_vec()))
    }

    fn parse_reply<'a>(&self, body: &'a [u8]) -> Result<ParsedVectors<'a>, ApiError> {
        let view: EmbeddingsReplyView<'_> = json::read_bytes(body).map_err(unreadable)?;
        if view.error.is_some() {
            return Err(error_of(crate::chat::ChatDialect.meter_reply(body)));
        }
        let mut data = view.data.ok_or_else(|| unreadable("there is no `data`"))?;
        // The sort is stable: items without an index keep their order.
        data.sort_by_key(|item| item.index.unwrap_or_default());
        Ok(ParsedVectors {
            vectors: data.iter().filter_map(|item| item.embedding).map(RawValue::get).collect(),
            input: view.usage.and_then(|usage| usage.prompt_tokens.or(usage.total_tokens)),
            extras: view.rest.to_extras(ORIGIN),
        })
    }

    fn write_reply(&self, embedded: &EmbeddingReply, embed: &EmbeddingRequest) -> Lossy<Vec<u8>> {
        let EmbeddingReply { vectors, usage, extras: _ } = embedded;
        let item = |(index, vector): (usize, &Vec<f32>)| {
            let bytes = || vector.iter().flat_map(|number| number.to_le_bytes());
            let vector = match embed.encoding {
                VectorEncoding::Float => numbers(vector),
                VectorEncoding::Base64 => {
                    format!("\"{}\"", media::encode_base64(bytes().collect::<Vec<u8>>()))
                }
            };
            format!("{{\"object\":\"embedding\",\"index\":{index},\"embedding\":{vector}}}")
        };
        let data: Vec<String> = vectors.iter().enumerate().map(item).collect();
        let tokens = usage.unwrap_or_default().input;
        let body = format!(
            "{{\"object\":\"list\",\"data\":[{}],\"model\":{},\"usage\":{{\"prompt_tokens\":{tokens},\
             \"total_tokens\":{tokens}}}}}",
            data.join(","),
            Value::from(embed.model.as_str()),
        );
        (body.into_bytes(), embedded.losses(ORIGIN))
    }
}
