//! An MCP server that takes tokens of its own authorization server, each on a port of this machine.

use admin::random;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{HeaderMap, Request, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Server and authorization server.
#[derive(Clone)]
pub(super) struct McpWorld {
    /// Address of the MCP server.
    pub(super) server: String,
    /// Address of the authorization server.
    pub(super) authority: String,
    pub(super) state: Arc<Mutex<WorldState>>,
}

/// A sign-in of a person.
#[derive(Clone)]
struct Approval {
    challenge: String,
    redirect: String,
    client: String,
    person: String,
}

#[derive(Default)]
pub(super) struct WorldState {
    codes: HashMap<String, Approval>,
    /// Persons by access token.
    access: HashMap<String, String>,
    /// Person and client by refresh token.
    refresh: HashMap<String, (String, String)>,
    clients: HashMap<String, String>,
    /// Every token that was ever given.
    pub(super) given: Vec<String>,
    /// Paths of the authorization server that were asked.
    pub(super) asked: Vec<String>,
    pub(super) refreshes: usize,
    pub(super) revoked: usize,
    /// Life of tokens that codes are exchanged for.
    pub(super) first_life: i64,
    /// Life of renewed tokens.
    pub(super) later_life: i64,
    /// Status of the token endpoint, if it fails.
    pub(super) failure: Option<u16>,
}

impl WorldState {
    /// Ends all sign-ins of a person.
    pub(super) fn end_sign_ins(&mut self, person: &str) {
        self.refresh.retain(|_, (own, _)| own != person);
        self.access.retain(|_, own| own != person);
    }

    /// Ends the access tokens of a person before their time.
    pub(super) fn end_access(&mut self, person: &str) {
        self.access.retain(|_, own| own != person);
    }

    fn give(&mut self, person: &str, client: &str, life: i64) -> Value {
        let [access, refresh] = ["at", "rt"].map(|kind| {
            let word = random::random_token().unwrap();
            format!("{kind}-{person}-{word}")
        });
        self.given.extend([access.clone(), refresh.clone()]);
        self.access.insert(access.clone(), person.to_owned());
        self.refresh.insert(refresh.clone(), (person.to_owned(), client.to_owned()));
        json!({ "access_token": access, "token_type": "Bearer", "expires_in": life,
                "refresh_token": refresh })
    }
}

impl McpWorld {
    pub(super) async fn start() -> Self {
        let [server, authority] = [listener().await, listener().await];
        let world = Self {
            server: format!("http://{}", server.local_addr().unwrap()),
            authority: format!("http://{}", authority.local_addr().unwrap()),
            state: Arc::new(Mutex::new(WorldState {
                first_life: 3_600,
                later_life: 3_600,
                ..WorldState::default()
            })),
        };
        let app = axum::Router::new().fallback(serve_tools).with_state(world.clone());
        tokio::spawn(async move { axum::serve(server, app).await });
        let app = axum::Router::new().fallback(serve_authority).with_state(world.clone());
        tokio::spawn(async move { axum::serve(authority, app).await });
        world
    }

    /// Signs a person in at the page and returns the query with which the browser comes back.
    pub(super) fn approve(&self, page: &str, person: &str) -> String {
        let (address, query) = page.split_once('?').unwrap();
        assert_eq!(address, format!("{}/authorize", self.authority));
        let query = fields(query);
        let field = |name: &str| query.get(name).cloned().unwrap_or_default();
        assert_eq!(field("response_type"), "code");
        assert_eq!(field("code_challenge_method"), "S256");
        assert_eq!(field("resource"), format!("{}/mcp", self.server));
        assert_eq!(field("scope"), "tools");
        let mut state = self.state.lock();
        assert!(state.clients.contains_key(&field("client_id")));
        let code = random::random_token().unwrap();
        let approval = Approval {
            challenge: field("code_challenge"),
            redirect: field("redirect_uri"),
            client: field("client_id"),
            person: person.to_owned(),
        };
        state.codes.insert(code.clone(), approval);
        format!("code={code}&state={}&iss={}", field("state"), escape(&self.authority))
    }

    fn tokens(&self, form: &HashMap<String, String>, client: &str) -> Result<Value, &'static str> {
        let field = |name: &str| form.get(name).cloned().unwrap_or_default();
        assert_eq!(field("resource"), format!("{}/mcp", self.server));
        let mut state = self.state.lock();
        match field("grant_type").as_str() {
            "authorization_code" => {
                let approval = state.codes.remove(&field("code")).ok_or("invalid_grant")?;
                let digest = URL_SAFE_NO_PAD.encode(random::digest(&field("code_verifier")));
                let is_same = digest == approval.challenge
                    && field("redirect_uri") == approval.redirect
                    && client == approval.client;
                let life = state.first_life;
                let given = is_same.then(|| state.give(&approval.person, client, life));
                given.ok_or("invalid_grant")
            }
            "refresh_token" => {
                state.refreshes += 1;
                // A token is good for one use.
                let found = state.refresh.remove(&field("refresh_token"));
                let (person, own) = found.ok_or("invalid_grant")?;
                if own != client {
                    return Err("invalid_grant");
                }
                let life = state.later_life;
                Ok(state.give(&person, client, life))
            }
            _ => Err("unsupported_grant_type"),
        }
    }
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

pub(super) fn escape(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn unescape(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned()
}

fn fields(query: &str) -> HashMap<String, String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), unescape(value))).collect()
}

