//! Writes turns of canon as request items.

use canon::{
    ExtraFields, Losses, Media, MediaKind, MediaSource, Part, PartKind, Role, Tool, ToolResult,
    Turn,
};
use serde_json::Value;
use std::collections::HashSet;
use std::iter::Peekable;
use std::slice::Iter;

use super::names::{
    CUSTOM_RESULT_EXTRA, FOREIGN_THOUGHT, MESSAGE_EXTRA, NESTED_PART_EXTRA, ORIGIN, OWN_AUDIO_EXTRA,
};
use super::own::tool_names::ToolNames;
use super::own::{client_tools, output_items};
use super::signatures;
use crate::fields::{
    FOREIGN_SEARCH, FOREIGN_SIGNATURE, MOVED_MEDIA, ObjectWriter, lose, note_foreign_fields,
    write_cache_breakpoint,
};
use crate::media_problem::MediaProblem;
use crate::openai_values::{code_block, write_audio, write_detail};

const FOREIGN_PART: &str = "a part only the caller's format has";

/// Writes turns as a list of items.
pub(super) struct ItemListWriter<'a> {
    items: Vec<Value>,
    losses: &'a mut Losses,
    /// Ids of custom tool calls. Their results have an item type of their own.
    custom: HashSet<&'a str>,
    names: ToolNames,
    /// The assistant message in progress: its fields only this format has, and its parts.
    message: Option<(Option<&'a Value>, Vec<Value>)>,
    /// Number of messages with a generated id.
    generated_ids: usize,
}

/// Returns the reason that the format cannot carry media.
pub(super) fn media_problem(part: &Part, media: &Media, role: Role) -> Option<MediaProblem> {
    let is_own_image = role == Role::Assistant && part.extras.get(ORIGIN, "id").is_some();
    if is_own_image { None } else { format_problem(part, media) }
}

/// Audio goes only where it came from: the service's own clients have a part for it, which few models
/// take.
fn format_problem(part: &Part, media: &Media) -> Option<MediaProblem> {
    match media.kind {
        MediaKind::Audio if part.extras.get(ORIGIN, OWN_AUDIO_EXTRA).is_some() => None,
        MediaKind::Audio => {
            Some(MediaProblem::new("media.audio", "the responses format takes no audio"))
        }
        MediaKind::Video => {
            Some(MediaProblem::new("media.video", "the responses format takes no video"))
        }
        MediaKind::Image | MediaKind::Document => MediaProblem::of_file(media, ORIGIN),
    }
}

impl<'a> ItemListWriter<'a> {
    /// Creates a writer for those turns.
    pub(super) fn new(turns: &'a [Turn], tools: &[Tool], losses: &'a mut Losses) -> Self {
        let parts = turns.iter().flat_map(|turn| &turn.parts);
        let custom = parts.filter_map(|part| match &part.kind {
            PartKind::ToolCall(call) if call.custom => Some(call.id.as_str()),
            _ => None,
        });
        let (custom, names) = (custom.collect(), ToolNames::new(tools));
        Self { items: Vec::new(), losses, custom, names, message: None, generated_ids: 0 }
    }

    /// Adds an item unchanged.
    pub(super) fn push(&mut self, item: impl Into<Value>) {
        self.items.push(item.into());
    }

    /// Adds a turn.
    pub(super) fn turn(&mut self, turn: &'a Turn) {
        let Turn { role, parts, name, extras } = turn;
        let why = "the responses format has no participant names";
        self.losses.add_if(name.is_some(), "turn.name", why);
        note_foreign_fields(extras, ORIGIN, "turn", self.losses);
        for part in parts {
            note_foreign_fields(&part.extras, ORIGIN, "part", self.losses);
        }
        let all = || parts.iter().collect();
        match role {
            Role::Assistant => self.assistant(parts),
            Role::System => self.message("system", all(), extras),
            Role::Developer => self.message("developer", all(), extras),
            Role::User => self.user(parts, extras),
        }
    }

