//! The checked configuration, and its construction from the text of a file.

use canon::Money;
use catalog::Catalog;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::{Store, VaultKeys};
use transport::{HttpLimits, Outbound};
use upstream::Provider;

use crate::directory_keys::DirectoryKey;
use crate::error::{ConfigError, FieldError};
use crate::files::FileStorage;
use crate::identity::{self, IdentityProvider};
use crate::ip_range::IpRange;
use crate::listener_tls::ListenerTls;
use crate::mail::Mailer;
use crate::mcp::{self, McpSettings};
use crate::outbound::{self, MediaSettings};
use crate::overlay::{self, CheckMode, ConfigIssues, FileLayer, MergedConfig};
use crate::providers::{self, EndpointsByProvider};
use crate::raw::RawConfig;
use crate::retention::RetentionSettings;
use crate::routes::RoutesByModel;
use crate::sections::{self, SectionDigests};
use crate::stored::StoredEntries;
use crate::tasks::{self, TaskLimits};
use crate::telemetry::{self, OtlpTarget};
use crate::timeouts::{DEFAULT_TIMEOUTS, overlay as timeouts_over};
use crate::units::{self, nearest_word, parse_duration};
use crate::valkey::{self, ValkeySettings};
use crate::{acme, files, listener, overrides, retention};

/// A complete and checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address the server listens on.
    pub listen_address: SocketAddr,
    /// Address of a listener that answers challenges and sends callers to `public_url`.
    pub http_address: Option<SocketAddr>,
    /// Address under which callers and browsers reach the gateway.
    pub public_url: String,
    /// Address of a separate listener for metrics.
    pub metrics_address: Option<SocketAddr>,
    /// Folder for everything kept on disk.
    pub data_folder: PathBuf,
    /// URL of the database.
    pub store_url: String,
    /// Time that keys without a cap may be used while the database is unavailable.
    pub store_outage_grace: Duration,
    /// Secret that keys are hashed with; `None` uses the one in the database.
    pub key_hash_secret: Option<String>,
    /// Keys that encrypt stored secrets; `None` uses a generated key.
    pub vault_keys: Option<VaultKeys>,
    /// Valkey server that the nodes share.
    pub valkey: Option<ValkeySettings>,
    /// Proxies whose forwarded client address is trusted.
    pub trusted_proxies: Vec<IpRange>,
    /// True if a call waits for `fsync`, so that its record survives a power failure.
    pub sync_every_write: bool,
    /// Largest accepted request body.
    pub max_body_bytes: usize,
    /// Fetching of media that callers name by URL.
    pub media: MediaSettings,
    /// Servers of the Model Context Protocol.
    pub mcp: McpSettings,
    /// Storage of files for callers.
    pub files: FileStorage,
    /// Time that rows stay in the database, and the place of archived calls.
    pub retention: RetentionSettings,
    /// Limits of background tasks.
    pub tasks: TaskLimits,
    /// Limits of each connection.
    pub http_limits: HttpLimits,
    /// True if responses are served over WebSockets, too.
    pub web_sockets: bool,
    /// Time after which a WebSocket is closed.
    pub web_socket_lifetime: Duration,
    /// Certificates of the listener; `None` serves plain HTTP.
    pub tls: Option<Arc<ListenerTls>>,
    /// Time that responses are stored for later calls.
    pub answer_retention: Duration,
    /// Time that conversations are stored after their last change.
    pub conversation_retention: Duration,
    /// Proxies and certificates of outgoing connections.
    pub outbound: Outbound,
    /// Collector of traces and metrics.
    pub telemetry: Option<OtlpTarget>,
    /// Time that a call waits for money that is reserved for other calls.
    pub money_wait: Duration,
    /// Amount that the operator absorbs for an account before calls without delivery cost it money.
    pub goodwill: Money,
    /// Calls that may run at once on this node.
    pub max_running_calls: usize,
    /// Limits of memory and of requests that cost nothing.
    pub gate: listener::GateLimits,
    /// True if a call is sent again when it is unknown whether the provider processed it.
    pub resend_uncertain_calls: bool,
    /// Time after the shutdown signal in which new calls are still accepted.
    pub linger: Duration,
    /// Time that running calls get to finish after that.
    pub drain_timeout: Duration,
    /// Providers in use.
    pub providers: Vec<Arc<Provider>>,
    /// Models in use.
    pub catalog: Catalog,
    /// Route of each model, by id and alias.
    pub routes: RoutesByModel,
    /// Sender of mail.
    pub mailer: Option<Mailer>,
    /// OpenID Connect providers that users sign in with.
    pub identity_providers: Vec<IdentityProvider>,
    /// Keys whose bundles may be laid over the model directory.
    pub directory_keys: Vec<DirectoryKey>,
    /// Digests of the sections that all nodes should share.
    pub sections: SectionDigests,
    /// Warnings for the operator.
    pub warnings: Vec<String>,
    /// Paths and field quirks of each provider.
    pub endpoints: EndpointsByProvider,
    /// Stored entries that cannot be used, with the reason.
    pub issues: ConfigIssues,
    /// Providers and models of the file, kept to merge stored entries again.
    pub file_layer: Arc<FileLayer>,
}

