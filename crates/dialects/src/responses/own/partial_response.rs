//! Pass-through of a response that the gateway ends at its output limit.
//!
//! The last event of this format repeats the whole response. The meter therefore keeps finished
//! items as they were received, and the text of the item in progress.

use bytes::Bytes;
use canon::Usage;
use serde_json::{Map, Value};

use super::event_writer::EventWriter;
use crate::fields::ObjectWriter;
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
        let mut send = |name: &str, event: ObjectWriter| events.write_object(name, &event, out);
        let mut output: Vec<Value> =
            self.done_events.iter().filter_map(|event| item(event)).collect();
        if let Some((event, text)) = self.open_item.take()
            && let Some(Value::Object(mut item)) = item(&event)
            && item.get("type").and_then(Value::as_str) == Some("message")
        {
            let index = field(&event, "output_index").unwrap_or_default();
            let id = item.get("id").cloned().unwrap_or_default();
            let text = [b"\"".as_slice(), &text, b"\""].concat();
            let text: String = serde_json::from_slice(&text).unwrap_or_default();
            let part = ObjectWriter::new()
                .set("type", "output_text")
                .set("annotations", Vec::<Value>::new())
                .set("logprobs", Vec::<Value>::new())
                .set("text", text.clone());
            let part = Value::from(part);
            let place = || {
                ObjectWriter::new()
                    .set("item_id", id.clone())
                    .set("output_index", index.clone())
                    .set("content_index", 0)
            };
            let done = place().set("text", text).set("logprobs", Vec::<Value>::new());
            send("response.output_text.done", done);
            send("response.content_part.done", place().set("part", part.clone()));
            item.insert("status".to_owned(), "incomplete".into());
            item.insert("content".to_owned(), vec![part].into());
            let item = Value::Object(item);
            let done =
                ObjectWriter::new().set("output_index", index.clone()).set("item", item.clone());
            send("response.output_item.done", done);
            output.push(item);
        }
        let mut response = match field(&self.created_event, "response") {
            Some(Value::Object(response)) => response,
            _ => Map::new(),
        };
        let why = ObjectWriter::new().set("reason", "max_output_tokens");
        response.insert("status".to_owned(), "incomplete".into());
        response.insert("incomplete_details".to_owned(), why.into());
        response.insert("output".to_owned(), output.into());
        response.insert("usage".to_owned(), write_usage(usage).into());
        send("response.incomplete", ObjectWriter::new().set("response", Value::Object(response)));
    }
}

fn field(event: &[u8], name: &str) -> Option<Value> {
    let mut event: Map<String, Value> = serde_json::from_slice(event).ok()?;
    event.shift_remove(name)
}

fn item(event: &[u8]) -> Option<Value> {
    field(event, "item")
}
