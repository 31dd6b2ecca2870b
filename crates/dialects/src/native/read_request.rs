//! Reads a native request into canon.

use canon::{
    ApiError, ConversationState, ExtraFields, ImageShape, JsonSchema, Part, PartKind, RequestHints,
    ResponseFormat, Role, SamplingOptions, Signature, ThinkingDisplay, ThinkingOptions, ToolResult,
    Turn,
};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet, VecDeque};

use super::names::{ENUM_EXTRA, JSON_ARRAY_EXTRA, ORIGIN, UNSIGNED_EXTRA};
use super::proto_json::{self, fields};
use super::{enum_text, read_part, read_tools, schema, wire};
use crate::fields::{JsonPath, ObjectReader};
use crate::{RequestTarget, json};

/// Reads a request. `rules` has checked it before; only types are checked here.
pub(super) fn read(target: &RequestTarget, body: &[u8]) -> Result<canon::ChatRequest, ApiError> {
    let text = json::checked_text(body)?;
    let value: Value = serde_json::from_str(text)
        .map_err(|e| ApiError::invalid("", format!("the body is not valid JSON: {e}")))?;
    let mut root = match value {
        Value::Object(_) => fields(value, &JsonPath::Root)?,
        _ => return Err(ApiError::invalid("", "the body must be a JSON object")),
    };
    // The path names the model; a model in the body is ignored.
    let named = root.take("model").and_then(|name| name.as_str().map(str::to_owned));
    let model = target.model.clone().or(named).unwrap_or_default();

    let mut extras = ExtraFields::new();
    let mut turns = Vec::new();
    if let Some(value) = root.take("systemInstruction") {
        turns.push(instruction(value)?);
    }
    conversation(proto_json::list(&mut root, "contents")?, &mut turns)?;
    let tools = read_tools::tools(proto_json::list(&mut root, "tools")?)?;
    let choice = read_tools::choice(root.take("toolConfig"), &mut extras)?;
    let config = root.take("generationConfig").unwrap_or_else(|| Value::Object(Map::new()));
    let path = JsonPath::Root.key("generationConfig");
    let mut config = fields(config, &path)?;
    let sampling = sampling(&mut config)?;
    let thinking = thinking(config.take("thinkingConfig"), &mut extras)?;
    let format = format(&mut config, &mut extras)?;
    let modalities = proto_json::strings(&mut config, "responseModalities")?
        .iter()
        .filter_map(|word| wire::read_modality(word))
        .collect();
    let canvas = canvas(&mut config)?;
    proto_json::keep(&mut extras, "generationConfig", config);
    let tier = root.string("serviceTier")?.as_deref().map(wire::read_tier);
    for (name, value) in root.remaining() {
        extras.insert(ORIGIN, &name, value);
    }
    if target.stream && target.json_array {
        extras.insert(ORIGIN, JSON_ARRAY_EXTRA, Value::from("json"));
    }
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
        stream: target.stream,
        state: ConversationState::default(),
        hints: RequestHints { service_tier: tier, ..RequestHints::default() },
        extras,
    })
}

/// Reads the image shape. Other fields of `imageConfig` stay in the extras.
fn canvas(config: &mut ObjectReader<'_>) -> Result<ImageShape, ApiError> {
    let Some(value) = config.take("imageConfig") else { return Ok(ImageShape::default()) };
    let path = JsonPath::Root.key("generationConfig");
    let path = path.key("imageConfig");
    let mut inner = fields(value, &path)?;
    let canvas =
        ImageShape { aspect_ratio: inner.string("aspectRatio")?, size: inner.string("imageSize")? };
    let rest = inner.remaining();
    if !rest.is_empty() {
        config.put_back("imageConfig", Value::Object(rest));
    }
    Ok(canvas)
}

/// Reads the system instruction. Its role is ignored.
fn instruction(value: Value) -> Result<Turn, ApiError> {
    let path = JsonPath::Root.key("systemInstruction");
    let mut content = fields(value, &path)?;
    content.take("role");
    let list = path.key("parts");
    let mut parts = Vec::new();
    for (at, value) in proto_json::list(&mut content, "parts")?.into_iter().enumerate() {
        let read = read_part::part(value, &list.item(at), |name| wire::invent_id(at, name))?;
        parts.extend(read.part);
    }
    Ok(Turn { extras: content.extras(ORIGIN), ..Turn::new(Role::System, parts) })
}

