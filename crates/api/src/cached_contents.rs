//! `/v1beta/cachedContents`, and the same under `/v1`: <https://ai.google.dev/api/caching>.
//!
//! The gateway keeps the content itself and inserts it into the requests that name it, so that it works with
//! any provider.

use axum::response::Response;
use bytes::Bytes;
use canon::{ApiError, ErrorKind, Micros};
use config::Config;
use dialects::native::{
    self, CacheExpiry, CachedPrefix, ExpandedRequest, NativeDialect, NewCachedContent,
};
use dialects::{ReplyStamp, RequestTarget};
use memchr::memmem::Finder;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use store::{CacheAdmission, CacheCopy, CacheLimits, CachedContent, ObjectOwner, StoreError};

use super::query::{percent_decode, query_pairs};
use crate::json_object::set_fields;
use crate::key_info::rfc3339;
use crate::request::ApiRequest;
use crate::state::ApiState;
use crate::token_count;
use relay::{CacheUse, Call, ProviderCache, json_response};

/// Lifetime of content whose caller names none.
const USUAL_LIFETIME: Micros = Micros::from_hours(1);
/// Contents of one key.
const MAX_CONTENTS: u64 = 100;
/// Bytes of all contents of a key together, as a multiple of the largest body.
const MAX_BODIES: u64 = 4;
const USUAL_PAGE: u32 = 50;
/// The fields that a change may name.
const CHANGEABLE: [&str; 3] = ["ttl", "expireTime", "expire_time"];
/// The beginning of the field's name in both spellings, compiled once because most requests lack it.
static CACHE_FIELD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"cached"));

/// Keeps content.
pub(super) async fn create(incoming: ApiRequest) -> Result<Response, ApiError> {
    let state = Arc::clone(&incoming.state);
    let target = RequestTarget { is_cached_content: true, ..RequestTarget::default() };
    let mut call = Call::read(incoming.into_call(), &NativeDialect, target).await?;
    if call.is_dry_run() {
        let message = "cached content has no dry run; `countTokens` tells the size of a request";
        return Err(ApiError::invalid("x-portunus-dry-run", message));
    }
    let permit = call.work_permit().await;
    let NewCachedContent { model, display_name, expiry, body } =
        permit.run(|| native::read_cached_content(&call.body)).await?;
    let now = state.clock().now();
    let expires = expiry_time(&call.config, expiry, now)?;
    call.target.model = Some(model.clone());
    call.body = body.clone().into();
    // The count judges the content as a request to the model: rules, rights of the key, capabilities and
    // objects of providers.
    let counted = token_count::count_tokens(&call).await?;
    let content = CachedContent {
        id: format!("cache_{}", call.reply_stamp().id),
        account_id: call.key.record.account_id.clone(),
        key_id: call.key.record.id.clone(),
        model,
        display_name,
        bytes: body.len() as u64,
        tokens: counted.tokens,
        created: now,
        updated: now,
        expires,
    };
    let limits = CacheLimits {
        count: MAX_CONTENTS,
        bytes: MAX_BODIES.saturating_mul(call.config.max_body_bytes as u64),
    };
    let added = state.store.add_cached_content(&content, &body, limits).await;
    let full = match added.map_err(store_unavailable)? {
        CacheAdmission::Added => {
            let shown = content_json(&content).to_string();
            call.forget_own_timeout();
            // The copy is made, recorded and paid also if the caller leaves.
            let tasks = state.engine.tasks.clone();
            let copied = tasks.spawn(copy_to_provider(state, call, content)).await;
            return Ok(copied.unwrap_or_else(|_| json_response(shown)));
        }
        CacheAdmission::TooMany => format!("{} cached contents", limits.count),
        CacheAdmission::TooLarge => format!("{} bytes of cached contents", limits.bytes),
    };
    let message = format!("this API key may have {full}; delete one or let it expire");
    Err(ApiError::new(ErrorKind::RateLimited, message)
        .with_code("too_many_cached_contents")
        .without_retry())
}

/// Makes a copy of new content at a provider that has caches, and returns the answer. Content without a
/// copy costs nothing.
async fn copy_to_provider(
    state: Arc<ApiState>,
    call: Box<Call>,
    content: CachedContent,
) -> Response {
    let shown = content_json(&content).to_string();
    let lifetime = content.expires - content.created;
    let made = match relay::make_provider_cache(&call, content.tokens, lifetime).await {
        Ok(Some(made)) => made,
        Ok(None) => return json_response(shown),
        Err(error) => {
            let why = error.log_note().unwrap_or_default();
            tracing::warn!("content has no copy at a provider: {error} [{why}]");
            return json_response(shown);
        }
    };
    let recorded = state.store.set_cache_copy(&content.id, &copy_row(&made.cache)).await;
    let Err(error) = recorded else { return made.charge(shown).await };
    relay::delete_provider_cache(&state.engine, &content.model, made.cache.clone());
    if let StoreError::Missing(_) = error {
        // The caller has deleted the content in the meantime.
        return made.charge(shown).await;
    }
    let error = store_unavailable(error);
    let why = error.log_note().unwrap_or_default();
    tracing::warn!("the copy of cached content at a provider is not recorded: {why}");
    made.absorb(&error);
    json_response(shown)
}

