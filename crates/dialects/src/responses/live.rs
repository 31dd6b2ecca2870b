//! State of the item being streamed, from `output_item.added` through its deltas to
//! `output_item.done`.
//!
//! See <https://platform.openai.com/docs/api-reference/responses-streaming>.

use canon::{
    Chat, Citation, Growth, Kind, Logprob, Losses, Opening, Part, Seal, Thought, ToolCall,
};
use serde_json::Value;
use std::fmt::Arguments;
use std::io::Write as _;

use super::names::{self, Names};
use super::write_reply::{Ids, Shown, message};
use super::{output, seals};
use crate::Stamp;
use crate::fields::Object;

/// Writes events with increasing sequence numbers.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Sequence number of the next event.
    pub(super) sequence: u64,
}

impl Lines {
    /// Writes one event. `rest` holds its fields after `type` and `sequence_number`.
    pub(super) fn send(&mut self, name: &str, rest: Arguments<'_>, out: &mut Vec<u8>) {
        let sequence = self.sequence;
        self.sequence += 1;
        // Writing to a `Vec` cannot fail.
        let _ = write!(
            out,
            "event: {name}\ndata: {{\"type\":\"{name}\",\"sequence_number\":{sequence},{rest}}}\n\n"
        );
    }
}

/// Finished items and the item in progress.
pub(super) struct Live {
    pub(super) lines: Lines,
    /// Finished items.
    pub(super) output: Vec<Value>,
    pub(super) ids: Ids,
    pub(super) item: Item,
    names: Names,
    wants_logprobs: bool,
}

/// The item in progress.
pub(super) enum Item {
    None,
    Message {
        id: String,
        parts: Vec<Value>,
        saying: Option<Saying>,
    },
    Thought {
        id: String,
        thought: Thought,
        seal: Option<Seal>,
    },
    Call {
        id: String,
        call: Shown,
        seal: Option<Seal>,
    },
    /// Code, its output, and the signatures of both.
    Code {
        id: String,
        code: Option<Part>,
        outcome: Option<Part>,
        seals: (Option<Seal>, Option<Seal>),
    },
    /// An item written in one step. Only its signature may follow.
    Whole {
        seal: Option<Seal>,
    },
}

/// The message part in progress.
pub(super) struct Saying {
    refusal: bool,
    text: String,
    /// Citations without a span. They cover the whole text, so they are written when its length is
    /// known.
    citations: Vec<Citation>,
    annotations: Vec<Value>,
    logprobs: Vec<Logprob>,
    seal: Option<Seal>,
}

impl Live {
    pub(super) fn new(chat: &Chat, stamp: &Stamp) -> Self {
        Self {
            lines: Lines::default(),
            output: Vec::new(),
            names: Names::of(&chat.tools),
            ids: Ids::new(stamp),
            wants_logprobs: chat.sampling.logprobs.is_some(),
            item: Item::None,
        }
    }

    /// Starts a part.
    pub(super) fn open(&mut self, opening: Opening, losses: &mut Losses, out: &mut Vec<u8>) {
        match opening {
            Opening::Text => self.say(false, out),
            Opening::Refusal => self.say(true, out),
            Opening::Thought => self.think(Thought::default(), out),
            Opening::ToolCall { id, name, custom } => {
                self.call(&ToolCall { id, name, arguments: String::new(), custom }, out);
            }
            Opening::Whole(part) => self.whole(*part, losses, out),
        }
    }

    /// Starts a text in the open message, or in a new one.
    pub(super) fn say(&mut self, refusal: bool, out: &mut Vec<u8>) {
        if !matches!(self.item, Item::Message { saying: None, .. }) {
            self.settle(false, out);
            let id = self.ids.next("msg");
            let item = message(&id, Vec::new()).set("status", "in_progress");
            self.added(&item.into(), out);
            self.item = Item::Message { id, parts: Vec::new(), saying: None };
        }
        let index = self.output.len();
        let Item::Message { id, parts, saying } = &mut self.item else { return };
        *saying = Some(Saying {
            refusal,
            text: String::new(),
            citations: Vec::new(),
            annotations: Vec::new(),
            logprobs: Vec::new(),
            seal: None,
        });
        let part = if refusal {
            output::refusal("")
        } else {
            output::text("", &[], None, &mut Losses::new())
        };
        let at = parts.len();
        self.lines.send(
            "response.content_part.added",
            format_args!(
                "\"item_id\":\"{id}\",\"output_index\":{index},\"content_index\":{at},\"part\":{part}"
            ),
            out,
        );
    }

