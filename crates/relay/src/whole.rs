//! A whole answer: read to its end, counted, handed on or translated.

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use canon::{ApiError, UpstreamProgress, ErrorKind};
use dialects::{CustomToolCalls, Dialect, RequestFacts, ReplyMeter};
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use std::sync::Arc;
use transport::Answer;

use super::Call;
use super::prepare::Speech;
use super::road::{Course, Road};
use super::settle::Tab;
use crate::json::json as json_response;
use config::LiveLane;

/// The largest answer taken from a provider.
const LARGEST: usize = 64 << 20;

/// Reads the answer and makes the caller's out of it.
pub(super) async fn whole(
    call: &Arc<Call>,
    lane: &LiveLane,
    dialect: &'static dyn Dialect,
    speech: Option<Box<Speech>>,
    answer: Answer,
    mut tab: Tab,
) -> Result<Response, (ApiError, Tab)> {
    let body = match read(answer, lane, call).await {
        Ok(body) => body,
        Err(fault) => return Err((fault, tab)),
    };
    let (said, body) = match translate(call, dialect, speech, body, &mut tab) {
        Ok(done) => done,
        Err(fault) => return Err((fault, tab)),
    };
    Ok(answered(body, &said, tab))
}

/// A whole answer for the caller, with its tab closed and told.
pub(super) fn answered(body: Bytes, said: &ReplyMeter, mut tab: Tab) -> Response {
    tab.first_byte();
    tab.heard(said);
    let mut response = json_response(Body::from(body));
    describe(&mut response, &tab);
    let cost = tab.done();
    if let Ok(cost) = HeaderValue::from_str(&cost.to_string()) {
        response.headers_mut().insert("x-portunus-cost", cost);
    }
    response
}

/// A provider that was asked for a stream and gave something else. By its first byte it is a whole
/// answer, which is then streamed in our own pieces, or a stream under a wrong name.
pub(super) async fn as_stream(
    call: &Arc<Call>,
    peek: &RequestFacts,
    lane: &LiveLane,
    dialect: &'static dyn Dialect,
    speech: Option<Box<Speech>>,
    answer: Answer,
    mut tab: Tab,
) -> Result<Response, (ApiError, Tab)> {
    let body = match read(answer, lane, call).await {
        Ok(body) => body,
        Err(fault) => return Err((fault, tab)),
    };
    let speech = match speech {
        None if is_whole(&body) => match call.dialect.read_request(&call.target, &call.body) {
            Ok(chat) => Some(Box::new(Speech { chat, brake: None })),
            Err(fault) => return Err((fault, tab)),
        },
        speech => speech,
    };
    let mut road = Road::new(call, peek, dialect, speech);
    let mut out = Vec::new();
    if let Err(fault) = travel(&mut road, dialect, body, &mut out) {
        return Err((super::pump::not_begun(fault), tab));
    }
    road.keep_seals(call);
    tab.first_byte();
    tab.heard(road.said());
    tab.lost(road.losses());
    let mut response = super::pump::event_stream(Body::from(out), peek.json_array);
    describe(&mut response, &tab);
    tab.done();
    Ok(response)
}

/// A stream that the gateway may have to end, for a caller that wants the answer whole.
pub(super) async fn gather(
    call: &Arc<Call>,
    lane: &LiveLane,
    dialect: &'static dyn Dialect,
    speech: Box<Speech>,
    mut answer: Answer,
    mut tab: Tab,
) -> Result<Response, (ApiError, Tab)> {
    let mut road = Road::gathering(call, dialect, speech);
    let mut out = Vec::new();
    let mut came = 0;
    let outcome = if is_stream(&answer.headers) {
        loop {
            let course = match piece(&mut answer.body, lane, call).await {
                Ok(Some(data)) if came + data.len() > LARGEST => break Err(too_large()),
                Ok(Some(data)) => {
                    came += data.len();
                    road.take(data, &mut out)
                }
                Ok(None) => road.finish(&mut out),
                Err(fault) => break Err(fault),
            };
            match course {
                Course::On => {}
                Course::Complete => break Ok(()),
                Course::Broken(fault) => break Err(fault),
            }
        }
    } else {
        match read(answer, lane, call).await {
            Ok(body) => travel(&mut road, dialect, body, &mut out),
            Err(fault) => Err(fault),
        }
    };
    if let Err(fault) = outcome {
        return Err((super::pump::not_begun(fault), tab));
    }
    road.keep_seals(call);
    if road.is_braked() {
        tab.braked();
    }
    tab.lost(road.losses());
    Ok(answered(Bytes::from(out), road.said(), tab))
}

