//! Writes parts as the blocks of a request.

use canon::{
    Citation, Losses, Media, MediaKind, MediaSource, Part, PartKind, Role, ToolCall, ToolResult,
};
use serde_json::Value;
use std::borrow::Cow;

use super::names::{BLOCK_EXTRA, CITATION_EXTRA, GATEWAY_ID_PREFIX, ORIGIN, UNSIGNED_THOUGHT};
use super::own::server_tools::text_of;
use super::own::{client_tools, tool_names};
use crate::fields::{
    FOREIGN_SEARCH, FOREIGN_SIGNATURE, ObjectWriter, lose, note_foreign_fields, write_cache_control,
};
use crate::media_problem::{MediaProblem, content_kind};
use crate::openai_values::code_block;
use crate::wire_rule::FieldProblem;
use crate::write_json::{ObjectText, TextOrParts, WriteJson};

/// A block of a request.
pub(super) enum RequestBlock<'a> {
    /// A text without other fields.
    Text(Cow<'a, str>),
    /// Another block and its kind.
    Other(&'a str, ObjectWriter),
}

impl<'a> RequestBlock<'a> {
    fn own(block: &'a Value) -> Self {
        Self::Other(text_of(block, "type"), ObjectWriter::new().with_object(Some(block)))
    }

    /// Returns the length of a plain text.
    pub(super) fn text_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Other(..) => 0,
        }
    }

    pub(super) fn kind(&self) -> &str {
        match self {
            Self::Text(_) => "text",
            Self::Other(kind, _) => kind,
        }
    }

    fn into_object(self) -> ObjectWriter {
        match self {
            Self::Text(text) => ObjectWriter::typed("text").set("text", text.as_ref()),
            Self::Other(_, block) => block,
        }
    }
}

/// Loss text for other parts of instructions.
pub(super) const ONLY_TEXT_INSTRUCTIONS: &str =
    "instructions of the messages format hold only text";

/// Returns a string for a single plain text, else a list of blocks.
pub(super) fn content(mut blocks: Vec<RequestBlock<'_>>) -> TextOrParts<'_> {
    match blocks.as_mut_slice() {
        [RequestBlock::Text(text)] => TextOrParts::Text(std::mem::take(text)),
        _ => TextOrParts::Parts(blocks.into_iter().map(RequestBlock::into_object).collect()),
    }
}

/// Writes one part, and tags its text if it is an instruction in mid-conversation. `None` if the part
/// is empty, or left out and recorded as a loss.
pub(super) fn write<'a>(
    part: &'a Part,
    is_instruction: bool,
    losses: &mut Losses,
) -> Result<Option<RequestBlock<'a>>, FieldProblem> {
    let Part { kind, signature, cache_breakpoint, extras } = part;
    note_foreign_fields(extras, ORIGIN, "part", losses);
    let is_thought = matches!(kind, PartKind::Thought(_));
    losses.add_if(signature.is_some() && !is_thought, "part.seal", FOREIGN_SIGNATURE);
    if let Some(block) = extras.get(ORIGIN, BLOCK_EXTRA)
        && !is_our_own(block)
    {
        return Ok(Some(RequestBlock::own(block)));
    }
    let with_rest = |object: ObjectWriter| {
        let mark = cache_breakpoint.as_ref().map(write_cache_control);
        object.set_some("cache_control", mark).with_extras(extras, ORIGIN)
    };
    let text_block = |mut text: Cow<'a, str>, citations: Option<Vec<Value>>| {
        if text.is_empty() {
            return Ok(None);
        }
        if is_instruction {
            text = format!("<system>\n{text}\n</system>").into();
        }
        let is_plain = cache_breakpoint.is_none() && extras.for_format(ORIGIN).is_none();
        if is_plain && citations.is_none() {
            return Ok(Some(RequestBlock::Text(text)));
        }
        let block = RequestBlock::Text(text).into_object().set_some("citations", citations);
        Ok(Some(RequestBlock::Other("text", with_rest(block))))
    };
    let (kind, object) = match kind {
        PartKind::Text { text, citations } => {
            return text_block(Cow::Borrowed(text), write_citations(citations, losses));
        }
        PartKind::Refusal(text) => return text_block(Cow::Borrowed(text), None),
        PartKind::CodeResult(result) if result.output.is_empty() => return Ok(None),
        PartKind::CodeExecution(_) | PartKind::CodeResult(_) => {
            return text_block(Cow::Owned(code_block(kind)), None);
        }
        PartKind::Thought(thought) => {
            // The provider refuses thinking of any other.
            let token = signature.as_ref().and_then(|own| own.for_format(ORIGIN));
            let block = match (token, thought.redacted) {
                (Some(token), true) => ObjectWriter::typed("redacted_thinking").set("data", token),
                (Some(token), false) => ObjectWriter::typed("thinking")
                    .set("thinking", thought.text.as_str())
                    .set("signature", token),
                (None, _) => return Ok(lose("thought", UNSIGNED_THOUGHT, losses)),
            };
            ("thinking", block)
        }
        PartKind::Media(media) => match write_media(media, losses) {
            Some(block) => ("media", block),
            None => return Ok(None),
        },
        PartKind::ToolCall(call) => {
            ("tool_use", write_named_call(call, client_tools::member_of(part)))
        }
        PartKind::ToolResult(result) => ("tool_result", write_result(result, losses)?),
        PartKind::WebSearch(_) => return Ok(lose("part.search", FOREIGN_SEARCH, losses)),
        PartKind::Foreign { origin, value } if *origin == ORIGIN => {
            return Ok(Some(RequestBlock::own(value)));
        }
        PartKind::Foreign { .. } => {
            return Ok(lose("part", "a part only the caller's format has", losses));
        }
    };
    Ok(Some(RequestBlock::Other(kind, with_rest(object))))
}