/// The calls of the history that results are matched with.
#[derive(Default)]
struct PendingCalls {
    /// The id of each call, and true once it was answered.
    calls: Vec<(String, bool)>,
    by_id: HashMap<String, usize>,
    by_name: HashMap<String, SameName>,
}

/// Calls of one name in their order. Answered ones are removed when they reach the front.
#[derive(Default)]
struct SameName {
    all: VecDeque<usize>,
    /// Calls without an id of the provider's.
    without_id: VecDeque<usize>,
}

impl PendingCalls {
    fn push(&mut self, id: &str, name: &str) {
        let at = self.calls.len();
        self.calls.push((id.to_owned(), false));
        self.by_id.entry(id.to_owned()).or_insert(at);
        let same = self.by_name.entry(name.to_owned()).or_default();
        same.all.push_back(at);
        if wire::provider_id(id).is_none() {
            same.without_id.push_back(at);
        }
    }

    /// Returns the first unanswered call with the name of a result. A result with an id answers
    /// only a call that has none.
    fn first(&mut self, result: &ToolResult) -> Option<usize> {
        let same = self.by_name.get_mut(result.name.as_deref()?)?;
        let open = if result.call_id.is_empty() { &mut same.all } else { &mut same.without_id };
        while let Some(at) = open.front().copied() {
            if self.calls.get(at).is_some_and(|(_, answered)| !answered) {
                return Some(at);
            }
            open.pop_front();
        }
        None
    }
}

fn conversation(contents: Vec<Value>, turns: &mut Vec<Turn>) -> Result<(), ApiError> {
    let root = JsonPath::Root.key("contents");
    let mut pending = PendingCalls::default();
    // Signatures of the turn before, which continues if it is the model's too.
    let mut signed: HashSet<Signature> = HashSet::new();
    for (index, value) in contents.into_iter().enumerate() {
        let path = root.item(index);
        let mut content = fields(value, &path)?;
        let role = match content.string("role")?.as_deref() {
            None | Some("user" | "function") => Role::User,
            Some("model") => Role::Assistant,
            Some(_) => return Err(content.fault("role", "must be `user` or `model`")),
        };
        let list = path.key("parts");
        let read = proto_json::list(&mut content, "parts")?;
        let extras = content.extras(ORIGIN);
        // One client keeps every chunk of a streamed reply as a separate turn, so adjacent model
        // turns are merged.
        let same = |turn: &mut Turn| role == Role::Assistant && turn.role == role;
        let bare = |turn: &mut Turn| extras.is_empty() && turn.extras.is_empty();
        let before = turns.pop_if(|turn| same(turn) && bare(turn));
        if before.is_none() {
            signed.clear();
        }
        let mut parts = before.map(|turn| turn.parts).unwrap_or_default();
        for (at, value) in read.into_iter().enumerate() {
            let invent = |name: &str| wire::invent_id((index, at), name);
            let read = read_part::part(value, &list.item(at), invent)?;
            // A call repeats the signature of the preceding thought, for clients that do not keep
            // thoughts.
            if let Some(hidden) = read.hidden
                && hidden.signature.as_ref().is_none_or(|seal| !signed.contains(seal))
            {
                signed.extend(hidden.signature.clone());
                parts.push(hidden);
            }
            if let Some(mut part) = read.part {
                track_calls(&mut part, &mut pending);
                join_foreign_thought(&mut part, &mut parts);
                signed.extend(part.signature.clone());
                parts.push(part);
            }
        }
        turns.push(Turn { extras, ..Turn::new(role, parts) });
    }
    Ok(())
}

/// Merges a thought that another provider signed. It was streamed in pieces with the signature on
/// the last one, and the signature covers the whole text.
fn join_foreign_thought(part: &mut Part, before: &mut Vec<Part>) {
    let foreign = part.signature.as_ref().is_some_and(|seal| seal.origin() != ORIGIN);
    let PartKind::Thought(thought) = &mut part.kind else { return };
    if !foreign {
        return;
    }
    let others = before
        .iter()
        .rposition(|one| one.signature.is_some() || !matches!(one.kind, PartKind::Thought(_)));
    let mut all = String::new();
    // Joined once: inserting each piece at the front would move the text every time.
    for piece in before.drain(others.map_or(0, |at| at + 1)..) {
        if let PartKind::Thought(piece) = piece.kind {
            all.push_str(&piece.text);
        }
    }
    all.push_str(&thought.text);
    thought.text = all;
}

