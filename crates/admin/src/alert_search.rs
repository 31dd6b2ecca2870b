//! The search for alerts: levels of limits, forecasts of budgets, keys that expire, events of the gateway, and
//! statements of the month before.

use canon::{Micros, Money};
use ledger::BudgetPeriod;
use store::{
    Alert, AlertDelivery, AlertKind, AlertSettings, DeliveryState, EndingKey, LimitKind,
    LimitStanding, StoreError,
};

use std::collections::BTreeMap;

use crate::Admin;
use crate::statements::StatementMonth;

/// Keys that were not used for that long are no news.
const RECENT: Micros = Micros::from_days(1);
/// Time for which the budgets of a period that is over are looked at: calls settle after they begin, and a node may
/// take the turn of one that was killed. Later, the budget may be another one.
const AFTER_PERIOD: Micros = Micros::from_secs(600);
/// Days before a key expires at which it is told, the largest first.
const EXPIRY_DAYS: [u8; 2] = [7, 1];
/// A key is told a number of days if its whole life is at least so many times longer.
const LIVES_PER_LEVEL: i64 = 2;
/// Time of a month after which the statement of the month before is sent, so that calls that ran at its end are
/// settled, and until which it is.
const STATEMENTS_FROM: Micros = Micros::from_hours(1);
const STATEMENTS_UNTIL: Micros = Micros::from_days(5);
/// Level of a forecast: the whole budget.
const WHOLE: u8 = 100;

impl Admin {
    /// Finds what accounts are to be told, and stores what they were not told yet. Returns its number.
    pub async fn find_alerts(&self) -> Result<usize, StoreError> {
        let now = self.accounts.now();
        let settings = self.store.all_alert_settings().await?;
        let usual = AlertSettings::default();
        let of = |account_id: &str| settings.get(account_id).unwrap_or(&usual);
        let mut found = Vec::new();
        let mut standings = self.store.limit_standings(now, now - RECENT).await?;
        if now - BudgetPeriod::Day.bounds(now).0 < AFTER_PERIOD {
            standings.extend(self.store.ended_standings(now, now - RECENT).await?);
        }
        for standing in standings {
            found.extend(limit_alerts(&standing, of(&standing.account_id), now));
        }
        let [widest, ..] = EXPIRY_DAYS;
        let until = now + Micros::from_days(i64::from(widest));
        for key in self.store.ending_keys(now, until).await? {
            found.extend(expiry_alert(&key, of(&key.account_id), now));
        }
        found.extend(self.statement_alerts(&settings, now).await?);
        found.extend(self.follow_events(now).await?);
        Ok(self.store.add_alerts(found).await?.len())
    }

    /// Returns the statements of the month before that are to be sent.
    async fn statement_alerts(
        &self,
        settings: &BTreeMap<String, AlertSettings>,
        now: Micros,
    ) -> Result<Vec<Alert>, StoreError> {
        let wanting: Vec<&String> =
            settings.iter().filter(|(_, one)| one.statements).map(|(id, _)| id).collect();
        let Some(month) = month_to_send(now).filter(|_| !wanting.is_empty()) else {
            return Ok(Vec::new());
        };
        let told = self.store.accounts_with_statement(month.begun()).await?;
        let missing = wanting.into_iter().filter(|id| !told.contains(*id));
        let alert = |account_id: &String| Alert {
            id: new_id(),
            account_id: account_id.clone(),
            key_id: None,
            kind: AlertKind::Statement,
            begun: month.begun(),
            amount: Money::ZERO,
            level: 0,
            spent: Money::ZERO,
            at: now,
            event: None,
            mail: due(true, now),
            webhook: due(false, now),
        };
        Ok(missing.map(alert).collect())
    }
}

/// Returns the month before, in the first days of a month.
fn month_to_send(now: Micros) -> Option<StatementMonth> {
    let begun = StatementMonth::of(now)?.begun();
    let is_time = (STATEMENTS_FROM..STATEMENTS_UNTIL).contains(&(now - begun));
    StatementMonth::of(begun - Micros::new(1)).filter(|_| is_time)
}

