//! `POST /mcp` and `POST /mcp/{server}`: the tools of the operator's MCP servers, for every key that may use
//! them. Clients of the stateless protocol (2026-07-28) and of the one with a handshake (2025-11-25) are
//! served alike, because the gateway keeps no session:
//! <https://modelcontextprotocol.io/specification/2026-07-28/basic/transports>.

use axum::body::Body;
use axum::response::Response;
use canon::ApiError;
use config::McpServerSettings;
use futures_util::future::join_all;
use http::{HeaderValue, Request, StatusCode};
use relay::mcp::client::{CAPABILITIES_KEY, HANDSHAKE_VERSION, STATELESS_VERSION, VERSION_KEY};
use relay::mcp::{McpClient, McpError, McpTool, PaidToolCall, offered_endpoint};
use relay::{Engine, json_response};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use telemetry::ToolTrace;
use transport::{HeaderBlock, read_whole};

use crate::request::ApiRequest;
use crate::state::ApiState;

/// Largest request. Arguments of tools may hold files.
const MAX_BODY_BYTES: usize = 4 << 20;
/// Stands between the name of a server and that of its tool.
const NAME_SEPARATOR: &str = "__";
/// Versions with a handshake that are served.
const HANDSHAKE_VERSIONS: [&str; 3] = [HANDSHAKE_VERSION, "2025-06-18", "2025-03-26"];
/// Time for which a client may keep a list.
const LIST_TTL_MILLIS: u64 = 60_000;
/// Names of servers that did not list their tools, in `_meta`.
const UNAVAILABLE_KEY: &str = "portunus/unavailable";
/// Pages that connect servers which nobody connected for the caller, in `_meta`.
const CONNECT_KEY: &str = "portunus/connect";
/// Session of the call on its receipt.
const SESSION_HEADER: &str = "x-portunus-session";
/// Path of the description of the resource (RFC 9728, section 3.1).
const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";

const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const SERVER_FAILED: i64 = -32000;
const HEADER_MISMATCH: i64 = -32020;
const UNSUPPORTED_VERSION: i64 = -32022;

/// Error of JSON-RPC.
struct RpcError {
    code: i64,
    message: String,
    data: Option<Value>,
}

impl RpcError {
    fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Returns the HTTP status. The stateless protocol has one for some errors.
    const fn status(&self, is_stateless: bool) -> StatusCode {
        match self.code {
            METHOD_NOT_FOUND if is_stateless => StatusCode::NOT_FOUND,
            INVALID_REQUEST | HEADER_MISMATCH | UNSUPPORTED_VERSION => StatusCode::BAD_REQUEST,
            INVALID_PARAMS if is_stateless => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        }
    }
}

pub(super) async fn call(incoming: ApiRequest) -> Result<Response, ApiError> {
    let ApiRequest { state, config, key, id: request_id, admission: _admission, request, .. } =
        incoming;
    let path = request.path().to_owned();
    let only = path.strip_prefix("/mcp/").map(crate::query::percent_decode);
    let head = Arc::clone(request.head());
    let body = read_whole(request.body, MAX_BODY_BYTES).await?;
    let message = match dialects::json::read_bytes::<Value>(&body) {
        Ok(Value::Object(message)) => message,
        Ok(_) | Err(_) => {
            let error = RpcError::new(INVALID_REQUEST, "the body must be one object of JSON-RPC");
            return Ok(answer(&Value::Null, Err(error), false));
        }
    };
    let id = match message.get("id") {
        Some(id) if !(id.is_string() || id.is_number()) => {
            let error = RpcError::new(INVALID_REQUEST, "`id` must be a string or a number");
            return Ok(answer(&Value::Null, Err(error), false));
        }
        id => id,
    };
    let Some(id) = id else {
        // A notification, or an answer: nothing here waits for one.
        let mut accepted = Response::new(Body::empty());
        *accepted.status_mut() = StatusCode::ACCEPTED;
        return Ok(accepted);
    };
    let record = &key.record;
    let admitted = config.mcp.servers.values().filter(|server| {
        server.admits(&record.account_id, &record.id)
            && only.as_ref().is_none_or(|only| *only == server.name)
    });
    let hub = McpHub {
        engine: &state.engine,
        config: &config,
        account_id: &record.account_id,
        servers: admitted.cloned().collect(),
        has_prefix: only.is_none(),
        trace: relay::start_trace(&state.engine, true, head.headers()).map(ToolTrace::beside),
    };
    if let Some(name) = only.as_ref().filter(|_| hub.servers.is_empty()) {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
        let message = format!("there is no MCP server `{shown}` for this key");
        return Err(ApiError::new(canon::ErrorKind::NotFound, message));
    }
    let version = head.headers().text("mcp-protocol-version");
    let is_stateless = is_stateless(&message) || version == Some(STATELESS_VERSION);
    if let Err(error) = check_envelope(&message, head.headers(), is_stateless) {
        return Ok(answer(id, Err(error), is_stateless));
    }
    let Some(server) = hub.called_server(&message) else {
        let result = hub.answer(&message, None, is_stateless).await;
        return Ok(answer(id, result, is_stateless));
    };
    // Calls of tools count against the limits of the key, and cost their price.
    let _rate = match state.limiter.is_unlimited(&key) {
        true => None,
        false => state.limiter.admit(&key).await?,
    };
    // A body can take long. The key may have been revoked since the head was read.
    let key = state.engine.keys.still_live(&key)?;
    let session = head.headers().text(SESSION_HEADER).and_then(relay::caller_id);
    let (parts, call) = ((&*state.engine, &*config), (&request_id.0, session.unwrap_or_default()));
    let paid = PaidToolCall::reserve(parts, &key, server, call).await?;
    let result = hub.answer(&message, Some(&paid), is_stateless).await;
    let cost = paid.settle(result.as_ref().is_ok_and(is_success)).await;
    let mut response = answer(id, result, is_stateless);
    if let Ok(value) = HeaderValue::try_from(cost.to_string()) {
        response.headers_mut().insert("x-portunus-cost", value);
    }
    Ok(response)
}

