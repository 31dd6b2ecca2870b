//! Description of a chat request.
//!
//! See <https://platform.openai.com/docs/api-reference/chat/create>. Extensions of other vendors
//! that are not checked here are kept as they were sent, because providers disagree about them.

use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;

use crate::checks::{self, model_name};
use crate::media_rules::{self, AcceptedMedia};
use crate::text::BorrowedText;
use crate::wire_object::{wire_object, wire_union};
use crate::wire_rule::{
    FieldProblem, RuleResult, between, each_one_of, max_bytes, not_empty, one_of, refuse,
    refuse_for, within,
};
use crate::wire_value::{
    AnyValue, BoundedList, OpaqueObject, PlacedValue, TextOrList, TextOrObject,
};

use super::names::MAX_STOP_SEQUENCES;

const MAX_MESSAGES: usize = 10_000;
const MAX_PARTS: usize = 10_000;
const MAX_LOGIT_BIASES: usize = 2_048;
const MAX_OUTPUT_TOKENS: u64 = 1 << 30;
const MAX_STOP_BYTES: usize = 4_096;

wire_object! {
    /// The body.
    pub(super) struct ChatRequestView<'a>("a JSON object") {
        model required: PlacedValue<'a, BorrowedText<'a>> => Model where model_name,
        messages required: BoundedList<ChatMessage<'a>, MAX_MESSAGES> => Conversation,
        stream: bool = Stream,
        stream_options kept: PlacedValue<'a, ChatStreamOptions<'a>> => StreamOptions,
        max_completion_tokens: PlacedValue<'a, u64> => MaxOutputTokens where output_limit,
        max_tokens: PlacedValue<'a, u64> => MaxOutputTokens where output_limit,
        n: i64 => Candidates where within(1, 128),
        temperature: f64 = Temperature where between(0.0, 2.0),
        top_p: f64 = TopP where between(0.0, 1.0),
        top_k: i64 => ReadOnly(TopK),
        presence_penalty: f64 = PresencePenalty where between(-2.0, 2.0),
        frequency_penalty: f64 = FrequencyPenalty where between(-2.0, 2.0),
        seed: i64 = Seed,
        top_logprobs: i64 => Logprobs where within(0, 20),
        logprobs: bool => Logprobs,
        stop: TextOrList<'a, BorrowedText<'a>> => StopSequences where stop_sequences,
        tools: Vec<ChatTool<'a>> => Tools,
        functions: Vec<ChatFunction<'a>> => Tools,
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
}

wire_object! {
    pub(super) struct ChatStreamOptions<'a>("an object") {
        include_usage: bool,
    }
}

wire_object! {
    pub(super) struct ChatMessage<'a>("a message object") {
        role required: BorrowedText<'a>
            where one_of(&["system", "developer", "user", "assistant", "tool", "function"]),
        content: TextOrList<'a, ChatPart<'a>> where no_empty_list,
        name: BorrowedText<'a> where author_name,
        tool_calls: Vec<ChatToolCall<'a>>,
        tool_call_id: BorrowedText<'a>,
        function_call: ChatCalledFunction<'a>,
        refusal: BorrowedText<'a>,
    }
    check ChatMessage::check
}

wire_union! {
    /// Part of a message.
    pub(super) enum ChatPart<'a>("a part object with a `type`") by "type" {
        Text(ChatTextPart<'a>) = "text",
        Refusal(ChatRefusalPart<'a>) = "refusal",
        Image(ChatImagePart<'a>) = "image_url",
        Video(ChatVideoPart<'a>) = "video_url",
        Audio(ChatAudioPart<'a>) = "input_audio",
        File(ChatFilePart<'a>) = "file",
    }
}

wire_object! {
    pub(super) struct ChatTextPart<'a>("a part") {
        text required: BorrowedText<'a>,
    }
}

wire_object! {
    pub(super) struct ChatRefusalPart<'a>("a part") {
        refusal: BorrowedText<'a>,
    }
}

wire_object! {
    pub(super) struct ChatImagePart<'a>("a part") {
        image_url required: ChatImageUrl<'a>,
    }
}

wire_object! {
    pub(super) struct ChatImageUrl<'a>("an object with a `url`") {
        url required: BorrowedText<'a> where picture_url,
        detail: BorrowedText<'a>,
    }
}

wire_object! {
    pub(super) struct ChatVideoPart<'a>("a part") {
        video_url required: ChatVideoUrl<'a>,
    }
}

wire_object! {
    pub(super) struct ChatVideoUrl<'a>("an object with a `url`") {
        url required: BorrowedText<'a>,
        start_offset: BorrowedText<'a>,
        end_offset: BorrowedText<'a>,
        fps: f64,
    }
}

wire_object! {
    pub(super) struct ChatAudioPart<'a>("a part") {
        input_audio required: ChatAudioInput<'a>,
    }
}

