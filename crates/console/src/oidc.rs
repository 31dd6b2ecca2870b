//! Sign-in through an identity provider: OpenID Connect authorization code flow
//! (<https://openid.net/specs/openid-connect-core-1_0.html>) with PKCE (RFC 7636).
//!
//! Starting the flow sets a cookie and stores the digest of cookie and state. Only the same browser
//! can return, once, within ten minutes and from the same provider. A user is identified by issuer
//! and subject, never by the e-mail address.

use std::sync::Arc;
use std::time::SystemTime;

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use canon::Micros;
use http::{HeaderValue, header};
use maud::html;
use openidconnect::core::{
    CoreAuthenticationFlow, CoreClient, CoreIdToken, CoreJwsSigningAlgorithm, CoreUserInfoClaims,
};
use openidconnect::{
    AuthorizationCode, ClientId, ClientSecret, CsrfToken, HttpRequest, HttpResponse, IssuerUrl,
    Nonce, OAuth2TokenResponse as _, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, Scope,
    TokenResponse as _,
};
use serde::Deserialize;
use store::{Link, LinkPurpose};

use crate::cookies::{self, CookieKind};
use crate::discovery::DiscoveryDocument;
use crate::form::FormFields;
use crate::host::{HostError, HostFuture};
use crate::layout::{Layout, ok_page};
use crate::links::{self, LINK_LIFETIMES, LinkData};
use crate::page_error::PageError;
use crate::provider_errors::{log_discovery_error, log_provider_error, shown_error};
use crate::state::ConsoleState;
use crate::{IdentityProvider, urls};
use admin::{IdentityClaims, random};

/// Accepted difference between the provider's clock and ours.
const MAX_CLOCK_SKEW: Micros = Micros::from_secs(60);
const MAX_PARAMETER_BYTES: usize = 4_096;

/// A finished flow: the provider, the claims, and the link stored at the start.
pub(crate) struct IdentityReturn {
    pub(crate) provider: IdentityProvider,
    pub(crate) claims: IdentityClaims,
    pub(crate) link: Link,
}

fn provider(state: &ConsoleState, name: &str) -> Result<IdentityProvider, PageError> {
    let found = state.host.identity_providers().into_iter().find(|provider| provider.name == name);
    found.ok_or(PageError::NotFound)
}

fn fetcher(
    state: &ConsoleState,
) -> impl Fn(HttpRequest) -> HostFuture<Result<HttpResponse, HostError>> + use<> {
    let host = Arc::clone(&state.host);
    move |request| host.fetch(request)
}

/// Returns the provider's discovery document and keys, from the cache if fresh.
async fn discover(
    state: &ConsoleState,
    provider: &IdentityProvider,
) -> Result<DiscoveryDocument, PageError> {
    let now = state.now();
    if let Some(document) = state.discovery.get(&provider.issuer, now) {
        return Ok(document);
    }
    let issuer = IssuerUrl::new(provider.issuer.clone()).map_err(|_| PageError::Internal)?;
    let document =
        DiscoveryDocument::discover_async(issuer, &fetcher(state)).await.map_err(|error| {
            log_discovery_error(provider, &error);
            PageError::IdentityProviderUnavailable
        })?;
    state.discovery.insert(&provider.issuer, now, document.clone());
    Ok(document)
}

fn callback_url(
    state: &ConsoleState,
    provider: &IdentityProvider,
) -> Result<RedirectUrl, PageError> {
    let url = format!("{}/auth/{}/callback", state.base_url(), urls::escape_value(&provider.name));
    RedirectUrl::new(url).map_err(|_| PageError::Internal)
}

/// Sends a browser to a provider to sign in or, with an account, to link that account.
pub(crate) async fn begin_sign_in(
    state: &ConsoleState,
    name: &str,
    account_id: Option<&str>,
    next: &str,
) -> Result<Response, PageError> {
    let provider = provider(state, name)?;
    let metadata = discover(state, &provider).await?;
    let client = CoreClient::from_provider_metadata(
        metadata,
        ClientId::new(provider.client_id.clone()),
        Some(ClientSecret::new(provider.client_secret.clone())),
    )
    .set_redirect_uri(callback_url(state, &provider)?);
    let words = [random::random_token(), random::random_token(), random::random_token()];
    let [Ok(csrf_state), Ok(nonce), Ok(cookie)] = words else { return Err(PageError::Internal) };
    let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
    let (url, csrf_state, nonce) = client
        .authorize_url(
            CoreAuthenticationFlow::AuthorizationCode,
            || CsrfToken::new(csrf_state),
            || Nonce::new(nonce),
        )
        .add_scope(Scope::new("email".to_owned()))
        .add_scope(Scope::new("profile".to_owned()))
        .set_pkce_challenge(challenge)
        .url();
    let note = LinkData {
        identity: Some(provider.name.clone()),
        nonce: Some(nonce.secret().clone()),
        verifier: Some(verifier.secret().clone()),
        next: Some(next.to_owned()),
        ..LinkData::default()
    };
    let hash = state_hash(csrf_state.secret(), &cookie);
    links::add(state, hash, LinkPurpose::Return, account_id, &note, LINK_LIFETIMES.sign_in_step)
        .await?;
    let mut response = forward_page(&provider.name, url.as_str());
    cookies::set(
        state,
        &mut response,
        CookieKind::IdentityFlow,
        &cookie,
        LINK_LIFETIMES.sign_in_step.as_secs(),
    );
    Ok(response)
}

