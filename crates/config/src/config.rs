//! The checked configuration, and the way from a file's text to it.

use catalog::Catalog;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::VaultKeys;
use transport::{HttpLimits, Outbound};
use upstream::Provider;

use crate::error::ConfigError;
use crate::files::KeptFiles;
use crate::identity::{self, IdentityProvider};
use crate::mail::Post;
use crate::net::Net;
use crate::outbound::{self, Media};
use crate::overlay::{self, Ground, Look, Places, Troubles};
use crate::providers::{self, AllWays};
use crate::raw::RawConfig;
use crate::routes::Route;
use crate::shared::{self, Valkey};
use crate::stored::Stored;
use crate::tasks::{self, TaskTerms};
use crate::telemetry::{self, Collector};
use crate::timeouts::{DEFAULT_TIMEOUTS, overlay as timeouts_over};
use crate::units::{self, duration, nearest};
use crate::{files, listener, overrides};

/// A configuration in which nothing is missing and nothing can be wrong.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The address callers and browsers know us by.
    pub public_url: String,
    /// Where to tell metrics, if apart.
    pub metrics: Option<SocketAddr>,
    /// Where things are kept on disk.
    pub data: PathBuf,
    /// The database.
    pub store: String,
    /// How long keys without a cap may go on while the database is away.
    pub store_away: Duration,
    /// What keys are hashed with, if not kept in the database.
    pub secret: Option<String>,
    /// What secrets in the store are sealed by, if not by a key of our own.
    pub vault: Option<VaultKeys>,
    /// What nodes tell each other through.
    pub valkey: Option<Valkey>,
    /// Proxies whose word on where a caller is counts.
    pub trusted_proxies: Vec<Net>,
    /// Whether a call waits for the platter.
    pub power_safe: bool,
    /// How large a request may be.
    pub body_limit: usize,
    /// Media that callers name by address.
    pub media: Media,
    /// Files that are kept for callers.
    pub files: KeptFiles,
    /// Work that goes on without its caller.
    pub tasks: TaskTerms,
    /// What a connection may take of us.
    pub http: HttpLimits,
    /// How we prove ourselves to callers; `None` for plain HTTP.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// How long answers are kept for later calls.
    pub keep_answers: Duration,
    /// How connections leave.
    pub way: Outbound,
    /// Where traces and metrics are reported to.
    pub telemetry: Option<Collector>,
    /// How many calls may run at once.
    pub running: usize,
    /// Whether a call whose fate at a provider is unknown is sent again.
    pub resend: bool,
    /// How long running calls may go on after the order to stop.
    pub drain: Duration,
    /// The places that serve models.
    pub providers: Vec<Arc<Provider>>,
    /// The models.
    pub catalog: Catalog,
    /// Who serves each model.
    pub routes: HashMap<String, Arc<Route>>,
    /// Where mail goes.
    pub mail: Option<Post>,
    /// The providers of identities to sign in with.
    pub identities: Vec<IdentityProvider>,
    /// What the operator should know.
    pub warnings: Vec<String>,
    /// How requests to each provider differ from the usual ones.
    pub ways: AllWays,
    /// What is stored and cannot be used.
    pub troubles: Troubles,
    /// What the file says of providers and models.
    pub ground: Arc<Ground>,
}

/// What the command line says besides the file.
#[derive(Clone, Debug)]
pub struct Given {
    /// The configuration file.
    pub file: Option<PathBuf>,
    /// Where to listen.
    pub listen: Option<String>,
    /// Where things are kept on disk.
    pub data: PathBuf,
}

impl Config {
    /// Reads and checks the configuration.
    pub fn load(given: &Given) -> Result<Self, ConfigError> {
        let text = match &given.file {
            None => String::new(),
            Some(file) => std::fs::read_to_string(file).map_err(|e| {
                ConfigError(format!("the configuration {} cannot be read: {e}", file.display()))
            })?,
        };
        let name = given.file.as_deref().unwrap_or(Path::new("the configuration"));
        Self::read(&text, name, given, &|name| std::env::var(name).ok())
    }

    /// Checks a configuration text. The environment is passed in, so that a test can set it.
    pub fn read(
        text: &str,
        name: &Path,
        given: &Given,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let mut raw = parse(text, name)?;
        overrides::apply(&mut raw, env).map_err(ConfigError)?;
        check(raw, given, env).map_err(|why| ConfigError(format!("{}: {why}", name.display())))
    }

    /// Lays what is stored over what the file says of providers and models.
    pub fn lay(&mut self, stored: &Stored) -> Result<(), ConfigError> {
        let Places { providers, ways, catalog, routes, fetches, warnings, troubles } =
            self.judge(stored, Look::Serve)?;
        self.media.fetches = fetches;
        (self.providers, self.ways, self.catalog, self.routes) = (providers, ways, catalog, routes);
        (self.warnings, self.troubles) = (warnings, troubles);
        Ok(())
    }

    /// What the file and what is stored come to together.
    pub fn judge(&self, stored: &Stored, look: Look) -> Result<Places, ConfigError> {
        let env = |name: &str| self.ground.env.get(name).cloned();
        overlay::check(&self.ground, &env, stored, look).map_err(ConfigError)
    }
}

fn parse(text: &str, name: &Path) -> Result<RawConfig, ConfigError> {
    toml::from_str(text).map_err(|e| {
        let line = e.span().map(|span| {
            1 + text.get(..span.start).unwrap_or_default().bytes().filter(|b| *b == b'\n').count()
        });
        let place = line.map_or_else(String::new, |line| format!(":{line}"));
        let message = e.message();
        let hint = hint(message).unwrap_or_default();
        ConfigError(format!("{}{place}: {message}{hint}", name.display()))
    })
}

