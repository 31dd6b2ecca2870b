//! A small file system for tests of a full disk.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system, gone with the value.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one, which takes root; without it there is none.
    pub(crate) fn mount(at: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let size = format!("size={size}");
        let mut mount = Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).output();
        mount.is_ok_and(|done| done.status.success()).then(|| Self(at.to_owned()))
    }

    /// Fills it up; the value is where the filling is.
    pub(crate) fn fill(&self) -> PathBuf {
        let filling = self.0.join("filling");
        let mut file = std::fs::File::create(&filling).unwrap();
        while file.write_all(&[0; 1_024]).is_ok() {}
        filling
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}
