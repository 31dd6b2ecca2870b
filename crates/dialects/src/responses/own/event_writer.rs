//! Events of a responses stream.
//!
//! See <https://platform.openai.com/docs/api-reference/responses-streaming>.

use serde_json::Value;

use super::item_writer::OpenPart;
use crate::fields::ObjectWriter;
use crate::json;
use crate::write_json::WriteJson as _;

/// Writes events with increasing sequence numbers, and keeps the finished items, which the last
/// event repeats.
#[derive(Debug, Default)]
pub(crate) struct EventWriter {
    /// Sequence number of the next event.
    pub(super) sequence: u64,
    /// True for a whole response: only its items are kept.
    pub(super) is_silent: bool,
    /// Id of the item in progress.
    pub(super) item_id: String,
    /// Finished items.
    pub(crate) output: Vec<ObjectWriter>,
    /// The written events.
    pub(crate) out: Vec<u8>,
}

/// Place of a part inside its item: the field and the index.
pub(super) type PartPlace = Option<(&'static str, usize)>;

/// Returns the bytes of an event before its sequence number.
fn event_start(name: &str) -> String {
    format!("event: {name}\ndata: {{\"type\":\"{name}\",\"sequence_number\":")
}

impl EventWriter {
    /// Creates a writer whose first event has that number.
    pub(crate) fn starting_at(sequence: u64) -> Self {
        Self { sequence, ..Self::default() }
    }

    /// Writes one event with the fields of an object.
    pub(crate) fn write_object(&mut self, name: &str, fields: ObjectWriter) {
        self.open(&event_start(name));
        self.out.extend_from_slice(fields.into_json().get(1..).unwrap_or_default());
        self.out.extend_from_slice(b"\n\n");
    }

    /// Writes an event with the response.
    pub(crate) fn write_response(&mut self, name: &str, response: &ObjectWriter) {
        self.write_whole(name, "\"response\":", response);
    }

    /// Writes an event whose last field is an object.
    fn write_whole(&mut self, name: &str, fields: &str, object: &ObjectWriter) {
        self.open(&event_start(name));
        self.out.extend_from_slice(fields.as_bytes());
        object.write_json(&mut self.out);
        self.out.extend_from_slice(b"}\n\n");
    }

    /// Begins an event.
    fn open(&mut self, start: &str) {
        self.out.extend_from_slice(start.as_bytes());
        json::write_value(&self.sequence, &mut self.out);
        self.out.push(b',');
        self.sequence += 1;
    }

    /// Writes an event of the item in progress. `add` adds its fields after the place.
    pub(super) fn write_item(
        &mut self,
        name: &str,
        place: PartPlace,
        add: impl FnOnce(ObjectWriter) -> ObjectWriter,
    ) {
        if !self.is_silent {
            let event = add(self.place_fields(place));
            self.write_object(name, event);
        }
    }

    fn place_fields(&self, place: PartPlace) -> ObjectWriter {
        let fields = ObjectWriter::new()
            .set("item_id", self.item_id.as_str())
            .set("output_index", self.output.len());
        let (name, index) = place.unzip();
        fields.set_some(name.unwrap_or_default(), index)
    }

    /// Writes the delta of a text, the most frequent event.
    pub(super) fn write_delta(&mut self, part: &mut OpenPart, text: &str) {
        if self.is_silent {
            return;
        }
        if part.delta_fields.is_empty() {
            part.delta_start = event_start(&format!("{}.delta", part.event));
            let fields = self.place_fields(part.place).into_json();
            let fields = fields.get(1..fields.len() - 1).unwrap_or_default();
            part.delta_fields = [fields, b",\"delta\":"].concat();
        }
        self.open(&part.delta_start);
        self.out.extend_from_slice(&part.delta_fields);
        json::write_string(text, &mut self.out);
        self.out.extend_from_slice(part.tail.as_bytes());
        self.out.extend_from_slice(b"}\n\n");
    }

    /// Starts an item.
    pub(super) fn start_item(&mut self, id: String, item: impl FnOnce(&str) -> ObjectWriter) {
        self.item_id = id;
        if !self.is_silent {
            let item = item(&self.item_id);
            self.write_whole_item("response.output_item.added", &item);
        }
    }

    /// Writes the events of the commands of a shell call:
    /// <https://platform.openai.com/docs/api-reference/responses-streaming/response/shell_call_command>.
    pub(super) fn write_commands(&mut self, call: &ObjectWriter) {
        let call = if self.is_silent { Value::Null } else { Value::from(call.clone()) };
        let commands = call.pointer("/action/commands").and_then(Value::as_array);
        for (number, command) in commands.into_iter().flatten().enumerate() {
            let command = command.as_str().unwrap_or_default();
            for (kind, field, text) in [
                ("added", "command", ""),
                ("delta", "delta", command),
                ("done", "command", command),
            ] {
                let event = ObjectWriter::new()
                    .set("output_index", self.output.len())
                    .set("command_index", number)
                    .set(field, text);
                self.write_object(&format!("response.shell_call_command.{kind}"), event);
            }
        }
    }

    /// Ends an item.
    pub(super) fn end_item(&mut self, item: ObjectWriter) {
        if !self.is_silent {
            self.write_whole_item("response.output_item.done", &item);
        }
        self.output.push(item);
    }

    fn write_whole_item(&mut self, name: &str, item: &ObjectWriter) {
        let fields = format!("\"output_index\":{},\"item\":", self.output.len());
        self.write_whole(name, &fields, item);
    }
}
