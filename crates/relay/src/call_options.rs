//! Options for the gateway in request headers: the caller's timeout, the order of lanes, and the
//! gateways passed before.

use canon::{ApiError, SharedText};
use http::{HeaderName, HeaderValue};
use std::time::Duration;
use transport::{HeaderBlock, visible_text};

use super::caller_labels::HeaderLabels;
use super::session_id;

const ROUTE_HEADER: &str = "x-portunus-route";
pub(super) const LOSSY_HEADER: &str = "x-portunus-lossy";
/// Ids of the gateways that a request has passed.
pub(super) const HOPS_HEADER: HeaderName = HeaderName::from_static("x-portunus-hops");
/// A longer chain is taken for a loop, even if no id repeats.
const MAX_HOPS: usize = 8;

/// Options for the gateway from the request headers.
#[derive(Clone)]
pub(crate) struct CallOptions {
    /// Timeout of the caller for the start of the reply.
    pub(super) timeout: Option<Duration>,
    /// True if the cheapest lane goes first.
    pub(super) cheapest_first: bool,
    /// Gateways passed, this one included, for the next gateway.
    pub(super) hops: HeaderValue,
    /// True if a translation that loses anything is refused.
    pub(super) strict: bool,
    /// True if media that no lane can carry is dropped and reported as a loss.
    pub(super) lossy: bool,
    /// True if the provider request is returned instead of sent.
    pub(super) dry_run: bool,
    /// True if the caller sent a `traceparent`.
    pub(super) has_trace: bool,
    /// Session that the headers name.
    pub(super) session: Option<SharedText>,
    /// End user and tags that the headers name.
    pub(super) labels: HeaderLabels,
}

impl CallOptions {
    /// Reads the headers of a request to the gateway with the id `own`.
    pub(super) fn from_headers(headers: &HeaderBlock, own: &HeaderValue) -> Result<Self, ApiError> {
        let mut options = Self {
            timeout: None,
            cheapest_first: false,
            hops: own.clone(),
            strict: false,
            lossy: false,
            dry_run: false,
            has_trace: false,
            session: session_id::from_headers(headers),
            labels: HeaderLabels::default(),
        };
        // One pass over the few headers that a request has is less work than a lookup of each of
        // these names, nearly all of which are absent.
        for (name, _) in headers.iter() {
            let value = || headers.get(name).unwrap_or_default();
            match name {
                "x-portunus-route" => options.cheapest_first = is_cheapest_first(value())?,
                "x-portunus-strict" => options.strict = value() == b"true",
                "x-portunus-lossy" => options.lossy = value() == b"true",
                "x-portunus-dry-run" => options.dry_run = value() == b"true",
                "x-portunus-hops" => options.hops = append_hop(headers, own)?,
                "x-portunus-tags" => options.labels.set_tags(headers)?,
                "x-portunus-end-user" => options.labels.set_end_user(value())?,
                "traceparent" => options.has_trace = true,
                // Timeout headers of official clients, in seconds. The shortest one counts.
                "x-stainless-timeout" | "x-stainless-read-timeout" | "x-server-timeout" => {
                    let shortest = [options.timeout, parse_timeout(value())];
                    options.timeout = shortest.into_iter().flatten().min();
                }
                _ => {}
            }
        }
        Ok(options)
    }
}

fn is_cheapest_first(order: &[u8]) -> Result<bool, ApiError> {
    match order {
        b"written" => Ok(false),
        b"cheapest" => Ok(true),
        _ => {
            let message = format!("the header `{ROUTE_HEADER}` takes \"written\" or \"cheapest\"");
            Err(ApiError::invalid(ROUTE_HEADER, message))
        }
    }
}

/// Parses a number of seconds. Other values are ignored: some clients send the word `NOT_GIVEN`.
fn parse_timeout(value: &[u8]) -> Option<Duration> {
    let seconds: f64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds > 0.0)
}

fn append_hop(headers: &HeaderBlock, own: &HeaderValue) -> Result<HeaderValue, ApiError> {
    let wrong = || {
        ApiError::invalid(
            HOPS_HEADER.as_str(),
            format!("the header `{HOPS_HEADER}` cannot be read"),
        )
    };
    let mut passed = String::new();
    let mut count = 0;
    for value in headers.get_all(HOPS_HEADER.as_str()) {
        for hop in visible_text(value).ok_or_else(wrong)?.split(',').map(str::trim) {
            if hop.as_bytes() == own.as_bytes() || count >= MAX_HOPS {
                let message = "this request is in a loop: it has passed this gateway before; \
                           a provider's `base` leads back to it";
                return Err(
                    ApiError::invalid(HOPS_HEADER.as_str(), message).with_code("request_loop")
                );
            }
            count += 1;
            passed.push_str(hop);
            passed.push_str(", ");
        }
    }
    passed.push_str(own.to_str().unwrap_or_default());
    HeaderValue::from_str(&passed).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;

    fn read(headers: &[(&str, &'static str)]) -> Result<CallOptions, ApiError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_static(value));
        }
        CallOptions::from_headers(&HeaderBlock::from_map(&map), &HeaderValue::from_static("me"))
    }

    #[test]
    fn shortest_timeout_counts_and_invalid_values_are_ignored() {
        let patience = |headers: &[_]| read(headers).unwrap().timeout.map(|p| p.as_millis());
        assert_eq!(patience(&[]), None);
        assert_eq!(patience(&[("x-stainless-timeout", "600")]), Some(600_000));
        let both = [("x-stainless-read-timeout", "30.5"), ("x-server-timeout", "60")];
        assert_eq!(patience(&both), Some(30_500));
        for word in ["NOT_GIVEN", "", "-1", "0", "inf", "nan", "1e400"] {
            assert_eq!(patience(&[("x-stainless-timeout", word)]), None, "{word}");
        }
    }

    #[test]
    fn detects_loops_and_allows_chains_of_gateways() {
        let hops = |headers: &[_]| read(headers).map(|wishes| wishes.hops);
        assert_eq!(hops(&[]).unwrap(), "me");
        assert_eq!(hops(&[("x-portunus-hops", "other")]).unwrap(), "other, me");
        assert_eq!(
            hops(&[("x-portunus-hops", "a,b"), ("x-portunus-hops", "c")]).unwrap(),
            "a, b, c, me"
        );
        for looped in ["me", "other, me", "me,other", "1,2,3,4,5,6,7,8,9"] {
            let error = hops(&[("x-portunus-hops", looped)]).unwrap_err();
            assert_eq!(error.code(), Some("request_loop"), "{looped}");
            assert!(error.message().contains("loop") && !error.is_retryable());
        }
    }

    #[test]
    fn unknown_order_names_its_header() {
        assert!(read(&[("x-portunus-route", "cheapest")]).unwrap().cheapest_first);
        assert!(!read(&[("x-portunus-route", "written")]).unwrap().cheapest_first);
        assert_eq!(
            read(&[("x-portunus-route", "fast")]).err().unwrap().param(),
            Some(ROUTE_HEADER)
        );
    }
}
