//! Checks of single parts, for a running node and for `portunus doctor`.

use canon::Micros;
use config::{AcmeState, BlobStore, Config, ListenerCertificate};
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::{ProbedSchema, StoreError, StoreProbe, Vault};

use crate::health_check::{CheckName, CheckState, HealthCheck};
use crate::node_health::PLAIN_BODIES_WARNING;
use crate::stored_config::EntryIssue;
use crate::time_text::rfc3339;

/// Free part of a disk, as a divisor, and free bytes below which there is a warning. The smaller one
/// counts.
const MIN_FREE_PART: u64 = 20;
const MIN_FREE_BYTES: u64 = 1 << 30;
/// Time before the end of a certificate from which on there is a warning.
const CERTIFICATE_NOTICE: Micros = Micros::from_days(21);
/// Difference of two clocks that is taken for equal.
const MAX_CLOCK_SKEW: Micros = Micros::from_secs(5);
/// Descriptors that are kept for other things than connections, see `process_limits.rs`.
const RESERVED_DESCRIPTORS: u64 = 256;

/// Judges an answer of Valkey.
pub fn valkey_check(answer: Result<(), String>) -> HealthCheck {
    match answer {
        Ok(()) => HealthCheck::good(CheckName::Valkey, "Valkey answers"),
        Err(why) => HealthCheck::warning(
            CheckName::Valkey,
            format!("Valkey cannot be used: {why}; each node applies its share of the rate limits"),
            "start Valkey, or mend `valkey` of `[shared]`",
        ),
    }
}

/// Checks that secrets can be sealed.
pub fn vault_check(vault: &Vault) -> HealthCheck {
    if vault.is_unset() {
        let (message, hint) =
            PLAIN_BODIES_WARNING.split_once("; ").unwrap_or((PLAIN_BODIES_WARNING, ""));
        return HealthCheck::warning(CheckName::Vault, message, hint);
    }
    match vault.unavailable_reason() {
        None => HealthCheck::good(CheckName::Vault, "the vault is open"),
        Some(why) => HealthCheck::warning(
            CheckName::Vault,
            format!("the vault cannot seal secrets: {why}"),
            "restore its key file from a backup, or set `vault` of `[server]`",
        ),
    }
}

/// Checks that other users of the machine cannot read or change the key file of the vault. `None` if there is no
/// such file, or if it is closed to them. Its group may be that of a container.
pub fn vault_file_check(file: &Path) -> Option<HealthCheck> {
    const READ_OR_WRITE_BY_OTHERS: u32 = 0o006;
    let mode = std::fs::metadata(file).ok()?.mode();
    (mode & READ_OR_WRITE_BY_OTHERS != 0).then(|| {
        HealthCheck::warning(
            CheckName::Vault,
            format!(
                "the vault's key {} is open to every user of the machine (mode {:04o})",
                file.display(),
                mode & 0o7777
            ),
            format!(
                "close it with `chmod 600 {}`, and re-key if others could see it",
                file.display()
            ),
        )
    })
}

/// Reports warnings of the configuration and stored entries that are not used.
pub fn configuration_check(warnings: &[String], issues: &[EntryIssue]) -> HealthCheck {
    let issues = issues.iter().map(|issue| format!("{}: {}", issue.what, issue.why));
    let all: Vec<String> = warnings.iter().cloned().chain(issues).collect();
    if all.is_empty() {
        return HealthCheck::good(CheckName::Configuration, "the configuration is used as it is");
    }
    HealthCheck::warning(
        CheckName::Configuration,
        all.join("; "),
        "change the file or the stored entry; a running gateway reads both again",
    )
}

/// Judges the damaged files of a journal.
pub fn journal_damage(files: &[String]) -> HealthCheck {
    let Some(first) = files.first() else {
        return HealthCheck::good(CheckName::Journal, "the journal is whole");
    };
    HealthCheck::warning(
        CheckName::Journal,
        format!("damaged and kept: {}; calls may be missing", files.join(", ")),
        format!("look at it, then accept the loss with `portunus ledger accept-damage {first}`"),
    )
}

