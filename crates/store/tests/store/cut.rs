//! A way to PostgreSQL on which one piece is the last of its connection: it is lost, or it arrives and
//! its answer is lost. Piece after piece, so every statement of every transaction fails once, in the
//! middle of whatever it is part of.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Where the line is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Before the piece is handed on.
    Before,
    /// Behind it: it is done, and nobody hears so.
    Behind,
}

/// A way to a server that is cut once.
pub(crate) struct Wire {
    /// Where it begins.
    pub(crate) address: SocketAddr,
    sent: Arc<AtomicUsize>,
}

impl Wire {
    /// A way to that server on which the piece with that number is the last of its connection.
    pub(crate) async fn to(server: String, number: usize, cut: Cut) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (server, count) = (server.clone(), Arc::clone(&count));
                tokio::spawn(async move {
                    let Ok(far) = TcpStream::connect(server).await else { return };
                    carry(near, far, &count, number, cut).await;
                });
            }
        });
        Self { address, sent }
    }

    /// How many pieces were sent.
    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }
}

async fn carry(near: TcpStream, far: TcpStream, count: &AtomicUsize, number: usize, cut: Cut) {
    let (mut near_in, mut near_out) = near.into_split();
    let (mut far_in, mut far_out) = far.into_split();
    let back = tokio::spawn(async move { tokio::io::copy(&mut far_in, &mut near_out).await });
    let mut piece = vec![0; 65_536];
    loop {
        let read = match near_in.read(&mut piece).await {
            Ok(0) | Err(_) => break,
            Ok(read) => read,
        };
        let last = count.fetch_add(1, Ordering::Relaxed) + 1 == number;
        if last && cut == Cut::Before {
            break;
        }
        if far_out.write_all(&piece[..read]).await.is_err() || last {
            break;
        }
    }
    back.abort();
}
