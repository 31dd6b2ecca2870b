//! The item being written, from `output_item.added` through its deltas to `output_item.done`.

use canon::{
    ChatRequest, Citation, ClientToolKind, Logprob, Losses, Part, PartDelta, PartKind, Signature,
};
use serde_json::Value;
use std::collections::BTreeMap;

use super::client_tools;
use super::event_writer::{EventWriter, PartPlace};
use super::output_items;
use super::tool_names::ToolNames;
use crate::ReplyStamp;
use crate::fields::{ObjectWriter, note_foreign_field};
use crate::openai_values::write_logprobs;
use crate::responses::names::ORIGIN;
use crate::responses::signatures::{self, SignaturePlace};

/// Events of the texts of parts, without `.delta` and `.done`.
pub(super) const TEXT_EVENT: &str = "response.output_text";
pub(super) const REFUSAL_EVENT: &str = "response.refusal";
const THOUGHT_EVENT: &str = "response.reasoning_summary_text";
const CALL_EVENT: &str = "response.function_call_arguments";
const CUSTOM_CALL_EVENT: &str = "response.custom_tool_call_input";

/// Thinking has one summary.
const SUMMARY_PLACE: PartPlace = Some(("summary_index", 0));

/// Finished items, and the item and the part in progress.
#[derive(Default)]
pub(crate) struct ItemWriter {
    pub(crate) events: EventWriter,
    pub(crate) losses: Losses,
    pub(super) ids: ItemIds,
    pub(super) open: OpenItem,
    part: OpenPart,
    names: ToolNames,
    wants_logprobs: bool,
}

/// The item in progress.
#[derive(Default)]
pub(super) enum OpenItem {
    #[default]
    None,
    /// A message: its fields only this format has, and its finished parts.
    Message(Option<Value>, Vec<ObjectWriter>),
    Thought(Part),
    Call(Part),
    /// A call of a tool of this format that the caller runs. It is written when it is complete.
    ClientCall(ClientToolKind, Part),
    /// Code and its output.
    Code(Option<Part>, Option<Part>),
    /// An item written in one step. Only its signature may follow.
    Whole,
}

/// The part in progress.
#[derive(Default)]
pub(super) struct OpenPart {
    /// Events of its text; empty for a part without text.
    pub(super) event: &'static str,
    pub(super) place: PartPlace,
    /// The start of its deltas, and their fields before the text.
    pub(super) delta_start: String,
    pub(super) delta_fields: Vec<u8>,
    /// Fields of its deltas after the text.
    pub(super) tail: &'static str,
    text: String,
    /// Citations without a span. They cover the whole text, so they are written when its length is
    /// known.
    citations: Vec<Citation>,
    annotations: Vec<ObjectWriter>,
    logprobs: Vec<Logprob>,
    signature: Option<Signature>,
}

impl ItemWriter {
    /// Creates a writer of events, or of the items only.
    pub(crate) fn new(chat: &ChatRequest, stamp: &ReplyStamp, is_silent: bool) -> Self {
        Self {
            events: EventWriter { is_silent, ..EventWriter::default() },
            names: ToolNames::new(&chat.tools),
            ids: ItemIds::new(stamp),
            wants_logprobs: chat.sampling.logprobs.is_some(),
            ..Self::default()
        }
    }

    /// Starts an item.
    pub(super) fn start_item(&mut self, id: String, item: impl FnOnce(&str) -> ObjectWriter) {
        self.finish_item(false);
        self.events.start_item(id, item);
    }

    /// Writes an event with a part of the message or with a summary.
    pub(super) fn write_part(&mut self, name: &str, place: PartPlace, part: &ObjectWriter) {
        self.events.write_item(name, place, |event| event.set("part", part.clone()));
    }

    fn start_part(&mut self, event: &'static str, place: PartPlace) {
        let tail = if event == TEXT_EVENT { ",\"logprobs\":[]" } else { "" };
        self.part = OpenPart { event, place, tail, ..OpenPart::default() };
    }

