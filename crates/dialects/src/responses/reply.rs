//! Description of a response and of the events of a stream. `content` describes their items.
//!
//! Events are described as one object, because their fields have one meaning in all types. A whole
//! response is read as the last event of a stream.
//!
//! See <https://platform.openai.com/docs/api-reference/responses/object> and
//! <https://platform.openai.com/docs/api-reference/responses-streaming>.

use canon::{ApiError, Finish, FinishReason, RawReason, ServiceTier, TOOL_IMAGE_TOKENS, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashSet;

use super::content::ResponsesItem;
use super::fault;
use super::names::ORIGIN;
use super::request::ResponsesRequestView;
use super::usage::{ResponsesToolUsage, ResponsesUsage};
use crate::json;
use crate::service_tier::{self, TIER_FIELD};
use crate::text::BorrowedText;
use crate::wire_object::{raw_value, wire_object};
use crate::wire_value::{AnyValue, LooseText, LooseValue};
use crate::word_search::Needles;

wire_object! {
    /// A response. Fields of the request and some others are repeated. Its items are parsed one by
    /// one, because at the end of a stream they are known.
    pub(super) struct ResponsesReplyView<'a>("a response object") {
        id: BorrowedText<'a>,
        object: AnyValue,
        created_at: LooseValue<f64>,
        completed_at: AnyValue,
        model: BorrowedText<'a>,
        status: BorrowedText<'a>,
        error: &'a RawValue,
        incomplete_details: ResponsesIncomplete<'a>,
        output: &'a RawValue,
        output_text: AnyValue,
        usage: LooseValue<ResponsesUsage<'a>>,
        tool_usage: LooseValue<ResponsesToolUsage<'a>>,
        service_tier: LooseText<'a>,
        billing: AnyValue,
        frequency_penalty: AnyValue,
        image: AnyValue,
        presence_penalty: AnyValue,
        prompt_cache_options: AnyValue,
        prompt_cache_retention: AnyValue,
    }

    pub(super) struct ResponsesIncomplete<'a>("an object") {
        reason: LooseText<'a>,
    }

    /// An event of any type. Values of unknown types may be anything, so they are parsed when the
    /// type is known.
    pub(super) struct ResponsesEventView<'a>("an event object") {
        kind "type": BorrowedText<'a>,
        sequence_number: AnyValue,
        response: &'a RawValue,
        item: &'a RawValue,
        item_id: BorrowedText<'a>,
        output_index: u32,
        content_index: u32,
        summary_index: u32,
        delta: &'a RawValue,
        annotation: &'a RawValue,
        logprobs: &'a RawValue,
        obfuscation: AnyValue,
    }
}

/// Items of tools that a provider runs.
static TOOL_ITEMS: Needles = Needles::new(&[
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
]);

impl<'a> ResponsesEventView<'a> {
    /// Returns the text this event adds.
    pub(super) fn text(&self) -> Cow<'a, str> {
        parse_raw(self.delta).map(|BorrowedText(text)| text).unwrap_or_default()
    }
}

/// Parses a value of an event, if it is there and of that type.
pub(super) fn parse_raw<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    json::read(raw?.get()).ok()
}

impl<'a> ResponsesReplyView<'a> {
    /// Parses a response.
    pub(super) fn parse(response: Option<&'a RawValue>) -> Result<Self, ApiError> {
        let response = response.ok_or_else(|| fault::unreadable("there is no `response`"))?;
        json::read(response.get()).map_err(fault::unreadable)
    }

    /// Returns the error of a failed response.
    pub(super) fn failure(&self) -> ApiError {
        fault::read(&self.error.map(raw_value).unwrap_or_default())
    }