/// Settings of the command line.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Configuration file.
    pub file: Option<PathBuf>,
    /// Listen address, which overrides the one in the file.
    pub listen_address: Option<String>,
    /// Folder for everything kept on disk.
    pub data_folder: PathBuf,
}

impl Config {
    /// Reads and checks the configuration file.
    pub fn load(options: &LoadOptions) -> Result<Self, ConfigError> {
        let text = match &options.file {
            None => String::new(),
            Some(file) => std::fs::read_to_string(file).map_err(|e| {
                ConfigError(format!("the configuration {} cannot be read: {e}", file.display()))
            })?,
        };
        let name = options.file.as_deref().unwrap_or(Path::new("the configuration"));
        Self::parse(&text, name, options, &|name| std::env::var(name).ok())
    }

    /// Checks the text of a configuration. The environment is a parameter, so that a test can set
    /// it.
    pub fn parse(
        text: &str,
        name: &Path,
        options: &LoadOptions,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let mut raw = parse(text, name)?;
        overrides::apply(&mut raw, env)?;
        check(raw, options, env).map_err(|why| ConfigError(format!("{}: {why}", name.display())))
    }

    /// Merges stored providers and models into this configuration.
    pub fn overlay(&mut self, stored: &StoredEntries) -> Result<(), ConfigError> {
        let MergedConfig { providers, endpoints, catalog, routes, fetches, warnings, issues } =
            self.validate(stored, CheckMode::Serve)?;
        self.media.provider_fetch = fetches;
        (self.providers, self.endpoints, self.catalog, self.routes) =
            (providers, endpoints, catalog, routes);
        (self.warnings, self.issues) = (warnings, issues);
        Ok(())
    }

    /// Returns the result of merging `stored` with the file, without applying it.
    pub fn validate(
        &self,
        stored: &StoredEntries,
        mode: CheckMode,
    ) -> Result<MergedConfig, ConfigError> {
        let env = |name: &str| self.file_layer.recorded_env.get(name).cloned();
        Ok(overlay::merge(&self.file_layer, &env, stored, mode)?)
    }
}

fn parse(text: &str, name: &Path) -> Result<RawConfig, ConfigError> {
    toml::from_str(text).map_err(|e| {
        let line = e.span().map(|span| {
            1 + text.get(..span.start).unwrap_or_default().bytes().filter(|b| *b == b'\n').count()
        });
        let location = line.map_or_else(String::new, |line| format!(":{line}"));
        let message = e.message();
        let hint = spelling_hint(message).unwrap_or_default();
        ConfigError(format!("{}{location}: {message}{hint}", name.display()))
    })
}

/// Returns a suggestion for an unknown key. The message of serde lists the known keys.
fn spelling_hint(message: &str) -> Option<String> {
    let mut quoted = message.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let unknown = quoted.next()?;
    let near = nearest_word(unknown, quoted)?;
    Some(format!("; did you mean `{near}`?"))
}

