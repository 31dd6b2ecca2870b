//! Client of `/api/admin`. Administration pages send their requests there on behalf of the
//! signed-in user. The pages therefore have no rights of their own, and the API alone decides what
//! is allowed and which field is wrong.

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

const MAX_REPLY_BYTES: usize = 16 << 20;
/// Message for a change that was based on an outdated version.
const STALE_MESSAGE: &str =
    "Somebody changed this meanwhile. What you see now is theirs; make your change again.";

/// A successful reply, with the entity tag of the object.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiReply {
    pub(crate) value: Value,
    pub(crate) etag: String,
}

/// A change the API refused.
#[derive(Clone, Debug)]
pub(crate) struct AdminRefusal {
    pub(crate) status: StatusCode,
    /// Name of the invalid field in the API; empty if the refusal concerns no field.
    field: String,
    message: String,
}

impl AdminRefusal {
    /// Maps the refusal to the form field it concerns, or to the whole form. Form fields have the
    /// names of the API; `lanes[2]` belongs to `lanes`.
    pub(crate) fn field_errors(&self, names: &[&str]) -> FieldErrors {
        let within = |name: &&str| {
            let rest = self.field.strip_prefix(*name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let name = names.iter().copied().filter(|name| !name.is_empty()).filter(within);
        let mut errors = FieldErrors::default();
        match name.max_by_key(|name| name.len()) {
            // The message is shown beside the field, so it need not repeat the field's name.
            Some(name) => {
                let named = format!("`{}`: ", self.field);
                errors.add(name, self.message.strip_prefix(&named).unwrap_or(&self.message));
            }
            None => errors.add("", self.message.clone()),
        }
        errors
    }

    /// Turns the refusal into an error page, for requests without a form to show it in.
    pub(crate) fn into_page_error(self) -> PageError {
        if self.status == StatusCode::FORBIDDEN {
            PageError::Forbidden
        } else {
            PageError::Rejected(self.message)
        }
    }
}

/// Calls the admin API on behalf of one account.
#[derive(Clone)]
pub(crate) struct AdminClient {
    host: Arc<dyn ConsoleHost>,
    account: Account,
}

impl AdminClient {
    pub(crate) fn new(state: &ConsoleState, user: &SignedInUser) -> Self {
        Self { host: Arc::clone(&state.host), account: user.account.clone() }
    }

    /// Reads an object below `/api/admin`.
    pub(crate) async fn get(&self, path: &str) -> Result<ApiReply, PageError> {
        let answer = self.send(Method::GET, path, "", None).await?;
        answer.map_err(AdminRefusal::into_page_error)
    }

    /// Sends a change. With an entity tag, the change applies only to that version of the object.
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
        // The tag comes from a form field, so it can be any text.
        let request = request.map_err(|_| {
            PageError::BadRequest("A field contains characters that are not allowed.")
        })?;
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

/// Returns a string field of a JSON object, or an empty string.
pub(crate) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_shown_beside_their_field() {
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
