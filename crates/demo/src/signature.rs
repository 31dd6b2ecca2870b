//! Signatures of the demo model: opaque to callers, checked when they come back.
//!
//! They protect nothing. They reveal a signature that the gateway damaged, truncated or sent to the
//! wrong format, as a real provider would.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canon::{ApiError, ChatRequest, Part, PartKind, Signature, WireFormat};

use crate::seeded_random::{self, SeededRandom};

const VERSION: u8 = 1;
const BODY_BYTES: usize = 56;
const CHECKSUM_BYTES: usize = 8;

/// Values that callers of the native format may send instead of a signature they never received
/// (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
const PLACEHOLDERS: [&str; 2] =
    ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

/// Issues a signature of that format for a thought or a call.
pub(crate) fn issue(origin: WireFormat, about: u64) -> Signature {
    let mut bytes = vec![VERSION, mark(origin)];
    let mut random = SeededRandom::new(seeded_random::join(about, u64::from(mark(origin))));
    while bytes.len() < BODY_BYTES {
        bytes.extend_from_slice(&random.next_number().to_le_bytes());
    }
    bytes.truncate(BODY_BYTES);
    let check = seeded_random::hash(&bytes).to_le_bytes();
    bytes.extend_from_slice(&check);
    Signature::new(origin, STANDARD.encode(bytes))
}

/// Refuses a request whose history holds a signature of this format that was not issued here.
pub(crate) fn check(chat: &ChatRequest, origin: WireFormat) -> Result<(), ApiError> {
    for (at, turn) in chat.turns.iter().enumerate() {
        for (slot, part) in turn.parts.iter().enumerate() {
            if !is_good(part, origin) {
                let what = match part.kind {
                    PartKind::Thought(_) => "thinking",
                    PartKind::ToolCall(_) => "a tool call",
                    PartKind::Text { .. }
                    | PartKind::Refusal(_)
                    | PartKind::Media(_)
                    | PartKind::ToolResult(_)
                    | PartKind::CodeExecution(_)
                    | PartKind::CodeResult(_)
                    | PartKind::WebSearch(_)
                    | PartKind::Foreign { .. } => "a part",
                };
                return Err(ApiError::invalid(
                    format!("turns[{at}].parts[{slot}].seal"),
                    format!("the signature on {what} is not one this model gave, or was damaged"),
                )
                .with_code("invalid_signature"));
            }
        }
    }
    Ok(())
}

fn is_good(part: &Part, origin: WireFormat) -> bool {
    let Some(token) = part.signature.as_ref().and_then(|seal| seal.for_format(origin)) else {
        return true;
    };
    // In the responses format a signature comes back with the id of its item before it.
    let token = token.rsplit_once(':').map_or(token, |(_, own)| own);
    let decoded = STANDARD.decode(token).ok();
    if origin == WireFormat::Native {
        let skipped = |word: &&str| *word == token || decoded.as_deref() == Some(word.as_bytes());
        if PLACEHOLDERS.iter().any(skipped) {
            return true;
        }
    }
    decoded.is_some_and(|bytes| {
        bytes.len() == BODY_BYTES + CHECKSUM_BYTES
            && bytes.starts_with(&[VERSION, mark(origin)])
            && bytes.split_at_checked(BODY_BYTES).is_some_and(|(body, check)| {
                seeded_random::hash(body).to_le_bytes().as_slice() == check
            })
    })
}

const fn mark(origin: WireFormat) -> u8 {
    match origin {
        WireFormat::Chat => b'c',
        WireFormat::Responses => b'r',
        WireFormat::Messages => b'm',
        WireFormat::Native => b'n',
        WireFormat::Images => b'i',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::{Role, Thought, Turn};

    fn with(seal: Signature) -> ChatRequest {
        let thought = Part::new(PartKind::Thought(Thought::default())).with_signature(Some(seal));
        ChatRequest {
            turns: vec![Turn::new(Role::Assistant, vec![thought])],
            ..ChatRequest::default()
        }
    }

    #[test]
    fn an_own_seal_is_accepted_and_a_damaged_one_is_not() {
        for origin in WireFormat::ALL {
            let seal = issue(origin, 7);
            assert_eq!(check(&with(seal.clone()), origin), Ok(()));
            let token = seal.origin_and_token().1;
            for at in 0..token.len() {
                let mut bytes = token.as_bytes().to_vec();
                bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
                let damaged = Signature::new(origin, String::from_utf8(bytes).unwrap());
                assert!(check(&with(damaged), origin).is_err(), "{origin} {at}");
            }
            let (short, _) = token.split_at(40);
            assert!(check(&with(Signature::new(origin, short)), origin).is_err());
        }
    }

    #[test]
    fn a_seal_relabelled_as_another_formats_is_noticed() {
        let token = issue(WireFormat::Native, 7).origin_and_token().1.to_owned();
        assert!(
            check(&with(Signature::new(WireFormat::Messages, token)), WireFormat::Messages)
                .is_err()
        );
    }

    #[test]
    fn a_seal_of_another_format_is_not_looked_at() {
        assert_eq!(
            check(&with(Signature::new(WireFormat::Chat, "?")), WireFormat::Messages),
            Ok(())
        );
    }
}
