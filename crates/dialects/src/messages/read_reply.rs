//! Reads a provider's whole reply into canon.

use canon::{ApiError, ChatReply, ErrorKind, ExtraFields, Finish, RawReason, ReplyCandidate};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::names::ORIGIN;
use super::signatures::BlockAuthor;
use super::{fault, read_content, wire};
use crate::endings;
use crate::fields::{JsonPath, ObjectReader};
use crate::json_tree::JsonTree;
use crate::service_tier::USAGE_EXTRA;

/// Reads a reply. An error object in place of a reply is returned as that error.
pub(super) fn read(body: &[u8]) -> Result<ChatReply, ApiError> {
    let value: JsonTree<'_> =
        serde_json::from_slice(body).map_err(|e| unreadable(&e.to_string()))?;
    let mut fields =
        ObjectReader::new(value, &JsonPath::Root).map_err(|e| unreadable(e.message()))?;
    if let Some(error) = fields.take("error") {
        return Err(fault::read_object(&error));
    }
    message(fields).map_err(|e| unreadable(&e.to_string()))
}

fn message(mut fields: ObjectReader<'_>) -> Result<ChatReply, ApiError> {
    for fixed in ["type", "role"] {
        fields.take(fixed);
    }
    let blocks = match fields.take_borrowed("content") {
        Some(JsonTree::List(blocks)) => blocks,
        Some(_) => return Err(fields.fault("content", "must be a list")),
        None => return Err(fields.fault("content", "is missing")),
    };
    let blocks = blocks.into_iter();
    let parts =
        blocks.map(|block| read_content::read_value(&block.into_value(), BlockAuthor::Answer));
    let parts = parts.collect::<Result<_, _>>().map_err(|e| unreadable(&e.to_string()))?;
    let stop = fields.string("stop_sequence")?;
    let finish = fields.string("stop_reason")?.map(|word| finish(&word, stop));
    let details = fields.take("stop_details");
    let own = details.map(|details| Map::from_iter([("stop_details".to_owned(), details)]));
    let (usage, other_fields) = match fields.object("usage")? {
        None => (None, Map::new()),
        Some(object) => {
            let counts = wire::MessagesUsage::deserialize(&object).ok();
            (counts.map(|counts| counts.read()), wire::other_fields(object))
        }
    };
    let (id, model) = (fields.string("id")?, fields.string("model")?);
    let mut extras = fields.extras(ORIGIN);
    if !other_fields.is_empty() {
        extras.insert(ORIGIN, USAGE_EXTRA, Value::Object(other_fields));
    }
    let candidate = ReplyCandidate {
        index: 0,
        parts,
        finish,
        logprobs: Vec::new(),
        extras: ExtraFields::from_fields(ORIGIN, own.unwrap_or_default()),
    };
    Ok(ChatReply { id, model, created: None, candidates: vec![candidate], usage, extras })
}

/// Reads the end of a reply.
pub(super) fn finish(word: &str, stop: Option<String>) -> Finish {
    let reason = endings::read(ORIGIN, word);
    Finish { reason, raw: RawReason::new(ORIGIN, word), stop_sequence: stop }
}

fn unreadable(why: &str) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "the provider's answer could not be read")
        .with_log_note(format!("not a message: {why}"))
}
