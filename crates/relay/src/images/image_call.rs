//! An image call: its request, route, maximum cost, and the requests for a lane.

use axum::response::Response;
use canon::{
    ApiError, ErrorKind, ImageDelivery, ImageFamily, ImageReply, ImageRequest, Loss, Losses,
    MediaSource, Money, RequestNeeds, Usage,
};
use catalog::{ImageCapabilities, ModelKind, ModelPrices};
use dialects::BodyOutline;
use dialects::images::{
    AsyncDelivery, GATEWAY_FIELDS, ImageProtocol, ImageProviderRequest, ImageReplyDefaults,
    ImageRequestForm, ParsedImageRequest,
};
use dialects::{CallerLabels, ReplyMeter, RequestFacts};
use std::sync::Arc;
use upstream::{FetchAllowance, FetchError};

use super::super::call_options::LOSSY_HEADER;
use super::super::dry_run::{self, DryRun};
use super::super::prepare::TRANSLATION_LOSS;
use super::super::settle::{BoxedAccount, CallAccount};
use super::super::{Call, adapt, admit, media_refs, prepare, route};
use super::validate;
use config::{LiveLane, Route};

/// Upper bound of the tokens of one input image.
const INPUT_IMAGE_TOKENS: u64 = 16_384;
/// Tokens that no image call has.
const MAX_TOLD_TOKENS: u64 = 1 << 24;
/// Output tokens besides the images, for lanes that generate images in a chat.
const DEFAULT_TEXT_TOKENS: u64 = 8_192;

pub(super) struct ImageCall {
    form: ImageRequestForm,
    parsed: ParsedImageRequest,
    route: Arc<Route>,
    /// True if an input was fetched, so that the caller's bytes cannot be forwarded.
    has_fetched: bool,
}

/// Requests for a lane.
pub(super) struct PreparedImages {
    pub(super) protocol: ImageProtocol,
    pub(super) requests: Vec<ImageProviderRequest>,
    pub(super) losses: Vec<Loss>,
    /// True if the requests are the caller's own bytes.
    pub(super) is_pass_through: bool,
}

impl ImageCall {
    /// Parses and validates a request.
    pub(super) fn read(call: &Call, form: ImageRequestForm) -> Result<Self, ApiError> {
        let parsed = form.read(&call.body)?;
        let route = route::find_kind(call, &parsed.picture.model, ModelKind::Image)?;
        let route = validate::choose_lanes(&parsed.picture, route)?;
        let guard = call.config.media.fetcher.guard();
        for (path, url) in image_urls(&parsed) {
            guard.check(url).map_err(|e| ApiError::invalid(&*path, format!("`{path}` {e}")))?;
        }
        Ok(Self { form, parsed, route, has_fetched: false })
    }

    /// Returns the image request.
    pub(super) const fn request(&self) -> &ImageRequest {
        &self.parsed.picture
    }

    /// Returns the asynchronous delivery that the body asks for.
    pub(super) const fn async_delivery(&self) -> &AsyncDelivery {
        &self.parsed.delivery
    }

    /// Delivers the images inline, overriding the caller's choice.
    pub(super) fn with_inline_delivery(mut self) -> Self {
        self.parsed.picture.delivery = Some(ImageDelivery::Base64);
        self
    }

    /// Returns the requested delivery. A stream always carries images inline.
    pub(super) fn delivery(&self) -> Option<ImageDelivery> {
        if self.request().stream { Some(ImageDelivery::Base64) } else { self.request().delivery }
    }

    pub(super) fn model(&self) -> &str {
        &self.parsed.picture.model
    }

    pub(super) fn route(&self) -> &Route {
        &self.route
    }

    /// Input bytes for the estimate, if the lane reports no usage.
    pub(super) fn input_bytes(&self) -> u64 {
        let input_images = self.request().inputs.len() as u64;
        (self.request().prompt.len() as u64)
            .saturating_add(input_images.saturating_mul(INPUT_IMAGE_TOKENS / 8))
    }

    /// Bytes of the request, including inputs that were fetched.
    pub(super) fn request_bytes(&self, call: &Call) -> usize {
        let request = self.request();
        let sources = request.inputs.iter().chain(&request.mask);
        let fetched = sources.map(|source| match source {
            MediaSource::Inline { data, .. } => data.len(),
            MediaSource::Url { .. } | MediaSource::File { .. } | MediaSource::Text(_) => 0,
        });
        call.body.len().max(fetched.sum())
    }

