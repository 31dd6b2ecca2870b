//! One socket with two users: the HTTP server, and a fault that says what no server would.

use bytes::Bytes;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// A connection as a fault sees it.
#[derive(Debug)]
pub(crate) struct Line {
    socket: TcpStream,
    /// Wakes the connection's task, which then drops everything.
    pub(crate) closing: Notify,
    /// Wakes the connection's task, which then says goodbye over HTTP/2.
    pub(crate) goodbye: Notify,
}

impl Line {
    /// A line over that socket.
    pub(crate) fn new(socket: TcpStream) -> Arc<Self> {
        Arc::new(Self { socket, closing: Notify::new(), goodbye: Notify::new() })
    }

    /// Writes bytes of any kind. The server writes nothing as long as it waits for an answer.
    pub(super) async fn write(&self, mut bytes: Bytes) -> io::Result<()> {
        while !bytes.is_empty() {
            self.socket.writable().await?;
            match self.socket.try_write(&bytes) {
                Ok(count) => drop(bytes.split_to(count)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Has the socket end with a reset once it is closed.
    pub(super) fn reset(&self) {
        // Only an old kernel could refuse; the connection then closes in the usual way.
        let _ = self.socket.set_zero_linger();
    }
}

/// The server's side of a line.
pub(crate) struct Wire(pub(crate) Arc<Line>);

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = &self.0.socket;
        loop {
            ready!(socket.poll_read_ready(cx))?;
            match socket.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let socket = &self.0.socket;
        loop {
            ready!(socket.poll_write_ready(cx))?;
            match socket.try_write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let socket = &self.0.socket;
        loop {
            ready!(socket.poll_write_ready(cx))?;
            match socket.try_write_vectored(pieces) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The socket closes when both its users are gone.
        Poll::Ready(Ok(()))
    }
}
