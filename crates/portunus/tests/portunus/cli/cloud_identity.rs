//! A gateway process with the role of its instance, in front of the simulated provider.

use super::*;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const SECRET_KEY: &str = "canary/secret+key+of+the+instance";
const SESSION: &str = "canary-session-token-of-the-instance";

/// The metadata service of an instance.
struct Metadata {
    url: String,
    works: Arc<AtomicBool>,
    requests: Arc<AtomicUsize>,
}

impl Metadata {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (works, requests) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (working, counted) = (Arc::clone(&works), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (working, counted) = (Arc::clone(&working), Arc::clone(&counted));
                std::thread::spawn(move || answer(stream, &working, &counted));
            }
        });
        Self { url, works, requests }
    }
}

fn answer(mut stream: TcpStream, works: &AtomicBool, requests: &AtomicUsize) {
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if lines.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        requests.fetch_add(1, Ordering::SeqCst);
        let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let session = head.to_lowercase().contains("x-aws-ec2-metadata-token: imds-session");
        let end = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() + 3_600).unwrap();
        let keys = json!({ "Code": "Success", "AccessKeyId": "ASIACANARY", "Token": SESSION,
            "SecretAccessKey": SECRET_KEY, "Expiration": end.to_string() });
        let (status, body) = match (works.load(Ordering::SeqCst), target.as_str(), session) {
            (false, ..) => (500, "no metadata today".to_owned()),
            (true, "/latest/api/token", _) if head.starts_with("PUT ") => {
                (200, "imds-session".to_owned())
            }
            (true, "/latest/meta-data/iam/security-credentials/", true) => (200, "role".to_owned()),
            (true, "/latest/meta-data/iam/security-credentials/role", true) => {
                (200, keys.to_string())
            }
            (true, ..) => (401, "no".to_owned()),
        };
        let length = body.len();
        let sent = write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}");
        if sent.is_err() {
            return;
        }
    }
}

/// Sends a request with curl; the status and the body.
fn curl(arguments: &[&str]) -> (String, String) {
    let output = Command::new("curl")
        .args(["-s", "-S", "-w", "\n%{http_code}"])
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.to_owned(), body.to_owned())
}

#[test]
fn a_process_calls_with_the_role_of_its_instance_and_tells_when_it_cannot() {
    let folder = Folder::new("instance-role");
    let metadata = Metadata::start();
    let mut simulated = program(&folder)
        .args(["simulate", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut greeting = String::new();
    BufReader::new(simulated.stdout.take().unwrap()).read_line(&mut greeting).unwrap();
    let upstream = greeting.trim().rsplit(' ').next().unwrap();
    let config = format!(
        "[providers.cloud]\nspeaks = \"chat\"\nbase = \"{upstream}\"\n\
         auth = {{ sigv4 = {{ region = \"eu-west-1\", from = \"default\" }} }}\n\
         [models.m]\nlanes = [\"cloud/demo-chat\"]\nprice = {{ input = \"1\", output = \"1\" }}\n"
    );
    std::fs::write(folder.0.join("p.toml"), config).unwrap();
    let key = folder.json(&["keys", "create", "--name", "k", "--unlimited", "--json"]);
    let admin = folder.json(&["keys", "create", "--name", "a", "--scope", "admin", "--json"]);
    let bearer = |key: &Value| format!("Authorization: Bearer {}", key["key"].as_str().unwrap());
    let (key, admin) = (bearer(&key), bearer(&admin));
    let mut child = program(&folder)
        .args(["serve", "--config", "p.toml", "--listen", "127.0.0.1:0"])
        .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &metadata.url)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = log_lines(&mut child);
    let mut greeting = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let url = loop {
        assert!(lines.read_line(&mut greeting).unwrap() > 0, "{greeting}");
        if let Some(url) = greeting.split_whitespace().find(|word| word.starts_with("http://")) {
            break url.to_owned();
        }
    };
    let body = r#"{"model":"m","messages":[{"role":"user","content":"Hi"}]}"#;
    let chat = format!("{url}/v1/chat/completions");
    let call = || curl(&["-H", &key, "-H", "Content-Type: application/json", "-d", body, &chat]);
    let ready = || curl(&[&format!("{url}/readyz?verbose")]);

    // Without a call, the gateway finds out that there are no keys, and stays ready for others.
    assert!(
        holds_soon(|| ready().1.contains(r#""name":"credentials","state":"warning""#)),
        "{:?}",
        ready()
    );
    assert_eq!(ready().0, "200");
    let warned = log.wait_for("no AWS credentials");
    assert!(warned.contains("answered 500"), "{warned}");
    let (status, said) = call();
    assert_eq!(status, "503", "{said}");
    assert!(!said.contains("AWS") && !said.contains("127.0.0.1"), "{said}");
    let (_, health) = curl(&["-H", &admin, &format!("{url}/api/admin/health")]);
    assert!(health.contains("`cloud` has no credential 1: "), "{health}");
    assert!(health.contains("no AWS credentials: "), "{health}");
    let (_, shown) = curl(&["-H", &admin, &format!("{url}/api/admin/providers/cloud")]);
    assert!(shown.contains("\"credential_troubles\":[{\"credential\":0"), "{shown}");
    let check = format!("{url}/api/admin/providers/cloud/check");
    let (_, checked) = curl(&["-H", &admin, "-X", "POST", &check]);
    assert!(checked.contains("no AWS credentials: "), "{checked}");

    // The service comes back. Nobody restarts anything.
    metadata.works.store(true, Ordering::SeqCst);
    assert!(holds_soon(|| call().0 == "200"), "{:?}", call());
    assert!(
        holds_soon(|| ready().1.contains(r#""name":"credentials","state":"good""#)),
        "{:?}",
        ready()
    );
    let fetched = metadata.requests.load(Ordering::SeqCst);
    for _ in 0..5 {
        assert_eq!(call().0, "200");
    }
    assert_eq!(metadata.requests.load(Ordering::SeqCst), fetched, "the keys are kept");
    let (_, checked) = curl(&["-H", &admin, "-X", "POST", &check]);
    assert!(checked.contains("it works"), "{checked}");
    for text in [health, shown, checked, said] {
        assert!(!text.contains("canary"), "{text}");
    }
    assert_eq!(terminate(child), Some(0));
    while let Ok(line) = log.0.recv() {
        assert!(!line.contains("canary"), "{line}");
    }
    simulated.kill().unwrap();
    simulated.wait().unwrap();
}
