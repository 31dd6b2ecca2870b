//! Checks of a running node that read files or ask other services. A loop repeats them, and reports show
//! the results of the last round.

use aws_lc_rs::hmac;
use config::Config;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::NodeFacts;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::Admin;
use crate::gateway_conditions::{CONDITIONS_FACT, NodeCondition};
use crate::health_check::{CheckName, HealthCheck};
use crate::part_checks::{
    clock_check, descriptor_check, disk_check, files_check, listener_check, open_files, root_check,
    worse_of,
};

/// Time that the database may take for a question of a check.
const STORE_TIMEOUT: Duration = Duration::from_secs(3);
/// Names of digests that are not sections of the file.
const VERSION: &str = "version";
const SECRET: &str = "secret";
const VAULT: &str = "vault";
/// Bytes of a digest that nodes compare.
const DIGEST_BYTES: usize = 8;

/// Results of the checks that read a disk: its room, and root certificates.
type DiskResults = [HealthCheck; 2];

/// Checks that read a disk, which may hang.
#[derive(Debug, Default)]
pub(crate) struct OnDiskChecks {
    running: Mutex<Option<JoinHandle<DiskResults>>>,
}

impl OnDiskChecks {
    /// Waits for the checks that run, and starts these if none do. Returns `None` if the disk does not answer
    /// in that time.
    async fn run(
        &self,
        timeout: Duration,
        checks: impl FnOnce() -> DiskResults + Send + 'static,
    ) -> Option<DiskResults> {
        let mut running = self.running.lock().await;
        // A disk that hangs must not stop the runtime.
        let task = running.get_or_insert_with(|| tokio::task::spawn_blocking(checks));
        let ended = tokio::time::timeout(timeout, task).await.ok()?;
        *running = None;
        ended.ok()
    }
}

/// Counts the open files.
async fn descriptors(config: &Arc<Config>) -> Option<HealthCheck> {
    let config = Arc::clone(config);
    // There may be many.
    let count = tokio::task::spawn_blocking(move || descriptor_check(&config, open_files()));
    count.await.ok()
}

impl Admin {
    /// Repeats the checks that reports show from their last round.
    pub async fn watch_health(&self) {
        let config = self.engine.config();
        let files = Arc::clone(&config);
        let on_disk = move || [disk_check(&files), root_check(&files)];
        let (on_disk, descriptors, files, clock) = tokio::join!(
            self.health.on_disk.run(STORE_TIMEOUT, on_disk),
            descriptors(&config),
            files_check(&config),
            self.clock_check()
        );
        let listener = listener_check(&config, self.engine.clock.now());
        let mut checks: Vec<HealthCheck> = match on_disk {
            Some([disk, roots]) => vec![disk, worse_of(roots, listener)],
            None => {
                let disk = HealthCheck::warning(
                    CheckName::Disk,
                    "the disk of the data folder does not answer",
                    "look at the disk",
                );
                vec![disk, listener]
            }
        };
        checks.extend(descriptors);
        checks.extend([files, clock, self.credential_check()]);
        let present = self.present_conditions(&[self.memory_checks(), checks.clone()].concat());
        let lasting = self.health.conditions.note(present, self.engine.clock.now());
        checks.push(self.drift_check(&lasting).await);
        *self.health.watched.lock() = checks;
    }

    async fn clock_check(&self) -> HealthCheck {
        if !self.store.is_shared() {
            return clock_check(self.engine.clock.now(), None);
        }
        let asked = Instant::now();
        match tokio::time::timeout(STORE_TIMEOUT, self.store.now()).await {
            Ok(Ok(now)) => clock_check(self.engine.clock.now(), Some((now, asked.elapsed()))),
            Ok(Err(_)) | Err(_) => {
                unknown(CheckName::Clock, "the clock of the database is not known")
            }
        }
    }

    /// Reports providers that refuse a credential, and credentials that cannot be fetched or renewed.
    fn credential_check(&self) -> HealthCheck {
        refused_credentials(self.bad_credentials().into_iter().map(|bad| bad.why).collect())
    }

    /// Tells the other nodes the digests of this node's configuration and its conditions, and compares their
    /// digests.
    async fn drift_check(&self, conditions: &[NodeCondition]) -> HealthCheck {
        let own = self.section_digests();
        let id = self.engine.funds.lease_client.node_name();
        let mut facts = own.clone();
        facts.extend(
            serde_json::to_string(conditions).map(|text| (CONDITIONS_FACT.to_owned(), text)),
        );
        let comparing = async {
            self.store.put_node_facts(&id, &facts).await?;
            self.store.node_facts().await
        };
        match tokio::time::timeout(STORE_TIMEOUT, comparing).await {
            Ok(Ok(nodes)) => compare_nodes(&id, &own, &nodes),
            Ok(Err(_)) | Err(_) => unknown(CheckName::Drift, "the other nodes are not known"),
        }
    }

