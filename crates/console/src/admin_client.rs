//! Administration as the console does it: what a page shows and changes of the gateway itself is
//! asked of `/api/admin`, in the name of whoever is signed in. So a page has no rights of its own,
//! and what it may not do, and why a field is wrong, is decided in one place.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use http::header::{CONTENT_TYPE, ETAG, IF_MATCH};
use http::{Method, Request, StatusCode};
use serde_json::Value;
use store::Account;

use crate::ConsoleHost;
use crate::form::FieldErrors;
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;

/// The largest answer that is read.
const MAX_REPLY_BYTES: usize = 16 << 20;
/// What is said of a change that comes too late.
const STALE_MESSAGE: &str =
    "Somebody changed this meanwhile. What you see now is theirs; make your change again.";

/// An answer: what it says, and the word that stands for the thing as it is now.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiReply {
    pub(crate) value: Value,
    pub(crate) etag: String,
}

/// A change that was not made.
#[derive(Clone, Debug)]
pub(crate) struct AdminRefusal {
    pub(crate) status: StatusCode,
    /// The field to blame, as the API calls it; empty where it is none.
    field: String,
    message: String,
}

impl AdminRefusal {
    /// The objection beside the field of a form that is to blame, or above them all. Fields of forms
    /// are called what the API calls them; `lanes[2]` is in `lanes`.
    pub(crate) fn field_errors(&self, names: &[&str]) -> FieldErrors {
        let within = |name: &&str| {
            let rest = self.field.strip_prefix(*name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let name = names.iter().copied().filter(|name| !name.is_empty()).filter(within);
        let mut wrongs = FieldErrors::default();
        match name.max_by_key(|name| name.len()) {
            // The field stands beside the words already.
            Some(name) => {
                let named = format!("`{}`: ", self.field);
                wrongs.add(name, self.message.strip_prefix(&named).unwrap_or(&self.message));
            }
            None => wrongs.add("", self.message.clone()),
        }
        wrongs
    }

    /// The objection as a page of its own, where there is no form to show it in.
    pub(crate) fn into_page_error(self) -> PageError {
        if self.status == StatusCode::FORBIDDEN {
            PageError::Forbidden
        } else {
            PageError::Rejected(self.message)
        }
    }
}

/// Whoever asks for administration.
#[derive(Clone)]
pub(crate) struct AdminClient {
    host: Arc<dyn ConsoleHost>,
    account: Account,
}

impl AdminClient {
    pub(crate) fn new(desk: &ConsoleState, signed: &SignedInUser) -> Self {
        Self { host: Arc::clone(&desk.host), account: signed.account.clone() }
    }

    /// What is at an address below `/api/admin`.
    pub(crate) async fn get(&self, path: &str) -> Result<ApiReply, PageError> {
        let answer = self.send(Method::GET, path, "", None).await?;
        answer.map_err(AdminRefusal::into_page_error)
    }

    /// What is at an address, where there is such an address.
    pub(crate) async fn find(&self, path: &str) -> Result<Option<ApiReply>, PageError> {
        match self.get(path).await {
            Ok(told) => Ok(Some(told)),
            Err(PageError::NotFound) => Ok(None),
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
    ) -> Result<Result<ApiReply, AdminRefusal>, PageError> {
        self.send(method, path, tag, Some(body)).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        tag: &str,
        body: Option<&Value>,
    ) -> Result<Result<ApiReply, AdminRefusal>, PageError> {
        let mut request = Request::builder().method(method).uri(format!("/api/admin{path}"));
        if !tag.is_empty() {
            request = request.header(IF_MATCH, tag);
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = request.header(CONTENT_TYPE, "application/json").body(body);
        // A tag is a field of a form, and may be anything.
        let request =
            request.map_err(|_| PageError::BadRequest("A field holds what it cannot hold."))?;
        let response = Arc::clone(&self.host).call_admin_api(self.account.clone(), request).await;
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, MAX_REPLY_BYTES).await.map_err(|_| PageError::Internal)?;
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if parts.status.is_success() {
            let tag = parts.headers.get(ETAG).and_then(|tag| tag.to_str().ok());
            return Ok(Ok(ApiReply { value, etag: tag.unwrap_or_default().to_owned() }));
        }
        match parts.status {
            StatusCode::NOT_FOUND => Err(PageError::NotFound),
            StatusCode::SERVICE_UNAVAILABLE => Err(PageError::StoreUnavailable),
            status if status.is_server_error() => Err(PageError::Internal),
            status => {
                let why = match status {
                    StatusCode::PRECONDITION_FAILED => STALE_MESSAGE,
                    _ => text(&value, "message"),
                };
                let (field, why) = (text(&value, "field").to_owned(), why.to_owned());
                Ok(Err(AdminRefusal { status, field, message: why }))
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
        let refusal = |field: &str| AdminRefusal {
            status: StatusCode::BAD_REQUEST,
            field: field.to_owned(),
            message: format!("`{field}`: is wrong"),
        };
        let names = ["lanes", "price", "price.input", ""];
        for (field, beside, why) in [
            ("lanes[2]", "lanes", "is wrong"),
            ("price.input", "price.input", "is wrong"),
            ("price.output", "price", "is wrong"),
            ("lanesque", "", "`lanesque`: is wrong"),
        ] {
            assert_eq!(refusal(field).field_errors(&names).get(beside), Some(why), "{field}");
        }
    }
}
