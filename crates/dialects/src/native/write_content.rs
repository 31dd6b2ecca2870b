//! Writes turns and parts, for providers and for callers.

use canon::{
    CodeExecution, CodeResult, ExtraFields, Losses, Media, MediaSource, Part, PartKind, Role,
    Thought, ToolCall, ToolResult, Turn, VideoClip,
};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;

use super::names::{ORIGIN, RESOLUTIONS, UNSIGNED_EXTRA};
use super::own::calls::provider_id;
use super::own::dotted_extras;
use super::signatures;
use crate::LaneSettings;
use crate::fields::{FOREIGN_SIGNATURE, ObjectWriter, lose, note_foreign_fields, number};
use crate::media_problem::MediaProblem;
use crate::text::word_for;
use crate::thinking_range::lane_range;
use crate::write_json::ObjectText;

/// Adjacent turns of one role, which the format requires as one turn.
struct TurnGroup<'a> {
    model: bool,
    parts: Vec<Cow<'a, Part>>,
    extras: &'a ExtraFields,
}

/// Loss text for other parts of instructions.
const ONLY_TEXT_INSTRUCTIONS: &str = "native instructions hold only text";

/// Writes the system instruction and alternating turns.
pub(super) fn write_turns(
    turns: &[Turn],
    lane: &LaneSettings<'_>,
    losses: &mut Losses,
) -> (Vec<ObjectWriter>, Vec<ObjectWriter>) {
    let mut system = Vec::new();
    let mut groups: Vec<TurnGroup<'_>> = Vec::new();
    for turn in turns {
        let Turn { role, parts, name, extras } = turn;
        losses.add_if(name.is_some(), "turn.name", "the native format has no participant names");
        note_foreign_fields(extras, ORIGIN, "turn", losses);
        let (model, parts) = match role {
            Role::System | Role::Developer => {
                let texts: Vec<&str> = parts.iter().filter_map(Part::as_text).collect();
                let is_lost = texts.len() < parts.len();
                losses.add_if(is_lost, "system.parts", ONLY_TEXT_INSTRUCTIONS);
                // Instructions before the first model turn move into the system instruction.
                if !groups.iter().any(|group| group.model) {
                    let texts = texts.into_iter().filter(|text| !text.is_empty());
                    system.extend(texts.map(|text| ObjectWriter::new().set("text", text)));
                    continue;
                }
                losses.add("turn.system", "later instructions are sent as user text");
                let text = format!("<system>{}</system>", texts.join("\n\n"));
                (false, vec![Cow::Owned(Part::text(text))])
            }
            Role::User => (false, parts.iter().map(Cow::Borrowed).collect()),
            Role::Assistant => (true, parts.iter().map(Cow::Borrowed).collect()),
        };
        match groups.last_mut() {
            Some(last) if last.model == model => last.parts.extend(parts),
            _ => groups.push(TurnGroup { model, parts, extras }),
        }
    }
    // A conversation of instructions alone still asks for a reply.
    if groups.is_empty() && !system.is_empty() {
        let content =
            ObjectWriter::new().set("role", "user").set("parts", std::mem::take(&mut system));
        return (system, vec![content]);
    }
    // Models with thinking levels also take a media resolution per part.
    let close = !lane_range(lane).levels.is_empty();
    let (mut calls, mut ranks) = (CallTable::new(), 0..);
    let mut written: Vec<(&TurnGroup<'_>, Vec<ObjectWriter>)> = Vec::new();
    for group in &groups {
        let mut called = false;
        let mut parts = Vec::with_capacity(group.parts.len());
        for part in in_call_order(&group.parts, &calls) {
            if let (PartKind::ToolCall(call), Some(rank)) = (&part.kind, ranks.next()) {
                calls.insert(&call.id, (rank, &call.name));
            }
            parts.extend(write_part(part, &mut called, &calls, close, losses));
        }
        match written.last_mut() {
            _ if parts.is_empty() => {}
            // The turn between the two was dropped because nothing was left of it.
            Some((before, own)) if before.model == group.model => own.extend(parts),
            _ => written.push((group, parts)),
        }
    }
    let contents = written.into_iter().map(|(group, parts)| {
        let role = if group.model { "model" } else { "user" };
        let content = ObjectWriter::new().set("role", role).set("parts", parts);
        dotted_extras::restore(content, group.extras, "")
    });
    (system, contents.collect())
}

/// The calls so far, by id: their order and the names of their functions.
type CallTable<'a> = HashMap<&'a str, (usize, &'a str)>;

/// Returns the parts with results in the order of their calls; other parts keep their places.
fn in_call_order<'p>(parts: &'p [Cow<'_, Part>], calls: &CallTable<'_>) -> Vec<&'p Part> {
    let rank = |part: &Part| match &part.kind {
        PartKind::ToolResult(result) => calls.get(result.call_id.as_str()).map(|call| call.0),
        _ => None,
    };
    let mut parts: Vec<&Part> = parts.iter().map(|part| &**part).collect();
    let ranked = parts.iter().filter_map(|part| Some((rank(part)?, *part)));
    let mut results: Vec<(usize, &Part)> = ranked.collect();
    results.sort_by_key(|(rank, _)| *rank);
    let places = parts.iter_mut().filter(|part| rank(part).is_some());
    for (place, (_, result)) in places.zip(results) {
        *place = result;
    }
    parts
}

fn write_part(
    part: &Part,
    called: &mut bool,
    calls: &CallTable<'_>,
    close: bool,
    losses: &mut Losses,
) -> Option<ObjectWriter> {
    let Part { kind, signature: seal, cache_breakpoint: cache, extras } = part;
    losses.add_if(cache.is_some(), "part.cache", "the native format has no cache breakpoints");
    let own =
        seal.as_ref().and_then(|seal| seal.for_format(ORIGIN)).map(signatures::standard_alphabet);
    let from_here = extras.get(ORIGIN, UNSIGNED_EXTRA).is_some();
    let mut token = own.clone();
    if let PartKind::ToolResult(result) = kind {
        return Some(write_result(result, calls, extras, close, losses));
    }
    if let PartKind::Text { text, citations } = kind {
        let why = "a native history has no place for citations";
        losses.add_if(!citations.is_empty(), "text.citations", why);
        if text.is_empty() && own.is_none() {
            return None;
        }
    }
    let is_unsigned = own.is_none() && !from_here;
    if matches!(kind, PartKind::Thought(_)) && is_unsigned {
        return lose("thought", "the provider ignores thinking that it did not sign", losses);
    }
    let is_first_call = matches!(kind, PartKind::ToolCall(_)) && !std::mem::replace(called, true);
    if is_first_call && is_unsigned {
        token = Some(signatures::BYPASS_SIGNATURE.to_owned());
        let why = "another provider made the call, so the signature check is skipped";
        losses.add("tool_call.seal", why);
    }
    losses.add_if(seal.is_some() && own.is_none(), "part.seal", FOREIGN_SIGNATURE);
    let object = payload(part, close, losses)?;
    Some(object.set_some("thoughtSignature", token))
}

/// Writes a part without its signature; `None` if the format has no place for it. `close` is true
/// if the model takes a resolution for a single image.
pub(super) fn payload(part: &Part, close: bool, losses: &mut Losses) -> Option<ObjectWriter> {
    let Part { kind, signature: _, cache_breakpoint: _, extras } = part;
    let object = match kind {
        PartKind::Text { text, citations: _ } => ObjectWriter::new().set("text", text.as_str()),
        PartKind::Refusal(text) => {
            losses.add("part.refusal", "the native format writes a refusal as text");
            ObjectWriter::new().set("text", text.as_str())
        }
        PartKind::Thought(Thought { text, redacted: _ }) => {
            ObjectWriter::new().set("text", text.as_str()).set("thought", true)
        }
        PartKind::Media(_) => write_media(part, close, losses)?,
        PartKind::ToolCall(call) => nested("functionCall", write_call(call), extras),
        PartKind::CodeExecution(CodeExecution { id, language, code }) => {
            let python = language.eq_ignore_ascii_case("python");
            let why = "the native format knows only Python";
            losses.add_if(!python && !language.is_empty(), "code.language", why);
            let language = if python { "PYTHON" } else { "LANGUAGE_UNSPECIFIED" };
            let inner = ObjectWriter::new()
                .set_some("id", id.as_deref())
                .set("language", language)
                .set("code", code.as_str());
            nested("executableCode", inner, extras)
        }
        PartKind::CodeResult(CodeResult { id, output, is_error: failed }) => {
            let word = if *failed { "OUTCOME_FAILED" } else { "OUTCOME_OK" };
            let kept = extras.get(ORIGIN, "codeExecutionResult.outcome").and_then(Value::as_str);
            let inner = ObjectWriter::new()
                .set_some("id", id.as_deref())
                .set("outcome", kept.unwrap_or(word))
                .set("output", output.as_str());
            nested("codeExecutionResult", inner, extras)
        }
        PartKind::Foreign { origin, value } if *origin == ORIGIN => {
            ObjectWriter::new().with_object(Some(value))
        }
        PartKind::Foreign { .. } => return lose("part", "a part only another format has", losses),
        PartKind::WebSearch(_) => {
            let why = "the native format has no place for a past search";
            return lose("part.search", why, losses);
        }
        PartKind::ToolResult(_) => {
            return lose("part.tool_result", "a tool result has no place in a reply", losses);
        }
    };
    note_foreign_fields(extras, ORIGIN, "part", losses);
    Some(dotted_extras::restore(object, extras, ""))
}

/// Returns an object with one field: the given object and its own extras.
fn nested(name: &'static str, inner: ObjectWriter, extras: &ExtraFields) -> ObjectWriter {
    ObjectWriter::new().set(name, dotted_extras::restore(inner, extras, name))
}

fn write_media(part: &Part, close: bool, losses: &mut Losses) -> Option<ObjectWriter> {
    let Part { kind: PartKind::Media(media), extras, .. } = part else { return None };
    if let Some(problem) = MediaProblem::of_file(media, ORIGIN) {
        return problem.lose(losses);
    }
    let Media { kind: _, source, name, detail, clip } = media;
    losses.add_if(name.is_some(), "media.name", "the native format has no media names");
    let blob = |mime: &str, data: &str| {
        nested("inlineData", ObjectWriter::new().set("mimeType", mime).set("data", data), extras)
    };
    let file = |mime: Option<&str>, uri: &str| {
        let inner = ObjectWriter::new().set_some("mimeType", mime).set("fileUri", uri);
        nested("fileData", inner, extras)
    };
    let object = match source {
        MediaSource::Inline { mime, data } => blob(mime, data),
        MediaSource::Text(text) => blob("text/plain", &media::encode_base64(text)),
        MediaSource::Url { url, mime } => file(mime.as_deref(), url),
        MediaSource::File { id, .. } => file(None, id),
    };
    let clip = clip.as_ref().map(|VideoClip { start, end, fps }| {
        ObjectWriter::new()
            .set_some("startOffset", start.as_deref())
            .set_some("endOffset", end.as_deref())
            .set_some("fps", fps.map(number))
    });
    let why = "this model takes no resolution for single media";
    losses.add_if(detail.is_some() && !close, "media.detail", why);
    let level = detail.filter(|_| close).and_then(|detail| word_for(&RESOLUTIONS, &detail));
    let detail = level.map(|level| ObjectWriter::new().set("level", level));
    Some(object.set_some("videoMetadata", clip).set_some("mediaResolution", detail))
}

/// Returns the reason that the format cannot carry media.
pub(super) fn media_problem(_: &Part, media: &Media, role: Role) -> Option<MediaProblem> {
    match role {
        Role::System | Role::Developer => {
            Some(MediaProblem::new("system.parts", ONLY_TEXT_INSTRUCTIONS))
        }
        Role::User | Role::Assistant => MediaProblem::of_file(media, ORIGIN),
    }
}

/// Writes a call. Free-text input becomes the only field of an object.
fn write_call(call: &ToolCall) -> ObjectWriter {
    ObjectWriter::new()
        .set_some("id", provider_id(&call.id))
        .set("name", call.name.as_str())
        .set("args", ObjectText::of_call(call))
}

/// Writes a tool result. The format requires the tool's name, which other formats leave to the
/// call.
fn write_result(
    result: &ToolResult,
    calls: &CallTable<'_>,
    extras: &ExtraFields,
    close: bool,
    losses: &mut Losses,
) -> ObjectWriter {
    let ToolResult { call_id: call, name, parts, object, is_error: failed } = result;
    let name = name.as_deref().or_else(|| calls.get(call.as_str()).map(|call| call.1));
    losses.add_if(name.is_none(), "tool_result.name", "no call with this id names the tool");
    let media = parts.iter().filter(|part| matches!(part.kind, PartKind::Media(_)));
    let media: Vec<_> = media.filter_map(|part| payload(part, close, losses)).collect();
    let other = parts.iter().any(|part| {
        !matches!(part.kind, PartKind::Media(_) | PartKind::Text { .. } | PartKind::Refusal(_))
    });
    losses.add_if(other, "tool_result.parts", "a native result holds only an object and media");
    let inner = ObjectWriter::new()
        .set_some("id", provider_id(call))
        .set("name", name.unwrap_or("unknown"));
    let text = result.as_text();
    let inner = match object {
        Some(object) => inner.set("response", ObjectText::new(object, "result")),
        None if *failed => inner.set("response", ObjectWriter::new().set("error", &*text)),
        None => inner.set("response", ObjectText::new(&text, "result")),
    };
    let inner = inner.set_some("parts", (!media.is_empty()).then_some(media));
    dotted_extras::restore(nested("functionResponse", inner, extras), extras, "")
}

/// Writes a part of a reply, with its signature as the caller sends it back.
pub(super) fn reply_part(part: &Part, losses: &mut Losses) -> Option<ObjectWriter> {
    let object = payload(part, true, losses)?;
    let redacted = matches!(part.kind, PartKind::Thought(Thought { redacted: true, .. }));
    let token = part.signature.as_ref().map(|seal| signatures::write_thought(seal, redacted));
    Some(object.set_some("thoughtSignature", token))
}
