//! Constants that the readers and the writers of the native format share.

use canon::WireFormat;

use crate::format_traits::{ALL_MEDIA, FormatTraits};

/// This format, as other formats name it.
pub(super) const ORIGIN: WireFormat = WireFormat::Native;

/// Facts about this format that the rest of the gateway needs.
pub(super) static TRAITS: FormatTraits = FormatTraits {
    conversation_keys: ["\"contents\"", "\"systemInstruction\""],
    returns_signatures: true,
    shows_thoughts: false,
    media_kinds: ALL_MEDIA,
    media_by_url: ALL_MEDIA,
    has_untyped_files: true,
    aborts_broken_streams: true,
    limit_headers: None,
    model_list_path: "/v1beta/models",
    path_ending: None,
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

/// The loss reason of a signature that another provider issued.
pub(super) const FOREIGN_SIGNATURE: &str = "a signature of another provider is not valid here";
