//! Periodic budgets: a second cap that begins anew every day, week or month, in UTC.
//!
//! A budget is a pot per period. A call is charged in the period in which it was admitted, however
//! long it runs: its ticket keeps a share of that period's pot. A pot is this node's own: what other nodes
//! spent of the same period is learnt from the bank.

use canon::Money;
use parking_lot::Mutex;
use std::sync::Arc;

use crate::{Micros, Standing};

const DAY: i64 = 86_400_000_000;
/// 1970 began on a Thursday; the first Monday of a week lies this many days before.
const TO_MONDAY: i64 = 3;

/// How often a budget begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Period {
    /// At midnight.
    Day,
    /// On Monday at midnight.
    Week,
    /// On the first of the month at midnight.
    Month,
}

impl Period {
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

    /// The period with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|period| period.word() == word)
    }

    /// The first day of the period with that time in it, and the first of the next, both in days
    /// since 1970.
    pub fn days(self, at: Micros) -> (i64, i64) {
        let day = day_of(at);
        match self {
            Self::Day => (day, day + 1),
            Self::Week => {
                let monday = day - (day + TO_MONDAY).rem_euclid(7);
                (monday, monday + 7)
            }
            Self::Month => {
                let (year, month) = month_of(day);
                let next = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
                (first_of(year, month), first_of(next.0, next.1))
            }
        }
    }

    /// When the next period begins.
    pub fn end(self, at: Micros) -> Micros {
        self.days(at).1.saturating_mul(DAY)
    }
}

/// The day of a time, in days since 1970.
pub const fn day_of(at: Micros) -> i64 {
    at.div_euclid(DAY)
}

/// The year and month of a day, by counting in eras of 400 years that begin in March.
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

/// The day on which a month begins.
const fn first_of(year: i64, month: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let from_march = (month + 9) % 12;
    let of_year = (153 * from_march + 2) / 5;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The money of one key for one period.
#[derive(Debug)]
struct Pot(Mutex<Standing>);

impl Pot {
    fn new(most: Money, spent: Money) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Standing { cap: Some(most), spent, held: Money::ZERO })))
    }

    /// Sets aside all of `full`, or what is left if that is at least `least`; else tells what is.
    fn take(&self, full: Money, least: Money) -> Result<Money, Money> {
        let mut standing = self.0.lock();
        let left = standing.remaining().unwrap_or(full);
        let granted = if left >= full { full } else { left };
        if granted < full && (granted < least || granted <= Money::ZERO) {
            return Err(left);
        }
        standing.held = standing.held.saturating_add(granted);
        Ok(granted)
    }

    /// Gives back what was set aside, of which so much was spent.
    fn give_back(&self, granted: Money, spent: Money) {
        let mut standing = self.0.lock();
        standing.held = standing.held.saturating_sub(granted);
        standing.spent = standing.spent.saturating_add(spent);
    }
}

/// What is set aside of a pot for one call; given back when dropped.
#[derive(Debug)]
pub struct Share {
    pot: Arc<Pot>,
    amount: Money,
}

impl Share {
    /// What is set aside.
    pub const fn amount(&self) -> Money {
        self.amount
    }

    /// No more than that is needed after all.
    pub(crate) fn shrink(&mut self, to: Money) {
        let rest = self.amount.saturating_sub(to).max(Money::ZERO);
        self.pot.give_back(rest, Money::ZERO);
        self.amount = self.amount.saturating_sub(rest);
    }

    /// So much of it was spent.
    pub(crate) fn settle(mut self, cost: Money) {
        self.pot.give_back(self.amount, cost);
        self.amount = Money::ZERO;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.pot.give_back(self.amount, Money::ZERO);
    }
}

/// Why a budget set nothing aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverBudget {
    /// What is left of this period's money.
    pub left: Money,
    /// When the next period begins.
    pub resets: Micros,
}

/// The money one key may spend in a period.
#[derive(Debug)]
pub struct Budget {
    period: Period,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    most: Money,
    first_day: i64,
    next_day: i64,
    pot: Arc<Pot>,
}

/// How a budget stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetStanding {
    /// The money of this period.
    pub money: Standing,
    /// How often it begins anew.
    pub period: Period,
    /// When it does so next.
    pub resets: Micros,
}

