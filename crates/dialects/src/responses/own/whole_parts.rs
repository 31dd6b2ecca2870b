//! Parts that come at once, written as if they had arrived in deltas. Their ids and the fields only
//! this format has are known from the start.

use canon::{Losses, Part, PartKind};
use serde_json::Value;

use super::event_writer::JsonText;
use super::item_writer::{ItemWriter, OpenItem};
use super::output_items;
use crate::fields::ObjectWriter;
use crate::responses::names::{MESSAGE_EXTRA, NESTED_PART_EXTRA, ORIGIN};

impl ItemWriter {
    /// Writes a part that arrives in one event.
    pub(super) fn write_whole(&mut self, mut part: Part, losses: &mut Losses, out: &mut Vec<u8>) {
        let fields = part.extras.get(ORIGIN, MESSAGE_EXTRA).cloned();
        let signature = part.signature.clone();
        match &mut part.kind {
            PartKind::Text { text, citations } => {
                self.start_text(false, fields.as_ref(), out);
                self.add_text(text, out);
                for citation in std::mem::take(citations) {
                    self.add_citation(citation, losses, out);
                }
            }
            PartKind::Refusal(text) => {
                self.start_text(true, fields.as_ref(), out);
                self.add_text(text, out);
            }
            PartKind::Thought(_) | PartKind::ToolCall(_) => {
                let is_thought = matches!(part.kind, PartKind::Thought(_));
                let text = part.text_mut().map(std::mem::take).unwrap_or_default();
                match is_thought {
                    true => self.start_thought(part, out),
                    false => self.start_call(part, out),
                }
                if !text.is_empty() {
                    self.add_text(&text, out);
                }
            }
            PartKind::CodeExecution(_) => self.start_code(Some(part), out),
            PartKind::CodeResult(_) => {
                if !matches!(self.open, OpenItem::Code(_, None)) {
                    self.start_code(None, out);
                }
                if let OpenItem::Code(_, outcome) = &mut self.open {
                    *outcome = Some(part);
                }
            }
            PartKind::WebSearch(search) => {
                let own = search.id.clone().filter(|id| output_items::is_own_search(id));
                let id = own.unwrap_or_else(|| self.ids.next("ws"));
                let mut item = output_items::search_item(&part, Some(id)).into_map();
                // `action` is required in a response.
                item.entry("action").or_insert_with(|| {
                    ObjectWriter::new().set("type", "search").set("query", "").into()
                });
                self.write_whole_item(Value::Object(item), "searching", out);
            }
            PartKind::Media(_) => {
                let id = self.ids.next("ig");
                match output_items::image_item(&part, Some(id)) {
                    Some(item) => self.write_whole_item(item.into(), "generating", out),
                    None => {
                        let why = "the responses format has no field for this media";
                        return self.drop_part("reply.media", why, losses, out);
                    }
                }
            }
            PartKind::Foreign { origin: ORIGIN, value } => {
                let value = std::mem::take(value);
                if part.extras.get(ORIGIN, NESTED_PART_EXTRA).is_some() {
                    let place = self.open_message(fields.as_ref(), out);
                    self.write_part("response.content_part.added", &place, &value, out);
                    self.write_part("response.content_part.done", &place, &value, out);
                    if let OpenItem::Message(_, parts) = &mut self.open {
                        parts.push(value);
                    }
                } else {
                    self.finish_item(false, out);
                    self.events.start_item(String::new(), &value, out);
                    self.events.end_item(value, out);
                    self.open = OpenItem::Whole;
                }
            }
            PartKind::ToolResult(_) | PartKind::Foreign { .. } => {
                let why = "a part only the provider's format has";
                return self.drop_part("reply.part", why, losses, out);
            }
        }
        if let Some(signature) = signature {
            self.set_signature(signature);
        }
    }

    fn drop_part(&mut self, what: &str, why: &str, losses: &mut Losses, out: &mut Vec<u8>) {
        losses.add(what, why);
        // A message goes on after the lost part. Other items are closed, so that the signature of
        // the lost part is dropped as well.
        if !matches!(self.open, OpenItem::Message(..)) {
            self.finish_item(false, out);
        }
    }

    fn start_code(&mut self, code: Option<Part>, out: &mut Vec<u8>) {
        let own = code.as_ref().and_then(output_items::own_code_id);
        let id = own.unwrap_or_else(|| self.ids.next("ci"));
        let item = ObjectWriter::new()
            .set("type", "code_interpreter_call")
            .set("id", id.as_str())
            .set("status", "in_progress")
            .set("code", "")
            .set("container_id", self.ids.container())
            .set("outputs", Value::Null);
        self.start_item(id, item, out);
        let source = match code.as_ref().map(|code| &code.kind) {
            Some(PartKind::CodeExecution(code)) => code.code.as_str(),
            _ => "",
        };
        let text = JsonText(source);
        for (word, rest) in [
            (".in_progress", format_args!("")),
            ("_code.delta", format_args!(",\"delta\":{text}")),
            ("_code.done", format_args!(",\"code\":{text}")),
            (".interpreting", format_args!("")),
        ] {
            let name = format!("response.code_interpreter_call{word}");
            self.events.write_item(&name, rest, out);
        }
        self.open = OpenItem::Code(code, None);
    }

    /// Writes a whole item with the events of its type.
    fn write_whole_item(&mut self, item: Value, busy: &str, out: &mut Vec<u8>) {
        let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
        let (id, kind) = (text("id").to_owned(), text("type").to_owned());
        let late = |name: &str| matches!(name, "status" | "action" | "result");
        let fields = item.as_object().into_iter().flatten();
        let fields = fields.filter(|(name, _)| !late(name));
        let started = ObjectWriter::new()
            .with_fields(fields.map(|(name, value)| (name.as_str(), value)))
            .set("status", "in_progress");
        let started = match kind.as_str() {
            "image_generation_call" => started.set("result", Value::Null),
            _ => started,
        };
        self.start_item(id, started, out);
        for word in ["in_progress", busy, "completed"] {
            let name = format!("response.{kind}.{word}");
            self.events.write_item(&name, format_args!(""), out);
        }
        self.events.end_item(item, out);
        self.open = OpenItem::Whole;
    }
}
