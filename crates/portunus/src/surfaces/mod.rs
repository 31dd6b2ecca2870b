//! The route table: every address this gateway answers, with its guard, in one reviewed list.
//!
//! A keyed handler takes the caller's key as an argument, so it cannot be mounted without its
//! guard; a public one cannot get at a key at all.

mod admin;
mod catalog;
mod chat;
mod count;
mod embeddings;
mod files;
mod health;
mod images;
mod key;
mod messages;
mod models;
mod native;
mod openapi;
mod query;
mod responses;
mod tasks;
mod threads;
mod watched;

pub(crate) use health::metrics_text;
pub(crate) use images::read as read_picture;
pub(crate) use key::export as write_entry;
pub(crate) use models::unknown as unknown_model;
pub(crate) use openapi::document as description;
pub(crate) use query::pairs;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::Response;
use canon::{Fault, Trouble};
use futures_util::future::BoxFuture;
use http::header::HeaderValue;
use http::{Method, Request};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use store::KeyScope;
use tower::ServiceExt as _;

use crate::app::{App, NewKey};
use crate::guard;
use crate::idempotency;
use crate::keys::Key;
use crate::limits::{self, Pass};
use crate::respond::{self, Voice};

/// A request's id, made when it arrives.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) Arc<str>);

/// What a keyed handler is given.
pub(crate) struct Asked {
    pub(crate) app: Arc<App>,
    pub(crate) key: Arc<Key>,
    pub(crate) id: RequestId,
    /// Its place within the limits of its key and account, where there are any.
    pub(crate) pass: Option<Arc<Pass>>,
    pub(crate) request: Request<Body>,
}

pub(crate) type Answered = BoxFuture<'static, Result<Response, Fault>>;

/// Who may call.
#[derive(Clone, Copy)]
enum Handler {
    /// Anyone.
    Public(fn(Arc<App>, Request<Body>) -> Answered),
    /// A good key of the right scope.
    Keyed(KeyedHandler),
}

/// A handler that takes a key.
#[derive(Clone, Copy)]
struct KeyedHandler {
    handler: fn(Asked) -> Answered,
    /// True for what costs money: the limits of the key hold.
    paid: bool,
    /// The scope the key must have; `None` is either.
    scope: Option<KeyScope>,
}

impl Handler {
    const fn keyed(self) -> Option<KeyedHandler> {
        match self {
            Self::Public(_) => None,
            Self::Keyed(handler) => Some(handler),
        }
    }
}

/// One address.
struct Route {
    method: Method,
    path: &'static str,
    handler: Handler,
}

macro_rules! guarded {
    ($paid:literal, $scope:expr, $method:ident $path:literal => $handler:path) => {
        Route {
            method: Method::$method,
            path: $path,
            handler: Handler::Keyed(KeyedHandler {
                handler: |asked| Box::pin($handler(asked)),
                paid: $paid,
                scope: $scope,
            }),
        }
    };
}

/// A good key of either scope: the description of the key itself.
macro_rules! known {
    ($($route:tt)*) => { guarded!(false, None, $($route)*) };
}

/// A key made for calls.
macro_rules! keyed {
    ($($route:tt)*) => { guarded!(false, Some(KeyScope::Call), $($route)*) };
}

/// A key made for calls, within its limits: what costs money.
macro_rules! paid {
    ($($route:tt)*) => { guarded!(true, Some(KeyScope::Call), $($route)*) };
}

/// A key made for administration. The handler checks the role of its account.
macro_rules! admin {
    ($($route:tt)*) => { guarded!(false, Some(KeyScope::Admin), $($route)*) };
}

macro_rules! public {
    ($method:ident $path:literal => $handler:path) => {
        Route {
            method: Method::$method,
            path: $path,
            handler: Handler::Public(|app, request| Box::pin($handler(app, request))),
        }
    };
}

