//! Discovery of the authorization server of an MCP server: its protected resource metadata (RFC 9728), then
//! the metadata of the authorization server (RFC 8414, or OpenID Connect Discovery).

use bytes::Bytes;
use config::{McpOAuthSettings, McpServerSettings};
use http::{HeaderValue, Method};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use transport::FetchTarget;
use upstream::MediaFetcher;

use super::requests::{AuthorityError, get_metadata, send};

const RESOURCE_PATH: &str = "/.well-known/oauth-protected-resource";
const AUTHORITY_PATH: &str = "/.well-known/oauth-authorization-server";
const OPENID_PATH: &str = "/.well-known/openid-configuration";
/// Request that a server without a token answers with its challenge.
const PROBE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

const RESOURCE_PART: &str = "resource metadata";
const AUTHORITY_PART: &str = "authorization server";

/// Authorization server of an MCP server, and what to ask it for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationServer {
    /// Its name.
    pub issuer: String,
    /// Page that people sign in at.
    pub authorization_endpoint: String,
    /// Address that gives tokens.
    pub token_endpoint: String,
    /// Address that registers clients (RFC 7591).
    pub registration_endpoint: Option<String>,
    /// Address that revokes tokens (RFC 7009).
    pub revocation_endpoint: Option<String>,
    /// Ways in which clients authenticate; empty means the default.
    pub auth_methods: Vec<String>,
    /// True if it names itself when it sends a browser back (RFC 9207).
    pub names_issuer: bool,
    /// Name of the MCP server in requests (RFC 8707).
    pub resource: String,
    /// Scopes to ask for.
    pub scopes: Vec<String>,
}

/// Finds the authorization server of an MCP server.
pub async fn discover(
    server: &McpServerSettings,
    oauth: &McpOAuthSettings,
) -> Result<AuthorizationServer, AuthorityError> {
    let fetcher = &oauth.fetcher;
    let own = check(fetcher, "server", &server.url)?;
    let challenge = read_challenge(server).await?;
    let resource = resource_metadata(fetcher, &own, &challenge).await?;
    let texts = |name: &str| resource.as_ref().map(|found| list(found, name)).unwrap_or_default();
    let name = resource.as_ref().and_then(|found| found.get("resource")).and_then(Value::as_str);
    let name = match name {
        Some(name) => {
            let named = check(fetcher, "resource", name)?;
            if !covers(&named, &own) {
                return Err(AuthorityError::Unusable("its metadata describe another resource"));
            }
            name.to_owned()
        }
        None => server.url.clone(),
    };
    // Servers of earlier versions are their own authorization servers.
    let issuer = match (&resource, texts("authorization_servers").into_iter().next()) {
        (_, Some(issuer)) => issuer,
        (None, None) => own.url.origin().ascii_serialization(),
        (Some(_), None) => {
            return Err(AuthorityError::Unusable("its metadata name no authorization server"));
        }
    };
    let found = authority_metadata(fetcher, &issuer).await?;
    let scopes = [&oauth.scopes, &challenge.scopes, &texts("scopes_supported")];
    let scopes = scopes.into_iter().find(|list| !list.is_empty()).cloned().unwrap_or_default();
    read_authority(fetcher, issuer, &found, (name, scopes))
}

/// Checks an address that another server names. `part` names it in errors.
fn check(
    fetcher: &MediaFetcher,
    part: &'static str,
    url: &str,
) -> Result<FetchTarget, AuthorityError> {
    fetcher.guard().check(url).map_err(|_| AuthorityError::NotPublic(part))
}