/// Returns true if the gateway made the block to show what another provider ran.
fn is_our_own(block: &Value) -> bool {
    ["id", "tool_use_id"].iter().any(|name| text_of(block, name).starts_with(GATEWAY_ID_PREFIX))
}

fn write_citations(citations: &[Citation], losses: &mut Losses) -> Option<Vec<Value>> {
    let own = citations.iter().filter_map(|citation| citation.extras.get(ORIGIN, CITATION_EXTRA));
    // The gateway wrote this empty index for a client; it means nothing to a provider.
    let own = own.filter(|own| own.get("encrypted_index").and_then(Value::as_str) != Some(""));
    let own: Vec<Value> = own.cloned().collect();
    let why = "citations of another provider's text cannot be sent to this one";
    losses.add_if(own.len() < citations.len(), "citations", why);
    (!own.is_empty()).then_some(own)
}

/// Writes a call.
pub(super) fn write_call(call: &ToolCall) -> ObjectWriter {
    write_named_call(call, None)
}

/// Writes a call, under the name of a toolset's member if it is one.
fn write_named_call(call: &ToolCall, member: Option<&str>) -> ObjectWriter {
    let name = member.unwrap_or(&call.name);
    call_block((&call.id, name), ObjectText::of_call(call))
}

/// Returns the block of a call with this id, name and input.
pub(super) fn call_block((id, name): (&str, &str), input: impl WriteJson) -> ObjectWriter {
    ObjectWriter::typed("tool_use")
        .set("id", tool_names::write(id).as_ref())
        .set("name", tool_names::write(name).as_ref())
        .set("input", input)
}

fn write_result(result: &ToolResult, losses: &mut Losses) -> Result<ObjectWriter, FieldProblem> {
    let ToolResult { call_id, name: _, parts, object, is_error } = result;
    if call_id.is_empty() {
        return Err(FieldProblem::new("", "a tool result must say which call it answers"));
    }
    let mut blocks = Vec::with_capacity(parts.len());
    blocks.extend(object.as_ref().map(|_| RequestBlock::Text(result.as_text().into())));
    // The object has the texts already.
    let parts = parts.iter().enumerate();
    for (at, part) in parts.filter(|(_, part)| object.is_none() || part.as_text().is_none()) {
        let block = write(part, false, losses);
        blocks.extend(block.map_err(|problem| problem.inside(&format!("parts[{at}]")))?);
    }
    Ok(ObjectWriter::typed("tool_result")
        .set("tool_use_id", tool_names::write(call_id).as_ref())
        .set_some("content", (!blocks.is_empty()).then(|| content(blocks)))
        .set_some("is_error", is_error.then_some(true)))
}

