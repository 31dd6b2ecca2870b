//! Portunus, a model gateway: one key, four request formats, every model, exact money.
//!
//! This crate is the top of the house: the command line, the configuration, the addresses that
//! are served and the flow of one call. Start reading in [`flow`](flow/mod.rs): it shows a call's
//! whole life on one screen.

pub mod app;
pub mod cli;
pub mod config;
mod flow;
mod guard;
mod host;
mod ids;
pub mod keys;
mod memory;
mod meters;
mod money;
mod respond;
mod server;
mod surfaces;
mod telemetry;
mod tokens;

use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

pub use surfaces::addresses;

use app::App;
use config::Given;

/// Serves until [`App::stop`] is cancelled, then drains and settles everything.
pub async fn run(app: Arc<App>, listener: TcpListener, given: Given) {
    app.run_beside(given);
    let drain = app.config().drain;
    server::serve(Arc::clone(&app), listener).await;
    app.drain();
    app.tasks.close();
    if tokio::time::timeout(drain, app.tasks.wait()).await.is_err() {
        tracing::warn!("the drain time is over; calls that still run are settled as they stand");
    }
    app.store.close().await;
}

/// How long a second order to stop leaves for what still runs.
pub const FAST_STOP: Duration = Duration::from_secs(5);
