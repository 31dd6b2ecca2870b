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

/// Numbers for which the process has open files.
#[derive(Clone, Copy)]
pub(crate) struct ProcessRoom {
    /// Connections of callers.
    pub(crate) connections: usize,
    /// Running calls. One connection can carry hundreds, and each needs a connection to a provider,
    /// while earlier ones are kept open.
    pub(crate) calls: usize,
}

/// Raises the limit of open files as far as the system allows. Half of them are for the connections of
/// callers, a quarter for running calls, the rest for connections to providers that are kept open.
pub(crate) fn raise_open_files() -> ProcessRoom {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let allowed = if raised.is_ok() { maximum } else { current };
    let room = allowed.map_or(u64::MAX, |all| all.saturating_sub(RESERVED_DESCRIPTORS));
    let part = |of: u64| usize::try_from((room / of).max(1)).unwrap_or(usize::MAX);
    ProcessRoom { connections: part(2), calls: part(4) }
}
