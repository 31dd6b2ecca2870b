//! Fake of `/api/admin`: replies as configured by a test and records the requests.

use axum::body::{Body, to_bytes};
use axum::response::Response;
use http::{Method, Request};
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::{Account, AccountRole};

/// One recorded request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RecordedRequest {
    pub(crate) who: String,
    pub(crate) what: String,
    pub(crate) tag: String,
    pub(crate) body: Value,
}

#[derive(Default)]
pub(crate) struct FakeAdminApi {
    answers: Mutex<Vec<(String, u16, Value)>>,
    asked: Mutex<Vec<RecordedRequest>>,
}

impl FakeAdminApi {
    /// Sets the reply of a route, for example `GET /providers`. Later settings win.
    pub(crate) fn set_reply(&self, what: &str, status: u16, value: Value) {
        self.answers.lock().insert(0, (what.to_owned(), status, value));
    }

    /// Recorded changes in order.
    pub(crate) fn recorded_changes(&self) -> Vec<RecordedRequest> {
        let asked = self.asked.lock();
        asked.iter().filter(|asked| !asked.what.starts_with("GET ")).cloned().collect()
    }

    pub(crate) async fn answer(&self, account: &Account, request: Request<Body>) -> Response {
        let (parts, body) = request.into_parts();
        let bytes = to_bytes(body, 1 << 20).await.unwrap();
        let path = parts.uri.to_string();
        let what = format!("{} {}", parts.method, path.strip_prefix("/api/admin").unwrap());
        let tag = parts.headers.get("if-match").map_or("", |tag| tag.to_str().unwrap());
        let asked = RecordedRequest {
            who: account.username.clone(),
            what: what.clone(),
            tag: tag.to_owned(),
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
        };
        self.asked.lock().push(asked);
        let may = matches!(account.role, AccountRole::Owner | AccountRole::Admin);
        let found = self.answers.lock().iter().find(|(own, ..)| *own == what).cloned();
        let no = |status, say: &str| (status, json!({ "success": false, "message": say }));
        let (status, value) = match found {
            _ if !may => no(403, "administration is for administrators"),
            Some((_, status, value)) => (status, value),
            None if parts.method == Method::GET => no(404, "there is nothing"),
            None => (200, json!({})),
        };
        let answer = Response::builder().status(status).header("etag", "\"a tag\"");
        answer.body(Body::from(value.to_string())).unwrap()
    }
}
