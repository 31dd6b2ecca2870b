//! Fence around the operator's accounts at providers. A caller names only objects that the same provider
//! made for its key (or for its account, if that shares), unless the operator shares all of them
//! with `objects = "shared"`.

use canon::{ApiError, Micros};
use config::{LiveLane, Route};
use dialects::{BodyOutline, Dialect, ForeignObject, MadeObjects, RequestFacts, StoredObject};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use upstream::Provider;

use super::Call;
use super::media_refs::MediaRefs;
use super::object_book::ObjectReceipt;

/// Objects stay known for as long as answers do, and at least this long.
const MIN_RETENTION: Duration = Duration::from_secs(3_600);

/// Returns the objects that the request names.
pub(super) fn named_objects(
    call: &Call,
    outline: &BodyOutline,
) -> Result<Vec<StoredObject>, ApiError> {
    dialects::stored_objects(call.dialect.traits().objects, &call.body, outline)
}

/// Ids that a reply of a provider hands out.
pub(super) struct LaneObjects {
    pub(super) ids: MadeObjects,
    provider: Arc<Provider>,
}

/// Returns the objects that the caller does not own. For each provider: the first one, and the first
/// one that the request does not contain.
pub(super) async fn foreign_objects(
    call: &Call,
    route: &Route,
    named: Vec<StoredObject>,
) -> Result<Vec<ForeignObject>, ApiError> {
    let origin = call.dialect.origin();
    let is_open = |lane: &LiveLane| lane.provider.shares_objects && lane.formats.contains(&origin);
    if named.is_empty() || route.lanes.iter().all(|lane| is_open(lane)) {
        return Ok(Vec::new());
    }
    let (owner, now) = (call.key.object_owner(), call.engine.clock.now());
    let providers: BTreeSet<&str> = route.lanes.iter().map(|lane| &*lane.provider.name).collect();
    let mut all = Vec::new();
    for provider in providers {
        let ids = named.iter().map(|object| &*object.id);
        let owned = call.engine.objects.owned(&owner, provider, ids, now).await?;
        let mut foreign = named.iter().filter(|object| !owned.contains(&*object.id));
        let first = foreign.next();
        let missing = match first {
            Some(object) if object.is_contained => foreign.find(|object| !object.is_contained),
            Some(_) | None => None,
        };
        let found = first.into_iter().chain(missing).cloned();
        all.extend(found.map(|object| ForeignObject { object, provider: provider.to_owned() }));
    }
    Ok(all)
}

/// Refuses an object that the caller does not own, if the lane would send its name to a provider or
/// cannot hold it.
pub(super) fn check_lane(
    foreign: &[ForeignObject],
    lane: &LiveLane,
    is_same_format: bool,
) -> Result<(), ApiError> {
    if is_same_format && lane.provider.shares_objects {
        return Ok(());
    }
    let mut here = foreign.iter().filter(|own| own.provider == lane.provider.name);
    let refused = here.find(|own| is_same_format || !own.object.is_contained);
    refused.map_or(Ok(()), |own| Err(own.object.not_found()))
}

/// Finds the objects and the media addresses of a request, and refuses objects that the caller does not
/// own and addresses that nobody may fetch, before a step that would hide the error: the estimate of a
/// count, or the answer to a call in the background. Nothing is fetched.
pub async fn check_references(
    call: &Call,
    facts: &mut RequestFacts,
    route: &Route,
) -> Result<(), ApiError> {
    let find = || {
        let named = named_objects(call, &facts.outline)?;
        MediaRefs::find_in(call, facts, &named, &route.lanes)?;
        // The next step may have another body.
        call.forget_chat();
        Ok::<_, ApiError>(named)
    };
    let named = call.work_permit().await.run(find).await?;
    facts.foreign_objects = foreign_objects(call, route, named).await?;
    let Some(lane) = route.lanes.first() else { return Ok(()) };
    let is_same_format = lane.formats.contains(&call.dialect.origin());
    check_lane(&facts.foreign_objects, lane, is_same_format)
}

/// Returns a collector of the ids that a reply of this format hands out to the caller; `None` if
/// there are none, or the caller gets a translation.
pub(super) fn made_objects(
    call: &Call,
    facts: &RequestFacts,
    lane_dialect: &dyn Dialect,
    provider: &Arc<Provider>,
) -> Option<LaneObjects> {
    let is_same_format = lane_dialect.origin() == call.dialect.origin();
    let objects = call.dialect.traits().objects;
    let of_request = || MadeObjects::of_request(objects, &call.body, &facts.outline);
    let ids = is_same_format.then(of_request)??;
    Some(LaneObjects { ids, provider: Arc::clone(provider) })
}

/// Records the ids that a reply has handed out. Returns the way of the record to the store if the
/// reply must not end before it: the caller may send the ids to another node at once.
pub(super) fn record_made(call: &Call, made: &mut LaneObjects) -> Option<ObjectReceipt> {
    let ids = made.ids.take();
    if ids.is_empty() {
        return None;
    }
    let retention = call.config.answer_retention.max(MIN_RETENTION);
    let expires = call.engine.clock.now() + Micros::from(retention);
    let receipt = call.engine.objects.record(&call.key, &made.provider.name, &ids, expires);
    made.ids.is_awaited().then_some(receipt)
}
