//! Pictures as a stream: the lane's own where it has one, else one event when they are done.

use axum::body::Body;
use axum::response::Response;
use canon::ApiError;
use dialects::images::{self, ImageAnswer, ImageProtocol};
use std::sync::Arc;

use super::super::road::Road;
use super::super::route::Pick;
use super::super::settle::Tab;
use super::super::{Call, pump, whole};
use super::ask::{self, Asked};
use super::job::{self, Job};
use super::{Drawn, deliver, draw, held_back, settle_held_back};

/// One lane. The tab comes back with a fault, because the next lane goes on with it.
pub(super) async fn lane_of(
    call: &Arc<Call>,
    job: &Job,
    pick: &Pick,
    mut tab: Tab,
) -> Result<Result<Response, ApiError>, (ApiError, Tab)> {
    let spoken = match job::spoken(&pick.lane) {
        Ok(spoken) => spoken,
        Err(fault) => return Err((fault, tab)),
    };
    let ImageProtocol::Images(family) = spoken else { return whole_of(call, job, pick, tab).await };
    if !spoken.can_stream() {
        return whole_of(call, job, pick, tab).await;
    }
    let mut prepared = match job.prepare(call, &pick.lane, true) {
        Ok(prepared) => prepared,
        Err(fault) => return Err((fault, tab)),
    };
    let Some(written) = prepared.written.pop() else {
        return Err((ApiError::internal("a stream of nothing"), tab));
    };
    if let Err(fault) = tab.try_lane(pick) {
        return Err((fault, tab));
    }
    tab.weigh(job.weight());
    tab.lost(prepared.losses);
    let answer = match ask::send(call, pick, spoken, written).await {
        Ok(answer) => answer,
        Err(fault) => return Err((fault, tab)),
    };
    if whole::is_stream(&answer.headers) {
        let now = call.engine.clock.now() / 1_000_000;
        let road = Road::watching(images::stream_meter(family, job.picture(), now));
        return pump::begin(call, &pick.lane, road, false, answer, tab).await.map(Ok);
    }
    // A whole answer, though a stream was asked for.
    let drawn = async {
        let body = whole::read(answer, &pick.lane, call).await?;
        match spoken.read(&body)? {
            ImageAnswer::Finished(pictures) => {
                deliver::deliver(call, job, pick, Asked { pictures, body: None }).await
            }
            ImageAnswer::Pending(_) => Err(ApiError::new(
                canon::ErrorKind::Unavailable,
                "the provider gave no usable answer, retry later",
            )
            .with_log_note("a task came in place of a stream")),
        }
    };
    match drawn.await {
        Ok(drawn) => Ok(told(call, job, pick, drawn, tab)),
        Err(fault) => Err((fault, tab)),
    }
}

/// A lane that has no stream.
async fn whole_of(
    call: &Arc<Call>,
    job: &Job,
    pick: &Pick,
    mut tab: Tab,
) -> Result<Result<Response, ApiError>, (ApiError, Tab)> {
    match draw(call, job, pick, &mut tab).await {
        Ok(drawn) => Ok(told(call, job, pick, drawn, tab)),
        Err(fault) => Err((fault, tab)),
    }
}

/// A whole answer, told as a stream.
fn told(
    call: &Arc<Call>,
    job: &Job,
    pick: &Pick,
    drawn: Drawn,
    mut tab: Tab,
) -> Result<Response, ApiError> {
    let Drawn { pictures, same: _ } = drawn;
    let said = job.said(&pictures, &pick.lane);
    if let Some(fault) = held_back(&pictures) {
        return Err(settle_held_back(call, fault, &said, tab));
    }
    let now = call.engine.clock.now() / 1_000_000;
    let body = images::write_stream(&pictures, job.picture(), now);
    tab.first_byte();
    tab.pictured(pictures.size.as_deref(), pictures.quality.as_deref());
    tab.heard(&said);
    let mut response = pump::event_stream(Body::from(body), false);
    whole::describe(&mut response, &tab);
    tab.done();
    Ok(response)
}
