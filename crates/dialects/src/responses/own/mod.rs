//! Conventions that only the responses format has.

pub(super) mod partial_response;
pub(super) mod tool_names;
