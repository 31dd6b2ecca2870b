//! Everything that only the native format has.

pub(super) mod cached_content;
pub(super) mod calls;
pub(super) mod client_tools;
pub(super) mod count_request;
pub(crate) mod dotted_extras;
pub(super) mod enum_text;
pub(super) mod grounding;
pub(super) mod partial_call;
pub(super) mod provider_cache;
pub(super) mod schema;
pub(super) mod timestamp;
pub(super) mod usage_repair;
