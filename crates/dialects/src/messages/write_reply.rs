//! Writes the parts of a reply as blocks, and the whole reply.
//!
//! A stream and a whole reply are written by the same code; only the [`BlockOutput`] differs. A part
//! without a field for its signature needs a carrier before it. Therefore a call begins only when
//! its second piece or its end arrives: a provider that signs calls has signed it by then. A text
//! block does not end with its part: a provider that signs the end of its reply sends it as a
//! separate text, and clients take the last block for the whole answer.

use canon::{
    ChatReply, ChatRequest, Citation, Finish, FinishReason, Losses, Lossy, Media, MediaKind,
    MediaSource, Part, PartKind, PartStart, ReplyCandidate, Signature, ThinkingDisplay, Thought,
    ToolCall,
};
use serde_json::{Map, Value};

use super::names::{BLOCK_EXTRA, CITATION_EXTRA, ORIGIN};
use super::own::tool_names;
use super::own::tool_runs::ToolRuns;
use super::signatures::{self, OpenText, SignatureTarget};
use super::{usage, write_content};
use crate::ReplyStamp;
use crate::endings;
use crate::fields::{ObjectWriter, note_citation, note_foreign_fields};
use crate::service_tier::{self, TIER_FIELD, USAGE_EXTRA};

/// Output of blocks: the events of a stream, or the list of a whole reply.
pub(super) trait BlockOutput {
    fn start(&mut self, block: Map<String, Value>);
    /// Adds a text to a field of the open block.
    fn grow(&mut self, delta: &str, field: &str, text: &str);
    fn cite(&mut self, citation: Value);
    fn stop(&mut self);
    /// Writes a complete block.
    fn write(&mut self, block: Value);
    /// Writes a complete block before the last one. Returns false if that one is sent already.
    fn write_before_last(&mut self, block: Value) -> bool;
}

/// The blocks of a whole reply.
#[derive(Debug, Default)]
struct BlockList(Vec<Value>);

impl BlockList {
    fn field(&mut self, name: &str, initial: Value) -> Option<&mut Value> {
        let block = self.0.last_mut()?.as_object_mut()?;
        Some(block.entry(name).or_insert(initial))
    }
}

impl BlockOutput for BlockList {
    fn start(&mut self, block: Map<String, Value>) {
        self.0.push(Value::Object(block));
    }

    fn grow(&mut self, _delta: &str, field: &str, text: &str) {
        if let Some(Value::String(written)) = self.field(field, Value::from("")) {
            written.push_str(text);
        }
    }

    fn cite(&mut self, citation: Value) {
        if let Some(Value::Array(cited)) = self.field("citations", Value::Array(Vec::new())) {
            cited.push(citation);
        }
    }

    fn stop(&mut self) {}

    fn write(&mut self, block: Value) {
        self.0.push(block);
    }

    fn write_before_last(&mut self, block: Value) -> bool {
        self.0.insert(self.0.len().saturating_sub(1), block);
        true
    }
}

/// A part that is not completely written.
pub(super) struct PendingPart {
    start: PartStart,
    /// Pieces that wait until the part may be written.
    pub(super) waiting: Vec<String>,
    /// The written text, for citations that quote it.
    written_text: String,
    pub(super) citations: Vec<Citation>,
    pub(super) signature: Option<Signature>,
    pub(super) extras: Map<String, Value>,
    started: bool,
    pub(super) closed: bool,
}

impl PendingPart {
    pub(super) fn new(start: PartStart, losses: &mut Losses) -> Self {
        let mut part = Self {
            start,
            waiting: Vec::new(),
            written_text: String::new(),
            citations: Vec::new(),
            signature: None,
            extras: Map::new(),
            started: false,
            closed: false,
        };
        match std::mem::replace(&mut part.start, PartStart::Text) {
            PartStart::Complete(whole) => part.fill(*whole, losses),
            growing => part.start = growing,
        }
        part
    }

