//! Conditions of a node that administrators are told: lanes that are down, refused credentials, health checks that
//! are not good.
//!
//! The state of lanes is in the memory of each node. A node keeps its conditions beside its facts in the database,
//! and the node with the turn of alerts reads those of all nodes (`gateway_alerts.rs`).

use std::collections::{BTreeMap, BTreeSet};

use canon::Micros;
use config::LaneHealth;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use store::EventKind;
use upstream::LaneState;

use crate::Admin;
use crate::health_check::{CheckName, CheckState, HealthCheck};
use crate::provider_view::{CredentialTrouble, credential_troubles};

/// Time for which a condition must last before it is told, and for which it must be gone before it has ended.
const HOLD: Micros = Micros::from_secs(60);
/// Name of the conditions among the facts of a node.
pub(crate) const CONDITIONS_FACT: &str = "conditions";
/// Conditions that one node tells. Lanes are the last ones.
const MAX_CONDITIONS: usize = 200;
/// The word for a refused credential in the health of lanes.
const REFUSED: &str = "credential_refused";

/// A condition that was found at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundCondition {
    pub(crate) kind: EventKind,
    /// The lane, `provider/number` of a credential, or the check, with the node if it is about that alone.
    pub(crate) subject: String,
    pub(crate) detail: String,
}

/// A condition that lasts, as a node tells it to the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeCondition {
    /// Word of the [`EventKind`].
    pub(crate) kind: String,
    pub(crate) subject: String,
    pub(crate) detail: String,
    /// Time at which it was first found, in microseconds.
    pub(crate) since: i64,
}

/// The conditions of this node and since when they last.
#[derive(Debug, Default)]
pub(crate) struct ConditionWatch(Mutex<BTreeMap<(EventKind, String), SeenCondition>>);

#[derive(Debug)]
struct SeenCondition {
    detail: String,
    since: Micros,
    last: Micros,
}

impl ConditionWatch {
    /// Notes the conditions of now, and returns those that last.
    pub(crate) fn note(&self, found: Vec<FoundCondition>, now: Micros) -> Vec<NodeCondition> {
        let mut seen = self.0.lock();
        for FoundCondition { kind, subject, detail } in found {
            let begin = SeenCondition { detail: String::new(), since: now, last: now };
            let one = seen.entry((kind, subject)).or_insert(begin);
            (one.detail, one.last) = (detail, now);
        }
        let lasts = |one: &SeenCondition| one.last - one.since >= HOLD;
        // One that comes and goes is told only if it was there at every look for that time.
        seen.retain(|_, one| if lasts(one) { now - one.last < HOLD } else { one.last == now });
        let lasting = seen.iter().filter(|(_, one)| lasts(one)).take(MAX_CONDITIONS);
        let told = lasting.map(|((kind, subject), one)| NodeCondition {
            kind: kind.word().to_owned(),
            subject: subject.clone(),
            detail: one.detail.clone(),
            since: one.since.get(),
        });
        told.collect()
    }
}

/// Part of the gateway that a check is about.
enum CheckedPart {
    /// A part that all nodes share.
    Shared,
    /// A part of this node.
    Node,
}

/// Returns the part that a check is about; `None` if it is not told: it has a kind of its own, or is about the
/// configuration, which only changes with a change of an operator.
const fn checked_part(name: CheckName) -> Option<CheckedPart> {
    match name {
        CheckName::Store | CheckName::Valkey | CheckName::Files => Some(CheckedPart::Shared),
        CheckName::Journal | CheckName::Disk | CheckName::Certificates | CheckName::Clock => {
            Some(CheckedPart::Node)
        }
        CheckName::Shutdown
        | CheckName::Leases
        | CheckName::Vault
        | CheckName::Credentials
        | CheckName::Configuration
        | CheckName::Drift
        | CheckName::Descriptors => None,
    }
}

/// Returns the conditions that follow from the results of checks.
fn failed_checks(checks: &[HealthCheck], node: &str) -> Vec<FoundCondition> {
    let bad = checks.iter().filter(|check| check.state != CheckState::Good);
    let condition = |check: &HealthCheck| {
        let subject = match checked_part(check.name)? {
            CheckedPart::Shared => check.name.word().to_owned(),
            CheckedPart::Node => format!("{}/{node}", check.name.word()),
        };
        let detail = match &check.hint {
            Some(hint) => format!("{}; {hint}", check.message),
            None => check.message.clone(),
        };
        Some(FoundCondition { kind: EventKind::Health, subject, detail })
    };
    bad.filter_map(condition).collect()
}

/// A credential that its provider refuses, or that cannot be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadCredential {
    /// Name of the provider.
    pub(crate) provider: String,
    /// Its number, from 0.
    pub(crate) number: usize,
    /// The finding in a sentence.
    pub(crate) why: String,
}

