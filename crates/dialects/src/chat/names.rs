//! Constants that the readers and the writers of the chat format share.

use canon::{MediaKind, Modality, Role, StopSupport, WireFormat};
use std::sync::OnceLock;

use crate::format_traits::{ALL_MEDIA, FormatTraits, LimitHeaderStyle};
use crate::media_urls::MediaUrlFields;
use crate::plain_shape::{PlainInstructions, PlainShape, PlainTurn};
use crate::word_search::{Needles, RequestWords};

/// This format, as other formats name it.
pub(super) const ORIGIN: WireFormat = WireFormat::Chat;

/// Facts about this format that the rest of the gateway needs.
pub(super) static TRAITS: FormatTraits = FormatTraits {
    origin: ORIGIN,
    request_fields: super::request::ChatRequestView::FIELDS,
    request_words: RequestWords::new(),
    plain_request: PlainShape {
        turns: "messages",
        turn: PlainTurn {
            kind: None,
            roles: &[
                ("system", Some(Role::System)),
                ("developer", Some(Role::Developer)),
                ("user", Some(Role::User)),
                ("assistant", Some(Role::Assistant)),
            ],
            needs_role: true,
            merges_model: false,
            content: "content",
            may_be_text: true,
            part_kinds: &["text"],
        },
        instructions: PlainInstructions::Text,
        takes_one_text: false,
        is_in_path: false,
        reports_usage: false,
        needs_limit: false,
        known: OnceLock::new(),
    },
    own_shell: None,
    own_screen: None,
    unique_call_ids: false,
    stop_support: StopSupport {
        max_stop_texts: MAX_STOP_SEQUENCES,
        reports_stop_text: false,
        min_output_tokens: 1,
    },
    takes_candidates: true,
    answers_blocked_prompts: false,
    request_headers: &[],
    forwarded_headers: &[],
    keep_alive: b": keep-alive\n\n",
    count_endpoint: None,
    conversation_keys: ["\"messages\"", "\"input\""],
    returns_signatures: false,
    // There is no field for showing thoughts.
    shows_thoughts: true,
    media_kinds: ALL_MEDIA,
    media_by_url: &[MediaKind::Image, MediaKind::Video],
    has_untyped_files: false,
    is_of_google: false,
    aborts_broken_streams: false,
    limit_headers: Some(LimitHeaderStyle::OpenAi),
    model_list_path: "/v1/models",
    path_ending: Some("/chat/completions"),
    media_urls: MediaUrlFields {
        paths: &[
            "messages.content.image_url|video_url.url?",
            "messages.content.file.file_data",
            "messages.content.input_audio.data",
            // Parts of services that imitate this format.
            "messages.content.audio_url|document_url|file_url.url?",
            "messages.content.image|video|audio|url",
            "messages.content.source.url",
            "messages.images",
        ],
        needles: Needles::new(&[
            "url\"",
            "\"image\"",
            "\"images\"",
            "\"video\"",
            "\"audio\"",
            "\"input_audio\"",
            "\"file_data\"",
        ]),
        allows_snake_case: false,
    },
    objects: &super::objects::OBJECTS,
    operation: "chat",
};

/// Field of the generated images of a message,
/// <https://openrouter.ai/docs/features/multimodal/image-generation>.
pub(super) const IMAGES_FIELD: &str = "images";

/// Path of the endpoint, <https://platform.openai.com/docs/api-reference/chat/create>.
pub(super) const PATH: &str = "/v1/chat/completions";

/// The field for the output limit in requests without one.
pub(super) const LIMIT_FIELD: &str = "max_completion_tokens";

/// The field that asks for the usage of a stream.
pub(super) const STREAM_OPTIONS_FIELD: &str = "stream_options";

/// Data of the event that ends a stream.
pub(super) const DONE_MARKER: &[u8] = b"[DONE]";

/// Maximum number of stop sequences: <https://platform.openai.com/docs/api-reference/chat/create>
/// (`stop`).
pub(super) const MAX_STOP_SEQUENCES: usize = 4;

/// The words of `modalities`.
pub(super) const MODALITIES: [(Modality, &str); 3] =
    [(Modality::Text, "text"), (Modality::Image, "image"), (Modality::Audio, "audio")];

/// Field for thinking and its signatures, an extension of OpenRouter.
pub(super) const REASONING_DETAILS: &str = "reasoning_details";

/// Extras key for the caller's own `reasoning`, which is written again as it was.
pub(super) const REASONING_EXTRA: &str = "portunus.reasoning";

/// Extras key for message fields only the provider's format has.
pub(super) const MESSAGE_EXTRA: &str = "message";

/// Loss text for a signature on anything but a thought, a call or a text.
pub(super) const NO_SIGNATURE_FIELD: &str =
    "chat clients return signatures only on thinking, text and calls";

/// Loss text for the queries of a search.
pub(super) const NO_SEARCH_FIELD: &str = "the chat format shows citations but no search queries";

/// Loss text for media other than images and one audio clip.
pub(super) const NO_MEDIA_FIELD: &str = "the chat format has no field for this media";
