//! The configuration as it stands in the file. Unknown keys refuse to start.

use catalog::PriceList;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawConfig {
    pub(crate) server: RawServer,
    pub(crate) store: RawStore,
    pub(crate) shared: Option<RawShared>,
    pub(crate) files: Option<RawFiles>,
    pub(crate) mail: Option<RawMail>,
    pub(crate) identity: BTreeMap<String, RawIdentity>,
    pub(crate) timeouts: RawTimeouts,
    pub(crate) limits: RawLimits,
    pub(crate) telemetry: Option<RawTelemetry>,
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
    pub(crate) durability: Option<String>,
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
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFiles {
    pub(crate) url: String,
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
    pub(crate) speaks: Option<OneOrMany>,
    pub(crate) base: Option<String>,
    pub(crate) auth: Option<RawAuth>,
    pub(crate) timeouts: RawTimeouts,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawModel {
    pub(crate) lanes: Vec<RawLane>,
    pub(crate) price: Option<PriceList>,
    pub(crate) kind: Option<String>,
    pub(crate) context: Option<u64>,
    pub(crate) max_output: Option<u64>,
    pub(crate) features: Option<Vec<String>>,
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

/// `"provider/model"`, or with a weight.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "\"provider/model\" or { lane = \"provider/model\", weight = 1 }")]
pub(crate) enum RawLane {
    Name(String),
    Weighted {
        lane: String,
        #[serde(default = "one")]
        weight: u32,
    },
}

const fn one() -> u32 {
    1
}

/// How a provider is convinced of us.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(
    untagged,
    expecting = "\"none\", { bearer = … } or { header = \"…\", value = … }, where … is a reference such as { env = \"NAME\" }"
)]
pub(crate) enum RawAuth {
    Word(String),
    Bearer { bearer: Secret },
    Header { header: String, value: Secret },
    Google { google: Secret },
    Sigv4 { sigv4: BTreeMap<String, toml::Value> },
}

/// Where a secret is: never in the file itself, except for tests.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "a reference: { env = \"NAME\" }, { file = \"path\" } or, for tests, { text = \"…\" }"
)]
pub(crate) enum Secret {
    Env { env: String },
    File { file: PathBuf },
    Text { text: String },
}

impl Secret {
    /// The secret itself; `Err` says what is missing and what would help.
    pub(crate) fn resolve(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
        match self {
            Self::Env { env: name } => match env(name) {
                Some(value) if !value.trim().is_empty() => Ok(value.trim().to_owned()),
                _ => Err(format!("the environment variable {name} is not set; export {name}=…")),
            },
            Self::File { file } => match std::fs::read_to_string(file) {
                Ok(value) if !value.trim().is_empty() => Ok(value.trim().to_owned()),
                Ok(_) => Err(format!("the file {} is empty", file.display())),
                Err(e) => Err(format!("the file {} cannot be read: {e}", file.display())),
            },
            Self::Text { text } => Ok(text.clone()),
        }
    }
}
