//! One image call: the steps of a chat call, with images in place of text.
//!
//! `read → route → validate → fetch → admit → attempt (prepare, request, poll, deliver) → settle`

mod lane_requests;
mod deliver;
mod image_call;
mod validate;
mod stream;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use canon::{ApiError, Money, ImageReply, ErrorKind};
use dialects::ReplyMeter;
use dialects::images::ImageRequestForm;
use http::HeaderValue;
use std::sync::Arc;

use super::route::Candidate;
use super::settle::BoxedAccount;
use super::{Call, admit, attempt};
use crate::json_response::json_response as json_response;
use image_call::ImageCall;

/// Generated images that are not settled yet. Dropping them settles the call as one whose caller
/// left.
pub struct ImageResult {
    /// Reply as JSON.
    pub body: Bytes,
    account: BoxedAccount,
}

impl ImageResult {
    /// Settles the call after delivery and returns its cost.
    pub fn settle(self) -> Money {
        self.account.close_done()
    }

    /// Settles the call as failed because the images could not be delivered. The operator pays.
    pub fn fail(self) {
        let fault = ApiError::new(ErrorKind::Overloaded, "the images could not be stored");
        self.account.close_failed(503, &fault);
    }

    /// Settles the call and returns the reply as an HTTP response.
    pub fn into_response(self) -> Response {
        let Self { body, account: tab } = self;
        let (lane, losses) = (tab.lane().to_owned(), tab.loss_header());
        let cost = tab.close_done();
        let mut response = json_response(Body::from(body));
        let headers = response.headers_mut();
        let mut tell = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        tell("x-portunus-cost", &cost.to_string());
        tell("x-portunus-lane", &lane);
        if let Some(losses) = losses {
            headers.insert("x-portunus-loss", losses);
        }
        response
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
pub async fn serve_images(call: Call, form: ImageRequestForm, later: bool) -> Result<ImageOutcome, ApiError> {
    let job = ImageCall::read(&call, form)?;
    if call.dry_run {
        return job.dry_run(&call).map(ImageOutcome::Response);
    }
    if later || job.async_delivery().is_requested {
        return check_task(call, &job).await.map(|task| ImageOutcome::Task(Box::new(task)));
    }
    if job.async_delivery().webhook.is_some() {
        let say = "`webhook` is for tasks: send `\"async\": true` with it";
        return Err(ApiError::invalid("webhook", say));
    }
    if !job.request().stream {
        let painted = generate(call, job).await?;
        return Ok(ImageOutcome::Response(painted.into_response()));
    }
    let (job, tab) = job.admit(&call).await?;
    let (call, job) = (&Arc::new(call), &job);
    let one = |pick: Candidate, tab: BoxedAccount| async move { stream::try_lane(call, job, &pick, tab).await };
    let streamed = attempt::try_lanes(call, job.model(), job.route(), tab, one).await?;
    streamed.map(ImageOutcome::Response)
}

/// Validates a request for the queue without asking a provider.
async fn check_task(call: Call, job: &ImageCall) -> Result<ImageTask, ApiError> {
    if job.request().stream {
        let say = "a stream cannot be a task: leave out `stream` or `async`";
        return Err(ApiError::invalid("stream", say));
    }
    let bound = job.max_cost(job.route().prices.iter());
    admit::check_funds(&call, bound).await?;
    let provider = job.route().lanes.first().map_or("", |lane| lane.provider.name.as_str());
    let (model, provider) = (job.model().to_owned(), provider.to_owned());
    Ok(ImageTask { call, model, provider, webhook: job.async_delivery().webhook.clone() })
}

/// Generates the images of a queued request: reserves money, tries lanes, and returns images that
/// are still to be settled.
pub async fn generate_images(call: Call, form: ImageRequestForm) -> Result<ImageResult, ApiError> {
    let job = ImageCall::read(&call, form)?.with_inline_delivery();
    generate(call, job).await
}

async fn generate(call: Call, job: ImageCall) -> Result<ImageResult, ApiError> {
    let (job, tab) = job.admit(&call).await?;
    let (call, job) = (&call, &job);
    let one = |pick: Candidate, tab: BoxedAccount| async move { try_lane(call, job, &pick, tab).await };
    // A reply with withheld images is final, so no other lane is tried.
    attempt::try_lanes(call, job.model(), job.route(), tab, one).await?
}

/// Sends the request to one lane. An error returns the account for the next lane.
async fn try_lane(
    call: &Call,
    job: &ImageCall,
    pick: &Candidate,
    mut tab: BoxedAccount,
) -> Result<Result<ImageResult, ApiError>, (ApiError, BoxedAccount)> {
    let drawn = match request_and_deliver(call, job, pick, &mut tab).await {
        Ok(drawn) => drawn,
        Err(fault) => return Err((fault, tab)),
    };
    let DeliveredImages { reply: pictures, pass_through_body: same } = drawn;
    let said = job.meter(&pictures, &pick.lane);
    if let Some(fault) = withheld_error(&pictures) {
        return Ok(Err(settle_withheld(call, fault, &said, tab)));
    }
    let body = match same {
        Some(body) => body,
        None => {
            let now = call.engine.clock.now() / 1_000_000;
            Bytes::from(dialects::images::write_reply(&pictures, job.request(), now))
        }
    };
    tab.first_byte();
    tab.set_image_spec(pictures.size.as_deref(), pictures.quality.as_deref());
    tab.record_usage(&said);
    Ok(Ok(ImageResult { body, account: tab }))
}

/// Images of a lane in the delivery the caller requested.
struct DeliveredImages {
    reply: ImageReply,
    /// Bytes of the lane's reply, if the caller receives them unchanged.
    pass_through_body: Option<Bytes>,
}

/// Sends the requests to a lane and converts the images for delivery.
async fn request_and_deliver(call: &Call, job: &ImageCall, pick: &Candidate, tab: &mut BoxedAccount) -> Result<DeliveredImages, ApiError> {
    let prepared = job.prepare(call, &pick.lane, false)?;
    tab.begin_attempt(pick)?;
    tab.estimate_input(job.input_bytes());
    tab.add_losses(prepared.losses.iter().cloned());
    let asked = lane_requests::request_all(call, pick, prepared).await?;
    deliver::deliver(call, job, pick, asked).await
}

/// Returns the error for a reply without any image; `None` if there is one.
fn withheld_error(pictures: &ImageReply) -> Option<ApiError> {
    let failed = pictures.images.iter().find_map(|made| match made {
        canon::GeneratedImage::Failed { code, say } => Some((code, say)),
        canon::GeneratedImage::Image { .. } => None,
    });
    if pictures.count() > 0 {
        return None;
    }
    Some(match failed {
        Some((code, say)) => {
            let policy = code.contains("policy") || code.contains("oderation");
            let sensitive = code.contains("ensitive") || code.contains("nspection");
            let trouble = if policy || sensitive { ErrorKind::ContentPolicy } else { ErrorKind::InvalidRequest };
            let fault = ApiError::new(trouble, say.clone());
            if policy || sensitive { fault.with_code("content_policy_violation") } else { fault }
        }
        None => ApiError::new(ErrorKind::ContentPolicy, "the model made no picture")
            .with_code("content_policy_violation"),
    })
}

/// Settles a call whose images were withheld. Usage that the provider reports is billed.
fn settle_withheld(call: &Call, fault: ApiError, said: &ReplyMeter, tab: BoxedAccount) -> ApiError {
    let (status, _) = call.dialect.write_error(&fault, &call.id);
    match said.usage {
        Some(_) if !said.is_estimated => tab.close_withheld(status, said),
        Some(_) | None => tab.close_failed(status, &fault),
    }
    fault
}
