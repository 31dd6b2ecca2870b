//! The page on which a person approves an agent that waits on a port of the same machine:
//! authorization code with PKCE (RFC 6749, section 4.1; RFC 7636; RFC 8252, section 7.3).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use admin::{AskingAgent, CodeRequest};
use axum::extract::{ConnectInfo, State};
use axum::response::{IntoResponse, Response};
use http::{Extensions, HeaderValue, header};
use maud::html;

use super::agent_consent::{answer_fields, asking_view, may_approve, read_answer};
use crate::form::{FormFields, QueryFields};
use crate::layout::{Layout, ok_page, policy_with_form_target};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::urls;

const PAGE_PATH: &str = "/console/authorize";
const MAX_URI_BYTES: usize = 200;
const MAX_VALUE_BYTES: usize = 200;
/// Length of a base64url SHA-256.
const CHALLENGE_CHARS: usize = 43;
const WRONG_ADDRESS: &str = "The program named an address for its answer that is not on your own \
    machine, such as http://127.0.0.1:8765/callback.";

/// A checked request for a code.
struct AuthorizeRequest {
    code: CodeRequest,
    state: String,
}

/// Refusal of a request for a code. Only a program whose address is known can be told.
pub(crate) enum AuthorizeRefusal {
    Page(PageError),
    Program(Box<Response>),
}

impl From<PageError> for AuthorizeRefusal {
    fn from(error: PageError) -> Self {
        Self::Page(error)
    }
}

impl IntoResponse for AuthorizeRefusal {
    fn into_response(self) -> Response {
        match self {
            Self::Page(error) => error.into_response(),
            Self::Program(response) => *response,
        }
    }
}

impl AuthorizeRequest {
    fn read(fields: &FormFields) -> Result<Self, AuthorizeRefusal> {
        let redirect_uri = fields.get_single("redirect_uri", MAX_URI_BYTES)?;
        if loopback_origin(redirect_uri).is_none() {
            return Err(PageError::BadRequest(WRONG_ADDRESS).into());
        }
        let state = fields.get_single("state", MAX_VALUE_BYTES)?;
        let refuse = |word: &str, why: &str| {
            let told = [("error", word), ("error_description", why), ("state", state)];
            AuthorizeRefusal::Program(Box::new(answer(redirect_uri, &told)))
        };
        if fields.get_single("response_type", MAX_VALUE_BYTES)? != "code" {
            return Err(refuse("unsupported_response_type", "response_type must be code"));
        }
        let challenge = fields.get_single("code_challenge", MAX_VALUE_BYTES)?;
        let method = fields.get_single("code_challenge_method", MAX_VALUE_BYTES)?;
        if challenge.len() != CHALLENGE_CHARS || method != "S256" {
            return Err(refuse("invalid_request", "send a code_challenge with the method S256"));
        }
        let client_id = fields.get_single("client_id", MAX_VALUE_BYTES)?;
        let code = CodeRequest {
            client_id: client_id.to_owned(),
            redirect_uri: redirect_uri.to_owned(),
            challenge: challenge.to_owned(),
        };
        Ok(Self { code, state: state.to_owned() })
    }

    /// Parameters of the request, for the page and for its form.
    fn parameters(&self) -> [(&'static str, &str); 6] {
        let CodeRequest { client_id, redirect_uri, challenge } = &self.code;
        [
            ("response_type", "code"),
            ("client_id", client_id),
            ("redirect_uri", redirect_uri),
            ("code_challenge", challenge),
            ("code_challenge_method", "S256"),
            ("state", &self.state),
        ]
    }
}

/// Returns the origin of an address on the loopback interface; `None` for other addresses.
fn loopback_origin(uri: &str) -> Option<String> {
    let rest = uri.strip_prefix("http://")?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let plain = |c: char| c.is_ascii_graphic() && !"\\\"<>`{}|^".contains(c);
    if path.contains('#') || !path.chars().all(plain) {
        return None;
    }
    let (host, port) = authority.rsplit_once(':')?;
    let port: u16 = port.parse().ok().filter(|port| *port != 0)?;
    let is_loopback = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => inner.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()),
        None => host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()),
    };
    is_loopback.then(|| format!("http://{host}:{port}"))
}

/// Sends the browser to the program with these parameters.
fn answer(redirect_uri: &str, parameters: &[(&str, &str)]) -> Response {
    let mark = if redirect_uri.contains('?') { '&' } else { '?' };
    let pairs: Vec<String> = parameters
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={}", urls::escape_value(value)))
        .collect();
    let mut response = redirect_to(&format!("{redirect_uri}{mark}{}", pairs.join("&")));
    // The code is in the address, and must not be in the referrer.
    let hidden = HeaderValue::from_static("no-referrer");
    response.headers_mut().insert(header::REFERRER_POLICY, hidden);
    response
}

