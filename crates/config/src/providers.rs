//! Providers of the file, providers enabled by an environment variable, and the demo provider.

use bytes::Bytes;
use canon::WireFormat;
use catalog::{AuthScheme, EndpointPath, Endpoints, ModelDirectory, ProviderEntry};
use http::uri::PathAndQuery;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use transport::{HttpClient, LocalBody, LocalService, Outbound};
use upstream::{Credential, Provider, Timeouts};

use crate::auth::{self, AuthContext};
use crate::overlay::{EntryError, EntryName};
use crate::raw::{RawAuth, RawProvider};
use crate::units::nearest_word;

/// Name of the demo provider.
pub const DEMO_PROVIDER: &str = "demo";

/// Paths and field quirks of each provider, by provider name.
pub type EndpointsByProvider = HashMap<String, Arc<Endpoints>>;

pub(super) type EnvLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Checks the providers.
pub(super) fn check(
    raw: &BTreeMap<String, RawProvider>,
    times: Timeouts,
    demo: bool,
    way: &Outbound,
    env: EnvLookup<'_>,
    warnings: &mut Vec<String>,
) -> Result<(Vec<Provider>, EndpointsByProvider), EntryError> {
    let client = HttpClient::network(times.connect, way);
    let mut providers = Vec::new();
    let mut all_ways = EndpointsByProvider::new();
    let mut add = |(provider, ways): (Provider, Endpoints)| {
        all_ways.insert(provider.name.clone(), Arc::new(ways));
        providers.push(provider);
    };
    for (name, raw) in raw {
        let wrong = |why: String| EntryError::for_entry(EntryName::Provider(name.clone()), why);
        if name == DEMO_PROVIDER || name.contains('/') || name.is_empty() {
            return Err(wrong(": this name cannot be used".to_owned()));
        }
        add(build_provider(name, raw, (times, &client, way), env).map_err(wrong)?);
    }
    for known in ModelDirectory::embedded().providers() {
        if raw.contains_key(&known.id) || !is_switched_on(known, env) {
            continue;
        }
        match build_provider(&known.id, &RawProvider::default(), (times, &client, way), env) {
            Ok(made) => add(made),
            // The variables may belong to another program, so the gateway starts anyway.
            Err(why) => warnings.push(format!(
                "`{}` stays off, though its variables are set: providers.{}{why}",
                known.id, known.id
            )),
        }
    }
    if demo {
        let local = HttpClient::Local(Arc::new(DemoModels));
        let speaks = WireFormat::ALL.to_vec();
        let base = "http://demo.invalid";
        let made = Provider::new(DEMO_PROVIDER, speaks, base, Credential::none(), times, local);
        let ways = Endpoints { provider: DEMO_PROVIDER.to_owned(), ..Endpoints::default() };
        add((made.map_err(|e| e.to_string())?, ways));
    }
    Ok((providers, all_ways))
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
    let filled = |(blank, names): &(String, Vec<String>)| {
        first_set_variable(names, env).is_some()
            || (known.auth == AuthScheme::Google && blank == PROJECT_PLACEHOLDER)
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

/// Upper bound of `max_in_flight`, to catch a typing error.
const MAX_IN_FLIGHT_CALLS: usize = 1_000_000;
const PROJECT_PLACEHOLDER: &str = "project";
const REGION_PLACEHOLDER: &str = "region";

fn build_provider(
    name: &str,
    raw: &RawProvider,
    (times, client, way): (Timeouts, &HttpClient, &Outbound),
    env: EnvLookup<'_>,
) -> Result<(Provider, Endpoints), String> {
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
        fetches: _,
    } = raw;
    if *max_in_flight == Some(0) {
        return Err(".max_in_flight: must be at least one call".to_owned());
    }
    if max_in_flight.is_some_and(|most| most > MAX_IN_FLIGHT_CALLS) {
        return Err(format!(".max_in_flight: must be at most {MAX_IN_FLIGHT_CALLS}"));
    }
    let known = known_provider(name, like.as_deref())?;
    let speaks = match (speaks.clone(), known) {
        (Some(words), _) => parse_formats(words.into_vec())?,
        (None, Some(known)) => known.formats.clone(),
        (None, None) => return Err(".speaks: is missing; write for instance \"chat\"".to_owned()),
    };
    let words = fill;
    let mut fill = Placeholders { values: words.clone(), provider: known, env };
    let several = auth.as_ref().map(RawAuth::credentials).unwrap_or_default();
    if auth.is_some() && several.is_empty() {
        return Err(".auth: the list holds no credential".to_owned());
    }
    if let Some(region) = several.iter().find_map(|auth| auth::sigv4_region(Some(auth))) {
        fill.values.entry(REGION_PLACEHOLDER.to_owned()).or_insert_with(|| region.to_owned());
    }
    let mut several = several.into_iter();
    let first = build_credential(several.next(), known, &fill)?;
    let others: Result<Vec<_>, _> =
        several.map(|auth| build_credential(Some(auth), known, &fill)).collect();
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
            return Err(".base: is missing; write what comes before /v1/…".to_owned());
        }
    };
    let mut ways = known.map(|known| known.endpoints.clone()).unwrap_or_default();
    for (word, path) in paths {
        let origin = parse_format(word).map_err(|why| format!(".paths: {why}"))?;
        ways.paths.retain(|(own, _)| *own != origin);
        ways.paths.push((origin, path.clone()));
    }
    for (word, own) in quirks {
        let origin = parse_format(word).map_err(|why| format!(".quirks: {why}"))?;
        ways.quirks.retain(|(known, _)| *known != origin);
        ways.quirks.push((origin, own.clone()));
    }
    let bases = known.map(|known| known.base.as_str()).into_iter().chain([base.as_str()]);
    check_placeholders(words, bases, &ways)?;
    let base = fill.fill_in(base)?;
    ways.paths.retain(|(origin, _)| speaks.contains(origin));
    for (origin, path) in &mut ways.paths {
        let at = |why: String| format!(".paths.{origin}: {why}");
        let EndpointPath { whole, stream } = path;
        for path in [whole, stream] {
            *path = fill.fill_in(path)?;
            check_path(path).map_err(at)?;
        }
    }
    let own = crate::timeouts::overlay(times, timeouts, ".timeouts")?;
    let client = match own.connect == times.connect {
        true => client.clone(),
        false => HttpClient::network(own.connect, way),
    };
    let made = Provider::new(name, speaks, &base, credential, own, client);
    let made = made.map_err(|e| format!(".base: {e}"))?.with_credentials(others);
    let made = made.with_hosts(hosts).map_err(|e| format!(".hosts: {e}"))?;
    Ok((made.with_max_in_flight(max_in_flight.unwrap_or(usize::MAX)), ways))
}

