//! Portunus, a model gateway: one key, four request formats, every model, exact money.
//!
//! This is the top crate: the command line, the wiring of all parts, background loops, shutdown. To
//! follow one call, start reading in the crate `relay`.

pub mod app;
mod background;
pub mod cli;
mod host;
mod serve;

use std::sync::Arc;
use tokio::net::TcpListener;

pub use api::route_summaries;
pub use serve::{UnstoredCalls, serve};

use app::App;
use config::LoadOptions;

/// Serves until [`App::stop`] is cancelled, then drains and settles everything.
pub async fn run(
    app: Arc<App>,
    listener: TcpListener,
    given: LoadOptions,
) -> Result<(), UnstoredCalls> {
    app.start_background(given);
    serve(Arc::clone(&app), listener).await;
    let drained = serve::drain(&app).await;
    if let Err(unstored) = &drained {
        tracing::error!("{unstored}");
    }
    app.store.close().await;
    drained
}
