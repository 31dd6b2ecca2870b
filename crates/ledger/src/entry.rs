//! The record of one call with its usage and cost: the row of the ledger.

use crate::CallTags;
use canon::{Charge, Micros, Money, SharedText, Usage};
use serde::{Deserialize, Serialize};

use crate::HoldRecord;

/// The end of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// The reply was delivered completely.
    Done,
    /// The caller disconnected before the end.
    CallerLeft,
    /// The provider's reply ended too early.
    BrokeOff,
    /// The call was refused, or failed before any output.
    #[default]
    Failed,
    /// The gateway died during the call, which was settled from the journal.
    Recovered,
}

impl CallOutcome {
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

    /// Returns the outcome with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.word() == word)
    }

    /// Returns the party that usually causes this outcome.
    pub const fn usual_end(self) -> EndedBy {
        match self {
            Self::Done | Self::BrokeOff | Self::Failed => EndedBy::Provider,
            Self::CallerLeft => EndedBy::Caller,
            Self::Recovered => EndedBy::Operator,
        }
    }
}

/// The party that ended a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// The provider completed the reply or failed.
    #[default]
    Provider,
    /// The caller disconnected or sent an invalid request.
    Caller,
    /// The gateway, at a limit of the request or of the configuration.
    Limit,
    /// The gateway, because the money was used up.
    Cap,
    /// The gateway, because of a timeout.
    Deadline,
    /// The operator: the key was revoked, or the gateway stopped or died.
    Operator,
}

impl EndedBy {
    /// Every party.
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

    /// Returns the party with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ended| ended.word() == word)
    }
}

/// Degree to which a settlement knows its call. A higher one corrects an earlier one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum SettlementKnowledge {
    /// The last heartbeat of a node that is taken for dead, read by another node.
    Reported,
    /// The node's own journal, read after its death.
    Journal,
    /// The process that ran the call saw its end.
    #[default]
    Settled,
}

impl SettlementKnowledge {
    /// Every degree, in ascending order.
    pub const ALL: [Self; 3] = [Self::Reported, Self::Journal, Self::Settled];

    /// The word in records and exports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::Journal => "journal",
            Self::Settled => "settled",
        }
    }

    /// The number in the database.
    pub const fn rank(self) -> i64 {
        match self {
            Self::Reported => 0,
            Self::Journal => 1,
            Self::Settled => 2,
        }
    }

    /// Returns the degree with that number.
    pub fn by_rank(rank: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|knowledge| knowledge.rank() == rank)
    }

    /// Returns true if no other settlement can know more.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Settled)
    }
}

/// Reason the charge of a call differs from the counts that its provider told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChargeReason {
    /// The provider told no counts, so the gateway counted.
    NotTold,
    /// The provider told counts that no call can have, so the gateway counted.
    Impossible,
    /// The provider told some counts, and the gateway added the others.
    Incomplete,
    /// The caller left, and the usual output of the lane in that time is charged.
    CallerLeft,
    /// A deadline of the gateway ended the call without delivery, the goodwill of the key is used up, and
    /// the same is charged.
    Deadline,
    /// The provider told a price of its own that is higher. The operator pays the difference.
    DearerBill,
    /// The counts cost more than the reservation, which is charged.
    BeyondHold,
    /// The cap had no room for all of a settlement that came late.
    BeyondCap,
    /// An answer or a part of it could not be delivered, so it is not charged.
    NotDelivered,
    /// The gateway died during the call, and the last seen progress is charged.
    GatewayDied,
}

impl ChargeReason {
    /// Every reason.
    pub const ALL: [Self; 10] = [
        Self::NotTold,
        Self::Impossible,
        Self::Incomplete,
        Self::CallerLeft,
        Self::Deadline,
        Self::DearerBill,
        Self::BeyondHold,
        Self::BeyondCap,
        Self::NotDelivered,
        Self::GatewayDied,
    ];

    /// The word in records, receipts and exports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NotTold => "not_told",
            Self::Impossible => "impossible",
            Self::Incomplete => "incomplete",
            Self::CallerLeft => "caller_left",
            Self::Deadline => "deadline",
            Self::DearerBill => "dearer_bill",
            Self::BeyondHold => "beyond_hold",
            Self::BeyondCap => "beyond_cap",
            Self::NotDelivered => "not_delivered",
            Self::GatewayDied => "gateway_died",
        }
    }
}

/// An attempt at a lane that did not lead to a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// The lane.
    pub lane: String,
    /// The reason, as one word.
    pub outcome: String,
    /// HTTP status of the lane, if it answered.
    pub status: Option<u16>,
    /// Duration in milliseconds.
    pub ms: u64,
}

/// Longest stored message of an error, in bytes.
const MAX_MESSAGE_BYTES: usize = 500;

