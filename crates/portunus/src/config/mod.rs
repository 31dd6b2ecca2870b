//! Configuration: read once, checked once; after that it cannot be wrong.
//!
//! The file is parsed into [`raw::RawConfig`], laid over by `PORTUNUS_…` variables, and checked
//! into [`Config`], in which every address, limit, secret and lane is resolved.

mod auth;
mod door;
mod files;
mod given_auth;
mod inherit;
mod models;
mod outbound;
mod overrides;
mod people;
mod places;
mod providers;
mod raw;
mod routes;
mod secret;
mod stored;
mod tasks;
mod telemetry;
mod watch;
mod words;

pub use door::HttpLimits;
pub(crate) use door::MOST_HEADERS;
pub use files::KeptFiles;
pub(crate) use files::Shelf;
pub(crate) use given_auth::{of_auth, of_value};
pub use outbound::Media;
pub(crate) use places::{Entry, Look, Places, Troubles};
pub(crate) use providers::{DEMO, usual_auth};
pub(crate) use raw::RawAuth;
pub use routes::{LaneHealth, LiveLane, Order, Route, Seat};
pub(crate) use stored::{Stored, StoredAuth, StoredModel, StoredProvider, WrongField};
pub use tasks::TaskTerms;
pub(crate) use watch::watch;
pub(crate) use words::{duration, nearest};

use catalog::Catalog;
use console::IdentityProvider;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::VaultKeys;
use upstream::{Outbound, Provider, Timeouts};

use crate::limits::Net;
use crate::mail::Post;
use crate::telemetry::Collector;
use places::Ground;
use providers::AllWays;
use raw::{RawConfig, RawShared, RawTimeouts};

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
    pub(crate) trusted_proxies: Vec<Net>,
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
    pub(crate) ways: AllWays,
    /// What is stored and cannot be used.
    pub(crate) troubles: Troubles,
    /// What the file says of providers and models.
    pub(crate) ground: Arc<Ground>,
}

/// What nodes tell each other through.
#[derive(Clone, PartialEq, Eq)]
pub struct Valkey {
    /// Where it is.
    pub url: String,
    /// How long a call may wait for it.
    pub patience: Duration,
}

/// The address may hold a password.
impl std::fmt::Debug for Valkey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Valkey").field("patience", &self.patience).finish_non_exhaustive()
    }
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

/// A configuration that was refused: one line that names the cause and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub String);

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

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
    pub(crate) fn lay(&mut self, stored: &Stored) -> Result<(), ConfigError> {
        let Places { providers, ways, catalog, routes, fetches, warnings, troubles } =
            self.judge(stored, Look::Serve)?;
        self.media.fetches = fetches;
        (self.providers, self.ways, self.catalog, self.routes) = (providers, ways, catalog, routes);
        (self.warnings, self.troubles) = (warnings, troubles);
        Ok(())
    }

    /// What the file and what is stored come to together.
    pub(crate) fn judge(&self, stored: &Stored, look: Look) -> Result<Places, ConfigError> {
        let env = |name: &str| self.ground.env.get(name).cloned();
        places::check(&self.ground, &env, stored, look).map_err(ConfigError)
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
    let mail = mail.map(people::mail).transpose()?;
    let identities = people::identities(identity, env)?;
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
            let text = keys.resolve(env).map_err(|why| format!("server.vault: {why}"))?;
            Some(VaultKeys::read(&text).map_err(|why| format!("server.vault: {why}"))?)
        }
        None => None,
    };
    let trusted_proxies = server
        .trusted_proxies
        .iter()
        .map(|text| Net::read(text).map_err(|why| format!("server.trusted_proxies: {why}")))
        .collect::<Result<_, _>>()?;
    let valkey = shared.map(valkey).transpose()?;
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
    let body_limit = limits.body.as_deref().map_or(Ok(32 << 20), words::size);
    let body_limit = body_limit.map_err(|why| format!("limits.body: {why}"))?;
    let http = door::limits(&limits)?;
    let tls = server.tls.as_ref().map(door::tls).transpose()?;
    let keep_answers =
        limits.keep_answers.as_deref().map_or(Ok(Duration::from_secs(30 * 86_400)), duration);
    let keep_answers = keep_answers.map_err(|why| format!("limits.keep_answers: {why}"))?;
    let running = limits.running.unwrap_or(RUNNING);
    if running == 0 {
        return Err("limits.running: must be at least one call".to_owned());
    }
    let drain = timeouts.drain.as_deref().map_or(Ok(Duration::from_secs(600)), duration);
    let drain = drain.map_err(|why| format!("timeouts.drain: {why}"))?;
    let times = overlay(DEFAULT_TIMEOUTS, &timeouts, "timeouts")?;

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
        places::check(&ground, env, &Stored::default(), Look::Serve)?;
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
fn valkey(raw: RawShared) -> Result<Valkey, String> {
    let RawShared { valkey: url, patience } = raw;
    // The address may hold a password, so it is not repeated.
    redis::Client::open(url.as_str()).map_err(|_| {
        "shared.valkey: not an address; write for instance \"redis://127.0.0.1:6379\"".to_owned()
    })?;
    let patience = patience.as_deref().map_or(Ok(Duration::from_millis(20)), duration);
    let patience = patience.map_err(|why| format!("shared.patience: {why}"))?;
    Ok(Valkey { url, patience })
}

/// No step of a call takes longer than that; who writes more slipped.
const LONGEST: Duration = Duration::from_secs(30 * 86_400);

const DEFAULT_TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(5),
    first_byte: Duration::from_secs(60),
    gap: Duration::from_secs(60),
    total: Duration::from_secs(600),
};

/// The given times, and for the rest those above them.
fn overlay(above: Timeouts, raw: &RawTimeouts, path: &str) -> Result<Timeouts, String> {
    let pick = |name: &str, text: &Option<String>, above: Duration| match text {
        None => Ok(above),
        Some(text) => match duration(text) {
            Ok(time) if time > LONGEST => {
                Err(format!("{path}.{name}: must be at most {} days", LONGEST.as_secs() / 86_400))
            }
            Ok(time) if !time.is_zero() => Ok(time),
            Ok(_) => Err(format!("{path}.{name}: must be longer than nothing")),
            Err(why) => Err(format!("{path}.{name}: {why}")),
        },
    };
    Ok(Timeouts {
        connect: pick("connect", &raw.connect, above.connect)?,
        first_byte: pick("first_byte", &raw.first_byte, above.first_byte)?,
        gap: pick("gap", &raw.gap, above.gap)?,
        total: pick("total", &raw.total, above.total)?,
    })
}

fn address(path: &str, text: &str) -> Result<SocketAddr, String> {
    text.replace("localhost", "127.0.0.1").parse().map_err(|_| {
        format!("{path}: `{text}` is not an address; write for instance \"127.0.0.1:8080\"")
    })
}
