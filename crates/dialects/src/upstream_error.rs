//! Maps a provider's error to the error of the gateway's caller, independent of the wire format.
//!
//! The status decides the error kind. The provider's message is repeated only if it helps the
//! caller to fix the request, and never with a credential or a URL in it.

use canon::{ApiError, Blame, ErrorKind, UpstreamProgress};

/// Fields of a provider's error object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UpstreamError {
    pub(crate) message: String,
    pub(crate) kind: String,
    pub(crate) code: String,
    /// Field of the request that caused the error.
    pub(crate) param: Option<String>,
}

/// Returns the gateway's error for a provider's error status.
pub(crate) fn map_upstream_error(status: u16, words: Option<UpstreamError>) -> ApiError {
    let words = words.unwrap_or_default();
    // `insufficient_quota` comes with status 429, but waiting does not help: the account has no
    // credit. See <https://platform.openai.com/docs/guides/error-codes>.
    let out_of_credit = [&words.code, &words.kind].iter().any(|word| *word == "insufficient_quota");
    let status = if status == 429 && out_of_credit { 402 } else { status };
    let note = format!(
        "the provider answered {status} {} {}: {}",
        words.kind,
        words.code,
        redact(&words.message)
    );
    let with_message = |trouble, fallback: &'static str| {
        let message = redact(&words.message);
        let fault = if message.is_empty() {
            ApiError::new(trouble, fallback)
        } else {
            ApiError::new(trouble, message)
        };
        match &words.param {
            Some(param) => fault.with_param(param.clone()),
            None => fault,
        }
    };
    let fault = match status {
        400 | 422 if words.code == "context_length_exceeded" => {
            with_message(ErrorKind::ContextTooLong, "the prompt is longer than the model's window")
        }
        400 | 422 if words.code.contains("policy") || words.code.contains("moderation") => {
            with_message(ErrorKind::ContentPolicy, "the provider refused the prompt")
        }
        400 | 422 => {
            with_message(ErrorKind::InvalidRequest, "the provider refused the request as invalid")
        }
        413 => {
            with_message(ErrorKind::BodyTooLarge, "the provider refused the request as too large")
        }
        // The caller named an object that the provider does not hold. A path without a field
        // means the model.
        404 if words.param.as_deref().is_some_and(|field| field != "model") => {
            with_message(ErrorKind::NotFound, "the provider does not hold an object of the request")
        }
        // The gateway's own credential or account failed. The caller cannot fix that.
        401..=404 => {
            ApiError::new(ErrorKind::Unavailable, "the model is not available at the moment")
        }
        429 => ApiError::new(
            ErrorKind::RateLimited,
            "the model's provider is at its rate limit, retry later",
        ),
        408 | 504 => ApiError::new(ErrorKind::Timeout, "the provider took too long to answer"),
        529 => ApiError::new(ErrorKind::Overloaded, "the model is overloaded, retry later"),
        _ => ApiError::new(ErrorKind::Unavailable, "the provider failed to answer, retry later"),
    };
    let is_callers = matches!(status, 400 | 413 | 422) || fault.kind() == ErrorKind::NotFound;
    fault
        .with_blame(if is_callers { Blame::Caller } else { Blame::Upstream })
        .with_progress(UpstreamProgress::Answered(status))
        .with_log_note(note)
}

/// Removes words from a message that may be a credential, an account id or a URL, and truncates it.
fn redact(message: &str) -> String {
    let is_sensitive = |word: &str| {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        bare.contains("://")
            || bare.starts_with("sk-")
            || bare.starts_with("org-")
            || bare.starts_with("AIza")
            || (bare.len() >= 24 && bare.chars().any(|c| c.is_ascii_digit()) && !bare.contains('.'))
    };
    let words: Vec<&str> = message
        .split_whitespace()
        .map(|word| if is_sensitive(word) { "…" } else { word })
        .collect();
    let mut text = words.join(" ");
    if text.chars().count() > 400 {
        text = text.chars().take(400).chain(std::iter::once('…')).collect();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_secrets_and_urls() {
        let words = UpstreamError {
            message: "Incorrect key sk-abc123 at https://x.example/keys for org-77".to_owned(),
            ..UpstreamError::default()
        };
        let fault = map_upstream_error(400, Some(words));
        assert_eq!(fault.message(), "Incorrect key … at … for …");
    }

    #[test]
    fn an_object_the_provider_does_not_hold_is_the_callers_error() {
        let fault = |param: &str| {
            let words = UpstreamError {
                message: "Item with id 'x' not found.".to_owned(),
                param: Some(param.to_owned()),
                ..UpstreamError::default()
            };
            let fault = map_upstream_error(404, Some(words));
            (fault.kind(), fault.blame())
        };
        assert_eq!(fault("input"), (ErrorKind::NotFound, Blame::Caller));
        assert_eq!(fault("model"), (ErrorKind::Unavailable, Blame::Upstream));
    }

    #[test]
    fn hides_failures_of_the_gateways_own_credential() {
        for status in [401, 402, 403, 404] {
            let fault = map_upstream_error(status, None);
            assert_eq!((fault.kind(), fault.blame()), (ErrorKind::Unavailable, Blame::Upstream));
        }
    }
}
