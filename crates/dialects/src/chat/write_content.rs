//! Writes the messages of a chat request from canon.

use canon::{
    CacheBreakpoint, CacheField, ExtraFields, Losses, Media, MediaKind, MediaSource, Part,
    PartKind, Role, ToolCall, ToolResult, Turn, VideoClip, WireFormat,
};
use serde_json::Value;

use super::names::{ORIGIN, REASONING_DETAILS};
use super::signatures;
use crate::LaneSettings;
use crate::fields::{
    FOREIGN_SIGNATURE, MOVED_MEDIA, ObjectWriter, lose, note_foreign_fields, number,
    write_cache_breakpoint, write_cache_control,
};
use crate::media_problem::MediaProblem;
use crate::native::BYPASS_SIGNATURE;
use crate::openai_values::{code_block, write_audio, write_detail, write_url};
use crate::write_json::TextOrParts;

/// Writes a turn. `shown` holds the media of the tool results before it, which follow the last result of a
/// round: the API takes nothing between the results.
pub(super) fn write_turn(
    turn: &Turn,
    lane: &LaneSettings<'_>,
    shown: &mut Vec<Part>,
    messages: &mut Vec<ObjectWriter>,
    losses: &mut Losses,
) {
    let Turn { role, parts, name, extras } = turn;
    note_foreign_fields(extras, ORIGIN, "turn", losses);
    let has_results = *role == Role::User && parts.iter().any(is_result);
    if !has_results {
        write_shown(shown, lane, messages, losses);
    }
    let word = match role {
        Role::Assistant => {
            let (message, shown) = assistant(turn, lane, losses);
            let has_calls = parts.iter().any(|part| matches!(part.kind, PartKind::ToolCall(_)));
            // The results of calls follow them, so that nothing can stand between.
            return match has_calls {
                true => messages.extend(shown.into_iter().chain(message)),
                false => messages.extend(message.into_iter().chain(shown)),
            };
        }
        Role::System => "system",
        Role::Developer => "developer",
        Role::User => "user",
    };
    // Tool results come first: the API requires them right after the calls they answer.
    if has_results {
        write_results(parts, lane, shown, messages, losses);
        if parts.iter().all(is_result) {
            return;
        }
    }
    let attachments = std::mem::take(shown);
    let is_other = |part: &&Part| !has_results || !is_result(part);
    let others: Vec<&Part> = parts.iter().filter(is_other).chain(&attachments).collect();
    let content = content(&others, lane, losses);
    if !content.is_empty() || parts.is_empty() {
        let message = ObjectWriter::with_room(content.text_bytes());
        let message = message.set("role", word).set_some("name", name.as_deref());
        messages.push(message.set("content", content).with_extras(extras, ORIGIN));
    }
}

/// Writes the media of the last tool results as a message of the user.
pub(super) fn write_shown(
    shown: &mut Vec<Part>,
    lane: &LaneSettings<'_>,
    messages: &mut Vec<ObjectWriter>,
    losses: &mut Losses,
) {
    if shown.is_empty() {
        return;
    }
    let shown = std::mem::take(shown);
    let content = content(&shown.iter().collect::<Vec<_>>(), lane, losses);
    if !content.is_empty() {
        messages.push(ObjectWriter::new().set("role", "user").set("content", content));
    }
}

const fn is_result(part: &Part) -> bool {
    matches!(part.kind, PartKind::ToolResult(_))
}

/// Writes the tool results of a turn, and adds their media to those that are shown after them.
fn write_results(
    parts: &[Part],
    lane: &LaneSettings<'_>,
    shown: &mut Vec<Part>,
    messages: &mut Vec<ObjectWriter>,
    losses: &mut Losses,
) {
    for part in parts {
        let PartKind::ToolResult(result) = &part.kind else { continue };
        note_foreign_fields(&part.extras, ORIGIN, "part", losses);
        let cache = cache_mark(part.cache_breakpoint.as_ref(), lane, losses);
        messages.push(tool_result(result, cache, shown, losses));
    }
}

fn content<'a>(
    parts: &[&'a Part],
    lane: &LaneSettings<'_>,
    losses: &mut Losses,
) -> TextOrParts<'a> {
    let cited = |part: &&Part| matches!(&part.kind, PartKind::Text { citations, .. } if !citations.is_empty());
    let cited = parts.iter().any(cited);
    losses.add_if(cited, "text.citations", "a chat history has no field for citations");
    if let [Part { kind: PartKind::Text { text, .. }, cache_breakpoint: cache, extras, .. }] = parts
        && extras.for_format(ORIGIN).is_none()
        && cache_mark(cache.as_ref(), lane, losses).is_none()
    {
        note_foreign_fields(extras, ORIGIN, "part", losses);
        return TextOrParts::Text(text.into());
    }
    TextOrParts::Parts(parts.iter().filter_map(|part| write_part(part, lane, losses)).collect())
}

