//! Reads a whole response into canon.

use canon::{
    ApiError, ChatReply, ExtraFields, Finish, FinishReason, Part, PartKind, RawReason,
    ReplyCandidate, Usage,
};
use serde_json::Value;

use super::names::ORIGIN;
use super::read_items::{ItemReader, ResponseItem};
use super::signatures::ItemSender;
use super::{fault, wire};
use crate::endings;
use crate::fields::{JsonPath, ObjectReader};

/// Fields that repeat the request, or that are read elsewhere.
const ECHOED_FIELDS: [&str; 36] = [
    "object",
    "background",
    "billing",
    "completed_at",
    "conversation",
    "created_at",
    "frequency_penalty",
    "id",
    "image",
    "incomplete_details",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "output_text",
    "parallel_tool_calls",
    "presence_penalty",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "status",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tool_usage",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];

/// Reads a response. A failed response becomes its error.
pub(super) fn read(body: &[u8]) -> Result<ChatReply, ApiError> {
    let value: Value =
        serde_json::from_slice(body).map_err(|e| fault::unreadable(&e.to_string()))?;
    let whole = ResponseFields::read(value)?;
    let mut items = ItemReader::new(ItemSender::Provider);
    let mut parts = Vec::new();
    for item in whole.output {
        let item =
            items.read(item, &JsonPath::Root).map_err(|e| fault::unreadable(&e.to_string()))?;
        parts.extend(parts_of(item));
    }
    let calls = parts.iter().any(|part| matches!(part.kind, PartKind::ToolCall(_)));
    let candidate = ReplyCandidate {
        index: 0,
        parts,
        finish: whole.finish.map(|finish| with_tool_calls(finish, calls)),
        logprobs: items.logprobs,
        extras: ExtraFields::new(),
    };
    Ok(ChatReply {
        id: whole.id,
        model: whole.model,
        created: whole.created,
        candidates: vec![candidate],
        usage: whole.usage,
        extras: whole.extras,
    })
}

/// Fields of a response, with its items unread.
#[derive(Debug)]
pub(super) struct ResponseFields {
    pub(super) id: Option<String>,
    pub(super) model: Option<String>,
    pub(super) created: Option<i64>,
    pub(super) output: Vec<Value>,
    pub(super) finish: Option<Finish>,
    pub(super) usage: Option<Usage>,
    pub(super) extras: ExtraFields,
}

impl ResponseFields {
    /// Reads the fields of a response.
    pub(super) fn read(value: Value) -> Result<Self, ApiError> {
        let mut fields = ObjectReader::new(value, &JsonPath::Root)
            .map_err(|e| fault::unreadable(e.message()))?;
        if let Some(error) = fields.take("error") {
            return Err(fault::read(&error));
        }
        let read = |fields: &mut ObjectReader<'_>| -> Result<Self, ApiError> {
            let output = fields.list("output")?;
            let output = output.ok_or_else(|| fault::unreadable("there is no `output`"))?;
            let status = fields.string("status")?;
            let reason = fields.object("incomplete_details")?.and_then(|details| {
                details.get("reason").and_then(Value::as_str).map(str::to_owned)
            });
            let tools =
                fields.take("tool_usage").and_then(|tools| serde_json::from_value(tools).ok());
            let searched = output
                .iter()
                .filter(|item| item.get("type").and_then(Value::as_str) == Some("web_search_call"))
                .count();
            let usage = fields
                .take("usage")
                .and_then(|counts| serde_json::from_value::<wire::ResponsesUsage>(counts).ok())
                .map(|counts| counts.into_canon(tools, searched as u64));
            #[expect(
                clippy::cast_possible_truncation,
                reason = "seconds, at times with a fraction"
            )]
            let created = fields.take("created_at").and_then(|at| at.as_f64()).map(|at| at as i64);
            Ok(Self {
                id: fields.string("id")?,
                model: fields.string("model")?,
                created,
                output,
                finish: read_finish(status.as_deref(), reason)?,
                usage,
                extras: ExtraFields::new(),
            })
        };
        let mut whole = read(&mut fields).map_err(|e| {
            if e.log_note().is_some() { e } else { fault::unreadable(&e.to_string()) }
        })?;
        let mut rest = fields.remaining();
        rest.retain(|name, value| {
            let usual = name == "service_tier" && (value == "default" || value == "auto");
            !usual && !ECHOED_FIELDS.contains(&name.as_str())
        });
        whole.extras = ExtraFields::from_fields(ORIGIN, rest);
        Ok(whole)
    }
}

/// Returns the finish reason. `None` if the response has not ended.
fn read_finish(status: Option<&str>, reason: Option<String>) -> Result<Option<Finish>, ApiError> {
    let word = match status {
        None | Some("completed") => "completed".to_owned(),
        Some("incomplete") => reason.unwrap_or_else(|| "incomplete".to_owned()),
        Some("in_progress" | "queued") => return Ok(None),
        Some("failed") => return Err(fault::read(&Value::Null)),
        Some("cancelled") => "cancelled".to_owned(),
        // The prefix keeps an unknown status apart from the reasons above.
        Some(other) => format!("status:{other}"),
    };
    Ok(Some(Finish::new(endings::read(ORIGIN, &word), RawReason::new(ORIGIN, word))))
}

/// Sets the finish reason for a response with tool calls. This format has no word for it.
pub(super) fn with_tool_calls(mut finish: Finish, calls: bool) -> Finish {
    if calls && finish.reason == FinishReason::Stop {
        finish.reason = FinishReason::ToolCalls;
    }
    finish
}

/// Returns the parts of a response item.
pub(super) fn parts_of(item: ResponseItem) -> Vec<Part> {
    match item {
        ResponseItem::AssistantMessage(parts) | ResponseItem::ModelItem(parts) => parts,
        ResponseItem::CallerItem(part) => vec![part],
        ResponseItem::Turn(turn) => turn.parts,
        // Envelopes are not opened in a provider's response.
        ResponseItem::CallSignature(..)
        | ResponseItem::NextSignature(_)
        | ResponseItem::PreviousSignature(_)
        | ResponseItem::CodeSignature(_) => Vec::new(),
    }
}
