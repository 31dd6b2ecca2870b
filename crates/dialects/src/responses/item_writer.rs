//! State of the item being streamed, from `output_item.added` through its deltas to
//! `output_item.done`.
//!
//! See <https://platform.openai.com/docs/api-reference/responses-streaming>.

use canon::{
    ChatRequest, Citation, Logprob, Losses, Part, PartDelta, PartKind, PartStart, Signature,
    Thought, ToolCall,
};
use serde_json::Value;
use std::fmt::Arguments;
use std::io::Write as _;

use super::names::ORIGIN;
use super::own::tool_names::{self, ToolNames};
use super::reply_items::{DeclaredCall, ItemIds, message_item};
use super::signatures::{self, SignaturePlace};
use super::write_output;
use crate::fields::{ObjectWriter, note_foreign_field, note_foreign_fields};
use crate::{ReplyStamp, json};

/// Writes events with increasing sequence numbers.
#[derive(Debug, Default)]
pub(super) struct EventWriter {
    /// Sequence number of the next event.
    pub(super) sequence: u64,
}

impl EventWriter {
    /// Writes one event. `rest` holds its fields after `type` and `sequence_number`.
    pub(super) fn write_event(&mut self, name: &str, rest: Arguments<'_>, out: &mut Vec<u8>) {
        self.open_event(name, out);
        // Writing to a `Vec` cannot fail.
        let _ = write!(out, "{rest}}}\n\n");
    }

    /// Writes an event that has the whole response.
    pub(super) fn write_response(
        &mut self,
        name: &str,
        response: &ObjectWriter,
        out: &mut Vec<u8>,
    ) {
        self.open_event(name, out);
        for piece in [b"\"response\":", &response.to_json()[..], b"}\n\n"] {
            out.extend_from_slice(piece);
        }
    }

    fn open_event(&mut self, name: &str, out: &mut Vec<u8>) {
        for piece in ["event: ", name, "\ndata: {\"type\":\"", name, "\",\"sequence_number\":"] {
            out.extend_from_slice(piece.as_bytes());
        }
        json::write_value(&self.sequence, out);
        out.push(b',');
        self.sequence += 1;
    }

    /// Writes the delta of a text, the most frequent event. `fields` are the fields that tell its
    /// place, `tail` those after the text.
    fn write_delta(
        &mut self,
        name: &str,
        fields: &[u8],
        text: &str,
        tail: &str,
        out: &mut Vec<u8>,
    ) {
        self.open_event(name, out);
        out.extend_from_slice(fields);
        json::write_string(text, out);
        out.extend_from_slice(tail.as_bytes());
        out.extend_from_slice(b"}\n\n");
    }
}

/// Finished items and the item in progress.
pub(super) struct ItemWriter {
    pub(super) events: EventWriter,
    /// Finished items.
    pub(super) output: Vec<Value>,
    pub(super) ids: ItemIds,
    pub(super) open: OpenItem,
    names: ToolNames,
    wants_logprobs: bool,
}

/// The item in progress.
pub(super) enum OpenItem {
    None,
    Message {
        id: String,
        parts: Vec<Value>,
        open_text: Option<OpenMessageText>,
    },
    Thought {
        id: String,
        thought: Thought,
        signature: Option<Signature>,
    },
    Call {
        id: String,
        call: DeclaredCall,
        signature: Option<Signature>,
    },
    /// Code, its output, and the signatures of both.
    Code {
        id: String,
        code: Option<Part>,
        outcome: Option<Part>,
        signatures: (Option<Signature>, Option<Signature>),
    },
    /// An item written in one step. Only its signature may follow.
    Whole {
        signature: Option<Signature>,
    },
}

/// The message part in progress.
pub(super) struct OpenMessageText {
    refusal: bool,
    /// The fields of its deltas before the text, once they are needed.
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
    pub(super) fn new(chat: &ChatRequest, stamp: &ReplyStamp) -> Self {
        Self {
            events: EventWriter::default(),
            output: Vec::new(),
            names: ToolNames::new(&chat.tools),
            ids: ItemIds::new(stamp),
            wants_logprobs: chat.sampling.logprobs.is_some(),
            open: OpenItem::None,
        }
    }

