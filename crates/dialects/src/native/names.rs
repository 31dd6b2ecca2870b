//! Constants, words and paths that the readers and the writers of the native format share.

use canon::{EffortLevel, ImageDetail, Modality, Role, StopSupport, WireFormat};
use std::sync::OnceLock;

use crate::count_endpoint::{CountEndpoint, WholeRequest};
use crate::format_traits::{ALL_MEDIA, FormatTraits};
use crate::media_urls::MediaUrlFields;
use crate::plain_shape::{PlainInstructions, PlainShape, PlainTurn};
use crate::text::by_word;
use crate::word_search::{Needles, RequestWords};

/// This format, as other formats name it.
pub(super) const ORIGIN: WireFormat = WireFormat::Native;

/// The field for the output limit.
pub(super) const LIMIT_FIELD: &str = "maxOutputTokens";

/// Facts about this format that the rest of the gateway needs.
pub(super) static TRAITS: FormatTraits = FormatTraits {
    origin: ORIGIN,
    request_fields: super::request::NativeRequestView::FIELDS,
    request_words: RequestWords::new(),
    plain_request: PlainShape {
        turns: "contents",
        turn: PlainTurn {
            kind: None,
            roles: &[("user", Some(Role::User)), ("model", Some(Role::Assistant))],
            needs_role: false,
            merges_model: true,
            content: "parts",
            may_be_text: false,
            part_kinds: &[],
        },
        instructions: PlainInstructions::Turn,
        takes_one_text: false,
        is_in_path: true,
        reports_usage: true,
        needs_limit: false,
        known: OnceLock::new(),
    },
    own_shell: None,
    own_screen: Some(super::own::client_tools::OWN_SCREEN),
    unique_call_ids: true,
    stop_support: StopSupport {
        max_stop_texts: MAX_STOP_TEXTS,
        reports_stop_text: false,
        min_output_tokens: 1,
    },
    takes_candidates: true,
    answers_blocked_prompts: true,
    request_headers: &[],
    forwarded_headers: &[],
    keep_alive: b"\n\n",
    count_endpoint: Some(&COUNT),
    conversation_keys: ["\"contents\"", "\"systemInstruction\""],
    returns_signatures: true,
    shows_thoughts: false,
    media_kinds: ALL_MEDIA,
    media_by_url: ALL_MEDIA,
    has_untyped_files: true,
    is_of_google: true,
    aborts_broken_streams: true,
    limit_headers: None,
    model_list_path: "/v1beta/models",
    path_ending: None,
    media_urls: MediaUrlFields {
        paths: &[
            // Conversations, and the `content` and `requests` of embeddings.
            "contents|content|systemInstruction.parts.fileData.fileUri",
            "contents.parts.functionResponse.parts.fileData.fileUri",
            "requests.content.parts.fileData.fileUri",
            "contents|content|systemInstruction.parts.inlineData.data",
            "contents.parts.functionResponse.parts.inlineData.data",
            "requests.content.parts.inlineData.data",
        ],
        needles: Needles::new(&["Uri\"", "_uri\"", "nlineData\"", "nline_data\""]),
        allows_snake_case: true,
    },
    objects: &super::objects::OBJECTS,
    operation: "generate_content",
};

/// The extra that marks a caller who wants its stream as one JSON array.
pub(super) const JSON_ARRAY_EXTRA: &str = "portunus.alt";

/// The extra that marks a tool choice of the mode `VALIDATED`, which other formats call `auto`.
pub(super) const VALIDATED_EXTRA: &str = "portunus.validated";

/// The extra that marks a request for one bare value of an enum.
pub(super) const ENUM_EXTRA: &str = "portunus.enum";

/// The extra that marks a part which came from a native history without a signature.
pub(super) const UNSIGNED_EXTRA: &str = "portunus.unsealed";

/// The provider's message about cached content that it does not hold, which it sends as 403.
pub(super) const CACHE_NOT_FOUND: &str = "CachedContent not found (or permission denied)";

/// The maximum number of stop texts of a request,
/// <https://ai.google.dev/api/generate-content#v1beta.GenerationConfig>.
pub(super) const MAX_STOP_TEXTS: usize = 5;

