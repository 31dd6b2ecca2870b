//! The configuration as it stands in the file. Unknown keys refuse to start.

use catalog::{Palette, Path, PriceList, Quirks};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(crate) use super::secret::Secret;

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawConfig {
    pub(crate) server: RawServer,
    pub(crate) store: RawStore,
    pub(crate) shared: Option<RawShared>,
    pub(crate) files: RawFiles,
    pub(crate) tasks: RawTasks,
    pub(crate) mail: Option<RawMail>,
    pub(crate) identity: BTreeMap<String, RawIdentity>,
    pub(crate) timeouts: RawTimeouts,
    pub(crate) limits: RawLimits,
    pub(crate) telemetry: Option<RawTelemetry>,
    pub(crate) outbound: RawOutbound,
    pub(crate) media: RawMedia,
    pub(crate) providers: BTreeMap<String, RawProvider>,
    pub(crate) models: BTreeMap<String, RawModel>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawServer {
    pub(crate) listen: Option<String>,
    pub(crate) public_url: Option<String>,
    pub(crate) metrics: Option<String>,
    pub(crate) demo: Option<bool>,
    pub(crate) secret: Option<Secret>,
    pub(crate) vault: Option<Secret>,
    pub(crate) durability: Option<String>,
    pub(crate) tls: Option<RawTls>,
    pub(crate) trusted_proxies: Vec<String>,
}

/// The certificate we show callers, and its key: files in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTls {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawStore {
    pub(crate) url: Option<String>,
    pub(crate) away: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawShared {
    pub(crate) valkey: String,
    pub(crate) patience: Option<String>,
}

/// Where files are kept; what is said of a bucket is the usual variables' to say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawFiles {
    pub(crate) url: Option<String>,
    pub(crate) keep: Option<String>,
    pub(crate) size: Option<String>,
    pub(crate) endpoint: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) access_key: Option<Secret>,
    pub(crate) secret_key: Option<Secret>,
}

/// Work that goes on without its caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawTasks {
    pub(crate) running: Option<usize>,
    pub(crate) per_provider: Option<u32>,
    pub(crate) runs: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawMail {
    pub(crate) url: String,
    pub(crate) from: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawIdentity {
    pub(crate) issuer: String,
    pub(crate) client_id: String,
    pub(crate) client_secret: Secret,
    pub(crate) admits: Option<String>,
}

/// Durations as text; any of them may also stand under a provider or a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawTimeouts {
    pub(crate) connect: Option<String>,
    pub(crate) first_byte: Option<String>,
    pub(crate) gap: Option<String>,
    pub(crate) total: Option<String>,
    pub(crate) drain: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawLimits {
    pub(crate) body: Option<String>,
    pub(crate) keep_answers: Option<String>,
    pub(crate) running: Option<usize>,
    pub(crate) resend: Option<bool>,
    pub(crate) connections: Option<u32>,
    pub(crate) connections_per_address: Option<u32>,
    pub(crate) headers: Option<u32>,
    pub(crate) header_bytes: Option<String>,
    pub(crate) header_time: Option<String>,
    pub(crate) body_time: Option<String>,
    pub(crate) idle: Option<String>,
    pub(crate) stall: Option<String>,
    pub(crate) streams: Option<u32>,
    pub(crate) resets: Option<u32>,
}

/// How connections leave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawOutbound {
    pub(crate) proxy: Option<String>,
    pub(crate) no_proxy: Option<OneOrMany>,
    pub(crate) allow: Vec<String>,
    pub(crate) ca: Option<OneOrMany>,
}

/// Media that callers name by address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawMedia {
    pub(crate) fetch: Option<bool>,
    pub(crate) allow: Vec<String>,
    pub(crate) ports: Option<Vec<u16>>,
    pub(crate) size: Option<String>,
    pub(crate) time: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawTelemetry {
    pub(crate) otlp: Option<String>,
    pub(crate) headers: BTreeMap<String, Secret>,
    pub(crate) service: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawProvider {
    pub(crate) like: Option<String>,
    pub(crate) speaks: Option<OneOrMany>,
    pub(crate) base: Option<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) fill: BTreeMap<String, String>,
    pub(crate) paths: BTreeMap<String, Path>,
    pub(crate) quirks: BTreeMap<String, Quirks>,
    pub(crate) auth: Option<RawAuth>,
    pub(crate) fetches: Option<String>,
    pub(crate) max_in_flight: Option<usize>,
    pub(crate) timeouts: RawTimeouts,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawModel {
    pub(crate) lanes: Vec<RawLane>,
    pub(crate) aliases: Vec<String>,
    pub(crate) fallback: Vec<String>,
    pub(crate) order: Option<String>,
    pub(crate) price: Option<PriceList>,
    pub(crate) kind: Option<String>,
    pub(crate) context: Option<u64>,
    pub(crate) max_output: Option<u64>,
    pub(crate) features: Option<Vec<String>>,
    pub(crate) pictures: Option<Palette>,
    pub(crate) about: Option<String>,
    pub(crate) timeouts: RawTimeouts,
}

/// One word or a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a word or a list of words")]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub(crate) fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(word) => vec![word],
            Self::Many(words) => words,
        }
    }
}

/// `"provider/model"`, or with more to say of it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(
    untagged,
    expecting = "\"provider/model\" or { lane = \"provider/model\", weight = 1, price = { … } }"
)]
pub(crate) enum RawLane {
    Name(String),
    Table(RawLaneTable),
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawLaneTable {
    pub(crate) lane: String,
    pub(crate) weight: Option<u32>,
    pub(crate) price: Option<PriceList>,
}

impl RawLane {
    /// `provider/model`.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Table(table) => &table.lane,
        }
    }

    /// What is said of it beyond its name.
    pub(crate) const fn table(&self) -> Option<&RawLaneTable> {
        match self {
            Self::Name(_) => None,
            Self::Table(table) => Some(table),
        }
    }
}

/// How a provider is convinced of us. Read by hand in `auth.rs`, so that what is wrong is named by
/// its field and a secret in the wrong place is never repeated.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(transparent)]
pub(crate) struct RawAuth(pub(crate) toml::Value);

impl RawAuth {
    /// Several credentials that are equally good, or the one.
    pub(crate) fn several(&self) -> Vec<&toml::Value> {
        match &self.0 {
            toml::Value::Array(several) => several.iter().collect(),
            one => vec![one],
        }
    }
}

impl std::fmt::Debug for RawAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RawAuth(…)")
    }
}
