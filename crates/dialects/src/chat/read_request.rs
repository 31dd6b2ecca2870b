//! Reads a chat request into canon.

use canon::{
    ApiError, CacheBreakpoint, ConversationState, EffortLevel, ExtraFields, FunctionTool,
    ImageDetail, ImageShape, JsonSchema, Media, MediaKind, MediaSource, Modality, Part, PartKind,
    RequestHints, ResponseFormat, Role, SamplingOptions, ThinkingDisplay, ThinkingOptions, Thought,
    Tool, ToolCall, ToolChoice, ToolChoiceMode, ToolResult, Turn, UserLocation, VideoClip,
    WebSearchTool,
};
use serde_json::{Map, Value};

use super::names::{ORIGIN, REASONING_DETAILS, REASONING_EXTRA};
use super::signatures::{self, DetailsAuthor};
use super::wire;
use crate::fields::{JsonPath, ObjectReader};
use crate::json_tree::JsonTree;
use crate::{json, signed_span};

/// Reads a request. `rules` has checked it before; this reader only checks types.
pub(super) fn read(body: &[u8]) -> Result<canon::ChatRequest, ApiError> {
    let text = json::checked_text(body)?;
    let value: JsonTree<'_> = serde_json::from_str(text)
        .map_err(|e| ApiError::invalid("", format!("the body is not valid JSON: {e}")))?;
    let mut fields = ObjectReader::new(value, &JsonPath::Root)?;

    let model = fields.required("model")?;
    let turns = turns(fields.items("messages")?)?;
    let mut tools = tools(fields.list("tools")?.unwrap_or_default())?;
    tools.extend(legacy_functions(fields.list("functions")?.unwrap_or_default())?);
    if let Some(options) = fields.object("web_search_options")? {
        tools.push(Tool::WebSearch(search(options)));
    }
    let legacy_choice = fields.take("function_call");
    let choice = ToolChoice {
        mode: match (fields.take("tool_choice"), legacy_choice) {
            (Some(value), _) => tool_choice(&value),
            (None, Some(value)) => legacy_function_choice(&value),
            (None, None) => ToolChoiceMode::Unset,
        },
        parallel: fields.flag("parallel_tool_calls")?,
    };
    let sampling = sampling(&mut fields)?;
    let thinking = thinking(&mut fields)?;
    let format = fields.object("response_format")?.map_or(Ok(ResponseFormat::Text), format)?;
    let modalities = fields
        .strings("modalities")?
        .unwrap_or_default()
        .iter()
        .filter_map(|word| modality(word))
        .collect();
    let canvas = canvas(&mut fields)?;
    let stream = fields.flag("stream")?.unwrap_or(false);
    let state = ConversationState { store: fields.flag("store")?, ..ConversationState::default() };
    let user = match fields.string("safety_identifier")? {
        Some(user) => Some(user),
        None => fields.string("user")?,
    };
    let hints = RequestHints {
        user,
        metadata: fields.object("metadata")?.unwrap_or_default(),
        service_tier: fields.string("service_tier")?.as_deref().map(wire::read_tier),
        cache_key: fields.string("prompt_cache_key")?,
        verbosity: fields.string("verbosity")?,
    };
    Ok(canon::ChatRequest {
        model,
        turns,
        tools,
        tool_choice: choice,
        sampling,
        thinking,
        response_format: format,
        modalities,
        image_shape: canvas,
        stream,
        state,
        hints,
        extras: fields.extras(ORIGIN),
    })
}

/// Reads `image_config`, an extension of OpenRouter. Unknown fields stay in the extras of this
/// format.
fn canvas(fields: &mut ObjectReader<'_>) -> Result<ImageShape, ApiError> {
    let Some(config) = fields.object("image_config")? else { return Ok(ImageShape::default()) };
    let path = JsonPath::Root.key("image_config");
    let mut inner = ObjectReader::of(config, &path);
    let canvas = ImageShape {
        aspect_ratio: inner.string("aspect_ratio")?,
        size: inner.string("image_size")?,
    };
    let rest = inner.remaining();
    if !rest.is_empty() {
        fields.put_back("image_config", Value::Object(rest));
    }
    Ok(canvas)
}