impl Budget {
    /// A budget of which that much was spent in the period of that time.
    pub fn new(most: Money, period: Period, spent: Money, at: Micros) -> Arc<Self> {
        let (first_day, next_day) = period.days(at);
        let pot = Pot::new(most, spent);
        Arc::new(Self { period, now: Mutex::new(Now { most, first_day, next_day, pot }) })
    }

    /// How often it begins anew.
    pub const fn period(&self) -> Period {
        self.period
    }

    /// Changes what may be spent. Running calls keep what was set aside for them.
    pub fn set_most(&self, most: Money) {
        let mut now = self.now.lock();
        now.most = most;
        now.pot.0.lock().cap = Some(most);
    }

    /// The bank says that at least so much was spent in the period that began on that day.
    pub fn learn(&self, first_day: i64, spent: Money) {
        let now = self.now.lock();
        if now.first_day == first_day {
            let mut standing = now.pot.0.lock();
            standing.spent = standing.spent.max(spent);
        }
    }

    /// The pot of the period with that time in it. A clock that goes back does not bring back a
    /// period that is over.
    fn pot(&self, at: Micros) -> Arc<Pot> {
        let mut now = self.now.lock();
        if day_of(at) >= now.next_day {
            (now.first_day, now.next_day) = self.period.days(at);
            now.pot = Pot::new(now.most, Money::ZERO);
        }
        Arc::clone(&now.pot)
    }

    /// Sets aside all of `full`, or what is left if that is at least `least`, in the period with
    /// that time in it.
    pub fn take(&self, at: Micros, full: Money, least: Money) -> Result<Share, OverBudget> {
        let pot = self.pot(at);
        match pot.take(full, least) {
            Ok(amount) => Ok(Share { pot, amount }),
            Err(left) => Err(OverBudget { left, resets: self.period.end(at) }),
        }
    }

    /// How it stands at that time.
    pub fn standing(&self, at: Micros) -> BudgetStanding {
        let money = *self.pot(at).0.lock();
        let resets = self.now.lock().next_day.saturating_mul(DAY);
        BudgetStanding { money, period: self.period, resets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Midnight of a day of the calendar.
    fn day(year: i64, month: i64, day: i64) -> Micros {
        (first_of(year, month) + day - 1) * DAY
    }

    #[test]
    fn days_are_those_of_the_calendar() {
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
    fn periods_begin_at_midnight_on_mondays_and_on_the_first() {
        let noon = day(2026, 11, 15) + DAY / 2;
        assert_eq!(Period::Day.end(noon), day(2026, 11, 16));
        // The 15th of November 2026 is a Sunday.
        assert_eq!(Period::Week.days(noon), (day_of(day(2026, 11, 9)), day_of(day(2026, 11, 16))));
        assert_eq!(Period::Month.end(noon), day(2026, 12, 1));
        assert_eq!(Period::Month.end(day(2026, 12, 31)), day(2027, 1, 1));
        assert_eq!(
            Period::Day.end(day(2026, 11, 16)),
            day(2026, 11, 17),
            "midnight is the new day"
        );
    }

    #[test]
    fn a_new_period_has_a_new_pot_and_an_old_one_does_not_come_back() {
        let begin = day(2026, 11, 15);
        let budget = Budget::new(Money::nanos(10), Period::Day, Money::nanos(7), begin);
        let first = budget.pot(begin + DAY - 1);
        assert_eq!(first.0.lock().remaining(), Some(Money::nanos(3)));
        budget.learn(day_of(begin), Money::nanos(9));
        budget.learn(day_of(begin), Money::nanos(8));
        assert_eq!(first.0.lock().spent, Money::nanos(9), "what is known to be spent stays so");
        let second = budget.pot(begin + DAY);
        assert_eq!(second.0.lock().remaining(), Some(Money::nanos(10)));
        assert!(Arc::ptr_eq(&second, &budget.pot(begin)), "the clock went back");
        budget.learn(day_of(begin), Money::nanos(10));
        assert_eq!(second.0.lock().spent, Money::ZERO, "that was another day's");
        budget.set_most(Money::nanos(4));
        let standing = budget.standing(begin + DAY);
        assert_eq!(standing.money.remaining(), Some(Money::nanos(4)));
        assert_eq!(standing.resets, begin + 2 * DAY);
    }
}
