//! Writes the parts of a reply as blocks, and the whole reply.
//!
//! A stream and a whole reply are written by the same code; only the [`BlockOutput`] differs. A part
//! without a field for its signature needs a carrier before it. Therefore a call begins only when
//! its second piece or its end arrives: a provider that signs calls has signed it by then. A text
//! block does not end with its part: a provider that signs the end of its reply sends it as a
//! separate text, and clients take the last block for the whole answer.

use canon::{
    ChatReply, ChatRequest, Citation, Event, Finish, FinishReason, Losses, Lossy, Media, MediaKind,
    MediaSource, Part, PartDelta, PartIndex, PartKind, PartStart, ReplyCandidate, Signature,
    ThinkingDisplay, ToolCall, Usage, WireFormat, into_events,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

use super::names::{BLOCK_EXTRA, CITATION_EXTRA, ORIGIN};
use super::own::client_tools::ToolsetMembers;
use super::own::server_tools::ToolRuns;
use super::own::tool_names;
use super::signatures::{self, OpenText};
use super::{usage, write_content};
use crate::endings;
use crate::envelope;
use crate::fields::{ObjectWriter, lose, note_citation, note_foreign_field, note_foreign_fields};
use crate::json;
use crate::openai_values::write_url;
use crate::service_tier::{self, TIER_FIELD, USAGE_EXTRA};
use crate::write_json::WriteJson;
use crate::{ReplyStamp, TextRun};

/// Output of blocks: the events of a stream, or the list of a whole reply.
pub(super) trait BlockOutput {
    fn start(&mut self, block: Value);
    /// Starts a block of text, the most frequent one.
    fn start_text(&mut self) {
        self.start(ObjectWriter::typed("text").set("text", "").into());
    }
    /// Adds a text to a field of the open block.
    fn grow(&mut self, delta: &'static str, field: &str, text: &str);
    /// Adds texts to a field of the open block.
    fn grow_run(&mut self, delta: &'static str, field: &str, run: &TextRun) {
        run.texts().for_each(|text| self.grow(delta, field, text));
    }
    fn cite(&mut self, citation: Value);
    fn stop(&mut self) {}
    /// Writes a complete block.
    fn write(&mut self, block: Value) {
        self.start(block);
    }
    /// Writes a complete call, its input byte for byte.
    fn write_call(&mut self, call: &ToolCall, extras: &Map<String, Value>);
    /// Returns the list of blocks, if none of them is sent yet.
    fn unsent(&mut self) -> Option<&mut Vec<ReplyBlock>> {
        None
    }
}

/// A block of a whole reply.
#[derive(Debug)]
pub(super) enum ReplyBlock {
    /// A text without other fields.
    Text(String),
    /// A call, which nothing changes any more.
    Call(ObjectWriter),
    Any(Value),
}

impl ReplyBlock {
    /// Returns the length of a plain text.
    fn text_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Call(_) | Self::Any(_) => 0,
        }
    }

    /// Returns the fields of the block, to change them.
    fn as_object_mut(&mut self) -> Option<&mut Map<String, Value>> {
        if let Self::Text(text) = self {
            let text = std::mem::take(text);
            *self = Self::Any(ObjectWriter::typed("text").set("text", text).into());
        }
        match self {
            Self::Any(Value::Object(fields)) => Some(fields),
            Self::Any(_) | Self::Text(_) | Self::Call(_) => None,
        }
    }
}

impl WriteJson for ReplyBlock {
    fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => {
                out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
                json::write_string(text, out);
                out.push(b'}');
            }
            Self::Call(call) => call.write_json(out),
            Self::Any(value) => value.write_json(out),
        }
    }
}

/// The blocks of a whole reply.
#[derive(Debug, Default)]
struct BlockList(Vec<ReplyBlock>);

impl BlockList {
    fn field(&mut self, name: &str, initial: Value) -> Option<&mut Value> {
        let block = self.0.last_mut()?.as_object_mut()?;
        Some(block.entry(name).or_insert(initial))
    }
}

impl BlockOutput for BlockList {
    fn start(&mut self, block: Value) {
        self.0.push(ReplyBlock::Any(block));
    }

    fn start_text(&mut self) {
        self.0.push(ReplyBlock::Text(String::new()));
    }

