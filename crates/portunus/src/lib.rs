//! Portunus, a model gateway: one key, four request formats, every model, exact money.
//!
//! This is the top crate: the command line, the wiring of all parts, background loops, shutdown. To
//! follow one call, start reading in the crate `relay`.

mod acme;
mod alerts;
pub mod app;
mod archive;
mod archive_place;
mod audit_stream;
mod background;
mod call_csv;
mod certificates;
pub mod cli;
mod host;
mod listeners;
mod node_journal;
mod node_metrics;
mod plain_http;
mod private_file;
mod process_limits;
mod retention;
mod serve;
mod shutdown;
mod supervisor;
mod take_over;

use std::sync::Arc;
use tokio::net::TcpListener;

pub use api::{openapi_document, route_summaries};
pub use serve::{UnstoredCalls, serve};

use app::App;
use config::LoadOptions;

/// Time the database may take to close.
const STORE_CLOSE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);

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
    // Everything is committed. A disk that hangs must not keep the process.
    if tokio::time::timeout(STORE_CLOSE_TIMEOUT, app.store.close()).await.is_err() {
        tracing::warn!("the database did not close in time");
    }
    drained
}
