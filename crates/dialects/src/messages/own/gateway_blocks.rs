//! Removes the blocks that the gateway wrote for another provider from the caller's own bytes.
//!
//! A conversation may begin at a provider of another format and continue at one of this format. The
//! client then sends back foreign signatures in the gateway's envelopes, thinking without a
//! signature, and searches that the gateway made up to show the hits. A provider of this format
//! would refuse the request for any of them, so they are cut out. Everything else stays byte for
//! byte.

use bytes::Bytes;
use canon::Losses;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::fields::{FOREIGN_SEARCH, FOREIGN_SIGNATURE};
use crate::json::{self, BodyEdit, range_of};
use crate::messages::content::MessagesBlock;
use crate::messages::names::{GATEWAY_ID_PREFIX, UNSIGNED_THOUGHT};
use crate::messages::signatures;
use crate::wire_value::PlacedValue;

/// Stands in a turn of which nothing is left, because an empty turn is refused too.
const PLACEHOLDER_BLOCK: &str = r#"{"type":"text","text":"…"}"#;

#[derive(Deserialize)]
struct HistoryView<'a> {
    #[serde(borrow)]
    messages: Vec<HistoryMessageView<'a>>,
}

#[derive(Deserialize)]
struct HistoryMessageView<'a> {
    #[serde(borrow)]
    content: &'a RawValue,
}

/// Returns the loss and its reason if the gateway made the block.
pub(crate) fn loss(block: &MessagesBlock<'_>) -> Option<(&'static str, &'static str)> {
    const UNSIGNED_LOSS: (&str, &str) = ("thought", UNSIGNED_THOUGHT);
    match block {
        MessagesBlock::Thinking(block) => {
            let signature = block.signature.as_deref().unwrap_or_default();
            let is_signed = !signature.is_empty() && signatures::is_carrier(signature).is_none();
            (!is_signed).then_some(UNSIGNED_LOSS)
        }
        MessagesBlock::Redacted(block) => match signatures::is_carrier(block.data.as_deref()?)? {
            true => Some(("part.seal", FOREIGN_SIGNATURE)),
            false => Some(UNSIGNED_LOSS),
        },
        MessagesBlock::Unknown(fields) => {
            let is_ours =
                |name| fields.text(name).is_some_and(|id| id.starts_with(GATEWAY_ID_PREFIX));
            if !is_ours("id") && !is_ours("tool_use_id") {
                return None;
            }
            let is_search = fields.text("type").as_deref() == Some("web_search_tool_result")
                || fields.text("name").as_deref() == Some("web_search");
            Some(match is_search {
                true => ("part.search", FOREIGN_SEARCH),
                false => ("part", "code another provider ran cannot be shown to this one"),
            })
        }
        MessagesBlock::Text(_)
        | MessagesBlock::Image(_)
        | MessagesBlock::Document(_)
        | MessagesBlock::ToolUse(_)
        | MessagesBlock::ToolResult(_) => None,
    }
}

/// Returns the edits that remove the blocks, and the losses.
pub(crate) fn removal_edits(text: &str) -> (Vec<BodyEdit>, Losses) {
    let mut losses = Losses::new();
    let Ok(body) = json::read::<HistoryView<'_>>(text) else {
        return (Vec::new(), losses);
    };
    let messages = body.messages.iter();
    let edits = messages.filter_map(|message| removal_edit(text, message.content, &mut losses));
    (edits.collect(), losses)
}

fn removal_edit(text: &str, content: &RawValue, losses: &mut Losses) -> Option<BodyEdit> {
    let blocks: Vec<PlacedValue<'_, MessagesBlock<'_>>> = json::read(content.get()).ok()?;
    let mut kept = Vec::with_capacity(blocks.len());
    for PlacedValue { raw, value } in &blocks {
        match loss(value) {
            Some((what, why)) => losses.add(what, why),
            None => kept.push(raw.get()),
        }
    }
    if kept.len() == blocks.len() {
        return None;
    }
    let inside = if kept.is_empty() { PLACEHOLDER_BLOCK.to_owned() } else { kept.join(",") };
    let replacement = Bytes::from(format!("[{inside}]"));
    Some(BodyEdit { range: range_of(text, content), replacement })
}
