//! A streamed answer: pieces in, pieces out, counted between, with backpressure end to end. What
//! is there at one time leaves as one piece, however many events it holds.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use canon::{Blame, ApiError, WireFormat, ErrorKind};
use dialects::{Dialect, RequestFacts};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt as _;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::time::Sleep;
use tokio_util::task::TaskTracker;
use transport::Answer;

use super::prepare::Speech;
use super::road::{Course, Road};
use super::settle::Tab;
use super::{Call, whole};
use crate::error_format::Voice;
use config::LiveLane;

/// When enough is gathered to be sent even though more is coming.
const ENOUGH: usize = 64 << 10;
/// How often timeouts, the key and the journal are looked after.
const TICK: Duration = Duration::from_secs(1);
/// How long a stream may be silent towards the caller.
const SILENCE: Duration = Duration::from_secs(15);
/// How long a provider that has given its reason to end may be silent before the answer is ended
/// without it.
const LAST_WORD: Duration = Duration::from_secs(1);
/// How long the last words may take to leave before the body is cut: a cut takes back what has not.
const FLUSH: Duration = Duration::from_millis(50);
/// How long the first piece is waited for before the caller is told that an answer has begun.
const FIRST: Duration = Duration::from_secs(10);

/// Begins a stream. Fails, and lets the next lane try, while the caller has seen nothing.
pub(super) async fn stream(
    call: &Arc<Call>,
    peek: &RequestFacts,
    lane: &Arc<LiveLane>,
    dialect: &'static dyn Dialect,
    speech: Option<Box<Speech>>,
    answer: Answer,
    tab: Tab,
) -> Result<Response, (ApiError, Tab)> {
    if !whole::is_stream(&answer.headers) {
        return whole::as_stream(call, peek, lane, dialect, speech, answer, tab).await;
    }
    let road = Road::new(call, peek, dialect, speech);
    begin(call, lane, road, peek.json_array, answer, tab).await
}

/// Begins a stream on a road that was chosen.
pub(super) async fn begin(
    call: &Arc<Call>,
    lane: &Arc<LiveLane>,
    road: Road,
    array: bool,
    answer: Answer,
    tab: Tab,
) -> Result<Response, (ApiError, Tab)> {
    // Before anything is read: a stream that is whole in its first piece is settled there.
    let mut response = event_stream(Body::empty(), array);
    whole::describe(&mut response, &tab);
    let mut pump = Pump {
        call: Arc::clone(call),
        lane: Arc::clone(lane),
        upstream: Some(answer.body),
        road,
        tab: Some(tab),
        out: Vec::new(),
        tick: Box::pin(tokio::time::sleep(TICK)),
        looked: Instant::now(),
        heard: Instant::now(),
        spoke: Instant::now(),
        cut: false,
    };
    if let Err(fault) = pump.prime().await {
        return match pump.tab.take() {
            Some(tab) => Err((not_begun(fault), tab)),
            // A settled stream has no fault left; were there one, no other lane could pay for it.
            None => Ok(Voice::Dialect(call.dialect).answer(&fault, &call.id)),
        };
    }
    if let Some(tab) = &mut pump.tab {
        tab.first_byte();
    }
    *response.body_mut() = Body::new(pump);
    Ok(response)
}

/// An answer that is a stream: of events, or of the items of one JSON array.
pub fn event_stream(body: Body, array: bool) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let kind = if array { "application/json" } else { "text/event-stream; charset=utf-8" };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// The body of a streamed answer.
struct Pump {
    call: Arc<Call>,
    lane: Arc<LiveLane>,
    upstream: Option<transport::Body>,
    road: Road,
    /// Open until the stream is settled.
    tab: Option<Tab>,
    out: Vec<u8>,
    tick: Pin<Box<Sleep>>,
    /// Time of the last look at key, deadline and journal.
    looked: Instant,
    heard: Instant,
    spoke: Instant,
    /// Whether the body must end abnormally, for clients that swallow an error event.
    cut: bool,
}

