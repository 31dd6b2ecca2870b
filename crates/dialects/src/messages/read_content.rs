//! Reads blocks of a client's history or a provider's reply into parts.
//!
//! Canon expresses some blocks only in part, such as a search with its encrypted results. Such a
//! block becomes the nearest part and is kept whole under [`BLOCK_EXTRA`], from which its own
//! format writes it again. A block without any equivalent becomes `PartKind::Foreign`.

use canon::{
    ApiError, CacheBreakpoint, Citation, CodeExecution, CodeResult, ExtraFields, Media, MediaKind,
    MediaSource, Part, PartKind, Thought, ToolCall, ToolResult, WebSearch,
};
use serde_json::{Map, Value};

use super::names::{BLOCK_EXTRA, CITATION_EXTRA, HIT_EXTRA, ORIGIN};
use super::signatures::{self, BlockAuthor};
use super::{tool_names, wire};
use crate::fields::{JsonPath, ObjectReader, ObjectWriter};
use crate::json_tree::JsonTree;

/// Reads a turn's `content`: a string, or blocks.
pub(super) fn content(
    fields: &mut ObjectReader<'_>,
    side: BlockAuthor,
) -> Result<Vec<Part>, ApiError> {
    let path = fields.path().key("content");
    match fields.take_borrowed("content") {
        None => Ok(Vec::new()),
        Some(JsonTree::Text(text)) => Ok(vec![Part::text(text)]),
        Some(JsonTree::List(blocks)) => read_list(blocks, &path, side),
        Some(_) => Err(path.fault("`content` must be a string or a list of blocks")),
    }
}

/// Reads a list of blocks.
pub(super) fn read_list(
    blocks: Vec<JsonTree<'_>>,
    path: &JsonPath<'_>,
    side: BlockAuthor,
) -> Result<Vec<Part>, ApiError> {
    let blocks = blocks.into_iter().enumerate();
    let parts = blocks.map(|(at, block)| match block.plain_text() {
        Some(text) => Ok(Part::text(text)),
        None => read(block.into_value(), &path.item(at), side),
    });
    parts.collect()
}

/// Reads one block.
pub(super) fn read(value: Value, path: &JsonPath<'_>, side: BlockAuthor) -> Result<Part, ApiError> {
    let word = value.get("type").and_then(Value::as_str).map(str::to_owned);
    match word.as_deref() {
        Some("text") => text(value, path),
        Some("image") => image(value, path),
        Some("document") => document(value, path),
        Some("thinking" | "redacted_thinking") => thought(value, path, side),
        Some("tool_use") => tool_use(value, path),
        Some("tool_result") => tool_result(value, path, side),
        Some("tool_reference") => {
            let name = text_of(&value, "tool_name");
            Ok(with_block(Part::text(format!("The tool `{name}` is now available.")), value))
        }
        Some("search_result") => {
            let all = format!(
                "{}\n{}\n{}",
                text_of(&value, "title"),
                text_of(&value, "source"),
                texts(value.get("content"))
            );
            let citations = value.get("citations").filter(|value| !value.is_null()).cloned();
            let mut part = with_block(Part::text(all), value);
            if let Some(citations) = citations {
                part.extras.insert(ORIGIN, "citations", citations);
            }
            Ok(part)
        }
        Some("server_tool_use" | "web_search_tool_result") => Ok(server_tool(value)),
        Some("code_execution_tool_result" | "bash_code_execution_tool_result") => {
            let files = value.get("content").and_then(|content| content.get("content")).cloned();
            let files = files.filter(|files| files.as_array().is_some_and(|list| !list.is_empty()));
            let mut part = with_block(Part::new(PartKind::CodeResult(outcome(&value))), value);
            if let Some(files) = files {
                part.extras.insert(ORIGIN, "content", files);
            }
            Ok(part)
        }
        Some(_) => Ok(Part::new(PartKind::Foreign { origin: ORIGIN, value })),
        None => Err(path.fault("a block must be an object with a `type`")),
    }
}

