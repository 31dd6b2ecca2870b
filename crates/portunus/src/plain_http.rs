//! The listener without TLS beside one with TLS: it answers challenges of an authority over HTTP (RFC 8555,
//! section 8.3) and sends everybody else to https.

use access::authentication::KEY_HEADERS;
use canon::{ApiError, Micros};
use http::{Method, StatusCode};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;
use transport::server::{ListenerSettings, RequestHandler, accept};
use transport::{HttpLimits, RequestHead, ServerBody, ServerReply, ServerRequest};

use crate::acme::ChallengeStore;
use crate::app::App;

/// Path of challenges, before the token.
const CHALLENGE_PATH: &str = "/.well-known/acme-challenge/";
/// Connections of this listener, and those of one address. Their descriptors are reserved ones.
const MAX_CONNECTIONS: usize = 128;
const MAX_CONNECTIONS_PER_ADDRESS: usize = 32;
const TEXT: &str = "content-type: text/plain; charset=utf-8\r\ncache-control: no-store\r\n";

/// Serves until another process listens, or the gateway stops.
pub(crate) async fn serve_plain_http(app: Arc<App>, listener: TcpListener) {
    let connections = Arc::clone(&app.plain_connections);
    // No tasks of the engine, because a stopping process waits for those.
    let tasks = TaskTracker::new();
    let challenges = Arc::new(ChallengeStore::new(Arc::clone(&app)));
    let settings = || {
        let limits = app.config().http_limits;
        let limits = HttpLimits {
            connections: MAX_CONNECTIONS,
            connections_per_address: limits
                .connections_per_address
                .min(MAX_CONNECTIONS_PER_ADDRESS),
            ..limits
        };
        ListenerSettings { limits, tls: None }
    };
    let handler =
        |_| PlainHttpHandler { app: Arc::clone(&app), challenges: Arc::clone(&challenges) };
    accept(listener, connections, tasks, settings, handler, app.handed_over.cancelled()).await;
}

/// Answers the requests of one connection.
struct PlainHttpHandler {
    app: Arc<App>,
    challenges: Arc<ChallengeStore>,
}

fn text_reply(status: StatusCode, text: String) -> ServerReply {
    let mut reply = ServerReply::with_lines(TEXT, ServerBody::Whole(text.into()));
    reply.status = status;
    reply
}

impl RequestHandler for PlainHttpHandler {
    type Context = ();

    fn context(&self, _: &Arc<RequestHead>) -> Self::Context {}

    async fn answer(&self, request: ServerRequest, (): &Self::Context) -> ServerReply {
        let reads = [Method::GET, Method::HEAD].contains(request.method());
        // A cookie carries a session.
        let has_key = KEY_HEADERS.iter().any(|name| request.headers().contains(name))
            || request.headers().contains("cookie")
            || request.query().contains("key=");
        let challenge = request.path().strip_prefix(CHALLENGE_PATH);
        if let Some(token) = challenge.filter(|_| reads && !has_key) {
            return match self.challenges.http_answer(token).await {
                Some(answer) => text_reply(StatusCode::OK, answer),
                None => {
                    text_reply(StatusCode::NOT_FOUND, "there is no such challenge\n".to_owned())
                }
            };
        }
        let url = self.app.config().public_url.clone();
        if !reads || has_key || !url.starts_with("https://") {
            // A redirect would hide from its caller that a key was sent unprotected.
            let text = format!(
                "this gateway is served by https only: use {url}; replace a key that was sent here, \
                 because others may have read it\n"
            );
            return text_reply(StatusCode::FORBIDDEN, text);
        }
        // The address of the configuration and not that of the caller, who may name any host.
        let query = request.query();
        let mark = if query.is_empty() { "" } else { "?" };
        let target = format!("{url}{}{mark}{query}", request.path());
        let mut reply = text_reply(StatusCode::PERMANENT_REDIRECT, format!("see {target}\n"));
        reply.headers.insert("location", target.as_bytes());
        reply
    }

    fn refuse(&self, error: &ApiError, _path: &str) -> ServerReply {
        text_reply(StatusCode::BAD_REQUEST, format!("{}\n", error.message()))
    }

    fn stopped(&self, (): &Self::Context) -> ServerReply {
        text_reply(StatusCode::SERVICE_UNAVAILABLE, "the gateway stops\n".to_owned())
    }

    fn now(&self) -> Micros {
        self.app.clock.now()
    }
}