    /// Starts a message unless the next part belongs to the open one. Its `fields` are known only
    /// of a part that comes at once. Returns the place of that part.
    pub(super) fn open_message(&mut self, fields: Option<Value>) -> PartPlace {
        let at = match &self.open {
            OpenItem::Message(open, parts) if *open == fields => parts.len(),
            _ => {
                let id = self.ids.next("msg");
                let item = |id: &str| output_items::message_item(id, Vec::new(), "in_progress");
                self.start_item(id, item);
                self.open = OpenItem::Message(fields, Vec::new());
                0
            }
        };
        Some(("content_index", at))
    }

    /// Adds a finished part to the message.
    pub(super) fn push_part(&mut self, part: ObjectWriter) {
        if let OpenItem::Message(_, parts) = &mut self.open {
            parts.push(part);
        }
    }

    /// Starts a text or a refusal.
    pub(super) fn start_text(&mut self, event: &'static str, fields: Option<Value>) {
        let place = self.open_message(fields);
        self.events.write_item("response.content_part.added", place, |added| {
            let part = match event {
                REFUSAL_EVENT => output_items::refusal_part(""),
                _ => output_items::text_part("", Vec::new(), None),
            };
            added.set("part", part)
        });
        self.start_part(event, place);
    }

    pub(super) fn start_thought(&mut self, part: Part) {
        let id = signatures::known_id(&part).unwrap_or_else(|| self.ids.next("rs"));
        self.start_item(id, |id| signatures::empty_item(Some(id)));
        self.open = OpenItem::Thought(part);
        self.start_part(THOUGHT_EVENT, SUMMARY_PLACE);
    }

    pub(super) fn start_call(&mut self, part: Part) {
        if let PartKind::ToolCall(call) = &part.kind
            && let Some(kind) = self.names.client_tool(&call.name)
        {
            let id = self.ids.next(client_tools::id_prefix(kind));
            self.finish_item(false);
            let item = |id: &str| client_tools::call_item(kind, call, id, "in_progress");
            self.events.start_item(id, item);
            self.open = OpenItem::ClientCall(kind, part);
            self.start_part("", None);
            return;
        }
        let custom = matches!(&part.kind, PartKind::ToolCall(call) if call.custom);
        let id = self.ids.next(if custom { "ctc" } else { "fc" });
        self.finish_item(false);
        let names = &self.names;
        let item = |id: &str| output_items::call_item(&part, names, Some(id), Some("in_progress"));
        self.events.start_item(id, item);
        self.open = OpenItem::Call(part);
        self.start_part(if custom { CUSTOM_CALL_EVENT } else { CALL_EVENT }, None);
    }

    /// Adds to the part in progress.
    pub(crate) fn add_growth(&mut self, growth: PartDelta) {
        match growth {
            PartDelta::Text(text) => self.add_text(text),
            PartDelta::Citation(citation) => self.add_citation(citation),
            PartDelta::Logprobs(list) => self.add_logprobs(list),
            // Item ids of the provider arrive after the gateway has sent its own, so they are
            // dropped.
            PartDelta::Extra { origin, name, value } => {
                if origin != ORIGIN {
                    note_foreign_field(&name, &value, "part", &mut self.losses);
                }
            }
        }
    }

    pub(super) fn add_text(&mut self, more: String) {
        if let OpenItem::ClientCall(..) = self.open {
            return self.part.text.push_str(&more);
        }
        if self.part.event.is_empty() {
            return;
        }
        if matches!(self.open, OpenItem::Thought(_)) && self.part.text.is_empty() {
            let name = "response.reasoning_summary_part.added";
            self.events.write_item(name, SUMMARY_PLACE, |event| {
                event.set("part", signatures::summary_text(""))
            });
        }
        self.events.write_delta(&mut self.part, &more);
        match self.part.text.is_empty() {
            true => self.part.text = more,
            false => self.part.text.push_str(&more),
        }
    }

    pub(super) fn add_citation(&mut self, citation: Citation) {
        if !matches!(self.open, OpenItem::Message(..)) {
            return;
        }
        match citation.span.is_none() && citation.url.is_some() {
            true => self.part.citations.push(citation),
            false => self.annotate(&citation, 0),
        }
    }

