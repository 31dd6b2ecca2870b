//! Reads a chat request into canon.

use canon::{
    CacheBreakpoint, EffortLevel, ExtraFields, FunctionTool, ImageDetail, ImageShape, JsonSchema,
    Media, MediaKind, MediaSource, Modality, Part, PartKind, ResponseFormat, Role, ThinkingDisplay,
    ThinkingOptions, Thought, Tool, ToolCall, ToolChoiceMode, ToolResult, Turn, UserLocation,
    VideoClip, WebSearchTool,
};
use serde_json::{Map, Value};

use super::names::{ORIGIN, REASONING_DETAILS, REASONING_EXTRA};
use super::reply;
use super::request::{
    ChatCalledFunction, ChatFile, ChatFormat, ChatFunction, ChatImageConfig, ChatMessage, ChatPart,
    ChatReasoning, ChatRequestView, ChatSearchOptions, ChatTool, ChatToolCall, ChatToolChoice,
    ChatToolName,
};
use super::signatures::{self, DetailsAuthor};
use crate::signed_span;
use crate::text::BorrowedText;
use crate::wire_object::{UnknownFields, raw_value};
use crate::wire_value::{OpaqueObject, PlacedValue, TextOrList, TextOrObject};

/// Reads a request that the rules have checked.
pub(super) fn read(view: ChatRequestView<'_>) -> canon::ChatRequest {
    let mut chat = canon::ChatRequest::default();
    view.read_options(&mut chat);
    read_sampling(&view, &mut chat);
    chat.model = view.model.map(|model| model.value.into_owned()).unwrap_or_default();
    chat.turns = read_turns(view.messages.map(|list| list.0).unwrap_or_default());
    chat.tools = view.tools.into_iter().flatten().map(read_tool).collect();
    chat.tools.extend(view.functions.into_iter().flatten().map(|function| {
        let (mut tool, rest) = read_function(function);
        keep_inside(&mut tool.extras, "function", &rest);
        Tool::Function(tool)
    }));
    chat.tools.extend(view.web_search_options.map(|options| Tool::WebSearch(read_search(options))));
    chat.tool_choice.mode = match (&view.tool_choice, &view.function_call) {
        (Some(choice), _) => read_choice(choice),
        (None, Some(choice)) => read_legacy_choice(choice),
        (None, None) => ToolChoiceMode::Unset,
    };
    chat.response_format = view.response_format.map_or(ResponseFormat::Text, read_format);
    let words = view.modalities.iter().flatten();
    chat.modalities = words.filter_map(|word| read_modality(word)).collect();
    chat.hints.user = view.safety_identifier.or(view.user).map(BorrowedText::into_owned);
    chat.hints.metadata = view.metadata.map(OpaqueObject::to_map).unwrap_or_default();
    chat.hints.service_tier = view.service_tier.as_deref().map(reply::read_tier);
    chat.extras = view.rest.to_extras(ORIGIN);
    let level = view.reasoning_effort.as_deref().and_then(EffortLevel::parse);
    chat.thinking = match view.reasoning {
        Some(options) => read_reasoning(level, options, &mut chat.extras),
        None => ThinkingOptions { level, ..ThinkingOptions::default() },
    };
    if let Some(config) = view.image_config {
        let ChatImageConfig { aspect_ratio, image_size, rest } = config;
        chat.image_shape = ImageShape {
            aspect_ratio: aspect_ratio.map(BorrowedText::into_owned),
            size: image_size.map(BorrowedText::into_owned),
        };
        keep_inside(&mut chat.extras, "image_config", &rest);
    }
    chat
}

fn read_sampling(view: &ChatRequestView<'_>, chat: &mut canon::ChatRequest) {
    let sampling = &mut chat.sampling;
    sampling.top_k = view.top_k;
    sampling.stop_sequences = match &view.stop {
        None => Vec::new(),
        Some(TextOrList::Text(text)) => vec![(**text).to_owned()],
        Some(TextOrList::List(texts)) => texts.iter().map(|text| (**text).to_owned()).collect(),
    };
    sampling.max_output_tokens = view.output_limit();
    sampling.candidates = view.n.and_then(|n| u32::try_from(n).ok());
    let alternatives = u32::try_from(view.top_logprobs.unwrap_or(0)).unwrap_or(0);
    sampling.logprobs = view.logprobs.unwrap_or(false).then_some(alternatives);
}

