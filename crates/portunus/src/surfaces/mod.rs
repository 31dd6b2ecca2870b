//! The route table: every address this gateway answers, with its guard, in one reviewed list.
//!
//! A keyed handler takes the caller's key as an argument, so it cannot be mounted without its
//! guard; a public one cannot get at a key at all.

mod catalog;
mod chat;
mod count;
mod embeddings;
mod health;
mod key;
mod messages;
mod models;
mod native;
mod query;
mod responses;
mod threads;

pub(crate) use health::metrics_text;
pub(crate) use key::write as write_entry;
pub(crate) use models::unknown as unknown_model;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use canon::{Fault, Trouble};
use futures_util::future::BoxFuture;
use http::header::HeaderValue;
use http::{Method, Request};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::app::App;
use crate::guard;
use crate::keys::Key;
use crate::respond::{self, Voice};

/// A request's id, made when it arrives.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) Arc<str>);

/// What a keyed handler is given.
pub(crate) struct Asked {
    pub(crate) app: Arc<App>,
    pub(crate) key: Arc<Key>,
    pub(crate) id: RequestId,
    pub(crate) request: Request<Body>,
}

type Answered = BoxFuture<'static, Result<Response, Fault>>;

/// Who may call.
#[derive(Clone, Copy)]
enum Handler {
    /// Anyone.
    Public(fn(Arc<App>, Request<Body>) -> Answered),
    /// Whoever has a good key.
    Keyed(fn(Asked) -> Answered),
}

/// One address.
struct Route {
    method: Method,
    path: &'static str,
    handler: Handler,
}

macro_rules! keyed {
    ($method:ident $path:literal => $handler:path) => {
        Route {
            method: Method::$method,
            path: $path,
            handler: Handler::Keyed(|asked| Box::pin($handler(asked))),
        }
    };
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
        keyed!(POST "/v1/chat/completions" => chat::create),
        keyed!(POST "/v1/embeddings" => embeddings::create),
        keyed!(POST "/v1/messages" => messages::create),
        keyed!(POST "/v1/messages/count_tokens" => messages::count),
        keyed!(POST "/v1/responses" => responses::create),
        keyed!(GET "/v1/responses" => responses::upgrade),
        keyed!(POST "/v1/responses/input_tokens" => responses::input_tokens),
        keyed!(POST "/v1/responses/compact" => responses::compact),
        keyed!(GET "/v1/responses/{id}" => responses::get),
        keyed!(DELETE "/v1/responses/{id}" => responses::delete),
        keyed!(POST "/v1/responses/{id}/cancel" => responses::cancel),
        keyed!(GET "/v1/responses/{id}/input_items" => responses::input_items),
        keyed!(POST "/v1beta/models/{*rest}" => native::call),
        keyed!(POST "/v1/models/{*rest}" => native::call),
        keyed!(POST "/upload/v1beta/files" => native::upload),
        keyed!(POST "/v1beta/files" => native::upload),
        keyed!(GET "/v1/models" => models::list),
        keyed!(GET "/v1/models/{*rest}" => models::get),
        keyed!(GET "/v1beta/models" => models::list_native),
        keyed!(GET "/v1beta/models/{*rest}" => models::get_native),
        keyed!(GET "/v1/key" => key::show),
        keyed!(GET "/v1/usage/{request_id}" => key::receipt),
        keyed!(GET "/metrics" => health::metrics),
        public!(GET "/api/models" => catalog::list),
        public!(GET "/healthz" => health::alive),
        public!(GET "/readyz" => health::ready),
    ]
}

/// Every address of the API: its method, its path with parameters in braces, and whether it takes a
/// key. For the test that knocks at every door.
pub fn addresses() -> Vec<(Method, &'static str, bool)> {
    let keyed = |route: &Route| matches!(route.handler, Handler::Keyed(_));
    table().iter().map(|route| (route.method.clone(), route.path, keyed(route))).collect()
}

/// The routes of the API and of the console.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let mut paths: BTreeMap<&'static str, (MethodRouter, Vec<Method>)> = BTreeMap::new();
    for Route { method, path, handler } in table() {
        let Ok(filter) = MethodFilter::try_from(method.clone()) else { continue };
        let app = Arc::clone(app);
        let serve = move |request: Request<Body>| run(Arc::clone(&app), handler, request);
        let (methods, known) = paths.entry(path).or_default();
        *methods = std::mem::take(methods).merge(on(filter, serve));
        known.push(method);
    }
    let mut router = Router::new();
    for (path, (methods, known)) in paths {
        let allowed = allowed(&known);
        let refuse = move |request: Request<Body>| {
            let allowed = allowed.clone();
            async move { wrong_method(&request, &allowed) }
        };
        router = router.route(path, methods.fallback(refuse));
    }
    let console = console::router(app.store.clone(), Arc::clone(app) as Arc<dyn console::Host>);
    router.merge(console).fallback(nothing_here)
}

fn allowed(methods: &[Method]) -> HeaderValue {
    let mut words: Vec<&str> = methods.iter().map(Method::as_str).collect();
    if words.contains(&"GET") {
        words.push("HEAD");
    }
    HeaderValue::from_str(&words.join(", ")).unwrap_or_else(|_| HeaderValue::from_static("GET"))
}

async fn run(app: Arc<App>, handler: Handler, request: Request<Body>) -> Response {
    let id = request_id(&request);
    let voice = Voice::of(request.uri().path(), request.headers());
    let outcome = match handler {
        Handler::Public(handler) => handler(app, request).await,
        Handler::Keyed(handler) => {
            match guard::key_of(&app, request.uri(), request.headers()).await {
                Ok(key) => handler(Asked { app, key, id: id.clone(), request }).await,
                Err(fault) => {
                    drain(request).await;
                    Err(fault)
                }
            }
        }
    };
    outcome.unwrap_or_else(|fault| voice.answer(&fault, &id.0))
}

/// Reads the rest of a request that is refused, if it is small: a connection that is closed with
/// bytes unread looks to a client like a failure of the network.
async fn drain(request: Request<Body>) {
    const MOST: usize = 256 << 10;
    let reading = axum::body::to_bytes(request.into_body(), MOST);
    let _ = tokio::time::timeout(Duration::from_secs(1), reading).await;
}

fn request_id(request: &Request<Body>) -> RequestId {
    request.extensions().get().cloned().unwrap_or_else(|| RequestId(Arc::from("")))
}

fn wrong_method(request: &Request<Body>, allowed: &HeaderValue) -> Response {
    let say = format!(
        "{} is not allowed here; allowed: {}",
        request.method(),
        allowed.to_str().unwrap_or_default()
    );
    let voice = Voice::of(request.uri().path(), request.headers());
    let fault = Fault::new(Trouble::NoMethod, say);
    respond::allow(voice.answer(&fault, &request_id(request).0), allowed)
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
    voice.answer(&fault, &request_id(&request).0)
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
    const PUBLIC: [&str; 3] = ["/api/models", "/healthz", "/readyz"];

    #[test]
    fn only_the_reviewed_addresses_are_public() {
        for route in table() {
            let public = matches!(route.handler, Handler::Public(_));
            assert_eq!(public, PUBLIC.contains(&route.path), "{} {}", route.method, route.path);
        }
    }
}