    /// Returns the items. Removes thinking without a following item, because the service rejects
    /// it.
    pub(super) fn finish(self) -> Vec<Value> {
        let Self { items, losses, .. } = self;
        let mut kept: Vec<Value> = Vec::with_capacity(items.len());
        let mut is_followed = false;
        for item in items.into_iter().rev() {
            let text = |name: &str| item.get(name).and_then(Value::as_str);
            if text("type") == Some("reasoning") && !is_followed {
                losses.add("thought", "the provider refuses thinking without a following item");
                continue;
            }
            is_followed = text("role").is_none_or(|role| role == "assistant")
                && !text("type").is_some_and(|kind| kind.ends_with("call_output"));
            kept.push(item);
        }
        kept.reverse();
        kept
    }

    fn message(&mut self, role: &str, parts: Vec<&Part>, extras: &ExtraFields) {
        let is_empty = parts.is_empty();
        let content = self.content(parts);
        if is_empty || content != Value::Array(Vec::new()) {
            let item = ObjectWriter::new().set("role", role).set("content", content);
            self.push(item.with_extras(extras, ORIGIN));
        }
    }

    fn user(&mut self, parts: &[Part], extras: &ExtraFields) {
        let mut message_parts: Vec<&Part> = Vec::new();
        let mut has_items = false;
        for part in parts {
            let item = match &part.kind {
                PartKind::ToolResult(result) => self.result(part, result),
                PartKind::Foreign { origin: ORIGIN, value }
                    if part.extras.get(ORIGIN, NESTED_PART_EXTRA).is_none() =>
                {
                    value.clone()
                }
                _ => {
                    message_parts.push(part);
                    continue;
                }
            };
            if !message_parts.is_empty() {
                self.message("user", std::mem::take(&mut message_parts), extras);
            }
            self.push(item);
            has_items = true;
        }
        if !message_parts.is_empty() || !has_items {
            self.message("user", message_parts, extras);
        }
    }

    /// A single plain text becomes a string, anything else a list of parts.
    fn content(&mut self, parts: Vec<&Part>) -> Value {
        if let [Part { kind: PartKind::Text { text, .. }, cache_breakpoint: None, extras, .. }] =
            parts.as_slice()
            && extras.for_format(ORIGIN).is_none()
        {
            return Value::from(text.as_str());
        }
        Value::Array(parts.into_iter().filter_map(|part| self.input_part(part)).collect())
    }

    /// Writes a part of a user message or a tool result.
    fn input_part(&mut self, part: &Part) -> Option<Value> {
        let object = match &part.kind {
            PartKind::Foreign { origin: ORIGIN, value } => return Some(value.clone()),
            PartKind::Text { text, .. } | PartKind::Refusal(text) => input_text(text),
            code @ (PartKind::CodeExecution(_) | PartKind::CodeResult(_)) => {
                input_text(&code_block(code))
            }
            PartKind::Media(media) => self.media(part, media)?,
            PartKind::Foreign { .. } => return lose("part", FOREIGN_PART, self.losses),
            PartKind::WebSearch(_) => return lose("part.search", FOREIGN_SEARCH, self.losses),
            PartKind::Thought(_) | PartKind::ToolCall(_) | PartKind::ToolResult(_) => {
                return lose("part", "a part that a user message cannot hold here", self.losses);
            }
        };
        let mark = part.cache_breakpoint.as_ref().map(write_cache_breakpoint);
        let object = object.set_some("prompt_cache_breakpoint", mark);
        Some(object.with_extras(&part.extras, ORIGIN).into())
    }

