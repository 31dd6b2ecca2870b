//! Sample calls and the usage they must add up to.

use std::collections::BTreeMap;

use canon::Micros;
use ledger::{CallError, CallOutcome, LedgerEntry};
use store::{CallFilter, GroupBy, KeyRecord, StatusFilter};

use crate::samples::entry;

pub(crate) const HOUR: Micros = Micros::from_hours(1);
pub(crate) const DAY: Micros = Micros::from_days(1);
/// 2026-10-31, an hour before midnight.
pub(crate) const BEGIN: Micros = Micros::from_days(20_758).saturating_sub(HOUR);

/// Returns call `n`. Its time, key, model and outcome depend on the number.
pub(crate) fn call(run: &str, n: usize, keys: &[KeyRecord]) -> LedgerEntry {
    let at = BEGIN + (n as i64 % 7) * 5 * HOUR + Micros::new(n as i64);
    let cost = n as i64 * 3 + 1;
    LedgerEntry {
        started: at,
        ended: at + Micros::new((n as i64 % 9) * 333_000),
        first_byte_us: (!n.is_multiple_of(4)).then_some(Micros::new(n as i64 % 5 * 90_000)),
        model: format!("m{}", n % 3).into(),
        lane: format!("p{}/l{}", n % 2, n % 4).into(),
        status: if n.is_multiple_of(5) { 503 } else { 200 },
        stream: n.is_multiple_of(2),
        ..entry(&format!("{run}-{n}"), &keys[n % keys.len()], cost, at.get())
    }
}

/// Returns call `n` with what the sums do not have. Some of these calls take hours.
pub(crate) fn full_call(run: &str, n: usize, keys: &[KeyRecord]) -> LedgerEntry {
    let call = call(run, n, keys);
    let code = if n.is_multiple_of(3) { "timeout" } else { "unavailable" };
    LedgerEntry {
        ended: if n.is_multiple_of(3) { call.started + 7 * HOUR } else { call.ended },
        dialect: if n.is_multiple_of(2) { "chat" } else { "native" }.into(),
        session: if n.is_multiple_of(4) { "run" } else { "" }.into(),
        end_user: if n.is_multiple_of(3) { "ann" } else { "" }.into(),
        tags: [("team", format!("t{}", n % 3)), ("beta", String::new())]
            .into_iter()
            .take(n % 3)
            .collect(),
        error: (call.status != 200).then(|| Box::new(CallError::new(code, "", "no lane answered"))),
        ..call
    }
}

/// Returns true if a call meets the conditions.
pub(crate) fn fits(filter: &CallFilter, call: &LedgerEntry) -> bool {
    let CallFilter { key_id, account_id, model, lane, status, .. } = filter;
    let CallFilter { format, session, end_user, tag, error, min_cost, min_took, .. } = filter;
    let is = |wanted: &Option<String>, text: &str| wanted.as_ref().is_none_or(|one| one == text);
    let code = call.error.as_ref().map_or("", |error| &error.code);
    let took = call.ended - call.started;
    is(account_id, &call.account_id)
        && is(key_id, &call.key_id)
        && is(model, &call.model)
        && lane
            .as_ref()
            .is_none_or(|lane| *lane == call.lane || call.lane.starts_with(&format!("{lane}/")))
        && status.is_none_or(|status| match status {
            StatusFilter::Is(status) => status == call.status,
            StatusFilter::Class(class) => class == call.status / 100,
            StatusFilter::Done => call.outcome == CallOutcome::Done,
            StatusFilter::Failed => call.outcome != CallOutcome::Done,
        })
        && is(format, &call.dialect)
        && is(session, &call.session)
        && is(end_user, &call.end_user)
        && tag.as_ref().is_none_or(|tag| match tag.split_once('=') {
            Some((name, value)) => call.tags.value(name) == Some(value),
            None => call.tags.value(tag).is_some(),
        })
        && is(error, code)
        && min_cost.is_none_or(|least| call.cost >= least)
        && min_took.is_none_or(|least| took >= least)
}

pub(crate) fn group_of(call: &LedgerEntry, by: Option<GroupBy>) -> String {
    match by {
        None => String::new(),
        Some(GroupBy::Account) => call.account_id.to_string(),
        Some(GroupBy::Key) => call.key_id.to_string(),
        Some(GroupBy::Model) => call.model.to_string(),
        Some(GroupBy::Provider) => call.lane.split('/').next().unwrap().to_owned(),
        Some(GroupBy::Lane) => call.lane.to_string(),
        Some(GroupBy::Status) => call.status.to_string(),
        Some(GroupBy::Error) => call.error.as_ref().map_or("", |error| &error.code).to_owned(),
        Some(GroupBy::Format) => call.dialect.to_string(),
        Some(GroupBy::Session) => call.session.to_string(),
        Some(GroupBy::EndUser) => call.end_user.to_string(),
        Some(GroupBy::Tag) => call.tags.value("team").unwrap_or_default().to_owned(),
    }
}

/// Computes the expected usage from the calls, by begin and group.
pub(crate) fn expected(
    calls: &[LedgerEntry],
    step_of: impl Fn(Micros) -> Micros,
    by: Option<GroupBy>,
    filter: &CallFilter,
) -> BTreeMap<(Micros, String), (i64, i64, Micros)> {
    let mut sums = BTreeMap::new();
    for call in calls.iter().filter(|call| fits(filter, call)) {
        let group = group_of(call, by);
        let sum = sums.entry((step_of(call.started), group)).or_insert((0, 0, Micros::ZERO));
        *sum = (sum.0 + 1, sum.1 + call.cost.as_nanos(), sum.2 + (call.ended - call.started));
    }
    sums
}
