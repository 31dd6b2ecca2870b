//! The route table: every route of the API, with its guard, in one reviewed list.
//!
//! A keyed handler takes the caller's key as an argument, so it cannot be mounted without its
//! guard. A public handler has no access to a key.

use axum::body::Body;
use canon::{ApiError, boxed};
use foldhash::fast::RandomState;
use futures_util::FutureExt as _;
use http::header::HeaderValue;
use http::{Method, Request};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use store::AdminPart;
use transport::ServerReply;

use crate::keyed::{KeyedHandler, RouteNeed};
use crate::request::HandlerFuture;
use crate::state::ApiState;
use crate::{
    admin, agent_routes, cached_contents, catalog, chat, conversations, embeddings, files, health,
    images, key_info, mcp, messages, metrics, models, native, oauth, openapi, responses, scim,
    sessions, task_routes,
};

/// Handler of a route, with the guard in front of it.
#[derive(Clone, Copy)]
pub(crate) enum RouteHandler {
    /// Open to all callers, with limits for each network.
    Public(fn(Arc<ApiState>, Request<Body>) -> HandlerFuture),
    /// Open to all callers without limits: the state of the process, for load balancers.
    Probe(fn(Arc<ApiState>, Request<Body>) -> HandlerFuture),
    /// For identity providers, with limits of their own for each network. The handler checks the token.
    Provisioning(fn(Arc<ApiState>, Request<Body>) -> HandlerFuture),
    /// Requires a valid key of the right scope.
    Keyed(KeyedHandler),
}

impl RouteHandler {
    pub(crate) const fn keyed(self) -> Option<KeyedHandler> {
        match self {
            Self::Public(_) | Self::Probe(_) | Self::Provisioning(_) => None,
            Self::Keyed(handler) => Some(handler),
        }
    }
}

/// Returns what a handler answered as the server sends it.
fn into_reply(answered: Result<impl Into<ServerReply>, ApiError>) -> Result<ServerReply, ApiError> {
    answered.map(Into::into)
}

/// One route.
pub(crate) struct ApiRoute {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) handler: RouteHandler,
}

macro_rules! guarded {
    ($paid:literal, $need:expr, $method:ident $path:literal => $handler:expr) => {
        ApiRoute {
            method: Method::$method,
            path: $path,
            handler: RouteHandler::Keyed(KeyedHandler {
                handler: $handler,
                paid: $paid,
                need: $need,
            }),
        }
    };
}

/// Route that costs nothing, whose handler makes a response.
macro_rules! unpaid {
    ($need:expr, $method:ident $path:literal => $handler:path) => {
        guarded!(false, $need, $method $path => |incoming| {
            Box::pin($handler(incoming).map(into_reply))
        })
    };
}

/// Route for a valid key of any scope: the description of the key itself.
macro_rules! any_key {
    ($($route:tt)*) => { unpaid!(RouteNeed::AnyKey, $($route)*) };
}

/// Route for a key that may read.
macro_rules! read {
    ($($route:tt)*) => { unpaid!(RouteNeed::Read, $($route)*) };
}

/// Route for a key that may call. It costs nothing.
macro_rules! free {
    ($($route:tt)*) => { unpaid!(RouteNeed::Call, $($route)*) };
}

/// Route for a key that may call. It costs money or asks a provider, so rate limits apply.
macro_rules! paid {
    ($method:ident $path:literal => $handler:path) => {
        guarded!(true, RouteNeed::Call, $method $path => |incoming| {
            Box::pin($handler(incoming).map(into_reply))
        })
    };
}

/// Paid route whose handler makes the reply as the server sends it.
macro_rules! relayed {
    ($method:ident $path:literal => $handler:path) => {
        guarded!(true, RouteNeed::Call, $method $path => |incoming| {
            Box::into_pin(boxed(|| $handler(incoming)))
        })
    };
}

/// Route for a key of the scope `admin`, or of that part of it. The handler checks the role of the
/// account.
macro_rules! admin {
    ($part:ident, $($route:tt)*) => {
        unpaid!(RouteNeed::Admin(AdminPart::$part), $($route)*)
    };
}

macro_rules! public {
    ($method:ident $path:literal => $handler:path) => {
        ApiRoute {
            method: Method::$method,
            path: $path,
            handler: RouteHandler::Public(|app, request| {
                Box::pin($handler(app, request).map(into_reply))
            }),
        }
    };
}

