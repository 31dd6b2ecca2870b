//! Log lines with texts of callers that have sent no key yet.

use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use super::{Folder, log_lines, program, terminate};
use crate::restart::free_address;

/// Longest line, with the mark that says it was cut.
const MAX_LINE_BYTES: usize = (16 << 10) + 64;

fn two_bytes(number: usize) -> [u8; 2] {
    u16::try_from(number).unwrap().to_be_bytes()
}

/// Returns a handshake of TLS 1.2 (RFC 5246, section 7.4.1.2) that names a server.
fn client_hello(name: &[u8]) -> Vec<u8> {
    let entry = [&[0][..], &two_bytes(name.len()), name].concat();
    let names = [&two_bytes(entry.len())[..], &entry].concat();
    let signatures = [0, 2, 4, 3];
    let mut extensions = Vec::new();
    for (kind, content) in [(0, &names[..]), (13, &signatures[..])] {
        extensions.extend([&two_bytes(kind)[..], &two_bytes(content.len()), content].concat());
    }
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0xc0, 0x2b, 1, 0]);
    body.extend([&two_bytes(extensions.len())[..], &extensions].concat());
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let message = [&[1][..], &length[1..], &body].concat();
    let records = message.chunks(16 << 10);
    records.flat_map(|one| [&[22, 3, 1][..], &two_bytes(one.len()), one].concat()).collect()
}

/// Sends a handshake with an endless name to a gateway, and returns the lines of its log.
fn logged(name: &str, settings: &[(&str, &str)]) -> Vec<String> {
    let folder = Folder::new(name);
    let files = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/portunus/transport/data");
    let address = free_address();
    let config = format!(
        "[server]\nlisten = \"{address}\"\n\
         tls = {{ cert = \"{files}/cert.pem\", key = \"{files}/key.pem\" }}\n"
    );
    std::fs::write(folder.0.join("p.toml"), config).unwrap();
    let mut child = program(&folder)
        .args(["--config", "p.toml", "serve"])
        .envs(settings.iter().copied())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = log_lines(&mut child);
    assert!(super::holds_soon(|| TcpStream::connect(&address).is_ok()));
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(&client_hello(&b"\x01 ".repeat(30_000))).unwrap();
    // Refused, after the line was logged.
    let _ = stream.read(&mut [0; 64]);
    assert_eq!(terminate(child), Some(0));
    lines.0.iter().collect()
}

#[test]
fn a_handshake_with_an_endless_name_is_not_logged() {
    let lines = logged("long-default", &[]);
    assert!(!lines.iter().any(|line| line.contains("SNI")), "{lines:?}");
}

#[test]
fn a_line_that_a_caller_made_long_is_cut() {
    let level = ("PORTUNUS_LOG", "info,rustls=warn");
    let lines = logged("long-text", &[level]);
    let line = lines.iter().find(|line| line.contains("SNI")).expect("it was asked for");
    assert!(line.len() <= MAX_LINE_BYTES && line.ends_with(" bytes are left out)"), "{line}");
    let lines = logged("long-json", &[level, ("PORTUNUS_LOG_FORMAT", "json")]);
    let line = lines.iter().find(|line| line.contains("SNI")).expect("it was asked for");
    assert!(line.len() <= MAX_LINE_BYTES, "{line}");
    let read: Value = serde_json::from_str(line).unwrap();
    assert!(read["message"].as_str().unwrap().ends_with(" bytes are left out)"), "{line}");
    assert_eq!(read["level"], "WARN");
}
