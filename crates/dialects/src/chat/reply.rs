//! Description of a chat completion, whole or as a chunk of a stream, and the words of the format.
//!
//! A whole completion is read as a stream of one chunk: its `message` stands where a chunk has a
//! `delta`.
//!
//! See <https://platform.openai.com/docs/api-reference/chat/object> and
//! <https://platform.openai.com/docs/api-reference/chat-streaming/streaming>.

use canon::{ServiceTier, Usage, WireFormat};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

use super::audio::ChatAudio;
use crate::fields::ObjectWriter;
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
}

wire_object! {
    /// One candidate.
    pub(super) struct ChatChoice<'a>("a choice object") {
        index: u32,
        message: ChatReplyMessage<'a>,
        delta: ChatReplyMessage<'a>,
        finish_reason: BorrowedText<'a>,
        logprobs: &'a RawValue,
    }
}

wire_object! {
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
}

wire_object! {
    /// A tool call, or an addition to it.
    pub(super) struct ChatReplyCall<'a>("a call object") {
        index: u32,
        id: BorrowedText<'a>,
        kind "type": AnyValue,
        function: ChatReplyFunction<'a>,
        custom: ChatReplyFunction<'a>,
        extra_content: &'a RawValue,
    }
}

wire_object! {
    /// Name and arguments of a call. Some providers send the arguments as an object.
    pub(super) struct ChatReplyFunction<'a>("an object") {
        name: BorrowedText<'a>,
        arguments: LooseText<'a>,
        input: LooseText<'a>,
    }
}

wire_object! {
    /// Token counts.
    pub(super) struct ChatUsage<'a>("an object") {
        prompt_tokens: u64,
        completion_tokens: u64,
        prompt_tokens_details: ChatPromptDetails<'a>,
        completion_tokens_details: ChatCompletionDetails<'a>,
    }
}

wire_object! {
    pub(super) struct ChatPromptDetails<'a>("an object") {
        cached_tokens: u64,
        cache_write_tokens: u64,
        audio_tokens: u64,
        image_tokens: u64,
        video_tokens: u64,
    }
}

wire_object! {
    pub(super) struct ChatCompletionDetails<'a>("an object") {
        reasoning_tokens: u64,
        audio_tokens: u64,
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

impl ChatUsage<'_> {
    /// Converts to canon usage. Both count cached tokens as part of the input.
    fn to_canon(&self) -> Usage {
        let (none, nothing) = (ChatPromptDetails::default(), ChatCompletionDetails::default());
        let prompt = self.prompt_tokens_details.as_ref().unwrap_or(&none);
        let output = self.completion_tokens_details.as_ref().unwrap_or(&nothing);
        Usage {
            input: self.prompt_tokens.unwrap_or_default(),
            cache_read: prompt.cached_tokens.unwrap_or_default(),
            cache_write: prompt.cache_write_tokens.unwrap_or_default(),
            input_audio: prompt.audio_tokens.unwrap_or_default(),
            input_image: prompt.image_tokens.unwrap_or_default(),
            input_video: prompt.video_tokens.unwrap_or_default(),
            output: self.completion_tokens.unwrap_or_default(),
            thinking: output.reasoning_tokens.unwrap_or_default(),
            output_audio: output.audio_tokens.unwrap_or_default(),
            ..Usage::default()
        }
    }
}

/// Writes token counts. This format has no fields for searches and output images.
pub(super) fn write_usage(usage: &Usage) -> ObjectWriter {
    let Usage {
        input,
        cache_read,
        cache_write,
        cache_write_long,
        input_audio,
        input_image,
        input_video,
        output,
        thinking,
        output_audio,
        output_image: _,
        searches: _,
        images: _,
        seconds: _,
    } = *usage;
    let mut prompt = ObjectWriter::new().set("cached_tokens", cache_read);
    let written = cache_write.saturating_add(cache_write_long);
    if written > 0 {
        prompt = prompt.set("cache_write_tokens", written);
    }
    prompt = prompt.set("audio_tokens", input_audio);
    if input_image > 0 {
        prompt = prompt.set("image_tokens", input_image);
    }
    if input_video > 0 {
        prompt = prompt.set("video_tokens", input_video);
    }
    let completion = ObjectWriter::new()
        .set("reasoning_tokens", thinking)
        .set("audio_tokens", output_audio)
        .set("accepted_prediction_tokens", 0)
        .set("rejected_prediction_tokens", 0);
    ObjectWriter::new()
        .set("prompt_tokens", input)
        .set("completion_tokens", output)
        .set("total_tokens", usage.total())
        .set("prompt_tokens_details", prompt)
        .set("completion_tokens_details", completion)
}

/// Reads a `service_tier`.
pub(super) fn read_tier(word: &str) -> ServiceTier {
    match word {
        "auto" => ServiceTier::Auto,
        "default" => ServiceTier::Standard,
        "flex" => ServiceTier::Flex,
        "priority" => ServiceTier::Priority,
        "fast" => ServiceTier::Fast,
        other => ServiceTier::Other(WireFormat::Chat, other.to_owned()),
    }
}

/// Returns the `service_tier`. `None` if this format has no word for it.
pub(super) fn write_tier(tier: &ServiceTier) -> Option<&str> {
    match tier {
        ServiceTier::Auto => Some("auto"),
        ServiceTier::Standard => Some("default"),
        ServiceTier::Flex => Some("flex"),
        ServiceTier::Priority => Some("priority"),
        ServiceTier::Fast => Some("fast"),
        ServiceTier::Other(WireFormat::Chat | WireFormat::Responses, word) => Some(word),
        ServiceTier::Other(WireFormat::Messages | WireFormat::Native | WireFormat::Images, _) => {
            None
        }
    }
}
