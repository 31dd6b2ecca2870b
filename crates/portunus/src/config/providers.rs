//! Providers: those in the file, those an environment variable switches on, and the demo models.

use bytes::Bytes;
use canon::Origin;
use catalog::{Auth, Directory, ProviderEntry};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use upstream::{Client, Credential, Local, LocalBody, Provider, Timeouts};

use super::nearest;
use super::raw::{RawAuth, RawAuths, RawProvider};

/// The name of the provider of demo models.
pub(super) const DEMO: &str = "demo";

/// Checks the providers.
pub(super) fn check(
    raw: BTreeMap<String, RawProvider>,
    times: Timeouts,
    demo: bool,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Provider>, String> {
    let client = Client::net(times.connect)
        .map_err(|e| format!("outgoing connections cannot be made safe: {e}"))?;
    let mut providers = Vec::new();
    for (name, raw) in &raw {
        let path = format!("providers.{name}");
        if name == DEMO || name.contains('/') || name.is_empty() {
            return Err(format!("{path}: this name cannot be used"));
        }
        let known = Directory::embedded().provider(name);
        providers.push(
            provider(name, raw, known, times, &client, env)
                .map_err(|why| format!("{path}{why}"))?,
        );
    }
    for known in Directory::embedded().providers() {
        let secret = known.env.iter().find_map(|name| env(name)).filter(|s| !s.trim().is_empty());
        if let Some(secret) = secret
            && known.is_ready()
            && !raw.contains_key(&known.id)
            && let Some(credential) = credential(&known.auth, secret.trim())
        {
            let made = Provider::new(
                &known.id,
                known.speaks.clone(),
                &known.base,
                credential,
                times,
                client.clone(),
            );
            providers.push(made.map_err(|e| format!("directory: {}: {e}", known.id))?);
        }
    }
    if demo {
        let local = Client::Local(Arc::new(DemoModels));
        let speaks = dialects::all().map(dialects::Dialect::origin).collect();
        let base = "http://demo.invalid";
        let made = Provider::new(DEMO, speaks, base, Credential::none(), times, local);
        providers.push(made.map_err(|e| e.to_string())?);
    }
    Ok(providers)
}

fn provider(
    name: &str,
    raw: &RawProvider,
    known: Option<&ProviderEntry>,
    times: Timeouts,
    client: &Client,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Provider, String> {
    let RawProvider { speaks, base, auth, timeouts } = raw;
    let speaks = match (speaks.clone(), known) {
        (Some(words), _) => origins(words.into_vec())?,
        (None, Some(known)) => known.speaks.clone(),
        (None, None) => return Err(".speaks: is missing; write for instance \"chat\"".to_owned()),
    };
    let base = match (base, known) {
        (Some(base), _) => base.as_str(),
        (None, Some(known)) => known.base.as_str(),
        (None, None) => {
            return Err(".base: is missing; write what comes before /v1/…".to_owned());
        }
    };
    let mut others = Vec::new();
    let credential = match (auth, known) {
        (Some(RawAuths::One(auth)), _) => given_credential(auth, env)?,
        (Some(RawAuths::Many(several)), _) => {
            let several: Result<Vec<_>, _> =
                several.iter().map(|auth| given_credential(auth, env)).collect();
            let mut several = several?.into_iter();
            let first = several.next().ok_or(".auth: the list holds no credential")?;
            others.extend(several);
            first
        }
        (None, Some(known)) => {
            let secret = known.env.iter().find_map(|name| env(name));
            match (secret, &known.auth) {
                (Some(secret), auth) => credential(auth, secret.trim()),
                (None, Auth::None) => Some(Credential::none()),
                (None, _) => {
                    let name = known.env.first().map_or("its key", String::as_str);
                    return Err(format!(".auth: is missing; set it, or export {name}=…"));
                }
            }
            .ok_or(".auth: the secret holds characters no header can carry")?
        }
        (None, None) => Credential::none(),
    };
    let own = super::overlay(times, timeouts, ".timeouts")?;
    let client = if own.connect == times.connect {
        client.clone()
    } else {
        Client::net(own.connect).map_err(|e| format!(": no connection can be made safe: {e}"))?
    };
    let made = Provider::new(name, speaks, base, credential, own, client);
    Ok(made.map_err(|e| format!(".base: {e}"))?.with_more(others))
}

fn origins(words: Vec<String>) -> Result<Vec<Origin>, String> {
    if words.is_empty() {
        return Err(".speaks: names no format".to_owned());
    }
    words
        .into_iter()
        .map(|word| match Origin::by_name(&word) {
            Some(origin) => Ok(origin),
            None => {
                let near = nearest(&word, Origin::ALL.map(Origin::name));
                let near =
                    near.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
                Err(format!(".speaks: there is no format \"{word}\"{near}"))
            }
        })
        .collect()
}

fn given_credential(
    auth: &RawAuth,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Credential, String> {
    let credential = match auth {
        RawAuth::Word(word) if word == "none" => Some(Credential::none()),
        RawAuth::Word(word) => {
            return Err(format!(
                ".auth: `{word}` is not known; write \"none\" or {{ bearer = {{ env = \"NAME\" }} }}"
            ));
        }
        RawAuth::Bearer { bearer } => Credential::bearer(&resolve(bearer, env)?),
        RawAuth::Header { header, value } => Credential::header(header, &resolve(value, env)?),
        RawAuth::Google { .. } | RawAuth::Sigv4 { .. } => {
            return Err(".auth: `google` and `sigv4` are not served by this version".to_owned());
        }
    };
    credential.ok_or_else(|| ".auth: holds characters no header can carry".to_owned())
}

fn resolve(
    secret: &super::raw::Secret,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    secret.resolve(env).map_err(|why| format!(".auth: {why}"))
}

/// The credential a known provider wants; `None` when the secret cannot stand in a header.
fn credential(auth: &Auth, secret: &str) -> Option<Credential> {
    match auth {
        Auth::Bearer => Credential::bearer(secret),
        Auth::Header(name) => Credential::header(name, secret),
        Auth::None => Some(Credential::none()),
        Auth::Google | Auth::SigV4 => None,
    }
}

/// The demo models as a provider inside this process.
struct DemoModels;

impl Local for DemoModels {
    fn call(
        &self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Response<LocalBody>> + Send>> {
        Box::pin(async move {
            demo::serve(request).await.map(|body| body.map_err(Into::into).boxed_unsync())
        })
    }
}
