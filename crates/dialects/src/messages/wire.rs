//! Stream events, token counts and enum values of the messages format.
//!
//! Stream events are parsed into borrowed structs, because there is one per token. Whole requests
//! and replies are read field by field, so that unknown fields are kept.

use canon::{CacheBreakpoint, ExtraFields, Losses, ServiceTier, Usage, WireFormat};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;

use super::names::ORIGIN;
use crate::fields::{self, ObjectWriter};
use crate::{service_tier, text};

/// One stream event.
#[derive(Debug, Deserialize)]
pub(super) struct MessagesEvent<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) index: Option<u32>,
    #[serde(borrow, default)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) content_block: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) delta: Option<MessagesDelta<'a>>,
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) context_management: Option<&'a RawValue>,
}

/// The delta of an event, to a block or to the message.
#[derive(Debug, Default, Deserialize)]
pub(super) struct MessagesDelta<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) text: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) thinking: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) partial_json: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) signature: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) citation: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) stop_reason: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) stop_sequence: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) stop_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) container: Option<&'a RawValue>,
}

/// Token counts. A stream reports them in parts; the last value of each field is valid.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct MessagesUsage {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation: Option<CacheCreation>,
    #[serde(default)]
    output_tokens: Option<u64>,
    #[serde(default)]
    output_tokens_details: Option<OutputDetails>,
    #[serde(default)]
    server_tool_use: Option<ServerToolCounts>,
    #[serde(default)]
    iterations: Option<Vec<UsageIteration>>,
    #[serde(default)]
    service_tier: Option<Value>,
    #[serde(default)]
    speed: Option<Value>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct CacheCreation {
    #[serde(default)]
    ephemeral_5m_input_tokens: Option<u64>,
    #[serde(default)]
    ephemeral_1h_input_tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct OutputDetails {
    #[serde(default)]
    thinking_tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct ServerToolCounts {
    #[serde(default)]
    web_search_requests: Option<u64>,
}

/// One of the model runs that a reply took.
#[derive(Clone, Debug, Default, Deserialize)]
struct UsageIteration {
    #[serde(default)]
    r#type: Option<String>,
    #[serde(flatten)]
    counts: IterationCounts,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct IterationCounts {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation: Option<CacheCreation>,
    #[serde(default)]
    output_tokens: Option<u64>,
}

impl IterationCounts {
    /// Converts to canon's convention. `input_tokens` excludes cached tokens, canon's input
    /// includes them, <https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching>.
    fn read(self) -> Usage {
        let split = self.cache_creation.unwrap_or_default();
        let long = split.ephemeral_1h_input_tokens.unwrap_or_default();
        let short = split.ephemeral_5m_input_tokens.unwrap_or_default();
        let written = self.cache_creation_input_tokens.unwrap_or(short.saturating_add(long));
        let long = long.min(written);
        let cache_read = self.cache_read_input_tokens.unwrap_or_default();
        Usage {
            input: self
                .input_tokens
                .unwrap_or_default()
                .saturating_add(cache_read)
                .saturating_add(written),
            cache_read,
            cache_write: written - long,
            cache_write_long: long,
            output: self.output_tokens.unwrap_or_default(),
            ..Usage::default()
        }
    }
}

impl MessagesUsage {
    /// Parses counts; `None` if they cannot be read.
    pub(super) fn of(raw: &RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    /// Returns the counts of a `message_start`, without its output count. That count is a guess,
    /// which the last event corrects.
    pub(super) fn opening(self) -> Self {
        Self { output_tokens: None, output_tokens_details: None, ..self }
    }

    /// Merges later counts into these.
    pub(super) fn then(self, later: Self) -> Self {
        Self {
            input_tokens: later.input_tokens.or(self.input_tokens),
            cache_creation_input_tokens: later
                .cache_creation_input_tokens
                .or(self.cache_creation_input_tokens),
            cache_read_input_tokens: later.cache_read_input_tokens.or(self.cache_read_input_tokens),
            cache_creation: later.cache_creation.or(self.cache_creation),
            output_tokens: later.output_tokens.or(self.output_tokens),
            output_tokens_details: later.output_tokens_details.or(self.output_tokens_details),
            server_tool_use: later.server_tool_use.or(self.server_tool_use),
            iterations: later.iterations.or(self.iterations),
            service_tier: later.service_tier.or(self.service_tier),
            speed: later.speed.or(self.speed),
        }
    }

    /// Returns the service tier, if it is reported.
    pub(super) fn tier(&self) -> Option<ServiceTier> {
        if self.speed.as_ref().and_then(Value::as_str) == Some("fast") {
            return Some(ServiceTier::Fast);
        }
        let word = self.service_tier.as_ref().and_then(Value::as_str)?;
        Some(service_tier::read_tier(ORIGIN, word))
    }

    /// Converts to canon's convention.
    pub(super) fn read(&self) -> Usage {
        let run = IterationCounts {
            input_tokens: self.input_tokens,
            cache_creation_input_tokens: self.cache_creation_input_tokens,
            cache_read_input_tokens: self.cache_read_input_tokens,
            cache_creation: self.cache_creation,
            output_tokens: self.output_tokens,
        };
        let details = self.output_tokens_details.unwrap_or_default();
        let server = self.server_tool_use.unwrap_or_default();
        let own = Usage {
            thinking: details.thinking_tokens.unwrap_or_default(),
            searches: server.web_search_requests.unwrap_or_default(),
            ..run.read()
        };
        combined(
            own,
            compacting(self.iterations.as_deref().unwrap_or_default()),
            u64::saturating_add,
        )
    }
}

/// Sums the runs that compacted the history: they are billed but excluded from the totals.
fn compacting(iterations: &[UsageIteration]) -> Usage {
    iterations
        .iter()
        .filter(|run| run.r#type.as_deref() == Some("compaction"))
        .fold(Usage::default(), |sum, run| combined(sum, run.counts.read(), u64::saturating_add))
}

fn combined(a: Usage, b: Usage, with: impl Fn(u64, u64) -> u64) -> Usage {
    Usage {
        input: with(a.input, b.input),
        cache_read: with(a.cache_read, b.cache_read),
        cache_write: with(a.cache_write, b.cache_write),
        cache_write_long: with(a.cache_write_long, b.cache_write_long),
        output: with(a.output, b.output),
        ..a
    }
}

/// Returns the usage fields that canon has no place for: tier, location, the runs.
pub(super) fn other_fields(mut usage: Map<String, Value>) -> Map<String, Value> {
    const KNOWN: [&str; 6] = [
        "input_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
        "cache_creation",
        "output_tokens",
        "output_tokens_details",
    ];
    usage.retain(|name, value| !value.is_null() && !KNOWN.contains(&name.as_str()));
    if let Some(Value::Object(server)) = usage.get_mut("server_tool_use") {
        server.shift_remove("web_search_requests");
        server.retain(|_, count| count.as_u64() != Some(0) && !count.is_null());
        if server.is_empty() {
            usage.shift_remove("server_tool_use");
        }
    }
    usage
}

/// Writes token counts together with the provider's other usage fields. Audio and image counts are
/// part of the totals.
pub(super) fn write_usage(
    usage: &Usage,
    other_fields: Option<&Value>,
    whole: bool,
) -> ObjectWriter {
    let runs = other_fields.and_then(|other_fields| other_fields.get("iterations")).cloned();
    let runs: Vec<UsageIteration> =
        runs.and_then(|r| serde_json::from_value(r).ok()).unwrap_or_default();
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
        searches,
        images: _,
        seconds: _,
    } = combined(*usage, compacting(&runs), u64::saturating_sub);
    let written = cache_write.saturating_add(cache_write_long);
    let mut object = ObjectWriter::new()
        .set("input_tokens", input.saturating_sub(cache_read).saturating_sub(written))
        .set("cache_creation_input_tokens", written)
        .set("cache_read_input_tokens", cache_read);
    if whole {
        let tiers = ObjectWriter::new()
            .set("ephemeral_5m_input_tokens", cache_write)
            .set("ephemeral_1h_input_tokens", cache_write_long);
        object = object.set("cache_creation", tiers);
    }
    object = object.set("output_tokens", output);
    if thinking > 0 {
        let details = ObjectWriter::new().set("thinking_tokens", thinking);
        object = object.set("output_tokens_details", details);
    }
    let fetches = other_fields.and_then(|other_fields| other_fields.get("server_tool_use"));
    if searches > 0 || fetches.is_some() {
        let mut server = ObjectWriter::new().set("web_search_requests", searches).into_map();
        for (name, count) in fetches.and_then(Value::as_object).into_iter().flatten() {
            server.insert(name.clone(), count.clone());
        }
        server.entry("web_fetch_requests").or_insert(Value::from(0));
        object = object.set("server_tool_use", server);
    }
    let others = other_fields.and_then(Value::as_object).into_iter().flatten();
    let others = others.filter(|(name, _)| whole || *name == "iterations");
    object.with_fields(others.map(|(name, value)| (name.as_str(), value)))
}

/// Reads a service tier, <https://docs.anthropic.com/en/api/service-tiers>.
pub(super) fn read_tier(word: &str) -> ServiceTier {
    match word {
        "auto" => ServiceTier::Auto,
        "standard_only" => ServiceTier::Standard,
        other => ServiceTier::Other(ORIGIN, other.to_owned()),
    }
}

/// Returns the service tier to write; `None` if the format has no equivalent. `auto` uses the
/// account's priority capacity; the fast tier is set in `speed`.
pub(super) fn write_tier(tier: &ServiceTier) -> Option<&str> {
    match tier {
        ServiceTier::Auto | ServiceTier::Priority => Some("auto"),
        ServiceTier::Standard => Some("standard_only"),
        ServiceTier::Flex | ServiceTier::Fast => None,
        ServiceTier::Other(WireFormat::Messages, word) => Some(word),
        ServiceTier::Other(
            WireFormat::Chat | WireFormat::Responses | WireFormat::Native | WireFormat::Images,
            _,
        ) => None,
    }
}

/// Notes the fields that only another format has.
pub(super) fn note_foreign(extras: &ExtraFields, of: &str, losses: &mut Losses) {
    fields::note_foreign_fields(extras, ORIGIN, of, losses);
}

/// Writes a prompt-cache breakpoint. The format has lifetimes of five minutes and one hour; other
/// lifetimes are rounded up to one of them.
pub(crate) fn write_cache(mark: &CacheBreakpoint) -> Value {
    let CacheBreakpoint { ttl } = mark;
    let ttl = ttl.as_deref().map(|ttl| match minutes(ttl) {
        Some(0..=5) | None => "5m",
        Some(_) => "1h",
    });
    ObjectWriter::new().set("type", "ephemeral").set_some("ttl", ttl).into()
}

fn minutes(ttl: &str) -> Option<u64> {
    let number = |unit: char| ttl.strip_suffix(unit).and_then(|n| n.parse::<u64>().ok());
    number('m')
        .or_else(|| number('h').map(|hours| hours.saturating_mul(60)))
        .or_else(|| number('s').map(|seconds| seconds.div_ceil(60)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn usage(value: Value) -> Usage {
        serde_json::from_value::<MessagesUsage>(value).unwrap().read()
    }

    #[test]
    fn input_includes_cached_tokens() {
        let read = usage(json!({"input_tokens": 10, "cache_creation_input_tokens": 30,
            "cache_read_input_tokens": 100, "output_tokens": 7,
            "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 10},
            "output_tokens_details": {"thinking_tokens": 4},
            "server_tool_use": {"web_search_requests": 2}}));
        assert_eq!((read.input, read.cache_read, read.output), (140, 100, 7));
        assert_eq!((read.cache_write, read.cache_write_long), (20, 10));
        assert_eq!((read.thinking, read.searches), (4, 2));
        assert_eq!(usage(write_usage(&read, None, true).into()), read);
    }

    #[test]
    fn compaction_runs_are_counted() {
        let value = json!({"input_tokens": 181, "output_tokens": 8, "iterations": [
            {"type": "compaction", "input_tokens": 100, "output_tokens": 83,
             "cache_read_input_tokens": 1000},
            {"type": "message", "input_tokens": 181, "output_tokens": 8}]});
        let read = usage(value.clone());
        assert_eq!((read.input, read.cache_read, read.output), (1281, 1000, 91));
        let other_fields = Value::Object(other_fields(value.as_object().unwrap().clone()));
        let written = Value::from(write_usage(&read, Some(&other_fields), true));
        assert_eq!(written["input_tokens"], 181);
        assert_eq!(usage(written), read);
    }

    #[test]
    fn cache_lifetime_is_rounded_up() {
        let ttl =
            |ttl: &str| write_cache(&CacheBreakpoint { ttl: Some(ttl.to_owned()) })["ttl"].clone();
        assert_eq!([ttl("5m"), ttl("30m"), ttl("1h"), ttl("300s")], ["5m", "1h", "1h", "5m"]);
    }
}
