//! Reads items and their parts, as found in requests and responses.

use canon::{
    CacheMark, Citation, Code, CodeOutcome, Extras, Fault, Kind, Logprob, Media, MediaKind, Part,
    Role, Search, Source, TokenChance, ToolCall, ToolResult, Turn,
};
use serde_json::{Map, Value};

use super::seals::{self, Carried, Side};
use super::{ME, names, wire};
use crate::fields::{Fields, Path};

/// Extras key of a message part for the fields of its message.
pub(super) const ITEM: &str = "portunus.message";
/// Extras key that marks an unknown part inside a message, as opposed to an unknown item.
pub(super) const INSIDE: &str = "portunus.inside";
/// Extras key that marks the result of a custom tool call if the call is not in the request.
pub(super) const CUSTOM: &str = "portunus.custom";

/// Returns the unread fields of an item, without `id` and the usual `status`. The service accepts
/// items without an id, and the finish reason covers the status.
fn rest(fields: Fields<'_>) -> Map<String, Value> {
    let mut rest = fields.rest();
    rest.shift_remove("id");
    if rest.get("status").and_then(Value::as_str).is_some_and(is_usual) {
        rest.shift_remove("status");
    }
    rest
}

fn is_usual(status: &str) -> bool {
    matches!(status, "completed" | "in_progress" | "incomplete")
}

/// One item.
#[derive(Debug)]
pub(super) enum Item {
    /// A message of the user, system or developer.
    Turn(Turn),
    /// A message of the assistant.
    Said(Vec<Part>),
    /// Another item the model produced.
    Did(Vec<Part>),
    /// An item from the caller's side, such as a tool result.
    Given(Part),
    /// Signature of a call.
    OnCall(String, canon::Seal),
    /// Signature of the next item.
    OnNext(canon::Seal),
    /// Signature of the previous item.
    OnPrev(canon::Seal),
    /// Signature of the code in the previous item, which also holds the code's output.
    OnCode(canon::Seal),
}

/// Reads items, and collects the log probabilities they contain.
#[derive(Debug)]
pub(super) struct Items {
    /// Sender of the items.
    pub(super) side: Side,
    /// Log probabilities of a response.
    pub(super) logprobs: Vec<Logprob>,
}

impl Items {
    /// Creates a reader for items of that sender.
    pub(super) const fn of(side: Side) -> Self {
        Self { side, logprobs: Vec::new() }
    }

    /// Reads one item.
    pub(super) fn read(&mut self, value: Value, path: &Path<'_>) -> Result<Item, Fault> {
        let kind = match value.get("type").and_then(Value::as_str) {
            Some(kind) => kind.to_owned(),
            None if value.get("role").is_some() => "message".to_owned(),
            None => String::new(),
        };
        match kind.as_str() {
            "message" => self.message(Fields::new(value, path)?),
            "reasoning" => {
                let item = Fields::new(value, path)?.rest();
                Ok(match seals::read(item, self.side) {
                    Carried::Thought(part) => Item::Did(vec![part]),
                    Carried::OnCall(call, seal) => Item::OnCall(call, seal),
                    Carried::OnNext(seal) => Item::OnNext(seal),
                    Carried::OnPrev(seal) => Item::OnPrev(seal),
                    Carried::OnCode(seal) => Item::OnCode(seal),
                })
            }
            "function_call" => call(Fields::new(value, path)?, false).map(did),
            "custom_tool_call" => call(Fields::new(value, path)?, true).map(did),
            "function_call_output" => {
                self.result(Fields::new(value, path)?, false).map(Item::Given)
            }
            "custom_tool_call_output" => {
                self.result(Fields::new(value, path)?, true).map(Item::Given)
            }
            "web_search_call" => search(Fields::new(value, path)?).map(did),
            "code_interpreter_call" => code(Fields::new(value, path)?).map(Item::Did),
            "image_generation_call" if value.get("result").is_some_and(Value::is_string) => {
                picture(Fields::new(value, path)?).map(did)
            }
            other => {
                let given = is_given(other);
                let part = Part::new(Kind::Foreign { origin: ME, value });
                Ok(if given { Item::Given(part) } else { did(part) })
            }
        }
    }

    fn message(&mut self, mut fields: Fields<'_>) -> Result<Item, Fault> {
        let role = fields.required("role")?;
        fields.take("type");
        let parts = self.content(&mut fields, "content")?;
        let role = match role.as_str() {
            "user" => Role::User,
            "system" => Role::System,
            "developer" => Role::Developer,
            "assistant" => return Ok(Item::Said(said(parts, rest(fields)))),
            _ => return Err(fields.fault("role", "is not a role of this format")),
        };
        Ok(Item::Turn(Turn { role, parts, name: None, extras: Extras::of(ME, rest(fields)) }))
    }

