//! The upstream as a plain function: a request in, a response out, no sockets.
//!
//! The path alone determines the format of a request. From there all formats take the same way:
//! rules, canonical request, model, and back. A format that is added to `dialects` is served here
//! without a change.

mod body;
mod canned;
mod embed;
mod images;
mod meter;
mod path;
mod stamp;
mod temp_store;

pub use body::{DemoBody, StreamPace};
pub use meter::UsageMeter;
pub(crate) use meter::{CallInfo, MeterTicket};
pub(crate) use path::model_of;
pub(crate) use stamp::now;

use bytes::Bytes;
use canon::{ApiError, ErrorKind, WireFormat};
use dialects::messages::{BETA_HEADER, enables_interleaved_thinking};
use dialects::{
    BodyOutline, Dialect, RefusedRequest, RequestTarget, stored_objects, with_caller_paths,
};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::Arc;

use crate::faults;
use crate::model::{self, Persona};
use crate::pieces;
use path::{Operation, PathTarget};

/// Listed models. Every other id is answered by the same model.
pub const MODELS: [&str; 9] = [
    "demo-chat",
    "demo-responses",
    "demo-messages",
    "demo-native",
    "demo-echo",
    "demo-embed",
    "demo-image",
    "demo-image-native",
    "demo-image-url",
];

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");

/// Answers one request at full speed, without counting it.
pub async fn serve(request: Request<Bytes>) -> Response<DemoBody> {
    DemoUpstream::default().serve(request).await
}

/// An upstream of demo models. Clones share their counts.
#[derive(Clone, Debug, Default)]
pub struct DemoUpstream {
    pace: StreamPace,
    canned: bool,
    meter: Arc<UsageMeter>,
}

impl DemoUpstream {
    /// Creates an upstream with that stream speed.
    pub fn new(pace: StreamPace) -> Self {
        Self { pace, canned: false, meter: Arc::default() }
    }

    /// Uses prepared answers, to measure the proxy in front.
    #[must_use]
    pub fn canned(self, canned: bool) -> Self {
        Self { canned, ..self }
    }

    /// Returns the counts so far.
    pub fn meter(&self) -> &UsageMeter {
        &self.meter
    }

    /// Answers one request. Credentials are ignored.
    pub async fn serve(&self, request: Request<Bytes>) -> Response<DemoBody> {
        self.serve_as(request, CallInfo::default())
    }

    /// Answers one request, with a description of the call for the meter.
    pub(crate) fn serve_as(&self, request: Request<Bytes>, about: CallInfo) -> Response<DemoBody> {
        let (head, body) = request.into_parts();
        let mut place = path::find(head.uri.path(), head.uri.query());
        if let Operation::Answer(target) | Operation::Count(target) = &mut place.operation {
            let betas = head.headers.get_all(BETA_HEADER);
            target.interleaved_thinking =
                betas.iter().any(|b| b.to_str().is_ok_and(enables_interleaved_thinking));
        }
        let allowed = match place.operation {
            Operation::Models
            | Operation::Model(_)
            | Operation::Meter
            | Operation::Faults
            | Operation::Task(_)
            | Operation::File(_) => Method::GET,
            Operation::Answer(_)
            | Operation::Count(_)
            | Operation::Embeddings(..)
            | Operation::Pictures(_)
            | Operation::Nothing => Method::POST,
        };
        if head.method != allowed && !matches!(place.operation, Operation::Nothing) {
            let say = format!("only {allowed} is served at this path");
            return self.refuse(place.origin, &ApiError::new(ErrorKind::MethodNotAllowed, say));
        }
        let canned =
            self.canned || head.headers.get("x-demo-canned").is_some_and(|value| value == "1");
        let outcome = match &place.operation {
            Operation::Answer(target) => match spoken(&place) {
                Ok(dialect) if canned && !target.json_array => {
                    Ok(self.canned_answer(dialect, target, &body))
                }
                Ok(dialect) => self.answer(dialect, target, &body, about),
                Err(fault) => Err(fault),
            },
            Operation::Count(target) => {
                spoken(&place).and_then(|dialect| count(dialect, target, &body))
            }
            Operation::Embeddings(form, target) => embed::serve(*form, target, &body).map(
                |embed::EmbeddingAnswer { body, model, usage }| {
                    let ticket = self.meter.begin(&model, &usage, false, about);
                    told(StatusCode::OK, DemoBody::answer(body, 0, ticket))
                },
            ),
            Operation::Pictures(edit) => self.pictures(*edit, &head, &body, about),
            Operation::Task(id) => images::poll(id).map(|body| whole(StatusCode::OK, body)),
            Operation::File(name) => {
                let (status, kind, body) = images::file(name);
                let mut response = whole(status, body);
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
                Ok(response)
            }
            Operation::Models => Ok(whole(StatusCode::OK, models().to_string())),
            Operation::Model(id) => Ok(whole(StatusCode::OK, listed(id).to_string())),
            Operation::Meter => Ok(whole(StatusCode::OK, self.meter.to_json().to_string())),
            Operation::Faults => Ok(whole(StatusCode::OK, faults::listed().to_string())),
            Operation::Nothing => {
                Err(ApiError::new(ErrorKind::UnknownPath, "there is nothing at this path"))
            }
        };
        outcome.unwrap_or_else(|fault| self.refuse(place.origin, &fault))
    }

