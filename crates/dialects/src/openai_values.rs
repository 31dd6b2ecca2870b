//! Values that the chat and the responses formats write alike, because one vendor documents both.

use canon::{
    CacheBreakpoint, ImageDetail, Logprob, MediaSource, ServiceTier, TokenLogprob, WireFormat,
};
use serde_json::Value;

use crate::media_rules::{self, AcceptedMedia};
use crate::text::BorrowedText;
use crate::wire_object::{UnknownFields, raw_value};
use crate::wire_rule::{RuleResult, refuse_for};

/// The rule of a picture: a URL or a data URI.
pub(crate) fn picture_url(url: &BorrowedText<'_>) -> RuleResult {
    refuse_for(media_rules::url_error(url, AcceptedMedia::Picture))
}

/// The rule of the data of a file.
pub(crate) fn file_data(data: &BorrowedText<'_>) -> RuleResult {
    refuse_for(media_rules::file_data_error(data))
}

/// The rule of base64 data.
pub(crate) fn base64(data: &BorrowedText<'_>) -> RuleResult {
    refuse_for(media_rules::base64_error(data))
}

/// Reads a URL or a data URI (RFC 2397).
pub(crate) fn read_url(url: &str) -> MediaSource {
    match url.strip_prefix("data:").and_then(|rest| rest.split_once(',')) {
        Some((head, data)) => {
            let mime = head.split(';').next().unwrap_or_default();
            let mime = if mime.is_empty() { "application/octet-stream" } else { mime };
            MediaSource::Inline { mime: mime.to_owned(), data: data.to_owned() }
        }
        None => MediaSource::Url { url: url.to_owned(), mime: None },
    }
}

/// Reads the detail of an image. `auto` equals no value.
pub(crate) fn read_detail(word: &str) -> Option<ImageDetail> {
    match word {
        "low" => Some(ImageDetail::Low),
        "high" => Some(ImageDetail::High),
        "original" => Some(ImageDetail::Original),
        _ => None,
    }
}

/// Returns the detail of an image.
pub(crate) const fn write_detail(detail: ImageDetail) -> &'static str {
    match detail {
        ImageDetail::Low => "low",
        ImageDetail::Medium => "auto",
        ImageDetail::High => "high",
        ImageDetail::Original => "original",
    }
}

/// Reads a cache breakpoint: the formats' own field, or `cache_control` of the messages format,
/// which other vendors accept here.
pub(crate) fn read_cache_mark(rest: &mut UnknownFields<'_>) -> Option<CacheBreakpoint> {
    let mark = rest.take("prompt_cache_breakpoint").or_else(|| rest.take("cache_control"))?;
    let mark = raw_value(mark);
    Some(CacheBreakpoint { ttl: mark.get("ttl").and_then(Value::as_str).map(str::to_owned) })
}

/// Reads a list of log probabilities of tokens.
pub(crate) fn read_logprobs(list: &Value) -> Vec<Logprob> {
    let chance = |value: &Value| TokenLogprob {
        token: value.get("token").and_then(Value::as_str).unwrap_or_default().to_owned(),
        id: None,
        logprob: value.get("logprob").and_then(Value::as_f64).unwrap_or_default(),
        bytes: value
            .get("bytes")
            .and_then(Value::as_array)
            .map(|bytes| bytes.iter().filter_map(|b| u8::try_from(b.as_u64()?).ok()).collect()),
    };
    let top = |value: &Value| {
        let list = value.get("top_logprobs").and_then(Value::as_array);
        list.into_iter().flatten().map(chance).collect()
    };
    let list = list.as_array().into_iter().flatten();
    list.map(|token| Logprob { chosen: chance(token), top: top(token) }).collect()
}

/// Reads a `service_tier`.
pub(crate) fn read_tier(origin: WireFormat, word: &str) -> ServiceTier {
    match word {
        "auto" => ServiceTier::Auto,
        "default" => ServiceTier::Standard,
        "flex" => ServiceTier::Flex,
        "priority" => ServiceTier::Priority,
        "fast" => ServiceTier::Fast,
        other => ServiceTier::Other(origin, other.to_owned()),
    }
}

/// Returns the `service_tier`. `None` if the formats have no word for it.
pub(crate) fn write_tier(tier: &ServiceTier) -> Option<&str> {
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
