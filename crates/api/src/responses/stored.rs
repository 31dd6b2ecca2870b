//! Stored responses: retrieve, delete, cancel, list input items.

use access::keys::ApiKey;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use canon::{ApiError, ErrorKind};
use dialects::PassThrough as _;
use dialects::responses::ResponsesDialect;
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use store::{ObjectOwner, StoredResponse};

use crate::json_object::{parse_object, set_fields, text_field};
use crate::query::{percent_decode, query_pairs};
use crate::request::ApiRequest;
use crate::state::ApiState;
use crate::stored_answers::BackgroundRun;
use relay::event_stream;
use relay::json_response;

/// Time after which a caller that waits for events is checked again.
const ACCESS_PERIOD: Duration = Duration::from_secs(1);

/// Stored response named in a request, and the owner whose responses the caller may see.
struct ResponseLookup {
    state: Arc<ApiState>,
    key: Arc<ApiKey>,
    owner: ObjectOwner,
    id: String,
    query: Vec<(String, String)>,
}

impl ResponseLookup {
    fn from_request(incoming: ApiRequest) -> Self {
        let ApiRequest { state, key, request, .. } = incoming;
        let key = Arc::clone(&key);
        let rest = request.path().strip_prefix("/v1/responses/").unwrap_or_default();
        Self {
            state,
            owner: key.object_owner(),
            key,
            id: percent_decode(rest.split('/').next().unwrap_or_default()),
            query: query_pairs(request.query()),
        }
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    fn run(&self) -> Option<Arc<BackgroundRun>> {
        self.state.stored_answers.find_run(&self.id, &self.owner)
    }

    async fn find(&self) -> Result<Arc<StoredResponse>, ApiError> {
        self.state.stored_answers.get(&self.id, &self.owner, self.state.clock().now()).await
    }
}

pub(crate) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    let lookup = ResponseLookup::from_request(incoming);
    let run = lookup.run();
    if lookup.value("stream") == Some("true") {
        let after = match lookup.value("starting_after") {
            None => None,
            Some(text) => Some(text.parse::<u64>().map_err(|_| {
                ApiError::invalid("starting_after", "`starting_after` must be a whole number")
            })?),
        };
        let Some(run) = run else {
            lookup.find().await?;
            return Err(ApiError::invalid(
                "stream",
                "only a recent background answer can be streamed",
            ));
        };
        let ResponseLookup { state, key, .. } = lookup;
        return Ok(RunFollower { state, key, run, after }.into_response());
    }
    let stored = lookup.find().await?;
    let mut reply = parse_object(&stored.reply);
    let waiting = matches!(text_field(&reply, "status"), "queued" | "in_progress");
    if !waiting || run.is_some() {
        return Ok(json_response(stored.reply.clone()));
    }
    // The process that ran it has ended, so nothing will complete it.
    let error = json!({ "code": "server_error", "message": "the gateway was restarted" });
    set_fields(&mut reply, [("status", json!("failed")), ("error", error)]);
    Ok(json_response(Value::from(reply).to_string()))
}

/// A caller that follows a background run.
pub(super) struct RunFollower {
    pub(super) state: Arc<ApiState>,
    pub(super) key: Arc<ApiKey>,
    pub(super) run: Arc<BackgroundRun>,
    /// Number of the last event that was sent.
    pub(super) after: Option<u64>,
}

impl RunFollower {
    /// Streams the events that follow, those still to come included.
    pub(super) fn into_response(self) -> Response {
        let events = futures_util::stream::unfold(Some(self), |follower| async move {
            let (bytes, follower) = follower?.next().await?;
            Some((Ok::<_, Infallible>(Frame::data(bytes)), follower))
        });
        event_stream(Body::new(StreamBody::new(Box::pin(events))), false)
    }

