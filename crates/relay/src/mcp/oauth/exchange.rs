//! Registration of the gateway at an authorization server (RFC 7591), and requests for tokens (RFC 6749).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fmt;
use upstream::MediaFetcher;

use super::authority::AuthorizationServer;
use super::requests::{AuthorityError, escape, post_form, read_object, send};

const TOKEN_PART: &str = "token endpoint";
/// Longest token that is kept.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// Way in which a client authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ClientAuth {
    /// In the header.
    Basic,
    /// In the form.
    Post,
    /// Not at all: a public client.
    Public,
}

impl ClientAuth {
    const fn word(self) -> &'static str {
        match self {
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
            Self::Public => "none",
        }
    }

    /// Chooses a way that the server supports. The header is the default (RFC 8414, section 2).
    fn choose(authority: &AuthorizationServer) -> Self {
        let methods = &authority.auth_methods;
        let known = [Self::Basic, Self::Post, Self::Public];
        let found = known.into_iter().find(|way| methods.iter().any(|own| own == way.word()));
        found.unwrap_or(Self::Basic)
    }
}

/// The gateway as an authorization server knows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OAuthClient {
    /// Public id.
    pub id: String,
    secret: Option<String>,
    auth: ClientAuth,
}

impl OAuthClient {
    /// Returns the client that the operator registered.
    pub fn configured(id: &str, secret: Option<&str>, authority: &AuthorizationServer) -> Self {
        let auth = match secret {
            Some(_) => match ClientAuth::choose(authority) {
                ClientAuth::Public => ClientAuth::Basic,
                auth @ (ClientAuth::Basic | ClientAuth::Post) => auth,
            },
            None => ClientAuth::Public,
        };
        Self { id: id.to_owned(), secret: secret.map(str::to_owned), auth }
    }

    /// Returns the address of the page that people sign in at, with a state and a PKCE challenge.
    pub fn sign_in_url(
        &self,
        authority: &AuthorizationServer,
        redirect: &str,
        (state, challenge): (&str, &str),
    ) -> String {
        let scopes = authority.scopes.join(" ");
        let fields = [
            ("response_type", "code"),
            ("client_id", &self.id),
            ("redirect_uri", redirect),
            ("state", state),
            ("code_challenge", challenge),
            ("code_challenge_method", "S256"),
            ("resource", &authority.resource),
            ("scope", &scopes),
        ];
        let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
        let fields: Vec<_> =
            fields.map(|(name, value)| format!("{name}={}", escape(value))).collect();
        let page = authority.authorization_endpoint.split('#').next().unwrap_or_default();
        let mark = if page.contains('?') { '&' } else { '?' };
        format!("{page}{mark}{}", fields.join("&"))
    }

    /// Returns the header and the fields that authenticate the client (RFC 6749, section 2.3.1).
    fn proof(&self) -> (Option<HeaderValue>, Vec<(&str, &str)>) {
        match (self.auth, &self.secret) {
            (ClientAuth::Basic, Some(secret)) => {
                let pair = STANDARD.encode(format!("{}:{}", escape(&self.id), escape(secret)));
                let mut value = HeaderValue::try_from(format!("Basic {pair}")).ok();
                value.iter_mut().for_each(|value| value.set_sensitive(true));
                (value, Vec::new())
            }
            (ClientAuth::Post, Some(secret)) => {
                (None, vec![("client_id", &self.id), ("client_secret", secret)])
            }
            (ClientAuth::Basic | ClientAuth::Post | ClientAuth::Public, _) => {
                (None, vec![("client_id", &self.id)])
            }
        }
    }
}

/// Omits the secret.
impl fmt::Debug for OAuthClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthClient").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Registers the gateway. Returns the client and the second at which its secret expires.
pub async fn register(
    fetcher: &MediaFetcher,
    authority: &AuthorizationServer,
    redirect: &str,
) -> Result<(OAuthClient, Option<i64>), AuthorityError> {
    let Some(url) = &authority.registration_endpoint else {
        return Err(AuthorityError::Unusable(
            "its authorization server registers no clients; set `client_id` of its `oauth`",
        ));
    };
    let wanted = ClientAuth::choose(authority);
    let mut body = json!({
        "client_name": "Portunus",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": wanted.word(),
    });
    if let Some(body) = body.as_object_mut().filter(|_| !authority.scopes.is_empty()) {
        body.insert("scope".to_owned(), Value::from(authority.scopes.join(" ")));
    }
    let place = ("registration endpoint", url.as_str());
    let body = Bytes::from(body.to_string());
    let answer = send(fetcher, Method::POST, place, HeaderMap::new(), body).await?;
    let found = read_object(answer)?;
    let text = |name: &str| found.get(name).and_then(Value::as_str).map(str::to_owned);
    let id =
        text("client_id").ok_or(AuthorityError::Unusable("its registration has no client id"))?;
    let secret = text("client_secret");
    let told = text("token_endpoint_auth_method");
    let ways = [ClientAuth::Basic, ClientAuth::Post, ClientAuth::Public];
    let told = ways.into_iter().find(|way| told.as_deref() == Some(way.word()));
    let auth = if secret.is_some() { told.unwrap_or(wanted) } else { ClientAuth::Public };
    let expires = found.get("client_secret_expires_at").and_then(Value::as_i64);
    Ok((OAuthClient { id, secret, auth }, expires.filter(|at| *at > 0)))
}

