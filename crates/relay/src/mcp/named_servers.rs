//! Servers that a request names: by address, with the caller's own credentials, or by the name that the
//! operator gave them.

use canon::{ApiError, ErrorKind};
use config::McpServerSettings;
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use std::sync::Arc;
use telemetry::{ToolObserver, ToolTrace};

use super::client::McpEndpoint;
use super::oauth::McpTokenSource;
use crate::call::Call;
use crate::engine::Engine;

/// Name of all servers that callers name by their address, in metrics.
const REMOTE_SERVER: &str = "remote";
/// Headers of one server.
const MAX_HEADERS: usize = 32;
/// Headers that the client of the gateway sets itself, and those of one connection (RFC 9110, section 7.6.1).
const OWN_HEADERS: [&str; 16] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
];
/// Begins the names of the headers of the protocol.
const PROTOCOL_PREFIX: &str = "mcp-";
/// Headers that a server of the operator may trust, because only the gateway reaches it.
const TRUSTED_HEADERS: [&str; 4] = ["cookie", "forwarded", "via", "x-real-ip"];
const FORWARDED_PREFIX: &str = "x-forwarded-";

/// Returns the endpoint of a server that the caller names by its address. `path` is the field of the address.
pub(super) fn remote_endpoint(
    call: &Call,
    path: &str,
    url: &str,
    headers: HeaderMap,
) -> Result<McpEndpoint, ApiError> {
    let settings = &call.config.mcp;
    let Some(fetcher) = &settings.remote else {
        let message = format!("`{path}` names an MCP server, and callers name none here");
        return Err(ApiError::invalid(path, message));
    };
    fetcher.guard().check(url).map_err(|why| ApiError::invalid(path, format!("`{path}` {why}")))?;
    Ok(McpEndpoint {
        fetcher: fetcher.clone(),
        url: url.to_owned(),
        headers,
        timeout: settings.timeout,
        tokens: None,
        observer: observe(&call.engine, REMOTE_SERVER, call.trace.map(ToolTrace::below)),
    })
}

/// Returns the server of the operator with this name, if the key may use it.
pub(super) fn offered_server<'c>(
    call: &'c Call,
    path: &str,
    name: &str,
) -> Result<&'c Arc<McpServerSettings>, ApiError> {
    let record = &call.key.record;
    let server = call.config.mcp.servers.get(name);
    server.filter(|server| server.admits(&record.account_id, &record.id)).ok_or_else(|| {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
        let message = format!("`{path}`: there is no MCP server `{shown}` for this key");
        ApiError::new(ErrorKind::InvalidRequest, message).with_param(path)
    })
}

/// Returns the endpoint of a server of the operator, for keys of this account. `trace` is that of the calls of
/// its tools.
pub fn offered_endpoint(
    (engine, config): (&Engine, &config::Config),
    server: &Arc<McpServerSettings>,
    account_id: &str,
    trace: Option<ToolTrace>,
) -> McpEndpoint {
    let caller = (account_id, config.public_url.as_str());
    McpEndpoint {
        fetcher: server.fetcher.clone(),
        url: server.url.clone(),
        headers: server.headers.clone(),
        timeout: config.mcp.timeout,
        tokens: McpTokenSource::new(&engine.mcp_grants, server, caller),
        observer: observe(engine, &server.name, trace),
    }
}

/// Returns the observer of a server. The name must be the operator's or fixed, because it is a label.
fn observe(engine: &Engine, server: &str, trace: Option<ToolTrace>) -> ToolObserver {
    let trace = trace.filter(|_| engine.telemetry.is_on());
    let word = trace.map_or(1, |_| engine.request_ids.next_word());
    engine.metrics.observe_tools(server, (&engine.telemetry, &engine.clock), trace, word)
}

/// Reads the headers that a caller wants to have sent. `path` is their field.
pub(super) fn read_headers(given: Option<&Value>, path: &str) -> Result<HeaderMap, ApiError> {
    let none = Map::new();
    let given = match given {
        None | Some(Value::Null) => &none,
        Some(Value::Object(given)) if given.len() <= MAX_HEADERS => given,
        Some(_) => {
            let message = format!("`{path}` must be an object of at most {MAX_HEADERS} headers");
            return Err(ApiError::invalid(path, message));
        }
    };
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let parsed = HeaderName::try_from(name.as_str()).ok();
        let text = value.as_str().and_then(secret_value);
        let (Some(name), Some(text)) = (parsed, text) else {
            let message = format!("`{path}` has a header that cannot be sent");
            return Err(ApiError::invalid(path, message));
        };
        if OWN_HEADERS.contains(&name.as_str()) || name.as_str().starts_with(PROTOCOL_PREFIX) {
            return Err(refused_header(path, &name, "is set by the gateway"));
        }
        headers.insert(name, text);
    }
    Ok(headers)
}

/// Adds the headers of the caller to those of a server of the operator, which stay as they are. `paths` are
/// the fields of the headers and of the token.
pub(super) fn add_callers_headers(
    own: &mut HeaderMap,
    callers: HeaderMap,
    paths: (&str, Option<&str>),
) -> Result<(), ApiError> {
    let (headers_path, token_path) = paths;
    for (name, value) in &callers {
        if own.contains_key(name) {
            let why = "is set by the operator of this server";
            return Err(match token_path.filter(|_| name == AUTHORIZATION) {
                Some(path) => ApiError::invalid(path, format!("`{path}` {why}")),
                None => refused_header(headers_path, name, why),
            });
        }
        let is_forwarding = name.as_str().starts_with(FORWARDED_PREFIX);
        if is_forwarding || TRUSTED_HEADERS.contains(&name.as_str()) {
            let why = "cannot be sent to a server of the operator";
            return Err(refused_header(headers_path, name, why));
        }
        own.insert(name.clone(), value.clone());
    }
    Ok(())
}

fn refused_header(path: &str, name: &HeaderName, why: &str) -> ApiError {
    let path = format!("{path}.{name}");
    ApiError::invalid(&path, format!("`{path}` {why}"))
}

/// Adds the token of the caller for the server. `path` is its field.
pub(super) fn add_token(
    headers: &mut HeaderMap,
    token: Option<&Value>,
    path: &str,
) -> Result<(), ApiError> {
    match token {
        None | Some(Value::Null) => Ok(()),
        Some(token) => {
            let value = token.as_str().and_then(|token| secret_value(&format!("Bearer {token}")));
            let value = value.ok_or_else(|| {
                ApiError::invalid(path, format!("`{path}` must be a token, as text"))
            })?;
            headers.insert(AUTHORIZATION, value);
            Ok(())
        }
    }
}

fn secret_value(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
