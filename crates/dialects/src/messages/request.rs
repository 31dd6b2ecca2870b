//! Description of a messages request.
//!
//! See <https://docs.anthropic.com/en/api/messages>. Fields and tools that are not described here are
//! kept as they were sent: the provider knows more than this version.

use serde_json::value::RawValue;

use super::content::{MessagesBlock, MessagesTurn};
use super::own::thinking::MIN_BUDGET_TOKENS;
use super::own::tool_names::{self, MAX_NAME_BYTES};
use crate::checks::model_name;
use crate::openai_values::SearchLocation;
use crate::text::BorrowedText;
use crate::wire_object::wire_object;
use crate::wire_rule::{
    FieldProblem, RuleResult, between, ensure, ensure_at, max_bytes, one_of, require,
};
use crate::wire_value::{
    BoundedList, LooseText, LooseValue, OpaqueObject, PlacedValue, TextOrList,
};

const MAX_MESSAGES: usize = 100_000;
const MAX_TOOLS: usize = 999;
const MAX_SYSTEM_BLOCKS: usize = 1_000;
const MAX_OUTPUT_TOKENS: u64 = 1 << 30;

wire_object! {
    /// The body.
    pub(super) struct MessagesRequestView<'a>("a JSON object") {
        model required: PlacedValue<'a, BorrowedText<'a>> => Model where model_name,
        max_tokens: PlacedValue<'a, u64> => MaxOutputTokens where output_limit,
        system: MessagesSystem<'a> => Conversation where only_text,
        messages required: BoundedList<MessagesTurn<'a>, MAX_MESSAGES> => Conversation,
        stream: bool = Stream,
        temperature: f64 = Temperature where between(0.0, 1.0),
        top_p: f64 = TopP where between(0.0, 1.0),
        top_k: i64 = TopK where between(0, i64::MAX),
        stop_sequences: Vec<BorrowedText<'a>> => StopSequences where no_empty_text,
        tools: BoundedList<MessagesTool<'a>, MAX_TOOLS> => Tools,
        tool_choice: MessagesToolChoice<'a> => ToolChoice(MessagesToolChoice),
        output_config: MessagesOutputConfig<'a> => Inside(MessagesOutputConfig),
        thinking: PlacedValue<'a, MessagesThinkingOptions<'a>> => Thinking(MessagesThinkingOptions),
        /// The form of `output_config.format` before its release.
        output_format: MessagesOutputFormat<'a> => ResponseFormat,
        metadata: MessagesMetadata<'a> => Metadata(MessagesMetadata),
        service_tier: BorrowedText<'a> => ServiceTier,
        speed kept: LooseText<'a> => ServiceTier,
        thread: &'a RawValue,
    }

    /// A tool: a function, or a tool of the provider with a dated type.
    pub(super) struct MessagesTool<'a>("a tool object") {
        kind "type" kept: BorrowedText<'a>,
        name kept: BorrowedText<'a>,
        description: BorrowedText<'a>,
        input_schema: OpaqueObject<'a>,
        strict kept: bool,
        defer_loading kept: bool,
        max_uses kept: LooseValue<u64>,
        user_location kept: SearchLocation<'a>,
        allowed_domains kept: Vec<BorrowedText<'a>>,
        blocked_domains kept: Vec<BorrowedText<'a>>,
    }
    check MessagesTool::check;

    pub(super) struct MessagesToolChoice<'a>("an object with a `type`") {
        kind "type" required: BorrowedText<'a> where one_of(&["auto", "any", "tool", "none"]),
        name: BorrowedText<'a>,
        disable_parallel_tool_use: bool => ParallelToolCalls,
    }
    check |choice| {
        require("name", choice.kind.as_deref() != Some("tool") || choice.name.is_some())
    };

    pub(super) struct MessagesThinkingOptions<'a>("an object with a `type`") {
        kind "type" required: BorrowedText<'a>,
        budget_tokens: PlacedValue<'a, u64> => Thinking,
        display: BorrowedText<'a>,
    }
    check MessagesThinkingOptions::check;

    pub(super) struct MessagesOutputConfig<'a>("an object") {
        effort: BorrowedText<'a> => Thinking,
        format: MessagesOutputFormat<'a> => ResponseFormat(MessagesOutputFormat),
    }

    pub(super) struct MessagesOutputFormat<'a>("an object with a `type`") {
        kind "type": BorrowedText<'a>,
        schema: OpaqueObject<'a> => ResponseSchema,
    }
    check |format| {
        let is_schema = format.kind.as_deref() == Some("json_schema");
        ensure_at(!is_schema || format.schema.is_some(), "schema", "must be an object")
    };

    pub(super) struct MessagesMetadata<'a>("an object") {
        user_id: BorrowedText<'a> => User where max_bytes(4_096),
    }
}

impl MessagesRequestView<'_> {
    /// Returns true if the caller asks for the fast tier.
    pub(super) fn is_fast(&self) -> bool {
        self.speed.as_ref().is_some_and(|speed| speed.0 == "fast")
    }
}

impl MessagesTool<'_> {
    /// Returns true if the caller runs the tool.
    pub(super) fn is_function(&self) -> bool {
        matches!(self.kind.as_deref(), None | Some("custom"))
    }

    fn check(&self) -> RuleResult {
        let is_name = |name: &str| {
            (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(tool_names::is_plain)
        };
        let (field, why) = match (self.name.as_deref(), self.input_schema) {
            _ if !self.is_function() => return Ok(()),
            (None, _) => ("name", "is required"),
            (Some(name), _) if !is_name(name) => {
                ("name", "must have 1 to 128 letters, digits, underscores or dashes")
            }
            (Some(_), None) => ("input_schema", "must be an object"),
            (Some(_), Some(_)) => return Ok(()),
        };
        Err(FieldProblem::new(field, why))
    }
}

impl MessagesThinkingOptions<'_> {
    fn check(&self) -> RuleResult {
        let is_enabled = self.kind.as_deref() == Some("enabled");
        let budget = self.budget_tokens.as_ref().map(|budget| budget.value);
        require("budget_tokens", !is_enabled || budget.is_some())?;
        let is_enough = !is_enabled || budget >= Some(MIN_BUDGET_TOKENS);
        ensure_at(is_enough, "budget_tokens", "must be a whole number of at least 1024")
    }
}

/// Zero is allowed: it only warms the prompt cache.
fn output_limit(limit: &PlacedValue<'_, u64>) -> RuleResult {
    ensure(limit.value <= MAX_OUTPUT_TOKENS, "must be a whole number of at least 1")
}

type MessagesSystem<'a> = TextOrList<'a, MessagesBlock<'a>, MAX_SYSTEM_BLOCKS>;

fn only_text(system: &MessagesSystem<'_>) -> RuleResult {
    let TextOrList::List(blocks) = system else { return Ok(()) };
    match blocks.iter().position(|block| !matches!(block, MessagesBlock::Text(_))) {
        Some(at) => Err(FieldProblem::new(format!("[{at}]"), "must be a text block")),
        None => Ok(()),
    }
}

fn no_empty_text(texts: &Vec<BorrowedText<'_>>) -> RuleResult {
    ensure(!texts.iter().any(|text| text.is_empty()), "must not hold an empty string")
}
