//! Reads the messages of a chat request into canon.

use canon::{
    Media, MediaKind, MediaSource, Part, PartKind, Role, Thought, ToolCall, ToolResult, Turn,
    VideoClip,
};
use serde_json::Value;

use super::content::{
    ChatCalledFunction, ChatContent, ChatFile, ChatMessage, ChatPart, ChatToolCall,
};
use super::names::{IMAGES_FIELD, ORIGIN, REASONING_DETAILS};
use super::signatures::{self, ContentAuthor};
use crate::json;
use crate::openai_values::{read_audio, read_cache_mark, read_detail, read_file_data, read_url};
use crate::signed_span;
use crate::text::{BorrowedText, owned};
use crate::wire_object::{UnknownFields, raw_value};

pub(super) fn read_turns(messages: Vec<ChatMessage<'_>>) -> Vec<Turn> {
    let mut turns = Vec::with_capacity(messages.len());
    for mut message in messages {
        let mut unknown_details = Vec::new();
        let name = message.name.take().map(BorrowedText::into_owned);
        let (role, parts, name) = match message.role.as_deref().unwrap_or_default() {
            "system" => (Role::System, read_content(message.content.take()), name),
            "developer" => (Role::Developer, read_content(message.content.take()), name),
            "assistant" => {
                let (parts, unknown) = read_assistant(&mut message);
                unknown_details = unknown;
                (Role::Assistant, parts, name)
            }
            "tool" => (Role::User, vec![read_tool_result(&mut message)], name),
            "function" => {
                (Role::User, vec![read_function_result(&mut message, &turns, name)], None)
            }
            _ => (Role::User, read_content(message.content.take()), name),
        };
        let mut extras = message.rest.to_extras(ORIGIN);
        let unknown = (!unknown_details.is_empty()).then_some(Value::Array(unknown_details));
        extras.insert_some(ORIGIN, REASONING_DETAILS, unknown);
        turns.push(Turn { role, parts, name, extras });
    }
    turns
}

fn read_content(content: Option<ChatContent<'_>>) -> Vec<Part> {
    content.map(|content| content.into_list(Part::text, read_part)).unwrap_or_default()
}

fn read_part(part: ChatPart<'_>) -> Part {
    let (kind, mut rest, inner) = match part {
        ChatPart::Text(part) => (Part::text(owned(part.text)).kind, part.rest, None),
        ChatPart::Refusal(part) => (PartKind::Refusal(owned(part.refusal)), part.rest, None),
        ChatPart::Image(part) => {
            let image = part.image_url.unwrap_or_default();
            let detail = image.detail.as_deref().and_then(read_detail);
            let source = read_url(&image.url.unwrap_or_default());
            let media = Media { detail, ..Media::new(MediaKind::Image, source) };
            (PartKind::Media(media), part.rest, Some(("image_url", image.rest)))
        }
        ChatPart::Video(part) => {
            let video = part.video_url.unwrap_or_default();
            let clip = VideoClip {
                start: video.start_offset.map(BorrowedText::into_owned),
                end: video.end_offset.map(BorrowedText::into_owned),
                fps: video.fps,
            };
            let clip = (clip != VideoClip::default()).then_some(clip);
            let source = read_url(&video.url.unwrap_or_default());
            let media = Media { clip, ..Media::new(MediaKind::Video, source) };
            (PartKind::Media(media), part.rest, Some(("video_url", video.rest)))
        }
        ChatPart::Audio(part) => {
            let (media, rest) = read_audio(part.input_audio.unwrap_or_default());
            (PartKind::Media(media), part.rest, Some(("input_audio", rest)))
        }
        ChatPart::File(part) => {
            let mut file = part.file.unwrap_or_default();
            let rest = std::mem::take(&mut file.rest);
            (PartKind::Media(read_file(file)), part.rest, Some(("file", rest)))
        }
        ChatPart::Unknown(fields) => {
            // The breakpoint is part of the value, which is written as it was.
            let cache_breakpoint = read_cache_mark(&mut fields.clone());
            let kind = PartKind::Foreign { origin: ORIGIN, value: fields.to_value() };
            return Part { cache_breakpoint, ..Part::new(kind) };
        }
    };
    let cache_breakpoint = read_cache_mark(&mut rest);
    let mut extras = rest.to_extras(ORIGIN);
    if let Some((name, rest)) = inner {
        rest.keep_in(&mut extras, ORIGIN, name);
    }
    Part { kind, signature: None, cache_breakpoint, extras }
}

fn read_file(file: ChatFile<'_>) -> Media {
    let source = match file.file_id {
        Some(id) => MediaSource::File { origin: ORIGIN, id: id.into_owned() },
        None => read_file_data(&file.file_data.unwrap_or_default()),
    };
    let name = file.filename.map(BorrowedText::into_owned);
    Media { name, ..Media::new(MediaKind::Document, source) }
}

/// Reads an assistant message. Its remaining fields are left in it. Returns the parts, and unknown
/// entries of thinking.
fn read_assistant(message: &mut ChatMessage<'_>) -> (Vec<Part>, Vec<Value>) {
    let calls = message.tool_calls.take().into_iter().flatten();
    let mut calls: Vec<Part> = calls.map(read_tool_call).collect();
    let (details, on_text) = signatures::split_details(take_details(&mut message.rest), &mut calls);
    let (mut parts, unknown) = read_thoughts(details, &mut message.rest);
    let mut texts = read_content(message.content.take());
    if let [Part { kind: PartKind::Text { text, .. }, cache_breakpoint: None, extras, .. }] =
        texts.as_slice()
        && extras.is_empty()
    {
        texts = signed_span::split_text(text, signed_span::parse_spans(on_text));
    } else if texts.is_empty() && !on_text.is_empty() {
        texts = signed_span::split_text("", signed_span::parse_spans(on_text));
    }
    parts.extend(texts);
    let refusal = message.refusal.take().map(BorrowedText::into_owned);
    parts.extend(refusal.map(|text| Part::new(PartKind::Refusal(text))));
    parts.extend(calls);
    parts.extend(message.function_call.take().map(read_function_call));
    parts.extend(take_images(&mut message.rest));
    drop_empty_annotations(&mut message.rest);
    (parts, unknown)
}

