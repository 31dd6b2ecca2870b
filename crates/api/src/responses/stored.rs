//! Kept answers: retrieve, delete, cancel, list their input.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use canon::ApiError;
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use store::StoredResponse;

use crate::json_object::{parse_object, set_fields, text_field};
use crate::query::{percent_decode, query_pairs};
use crate::request::ApiRequest;
use crate::state::ApiState;
use crate::stored_answers::BackgroundRun;
use relay::event_stream;
use relay::json_response;

/// Which answer is asked for, by whom.
struct ResponseLookup {
    state: Arc<ApiState>,
    account: String,
    id: String,
    query: Vec<(String, String)>,
}

impl ResponseLookup {
    fn from_request(asked: ApiRequest) -> Self {
        let ApiRequest { state, key, id: _, permit: _, request } = asked;
        let rest = request.uri().path().strip_prefix("/v1/responses/").unwrap_or_default();
        Self {
            state,
            account: key.record.account_id.clone(),
            id: percent_decode(rest.split('/').next().unwrap_or_default()),
            query: query_pairs(request.uri().query().unwrap_or_default()),
        }
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    fn run(&self) -> Option<Arc<BackgroundRun>> {
        self.state.stored_answers.find_run(&self.id, &self.account)
    }

    async fn find(&self) -> Result<Arc<StoredResponse>, ApiError> {
        self.state.stored_answers.get(&self.id, &self.account, self.state.clock().now()).await
    }
}

pub(crate) async fn get(asked: ApiRequest) -> Result<Response, ApiError> {
    let wanted = ResponseLookup::from_request(asked);
    let run = wanted.run();
    if wanted.value("stream") == Some("true") {
        let after = match wanted.value("starting_after") {
            None => None,
            Some(text) => Some(text.parse::<u64>().map_err(|_| {
                ApiError::invalid("starting_after", "`starting_after` must be a whole number")
            })?),
        };
        let Some(run) = run else {
            wanted.find().await?;
            return Err(ApiError::invalid(
                "stream",
                "only a recent background answer can be streamed",
            ));
        };
        return Ok(replay(run, after));
    }
    let kept = wanted.find().await?;
    let mut reply = parse_object(&kept.reply);
    let waiting = matches!(text_field(&reply, "status"), "queued" | "in_progress");
    if !waiting || run.is_some() {
        return Ok(json_response(kept.reply.clone()));
    }
    // It ran in a process that is gone, and nobody will finish it.
    let error = json!({ "code": "server_error", "message": "the gateway was restarted" });
    set_fields(&mut reply, [("status", json!("failed")), ("error", error)]);
    Ok(json_response(Value::from(reply).to_string()))
}

/// A background run's events behind that number, and those still to come.
pub(super) fn replay(run: Arc<BackgroundRun>, after: Option<u64>) -> Response {
    let events = futures_util::stream::unfold((run, after), |(run, after)| async move {
        let events = run.events_after(after).await?;
        let last = events.last().map(|(number, _)| *number);
        let bytes: Vec<u8> = events.iter().flat_map(|(_, event)| event.iter().copied()).collect();
        let frame = Frame::data(Bytes::from(bytes));
        Some((Ok::<_, Infallible>(frame), (run, last)))
    });
    event_stream(Body::new(StreamBody::new(Box::pin(events))), false)
}

pub(crate) async fn delete(asked: ApiRequest) -> Result<Response, ApiError> {
    let ResponseLookup { state, account, id, query: _ } = ResponseLookup::from_request(asked);
    state.stored_answers.delete(&id, &account).await?;
    Ok(json_response(json!({ "id": id, "object": "response", "deleted": true }).to_string()))
}

pub(crate) async fn cancel(asked: ApiRequest) -> Result<Response, ApiError> {
    let wanted = ResponseLookup::from_request(asked);
    let kept = wanted.find().await?;
    let mut reply = parse_object(&kept.reply);
    if reply.get("background") != Some(&Value::Bool(true)) {
        return Err(ApiError::invalid("", "only a background response can be cancelled"));
    }
    let Some(run) = wanted.run() else { return Ok(json_response(kept.reply.clone())) };
    set_fields(&mut reply, [("status", json!("cancelled"))]);
    let reply = Value::from(reply).to_string();
    let put = || {
        wanted.state.stored_answers.put(StoredResponse { reply: reply.clone(), ..(*kept).clone() })
    };
    if run.decide_end(put) {
        run.cancel.cancel();
        return Ok(json_response(reply));
    }
    // It ended in another way, if only a moment ago.
    Ok(json_response(wanted.find().await?.reply.clone()))
}

/// The items an answer was made from, newest first unless asked otherwise.
pub(crate) async fn input_items(asked: ApiRequest) -> Result<Response, ApiError> {
    let wanted = ResponseLookup::from_request(asked);
    let kept = wanted.find().await?;
    let id = &wanted.id;
    let mut items = match parse_object(&kept.request).shift_remove("input") {
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
    for (name, value) in &wanted.query {
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