/// Reads `reasoning`. The caller's own object and its unknown fields stay in the extras.
fn read_reasoning(
    level: Option<EffortLevel>,
    options: PlacedValue<'_, ChatReasoning<'_>>,
    extras: &mut ExtraFields,
) -> ThinkingOptions {
    let PlacedValue { raw, value: ChatReasoning { effort, max_tokens, exclude, enabled, rest } } =
        options;
    extras.insert(ORIGIN, REASONING_EXTRA, raw_value(raw));
    keep_inside(extras, "reasoning", &rest);
    let off = (enabled == Some(false)).then_some(EffortLevel::Off);
    let level = level.or(off).or_else(|| effort.as_deref().and_then(EffortLevel::parse));
    ThinkingOptions {
        level,
        budget: max_tokens,
        dynamic: enabled == Some(true) && level.is_none() && max_tokens.is_none(),
        display: exclude.unwrap_or(false).then_some(ThinkingDisplay::Hidden),
    }
}

fn read_modality(word: &str) -> Option<Modality> {
    match word {
        "text" => Some(Modality::Text),
        "audio" => Some(Modality::Audio),
        "image" => Some(Modality::Image),
        _ => None,
    }
}

fn read_turns(messages: Vec<ChatMessage<'_>>) -> Vec<Turn> {
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
        if !unknown_details.is_empty() {
            extras.insert(ORIGIN, REASONING_DETAILS, Value::Array(unknown_details));
        }
        turns.push(Turn { role, parts, name, extras });
    }
    turns
}

fn read_content(content: Option<TextOrList<'_, ChatPart<'_>>>) -> Vec<Part> {
    match content {
        None => Vec::new(),
        Some(TextOrList::Text(text)) => vec![Part::text(text.into_owned())],
        Some(TextOrList::List(parts)) => parts.into_iter().map(read_part).collect(),
    }
}

