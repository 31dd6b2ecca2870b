//! Description of a chat request.
//!
//! See <https://platform.openai.com/docs/api-reference/chat/create>. Extensions of other vendors
//! that are not checked here are kept as they were sent, because providers disagree about them.

use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;

use crate::checks::{self, model_name, output_limit};
use crate::json;
use crate::openai_values::{CustomTool, SearchLocation};
use crate::text::BorrowedText;
use crate::wire_object::{wire_object, wire_union};
use crate::wire_rule::{
    RuleResult, between, each_one_of, ensure, max_bytes, not_empty, one_of, refuse, require,
};
use crate::wire_value::{
    AnyValue, BoundedList, MAX_LIST_ITEMS, OpaqueObject, PlacedValue, TextOrList, TextOrObject,
};

use super::content::ChatMessage;
use super::names::MAX_STOP_SEQUENCES;

const MAX_MESSAGES: usize = 10_000;
const MAX_LOGIT_BIASES: usize = 2_048;

wire_object! {
    /// The body.
    pub(super) struct ChatRequestView<'a>("a JSON object") {
        model required: PlacedValue<'a, BorrowedText<'a>> => Model where model_name,
        messages required: BoundedList<ChatMessage<'a>, MAX_MESSAGES> => Conversation,
        stream: bool = Stream,
        stream_options kept: PlacedValue<'a, ChatStreamOptions<'a>> => StreamOptions,
        max_completion_tokens placed: PlacedValue<'a, u64> => MaxOutputTokens where output_limit(1),
        max_tokens: PlacedValue<'a, u64> => MaxOutputTokens where output_limit(1),
        n: i64 => Candidates where between(1, 128),
        temperature: f64 = Temperature where between(0.0, 2.0),
        top_p: f64 = TopP where between(0.0, 1.0),
        top_k: i64 => ReadOnly(TopK),
        presence_penalty: f64 = PresencePenalty where between(-2.0, 2.0),
        frequency_penalty: f64 = FrequencyPenalty where between(-2.0, 2.0),
        seed: i64 = Seed,
        top_logprobs: i64 => Logprobs where between(0, 20),
        logprobs: bool => Logprobs,
        stop: ChatStops<'a> => StopSequences where stop_sequences,
        tools: BoundedList<ChatTool<'a>, MAX_LIST_ITEMS> => Tools,
        functions: BoundedList<ChatFunction<'a>, MAX_LIST_ITEMS> => Tools,
        tool_choice: TextOrObject<'a, ChatToolChoice<'a>> => ToolChoice where tool_choice_word,
        function_call: TextOrObject<'a, ChatToolName<'a>> => ToolChoice,
        parallel_tool_calls: bool = ParallelToolCalls,
        web_search_options: ChatSearchOptions<'a>,
        search_parameters kept: AnyValue,
        response_format: ChatFormat<'a> => ResponseFormat(ChatFormat),
        reasoning_effort: BorrowedText<'a> => Thinking
            where one_of(&["none", "minimal", "low", "medium", "high", "xhigh", "max"]),
        reasoning: PlacedValue<'a, ChatReasoning<'a>>,
        modalities: Vec<BorrowedText<'a>> => Modalities where each_one_of(&["text", "audio", "image"]),
        image_config: ChatImageConfig<'a> => ImageConfig,
        verbosity: BorrowedText<'a> = Verbosity where one_of(&["low", "medium", "high"]),
        service_tier: BorrowedText<'a> => ServiceTier,
        safety_identifier: BorrowedText<'a> => User where max_bytes(4_096),
        user: BorrowedText<'a> => User where max_bytes(4_096),
        metadata: OpaqueObject<'a> => Metadata where checks::metadata,
        prompt_cache_key: BorrowedText<'a> = CacheKey,
        store: bool = Store,
        logit_bias kept: &'a RawValue where logit_bias,
    }

    pub(super) struct ChatStreamOptions<'a>("an object") {
        include_usage: bool,
    }
}

