//! One image call: the steps of a chat call, with images in place of text.
//!
//! `read → route → validate → fetch → admit → attempt (prepare, request, poll, deliver) → settle`

mod deliver;
mod image_call;
mod lane_requests;
mod stream;
mod validate;

use axum::response::Response;
use bytes::Bytes;
use canon::{ApiError, ErrorKind, ImageReply, MediaSource, Money};
use dialects::ReplyMeter;
use dialects::images::{self, ImageReplyDefaults, ImageRequestForm};
use std::sync::Arc;

use super::reply::settled_response;
use super::route::Candidate;
use super::send::may_have_run;
use super::settle::BoxedAccount;
use super::{Call, admit, attempt};
use image_call::ImageCall;
use lane_requests::LaneImages;

/// Generated images that are not settled yet. Dropping them settles the call as one whose caller
/// left.
pub struct ImageResult {
    /// Reply as JSON.
    pub body: Bytes,
    account: BoxedAccount,
}

impl ImageResult {
    /// Settles the call after delivery and returns its cost.
    pub async fn settle(self) -> Money {
        self.account.close_done().written().await
    }

    /// Settles the call as failed because the images could not be delivered. The operator pays.
    pub fn fail(mut self) {
        let error = ApiError::new(ErrorKind::Overloaded, "the images could not be stored");
        self.account.absorb_recorded();
        self.account.close_failed(503, &error);
    }

    /// Settles the call and returns the reply as an HTTP response.
    pub async fn into_response(self) -> Response {
        settled_response(self.body, self.account).await.into_response()
    }
}

/// Answer of a lane after which no other lane is tried.
enum FinalAnswer<T> {
    Delivered(T),
    /// The provider withheld every image.
    Withheld(ApiError),
}

impl<T> FinalAnswer<T> {
    fn into_result(self) -> Result<T, ApiError> {
        match self {
            Self::Delivered(delivered) => Ok(delivered),
            Self::Withheld(error) => Err(error),
        }
    }
}

/// Result of an image request.
pub enum ImageOutcome {
    /// Response for a caller that waits.
    Response(Response),
    /// A validated request to be queued, because the caller does not wait.
    Task(Box<ImageTask>),
}

/// An image request to be queued.
pub struct ImageTask {
    /// Call with its body.
    pub call: Call,
    /// Requested model.
    pub model: String,
    /// Provider expected to serve it.
    pub provider: String,
    /// URL to notify when the task has ended.
    pub webhook: Option<String>,
}

/// Serves one image request. With `later`, or if the body asks for it, the request is only
/// validated and returned as a task.
pub async fn serve_images(
    call: Call,
    form: ImageRequestForm,
    later: bool,
) -> Result<ImageOutcome, ApiError> {
    let image_call = call.work_permit().await.run(|| ImageCall::read(&call, form)).await?;
    if call.options.dry_run {
        return call
            .work_permit()
            .await
            .run(|| image_call.dry_run(&call))
            .await
            .map(ImageOutcome::Response);
    }
    if later || image_call.async_delivery().is_requested {
        return check_task(call, &image_call).await.map(|task| ImageOutcome::Task(Box::new(task)));
    }
    if image_call.async_delivery().webhook.is_some() {
        let message = "`webhook` is for tasks: send `\"async\": true` with it";
        return Err(ApiError::invalid("webhook", message));
    }
    if !image_call.request().stream {
        let result = generate(call, image_call).await?;
        return Ok(ImageOutcome::Response(result.into_response().await));
    }
    let (image_call, account) = image_call.admit(&call).await?;
    let (call, image_call) = (&Arc::new(call), &image_call);
    let send_one = |candidate: Candidate, account: BoxedAccount| async move {
        stream::try_lane(call, image_call, &candidate, account).await
    };
    let streamed = attempt::try_lanes(call, image_call.model(), account, send_one).await?;
    streamed.into_result().map(ImageOutcome::Response)
}

/// Validates a request for the queue without asking a provider.
async fn check_task(call: Call, image_call: &ImageCall) -> Result<ImageTask, ApiError> {
    if image_call.request().stream {
        let message = "a stream cannot be a task: leave out `stream` or `async`";
        return Err(ApiError::invalid("stream", message));
    }
    let bound = image_call.max_cost(image_call.route().prices.iter());
    admit::check_funds(&call, bound).await?;
    let provider = image_call.route().lanes.first().map_or("", |lane| lane.provider.name.as_str());
    let (model, provider) = (image_call.model().to_owned(), provider.to_owned());
    Ok(ImageTask { call, model, provider, webhook: image_call.async_delivery().webhook.clone() })
}

/// Generates the images of a queued request: reserves money, tries lanes, and returns images that
/// are still to be settled.
pub async fn generate_images(call: Call, form: ImageRequestForm) -> Result<ImageResult, ApiError> {
    let image_call =
        call.work_permit().await.run(|| ImageCall::read(&call, form)).await?.with_inline_delivery();
    generate(call, image_call).await
}

async fn generate(call: Call, image_call: ImageCall) -> Result<ImageResult, ApiError> {
    let (image_call, account) = image_call.admit(&call).await?;
    let (call, image_call) = (&call, &image_call);
    let send_one = |candidate: Candidate, account: BoxedAccount| async move {
        try_lane(call, image_call, &candidate, account).await
    };
    attempt::try_lanes(call, image_call.model(), account, send_one).await?.into_result()
}

