//! Blocks we wrote into a history for another provider, taken out of the caller's own bytes.
//!
//! A conversation may begin at a provider of another format and go on at one of this format. The
//! client then sends back foreign seals in our envelopes, thinking that nobody sealed, and searches
//! we made up to show what was found. This format's own provider would refuse the request for any
//! of them, so they are cut out; everything else stays byte for byte.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

use super::seals;
use super::write_answer::OUR_ID;
use crate::json::{Edit, range_of};

/// What stands in a turn of which nothing is left, since an empty turn is refused too.
const NOTHING: &str = r#"{"type":"text","text":"…"}"#;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: &'a RawValue,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, default)]
    r#type: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    signature: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    data: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tool_use_id: Option<Cow<'a, str>>,
}

impl Block<'_> {
    fn is_ours(&self) -> bool {
        let made_up =
            |id: &Option<Cow<'_, str>>| id.as_deref().is_some_and(|id| id.starts_with(OUR_ID));
        match self.r#type.as_deref() {
            Some("thinking") => {
                let signature = self.signature.as_deref().unwrap_or_default();
                signature.is_empty() || seals::is_wrapped(signature)
            }
            Some("redacted_thinking") => self.data.as_deref().is_some_and(seals::is_wrapped),
            _ => made_up(&self.id) || made_up(&self.tool_use_id),
        }
    }
}

/// The edits that cut them out.
pub(super) fn edits(text: &str) -> Vec<Edit> {
    let Ok(body) = serde_json::from_str::<Body<'_>>(text) else { return Vec::new() };
    body.messages.iter().filter_map(|message| edit(text, message.content)).collect()
}

fn edit(text: &str, content: &RawValue) -> Option<Edit> {
    let blocks: Vec<&RawValue> = serde_json::from_str(content.get()).ok()?;
    let kept: Vec<&str> = blocks
        .iter()
        .map(|block| block.get())
        .filter(|block| !serde_json::from_str::<Block<'_>>(block).is_ok_and(|b| b.is_ours()))
        .collect();
    if kept.len() == blocks.len() {
        return None;
    }
    let inside = if kept.is_empty() { NOTHING.to_owned() } else { kept.join(",") };
    Some(Edit { at: range_of(text, content), with: Bytes::from(format!("[{inside}]")) })
}
