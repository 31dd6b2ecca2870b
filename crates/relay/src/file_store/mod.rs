//! Files stored for a limited time and served through signed links, mostly generated images.
//!
//! Files are in a folder or an S3 bucket that all nodes share. A link holds the file name, its
//! expiry and an HMAC over both. Writes are atomic: a file appears under its name only when it is
//! complete.

mod file_name;

pub use file_name::FileName;

use arc_swap::ArcSwap;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use canon::{ApiError, ErrorKind};
use futures_util::TryStreamExt as _;
use ledger::Clock;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{GetOptions, GetResult, ObjectStore, ObjectStoreExt as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use config::{BlobStore, Config};

/// Time limit for writing or reading a whole file.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);
/// Age at which a partial file of a crashed process is deleted.
const TORN_FILE_AGE: Duration = Duration::from_secs(3_600);

/// Store of files with signed links.
pub struct FileStore {
    objects: Arc<dyn ObjectStore>,
    /// Folder of the files, if they are not in a bucket.
    folder: Option<PathBuf>,
    signing_key: hmac::Key,
    clock: Arc<dyn Clock>,
    settings: ArcSwap<LinkSettings>,
}

/// Settings that a reload may change.
struct LinkSettings {
    public_url: String,
    lifetime: Duration,
    max_bytes: usize,
}

impl LinkSettings {
    fn from_config(config: &Config) -> Self {
        let (public_url, files) = (config.public_url.clone(), &config.files);
        Self { public_url, lifetime: files.retention, max_bytes: files.max_file_bytes }
    }
}

/// A stored file and its signed link.
#[derive(Clone, Debug)]
pub struct FileLink {
    /// File name, from which a new link can be created.
    pub name: String,
    /// Signed URL. It needs no other credentials.
    pub url: String,
    /// Expiry of file and link, in Unix seconds.
    pub expires_at: i64,
}

impl FileStore {
    /// Opens the configured folder or bucket. Links are signed with a key derived from `secret`.
    pub fn open(config: &Config, secret: &str, clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        let unusable = |folder: &PathBuf, e: &dyn std::fmt::Display| {
            anyhow::anyhow!("files.url: the folder {} cannot be used: {e}", folder.display())
        };
        let (objects, folder): (Arc<dyn ObjectStore>, _) = match &config.files.store {
            BlobStore::Folder(folder) => {
                std::fs::create_dir_all(folder).map_err(|e| unusable(folder, &e))?;
                let local =
                    LocalFileSystem::new_with_prefix(folder).map_err(|e| unusable(folder, &e))?;
                (Arc::new(local), Some(folder.clone()))
            }
            BlobStore::Bucket(bucket) => (Arc::clone(bucket), None),
        };
        Ok(Self {
            objects,
            folder,
            signing_key: derive_key(secret, "files"),
            clock,
            settings: ArcSwap::from_pointee(LinkSettings::from_config(config)),
        })
    }

    /// Applies a new configuration.
    pub fn reconfigure(&self, config: &Config) {
        self.settings.store(Arc::new(LinkSettings::from_config(config)));
    }

    /// Stores bytes for an account and returns a link to them.
    pub async fn put(
        &self,
        account: &str,
        bytes: Bytes,
        content_type: &str,
    ) -> Result<FileLink, ApiError> {
        let settings = self.settings.load();
        let (length, size) = (bytes.len(), settings.max_bytes);
        if length > size {
            let message = format!("{length} bytes are too many to be stored; the limit is {size}");
            return Err(ApiError::new(ErrorKind::Unavailable, message).without_retry());
        }
        let lifetime = i64::try_from(settings.lifetime.as_secs()).unwrap_or(i64::MAX);
        let expires = self.now_seconds().saturating_add(lifetime);
        let name = file_name::new_name(expires, content_type)
            .map_err(|e| ApiError::internal(e.to_string()))?;
        let path = Path::from(name.as_str());
        match tokio::time::timeout(TRANSFER_TIMEOUT, self.objects.put(&path, bytes.into())).await {
            Ok(Ok(_)) => {}
            Ok(Err(e)) => return Err(write_error(account, &e)),
            Err(e) => return Err(write_error(account, &e)),
        }
        tracing::debug!(account.id = account, file.bytes = length, "stored {length} bytes");
        Ok(self.link(&name, expires))
    }

    /// Signs a link to a stored file that expires at this Unix second.
    pub fn link(&self, name: &str, expires_at: i64) -> FileLink {
        let signature =
            URL_SAFE_NO_PAD.encode(hmac::sign(&self.signing_key, &signed_text(name, expires_at)));
        let base = &self.settings.load().public_url;
        let url = format!("{base}/files/{name}?expires={expires_at}&signature={signature}");
        FileLink { name: name.to_owned(), url, expires_at }
    }

    /// Verifies signature and expiry of a link and returns the parsed file name.
    pub fn verify_link<'a>(
        &self,
        name: &'a str,
        expires: &str,
        signature: &str,
    ) -> Result<FileName<'a>, ApiError> {
        let forged = || {
            let message =
                "this link is incomplete or not of this gateway; request the result again";
            ApiError::new(ErrorKind::Forbidden, message).with_code("wrong_signature")
        };
        let expires: i64 = expires.parse().map_err(|_| forged())?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| forged())?;
        let good = hmac::verify(&self.signing_key, &signed_text(name, expires), &signature).is_ok();
        let name = FileName::parse(name).filter(|_| good).ok_or_else(forged)?;
        if self.now_seconds() >= expires {
            let expired_at = jiff::Timestamp::from_second(expires);
            let expired_at = expired_at.map(|time| time.to_string()).unwrap_or_default();
            let message = format!(
                "this link expired at {expired_at}, and the file with it; generate it again"
            );
            return Err(ApiError::new(ErrorKind::Gone, message).with_code("link_expired"));
        }
        Ok(name)
    }

    /// Returns a file, or the range of it that `options` selects.
    pub async fn get(&self, name: &str, options: GetOptions) -> Result<GetResult, ApiError> {
        let path = Path::from(name);
        match tokio::time::timeout(TRANSFER_TIMEOUT, self.objects.get_opts(&path, options)).await {
            Ok(Ok(object)) => Ok(object),
            Ok(Err(object_store::Error::NotFound { .. })) => {
                Err(ApiError::new(ErrorKind::NotFound, "this file no longer exists"))
            }
            Ok(Err(e)) => Err(read_error(&e)),
            Err(e) => Err(read_error(&e)),
        }
    }

    /// Returns a whole file.
    pub async fn read(&self, name: &str) -> Result<Bytes, ApiError> {
        let object = self.get(name, GetOptions::default()).await?;
        match tokio::time::timeout(TRANSFER_TIMEOUT, object.bytes()).await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(e)) => Err(read_error(&e)),
            Err(e) => Err(read_error(&e)),
        }
    }

    /// Deletes a file before its expiry. A failed deletion is left to [`Self::sweep_expired`].
    pub async fn delete(&self, name: &str) {
        if let Err(e) = self.objects.delete(&Path::from(name)).await {
            tracing::debug!("a file could not be deleted before its expiry: {e}");
        }
    }

    /// Deletes expired files of all nodes and returns their number.
    pub async fn sweep_expired(&self) -> Result<usize, object_store::Error> {
        let now = self.now_seconds();
        let expired = self.objects.list(None).try_filter_map(|meta| async move {
            let name = meta.location.filename().and_then(FileName::parse);
            Ok(name.filter(|name| name.expires_at <= now).map(|_| meta.location.clone()))
        });
        let expired: Vec<Path> = expired.try_collect().await?;
        for path in &expired {
            match self.objects.delete(path).await {
                // Another node deleted it first.
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        if let Some(folder) = self.folder.clone() {
            let swept = tokio::task::spawn_blocking(move || sweep_torn(&folder)).await;
            if let Ok(Err(e)) = swept {
                tracing::warn!("partial files of a crashed process could not be deleted: {e}");
            }
        }
        Ok(expired.len())
    }

    fn now_seconds(&self) -> i64 {
        self.clock.now().as_secs()
    }
}

/// Derives a key for one purpose from the gateway's secret.
pub fn derive_key(secret: &str, purpose: &str) -> hmac::Key {
    let secret = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let derived = hmac::sign(&secret, format!("portunus {purpose}").as_bytes());
    hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref())
}

