//! Writes parts as the blocks of a reply.

use canon::{
    Citation, CodeExecution, CodeResult, Losses, Media, MediaKind, MediaSource, Part, PartKind,
    Thought, WebSearch,
};
use serde_json::Value;

use super::names::{BLOCK_EXTRA, CITATION_EXTRA, GATEWAY_ID_PREFIX, ORIGIN};
use super::signatures::{self, OpenText, SignatureTarget};
use super::write_content;
use crate::fields::{ObjectWriter, note_citation, note_foreign_fields};

const FOREIGN: &str = "a part only the provider's format has";

/// Writes the parts of one reply. The id of a search or a code run is remembered for its result.
#[derive(Debug)]
pub(super) struct ReplyBlocks {
    stamp: String,
    made_ids: usize,
    last: Option<String>,
    /// The text of the last block.
    open_text: Option<OpenText>,
}

impl ReplyBlocks {
    /// Starts a reply; `stamp` makes its ids unique.
    pub(super) fn new(stamp: &str) -> Self {
        Self { stamp: plain(stamp), made_ids: 0, last: None, open_text: None }
    }

    /// Writes all parts of a reply.
    pub(super) fn write_all(&mut self, parts: Vec<Part>, losses: &mut Losses) -> Vec<Value> {
        let mut blocks = Vec::with_capacity(parts.len());
        let mut parts = parts.into_iter().peekable();
        while let Some(mut part) = parts.next() {
            if self.extend_text(&part, &mut blocks, losses) {
                continue;
            }
            // A text that only a signature split stays one block.
            let parted = matches!(&part.kind, PartKind::Text { text, .. } if !text.is_empty())
                && part.extras.get(ORIGIN, BLOCK_EXTRA).is_none()
                && parts.peek().is_some_and(|next| next.as_text().is_some());
            let seal = if parted { part.signature.take() } else { None };
            let at = blocks.len();
            self.write(&part, &mut blocks, losses);
            if blocks.len() == at {
                continue;
            }
            if let Some(before) = self.open_text.take() {
                blocks.splice(at..at, before.carriers());
            }
            if let PartKind::Text { text, .. } | PartKind::Refusal(text) = &part.kind
                && blocks.last().is_some_and(is_text)
            {
                let open_text = self.open_text.insert(OpenText::default());
                open_text.add(text, seal);
            }
        }
        blocks
    }

    /// Appends a part to the text of the last block, if it continues it. Returns true if it did.
    fn extend_text(&mut self, part: &Part, blocks: &mut [Value], losses: &mut Losses) -> bool {
        let Part {
            kind: PartKind::Text { text, citations },
            signature: seal,
            cache_breakpoint: _,
            extras,
        } = part
        else {
            return false;
        };
        let Some(open_text) =
            self.open_text.as_mut().filter(|open_text| open_text.continues_with(seal.is_some()))
        else {
            return false;
        };
        let Some(Value::Object(block)) = blocks.last_mut() else { return false };
        if extras.for_format(ORIGIN).is_some() {
            return false;
        }
        note_foreign_fields(extras, ORIGIN, "part", losses);
        if let Some(Value::String(written)) = block.get_mut("text") {
            written.push_str(text);
        }
        open_text.add(text, seal.clone());
        if !citations.is_empty() {
            let cited = citations.iter();
            let cited = cited.filter_map(|citation| write_citation(citation, text, losses));
            let all = block.entry("citations").or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(all) = all {
                all.extend(cited);
            }
        }
        true
    }

