//! A TCP proxy to PostgreSQL that cuts a connection at one packet: the packet is lost, or its
//! answer is lost. With each packet in turn, every statement of every transaction fails once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The point of the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutPoint {
    /// Before the packet is forwarded.
    Before,
    /// After it: the server acts, but its answer is lost.
    Behind,
}

/// A proxy that cuts one connection.
pub(crate) struct CuttingProxy {
    /// Its address.
    pub(crate) address: SocketAddr,
    sent: Arc<AtomicUsize>,
}

impl CuttingProxy {
    /// Starts a proxy to that server that cuts the connection at the packet with that number.
    pub(crate) async fn to(server: String, number: usize, cut: CutPoint) -> Self {
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

    /// Returns the number of packets sent.
    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }
}

async fn carry(near: TcpStream, far: TcpStream, count: &AtomicUsize, number: usize, cut: CutPoint) {
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
        if last && cut == CutPoint::Before {
            break;
        }
        if far_out.write_all(&piece[..read]).await.is_err() || last {
            break;
        }
    }
    back.abort();
}