/// Reads the effort, and `reasoning`, an extension of OpenRouter:
/// <https://openrouter.ai/docs/use-cases/reasoning-tokens>. Unknown fields stay in the extras of
/// this format.
fn thinking(fields: &mut ObjectReader<'_>) -> Result<ThinkingOptions, ApiError> {
    let level = fields.string("reasoning_effort")?.as_deref().and_then(EffortLevel::parse);
    let Some(options) = fields.object("reasoning")? else {
        return Ok(ThinkingOptions { level, ..ThinkingOptions::default() });
    };
    fields.put_back(REASONING_EXTRA, Value::Object(options.clone()));
    let path = JsonPath::Root.key("reasoning");
    let mut inner = ObjectReader::of(options, &path);
    let effort = inner.string("effort")?.as_deref().and_then(EffortLevel::parse);
    let budget = inner.count("max_tokens")?;
    let hidden = inner.flag("exclude")?.unwrap_or(false);
    let enabled = inner.flag("enabled")?;
    let rest = inner.remaining();
    if !rest.is_empty() {
        fields.put_back("reasoning", Value::Object(rest));
    }
    let off = (enabled == Some(false)).then_some(EffortLevel::Off);
    let level = level.or(off).or(effort);
    Ok(ThinkingOptions {
        level,
        budget,
        dynamic: enabled == Some(true) && level.is_none() && budget.is_none(),
        display: hidden.then_some(ThinkingDisplay::Hidden),
    })
}

fn sampling(fields: &mut ObjectReader<'_>) -> Result<SamplingOptions, ApiError> {
    let stop = match fields.take("stop") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(some)) => {
            some.into_iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
        }
        _ => Vec::new(),
    };
    let limit = fields.count("max_tokens")?;
    let limit = fields.count("max_completion_tokens")?.or(limit);
    let top = fields.count("top_logprobs")?;
    let logprobs = fields.flag("logprobs")?.unwrap_or(false);
    Ok(SamplingOptions {
        temperature: fields.number("temperature")?,
        top_p: fields.number("top_p")?,
        top_k: fields.integer("top_k")?,
        presence_penalty: fields.number("presence_penalty")?,
        frequency_penalty: fields.number("frequency_penalty")?,
        seed: fields.integer("seed")?,
        stop_sequences: stop,
        max_output_tokens: limit,
        candidates: fields.count("n")?.and_then(|n| u32::try_from(n).ok()),
        logprobs: logprobs.then(|| u32::try_from(top.unwrap_or(0)).unwrap_or(0)),
    })
}

fn modality(word: &str) -> Option<Modality> {
    match word {
        "text" => Some(Modality::Text),
        "audio" => Some(Modality::Audio),
        "image" => Some(Modality::Image),
        _ => None,
    }
}

fn turns(messages: Vec<JsonTree<'_>>) -> Result<Vec<Turn>, ApiError> {
    let list = JsonPath::Root.key("messages");
    let mut turns = Vec::with_capacity(messages.len());
    for (index, message) in messages.into_iter().enumerate() {
        let path = list.item(index);
        let mut fields = ObjectReader::new(message, &path)?;
        let role = fields.required("role")?;
        let name = fields.string("name")?;
        let (role, parts, name) = match role.as_str() {
            "system" => (Role::System, content(&mut fields)?, name),
            "developer" => (Role::Developer, content(&mut fields)?, name),
            "user" => (Role::User, content(&mut fields)?, name),
            "assistant" => (Role::Assistant, assistant(&mut fields)?, name),
            "tool" => (Role::User, vec![tool_result(&mut fields)?], name),
            "function" => (Role::User, vec![function_result(&mut fields, &turns, name)?], None),
            _ => return Err(fields.fault("role", "is not a role of this format")),
        };
        turns.push(Turn { role, parts, name, extras: fields.extras(ORIGIN) });
    }
    Ok(turns)
}

