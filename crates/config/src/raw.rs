//! The configuration file as written. An unknown key is an error.

use canon::ToolKind;
use catalog::{
    CapabilityTable, EndpointPath, FieldQuirks, ImageCapabilities, MediaLimits, ParameterSupport,
    PriceList, ThinkingSupport, VectorDimensions,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::identity_groups::RawGroups;
pub(crate) use crate::secret::SecretRef;

/// The complete file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawConfig {
    pub server: RawServer,
    pub store: RawStore,
    pub shared: Option<RawShared>,
    pub files: RawFiles,
    pub retention: RawRetention,
    pub tasks: RawTasks,
    pub mail: Option<RawMail>,
    pub identity: BTreeMap<String, RawIdentity>,
    pub timeouts: RawTimeouts,
    pub limits: RawLimits,
    pub telemetry: Option<RawTelemetry>,
    pub outbound: RawOutbound,
    pub media: RawMedia,
    pub mcp: RawMcp,
    pub directory: RawDirectory,
    pub providers: BTreeMap<String, RawProvider>,
    pub models: BTreeMap<String, RawModel>,
}

/// `[server]`: addresses, certificate and secrets of the gateway.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawServer {
    pub listen: Option<String>,
    pub http_listen: Option<String>,
    pub public_url: Option<String>,
    pub metrics: Option<String>,
    pub demo: Option<bool>,
    pub secret: Option<SecretRef>,
    pub vault: Option<SecretRef>,
    pub durability: Option<String>,
    pub tls: Option<RawTls>,
    pub acme: Option<RawAcme>,
    pub trusted_proxies: Vec<String>,
    pub websockets: Option<bool>,
    pub websocket_time: Option<String>,
    pub linger: Option<String>,
}

/// `[server.tls]`: certificate of the listener with its key, and certificates of callers, as PEM files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawTls {
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub client_ca: Option<PathBuf>,
    pub client_certificates: Option<String>,
    pub client_crl: Option<PathBuf>,
}

/// `[server.acme]`: certificates of an authority that speaks ACME.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawAcme {
    pub domains: Vec<String>,
    pub terms_agreed: Option<bool>,
    pub contact: Option<StringOrList>,
    pub directory: Option<String>,
    pub challenge: Option<String>,
    pub ca: Option<PathBuf>,
    pub eab_key_id: Option<String>,
    pub eab_key: Option<SecretRef>,
}

/// `[store]`: the database.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawStore {
    pub url: Option<String>,
    pub away: Option<String>,
}

/// `[mcp]`: servers of the Model Context Protocol.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawMcp {
    pub remote: Option<bool>,
    pub time: Option<String>,
    pub servers: BTreeMap<String, RawMcpServer>,
}

/// `[mcp.servers.NAME]`: a server that the gateway offers to its callers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawMcpServer {
    pub url: String,
    #[serde(default)]
    pub headers: BTreeMap<String, SecretRef>,
    #[serde(default)]
    pub bearer: Option<SecretRef>,
    #[serde(default)]
    pub teams: Vec<String>,
    #[serde(default)]
    pub keys: Vec<String>,
    #[serde(default)]
    pub tools: Vec<String>,
    #[serde(default)]
    pub oauth: Option<RawMcpOAuth>,
    #[serde(default)]
    pub price: Option<String>,
}

/// `oauth` of `[mcp.servers.NAME]`: people connect the server in the console.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawMcpOAuth {
    pub scopes: Vec<String>,
    pub per: Option<String>,
    pub client_id: Option<String>,
    pub client_secret: Option<SecretRef>,
}

/// `[directory]`: keys whose bundles may be laid over the model directory.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawDirectory {
    pub keys: Vec<String>,
}

/// `[shared]`: the Valkey server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawShared {
    pub valkey: String,
    pub patience: Option<String>,
}

/// Storage of files. Missing bucket settings come from the AWS variables.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawFiles {
    pub url: Option<String>,
    pub keep: Option<String>,
    pub size: Option<String>,
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub access_key: Option<SecretRef>,
    pub secret_key: Option<SecretRef>,
}

/// `[retention]`: time that rows stay in the database, and the place of archived calls.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawRetention {
    pub calls: Option<String>,
    pub call_sessions: Option<String>,
    pub audit: Option<String>,
    pub refusals: Option<String>,
    pub usage_hours: Option<String>,
    pub archive: Option<String>,
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub access_key: Option<SecretRef>,
    pub secret_key: Option<SecretRef>,
}

/// Limits of background tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawTasks {
    pub running: Option<usize>,
    pub per_provider: Option<u32>,
    pub waiting: Option<u32>,
    pub runs: Option<u32>,
}

/// `[mail]`: the SMTP server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawMail {
    pub url: String,
    pub from: String,
}

/// `[identity.NAME]`: an OpenID Connect provider.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawIdentity {
    pub issuer: String,
    pub client_id: String,
    pub client_secret: SecretRef,
    pub admits: Option<String>,
    pub groups: Option<RawGroups>,
}

/// Durations as text, for all calls, a provider or a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawTimeouts {
    pub connect: Option<String>,
    pub first_byte: Option<String>,
    pub gap: Option<String>,
    pub total: Option<String>,
    pub drain: Option<String>,
}

