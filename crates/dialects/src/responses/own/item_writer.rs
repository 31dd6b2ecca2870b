//! The item being written, from `output_item.added` through its deltas to `output_item.done`.

use canon::{
    ChatRequest, Citation, ExtraFields, Logprob, Losses, Part, PartDelta, PartKind, PartStart,
    Signature, Thought, ToolCall,
};
use serde_json::Value;

use super::event_writer::{EventWriter, JsonText};
use super::output_items;
use super::reply_items::{DeclaredCall, ItemIds};
use super::tool_names::{self, ToolNames};
use crate::ReplyStamp;
use crate::fields::{note_foreign_field, note_foreign_fields};
use crate::responses::names::ORIGIN;
use crate::responses::signatures::{self, SignaturePlace};

/// Finished items and the item in progress.
pub(crate) struct ItemWriter {
    pub(crate) events: EventWriter,
    pub(super) ids: ItemIds,
    pub(super) open: OpenItem,
    names: ToolNames,
    wants_logprobs: bool,
}

/// The item in progress.
pub(super) enum OpenItem {
    None,
    Message(OpenMessage),
    /// A thought, its text and its signature.
    Thought(Part),
    Call {
        call: DeclaredCall,
        signature: Option<Signature>,
    },
    /// Code and its output.
    Code {
        code: Option<Part>,
        outcome: Option<Part>,
    },
    /// An item written in one step. Only its signature may follow.
    Whole {
        signature: Option<Signature>,
    },
}

/// The message in progress.
pub(super) struct OpenMessage {
    /// Fields only this format has.
    pub(super) fields: Option<Value>,
    pub(super) parts: Vec<Value>,
    pub(super) open_text: Option<OpenMessageText>,
}

