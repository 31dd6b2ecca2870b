//! Writes whole parts to a stream, as if they had arrived in deltas.

use canon::{Losses, Part, PartDelta, PartKind, Thought, ToolCall};
use serde_json::Value;

use super::item_writer::{ItemWriter, OpenItem};
use super::names::{NESTED_PART_EXTRA, ORIGIN};
use super::write_output;
use crate::fields::ObjectWriter;

impl ItemWriter {
    /// Writes a part that arrives in one event.
    pub(super) fn write_whole(&mut self, part: Part, losses: &mut Losses, out: &mut Vec<u8>) {
        match &part.kind {
            PartKind::Text { text, citations } => {
                self.start_text(false, out);
                self.add_growth(PartDelta::Text(text.clone()), losses, out);
                for citation in citations {
                    self.add_growth(PartDelta::Citation(citation.clone()), losses, out);
                }
            }
            PartKind::Refusal(text) => {
                self.start_text(true, out);
                self.add_growth(PartDelta::Text(text.clone()), losses, out);
            }
            PartKind::Thought(thought) => {
                self.start_thought(
                    Thought { text: String::new(), redacted: thought.redacted },
                    out,
                );
                if !thought.text.is_empty() {
                    self.add_growth(PartDelta::Text(thought.text.clone()), losses, out);
                }
            }
            PartKind::ToolCall(call) => {
                self.start_call(&ToolCall { arguments: String::new(), ..call.clone() }, out);
                self.add_growth(PartDelta::Text(call.arguments.clone()), losses, out);
            }
            PartKind::CodeExecution(_) => self.start_code(Some(part), out),
            PartKind::CodeResult(_) => {
                if !matches!(self.open, OpenItem::Code { outcome: None, .. }) {
                    self.start_code(None, out);
                }
                if let OpenItem::Code { outcome, .. } = &mut self.open {
                    *outcome = Some(part);
                }
            }
            PartKind::WebSearch(search) => {
                let id = self.ids.next("ws");
                let item = write_output::reply_search_item(&part, search, id.clone());
                self.write_whole_item(&id, item, "web_search_call", "searching", out);
            }
            PartKind::Media(media) => {
                let id = self.ids.next("ig");
                let plain = Part::new(PartKind::Media(media.clone()));
                match write_output::image_item(&plain, media, Some(id.clone())) {
                    Some(item) => {
                        let item = item.into();
                        self.write_whole_item(
                            &id,
                            item,
                            "image_generation_call",
                            "generating",
                            out,
                        );
                    }
                    None => self.drop_part(
                        "reply.media",
                        "the responses format has no field for this media",
                        losses,
                        out,
                    ),
                }
            }
            PartKind::Foreign { origin, value }
                if *origin == ORIGIN && part.extras.get(ORIGIN, NESTED_PART_EXTRA).is_none() =>
            {
                self.finish_item(false, out);
                self.write_added(value, out);
                self.write_done(value.clone(), out);
                self.open = OpenItem::Whole { signature: None };
            }
            PartKind::ToolResult(_) | PartKind::Foreign { .. } => {
                self.drop_part("reply.part", "a part only the provider's format has", losses, out);
            }
        }
    }

    fn drop_part(&mut self, what: &str, why: &str, losses: &mut Losses, out: &mut Vec<u8>) {
        losses.add(what, why);
        // A message goes on after the lost part, as in a whole response. Other items are closed, so
        // that the signature of the lost part is dropped as well.
        if !matches!(self.open, OpenItem::Message { open_text: None, .. }) {
            self.finish_item(false, out);
        }
    }

    fn start_code(&mut self, code: Option<Part>, out: &mut Vec<u8>) {
        self.finish_item(false, out);
        let id = self.ids.next("ci");
        let source = if let Some(Part { kind: PartKind::CodeExecution(code), .. }) = &code {
            code.code.clone()
        } else {
            String::new()
        };
        let item = ObjectWriter::new()
            .set("type", "code_interpreter_call")
            .set("id", id.as_str())
            .set("status", "in_progress")
            .set("code", "")
            .set("container_id", self.ids.container())
            .set("outputs", Value::Null);
        self.write_added(&item.into(), out);
        let index = self.output.len();
        let head = format!("\"item_id\":\"{id}\",\"output_index\":{index}");
        let name = |word: &str| format!("response.code_interpreter_call{word}");
        let text = Value::from(source);
        self.events.write_event(&name(".in_progress"), format_args!("{head}"), out);
        self.events.write_event(&name("_code.delta"), format_args!("{head},\"delta\":{text}"), out);
        self.events.write_event(&name("_code.done"), format_args!("{head},\"code\":{text}"), out);
        self.events.write_event(&name(".interpreting"), format_args!("{head}"), out);
        self.open = OpenItem::Code { id, code, outcome: None, signatures: (None, None) };
    }

    /// Writes a whole item with the events of its type.
    fn write_whole_item(
        &mut self,
        id: &str,
        item: Value,
        kind: &str,
        busy: &str,
        out: &mut Vec<u8>,
    ) {
        self.finish_item(false, out);
        let mut started = item.clone();
        if let Value::Object(fields) = &mut started {
            fields.insert("status".to_owned(), Value::from("in_progress"));
            for late in ["action", "result"] {
                fields.shift_remove(late);
            }
            if kind == "image_generation_call" {
                fields.insert("result".to_owned(), Value::Null);
            }
        }
        self.write_added(&started, out);
        let index = self.output.len();
        for word in ["in_progress", busy, "completed"] {
            self.events.write_event(
                &format!("response.{kind}.{word}"),
                format_args!("\"item_id\":\"{id}\",\"output_index\":{index}"),
                out,
            );
        }
        self.write_done(item, out);
        self.open = OpenItem::Whole { signature: None };
    }
}