wire_object! {
    pub(super) struct ChatAudioInput<'a>("an object with `data` and `format`") {
        data required: BorrowedText<'a> where base64,
        format required: BorrowedText<'a>,
    }
}

wire_object! {
    pub(super) struct ChatFilePart<'a>("a part") {
        file required: ChatFile<'a>,
    }
}

wire_object! {
    pub(super) struct ChatFile<'a>("an object with a `file_data` or a `file_id`") {
        file_data: BorrowedText<'a> where file_data,
        file_id: BorrowedText<'a>,
        filename: BorrowedText<'a>,
    }
    check |file| match (&file.file_data, &file.file_id) {
        (None, None) => Err(FieldProblem::new("file_data", "is required")),
        _ => Ok(()),
    }
}

wire_object! {
    pub(super) struct ChatToolCall<'a>("a call object") {
        id: BorrowedText<'a>,
        kind "type": AnyValue,
        index: AnyValue,
        function: ChatCalledFunction<'a>,
        custom: ChatCalledFunction<'a>,
        extra_content: &'a RawValue,
    }
    check ChatToolCall::check
}

wire_object! {
    /// Name and arguments of a call. The arguments are JSON text, or free text.
    pub(super) struct ChatCalledFunction<'a>("an object with a `name`") {
        name: BorrowedText<'a>,
        arguments: BorrowedText<'a>,
        input: BorrowedText<'a>,
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
}

wire_object! {
    pub(super) struct ChatFunction<'a>("an object with a `name`") {
        name required: BorrowedText<'a> where not_empty,
        description: BorrowedText<'a>,
        parameters: OpaqueObject<'a>,
        strict: bool,
    }
}

wire_object! {
    pub(super) struct ChatCustomTool<'a>("a tool object") {
        custom required: ChatCustomFunction<'a>,
    }
}

wire_object! {
    pub(super) struct ChatCustomFunction<'a>("an object with a `name`") {
        name required: BorrowedText<'a> where not_empty,
        description: BorrowedText<'a>,
        format: &'a RawValue,
    }
}

wire_object! {
    pub(super) struct ChatToolChoice<'a>("an object that names a tool") {
        kind "type": BorrowedText<'a>,
        function: ChatToolName<'a>,
        custom: ChatToolName<'a>,
        allowed_tools: ChatAllowedTools<'a>,
    }
}

wire_object! {
    pub(super) struct ChatAllowedTools<'a>("an object") {
        mode: BorrowedText<'a>,
        tools: Vec<ChatToolChoice<'a>>,
    }
}

wire_object! {
    pub(super) struct ChatToolName<'a>("an object with a `name`") {
        name: BorrowedText<'a>,
    }
}

wire_object! {
    pub(super) struct ChatSearchOptions<'a>("an object") {
        user_location: ChatUserLocation<'a>,
    }
}

wire_object! {
    pub(super) struct ChatUserLocation<'a>("an object") {
        kind "type": AnyValue,
        approximate: Box<Self>,
        country: BorrowedText<'a>,
        region: BorrowedText<'a>,
        city: BorrowedText<'a>,
        timezone: BorrowedText<'a>,
    }
}

wire_object! {
    pub(super) struct ChatFormat<'a>("an object with a `type`") {
        kind "type" required: BorrowedText<'a> where one_of(&["text", "json_object", "json_schema"]),
        json_schema: ChatSchema<'a> => Inside(ChatSchema),
    }
    check ChatFormat::check
}

wire_object! {
    pub(super) struct ChatSchema<'a>("an object with a `name`") {
        name required: BorrowedText<'a> => SchemaName,
        description: BorrowedText<'a>,
        schema: OpaqueObject<'a> => ResponseSchema,
        strict: bool,
    }
}

wire_object! {
    /// An extension of OpenRouter: <https://openrouter.ai/docs/use-cases/reasoning-tokens>.
    pub(super) struct ChatReasoning<'a>("an object") {
        effort: BorrowedText<'a>,
        max_tokens: u64,
        exclude: bool,
        enabled: bool,
    }
}

wire_object! {
    /// An extension of OpenRouter: <https://openrouter.ai/docs/features/multimodal/image-generation>.
    pub(super) struct ChatImageConfig<'a>("an object") {
        aspect_ratio: BorrowedText<'a>,
        image_size: BorrowedText<'a>,
    }
}

impl ChatRequestView<'_> {
    /// Returns the output limit.
    pub(super) fn output_limit(&self) -> Option<u64> {
        self.max_completion_tokens.as_ref().or(self.max_tokens.as_ref()).map(|limit| limit.value)
    }
}