    fn grow(&mut self, _delta: &'static str, field: &str, text: &str) {
        if let Some(ReplyBlock::Text(written)) = self.0.last_mut() {
            written.push_str(text);
        } else if let Some(Value::String(written)) = self.field(field, Value::from("")) {
            written.push_str(text);
        }
    }

    fn cite(&mut self, citation: Value) {
        if let Some(Value::Array(cited)) = self.field("citations", Value::Array(Vec::new())) {
            cited.push(citation);
        }
    }

    fn write_call(&mut self, call: &ToolCall, extras: &Map<String, Value>) {
        self.0.push(ReplyBlock::Call(write_content::write_call(call).with_fields(extras)));
    }

    fn unsent(&mut self) -> Option<&mut Vec<ReplyBlock>> {
        Some(&mut self.0)
    }
}

/// A part that is not completely written.
#[derive(Default)]
struct PendingPart {
    start: PartStart,
    /// Pieces that wait until the part may be written.
    waiting: Vec<String>,
    /// The written text, for citations that quote it.
    written_text: String,
    citations: Vec<Citation>,
    signature: Option<Signature>,
    extras: Map<String, Value>,
    started: bool,
    closed: bool,
}

/// The service tier of a reply that reports none.
pub(super) const STANDARD_TIER: &str = "standard";

/// Writes the events of one reply.
#[derive(Default)]
pub(super) struct ReplyBlocks<O> {
    pub(super) output: O,
    pub(super) losses: Losses,
    pub(super) usage: Usage,
    /// The service tier, until it is written.
    pub(super) tier: Option<&'static str>,
    pub(super) finish: Option<Finish>,
    /// Fields of the reply that only this format has.
    pub(super) extras: Map<String, Value>,
    /// True if the caller asked not to see thinking.
    is_hidden: bool,
    is_refused: bool,
    /// Parts that are not completely written, in order. The first one is written live.
    parts: BTreeMap<u32, PendingPart>,
    /// The text of the last block.
    open_text: Option<OpenText>,
    runs: ToolRuns,
    /// Members of the caller's toolsets.
    members: ToolsetMembers,
}

impl<O: BlockOutput + Default> ReplyBlocks<O> {
    pub(super) fn new(chat: &ChatRequest, stamp: &ReplyStamp) -> Self {
        let is_hidden = chat.thinking.display == Some(ThinkingDisplay::Hidden);
        let members = ToolsetMembers::new(&chat.tools);
        Self { is_hidden, runs: ToolRuns::new(&stamp.id), members, ..Self::default() }
    }

    /// Writes what an event adds to the blocks, and keeps the rest for the end.
    pub(super) fn push(&mut self, event: Event) {
        match event {
            Event::Start { .. } | Event::Error(_) => {}
            Event::Usage(usage) => self.usage = usage,
            Event::PartStart(place, start) if place.candidate == 0 => {
                self.is_refused |= matches!(start, PartStart::Refusal);
                let mut part = PendingPart { start, ..PendingPart::default() };
                self.members.split_name(&mut part.start, &mut part.extras);
                self.parts.insert(place.slot, part);
            }
            Event::PartStart(..) => {
                self.losses.add("candidates", "the messages format has a single candidate");
            }
            Event::PartDelta(place, delta) if place.candidate == 0 => self.grow(place.slot, delta),
            Event::PartSignature(place, signature) if place.candidate == 0 => {
                if let Some(part) = self.parts.get_mut(&place.slot) {
                    part.signature = Some(signature);
                }
            }
            Event::PartEnd(place) if place.candidate == 0 => {
                if let Some(part) = self.parts.get_mut(&place.slot) {
                    part.closed = true;
                }
                self.advance();
            }
            Event::PartDelta(..) | Event::PartSignature(..) | Event::PartEnd(_) => {}
            Event::Extra { origin: WireFormat::Messages, name, value, .. } => {
                self.extras.insert(name, value);
            }
            Event::Extra { origin, name, value, .. } => {
                let losses = &mut self.losses;
                let tier = service_tier::note_reply_field(origin, &name, &value, ORIGIN, losses);
                self.tier = tier.or(self.tier);
            }
            Event::Finish { candidate: 0, finish } => {
                self.close_text(true);
                self.finish = Some(finish);
            }
            Event::Finish { .. } => {}
        }
    }