fn write_part(part: &Part, lane: &LaneSettings<'_>, losses: &mut Losses) -> Option<ObjectWriter> {
    note_foreign_fields(&part.extras, ORIGIN, "part", losses);
    let text_part = |text: &str| ObjectWriter::typed("text").set("text", text);
    let object = match &part.kind {
        PartKind::Text { text, .. } => text_part(text),
        PartKind::Refusal(text) => ObjectWriter::typed("refusal").set("refusal", text.as_str()),
        PartKind::Media(media) => write_media(media, &part.extras, losses)?,
        PartKind::Foreign { origin, value } if *origin == ORIGIN => {
            return Some(ObjectWriter::new().with_object(Some(value)));
        }
        code @ (PartKind::CodeExecution(_) | PartKind::CodeResult(_)) => {
            text_part(&code_block(code))
        }
        PartKind::Foreign { .. } => {
            return lose("part", "a part only the caller's format has", losses);
        }
        PartKind::Thought(_) | PartKind::ToolCall(_) | PartKind::ToolResult(_) => return None,
        PartKind::WebSearch(_) => {
            return lose("part.search", "the chat format has no field for a past search", losses);
        }
    };
    let (field, mark) = cache_mark(part.cache_breakpoint.as_ref(), lane, losses).unzip();
    let object = object.set_some(field.unwrap_or_default(), mark);
    Some(object.with_extras(&part.extras, ORIGIN))
}

/// Returns the field of a cache breakpoint at this provider, and its value.
fn cache_mark(
    cache: Option<&CacheBreakpoint>,
    lane: &LaneSettings<'_>,
    losses: &mut Losses,
) -> Option<(&'static str, Value)> {
    let mark = cache?;
    match lane.cache_field {
        Some(CacheField::PromptCacheBreakpoint) => {
            Some(("prompt_cache_breakpoint", write_cache_breakpoint(mark)))
        }
        Some(CacheField::CacheControl) => Some(("cache_control", write_cache_control(mark))),
        None => lose("part.cache", "this provider takes no cache breakpoints", losses),
    }
}

fn write_media(media: &Media, extras: &ExtraFields, losses: &mut Losses) -> Option<ObjectWriter> {
    let Media { kind, source, name, detail, clip } = media;
    let is_lost = clip.is_some() && *kind != MediaKind::Video;
    losses.add_if(is_lost, "media.clip", "the chat format has clips only for video");
    let is_lost = detail.is_some() && *kind != MediaKind::Image;
    losses.add_if(is_lost, "media.detail", "the chat format has a resolution only for images");
    if let Some(problem) = format_problem(media) {
        return problem.lose(losses);
    }
    let whole = |word: &'static str, inner: ObjectWriter| {
        Some(ObjectWriter::typed(word).set(word, inner.with_object(extras.get(ORIGIN, word))))
    };
    let url = match source {
        MediaSource::Inline { .. } | MediaSource::Url { .. } => write_url(source)?,
        MediaSource::File { id, .. } => {
            return whole("file", ObjectWriter::new().set("file_id", id.as_str()));
        }
        MediaSource::Text(text) => {
            return Some(ObjectWriter::typed("text").set("text", text.as_str()));
        }
    };
    match (kind, source) {
        (MediaKind::Image, _) => {
            let detail = detail.map(write_detail);
            whole("image_url", ObjectWriter::new().set("url", url).set_some("detail", detail))
        }
        (MediaKind::Audio, MediaSource::Inline { mime, data }) => {
            whole("input_audio", write_audio(mime, data))
        }
        (MediaKind::Video, _) => {
            let VideoClip { start, end, fps } = clip.clone().unwrap_or_default();
            let video = ObjectWriter::new()
                .set("url", url)
                .set_some("start_offset", start)
                .set_some("end_offset", end)
                .set_some("fps", fps.map(number));
            whole("video_url", video)
        }
        (MediaKind::Document, MediaSource::Inline { .. }) => {
            let name = name.as_deref().unwrap_or("document.pdf");
            whole("file", ObjectWriter::new().set("filename", name).set("file_data", url))
        }
        (MediaKind::Audio | MediaKind::Document, _) => None,
    }
}