    fn media(&mut self, part: &Part, media: &Media) -> Option<ObjectWriter> {
        let Media { kind, source, name, detail, clip } = media;
        self.losses.add_if(clip.is_some(), "media.clip", "the responses format has no clips");
        if let Some(problem) = format_problem(part, media) {
            return problem.lose(self.losses);
        }
        if let (MediaKind::Audio, MediaSource::Inline { mime, data }) = (kind, source) {
            let audio =
                write_audio(mime, data).with_object(part.extras.get(ORIGIN, OWN_AUDIO_EXTRA));
            return Some(ObjectWriter::typed("input_audio").set("input_audio", audio));
        }
        let is_image = *kind == MediaKind::Image;
        let name = name.as_deref();
        // The service requires the name of a file in the request.
        let (name, field, value) = match source {
            MediaSource::Inline { mime, data } => {
                let usual = match mime.as_str() {
                    "application/pdf" => "document.pdf",
                    text if text.starts_with("text/") => "document.txt",
                    _ => "document",
                };
                (Some(name.unwrap_or(usual)), "file_data", format!("data:{mime};base64,{data}"))
            }
            MediaSource::Url { url, .. } => (name, "file_url", url.clone()),
            MediaSource::File { id, .. } => (name, "file_id", id.clone()),
            MediaSource::Text(text) => return Some(input_text(text)),
        };
        // `detail` is required for images.
        let detail = detail.map(write_detail).or(is_image.then_some("auto"));
        let object = match is_image {
            true if field != "file_id" => {
                ObjectWriter::typed("input_image").set("image_url", value)
            }
            _ => ObjectWriter::typed(if is_image { "input_image" } else { "input_file" })
                .set_some("filename", name)
                .set(field, value),
        };
        Some(object.set_some("detail", detail))
    }

    fn result(&mut self, part: &Part, result: &ToolResult) -> Value {
        if let Some(item) = client_tools::own_item(&part.extras) {
            return item.clone();
        }
        let ToolResult { call_id, name: _, parts, object, is_error } = result;
        let why = "the responses format cannot mark a result as failed";
        self.losses.add_if(*is_error, "tool_result.failed", why);
        let why = "a tool result cannot have a cache breakpoint here";
        self.losses.add_if(part.cache_breakpoint.is_some(), "part.cache", why);
        // Media of the result follow its text.
        let text = object.as_ref().map(|_| Part::text(result.as_text()));
        let content: Vec<&Part> = text.iter().chain(parts).collect();
        let content = if content.is_empty() { Value::from("") } else { self.content(content) };
        let custom = part.extras.get(ORIGIN, CUSTOM_RESULT_EXTRA).is_some()
            || self.custom.contains(call_id.as_str());
        let kind = if custom { "custom_tool_call_output" } else { "function_call_output" };
        ObjectWriter::typed(kind)
            .set("call_id", call_id.as_str())
            .set("output", content)
            .with_extras(&part.extras, ORIGIN)
            .into()
    }

    fn assistant(&mut self, parts: &'a [Part]) {
        if parts.is_empty() {
            self.push(ObjectWriter::new().set("role", "assistant").set("content", ""));
        }
        let mut parts = parts.iter().peekable();
        while let Some(part) = parts.next() {
            if let Some(signature) = &part.signature
                && !matches!(part.kind, PartKind::Thought(_))
            {
                match signatures::own_signature_item(signature) {
                    Some(thinking) => {
                        self.close_message();
                        self.push(thinking);
                    }
                    None => self.losses.add("part.seal", FOREIGN_SIGNATURE),
                }
            }
            let why = "only input parts can have a cache breakpoint here";
            self.losses.add_if(part.cache_breakpoint.is_some(), "part.cache", why);
            self.assistant_part(part, &mut parts);
        }
        self.close_message();
    }

