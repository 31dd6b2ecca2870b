//! Providers of the file, providers enabled by an environment variable, and the demo provider.

use bytes::Bytes;
use canon::WireFormat;
use catalog::{AuthScheme, EndpointPath, Endpoints, ModelDirectory, ProviderEntry};
use http::uri::PathAndQuery;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use std::collections::{BTreeMap, HashMap};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio::task::block_in_place;
use transport::{HttpClient, LocalBody, LocalService, Outbound};
use upstream::{Credential, HostIdentity, Provider, Timeouts};

use crate::auth::{self, AuthContext};
use crate::auth_aws;
use crate::entry::{EntryError, EntryName};
use crate::error::FieldError;
use crate::raw::{RawAuth, RawProvider};
use crate::units::nearest_word;

/// Name of the demo provider.
pub const DEMO_PROVIDER: &str = "demo";

/// Paths and field quirks of each provider, by provider name.
pub(crate) type EndpointsByProvider = HashMap<String, Arc<Endpoints>>;

/// Question whether administrators stored the provider of a name.
type IsStored<'a> = &'a dyn Fn(&str) -> bool;

pub(super) type EnvLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Checks the providers. Those that `is_stored` names were stored by administrators.
pub(super) fn check(
    (raw, is_stored): (&BTreeMap<String, RawProvider>, IsStored<'_>),
    defaults: Timeouts,
    demo: bool,
    outbound: &Outbound,
    env: EnvLookup<'_>,
    warnings: &mut Vec<String>,
) -> Result<(Vec<Provider>, EndpointsByProvider), EntryError> {
    let client = HttpClient::network(defaults.connect, outbound);
    let host = HostIdentity::new(outbound, env);
    let mut providers = Vec::new();
    let mut all_endpoints = EndpointsByProvider::new();
    let mut add = |(provider, endpoints): (Provider, Endpoints)| {
        all_endpoints.insert(provider.name.clone(), Arc::new(endpoints));
        providers.push(provider);
    };
    for (name, raw) in raw {
        let entry_error =
            |why: FieldError| EntryError::for_entry(EntryName::Provider(name.clone()), why);
        if name == DEMO_PROVIDER || name.contains('/') || name.is_empty() {
            return Err(entry_error(FieldError::new("", "this name cannot be used")));
        }
        // A stored provider without a credential of its own has that of a variable, for the address
        // in the directory. A stored credential never uses the identity of this machine.
        let host = (!is_stored(name) || raw.auth.is_none()).then_some(&host);
        let built = build_provider(name, raw, (defaults, &client, outbound), (env, host));
        let built = built.map_err(entry_error)?;
        let (provider, endpoints) = &built;
        warnings.extend(
            doubled_path(provider, endpoints).or_else(|| doubled_version(provider, endpoints)),
        );
        add(built);
    }
    for known in ModelDirectory::embedded().providers() {
        if raw.contains_key(&known.id) || !is_switched_on(known, env) {
            continue;
        }
        let raw = RawProvider::default();
        let shared = (defaults, &client, outbound);
        match build_provider(&known.id, &raw, shared, (env, Some(&host))) {
            Ok(built) => add(built),
            // The variables may belong to another program, so the gateway starts anyway.
            Err(why) => warnings.push(format!(
                "`{}` stays off, though its variables are set: {}",
                known.id,
                why.below(format_args!("providers.{}", known.id))
            )),
        }
    }
    if demo {
        let local = HttpClient::Local(Arc::new(DemoModels));
        let speaks = WireFormat::ALL.to_vec();
        let base = "http://demo.invalid";
        let built = Provider::new(DEMO_PROVIDER, speaks, base, Credential::none(), defaults, local);
        let endpoints = Endpoints { provider: DEMO_PROVIDER.to_owned(), ..Endpoints::default() };
        add((built.map_err(|e| FieldError::new("", e))?, endpoints));
    }
    Ok((providers, all_endpoints))
}

/// Reads every variable of the directory, so that the caller can record its value.
pub(super) fn record_default_variables(env: EnvLookup<'_>) {
    for known in ModelDirectory::embedded().providers() {
        let fill = known.placeholder_env.iter().flat_map(|(_, names)| names);
        known.key_env.iter().chain(fill).for_each(|name| drop(env(name)));
    }
}

/// Returns true if the default variables are complete. The project may come from the Google
/// account.
fn is_switched_on(known: &ProviderEntry, env: EnvLookup<'_>) -> bool {
    let filled = |(placeholder, names): &(String, Vec<String>)| {
        first_set_variable(names, env).is_some()
            || (known.auth == AuthScheme::Google && placeholder == PROJECT_PLACEHOLDER)
    };
    first_set_variable(&known.key_env, env).is_some() && known.placeholder_env.iter().all(filled)
}

/// Returns the value of the first variable that is set.
fn first_set_variable(names: &[String], env: EnvLookup<'_>) -> Option<String> {
    names
        .iter()
        .filter_map(|name| env(name))
        .map(|value| value.trim().to_owned())
        .find(|value| !value.is_empty())
}

/// Word of `objects`: callers name only objects that were made for them.
pub const OWN_OBJECTS: &str = "own";
/// Word of `objects`: callers may name every object in the operator's account.
pub const SHARED_OBJECTS: &str = "shared";
/// Upper bound of `max_in_flight`, to catch a typing error.
const MAX_IN_FLIGHT_CALLS: usize = 1_000_000;
const PROJECT_PLACEHOLDER: &str = "project";
const REGION_PLACEHOLDER: &str = "region";

/// Ends of the paths of calls, which the examples of providers have in their URLs.
const CALL_PATHS: [&str; 7] = [
    "/chat/completions",
    "/completions",
    "/messages",
    "/responses",
    "/embeddings",
    "/images/generations",
    "/models",
];

/// Returns a warning if the base URL is the URL of a call, to which the gateway would add the path of the call again.
/// A provider with paths of its own may have any base.
fn doubled_path(provider: &Provider, endpoints: &Endpoints) -> Option<String> {
    if !endpoints.paths.is_empty() {
        return None;
    }
    let address = upstream::shown_address(&provider.address());
    let (front, path) =
        CALL_PATHS.iter().find_map(|path| Some((address.strip_suffix(path)?, path)))?;
    let base = match front.rsplit_once('/') {
        Some((base, version)) if is_version(version) && !base.ends_with('/') => base,
        Some(_) | None => front,
    };
    let name = &provider.name;
    Some(format!(
        "providers.{name}.base: `{address}` ends in `{path}`, which the gateway adds itself, so that requests \
         go to `{path}/…{path}`; write `{base}`"
    ))
}

/// Returns true for a version in a path, such as `v1` or `v1beta`.
fn is_version(word: &str) -> bool {
    word.strip_prefix('v').is_some_and(|rest| rest.starts_with(char::is_numeric))
}

/// Returns a warning if the base URL ends with the version that begins the paths of the provider.
fn doubled_version(provider: &Provider, endpoints: &Endpoints) -> Option<String> {
    let address = upstream::shown_address(&provider.address());
    let (front, version) = address.rsplit_once('/')?;
    let doubles = |format: &WireFormat| {
        let own = endpoints.path(*format).map(|path| path.whole.as_str());
        let usual = dialects::get(*format).map(|dialect| dialect.traits().model_list_path);
        let path = own.or(usual).unwrap_or("/v1/");
        path.strip_prefix('/').and_then(|path| path.split('/').next()) == Some(version)
    };
    let is_host = front.ends_with('/');
    if is_host || !is_version(version) || !provider.formats.iter().any(doubles) {
        return None;
    }
    let name = &provider.name;
    Some(format!(
        "providers.{name}.base: `{address}` ends in `/{version}`, which the gateway adds itself, so that \
         requests go to `/{version}/{version}/…`; write `{front}`"
    ))
}

fn build_provider(
    name: &str,
    raw: &RawProvider,
    (defaults, client, outbound): (Timeouts, &HttpClient, &Outbound),
    (env, host): (EnvLookup<'_>, Option<&HostIdentity>),
) -> Result<(Provider, Endpoints), FieldError> {
    let RawProvider {
        like,
        speaks,
        base,
        hosts,
        fill,
        paths,
        quirks,
        auth,
        max_in_flight,
        timeouts,
        objects,
        fetches: _,
    } = raw;
    let shares_objects = match objects.as_deref() {
        None | Some(OWN_OBJECTS) => false,
        Some(SHARED_OBJECTS) => true,
        Some(word) => {
            let why = format!(
                "`{word}` is not known; write \"{OWN_OBJECTS}\" (the default) or \"{SHARED_OBJECTS}\""
            );
            return Err(FieldError::new("objects", why));
        }
    };
    if *max_in_flight == Some(0) {
        return Err(FieldError::new("max_in_flight", "must be at least one call"));
    }
    if max_in_flight.is_some_and(|calls| calls > MAX_IN_FLIGHT_CALLS) {
        return Err(FieldError::new(
            "max_in_flight",
            format_args!("must be at most {MAX_IN_FLIGHT_CALLS}"),
        ));
    }
    let known = known_provider(name, like.as_deref())?;
    let speaks = match (speaks.clone(), known) {
        (Some(values), _) => parse_formats(values.into_vec())?,
        (None, Some(known)) => known.formats.clone(),
        (None, None) => {
            return Err(FieldError::new("speaks", "is missing; write for instance \"chat\""));
        }
    };
    let values = fill;
    let mut fill = Placeholders { values: values.clone(), provider: known, env };
    let credentials = auth.as_ref().map(RawAuth::credentials).unwrap_or_default();
    if auth.is_some() && credentials.is_empty() {
        return Err(FieldError::new("auth", "the list holds no credential"));
    }
    if let Some(region) = credentials.iter().find_map(|auth| auth_aws::sigv4_region(Some(auth))) {
        fill.values.entry(REGION_PLACEHOLDER.to_owned()).or_insert_with(|| region.to_owned());
    }
    let mut credentials = credentials.into_iter();
    let first = build_credential(credentials.next(), known, &fill, host)?;
    let others: Result<Vec<_>, _> =
        credentials.map(|auth| build_credential(Some(auth), known, &fill, host)).collect();
    let (credential, others) = (first, others?);
    if let Some(project) = credential.project()
        && fill.value(PROJECT_PLACEHOLDER).is_none()
    {
        fill.values.insert(PROJECT_PLACEHOLDER.to_owned(), project.to_owned());
    }
    let base = match (base, known) {
        (Some(base), _) => base,
        (None, Some(known)) => {
            let region = fill.value(REGION_PLACEHOLDER).unwrap_or_default();
            known
                .regional_bases
                .iter()
                .find(|(word, _)| *word == region)
                .map_or(&known.base, |own| &own.1)
        }
        (None, None) => {
            return Err(FieldError::new("base", "is missing; write what comes before /v1/…"));
        }
    };
    let mut endpoints = known.map(|known| known.endpoints.clone()).unwrap_or_default();
    for (word, path) in paths {
        let wire_format = parse_format(word).map_err(|why| why.below("paths"))?;
        endpoints.paths.retain(|(own, _)| *own != wire_format);
        endpoints.paths.push((wire_format, path.clone()));
    }
    for (word, own) in quirks {
        let wire_format = parse_format(word).map_err(|why| why.below("quirks"))?;
        endpoints.quirks.retain(|(known, _)| *known != wire_format);
        endpoints.quirks.push((wire_format, own.clone()));
    }
    let bases = known.map(|known| known.base.as_str()).into_iter().chain([base.as_str()]);
    check_placeholders(values, bases, &endpoints)?;
    let base = fill.fill_in(base)?;
    endpoints.paths.retain(|(wire_format, _)| speaks.contains(wire_format));
    for (wire_format, path) in &mut endpoints.paths {
        let with_path = |why: FieldError| why.below(format_args!("paths.{wire_format}"));
        let EndpointPath { whole, stream } = path;
        for path in [whole, stream] {
            *path = fill.fill_in(path)?;
            check_path(path).map_err(with_path)?;
        }
    }
    let own = crate::timeouts::overlay(defaults, timeouts, "timeouts")?;
    let client = match own.connect == defaults.connect {
        true => client.clone(),
        false => HttpClient::network(own.connect, outbound),
    };
    let built = Provider::new(name, speaks, &base, credential, own, client);
    let built = built.map_err(|e| FieldError::new("base", e))?.with_credentials(others);
    let built = built.with_hosts(hosts).map_err(|e| FieldError::new("hosts", e))?;
    let built = built.with_max_in_flight(max_in_flight.unwrap_or(usize::MAX));
    Ok((built.with_shared_objects(shares_objects), endpoints))
}

/// Returns the directory entry named by `like`, or else by the provider's own name.
fn known_provider(
    name: &str,
    like: Option<&str>,
) -> Result<Option<&'static ProviderEntry>, FieldError> {
    let directory = ModelDirectory::embedded();
    let Some(like) = like else { return Ok(directory.provider(name)) };
    match directory.provider(like).filter(|known| known.id != DEMO_PROVIDER) {
        Some(known) => Ok(Some(known)),
        None => {
            let near = nearest_word(like, directory.providers().map(|known| known.id.as_str()));
            let near = near.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
            Err(FieldError::new(
                "like",
                format_args!("the directory knows no provider \"{like}\"{near}"),
            ))
        }
    }
}

/// Returns the default kind of credential of a provider in the directory.
pub fn default_auth(name: &str, like: Option<&str>) -> Option<&'static AuthScheme> {
    known_provider(name, like).ok()?.map(|known| &known.auth)
}