/// Returns the reason that the format cannot carry media.
pub(super) fn media_problem(_: &Part, media: &Media, _: Role) -> Option<MediaProblem> {
    format_problem(media)
}

fn format_problem(media: &Media) -> Option<MediaProblem> {
    let is_by_url = matches!(media.source, MediaSource::Url { .. });
    match media.kind {
        MediaKind::Audio | MediaKind::Document if is_by_url => {
            let why = "the chat format takes this kind of media only inline";
            Some(MediaProblem::new("media.url", why))
        }
        MediaKind::Image | MediaKind::Audio | MediaKind::Video | MediaKind::Document => {
            MediaProblem::of_file(media, ORIGIN)
        }
    }
}

fn tool_result(
    result: &ToolResult,
    cache: Option<(&'static str, Value)>,
    attachments: &mut Vec<Part>,
    losses: &mut Losses,
) -> ObjectWriter {
    let ToolResult { call_id: call, name: _, parts, object: _, is_error: failed } = result;
    losses.add_if(*failed, "tool_result.failed", "the chat format cannot mark a result as failed");
    let media = parts.iter().filter(|part| matches!(part.kind, PartKind::Media(_)));
    let seen = attachments.len();
    attachments.extend(media.cloned());
    let mut text = result.as_text();
    if text.is_empty() && attachments.len() > seen {
        // Chat tool results hold only text, so media follow in the user's message.
        "The result is in the attachment that follows.".clone_into(&mut text);
    }
    let content = match cache {
        None => TextOrParts::Text(text.into()),
        Some((field, mark)) => {
            let part = ObjectWriter::typed("text").set("text", text);
            TextOrParts::Parts(vec![part.set(field, mark)])
        }
    };
    let message = ObjectWriter::new().set("role", "tool").set("tool_call_id", call.as_str());
    message.set("content", content)
}

/// Writes a turn of the model; `None` if the format can carry nothing of it. Its media are shown in a
/// message of the user.
fn assistant(
    turn: &Turn,
    lane: &LaneSettings<'_>,
    losses: &mut Losses,
) -> (Option<ObjectWriter>, Option<ObjectWriter>) {
    let (mut content_parts, mut calls) = (Vec::new(), Vec::new());
    let (mut thoughts, mut details) = (String::new(), Vec::new());
    let mut shown: Vec<&Part> = Vec::new();
    for part in &turn.parts {
        match &part.kind {
            PartKind::Thought(thought) => {
                thoughts.push_str(&thought.text);
                match part.signature.as_ref().map(|signature| signature.for_format(ORIGIN)) {
                    Some(Some(_)) => {
                        details.push(signatures::write_detail(part, thought, details.len()));
                    }
                    Some(None) => losses.add("thought.seal", FOREIGN_SIGNATURE),
                    None => {}
                }
            }
            PartKind::ToolCall(call) => {
                note_foreign_fields(&part.extras, ORIGIN, "part", losses);
                calls.push(match is_bypass(part, lane) {
                    true => write_call(call, &Part { signature: None, ..part.clone() }),
                    false => write_call(call, part),
                });
            }
            PartKind::Media(_) => shown.push(part),
            PartKind::Text { .. }
            | PartKind::Refusal(_)
            | PartKind::ToolResult(_)
            | PartKind::CodeExecution(_)
            | PartKind::CodeResult(_)
            | PartKind::WebSearch(_)
            | PartKind::Foreign { .. } => {
                losses.add_if(part.signature.is_some(), "part.seal", FOREIGN_SIGNATURE);
                content_parts.push(part);
            }
        }
    }
    let shown = (!shown.is_empty()).then(|| content(&shown, lane, losses));
    let shown = shown.filter(|shown| !shown.is_empty()).map(|shown| {
        losses.add("media.role", MOVED_MEDIA);
        ObjectWriter::new().set("role", "user").set("content", shown)
    });
    let is_left_out = content_parts.is_empty() && !calls.is_empty();
    let content = (!is_left_out).then(|| content(&content_parts, lane, losses));
    let is_empty = content.as_ref().is_some_and(TextOrParts::is_empty);
    let is_alone = calls.is_empty() && thoughts.is_empty() && details.is_empty();
    if is_empty && is_alone && !turn.parts.is_empty() {
        return (None, shown);
    }
    let content = if is_empty { Some(TextOrParts::Text("".into())) } else { content };
    let message = ObjectWriter::new()
        .set("role", "assistant")
        .set_some("name", turn.name.as_deref())
        .set("content", content)
        .set_some("reasoning_content", (!thoughts.is_empty()).then_some(thoughts))
        .set_some(REASONING_DETAILS, (!details.is_empty()).then_some(details))
        .set_some("tool_calls", (!calls.is_empty()).then_some(calls))
        .with_extras(&turn.extras, ORIGIN);
    (Some(message), shown)
}

/// Returns true for a call with Gemini's bypass signature
/// (<https://ai.google.dev/gemini-api/docs/thought-signatures>) on its way to a model that is not
/// Gemini. Other models do not check signatures, and the dummy value could confuse them.
fn is_bypass(part: &Part, lane: &LaneSettings<'_>) -> bool {
    let token =
        part.signature.as_ref().and_then(|signature| signature.for_format(WireFormat::Native));
    token == Some(BYPASS_SIGNATURE) && !lane.model.contains("gemini")
}

/// Writes a tool call of a message.
pub(super) fn write_call(call: &ToolCall, part: &Part) -> ObjectWriter {
    let ToolCall { id, name, arguments, custom } = call;
    let (kind, field, text) = match custom {
        true => ("custom", "input", arguments.as_str()),
        false if arguments.is_empty() => ("function", "arguments", "{}"),
        false => ("function", "arguments", arguments.as_str()),
    };
    let inner = ObjectWriter::new().set("name", name.as_str()).set(field, text);
    let object = ObjectWriter::new()
        .set("id", id.as_str())
        .set("type", kind)
        .set(kind, inner.with_object(part.extras.get(ORIGIN, kind)));
    let signature = part.signature.as_ref().and_then(signatures::write_call_signature);
    object.set_some("extra_content", signature).with_extras(&part.extras, ORIGIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::ChatRequest;

    fn call(id: &str) -> Part {
        let call = ToolCall {
            id: id.to_owned(),
            name: "look".to_owned(),
            arguments: "{}".to_owned(),
            custom: false,
        };
        Part::new(PartKind::ToolCall(call))
    }

    fn seen(id: &str) -> Part {
        let source = MediaSource::Url { mime: None, url: format!("https://example.com/{id}.png") };
        let media = Media { kind: MediaKind::Image, source, name: None, detail: None, clip: None };
        Part::new(PartKind::ToolResult(ToolResult {
            call_id: id.to_owned(),
            name: None,
            parts: vec![Part::new(PartKind::Media(media))],
            object: None,
            is_error: false,
        }))
    }

    /// Returns the roles of the messages, with the number of parts of each list.
    fn sent(turns: Vec<Turn>) -> Vec<String> {
        let chat = ChatRequest { turns, ..ChatRequest::default() };
        let lane = LaneSettings {
            model: "up",
            max_payable_output: None,
            model_max_output: None,
            thinking_range: None,
            cache_field: None,
            client_tools: &[canon::ToolKind::Custom],
        };
        let (out, _) = crate::get(ORIGIN).unwrap().write_request(&chat, &lane).unwrap();
        let body: Value = serde_json::from_slice(&out.body.to_vec()).unwrap();
        let messages = body["messages"].as_array().unwrap();
        let shown = |message: &Value| {
            let role = message["role"].as_str().unwrap();
            let parts = message["content"].as_array().map(Vec::len);
            parts.map_or(role.to_owned(), |parts| format!("{role} {parts}"))
        };
        messages.iter().map(shown).collect()
    }

    #[test]
    fn media_of_results_follow_the_last_result_of_a_round() {
        let user = |parts| Turn::new(Role::User, parts);
        let calls = || Turn::new(Role::Assistant, vec![call("c1"), call("c2")]);
        let text = || Part::text("go on");
        let round = ["assistant", "tool", "tool"];
        for (turns, rest) in [
            (vec![calls(), user(vec![seen("c1"), seen("c2")])], vec!["user 2"]),
            (vec![calls(), user(vec![seen("c1")]), user(vec![seen("c2")])], vec!["user 2"]),
            (vec![calls(), user(vec![seen("c1")]), user(vec![seen("c2"), text()])], vec!["user 3"]),
            (
                vec![calls(), user(vec![seen("c1")]), user(vec![seen("c2")]), user(vec![text()])],
                vec!["user 2", "user"],
            ),
            (
                vec![
                    calls(),
                    user(vec![seen("c1")]),
                    user(vec![seen("c2")]),
                    calls(),
                    user(vec![seen("c1")]),
                    user(vec![seen("c2")]),
                ],
                vec!["user 2", "assistant", "tool", "tool", "user 2"],
            ),
        ] {
            let expected: Vec<&str> = round.iter().chain(&rest).copied().collect();
            assert_eq!(sent(turns), expected);
        }
    }
}
