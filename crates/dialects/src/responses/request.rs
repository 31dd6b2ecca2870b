//! Description of a responses request. `content` describes the items of its conversation.
//!
//! See <https://platform.openai.com/docs/api-reference/responses/create>. Unknown fields, items and
//! tools are left to the provider.

use super::content::ResponsesItem;
use super::names::MIN_OUTPUT_TOKENS;
use super::own::tool_names::flat_name;
use crate::checks::{self, model_name, output_limit};
use crate::openai_values::{CustomTool, SearchLocation};
use crate::text::BorrowedText;
use crate::wire_object::{wire_object, wire_union};
use crate::wire_rule::{
    FieldProblem, RuleResult, between, each_one_of, ensure, max_bytes, not_empty, one_of, require,
};
use crate::wire_value::{
    BoundedList, MAX_LIST_ITEMS, OpaqueObject, PlacedValue, TextOrList, TextOrObject,
};

const MAX_ITEMS: usize = 10_000;
const MAX_INCLUDES: usize = 32;
const MAX_TOOL_CALLS: i64 = 1_000;
const MAX_NAME_BYTES: usize = 4_096;

/// Value of `include` that asks for the probabilities of tokens.
pub(super) const LOGPROBS_INCLUDE: &str = "message.output_text.logprobs";
/// Allowed values of `include`.
const INCLUDE_VALUES: &[&str] = &[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    LOGPROBS_INCLUDE,
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
];

const SUMMARIES: &[&str] = &["auto", "concise", "detailed"];

/// A choice as it was sent, because canon cannot express all of them.
pub(super) type PlacedChoice<'a> = PlacedValue<'a, TextOrObject<'a, ResponsesToolChoice<'a>>>;

wire_object! {
    /// The body.
    pub(super) struct ResponsesRequestView<'a>("a JSON object") {
        model required: PlacedValue<'a, BorrowedText<'a>> => Model where model_name,
        instructions: BorrowedText<'a> => Conversation,
        input: TextOrList<'a, ResponsesItem<'a>, MAX_ITEMS> => Conversation,
        previous_response_id: BorrowedText<'a> where max_bytes(MAX_NAME_BYTES),
        conversation: TextOrObject<'a, ResponsesObjectName<'a>>,
        prompt kept: TextOrObject<'a, ResponsesObjectName<'a>>,
        stream: bool = Stream,
        max_output_tokens placed: PlacedValue<'a, u64> => MaxOutputTokens where output_limit(MIN_OUTPUT_TOKENS),
        max_tool_calls kept: i64 where between(1, MAX_TOOL_CALLS),
        temperature: f64 = Temperature where between(0.0, 2.0),
        top_p: f64 = TopP where between(0.0, 1.0),
        top_logprobs: i64 => Logprobs where between(0, 20),
        tools: BoundedList<ResponsesTool<'a>, MAX_LIST_ITEMS> => Tools,
        tool_choice: PlacedChoice<'a> => ToolChoice where tool_choice,
        parallel_tool_calls: bool = ParallelToolCalls,
        reasoning: ResponsesReasoning<'a> => Inside(ResponsesReasoning),
        text: ResponsesText<'a> => Inside(ResponsesText),
        include: BoundedList<BorrowedText<'a>, MAX_INCLUDES> where each_one_of(INCLUDE_VALUES),
        truncation kept: BorrowedText<'a> where one_of(&["auto", "disabled"]),
        metadata: OpaqueObject<'a> => Metadata where checks::metadata,
        store: bool = Store,
        background: bool,
        safety_identifier: BorrowedText<'a> => User where max_bytes(MAX_NAME_BYTES),
        user: BorrowedText<'a> => User where max_bytes(MAX_NAME_BYTES),
        prompt_cache_key: BorrowedText<'a> = CacheKey where max_bytes(MAX_NAME_BYTES),
        service_tier: BorrowedText<'a> => ServiceTier,
    }

    pub(super) struct ResponsesObjectName<'a>("an object with an `id`") {
        id required: BorrowedText<'a>,
    }

    pub(super) struct ResponsesReasoning<'a>("an object") {
        effort: BorrowedText<'a> => Thinking
            where one_of(&["none", "minimal", "low", "medium", "high", "xhigh", "max"]),
        summary: BorrowedText<'a> where one_of(SUMMARIES),
        generate_summary: BorrowedText<'a> where one_of(SUMMARIES),
    }

    pub(super) struct ResponsesText<'a>("an object") {
        format: ResponsesFormat<'a> => ResponseFormat(ResponsesFormat),
        verbosity: BorrowedText<'a> = Verbosity where one_of(&["low", "medium", "high"]),
    }

    pub(super) struct ResponsesFormat<'a>("an object with a `type`") {
        kind "type" required: BorrowedText<'a> where one_of(&["text", "json_object", "json_schema"]),
        name: BorrowedText<'a> => SchemaName,
        description: BorrowedText<'a>,
        schema: OpaqueObject<'a> => ResponseSchema,
        strict: bool,
    }
    check ResponsesFormat::check;
}

