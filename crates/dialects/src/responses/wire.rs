//! JSON shapes of responses streams, and the words of the format.
//!
//! Events are parsed into a borrowed struct because there is one per token. Items and whole
//! responses are read field by field instead, so that unknown fields are kept.
//!
//! See <https://platform.openai.com/docs/api-reference/responses-streaming>.

use canon::{ImageDetail, ServiceTier, ThinkingDisplay, Usage, WireFormat};
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

use crate::fields::ObjectWriter;
use crate::{json, service_tier, text};

/// One stream event of any type.
#[derive(Debug, Deserialize)]
pub(super) struct ResponsesEvent<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) item_id: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) output_index: Option<u32>,
    #[serde(default)]
    pub(super) content_index: Option<u32>,
    #[serde(default)]
    pub(super) summary_index: Option<u32>,
    /// A string in every event type that is read. Unknown event types may hold anything here.
    #[serde(borrow, default)]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) annotation: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) logprobs: Option<&'a RawValue>,
}

impl ResponsesEvent<'_> {
    /// Returns the text this event adds.
    pub(super) fn text(&self) -> String {
        self.delta.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }
}

/// Fields of a whole response that are metered, also found in the last event of a stream.
#[derive(Debug, Deserialize)]
pub(super) struct FinalResponse<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) status: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) output: Option<&'a RawValue>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    service_tier: Option<&'a RawValue>,
}

impl FinalResponse<'_> {
    /// Service tier, if reported.
    pub(super) fn tier(&self) -> Option<ServiceTier> {
        json::string_value(self.service_tier)
            .map(|word| service_tier::read_tier(WireFormat::Responses, &word))
    }

    /// Usage, if reported.
    pub(super) fn usage(&self) -> Option<Usage> {
        let counts: ResponsesUsage = serde_json::from_str(self.usage?.get()).ok()?;
        let tools = self.tool_usage.and_then(|raw| serde_json::from_str(raw.get()).ok());
        Some(counts.into_canon(tools, self.searches()))
    }

    /// Number of searches in the output.
    fn searches(&self) -> u64 {
        #[derive(Deserialize)]
        struct OutputTypeView<'a> {
            #[serde(borrow, default, deserialize_with = "text::maybe")]
            r#type: Option<Cow<'a, str>>,
        }
        const SEARCH_ITEM: &str = "web_search_call";
        let text = self.output.map(RawValue::get).unwrap_or_default();
        if memmem::find(text.as_bytes(), SEARCH_ITEM.as_bytes()).is_none() {
            return 0;
        }
        let items: Vec<OutputTypeView<'_>> = serde_json::from_str(text).unwrap_or_default();
        items.iter().filter(|item| item.r#type.as_deref() == Some(SEARCH_ITEM)).count() as u64
    }
}

/// Token counts.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct ResponsesUsage {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
    #[serde(default)]
    input_tokens_details: Option<InputTokenDetails>,
    #[serde(default)]
    output_tokens_details: Option<OutputTokenDetails>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct InputTokenDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
    #[serde(default)]
    cache_write_tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct OutputTokenDetails {
    #[serde(default)]
    reasoning_tokens: Option<u64>,
}

/// Usage of the provider's own tools.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct ToolUsage {
    #[serde(default)]
    web_search: Option<SearchUsage>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct SearchUsage {
    #[serde(default)]
    num_requests: Option<u64>,
}

impl ResponsesUsage {
    /// Converts to canon usage. Both count cached tokens as part of the input. Searches are those
    /// the provider counted, or else those in the output.
    pub(super) fn into_canon(self, tools: Option<ToolUsage>, searched: u64) -> Usage {
        let input = self.input_tokens_details.unwrap_or_default();
        let output = self.output_tokens_details.unwrap_or_default();
        let counted = tools.and_then(|tools| tools.web_search?.num_requests);
        Usage {
            input: self.input_tokens.unwrap_or_default(),
            cache_read: input.cached_tokens.unwrap_or_default(),
            cache_write: input.cache_write_tokens.unwrap_or_default(),
            output: self.output_tokens.unwrap_or_default(),
            thinking: output.reasoning_tokens.unwrap_or_default(),
            searches: counted.unwrap_or(searched),
            ..Usage::default()
        }
    }
}

/// Writes token counts. This format has no fields for audio, images and searches.
pub(super) fn write_usage(usage: &Usage) -> ObjectWriter {
    let Usage {
        input,
        cache_read,
        cache_write,
        cache_write_long,
        input_audio: _,
        input_image: _,
        input_video: _,
        output,
        thinking,
        output_audio: _,
        output_image: _,
        searches: _,
        images: _,
        seconds: _,
    } = *usage;
    let details = ObjectWriter::new()
        .set("cached_tokens", cache_read)
        .set("cache_write_tokens", cache_write.saturating_add(cache_write_long));
    ObjectWriter::new()
        .set("input_tokens", input)
        .set("input_tokens_details", details)
        .set("output_tokens", output)
        .set("output_tokens_details", ObjectWriter::new().set("reasoning_tokens", thinking))
        .set("total_tokens", usage.total())
}

/// Reads `reasoning.summary`. `None` for an unknown word.
pub(super) fn read_show(word: &str) -> Option<ThinkingDisplay> {
    match word {
        "auto" => Some(ThinkingDisplay::Auto),
        "concise" => Some(ThinkingDisplay::Concise),
        "detailed" => Some(ThinkingDisplay::Detailed),
        _ => None,
    }
}

/// Returns `reasoning.summary`. Hidden is the default and has no word.
pub(super) const fn write_show(show: ThinkingDisplay) -> Option<&'static str> {
    match show {
        ThinkingDisplay::Hidden => None,
        ThinkingDisplay::Auto => Some("auto"),
        ThinkingDisplay::Concise => Some("concise"),
        ThinkingDisplay::Detailed => Some("detailed"),
    }
}

/// Reads the image detail. `auto` equals no value.
pub(super) fn read_detail(word: &str) -> Option<ImageDetail> {
    match word {
        "low" => Some(ImageDetail::Low),
        "high" => Some(ImageDetail::High),
        "original" => Some(ImageDetail::Original),
        _ => None,
    }
}

/// Returns the image detail.
pub(super) const fn write_detail(detail: ImageDetail) -> &'static str {
    match detail {
        ImageDetail::Low => "low",
        ImageDetail::Medium => "auto",
        ImageDetail::High => "high",
        ImageDetail::Original => "original",
    }
}

/// Reads a `service_tier`.
pub(super) fn read_tier(word: &str) -> ServiceTier {
    match word {
        "auto" => ServiceTier::Auto,
        "default" => ServiceTier::Standard,
        "flex" => ServiceTier::Flex,
        "priority" => ServiceTier::Priority,
        "fast" => ServiceTier::Fast,
        other => ServiceTier::Other(WireFormat::Responses, other.to_owned()),
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
