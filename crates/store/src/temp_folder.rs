//! Folder for intermediate results of SQLite.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Folders in which SQLite looks for one, behind two variables
/// (<https://www.sqlite.org/tempfiles.html#temporary_file_storage_locations>).
const USUAL: [&str; 4] = ["/var/tmp", "/usr/tmp", "/tmp", "."];

/// Returns true if SQLite finds a folder for its temporary files. A container or a service may have none.
pub(crate) fn has_temp_folder() -> bool {
    let named = ["SQLITE_TMPDIR", "TMPDIR"].into_iter().filter_map(std::env::var_os);
    is_any_usable(named.map(PathBuf::from).chain(USUAL.map(PathBuf::from)))
}

fn is_any_usable(mut folders: impl Iterator<Item = PathBuf>) -> bool {
    folders.any(|folder| is_usable(&folder))
}

fn is_usable(folder: &Path) -> bool {
    folder.is_dir() && access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_counts_and_neither_a_file_nor_nothing_does() {
        let file = std::env::temp_dir().join(format!("temp-folder-{}", std::process::id()));
        std::fs::write(&file, "").unwrap();
        let folders = |paths: &[&Path]| is_any_usable(paths.iter().map(|path| path.to_path_buf()));
        assert!(folders(&[Path::new("/nowhere"), &std::env::temp_dir()]));
        assert!(!folders(&[Path::new("/nowhere"), &file]));
        assert!(has_temp_folder());
        std::fs::remove_file(&file).unwrap();
    }
}