/// Checks the room on the disks of the data folder, of SQLite and of the file store.
pub fn disk_check(config: &Config) -> HealthCheck {
    let mut folders = vec![config.data_folder.clone()];
    if let Some(path) = config.store_url.strip_prefix("sqlite:") {
        let path = Path::new(path.strip_prefix("//").unwrap_or(path));
        folders.extend(path.parent().map(Path::to_owned));
    }
    if let BlobStore::Folder(folder) = &config.files.store {
        folders.push(folder.clone());
    }
    let mut disks: BTreeMap<u64, PathBuf> = BTreeMap::new();
    for folder in folders {
        // A folder that does not exist yet will be on the disk of the nearest one that does.
        let found = folder.ancestors().find_map(|one| {
            let one = if one.as_os_str().is_empty() { Path::new(".") } else { one };
            Some((one, std::fs::metadata(one).ok()?))
        });
        if let Some((found, data)) = found {
            disks.entry(data.dev()).or_insert_with(|| found.to_owned());
        }
    }
    let mut least_free: Option<u64> = None;
    for folder in disks.values() {
        let Ok(disk) = rustix::fs::statvfs(folder) else { continue };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let size = disk.f_blocks.saturating_mul(disk.f_frsize);
        if free < (size / MIN_FREE_PART).min(MIN_FREE_BYTES) {
            return HealthCheck::warning(
                CheckName::Disk,
                format!(
                    "only {} of {} are free on the disk of {}",
                    mebibytes(free),
                    mebibytes(size),
                    folder.display()
                ),
                "make room before it is full: new calls are refused then",
            );
        }
        least_free = Some(least_free.map_or(free, |least| least.min(free)));
    }
    match least_free {
        Some(free) => HealthCheck::good(CheckName::Disk, format!("{} are free", mebibytes(free))),
        None => HealthCheck::warning(
            CheckName::Disk,
            "the free room of the data folder is not known",
            "look if the data folder exists and can be read",
        ),
    }
}