wire_union! {
    pub(super) enum ChatTool<'a>("a tool object") by "type" {
        Function(ChatFunctionTool<'a>) = "function",
        Custom(ChatCustomTool<'a>) = "custom",
    }
}

wire_object! {
    pub(super) struct ChatFunctionTool<'a>("a tool object") {
        function required: ChatFunction<'a>,
    }

    pub(super) struct ChatFunction<'a>("an object with a `name`") {
        name required: BorrowedText<'a> where not_empty,
        description: BorrowedText<'a>,
        parameters: OpaqueObject<'a>,
        strict: bool,
    }

    pub(super) struct ChatCustomTool<'a>("a tool object") {
        custom required: CustomTool<'a>,
    }


    pub(super) struct ChatToolChoice<'a>("an object that names a tool") {
        kind "type": BorrowedText<'a>,
        function: ChatToolName<'a>,
        custom: ChatToolName<'a>,
        allowed_tools: ChatAllowedTools<'a>,
    }

    pub(super) struct ChatAllowedTools<'a>("an object") {
        mode: BorrowedText<'a>,
        tools: Vec<ChatToolChoice<'a>>,
    }

    pub(super) struct ChatToolName<'a>("an object with a `name`") {
        name: BorrowedText<'a>,
    }

    pub(super) struct ChatSearchOptions<'a>("an object") {
        user_location: SearchLocation<'a>,
    }

    pub(super) struct ChatFormat<'a>("an object with a `type`") {
        kind "type" required: BorrowedText<'a> where one_of(&["text", "json_object", "json_schema"]),
        json_schema: ChatSchema<'a> => Inside(ChatSchema),
    }
    check ChatFormat::check;

    pub(super) struct ChatSchema<'a>("an object with a `name`") {
        name required: BorrowedText<'a> => SchemaName,
        description: BorrowedText<'a>,
        schema: OpaqueObject<'a> => ResponseSchema,
        strict: bool,
    }

    /// An extension of OpenRouter: <https://openrouter.ai/docs/use-cases/reasoning-tokens>.
    pub(super) struct ChatReasoning<'a>("an object") {
        effort: BorrowedText<'a>,
        max_tokens: u64,
        exclude: bool,
        enabled: bool,
    }

    /// An extension of OpenRouter: <https://openrouter.ai/docs/features/multimodal/image-generation>.
    pub(super) struct ChatImageConfig<'a>("an object") {
        aspect_ratio: BorrowedText<'a>,
        image_size: BorrowedText<'a>,
    }
}

impl ChatRequestView<'_> {
    /// Returns the output limit.
    pub(super) fn output_limit(&self) -> Option<u64> {
        self.limit_field().map(|limit| limit.value)
    }

    /// Returns the field that holds the output limit.
    pub(super) fn limit_field(&self) -> Option<&PlacedValue<'_, u64>> {
        self.max_completion_tokens.as_ref().or(self.max_tokens.as_ref())
    }
}

impl ChatFormat<'_> {
    fn check(&self) -> RuleResult {
        let is_schema = self.kind.as_deref() == Some("json_schema");
        require("json_schema.name", !is_schema || self.json_schema.is_some())
    }
}

type ChatStops<'a> = TextOrList<'a, BorrowedText<'a>, MAX_STOP_SEQUENCES>;

fn stop_sequences(stop: &ChatStops<'_>) -> RuleResult {
    let texts = match stop {
        TextOrList::Text(text) => std::slice::from_ref(text),
        TextOrList::List(texts) => texts,
    };
    checks::stop_texts(texts)
}

fn tool_choice_word(choice: &TextOrObject<'_, ChatToolChoice<'_>>) -> RuleResult {
    let is_known = match choice {
        TextOrObject::Text(word) => matches!(&**word, "none" | "auto" | "required"),
        TextOrObject::Object(tool) => match tool.kind.as_deref() {
            None => false,
            Some("function" | "custom") => tool.tool_name().is_some(),
            Some(_) => true,
        },
    };
    ensure(is_known, "must be `none`, `auto`, `required` or an object that names a tool")
}

impl ChatToolChoice<'_> {
    /// Returns the name of the tool.
    pub(super) fn tool_name(&self) -> Option<&str> {
        self.function.as_ref().or(self.custom.as_ref())?.name.as_deref()
    }
}

fn logit_bias(bias: &&RawValue) -> RuleResult {
    let Ok(pairs) = json::read::<HashMap<Cow<'_, str>, f64>>(bias.get()) else {
        return refuse("must map token ids to numbers");
    };
    if pairs.len() > MAX_LOGIT_BIASES {
        return refuse(format!("must have at most {MAX_LOGIT_BIASES} entries"));
    }
    let is_valid = |(id, bias): (&Cow<'_, str>, &f64)| {
        id.parse::<u64>().is_ok() && (-100.0..=100.0).contains(bias)
    };
    ensure(pairs.iter().all(is_valid), "must map token ids to numbers from -100 to 100")
}
