//! Every route of the console with its guard. The router is built from this list.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::response::IntoResponse;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::Method;
use store::Store;
use tower_http::csrf::{CsrfLayer, ProtectionError};

use crate::page_error::PageError;
use crate::pages::admin::{
    audit, gateway_alerts, managed_settings, model as price, models as priced, person, provider,
    provider_form, providers, settings, system,
};
use crate::pages::{
    account, activity, agents, alerts, authorize, confirm, device, front, identity, key_list, keys,
    login, mcp_servers, members, model, models, overview, people, playground, receipt, reference,
    reset, revoke_keys, second_step, sessions, setup, signup, statements, team, teams,
};
use crate::state::ConsoleState;
use crate::{ConsoleHost, assets, error_page, form, guard, layout, links, urls};

/// Access rule of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    /// Open to everyone.
    Public,
    /// Signed-in users; others are redirected to the sign-in page.
    Session,
    /// Signed-in users who signed in or proved their identity in the last minutes; others are
    /// redirected to the page that asks for a proof. For actions that a browser somebody left open
    /// must not be enough for.
    Proof,
    /// Holders of the one-time setup token, as long as one exists; others get a 404.
    Setup,
}

/// One route of the console.
#[derive(Clone, Debug)]
pub struct PageRoute {
    /// Method; `GET` also answers `HEAD`.
    pub method: Method,
    /// Path in the router's syntax.
    pub path: &'static str,
    /// Access rule.
    pub guard: Guard,
    /// False for a `GET` that only leads back from a form that was reloaded.
    is_page: bool,
    serve: fn(MethodFilter) -> MethodRouter<Arc<ConsoleState>>,
}

macro_rules! route {
    ($guard:ident BACK $path:literal => $handler:path) => {
        PageRoute { is_page: false, ..route!($guard GET $path => $handler) }
    };
    ($guard:ident $method:ident $path:literal => $handler:path) => {
        PageRoute {
            method: Method::$method,
            path: $path,
            guard: Guard::$guard,
            is_page: true,
            serve: |filter| on(filter, $handler),
        }
    };
}

