//! A socket with two users: the HTTP server, and a fault that writes raw bytes.

use bytes::Bytes;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// A connection, as used by a fault.
#[derive(Debug)]
pub(crate) struct SharedSocket {
    socket: TcpStream,
    /// Wakes the connection's task, which then drops everything.
    pub(crate) closing: Notify,
    /// Wakes the connection's task, which then sends GOAWAY over HTTP/2.
    pub(crate) goodbye: Notify,
}

impl SharedSocket {
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

    /// Makes the socket reset when it closes.
    pub(super) fn reset(&self) {
        // Only an old kernel could refuse this; the connection then closes normally.
        let _ = self.socket.set_zero_linger();
    }
}

/// The HTTP server's side of a connection.
pub(crate) struct ServerIo(pub(crate) Arc<SharedSocket>);

impl AsyncRead for ServerIo {
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

impl AsyncWrite for ServerIo {
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
        // The socket closes when both users have dropped it.
        Poll::Ready(Ok(()))
    }
}
