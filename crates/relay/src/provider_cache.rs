//! Caches at providers. A cache is made when a caller keeps content, and paid then for its whole lifetime.
//! Calls that use the content name the cache at its lane, and carry the content at any other.

use axum::response::Response;
use bytes::Bytes;
use canon::{ApiError, ErrorKind, Micros, Money, UpstreamProgress, Usage, WireFormat};
use catalog::BilledUnits;
use config::{LiveLane, Route};
use dialects::native::{CacheEndpoint, CreatedCache, NativeDialect};
use dialects::{Dialect as _, ReplyMeter, RequestFacts, RequestUse};
use std::sync::Arc;
use std::time::Duration;

use super::cache_use::ProviderCache;
use super::media_refs::MediaRefs;
use super::prepare::prepare;
use super::route::{self, Candidate};
use super::settle::{BoxedAccount, FinishedReply};
use super::{Call, admit, fence, reply, send, sizing};
use crate::engine::Engine;

/// No provider makes smaller caches.
const MIN_TOKENS: u64 = 1_024;
/// Content that ends sooner has no copy: it would be paid and hardly used.
const MIN_LIFETIME: Micros = Micros::from_secs(60);
/// Requests for one copy.
const MAX_TRIES: usize = 3;
const DELETE_TIMEOUT: Duration = Duration::from_secs(10);
const SECONDS_PER_HOUR: u128 = 3_600;

/// A copy that was made and is not settled yet.
pub struct NewProviderCache {
    /// The copy.
    pub cache: ProviderCache,
    account: BoxedAccount,
    usage: Usage,
}

impl NewProviderCache {
    /// Charges the copy, and returns the answer with its cost.
    pub async fn charge(mut self, body: String) -> Response {
        let meter = finished(self.usage);
        self.account.record_reply(FinishedReply::from(meter));
        reply::settled_response(Bytes::from(body), self.account).await.into_response()
    }

    /// Lets the operator pay the copy, because no call can use it.
    pub fn absorb(mut self, error: &ApiError) {
        self.account.attempt_answered();
        self.account.absorb_answer(&finished(self.usage));
        self.account.close_failed(status(error), error);
    }
}

fn status(error: &ApiError) -> u16 {
    NativeDialect.write_error(error, "").0
}

fn finished(usage: Usage) -> ReplyMeter {
    ReplyMeter { usage: Some(usage), is_finished: true, ..ReplyMeter::default() }
}

