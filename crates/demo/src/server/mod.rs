//! The upstream as a plain function: a request in, a response out, no sockets.
//!
//! Which format a request is in follows from its path alone; from there on all formats take the
//! same road: rules, canon, the model, and back. A format that is added to `dialects` is served
//! here without a change.

mod body;
mod canned;
mod embed;
mod images;
mod meter;
mod path;
mod shelf;
mod stamp;

pub use body::{Body, Pace};
pub use meter::Meter;
pub(crate) use meter::{About, Ticket};
pub(crate) use path::model_of;
pub(crate) use stamp::now;

use bytes::Bytes;
use canon::{Fault, Origin, Trouble};
use dialects::messages::{BETA, is_interleaved};
use dialects::{Dialect, Target};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::faults;
use crate::model::{self, Persona};
use crate::pieces;
use path::{Place, Wanted};

/// The models that are listed. Every other id is answered by the same model.
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

/// Answers one request, at full speed and uncounted.
pub async fn serve(request: Request<Bytes>) -> Response<Body> {
    Upstream::default().serve(request).await
}

/// An upstream made of the demo models. Clones share their counts.
#[derive(Clone, Debug, Default)]
pub struct Upstream {
    pace: Pace,
    canned: bool,
    meter: Arc<Meter>,
}

impl Upstream {
    /// An upstream whose streams flow at that pace.
    pub fn new(pace: Pace) -> Self {
        Self { pace, canned: false, meter: Arc::default() }
    }

    /// The same upstream with every answer made beforehand, for measuring what stands in front.
    #[must_use]
    pub fn canned(self, canned: bool) -> Self {
        Self { canned, ..self }
    }

    /// What was served so far.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Answers one request. Credentials are not looked at.
    pub async fn serve(&self, request: Request<Bytes>) -> Response<Body> {
        self.serve_as(request, About::default())
    }

    /// The same, with what the meter is to tell of the call.
    pub(crate) fn serve_as(&self, request: Request<Bytes>, about: About) -> Response<Body> {
        let (head, body) = request.into_parts();
        let mut place = path::find(head.uri.path(), head.uri.query());
        if let Wanted::Answer(target) | Wanted::Count(target) = &mut place.wanted {
            let betas = head.headers.get_all(BETA);
            target.interleaved = betas.iter().any(|b| b.to_str().is_ok_and(is_interleaved));
        }
        let allowed = match place.wanted {
            Wanted::Models
            | Wanted::Model(_)
            | Wanted::Meter
            | Wanted::Faults
            | Wanted::Task(_)
            | Wanted::File(_) => Method::GET,
            Wanted::Answer(_)
            | Wanted::Count(_)
            | Wanted::Embeddings(..)
            | Wanted::Pictures(_)
            | Wanted::Nothing => Method::POST,
        };
        if head.method != allowed && !matches!(place.wanted, Wanted::Nothing) {
            let say = format!("only {allowed} is served at this path");
            return self.refuse(place.origin, &Fault::new(Trouble::NoMethod, say));
        }
        let canned =
            self.canned || head.headers.get("x-demo-canned").is_some_and(|value| value == "1");
        let outcome = match &place.wanted {
            Wanted::Answer(target) => match spoken(&place) {
                Ok(dialect) if canned && !target.array => {
                    Ok(self.canned_answer(dialect, target, &body))
                }
                Ok(dialect) => self.answer(dialect, target, &body, about),
                Err(fault) => Err(fault),
            },
            Wanted::Count(target) => {
                spoken(&place).and_then(|dialect| count(dialect, target, &body))
            }
            Wanted::Embeddings(form, target) => {
                embed::serve(*form, target, &body).map(|embed::Answer { body, model, usage }| {
                    let ticket = self.meter.begin(&model, &usage, false, about);
                    told(StatusCode::OK, Body::answer(body, 0, ticket))
                })
            }
            Wanted::Pictures(edit) => self.pictures(*edit, &head, &body, about),
            Wanted::Task(id) => images::poll(id).map(|body| whole(StatusCode::OK, body)),
            Wanted::File(name) => {
                let (status, kind, body) = images::file(name);
                let mut response = whole(status, body);
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
                Ok(response)
            }
            Wanted::Models => Ok(whole(StatusCode::OK, models().to_string())),
            Wanted::Model(id) => Ok(whole(StatusCode::OK, listed(id).to_string())),
            Wanted::Meter => Ok(whole(StatusCode::OK, self.meter.to_json().to_string())),
            Wanted::Faults => Ok(whole(StatusCode::OK, faults::listed().to_string())),
            Wanted::Nothing => Err(Fault::new(Trouble::NoPath, "there is nothing at this path")),
        };
        outcome.unwrap_or_else(|fault| self.refuse(place.origin, &fault))
    }

