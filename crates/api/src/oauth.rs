//! Sign-in of agents: the endpoints of OAuth 2.0 that programs call. The pages that ask a person are
//! in the console.
//!
//! The contract is that of Claude Code (`GET /protocol` of `claude gateway`): RFC 8414, 8628, 6749,
//! 7636 and 7009. Clients are public and have no secret, and unknown parameters are ignored.

use admin::{
    AdminError, AskingAgent, DEVICE_CODE_LIFE, DevicePoll, POLL_INTERVAL, RequestOrigin, TokenGrant,
};
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::Response;
use canon::ApiError;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, PRAGMA, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Request, StatusCode};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use transport::{ServerBody, network_of};

use crate::query::query_pairs;
use crate::state::ApiState;

/// Largest form of these endpoints.
const MAX_FORM_BYTES: usize = 16 << 10;
const FORM_TYPE: &str = "application/x-www-form-urlencoded";
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
const NO_TOKEN: &str = "send the token";

/// An error of OAuth: status, word and description.
struct OAuthError {
    status: StatusCode,
    word: &'static str,
    description: String,
    retry_after: Option<u64>,
}

impl OAuthError {
    fn new(word: &'static str, description: impl Into<String>) -> Self {
        let description = description.into();
        Self { status: StatusCode::BAD_REQUEST, word, description, retry_after: None }
    }

    fn into_response(self) -> Response {
        let Self { status, word, description, retry_after } = self;
        let body = json!({ "error": word, "error_description": description });
        let mut response = json_answer(status, &body);
        if let Some(wait) = retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait));
        }
        response
    }
}

impl From<AdminError> for OAuthError {
    fn from(error: AdminError) -> Self {
        tracing::warn!("a sign-in of an agent failed: {error}");
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            retry_after: Some(3),
            ..Self::new("temporarily_unavailable", "the gateway cannot do this now, retry shortly")
        }
    }
}

/// Answer with JSON that no cache keeps (RFC 6749, section 5.1).
fn json_answer(status: StatusCode, body: &Value) -> Response {
    let mut response = relay::json_response(body.to_string());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
    response
}

/// Answer to a network that asks too often, in the words that agents understand.
pub(crate) fn too_many_requests(error: &ApiError) -> Response {
    let wait = error.retry_after().map_or(5, |wait| wait.as_secs().max(1));
    let description = "Too many requests came from your network, which other people may share.";
    OAuthError {
        status: StatusCode::TOO_MANY_REQUESTS,
        retry_after: Some(wait),
        ..OAuthError::new("slow_down", description)
    }
    .into_response()
}

/// `GET /.well-known/oauth-authorization-server` (RFC 8414).
pub(super) async fn metadata(state: Arc<ApiState>, _: Request<Body>) -> Result<Response, ApiError> {
    let base = state.config().public_url.clone();
    let body = json!({
        "issuer": base,
        "authorization_endpoint": format!("{base}/oauth/authorize"),
        "device_authorization_endpoint": format!("{base}/oauth/device_authorization"),
        "token_endpoint": format!("{base}/oauth/token"),
        "revocation_endpoint": format!("{base}/oauth/revoke"),
        "grant_types_supported": [DEVICE_GRANT, "authorization_code", "refresh_token"],
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none"],
        "revocation_endpoint_auth_methods_supported": ["none"],
    });
    Ok(relay::json_response(body.to_string()))
}

/// Fields of a form and the origin of its request.
struct OAuthForm {
    fields: Vec<(String, String)>,
    headers: HeaderMap,
    client: Option<IpAddr>,
}

impl OAuthForm {
    async fn read(request: Request<Body>) -> Result<Self, OAuthError> {
        let (parts, body) = request.into_parts();
        let kind = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if !kind.is_empty() && !kind.eq_ignore_ascii_case(FORM_TYPE) {
            let description = format!("send the parameters as {FORM_TYPE}");
            return Err(OAuthError::new("invalid_request", description));
        }
        let bytes = transport::read_whole(ServerBody::Stream(body), MAX_FORM_BYTES).await;
        let bytes = bytes.map_err(|error| OAuthError {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            ..OAuthError::new("invalid_request", error.message())
        })?;
        let text = String::from_utf8_lossy(&bytes);
        let client = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
        Ok(Self { fields: query_pairs(&text), headers: parts.headers, client })
    }