impl Pump {
    /// Waits for the first piece, so that a failure can still become a true status or another lane.
    async fn prime(&mut self) -> Result<(), ApiError> {
        let deadline = tokio::time::Instant::now() + FIRST.min(self.lane.timeouts.gap);
        let mut empty = true;
        while self.out.is_empty() {
            let Some(upstream) = &mut self.upstream else { return Ok(()) };
            let course = match tokio::time::timeout_at(deadline, upstream.frame()).await {
                Err(_) if FIRST < self.lane.timeouts.gap => return Ok(()),
                Err(_) => Course::Broken(stalled()),
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        empty &= data.is_empty();
                        match self.road.take(data, &mut self.out) {
                            // `timeout_at` prefers a frame to the deadline, so frames that say
                            // nothing and are always ready would keep the caller waiting.
                            Course::On
                                if self.out.is_empty()
                                    && tokio::time::Instant::now() >= deadline =>
                            {
                                if FIRST < self.lane.timeouts.gap {
                                    return Ok(());
                                }
                                Course::Broken(stalled())
                            }
                            course => course,
                        }
                    }
                    Err(_) => continue,
                },
                Ok(Some(Err(e))) => self.road.give_out(broken(&e), &mut self.out),
                Ok(None) if empty => {
                    Course::Broken(whole::no_answer("nothing came instead of a stream"))
                }
                Ok(None) => self.road.finish(&mut self.out),
            };
            match course {
                Course::On => {}
                Course::Complete => self.complete(),
                Course::Broken(fault) if self.out.is_empty() => {
                    self.upstream = None;
                    return Err(fault);
                }
                // How much of an answer arrives at once does not decide what becomes of it: what was
                // said before it broke is told, and paid for.
                Course::Broken(fault) => {
                    if let Some(tab) = &mut self.tab {
                        tab.first_byte();
                    }
                    self.break_off(&fault);
                }
            }
        }
        if let Some(tab) = &mut self.tab {
            tab.heard(self.road.said());
        }
        Ok(())
    }

    /// Everything was said: settle now, before the caller gets its last byte.
    fn complete(&mut self) {
        let losses = self.road.losses();
        self.road.keep_seals(&self.call);
        if let Some(mut tab) = self.tab.take() {
            tab.first_byte();
            tab.heard(self.road.said());
            tab.lost(losses);
            if self.road.is_braked() {
                tab.braked();
            }
            tab.done();
        }
        match self.upstream.take() {
            // Dropped: a provider that is let go has to hear of it.
            Some(_) if self.road.is_braked() => {}
            Some(body) if body.is_end_stream() => {}
            Some(body) => rest(body, &self.call.engine.tasks),
            None => {}
        }
    }

    /// The stream broke after the caller saw some of it: it must hear so in its own format.
    fn break_off(&mut self, fault: &ApiError) {
        tracing::warn!(
            request.id = %self.call.id,
            lane.name = self.lane.name,
            "lane `{}` broke off mid-stream: {} [{}]",
            self.lane.name,
            fault,
            fault.log_note().unwrap_or_default()
        );
        self.upstream = None;
        if let Some(mut tab) = self.tab.take() {
            tab.heard(self.road.said());
            tab.broke_off(fault);
        }
        if self.call.target.json_array {
            let (_, body) = self.call.dialect.write_error(fault, &self.call.id);
            self.out.extend_from_slice(b",\r\n");
            self.out.extend_from_slice(&body);
        } else {
            let last = self.road.last_words(fault);
            let last = last.unwrap_or_else(|| self.call.dialect.write_abort(fault, &self.call.id));
            self.out.extend_from_slice(&last);
        }
        if self.call.dialect.origin() == WireFormat::Native {
            self.cut = true;
            self.tick.as_mut().reset(tokio::time::Instant::now() + FLUSH);
        }
    }

    fn take(&mut self, course: Course) {
        match course {
            Course::On => self.keep_within(),
            Course::Complete => self.complete(),
            Course::Broken(fault) => self.break_off(&fault),
        }
    }

    /// A provider that does not keep to the limit it was given is let go when nothing of what was
    /// set aside is left: the caller gets what a limit gives it, an answer that ends at its length.
    fn keep_within(&mut self) {
        let said = self.road.said();
        let Some(tab) = self.tab.as_mut().filter(|tab| tab.is_used_up(said)) else { return };
        let usage = tab.cut(said);
        self.road.cut(&usage, &mut self.out);
        self.complete();
    }

    /// Checks the key, the deadlines and the silence towards the caller, and writes a checkpoint.
    /// Runs once a second, whether the provider is silent or always has data ready.
    fn look_after(&mut self) {
        if self.upstream.is_none() {
            return;
        }
        self.looked = Instant::now();
        self.tick.as_mut().reset(tokio::time::Instant::now() + TICK);
        let now = self.call.engine.clock.now();
        let key = self.call.engine.keys.get(&self.call.key.record.id);
        if !key.is_some_and(|key| key.is_live(now)) {
            let fault = ApiError::new(ErrorKind::Interrupted, "the API key was revoked");
            return self.break_off(&fault.with_blame(Blame::Caller).without_retry());
        }
        if self.call.engine.is_ending() {
            let fault = ApiError::new(ErrorKind::Interrupted, "the gateway is stopping; please retry");
            return self.break_off(&fault.with_blame(Blame::Gateway));
        }
        if self.heard.elapsed() >= LAST_WORD
            && let Course::Complete = self.road.wind_up(&mut self.out)
        {
            return self.complete();
        }
        if self.heard.elapsed() > self.lane.timeouts.gap {
            return self.break_off(&stalled());
        }
        if self.call.arrived.elapsed() > self.lane.timeouts.total {
            let fault = ApiError::new(ErrorKind::Timeout, "the answer took longer than is allowed");
            return self.break_off(&fault);
        }
        if self.spoke.elapsed() > SILENCE {
            self.out.extend_from_slice(self.call.dialect.keep_alive());
        }
        if let Some(tab) = &mut self.tab {
            tab.heard(self.road.said());
            tab.checkpoint();
        }
    }

    fn emit(&mut self) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        self.spoke = Instant::now();
        let bytes = Bytes::from(std::mem::take(&mut self.out));
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

