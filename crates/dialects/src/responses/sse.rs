//! Framing of server-sent events.

use crate::fields::ObjectWriter;

/// Writes one event with its `event:` and `data:` lines.
pub(super) fn write_event(name: &str, data: &ObjectWriter, out: &mut Vec<u8>) {
    let data = data.to_json();
    for piece in [b"event: ", name.as_bytes(), b"\ndata: ", &data, b"\n\n"] {
        out.extend_from_slice(piece);
    }
}
