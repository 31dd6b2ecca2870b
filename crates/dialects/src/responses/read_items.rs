//! Reads items and their parts, as found in requests and responses.

use canon::{
    ApiError, CacheBreakpoint, Citation, CodeExecution, CodeResult, ExtraFields, Logprob, Media,
    MediaKind, MediaSource, Part, PartKind, Role, TokenLogprob, ToolCall, ToolResult, Turn,
    WebSearch,
};
use serde_json::{Map, Value};

use super::names::{
    CUSTOM_RESULT_EXTRA, MESSAGE_EXTRA, NAMESPACE_FIELD, NESTED_PART_EXTRA, ORIGIN,
};
use super::signatures::{self, ItemSender, ReasoningContent};
use super::{tool_names, wire};
use crate::fields::{JsonPath, ObjectReader};

/// Returns the unread fields of an item, without `id` and the usual `status`. The service accepts
/// items without an id, and the finish reason covers the status.
fn unread_fields(fields: ObjectReader<'_>) -> Map<String, Value> {
    let mut rest = fields.remaining();
    rest.shift_remove("id");
    if rest.get("status").and_then(Value::as_str).is_some_and(is_known_status) {
        rest.shift_remove("status");
    }
    rest
}

fn is_known_status(status: &str) -> bool {
    matches!(status, "completed" | "in_progress" | "incomplete")
}

/// One item.
#[derive(Debug)]
pub(super) enum ResponseItem {
    /// A message of the user, system or developer.
    Turn(Turn),
    /// A message of the assistant.
    AssistantMessage(Vec<Part>),
    /// Another item the model produced.
    ModelItem(Vec<Part>),
    /// An item from the caller's side, such as a tool result.
    CallerItem(Part),
    /// Signature of a call.
    CallSignature(String, canon::Signature),
    /// Signature of the next item.
    NextSignature(canon::Signature),
    /// Signature of the previous item.
    PreviousSignature(canon::Signature),
    /// Signature of the code in the previous item, which also holds the code's output.
    CodeSignature(canon::Signature),
}

/// Reads items, and collects the log probabilities they contain.
#[derive(Debug)]
pub(super) struct ItemReader {
    /// Sender of the items.
    pub(super) sender: ItemSender,
    /// Log probabilities of a response.
    pub(super) logprobs: Vec<Logprob>,
}

impl ItemReader {
    /// Creates a reader for items of that sender.
    pub(super) const fn new(sender: ItemSender) -> Self {
        Self { sender, logprobs: Vec::new() }
    }

    /// Reads one item.
    pub(super) fn read(
        &mut self,
        value: Value,
        path: &JsonPath<'_>,
    ) -> Result<ResponseItem, ApiError> {
        let kind = match value.get("type").and_then(Value::as_str) {
            Some(kind) => kind.to_owned(),
            None if value.get("role").is_some() => "message".to_owned(),
            None => String::new(),
        };
        match kind.as_str() {
            "message" => self.message(ObjectReader::new(value, path)?),
            "reasoning" => {
                let item = ObjectReader::new(value, path)?.remaining();
                Ok(match signatures::read(item, self.sender) {
                    ReasoningContent::Thought(part) => ResponseItem::ModelItem(vec![part]),
                    ReasoningContent::CallSignature(call, signature) => {
                        ResponseItem::CallSignature(call, signature)
                    }
                    ReasoningContent::NextSignature(signature) => {
                        ResponseItem::NextSignature(signature)
                    }
                    ReasoningContent::PreviousSignature(signature) => {
                        ResponseItem::PreviousSignature(signature)
                    }
                    ReasoningContent::CodeSignature(signature) => {
                        ResponseItem::CodeSignature(signature)
                    }
                })
            }
            "function_call" => call(ObjectReader::new(value, path)?, false).map(model_item),
            "custom_tool_call" => call(ObjectReader::new(value, path)?, true).map(model_item),
            "function_call_output" => {
                self.result(ObjectReader::new(value, path)?, false).map(ResponseItem::CallerItem)
            }
            "custom_tool_call_output" => {
                self.result(ObjectReader::new(value, path)?, true).map(ResponseItem::CallerItem)
            }
            "web_search_call" => search(ObjectReader::new(value, path)?).map(model_item),
            "code_interpreter_call" => {
                code(ObjectReader::new(value, path)?).map(ResponseItem::ModelItem)
            }
            "image_generation_call" if value.get("result").is_some_and(Value::is_string) => {
                generated_image(ObjectReader::new(value, path)?).map(model_item)
            }
            other => {
                let from_caller = is_caller_item(other);
                let part = Part::new(PartKind::Foreign { origin: ORIGIN, value });
                Ok(if from_caller { ResponseItem::CallerItem(part) } else { model_item(part) })
            }
        }
    }

