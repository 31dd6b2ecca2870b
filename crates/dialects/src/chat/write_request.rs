//! Writes a chat request from canon.

use canon::{
    CacheMark, Choice, Clip, Detail, Extras, Format, FunctionTool, Hints, Kind, Level, Losses,
    Lossy, Media, MediaKind, Modality, Origin, Part, Role, Sampling, SearchTool, Source, State,
    Thinking, Thought, Tool, ToolCall, ToolChoice, ToolResult, Turn,
};
use serde_json::Value;

use super::names::{MAX_STOP_SEQUENCES, ORIGIN, PATH};
use super::{signatures, wire};
use crate::fields::{Object, note_foreign, number};
use crate::json::Segments;
use crate::native::BYPASS;
use crate::{Lane, Outgoing, Steering};

/// Writes a request for a lane.
pub(super) fn write(chat: &canon::Chat, lane: &Lane<'_>) -> Lossy<Outgoing> {
    let canon::Chat {
        model: _,
        turns,
        tools,
        choice,
        sampling,
        thinking,
        format,
        modalities,
        canvas,
        stream,
        state,
        hints,
        extras,
    } = chat;
    let mut losses = Losses::new();
    for name in extras.foreign_to(ORIGIN) {
        losses.add(name, "only the caller's format has this field");
    }
    let mut messages = Vec::with_capacity(turns.len());
    for turn in turns {
        write_turn(turn, lane, &mut messages, &mut losses);
    }
    let body = Object::new().set("model", lane.model).set("messages", messages);
    let body = write_tools(body, tools, choice, &mut losses);
    let body = write_sampling(body, sampling, lane, &mut losses);
    let body = body.maybe("reasoning_effort", write_thinking(*thinking, lane, &mut losses));
    let body = body.maybe("response_format", write_format(format));
    let body = write_hints(body, hints, state, &mut losses);
    let body = if modalities.is_empty() {
        body
    } else {
        let words: Vec<&str> =
            modalities.iter().map(|modality| write_modality(*modality)).collect();
        body.set("modalities", words)
    };
    let canon::Canvas { ratio, size } = canvas;
    let mut config = Object::new()
        .maybe("aspect_ratio", ratio.as_deref())
        .maybe("image_size", size.as_deref())
        .into_map();
    if let Some(Value::Object(rest)) = extras.get(ORIGIN, "image_config") {
        config.extend(rest.clone());
    }
    let body = body.maybe("image_config", (!config.is_empty()).then_some(config));
    let mut body = body.with(extras, ORIGIN);
    if *stream {
        let options = Object::new().set("include_usage", true);
        body = body.set("stream", true).set("stream_options", options);
    }
    let body = Value::from(body).to_string();
    (Outgoing { path: PATH.to_owned(), body: Segments::whole(body) }, losses.into_vec())
}

fn write_sampling(
    body: Object,
    sampling: &Sampling,
    lane: &Lane<'_>,
    losses: &mut Losses,
) -> Object {
    let Sampling {
        temperature,
        top_p,
        top_k,
        presence_penalty,
        frequency_penalty,
        seed,
        stop,
        max_output,
        candidates,
        logprobs,
    } = sampling;
    losses.add_if(top_k.is_some(), "sampling.top_k", "the chat format has no such field");
    losses.add_if(
        stop.len() > MAX_STOP_SEQUENCES,
        "sampling.stop",
        "the chat format takes at most 4 stop sequences",
    );
    let stop: Vec<&str> = stop.iter().take(MAX_STOP_SEQUENCES).map(String::as_str).collect();
    body.maybe("temperature", temperature.map(number))
        .maybe("top_p", top_p.map(number))
        .maybe("presence_penalty", presence_penalty.map(number))
        .maybe("frequency_penalty", frequency_penalty.map(number))
        .maybe("seed", *seed)
        .maybe("stop", (!stop.is_empty()).then_some(stop))
        .maybe("max_completion_tokens", lane.limit.or(*max_output))
        .maybe("n", candidates.filter(|n| *n != 1))
        .maybe("logprobs", logprobs.map(|_| true))
        .maybe("top_logprobs", logprobs.filter(|n| *n > 0))
}

