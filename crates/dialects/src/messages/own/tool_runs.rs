//! Writes tools that a provider of another format ran as this format's server tools.

use canon::{CodeExecution, CodeResult, WebSearch};
use serde_json::Value;

use crate::fields::ObjectWriter;
use crate::messages::names::GATEWAY_ID_PREFIX;

/// The ids of the tool runs of one reply. The id of a run is remembered for its result.
#[derive(Debug, Default)]
pub(in crate::messages) struct ToolRuns {
    /// Makes the ids unique.
    stamp: String,
    count: usize,
    last: Option<String>,
}

impl ToolRuns {
    pub(in crate::messages) fn new(stamp: &str) -> Self {
        Self { stamp: plain(stamp), count: 0, last: None }
    }

    /// Returns the id of a run: the given one with invalid characters replaced, or a new one.
    fn begin(&mut self, id: Option<&str>) -> String {
        self.count += 1;
        let id = match id {
            Some(id) => format!("{GATEWAY_ID_PREFIX}_{}", plain(id)),
            None => format!("{GATEWAY_ID_PREFIX}{}_{}", self.stamp, self.count),
        };
        self.last = Some(id.clone());
        id
    }

    pub(in crate::messages) fn write_code(&mut self, code: &CodeExecution) -> Value {
        let CodeExecution { id, language, code } = code;
        let id = self.begin(id.as_deref());
        let (name, field) = match language.to_ascii_lowercase().as_str() {
            "bash" | "sh" | "shell" => ("bash_code_execution", "command"),
            _ => ("code_execution", "code"),
        };
        write_run(id, name, ObjectWriter::new().set(field, code.as_str()))
    }

    pub(in crate::messages) fn write_result(&mut self, result: &CodeResult) -> Value {
        let CodeResult { id, output, is_error } = result;
        let id = match (id, self.last.take()) {
            (None, Some(last)) => last,
            (id, _) => self.begin(id.as_deref()),
        };
        let (stdout, stderr) =
            if *is_error { ("", output.as_str()) } else { (output.as_str(), "") };
        let content = ObjectWriter::typed("code_execution_result")
            .set("stdout", stdout)
            .set("stderr", stderr)
            .set("return_code", i32::from(*is_error))
            .set("content", Vec::<Value>::new());
        let block = ObjectWriter::typed("code_execution_tool_result");
        block.set("tool_use_id", id).set("content", content).into()
    }

    /// Writes queries and hits, which are two blocks in this format,
    /// <https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/web-search-tool>.
    pub(in crate::messages) fn write_search(&mut self, search: &WebSearch) -> [Value; 2] {
        let WebSearch { id, queries, results } = search;
        let id = self.begin(id.as_deref());
        let hits = results.iter().map(|(url, title)| {
            ObjectWriter::typed("web_search_result")
                .set("url", url.as_str())
                .set("title", title.as_str())
                .set("encrypted_content", "")
                .set("page_age", Value::Null)
        });
        let result = ObjectWriter::typed("web_search_tool_result")
            .set("tool_use_id", id.as_str())
            .set("content", hits.collect::<Vec<_>>());
        let input = ObjectWriter::new().set("query", queries.join("; "));
        [write_run(id, "web_search", input), result.into()]
    }
}

fn write_run(id: String, name: &str, input: ObjectWriter) -> Value {
    let block = ObjectWriter::typed("server_tool_use").set("id", id);
    block.set("name", name).set("input", input).into()
}

/// Replaces the characters that ids of server tools may not have.
fn plain(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}