    fn grow(&mut self, slot: u32, delta: PartDelta) {
        let Some(part) = self.parts.get_mut(&slot) else { return };
        match delta {
            PartDelta::Text(text) => part.waiting.extend(Some(text).filter(|t| !t.is_empty())),
            PartDelta::Citation(citation) => part.citations.push(citation),
            PartDelta::Extra { origin: WireFormat::Messages, name, value } => {
                part.extras.insert(name, value);
            }
            PartDelta::Extra { name, value, .. } => {
                note_foreign_field(&name, &value, "part", &mut self.losses);
            }
            PartDelta::Logprobs(_) => {
                self.losses.add("reply.logprobs", "the messages format has none");
            }
        }
        self.advance();
    }

    /// Writes texts of the part that is written live. Returns false if they have to be pushed.
    pub(super) fn push_run(&mut self, run: &TextRun) -> bool {
        let Some(mut first) = self.parts.first_entry() else { return false };
        let is_own = run.place() == PartIndex { candidate: 0, slot: *first.key() };
        let part = first.get_mut();
        let is_text = matches!(part.start, PartStart::Text | PartStart::Refusal);
        let is_live = part.started && !part.closed && part.waiting.is_empty();
        if !is_own || !is_text || !is_live || !part.citations.is_empty() {
            return false;
        }
        self.output.grow_run("text_delta", "text", run);
        part.written_text.push_str(run.joined());
        true
    }

    /// Writes everything that may be written by now.
    fn advance(&mut self) {
        let mut parts = std::mem::take(&mut self.parts);
        while let Some(mut first) = parts.first_entry() {
            let part = first.get_mut();
            match &mut part.start {
                PartStart::Text | PartStart::Refusal => self.write_text(part),
                PartStart::Thought => self.write_thought(part),
                PartStart::ToolCall { .. } => self.write_call(part),
                PartStart::Complete(whole) if part.closed => {
                    for (name, value) in std::mem::take(&mut part.extras) {
                        whole.extras.insert(ORIGIN, &name, value);
                    }
                    whole.signature = part.signature.take().or(whole.signature.take());
                    self.write_whole(whole);
                }
                PartStart::Complete(_) => {}
            }
            if !part.closed {
                break;
            }
            first.remove();
        }
        self.parts = parts;
    }

    fn start(&mut self, fields: &[(&str, &str)], extras: &mut Map<String, Value>) {
        self.close_text(false);
        let fields = fields.iter().map(|(name, text)| ((*name).to_owned(), Value::from(*text)));
        self.output.start(fields.chain(std::mem::take(extras)).collect());
    }

    fn write_block(&mut self, block: Value) {
        self.close_text(false);
        self.output.write(block);
    }

    fn write_carrier(&mut self, signature: Option<Signature>, target: impl FnOnce() -> String) {
        if let Some(signature) = signature {
            self.write_block(signatures::carrier(&signature, &target()));
        }
    }

    /// Ends the text block, and writes the signatures of its spans if something follows.
    fn close_text(&mut self, is_last: bool) {
        let Some(text) = self.open_text.take() else { return };
        self.output.stop();
        match (self.output.unsent(), text.whole_carrier()) {
            (Some(blocks), Some(carrier)) => {
                blocks.insert(blocks.len().saturating_sub(1), ReplyBlock::Any(carrier));
            }
            _ if is_last => {}
            _ => text.carriers().for_each(|carrier| self.output.write(carrier)),
        }
    }

