//! Periodic budgets: a second cap that resets every day, week or month, in UTC.
//!
//! A call is charged to the period of its admission, however long it runs: its ticket keeps a share
//! of that period's funds. Each node has funds of its own; the spending of other nodes in the same
//! period comes from the store.

use canon::{Micros, Money};
use parking_lot::Mutex;
use std::sync::Arc;

use crate::SpendStatus;

/// Microseconds of a day.
const DAY: Micros = Micros::from_days(1);
/// 1970-01-01 was a Thursday, three days after a Monday.
const DAYS_FROM_MONDAY_TO_EPOCH: i64 = 3;

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

    /// Returns the begin of the next period.
    pub fn end(self, at: Micros) -> Micros {
        DAY * self.days(at).1
    }
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

/// The money of one budget for one period.
#[derive(Debug)]
struct PeriodFunds(Mutex<SpendStatus>);

impl PeriodFunds {
    fn new(most: Money, spent: Money) -> Arc<Self> {
        Arc::new(Self(Mutex::new(SpendStatus { cap: Some(most), spent, held: Money::ZERO })))
    }

    /// Reserves all of `full`, or what is left if that is at least `least`. The error is the amount
    /// that is left.
    fn reserve(&self, full: Money, least: Money) -> Result<Money, Money> {
        let mut standing = self.0.lock();
        let left = standing.remaining().unwrap_or(full);
        let granted = if left >= full { full } else { left };
        if granted < full && (granted < least || granted <= Money::ZERO) {
            return Err(left);
        }
        standing.held = standing.held.saturating_add(granted);
        Ok(granted)
    }

    /// Releases a reservation of which `spent` was spent.
    fn give_back(&self, granted: Money, spent: Money) {
        let mut standing = self.0.lock();
        standing.held = standing.held.saturating_sub(granted);
        standing.spent = standing.spent.saturating_add(spent);
    }
}

/// The reservation of one call from a budget, released on drop.
#[derive(Debug)]
pub struct BudgetShare {
    funds: Arc<PeriodFunds>,
    amount: Money,
}

impl BudgetShare {
    /// The reserved amount.
    pub const fn amount(&self) -> Money {
        self.amount
    }

    /// Reduces the reservation to that amount.
    pub(crate) fn shrink(&mut self, to: Money) {
        let rest = self.amount.saturating_sub(to).max(Money::ZERO);
        self.funds.give_back(rest, Money::ZERO);
        self.amount = self.amount.saturating_sub(rest);
    }

    /// Releases the reservation and books the cost.
    pub(crate) fn settle(mut self, cost: Money) {
        self.funds.give_back(self.amount, cost);
        self.amount = Money::ZERO;
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.funds.give_back(self.amount, Money::ZERO);
    }
}

/// A budget does not cover a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverBudget {
    /// Money left in this period.
    pub left: Money,
    /// The begin of the next period.
    pub resets: Micros,
}

/// Money that a key or an account may spend in each period.
#[derive(Debug)]
pub struct Budget {
    period: BudgetPeriod,
    current: Mutex<CurrentPeriod>,
}

#[derive(Debug)]
struct CurrentPeriod {
    most: Money,
    first_day: i64,
    next_day: i64,
    funds: Arc<PeriodFunds>,
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

impl Budget {
    /// Creates a budget with the spending in the period that contains `at`.
    pub fn new(most: Money, period: BudgetPeriod, spent: Money, at: Micros) -> Arc<Self> {
        let (first_day, next_day) = period.days(at);
        let funds = PeriodFunds::new(most, spent);
        Arc::new(Self {
            period,
            current: Mutex::new(CurrentPeriod { most, first_day, next_day, funds }),
        })
    }

    /// The reset interval.
    pub const fn period(&self) -> BudgetPeriod {
        self.period
    }

    /// Changes the limit. Running calls keep their reservations.
    pub fn set_limit(&self, most: Money) {
        let mut current = self.current.lock();
        current.most = most;
        current.funds.0.lock().cap = Some(most);
    }

    /// Raises the spending of the period that began on that day to the amount the store reports.
    pub fn raise_spent(&self, first_day: i64, spent: Money) {
        let current = self.current.lock();
        if current.first_day == first_day {
            let mut standing = current.funds.0.lock();
            standing.spent = standing.spent.max(spent);
        }
    }

    /// Returns the funds of the period that contains that time. A clock that goes back does not
    /// bring back an earlier period.
    fn funds(&self, at: Micros) -> Arc<PeriodFunds> {
        let mut current = self.current.lock();
        if day_of(at) >= current.next_day {
            (current.first_day, current.next_day) = self.period.days(at);
            current.funds = PeriodFunds::new(current.most, Money::ZERO);
        }
        Arc::clone(&current.funds)
    }

    /// Reserves all of `full`, or what is left if that is at least `least`, in the period that
    /// contains that time.
    pub fn reserve(
        &self,
        at: Micros,
        full: Money,
        least: Money,
    ) -> Result<BudgetShare, OverBudget> {
        let funds = self.funds(at);
        match funds.reserve(full, least) {
            Ok(amount) => Ok(BudgetShare { funds, amount }),
            Err(left) => Err(OverBudget { left, resets: self.period.end(at) }),
        }
    }

    /// Returns the spending of the period that contains that time.
    pub fn status(&self, at: Micros) -> BudgetStatus {
        let money = *self.funds(at).0.lock();
        let resets = DAY * self.current.lock().next_day;
        BudgetStatus { money, period: self.period, resets }
    }
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
    fn a_new_period_has_new_funds_and_an_old_one_does_not_come_back() {
        let begin = day(2026, 11, 15);
        let budget =
            Budget::new(Money::from_nanos(10), BudgetPeriod::Day, Money::from_nanos(7), begin);
        let first = budget.funds(begin + DAY - Micros::new(1));
        assert_eq!(first.0.lock().remaining(), Some(Money::from_nanos(3)));
        budget.raise_spent(day_of(begin), Money::from_nanos(9));
        budget.raise_spent(day_of(begin), Money::from_nanos(8));
        assert_eq!(first.0.lock().spent, Money::from_nanos(9), "reported spending never decreases");
        let second = budget.funds(begin + DAY);
        assert_eq!(second.0.lock().remaining(), Some(Money::from_nanos(10)));
        assert!(Arc::ptr_eq(&second, &budget.funds(begin)), "the clock went back");
        budget.raise_spent(day_of(begin), Money::from_nanos(10));
        assert_eq!(second.0.lock().spent, Money::ZERO, "the report is about another day");
        budget.set_limit(Money::from_nanos(4));
        let standing = budget.status(begin + DAY);
        assert_eq!(standing.money.remaining(), Some(Money::from_nanos(4)));
        assert_eq!(standing.resets, begin + 2 * DAY);
    }
}
