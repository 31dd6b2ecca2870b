//! Measurement without load: memory of idle streams.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::report::{FigureRow, Goal};
use super::targets::{BenchStage, IDLE_STREAMS_MODEL, Target};
use super::usage;
use crate::gateway::Server;

const IDLE_KIB: Goal = Goal::value(16.0, 64.0);
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
