//! The listener of the API.

use futures_util::future::BoxFuture;
use std::sync::Arc;
use tokio::net::TcpListener;
use transport::server::{ListenerSettings, accept};

use crate::handler::ApiHandler;
use crate::serve::ApiService;

/// Accepts connections until `closing` has ended and answers their requests from the route table. Each connection is
/// a task of the engine.
///
/// Boxed here: the compiler generates the code of a future in the crate that boxes or polls it, by
/// the settings of that crate. A connection polls nearly everything that a call does.
pub fn listen(
    api: Arc<ApiService>,
    listener: TcpListener,
    settings: Box<dyn Fn() -> ListenerSettings + Send + Sync>,
    closing: BoxFuture<'static, ()>,
) -> BoxFuture<'static, ()> {
    let engine = &api.state().engine;
    let (connections, tasks) = (Arc::clone(&engine.connections), engine.tasks.clone());
    let handler = move |peer| ApiHandler::new(Arc::clone(&api), peer);
    Box::pin(accept(listener, connections, tasks, settings, handler, closing))
}
