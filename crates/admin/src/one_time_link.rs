//! One-time links: a random word in an address, its digest in the store.

use ledger::Micros;
use serde::{Deserialize, Serialize};
use store::{Link, LinkPurpose};

const MINUTE: Micros = 60 * 1_000_000;
const DAY: Micros = 24 * 60 * MINUTE;

/// How long links live, by what they are for.
pub const LINK_LIFETIMES: LinkLifetimes = LinkLifetimes {
    reset: 30 * MINUTE,
    sign_up: DAY,
    invite: 7 * DAY,
    email: DAY,
    sign_in_step: 10 * MINUTE,
};

/// How long links live.
pub struct LinkLifetimes {
    pub reset: Micros,
    pub sign_up: Micros,
    pub invite: Micros,
    pub email: Micros,
    /// A step of a sign-in.
    pub sign_in_step: Micros,
}

/// What a link remembers for the page it leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkData {
    /// The address the link was sent to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// The role of an account to be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The team whoever makes an account with it belongs to, and their role there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<(String, String)>,
    /// Who made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maker: Option<String>,
    /// Where to go when all is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The provider of identities asked, what its answer must contain, and what redeems its code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verifier: Option<String>,
}

/// What a link remembers.
pub fn link_data(link: &Link) -> LinkData {
    serde_json::from_str(&link.data).unwrap_or_default()
}

/// A link made at that time, to live for so long.
pub fn new_link(
    hash: Vec<u8>,
    purpose: LinkPurpose,
    account_id: Option<&str>,
    note: &LinkData,
    (now, life): (Micros, Micros),
) -> Link {
    Link {
        hash,
        purpose,
        account_id: account_id.map(str::to_owned),
        // A note is a few texts, which can always be written.
        data: serde_json::to_string(note).unwrap_or_default(),
        created: now,
        expires: now.saturating_add(life),
    }
}