/// Tokens as an authorization server gives them.
pub struct TokenAnswer {
    access: String,
    refresh: Option<String>,
    /// Life of the access token in seconds.
    pub lifetime_s: Option<i64>,
}

/// Tokens of one owner for one server, and what renews them. They are sealed when they are stored.
#[derive(Clone, Serialize, Deserialize)]
pub struct GrantedTokens {
    pub(super) access: String,
    pub(super) refresh: Option<String>,
    pub(super) client: OAuthClient,
    pub(super) authority: AuthorizationServer,
}

/// Omits the tokens.
impl fmt::Debug for GrantedTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrantedTokens").finish_non_exhaustive()
    }
}

impl GrantedTokens {
    /// Combines tokens with what renews them.
    pub fn new(answer: TokenAnswer, client: OAuthClient, authority: AuthorizationServer) -> Self {
        let TokenAnswer { access, refresh, lifetime_s: _ } = answer;
        Self { access, refresh, client, authority }
    }

    /// Returns the text that is sealed.
    pub fn to_text(&self) -> String {
        // Serialising a few strings cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Takes renewed tokens. A server that rotates none keeps the refresh token (RFC 6749, section 6).
    pub(super) fn renew(&mut self, answer: TokenAnswer) {
        let TokenAnswer { access, refresh, lifetime_s: _ } = answer;
        self.access = access;
        self.refresh = refresh.or_else(|| self.refresh.take());
    }
}

/// Exchanges a code for tokens.
pub async fn exchange_code(
    fetcher: &MediaFetcher,
    authority: &AuthorizationServer,
    client: &OAuthClient,
    (code, verifier, redirect): (&str, &str, &str),
) -> Result<TokenAnswer, AuthorityError> {
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", redirect),
        ("code_verifier", verifier),
    ];
    request_tokens(fetcher, authority, client, &fields).await
}

/// Renews tokens.
pub(super) async fn refresh(
    fetcher: &MediaFetcher,
    tokens: &GrantedTokens,
    refresh_token: &str,
) -> Result<TokenAnswer, AuthorityError> {
    let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
    request_tokens(fetcher, &tokens.authority, &tokens.client, &fields).await
}

async fn request_tokens(
    fetcher: &MediaFetcher,
    authority: &AuthorizationServer,
    client: &OAuthClient,
    fields: &[(&str, &str)],
) -> Result<TokenAnswer, AuthorityError> {
    let (header, proof) = client.proof();
    let resource = ("resource", authority.resource.as_str());
    let fields: Vec<_> = fields.iter().copied().chain([resource]).chain(proof).collect();
    let place = (TOKEN_PART, authority.token_endpoint.as_str());
    read_tokens(&post_form(fetcher, place, (header, client.secret.as_deref()), &fields).await?)
}

fn read_tokens(found: &Map<String, Value>) -> Result<TokenAnswer, AuthorityError> {
    let token = |name: &str| {
        let is_token = |text: &&str| {
            let is_plain = text.bytes().all(|byte| (0x21..0x7f).contains(&byte));
            !text.is_empty() && text.len() <= MAX_TOKEN_BYTES && is_plain
        };
        found.get(name).and_then(Value::as_str).filter(is_token).map(str::to_owned)
    };
    let kind = found.get("token_type").and_then(Value::as_str).unwrap_or("bearer");
    if !kind.eq_ignore_ascii_case("bearer") {
        return Err(AuthorityError::Unusable("its authorization server gives no bearer tokens"));
    }
    let access = token("access_token");
    let access =
        access.ok_or(AuthorityError::Unusable("its authorization server gave no token"))?;
    let lifetime_s = found.get("expires_in").and_then(Value::as_i64).filter(|time| *time > 0);
    Ok(TokenAnswer { access, refresh: token("refresh_token"), lifetime_s })
}

/// Revokes tokens that are not needed any more (RFC 7009), if the authorization server can.
pub async fn revoke(fetcher: &MediaFetcher, tokens: &GrantedTokens) -> Result<(), AuthorityError> {
    let Some(url) = &tokens.authority.revocation_endpoint else { return Ok(()) };
    let (header, proof) = tokens.client.proof();
    let token = match &tokens.refresh {
        Some(refresh) => [("token", refresh.as_str()), ("token_type_hint", "refresh_token")],
        None => [("token", tokens.access.as_str()), ("token_type_hint", "access_token")],
    };
    let fields: Vec<_> = token.into_iter().chain(proof).collect();
    let header = (header, tokens.client.secret.as_deref());
    post_form(fetcher, ("revocation endpoint", url), header, &fields).await.map(|_| ())
}
