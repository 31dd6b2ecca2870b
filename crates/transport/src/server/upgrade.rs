//! Connections that change from HTTP/1 to another protocol (RFC 9110, section 7.8).

use bytes::BytesMut;
use futures_util::future::BoxFuture;
use std::fmt;
use std::future::poll_fn;
use std::task::Poll;

use super::connections::{Connection, ShutdownPhase};
use super::h1::ByteStream;
use super::limits::HttpLimits;

/// Work of a connection after its 101 response was sent. It runs in the task of the connection.
pub struct ProtocolUpgrade(UpgradeWork);

type UpgradeWork = Box<dyn FnOnce(UpgradedConnection) -> BoxFuture<'static, ()> + Send>;

impl ProtocolUpgrade {
    /// Creates an upgrade to the protocol that this function speaks.
    pub fn new(
        work: impl FnOnce(UpgradedConnection) -> BoxFuture<'static, ()> + Send + 'static,
    ) -> Self {
        Self(Box::new(work))
    }

    /// Speaks the protocol until the connection ends.
    pub(super) fn run(self, connection: UpgradedConnection) -> BoxFuture<'static, ()> {
        (self.0)(connection)
    }
}

impl fmt::Debug for ProtocolUpgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtocolUpgrade").finish_non_exhaustive()
    }
}

/// A connection that has left HTTP. It keeps its place among the connections of the listener.
pub struct UpgradedConnection {
    pub(super) stream: Box<dyn ByteStream>,
    /// Bytes that were read with the request and follow it.
    pub(super) read: BytesMut,
    pub(super) limits: HttpLimits,
    pub(super) place: ConnectionPlace,
}

/// Place of an upgraded connection, and its view of a shutdown.
pub struct ConnectionPlace(pub(super) Connection);

impl ConnectionPlace {
    /// Waits for this phase of a shutdown, or a later one. At most one task may wait.
    pub async fn reached(&self, phase: ShutdownPhase) {
        poll_fn(|cx| {
            self.0.register_waker(cx);
            if self.0.phase() >= phase { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
