//! Fence around the operator's accounts at providers. A caller names only objects that a provider
//! made for its key (or for its account, if that shares), unless the operator shares all of them
//! with `objects = "shared"`.

use canon::{ApiError, Micros};
use config::{LiveLane, Route};
use dialects::{Dialect, MadeObjects, RequestFacts, StoredObject};
use std::time::Duration;

use super::Call;
use super::object_book::ObjectReceipt;

/// Objects stay known for as long as answers do, and at least this long.
const MIN_RETENTION: Duration = Duration::from_secs(3_600);

/// Returns the objects that the request names.
pub(super) fn named_objects(call: &Call) -> Result<Vec<StoredObject>, ApiError> {
    dialects::stored_objects(call.dialect.traits().objects, &call.body)
}

/// Returns the objects that the caller does not own: the first one, and the first one that the
/// request does not contain.
pub(super) async fn foreign_objects(
    call: &Call,
    route: &Route,
    named: Vec<StoredObject>,
) -> Result<Vec<StoredObject>, ApiError> {
    let origin = call.dialect.origin();
    let is_open = |lane: &LiveLane| lane.provider.shares_objects && lane.formats.contains(&origin);
    if named.is_empty() || route.lanes.iter().all(|lane| is_open(lane)) {
        return Ok(Vec::new());
    }
    let (owner, now) = (call.key.object_owner(), call.engine.clock.now());
    let ids = named.iter().map(|object| &*object.id);
    let owned = call.engine.objects.owned(&owner, ids, now).await?;
    let mut foreign = named.iter().filter(|object| !owned.contains(&*object.id));
    let first = foreign.next();
    let missing = match first {
        Some(object) if object.is_contained => foreign.find(|object| !object.is_contained),
        Some(_) | None => None,
    };
    Ok(first.into_iter().chain(missing).cloned().collect())
}

/// Refuses an object that the caller does not own, if the lane would send its name to a provider or
/// cannot hold it.
pub(super) fn check_lane(
    foreign: &[StoredObject],
    lane: &LiveLane,
    is_same_format: bool,
) -> Result<(), ApiError> {
    if is_same_format && lane.provider.shares_objects {
        return Ok(());
    }
    let object = foreign.iter().find(|object| is_same_format || !object.is_contained);
    object.map_or(Ok(()), |object| Err(object.not_found()))
}

/// Finds the objects of a request and refuses those that the caller does not own, before a step that
/// would hide the error: the estimate of a count, or the answer to a call in the background.
pub async fn check_objects(
    call: &Call,
    facts: &mut RequestFacts,
    route: &Route,
) -> Result<(), ApiError> {
    let named = call.work_permit().await.run(|| named_objects(call)).await?;
    facts.foreign_objects = foreign_objects(call, route, named).await?;
    let Some(lane) = route.lanes.first() else { return Ok(()) };
    let is_same_format = lane.formats.contains(&call.dialect.origin());
    check_lane(&facts.foreign_objects, lane, is_same_format)
}

/// Returns a collector of the ids that a reply of this format hands out to the caller; `None` if
/// there are none, or the caller gets a translation.
pub(super) fn made_objects(call: &Call, lane_dialect: &dyn Dialect) -> Option<MadeObjects> {
    let is_same_format = lane_dialect.origin() == call.dialect.origin();
    is_same_format.then(|| MadeObjects::of_request(call.dialect.traits().objects, &call.body))?
}

/// Records the ids that a reply has handed out. Returns the way of the record to the store if the
/// reply must not end before it: the caller may send the ids to another node at once.
pub(super) fn record_made(call: &Call, made: &mut MadeObjects) -> Option<ObjectReceipt> {
    let ids = made.take();
    if ids.is_empty() {
        return None;
    }
    let retention = call.config.answer_retention.max(MIN_RETENTION);
    let expires = call.engine.clock.now() + Micros::from(retention);
    let receipt = call.engine.objects.record(&call.key, &ids, expires);
    made.is_awaited().then_some(receipt)
}