/// Every address of the API. The console has a list of its own, in `console::routes`.
fn table() -> Vec<Route> {
    vec![
        paid!(POST "/v1/chat/completions" => chat::create),
        paid!(POST "/v1/embeddings" => embeddings::create),
        paid!(POST "/v1/images/generations" => images::create),
        paid!(POST "/v1/images/edits" => images::create),
        keyed!(GET "/v1/images/generations/{id}" => tasks::get),
        keyed!(GET "/v1/tasks" => tasks::list),
        keyed!(GET "/v1/tasks/{id}" => tasks::get),
        keyed!(POST "/v1/tasks/{id}/cancel" => tasks::cancel),
        keyed!(GET "/v1/webhooks/secret" => tasks::webhook_secret),
        paid!(POST "/v1/messages" => messages::create),
        keyed!(POST "/v1/messages/count_tokens" => messages::count),
        paid!(POST "/v1/responses" => responses::create),
        keyed!(GET "/v1/responses" => responses::upgrade),
        keyed!(POST "/v1/responses/input_tokens" => responses::input_tokens),
        paid!(POST "/v1/responses/compact" => responses::compact),
        keyed!(GET "/v1/responses/{id}" => responses::get),
        keyed!(DELETE "/v1/responses/{id}" => responses::delete),
        keyed!(POST "/v1/responses/{id}/cancel" => responses::cancel),
        keyed!(GET "/v1/responses/{id}/input_items" => responses::input_items),
        paid!(POST "/v1beta/models/{*rest}" => native::call),
        paid!(POST "/v1/models/{*rest}" => native::call),
        keyed!(POST "/upload/v1beta/files" => native::upload),
        keyed!(POST "/v1beta/files" => native::upload),
        keyed!(GET "/v1/models" => models::list),
        keyed!(GET "/v1/models/{*rest}" => models::get),
        keyed!(GET "/v1beta/models" => models::list_native),
        keyed!(GET "/v1beta/models/{*rest}" => models::get_native),
        known!(GET "/v1/key" => key::show),
        keyed!(GET "/v1/usage/{request_id}" => key::receipt),
        admin!(GET "/metrics" => health::metrics),
        admin!(GET "/api/admin/keys" => admin::list_keys),
        admin!(POST "/api/admin/keys" => admin::create_key),
        admin!(GET "/api/admin/keys/{id}" => admin::get_key),
        admin!(PATCH "/api/admin/keys/{id}" => admin::change_key),
        admin!(DELETE "/api/admin/keys/{id}" => admin::revoke_key),
        admin!(POST "/api/admin/keys/{id}/rotate" => admin::rotate_key),
        admin!(GET "/api/admin/users" => admin::list_users),
        admin!(POST "/api/admin/users" => admin::create_user),
        admin!(GET "/api/admin/users/{id}" => admin::get_user),
        admin!(PATCH "/api/admin/users/{id}" => admin::change_user),
        admin!(POST "/api/admin/users/{id}/reset" => admin::reset_user),
        admin!(GET "/api/admin/providers" => admin::list_providers),
        admin!(GET "/api/admin/providers/{id}" => admin::get_provider),
        admin!(PUT "/api/admin/providers/{id}" => admin::put_provider),
        admin!(DELETE "/api/admin/providers/{id}" => admin::delete_provider),
        admin!(POST "/api/admin/providers/{id}/credentials" => admin::add_credential),
        admin!(DELETE "/api/admin/providers/{id}/credentials/{cid}" => admin::delete_credential),
        admin!(POST "/api/admin/providers/{id}/check" => admin::check_provider),
        admin!(GET "/api/admin/models" => admin::list_models),
        admin!(GET "/api/admin/models/{*rest}" => admin::get_model),
        admin!(PUT "/api/admin/models/{*rest}" => admin::put_model),
        admin!(DELETE "/api/admin/models/{*rest}" => admin::delete_model),
        admin!(GET "/api/admin/directory" => admin::directory),
        admin!(GET "/api/admin/vault" => admin::get_vault),
        admin!(POST "/api/admin/vault/rekey" => admin::rekey_vault),
        admin!(GET "/api/admin/users/{id}/terms" => admin::get_terms),
        admin!(PUT "/api/admin/users/{id}/terms" => admin::set_terms),
        admin!(POST "/api/admin/users/{id}/sign-out" => admin::sign_user_out),
        admin!(GET "/api/admin/usage" => admin::usage),
        admin!(GET "/api/admin/teams" => admin::list_teams),
        admin!(POST "/api/admin/teams" => admin::create_team),
        admin!(GET "/api/admin/teams/{id}" => admin::get_team),
        admin!(PATCH "/api/admin/teams/{id}" => admin::change_team),
        admin!(DELETE "/api/admin/teams/{id}" => admin::close_team),
        admin!(PUT "/api/admin/teams/{id}/members/{account_id}" => admin::put_member),
        admin!(DELETE "/api/admin/teams/{id}/members/{account_id}" => admin::remove_member),
        admin!(GET "/api/admin/audit" => admin::audit),
        admin!(GET "/api/admin/settings" => admin::settings),
        admin!(PATCH "/api/admin/settings" => admin::set_settings),
        admin!(GET "/api/admin/health" => admin::health),
        public!(GET "/api/models" => catalog::list),
        public!(GET "/files/{name}" => files::get),
        public!(GET "/healthz" => health::alive),
        public!(GET "/readyz" => health::ready),
        public!(GET "/openapi.json" => openapi::show),
    ]
}

