//! The route table: every address this gateway answers, with its guard, in one reviewed list.
//!
//! A keyed handler takes the caller's key as an argument, so it cannot be mounted without its
//! guard; a public one cannot get at a key at all.

use axum::body::Body;
use http::header::HeaderValue;
use http::{Method, Request};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::request::{ApiRequest, HandlerFuture};
use crate::state::ApiState;
use crate::{
    admin, catalog, chat, embeddings, files, health, images, key, messages, models, native,
    openapi, responses, task_routes,
};

/// Who may call.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    /// Anyone.
    Public(fn(Arc<ApiState>, Request<Body>) -> HandlerFuture),
    /// Whoever has a good key.
    Keyed(fn(ApiRequest) -> HandlerFuture),
    /// Whoever has a good key, within its limits: what costs money.
    Paid(fn(ApiRequest) -> HandlerFuture),
}

/// One address.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) handler: Handler,
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

macro_rules! paid {
    ($method:ident $path:literal => $handler:path) => {
        Route {
            method: Method::$method,
            path: $path,
            handler: Handler::Paid(|asked| Box::pin($handler(asked))),
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
pub(crate) fn table() -> Vec<Route> {
    vec![
        paid!(POST "/v1/chat/completions" => chat::create),
        paid!(POST "/v1/embeddings" => embeddings::create),
        paid!(POST "/v1/images/generations" => images::create),
        paid!(POST "/v1/images/edits" => images::create),
        keyed!(GET "/v1/images/generations/{id}" => task_routes::get),
        keyed!(GET "/v1/tasks" => task_routes::list),
        keyed!(GET "/v1/tasks/{id}" => task_routes::get),
        keyed!(POST "/v1/tasks/{id}/cancel" => task_routes::cancel),
        keyed!(GET "/v1/webhooks/secret" => task_routes::webhook_secret),
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
        keyed!(GET "/v1/key" => key::show),
        keyed!(GET "/v1/usage/{request_id}" => key::receipt),
        keyed!(GET "/metrics" => health::metrics),
        keyed!(GET "/api/admin/keys" => admin::list_keys),
        keyed!(POST "/api/admin/keys" => admin::create_key),
        keyed!(GET "/api/admin/keys/{id}" => admin::get_key),
        keyed!(PATCH "/api/admin/keys/{id}" => admin::change_key),
        keyed!(DELETE "/api/admin/keys/{id}" => admin::revoke_key),
        keyed!(POST "/api/admin/keys/{id}/rotate" => admin::rotate_key),
        keyed!(GET "/api/admin/users" => admin::list_users),
        keyed!(POST "/api/admin/users" => admin::create_user),
        keyed!(GET "/api/admin/users/{id}" => admin::get_user),
        keyed!(PATCH "/api/admin/users/{id}" => admin::change_user),
        keyed!(POST "/api/admin/users/{id}/reset" => admin::reset_user),
        keyed!(GET "/api/admin/providers" => admin::list_providers),
        keyed!(GET "/api/admin/providers/{id}" => admin::get_provider),
        keyed!(PUT "/api/admin/providers/{id}" => admin::put_provider),
        keyed!(DELETE "/api/admin/providers/{id}" => admin::delete_provider),
        keyed!(POST "/api/admin/providers/{id}/credentials" => admin::add_credential),
        keyed!(DELETE "/api/admin/providers/{id}/credentials/{cid}" => admin::delete_credential),
        keyed!(POST "/api/admin/providers/{id}/check" => admin::check_provider),
        keyed!(GET "/api/admin/models" => admin::list_models),
        keyed!(GET "/api/admin/models/{*rest}" => admin::get_model),
        keyed!(PUT "/api/admin/models/{*rest}" => admin::put_model),
        keyed!(DELETE "/api/admin/models/{*rest}" => admin::delete_model),
        keyed!(GET "/api/admin/directory" => admin::directory),
        keyed!(GET "/api/admin/vault" => admin::get_vault),
        keyed!(POST "/api/admin/vault/rekey" => admin::rekey_vault),
        keyed!(GET "/api/admin/users/{id}/terms" => admin::get_terms),
        keyed!(PUT "/api/admin/users/{id}/terms" => admin::set_terms),
        keyed!(POST "/api/admin/users/{id}/sign-out" => admin::sign_user_out),
        keyed!(GET "/api/admin/usage" => admin::usage),
        keyed!(GET "/api/admin/teams" => admin::list_teams),
        keyed!(POST "/api/admin/teams" => admin::create_team),
        keyed!(GET "/api/admin/teams/{id}" => admin::get_team),
        keyed!(PATCH "/api/admin/teams/{id}" => admin::change_team),
        keyed!(DELETE "/api/admin/teams/{id}" => admin::close_team),
        keyed!(PUT "/api/admin/teams/{id}/members/{account_id}" => admin::put_member),
        keyed!(DELETE "/api/admin/teams/{id}/members/{account_id}" => admin::remove_member),
        keyed!(GET "/api/admin/audit" => admin::audit),
        keyed!(GET "/api/admin/settings" => admin::settings),
        keyed!(PATCH "/api/admin/settings" => admin::set_settings),
        keyed!(GET "/api/admin/health" => admin::health),
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
    let keyed = |route: &Route| match route.handler {
        Handler::Keyed(_) | Handler::Paid(_) => true,
        Handler::Public(_) => false,
    };
    table().iter().map(|route| (route.method.clone(), route.path, keyed(route))).collect()
}

/// The addresses of the API, found by their path.
///
/// Our own table and not a router's: a call's path is nearly always one of a few exact texts, and
/// finding those must cost next to nothing.
pub(crate) struct RouteTable {
    exact: HashMap<&'static str, Door>,
    /// Paths with parameters, most specific first.
    patterns: Vec<(&'static str, Door)>,
}

/// Everything an address answers to.
#[derive(Default)]
pub(crate) struct Door(Vec<(Method, Handler)>);

impl RouteTable {
    pub(crate) fn new() -> Self {
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
        Self { exact, patterns }
    }

    /// The methods of a path; `None` if the API does not serve it.
    pub(crate) fn find(&self, path: &str) -> Option<&Door> {
        self.exact.get(path).or_else(|| {
            let fits = |(pattern, _): &&(&'static str, Door)| fits(pattern, path);
            self.patterns.iter().find(fits).map(|(_, door)| door)
        })
    }
}

impl Door {
    /// `HEAD` is answered wherever `GET` is; the body is left out further down.
    pub(crate) fn handler(&self, method: &Method) -> Option<Handler> {
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        self.0.iter().find(|(own, _)| own == method).map(|(_, handler)| *handler)
    }

    pub(crate) fn allowed(&self) -> HeaderValue {
        let mut words: Vec<&str> = self.0.iter().map(|(method, _)| method.as_str()).collect();
        if words.contains(&"GET") {
            words.push("HEAD");
        }
        HeaderValue::from_str(&words.join(", ")).unwrap_or_else(|_| HeaderValue::from_static("GET"))
    }
}

/// Whether a path is of a pattern: `{name}` is one piece that is not empty, `{*rest}` everything
/// that follows.
pub(crate) fn fits(pattern: &str, path: &str) -> bool {
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
    fn only_the_reviewed_addresses_are_public() {
        for route in table() {
            let public = matches!(route.handler, Handler::Public(_));
            assert_eq!(public, PUBLIC.contains(&route.path), "{} {}", route.method, route.path);
        }
    }
}
