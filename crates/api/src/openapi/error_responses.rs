//! Error responses of every operation, from one table of error kinds.

use canon::{ApiError, ErrorKind, WireFormat};
use http::Method;
use relay::ErrorFormat;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

use crate::keyed::RouteNeed;
use crate::routes::{ApiRoute, RouteHandler, path_matches, route_list};

/// All kinds of errors.
const KINDS: [ErrorKind; 25] = [
    ErrorKind::InvalidRequest,
    ErrorKind::ContextTooLong,
    ErrorKind::ContentPolicy,
    ErrorKind::Unauthenticated,
    ErrorKind::Forbidden,
    ErrorKind::UnknownPath,
    ErrorKind::UnknownModel,
    ErrorKind::NotFound,
    ErrorKind::MethodNotAllowed,
    ErrorKind::RequestTimeout,
    ErrorKind::Conflict,
    ErrorKind::Gone,
    ErrorKind::PreconditionFailed,
    ErrorKind::BodyTooLarge,
    ErrorKind::UnsupportedMediaType,
    ErrorKind::ExpectationFailed,
    ErrorKind::UpgradeRefused,
    ErrorKind::RateLimited,
    ErrorKind::QuotaExceeded,
    ErrorKind::HeadersTooLarge,
    ErrorKind::Internal,
    ErrorKind::Unavailable,
    ErrorKind::Overloaded,
    ErrorKind::Interrupted,
    ErrorKind::Timeout,
];

/// Returns the meaning of an error for the caller.
const fn meaning(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidRequest => "a field is wrong; the error names it",
        ErrorKind::ContextTooLong => "the prompt is longer than the context of the model",
        ErrorKind::ContentPolicy => "the provider refused the content",
        ErrorKind::Unauthenticated => "the API key is missing or wrong",
        ErrorKind::Forbidden => "the key may not do this",
        ErrorKind::UnknownPath => "there is nothing at this address",
        ErrorKind::UnknownModel => "there is no such model here",
        ErrorKind::NotFound => "there is no such object",
        ErrorKind::MethodNotAllowed => "the address does not take this method",
        ErrorKind::RequestTimeout => "the request took too long to arrive",
        ErrorKind::Conflict => "the request collides with another one or with the object's state",
        ErrorKind::Gone => "the object has expired",
        ErrorKind::PreconditionFailed => "the object changed since it was read",
        ErrorKind::BodyTooLarge => "the body is too large",
        ErrorKind::UnsupportedMediaType => "the content type or coding is not supported",
        ErrorKind::ExpectationFailed => "the `Expect` header cannot be met",
        ErrorKind::UpgradeRefused => "the protocol cannot be changed",
        ErrorKind::RateLimited => "a rate limit is reached; retry later",
        ErrorKind::QuotaExceeded => "the spending cap or budget is used up",
        ErrorKind::HeadersTooLarge => "the headers are too large",
        ErrorKind::Internal => "the gateway hit a defect of its own",
        ErrorKind::Unavailable => "no provider could serve the call; retry later",
        ErrorKind::Overloaded => "the gateway is overloaded or stopping; retry later",
        ErrorKind::Interrupted => "the answer broke off; retry later",
        ErrorKind::Timeout => "the answer took too long",
    }
}

/// Facts about an operation that decide which errors it has.
struct OperationFacts<'a> {
    route: &'a ApiRoute,
    path: &'a str,
    has_body: bool,
    has_query: bool,
}

impl OperationFacts<'_> {
    /// Returns true if the operation answers with an error of that kind. Errors that any request can
    /// get, whatever it asks for, are in the default response.
    fn has(&self, kind: ErrorKind) -> bool {
        let Self { route, path, has_body, has_query } = self;
        let keyed = route.handler.keyed();
        let is_paid = keyed.is_some_and(|keyed| keyed.paid);
        let is_admin = keyed.is_some_and(|keyed| matches!(keyed.need, RouteNeed::Admin(_)));
        let is_change = route.method != Method::GET;
        let is_probe = matches!(route.handler, RouteHandler::Probe(_));
        let is_file = path.starts_with("/files/");
        match kind {
            ErrorKind::InvalidRequest => route.method == Method::POST || *has_body || *has_query,
            ErrorKind::ContextTooLong
            | ErrorKind::ContentPolicy
            | ErrorKind::QuotaExceeded
            | ErrorKind::Unavailable
            | ErrorKind::Interrupted
            | ErrorKind::Timeout
            | ErrorKind::UnsupportedMediaType => is_paid,
            ErrorKind::Unauthenticated => keyed.is_some(),
            ErrorKind::Forbidden => keyed.is_some() || is_file,
            ErrorKind::UnknownModel => is_paid || path.contains("/models/"),
            ErrorKind::NotFound => is_paid || path.contains('{'),
            ErrorKind::Gone => is_file,
            ErrorKind::Conflict => is_change && (is_paid || is_admin || path.ends_with("/cancel")),
            ErrorKind::PreconditionFailed => is_change && is_admin,
            ErrorKind::BodyTooLarge => *has_body,
            ErrorKind::UpgradeRefused => *path == "/v1/responses" && !is_change,
            ErrorKind::RateLimited | ErrorKind::Internal => !is_probe,
            ErrorKind::Overloaded => *path != "/healthz",
            ErrorKind::UnknownPath
            | ErrorKind::MethodNotAllowed
            | ErrorKind::RequestTimeout
            | ErrorKind::ExpectationFailed
            | ErrorKind::HeadersTooLarge => false,
        }
    }
}

