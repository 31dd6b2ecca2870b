//! The session of a call: one id from the headers and fields that agents send.
//!
//! The first sign counts: a header (`session_id.rs`), a field of the body (`dialects/src/session_sign.rs`), the stored
//! response that the request continues. A call without a sign whose answer is stored begins a session, which
//! the calls that continue it have too. Calls of a session prefer the same lane and credential, where their
//! prompt is cached. A call without a sign is placed by the start of its conversation.

use canon::SharedText;
use dialects::RequestFacts;
use memchr::memmem;

use super::Call;
use crate::session_id::caller_id;

/// Length of the prefix that identifies a conversation. Shorter ones are not worth routing to a
/// provider's prompt cache.
const PREFIX_BYTES: usize = 2 << 10;
/// Part of the body that is searched for the start of the conversation.
const SEARCHED_BYTES: usize = 4 << 10;

/// Returns the session of a call.
pub(super) fn find(call: &Call, facts: &RequestFacts) -> Option<SharedText> {
    let named = call.options.session.clone();
    let in_body = || facts.session.as_deref().and_then(caller_id);
    let continued = || call.continued_session.clone();
    let found =
        named.or_else(in_body).or_else(continued).or_else(|| call.opened_session().cloned());
    if let Some(session) = &found {
        call.set_session(session);
    }
    found
}

/// The number by which calls of a session select the same lane.
pub(super) struct LaneHash {
    pub(super) hash: u64,
    /// True if the lane that answers is remembered. Most stored answers are never continued, so sessions that
    /// they begin are not; a call that continues one finds its lane by the same number.
    pub(super) is_kept: bool,
}

/// Returns the number by which calls of a session select the same lane; `None` if nothing tells that calls
/// belong together.
///
/// A session belongs to its account, and the start of a conversation to its key: agents of different owners
/// often send the same instructions.
pub(super) fn lane_hash(call: &Call, session: Option<&str>) -> Option<LaneHash> {
    let record = &call.key.record;
    let by_session = |session: &str, is_kept| {
        let hash = stable_hash([record.account_id.as_bytes(), session.as_bytes()]);
        LaneHash { hash, is_kept }
    };
    let by_start = || {
        let start = crc32fast::hash(conversation_start(call)?).to_le_bytes();
        Some(LaneHash { hash: stable_hash([record.id.as_bytes(), &start]), is_kept: true })
    };
    let opened = call.opened_session().map(SharedText::as_str);
    match session {
        // Nothing of a new session is cached, but instructions that many sessions begin with may be.
        Some(session) if opened == Some(session) => {
            by_start().or_else(|| Some(by_session(session, false)))
        }
        Some(session) => Some(by_session(session, true)),
        None => by_start(),
    }
}

/// Returns the start of a conversation, which is the same in every turn and is the part that providers
/// cache.
///
/// Taken from the raw bytes; `None` if the conversation is too short.
fn conversation_start(call: &Call) -> Option<&[u8]> {
    let names = call.dialect.traits().conversation_keys;
    let head = call.body.get(..SEARCHED_BYTES.min(call.body.len()))?;
    let begin = names.iter().filter_map(|name| memmem::find(head, name.as_bytes())).min()?;
    call.body.get(begin..begin.checked_add(PREFIX_BYTES)?)
}

/// Returns the FNV-1a hash of two texts, equal on every node and in every version. A change would move
/// sessions away from their cached prompts.
fn stable_hash(texts: [&[u8]; 2]) -> u64 {
    let bytes = texts.into_iter().flat_map(|text| text.iter().copied().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // FNV leaves the high bits of short texts alike.
    (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