    /// The one road of all formats.
    fn answer(
        &self,
        dialect: &'static dyn Dialect,
        target: &Target,
        body: &Bytes,
        about: About,
    ) -> Result<Response<Body>, Fault> {
        let peek = dialect.peek(target, body)?;
        let chat = dialect.read_request(target, body)?;
        let reply = model::answer(&chat, Persona::of_model(&chat.model), dialect.origin())?;
        let usage = reply.usage.unwrap_or_default();
        let ticket = self.meter.begin(&chat.model, &usage, peek.stream, about);
        let stamp = stamp::fresh();
        if !peek.stream {
            let (body, _) = dialect.write_reply(reply, &chat, &stamp);
            return Ok(told(StatusCode::OK, Body::answer(body, usage.output, ticket)));
        }
        let writer = dialect.writer(&chat, &stamp);
        let events = pieces::events(reply);
        let body = Body::stream(events, writer, !target.array, self.pace, ticket);
        Ok(streamed(body, target.array))
    }

    /// An order for pictures.
    fn pictures(
        &self,
        edit: bool,
        head: &http::request::Parts,
        body: &Bytes,
        about: About,
    ) -> Result<Response<Body>, Fault> {
        let named = head.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
        let host = head.uri.authority().map(http::uri::Authority::as_str).or(named);
        let images::Answer { model, usage, reply } =
            images::serve(edit, &head.headers, host.unwrap_or_default(), body)?;
        let stream = matches!(reply, images::Reply::Stream(_));
        let ticket = self.meter.begin(&model, &usage, stream, about);
        Ok(match reply {
            images::Reply::Whole(body) => {
                told(StatusCode::OK, Body::answer(body, usage.output, ticket))
            }
            images::Reply::Stream(pieces) => {
                streamed(Body::pieces(pieces, usage.output, self.pace, ticket), false)
            }
        })
    }

    fn canned_answer(
        &self,
        dialect: &dyn Dialect,
        target: &Target,
        body: &Bytes,
    ) -> Response<Body> {
        let canned = canned::of(dialect);
        let stream = target.stream || canned::asks_for_stream(body);
        self.meter.served("(canned)", &canned.usage, stream);
        if stream && self.pace != Pace::default() {
            streamed(Body::paced(canned.burst.clone(), self.pace), false)
        } else if stream {
            streamed(Body::whole(canned.burst.clone()), false)
        } else {
            whole(StatusCode::OK, canned.whole.clone())
        }
    }

    /// Refuses a request whose body could not be read, in the format of its path.
    pub(crate) fn refuse_at(&self, uri: &Uri, fault: &Fault) -> Response<Body> {
        self.refuse(path::find(uri.path(), uri.query()).origin, fault)
    }

    fn refuse(&self, origin: Origin, fault: &Fault) -> Response<Body> {
        self.meter.refused();
        // A format that is not spoken yet is refused in the plainest one.
        let dialect = dialects::get(origin).unwrap_or(&dialects::chat::Chat);
        let (status, body) = dialect.write_fault(fault, &stamp::fresh().id);
        whole(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST), body)
    }
}

fn spoken(place: &Place) -> Result<&'static dyn Dialect, Fault> {
    dialects::get(place.origin)
        .ok_or_else(|| Fault::new(Trouble::NoPath, "this format is not spoken here"))
}

/// The input tokens of a request, in the words of its format. Its rules are not applied: they
/// ask for fields that a mere count does not need.
fn count(dialect: &dyn Dialect, target: &Target, body: &[u8]) -> Result<Response<Body>, Fault> {
    let chat = dialect.read_request(target, body)?;
    let tokens = model::count_input(&chat);
    let body = match dialect.origin() {
        Origin::Native => json!({ "totalTokens": tokens }),
        Origin::Responses => json!({ "object": "response.input_tokens", "input_tokens": tokens }),
        Origin::Messages | Origin::Chat | Origin::Images => json!({ "input_tokens": tokens }),
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

fn whole(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    told(status, Body::whole(body))
}

fn told(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

fn streamed(body: Body, array: bool) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, if array { JSON } else { EVENTS });
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
