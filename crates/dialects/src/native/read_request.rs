//! Reads a native request into canon.

use canon::{
    Canvas, Extras, Fault, Format, Hints, Kind, Part, Role, Sampling, Schema, Show, State,
    Thinking, ToolResult, Turn,
};
use serde_json::{Map, Value};

use super::names::{JSON_ARRAY_EXTRA, ORIGIN, UNSIGNED_EXTRA};
use super::proto_json::{self, fields};
use super::{read_part, read_tools, schema, wire};
use crate::fields::{Fields, Path};
use crate::{Target, json};

/// Reads a request. `rules` has checked it before; only types are checked here.
pub(super) fn read(target: &Target, body: &[u8]) -> Result<canon::Chat, Fault> {
    let text = json::text(body)?;
    let value: Value = serde_json::from_str(text)
        .map_err(|e| Fault::invalid("", format!("the body is not valid JSON: {e}")))?;
    let mut root = match value {
        Value::Object(_) => fields(value, &Path::Root)?,
        _ => return Err(Fault::invalid("", "the body must be a JSON object")),
    };
    // The path names the model; a model in the body is ignored.
    let named = root.take("model").and_then(|name| name.as_str().map(str::to_owned));
    let model = target.model.clone().or(named).unwrap_or_default();

    let mut extras = Extras::none();
    let mut turns = Vec::new();
    if let Some(value) = root.take("systemInstruction") {
        turns.push(instruction(value)?);
    }
    conversation(proto_json::list(&mut root, "contents")?, &mut turns)?;
    let tools = read_tools::tools(proto_json::list(&mut root, "tools")?)?;
    let choice = read_tools::choice(root.take("toolConfig"), &mut extras)?;
    let config = root.take("generationConfig").unwrap_or_else(|| Value::Object(Map::new()));
    let path = Path::Root.key("generationConfig");
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
    for (name, value) in root.rest() {
        extras.put(ORIGIN, &name, value);
    }
    if target.stream && target.array {
        extras.put(ORIGIN, JSON_ARRAY_EXTRA, Value::from("json"));
    }
    Ok(canon::Chat {
        model,
        turns,
        tools,
        choice,
        sampling,
        thinking,
        format,
        modalities,
        canvas,
        stream: target.stream,
        state: State::default(),
        hints: Hints { tier, ..Hints::default() },
        extras,
    })
}

/// Reads the image shape. Other fields of `imageConfig` stay in the extras.
fn canvas(config: &mut Fields<'_>) -> Result<Canvas, Fault> {
    let Some(value) = config.take("imageConfig") else { return Ok(Canvas::default()) };
    let path = Path::Root.key("generationConfig");
    let path = path.key("imageConfig");
    let mut inner = fields(value, &path)?;
    let canvas = Canvas { ratio: inner.string("aspectRatio")?, size: inner.string("imageSize")? };
    let rest = inner.rest();
    if !rest.is_empty() {
        config.leave("imageConfig", Value::Object(rest));
    }
    Ok(canvas)
}

