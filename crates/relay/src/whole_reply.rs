//! A whole reply: read to its end, metered, passed through or translated.

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use canon::{ApiError, ErrorKind, UpstreamProgress};
use dialects::{CustomToolCalls, Dialect, ReplyMeter, RequestFacts};
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use std::sync::Arc;
use transport::ClientResponse;

use super::Call;
use super::prepare::LaneTranslation;
use super::settle::BoxedAccount;
use super::stream_pipeline::{StreamPipeline, StreamProgress};
use crate::json_response::json_response;
use config::LiveLane;

/// Larger replies of providers are refused.
const MAX_REPLY_BYTES: usize = 64 << 20;

/// Reads a reply and returns it in the caller's format.
pub(super) async fn relay_whole(
    call: &Arc<Call>,
    lane: &LiveLane,
    dialect: &'static dyn Dialect,
    translation: Option<Box<LaneTranslation>>,
    answer: ClientResponse,
    mut account: BoxedAccount,
) -> Result<Response, (ApiError, BoxedAccount)> {
    let body = match read_body(answer, lane, call).await {
        Ok(body) => body,
        Err(error) => return Err((error, account)),
    };
    let (meter, body) = match translate_reply(call, dialect, translation, body, &mut account) {
        Ok(done) => done,
        Err(error) => return Err((error, account)),
    };
    Ok(settled_response(body, &meter, account))
}

/// Settles the call and returns the response.
pub(super) fn settled_response(
    body: Bytes,
    meter: &ReplyMeter,
    mut account: BoxedAccount,
) -> Response {
    account.first_byte();
    account.record_usage(meter);
    let mut response = json_response(Body::from(body));
    add_call_headers(&mut response, &account);
    let cost = account.close_done();
    if let Ok(cost) = HeaderValue::from_str(&cost.to_string()) {
        response.headers_mut().insert("x-portunus-cost", cost);
    }
    response
}

/// Serves a provider that was asked for a stream and sent something else. The first byte decides: a
/// whole reply is converted to a stream, anything else is read as a stream with a wrong content
/// type.
pub(super) async fn stream_whole(
    call: &Arc<Call>,
    facts: &RequestFacts,
    lane: &LiveLane,
    dialect: &'static dyn Dialect,
    translation: Option<Box<LaneTranslation>>,
    answer: ClientResponse,
    mut account: BoxedAccount,
) -> Result<Response, (ApiError, BoxedAccount)> {
    let body = match read_body(answer, lane, call).await {
        Ok(body) => body,
        Err(error) => return Err((error, account)),
    };
    let translation = match translation {
        None if is_json_object(&body) => {
            match call.dialect.read_request(&call.target, &call.body) {
                Ok(chat) => Some(Box::new(LaneTranslation { request: chat, stop_enforcer: None })),
                Err(error) => return Err((error, account)),
            }
        }
        translation => translation,
    };
    let mut pipeline = StreamPipeline::new(call, facts, dialect, translation);
    let mut out = Vec::new();
    if let Err(error) = feed_whole_body(&mut pipeline, dialect, body, &mut out) {
        return Err((super::streamed_reply::before_first_byte(error), account));
    }
    pipeline.keep_signatures(call);
    account.first_byte();
    account.record_usage(pipeline.meter());
    account.add_losses(pipeline.losses());
    let mut response = super::streamed_reply::event_stream(Body::from(out), facts.json_array);
    add_call_headers(&mut response, &account);
    account.close_done();
    Ok(response)
}

/// Gathers a stream into a whole reply. The stream is needed because the gateway may have to end it
/// early.
pub(super) async fn gather_stream(
    call: &Arc<Call>,
    lane: &LiveLane,
    dialect: &'static dyn Dialect,
    translation: Box<LaneTranslation>,
    mut answer: ClientResponse,
    mut account: BoxedAccount,
) -> Result<Response, (ApiError, BoxedAccount)> {
    let mut pipeline = StreamPipeline::gathering(call, dialect, translation);
    let mut out = Vec::new();
    let mut received = 0;
    let outcome = if is_stream(&answer.headers) {
        loop {
            let progress = match next_chunk(&mut answer.body, lane, call).await {
                Ok(Some(data)) if received + data.len() > MAX_REPLY_BYTES => {
                    break Err(too_large_error());
                }
                Ok(Some(data)) => {
                    received += data.len();
                    pipeline.push_bytes(data, &mut out)
                }
                Ok(None) => pipeline.finish(&mut out),
                Err(error) => break Err(error),
            };
            match progress {
                StreamProgress::Ongoing => {}
                StreamProgress::Complete => break Ok(()),
                StreamProgress::Broken(error) => break Err(error),
            }
        }
    } else {
        match read_body(answer, lane, call).await {
            Ok(body) => feed_whole_body(&mut pipeline, dialect, body, &mut out),
            Err(error) => Err(error),
        }
    };
    if let Err(error) = outcome {
        return Err((super::streamed_reply::before_first_byte(error), account));
    }
    pipeline.keep_signatures(call);
    if pipeline.was_stopped() {
        account.note_gateway_stop();
    }
    account.add_losses(pipeline.losses());
    Ok(settled_response(Bytes::from(out), pipeline.meter(), account))
}

