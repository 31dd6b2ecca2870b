//! A reply on its way to the caller, whole or streamed. A whole reply is a stream of one piece: both
//! take the pipeline and end in one settlement.

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use canon::{
    ApiError, ChatReply, ErrorKind, Finish, FinishReason, RawReason, UpstreamProgress, WireFormat,
    scrub_for,
};
use dialects::{ClientToolCalls, ReplyMeter, RequestFacts, failed_turn};
use http::HeaderMap;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use store::is_large;
use tokio::time::error::Elapsed;
use transport::{
    ClientBody, ClientResponse, DecodeError, HeaderBlock, ReplyHeaders, ServerBody, ServerReply,
    UndecodedBody, visible_text,
};

use super::call_texts::text_owners;
use super::compressed_body::CompressedRest;
use super::fence;
use super::object_book::ObjectReceipt;
use super::prepare::ExpectedReply;
use super::settle::{BoxedAccount, FinishedReply};
use super::stream_pipeline::{StreamPipeline, StreamProgress};
use super::value_count::check_reply_values;
use super::work_budget::WorkBudget;
use super::{Call, streamed_body};
use config::LiveLane;

/// Larger replies of providers are refused.
const MAX_REPLY_BYTES: usize = 64 << 20;

// Headers of every reply of a kind.
pub(super) const JSON_LINES: &str =
    "content-type: application/json\r\nx-content-type-options: nosniff\r\n";
const EVENT_LINES: &str = "content-type: text/event-stream; charset=utf-8\r\n\
                           cache-control: no-cache\r\nx-accel-buffering: no\r\n";
const ARRAY_LINES: &str = "content-type: application/json\r\n\
                           cache-control: no-cache\r\nx-accel-buffering: no\r\n";

/// Returns the reply of a lane in the caller's format. An error returns the account for the next
/// lane.
pub(super) async fn relay_reply(
    call: &Arc<Call>,
    facts: &RequestFacts,
    lane: &Arc<LiveLane>,
    expected: ExpectedReply,
    answer: ClientResponse,
    mut account: BoxedAccount,
) -> Result<ServerReply, (ApiError, BoxedAccount)> {
    let is_streamed = expected.is_stream && is_stream(&answer.headers);
    if is_streamed && facts.stream {
        let pipeline = StreamPipeline::new(call, facts, expected);
        return streamed_body::begin_stream(
            call,
            lane,
            pipeline,
            facts.json_array,
            answer,
            account,
        )
        .await;
    }
    let finished = if is_streamed {
        let pipeline = StreamPipeline::new(call, facts, expected);
        // Boxed because it is rare: the future of every call would grow by its size.
        Box::pin(gather_stream(call, lane, pipeline, answer, &mut account)).await
    } else {
        let mut received = 0;
        match read_json_counted(answer, lane, call, &mut received).await {
            Ok(body) => {
                let permit = call.permit_for(body.len()).await;
                let (dialect, whole) = (expected.dialect, body.clone());
                let owners = text_owners(call, &expected.provider);
                let convert = || {
                    let converted =
                        scrub_for(&owners, || convert_piece(call, facts, expected, body));
                    // A body that cannot even be metered is a failed attempt, whose prompt is absorbed.
                    let unusable = converted.is_err().then(|| dialect.meter_reply(&whole).ok());
                    (converted, unusable.flatten())
                };
                let (converted, unusable) = permit.run(convert).await;
                if let Some(meter) = unusable {
                    account.absorb_answer(&meter);
                }
                converted
            }
            Err(error) => {
                account.record_received(received);
                Err(error)
            }
        }
    };
    let ConvertedReply { finished, body, recording } = match finished {
        Ok(finished) => finished,
        Err(error) => return Err((before_first_byte(error), account)),
    };
    account.record_reply(finished);
    if let Some(recording) = recording {
        // The write logs its failure.
        let _ = recording.await;
    }
    Ok(match facts.stream {
        true => settled_events(body, facts.json_array, account).await,
        false => settled_response(body, account).await,
    })
}

/// A whole reply for the caller.
pub(super) struct ConvertedReply {
    pub(super) finished: FinishedReply,
    /// The caller's bytes.
    pub(super) body: Bytes,
    /// Record of the ids in the reply, which must be written before the caller has it.
    pub(super) recording: Option<ObjectReceipt>,
}