/// Every address of the API: its method, its path with parameters in braces, and whether it takes a
/// key. For the test that knocks at every door.
pub fn addresses() -> Vec<(Method, &'static str, bool)> {
    let keyed = |route: &Route| route.handler.keyed().is_some();
    table().iter().map(|route| (route.method.clone(), route.path, keyed(route))).collect()
}

/// The addresses of the API, found by their path, and behind them the pages of the console.
///
/// Our own table and not a router's, because a call's path is nearly always one of few exact texts,
/// and finding those must cost next to nothing.
pub(crate) struct Routes {
    exact: HashMap<&'static str, Door>,
    /// Paths with parameters, most specific first.
    patterns: Vec<(&'static str, Door)>,
    console: Router,
}

/// Everything an address answers to.
#[derive(Default)]
struct Door(Vec<(Method, Handler)>);

impl Routes {
    pub(crate) fn new(app: &Arc<App>) -> Self {
        let mut exact: HashMap<&'static str, Door> = HashMap::new();
        let mut patterns: BTreeMap<&'static str, Door> = BTreeMap::new();
        for Route { method, path, handler } in table() {
            let door = if path.contains('{') {
                patterns.entry(path).or_default()
            } else {
                exact.entry(path).or_default()
            };
            door.0.push((method, handler));
        }
        let mut patterns: Vec<_> = patterns.into_iter().collect();
        patterns.sort_by_key(|(path, _)| std::cmp::Reverse(path.split('/').count()));
        let console = console::router(app.store.clone(), Arc::clone(app) as Arc<dyn console::Host>);
        Self { exact, patterns, console: console.fallback(nothing_here) }
    }

    /// Answers a request of that id, from that address.
    pub(crate) async fn serve(
        &self,
        app: &Arc<App>,
        id: RequestId,
        peer: SocketAddr,
        mut request: Request<Body>,
    ) -> Response {
        let path = request.uri().path();
        let found = self.exact.get(path).or_else(|| {
            let fits = |(pattern, _): &&(&'static str, Door)| fits(pattern, path);
            self.patterns.iter().find(fits).map(|(_, door)| door)
        });
        match found {
            None => {
                // Only pages look for these; a call is spared the places they are kept in.
                request.extensions_mut().insert(id);
                request.extensions_mut().insert(ConnectInfo(peer));
                match Box::pin(self.console.clone().oneshot(request)).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            }
            Some(door) => match door.handler(request.method()) {
                Some(handler) => run(Arc::clone(app), handler, id, peer, request).await,
                None => wrong_method(&request, &id, &door.allowed()),
            },
        }
    }
}

impl Door {
    /// `HEAD` is answered wherever `GET` is; the body is left out further down.
    fn handler(&self, method: &Method) -> Option<Handler> {
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        self.0.iter().find(|(own, _)| own == method).map(|(_, handler)| *handler)
    }

