//! The record of one call: what it was, what it used, what it cost. The row of the ledger.

use canon::{Charge, Money, Usage};
use serde::{Deserialize, Serialize};

use crate::Micros;

/// How a call ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Answered to its end.
    Done,
    /// The caller left before the end.
    CallerLeft,
    /// The provider's answer broke off.
    BrokeOff,
    /// Refused or failed before there was any output.
    #[default]
    Failed,
    /// The gateway died while it ran; settled from the journal.
    Recovered,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 5] =
        [Self::Done, Self::CallerLeft, Self::BrokeOff, Self::Failed, Self::Recovered];

    /// The word in records and exports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::CallerLeft => "caller_left",
            Self::BrokeOff => "broke_off",
            Self::Failed => "failed",
            Self::Recovered => "recovered",
        }
    }

    /// The outcome with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.word() == word)
    }

    /// Who ends a call that ends so, where nothing else is known.
    pub const fn usual_end(self) -> EndedBy {
        match self {
            Self::Done | Self::BrokeOff | Self::Failed => EndedBy::Provider,
            Self::CallerLeft => EndedBy::Caller,
            Self::Recovered => EndedBy::Operator,
        }
    }
}

/// Who ended a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// The provider: it said all it had to say, or failed.
    #[default]
    Provider,
    /// The caller: it left, or asked for what cannot be.
    Caller,
    /// The gateway, at a limit that was asked for or is set here.
    Limit,
    /// The gateway, at the end of the money.
    Cap,
    /// The gateway, out of time.
    Deadline,
    /// The operator: the key was revoked, the gateway stopped or died.
    Operator,
}

impl EndedBy {
    /// Every one.
    pub const ALL: [Self; 6] =
        [Self::Provider, Self::Caller, Self::Limit, Self::Cap, Self::Deadline, Self::Operator];

    /// The word in records and exports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Caller => "caller",
            Self::Limit => "limit",
            Self::Cap => "cap",
            Self::Deadline => "deadline",
            Self::Operator => "operator",
        }
    }

    /// The one with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ended| ended.word() == word)
    }
}

/// One try of a lane that did not lead to an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Try {
    /// The lane.
    pub lane: String,
    /// Why it did not answer, in a word.
    pub outcome: String,
    /// The status it answered with, if it did.
    pub status: Option<u16>,
    /// How long it took, in milliseconds.
    pub ms: u64,
}

/// One settled call. Written once, never changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The call's id, unique for ever.
    pub request_id: String,
    /// The key that paid.
    pub key_id: String,
    /// The account behind the key.
    pub account_id: String,
    /// When it was admitted.
    pub started: Micros,
    /// When it was settled.
    pub ended: Micros,
    /// How long until the first byte of the answer, in microseconds.
    pub first_byte_us: Option<i64>,
    /// The format the caller spoke.
    pub dialect: String,
    /// The model asked for.
    pub model: String,
    /// The lane that answered; empty when none did.
    pub lane: String,
    /// How often a lane was tried.
    pub attempts: u32,
    /// The tries that failed, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Try>,
    /// Whether it was streamed.
    pub stream: bool,
    /// The HTTP status the caller saw.
    pub status: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// Who ended it.
    #[serde(default)]
    pub ended_by: EndedBy,
    /// What was used.
    pub usage: Usage,
    /// Whether the counts are ours and not the provider's.
    pub estimated: bool,
    /// What the key pays.
    pub cost: Money,
    /// What the operator bears: the provider's cost beyond what the key pays.
    pub borne: Money,
    /// The price list it was computed with.
    pub price_version: String,
    /// The service tier that was billed; empty for the usual one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub service: String,
    /// What was charged for what: the parts of the cost, before what the operator bears of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charges: Vec<Charge>,
    /// What the translation could not carry.
    pub losses: Vec<String>,
}
