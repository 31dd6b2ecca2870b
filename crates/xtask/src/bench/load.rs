//! The load: some connections that each send the same request again and again for a while, and
//! what that was like. Every answer is checked, so that a fast wrong answer does not count.

use std::net::SocketAddr;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::http::Client;

/// A connection makes no more requests than this, however fast they are answered.
const MOST_PER_CONNECTION: usize = 500_000;

/// What to send, where, how long.
pub(super) struct Load<'a> {
    /// Who answers.
    pub(super) address: SocketAddr,
    /// The request, head and body.
    pub(super) request: &'a [u8],
    /// What a good answer's body ends with, white space aside.
    pub(super) ending: &'a str,
    /// How many connections at once.
    pub(super) connections: usize,
    /// How long.
    pub(super) time: Duration,
}

/// What came of a load.
#[derive(Default)]
pub(super) struct Tally {
    /// How long it took from the first request to the last answer.
    pub(super) wall: Duration,
    /// Time from a request's first byte to its answer's last one, sorted.
    pub(super) whole: Vec<Duration>,
    /// The same to the first byte of the answer's body, sorted.
    pub(super) first: Vec<Duration>,
}

impl Load<'_> {
    /// Runs the load. `begin` is called once, when every connection is open and has been used,
    /// right before the part that counts.
    pub(super) fn run(&self, begin: impl FnOnce()) -> Result<Tally> {
        let warm = Barrier::new(self.connections + 1);
        let go = Barrier::new(self.connections + 1);
        let all = Mutex::new(Tally::default());
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

    fn connection(&self, warm: &Barrier, go: &Barrier, all: &Mutex<Tally>) -> Result<()> {
        let mut body = Vec::new();
        let mut ready = Client::open(self.address);
        if let Ok(client) = &mut ready {
            // A failure here comes again below, where it can be told.
            self.once(client, &mut body).ok();
        }
        warm.wait();
        go.wait();
        let mut client = ready?;
        let (mut whole, mut first) = (Vec::new(), Vec::new());
        let start = Instant::now();
        while start.elapsed() < self.time && whole.len() < MOST_PER_CONNECTION {
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

/// The value below which this share of the sorted samples lies.
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

    /// A server that answers everything with the same bytes, for as long as the test lives.
    fn parrot(answer: &'static str) -> SocketAddr {
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

    fn load(address: SocketAddr) -> Load<'static> {
        let time = Duration::from_millis(50);
        Load { address, request: b"GET / HTTP/1.1\r\n\r\n", ending: "}", connections: 3, time }
    }

    #[test]
    fn every_answer_is_counted_and_timed() {
        let address = parrot("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}\n");
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
            assert!(load(parrot(answer)).run(|| ()).is_err(), "{answer}");
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
