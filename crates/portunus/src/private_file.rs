//! Files with secrets.

use std::fs::{File, OpenOptions, Permissions, remove_file, rename};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Rights of the owner alone.
const PRIVATE_MODE: u32 = 0o600;

/// Replaces a file by a new one for its owner alone. Neither the rights of an earlier file nor the target of a
/// link at its place matter: the new one is written under another name and renamed.
pub(crate) fn replace(file: &Path, text: &str) -> io::Result<()> {
    let name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut part_name = name.to_owned();
    part_name.push(".new");
    let part = file.with_file_name(part_name);
    // One that a killed process left.
    match remove_file(&part) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Ok(()) | Err(_) => {}
    }
    let written = write_new(&part, text).and_then(|()| rename(&part, file));
    if written.is_err() {
        // The error that is returned says more.
        let _ = remove_file(&part);
    }
    written?;
    match file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}

fn write_new(file: &Path, text: &str) -> io::Result<()> {
    let mut opened =
        OpenOptions::new().write(true).create_new(true).mode(PRIVATE_MODE).open(file)?;
    // The mask of the process may have taken rights of the owner.
    opened.set_permissions(Permissions::from_mode(PRIVATE_MODE))?;
    opened.write_all(text.as_bytes())?;
    opened.sync_all()
}
