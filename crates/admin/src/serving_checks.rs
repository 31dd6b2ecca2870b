//! Checks that decide if a node is ready. They read memory only, because a probe waits for them.

use canon::Micros;
use ledger::{LeaseFailure, OfflineService};
use parking_lot::Mutex;
use relay::MAX_STORE_SILENCE;
use transport::ShutdownPhase;

use crate::Admin;
use crate::gateway_conditions::ConditionWatch;
use crate::health_check::{CheckName, CheckState, HealthCheck, HealthReport};
use crate::part_checks::{configuration_check, journal_damage, valkey_check, vault_check};
use crate::watched_checks::OnDiskChecks;

/// Time for which the count of served keys is kept. A gateway may have many keys.
const SERVICE_TTL: Micros = Micros::from_secs(1);
/// Time after which a settled call should be in the store.
const MAX_POST_DELAY: Micros = Micros::from_secs(120);

/// Results that are kept between probes.
#[derive(Debug, Default)]
pub struct HealthMonitor {
    /// Checks that read files or ask other services, from the last round.
    pub(crate) watched: Mutex<Vec<HealthCheck>>,
    /// Checks that read a disk. They are kept until they end, so that a disk that hangs holds one thread.
    pub(crate) on_disk: OnDiskChecks,
    /// Conditions that administrators are told if they last.
    pub(crate) conditions: ConditionWatch,
    /// Keys that are served without the store, and the steady time of the count.
    service: Mutex<Option<(Micros, OfflineService)>>,
}

impl Admin {
    /// Returns true if calls can be served: no check of the report is failing. Checks that can only be good
    /// or warnings are not made for it.
    pub fn is_ready(&self) -> bool {
        let is_failing = |check: &HealthCheck| check.state == CheckState::Failing;
        !self.serving_checks().iter().any(is_failing)
            && !self.health.watched.lock().iter().any(is_failing)
    }

    /// Returns the results of all checks. Those that need a disk or another service are from their last
    /// round, which is some seconds old.
    pub fn health_report(&self) -> HealthReport {
        let mut checks = self.memory_checks();
        let config = self.engine.config();
        checks.push(vault_check(&self.vault));
        checks.push(configuration_check(&config.warnings, &self.issues()));
        checks.extend(self.health.watched.lock().iter().cloned());
        checks.sort_by_key(|check| check.name);
        HealthReport { checks }
    }

    /// Checks of the parts that a node needs, from memory.
    pub(crate) fn memory_checks(&self) -> Vec<HealthCheck> {
        let mut checks = self.serving_checks();
        checks.push(match self.limiter.shared() {
            None => HealthCheck::good(CheckName::Valkey, "Valkey is not configured"),
            Some(shared) => valkey_check(match shared.is_unreachable() {
                true => Err("it does not answer".to_owned()),
                false => Ok(()),
            }),
        });
        checks
    }

    /// Checks that decide if the node is ready.
    fn serving_checks(&self) -> Vec<HealthCheck> {
        let [store, leases] = self.store_checks();
        vec![self.shutdown_check(), store, leases, self.journal_check()]
    }

    fn shutdown_check(&self) -> HealthCheck {
        match self.engine.connections.phase() {
            // During a hand-over another process has the listener.
            ShutdownPhase::Serve | ShutdownPhase::HandOver => {
                HealthCheck::good(CheckName::Shutdown, "new calls are accepted")
            }
            ShutdownPhase::Linger
            | ShutdownPhase::Drain
            | ShutdownPhase::End
            | ShutdownPhase::Cut => HealthCheck::failing(
                CheckName::Shutdown,
                "the gateway is stopping; running calls may finish",
                "send calls to another node, or wait for the restart",
            ),
        }
    }

