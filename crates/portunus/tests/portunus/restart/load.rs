//! Callers that keep their connections, as load balancers and official clients do, and count failures.

use parking_lot::Mutex;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use testkit::until;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::transport::raw_client::{Answer, CHAT, Caller};

/// One call of so many is a stream.
const STREAM_SHARE: usize = 4;
const WORKERS: usize = 8;

/// A request for that model.
pub(super) fn request(key: &str, model: &str, stream: bool) -> Vec<u8> {
    let messages = json!([{ "role": "user", "content": "Tell me a long story about harbours." }]);
    let body = json!({ "model": model, "stream": stream, "messages": messages }).to_string();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

/// Number of calls of a load. The variable is for longer runs by hand.
pub(super) fn call_count(usual: usize) -> usize {
    let asked = std::env::var("PORTUNUS_TEST_CALLS").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(usual)
}

#[derive(Default)]
struct LoadState {
    stops: AtomicBool,
    begun: AtomicUsize,
    retried: AtomicUsize,
    /// Calls of each worker that are done.
    done: [AtomicUsize; WORKERS],
    ids: Mutex<Vec<String>>,
    failures: Mutex<Vec<String>>,
}

/// Running callers.
pub(super) struct Load {
    state: Arc<LoadState>,
    workers: Vec<JoinHandle<()>>,
}

/// Finished calls.
pub(super) struct LoadResult {
    /// Ids of the answered calls.
    pub(super) ids: BTreeSet<String>,
}

impl Load {
    /// Begins to call these addresses in turn. A call that gets no answer is sent to the next address,
    /// at most so many times.
    pub(super) fn start(addresses: &[&str], key: &str, attempts: usize) -> Self {
        let state = Arc::<LoadState>::default();
        let worker = |number| {
            let addresses: Vec<String> = addresses.iter().map(|one| (*one).to_owned()).collect();
            let requests = [false, true].map(|stream| request(key, "m", stream));
            let worker = Worker { state: Arc::clone(&state), addresses, requests, attempts };
            tokio::spawn(worker.run(number))
        };
        let workers = (0..WORKERS).map(worker).collect();
        Self { state, workers }
    }

    /// Waits until so many more calls are answered.
    pub(super) async fn more(&self, count: usize) {
        let target = self.state.ids.lock().len() + count;
        until("calls are answered", async || {
            let failures = self.state.failures.lock().clone();
            assert!(failures.is_empty(), "{failures:#?}");
            self.state.ids.lock().len() >= target
        })
        .await;
    }

    /// Waits until each caller has got so many more answers.
    pub(super) async fn each_more(&self, count: usize) {
        let now = || self.state.done.each_ref().map(|done| done.load(Ordering::Relaxed));
        let before = now();
        until("each caller is answered", async || {
            now().iter().zip(before).all(|(now, before)| *now >= before + count)
        })
        .await;
    }

    /// Waits for so many answered calls in all, however long that takes.
    pub(super) async fn reach(&self, count: usize) {
        while self.state.ids.lock().len() < count {
            self.more(1).await;
        }
    }

    /// Ends the callers after their running calls. Every call must have been answered.
    pub(super) async fn finish(self) -> LoadResult {
        self.state.stops.store(true, Ordering::Relaxed);
        for worker in self.workers {
            worker.await.unwrap();
        }
        let failures = self.state.failures.lock().clone();
        assert!(failures.is_empty(), "{} failures: {failures:#?}", failures.len());
        let ids = std::mem::take(&mut *self.state.ids.lock());
        let (calls, retried) = (ids.len(), self.state.retried.load(Ordering::Relaxed));
        let begun = self.state.begun.load(Ordering::Relaxed);
        assert_eq!(begun, calls);
        let ids: BTreeSet<String> = ids.into_iter().collect();
        assert_eq!(ids.len(), calls, "each call has an id of its own");
        eprintln!("{calls} calls, 0 failures, {retried} sent again");
        LoadResult { ids }
    }
}

struct Worker {
    state: Arc<LoadState>,
    addresses: Vec<String>,
    /// A call and a stream.
    requests: [Vec<u8>; 2],
    attempts: usize,
}

impl Worker {
    async fn run(self, number: usize) {
        let state = &self.state;
        // One connection to each address.
        let mut kept: Vec<Option<Caller>> = self.addresses.iter().map(|_| None).collect();
        let mut turn = number;
        while !state.stops.load(Ordering::Relaxed) {
            let place = state.begun.fetch_add(1, Ordering::Relaxed);
            let stream = usize::from(place.is_multiple_of(STREAM_SHARE));
            let mut outcome = Err(String::new());
            for attempt in 0..self.attempts {
                turn = (turn + 1) % self.addresses.len();
                if attempt > 0 {
                    state.retried.fetch_add(1, Ordering::Relaxed);
                }
                outcome = self.call(&mut kept[turn], turn, stream).await;
                if outcome.is_ok() {
                    break;
                }
            }
            match outcome {
                Ok(id) => state.ids.lock().push(id),
                Err(why) => {
                    state.failures.lock().push(format!("call {place}: {why}"));
                    return;
                }
            }
            state.done[number].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes one call on a kept connection, or on a new one, and returns its id.
    async fn call(
        &self,
        kept: &mut Option<Caller>,
        turn: usize,
        stream: usize,
    ) -> Result<String, String> {
        let mut caller = match kept.take() {
            Some(caller) => caller,
            None => Caller::over(
                TcpStream::connect(&self.addresses[turn]).await.map_err(|e| e.to_string())?,
            ),
        };
        caller.send(&self.requests[stream]).await;
        let answer = caller.answer().await.ok_or("the connection ended")?;
        if answer.header("connection") != Some("close") {
            *kept = Some(caller);
        }
        checked(&answer, stream == 1)
    }
}

/// Returns the id of a call whose answer is complete.
fn checked(answer: &Answer, stream: bool) -> Result<String, String> {
    let text = answer.text();
    let is_complete =
        if stream { text.contains("data: [DONE]") } else { text.contains("\"usage\"") };
    if answer.status != 200 || !is_complete {
        return Err(format!("{} {text}", answer.head));
    }
    let id = answer.header("x-request-id").ok_or("no id")?;
    Ok(id.to_owned())
}
