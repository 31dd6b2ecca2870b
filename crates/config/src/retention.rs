//! Time that rows stay in the database, and the place of archived calls.

use std::path::{Path, PathBuf};
use std::time::Duration;
use transport::Outbound;

use crate::error::FieldError;
use crate::files::{BlobStore, open_place};
use crate::raw::{RawFiles, RawRetention};
use crate::units::parse_duration;

/// Shortest time that rows are kept. A node that was away for a night still finds what it posts again.
const MIN_RETENTION: Duration = Duration::from_secs(86_400);
/// Word for no archive.
const NO_ARCHIVE: &str = "none";

/// Times after which rows leave the database. `None` keeps them for ever.
#[derive(Clone, Debug)]
pub struct RetentionSettings {
    /// Settled calls. Their sums stay.
    pub calls: Option<Duration>,
    /// Sums of sessions that callers named, once their calls are archived.
    pub call_sessions: Option<Duration>,
    /// Lines of the audit log.
    pub audit: Option<Duration>,
    /// Counts of refused calls.
    pub refusals: Option<Duration>,
    /// Hours of usage. Days and months stay.
    pub usage_hours: Option<Duration>,
    /// Place of archived calls; `None` deletes calls without a file.
    pub archive: Option<ArchivePlace>,
    /// True if the configuration names the place.
    is_archive_named: bool,
    /// Credentials of a bucket.
    bucket: RawFiles,
    outbound: Outbound,
    data_folder: PathBuf,
}

/// Place of archived calls.
#[derive(Clone, Debug)]
pub struct ArchivePlace {
    /// The folder or bucket.
    pub store: BlobStore,
    /// The same as it is written in the configuration.
    pub url: String,
}

impl RetentionSettings {
    /// Returns the archive if calls go to it by themselves, or if it was named.
    pub fn used_archive(&self) -> Option<&ArchivePlace> {
        self.archive.as_ref().filter(|_| self.calls.is_some() || self.is_archive_named)
    }

    /// Opens another place than the configured one, with the same credentials.
    pub fn open_archive(
        &self,
        url: Option<&str>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<ArchivePlace>, FieldError> {
        let default = || format!("file:{}", self.data_folder.join("archive").display());
        let url = url.map_or_else(default, str::to_owned);
        if url == NO_ARCHIVE {
            return Ok(None);
        }
        let store = open_place("retention", "archive", &self.bucket, &url, &self.outbound, env)?;
        Ok(Some(ArchivePlace { store, url }))
    }
}

/// Checks `[retention]`.
pub(super) fn check(
    raw: RawRetention,
    data: &Path,
    outbound: &Outbound,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<RetentionSettings, FieldError> {
    let RawRetention { endpoint, region, access_key, secret_key, .. } = raw.clone();
    let mut settings = RetentionSettings {
        calls: duration("calls", raw.calls.as_deref())?,
        call_sessions: duration("call_sessions", raw.call_sessions.as_deref())?,
        audit: duration("audit", raw.audit.as_deref())?,
        refusals: duration("refusals", raw.refusals.as_deref())?,
        usage_hours: duration("usage_hours", raw.usage_hours.as_deref())?,
        archive: None,
        is_archive_named: raw.archive.is_some(),
        bucket: RawFiles { endpoint, region, access_key, secret_key, ..RawFiles::default() },
        outbound: outbound.clone(),
        data_folder: data.to_owned(),
    };
    settings.archive = settings.open_archive(raw.archive.as_deref(), env)?;
    Ok(settings)
}

fn duration(name: &str, text: Option<&str>) -> Result<Option<Duration>, FieldError> {
    let path = format!("retention.{name}");
    let Some(text) = text else { return Ok(None) };
    let time = parse_duration(text).map_err(|why| FieldError::new(&path, why))?;
    if time < MIN_RETENTION {
        return Err(FieldError::new(
            &path,
            "must be at least a day (\"1d\"); leave it out to keep the rows for ever",
        ));
    }
    Ok(Some(time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, LoadOptions};

    fn checked(text: &str) -> Result<RetentionSettings, String> {
        // Ignored: another test of this process may have set it.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let options = LoadOptions { file: None, listen_address: None, data_folder: "data".into() };
        let text = format!("[retention]\n{text}");
        let config = Config::parse(&text, Path::new("t.toml"), &options, &|_| None);
        config.map(|config| config.retention).map_err(|e| e.to_string())
    }

    #[test]
    fn nothing_is_deleted_by_default_and_archives_have_a_place() {
        let settings = checked("").unwrap();
        let times = [settings.calls, settings.audit, settings.refusals, settings.usage_hours];
        assert_eq!((times, settings.call_sessions), ([None; 4], None));
        assert_eq!(settings.archive.unwrap().url, "file:data/archive");
        assert!(checked("archive = \"none\"").unwrap().archive.is_none());
        let settings = checked("calls = \"400d\"\narchive = \"file:/var/old\"").unwrap();
        assert_eq!(settings.calls, Some(Duration::from_secs(400 * 86_400)));
        assert_eq!(settings.archive.unwrap().url, "file:/var/old");
    }

    #[test]
    fn wrong_values_name_their_field() {
        for (text, field) in [
            ("calls = \"1h\"", "retention.calls"),
            ("audit = \"soon\"", "retention.audit"),
            ("archive = \"ftp://x\"", "retention.archive"),
            ("archive = \"file:\"", "retention.archive"),
            ("archive = \"s3://x\"", "retention.archive"),
            ("region = \"eu\"", "retention.region"),
            ("cals = \"1d\"", "cals"),
        ] {
            let why = checked(text).unwrap_err();
            assert!(why.contains(field), "{text}: {why}");
        }
    }
}