fn write_thinking(
    thinking: Thinking,
    lane: &Lane<'_>,
    losses: &mut Losses,
) -> Option<&'static str> {
    let Thinking { level: _, budget: _, dynamic: _, show } = thinking;
    losses.add_if(
        show.is_some_and(|show| show != canon::Show::Hidden),
        "thinking.show",
        "the chat format cannot ask for a summary",
    );
    let level = thinking.as_level();
    level.and_then(|level| Steering::of(lane).effort(level, losses)).map(Level::word)
}

fn write_format(format: &Format) -> Option<Value> {
    match format {
        Format::Text => None,
        Format::Json => Some(Object::new().set("type", "json_object").into()),
        Format::Schema { name, description, schema, strict } => {
            let inner = Object::new()
                .set("name", name.as_deref().unwrap_or("answer"))
                .maybe("description", description.as_deref())
                .set("schema", schema.json.clone())
                .maybe("strict", *strict);
            Some(Object::new().set("type", "json_schema").set("json_schema", inner).into())
        }
    }
}

const fn write_modality(modality: Modality) -> &'static str {
    match modality {
        Modality::Text => "text",
        Modality::Image => "image",
        Modality::Audio => "audio",
    }
}

fn write_hints(body: Object, hints: &Hints, state: &State, losses: &mut Losses) -> Object {
    let Hints { user, metadata, tier, cache_key, verbosity } = hints;
    let State { store, previous, background } = state;
    losses.add_if(previous.is_some(), "state.previous", "the chat format stores no conversations");
    losses.add_if(
        *background == Some(true),
        "state.background",
        "the chat format has no background mode",
    );
    let written = tier.as_ref().and_then(wire::write_tier);
    losses.add_if(
        tier.is_some() && written.is_none(),
        "hints.tier",
        "the chat format lacks this tier",
    );
    body.maybe("user", user.as_deref())
        .maybe("metadata", (!metadata.is_empty()).then(|| metadata.clone()))
        .maybe("service_tier", written)
        .maybe("prompt_cache_key", cache_key.as_deref())
        .maybe("verbosity", verbosity.as_deref())
        .maybe("store", *store)
}

fn write_turn(turn: &Turn, lane: &Lane<'_>, messages: &mut Vec<Value>, losses: &mut Losses) {
    let Turn { role, parts, name, extras } = turn;
    note_foreign(extras, ORIGIN, "turn", losses);
    match role {
        Role::Assistant => messages.push(assistant(turn, lane, losses)),
        Role::System | Role::Developer => {
            let word = if *role == Role::System { "system" } else { "developer" };
            let message = Object::new().set("role", word).maybe("name", name.as_deref());
            let message = message.set("content", content(parts, losses));
            messages.push(message.with(extras, ORIGIN).into());
        }
        Role::User => {
            // Tool results come first: the API requires them right after the calls they answer.
            let mut attachments = Vec::new();
            for part in parts {
                if let Kind::ToolResult(result) = &part.kind {
                    note_foreign(&part.extras, ORIGIN, "part", losses);
                    messages.push(tool_result(
                        result,
                        part.cache.as_ref(),
                        &mut attachments,
                        losses,
                    ));
                }
            }
            let rest: Vec<&Part> = parts
                .iter()
                .filter(|part| !matches!(part.kind, Kind::ToolResult(_)))
                .chain(&attachments)
                .collect();
            let content = content(rest, losses);
            if content != Value::Array(Vec::new()) || parts.is_empty() {
                let message = Object::new().set("role", "user").maybe("name", name.as_deref());
                messages.push(message.set("content", content).with(extras, ORIGIN).into());
            }
        }
    }
}

/// A single plain text becomes a string, anything else a list of parts.
fn content<'a>(parts: impl IntoIterator<Item = &'a Part>, losses: &mut Losses) -> Value {
    let parts: Vec<&Part> = parts.into_iter().collect();
    let cited =
        |part: &&Part| matches!(&part.kind, Kind::Text { citations, .. } if !citations.is_empty());
    let cited = parts.iter().any(cited);
    losses.add_if(cited, "text.citations", "a chat history has no field for citations");
    if let [Part { kind: Kind::Text { text, .. }, cache: None, extras, .. }] = parts.as_slice()
        && extras.is_empty()
    {
        return Value::from(text.as_str());
    }
    Value::Array(parts.into_iter().filter_map(|part| write_part(part, losses)).collect())
}