    /// Fetches the inputs named by URL, then reserves the money.
    ///
    /// Fetched inputs must pass the same checks as sent ones, and a call that fails them must leave
    /// no reservation.
    pub(super) async fn admit(mut self, call: &Call) -> Result<(Self, BoxedAccount), ApiError> {
        let ImageRequest { user, safety_identifier, .. } = self.request();
        let end_user = safety_identifier.clone().or_else(|| user.clone());
        let facts = RequestFacts {
            model: self.model().to_owned(),
            stream: self.request().stream,
            max_output_tokens: Some(self.max_output_tokens(
                &self.route.model.capabilities.images.clone().unwrap_or_default(),
            )),
            candidates: 1,
            labels: CallerLabels::read(end_user.as_deref(), None),
            ..RequestFacts::default()
        };
        admit::check_token_rate(call, &facts).await?;
        self.fetch(call).await?;
        let max_cost = self.max_cost(self.route.prices.iter());
        let likely = |lane: &LiveLane| self.likely_cost(lane);
        let mut account =
            admit::admit_with_max_cost(call, &facts, &self.route, max_cost, likely).await?;
        let size = self.request().size.to_string();
        account.set_image_spec(Some(&size), self.request().quality.as_deref());
        Ok((self, account))
    }

    async fn fetch(&mut self, call: &Call) -> Result<(), ApiError> {
        let media = &call.config.media;
        let room = call.config.max_body_bytes.saturating_sub(call.body.len());
        let allowance = FetchAllowance::new(room / 4 * 3);
        let request = &mut self.parsed.picture;
        let sources = self.parsed.input_paths.iter().cloned().zip(&mut request.inputs);
        let mask = request.mask.iter_mut().map(|source| ("mask".to_owned(), source));
        for (path, source) in sources.chain(mask) {
            let MediaSource::Url { url, .. } = &*source else { continue };
            if !media.is_fetch_enabled {
                let message = format!("`{path}` must stand in the request itself");
                return Err(ApiError::invalid(path, message));
            }
            let got = media.fetcher.fetch(url, canon::MediaKind::Image, &allowance).await;
            let got = got.map_err(|e| fetch_error(&path, call, &e))?;
            let Some(seen) = media::image_info(&got.bytes) else {
                let message = format!("`{path}` must be a PNG, JPEG, WebP or GIF file");
                return Err(ApiError::invalid(path, message));
            };
            let data = media::encode_base64(&got.bytes);
            *source = MediaSource::Inline { mime: seen.mime(), data };
            self.has_fetched = true;
        }
        if self.has_fetched {
            dialects::images::check_inputs(&self.parsed.picture)?;
        }
        Ok(())
    }

    /// Upper bound of the output tokens of all images.
    fn max_output_tokens(&self, capabilities: &ImageCapabilities) -> u64 {
        let request = self.request();
        let drafts = request.partial_images.unwrap_or_default();
        let per_image = capabilities.max_tokens(&request.size, request.quality.as_deref(), drafts);
        per_image.saturating_mul(request.count.into())
    }