    /// Starts a part.
    pub(super) fn open_part(&mut self, opening: PartStart, losses: &mut Losses, out: &mut Vec<u8>) {
        match opening {
            PartStart::Text => self.start_text(false, out),
            PartStart::Refusal => self.start_text(true, out),
            PartStart::Thought => self.start_thought(Thought::default(), out),
            PartStart::ToolCall { id, name, custom } => {
                self.start_call(&ToolCall { id, name, arguments: String::new(), custom }, out);
            }
            PartStart::Complete(part) => {
                note_foreign_fields(&part.extras, ORIGIN, "part", losses);
                self.write_whole(*part, losses, out);
            }
        }
    }

    /// Starts a text in the open message, or in a new one.
    pub(super) fn start_text(&mut self, refusal: bool, out: &mut Vec<u8>) {
        if !matches!(self.open, OpenItem::Message { open_text: None, .. }) {
            self.finish_item(false, out);
            let id = self.ids.next("msg");
            let item = message_item(&id, Vec::new()).set("status", "in_progress");
            self.write_added(&item.into(), out);
            self.open = OpenItem::Message { id, parts: Vec::new(), open_text: None };
        }
        let index = self.output.len();
        let OpenItem::Message { id, parts, open_text } = &mut self.open else { return };
        *open_text = Some(OpenMessageText {
            refusal,
            delta_fields: Vec::new(),
            text: String::new(),
            citations: Vec::new(),
            annotations: Vec::new(),
            logprobs: Vec::new(),
            signature: None,
        });
        let part = if refusal {
            write_output::refusal_part("")
        } else {
            write_output::text_part("", &[], None, &mut Losses::new())
        };
        let at = parts.len();
        self.events.write_event(
            "response.content_part.added",
            format_args!(
                "\"item_id\":\"{id}\",\"output_index\":{index},\"content_index\":{at},\"part\":{part}"
            ),
            out,
        );
    }

    pub(super) fn start_thought(&mut self, thought: Thought, out: &mut Vec<u8>) {
        self.finish_item(false, out);
        let id = self.ids.next("rs");
        let item = ObjectWriter::new()
            .set("type", "reasoning")
            .set("id", id.as_str())
            .set("summary", Value::Array(Vec::new()));
        self.write_added(&item.into(), out);
        self.open = OpenItem::Thought { id, thought, signature: None };
    }

    pub(super) fn start_call(&mut self, call: &ToolCall, out: &mut Vec<u8>) {
        self.finish_item(false, out);
        let call = DeclaredCall::new(call, &self.names);
        let id = self.ids.next(call.prefix());
        self.write_added(&call.item(&id, "", "in_progress"), out);
        self.open = OpenItem::Call { id, call, signature: None };
    }

