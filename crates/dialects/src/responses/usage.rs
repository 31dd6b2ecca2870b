//! Token counts, read and written.

use canon::Usage;
use serde_json::Value;

use crate::fields::ObjectWriter;
use crate::openai_values::TokenDetails;
use crate::wire_object::wire_object;

wire_object! {
    pub(super) struct ResponsesUsage<'a>("an object") {
        input_tokens: u64,
        input_tokens_details: TokenDetails<'a>,
        output_tokens: u64,
        output_tokens_details: TokenDetails<'a>,
        total_tokens: Value,
        /// Uses of tools as xAI tells them: <https://docs.x.ai/developers/tools/overview>.
        server_side_tool_usage_details: Value,
        /// The price as OpenRouter tells it.
        cost: Value,
        /// The price as xAI tells it.
        cost_in_usd_ticks: Value,
    }

    /// Usage of the provider's own tools.
    pub(super) struct ResponsesToolUsage<'a>("an object") {
        web_search: ResponsesSearchUsage<'a>,
        image_gen: ResponsesImageUsage<'a>,
    }

    pub(super) struct ResponsesSearchUsage<'a>("an object") {
        num_requests: u64,
    }

    pub(super) struct ResponsesImageUsage<'a>("an object") {
        output_tokens: u64,
    }
}

impl ResponsesUsage<'_> {
    /// Converts to canon usage. Both count cached tokens as part of the input.
    pub(super) fn to_canon(&self) -> Usage {
        let input = self.input_tokens_details.as_ref();
        let (prompt, answer) = (self.input_tokens.unwrap_or(0), self.output_tokens.unwrap_or(0));
        let output = self.output_tokens_details.as_ref();
        let thinking = output.and_then(|details| details.reasoning_tokens).unwrap_or_default();
        let total = self.total_tokens.as_ref().and_then(Value::as_u64);
        let usage = Usage {
            input: prompt,
            cache_read: input.and_then(|details| details.cached_tokens).unwrap_or_default(),
            cache_write: input.and_then(|details| details.cache_write_tokens).unwrap_or_default(),
            output: Usage::whole_output(prompt, answer, thinking, total),
            thinking,
            bill: Usage::told_bill(self.cost.as_ref(), self.cost_in_usd_ticks.as_ref()),
            ..Usage::default()
        };
        usage.with_told_tools(self.server_side_tool_usage_details.as_ref())
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

#[cfg(test)]
mod tests {
    use super::super::reply::ResponsesReplyView;
    use super::*;
    use canon::ToolUses;

    fn read(reply: &str) -> Usage {
        let view: ResponsesReplyView<'_> = crate::json::read(reply).unwrap();
        view.usage().unwrap()
    }

    #[test]
    fn tools_are_counted_from_the_items_of_the_output() {
        let items = r#"[{"type":"web_search_call","id":"ws_1","status":"completed"},
            {"type":"file_search_call","id":"fs_1"},{"type":"file_search_call","id":"fs_2"},
            {"type":"code_interpreter_call","id":"ci_1","container_id":"c_1","code":"1"},
            {"type":"code_interpreter_call","id":"ci_2","container_id":"c_1","code":"2"},
            {"type":"image_generation_call","id":"ig_1","result":"AA=="}]"#;
        let counts = r#"{"input_tokens":9,"output_tokens":5}"#;
        let usage = read(&format!(r#"{{"output":{items},"usage":{counts}}}"#));
        let tools = ToolUses { file_searches: 2, code_runs: 1, image_tokens: 6_240 };
        assert_eq!((usage.input, usage.output, usage.searches, usage.tools), (9, 5, 1, tools));
        let told = r#"{"image_gen":{"input_tokens":50,"output_tokens":272},"web_search":{"num_requests":4}}"#;
        let usage = read(&format!(r#"{{"output":{items},"usage":{counts},"tool_usage":{told}}}"#));
        assert_eq!((usage.searches, usage.tools.image_tokens), (4, 272));
    }

    #[test]
    fn counts_of_xai_have_tools_and_thinking() {
        let usage = read(
            r#"{"output":[],"usage":{"input_tokens":199,"output_tokens":1,"total_tokens":520,
            "output_tokens_details":{"reasoning_tokens":320},"cost_in_usd_ticks":233008500,
            "server_side_tool_usage_details":{"web_search_calls":2,"x_search_calls":1,
            "code_interpreter_calls":3,"file_search_calls":1,"document_search_calls":1}}}"#,
        );
        assert_eq!((usage.input, usage.output, usage.thinking, usage.searches), (199, 321, 320, 3));
        assert_eq!((usage.tools.file_searches, usage.tools.code_runs), (2, 3));
        assert_eq!(usage.bill.unwrap().to_string(), "0.023300850");
    }
}