/// The message part in progress.
#[derive(Default)]
pub(super) struct OpenMessageText {
    refusal: bool,
    /// The fields of its deltas before the text.
    delta_fields: Vec<u8>,
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
        }
    }

    /// Starts a part.
    pub(crate) fn open_part(&mut self, opening: PartStart, losses: &mut Losses, out: &mut Vec<u8>) {
        match opening {
            PartStart::Text => self.start_text(false, None, out),
            PartStart::Refusal => self.start_text(true, None, out),
            PartStart::Thought => {
                self.start_thought(Part::new(PartKind::Thought(Thought::default())), out);
            }
            PartStart::ToolCall { id, name, custom } => {
                let call = ToolCall { id, name, arguments: String::new(), custom };
                self.start_call(call, ExtraFields::new(), out);
            }
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

    /// Starts a message unless the next part belongs to the open one. Its `fields` are known only
    /// of a part that comes at once. Returns the index of that part.
    pub(super) fn open_message(&mut self, fields: Option<&Value>, out: &mut Vec<u8>) -> usize {
        let is_same = matches!(&self.open, OpenItem::Message(open)
            if open.open_text.is_none() && open.fields.as_ref() == fields);
        if !is_same {
            let id = self.ids.next("msg");
            let item = output_items::message_item(&id, Vec::new(), "in_progress");
            self.start_item(id, item, out);
            let (fields, parts) = (fields.cloned(), Vec::new());
            self.open = OpenItem::Message(OpenMessage { fields, parts, open_text: None });
        }
        if let OpenItem::Message(open) = &self.open { open.parts.len() } else { 0 }
    }

    /// Starts a text.
    pub(super) fn start_text(&mut self, refusal: bool, fields: Option<&Value>, out: &mut Vec<u8>) {
        let at = self.open_message(fields, out);
        if let OpenItem::Message(open) = &mut self.open {
            open.open_text = Some(OpenMessageText { refusal, ..OpenMessageText::default() });
        }
        let part = if refusal {
            output_items::refusal_part("")
        } else {
            output_items::text_part("", Vec::new(), None)
        };
        self.write_part("response.content_part.added", at, &part.into(), out);
    }

    /// Writes an event with a part of the message.
    pub(super) fn write_part(&mut self, name: &str, at: usize, part: &Value, out: &mut Vec<u8>) {
        let rest = format_args!(",\"content_index\":{at},\"part\":{part}");
        self.events.write_item(name, rest, out);
    }

    pub(super) fn start_thought(&mut self, part: Part, out: &mut Vec<u8>) {
        let id = signatures::known_id(&part).unwrap_or_else(|| self.ids.next("rs"));
        self.start_item(id.clone(), signatures::empty_item(Some(id)), out);
        self.open = OpenItem::Thought(part);
    }

    pub(super) fn start_call(&mut self, call: ToolCall, extras: ExtraFields, out: &mut Vec<u8>) {
        let call = DeclaredCall::new(call, extras, &self.names);
        let id = self.ids.next(call.prefix());
        let item = call.item(&id, "in_progress");
        self.start_item(id, item, out);
        self.open = OpenItem::Call { call, signature: None };
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
        let events = &mut self.events;
        match &mut self.open {
            OpenItem::Message(OpenMessage { parts, open_text: Some(open), .. }) => {
                let (name, tail) = if open.refusal {
                    ("response.refusal.delta", "")
                } else {
                    ("response.output_text.delta", ",\"logprobs\":[]")
                };
                events.write_delta(name, &mut open.delta_fields, parts.len(), more, tail, out);
                open.text.push_str(more);
            }
            OpenItem::Thought(Part { kind: PartKind::Thought(thought), .. }) => {
                if thought.text.is_empty() {
                    let part = signatures::summary_text("");
                    let rest = format_args!(",\"summary_index\":0,\"part\":{part}");
                    events.write_item("response.reasoning_summary_part.added", rest, out);
                }
                let rest = format_args!(",\"summary_index\":0,\"delta\":{}", JsonText(more));
                events.write_item("response.reasoning_summary_text.delta", rest, out);
                thought.text.push_str(more);
            }
            OpenItem::Call { call, .. } => {
                call.arguments.push_str(more);
                if !call.wrapped {
                    let rest = format_args!(",\"delta\":{}", JsonText(more));
                    events.write_item(call.event(true), rest, out);
                }
            }
            OpenItem::Message(_)
            | OpenItem::Thought(_)
            | OpenItem::Code { .. }
            | OpenItem::Whole { .. }
            | OpenItem::None => {}
        }
    }

    pub(super) fn add_citation(
        &mut self,
        citation: Citation,
        losses: &mut Losses,
        out: &mut Vec<u8>,
    ) {
        let OpenItem::Message(OpenMessage { parts, open_text: Some(open), .. }) = &mut self.open
        else {
            return;
        };
        if citation.span.is_none() && citation.url.is_some() {
            open.citations.push(citation);
        } else if let Some(note) = output_items::annotation(&citation, 0, losses) {
            open.annotate(&mut self.events, parts.len(), note, out);
        }
    }

    fn add_logprobs(&mut self, list: Vec<Logprob>, losses: &mut Losses, out: &mut Vec<u8>) {
        let OpenItem::Message(OpenMessage { parts, open_text: Some(open), .. }) = &mut self.open
        else {
            return;
        };
        if !self.wants_logprobs {
            return;
        }
        if open.refusal {
            let why = "a refusal of the responses format has no log probabilities";
            losses.add("reply.logprobs", why);
            return;
        }
        let (at, logprobs) = (parts.len(), output_items::logprobs(&list, true));
        let rest = format_args!(",\"content_index\":{at},\"delta\":\"\",\"logprobs\":{logprobs}");
        self.events.write_item("response.output_text.delta", rest, out);
        open.logprobs.extend(list);
    }

    /// Stores the signature of the part in progress. It is written when the part is complete.
    pub(crate) fn set_signature(&mut self, token: Signature) {
        match &mut self.open {
            OpenItem::Message(OpenMessage {
                open_text: Some(OpenMessageText { signature, .. }),
                ..
            })
            | OpenItem::Thought(Part { signature, .. })
            | OpenItem::Call { signature, .. }
            | OpenItem::Code { outcome: Some(Part { signature, .. }), .. }
            | OpenItem::Code { outcome: None, code: Some(Part { signature, .. }) }
            | OpenItem::Whole { signature } => *signature = Some(token),
            OpenItem::Message(_) | OpenItem::Code { .. } | OpenItem::None => {}
        }
    }

    /// Completes the part in progress. Its item may continue.
    pub(crate) fn close_part(&mut self, losses: &mut Losses, out: &mut Vec<u8>) {
        match &mut self.open {
            OpenItem::Message(_) => self.finish_text(losses, out),
            OpenItem::Call { call, .. } => {
                if call.wrapped {
                    call.wrapped = false;
                    let text = tool_names::unwrap_input(&std::mem::take(&mut call.arguments));
                    self.add_text(&text, out);
                    self.close_part(losses, out);
                    return;
                }
                if call.arguments.is_empty() && !call.custom {
                    // SDKs parse the arguments, and an empty string is not valid JSON.
                    self.add_text("{}", out);
                    self.close_part(losses, out);
                    return;
                }
                let (name, text) = (JsonText(&call.name), JsonText(&call.arguments));
                let event = call.event(false);
                if call.custom {
                    self.events.write_item(event, format_args!(",\"input\":{text}"), out);
                } else {
                    let rest = format_args!(",\"name\":{name},\"arguments\":{text}");
                    self.events.write_item(event, rest, out);
                }
            }
            // No later event can extend a thought.
            OpenItem::Thought(_) => self.finish_item(false, out),
            OpenItem::Whole { signature } => {
                let signature = signature.take();
                self.open = OpenItem::None;
                self.write_signature(&SignaturePlace::Previous, signature.as_ref(), out);
            }
            OpenItem::Code { .. } | OpenItem::None => {}
        }
    }

    /// Completes a message part.
    fn finish_text(&mut self, losses: &mut Losses, out: &mut Vec<u8>) {
        let OpenItem::Message(OpenMessage { parts, open_text, .. }) = &mut self.open else {
            return;
        };
        let Some(mut open) = open_text.take() else { return };
        let (at, length) = (parts.len(), open.text.chars().count());
        for citation in std::mem::take(&mut open.citations) {
            if let Some(note) = output_items::annotation(&citation, length, losses) {
                open.annotate(&mut self.events, at, note, out);
            }
        }
        let text = JsonText(&open.text);
        let part = if open.refusal {
            let rest = format_args!(",\"content_index\":{at},\"refusal\":{text}");
            self.events.write_item("response.refusal.done", rest, out);
            output_items::refusal_part(&open.text)
        } else {
            let logprobs = output_items::logprobs(&open.logprobs, true);
            let rest =
                format_args!(",\"content_index\":{at},\"text\":{text},\"logprobs\":{logprobs}");
            self.events.write_item("response.output_text.done", rest, out);
            let logprobs = output_items::logprobs(&open.logprobs, false);
            output_items::text_part(&open.text, open.annotations, Some(logprobs))
        };
        let part = Value::from(part);
        let rest = format_args!(",\"content_index\":{at},\"part\":{part}");
        self.events.write_item("response.content_part.done", rest, out);
        parts.push(part);
        if open.signature.is_some() {
            self.finish_item(false, out);
            self.write_signature(&SignaturePlace::Previous, open.signature.as_ref(), out);
        }
    }

    /// Completes the item, with status `incomplete` if it was cut.
    pub(crate) fn finish_item(&mut self, cut: bool, out: &mut Vec<u8>) {
        let status = if cut { "incomplete" } else { "completed" };
        let id = self.events.item_id.clone();
        match std::mem::replace(&mut self.open, OpenItem::None) {
            OpenItem::None | OpenItem::Whole { .. } => {}
            OpenItem::Message(OpenMessage { fields, parts, open_text: _ }) => {
                let item = output_items::message_item(&id, parts, status);
                self.events.end_item(item.with_object(fields.as_ref()).into(), out);
            }
            OpenItem::Call { call, signature } => {
                self.events.end_item(call.item(&id, status).into(), out);
                let place = SignaturePlace::Call(call.call_id);
                self.write_signature(&place, signature.as_ref(), out);
            }
            OpenItem::Thought(part) => {
                let PartKind::Thought(thought) = &part.kind else { return };
                if !thought.text.is_empty() {
                    let text = JsonText(&thought.text);
                    let rest = format_args!(",\"summary_index\":0,\"text\":{text}");
                    self.events.write_item("response.reasoning_summary_text.done", rest, out);
                    let summary = signatures::summary_text(&thought.text);
                    let rest = format_args!(",\"summary_index\":0,\"part\":{summary}");
                    self.events.write_item("response.reasoning_summary_part.done", rest, out);
                }
                self.events.end_item(signatures::write(&part, thought, Some(id)).into(), out);
            }
            OpenItem::Code { code, outcome } => {
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
        self.events.start_item(id.clone(), &signatures::empty_item(Some(id.clone())).into(), out);
        let item = signatures::signature_item(place.write(signature), Some(id));
        self.events.end_item(item.into(), out);
    }
}

impl OpenMessageText {
    fn annotate(&mut self, events: &mut EventWriter, at: usize, note: Value, out: &mut Vec<u8>) {
        let number = self.annotations.len();
        let rest = format_args!(
            ",\"content_index\":{at},\"annotation_index\":{number},\"annotation\":{note}"
        );
        events.write_item("response.output_text.annotation.added", rest, out);
        self.annotations.push(note);
    }
}