/// Returns true if the default variable for the credential is set.
pub(super) fn has_default_variable(name: &str, env: EnvLookup<'_>) -> bool {
    known_provider(name, None).is_ok_and(|known| {
        known.is_some_and(|known| first_set_variable(&known.key_env, env).is_some())
    })
}

/// Values of the placeholders in addresses.
struct Placeholders<'a> {
    values: BTreeMap<String, String>,
    provider: Option<&'a ProviderEntry>,
    env: EnvLookup<'a>,
}

impl Placeholders<'_> {
    fn value(&self, placeholder: &str) -> Option<String> {
        let from_env = || first_set_variable(self.variables(placeholder)?, self.env);
        self.values.get(placeholder).cloned().or_else(from_env)
    }

    fn variables(&self, placeholder: &str) -> Option<&[String]> {
        let (_, names) =
            self.provider?.placeholder_env.iter().find(|(known, _)| known == placeholder)?;
        Some(names)
    }

    /// Replaces the placeholders in a text, except those that each call replaces.
    fn fill_in(&self, text: &str) -> Result<String, FieldError> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((placeholder, tail)) = after.split_once('}') else { break };
            out.push_str(before);
            match (placeholder, self.value(placeholder)) {
                ("model" | "op", _) => out.push_str(&format!("{{{placeholder}}}")),
                (_, Some(value)) => out.push_str(value.trim_end_matches('/')),
                (_, None) => {
                    let names = self.variables(placeholder).unwrap_or_default();
                    let or = names
                        .first()
                        .map_or_else(String::new, |name| format!(", or export {name}=…"));
                    return Err(FieldError::new(
                        format_args!("fill.{placeholder}"),
                        format_args!("is missing; write what stands for it in `{text}`{or}"),
                    ));
                }
            }
            rest = tail;
        }
        Ok(out + rest)
    }
}

