//! Reads blocks of a client's history or a provider's reply into parts.

use canon::{
    CacheBreakpoint, Citation, ExtraFields, Media, MediaKind, MediaSource, Part, PartKind, Thought,
    ToolCall, ToolResult,
};
use serde_json::Value;

use super::content::{MessagesBlock, MessagesSource};
use super::names::{CITATION_EXTRA, ORIGIN};
use super::own::server_tools::{self, text_of, texts, with_block};
use super::own::{client_tools, tool_names};
use super::signatures::{self, ContentAuthor};
use crate::fields::ObjectWriter;
use crate::json;
use crate::openai_values::read_cache;
use crate::text::{BorrowedText, owned};
use crate::wire_object::{UnknownFields, raw_value};
use crate::wire_value::TextOrList;

/// Reads the content of a turn or of a tool result.
pub(super) fn read<const MAX: usize>(
    content: TextOrList<'_, MessagesBlock<'_>, MAX>,
    author: ContentAuthor,
) -> Vec<Part> {
    content.into_list(Part::text, |block| read_block(block, author))
}

/// Reads a block that was put together from pieces.
pub(super) fn read_value(block: &Value, author: ContentAuthor) -> Result<Part, serde_json::Error> {
    Ok(read_block(json::read(&block.to_string())?, author))
}

fn read_block(block: MessagesBlock<'_>, author: ContentAuthor) -> Part {
    let mut signature = None;
    let (kind, mut rest) = match block {
        MessagesBlock::Text(block) => {
            let (text, cited) = (owned(block.text), block.citations.unwrap_or_default());
            let length = if cited.is_empty() { 0 } else { text.chars().count() };
            let cited = cited.into_iter().map(|raw| read_citation(raw_value(raw), length));
            (PartKind::Text { citations: cited.collect(), text }, block.rest)
        }
        MessagesBlock::Image(block) => match read_source(block.source) {
            Ok(source) => (PartKind::Media(Media::new(MediaKind::Image, source)), block.rest),
            Err(source) => {
                let value = media_block("image", source, &block.rest);
                return Part::new(PartKind::Foreign { origin: ORIGIN, value });
            }
        },
        MessagesBlock::Document(mut block) => {
            let name = block.title.map(BorrowedText::into_owned);
            let document =
                |source| PartKind::Media(Media { name, ..Media::new(MediaKind::Document, source) });
            match read_source(block.source) {
                Ok(source) => {
                    block.rest.take("title");
                    (document(source), block.rest)
                }
                Err(source) => {
                    let value = media_block("document", source, &block.rest);
                    return match source_text(&value) {
                        Some(text) => with_block(document(MediaSource::Text(text)), value),
                        None => Part::new(PartKind::Foreign { origin: ORIGIN, value }),
                    };
                }
            }
        }
        MessagesBlock::Thinking(block) => {
            let thought = Thought { text: owned(block.thinking), redacted: false };
            signature = signatures::read(owned(block.signature), author);
            (PartKind::Thought(thought), block.rest)
        }
        MessagesBlock::Redacted(block) => {
            let thought = Thought { text: String::new(), redacted: true };
            signature = signatures::read(owned(block.data), author);
            (PartKind::Thought(thought), block.rest)
        }
        MessagesBlock::ToolUse(block) => {
            let input = block.input.map(|input| json::compact(input.0));
            let call = ToolCall {
                id: tool_names::read(owned(block.id)),
                name: tool_names::read(owned(block.name)),
                arguments: input.unwrap_or_default(),
                custom: false,
            };
            (PartKind::ToolCall(call), block.rest)
        }
        MessagesBlock::ToolResult(block) => {
            let result = ToolResult {
                call_id: tool_names::read(owned(block.tool_use_id)),
                name: None,
                parts: block.content.map(|content| read(content, author)).unwrap_or_default(),
                object: None,
                is_error: block.is_error.unwrap_or(false),
            };
            (PartKind::ToolResult(result), block.rest)
        }
        MessagesBlock::Unknown(fields) => return server_tools::read(fields.to_value()),
    };
    let cache_breakpoint = take_cache(&mut rest);
    let mut part = Part { kind, signature, cache_breakpoint, extras: rest.to_extras(ORIGIN) };
    if author == ContentAuthor::Caller && !part.extras.is_empty() {
        client_tools::join_names(&mut part);
    }
    part
}

/// Takes the prompt-cache breakpoint of a block or a tool,
/// <https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching>.
pub(super) fn take_cache(rest: &mut UnknownFields<'_>) -> Option<CacheBreakpoint> {
    rest.take("cache_control").map(|mark| read_cache(&raw_value(mark)))
}

/// Reads a citation (<https://docs.anthropic.com/en/docs/build-with-claude/citations>). The format
/// gives no positions: a citation covers the whole block.
pub(super) fn read_citation(value: Value, length: usize) -> Citation {
    let text = |names: &[&str]| {
        names.iter().find_map(|name| value.get(name)).and_then(Value::as_str).map(str::to_owned)
    };
    let (url, title) = (text(&["url", "source"]), text(&["title", "document_title"]));
    let quote = text(&["cited_text"]);
    let mut extras = ExtraFields::new();
    extras.insert(ORIGIN, CITATION_EXTRA, value);
    Citation { url, title, quote, span: Some((0, length)), extras }
}

/// Reads the source of media. Returns a source of another type as it is.
fn read_source(source: Option<Box<MessagesSource<'_>>>) -> Result<MediaSource, UnknownFields<'_>> {
    Ok(match source.map(|source| *source) {
        Some(MessagesSource::Base64(source)) => {
            MediaSource::Inline { mime: owned(source.media_type), data: owned(source.data) }
        }
        Some(MessagesSource::Url(source)) => {
            MediaSource::Url { url: owned(source.url), mime: None }
        }
        Some(MessagesSource::File(source)) => {
            MediaSource::File { origin: ORIGIN, id: owned(source.file_id) }
        }
        Some(MessagesSource::Text(source)) => MediaSource::Text(owned(source.data)),
        Some(MessagesSource::Unknown(fields)) => return Err(fields),
        None => return Err(UnknownFields::default()),
    })
}

/// Returns the whole block of a source of another type.
fn media_block(kind: &str, source: UnknownFields<'_>, rest: &UnknownFields<'_>) -> Value {
    let block = ObjectWriter::typed(kind).set("source", source.to_value());
    block.with_fields(&rest.to_map()).into()
}

/// Returns the text of a document that is made of text blocks.
fn source_text(block: &Value) -> Option<String> {
    let source = block.get("source").filter(|s| text_of(s, "type") == "content")?;
    let content = source.get("content");
    let blocks = content.and_then(Value::as_array).into_iter().flatten();
    let is_text = { blocks }.all(|block| text_of(block, "type") == "text");
    is_text.then(|| texts(content))
}
