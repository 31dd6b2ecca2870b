//! `portunus directory`: bundles over the built-in model directory, made, signed and installed.

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;

use super::{Folder, fails, holds_soon, serve, terminate};

/// A bundle that makes demo-chat ten times as dear and adds a model.
const BUNDLE: &str = "version = 5\nas_of = \"2026-11-17\"\n\
    [[models]]\nprovider = \"demo\"\nid = \"demo-chat\"\nprice = { input = \"1.00\", output = \"4.00\" }\n\
    [[models]]\nprovider = \"demo\"\nid = \"demo-fresh\"\nkind = \"chat\"\n\
    features = [\"streaming\"]\ninput = [\"text\"]\noutput = [\"text\"]\ncontext = 9000\nspeaks = [\"chat\"]\n\
    about = \"A demo model that only this bundle has.\"\nprice = { input = \"2\", output = \"2\" }\n";

fn said(folder: &Folder, arguments: &[&str]) -> String {
    let output = folder.run(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Signs a text as `signed.toml` with the folder's key.
fn sign(folder: &Folder, text: &str) {
    std::fs::write(folder.0.join("bundle.toml"), text).unwrap();
    let arguments =
        ["directory", "sign", "bundle.toml", "--key", "key.pem", "--out", "signed.toml", "--force"];
    let told = said(folder, &arguments);
    assert!(told.starts_with("signed.toml: version "), "{told}");
}

fn new_key(folder: &Folder) -> String {
    said(folder, &["directory", "new-key", "key.pem"]).trim().to_owned()
}

#[test]
fn a_bundle_is_made_signed_tried_installed_shown_and_removed() {
    let folder = Folder::new("directory");
    let key = new_key(&folder);
    assert!(key.starts_with("ed25519:"), "{key}");
    fails(&folder.run(&["directory", "new-key", "key.pem"]), 1, "key.pem cannot be written");
    let empty = said(&folder, &["directory", "show"]);
    assert!(empty.contains("bundle: none; ") && empty.contains("trusted keys: none; "), "{empty}");
    assert!(said(&folder, &["directory", "remove"]).contains("there is no bundle"));
    sign(&folder, BUNDLE);
    let update = ["directory", "update", "signed.toml"];
    fails(&folder.run(&update), 1, "portunus directory new-key FILE");
    let with_key = [&update[..], &["--key", &key]].concat();
    let tried = said(&folder, &[&with_key[..], &["--dry-run"]].concat());
    assert!(tried.contains("up    demo/demo-chat  input: 0.1 -> 1 USD per 1M tokens"), "{tried}");
    assert!(tried.contains("new   demo-fresh"), "{tried}");
    assert!(tried.contains("1 model changed, 1 added, 0 removed; 2 prices up, 0 down"), "{tried}");
    assert!(tried.contains("nothing is written"), "{tried}");
    assert!(said(&folder, &["directory", "show"]).contains("bundle: none"));
    assert!(said(&folder, &with_key).contains("installed; "));
    let shown = said(&folder, &["directory", "show"]);
    assert!(shown.contains(&format!("version 5 of 2026-11-17, signed by {key}")), "{shown}");
    let json: Value = folder.json(&["directory", "show", "--json"]);
    assert_eq!((&json["bundle"]["version"], &json["bundle"]["issue"]), (&5.into(), &Value::Null));
    assert_eq!(json["changes"]["added"][0], "demo-fresh");
    // The key of the option was for that update only.
    fails(&folder.run(&update), 1, "no key is trusted");
    fails(&folder.run(&with_key), 1, "version 5 is not newer than the installed version 5");
    sign(&folder, &BUNDLE.replace("version = 5", "version = 4"));
    fails(&folder.run(&with_key), 1, "version 4 is not newer than the installed version 5");
    // The key of the configuration is for every update.
    std::fs::write(folder.0.join("p.toml"), format!("[directory]\nkeys = [\"{key}\"]\n")).unwrap();
    sign(&folder, &BUNDLE.replace("version = 5", "version = 6").replace("\"1.00\"", "\"3.00\""));
    let told = said(&folder, &[&update[..], &["--config", "p.toml"]].concat());
    assert!(told.contains("1 model changed, 0 added, 0 removed; 1 price up, 0 down"), "{told}");
    let audit = said(&folder, &["audit", "--action", "directory"]);
    assert_eq!(audit.lines().count(), 2, "{audit}");
    assert!(audit.contains("directory.update") && audit.contains(&key), "{audit}");

    let backup = folder.run(&["backup", "copy.db"]);
    assert!(backup.status.success(), "{backup:?}");
    let other = Folder::new("directory-restored");
    std::fs::copy(folder.0.join("copy.db"), other.0.join("copy.db")).unwrap();
    assert!(other.run(&["restore", "copy.db"]).status.success());
    assert_eq!(other.json(&["directory", "show", "--json"])["bundle"]["version"], 6);

    assert!(said(&folder, &["directory", "remove"]).contains("the bundle is removed"));
    assert!(said(&folder, &["directory", "show"]).contains("bundle: none"));
    assert!(said(&folder, &["audit", "--action", "directory.remove"]).contains("directory.remove"));
    // The versions before are remembered.
    sign(&folder, BUNDLE);
    fails(&folder.run(&with_key), 1, "version 5 is not newer than version 6, which was installed");
    assert!(said(&folder, &[&with_key[..], &["--allow-older"]].concat()).contains("installed; "));
    assert_eq!(folder.json(&["directory", "show", "--json"])["bundle"]["version"], 5);
    sign(&folder, &BUNDLE.replace("version = 5", "version = 6"));
    fails(&folder.run(&with_key), 1, "version 6 is not newer than version 6");
    sign(&folder, &BUNDLE.replace("version = 5", "version = 7"));
    assert!(said(&folder, &with_key).contains("installed; "));
}

#[test]
fn signing_replaces_no_file_that_was_not_named_for_it() {
    let folder = Folder::new("directory-sign");
    new_key(&folder);
    let write = |name: &str, text: &str| std::fs::write(folder.0.join(name), text).unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.0.join(name)).unwrap();
    write("bundle.toml", BUNDLE);
    write("other.toml", "mine");
    std::fs::hard_link(folder.0.join("key.pem"), folder.0.join("same.pem")).unwrap();
    let pem = read("key.pem");
    let sign = |out: &[&str]| {
        let sign = ["directory", "sign", "bundle.toml", "--key", "key.pem"];
        folder.run(&[&sign[..], out].concat())
    };
    for out in ["key.pem", "same.pem", "./key.pem"] {
        for force in [&[][..], &["--force"]] {
            fails(&sign(&[&["--out", out][..], force].concat()), 1, "is the private key");
        }
    }
    assert_eq!(read("key.pem"), pem);
    fails(&sign(&["--out", "other.toml"]), 1, "other.toml exists; --force replaces it");
    assert_eq!(read("other.toml"), "mine");
    assert!(sign(&["--out", "other.toml", "--force"]).status.success());
    assert!(sign(&["--out", "new.toml"]).status.success());
    assert!(sign(&["--out", "bundle.toml"]).status.success() && sign(&[]).status.success());
    for name in ["other.toml", "new.toml", "bundle.toml"] {
        assert!(read(name).ends_with(BUNDLE), "{name}");
    }
}

#[test]
fn a_bundle_that_must_not_be_installed_is_refused_with_the_reason() {
    let folder = Folder::new("directory-refused");
    let key = new_key(&folder);
    let refused = |cause: &str| {
        let update = ["directory", "update", "signed.toml", "--key", &key];
        fails(&folder.run(&update), 1, cause);
    };
    sign(&folder, BUNDLE);
    let signed = std::fs::read_to_string(folder.0.join("signed.toml")).unwrap();
    let write = |text: &str| std::fs::write(folder.0.join("signed.toml"), text).unwrap();
    write(&signed.replace("\"4.00\"", "\"0.04\""));
    refused("the signature is wrong");
    write(BUNDLE);
    refused("the bundle is not signed");
    assert!(folder.run(&["directory", "new-key", "other.pem"]).status.success());
    said(&folder, &["directory", "sign", "signed.toml", "--key", "other.pem"]);
    refused("which is not trusted");
    // A wrong bundle is not even signed. One that another tool signed is refused too.
    let wrong = BUNDLE.replace("\"4.00\"", "\"-4.00\"");
    std::fs::write(folder.0.join("bundle.toml"), &wrong).unwrap();
    let arguments = ["directory", "sign", "bundle.toml", "--key", "key.pem"];
    fails(&folder.run(&arguments), 1, "below zero");
    let pem = std::fs::read(folder.0.join("key.pem")).unwrap();
    let signer = config::DirectorySigner::from_pem(&pem).unwrap();
    let unsigned = |text: &str, cause: &str| {
        std::fs::write(folder.0.join("bundle.toml"), text).unwrap();
        fails(&folder.run(&arguments), 1, cause);
    };
    for (from, to, cause) in [
        ("\"4.00\"", "\"-4.00\"", "below zero"),
        ("\"demo\"", "\"nobody\"", "there is no provider `nobody`"),
        ("context", "contxt", "unknown field `contxt`"),
        (
            "kind = ",
            "base = \"https://evil.example\"\nkind = ",
            "where requests and credentials go",
        ),
        ("as_of = \"2026-11-17\"", "as_of = \"2999-01-01\"", "is in the future"),
        ("[\"streaming\"]", "[\"streaming\", \"vision\"]", "the feature `vision`"),
        ("\"4.00\"", "\"4000\"", "a price is beyond what exists"),
        ("version = 5\n", "", "missing field `version`"),
    ] {
        assert!(BUNDLE.contains(from), "{from}");
        unsigned(&BUNDLE.replace(from, to), cause);
        write(&signer.sign(&BUNDLE.replace(from, to)).unwrap());
        refused(cause);
    }
    let foreign = BUNDLE.replace("\"demo\"\nid = \"demo-fresh\"", "\"groq\"\nid = \"demo-fresh\"");
    let foreign = foreign.replace("[\"chat\"]", "[\"native\"]");
    unsigned(&foreign, "`speaks` names native, which the provider does not speak");
    write(&signer.sign(&foreign).unwrap());
    refused("`speaks` names native, which the provider does not speak");
    write(&"x".repeat(3 << 20));
    refused("larger than");
    // A device or a pipe may never end.
    let pipe = Command::new("mkfifo").arg(folder.0.join("pipe")).status().unwrap();
    assert!(pipe.success());
    for endless in ["/dev/zero", "pipe", "."] {
        let update = ["directory", "update", endless, "--key", &key];
        fails(&folder.run(&update), 1, "it is no regular file");
    }
    let plain = ["directory", "update", "http://127.0.0.1:1/x", "--key", &key];
    fails(&folder.run(&plain), 1, "give a file or an https URL");
    fails(&folder.run(&["directory", "update", "missing", "--key", &key]), 1, "cannot be read");
    fails(&folder.run(&["directory", "update", "missing", "--key", "x"]), 2, "not a public key");
    // A new model may have the alias of one in the file.
    let file = "[models.m]\nlanes = [\"demo/demo-chat\"]\naliases = [\"demo-fresh\"]\n";
    std::fs::write(folder.0.join("p.toml"), file).unwrap();
    write(&signed);
    let update = ["directory", "update", "signed.toml", "--key", &key, "--config", "p.toml"];
    fails(&folder.run(&update), 1, "`demo-fresh` is already taken");
    assert!(said(&folder, &["directory", "show"]).contains("bundle: none"));
    assert_eq!(said(&folder, &["audit", "--action", "directory"]), "");
}

#[test]
fn a_running_gateway_takes_a_bundle_up_and_gives_it_back_without_a_restart() {
    let folder = Folder::new("directory-running");
    let key = new_key(&folder);
    sign(&folder, BUNDLE);
    let (child, greeting) = serve(&folder, "127.0.0.1:0");
    let curl = greeting.split_once("Try it:").unwrap().1.trim().to_owned();
    let cost = || {
        let curl = format!("{curl} -s -i");
        let output = Command::new("sh").args(["-c", &curl]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let cost = text.lines().find_map(|line| line.strip_prefix("x-portunus-cost: "));
        cost.and_then(|cost| cost.trim().parse::<f64>().ok())
    };
    let address = greeting.split_once("API").unwrap().1.split_whitespace().next().unwrap();
    let lists_fresh = || {
        let output = Command::new("curl").args(["-s", &format!("{address}/models")]).output();
        String::from_utf8(output.unwrap().stdout).unwrap().contains("demo-fresh")
    };
    let before = cost().unwrap();
    assert!(!lists_fresh());
    assert!(folder.run(&["directory", "update", "signed.toml", "--key", &key]).status.success());
    assert!(holds_soon(lists_fresh));
    let after = cost().unwrap();
    assert!((after / before - 10.0).abs() < 1e-6, "{before} {after}");
    assert!(folder.run(&["directory", "remove"]).status.success());
    assert!(holds_soon(|| !lists_fresh()));
    assert_eq!(cost(), Some(before));
    assert_eq!(terminate(child), Some(0));
}

/// Serves one answer for each connection over TLS and returns its port.
fn serve_https(folder: &Folder, answers: Vec<Vec<u8>>) -> u16 {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(folder.0.join("ca.pem"), certificate.pem()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for answer in answers {
            let (socket, _) = listener.accept().unwrap();
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, socket);
            let _ = stream.read(&mut [0; 4096]);
            // The client may close a connection whose answer is too large.
            let _ = stream.write_all(&answer).and_then(|()| stream.flush());
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    port
}

#[test]
fn a_bundle_is_downloaded_within_its_limits_and_over_https_only() {
    let folder = Folder::new("directory-url");
    let key = new_key(&folder);
    sign(&folder, BUNDLE);
    let signed = std::fs::read(folder.0.join("signed.toml")).unwrap();
    let answer = |status: &str, body: &[u8]| {
        let head = format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    };
    let moved = b"HTTP/1.1 302 Found\r\nlocation: http://localhost/x\r\ncontent-length: 0\r\n\r\n";
    let endless =
        [&b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"[..], &vec![b'#'; 4 << 20]].concat();
    let answers = vec![
        answer("404 Not Found", b"nothing"),
        moved.to_vec(),
        endless,
        answer("200 OK", &signed),
    ];
    let port = serve_https(&folder, answers);
    let trust = format!("[directory]\nkeys = [\"{key}\"]\n[outbound]\nca = \"ca.pem\"\n");
    std::fs::write(folder.0.join("p.toml"), trust).unwrap();
    let url = format!("https://localhost:{port}/bundle.toml");
    let update = ["directory", "update", &url, "--config", "p.toml"];
    fails(&folder.run(&update), 1, "the server answered 404");
    fails(&folder.run(&update), 1, "not https");
    fails(&folder.run(&update), 1, "larger than");
    assert!(said(&folder, &update).contains("installed; "));
    fails(&folder.run(&update), 1, "cannot be downloaded");
}
