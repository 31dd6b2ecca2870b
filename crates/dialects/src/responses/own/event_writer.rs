//! Events of a responses stream.
//!
//! See <https://platform.openai.com/docs/api-reference/responses-streaming>.

use serde_json::Value;
use std::fmt::{self, Arguments};
use std::io::Write as _;

use super::item_writer::OpenPart;
use crate::fields::ObjectWriter;
use crate::json;

/// Writes events with increasing sequence numbers, and keeps the finished items, which the last
/// event repeats.
#[derive(Debug, Default)]
pub(crate) struct EventWriter {
    /// Sequence number of the next event.
    sequence: u64,
    /// True for a whole response: only its items are kept.
    is_silent: bool,
    /// Id of the item in progress.
    pub(super) item_id: String,
    /// Finished items.
    pub(crate) output: Vec<Value>,
}

/// A text as JSON.
pub(super) struct JsonText<'a>(pub(super) &'a str);

impl fmt::Display for JsonText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self.0).unwrap_or_default())
    }
}

impl EventWriter {
    /// Creates a writer whose first event has that number.
    pub(crate) fn starting_at(sequence: u64) -> Self {
        Self { sequence, ..Self::default() }
    }

    /// Creates a writer that only keeps the items.
    pub(super) fn silent() -> Self {
        Self { is_silent: true, ..Self::default() }
    }

    /// Writes one event. `rest` holds its fields after `type` and `sequence_number`.
    fn write(&mut self, name: &str, rest: Arguments<'_>, out: &mut Vec<u8>) {
        if !self.is_silent {
            self.open([name, ""], out);
            // Writing to a `Vec` cannot fail.
            let _ = write!(out, "{rest}}}\n\n");
        }
    }

    /// Writes one event with the fields of an object.
    pub(crate) fn write_object(&mut self, name: &str, fields: &ObjectWriter, out: &mut Vec<u8>) {
        if !self.is_silent {
            self.open([name, ""], out);
            out.extend_from_slice(fields.to_json().get(1..).unwrap_or_default());
            out.extend_from_slice(b"\n\n");
        }
    }

    /// Begins an event, whose name comes in two pieces.
    fn open(&mut self, [name, end]: [&str; 2], out: &mut Vec<u8>) {
        for piece in
            ["event: ", name, end, "\ndata: {\"type\":\"", name, end, "\",\"sequence_number\":"]
        {
            out.extend_from_slice(piece.as_bytes());
        }
        json::write_value(&self.sequence, out);
        out.push(b',');
        self.sequence += 1;
    }

    /// Writes an event of the item in progress. `rest` holds its fields after the item's place.
    pub(super) fn write_item(&mut self, name: &str, rest: Arguments<'_>, out: &mut Vec<u8>) {
        let (id, index) = (std::mem::take(&mut self.item_id), self.output.len());
        self.write(name, format_args!("\"item_id\":\"{id}\",\"output_index\":{index}{rest}"), out);
        self.item_id = id;
    }

    /// Writes the event at the end of a text.
    pub(super) fn write_done(&mut self, event: &str, rest: Arguments<'_>, out: &mut Vec<u8>) {
        self.write_item(&format!("{event}.done"), rest, out);
    }

    /// Writes the delta of a text, the most frequent event.
    pub(super) fn write_delta(&mut self, part: &mut OpenPart, text: &str, out: &mut Vec<u8>) {
        if self.is_silent {
            return;
        }
        let OpenPart { event, place, delta_fields, tail, .. } = part;
        if delta_fields.is_empty() {
            let (id, index) = (&self.item_id, self.output.len());
            let _ = write!(
                delta_fields,
                "\"item_id\":\"{id}\",\"output_index\":{index}{place},\"delta\":"
            );
        }
        self.open([event, ".delta"], out);
        out.extend_from_slice(delta_fields);
        json::write_string(text, out);
        out.extend_from_slice(tail.as_bytes());
        out.extend_from_slice(b"}\n\n");
    }

    /// Starts an item.
    pub(super) fn start_item(&mut self, id: String, item: &Value, out: &mut Vec<u8>) {
        self.item_id = id;
        self.write_whole_item("response.output_item.added", item, out);
    }

    /// Ends an item.
    pub(super) fn end_item(&mut self, item: Value, out: &mut Vec<u8>) {
        self.write_whole_item("response.output_item.done", &item, out);
        self.output.push(item);
    }

    fn write_whole_item(&mut self, name: &str, item: &Value, out: &mut Vec<u8>) {
        let index = self.output.len();
        self.write(name, format_args!("\"output_index\":{index},\"item\":{item}"), out);
    }
}