    fn write_text(&mut self, part: &mut PendingPart) {
        let mut waiting = std::mem::take(&mut part.waiting);
        let has_content = !waiting.is_empty() || !part.citations.is_empty();
        if has_content && !part.started {
            let signed = part.signature.is_some();
            let before = self.open_text.as_ref().filter(|_| part.extras.is_empty());
            if !before.is_some_and(|before| before.continues_with(signed)) {
                match part.extras.is_empty() {
                    true => {
                        self.close_text(false);
                        self.output.start_text();
                    }
                    false => self.start(&[("type", "text"), ("text", "")], &mut part.extras),
                }
                self.open_text = Some(OpenText::default());
            }
            part.started = true;
        }
        for text in waiting.drain(..) {
            self.output.grow("text_delta", "text", &text);
            match part.written_text.is_empty() {
                true => part.written_text = text,
                false => part.written_text.push_str(&text),
            }
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
        self.write_late_fields(&mut part.extras);
        match &mut self.open_text {
            Some(open_text) => {
                open_text.add(std::mem::take(&mut part.written_text), part.signature.take());
            }
            None => self.write_carrier(part.signature.take(), || signatures::EMPTY_TEXT.to_owned()),
        }
    }

    fn write_thought(&mut self, part: &mut PendingPart) {
        let mut waiting = std::mem::take(&mut part.waiting);
        if self.is_hidden {
            waiting.clear();
        }
        let has_content = !waiting.is_empty() || part.signature.is_some();
        if has_content && !part.started {
            let block = [("type", "thinking"), ("thinking", ""), ("signature", "")];
            self.start(&block, &mut part.extras);
            part.started = true;
        }
        for text in &waiting {
            self.output.grow("thinking_delta", "thinking", text);
        }
        if part.closed && part.started {
            self.write_late_fields(&mut part.extras);
            if let Some(signature) = part.signature.take() {
                let token = envelope::write(&signature, ORIGIN);
                self.output.grow("signature_delta", "signature", &token);
            }
            self.output.stop();
        }
    }

    fn write_call(&mut self, part: &mut PendingPart) {
        let PartStart::ToolCall { id, name, custom } = &part.start else { return };
        if part.closed && !part.started {
            self.write_carrier(part.signature.take(), || signatures::call_target(id));
            let arguments = std::mem::take(&mut part.waiting).concat();
            let (id, name, custom) = (id.clone(), name.clone(), *custom);
            let call = ToolCall { id, name, arguments, custom };
            self.close_text(false);
            return self.output.write_call(&call, &part.extras);
        }
        // Free-text input becomes a field of an object, so all of it is needed.
        if *custom || (!part.started && part.waiting.len() < 2) {
            return;
        }
        if !part.started {
            self.write_carrier(part.signature.take(), || signatures::call_target(id));
            let (id, name) = (tool_names::write(id), tool_names::write(name));
            part.extras.shift_insert(0, "input".to_owned(), Value::Object(Map::new()));
            self.start(&[("type", "tool_use"), ("id", &id), ("name", &name)], &mut part.extras);
            part.started = true;
        }
        for text in std::mem::take(&mut part.waiting) {
            self.output.grow("input_json_delta", "partial_json", &text);
        }
        if part.closed {
            self.write_late_fields(&mut part.extras);
            self.output.stop();
            self.write_carrier(part.signature.take(), || signatures::call_target(id));
        }
    }

    /// Writes fields that arrived after their block had begun, unless the block is sent already.
    fn write_late_fields(&mut self, extras: &mut Map<String, Value>) {
        if extras.is_empty() {
            return;
        }
        let block = self.output.unsent().and_then(|blocks| blocks.last_mut());
        match (block, extras.shift_remove(BLOCK_EXTRA)) {
            (Some(block), Some(whole)) => *block = ReplyBlock::Any(whole),
            (Some(block), None) => {
                block.as_object_mut().into_iter().for_each(|fields| fields.append(extras));
            }
            (None, _) => {
                for name in extras.keys() {
                    self.losses.add(&format!("part.{name}"), "it came after its block had begun");
                }
            }
        }
    }

    /// Writes a part that comes in one piece.
    fn write_whole(&mut self, part: &Part) {
        let mut blocks = Vec::new();
        note_foreign_fields(&part.extras, ORIGIN, "part", &mut self.losses);
        match &part.kind {
            _ if part.extras.get(ORIGIN, BLOCK_EXTRA).is_some() => {
                blocks.extend(part.extras.get(ORIGIN, BLOCK_EXTRA).cloned());
            }
            PartKind::Thought(thought) => {
                let token = part.signature.as_ref().map(|own| envelope::write(own, ORIGIN));
                if token.is_none() && (thought.redacted || thought.text.is_empty()) {
                    let why = "redacted thinking without a signature has nothing to show";
                    return self.losses.add_if(thought.redacted, "thought", why);
                }
                let text = if self.is_hidden { "" } else { thought.text.as_str() };
                let block = match thought.redacted {
                    true => ObjectWriter::typed("redacted_thinking").set_some("data", token),
                    false => ObjectWriter::typed("thinking")
                        .set("thinking", text)
                        .set("signature", token.unwrap_or_default()),
                };
                return self.write_block(block.with_extras(&part.extras, ORIGIN).into());
            }
            PartKind::Media(media) => blocks.extend(image_markdown(media, part, &mut self.losses)),
            PartKind::CodeExecution(code) => blocks.push(self.runs.write_code(code)),
            PartKind::CodeResult(result) => blocks.push(self.runs.write_result(result)),
            PartKind::WebSearch(search) => blocks.extend(self.runs.write_search(search)),
            PartKind::Foreign { origin, value } if *origin == ORIGIN => blocks.push(value.clone()),
            // Texts and calls come in pieces.
            PartKind::Text { .. }
            | PartKind::Refusal(_)
            | PartKind::ToolCall(_)
            | PartKind::ToolResult(_)
            | PartKind::Foreign { .. } => {
                self.losses.add("reply.part", "a part only the provider's format has");
            }
        }
        match blocks.is_empty() {
            true => {
                let why = "the part of this signature could not be written";
                self.losses.add_if(part.signature.is_some(), "part.seal", why);
            }
            false => {
                self.write_carrier(part.signature.clone(), || signatures::NEXT_PART.to_owned())
            }
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
        let word = || endings::write_or_truncated(ORIGIN, reason, &mut self.losses);
        let word = raw.for_format(ORIGIN).unwrap_or_else(word);
        (Value::from(word), stop_sequence.as_deref().map_or(Value::Null, Value::from))
    }
}

/// Writes a reply to the caller of `chat`.
pub(super) fn write(reply: ChatReply, chat: &ChatRequest, stamp: &ReplyStamp) -> Lossy<Vec<u8>> {
    let mut blocks = ReplyBlocks::<BlockList>::new(chat, stamp);
    let why = "the messages format has a single candidate";
    blocks.losses.add_if(reply.candidates.len() > 1, "candidates", why);
    let first = reply.candidates.into_iter().min_by_key(|candidate| candidate.index);
    let first = first.map(|candidate| ReplyCandidate { index: 0, ..candidate });
    let reply = ChatReply { candidates: first.into_iter().collect(), ..reply };
    into_events(reply).into_iter().for_each(|event| blocks.push(event));
    blocks.close_text(true);
    let finish = blocks.finish.take();
    let (reason, stop) = blocks.finish_words(finish.as_ref());
    let other_usage = blocks.extras.shift_remove(USAGE_EXTRA);
    let usage = &other_usage;
    let has_tier = usage.as_ref().is_some_and(|usage| usage.get(TIER_FIELD).is_some());
    let tier = blocks.tier.or((!has_tier).then_some(STANDARD_TIER));
    let usage = |object: ObjectWriter| {
        usage::write_usage(object, &blocks.usage, usage.as_ref(), true).set_some(TIER_FIELD, tier)
    };
    let content = blocks.output.0;
    // Most replies without their text are shorter.
    let room = content.iter().map(ReplyBlock::text_bytes).sum::<usize>() + 512;
    let body = ObjectWriter::with_room(room);
    let body = message(body, (&stamp.id, &chat.model), &content, (reason, stop), usage)
        .with_fields(&blocks.extras);
    (body.into_json(), blocks.losses.into_vec())
}

/// Writes a message into an object. Its end is the stop reason and the stop sequence.
pub(super) fn message(
    object: ObjectWriter,
    (id, model): (&str, &str),
    content: &[ReplyBlock],
    end: (Value, Value),
    usage: impl FnOnce(ObjectWriter) -> ObjectWriter,
) -> ObjectWriter {
    object
        .set("id", ["msg_", id].concat())
        .set("type", "message")
        .set("role", "assistant")
        .set("model", model)
        .set("content", content)
        .set("stop_reason", end.0)
        .set("stop_sequence", end.1)
        .nest("usage", usage)
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
    let text = match (source, write_url(source).filter(|_| *kind == MediaKind::Image)) {
        (MediaSource::Text(text), _) if *kind == MediaKind::Document => text.clone(),
        (_, Some(url)) => {
            let why = "an image is written as markdown, because replies hold only text";
            losses.add("reply.media", why);
            format!("![{}]({url})", name.as_deref().unwrap_or("image"))
        }
        (_, None) => {
            return lose("reply.media", "replies of the messages format hold only text", losses);
        }
    };
    let block = ObjectWriter::typed("text").set("text", text);
    Some(block.with_extras(&part.extras, ORIGIN).into())
}