static ROUTES: [PageRoute; 134] = [
    route!(Public  GET  "/" => front::show),
    route!(Public  GET  "/models" => models::show),
    route!(Public  GET  "/models/{*id}" => model::show),
    route!(Public  GET  "/docs" => reference::show),
    route!(Public  GET  "/assets/{name}" => assets::serve),
    route!(Public  GET  "/login" => login::show),
    route!(Public  POST "/login" => login::sign_in),
    route!(Session POST "/logout" => login::sign_out),
    route!(Public  GET  "/login/second" => second_step::show),
    route!(Public  POST "/login/second" => second_step::submit_code),
    route!(Public  POST "/login/second/passkey" => second_step::submit_passkey),
    route!(Public  POST "/login/second/passkey/begin" => second_step::begin_passkey),
    route!(Public  POST "/login/passkey" => second_step::passkey_sign_in),
    route!(Public  POST "/login/passkey/begin" => second_step::begin_passkey_sign_in),
    route!(Public  POST "/auth/{identity}" => identity::begin),
    route!(Public  GET  "/auth/{identity}/callback" => identity::callback),
    route!(Public  GET  "/link/{token}" => links::open),
    route!(Public  GET  "/signup" => signup::show),
    route!(Public  POST "/signup" => signup::send),
    route!(Public  GET  "/signup/new" => signup::new_account_page),
    route!(Public  POST "/signup/new" => signup::create),
    route!(Public  GET  "/reset" => reset::show),
    route!(Public  POST "/reset" => reset::send),
    route!(Public  GET  "/reset/new" => reset::new_password_page),
    route!(Public  POST "/reset/new" => reset::change),
    route!(Public  GET  "/confirm" => confirm::show),
    route!(Public  POST "/confirm" => confirm::confirm),
    route!(Setup   GET  "/console/setup/{token}" => setup::show),
    route!(Setup   POST "/console/setup/{token}" => setup::claim),
    route!(Session GET  "/console" => overview::show),
    route!(Session GET  "/console/activity" => activity::show),
    route!(Session GET  "/console/activity.csv" => activity::csv),
    route!(Session GET  "/console/alerts" => alerts::show),
    route!(Session POST "/console/alerts" => alerts::change),
    route!(Session GET  "/console/sessions" => sessions::show),
    route!(Session GET  "/console/statements" => statements::show),
    route!(Session GET  "/console/statements.csv" => statements::csv),
    route!(Session GET  "/console/agents" => agents::show),
    route!(Session GET  "/console/mcp" => mcp_servers::show),
    route!(Session GET  "/console/mcp/callback" => mcp_servers::callback),
    route!(Session POST "/console/mcp/{server}/connect" => mcp_servers::connect),
    route!(Session POST "/console/mcp/{server}/disconnect" => mcp_servers::disconnect),
    // The addresses of earlier versions.
    route!(Session GET  "/console/usage" => activity::moved),
    route!(Session GET  "/console/calls" => activity::moved),
    route!(Session GET  "/console/calls.csv" => activity::moved),
    route!(Session GET  "/console/calls/{id}" => receipt::show),
    route!(Session GET  "/console/playground" => playground::show),
    route!(Session GET  "/console/playground/call/{*path}" => playground::call),
    route!(Session POST "/console/playground/call/{*path}" => playground::call),
    route!(Session GET  "/console/keys" => key_list::show),
    route!(Session POST "/console/keys" => keys::create),
    route!(Session BACK "/console/keys/revoke" => revoke_keys::redirect_back),
    route!(Session POST "/console/keys/revoke" => revoke_keys::revoke),
    route!(Session GET  "/console/keys/new" => keys::new_form),
    route!(Session GET  "/console/keys/{id}/edit" => keys::edit),
    route!(Session POST "/console/keys/{id}/edit" => keys::change),
    route!(Session GET  "/console/keys/{id}/rotate" => keys::rotate_form),
    route!(Session POST "/console/keys/{id}/rotate" => keys::rotate),
    route!(Session GET  "/console/keys/{id}/revoke" => keys::revoke_form),
    route!(Session POST "/console/keys/{id}/revoke" => keys::revoke),
    route!(Session GET  "/console/account" => account::show),
    route!(Session POST "/console/account/password" => account::password::change),
    route!(Session BACK "/console/account/password" => account::redirect_back),
    route!(Session POST "/console/account/password/link" => account::password::link),
    route!(Proof   POST "/console/account/email" => account::email::change),
    route!(Session BACK "/console/account/email" => account::redirect_back),
    route!(Session POST "/console/account/zone" => account::zone::choose),
    route!(Session BACK "/console/account/zone" => account::redirect_back),
    route!(Session POST "/console/account/sessions/end" => account::end_sessions),
    route!(Session GET  "/console/account/prove" => account::prove::proof_form),
    route!(Session POST "/console/account/prove" => account::prove::submit),
    route!(Session POST "/console/account/prove/passkey" => account::prove::passkey),
    route!(Session POST "/console/account/prove/passkey/begin" => account::prove::begin),
    route!(Proof   GET  "/console/account/totp" => account::totp::new_form),
    route!(Proof   POST "/console/account/totp" => account::totp::add),
    route!(Proof   POST "/console/account/recovery" => account::totp::recovery),
    route!(Proof   POST "/console/account/passkeys" => account::passkeys::add),
    route!(Proof   POST "/console/account/passkeys/begin" => account::passkeys::begin),
    route!(Proof   POST "/console/account/factors/{id}/remove" => account::remove_factor),
    route!(Proof   POST "/console/account/identities/remove" => account::identities::remove),
    route!(Proof   POST "/console/account/identities/{identity}" => account::identities::link),
    route!(Session GET  "/console/teams" => teams::show),
    route!(Session POST "/console/teams" => teams::create),
    route!(Session GET  "/console/teams/{id}" => team::show),
    route!(Proof   POST "/console/teams/{id}" => team::change),
    route!(Proof   POST "/console/teams/{id}/close" => team::close),
    route!(Proof   POST "/console/teams/{id}/open" => team::open),
    route!(Session POST "/console/teams/{id}/members" => members::add),
    route!(Session POST "/console/teams/{id}/members/{member}" => members::change),
    route!(Session GET  "/console/teams/{id}/members/{member}/remove" => members::remove_form),
    route!(Session POST "/console/teams/{id}/members/{member}/remove" => members::remove),
    route!(Session GET  "/console/people" => people::show),
    route!(Proof   POST "/console/people/invites" => people::invite),
    route!(Proof   POST "/console/people/invites/{id}/revoke" => people::revoke),
    route!(Session GET  "/console/people/{id}" => person::show),
    route!(Proof   POST "/console/people/{id}/role" => person::role),
    route!(Proof   POST "/console/people/{id}/lock" => person::lock),
    route!(Proof   POST "/console/people/{id}/terms" => person::terms),
    route!(Proof   POST "/console/people/{id}/reset" => person::reset),
    route!(Proof   POST "/console/people/{id}/sign-out" => person::sign_out),
    route!(Session GET  "/console/providers" => providers::show),
    route!(Proof   POST "/console/providers" => provider_form::add),
    route!(Session GET  "/console/providers/new" => provider_form::new_form),
    route!(Session GET  "/console/providers/{id}" => provider::show),
    route!(Proof   POST "/console/providers/{id}" => provider::change),
    route!(Session BACK "/console/providers/{id}/check" => provider::redirect_back),
    route!(Proof   POST "/console/providers/{id}/check" => provider::check),
    route!(Proof   POST "/console/providers/{id}/remove" => provider::remove),
    route!(Session BACK "/console/providers/{id}/credentials" => provider::redirect_back),
    route!(Proof   POST "/console/providers/{id}/credentials" => provider::add_credential),
    route!(Proof   POST "/console/providers/{id}/credentials/{credential}/remove" => provider::remove_credential),
    route!(Session GET  "/console/models" => priced::show),
    route!(Proof   POST "/console/models" => price::add),
    route!(Session GET  "/console/models/new" => price::new_form),
    route!(Session GET  "/console/models/edit" => price::show),
    route!(Proof   POST "/console/models/edit" => price::change),
    route!(Proof   POST "/console/models/remove" => price::remove),
    route!(Session GET  "/console/settings" => settings::show),
    route!(Proof   POST "/console/settings" => settings::change),
    route!(Session GET  "/console/settings/alerts" => gateway_alerts::show),
    route!(Proof   POST "/console/settings/alerts" => gateway_alerts::change),
    route!(Session BACK "/console/settings/rekey" => settings::redirect_back),
    route!(Proof   POST "/console/settings/rekey" => settings::rekey),
    route!(Session GET  "/console/audit" => audit::show),
    route!(Session GET  "/console/audit.csv" => audit::csv),
    route!(Session GET  "/console/system" => system::show),
    route!(Session GET  "/console/managed-settings" => managed_settings::show),
    route!(Proof   POST "/console/managed-settings" => managed_settings::change),
    route!(Public  GET  "/device" => device::open),
    route!(Session GET  "/console/device" => device::show),
    route!(Session POST "/console/device" => device::decide),
    route!(Public  GET  "/oauth/authorize" => authorize::open),
    route!(Session GET  "/console/authorize" => authorize::show),
    route!(Session POST "/console/authorize" => authorize::decide),
];

