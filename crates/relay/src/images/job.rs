//! An order on its way: what was asked, which route serves it, what it can cost, and what a lane is
//! sent for it.

use axum::response::Response;
use canon::{
    Delivery, Family, Fault, Loss, Money, Origin, Picture, Pictures, Source, Trouble, Usage,
};
use catalog::{Kind, Palette, Prices};
use dialects::images::{Form, Later, OURS, Order, Spoken, Written};
use dialects::{Peek, Said};
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
    form: Form,
    order: Order,
    route: Arc<Route>,
    /// Whether something had to be fetched, so that the caller's bytes are not the whole order.
    fetched: bool,
}

/// What a lane is sent.
pub(super) struct Prepared {
    pub(super) spoken: Spoken,
    /// One after the other, or all at once.
    pub(super) written: Vec<Written>,
    pub(super) losses: Vec<Loss>,
    /// Whether they are the caller's own bytes.
    pub(super) same: bool,
}

impl Job {
    /// Reads an order and applies every rule there is.
    pub(super) fn read(call: &Call, form: Form) -> Result<Self, Fault> {
        let order = form.read(&call.body)?;
        let route = route::find_kind(call, &order.picture.model, Kind::Image)?;
        judge::judge(&order.picture, &route.model)?;
        let guard = call.config.media.fetcher.guard();
        for (place, url) in named(&order.picture) {
            guard.look(url).map_err(|e| Fault::invalid(&*place, format!("`{place}` {e}")))?;
        }
        Ok(Self { form, order, route, fetched: false })
    }

    /// What is asked for.
    pub(super) const fn picture(&self) -> &Picture {
        &self.order.picture
    }

    /// Whether it is waited for, as the body says.
    pub(super) const fn later(&self) -> &Later {
        &self.order.later
    }

    /// The same order, with its pictures in the answer itself however they were wished for.
    pub(super) fn inline(mut self) -> Self {
        self.order.picture.delivery = Some(Delivery::Base64);
        self
    }

    /// How the pictures are to come: a stream carries them in itself.
    pub(super) fn delivery(&self) -> Option<Delivery> {
        if self.picture().stream { Some(Delivery::Base64) } else { self.picture().delivery }
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
    pub(super) async fn admitted(mut self, call: &Call) -> Result<(Self, Tab), Fault> {
        let peek = Peek {
            model: self.model().to_owned(),
            stream: self.picture().stream,
            max_output: Some(self.output(&self.route.model.pictures.clone().unwrap_or_default())),
            candidates: 1,
            ..Peek::default()
        };
        admit::pace(call, &peek).await?;
        self.fetch(call).await?;
        let bound = self.bound(self.route.prices.iter());
        let mut tab = admit::admit_for(call, &peek, &self.route, bound).await?;
        let size = self.picture().extent.to_string();
        tab.pictured(Some(&size), self.picture().quality.as_deref());
        admit::secure(call).await?;
        Ok((self, tab))
    }

    async fn fetch(&mut self, call: &Call) -> Result<(), Fault> {
        let media = &call.config.media;
        let room = call.config.body_limit.saturating_sub(call.body.len());
        let allowance = Allowance::new(room / 4 * 3);
        let picture = &mut self.order.picture;
        let sources = picture.inputs.iter_mut().enumerate();
        let sources = sources.map(|(at, source)| (format!("image[{at}]"), source));
        let mask = picture.mask.iter_mut().map(|source| ("mask".to_owned(), source));
        for (place, source) in sources.chain(mask) {
            let Source::Url { url, .. } = &*source else { continue };
            if !media.fetch {
                let say = format!("`{place}` must stand in the request itself");
                return Err(Fault::invalid(place, say));
            }
            let got = media.fetcher.fetch(url, canon::MediaKind::Image, &allowance).await;
            let got = got.map_err(|e| could_not(&place, call, &e))?;
            let Some(seen) = dialects::images::measure(&got.bytes) else {
                let say = format!("`{place}` must be a PNG, JPEG, WebP or GIF file");
                return Err(Fault::invalid(place, say));
            };
            let data = dialects::images::encode(&got.bytes);
            *source = Source::Inline { mime: seen.mime(), data };
            self.fetched = true;
        }
        if self.fetched {
            dialects::images::check_inputs(&self.order.picture)?;
        }
        Ok(())
    }

    /// The most output tokens all pictures can be.
    fn output(&self, palette: &Palette) -> u64 {
        let picture = self.picture();
        let drafts = picture.partials.unwrap_or_default();
        let one = palette.most_tokens(&picture.extent, picture.quality.as_deref(), drafts);
        one.saturating_mul(picture.count.into())
    }

    /// The most the order can cost at any of these prices.
    pub(super) fn bound<'a>(&self, prices: impl Iterator<Item = &'a Arc<Prices>>) -> Money {
        let picture = self.picture();
        let palette = self.route.model.pictures.clone().unwrap_or_default();
        let converses = self.route.lanes.iter().any(|lane| spoken(lane) == Ok(Spoken::Native));
        let words = match (converses, self.route.model.max_output) {
            (true, most) => most.unwrap_or(WORDS).saturating_mul(picture.count.into()),
            (false, _) => 0,
        };
        let size = picture.extent.to_string();
        let which = catalog::Picture::asked(Some(&size), picture.quality.as_deref());
        let given = (picture.inputs.len() + usize::from(picture.mask.is_some())) as u64;
        let input = (picture.prompt.len() as u64)
            .saturating_mul(picture.count.into())
            .saturating_add(given.saturating_mul(GIVEN).saturating_mul(picture.count.into()))
            // Providers add a few words of their own around a prompt.
            .saturating_add(1_024);
        let images = picture.count.into();
        let units = catalog::Units { images, picture: which, ..catalog::Units::default() };
        let bounds = prices.map(|prices| {
            // The price list may know how many tokens such a picture is, and counts them itself.
            let known = prices.picture(which).tokens > 0;
            let output = if known { 0 } else { self.output(&palette) };
            prices.bound_with(input, output.max(words), &units)
        });
        bounds.max().unwrap_or(Money::ZERO)
    }

