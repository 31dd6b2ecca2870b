//! Origin of the request that the current task serves. The audit log names it in every line.
//!
//! It is bound to the task and not part of [`crate::Actor`]: people who are not signed in yet, such
//! as one who chooses a password by a link, leave lines too.

use std::net::IpAddr;

use http::{HeaderMap, header};

/// Longest user agent in the audit log.
const MAX_AGENT_CHARS: usize = 200;

tokio::task_local! {
    static ORIGIN: RequestOrigin;
}

/// Address and user agent of a request; empty for the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestOrigin {
    /// Address of the client, seen through trusted proxies.
    pub(crate) address: Option<String>,
    /// User agent, shortened and without control characters.
    pub(crate) agent: Option<String>,
}

impl RequestOrigin {
    /// Returns the origin of a request from that address.
    pub fn new(address: Option<IpAddr>, headers: &HeaderMap) -> Self {
        let agent = headers.get(header::USER_AGENT).map(|value| {
            let text = String::from_utf8_lossy(value.as_bytes());
            let visible = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
            text.chars().take(MAX_AGENT_CHARS).map(visible).collect()
        });
        Self { address: address.map(|address| address.to_canonical().to_string()), agent }
    }

    /// Runs the work of a request. Its lines in the audit log have this origin.
    pub async fn scope<F: Future>(self, work: F) -> F::Output {
        ORIGIN.scope(self, work).await
    }

    /// Origin of the request that this task serves.
    pub(crate) fn current() -> Self {
        ORIGIN.try_with(Clone::clone).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn origin_is_bound_to_its_request() {
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, "x".repeat(500).parse().unwrap());
        let address = "::ffff:192.0.2.1".parse().ok();
        let origin = RequestOrigin::new(address, &headers);
        let seen = origin.scope(async { RequestOrigin::current() }).await;
        assert_eq!(seen.address.as_deref(), Some("192.0.2.1"));
        assert_eq!(seen.agent.map(|agent| agent.len()), Some(MAX_AGENT_CHARS));
        assert_eq!(RequestOrigin::current(), RequestOrigin::default());
    }

    #[test]
    fn control_characters_of_an_agent_are_replaced() {
        let mut headers = HeaderMap::new();
        let agent = http::HeaderValue::from_bytes("a\tb\u{9b}2J".as_bytes()).unwrap();
        headers.insert(header::USER_AGENT, agent);
        let origin = RequestOrigin::new(None, &headers);
        assert_eq!(origin.agent.as_deref(), Some("a\u{fffd}b\u{fffd}2J"));
    }
}