macro_rules! probe {
    ($method:ident $path:literal => $handler:path) => {
        ApiRoute {
            method: Method::$method,
            path: $path,
            handler: RouteHandler::Probe(|app, request| {
                Box::pin($handler(app, request).map(into_reply))
            }),
        }
    };
}

macro_rules! provisioning {
    ($method:ident $path:literal => $handler:path) => {
        ApiRoute {
            method: Method::$method,
            path: $path,
            handler: RouteHandler::Provisioning(|app, request| {
                Box::pin($handler(app, request).map(into_reply))
            }),
        }
    };
}

/// Lists every route of the API. The console has its own list in `console::routes`.
pub(crate) fn route_list() -> Vec<ApiRoute> {
    vec![
        relayed!(POST "/v1/chat/completions" => chat::create),
        paid!(POST "/v1/embeddings" => embeddings::create),
        paid!(POST "/v1/images/generations" => images::create),
        paid!(POST "/v1/images/edits" => images::create),
        read!(GET "/v1/images/generations/{id}" => task_routes::get),
        read!(GET "/v1/tasks" => task_routes::list),
        read!(GET "/v1/tasks/{id}" => task_routes::get),
        free!(POST "/v1/tasks/{id}/cancel" => task_routes::cancel),
        free!(GET "/v1/webhooks/secret" => task_routes::webhook_secret),
        relayed!(POST "/v1/messages" => messages::create),
        paid!(POST "/v1/messages/count_tokens" => messages::count),
        relayed!(POST "/v1/responses" => responses::create),
        free!(GET "/v1/responses" => responses::upgrade),
        paid!(POST "/v1/responses/input_tokens" => responses::input_tokens),
        paid!(POST "/v1/responses/compact" => responses::compact),
        read!(GET "/v1/responses/{id}" => responses::get),
        free!(DELETE "/v1/responses/{id}" => responses::delete),
        free!(POST "/v1/responses/{id}/cancel" => responses::cancel),
        read!(GET "/v1/responses/{id}/input_items" => responses::input_items),
        free!(POST "/v1/conversations" => conversations::create),
        read!(GET "/v1/conversations/{id}" => conversations::get),
        free!(POST "/v1/conversations/{id}" => conversations::update),
        free!(DELETE "/v1/conversations/{id}" => conversations::delete),
        free!(POST "/v1/conversations/{id}/items" => conversations::add_items),
        read!(GET "/v1/conversations/{id}/items" => conversations::list_items),
        read!(GET "/v1/conversations/{id}/items/{item}" => conversations::get_item),
        free!(DELETE "/v1/conversations/{id}/items/{item}" => conversations::delete_item),
        relayed!(POST "/v1beta/models/{*rest}" => native::call),
        relayed!(POST "/v1/models/{*rest}" => native::call),
        paid!(POST "/v1beta/cachedContents" => cached_contents::create),
        read!(GET "/v1beta/cachedContents" => cached_contents::list),
        read!(GET "/v1beta/cachedContents/{id}" => cached_contents::get),
        free!(PATCH "/v1beta/cachedContents/{id}" => cached_contents::change),
        free!(DELETE "/v1beta/cachedContents/{id}" => cached_contents::delete),
        paid!(POST "/v1/cachedContents" => cached_contents::create),
        read!(GET "/v1/cachedContents" => cached_contents::list),
        read!(GET "/v1/cachedContents/{id}" => cached_contents::get),
        free!(PATCH "/v1/cachedContents/{id}" => cached_contents::change),
        free!(DELETE "/v1/cachedContents/{id}" => cached_contents::delete),
        free!(POST "/upload/v1beta/files" => native::upload),
        free!(POST "/v1beta/files" => native::upload),
        read!(GET "/v1/models" => models::list),
        read!(GET "/v1/models/{*rest}" => models::get),
        read!(GET "/v1beta/models" => models::list_native),
        read!(GET "/v1beta/models/{*rest}" => models::get_native),
        any_key!(GET "/v1/key" => key_info::show),
        free!(POST "/mcp" => mcp::call),
        free!(POST "/mcp/{server}" => mcp::call),
        read!(GET "/v1/usage/{request_id}" => key_info::receipt),
        read!(GET "/v1/sessions" => sessions::list),
        read!(GET "/v1/sessions/{id}" => sessions::show),
        admin!(Metrics, GET "/metrics" => metrics::metrics),
        admin!(Keys, GET "/api/admin/keys" => admin::list_keys),
        admin!(Keys, POST "/api/admin/keys" => admin::create_key),
        admin!(Keys, GET "/api/admin/keys/{id}" => admin::get_key),
        admin!(Keys, PATCH "/api/admin/keys/{id}" => admin::change_key),
        admin!(Keys, DELETE "/api/admin/keys/{id}" => admin::revoke_key),
        admin!(Keys, POST "/api/admin/keys/{id}/rotate" => admin::rotate_key),
        admin!(Users, GET "/api/admin/users" => admin::list_users),
        admin!(Users, POST "/api/admin/users" => admin::create_user),
        admin!(Users, GET "/api/admin/users/{id}" => admin::get_user),
        admin!(Users, PATCH "/api/admin/users/{id}" => admin::change_user),
        admin!(Users, DELETE "/api/admin/users/{id}" => admin::erase_user),
        admin!(Users, POST "/api/admin/users/{id}/reset" => admin::reset_user),
        admin!(Providers, GET "/api/admin/providers" => admin::list_providers),
        admin!(Providers, GET "/api/admin/providers/{id}" => admin::get_provider),
        admin!(Providers, PUT "/api/admin/providers/{id}" => admin::put_provider),
        admin!(Providers, DELETE "/api/admin/providers/{id}" => admin::delete_provider),
        admin!(Providers, POST "/api/admin/providers/{id}/credentials" => admin::add_credential),
        admin!(Providers, DELETE "/api/admin/providers/{id}/credentials/{cid}" => admin::delete_credential),
        admin!(Providers, POST "/api/admin/providers/{id}/check" => admin::check_provider),
        admin!(Models, GET "/api/admin/models" => admin::list_models),
        admin!(Models, GET "/api/admin/models/{*rest}" => admin::get_model),
        admin!(Models, PUT "/api/admin/models/{*rest}" => admin::put_model),
        admin!(Models, DELETE "/api/admin/models/{*rest}" => admin::delete_model),
        admin!(Models, GET "/api/admin/directory" => admin::directory),
        admin!(Vault, GET "/api/admin/vault" => admin::get_vault),
        admin!(Vault, POST "/api/admin/vault/rekey" => admin::rekey_vault),
        admin!(Users, GET "/api/admin/users/{id}/terms" => admin::get_terms),
        admin!(Users, PUT "/api/admin/users/{id}/terms" => admin::set_terms),
        admin!(Users, GET "/api/admin/users/{id}/alerts" => admin::get_alert_settings),
        admin!(Users, PATCH "/api/admin/users/{id}/alerts" => admin::change_alert_settings),
        admin!(Teams, GET "/api/admin/teams/{id}/alerts" => admin::get_alert_settings),
        admin!(Teams, PATCH "/api/admin/teams/{id}/alerts" => admin::change_alert_settings),
        admin!(Settings, GET "/api/admin/settings/alerts" => admin::get_gateway_alerts),
        admin!(Settings, PATCH "/api/admin/settings/alerts" => admin::change_gateway_alerts),
        admin!(Usage, GET "/api/admin/alerts" => admin::list_alerts),
        admin!(Users, POST "/api/admin/users/{id}/sign-out" => admin::sign_user_out),
        admin!(Usage, GET "/api/admin/usage" => admin::usage),
        admin!(Usage, GET "/api/admin/statements/{month}" => admin::statement),
        admin!(Teams, GET "/api/admin/teams" => admin::list_teams),
        admin!(Teams, POST "/api/admin/teams" => admin::create_team),
        admin!(Teams, GET "/api/admin/teams/{id}" => admin::get_team),
        admin!(Teams, PATCH "/api/admin/teams/{id}" => admin::change_team),
        admin!(Teams, DELETE "/api/admin/teams/{id}" => admin::close_team),
        admin!(Teams, PUT "/api/admin/teams/{id}/members/{account_id}" => admin::put_member),
        admin!(Teams, DELETE "/api/admin/teams/{id}/members/{account_id}" => admin::remove_member),
        admin!(Audit, GET "/api/admin/audit" => admin::audit),
        admin!(Settings, GET "/api/admin/settings" => admin::settings),
        admin!(Settings, PATCH "/api/admin/settings" => admin::set_settings),
        admin!(Metrics, GET "/api/admin/health" => admin::health),
        public!(GET "/api/models" => catalog::list),
        public!(GET "/files/{name}" => files::get),
        probe!(GET "/healthz" => health::alive),
        probe!(GET "/readyz" => health::ready),
        public!(GET "/openapi.json" => openapi::show),
        read!(GET "/managed/settings" => agent_routes::managed_settings),
        read!(GET "/api/oauth/usage" => agent_routes::usage),
        free!(POST "/v1/metrics" => agent_routes::telemetry),
        free!(POST "/v1/logs" => agent_routes::telemetry),
        free!(POST "/v1/traces" => agent_routes::telemetry),
        admin!(Settings, GET "/api/admin/settings/managed" => admin::get_managed_settings),
        admin!(Settings, PUT "/api/admin/settings/managed" => admin::put_managed_settings),
        admin!(Settings, DELETE "/api/admin/settings/managed" => admin::delete_managed_settings),
        admin!(Teams, GET "/api/admin/teams/{id}/managed-settings" => admin::get_managed_settings),
        admin!(Teams, PUT "/api/admin/teams/{id}/managed-settings" => admin::put_managed_settings),
        admin!(Teams, DELETE "/api/admin/teams/{id}/managed-settings" => admin::delete_managed_settings),
        public!(GET "/.well-known/oauth-authorization-server" => oauth::metadata),
        public!(POST "/oauth/device_authorization" => oauth::device_authorization),
        public!(POST "/oauth/token" => oauth::token),
        public!(POST "/oauth/revoke" => oauth::revoke),
        admin!(Users, GET "/api/admin/scim/tokens" => admin::list_scim_tokens),
        admin!(Users, POST "/api/admin/scim/tokens" => admin::create_scim_token),
        admin!(Users, DELETE "/api/admin/scim/tokens/{id}" => admin::revoke_scim_token),
        provisioning!(GET "/scim/v2/{*rest}" => scim::serve),
        provisioning!(POST "/scim/v2/{*rest}" => scim::serve),
        provisioning!(PUT "/scim/v2/{*rest}" => scim::serve),
        provisioning!(PATCH "/scim/v2/{*rest}" => scim::serve),
        provisioning!(DELETE "/scim/v2/{*rest}" => scim::serve),
        public!(GET "/.well-known/oauth-protected-resource" => mcp::metadata),
        public!(GET "/.well-known/oauth-protected-resource/{*path}" => mcp::metadata),
    ]
}

