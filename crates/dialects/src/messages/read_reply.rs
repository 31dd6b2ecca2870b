//! Reads a provider's whole reply into canon.

use canon::{Candidate, Extras, Fault, Finish, Raw, Reply, Trouble};
use serde_json::{Map, Value};

use super::names::ORIGIN;
use super::signatures::BlockAuthor;
use super::{fault, read_blocks, wire};
use crate::fields::{Fields, Path};
use crate::served::USAGE;

/// Reads a reply. An error object in place of a reply is returned as that error.
pub(super) fn read(body: &[u8]) -> Result<Reply, Fault> {
    let value: Value = serde_json::from_slice(body).map_err(|e| unreadable(&e.to_string()))?;
    let mut fields = Fields::new(value, &Path::Root).map_err(|e| unreadable(e.say()))?;
    if let Some(error) = fields.take("error") {
        return Err(fault::read_object(&error));
    }
    message(fields).map_err(|e| unreadable(&e.to_string()))
}

fn message(mut fields: Fields<'_>) -> Result<Reply, Fault> {
    for fixed in ["type", "role"] {
        fields.take(fixed);
    }
    let content = fields.take("content").ok_or_else(|| fields.fault("content", "is missing"))?;
    let Value::Array(blocks) = content else {
        return Err(fields.fault("content", "must be a list"));
    };
    let path = Path::Root.key("content");
    let parts = blocks
        .into_iter()
        .enumerate()
        .map(|(at, block)| read_blocks::read(block, &path.item(at), BlockAuthor::Answer))
        .collect::<Result<_, _>>()?;
    let stop = fields.string("stop_sequence")?;
    let finish = fields.string("stop_reason")?.map(|word| finish(&word, stop));
    let details = fields.take("stop_details");
    let own = details.map(|details| Map::from_iter([("stop_details".to_owned(), details)]));
    let (usage, other_fields) = match fields.object("usage")? {
        None => (None, Map::new()),
        Some(object) => {
            let counts: Option<wire::MessagesUsage> =
                serde_json::from_value(Value::Object(object.clone())).ok();
            (counts.map(|counts| counts.read()), wire::other_fields(object))
        }
    };
    let (id, model) = (fields.string("id")?, fields.string("model")?);
    let mut extras = fields.extras(ORIGIN);
    if !other_fields.is_empty() {
        extras.put(ORIGIN, USAGE, Value::Object(other_fields));
    }
    let candidate = Candidate {
        index: 0,
        parts,
        finish,
        logprobs: Vec::new(),
        extras: Extras::of(ORIGIN, own.unwrap_or_default()),
    };
    Ok(Reply { id, model, created: None, candidates: vec![candidate], usage, extras })
}

/// Reads the end of a reply.
pub(super) fn finish(word: &str, stop: Option<String>) -> Finish {
    Finish { why: wire::read_why(word), raw: Raw::new(ORIGIN, word), stop }
}

fn unreadable(why: &str) -> Fault {
    Fault::new(Trouble::Unavailable, "the provider's answer could not be read")
        .note(format!("not a message: {why}"))
}
