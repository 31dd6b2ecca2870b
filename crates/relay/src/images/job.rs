//! An order on its way: what was asked, which route serves it, what it can cost, and what a lane is
//! sent for it.

use axum::response::Response;
use canon::{
    ImageDelivery, ImageFamily, ApiError, Loss, Losses, Money, WireFormat, ImageRequest, ImageReply, MediaSource, ErrorKind, Usage,
};
use catalog::{ModelKind, ImageCapabilities, ModelPrices};
use dialects::images::{ImageRequestForm, AsyncDelivery, GATEWAY_FIELDS, ParsedImageRequest, ImageProtocol, ImageProviderRequest};
use dialects::{RequestFacts, ReplyMeter};
use std::sync::Arc;
use upstream::{Allowance, FetchError};

use super::super::dry_run::{self, Found};
use super::super::settle::Tab;
use super::super::{Call, admit, fit, prepare, route};
use super::judge;
use crate::json::json as json_response;
use config::{LiveLane, Route};

/// More tokens than any model makes of one picture it is given.
const GIVEN: u64 = 16_384;
/// Tokens a model may say besides its pictures, where it converses.
const WORDS: u64 = 8_192;

/// An order for pictures.
pub(super) struct Job {
    form: ImageRequestForm,
    order: ParsedImageRequest,
    route: Arc<Route>,
    /// Whether something had to be fetched, so that the caller's bytes are not the whole order.
    fetched: bool,
}

/// What a lane is sent.
pub(super) struct Prepared {
    pub(super) spoken: ImageProtocol,
    /// One after the other, or all at once.
    pub(super) written: Vec<ImageProviderRequest>,
    pub(super) losses: Vec<Loss>,
    /// Whether they are the caller's own bytes.
    pub(super) same: bool,
}

impl Job {
    /// Reads an order and applies every rule there is.
    pub(super) fn read(call: &Call, form: ImageRequestForm) -> Result<Self, ApiError> {
        let order = form.read(&call.body)?;
        let route = route::find_kind(call, &order.picture.model, ModelKind::Image)?;
        judge::judge(&order.picture, &route.model)?;
        let guard = call.config.media.fetcher.guard();
        for (place, url) in named(&order.picture) {
            guard.look(url).map_err(|e| ApiError::invalid(&*place, format!("`{place}` {e}")))?;
        }
        Ok(Self { form, order, route, fetched: false })
    }

    /// What is asked for.
    pub(super) const fn picture(&self) -> &ImageRequest {
        &self.order.picture
    }

    /// Whether it is waited for, as the body says.
    pub(super) const fn later(&self) -> &AsyncDelivery {
        &self.order.delivery
    }

    /// The same order, with its pictures in the answer itself however they were wished for.
    pub(super) fn inline(mut self) -> Self {
        self.order.picture.delivery = Some(ImageDelivery::Base64);
        self
    }

    /// How the pictures are to come: a stream carries them in itself.
    pub(super) fn delivery(&self) -> Option<ImageDelivery> {
        if self.picture().stream { Some(ImageDelivery::Base64) } else { self.picture().delivery }
    }

    /// The model asked for.
    pub(super) fn model(&self) -> &str {
        &self.order.picture.model
    }

    /// Who serves it.
    pub(super) fn route(&self) -> &Route {
        &self.route
    }

    /// How many bytes count as input where a lane does not count.
    pub(super) fn weight(&self) -> u64 {
        let given = self.picture().inputs.len() as u64;
        (self.picture().prompt.len() as u64).saturating_add(given.saturating_mul(GIVEN / 8))
    }

    /// Gets what is only named by address, and sets the money aside. First the one, because what
    /// was fetched is judged like what was sent, and a refusal must not leave a hold.
    pub(super) async fn admitted(mut self, call: &Call) -> Result<(Self, Tab), ApiError> {
        let peek = RequestFacts {
            model: self.model().to_owned(),
            stream: self.picture().stream,
            max_output_tokens: Some(self.output(&self.route.model.images.clone().unwrap_or_default())),
            candidates: 1,
            ..RequestFacts::default()
        };
        admit::pace(call, &peek).await?;
        self.fetch(call).await?;
        let bound = self.bound(self.route.prices.iter());
        let mut tab = admit::admit_for(call, &peek, &self.route, bound).await?;
        let size = self.picture().size.to_string();
        tab.pictured(Some(&size), self.picture().quality.as_deref());
        admit::secure(call).await?;
        Ok((self, tab))
    }