    /// Returns a digest of each part of the configuration that all nodes should share. They are made
    /// with the secret that hashes keys, so that nobody guesses values from them.
    fn section_digests(&self) -> BTreeMap<String, String> {
        let pepper = self.engine.keys.pepper();
        let digest = |name: &str, bytes: &[u8]| {
            let mut context = hmac::Context::with_key(pepper);
            for part in [b"node facts\0".as_slice(), name.as_bytes(), b"\0", bytes] {
                context.update(part);
            }
            let tag = context.sign();
            let begin = tag.as_ref().iter().take(DIGEST_BYTES);
            begin.map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let config = self.engine.config();
        let sections = config.sections.iter();
        let mut all: BTreeMap<String, String> =
            sections.map(|(name, bytes)| ((*name).to_owned(), digest(name, bytes))).collect();
        all.insert(VERSION.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        all.insert(SECRET.to_owned(), digest(SECRET, b""));
        let current = self.vault.keys().0.filter(|_| self.store.is_shared());
        all.insert(VAULT.to_owned(), digest(VAULT, current.unwrap_or_default().as_bytes()));
        all
    }
}

/// A result that waits for the database, whose own check says what is wrong.
fn unknown(name: CheckName, message: &str) -> HealthCheck {
    HealthCheck::good(name, format!("{message}: the database does not answer"))
}

/// Judges credentials by the providers' words about them.
pub fn refused_credentials(refused: Vec<String>) -> HealthCheck {
    if refused.is_empty() {
        return HealthCheck::good(CheckName::Credentials, "no provider refuses its credential");
    }
    HealthCheck::warning(
        CheckName::Credentials,
        refused.join("; "),
        "give the provider a valid credential, in the configuration or in the console; one that cannot be \
         reached needs another `base` or a way through the network",
    )
}

/// Compares the digests of the nodes that are alive with those of this node.
fn compare_nodes(id: &str, own: &BTreeMap<String, String>, nodes: &[NodeFacts]) -> HealthCheck {
    let alive = |node: &&NodeFacts| node.id != id && node.silence < ledger::LEASE_DURATION;
    let mut found = Vec::new();
    for node in nodes.iter().filter(alive) {
        let differs = |name: &str| own.get(name) != node.sections.get(name);
        let parts = if differs(VERSION) {
            vec![VERSION]
        } else if differs(SECRET) {
            vec![SECRET]
        } else {
            own.keys().map(String::as_str).filter(|name| differs(name)).collect()
        };
        if !parts.is_empty() {
            found.push(format!("node {} differs in {}", node.id, parts.join(", ")));
        }
    }
    if found.is_empty() {
        return HealthCheck::good(CheckName::Drift, "all nodes have the same configuration");
    }
    HealthCheck::warning(
        CheckName::Drift,
        found.join("; "),
        "give all nodes the same version, configuration file, `secret` and `vault`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health_check::CheckState;
    use canon::Micros;

    fn sections(changes: &[(&str, &str)]) -> BTreeMap<String, String> {
        let base = [("version", "1"), ("secret", "s"), ("models", "m"), ("limits", "l")];
        let all = base.iter().chain(changes);
        all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn nodes_with_another_configuration_are_named() {
        let node = |id: &str, seconds: i64, changes: &[(&str, &str)]| NodeFacts {
            id: id.to_owned(),
            silence: Micros::from_secs(seconds),
            sections: sections(changes),
        };
        let own = sections(&[]);
        let same = [node("a", 1, &[]), node("b", 1, &[]), node("dead", 900, &[("models", "x")])];
        assert_eq!(compare_nodes("a", &own, &same).state, CheckState::Good);
        let other = [
            node("a", 1, &[("models", "what this node told before")]),
            node("b", 1, &[("models", "x"), ("limits", "y")]),
            node("c", 1, &[("version", "2"), ("models", "x")]),
            node("d", 1, &[("secret", "t"), ("models", "x")]),
        ];
        let found = compare_nodes("a", &own, &other);
        assert_eq!(found.state, CheckState::Warning);
        assert_eq!(
            found.message,
            "node b differs in limits, models; node c differs in version; node d differs in secret"
        );
    }

    #[tokio::test]
    async fn a_disk_that_hangs_holds_one_thread() {
        let (answer, waits) = std::sync::mpsc::channel::<()>();
        let good =
            || [CheckName::Disk, CheckName::Certificates].map(|of| HealthCheck::good(of, ""));
        let checks = OnDiskChecks::default();
        let hangs = move || {
            let _ = waits.recv();
            good()
        };
        assert!(checks.run(Duration::ZERO, hangs).await.is_none());
        for _ in 0..3 {
            let second = || -> DiskResults { panic!("the first one still runs") };
            assert!(checks.run(Duration::from_millis(1), second).await.is_none());
        }
        answer.send(()).unwrap();
        let second =
            || -> DiskResults { panic!("the first one has ended, and its result is used") };
        assert!(checks.run(STORE_TIMEOUT, second).await.is_some());
        assert!(checks.run(STORE_TIMEOUT, good).await.is_some());
    }
}