impl Admin {
    /// Returns the credentials that providers refuse, and those that cannot be fetched or renewed.
    pub(crate) fn bad_credentials(&self) -> Vec<BadCredential> {
        let config = self.engine.config();
        let lanes = config.lane_health(self.engine.monotonic_now());
        let refused: BTreeSet<(String, usize)> = lanes
            .iter()
            .filter(|lane| {
                let health = &lane.health;
                health.state != LaneState::Good && health.last_failure == Some(REFUSED)
            })
            .map(|lane| (provider_of(&lane.lane).to_owned(), lane.credential))
            .collect();
        let refused = refused.into_iter().map(|(provider, number)| {
            let why = format!("`{provider}` refuses its credential {}", number + 1);
            BadCredential { provider, number, why }
        });
        let missing = config.providers.iter().flat_map(|provider| {
            let all = credential_troubles(provider).into_iter();
            all.map(|CredentialTrouble { credential: number, why }| BadCredential {
                provider: provider.name.clone(),
                number,
                why: format!("`{}` has no credential {}: {why}", provider.name, number + 1),
            })
        });
        refused.chain(missing).collect()
    }

    /// Returns what is wrong on this node now.
    pub(crate) fn present_conditions(&self, checks: &[HealthCheck]) -> Vec<FoundCondition> {
        let credentials = self.bad_credentials();
        let mut found = failed_checks(checks, &self.engine.funds.lease_client.node_name());
        found.extend(self.lanes_down(&credentials));
        found.extend(credentials.into_iter().map(|bad| FoundCondition {
            kind: EventKind::Credential,
            subject: format!("{}/{}", bad.provider, bad.number + 1),
            detail: bad.why,
        }));
        found
    }

    /// Returns the lanes that fail with all their credentials, for another reason than these.
    fn lanes_down(&self, bad: &[BadCredential]) -> Vec<FoundCondition> {
        let is_bad = |provider: &str, number: usize| {
            bad.iter().any(|one| one.provider == provider && one.number == number)
        };
        let (mut working, mut failing) = (BTreeSet::new(), BTreeMap::new());
        for LaneHealth { lane, credential, health } in
            self.engine.config().lane_health(self.engine.monotonic_now())
        {
            match health.state {
                LaneState::CoolingDown(_) | LaneState::Probing => {
                    if !is_bad(provider_of(&lane), credential) {
                        failing.insert(lane, health.last_failure.unwrap_or("failed"));
                    }
                }
                LaneState::Good | LaneState::Busy(_) => {
                    working.insert(lane);
                }
            }
        }
        let down = failing.into_iter().filter(|(lane, _)| !working.contains(lane));
        let condition = |(subject, reason)| {
            let detail = format!("its calls fail ({reason})");
            FoundCondition { kind: EventKind::Lane, subject, detail }
        };
        down.map(condition).collect()
    }
}

/// Returns the provider of a lane.
fn provider_of(lane: &str) -> &str {
    lane.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Micros = Micros::from_secs(10);

    fn lane(name: &str) -> FoundCondition {
        let (kind, detail) = (EventKind::Lane, "its calls fail (timeout)".to_owned());
        FoundCondition { kind, subject: name.to_owned(), detail }
    }

    #[test]
    fn a_condition_lasts_from_a_minute_on_until_it_is_gone_for_one() {
        let watch = ConditionWatch::default();
        let mut now = Micros::from_secs(1_000);
        let begun = now;
        let mut look = |is_there: bool| {
            let found = if is_there { vec![lane("a/m")] } else { Vec::new() };
            let told = watch.note(found, now);
            now += STEP;
            told
        };
        for _ in 0..6 {
            assert_eq!(look(true), []);
        }
        let told = look(true);
        assert_eq!(told.iter().map(|one| one.since).collect::<Vec<_>>(), [begun.get()]);
        // A success now and then does not end it.
        for _ in 0..5 {
            assert_eq!(look(false), told);
        }
        assert_eq!(look(true), told);
        for _ in 0..5 {
            assert_eq!(look(false), told);
        }
        assert_eq!(look(false), []);
        // One that comes and goes never begins.
        for turn in 0..60 {
            assert_eq!(look(turn % 6 != 0), [], "{turn}");
        }
    }

    #[test]
    fn only_bad_checks_of_parts_are_told() {
        let checks = [
            HealthCheck::good(CheckName::Clock, "it agrees"),
            HealthCheck::warning(CheckName::Disk, "3 % are free", "make room"),
            HealthCheck::failing(CheckName::Store, "no answer", "start it"),
            HealthCheck::failing(CheckName::Shutdown, "it stops", "wait"),
            HealthCheck::warning(CheckName::Drift, "another version", "update"),
            HealthCheck::warning(CheckName::Credentials, "refused", "renew"),
        ];
        let found = failed_checks(&checks, "node-a");
        let found: Vec<_> =
            found.iter().map(|one| (one.subject.as_str(), one.detail.as_str())).collect();
        let wanted = [("disk/node-a", "3 % are free; make room"), ("store", "no answer; start it")];
        assert_eq!(found, wanted);
    }
}