/// Returns true if a resource is the server, or a path above it on the same host. A token for another
/// resource must not be asked for.
fn covers(resource: &FetchTarget, server: &FetchTarget) -> bool {
    let above = resource.url.path().trim_end_matches('/');
    let below = server.url.path().strip_prefix(above);
    resource.url.origin() == server.url.origin()
        && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Words of a challenge (RFC 9728, section 5.1).
#[derive(Debug, Default, PartialEq, Eq)]
struct ResourceChallenge {
    metadata: Option<String>,
    scopes: Vec<String>,
}

/// Asks the server without a token.
async fn read_challenge(server: &McpServerSettings) -> Result<ResourceChallenge, AuthorityError> {
    let mut headers = server.headers.clone();
    let accept = HeaderValue::from_static("application/json, text/event-stream");
    headers.insert(http::header::ACCEPT, accept);
    let place = ("server", server.url.as_str());
    let probe = Bytes::from_static(PROBE.as_bytes());
    let answer = send(&server.fetcher, Method::POST, place, headers, probe).await?;
    Ok(answer.challenge.as_deref().map(parse_challenge).unwrap_or_default())
}

fn parse_challenge(text: &str) -> ResourceChallenge {
    let scopes = parameter(text, "scope").unwrap_or_default();
    ResourceChallenge {
        metadata: parameter(text, "resource_metadata"),
        scopes: scopes.split_ascii_whitespace().map(str::to_owned).collect(),
    }
}

/// Returns a parameter of a challenge (RFC 9110, section 11.2), quoted or not.
fn parameter(text: &str, name: &str) -> Option<String> {
    let mut rest = text;
    while let Some(at) = rest.find(name) {
        let (before, found) = rest.split_at(at);
        let after = found.strip_prefix(name)?;
        let is_begin = before.is_empty() || before.ends_with([' ', ',', '\t']);
        match after.trim_start().strip_prefix('=').filter(|_| is_begin) {
            Some(value) => {
                let value = value.trim_start();
                return match value.strip_prefix('"') {
                    Some(quoted) => quoted.split('"').next().map(str::to_owned),
                    None => value.split([',', ' ']).next().map(str::to_owned),
                };
            }
            None => rest = after,
        }
    }
    None
}

/// Reads the metadata of the resource: at the address of the challenge, or at the well-known ones.
async fn resource_metadata(
    fetcher: &MediaFetcher,
    own: &FetchTarget,
    challenge: &ResourceChallenge,
) -> Result<Option<Map<String, Value>>, AuthorityError> {
    if let Some(url) = &challenge.metadata {
        let found = get_metadata(fetcher, RESOURCE_PART, url).await?;
        let missing = AuthorityError::Unusable("its challenge leads to no metadata");
        return found.map(Some).ok_or(missing);
    }
    let path = own.url.path().trim_end_matches('/').to_owned();
    for path in well_known(RESOURCE_PATH, &path) {
        let url = with_path(own, &path);
        if let Some(found) = get_metadata(fetcher, RESOURCE_PART, &url).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Returns the well-known paths of a path, the most specific one first.
fn well_known(well_known: &str, path: &str) -> Vec<String> {
    let mut paths = vec![format!("{well_known}{path}"), well_known.to_owned()];
    paths.dedup();
    paths
}

fn with_path(target: &FetchTarget, path: &str) -> String {
    let mut url = target.url.clone();
    url.set_path(path);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

/// Reads the metadata of an authorization server. Its own name must be in them (RFC 8414, section 3.3).
async fn authority_metadata(
    fetcher: &MediaFetcher,
    issuer: &str,
) -> Result<Map<String, Value>, AuthorityError> {
    let target = check(fetcher, AUTHORITY_PART, issuer)?;
    let path = target.url.path().trim_end_matches('/').to_owned();
    let mut paths = vec![format!("{AUTHORITY_PATH}{path}"), format!("{OPENID_PATH}{path}")];
    if !path.is_empty() {
        paths.push(format!("{path}{OPENID_PATH}"));
    }
    for path in paths {
        let url = with_path(&target, &path);
        let Some(found) = get_metadata(fetcher, AUTHORITY_PART, &url).await? else { continue };
        let own = text(&found, "issuer").unwrap_or_default();
        if own.trim_end_matches('/') != issuer.trim_end_matches('/') {
            return Err(AuthorityError::Unusable("the metadata name another authorization server"));
        }
        return Ok(found);
    }
    Err(AuthorityError::Unusable("its authorization server has no metadata"))
}

fn read_authority(
    fetcher: &MediaFetcher,
    issuer: String,
    found: &Map<String, Value>,
    (resource, scopes): (String, Vec<String>),
) -> Result<AuthorizationServer, AuthorityError> {
    if !list(found, "code_challenge_methods_supported").iter().any(|method| method == "S256") {
        return Err(AuthorityError::Unusable(
            "its authorization server does not support PKCE (S256)",
        ));
    }
    let address = |part: &'static str, name: &str| match text(found, name) {
        Some(url) => check(fetcher, part, &url).map(|_| Some(url)),
        None => Ok(None),
    };
    let incomplete =
        AuthorityError::Unusable("the metadata of its authorization server lack an address");
    let page = address("sign-in page", "authorization_endpoint")?;
    let tokens = address("token endpoint", "token_endpoint")?;
    let (Some(authorization_endpoint), Some(token_endpoint)) = (page, tokens) else {
        return Err(incomplete);
    };
    let names_issuer = found.get("authorization_response_iss_parameter_supported");
    Ok(AuthorizationServer {
        // Exactly as the authorization server will repeat it.
        issuer: text(found, "issuer").unwrap_or(issuer),
        authorization_endpoint,
        token_endpoint,
        registration_endpoint: address("registration endpoint", "registration_endpoint")?,
        revocation_endpoint: address("revocation endpoint", "revocation_endpoint")?,
        auth_methods: list(found, "token_endpoint_auth_methods_supported"),
        names_issuer: names_issuer.and_then(Value::as_bool).unwrap_or(false),
        resource,
        scopes,
    })
}

fn text(object: &Map<String, Value>, name: &str) -> Option<String> {
    object.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn list(object: &Map<String, Value>, name: &str) -> Vec<String> {
    let found = object.get(name).and_then(Value::as_array);
    found.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let url = "https://a.example/.well-known/oauth-protected-resource/mcp";
        for text in [
            format!("Bearer resource_metadata=\"{url}\", scope=\"a b\""),
            format!("Bearer realm=\"x\", scope=\"a b\", resource_metadata={url}"),
            format!("Bearer error=\"invalid_token\",resource_metadata = \"{url}\",scope=\"a b\""),
        ] {
            let found = parse_challenge(&text);
            assert_eq!(found.metadata.as_deref(), Some(url), "{text}");
            assert_eq!(found.scopes, ["a", "b"], "{text}");
        }
        for text in ["Bearer", "", "Bearer x_resource_metadata=\"y\"", "resource_metadata"] {
            assert_eq!(parse_challenge(text), ResourceChallenge::default(), "{text}");
        }
    }

    #[test]
    fn only_the_server_or_a_path_above_it_is_its_resource() {
        let guard = transport::AddressGuard::default();
        let server = guard.check("https://a.example/x/mcp").unwrap();
        for (resource, expected) in [
            ("https://a.example/x/mcp", true),
            ("https://a.example/x/", true),
            ("https://a.example", true),
            ("https://a.example/x/m", false),
            ("https://a.example/x/mcp/more", false),
            ("https://b.example/x/mcp", false),
            ("https://a.example:8443/x/mcp", false),
        ] {
            let resource_target = guard.check(resource).unwrap();
            assert_eq!(covers(&resource_target, &server), expected, "{resource}");
        }
    }
}
