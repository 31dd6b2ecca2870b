//! Limits of the process itself: open files, and who may read what it writes.

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use std::path::Path;

/// Descriptors kept for the journal, the store, files, logs and listeners.
const RESERVED_DESCRIPTORS: u64 = 256;

/// Makes every file that the process creates readable by its user alone.
pub(crate) fn hide_new_files() {
    umask(Mode::from_raw_mode(0o077));
}

/// Takes a folder of an earlier version away from other users.
pub(crate) fn hide_folder(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut rights = std::fs::metadata(folder)?.permissions();
    if rights.mode() & 0o077 != 0 {
        rights.set_mode(rights.mode() & !0o077);
        std::fs::set_permissions(folder, rights)?;
    }
    Ok(())
}

/// Raises the limit of open files as far as the system allows. Returns how many connections of callers
/// fit: a call needs a descriptor on each side.
pub(crate) fn raise_open_files() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let allowed = if raised.is_ok() { maximum } else { current };
    let connections = allowed.map_or(u64::MAX, |all| all.saturating_sub(RESERVED_DESCRIPTORS) / 2);
    usize::try_from(connections.max(1)).unwrap_or(usize::MAX)
}
