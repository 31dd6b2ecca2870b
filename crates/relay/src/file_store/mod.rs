//! Files stored for a limited time and served through signed links, mostly generated images.
//!
//! Files are in a folder or an S3 bucket that all nodes share. A link holds the file name, its
//! expiry and an HMAC over both. Writes are atomic: a file appears under its name only when it is
//! complete. Files are sealed by a data key of the store if it has a vault.

mod file_name;
mod sealed_file;

pub use file_name::FileName;

use arc_swap::ArcSwap;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{Bytes, BytesMut};
use canon::{ApiError, ErrorKind};
use futures_util::{StreamExt as _, TryStreamExt as _};
use ledger::Clock;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, ObjectStore, ObjectStoreExt as _};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::{Store, StoreError, run_in_place};
use tokio::sync::Semaphore;

use config::{BlobStore, Config};

use sealed_file::{CHANGED_FILE, DamagedFile, FileCipher, FileHeader, FileStream, HEADER_BYTES};

/// Time limit for writing or reading a whole file.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest content that is opened completely before its first byte is sent.
const MAX_VERIFIED_BYTES: u64 = 8 << 20;
/// Memory for content that is opened and not sent yet, over all readers. While it is used up, content is
/// opened as it is sent.
const VERIFIED_BUFFER_BYTES: usize = 64 << 20;
/// Age at which a partial file of a crashed process is deleted.
const TORN_FILE_AGE: Duration = Duration::from_secs(3_600);

/// Store of files with signed links.
pub struct FileStore {
    objects: Arc<dyn ObjectStore>,
    /// Folder of the files, if they are not in a bucket.
    folder: Option<PathBuf>,
    signing_key: hmac::Key,
    /// Holds the keys that seal files.
    store: Store,
    /// Free bytes of [`VERIFIED_BUFFER_BYTES`].
    verified_buffer: Arc<Semaphore>,
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

/// The content of a file, or a part of it.
pub struct FileContent {
    /// Its length.
    pub length: u64,
    /// Its bytes.
    pub stream: FileStream,
}

/// A file that was found, and whose parts can be read.
pub struct FoundFile<'a> {
    files: &'a FileStore,
    path: Path,
    cipher: Option<FileCipher>,
    /// Size of its content.
    pub size: u64,
}

impl FileStore {
    /// Opens the configured folder or bucket. Links are signed with a key derived from `secret`.
    /// The store's data keys seal the files.
    pub fn open(
        config: &Config,
        secret: &str,
        clock: Arc<dyn Clock>,
        store: Store,
    ) -> anyhow::Result<Self> {
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
            store,
            verified_buffer: Arc::new(Semaphore::new(VERIFIED_BUFFER_BYTES)),
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
        let data_key = self.store.sealing_key().await.map_err(|e| write_error(account, &e))?;
        let name = file_name::new_name(expires, content_type, data_key.is_some())
            .map_err(|e| ApiError::internal(e.to_string()))?;
        let bytes = match data_key {
            Some(key) => run_in_place(length, || sealed_file::seal_file(&key, &name, &bytes))
                .map(Bytes::from)
                .ok_or_else(|| ApiError::internal("a file could not be sealed"))?,
            None => bytes,
        };
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

    /// Returns the whole content of a file. A damaged one is an error if its size permits, and breaks
    /// off otherwise.
    pub async fn get(&self, name: &str) -> Result<FileContent, ApiError> {
        let object = self.get_object(&Path::from(name), GetOptions::default()).await?;
        let stored_bytes = object.meta.size;
        let mut stream = object.into_stream();
        if !is_sealed(name) {
            return Ok(FileContent { length: stored_bytes, stream });
        }
        let mut buffer = BytesMut::new();
        let header = sealed_file::take_bytes(name, &mut stream, &mut buffer, HEADER_BYTES);
        let header = within_time(header).await?;
        let cipher = self.open_cipher(name, &header, stored_bytes).await?;
        let whole = 0..cipher.size;
        self.open_part(cipher, whole, stream, buffer).await
    }

    /// Opens a part of a file, as much of it at once as the memory permits.
    async fn open_part(
        &self,
        cipher: FileCipher,
        part: Range<u64>,
        stored: FileStream,
        head: BytesMut,
    ) -> Result<FileContent, ApiError> {
        let length = part.end.saturating_sub(part.start);
        let permits = u32::try_from(length).ok().filter(|_| length <= MAX_VERIFIED_BYTES);
        let memory = permits
            .and_then(|count| Arc::clone(&self.verified_buffer).try_acquire_many_owned(count).ok());
        let opened_bytes = if memory.is_some() { length } else { 0 };
        let stream = within_time(cipher.open_part(part, stored, head, opened_bytes)).await?;
        // The memory is free again when the reader has the content, or leaves.
        let stream = stream.inspect(move |_| {
            let _held = &memory;
        });
        Ok(FileContent { length, stream: stream.boxed() })
    }

    /// Finds a file, to read parts of it.
    pub async fn find(&self, name: &str) -> Result<FoundFile<'_>, ApiError> {
        let path = Path::from(name);
        if !is_sealed(name) {
            let head = GetOptions { head: true, ..GetOptions::default() };
            let size = self.get_object(&path, head).await?.meta.size;
            return Ok(FoundFile { files: self, path, cipher: None, size });
        }
        let header = match self.get_object(&path, part_options(0..HEADER_BYTES as u64)).await {
            Ok(header) => header,
            Err(error) => return Err(self.header_error(name, error).await),
        };
        let stored_bytes = header.meta.size;
        let header = within_time(header.bytes()).await?;
        let cipher = self.open_cipher(name, &header, stored_bytes).await?;
        Ok(FoundFile { files: self, path, size: cipher.size, cipher: Some(cipher) })
    }

