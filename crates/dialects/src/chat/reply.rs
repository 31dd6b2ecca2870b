//! Description of a chat completion, whole or as a chunk of a stream.
//!
//! A whole completion is read as a stream of one chunk: its `message` stands where a chunk has a
//! `delta`.
//!
//! See <https://platform.openai.com/docs/api-reference/chat/object> and
//! <https://platform.openai.com/docs/api-reference/chat-streaming/streaming>.

use canon::Usage;
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use super::own::audio::ChatAudio;
use super::usage::ChatUsage;
use crate::json;
use crate::text::BorrowedText;
use crate::wire_object::wire_object;
use crate::wire_value::{AnyValue, LooseText, LooseValue};

wire_object! {
    /// A completion, or a chunk.
    pub(super) struct ChatReplyView<'a>("a chat completion") {
        id: BorrowedText<'a>,
        object: AnyValue,
        created: i64,
        model: BorrowedText<'a>,
        choices: Vec<ChatChoice<'a>>,
        usage: LooseValue<ChatUsage<'a>>,
        service_tier: LooseText<'a>,
        error: &'a RawValue,
        obfuscation: AnyValue,
    }

    /// The part of a completion or chunk that is metered. Everything else is the provider's business.
    pub(super) struct ChatMeterView<'a>("a chat completion") {
        choices: Vec<ChatMeterChoice<'a>>,
        usage: LooseValue<ChatUsage<'a>>,
        service_tier: LooseText<'a>,
        error: &'a RawValue,
    }

    pub(super) struct ChatMeterChoice<'a>("a choice object") {
        index: LooseValue<u32>,
        message: &'a RawValue,
        delta: &'a RawValue,
        finish_reason: LooseText<'a>,
    }

    /// One candidate.
    pub(super) struct ChatChoice<'a>("a choice object") {
        index: u32,
        message: ChatReplyMessage<'a>,
        delta: ChatReplyMessage<'a>,
        finish_reason: BorrowedText<'a>,
        logprobs: &'a RawValue,
    }

    /// The message of a candidate, or an addition to it.
    pub(super) struct ChatReplyMessage<'a>("a message object") {
        role: AnyValue,
        content: ChatReplyContent<'a>,
        refusal: BorrowedText<'a>,
        reasoning_content: BorrowedText<'a>,
        reasoning: BorrowedText<'a>,
        reasoning_details: &'a RawValue,
        tool_calls: Vec<ChatReplyCall<'a>>,
        function_call: ChatReplyFunction<'a>,
        annotations: &'a RawValue,
        images: &'a RawValue,
        audio: ChatAudio<'a>,
    }

    /// A tool call, or an addition to it.
    pub(super) struct ChatReplyCall<'a>("a call object") {
        index: u32,
        id: BorrowedText<'a>,
        kind "type": AnyValue,
        function: ChatReplyFunction<'a>,
        custom: ChatReplyFunction<'a>,
        extra_content: &'a RawValue,
    }

    /// Name and arguments of a call. Some providers send the arguments as an object.
    pub(super) struct ChatReplyFunction<'a>("an object") {
        name: BorrowedText<'a>,
        arguments: LooseText<'a>,
        input: LooseText<'a>,
    }
}

impl<'a> ChatReplyView<'a> {
    /// Returns true if the chunk precedes the answer: it has neither an id nor any part of it.
    pub(super) fn is_preface(&self) -> bool {
        let is_empty = |text: &Option<BorrowedText<'_>>| text.as_deref().is_none_or(str::is_empty);
        is_empty(&self.id)
            && is_empty(&self.model)
            && self.choices.as_ref().is_none_or(Vec::is_empty)
            && self.usage().is_none()
    }

    /// Returns the token counts.
    pub(super) fn usage(&self) -> Option<Usage> {
        Some(self.usage.as_ref()?.0.as_ref()?.to_canon())
    }
}

/// Content of a message: text, or a list of parts that may include thinking, as Mistral sends it:
/// <https://docs.mistral.ai/capabilities/reasoning/>.
#[derive(Debug, Default)]
pub(super) struct ChatReplyContent<'a> {
    pub(super) thought: String,
    pub(super) text: Cow<'a, str>,
}

impl<'de: 'a, 'a> Deserialize<'de> for ChatReplyContent<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ContentVisitor;
        impl<'de> Visitor<'de> for ContentVisitor {
            type Value = ChatReplyContent<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of parts")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(ChatReplyContent { thought: String::new(), text: Cow::Borrowed(text) })
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(ChatReplyContent { thought: String::new(), text: Cow::Owned(text.to_owned()) })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let (mut thought, mut text) = (String::new(), String::new());
                while let Some(part) = items.next_element::<Value>()? {
                    let plain = part.get("text").and_then(Value::as_str);
                    text.push_str(plain.unwrap_or_default());
                    let inner = part.get("thinking").and_then(Value::as_array);
                    for piece in inner.into_iter().flatten() {
                        let piece = piece.get("text").and_then(Value::as_str);
                        thought.push_str(piece.unwrap_or_default());
                    }
                }
                Ok(ChatReplyContent { thought, text: Cow::Owned(text) })
            }
        }
        from.deserialize_any(ContentVisitor)
    }
}

impl ChatMeterView<'_> {
    /// Returns the token counts.
    pub(super) fn usage(&self) -> Option<Usage> {
        Some(self.usage.as_ref()?.0.as_ref()?.to_canon())
    }
}

impl ChatMeterChoice<'_> {
    /// Returns true if the delta holds anything but a role.
    pub(super) fn has_output(&self) -> bool {
        let fields = self
            .delta
            .and_then(|delta| json::read::<HashMap<Cow<'_, str>, &RawValue>>(delta.get()).ok());
        fields.is_some_and(|fields| {
            let is_empty = |value: &RawValue| matches!(value.get(), "null" | "\"\"" | "[]" | "{}");
            fields.iter().any(|(name, value)| name != "role" && !is_empty(value))
        })
    }
}
