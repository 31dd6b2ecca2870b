//! Image requests to a lane: one or several, with polling if the lane answers with a task.

use bytes::Bytes;
use canon::{ApiError, GeneratedImage, ImageReply, Usage, scrub_for};
use dialects::Dialect;
use dialects::images::{ImageAnswer, ImageProtocol, ImageProviderRequest};
use futures_util::stream::{StreamExt as _, iter};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::Call;
use super::super::call_texts::text_owners;
use super::super::reply::read_json;
use super::super::route::Candidate;
use super::super::send as lane;
use super::image_call::PreparedImages;

/// Limit per call.
const MAX_CONCURRENT_REQUESTS: usize = 4;
/// Pause before the first poll of a task.
const FIRST_POLL_PAUSE: Duration = Duration::from_millis(500);
const MAX_POLL_PAUSE: Duration = Duration::from_secs(5);
/// Limit of consecutive failed polls.
const MAX_FAILED_POLLS: u32 = 3;

/// Images that a lane returned.
pub(super) struct LaneImages {
    pub(super) reply: ImageReply,
    /// Bytes of the lane's reply, if they are in the caller's format.
    pub(super) body: Option<Bytes>,
}

/// Sends all requests of a call and merges the replies.
pub(super) async fn request_all(
    call: &Call,
    candidate: &Candidate,
    prepared: PreparedImages,
) -> Result<LaneImages, ApiError> {
    let PreparedImages { protocol, requests: written, losses: _, is_pass_through } = prepared;
    let several = written.len() > 1;
    let requests =
        written.into_iter().map(|written| request_one(call, candidate, protocol, written));
    let answers: Vec<_> = iter(requests).buffered(MAX_CONCURRENT_REQUESTS).collect().await;
    let mut all = LaneImages { reply: ImageReply::default(), body: None };
    let mut failed = Vec::new();
    for answer in answers {
        match answer {
            Ok((reply, body)) => {
                // A body with the words of an error is written anew.
                let is_whole = !reply.images.iter().any(is_failed);
                append_reply(&mut all.reply, reply);
                all.body = (is_pass_through && !several && is_whole).then_some(body);
            }
            Err(error) => failed.push(error),
        }
    }
    if all.reply.count() == 0
        && let Some(error) = failed.pop()
    {
        return Err(error);
    }
    // Images that succeeded are delivered. The others are reported as failed and not billed.
    all.reply.images.extend(failed.into_iter().map(|error| GeneratedImage::Failed {
        code: error.code().unwrap_or("server_error").to_owned(),
        say: error.message().to_owned(),
    }));
    Ok(all)
}

const fn is_failed(image: &GeneratedImage) -> bool {
    matches!(image, GeneratedImage::Failed { .. })
}

/// Reads an answer without the operator's secrets in its words about images that were not made.
pub(super) fn read_scrubbed(
    call: &Call,
    candidate: &Candidate,
    protocol: ImageProtocol,
    body: &[u8],
) -> Result<ImageAnswer, ApiError> {
    scrub_for(&text_owners(call, &candidate.lane.provider), || protocol.read(body))
}

/// Appends a reply to the replies before it.
fn append_reply(all: &mut ImageReply, more: ImageReply) {
    let ImageReply { created, images: image, usage, background, format, quality, size, extras } =
        more;
    let first = all.images.is_empty();
    all.images.extend(image);
    // A sum with a missing part would bill too little.
    all.usage = match (all.usage, usage) {
        (_, usage) if first => usage,
        (Some(own), Some(more)) => Some(sum_usage(own, more)),
        (None, _) | (_, None) => None,
    };
    if first {
        (all.created, all.background, all.format) = (created, background, format);
        (all.quality, all.size, all.extras) = (quality, size, extras);
    }
}

fn sum_usage(first: Usage, other: Usage) -> Usage {
    Usage {
        input: first.input.saturating_add(other.input),
        cache_read: first.cache_read.saturating_add(other.cache_read),
        input_image: first.input_image.saturating_add(other.input_image),
        output: first.output.saturating_add(other.output),
        output_image: first.output_image.saturating_add(other.output_image),
        thinking: first.thinking.saturating_add(other.thinking),
        searches: first.searches.saturating_add(other.searches),
        ..first
    }
}

/// Returns the format of the lane's errors.
pub(super) fn error_dialect(protocol: ImageProtocol) -> &'static dyn Dialect {
    dialects::get(protocol.origin()).unwrap_or(dialects::DEFAULT)
}

pub(super) async fn send(
    call: &Call,
    candidate: &Candidate,
    protocol: ImageProtocol,
    written: ImageProviderRequest,
) -> Result<transport::ClientResponse, ApiError> {
    let ImageProviderRequest { outgoing, content_type, headers: more } = written;
    let dialect = error_dialect(protocol);
    let mut headers = lane::request_headers(call, dialect);
    if let Some(content_type) = content_type {
        let content_type = HeaderValue::from_str(&content_type)
            .map_err(|e| ApiError::internal(format!("invalid content type {content_type}: {e}")))?;
        headers.insert(CONTENT_TYPE, content_type);
    }
    for (name, value) in more {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    lane::send_with_headers(call, candidate, dialect, headers, outgoing).await
}

async fn request_one(
    call: &Call,
    candidate: &Candidate,
    protocol: ImageProtocol,
    written: ImageProviderRequest,
) -> Result<(ImageReply, Bytes), ApiError> {
    let answer = send(call, candidate, protocol, written).await?;
    let mut body = read_json(answer, &candidate.lane, call).await?;
    let (mut pause, mut failed_polls, mut task_url) = (FIRST_POLL_PAUSE, 0, None);
    loop {
        // The first task URL counts, because later replies may omit it.
        let permit = call.permit_for(body.len()).await;
        let at: &str = match permit.run(|| read_scrubbed(call, candidate, protocol, &body)).await? {
            ImageAnswer::Finished(reply) => return Ok((reply, body)),
            ImageAnswer::Pending(at) => task_url.get_or_insert(at),
        };
        if let (Some(progress), Some(percent)) = (&call.progress, protocol.progress(&body)) {
            progress.fetch_max(percent, Ordering::Relaxed);
        }
        if pause >= call.time_left(&candidate.lane.timeouts) {
            return Err(ApiError::new(
                canon::ErrorKind::Timeout,
                "the provider took too long to answer",
            )
            .with_log_note("the task did not finish in time"));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(MAX_POLL_PAUSE);
        let poll = async {
            let answer = lane::get_from_lane(call, candidate, error_dialect(protocol), at).await?;
            read_json(answer, &candidate.lane, call).await
        };
        match poll.await {
            Ok(polled) => (body, failed_polls) = (polled, 0),
            // The task continues and is billed even while polls fail.
            Err(error) if error.is_retryable() && failed_polls < MAX_FAILED_POLLS => {
                failed_polls += 1
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns true if the image is part of the reply and not a link.
pub(super) const fn is_inline(image: &GeneratedImage) -> bool {
    matches!(
        image,
        GeneratedImage::Image { source: canon::MediaSource::Inline { .. }, .. }
            | GeneratedImage::Failed { .. }
    )
}
