//! Check of a provider's credentials with a request that costs nothing.

use canon::WireFormat;
use catalog::Endpoints;
use config::{Config, DEMO_PROVIDER};
use http::{HeaderMap, HeaderValue};
use serde::Serialize;
use std::time::{Duration, Instant};
use transport::SentMark;
use upstream::{Provider, SendOptions, SentSecrets};

use crate::Admin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::provider_view::ProviderView;

/// Time a provider may take to answer the check of a credential.
const CHECK_TIMEOUT: Duration = Duration::from_secs(15);

/// Result of the check of one credential.
#[derive(Clone, Debug, Serialize)]
pub struct CredentialCheck {
    /// Id of the credential; `None` for a provider that needs none.
    pub credential: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// True if the provider accepts it.
    pub ok: bool,
    /// Status of the provider's answer.
    pub status: Option<u16>,
    /// Time to the answer.
    pub took_ms: Option<u64>,
    /// The result in words.
    pub say: String,
}

impl CredentialCheck {
    const fn failed(message: String) -> Self {
        Self { credential: None, name: None, ok: false, status: None, took_ms: None, say: message }
    }
}

impl Admin {
    /// Checks every credential of a provider.
    pub async fn check_provider(
        &self,
        actor: &Actor,
        name: &str,
    ) -> Result<Vec<CredentialCheck>, AdminError> {
        actor.require_admin()?;
        self.refresh_stored_config().await?;
        let (config, stored) = self.current_config();
        let view = ProviderView::find(&config, &stored, name);
        let view = view.ok_or(AdminError::NotFound("provider"))?;
        let live = config.providers.iter().find(|live| live.name == name);
        let endpoints = config.endpoints.get(name).cloned().unwrap_or_default();
        self.accounts.record_event(actor, ["provider.check", name, ""]).await?;
        let mut results = Vec::new();
        // Credential slots of the live provider count only credentials that can be used.
        let mut slot = 0;
        for credential in &view.credentials {
            let found = match (live, &credential.trouble) {
                (Some(live), None) => {
                    slot += 1;
                    check_credential(live, &endpoints, slot - 1).await
                }
                (None, None) => CredentialCheck::failed(
                    "the provider does not serve; see its trouble".to_owned(),
                ),
                (_, Some(trouble)) => CredentialCheck::failed(trouble.clone()),
            };
            results.push(CredentialCheck {
                credential: Some(credential.id.clone()),
                name: Some(credential.name.clone()),
                ..found
            });
        }
        if let (Some(live), true) = (live, view.credentials.is_empty()) {
            results.push(check_credential(live, &endpoints, 0).await);
        }
        Ok(results)
    }
}

/// Checks every credential of a provider, and returns what is wrong with them. A provider without a list
/// of models is only reached.
pub async fn check_credentials(config: &Config, provider: &Provider) -> Vec<String> {
    let mut found = Vec::new();
    if provider.name == DEMO_PROVIDER {
        return found;
    }
    let endpoints = config.endpoints.get(&provider.name).cloned().unwrap_or_default();
    for slot in 0..provider.credential_count().max(1) {
        let CredentialCheck { ok, status, took_ms, say, .. } =
            check_credential(provider, &endpoints, slot).await;
        let has_no_list = matches!(status, Some(404 | 405));
        if !ok && !has_no_list && took_ms.is_some() {
            found.push(format!("`{}`, credential {}: {say}", provider.name, slot + 1));
        }
    }
    found
}

/// Requests the list of models and judges only the status of the answer.
async fn check_credential(
    provider: &Provider,
    endpoints: &Endpoints,
    credential: usize,
) -> CredentialCheck {
    let Some((origin, path)) = provider
        .formats
        .iter()
        .find_map(|origin| Some((*origin, model_list_path(endpoints, *origin)?)))
    else {
        return check_fetch(provider, credential).await;
    };
    let mut headers = HeaderMap::new();
    for (name, value) in
        dialects::get(origin).map(|own| own.traits().request_headers).unwrap_or_default()
    {
        headers.insert(*name, HeaderValue::from_static(value));
    }
    let how = SendOptions {
        credential,
        new_connection: true,
        connect: provider.timeouts.connect,
        first_byte: provider.timeouts.first_byte.min(CHECK_TIMEOUT),
        sent: &SentMark::default(),
        secrets: &SentSecrets::default(),
    };
    let started = Instant::now();
    let answer = provider.get(&path, headers, &how).await;
    let took_ms = Some(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
    match answer {
        Ok(answer) => {
            let status = answer.status;
            let (ok, say) = match status {
                200..=299 => (true, "it works".to_owned()),
                401 | 403 => (false, "the credential is refused".to_owned()),
                404 | 405 => (false, "it answers, but has no model list; try a call".to_owned()),
                _ => (false, format!("it answers with status {status}")),
            };
            CredentialCheck { ok, status: Some(status), took_ms, ..CredentialCheck::failed(say) }
        }
        Err(error) => {
            // The reason of a failed fetch is for administrators; callers get a neutral message.
            let trouble = provider.credential_trouble(credential);
            let say = trouble.unwrap_or_else(|| error.message().to_owned());
            CredentialCheck { took_ms, ..CredentialCheck::failed(say) }
        }
    }
}

/// Checks a credential of a provider without a model list, as far as it is fetched from a service.
async fn check_fetch(provider: &Provider, credential: usize) -> CredentialCheck {
    const NO_LIST: &str = "the provider has no model list to check with; try a call";
    if !provider.has_fetched_credential(credential) {
        return CredentialCheck::failed(NO_LIST.to_owned());
    }
    let started = Instant::now();
    let fetched = provider.prepare_credential(credential).await;
    let took_ms = Some(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
    let trouble = provider.credential_trouble(credential);
    let say = match fetched {
        Ok(()) => format!("the credential was fetched, but {NO_LIST}"),
        Err(error) => trouble.unwrap_or_else(|| error.message().to_owned()),
    };
    CredentialCheck { took_ms, ..CredentialCheck::failed(say) }
}

/// Returns the path of a provider's model list, derived from its call path in that format.
fn model_list_path(endpoints: &Endpoints, origin: WireFormat) -> Option<String> {
    let traits = dialects::get(origin).map(|own| own.traits());
    let usual = traits.map_or("/v1/models", |traits| traits.model_list_path);
    let Some(own) = endpoints.path(origin) else { return Some(usual.to_owned()) };
    let (path, query) = match own.whole.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (own.whole.as_str(), String::new()),
    };
    let ending = traits.map_or(Some(dialects::images::PATH_ENDING), |traits| traits.path_ending);
    let front = ending.and_then(|ending| path.strip_suffix(ending));
    let listed = front.map(|front| format!("{front}/models"));
    let listed = listed.or_else(|| {
        let front = path.split_once("/{model}")?.0;
        front.ends_with("/models").then(|| front.to_owned())
    })?;
    (!listed.contains('{')).then(|| format!("{listed}{query}"))
}