fn json_reply(status: u16, body: &Value) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    (status, [("content-type", "application/json")], body.to_string()).into_response()
}

async fn read(request: Request<Body>) -> String {
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

/// The MCP server.
async fn serve_tools(State(world): State<McpWorld>, request: Request<Body>) -> Response {
    let own = &world.server;
    let metadata = "/.well-known/oauth-protected-resource/mcp";
    if request.uri().path() == metadata {
        let body = json!({ "resource": format!("{own}/mcp"), "scopes_supported": ["tools"],
                           "authorization_servers": [world.authority] });
        return json_reply(200, &body);
    }
    let token = bearer(request.headers());
    let person = token.and_then(|token| world.state.lock().access.get(&token).cloned());
    let Some(person) = person else {
        let challenge = format!("Bearer resource_metadata=\"{own}{metadata}\"");
        return (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response();
    };
    let message: Value = serde_json::from_str(&read(request).await).unwrap();
    let result = match message["method"].as_str().unwrap() {
        "server/discover" => json!({ "supportedVersions": ["2026-07-28"] }),
        "tools/list" => json!({ "tools": [{
            "name": "who_am_i", "description": "Tells who is signed in",
            "inputSchema": { "type": "object", "properties": {} },
        }] }),
        "tools/call" => {
            json!({ "content": [{ "type": "text", "text": format!("you are {person}") }] })
        }
        other => panic!("{other}"),
    };
    json_reply(200, &json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("authorization")?.to_str().ok()?;
    value.strip_prefix("Bearer ").map(str::to_owned)
}

/// The authorization server.
async fn serve_authority(State(world): State<McpWorld>, request: Request<Body>) -> Response {
    let (own, path) = (world.authority.clone(), request.uri().path().to_owned());
    world.state.lock().asked.push(path.clone());
    match path.as_str() {
        "/.well-known/oauth-authorization-server" => json_reply(
            200,
            &json!({
                "issuer": own,
                "authorization_endpoint": format!("{own}/authorize"),
                "token_endpoint": format!("{own}/token"),
                "registration_endpoint": format!("{own}/register"),
                "revocation_endpoint": format!("{own}/revoke"),
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["client_secret_basic"],
                "authorization_response_iss_parameter_supported": true,
            }),
        ),
        "/register" => {
            let wanted: Value = serde_json::from_str(&read(request).await).unwrap();
            assert_eq!(wanted["token_endpoint_auth_method"], "client_secret_basic");
            let [id, secret] = [0, 1].map(|_| random::random_token().unwrap());
            let mut state = world.state.lock();
            state.given.push(secret.clone());
            state.clients.insert(id.clone(), secret.clone());
            json_reply(201, &json!({ "client_id": id, "client_secret": secret }))
        }
        "/token" | "/revoke" => {
            let client = basic_client(&world, request.headers());
            let form = fields(&read(request).await);
            if let Some(status) = world.state.lock().failure {
                return json_reply(status, &json!({}));
            }
            let Some(client) = client else {
                return json_reply(401, &json!({ "error": "invalid_client" }));
            };
            if path == "/revoke" {
                let mut state = world.state.lock();
                state.revoked += usize::from(state.refresh.remove(&form["token"]).is_some());
                return json_reply(200, &json!({}));
            }
            match world.tokens(&form, &client) {
                Ok(tokens) => json_reply(200, &tokens),
                Err(code) => json_reply(400, &json!({ "error": code })),
            }
        }
        _ => json_reply(404, &json!({})),
    }
}

fn basic_client(world: &McpWorld, headers: &HeaderMap) -> Option<String> {
    let pair = headers.get("authorization")?.to_str().ok()?.strip_prefix("Basic ")?;
    let pair = String::from_utf8(STANDARD.decode(pair).ok()?).ok()?;
    let (id, secret) = pair.split_once(':')?;
    let known = world.state.lock().clients.get(id).cloned();
    (known.as_deref() == Some(secret)).then(|| id.to_owned())
}