/// Converts a body that arrived as one piece.
///
/// A whole reply of the caller's format is metered and completed by edits of its bytes. Any other is
/// read, metered by what was read, and written.
fn convert_piece(
    call: &Call,
    facts: &RequestFacts,
    expected: ExpectedReply,
    body: Bytes,
) -> Result<ConvertedReply, ApiError> {
    if expected.is_stream {
        return StreamPipeline::run_piece(call, facts, expected, body);
    }
    let made = fence::made_objects(call, facts, expected.dialect, &expected.provider);
    let record = |body: &Bytes| {
        let mut made = made?;
        made.ids.observe(body);
        fence::record_made(call, &mut made)
    };
    let Some(translation) = expected.translation else {
        let (meter, completed) = expected.dialect.pass_reply(&body, facts, &call.reply_stamp())?;
        let recording = record(&body);
        return Ok(ConvertedReply { finished: meter.into(), body: completed, recording });
    };
    let chat = &translation.request;
    let mut reply = expected.dialect.read_reply(&body)?;
    let recording = record(&body);
    let meter = ReplyMeter::of_reply(&reply);
    complete_endings(&mut reply, expected.dialect.origin());
    check_ending(&reply, call)?;
    let mut losses = ClientToolCalls::for_request(chat).convert_reply(&mut reply);
    let account_id = &call.key.record.account_id;
    call.engine.signatures.keep_reply(account_id, call.dialect.origin(), chat, &reply);
    let (body, more) = call.dialect.write_reply(reply, chat, &call.reply_stamp());
    losses.extend(more);
    let finished = FinishedReply { meter, losses, was_stopped: false };
    Ok(ConvertedReply { finished, body: Bytes::from(body), recording })
}

/// Gives candidates without an ending one that says so. Nobody knows if such a turn is complete.
pub(super) fn complete_endings(reply: &mut ChatReply, lane: WireFormat) {
    for candidate in &mut reply.candidates {
        candidate
            .finish
            .get_or_insert_with(|| Finish::new(FinishReason::Other, RawReason::new(lane, "")));
    }
}

/// Refuses a reply whose turn failed, if the caller's format cannot say so. The next lane may
/// succeed.
pub(super) fn check_ending(reply: &ChatReply, call: &Call) -> Result<(), ApiError> {
    let finishes = reply.candidates.iter().filter_map(|candidate| candidate.finish.as_ref());
    let mut failures = finishes.filter_map(|finish| failed_turn(finish, call.dialect.origin()));
    failures.next().map_or(Ok(()), Err)
}

/// Gathers a stream into a whole reply. The stream is needed because the gateway may have to end it
/// early.
async fn gather_stream(
    call: &Call,
    lane: &LiveLane,
    mut pipeline: StreamPipeline,
    mut answer: ClientResponse,
    account: &mut BoxedAccount,
) -> Result<ConvertedReply, ApiError> {
    let mut out = Vec::new();
    let mut received = 0;
    let mut budget = WorkBudget::default();
    loop {
        budget.charge().await;
        let chunk = match next_chunk(&mut answer.body, lane, call).await {
            Ok(Some(data)) if received + data.len() > MAX_REPLY_BYTES => Err(too_large_error()),
            chunk => chunk,
        };
        let chunk = chunk.inspect_err(|_| absorb_begun(&pipeline, account))?;
        let progress = match chunk {
            Some(data) => {
                received += data.len();
                budget.add(data.len());
                pipeline.push_bytes(data, &mut out)
            }
            None => pipeline.finish(&mut out),
        };
        match progress {
            StreamProgress::Ongoing => {}
            StreamProgress::Complete => return Ok(pipeline.into_reply(call, out)),
            StreamProgress::Broken(error) => {
                absorb_begun(&pipeline, account);
                return Err(error);
            }
        }
    }
}

/// Adds the cost of a stream that broke off to the amount the operator absorbs, if it had begun.
fn absorb_begun(pipeline: &StreamPipeline, account: &mut BoxedAccount) {
    let meter = pipeline.meter();
    if meter.usage.is_some() || meter.output_bytes > 0 {
        account.absorb_answer(meter);
    }
}

/// Settles a call whose reply is recorded, and returns the reply with its cost.
pub(super) async fn settled_response(body: Bytes, account: BoxedAccount) -> ServerReply {
    let mut reply = ServerReply::with_lines(JSON_LINES, ServerBody::Whole(body));
    add_call_headers(&mut reply.headers, &account);
    let cost = account.close_done().written().await;
    cost.with_text(|text| reply.headers.insert("x-portunus-cost", text.as_bytes()));
    reply
}

/// Settles a call whose reply is recorded, and returns the reply as the events of a stream.
pub(super) async fn settled_events(body: Bytes, array: bool, account: BoxedAccount) -> ServerReply {
    let mut reply = event_reply(ServerBody::Whole(body), array);
    add_call_headers(&mut reply.headers, &account);
    account.close_done().written().await;
    reply
}

/// Returns a 200 response with a JSON body.
pub fn json_response(body: impl Into<Body>) -> Response {
    ServerReply::with_lines(JSON_LINES, ServerBody::Stream(body.into())).into_response()
}

/// Returns a streaming response like [`event_reply`].
pub fn event_stream(body: Body, array: bool) -> Response {
    event_reply(ServerBody::Stream(body), array).into_response()
}

/// Returns a streaming reply: server-sent events
/// (<https://html.spec.whatwg.org/multipage/server-sent-events.html>), or the items of one JSON
/// array.
///
/// `x-accel-buffering: no` turns off the buffering of nginx
/// (<https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffering>).
pub(super) fn event_reply(body: ServerBody, array: bool) -> ServerReply {
    ServerReply::with_lines(if array { ARRAY_LINES } else { EVENT_LINES }, body)
}

