//! Pass-through of a response that the gateway ends at its output limit.
//!
//! The last event of this format repeats the whole response. The meter therefore keeps finished
//! items as they were received, and the text of the item in progress.

use bytes::Bytes;
use canon::Usage;
use serde_json::{Map, Value};

use super::event_writer::EventWriter;
use super::output_items;
use super::server_secrets::hide_server_secrets;
use crate::fields::ObjectWriter;
use crate::json;
use crate::responses::usage::write_usage;

/// Copy of the response so far.
#[derive(Default)]
pub(crate) struct PartialResponse {
    /// The `response.created` event.
    created_event: Bytes,
    /// The `response.output_item.done` events.
    done_events: Vec<Bytes>,
    /// The `response.output_item.added` event of the item in progress, and its text with JSON
    /// escapes.
    open_item: Option<(Bytes, Vec<u8>)>,
}

impl PartialResponse {
    /// Records an event other than the last one.
    pub(crate) fn record_event(&mut self, name: &str, data: &[u8]) {
        // Copied, because a slice would keep the whole received buffer alive.
        let copy = || Bytes::copy_from_slice(data);
        match name {
            "response.created" => self.created_event = copy(),
            "response.output_item.added" => self.open_item = Some((copy(), Vec::new())),
            "response.output_item.done" => {
                self.open_item = None;
                self.done_events.push(copy());
            }
            _ => {}
        }
    }

    /// Appends text to the item in progress.
    pub(crate) fn append_text(&mut self, text: &[u8]) {
        if let Some((_, text_so_far)) = &mut self.open_item {
            text_so_far.extend_from_slice(text);
        }
    }

    /// Writes the events that end the response. The first one gets the given sequence number.
    pub(crate) fn write_end(&mut self, usage: &Usage, sequence: u64, out: &mut Vec<u8>) {
        let mut events = EventWriter::starting_at(sequence);
        let items = self.done_events.iter().filter_map(|event| field(event, "item"));
        let items = items.map(|item| ObjectWriter::new().with_object(Some(&item)));
        events.output = items.collect();
        let open = self.open_item.take();
        if let Some((item, text)) =
            open.and_then(|(event, text)| Some((field(&event, "item")?, text)))
            && item.get("type").and_then(Value::as_str) == Some("message")
        {
            let id = item.get("id").and_then(Value::as_str).unwrap_or_default();
            events.item_id = id.to_owned();
            let text = [b"\"".as_slice(), &text, b"\""].concat();
            let text: String = json::read_bytes(&text).unwrap_or_default();
            let place = Some(("content_index", 0));
            let done = |event: ObjectWriter| {
                event.set("text", text.as_str()).set("logprobs", Value::Array(Vec::new()))
            };
            events.write_item("response.output_text.done", place, done);
            let part = output_items::text_part(&text, Vec::new(), None);
            let done = |event: ObjectWriter| event.set("part", part.clone());
            events.write_item("response.content_part.done", place, done);
            let item = ObjectWriter::new().with_object(Some(&item)).set("status", "incomplete");
            events.end_item(item.set("content", vec![part]));
        }
        let mut created = field(&self.created_event, "response");
        let tools = created.as_mut().and_then(|created| created.get_mut("tools")?.as_array_mut());
        tools.into_iter().flatten().for_each(hide_server_secrets);
        let response = ObjectWriter::new()
            .with_object(created.as_ref())
            .set("status", "incomplete")
            .set("incomplete_details", ObjectWriter::new().set("reason", "max_output_tokens"))
            .set("output", std::mem::take(&mut events.output))
            .set("usage", write_usage(usage));
        events.write_response("response.incomplete", &response);
        out.append(&mut events.out);
    }
}

/// Returns a field of an event.
fn field(event: &[u8], name: &str) -> Option<Value> {
    let mut event: Map<String, Value> = json::read_bytes(event).ok()?;
    event.shift_remove(name)
}