fn content(fields: &mut ObjectReader<'_>) -> Result<Vec<Part>, ApiError> {
    let path = fields.path().key("content");
    match fields.take_borrowed("content") {
        None => Ok(Vec::new()),
        Some(JsonTree::Text(text)) => Ok(vec![Part::text(text)]),
        Some(JsonTree::List(parts)) => {
            parts.into_iter().enumerate().map(|(at, value)| part(value, &path.item(at))).collect()
        }
        Some(_) => Err(path.fault("`content` must be a string or a list of parts")),
    }
}

fn part(value: JsonTree<'_>, path: &JsonPath<'_>) -> Result<Part, ApiError> {
    if let Some(text) = value.plain_text() {
        return Ok(Part::text(text));
    }
    let value = value.into_value();
    let original = value.clone();
    let mut fields = ObjectReader::new(value, path)?;
    let word = fields.required("type")?;
    let cache = cache_mark(&mut fields);
    let mut rest = Map::new();
    let kind = match word.as_str() {
        "text" => PartKind::Text { text: fields.required("text")?, citations: Vec::new() },
        "refusal" => PartKind::Refusal(fields.required("refusal")?),
        "image_url" => {
            let inner = fields.object("image_url")?.unwrap_or_default();
            let at = path.key("image_url");
            let mut inner = ObjectReader::of(inner, &at);
            let url = inner.required("url")?;
            let detail = inner.string("detail")?.as_deref().and_then(detail);
            rest = inner.remaining();
            PartKind::Media(Media { detail, ..media(MediaKind::Image, &url) })
        }
        "video_url" => {
            let inner = fields.object("video_url")?.unwrap_or_default();
            let at = path.key("video_url");
            let mut inner = ObjectReader::of(inner, &at);
            let url = inner.required("url")?;
            let clip = VideoClip {
                start: inner.string("start_offset")?,
                end: inner.string("end_offset")?,
                fps: inner.number("fps")?,
            };
            let clip = (clip != VideoClip::default()).then_some(clip);
            rest = inner.remaining();
            PartKind::Media(Media { clip, ..media(MediaKind::Video, &url) })
        }
        "input_audio" => {
            let inner = fields.object("input_audio")?.unwrap_or_default();
            let at = path.key("input_audio");
            let mut inner = ObjectReader::of(inner, &at);
            let format = inner.string("format")?.unwrap_or_else(|| "wav".to_owned());
            let mime =
                if format == "mp3" { "audio/mpeg".to_owned() } else { format!("audio/{format}") };
            let source = MediaSource::Inline { mime, data: inner.required("data")? };
            rest = inner.remaining();
            PartKind::Media(Media {
                kind: MediaKind::Audio,
                source,
                name: None,
                detail: None,
                clip: None,
            })
        }
        "file" => {
            let inner = fields.object("file")?.unwrap_or_default();
            let at = path.key("file");
            let mut inner = ObjectReader::of(inner, &at);
            let kind = file(&mut inner)?;
            rest = inner.remaining();
            kind
        }
        _ => PartKind::Foreign { origin: ORIGIN, value: original },
    };
    let mut extras = match &kind {
        PartKind::Foreign { .. } => ExtraFields::new(),
        _ => fields.extras(ORIGIN),
    };
    keep_inside(&mut extras, &word, rest);
    Ok(Part { kind, signature: None, cache_breakpoint: cache, extras })
}

/// Keeps the unread fields of an inner object under its name.
fn keep_inside(extras: &mut ExtraFields, name: &str, rest: Map<String, Value>) {
    if !rest.is_empty() {
        extras.insert(ORIGIN, name, Value::Object(rest));
    }
}

fn file(fields: &mut ObjectReader<'_>) -> Result<PartKind, ApiError> {
    let name = fields.string("filename")?;
    if let Some(id) = fields.string("file_id")? {
        let source = MediaSource::File { origin: ORIGIN, id };
        return Ok(PartKind::Media(Media {
            kind: MediaKind::Document,
            source,
            name,
            detail: None,
            clip: None,
        }));
    }
    let data = fields.required("file_data")?;
    Ok(PartKind::Media(Media { name, ..media(MediaKind::Document, &data) }))
}