fn date(at: Micros) -> String {
    rfc3339(at).unwrap_or_else(|| "an unknown time".to_owned())
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// Checks that there are certificates to reach providers with, which may be on a disk.
pub(crate) fn root_check(config: &Config) -> HealthCheck {
    match config.outbound.check_certificates() {
        Ok(()) => HealthCheck::good(CheckName::Certificates, "there are root certificates"),
        Err(why) => HealthCheck::warning(
            CheckName::Certificates,
            format!("no provider can be reached by https: {why}"),
            "install the certificates of the system, or name them in `ca` of `[outbound]`",
        ),
    }
}

/// Checks that the certificate of the listener is valid for a while, and that there are certificates to
/// reach providers with.
pub fn certificate_check(config: &Config, now: Micros) -> HealthCheck {
    worse_of(root_check(config), listener_check(config, now))
}

/// Returns the check in the worse state: of two good ones the second, of other equal ones the first.
pub(crate) fn worse_of(first: HealthCheck, second: HealthCheck) -> HealthCheck {
    if first.state == CheckState::Good || second.state > first.state { second } else { first }
}

/// Checks that the certificate of the listener is valid for a while. Reads memory only.
pub(crate) fn listener_check(config: &Config, now: Micros) -> HealthCheck {
    let Some(tls) = &config.tls else {
        return HealthCheck::good(CheckName::Certificates, "the listener has no certificate");
    };
    if let Some(why) = tls.trouble() {
        return HealthCheck::warning(
            CheckName::Certificates,
            format!("changed certificate files are not used, and those before stay: {why}"),
            "mend the files; the gateway looks at them every few seconds",
        );
    }
    match (tls.certificate(), tls.acme()) {
        (None, None) => {
            HealthCheck::good(CheckName::Certificates, "the listener has no certificate")
        }
        (Some(certificate), None) => {
            let hint =
                "renew it and write it to the same files; the gateway uses it within seconds";
            validity_check(&certificate, hint, CERTIFICATE_NOTICE, now)
        }
        (certificate, Some(_)) => ordered_certificate(&tls.acme_state(), certificate, now),
    }
}

/// Judges a certificate that is ordered from an authority.
fn ordered_certificate(
    state: &AcmeState,
    certificate: Option<ListenerCertificate>,
    now: Micros,
) -> HealthCheck {
    let AcmeState { trouble, next_order, is_unusable } = state;
    let next = match next_order {
        Some(at) if *at > now => format!("the next order is at {}", date(*at)),
        Some(_) => "an order is under way".to_owned(),
        None => "a running gateway orders it".to_owned(),
    };
    let hint =
        "look at `[server.acme]`, and if the names lead to this gateway (docs/operate/tls.md)";
    match (certificate, trouble) {
        (None, Some(why)) if *is_unusable => HealthCheck::failing(
            CheckName::Certificates,
            why.clone(),
            "give this node the `vault` of the others",
        ),
        (None, Some(why)) => HealthCheck::warning(
            CheckName::Certificates,
            format!("there is no certificate yet, and no connection is served: {why}; {next}"),
            hint,
        ),
        // The state of orders is in the database, which only a running gateway reads.
        (None, None) if next_order.is_none() => HealthCheck::good(CheckName::Certificates, next),
        (None, None) => HealthCheck::warning(
            CheckName::Certificates,
            format!("there is no certificate yet, and no connection is served; {next}"),
            hint,
        ),
        (Some(certificate), Some(why)) => HealthCheck::warning(
            CheckName::Certificates,
            format!("the certificate {} is not renewed: {why}; {next}", certificate.origin),
            hint,
        ),
        // A certificate for a few days is renewed a few days before its end.
        (Some(certificate), None) => validity_check(&certificate, hint, Micros::ZERO, now),
    }
}

/// Checks that a certificate is valid for a while.
fn validity_check(
    certificate: &ListenerCertificate,
    hint: &str,
    notice: Micros,
    now: Micros,
) -> HealthCheck {
    let ListenerCertificate { origin, validity } = certificate;
    if let Some(begin) = validity.map(|validity| validity.begins).filter(|begin| *begin > now) {
        return HealthCheck::warning(
            CheckName::Certificates,
            format!("the certificate {origin} is not valid before {}", date(begin)),
            "compare the clock of this machine with the right time, or use another certificate",
        );
    }
    match validity.map(|validity| validity.ends) {
        None => HealthCheck::warning(
            CheckName::Certificates,
            format!("the end of the certificate {origin} cannot be read"),
            "look at it with `openssl x509 -noout -enddate`",
        ),
        Some(end) if end <= now => HealthCheck::warning(
            CheckName::Certificates,
            format!("the certificate {origin} has expired at {}", date(end)),
            hint,
        ),
        Some(end) if end - now < notice => HealthCheck::warning(
            CheckName::Certificates,
            format!("the certificate {origin} expires at {}", date(end)),
            hint,
        ),
        Some(end) => HealthCheck::good(
            CheckName::Certificates,
            format!("the certificate is valid until {}", date(end)),
        ),
    }
}

/// Compares the clock of this machine with that of the database. `took` is the time of the question.
pub fn clock_check(own: Micros, database: Option<(Micros, Duration)>) -> HealthCheck {
    let Some((database, took)) = database else {
        return HealthCheck::good(CheckName::Clock, "the database has the clock of this machine");
    };
    let skew = own - database;
    let size = Micros::new(skew.get().saturating_abs()).saturating_sub(took.into());
    if size <= MAX_CLOCK_SKEW {
        return HealthCheck::good(CheckName::Clock, "the clock agrees with that of the database");
    }
    let word = if skew > Micros::ZERO { "ahead of" } else { "behind" };
    HealthCheck::warning(
        CheckName::Clock,
        format!("the clock of this machine is {} s {word} that of the database", size.as_secs()),
        "synchronise the clocks (NTP): keys expire and budgets begin at the wrong time",
    )
}

/// Checks that the process may open enough files for the configured connections, and that it does not
/// use nearly all of them. `used` is the number of open ones, if it runs.
pub fn descriptor_check(config: &Config, used: Option<u64>) -> HealthCheck {
    let hint = "raise the limit of open files (`LimitNOFILE=` of systemd, `ulimit -n`), or lower \
                `connections` of `[limits]`";
    let Some(limit) = getrlimit(Resource::Nofile).maximum else {
        return HealthCheck::good(CheckName::Descriptors, "open files are not limited");
    };
    if let Some(used) = used.filter(|used| *used > limit / 10 * 9) {
        return HealthCheck::warning(
            CheckName::Descriptors,
            format!("{used} of {limit} files are open"),
            hint,
        );
    }
    let room = limit.saturating_sub(RESERVED_DESCRIPTORS) / 2;
    let configured = config.http_limits.connections as u64;
    if room < configured {
        return HealthCheck::warning(
            CheckName::Descriptors,
            format!("{limit} open files allow {room} connections, and {configured} are configured"),
            hint,
        );
    }
    HealthCheck::good(CheckName::Descriptors, format!("{limit} files may be open"))
}

/// Returns the number of files that this process has open.
pub(crate) fn open_files() -> Option<u64> {
    std::fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as u64)
}

