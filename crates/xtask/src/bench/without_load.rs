//! Measurements without load: memory of idle streams, and the cost of the ledger alone.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::report::{FigureRow, Goal};
use super::targets::{BenchStage, IDLE_STREAMS_MODEL, Target};
use super::usage;
use crate::gateway::Server;
use crate::process::TempFolder;
use crate::tools::{self, cargo};
use crate::workspace;

const IDLE_KIB: Goal = Goal::value(16.0, 64.0);
const LEDGER_US: Goal = Goal::value(5.0, 10.0);
/// Number of open streams. Each takes two connections of a proxy, and the default limit of open
/// files allows few more.
const OPEN_STREAMS: u16 = 300;
/// Timeout of one I/O operation.
const IO_TIMEOUT: Duration = Duration::from_secs(30);

/// Measures the memory of a stream that has started and sends nothing.
pub(super) fn idle_streams(
    stage: &BenchStage,
    nginx: &Server,
    gateway: &Server,
) -> Result<FigureRow> {
    let per_stream = |target: Target, server: &Server| -> Result<f64> {
        let before = usage::memory(server.running.id())?;
        let mut open = Vec::new();
        for _ in 0..OPEN_STREAMS {
            open.push(begin(stage, target, server.address)?);
        }
        // Memory that only the start needs is released by then.
        thread::sleep(Duration::from_secs(1));
        let after = usage::memory(server.running.id())?;
        Ok((after - before) * 1e6 / 1024.0 / f64::from(OPEN_STREAMS))
    };
    let nginx = per_stream(Target::Nginx, nginx)?;
    let gateway = per_stream(Target::Gateway, gateway)?;
    Ok(FigureRow {
        what: "memory per idle open stream, KiB".into(),
        nginx: Some(nginx),
        gateway: Some(gateway),
        goal: Some(IDLE_KIB),
        ..FigureRow::default()
    })
}

/// Starts a stream and reads its first event.
fn begin(stage: &BenchStage, target: Target, address: SocketAddr) -> Result<TcpStream> {
    let body = json!({
        "model": IDLE_STREAMS_MODEL,
        "messages": [{ "role": "user", "content": "[[fault: stall-between after=3]] Hello." }],
        "stream": true,
    });
    let mut stream = TcpStream::connect_timeout(&address, IO_TIMEOUT)?;
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.write_all(&stage.request(target, IDLE_STREAMS_MODEL, address, &body.to_string()))?;
    let (mut read, mut piece) = (Vec::new(), [0; 4096]);
    while !read.windows(6).any(|window| window == b"data: ") {
        let count = stream.read(&mut piece).context("a stream that should begin")?;
        ensure!(count > 0, "a stream ended: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
    Ok(stream)
}

/// Measures the processor time of sizing, hold, journal and settlement of one call.
pub(super) fn ledger(stage: &BenchStage) -> Result<FigureRow> {
    let build = ["build", "--profile", "dist", "-p", "portunus", "--example", "hold_cost"];
    tools::run(&mut cargo(&build))?;
    let program = workspace::target().join("dist/examples/hold_cost");
    let scratch = TempFolder::new("hold-cost")?;
    let mut command: Command = crate::gateway::pinned(&program, stage.cores());
    let output = command.arg(scratch.path().join("journal")).output()?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(FigureRow {
        what: "sizing, hold, journal and settlement: processor µs/call".into(),
        gateway: Some(stdout.trim().parse().context("hold_cost printed no figure")?),
        goal: Some(LEDGER_US),
        ..FigureRow::default()
    })
}