/// Lists every route as its method, its path with parameters in braces, and true if it takes a key.
/// A test requests each of them.
pub fn route_summaries() -> Vec<(Method, &'static str, bool)> {
    let keyed = |route: &ApiRoute| route.handler.keyed().is_some();
    route_list().iter().map(|route| (route.method.clone(), route.path, keyed(route))).collect()
}

/// Routes of the API by path.
///
/// This is not a general router, because nearly all calls use one of a few exact paths, and a hash
/// lookup finds those fastest.
pub(crate) struct RouteTable {
    exact: HashMap<&'static str, MethodTable, RandomState>,
    /// Paths with parameters, most specific first.
    patterns: Vec<(&'static str, MethodTable)>,
}

/// Handlers of one path by method.
#[derive(Default)]
pub(crate) struct MethodTable(Vec<(Method, RouteHandler)>);

impl RouteTable {
    pub(crate) fn new() -> Self {
        let mut exact: HashMap<&'static str, MethodTable, RandomState> = HashMap::default();
        let mut patterns: BTreeMap<&'static str, MethodTable> = BTreeMap::new();
        for ApiRoute { method, path, handler } in route_list() {
            let methods = if path.contains('{') {
                patterns.entry(path).or_default()
            } else {
                exact.entry(path).or_default()
            };
            methods.0.push((method, handler));
        }
        let mut patterns: Vec<_> = patterns.into_iter().collect();
        patterns.sort_by_key(|(path, _)| std::cmp::Reverse(path.split('/').count()));
        Self { exact, patterns }
    }

