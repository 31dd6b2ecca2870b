//! Wait that a provider asks for, in all known forms.

use canon::Micros;
use http::HeaderMap;
use std::time::{Duration, UNIX_EPOCH};

/// Longest accepted wait.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Returns the wait that the headers or the body of an error ask for, at most a minute.
/// `now` is the time of day. Returns `None` if no readable wait is named.
pub fn suggested_wait(headers: &HeaderMap, body: &[u8], now: Micros) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let seconds_to_wait = text("retry-after-ms")
        .and_then(|value| parse_number(value).map(|millis| millis / 1_000.0))
        .or_else(|| parse_retry_after(text("retry-after")?, now))
        .or_else(|| find_retry_delay(body))
        .or_else(|| longest_reset(headers, now))?;
    Some(Duration::try_from_secs_f64(seconds_to_wait.max(0.0)).unwrap_or(MAX_WAIT).min(MAX_WAIT))
}

/// Parses `120`, `1.5` or an HTTP date (`Retry-After`, RFC 9110, section 10.2.3).
fn parse_retry_after(value: &str, now: Micros) -> Option<f64> {
    parse_number(value).or_else(|| {
        let date = httpdate::parse_http_date(value.trim()).ok()?;
        Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs_f64() - seconds(now))
    })
}

/// Finds `"retryDelay": "17s"` anywhere in an error of the Gemini API.
fn find_retry_delay(body: &[u8]) -> Option<f64> {
    const NAME: &[u8] = b"\"retryDelay\"";
    let at = body.windows(NAME.len()).position(|bytes| bytes == NAME)?;
    let rest = body.get(at + NAME.len()..)?.trim_ascii_start().strip_prefix(b":")?;
    let rest = rest.trim_ascii_start().strip_prefix(b"\"")?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    parse_span(std::str::from_utf8(rest.get(..end)?).ok()?)
}

/// Returns the longest reset of the exhausted limits, or of all limits if none is exhausted:
/// `x-ratelimit-reset-tokens: 6m0s` (<https://platform.openai.com/docs/guides/rate-limits>) and
/// `anthropic-ratelimit-requests-reset: 2026-01-01T00:00:00Z`
/// (<https://docs.anthropic.com/en/api/rate-limits>).
fn longest_reset(headers: &HeaderMap, now: Micros) -> Option<f64> {
    let mut longest: Option<(bool, f64)> = None;
    for (name, value) in headers {
        let name = name.as_str();
        let is_reset = name.starts_with("x-ratelimit-reset")
            || (name.starts_with("anthropic-ratelimit-") && name.ends_with("-reset"));
        let Some(wait) = value.to_str().ok().filter(|_| is_reset).and_then(|v| parse_reset(v, now))
        else {
            continue;
        };
        let used_up = headers.get(name.replace("reset", "remaining")).is_some_and(|v| v == "0");
        let found = (used_up, wait);
        if longest.is_none_or(|longest| found > longest) {
            longest = Some(found);
        }
    }
    longest.map(|(_, wait)| wait)
}

/// Parses a span, seconds, a time in seconds or milliseconds since 1970, or an RFC 3339 time.
fn parse_reset(value: &str, now: Micros) -> Option<f64> {
    if let Some(number) = parse_number(value) {
        return Some(match number {
            millis if millis > 1e11 => millis / 1_000.0 - seconds(now),
            moment if moment > 1e9 => moment - seconds(now),
            span => span,
        });
    }
    parse_span(value).or_else(|| {
        let time: jiff::Timestamp = value.trim().parse().ok()?;
        Some(seconds(Micros::new(time.as_microsecond())) - seconds(now))
    })
}

/// Parses `6m0s`, `1h2m3.5s` or `120ms`.
fn parse_span(value: &str) -> Option<f64> {
    let mut rest = value.trim();
    let mut total = None;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (count, behind) = rest.split_at_checked(digits)?;
        let letters = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at_checked(letters)?;
        let unit = match unit {
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            _ => return None,
        };
        total = Some(total.unwrap_or(0.0) + parse_number(count)? * unit);
        rest = behind;
    }
    total
}

