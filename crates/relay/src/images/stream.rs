//! Image streams: the lane's own stream if it has one, else a single event with the finished
//! images.

use axum::body::Body;
use axum::response::Response;
use canon::ApiError;
use dialects::images::{self, ImageAnswer, ImageProtocol};
use std::sync::Arc;

use super::super::stream_pipeline::StreamPipeline;
use super::super::route::Candidate;
use super::super::settle::BoxedAccount;
use super::super::{Call, streamed_reply, whole_reply};
use super::lane_requests::{self, LaneImages};
use super::image_call::{self, ImageCall};
use super::{DeliveredImages, deliver, request_and_deliver, withheld_error, settle_withheld};

/// Sends the request to one lane. An error returns the account for the next lane.
pub(super) async fn try_lane(
    call: &Arc<Call>,
    job: &ImageCall,
    pick: &Candidate,
    mut tab: BoxedAccount,
) -> Result<Result<Response, ApiError>, (ApiError, BoxedAccount)> {
    let spoken = match image_call::image_protocol(&pick.lane) {
        Ok(spoken) => spoken,
        Err(fault) => return Err((fault, tab)),
    };
    let ImageProtocol::Images(family) = spoken else { return try_whole(call, job, pick, tab).await };
    if !spoken.can_stream() {
        return try_whole(call, job, pick, tab).await;
    }
    let mut prepared = match job.prepare(call, &pick.lane, true) {
        Ok(prepared) => prepared,
        Err(fault) => return Err((fault, tab)),
    };
    let Some(written) = prepared.requests.pop() else {
        return Err((ApiError::internal("a stream without a request"), tab));
    };
    if let Err(fault) = tab.begin_attempt(pick) {
        return Err((fault, tab));
    }
    tab.estimate_input(job.input_bytes());
    tab.add_losses(prepared.losses);
    let answer = match lane_requests::send(call, pick, spoken, written).await {
        Ok(answer) => answer,
        Err(fault) => return Err((fault, tab)),
    };
    if whole_reply::is_stream(&answer.headers) {
        let now = call.engine.clock.now() / 1_000_000;
        let road = StreamPipeline::passing_through(images::stream_meter(family, job.request(), now));
        return streamed_reply::begin_stream(call, &pick.lane, road, false, answer, tab).await.map(Ok);
    }
    // The lane ignored the request for a stream.
    let drawn = async {
        let body = whole_reply::read_body(answer, &pick.lane, call).await?;
        match spoken.read(&body)? {
            ImageAnswer::Finished(pictures) => {
                deliver::deliver(call, job, pick, LaneImages { reply: pictures, body: None }).await
            }
            ImageAnswer::Pending(_) => Err(ApiError::new(
                canon::ErrorKind::Unavailable,
                "the provider gave no usable answer, retry later",
            )
            .with_log_note("a task was returned instead of a stream")),
        }
    };
    match drawn.await {
        Ok(drawn) => Ok(stream_response(call, job, pick, drawn, tab)),
        Err(fault) => Err((fault, tab)),
    }
}

/// Serves a lane that cannot stream.
async fn try_whole(
    call: &Arc<Call>,
    job: &ImageCall,
    pick: &Candidate,
    mut tab: BoxedAccount,
) -> Result<Result<Response, ApiError>, (ApiError, BoxedAccount)> {
    match request_and_deliver(call, job, pick, &mut tab).await {
        Ok(drawn) => Ok(stream_response(call, job, pick, drawn, tab)),
        Err(fault) => Err((fault, tab)),
    }
}

/// Writes finished images as a stream.
fn stream_response(
    call: &Arc<Call>,
    job: &ImageCall,
    pick: &Candidate,
    drawn: DeliveredImages,
    mut tab: BoxedAccount,
) -> Result<Response, ApiError> {
    let DeliveredImages { reply: pictures, pass_through_body: _ } = drawn;
    let said = job.meter(&pictures, &pick.lane);
    if let Some(fault) = withheld_error(&pictures) {
        return Err(settle_withheld(call, fault, &said, tab));
    }
    let now = call.engine.clock.now() / 1_000_000;
    let body = images::write_stream(&pictures, job.request(), now);
    tab.first_byte();
    tab.set_image_spec(pictures.size.as_deref(), pictures.quality.as_deref());
    tab.record_usage(&said);
    let mut response = streamed_reply::event_stream(Body::from(body), false);
    whole_reply::add_call_headers(&mut response, &tab);
    tab.close_done();
    Ok(response)
}
