//! Pebble, the small authority of Let's Encrypt for tests (<https://github.com/letsencrypt/pebble>), with a
//! name server that sends every name to this machine.

use rcgen::{CertificateParams, KeyPair};
use std::process::{Child, Command};
use testkit::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{Site, ask, connect};
use crate::restart::free_address;

/// Name in the certificate of Pebble's own addresses.
const OWN_NAME: &str = "localhost";

/// A running authority.
pub(super) struct Authority {
    child: Child,
    address: String,
    management: String,
    own_root: String,
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Authority {
    /// Starts Pebble. It asks for challenges at this port, and issues certificates for that many seconds.
    pub(super) async fn start(site: &Site, challenge_port: u16, validity: u32) -> Self {
        let program =
            std::env::var("PORTUNUS_TEST_PEBBLE").expect("PORTUNUS_TEST_PEBBLE must name pebble");
        let key = KeyPair::generate().unwrap();
        let params =
            CertificateParams::new(vec![OWN_NAME.to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let own_root = params.self_signed(&key).unwrap().pem();
        site.write("ca.pem", &own_root);
        site.write("ca-key.pem", &key.serialize_pem());
        let (address, management) = (free_address(), free_address());
        let config = serde_json::json!({ "pebble": {
            "listenAddress": address,
            "managementListenAddress": management,
            "certificate": "ca.pem",
            "privateKey": "ca-key.pem",
            "httpPort": challenge_port,
            "tlsPort": challenge_port,
            "retryAfter": { "authz": 1, "order": 1 },
            "keyAlgorithm": "ecdsa",
            "profiles": { "default": { "description": "", "validityPeriod": validity } },
        } });
        site.write("pebble.json", &config.to_string());
        let names = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let name_server = names.local_addr().unwrap();
        tokio::spawn(serve_names(names));
        let log = std::fs::File::create(site.folder.join("pebble.log")).unwrap();
        let child = Command::new(program)
            .current_dir(&site.folder)
            .args(["-config", "pebble.json", "-dnsserver", &name_server.to_string()])
            .env("PEBBLE_VA_NOSLEEP", "1")
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let started = Self { child, address, management, own_root };
        until("pebble answers", async || {
            connect(&started.management, OWN_NAME, &started.own_root, None).await.is_ok()
                && connect(&started.address, OWN_NAME, &started.own_root, None).await.is_ok()
        })
        .await;
        started
    }

    /// Address of its directory.
    pub(super) fn directory(&self) -> String {
        let port = self.address.rsplit(':').next().unwrap();
        format!("https://{OWN_NAME}:{port}/dir")
    }

    /// Returns the certificates by which those that it issues are verified.
    pub(super) async fn root(&self) -> String {
        let connected = connect(&self.management, OWN_NAME, &self.own_root, None).await;
        let answer = ask(&mut connected.unwrap(), OWN_NAME, "/roots/0").await.unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }
}

/// Answers questions of every connection. Pebble asks by TCP.
async fn serve_names(listener: TcpListener) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            while let Ok(question) = read_question(&mut stream).await {
                let answer = address_answer(&question);
                let length = u16::try_from(answer.len()).unwrap();
                stream.write_all(&[&length.to_be_bytes(), answer.as_slice()].concat()).await?;
            }
            std::io::Result::Ok(())
        });
    }
}

/// Reads a question after its length (<https://www.rfc-editor.org/rfc/rfc1035#section-4.2.2>).
async fn read_question(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut question = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut question).await?;
    Ok(question)
}

/// Answers a question for an address with that of this machine, and others with nothing
/// (<https://www.rfc-editor.org/rfc/rfc1035#section-4>).
fn address_answer(question: &[u8]) -> Vec<u8> {
    const HEAD_BYTES: usize = 12;
    const IPV4: [u8; 2] = [0, 1];
    // The name ends with an empty label. Type and class follow.
    let name = question[HEAD_BYTES..].iter().position(|byte| *byte == 0).unwrap();
    let end = HEAD_BYTES + name + 5;
    let is_address = question[HEAD_BYTES + name + 1..][..2] == IPV4;
    let mut answer = question[..end].to_vec();
    // An answer without errors, to one question, and nothing else.
    let head = [0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0];
    answer[2..HEAD_BYTES].copy_from_slice(&head);
    if is_address {
        // The name of the question, type, class, a minute, four bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    answer
}