/// Checks that the file store and the archive of old calls can be reached.
pub async fn files_check(config: &Config) -> HealthCheck {
    let archive = config.retention.used_archive();
    let (files, archive) = tokio::join!(config.files.store.probe(), async {
        match archive {
            Some(archive) => archive.store.probe().await,
            None => Ok(()),
        }
    });
    let files = files.map_err(|why| format!("files cannot be stored: {why}"));
    let archive = archive.map_err(|why| format!("old calls cannot be archived: {why}"));
    let (message, hint) = match (files, archive) {
        (Ok(()), Ok(())) => {
            return HealthCheck::good(CheckName::Files, "the file store can be reached");
        }
        (Err(files), Ok(())) => {
            (files, "mend the bucket or `[files]`; calls that make or read files fail until then")
        }
        (Ok(()), Err(archive)) => (
            archive,
            "mend the bucket, the folder or `archive` of `[retention]`; old calls stay in the database until then",
        ),
        (Err(files), Err(archive)) => (
            format!("{files}; {archive}"),
            "mend the buckets, the folders, or `[files]` and `archive` of `[retention]`",
        ),
    };
    HealthCheck::warning(CheckName::Files, message, hint)
}

/// Judges a database that was looked at without opening it.
pub fn probed_store_check(url: &str, probed: &Result<StoreProbe, StoreError>) -> HealthCheck {
    let kind = if url.starts_with("sqlite:") { "SQLite" } else { "PostgreSQL" };
    let schema = match probed {
        Ok(probe) => probe.schema,
        Err(why) => {
            return HealthCheck::failing(
                CheckName::Store,
                why.to_string(),
                "start the database, mend the network, or change `store.url`",
            );
        }
    };
    match schema {
        ProbedSchema::Current => HealthCheck::good(CheckName::Store, format!("{kind} answers")),
        ProbedSchema::Missing => HealthCheck::good(
            CheckName::Store,
            format!("{kind} has no tables yet; the first start creates them"),
        ),
        ProbedSchema::Older => HealthCheck::good(
            CheckName::Store,
            format!("{kind} answers; the next start migrates it"),
        ),
        ProbedSchema::NewerCompatible(found) => HealthCheck::good(
            CheckName::Store,
            format!(
                "{kind} answers; a newer version set it up (schema {found}), and this one works with it"
            ),
        ),
        ProbedSchema::Newer(found) => HealthCheck::failing(
            CheckName::Store,
            format!("{kind} was set up by a newer version (schema {found})"),
            "start the newer version, or restore the backup made before the upgrade",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_may_differ_by_the_time_of_the_question() {
        let own = Micros::from_secs(1_000);
        let state = |seconds: i64, took: u64| {
            let database = Some((Micros::from_secs(seconds), Duration::from_secs(took)));
            clock_check(own, database)
        };
        assert_eq!(state(996, 0).state, CheckState::Good);
        assert_eq!(state(1_004, 0).state, CheckState::Good);
        assert_eq!(state(992, 4).state, CheckState::Good);
        let ahead = state(990, 0);
        assert_eq!(ahead.state, CheckState::Warning);
        assert!(ahead.message.contains("10 s ahead of"), "{}", ahead.message);
        assert!(state(1_010, 0).message.contains("10 s behind"));
        assert_eq!(clock_check(own, None).state, CheckState::Good);
    }

    #[test]
    fn an_unreachable_database_and_a_newer_one_fail() {
        let probed = |schema| Ok(StoreProbe { schema, clock: None });
        let state = |probed| probed_store_check("sqlite:x.db", &probed).state;
        let usable = [
            ProbedSchema::Missing,
            ProbedSchema::Older,
            ProbedSchema::Current,
            ProbedSchema::NewerCompatible(99),
        ];
        for schema in usable {
            assert_eq!(state(probed(schema)), CheckState::Good, "{schema:?}");
        }
        assert_eq!(state(probed(ProbedSchema::Newer(99))), CheckState::Failing);
        assert_eq!(state(Err(StoreError::Other("gone".to_owned()))), CheckState::Failing);
    }
}