/// Returns what is to be told of a limit.
fn limit_alerts(standing: &LimitStanding, settings: &AlertSettings, now: Micros) -> Vec<Alert> {
    let level = passed_level(standing, &settings.levels);
    let level = level.map(|level| (AlertKind::Spending(standing.kind), level));
    let forecast = passed_soon(standing, now).filter(|_| settings.forecasts);
    let forecast = forecast.map(|period| (AlertKind::Forecast(period), WHOLE));
    let kinds = level.into_iter().chain(forecast);
    let alert = |(kind, level)| Alert {
        id: new_id(),
        account_id: standing.account_id.clone(),
        key_id: standing.key_id.clone(),
        kind,
        begun: standing.begun,
        amount: standing.amount,
        level,
        spent: standing.spent,
        at: now,
        event: None,
        mail: due(settings.mails, now),
        webhook: due(settings.webhook.is_some(), now),
    };
    kinds.map(alert).collect()
}

/// Returns what is to be told of a key that expires.
fn expiry_alert(key: &EndingKey, settings: &AlertSettings, now: Micros) -> Option<Alert> {
    let level = expiry_level(key, now).filter(|_| settings.expiries)?;
    Some(Alert {
        id: new_id(),
        account_id: key.account_id.clone(),
        key_id: Some(key.key_id.clone()),
        kind: AlertKind::KeyExpiry,
        begun: key.expires,
        amount: Money::ZERO,
        level,
        spent: Money::ZERO,
        at: now,
        event: None,
        mail: due(settings.mails, now),
        webhook: due(settings.webhook.is_some(), now),
    })
}

pub(crate) fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// A delivery that is due, if there is one.
pub(crate) fn due(is_told: bool, now: Micros) -> AlertDelivery {
    let state = is_told.then_some(DeliveryState::Pending);
    AlertDelivery { state, at: now, ..AlertDelivery::default() }
}

/// Returns the highest level that was passed, if it was not told.
fn passed_level(standing: &LimitStanding, levels: &[u8]) -> Option<u8> {
    let percent = standing.spent.percent_of(standing.amount);
    let passed = levels.iter().copied().filter(|level| i64::from(*level) <= percent).max();
    passed.filter(|level| *level > standing.told)
}

/// Returns the period of a budget that is not spent and will be at this pace, if it was not told.
fn passed_soon(standing: &LimitStanding, now: Micros) -> Option<BudgetPeriod> {
    let LimitStanding { kind, begun, amount, spent, is_forecast_told, .. } = standing;
    let period = match kind {
        LimitKind::Cap => return None,
        LimitKind::Budget(period) => *period,
    };
    let is_news = !is_forecast_told && spent < amount;
    let forecast = period.forecast(*begun, now, *spent).filter(|_| is_news)?;
    (forecast > *amount).then_some(period)
}

