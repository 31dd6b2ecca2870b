//! Signals to a running process.

use super::drain::Process;
use super::raw_client::{CHAT, Caller};
use serde_json::json;
use std::process::Command;
use testkit::{ScriptedProvider, chat_reply, until};

/// Asks once and tells which credential the provider was shown.
async fn shown(process: &Process, provider: &ScriptedProvider) -> String {
    let body =
        json!({ "model": "m", "messages": [{ "role": "user", "content": "x" }] }).to_string();
    let mut caller = Caller::at(&process.address).await;
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        process.key,
        body.len()
    );
    caller.send([head.as_bytes(), body.as_bytes()].concat()).await;
    assert_eq!(caller.answer().await.unwrap().status, 200);
    let asked = provider.requests().pop().unwrap().head.to_ascii_lowercase();
    let line = asked.lines().find_map(|line| line.strip_prefix("authorization: bearer "));
    line.unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sighup_reads_the_configuration_and_its_secrets_anew() {
    let provider = ScriptedProvider::start(vec![chat_reply("hi", 1, 1)]).await;
    let folder = std::env::temp_dir().join(format!("portunus-hangup-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let config = provider.config("chat");
    let config = config.replace("\"none\"", "{ bearer = { file = \"secret\" } }");
    std::fs::write(folder.join("p.toml"), config).unwrap();
    // The secret's file is not watched; only the signal reloads it.
    std::fs::write(folder.join("secret"), "before\n").unwrap();
    let process = Process::spawn(Command::new(env!("CARGO_BIN_EXE_portunus")), folder.clone());
    assert_eq!(shown(&process, &provider).await, "before");
    std::fs::write(folder.join("secret"), "after\n").unwrap();
    assert_eq!(shown(&process, &provider).await, "before");
    process.signal("-HUP");
    until("the new secret is used", async || shown(&process, &provider).await == "after").await;
    // An unreadable secret leaves the last good one in force; the next signal reads it again.
    std::fs::write(folder.join("secret"), "").unwrap();
    process.signal("-HUP");
    assert_eq!(shown(&process, &provider).await, "after");
    std::fs::write(folder.join("secret"), "mended\n").unwrap();
    process.signal("-HUP");
    until("the next secret is used", async || shown(&process, &provider).await == "mended").await;
}