/// Page that forwards the browser to a provider. A redirect would not work: the policy `form-action
/// 'self'` also applies to redirects of a submitted form
/// (<https://www.w3.org/TR/CSP3/#directive-form-action>).
pub(crate) fn forward_page(name: &str, url: &str) -> Response {
    let body = html! {
        section.card {
            h1 { "On to " (name) }
            p.actions { a.button href=(url) { "Go on" } }
        }
    };
    let mut response = ok_page(&Layout::signed_out("On your way"), &body);
    if let Ok(value) = HeaderValue::try_from(format!("0; url={url}")) {
        response.headers_mut().insert(header::REFRESH, value);
    }
    response
}

/// Digest under which the flow is stored. It covers the cookie and the state, so neither works
/// alone.
fn state_hash(csrf_state: &str, cookie: &str) -> Vec<u8> {
    random::digest(&format!("{cookie}.{csrf_state}"))
}

/// Finishes the flow when the browser returns. All checks run before any claim is used.
pub(crate) async fn finish_sign_in(
    state: &ConsoleState,
    name: &str,
    headers: &http::HeaderMap,
    query: &FormFields,
) -> Result<IdentityReturn, PageError> {
    const STALE: PageError = PageError::BadRequest(
        "This sign-in began elsewhere, or too long ago. Go to the sign-in page and begin again.",
    );
    let provider = provider(state, name)?;
    let csrf_state = query.get_single("state", MAX_PARAMETER_BYTES)?;
    let cookie = cookies::read(state, headers, CookieKind::IdentityFlow).ok_or(STALE)?;
    let link = state.store.take_link(&state_hash(csrf_state, &cookie), LinkPurpose::Return).await?;
    let link = link.filter(|link| links::is_valid(state, link)).ok_or(STALE)?;
    let note = links::link_data(&link);
    if note.identity.as_deref() != Some(name) {
        return Err(STALE);
    }
    let refused = || PageError::SignInRefused("The identity provider did not let you in.");
    let metadata = discover(state, &provider).await?;
    // RFC 9207: a response with an `iss` parameter must name the provider the browser was sent to.
    let issuer = query.get_single("iss", MAX_PARAMETER_BYTES)?;
    let must = metadata.additional_metadata().authorization_response_iss_parameter_supported;
    if (must || !issuer.is_empty()) && issuer != provider.issuer {
        tracing::warn!(identity = name, "the response of `{name}` names another issuer");
        return Err(refused());
    }
    let code = query.get_single("code", MAX_PARAMETER_BYTES)?;
    if code.is_empty() {
        tracing::info!(identity = name, "`{name}` refused a sign-in");
        return Err(refused());
    }
    let (Some(nonce), Some(verifier)) = (note.nonce, note.verifier) else { return Err(STALE) };
    let client = CoreClient::from_provider_metadata(
        metadata,
        ClientId::new(provider.client_id.clone()),
        Some(ClientSecret::new(provider.client_secret.clone())),
    )
    .set_redirect_uri(callback_url(state, &provider)?);
    let fetch = fetcher(state);
    let sent_secrets = [code.to_owned(), verifier.clone()];
    let exchange = client
        .exchange_code(AuthorizationCode::new(code.to_owned()))
        .map_err(|_| refused())?
        .set_pkce_verifier(PkceCodeVerifier::new(verifier))
        .request_async(&fetch);
    let tokens = exchange.await.map_err(|error| {
        log_provider_error(&provider, &error, &sent_secrets.each_ref().map(String::as_str));
        refused()
    })?;
    let token = tokens.id_token().ok_or_else(refused)?;
    let now = state.now();
    let verifier = client
        .id_token_verifier()
        // Asymmetric signatures only: no `none`, and no shared secret.
        .set_allowed_algs([
            CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
            CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha384,
            CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512,
            CoreJwsSigningAlgorithm::RsaSsaPssSha256,
            CoreJwsSigningAlgorithm::EcdsaP256Sha256,
            CoreJwsSigningAlgorithm::EcdsaP384Sha384,
            CoreJwsSigningAlgorithm::EdDsa,
        ])
        .set_time_fn(move || system_time(now - MAX_CLOCK_SKEW).into());
    let claims = token.claims(&verifier, &Nonce::new(nonce)).map_err(|error| {
        let why = shown_error(&error, &[provider.client_secret.as_str()]);
        tracing::warn!(identity = name, "a token of `{name}` was refused: {why}");
        refused()
    })?;
    if !is_from_the_past(token, now) {
        tracing::warn!(identity = name, "a token of `{name}` is from the future");
        return Err(refused());
    }
    let mut person = IdentityClaims {
        issuer: claims.issuer().to_string(),
        subject: claims.subject().to_string(),
        email: claims.email().map(|email| email.to_string()),
        email_verified: claims.email_verified().unwrap_or(false),
        name: claims.preferred_username().map(|name| name.to_string()),
        groups: Vec::new(),
        object_id: text_claim(token, "oid"),
    };
    if let Some(mapping) = &provider.groups {
        person.groups = group_claim(token, &mapping.claim).ok_or_else(|| {
            tracing::error!(
                identity = name,
                "the token of `{name}` does not list the groups of the person: there are too many, or \
                 the claim `{}` is no list; let it have only the groups that are mapped",
                mapping.claim
            );
            refused()
        })?;
    }
    // Some providers put only the subject into the token; the rest comes from the userinfo
    // endpoint.
    let (access, subject) = (tokens.access_token().clone(), claims.subject().clone());
    if person.email.is_none()
        && let Ok(asking) = client.user_info(access, Some(subject))
    {
        let info: Result<CoreUserInfoClaims, _> = asking.request_async(&fetch).await;
        match info {
            Ok(info) => {
                person.email = info.email().map(|email| email.to_string());
                person.email_verified = info.email_verified().unwrap_or(false);
                person.name = person.name.or(info.preferred_username().map(|n| n.to_string()));
            }
            Err(error) => {
                log_provider_error(&provider, &error, &[tokens.access_token().secret()]);
            }
        }
    }
    Ok(IdentityReturn { provider, claims: person, link })
}

