//! Chunks of a stream by their noted values.
//!
//! Providers send chunks with the same skeleton again and again. Such a chunk needs no parser.

use std::borrow::Cow;

use super::super::reply::{ChatChoice, ChatReplyMessage, ChatReplyView};
use super::super::usage;
use crate::json;
use crate::reply_shape::{DefaultValue, NoteLabel, NotedReply, ObjectShape};
use crate::text::BorrowedText;
use crate::wire_value::{LooseText, LooseValue, TextOrList};

/// Labels of noted values, behind those of the counts.
const ID: NoteLabel = usage::LABELS;
const CREATED: NoteLabel = usage::LABELS + 1;
const MODEL: NoteLabel = usage::LABELS + 2;
const TIER: NoteLabel = usage::LABELS + 3;
const INDEX: NoteLabel = usage::LABELS + 4;
const DELTA: NoteLabel = usage::LABELS + 5;
const CONTENT: NoteLabel = usage::LABELS + 6;
const FINISH: NoteLabel = usage::LABELS + 7;
/// A field of the chunk that only the first one tells.
const CHUNK_REST: NoteLabel = usage::LABELS + 8;
/// A value that no reader wants.
const UNREAD: NoteLabel = usage::LABELS + 9;
/// A value for which a chunk is parsed.
const PARSED: NoteLabel = usage::LABELS + 10;

/// The fields of a chunk.
pub(in crate::chat) static CHUNK: ObjectShape = ObjectShape {
    fields: &[
        ("id", DefaultValue::Noted(ID)),
        ("object", DefaultValue::Noted(UNREAD)),
        ("created", DefaultValue::Noted(CREATED)),
        ("model", DefaultValue::Noted(MODEL)),
        ("choices", DefaultValue::Noted(UNREAD)),
        ("usage", DefaultValue::Noted(usage::USAGE)),
        ("service_tier", DefaultValue::Noted(TIER)),
        ("error", DefaultValue::Noted(PARSED)),
        ("obfuscation", DefaultValue::Noted(UNREAD)),
    ],
    inside: &[("choices", &CHOICE), ("usage", &usage::USAGE_SHAPE)],
    find_texts: None,
    rest: Some(CHUNK_REST),
};

static CHOICE: ObjectShape = ObjectShape {
    fields: &[
        ("index", DefaultValue::Noted(INDEX)),
        ("delta", DefaultValue::Noted(DELTA)),
        ("finish_reason", DefaultValue::Noted(FINISH)),
    ],
    inside: &[("delta", &MESSAGE)],
    find_texts: None,
    rest: Some(PARSED),
};

static MESSAGE: ObjectShape = ObjectShape {
    fields: &[("role", DefaultValue::Noted(UNREAD)), ("content", DefaultValue::Noted(CONTENT))],
    inside: &[],
    find_texts: None,
    rest: Some(PARSED),
};

/// Returns a chunk with at most one choice, which has nothing but text; `None` if it has to be parsed.
pub(in crate::chat) fn view<'a>(
    noted: &NotedReply<'a>,
    is_first: bool,
) -> Option<ChatReplyView<'a>> {
    if noted.items() > 1 {
        return None;
    }
    let mut chunk = ChatReplyView::default();
    let mut choice = ChatChoice::default();
    let mut message = None;
    for (label, value) in noted.all() {
        match label {
            PARSED => return None,
            CHUNK_REST if is_first => return None,
            ID => chunk.id = Some(text(value)?),
            CREATED => chunk.created = Some(i64::try_from(usage::plain_count(value)?).ok()?),
            MODEL => chunk.model = Some(text(value)?),
            TIER => chunk.service_tier = Some(LooseText(text(value)?.0)),
            INDEX => choice.index = Some(u32::try_from(usage::plain_count(value)?).ok()?),
            // Its fields are noted before it.
            DELTA if !value.starts_with('{') => return None,
            CONTENT => {
                let content = Some(TextOrList::Text(text(value)?));
                message = Some(Box::new(ChatReplyMessage { content, ..Default::default() }));
            }
            FINISH => choice.finish_reason = Some(text(value)?),
            // The counts are read below, and the rest is not read.
            _ => {}
        }
    }
    chunk.usage = usage::noted_counts(noted)?.map(|counts| LooseValue(Some(counts)));
    choice.delta = message;
    chunk.choices = Some(if noted.items() > 0 { vec![choice] } else { Vec::new() });
    Some(chunk)
}

/// Returns the text of a JSON string; `None` for any other value.
fn text(json: &str) -> Option<BorrowedText<'_>> {
    let plain = json.strip_prefix('"')?.strip_suffix('"')?;
    match plain.contains('\\') {
        true => json::read(json).ok(),
        false => Some(BorrowedText(Cow::Borrowed(plain))),
    }
}
