//! Chromium, controlled through a pair of pipes with the DevTools protocol
//! (<https://chromedevtools.github.io/devtools-protocol/>). Commands and answers are JSON objects,
//! each followed by a zero byte. There is no driver and no socket.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::process::ChildServer;
use crate::tools;

/// Timeout of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A running browser.
pub(crate) struct Browser {
    commands: File,
    answers: Receiver<Value>,
    /// Recent events, kept for debugging.
    recent_events: VecDeque<Value>,
    next: u64,
    _running: ChildServer,
}

impl Browser {
    /// Starts Chromium with a profile of its own, installing it if it is missing.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        if tools::find("chromium").is_none() {
            tools::apt("chromium")?;
        }
        let (down, up) = (folder.join("down"), folder.join("up"));
        for pipe in [&down, &up] {
            tools::run(Command::new("mkfifo").arg(pipe))?;
        }
        let mut command = Command::new("sh");
        // The shell opens the pipes under the file descriptors that Chromium expects, then becomes
        // Chromium.
        command.args(["-c", r#"exec "$0" "$@" 3<"$DOWN" 4>"$UP""#, "chromium"]);
        command.args(["--headless", "--remote-debugging-pipe", "--no-first-run", "--no-sandbox"]);
        command.args(["--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]);
        command.args(["--disable-background-networking", "--disable-component-update"]);
        command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
        command.arg("about:blank").env("DOWN", &down).env("UP", &up);
        let running = ChildServer::start("chromium", &mut command, &folder.join("chromium.log"))?;
        let commands = File::options().write(true).open(&down)?;
        let incoming = BufReader::new(File::open(&up)?);
        let (tell, answers) = mpsc::channel();
        thread::spawn(move || {
            for message in incoming.split(0).map_while(std::io::Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { break };
                if tell.send(message).is_err() {
                    break;
                }
            }
        });
        Ok(Self { commands, answers, recent_events: VecDeque::new(), next: 0, _running: running })
    }

    /// Calls a method of the browser or of a page.
    pub(crate) fn call(&mut self, page: Option<&str>, method: &str, asked: Value) -> Result<Value> {
        self.next += 1;
        let id = self.next;
        let mut message = json!({ "id": id, "method": method, "params": asked });
        if let (Some(page), Some(fields)) = (page, message.as_object_mut()) {
            fields.insert("sessionId".to_owned(), Value::from(page));
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes)?;
        loop {
            let answer = self.answers.recv_timeout(ANSWER_TIMEOUT);
            let mut answer =
                answer.with_context(|| format!("the browser is silent at {method}"))?;
            if answer.get("id").and_then(Value::as_u64) != Some(id) {
                // Events are not used; a few are kept for debugging.
                self.recent_events.push_back(answer);
                self.recent_events.truncate(100);
                continue;
            }
            if let Some(error) = answer.get("error") {
                bail!("{method}: {error}");
            }
            return Ok(answer.get_mut("result").map(Value::take).unwrap_or_default());
        }
    }
}
