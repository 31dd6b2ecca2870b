//! Token counts by a provider that has a counting endpoint.

use bytes::Bytes;
use canon::ApiError;
use config::{LiveLane, Route};
use dialects::{CountEndpoint, Dialect, ProviderRequest, RequestFacts};
use std::time::Duration;
use upstream::LaneState;

use super::Call;
use super::media_refs::MediaRefs;
use super::route::Candidate;
use super::{adapt, fence, prepare, reply, route, send, session};

/// Time for all lanes together. The caller gets an estimate after it.
const COUNT_TIMEOUT: Duration = Duration::from_secs(3);
/// Lanes that are asked at most.
const MAX_COUNTING_LANES: usize = 2;

/// A count of input tokens by a provider.
pub struct ProviderCount {
    /// The number of tokens.
    pub tokens: u64,
    /// The provider's answer, if its format is the caller's.
    pub answer: Option<Bytes>,
}

/// Asks the lanes of a model for the input tokens of a request. Returns `None` if no lane has a
/// counting endpoint, or none answers in time. Nothing is charged, and a failure does not count in
/// the health of the lane: providers need not have the endpoint.
pub async fn count_at_provider(
    call: &Call,
    facts: &RequestFacts,
    route: &Route,
) -> Option<ProviderCount> {
    // The caller must still be there for the estimate.
    let limit = call.options.timeout.map_or(COUNT_TIMEOUT, |time| COUNT_TIMEOUT.min(time / 2));
    tokio::time::timeout(limit, Box::pin(ask_lanes(call, facts, route))).await.ok().flatten()
}

async fn ask_lanes(call: &Call, facts: &RequestFacts, route: &Route) -> Option<ProviderCount> {
    let find_media = || {
        let named = fence::named_objects(call, &facts.outline)?;
        MediaRefs::find_in(call, facts, &named, &route.lanes)
    };
    let media = call.work_permit().await.run(find_media).await.ok()?;
    let now = call.engine.monotonic_now();
    let session = session::find(call, facts);
    let candidates =
        route::ordered_candidates(call, (&facts.needs, session.as_deref()), route, now);
    // A fallback model counts differently.
    let is_usable = |candidate: &Candidate| {
        candidate.lane.served_model.id == route.model.id
            && candidate.standing(now) == LaneState::Good
    };
    let counting = candidates.into_iter().filter(is_usable).filter_map(|candidate| {
        let (dialect, endpoint) = counting_dialect(call, &candidate.lane)?;
        Some((candidate, dialect, endpoint))
    });
    for (candidate, dialect, endpoint) in counting.take(MAX_COUNTING_LANES) {
        match ask_lane(call, facts, &media, &candidate, dialect, endpoint).await {
            Ok(Some(count)) => return Some(count),
            Ok(None) => {}
            Err(error) => {
                let (name, why) =
                    (candidate.lane.name.as_str(), error.log_note().unwrap_or_default());
                tracing::debug!(lane.name = name, "lane `{name}` did not count: {error} [{why}]");
            }
        }
    }
    None
}

/// Returns the format in which the lane is asked: the caller's own if the lane has it and it has a
/// counting endpoint, else the first one that has.
fn counting_dialect(
    call: &Call,
    lane: &LiveLane,
) -> Option<(&'static dyn Dialect, &'static CountEndpoint)> {
    let own = call.dialect.origin();
    let own = lane.formats.contains(&own).then_some(own);
    let mut formats = own.into_iter().chain(lane.formats.iter().copied());
    formats.find_map(|origin| {
        let dialect = dialects::get(origin)?;
        Some((dialect, dialect.traits().count_endpoint?))
    })
}

async fn ask_lane(
    call: &Call,
    facts: &RequestFacts,
    media: &MediaRefs,
    candidate: &Candidate,
    dialect: &'static dyn Dialect,
    endpoint: &'static CountEndpoint,
) -> Result<Option<ProviderCount>, ApiError> {
    let lane = &candidate.lane;
    let inlined = media.inline(call, lane, dialect).await?;
    let outgoing: Option<ProviderRequest> = call
        .work_permit()
        .await
        .run(|| {
            let prepared = prepare::prepare(call, facts, lane, dialect, None, inlined)?;
            let has_own_path = lane.endpoints.path(dialect.origin()).is_some();
            let body = prepared.outgoing.body.to_vec();
            let outgoing =
                endpoint.request(&lane.model, &body, has_own_path).and_then(|outgoing| {
                    adapt::set_count_path(&lane.endpoints, dialect.origin(), &lane.model, outgoing)
                });
            Ok::<_, ApiError>(outgoing)
        })
        .await?;
    let Some(outgoing) = outgoing else { return Ok(None) };
    let _place = lane.in_flight.admit(lane.provider.max_in_flight)?;
    let answer = send::send(call, candidate, dialect, outgoing).await?;
    let answer = reply::read_json(answer, lane, call).await?;
    let same = dialect.origin() == call.dialect.origin();
    Ok(endpoint
        .read_total(&answer)
        .map(|tokens| ProviderCount { tokens, answer: same.then_some(answer) }))
}