    /// Takes over a complete part. Parts that could grow are written as if they had.
    fn fill(&mut self, part: Part, losses: &mut Losses) {
        let Part { kind, signature, cache_breakpoint, extras } = part;
        note_foreign_fields(&extras, ORIGIN, "part", losses);
        let has_block = extras.get(ORIGIN, BLOCK_EXTRA).is_some();
        let text = match kind {
            PartKind::Text { text, citations } if !has_block => {
                self.citations = citations;
                text
            }
            PartKind::Refusal(text) if !has_block => {
                self.start = PartStart::Refusal;
                text
            }
            PartKind::Thought(Thought { text, redacted: false }) => {
                self.start = PartStart::Thought;
                text
            }
            PartKind::ToolCall(ToolCall { id, name, arguments, custom }) => {
                self.start = PartStart::ToolCall { id, name, custom };
                arguments
            }
            kind => {
                let whole = Part { kind, signature, cache_breakpoint, extras };
                self.start = PartStart::Complete(Box::new(whole));
                return;
            }
        };
        self.signature = signature;
        let own = extras.for_format(ORIGIN).into_iter().flatten();
        let own = own.filter(|(name, _)| !name.starts_with("portunus."));
        self.extras.extend(own.map(|(name, value)| (name.clone(), value.clone())));
        self.waiting.extend(Some(text).filter(|text| !text.is_empty()));
    }
}

/// Writes the parts of one reply.
pub(super) struct ReplyBlocks<O> {
    pub(super) output: O,
    pub(super) losses: Losses,
    /// True if the caller asked not to see thinking.
    is_hidden: bool,
    is_refused: bool,
    /// The text of the last block.
    open_text: Option<OpenText>,
    runs: ToolRuns,
}

impl<O: BlockOutput> ReplyBlocks<O> {
    pub(super) fn new(output: O, chat: &ChatRequest, stamp: &ReplyStamp) -> Self {
        Self {
            output,
            losses: Losses::new(),
            is_hidden: chat.thinking.display == Some(ThinkingDisplay::Hidden),
            is_refused: false,
            open_text: None,
            runs: ToolRuns::new(&stamp.id),
        }
    }

    /// Writes as much of a part as possible by now.
    pub(super) fn write(&mut self, part: &mut PendingPart) {
        match &part.start {
            PartStart::Text => self.write_text(part),
            PartStart::Refusal => {
                self.is_refused = true;
                self.write_text(part);
            }
            PartStart::Thought => self.write_thought(part),
            PartStart::ToolCall { .. } => self.write_call(part),
            PartStart::Complete(whole) if part.closed => {
                let mut whole = (**whole).clone();
                for (name, value) in std::mem::take(&mut part.extras) {
                    whole.extras.insert(ORIGIN, &name, value);
                }
                whole.signature = part.signature.take().or(whole.signature);
                self.write_whole(&whole);
            }
            PartStart::Complete(_) => {}
        }
    }

    fn start(&mut self, block: ObjectWriter, extras: &mut Map<String, Value>) {
        self.close_text(false);
        let mut block = block.into_map();
        block.extend(std::mem::take(extras));
        self.output.start(block);
    }

    fn write_block(&mut self, block: Value) {
        self.close_text(false);
        self.output.write(block);
    }

    fn write_carrier(&mut self, signature: Option<Signature>, target: &SignatureTarget<'_>) {
        if let Some(signature) = signature {
            self.write_block(signatures::carrier(&signature, target));
        }
    }

    /// Ends the text block, and writes the signatures of its spans if something follows.
    pub(super) fn close_text(&mut self, is_last: bool) {
        let Some(text) = self.open_text.take() else { return };
        self.output.stop();
        let is_signed =
            text.whole_carrier().is_some_and(|carrier| self.output.write_before_last(carrier));
        if !is_signed && !is_last {
            text.carriers().for_each(|carrier| self.output.write(carrier));
        }
    }

    fn write_text(&mut self, part: &mut PendingPart) {
        let mut waiting = std::mem::take(&mut part.waiting);
        if !part.started && !(waiting.is_empty() && part.citations.is_empty()) {
            let signed = part.signature.is_some();
            let before = self.open_text.as_ref().filter(|_| part.extras.is_empty());
            if !before.is_some_and(|before| before.continues_with(signed)) {
                let block = ObjectWriter::typed("text").set("text", "");
                self.start(block, &mut part.extras);
                self.open_text = Some(OpenText::default());
            }
            part.started = true;
        }
        for text in waiting.drain(..) {
            self.output.grow("text_delta", "text", &text);
            part.written_text.push_str(&text);
        }
        part.waiting = waiting;
        for citation in std::mem::take(&mut part.citations) {
            if let Some(cited) = write_citation(&citation, &part.written_text, &mut self.losses) {
                self.output.cite(cited);
            }
        }
        if !part.closed {
            return;
        }
        self.note_late_fields(&part.extras);
        match &mut self.open_text {
            Some(open_text) => open_text.add(&part.written_text, part.signature.take()),
            None => self.write_carrier(part.signature.take(), &SignatureTarget::Text),
        }
    }

