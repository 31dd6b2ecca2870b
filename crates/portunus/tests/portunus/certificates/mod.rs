//! Certificates of the listener and of callers, in running processes: watched files, callers with
//! certificates, and an authority that speaks ACME.

#[cfg(feature = "node-tests")]
mod authority;
mod files;
mod no_authority;
#[cfg(feature = "node-tests")]
mod pebble;
mod stored;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Key of the vault of all nodes.
const VAULT_KEY: &str = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

/// A folder with a configuration and processes on it.
struct Site {
    folder: PathBuf,
}

impl Drop for Site {
    fn drop(&mut self) {
        // A failed test leaves its files for inspection.
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

impl Site {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("portunus-certificates-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Self { folder }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    /// Starts a gateway with the configuration `NAME.toml`. Its log is `NAME.log`, its data folder `NAME`.
    fn start(&self, name: &str, listen: &str) -> Node {
        self.start_with(name, listen, &[])
    }

    /// Starts a gateway with these variables in its environment.
    fn start_with(&self, name: &str, listen: &str, variables: &[(&str, &str)]) -> Node {
        let log = self.folder.join(format!("{name}.log"));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_portunus"));
        command.current_dir(&self.folder).env_clear().envs(variables.iter().copied());
        command.args(["--config", &format!("{name}.toml"), "--data", name]);
        command.args(["serve", "--listen", listen]).stdout(Stdio::null()).stderr(log);
        Node { child: command.spawn().unwrap(), address: listen.to_owned() }
    }

    fn log(&self, name: &str) -> String {
        self.read(&format!("{name}.log"))
    }
}

/// A running gateway.
struct Node {
    child: Child,
    address: String,
}

impl Node {
    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Certificate and key of a caller.
struct CallerPair {
    cert: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

/// Opens a TLS connection that is verified by these certificates in PEM.
async fn connect(
    address: &str,
    name: &str,
    trusted: &str,
    caller: Option<&CallerPair>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    for one in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
        roots.add(one.unwrap()).unwrap();
    }
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match caller {
        None => builder.with_no_client_auth(),
        Some(CallerPair { cert, key }) => {
            builder.with_client_auth_cert(vec![cert.clone()], key.clone_key()).unwrap()
        }
    };
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Returns the certificate of a server.
fn certificate(stream: &TlsStream<TcpStream>) -> Vec<u8> {
    stream.get_ref().1.peer_certificates().unwrap().first().unwrap().to_vec()
}

/// Sends a request on a connection that closes afterwards, and returns the answer.
async fn ask<S>(stream: &mut S, host: &str, path: &str) -> std::io::Result<String>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Returns the check of certificates that the metrics listener tells.
async fn certificate_check(metrics: &str) -> Option<(u16, Value)> {
    let mut stream = TcpStream::connect(metrics).await.ok()?;
    let answer = ask(&mut stream, "x", "/readyz?verbose").await.ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
    let checks = body["checks"].as_array()?;
    let found = checks.iter().find(|check| check["name"] == "certificates")?;
    Some((status, found.clone()))
}

/// Returns status and body of an address of the metrics listener.
async fn get(metrics: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(metrics).await.ok()?;
    let answer = ask(&mut stream, "x", path).await.ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
}
