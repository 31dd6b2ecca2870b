//! The container image: unpacked by its own index, and started without anything else.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use serde_json::Value;

use super::succeed;
use crate::dist;
use crate::gateway::{Server, free_address};
use crate::process::Signal;
use crate::tools;

/// Files of an image layout by their path.
struct ImageLayout(BTreeMap<String, Vec<u8>>);

impl ImageLayout {
    fn read(bytes: &[u8]) -> Result<Self> {
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(bytes).entries()? {
            let mut entry = entry?;
            let path = entry.path()?.display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            files.insert(path, content);
        }
        Ok(Self(files))
    }

    fn json(&self, path: &str) -> Result<Value> {
        let bytes = self.0.get(path).with_context(|| format!("the image has no {path}"))?;
        Ok(serde_json::from_slice(bytes)?)
    }

    /// Returns the blob of a descriptor, after a look at its size and digest.
    fn blob(&self, descriptor: &Value) -> Result<&[u8]> {
        let digest = descriptor.get("digest").and_then(Value::as_str).unwrap_or_default();
        let digest = digest.strip_prefix("sha256:").context("a descriptor without a digest")?;
        let blob = self.0.get(&format!("blobs/sha256/{digest}")).context("a blob is missing")?;
        let size = descriptor.get("size").and_then(Value::as_u64);
        ensure!(size == u64::try_from(blob.len()).ok(), "a descriptor tells another size");
        ensure!(dist::sha256(blob) == digest, "a blob has another digest");
        Ok(blob)
    }

    /// Returns the manifests of all architectures.
    fn manifests(&self) -> Result<Vec<Value>> {
        let index = self.json("index.json")?;
        let image = index.pointer("/manifests/0").context("an empty index")?;
        let image: Value = serde_json::from_slice(self.blob(image)?)?;
        let manifests = image.get("manifests").and_then(Value::as_array);
        Ok(manifests.context("an image without manifests")?.clone())
    }
}

/// Checks that the index has both architectures, and that every descriptor is right.
pub(super) fn has_both_architectures(bytes: &[u8]) -> Result<()> {
    let layout = ImageLayout::read(bytes)?;
    let mut found = Vec::new();
    for descriptor in layout.manifests()? {
        let text = descriptor.pointer("/platform/architecture").and_then(Value::as_str);
        found.push(text.unwrap_or_default().to_owned());
        let manifest: Value = serde_json::from_slice(layout.blob(&descriptor)?)?;
        let config = manifest.get("config").context("a manifest without config")?;
        let config: Value = serde_json::from_slice(layout.blob(config)?)?;
        let layers = manifest.get("layers").and_then(Value::as_array).context("no layers")?;
        for (number, layer) in layers.iter().enumerate() {
            let mut plain = Vec::new();
            GzDecoder::new(layout.blob(layer)?).read_to_end(&mut plain)?;
            let id = config.pointer(&format!("/rootfs/diff_ids/{number}")).and_then(Value::as_str);
            let expected = format!("sha256:{}", dist::sha256(&plain));
            ensure!(id == Some(expected.as_str()), "a layer has another id");
        }
    }
    ensure!(found == ["amd64", "arm64"], "the image is for {found:?}");
    Ok(())
}

/// Unpacks the image, and runs it as its user in nothing but its own files.
pub(super) fn run(scratch: &Path, image: &[u8]) -> Result<()> {
    let layout = ImageLayout::read(image)?;
    let manifests = layout.manifests()?;
    let manifest = manifests.first().context("an image without manifests")?;
    let manifest: Value = serde_json::from_slice(layout.blob(manifest)?)?;
    let config = manifest.get("config").context("a manifest without config")?;
    let config: Value = serde_json::from_slice(layout.blob(config)?)?;
    let root = scratch.join("image");
    for layer in manifest.get("layers").and_then(Value::as_array).context("no layers")? {
        let mut layer = tar::Archive::new(GzDecoder::new(layout.blob(layer)?));
        layer.set_preserve_permissions(true);
        layer.set_preserve_ownerships(true);
        layer.unpack(&root)?;
    }
    add_random_devices(&root)?;
    let texts = |pointer: &str| -> Vec<String> {
        let list = config.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let user = config.pointer("/config/User").and_then(Value::as_str).unwrap_or("0:0");
    ensure!(user != "0:0", "the image runs as root");
    let entry = texts("/config/Entrypoint");
    let command = |root: &Path, arguments: &[&str]| -> Result<Command> {
        let chroot = tools::find("chroot").context("chroot is missing")?;
        let mut command = Command::new(chroot);
        command.arg(format!("--userspec={user}")).arg(root).args(&entry).args(arguments);
        // Variables of this machine may name certificates that are not there.
        command.env_clear();
        command.envs(texts("/config/Env").iter().filter_map(|line| line.split_once('=')));
        // No load balancer stands before it.
        command.env("PORTUNUS_SERVER_LINGER", "0s");
        Ok(command)
    };
    let check = succeed(&mut command(&root, &["check"])?)?;
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    ensure!(!said.contains("root certificates"), "the image has no certificates: {said}");
    let address = free_address()?;
    let log = scratch.join("image.log");
    let mut serve = command(&root, &["serve", "--listen", &address.to_string()])?;
    let server = Server::start("the image", &mut serve, address, "/readyz", &log)?;
    ensure!(server.running.stop(Signal::Term)?.success(), "the image did not end well");
    bare(scratch, &root, &command)
}

/// Adds the devices that every container has. The static glibc of this test reads them, because it does not
/// find `getrandom`; the musl of the programs to hand out needs none.
fn add_random_devices(root: &Path) -> Result<()> {
    fs::create_dir_all(root.join("dev"))?;
    for (name, minor) in [("random", "8"), ("urandom", "9")] {
        let mut mknod = Command::new("mknod");
        mknod.arg("--mode=666").arg(root.join("dev").join(name)).args(["c", "1", minor]);
        succeed(&mut mknod)?;
    }
    Ok(())
}

/// The program alone in an empty folder: without certificates, time zones, users and a folder for
/// temporary files. The database is made there.
fn bare(
    scratch: &Path,
    image: &Path,
    command: &dyn Fn(&Path, &[&str]) -> Result<Command>,
) -> Result<()> {
    let root = scratch.join("bare");
    let data = "var/lib/portunus";
    fs::create_dir_all(root.join("usr/bin"))?;
    fs::rename(image.join("usr/bin/portunus"), root.join("usr/bin/portunus"))?;
    fs::create_dir_all(root.join(data))?;
    let owner = fs::metadata(image.join(data))?;
    chown(root.join(data), Some(owner.uid()), Some(owner.gid()))?;
    add_random_devices(&root)?;
    let check = succeed(&mut command(&root, &["check"])?)?;
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    ensure!(said.contains("Mozilla's list"), "the built-in certificates are not told: {said}");
    let address = free_address()?;
    let log = scratch.join("bare.log");
    let mut serve = command(&root, &["serve", "--listen", &address.to_string()])?;
    let server = Server::start("a bare folder", &mut serve, address, "/readyz", &log)?;
    let text = server.running.log_text()?;
    let lines = text.lines().filter(|line| line.contains("root certificates")).count();
    ensure!(lines == 1, "certificates are told in {lines} lines:\n{text}");
    ensure!(server.running.stop(Signal::Term)?.success(), "the program did not end well");
    Ok(())
}
