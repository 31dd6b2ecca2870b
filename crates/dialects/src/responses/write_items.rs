//! Writes turns of canon as request items.

use canon::{
    CodeExecution, CodeResult, Losses, Media, MediaKind, MediaSource, Part, PartKind, Role, Tool,
    ToolCall, ToolResult, Turn, WebSearch,
};
use serde_json::{Map, Value};

use super::names::{
    ADDED_TOOLS_EXTRA, CUSTOM_RESULT_EXTRA, FOREIGN_SIGNATURE, FOREIGN_THOUGHT, MESSAGE_EXTRA,
    NAMESPACE_FIELD, NESTED_PART_EXTRA, ORIGIN,
};
use super::own::tool_names::{self, ToolNames};
use super::{signatures, write_output};
use crate::fields::{ObjectWriter, note_foreign_fields, write_cache_breakpoint};
use crate::openai_values::write_detail;

/// Writes turns as a list of items.
pub(super) struct ItemListWriter<'a> {
    items: Vec<Value>,
    losses: &'a mut Losses,
    /// Ids of custom tool calls. Their results have an item type of their own.
    custom: Vec<&'a str>,
    names: ToolNames,
    /// Number of messages with a generated id.
    generated_ids: usize,
}

impl<'a> ItemListWriter<'a> {
    /// Creates a writer for those turns.
    pub(super) fn new(turns: &'a [Turn], tools: &[Tool], losses: &'a mut Losses) -> Self {
        let mut custom = Vec::new();
        for part in turns.iter().flat_map(|turn| &turn.parts) {
            if let PartKind::ToolCall(call) = &part.kind
                && call.custom
            {
                custom.push(call.id.as_str());
            }
        }
        Self { items: Vec::new(), losses, custom, names: ToolNames::new(tools), generated_ids: 0 }
    }

    /// Adds an item unchanged.
    pub(super) fn push(&mut self, item: Value) {
        self.items.push(item);
    }

    /// Adds a turn.
    pub(super) fn turn(&mut self, turn: &Turn) {
        let Turn { role, parts, name, extras } = turn;
        self.losses.add_if(
            name.is_some(),
            "turn.name",
            "the responses format has no participant names",
        );
        note_foreign_fields(extras, ORIGIN, "turn", self.losses);
        for part in parts {
            note_foreign_fields(&part.extras, ORIGIN, "part", self.losses);
        }
        match role {
            Role::Assistant => self.assistant(parts),
            Role::System => self.message("system", parts, extras),
            Role::Developer => self.message("developer", parts, extras),
            Role::User => self.user(parts, extras),
        }
    }

    /// Returns the items. Removes thinking without a following item, because the service rejects
    /// it.
    pub(super) fn finish(self) -> Vec<Value> {
        let Self { items, losses, .. } = self;
        let kind = |item: &Value| item.get("type").and_then(Value::as_str).map(str::to_owned);
        let mut kept: Vec<Value> = Vec::with_capacity(items.len());
        let mut followed = false;
        for item in items.into_iter().rev() {
            let thinking = kind(&item).as_deref() == Some("reasoning");
            if thinking && !followed {
                losses.add("thought", "the provider refuses thinking without a following item");
                continue;
            }
            let theirs = item.get("role").and_then(Value::as_str).is_none_or(|r| r == "assistant");
            let result = kind(&item).is_some_and(|kind| kind.ends_with("call_output"));
            followed = theirs && !result;
            kept.push(item);
        }
        kept.reverse();
        kept
    }

    fn message(&mut self, role: &str, parts: &[Part], extras: &canon::ExtraFields) {
        let content = self.content(parts.iter());
        if content == Value::Array(Vec::new()) && !parts.is_empty() {
            return;
        }
        let item = ObjectWriter::new()
            .set("role", role)
            .set("content", content)
            .with_extras(extras, ORIGIN);
        self.items.push(item.into());
    }

    fn user(&mut self, parts: &[Part], extras: &canon::ExtraFields) {
        let mut message_parts: Vec<Part> = Vec::new();
        let mut has_items = false;
        for part in parts {
            let item = if let PartKind::ToolResult(result) = &part.kind {
                Some(self.result(part, result))
            } else if let PartKind::Foreign { origin: ORIGIN, value } = &part.kind
                && part.extras.get(ORIGIN, NESTED_PART_EXTRA).is_none()
            {
                Some(value.clone())
            } else {
                None
            };
            match item {
                Some(item) => {
                    if !message_parts.is_empty() {
                        self.message("user", &std::mem::take(&mut message_parts), extras);
                    }
                    self.items.push(item);
                    has_items = true;
                }
                None => message_parts.push(part.clone()),
            }
        }
        if !message_parts.is_empty() || !has_items {
            self.message("user", &message_parts, extras);
        }
    }