    /// Reads a text or a list of parts.
    fn content(&mut self, fields: &mut Fields<'_>, name: &str) -> Result<Vec<Part>, Fault> {
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

    fn part(&mut self, value: Value, path: &Path<'_>) -> Result<Part, Fault> {
        let original = value.clone();
        let mut fields = Fields::new(value, path)?;
        let kind = fields.string("type")?.unwrap_or_default();
        let cache = cache_mark(&mut fields);
        let kind = match kind.as_str() {
            "input_text" | "text" => {
                Kind::Text { text: fields.required("text")?, citations: Vec::new() }
            }
            "output_text" => {
                let citations = citations(fields.list("annotations")?.unwrap_or_default());
                let chances = fields.take("logprobs");
                match (self.side, chances) {
                    (Side::Provider, Some(chances)) => self.logprobs.extend(logprobs(&chances)),
                    (Side::Caller, Some(Value::Array(list))) if !list.is_empty() => {
                        let text = fields.required("text")?;
                        let mut part = Part::new(Kind::Text { text, citations });
                        part.extras = fields.extras(ME);
                        part.extras.put(ME, "logprobs", Value::Array(list));
                        return Ok(part);
                    }
                    (Side::Caller | Side::Provider, _) => {}
                }
                Kind::Text { text: fields.string("text")?.unwrap_or_default(), citations }
            }
            "refusal" => Kind::Refusal(fields.string("refusal")?.unwrap_or_default()),
            "input_image" => image(&mut fields)?,
            "input_file" => file(&mut fields)?,
            _ => {
                let mut part = Part::new(Kind::Foreign { origin: ME, value: original });
                part.extras.put(ME, INSIDE, Value::Bool(true));
                return Ok(part);
            }
        };
        Ok(Part { kind, seal: None, cache, extras: fields.extras(ME) })
    }

    fn result(&mut self, mut fields: Fields<'_>, custom: bool) -> Result<Part, Fault> {
        fields.take("type");
        let call = fields.string("call_id")?.unwrap_or_default();
        let parts = self.content(&mut fields, "output")?;
        let result = ToolResult { call, name: None, parts, object: None, failed: false };
        let mut part = Part::new(Kind::ToolResult(result)).with(Extras::of(ME, rest(fields)));
        if custom {
            part.extras.put(ME, CUSTOM, Value::Bool(true));
        }
        Ok(part)
    }
}

fn did(part: Part) -> Item {
    Item::Did(vec![part])
}

/// Returns true if an item of an unknown type comes from the caller's side.
fn is_given(kind: &str) -> bool {
    (kind.ends_with("_output") && kind != "program_output")
        || matches!(kind, "mcp_approval_response" | "compaction_trigger" | "configuration_update")
}

/// Adds the fields of the message to each of its parts.
fn said(mut parts: Vec<Part>, item: Map<String, Value>) -> Vec<Part> {
    if !item.is_empty() {
        for part in &mut parts {
            part.extras.put(ME, ITEM, Value::Object(item.clone()));
        }
    }
    parts
}

/// Reads a cache breakpoint: this format's own field, or `cache_control` of the messages format,
/// which other vendors accept here.
pub(super) fn cache_mark(fields: &mut Fields<'_>) -> Option<CacheMark> {
    let mark = fields.take("prompt_cache_breakpoint").or_else(|| fields.take("cache_control"))?;
    Some(CacheMark { ttl: mark.get("ttl").and_then(Value::as_str).map(str::to_owned) })
}

fn image(fields: &mut Fields<'_>) -> Result<Kind, Fault> {
    let detail = fields.string("detail")?.as_deref().and_then(wire::read_detail);
    let source = match fields.take("image_url") {
        Some(Value::String(url)) => source(&url),
        // Clients written for the chat format wrap the URL in an object.
        Some(Value::Object(wrapped)) => {
            source(wrapped.get("url").and_then(Value::as_str).unwrap_or_default())
        }
        _ => match fields.string("file_id")? {
            Some(id) => Source::File { origin: ME, id },
            None => return Err(fields.fault("image_url", "is required")),
        },
    };
    Ok(Kind::Media(Media { kind: MediaKind::Image, source, name: None, detail, clip: None }))
}

fn file(fields: &mut Fields<'_>) -> Result<Kind, Fault> {
    let name = fields.string("filename")?;
    let detail = fields.string("detail")?.as_deref().and_then(wire::read_detail);
    let source = if let Some(data) = fields.string("file_data")? {
        match source(&data) {
            // Some clients omit the `data:` prefix.
            Source::Url { url, .. } if !url.contains("://") => {
                Source::Inline { mime: "application/pdf".to_owned(), data: url }
            }
            source => source,
        }
    } else if let Some(url) = fields.string("file_url")? {
        source(&url)
    } else if let Some(id) = fields.string("file_id")? {
        Source::File { origin: ME, id }
    } else {
        return Err(fields.fault("file_data", "is required"));
    };
    let kind = match &source {
        Source::Inline { mime, .. } => match MediaKind::of_mime(mime) {
            // An image sent as a file stays a file: the service processes files differently.
            MediaKind::Image | MediaKind::Document => MediaKind::Document,
            other => other,
        },
        Source::Url { .. } | Source::File { .. } | Source::Text(_) => MediaKind::Document,
    };
    Ok(Kind::Media(Media { kind, source, name, detail, clip: None }))
}

/// Media from a URL or a data URI (RFC 2397).
fn source(url: &str) -> Source {
    match url.strip_prefix("data:").and_then(|rest| rest.split_once(',')) {
        Some((head, data)) => {
            let mime = head.split(';').next().unwrap_or_default();
            let mime = if mime.is_empty() { "application/octet-stream" } else { mime };
            Source::Inline { mime: mime.to_owned(), data: data.to_owned() }
        }
        None => Source::Url { url: url.to_owned(), mime: None },
    }
}

fn call(mut fields: Fields<'_>, custom: bool) -> Result<Part, Fault> {
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
    let extras = Extras::of(ME, rest(fields));
    let space = extras.get(ME, names::SPACE).and_then(Value::as_str);
    let name = names::flat(space, &name);
    Ok(Part::new(Kind::ToolCall(ToolCall { id, name, arguments, custom })).with(extras))
}

fn search(mut fields: Fields<'_>) -> Result<Part, Fault> {
    fields.take("type");
    let id = fields.string("id")?;
    let extras = Extras::of(ME, rest(fields));
    // `action` stays in the extras unchanged: canon has no fields for opened pages and search
    // patterns.
    let action = extras.get(ME, "action");
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
    Ok(Part::new(Kind::Search(Search { id, queries, found })).with(extras))
}

fn code(mut fields: Fields<'_>) -> Result<Vec<Part>, Fault> {
    fields.take("type");
    let id = fields.string("id")?;
    let code = fields.string("code")?.unwrap_or_default();
    let outputs = fields.list("outputs")?;
    let extras = Extras::of(ME, rest(fields));
    let failed = extras.get(ME, "status").and_then(Value::as_str) == Some("failed");
    let code = Code { id: id.clone(), language: "python".to_owned(), code };
    let mut parts = vec![Part::new(Kind::Code(code)).with(extras)];
    if let Some(outputs) = outputs {
        let logs: Vec<&str> =
            outputs.iter().filter_map(|output| output.get("logs")?.as_str()).collect();
        let outcome = CodeOutcome { id, output: logs.join("\n"), failed };
        let mut part = Part::new(Kind::CodeOutcome(outcome));
        part.extras.put(ME, "outputs", Value::Array(outputs));
        parts.push(part);
    }
    Ok(parts)
}

fn picture(mut fields: Fields<'_>) -> Result<Part, Fault> {
    fields.take("type");
    let data = fields.required("result")?;
    let format = fields.string("output_format")?;
    let source = match data.strip_prefix("data:") {
        Some(_) => source(&data),
        None => {
            let format = format.as_deref().unwrap_or("png");
            Source::Inline { mime: format!("image/{format}"), data }
        }
    };
    let media = Media { kind: MediaKind::Image, source, name: None, detail: None, clip: None };
    // The service recognises its own generated images by their id.
    let id = fields.take("id");
    let mut part = Part::new(Kind::Media(media)).with(Extras::of(ME, rest(fields)));
    if let Some(id) = id {
        part.extras.put(ME, "id", id);
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
        return Some(Citation { extras: Extras::of(ME, fields), ..Citation::default() });
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
    Some(Citation { url, title, quote: None, span, extras: Extras::of(ME, fields) })
}

/// Log probabilities of the tokens.
pub(super) fn logprobs(list: &Value) -> Vec<Logprob> {
    let chance = |value: &Value| TokenChance {
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
