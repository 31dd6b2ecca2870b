//! The life of one order for pictures: the steps of a conversation, with pictures in place of words.
//!
//! `read → route → judge → fetch → admit → attempt (prepare, ask, poll, deliver) → settle`

mod deliver;
mod image_call;
mod lane_requests;
mod stream;
mod validate;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use canon::{ApiError, ErrorKind, ImageReply, Money};
use dialects::ReplyMeter;
use dialects::images::ImageRequestForm;
use http::HeaderValue;
use std::sync::Arc;

use super::route::Candidate;
use super::settle::BoxedAccount;
use super::{Call, admit, attempt};
use crate::json_response::json_response;
use image_call::ImageCall;

/// Pictures that were made. They are paid for when they are handed over; dropped before that, the
/// call is one whose caller left.
pub struct ImageResult {
    /// The answer as JSON.
    pub body: Bytes,
    account: BoxedAccount,
}

impl ImageResult {
    /// They were handed over. Tells what they cost.
    pub fn settle(self) -> Money {
        self.account.close_done()
    }

    /// They could not be handed over, which is not the caller's fault: nobody pays but the operator.
    pub fn fail(self) {
        let fault = ApiError::new(ErrorKind::Overloaded, "what was made could not be kept");
        self.account.close_failed(503, &fault);
    }

    /// The answer as HTTP.
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

/// The result of an image request.
pub enum ImageOutcome {
    /// The answer.
    Response(Response),
    /// The caller does not wait: the request passed every check and is to be queued.
    Task(Box<ImageTask>),
}

/// An image request to be queued.
pub struct ImageTask {
    /// The call as it was read.
    pub call: Call,
    /// The model it is for.
    pub model: String,
    /// The provider that is expected to serve it.
    pub provider: String,
    /// The address that is told of its end.
    pub webhook: Option<String>,
}

/// Serves one image request. With `async_delivery`, or if the body says so, it is only checked.
pub async fn serve_images(
    call: Call,
    form: ImageRequestForm,
    later: bool,
) -> Result<ImageOutcome, ApiError> {
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
    let one = |pick: Candidate, tab: BoxedAccount| async move {
        stream::try_lane(call, job, &pick, tab).await
    };
    let streamed = attempt::try_lanes(call, job.model(), job.route(), tab, one).await?;
    streamed.map(ImageOutcome::Response)
}

/// Checks an image request that is not waited for; no provider is asked.
async fn check_task(call: Call, job: &ImageCall) -> Result<ImageTask, ApiError> {
    if job.request().stream {
        let say = "a stream is waited for: leave `stream` out, or `async`";
        return Err(ApiError::invalid("stream", say));
    }
    let bound = job.max_cost(job.route().prices.iter());
    admit::check_funds(&call, bound).await?;
    let provider = job.route().lanes.first().map_or("", |lane| lane.provider.name.as_str());
    let (model, provider) = (job.model().to_owned(), provider.to_owned());
    Ok(ImageTask { call, model, provider, webhook: job.async_delivery().webhook.clone() })
}

/// Runs one whole order whose caller comes back for it: money, lanes, and pictures that are still to
/// be paid for.
pub async fn generate_images(call: Call, form: ImageRequestForm) -> Result<ImageResult, ApiError> {
    let job = ImageCall::read(&call, form)?.with_inline_delivery();
    generate(call, job).await
}

async fn generate(call: Call, job: ImageCall) -> Result<ImageResult, ApiError> {
    let (job, tab) = job.admit(&call).await?;
    let (call, job) = (&call, &job);
    let one =
        |pick: Candidate, tab: BoxedAccount| async move { try_lane(call, job, &pick, tab).await };
    // What was held back is an answer of the lane's, and no other lane is asked for it.
    attempt::try_lanes(call, job.model(), job.route(), tab, one).await?
}

/// One lane. The tab comes back with a fault, because the next lane goes on with it.
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

/// What a lane made, as the caller wants it.
struct DeliveredImages {
    reply: ImageReply,
    /// The lane's own bytes, where they are what the caller is to get.
    pass_through_body: Option<Bytes>,
}

/// Has the lane make the pictures, and brings them into the form the caller wants.
async fn request_and_deliver(
    call: &Call,
    job: &ImageCall,
    pick: &Candidate,
    tab: &mut BoxedAccount,
) -> Result<DeliveredImages, ApiError> {
    let prepared = job.prepare(call, &pick.lane, false)?;
    tab.begin_attempt(pick)?;
    tab.estimate_input(job.input_bytes());
    tab.add_losses(prepared.losses.iter().cloned());
    let asked = lane_requests::request_all(call, pick, prepared).await?;
    deliver::deliver(call, job, pick, asked).await
}

/// The fault of an answer without a single picture; `None` when there is one.
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
            let trouble = if policy || sensitive {
                ErrorKind::ContentPolicy
            } else {
                ErrorKind::InvalidRequest
            };
            let fault = ApiError::new(trouble, say.clone());
            if policy || sensitive { fault.with_code("content_policy_violation") } else { fault }
        }
        None => ApiError::new(ErrorKind::ContentPolicy, "the model made no picture")
            .with_code("content_policy_violation"),
    })
}

/// Settles what a lane counts for pictures it held back.
fn settle_withheld(call: &Call, fault: ApiError, said: &ReplyMeter, tab: BoxedAccount) -> ApiError {
    let (status, _) = call.dialect.write_error(&fault, &call.id);
    match said.usage {
        Some(_) if !said.is_estimated => tab.close_withheld(status, said),
        Some(_) | None => tab.close_failed(status, &fault),
    }
    fault
}
