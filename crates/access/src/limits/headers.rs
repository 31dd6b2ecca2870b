//! Rate-limit response headers in the style of the caller's format.

use canon::Micros;
use dialects::LimitHeaderStyle;
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;
use transport::ReplyHeaders;

use super::rate_window::{RemainingLimit, RemainingLimits};

/// Adds the headers in that style.
pub fn add_limit_headers(
    left: &RemainingLimits,
    style: LimitHeaderStyle,
    now: impl Fn() -> Micros,
    headers: &mut ReplyHeaders,
) {
    let RemainingLimits { requests, tokens, calls: _ } = left;
    for (what, left) in [("requests", requests), ("tokens", tokens)] {
        let Some(left) = left else { continue };
        match style {
            LimitHeaderStyle::OpenAi => openai_headers(what, left, headers),
            LimitHeaderStyle::Anthropic => anthropic_headers(what, left, now(), headers),
        }
    }
}

fn openai_headers(what: &str, left: &RemainingLimit, headers: &mut ReplyHeaders) {
    insert_header(headers, &format!("x-ratelimit-limit-{what}"), &left.limit.to_string());
    insert_header(headers, &format!("x-ratelimit-remaining-{what}"), &left.remaining.to_string());
    insert_header(headers, &format!("x-ratelimit-reset-{what}"), &format_span(left.reset));
}

fn anthropic_headers(what: &str, left: &RemainingLimit, now: Micros, headers: &mut ReplyHeaders) {
    insert_header(headers, &format!("anthropic-ratelimit-{what}-limit"), &left.limit.to_string());
    insert_header(
        headers,
        &format!("anthropic-ratelimit-{what}-remaining"),
        &left.remaining.to_string(),
    );
    let reset = Timestamp::from_microsecond(now.get())
        .and_then(|now| now.checked_add(SignedDuration::from_millis(millis(left.reset))));
    if let Ok(reset) = reset {
        insert_header(
            headers,
            &format!("anthropic-ratelimit-{what}-reset"),
            &format!("{reset:.0}"),
        );
    }
}

fn insert_header(headers: &mut ReplyHeaders, name: &str, value: &str) {
    headers.insert(name, value.as_bytes());
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Formats a duration as OpenAI does, in Go notation: `20ms`, `1.5s`, `1m0.25s`.
fn format_span(time: Duration) -> String {
    let millis = time.as_millis();
    if millis < 1_000 {
        return format!("{millis}ms");
    }
    let (minutes, rest) = (millis / 60_000, millis % 60_000);
    let seconds = match rest % 1_000 {
        0 => format!("{}s", rest / 1_000),
        fraction => {
            let text = format!("{}.{fraction:03}", rest / 1_000);
            format!("{}s", text.trim_end_matches('0'))
        }
    };
    if minutes == 0 { seconds } else { format!("{minutes}m{seconds}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_style_has_headers_of_its_own() {
        let left = RemainingLimit { limit: 60, remaining: 7, reset: Duration::from_millis(60_250) };
        let left = RemainingLimits { requests: Some(left), ..RemainingLimits::default() };
        let lines = |style| {
            let mut headers = ReplyHeaders::default();
            add_limit_headers(&left, style, || Micros::from_secs(1), &mut headers);
            let mut lines: Vec<String> = headers
                .iter()
                .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)))
                .collect();
            lines.sort();
            lines
        };
        let chat = [
            "x-ratelimit-limit-requests: 60",
            "x-ratelimit-remaining-requests: 7",
            "x-ratelimit-reset-requests: 1m0.25s",
        ];
        assert_eq!(lines(LimitHeaderStyle::OpenAi), chat);
        let messages = [
            "anthropic-ratelimit-requests-limit: 60",
            "anthropic-ratelimit-requests-remaining: 7",
            "anthropic-ratelimit-requests-reset: 1970-01-01T00:01:01Z",
        ];
        assert_eq!(lines(LimitHeaderStyle::Anthropic), messages);
    }

    #[test]
    fn durations_use_go_notation() {
        let cases = [(0, "0ms"), (20, "20ms"), (1_000, "1s"), (1_500, "1.5s"), (60_000, "1m0s")];
        for (millis, text) in cases {
            assert_eq!(format_span(Duration::from_millis(millis)), text);
        }
    }
}
