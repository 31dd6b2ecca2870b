//! W3C trace context (<https://www.w3.org/TR/trace-context/>): the `traceparent` header.

use http::HeaderValue;

/// Position of a call in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Trace id, never zero.
    pub id: u128,
    /// Span id of the caller, if it sent one.
    pub parent: Option<u64>,
    /// Span id of this call, never zero.
    pub span: u64,
    /// True if the trace is recorded.
    pub sampled: bool,
}

impl TraceContext {
    /// Parses the caller's `traceparent` and adds `span` as a child of the caller's span.
    pub fn parse(traceparent: &str, span: u64) -> Option<Self> {
        let mut parts = traceparent.trim().split('-');
        let (version, id, parent, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let hex = |text: &str, digits: usize| {
            text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        if !hex(version, 2) || version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        if !hex(id, 32) || !hex(parent, 16) || !hex(flags, 2) {
            return None;
        }
        let id = u128::from_str_radix(id, 16).ok().filter(|id| *id != 0)?;
        let parent = u64::from_str_radix(parent, 16).ok().filter(|parent| *parent != 0)?;
        let sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
        Some(Self { id, parent: Some(parent), span: span.max(1), sampled })
    }

    /// Starts a new trace.
    pub fn start(id: u128, span: u64) -> Self {
        Self { id: id.max(1), parent: None, span: span.max(1), sampled: true }
    }

    /// Returns the context of another span with the same parent.
    #[must_use]
    pub fn with_span(self, span: u64) -> Self {
        Self { span: span.max(1), ..self }
    }

    /// Returns the `traceparent` header for the provider, which makes its spans children of this
    /// call.
    pub fn header(&self) -> Option<HeaderValue> {
        let Self { id, span, sampled, parent: _ } = self;
        HeaderValue::from_str(&format!("00-{id:032x}-{span:016x}-{:02x}", u8::from(*sampled))).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<TraceContext> {
        TraceContext::parse(text, 7)
    }

    #[test]
    fn continues_the_callers_trace() {
        let trace = parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
        assert_eq!(trace.parent, Some(0xb7ad_6b71_6920_3331));
        assert!(trace.sampled);
        let header = trace.header().unwrap();
        assert_eq!(header, "00-0af7651916cd43dd8448eb211c80319c-0000000000000007-01");
        // A later version may append fields
        // (<https://www.w3.org/TR/trace-context/#versioning-of-traceparent>).
        assert!(parse("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-x").is_some());
    }

    #[test]
    fn rejects_invalid_traceparent() {
        for wrong in [
            "",
            "00",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b71692033-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
