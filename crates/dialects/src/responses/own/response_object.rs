//! The response object, which repeats most fields of its request.
//!
//! See <https://platform.openai.com/docs/api-reference/responses/object>.

use canon::{ApiError, ChatRequest, ErrorKind, Finish, Losses, Usage};
use serde_json::Value;

use crate::ReplyStamp;
use crate::endings::{self, WrittenEnding};
use crate::fields::{ObjectWriter, number};
use crate::responses::names::ORIGIN;
use crate::responses::usage::write_usage;
use crate::responses::{write_request, write_tools};
use crate::service_tier::write_request_tier;

/// Fields of a response object that do not change during the response.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseEcho {
    fields: ObjectWriter,
}

impl ResponseEcho {
    /// Creates the echo of a request with the id of its response.
    pub(crate) fn from_request(chat: &ChatRequest, stamp: &ReplyStamp) -> Self {
        let ChatRequest { turns, tools, tool_choice: choice, sampling, .. } = chat;
        let ChatRequest { state, hints, extras, .. } = chat;
        // Losses are ignored: what this format cannot express was not in a request of this format.
        let mut losses = Losses::new();
        let tool_list = write_tools::write(tools, &mut losses).tools.into_iter();
        let tool_list: Vec<Value> = tool_list.map(write_tools::echo_tool).collect();
        let kept = |name: &str| extras.get(ORIGIN, name).cloned();
        let tool_choice = kept("tool_choice").or_else(|| write_tools::write_choice(choice, tools));
        let reasoning = write_request::write_thinking(chat.thinking.effective_level(), chat)
            .with_default("effort", Value::Null)
            .with_default("summary", Value::Null);
        let text_config =
            write_request::write_text(chat).with_default("format", ObjectWriter::typed("text"));
        let tier = write_request_tier(hints.service_tier.as_ref(), ORIGIN, &mut losses);
        let tier = tier.filter(|word| *word != "auto");
        let fields = ObjectWriter::new()
            .set("id", format!("resp_{}", stamp.id))
            .set("object", "response")
            .set("created_at", stamp.created)
            .set("background", state.background.unwrap_or(false))
            .set_some("conversation", state.conversation.as_deref().map(named_object))
            .set("instructions", turns.first().and_then(write_request::instructions_of))
            .set("max_output_tokens", sampling.max_output_tokens)
            .set("max_tool_calls", kept("max_tool_calls").unwrap_or_default())
            .set("model", chat.model.as_str())
            .set("parallel_tool_calls", choice.parallel.unwrap_or(true))
            .set("previous_response_id", state.previous_response.as_deref())
            .set_some("prompt", kept("prompt"))
            .set("prompt_cache_key", hints.cache_key.as_deref())
            .set("prompt_cache_retention", kept("prompt_cache_retention").unwrap_or_default())
            .set("reasoning", reasoning)
            .set("safety_identifier", hints.user.as_deref())
            .set("service_tier", tier.unwrap_or("default"))
            .set("store", state.store.unwrap_or(true))
            .set("temperature", number(sampling.temperature.unwrap_or(1.0)))
            .set("text", text_config)
            .set("tool_choice", tool_choice.unwrap_or_else(|| "auto".into()))
            .set("tools", tool_list)
            .set("top_logprobs", sampling.logprobs.unwrap_or(0))
            .set("top_p", number(sampling.top_p.unwrap_or(1.0)))
            .set("truncation", kept("truncation").unwrap_or_else(|| "disabled".into()))
            .set("user", hints.user.as_deref())
            .set("metadata", hints.metadata.clone());
        Self { fields }
    }

    /// Creates a response object for a stream that failed before its response was known.
    pub(crate) fn without_request(request_id: &str) -> Self {
        let id = request_id.trim_start_matches("req_").to_owned();
        Self::from_request(&ChatRequest::default(), &ReplyStamp { id, created: 0 })
    }

    /// Sets a field that only the provider's response has.
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        self.fields = std::mem::take(&mut self.fields).set_any(name, value);
    }

    /// Returns the response object in a state.
    pub(crate) fn into_state(self, end: ResponseEnd) -> ObjectWriter {
        let details = end.reason.map(|reason| ObjectWriter::new().set("reason", reason));
        self.fields
            .set("status", end.status)
            .set("completed_at", end.completed)
            .set("error", end.error)
            .set("incomplete_details", details)
            .set("output", end.output)
            .set("usage", end.usage.as_ref().map(write_usage))
    }
}

/// End of a response: its status, and the reason if it is incomplete.
#[derive(Debug, Default)]
pub(crate) struct ResponseEnd {
    pub(crate) status: &'static str,
    pub(crate) reason: Option<String>,
    pub(crate) error: Option<Value>,
    /// True if the last item is incomplete.
    pub(crate) cut: bool,
    /// The items so far.
    pub(crate) output: Vec<ObjectWriter>,
    pub(crate) usage: Option<Usage>,
    /// Time of the end.
    pub(crate) completed: Option<i64>,
}

impl ResponseEnd {
    pub(crate) fn new(finish: Option<&Finish>, losses: &mut Losses) -> Self {
        let ended = |status, cut| Self { status, cut, ..Self::default() };
        let incomplete =
            |reason: &str| Self { reason: Some(reason.to_owned()), ..ended("incomplete", true) };
        let Some(Finish { reason: why, raw, stop_sequence: _ }) = finish else {
            return ended("incomplete", true);
        };
        // A blocked prompt is reported as filtered: clients retry a response that "failed".
        match (raw.for_format(ORIGIN), endings::write(ORIGIN, *why)) {
            (Some("cancelled"), _) => ended("cancelled", false),
            (_, WrittenEnding::Failed) => {
                let message = "the model's turn failed, please retry";
                let error = ObjectWriter::new().set("code", "server_error").set("message", message);
                Self { error: Some(error.into()), ..ended("failed", false) }
            }
            (_, WrittenEnding::Word("completed")) => ended("completed", false),
            (Some("incomplete"), _) => ended("incomplete", true),
            (Some(own), _) if !own.starts_with("status:") => incomplete(own),
            (None | Some(_), WrittenEnding::Word(_) | WrittenEnding::Truncated(_)) => {
                incomplete(endings::write_or_truncated(ORIGIN, *why, losses))
            }
        }
    }
}

/// The request names a conversation by id or object; the response always has an object.
fn named_object(id: &str) -> ObjectWriter {
    ObjectWriter::new().set("id", id)
}

/// Writes the `error` of a failed response. SDKs of this format act on these codes.
pub(crate) fn write_error(fault: &ApiError, status: u16) -> Value {
    let code = match (fault.kind(), status) {
        (ErrorKind::RateLimited, _) => "rate_limit_exceeded",
        (ErrorKind::QuotaExceeded, _) => "insufficient_quota",
        (ErrorKind::ContextTooLong, _) => "context_length_exceeded",
        (_, 400..500) => "invalid_prompt",
        (_, _) => "server_error",
    };
    ObjectWriter::new().set("code", code).set("message", fault.message()).into()
}