    fn message(&mut self, mut fields: ObjectReader<'_>) -> Result<ResponseItem, ApiError> {
        let role = fields.required("role")?;
        fields.take("type");
        let parts = self.content(&mut fields, "content")?;
        let role = match role.as_str() {
            "user" => Role::User,
            "system" => Role::System,
            "developer" => Role::Developer,
            "assistant" => {
                return Ok(ResponseItem::AssistantMessage(with_message_fields(
                    parts,
                    unread_fields(fields),
                )));
            }
            _ => return Err(fields.fault("role", "is not a role of this format")),
        };
        Ok(ResponseItem::Turn(Turn {
            role,
            parts,
            name: None,
            extras: ExtraFields::from_fields(ORIGIN, unread_fields(fields)),
        }))
    }

    /// Reads a text or a list of parts.
    fn content(
        &mut self,
        fields: &mut ObjectReader<'_>,
        name: &str,
    ) -> Result<Vec<Part>, ApiError> {
        let path = fields.path().key(name);
        match fields.take(name) {
            None => Ok(Vec::new()),
            Some(Value::String(text)) => Ok(vec![Part::text(text)]),
            Some(Value::Array(parts)) => parts
                .into_iter()
                .enumerate()
                .map(|(at, value)| self.part(value, &path.item(at)))
                .collect(),
            Some(_) => Err(fields.fault(name, "must be a string or a list of parts")),
        }
    }

    fn part(&mut self, value: Value, path: &JsonPath<'_>) -> Result<Part, ApiError> {
        let original = value.clone();
        let mut fields = ObjectReader::new(value, path)?;
        let kind = fields.string("type")?.unwrap_or_default();
        let cache = cache_mark(&mut fields);
        let kind = match kind.as_str() {
            "input_text" | "text" => {
                PartKind::Text { text: fields.required("text")?, citations: Vec::new() }
            }
            "output_text" => {
                let citations = citations(fields.list("annotations")?.unwrap_or_default());
                let logprobs = fields.take("logprobs");
                match (self.sender, logprobs) {
                    (ItemSender::Provider, Some(logprobs)) => {
                        self.logprobs.extend(read_logprobs(&logprobs))
                    }
                    (ItemSender::Caller, Some(Value::Array(list))) if !list.is_empty() => {
                        let text = fields.required("text")?;
                        let mut part = Part::new(PartKind::Text { text, citations });
                        part.extras = fields.extras(ORIGIN);
                        part.extras.insert(ORIGIN, "logprobs", Value::Array(list));
                        return Ok(part);
                    }
                    (ItemSender::Caller | ItemSender::Provider, _) => {}
                }
                PartKind::Text { text: fields.string("text")?.unwrap_or_default(), citations }
            }
            "refusal" => PartKind::Refusal(fields.string("refusal")?.unwrap_or_default()),
            "input_image" => image(&mut fields)?,
            "input_file" => file(&mut fields)?,
            _ => {
                let mut part = Part::new(PartKind::Foreign { origin: ORIGIN, value: original });
                part.extras.insert(ORIGIN, NESTED_PART_EXTRA, Value::Bool(true));
                return Ok(part);
            }
        };
        Ok(Part { kind, signature: None, cache_breakpoint: cache, extras: fields.extras(ORIGIN) })
    }

    fn result(&mut self, mut fields: ObjectReader<'_>, custom: bool) -> Result<Part, ApiError> {
        fields.take("type");
        let call = fields.string("call_id")?.unwrap_or_default();
        let parts = self.content(&mut fields, "output")?;
        let result = ToolResult { call_id: call, name: None, parts, object: None, is_error: false };
        let mut part = Part::new(PartKind::ToolResult(result))
            .with_extras(ExtraFields::from_fields(ORIGIN, unread_fields(fields)));
        if custom {
            part.extras.insert(ORIGIN, CUSTOM_RESULT_EXTRA, Value::Bool(true));
        }
        Ok(part)
    }
}

fn model_item(part: Part) -> ResponseItem {
    ResponseItem::ModelItem(vec![part])
}

/// Returns true if an item of an unknown type comes from the caller's side.
fn is_caller_item(kind: &str) -> bool {
    (kind.ends_with("_output") && kind != "program_output")
        || matches!(kind, "mcp_approval_response" | "compaction_trigger" | "configuration_update")
}

