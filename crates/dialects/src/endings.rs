//! The table of endings: the words with which each format ends a turn, and their meaning.
//!
//! A word that no row knows is [`FinishReason::Other`]. It is written as a truncation and never as a
//! finish, because nobody knows if the turn is complete. A failed turn has no word in most formats;
//! it is an error there ([`failed_turn`]).

use canon::{ApiError, ErrorKind, Finish, FinishReason, Losses, WireFormat};

/// Returns the meaning of a format's word. Words of imitations of the format are read as well.
pub(crate) fn read(format: WireFormat, word: &str) -> FinishReason {
    match format {
        WireFormat::Chat => read_chat(word),
        WireFormat::Responses => read_responses(word),
        WireFormat::Messages => read_messages(word),
        WireFormat::Native => read_native(word),
        WireFormat::Images => FinishReason::Other,
    }
}

/// `finish_reason`, <https://platform.openai.com/docs/api-reference/chat/object>.
fn read_chat(word: &str) -> FinishReason {
    match word {
        "stop" | "eos" | "eos_token" | "end_turn" | "complete" | "COMPLETE" => FinishReason::Stop,
        "stop_sequence" => FinishReason::StopSequence,
        "length" | "max_tokens" | "model_length" | "MAX_TOKENS" => FinishReason::Length,
        "tool_calls" | "function_call" | "tool_use" | "tool_call" => FinishReason::ToolCalls,
        "content_filter" => FinishReason::ContentFilter,
        "error" | "abort" | "cancelled" | "insufficient_system_resource" => FinishReason::Malformed,
        _ => FinishReason::Other,
    }
}

/// `incomplete_details.reason`, or else the status,
/// <https://platform.openai.com/docs/api-reference/responses/object>.
fn read_responses(word: &str) -> FinishReason {
    match word {
        "completed" => FinishReason::Stop,
        "max_output_tokens" => FinishReason::Length,
        "content_filter" => FinishReason::ContentFilter,
        "cancelled" | "failed" => FinishReason::Malformed,
        _ => FinishReason::Other,
    }
}

/// `stop_reason`, <https://docs.anthropic.com/en/api/handling-stop-reasons>.
fn read_messages(word: &str) -> FinishReason {
    match word {
        "end_turn" => FinishReason::Stop,
        "stop_sequence" => FinishReason::StopSequence,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "tool_use" => FinishReason::ToolCalls,
        "pause_turn" | "compaction" => FinishReason::Paused,
        "refusal" => FinishReason::ContentFilter,
        _ => FinishReason::Other,
    }
}

/// `finishReason`, <https://ai.google.dev/api/generate-content#FinishReason>. A turn with calls ends
/// with the same word as a text.
fn read_native(word: &str) -> FinishReason {
    match word {
        "STOP" => FinishReason::Stop,
        "MAX_TOKENS" => FinishReason::Length,
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION"
        | "NO_IMAGE"
        | "MODEL_ARMOR" => FinishReason::ContentFilter,
        "OTHER"
        | "IMAGE_OTHER"
        | "MALFORMED_FUNCTION_CALL"
        | "UNEXPECTED_TOOL_CALL"
        | "TOO_MANY_TOOL_CALLS"
        | "MALFORMED_RESPONSE"
        | "MISSING_THOUGHT_SIGNATURE" => FinishReason::Malformed,
        "CONTINUATION" => FinishReason::Paused,
        _ => FinishReason::Other,
    }
}

/// Returns the meaning of a word in a turn with or without tool calls. Some formats and some
/// providers have no word of their own for calls, but clients act on the reason.
pub(crate) fn read_turn(format: WireFormat, word: &str, calls: bool) -> FinishReason {
    match read(format, word) {
        FinishReason::Stop if calls => FinishReason::ToolCalls,
        reason => reason,
    }
}

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

/// Returns a reason in the words of a format.
pub(crate) const fn write(format: WireFormat, reason: FinishReason) -> WrittenEnding {
    use FinishReason::{
        ContentFilter, Length, Malformed, Other, Paused, PromptBlocked, Stop, StopSequence,
        ToolCalls,
    };
    use WrittenEnding::{Failed, Truncated, Word};
    match format {
        WireFormat::Chat => match reason {
            Stop | StopSequence => Word("stop"),
            Length => Word("length"),
            ToolCalls => Word("tool_calls"),
            ContentFilter | PromptBlocked => Word("content_filter"),
            Malformed => Failed,
            Paused | Other => Truncated("length"),
        },
        WireFormat::Responses | WireFormat::Images => match reason {
            Stop | StopSequence | ToolCalls => Word("completed"),
            Length => Word("max_output_tokens"),
            ContentFilter | PromptBlocked => Word("content_filter"),
            Malformed => Failed,
            Paused | Other => Truncated("max_output_tokens"),
        },
        WireFormat::Messages => match reason {
            Stop => Word("end_turn"),
            StopSequence => Word("stop_sequence"),
            Length => Word("max_tokens"),
            ToolCalls => Word("tool_use"),
            ContentFilter | PromptBlocked => Word("refusal"),
            Paused => Word("pause_turn"),
            Malformed => Failed,
            Other => Truncated("max_tokens"),
        },
        WireFormat::Native => match reason {
            Stop | StopSequence | ToolCalls => Word("STOP"),
            Length => Word("MAX_TOKENS"),
            ContentFilter | PromptBlocked => Word("SAFETY"),
            Malformed => Word("OTHER"),
            Paused => Truncated("MAX_TOKENS"),
            Other => Truncated("OTHER"),
        },
    }
}

/// Returns the word to write, and notes a reason that the format cannot express. A failed turn that
/// has no word and is not written as an error is at least a truncated one.
pub(crate) fn write_or_truncated(
    format: WireFormat,
    reason: FinishReason,
    losses: &mut Losses,
) -> &'static str {
    let word = match (write(format, reason), write(format, FinishReason::Length)) {
        (WrittenEnding::Word(word), _) => return word,
        (WrittenEnding::Truncated(word), _)
        | (WrittenEnding::Failed, WrittenEnding::Word(word) | WrittenEnding::Truncated(word)) => {
            word
        }
        (WrittenEnding::Failed, WrittenEnding::Failed) => "",
    };
    losses.add("finish", "the caller's format has no such reason; the turn may be incomplete");
    word
}

/// Returns the error of a turn that failed at its provider and whose caller has no word for that.
/// A caller of the provider's own format gets its word.
pub fn failed_turn(finish: &Finish, caller: WireFormat) -> Option<ApiError> {
    let Finish { reason, raw, stop_sequence: _ } = finish;
    if raw.for_format(caller).is_some() || write(caller, *reason) != WrittenEnding::Failed {
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
