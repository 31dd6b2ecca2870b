//! Pool of idle connections, by scheme and authority.

use http::uri::Scheme;
use hyper::client::conn::http2::SendRequest;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::body::RequestBody;
use crate::client::connection_use::ConnectionUse;
use crate::client::h1::ClientWire;

/// Time an unused connection is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Idle HTTP/1 connections per host.
const MAX_IDLE_CONNECTIONS: usize = 256;

/// All hosts that connections are open to, or are being opened to. The proxy follows from scheme and authority.
#[derive(Default)]
pub(crate) struct ConnectionPool {
    plain: HostTable,
    tls: HostTable,
}

/// Pools by authority as it is written: its own hash would go letter by letter, because it ignores
/// case.
type HostTable = RwLock<HashMap<String, Arc<HostPool>>>;

/// Connections to one host.
#[derive(Default)]
pub(crate) struct HostPool(Mutex<IdleConnections>);

#[derive(Default)]
struct IdleConnections {
    /// Idle HTTP/1 connections, the longest unused first.
    idle: VecDeque<(Instant, Box<ClientWire>)>,
    /// The HTTP/2 connection and the time of its last use.
    http2: Option<(Instant, Http2Connection)>,
    /// True while a task closes expired connections.
    has_reaper: bool,
}

/// An HTTP/2 connection, which carries several requests at once.
#[derive(Clone)]
pub(crate) struct Http2Connection {
    pub(crate) sender: SendRequest<RequestBody>,
    pub(crate) used: ConnectionUse,
}

/// A connection taken from the pool.
pub(crate) enum PooledConnection {
    Http1(Box<ClientWire>),
    Http2(Http2Connection),
}

impl ConnectionPool {
    /// Returns the pool of a host.
    pub(crate) fn host(&self, scheme: &Scheme, authority: &str) -> Arc<HostPool> {
        let table = if *scheme == Scheme::HTTPS { &self.tls } else { &self.plain };
        if let Some(host) = table.read().get(authority) {
            return Arc::clone(host);
        }
        let mut hosts = table.write();
        // Callers name hosts of media and webhooks, so there is no end of them. The table grows only
        // here, and so hosts leave it here.
        hosts.retain(|_, host| Arc::strong_count(host) > 1 || host.0.lock().is_used());
        Arc::clone(hosts.entry(authority.to_owned()).or_default())
    }
}

impl HostPool {
    /// Returns a usable connection, the most recently used first.
    pub(crate) fn take(&self) -> Option<PooledConnection> {
        let mut kept = self.0.lock();
        if let Some((last, shared)) = &mut kept.http2 {
            if !shared.sender.is_closed() {
                *last = Instant::now();
                return Some(PooledConnection::Http2(shared.clone()));
            }
            kept.http2 = None;
        }
        kept.take_idle().map(PooledConnection::Http1)
    }

    /// Returns a usable HTTP/1 connection, unless there is one of HTTP/2.
    pub(crate) fn take_http1(&self) -> Option<Box<ClientWire>> {
        let mut kept = self.0.lock();
        if kept.http2.is_some() { None } else { kept.take_idle() }
    }

    /// Puts back an HTTP/1 connection whose exchange is complete.
    pub(crate) fn put(self: &Arc<Self>, wire: Box<ClientWire>) {
        let mut kept = self.0.lock();
        if kept.idle.len() < MAX_IDLE_CONNECTIONS {
            kept.idle.push_back((Instant::now(), wire));
            self.start_reaper(&mut kept);
        }
    }

    /// Shares a new HTTP/2 connection, which replaces an earlier one.
    pub(crate) fn put_http2(self: &Arc<Self>, shared: Http2Connection) {
        let mut kept = self.0.lock();
        kept.http2 = Some((Instant::now(), shared));
        self.start_reaper(&mut kept);
    }

    /// Starts a task that closes expired connections until none is left.
    fn start_reaper(self: &Arc<Self>, kept: &mut IdleConnections) {
        if std::mem::replace(&mut kept.has_reaper, true) {
            return;
        }
        let host = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(IDLE_TIMEOUT / 2).await;
                let Some(host) = host.upgrade() else { return };
                if !host.0.lock().drop_expired() {
                    return;
                }
            }
        });
    }
}

impl IdleConnections {
    /// Returns a usable HTTP/1 connection, the most recently used first.
    fn take_idle(&mut self) -> Option<Box<ClientWire>> {
        let now = Instant::now();
        while let Some((last, mut wire)) = self.idle.pop_back() {
            if now.saturating_duration_since(last) < IDLE_TIMEOUT && wire.is_idle() {
                return Some(wire);
            }
        }
        None
    }

    /// Returns true if there is a connection.
    fn is_used(&self) -> bool {
        !self.idle.is_empty() || self.http2.is_some()
    }

    /// Closes expired connections and returns true if any are left.
    fn drop_expired(&mut self) -> bool {
        while self.idle.front().is_some_and(|(last, _)| last.elapsed() >= IDLE_TIMEOUT) {
            self.idle.pop_front();
        }
        self.http2
            .take_if(|(last, shared)| last.elapsed() >= IDLE_TIMEOUT || shared.sender.is_closed());
        self.has_reaper = self.is_used();
        self.has_reaper
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::outbound::ClientStream;

    #[tokio::test]
    async fn hosts_without_connections_leave_the_table() {
        let pool = ConnectionPool::default();
        let used = pool.host(&Scheme::HTTPS, "used.example");
        let kept = pool.host(&Scheme::HTTPS, "kept.example");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        kept.put(Box::new(ClientWire::new(ClientStream::Plain(stream), false)));
        drop(kept);
        for number in 0..1_000 {
            drop(pool.host(&Scheme::HTTPS, &format!("host-{number}.example")));
            drop(pool.host(&Scheme::HTTP, &format!("host-{number}.example")));
        }
        assert!(Arc::ptr_eq(&used, &pool.host(&Scheme::HTTPS, "used.example")));
        let names = |table: &HostTable| {
            let mut names: Vec<String> = table.read().keys().cloned().collect();
            names.sort();
            names
        };
        assert_eq!(names(&pool.tls), ["host-999.example", "kept.example", "used.example"]);
        assert_eq!(names(&pool.plain), ["host-999.example"]);
        let kept = pool.host(&Scheme::HTTPS, "kept.example");
        kept.0.lock().idle.clear();
        drop((used, kept));
        drop(pool.host(&Scheme::HTTPS, "last.example"));
        assert_eq!(names(&pool.tls), ["last.example"]);
    }
}