/// Media from a URL or a data URI (RFC 2397).
fn media(kind: MediaKind, url: &str) -> Media {
    let source = match url.strip_prefix("data:").and_then(|rest| rest.split_once(',')) {
        Some((head, data)) => {
            let mime = head.split(';').next().unwrap_or_default();
            let mime = if mime.is_empty() { "application/octet-stream" } else { mime };
            MediaSource::Inline { mime: mime.to_owned(), data: data.to_owned() }
        }
        None => MediaSource::Url { url: url.to_owned(), mime: None },
    };
    Media { kind, source, name: None, detail: None, clip: None }
}

fn detail(word: &str) -> Option<ImageDetail> {
    match word {
        "low" => Some(ImageDetail::Low),
        "high" => Some(ImageDetail::High),
        "original" => Some(ImageDetail::Original),
        _ => None,
    }
}

/// Reads a cache breakpoint: this format's own field, or `cache_control` of the messages format,
/// which other vendors accept here.
fn cache_mark(fields: &mut ObjectReader<'_>) -> Option<CacheBreakpoint> {
    let mark = fields.take("prompt_cache_breakpoint").or_else(|| fields.take("cache_control"))?;
    Some(CacheBreakpoint { ttl: mark.get("ttl").and_then(Value::as_str).map(str::to_owned) })
}

fn assistant(fields: &mut ObjectReader<'_>) -> Result<Vec<Part>, ApiError> {
    let path = fields.path().key("tool_calls");
    let calls = fields.list("tool_calls")?.unwrap_or_default().into_iter().enumerate();
    let calls = calls.map(|(at, call)| tool_call(call, &path.item(at)));
    let mut calls = calls.collect::<Result<Vec<Part>, ApiError>>()?;
    let details = fields.list(REASONING_DETAILS)?.unwrap_or_default();
    let (details, on_text) = signatures::split_details(details, &mut calls);
    let mut parts = thoughts(details, fields, DetailsAuthor::Client)?;
    let mut texts = content(fields)?;
    if let [Part { kind: PartKind::Text { text, .. }, cache_breakpoint: None, extras, .. }] =
        texts.as_slice()
        && extras.is_empty()
    {
        texts = signed_span::split_text(text, signed_span::parse_spans(on_text));
    } else if texts.is_empty() && !on_text.is_empty() {
        texts = signed_span::split_text("", signed_span::parse_spans(on_text));
    }
    parts.extend(texts);
    if let Some(refusal) = fields.string("refusal")? {
        parts.push(Part::new(PartKind::Refusal(refusal)));
    }
    parts.extend(calls);
    if let Some(call) = fields.object("function_call")? {
        let at = fields.path().key("function_call");
        parts.push(function_call(call, &at)?);
    }
    Ok(parts)
}

/// Reads `function_call`, the deprecated form of a tool call. It has no id.
pub(super) fn function_call(
    call: Map<String, Value>,
    path: &JsonPath<'_>,
) -> Result<Part, ApiError> {
    let mut call = ObjectReader::of(call, path);
    let name = call.required("name")?;
    let arguments = call.string("arguments")?.unwrap_or_default();
    let id = format!("call_{name}");
    Ok(Part::new(PartKind::ToolCall(ToolCall { id, name, arguments, custom: false })))
}

/// Reads thinking from the most detailed of the extension fields.
pub(super) fn thoughts(
    details: Vec<Value>,
    fields: &mut ObjectReader<'_>,
    author: DetailsAuthor,
) -> Result<Vec<Part>, ApiError> {
    let plain = fields.string("reasoning_content")?;
    let other = fields.string("reasoning")?;
    let (mut parts, mut unknown) = (Vec::new(), Vec::new());
    for detail in details {
        match signatures::read_detail(&detail, author) {
            Some(part) => parts.push(part),
            None => unknown.push(detail),
        }
    }
    if !unknown.is_empty() {
        fields.put_back(REASONING_DETAILS, Value::Array(unknown));
    }
    if !parts.is_empty() {
        return Ok(parts);
    }
    let text = plain.or(other).filter(|text| !text.is_empty());
    Ok(text
        .map(|text| Part::new(PartKind::Thought(Thought { text, redacted: false })))
        .into_iter()
        .collect())
}