    fn annotate(&mut self, citation: &Citation, length: usize) {
        let Some(note) = output_items::annotation(citation, length, &mut self.losses) else {
            return;
        };
        let number = self.part.annotations.len();
        self.events.write_item("response.output_text.annotation.added", self.part.place, |event| {
            event.set("annotation_index", number).set("annotation", note.clone())
        });
        self.part.annotations.push(note);
    }

    fn add_logprobs(&mut self, list: Vec<Logprob>) {
        if !self.wants_logprobs || !matches!(self.open, OpenItem::Message(..)) {
            return;
        }
        if self.part.event == REFUSAL_EVENT {
            let why = "a refusal of the responses format has no log probabilities";
            return self.losses.add("reply.logprobs", why);
        }
        self.events.write_item("response.output_text.delta", self.part.place, |event| {
            event.set("delta", "").set("logprobs", write_logprobs(&list, false))
        });
        self.part.logprobs.extend(list);
    }

    /// Stores the signature of the part in progress. It is written when the part is complete.
    pub(crate) fn set_signature(&mut self, token: Signature) {
        self.part.signature = Some(token);
    }

    /// Completes the part in progress. Its item may continue.
    pub(crate) fn close_part(&mut self) {
        match &self.open {
            OpenItem::Message(..) => self.finish_text(),
            OpenItem::Call(part) => {
                let PartKind::ToolCall(call) = &part.kind else { return };
                if self.part.text.is_empty() && !call.custom {
                    self.events.write_delta(&mut self.part, "{}");
                    self.part.text.push_str("{}");
                }
                let (name, text) = (self.names.split_call(part).1, &*self.part.text);
                let done = |event: ObjectWriter| match call.custom {
                    true => event.set("input", text),
                    false => event.set("name", name).set("arguments", text),
                };
                let event = format!("{}.done", self.part.event);
                self.events.write_item(&event, None, done);
                self.settle_part();
            }
            // No later event can extend a thought.
            OpenItem::Thought(_) => self.finish_item(false),
            OpenItem::Code(..) | OpenItem::ClientCall(..) => self.settle_part(),
            OpenItem::Whole => {
                let signature = self.part.signature.take();
                self.open = OpenItem::None;
                self.write_signature(&SignaturePlace::Previous, signature);
            }
            OpenItem::None => self.part = OpenPart::default(),
        }
    }

    /// Moves the text and the signature of the part in progress into the item.
    fn settle_part(&mut self) {
        let OpenPart { text, signature, .. } = std::mem::take(&mut self.part);
        if let OpenItem::Thought(part)
        | OpenItem::Call(part)
        | OpenItem::ClientCall(_, part)
        | OpenItem::Code(_, Some(part))
        | OpenItem::Code(Some(part), None) = &mut self.open
        {
            part.signature = signature.or(part.signature.take());
            part.grow(PartDelta::Text(text));
        }
    }

    /// Completes a message part.
    fn finish_text(&mut self) {
        if self.part.event.is_empty() {
            // The signature of a part that was lost is lost as well.
            self.part = OpenPart::default();
            return;
        }
        let length = self.part.text.chars().count();
        for citation in std::mem::take(&mut self.part.citations) {
            self.annotate(&citation, length);
        }
        let OpenPart { event, place, text, annotations, logprobs, signature, .. } =
            std::mem::take(&mut self.part);
        let is_refusal = event == REFUSAL_EVENT;
        self.events.write_item(&format!("{event}.done"), place, |done| {
            let done = done.set(if is_refusal { "refusal" } else { "text" }, text.as_str());
            done.set_some("logprobs", (!is_refusal).then(|| write_logprobs(&logprobs, false)))
        });
        let part = match is_refusal {
            true => output_items::refusal_part(&text),
            false => {
                output_items::text_part(&text, annotations, Some(write_logprobs(&logprobs, true)))
            }
        };
        self.write_part("response.content_part.done", place, &part);
        self.push_part(part);
        if signature.is_some() {
            self.finish_item(false);
            self.write_signature(&SignaturePlace::Previous, signature);
        }
    }

