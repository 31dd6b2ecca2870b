//! Kinds of alerts.

use ledger::BudgetPeriod;

use crate::limit_standings::LimitKind;

const KEY_EXPIRY: &str = "key_expiry";
const STATEMENT: &str = "statement";

/// Kind of an event of the gateway, which lasts until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// A health check that is not good.
    Health,
    /// A credential that its provider refuses, or that cannot be fetched.
    Credential,
    /// A lane whose calls fail.
    Lane,
    /// Failed calls above a percent of all.
    ErrorRate,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Health, Self::Credential, Self::Lane, Self::ErrorRate];

    /// The word in the database and on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Lane => "lane",
            Self::Credential => "credential",
            Self::Health => "health",
            Self::ErrorRate => "error_rate",
        }
    }

    /// Returns the kind with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// Subject of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertKind {
    /// Spending that has passed a level of a limit.
    Spending(LimitKind),
    /// Spending that will pass the budget of a period if it goes on.
    Forecast(BudgetPeriod),
    /// A key that expires soon.
    KeyExpiry,
    /// An event of the gateway, for its administrators.
    Gateway(EventKind),
    /// The statement of a month.
    Statement,
}

impl AlertKind {
    /// The word in the database.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Spending(limit) => limit.word(),
            Self::Forecast(BudgetPeriod::Day) => "forecast_day",
            Self::Forecast(BudgetPeriod::Week) => "forecast_week",
            Self::Forecast(BudgetPeriod::Month) => "forecast_month",
            Self::KeyExpiry => KEY_EXPIRY,
            Self::Gateway(event) => event.word(),
            Self::Statement => STATEMENT,
        }
    }

    /// Returns the kind with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        let events = EventKind::ALL.into_iter().map(Self::Gateway);
        let forecasts = BudgetPeriod::ALL.into_iter().map(Self::Forecast);
        let mut named = events.chain(forecasts).chain([Self::KeyExpiry, Self::Statement]);
        let named = named.find(|kind| kind.word() == word);
        named.or_else(|| LimitKind::by_word(word).map(Self::Spending))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_its_word() {
        let budgets = BudgetPeriod::ALL.map(LimitKind::Budget);
        let limits = budgets.into_iter().chain([LimitKind::Cap]).map(AlertKind::Spending);
        let others = BudgetPeriod::ALL.into_iter().map(AlertKind::Forecast);
        let events = EventKind::ALL.into_iter().map(AlertKind::Gateway);
        let single = [AlertKind::KeyExpiry, AlertKind::Statement];
        for kind in limits.chain(others).chain(events).chain(single) {
            assert_eq!(AlertKind::by_word(kind.word()), Some(kind));
        }
        assert_eq!(AlertKind::by_word("forecast_cap"), None);
    }
}
