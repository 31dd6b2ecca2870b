//! Debian packages: an `ar` archive of two tar archives
//! (<https://manpages.debian.org/bookworm/dpkg-dev/deb.5.en.html>).

use anyhow::{Result, ensure};

use super::archive::{FileTree, PackedFile, gzip, tar};
use super::contents::{CONFIG_FILES, read};
use super::package::{PackageJob, VERSION};

/// Writes the package of one architecture.
pub(super) fn package(job: &PackageJob<'_>, files: &FileTree) -> Result<Vec<u8>> {
    let size: usize = files.values().filter_map(|file| file.bytes.as_ref()).map(Vec::len).sum();
    let mut control = FileTree::new();
    let description = format!(
        "Package: portunus\nVersion: {VERSION}\nArchitecture: {}\nMaintainer: Portunus <portunus@localhost>\n\
         Installed-Size: {}\nDepends: passwd\nRecommends: ca-certificates\nSection: net\n\
         Priority: optional\nDescription: model gateway\n One key, four request formats, every model, exact \
         money.\n",
        job.architecture.debian(),
        size.div_ceil(1024),
    );
    control.insert("control".to_owned(), PackedFile::text(description));
    let config_files = CONFIG_FILES.map(|path| format!("/{path}\n")).concat();
    control.insert("conffiles".to_owned(), PackedFile::text(config_files));
    for (name, script) in [
        ("postinst", "deploy/package/after-install.sh"),
        ("prerm", "deploy/package/before-remove.sh"),
        ("postrm", "deploy/package/after-remove.sh"),
    ] {
        control.insert(name.to_owned(), PackedFile::program(read(script)?));
    }
    let control = gzip(&tar(&control, "", job.epoch)?, job.level)?;
    let data = gzip(&tar(files, "", job.epoch)?, job.level)?;
    let mut package = b"!<arch>\n".to_vec();
    for (name, bytes) in [
        ("debian-binary", b"2.0\n".as_slice()),
        ("control.tar.gz", control.as_slice()),
        ("data.tar.gz", data.as_slice()),
    ] {
        append(&mut package, name, bytes, job.epoch)?;
    }
    Ok(package)
}

/// Appends a member: a header of 60 bytes, and an even number of bytes.
fn append(archive: &mut Vec<u8>, name: &str, bytes: &[u8], epoch: u64) -> Result<()> {
    let size = bytes.len();
    let header = format!("{name:<16}{epoch:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, "100644");
    ensure!(header.len() == 60, "{name} is too large for a package");
    archive.extend_from_slice(header.as_bytes());
    archive.extend_from_slice(bytes);
    if size % 2 == 1 {
        archive.push(b'\n');
    }
    Ok(())
}
