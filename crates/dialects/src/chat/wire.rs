//! JSON shapes of chat streams, and the words of the format.
//!
//! Chunks are parsed into borrowed structs because there is one per token. Whole requests and
//! replies are read field by field instead, so that unknown fields are kept.
//!
//! See <https://platform.openai.com/docs/api-reference/chat-streaming/streaming>.

use canon::{ServiceTier, Usage, WireFormat};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

use super::audio::ChatAudio;
use crate::fields::ObjectWriter;
use crate::text::{self, BorrowedText};

#[derive(Debug, Deserialize)]
pub(super) struct ChatChunk<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) model: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) created: Option<i64>,
    #[serde(borrow, default)]
    pub(super) choices: Option<Vec<ChunkChoice<'a>>>,
    #[serde(default, deserialize_with = "optional_usage")]
    pub(super) usage: Option<ChatUsage>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) service_tier: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) system_fingerprint: Option<Cow<'a, str>>,
}

impl ChatChunk<'_> {
    /// Returns true if the chunk precedes the answer: it has neither an id nor any part of it.
    pub(super) fn is_preface(&self) -> bool {
        let Self { id, model, created: _, choices, usage, .. } = self;
        let is_empty = |text: &Option<Cow<'_, str>>| text.as_deref().is_none_or(str::is_empty);
        is_empty(id)
            && is_empty(model)
            && choices.as_ref().is_none_or(Vec::is_empty)
            && usage.is_none()
    }
}

/// One candidate's part of a chunk.
#[derive(Debug, Deserialize)]
pub(super) struct ChunkChoice<'a> {
    #[serde(default)]
    pub(super) index: u32,
    #[serde(borrow, default)]
    pub(super) delta: Option<ChunkDelta<'a>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) finish_reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) logprobs: Option<&'a RawValue>,
}

/// Additions to one candidate's message.
#[derive(Debug, Default)]
pub(super) struct ChunkDelta<'a> {
    pub(super) content: DeltaContent<'a>,
    pub(super) refusal: Option<BorrowedText<'a>>,
    pub(super) reasoning_content: Option<BorrowedText<'a>>,
    pub(super) reasoning: Option<BorrowedText<'a>>,
    pub(super) reasoning_details: Option<&'a RawValue>,
    pub(super) tool_calls: Option<Vec<ToolCallDelta<'a>>>,
    pub(super) annotations: Option<&'a RawValue>,
    pub(super) images: Option<&'a RawValue>,
    pub(super) audio: Option<ChatAudio<'a>>,
    /// Fields only this provider has.
    pub(super) rest: Vec<(String, Value)>,
}

impl<'de: 'a, 'a> Deserialize<'de> for ChunkDelta<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct DeltaVisitor;
        impl<'de> Visitor<'de> for DeltaVisitor {
            type Value = ChunkDelta<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
                let mut delta = ChunkDelta::default();
                while let Some(BorrowedText(name)) = fields.next_key()? {
                    match &*name {
                        "content" => delta.content = fields.next_value()?,
                        "refusal" => delta.refusal = fields.next_value()?,
                        "reasoning_content" => delta.reasoning_content = fields.next_value()?,
                        "reasoning" => delta.reasoning = fields.next_value()?,
                        "reasoning_details" => delta.reasoning_details = fields.next_value()?,
                        "tool_calls" => delta.tool_calls = fields.next_value()?,
                        "annotations" => delta.annotations = fields.next_value()?,
                        "images" => delta.images = fields.next_value()?,
                        "audio" => delta.audio = fields.next_value()?,
                        "role" => {
                            fields.next_value::<IgnoredAny>()?;
                        }
                        _ => {
                            if let Some(value) = fields.next_value::<Option<Value>>()? {
                                delta.rest.push((name.into_owned(), value));
                            }
                        }
                    }
                }
                Ok(delta)
            }
        }
        from.deserialize_map(DeltaVisitor)
    }
}

/// Content of a delta: text, or a list of parts that may include thinking, as Mistral sends it:
/// <https://docs.mistral.ai/capabilities/reasoning/>.
#[derive(Debug, Default)]
pub(super) enum DeltaContent<'a> {
    #[default]
    Nothing,
    Text(Cow<'a, str>),
    Parts {
        thought: String,
        text: String,
    },
}

impl<'de: 'a, 'a> Deserialize<'de> for DeltaContent<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ContentVisitor;
        impl<'de> Visitor<'de> for ContentVisitor {
            type Value = DeltaContent<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of parts")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(DeltaContent::Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(DeltaContent::Text(Cow::Owned(text.to_owned())))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(DeltaContent::Nothing)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let (mut thought, mut text) = (String::new(), String::new());
                while let Some(part) = items.next_element::<Value>()? {
                    append_content_part(&part, &mut thought, &mut text);
                }
                Ok(DeltaContent::Parts { thought, text })
            }
        }
        from.deserialize_any(ContentVisitor)
    }
}

/// Appends one part of a content list to the thinking or to the text.
pub(super) fn append_content_part(part: &Value, thought: &mut String, text: &mut String) {
    let plain = part.get("text").and_then(Value::as_str);
    text.push_str(plain.unwrap_or_default());
    let inner = part.get("thinking").and_then(Value::as_array);
    for piece in inner.into_iter().flatten() {
        thought.push_str(piece.get("text").and_then(Value::as_str).unwrap_or_default());
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct ToolCallDelta<'a> {
    #[serde(default)]
    pub(super) index: Option<u32>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) function: Option<FunctionDelta<'a>>,
    #[serde(borrow, default)]
    pub(super) custom: Option<FunctionDelta<'a>>,
    #[serde(borrow, default)]
    pub(super) extra_content: Option<&'a RawValue>,
}

/// Name and arguments of a tool call, in pieces.
#[derive(Debug, Default, Deserialize)]
pub(super) struct FunctionDelta<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) arguments: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) input: Option<Cow<'a, str>>,
}

/// Token counts.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct ChatUsage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<PromptTokenDetails>,
    #[serde(default)]
    completion_tokens_details: Option<CompletionTokenDetails>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct PromptTokenDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
    #[serde(default)]
    cache_write_tokens: Option<u64>,
    #[serde(default)]
    audio_tokens: Option<u64>,
    #[serde(default)]
    image_tokens: Option<u64>,
    #[serde(default)]
    video_tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct CompletionTokenDetails {
    #[serde(default)]
    reasoning_tokens: Option<u64>,
    #[serde(default)]
    audio_tokens: Option<u64>,
}

/// Deserializes token counts. Malformed counts are ignored rather than failing the whole reply.
pub(super) fn optional_usage<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<ChatUsage>, D::Error> {
    let raw = Option::<&RawValue>::deserialize(from)?;
    Ok(raw.and_then(|raw| serde_json::from_str(raw.get()).ok()))
}

impl ChatUsage {
    /// Converts to canon usage. Both count cached tokens as part of the input.
    pub(super) fn into_canon(self) -> Usage {
        let prompt = self.prompt_tokens_details.unwrap_or_default();
        let output = self.completion_tokens_details.unwrap_or_default();
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