/// Sends the request to one lane. An error returns the account for the next lane.
async fn try_lane(
    call: &Call,
    image_call: &ImageCall,
    candidate: &Candidate,
    mut account: BoxedAccount,
) -> Result<FinalAnswer<ImageResult>, (ApiError, BoxedAccount)> {
    let delivered = match request_and_deliver(call, image_call, candidate, &mut account).await {
        Ok(delivered) => delivered,
        Err(error) => return Err((error, account)),
    };
    let DeliveredImages { reply, pass_through_body, defaults } = delivered;
    let meter = image_call.meter(&reply, &candidate.lane);
    if let Some(error) = withheld_error(&reply) {
        let error = settle_withheld(call, error, &meter, account).await;
        return Ok(FinalAnswer::Withheld(error));
    }
    let defaults = defaults.with_usage(meter.usage);
    let write = || match &pass_through_body {
        Some(body) => images::complete_reply(body, &reply, &defaults),
        None => Bytes::from(images::write_reply(&reply, &defaults)),
    };
    let body = call.permit_for(inline_bytes(&reply)).await.run(write).await;
    account.set_image_spec(reply.size.as_deref(), reply.quality.as_deref());
    account.record_reply(meter.into());
    Ok(FinalAnswer::Delivered(ImageResult { body, account }))
}

/// Images of a lane in the delivery the caller requested.
struct DeliveredImages {
    reply: ImageReply,
    /// Bytes of the lane's reply, if they are in the caller's format and delivery.
    pass_through_body: Option<Bytes>,
    /// Values for what the lane left out.
    defaults: ImageReplyDefaults,
}

/// Sends the requests to a lane and converts the images for delivery.
async fn request_and_deliver(
    call: &Call,
    image_call: &ImageCall,
    candidate: &Candidate,
    account: &mut BoxedAccount,
) -> Result<DeliveredImages, ApiError> {
    let permit = call.permit_for(image_call.request_bytes(call)).await;
    let prepared = permit.run(|| image_call.prepare(call, &candidate.lane, false)).await?;
    account.begin_attempt(candidate).await?;
    image_call.expect(account, &candidate.lane);
    account.set_losses(prepared.losses.iter().cloned());
    let defaults = image_call.reply_defaults(call, &prepared.losses);
    let requested = lane_requests::request_all(call, candidate, prepared).await;
    // A task whose end nobody saw goes on and is billed.
    let lane_images = requested.inspect_err(|error| {
        if may_have_run(error) {
            account.absorb_attempt();
        }
    })?;
    deliver_or_absorb(call, image_call, candidate, (lane_images, defaults), account).await
}

/// Converts the images for delivery. If that fails, the operator absorbs their cost.
async fn deliver_or_absorb(
    call: &Call,
    image_call: &ImageCall,
    candidate: &Candidate,
    answer: (LaneImages, ImageReplyDefaults),
    account: &mut BoxedAccount,
) -> Result<DeliveredImages, ApiError> {
    let reply = &answer.0.reply;
    let meter = image_call.meter(reply, &candidate.lane);
    let (size, quality) = (reply.size.clone(), reply.quality.clone());
    let delivered = deliver::deliver(call, image_call, candidate, answer).await;
    delivered.inspect_err(|_| {
        account.set_image_spec(size.as_deref(), quality.as_deref());
        account.absorb_answer(&meter);
    })
}

/// Returns the bytes of the images that are part of a reply.
fn inline_bytes(reply: &ImageReply) -> usize {
    let sizes = reply.images.iter().map(|made| match made {
        canon::GeneratedImage::Image { source: MediaSource::Inline { data, .. }, .. } => data.len(),
        canon::GeneratedImage::Image { .. } | canon::GeneratedImage::Failed { .. } => 0,
    });
    sizes.sum()
}

/// Returns the error for a reply without any image; `None` if there is one.
fn withheld_error(reply: &ImageReply) -> Option<ApiError> {
    let failed = reply.images.iter().find_map(|made| match made {
        canon::GeneratedImage::Failed { code, say: message } => Some((code, message)),
        canon::GeneratedImage::Image { .. } => None,
    });
    if reply.count() > 0 {
        return None;
    }
    Some(match failed {
        Some((code, message)) => {
            let policy = code.contains("policy") || code.contains("oderation");
            let sensitive = code.contains("ensitive") || code.contains("nspection");
            let kind = if policy || sensitive {
                ErrorKind::ContentPolicy
            } else {
                ErrorKind::InvalidRequest
            };
            let error = ApiError::new(kind, message.clone());
            if policy || sensitive { error.with_code("content_policy_violation") } else { error }
        }
        None => ApiError::new(ErrorKind::ContentPolicy, "the model made no picture")
            .with_code("content_policy_violation"),
    })
}

/// Settles a call whose images were withheld. Usage that the provider reports is billed.
async fn settle_withheld(
    call: &Call,
    error: ApiError,
    meter: &ReplyMeter,
    account: BoxedAccount,
) -> ApiError {
    let (status, _) = call.dialect.write_error(&error, &call.id);
    let closed = match meter.usage {
        Some(_) if !meter.is_estimated => account.close_withheld(status, &error, meter),
        Some(_) | None => account.close_failed(status, &error),
    };
    closed.written().await;
    error
}
