//! Storage location and retention of files.

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt as _, RetryConfig, path};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use transport::Outbound;

use crate::bucket_client::BucketConnector;
use crate::error::FieldError;
use crate::raw::RawFiles;
use crate::units::{self, parse_duration};

/// Variables of S3 clients, used for settings that the configuration does not name.
const AWS_VARIABLES: [&str; 13] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];

/// Time that a failing bucket is retried. A caller waits meanwhile.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a bucket may take to answer a health check.
const PROBE_TIMEOUT: Duration = Duration::from_secs(4);

/// Storage of files for callers.
#[derive(Clone, Debug)]
pub struct FileStorage {
    /// Place the files are stored in.
    pub store: BlobStore,
    /// The place as configured, to detect a change on reload.
    pub url: String,
    /// Time a file and its link stay valid.
    pub retention: Duration,
    /// Largest stored file.
    pub max_file_bytes: usize,
}

/// Place that files are stored in.
#[derive(Clone)]
pub enum BlobStore {
    /// A folder of this machine.
    Folder(PathBuf),
    /// An S3 bucket.
    Bucket(Arc<dyn ObjectStore>),
}

/// Omits the bucket, which holds its credentials.
impl fmt::Debug for BlobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => write!(f, "Folder({})", folder.display()),
            Self::Bucket(_) => f.write_str("Bucket(…)"),
        }
    }
}

/// Name that is looked for to see if a bucket answers. Nothing has it.
const PROBED_NAME: &str = "portunus-health-check";

impl BlobStore {
    /// Checks that the files can be reached: the folder is one and can be written, or the bucket answers. A folder that
    /// does not exist is created with the first file.
    pub async fn probe(&self) -> Result<(), String> {
        match self {
            Self::Folder(folder) => probe_folder(folder).await,
            Self::Bucket(bucket) => {
                let name = path::Path::from(PROBED_NAME);
                match tokio::time::timeout(PROBE_TIMEOUT, bucket.head(&name)).await {
                    Ok(Ok(_) | Err(object_store::Error::NotFound { .. })) => Ok(()),
                    Ok(Err(e)) => Err(format!("the bucket refuses: {e}")),
                    Err(_) => Err("the bucket gave no answer in time".to_owned()),
                }
            }
        }
    }
}

/// Checks that a folder can be written; one that does not exist, that it can be created.
async fn probe_folder(folder: &Path) -> Result<(), String> {
    for one in folder.ancestors() {
        let one = if one.as_os_str().is_empty() { Path::new(".") } else { one };
        match tokio::fs::metadata(one).await {
            Ok(found) if found.is_dir() => {
                let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
                let allowed = rustix::fs::access(one, access);
                return allowed.map_err(|e| format!("{} cannot be written: {e}", one.display()));
            }
            Ok(_) => return Err(format!("{} is not a folder", one.display())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("{} cannot be read: {e}", one.display())),
        }
    }
    Ok(())
}

/// Checks `[files]`.
pub(super) fn check(
    raw: RawFiles,
    data: &Path,
    outbound: &Outbound,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<FileStorage, FieldError> {
    let retention = raw.keep.as_deref().map_or(Ok(Duration::from_secs(86_400)), parse_duration);
    let retention = retention.map_err(|why| FieldError::new("files.keep", why))?;
    if retention < Duration::from_secs(1) {
        return Err(FieldError::new("files.keep", "must be at least a second"));
    }
    let max_file_bytes = raw.size.as_deref().map_or(Ok(64 << 20), units::parse_size);
    let max_file_bytes = max_file_bytes.map_err(|why| FieldError::new("files.size", why))?;
    let url = raw.url.clone().unwrap_or_else(|| format!("file:{}", data.join("files").display()));
    let store = open_place("files", "url", &raw, &url, outbound, env)?;
    Ok(FileStorage { store, url, retention, max_file_bytes })
}

/// Opens a folder (`file:…`) or a bucket (`s3://…`). Errors name the section and the key with the address.
pub(crate) fn open_place(
    section: &str,
    key: &str,
    raw: &RawFiles,
    url: &str,
    outbound: &Outbound,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<BlobStore, FieldError> {
    let path = format!("{section}.{key}");
    if let Some(folder) = url.strip_prefix("file:") {
        let folder = folder.strip_prefix("//").unwrap_or(folder);
        if folder.is_empty() {
            return Err(FieldError::new(&path, "a folder must follow `file:`"));
        }
        let set = [
            ("endpoint", raw.endpoint.is_some()),
            ("region", raw.region.is_some()),
            ("access_key", raw.access_key.is_some()),
            ("secret_key", raw.secret_key.is_some()),
        ];
        if let Some((name, _)) = set.iter().find(|(_, set)| *set) {
            return Err(FieldError::new(
                format_args!("{section}.{name}"),
                "only a bucket (s3://…) has one",
            ));
        }
        Ok(BlobStore::Folder(folder.into()))
    } else if let Some(location) = url.strip_prefix("s3://") {
        Ok(BlobStore::Bucket(open_bucket(section, &path, raw, location, outbound, env)?))
    } else {
        Err(FieldError::new(
            &path,
            format_args!(
                "`{url}` is not a storage location; write \"file:data/{section}\" or \"s3://bucket/prefix\""
            ),
        ))
    }
}

fn open_bucket(
    section: &str,
    path: &str,
    raw: &RawFiles,
    location: &str,
    outbound: &Outbound,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Arc<dyn ObjectStore>, FieldError> {
    let (name, prefix) = location.split_once('/').unwrap_or((location, ""));
    if name.len() < 3 {
        return Err(FieldError::new(path, "the name of a bucket has at least three letters"));
    }
    let prefix =
        path::Path::parse(prefix.trim_matches('/')).map_err(|e| FieldError::new(path, e))?;
    let mut builder = AmazonS3Builder::new();
    for variable in AWS_VARIABLES {
        let key = variable.to_ascii_lowercase().parse::<AmazonS3ConfigKey>();
        if let (Some(value), Ok(key)) = (env(variable).filter(|v| !v.trim().is_empty()), key) {
            builder = builder.with_config(key, value.trim());
        }
    }
    if let Some(endpoint) = &raw.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(region) = &raw.region {
        builder = builder.with_region(region);
    }
    if let Some(secret) = &raw.access_key {
        let id = secret
            .resolve(env)
            .map_err(|why| FieldError::new(format_args!("{section}.access_key"), why))?;
        builder = builder.with_access_key_id(id);
    }
    if let Some(secret) = &raw.secret_key {
        let key = secret
            .resolve(env)
            .map_err(|why| FieldError::new(format_args!("{section}.secret_key"), why))?;
        builder = builder.with_secret_access_key(key);
    }
    let bucket = builder
        .with_bucket_name(name)
        // The operator decides if an endpoint has TLS.
        .with_allow_http(true)
        .with_http_connector(BucketConnector(outbound.clone()))
        .with_retry(RetryConfig {
            max_retries: 3,
            retry_timeout: RETRY_TIMEOUT,
            ..RetryConfig::default()
        })
        .build()
        .map_err(|e| FieldError::new(section, e))?;
    Ok(Arc::new(PrefixStore::new(bucket, prefix)))
}
