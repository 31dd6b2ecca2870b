//! One request to a lane, and the errors of its provider.

use canon::{ApiError, ErrorKind, UpstreamProgress, scrub_for};
use dialects::{Dialect, ProviderRequest};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::BodyExt as _;
use std::time::Duration;
use transport::{ClientBody, ClientResponse, HeaderFields};
use upstream::{AttemptFailure, SendOptions, suggested_wait};

use super::Call;
use super::call_options::HOPS_HEADER;
use super::call_texts::{RequestTexts, text_owners};
use super::route::Candidate;

const MAX_ERROR_BODY_BYTES: usize = 64 << 10;
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends a request to a lane. Any status but 200 is an error.
pub(super) fn send(
    call: &Call,
    candidate: &Candidate,
    dialect: &'static dyn Dialect,
    outgoing: ProviderRequest,
) -> impl Future<Output = Result<ClientResponse, ApiError>> {
    // Not `async`: the request would be copied from one future into the next.
    let mut headers = request_headers(call, dialect);
    // A caller of the same format says itself what it uses.
    if dialect.origin() != call.dialect.origin()
        && let Some(quirks) = candidate.lane.endpoints.quirks(dialect.origin())
        && let Some((name, value)) = dialect.traits().client_tool_header(&quirks.client_tools)
    {
        headers.insert_default(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    send_with_headers(call, candidate, dialect, headers, outgoing)
}

/// Sends a request with these headers. Any status but 200 is an error.
pub(super) async fn send_with_headers(
    call: &Call,
    candidate: &Candidate,
    dialect: &'static dyn Dialect,
    headers: HeaderFields,
    outgoing: ProviderRequest,
) -> Result<ClientResponse, ApiError> {
    let (provider, options) = (&candidate.lane.provider, send_options(call, candidate));
    let pieces = outgoing.body.into_segments();
    let answer = provider.send(&outgoing.path, headers, pieces, &options).await?;
    match answer.status {
        200 => Ok(answer),
        // Boxed because it is rare: the future of every call would grow by its size.
        _ => Err(Box::pin(read_error(call, candidate, dialect, answer)).await),
    }
}

/// Sends a GET request to a path or URL of the lane's provider. Any status but 200 is an error.
pub(super) async fn get_from_lane(
    call: &Call,
    candidate: &Candidate,
    dialect: &'static dyn Dialect,
    at: &str,
) -> Result<ClientResponse, ApiError> {
    let headers = request_headers(call, dialect).to_map();
    let answer = candidate.lane.provider.get(at, headers, &send_options(call, candidate)).await?;
    match answer.status {
        200 => Ok(answer),
        _ => Err(Box::pin(read_error(call, candidate, dialect, answer)).await),
    }
}

fn send_options<'a>(call: &'a Call, candidate: &Candidate) -> SendOptions<'a> {
    let timeouts = &candidate.lane.timeouts;
    SendOptions {
        credential: candidate.credential_index,
        new_connection: candidate.new_connection,
        connect: timeouts.connect,
        first_byte: timeouts.first_byte.min(call.time_left(timeouts)),
        sent: &call.sent,
        secrets: &call.sent_secrets,
    }
}

/// Converts an answer with another status than 200 into an error.
async fn read_error(
    call: &Call,
    candidate: &Candidate,
    dialect: &'static dyn Dialect,
    answer: ClientResponse,
) -> ApiError {
    let status = answer.status;
    let (response_headers, body) = read_error_body(answer).await;
    if (400..600).contains(&status) {
        let read = || {
            let (provider, sent) = (&candidate.lane.provider, RequestTexts::of(call));
            let body = sent.hide_secrets(provider, body);
            let owners = text_owners(call, provider);
            (scrub_for(&owners, || dialect.read_error(status, &body)), body)
        };
        // The texts of the error are looked for in the request.
        let (error, body) = call.work_permit().await.run(read).await;
        let hint = matches!(status, 429 | 503 | 529)
            .then(|| suggested_wait(&response_headers, &body, call.engine.clock.now()))
            .flatten();
        return match hint {
            Some(wait) => error.with_retry_after(wait),
            None => error,
        };
    }
    ApiError::new(ErrorKind::Unavailable, "the provider gave no usable answer, retry later")
        .with_progress(UpstreamProgress::Answered(status))
        .with_log_note(format!("status {status}"))
}

/// Returns the headers of the lane's format, plus the caller's forwarded ones if the formats agree.
pub(super) fn request_headers(call: &Call, dialect: &'static dyn Dialect) -> HeaderFields {
    let same = dialect.origin() == call.dialect.origin();
    let mut headers = HeaderFields::default();
    if same {
        headers = HeaderFields::from(&call.forwarded_headers);
    }
    for (name, value) in dialect.traits().request_headers {
        headers.insert_default(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if let Some(trace) = call.trace.and_then(|trace| trace.header()) {
        headers.insert(HeaderName::from_static("traceparent"), trace);
    }
    if let Some(state) = &call.trace_state {
        headers.insert(HeaderName::from_static("tracestate"), state.clone());
    }
    headers.insert(HOPS_HEADER, call.options.hops.clone());
    headers
}

/// Reads an error body within its limits of size and time.
async fn read_error_body(answer: ClientResponse) -> (HeaderMap, Vec<u8>) {
    let mut body: ClientBody = answer.body;
    let mut read = Vec::new();
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(data) = frame.into_data() {
                read.extend_from_slice(&data);
            }
            if read.len() > MAX_ERROR_BODY_BYTES {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(ERROR_BODY_TIMEOUT, reading).await;
    (answer.headers.to_map(), read)
}

/// Classifies an error for the health of the lane.
pub(super) fn classify_failure(error: &ApiError) -> AttemptFailure {
    match (error.progress(), error.kind()) {
        (Some(UpstreamProgress::Answered(401..=403)), _) => AttemptFailure::CredentialRefused,
        (Some(UpstreamProgress::Answered(404)), _) => AttemptFailure::ModelGone,
        (Some(UpstreamProgress::Refused | UpstreamProgress::Answered(408 | 409 | 425)), _) => {
            AttemptFailure::NotNow
        }
        (Some(UpstreamProgress::Answered(429)), _) | (_, ErrorKind::RateLimited) => {
            AttemptFailure::RateLimited(error.retry_after())
        }
        (Some(UpstreamProgress::Answered(529)), _) | (_, ErrorKind::Overloaded) => {
            AttemptFailure::Overloaded(error.retry_after())
        }
        (Some(UpstreamProgress::Answered(503)), _) if error.retry_after().is_some() => {
            AttemptFailure::Overloaded(error.retry_after())
        }
        (_, ErrorKind::Timeout) => AttemptFailure::TimedOut,
        _ => AttemptFailure::Down,
    }
}

/// Returns true if the provider may have done work whose result is lost.
pub(super) fn may_have_run(error: &ApiError) -> bool {
    match error.progress() {
        Some(
            UpstreamProgress::NotSent
            | UpstreamProgress::StaleConnection
            | UpstreamProgress::Refused
            | UpstreamProgress::Answered(_),
        ) => false,
        Some(UpstreamProgress::Sent) | None => true,
    }
}
