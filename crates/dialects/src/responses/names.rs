//! Constants that the readers and the writers of the responses format share.

use canon::{MediaKind, Role, StopSupport, ThinkingDisplay, WireFormat};
use std::sync::OnceLock;

use crate::count_endpoint::CountEndpoint;
use crate::format_traits::{FormatTraits, LimitHeaderStyle};
use crate::media_urls::MediaUrlFields;
use crate::plain_shape::{PlainInstructions, PlainShape, PlainTurn};
use crate::word_search::{Needles, RequestWords};

/// This format, as other formats name it.
pub(super) const ORIGIN: WireFormat = WireFormat::Responses;

/// The field for the output limit.
pub(super) const LIMIT_FIELD: &str = "max_output_tokens";

/// Facts about this format that the rest of the gateway needs.
pub(super) static TRAITS: FormatTraits = FormatTraits {
    origin: ORIGIN,
    request_fields: super::request::ResponsesRequestView::FIELDS,
    request_words: RequestWords::new(),
    plain_request: PlainShape {
        turns: "input",
        turn: PlainTurn {
            kind: Some("message"),
            roles: &[
                ("user", Some(Role::User)),
                ("assistant", Some(Role::Assistant)),
                ("system", Some(Role::System)),
                ("developer", Some(Role::Developer)),
            ],
            needs_role: true,
            merges_model: false,
            content: "content",
            may_be_text: true,
            part_kinds: &["input_text", "output_text", "text"],
        },
        instructions: PlainInstructions::Text,
        takes_one_text: true,
        is_in_path: false,
        reports_usage: true,
        needs_limit: false,
        known: OnceLock::new(),
    },
    own_shell: Some(super::own::client_tools::OWN_SHELL),
    own_screen: Some(super::own::client_tools::OWN_SCREEN),
    unique_call_ids: true,
    stop_support: StopSupport {
        max_stop_texts: 0,
        reports_stop_text: false,
        min_output_tokens: MIN_OUTPUT_TOKENS,
    },
    takes_candidates: false,
    answers_blocked_prompts: false,
    request_headers: &[],
    forwarded_headers: &[],
    keep_alive: b": keep-alive\n\n",
    count_endpoint: Some(&COUNT),
    conversation_keys: ["\"input\"", "\"instructions\""],
    returns_signatures: true,
    shows_thoughts: false,
    media_kinds: &[MediaKind::Image, MediaKind::Document],
    media_by_url: &[MediaKind::Image, MediaKind::Document],
    has_untyped_files: false,
    is_of_google: false,
    aborts_broken_streams: false,
    limit_headers: Some(LimitHeaderStyle::OpenAi),
    model_list_path: "/v1/models",
    path_ending: Some("/responses"),
    media_urls: MediaUrlFields {
        paths: &[
            "input.content|output.image_url.url?",
            "input.content.video_url|audio_url.url?",
            "input.content|output.file_url",
            "input.content|output.file_data",
            "input.content|output.input_audio.data",
            "input.result",
        ],
        needles: Needles::new(&[
            "_url\"",
            "\"file_data\"",
            "\"input_audio\"",
            "\"image_generation_call\"",
        ]),
        allows_snake_case: false,
    },
    objects: &super::objects::OBJECTS,
    operation: "chat",
};

/// Path of the endpoint, <https://platform.openai.com/docs/api-reference/responses/create>.
pub(super) const PATH: &str = "/v1/responses";

/// Smallest `max_output_tokens` the service accepts.
pub(super) const MIN_OUTPUT_TOKENS: u64 = 16;

/// `include` value for encrypted reasoning.
pub(super) const INCLUDE_ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";

/// `include` value for log probabilities.
pub(super) const INCLUDE_LOGPROBS: &str = "message.output_text.logprobs";

/// Field of a call for its namespace.
pub(super) const NAMESPACE_FIELD: &str = "namespace";

/// Extras key of a tool for its namespace.
pub(super) const NAMESPACE_EXTRA: &str = "portunus.in.namespace";

/// Extras key of a tool that was declared inside the conversation.
pub(super) const ADDED_TOOLS_EXTRA: &str = "portunus.added";

/// Extras key of a message part for the fields of its message.
pub(super) const MESSAGE_EXTRA: &str = "portunus.in.message";

/// Extras key of audio that a caller sent in this format: the fields beside its data.
pub(super) const OWN_AUDIO_EXTRA: &str = "portunus.audio";

/// Extras key that marks an unknown part inside a message, as opposed to an unknown item.
pub(super) const NESTED_PART_EXTRA: &str = "portunus.inside";

/// Extras key that marks the result of a custom tool call if the call is not in the request.
pub(super) const CUSTOM_RESULT_EXTRA: &str = "portunus.custom";

/// Field of a streamed part for its final text, if that differs from its deltas.
pub(super) const FINAL_TEXT_EXTRA: &str = "final_text";

/// Loss text for a thought with a foreign signature.
pub(super) const FOREIGN_THOUGHT: &str = "the provider accepts only thinking that it signed itself";

/// Loss text for code of a translated reply.
pub(super) const FOREIGN_CODE: &str = "the provider does not have the container that it ran in";

/// The words of `reasoning.summary`. Hidden is the default and has no word.
pub(super) const SUMMARIES: [(ThinkingDisplay, &str); 3] = [
    (ThinkingDisplay::Auto, "auto"),
    (ThinkingDisplay::Concise, "concise"),
    (ThinkingDisplay::Detailed, "detailed"),
];

/// <https://platform.openai.com/docs/api-reference/responses/input-tokens>.
static COUNT: CountEndpoint = CountEndpoint {
    path: |_| format!("{PATH}/input_tokens"),
    fields: &[
        "model",
        "input",
        "instructions",
        "conversation",
        "previous_response_id",
        "parallel_tool_calls",
        "reasoning",
        "text",
        "tool_choice",
        "tools",
        "truncation",
    ],
    whole_request: None,
    total: "input_tokens",
};
