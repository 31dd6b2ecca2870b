//! `/scim/v2`: people and groups, managed by an identity provider (RFC 7643 and 7644).
//!
//! A provider signs in with a token of its own, never with a key. All answers, errors too, are in the form of SCIM.

mod filter;
mod group_document;
mod patch;
mod schemas;
#[cfg(test)]
mod tests;
mod user_document;
mod view;

use access::limits::NetworkUse;
use admin::{RequestOrigin, ScimClient, ScimErrorKind, ScimProblem};
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::{IntoResponse as _, Response};
use canon::{ApiError, ErrorKind, RESERVED_NAME, has_reserved_name};
use http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_MATCH,
    IF_NONE_MATCH, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Method, Request, StatusCode};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use store::{ScimGroup, ScimUser};
use transport::ServerBody;

use crate::query::{percent_decode, query_pairs};
use crate::state::ApiState;
use filter::ScimFilter;
use schemas::MAX_PAGE;
use view::AttributeChoice;

const PATH_PREFIX: &str = "/scim/v2/";
const SCIM_TYPE: &str = "application/scim+json";
const ERROR_SCHEMA: &str = "urn:ietf:params:scim:api:messages:2.0:Error";
/// Largest body. The largest group that is allowed fits.
const MAX_BODY_BYTES: usize = 2 << 20;
/// Members on one page of groups. A page has at least one group.
const MAX_PAGE_MEMBERS: i64 = 20_000;

/// `/scim/v2/…`, with every method.
pub(super) async fn serve(
    state: Arc<ApiState>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let answered = match ScimRequest::read(&state, request).await {
        Ok((request, origin)) => {
            // A change must not stop between its commit and the update of this node's caches.
            let tasks = state.engine.tasks.clone();
            let done = tasks.spawn(origin.scope(async move { request.answer().await })).await;
            done.map_err(|error| ApiError::internal(error.to_string()))?
        }
        Err(refused) => Err(refused),
    };
    Ok(answered.unwrap_or_else(|problem| error_response(&problem)))
}

/// Returns true for this service and everything below it.
pub(crate) fn is_address(path: &str) -> bool {
    path.starts_with(PATH_PREFIX) || PATH_PREFIX.strip_suffix('/') == Some(path)
}

/// Answer to a method that no resource has.
pub(crate) fn wrong_method(method: &Method, allowed: HeaderValue) -> Response {
    let why = format!("{method} is not allowed here");
    let problem = ScimProblem::with_status(StatusCode::METHOD_NOT_ALLOWED, why);
    let mut response = error_response(&problem);
    response.headers_mut().insert(ALLOW, allowed);
    response
}

/// Answer at an address of no resource.
pub(crate) fn nothing_here() -> Response {
    error_response(&no_resource())
}

fn no_resource() -> ScimProblem {
    let why = "there is nothing here but Users, Groups, Schemas, ResourceTypes and ServiceProviderConfig below \
               /scim/v2/";
    ScimProblem::with_status(StatusCode::NOT_FOUND, why)
}

/// Answer to a network that asks too often.
pub(crate) fn too_many_requests(error: &ApiError) -> Response {
    let why = "too many requests came from this network; retry later";
    let mut response =
        error_response(&ScimProblem::with_status(StatusCode::TOO_MANY_REQUESTS, why));
    let wait = error.retry_after().map_or(5, |wait| wait.as_secs().max(1));
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait));
    response
}