    /// Writes a part of the assistant into its message, or as an item of its own. Code takes its
    /// output from the parts that follow.
    fn assistant_part(&mut self, part: &'a Part, rest: &mut Peekable<Iter<'a, Part>>) {
        let has_extra = |name: &str| part.extras.get(ORIGIN, name).is_some();
        let item = match &part.kind {
            PartKind::Text { text, citations } => {
                let length = text.chars().count();
                let notes = citations.iter();
                let notes = notes.filter_map(|c| output_items::annotation(c, length, self.losses));
                let logprobs = part.extras.get(ORIGIN, "logprobs").cloned();
                let output = output_items::text_part(text, notes.collect(), logprobs);
                return self.add_to_message(output, part);
            }
            PartKind::Refusal(text) => {
                return self.add_to_message(output_items::refusal_part(text), part);
            }
            PartKind::Foreign { origin: ORIGIN, value } if has_extra(NESTED_PART_EXTRA) => {
                return self.add_to_message(ObjectWriter::new().with_object(Some(value)), part);
            }
            PartKind::CodeExecution(code) if has_extra("container_id") => {
                let outcome = rest.next_if(|next| {
                    matches!(&next.kind, PartKind::CodeResult(outcome) if outcome.id == code.id)
                });
                Some(output_items::code_item(Some(part), outcome, None, None).into())
            }
            // A container of another provider cannot be named here, so its code is written as text.
            PartKind::CodeExecution(_) | PartKind::CodeResult(_) => {
                let block = output_items::text_part(&code_block(&part.kind), Vec::new(), None);
                return self.add_to_message(block, part);
            }
            PartKind::Thought(thought) => {
                let is_own = match &part.signature {
                    Some(signature) => signature.for_format(ORIGIN).is_some(),
                    // A thought stored by the service is identified by its id alone.
                    None => has_extra("id"),
                };
                let what = if part.signature.is_some() { "thought.seal" } else { "thought" };
                match is_own {
                    true => Some(signatures::write(part, thought, None).into()),
                    false => lose(what, FOREIGN_THOUGHT, self.losses),
                }
            }
            PartKind::ToolCall(_) if client_tools::own_item(&part.extras).is_some() => {
                client_tools::own_item(&part.extras).cloned()
            }
            PartKind::ToolCall(_) => {
                Some(output_items::call_item(part, &self.names, None, None).into())
            }
            PartKind::ToolResult(result) => Some(self.result(part, result)),
            PartKind::WebSearch(search) => {
                match search.id.clone().filter(|id| output_items::is_own_search(id)) {
                    Some(id) => Some(output_items::search_item(part, Some(id)).into()),
                    None => lose("part.search", FOREIGN_SEARCH, self.losses),
                }
            }
            PartKind::Media(_) if has_extra("id") => {
                output_items::image_item(part, None).map(Value::from)
            }
            PartKind::Media(media) => self.media(part, media).map(|image| {
                // Assistant messages cannot hold images, so the image goes into a user message.
                self.losses.add("media.role", MOVED_MEDIA);
                ObjectWriter::new().set("role", "user").set("content", vec![image]).into()
            }),
            PartKind::Foreign { origin: ORIGIN, value } => Some(value.clone()),
            PartKind::Foreign { .. } => lose("part", FOREIGN_PART, self.losses),
        };
        if let Some(item) = item {
            self.close_message();
            self.push(item);
        }
    }

    /// Adds a part to the message of the assistant. Closes the message first if the part belongs to
    /// another one.
    fn add_to_message(&mut self, output: ObjectWriter, part: &'a Part) {
        let fields = part.extras.get(ORIGIN, MESSAGE_EXTRA);
        if self.message.as_ref().is_some_and(|(open, _)| *open != fields) {
            self.close_message();
        }
        let (_, parts) = self.message.get_or_insert_with(|| (fields, Vec::new()));
        parts.push(output.with_extras(&part.extras, ORIGIN).into());
    }

    fn close_message(&mut self) {
        let Some((fields, parts)) = self.message.take() else { return };
        let message = ObjectWriter::new();
        // Every server of this format accepts a single plain text as a string. Anything else is
        // written as the service does, with an id and a status.
        let plain = if let [only] = parts.as_slice() { plain_text(only) } else { None };
        let message = match plain {
            Some(text) => message.set("role", "assistant").set("content", text),
            None => {
                self.generated_ids += 1;
                let status = fields.and_then(|fields| fields.get("status")).cloned();
                message
                    .set("type", "message")
                    .set("role", "assistant")
                    .set("content", parts)
                    .set("id", format!("msg_history_{}", self.generated_ids))
                    .set("status", status.unwrap_or_else(|| "completed".into()))
            }
        };
        self.push(message.with_object(fields));
    }
}

fn input_text(text: &str) -> ObjectWriter {
    ObjectWriter::typed("input_text").set("text", text)
}

/// Returns the text of a part without annotations and log probabilities.
fn plain_text(part: &Value) -> Option<String> {
    let bare =
        |name: &str| part.get(name).is_none_or(|list| list.as_array().is_some_and(Vec::is_empty));
    let text = part.get("text").and_then(Value::as_str)?;
    (bare("annotations") && bare("logprobs")).then(|| text.to_owned())
}