/// Adds the fields of the message to each of its parts.
fn with_message_fields(mut parts: Vec<Part>, item: Map<String, Value>) -> Vec<Part> {
    if !item.is_empty() {
        for part in &mut parts {
            part.extras.insert(ORIGIN, MESSAGE_EXTRA, Value::Object(item.clone()));
        }
    }
    parts
}

/// Reads a cache breakpoint: this format's own field, or `cache_control` of the messages format,
/// which other vendors accept here.
pub(super) fn cache_mark(fields: &mut ObjectReader<'_>) -> Option<CacheBreakpoint> {
    let mark = fields.take("prompt_cache_breakpoint").or_else(|| fields.take("cache_control"))?;
    Some(CacheBreakpoint { ttl: mark.get("ttl").and_then(Value::as_str).map(str::to_owned) })
}

fn image(fields: &mut ObjectReader<'_>) -> Result<PartKind, ApiError> {
    let detail = fields.string("detail")?.as_deref().and_then(wire::read_detail);
    let source = match fields.take("image_url") {
        Some(Value::String(url)) => source(&url),
        // Clients written for the chat format wrap the URL in an object.
        Some(Value::Object(wrapped)) => {
            source(wrapped.get("url").and_then(Value::as_str).unwrap_or_default())
        }
        _ => match fields.string("file_id")? {
            Some(id) => MediaSource::File { origin: ORIGIN, id },
            None => return Err(fields.fault("image_url", "is required")),
        },
    };
    Ok(PartKind::Media(Media { kind: MediaKind::Image, source, name: None, detail, clip: None }))
}

fn file(fields: &mut ObjectReader<'_>) -> Result<PartKind, ApiError> {
    let name = fields.string("filename")?;
    let detail = fields.string("detail")?.as_deref().and_then(wire::read_detail);
    let source = if let Some(data) = fields.string("file_data")? {
        match source(&data) {
            // Some clients omit the `data:` prefix.
            MediaSource::Url { url, .. } if !url.contains("://") => {
                MediaSource::Inline { mime: "application/pdf".to_owned(), data: url }
            }
            source => source,
        }
    } else if let Some(url) = fields.string("file_url")? {
        source(&url)
    } else if let Some(id) = fields.string("file_id")? {
        MediaSource::File { origin: ORIGIN, id }
    } else {
        return Err(fields.fault("file_data", "is required"));
    };
    let kind = match &source {
        MediaSource::Inline { mime, .. } => match MediaKind::from_mime(mime) {
            // An image sent as a file stays a file: the service processes files differently.
            MediaKind::Image | MediaKind::Document => MediaKind::Document,
            other => other,
        },
        MediaSource::Url { .. } | MediaSource::File { .. } | MediaSource::Text(_) => {
            MediaKind::Document
        }
    };
    Ok(PartKind::Media(Media { kind, source, name, detail, clip: None }))
}

/// Media from a URL or a data URI (RFC 2397).
fn source(url: &str) -> MediaSource {
    match url.strip_prefix("data:").and_then(|rest| rest.split_once(',')) {
        Some((head, data)) => {
            let mime = head.split(';').next().unwrap_or_default();
            let mime = if mime.is_empty() { "application/octet-stream" } else { mime };
            MediaSource::Inline { mime: mime.to_owned(), data: data.to_owned() }
        }
        None => MediaSource::Url { url: url.to_owned(), mime: None },
    }
}

fn call(mut fields: ObjectReader<'_>, custom: bool) -> Result<Part, ApiError> {
    fields.take("type");
    let id = fields.string("call_id")?;
    let id = match id {
        Some(id) => id,
        None => fields.string("id")?.unwrap_or_default(),
    };
    let name = fields.required("name")?;
    let arguments = match fields.take(if custom { "input" } else { "arguments" }) {
        Some(Value::String(text)) => text,
        Some(object) => object.to_string(),
        None => String::new(),
    };
    let extras = ExtraFields::from_fields(ORIGIN, unread_fields(fields));
    let space = extras.get(ORIGIN, NAMESPACE_FIELD).and_then(Value::as_str);
    let name = tool_names::flat_name(space, &name);
    Ok(Part::new(PartKind::ToolCall(ToolCall { id, name, arguments, custom })).with_extras(extras))
}

