//! TLS of a listener, with the answers to challenges of certificate authorities within TLS (RFC 8737).

use rustls::ServerConfig;
use rustls::server::{Acceptor, ClientHello};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

/// Protocol by which an authority asks for the answer to a challenge.
const CHALLENGE_PROTOCOL: &[u8] = b"acme-tls/1";

/// Settings that answer a challenge; `None` if there is none.
pub type ChallengeFuture<'a> = Pin<Box<dyn Future<Output = Option<Arc<ServerConfig>>> + Send + 'a>>;

/// Answers to challenges within TLS.
pub trait ChallengeCertificates: Send + Sync {
    /// Returns the settings that answer the challenge for a name.
    fn answer<'a>(&'a self, name: &'a str) -> ChallengeFuture<'a>;
}

/// TLS of a listener.
#[derive(Clone)]
pub struct TlsSettings {
    /// Certificate and protocols.
    pub config: Arc<ServerConfig>,
    /// Answers to challenges. Without them a handshake is not looked into.
    pub challenges: Option<Arc<dyn ChallengeCertificates>>,
}

impl TlsSettings {
    /// Completes the handshake. Returns `None` if it was that of an authority, which sends no request.
    pub(super) async fn accept(
        self,
        stream: TcpStream,
    ) -> io::Result<Option<TlsStream<TcpStream>>> {
        let Self { config, challenges } = self;
        let Some(challenges) = challenges else {
            return TlsAcceptor::from(config).accept(stream).await.map(Some);
        };
        let begun = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let Some(name) = challenged_name(&begun.client_hello()) else {
            return begun.into_stream(config).await.map(Some);
        };
        let Some(answer) = challenges.answer(&name).await else {
            return Err(io::Error::other("a challenge was asked for that is not known"));
        };
        begun.into_stream(answer).await?.shutdown().await?;
        Ok(None)
    }
}

/// Returns the name of a handshake by which an authority asks for the answer to a challenge. It offers the
/// protocol of challenges alone (RFC 8737, section 3).
fn challenged_name(hello: &ClientHello<'_>) -> Option<String> {
    let mut protocols = hello.alpn()?;
    let is_challenge = protocols.next() == Some(CHALLENGE_PROTOCOL) && protocols.next().is_none();
    is_challenge.then(|| hello.server_name().unwrap_or_default().to_owned())
}
