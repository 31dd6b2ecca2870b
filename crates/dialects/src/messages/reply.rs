//! Description of a message, whole or as the events of a stream.
//!
//! A whole message is read as a stream: its beginning, its blocks, its end. See
//! <https://docs.anthropic.com/en/api/messages> and
//! <https://docs.anthropic.com/en/docs/build-with-claude/streaming>.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::usage::MessagesUsage;
use crate::text::BorrowedText;
use crate::wire_object::{raw_value, wire_object, wire_union};
use crate::wire_value::{AnyValue, LooseValue};

wire_object! {
    /// A message: the whole reply, or its beginning in a stream.
    pub(super) struct MessagesReplyView<'a>("a message") {
        id: BorrowedText<'a>,
        kind "type": AnyValue,
        role: AnyValue,
        model: BorrowedText<'a>,
        content: LooseValue<Vec<MessagesReplyBlock<'a>>>,
        stop_reason: BorrowedText<'a>,
        stop_sequence: BorrowedText<'a>,
        stop_details: &'a RawValue,
        usage: LooseValue<Box<MessagesUsage<'a>>>,
        error: &'a RawValue,
    }

    /// The part of a message that is metered. Everything else is the provider's business.
    pub(super) struct MessagesMeterView<'a>("a message", without_rest) {
        content: &'a RawValue,
        stop_reason: BorrowedText<'a>,
        usage: LooseValue<Box<MessagesUsage<'a>>>,
        error: &'a RawValue,
    }

    /// The part of an event that is metered.
    pub(super) struct MessagesMeterEvent<'a>("an event object", without_rest) {
        kind "type": BorrowedText<'a>,
        index: LooseValue<u32>,
        message: LooseValue<MessagesMeterStart<'a>>,
        delta: LooseValue<MessagesMeterDelta<'a>>,
        usage: LooseValue<Box<MessagesUsage<'a>>>,
        error: &'a RawValue,
    }

    pub(super) struct MessagesMeterStart<'a>("a message", without_rest) {
        usage: LooseValue<Box<MessagesUsage<'a>>>,
    }

    pub(super) struct MessagesMeterDelta<'a>("an object") {
        stop_reason: AnyValue,
    }

    /// One event of a stream.
    pub(super) struct MessagesEvent<'a>("an event object") {
        kind "type": BorrowedText<'a>,
        index: u32,
        message: Box<MessagesReplyView<'a>>,
        content_block: MessagesReplyBlock<'a>,
        delta: MessagesDelta<'a>,
        usage: LooseValue<Box<MessagesUsage<'a>>>,
        error: &'a RawValue,
        context_management: &'a RawValue,
    }
}

wire_union! {
    /// A block of a reply, or its beginning. Blocks of other types come in one piece.
    pub(super) enum MessagesReplyBlock<'a>("a block object with a `type`") by "type" {
        Text(MessagesReplyText<'a>) = "text",
        Thinking(MessagesReplyThinking<'a>) = "thinking",
        ToolUse(MessagesReplyCall<'a>) = "tool_use",
    }
}

wire_object! {
    pub(super) struct MessagesReplyText<'a>("a block") {
        text: BorrowedText<'a>,
        citations: Vec<&'a RawValue>,
    }

    pub(super) struct MessagesReplyThinking<'a>("a block") {
        thinking: BorrowedText<'a>,
        signature: BorrowedText<'a>,
    }

    pub(super) struct MessagesReplyCall<'a>("a block") {
        id: BorrowedText<'a>,
        name: BorrowedText<'a>,
        input: &'a RawValue,
    }

    /// The addition of an event to a block or to the message.
    pub(super) struct MessagesDelta<'a>("an object") {
        kind "type": BorrowedText<'a>,
        text: BorrowedText<'a>,
        thinking: BorrowedText<'a>,
        partial_json: BorrowedText<'a>,
        signature: BorrowedText<'a>,
        citation: &'a RawValue,
        stop_reason: BorrowedText<'a>,
        stop_sequence: BorrowedText<'a>,
        stop_details: &'a RawValue,
        container: &'a RawValue,
    }
}

/// The field of a reply with a text about its ending.
pub(super) const STOP_DETAILS: &str = "stop_details";

impl MessagesDelta<'_> {
    /// Returns the fields of an addition of a kind that this version does not know.
    pub(super) fn into_fields(self) -> Map<String, Value> {
        let mut fields = self.rest.to_map();
        for (name, text) in [
            ("text", self.text),
            ("thinking", self.thinking),
            ("partial_json", self.partial_json),
            ("signature", self.signature),
        ] {
            fields.extend(text.map(|text| (name.to_owned(), Value::from(text))));
        }
        fields.extend(self.citation.map(|raw| ("citation".to_owned(), raw_value(raw))));
        fields
    }
}