/// Returns the directory entry named by `like`, or else by the provider's own name.
fn known_provider(
    name: &str,
    like: Option<&str>,
) -> Result<Option<&'static ProviderEntry>, String> {
    let directory = ModelDirectory::embedded();
    let Some(like) = like else { return Ok(directory.provider(name)) };
    match directory.provider(like).filter(|known| known.id != DEMO_PROVIDER) {
        Some(known) => Ok(Some(known)),
        None => {
            let near = nearest_word(like, directory.providers().map(|known| known.id.as_str()));
            let near = near.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
            Err(format!(".like: the directory knows no provider \"{like}\"{near}"))
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
    fn value(&self, blank: &str) -> Option<String> {
        let usual = || first_set_variable(self.variables(blank)?, self.env);
        self.values.get(blank).cloned().or_else(usual)
    }

    fn variables(&self, blank: &str) -> Option<&[String]> {
        let (_, names) = self.provider?.placeholder_env.iter().find(|(known, _)| known == blank)?;
        Some(names)
    }

    /// Replaces the placeholders in a text, except those that each call replaces.
    fn fill_in(&self, text: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((blank, tail)) = after.split_once('}') else { break };
            out.push_str(before);
            match (blank, self.value(blank)) {
                ("model" | "op", _) => out.push_str(&format!("{{{blank}}}")),
                (_, Some(value)) => out.push_str(value.trim_end_matches('/')),
                (_, None) => {
                    let names = self.variables(blank).unwrap_or_default();
                    let or = names
                        .first()
                        .map_or_else(String::new, |name| format!(", or export {name}=…"));
                    return Err(format!(
                        ".fill.{blank}: is missing; write what stands for it in `{text}`{or}"
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
    given: &BTreeMap<String, String>,
    bases: impl Iterator<Item = &'a str>,
    ways: &'a Endpoints,
) -> Result<(), String> {
    let paths = ways.paths.iter().flat_map(|(_, path)| [&*path.whole, &*path.stream]);
    let addresses: Vec<&str> = bases.chain(paths).collect();
    let stands = |word: &str| addresses.iter().any(|text| text.contains(&format!("{{{word}}}")));
    match given.keys().find(|word| !stands(word)) {
        None => Ok(()),
        Some(word) => Err(format!(".fill.{word}: none of its addresses has this placeholder")),
    }
}

fn check_path(path: &str) -> Result<(), String> {
    let sample = path.replace("{model}", "m").replace("{op}", "o");
    if !sample.starts_with('/')
        || sample.contains(['{', '}'])
        || PathAndQuery::try_from(sample).is_err()
    {
        return Err(format!(
            "`{path}` is not a path; it begins with a slash, and its placeholders are {{model}} and {{op}}"
        ));
    }
    Ok(())
}

fn build_credential(
    given: Option<&toml::Value>,
    known: Option<&ProviderEntry>,
    fill: &Placeholders<'_>,
) -> Result<Credential, String> {
    let region = fill.value(REGION_PLACEHOLDER);
    let service = known.and_then(|known| match &known.auth {
        AuthScheme::SigV4(service) => Some(service.as_str()),
        AuthScheme::Bearer | AuthScheme::Header(_) | AuthScheme::Google | AuthScheme::None => None,
    });
    let at = AuthContext { env: fill.env, region: region.as_deref(), service };
    if let Some(given) = given {
        return auth::parse_auth(given, &at);
    }
    let Some(known) = known else { return Ok(Credential::none()) };
    if known.auth == AuthScheme::None {
        return Ok(Credential::none());
    }
    let Some(secret) = first_set_variable(&known.key_env, fill.env) else {
        let name = known.key_env.first().map_or("its key", String::as_str);
        return Err(format!(".auth: is missing; set it, or export {name}=…"));
    };
    match &known.auth {
        AuthScheme::Bearer => auth::header_credential(None, &secret),
        AuthScheme::Header(name) => auth::header_credential(Some(name), &secret),
        AuthScheme::Google => auth::google_credential(&secret).map_err(|why| format!(".auth{why}")),
        AuthScheme::SigV4(_) => auth::sigv4_from_env(&at),
        AuthScheme::None => Ok(Credential::none()),
    }
}

fn parse_format(word: &str) -> Result<WireFormat, String> {
    WireFormat::parse(word).ok_or_else(|| {
        let near = nearest_word(word, WireFormat::ALL.map(WireFormat::as_str));
        let near = near.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
        format!("there is no format \"{word}\"{near}")
    })
}

fn parse_formats(words: Vec<String>) -> Result<Vec<WireFormat>, String> {
    if words.is_empty() {
        return Err(".speaks: names no format".to_owned());
    }
    words.iter().map(|word| parse_format(word).map_err(|why| format!(".speaks: {why}"))).collect()
}

/// The demo models, served inside this process.
struct DemoModels;

impl LocalService for DemoModels {
    fn call(
        &self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Response<LocalBody>> + Send>> {
        Box::pin(async move {
            demo::serve(request).await.map(|body| body.map_err(Into::into).boxed_unsync())
        })
    }
}
