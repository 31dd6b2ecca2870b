//! Bounds: people may lower what an administrator set on their keys or on themselves, never raise
//! it.

use canon::covers_model;
use config::IpRange;
use store::{AccountRole, BudgetTerms, KeyBounds, KeyOwner, KeyRecord, RateLimits};

use crate::actor::Actor;
use crate::error::AdminError;
use crate::keys::KeyChange;

/// The hold that an actor has over the bounds of an owner's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundRole {
    /// Sets bounds for others.
    Sets,
    /// The actor stays within the bounds.
    Obeys,
    /// An owner on the own keys: neither.
    Free,
}

impl BoundRole {
    /// Returns the hold of an actor over this owner. An administrator is bound on the own account,
    /// because an owner may have limited it.
    pub(crate) fn of(actor: &Actor, owner: &KeyOwner) -> Self {
        let Some(account) = actor.account() else { return Self::Sets };
        let own = account.id == owner.id();
        match account.role {
            AccountRole::Owner if own => Self::Free,
            AccountRole::Admin if own => Self::Obeys,
            AccountRole::Owner | AccountRole::Admin => Self::Sets,
            AccountRole::Member | AccountRole::Viewer => Self::Obeys,
        }
    }
}

/// The limits that a key has now.
pub(crate) fn limits_of(record: &KeyRecord) -> KeyBounds {
    KeyBounds {
        cap: record.cap,
        budget: record.budget,
        models: record.models.clone(),
        expires: record.expires,
        limits: record.limits,
        ips: record.ips.clone(),
    }
}

/// Binds a key to the fields that an administrator sent. `sent` is the change, and `record` the key
/// after it. Other fields keep the bounds they had.
pub(crate) fn bind_sent(record: &mut KeyRecord, sent: &KeyChange) {
    let now = limits_of(record);
    let KeyChange { name: _, cap, models, expires, limits, ips, budget } = sent;
    let bounds = &mut record.bounds;
    if cap.is_some() {
        bounds.cap = now.cap;
    }
    if models.is_some() {
        bounds.models = now.models;
    }
    if expires.is_some() {
        bounds.expires = now.expires;
    }
    if limits.is_some() {
        bounds.limits = now.limits;
    }
    if ips.is_some() {
        bounds.ips = now.ips;
    }
    if budget.is_some() {
        bounds.budget = now.budget;
    }
}

/// Refuses limits that are wider than the bounds, and names the first field that is.
pub(crate) fn require_within(wanted: &KeyBounds, bounds: &KeyBounds) -> Result<(), AdminError> {
    match first_raised(wanted, bounds) {
        None => Ok(()),
        Some(field) => Err(AdminError::forbidden(format!(
            "`{field}` was set by an administrator; you may lower it, not raise it"
        ))),
    }
}

/// Returns the first field whose limit is wider than its bound, as the JSON API names it.
fn first_raised(wanted: &KeyBounds, bounds: &KeyBounds) -> Option<&'static str> {
    let KeyBounds { cap, budget, models, expires, limits, ips } = wanted;
    let RateLimits { rpm, tpm, concurrency } = bounds.limits;
    let fields = [
        ("cap_usd", at_most(*cap, bounds.cap)),
        ("budget", budget_at_most(*budget, bounds.budget)),
        ("models", part_of(models, &bounds.models, |one, bound| covers_model(bound, one))),
        ("expires_in", at_most(*expires, bounds.expires)),
        ("limits.rpm", at_most(limits.rpm, rpm)),
        ("limits.tpm", at_most(limits.tpm, tpm)),
        ("limits.concurrency", at_most(limits.concurrency, concurrency)),
        ("ips", networks_within(ips, &bounds.ips)),
    ];
    fields.into_iter().find(|(_, within)| !within).map(|(field, _)| field)
}

/// Returns true if a limit, where `None` is unlimited, is not above its bound.
fn at_most<T: PartialOrd>(wanted: Option<T>, bound: Option<T>) -> bool {
    bound.is_none_or(|bound| wanted.is_some_and(|wanted| wanted <= bound))
}

