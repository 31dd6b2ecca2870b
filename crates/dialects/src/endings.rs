//! The table of endings: the words with which each format ends a turn, and their meaning.
//!
//! A word that no row knows is [`FinishReason::Other`]. It is written as a truncation and never as a
//! finish, because nobody knows if the turn is complete. A failed turn has no word in most formats;
//! it is an error there ([`failed_turn`]).

use FinishReason::{
    ContentFilter, Length, Malformed, Other, Paused, PromptBlocked, Stop, StopSequence, ToolCalls,
};
use WrittenEnding::{Failed, Truncated, Word};
use canon::{ApiError, ErrorKind, Finish, FinishReason, Losses, WireFormat};

/// A reason in the words of one format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrittenEnding {
    /// The format has this word for it.
    Word(&'static str),
    /// The format has no word for it. This one marks the turn as truncated.
    Truncated(&'static str),
    /// The turn failed and the format has no word for that.
    Failed,
}

/// A reason, the way a format writes it, and the words that mean it. Imitations of a format have
/// words of their own.
type EndingRow = (FinishReason, WrittenEnding, &'static [&'static str]);

/// `finish_reason`, <https://platform.openai.com/docs/api-reference/chat/object>.
const CHAT: &[EndingRow] = &[
    (Stop, Word("stop"), &["stop", "eos", "eos_token", "end_turn", "complete", "COMPLETE"]),
    (StopSequence, Word("stop"), &["stop_sequence"]),
    (Length, Word("length"), &["length", "max_tokens", "model_length", "MAX_TOKENS"]),
    (ToolCalls, Word("tool_calls"), &["tool_calls", "function_call", "tool_use", "tool_call"]),
    (ContentFilter, Word("content_filter"), &["content_filter"]),
    (PromptBlocked, Word("content_filter"), &[]),
    (Malformed, Failed, &["error", "abort", "cancelled", "insufficient_system_resource"]),
    (Paused, Truncated("length"), &[]),
    (Other, Truncated("length"), &[]),
];

/// `incomplete_details.reason`, or else the status,
/// <https://platform.openai.com/docs/api-reference/responses/object>.
const RESPONSES: &[EndingRow] = &[
    (Stop, Word("completed"), &["completed"]),
    (StopSequence, Word("completed"), &[]),
    (Length, Word("max_output_tokens"), &["max_output_tokens"]),
    (ToolCalls, Word("completed"), &[]),
    (ContentFilter, Word("content_filter"), &["content_filter"]),
    (PromptBlocked, Word("content_filter"), &[]),
    (Malformed, Failed, &["cancelled", "failed"]),
    (Paused, Truncated("max_output_tokens"), &[]),
    (Other, Truncated("max_output_tokens"), &[]),
];

/// `stop_reason`, <https://docs.anthropic.com/en/api/handling-stop-reasons>.
const MESSAGES: &[EndingRow] = &[
    (Stop, Word("end_turn"), &["end_turn"]),
    (StopSequence, Word("stop_sequence"), &["stop_sequence"]),
    (Length, Word("max_tokens"), &["max_tokens", "model_context_window_exceeded"]),
    (ToolCalls, Word("tool_use"), &["tool_use"]),
    (ContentFilter, Word("refusal"), &["refusal"]),
    (PromptBlocked, Word("refusal"), &[]),
    (Malformed, Failed, &[]),
    (Paused, Word("pause_turn"), &["pause_turn", "compaction"]),
    (Other, Truncated("max_tokens"), &[]),
];

/// `finishReason`, <https://ai.google.dev/api/generate-content#FinishReason>. A turn with calls ends
/// with the same word as a text.
const NATIVE: &[EndingRow] = &[
    (Stop, Word("STOP"), &["STOP"]),
    (StopSequence, Word("STOP"), &[]),
    (Length, Word("MAX_TOKENS"), &["MAX_TOKENS"]),
    (ToolCalls, Word("STOP"), &[]),
    (ContentFilter, Word("SAFETY"), NATIVE_BLOCKS),
    (PromptBlocked, Word("SAFETY"), &[]),
    (Malformed, Word("OTHER"), NATIVE_FAILURES),
    (Paused, Truncated("MAX_TOKENS"), &["CONTINUATION"]),
    (Other, Truncated("OTHER"), &[]),
];

const NATIVE_BLOCKS: &[&str] = &[
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
    "NO_IMAGE",
    "MODEL_ARMOR",
];

const NATIVE_FAILURES: &[&str] = &[
    "OTHER",
    "IMAGE_OTHER",
    "MALFORMED_FUNCTION_CALL",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
    "MALFORMED_RESPONSE",
    "MISSING_THOUGHT_SIGNATURE",
];

const fn rows(format: WireFormat) -> &'static [EndingRow] {
    match format {
        WireFormat::Chat => CHAT,
        WireFormat::Responses | WireFormat::Images => RESPONSES,
        WireFormat::Messages => MESSAGES,
        WireFormat::Native => NATIVE,
    }
}

/// Returns the meaning of a format's word.
pub(crate) fn read(format: WireFormat, word: &str) -> FinishReason {
    let row = rows(format).iter().find(|(.., words)| words.contains(&word));
    row.map_or(Other, |(reason, ..)| *reason)
}

/// Returns the meaning of a word in a turn with or without tool calls. Some formats and some
/// providers have no word of their own for calls, but clients act on the reason.
pub(crate) fn read_turn(format: WireFormat, word: &str, calls: bool) -> FinishReason {
    match read(format, word) {
        Stop if calls => ToolCalls,
        reason => reason,
    }
}

/// Returns a reason in the words of a format.
pub(crate) fn write(format: WireFormat, reason: FinishReason) -> WrittenEnding {
    let row = rows(format).iter().find(|(own, ..)| *own == reason);
    row.map_or(Failed, |(_, written, _)| *written)
}

/// Returns the word to write, and notes a reason that the format cannot express. A failed turn that
/// has no word and is not written as an error is at least a truncated one.
pub(crate) fn write_or_truncated(
    format: WireFormat,
    reason: FinishReason,
    losses: &mut Losses,
) -> &'static str {
    let word = match (write(format, reason), write(format, Length)) {
        (Word(word), _) => return word,
        (Truncated(word), _) | (Failed, Word(word) | Truncated(word)) => word,
        (Failed, Failed) => "",
    };
    losses.add("finish", "the caller's format has no such reason; the turn may be incomplete");
    word
}

/// Returns the error of a turn that failed at its provider and whose caller has no word for that.
/// A caller of the provider's own format gets its word.
pub fn failed_turn(finish: &Finish, caller: WireFormat) -> Option<ApiError> {
    let Finish { reason, raw, stop_sequence: _ } = finish;
    if raw.for_format(caller).is_some() || write(caller, *reason) != Failed {
        return None;
    }
    let message = format!("the model's turn failed ({}), please retry", shown(&raw.to_string()));
    Some(ApiError::new(ErrorKind::Interrupted, message).with_log_note(format!("turn ended: {raw}")))
}

/// Returns a provider's word without its format, and short enough for a message.
fn shown(raw: &str) -> String {
    let word = raw.split_once(':').map_or(raw, |(_, word)| word);
    word.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(64).collect()
}