/// Returns the path of a request. Slashes and colons of the model id stay; everything else that
/// could leave the path is escaped.
pub(super) fn path(model: &str, stream: bool) -> String {
    operator_path(model, if stream { "streamGenerateContent?alt=sse" } else { "generateContent" })
}

/// Returns the path of an operator on a model.
pub(crate) fn operator_path(model: &str, operator: &str) -> String {
    let model = model.strip_prefix("models/").unwrap_or(model);
    let mut path = String::from("/v1beta/models");
    for segment in model.split('/') {
        path.push('/');
        // A segment of dots would leave the path (RFC 3986, section 5.2.4). No model id
        // consists of dots.
        if segment.chars().all(|c| c == '.') {
            path.push('_');
            continue;
        }
        for byte in segment.bytes() {
            match byte.is_ascii_alphanumeric() || b"-._~:@".contains(&byte) {
                true => path.push(char::from(byte)),
                false => path.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    path.push(':');
    path.push_str(operator);
    path
}

/// Returns the bytes before and after a chunk: of a line, or of an item of a JSON array.
pub(super) const fn chunk_framing(array: bool, is_first: bool) -> (&'static [u8], &'static [u8]) {
    match (array, is_first) {
        (false, _) => (b"data: ", b"\n\n"),
        (true, true) => (b"[", b"\n"),
        (true, false) => (b",\r\n", b"\n"),
    }
}

/// The thinking levels of the format, by their words in upper case.
pub(super) const LEVELS: [EffortLevel; 4] =
    [EffortLevel::Minimal, EffortLevel::Low, EffortLevel::Medium, EffortLevel::High];

/// Reads a thinking level.
pub(super) fn read_level(word: &str) -> Option<EffortLevel> {
    EffortLevel::parse(&word.to_ascii_lowercase()).filter(|level| LEVELS.contains(level))
}

/// The response modalities and their words.
pub(super) const MODALITIES: [(Modality, &str); 3] =
    [(Modality::Text, "TEXT"), (Modality::Image, "IMAGE"), (Modality::Audio, "AUDIO")];

/// Reads a response modality.
pub(super) fn read_modality(word: &str) -> Option<Modality> {
    by_word(&MODALITIES, &word.to_ascii_uppercase())
}

/// The resolutions of single media and their words.
pub(super) const RESOLUTIONS: [(ImageDetail, &str); 4] = [
    (ImageDetail::Low, "MEDIA_RESOLUTION_LOW"),
    (ImageDetail::Medium, "MEDIA_RESOLUTION_MEDIUM"),
    (ImageDetail::High, "MEDIA_RESOLUTION_HIGH"),
    (ImageDetail::Original, "MEDIA_RESOLUTION_ULTRA_HIGH"),
];

/// <https://ai.google.dev/api/tokens>. Vertex AI takes the fields of a request themselves,
/// <https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/count-tokens>.
static COUNT: CountEndpoint = CountEndpoint {
    path: |model| operator_path(model, "countTokens"),
    fields: &[
        "contents",
        "systemInstruction",
        "system_instruction",
        "tools",
        "generationConfig",
        "generation_config",
    ],
    whole_request: Some(WholeRequest {
        field: "generateContentRequest",
        model_prefix: "models/",
        plain_field: "contents",
    }),
    total: "totalTokens",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_id_cannot_leave_the_path() {
        for (model, expected) in [
            ("gemini-2.5-pro", "/v1beta/models/gemini-2.5-pro:generateContent"),
            ("models/x", "/v1beta/models/x:generateContent"),
            ("acme/x:free", "/v1beta/models/acme/x:free:generateContent"),
            ("../x?y#z", "/v1beta/models/_/x%3Fy%23z:generateContent"),
            ("é %2e", "/v1beta/models/%C3%A9%20%252e:generateContent"),
        ] {
            assert_eq!(path(model, false), expected);
        }
        assert!(path("m", true).ends_with("/m:streamGenerateContent?alt=sse"));
    }
}
