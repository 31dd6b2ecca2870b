//! Loads that do not slow down with the server: requests at fixed moments, and callers that come back
//! after they were sent away.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

use crate::http::Client;

/// Connections of a load at a fixed rate: enough that one is free at every moment.
const CONNECTIONS: u32 = 64;
/// Time after which a caller that was sent away tries again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Requests at a fixed rate.
pub(super) struct FixedRateLoad<'a> {
    /// Address of the server.
    pub(super) address: SocketAddr,
    /// The request, head and body.
    pub(super) request: &'a [u8],
    /// Requests per second.
    pub(super) rate: f64,
    /// Duration of the load.
    pub(super) time: Duration,
}

impl FixedRateLoad<'_> {
    /// Runs the load. Returns the times from the moment a request was due to the end of its answer,
    /// sorted.
    pub(super) fn run(&self) -> Result<Vec<Duration>> {
        let begin = Instant::now() + Duration::from_millis(100);
        let mut times = over_threads(CONNECTIONS, |number| self.connection(begin, number))?;
        times.sort_unstable();
        Ok(times)
    }

    fn connection(&self, begin: Instant, number: u32) -> Result<Vec<Duration>> {
        let (mut client, mut body) = (Client::open(self.address)?, Vec::new());
        let pause = Duration::from_secs_f64(f64::from(CONNECTIONS) / self.rate);
        let mut due = begin + pause.mul_f64(f64::from(number) / f64::from(CONNECTIONS));
        let mut times = Vec::new();
        while due < begin + self.time {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let answer = client.exchange(self.request, &mut body)?;
            ensure!(answer.status == 200, "{}: {}", answer.status, String::from_utf8_lossy(&body));
            times.push(due.elapsed());
            due += pause;
        }
        Ok(times)
    }
}

/// Callers of which each repeats its request, a little later if it was refused with 503.
pub(super) struct PatientCallers<'a> {
    /// Address of the server.
    pub(super) address: SocketAddr,
    /// The request, head and body.
    pub(super) request: &'a [u8],
    /// Number of callers.
    pub(super) callers: usize,
    /// Duration of the load.
    pub(super) time: Duration,
}

/// Answers that the callers saw.
pub(super) struct SeenAnswers {
    /// Times of the answered requests, sorted.
    pub(super) answered: Vec<Duration>,
    /// Number of requests refused with 503.
    pub(super) shed: usize,
}

impl PatientCallers<'_> {
    /// Runs the load. Any other answer than 200 and 503 is an error.
    pub(super) fn run(&self) -> Result<SeenAnswers> {
        let callers = u32::try_from(self.callers)?;
        let all = over_threads(callers, |_| self.caller())?;
        let shed = all.iter().filter(|answer| answer.is_none()).count();
        let mut answered: Vec<Duration> = all.into_iter().flatten().collect();
        answered.sort_unstable();
        Ok(SeenAnswers { answered, shed })
    }

    /// Returns the time of each answered request, and `None` for each refused one.
    fn caller(&self) -> Result<Vec<Option<Duration>>> {
        let (mut client, mut body) = (Client::open(self.address)?, Vec::new());
        let (begin, mut seen) = (Instant::now(), Vec::new());
        while begin.elapsed() < self.time {
            let asked = Instant::now();
            let answer = client.exchange(self.request, &mut body)?;
            match answer.status {
                200 => seen.push(Some(asked.elapsed())),
                503 => {
                    seen.push(None);
                    thread::sleep(RETRY_PAUSE);
                }
                status => return Err(anyhow!("{status}: {}", String::from_utf8_lossy(&body))),
            }
        }
        Ok(seen)
    }
}

/// Runs `work` on several threads and joins what they return.
fn over_threads<T: Send>(
    count: u32,
    work: impl Fn(u32) -> Result<Vec<T>> + Sync,
) -> Result<Vec<T>> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || work(number))).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| anyhow!("a caller panicked"))??);
        }
        Ok(all)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Starts a server that refuses every second request.
    fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    for status in [503, 200].into_iter().cycle() {
                        if stream.read(&mut [0; 1024]).is_ok_and(|count| count > 0) {
                            write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\n{{}}")
                                .unwrap();
                        }
                    }
                });
            }
        });
        address
    }

    #[test]
    fn refused_and_answered_requests_are_told_apart() {
        let (address, request) = (server(), b"GET / HTTP/1.1\r\n\r\n");
        let time = Duration::from_millis(200);
        let seen = PatientCallers { address, request, callers: 2, time }.run().unwrap();
        assert!(seen.shed >= 2, "{}", seen.shed);
        assert!(seen.answered.len().abs_diff(seen.shed) <= 2);
        // A load at a fixed rate expects good answers only.
        assert!(FixedRateLoad { address, request, rate: 1_000.0, time }.run().is_err());
    }
}
