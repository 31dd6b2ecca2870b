//! Delivery of generated images: inline, or as links of this gateway that live longer than the
//! provider's.

use bytes::Bytes;
use canon::{ApiError, ErrorKind, GeneratedImage, ImageDelivery, MediaKind, MediaSource};
use dialects::images::ImageReplyDefaults;
use upstream::FetchAllowance;

use super::super::reply::read_body;
use super::super::route::Candidate;
use super::super::{Call, send};
use super::DeliveredImages;
use super::image_call::{self, ImageCall};
use super::lane_requests::{self, LaneImages};

/// Limit of bytes fetched for one call.
const MAX_FETCHED_BYTES: usize = 256 << 20;

/// Converts every image to the delivery that the caller requested.
pub(super) async fn deliver(
    call: &Call,
    image_call: &ImageCall,
    candidate: &Candidate,
    answer: (LaneImages, ImageReplyDefaults),
) -> Result<DeliveredImages, ApiError> {
    let (LaneImages { mut reply, body }, mut defaults) = answer;
    let requested = image_call.delivery();
    let inline = reply.images.iter().all(lane_requests::is_inline);
    if inline && requested != Some(ImageDelivery::Url) {
        return Ok(DeliveredImages { reply, pass_through_body: body, defaults });
    }
    let allowance = FetchAllowance::new(MAX_FETCHED_BYTES);
    for image in &mut reply.images {
        let GeneratedImage::Image { source, .. } = image else { continue };
        if requested.is_none() && matches!(source, MediaSource::Inline { .. }) {
            continue;
        }
        let (mime, bytes) = match &*source {
            MediaSource::Inline { mime, data } => {
                let permit = call.permit_for(data.len()).await;
                let bytes = permit
                    .run(|| media::decode_base64(data))
                    .await
                    .ok_or_else(|| unreadable_image("base64"))?;
                (mime.clone(), Bytes::from(bytes))
            }
            MediaSource::Url { url, .. } => fetch_image(call, candidate, url, &allowance).await?,
            MediaSource::File { .. } | MediaSource::Text(_) => {
                return Err(unreadable_image("no bytes"));
            }
        };
        defaults.measure(&bytes);
        // Without a requested delivery, a link stays a link, but one of this gateway that does not
        // expire early.
        *source = match requested {
            Some(ImageDelivery::Url) | None => {
                let account = &call.key.record.account_id;
                let link = call.engine.files.put(account, bytes, &mime).await?;
                MediaSource::Url { url: link.url, mime: Some(mime) }
            }
            Some(ImageDelivery::Base64) => {
                let permit = call.permit_for(bytes.len()).await;
                let data = permit.run(|| media::encode_base64(&bytes)).await;
                MediaSource::Inline { data, mime }
            }
        };
    }
    Ok(DeliveredImages { reply, pass_through_body: None, defaults })
}

/// Fetches an image that the provider returned as a link: with its credentials from the provider's
/// own hosts, through the guarded fetcher from others.
async fn fetch_image(
    call: &Call,
    candidate: &Candidate,
    url: &str,
    allowance: &FetchAllowance,
) -> Result<(String, Bytes), ApiError> {
    let bytes = if candidate.lane.provider.owns(url) {
        let dialect = lane_requests::error_dialect(image_call::image_protocol(&candidate.lane)?);
        let answer = send::get_from_lane(call, candidate, dialect, url).await?;
        read_body(answer, &candidate.lane, call).await?
    } else {
        let fetcher = &call.config.media.fetcher;
        let fetched = fetcher.fetch(url, MediaKind::Image, allowance).await;
        Bytes::from(fetched.map_err(|e| unreadable_image(&e.to_string()))?.bytes)
    };
    let info = media::image_info(&bytes).ok_or_else(|| unreadable_image("not an image"))?;
    Ok((info.mime(), bytes))
}

fn unreadable_image(what: &str) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        "the provider's picture could not be fetched, retry later",
    )
    .with_log_note(format!("a generated image cannot be read: {what}"))
}
