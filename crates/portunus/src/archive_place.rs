//! Files of archived calls in a folder or a bucket. A file that was put is complete and durable.

use anyhow::Context as _;
use bytes::Bytes;
use config::{ArchivePlace, BlobStore};
use futures_util::TryStreamExt as _;
use object_store::ObjectStoreExt as _;
use object_store::path::Path as ObjectPath;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use crate::process_limits::hide_folder;

/// Puts a file, in place of one of the same name.
pub(crate) async fn put_file(place: &ArchivePlace, name: &str, bytes: Bytes) -> anyhow::Result<()> {
    let why = || format!("the archive {} cannot be written to {}", name, place.url);
    match &place.store {
        BlobStore::Folder(folder) => {
            let (folder, file) = (folder.clone(), name.to_owned());
            let writing = tokio::task::spawn_blocking(move || write_file(&folder, &file, &bytes));
            writing.await?.with_context(why)
        }
        // A bucket confirms an object after it is stored durably.
        BlobStore::Bucket(bucket) => {
            let put = bucket.put(&ObjectPath::from(name), bytes.into()).await;
            put.map(drop).with_context(why)
        }
    }
}

/// Writes a file under another name, syncs it, renames it and syncs the folder, so that a file with its name is
/// complete even after a power failure.
fn write_file(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    hide_folder(folder)?;
    let part = folder.join(format!("{name}.part"));
    let mut file = File::create(&part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&part, folder.join(name))?;
    File::open(folder)?.sync_all()
}

/// Reads a file; `None` if there is none.
pub(crate) async fn read_file(place: &ArchivePlace, name: &str) -> anyhow::Result<Option<Bytes>> {
    let why = || format!("the archive {} cannot be read from {}", name, place.url);
    match &place.store {
        BlobStore::Folder(folder) => match tokio::fs::read(folder.join(name)).await {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(why),
        },
        BlobStore::Bucket(bucket) => match bucket.get(&ObjectPath::from(name)).await {
            Ok(found) => Ok(Some(found.bytes().await.with_context(why)?)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(e).with_context(why),
        },
    }
}

/// Returns the names of all files.
pub(crate) async fn list_files(place: &ArchivePlace) -> anyhow::Result<Vec<String>> {
    let why = || format!("the archive {} cannot be listed", place.url);
    match &place.store {
        BlobStore::Folder(folder) => {
            let entries = match fs::read_dir(folder) {
                Ok(entries) => entries,
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                Err(e) => return Err(e).with_context(why),
            };
            let mut names = Vec::new();
            for entry in entries {
                names.push(entry.with_context(why)?.file_name().to_string_lossy().into_owned());
            }
            Ok(names)
        }
        BlobStore::Bucket(bucket) => {
            let objects: Vec<_> = bucket.list(None).try_collect().await.with_context(why)?;
            let names = objects.iter().filter_map(|object| object.location.filename());
            Ok(names.map(str::to_owned).collect())
        }
    }
}
