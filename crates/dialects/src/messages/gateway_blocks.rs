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
use std::borrow::Cow;

use super::names::{FOREIGN_SEARCH, FOREIGN_SIGNATURE, GATEWAY_ID_PREFIX, UNSIGNED_THOUGHT};
use super::signatures;
use crate::json::{BodyEdit, range_of};

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

#[derive(Deserialize)]
struct HistoryBlockView<'a> {
    #[serde(borrow, default)]
    r#type: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    signature: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    data: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tool_use_id: Option<Cow<'a, str>>,
}

impl HistoryBlockView<'_> {
    /// Returns the loss and its reason if the gateway made the block.
    fn loss(&self) -> Option<(&'static str, &'static str)> {
        let is_gateway_id = |id: &Option<Cow<'_, str>>| {
            id.as_deref().is_some_and(|id| id.starts_with(GATEWAY_ID_PREFIX))
        };
        let kind = self.r#type.as_deref()?;
        match kind {
            "thinking" => {
                let signature = self.signature.as_deref().unwrap_or_default();
                (signature.is_empty() || signatures::is_wrapped(signature)).then_some(UNSIGNED_LOSS)
            }
            "redacted_thinking" => match signatures::is_carrier(self.data.as_deref()?)? {
                true => Some(("part.seal", FOREIGN_SIGNATURE)),
                false => Some(UNSIGNED_LOSS),
            },
            _ if !is_gateway_id(&self.id) && !is_gateway_id(&self.tool_use_id) => None,
            "web_search_tool_result" => Some(("part.search", FOREIGN_SEARCH)),
            _ if self.name.as_deref() == Some("web_search") => {
                Some(("part.search", FOREIGN_SEARCH))
            }
            _ => Some(("part", "code another provider ran cannot be shown to this one")),
        }
    }
}

const UNSIGNED_LOSS: (&str, &str) = ("thought", UNSIGNED_THOUGHT);

/// Returns the edits that remove the blocks, and the losses.
pub(super) fn removal_edits(text: &str) -> (Vec<BodyEdit>, Losses) {
    let mut losses = Losses::new();
    let Ok(body) = serde_json::from_str::<HistoryView<'_>>(text) else {
        return (Vec::new(), losses);
    };
    let messages = body.messages.iter();
    let edits =
        messages.filter_map(|message| removal_edit(text, message.content, &mut losses)).collect();
    (edits, losses)
}

fn removal_edit(text: &str, content: &RawValue, losses: &mut Losses) -> Option<BodyEdit> {
    let blocks: Vec<&RawValue> = serde_json::from_str(content.get()).ok()?;
    let mut stays = |block: &&str| {
        let lost =
            serde_json::from_str::<HistoryBlockView<'_>>(block).ok().and_then(|block| block.loss());
        if let Some((what, why)) = lost {
            losses.add(what, why);
        }
        lost.is_none()
    };
    let kept: Vec<&str> = blocks.iter().map(|block| block.get()).filter(&mut stays).collect();
    if kept.len() == blocks.len() {
        return None;
    }
    let inside = if kept.is_empty() { PLACEHOLDER_BLOCK.to_owned() } else { kept.join(",") };
    Some(BodyEdit {
        range: range_of(text, content),
        replacement: Bytes::from(format!("[{inside}]")),
    })
}
