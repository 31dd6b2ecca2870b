//! Made pictures as the caller wants them: in the answer, or as links of our own that last longer
//! than the provider's.

use bytes::Bytes;
use canon::{ImageDelivery, ApiError, GeneratedImage, MediaKind, MediaSource, ErrorKind};
use upstream::Allowance;

use super::super::route::Pick;
use super::super::{Call, send, whole};
use super::Drawn;
use super::ask::{self, Asked};
use super::job::{self, Job};

/// The most bytes of pictures that are got for one order.
const MOST: usize = 256 << 20;

/// Brings every picture into the form the caller wants.
pub(super) async fn deliver(
    call: &Call,
    job: &Job,
    pick: &Pick,
    asked: Asked,
) -> Result<Drawn, ApiError> {
    let Asked { mut pictures, body } = asked;
    let wished = job.delivery();
    let inline = pictures.images.iter().all(ask::is_inline);
    if inline && wished != Some(ImageDelivery::Url) {
        return Ok(Drawn { pictures, same: body });
    }
    let allowance = Allowance::new(MOST);
    for made in &mut pictures.images {
        let GeneratedImage::Image { source, .. } = made else { continue };
        if wished.is_none() && matches!(source, MediaSource::Inline { .. }) {
            continue;
        }
        let (mime, bytes) = match &*source {
            MediaSource::Inline { mime, data } => {
                let bytes = dialects::images::decode(data).ok_or_else(|| unreadable("base64"))?;
                (mime.clone(), Bytes::from(bytes))
            }
            MediaSource::Url { url, .. } => get(call, pick, url, &allowance).await?,
            MediaSource::File { .. } | MediaSource::Text(_) => return Err(unreadable("its place")),
        };
        // What was only named stays an address where the caller does not care, but one that lasts.
        *source = match wished {
            Some(ImageDelivery::Url) | None => {
                let account = &call.key.record.account_id;
                let link = call.engine.files.keep(account, bytes, &mime).await?;
                MediaSource::Url { url: link.url, mime: Some(mime) }
            }
            Some(ImageDelivery::Base64) => {
                MediaSource::Inline { data: dialects::images::encode(&bytes), mime }
            }
        };
    }
    Ok(Drawn { pictures, same: None })
}

/// Gets a picture the provider only named: from itself as any answer of its, from elsewhere as what
/// a caller names.
async fn get(
    call: &Call,
    pick: &Pick,
    url: &str,
    allowance: &Allowance,
) -> Result<(String, Bytes), ApiError> {
    let bytes = if pick.lane.provider.owns(url) {
        let dialect = ask::voice(job::spoken(&pick.lane)?);
        let answer = send::ask_at(call, pick, dialect, url).await?;
        whole::read(answer, &pick.lane, call).await?
    } else {
        let fetcher = &call.config.media.fetcher;
        let got = fetcher.fetch(url, MediaKind::Image, allowance).await;
        Bytes::from(got.map_err(|e| unreadable(&e.to_string()))?.bytes)
    };
    let seen = dialects::images::image_info(&bytes).ok_or_else(|| unreadable("what is behind it"))?;
    Ok((seen.mime(), bytes))
}

fn unreadable(what: &str) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "the provider's picture could not be fetched, retry later")
        .with_log_note(format!("a made picture cannot be read: {what}"))
}
