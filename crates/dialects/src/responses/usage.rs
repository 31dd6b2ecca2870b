//! Token counts, read and written.

use canon::Usage;

use crate::fields::ObjectWriter;
use crate::openai_values::TokenDetails;
use crate::wire_object::wire_object;

wire_object! {
    pub(super) struct ResponsesUsage<'a>("an object") {
        input_tokens: u64,
        input_tokens_details: TokenDetails<'a>,
        output_tokens: u64,
        output_tokens_details: TokenDetails<'a>,
    }

    /// Usage of the provider's own tools.
    pub(super) struct ResponsesToolUsage<'a>("an object") {
        web_search: ResponsesSearchUsage<'a>,
    }

    pub(super) struct ResponsesSearchUsage<'a>("an object") {
        num_requests: u64,
    }
}

impl ResponsesUsage<'_> {
    /// Converts to canon usage. Both count cached tokens as part of the input.
    pub(super) fn to_canon(&self) -> Usage {
        let input = self.input_tokens_details.as_ref();
        let output = self.output_tokens_details.as_ref();
        Usage {
            input: self.input_tokens.unwrap_or_default(),
            cache_read: input.and_then(|details| details.cached_tokens).unwrap_or_default(),
            cache_write: input.and_then(|details| details.cache_write_tokens).unwrap_or_default(),
            output: self.output_tokens.unwrap_or_default(),
            thinking: output.and_then(|details| details.reasoning_tokens).unwrap_or_default(),
            ..Usage::default()
        }
    }
}

/// Writes token counts. This format has no fields for audio, images and searches.
pub(super) fn write_usage(usage: &Usage) -> ObjectWriter {
    let Usage { input, cache_read, cache_write, cache_write_long, output, thinking, .. } = *usage;
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