fn search(mut fields: ObjectReader<'_>) -> Result<Part, ApiError> {
    fields.take("type");
    let id = fields.string("id")?;
    let extras = ExtraFields::from_fields(ORIGIN, unread_fields(fields));
    // `action` stays in the extras unchanged: canon has no fields for opened pages and search
    // patterns.
    let action = extras.get(ORIGIN, "action");
    let get = |name: &str| action.and_then(|action| action.get(name));
    let mut queries: Vec<String> = get("queries")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|query| query.as_str().map(str::to_owned))
        .collect();
    if queries.is_empty() {
        queries.extend(get("query").and_then(Value::as_str).map(str::to_owned));
    }
    let found = get("sources")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|source| Some((source.get("url")?.as_str()?.to_owned(), String::new())))
        .collect();
    Ok(Part::new(PartKind::WebSearch(WebSearch { id, queries, results: found }))
        .with_extras(extras))
}

fn code(mut fields: ObjectReader<'_>) -> Result<Vec<Part>, ApiError> {
    fields.take("type");
    let id = fields.string("id")?;
    let code = fields.string("code")?.unwrap_or_default();
    let outputs = fields.list("outputs")?;
    let extras = ExtraFields::from_fields(ORIGIN, unread_fields(fields));
    let failed = extras.get(ORIGIN, "status").and_then(Value::as_str) == Some("failed");
    let code = CodeExecution { id: id.clone(), language: "python".to_owned(), code };
    let mut parts = vec![Part::new(PartKind::CodeExecution(code)).with_extras(extras)];
    if let Some(outputs) = outputs {
        let logs: Vec<&str> =
            outputs.iter().filter_map(|output| output.get("logs")?.as_str()).collect();
        let outcome = CodeResult { id, output: logs.join("\n"), is_error: failed };
        let mut part = Part::new(PartKind::CodeResult(outcome));
        part.extras.insert(ORIGIN, "outputs", Value::Array(outputs));
        parts.push(part);
    }
    Ok(parts)
}

fn generated_image(mut fields: ObjectReader<'_>) -> Result<Part, ApiError> {
    fields.take("type");
    let data = fields.required("result")?;
    let format = fields.string("output_format")?;
    let source = match data.strip_prefix("data:") {
        Some(_) => source(&data),
        None => {
            let format = format.as_deref().unwrap_or("png");
            MediaSource::Inline { mime: format!("image/{format}"), data }
        }
    };
    let media = Media { kind: MediaKind::Image, source, name: None, detail: None, clip: None };
    // The service recognises its own generated images by their id.
    let id = fields.take("id");
    let mut part = Part::new(PartKind::Media(media))
        .with_extras(ExtraFields::from_fields(ORIGIN, unread_fields(fields)));
    if let Some(id) = id {
        part.extras.insert(ORIGIN, "id", id);
    }
    Ok(part)
}

/// Reads annotations. Those other than URL citations are kept as extras.
pub(super) fn citations(annotations: Vec<Value>) -> Vec<Citation> {
    annotations.into_iter().filter_map(citation).collect()
}

/// Reads one annotation.
pub(super) fn citation(annotation: Value) -> Option<Citation> {
    let Value::Object(mut fields) = annotation else { return None };
    if fields.get("type").and_then(Value::as_str) != Some("url_citation") {
        return Some(Citation {
            extras: ExtraFields::from_fields(ORIGIN, fields),
            ..Citation::default()
        });
    }
    fields.shift_remove("type");
    let mut text = |name: &str| match fields.shift_remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    let (url, title) = (text("url"), text("title"));
    let mut at = |name: &str| {
        fields.shift_remove(name).and_then(|n| n.as_u64()).and_then(|n| usize::try_from(n).ok())
    };
    let span = at("start_index").zip(at("end_index"));
    Some(Citation {
        url,
        title,
        quote: None,
        span,
        extras: ExtraFields::from_fields(ORIGIN, fields),
    })
}

/// Log probabilities of the tokens.
pub(super) fn read_logprobs(list: &Value) -> Vec<Logprob> {
    let chance = |value: &Value| TokenLogprob {
        token: value.get("token").and_then(Value::as_str).unwrap_or_default().to_owned(),
        id: None,
        logprob: value.get("logprob").and_then(Value::as_f64).unwrap_or_default(),
        bytes: value
            .get("bytes")
            .and_then(Value::as_array)
            .map(|bytes| bytes.iter().filter_map(|b| u8::try_from(b.as_u64()?).ok()).collect()),
    };
    let top = |value: &Value| {
        let list = value.get("top_logprobs").and_then(Value::as_array);
        list.into_iter().flatten().map(chance).collect()
    };
    let list = list.as_array().into_iter().flatten();
    list.map(|token| Logprob { chosen: chance(token), top: top(token) }).collect()
}