fn write_part(part: &Part, losses: &mut Losses) -> Option<Value> {
    note_foreign(&part.extras, ORIGIN, "part", losses);
    let object = match &part.kind {
        Kind::Text { text, .. } => Object::new().set("type", "text").set("text", text.as_str()),
        Kind::Refusal(text) => Object::new().set("type", "refusal").set("refusal", text.as_str()),
        Kind::Media(media) => write_media(media, &part.extras, losses)?,
        Kind::Foreign { origin, value } if *origin == ORIGIN => return Some(value.clone()),
        Kind::Code(code) => {
            Object::new().set("type", "text").set("text", code_block(&code.language, &code.code))
        }
        Kind::CodeOutcome(outcome) => {
            Object::new().set("type", "text").set("text", code_block("", &outcome.output))
        }
        Kind::Foreign { .. } => {
            losses.add("part", "a part only the caller's format has");
            return None;
        }
        Kind::Thought(_) | Kind::ToolCall(_) | Kind::ToolResult(_) => return None,
        Kind::Search(_) => {
            losses.add("part.search", "the chat format has no field for a past search");
            return None;
        }
    };
    let mark = part.cache.as_ref().map(write_cache);
    Some(object.maybe("prompt_cache_breakpoint", mark).with(&part.extras, ORIGIN).into())
}

/// Writes code or its output as a Markdown code block.
pub(super) fn code_block(language: &str, code: &str) -> String {
    format!("```{language}\n{}\n```", code.trim_end_matches('\n'))
}

fn write_cache(mark: &CacheMark) -> Value {
    Object::new().set("mode", "explicit").maybe("ttl", mark.ttl.as_deref()).into()
}

/// Adds the extras kept for an inner object.
fn with_inner_extras(object: Object, extras: &Extras, name: &str) -> Object {
    let kept = extras.get(ORIGIN, name).and_then(Value::as_object).cloned().unwrap_or_default();
    object.with(&Extras::of(ORIGIN, kept), ORIGIN)
}

fn write_media(media: &Media, extras: &Extras, losses: &mut Losses) -> Option<Object> {
    let Media { kind, source, name, detail, clip } = media;
    losses.add_if(
        clip.is_some() && *kind != MediaKind::Video,
        "media.clip",
        "the chat format has clips only for video",
    );
    let whole = |word: &str, inner: Object| {
        Object::new().set("type", word).set(word, with_inner_extras(inner, extras, word))
    };
    let url = match source {
        Source::Inline { mime, data } => format!("data:{mime};base64,{data}"),
        Source::Url { url, .. } => url.clone(),
        Source::File { origin, id } if *origin == ORIGIN => {
            let file = Object::new().set("file_id", id.as_str());
            return Some(whole("file", file));
        }
        Source::File { .. } => {
            losses.add("media.file", "a file in another provider's storage cannot be read here");
            return None;
        }
        Source::Text(text) => {
            return Some(Object::new().set("type", "text").set("text", text.as_str()));
        }
    };
    match (kind, source) {
        (MediaKind::Image, _) => {
            let detail = detail.map(|detail| match detail {
                Detail::Low => "low",
                Detail::Medium => "auto",
                Detail::High => "high",
                Detail::Original => "original",
            });
            let image = Object::new().set("url", url).maybe("detail", detail);
            Some(whole("image_url", image))
        }
        (MediaKind::Audio, Source::Inline { mime, data }) => {
            let format = match mime.as_str() {
                "audio/mpeg" | "audio/mp3" => "mp3",
                other => other.strip_prefix("audio/").unwrap_or("wav"),
            };
            let audio = Object::new().set("data", data.as_str()).set("format", format);
            Some(whole("input_audio", audio))
        }
        (MediaKind::Video, _) => {
            let Clip { start, end, fps } = clip.clone().unwrap_or_default();
            let video = Object::new()
                .set("url", url)
                .maybe("start_offset", start)
                .maybe("end_offset", end)
                .maybe("fps", fps.map(number));
            Some(whole("video_url", video))
        }
        (MediaKind::Document, Source::Inline { .. }) => {
            let file = Object::new()
                .set("filename", name.as_deref().unwrap_or("document.pdf"))
                .set("file_data", url);
            Some(whole("file", file))
        }
        (MediaKind::Audio | MediaKind::Document, _) => {
            losses.add("media.url", "the chat format takes this kind of media only inline");
            None
        }
    }
}

