//! Export of traces and metrics: `[telemetry]`, or the OpenTelemetry variables of
//! <https://opentelemetry.io/docs/specs/otel/protocol/exporter/>.

use http::Uri;
use http::header::{HeaderName, HeaderValue};

use crate::error::FieldError;
use crate::raw::RawTelemetry;

/// An OTLP collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpTarget {
    /// URL before `/v1/traces`, `/v1/metrics` and `/v1/logs`.
    pub base_url: String,
    /// Headers of every export request, for example an API key.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Service name of this gateway.
    pub service_name: String,
    /// True if the audit log is sent too, as log records.
    pub sends_audit: bool,
}

/// Returns the collector, if one is configured.
pub(super) fn check(
    raw: Option<RawTelemetry>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<OtlpTarget>, FieldError> {
    let RawTelemetry { otlp, headers: configured, service, audit } = raw.unwrap_or_default();
    let Some(base_url) = otlp.or_else(|| env("OTEL_EXPORTER_OTLP_ENDPOINT")) else {
        if audit {
            let why = "the audit log needs a collector; write its address into `otlp`";
            return Err(FieldError::new("telemetry.audit", why));
        }
        return Ok(None);
    };
    let base_url = base_url.trim_end_matches('/').to_owned();
    let uri: Option<Uri> = base_url.parse().ok();
    if !uri.is_some_and(|uri| matches!(uri.scheme_str(), Some("http" | "https"))) {
        return Err(FieldError::new(
            "telemetry.otlp",
            format_args!(
                "`{base_url}` is not an address; write for instance \"http://127.0.0.1:4318\""
            ),
        ));
    }
    let mut headers = Vec::new();
    for (name, secret) in configured {
        let path = format!("telemetry.headers.{name}");
        let value = secret.resolve(env).map_err(|why| FieldError::new(&path, why))?;
        headers.push(
            header(&name, &value).ok_or_else(|| FieldError::new(&path, "not valid in a header"))?,
        );
    }
    for pair in env("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default().split(',') {
        let Some((name, value)) = pair.split_once('=') else { continue };
        let known = header(name.trim(), value.trim());
        headers.push(known.ok_or_else(|| {
            FieldError::new("OTEL_EXPORTER_OTLP_HEADERS", "write name=value,name=value")
        })?);
    }
    let service = service.or_else(|| env("OTEL_SERVICE_NAME"));
    Ok(Some(OtlpTarget {
        base_url,
        headers,
        service_name: service.unwrap_or_else(|| "portunus".to_owned()),
        sends_audit: audit,
    }))
}

fn header(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
}
