//! One request to a lane, and what comes back instead of an answer.

use canon::{ApiError, UpstreamProgress, ErrorKind};
use dialects::{Dialect, ProviderRequest};
use http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt as _;
use std::time::Duration;
use transport::{Answer, Body};
use upstream::{Sending, wait_hint};

use super::Call;
use super::route::Pick;
use super::wishes::HOPS;

/// How much of a provider's error is read.
const ERROR_BODY: usize = 64 << 10;
/// How long a provider may take to tell its error.
const ERROR_TIME: Duration = Duration::from_secs(5);

/// Sends a request to a lane; anything but a 200 is a fault.
pub(super) async fn send(
    call: &Call,
    pick: &Pick,
    dialect: &'static dyn Dialect,
    outgoing: ProviderRequest,
) -> Result<Answer, ApiError> {
    let headers = headers(call, dialect);
    send_with(call, pick, dialect, headers, outgoing).await
}

/// The same with these headers.
pub(super) async fn send_with(
    call: &Call,
    pick: &Pick,
    dialect: &'static dyn Dialect,
    headers: HeaderMap,
    outgoing: ProviderRequest,
) -> Result<Answer, ApiError> {
    let (provider, how) = (&pick.lane.provider, how(call, pick));
    let pieces = outgoing.body.into_segments();
    let answer = provider.send(&outgoing.path, headers, pieces, &how).await?;
    good(call, dialect, answer).await
}

/// Asks a lane at a path, or at an address of its provider's; anything but a 200 is a fault.
pub(super) async fn ask_at(
    call: &Call,
    pick: &Pick,
    dialect: &'static dyn Dialect,
    at: &str,
) -> Result<Answer, ApiError> {
    let headers = headers(call, dialect);
    let answer = pick.lane.provider.get(at, headers, &how(call, pick)).await?;
    good(call, dialect, answer).await
}

fn how(call: &Call, pick: &Pick) -> Sending {
    let timeouts = &pick.lane.timeouts;
    Sending {
        credential: pick.credential,
        fresh: pick.fresh,
        connect: timeouts.connect,
        first_byte: timeouts.first_byte.min(call.left(timeouts)),
    }
}

/// The answer, if it is a good one.
async fn good(call: &Call, dialect: &'static dyn Dialect, answer: Answer) -> Result<Answer, ApiError> {
    let status = answer.status;
    if status == 200 {
        return Ok(answer);
    }
    let (told, body) = Box::pin(error_body(answer)).await;
    if (400..600).contains(&status) {
        let fault = dialect.read_error(status, &body);
        let hint = matches!(status, 429 | 503 | 529)
            .then(|| wait_hint(&told, &body, call.engine.clock.now()))
            .flatten();
        return Err(match hint {
            Some(wait) => fault.with_retry_after(wait),
            None => fault,
        });
    }
    Err(ApiError::new(ErrorKind::Unavailable, "the provider gave no usable answer, retry later")
        .with_progress(UpstreamProgress::Answered(status))
        .with_log_note(format!("status {status}")))
}

/// The headers of the lane's format, and on the same-dialect road the caller's own.
pub(super) fn headers(call: &Call, dialect: &'static dyn Dialect) -> HeaderMap {
    let same = dialect.origin() == call.dialect.origin();
    let mut headers = if same { call.handed_on.clone() } else { HeaderMap::new() };
    for (name, value) in dialect.request_headers() {
        headers.entry(*name).or_insert(HeaderValue::from_static(value));
    }
    if let Some(trace) = call.trace.and_then(|trace| trace.header()) {
        headers.insert("traceparent", trace);
    }
    if let Some(state) = &call.trace_state {
        headers.insert("tracestate", state.clone());
    }
    headers.insert(HOPS, call.wishes.hops.clone());
    headers
}

/// What a provider says of its error, as far as it says it soon and briefly.
async fn error_body(answer: Answer) -> (HeaderMap, Vec<u8>) {
    let mut body: Body = answer.body;
    let mut read = Vec::new();
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(data) = frame.into_data() {
                read.extend_from_slice(&data);
            }
            if read.len() > ERROR_BODY {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(ERROR_TIME, reading).await;
    (answer.headers, read)
}