    /// Returns the next events. Without a follower they are the last ones.
    async fn next(mut self) -> Option<(Bytes, Option<Self>)> {
        loop {
            if let Err(error) = self.check_access() {
                return Some((ResponsesDialect.write_abort(&error, "").into(), None));
            }
            let events = tokio::time::timeout(ACCESS_PERIOD, self.run.events_after(self.after));
            let Ok(events) = events.await else { continue };
            let events = events?;
            self.after = events.last().map(|(number, _)| *number);
            let bytes: Vec<u8> =
                events.iter().flat_map(|(_, event)| event.iter().copied()).collect();
            return Some((bytes.into(), Some(self)));
        }
    }

    /// Refuses a key that was revoked, and a run that its account no longer shares.
    fn check_access(&self) -> Result<(), ApiError> {
        let key = self.state.engine.keys.still_live(&self.key)?;
        if self.run.belongs_to(&key.object_owner()) {
            return Ok(());
        }
        Err(ApiError::new(ErrorKind::NotFound, "this response is no longer shared with this key"))
    }
}

pub(crate) async fn delete(incoming: ApiRequest) -> Result<Response, ApiError> {
    let ResponseLookup { state, owner, id, .. } = ResponseLookup::from_request(incoming);
    state.stored_answers.delete(&id, &owner).await?;
    Ok(json_response(json!({ "id": id, "object": "response", "deleted": true }).to_string()))
}

pub(crate) async fn cancel(incoming: ApiRequest) -> Result<Response, ApiError> {
    let lookup = ResponseLookup::from_request(incoming);
    let stored = lookup.find().await?;
    let mut reply = parse_object(&stored.reply);
    if reply.get("background") != Some(&Value::Bool(true)) {
        return Err(ApiError::invalid("", "only a background response can be cancelled"));
    }
    let Some(run) = lookup.run() else { return Ok(json_response(stored.reply.clone())) };
    set_fields(&mut reply, [("status", json!("cancelled"))]);
    let reply = Value::from(reply).to_string();
    let put = || {
        lookup
            .state
            .stored_answers
            .put(StoredResponse { reply: reply.clone(), ..(*stored).clone() })
    };
    if run.decide_end(put) {
        run.cancel.cancel();
        return Ok(json_response(reply));
    }
    // The run ended before the cancellation.
    Ok(json_response(lookup.find().await?.reply.clone()))
}

/// Lists the input items of a response, newest first by default.
pub(crate) async fn input_items(incoming: ApiRequest) -> Result<Response, ApiError> {
    let lookup = ResponseLookup::from_request(incoming);
    let stored = lookup.find().await?;
    let id = &lookup.id;
    let mut items = match parse_object(&stored.request).shift_remove("input") {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    for (number, item) in items.iter_mut().enumerate() {
        let Some(item) = item.as_object_mut() else { continue };
        item.entry("type").or_insert_with(|| "message".into());
        item.entry("id").or_insert_with(|| format!("item_{number}_{id}").into());
    }
    let mut limit = 20;
    let mut after = None;
    let mut rising = false;
    for (name, value) in &lookup.query {
        match (name.as_str(), value.as_str()) {
            ("order", "asc") => rising = true,
            ("order", "desc") => {}
            ("order", _) => {
                return Err(ApiError::invalid("order", "`order` must be `asc` or `desc`"));
            }
            ("limit", text) => match text.parse::<usize>() {
                Ok(count @ 1..=100) => limit = count,
                _ => return Err(ApiError::invalid("limit", "`limit` must be between 1 and 100")),
            },
            ("after", _) => after = Some(value),
            _ => {}
        }
    }
    if !rising {
        items.reverse();
    }
    let from = after.map_or(0, |after| {
        items
            .iter()
            .position(|item| item.get("id").and_then(Value::as_str) == Some(after))
            .map_or(items.len(), |at| at + 1)
    });
    let rest = items.get(from..).unwrap_or_default();
    let shown: Vec<&Value> = rest.iter().take(limit).collect();
    let named = |item: Option<&&Value>| item.and_then(|item| item.get("id")).cloned();
    let body = json!({
        "object": "list",
        "data": shown,
        "first_id": named(shown.first()),
        "last_id": named(shown.last()),
        "has_more": rest.len() > limit,
    });
    Ok(json_response(body.to_string()))
}
