//! The item being written, from `output_item.added` through its deltas to `output_item.done`.

use canon::{
    ChatRequest, Citation, Logprob, Losses, Part, PartDelta, PartKind, PartStart, Signature,
};
use serde_json::Value;

use super::event_writer::{EventWriter, JsonText};
use super::output_items;
use super::reply_items::ItemIds;
use super::tool_names::ToolNames;
use crate::ReplyStamp;
use crate::fields::{note_foreign_field, note_foreign_fields};
use crate::openai_values::write_logprobs;
use crate::responses::names::ORIGIN;
use crate::responses::signatures::{self, SignaturePlace};

/// Events of the texts of parts, without `.delta` and `.done`.
const TEXT_EVENT: &str = "response.output_text";
const REFUSAL_EVENT: &str = "response.refusal";
const THOUGHT_EVENT: &str = "response.reasoning_summary_text";
const CALL_EVENT: &str = "response.function_call_arguments";
const CUSTOM_CALL_EVENT: &str = "response.custom_tool_call_input";

/// Finished items, and the item and the part in progress.
pub(crate) struct ItemWriter {
    pub(crate) events: EventWriter,
    pub(super) ids: ItemIds,
    pub(super) open: OpenItem,
    pub(super) part: OpenPart,
    names: ToolNames,
    wants_logprobs: bool,
}

/// The item in progress.
pub(super) enum OpenItem {
    None,
    /// A message: its fields only this format has, and its finished parts.
    Message(Option<Value>, Vec<Value>),
    Thought(Part),
    Call(Part),
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
    /// Fields with its place inside of the item.
    pub(super) place: String,
    /// All fields of its deltas before the text.
    pub(super) delta_fields: Vec<u8>,
    /// Fields of its deltas after the text.
    pub(super) tail: &'static str,
    text: String,
    /// Citations without a span. They cover the whole text, so they are written when its length is
    /// known.
    citations: Vec<Citation>,
    annotations: Vec<Value>,
    logprobs: Vec<Logprob>,
    signature: Option<Signature>,
}

impl ItemWriter {
    /// Creates a writer of events, or of the items only.
    pub(crate) fn new(chat: &ChatRequest, stamp: &ReplyStamp, is_silent: bool) -> Self {
        Self {
            events: if is_silent { EventWriter::silent() } else { EventWriter::default() },
            names: ToolNames::new(&chat.tools),
            ids: ItemIds::new(stamp),
            wants_logprobs: chat.sampling.logprobs.is_some(),
            open: OpenItem::None,
            part: OpenPart::default(),
        }
    }

    /// Starts a part.
    pub(crate) fn open_part(&mut self, opening: PartStart, losses: &mut Losses, out: &mut Vec<u8>) {
        match opening {
            PartStart::Text => self.start_text(false, None, out),
            PartStart::Refusal => self.start_text(true, None, out),
            PartStart::Thought => self.start_thought(opening.into_part(), out),
            PartStart::ToolCall { .. } => self.start_call(opening.into_part(), out),
            PartStart::Complete(part) => {
                note_foreign_fields(&part.extras, ORIGIN, "part", losses);
                self.write_whole(*part, losses, out);
            }
        }
    }

    /// Starts an item.
    pub(super) fn start_item(&mut self, id: String, item: impl Into<Value>, out: &mut Vec<u8>) {
        self.finish_item(false, out);
        self.events.start_item(id, &item.into(), out);
    }

    fn start_part(&mut self, event: &'static str, place: String) {
        let tail = if event == TEXT_EVENT { ",\"logprobs\":[]" } else { "" };
        self.part = OpenPart { event, place, tail, ..OpenPart::default() };
    }

    /// Starts a message unless the next part belongs to the open one. Its `fields` are known only
    /// of a part that comes at once. Returns the place of that part.
    pub(super) fn open_message(&mut self, fields: Option<&Value>, out: &mut Vec<u8>) -> String {
        let at = match &self.open {
            OpenItem::Message(open, parts) if open.as_ref() == fields => parts.len(),
            _ => {
                let id = self.ids.next("msg");
                let item = output_items::message_item(&id, Vec::new(), "in_progress");
                self.start_item(id, item, out);
                self.open = OpenItem::Message(fields.cloned(), Vec::new());
                0
            }
        };
        format!(",\"content_index\":{at}")
    }

    /// Starts a text.
    pub(super) fn start_text(&mut self, refusal: bool, fields: Option<&Value>, out: &mut Vec<u8>) {
        let place = self.open_message(fields, out);
        let (event, part) = match refusal {
            true => (REFUSAL_EVENT, output_items::refusal_part("")),
            false => (TEXT_EVENT, output_items::text_part("", Vec::new(), None)),
        };
        self.write_part("response.content_part.added", &place, &part.into(), out);
        self.start_part(event, place);
    }

    /// Writes an event with a part of the message.
    pub(super) fn write_part(&mut self, name: &str, place: &str, part: &Value, out: &mut Vec<u8>) {
        self.events.write_item(name, format_args!("{place},\"part\":{part}"), out);
    }

