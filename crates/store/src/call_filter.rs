//! Conditions on calls, which lists, exports and reports of usage share.

use std::fmt;
use std::ops::Range;

use canon::{Micros, Money};
use ledger::{CallOutcome, LedgerEntry};

use crate::call_writes::OwnerKind;
use crate::db::clean;
use crate::usage_query::UsageFilter;

/// Conditions on calls; `None` is no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallFilter {
    /// Of this key.
    pub key_id: Option<String>,
    /// Of this account.
    pub account_id: Option<String>,
    /// For this model.
    pub model: Option<String>,
    /// Answered by this lane, or by one of this provider if the text has no slash.
    pub lane: Option<String>,
    /// With this end.
    pub status: Option<StatusFilter>,
    /// In this format.
    pub format: Option<String>,
    /// Of this session.
    pub session: Option<String>,
    /// For this end user.
    pub end_user: Option<String>,
    /// With this tag: `name` or `name=value`.
    pub tag: Option<String>,
    /// Ended by an error with this code.
    pub error: Option<String>,
    /// With this cost or a higher one.
    pub min_cost: Option<Money>,
    /// That took this long or longer.
    pub min_took: Option<Micros>,
}

/// Condition on the end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusFilter {
    /// With this status.
    Is(u16),
    /// With a status of this hundred.
    Class(u16),
    /// Answered to the end.
    Done,
    /// Not answered to the end, for any reason.
    Failed,
}

impl StatusFilter {
    /// Reads a condition as an address has it: `done`, `failed`, `4xx` or `404`.
    pub fn by_word(word: &str) -> Option<Self> {
        let class = |class: &str| class.parse().ok().filter(|class| (1..=5).contains(class));
        match (word, word.strip_suffix("xx")) {
            ("done", _) => Some(Self::Done),
            ("failed", _) => Some(Self::Failed),
            (_, Some(digit)) => class(digit).map(Self::Class),
            (status, None) => status.parse().ok().map(Self::Is),
        }
    }

    fn matches(self, call: &LedgerEntry) -> bool {
        match self {
            Self::Is(status) => call.status == status,
            Self::Class(class) => call.status / 100 == class,
            Self::Done => call.outcome == CallOutcome::Done,
            Self::Failed => call.outcome != CallOutcome::Done,
        }
    }

    /// Returns the statuses of all calls that match, and of no others. The outcome of a call has none.
    fn statuses(self) -> Option<Range<u16>> {
        match self {
            Self::Is(status) => Some(status..status.saturating_add(1)),
            Self::Class(class) => {
                let first = class.saturating_mul(100);
                Some(first..first.saturating_add(100))
            }
            Self::Done | Self::Failed => None,
        }
    }
}

/// Writes the condition as an address has it.
impl fmt::Display for StatusFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(status) => write!(f, "{status}"),
            Self::Class(class) => write!(f, "{class}xx"),
            Self::Done => f.write_str("done"),
            Self::Failed => f.write_str("failed"),
        }
    }
}

impl CallFilter {
    /// Returns the same filter with texts as they are stored.
    pub(crate) fn cleaned(&self) -> Self {
        let text = |text: &Option<String>| text.as_deref().map(|text| clean(text).into_owned());
        Self {
            key_id: text(&self.key_id),
            account_id: text(&self.account_id),
            model: text(&self.model),
            lane: text(&self.lane),
            status: self.status,
            format: text(&self.format),
            session: text(&self.session),
            end_user: text(&self.end_user),
            tag: text(&self.tag),
            error: text(&self.error),
            min_cost: self.min_cost,
            min_took: self.min_took,
        }
    }

    /// Returns the owners that it names, the one with the fewest calls first.
    pub(crate) fn owners(&self) -> impl Iterator<Item = (OwnerKind, &str)> {
        let owners = [
            (OwnerKind::Key, &self.key_id),
            (OwnerKind::Account, &self.account_id),
            (OwnerKind::Model, &self.model),
        ];
        owners.into_iter().filter_map(|(kind, owner)| Some((kind, owner.as_deref()?)))
    }

    /// Returns true if the filter has a condition that a correction of a call may change.
    pub(crate) fn has_later_conditions(&self) -> bool {
        self.lane.is_some()
            || self.status.is_some()
            || self.error.is_some()
            || self.min_cost.is_some()
            || self.min_took.is_some()
    }

    /// Returns true if the corrected call meets the conditions that no index has.
    pub(crate) fn matches_corrected(&self, call: &LedgerEntry) -> bool {
        let is_lane = |lane: &String| match lane.contains('/') {
            true => call.lane.as_ref() == lane.as_str(),
            false => call.lane.split_once('/').is_some_and(|(provider, _)| provider == lane),
        };
        let has_code = |code: &String| call.error.as_ref().is_some_and(|error| error.code == *code);
        self.lane.as_ref().is_none_or(is_lane)
            && self.status.is_none_or(|status| status.matches(call))
            && self.format.as_ref().is_none_or(|format| call.dialect.as_ref() == format.as_str())
            && self.session.as_ref().is_none_or(|session| call.session.as_ref() == session.as_str())
            && self.end_user.as_ref().is_none_or(|user| call.end_user.as_ref() == user.as_str())
            && self.tag.as_ref().is_none_or(|tag| call.tags.has(tag))
            && self.error.as_ref().is_none_or(has_code)
            && self.min_cost.is_none_or(|least| call.cost >= least)
            && self.min_took.is_none_or(|least| call.ended.saturating_sub(call.started) >= least)
    }

    /// Returns the same conditions on the sums of calls; `None` if the sums do not have one of them.
    pub fn on_sums(&self) -> Option<UsageFilter> {
        let Self { key_id, account_id, model, lane, status, format, session, error, .. } = self;
        let Self { end_user, tag, min_cost, min_took, .. } = self;
        let texts = [format, session, end_user, tag, error].into_iter();
        if texts.flatten().next().is_some() || min_cost.is_some() || min_took.is_some() {
            return None;
        }
        let statuses = match status {
            Some(status) => Some(status.statuses()?),
            None => None,
        };
        Some(UsageFilter {
            account_id: account_id.clone(),
            key_id: key_id.clone(),
            model: model.clone(),
            lane: lane.clone(),
            statuses,
        })
    }
}
