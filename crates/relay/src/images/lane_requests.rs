//! Image requests to a lane: one or several, with polling if the lane answers with a task.

use bytes::Bytes;
use canon::{ApiError, GeneratedImage, ImageReply, Usage};
use dialects::Dialect;
use dialects::images::{ImageAnswer, ImageProtocol, ImageProviderRequest};
use futures_util::stream::{StreamExt as _, iter};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::route::Candidate;
use super::super::send as lane;
use super::super::{Call, whole_reply};
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
pub(super) async fn request_all(call: &Call, pick: &Candidate, prepared: PreparedImages) -> Result<LaneImages, ApiError> {
    let PreparedImages { protocol: spoken, requests: written, losses: _, is_pass_through: same } = prepared;
    let several = written.len() > 1;
    let asking = written.into_iter().map(|written| request_one(call, pick, spoken, written));
    let answers: Vec<_> = iter(asking).buffered(MAX_CONCURRENT_REQUESTS).collect().await;
    let mut all = LaneImages { reply: ImageReply::default(), body: None };
    let mut failed = Vec::new();
    for answer in answers {
        match answer {
            Ok((pictures, body)) => {
                append_reply(&mut all.reply, pictures);
                all.body = (same && !several).then_some(body);
            }
            Err(fault) => failed.push(fault),
        }
    }
    if all.reply.count() == 0
        && let Some(fault) = failed.pop()
    {
        return Err(fault);
    }
    // Images that succeeded are delivered. The others are reported as failed and not billed.
    all.reply.images.extend(failed.into_iter().map(|fault| GeneratedImage::Failed {
        code: fault.code().unwrap_or("server_error").to_owned(),
        say: fault.message().to_owned(),
    }));
    Ok(all)
}

/// Appends a reply to the replies before it.
fn append_reply(all: &mut ImageReply, more: ImageReply) {
    let ImageReply { created, images: made, usage, background, format, quality, size, extras } = more;
    let first = all.images.is_empty();
    all.images.extend(made);
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

fn sum_usage(one: Usage, other: Usage) -> Usage {
    Usage {
        input: one.input.saturating_add(other.input),
        cache_read: one.cache_read.saturating_add(other.cache_read),
        input_image: one.input_image.saturating_add(other.input_image),
        output: one.output.saturating_add(other.output),
        output_image: one.output_image.saturating_add(other.output_image),
        thinking: one.thinking.saturating_add(other.thinking),
        searches: one.searches.saturating_add(other.searches),
        ..one
    }
}

/// Returns the format of the lane's errors.
pub(super) fn error_dialect(spoken: ImageProtocol) -> &'static dyn Dialect {
    dialects::get(spoken.origin()).unwrap_or(&dialects::chat::ChatDialect)
}

pub(super) async fn send(
    call: &Call,
    pick: &Candidate,
    spoken: ImageProtocol,
    written: ImageProviderRequest,
) -> Result<transport::ClientResponse, ApiError> {
    let ImageProviderRequest { outgoing, content_type: kind, headers: more } = written;
    let dialect = error_dialect(spoken);
    let mut headers = lane::request_headers(call, dialect);
    if let Some(kind) = kind {
        let kind = HeaderValue::from_str(&kind)
            .map_err(|e| ApiError::internal(format!("invalid content type {kind}: {e}")))?;
        headers.insert(CONTENT_TYPE, kind);
    }
    for (name, value) in more {
        headers.insert(*name, HeaderValue::from_static(value));
    }
    lane::send_with_headers(call, pick, dialect, headers, outgoing).await
}

async fn request_one(
    call: &Call,
    pick: &Candidate,
    spoken: ImageProtocol,
    written: ImageProviderRequest,
) -> Result<(ImageReply, Bytes), ApiError> {
    let answer = send(call, pick, spoken, written).await?;
    let mut body = whole_reply::read_body(answer, &pick.lane, call).await?;
    let (mut pause, mut lost, mut named) = (FIRST_POLL_PAUSE, 0, None);
    loop {
        // The first task URL counts, because later replies may omit it.
        let at: &str = match spoken.read(&body)? {
            ImageAnswer::Finished(pictures) => return Ok((pictures, body)),
            ImageAnswer::Pending(at) => named.get_or_insert(at),
        };
        if let (Some(progress), Some(come)) = (&call.progress, spoken.progress(&body)) {
            progress.fetch_max(come, Ordering::Relaxed);
        }
        if pause >= call.time_left(&pick.lane.timeouts) {
            return Err(ApiError::new(
                canon::ErrorKind::Timeout,
                "the provider took too long to answer",
            )
            .with_log_note("the task did not finish in time"));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(MAX_POLL_PAUSE);
        let again = async {
            let answer = lane::get_from_lane(call, pick, error_dialect(spoken), at).await?;
            whole_reply::read_body(answer, &pick.lane, call).await
        };
        match again.await {
            Ok(told) => (body, lost) = (told, 0),
            // The task continues and is billed even while polls fail.
            Err(fault) if fault.is_retryable() && lost < MAX_FAILED_POLLS => lost += 1,
            Err(fault) => return Err(fault),
        }
    }
}

/// Returns true if the image is part of the reply and not a link.
pub(super) const fn is_inline(made: &GeneratedImage) -> bool {
    matches!(made, GeneratedImage::Image { source: canon::MediaSource::Inline { .. }, .. } | GeneratedImage::Failed { .. })
}