/// Returns an error for a value whose placeholder no address has.
fn check_placeholders<'a>(
    configured: &BTreeMap<String, String>,
    bases: impl Iterator<Item = &'a str>,
    endpoints: &'a Endpoints,
) -> Result<(), FieldError> {
    let paths = endpoints.paths.iter().flat_map(|(_, path)| [&*path.whole, &*path.stream]);
    let addresses: Vec<&str> = bases.chain(paths).collect();
    let is_used = |word: &str| addresses.iter().any(|text| text.contains(&format!("{{{word}}}")));
    match configured.keys().find(|word| !is_used(word)) {
        None => Ok(()),
        Some(word) => Err(FieldError::new(
            format_args!("fill.{word}"),
            "none of its addresses has this placeholder",
        )),
    }
}

fn check_path(path: &str) -> Result<(), FieldError> {
    let sample = path.replace("{model}", "m").replace("{op}", "o");
    if !sample.starts_with('/')
        || sample.contains(['{', '}'])
        || PathAndQuery::try_from(sample).is_err()
    {
        let why = format!(
            "`{path}` is not a path; it begins with a slash, and its placeholders are {{model}} and {{op}}"
        );
        return Err(FieldError::new("", why));
    }
    Ok(())
}

fn build_credential(
    configured: Option<&toml::Value>,
    known: Option<&ProviderEntry>,
    fill: &Placeholders<'_>,
    host: Option<&HostIdentity>,
) -> Result<Credential, FieldError> {
    let region = fill.value(REGION_PLACEHOLDER);
    let service = known.and_then(|known| match &known.auth {
        AuthScheme::SigV4(service) => Some(service.as_str()),
        AuthScheme::Bearer | AuthScheme::Header(_) | AuthScheme::Google | AuthScheme::None => None,
    });
    let context = AuthContext { env: fill.env, region: region.as_deref(), service, host };
    if let Some(configured) = configured {
        return auth::parse_auth(configured, &context);
    }
    let Some(known) = known else { return Ok(Credential::none()) };
    if known.auth == AuthScheme::None {
        return Ok(Credential::none());
    }
    let Some(secret) = first_set_variable(&known.key_env, fill.env) else {
        let name = known.key_env.first().map_or("its key", String::as_str);
        return Err(FieldError::new(
            "auth",
            format_args!("is missing; set it, or export {name}=…"),
        ));
    };
    match &known.auth {
        AuthScheme::Bearer => auth::header_credential(None, &secret),
        AuthScheme::Header(name) => auth::header_credential(Some(name), &secret),
        AuthScheme::Google => {
            auth::google_credential(&secret, &context).map_err(|why| why.below("auth"))
        }
        AuthScheme::SigV4(_) => auth_aws::sigv4_from_env(&context),
        AuthScheme::None => Ok(Credential::none()),
    }
}