    pub(super) fn start_thought(&mut self, part: Part, out: &mut Vec<u8>) {
        let id = signatures::known_id(&part).unwrap_or_else(|| self.ids.next("rs"));
        self.start_item(id.clone(), signatures::empty_item(Some(id)), out);
        self.open = OpenItem::Thought(part);
        self.start_part(THOUGHT_EVENT, ",\"summary_index\":0".to_owned());
    }

    pub(super) fn start_call(&mut self, part: Part, out: &mut Vec<u8>) {
        let custom = matches!(&part.kind, PartKind::ToolCall(call) if call.custom);
        let id = self.ids.next(if custom { "ctc" } else { "fc" });
        let item = output_items::call_item(&part, &self.names, Some(&id), Some("in_progress"));
        self.start_item(id, item, out);
        self.open = OpenItem::Call(part);
        self.start_part(if custom { CUSTOM_CALL_EVENT } else { CALL_EVENT }, String::new());
    }

    /// Adds to the part in progress.
    pub(crate) fn add_growth(&mut self, growth: PartDelta, losses: &mut Losses, out: &mut Vec<u8>) {
        match growth {
            PartDelta::Text(text) => self.add_text(&text, out),
            PartDelta::Citation(citation) => self.add_citation(citation, losses, out),
            PartDelta::Logprobs(list) => self.add_logprobs(list, losses, out),
            // Item ids of the provider arrive after the gateway has sent its own, so they are
            // dropped.
            PartDelta::Extra { origin, name, value } => {
                if origin != ORIGIN {
                    note_foreign_field(&name, &value, "part", losses);
                }
            }
        }
    }

    pub(super) fn add_text(&mut self, more: &str, out: &mut Vec<u8>) {
        if self.part.event.is_empty() {
            return;
        }
        if matches!(self.open, OpenItem::Thought(_)) && self.part.text.is_empty() {
            let (place, part) = (self.part.place.clone(), signatures::summary_text(""));
            self.write_part("response.reasoning_summary_part.added", &place, &part, out);
        }
        self.events.write_delta(&mut self.part, more, out);
        self.part.text.push_str(more);
    }

    pub(super) fn add_citation(
        &mut self,
        citation: Citation,
        losses: &mut Losses,
        out: &mut Vec<u8>,
    ) {
        if !matches!(self.open, OpenItem::Message(..)) {
            return;
        }
        if citation.span.is_none() && citation.url.is_some() {
            self.part.citations.push(citation);
        } else if let Some(note) = output_items::annotation(&citation, 0, losses) {
            self.annotate(note, out);
        }
    }

    fn annotate(&mut self, note: Value, out: &mut Vec<u8>) {
        let (place, number) = (&self.part.place, self.part.annotations.len());
        let rest = format_args!("{place},\"annotation_index\":{number},\"annotation\":{note}");
        self.events.write_item("response.output_text.annotation.added", rest, out);
        self.part.annotations.push(note);
    }

    fn add_logprobs(&mut self, list: Vec<Logprob>, losses: &mut Losses, out: &mut Vec<u8>) {
        if !self.wants_logprobs || !matches!(self.open, OpenItem::Message(..)) {
            return;
        }
        if self.part.event == REFUSAL_EVENT {
            let why = "a refusal of the responses format has no log probabilities";
            return losses.add("reply.logprobs", why);
        }
        let (place, logprobs) = (&self.part.place, write_logprobs(&list, false));
        let rest = format_args!("{place},\"delta\":\"\",\"logprobs\":{logprobs}");
        self.events.write_item("response.output_text.delta", rest, out);
        self.part.logprobs.extend(list);
    }

    /// Stores the signature of the part in progress. It is written when the part is complete.
    pub(crate) fn set_signature(&mut self, token: Signature) {
        self.part.signature = Some(token);
    }

    /// Completes the part in progress. Its item may continue.
    pub(crate) fn close_part(&mut self, losses: &mut Losses, out: &mut Vec<u8>) {
        match &self.open {
            OpenItem::Message(..) => self.finish_text(losses, out),
            OpenItem::Call(part) => {
                let PartKind::ToolCall(call) = &part.kind else { return };
                let name = JsonText(self.names.split_call(&part.extras, call).1);
                if self.part.text.is_empty() && !call.custom {
                    self.events.write_delta(&mut self.part, "{}", out);
                    self.part.text.push_str("{}");
                }
                let text = JsonText(&self.part.text);
                match call.custom {
                    true => self.events.write_done(
                        self.part.event,
                        format_args!(",\"input\":{text}"),
                        out,
                    ),
                    false => {
                        let rest = format_args!(",\"name\":{name},\"arguments\":{text}");
                        self.events.write_done(self.part.event, rest, out);
                    }
                }
                self.settle_part();
            }
            // No later event can extend a thought.
            OpenItem::Thought(_) => self.finish_item(false, out),
            OpenItem::Code(..) => self.settle_part(),
            OpenItem::Whole => {
                let signature = self.part.signature.take();
                self.open = OpenItem::None;
                self.write_signature(&SignaturePlace::Previous, signature.as_ref(), out);
            }
            OpenItem::None => self.part = OpenPart::default(),
        }
    }