/// Makes a copy of content at a provider, if a lane of its model has caches with a price. The body of the
/// call is the content. Returns `None` if there is no such lane, if the key cannot pay, or if the provider
/// makes none: the content works without a copy.
pub async fn make_provider_cache(
    call: &Call,
    tokens: u64,
    lifetime: Micros,
) -> Result<Option<NewProviderCache>, ApiError> {
    if tokens < MIN_TOKENS || lifetime < MIN_LIFETIME {
        return Ok(None);
    }
    let parse = || call.dialect.parse(&call.target, &call.body, RequestUse::Facts);
    let mut facts = call.work_permit().await.run(parse).await?.facts.unwrap_or_default();
    facts.max_output_tokens = Some(0);
    let route = route::find(call, &facts)?;
    let route = caching_route(&route);
    if route.lanes.is_empty() {
        return Ok(None);
    }
    let find_media = || {
        let named = fence::named_objects(call, &facts.outline)?;
        MediaRefs::find_in(call, &facts, &named, &route.lanes)
    };
    let media = call.work_permit().await.run(find_media).await?;
    let input = sizing::max_input_tokens(call, &facts, &route, &media);
    let bound = route.prices.iter().map(|prices| {
        let cache_storage = token_hours(input, lifetime);
        prices.max_cost_with(input, 0, &BilledUnits { cache_storage, ..BilledUnits::default() })
    });
    let bound = bound.max().unwrap_or(Money::ZERO);
    let likely = |lane: &LiveLane| lane.prices.cost(&storage_usage(tokens, lifetime));
    let admitted = async {
        admit::check_token_rate(call, &facts).await?;
        admit::admit_with_max_cost(call, &facts, &route, bound, likely).await
    };
    let account = match admitted.await {
        Ok(account) => account,
        Err(error) if matches!(error.kind(), ErrorKind::QuotaExceeded | ErrorKind::RateLimited) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let wanted = WantedCache { tokens, max_tokens: input, lifetime };
    Ok(ask_lanes(call, &facts, &media, account, wanted).await)
}

/// Returns the route with only those lanes that have caches with a price.
fn caching_route(route: &Route) -> Route {
    let has_caches = |lane: &&Arc<LiveLane>| {
        lane.served_model.id == route.model.id
            && lane.formats.contains(&WireFormat::Native)
            && lane.prices.cache_storage.is_some()
            && endpoint(lane).is_some()
    };
    let lanes: Vec<_> = route.lanes.iter().filter(has_caches).cloned().collect();
    let prices = lanes.iter().map(|lane| Arc::clone(&lane.prices)).collect();
    Route { lanes, prices, ..route.clone() }
}

fn endpoint(lane: &LiveLane) -> Option<CacheEndpoint> {
    let own_path = lane.endpoints.path(WireFormat::Native).map(|path| path.whole.as_str());
    CacheEndpoint::new(own_path, &lane.model)
}

/// Returns the billed storage, with a started unit counted whole.
fn token_hours(tokens: u64, lifetime: Micros) -> u64 {
    let seconds = u128::from(lifetime.as_secs().unsigned_abs());
    let hours = (u128::from(tokens) * seconds).div_ceil(SECONDS_PER_HOUR);
    u64::try_from(hours).unwrap_or(u64::MAX)
}

/// A copy that is asked for.
#[derive(Clone, Copy)]
struct WantedCache {
    /// Size of the content by a count or an estimate.
    tokens: u64,
    /// Upper bound of its size.
    max_tokens: u64,
    lifetime: Micros,
}

/// Asks lanes for a cache until one makes it. A refusal says nothing of the lane's health for calls.
async fn ask_lanes(
    call: &Call,
    facts: &RequestFacts,
    media: &MediaRefs,
    mut account: BoxedAccount,
    wanted: WantedCache,
) -> Option<NewProviderCache> {
    let WantedCache { tokens, max_tokens, lifetime } = wanted;
    account.expect_usage(storage_usage(tokens, lifetime));
    let mut candidates = account.take_candidates().into_iter();
    let mut following = candidates.next();
    let mut tries = 0;
    let mut last_error = ApiError::new(ErrorKind::Unavailable, "no lane can make a cache now");
    while let Some(next) = following.take().filter(|_| tries < MAX_TRIES) {
        tries += 1;
        let lane = Arc::clone(&next.lane);
        let asked = match account.begin_attempt(&next).await {
            Ok(()) => create(call, facts, media, &next, lifetime).await,
            Err(error) => Err(error),
        };
        let error = match asked {
            Ok(CreatedCache { name, tokens: told }) => {
                // A provider cannot count more than there is.
                let told = told.filter(|told| (1..=max_tokens).contains(told));
                let usage = storage_usage(told.unwrap_or(tokens), lifetime);
                let slot = next.slot_hash().unwrap_or_default();
                let expires = call.engine.clock.now() + lifetime;
                let cache = ProviderCache { slot, name, expires };
                return Some(NewProviderCache { cache, account, usage });
            }
            Err(error) => error,
        };
        let (name, why) = (lane.name.as_str(), error.log_note().unwrap_or_default());
        tracing::info!(lane.name = name, "lane `{name}` made no cache: {error} [{why}]");
        let is_stale = error.progress() == Some(UpstreamProgress::StaleConnection);
        let may_have_run = send::may_have_run(&error);
        if is_stale {
            account.end_stale_attempt();
        } else if account.has_attempt() {
            account.attempt_refused(&error, may_have_run);
        }
        // A copy may exist already: another one would be paid twice.
        following = match may_have_run {
            true => None,
            false if is_stale && !next.new_connection => {
                Some(Candidate { new_connection: true, ..next })
            }
            false => candidates.next(),
        };
        last_error = error;
    }
    account.close_failed(status(&last_error), &last_error);
    None
}

fn storage_usage(tokens: u64, lifetime: Micros) -> Usage {
    let cache_storage = token_hours(tokens, lifetime);
    Usage { input: tokens, cache_storage, ..Usage::default() }
}

async fn create(
    call: &Call,
    facts: &RequestFacts,
    media: &MediaRefs,
    candidate: &Candidate,
    lifetime: Micros,
) -> Result<CreatedCache, ApiError> {
    let lane = &candidate.lane;
    let inlined = media.inline(call, lane, &NativeDialect).await?;
    let seconds = u64::try_from(lifetime.as_secs()).unwrap_or_default();
    let write = || {
        let prepared = prepare(call, facts, lane, &NativeDialect, None, inlined)?;
        let body = prepared.outgoing.body.to_vec();
        let written = endpoint(lane).and_then(|endpoint| endpoint.create(&body, seconds));
        written.ok_or_else(|| ApiError::internal("the content of a cache cannot be written"))
    };
    let outgoing = call.work_permit().await.run(write).await?;
    let answer = send::send(call, candidate, &NativeDialect, outgoing).await?;
    let answer = reply::read_json(answer, lane, call).await?;
    CacheEndpoint::read_created(&answer).ok_or_else(|| {
        ApiError::new(ErrorKind::Unavailable, "the provider gave no usable answer, retry later")
            .with_log_note("a cache without a usable name")
    })
}

/// Deletes a copy in the background. One that cannot be deleted ends by itself.
pub fn delete_provider_cache(engine: &Arc<Engine>, model: &str, cache: ProviderCache) {
    let config = engine.config();
    let Some(route) = config.routes.get(model) else { return };
    let found = route.lanes.iter().find_map(|lane| {
        let slot = lane.slots.iter().position(|slot| slot.hash_key == cache.slot)?;
        Some((Arc::clone(lane), slot, endpoint(lane)?))
    });
    let Some((lane, credential, endpoint)) = found else { return };
    engine.tasks.spawn(async move {
        let path = endpoint.path(&cache.name);
        let deleting = lane.provider.delete(&path, credential, lane.timeouts.connect);
        match tokio::time::timeout(DELETE_TIMEOUT, deleting).await {
            Ok(Ok(200 | 204 | 404)) => {}
            Ok(Ok(status)) => {
                tracing::warn!("lane `{}` did not delete a cache: status {status}", lane.name);
            }
            Ok(Err(error)) => {
                let why = error.log_note().unwrap_or_default();
                tracing::warn!("lane `{}` did not delete a cache: {error} [{why}]", lane.name);
            }
            Err(_) => tracing::warn!("lane `{}` did not delete a cache in time", lane.name),
        }
    });
}