    /// Writes one part: its block, preceded by a carrier if the block has no field for the
    /// signature.
    pub(super) fn write(&mut self, part: &Part, out: &mut Vec<Value>, losses: &mut Losses) {
        let Part { kind, signature: seal, cache_breakpoint: _, extras } = part;
        note_foreign_fields(extras, ORIGIN, "part", losses);
        let at = out.len();
        if let Some(block) = extras.get(ORIGIN, BLOCK_EXTRA) {
            out.push(block.clone());
        } else {
            match kind {
                PartKind::Text { text, citations } if !text.is_empty() => {
                    out.push(text_block(text, citations, part, losses));
                }
                PartKind::Refusal(text) if !text.is_empty() => {
                    out.push(text_block(text, &[], part, losses));
                }
                PartKind::Text { .. } | PartKind::Refusal(_) => {
                    out.extend(
                        seal.iter().map(|seal| signatures::carrier(seal, &SignatureTarget::Text)),
                    );
                    return;
                }
                PartKind::Thought(thought) => {
                    out.extend(write_thought(thought, part, losses));
                    return;
                }
                PartKind::ToolCall(call) => {
                    if let Some(seal) = seal {
                        out.push(signatures::carrier(seal, &SignatureTarget::Call(&call.id)));
                    }
                    out.push(write_content::write_call(call).with_extras(extras, ORIGIN).into());
                    return;
                }
                PartKind::Media(media) => out.extend(image_markdown(media, part, losses)),
                PartKind::CodeExecution(code) => out.push(self.code(code)),
                PartKind::CodeResult(outcome) => out.push(self.outcome(outcome)),
                PartKind::WebSearch(search) => self.search(search, out),
                PartKind::Foreign { origin, value } if *origin == ORIGIN => out.push(value.clone()),
                PartKind::ToolResult(_) | PartKind::Foreign { .. } => {
                    losses.add("reply.part", FOREIGN)
                }
            }
        }
        if let Some(seal) = seal {
            if out.len() > at {
                out.insert(at, signatures::carrier(seal, &SignatureTarget::Next));
            } else {
                losses.add("part.seal", "the part of this signature could not be written");
            }
        }
    }

    /// Returns the id of a tool run: the given one with invalid characters replaced, or a new one.
    fn begin(&mut self, id: Option<&str>) -> String {
        self.made_ids += 1;
        let id = match id {
            Some(id) => format!("{GATEWAY_ID_PREFIX}_{}", plain(id)),
            None => format!("{GATEWAY_ID_PREFIX}{}_{}", self.stamp, self.made_ids),
        };
        self.last = Some(id.clone());
        id
    }

    fn code(&mut self, code: &CodeExecution) -> Value {
        let CodeExecution { id, language, code } = code;
        let id = self.begin(id.as_deref());
        let (name, field) = match language.to_ascii_lowercase().as_str() {
            "bash" | "sh" | "shell" => ("bash_code_execution", "command"),
            _ => ("code_execution", "code"),
        };
        run(id, name, ObjectWriter::new().set(field, code.as_str()))
    }

    fn outcome(&mut self, outcome: &CodeResult) -> Value {
        let CodeResult { id, output, is_error: failed } = outcome;
        let id = match (id, self.last.take()) {
            (None, Some(last)) => last,
            (id, _) => self.begin(id.as_deref()),
        };
        let (stdout, stderr) = if *failed { ("", output.as_str()) } else { (output.as_str(), "") };
        let content = ObjectWriter::new()
            .set("type", "code_execution_result")
            .set("stdout", stdout)
            .set("stderr", stderr)
            .set("return_code", i32::from(*failed))
            .set("content", Vec::<Value>::new());
        ObjectWriter::new()
            .set("type", "code_execution_tool_result")
            .set("tool_use_id", id)
            .set("content", content)
            .into()
    }

    /// Writes queries and hits, which are two blocks in this format,
    /// <https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/web-search-tool>.
    fn search(&mut self, search: &WebSearch, out: &mut Vec<Value>) {
        let WebSearch { id, queries, results: found } = search;
        let id = self.begin(id.as_deref());
        let query = queries.join("; ");
        out.push(run(id.clone(), "web_search", ObjectWriter::new().set("query", query)));
        let hits: Vec<Value> = found
            .iter()
            .map(|(url, title)| {
                ObjectWriter::new()
                    .set("type", "web_search_result")
                    .set("url", url.as_str())
                    .set("title", title.as_str())
                    .set("encrypted_content", "")
                    .set("page_age", Value::Null)
                    .into()
            })
            .collect();
        let result = ObjectWriter::new().set("type", "web_search_tool_result");
        out.push(result.set("tool_use_id", id).set("content", hits).into());
    }
}

