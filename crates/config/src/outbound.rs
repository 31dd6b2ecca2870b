//! How connections leave, and what is fetched for callers.

use catalog::{ModelDirectory, MediaFetch};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use transport::{Guard, Outbound, Proxies};
use upstream::{FetchLimits, Fetcher};

use crate::overlay::{Entry, Wrong};
use crate::raw::{OneOrMany, RawMedia, RawOutbound, RawProvider};
use crate::units::{self, duration};

/// The word for no proxy, whatever the environment says.
const NONE: &str = "none";

/// Media that callers name by address.
#[derive(Clone, Debug)]
pub struct Media {
    /// Whether it is fetched here for lanes that cannot.
    pub fetch: bool,
    /// Who fetches it, and who judges addresses.
    pub fetcher: Fetcher,
    pub(super) fetches: HashMap<String, MediaFetch>,
}

impl Media {
    /// What a provider gets by itself.
    pub fn got_by(&self, provider: &str) -> MediaFetch {
        self.fetches.get(provider).copied().unwrap_or_default()
    }
}

/// Checks the way out.
pub(super) fn check(
    raw: RawOutbound,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(Outbound, Guard), String> {
    let RawOutbound { proxy, no_proxy, allow, ca } = raw;
    let guard = Guard::new(allow.iter().map(String::as_str));
    let guard = guard.map_err(|why| format!("outbound.allow: {why}"))?;
    let usual = |names: [&str; 2]| {
        names.iter().find_map(|name| env(name)).filter(|value| !value.trim().is_empty())
    };
    let except = no_proxy.map(|list| list.into_vec().join(","));
    let except = except.or_else(|| usual(["NO_PROXY", "no_proxy"]));
    let (proxies, named) = match proxy {
        Some(word) if word == NONE => (Proxies::default(), "outbound.proxy"),
        Some(proxy) => {
            let (http, https) = (Some(proxy.clone()), Some(proxy));
            (Proxies { http, https, except }, "outbound.proxy")
        }
        None => {
            let all = usual(["ALL_PROXY", "all_proxy"]);
            let http = usual(["HTTP_PROXY", "http_proxy"]).or_else(|| all.clone());
            let https = usual(["HTTPS_PROXY", "https_proxy"]).or(all);
            (Proxies { http, https, except }, "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY")
        }
    };
    let mut trusted = Vec::new();
    let own = ca.map(OneOrMany::into_vec).unwrap_or_default();
    let own = own.into_iter().map(|file| ("outbound.ca", file));
    for (name, file) in own.chain(env("SSL_CERT_FILE").map(|file| ("SSL_CERT_FILE", file))) {
        let pem = std::fs::read(&file)
            .map_err(|e| format!("{name}: the file {file} cannot be read: {e}"))?;
        // Read alone first, so that the file that is wrong can be named.
        Outbound::new(&Proxies::default(), std::slice::from_ref(&pem))
            .map_err(|e| format!("{name}: {file}: {e}"))?;
        trusted.push(pem);
    }
    let way = Outbound::new(&proxies, &trusted).map_err(|e| format!("{named}: {e}"))?;
    Ok((way, guard))
}

/// Checks what is fetched for callers.
pub(super) fn media(
    raw: RawMedia,
    fetches: HashMap<String, MediaFetch>,
    public_url: &str,
    way: &Outbound,
) -> Result<Media, String> {
    let RawMedia { fetch, allow, ports, size, time } = raw;
    let guard = Guard::new(allow.iter().map(String::as_str));
    let guard = guard.map_err(|why| format!("media.allow: {why}"))?.not_ourselves(public_url);
    let guard = match ports {
        Some(ports) => guard.on_ports(ports),
        None => guard,
    };
    let size = size.as_deref().map_or(Ok(20 << 20), units::size);
    let size = size.map_err(|why| format!("media.size: {why}"))?;
    let time = time.as_deref().map_or(Ok(Duration::from_secs(10)), duration);
    let time = time.map_err(|why| format!("media.time: {why}"))?;
    let fetcher = Fetcher::new(guard, way, FetchLimits { size, time });
    Ok(Media { fetch: fetch.unwrap_or(true), fetcher, fetches })
}

/// What each provider gets by itself.
pub(super) fn fetches(
    providers: &BTreeMap<String, RawProvider>,
) -> Result<HashMap<String, MediaFetch>, Wrong> {
    let directory = ModelDirectory::embedded().providers();
    let mut fetches: HashMap<String, MediaFetch> =
        directory.map(|known| (known.id.clone(), known.fetches)).collect();
    for (name, raw) in providers {
        if let Some(known) = raw.like.as_ref().and_then(|like| fetches.get(like)) {
            fetches.insert(name.clone(), *known);
        }
        if let Some(word) = &raw.fetches {
            let known = MediaFetch::parse(word).ok_or_else(|| {
                let why = format!(
                    ".fetches: `{word}` is not known; write \"all\", \"typed\" or \"nothing\""
                );
                Wrong::about(Entry::Provider(name.clone()), why)
            })?;
            fetches.insert(name.clone(), known);
        }
    }
    Ok(fetches)
}