/// Keeps the whole block in the extras of the part.
fn with_block(mut part: Part, block: Value) -> Part {
    part.cache_breakpoint =
        block.get("cache_control").filter(|mark| !mark.is_null()).map(wire::read_cache);
    part.extras.insert(ORIGIN, BLOCK_EXTRA, block);
    part
}

fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the texts of a list of blocks, or the string in place of the list.
fn texts(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            let texts: Vec<&str> = blocks.iter().map(|block| text_of(block, "text")).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

fn cache(fields: &mut ObjectReader<'_>) -> Option<CacheBreakpoint> {
    fields.take("cache_control").as_ref().map(wire::read_cache)
}

/// Builds the part with the remaining fields of its block.
fn finish_part(kind: PartKind, mut fields: ObjectReader<'_>) -> Part {
    fields.take("type");
    let cache = cache(&mut fields);
    Part { kind, signature: None, cache_breakpoint: cache, extras: fields.extras(ORIGIN) }
}

fn text(value: Value, path: &JsonPath<'_>) -> Result<Part, ApiError> {
    let mut fields = ObjectReader::new(value, path)?;
    let text = fields.required("text")?;
    let length = text.chars().count();
    let citations = fields.list("citations")?.unwrap_or_default();
    let citations = citations.into_iter().map(|value| citation(value, length)).collect();
    Ok(finish_part(PartKind::Text { text, citations }, fields))
}

/// Reads a citation (<https://docs.anthropic.com/en/docs/build-with-claude/citations>). The format
/// gives no positions: a citation covers the whole block.
pub(super) fn citation(value: Value, length: usize) -> Citation {
    let text = |names: &[&str]| {
        names.iter().find_map(|name| value.get(name)).and_then(Value::as_str).map(str::to_owned)
    };
    let (url, title) = (text(&["url", "source"]), text(&["title", "document_title"]));
    let quote = text(&["cited_text"]);
    let mut extras = ExtraFields::new();
    extras.insert(ORIGIN, CITATION_EXTRA, value);
    Citation { url, title, quote, span: Some((0, length)), extras }
}

fn image(value: Value, path: &JsonPath<'_>) -> Result<Part, ApiError> {
    if !is_known_source(&value) {
        return Ok(Part::new(PartKind::Foreign { origin: ORIGIN, value }));
    }
    let mut fields = ObjectReader::new(value, path)?;
    let source = source(&mut fields)?;
    let media = Media { kind: MediaKind::Image, source, name: None, detail: None, clip: None };
    Ok(finish_part(PartKind::Media(media), fields))
}

fn document(value: Value, path: &JsonPath<'_>) -> Result<Part, ApiError> {
    let content = value.get("source").filter(|source| text_of(source, "type") == "content");
    if let Some(source) = content {
        let inside = source.get("content");
        let only_text = inside
            .and_then(Value::as_array)
            .is_none_or(|blocks| blocks.iter().all(|block| text_of(block, "type") == "text"));
        if only_text {
            let source = MediaSource::Text(texts(inside));
            let title = value.get("title").and_then(Value::as_str).map(str::to_owned);
            return Ok(with_block(
                Part::new(PartKind::Media(document_media(source, title))),
                value,
            ));
        }
    }
    if !is_known_source(&value) {
        return Ok(Part::new(PartKind::Foreign { origin: ORIGIN, value }));
    }
    let mut fields = ObjectReader::new(value, path)?;
    let source = source(&mut fields)?;
    let title = fields.string("title")?;
    Ok(finish_part(PartKind::Media(document_media(source, title)), fields))
}

const fn document_media(source: MediaSource, name: Option<String>) -> Media {
    Media { kind: MediaKind::Document, source, name, detail: None, clip: None }
}

fn is_known_source(block: &Value) -> bool {
    block
        .get("source")
        .is_some_and(|source| matches!(text_of(source, "type"), "base64" | "url" | "file" | "text"))
}

fn source(fields: &mut ObjectReader<'_>) -> Result<MediaSource, ApiError> {
    let path = fields.path().key("source");
    let mut source = ObjectReader::of(fields.object("source")?.unwrap_or_default(), &path);
    Ok(match source.required("type")?.as_str() {
        "base64" => MediaSource::Inline {
            mime: source.required("media_type")?,
            data: source.required("data")?,
        },
        "url" => MediaSource::Url { url: source.required("url")?, mime: None },
        "file" => MediaSource::File { origin: ORIGIN, id: source.required("file_id")? },
        _ => MediaSource::Text(source.required("data")?),
    })
}

fn thought(value: Value, path: &JsonPath<'_>, side: BlockAuthor) -> Result<Part, ApiError> {
    let mut fields = ObjectReader::new(value, path)?;
    let redacted = fields.required("type")? == "redacted_thinking";
    let text = if redacted { None } else { fields.string("thinking")? };
    let token = fields.string(if redacted { "data" } else { "signature" })?;
    let seal = token.and_then(|token| signatures::read(token, side));
    let thought = Thought { text: text.unwrap_or_default(), redacted };
    Ok(finish_part(PartKind::Thought(thought), fields).with_signature(seal))
}

fn tool_use(value: Value, path: &JsonPath<'_>) -> Result<Part, ApiError> {
    let mut fields = ObjectReader::new(value, path)?;
    let id = tool_names::read(fields.required("id")?);
    let name = tool_names::read(fields.required("name")?);
    let arguments = fields.object("input")?.map_or_else(|| "{}".to_owned(), to_text);
    Ok(finish_part(PartKind::ToolCall(ToolCall { id, name, arguments, custom: false }), fields))
}

fn to_text(object: Map<String, Value>) -> String {
    Value::Object(object).to_string()
}

fn tool_result(value: Value, path: &JsonPath<'_>, side: BlockAuthor) -> Result<Part, ApiError> {
    let mut fields = ObjectReader::new(value, path)?;
    let call = tool_names::read(fields.required("tool_use_id")?);
    let failed = fields.flag("is_error")?.unwrap_or(false);
    let parts = content(&mut fields, side)?;
    let result = ToolResult { call_id: call, name: None, parts, object: None, is_error: failed };
    Ok(finish_part(PartKind::ToolResult(result), fields))
}

/// Reads a block of a tool that the provider ran. Canon has parts for searches and code only.
fn server_tool(value: Value) -> Part {
    let id = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let input =
        |name: &str| value.get("input").and_then(|input| input.get(name)).and_then(Value::as_str);
    let code = |language: &str, code: &str| {
        let (language, code) = (language.to_owned(), code.to_owned());
        PartKind::CodeExecution(CodeExecution { id: id("id"), language, code })
    };
    let kind = match (text_of(&value, "type"), text_of(&value, "name")) {
        ("web_search_tool_result", _) => {
            let found = value.get("content").and_then(Value::as_array).into_iter().flatten();
            let found =
                found.map(|hit| (text_of(hit, "url").to_owned(), text_of(hit, "title").to_owned()));
            PartKind::WebSearch(WebSearch {
                id: id("tool_use_id"),
                queries: Vec::new(),
                results: found.collect(),
            })
        }
        (_, "web_search") => PartKind::WebSearch(WebSearch {
            id: id("id"),
            queries: input("query").map(str::to_owned).into_iter().collect(),
            results: Vec::new(),
        }),
        (_, "code_execution") => code("python", input("code").unwrap_or_default()),
        (_, "bash_code_execution") => code("bash", input("command").unwrap_or_default()),
        _ => return Part::new(PartKind::Foreign { origin: ORIGIN, value }),
    };
    let mut part = Part::new(kind);
    let hits = value.get("content").and_then(Value::as_array).into_iter().flatten();
    if let Some(age) = hits.filter_map(|hit| hit.get("page_age")).find(|age| !age.is_null()) {
        let note = ObjectWriter::new().set("page_age", age.clone());
        part.extras.insert(ORIGIN, HIT_EXTRA, note.into());
    }
    with_block(part, value)
}

fn outcome(block: &Value) -> CodeResult {
    let id = block.get("tool_use_id").and_then(Value::as_str).map(str::to_owned);
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