/// Converts a stream error before the first byte: for the caller no reply has begun.
pub(super) fn before_first_byte(error: ApiError) -> ApiError {
    if error.kind() != ErrorKind::Interrupted {
        return error;
    }
    let note = error.log_note().unwrap_or_default().to_owned();
    ApiError::new(ErrorKind::Unavailable, error.message().to_owned()).with_log_note(note)
}

/// Returns true if the content type is that of an event stream, or missing.
pub(super) fn is_stream(headers: &HeaderBlock) -> bool {
    let is_kind = |kind: &[u8]| kind.starts_with(b"text/event-stream");
    // A value with other than visible characters counts as missing.
    headers.get("content-type").is_none_or(|kind| is_kind(kind) || visible_text(kind).is_none())
}

/// Adds the headers that name the lane and the losses.
pub(super) fn add_call_headers(headers: &mut ReplyHeaders, account: &BoxedAccount) {
    headers.insert("x-portunus-lane", account.lane().as_bytes());
    if let Some(losses) = account.loss_header() {
        headers.insert("x-portunus-loss", losses.as_bytes());
    }
}

/// Reads a JSON body within the limits of size, time and number of values.
pub(super) async fn read_json(
    answer: ClientResponse,
    lane: &LiveLane,
    call: &Call,
) -> Result<Bytes, ApiError> {
    read_json_counted(answer, lane, call, &mut 0).await
}

/// Reads a JSON body within the limits. `received` is the number of its bytes, also after an error.
async fn read_json_counted(
    answer: ClientResponse,
    lane: &LiveLane,
    call: &Call,
    received: &mut usize,
) -> Result<Bytes, ApiError> {
    let body = read_body_counted(answer, lane, call, received).await?;
    call.permit_for(body.len()).await.run(|| check_reply_values(&body)).await?;
    Ok(body)
}

/// Reads a whole body within the limits of size and time.
pub(super) async fn read_body(
    answer: ClientResponse,
    lane: &LiveLane,
    call: &Call,
) -> Result<Bytes, ApiError> {
    read_body_counted(answer, lane, call, &mut 0).await
}

async fn read_body_counted(
    answer: ClientResponse,
    lane: &LiveLane,
    call: &Call,
    received: &mut usize,
) -> Result<Bytes, ApiError> {
    let kind = answer.headers.get("content-type");
    let page = kind.filter(|kind| kind.starts_with(b"text/html"));
    if page.is_some_and(|kind| visible_text(kind).is_some()) {
        return Err(unusable_answer("a web page was returned instead of a reply"));
    }
    let mut body = answer.body;
    let mut first: Option<Bytes> = None;
    let mut all = BytesMut::new();
    let mut compressed = None;
    while let Some(data) = next_chunk(&mut body, lane, call).await? {
        if let Some(rest) = &mut compressed {
            CompressedRest::push(rest, data).map_err(undecodable_answer)?;
            continue;
        }
        *received += data.len();
        if *received > MAX_REPLY_BYTES {
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
        if is_large(*received) && matches!(body, ClientBody::Compressed(_)) {
            body = match body.into_undecoded() {
                Ok(UndecodedBody { body, decoder, rest }) => {
                    compressed = Some(CompressedRest::new(decoder, rest, MAX_REPLY_BYTES));
                    body
                }
                Err(body) => *body,
            };
        }
    }
    if let Some(rest) = compressed {
        if all.is_empty() {
            all.extend_from_slice(first.as_deref().unwrap_or_default());
        }
        // Boxed because it is rare: the future of every call would grow by its size.
        let decoded = Box::pin(rest.finish(&call.engine.heavy_work, &mut all)).await;
        *received = all.len();
        decoded.map_err(undecodable_answer)?;
    }
    match first {
        None => Err(unusable_answer("an empty body was returned instead of a reply")),
        Some(only) if all.is_empty() => Ok(only),
        Some(_) => Ok(all.freeze()),
    }
}

fn undecodable_answer(why: DecodeError) -> ApiError {
    match why {
        DecodeError::TooLarge => too_large_error(),
        why @ (DecodeError::TooDense | DecodeError::Broken(_)) => {
            ApiError::new(ErrorKind::Unavailable, "the provider's answer broke off")
                .with_log_note(why.to_string())
        }
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

/// Waits for a future at most this long. One that is ready, as is the body of a short reply that came
/// with its head, needs no timer.
async fn within<F: Future>(limit: Duration, future: F) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    match poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => tokio::time::timeout(limit, future).await,
    }
}

/// Returns the next chunk of a body within the time limits; `None` at its end.
async fn next_chunk(
    body: &mut ClientBody,
    lane: &LiveLane,
    call: &Call,
) -> Result<Option<Bytes>, ApiError> {
    while !body.is_end_stream() {
        let left = call.time_left(&lane.timeouts);
        // `within` prefers a ready frame to an expired deadline.
        if left.is_zero() {
            return Err(ApiError::new(
                ErrorKind::Timeout,
                "the answer took longer than is allowed",
            ));
        }
        match within(lane.timeouts.gap.min(left), body.frame()).await {
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