    fn write_thought(&mut self, part: &mut PendingPart) {
        let mut waiting = std::mem::take(&mut part.waiting);
        if self.is_hidden {
            waiting.clear();
        }
        if !part.started && !(waiting.is_empty() && part.signature.is_none()) {
            let block = ObjectWriter::typed("thinking").set("thinking", "");
            self.start(block.set("signature", ""), &mut part.extras);
            part.started = true;
        }
        for text in &waiting {
            self.output.grow("thinking_delta", "thinking", text);
        }
        if part.closed && part.started {
            self.note_late_fields(&part.extras);
            if let Some(signature) = part.signature.take() {
                let token = signatures::write(&signature);
                self.output.grow("signature_delta", "signature", &token);
            }
            self.output.stop();
        }
    }

    fn write_call(&mut self, part: &mut PendingPart) {
        let PartStart::ToolCall { id, name, custom } = &part.start else { return };
        let target = SignatureTarget::Call(id);
        if part.closed && !part.started {
            self.write_carrier(part.signature.take(), &target);
            let arguments = std::mem::take(&mut part.waiting).concat();
            let (id, name, custom) = (id.clone(), name.clone(), *custom);
            let call = ToolCall { id, name, arguments, custom };
            let mut block = write_content::write_call(&call).into_map();
            block.extend(std::mem::take(&mut part.extras));
            return self.write_block(Value::Object(block));
        }
        // Free-text input becomes a field of an object, so all of it is needed.
        if *custom || (!part.started && part.waiting.len() < 2) {
            return;
        }
        if !part.started {
            self.write_carrier(part.signature.take(), &target);
            let block = ObjectWriter::typed("tool_use")
                .set("id", tool_names::write(id).as_ref())
                .set("name", tool_names::write(name).as_ref());
            self.start(block.set("input", Map::new()), &mut part.extras);
            part.started = true;
        }
        for text in std::mem::take(&mut part.waiting) {
            self.output.grow("input_json_delta", "partial_json", &text);
        }
        if part.closed {
            self.note_late_fields(&part.extras);
            self.output.stop();
            self.write_carrier(part.signature.take(), &target);
        }
    }

    /// Notes fields that arrived after their block had begun.
    fn note_late_fields(&mut self, extras: &Map<String, Value>) {
        for name in extras.keys() {
            self.losses.add(&format!("part.{name}"), "it came after its block had begun");
        }
    }

    /// Writes a part that comes in one piece.
    fn write_whole(&mut self, part: &Part) {
        let mut blocks = Vec::new();
        match &part.kind {
            _ if part.extras.get(ORIGIN, BLOCK_EXTRA).is_some() => {
                blocks.extend(part.extras.get(ORIGIN, BLOCK_EXTRA).cloned());
            }
            PartKind::Thought(_) => {
                let Some(token) = part.signature.as_ref().map(signatures::write) else {
                    let why = "redacted thinking without a signature has nothing to show";
                    return self.losses.add("thought", why);
                };
                let block = ObjectWriter::typed("redacted_thinking").set("data", token);
                return self.write_block(block.with_extras(&part.extras, ORIGIN).into());
            }
            PartKind::Media(media) => blocks.extend(image_markdown(media, part, &mut self.losses)),
            PartKind::CodeExecution(code) => blocks.push(self.runs.write_code(code)),
            PartKind::CodeResult(result) => blocks.push(self.runs.write_result(result)),
            PartKind::WebSearch(search) => blocks.extend(self.runs.write_search(search)),
            PartKind::Foreign { origin, value } if *origin == ORIGIN => blocks.push(value.clone()),
            PartKind::Text { .. }
            | PartKind::Refusal(_)
            | PartKind::ToolCall(_)
            | PartKind::ToolResult(_)
            | PartKind::Foreign { .. } => {
                self.losses.add("reply.part", "a part only the provider's format has");
            }
        }
        match blocks.is_empty() {
            true => self.losses.add_if(
                part.signature.is_some(),
                "part.seal",
                "the part of this signature could not be written",
            ),
            false => self.write_carrier(part.signature.clone(), &SignatureTarget::Next),
        }
        blocks.into_iter().for_each(|block| self.write_block(block));
    }

    /// Returns stop reason and stop sequence. A refusal is plain text here, so only the reason marks
    /// it.
    pub(super) fn finish_words(&mut self, finish: Option<&Finish>) -> (Value, Value) {
        let Some(Finish { reason, raw, stop_sequence }) = finish else {
            return (Value::Null, Value::Null);
        };
        let reason = match reason {
            FinishReason::Stop if self.is_refused => FinishReason::ContentFilter,
            reason => *reason,
        };
        let word = match raw.for_format(ORIGIN) {
            Some(own) => own,
            None => endings::write_or_truncated(ORIGIN, reason, &mut self.losses),
        };
        (Value::from(word), stop_sequence.as_deref().map_or(Value::Null, Value::from))
    }
}

