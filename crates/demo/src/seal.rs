//! The seals of the demo model: opaque to everyone else, checked when they come back.
//!
//! They protect nothing; they are here so that a seal that was damaged, cut or sent to the wrong
//! format on its way through the gateway is noticed as a real provider would notice it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canon::{Chat, Fault, Kind, Origin, Part, Seal};

use crate::dice::{self, Dice};

const VERSION: u8 = 1;
const BODY: usize = 56;
const CHECK: usize = 8;

/// Words that format's callers may send for a seal they never got.
const SKIPPED: [&str; 2] =
    ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

/// A seal for something that was thought or called, issued by that format.
pub(crate) fn issue(origin: Origin, about: u64) -> Seal {
    let mut bytes = vec![VERSION, mark(origin)];
    let mut dice = Dice::new(dice::join(about, u64::from(mark(origin))));
    while bytes.len() < BODY {
        bytes.extend_from_slice(&dice.roll().to_le_bytes());
    }
    bytes.truncate(BODY);
    let check = dice::hash(&bytes).to_le_bytes();
    bytes.extend_from_slice(&check);
    Seal::new(origin, STANDARD.encode(bytes))
}

/// Refuses a request whose history holds a seal of this format that was not issued here.
pub(crate) fn check(chat: &Chat, origin: Origin) -> Result<(), Fault> {
    for (at, turn) in chat.turns.iter().enumerate() {
        for (slot, part) in turn.parts.iter().enumerate() {
            if !is_good(part, origin) {
                let what = match part.kind {
                    Kind::Thought(_) => "thinking",
                    Kind::ToolCall(_) => "a tool call",
                    Kind::Text { .. }
                    | Kind::Refusal(_)
                    | Kind::Media(_)
                    | Kind::ToolResult(_)
                    | Kind::Code(_)
                    | Kind::CodeOutcome(_)
                    | Kind::Search(_)
                    | Kind::Foreign { .. } => "a part",
                };
                return Err(Fault::invalid(
                    format!("turns[{at}].parts[{slot}].seal"),
                    format!("the signature on {what} is not one this model gave, or was damaged"),
                )
                .code("invalid_signature"));
            }
        }
    }
    Ok(())
}

fn is_good(part: &Part, origin: Origin) -> bool {
    let Some(token) = part.seal.as_ref().and_then(|seal| seal.for_origin(origin)) else {
        return true;
    };
    // In responses a seal comes back with the id of its item before it.
    let token = token.rsplit_once(':').map_or(token, |(_, own)| own);
    let decoded = STANDARD.decode(token).ok();
    if origin == Origin::Native {
        let skipped = |word: &&str| *word == token || decoded.as_deref() == Some(word.as_bytes());
        if SKIPPED.iter().any(skipped) {
            return true;
        }
    }
    decoded.is_some_and(|bytes| {
        bytes.len() == BODY + CHECK
            && bytes.starts_with(&[VERSION, mark(origin)])
            && bytes
                .split_at_checked(BODY)
                .is_some_and(|(body, check)| dice::hash(body).to_le_bytes().as_slice() == check)
    })
}

const fn mark(origin: Origin) -> u8 {
    match origin {
        Origin::Chat => b'c',
        Origin::Responses => b'r',
        Origin::Messages => b'm',
        Origin::Native => b'n',
        Origin::Images => b'i',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::{Role, Thought, Turn};

    fn with(seal: Seal) -> Chat {
        let thought = Part::new(Kind::Thought(Thought::default())).sealed(Some(seal));
        Chat { turns: vec![Turn::new(Role::Assistant, vec![thought])], ..Chat::default() }
    }

    #[test]
    fn an_own_seal_is_accepted_and_a_damaged_one_is_not() {
        for origin in Origin::ALL {
            let seal = issue(origin, 7);
            assert_eq!(check(&with(seal.clone()), origin), Ok(()));
            let token = seal.open().1;
            for at in 0..token.len() {
                let mut bytes = token.as_bytes().to_vec();
                bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
                let damaged = Seal::new(origin, String::from_utf8(bytes).unwrap());
                assert!(check(&with(damaged), origin).is_err(), "{origin} {at}");
            }
            let (short, _) = token.split_at(40);
            assert!(check(&with(Seal::new(origin, short)), origin).is_err());
        }
    }

    #[test]
    fn a_seal_relabelled_as_another_formats_is_noticed() {
        let token = issue(Origin::Native, 7).open().1.to_owned();
        assert!(check(&with(Seal::new(Origin::Messages, token)), Origin::Messages).is_err());
    }

    #[test]
    fn a_seal_of_another_format_is_not_looked_at() {
        assert_eq!(check(&with(Seal::new(Origin::Chat, "?")), Origin::Messages), Ok(()));
    }
}