/// Returns the reason that the format cannot carry media.
pub(super) fn media_problem(part: &Part, media: &Media, role: Role) -> Option<MediaProblem> {
    if part.extras.get(ORIGIN, BLOCK_EXTRA).is_some() {
        return None;
    }
    match role {
        Role::System | Role::Developer => Some(MediaProblem::new("system", ONLY_TEXT_INSTRUCTIONS)),
        Role::Assistant | Role::User => format_problem(media),
    }
}

fn format_problem(media: &Media) -> Option<MediaProblem> {
    let problem = |what: &'static str, word: &str| {
        Some(MediaProblem::new(what, format!("the messages format takes no {word}")))
    };
    let is_image = match content_kind(media) {
        MediaKind::Audio => return problem("media.audio", "audio"),
        MediaKind::Video => return problem("media.video", "video"),
        MediaKind::Image => true,
        MediaKind::Document => false,
    };
    match &media.source {
        MediaSource::Inline { mime, data } => match (is_image, &*mime.to_ascii_lowercase()) {
            (true, "image/jpg" | "image/jpeg" | "image/png" | "image/gif" | "image/webp")
            | (false, "application/pdf") => None,
            (true, mime) => problem("media.type", &format!("images of type {mime}")),
            (false, mime) if is_text(mime) => match decode_text(data) {
                Some(_) => None,
                None => problem("media.type", "text that is not UTF-8"),
            },
            (false, mime) => problem("media.type", &format!("documents of type {mime}")),
        },
        MediaSource::Text(_) if is_image => problem("media.type", "images made of text"),
        MediaSource::Text(_) | MediaSource::Url { .. } => None,
        MediaSource::File { .. } => MediaProblem::of_file(media, ORIGIN),
    }
}

fn decode_text(data: &str) -> Option<String> {
    String::from_utf8(media::decode_any_base64(data)?).ok()
}

fn write_media(media: &Media, losses: &mut Losses) -> Option<ObjectWriter> {
    let Media { kind: _, source, name, detail, clip } = media;
    losses.add_if(detail.is_some(), "media.detail", "the messages format has no such field");
    losses.add_if(clip.is_some(), "media.clip", "the messages format has no clips");
    if let Some(problem) = format_problem(media) {
        return problem.lose(losses);
    }
    // Clients send images as files too.
    let is_image = content_kind(media) == MediaKind::Image;
    losses.add_if(is_image && name.is_some(), "media.name", "images have no name in this format");
    let base64 = |mime: &str, data: &str| {
        ObjectWriter::typed("base64").set("media_type", mime).set("data", data)
    };
    let plain =
        |text: &str| ObjectWriter::typed("text").set("media_type", "text/plain").set("data", text);
    let source = match source {
        MediaSource::Inline { mime, data } => match &*mime.to_ascii_lowercase() {
            "image/jpg" => base64("image/jpeg", data),
            mime if is_text(mime) => plain(&decode_text(data)?),
            mime => base64(mime, data),
        },
        MediaSource::Url { url, mime: _ } => ObjectWriter::typed("url").set("url", url.as_str()),
        MediaSource::File { id, .. } => ObjectWriter::typed("file").set("file_id", id.as_str()),
        MediaSource::Text(text) => plain(text),
    };
    let title = name.as_deref().filter(|_| !is_image);
    let word = if is_image { "image" } else { "document" };
    Some(ObjectWriter::typed(word).set("source", source).set_some("title", title))
}

fn is_text(mime: &str) -> bool {
    mime.starts_with("text/") || matches!(mime, "application/json" | "application/xml")
}
