//! Settings of outgoing connections and of media fetched for callers.

use catalog::{MediaFetch, ModelDirectory};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use transport::{AddressGuard, Outbound, ProxySettings};
use upstream::{FetchLimits, MediaFetcher, Provider};

use crate::entry::{EntryError, EntryName};
use crate::error::FieldError;
use crate::providers::DEMO_PROVIDER;
use crate::raw::{RawMedia, RawOutbound, RawProvider, StringOrList};
use crate::units::{self, parse_duration};

/// Value of `proxy` that ignores the proxy variables of the environment.
const DIRECT: &str = "none";

/// Fetching of media that callers name by URL.
#[derive(Clone, Debug)]
pub struct MediaSettings {
    /// True if the gateway fetches media for lanes that cannot.
    pub is_fetch_enabled: bool,
    /// Fetches media and checks URLs.
    pub fetcher: MediaFetcher,
    pub(super) provider_fetch: HashMap<String, MediaFetch>,
}

impl MediaSettings {
    /// Returns the media URLs that a provider fetches itself.
    pub fn provider_fetch(&self, provider: &str) -> MediaFetch {
        self.provider_fetch.get(provider).copied().unwrap_or_default()
    }
}

/// Checks `[outbound]`.
pub(super) fn check(
    raw: RawOutbound,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(Outbound, AddressGuard), FieldError> {
    let RawOutbound { proxy, no_proxy, allow, ca } = raw;
    let guard = AddressGuard::new(allow.iter().map(String::as_str));
    let guard = guard.map_err(|why| FieldError::new("outbound.allow", why))?;
    let from_env = |names: [&str; 2]| {
        names.iter().find_map(|name| env(name)).filter(|value| !value.trim().is_empty())
    };
    let no_proxy = no_proxy.map(|list| list.into_vec().join(","));
    let no_proxy = no_proxy.or_else(|| from_env(["NO_PROXY", "no_proxy"]));
    let (proxies, setting) = match proxy {
        Some(word) if word == DIRECT => (ProxySettings::default(), "outbound.proxy"),
        Some(proxy) => {
            let (http, https) = (Some(proxy.clone()), Some(proxy));
            (ProxySettings { http, https, no_proxy }, "outbound.proxy")
        }
        None => {
            let all = from_env(["ALL_PROXY", "all_proxy"]);
            let http = from_env(["HTTP_PROXY", "http_proxy"]).or_else(|| all.clone());
            let https = from_env(["HTTPS_PROXY", "https_proxy"]).or(all);
            (ProxySettings { http, https, no_proxy }, "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY")
        }
    };
    let mut trusted = Vec::new();
    let own = ca.map(StringOrList::into_vec).unwrap_or_default();
    let own = own.into_iter().map(|file| ("outbound.ca", file));
    for (name, file) in own.chain(env("SSL_CERT_FILE").map(|file| ("SSL_CERT_FILE", file))) {
        let pem = std::fs::read(&file).map_err(|e| {
            FieldError::new(name, format_args!("the file {file} cannot be read: {e}"))
        })?;
        // Parsed alone first, so that the error can name the file.
        Outbound::new(&ProxySettings::default(), std::slice::from_ref(&pem))
            .map_err(|e| FieldError::new(name, format_args!("{file}: {e}")))?;
        trusted.push(pem);
    }
    let outbound = Outbound::new(&proxies, &trusted).map_err(|e| FieldError::new(setting, e))?;
    Ok((outbound, guard))
}

/// Checks `[media]`.
pub(super) fn media_settings(
    raw: RawMedia,
    fetches: HashMap<String, MediaFetch>,
    public_url: &str,
    outbound: &Outbound,
) -> Result<MediaSettings, FieldError> {
    let RawMedia { fetch, allow, ports, size, time } = raw;
    let guard = AddressGuard::new(allow.iter().map(String::as_str));
    let guard =
        guard.map_err(|why| FieldError::new("media.allow", why))?.refusing_own_host(public_url);
    let guard = match ports {
        Some(ports) => guard.with_ports(ports),
        None => guard,
    };
    let size = size.as_deref().map_or(Ok(20 << 20), units::parse_size);
    let size = size.map_err(|why| FieldError::new("media.size", why))?;
    let time = time.as_deref().map_or(Ok(Duration::from_secs(10)), parse_duration);
    let time = time.map_err(|why| FieldError::new("media.time", why))?;
    let fetcher =
        MediaFetcher::new(guard, outbound, FetchLimits { max_bytes: size, timeout: time });
    Ok(MediaSettings { is_fetch_enabled: fetch.unwrap_or(true), fetcher, provider_fetch: fetches })
}

/// Returns the media URLs that each provider fetches itself. One within a private network fetches
/// none, unless the operator says so: callers would reach that network through it.
pub(super) fn provider_fetches(
    providers: &BTreeMap<String, RawProvider>,
    built: &[Arc<Provider>],
) -> Result<HashMap<String, MediaFetch>, EntryError> {
    let directory = ModelDirectory::embedded().providers();
    let mut fetches: HashMap<String, MediaFetch> =
        directory.map(|known| (known.id.clone(), known.fetches)).collect();
    for (name, raw) in providers {
        if let Some(known) = raw.like.as_ref().and_then(|like| fetches.get(like)) {
            fetches.insert(name.clone(), *known);
        }
        if let Some(word) = &raw.fetches {
            let known = MediaFetch::parse(word).ok_or_else(|| {
                let why = FieldError::new(
                    "fetches",
                    format_args!("`{word}` is not known; write \"all\", \"typed\" or \"nothing\""),
                );
                EntryError::for_entry(EntryName::Provider(name.clone()), why)
            })?;
            fetches.insert(name.clone(), known);
        }
    }
    let is_private = |provider: &&Arc<Provider>| {
        let is_told = providers.get(&provider.name).is_some_and(|raw| raw.fetches.is_some());
        provider.name != DEMO_PROVIDER && !is_told && !provider.is_public()
    };
    fetches
        .extend(built.iter().filter(is_private).map(|own| (own.name.clone(), MediaFetch::Nothing)));
    Ok(fetches)
}
