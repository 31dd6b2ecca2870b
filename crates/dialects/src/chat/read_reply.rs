//! Reads a whole chat completion into canon.

use canon::{
    ApiError, ChatReply, Citation, ErrorKind, ExtraFields, Finish, Logprob, Media, MediaKind,
    MediaSource, Part, PartKind, RawReason, ReplyCandidate, Thought, TokenLogprob,
};
use serde::Deserialize as _;
use serde_json::Value;

use super::audio::{AudioBuffer, ChatAudio};
use super::names::{MESSAGE_EXTRA, ORIGIN, REASONING_DETAILS};
use super::signatures::DetailsAuthor;
use super::{fault, read_request, wire};
use crate::endings;
use crate::fields::{JsonPath, ObjectReader};
use crate::json_tree::JsonTree;

/// Reads a reply. An `error` object in place of a reply becomes that error.
pub(super) fn read(body: &[u8]) -> Result<ChatReply, ApiError> {
    let value: JsonTree<'_> =
        serde_json::from_slice(body).map_err(|e| unreadable(&e.to_string()))?;
    let mut fields =
        ObjectReader::new(value, &JsonPath::Root).map_err(|e| unreadable(e.message()))?;
    if let Some(error) = fields.take("error") {
        return Err(fault::read_object(&error.to_string()));
    }
    let mut read = || -> Result<ChatReply, ApiError> {
        let choices = match fields.take_borrowed("choices") {
            Some(JsonTree::List(choices)) => choices,
            Some(_) => return Err(fields.fault("choices", "must be a list")),
            None => return Err(unreadable("there is no `choices`")),
        };
        let candidates =
            choices.into_iter().enumerate().map(candidate).collect::<Result<Vec<_>, _>>()?;
        let usage = fields.take("usage").and_then(|value| {
            serde_json::from_value::<wire::ChatUsage>(value).ok().map(wire::ChatUsage::into_canon)
        });
        fields.take("object");
        Ok(ChatReply {
            id: fields.string("id")?,
            model: fields.string("model")?,
            created: fields.integer("created")?,
            candidates,
            usage,
            extras: ExtraFields::new(),
        })
    };
    let mut reply = read().map_err(|e| unreadable(&e.to_string()))?;
    reply.extras = fields.extras(ORIGIN);
    Ok(reply)
}

fn unreadable(why: &str) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "the provider's answer could not be read")
        .with_log_note(format!("not a chat completion: {why}"))
}

