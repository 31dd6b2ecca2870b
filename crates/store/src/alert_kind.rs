//! Kinds of alerts.

use ledger::BudgetPeriod;

use crate::limit_standings::LimitKind;

const KEY_EXPIRY: &str = "key_expiry";

/// Subject of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertKind {
    /// Spending that has passed a level of a limit.
    Spending(LimitKind),
    /// Spending that will pass the budget of a period if it goes on.
    Forecast(BudgetPeriod),
    /// A key that expires soon.
    KeyExpiry,
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
        }
    }

    /// Returns the kind with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        if word == KEY_EXPIRY {
            return Some(Self::KeyExpiry);
        }
        let mut forecasts = BudgetPeriod::ALL.into_iter().map(Self::Forecast);
        let forecast = forecasts.find(|kind| kind.word() == word);
        forecast.or_else(|| LimitKind::by_word(word).map(Self::Spending))
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
        let all: Vec<AlertKind> = limits.chain(others).chain([AlertKind::KeyExpiry]).collect();
        for kind in all {
            assert_eq!(AlertKind::by_word(kind.word()), Some(kind));
        }
        assert_eq!(AlertKind::by_word("forecast_cap"), None);
    }
}
