//! A streamed reply with backpressure: frames from the provider are metered, converted and
//! forwarded.
//!
//! All events that are available at one time leave as one chunk.

use bytes::Bytes;
use canon::{ApiError, Blame, ErrorKind};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use ledger::JournalReceipt;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::time::Sleep;
use tokio_util::task::TaskTracker;
use transport::ClientBody;

use super::Call;
use super::call_texts::RequestTexts;
use super::object_book::ObjectReceipt;
use super::reply::unusable_answer;
use super::settle::BoxedAccount;
use super::stream_pipeline::{StreamPipeline, StreamProgress};
use super::work_budget::WorkBudget;
use config::LiveLane;

/// Pieces from this size on are mostly followed by more, which is read before they are sent.
const BURST_PIECE_BYTES: usize = 2 << 10;
/// Output size at which a chunk is sent even if more data is available.
const FLUSH_THRESHOLD_BYTES: usize = 64 << 10;
/// Longest silence towards the caller before a keep-alive is sent.
pub(super) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Longest silence after the finish reason. The reply then ends without the provider's end marker.
const END_MARKER_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of checks of key, deadlines and silence.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time for the error event to leave before the body is aborted. An abort discards unsent bytes.
pub(super) const ABORT_FLUSH_TIME: Duration = Duration::from_millis(50);
/// Longest wait for the first chunk before the response headers are sent.
const FIRST_CHUNK_WAIT: Duration = Duration::from_secs(10);

/// A streamed reply between provider and caller.
pub(super) struct StreamedReply {
    call: Arc<Call>,
    lane: Arc<LiveLane>,
    upstream: Option<ClientBody>,
    pipeline: StreamPipeline,
    /// `None` once the stream is settled.
    account: Option<BoxedAccount>,
    /// Way of the settlement to the journal. The last bytes wait for it.
    settling: Option<JournalReceipt>,
    /// Way of the ids in the reply to the store. The last bytes wait for it.
    recording: Option<ObjectReceipt>,
    out: Vec<u8>,
    budget: WorkBudget,
    /// True once the reply has visible output.
    has_output: bool,
    /// Waker of the last poll, which a check wakes if it has output.
    waker: Option<Waker>,
    /// True if the last poll waits for the provider, and false while the caller does not read.
    is_waiting: bool,
    /// Number of checks since the provider's last bytes that found the reply waiting for more. Silence
    /// is counted in checks: a process that was stopped for a while first reads what came meanwhile.
    silent_checks: u32,
    /// Number of checks since the last chunk to the caller.
    unsent_checks: u32,
    /// True if the body must end with an error, for clients that ignore an error event.
    must_abort: bool,
    /// Runs from the last chunk of a body that must end with an error.
    abort_timer: Option<Pin<Box<Sleep>>>,
}

impl StreamedReply {
    /// Creates a reply of which nothing is received yet.
    pub(super) fn new(
        call: &Arc<Call>,
        lane: &Arc<LiveLane>,
        pipeline: StreamPipeline,
        upstream: ClientBody,
        account: BoxedAccount,
    ) -> Self {
        Self {
            call: Arc::clone(call),
            lane: Arc::clone(lane),
            upstream: Some(upstream),
            pipeline,
            account: Some(account),
            settling: None,
            recording: None,
            out: Vec::new(),
            budget: WorkBudget::default(),
            has_output: false,
            waker: None,
            is_waiting: false,
            silent_checks: 0,
            unsent_checks: 0,
            must_abort: false,
            abort_timer: None,
        }
    }

    /// Returns true while the provider's reply is not complete.
    pub(super) fn is_open(&self) -> bool {
        self.upstream.is_some()
    }

    /// Returns true if the reply has begun and its usage may still come.
    pub(super) fn awaits_counts(&self) -> bool {
        let meter = self.pipeline.meter();
        self.account.is_some() && self.is_open() && meter.output_bytes > 0
    }

    /// Returns true if the reply has its finish reason.
    pub(super) fn has_ended(&self) -> bool {
        self.is_open() && self.pipeline.meter().is_finished
    }

