//! Administration as the console does it: what a page shows and changes of the gateway itself is
//! asked of `/api/admin`, in the name of whoever is signed in. So a page has no rights of its own,
//! and what it may not do, and why a field is wrong, is decided in one place.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use http::header::{CONTENT_TYPE, ETAG, IF_MATCH};
use http::{Method, Request, StatusCode};
use serde_json::Value;
use store::Account;

use crate::Host;
use crate::desk::Desk;
use crate::form::Wrongs;
use crate::session::Signed;
use crate::trouble::Trouble;

/// The largest answer that is read.
const LARGEST: usize = 16 << 20;
/// What is said of a change that comes too late.
const STALE: &str =
    "Somebody changed this meanwhile. What you see now is theirs; make your change again.";

/// An answer: what it says, and the word that stands for the thing as it is now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) value: Value,
    pub(crate) tag: String,
}

/// A change that was not made.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// The field to blame, as the API calls it; empty where it is none.
    field: String,
    why: String,
}

impl Refusal {
    /// The objection beside the field of a form that is to blame, or above them all. Fields of forms
    /// are called what the API calls them; `lanes[2]` is in `lanes`.
    pub(crate) fn beside(&self, names: &[&str]) -> Wrongs {
        let within = |name: &&str| {
            let rest = self.field.strip_prefix(*name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let name = names.iter().copied().filter(|name| !name.is_empty()).filter(within);
        let mut wrongs = Wrongs::default();
        match name.max_by_key(|name| name.len()) {
            // The field stands beside the words already.
            Some(name) => {
                let named = format!("`{}`: ", self.field);
                wrongs.add(name, self.why.strip_prefix(&named).unwrap_or(&self.why));
            }
            None => wrongs.add("", self.why.clone()),
        }
        wrongs
    }

    /// The objection as a page of its own, where there is no form to show it in.
    pub(crate) fn alone(self) -> Trouble {
        if self.status == StatusCode::FORBIDDEN {
            Trouble::Forbidden
        } else {
            Trouble::Not(self.why)
        }
    }
}

/// Whoever asks for administration.
#[derive(Clone)]
pub(crate) struct Clerk {
    host: Arc<dyn Host>,
    account: Account,
}

impl Clerk {
    pub(crate) fn of(desk: &Desk, signed: &Signed) -> Self {
        Self { host: Arc::clone(&desk.host), account: signed.account.clone() }
    }

    /// What is at an address below `/api/admin`.
    pub(crate) async fn get(&self, path: &str) -> Result<Told, Trouble> {
        let answer = self.ask(Method::GET, path, "", None).await?;
        answer.map_err(Refusal::alone)
    }

    /// What is at an address, where there is such an address.
    pub(crate) async fn maybe(&self, path: &str) -> Result<Option<Told>, Trouble> {
        match self.get(path).await {
            Ok(told) => Ok(Some(told)),
            Err(Trouble::NotFound) => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    /// Asks for a change of the thing as it was when it had that tag; without one, however it is.
    pub(crate) async fn change(
        &self,
        method: Method,
        path: &str,
        tag: &str,
        body: &Value,
    ) -> Result<Result<Told, Refusal>, Trouble> {
        self.ask(method, path, tag, Some(body)).await
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        tag: &str,
        body: Option<&Value>,
    ) -> Result<Result<Told, Refusal>, Trouble> {
        let mut request = Request::builder().method(method).uri(format!("/api/admin{path}"));
        if !tag.is_empty() {
            request = request.header(IF_MATCH, tag);
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = request.header(CONTENT_TYPE, "application/json").body(body);
        // A tag is a field of a form, and may be anything.
        let request = request.map_err(|_| Trouble::Bad("A field holds what it cannot hold."))?;
        let response = Arc::clone(&self.host).administer(self.account.clone(), request).await;
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, LARGEST).await.map_err(|_| Trouble::Broken)?;
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if parts.status.is_success() {
            let tag = parts.headers.get(ETAG).and_then(|tag| tag.to_str().ok());
            return Ok(Ok(Told { value, tag: tag.unwrap_or_default().to_owned() }));
        }
        match parts.status {
            StatusCode::NOT_FOUND => Err(Trouble::NotFound),
            StatusCode::SERVICE_UNAVAILABLE => Err(Trouble::Away),
            status if status.is_server_error() => Err(Trouble::Broken),
            status => {
                let why = match status {
                    StatusCode::PRECONDITION_FAILED => STALE,
                    _ => text(&value, "message"),
                };
                let (field, why) = (text(&value, "field").to_owned(), why.to_owned());
                Ok(Err(Refusal { status, field, why }))
            }
        }
    }
}

/// A text of an object; empty where there is none.
pub(crate) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The things in a list of an object.
pub(crate) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The texts in a list of an object.
pub(crate) fn texts<'a>(value: &'a Value, name: &str) -> Vec<&'a str> {
    list(value, name).iter().filter_map(Value::as_str).collect()
}

/// A count of an object.
pub(crate) fn count(value: &Value, name: &str) -> Option<u64> {
    value.get(name).and_then(Value::as_u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objection_stands_beside_the_field_that_is_to_blame() {
        let refusal = |field: &str| Refusal {
            status: StatusCode::BAD_REQUEST,
            field: field.to_owned(),
            why: format!("`{field}`: is wrong"),
        };
        let names = ["lanes", "price", "price.input", ""];
        for (field, beside, why) in [
            ("lanes[2]", "lanes", "is wrong"),
            ("price.input", "price.input", "is wrong"),
            ("price.output", "price", "is wrong"),
            ("lanesque", "", "`lanesque`: is wrong"),
        ] {
            assert_eq!(refusal(field).beside(&names).of(beside), Some(why), "{field}");
        }
    }
}
