//! The life of one order for pictures: the steps of a conversation, with pictures in place of words.
//!
//! `read → route → judge → fetch → admit → attempt (prepare, ask, poll, deliver) → settle`

mod ask;
mod deliver;
mod job;
mod judge;
mod stream;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use canon::{ApiError, Money, ImageReply, ErrorKind};
use dialects::ReplyMeter;
use dialects::images::ImageRequestForm;
use http::HeaderValue;
use std::sync::Arc;

use super::route::Pick;
use super::settle::Tab;
use super::{Call, admit, attempt};
use crate::json::json as json_response;
use job::Job;

/// Pictures that were made. They are paid for when they are handed over; dropped before that, the
/// call is one whose caller left.
pub struct Painted {
    /// The answer as JSON.
    pub body: Bytes,
    tab: Tab,
}

impl Painted {
    /// They were handed over. Tells what they cost.
    pub fn settle(self) -> Money {
        self.tab.done()
    }

    /// They could not be handed over, which is not the caller's fault: nobody pays but the operator.
    pub fn lose(self) {
        let fault = ApiError::new(ErrorKind::Overloaded, "what was made could not be kept");
        self.tab.failed(503, &fault);
    }

    /// The answer as HTTP.
    pub fn into_response(self) -> Response {
        let Self { body, tab } = self;
        let (lane, losses) = (tab.lane().to_owned(), tab.loss_header());
        let cost = tab.done();
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

/// Serves one image request. With `later`, or if the body says so, it is only checked.
pub async fn picture(call: Call, form: ImageRequestForm, later: bool) -> Result<ImageOutcome, ApiError> {
    let job = Job::read(&call, form)?;
    if call.dry_run {
        return job.pretend(&call).map(ImageOutcome::Response);
    }
    if later || job.later().is_requested {
        return queued(call, &job).await.map(|task| ImageOutcome::Task(Box::new(task)));
    }
    if job.later().webhook.is_some() {
        let say = "`webhook` is for tasks: send `\"async\": true` with it";
        return Err(ApiError::invalid("webhook", say));
    }
    if !job.picture().stream {
        let painted = run(call, job).await?;
        return Ok(ImageOutcome::Response(painted.into_response()));
    }
    let (job, tab) = job.admitted(&call).await?;
    let (call, job) = (&Arc::new(call), &job);
    let one = |pick: Pick, tab: Tab| async move { stream::lane_of(call, job, &pick, tab).await };
    let streamed = attempt::over_lanes(call, job.model(), job.route(), tab, one).await?;
    streamed.map(ImageOutcome::Response)
}

/// Checks an image request that is not waited for; no provider is asked.
async fn queued(call: Call, job: &Job) -> Result<ImageTask, ApiError> {
    if job.picture().stream {
        let say = "a stream is waited for: leave `stream` out, or `async`";
        return Err(ApiError::invalid("stream", say));
    }
    let bound = job.bound(job.route().prices.iter());
    admit::can_pay(&call, bound).await?;
    let provider = job.route().lanes.first().map_or("", |lane| lane.provider.name.as_str());
    let (model, provider) = (job.model().to_owned(), provider.to_owned());
    Ok(ImageTask { call, model, provider, webhook: job.later().webhook.clone() })
}

/// Runs one whole order whose caller comes back for it: money, lanes, and pictures that are still to
/// be paid for.
pub async fn paint(call: Call, form: ImageRequestForm) -> Result<Painted, ApiError> {
    let job = Job::read(&call, form)?.inline();
    run(call, job).await
}

async fn run(call: Call, job: Job) -> Result<Painted, ApiError> {
    let (job, tab) = job.admitted(&call).await?;
    let (call, job) = (&call, &job);
    let one = |pick: Pick, tab: Tab| async move { lane_of(call, job, &pick, tab).await };
    // What was held back is an answer of the lane's, and no other lane is asked for it.
    attempt::over_lanes(call, job.model(), job.route(), tab, one).await?
}

/// One lane. The tab comes back with a fault, because the next lane goes on with it.
async fn lane_of(
    call: &Call,
    job: &Job,
    pick: &Pick,
    mut tab: Tab,
) -> Result<Result<Painted, ApiError>, (ApiError, Tab)> {
    let drawn = match draw(call, job, pick, &mut tab).await {
        Ok(drawn) => drawn,
        Err(fault) => return Err((fault, tab)),
    };
    let Drawn { pictures, same } = drawn;
    let said = job.said(&pictures, &pick.lane);
    if let Some(fault) = held_back(&pictures) {
        return Ok(Err(settle_held_back(call, fault, &said, tab)));
    }
    let body = match same {
        Some(body) => body,
        None => {
            let now = call.engine.clock.now() / 1_000_000;
            Bytes::from(dialects::images::write_reply(&pictures, job.picture(), now))
        }
    };
    tab.first_byte();
    tab.pictured(pictures.size.as_deref(), pictures.quality.as_deref());
    tab.heard(&said);
    Ok(Ok(Painted { body, tab }))
}

/// What a lane made, as the caller wants it.
struct Drawn {
    pictures: ImageReply,
    /// The lane's own bytes, where they are what the caller is to get.
    same: Option<Bytes>,
}

/// Has the lane make the pictures, and brings them into the form the caller wants.
async fn draw(call: &Call, job: &Job, pick: &Pick, tab: &mut Tab) -> Result<Drawn, ApiError> {
    let prepared = job.prepare(call, &pick.lane, false)?;
    tab.try_lane(pick)?;
    tab.weigh(job.weight());
    tab.lost(prepared.losses.iter().cloned());
    let asked = ask::all(call, pick, prepared).await?;
    deliver::deliver(call, job, pick, asked).await
}

/// The fault of an answer without a single picture; `None` when there is one.
fn held_back(pictures: &ImageReply) -> Option<ApiError> {
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

/// Settles what a lane counts for pictures it held back.
fn settle_held_back(call: &Call, fault: ApiError, said: &ReplyMeter, tab: Tab) -> ApiError {
    let (status, _) = call.dialect.write_error(&fault, &call.id);
    match said.usage {
        Some(_) if !said.is_estimated => tab.held_back(status, said),
        Some(_) | None => tab.failed(status, &fault),
    }
    fault
}