    /// Returns true if nothing is left to send.
    pub(super) fn is_finished(&self) -> bool {
        self.upstream.is_none()
            && self.settling.is_none()
            && self.out.is_empty()
            && !self.must_abort
    }

    /// Returns the account of a stream that is not settled, with what was received so far.
    pub(super) fn take_account(&mut self) -> Option<BoxedAccount> {
        let mut account = self.account.take()?;
        account.record_usage(self.pipeline.meter());
        Some(account)
    }

    /// Records the start of the reply.
    pub(super) fn first_byte(&mut self) {
        if let Some(account) = &mut self.account {
            account.first_byte();
        }
    }

    /// Waits for the first chunk, so that a failure can still become an error status or a retry on
    /// another lane.
    pub(super) async fn wait_first_chunk(&mut self) -> Result<(), ApiError> {
        let deadline = tokio::time::Instant::now() + FIRST_CHUNK_WAIT.min(self.lane.timeouts.gap);
        let mut empty = true;
        while self.out.is_empty() {
            self.budget.charge().await;
            let Some(upstream) = &mut self.upstream else { return Ok(()) };
            let progress = match tokio::time::timeout_at(deadline, upstream.frame()).await {
                Err(_) if FIRST_CHUNK_WAIT < self.lane.timeouts.gap => return Ok(()),
                Err(_) => StreamProgress::Broken(stalled_error()),
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        empty &= data.is_empty();
                        self.budget.add(data.len());
                        let progress = self.pipeline.push_bytes(data, &mut self.out);
                        self.note_output();
                        match progress {
                            // `timeout_at` prefers a ready frame to the deadline, so frames without
                            // output would keep the caller waiting for ever.
                            StreamProgress::Ongoing
                                if self.out.is_empty()
                                    && tokio::time::Instant::now() >= deadline =>
                            {
                                if FIRST_CHUNK_WAIT < self.lane.timeouts.gap {
                                    return Ok(());
                                }
                                StreamProgress::Broken(stalled_error())
                            }
                            progress => progress,
                        }
                    }
                    Err(_) => continue,
                },
                Ok(Some(Err(e))) => self.pipeline.fail(broken_error(&e), &mut self.out),
                Ok(None) if empty => StreamProgress::Broken(unusable_answer(
                    "an empty body was returned instead of a stream",
                )),
                Ok(None) => self.pipeline.finish(&mut self.out),
            };
            match progress {
                StreamProgress::Ongoing => {}
                StreamProgress::Complete => self.complete(),
                StreamProgress::Broken(error) if self.out.is_empty() => {
                    self.upstream = None;
                    return Err(error);
                }
                // The result must not depend on how many frames arrive at once: output before the
                // failure is delivered and billed.
                StreamProgress::Broken(error) => {
                    self.first_byte();
                    self.abort(&error);
                }
            }
        }
        if let Some(account) = &mut self.account {
            account.record_usage(self.pipeline.meter());
        }
        Ok(())
    }

    /// Records the time of the first visible output.
    fn note_output(&mut self) {
        if !self.has_output && self.pipeline.meter().output_bytes > 0 {
            self.has_output = true;
            if let Some(account) = &mut self.account {
                account.first_output();
            }
        }
    }

    /// Settles the call before the caller receives the last byte.
    fn complete(&mut self) {
        self.recording = self.pipeline.record_objects(&self.call);
        if let Some(mut account) = self.account.take() {
            account.record_reply(self.pipeline.finished(&self.call));
            self.settling = account.close_done().receipt;
        }
        match self.upstream.take() {
            // Dropped, so that the provider notices and stops generating.
            Some(_) if self.pipeline.was_stopped() => {}
            Some(body) if body.is_end_stream() => {}
            Some(body) => drain_body(body, &self.call.engine.tasks),
            None => {}
        }
    }

    /// Ends a stream that failed after its first byte, with an error in the caller's format.
    fn abort(&mut self, error: &ApiError) {
        let sent = RequestTexts::of(&self.call);
        let error = match self.pipeline.is_translated() {
            // The path is one of the lane's request, which is gone.
            true => error.clone().without_param(),
            false => error.clone(),
        };
        let error = sent.hide_in_error(&self.lane.provider, error);
        let error = &self.call.with_own_paths(error);
        tracing::warn!(
            request.id = %self.call.id,
            lane.name = &*self.lane.name,
            "lane `{}` broke off mid-stream: {} [{}]",
            self.lane.name,
            error,
            error.log_note().unwrap_or_default()
        );
        self.upstream = None;
        self.recording = self.pipeline.record_objects(&self.call);
        if let Some(mut account) = self.account.take() {
            account.record_usage(self.pipeline.meter());
            self.settling = account.close_broken_off(error).receipt;
        }
        if self.call.target.json_array {
            let (_, body) = self.call.dialect.write_error(error, &self.call.id);
            self.out.extend_from_slice(b",\r\n");
            self.out.extend_from_slice(&body);
        } else {
            let last = self.pipeline.abort_event(error);
            let last = last.unwrap_or_else(|| self.call.dialect.write_abort(error, &self.call.id));
            self.out.extend_from_slice(&last);
        }
        self.must_abort |= self.call.dialect.traits().aborts_broken_streams;
    }

    fn apply_progress(&mut self, progress: StreamProgress) {
        match progress {
            StreamProgress::Ongoing => self.enforce_hold(),
            StreamProgress::Complete => self.complete(),
            StreamProgress::Broken(error) => self.abort(&error),
        }
    }

    /// Ends the reply as if it had reached its output limit, once it exceeds the reserved money.
    /// The provider ignored the limit it was given.
    fn enforce_hold(&mut self) {
        let meter = self.pipeline.meter();
        let Some(account) = self.account.as_mut().filter(|account| account.exceeds_hold(meter))
        else {
            return;
        };
        let usage = account.truncate_at_hold(meter);
        self.pipeline.truncate(&usage, &mut self.out);
        self.complete();
    }

    /// Checks the key, the deadlines and the silence towards the caller, and writes a checkpoint.
    /// Must run once a second, also while the caller does not read.
    pub(super) fn check(&mut self) {
        if self.upstream.is_none() {
            return;
        }
        self.apply_checks();
        if (self.upstream.is_none() || !self.out.is_empty())
            && let Some(waker) = &self.waker
        {
            waker.wake_by_ref();
        }
    }

    fn apply_checks(&mut self) {
        let now = self.call.engine.clock.now();
        let key = self.call.engine.keys.get(&self.call.key.record.id);
        if !key.is_some_and(|key| key.is_live(now)) {
            let error = ApiError::new(ErrorKind::Interrupted, "the API key was revoked");
            return self.abort(&error.with_blame(Blame::Caller).without_retry());
        }
        if self.call.engine.must_end_calls() {
            let error =
                ApiError::new(ErrorKind::Interrupted, "the gateway is stopping; please retry");
            return self.abort(&error.with_blame(Blame::Gateway));
        }
        // While the caller does not read, nobody knows if the provider is silent.
        self.silent_checks += u32::from(self.is_waiting);
        let silence = CHECK_INTERVAL * self.silent_checks.saturating_sub(1);
        if self.is_waiting
            && silence >= END_MARKER_TIMEOUT
            && let StreamProgress::Complete = self.pipeline.finish_early(&mut self.out)
        {
            return self.complete();
        }
        if self.is_waiting && silence >= self.lane.timeouts.gap {
            return self.abort(&stalled_error());
        }
        if self.call.arrived.elapsed() > self.lane.timeouts.total {
            let error = ApiError::new(ErrorKind::Timeout, "the answer took longer than is allowed");
            return self.abort(&error);
        }
        self.unsent_checks += 1;
        let is_quiet = CHECK_INTERVAL * self.unsent_checks > KEEP_ALIVE_INTERVAL;
        if self.is_waiting && self.out.is_empty() && is_quiet {
            self.out.extend_from_slice(self.call.dialect.traits().keep_alive);
        }
        self.checkpoint();
    }

    /// Writes the usage so far to the journal.
    pub(super) fn checkpoint(&mut self) {
        if let Some(account) = &mut self.account {
            account.record_usage(self.pipeline.meter());
            account.checkpoint();
        }
    }

    /// Returns the next chunk for the caller.
    pub(super) fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, AbortedBody>>> {
        self.is_waiting = false;
        self.poll_upstream(cx);
        self.poll_out(cx)
    }

    /// Takes what else of a burst has arrived with its first chunk. A reply that is complete then needs
    /// no checks.
    pub(super) async fn take_burst(&mut self) {
        if self.out.len() >= BURST_PIECE_BYTES {
            poll_fn(|cx| {
                self.poll_upstream(cx);
                Poll::Ready(())
            })
            .await;
        }
    }

    /// Takes what has arrived, up to a piece that is mostly the last one for now.
    fn poll_upstream(&mut self, cx: &mut Context<'_>) {
        loop {
            let Some(upstream) = &mut self.upstream else { return };
            if self.out.len() > FLUSH_THRESHOLD_BYTES || self.budget.poll_charge(cx).is_pending() {
                return;
            }
            match Pin::new(upstream).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.silent_checks = 0;
                        self.budget.add(data.len());
                        let is_burst = data.len() >= BURST_PIECE_BYTES;
                        let progress = self.pipeline.push_bytes(data, &mut self.out);
                        self.note_output();
                        self.apply_progress(progress);
                        // A transport asks for more before it writes.
                        if !is_burst && !self.out.is_empty() {
                            return;
                        }
                    }
                }
                Poll::Ready(Some(Err(e))) => {
                    let progress = self.pipeline.fail(broken_error(&e), &mut self.out);
                    self.apply_progress(progress);
                    self.upstream = None;
                }
                Poll::Ready(None) => {
                    let progress = self.pipeline.finish(&mut self.out);
                    // No more bytes follow, whatever the progress is.
                    self.apply_progress(progress);
                    self.upstream = None;
                }
                Poll::Pending => {
                    self.is_waiting = self.out.is_empty();
                    return;
                }
            }
        }
    }

    /// Returns the output so far. Without output an open stream is pending.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, AbortedBody>>> {
        if let Some(settling) = &mut self.settling {
            // A failure is counted by the journal, which writes the entry later.
            let _ = ready!(Pin::new(settling).poll(cx));
            self.settling = None;
        }
        if let Some(recording) = &mut self.recording {
            // The write logs its failure.
            let _ = ready!(Pin::new(recording).poll(cx));
            self.recording = None;
        }
        if !self.out.is_empty() {
            self.unsent_checks = 0;
            return Poll::Ready(Some(Ok(Bytes::from(std::mem::take(&mut self.out)))));
        }
        if self.upstream.is_some() {
            match &mut self.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                None => self.waker = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        if !self.must_abort {
            return Poll::Ready(None);
        }
        let timer = || Box::pin(tokio::time::sleep(ABORT_FLUSH_TIME));
        let timer = self.abort_timer.get_or_insert_with(timer);
        timer.as_mut().poll(cx).map(|()| Some(Err(AbortedBody)))
    }
}

impl Drop for StreamedReply {
    fn drop(&mut self) {
        // The caller left. The output so far is billed.
        if let Some(account) = &mut self.account {
            account.record_usage(self.pipeline.meter());
            drop(self.pipeline.record_objects(&self.call));
        }
    }
}

/// Error that ends a body abnormally, so that no client takes it for complete.
#[derive(Debug)]
pub(super) struct AbortedBody;

impl std::fmt::Display for AbortedBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the stream was aborted")
    }
}

impl std::error::Error for AbortedBody {}

/// Reads the few bytes after the end of a reply, so that the connection can be reused.
fn drain_body(mut body: ClientBody, tasks: &TaskTracker) {
    tasks.spawn(async move {
        let reading = async { while let Some(Ok(_)) = body.frame().await {} };
        let _ = tokio::time::timeout(Duration::from_secs(2), reading).await;
    });
}

fn stalled_error() -> ApiError {
    ApiError::new(ErrorKind::Timeout, "the provider's answer stalled")
        .with_log_note("silence in a stream")
}

fn broken_error(error: &transport::BodyError) -> ApiError {
    ApiError::new(ErrorKind::Interrupted, "the provider's answer broke off")
        .with_log_note(error.to_string())
}