/// Returns true if a tool did its work. One that failed, or that asks for more input, costs nothing.
fn is_success(result: &Value) -> bool {
    let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
    let kind = result.get("resultType").and_then(Value::as_str).unwrap_or("complete");
    !is_error && kind == "complete"
}

/// Describes the resource for clients that look for its authorization server (RFC 9728).
pub(super) async fn metadata(
    state: Arc<ApiState>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let path = request.uri().path().strip_prefix(METADATA_PATH).unwrap_or_default();
    let path = if path.is_empty() { "/mcp" } else { path };
    let own = &state.config().public_url;
    let body = json!({
        "resource": format!("{own}{path}"),
        "resource_name": "Portunus",
        "authorization_servers": [own],
        "bearer_methods_supported": ["header"],
    });
    Ok(json_response(body.to_string()))
}

/// Returns the challenge of a 401 for a path of MCP (RFC 9728, section 5.1).
pub(crate) fn challenge(public_url: &str, path: &str) -> Option<String> {
    let is_mcp = path == "/mcp" || path.starts_with("/mcp/");
    is_mcp.then(|| format!("Bearer resource_metadata=\"{public_url}{METADATA_PATH}/mcp\""))
}

fn is_stateless(message: &Map<String, Value>) -> bool {
    let meta = message.get("params").and_then(|params| params.get("_meta"));
    meta.is_some_and(|meta| meta.get(VERSION_KEY).is_some())
        || message.get("method").is_some_and(|method| method == "server/discover")
}

/// Compares the headers with the body, as the stateless protocol demands.
fn check_envelope(
    message: &Map<String, Value>,
    headers: &HeaderBlock,
    is_stateless: bool,
) -> Result<(), RpcError> {
    if !is_stateless {
        return Ok(());
    }
    let params = message.get("params").unwrap_or(&Value::Null);
    let meta = params.get("_meta").unwrap_or(&Value::Null);
    let version = meta.get(VERSION_KEY).and_then(Value::as_str).ok_or_else(|| {
        RpcError::new(INVALID_PARAMS, format!("`params._meta` must have `{VERSION_KEY}`"))
    })?;
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let matches = |name: &str, want: Option<String>| headers.text(name).map(str::to_owned) == want;
    if !matches("mcp-protocol-version", Some(version.to_owned())) {
        let message = "the header `MCP-Protocol-Version` differs from the version in the body";
        return Err(RpcError::new(HEADER_MISMATCH, message));
    }
    if !matches("mcp-method", text(message.get("method"))) {
        let message = "the header `Mcp-Method` differs from the method in the body";
        return Err(RpcError::new(HEADER_MISMATCH, message));
    }
    let name = params.get("name").filter(|_| message.get("method") == Some(&json!("tools/call")));
    if let Some(name) = name.and_then(Value::as_str)
        && headers.text("mcp-name").and_then(decode_name).as_deref() != Some(name)
    {
        let message = "the header `Mcp-Name` differs from the name in the body";
        return Err(RpcError::new(HEADER_MISMATCH, message));
    }
    if version != STATELESS_VERSION {
        let mut error = RpcError::new(UNSUPPORTED_VERSION, "the version is not served here");
        let supported: Vec<&str> =
            [STATELESS_VERSION].into_iter().chain(HANDSHAKE_VERSIONS).collect();
        error.data = Some(json!({ "supported": supported, "requested": version }));
        return Err(error);
    }
    if meta.get(CAPABILITIES_KEY).is_none() {
        let message = format!("`params._meta` must have `{CAPABILITIES_KEY}`");
        return Err(RpcError::new(INVALID_PARAMS, message));
    }
    Ok(())
}