wire_union! {
    pub(super) enum ResponsesTool<'a>("a tool object") by "type" {
        Function(ResponsesFunction<'a>) = "function",
        Custom(CustomTool<'a>) = "custom",
        Namespace(ResponsesNamespace<'a>) = "namespace",
        Code(ResponsesCodeTool<'a>) = "code_interpreter",
        Search(ResponsesSearchTool<'a>) = "web_search" starting "web_search",
    }
}

wire_object! {
    pub(super) struct ResponsesFunction<'a>("a tool object") {
        name required: BorrowedText<'a> where not_empty,
        description: BorrowedText<'a>,
        parameters: OpaqueObject<'a>,
        output_schema: OpaqueObject<'a>,
        strict: bool,
        defer_loading: bool,
    }


    /// A group of tools.
    pub(super) struct ResponsesNamespace<'a>("a tool object") {
        name required: BorrowedText<'a> where not_empty,
        tools: BoundedList<ResponsesTool<'a>, MAX_LIST_ITEMS>,
    }

    pub(super) struct ResponsesCodeTool<'a>("a tool object") {}

    pub(super) struct ResponsesSearchTool<'a>("a tool object") {
        filters: ResponsesSearchFilters<'a>,
        user_location: SearchLocation<'a>,
    }

    pub(super) struct ResponsesSearchFilters<'a>("an object") {
        allowed_domains: Vec<BorrowedText<'a>>,
    }

    pub(super) struct ResponsesToolChoice<'a>("an object that names a tool") {
        kind "type": BorrowedText<'a>,
        name: BorrowedText<'a>,
        namespace: BorrowedText<'a>,
        mode: BorrowedText<'a>,
        tools: Vec<Self>,
    }
    check |choice| match (choice.kind.as_deref(), choice.mode.as_deref()) {
        (Some("allowed_tools"), Some(mode)) if !matches!(mode, "auto" | "required") => {
            Err(FieldProblem::new("mode", "must be `auto` or `required`"))
        }
        _ => Ok(()),
    };
}

impl<'a> ResponsesRequestView<'a> {
    /// Returns the items of the conversation.
    pub(super) fn items(&self) -> &[ResponsesItem<'a>] {
        let Some(TextOrList::List(items)) = &self.input else { return &[] };
        items
    }
}

impl ResponsesFormat<'_> {
    fn check(&self) -> RuleResult {
        let is_schema = self.kind.as_deref() == Some("json_schema");
        require("name", self.name.is_some() || !is_schema)?;
        require("schema", self.schema.is_some() || !is_schema)
    }
}

impl ResponsesToolChoice<'_> {
    /// Returns the tools of a list of allowed ones; `None` for any other choice.
    pub(super) fn allowed_tools(&self) -> Option<&[Self]> {
        (self.kind.as_deref() == Some("allowed_tools"))
            .then(|| self.tools.as_deref().unwrap_or_default())
    }

    /// Returns the name of a function or custom tool.
    pub(super) fn tool_name(&self) -> Option<String> {
        matches!(self.kind.as_deref(), Some("function" | "custom")).then_some(())?;
        Some(flat_name(self.namespace.as_deref(), self.name.as_deref()?))
    }

    fn is_valid(&self) -> bool {
        match self.kind.as_deref() {
            None => false,
            Some("function" | "custom") => self.name.is_some(),
            Some(_) => self.allowed_tools().unwrap_or_default().iter().all(Self::is_valid),
        }
    }
}

fn tool_choice(choice: &PlacedChoice<'_>) -> RuleResult {
    let is_valid = match &choice.value {
        TextOrObject::Text(word) => matches!(&**word, "none" | "auto" | "required"),
        TextOrObject::Object(choice) => choice.is_valid(),
    };
    ensure(is_valid, "must be `none`, `auto`, `required` or an object that names a tool")
}