fn run(id: String, name: &str, input: ObjectWriter) -> Value {
    ObjectWriter::new()
        .set("type", "server_tool_use")
        .set("id", id)
        .set("name", name)
        .set("input", input)
        .into()
}

/// Replaces the characters that ids of server tools may not have.
fn plain(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

fn text_block(text: &str, citations: &[Citation], part: &Part, losses: &mut Losses) -> Value {
    let cited: Vec<Value> =
        citations.iter().filter_map(|citation| write_citation(citation, text, losses)).collect();
    let block = ObjectWriter::new().set("type", "text").set("text", text);
    block
        .set_some("citations", (!cited.is_empty()).then_some(cited))
        .with_extras(&part.extras, ORIGIN)
        .into()
}

/// Writes a citation. The format has no positions in the text, because each cited span is a block
/// of its own.
pub(super) fn write_citation(
    citation: &Citation,
    text: &str,
    losses: &mut Losses,
) -> Option<Value> {
    let Citation { url, title, quote, span, extras } = citation;
    if let Some(own) = extras.get(ORIGIN, CITATION_EXTRA) {
        return Some(own.clone());
    }
    if note_citation(citation, ORIGIN, losses) {
        return None;
    }
    losses.add("citation", "citations are written without their position in the text");
    let quoted = || {
        let (start, end) = (*span)?;
        Some(text.chars().skip(start).take(end.saturating_sub(start)).collect::<String>())
    };
    let words = quote.clone().or_else(quoted).unwrap_or_default();
    let object = ObjectWriter::new()
        .set("type", "web_search_result_location")
        .set("url", url.as_deref().unwrap_or_default())
        .set("title", title.as_deref().map_or(Value::Null, Value::from))
        .set("cited_text", words)
        .set("encrypted_index", "");
    Some(object.into())
}

fn write_thought(thought: &Thought, part: &Part, losses: &mut Losses) -> Option<Value> {
    let Thought { text, redacted } = thought;
    let token = part.signature.as_ref().map(signatures::write);
    let object = match (redacted, token) {
        (true, Some(token)) => {
            ObjectWriter::new().set("type", "redacted_thinking").set("data", token)
        }
        (true, None) => {
            losses.add("thought", "redacted thinking without a signature has nothing to show");
            return None;
        }
        (false, None) if text.is_empty() => return None,
        (false, token) => ObjectWriter::new()
            .set("type", "thinking")
            .set("thinking", text.as_str())
            .set("signature", token.unwrap_or_default()),
    };
    Some(object.with_extras(&part.extras, ORIGIN).into())
}

/// Writes an image as markdown, because the format has no image block in replies.
fn image_markdown(media: &Media, part: &Part, losses: &mut Losses) -> Option<Value> {
    let Media { kind, source, name, detail: _, clip: _ } = media;
    let url = match (kind, source) {
        (MediaKind::Image, MediaSource::Inline { mime, data }) => {
            format!("data:{mime};base64,{data}")
        }
        (MediaKind::Image, MediaSource::Url { url, mime: _ }) => url.clone(),
        (MediaKind::Document, MediaSource::Text(text)) => {
            return Some(text_block(text, &[], part, losses));
        }
        (
            MediaKind::Image | MediaKind::Audio | MediaKind::Video | MediaKind::Document,
            MediaSource::Inline { .. }
            | MediaSource::Url { .. }
            | MediaSource::File { .. }
            | MediaSource::Text(_),
        ) => {
            losses.add("reply.media", "replies of the messages format hold only text");
            return None;
        }
    };
    losses.add("reply.media", "an image is written as markdown, because replies hold only text");
    let text = format!("![{}]({url})", name.as_deref().unwrap_or("image"));
    Some(text_block(&text, &[], part, losses))
}

fn is_text(block: &Value) -> bool {
    block.get("type").and_then(Value::as_str) == Some("text")
}