/// Returns every route with its guard. [`router`] is built from this list, so the two cannot
/// differ.
pub fn routes() -> &'static [PageRoute] {
    &ROUTES
}

/// Builds the router of the console. It has no fallback; [`crate::not_found`] is the page for one.
///
/// Throttling uses the address in `axum::extract::ConnectInfo<SocketAddr>`. Serve the router with
/// connect info, or all attempts count as one client.
pub fn router(store: Store, host: Arc<dyn ConsoleHost>) -> Router {
    let state = Arc::new(ConsoleState::new(store, host));
    let mut router = Router::new();
    for PageRoute { method, path, guard, is_page: _, serve } in routes() {
        let Ok(filter) = MethodFilter::try_from(method.clone()) else { continue };
        // Innermost, so that it is inside the task of a form.
        let served = serve(filter).route_layer(from_fn(guard::with_origin));
        let guarded = match guard {
            Guard::Public => served,
            Guard::Session => {
                served.route_layer(from_fn_with_state(Arc::clone(&state), guard::require_session))
            }
            Guard::Proof => {
                let proof = (Arc::clone(&state), page_depth(path));
                served
                    .route_layer(from_fn_with_state(proof, guard::require_proof))
                    .route_layer(from_fn_with_state(Arc::clone(&state), guard::require_session))
            }
            Guard::Setup => served
                .route_layer(from_fn_with_state(Arc::clone(&state), guard::require_setup_token)),
        };
        // A call of the playground has its own limits and ends with its caller.
        let is_form = !method.is_safe() && *path != playground::CALL_PATH;
        let completed = match is_form {
            true => {
                guarded.route_layer(from_fn_with_state(Arc::clone(&state), guard::complete_forms))
            }
            false => guarded,
        };
        router = router.route(path, completed);
    }
    router
        .method_not_allowed_fallback(|| async { PageError::MethodNotAllowed })
        .layer(DefaultBodyLimit::max(form::MAX_FORM_BYTES))
        .layer(
            csrf_layer(&state).with_rejection_response(|_: ProtectionError| {
                PageError::CrossSiteForm.into_response()
            }),
        )
        .layer(map_response(|response| async { error_page::render(response) }))
        .layer(from_fn_with_state(Arc::clone(&state), layout::with_gateway_name))
        .layer(map_response(|response| async { layout::with_security_headers(response) }))
        .with_state(state)
}