/// Answer with an error (RFC 7644, section 3.12).
fn error_response(problem: &ScimProblem) -> Response {
    let ScimProblem { status, kind, detail } = problem;
    let mut body = json!({
        "schemas": [ERROR_SCHEMA],
        "status": status.as_u16().to_string(),
        "detail": detail,
    });
    if let (Some(kind), Some(body)) = (kind, body.as_object_mut()) {
        body.insert("scimType".to_owned(), kind.word().into());
    }
    let mut response = json_response(*status, &body);
    match *status {
        StatusCode::UNAUTHORIZED => {
            let challenge = HeaderValue::from_static("Bearer realm=\"scim\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        StatusCode::TOO_MANY_REQUESTS => {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("3"));
        }
        _ => {}
    }
    response
}

fn json_response(status: StatusCode, body: &Value) -> Response {
    let mut response = (status, body.to_string()).into_response();
    for (name, value) in [
        (CONTENT_TYPE, SCIM_TYPE),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A request of a provider that has signed in.
struct ScimRequest {
    state: Arc<ApiState>,
    client: ScimClient,
    method: Method,
    /// Path below `/scim/v2/`, decoded.
    path: Vec<String>,
    query: Vec<(String, String)>,
    headers: HeaderMap,
    body: Option<Value>,
    /// Address of this service.
    base: String,
}

impl ScimRequest {
    async fn read(
        state: &Arc<ApiState>,
        request: Request<Body>,
    ) -> Result<(Self, RequestOrigin), ScimProblem> {
        let (parts, body) = request.into_parts();
        let client = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
        let provider = sign_in(state, &parts.headers, client).await?;
        let path = parts.uri.path().strip_prefix(PATH_PREFIX).unwrap_or_default();
        let method = if parts.method == Method::HEAD { Method::GET } else { parts.method };
        // Other resources take no body, whatever the method is.
        let takes_body = ["Users", "Groups"].contains(&path.split('/').next().unwrap_or_default());
        let has_body = takes_body && [Method::POST, Method::PUT, Method::PATCH].contains(&method);
        let (mut provider, mut parsed) = (provider, None);
        if has_body {
            parsed = Some(read_body(&parts.headers, body).await?);
            // A body may be slow, and the token revoked meanwhile.
            provider = sign_in(state, &parts.headers, client).await?;
        }
        let origin = RequestOrigin::new(client.map(|client| client.ip()), &parts.headers);
        let request = Self {
            state: Arc::clone(state),
            client: provider,
            method,
            path: path.split('/').map(percent_decode).collect(),
            query: query_pairs(parts.uri.query().unwrap_or_default()),
            headers: parts.headers,
            body: parsed,
            base: format!("{}/scim/v2", state.config().public_url),
        };
        Ok((request, origin))
    }

    async fn answer(self) -> Result<Response, ScimProblem> {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        match (self.method.as_str(), path.as_slice()) {
            ("GET", ["ServiceProviderConfig"]) => {
                Ok(json_response(StatusCode::OK, &schemas::service_provider_config(&self.base)))
            }
            ("GET", ["ResourceTypes", rest @ ..]) => {
                self.described(schemas::resource_types(&self.base), rest)
            }
            ("GET", ["Schemas", rest @ ..]) => self.described(schemas::schemas(&self.base), rest),
            ("GET", ["Users"]) => self.list_users(&self.list_query()?).await,
            ("POST", ["Users", ".search"]) => self.list_users(&self.search_query()?).await,
            ("POST", ["Users"]) => self.create_user().await,
            ("GET", ["Users", id]) => self.get_user(id).await,
            ("PUT" | "PATCH", ["Users", id]) => self.change_user(id).await,
            ("DELETE", ["Users", id]) => self.delete_user(id).await,
            ("GET", ["Groups"]) => self.list_groups(&self.list_query()?).await,
            ("POST", ["Groups", ".search"]) => self.list_groups(&self.search_query()?).await,
            ("POST", ["Groups"]) => self.create_group().await,
            ("GET", ["Groups", id]) => self.get_group(id).await,
            ("PUT" | "PATCH", ["Groups", id]) => self.change_group(id).await,
            ("DELETE", ["Groups", id]) => self.delete_group(id).await,
            (_, ["Bulk" | "Me", ..]) => {
                let why = "this is not supported; see /scim/v2/ServiceProviderConfig";
                Err(ScimProblem::with_status(StatusCode::NOT_IMPLEMENTED, why))
            }
            // RFC 7644, section 3.4.3: one search over people and groups.
            ("POST", [".search"]) => {
                let why = "people and groups are searched one at a time: ask /scim/v2/Users \
                           or /scim/v2/Groups";
                Err(ScimProblem::with_status(StatusCode::NOT_IMPLEMENTED, why))
            }
            (
                _,
                ["ServiceProviderConfig" | "ResourceTypes" | "Schemas" | "Users" | "Groups"]
                | ["Users" | "Groups", _],
            ) => {
                let why = format!("{} is not allowed here", self.method);
                Err(ScimProblem::with_status(StatusCode::METHOD_NOT_ALLOWED, why))
            }
            _ => Err(no_resource()),
        }
    }

    fn param(&self, name: &str) -> &str {
        let found = self.query.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value.as_str())
    }

    fn choice(&self) -> AttributeChoice {
        AttributeChoice::new(self.param("attributes"), self.param("excludedAttributes"))
    }

    fn body(&self) -> &Value {
        self.body.as_ref().unwrap_or(&Value::Null)
    }

    /// Answers with one description by its id, or with all.
    fn described(&self, all: Vec<Value>, rest: &[&str]) -> Result<Response, ScimProblem> {
        if !self.param("filter").is_empty() {
            let why = "descriptions cannot be filtered";
            return Err(ScimProblem::with_status(StatusCode::FORBIDDEN, why));
        }
        match rest {
            [] => {
                let total = i64::try_from(all.len()).unwrap_or(i64::MAX);
                Ok(json_response(StatusCode::OK, &view::list_view(total, 1, all)))
            }
            [id] => {
                let fits = |one: &&Value| {
                    let own = one.get("id").and_then(Value::as_str);
                    own.is_some_and(|own| own.eq_ignore_ascii_case(id))
                };
                match all.iter().find(fits) {
                    Some(found) => Ok(json_response(StatusCode::OK, found)),
                    None => Err(ScimProblem::with_status(
                        StatusCode::NOT_FOUND,
                        "there is no such description",
                    )),
                }
            }
            _ => Err(ScimProblem::with_status(StatusCode::NOT_FOUND, "there is nothing here")),
        }
    }

    fn list_query(&self) -> Result<ListQuery, ScimProblem> {
        ListQuery::new(|name| match self.param(name) {
            "" => None,
            text => Some(text.to_owned()),
        })
    }

    /// Reads the conditions of a list from a body (RFC 7644, section 3.4.3).
    fn search_query(&self) -> Result<ListQuery, ScimProblem> {
        let wrong = || ScimProblem::new(ScimErrorKind::InvalidSyntax, "the body must be an object");
        let body = self.body().as_object().ok_or_else(wrong)?;
        ListQuery::new(|name| match patch::member(body, name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Array(list) => {
                Some(list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","))
            }
            Value::Null | Value::Bool(_) | Value::Object(_) => None,
        })
    }

    /// Refuses a change of a resource that was read at another version.
    fn require_version(&self, version: &str) -> Result<(), ScimProblem> {
        let Some(read) = self.headers.get(IF_MATCH) else { return Ok(()) };
        if tag_fits(read, version) {
            return Ok(());
        }
        let why = "it was changed since you read it; read it again and repeat your change";
        Err(ScimProblem::with_status(StatusCode::PRECONDITION_FAILED, why))
    }

    async fn list_users(&self, query: &ListQuery) -> Result<Response, ScimProblem> {
        let accounts = &self.state.admin.accounts;
        let conditions = match &query.filter {
            Some(filter) => user_document::user_conditions(filter)?,
            None => Vec::new(),
        };
        let (skip, limit) = (query.start - 1, query.count);
        let (users, total) =
            accounts.scim_user_page(&self.client, &conditions, skip, limit).await?;
        let mut resources = Vec::with_capacity(users.len());
        for user in &users {
            resources.push(query.choice.apply(self.user_view(user, &query.choice).await?));
        }
        Ok(json_response(StatusCode::OK, &view::list_view(total, query.start, resources)))
    }

    async fn user_view(
        &self,
        user: &ScimUser,
        choice: &AttributeChoice,
    ) -> Result<Value, ScimProblem> {
        // The version depends on the groups.
        let groups = if choice.wants("groups") || choice.wants("meta") {
            self.state.store.scim_groups_of(&user.account_id).await?
        } else {
            Vec::new()
        };
        Ok(view::user_view(&self.base, user, &groups))
    }

    async fn user_response(
        &self,
        status: StatusCode,
        user: &ScimUser,
    ) -> Result<Response, ScimProblem> {
        let groups = self.state.store.scim_groups_of(&user.account_id).await?;
        let (choice, version) = (self.choice(), view::user_version(user, &groups));
        if self.is_unchanged(&version) {
            return Ok(unchanged_response(&version));
        }
        let body = choice.apply(view::user_view(&self.base, user, &groups));
        let location = format!("{}/Users/{}", self.base, user.account_id);
        Ok(resource_response(status, &body, &location, &version))
    }

    /// Returns true for a read of a resource that the provider has already.
    fn is_unchanged(&self, version: &str) -> bool {
        let known = self.headers.get(IF_NONE_MATCH);
        self.method == Method::GET && known.is_some_and(|known| tag_fits(known, version))
    }

    async fn create_user(&self) -> Result<Response, ScimProblem> {
        let draft = user_document::read_user(self.body(), true)?;
        let user = self.state.admin.accounts.create_scim_user(&self.client, &draft).await?;
        self.user_response(StatusCode::CREATED, &user).await
    }

    async fn get_user(&self, id: &str) -> Result<Response, ScimProblem> {
        let user = self.state.admin.accounts.scim_user(&self.client, id).await?;
        self.user_response(StatusCode::OK, &user).await
    }

    async fn change_user(&self, id: &str) -> Result<Response, ScimProblem> {
        let accounts = &self.state.admin.accounts;
        let is_read = |user: &ScimUser, groups: &[ScimGroup]| {
            self.require_version(&view::user_version(user, groups))
        };
        let user = if self.method == Method::PUT {
            let whole = user_document::read_user(self.body(), true)?;
            let sets_active = user_document::sets_attribute(self.body(), "active");
            let edit = |draft: &mut admin::ScimUserDraft| -> Result<(), ScimProblem> {
                let active = if sets_active { whole.active } else { draft.active };
                *draft = admin::ScimUserDraft { active, ..whole };
                Ok(())
            };
            accounts.change_scim_user(&self.client, id, is_read, edit).await?
        } else {
            let steps = patch::parse_patch(self.body())?;
            let edit =
                |draft: &mut admin::ScimUserDraft| user_document::patch_user(draft, id, &steps);
            accounts.change_scim_user(&self.client, id, is_read, edit).await?
        };
        self.user_response(StatusCode::OK, &user).await
    }

    async fn delete_user(&self, id: &str) -> Result<Response, ScimProblem> {
        let is_read = |user: &ScimUser, groups: &[ScimGroup]| {
            self.require_version(&view::user_version(user, groups))
        };
        self.state.admin.accounts.delete_scim_user(&self.client, id, is_read).await?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    async fn list_groups(&self, query: &ListQuery) -> Result<Response, ScimProblem> {
        let accounts = &self.state.admin.accounts;
        let conditions = match &query.filter {
            Some(filter) => group_document::group_conditions(filter)?,
            None => Vec::new(),
        };
        let (skip, limit) = (query.start - 1, query.count);
        let (groups, total) =
            accounts.scim_group_page(&self.client, &conditions, skip, limit).await?;
        let wants_members = query.choice.wants("members");
        let (mut resources, mut shown) = (Vec::with_capacity(groups.len()), 0);
        for group in &groups {
            let mut members = Vec::new();
            if wants_members {
                shown += self.state.store.scim_member_count(&group.id).await?;
                // A page may be shorter than asked for (RFC 7644, section 3.4.2.4).
                if shown > MAX_PAGE_MEMBERS && !resources.is_empty() {
                    break;
                }
                members = self.state.store.scim_members(&group.id).await?;
            }
            resources.push(query.choice.apply(view::group_view(&self.base, group, &members)));
        }
        Ok(json_response(StatusCode::OK, &view::list_view(total, query.start, resources)))
    }

    async fn group_response(
        &self,
        status: StatusCode,
        group: &ScimGroup,
    ) -> Result<Response, ScimProblem> {
        let (choice, version) = (self.choice(), view::group_version(group));
        if self.is_unchanged(&version) {
            return Ok(unchanged_response(&version));
        }
        let members = if choice.wants("members") {
            self.state.store.scim_members(&group.id).await?
        } else {
            Vec::new()
        };
        let body = choice.apply(view::group_view(&self.base, group, &members));
        let location = format!("{}/Groups/{}", self.base, group.id);
        Ok(resource_response(status, &body, &location, &version))
    }

    async fn create_group(&self) -> Result<Response, ScimProblem> {
        let draft = group_document::read_group(self.body())?;
        let group = self.state.admin.accounts.create_scim_group(&self.client, &draft).await?;
        self.group_response(StatusCode::CREATED, &group).await
    }

    async fn get_group(&self, id: &str) -> Result<Response, ScimProblem> {
        let group = self.state.admin.accounts.scim_group(&self.client, id).await?;
        self.group_response(StatusCode::OK, &group).await
    }

    async fn change_group(&self, id: &str) -> Result<Response, ScimProblem> {
        let accounts = &self.state.admin.accounts;
        let is_read = |group: &ScimGroup| self.require_version(&view::group_version(group));
        if self.method == Method::PUT {
            let whole = group_document::read_group(self.body())?;
            let edit = |draft: &mut admin::ScimGroupDraft| {
                let named = whole.members.clone();
                *draft = whole;
                Ok(named)
            };
            let group = accounts.change_scim_group(&self.client, id, is_read, edit).await?;
            return self.group_response(StatusCode::OK, &group).await;
        }
        let steps = patch::parse_patch(self.body())?;
        let edit =
            |draft: &mut admin::ScimGroupDraft| group_document::patch_group(draft, id, &steps);
        let group = accounts.change_scim_group(&self.client, id, is_read, edit).await?;
        if !self.choice().is_all() {
            return self.group_response(StatusCode::OK, &group).await;
        }
        // The provider knows what it changed, and the list of members may be long.
        let mut response = StatusCode::NO_CONTENT.into_response();
        set_header(&mut response, ETAG, &view::group_version(&group));
        Ok(response)
    }

    async fn delete_group(&self, id: &str) -> Result<Response, ScimProblem> {
        let is_read = |group: &ScimGroup| self.require_version(&view::group_version(group));
        self.state.admin.accounts.delete_scim_group(&self.client, id, is_read).await?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }
}

/// Conditions and page of a list (RFC 7644, section 3.4.2).
struct ListQuery {
    filter: Option<ScimFilter>,
    /// Number of the first resource, from one.
    start: i64,
    count: i64,
    choice: AttributeChoice,
}

impl ListQuery {
    fn new(get: impl Fn(&str) -> Option<String>) -> Result<Self, ScimProblem> {
        if get("sortBy").is_some() {
            let why = "lists cannot be sorted; see /scim/v2/ServiceProviderConfig";
            return Err(ScimProblem::invalid_value("sortBy", why));
        }
        let number = |name: &str, default: i64| match get(name) {
            None => Ok(default),
            Some(text) => {
                let wrong = |_| ScimProblem::invalid_value(name, "must be a whole number");
                text.trim().parse::<i64>().map_err(wrong)
            }
        };
        let filter = get("filter").as_deref().map(ScimFilter::parse).transpose()?;
        Ok(Self {
            filter,
            // Smaller values count as one and as zero.
            start: number("startIndex", 1)?.max(1),
            count: number("count", MAX_PAGE)?.clamp(0, MAX_PAGE),
            choice: AttributeChoice::new(
                &get("attributes").unwrap_or_default(),
                &get("excludedAttributes").unwrap_or_default(),
            ),
        })
    }
}

/// Finds the provider that sends a request. Wrong tokens are counted by network.
async fn sign_in(
    state: &ApiState,
    headers: &HeaderMap,
    client: Option<SocketAddr>,
) -> Result<ScimClient, ScimProblem> {
    let config = state.config();
    let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    if let Some(token) = token {
        let found = state.admin.accounts.scim_client(token, &config.identity_providers).await?;
        if let Some(found) = found {
            return Ok(found);
        }
    }
    if let Some(client) = client {
        let counted = state.limiter.admit_network(client, NetworkUse::WrongKey, &config.gate);
        if counted.is_err() {
            let why = "too many requests with a wrong token came from this network";
            return Err(ScimProblem::with_status(StatusCode::TOO_MANY_REQUESTS, why));
        }
    }
    let why = "send a valid SCIM token as `Authorization: Bearer`; `portunus scim token create` makes one";
    Err(ScimProblem::with_status(StatusCode::UNAUTHORIZED, why))
}

async fn read_body(headers: &HeaderMap, body: Body) -> Result<Value, ScimProblem> {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let is_json = [SCIM_TYPE, "application/json"].iter().any(|one| kind.eq_ignore_ascii_case(one));
    if !is_json && !kind.is_empty() {
        let why = format!("send the body as {SCIM_TYPE}");
        return Err(ScimProblem::with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    let bytes = transport::read_whole(ServerBody::Stream(body), MAX_BODY_BYTES).await;
    let bytes = bytes.map_err(|error| {
        let is_large = error.kind() == ErrorKind::BodyTooLarge;
        let status = if is_large { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST };
        ScimProblem::with_status(status, error.message())
    })?;
    let wrong = |why: String| ScimProblem::new(ScimErrorKind::InvalidSyntax, why);
    if has_reserved_name(&bytes) {
        return Err(wrong(format!("the body has the reserved name `{RESERVED_NAME}`")));
    }
    serde_json::from_slice(&bytes).map_err(|error| wrong(format!("the body is no JSON: {error}")))
}

/// Returns true if a list of entity tags has this one, compared weakly (RFC 9110, section 8.8.3.2).
fn tag_fits(list: &HeaderValue, version: &str) -> bool {
    let plain = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let list = list.to_str().unwrap_or_default();
    list.split(',').any(|one| one.trim() == "*" || plain(one) == plain(version))
}

fn unchanged_response(version: &str) -> Response {
    let mut response = StatusCode::NOT_MODIFIED.into_response();
    set_header(&mut response, ETAG, version);
    response
}

fn resource_response(status: StatusCode, body: &Value, location: &str, version: &str) -> Response {
    let mut response = json_response(status, body);
    set_header(&mut response, ETAG, version);
    set_header(&mut response, LOCATION, location);
    response
}

fn set_header(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