/// A form of error bodies.
#[derive(Clone, Copy)]
struct ErrorShape {
    /// Schema of the body, and the begin of the names of its responses.
    schema: &'static str,
    /// Name of the response for errors without a response of their own.
    default_response: &'static str,
    /// Format of the examples.
    format: ErrorFormat,
}

impl ErrorShape {
    fn of_path(path: &str) -> Self {
        let format = ErrorFormat::for_path(path, |_| false);
        let is_model_list = path.starts_with("/v1/models") && !path.contains(':');
        let (schema, default_response) = match format {
            // The headers of the client select one of three formats.
            ErrorFormat::Dialect(_) if is_model_list => ("ModelListError", "ModelListRefused"),
            ErrorFormat::Dialect(dialect) => match dialect.origin() {
                WireFormat::Chat | WireFormat::Responses | WireFormat::Images => {
                    ("Error", "Refused")
                }
                WireFormat::Messages => ("MessagesError", "MessagesRefused"),
                WireFormat::Native => ("NativeError", "NativeRefused"),
            },
            ErrorFormat::Plain => ("PlainError", "PlainRefused"),
        };
        Self { schema, default_response, format }
    }

    /// Status and body of an error.
    fn example(self, kind: ErrorKind) -> (u16, Value) {
        let error = ApiError::new(kind, meaning(kind));
        let (status, body) = self.format.to_body(&error, "req_5f2c");
        (status, Value::Object(crate::json_object::parse_object(body)))
    }

    fn response(self, kinds: &[ErrorKind]) -> Value {
        let (meanings, mut examples) = (kinds.iter().map(|kind| meaning(*kind)), Map::new());
        let meanings: Vec<&str> = meanings.collect();
        let mut headers = Map::new();
        headers.insert("x-request-id".to_owned(), reference("headers", "requestId"));
        for kind in kinds {
            let (status, body) = self.example(*kind);
            let name = example_name(*kind);
            examples.insert(name, json!({ "value": body }));
            if matches!(status, 409 | 429 | 503) {
                headers.insert("retry-after".to_owned(), reference("headers", "retryAfter"));
            }
        }
        let mut description = meanings.join("; or ");
        if let Some(first) = description.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        json!({
            "description": format!("{description}."),
            "headers": headers,
            "content": { "application/json": {
                "schema": reference("schemas", self.schema), "examples": examples,
            } },
        })
    }
}

/// Returns the code of a kind.
fn example_name(kind: ErrorKind) -> String {
    let error = ApiError::new(kind, "");
    let (_, body) = dialects::DEFAULT.write_error(&error, "");
    let body = Value::Object(crate::json_object::parse_object(body));
    let code = body.pointer("/error/code").and_then(Value::as_str);
    code.unwrap_or("server_error").to_owned()
}

fn reference(kind: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{kind}/{name}") })
}

/// Adds the error responses to every operation.
pub(super) fn add(document: &mut Map<String, Value>) {
    let routes = route_list();
    let mut shared = Map::new();
    let paths = document.get_mut("paths").and_then(Value::as_object_mut);
    for (path, item) in paths.into_iter().flatten() {
        let operations = item.as_object_mut().into_iter().flatten();
        for (method, operation) in operations.filter(|(method, _)| *method != "parameters") {
            let is_own = |route: &&ApiRoute| {
                route.method.as_str().eq_ignore_ascii_case(method) && path_matches(route.path, path)
            };
            if let (Some(route), Some(operation)) =
                (routes.iter().find(is_own), operation.as_object_mut())
            {
                add_to_operation(route, path, operation, &mut shared);
            }
        }
    }
    let components = document.get_mut("components").and_then(Value::as_object_mut);
    let responses = components.and_then(|all| all.get_mut("responses")?.as_object_mut());
    if let Some(responses) = responses {
        responses.extend(shared);
    }
}

fn add_to_operation(
    route: &ApiRoute,
    path: &str,
    operation: &mut Map<String, Value>,
    shared: &mut Map<String, Value>,
) {
    let parameters = operation.get("parameters").and_then(Value::as_array);
    let is_query = |one: &Value| one.get("in").and_then(Value::as_str) == Some("query");
    let facts = OperationFacts {
        route,
        path,
        has_body: operation.contains_key("requestBody"),
        has_query: parameters.into_iter().flatten().any(is_query),
    };
    let shape = ErrorShape::of_path(path);
    let mut by_status: BTreeMap<u16, Vec<ErrorKind>> = BTreeMap::new();
    for kind in KINDS {
        by_status.entry(shape.example(kind).0).or_default().push(kind);
    }
    let responses = operation.entry("responses").or_insert_with(|| json!({}));
    let Some(responses) = responses.as_object_mut() else { return };
    if path.starts_with("/oauth/") {
        for status in ["400", "413", "429", "503", "default"] {
            responses.insert(status.to_owned(), reference("responses", "OAuthRefused"));
        }
        return;
    }
    if path.starts_with("/scim/") {
        let statuses =
            ["400", "401", "403", "404", "409", "412", "413", "415", "429", "503", "default"];
        for status in statuses {
            responses.insert(status.to_owned(), reference("responses", "ScimRefused"));
        }
        return;
    }
    for (status, kinds) in by_status {
        if kinds.iter().any(|kind| facts.has(*kind)) {
            let name = format!("{}{status}", shape.schema);
            responses.insert(status.to_string(), reference("responses", &name));
            shared.entry(name).or_insert_with(|| shape.response(&kinds));
        }
    }
    responses.insert("default".to_owned(), reference("responses", shape.default_response));
}
