//! Tools that a provider ran, and other blocks that canon expresses only in part.
//!
//! Such a block becomes the nearest part and is kept whole under [`BLOCK_EXTRA`], from which its own
//! format writes it again. A block without any equivalent becomes `PartKind::Foreign`. Runs of
//! another provider are written as this format's server tools.

use canon::{CodeExecution, CodeResult, Part, PartKind, WebSearch};
use serde_json::Value;

use crate::fields::ObjectWriter;
use crate::messages::names::{BLOCK_EXTRA, GATEWAY_ID_PREFIX, HIT_EXTRA, ORIGIN};
use crate::openai_values::read_cache;

/// Reads a block.
pub(crate) fn read(block: Value) -> Part {
    let mut notes = None;
    let kind = match (text_of(&block, "type"), text_of(&block, "name")) {
        ("tool_reference", _) => {
            let name = text_of(&block, "tool_name");
            Part::text(format!("The tool `{name}` is now available.")).kind
        }
        ("search_result", _) => {
            let citations = block.get("citations").filter(|value| !value.is_null());
            notes = citations.map(|citations| ("citations", citations.clone()));
            let texts = texts(block.get("content"));
            let (title, source) = (text_of(&block, "title"), text_of(&block, "source"));
            Part::text(format!("{title}\n{source}\n{texts}")).kind
        }
        ("code_execution_tool_result" | "bash_code_execution_tool_result", _) => {
            let files = block.get("content").and_then(|content| content.get("content"));
            let files = files.filter(|files| files.as_array().is_some_and(|all| !all.is_empty()));
            notes = files.map(|files| ("content", files.clone()));
            PartKind::CodeResult(read_code_result(&block))
        }
        ("web_search_tool_result", _) => {
            let hits = || block.get("content").and_then(Value::as_array).into_iter().flatten();
            let age = hits().filter_map(|hit| hit.get("page_age")).find(|age| !age.is_null());
            notes =
                age.map(|age| (HIT_EXTRA, ObjectWriter::new().set("page_age", age.clone()).into()));
            let found = |hit| (text_of(hit, "url").to_owned(), text_of(hit, "title").to_owned());
            let (id, results) = (id_of(&block, "tool_use_id"), hits().map(found).collect());
            PartKind::WebSearch(WebSearch { id, queries: Vec::new(), results })
        }
        ("server_tool_use", "web_search") => {
            let queries = input_of(&block, "query").map(str::to_owned).into_iter().collect();
            PartKind::WebSearch(WebSearch { id: id_of(&block, "id"), queries, results: Vec::new() })
        }
        ("server_tool_use", "code_execution") => read_code(&block, "python", "code"),
        ("server_tool_use", "bash_code_execution") => read_code(&block, "bash", "command"),
        _ => return Part::new(PartKind::Foreign { origin: ORIGIN, value: block }),
    };
    let mut part = with_block(kind, block);
    if let Some((name, value)) = notes {
        part.extras.insert(ORIGIN, name, value);
    }
    part
}

/// Returns a part that keeps its whole block in the extras.
pub(crate) fn with_block(kind: PartKind, block: Value) -> Part {
    let mut part = Part::new(kind);
    part.cache_breakpoint =
        block.get("cache_control").filter(|mark| !mark.is_null()).map(read_cache);
    part.extras.insert(ORIGIN, BLOCK_EXTRA, block);
    part
}

pub(crate) fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn id_of(block: &Value, name: &str) -> Option<String> {
    block.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn input_of<'a>(block: &'a Value, name: &str) -> Option<&'a str> {
    block.get("input")?.get(name)?.as_str()
}

/// Returns the texts of a list of blocks, or the string in place of the list.
pub(crate) fn texts(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            let texts: Vec<&str> = blocks.iter().map(|block| text_of(block, "text")).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

fn read_code(block: &Value, language: &str, field: &str) -> PartKind {
    PartKind::CodeExecution(CodeExecution {
        id: id_of(block, "id"),
        language: language.to_owned(),
        code: input_of(block, field).unwrap_or_default().to_owned(),
    })
}

fn read_code_result(block: &Value) -> CodeResult {
    let id = id_of(block, "tool_use_id");
    let Some(content) = block.get("content") else {
        return CodeResult { id, ..CodeResult::default() };
    };
    let code = content.get("return_code").and_then(Value::as_i64);
    let output = match content.get("error_code").and_then(Value::as_str) {
        Some(error) => error.to_owned(),
        None => format!("{}{}", text_of(content, "stdout"), text_of(content, "stderr")),
    };
    CodeResult { id, output, is_error: code != Some(0) }
}

/// The ids of the tool runs of one reply. The id of a run is remembered for its result.
#[derive(Debug, Default)]
pub(crate) struct ToolRuns {
    /// Makes the ids unique.
    stamp: String,
    count: usize,
    last: Option<String>,
}

impl ToolRuns {
    pub(crate) fn new(stamp: &str) -> Self {
        Self { stamp: stamp.to_owned(), count: 0, last: None }
    }

    /// Returns the id of a run: the given one with invalid characters replaced, or a new one.
    fn begin(&mut self, id: Option<&str>) -> String {
        self.count += 1;
        let id = match id {
            Some(id) => format!("{GATEWAY_ID_PREFIX}_{}", plain(id)),
            None => format!("{GATEWAY_ID_PREFIX}{}_{}", plain(&self.stamp), self.count),
        };
        self.last = Some(id.clone());
        id
    }

    pub(crate) fn write_code(&mut self, code: &CodeExecution) -> Value {
        let CodeExecution { id, language, code } = code;
        let id = self.begin(id.as_deref());
        let (name, field) = match language.to_ascii_lowercase().as_str() {
            "bash" | "sh" | "shell" => ("bash_code_execution", "command"),
            _ => ("code_execution", "code"),
        };
        write_run(id, name, ObjectWriter::new().set(field, code.as_str()))
    }

    pub(crate) fn write_result(&mut self, result: &CodeResult) -> Value {
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
    pub(crate) fn write_search(&mut self, search: &WebSearch) -> [Value; 2] {
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
