//! Writes whole parts to a stream, as if they had arrived in deltas.

use canon::{Growth, Kind, Losses, Part, Thought, ToolCall};
use serde_json::Value;

use super::items::INSIDE;
use super::live::{Item, Live};
use super::{ME, output};
use crate::fields::Object;

impl Live {
    /// Writes a part that arrives in one event.
    pub(super) fn whole(&mut self, part: Part, losses: &mut Losses, out: &mut Vec<u8>) {
        match &part.kind {
            Kind::Text { text, citations } => {
                self.say(false, out);
                self.grow(Growth::Text(text.clone()), losses, out);
                for citation in citations {
                    self.grow(Growth::Citation(citation.clone()), losses, out);
                }
            }
            Kind::Refusal(text) => {
                self.say(true, out);
                self.grow(Growth::Text(text.clone()), losses, out);
            }
            Kind::Thought(thought) => {
                self.think(Thought { text: String::new(), redacted: thought.redacted }, out);
                if !thought.text.is_empty() {
                    self.grow(Growth::Text(thought.text.clone()), losses, out);
                }
            }
            Kind::ToolCall(call) => {
                self.call(&ToolCall { arguments: String::new(), ..call.clone() }, out);
                self.grow(Growth::Text(call.arguments.clone()), losses, out);
            }
            Kind::Code(_) => self.run(Some(part), out),
            Kind::CodeOutcome(_) => {
                if !matches!(self.item, Item::Code { outcome: None, .. }) {
                    self.run(None, out);
                }
                if let Item::Code { outcome, .. } = &mut self.item {
                    *outcome = Some(part);
                }
            }
            Kind::Search(search) => {
                let id = self.ids.next("ws");
                let item = output::shown_search(&part, search, id.clone());
                self.at_once(&id, item, "web_search_call", "searching", out);
            }
            Kind::Media(media) => {
                let id = self.ids.next("ig");
                let plain = Part::new(Kind::Media(media.clone()));
                match output::picture(&plain, media, Some(id.clone())) {
                    Some(item) => {
                        let item = item.into();
                        self.at_once(&id, item, "image_generation_call", "generating", out);
                    }
                    None => self.lost(
                        "reply.media",
                        "the responses format has no place for this media",
                        losses,
                        out,
                    ),
                }
            }
            Kind::Foreign { origin, value }
                if *origin == ME && part.extras.get(ME, INSIDE).is_none() =>
            {
                self.settle(false, out);
                self.added(value, out);
                self.done(value.clone(), out);
                self.item = Item::Whole { seal: None };
            }
            Kind::ToolResult(_) | Kind::Foreign { .. } => {
                self.lost("reply.part", "a part only the provider's format has", losses, out);
            }
        }
    }

    fn lost(&mut self, what: &str, why: &str, losses: &mut Losses, out: &mut Vec<u8>) {
        losses.add(what, why);
        // Closes the item, so that the signature of the lost part is dropped as well.
        self.settle(false, out);
    }

    fn run(&mut self, code: Option<Part>, out: &mut Vec<u8>) {
        self.settle(false, out);
        let id = self.ids.next("ci");
        let source = if let Some(Part { kind: Kind::Code(code), .. }) = &code {
            code.code.clone()
        } else {
            String::new()
        };
        let item = Object::new()
            .set("type", "code_interpreter_call")
            .set("id", id.as_str())
            .set("status", "in_progress")
            .set("code", "")
            .set("container_id", self.ids.container())
            .set("outputs", Value::Null);
        self.added(&item.into(), out);
        let index = self.output.len();
        let head = format!("\"item_id\":\"{id}\",\"output_index\":{index}");
        let name = |word: &str| format!("response.code_interpreter_call{word}");
        let text = Value::from(source);
        self.lines.send(&name(".in_progress"), format_args!("{head}"), out);
        self.lines.send(&name("_code.delta"), format_args!("{head},\"delta\":{text}"), out);
        self.lines.send(&name("_code.done"), format_args!("{head},\"code\":{text}"), out);
        self.lines.send(&name(".interpreting"), format_args!("{head}"), out);
        self.item = Item::Code { id, code, outcome: None, seals: (None, None) };
    }

    /// Writes a whole item with the events of its type.
    fn at_once(&mut self, id: &str, item: Value, kind: &str, busy: &str, out: &mut Vec<u8>) {
        self.settle(false, out);
        let mut begun = item.clone();
        if let Value::Object(fields) = &mut begun {
            fields.insert("status".to_owned(), Value::from("in_progress"));
            for late in ["action", "result"] {
                fields.shift_remove(late);
            }
            if kind == "image_generation_call" {
                fields.insert("result".to_owned(), Value::Null);
            }
        }
        self.added(&begun, out);
        let index = self.output.len();
        for word in ["in_progress", busy, "completed"] {
            self.lines.send(
                &format!("response.{kind}.{word}"),
                format_args!("\"item_id\":\"{id}\",\"output_index\":{index}"),
                out,
            );
        }
        self.done(item, out);
        self.item = Item::Whole { seal: None };
    }
}