/// `[limits]`: bounds of requests and connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawLimits {
    pub body: Option<String>,
    pub keep_answers: Option<String>,
    pub keep_conversations: Option<String>,
    pub running: Option<usize>,
    pub money_wait: Option<String>,
    pub goodwill: Option<String>,
    pub buffered: Option<String>,
    pub buffered_per_key: Option<String>,
    pub free_rpm: Option<u32>,
    pub free_running: Option<u32>,
    pub public_rpm: Option<u32>,
    pub public_running: Option<u32>,
    pub resend: Option<bool>,
    pub connections: Option<u32>,
    pub connections_per_address: Option<u32>,
    pub headers: Option<u32>,
    pub header_bytes: Option<String>,
    pub header_time: Option<String>,
    pub body_time: Option<String>,
    pub body_rate: Option<String>,
    pub idle: Option<String>,
    pub stall: Option<String>,
    pub streams: Option<u32>,
    pub resets: Option<u32>,
    pub control_frames: Option<u32>,
}

/// Proxies and certificates of outgoing connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawOutbound {
    pub proxy: Option<String>,
    pub no_proxy: Option<StringOrList>,
    pub allow: Vec<String>,
    pub ca: Option<StringOrList>,
}

/// Fetching of media that callers name by URL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawMedia {
    pub fetch: Option<bool>,
    pub allow: Vec<String>,
    pub ports: Option<Vec<u16>>,
    pub size: Option<String>,
    pub time: Option<String>,
}

/// `[telemetry]`: the OTLP collector.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawTelemetry {
    pub otlp: Option<String>,
    pub headers: BTreeMap<String, SecretRef>,
    pub service: Option<String>,
    pub audit: bool,
}

/// `[providers.NAME]`: a provider.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawProvider {
    pub like: Option<String>,
    pub speaks: Option<StringOrList>,
    pub base: Option<String>,
    pub hosts: Vec<String>,
    pub fill: BTreeMap<String, String>,
    pub paths: BTreeMap<String, EndpointPath>,
    pub quirks: BTreeMap<String, FieldQuirks>,
    pub auth: Option<RawAuth>,
    pub fetches: Option<String>,
    pub objects: Option<String>,
    pub max_in_flight: Option<usize>,
    pub timeouts: RawTimeouts,
}

/// `[models."ID"]`: a model.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawModel {
    pub lanes: Vec<RawLane>,
    pub aliases: Vec<String>,
    pub fallback: Vec<String>,
    pub order: Option<String>,
    pub price: Option<PriceList>,
    pub kind: Option<String>,
    pub context: Option<u64>,
    pub max_output: Option<u64>,
    pub features: Option<Vec<String>>,
    pub input: Option<Vec<String>>,
    pub output: Option<Vec<String>>,
    pub media_limits: Option<BTreeMap<String, MediaLimits>>,
    pub tools: Option<Vec<ToolKind>>,
    pub structured_output: Option<Vec<String>>,
    pub parameters: Option<BTreeMap<String, ParameterSupport>>,
    pub thinking: Option<ThinkingSupport>,
    pub candidates: Option<u32>,
    pub pictures: Option<ImageCapabilities>,
    pub dimensions: Option<VectorDimensions>,
    pub about: Option<String>,
    pub retires: Option<String>,
    pub timeouts: RawTimeouts,
}

impl RawModel {
    /// Returns the capabilities that are written.
    pub(crate) fn capabilities(&self) -> CapabilityTable {
        CapabilityTable {
            context: self.context,
            max_output: self.max_output,
            input: self.input.clone(),
            output: self.output.clone(),
            media_limits: self.media_limits.clone(),
            tools: self.tools.clone(),
            structured_output: self.structured_output.clone(),
            parameters: self.parameters.clone(),
            thinking: self.thinking.clone(),
            candidates: self.candidates,
            pictures: self.pictures.clone(),
            dimensions: self.dimensions.clone(),
        }
    }
}

/// One string or a list of strings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a word or a list of words")]
pub enum StringOrList {
    One(String),
    Many(Vec<String>),
}

impl StringOrList {
    /// Returns the strings as a list.
    pub fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(word) => vec![word],
            Self::Many(words) => words,
        }
    }
}

/// A lane: `"provider/model"`, or a table with weight and price.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(
    untagged,
    expecting = "\"provider/model\" or { lane = \"provider/model\", weight = 1, price = { … } }"
)]
pub enum RawLane {
    Name(String),
    Table(RawLaneTable),
}

/// A lane with weight or price.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLaneTable {
    pub lane: String,
    pub weight: Option<u32>,
    pub price: Option<PriceList>,
}

impl RawLane {
    /// Returns `provider/model`.
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Table(table) => &table.lane,
        }
    }

    /// Returns the table form of the lane.
    pub const fn table(&self) -> Option<&RawLaneTable> {
        match self {
            Self::Name(_) => None,
            Self::Table(table) => Some(table),
        }
    }
}

/// Credential of a provider, parsed in `auth.rs`, so that an error names the field and never
/// repeats a secret.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct RawAuth(pub toml::Value);

impl RawAuth {
    /// Returns the credentials; one that is not in a list counts as a list of one.
    pub fn credentials(&self) -> Vec<&toml::Value> {
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
