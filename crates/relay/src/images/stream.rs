//! Image streams: the lane's own stream if it has one, else a single event with the finished
//! images.

use axum::response::Response;
use bytes::Bytes;
use canon::ApiError;
use dialects::images::{self, ImageAnswer, ImageProtocol};
use std::sync::Arc;

use super::super::reply::{is_stream, read_json, settled_events};
use super::super::route::Candidate;
use super::super::settle::BoxedAccount;
use super::super::stream_pipeline::StreamPipeline;
use super::super::{Call, streamed_body};
use super::image_call::{self, ImageCall};
use super::lane_requests::{self, LaneImages, read_scrubbed};
use super::{
    DeliveredImages, FinalAnswer, deliver_or_absorb, inline_bytes, request_and_deliver,
    settle_withheld, withheld_error,
};

/// Sends the request to one lane. An error returns the account for the next lane.
pub(super) async fn try_lane(
    call: &Arc<Call>,
    image_call: &ImageCall,
    candidate: &Candidate,
    mut account: BoxedAccount,
) -> Result<FinalAnswer<Response>, (ApiError, BoxedAccount)> {
    let protocol = match image_call::image_protocol(&candidate.lane) {
        Ok(protocol) => protocol,
        Err(error) => return Err((error, account)),
    };
    let ImageProtocol::Images(family) = protocol else {
        return try_whole(call, image_call, candidate, account).await;
    };
    if !protocol.can_stream() {
        return try_whole(call, image_call, candidate, account).await;
    }
    let prepare = || image_call.prepare(call, &candidate.lane, true);
    let permit = call.permit_for(image_call.request_bytes(call)).await;
    let mut prepared = match permit.run(prepare).await {
        Ok(prepared) => prepared,
        Err(error) => return Err((error, account)),
    };
    let Some(written) = prepared.requests.pop() else {
        return Err((ApiError::internal("a stream without a request"), account));
    };
    if let Err(error) = account.begin_attempt(candidate).await {
        return Err((error, account));
    }
    image_call.expect(&mut account, &candidate.lane);
    let count = image_call.request().count;
    let estimate = image_call.likely_usage(count.into(), &candidate.lane);
    let defaults = image_call.reply_defaults(call, &prepared.losses).with_usage(Some(estimate));
    account.set_losses(prepared.losses);
    let answer = match lane_requests::send(call, candidate, protocol, written).await {
        Ok(answer) => answer,
        Err(error) => return Err((error, account)),
    };
    if is_stream(&answer.headers) {
        let meter = images::stream_meter(family, count, defaults);
        let pipeline = StreamPipeline::passing_through(call, &candidate.lane.provider, meter);
        return streamed_body::begin_stream(
            call,
            &candidate.lane,
            pipeline,
            false,
            answer,
            account,
        )
        .await
        .map(|reply| FinalAnswer::Delivered(reply.into_response()));
    }
    // The lane ignored the request for a stream.
    let delivered = async {
        let body = read_json(answer, &candidate.lane, call).await?;
        match call
            .permit_for(body.len())
            .await
            .run(|| read_scrubbed(call, candidate, protocol, &body))
            .await?
        {
            ImageAnswer::Finished(reply) => {
                let lane_images = LaneImages { reply, body: None };
                let answer = (lane_images, defaults);
                deliver_or_absorb(call, image_call, candidate, answer, &mut account).await
            }
            ImageAnswer::Pending(_) => Err(ApiError::new(
                canon::ErrorKind::Unavailable,
                "the provider gave no usable answer, retry later",
            )
            .with_log_note("a task was returned instead of a stream")),
        }
    };
    match delivered.await {
        Ok(delivered) => Ok(stream_response(call, image_call, candidate, delivered, account).await),
        Err(error) => Err((error, account)),
    }
}

/// Serves a lane that cannot stream.
async fn try_whole(
    call: &Arc<Call>,
    image_call: &ImageCall,
    candidate: &Candidate,
    mut account: BoxedAccount,
) -> Result<FinalAnswer<Response>, (ApiError, BoxedAccount)> {
    match request_and_deliver(call, image_call, candidate, &mut account).await {
        Ok(delivered) => Ok(stream_response(call, image_call, candidate, delivered, account).await),
        Err(error) => Err((error, account)),
    }
}

/// Writes finished images as a stream.
async fn stream_response(
    call: &Arc<Call>,
    image_call: &ImageCall,
    candidate: &Candidate,
    delivered: DeliveredImages,
    mut account: BoxedAccount,
) -> FinalAnswer<Response> {
    let DeliveredImages { reply, pass_through_body: _, defaults } = delivered;
    let meter = image_call.meter(&reply, &candidate.lane);
    if let Some(error) = withheld_error(&reply) {
        return FinalAnswer::Withheld(settle_withheld(call, error, &meter, account).await);
    }
    let defaults = defaults.with_usage(meter.usage);
    let write = || images::write_stream(&reply, &defaults);
    let body = call.permit_for(inline_bytes(&reply)).await.run(write).await;
    account.set_image_spec(reply.size.as_deref(), reply.quality.as_deref());
    account.record_reply(meter.into());
    let reply = settled_events(Bytes::from(body), false, account).await;
    FinalAnswer::Delivered(reply.into_response())
}
