//! Lanes are tried in order, until one answers. The next one only before the caller saw a byte.

use axum::response::Response;
use canon::{Blame, Fault, Trouble};
use dialects::{Dialect, Outgoing, Peek};
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

/// Has a conversation answered by one of the lanes. On failure the tab is closed as failed.
pub(super) async fn attempt(
    call: Call,
    peek: Peek,
    found: &Route,
    admitted: Admitted,
) -> Result<Response, Fault> {
    let Admitted { tab, limit } = admitted;
    let (call, peek) = (&Arc::new(call), &peek);
    let one = |lane: Arc<LiveLane>, mut tab: Tab| async move {
        let prepared = match prepare(call, peek, found, &lane, limit) {
            Ok(prepared) => prepared,
            Err(fault) => return Err((fault, tab)),
        };
        tab.try_lane(&lane.name);
        try_lane(call, peek, &lane, prepared, tab).await
    };
    over_lanes(call, &peek.model, found, tab, one).await
}

/// Tries the lanes in order, whatever is asked of them. On failure the tab is closed as failed.
pub(super) async fn over_lanes<F, A>(
    call: &Call,
    model: &str,
    found: &Route,
    mut tab: Tab,
    one: F,
) -> Result<Response, Fault>
where
    F: Fn(Arc<LiveLane>, Tab) -> A,
    A: Future<Output = Result<Response, (Fault, Tab)>>,
{
    let mut last = Fault::new(Trouble::Unavailable, "no provider serves this model at the moment")
        .note(format!("model {model} has no lane"));
    for lane in route::lanes(found, call.app.clock.now()) {
        match one(Arc::clone(&lane), tab).await {
            Ok(response) => {
                lane.health.good();
                return Ok(response);
            }
            Err((fault, open)) => {
                tab = open;
                if fault.blamed() == Blame::Caller {
                    return Err(give_up(tab, call, fault));
                }
                lane.health.bad(call.app.clock.now());
                tracing::warn!(
                    lane.name = lane.name,
                    model.id = model,
                    "lane `{}` failed for `{}`: {} [{}]",
                    lane.name,
                    model,
                    fault,
                    fault.noted().unwrap_or_default()
                );
                last = fault;
            }
        }
    }
    Err(give_up(tab, call, last))
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
    let Prepared { outgoing, dialect, speech, losses } = prepared;
    tab.lost(losses.into_iter().map(|loss| loss.what));
    let answer = match send(call, lane, dialect, outgoing).await {
        Ok(answer) => answer,
        Err(fault) => return Err((fault, tab)),
    };
    match speech {
        speech if peek.stream => pump::stream(call, peek, lane, dialect, speech, answer, tab).await,
        Some(speech) if speech.brake.is_some() => {
            whole::gather(call, lane, dialect, speech, answer, tab).await
        }
        speech => {
            let chat = speech.map(|speech| speech.chat);
            whole::whole(call, lane, dialect, chat, answer, tab).await
        }
    }
}

/// Sends a request to a lane; anything but a 200 is a fault.
pub(super) async fn send(
    call: &Call,
    lane: &LiveLane,
    dialect: &'static dyn Dialect,
    outgoing: Outgoing,
) -> Result<Answer, Fault> {
    let pieces = outgoing.body.into_pieces();
    let headers = headers(call, dialect);
    let answer = lane.provider.send(&outgoing.path, headers, pieces, &lane.timeouts).await?;
    let status = answer.status;
    if status == 200 {
        return Ok(answer);
    }
    let body = error_body(answer).await;
    if (400..600).contains(&status) {
        return Err(dialect.read_fault(status, &body));
    }
    Err(Fault::new(Trouble::Unavailable, "the provider gave no usable answer, retry later")
        .note(format!("status {status}")))
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