    /// Answers a request of any chat format.
    fn answer(
        &self,
        dialect: &'static dyn Dialect,
        target: &RequestTarget,
        body: &Bytes,
        about: CallInfo,
    ) -> Result<Response<DemoBody>, ApiError> {
        let peek = dialect.read_facts(target, body)?;
        // A demo model stores nothing.
        let objects = stored_objects(dialect.traits().objects, body, &BodyOutline::default())?;
        if let Some(object) = objects.iter().find(|object| !object.is_contained) {
            return Err(object.not_found());
        }
        let chat = dialect.read_request(target, body)?;
        let origin = dialect.origin();
        let reply =
            model::answer(&chat, Persona::of_model(&chat.model), origin).map_err(|fault| {
                with_caller_paths(fault, RefusedRequest::Parsed(&chat), origin, body)
            })?;
        let usage = reply.usage.unwrap_or_default();
        let ticket = self.meter.begin(&chat.model, &usage, peek.stream, about);
        let stamp = stamp::fresh();
        if !peek.stream {
            let (body, _) = dialect.write_reply(reply, &chat, &stamp);
            return Ok(told(StatusCode::OK, DemoBody::answer(body, usage.output, ticket)));
        }
        let writer = dialect.stream_writer(&chat, &stamp);
        let events = pieces::events(reply);
        let body = DemoBody::stream(events, writer, !target.json_array, self.pace, ticket);
        Ok(streamed(body, target.json_array))
    }

    /// Answers an image request.
    fn pictures(
        &self,
        edit: bool,
        head: &http::request::Parts,
        body: &Bytes,
        about: CallInfo,
    ) -> Result<Response<DemoBody>, ApiError> {
        let named = head.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
        let host = head.uri.authority().map(http::uri::Authority::as_str).or(named);
        let images::DrawnAnswer { model, usage, reply } =
            images::serve(edit, &head.headers, host.unwrap_or_default(), body)?;
        let stream = matches!(reply, images::ImageAnswerBody::Stream(_));
        let ticket = self.meter.begin(&model, &usage, stream, about);
        Ok(match reply {
            images::ImageAnswerBody::Whole(body) => {
                told(StatusCode::OK, DemoBody::answer(body, usage.output, ticket))
            }
            images::ImageAnswerBody::Stream(pieces) => {
                streamed(DemoBody::pieces(pieces, usage.output, self.pace, ticket), false)
            }
        })
    }

    fn canned_answer(
        &self,
        dialect: &dyn Dialect,
        target: &RequestTarget,
        body: &Bytes,
    ) -> Response<DemoBody> {
        let canned = canned::of(dialect);
        let stream = target.stream || canned::asks_for_stream(body);
        self.meter.served("(canned)", &canned.usage, stream);
        if stream {
            streamed(DemoBody::prepared(canned.burst.clone(), self.pace), false)
        } else {
            whole(StatusCode::OK, canned.whole.clone())
        }
    }

    /// Refuses a request whose body could not be read, in the format of its path.
    pub(crate) fn refuse_at(&self, uri: &Uri, fault: &ApiError) -> Response<DemoBody> {
        self.refuse(path::find(uri.path(), uri.query()).origin, fault)
    }

    fn refuse(&self, origin: WireFormat, fault: &ApiError) -> Response<DemoBody> {
        self.meter.refused();
        // An unsupported format is refused in the chat format.
        let dialect = dialects::get(origin).unwrap_or(dialects::DEFAULT);
        let (status, body) = dialect.write_error(fault, &stamp::fresh().id);
        whole(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST), body)
    }
}

fn spoken(place: &PathTarget) -> Result<&'static dyn Dialect, ApiError> {
    dialects::get(place.origin)
        .ok_or_else(|| ApiError::new(ErrorKind::UnknownPath, "this format is not spoken here"))
}

/// Returns the number of input tokens in the format of the request. The rules are not applied: they
/// require fields that a count does not need.
fn count(
    dialect: &dyn Dialect,
    target: &RequestTarget,
    body: &[u8],
) -> Result<Response<DemoBody>, ApiError> {
    #[derive(serde::Deserialize)]
    struct CountBody<'a> {
        /// A whole request, <https://ai.google.dev/api/tokens>.
        #[serde(borrow, rename = "generateContentRequest")]
        request: &'a RawValue,
    }
    let body = dialects::json::read_bytes::<CountBody<'_>>(body)
        .map_or(body, |whole| whole.request.get().as_bytes());
    let chat = dialect.read_request(target, body)?;
    let tokens = model::count_input(&chat);
    let body = match dialect.origin() {
        WireFormat::Native => json!({ "totalTokens": tokens }),
        WireFormat::Responses => {
            json!({ "object": "response.input_tokens", "input_tokens": tokens })
        }
        WireFormat::Messages | WireFormat::Chat | WireFormat::Images => {
            json!({ "input_tokens": tokens })
        }
    };
    Ok(whole(StatusCode::OK, body.to_string()))
}

fn models() -> Value {
    let data: Vec<Value> = MODELS.iter().map(|id| listed(id)).collect();
    json!({ "object": "list", "data": data })
}

fn listed(id: &str) -> Value {
    json!({ "id": id, "object": "model", "created": 1_767_225_600, "owned_by": "portunus" })
}

fn whole(status: StatusCode, body: impl Into<Bytes>) -> Response<DemoBody> {
    told(status, DemoBody::whole(body))
}

fn told(status: StatusCode, body: DemoBody) -> Response<DemoBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

fn streamed(body: DemoBody, array: bool) -> Response<DemoBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, if array { JSON } else { EVENTS });
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
