//! Reports of agents that are passed on to the collector as they are.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Uri};
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;
use transport::RequestBody;

use super::{COLLECTOR_TIMEOUT, CollectorClient};

/// Reports in the queue. More are dropped, so that a slow collector takes no memory of calls.
pub(super) const MAX_QUEUED_REPORTS: usize = 16;

/// OTLP of an agent: metrics, logs or traces.
#[derive(Debug)]
pub struct AgentReport {
    /// Path at the collector, such as `/v1/metrics`.
    pub path: &'static str,
    /// Type of the body: protobuf or JSON.
    pub content_type: Option<HeaderValue>,
    /// Compression of the body.
    pub coding: Option<HeaderValue>,
    /// The body, which is not read.
    pub body: Bytes,
}

/// Sends reports until `stop`. Those that are left in the queue then are sent too.
pub(super) async fn run_relay(
    client: CollectorClient,
    mut reports: Receiver<AgentReport>,
    stop: CancellationToken,
) {
    loop {
        let report = tokio::select! {
            report = reports.recv() => report,
            () = stop.cancelled() => reports.try_recv().ok(),
        };
        match report {
            Some(report) => send(&client, report).await,
            None => return,
        }
    }
}

async fn send(client: &CollectorClient, report: AgentReport) {
    let AgentReport { path, content_type, coding, body } = report;
    let Ok(uri) = format!("{}{path}", client.collector.base_url).parse::<Uri>() else { return };
    let mut request = Request::new(RequestBody::new(vec![body]));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    let json = HeaderValue::from_static("application/json");
    headers.insert(CONTENT_TYPE, content_type.unwrap_or(json));
    if let Some(coding) = coding {
        headers.insert(CONTENT_ENCODING, coding);
    }
    for (name, value) in &client.collector.headers {
        headers.insert(name.clone(), value.clone());
    }
    match tokio::time::timeout(COLLECTOR_TIMEOUT, client.client.send(request, false)).await {
        Ok(Ok(answer)) if answer.status < 300 => {}
        Ok(Ok(answer)) => {
            tracing::debug!("the collector refused a report of an agent: {}", answer.status);
        }
        Ok(Err(lost)) => tracing::debug!("the collector could not be reached: {}", lost.cause),
        Err(_) => tracing::debug!("the collector took too long for a report of an agent"),
    }
}
