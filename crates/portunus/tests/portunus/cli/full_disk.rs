//! The program on a full disk: money of settled calls is stored later, or named when it is lost.

use serde_json::json;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use super::{Folder, log_lines, terminate};

/// Sets how far the files of a process may grow. It stands for the space on its disk.
fn limit_files(child: &Child, limit: &str) {
    let arguments = [format!("--pid={}", child.id()), format!("--fsize={limit}:")];
    assert!(Command::new("prlimit").args(arguments).status().unwrap().success());
}

#[test]
fn a_call_settled_on_a_full_disk_is_stored_later_or_named_at_the_end() {
    for has_space_later in [true, false] {
        let folder = Folder::new(&format!("full-{has_space_later}"));
        let upstream = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let config = format!(
            "[timeouts]\ndrain = \"1s\"\n[providers.p]\nspeaks = \"chat\"\nbase = \"http://{}\"\n\
             auth = \"none\"\n[models.m]\nlanes = [\"p/m\"]\nprice = {{ input = \"3.00\", output = \
             \"15.00\" }}\ncontext = 200000\nmax_output = 8192\n",
            upstream.local_addr().unwrap()
        );
        std::fs::write(folder.0.join("portunus.toml"), config).unwrap();
        let made = folder.json(&["keys", "create", "--name", "k", "--unlimited", "--json"]);
        let key = made["key"].as_str().unwrap();
        // A write beyond the limit is to fail, not to end the process.
        let script = "trap '' XFSZ; exec \"$0\" serve --config portunus.toml --listen 127.0.0.1:0";
        let mut child = Command::new("sh")
            .args(["-c", script, env!("CARGO_BIN_EXE_portunus")])
            .current_dir(&folder.0)
            .env_clear()
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = log_lines(&mut child);
        let greeting = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let url = greeting
            .filter_map(|line| Some(line.split_once("  API      ")?.1.trim().to_owned()))
            .next()
            .unwrap();
        let caller = Command::new("curl")
            .args(["-s", "-i", &format!("{url}/v1/chat/completions"), "-H"])
            .args([&format!("Authorization: Bearer {key}"), "-H", "Content-Type: application/json"])
            .args(["-d", r#"{"model":"m","messages":[{"role":"user","content":"Hello!"}]}"#])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut connection, _) = upstream.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            let mut piece = [0; 4_096];
            let count = connection.read(&mut piece).unwrap();
            assert!(count > 0, "the request ended");
            request.extend_from_slice(&piece[..count]);
        }
        limit_files(&child, "1");
        let answer = json!({
            "id": "c", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{ "index": 0, "finish_reason": "stop",
                "message": { "role": "assistant", "content": "Hi." } }],
            "usage": { "prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20 },
        });
        let answer = answer.to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        connection.write_all(format!("{head}{answer}").as_bytes()).unwrap();
        let got = String::from_utf8(caller.wait_with_output().unwrap().stdout).unwrap();
        assert!(got.starts_with("HTTP/1.1 200"), "{got}");
        let id = got.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap().trim();
        log.wait_for("settled calls could not be stored");
        if has_space_later {
            limit_files(&child, "unlimited");
            assert_eq!(terminate(child), Some(0));
            let exported = folder.json(&["ledger", "export"]);
            assert_eq!(
                (&exported["request_id"], &exported["outcome"]),
                (&id.into(), &"done".into())
            );
            assert_eq!(exported["cost_usd"], "0.000180000");
        } else {
            Command::new("kill").arg(child.id().to_string()).status().unwrap();
            let line = log.wait_for("neither in the database nor in the journal");
            assert!(line.contains(id), "{line}");
            assert_eq!(child.wait().unwrap().code(), Some(1));
        }
    }
}