/// Text that the signature of a link covers.
fn signed_text(name: &str, expires: i64) -> Vec<u8> {
    format!("{name}\n{expires}").into_bytes()
}

/// Deletes partial files. The object store writes to a name with a `#` suffix before it renames the
/// file.
fn sweep_torn(folder: &PathBuf) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let torn = entry.file_name().to_string_lossy().contains('#');
        let age = entry.metadata().and_then(|meta| meta.modified()).map(|time| time.elapsed());
        if torn && matches!(age, Ok(Ok(age)) if age > TORN_FILE_AGE) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn write_error(account: &str, error: &(dyn std::error::Error + 'static)) -> ApiError {
    let full = std::iter::successors(Some(error), |e| e.source()).any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>();
        io.is_some_and(|io| {
            matches!(io.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
        })
    });
    let message = if full {
        "there is no room to store the result at the moment, retry later"
    } else {
        "the result cannot be kept at the moment, retry shortly"
    };
    let note = format!("a file of account {account} was not stored: {error}");
    ApiError::new(ErrorKind::Overloaded, message).with_log_note(note)
}

fn read_error(error: &dyn std::error::Error) -> ApiError {
    ApiError::new(ErrorKind::Overloaded, "files cannot be read at the moment, retry shortly")
        .with_log_note(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::Micros;
    use config::LoadOptions;
    use ledger::TestClock;

    const SECOND: Micros = Micros::from_secs(1);
    const HOUR: Micros = Micros::from_hours(1);

    struct FilesFixture {
        files: FileStore,
        clock: Arc<TestClock>,
        folder: PathBuf,
    }

    impl Drop for FilesFixture {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    fn fixture(config: &str) -> FilesFixture {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let folder = std::env::temp_dir().join(format!("portunus-files-{}", uuid::Uuid::now_v7()));
        let given = LoadOptions { file: None, listen_address: None, data_folder: folder.clone() };
        let config =
            Config::parse(config, std::path::Path::new("t"), &given, &|_| None).expect("a config");
        let clock = Arc::new(TestClock::at(Micros::from_secs(1_763_200_000)));
        let files = FileStore::open(&config, "secret", Arc::clone(&clock) as _).expect("a folder");
        FilesFixture { files, clock, folder: folder.join("files") }
    }

    /// Splits a link into name, expiry and signature.
    fn parts(link: &FileLink) -> (String, String, String) {
        let (_, rest) = link.url.split_once("/files/").unwrap();
        let (name, query) = rest.split_once("?expires=").unwrap();
        let (expires, signature) = query.split_once("&signature=").unwrap();
        (name.to_owned(), expires.to_owned(), signature.to_owned())
    }

    #[tokio::test]
    async fn link_opens_only_its_file_until_expiry() {
        let fixture = fixture("[files]\nkeep = \"2h\"");
        let files = &fixture.files;
        let link = files.put("ada", Bytes::from_static(b"\x89PNG"), "image/png").await.unwrap();
        let other = files.put("bob", Bytes::from_static(b"{}"), "text/html").await.unwrap();
        assert!(link.url.starts_with("http://127.0.0.1:8080/files/"), "{}", link.url);
        let (name, expires, signature) = parts(&link);
        let read = files.verify_link(&name, &expires, &signature).unwrap();
        assert_eq!((read.mime, read.is_raster_image()), ("image/png", true));
        assert_eq!(files.read(read.text).await.unwrap(), Bytes::from_static(b"\x89PNG"));
        let (other, ..) = parts(&other);
        let later = (link.expires_at + 1).to_string();
        for (name, expires, signature) in [
            (other.as_str(), expires.as_str(), signature.as_str()),
            (&name, &later, &signature),
            (&name, &expires, ""),
            (&name, "", &signature),
            ("../portunus.db", &expires, &signature),
        ] {
            let error = files.verify_link(name, expires, signature).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Forbidden, "{name} {expires} {signature}");
        }
        fixture.clock.pass(2 * HOUR - SECOND);
        assert!(files.verify_link(&name, &expires, &signature).is_ok());
        fixture.clock.pass(SECOND);
        let error = files.verify_link(&name, &expires, &signature).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Gone, Some("link_expired")));
    }

    #[tokio::test]
    async fn sweep_deletes_only_expired_files() {
        let fixture = fixture("[files]\nkeep = \"2h\"");
        let files = &fixture.files;
        let first = files.put("ada", Bytes::from_static(b"1"), "image/png").await.unwrap();
        fixture.clock.pass(HOUR);
        let second = files.put("ada", Bytes::from_static(b"2"), "image/png").await.unwrap();
        std::fs::write(fixture.folder.join("notes.txt"), "not ours").unwrap();
        assert_eq!(files.sweep_expired().await.unwrap(), 0);
        fixture.clock.pass(HOUR);
        assert_eq!(files.sweep_expired().await.unwrap(), 1);
        let gone = files.read(&first.name).await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::NotFound);
        assert_eq!(files.read(&second.name).await.unwrap(), Bytes::from_static(b"2"));
        files.delete(&second.name).await;
        assert!(files.read(&second.name).await.is_err());
        assert!(fixture.folder.join("notes.txt").exists());
    }

    #[tokio::test]
    async fn failed_write_returns_an_error() {
        let fixture = fixture("[files]\nsize = \"10\"");
        let large = fixture.files.put("ada", Bytes::from_static(&[0; 11]), "image/png").await;
        assert!(large.unwrap_err().message().contains("11 bytes"));
        std::fs::remove_dir_all(&fixture.folder).unwrap();
        std::fs::write(&fixture.folder, "a file where the folder was").unwrap();
        let error = fixture.files.put("ada", Bytes::from_static(b"1"), "image/png").await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Overloaded);
        std::fs::remove_file(&fixture.folder).unwrap();
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let full = object_store::Error::Generic { store: "files", source: full.into() };
        assert!(write_error("ada", &full).message().contains("no room"));
    }
}