fn tool_result(
    result: &ToolResult,
    cache: Option<&CacheMark>,
    attachments: &mut Vec<Part>,
    losses: &mut Losses,
) -> Value {
    let ToolResult { call, name: _, parts, object: _, failed } = result;
    losses.add_if(*failed, "tool_result.failed", "the chat format cannot mark a result as failed");
    let media = parts.iter().filter(|part| matches!(part.kind, Kind::Media(_)));
    let seen = attachments.len();
    attachments.extend(media.cloned());
    let mut text = result.as_text();
    if text.is_empty() && attachments.len() > seen {
        // Chat tool results hold only text, so media follow in the user's message.
        "The result is in the attachment that follows.".clone_into(&mut text);
    }
    Object::new()
        .set("role", "tool")
        .set("tool_call_id", call.as_str())
        .set("content", text)
        .maybe("prompt_cache_breakpoint", cache.map(write_cache))
        .into()
}

fn assistant(turn: &Turn, lane: &Lane<'_>, losses: &mut Losses) -> Value {
    let mut content_parts = Vec::new();
    let mut calls = Vec::new();
    let mut thoughts = Vec::new();
    let mut details = Vec::new();
    for part in &turn.parts {
        match &part.kind {
            Kind::Thought(thought) => {
                let Thought { text, redacted: _ } = thought;
                if !text.is_empty() {
                    thoughts.push(text.as_str());
                }
                if part
                    .seal
                    .as_ref()
                    .is_some_and(|signature| signature.for_origin(ORIGIN).is_some())
                {
                    details.push(signatures::write_detail(part, thought, details.len()));
                } else {
                    losses.add_if(
                        part.seal.is_some(),
                        "thought.seal",
                        "a signature of another provider is not valid here",
                    );
                }
            }
            Kind::ToolCall(call) => {
                note_foreign(&part.extras, ORIGIN, "part", losses);
                calls.push(match is_bypass(part, lane) {
                    true => write_call(call, &Part { seal: None, ..part.clone() }),
                    false => write_call(call, part),
                });
            }
            Kind::Media(_) => {
                losses.add("turn.media", "assistant turns hold no media in this format");
            }
            Kind::Text { .. }
            | Kind::Refusal(_)
            | Kind::ToolResult(_)
            | Kind::Code(_)
            | Kind::CodeOutcome(_)
            | Kind::Search(_)
            | Kind::Foreign { .. } => content_parts.push(part),
        }
    }
    let content = if content_parts.is_empty() && !calls.is_empty() {
        Value::Null
    } else {
        content(content_parts, losses)
    };
    let content = if content == Value::Array(Vec::new()) { Value::from("") } else { content };
    Object::new()
        .set("role", "assistant")
        .maybe("name", turn.name.as_deref())
        .set("content", content)
        .maybe("reasoning_content", (!thoughts.is_empty()).then(|| thoughts.concat()))
        .maybe("reasoning_details", (!details.is_empty()).then_some(details))
        .maybe("tool_calls", (!calls.is_empty()).then_some(calls))
        .with(&turn.extras, ORIGIN)
        .into()
}

/// Returns true for a call with Gemini's bypass signature
/// (<https://ai.google.dev/gemini-api/docs/thought-signatures>) on its way to a model that is not
/// Gemini. Other models do not check signatures, and the dummy value could confuse them.
fn is_bypass(part: &Part, lane: &Lane<'_>) -> bool {
    let token = part.seal.as_ref().and_then(|signature| signature.for_origin(Origin::Native));
    token == Some(BYPASS) && !lane.model.contains("gemini")
}

/// Writes a tool call of a message.
pub(super) fn write_call(call: &ToolCall, part: &Part) -> Value {
    let ToolCall { id, name, arguments, custom } = call;
    let object = Object::new().set("id", id.as_str());
    let object = if *custom {
        let inner = Object::new().set("name", name.as_str()).set("input", arguments.as_str());
        object.set("type", "custom").set("custom", with_inner_extras(inner, &part.extras, "custom"))
    } else {
        let arguments = if arguments.is_empty() { "{}" } else { arguments.as_str() };
        let inner = Object::new().set("name", name.as_str()).set("arguments", arguments);
        object
            .set("type", "function")
            .set("function", with_inner_extras(inner, &part.extras, "function"))
    };
    let signature = part.seal.as_ref().and_then(signatures::write_call_signature);
    object.maybe("extra_content", signature).with(&part.extras, ORIGIN).into()
}

