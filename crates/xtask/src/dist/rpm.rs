//! RPM packages.

use anyhow::{Context, Result};
use rpm::{BuildConfig, CompressionWithLevel, Dependency, FileOptions, PackageBuilder, Scriptlet};

use super::archive::{FileTree, PackedFile};
use super::contents::{CONFIG_FILES, read};
use super::package::{PackageJob, VERSION};

/// Writes the package of one architecture.
pub(super) fn package(job: &PackageJob<'_>, files: &FileTree) -> Result<Vec<u8>> {
    let script = |path: &str| -> Result<Scriptlet> {
        let text = String::from_utf8(read(path)?).with_context(|| format!("{path} is no text"))?;
        Ok(Scriptlet::new(text))
    };
    let config = BuildConfig::default()
        .compression(CompressionWithLevel::Xz(job.level))
        .source_date(u32::try_from(job.epoch)?);
    let mut builder = PackageBuilder::new(
        "portunus",
        VERSION,
        "Apache-2.0",
        job.architecture.machine(),
        "Model gateway: one key, four request formats, every model, exact money",
    );
    builder
        .using_config(config)
        .release("1")
        .build_host("portunus")
        // Its name in Fedora, and in SUSE.
        .requires(Dependency::script_post("(shadow-utils or shadow)"))
        .recommends(Dependency::any("ca-certificates"))
        .post_install_script(script("deploy/package/after-install.sh")?)
        .pre_uninstall_script(script("deploy/package/before-remove.sh")?)
        .post_uninstall_script(script("deploy/package/after-remove.sh")?);
    for (path, file) in files {
        let PackedFile { mode, bytes, .. } = file;
        let place = format!("/{path}");
        // The script makes the data folder. If it were listed, an upgrade would give it to root until the
        // script runs, and a running gateway could write no file in the meantime.
        let Some(bytes) = bytes else { continue };
        let options = FileOptions::new(place).permissions(u16::try_from(*mode)?);
        let is_config = CONFIG_FILES.contains(&path.as_str());
        let options = if is_config { options.config().noreplace() } else { options };
        builder.with_file_contents(bytes.as_slice(), options)?;
    }
    let package = builder.build().context("writing the RPM package")?;
    let mut bytes = Vec::new();
    package.write(&mut bytes)?;
    Ok(bytes)
}