fn check(
    raw: RawConfig,
    options: &LoadOptions,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, FieldError> {
    let sections = sections::digests(&raw);
    let RawConfig {
        server,
        store,
        shared,
        files,
        retention,
        tasks,
        mail,
        identity,
        timeouts,
        limits,
        telemetry,
        outbound,
        media,
        mcp,
        directory,
        providers,
        models,
    } = raw;
    // Records every variable that is read, because stored entries are merged with the file again
    // later.
    let recorded = RefCell::new(BTreeMap::new());
    let env = &|name: &str| {
        let value = env(name);
        if let Some(value) = &value {
            recorded.borrow_mut().insert(name.to_owned(), value.clone());
        }
        value
    };
    let mailer = mail.map(identity::mailer).transpose()?;
    let identity_providers = identity::identity_providers(identity, env)?;
    let listen_address = options
        .listen_address
        .clone()
        .or(server.listen)
        .unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listen_address = parse_address("server.listen", &listen_address)?;
    let metrics_address =
        server.metrics.map(|text| parse_address("server.metrics", &text)).transpose()?;
    let (outbound, guard) = outbound::check(outbound, env)?;
    let acme = server.acme.map(|raw| acme::check(raw, &outbound, env)).transpose()?;
    let scheme = if server.tls.is_some() || acme.is_some() { "https" } else { "http" };
    let public_url = match (server.public_url, &acme) {
        (Some(url), _) => url,
        (None, Some(acme)) => acme.public_url(listen_address.port()),
        (None, None) => format!("{scheme}://{listen_address}"),
    };
    let public_url = public_url.trim_end_matches('/').to_owned();
    if !public_url.starts_with("http://") && !public_url.starts_with("https://") {
        return Err(FieldError::new(
            "server.public_url",
            format_args!("`{public_url}` is not an http or https address"),
        ));
    }
    let key_hash_secret = match server.secret {
        Some(key_hash_secret) => Some(
            key_hash_secret.resolve(env).map_err(|why| FieldError::new("server.secret", why))?,
        ),
        None => None,
    };
    let vault_keys = match server.vault {
        Some(keys) => {
            let text = keys.resolve(env).map_err(|why| FieldError::new("server.vault", why))?;
            Some(VaultKeys::read(&text).map_err(|why| FieldError::new("server.vault", why))?)
        }
        None => None,
    };
    let trusted_proxies = server
        .trusted_proxies
        .iter()
        .map(|text| {
            IpRange::parse(text).map_err(|why| FieldError::new("server.trusted_proxies", why))
        })
        .collect::<Result<_, _>>()?;
    let valkey = shared.map(valkey::check).transpose()?;
    let sync_every_write = match server.durability.as_deref() {
        None | Some("process") => false,
        Some("power") => true,
        Some(other) => {
            return Err(FieldError::new(
                "server.durability",
                format_args!("`{other}` is not known; write \"process\" or \"power\""),
            ));
        }
    };
    let store_outage_grace =
        store.away.as_deref().map_or(Ok(Duration::from_secs(60)), parse_duration);
    let store_outage_grace =
        store_outage_grace.map_err(|why| FieldError::new("store.away", why))?;
    let store_url = store
        .url
        .unwrap_or_else(|| format!("sqlite:{}", options.data_folder.join("portunus.db").display()));
    check_store_url(&store_url)?;
    let max_body_bytes = limits.body.as_deref().map_or(Ok(32 << 20), units::parse_size);
    let max_body_bytes = max_body_bytes.map_err(|why| FieldError::new("limits.body", why))?;
    let http_limits = listener::http_limits(&limits)?;
    let gate = listener::gate_limits(&limits, max_body_bytes)?;
    let web_sockets = server.websockets.unwrap_or(true);
    let linger = listener::linger(server.linger.as_deref())?;
    let web_socket_lifetime = listener::web_socket_lifetime(server.websocket_time.as_deref())?;
    if acme.is_some() && vault_keys.is_none() && !store_url.starts_with("sqlite:") {
        return Err(FieldError::new(
            "server.acme",
            "private keys are sealed in the database; set `vault` of `[server]`, the same on every node",
        ));
    }
    let http_listen = server.http_listen.as_deref();
    let http_listen =
        http_listen.map(|text| parse_address("server.http_listen", text)).transpose()?;
    let http_address =
        acme::http_address(http_listen, acme.as_ref(), listen_address, server.tls.is_some())?;
    let tls = ListenerTls::check(server.tls, acme)?.map(Arc::new);
    let answer_retention =
        limits.keep_answers.as_deref().map_or(Ok(Duration::from_secs(30 * 86_400)), parse_duration);
    let answer_retention =
        answer_retention.map_err(|why| FieldError::new("limits.keep_answers", why))?;
    let kept = limits.keep_conversations.as_deref();
    let conversation_retention = kept.map_or(Ok(Duration::from_secs(365 * 86_400)), parse_duration);
    let conversation_retention =
        conversation_retention.map_err(|why| FieldError::new("limits.keep_conversations", why))?;
    let money_wait = listener::money_wait(&limits)?;
    let goodwill = listener::goodwill(&limits)?;
    let max_running_calls = limits.running.unwrap_or(DEFAULT_MAX_RUNNING_CALLS);
    if max_running_calls == 0 {
        return Err(FieldError::new("limits.running", "must be at least one call"));
    }
    let drain_timeout =
        timeouts.drain.as_deref().map_or(Ok(Duration::from_secs(600)), parse_duration);
    let drain_timeout = drain_timeout.map_err(|why| FieldError::new("timeouts.drain", why))?;
    let timeouts = timeouts_over(DEFAULT_TIMEOUTS, &timeouts, "timeouts")?;

    let telemetry = telemetry::check(telemetry, env)?;
    let demo_enabled = server.demo.unwrap_or(true);
    let guard = guard.refusing_own_host(&public_url);
    let files = files::check(files, &options.data_folder, &outbound, env)?;
    let retention = retention::check(retention, &options.data_folder, &outbound, env)?;
    let tasks = tasks::check(&tasks)?;
    let directory_keys = directory
        .keys
        .iter()
        .map(|key| DirectoryKey::parse(key).map_err(|why| FieldError::new("directory.keys", why)));
    let directory_keys = directory_keys.collect::<Result<_, _>>()?;
    providers::record_default_variables(env);
    let mut file_layer = FileLayer {
        providers,
        models,
        timeouts,
        demo_enabled,
        outbound: outbound.clone(),
        guard,
        recorded_env: recorded.take(),
    };
    let MergedConfig { providers, endpoints, catalog, routes, fetches, warnings, issues } =
        overlay::merge(&file_layer, env, &StoredEntries::default(), CheckMode::Serve)?;
    // Includes the variables that resolved the secrets of the file.
    file_layer.recorded_env.append(&mut recorded.take());
    let media = outbound::media_settings(media, fetches, &public_url, &outbound)?;
    let mcp = mcp::check(mcp, &media, &outbound, env)?;
    Ok(Config {
        listen_address,
        http_address,
        public_url,
        metrics_address,
        data_folder: options.data_folder.clone(),
        store_url,
        store_outage_grace,
        key_hash_secret,
        vault_keys,
        valkey,
        trusted_proxies,
        sync_every_write,
        max_body_bytes,
        media,
        mcp,
        files,
        retention,
        tasks,
        http_limits,
        tls,
        web_sockets,
        web_socket_lifetime,
        answer_retention,
        conversation_retention,
        outbound,
        telemetry,
        money_wait,
        goodwill,
        max_running_calls,
        gate,
        resend_uncertain_calls: limits.resend.unwrap_or(true),
        linger,
        drain_timeout,
        providers,
        catalog,
        routes,
        mailer,
        identity_providers,
        directory_keys,
        sections,
        warnings,
        endpoints,
        issues,
        file_layer: Arc::new(file_layer),
    })
}

/// More calls than one machine serves well.
const DEFAULT_MAX_RUNNING_CALLS: usize = 20_000;
/// Checks that the store is of a known kind and that a gateway can read its URL. The URL may hold a password, so the
/// error names only its scheme.
fn check_store_url(url: &str) -> Result<(), FieldError> {
    if ["sqlite:", "postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Store::check_url(url).map_err(|why| FieldError::new("store.url", why));
    }
    let why = match url.split_once("://") {
        Some((scheme, _)) => format!("`{scheme}://` is not a known database"),
        None => "has no kind of database in front".to_owned(),
    };
    let hint = "write `sqlite:PATH` or `postgres://USER:PASSWORD@HOST:5432/DATABASE`";
    Err(FieldError::new("store.url", format_args!("{why}; {hint}")))
}

fn parse_address(path: &str, text: &str) -> Result<SocketAddr, FieldError> {
    text.replace("localhost", "127.0.0.1").parse().map_err(|_| {
        FieldError::new(
            path,
            format_args!("`{text}` is not an address; write for instance \"127.0.0.1:8080\""),
        )
    })
}