    /// Adds to the part in progress.
    pub(super) fn add_growth(&mut self, growth: PartDelta, losses: &mut Losses, out: &mut Vec<u8>) {
        match growth {
            PartDelta::Text(text) => self.add_text(text, out),
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

    fn add_text(&mut self, more: String, out: &mut Vec<u8>) {
        let index = self.output.len();
        match &mut self.open {
            OpenItem::Message { id, parts, open_text: Some(open_text) } => {
                let (name, tail) = if open_text.refusal {
                    ("response.refusal.delta", "")
                } else {
                    ("response.output_text.delta", ",\"logprobs\":[]")
                };
                if open_text.delta_fields.is_empty() {
                    let at = parts.len();
                    let _ = write!(
                        open_text.delta_fields,
                        "\"item_id\":\"{id}\",\"output_index\":{index},\"content_index\":{at},\
                         \"delta\":"
                    );
                }
                self.events.write_delta(name, &open_text.delta_fields, &more, tail, out);
                open_text.text.push_str(&more);
            }
            OpenItem::Thought { id, thought, .. } => {
                let head =
                    format!("\"item_id\":\"{id}\",\"output_index\":{index},\"summary_index\":0");
                if thought.text.is_empty() {
                    let part = signatures::summary_text("");
                    self.events.write_event(
                        "response.reasoning_summary_part.added",
                        format_args!("{head},\"part\":{part}"),
                        out,
                    );
                }
                let delta = Value::from(more.as_str());
                self.events.write_event(
                    "response.reasoning_summary_text.delta",
                    format_args!("{head},\"delta\":{delta}"),
                    out,
                );
                thought.text.push_str(&more);
            }
            OpenItem::Call { id, call, .. } => {
                call.arguments.push_str(&more);
                if !call.wrapped {
                    let name = call_event(call, "delta");
                    let delta = Value::from(more);
                    self.events.write_event(
                        name,
                        format_args!(
                            "\"item_id\":\"{id}\",\"output_index\":{index},\"delta\":{delta}"
                        ),
                        out,
                    );
                }
            }
            OpenItem::Message { open_text: None, .. }
            | OpenItem::Code { .. }
            | OpenItem::Whole { .. }
            | OpenItem::None => {}
        }
    }

    fn add_citation(&mut self, citation: Citation, losses: &mut Losses, out: &mut Vec<u8>) {
        let OpenItem::Message { open_text: Some(open_text), .. } = &mut self.open else { return };
        let is_complete = citation.span.is_some() || citation.url.is_none();
        if is_complete {
            if let Some(note) = write_output::annotation(&citation, 0, losses) {
                self.write_annotation(note, out);
            }
        } else {
            open_text.citations.push(citation);
        }
    }

    fn write_annotation(&mut self, note: Value, out: &mut Vec<u8>) {
        let index = self.output.len();
        let OpenItem::Message { id, parts, open_text: Some(open_text) } = &mut self.open else {
            return;
        };
        let (at, number) = (parts.len(), open_text.annotations.len());
        self.events.write_event(
            "response.output_text.annotation.added",
            format_args!(
                "\"item_id\":\"{id}\",\"output_index\":{index},\"content_index\":{at},\
                 \"annotation_index\":{number},\"annotation\":{note}"
            ),
            out,
        );
        open_text.annotations.push(note);
    }

    fn add_logprobs(&mut self, list: Vec<Logprob>, losses: &mut Losses, out: &mut Vec<u8>) {
        let index = self.output.len();
        let OpenItem::Message { id, parts, open_text: Some(open_text) } = &mut self.open else {
            return;
        };
        if !self.wants_logprobs {
            return;
        }
        if open_text.refusal {
            losses.add("reply.logprobs", write_output::NO_REFUSAL_LOGPROBS);
            return;
        }
        let at = parts.len();
        let logprobs = write_output::logprobs(&list, true);
        self.events.write_event(
            "response.output_text.delta",
            format_args!(
                "\"item_id\":\"{id}\",\"output_index\":{index},\"content_index\":{at},\
                 \"delta\":\"\",\"logprobs\":{logprobs}"
            ),
            out,
        );
        open_text.logprobs.extend(list);
    }

    /// Stores the signature of the part in progress. It is written when the part is complete.
    pub(super) fn set_signature(&mut self, token: Signature) {
        match &mut self.open {
            OpenItem::Message { open_text: Some(OpenMessageText { signature, .. }), .. }
            | OpenItem::Thought { signature, .. }
            | OpenItem::Call { signature, .. }
            | OpenItem::Code { outcome: None, signatures: (signature, _), .. }
            | OpenItem::Code { outcome: Some(_), signatures: (_, signature), .. }
            | OpenItem::Whole { signature } => *signature = Some(token),
            OpenItem::Message { open_text: None, .. } | OpenItem::None => {}
        }
    }

    /// Completes the part in progress. Its item may continue.
    pub(super) fn close_part(&mut self, losses: &mut Losses, out: &mut Vec<u8>) {
        let index = self.output.len();
        match &mut self.open {
            OpenItem::Message { open_text: Some(_), .. } => self.finish_text(losses, out),
            OpenItem::Call { id, call, .. } => {
                if call.wrapped {
                    call.wrapped = false;
                    let text = tool_names::unwrap_input(&std::mem::take(&mut call.arguments));
                    self.add_text(text, out);
                    self.close_part(losses, out);
                    return;
                }
                if call.arguments.is_empty() && !call.custom {
                    // SDKs parse the arguments, and an empty string is not valid JSON.
                    self.add_text("{}".to_owned(), out);
                    self.close_part(losses, out);
                    return;
                }
                let text = Value::from(call.arguments.as_str());
                let head = format!("\"item_id\":\"{id}\",\"output_index\":{index}");
                let name = Value::from(call.name.as_str());
                let rest = if call.custom {
                    format!("{head},\"input\":{text}")
                } else {
                    format!("{head},\"name\":{name},\"arguments\":{text}")
                };
                self.events.write_event(call_event(call, "done"), format_args!("{rest}"), out);
            }
            // No later event can extend a thought.
            OpenItem::Thought { .. } => self.finish_item(false, out),
            OpenItem::Whole { signature } => {
                let signature = signature.take();
                self.open = OpenItem::None;
                if let Some(signature) = signature {
                    self.write_signature_item(SignaturePlace::Previous.write(&signature), out);
                }
            }
            OpenItem::Message { open_text: None, .. } | OpenItem::Code { .. } | OpenItem::None => {}
        }
    }

    /// Completes a message part.
    fn finish_text(&mut self, losses: &mut Losses, out: &mut Vec<u8>) {
        let OpenItem::Message { open_text: Some(open_text), .. } = &mut self.open else { return };
        let length = open_text.text.chars().count();
        for citation in std::mem::take(&mut open_text.citations) {
            if let Some(note) = write_output::annotation(&citation, length, losses) {
                self.write_annotation(note, out);
            }
        }
        let index = self.output.len();
        let OpenItem::Message { id, parts, open_text } = &mut self.open else { return };
        let Some(OpenMessageText { refusal, text, annotations, logprobs, signature, .. }) =
            open_text.take()
        else {
            return;
        };
        let at = parts.len();
        let head = format!("\"item_id\":\"{id}\",\"output_index\":{index},\"content_index\":{at}");
        let text_json = Value::from(text.as_str());
        let part = if refusal {
            let rest = format_args!("{head},\"refusal\":{text_json}");
            self.events.write_event("response.refusal.done", rest, out);
            write_output::refusal_part(&text)
        } else {
            let delta_logprobs = write_output::logprobs(&logprobs, true);
            let rest = format_args!("{head},\"text\":{text_json},\"logprobs\":{delta_logprobs}");
            self.events.write_event("response.output_text.done", rest, out);
            let full_logprobs = write_output::logprobs(&logprobs, false);
            ObjectWriter::new()
                .set("type", "output_text")
                .set("text", text)
                .set("annotations", annotations)
                .set("logprobs", full_logprobs)
                .into()
        };
        self.events.write_event(
            "response.content_part.done",
            format_args!("{head},\"part\":{part}"),
            out,
        );
        parts.push(part);
        if let Some(signature) = signature {
            self.finish_item(false, out);
            self.write_signature_item(SignaturePlace::Previous.write(&signature), out);
        }
    }

    /// Completes the item, with status `incomplete` if it was cut.
    pub(super) fn finish_item(&mut self, cut: bool, out: &mut Vec<u8>) {
        let status = if cut { "incomplete" } else { "completed" };
        let index = self.output.len();
        match std::mem::replace(&mut self.open, OpenItem::None) {
            OpenItem::None | OpenItem::Whole { .. } => {}
            OpenItem::Message { id, parts, open_text: _ } => {
                self.write_done(message_item(&id, parts).set("status", status).into(), out);
            }
            OpenItem::Call { id, call, signature } => {
                self.write_done(call.item(&id, &call.arguments, status), out);
                if let Some(signature) = signature {
                    self.write_signature_item(
                        SignaturePlace::Call(call.call_id.clone()).write(&signature),
                        out,
                    );
                }
            }
            OpenItem::Thought { id, thought, signature } => {
                self.finish_thought(&id, &thought, signature.as_ref(), out)
            }
            OpenItem::Code { id, code, outcome, signatures: (of_code, of_outcome) } => {
                let source = code.as_ref().and_then(|part| match &part.kind {
                    PartKind::CodeExecution(code) => Some((part, code)),
                    PartKind::Text { .. }
                    | PartKind::Refusal(_)
                    | PartKind::Media(_)
                    | PartKind::Thought(_)
                    | PartKind::ToolCall(_)
                    | PartKind::ToolResult(_)
                    | PartKind::CodeResult(_)
                    | PartKind::WebSearch(_)
                    | PartKind::Foreign { .. } => None,
                });
                let container = Some(self.ids.container());
                let item =
                    write_output::code_item(source, outcome.as_ref(), Some(id.clone()), container);
                self.events.write_event(
                    "response.code_interpreter_call.completed",
                    format_args!("\"item_id\":\"{id}\",\"output_index\":{index}"),
                    out,
                );
                self.write_done(item.into(), out);
                if let Some(signature) = of_code {
                    self.write_signature_item(SignaturePlace::Code.write(&signature), out);
                }
                if let Some(signature) = of_outcome {
                    self.write_signature_item(SignaturePlace::Previous.write(&signature), out);
                }
            }
        }
    }

    fn finish_thought(
        &mut self,
        id: &str,
        thought: &Thought,
        signature: Option<&Signature>,
        out: &mut Vec<u8>,
    ) {
        let index = self.output.len();
        let mut summary = Vec::new();
        if !thought.text.is_empty() {
            let head = format!("\"item_id\":\"{id}\",\"output_index\":{index},\"summary_index\":0");
            let text = Value::from(thought.text.as_str());
            let part = signatures::summary_text(&thought.text);
            self.events.write_event(
                "response.reasoning_summary_text.done",
                format_args!("{head},\"text\":{text}"),
                out,
            );
            self.events.write_event(
                "response.reasoning_summary_part.done",
                format_args!("{head},\"part\":{part}"),
                out,
            );
            summary.push(part);
        }
        // The id was sent before the signature was known. A signature of this format is bound to
        // another id, so it goes into an envelope too.
        let item = ObjectWriter::new()
            .set("type", "reasoning")
            .set("id", id)
            .set("summary", summary)
            .set_some(
                "encrypted_content",
                signature
                    .map(|signature| signatures::thought_signature(signature, thought.redacted)),
            );
        self.write_done(item.into(), out);
    }

    /// Writes an item that only carries a signature.
    fn write_signature_item(&mut self, token: String, out: &mut Vec<u8>) {
        let id = self.ids.next("signature");
        let item = ObjectWriter::new()
            .set("type", "reasoning")
            .set("id", id.as_str())
            .set("summary", Value::Array(Vec::new()));
        self.write_added(&item.into(), out);
        self.write_done(signatures::signature_item(token, Some(id)).into(), out);
    }

    pub(super) fn write_added(&mut self, item: &Value, out: &mut Vec<u8>) {
        let index = self.output.len();
        self.events.write_event(
            "response.output_item.added",
            format_args!("\"output_index\":{index},\"item\":{item}"),
            out,
        );
    }

    pub(super) fn write_done(&mut self, item: Value, out: &mut Vec<u8>) {
        let index = self.output.len();
        self.events.write_event(
            "response.output_item.done",
            format_args!("\"output_index\":{index},\"item\":{item}"),
            out,
        );
        self.output.push(item);
    }
}

const fn call_event(call: &DeclaredCall, word: &str) -> &'static str {
    match (call.custom, word.as_bytes()) {
        (true, b"delta") => "response.custom_tool_call_input.delta",
        (true, _) => "response.custom_tool_call_input.done",
        (false, b"delta") => "response.function_call_arguments.delta",
        (false, _) => "response.function_call_arguments.done",
    }
}
