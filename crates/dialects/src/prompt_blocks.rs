//! The table of prompt blocks: the error codes with which providers refuse a prompt because of its
//! content, and the block reason of the native format for each.

use canon::{ApiError, Finish, FinishReason, RawReason, WireFormat};

/// Error codes of chat, responses and image providers with the native block reason,
/// <https://ai.google.dev/api/generate-content#BlockReason>.
const PROMPT_BLOCKS: &[(&str, &str)] = &[
    ("content_filter", "SAFETY"),
    ("moderation_blocked", "SAFETY"),
    ("responsibleaipolicyviolation", "SAFETY"),
    ("data_inspection_failed", "SAFETY"),
    ("datainspectionfailed", "SAFETY"),
    ("image_content_policy_violation", "IMAGE_SAFETY"),
    ("content_policy_violation", "PROHIBITED_CONTENT"),
    ("invalid_prompt", "PROHIBITED_CONTENT"),
    ("bio_policy", "PROHIBITED_CONTENT"),
    ("misalignment_policy_violation", "PROHIBITED_CONTENT"),
];

/// Returns the end of a reply to a prompt that a provider refused with an error.
pub fn blocked_finish(error: &ApiError) -> Finish {
    // The code is of the chat format or of one that took it over.
    let code = RawReason::new(WireFormat::Chat, error.code().unwrap_or_default());
    Finish::new(FinishReason::PromptBlocked, code)
}

/// Block reason of a prompt whose provider gives no known one.
pub(crate) const OTHER_BLOCK: &str = "OTHER";

/// Returns the native block reason of an error code; `None` if the code does not mean a block.
pub(crate) fn block_reason(code: &str) -> Option<&'static str> {
    let code = code.to_ascii_lowercase();
    if let Some((_, reason)) = PROMPT_BLOCKS.iter().find(|(word, _)| *word == code) {
        return Some(reason);
    }
    (code.contains("policy") || code.contains("moderation")).then_some(OTHER_BLOCK)
}