    /// What an answer says of itself: the lane's own counts, or ours where it gives none.
    pub(super) fn said(&self, pictures: &Pictures, lane: &LiveLane) -> Said {
        let made = pictures.count() as u64;
        let estimate = || {
            let palette = lane.serves.pictures.clone().unwrap_or_default();
            let picture = self.picture();
            let one = palette.most_tokens(&picture.extent, picture.quality.as_deref(), 0);
            let by_token = lane.prices.per_image.is_none();
            let output = if by_token { one.saturating_mul(made) } else { 0 };
            let input = (picture.prompt.len() as u64).div_ceil(4);
            Usage { input, output, output_image: output, ..Usage::default() }
        };
        let estimated = pictures.usage.is_none() && lane.prices.per_image.is_none();
        let usage = Usage { images: made, ..pictures.usage.unwrap_or_else(estimate) };
        Said { usage: Some(usage), finished: true, estimated, ..Said::default() }
    }

    /// What a lane is sent. A stream is asked for where the lane has one.
    pub(super) fn prepare(
        &self,
        call: &Call,
        lane: &LiveLane,
        stream: bool,
    ) -> Result<Prepared, Fault> {
        let spoken = spoken(lane)?;
        let same = spoken.is_callers() && self.order.is_plain() && !self.fetched;
        let origin = spoken.origin();
        let (written, mut losses) = if same {
            let one = self.form.patch(&call.body, &self.order, &lane.model);
            let Written { outgoing, kind, headers } = one;
            let outgoing = match &kind {
                None => fit::without(&OURS, outgoing)?,
                Some(_) => outgoing,
            };
            (vec![Written { outgoing, kind, headers }], Vec::new())
        } else {
            let picture = Picture { stream, ..self.picture().clone() };
            spoken.write(&picture, &lane.model, &call.id)?
        };
        let mut fitted = Vec::with_capacity(written.len());
        for Written { outgoing, kind, headers } in written {
            let (outgoing, more) = match &kind {
                None => fit::fit(&lane.ways, origin, &lane.model, stream, None, outgoing)?,
                // A form has no fields to rename in place.
                Some(_) => {
                    let at = fit::at_its_path(&lane.ways, origin, &lane.model, stream, outgoing);
                    (at, Vec::new())
                }
            };
            losses
                .extend(more.into_iter().filter(|loss| !losses.contains(loss)).collect::<Vec<_>>());
            fitted.push(Written { outgoing, kind, headers });
        }
        prepare::refuse_losses(call, &losses)?;
        Ok(Prepared { spoken, written: fitted, losses, same })
    }

    /// A dry run: what would be sent, calling no one.
    pub(super) fn pretend(mut self, call: &Call) -> Result<Response, Fault> {
        let fetches: Vec<String> = named(self.picture()).map(|(place, _)| place).collect();
        let nothing = || Source::Inline { mime: "image/png".to_owned(), data: String::new() };
        let picture = &mut self.order.picture;
        for source in picture.inputs.iter_mut().chain(&mut picture.mask) {
            if matches!(source, Source::Url { .. }) {
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
pub(super) fn spoken(lane: &LiveLane) -> Result<Spoken, Fault> {
    let family = || lane.serves.pictures.as_ref().map_or(Family::Gpt, |palette| palette.family);
    if lane.speaks.contains(&Origin::Images) {
        return Ok(Spoken::Images(family()));
    }
    if lane.speaks.contains(&Origin::Native) {
        return Ok(Spoken::Native);
    }
    Err(Fault::new(Trouble::Unavailable, "no provider serves this model at the moment")
        .note(format!("lane {} speaks no format that has pictures", lane.name)))
}

/// What is named by address, and where.
fn named(picture: &Picture) -> impl Iterator<Item = (String, &str)> {
    let inputs = picture.inputs.iter().enumerate();
    let inputs = inputs.map(|(at, source)| (format!("image[{at}]"), source));
    let mask = picture.mask.iter().map(|source| ("mask".to_owned(), source));
    inputs.chain(mask).filter_map(|(place, source)| match source {
        Source::Url { url, .. } => Some((place, url.as_str())),
        Source::Inline { .. } | Source::File { .. } | Source::Text(_) => None,
    })
}

/// One sentence for every failure: it tells the rules, and nothing of what was found.
fn could_not(place: &str, call: &Call, error: &FetchError) -> Fault {
    let limits = call.config.media.fetcher.limits();
    let say = format!(
        "`{place}` could not be fetched: it must be a public HTTPS address that gives a picture \
         of at most {} bytes within {:?}",
        limits.size, limits.time
    );
    match error {
        FetchError::Busy => {
            Fault::new(Trouble::Overload, "too much is being fetched at this moment")
                .retry_after(std::time::Duration::from_secs(1))
        }
        FetchError::NotPublic | FetchError::Failed(_) => {
            Fault::invalid(place, say).code("failed_to_download_image").note(error.to_string())
        }
    }
}
