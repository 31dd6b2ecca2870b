//! Client of the Model Context Protocol over streamable HTTP:
//! <https://modelcontextprotocol.io/specification/2026-07-28/basic/transports>.
//!
//! The stateless protocol is tried first. A server that refuses it gets the handshake of 2025-11-25. A
//! server is outside the gateway's control, so time, size, pages and tools are bounded.

use bytes::{Bytes, BytesMut};
use canon::ApiError;
use dialects::SseDecoder;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::fmt;
use std::time::Duration;
use telemetry::ToolObserver;
use upstream::{FetchError, FetchReply, MediaFetcher};

use super::oauth::McpTokenSource;

/// Version of the protocol without sessions.
pub const STATELESS_VERSION: &str = "2026-07-28";
/// Version of the protocol with a handshake.
pub const HANDSHAKE_VERSION: &str = "2025-11-25";
/// Names in `_meta` of the stateless protocol.
pub const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
/// Capabilities of the client in `_meta`.
pub const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_INFO_KEY: &str = "io.modelcontextprotocol/clientInfo";
/// Status of a token that is not accepted.
const UNAUTHORIZED: u16 = 401;
/// Method that calls a tool.
const TOOL_METHOD: &str = "tools/call";
/// Word for a tool that reports a failure, as the conventions of OpenTelemetry have it.
const TOOL_FAILED: &str = "tool_error";
const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");

/// Largest answer of a server.
const MAX_REPLY_BYTES: usize = 4 << 20;
/// Pages of a list of tools that are read.
const MAX_PAGES: usize = 50;
/// Tools of one server that are used.
const MAX_TOOLS: usize = 256;
/// Bytes of all tools of one server.
const MAX_TOOL_BYTES: usize = 1 << 20;
/// Longest name of a tool.
const MAX_NAME_BYTES: usize = 128;
/// Time in which a server lists its tools.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);

/// Failure of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpError {
    /// The address must not be named.
    NotPublic,
    /// The gateway asks too many servers at this moment.
    Busy,
    /// The server did not answer in time.
    Timeout,
    /// The server could not be reached or broke off. The reason is for the log only, because it could
    /// describe networks that the caller cannot see.
    Unreachable(String),
    /// The server answered with this HTTP status.
    Status(u16),
    /// Nobody connected the server for this caller.
    NotConnected {
        /// Name of the server.
        server: String,
        /// Address of the page that connects it.
        page: String,
    },
    /// The server was connected, and does not accept the sign-in any more.
    SignInEnded {
        /// Name of the server.
        server: String,
        /// Address of the page that connects it.
        page: String,
    },
    /// The server answered with an error of JSON-RPC.
    Protocol {
        /// Code of the error.
        code: i64,
        /// Message of the server.
        message: String,
        /// More about it.
        data: Option<Value>,
    },
    /// The answer breaks a rule of the protocol or a limit of the gateway.
    Unusable(&'static str),
}

impl McpError {
    /// Returns the word used in metrics.
    const fn word(&self) -> &'static str {
        match self {
            Self::NotPublic => "not_public",
            Self::Busy => "busy",
            Self::Timeout => "timeout",
            Self::Unreachable(_) => "unreachable",
            Self::Status(_) => "http_status",
            Self::NotConnected { .. } => "not_connected",
            Self::SignInEnded { .. } => "sign_in_ended",
            Self::Protocol { .. } => "protocol_error",
            Self::Unusable(_) => "unusable",
        }
    }
}

impl fmt::Display for McpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPublic => f.write_str("its address must be a public HTTPS address"),
            Self::Busy => f.write_str("too many servers are asked at this moment"),
            Self::Timeout => f.write_str("it did not answer in time"),
            Self::Unreachable(_) => f.write_str("it could not be reached"),
            Self::NotConnected { server, page } => {
                write!(f, "it is not connected; connect `{server}` at {page}")
            }
            Self::SignInEnded { server, page } => {
                write!(f, "its sign-in has ended; connect `{server}` again at {page}")
            }
            Self::Status(401 | 403) => f.write_str("it refused the authorization"),
            Self::Status(status) => write!(f, "it answered with the HTTP status {status}"),
            Self::Protocol { code, message, .. } => {
                let message: String = message.chars().take(300).collect();
                write!(f, "it answered with the error {code}: {message}")
            }
            Self::Unusable(why) => f.write_str(why),
        }
    }
}

