//! Reading of replies that hold only text.
//!
//! Most replies are an id, a model, one text, an ending and counts. Their fields are read one by one
//! into the described objects, without the general parser. Whatever is not surely so is left to that
//! parser: wrong types, fields that are there twice, any other content.

use simdutf8::basic::from_utf8;

use crate::json_reader::JsonReader;

/// The described fields of an object that were there, by their numbers.
#[derive(Default)]
pub(crate) struct SeenFields(u32);

impl SeenFields {
    /// Notes a field; `None` if it was there before.
    #[inline]
    pub(crate) fn once(&mut self, number: u32) -> Option<()> {
        let bit = 1 << number;
        let is_new = self.0 & bit == 0;
        self.0 |= bit;
        is_new.then_some(())
    }
}

/// Reads a whole body; `None` if it has to be parsed.
pub(crate) fn read<'a, T>(
    body: &'a [u8],
    read: impl FnOnce(&mut JsonReader<'a>) -> Option<T>,
) -> Option<T> {
    let mut reader = JsonReader::of_reply(from_utf8(body).ok()?);
    let value = read(&mut reader)?;
    reader.end().ok()?;
    Some(value)
}

/// The law that holds for every format.
#[cfg(test)]
pub(crate) mod law {
    use canon::{ApiError, ChatReply};
    use proptest::sample::Index;

    /// Pieces that are put into a body.
    pub(crate) const PIECES: &[&str] = &[
        "",
        "\"",
        "\\",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "0",
        "1",
        "-",
        ".5",
        "e9",
        "null",
        "true",
        " ",
        "\n",
        "\u{e9}",
        "\\ud83d",
        "\\u00e9",
        "\\n",
        "\"x\":1,",
        "\"id\":null,",
        "\"text\":\"t\",",
        "\"type\":\"text\",",
        "\"content\":\"t\",",
        "\"error\":null,",
        "\"usage\":null,",
        "\"usage\":{},",
        "\"stop_reason\":\"end_turn\",",
        "\"finish_reason\":\"stop\",",
        "\"index\":null,",
        "99999999999999999999",
        "\"$serde_json::private::RawValue\":\"1\",",
        "\"service_tier\":\"flex\",",
        "\"refusal\":\"no\",",
        "\"i\\u0064\":\"x\",",
        "\"output_tokens\":null,",
        "\"total_tokens\":1,",
    ];

    /// Compares both ways to read a body, as it is and with a change.
    pub(crate) fn check_bodies(
        body: &str,
        place: Index,
        removed: usize,
        put: &str,
        plain: fn(&[u8]) -> Option<ChatReply>,
        parsed: fn(&[u8]) -> Result<ChatReply, ApiError>,
    ) {
        let at = place.index(body.len());
        let mut changed = body.as_bytes().to_vec();
        let end = (at + removed).min(changed.len());
        changed.splice(at..end, put.bytes());
        for body in [body.as_bytes(), &changed] {
            if let Some(read) = plain(body) {
                let shown = String::from_utf8_lossy(body);
                let parsed = parsed(body).unwrap_or_else(|error| panic!("{error:?}: {shown}"));
                assert_eq!(read, parsed, "{shown}");
            }
        }
    }
}