/// Records calls, and matches results without an id to a call by name and order.
fn track_calls(part: &mut Part, pending: &mut PendingCalls) {
    let bare = part.signature.is_none();
    match &mut part.kind {
        PartKind::ToolCall(call) => {
            pending.push(&call.id, &call.name);
        }
        PartKind::ToolResult(result) => {
            match_result(result, pending);
            return;
        }
        PartKind::Thought(_) => {}
        PartKind::Text { .. }
        | PartKind::Refusal(_)
        | PartKind::Media(_)
        | PartKind::CodeExecution(_)
        | PartKind::CodeResult(_)
        | PartKind::WebSearch(_)
        | PartKind::Foreign { .. } => return,
    }
    if bare {
        part.extras.insert(ORIGIN, UNSIGNED_EXTRA, Value::Bool(true));
    }
}

fn match_result(result: &mut ToolResult, pending: &mut PendingCalls) {
    let by_id = match result.call_id.is_empty() {
        true => None,
        false => pending.by_id.get(&result.call_id).copied(),
    };
    let found = by_id.or_else(|| pending.first(result));
    if let Some((id, answered)) = found.and_then(|at| pending.calls.get_mut(at)) {
        *answered = true;
        result.call_id.clone_from(id);
    }
}

fn sampling(config: &mut ObjectReader<'_>) -> Result<SamplingOptions, ApiError> {
    let pending = config.flag("responseLogprobs")?.unwrap_or(false);
    let top = proto_json::integer(config, "logprobs")?;
    let small = |number: Option<i64>| number.and_then(|n| u32::try_from(n).ok());
    Ok(SamplingOptions {
        temperature: config.number("temperature")?,
        top_p: config.number("topP")?,
        top_k: proto_json::integer(config, "topK")?,
        presence_penalty: config.number("presencePenalty")?,
        frequency_penalty: config.number("frequencyPenalty")?,
        seed: proto_json::integer(config, "seed")?,
        stop_sequences: proto_json::strings(config, "stopSequences")?,
        max_output_tokens: proto_json::integer(config, "maxOutputTokens")?
            .and_then(|n| u64::try_from(n).ok()),
        candidates: small(proto_json::integer(config, "candidateCount")?),
        logprobs: pending.then(|| small(top).unwrap_or(0)),
    })
}

fn thinking(config: Option<Value>, extras: &mut ExtraFields) -> Result<ThinkingOptions, ApiError> {
    let Some(config) = config else { return Ok(ThinkingOptions::default()) };
    let path = JsonPath::Root.key("generationConfig");
    let path = path.key("thinkingConfig");
    let mut config = fields(config, &path)?;
    let budget = proto_json::integer(&mut config, "thinkingBudget")?;
    let level = proto_json::word(&mut config, "thinkingLevel")?;
    let show = config.flag("includeThoughts")?;
    proto_json::keep(extras, "generationConfig.thinkingConfig", config);
    Ok(ThinkingOptions {
        level: level.as_deref().and_then(wire::read_level),
        budget: budget.and_then(|n| u64::try_from(n).ok()),
        dynamic: budget.is_some_and(|n| n < 0),
        display: show
            .map(|show| if show { ThinkingDisplay::Auto } else { ThinkingDisplay::Hidden }),
    })
}

fn format(
    config: &mut ObjectReader<'_>,
    extras: &mut ExtraFields,
) -> Result<ResponseFormat, ApiError> {
    let mime = config.string("responseMimeType")?;
    let own = config.take("responseSchema");
    let mut shape =
        config.take("responseJsonSchema").map(JsonSchema::new).or(own.map(schema::read));
    match mime.as_deref() {
        None | Some("application/json" | "text/plain") => {}
        Some(enum_text::MIME) => {
            extras.insert(ORIGIN, ENUM_EXTRA, Value::Bool(true));
            shape = shape.map(enum_text::wrap);
        }
        Some(mime) => {
            extras.insert(ORIGIN, "generationConfig.responseMimeType", Value::from(mime));
        }
    }
    Ok(match (shape, mime.as_deref()) {
        (Some(schema), _) => {
            ResponseFormat::Schema { name: None, description: None, schema, strict: None }
        }
        (None, Some("application/json")) => ResponseFormat::Json,
        (None, _) => ResponseFormat::Text,
    })
}