    /// Moves the text and the signature of the part in progress into the item.
    fn settle_part(&mut self) {
        let OpenPart { text, signature, .. } = std::mem::take(&mut self.part);
        if let OpenItem::Thought(part)
        | OpenItem::Call(part)
        | OpenItem::Code(_, Some(part))
        | OpenItem::Code(Some(part), None) = &mut self.open
        {
            part.signature = signature.or(part.signature.take());
            part.grow(PartDelta::Text(text));
        }
    }

    /// Completes a message part.
    fn finish_text(&mut self, losses: &mut Losses, out: &mut Vec<u8>) {
        if self.part.event.is_empty() {
            // The signature of a part that was lost is lost as well.
            self.part = OpenPart::default();
            return;
        }
        let length = self.part.text.chars().count();
        for citation in std::mem::take(&mut self.part.citations) {
            if let Some(note) = output_items::annotation(&citation, length, losses) {
                self.annotate(note, out);
            }
        }
        let open = std::mem::take(&mut self.part);
        let (place, text) = (&open.place, JsonText(&open.text));
        let part = if open.event == REFUSAL_EVENT {
            self.events.write_done(open.event, format_args!("{place},\"refusal\":{text}"), out);
            output_items::refusal_part(&open.text)
        } else {
            let logprobs = write_logprobs(&open.logprobs, false);
            let rest = format_args!("{place},\"text\":{text},\"logprobs\":{logprobs}");
            self.events.write_done(open.event, rest, out);
            let logprobs = write_logprobs(&open.logprobs, true);
            output_items::text_part(&open.text, open.annotations, Some(logprobs))
        };
        let part = Value::from(part);
        self.write_part("response.content_part.done", place, &part, out);
        if let OpenItem::Message(_, parts) = &mut self.open {
            parts.push(part);
        }
        if open.signature.is_some() {
            self.finish_item(false, out);
            self.write_signature(&SignaturePlace::Previous, open.signature.as_ref(), out);
        }
    }

    /// Completes the item, with status `incomplete` if it was cut.
    pub(crate) fn finish_item(&mut self, cut: bool, out: &mut Vec<u8>) {
        let status = if cut { "incomplete" } else { "completed" };
        self.settle_part();
        let id = self.events.item_id.clone();
        match std::mem::replace(&mut self.open, OpenItem::None) {
            OpenItem::None | OpenItem::Whole => {}
            OpenItem::Message(fields, parts) => {
                let item = output_items::message_item(&id, parts, status);
                self.events.end_item(item.with_object(fields.as_ref()).into(), out);
            }
            OpenItem::Call(part) => {
                let item =
                    output_items::call_item(&part, &self.names, Some(&id), Some(status)).into();
                self.events.end_item(item, out);
                let PartKind::ToolCall(call) = part.kind else { return };
                let place = SignaturePlace::Call(call.id);
                self.write_signature(&place, part.signature.as_ref(), out);
            }
            OpenItem::Thought(part) => {
                let PartKind::Thought(thought) = &part.kind else { return };
                if !thought.text.is_empty() {
                    let (place, text) = (",\"summary_index\":0", JsonText(&thought.text));
                    let rest = format_args!("{place},\"text\":{text}");
                    self.events.write_done(THOUGHT_EVENT, rest, out);
                    let summary = signatures::summary_text(&thought.text);
                    let done = "response.reasoning_summary_part.done";
                    self.write_part(done, place, &summary, out);
                }
                self.events.end_item(signatures::write(&part, thought, Some(id)).into(), out);
            }
            OpenItem::Code(code, outcome) => {
                let container = Some(self.ids.container());
                let item =
                    output_items::code_item(code.as_ref(), outcome.as_ref(), Some(id), container);
                let done = "response.code_interpreter_call.completed";
                self.events.write_item(done, format_args!(""), out);
                self.events.end_item(item.into(), out);
                for (place, part) in
                    [(SignaturePlace::Code, code), (SignaturePlace::Previous, outcome)]
                {
                    let signature = part.and_then(|part| part.signature);
                    self.write_signature(&place, signature.as_ref(), out);
                }
            }
        }
    }

    /// Writes an item that only carries a signature.
    fn write_signature(
        &mut self,
        place: &SignaturePlace,
        signature: Option<&Signature>,
        out: &mut Vec<u8>,
    ) {
        let Some(signature) = signature else { return };
        let id = self.ids.next("signature");
        let item = signatures::empty_item(Some(id.clone()));
        self.events.start_item(id, &item.clone().into(), out);
        let item = item.set("encrypted_content", place.write(signature));
        self.events.end_item(item.into(), out);
    }
}