    async fn fetch(&mut self, call: &Call) -> Result<(), ApiError> {
        let media = &call.config.media;
        let room = call.config.body_limit.saturating_sub(call.body.len());
        let allowance = Allowance::new(room / 4 * 3);
        let picture = &mut self.order.picture;
        let sources = picture.inputs.iter_mut().enumerate();
        let sources = sources.map(|(at, source)| (format!("image[{at}]"), source));
        let mask = picture.mask.iter_mut().map(|source| ("mask".to_owned(), source));
        for (place, source) in sources.chain(mask) {
            let MediaSource::Url { url, .. } = &*source else { continue };
            if !media.fetch {
                let say = format!("`{place}` must stand in the request itself");
                return Err(ApiError::invalid(place, say));
            }
            let got = media.fetcher.fetch(url, canon::MediaKind::Image, &allowance).await;
            let got = got.map_err(|e| could_not(&place, call, &e))?;
            let Some(seen) = dialects::images::image_info(&got.bytes) else {
                let say = format!("`{place}` must be a PNG, JPEG, WebP or GIF file");
                return Err(ApiError::invalid(place, say));
            };
            let data = dialects::images::encode(&got.bytes);
            *source = MediaSource::Inline { mime: seen.mime(), data };
            self.fetched = true;
        }
        if self.fetched {
            dialects::images::check_inputs(&self.order.picture)?;
        }
        Ok(())
    }

    /// The most output tokens all pictures can be.
    fn output(&self, palette: &ImageCapabilities) -> u64 {
        let picture = self.picture();
        let drafts = picture.partial_images.unwrap_or_default();
        let one = palette.max_tokens(&picture.size, picture.quality.as_deref(), drafts);
        one.saturating_mul(picture.count.into())
    }

    /// The most the order can cost at any of these prices.
    pub(super) fn bound<'a>(&self, prices: impl Iterator<Item = &'a Arc<ModelPrices>>) -> Money {
        let picture = self.picture();
        let palette = self.route.model.images.clone().unwrap_or_default();
        let converses = self.route.lanes.iter().any(|lane| spoken(lane) == Ok(ImageProtocol::Native));
        let words = match (converses, self.route.model.max_output_tokens) {
            (true, most) => most.unwrap_or(WORDS).saturating_mul(picture.count.into()),
            (false, _) => 0,
        };
        let size = picture.size.to_string();
        let which = catalog::ImageSpec::from_request(Some(&size), picture.quality.as_deref());
        let given = (picture.inputs.len() + usize::from(picture.mask.is_some())) as u64;
        let input = (picture.prompt.len() as u64)
            .saturating_mul(picture.count.into())
            .saturating_add(given.saturating_mul(GIVEN).saturating_mul(picture.count.into()))
            // Providers add a few words of their own around a prompt.
            .saturating_add(1_024);
        let images = picture.count.into();
        let units = catalog::BilledUnits { images, image: which, ..catalog::BilledUnits::default() };
        let bounds = prices.map(|prices| {
            // The price list may know how many tokens such a picture is, and counts them itself.
            let known = prices.image_rate(which).tokens > 0;
            let output = if known { 0 } else { self.output(&palette) };
            prices.max_cost_with(input, output.max(words), &units)
        });
        bounds.max().unwrap_or(Money::ZERO)
    }

    /// What an answer says of itself: the lane's own counts, or ours where it gives none.
    pub(super) fn said(&self, pictures: &ImageReply, lane: &LiveLane) -> ReplyMeter {
        let made = pictures.count() as u64;
        let estimate = || {
            let palette = lane.serves.images.clone().unwrap_or_default();
            let picture = self.picture();
            let one = palette.max_tokens(&picture.size, picture.quality.as_deref(), 0);
            let by_token = lane.prices.per_image.is_none();
            let output = if by_token { one.saturating_mul(made) } else { 0 };
            let input = (picture.prompt.len() as u64).div_ceil(4);
            Usage { input, output, output_image: output, ..Usage::default() }
        };
        let estimated = pictures.usage.is_none() && lane.prices.per_image.is_none();
        let usage = Usage { images: made, ..pictures.usage.unwrap_or_else(estimate) };
        ReplyMeter { usage: Some(usage), is_finished: true, is_estimated: estimated, ..ReplyMeter::default() }
    }

    /// What a lane is sent. A stream is asked for where the lane has one.
    pub(super) fn prepare(
        &self,
        call: &Call,
        lane: &LiveLane,
        stream: bool,
    ) -> Result<Prepared, ApiError> {
        let spoken = spoken(lane)?;
        let same = spoken.passes_through() && self.order.is_gpt_body() && !self.fetched;
        let origin = spoken.origin();
        let (written, losses) = if same {
            let one = self.form.patch(&call.body, &self.order, &lane.model);
            let ImageProviderRequest { outgoing, content_type, headers } = one;
            let outgoing = match &content_type {
                None => fit::without(&GATEWAY_FIELDS, outgoing)?,
                Some(_) => outgoing,
            };
            (vec![ImageProviderRequest { outgoing, content_type, headers }], Vec::new())
        } else {
            let picture = ImageRequest { stream, ..self.picture().clone() };
            spoken.write(&picture, &lane.model, &call.id)?
        };
        let mut losses: Losses = losses.into_iter().collect();
        let mut fitted = Vec::with_capacity(written.len());
        for ImageProviderRequest { outgoing, content_type: kind, headers } in written {
            let (outgoing, more) = match &kind {
                None => fit::fit(&lane.ways, origin, &lane.model, stream, None, outgoing)?,
                // A form has no fields to rename in place.
                Some(_) => {
                    let at = fit::at_its_path(&lane.ways, origin, &lane.model, stream, outgoing);
                    (at, Vec::new())
                }
            };
            losses.extend(more);
            fitted.push(ImageProviderRequest { outgoing, content_type: kind, headers });
        }
        let losses = losses.into_vec();
        prepare::refuse_losses(call, &losses)?;
        Ok(Prepared { spoken, written: fitted, losses, same })
    }

    /// A dry run: what would be sent, calling no one.
    pub(super) fn pretend(mut self, call: &Call) -> Result<Response, ApiError> {
        let fetches: Vec<String> = named(self.picture()).map(|(place, _)| place).collect();
        let nothing = || MediaSource::Inline { mime: "image/png".to_owned(), data: String::new() };
        let picture = &mut self.order.picture;
        for source in picture.inputs.iter_mut().chain(&mut picture.mask) {
            if matches!(source, MediaSource::Url { .. }) {
                *source = nothing();
                self.fetched = true;
            }
        }
        let picks = route::order(call, &self.route, call.engine.ticks());
        let lane = &picks.first().ok_or_else(|| route::unknown_model(self.model()))?.lane;
        let Prepared { spoken, written, losses, same: _ } =
            self.prepare(call, lane, self.picture().stream)?;
        let bound = self.bound(std::iter::once(&lane.prices));
        let outgoing = written.into_iter().map(|written| written.outgoing).collect();
        let dialect = spoken.origin();
        let told = Found { lane, dialect, outgoing, losses, bound, fetches };
        Ok(dry_run::tell(self.model(), told))
    }
}