    /// Returns the reason why a header cannot be read. An empty file has no such range.
    async fn header_error(&self, name: &str, error: ApiError) -> ApiError {
        let head = GetOptions { head: true, ..GetOptions::default() };
        match self.get_object(&Path::from(name), head).await {
            Ok(object) if object.meta.size == 0 => {
                object_error(&DamagedFile::report(name, "it is empty"))
            }
            Ok(_) | Err(_) => error,
        }
    }

    async fn open_cipher(
        &self,
        name: &str,
        header: &[u8],
        stored_bytes: u64,
    ) -> Result<FileCipher, ApiError> {
        let damaged = || object_error(&DamagedFile::report(name, CHANGED_FILE));
        let header = FileHeader::parse(header).ok_or_else(damaged)?;
        let data_key = self.store.data_key(&header.data_key).await.map_err(|e| match e {
            StoreError::Sealing(why) => sealed_error(why),
            other @ (StoreError::Unreachable(_)
            | StoreError::Conflict(_)
            | StoreError::Missing(_)
            | StoreError::Newer { .. }
            | StoreError::Other(_)) => read_error(&other),
        })?;
        FileCipher::open(&data_key, &header, name, stored_bytes).ok_or_else(damaged)
    }

    async fn get_object(&self, path: &Path, options: GetOptions) -> Result<GetResult, ApiError> {
        match tokio::time::timeout(TRANSFER_TIMEOUT, self.objects.get_opts(path, options)).await {
            Ok(Ok(object)) => Ok(object),
            Ok(Err(object_store::Error::NotFound { .. })) => {
                Err(ApiError::new(ErrorKind::NotFound, "this file no longer exists"))
            }
            Ok(Err(e)) => Err(object_error(&e)),
            Err(e) => Err(read_error(&e)),
        }
    }

    /// Returns a whole file.
    pub async fn read(&self, name: &str) -> Result<Bytes, ApiError> {
        let FileContent { length, stream } = self.get(name).await?;
        let mut all = BytesMut::with_capacity(usize::try_from(length).unwrap_or_default());
        let reading = stream.try_for_each(|bytes| {
            all.extend_from_slice(&bytes);
            std::future::ready(Ok(()))
        });
        within_time(reading).await?;
        Ok(all.freeze())
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

impl FoundFile<'_> {
    /// Reads a part of the content, within its size.
    pub async fn read_part(self, part: Range<u64>) -> Result<FileContent, ApiError> {
        let length = part.end.saturating_sub(part.start);
        let Self { files, path, cipher, .. } = self;
        let stored = cipher.as_ref().map_or_else(|| part.clone(), |own| own.stored_range(&part));
        let stream = files.get_object(&path, part_options(stored)).await?.into_stream();
        match cipher {
            Some(cipher) => files.open_part(cipher, part, stream, BytesMut::new()).await,
            None => Ok(FileContent { length, stream }),
        }
    }
}

fn part_options(part: Range<u64>) -> GetOptions {
    GetOptions { range: Some(GetRange::Bounded(part)), ..GetOptions::default() }
}

/// The name tells if a file is sealed, so that nobody can put another one in its place unsealed.
fn is_sealed(name: &str) -> bool {
    FileName::parse(name).is_some_and(|name| name.is_sealed)
}

async fn within_time<T>(
    reading: impl Future<Output = object_store::Result<T>>,
) -> Result<T, ApiError> {
    match tokio::time::timeout(TRANSFER_TIMEOUT, reading).await {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(e)) => Err(object_error(&e)),
        Err(e) => Err(read_error(&e)),
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

/// Error of a file that does not open. A retry cannot help; the operator reads the reason in the log.
fn sealed_error(why: String) -> ApiError {
    let message = "this file cannot be decrypted; ask the operator of the gateway";
    ApiError::new(ErrorKind::Unavailable, message)
        .without_retry()
        .with_log_note(format!("a file cannot be opened: {why}"))
}

/// Error of a read. The log has named a damaged file.
fn object_error(error: &object_store::Error) -> ApiError {
    let Some(damage) = DamagedFile::in_error(error) else { return read_error(error) };
    let message = "this file is damaged; generate it again, or ask the operator of the gateway";
    ApiError::new(ErrorKind::Unavailable, message).without_retry().with_log_note(damage.to_string())
}

fn read_error(error: &dyn std::error::Error) -> ApiError {
    ApiError::new(ErrorKind::Overloaded, "files cannot be read at the moment, retry shortly")
        .with_log_note(error.to_string())
}

#[cfg(test)]
mod tests;
