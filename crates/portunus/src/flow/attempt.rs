//! Lanes are tried in order, until one answers. The next one only before the caller saw a byte.

use axum::response::Response;
use canon::{Blame, Fault, Trouble};
use dialects::{Dialect, Peek};
use http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt as _;
use std::sync::Arc;
use std::time::Duration;
use upstream::{Answer, Body};

use super::admit::Admitted;
use super::prepare::{Prepared, prepare};
use super::settle::Tab;
use super::{Call, pump, route, whole};
use crate::config::{LiveLane, Route};

/// How much of a provider's error is read.
const ERROR_BODY: usize = 64 << 10;
/// How long a provider may take to tell its error.
const ERROR_TIME: Duration = Duration::from_secs(5);

/// Tries the lanes. On failure the tab is closed as failed.
pub(super) async fn attempt(
    call: Call,
    peek: Peek,
    found: &Route,
    admitted: Admitted,
) -> Result<Response, Fault> {
    let Admitted { mut tab, limit } = admitted;
    let call = Arc::new(call);
    let mut last = Fault::new(Trouble::Unavailable, "no provider serves this model at the moment")
        .note(format!("model {} has no lane", peek.model));
    for lane in route::lanes(found, call.app.clock.now()) {
        let prepared = match prepare(&call, &peek, found, &lane, limit) {
            Ok(prepared) => prepared,
            Err(fault) => return Err(give_up(tab, &call, fault)),
        };
        tab.try_lane(&lane.name);
        match try_lane(&call, &peek, &lane, prepared, tab).await {
            Ok(response) => {
                lane.health.good();
                return Ok(response);
            }
            Err((fault, open)) => {
                tab = open;
                if fault.blamed() == Blame::Caller {
                    return Err(give_up(tab, &call, fault));
                }
                lane.health.bad(call.app.clock.now());
                tracing::warn!(
                    lane.name = lane.name,
                    model.id = peek.model,
                    "lane `{}` failed for `{}`: {} [{}]",
                    lane.name,
                    peek.model,
                    fault,
                    fault.noted().unwrap_or_default()
                );
                last = fault;
            }
        }
    }
    Err(give_up(tab, &call, last))
}

fn give_up(tab: Tab, call: &Call, fault: Fault) -> Fault {
    let (status, _) = call.dialect.write_fault(&fault, &call.id);
    tab.failed(status);
    fault
}

/// One lane. The tab comes back with a fault, because the next lane goes on with it.
async fn try_lane(
    call: &Arc<Call>,
    peek: &Peek,
    lane: &Arc<LiveLane>,
    prepared: Prepared,
    mut tab: Tab,
) -> Result<Response, (Fault, Tab)> {
    let Prepared { outgoing, dialect, chat, losses } = prepared;
    tab.lost(losses.into_iter().map(|loss| loss.what));
    let pieces = outgoing.body.into_pieces();
    let headers = headers(call, dialect);
    let sent = lane.provider.send(&outgoing.path, headers, pieces, &lane.timeouts).await;
    let answer = match sent {
        Ok(answer) => answer,
        Err(fault) => return Err((fault, tab)),
    };
    if answer.status != 200 {
        let status = answer.status;
        let body = error_body(answer).await;
        let fault = if (400..600).contains(&status) {
            dialect.read_fault(status, &body)
        } else {
            Fault::new(Trouble::Unavailable, "the provider gave no usable answer, retry later")
                .note(format!("status {status}"))
        };
        return Err((fault, tab));
    }
    if peek.stream {
        pump::stream(call, peek, lane, dialect, chat, answer, tab).await
    } else {
        whole::whole(call, lane, dialect, chat, answer, tab).await
    }
}

/// The headers of the lane's format, and on the same-dialect road the caller's own.
fn headers(call: &Call, dialect: &'static dyn Dialect) -> HeaderMap {
    let same = dialect.origin() == call.dialect.origin();
    let mut headers = if same { call.handed_on.clone() } else { HeaderMap::new() };
    for (name, value) in dialect.headers() {
        headers.entry(*name).or_insert(HeaderValue::from_static(value));
    }
    headers
}

/// What a provider says of its error, as far as it says it soon and briefly.
async fn error_body(answer: Answer) -> Vec<u8> {
    let mut body: Body = answer.body;
    let mut read = Vec::new();
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(data) = frame.into_data() {
                read.extend_from_slice(&data);
            }
            if read.len() > ERROR_BODY {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(ERROR_TIME, reading).await;
    read
}