    /// A single plain text becomes a string, anything else a list of parts.
    fn content<'p>(&mut self, parts: impl Iterator<Item = &'p Part>) -> Value {
        let parts: Vec<&Part> = parts.collect();
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
        let text = |text: &str| ObjectWriter::new().set("type", "input_text").set("text", text);
        let object = match &part.kind {
            PartKind::Text { text: words, .. } | PartKind::Refusal(words) => text(words),
            PartKind::Media(media) => self.media(media)?,
            PartKind::Foreign { origin, value } if *origin == ORIGIN => return Some(value.clone()),
            PartKind::CodeExecution(code) => {
                text(&write_output::code_block(&code.language, &code.code))
            }
            PartKind::CodeResult(outcome) => text(&write_output::code_block("", &outcome.output)),
            PartKind::Foreign { .. } => {
                self.losses.add("part", "a part only the caller's format has");
                return None;
            }
            PartKind::WebSearch(_) => {
                self.losses.add(
                    "part.search",
                    "a search another provider ran cannot be shown to this one",
                );
                return None;
            }
            PartKind::Thought(_) | PartKind::ToolCall(_) | PartKind::ToolResult(_) => {
                self.losses.add("part", "a part that a user message cannot hold here");
                return None;
            }
        };
        let mark = part.cache_breakpoint.as_ref().map(write_cache_breakpoint);
        Some(
            object
                .set_some("prompt_cache_breakpoint", mark)
                .with_extras(&part.extras, ORIGIN)
                .into(),
        )
    }

    fn media(&mut self, media: &Media) -> Option<ObjectWriter> {
        let Media { kind, source, name, detail, clip } = media;
        self.losses.add_if(clip.is_some(), "media.clip", "the responses format has no clips");
        match kind {
            MediaKind::Audio => {
                self.losses.add("media.audio", "the responses format takes no audio");
                return None;
            }
            MediaKind::Video => {
                self.losses.add("media.video", "the responses format takes no video");
                return None;
            }
            MediaKind::Image | MediaKind::Document => {}
        }
        let image = *kind == MediaKind::Image;
        let object =
            ObjectWriter::new().set("type", if image { "input_image" } else { "input_file" });
        let object = match source {
            MediaSource::Inline { mime, data } => {
                let uri = format!("data:{mime};base64,{data}");
                if image {
                    object.set("image_url", uri)
                } else {
                    // The service requires a file name.
                    let usual = match mime.as_str() {
                        "application/pdf" => "document.pdf",
                        text if text.starts_with("text/") => "document.txt",
                        _ => "document",
                    };
                    object.set("filename", name.as_deref().unwrap_or(usual)).set("file_data", uri)
                }
            }
            MediaSource::Url { url, .. } if image => object.set("image_url", url.as_str()),
            MediaSource::Url { url, .. } => {
                object.set_some("filename", name.as_deref()).set("file_url", url.as_str())
            }
            MediaSource::File { origin, id } if *origin == ORIGIN => {
                object.set_some("filename", name.as_deref()).set("file_id", id.as_str())
            }
            MediaSource::File { .. } => {
                self.losses
                    .add("media.file", "a file in another provider's storage cannot be read here");
                return None;
            }
            MediaSource::Text(text) => {
                return Some(
                    ObjectWriter::new().set("type", "input_text").set("text", text.as_str()),
                );
            }
        };
        let detail = detail.map(write_detail);
        // `detail` is required for images.
        let detail = if image { Some(detail.unwrap_or("auto")) } else { detail };
        Some(object.set_some("detail", detail))
    }

    fn result(&mut self, part: &Part, result: &ToolResult) -> Value {
        let ToolResult { call_id: call, name: _, parts, object, is_error: failed } = result;
        self.losses.add_if(
            *failed,
            "tool_result.failed",
            "the responses format cannot mark a result as failed",
        );
        self.losses.add_if(
            part.cache_breakpoint.is_some(),
            "part.cache",
            "a tool result cannot have a cache breakpoint here",
        );
        let content = if object.is_some() && parts.is_empty() {
            Value::from(result.as_text())
        } else if object.is_some() {
            // Media of the result follow its text.
            let text_part = Part::text(result.as_text());
            self.content(std::iter::once(&text_part).chain(parts))
        } else if parts.is_empty() {
            Value::from("")
        } else {
            self.content(parts.iter())
        };
        let custom = part.extras.get(ORIGIN, CUSTOM_RESULT_EXTRA).is_some()
            || self.custom.contains(&call.as_str());
        let kind = if custom { "custom_tool_call_output" } else { "function_call_output" };
        let item = ObjectWriter::new()
            .set("type", kind)
            .set("call_id", call.as_str())
            .set("output", content)
            .with_extras(&part.extras, ORIGIN);
        without_field(item, CUSTOM_RESULT_EXTRA)
    }

    fn assistant(&mut self, parts: &[Part]) {
        let mut message = PendingAssistantMessage::default();
        let empty = parts.is_empty();
        let mut parts = parts.iter().peekable();
        while let Some(part) = parts.next() {
            let own_item = part.signature.as_ref().and_then(signatures::own_signature_item);
            if !matches!(part.kind, PartKind::Thought(_)) {
                if let Some(thinking) = own_item {
                    message.close(self);
                    self.items.push(thinking.into());
                } else {
                    self.losses.add_if(part.signature.is_some(), "part.seal", FOREIGN_SIGNATURE);
                }
            }
            self.losses.add_if(
                part.cache_breakpoint.is_some(),
                "part.cache",
                "only input parts can have a cache breakpoint here",
            );
            if let Some(mut output) = self.output_part(part) {
                if let Value::Object(fields) = &mut output {
                    for (name, value) in part.extras.for_format(ORIGIN).into_iter().flatten() {
                        if name != MESSAGE_EXTRA && name != NESTED_PART_EXTRA {
                            fields.entry(name.clone()).or_insert_with(|| value.clone());
                        }
                    }
                }
                message.add(output, part.extras.get(ORIGIN, MESSAGE_EXTRA), self);
                continue;
            }
            let outcome = parts.next_if(|next| {
                matches!((&part.kind, &next.kind), (PartKind::CodeExecution(code), PartKind::CodeResult(outcome))
                    if outcome.id == code.id)
            });
            if let Some(item) = self.model_item(part, outcome) {
                message.close(self);
                self.items.push(item);
            }
        }
        message.close(self);
        if empty {
            let nothing = ObjectWriter::new().set("role", "assistant").set("content", "");
            self.items.push(nothing.into());
        }
    }

    /// Writes a message part of the assistant. `None` for parts that are items of their own.
    fn output_part(&mut self, part: &Part) -> Option<Value> {
        match &part.kind {
            PartKind::Text { text, citations } => {
                let chances = part.extras.get(ORIGIN, "logprobs").cloned();
                Some(write_output::text_part(text, citations, chances, self.losses))
            }
            PartKind::Refusal(text) => Some(write_output::refusal_part(text)),
            // A container of another provider cannot be named here, so its code is written as text.
            PartKind::CodeExecution(code) if part.extras.get(ORIGIN, "container_id").is_none() => {
                let CodeExecution { id: _, language, code } = code;
                let text = write_output::code_block(language, code);
                Some(write_output::text_part(&text, &[], None, self.losses))
            }
            PartKind::CodeResult(outcome) => {
                let CodeResult { id: _, output: text, is_error: _ } = outcome;
                Some(write_output::text_part(
                    &write_output::code_block("", text),
                    &[],
                    None,
                    self.losses,
                ))
            }
            PartKind::Foreign { origin, value }
                if *origin == ORIGIN && part.extras.get(ORIGIN, NESTED_PART_EXTRA).is_some() =>
            {
                Some(value.clone())
            }
            PartKind::CodeExecution(_)
            | PartKind::Media(_)
            | PartKind::Thought(_)
            | PartKind::ToolCall(_)
            | PartKind::ToolResult(_)
            | PartKind::WebSearch(_)
            | PartKind::Foreign { .. } => None,
        }
    }

    /// Writes an item the model produced.
    fn model_item(&mut self, part: &Part, outcome: Option<&Part>) -> Option<Value> {
        match &part.kind {
            PartKind::Thought(thought) => {
                let is_own = match &part.signature {
                    Some(signature) => signature.for_format(ORIGIN).is_some(),
                    // A thought stored by the service is identified by its id alone.
                    None => part.extras.get(ORIGIN, "id").is_some(),
                };
                if !is_own {
                    let what = if part.signature.is_some() { "thought.seal" } else { "thought" };
                    self.losses.add(what, FOREIGN_THOUGHT);
                    return None;
                }
                Some(signatures::write(part, thought, None).into())
            }
            PartKind::ToolCall(call) => Some(write_call(part, call, &self.names)),
            PartKind::ToolResult(result) => Some(self.result(part, result)),
            PartKind::CodeExecution(code) => {
                Some(write_output::code_item(Some((part, code)), outcome, None, None).into())
            }
            PartKind::WebSearch(search)
                if search.id.as_deref().is_some_and(write_output::is_own_search) =>
            {
                let WebSearch { id, queries: _, results: _ } = search;
                Some(write_output::search_item(part, search, id.clone()).into())
            }
            PartKind::WebSearch(_) => {
                self.losses.add(
                    "part.search",
                    "a search another provider ran cannot be shown to this one",
                );
                None
            }
            PartKind::Media(media) if part.extras.get(ORIGIN, "id").is_some() => {
                write_output::image_item(part, media, None).map(Value::from)
            }
            PartKind::Media(media) => {
                // Assistant messages cannot hold images, so the image goes into a user message.
                let shown = self.media(media)?;
                self.losses
                    .add("media.role", "an image of the model is sent in a user message here");
                let content = vec![Value::from(shown)];
                Some(ObjectWriter::new().set("role", "user").set("content", content).into())
            }
            PartKind::Foreign { origin, value } if *origin == ORIGIN => Some(value.clone()),
            PartKind::Foreign { .. } => {
                self.losses.add("part", "a part only the caller's format has");
                None
            }
            PartKind::Text { .. } | PartKind::Refusal(_) | PartKind::CodeResult(_) => None,
        }
    }
}

