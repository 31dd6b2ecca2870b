//! Name resolution.

use std::future::Future;
use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Concurrent lookups. A lookup cannot be cancelled, so lookups that hang count too.
const MAX_CONCURRENT_LOOKUPS: usize = 16;

/// Future of the addresses of a name.
pub type LookupFuture = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Resolves host names.
pub trait NameResolver: Send + Sync {
    /// Resolves a host name.
    fn resolve(&self, name: &str) -> LookupFuture;
}

/// The resolver of this machine.
#[derive(Clone, Debug)]
pub struct SystemResolver(Arc<Semaphore>);

impl Default for SystemResolver {
    fn default() -> Self {
        Self::with_max_lookups(MAX_CONCURRENT_LOOKUPS)
    }
}

impl SystemResolver {
    /// Creates a resolver with this many concurrent lookups.
    pub fn with_max_lookups(lookups: usize) -> Self {
        Self(Arc::new(Semaphore::new(lookups)))
    }
}

impl NameResolver for SystemResolver {
    fn resolve(&self, name: &str) -> LookupFuture {
        let (name, gate) = (name.to_owned(), Arc::clone(&self.0));
        Box::pin(async move {
            let permit = gate.acquire_owned().await.map_err(io::Error::other)?;
            let found = tokio::task::spawn_blocking(move || {
                let found = (name.as_str(), 0).to_socket_addrs();
                drop(permit);
                Ok(found?.map(|address| address.ip()).collect())
            });
            found.await.map_err(io::Error::other)?
        })
    }
}
