//! People, teams and keys of another gateway, in words that all of them share.

use canon::{Micros, Money};
use ledger::BudgetPeriod;
use std::fmt;
use store::{AccountRole, RateLimits, TeamRole};

/// Everything that was read, and notes about what has no counterpart here.
#[derive(Debug, Default)]
pub(super) struct SourceData {
    pub(super) people: Vec<SourcePerson>,
    pub(super) teams: Vec<SourceTeam>,
    pub(super) keys: Vec<SourceKey>,
    pub(super) notes: Vec<String>,
}

/// Spending limit and spending to date of a key, a person or a team.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceTerms {
    /// The limit; `None` is no limit.
    pub(super) limit: Option<Money>,
    /// The period after which the spending begins at zero; `None` for a limit over all time.
    pub(super) period: Option<BudgetPeriod>,
    /// Spending to date.
    pub(super) spent: Money,
    /// True if the spending is of the current period.
    pub(super) is_current: bool,
}

/// A person.
#[derive(Clone, Debug)]
pub(super) struct SourcePerson {
    pub(super) id: String,
    /// Texts that may serve as a name, the best one first.
    pub(super) names: Vec<String>,
    pub(super) email: Option<String>,
    pub(super) role: AccountRole,
    pub(super) disabled: bool,
    pub(super) terms: SourceTerms,
    pub(super) models: Vec<String>,
    pub(super) limits: RateLimits,
}

/// A team.
#[derive(Clone, Debug)]
pub(super) struct SourceTeam {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) disabled: bool,
    pub(super) terms: SourceTerms,
    pub(super) models: Vec<String>,
    pub(super) limits: RateLimits,
    /// Ids and roles of the members.
    pub(super) members: Vec<(String, TeamRole)>,
}

/// The owner of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SourceOwner {
    /// The gateway's owner, for a key of nobody.
    Gateway,
    Person(String),
    Team(String),
}

/// The secret of a key, as far as it is known.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum SourceSecret {
    /// The SHA-256 of its text.
    Sha256([u8; 32]),
    /// Its text.
    Text(String),
}

impl fmt::Debug for SourceSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SourceSecret")
    }
}

/// A key.
#[derive(Clone, Debug)]
pub(super) struct SourceKey {
    pub(super) name: String,
    pub(super) owner: SourceOwner,
    pub(super) created_by: Option<String>,
    pub(super) terms: SourceTerms,
    pub(super) models: Vec<String>,
    pub(super) limits: RateLimits,
    pub(super) ips: Vec<String>,
    pub(super) expires: Option<Micros>,
    pub(super) blocked: bool,
    pub(super) secret: SourceSecret,
    /// SHA-256 of the text before a rotation, and its end.
    pub(super) old_secret: Option<([u8; 32], Micros)>,
}