/// Reads one tool call of an assistant message.
pub(super) fn tool_call(value: Value, path: &JsonPath<'_>) -> Result<Part, ApiError> {
    let mut fields = ObjectReader::new(value, path)?;
    let id = fields.string("id")?.unwrap_or_default();
    fields.take("type");
    fields.take("index");
    let signature = fields.take("extra_content").as_ref().and_then(signatures::read_call_signature);
    let (inner, custom) = match fields.object("custom")? {
        Some(inner) => (inner, true),
        None => (fields.object("function")?.unwrap_or_default(), false),
    };
    let word = if custom { "custom" } else { "function" };
    let at = path.key(word);
    let mut inner = ObjectReader::of(inner, &at);
    let name = inner.required("name")?;
    let arguments = match inner.take(if custom { "input" } else { "arguments" }) {
        Some(Value::String(text)) => text,
        Some(object) => object.to_string(),
        None => String::new(),
    };
    let mut extras = fields.extras(ORIGIN);
    keep_inside(&mut extras, word, inner.remaining());
    let call = ToolCall { id, name, arguments, custom };
    Ok(Part::new(PartKind::ToolCall(call)).with_signature(signature).with_extras(extras))
}

fn tool_result(fields: &mut ObjectReader<'_>) -> Result<Part, ApiError> {
    let call = fields.required("tool_call_id")?;
    let failed = fields.flag("is_error")?.unwrap_or(false);
    let cache = cache_mark(fields);
    let parts = content(fields)?;
    let result = ToolResult { call_id: call, name: None, parts, object: None, is_error: failed };
    Ok(Part { cache_breakpoint: cache, ..Part::new(PartKind::ToolResult(result)) })
}

/// Reads a `function` message, the deprecated form of a tool result. It names its function and
/// answers the last call of that name.
fn function_result(
    fields: &mut ObjectReader<'_>,
    turns: &[Turn],
    name: Option<String>,
) -> Result<Part, ApiError> {
    let call = turns.iter().rev().flat_map(|turn| turn.parts.iter().rev()).find_map(|part| {
        match &part.kind {
            PartKind::ToolCall(call) if Some(&call.name) == name.as_ref() => Some(call.id.clone()),
            _ => None,
        }
    });
    let parts = content(fields)?;
    // The call has the function name already. Only a result without a call needs it.
    let name = name.filter(|_| call.is_none());
    let call = call.unwrap_or_default();
    Ok(Part::new(PartKind::ToolResult(ToolResult {
        call_id: call,
        name,
        parts,
        object: None,
        is_error: false,
    })))
}

fn tools(list: Vec<Value>) -> Result<Vec<Tool>, ApiError> {
    let root = JsonPath::Root.key("tools");
    list.into_iter().enumerate().map(|(at, value)| tool(value, &root.item(at))).collect()
}

fn tool(value: Value, path: &JsonPath<'_>) -> Result<Tool, ApiError> {
    let original = value.clone();
    let mut fields = ObjectReader::new(value, path)?;
    match fields.required("type")?.as_str() {
        "function" => {
            let cache = cache_mark(&mut fields);
            let inner = fields.object("function")?.unwrap_or_default();
            let at = path.key("function");
            let mut inner = ObjectReader::of(inner, &at);
            let tool = function(&mut inner)?;
            let mut extras = fields.extras(ORIGIN);
            keep_inside(&mut extras, "function", inner.remaining());
            Ok(Tool::Function(FunctionTool { cache, extras, ..tool }))
        }
        "custom" => {
            let inner = fields.object("custom")?.unwrap_or_default();
            let at = path.key("custom");
            let mut inner = ObjectReader::of(inner, &at);
            Ok(Tool::Custom {
                name: inner.required("name")?,
                description: inner.string("description")?,
                grammar: inner.take("format"),
                extras: inner.extras(ORIGIN),
            })
        }
        _ => Ok(Tool::Foreign { origin: ORIGIN, value: original }),
    }
}