/// How a lane is asked for pictures: at the images address if it has one, else in a conversation.
pub(super) fn spoken(lane: &LiveLane) -> Result<ImageProtocol, ApiError> {
    let family = || lane.serves.images.as_ref().map_or(ImageFamily::Gpt, |palette| palette.family);
    if lane.speaks.contains(&WireFormat::Images) {
        return Ok(ImageProtocol::Images(family()));
    }
    if lane.speaks.contains(&WireFormat::Native) {
        return Ok(ImageProtocol::Native);
    }
    Err(ApiError::new(ErrorKind::Unavailable, "no provider serves this model at the moment")
        .with_log_note(format!("lane {} speaks no format that has pictures", lane.name)))
}

/// What is named by address, and where.
fn named(picture: &ImageRequest) -> impl Iterator<Item = (String, &str)> {
    let inputs = picture.inputs.iter().enumerate();
    let inputs = inputs.map(|(at, source)| (format!("image[{at}]"), source));
    let mask = picture.mask.iter().map(|source| ("mask".to_owned(), source));
    inputs.chain(mask).filter_map(|(place, source)| match source {
        MediaSource::Url { url, .. } => Some((place, url.as_str())),
        MediaSource::Inline { .. } | MediaSource::File { .. } | MediaSource::Text(_) => None,
    })
}

/// One sentence for every failure: it tells the rules, and nothing of what was found.
fn could_not(place: &str, call: &Call, error: &FetchError) -> ApiError {
    let limits = call.config.media.fetcher.limits();
    let say = format!(
        "`{place}` could not be fetched: it must be a public HTTPS address that gives a picture \
         of at most {} bytes within {:?}",
        limits.size, limits.time
    );
    match error {
        FetchError::Busy => {
            ApiError::new(ErrorKind::Overloaded, "too much is being fetched at this moment")
                .with_retry_after(std::time::Duration::from_secs(1))
        }
        FetchError::NotPublic | FetchError::Failed(_) => {
            ApiError::invalid(place, say).with_code("failed_to_download_image").with_log_note(error.to_string())
        }
    }
}
