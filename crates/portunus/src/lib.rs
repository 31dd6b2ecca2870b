//! Portunus, a model gateway: one key, four request formats, every model, exact money.
//!
//! This crate is the top: the command line, the wiring of all parts, background loops, shutdown.
//! To see the life of one call, start reading in the crate `relay`.

pub mod app;
mod background;
pub mod cli;
mod host;
mod serve;

use std::sync::Arc;
use tokio::net::TcpListener;

pub use api::addresses;
pub use serve::serve;

use app::App;
use config::Given;

/// Serves until [`App::stop`] is cancelled, then drains and settles everything.
pub async fn run(app: Arc<App>, listener: TcpListener, given: Given) {
    app.run_beside(given);
    serve(Arc::clone(&app), listener).await;
    serve::drain(&app).await;
    app.store.close().await;
}
