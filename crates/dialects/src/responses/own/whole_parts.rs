//! The start of a part. One that comes at once is written as if it had arrived in deltas; its id and
//! the fields only this format has are known from the start.

use canon::{Part, PartKind, PartStart};
use serde_json::Value;

use super::item_writer::{ItemWriter, OpenItem, REFUSAL_EVENT, TEXT_EVENT};
use super::output_items;
use crate::fields::{ObjectWriter, note_foreign_fields};
use crate::responses::names::{MESSAGE_EXTRA, NESTED_PART_EXTRA, ORIGIN};

impl ItemWriter {
    /// Starts a part, with the content it comes with.
    pub(crate) fn open_part(&mut self, opening: PartStart) {
        let mut part = opening.into_part();
        note_foreign_fields(&part.extras, ORIGIN, "part", &mut self.losses);
        let fields = part.extras.get(ORIGIN, MESSAGE_EXTRA).cloned();
        let signature = part.signature.clone();
        let text = part.text_mut().map(std::mem::take).unwrap_or_default();
        let mut cited = Vec::new();
        match &mut part.kind {
            PartKind::Text { citations, .. } => {
                self.start_text(TEXT_EVENT, fields);
                cited = std::mem::take(citations);
            }
            PartKind::Refusal(_) => self.start_text(REFUSAL_EVENT, fields),
            PartKind::Thought(_) => self.start_thought(part),
            PartKind::ToolCall(_) => self.start_call(part),
            PartKind::CodeExecution(_) => self.start_code(Some(part)),
            PartKind::CodeResult(_) => {
                if !matches!(self.open, OpenItem::Code(_, None)) {
                    self.start_code(None);
                }
                if let OpenItem::Code(_, outcome) = &mut self.open {
                    *outcome = Some(part);
                }
            }
            PartKind::WebSearch(search) => {
                let own = search.id.clone().filter(|id| output_items::is_own_search(id));
                let id = own.unwrap_or_else(|| self.ids.next("ws"));
                // `action` is required in a response.
                let action = ObjectWriter::typed("search").set("query", "");
                let item = output_items::search_item(&part, Some(id.clone()));
                let item = item.with_default("action", action);
                self.write_whole_item(id, "web_search_call", item, "searching");
            }
            PartKind::Media(_) => {
                let (own, new) = (part.extras.get(ORIGIN, "id"), self.ids.next("ig"));
                let id = own.and_then(Value::as_str).map_or(new, str::to_owned);
                let Some(item) = output_items::image_item(&part, Some(id.clone())) else {
                    let why = "the responses format has no field for this media";
                    return self.drop_part("reply.media", why);
                };
                self.write_whole_item(id, "image_generation_call", item, "generating");
            }
            PartKind::Foreign { origin: ORIGIN, value } => {
                let value = ObjectWriter::new().with_object(Some(value));
                if part.extras.get(ORIGIN, NESTED_PART_EXTRA).is_some() {
                    let place = self.open_message(fields);
                    self.write_part("response.content_part.added", place, &value);
                    self.write_part("response.content_part.done", place, &value);
                    self.push_part(value);
                } else {
                    self.start_item(String::new(), |_| value.clone());
                    self.events.end_item(value);
                    self.open = OpenItem::Whole;
                }
            }
            PartKind::ToolResult(_) | PartKind::Foreign { .. } => {
                return self.drop_part("reply.part", "a part only the provider's format has");
            }
        }
        if !text.is_empty() {
            self.add_text(text);
        }
        cited.into_iter().for_each(|citation| self.add_citation(citation));
        if let Some(signature) = signature {
            self.set_signature(signature);
        }
    }

    fn drop_part(&mut self, what: &str, why: &str) {
        self.losses.add(what, why);
        // A message goes on after the lost part. Other items are closed, so that the signature of
        // the lost part is dropped as well.
        if !matches!(self.open, OpenItem::Message(..)) {
            self.finish_item(false);
        }
    }

    fn start_code(&mut self, code: Option<Part>) {
        let own = code.as_ref().and_then(output_items::own_code_id);
        let id = own.unwrap_or_else(|| self.ids.next("ci"));
        let container = self.ids.container();
        self.start_item(id, |id| {
            let item = output_items::code_item(None, None, Some(id.to_owned()), Some(container));
            item.set("status", "in_progress").set("code", "")
        });
        let source = match code.as_ref().map(|code| &code.kind) {
            Some(PartKind::CodeExecution(code)) => code.code.as_str(),
            _ => "",
        };
        for (word, field) in [
            (".in_progress", ""),
            ("_code.delta", "delta"),
            ("_code.done", "code"),
            (".interpreting", ""),
        ] {
            let name = format!("response.code_interpreter_call{word}");
            let add =
                |event: ObjectWriter| event.set_some(field, (!field.is_empty()).then_some(source));
            self.events.write_item(&name, None, add);
        }
        self.open = OpenItem::Code(code, None);
    }

    /// Writes a whole item with the events of its type.
    fn write_whole_item(&mut self, id: String, kind: &str, item: ObjectWriter, busy: &str) {
        self.start_item(id, |_| {
            let started = item.clone().without("action").without("result").without("status");
            let started = started.set("status", "in_progress");
            let is_image = kind == "image_generation_call";
            started.set_some("result", is_image.then_some(Value::Null))
        });
        for word in ["in_progress", busy, "completed"] {
            self.events.write_item(&format!("response.{kind}.{word}"), None, |event| event);
        }
        self.events.end_item(item);
        self.open = OpenItem::Whole;
    }
}