fn copy_row(cache: &ProviderCache) -> CacheCopy {
    let ProviderCache { slot, name, expires } = cache;
    CacheCopy { slot: format!("{slot:016x}"), name: name.clone(), expires: *expires }
}

fn provider_cache(copy: CacheCopy) -> Option<ProviderCache> {
    let CacheCopy { slot, name, expires } = copy;
    Some(ProviderCache { slot: u64::from_str_radix(&slot, 16).ok()?, name, expires })
}

/// Lists the contents of an owner, oldest first.
pub(super) async fn list(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (mut limit, mut after) = (USUAL_PAGE, None);
    for (name, value) in query_pairs(incoming.request.query()) {
        match name.as_str() {
            "pageSize" | "page_size" => match value.parse::<u32>() {
                Ok(count @ 1..=1000) => limit = count,
                _ => {
                    let message = format!("`{name}` must be between 1 and 1000");
                    return Err(ApiError::invalid(name, message));
                }
            },
            "pageToken" | "page_token" if value.is_empty() => {}
            "pageToken" | "page_token" if ReplyStamp::has_made(&value) => after = Some(value),
            "pageToken" | "page_token" => {
                let message = format!("`{name}` was not issued by this gateway");
                return Err(ApiError::invalid(name, message));
            }
            _ => {}
        }
    }
    let (state, owner) = (&incoming.state, incoming.key.object_owner());
    let now = state.clock().now();
    let found = state.store.cached_contents(&owner, after.as_deref(), limit + 1, now).await;
    let mut found = found.map_err(store_unavailable)?;
    let page_size = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = found.len() > page_size;
    found.truncate(page_size);
    let shown: Vec<Value> = found.iter().map(content_json).collect();
    let body = match found.last().filter(|_| has_more) {
        Some(last) => json!({ "cachedContents": shown, "nextPageToken": last.id }),
        None => json!({ "cachedContents": shown }),
    };
    Ok(json_response(body.to_string()))
}

pub(super) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    let CacheLookup { state, owner, id } = CacheLookup::from_request(&incoming);
    let found = state.store.cached_content(&id, &owner, state.clock().now()).await;
    found_response(found)
}

/// Changes the expiry of content.
pub(super) async fn change(incoming: ApiRequest) -> Result<Response, ApiError> {
    let CacheLookup { state, owner, id } = CacheLookup::from_request(&incoming);
    let query = query_pairs(incoming.request.query());
    for (name, mask) in query {
        let is_mask = matches!(name.as_str(), "updateMask" | "update_mask");
        if is_mask && !mask.split(',').all(|field| CHANGEABLE.contains(&field.trim())) {
            let message =
                format!("`{name}` must be `ttl` or `expireTime`: nothing else can change");
            return Err(ApiError::invalid(name, message));
        }
    }
    let call = Call::read(incoming.into_call(), &NativeDialect, RequestTarget::default()).await?;
    let permit = call.work_permit().await;
    let expiry = permit.run(|| native::read_cache_change(&call.body)).await?;
    let now = state.clock().now();
    let expires = expiry_time(&call.config, Some(expiry), now)?;
    found_response(state.store.set_cache_expiry(&id, &owner, expires, now).await)
}

pub(super) async fn delete(incoming: ApiRequest) -> Result<Response, ApiError> {
    let CacheLookup { state, owner, id } = CacheLookup::from_request(&incoming);
    let (store, now) = (&state.store, state.clock().now());
    let content = store.cached_content(&id, &owner, now).await.map_err(store_unavailable)?;
    let content = content.ok_or_else(native::cached_content_not_found)?;
    let copy = store.cache_copy(&id, now).await.map_err(store_unavailable)?;
    if !store.drop_cached_content(&id, &owner, now).await.map_err(store_unavailable)? {
        return Err(native::cached_content_not_found());
    }
    if let Some(cache) = copy.and_then(provider_cache) {
        relay::delete_provider_cache(&state.engine, &content.model, cache);
    }
    Ok(json_response("{}"))
}

/// Content named in a request, and the owner whose contents the caller may see.
struct CacheLookup {
    state: Arc<ApiState>,
    owner: ObjectOwner,
    id: String,
}

impl CacheLookup {
    fn from_request(incoming: &ApiRequest) -> Self {
        let path = incoming.request.path();
        let id = path.split_once("/cachedContents/").map_or("", |(_, id)| id);
        let (state, owner) = (Arc::clone(&incoming.state), incoming.key.object_owner());
        Self { state, owner, id: percent_decode(id) }
    }
}

fn found_response(found: Result<Option<CachedContent>, StoreError>) -> Result<Response, ApiError> {
    let content = found.map_err(store_unavailable)?;
    let content = content.ok_or_else(native::cached_content_not_found)?;
    Ok(json_response(content_json(&content).to_string()))
}

