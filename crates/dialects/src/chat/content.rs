//! Description of the messages of a chat request.
//!
//! See <https://platform.openai.com/docs/api-reference/chat/create> (`messages`).

use serde_json::value::RawValue;

use super::names::IMAGES_FIELD;
use crate::media_rules::{file_data_error, picture_url_error};
use crate::openai_values::AudioInput;
use crate::text::BorrowedText;
use crate::wire_object::{wire_object, wire_union};
use crate::wire_rule::{RuleResult, ensure, ensure_at, one_of, passes, require};
use crate::wire_value::{AnyValue, TextOrList};

const MAX_PARTS: usize = 10_000;

wire_object! {
    pub(super) struct ChatMessage<'a>("a message object") {
        role required: BorrowedText<'a>
            where one_of(&["system", "developer", "user", "assistant", "tool", "function"]),
        content: ChatContent<'a> where no_empty_list,
        name: BorrowedText<'a> where author_name,
        tool_calls: Vec<ChatToolCall<'a>>,
        tool_call_id: BorrowedText<'a>,
        function_call: ChatCalledFunction<'a>,
        refusal: BorrowedText<'a>,
    }
    check ChatMessage::check
}

/// The content of a message.
pub(super) type ChatContent<'a> = TextOrList<'a, ChatPart<'a>, MAX_PARTS>;

wire_union! {
    /// Part of a message.
    pub(super) enum ChatPart<'a>("a part object with a `type`") by "type" {
        Text(ChatTextPart<'a>) = "text",
        Refusal(ChatRefusalPart<'a>) = "refusal",
        Image(ChatImagePart<'a>) = "image_url",
        Video(ChatVideoPart<'a>) = "video_url",
        Audio(ChatAudioPart<'a>) = "input_audio",
        File(ChatFilePart<'a>) = "file",
    }
}

wire_object! {
    pub(super) struct ChatTextPart<'a>("a part") {
        text required: BorrowedText<'a>,
    }

    pub(super) struct ChatRefusalPart<'a>("a part") {
        refusal: BorrowedText<'a>,
    }

    pub(super) struct ChatImagePart<'a>("a part") {
        image_url required: ChatImageUrl<'a>,
    }

    pub(super) struct ChatImageUrl<'a>("an object with a `url`") {
        url required: BorrowedText<'a> where passes(picture_url_error),
        detail: BorrowedText<'a>,
    }

    pub(super) struct ChatVideoPart<'a>("a part") {
        video_url required: ChatVideoUrl<'a>,
    }

    pub(super) struct ChatVideoUrl<'a>("an object with a `url`") {
        url required: BorrowedText<'a>,
        start_offset: BorrowedText<'a>,
        end_offset: BorrowedText<'a>,
        fps: f64,
    }

    pub(super) struct ChatAudioPart<'a>("a part") {
        input_audio required: AudioInput<'a>,
    }

    pub(super) struct ChatFilePart<'a>("a part") {
        file required: ChatFile<'a>,
    }

    pub(super) struct ChatFile<'a>("an object with a `file_data` or a `file_id`") {
        file_data: BorrowedText<'a> where passes(file_data_error),
        file_id: BorrowedText<'a>,
        filename: BorrowedText<'a>,
    }
    check |file| require("file_data", file.file_data.is_some() || file.file_id.is_some());

    pub(super) struct ChatToolCall<'a>("a call object") {
        id: BorrowedText<'a>,
        kind "type": AnyValue,
        index: AnyValue,
        function: ChatCalledFunction<'a>,
        custom: ChatCalledFunction<'a>,
        extra_content: &'a RawValue,
    }
    check ChatToolCall::check;

    /// Name and arguments of a call. The arguments are JSON text, or free text.
    pub(super) struct ChatCalledFunction<'a>("an object with a `name`") {
        name: BorrowedText<'a>,
        arguments: BorrowedText<'a>,
        input: BorrowedText<'a>,
    }
}

impl ChatToolCall<'_> {
    /// Returns the called function or custom tool.
    pub(super) fn called(&self) -> Option<&ChatCalledFunction<'_>> {
        self.custom.as_ref().or(self.function.as_ref())
    }

    fn check(&self) -> RuleResult {
        let name = self.called().and_then(|called| called.name.as_deref());
        ensure(
            self.id.is_some() && name.is_some_and(|name| !name.is_empty()),
            "needs an `id` and a function `name`",
        )
    }
}

impl ChatMessage<'_> {
    fn check(&self) -> RuleResult {
        let has_content = self.content.is_some();
        let (field, is_present, why) = match self.role.as_deref().unwrap_or_default() {
            "assistant" => {
                let has_other_content = self.tool_calls.is_some()
                    || self.function_call.is_some()
                    || self.refusal.is_some()
                    || ["audio", IMAGES_FIELD]
                        .iter()
                        .any(|name| self.rest.get(name).is_some_and(|media| media.get() != "null"));
                let why = "is required unless there are `tool_calls`";
                ("content", has_content || has_other_content, why)
            }
            "tool" if self.tool_call_id.is_none() => {
                ("tool_call_id", false, "is required in a tool message")
            }
            "function" => ("name", self.name.is_some(), "is required in a function message"),
            _ => ("content", has_content, "is required"),
        };
        ensure_at(is_present, field, why)
    }
}

fn no_empty_list(content: &ChatContent<'_>) -> RuleResult {
    let is_empty = matches!(content, TextOrList::List(parts) if parts.is_empty());
    ensure(!is_empty, "must not be an empty list")
}

fn author_name(name: &BorrowedText<'_>) -> RuleResult {
    ensure(
        !(name.len() > 256 || name.chars().any(char::is_control)),
        "must be at most 256 bytes without control characters",
    )
}
