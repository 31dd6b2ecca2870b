//! Reads a whole chat completion into canon: a stream of one chunk.

use canon::{
    ApiError, ChatReply, Citation, ErrorKind, ExtraFields, Media, MediaKind, MediaSource, Part,
    PartKind, ReplyBuilder,
};
use serde_json::Value;

use super::names::ORIGIN;
use super::read_stream::ChatStreamReader;
use super::reply::ChatReplyView;
use crate::json;

/// Reads a reply. An `error` object in place of a reply becomes that error.
pub(super) fn read(body: &[u8]) -> Result<ChatReply, ApiError> {
    let view: ChatReplyView<'_> = json::read_bytes(body).map_err(|e| unreadable(&e.to_string()))?;
    if view.choices.is_none() && view.error.is_none() {
        return Err(unreadable("there is no `choices`"));
    }
    let (mut reader, mut events) = (ChatStreamReader::default(), Vec::new());
    reader.read_chunk(view, &mut events)?;
    reader.close(&mut events);
    let mut reply = ReplyBuilder::default();
    events.into_iter().try_for_each(|event| reply.push(event))?;
    Ok(reply.finish())
}

pub(super) fn unreadable(why: &str) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "the provider's answer could not be read")
        .with_log_note(format!("not a chat completion: {why}"))
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
            Some(Part::new(PartKind::Media(Media::new(MediaKind::Image, source))))
        })
        .collect()
}

/// The lists of log probabilities: those of the text and those of a refusal.
pub(super) const LOGPROB_LISTS: [&str; 2] = ["content", "refusal"];