    /// Returns the items.
    pub(super) fn items(&self) -> Result<Vec<&'a RawValue>, ApiError> {
        let output = self.output.ok_or_else(|| fault::unreadable("there is no `output`"))?;
        json::read(output.get()).map_err(fault::unreadable)
    }

    /// Returns the time in seconds.
    #[expect(clippy::cast_possible_truncation, reason = "seconds, at times with a fraction")]
    pub(super) fn created(&self) -> Option<i64> {
        self.created_at.as_ref().and_then(|at| at.0).map(|at| at as i64)
    }

    /// Returns the fields that neither the request nor another format has.
    pub(super) fn extras(&self) -> Map<String, Value> {
        let is_repeated = |name: &str| ResponsesRequestView::FIELDS.iter().any(|f| f.name == name);
        let mut extras = self.rest.to_map_without(is_repeated);
        if let Some(LooseText(word)) = &self.service_tier {
            extras.insert(TIER_FIELD.to_owned(), Value::from(&**word));
        }
        extras
    }

    /// Returns the service tier.
    pub(super) fn tier(&self) -> Option<ServiceTier> {
        self.service_tier.as_ref().map(|word| service_tier::read_tier(ORIGIN, &word.0))
    }

    /// Returns the token counts. Uses of tools are those the provider counted, or else those in the
    /// output.
    pub(super) fn usage(&self) -> Option<Usage> {
        let tools = self.tool_usage.as_ref().and_then(|tools| tools.0.as_ref());
        let searches = tools.and_then(|tools| tools.web_search.as_ref()?.num_requests);
        let image_tokens = tools.and_then(|tools| tools.image_gen.as_ref()?.output_tokens);
        let told = self.usage.as_ref()?.0.as_ref()?.to_canon();
        let seen = self.tool_items();
        let mut usage = told.merged(seen);
        usage.searches = searches.unwrap_or(usage.searches);
        usage.tools.image_tokens = image_tokens.unwrap_or(usage.tools.image_tokens);
        Some(usage)
    }

    /// Returns the uses of tools in the output.
    fn tool_items(&self) -> Usage {
        let output = self.output.map(RawValue::get).unwrap_or_default();
        let mut seen = Usage::default();
        if !TOOL_ITEMS.is_in(output.as_bytes()) {
            return seen;
        }
        let items: Vec<ResponsesItem<'_>> = parse_raw(self.output).unwrap_or_default();
        let mut containers = HashSet::new();
        for item in &items {
            match item {
                ResponsesItem::Search(_) => seen.searches += 1,
                ResponsesItem::Image(_) => seen.tools.image_tokens += TOOL_IMAGE_TOKENS,
                // A container is billed, however often code runs in it.
                ResponsesItem::Code(code) => {
                    containers.insert(code.rest.text("container_id"));
                }
                ResponsesItem::Unknown(fields) => {
                    let is_search = fields.text("type").as_deref() == Some("file_search_call");
                    seen.tools.file_searches += u64::from(is_search);
                }
                _ => {}
            }
        }
        seen.tools.code_runs = containers.len() as u64;
        seen
    }

    /// Returns true if the response has ended with an answer.
    pub(super) fn is_finished(&self) -> bool {
        matches!(self.status.as_deref(), None | Some("completed" | "incomplete"))
    }

    /// Returns the finish reason; `None` if the response has not ended. This format has no word for
    /// an end with calls.
    pub(super) fn finish(&self, has_calls: bool) -> Result<Option<Finish>, ApiError> {
        let reason = self.incomplete_details.as_ref().and_then(|details| details.reason.as_ref());
        let word = match self.status.as_deref() {
            None | Some("completed") => Cow::Borrowed("completed"),
            Some("incomplete") => reason.map_or(Cow::Borrowed("incomplete"), |r| r.0.clone()),
            Some("in_progress" | "queued") => return Ok(None),
            Some("failed") => return Err(self.failure()),
            Some("cancelled") => Cow::Borrowed("cancelled"),
            // The prefix keeps an unknown status apart from the reasons above.
            Some(other) => Cow::Owned(format!("status:{other}")),
        };
        let mut finish =
            Finish::new(crate::endings::read(ORIGIN, &word), RawReason::new(ORIGIN, word));
        if has_calls && finish.reason == FinishReason::Stop {
            finish.reason = FinishReason::ToolCalls;
        }
        Ok(Some(finish))
    }
}