    /// Completes the item, with status `incomplete` if it was cut.
    pub(crate) fn finish_item(&mut self, cut: bool) {
        let status = if cut { "incomplete" } else { "completed" };
        self.settle_part();
        let id = self.events.item_id.clone();
        match std::mem::replace(&mut self.open, OpenItem::None) {
            OpenItem::None | OpenItem::Whole => {}
            OpenItem::Message(fields, parts) => {
                let item = output_items::message_item(&id, parts, status);
                self.events.end_item(item.with_object(fields.as_ref()));
            }
            OpenItem::Call(part) => {
                let item = output_items::call_item(&part, &self.names, Some(&id), Some(status));
                self.events.end_item(item);
                let PartKind::ToolCall(call) = part.kind else { return };
                self.write_signature(&SignaturePlace::Call(call.id), part.signature);
            }
            OpenItem::ClientCall(kind, part) => {
                let PartKind::ToolCall(call) = part.kind else { return };
                let item = client_tools::call_item(kind, &call, &id, status);
                match kind {
                    ClientToolKind::Shell => self.events.write_commands(&item),
                    ClientToolKind::ComputerCalls | ClientToolKind::ComputerPreview => {
                        client_tools::note_lost_action(&call, &mut self.losses);
                    }
                    _ => {}
                }
                self.events.end_item(item);
                self.write_signature(&SignaturePlace::Call(call.id), part.signature);
            }
            OpenItem::Thought(part) => {
                let PartKind::Thought(thought) = &part.kind else { return };
                if !thought.text.is_empty() {
                    let name = "response.reasoning_summary_text.done";
                    self.events.write_item(name, SUMMARY_PLACE, |done| {
                        done.set("text", thought.text.as_str())
                    });
                    let name = "response.reasoning_summary_part.done";
                    let summary = || signatures::summary_text(&thought.text);
                    self.events.write_item(name, SUMMARY_PLACE, |done| done.set("part", summary()));
                }
                let item = signatures::write(&part, thought, Some(id));
                self.events.end_item(item);
            }
            OpenItem::Code(code, outcome) => {
                self.events
                    .write_item("response.code_interpreter_call.completed", None, |event| event);
                let container = Some(self.ids.container());
                let item =
                    output_items::code_item(code.as_ref(), outcome.as_ref(), Some(id), container);
                self.events.end_item(item);
                for (place, part) in
                    [(SignaturePlace::Code, code), (SignaturePlace::Previous, outcome)]
                {
                    self.write_signature(&place, part.and_then(|part| part.signature));
                }
            }
        }
    }

    /// Writes an item that only carries a signature.
    fn write_signature(&mut self, place: &SignaturePlace, signature: Option<Signature>) {
        let Some(signature) = signature else { return };
        let id = self.ids.next("signature");
        let item = signatures::empty_item(Some(&id));
        self.events.start_item(id, |_| item.clone());
        let item = item.set("encrypted_content", place.write(&signature));
        self.events.end_item(item);
    }
}

/// Generates item ids, numbered per type.
#[derive(Debug, Default)]
pub(super) struct ItemIds {
    stamp: String,
    used: BTreeMap<&'static str, usize>,
}

impl ItemIds {
    fn new(stamp: &ReplyStamp) -> Self {
        Self { stamp: stamp.id.clone(), used: BTreeMap::new() }
    }

    pub(super) fn next(&mut self, kind: &'static str) -> String {
        let used = self.used.entry(kind).or_default();
        *used += 1;
        // Items that only carry a signature are numbered separately from thoughts.
        let (prefix, mark) = if kind == "signature" { ("rs", "s") } else { (kind, "") };
        format!("{prefix}_{}_{mark}{}", self.stamp, *used - 1)
    }

    /// Id of the container in which code is said to have run.
    pub(super) fn container(&self) -> String {
        format!("cntr_{}", self.stamp)
    }
}