fn parse_format(word: &str) -> Result<WireFormat, FieldError> {
    WireFormat::parse(word).ok_or_else(|| {
        let near = nearest_word(word, WireFormat::ALL.map(WireFormat::as_str));
        let near = near.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
        FieldError::new("", format!("there is no format \"{word}\"{near}"))
    })
}

fn parse_formats(values: Vec<String>) -> Result<Vec<WireFormat>, FieldError> {
    if values.is_empty() {
        return Err(FieldError::new("speaks", "names no format"));
    }
    values.iter().map(|word| parse_format(word).map_err(|why| why.below("speaks"))).collect()
}

/// Requests above this size are answered by the demo models outside the threads that serve sockets.
const LARGE_DEMO_BYTES: usize = 256 << 10;

/// Answers a large request of the demo models. Their work is done in this process, one request at a
/// time, where it keeps no other caller waiting.
async fn serve_large(request: Request<Bytes>) -> Response<demo::DemoBody> {
    static PLACE: Semaphore = Semaphore::const_new(1);
    let mut place = PLACE.acquire().await.ok();
    let mut answer = pin!(demo::serve(request));
    poll_fn(|cx| {
        // A single-threaded runtime, as in tests, has no other thread.
        let polled = match Handle::current().runtime_flavor() {
            RuntimeFlavor::MultiThread => block_in_place(|| answer.as_mut().poll(cx)),
            _ => answer.as_mut().poll(cx),
        };
        // A model that only waits leaves its place to others.
        place = None;
        polled
    })
    .await
}

/// The demo models, served inside this process.
struct DemoModels;

impl LocalService for DemoModels {
    fn call(
        &self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Response<LocalBody>> + Send>> {
        Box::pin(async move {
            let answer = match request.body().len() > LARGE_DEMO_BYTES {
                true => serve_large(request).await,
                false => demo::serve(request).await,
            };
            answer.map(|body| body.map_err(Into::into).boxed_unsync())
        })
    }
}
