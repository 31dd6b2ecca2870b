//! Constants that the readers and the writers of the messages format share.

use canon::{MediaKind, Role, StopSupport, WireFormat};
use std::sync::OnceLock;

use crate::count_endpoint::CountEndpoint;
use crate::format_traits::{FormatTraits, LimitHeaderStyle};
use crate::media_urls::MediaUrlFields;
use crate::plain_shape::{PlainInstructions, PlainShape, PlainTurn};
use crate::word_search::{Needles, RequestWords};

/// This format, as other formats name it.
pub(super) const ORIGIN: WireFormat = WireFormat::Messages;

/// Facts about this format that the rest of the gateway needs.
pub(super) static TRAITS: FormatTraits = FormatTraits {
    origin: ORIGIN,
    request_fields: super::request::MessagesRequestView::FIELDS,
    request_words: RequestWords::new(),
    plain_request: PlainShape {
        turns: "messages",
        turn: PlainTurn {
            kind: None,
            roles: &[
                ("user", Some(Role::User)),
                ("assistant", Some(Role::Assistant)),
                ("system", None),
            ],
            needs_role: true,
            merges_model: false,
            content: "content",
            may_be_text: true,
            part_kinds: &["text"],
        },
        instructions: PlainInstructions::TextOrParts,
        takes_one_text: false,
        is_in_path: false,
        reports_usage: true,
        needs_limit: true,
        known: OnceLock::new(),
    },
    own_shell: Some(super::own::client_tools::OWN_SHELL),
    own_screen: Some(super::own::client_tools::OWN_SCREEN),
    unique_call_ids: true,
    stop_support: StopSupport {
        max_stop_texts: usize::MAX,
        reports_stop_text: true,
        min_output_tokens: 1,
    },
    takes_candidates: false,
    answers_blocked_prompts: true,
    request_headers: &[("anthropic-version", "2023-06-01")],
    forwarded_headers: &["anthropic-version", BETA_HEADER],
    keep_alive: b"event: ping\ndata: {\"type\": \"ping\"}\n\n",
    count_endpoint: Some(&COUNT),
    conversation_keys: ["\"messages\"", "\"system\""],
    returns_signatures: false,
    shows_thoughts: true,
    media_kinds: &[MediaKind::Image, MediaKind::Document],
    media_by_url: &[MediaKind::Image, MediaKind::Document],
    has_untyped_files: false,
    is_of_google: false,
    aborts_broken_streams: false,
    limit_headers: Some(LimitHeaderStyle::Anthropic),
    model_list_path: "/v1/models",
    path_ending: Some("/messages"),
    media_urls: MediaUrlFields {
        paths: &[
            // A document may have documents with images inside of it.
            "messages.content.content?.content?.source.content?.source?.content?.source?.url",
            "messages.content.content?.content?.source.content?.source?.content?.source?.data",
        ],
        needles: Needles::new(&["\"url\"", "\"data\""]),
        allows_snake_case: false,
    },
    objects: &super::objects::OBJECTS,
    operation: "chat",
};

/// The path of the endpoint, <https://docs.anthropic.com/en/api/messages>.
pub(super) const PATH: &str = "/v1/messages";

/// The header in which a caller enables beta features,
/// <https://docs.anthropic.com/en/api/beta-headers>.
pub const BETA_HEADER: &str = "anthropic-beta";

/// The extra under which a whole block is kept.
pub(super) const BLOCK_EXTRA: &str = "portunus.block";

/// The extra that names the fields of search results which no other format has.
pub(super) const HIT_EXTRA: &str = "portunus.in.search";

/// The extra under which a whole citation is kept.
pub(super) const CITATION_EXTRA: &str = "citation";

/// The extra of a turn in mid-conversation whose role the caller gave as `system`.
pub(super) const ROLE_EXTRA: &str = "portunus.role";

/// The extra for the caller's own `output_config.effort`. Canon has the level; the word is written
/// again as it was, without turning thinking on.
pub(super) const EFFORT_EXTRA: &str = "portunus.effort";

/// The prefix of the ids that the gateway makes up for runs of another provider's own tools.
/// Clients send these blocks back; a provider must not see them.
pub(super) const GATEWAY_ID_PREFIX: &str = "srvtoolu_gw";

/// The loss reason of thinking that this format's provider did not sign.
pub(super) const UNSIGNED_THOUGHT: &str = "the provider refuses thinking that it did not sign";

/// <https://docs.anthropic.com/en/api/messages-count-tokens>.
static COUNT: CountEndpoint = CountEndpoint {
    path: |_| format!("{PATH}/count_tokens"),
    fields: &[
        "model",
        "messages",
        "system",
        "tools",
        "tool_choice",
        "thinking",
        "cache_control",
        "output_config",
        "output_format",
        "mcp_servers",
        "context_management",
        "speed",
    ],
    whole_request: None,
    total: "input_tokens",
};
