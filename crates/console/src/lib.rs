//! Web pages of the console and the model directory.
//!
//! Pages are rendered on the server, work without scripts and load nothing from other sites.
//! [`router`] is built from the list in [`routes`], which names the guard of every path. The pages
//! use the store and, through [`ConsoleHost`], the gateway around them. No page reads the `Host`
//! header; URLs come from [`ConsoleHost::public_url`].

mod acting_for;
mod agent_settings;
mod assets;
mod audit_csv;
mod call_example;
mod catalog_view;
mod chart;
mod cookies;
mod csv;
mod discovery;
mod display;
mod error_page;
mod form;
mod guard;
mod host;
mod known_device;
mod layout;
mod links;
mod list_view;
mod mails;
mod nav;
mod oidc;
mod page_error;
mod pages;
mod passkey;
mod password;
mod provider_errors;
mod redirect;
mod refusal;
mod routes;
mod session;
mod shared_fields;
mod signin;
mod signup;
mod snippet;
mod state;
mod throttle;
mod time_range;
mod totp;
mod urls;
mod viewer_time;

pub use agent_settings::{AgentSettings, agent_settings};
pub use audit_csv::{audit_csv_header, audit_csv_line};
pub use csv::csv_line;
pub use host::{ConsoleHost, HostError, HostFuture, IdentityProvider, MailMessage};
pub use mails::AlertMail;
pub use routes::{Guard, PageRoute, router, routes};

use axum::response::{IntoResponse, Response};

/// The page for a network that asked too often, with the seconds to wait.
pub fn too_many_requests(seconds: u64) -> Response {
    layout::with_security_headers(error_page::render(
        page_error::PageError::TooManyRequests(seconds).into_response(),
    ))
}

/// The 404 page, for the owner of the router's fallback.
pub fn not_found() -> Response {
    layout::with_security_headers(error_page::render(
        page_error::PageError::NotFound.into_response(),
    ))
}