/// The error that ended a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct CallError {
    /// Code of the error, or the word of its kind.
    pub code: String,
    /// Field of the request that is at fault; empty if none is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// The message, without what it repeats of the request.
    pub message: String,
}

impl CallError {
    /// Creates an error. A long message is cut.
    pub fn new(code: &str, field: &str, message: &str) -> Self {
        let [code, field, message] = [code, field, message].map(|text| {
            let end = text.floor_char_boundary(MAX_MESSAGE_BYTES);
            match text.split_at_checked(end) {
                Some((head, rest)) if !rest.is_empty() => format!("{head}…"),
                Some(_) | None => text.to_owned(),
            }
        });
        Self { code, field, message }
    }
}

/// One settled call. A posting is written once and never changed; a settlement that knows more is
/// another posting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// Id of the call, globally unique.
    pub request_id: SharedText,
    /// The key that paid.
    pub key_id: SharedText,
    /// The account behind the key.
    pub account_id: SharedText,
    /// Time of admission.
    pub started: Micros,
    /// Time of settlement.
    pub ended: Micros,
    /// Microseconds from admission to the first byte of the reply.
    pub first_byte_us: Option<Micros>,
    /// Wire format of the caller.
    pub dialect: SharedText,
    /// The requested model.
    pub model: SharedText,
    /// The lane that answered; empty if none did.
    pub lane: SharedText,
    /// Number of attempts at lanes.
    pub attempts: u32,
    /// Failed attempts, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedAttempt>,
    /// True if the reply was streamed.
    pub stream: bool,
    /// HTTP status the caller received.
    pub status: u16,
    /// The end of the call.
    pub outcome: CallOutcome,
    /// The party that ended it.
    #[serde(default)]
    pub ended_by: EndedBy,
    /// Counted usage.
    pub usage: Usage,
    /// True if the gateway estimated the usage because the provider did not report it. Of a call that
    /// is not charged, the absorbed amount is estimated then.
    pub estimated: bool,
    /// Amount the key pays.
    pub cost: Money,
    /// Amount of the hold; `None` in records from before it was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Money>,
    /// Amount the operator absorbs: the provider's cost beyond what the key pays.
    #[serde(rename = "borne")]
    pub absorbed: Money,
    /// Version of the price list.
    pub price_version: SharedText,
    /// Billed service tier; empty for the default one.
    #[serde(default, skip_serializing_if = "SharedText::is_empty")]
    pub service: SharedText,
    /// Parts of the cost by price dimension, including the absorbed amount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charges: Vec<Charge>,
    /// Losses of the translation between wire formats.
    pub losses: Vec<String>,
    /// Counts that the provider told, if `usage` has others. See [`LedgerEntry::told_usage`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Box<Usage>>,
    /// Reasons for which the charge differs from what the provider told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<ChargeReason>,
    /// Degree to which this settlement knows the call.
    #[serde(default, skip_serializing_if = "SettlementKnowledge::is_final")]
    pub knowledge: SettlementKnowledge,
    /// Session that the caller named; empty without one.
    #[serde(default, skip_serializing_if = "SharedText::is_empty")]
    pub session: SharedText,
    /// End user that the caller named; empty without one.
    #[serde(default, skip_serializing_if = "SharedText::is_empty")]
    pub end_user: SharedText,
    /// Tags that the caller named.
    #[serde(default, skip_serializing_if = "CallTags::is_empty")]
    pub tags: CallTags,
    /// The error that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<CallError>>,
}

impl LedgerEntry {
    /// Returns the counts that the provider told; `None` if it told none.
    pub fn told_usage(&self) -> Option<Usage> {
        // Usage that is not estimated is the provider's own.
        let own = (!self.estimated && self.usage != Usage::default()).then_some(self.usage);
        self.told.as_deref().copied().or(own)
    }

    /// Takes those texts from the hold that the entry does not have.
    pub fn complete(&mut self, held: HoldRecord) {
        let HoldRecord {
            request_id,
            key_id,
            account_id,
            dialect,
            model,
            price_version,
            session,
            end_user,
            tags,
            ..
        } = held;
        for (own, of_hold) in [
            (&mut self.request_id, request_id),
            (&mut self.key_id, key_id),
            (&mut self.account_id, account_id),
            (&mut self.dialect, dialect),
            (&mut self.model, model),
            (&mut self.price_version, price_version),
            (&mut self.session, session),
            (&mut self.end_user, end_user),
        ] {
            if own.is_empty() {
                *own = of_hold;
            }
        }
        if self.tags.is_empty() {
            self.tags = tags;
        }
    }

    /// Adds a reason, once.
    pub fn explain(&mut self, reason: ChargeReason) {
        if !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }
}