    /// Returns the methods of a path; `None` if the API does not serve it.
    pub(crate) fn find(&self, path: &str) -> Option<&MethodTable> {
        self.exact.get(path).or_else(|| {
            let fits = |(pattern, _): &&(&'static str, MethodTable)| path_matches(pattern, path);
            self.patterns.iter().find(fits).map(|(_, methods)| methods)
        })
    }
}

impl MethodTable {
    /// Returns the handler of a method. `HEAD` uses the handler of `GET`, and the server removes
    /// the body (RFC 9110, section 9.3.2).
    pub(crate) fn handler(&self, method: &Method) -> Option<RouteHandler> {
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        self.0.iter().find(|(own, _)| own == method).map(|(_, handler)| *handler)
    }

    pub(crate) fn allow_header(&self) -> HeaderValue {
        let mut words: Vec<&str> = self.0.iter().map(|(method, _)| method.as_str()).collect();
        if words.contains(&"GET") {
            words.push("HEAD");
        }
        HeaderValue::from_str(&words.join(", ")).unwrap_or_else(|_| HeaderValue::from_static("GET"))
    }
}

/// Returns true if a path matches a pattern. `{name}` matches one segment that is not empty,
/// `{*rest}` matches the rest of the path.
pub(crate) fn path_matches(pattern: &str, path: &str) -> bool {
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

    /// Routes without a key. A new one needs a review.
    const PUBLIC: &[&str] = &[
        "/api/models",
        "/files/{name}",
        "/healthz",
        "/readyz",
        "/openapi.json",
        "/.well-known/oauth-authorization-server",
        "/oauth/device_authorization",
        "/oauth/token",
        "/oauth/revoke",
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/{*path}",
        "/scim/v2/{*rest}",
    ];

    #[test]
    fn patterns_match_exactly() {
        assert!(path_matches("/v1/responses/{id}/cancel", "/v1/responses/x/cancel"));
        assert!(path_matches("/v1/models/{*rest}", "/v1/models/a/b:c"));
        for path in ["/v1/responses//cancel", "/v1/responses/x/cancel/", "/v1/responses/x/y"] {
            assert!(!path_matches("/v1/responses/{id}/cancel", path), "{path}");
        }
        for path in ["/v1/models", "/v1/models/", "/v1/modelsx/a", "//v1/models/a"] {
            assert!(!path_matches("/v1/models/{*rest}", path), "{path}");
        }
    }

    /// Rows that a key for reading alone may use. A new one needs a review.
    const READ: &[&str] = &[
        "/v1/images/generations/{id}",
        "/v1/tasks",
        "/v1/tasks/{id}",
        "/v1/responses/{id}",
        "/v1/responses/{id}/input_items",
        "/v1/conversations/{id}",
        "/v1/conversations/{id}/items",
        "/v1/conversations/{id}/items/{item}",
        "/v1/models",
        "/v1/models/{*rest}",
        "/v1beta/models",
        "/v1beta/models/{*rest}",
        "/v1beta/cachedContents",
        "/v1beta/cachedContents/{id}",
        "/v1/cachedContents",
        "/v1/cachedContents/{id}",
        "/v1/usage/{request_id}",
        "/v1/sessions",
        "/v1/sessions/{id}",
        "/managed/settings",
        "/api/oauth/usage",
    ];

    #[test]
    fn exactly_administration_and_metrics_need_an_admin_key() {
        for route in route_list() {
            let Some(KeyedHandler { paid, need, .. }) = route.handler.keyed() else { continue };
            let row = format!("{} {}", route.method, route.path);
            let part = match route.path.strip_prefix("/api/admin/") {
                Some("health") => Some("metrics"),
                Some("directory") => Some("models"),
                Some("alerts" | "statements/{month}") => Some("usage"),
                Some("scim/tokens" | "scim/tokens/{id}") => Some("users"),
                Some(rest) => rest.split('/').next(),
                None => (route.path == "/metrics").then_some("metrics"),
            };
            let reads = READ.contains(&route.path) && route.method == Method::GET;
            let expected = match part {
                Some(part) => RouteNeed::Admin(AdminPart::by_word(part).unwrap()),
                None if route.path == "/v1/key" => RouteNeed::AnyKey,
                None if reads => RouteNeed::Read,
                None => RouteNeed::Call,
            };
            assert_eq!(need, expected, "{row}");
            assert!(!paid || need == RouteNeed::Call, "{row}");
        }
    }

    #[test]
    fn only_reviewed_routes_are_public() {
        for route in route_list() {
            let public = route.handler.keyed().is_none();
            assert_eq!(public, PUBLIC.contains(&route.path), "{} {}", route.method, route.path);
            let unlimited = matches!(route.handler, RouteHandler::Probe(_));
            assert_eq!(unlimited, ["/healthz", "/readyz"].contains(&route.path), "{}", route.path);
        }
    }
}
