//! Thousands of connections held by one thread: streams that are read in turns, and connections that
//! wait for their next request.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use socket2::{Domain, Protocol, Socket, Type};

use super::source_of;

/// Timeout of one I/O operation, and until every stream has begun.
const IO_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two turns over all streams: short beside the second between two events.
const TURN_PAUSE: Duration = Duration::from_millis(100);
/// A request that every gateway answers at once.
const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";

/// Streams that are open at once.
pub(super) struct OpenStreams(Vec<TcpStream>);

impl OpenStreams {
    /// Opens streams and waits until each has sent its first event.
    pub(super) fn open(address: SocketAddr, request: &[u8], count: usize) -> Result<Self> {
        let mut streams = Vec::with_capacity(count);
        for number in 0..count {
            let mut stream = connect(number, address)?;
            stream.write_all(request)?;
            stream.set_nonblocking(true)?;
            streams.push(stream);
        }
        let mut open = Self(streams);
        let mut begun = vec![false; count];
        let begin = Instant::now();
        while begun.contains(&false) {
            ensure!(begin.elapsed() < IO_TIMEOUT, "not every stream has begun");
            for (stream, begun) in open.0.iter_mut().zip(&mut begun) {
                *begun |= events_in(stream)? > 0;
            }
            thread::sleep(TURN_PAUSE);
        }
        Ok(open)
    }

    /// Reads all streams for a while. Returns the number of events.
    pub(super) fn read_for(&mut self, time: Duration) -> Result<usize> {
        let (begin, mut events) = (Instant::now(), 0);
        while begin.elapsed() < time {
            for stream in &mut self.0 {
                events += events_in(stream)?;
            }
            thread::sleep(TURN_PAUSE);
        }
        Ok(events)
    }
}

/// Reads what has arrived and returns the number of events in it.
fn events_in(stream: &mut TcpStream) -> Result<usize> {
    let (mut events, mut piece) = (0, [0; 16 * 1024]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => bail!("a stream has ended"),
            Ok(count) => {
                let bytes = piece.get(..count).unwrap_or_default();
                ensure!(!bytes.starts_with(b"HTTP/1.1 5"), "{}", String::from_utf8_lossy(bytes));
                events += bytes.windows(6).filter(|window| window == b"data: ").count();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(events),
            Err(error) => return Err(error).context("reading a stream"),
        }
    }
}

/// Connections that have been used once and wait.
pub(super) struct IdleConnections {
    _open: Vec<TcpStream>,
}

impl IdleConnections {
    /// Opens connections and makes one request on each.
    pub(super) fn open(address: SocketAddr, count: usize) -> Result<Self> {
        let mut open = Vec::with_capacity(count);
        let mut piece = [0; 4096];
        for number in 0..count {
            let mut stream = connect(number, address)?;
            stream.write_all(HEALTH)?;
            let count = stream.read(&mut piece)?;
            let answer = piece.get(..count).unwrap_or_default();
            ensure!(
                answer.starts_with(b"HTTP/1.1 200"),
                "connection {number}: {}",
                String::from_utf8_lossy(answer)
            );
            open.push(stream);
        }
        Ok(Self { _open: open })
    }
}

fn connect(number: usize, address: SocketAddr) -> Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))
        .with_context(|| format!("connection {number}"))?;
    socket.bind(&source_of(number).into())?;
    socket.connect_timeout(&address.into(), IO_TIMEOUT)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    Ok(stream)
}
