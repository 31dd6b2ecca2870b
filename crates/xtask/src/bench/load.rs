//! Load generator: several connections that repeat one request for a while. Every answer is
//! checked, so that a fast wrong answer does not count.

use std::net::SocketAddr;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::http::Client;

/// Maximum number of requests per connection.
const MAX_REQUESTS_PER_CONNECTION: usize = 500_000;

/// Parameters of a load.
pub(super) struct LoadRun<'a> {
    /// Address of the server.
    pub(super) address: SocketAddr,
    /// The request, head and body.
    pub(super) request: &'a [u8],
    /// Expected end of the body, ignoring white space.
    pub(super) ending: &'a str,
    /// Number of concurrent connections.
    pub(super) connections: usize,
    /// Duration of the load.
    pub(super) time: Duration,
}

/// Measured result of a load.
#[derive(Default)]
pub(super) struct LoadResult {
    /// Time from the first request to the last answer.
    pub(super) wall: Duration,
    /// Time from a request's first byte to its answer's last one, sorted.
    pub(super) whole: Vec<Duration>,
    /// Time from a request's first byte to the first byte of the answer's body, sorted.
    pub(super) first: Vec<Duration>,
}

impl LoadRun<'_> {
    /// Runs the load. `begin` is called once, after every connection has been opened and used,
    /// right before the measured part.
    pub(super) fn run(&self, begin: impl FnOnce()) -> Result<LoadResult> {
        let warm = Barrier::new(self.connections + 1);
        let go = Barrier::new(self.connections + 1);
        let all = Mutex::new(LoadResult::default());
        let (outcome, wall) = thread::scope(|scope| {
            let mut threads = Vec::new();
            for _ in 0..self.connections {
                threads.push(scope.spawn(|| self.connection(&warm, &go, &all)));
            }
            warm.wait();
            begin();
            let start = Instant::now();
            go.wait();
            let mut outcome = Ok(());
            for thread in threads {
                let ended = thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a panic")));
                outcome = outcome.and(ended);
            }
            (outcome, start.elapsed())
        });
        outcome.with_context(|| format!("load on {}", self.address))?;
        let mut tally = all.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        tally.wall = wall;
        tally.whole.sort_unstable();
        tally.first.sort_unstable();
        Ok(tally)
    }

    fn connection(&self, warm: &Barrier, go: &Barrier, all: &Mutex<LoadResult>) -> Result<()> {
        let mut body = Vec::new();
        let mut ready = Client::open(self.address);
        if let Ok(client) = &mut ready {
            // An error here occurs again below, where it is reported.
            self.once(client, &mut body).ok();
        }
        warm.wait();
        go.wait();
        let mut client = ready?;
        let (mut whole, mut first) = (Vec::new(), Vec::new());
        let start = Instant::now();
        while start.elapsed() < self.time && whole.len() < MAX_REQUESTS_PER_CONNECTION {
            let (to_first, to_last) = self.once(&mut client, &mut body)?;
            first.push(to_first);
            whole.push(to_last);
        }
        let mut all = all.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        all.whole.append(&mut whole);
        all.first.append(&mut first);
        Ok(())
    }

    fn once(&self, client: &mut Client, body: &mut Vec<u8>) -> Result<(Duration, Duration)> {
        let begin = Instant::now();
        let answer = client.exchange(self.request, body)?;
        let whole = begin.elapsed();
        let good = answer.status == 200 && body.trim_ascii_end().ends_with(self.ending.as_bytes());
        ensure!(good, "{}: {}", answer.status, String::from_utf8_lossy(body));
        Ok((answer.first_byte.duration_since(begin), whole))
    }
}

/// Returns the percentile of sorted samples.
pub(super) fn percentile(sorted: &[Duration], share: f64) -> Duration {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index between zero and the length"
    )]
    let at = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Starts a server that answers every request with the same bytes.
    fn constant_server(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    while stream.read(&mut [0; 1024]).is_ok_and(|count| count > 0) {
                        stream.write_all(answer.as_bytes()).unwrap();
                    }
                });
            }
        });
        address
    }

    fn load(address: SocketAddr) -> LoadRun<'static> {
        let time = Duration::from_millis(50);
        LoadRun { address, request: b"GET / HTTP/1.1\r\n\r\n", ending: "}", connections: 3, time }
    }

    #[test]
    fn every_answer_is_counted_and_timed() {
        let address = constant_server("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}\n");
        let mut begun = 0;
        let tally = load(address).run(|| begun += 1).unwrap();
        assert_eq!(begun, 1);
        assert!(tally.whole.len() >= 3);
        assert_eq!(tally.whole.len(), tally.first.len());
        assert!(tally.whole.is_sorted() && tally.wall >= Duration::from_millis(50));
    }

    #[test]
    fn a_wrong_answer_fails_the_load() {
        for answer in [
            "HTTP/1.1 500 Oh\r\ncontent-length: 2\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{ ",
        ] {
            assert!(load(constant_server(answer)).run(|| ()).is_err(), "{answer}");
        }
    }

    #[test]
    fn percentiles_of_sorted_samples() {
        let samples: Vec<Duration> = (0..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&samples, 0.5), Duration::from_millis(50));
        assert_eq!(percentile(&samples, 0.99), Duration::from_millis(99));
        assert_eq!(percentile(&[], 0.5), Duration::ZERO);
    }
}