    pub(super) fn think(&mut self, thought: Thought, out: &mut Vec<u8>) {
        self.settle(false, out);
        let id = self.ids.next("rs");
        let item = Object::new()
            .set("type", "reasoning")
            .set("id", id.as_str())
            .set("summary", Value::Array(Vec::new()));
        self.added(&item.into(), out);
        self.item = Item::Thought { id, thought, seal: None };
    }

    pub(super) fn call(&mut self, call: &ToolCall, out: &mut Vec<u8>) {
        self.settle(false, out);
        let call = Shown::of(call, &self.names);
        let id = self.ids.next(call.prefix());
        self.added(&call.item(&id, "", "in_progress"), out);
        self.item = Item::Call { id, call, seal: None };
    }

    /// Adds to the part in progress.
    pub(super) fn grow(&mut self, growth: Growth, losses: &mut Losses, out: &mut Vec<u8>) {
        match growth {
            Growth::Text(text) => self.text(text, out),
            Growth::Citation(citation) => self.cite(citation, losses, out),
            Growth::Logprobs(list) => self.chances(list, out),
            // Item ids of the provider arrive after the gateway has sent its own, so they are
            // dropped.
            Growth::Extra { .. } => {}
        }
    }

    fn text(&mut self, more: String, out: &mut Vec<u8>) {
        let index = self.output.len();
        match &mut self.item {
            Item::Message { id, parts, saying: Some(saying) } => {
                let at = parts.len();
                let delta = Value::from(more.as_str());
                let (name, tail) = if saying.refusal {
                    ("response.refusal.delta", "")
                } else {
                    ("response.output_text.delta", ",\"logprobs\":[]")
                };
                self.lines.send(
                    name,
                    format_args!(
                        "\"item_id\":\"{id}\",\"output_index\":{index},\"content_index\":{at},\
                         \"delta\":{delta}{tail}"
                    ),
                    out,
                );
                saying.text.push_str(&more);
            }
            Item::Thought { id, thought, .. } => {
                let head =
                    format!("\"item_id\":\"{id}\",\"output_index\":{index},\"summary_index\":0");
                if thought.text.is_empty() {
                    let part = seals::summary_text("");
                    self.lines.send(
                        "response.reasoning_summary_part.added",
                        format_args!("{head},\"part\":{part}"),
                        out,
                    );
                }
                let delta = Value::from(more.as_str());
                self.lines.send(
                    "response.reasoning_summary_text.delta",
                    format_args!("{head},\"delta\":{delta}"),
                    out,
                );
                thought.text.push_str(&more);
            }
            Item::Call { id, call, .. } => {
                call.arguments.push_str(&more);
                if !call.wrapped {
                    let name = call_event(call, "delta");
                    let delta = Value::from(more);
                    self.lines.send(
                        name,
                        format_args!(
                            "\"item_id\":\"{id}\",\"output_index\":{index},\"delta\":{delta}"
                        ),
                        out,
                    );
                }
            }
            Item::Message { saying: None, .. }
            | Item::Code { .. }
            | Item::Whole { .. }
            | Item::None => {}
        }
    }

    fn cite(&mut self, citation: Citation, losses: &mut Losses, out: &mut Vec<u8>) {
        let Item::Message { saying: Some(saying), .. } = &mut self.item else { return };
        let told = citation.span.is_some() || citation.url.is_none();
        if told {
            let note = output::annotation(&citation, 0, losses);
            self.annotate(note, out);
        } else {
            saying.citations.push(citation);
        }
    }

    fn annotate(&mut self, note: Value, out: &mut Vec<u8>) {
        let index = self.output.len();
        let Item::Message { id, parts, saying: Some(saying) } = &mut self.item else { return };
        let (at, number) = (parts.len(), saying.annotations.len());
        self.lines.send(
            "response.output_text.annotation.added",
            format_args!(
                "\"item_id\":\"{id}\",\"output_index\":{index},\"content_index\":{at},\
                 \"annotation_index\":{number},\"annotation\":{note}"
            ),
            out,
        );
        saying.annotations.push(note);
    }

