//! Fields that mean the same in the four formats, under the name each format gives them.
//!
//! An error names a field of the request that was refused. This table is the way back to the field
//! of the caller's request.

use canon::WireFormat;

/// One meaning and its fields. Several fields of a format are alternatives; the first one is the
/// one to recommend.
#[derive(Debug)]
pub(crate) struct FieldRow {
    chat: &'static [&'static str],
    responses: &'static [&'static str],
    messages: &'static [&'static str],
    native: &'static [&'static str],
}

impl FieldRow {
    /// Returns the fields of a format; empty if the format has none.
    pub(crate) const fn fields(&self, format: WireFormat) -> &'static [&'static str] {
        match format {
            WireFormat::Chat => self.chat,
            WireFormat::Responses => self.responses,
            WireFormat::Messages => self.messages,
            WireFormat::Native => self.native,
            WireFormat::Images => &[],
        }
    }
}

const fn row(
    chat: &'static [&'static str],
    responses: &'static [&'static str],
    messages: &'static [&'static str],
    native: &'static [&'static str],
) -> FieldRow {
    FieldRow { chat, responses, messages, native }
}

/// The conversation: instructions first, as they are read, then the list of turns.
pub(crate) const CONVERSATION: FieldRow = row(
    &["messages"],
    &["instructions", "input"],
    &["system", "messages"],
    &["systemInstruction", "contents"],
);

/// The offered tools.
pub(crate) const TOOLS: FieldRow = row(&["tools", "functions"], &["tools"], &["tools"], &["tools"]);

/// All other fields that more than one format has.
pub(crate) const OPTIONS: [FieldRow; 27] = [
    row(&["model"], &["model"], &["model"], &["model"]),
    row(&["stream"], &["stream"], &["stream"], &[]),
    row(&["stream_options"], &["stream_options"], &[], &[]),
    row(
        &["max_completion_tokens", "max_tokens"],
        &["max_output_tokens"],
        &["max_tokens"],
        &["generationConfig.maxOutputTokens"],
    ),
    row(&["temperature"], &["temperature"], &["temperature"], &["generationConfig.temperature"]),
    row(&["top_p"], &["top_p"], &["top_p"], &["generationConfig.topP"]),
    row(&["top_k"], &[], &["top_k"], &["generationConfig.topK"]),
    row(&["presence_penalty"], &[], &[], &["generationConfig.presencePenalty"]),
    row(&["frequency_penalty"], &[], &[], &["generationConfig.frequencyPenalty"]),
    row(&["seed"], &[], &[], &["generationConfig.seed"]),
    row(&["stop"], &[], &["stop_sequences"], &["generationConfig.stopSequences"]),
    row(&["n"], &[], &[], &["generationConfig.candidateCount"]),
    row(
        &["top_logprobs", "logprobs"],
        &["top_logprobs"],
        &[],
        &["generationConfig.logprobs", "generationConfig.responseLogprobs"],
    ),
    row(
        &["tool_choice", "function_call"],
        &["tool_choice"],
        &["tool_choice"],
        &["toolConfig.functionCallingConfig", "toolConfig"],
    ),
    row(
        &["parallel_tool_calls"],
        &["parallel_tool_calls"],
        &["tool_choice.disable_parallel_tool_use"],
        &[],
    ),
    row(
        &["response_format.json_schema.schema"],
        &["text.format.schema"],
        &["output_config.format.schema"],
        &["generationConfig.responseJsonSchema", "generationConfig.responseSchema"],
    ),
    row(&["response_format.json_schema.name"], &["text.format.name"], &[], &[]),
    row(
        &["response_format"],
        &["text.format"],
        &["output_config.format"],
        &["generationConfig.responseMimeType"],
    ),
    row(
        &["reasoning_effort"],
        &["reasoning.effort", "reasoning"],
        &["output_config.effort", "thinking.budget_tokens", "thinking"],
        &[
            "generationConfig.thinkingConfig.thinkingLevel",
            "generationConfig.thinkingConfig.thinkingBudget",
            "generationConfig.thinkingConfig",
        ],
    ),
    row(&["modalities"], &[], &[], &["generationConfig.responseModalities"]),
    row(&["image_config"], &[], &[], &["generationConfig.imageConfig"]),
    row(&["verbosity"], &["text.verbosity"], &[], &[]),
    row(&["service_tier"], &["service_tier"], &["service_tier", "speed"], &["serviceTier"]),
    row(&["safety_identifier", "user"], &["safety_identifier", "user"], &["metadata.user_id"], &[]),
    row(&["metadata"], &["metadata"], &["metadata"], &["labels"]),
    row(&["prompt_cache_key"], &["prompt_cache_key"], &[], &[]),
    row(&["store"], &["store"], &[], &["store"]),
];