    /// Checks the store, and the money that this node has without it.
    fn store_checks(&self) -> [HealthCheck; 2] {
        let funds = &self.engine.funds;
        let (kind, silence) = (self.store.kind(), funds.lease_client.time_since_contact());
        if let Some(why) = self.store.file_loss() {
            let unposted = funds.open_calls.unposted_count();
            return [
                HealthCheck::failing(
                    CheckName::Store,
                    format!("the file of the database {why}; {unposted} settled calls wait for it"),
                    "put the file or a copy of it back, which is then used without a restart, or stop the \
                     gateway and restore a backup",
                ),
                HealthCheck::warning(
                    CheckName::Leases,
                    "leases are not renewed",
                    "they are renewed when the database is back",
                ),
            ];
        }
        let hint = "start the database, make room on its disk, or mend the network; the gateway goes on by \
                    itself";
        let (seconds, unposted) = (silence.as_secs(), funds.open_calls.unposted_count());
        let is_silent = silence > MAX_STORE_SILENCE;
        let failure = funds.lease_client.lease_failure();
        let failure = failure.filter(|(lasts, _)| *lasts > MAX_STORE_SILENCE);
        if !is_silent && failure.is_none() {
            *self.health.service.lock() = None;
            let waits =
                funds.open_calls.oldest_unposted().map(|ended| self.engine.clock.now() - ended);
            let store = match (funds.post_error(), waits.filter(|waits| *waits > MAX_POST_DELAY)) {
                (None, None) => HealthCheck::good(CheckName::Store, format!("{kind} answers")),
                (None, Some(waits)) => HealthCheck::warning(
                    CheckName::Store,
                    format!(
                        "{unposted} settled calls wait for {kind}, one for {} s",
                        waits.as_secs()
                    ),
                    "look at the load and the locks of the database; the gateway goes on by itself",
                ),
                (Some(why), _) => HealthCheck::warning(
                    CheckName::Store,
                    format!("{unposted} settled calls cannot be stored in {kind}: {why}"),
                    hint,
                ),
            };
            return [store, HealthCheck::good(CheckName::Leases, "leases are renewed")];
        }
        // The money on this node decides.
        let service = self.offline_service();
        let OfflineService { served, refused } = service;
        let message = match failure.filter(|_| !is_silent) {
            None => {
                let why = funds.heartbeat_error().unwrap_or_else(|| "no answer in time".to_owned());
                format!(
                    "{kind} has confirmed nothing for {seconds} s ({why}); {unposted} settled calls wait for it"
                )
            }
            Some((lasts, LeaseFailure { why, .. })) => format!(
                "{kind} has leased no money for {} s ({why}); {unposted} settled calls wait for it",
                lasts.as_secs()
            ),
        };
        let of_keys = format!("{served} of the {} keys in use are served", served + refused);
        if served == 0 {
            return [
                HealthCheck::failing(CheckName::Store, message, hint),
                HealthCheck::warning(
                    CheckName::Leases,
                    format!("{of_keys}: their leases are used up or `store.away` is over"),
                    "they are renewed when the database answers",
                ),
            ];
        }
        let leases = if refused == 0 {
            HealthCheck::good(CheckName::Leases, format!("{of_keys} without the database"))
        } else {
            HealthCheck::warning(
                CheckName::Leases,
                format!("{of_keys} without the database; calls of the others get a 503"),
                "they are renewed when the database answers",
            )
        };
        [HealthCheck::warning(CheckName::Store, message, hint), leases]
    }

    fn offline_service(&self) -> OfflineService {
        let now = self.engine.clock.steady();
        let mut kept = self.health.service.lock();
        match *kept {
            Some((at, service)) if now - at < SERVICE_TTL => service,
            Some(_) | None => {
                let balances = self.engine.keys.calling_balances();
                let service = self.engine.funds.lease_client.offline_service(&balances);
                *kept = Some((now, service));
                service
            }
        }
    }

    fn journal_check(&self) -> HealthCheck {
        let calls = &self.engine.funds.open_calls;
        if calls.is_stalled() {
            return HealthCheck::failing(
                CheckName::Journal,
                "the disk of the journal does not answer",
                "look at the disk of the data folder; the gateway goes on by itself",
            );
        }
        if calls.is_failing() {
            let (_, last) = calls.errors().so_far();
            return HealthCheck::failing(
                CheckName::Journal,
                format!("the journal cannot be written: {last}"),
                "make room on the disk of the data folder, or mend it; the gateway goes on by itself",
            );
        }
        journal_damage(&calls.damaged_files())
    }
}