impl HttpBody for Pump {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let pump = &mut *self;
        loop {
            let Some(upstream) = &mut pump.upstream else {
                if !pump.out.is_empty() {
                    return pump.emit();
                }
                if !pump.cut {
                    return Poll::Ready(None);
                }
                return pump.tick.as_mut().poll(cx).map(|()| Some(Err(Cut)));
            };
            if pump.out.len() > ENOUGH {
                return pump.emit();
            }
            match Pin::new(upstream).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        pump.heard = Instant::now();
                        let course = pump.road.take(data, &mut pump.out);
                        pump.take(course);
                        // The tick is polled only while the provider is silent.
                        if pump.heard.duration_since(pump.looked) >= TICK {
                            pump.look_after();
                        }
                    }
                }
                Poll::Ready(Some(Err(e))) => {
                    let course = pump.road.give_out(broken(&e), &mut pump.out);
                    pump.take(course);
                    pump.upstream = None;
                }
                Poll::Ready(None) => {
                    let course = pump.road.finish(&mut pump.out);
                    // A finished road has no more bytes to read, whatever it says.
                    pump.take(course);
                    pump.upstream = None;
                }
                Poll::Pending if !pump.out.is_empty() => return pump.emit(),
                Poll::Pending => {
                    if pump.tick.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    pump.look_after();
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.upstream.is_none() && self.out.is_empty() && !self.cut
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        // The caller left: what was said so far is what is paid for.
        if let Some(tab) = &mut self.tab {
            tab.heard(self.road.said());
        }
    }
}

/// Ends a body so that no client takes it for complete.
#[derive(Debug)]
pub struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the stream was cut")
    }
}

impl std::error::Error for Cut {}

/// Reads the few bytes behind the end of an answer, so that the connection can be used again.
fn rest(mut body: transport::Body, tasks: &TaskTracker) {
    tasks.spawn(async move {
        let reading = async { while let Some(Ok(_)) = body.frame().await {} };
        let _ = tokio::time::timeout(Duration::from_secs(2), reading).await;
    });
}

/// A fault of a stream of which the caller saw nothing: to it, no answer has begun.
pub(super) fn not_begun(fault: ApiError) -> ApiError {
    if fault.kind() != ErrorKind::Interrupted {
        return fault;
    }
    let note = fault.log_note().unwrap_or_default().to_owned();
    ApiError::new(ErrorKind::Unavailable, fault.message().to_owned()).with_log_note(note)
}

fn stalled() -> ApiError {
    ApiError::new(ErrorKind::Timeout, "the provider's answer stalled").with_log_note("silence in a stream")
}

fn broken(error: &transport::BodyError) -> ApiError {
    ApiError::new(ErrorKind::Interrupted, "the provider's answer broke off").with_log_note(error.to_string())
}
