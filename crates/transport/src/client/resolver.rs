//! What addresses a name has.

use std::future::Future;
use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// How many names are looked up at once. A lookup cannot be called off, so those that hang count.
const MAX_CONCURRENT_LOOKUPS: usize = 16;

/// The addresses of a name, once they are known.
pub type LookupFuture = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Whoever knows the addresses of names.
pub trait NameResolver: Send + Sync {
    /// Finds the addresses of a name.
    fn resolve(&self, name: &str) -> LookupFuture;
}

/// The names this machine knows.
#[derive(Clone, Debug)]
pub struct SystemResolver(Arc<Semaphore>);

impl Default for SystemResolver {
    fn default() -> Self {
        Self::with_max_lookups(MAX_CONCURRENT_LOOKUPS)
    }
}

impl SystemResolver {
    /// The same names, with that many looked up at once.
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
