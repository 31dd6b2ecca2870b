//! Connections that remember whether they have answered before.
//!
//! A provider may close an idle connection at the very moment it is taken from the pool. What is
//! sent on it is lost without anyone having read it, so it can safely be sent again; but only a
//! connection that has answered before can have been idle.

use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tower_service::Service;

/// Whether a connection has answered before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Used(Arc<AtomicBool>);

impl Used {
    /// It answered.
    pub(crate) fn answered(&self) {
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it answered before.
    pub(crate) fn has_answered(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Makes connections that remember.
#[derive(Clone, Debug)]
pub(crate) struct Remembering<C>(pub(crate) C);

impl<C> Service<Uri> for Remembering<C>
where
    C: Service<Uri>,
    C::Future: Send + 'static,
{
    type Response = Remembered<C::Response>;
    type Error = C::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, C::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = self.0.call(to);
        Box::pin(async move { Ok(Remembered { io: connecting.await?, used: Used::default() }) })
    }
}

/// A connection that remembers.
#[derive(Debug)]
pub(crate) struct Remembered<I> {
    io: I,
    used: Used,
}

impl<I: Connection> Connection for Remembered<I> {
    fn connected(&self) -> Connected {
        self.io.connected().extra(self.used.clone())
    }
}

impl<I: Read + Unpin> Read for Remembered<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<I: Write + Unpin> Write for Remembered<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, pieces)
    }
}