fn candidate((at, value): (usize, JsonTree<'_>)) -> Result<ReplyCandidate, ApiError> {
    let mut fields = ObjectReader::new(value, &JsonPath::Root)?;
    let index = fields.count("index")?.and_then(|n| u32::try_from(n).ok());
    let finish_reason = fields.string("finish_reason")?;
    let chances = fields.take("logprobs").unwrap_or_default();
    let logprobs = LOGPROB_LISTS.iter().flat_map(|name| logprobs(&chances, name)).collect();
    let message = match fields.take_borrowed("message") {
        Some(JsonTree::Object(message)) => message,
        Some(_) => return Err(fields.fault("message", "must be an object")),
        None => Vec::new(),
    };
    let mut message = ObjectReader::new(JsonTree::Object(message), &JsonPath::Root)?;
    message.take("role");
    let details = message.list(REASONING_DETAILS)?.unwrap_or_default();
    let mut parts = read_request::thoughts(details, &mut message, DetailsAuthor::Provider)?;
    let citations = citations(message.list("annotations")?.unwrap_or_default());
    let audio = message.take("audio").unwrap_or_default();
    let audio = ChatAudio::deserialize(&audio).unwrap_or_default();
    let mut audio_buffer = AudioBuffer::default();
    audio_buffer.add(&audio);
    // Audio output has its text in the transcript only.
    let content = message.take("content").filter(|content| content.as_str() != Some(""));
    match content.or_else(|| audio.transcript.as_deref().map(Value::from)) {
        Some(Value::String(text)) if !text.is_empty() => {
            parts.push(Part::new(PartKind::Text { text, citations }));
        }
        Some(Value::Array(pieces)) => {
            let (mut thought, mut text) = (String::new(), String::new());
            for piece in &pieces {
                wire::append_content_part(piece, &mut thought, &mut text);
            }
            if !thought.is_empty() {
                let thought = Thought { text: thought, redacted: false };
                parts.push(Part::new(PartKind::Thought(thought)));
            }
            parts.push(Part::new(PartKind::Text { text, citations }));
        }
        _ => {}
    }
    if let Some(refusal) = message.string("refusal")? {
        parts.push(Part::new(PartKind::Refusal(refusal)));
    }
    parts.extend(images(message.list("images")?.unwrap_or_default()));
    parts.extend(audio_buffer.into_part());
    let calls = message.list("tool_calls")?.unwrap_or_default();
    for call in calls {
        parts.push(read_request::tool_call(call, &JsonPath::Root)?);
    }
    if let Some(call) = message.object("function_call")? {
        parts.push(read_request::function_call(call, &JsonPath::Root)?);
    }
    let rest = message.remaining();
    // Some providers report `stop` although the message has tool calls. Clients act on the reason.
    let calls = parts.iter().any(|part| matches!(part.kind, PartKind::ToolCall(_)));
    let finish = finish_reason.map(|word| {
        Finish::new(endings::read_turn(ORIGIN, &word, calls), RawReason::new(ORIGIN, word))
    });
    let index = index.unwrap_or_else(|| u32::try_from(at).unwrap_or(0));
    let mut extras = fields.extras(ORIGIN);
    if !rest.is_empty() {
        extras.insert(ORIGIN, MESSAGE_EXTRA, Value::Object(rest));
    }
    Ok(ReplyCandidate { index, parts, finish, logprobs, extras })
}

/// Citations of a text. Annotations of other kinds are kept as extras.
pub(super) fn citations(annotations: Vec<Value>) -> Vec<Citation> {
    annotations
        .into_iter()
        .filter_map(|annotation| {
            let Some(inner) = annotation.get("url_citation") else {
                let Value::Object(mut fields) = annotation else { return None };
                // Streams number the annotations.
                fields.shift_remove("index");
                let extras = ExtraFields::from_fields(ORIGIN, fields);
                return Some(Citation { extras, ..Citation::default() });
            };
            let text = |name: &str| inner.get(name).and_then(Value::as_str).map(str::to_owned);
            let at = |name: &str| {
                inner.get(name).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok())
            };
            Some(Citation {
                url: text("url"),
                title: text("title"),
                quote: text("content"),
                span: at("start_index").zip(at("end_index")),
                extras: ExtraFields::new(),
            })
        })
        .collect()
}

/// Generated images in `message.images[]`, an extension of OpenRouter:
/// <https://openrouter.ai/docs/features/multimodal/image-generation>.
pub(super) fn images(images: Vec<Value>) -> Vec<Part> {
    images
        .into_iter()
        .filter_map(|image| {
            let url = image.get("image_url")?.get("url")?.as_str()?;
            let source =
                match url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
                    Some((mime, data)) => {
                        MediaSource::Inline { mime: mime.to_owned(), data: data.to_owned() }
                    }
                    None => MediaSource::Url { url: url.to_owned(), mime: None },
                };
            Some(Part::new(PartKind::Media(Media {
                kind: MediaKind::Image,
                source,
                name: None,
                detail: None,
                clip: None,
            })))
        })
        .collect()
}

/// The lists of log probabilities: those of the text and those of a refusal.
pub(super) const LOGPROB_LISTS: [&str; 2] = ["content", "refusal"];

/// Log probabilities of the tokens in one of the lists.
pub(super) fn logprobs(value: &Value, name: &str) -> Vec<Logprob> {
    let chance = |value: &Value| TokenLogprob {
        token: value.get("token").and_then(Value::as_str).unwrap_or_default().to_owned(),
        id: None,
        logprob: value.get("logprob").and_then(Value::as_f64).unwrap_or_default(),
        bytes: value
            .get("bytes")
            .and_then(Value::as_array)
            .map(|bytes| bytes.iter().filter_map(|b| u8::try_from(b.as_u64()?).ok()).collect()),
    };
    let list = value.get(name).and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .map(|token| Logprob {
            chosen: chance(token),
            top: token
                .get("top_logprobs")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(chance)
                .collect(),
        })
        .collect()
}
