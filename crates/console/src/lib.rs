//! The console and the model directory as web pages.
//!
//! Pages are made on the server, need no script to work and fetch nothing from elsewhere. The
//! whole of it is a [`router`] built from the list in [`routes`], where every address stands with
//! its guard. What the pages need of the gateway around them is the [`Host`]; everything else is in
//! the store. No page ever looks at the `Host` header: addresses come from [`Host::public_url`].

mod acting;
mod address;
mod assets;
mod catalog_view;
mod chart;
mod clerk;
mod cookies;
mod csv;
mod desk;
mod fields;
mod form;
mod generators;
mod guard;
mod host;
mod links;
mod mails;
mod nav;
mod oidc;
mod pages;
mod passkey;
mod password;
mod routes;
mod session;
mod shell;
mod show;
mod signin;
mod signup;
mod snippet;
mod throttle;
mod totp;
mod trouble;

pub use csv::csv_line;
pub use host::{Host, IdentityProvider, Later, Mail};
pub use routes::{Guard, Route, router, routes};

use axum::response::{IntoResponse, Response};

/// The page that says that nothing is here, for whoever owns the router's fallback.
pub fn not_found() -> Response {
    shell::with_headers(trouble::Trouble::NotFound.into_response())
}