/// A remedy for an unknown key: serde names the key and those it would have taken.
fn hint(message: &str) -> Option<String> {
    let mut quoted = message.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let unknown = quoted.next()?;
    let near = nearest(unknown, quoted)?;
    Some(format!("; did you mean `{near}`?"))
}

fn check(
    raw: RawConfig,
    given: &Given,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, String> {
    let RawConfig {
        server,
        store,
        shared,
        files,
        tasks,
        mail,
        identity,
        timeouts,
        limits,
        telemetry,
        outbound,
        media,
        providers,
        models,
    } = raw;
    // Remembered, because what is stored is laid over the file again and again.
    let asked = RefCell::new(BTreeMap::new());
    let env = &|name: &str| {
        let value = env(name);
        if let Some(value) = &value {
            asked.borrow_mut().insert(name.to_owned(), value.clone());
        }
        value
    };
    let mail = mail.map(identity::mail).transpose()?;
    let identities = identity::identities(identity, env)?;
    let listen =
        given.listen.clone().or(server.listen).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listen = address("server.listen", &listen)?;
    let metrics = server.metrics.map(|text| address("server.metrics", &text)).transpose()?;
    let scheme = if server.tls.is_some() { "https" } else { "http" };
    let public_url = server.public_url.unwrap_or_else(|| format!("{scheme}://{listen}"));
    let public_url = public_url.trim_end_matches('/').to_owned();
    if !public_url.starts_with("http://") && !public_url.starts_with("https://") {
        return Err(format!("server.public_url: `{public_url}` is not an http or https address"));
    }
    let secret = match server.secret {
        Some(secret) => Some(secret.resolve(env).map_err(|why| format!("server.secret: {why}"))?),
        None => None,
    };
    let vault = match server.vault {
        Some(keys) => {
            let read = keys.resolve(env).and_then(|text| VaultKeys::read(&text));
            Some(read.map_err(|why| format!("server.vault: {why}"))?)
        }
        None => None,
    };
    let trusted_proxies = server
        .trusted_proxies
        .iter()
        .map(|text| Net::read(text).map_err(|why| format!("server.trusted_proxies: {why}")))
        .collect::<Result<_, _>>()?;
    let valkey = shared.map(shared::check).transpose()?;
    let power_safe = match server.durability.as_deref() {
        None | Some("process") => false,
        Some("power") => true,
        Some(other) => {
            return Err(format!(
                "server.durability: `{other}` is not known; write \"process\" or \"power\""
            ));
        }
    };
    let store_away = store.away.as_deref().map_or(Ok(Duration::from_secs(60)), duration);
    let store_away = store_away.map_err(|why| format!("store.away: {why}"))?;
    let store =
        store.url.unwrap_or_else(|| format!("sqlite:{}", given.data.join("portunus.db").display()));
    let body_limit = limits.body.as_deref().map_or(Ok(32 << 20), units::size);
    let body_limit = body_limit.map_err(|why| format!("limits.body: {why}"))?;
    let http = listener::limits(&limits)?;
    let tls = server.tls.as_ref().map(listener::tls).transpose()?;
    let keep_answers =
        limits.keep_answers.as_deref().map_or(Ok(Duration::from_secs(30 * 86_400)), duration);
    let keep_answers = keep_answers.map_err(|why| format!("limits.keep_answers: {why}"))?;
    let running = limits.running.unwrap_or(RUNNING);
    if running == 0 {
        return Err("limits.running: must be at least one call".to_owned());
    }
    let drain = timeouts.drain.as_deref().map_or(Ok(Duration::from_secs(600)), duration);
    let drain = drain.map_err(|why| format!("timeouts.drain: {why}"))?;
    let times = timeouts_over(DEFAULT_TIMEOUTS, &timeouts, "timeouts")?;

    let telemetry = telemetry::check(telemetry, env)?;
    let demo = server.demo.unwrap_or(true);
    let (way, guard) = outbound::check(outbound, env)?;
    let guard = guard.not_ourselves(&public_url);
    let files = files::check(files, &given.data, &way, env)?;
    let tasks = tasks::check(&tasks)?;
    providers::ask_usual(env);
    let mut ground =
        Ground { providers, models, times, demo, way: way.clone(), guard, env: asked.take() };
    let Places { providers, ways, catalog, routes, fetches, warnings, troubles } =
        overlay::check(&ground, env, &Stored::default(), Look::Serve)?;
    // What the secrets of the file were found by counts as well.
    ground.env.append(&mut asked.take());
    let media = outbound::media(media, fetches, &public_url, &way)?;
    Ok(Config {
        listen,
        public_url,
        metrics,
        data: given.data.clone(),
        store,
        store_away,
        secret,
        vault,
        valkey,
        trusted_proxies,
        power_safe,
        body_limit,
        media,
        files,
        tasks,
        http,
        tls,
        keep_answers,
        way,
        telemetry,
        running,
        resend: limits.resend.unwrap_or(true),
        drain,
        providers,
        catalog,
        routes,
        mail,
        identities,
        warnings,
        ways,
        troubles,
        ground: Arc::new(ground),
    })
}

/// How many calls may run at once, unless told otherwise: more than any machine does well.
const RUNNING: usize = 20_000;
fn address(path: &str, text: &str) -> Result<SocketAddr, String> {
    text.replace("localhost", "127.0.0.1").parse().map_err(|_| {
        format!("{path}: `{text}` is not an address; write for instance \"127.0.0.1:8080\"")
    })
}