fn write_tools(body: Object, tools: &[Tool], choice: &ToolChoice, losses: &mut Losses) -> Object {
    let mut list = Vec::with_capacity(tools.len());
    let mut search = None;
    for tool in tools {
        match tool {
            Tool::Function(function) => list.push(write_function(function, losses)),
            Tool::Custom { name, description, grammar, extras } => {
                note_foreign(extras, ORIGIN, "tools", losses);
                let inner = Object::new()
                    .set("name", name.as_str())
                    .maybe("description", description.as_deref())
                    .maybe("format", grammar.clone())
                    .with(extras, ORIGIN);
                list.push(Object::new().set("type", "custom").set("custom", inner).into());
            }
            Tool::Search(tool) => search = Some(write_search(tool, losses)),
            Tool::Foreign { origin, value } if *origin == ORIGIN => list.push(value.clone()),
            Tool::Code(_) => losses.add("tools.code", "the chat format cannot run code"),
            Tool::Fetch(_) => losses.add("tools.fetch", "the chat format cannot fetch URLs"),
            Tool::Foreign { .. } => losses.add("tools", "a tool only the caller's format has"),
        }
    }
    let ToolChoice { choice, parallel } = choice;
    let has_tools = !list.is_empty();
    body.maybe("tools", has_tools.then_some(list))
        .maybe("web_search_options", search)
        .maybe("tool_choice", write_choice(choice, tools).filter(|_| has_tools))
        .maybe("parallel_tool_calls", parallel.filter(|_| has_tools))
}

fn write_function(tool: &FunctionTool, losses: &mut Losses) -> Value {
    let FunctionTool { name, description, parameters, result, strict, deferred, cache, extras } =
        tool;
    note_foreign(extras, ORIGIN, "tools", losses);
    losses.add_if(result.is_some(), "tools.result", "the chat format has no result schemas");
    losses.add_if(*deferred, "tools.deferred", "the chat format has no deferred tools");
    let inner = Object::new()
        .set("name", name.as_str())
        .maybe("description", description.as_deref())
        .maybe("parameters", parameters.as_ref().map(|schema| schema.json.clone()))
        .maybe("strict", *strict);
    Object::new()
        .set("type", "function")
        .set("function", with_inner_extras(inner, extras, "function"))
        .maybe("prompt_cache_breakpoint", cache.as_ref().map(write_cache))
        .with(extras, ORIGIN)
        .into()
}

fn write_search(tool: &SearchTool, losses: &mut Losses) -> Value {
    let SearchTool { allowed, blocked, location, extras } = tool;
    note_foreign(extras, ORIGIN, "tools", losses);
    losses.add_if(
        !allowed.is_empty() || !blocked.is_empty(),
        "tools.search.domains",
        "a chat search cannot be limited to domains",
    );
    let location = location.as_ref().map(|location| {
        let near = Object::new()
            .maybe("country", location.country.as_deref())
            .maybe("region", location.region.as_deref())
            .maybe("city", location.city.as_deref())
            .maybe("timezone", location.timezone.as_deref());
        Object::new().set("type", "approximate").set("approximate", near)
    });
    Object::new().maybe("user_location", location).with(extras, ORIGIN).into()
}

fn write_choice(choice: &Choice, tools: &[Tool]) -> Option<Value> {
    let named = |name: &str| {
        let custom =
            tools.iter().any(|tool| matches!(tool, Tool::Custom { name: own, .. } if own == name));
        let kind = if custom { "custom" } else { "function" };
        Object::new().set("type", kind).set(kind, Object::new().set("name", name))
    };
    match choice {
        Choice::Unset => None,
        Choice::Auto => Some("auto".into()),
        Choice::Never => Some("none".into()),
        Choice::Required => Some("required".into()),
        Choice::Named(name) => Some(named(name).into()),
        Choice::Among { names, required } => {
            let tools: Vec<Value> = names.iter().map(|name| named(name).into()).collect();
            let mode = if *required { "required" } else { "auto" };
            let inner = Object::new().set("mode", mode).set("tools", tools);
            Some(Object::new().set("type", "allowed_tools").set("allowed_tools", inner).into())
        }
    }
}