fn read_part(part: ChatPart<'_>) -> Part {
    let (kind, mut rest, inner) = match part {
        ChatPart::Text(part) => {
            let text = part.text.map(BorrowedText::into_owned).unwrap_or_default();
            (PartKind::Text { text, citations: Vec::new() }, part.rest, None)
        }
        ChatPart::Refusal(part) => {
            let text = part.refusal.map(BorrowedText::into_owned).unwrap_or_default();
            (PartKind::Refusal(text), part.rest, None)
        }
        ChatPart::Image(part) => {
            let image = part.image_url.unwrap_or_default();
            let detail = image.detail.as_deref().and_then(read_detail);
            let media =
                Media { detail, ..url_media(MediaKind::Image, &image.url.unwrap_or_default()) };
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
            let media =
                Media { clip, ..url_media(MediaKind::Video, &video.url.unwrap_or_default()) };
            (PartKind::Media(media), part.rest, Some(("video_url", video.rest)))
        }
        ChatPart::Audio(part) => {
            let audio = part.input_audio.unwrap_or_default();
            let mime = match audio.format.as_deref() {
                Some("mp3") => "audio/mpeg".to_owned(),
                format => format!("audio/{}", format.unwrap_or("wav")),
            };
            let data = audio.data.map(BorrowedText::into_owned).unwrap_or_default();
            let media = Media::new(MediaKind::Audio, MediaSource::Inline { mime, data });
            (PartKind::Media(media), part.rest, Some(("input_audio", audio.rest)))
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
        keep_inside(&mut extras, name, &rest);
    }
    Part { kind, signature: None, cache_breakpoint, extras }
}

/// Keeps the unread fields of an inner object under its name.
fn keep_inside(extras: &mut ExtraFields, name: &str, rest: &UnknownFields<'_>) {
    let rest = rest.to_map();
    if !rest.is_empty() {
        extras.insert(ORIGIN, name, Value::Object(rest));
    }
}

fn read_file(file: ChatFile<'_>) -> Media {
    let name = file.filename.map(BorrowedText::into_owned);
    if let Some(id) = file.file_id {
        let source = MediaSource::File { origin: ORIGIN, id: id.into_owned() };
        return Media { name, ..Media::new(MediaKind::Document, source) };
    }
    Media { name, ..url_media(MediaKind::Document, &file.file_data.unwrap_or_default()) }
}

/// Media from a URL or a data URI (RFC 2397).
fn url_media(kind: MediaKind, url: &str) -> Media {
    let source = match url.strip_prefix("data:").and_then(|rest| rest.split_once(',')) {
        Some((head, data)) => {
            let mime = head.split(';').next().unwrap_or_default();
            let mime = if mime.is_empty() { "application/octet-stream" } else { mime };
            MediaSource::Inline { mime: mime.to_owned(), data: data.to_owned() }
        }
        None => MediaSource::Url { url: url.to_owned(), mime: None },
    };
    Media::new(kind, source)
}

fn read_detail(word: &str) -> Option<ImageDetail> {
    match word {
        "low" => Some(ImageDetail::Low),
        "high" => Some(ImageDetail::High),
        "original" => Some(ImageDetail::Original),
        _ => None,
    }
}

/// Reads a cache breakpoint: this format's own field, or `cache_control` of the messages format,
/// which other vendors accept here.
fn read_cache_mark(rest: &mut UnknownFields<'_>) -> Option<CacheBreakpoint> {
    let mark = rest.take("prompt_cache_breakpoint").or_else(|| rest.take("cache_control"))?;
    let mark = raw_value(mark);
    Some(CacheBreakpoint { ttl: mark.get("ttl").and_then(Value::as_str).map(str::to_owned) })
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
    (parts, unknown)
}

/// Reads `function_call`, the deprecated form of a tool call. It has no id.
fn read_function_call(call: ChatCalledFunction<'_>) -> Part {
    let name = call.name.map(BorrowedText::into_owned).unwrap_or_default();
    let arguments = call.arguments.map(BorrowedText::into_owned).unwrap_or_default();
    let id = format!("call_{name}");
    Part::new(PartKind::ToolCall(ToolCall { id, name, arguments, custom: false }))
}

/// Takes the entries of `reasoning_details`.
fn take_details(rest: &mut UnknownFields<'_>) -> Vec<Value> {
    let list = rest.get(REASONING_DETAILS).and_then(|raw| serde_json::from_str(raw.get()).ok());
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
        match signatures::read_detail(&detail, DetailsAuthor::Client) {
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
        id: id.map(BorrowedText::into_owned).unwrap_or_default(),
        name: called.name.map(BorrowedText::into_owned).unwrap_or_default(),
        arguments: arguments.map(BorrowedText::into_owned).unwrap_or_default(),
        custom: is_custom,
    };
    let extra = extra_content.map(raw_value);
    let signature = extra.as_ref().and_then(signatures::read_call_signature);
    let mut extras = rest.to_extras(ORIGIN);
    keep_inside(&mut extras, if is_custom { "custom" } else { "function" }, &called.rest);
    Part::new(PartKind::ToolCall(call)).with_signature(signature).with_extras(extras)
}

fn read_tool_result(message: &mut ChatMessage<'_>) -> Part {
    let failed = message.rest.take("is_error").is_some_and(|value| value.get() == "true");
    let cache_breakpoint = read_cache_mark(&mut message.rest);
    let call_id = message.tool_call_id.take().map(BorrowedText::into_owned).unwrap_or_default();
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

fn read_tool(tool: ChatTool<'_>) -> Tool {
    match tool {
        ChatTool::Function(mut tool) => {
            let cache = read_cache_mark(&mut tool.rest);
            let (function, rest) = read_function(tool.function.unwrap_or_default());
            let mut extras = tool.rest.to_extras(ORIGIN);
            keep_inside(&mut extras, "function", &rest);
            Tool::Function(FunctionTool { cache, extras, ..function })
        }
        ChatTool::Custom(tool) => {
            let custom = tool.custom.unwrap_or_default();
            Tool::Custom {
                name: custom.name.map(BorrowedText::into_owned).unwrap_or_default(),
                description: custom.description.map(BorrowedText::into_owned),
                grammar: custom.format.map(raw_value),
                extras: custom.rest.to_extras(ORIGIN),
            }
        }
        ChatTool::Unknown(fields) => Tool::Foreign { origin: ORIGIN, value: fields.to_value() },
    }
}

fn read_function(function: ChatFunction<'_>) -> (FunctionTool, UnknownFields<'_>) {
    let ChatFunction { name, description, parameters, strict, rest } = function;
    let tool = FunctionTool {
        name: name.map(BorrowedText::into_owned).unwrap_or_default(),
        description: description.map(BorrowedText::into_owned),
        parameters: parameters.map(|schema| JsonSchema::new(schema.to_value())),
        strict,
        ..FunctionTool::default()
    };
    (tool, rest)
}

fn read_search(options: ChatSearchOptions<'_>) -> WebSearchTool {
    let location = options.user_location.map(|mut place| {
        let place = place.approximate.take().map_or(place, |near| *near);
        UserLocation {
            country: place.country.map(BorrowedText::into_owned),
            region: place.region.map(BorrowedText::into_owned),
            city: place.city.map(BorrowedText::into_owned),
            timezone: place.timezone.map(BorrowedText::into_owned),
        }
    });
    let extras = options.rest.to_extras(ORIGIN);
    WebSearchTool { location, extras, ..WebSearchTool::default() }
}

fn read_choice(choice: &TextOrObject<'_, ChatToolChoice<'_>>) -> ToolChoiceMode {
    match choice {
        TextOrObject::Text(word) => match &**word {
            "auto" => ToolChoiceMode::Auto,
            "none" => ToolChoiceMode::Disabled,
            "required" => ToolChoiceMode::Required,
            _ => ToolChoiceMode::Unset,
        },
        TextOrObject::Object(choice) => match (&choice.allowed_tools, choice.tool_name()) {
            (Some(allowed), _) => ToolChoiceMode::AnyOf {
                names: allowed
                    .tools
                    .iter()
                    .flatten()
                    .filter_map(|tool| tool.tool_name().map(str::to_owned))
                    .collect(),
                required: allowed.mode.as_deref() == Some("required"),
            },
            (None, Some(name)) => ToolChoiceMode::Tool(name.to_owned()),
            (None, None) => ToolChoiceMode::Unset,
        },
    }
}

fn read_legacy_choice(choice: &TextOrObject<'_, ChatToolName<'_>>) -> ToolChoiceMode {
    match choice {
        TextOrObject::Text(word) if &**word == "none" => ToolChoiceMode::Disabled,
        TextOrObject::Text(_) => ToolChoiceMode::Auto,
        TextOrObject::Object(tool) => match tool.name.as_deref() {
            Some(name) => ToolChoiceMode::Tool(name.to_owned()),
            None => ToolChoiceMode::Unset,
        },
    }
}

fn read_format(format: ChatFormat<'_>) -> ResponseFormat {
    match (format.kind.as_deref(), format.json_schema) {
        (Some("json_object"), _) => ResponseFormat::Json,
        (Some("json_schema"), schema) => {
            let schema = schema.unwrap_or_default();
            let json = schema.schema.map_or_else(|| Map::new().into(), OpaqueObject::to_value);
            ResponseFormat::Schema {
                name: schema.name.map(BorrowedText::into_owned),
                description: schema.description.map(BorrowedText::into_owned),
                strict: schema.strict,
                schema: JsonSchema::new(json),
            }
        }
        _ => ResponseFormat::Text,
    }
}