/// Returns the name that the header `Mcp-Name` has, which is encoded if no header can have it.
fn decode_name(value: &str) -> Option<String> {
    use base64::Engine as _;
    let encoded = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
    let Some(encoded) = encoded else { return Some(value.to_owned()) };
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).ok()?;
    String::from_utf8(bytes).ok()
}

fn answer(id: &Value, result: Result<Value, RpcError>, is_stateless: bool) -> Response {
    let mut status = StatusCode::OK;
    let body = match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => {
            status = error.status(is_stateless);
            let mut told = json!({ "code": error.code, "message": error.message });
            if let (Some(data), Some(told)) = (error.data, told.as_object_mut()) {
                told.insert("data".to_owned(), data);
            }
            json!({ "jsonrpc": "2.0", "id": id, "error": told })
        }
    };
    let mut response = json_response(body.to_string());
    *response.status_mut() = status;
    response
}

/// Servers of one key.
struct McpHub<'c> {
    engine: &'c Engine,
    config: &'c config::Config,
    account_id: &'c str,
    servers: Vec<Arc<McpServerSettings>>,
    /// True if the names of tools begin with the name of their server.
    has_prefix: bool,
    /// Trace of the caller.
    trace: Option<ToolTrace>,
}

impl McpHub<'_> {
    /// Returns the server whose tool a message calls.
    fn called_server(&self, message: &Map<String, Value>) -> Option<&Arc<McpServerSettings>> {
        if message.get("method").and_then(Value::as_str) != Some("tools/call") {
            return None;
        }
        let name = message.get("params")?.get("name")?.as_str()?;
        self.find(name).map(|(server, _)| server)
    }

    async fn answer(
        &self,
        message: &Map<String, Value>,
        paid: Option<&PaidToolCall>,
        is_stateless: bool,
    ) -> Result<Value, RpcError> {
        let params = match message.get("params") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(params)) => params.clone(),
            Some(_) => return Err(RpcError::new(INVALID_PARAMS, "`params` must be an object")),
        };
        match message.get("method").and_then(Value::as_str) {
            Some("initialize") => Ok(self.initialize(&params)),
            Some("server/discover") => Ok(self.discover()),
            Some("ping") => Ok(json!({})),
            Some("tools/list") => self.list_tools(is_stateless).await,
            Some("tools/call") => self.call_tool(params, paid, is_stateless).await,
            Some(_) => Err(RpcError::new(METHOD_NOT_FOUND, "there is no such method here")),
            None => Err(RpcError::new(INVALID_REQUEST, "`method` is missing")),
        }
    }

    fn initialize(&self, params: &Map<String, Value>) -> Value {
        let wanted = params.get("protocolVersion").and_then(Value::as_str);
        let version = HANDSHAKE_VERSIONS.into_iter().find(|own| Some(*own) == wanted);
        json!({
            "protocolVersion": version.unwrap_or(HANDSHAKE_VERSION),
            "capabilities": { "tools": { "listChanged": false } },
            "serverInfo": server_info(),
            "instructions": self.instructions(),
        })
    }

    fn discover(&self) -> Value {
        let versions: Vec<&str> =
            [STATELESS_VERSION].into_iter().chain(HANDSHAKE_VERSIONS).collect();
        json!({
            "resultType": "complete",
            "supportedVersions": versions,
            "capabilities": { "tools": {} },
            "instructions": self.instructions(),
            "cacheScope": "private",
            "ttlMs": LIST_TTL_MILLIS,
            "_meta": { "io.modelcontextprotocol/serverInfo": server_info() },
        })
    }

    fn instructions(&self) -> String {
        let names: Vec<&str> = self.servers.iter().map(|server| server.name.as_str()).collect();
        format!("Tools of these servers: {}.", names.join(", "))
    }

    fn client(&self, server: &Arc<McpServerSettings>) -> McpClient {
        let parts = (self.engine, self.config);
        McpClient::new(offered_endpoint(parts, server, self.account_id, self.trace))
    }

    /// Lists the tools of all servers. One that fails is named, and the others are listed.
    async fn list_tools(&self, is_stateless: bool) -> Result<Value, RpcError> {
        let listed = join_all(self.servers.iter().map(|server| async move {
            let listed = self.client(server).list_tools(|tool| server.offers(&tool.name)).await;
            (server, listed)
        }));
        let (mut tools, mut unavailable) = (Vec::new(), Vec::new());
        let mut pages = Map::new();
        for (server, listed) in listed.await {
            match listed {
                Ok(listed) => tools.extend(listed.into_iter().map(|tool| self.show(server, tool))),
                Err(error @ (McpError::NotConnected { .. } | McpError::SignInEnded { .. }))
                    if !self.has_prefix =>
                {
                    return Err(told_error(server, error));
                }
                Err(McpError::NotConnected { page, .. } | McpError::SignInEnded { page, .. }) => {
                    pages.insert(server.name.clone(), Value::from(page));
                    unavailable.push(Value::from(server.name.clone()));
                }
                Err(error) => {
                    tracing::warn!("the MCP server `{}` lists no tools: {error:?}", server.name);
                    unavailable.push(Value::from(server.name.clone()));
                }
            }
        }
        let mut result = json!({ "tools": tools });
        if let Some(result) = result.as_object_mut() {
            if is_stateless {
                result.insert("resultType".to_owned(), json!("complete"));
                result.insert("cacheScope".to_owned(), json!("private"));
                let ttl = if unavailable.is_empty() { LIST_TTL_MILLIS } else { 0 };
                result.insert("ttlMs".to_owned(), json!(ttl));
            }
            if !unavailable.is_empty() {
                let mut meta = json!({ UNAVAILABLE_KEY: unavailable });
                if let Some(meta) = meta.as_object_mut().filter(|_| !pages.is_empty()) {
                    meta.insert(CONNECT_KEY.to_owned(), Value::Object(pages));
                }
                result.insert("_meta".to_owned(), meta);
            }
        }
        Ok(result)
    }

    fn show(&self, server: &McpServerSettings, tool: McpTool) -> Value {
        let mut listed = tool.listed;
        if self.has_prefix {
            let name = format!("{}{NAME_SEPARATOR}{}", server.name, tool.name);
            listed.insert("name".to_owned(), Value::from(name));
        }
        Value::Object(listed)
    }

    async fn call_tool(
        &self,
        mut params: Map<String, Value>,
        paid: Option<&PaidToolCall>,
        is_stateless: bool,
    ) -> Result<Value, RpcError> {
        let name = params.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let (server, tool) = self.find(&name).ok_or_else(|| {
            let shown: String = name.chars().filter(|c| !c.is_control()).take(128).collect();
            RpcError::new(INVALID_PARAMS, format!("there is no tool `{shown}` for this key"))
        })?;
        params.insert("name".to_owned(), Value::from(tool));
        // The envelope of the caller is not that of the gateway.
        params.shift_remove("_meta");
        let mut client = self.client(server);
        let result = match client.connect().await {
            Ok(_) => {
                paid.iter().for_each(|paid| paid.note_sent());
                client.forward("tools/call", params).await
            }
            Err(error) => {
                client.note_unsent(tool, &error);
                Err(error)
            }
        };
        let mut result = result.map_err(|error| told_error(server, error))?;
        let kind = result.get("resultType").and_then(Value::as_str).unwrap_or("complete");
        if !is_stateless && kind == "input_required" {
            let message =
                "the tool asks for more input, which this version of the protocol has no words for";
            return Err(RpcError::new(SERVER_FAILED, message));
        }
        if is_stateless {
            result.entry("resultType").or_insert_with(|| json!("complete"));
        } else {
            result.shift_remove("resultType");
        }
        Ok(Value::Object(result))
    }

    /// Finds the server of a tool, and the name that it has there.
    fn find<'n>(&self, name: &'n str) -> Option<(&Arc<McpServerSettings>, &'n str)> {
        let (server, tool) = match self.has_prefix {
            false => (self.servers.first()?, name),
            true => {
                let (prefix, tool) = name.split_once(NAME_SEPARATOR)?;
                (self.servers.iter().find(|server| server.name == prefix)?, tool)
            }
        };
        (!tool.is_empty() && server.offers(tool)).then_some((server, tool))
    }
}

/// Returns an error of a server in the words of the gateway. An error of JSON-RPC is passed on.
fn told_error(server: &McpServerSettings, error: McpError) -> RpcError {
    let name = &server.name;
    tracing::debug!("the MCP server `{name}` failed: {error:?}");
    match error {
        McpError::Protocol { code, message, data } => RpcError { code, message, data },
        McpError::NotConnected { ref page, .. } | McpError::SignInEnded { ref page, .. } => {
            let data = Some(json!({ "server": name, "connect_url": page }));
            let message = format!("the server `{name}` cannot be used: {error}");
            RpcError { code: SERVER_FAILED, message, data }
        }
        McpError::NotPublic
        | McpError::Busy
        | McpError::Timeout
        | McpError::Unreachable(_)
        | McpError::Status(_)
        | McpError::Unusable(_) => {
            RpcError::new(SERVER_FAILED, format!("the server `{name}` cannot be used: {error}"))
        }
    }
}

fn server_info() -> Value {
    json!({ "name": "portunus", "version": env!("CARGO_PKG_VERSION") })
}
