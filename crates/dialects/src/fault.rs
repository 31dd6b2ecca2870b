//! Maps a provider's error to the error of the gateway's caller, independent of the wire format.
//!
//! The status decides the error kind. The provider's message is repeated only if it helps the
//! caller to fix the request, and never with a credential or a URL in it.

use canon::{Blame, Fault, Reach, Trouble};

/// Fields of a provider's error object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UpstreamWords {
    pub(crate) message: String,
    pub(crate) kind: String,
    pub(crate) code: String,
    /// Field of the request that caused the error.
    pub(crate) param: Option<String>,
}

/// Returns the gateway's error for a provider's error status.
pub(crate) fn of_upstream(status: u16, words: Option<UpstreamWords>) -> Fault {
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
            Fault::new(trouble, fallback)
        } else {
            Fault::new(trouble, message)
        };
        match &words.param {
            Some(param) => fault.param(param.clone()),
            None => fault,
        }
    };
    let fault = match status {
        400 | 422 if words.code == "context_length_exceeded" => {
            with_message(Trouble::TooLong, "the prompt is longer than the model's window")
        }
        400 | 422 if words.code.contains("policy") || words.code.contains("moderation") => {
            with_message(Trouble::Policy, "the provider refused the prompt")
        }
        400 | 422 => with_message(Trouble::Invalid, "the provider refused the request as invalid"),
        413 => with_message(Trouble::TooLarge, "the provider refused the request as too large"),
        // The gateway's own credential or account failed. The caller cannot fix that.
        401..=404 => Fault::new(Trouble::Unavailable, "the model is not available at the moment"),
        429 => {
            Fault::new(Trouble::RateLimit, "the model's provider is at its rate limit, retry later")
        }
        408 | 504 => Fault::new(Trouble::Timeout, "the provider took too long to answer"),
        529 => Fault::new(Trouble::Overload, "the model is overloaded, retry later"),
        _ => Fault::new(Trouble::Unavailable, "the provider failed to answer, retry later"),
    };
    fault
        .blame(if matches!(status, 400 | 413 | 422) { Blame::Caller } else { Blame::Upstream })
        .reach(Reach::Answered(status))
        .note(note)
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
        let words = UpstreamWords {
            message: "Incorrect key sk-abc123 at https://x.example/keys for org-77".to_owned(),
            ..UpstreamWords::default()
        };
        let fault = of_upstream(400, Some(words));
        assert_eq!(fault.say(), "Incorrect key … at … for …");
    }

    #[test]
    fn hides_failures_of_the_gateways_own_credential() {
        for status in [401, 402, 403, 404] {
            let fault = of_upstream(status, None);
            assert_eq!((fault.trouble(), fault.blamed()), (Trouble::Unavailable, Blame::Upstream));
        }
    }
}
