//! Framing of server-sent events.

/// Writes one event with its `event:` and `data:` lines.
pub(super) fn write_event(name: &str, data: &str, out: &mut Vec<u8>) {
    for piece in ["event: ", name, "\ndata: ", data, "\n\n"] {
        out.extend_from_slice(piece.as_bytes());
    }
}