impl From<FetchError> for McpError {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::NotPublic => Self::NotPublic,
            FetchError::Busy => Self::Busy,
            FetchError::Failed(why) => Self::Unreachable(why),
        }
    }
}

/// Tool of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct McpTool {
    /// Name on its server.
    pub name: String,
    /// The whole description as the server listed it.
    pub listed: Map<String, Value>,
}

impl McpTool {
    /// Returns the text for models.
    pub fn description(&self) -> Option<&str> {
        self.listed.get("description").and_then(Value::as_str)
    }

    /// Returns the schema of its arguments.
    pub fn input_schema(&self) -> Value {
        let schema = self.listed.get("inputSchema").filter(|schema| schema.is_object());
        schema.cloned().unwrap_or_else(|| json!({ "type": "object", "properties": {} }))
    }
}

/// Address of a server and what is sent to it.
#[derive(Clone)]
pub struct McpEndpoint {
    /// Reaches the address, or refuses it.
    pub fetcher: MediaFetcher,
    /// Address.
    pub url: String,
    /// Headers of every request.
    pub headers: HeaderMap,
    /// Time for one request.
    pub timeout: Duration,
    /// Source of the token of a server that people connect.
    pub tokens: Option<McpTokenSource>,
    /// Counts calls of tools.
    pub observer: ToolObserver,
}

/// Conversation with one server.
pub struct McpClient {
    endpoint: McpEndpoint,
    /// Session of the protocol with a handshake, if that is spoken.
    session: Option<McpSession>,
    next_id: u64,
}

#[derive(Clone, Debug)]
struct McpSession {
    id: Option<HeaderValue>,
    version: HeaderValue,
}

impl McpClient {
    /// Creates a client. Nothing is sent yet.
    pub const fn new(endpoint: McpEndpoint) -> Self {
        Self { endpoint, session: None, next_id: 0 }
    }

    /// Lists the tools that pass the filter.
    pub async fn list_tools(
        &mut self,
        is_wanted: impl Fn(&McpTool) -> bool,
    ) -> Result<Vec<McpTool>, McpError> {
        let time = LIST_TIMEOUT.min(self.endpoint.timeout);
        let listed = tokio::time::timeout(time, self.read_tools(is_wanted)).await;
        listed.unwrap_or(Err(McpError::Timeout))
    }

    async fn read_tools(
        &mut self,
        is_wanted: impl Fn(&McpTool) -> bool,
    ) -> Result<Vec<McpTool>, McpError> {
        let (mut tools, mut bytes, mut names) = (Vec::new(), 0, HashSet::new());
        let mut page = Map::new();
        for number in 0..MAX_PAGES {
            let listed = match self.request("tools/list", page.clone()).await {
                Err(error) if number == 0 && self.session.is_none() && is_other_era(&error) => {
                    self.shake_hands().await?;
                    self.request("tools/list", page).await?
                }
                listed => listed?,
            };
            let found = listed.get("tools").and_then(Value::as_array);
            for tool in found.ok_or(McpError::Unusable("its list of tools is not one"))? {
                let Some(tool) = read_tool(tool) else { continue };
                // The first of a name counts: a call names no other.
                if !is_wanted(&tool) || !names.insert(tool.name.clone()) {
                    continue;
                }
                bytes += Value::Object(tool.listed.clone()).to_string().len();
                if tools.len() == MAX_TOOLS || bytes > MAX_TOOL_BYTES {
                    return Err(McpError::Unusable(
                        "it lists more tools than are used at once (256 tools, 1 MB); name those that \
                         are wanted",
                    ));
                }
                tools.push(tool);
            }
            match listed.get("nextCursor").filter(|cursor| cursor.is_string()) {
                Some(cursor) => page = Map::from_iter([("cursor".to_owned(), cursor.clone())]),
                None => return Ok(tools),
            }
        }
        Err(McpError::Unusable("its list of tools has too many pages"))
    }