    fn allowed(&self) -> HeaderValue {
        let mut words: Vec<&str> = self.0.iter().map(|(method, _)| method.as_str()).collect();
        if words.contains(&"GET") {
            words.push("HEAD");
        }
        HeaderValue::from_str(&words.join(", ")).unwrap_or_else(|_| HeaderValue::from_static("GET"))
    }
}

/// Whether a path is of a pattern: `{name}` is one piece that is not empty, `{*rest}` everything
/// that follows.
fn fits(pattern: &str, path: &str) -> bool {
    let mut pieces = path.split('/');
    for want in pattern.split('/') {
        if want.starts_with("{*") {
            return pieces.next().is_some_and(|piece| !piece.is_empty());
        }
        match pieces.next() {
            Some(piece) if want.starts_with('{') && !piece.is_empty() => {}
            Some(piece) if want == piece => {}
            _ => return false,
        }
    }
    pieces.next().is_none()
}

async fn run(
    app: Arc<App>,
    door: Handler,
    id: RequestId,
    peer: SocketAddr,
    request: Request<Body>,
) -> Response {
    let voice = Voice::of(request.uri().path(), request.headers());
    let outcome = match door {
        Handler::Public(handler) => handler(app, request).await,
        Handler::Keyed(door) => {
            return match guard::key_of(&app, request.uri(), request.headers()).await {
                Ok(key) => with_key((&app, &key, &id), voice, door, peer, request).await,
                Err(fault) => refused(fault, voice, &id, request).await,
            };
        }
    };
    outcome.unwrap_or_else(|fault| voice.answer(&fault, &id.0))
}

/// Answers a request of the console's as if it had come with that key.
pub(crate) async fn serve_as(
    app: Arc<App>,
    key: &str,
    peer: SocketAddr,
    request: Request<Body>,
) -> Response {
    let voice = Voice::of(request.uri().path(), request.headers());
    let id = request.extensions().get().cloned().unwrap_or_else(|| RequestId("".into()));
    let fits =
        |route: &Route| route.method == *request.method() && fits(route.path, request.uri().path());
    let door = table().into_iter().find(fits).map(|route| route.handler);
    let key = app.ring.by_id(key).await.ok().filter(|key| key.is_live(app.clock.now()));
    let Some(door) = door.and_then(Handler::keyed) else { return nothing_here(request).await };
    match key {
        Some(key) => with_key((&app, &key, &id), voice, door, peer, request).await,
        None => voice.answer(&Fault::new(Trouble::NoKey, "this key does not work any more"), &id.0),
    }
}

/// Answers a request of the console's for administration, in the name of somebody signed in: the
/// same handlers, rights and notes as for an admin key of theirs.
///
/// The handlers get a stand-in key. It exists for this request alone: its text is dropped here, and
/// it is neither stored nor on the ring, so no request from outside can carry it.
pub(crate) async fn administer(
    app: Arc<App>,
    account: &store::Account,
    request: Request<Body>,
) -> Response {
    let path = request.uri().path();
    let fits = |route: &Route| {
        route.path.starts_with("/api/admin/")
            && route.method == *request.method()
            && fits(route.path, path)
    };
    let door = table().into_iter().find(fits).and_then(|route| route.handler.keyed());
    let Some(door) = door else { return nothing_here(request).await };
    let id = RequestId(app.ids.next(app.clock.now()));
    let key = NewKey { name: "console".to_owned(), cap: None, models: vec![], expires: None };
    let answered = match key.make(&account.id, &app.ring, app.clock.now()) {
        Ok((mut record, _)) => {
            record.scope = KeyScope::Admin;
            let key = app.ring.stand_in(record);
            let allowed = check_scope(&key, door);
            keyed((&app, &key, &id), allowed, door, request).await
        }
        Err(error) => Err(Fault::internal(error.to_string())),
    };
    answered.unwrap_or_else(|fault| Voice::Plain.answer(&fault, &id.0))
}

/// Answers a request whose key is good, and tells what is left of its limits.
async fn with_key(
    (app, key, id): (&Arc<App>, &Arc<Key>, &RequestId),
    voice: Voice,
    door: KeyedHandler,
    peer: SocketAddr,
    request: Request<Body>,
) -> Response {
    let allowed = limits::check_address(app, key, peer, request.headers())
        .and_then(|()| check_scope(key, door));
    let answered = keyed((app, key, id), allowed, door, request).await;
    let mut response = answered.unwrap_or_else(|fault| voice.answer(&fault, &id.0));
    let left = app.pacing.left(key);
    if let Some(origin) = voice.origin() {
        limits::tell(&left, origin, app.clock.now(), response.headers_mut());
    }
    response
}

/// Refuses a key that was made for something else.
fn check_scope(key: &Key, door: KeyedHandler) -> Result<(), Fault> {
    let say = match (door.scope, key.record.scope) {
        (None, KeyScope::Call | KeyScope::Admin)
        | (Some(KeyScope::Call), KeyScope::Call)
        | (Some(KeyScope::Admin), KeyScope::Admin) => return Ok(()),
        (Some(KeyScope::Admin), KeyScope::Call) => {
            "this key has the scope `call` and cannot administrate; make one for it with \
             `portunus keys create --scope admin`"
        }
        (Some(KeyScope::Call), KeyScope::Admin) => {
            "this key has the scope `admin` and cannot make calls; make one for them with \
             `portunus keys create`"
        }
    };
    Err(Fault::new(Trouble::Forbidden, say))
}

/// A request with a good key: from where it may come, within its limits, and once if it says so.
async fn keyed(
    (app, key, id): (&Arc<App>, &Arc<Key>, &RequestId),
    allowed: Result<(), Fault>,
    door: KeyedHandler,
    request: Request<Body>,
) -> Result<Response, Fault> {
    let KeyedHandler { handler, paid, scope: _ } = door;
    let entered = match allowed {
        Ok(()) if paid => {
            // What is shed costs no look at limits, which may ask other nodes, and is not counted.
            app.running.room(app.config().running)?;
            app.pacing.enter(key).await
        }
        Ok(()) => Ok(None),
        Err(fault) => Err(fault),
    };
    let pass = match entered {
        Ok(pass) => pass,
        Err(fault) => {
            drain(request).await;
            return Err(fault);
        }
    };
    let asked = Asked { app: Arc::clone(app), key: Arc::clone(key), id: id.clone(), pass, request };
    if paid && asked.request.headers().contains_key(idempotency::HEADER) {
        // Boxed: the other calls are not to carry it along.
        return Box::pin(idempotency::once(asked, handler)).await;
    }
    handler(asked).await
}

async fn refused(fault: Fault, voice: Voice, id: &RequestId, request: Request<Body>) -> Response {
    drain(request).await;
    voice.answer(&fault, &id.0)
}

/// Reads the rest of a request that is refused, if it is small: a connection that is closed with
/// bytes unread looks to a client like a failure of the network.
async fn drain(request: Request<Body>) {
    const MOST: usize = 256 << 10;
    let reading = axum::body::to_bytes(request.into_body(), MOST);
    let _ = tokio::time::timeout(Duration::from_secs(1), reading).await;
}

fn wrong_method(request: &Request<Body>, id: &RequestId, allowed: &HeaderValue) -> Response {
    let say = format!(
        "{} is not allowed here; allowed: {}",
        request.method(),
        allowed.to_str().unwrap_or_default()
    );
    let voice = Voice::of(request.uri().path(), request.headers());
    let fault = Fault::new(Trouble::NoMethod, say);
    respond::allow(voice.answer(&fault, &id.0), allowed)
}

async fn nothing_here(request: Request<Body>) -> Response {
    let path = request.uri().path();
    let voice = Voice::of(path, request.headers());
    let accept = request.headers().get(http::header::ACCEPT).and_then(|value| value.to_str().ok());
    if matches!(voice, Voice::Plain) && accept.is_some_and(|accept| accept.contains("text/html")) {
        return console::not_found();
    }
    let shown: String = path.chars().take(64).collect();
    let fault =
        Fault::new(Trouble::NoPath, format!("there is nothing at {shown}; check the base address"));
    let id = request.extensions().get::<RequestId>();
    voice.answer(&fault, id.map_or("", |id| &id.0))
}

/// A JSON object read back from a text of our own; empty when it is none.
fn object(text: impl AsRef<[u8]>) -> Map<String, Value> {
    serde_json::from_slice(text.as_ref()).unwrap_or_default()
}

/// Sets fields of an object.
fn set<const N: usize>(object: &mut Map<String, Value>, fields: [(&str, Value); N]) {
    for (name, value) in fields {
        object.insert(name.to_owned(), value);
    }
}

/// A text field of an object; empty when there is none.
fn text<'a>(object: &'a Map<String, Value>, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A JSON answer.
pub(crate) fn json(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The addresses that need no key. Whoever adds one here has thought about it.
    const PUBLIC: [&str; 5] =
        ["/api/models", "/files/{name}", "/healthz", "/readyz", "/openapi.json"];

    #[test]
    fn patterns_take_what_they_say_and_nothing_else() {
        assert!(fits("/v1/responses/{id}/cancel", "/v1/responses/x/cancel"));
        assert!(fits("/v1/models/{*rest}", "/v1/models/a/b:c"));
        for path in ["/v1/responses//cancel", "/v1/responses/x/cancel/", "/v1/responses/x/y"] {
            assert!(!fits("/v1/responses/{id}/cancel", path), "{path}");
        }
        for path in ["/v1/models", "/v1/models/", "/v1/modelsx/a", "//v1/models/a"] {
            assert!(!fits("/v1/models/{*rest}", path), "{path}");
        }
    }

    #[test]
    fn exactly_administration_and_metrics_need_an_admin_key() {
        for route in table() {
            let Some(KeyedHandler { paid, scope, .. }) = route.handler.keyed() else { continue };
            let admin = route.path.starts_with("/api/admin/") || route.path == "/metrics";
            let expected = match route.path {
                "/v1/key" => None,
                _ if admin => Some(KeyScope::Admin),
                _ => Some(KeyScope::Call),
            };
            assert_eq!(scope, expected, "{} {}", route.method, route.path);
            assert!(!paid || scope == Some(KeyScope::Call), "{} {}", route.method, route.path);
        }
    }

    #[test]
    fn only_the_reviewed_addresses_are_public() {
        for route in table() {
            let public = matches!(route.handler, Handler::Public(_));
            assert_eq!(public, PUBLIC.contains(&route.path), "{} {}", route.method, route.path);
        }
    }
}
