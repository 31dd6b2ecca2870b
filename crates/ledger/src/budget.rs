//! Periodic budgets: a second cap that resets every day, week or month, in UTC.
//!
//! A call is charged to the period of its admission, however long it runs. A lease of a key's money
//! counts in full against the current period, so budgets hold over all nodes: a lease from before
//! midnight leaves that much less of the new day.

use canon::{Micros, Money};

use crate::SpendStatus;

/// Microseconds of a day.
const DAY: Micros = Micros::from_days(1);
/// 1970-01-01 was a Thursday, three days after a Monday.
const DAYS_FROM_MONDAY_TO_EPOCH: i64 = 3;
/// Time after its end for which the spending of a period still counts. A node whose clock is behind
/// that of the store by less than this charges calls to the period before.
const CLOCK_MARGIN: Micros = Micros::from_secs(5);
/// A forecast needs one part of so many of its period.
const FORECAST_PARTS: i64 = 4;

/// The reset interval of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BudgetPeriod {
    /// Resets at midnight.
    Day,
    /// Resets on Monday at midnight.
    Week,
    /// Resets on the first of the month at midnight.
    Month,
}

impl BudgetPeriod {
    /// Every period.
    pub const ALL: [Self; 3] = [Self::Day, Self::Week, Self::Month];

    /// The word in records and on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    /// Returns the period with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|period| period.word() == word)
    }

    /// Returns the first day of the period that contains that time, and the first day of the next
    /// period, both in days since 1970.
    pub fn days(self, at: Micros) -> (i64, i64) {
        let day = day_of(at);
        match self {
            Self::Day => (day, day + 1),
            Self::Week => {
                let monday = day - (day + DAYS_FROM_MONDAY_TO_EPOCH).rem_euclid(7);
                (monday, monday + 7)
            }
            Self::Month => {
                let (year, month) = month_of(day);
                let next = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
                (first_of(year, month), first_of(next.0, next.1))
            }
        }
    }

    /// Returns the begin of the spending that counts at that time: that of the current period, and
    /// shortly after its begin that of the one before.
    pub fn counted_since(self, at: Micros) -> Micros {
        DAY * self.days(at - CLOCK_MARGIN).0
    }

    /// Returns the begin and the end of the period that contains that time.
    pub fn bounds(self, at: Micros) -> (Micros, Micros) {
        let (first, next) = self.days(at);
        (DAY * first, DAY * next)
    }

    /// Returns the begin of the next period.
    pub fn end(self, at: Micros) -> Micros {
        DAY * self.days(at).1
    }

    /// Returns the spending of a whole period if it goes on as from its begin until `now`; `None` while less than
    /// a quarter of the period has passed, in which a few calls would decide.
    pub fn forecast(self, begun: Micros, now: Micros, spent: Money) -> Option<Money> {
        let length = (self.end(begun) - begun).get();
        let passed = (now - begun).get().min(length);
        if passed < length / FORECAST_PARTS {
            return None;
        }
        let whole = i128::from(spent.as_nanos()) * i128::from(length) / i128::from(passed);
        Some(Money::from_nanos(i64::try_from(whole).unwrap_or(i64::MAX)))
    }
}

/// Spending limit of every period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetTerms {
    /// The limit.
    pub limit: Money,
    /// The reset interval.
    pub period: BudgetPeriod,
}

/// Returns the day of a time, in days since 1970.
pub const fn day_of(at: Micros) -> i64 {
    at.get().div_euclid(DAY.get())
}

/// Returns the year and month of a day, by the algorithm `civil_from_days` of
/// <https://howardhinnant.github.io/date_algorithms.html>.
const fn month_of(day: i64) -> (i64, i64) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year + era * 400 + if month <= 2 { 1 } else { 0 }, month)
}

/// Returns the first day of a month, by the algorithm `days_from_civil` of the same page.
const fn first_of(year: i64, month: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let from_march = (month + 9) % 12;
    let of_year = (153 * from_march + 2) / 5;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Spending of a budget in the current period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetStatus {
    /// Limit, spending and holds of this period.
    pub money: SpendStatus,
    /// The reset interval.
    pub period: BudgetPeriod,
    /// The next reset.
    pub resets: Micros,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns midnight of a day.
    fn day(year: i64, month: i64, day: i64) -> Micros {
        (first_of(year, month) + day - 1) * DAY
    }

    #[test]
    fn days_match_the_calendar() {
        assert_eq!(first_of(1970, 1), 0);
        assert_eq!(first_of(2000, 3), 11_017);
        assert_eq!(first_of(2026, 11), 20_758);
        let mut months = (1968..2405).flat_map(|year| (1..=12).map(move |month| (year, month)));
        let (mut year, mut month) = months.next().unwrap();
        for next in months {
            let days = first_of(next.0, next.1) - first_of(year, month);
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let wanted = match month {
                2 => 28 + i64::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            assert_eq!(days, wanted, "{year}-{month}");
            for day in first_of(year, month)..first_of(next.0, next.1) {
                assert_eq!(month_of(day), (year, month));
            }
            (year, month) = next;
        }
    }

    #[test]
    fn periods_reset_at_midnight_on_mondays_and_on_the_first() {
        let noon = day(2026, 11, 15) + DAY / 2;
        assert_eq!(BudgetPeriod::Day.end(noon), day(2026, 11, 16));
        // The 15th of November 2026 is a Sunday.
        assert_eq!(
            BudgetPeriod::Week.days(noon),
            (day_of(day(2026, 11, 9)), day_of(day(2026, 11, 16)))
        );
        assert_eq!(BudgetPeriod::Month.end(noon), day(2026, 12, 1));
        assert_eq!(BudgetPeriod::Month.end(day(2026, 12, 31)), day(2027, 1, 1));
        assert_eq!(
            BudgetPeriod::Day.end(day(2026, 11, 16)),
            day(2026, 11, 17),
            "midnight is the new day"
        );
    }

    #[test]
    fn a_forecast_carries_the_spending_forward_after_a_quarter() {
        let begun = day(2026, 11, 1);
        let forecast = |now, spent| {
            let spent = Money::from_nanos(spent);
            BudgetPeriod::Month.forecast(begun, now, spent).map(Money::as_nanos)
        };
        let quarter = begun + DAY * 30 / 4;
        assert_eq!(forecast(begun, 10), None);
        assert_eq!(forecast(quarter - Micros::new(1), 10), None);
        assert_eq!(forecast(quarter, 10), Some(40));
        assert_eq!(forecast(begun + DAY * 20, 10), Some(15));
        assert_eq!(forecast(begun + DAY * 40, 10), Some(10), "the period is over");
        assert_eq!(forecast(quarter, i64::MAX), Some(i64::MAX));
    }

    #[test]
    fn a_period_counts_until_all_nodes_have_left_it() {
        let midnight = day(2026, 11, 16);
        let since = |at| BudgetPeriod::Day.counted_since(at);
        assert_eq!(since(midnight - Micros::new(1)), day(2026, 11, 15));
        assert_eq!(since(midnight + CLOCK_MARGIN - Micros::new(1)), day(2026, 11, 15));
        assert_eq!(since(midnight + CLOCK_MARGIN), midnight);
    }
}