    /// Calls a tool and returns its result.
    pub async fn call_tool(
        &mut self,
        name: &str,
        arguments: Value,
    ) -> Result<Map<String, Value>, McpError> {
        let mut params = Map::new();
        params.insert("name".to_owned(), Value::from(name));
        params.insert("arguments".to_owned(), arguments);
        self.request(TOOL_METHOD, params).await
    }

    /// Sends a request of the protocol with the parameters of another client, and returns the result. The
    /// era of the server must be known, or the request safe to be sent twice.
    pub async fn forward(
        &mut self,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<Map<String, Value>, McpError> {
        self.request(method, params).await
    }

    /// Finds out which protocol the server speaks.
    pub async fn connect(&mut self) -> Result<Map<String, Value>, McpError> {
        match self.request("server/discover", Map::new()).await {
            Ok(found) if lists_stateless(&found) => Ok(found),
            Ok(_) => self.shake_hands().await,
            Err(error) if is_other_era(&error) => self.shake_hands().await,
            Err(error) => Err(error),
        }
    }

    /// Returns true if the server speaks the protocol with a handshake.
    pub const fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Opens a session of 2025-11-25.
    pub async fn shake_hands(&mut self) -> Result<Map<String, Value>, McpError> {
        let params = json!({
            "protocolVersion": HANDSHAKE_VERSION,
            "capabilities": {},
            "clientInfo": client_info(),
        });
        let Value::Object(params) = params else { return Err(McpError::Unusable("")) };
        self.session =
            Some(McpSession { id: None, version: HeaderValue::from_static(HANDSHAKE_VERSION) });
        let answered = self.request("initialize", params).await?;
        let version = answered.get("protocolVersion").and_then(Value::as_str);
        let version = version.and_then(|text| HeaderValue::from_str(text).ok());
        let version = version.ok_or(McpError::Unusable("it named no version of the protocol"))?;
        if let Some(session) = &mut self.session {
            session.version = version;
        }
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let sent = self.post("notifications/initialized", None, Bytes::from(note.to_string()));
        let reply = tokio::time::timeout(self.endpoint.timeout, sent).await;
        match reply.map_err(|_| McpError::Timeout)??.status() {
            200..=299 => Ok(answered),
            status => Err(McpError::Status(status)),
        }
    }

    /// Counts a call of a tool that could not be sent, because the server failed before.
    pub fn note_unsent(&self, tool: &str, error: &McpError) {
        self.endpoint.observer.begin(tool).end(Some(error.word()));
    }

    /// Sends a request. Calls of tools are counted.
    async fn request(
        &mut self,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<Map<String, Value>, McpError> {
        if method != TOOL_METHOD {
            return self.exchange(method, params).await;
        }
        let tool = params.get("name").and_then(Value::as_str).unwrap_or_default();
        let running = self.endpoint.observer.begin(tool);
        let answered = self.exchange(method, params).await;
        running.end(match &answered {
            Ok(result) if is_tool_error(result) => Some(TOOL_FAILED),
            Ok(_) => None,
            Err(error) => Some(error.word()),
        });
        answered
    }

    async fn exchange(
        &mut self,
        method: &str,
        mut params: Map<String, Value>,
    ) -> Result<Map<String, Value>, McpError> {
        self.next_id += 1;
        if self.session.is_none() {
            let meta = params.entry("_meta").or_insert_with(|| json!({}));
            if let Some(meta) = meta.as_object_mut() {
                meta.insert(VERSION_KEY.to_owned(), Value::from(STATELESS_VERSION));
                meta.entry(CAPABILITIES_KEY).or_insert_with(|| json!({}));
                meta.entry(CLIENT_INFO_KEY).or_insert_with(client_info);
            }
        }
        let name = params.get("name").and_then(Value::as_str).map(str::to_owned);
        let id = self.next_id;
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let body = Bytes::from(body.to_string());
        let time = self.endpoint.timeout;
        let exchange = async {
            let mut reply = self.post(method, name.as_deref(), body).await?;
            if method == "initialize"
                && let Some(id) = reply.header("mcp-session-id")
                && let Some(session) = &mut self.session
            {
                session.id = HeaderValue::from_str(id).ok();
            }
            read_answer(&mut reply, id).await
        };
        let answered = tokio::time::timeout(time, exchange).await;
        answered.unwrap_or(Err(McpError::Timeout))
    }

    async fn post(
        &self,
        method: &str,
        name: Option<&str>,
        body: Bytes,
    ) -> Result<FetchReply, McpError> {
        let McpEndpoint { fetcher, url, headers, .. } = &self.endpoint;
        let mut headers = headers.clone();
        let accept = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(http::header::ACCEPT, accept);
        let version = HeaderName::from_static("mcp-protocol-version");
        match &self.session {
            Some(McpSession { id, .. }) if method == "initialize" && id.is_none() => {}
            Some(session) => {
                headers.insert(version, session.version.clone());
                if let Some(id) = &session.id {
                    headers.insert(SESSION_HEADER, id.clone());
                }
            }
            None => {
                headers.insert(version, HeaderValue::from_static(STATELESS_VERSION));
                if let Ok(value) = HeaderValue::from_str(method) {
                    headers.insert(HeaderName::from_static("mcp-method"), value);
                }
                if let Some(value) = name.and_then(name_header) {
                    headers.insert(HeaderName::from_static("mcp-name"), value);
                }
            }
        }
        let Some(tokens) = &self.endpoint.tokens else {
            return Ok(fetcher.open_post(url, &headers, body).await?);
        };
        let bearer = tokens.bearer(None).await?;
        headers.insert(AUTHORIZATION, bearer.header);
        let reply = fetcher.open_post(url, &headers, body.clone()).await?;
        if reply.status() != UNAUTHORIZED {
            return Ok(reply);
        }
        // The server ended the token before its time, and has not worked on the request.
        let bearer = tokens.bearer(Some(bearer.version)).await?;
        headers.insert(AUTHORIZATION, bearer.header);
        Ok(fetcher.open_post(url, &headers, body).await?)
    }
}

/// Returns the value of `Mcp-Name`. A name that no header can have is encoded.
fn name_header(name: &str) -> Option<HeaderValue> {
    use base64::Engine as _;
    let is_plain = name.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        && name.trim() == name
        && !name.starts_with("=?");
    if is_plain {
        return HeaderValue::from_str(name).ok();
    }
    let encoded = base64::engine::general_purpose::STANDARD.encode(name);
    HeaderValue::try_from(format!("=?base64?{encoded}?=")).ok()
}

/// Returns the name and version of the gateway.
pub(crate) fn client_info() -> Value {
    json!({ "name": "portunus", "version": env!("CARGO_PKG_VERSION") })
}

/// Returns true if the tool itself reports that it failed.
fn is_tool_error(result: &Map<String, Value>) -> bool {
    result.get("isError").and_then(Value::as_bool).unwrap_or(false)
}

/// Returns true if a server may have refused the stateless protocol. Servers of earlier versions answer with
/// various statuses and codes.
const fn is_other_era(error: &McpError) -> bool {
    match error {
        McpError::Status(status) => matches!(status, 400 | 404 | 405 | 406 | 422),
        McpError::Protocol { .. } | McpError::Unusable(_) => true,
        McpError::NotPublic
        | McpError::Busy
        | McpError::Timeout
        | McpError::Unreachable(_)
        | McpError::NotConnected { .. }
        | McpError::SignInEnded { .. } => false,
    }
}

fn lists_stateless(found: &Map<String, Value>) -> bool {
    let versions = found.get("supportedVersions").and_then(Value::as_array);
    versions.is_some_and(|all| all.iter().any(|version| version == STATELESS_VERSION))
}

fn read_tool(tool: &Value) -> Option<McpTool> {
    let listed = tool.as_object()?;
    let name = listed.get("name")?.as_str()?;
    let is_name = !name.is_empty() && name.len() <= MAX_NAME_BYTES;
    is_name.then(|| McpTool { name: name.to_owned(), listed: listed.clone() })
}

/// Reads the answer to the request with this id from a JSON body or from a stream of events.
async fn read_answer(reply: &mut FetchReply, id: u64) -> Result<Map<String, Value>, McpError> {
    let status = reply.status();
    let kind = reply.header("content-type").unwrap_or_default().to_ascii_lowercase();
    if reply.header("content-encoding").is_some_and(|coding| coding != "identity") {
        return Err(McpError::Unusable("its answer is compressed, which was not asked for"));
    }
    if kind.starts_with("text/event-stream") && status == 200 {
        return read_events(reply, id).await;
    }
    let mut body = BytesMut::new();
    while let Some(piece) = reply.next_piece().await? {
        if body.len() + piece.len() > MAX_REPLY_BYTES {
            return Err(too_large());
        }
        body.extend_from_slice(&piece);
    }
    let answer = dialects::json::read_bytes::<Map<String, Value>>(&body).ok();
    // A server that refuses a request before it reads it does not know its id (JSON-RPC 2.0, section 5).
    let is_success = (200..=299).contains(&status);
    let is_unread = |answer: &Map<String, Value>| {
        answer.contains_key("error") && (!is_success || answer.get("id").is_none_or(Value::is_null))
    };
    let answer = answer.and_then(|answer| {
        let id = Some(id).filter(|_| !is_unread(&answer));
        take_answer(answer, id)
    });
    match answer {
        Some(Err(error)) => Err(error),
        Some(Ok(result)) if is_success => Ok(result),
        Some(Ok(_)) => Err(McpError::Status(status)),
        None if is_success => {
            Err(McpError::Unusable("its answer is not one of JSON-RPC to this request"))
        }
        None => Err(McpError::Status(status)),
    }
}

async fn read_events(reply: &mut FetchReply, id: u64) -> Result<Map<String, Value>, McpError> {
    let unreadable = |_: ApiError| McpError::Unusable("its events cannot be read");
    let mut decoder = SseDecoder::default();
    let mut received = 0;
    while let Some(piece) = reply.next_piece().await? {
        received += piece.len();
        if received > MAX_REPLY_BYTES {
            return Err(too_large());
        }
        decoder.push(piece);
        while let Some(frame) = decoder.next_frame().map_err(unreadable)? {
            let message = dialects::json::read_bytes::<Map<String, Value>>(&frame.data).ok();
            // Notes of progress, and requests of the server, are not the answer.
            if let Some(answer) = message.and_then(|message| take_answer(message, Some(id))) {
                return answer;
            }
        }
    }
    Err(McpError::Unreachable("the stream ended without the answer".to_owned()))
}

const fn too_large() -> McpError {
    McpError::Unusable("its answer is larger than 4 MB")
}

/// Returns the result or the error of a message, if it is an answer to the request with this id.
fn take_answer(
    mut message: Map<String, Value>,
    id: Option<u64>,
) -> Option<Result<Map<String, Value>, McpError>> {
    if id.is_some_and(|id| message.get("id").and_then(Value::as_u64) != Some(id)) {
        return None;
    }
    if let Some(Value::Object(result)) = message.get_mut("result") {
        return Some(Ok(std::mem::take(result)));
    }
    let error = message.get_mut("error")?.as_object_mut()?;
    let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(Err(McpError::Protocol { code, message, data: error.remove("data") }))
}