impl ReplyBlocks<BlockList> {
    fn write_all(&mut self, parts: Vec<Part>) {
        for part in parts {
            let mut part = PendingPart::new(PartStart::Complete(Box::new(part)), &mut self.losses);
            part.closed = true;
            self.write(&mut part);
        }
        self.close_text(true);
    }
}

/// Writes a reply to the caller of `chat`.
pub(super) fn write(reply: ChatReply, chat: &ChatRequest, stamp: &ReplyStamp) -> Lossy<Vec<u8>> {
    let ChatReply { id: _, model: _, created: _, candidates, usage: counts, extras } = reply;
    let mut blocks = ReplyBlocks::new(BlockList::default(), chat, stamp);
    let losses = &mut blocks.losses;
    let tier = service_tier::note_reply_extras(&extras, ORIGIN, losses);
    losses.add_if(candidates.len() > 1, "candidates", "the messages format has a single candidate");
    let first = candidates.into_iter().min_by_key(|candidate| candidate.index).unwrap_or_default();
    let ReplyCandidate { index: _, parts, finish, logprobs, extras: own } = first;
    service_tier::note_reply_extras(&own, ORIGIN, losses);
    losses.add_if(!logprobs.is_empty(), "reply.logprobs", "the messages format has none");
    blocks.write_all(parts);
    let (reason, stop) = blocks.finish_words(finish.as_ref());
    let usage =
        usage::write_usage(&counts.unwrap_or_default(), extras.get(ORIGIN, USAGE_EXTRA), true);
    let body = message(&stamp.id, &chat.model, usage.set_some(TIER_FIELD, tier))
        .set("content", blocks.output.0)
        .set("stop_reason", reason)
        .set("stop_sequence", stop)
        .with_extras(&own, ORIGIN)
        .with_extras(&extras, ORIGIN);
    (body.to_json(), blocks.losses.into_vec())
}

/// Returns a message without content and end.
pub(super) fn message(id: &str, model: &str, usage: ObjectWriter) -> ObjectWriter {
    ObjectWriter::new()
        .set("id", format!("msg_{id}"))
        .set("type", "message")
        .set("role", "assistant")
        .set("model", model)
        .set("content", Vec::<Value>::new())
        .set("stop_reason", Value::Null)
        .set("stop_sequence", Value::Null)
        .set("usage", usage)
}

/// Writes a citation. The format has no positions in the text, because each cited span is a block
/// of its own.
fn write_citation(citation: &Citation, text: &str, losses: &mut Losses) -> Option<Value> {
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
    let object = ObjectWriter::typed("web_search_result_location")
        .set("url", url.as_deref().unwrap_or_default())
        .set("title", title.as_deref().map_or(Value::Null, Value::from))
        .set("cited_text", words)
        .set("encrypted_index", "");
    Some(object.into())
}

/// Writes an image as markdown, because the format has no image block in replies.
fn image_markdown(media: &Media, part: &Part, losses: &mut Losses) -> Option<Value> {
    let Media { kind, source, name, detail: _, clip: _ } = media;
    let url = match (kind, source) {
        (MediaKind::Image, MediaSource::Inline { mime, data }) => {
            Some(format!("data:{mime};base64,{data}"))
        }
        (MediaKind::Image, MediaSource::Url { url, mime: _ }) => Some(url.clone()),
        _ => None,
    };
    let text = match (kind, source, url) {
        (MediaKind::Document, MediaSource::Text(text), _) => text.clone(),
        (_, _, Some(url)) => {
            let why = "an image is written as markdown, because replies hold only text";
            losses.add("reply.media", why);
            format!("![{}]({url})", name.as_deref().unwrap_or("image"))
        }
        (_, _, None) => {
            losses.add("reply.media", "replies of the messages format hold only text");
            return None;
        }
    };
    let block = ObjectWriter::typed("text").set("text", text);
    Some(block.with_extras(&part.extras, ORIGIN).into())
}

/// Writes the blocks of a reply.
#[cfg(test)]
pub(super) fn write_blocks(parts: Vec<Part>) -> (Vec<Value>, Losses) {
    let stamp = ReplyStamp { id: "s-1".to_owned(), created: 0 };
    let mut blocks = ReplyBlocks::new(BlockList::default(), &ChatRequest::default(), &stamp);
    blocks.write_all(parts);
    (blocks.output.0, blocks.losses)
}