/// Feeds a complete body into the pipeline, be it a stream or a whole reply.
fn feed_whole_body(
    pipeline: &mut StreamPipeline,
    dialect: &'static dyn Dialect,
    body: Bytes,
    out: &mut Vec<u8>,
) -> Result<(), ApiError> {
    let progress = if is_json_object(&body) {
        dialect.meter_reply(&body)?;
        pipeline.push_whole(dialect.read_reply(&body)?, out)
    } else {
        match pipeline.push_bytes(body, out) {
            StreamProgress::Ongoing => pipeline.finish(out),
            end => end,
        }
    };
    match progress {
        StreamProgress::Broken(error) => Err(error),
        StreamProgress::Ongoing | StreamProgress::Complete => Ok(()),
    }
}

fn is_json_object(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"{")
}

/// Returns true if the content type is that of an event stream, or missing.
pub(super) fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_none_or(|kind| kind.starts_with("text/event-stream"))
}

/// Adds the headers that name the lane and the losses.
pub(super) fn add_call_headers(response: &mut Response, account: &BoxedAccount) {
    let headers = response.headers_mut();
    if let Ok(lane) = HeaderValue::from_str(account.lane()) {
        headers.insert("x-portunus-lane", lane);
    }
    if let Some(losses) = account.loss_header() {
        headers.insert("x-portunus-loss", losses);
    }
}

fn translate_reply(
    call: &Call,
    dialect: &'static dyn Dialect,
    translation: Option<Box<LaneTranslation>>,
    body: Bytes,
    account: &mut BoxedAccount,
) -> Result<(ReplyMeter, Bytes), ApiError> {
    let Some(chat) = translation.map(|translation| translation.request) else {
        return Ok((dialect.meter_reply(&body)?, body));
    };
    let meter = dialect.meter_reply(&body)?;
    let mut reply = dialect.read_reply(&body)?;
    CustomToolCalls::for_request(&chat).convert_reply(&mut reply);
    let account_id = &call.key.record.account_id;
    call.engine.signatures.keep_reply(account_id, call.dialect.origin(), &chat, &reply);
    let (body, losses) =
        call.dialect.write_reply(reply, &chat, &super::stream_pipeline::reply_stamp(call));
    account.add_losses(losses);
    Ok((meter, Bytes::from(body)))
}

/// Reads a whole body within the limits of size and time.
pub(super) async fn read_body(
    answer: ClientResponse,
    lane: &LiveLane,
    call: &Call,
) -> Result<Bytes, ApiError> {
    let kind = answer.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if kind.is_some_and(|kind| kind.starts_with("text/html")) {
        return Err(unusable_answer("a web page was returned instead of a reply"));
    }
    let mut body = answer.body;
    let mut first: Option<Bytes> = None;
    let mut all = BytesMut::new();
    while let Some(data) = next_chunk(&mut body, lane, call).await? {
        if all.len() + data.len() > MAX_REPLY_BYTES {
            return Err(too_large_error());
        }
        match &first {
            None => first = Some(data),
            Some(chunk) => {
                if all.is_empty() {
                    all.extend_from_slice(chunk);
                }
                all.extend_from_slice(&data);
            }
        }
    }
    match first {
        None => Err(unusable_answer("an empty body was returned instead of a reply")),
        Some(only) if all.is_empty() => Ok(only),
        Some(_) => Ok(all.freeze()),
    }
}

fn too_large_error() -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "the provider's answer is too large")
}

/// Error for a 200 response without a reply. No model can have worked for it.
pub(super) fn unusable_answer(why: &str) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "the provider gave no usable answer, retry later")
        .with_progress(UpstreamProgress::Answered(200))
        .with_log_note(why)
}

/// Returns true if the trailers report a failure, as services behind gRPC do
/// (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).
fn reports_failure(trailers: &HeaderMap) -> bool {
    trailers.get("grpc-status").is_some_and(|status| status != "0")
}

/// Returns the next chunk of a body within the time limits; `None` at its end.
async fn next_chunk(
    body: &mut transport::ClientBody,
    lane: &LiveLane,
    call: &Call,
) -> Result<Option<Bytes>, ApiError> {
    while !body.is_end_stream() {
        let left = call.time_left(&lane.timeouts);
        // `timeout` prefers a ready frame to an expired deadline.
        if left.is_zero() {
            return Err(ApiError::new(
                ErrorKind::Timeout,
                "the answer took longer than is allowed",
            ));
        }
        match tokio::time::timeout(lane.timeouts.gap.min(left), body.frame()).await {
            Err(_) => {
                return Err(ApiError::new(ErrorKind::Timeout, "the provider's answer stalled")
                    .with_log_note("silence in the middle of a whole reply"));
            }
            Ok(None) => break,
            Ok(Some(Err(e))) => {
                return Err(ApiError::new(
                    ErrorKind::Unavailable,
                    "the provider's answer broke off",
                )
                .with_log_note(e.to_string()));
            }
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => return Ok(Some(data)),
                Err(frame) if frame.trailers_ref().is_some_and(reports_failure) => {
                    return Err(ApiError::new(
                        ErrorKind::Unavailable,
                        "the provider's answer failed",
                    )
                    .with_log_note("the trailers of a whole reply report a failure"));
                }
                Err(_) => {}
            },
        }
    }
    Ok(None)
}