/// The assistant message in progress.
#[derive(Default)]
struct PendingAssistantMessage {
    item: Option<Value>,
    parts: Vec<Value>,
}

impl PendingAssistantMessage {
    /// Adds a part. Closes the message first if the part belongs to another one.
    fn add(&mut self, part: Value, item: Option<&Value>, to: &mut ItemListWriter<'_>) {
        if !self.parts.is_empty() && self.item.as_ref() != item {
            self.close(to);
        }
        self.item = item.cloned();
        self.parts.push(part);
    }

    fn close(&mut self, to: &mut ItemListWriter<'_>) {
        let parts = std::mem::take(&mut self.parts);
        let item = self.item.take();
        if parts.is_empty() {
            return;
        }
        let mut fields = match item {
            Some(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        // Every server of this format accepts a single plain text as a string. Anything else is
        // written as the service does, with an id and a status.
        let plain = match parts.as_slice() {
            [only] => plain_text(only),
            _ => None,
        };
        if plain.is_none() {
            to.generated_ids += 1;
            fields
                .insert("id".to_owned(), Value::from(format!("msg_history_{}", to.generated_ids)));
            fields.entry("status").or_insert_with(|| Value::from("completed"));
        }
        let object = ObjectWriter::new();
        let object = if fields.contains_key("id") { object.set("type", "message") } else { object };
        let object = object.set("role", "assistant");
        let object = match plain {
            Some(text) => object.set("content", text),
            None => object.set("content", parts),
        };
        to.items.push(
            object.with_extras(&canon::ExtraFields::from_fields(ORIGIN, fields), ORIGIN).into(),
        );
    }
}

/// Returns the text of a part without annotations and log probabilities.
fn plain_text(part: &Value) -> Option<String> {
    let bare =
        |name: &str| part.get(name).is_none_or(|list| list.as_array().is_some_and(Vec::is_empty));
    let text = part.get("text").and_then(Value::as_str)?;
    (bare("annotations") && bare("logprobs")).then(|| text.to_owned())
}

/// Writes a past tool call.
fn write_call(part: &Part, call: &ToolCall, names: &ToolNames) -> Value {
    let ToolCall { id, name, arguments, custom } = call;
    let kept = part.extras.get(ORIGIN, NAMESPACE_FIELD).and_then(Value::as_str);
    let (space, name) = match kept {
        Some(space) => (Some(space), tool_names::bare_name(space, name)),
        None => names.split(name),
    };
    let (kind, field) =
        if *custom { ("custom_tool_call", "input") } else { ("function_call", "arguments") };
    let arguments = if arguments.is_empty() && !custom { "{}" } else { arguments.as_str() };
    ObjectWriter::new()
        .set("type", kind)
        .set("call_id", id.as_str())
        .set("name", name)
        .set_some("namespace", space)
        .set(field, arguments)
        .with_extras(&part.extras, ORIGIN)
        .into()
}

/// Removes one field of an object.
pub(super) fn without_field(object: ObjectWriter, name: &str) -> Value {
    let mut map = object.into_map();
    map.shift_remove(name);
    Value::Object(map)
}

/// Position in the conversation at which a tool was declared, with the fields of its item.
pub(super) fn added_at(extras: &canon::ExtraFields) -> Option<&Value> {
    extras.get(ORIGIN, ADDED_TOOLS_EXTRA)
}