/// Returns all claims of a token whose signature was checked.
fn all_claims(token: &CoreIdToken) -> Option<serde_json::Value> {
    let text = token.to_string();
    let payload = URL_SAFE_NO_PAD.decode(text.split('.').nth(1)?).ok()?;
    serde_json::from_slice(&payload).ok()
}

/// Returns a claim that is a text, of a token whose signature was checked.
fn text_claim(token: &CoreIdToken, claim: &str) -> Option<String> {
    all_claims(token)?.get(claim)?.as_str().map(str::to_owned)
}

/// Returns the groups in a token whose signature was checked. A token without the claim has none.
/// `None` if the claim is no list, or elsewhere (`_claim_names`): who knows nothing of the groups must
/// not take rights away or leave them.
fn group_claim(token: &CoreIdToken, claim: &str) -> Option<Vec<String>> {
    let claims = all_claims(token)?;
    if claims.get("_claim_names").and_then(|names| names.get(claim)).is_some() {
        return None;
    }
    match claims.get(claim) {
        None => Some(Vec::new()),
        Some(serde_json::Value::String(group)) => Some(vec![group.clone()]),
        Some(serde_json::Value::Array(groups)) => {
            groups.iter().map(|group| group.as_str().map(str::to_owned)).collect()
        }
        Some(_) => None,
    }
}

fn system_time(at: Micros) -> SystemTime {
    SystemTime::UNIX_EPOCH + at.to_duration()
}

/// Returns true if neither `nbf` nor `iat` lies in the future. The crate checks neither.
fn is_from_the_past(token: &CoreIdToken, now: Micros) -> bool {
    #[derive(Deserialize)]
    struct TokenTimes {
        nbf: Option<f64>,
        iat: Option<f64>,
    }
    let text = token.to_string();
    let payload = text.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let times = payload.and_then(|bytes| serde_json::from_slice::<TokenTimes>(&bytes).ok());
    let latest = (now + MAX_CLOCK_SKEW).to_duration().as_secs_f64().floor();
    times.is_some_and(|times| [times.nbf, times.iat].into_iter().flatten().all(|at| at <= latest))
}
