//! Portunus, a model gateway: one key, four request formats, every model, exact money.
//!
//! This crate is the top of the house: the command line, the configuration, the addresses that
//! are served and the flow of one call. Start reading in [`flow`](flow/mod.rs): it shows a call's
//! whole life on one screen.

pub mod app;
pub mod cli;
pub mod config;
mod files;
mod flow;
mod guard;
mod host;
mod idempotency;
mod ids;
pub mod keys;
mod limits;
mod mail;
mod memory;
mod meters;
mod money;
mod places;
mod respond;
mod server;
mod surfaces;
mod tasks;
mod telemetry;
mod tokens;

use std::sync::Arc;
use tokio::net::TcpListener;

pub use server::serve;
pub use surfaces::addresses;

use app::App;
use config::Given;

/// Serves until [`App::stop`] is cancelled, then drains and settles everything.
pub async fn run(app: Arc<App>, listener: TcpListener, given: Given) {
    app.run_beside(given);
    serve(Arc::clone(&app), listener).await;
    server::drain(&app).await;
    app.store.close().await;
}