/// Parses a plain number without sign or exponent.
fn parse_number(value: &str) -> Option<f64> {
    let value = value.trim();
    let plain =
        !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    value.parse().ok().filter(|_| plain)
}

#[expect(clippy::cast_precision_loss, reason = "a wait is exact enough in doubles")]
fn seconds(at: Micros) -> f64 {
    at.get() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    /// 1994-11-06T08:49:37Z.
    const NOW: Micros = Micros::from_secs(784_111_777);

    fn hint(headers: &[(&str, &str)], body: &str) -> Option<u128> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        suggested_wait(&map, body.as_bytes(), NOW).map(|wait| wait.as_millis())
    }

    #[test]
    fn parses_every_form() {
        let header = |name, value| hint(&[(name, value)], "");
        for (value, millis) in [
            ("2", Some(2_000)),
            ("0", Some(0)),
            ("1.5", Some(1_500)),
            ("999999999999999999999", Some(60_000)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10_000)),
            ("Sunday, 06-Nov-94 08:49:47 GMT", Some(10_000)),
            ("Sun Nov  6 08:49:47 1994", Some(10_000)),
            ("Sun, 06 Nov 1994 08:49:07 GMT", Some(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(60_000)),
            ("Sun, 66 Nov 1994 08:49:47 GMT", None),
            ("-5", None),
            ("1e9", None),
            ("soon", None),
            ("inf", None),
            ("", None),
        ] {
            assert_eq!(header("retry-after", value), millis, "{value}");
        }
        assert_eq!(header("retry-after-ms", "120"), Some(120));
        assert_eq!(header("x-ratelimit-reset-tokens", "6m0s"), Some(60_000));
        assert_eq!(header("x-ratelimit-reset-requests", "1m2.5s"), Some(60_000));
        assert_eq!(header("x-ratelimit-reset-requests", "17ms"), Some(17));
        assert_eq!(header("x-ratelimit-reset-requests", "8.64s"), Some(8_640));
        assert_eq!(header("x-ratelimit-reset", "1784111777"), Some(60_000));
        assert_eq!(header("x-ratelimit-reset", "784111787000"), Some(10_000));
        assert_eq!(header("x-ratelimit-reset-tokens", "6 minutes"), None);
        let anthropic = "anthropic-ratelimit-tokens-reset";
        assert_eq!(header(anthropic, "1994-11-06T08:49:40Z"), Some(3_000));
        assert_eq!(header(anthropic, "1994-11-06T08:49:30Z"), Some(0));
        assert_eq!(header(anthropic, "yesterday"), None);
        let body = r#"[{"error":{"details":[{"retryDelay" : "17.5s"}]}}]"#;
        assert_eq!(hint(&[], body), Some(17_500));
        for body in ["", "{}", r#"{"retryDelay""#, r#"{"retryDelay":"#, r#"{"retryDelay":"x"}"#] {
            assert_eq!(hint(&[], body), None, "{body}");
        }
    }

    #[test]
    fn prefers_explicit_waits_and_exhausted_limits() {
        let both = [("retry-after", "3"), ("retry-after-ms", "2500")];
        assert_eq!(hint(&both, r#"{"retryDelay":"9s"}"#), Some(2_500));
        let limits = [
            ("x-ratelimit-reset-requests", "9s"),
            ("x-ratelimit-remaining-requests", "12"),
            ("x-ratelimit-reset-tokens", "2s"),
            ("x-ratelimit-remaining-tokens", "0"),
        ];
        assert_eq!(hint(&limits, ""), Some(2_000));
        assert_eq!(hint(&[("retry-after", "rubbish"), limits[0]], ""), Some(9_000));
    }

    proptest! {
        #[test]
        fn wait_is_at_most_a_minute(value in "[ -~]{0,40}", body in "[ -~]{0,60}") {
            for name in ["retry-after", "retry-after-ms", "x-ratelimit-reset-x"] {
                let wait = hint(&[(name, &value)], &body);
                prop_assert!(wait.is_none_or(|wait| wait <= 60_000));
            }
        }
    }
}