/// A body that is here as a whole, whether it is a stream or not.
fn travel(
    road: &mut Road,
    dialect: &'static dyn Dialect,
    body: Bytes,
    out: &mut Vec<u8>,
) -> Result<(), ApiError> {
    let course = if is_whole(&body) {
        dialect.meter_reply(&body)?;
        road.take_whole(dialect.read_reply(&body)?, out)
    } else {
        match road.take(body, out) {
            Course::On => road.finish(out),
            end => end,
        }
    };
    match course {
        Course::Broken(fault) => Err(fault),
        Course::On | Course::Complete => Ok(()),
    }
}

fn is_whole(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"{")
}

/// Whether an answer calls itself a stream, or nothing.
pub(super) fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_none_or(|kind| kind.starts_with("text/event-stream"))
}

/// Which lane answered and what was lost, told in headers.
pub(super) fn describe(response: &mut Response, tab: &Tab) {
    let headers = response.headers_mut();
    if let Ok(lane) = HeaderValue::from_str(tab.lane()) {
        headers.insert("x-portunus-lane", lane);
    }
    if let Some(losses) = tab.loss_header() {
        headers.insert("x-portunus-loss", losses);
    }
}

fn translate(
    call: &Call,
    dialect: &'static dyn Dialect,
    speech: Option<Box<Speech>>,
    body: Bytes,
    tab: &mut Tab,
) -> Result<(ReplyMeter, Bytes), ApiError> {
    let Some(chat) = speech.map(|speech| speech.chat) else {
        return Ok((dialect.meter_reply(&body)?, body));
    };
    let said = dialect.meter_reply(&body)?;
    let mut reply = dialect.read_reply(&body)?;
    CustomToolCalls::for_request(&chat).convert_reply(&mut reply);
    let account = &call.key.record.account_id;
    call.engine.seals.keep_reply(account, call.dialect.origin(), &chat, &reply);
    let (body, losses) = call.dialect.write_reply(reply, &chat, &super::road::stamp(call));
    tab.lost(losses);
    Ok((said, Bytes::from(body)))
}

/// The whole body of an answer, within the limits of size and time.
pub(super) async fn read(answer: Answer, lane: &LiveLane, call: &Call) -> Result<Bytes, ApiError> {
    let kind = answer.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if kind.is_some_and(|kind| kind.starts_with("text/html")) {
        return Err(no_answer("a web page came instead of an answer"));
    }
    let mut body = answer.body;
    let mut first: Option<Bytes> = None;
    let mut all = BytesMut::new();
    while let Some(data) = piece(&mut body, lane, call).await? {
        if all.len() + data.len() > LARGEST {
            return Err(too_large());
        }
        match &first {
            None => first = Some(data),
            Some(piece) => {
                if all.is_empty() {
                    all.extend_from_slice(piece);
                }
                all.extend_from_slice(&data);
            }
        }
    }
    match first {
        None => Err(no_answer("nothing came instead of an answer")),
        Some(only) if all.is_empty() => Ok(only),
        Some(_) => Ok(all.freeze()),
    }
}

fn too_large() -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "the provider's answer is too large")
}

/// It answered, and not to what was asked: no model can have worked for that.
pub(super) fn no_answer(why: &str) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "the provider gave no usable answer, retry later")
        .with_progress(UpstreamProgress::Answered(200))
        .with_log_note(why)
}

/// Whether trailers take back what the answer said, as services behind gRPC do.
fn tells_failure(trailers: &HeaderMap) -> bool {
    trailers.get("grpc-status").is_some_and(|status| status != "0")
}

/// The next piece of a body, within the limits of time; `None` at its end.
async fn piece(
    body: &mut transport::Body,
    lane: &LiveLane,
    call: &Call,
) -> Result<Option<Bytes>, ApiError> {
    while !body.is_end_stream() {
        let left = call.left(&lane.timeouts);
        // `timeout` prefers a frame that is ready to a deadline that has passed.
        if left.is_zero() {
            return Err(ApiError::new(ErrorKind::Timeout, "the answer took longer than is allowed"));
        }
        match tokio::time::timeout(lane.timeouts.gap.min(left), body.frame()).await {
            Err(_) => {
                return Err(ApiError::new(ErrorKind::Timeout, "the provider's answer stalled")
                    .with_log_note("silence in the middle of a whole answer"));
            }
            Ok(None) => break,
            Ok(Some(Err(e))) => {
                return Err(ApiError::new(ErrorKind::Unavailable, "the provider's answer broke off")
                    .with_log_note(e.to_string()));
            }
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => return Ok(Some(data)),
                Err(frame) if frame.trailers_ref().is_some_and(tells_failure) => {
                    return Err(ApiError::new(ErrorKind::Unavailable, "the provider's answer failed")
                        .with_log_note("the trailers of a whole answer report a failure"));
                }
                Err(_) => {}
            },
        }
    }
    Ok(None)
}
