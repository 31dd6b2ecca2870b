//! A container image for both architectures, as an OCI image layout in a tar archive
//! (<https://github.com/opencontainers/image-spec/blob/main/image-layout.md>). No daemon is needed.

use std::collections::BTreeMap;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::architecture::Architecture;
use super::archive::{FileTree, PackedFile, gzip, sha256, tar};
use super::commit::SourceCommit;
use super::package::{PackageLevel, VERSION};

/// User of the image. The number is that of other images without root.
const USER: u64 = 65_532;

/// Blobs by their digest.
#[derive(Default)]
struct ImageBlobs(BTreeMap<String, Vec<u8>>);

impl ImageBlobs {
    /// Adds a blob and returns its descriptor.
    fn add(&mut self, kind: &str, bytes: Vec<u8>) -> Value {
        let digest = sha256(&bytes);
        let media_type = format!("application/vnd.oci.image.{kind}");
        let descriptor = json!({
            "mediaType": media_type,
            "digest": format!("sha256:{digest}"),
            "size": bytes.len(),
        });
        self.0.insert(digest, bytes);
        descriptor
    }
}

/// Writes the image of these binaries.
pub(super) fn image(
    binaries: &[(Architecture, Vec<u8>)],
    commit: &SourceCommit,
    level: PackageLevel,
) -> Result<Vec<u8>> {
    let mut blobs = ImageBlobs::default();
    let base = tar(&base_files(), "", commit.epoch)?;
    let base_id = format!("sha256:{}", sha256(&base));
    let base = blobs.add("layer.v1.tar+gzip", gzip(&base, level.0)?);
    let created = jiff::Timestamp::from_second(i64::try_from(commit.epoch)?)?.to_string();
    let labels = json!({
        "org.opencontainers.image.title": "portunus",
        "org.opencontainers.image.version": VERSION,
        "org.opencontainers.image.revision": commit.id,
        "org.opencontainers.image.licenses": "Apache-2.0",
    });
    let mut manifests = Vec::new();
    for (architecture, binary) in binaries {
        let program = ("usr/bin/portunus".to_owned(), PackedFile::program(binary.clone()));
        let layer = tar(&FileTree::from([program]), "", commit.epoch)?;
        let layer_id = format!("sha256:{}", sha256(&layer));
        let layer = blobs.add("layer.v1.tar+gzip", gzip(&layer, level.0)?);
        let config = json!({
            "created": created,
            "architecture": architecture.debian(),
            "os": "linux",
            "config": {
                "User": format!("{USER}:{USER}"),
                "ExposedPorts": { "8080/tcp": {} },
                "Env": [
                    "PATH=/usr/bin",
                    "PORTUNUS_DATA=/var/lib/portunus",
                    "PORTUNUS_SERVER_LISTEN=0.0.0.0:8080",
                ],
                "Entrypoint": ["/usr/bin/portunus"],
                "Volumes": { "/var/lib/portunus": {} },
                "WorkingDir": "/var/lib/portunus",
                "StopSignal": "SIGTERM",
                "Labels": labels,
            },
            "rootfs": { "type": "layers", "diff_ids": [base_id, layer_id] },
            "history": [
                { "created": created, "created_by": "root certificates and user" },
                { "created": created, "created_by": "program" },
            ],
        });
        let config = blobs.add("config.v1+json", serde_json::to_vec(&config)?);
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": [base, layer],
            "annotations": labels,
        });
        let mut manifest = blobs.add("manifest.v1+json", serde_json::to_vec(&manifest)?);
        if let Some(descriptor) = manifest.as_object_mut() {
            let platform = json!({ "architecture": architecture.debian(), "os": "linux" });
            descriptor.insert("platform".to_owned(), platform);
        }
        manifests.push(manifest);
    }
    let image = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": manifests,
    });
    let mut image = blobs.add("index.v1+json", serde_json::to_vec(&image)?);
    if let Some(descriptor) = image.as_object_mut() {
        // `docker load` and `podman load` give the image this name.
        let name = json!({
            "org.opencontainers.image.ref.name": VERSION,
            "io.containerd.image.name": format!("docker.io/library/portunus:{VERSION}"),
        });
        descriptor.insert("annotations".to_owned(), name);
    }
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [image],
    });
    let mut files = FileTree::new();
    let layout = json!({ "imageLayoutVersion": "1.0.0" });
    files.insert("oci-layout".to_owned(), PackedFile::text(serde_json::to_vec(&layout)?));
    files.insert("index.json".to_owned(), PackedFile::text(serde_json::to_vec(&index)?));
    for (digest, bytes) in blobs.0 {
        files.insert(format!("blobs/sha256/{digest}"), PackedFile::text(bytes));
    }
    tar(&files, "", commit.epoch)
}

/// Files beside the program: its user, its folders, and Mozilla's root certificates.
fn base_files() -> FileTree {
    let user = format!("portunus:x:{USER}:{USER}:Portunus:/var/lib/portunus:/sbin/nologin\n");
    let data = PackedFile { owner: USER, ..PackedFile::folder(0o700) };
    FileTree::from([
        ("etc/passwd".to_owned(), PackedFile::text(user)),
        ("etc/group".to_owned(), PackedFile::text(format!("portunus:x:{USER}:\n"))),
        ("etc/ssl/certs/ca-certificates.crt".to_owned(), PackedFile::text(root_certificates())),
        ("tmp".to_owned(), PackedFile::folder(0o1777)),
        ("var/lib/portunus".to_owned(), data),
    ])
}

/// Returns Mozilla's root certificates in PEM.
fn root_certificates() -> String {
    let mut text = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = STANDARD.encode(certificate);
        let mut rest = encoded.as_str();
        while let Some((line, more)) = rest.split_at_checked(64) {
            text.push_str(line);
            text.push('\n');
            rest = more;
        }
        if !rest.is_empty() {
            text.push_str(rest);
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}