/// Returns the time at which content expires. It is kept no longer than answers are.
fn expiry_time(
    config: &Config,
    expiry: Option<CacheExpiry>,
    now: Micros,
) -> Result<Micros, ApiError> {
    let most = Micros::from(config.answer_retention);
    let Some(expiry) = expiry else { return Ok(now + USUAL_LIFETIME.min(most)) };
    let expires = match expiry {
        CacheExpiry::After(time) => now + time,
        CacheExpiry::At(time) => time,
    };
    if now < expires && expires <= now + most {
        return Ok(expires);
    }
    let (field, seconds) = (expiry.field(), most.as_secs());
    let message = format!("`{field}` must be in the future and at most {seconds} seconds from now");
    Err(ApiError::invalid(field, message))
}

/// JSON of content. What was kept is not repeated.
fn content_json(content: &CachedContent) -> Value {
    let mut shown = json!({
        "name": native::cached_content_name(&content.id),
        "model": format!("models/{}", content.model),
        "createTime": rfc3339(content.created),
        "updateTime": rfc3339(content.updated),
        "expireTime": rfc3339(content.expires),
        "usageMetadata": { "totalTokenCount": content.tokens },
    });
    if let (Some(name), Some(fields)) = (&content.display_name, shown.as_object_mut()) {
        set_fields(fields, [("displayName", json!(name))]);
    }
    shown
}

/// Returns false for a body that names no cached content. A letter of the name may be escaped.
pub(super) fn may_name_cache(body: &[u8]) -> bool {
    CACHE_FIELD.find(body).is_some() || dialects::has_escaped_letter(body)
}

/// The cached content of a request.
#[derive(Default)]
pub(super) struct InsertedContent {
    /// Its place in the request.
    pub(super) prefix: CachedPrefix,
    /// Its id and its copy at a provider.
    copy: Option<(String, Arc<CacheUse>)>,
}

impl InsertedContent {
    /// Forgets the copy if the provider did not take its name.
    pub(super) async fn forget_lost_copy(self, state: &ApiState) {
        let Some((id, used)) = self.copy.filter(|(_, used)| used.is_gone()) else { return };
        if let Err(error) = state.store.drop_cache_copy(&id, used.name()).await {
            tracing::warn!("a lost copy of cached content is not forgotten: {error}");
        }
    }
}

/// Inserts the cached content that a request names. A name that is not the gateway's is left to the fence.
pub(super) async fn expand(state: &ApiState, call: &mut Call) -> Result<InsertedContent, ApiError> {
    let permit = call.work_permit().await;
    let id = permit.run(|| native::cached_content_id(&call.body)).await;
    let Some(id) = id.filter(|id| ReplyStamp::has_made(id)) else {
        return Ok(InsertedContent::default());
    };
    let (owner, now) = (call.key.object_owner(), state.clock().now());
    let not_found = || native::cached_content_not_found().with_param("cachedContent");
    let content = state.store.cached_content(&id, &owner, now).await;
    let content = content.map_err(store_unavailable)?.ok_or_else(not_found)?;
    let model = call.target.model.as_deref().unwrap_or_default();
    let id_of = |model: &str| call.config.routes.get(model).map(|route| route.model.id.as_str());
    // A model that does not exist is refused later.
    if id_of(model).is_some_and(|own| id_of(&content.model) != Some(own)) {
        let message = format!(
            "`cachedContent` was made for the model `{}` and cannot be used with another",
            content.model
        );
        return Err(ApiError::invalid("cachedContent", message));
    }
    // The size of the content is known before it is read, so that what does not fit is not read.
    call.reserve_content(usize::try_from(content.bytes).unwrap_or(usize::MAX))?;
    let cached = state.store.cached_content_body(&id, &owner, now).await;
    let cached = cached.map_err(store_unavailable)?.ok_or_else(not_found)?;
    let insert = |body: &Bytes| {
        let ExpandedRequest { body, prefix } = native::insert_cached_content(body, &cached)?;
        Ok((body, prefix))
    };
    let prefix = call.insert_content(cached.len(), insert).await?;
    let copy = state.store.cache_copy(&id, now).await.map_err(store_unavailable)?;
    let used = copy.and_then(provider_cache);
    let used = used.and_then(|cache| CacheUse::new(cache, prefix, content.tokens, now));
    call.cache.clone_from(&used);
    let copy = used.map(|used| (id, used));
    Ok(InsertedContent { prefix, copy })
}

fn store_unavailable(error: StoreError) -> ApiError {
    if let StoreError::Sealing(_) = &error {
        let message = "this cached content cannot be decrypted; ask the operator of the gateway";
        return ApiError::new(ErrorKind::Unavailable, message)
            .without_retry()
            .with_log_note(error.to_string());
    }
    let message = "cached contents cannot be read at the moment, retry shortly";
    ApiError::new(ErrorKind::Overloaded, message).with_log_note(error.to_string())
}
