//! Overrides of the file by `PORTUNUS_…` variables: `PORTUNUS_SERVER_LISTEN` sets `listen` in
//! `[server]`.

use crate::error::FieldError;
use crate::raw::{RawConfig, RawServer, RawShared, SecretRef, StringOrList};

/// Applies the variables to the parsed file.
pub(super) fn apply(
    raw: &mut RawConfig,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(), FieldError> {
    let text = |name: &str, field: &mut Option<String>| {
        if let Some(value) = env(name) {
            *field = Some(value);
        }
    };
    text("PORTUNUS_SERVER_LISTEN", &mut raw.server.listen);
    text("PORTUNUS_SERVER_HTTP_LISTEN", &mut raw.server.http_listen);
    text("PORTUNUS_SERVER_PUBLIC_URL", &mut raw.server.public_url);
    text("PORTUNUS_SERVER_METRICS", &mut raw.server.metrics);
    text("PORTUNUS_SERVER_DURABILITY", &mut raw.server.durability);
    text("PORTUNUS_SERVER_WEBSOCKET_TIME", &mut raw.server.websocket_time);
    text("PORTUNUS_SERVER_LINGER", &mut raw.server.linger);
    text("PORTUNUS_STORE_URL", &mut raw.store.url);
    text("PORTUNUS_STORE_AWAY", &mut raw.store.away);
    text("PORTUNUS_LIMITS_BODY", &mut raw.limits.body);
    text("PORTUNUS_LIMITS_KEEP_ANSWERS", &mut raw.limits.keep_answers);
    text("PORTUNUS_LIMITS_KEEP_CONVERSATIONS", &mut raw.limits.keep_conversations);
    text("PORTUNUS_LIMITS_MONEY_WAIT", &mut raw.limits.money_wait);
    text("PORTUNUS_LIMITS_GOODWILL", &mut raw.limits.goodwill);
    text("PORTUNUS_LIMITS_BUFFERED", &mut raw.limits.buffered);
    text("PORTUNUS_LIMITS_BUFFERED_PER_KEY", &mut raw.limits.buffered_per_key);
    text("PORTUNUS_LIMITS_HEADER_BYTES", &mut raw.limits.header_bytes);
    text("PORTUNUS_LIMITS_HEADER_TIME", &mut raw.limits.header_time);
    text("PORTUNUS_LIMITS_BODY_TIME", &mut raw.limits.body_time);
    text("PORTUNUS_LIMITS_BODY_RATE", &mut raw.limits.body_rate);
    text("PORTUNUS_LIMITS_IDLE", &mut raw.limits.idle);
    text("PORTUNUS_LIMITS_STALL", &mut raw.limits.stall);
    text("PORTUNUS_TIMEOUTS_CONNECT", &mut raw.timeouts.connect);
    text("PORTUNUS_TIMEOUTS_FIRST_BYTE", &mut raw.timeouts.first_byte);
    text("PORTUNUS_TIMEOUTS_GAP", &mut raw.timeouts.gap);
    text("PORTUNUS_TIMEOUTS_TOTAL", &mut raw.timeouts.total);
    text("PORTUNUS_TIMEOUTS_DRAIN", &mut raw.timeouts.drain);
    text("PORTUNUS_OUTBOUND_PROXY", &mut raw.outbound.proxy);
    text("PORTUNUS_FILES_URL", &mut raw.files.url);
    text("PORTUNUS_FILES_KEEP", &mut raw.files.keep);
    text("PORTUNUS_FILES_SIZE", &mut raw.files.size);
    text("PORTUNUS_FILES_ENDPOINT", &mut raw.files.endpoint);
    text("PORTUNUS_FILES_REGION", &mut raw.files.region);
    text("PORTUNUS_RETENTION_CALLS", &mut raw.retention.calls);
    text("PORTUNUS_RETENTION_CALL_SESSIONS", &mut raw.retention.call_sessions);
    text("PORTUNUS_RETENTION_AUDIT", &mut raw.retention.audit);
    text("PORTUNUS_RETENTION_REFUSALS", &mut raw.retention.refusals);
    text("PORTUNUS_RETENTION_USAGE_HOURS", &mut raw.retention.usage_hours);
    text("PORTUNUS_RETENTION_ARCHIVE", &mut raw.retention.archive);
    text("PORTUNUS_RETENTION_ENDPOINT", &mut raw.retention.endpoint);
    text("PORTUNUS_RETENTION_REGION", &mut raw.retention.region);
    text("PORTUNUS_MEDIA_SIZE", &mut raw.media.size);
    text("PORTUNUS_MEDIA_TIME", &mut raw.media.time);
    if let Some(file) = env("PORTUNUS_OUTBOUND_CA") {
        raw.outbound.ca = Some(StringOrList::One(file));
    }
    if let Some(fetch) = env("PORTUNUS_MEDIA_FETCH") {
        raw.media.fetch = Some(fetch.parse().map_err(|_| {
            FieldError::new(
                "PORTUNUS_MEDIA_FETCH",
                format_args!("`{fetch}` is not known; write true or false"),
            )
        })?);
    }
    let counts = [
        ("PORTUNUS_LIMITS_CONNECTIONS", &mut raw.limits.connections),
        ("PORTUNUS_LIMITS_CONNECTIONS_PER_ADDRESS", &mut raw.limits.connections_per_address),
        ("PORTUNUS_LIMITS_FREE_RPM", &mut raw.limits.free_rpm),
        ("PORTUNUS_LIMITS_FREE_RUNNING", &mut raw.limits.free_running),
        ("PORTUNUS_LIMITS_PUBLIC_RPM", &mut raw.limits.public_rpm),
        ("PORTUNUS_LIMITS_PUBLIC_RUNNING", &mut raw.limits.public_running),
        ("PORTUNUS_LIMITS_HEADERS", &mut raw.limits.headers),
        ("PORTUNUS_LIMITS_STREAMS", &mut raw.limits.streams),
        ("PORTUNUS_LIMITS_RESETS", &mut raw.limits.resets),
        ("PORTUNUS_LIMITS_CONTROL_FRAMES", &mut raw.limits.control_frames),
        ("PORTUNUS_TASKS_PER_PROVIDER", &mut raw.tasks.per_provider),
        ("PORTUNUS_TASKS_RUNS", &mut raw.tasks.runs),
        ("PORTUNUS_TASKS_WAITING", &mut raw.tasks.waiting),
    ];
    for (name, field) in counts {
        if let Some(value) = env(name) {
            let count = value
                .parse()
                .map_err(|_| FieldError::new(name, format_args!("`{value}` is not a number")))?;
            *field = Some(count);
        }
    }
    apply_tls(&mut raw.server, env)?;
    if let Some(secret) = env("PORTUNUS_SERVER_SECRET") {
        raw.server.secret = Some(SecretRef::Text { text: secret });
    }
    if let Some(keys) = env("PORTUNUS_SERVER_VAULT") {
        raw.server.vault = Some(SecretRef::Text { text: keys });
    }
    if let Some(list) = env("PORTUNUS_OUTBOUND_ALLOW") {
        raw.outbound.allow = list.split(',').map(|host| host.trim().to_owned()).collect();
    }
    if let Some(list) = env("PORTUNUS_DIRECTORY_KEYS") {
        raw.directory.keys = list.split(',').map(|key| key.trim().to_owned()).collect();
    }
    if let Some(demo) = env("PORTUNUS_SERVER_DEMO") {
        raw.server.demo = Some(demo.parse().map_err(|_| {
            FieldError::new(
                "PORTUNUS_SERVER_DEMO",
                format_args!("`{demo}` is not known; write true or false"),
            )
        })?);
    }
    if let Some(web_sockets) = env("PORTUNUS_SERVER_WEBSOCKETS") {
        raw.server.websockets = Some(web_sockets.parse().map_err(|_| {
            FieldError::new(
                "PORTUNUS_SERVER_WEBSOCKETS",
                format_args!("`{web_sockets}` is not known; write true or false"),
            )
        })?);
    }
    if let Some(running) = env("PORTUNUS_LIMITS_RUNNING") {
        raw.limits.running = Some(running.parse().map_err(|_| {
            FieldError::new(
                "PORTUNUS_LIMITS_RUNNING",
                format_args!("`{running}` is not a number of calls"),
            )
        })?);
    }
    if let Some(running) = env("PORTUNUS_TASKS_RUNNING") {
        raw.tasks.running = Some(running.parse().map_err(|_| {
            FieldError::new(
                "PORTUNUS_TASKS_RUNNING",
                format_args!("`{running}` is not a number of tasks"),
            )
        })?);
    }
    if let Some(resend) = env("PORTUNUS_LIMITS_RESEND") {
        raw.limits.resend = Some(resend.parse().map_err(|_| {
            FieldError::new(
                "PORTUNUS_LIMITS_RESEND",
                format_args!("`{resend}` is not known; write true or false"),
            )
        })?);
    }
    if let Some(list) = env("PORTUNUS_SERVER_TRUSTED_PROXIES") {
        raw.server.trusted_proxies = list.split(',').map(|net| net.trim().to_owned()).collect();
    }
    if let Some(valkey) = env("PORTUNUS_SHARED_VALKEY") {
        let patience = raw.shared.take().and_then(|shared| shared.patience);
        raw.shared = Some(RawShared { valkey, patience });
    }
    Ok(())
}

/// Applies the variables of certificates. One of them alone opens its section.
fn apply_tls(
    server: &mut RawServer,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(), FieldError> {
    let named = |name: &str| env(&format!("PORTUNUS_SERVER_TLS_{name}"));
    match (named("CERT"), named("KEY")) {
        (None, None) => {}
        (Some(cert), Some(key)) => {
            let tls = server.tls.get_or_insert_default();
            (tls.cert, tls.key) = (Some(cert.into()), Some(key.into()));
        }
        (Some(_), None) => return Err(FieldError::new("PORTUNUS_SERVER_TLS_KEY", "is missing")),
        (None, Some(_)) => return Err(FieldError::new("PORTUNUS_SERVER_TLS_CERT", "is missing")),
    }
    if let Some(file) = named("CLIENT_CA") {
        server.tls.get_or_insert_default().client_ca = Some(file.into());
    }
    if let Some(file) = named("CLIENT_CRL") {
        server.tls.get_or_insert_default().client_crl = Some(file.into());
    }
    if let Some(word) = named("CLIENT_CERTIFICATES") {
        server.tls.get_or_insert_default().client_certificates = Some(word);
    }
    let named = |name: &str| env(&format!("PORTUNUS_SERVER_ACME_{name}"));
    let list = |text: String| -> Vec<String> {
        text.split(',').map(|one| one.trim().to_owned()).collect()
    };
    if let Some(domains) = named("DOMAINS") {
        server.acme.get_or_insert_default().domains = list(domains);
    }
    if let Some(agreed) = named("TERMS_AGREED") {
        let agreed = agreed.parse().map_err(|_| {
            FieldError::new(
                "PORTUNUS_SERVER_ACME_TERMS_AGREED",
                format_args!("`{agreed}` is not known; write true or false"),
            )
        })?;
        server.acme.get_or_insert_default().terms_agreed = Some(agreed);
    }
    if let Some(contacts) = named("CONTACT") {
        server.acme.get_or_insert_default().contact = Some(StringOrList::Many(list(contacts)));
    }
    if let Some(directory) = named("DIRECTORY") {
        server.acme.get_or_insert_default().directory = Some(directory);
    }
    if let Some(challenge) = named("CHALLENGE") {
        server.acme.get_or_insert_default().challenge = Some(challenge);
    }
    if let Some(file) = named("CA") {
        server.acme.get_or_insert_default().ca = Some(file.into());
    }
    if let Some(id) = named("EAB_KEY_ID") {
        server.acme.get_or_insert_default().eab_key_id = Some(id);
    }
    if let Some(key) = named("EAB_KEY") {
        server.acme.get_or_insert_default().eab_key = Some(SecretRef::Text { text: key });
    }
    Ok(())
}