impl ChatFormat<'_> {
    fn check(&self) -> RuleResult {
        match (self.kind.as_deref(), &self.json_schema) {
            (Some("json_schema"), None) => {
                Err(FieldProblem::new("json_schema.name", "is required"))
            }
            _ => Ok(()),
        }
    }
}

impl ChatToolCall<'_> {
    /// Returns the called function or custom tool.
    pub(super) const fn called(&self) -> Option<&ChatCalledFunction<'_>> {
        match &self.custom {
            Some(custom) => Some(custom),
            None => self.function.as_ref(),
        }
    }

    fn check(&self) -> RuleResult {
        let name = self.called().and_then(|called| called.name.as_deref());
        match self.id.is_some() && name.is_some_and(|name| !name.is_empty()) {
            true => Ok(()),
            false => refuse("needs an `id` and a function `name`"),
        }
    }
}

impl ChatMessage<'_> {
    fn check(&self) -> RuleResult {
        let refuse = |field, why| Err(FieldProblem::new(field, why));
        let is_empty = self.content.is_none();
        match self.role.as_deref().unwrap_or_default() {
            "assistant" => {
                let has_other_content = self.tool_calls.is_some()
                    || self.function_call.is_some()
                    || self.refusal.is_some()
                    || self.rest.get("audio").is_some_and(|audio| audio.get() != "null");
                match is_empty && !has_other_content {
                    true => refuse("content", "is required unless there are `tool_calls`"),
                    false => Ok(()),
                }
            }
            "tool" if self.tool_call_id.is_none() => {
                refuse("tool_call_id", "is required in a tool message")
            }
            "function" => match self.name {
                None => refuse("name", "is required in a function message"),
                Some(_) => Ok(()),
            },
            _ if is_empty => refuse("content", "is required"),
            _ => Ok(()),
        }
    }
}

fn no_empty_list(content: &TextOrList<'_, ChatPart<'_>>) -> RuleResult {
    match content {
        TextOrList::List(parts) if parts.is_empty() => refuse("must not be an empty list"),
        TextOrList::List(parts) if parts.len() > MAX_PARTS => {
            refuse(format!("must have at most {MAX_PARTS} items"))
        }
        TextOrList::List(_) | TextOrList::Text(_) => Ok(()),
    }
}

fn author_name(name: &BorrowedText<'_>) -> RuleResult {
    match name.len() > 256 || name.chars().any(char::is_control) {
        true => refuse("must be at most 256 bytes without control characters"),
        false => Ok(()),
    }
}

fn picture_url(url: &BorrowedText<'_>) -> RuleResult {
    refuse_for(media_rules::url_error(url, AcceptedMedia::Picture))
}

fn file_data(data: &BorrowedText<'_>) -> RuleResult {
    refuse_for(media_rules::file_data_error(data))
}

fn base64(data: &BorrowedText<'_>) -> RuleResult {
    refuse_for(media_rules::base64_error(data))
}

fn output_limit(limit: &PlacedValue<'_, u64>) -> RuleResult {
    match (1..=MAX_OUTPUT_TOKENS).contains(&limit.value) {
        true => Ok(()),
        false => refuse("must be a whole number of at least 1"),
    }
}

fn stop_sequences(stop: &TextOrList<'_, BorrowedText<'_>>) -> RuleResult {
    let texts = match stop {
        TextOrList::Text(text) => std::slice::from_ref(text),
        TextOrList::List(texts) => texts,
    };
    if texts.len() > MAX_STOP_SEQUENCES {
        return refuse(format!("must have at most {MAX_STOP_SEQUENCES} items"));
    }
    match texts.iter().any(|text| text.is_empty() || text.len() > MAX_STOP_BYTES) {
        true => refuse(format!("must be strings of 1 to {MAX_STOP_BYTES} bytes")),
        false => Ok(()),
    }
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
    match is_known {
        true => Ok(()),
        false => refuse("must be `none`, `auto`, `required` or an object that names a tool"),
    }
}

impl ChatToolChoice<'_> {
    /// Returns the name of the tool.
    pub(super) fn tool_name(&self) -> Option<&str> {
        self.function.as_ref().or(self.custom.as_ref())?.name.as_deref()
    }
}

fn logit_bias(bias: &&RawValue) -> RuleResult {
    let Ok(pairs) = serde_json::from_str::<HashMap<Cow<'_, str>, f64>>(bias.get()) else {
        return refuse("must map token ids to numbers");
    };
    if pairs.len() > MAX_LOGIT_BIASES {
        return refuse(format!("must have at most {MAX_LOGIT_BIASES} entries"));
    }
    let is_valid = |(id, bias): (&Cow<'_, str>, &f64)| {
        id.parse::<u64>().is_ok() && (-100.0..=100.0).contains(bias)
    };
    match pairs.iter().all(is_valid) {
        true => Ok(()),
        false => refuse("must map token ids to numbers from -100 to 100"),
    }
}
