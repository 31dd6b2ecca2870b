//! `cargo xtask instructions`: user instructions per call, counted by callgrind on the binary to hand
//! out. Unlike times they hardly depend on the machine and its load, so that a change of one percent
//! is visible.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::gateway::{Binary, Server, free_address};
use crate::http::{self, Client};
use crate::process::{ChildServer, Signal, TempFolder};
use crate::tools::{self, cargo};
use crate::workspace;

/// The function that serves a connection: a call without posting and other background work.
const MEASURED: &str = "transport::server::serve_http::{{closure}}";
/// Measured calls of each kind.
const CALLS: u32 = 100;
/// Calls before them, which open connections and fill caches.
const FIRST_CALLS: u32 = 30;
/// Time in which background work of the calls ends.
const REST: Duration = Duration::from_secs(1);
/// Timeout from start to first answer. callgrind takes about fifty times as long.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// One kind of call.
struct MeasuredCall {
    name: &'static str,
    path: &'static str,
    /// The model, which decides on the format of the provider.
    model: &'static str,
    stream: bool,
}

const CALLS_BY_KIND: [MeasuredCall; 6] = [
    call("chat to chat", "/v1/chat/completions", "chat", false),
    call("chat to chat, burst", "/v1/chat/completions", "chat", true),
    call("chat to messages", "/v1/chat/completions", "messages", false),
    call("chat to messages, burst", "/v1/chat/completions", "messages", true),
    call("messages to chat", "/v1/messages", "chat", false),
    call("messages to chat, burst", "/v1/messages", "chat", true),
];

const fn call(
    name: &'static str,
    path: &'static str,
    model: &'static str,
    stream: bool,
) -> MeasuredCall {
    MeasuredCall { name, path, model, stream }
}

impl MeasuredCall {
    fn body(&self) -> String {
        let words = "The harbour opens at dawn and every ship pays at the gate. ";
        let prompt: String = words.chars().cycle().take(900).collect();
        let body = json!({
            "model": self.model,
            "messages": [{ "role": "user", "content": prompt }],
            "max_tokens": 1024,
            "stream": self.stream,
        });
        body.to_string()
    }
}

/// Counts the instructions of each kind of call and prints them.
pub(crate) fn run() -> Result<()> {
    let valgrind = tools::valgrind()?;
    tools::run(&mut cargo(&["build", "--profile", "dist", "-p", "portunus"]))?;
    let folder = TempFolder::new("instructions")?;
    let binary = Binary { path: workspace::target().join("dist/portunus"), cores: None };
    let data = folder.path().join("data");
    let key = binary.create_capped_key(&data, "1000000")?;
    let upstream = free_address()?;
    let mut simulate = binary.simulate(upstream, &["--canned"]);
    let log = folder.path().join("upstream.log");
    let upstream = Server::start("portunus simulate", &mut simulate, upstream, "/", &log)?;
    let config = folder.path().join("gateway.toml");
    fs::write(&config, gateway_config(upstream.address))?;

    let counts = folder.path().join("counts");
    let address = free_address()?;
    // One processor, and so one thread that serves calls.
    let mut command = Command::new("taskset");
    command
        .args(["-c", "0"])
        .arg(&valgrind)
        .args(["--tool=callgrind", "-q"])
        .arg(format!("--callgrind-out-file={}", counts.display()));
    let serve = binary.serve(address, &data, Some(&config));
    command.arg(serve.get_program()).args(serve.get_args());
    let mut gateway =
        ChildServer::start("portunus serve", &mut command, &folder.path().join("gateway.log"))?;
    gateway.wait_until(START_TIMEOUT, || http::status(address, "/healthz") == Some(200))?;

    for (kind, number) in CALLS_BY_KIND.iter().zip(1..) {
        let request = http::post(address, kind.path, &key, &kind.body());
        repeat(address, &request, FIRST_CALLS)?;
        write_counts(gateway.id())?;
        repeat(address, &request, CALLS)?;
        write_counts(gateway.id())?;
        let file = format!("{}.{}", counts.display(), 2 * number);
        println!("{:9} {}", inclusive(Path::new(&file))? / u64::from(CALLS), kind.name);
    }
    gateway.stop(Signal::Term)?;
    upstream.running.stop(Signal::Term)?;
    Ok(())
}

/// Sends a request several times on one connection.
fn repeat(address: SocketAddr, request: &[u8], times: u32) -> Result<()> {
    let (mut client, mut body) = (Client::open(address)?, Vec::new());
    for _ in 0..times {
        let answer = client.exchange(request, &mut body)?;
        ensure!(answer.status == 200, "{}: {}", answer.status, String::from_utf8_lossy(&body));
    }
    thread::sleep(REST);
    Ok(())
}

/// Writes the counts since the last time to a file.
fn write_counts(process: u32) -> Result<()> {
    let output = Command::new("callgrind_control").arg("-d").arg(process.to_string()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Returns the instructions of the measured function and of what it calls.
fn inclusive(counts: &Path) -> Result<u64> {
    let text =
        fs::read_to_string(counts).with_context(|| format!("reading {}", counts.display()))?;
    // Each name is written once, behind its number, and later by its number only.
    let mut names: HashMap<&str, &str> = HashMap::new();
    let (mut is_measured, mut total) = (false, 0);
    for line in text.lines() {
        let caller = line.strip_prefix("fn=");
        if let Some(function) = caller.or_else(|| line.strip_prefix("cfn=")) {
            let (number, name) = function.split_once(' ').unwrap_or((function, ""));
            if !name.is_empty() {
                names.insert(number, name);
            }
            if caller.is_some() {
                is_measured = names.get(number) == Some(&MEASURED);
            }
        } else if is_measured
            && line.starts_with(|byte: char| byte.is_ascii_digit() || "+-*".contains(byte))
        {
            let cost = line.split_ascii_whitespace().nth(1).and_then(|cost| cost.parse().ok());
            total += cost.unwrap_or(0);
        }
    }
    ensure!(total > 0, "callgrind counted no `{MEASURED}`");
    Ok(total)
}

fn gateway_config(upstream: SocketAddr) -> String {
    let entry = |format: &str| {
        format!(
            r#"[providers.{format}]
speaks = "{format}"
base = "http://{upstream}"
auth = "none"

[models.{format}]
lanes = ["{format}/{format}"]
price = {{ input = "1.00", output = "2.00" }}

"#
        )
    };
    ["chat", "messages"].map(entry).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_the_measured_function_are_added() {
        let folder = TempFolder::new("counts").unwrap();
        let file = folder.path().join("counts.1");
        let text = format!(
            "fn=(1) {MEASURED}\n0 5\ncfn=(2) other\ncalls=1 0\n0 30\nfn=(2)\n0 30\nfn=(1)\n+3 7\n"
        );
        fs::write(&file, text).unwrap();
        assert_eq!(inclusive(&file).unwrap(), 42);
    }
}
