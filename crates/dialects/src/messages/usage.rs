//! Token counts and service tier, read and written.

use canon::{ServiceTier, Usage};
use serde_json::{Map, Value};

use super::names::ORIGIN;
use crate::fields::ObjectWriter;
use crate::json;
use crate::service_tier;
use crate::text::BorrowedText;
use crate::wire_object::wire_object;
use crate::wire_value::LooseText;

wire_object! {
    /// Token counts of a reply, or of one of the model runs that it took.
    pub(super) struct MessagesUsage<'a>("an object") {
        kind "type": BorrowedText<'a>,
        input_tokens: u64,
        cache_creation_input_tokens: u64,
        cache_read_input_tokens: u64,
        cache_creation: MessagesCacheCreation<'a>,
        output_tokens: u64,
        output_tokens_details: MessagesOutputDetails<'a>,
        server_tool_use: MessagesServerCounts<'a>,
        iterations kept: Vec<Self>,
        service_tier kept: LooseText<'a>,
        speed kept: LooseText<'a>,
        inference_geo kept: LooseText<'a>,
    }

    pub(super) struct MessagesCacheCreation<'a>("an object") {
        ephemeral_5m_input_tokens: u64,
        ephemeral_1h_input_tokens: u64,
    }

    pub(super) struct MessagesOutputDetails<'a>("an object") {
        thinking_tokens: u64,
    }

    pub(super) struct MessagesServerCounts<'a>("an object") {
        web_search_requests: u64,
    }
}

/// Counts as the format reports them: the input without cached tokens, and the tokens written to the
/// cache including those with the longer lifetime.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MessagesCounts {
    reported: Usage,
    /// Runs that compacted the history or gave advice: they are billed but excluded from the totals.
    beside: Usage,
}

impl MessagesCounts {
    /// Reads counts. A stream reports them in parts; the last value of each is valid. Those of the
    /// output are a guess in its first event.
    pub(super) fn update(&mut self, usage: &MessagesUsage<'_>, is_first_event: bool) {
        let own = &mut self.reported;
        let set = |count: &mut u64, reported: Option<u64>| *count = reported.unwrap_or(*count);
        set(&mut own.input, usage.input_tokens);
        set(&mut own.cache_read, usage.cache_read_input_tokens);
        if let Some(split) = &usage.cache_creation {
            own.cache_write_long = split.ephemeral_1h_input_tokens.unwrap_or_default();
            let short = split.ephemeral_5m_input_tokens.unwrap_or_default();
            own.cache_write = short.saturating_add(own.cache_write_long);
        }
        set(&mut own.cache_write, usage.cache_creation_input_tokens);
        if !is_first_event {
            set(&mut own.output, usage.output_tokens);
            let details = usage.output_tokens_details.as_ref();
            set(&mut own.thinking, details.and_then(|details| details.thinking_tokens));
        }
        let server = usage.server_tool_use.as_ref();
        set(&mut own.searches, server.and_then(|server| server.web_search_requests));
        if let Some(runs) = &usage.iterations {
            self.beside = beside(runs);
        }
    }

    /// Converts to canon, whose input includes cached tokens,
    /// <https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching>.
    pub(super) fn to_canon(self) -> Usage {
        let Usage { input, cache_read, cache_write: written, cache_write_long, .. } = self.reported;
        let cache_write_long = cache_write_long.min(written);
        let own = Usage {
            input: input.saturating_add(cache_read).saturating_add(written),
            cache_write: written - cache_write_long,
            cache_write_long,
            ..self.reported
        };
        combine(own, self.beside, u64::saturating_add)
    }
}

impl MessagesUsage<'_> {
    /// Converts to canon.
    pub(super) fn to_canon(&self) -> Usage {
        let mut counts = MessagesCounts::default();
        counts.update(self, false);
        counts.to_canon()
    }

    /// Returns the service tier, if it is reported.
    pub(super) fn tier(&self) -> Option<ServiceTier> {
        let is_fast = self.speed.as_ref().is_some_and(|speed| speed.0 == "fast");
        let is_us = self.inference_geo.as_ref().is_some_and(|geo| geo.0 == service_tier::US);
        let word = || Some(service_tier::read_tier(ORIGIN, &self.service_tier.as_ref()?.0));
        service_tier::speed_tier(is_fast, is_us).or_else(word)
    }

    /// Returns the fields that canon has no place for: tier, location, the runs, other counts.
    pub(super) fn other_fields(&self) -> Map<String, Value> {
        let mut fields = self.rest.to_map();
        let mut server = self.server_tool_use.as_ref().map(|s| s.rest.to_map()).unwrap_or_default();
        server.retain(|_, count| count.as_u64() != Some(0));
        if !server.is_empty() {
            fields.insert("server_tool_use".to_owned(), Value::Object(server));
        }
        fields
    }
}

