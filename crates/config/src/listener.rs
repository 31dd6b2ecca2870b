//! Limits and certificate of the listener.

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use std::time::Duration;

use transport::HttpLimits;
use transport::server::MAX_HEADERS;

use crate::error::FieldError;
use crate::raw::{RawLimits, RawTls};
use crate::units::{parse_duration, parse_size};

/// Checks `[limits]` and fills in the defaults.
pub(super) fn http_limits(raw: &RawLimits) -> Result<HttpLimits, FieldError> {
    let count = |name: &str, configured: Option<u32>, default: u32| match configured {
        Some(0) => Err(FieldError::new(format_args!("limits.{name}"), "must be at least 1")),
        configured => Ok(configured.unwrap_or(default)),
    };
    let time = |name: &str, configured: &Option<String>, default: u64| match configured.as_deref() {
        None => Ok(Duration::from_secs(default)),
        Some(text) => match parse_duration(text) {
            Ok(time) if !time.is_zero() => Ok(time),
            Ok(_) => {
                Err(FieldError::new(format_args!("limits.{name}"), "must be longer than zero"))
            }
            Err(why) => Err(FieldError::new(format_args!("limits.{name}"), why)),
        },
    };
    let headers = count("headers", raw.headers, 100)? as usize;
    if headers > MAX_HEADERS {
        return Err(FieldError::new(
            "limits.headers",
            format_args!("{headers} is more than the maximum of {MAX_HEADERS}"),
        ));
    }
    let header_bytes = raw.header_bytes.as_deref().map_or(Ok(64 << 10), parse_size);
    let header_bytes = header_bytes.map_err(|why| FieldError::new("limits.header_bytes", why))?;
    if !((1 << 10)..=(1 << 20)).contains(&header_bytes) {
        return Err(FieldError::new("limits.header_bytes", "must be between 1KiB and 1MiB"));
    }
    Ok(HttpLimits {
        connections: count("connections", raw.connections, 16_384)? as usize,
        connections_per_address: count(
            "connections_per_address",
            raw.connections_per_address,
            8_192,
        )? as usize,
        headers,
        header_bytes,
        header_time: time("header_time", &raw.header_time, 15)?,
        body_time: time("body_time", &raw.body_time, 30)?,
        idle: time("idle", &raw.idle, 75)?,
        stall: time("stall", &raw.stall, 60)?,
        streams: count("streams", raw.streams, 256)?,
        resets: count("resets", raw.resets, 100)?,
    })
}

/// Reads certificate and key. Serves TLS 1.2 and 1.3 without early data, and prefers `h2` to
/// `http/1.1`.
pub(super) fn server_tls(raw: &RawTls) -> Result<Arc<ServerConfig>, FieldError> {
    let RawTls { cert, key } = raw;
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| {
            FieldError::new(
                "server.tls.cert",
                format_args!("{} cannot be read: {e}", cert.display()),
            )
        })?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|e| {
        FieldError::new("server.tls.key", format_args!("{} cannot be read: {e}", key.display()))
    })?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| FieldError::new("server.tls", e))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|e| {
            FieldError::new("server.tls", format_args!("certificate and key do not match: {e}"))
        })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
