//! TCP connections to names with several addresses.
//!
//! Addresses that failed recently are tried last, so that a dead address delays one call and not
//! every call.

use http::Uri;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tower::Service;

use crate::client::resolver::{NameResolver, SystemResolver};

/// Time a failed address is tried last.
const FAILURE_MEMORY: Duration = Duration::from_secs(30);
/// Upper bound of remembered failed addresses.
const MAX_FAILED_ADDRESSES: usize = 1_000;
/// Concurrent lookups. A burst of calls opens as many connections.
const MAX_CONCURRENT_LOOKUPS: usize = 256;
/// Idle time before the first TCP keepalive probe.
const KEEPALIVE_TIME: Duration = Duration::from_secs(30);

/// Opens connections. Clones share the remembered failures.
#[derive(Clone)]
pub(crate) struct Dialler {
    resolver: Arc<dyn NameResolver>,
    failed: Arc<Mutex<HashMap<SocketAddr, Instant>>>,
    /// Time for all addresses of a name together.
    timeout: Duration,
}

impl Dialler {
    /// Creates a dialler with this timeout per connection.
    pub(crate) fn new(timeout: Duration, resolver: Option<Arc<dyn NameResolver>>) -> Self {
        let resolver = resolver
            .unwrap_or_else(|| Arc::new(SystemResolver::with_max_lookups(MAX_CONCURRENT_LOOKUPS)));
        Self { resolver, failed: Arc::default(), timeout }
    }

    async fn open(self, target: Uri) -> io::Result<TcpStream> {
        let deadline = Instant::now() + self.timeout;
        let finding = tokio::time::timeout(self.timeout, self.resolve_target(&target));
        let mut addresses = finding.await.map_err(|_| timeout_error())??;
        self.sort_by_failure(&mut addresses, Instant::now());
        let mut left = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            // Each address gets an equal share of the remaining time, so that the last one is tried
            // too.
            let share = deadline.saturating_duration_since(Instant::now()) / left.max(1);
            left = left.saturating_sub(1);
            match tokio::time::timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    self.failed.lock().remove(&address);
                    set_socket_options(&stream);
                    return Ok(stream);
                }
                Ok(Err(e)) => last = e,
                Err(_) => last = timeout_error(),
            }
            self.record_failure(address);
        }
        Err(last)
    }

    async fn resolve_target(&self, target: &Uri) -> io::Result<Vec<SocketAddr>> {
        let missing = || io::Error::new(io::ErrorKind::InvalidInput, "the address has no host");
        let host = target.host().ok_or_else(missing)?.trim_matches(['[', ']']);
        let default_port = if target.scheme_str() == Some("https") { 443 } else { 80 };
        let port = target.port_u16().unwrap_or(default_port);
        let found = match host.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => self.resolver.resolve(host).await?,
        };
        Ok(found.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }

    /// Moves recently failed addresses to the end, the latest failure last.
    fn sort_by_failure(&self, addresses: &mut [SocketAddr], now: Instant) {
        let failed = self.failed.lock();
        if failed.is_empty() {
            return;
        }
        addresses.sort_by_key(|address| {
            failed
                .get(address)
                .filter(|when| now.saturating_duration_since(**when) < FAILURE_MEMORY)
        });
    }

    fn record_failure(&self, address: SocketAddr) {
        let (mut failed, now) = (self.failed.lock(), Instant::now());
        if failed.len() >= MAX_FAILED_ADDRESSES {
            failed.retain(|_, when| now.saturating_duration_since(*when) < FAILURE_MEMORY);
        }
        if failed.len() < MAX_FAILED_ADDRESSES {
            failed.insert(address, now);
        }
    }
}

fn timeout_error() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no connection within the timeout")
}

/// Sets socket options. Errors are ignored, because the connection works without the options.
fn set_socket_options(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_TIME));
}

impl Service<Uri> for Dialler {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let dialler = self.clone();
        Box::pin(async move { dialler.open(target).await.map(TokioIo::new) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::resolver::LookupFuture;
    use tokio::net::{TcpListener, TcpSocket};

    /// Resolves every name to these addresses.
    struct FixedResolver(Vec<IpAddr>);

    impl NameResolver for FixedResolver {
        fn resolve(&self, _name: &str) -> LookupFuture {
            let found = self.0.clone();
            Box::pin(async move { Ok(found) })
        }
    }

    #[test]
    fn recently_failed_addresses_come_last() {
        let dialler = Dialler::new(Duration::from_secs(5), None);
        let at = |last: u8| SocketAddr::from(([127, 0, 0, last], 80));
        let mut addresses = [at(1), at(2), at(3)];
        dialler.record_failure(at(1));
        dialler.record_failure(at(2));
        let now = Instant::now();
        dialler.sort_by_failure(&mut addresses, now);
        assert_eq!(addresses, [at(3), at(1), at(2)]);
        addresses.sort_unstable();
        dialler.sort_by_failure(&mut addresses, now + FAILURE_MEMORY);
        assert_eq!(addresses, [at(1), at(2), at(3)], "failures expire");
        (0..=255).for_each(|last| dialler.record_failure(at(last)));
        assert!(dialler.failed.lock().len() <= MAX_FAILED_ADDRESSES);
    }

    #[tokio::test]
    async fn dead_addresses_delay_only_the_first_connection() {
        // One address refuses, one does not respond because its queue is full, one accepts.
        let alive = TcpListener::bind("127.0.0.3:0").await.unwrap();
        let port = alive.local_addr().unwrap().port();
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 2], port))).unwrap();
        let silent = socket.listen(1).unwrap();
        let mut waiting = Vec::new();
        let full = || {
            tokio::time::timeout(
                Duration::from_secs(1),
                TcpStream::connect(silent.local_addr().unwrap()),
            )
        };
        while let Ok(opened) = full().await {
            waiting.push(opened.unwrap());
        }
        let known = (1..=3).map(|last| IpAddr::from([127, 0, 0, last])).collect();
        let dialler = Dialler::new(Duration::from_secs(3), Some(Arc::new(FixedResolver(known))));
        let mut failed = Vec::new();
        for _ in 0..10 {
            let target = format!("http://models.example.com:{port}/").parse().unwrap();
            let opened = dialler.clone().call(target).await.unwrap();
            assert_eq!(opened.inner().peer_addr().unwrap(), alive.local_addr().unwrap());
            failed.push(dialler.failed.lock().clone());
        }
        // A second attempt would have changed the time of the failure.
        assert_eq!(failed[0].len(), 2);
        assert!(failed.iter().all(|seen| *seen == failed[0]));
    }
}