/// Reads the system instruction. Its role is ignored.
fn instruction(value: Value) -> Result<Turn, Fault> {
    let path = Path::Root.key("systemInstruction");
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

/// A call of the history that waits for its result.
struct PendingCall {
    id: String,
    name: String,
    answered: bool,
}

fn conversation(contents: Vec<Value>, turns: &mut Vec<Turn>) -> Result<(), Fault> {
    let root = Path::Root.key("contents");
    let mut pending: Vec<PendingCall> = Vec::new();
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
        let mut parts = before.map(|turn| turn.parts).unwrap_or_default();
        for (at, value) in read.into_iter().enumerate() {
            let invent = |name: &str| wire::invent_id((index, at), name);
            let read = read_part::part(value, &list.item(at), invent)?;
            // A call repeats the signature of the preceding thought, for clients that do not keep
            // thoughts.
            if let Some(hidden) = read.hidden
                && !parts.iter().any(|part| part.seal == hidden.seal)
            {
                parts.push(hidden);
            }
            if let Some(mut part) = read.part {
                track_calls(&mut part, &mut pending);
                join_foreign_thought(&mut part, &mut parts);
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
    let foreign = part.seal.as_ref().is_some_and(|seal| seal.origin() != ORIGIN);
    let Kind::Thought(thought) = &mut part.kind else { return };
    while foreign
        && let Some(Part { kind: Kind::Thought(piece), .. }) =
            before.pop_if(|one| one.seal.is_none() && matches!(one.kind, Kind::Thought(_)))
    {
        thought.text.insert_str(0, &piece.text);
    }
}

/// Records calls, and matches results without an id to a call by name and order.
fn track_calls(part: &mut Part, pending: &mut Vec<PendingCall>) {
    let bare = part.seal.is_none();
    match &mut part.kind {
        Kind::ToolCall(call) => {
            pending.push(PendingCall {
                id: call.id.clone(),
                name: call.name.clone(),
                answered: false,
            });
        }
        Kind::ToolResult(result) => {
            match_result(result, pending);
            return;
        }
        Kind::Thought(_) => {}
        Kind::Text { .. }
        | Kind::Refusal(_)
        | Kind::Media(_)
        | Kind::Code(_)
        | Kind::CodeOutcome(_)
        | Kind::Search(_)
        | Kind::Foreign { .. } => return,
    }
    if bare {
        part.extras.put(ORIGIN, UNSIGNED_EXTRA, Value::Bool(true));
    }
}

fn match_result(result: &mut ToolResult, pending: &mut [PendingCall]) {
    let by_id = pending.iter().position(|call| !result.call.is_empty() && call.id == result.call);
    let by_name = || {
        pending.iter().position(|call| {
            !call.answered
                && wire::provider_id(&call.id).is_none_or(|_| result.call.is_empty())
                && Some(call.name.as_str()) == result.name.as_deref()
        })
    };
    if let Some(call) = by_id.or_else(by_name).and_then(|at| pending.get_mut(at)) {
        call.answered = true;
        result.call.clone_from(&call.id);
    }
}

fn sampling(config: &mut Fields<'_>) -> Result<Sampling, Fault> {
    let pending = config.flag("responseLogprobs")?.unwrap_or(false);
    let top = proto_json::integer(config, "logprobs")?;
    let small = |number: Option<i64>| number.and_then(|n| u32::try_from(n).ok());
    Ok(Sampling {
        temperature: config.number("temperature")?,
        top_p: config.number("topP")?,
        top_k: proto_json::integer(config, "topK")?,
        presence_penalty: config.number("presencePenalty")?,
        frequency_penalty: config.number("frequencyPenalty")?,
        seed: proto_json::integer(config, "seed")?,
        stop: proto_json::strings(config, "stopSequences")?,
        max_output: proto_json::integer(config, "maxOutputTokens")?
            .and_then(|n| u64::try_from(n).ok()),
        candidates: small(proto_json::integer(config, "candidateCount")?),
        logprobs: pending.then(|| small(top).unwrap_or(0)),
    })
}

fn thinking(config: Option<Value>, extras: &mut Extras) -> Result<Thinking, Fault> {
    let Some(config) = config else { return Ok(Thinking::default()) };
    let path = Path::Root.key("generationConfig");
    let path = path.key("thinkingConfig");
    let mut config = fields(config, &path)?;
    let budget = proto_json::integer(&mut config, "thinkingBudget")?;
    let level = proto_json::word(&mut config, "thinkingLevel")?;
    let show = config.flag("includeThoughts")?;
    proto_json::keep(extras, "generationConfig.thinkingConfig", config);
    Ok(Thinking {
        level: level.as_deref().and_then(wire::read_level),
        budget: budget.and_then(|n| u64::try_from(n).ok()),
        dynamic: budget.is_some_and(|n| n < 0),
        show: show.map(|show| if show { Show::Auto } else { Show::Hidden }),
    })
}

fn format(config: &mut Fields<'_>, extras: &mut Extras) -> Result<Format, Fault> {
    let mime = config.string("responseMimeType")?;
    let own = config.take("responseSchema");
    let shape = config.take("responseJsonSchema").map(Schema::new).or(own.map(schema::read));
    // `text/x.enum` asks for one bare value of an enum; no other format knows this type.
    if let Some(mime) = &mime
        && !matches!(mime.as_str(), "application/json" | "text/plain")
    {
        extras.put(ORIGIN, "generationConfig.responseMimeType", Value::from(mime.as_str()));
    }
    Ok(match (shape, mime.as_deref()) {
        (Some(schema), _) => Format::Schema { name: None, description: None, schema, strict: None },
        (None, Some("application/json")) => Format::Json,
        (None, _) => Format::Text,
    })
}
