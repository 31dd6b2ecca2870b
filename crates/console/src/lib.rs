//! The console and the model directory as web pages.
//!
//! Pages are made on the server, need no script to work and fetch nothing from elsewhere. The
//! whole of it is a [`router`] built from the list in [`routes`], where every address stands with
//! its guard. What the pages need of the gateway around them is the [`ConsoleHost`]; everything else is in
//! the store. No page ever looks at the `ConsoleHost` header: addresses come from [`ConsoleHost::public_url`].

mod acting_for;
mod admin_client;
mod assets;
mod catalog_view;
mod chart;
mod cookies;
mod csv;
mod display;
mod form;
mod guard;
mod host;
mod layout;
mod links;
mod mails;
mod nav;
mod oidc;
mod page_error;
mod pages;
mod passkey;
mod password;
mod routes;
mod session;
mod shared_fields;
mod signin;
mod signup;
mod snippet;
mod state;
mod throttle;
mod totp;
mod totp_secrets;
mod urls;

pub use csv::csv_line;
pub use host::{ConsoleHost, HostFuture, IdentityProvider, MailMessage};
pub use routes::{Guard, Route, router, routes};

use axum::response::{IntoResponse, Response};

/// The page that says that nothing is here, for whoever owns the router's fallback.
pub fn not_found() -> Response {
    layout::with_security_headers(page_error::PageError::NotFound.into_response())
}
