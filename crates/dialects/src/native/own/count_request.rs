//! The body of a token count, <https://ai.google.dev/api/tokens>: a request, or a whole request in one
//! field, beside which others are ignored.

use bytes::Bytes;
use canon::ApiError;
use serde_json::value::RawValue;

use crate::json;
use crate::wire_object::wire_object;

/// The field that holds a whole request.
pub const COUNTED_REQUEST: &str = "generateContentRequest";

wire_object! {
    /// The body of a token count.
    struct CountBodyView<'a>("a JSON object", camel_case) {
        request "generateContentRequest": &'a RawValue,
    }
}

/// Returns the request in the field `generateContentRequest` of a token count; `None` if the body itself
/// is the request.
pub fn wrapped_request(body: &[u8]) -> Result<Option<Bytes>, ApiError> {
    let view: CountBodyView<'_> = json::parse_request(body)?.view;
    Ok(view.request.map(|request| Bytes::copy_from_slice(request.get().as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_request_is_found_in_either_spelling_and_once() {
        let found = |body: &str| wrapped_request(body.as_bytes());
        let request = r#"{"contents": [{"parts": []}]}"#;
        for name in [COUNTED_REQUEST, "generate_content_request"] {
            let body = format!(r#"{{"contents": [], "{name}": {request}}}"#);
            assert_eq!(found(&body).unwrap().as_deref(), Some(request.as_bytes()));
            let twice = format!(r#"{{"generateContentRequest": 1, "{name}": {request}}}"#);
            assert_eq!(found(&twice).unwrap_err().param(), Some(COUNTED_REQUEST), "{name}");
        }
        assert_eq!(found(request).unwrap(), None);
        assert!(found("[1").is_err());
    }
}
