//! What a provider's error means for our caller, whatever format it came in.
//!
//! A status alone decides the kind of trouble; the provider's words are repeated only where they
//! help the caller mend its request, and never with a credential or an address in them.

use canon::{Blame, Fault, Reach, Trouble};

/// A provider's own words for its error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UpstreamWords {
    /// Its sentence.
    pub(crate) message: String,
    /// Its kind of error.
    pub(crate) kind: String,
    /// Its finer code.
    pub(crate) code: String,
    /// The field it blames.
    pub(crate) param: Option<String>,
}

/// The fault behind a provider's error status.
pub(crate) fn of_upstream(status: u16, words: Option<UpstreamWords>) -> Fault {
    let words = words.unwrap_or_default();
    // An account without money is no rate limit that passes.
    let broke = [&words.code, &words.kind].iter().any(|word| *word == "insufficient_quota");
    let status = if status == 429 && broke { 402 } else { status };
    let note = format!(
        "the provider answered {status} {} {}: {}",
        words.kind,
        words.code,
        tidy(&words.message)
    );
    let theirs = |trouble, fallback: &'static str| {
        let message = tidy(&words.message);
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
            theirs(Trouble::TooLong, "the prompt is longer than the model's window")
        }
        400 | 422 if words.code.contains("policy") || words.code.contains("moderation") => {
            theirs(Trouble::Policy, "the provider refused the prompt")
        }
        400 | 422 => theirs(Trouble::Invalid, "the provider refused the request as invalid"),
        413 => theirs(Trouble::TooLarge, "the provider refused the request as too large"),
        // Our own credential or account failed, which is no business of the caller's.
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

/// A provider's sentence without what might be a credential, an account or an address.
fn tidy(message: &str) -> String {
    let hides = |word: &str| {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        bare.contains("://")
            || bare.starts_with("sk-")
            || bare.starts_with("org-")
            || bare.starts_with("AIza")
            || (bare.len() >= 24 && bare.chars().any(|c| c.is_ascii_digit()) && !bare.contains('.'))
    };
    let words: Vec<&str> =
        message.split_whitespace().map(|word| if hides(word) { "…" } else { word }).collect();
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
    fn secrets_and_addresses_are_left_out() {
        let words = UpstreamWords {
            message: "Incorrect key sk-abc123 at https://x.example/keys for org-77".to_owned(),
            ..UpstreamWords::default()
        };
        let fault = of_upstream(400, Some(words));
        assert_eq!(fault.say(), "Incorrect key … at … for …");
    }

    #[test]
    fn our_own_credentials_trouble_is_not_the_callers() {
        for status in [401, 402, 403, 404] {
            let fault = of_upstream(status, None);
            assert_eq!((fault.trouble(), fault.blamed()), (Trouble::Unavailable, Blame::Upstream));
        }
    }
}