fn function(fields: &mut ObjectReader<'_>) -> Result<FunctionTool, ApiError> {
    Ok(FunctionTool {
        name: fields.required("name")?,
        description: fields.string("description")?,
        parameters: fields.take("parameters").map(JsonSchema::new),
        strict: fields.flag("strict")?,
        ..FunctionTool::default()
    })
}

fn legacy_functions(list: Vec<Value>) -> Result<Vec<Tool>, ApiError> {
    let root = JsonPath::Root.key("functions");
    list.into_iter()
        .enumerate()
        .map(|(at, value)| {
            let path = root.item(at);
            let mut fields = ObjectReader::new(value, &path)?;
            let mut tool = function(&mut fields)?;
            keep_inside(&mut tool.extras, "function", fields.remaining());
            Ok(Tool::Function(tool))
        })
        .collect()
}

fn search(mut options: Map<String, Value>) -> WebSearchTool {
    let location = options.shift_remove("user_location").map(|mut value| {
        let near = value.get_mut("approximate").map(Value::take).unwrap_or(value);
        let text = |name: &str| near.get(name).and_then(Value::as_str).map(str::to_owned);
        UserLocation {
            country: text("country"),
            region: text("region"),
            city: text("city"),
            timezone: text("timezone"),
        }
    });
    WebSearchTool {
        location,
        extras: ExtraFields::from_fields(ORIGIN, options),
        ..WebSearchTool::default()
    }
}

fn tool_choice(value: &Value) -> ToolChoiceMode {
    let named = |tool: &Value| {
        let inner = tool.get("function").or_else(|| tool.get("custom"))?;
        inner.get("name").and_then(Value::as_str).map(str::to_owned)
    };
    match value {
        Value::String(word) => match word.as_str() {
            "auto" => ToolChoiceMode::Auto,
            "none" => ToolChoiceMode::Disabled,
            "required" => ToolChoiceMode::Required,
            _ => ToolChoiceMode::Unset,
        },
        _ => match (value.get("allowed_tools"), named(value)) {
            (Some(allowed), _) => ToolChoiceMode::AnyOf {
                names: allowed
                    .get("tools")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .filter_map(named)
                    .collect(),
                required: allowed.get("mode").and_then(Value::as_str) == Some("required"),
            },
            (None, Some(name)) => ToolChoiceMode::Tool(name),
            (None, None) => ToolChoiceMode::Unset,
        },
    }
}

fn legacy_function_choice(value: &Value) -> ToolChoiceMode {
    match (value.as_str(), value.get("name").and_then(Value::as_str)) {
        (Some("none"), _) => ToolChoiceMode::Disabled,
        (Some(_), _) => ToolChoiceMode::Auto,
        (None, Some(name)) => ToolChoiceMode::Tool(name.to_owned()),
        (None, None) => ToolChoiceMode::Unset,
    }
}

fn format(object: Map<String, Value>) -> Result<ResponseFormat, ApiError> {
    let path = JsonPath::Root.key("response_format");
    let mut fields = ObjectReader::of(object, &path);
    Ok(match fields.string("type")?.as_deref() {
        Some("json_object") => ResponseFormat::Json,
        Some("json_schema") => {
            let inner = fields.object("json_schema")?.unwrap_or_default();
            let at = path.key("json_schema");
            let mut inner = ObjectReader::of(inner, &at);
            ResponseFormat::Schema {
                name: inner.string("name")?,
                description: inner.string("description")?,
                strict: inner.flag("strict")?,
                schema: JsonSchema::new(inner.take("schema").unwrap_or_else(|| Map::new().into())),
            }
        }
        _ => ResponseFormat::Text,
    })
}