/// Number of path segments of the page that a form belongs to: the nearest page above it. After a
/// proof the browser goes there.
fn page_depth(form: &str) -> usize {
    let segments: Vec<&str> = form.split('/').collect();
    let is_page = |depth: &usize| {
        let above = segments.get(..*depth).unwrap_or_default().join("/");
        let here = |route: &PageRoute| route.is_page && route.method == Method::GET;
        routes().iter().any(|route| here(route) && route.path == above)
    };
    (1..=segments.len()).rev().find(is_page).unwrap_or_default()
}

/// Rejects forms sent from other sites (CSRF), based on `Sec-Fetch-Site`
/// (<https://www.w3.org/TR/fetch-metadata/>) or else `Origin`. The gateway's own public origin is
/// trusted even if a proxy rewrites `Host`.
fn csrf_layer(state: &ConsoleState) -> CsrfLayer {
    let layer = CsrfLayer::new();
    match urls::origin(&state.base_url()) {
        Some(origin) => layer.clone().add_trusted_origin(origin).unwrap_or(layer),
        None => layer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Routes that open without a session. Additions need a review.
    const PUBLIC_ROUTES: [(Method, &str); 30] = [
        (Method::GET, "/"),
        (Method::GET, "/models"),
        (Method::GET, "/models/{*id}"),
        (Method::GET, "/docs"),
        (Method::GET, "/assets/{name}"),
        (Method::GET, "/login"),
        (Method::POST, "/login"),
        (Method::GET, "/login/second"),
        (Method::POST, "/login/second"),
        (Method::POST, "/login/second/passkey"),
        (Method::POST, "/login/second/passkey/begin"),
        (Method::POST, "/login/passkey"),
        (Method::POST, "/login/passkey/begin"),
        (Method::POST, "/auth/{identity}"),
        (Method::GET, "/auth/{identity}/callback"),
        (Method::GET, "/link/{token}"),
        (Method::GET, "/signup"),
        (Method::POST, "/signup"),
        (Method::GET, "/signup/new"),
        (Method::POST, "/signup/new"),
        (Method::GET, "/reset"),
        (Method::POST, "/reset"),
        (Method::GET, "/reset/new"),
        (Method::POST, "/reset/new"),
        (Method::GET, "/confirm"),
        (Method::POST, "/confirm"),
        (Method::GET, "/console/setup/{token}"),
        (Method::POST, "/console/setup/{token}"),
        (Method::GET, "/device"),
        (Method::GET, "/oauth/authorize"),
    ];

    #[test]
    fn only_reviewed_routes_open_without_a_session() {
        for route in routes() {
            let open = PUBLIC_ROUTES.contains(&(route.method.clone(), route.path));
            let signed_in = matches!(route.guard, Guard::Session | Guard::Proof);
            assert_eq!(open, !signed_in, "{} {}", route.method, route.path);
            assert_eq!(route.path.contains("/setup/"), route.guard == Guard::Setup);
        }
    }

    /// Forms about other people, providers, models, settings and teams that need no proof.
    const FORMS_WITHOUT_PROOF: [&str; 4] = [
        "/console/teams",
        "/console/teams/{id}/members",
        "/console/teams/{id}/members/{member}",
        "/console/teams/{id}/members/{member}/remove",
    ];

    #[test]
    fn dangerous_forms_need_a_proof() {
        let places = [
            "/console/people",
            "/console/providers",
            "/console/models",
            "/console/settings",
            "/console/teams",
        ];
        for route in routes().iter().filter(|route| route.method == Method::POST) {
            let dangerous = places.iter().any(|place| route.path.starts_with(place));
            if dangerous && !FORMS_WITHOUT_PROOF.contains(&route.path) {
                assert_eq!(route.guard, Guard::Proof, "{}", route.path);
            }
        }
    }

    #[test]
    fn a_proof_leads_back_to_the_page_of_its_form() {
        for (form, page) in [
            ("/console/people/{id}/role", "/console/people/{id}"),
            ("/console/people/invites/{id}/revoke", "/console/people"),
            ("/console/providers", "/console/providers"),
            ("/console/providers/{id}/credentials/{credential}/remove", "/console/providers/{id}"),
            ("/console/account/email", "/console/account"),
            ("/console/account/totp", "/console/account/totp"),
            ("/console/settings/rekey", "/console/settings"),
        ] {
            let segments: Vec<&str> = form.split('/').collect();
            assert_eq!(segments.get(..page_depth(form)).unwrap().join("/"), page, "{form}");
        }
    }
}