    fn get(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(own, _)| own == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    fn require(&self, name: &'static str) -> Result<&str, OAuthError> {
        match self.get(name) {
            "" => Err(OAuthError::new("invalid_request", format!("`{name}` is missing"))),
            value => Ok(value),
        }
    }

    /// The program that asks.
    fn asking(&self) -> AskingAgent {
        let surface = match self.get("surface") {
            "" => self.get("client_id"),
            surface => surface,
        };
        let agent = self.headers.get(USER_AGENT).map(HeaderValue::as_bytes).unwrap_or_default();
        let address = self.client.map(|ip| ip.to_canonical().to_string()).unwrap_or_default();
        AskingAgent::new(surface, &String::from_utf8_lossy(agent), &address)
    }

    /// The network that is counted: an IPv4 address, or the /64 of an IPv6 address.
    fn network(&self) -> String {
        self.client.map(|ip| network_of(ip).to_string()).unwrap_or_default()
    }
}

/// Runs the work of an endpoint to its end, even if the program disconnects: a change must not stop
/// between its commit and the update of this node's caches.
async fn complete<F>(
    state: Arc<ApiState>,
    request: Request<Body>,
    work: impl FnOnce(Arc<ApiState>, OAuthForm) -> F,
) -> Result<Response, ApiError>
where
    F: Future<Output = Result<Response, OAuthError>> + Send + 'static,
{
    let form = match OAuthForm::read(request).await {
        Ok(form) => form,
        Err(error) => return Ok(error.into_response()),
    };
    let origin = RequestOrigin::new(form.client, &form.headers);
    let tasks = state.engine.tasks.clone();
    let done = tasks.spawn(origin.scope(work(state, form))).await;
    let done = done.map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(done.unwrap_or_else(OAuthError::into_response))
}

/// `POST /oauth/device_authorization` (RFC 8628, section 3.1).
pub(super) async fn device_authorization(
    state: Arc<ApiState>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    complete(state, request, begin_device).await
}

async fn begin_device(state: Arc<ApiState>, form: OAuthForm) -> Result<Response, OAuthError> {
    let accounts = &state.admin.accounts;
    match accounts.begin_device_sign_in(&form.network(), form.asking()).await? {
        Ok(codes) => {
            let page = format!("{}/device", state.config().public_url);
            let body = json!({
                "device_code": codes.device_code,
                "user_code": codes.user_code,
                "verification_uri": page,
                "verification_uri_complete": format!("{page}?user_code={}", codes.user_code),
                "expires_in": DEVICE_CODE_LIFE.as_secs(),
                "interval": POLL_INTERVAL.as_secs(),
            });
            Ok(json_answer(StatusCode::OK, &body))
        }
        Err(wait) => Err(OAuthError {
            status: StatusCode::TOO_MANY_REQUESTS,
            retry_after: Some(wait),
            ..OAuthError::new(
                "slow_down",
                "Too many sign-ins were begun in your network, which other people may share.",
            )
        }),
    }
}

/// `POST /oauth/token` (RFC 6749, section 3.2).
pub(super) async fn token(
    state: Arc<ApiState>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    complete(state, request, grant_token).await
}

async fn grant_token(state: Arc<ApiState>, form: OAuthForm) -> Result<Response, OAuthError> {
    let accounts = &state.admin.accounts;
    match form.require("grant_type")? {
        DEVICE_GRANT => match accounts.poll_device(form.require("device_code")?).await? {
            DevicePoll::Granted(granted) => Ok(grant_response(granted)),
            DevicePoll::Pending => {
                Err(OAuthError::new("authorization_pending", "nobody has confirmed the code yet"))
            }
            DevicePoll::TooFast => {
                Err(OAuthError::new("slow_down", "wait five seconds longer between two polls"))
            }
            DevicePoll::Denied => {
                Err(OAuthError::new("access_denied", "the sign-in was refused in the browser"))
            }
            DevicePoll::Refused(why) => Err(OAuthError::new("access_denied", why)),
            DevicePoll::Expired => Err(OAuthError::new(
                "expired_token",
                "the code is unknown, was used or has expired; sign in again",
            )),
        },
        "authorization_code" => {
            let (code, verifier) = (form.require("code")?, form.require("code_verifier")?);
            let redirect_uri = form.require("redirect_uri")?;
            let client_id = form.get("client_id");
            match accounts.redeem_code(code, verifier, redirect_uri, client_id).await? {
                Some(granted) => Ok(grant_response(granted)),
                None => Err(OAuthError::new(
                    "invalid_grant",
                    "the code is unknown, was used, has expired, or was made for another client",
                )),
            }
        }
        "refresh_token" => {
            match accounts.refresh_sign_in(form.require("refresh_token")?, &form.network()).await? {
                Some(granted) => Ok(grant_response(granted)),
                // The contract of Claude Code, which names no client, has 401 here. Codex signs in again
                // only after the 400 of RFC 6749, section 5.2, and names itself.
                None => Err(OAuthError {
                    status: match form.get("client_id") {
                        "" => StatusCode::UNAUTHORIZED,
                        _ => StatusCode::BAD_REQUEST,
                    },
                    ..OAuthError::new("invalid_grant", "the sign-in has ended; sign in again")
                }),
            }
        }
        other => {
            let other: String = other.chars().take(64).collect();
            let description = format!("`{other}` is not a grant type of this gateway");
            Err(OAuthError::new("unsupported_grant_type", description))
        }
    }
}

fn grant_response(granted: TokenGrant) -> Response {
    let TokenGrant { access_token, refresh_token, expires_in, email } = granted;
    let mut body = json!({
        "access_token": access_token,
        "token_type": "Bearer",
        "expires_in": expires_in.as_secs(),
        "refresh_token": refresh_token,
    });
    if let (Some(email), Some(body)) = (email, body.as_object_mut()) {
        body.insert("email".to_owned(), email.into());
    }
    json_answer(StatusCode::OK, &body)
}

/// `POST /oauth/revoke` (RFC 7009). An unknown token is no error.
pub(super) async fn revoke(
    state: Arc<ApiState>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    complete(state, request, revoke_token).await
}

async fn revoke_token(state: Arc<ApiState>, form: OAuthForm) -> Result<Response, OAuthError> {
    let token = form.get("token");
    if token.is_empty() {
        return Err(OAuthError::new("invalid_request", NO_TOKEN));
    }
    state.admin.accounts.revoke_sign_in(token).await?;
    Ok(json_answer(StatusCode::OK, &json!({})))
}