    fn chances(&mut self, list: Vec<Logprob>, out: &mut Vec<u8>) {
        let index = self.output.len();
        let Item::Message { id, parts, saying: Some(saying) } = &mut self.item else { return };
        if !self.wants_logprobs {
            return;
        }
        let at = parts.len();
        let chances = output::logprobs(&list, true);
        self.lines.send(
            "response.output_text.delta",
            format_args!(
                "\"item_id\":\"{id}\",\"output_index\":{index},\"content_index\":{at},\
                 \"delta\":\"\",\"logprobs\":{chances}"
            ),
            out,
        );
        saying.logprobs.extend(list);
    }

    /// Stores the signature of the part in progress. It is written when the part is complete.
    pub(super) fn seal(&mut self, token: Seal) {
        match &mut self.item {
            Item::Message { saying: Some(Saying { seal, .. }), .. }
            | Item::Thought { seal, .. }
            | Item::Call { seal, .. }
            | Item::Code { outcome: None, seals: (seal, _), .. }
            | Item::Code { outcome: Some(_), seals: (_, seal), .. }
            | Item::Whole { seal } => *seal = Some(token),
            Item::Message { saying: None, .. } | Item::None => {}
        }
    }

    /// Completes the part in progress. Its item may continue.
    pub(super) fn close(&mut self, losses: &mut Losses, out: &mut Vec<u8>) {
        let index = self.output.len();
        match &mut self.item {
            Item::Message { saying: Some(_), .. } => self.said(losses, out),
            Item::Call { id, call, .. } => {
                if call.wrapped {
                    call.wrapped = false;
                    let text = names::unwrapped(&std::mem::take(&mut call.arguments));
                    self.text(text, out);
                    self.close(losses, out);
                    return;
                }
                if call.arguments.is_empty() && !call.custom {
                    // SDKs parse the arguments, and an empty string is not valid JSON.
                    self.text("{}".to_owned(), out);
                    self.close(losses, out);
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
                self.lines.send(call_event(call, "done"), format_args!("{rest}"), out);
            }
            // No later event can extend a thought.
            Item::Thought { .. } => self.settle(false, out),
            Item::Whole { seal } => {
                let seal = seal.take();
                self.item = Item::None;
                if let Some(seal) = seal {
                    self.loose(seals::on_neighbour(&seal, true), out);
                }
            }
            Item::Message { saying: None, .. } | Item::Code { .. } | Item::None => {}
        }
    }

    /// Completes a message part.
    fn said(&mut self, losses: &mut Losses, out: &mut Vec<u8>) {
        let Item::Message { saying: Some(saying), .. } = &mut self.item else { return };
        let length = saying.text.chars().count();
        for citation in std::mem::take(&mut saying.citations) {
            self.annotate(output::annotation(&citation, length, losses), out);
        }
        let index = self.output.len();
        let Item::Message { id, parts, saying } = &mut self.item else { return };
        let Some(Saying { refusal, text, annotations, logprobs, seal, .. }) = saying.take() else {
            return;
        };
        let at = parts.len();
        let head = format!("\"item_id\":\"{id}\",\"output_index\":{index},\"content_index\":{at}");
        let said = Value::from(text.as_str());
        let part = if refusal {
            let rest = format_args!("{head},\"refusal\":{said}");
            self.lines.send("response.refusal.done", rest, out);
            output::refusal(&text)
        } else {
            let brief = output::logprobs(&logprobs, true);
            let rest = format_args!("{head},\"text\":{said},\"logprobs\":{brief}");
            self.lines.send("response.output_text.done", rest, out);
            let full = output::logprobs(&logprobs, false);
            Object::new()
                .set("type", "output_text")
                .set("text", text)
                .set("annotations", annotations)
                .set("logprobs", full)
                .into()
        };
        self.lines.send("response.content_part.done", format_args!("{head},\"part\":{part}"), out);
        parts.push(part);
        if let Some(seal) = seal {
            self.settle(false, out);
            self.loose(seals::on_neighbour(&seal, true), out);
        }
    }

    /// Completes the item, with status `incomplete` if it was cut.
    pub(super) fn settle(&mut self, cut: bool, out: &mut Vec<u8>) {
        let status = if cut { "incomplete" } else { "completed" };
        let index = self.output.len();
        match std::mem::replace(&mut self.item, Item::None) {
            Item::None | Item::Whole { .. } => {}
            Item::Message { id, parts, saying: _ } => {
                self.done(message(&id, parts).set("status", status).into(), out);
            }
            Item::Call { id, call, seal } => {
                self.done(call.item(&id, &call.arguments, status), out);
                if let Some(seal) = seal {
                    self.loose(seals::on_call(&seal, &call.call), out);
                }
            }
            Item::Thought { id, thought, seal } => self.thought(&id, &thought, seal.as_ref(), out),
            Item::Code { id, code, outcome, seals: (of_code, of_outcome) } => {
                let own = code.as_ref().and_then(|part| match &part.kind {
                    Kind::Code(code) => Some((part, code)),
                    Kind::Text { .. }
                    | Kind::Refusal(_)
                    | Kind::Media(_)
                    | Kind::Thought(_)
                    | Kind::ToolCall(_)
                    | Kind::ToolResult(_)
                    | Kind::CodeOutcome(_)
                    | Kind::Search(_)
                    | Kind::Foreign { .. } => None,
                });
                let container = Some(self.ids.container());
                let item = output::code(own, outcome.as_ref(), Some(id.clone()), container);
                self.lines.send(
                    "response.code_interpreter_call.completed",
                    format_args!("\"item_id\":\"{id}\",\"output_index\":{index}"),
                    out,
                );
                self.done(item.into(), out);
                if let Some(seal) = of_code {
                    self.loose(seals::on_code(&seal), out);
                }
                if let Some(seal) = of_outcome {
                    self.loose(seals::on_neighbour(&seal, true), out);
                }
            }
        }
    }

    fn thought(&mut self, id: &str, thought: &Thought, seal: Option<&Seal>, out: &mut Vec<u8>) {
        let index = self.output.len();
        let mut summary = Vec::new();
        if !thought.text.is_empty() {
            let head = format!("\"item_id\":\"{id}\",\"output_index\":{index},\"summary_index\":0");
            let text = Value::from(thought.text.as_str());
            let part = seals::summary_text(&thought.text);
            self.lines.send(
                "response.reasoning_summary_text.done",
                format_args!("{head},\"text\":{text}"),
                out,
            );
            self.lines.send(
                "response.reasoning_summary_part.done",
                format_args!("{head},\"part\":{part}"),
                out,
            );
            summary.push(part);
        }
        // The id was sent before the signature was known. A signature of this format is bound to
        // another id, so it goes into an envelope too.
        let item = Object::new()
            .set("type", "reasoning")
            .set("id", id)
            .set("summary", summary)
            .maybe("encrypted_content", seal.map(|seal| seals::wrapped(seal, thought.redacted)));
        self.done(item.into(), out);
    }

    /// Writes an item that only carries a signature.
    fn loose(&mut self, token: String, out: &mut Vec<u8>) {
        let id = self.ids.next("seal");
        let item = Object::new()
            .set("type", "reasoning")
            .set("id", id.as_str())
            .set("summary", Value::Array(Vec::new()));
        self.added(&item.into(), out);
        self.done(seals::loose(token, Some(id)).into(), out);
    }

    pub(super) fn added(&mut self, item: &Value, out: &mut Vec<u8>) {
        let index = self.output.len();
        self.lines.send(
            "response.output_item.added",
            format_args!("\"output_index\":{index},\"item\":{item}"),
            out,
        );
    }

    pub(super) fn done(&mut self, item: Value, out: &mut Vec<u8>) {
        let index = self.output.len();
        self.lines.send(
            "response.output_item.done",
            format_args!("\"output_index\":{index},\"item\":{item}"),
            out,
        );
        self.output.push(item);
    }
}

const fn call_event(call: &Shown, word: &str) -> &'static str {
    match (call.custom, word.as_bytes()) {
        (true, b"delta") => "response.custom_tool_call_input.delta",
        (true, _) => "response.custom_tool_call_input.done",
        (false, b"delta") => "response.function_call_arguments.delta",
        (false, _) => "response.function_call_arguments.done",
    }
}