/// Returns the smallest number of days that is reached and that the key is old enough for, if neither it nor a
/// smaller one was told.
fn expiry_level(key: &EndingKey, now: Micros) -> Option<u8> {
    let (life, left) = (key.expires - key.created, key.expires - now);
    let is_reached = |days: &u8| {
        let time = Micros::from_days(i64::from(*days));
        left <= time && life >= time * LIVES_PER_LEVEL
    };
    let reached = EXPIRY_DAYS.into_iter().filter(is_reached).min();
    reached.filter(|days| key.told.is_none_or(|told| *days < told))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Micros = Micros::from_days(1);

    fn standing(kind: LimitKind, spent: i64, amount: i64, told: u8) -> LimitStanding {
        LimitStanding {
            account_id: "a".to_owned(),
            key_id: None,
            kind,
            begun: Micros::ZERO,
            amount: Money::from_nanos(amount),
            spent: Money::from_nanos(spent),
            told,
            is_forecast_told: false,
        }
    }

    #[test]
    fn the_highest_passed_level_is_told_once() {
        let levels = [50, 80, 100];
        let level = |spent, amount, told, levels: &[u8]| {
            passed_level(&standing(LimitKind::Cap, spent, amount, told), levels)
        };
        for (spent, told, wanted) in [
            (0, 0, None),
            (499, 0, None),
            (500, 0, Some(50)),
            (799, 50, None),
            (800, 50, Some(80)),
            (1_000, 0, Some(100)),
            (5_000, 80, Some(100)),
            (5_000, 100, None),
            (600, 80, None),
        ] {
            assert_eq!(level(spent, 1_000, told, &levels), wanted, "{spent}");
        }
        assert_eq!(level(0, 0, 0, &levels), Some(100));
        assert_eq!(level(9, 1, 0, &[]), None);
        assert_eq!(level(i64::MAX, 1, 0, &levels), Some(100));
    }

    #[test]
    fn a_forecast_is_told_once_before_the_budget_is_spent() {
        let day = LimitKind::Budget(BudgetPeriod::Day);
        let half = Micros::from_hours(12);
        for (spent, now, wanted) in [
            (501, half, Some(BudgetPeriod::Day)),
            (500, half, None),
            (999, half, Some(BudgetPeriod::Day)),
            // It is spent.
            (1_000, half, None),
            // It is too early.
            (900, Micros::from_hours(6) - Micros::new(1), None),
            (900, Micros::from_hours(6), Some(BudgetPeriod::Day)),
            // The period is over.
            (999, DAY, None),
        ] {
            assert_eq!(passed_soon(&standing(day, spent, 1_000, 80), now), wanted, "{spent} {now}");
        }
        let told = LimitStanding { is_forecast_told: true, ..standing(day, 900, 1_000, 0) };
        assert_eq!(passed_soon(&told, half), None);
        assert_eq!(passed_soon(&standing(LimitKind::Cap, 900, 1_000, 0), half), None);
    }

    #[test]
    fn what_is_turned_off_is_not_told() {
        let half = Micros::from_hours(12);
        let budget = standing(LimitKind::Budget(BudgetPeriod::Day), 900, 1_000, 0);
        let kinds = |settings: &AlertSettings| -> Vec<AlertKind> {
            limit_alerts(&budget, settings, half).into_iter().map(|alert| alert.kind).collect()
        };
        let (level, forecast) =
            (AlertKind::Spending(budget.kind), AlertKind::Forecast(BudgetPeriod::Day));
        let usual = AlertSettings::default();
        assert_eq!(kinds(&usual), [level, forecast]);
        assert_eq!(kinds(&AlertSettings { forecasts: false, ..usual.clone() }), [level]);
        assert_eq!(kinds(&AlertSettings { levels: Vec::new(), ..usual.clone() }), [forecast]);
        let key = ending(30, None);
        assert!(expiry_alert(&key, &usual, key.expires - DAY).is_some());
        let silent = AlertSettings { expiries: false, ..usual };
        assert_eq!(expiry_alert(&key, &silent, key.expires - DAY), None);
    }

    #[test]
    fn statements_are_sent_in_the_first_days_of_a_month() {
        let march = StatementMonth::parse("2026-03").unwrap();
        let april = march.end();
        for (at, is_sent) in [
            (april - Micros::new(1), false),
            (april, false),
            (april + STATEMENTS_FROM, true),
            (april + STATEMENTS_UNTIL - Micros::new(1), true),
            (april + STATEMENTS_UNTIL, false),
        ] {
            assert_eq!(month_to_send(at), is_sent.then_some(march), "{at}");
        }
    }

    fn ending(life_days: i64, told: Option<u8>) -> EndingKey {
        let (account_id, key_id) = ("a".to_owned(), "k".to_owned());
        EndingKey { account_id, key_id, created: DAY, expires: DAY + DAY * life_days, told }
    }

    #[test]
    fn a_key_is_told_a_week_and_a_day_before_it_expires() {
        let second = Micros::from_secs(1);
        for (life, told, left, wanted) in [
            (30, None, DAY * 7 + second, None),
            (30, None, DAY * 7, Some(7)),
            (30, Some(7), DAY * 2, None),
            (30, Some(7), DAY, Some(1)),
            (30, Some(1), second, None),
            // Nobody looked for a week.
            (30, None, second, Some(1)),
            (14, None, DAY * 7, Some(7)),
            // A key of less than two weeks is not told of a week, nor one of less than two days of a day.
            (13, None, DAY * 7, None),
            (13, None, DAY, Some(1)),
            (2, None, DAY, Some(1)),
            (1, None, second, None),
        ] {
            let key = ending(life, told);
            assert_eq!(expiry_level(&key, key.expires - left), wanted, "{life} {told:?} {left}");
        }
    }
}