    /// Upper bound of the cost over these price lists.
    pub(super) fn max_cost<'a>(&self, prices: impl Iterator<Item = &'a Arc<ModelPrices>>) -> Money {
        let request = self.request();
        let capabilities = self.route.model.capabilities.images.clone().unwrap_or_default();
        let is_chat =
            self.route.lanes.iter().any(|lane| image_protocol(lane) == Ok(ImageProtocol::Native));
        let text_tokens = match (is_chat, self.route.model.capabilities.max_output_tokens) {
            (true, most) => {
                most.unwrap_or(DEFAULT_TEXT_TOKENS).saturating_mul(request.count.into())
            }
            (false, _) => 0,
        };
        let size = request.size.to_string();
        let spec = catalog::ImageSpec::from_request(Some(&size), request.quality.as_deref());
        let input_images = (request.inputs.len() + usize::from(request.mask.is_some())) as u64;
        let input = (request.prompt.len() as u64)
            .saturating_mul(request.count.into())
            .saturating_add(
                input_images
                    .saturating_mul(INPUT_IMAGE_TOKENS)
                    .saturating_mul(request.count.into()),
            )
            // Providers wrap a prompt in a few words of their own.
            .saturating_add(1_024);
        let images = request.count.into();
        let units = catalog::BilledUnits { images, image: spec, ..catalog::BilledUnits::default() };
        let bounds = prices.map(|prices| {
            // A price list with tokens per image counts them itself.
            let known = prices.image_rate(spec).tokens > 0;
            let output = if known { 0 } else { self.max_output_tokens(&capabilities) };
            prices.max_cost_with(input, output.max(text_tokens), &units)
        });
        bounds.max().unwrap_or(Money::ZERO)
    }

    /// Estimates the usage of that many images of a lane.
    pub(super) fn likely_usage(&self, made: u64, lane: &LiveLane) -> Usage {
        let capabilities = lane.capabilities.images.clone().unwrap_or_default();
        let request = self.request();
        let per_image = capabilities.max_tokens(&request.size, request.quality.as_deref(), 0);
        let by_token = lane.prices.per_image.is_none();
        let output = if by_token { per_image.saturating_mul(made) } else { 0 };
        let input = (request.prompt.len() as u64).div_ceil(4);
        Usage { input, output, output_image: output, images: made, ..Usage::default() }
    }

    /// Tells the account what a caller who leaves has ordered at a lane.
    pub(super) fn expect(&self, account: &mut CallAccount, lane: &LiveLane) {
        account.estimate_input(self.input_bytes());
        account.expect_usage(self.likely_usage(self.request().count.into(), lane));
    }

    /// Estimates the cost of all requested images at a lane.
    pub(super) fn likely_cost(&self, lane: &LiveLane) -> Money {
        let size = self.request().size.to_string();
        let image =
            catalog::ImageSpec::from_request(Some(&size), self.request().quality.as_deref());
        let units = catalog::BilledUnits { image, ..catalog::BilledUnits::default() };
        lane.prices.cost_with(&self.likely_usage(self.request().count.into(), lane), &units)
    }

    /// Returns the usage of a reply: the lane's figures, or an estimate.
    pub(super) fn meter(&self, reply: &ImageReply, lane: &LiveLane) -> ReplyMeter {
        let made = reply.count() as u64;
        let told = reply.usage.filter(|usage| usage.total() <= MAX_TOLD_TOKENS);
        let estimated = told.is_none() && lane.prices.per_image.is_none();
        let usage = told.unwrap_or_else(|| self.likely_usage(made, lane));
        let mut usage = Usage { images: made, ..usage };
        // The output of a lane that tells no parts is its images, which cost more than text.
        if usage.output_image == 0 {
            usage.output_image = usage.output;
        }
        ReplyMeter {
            usage: Some(usage),
            is_finished: true,
            is_estimated: estimated,
            ..ReplyMeter::default()
        }
    }

    /// Returns values for what a lane leaves out of its reply. What was lost on the way is not among
    /// them.
    pub(super) fn reply_defaults(&self, call: &Call, losses: &[Loss]) -> ImageReplyDefaults {
        let now = call.engine.clock.now().as_secs();
        ImageReplyDefaults::of_request(self.request(), losses, now)
    }

    /// Writes the requests for a lane. `stream` is true if the lane can stream.
    pub(super) fn prepare(
        &self,
        call: &Call,
        lane: &LiveLane,
        stream: bool,
    ) -> Result<PreparedImages, ApiError> {
        let protocol = image_protocol(lane)?;
        let is_pass_through =
            protocol.passes_through() && self.parsed.is_gpt_body() && !self.has_fetched;
        let origin = protocol.origin();
        let (written, losses) = if is_pass_through {
            let patched = self.form.patch(&call.body, &self.parsed, &lane.model);
            let ImageProviderRequest { outgoing, content_type, headers } = patched;
            let outgoing = match &content_type {
                None => adapt::remove_fields(&GATEWAY_FIELDS, outgoing)?,
                Some(_) => outgoing,
            };
            (vec![ImageProviderRequest { outgoing, content_type, headers }], Vec::new())
        } else {
            let request = ImageRequest { stream, ..self.request().clone() };
            protocol.write(&request, &lane.model, &call.id)?
        };
        if media_refs::must_not_get_addresses(call, lane) {
            self.refuse_addresses(call, lane, &written)?;
        }
        let mut losses: Losses = losses.into_iter().collect();
        let mut fitted = Vec::with_capacity(written.len());
        for ImageProviderRequest { outgoing, content_type, headers } in written {
            let (outgoing, more) = match &content_type {
                None => adapt::adapt(&lane.endpoints, origin, &lane.model, stream, None, outgoing)?,
                // A multipart body has no fields to rename in place.
                Some(_) => {
                    let at =
                        adapt::set_path(&lane.endpoints, origin, &lane.model, stream, outgoing);
                    (at, Vec::new())
                }
            };
            losses.extend(more);
            fitted.push(ImageProviderRequest { outgoing, content_type, headers });
        }
        let losses = losses.into_vec();
        // Without its mask an edit would change the whole image.
        if !call.options.lossy && losses.iter().any(|loss| loss.path == "mask") {
            let message = format!(
                "`{}` takes no masks; the header `{LOSSY_HEADER}: true` leaves it out",
                self.route.model.id
            );
            return Err(ApiError::invalid("mask", message).with_code(TRANSLATION_LOSS));
        }
        prepare::refuse_losses(call, &losses)?;
        Ok(PreparedImages { protocol, requests: fitted, losses, is_pass_through })
    }

    /// Refuses addresses in what a provider in a private network would get. The input images are data
    /// by now.
    fn refuse_addresses(
        &self,
        call: &Call,
        lane: &LiveLane,
        written: &[ImageProviderRequest],
    ) -> Result<(), ApiError> {
        for ImageProviderRequest { outgoing, content_type, headers: _ } in written {
            let found = match content_type {
                None => dialects::first_address(
                    &outgoing.body.to_vec(),
                    &BodyOutline::default(),
                    false,
                    &|_| false,
                )?,
                // The texts of a form. Its files are no addresses.
                Some(_) => self.parsed.first_other_address()?,
            };
            if let Some(path) = found {
                media_refs::refuse_address(call, lane, &path)?;
            }
        }
        Ok(())
    }

    /// Returns the requests and their maximum cost without sending them.
    pub(super) fn dry_run(mut self, call: &Call) -> Result<Response, ApiError> {
        let fetched_paths: Vec<String> = image_urls(&self.parsed).map(|(path, _)| path).collect();
        let placeholder =
            || MediaSource::Inline { mime: "image/png".to_owned(), data: String::new() };
        let request = &mut self.parsed.picture;
        for source in request.inputs.iter_mut().chain(&mut request.mask) {
            if matches!(source, MediaSource::Url { .. }) {
                *source = placeholder();
                self.has_fetched = true;
            }
        }
        let candidates = route::ordered_candidates(
            call,
            (&RequestNeeds::default(), None),
            &self.route,
            call.engine.monotonic_now(),
        );
        let lane = &candidates.first().ok_or_else(|| route::unknown_model(self.model()))?.lane;
        let PreparedImages { protocol, requests: written, losses, is_pass_through: _ } =
            self.prepare(call, lane, self.request().stream)?;
        let max_cost = self.max_cost(std::iter::once(&lane.prices));
        let outgoing = written.into_iter().map(|written| written.outgoing).collect();
        let dialect = protocol.origin();
        let result = DryRun { lane, dialect, outgoing, losses, max_cost, fetched_paths };
        Ok(dry_run::dry_run_response(self.model(), result))
    }
}