/// Takes the generated images of a message, the form in which replies have them.
fn take_images(rest: &mut UnknownFields<'_>) -> Vec<Part> {
    let list: Option<Vec<Value>> =
        rest.get(IMAGES_FIELD).and_then(|raw| json::read(raw.get()).ok());
    let Some(list) = list else { return Vec::new() };
    let images: Option<Vec<Part>> = list.iter().map(read_image).collect();
    let Some(images) = images else { return Vec::new() };
    rest.take(IMAGES_FIELD);
    images
}

/// Reads a generated image of `message.images[]`, an extension of OpenRouter:
/// <https://openrouter.ai/docs/features/multimodal/image-generation>.
pub(super) fn read_image(image: &Value) -> Option<Part> {
    let url = image.get("image_url")?.get("url")?.as_str()?;
    Some(Part::new(PartKind::Media(Media::new(MediaKind::Image, read_url(url)))))
}

/// Removes `annotations` without entries. Every message of a reply has the field, and clients send
/// it back, so that it would be told as lost in each further turn.
fn drop_empty_annotations(rest: &mut UnknownFields<'_>) {
    let list = rest.get("annotations").and_then(|raw| raw.get().strip_prefix('['));
    if list.is_some_and(|list| list.trim_start() == "]") {
        rest.take("annotations");
    }
}

/// Reads `function_call`, the deprecated form of a tool call. It has no id.
fn read_function_call(call: ChatCalledFunction<'_>) -> Part {
    let (name, arguments) = (owned(call.name), owned(call.arguments));
    let id = format!("call_{name}");
    Part::new(PartKind::ToolCall(ToolCall { id, name, arguments, custom: false }))
}

/// Takes the entries of `reasoning_details`.
fn take_details(rest: &mut UnknownFields<'_>) -> Vec<Value> {
    let list = rest.get(REASONING_DETAILS).and_then(|raw| json::read(raw.get()).ok());
    let Some(details) = list else { return Vec::new() };
    rest.take(REASONING_DETAILS);
    details
}

/// Reads thinking from the most detailed of the extension fields. Returns the thoughts, and unknown
/// entries.
fn read_thoughts(details: Vec<Value>, rest: &mut UnknownFields<'_>) -> (Vec<Part>, Vec<Value>) {
    let mut take = |name| rest.text(name).and_then(|text| rest.take(name).map(|_| text));
    let (plain, other) = (take("reasoning_content"), take("reasoning"));
    let (mut parts, mut unknown) = (Vec::new(), Vec::new());
    for detail in details {
        match signatures::read_detail(&detail, ContentAuthor::Caller) {
            Some(part) => parts.push(part),
            None => unknown.push(detail),
        }
    }
    if parts.is_empty() {
        let text = plain.or(other).filter(|text| !text.is_empty());
        let thought = text.map(|text| Thought { text: text.into_owned(), redacted: false });
        parts.extend(thought.map(|thought| Part::new(PartKind::Thought(thought))));
    }
    (parts, unknown)
}

/// Reads one tool call of an assistant message.
fn read_tool_call(call: ChatToolCall<'_>) -> Part {
    let ChatToolCall { id, function, custom, extra_content, rest, .. } = call;
    let is_custom = custom.is_some();
    let called = custom.or(function).unwrap_or_default();
    let arguments = if is_custom { called.input } else { called.arguments };
    let call = ToolCall {
        id: owned(id),
        name: owned(called.name),
        arguments: owned(arguments),
        custom: is_custom,
    };
    let extra = extra_content.map(raw_value);
    let signature = extra.as_ref().and_then(signatures::read_call_signature);
    let mut extras = rest.to_extras(ORIGIN);
    called.rest.keep_in(&mut extras, ORIGIN, if is_custom { "custom" } else { "function" });
    Part::new(PartKind::ToolCall(call)).with_signature(signature).with_extras(extras)
}

fn read_tool_result(message: &mut ChatMessage<'_>) -> Part {
    let failed = message.rest.take("is_error").is_some_and(|value| value.get() == "true");
    let cache_breakpoint = read_cache_mark(&mut message.rest);
    let call_id = owned(message.tool_call_id.take());
    let parts = read_content(message.content.take());
    let result = ToolResult { call_id, name: None, parts, object: None, is_error: failed };
    Part { cache_breakpoint, ..Part::new(PartKind::ToolResult(result)) }
}

/// Reads a `function` message, the deprecated form of a tool result. It names its function and
/// answers the last call of that name.
fn read_function_result(
    message: &mut ChatMessage<'_>,
    turns: &[Turn],
    name: Option<String>,
) -> Part {
    let call = turns.iter().rev().flat_map(|turn| turn.parts.iter().rev()).find_map(|part| {
        match &part.kind {
            PartKind::ToolCall(call) if Some(&call.name) == name.as_ref() => Some(call.id.clone()),
            _ => None,
        }
    });
    let parts = read_content(message.content.take());
    // The call has the function name already. Only a result without a call needs it.
    let name = name.filter(|_| call.is_none());
    let call_id = call.unwrap_or_default();
    let result = ToolResult { call_id, name, parts, object: None, is_error: false };
    Part::new(PartKind::ToolResult(result))
}
