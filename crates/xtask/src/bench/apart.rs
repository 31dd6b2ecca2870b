//! What is measured apart from the loads: the memory of streams that stand open and say nothing,
//! and what the ledger alone costs.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::report::{Goal, Row};
use super::targets::{IDLE, Stage, Target};
use super::usage;
use crate::gateway::Server;
use crate::process::Scratch;
use crate::tools::{self, cargo};
use crate::workspace;

const IDLE_KIB: Goal = Goal::value(16.0, 64.0);
const LEDGER_US: Goal = Goal::value(5.0, 10.0);
/// How many streams stand open. Each takes two connections of a proxy, and a process may not have
/// many more on a machine nobody has set up for it.
const STREAMS: u16 = 300;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How much memory a stream takes that has begun and fallen silent.
pub(super) fn idle_streams(stage: &Stage, nginx: &Server, gateway: &Server) -> Result<Row> {
    let per_stream = |target: Target, server: &Server| -> Result<f64> {
        let before = usage::memory(server.running.id())?;
        let mut open = Vec::new();
        for _ in 0..STREAMS {
            open.push(begin(stage, target, server.address)?);
        }
        // What was only needed to begin is given back by then.
        thread::sleep(Duration::from_secs(1));
        let after = usage::memory(server.running.id())?;
        Ok((after - before) * 1e6 / 1024.0 / f64::from(STREAMS))
    };
    let nginx = per_stream(Target::Nginx, nginx)?;
    let gateway = per_stream(Target::Gateway, gateway)?;
    Ok(Row {
        what: "memory per idle open stream, KiB".into(),
        direct: None,
        nginx: Some(nginx),
        gateway: Some(gateway),
        ratio: None,
        goal: Some(IDLE_KIB),
    })
}

/// Begins a stream and reads its first event.
fn begin(stage: &Stage, target: Target, address: SocketAddr) -> Result<TcpStream> {
    let body = json!({
        "model": IDLE,
        "messages": [{ "role": "user", "content": "[[fault: stall-between after=3]] Hello." }],
        "stream": true,
    });
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&stage.request(target, IDLE, address, &body.to_string()))?;
    let (mut read, mut piece) = (Vec::new(), [0; 4096]);
    while !read.windows(6).any(|window| window == b"data: ") {
        let count = stream.read(&mut piece).context("a stream that should begin")?;
        ensure!(count > 0, "a stream ended: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
    Ok(stream)
}

/// What the money of one call costs: a hold, from its size on, and a settlement, both journalled.
pub(super) fn ledger(stage: &Stage) -> Result<Row> {
    let build = ["build", "--profile", "dist", "-p", "portunus", "--example", "hold_cost"];
    tools::run(&mut cargo(&build))?;
    let program = workspace::target().join("dist/examples/hold_cost");
    let scratch = Scratch::new("hold-cost")?;
    let mut command: Command = crate::gateway::pinned(&program, stage.cores());
    let output = command.arg(scratch.path().join("journal")).output()?;
    let told = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(Row {
        what: "sizing, hold, journal and settlement: processor µs/call".into(),
        direct: None,
        nginx: None,
        gateway: Some(told.trim().parse().context("hold_cost printed no figure")?),
        ratio: None,
        goal: Some(LEDGER_US),
    })
}