/// Selects the protocol of a lane: the images endpoint if it has one, else chat.
pub(super) fn image_protocol(lane: &LiveLane) -> Result<ImageProtocol, ApiError> {
    let family = || {
        lane.capabilities
            .images
            .as_ref()
            .map_or(ImageFamily::Gpt, |capabilities| capabilities.family)
    };
    ImageProtocol::of_formats(&lane.formats, family).ok_or_else(|| {
        ApiError::new(ErrorKind::Unavailable, "no provider serves this model at the moment")
            .with_log_note(format!("lane {} has no format with images", lane.name))
    })
}

/// Returns the URLs of a request with their JSON paths.
fn image_urls(parsed: &ParsedImageRequest) -> impl Iterator<Item = (String, &str)> {
    let inputs = parsed.input_paths.iter().cloned().zip(&parsed.picture.inputs);
    let mask = parsed.picture.mask.iter().map(|source| ("mask".to_owned(), source));
    inputs.chain(mask).filter_map(|(path, source)| match source {
        MediaSource::Url { url, .. } => Some((path, url.as_str())),
        MediaSource::Inline { .. } | MediaSource::File { .. } | MediaSource::Text(_) => None,
    })
}

/// The same message for every failure. It states the rules and reveals nothing about the fetched
/// address.
fn fetch_error(path: &str, call: &Call, error: &FetchError) -> ApiError {
    let limits = call.config.media.fetcher.limits();
    let message = format!(
        "`{path}` could not be fetched: it must be a public HTTPS address that gives a picture \
         of at most {} bytes within {:?}",
        limits.max_bytes, limits.timeout
    );
    match error {
        FetchError::Busy => {
            ApiError::new(ErrorKind::Overloaded, "too much is being fetched at this moment")
                .with_retry_after(std::time::Duration::from_secs(1))
        }
        FetchError::NotPublic | FetchError::Failed(_) => ApiError::invalid(path, message)
            .with_code("failed_to_download_image")
            .with_log_note(error.to_string()),
    }
}