/// Budgets of different periods are not compared, so that the period stays as it was set.
fn budget_at_most(wanted: Option<BudgetTerms>, bound: Option<BudgetTerms>) -> bool {
    bound.is_none_or(|bound| {
        wanted.is_some_and(|one| one.period == bound.period && one.limit <= bound.limit)
    })
}

/// Returns true if every entry of a list, where an empty one permits all, fits one of its bound.
fn part_of(wanted: &[String], bound: &[String], fits: fn(&str, &str) -> bool) -> bool {
    let allowed = |one: &String| bound.iter().any(|bound| fits(one, bound));
    bound.is_empty() || (!wanted.is_empty() && wanted.iter().all(allowed))
}

/// Returns true if a key with these networks works only where one with the others works.
pub(crate) fn networks_within(wanted: &[String], bound: &[String]) -> bool {
    part_of(wanted, bound, is_network_within)
}

fn is_network_within(wanted: &str, bound: &str) -> bool {
    match (IpRange::parse(wanted), IpRange::parse(bound)) {
        (Ok(wanted), Ok(bound)) => bound.covers(wanted),
        (Err(_), _) | (_, Err(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::{Micros, Money};
    use ledger::BudgetPeriod;

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    type Raise = fn(&mut KeyBounds);

    fn bounds() -> KeyBounds {
        KeyBounds {
            cap: Some(Money::from_nanos(10)),
            budget: Some(BudgetTerms { limit: Money::from_nanos(5), period: BudgetPeriod::Day }),
            models: texts(&["a", "b"]),
            expires: Some(Micros::new(100)),
            limits: RateLimits { rpm: Some(3), tpm: Some(4), concurrency: Some(5) },
            ips: texts(&["10.0.0.0/8"]),
        }
    }

    #[test]
    fn every_limit_may_be_lowered_and_none_raised() {
        assert_eq!(first_raised(&bounds(), &bounds()), None);
        assert_eq!(first_raised(&KeyBounds::default(), &KeyBounds::default()), None);
        let lower = KeyBounds {
            cap: Some(Money::ZERO),
            budget: Some(BudgetTerms { limit: Money::ZERO, period: BudgetPeriod::Day }),
            models: texts(&["b"]),
            expires: Some(Micros::new(99)),
            limits: RateLimits { rpm: Some(1), tpm: Some(1), concurrency: Some(1) },
            ips: texts(&["10.1.0.0/16", "10.2.3.4"]),
        };
        assert_eq!(first_raised(&lower, &bounds()), None);
        let raised: [(&str, Raise); 15] = [
            ("cap_usd", |one| one.cap = Some(Money::from_nanos(11))),
            ("cap_usd", |one| one.cap = None),
            ("budget", |one| one.budget = None),
            ("budget", |one| {
                one.budget =
                    Some(BudgetTerms { limit: Money::from_nanos(6), period: BudgetPeriod::Day });
            }),
            ("budget", |one| {
                one.budget = Some(BudgetTerms { limit: Money::ZERO, period: BudgetPeriod::Month });
            }),
            ("models", |one| one.models.clear()),
            ("models", |one| one.models = texts(&["a", "c"])),
            ("expires_in", |one| one.expires = None),
            ("expires_in", |one| one.expires = Some(Micros::new(101))),
            ("limits.rpm", |one| one.limits.rpm = None),
            ("limits.tpm", |one| one.limits.tpm = Some(5)),
            ("limits.concurrency", |one| one.limits.concurrency = Some(6)),
            ("ips", |one| one.ips.clear()),
            ("ips", |one| one.ips = texts(&["10.0.0.0/7"])),
            ("ips", |one| one.ips = texts(&["10.1.1.1", "::1"])),
        ];
        for (field, raise) in raised {
            let mut wanted = bounds();
            raise(&mut wanted);
            assert_eq!(first_raised(&wanted, &bounds()), Some(field), "{wanted:?}");
        }
    }
}
