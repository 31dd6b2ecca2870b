//! Archives whose bytes depend on their content only: sorted, with fixed owners and times.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::Result;
use aws_lc_rs::digest::{SHA256, digest};
use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};

/// A file or folder in a package.
#[derive(Clone, Debug)]
pub(super) struct PackedFile {
    pub(super) mode: u32,
    /// Owner and group.
    pub(super) owner: u64,
    /// Bytes; `None` is a folder.
    pub(super) bytes: Option<Vec<u8>>,
}

impl PackedFile {
    /// A file that everybody may read.
    pub(super) fn text(bytes: impl Into<Vec<u8>>) -> Self {
        Self { mode: 0o644, owner: 0, bytes: Some(bytes.into()) }
    }

    /// A program.
    pub(super) fn program(bytes: impl Into<Vec<u8>>) -> Self {
        Self { mode: 0o755, ..Self::text(bytes) }
    }

    /// A folder.
    pub(super) const fn folder(mode: u32) -> Self {
        Self { mode, owner: 0, bytes: None }
    }
}

/// Files by their path without a leading slash.
pub(super) type FileTree = BTreeMap<String, PackedFile>;

/// Returns the folders above all files that the tree does not name itself.
fn with_parents(tree: &FileTree) -> FileTree {
    let mut all = tree.clone();
    for path in tree.keys() {
        let mut parent = path.as_str();
        while let Some((above, _)) = parent.rsplit_once('/') {
            all.entry(above.to_owned()).or_insert_with(|| PackedFile::folder(0o755));
            parent = above;
        }
    }
    all
}

/// Writes a tar archive. Names begin with the prefix.
pub(super) fn tar(tree: &FileTree, prefix: &str, epoch: u64) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, file) in with_parents(tree) {
        let mut header = Header::new_gnu();
        header.set_mode(file.mode);
        header.set_uid(file.owner);
        header.set_gid(file.owner);
        header.set_mtime(epoch);
        let bytes = file.bytes.as_deref();
        let (kind, end) =
            if bytes.is_some() { (EntryType::Regular, "") } else { (EntryType::Directory, "/") };
        header.set_entry_type(kind);
        let bytes = bytes.unwrap_or_default();
        header.set_size(u64::try_from(bytes.len())?);
        archive.append_data(&mut header, format!("{prefix}{path}{end}"), bytes)?;
    }
    Ok(archive.into_inner()?)
}

/// Compresses bytes, without a name and a time.
pub(super) fn gzip(bytes: &[u8], level: u32) -> Result<Vec<u8>> {
    let builder = GzBuilder::new().mtime(0).operating_system(255);
    let mut writer = builder.write(Vec::new(), Compression::new(level));
    writer.write_all(bytes)?;
    Ok(writer.finish()?)
}

/// Returns the SHA-256 in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_sorted_and_have_their_folders_once() {
        let mut tree = FileTree::new();
        tree.insert("usr/bin/b".into(), PackedFile::program("b"));
        tree.insert("usr/bin/a".into(), PackedFile::text("a"));
        tree.insert("usr".into(), PackedFile::folder(0o700));
        let bytes = tar(&tree, "top/", 7).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.mtime().unwrap()), (0, 7));
            (entry.path().unwrap().display().to_string(), header.mode().unwrap())
        });
        let expected = [("top/usr/", 0o700), ("top/usr/bin/", 0o755), ("top/usr/bin/a", 0o644)];
        let mut expected: Vec<_> = expected.map(|(path, mode)| (path.to_owned(), mode)).to_vec();
        expected.push(("top/usr/bin/b".to_owned(), 0o755));
        assert_eq!(entries.collect::<Vec<_>>(), expected);
        assert_eq!(gzip(&bytes, 6).unwrap(), gzip(&bytes, 6).unwrap());
    }

    #[test]
    fn checksums_are_those_of_the_standard() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc"), abc);
    }
}