/// Returns the sum of the runs that the totals do not have. Advice of another model is billed like the
/// model's own work.
fn beside(runs: &[MessagesUsage<'_>]) -> Usage {
    let is_beside = |run: &&MessagesUsage<'_>| {
        matches!(run.kind.as_deref(), Some("compaction" | "advisor_message"))
    };
    let runs = runs.iter().filter(is_beside);
    runs.fold(Usage::default(), |sum, run| combine(sum, run.to_canon(), u64::saturating_add))
}

fn combine(a: Usage, b: Usage, with: impl Fn(u64, u64) -> u64) -> Usage {
    Usage {
        input: with(a.input, b.input),
        cache_read: with(a.cache_read, b.cache_read),
        cache_write: with(a.cache_write, b.cache_write),
        cache_write_long: with(a.cache_write_long, b.cache_write_long),
        output: with(a.output, b.output),
        ..a
    }
}

/// Writes token counts into an object, together with the provider's other usage fields. Audio and
/// image counts are part of the totals.
pub(super) fn write_usage(
    object: ObjectWriter,
    usage: &Usage,
    other_fields: Option<&Value>,
    whole: bool,
) -> ObjectWriter {
    let runs = other_fields.and_then(|other_fields| other_fields.get("iterations"));
    let runs = runs.map(Value::to_string);
    let runs = runs.as_deref().and_then(|runs| json::read::<Vec<MessagesUsage<'_>>>(runs).ok());
    let Usage {
        input, cache_read, cache_write, cache_write_long, output, thinking, searches, ..
    } = combine(*usage, beside(&runs.unwrap_or_default()), u64::saturating_sub);
    let written = cache_write.saturating_add(cache_write_long);
    let details = (thinking > 0).then(|| ObjectWriter::new().set("thinking_tokens", thinking));
    let fetches = other_fields.and_then(|other_fields| other_fields.get("server_tool_use"));
    let server = (searches > 0 || fetches.is_some()).then(|| {
        let server = ObjectWriter::new().set("web_search_requests", searches);
        server.with_object(fetches).with_default("web_fetch_requests", 0)
    });
    let object = object
        .set("input_tokens", input.saturating_sub(cache_read).saturating_sub(written))
        .set("cache_creation_input_tokens", written)
        .set("cache_read_input_tokens", cache_read)
        .nest_if(whole, "cache_creation", |object| {
            write_cache_split(object, cache_write, cache_write_long)
        })
        .set("output_tokens", output)
        .set_some("output_tokens_details", details)
        .set_some("server_tool_use", server);
    let others = other_fields.and_then(Value::as_object).into_iter().flatten();
    let others = others.filter(|(name, _)| whole || *name == "iterations");
    object.with_fields(others)
}

/// Writes how the tokens that were written to the cache divide by lifetime.
pub(super) fn write_cache_split(object: ObjectWriter, short: u64, long: u64) -> ObjectWriter {
    object.set("ephemeral_5m_input_tokens", short).set("ephemeral_1h_input_tokens", long)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(json: &str) -> MessagesUsage<'_> {
        serde_json::from_str(json).unwrap()
    }

    fn usage(value: Value) -> Usage {
        parsed(&value.to_string()).to_canon()
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
        assert_eq!(usage(write_usage(ObjectWriter::new(), &read, None, true).into()), read);
    }

    #[test]
    fn runs_beside_the_totals_are_counted() {
        let value = json!({"input_tokens": 181, "output_tokens": 8, "iterations": [
            {"type": "compaction", "input_tokens": 60, "output_tokens": 80,
             "cache_read_input_tokens": 1000},
            {"type": "advisor_message", "model": "other", "input_tokens": 40, "output_tokens": 3},
            {"type": "message", "input_tokens": 181, "output_tokens": 8}]});
        let read = usage(value.clone());
        assert_eq!((read.input, read.cache_read, read.output), (1281, 1000, 91));
        let other_fields = Value::Object(parsed(&value.to_string()).other_fields());
        let written = write_usage(ObjectWriter::new(), &read, Some(&other_fields), true);
        let written = Value::from(written);
        assert_eq!(written["input_tokens"], 181);
        assert_eq!(usage(written), read);
    }
}