/// `GET /oauth/authorize`, which leads to the page behind the sign-in.
pub(crate) async fn open(QueryFields(query): QueryFields) -> Result<Response, AuthorizeRefusal> {
    let request = AuthorizeRequest::read(&query)?;
    let pairs = request.parameters();
    let pairs = pairs.map(|(name, value)| format!("{name}={}", urls::escape_value(value)));
    Ok(redirect_to(&format!("{PAGE_PATH}?{}", pairs.join("&"))))
}

/// `GET /console/authorize`
pub(crate) async fn show(
    extensions: Extensions,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, AuthorizeRefusal> {
    let request = AuthorizeRequest::read(&query)?;
    let asking = asking(&extensions, &request);
    let target = loopback_origin(&request.code.redirect_uri).unwrap_or_default();
    let body = html! {
        section.card {
            h1 { "Sign in " (asking.label()) "?" }
            p { "It will make calls in your name, and you pay for them. It waits on "
                strong { "this machine" } ", at " code { bdi { (target) } } "." }
            p { "Go on only if " strong { "you started this sign-in yourself just now" } "." }
            (asking_view(&asking))
            @if may_approve(&user) {
                form method="post" action=(PAGE_PATH) {
                    @for (name, value) in request.parameters() {
                        input type="hidden" name=(name) value=(value);
                    }
                    (answer_fields(&user, &asking.key_name(), &query))
                }
            } @else {
                p { "Your account may look at this gateway and not make calls. Ask an administrator." }
            }
        }
    };
    let mut response = ok_page(&Layout::signed_in("Sign in a program", &user), &body);
    // Browsers apply `form-action` to the redirect after the form as well.
    if let Ok(policy) = HeaderValue::try_from(policy_with_form_target(&target)) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    Ok(response)
}

/// The program, as far as the browser knows it. The browser runs on its machine.
fn asking(extensions: &Extensions, request: &AuthorizeRequest) -> AskingAgent {
    let address = extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    let address = address.map(|ip| ip.to_canonical().to_string()).unwrap_or_default();
    AskingAgent::new(&request.code.client_id, "", &address)
}

/// `POST /console/authorize`
pub(crate) async fn decide(
    State(state): State<Arc<ConsoleState>>,
    extensions: Extensions,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, AuthorizeRefusal> {
    let request = AuthorizeRequest::read(&fields)?;
    let redirect_uri = request.code.redirect_uri.clone();
    let Some(approval) = read_answer(&fields)? else {
        let told = [("error", "access_denied"), ("state", request.state.as_str())];
        return Ok(answer(&redirect_uri, &told));
    };
    let asking = asking(&extensions, &request);
    let accounts = state.host.accounts();
    let code = accounts.approve_code(&user.actor(), request.code, asking, approval).await;
    let code = code.map_err(PageError::from)?;
    let issuer = state.base_url();
    let told = [("code", code.as_str()), ("state", &request.state), ("iss", &issuer)];
    Ok(answer(&redirect_uri, &told))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    #[test]
    fn only_addresses_of_the_own_machine_are_taken() {
        for (uri, origin) in [
            ("http://127.0.0.1:8765/callback", Some("http://127.0.0.1:8765")),
            ("http://localhost:1455/auth/callback?x=1", Some("http://localhost:1455")),
            ("http://[::1]:9/", Some("http://[::1]:9")),
            ("http://127.0.0.1/callback", None),
            ("http://127.0.0.1:0/callback", None),
            ("https://127.0.0.1:8765/callback", None),
            ("http://127.0.0.1:8765@evil.example/", None),
            ("http://evil.example:80/", None),
            ("http://localhost.evil.example:80/", None),
            ("http://127.0.0.1:80/#x", None),
            ("http://127.0.0.1:80/\u{e9}", None),
            ("http://127.0.0.1:80/ x", None),
            ("javascript:alert(1)", None),
            ("", None),
        ] {
            assert_eq!(loopback_origin(uri).as_deref(), origin, "{uri}");
        }
    }

    #[test]
    fn the_answer_keeps_the_query_of_its_address() {
        let response = answer("http://127.0.0.1:1/a?b=c", &[("code", "x y"), ("state", "")]);
        assert_eq!(response.status(), StatusCode::SEE_OTHER);
        let to = response.headers().get(header::LOCATION).unwrap();
        assert_eq!(to, "http://127.0.0.1:1/a?b=c&code=x%20y");
    }
}
