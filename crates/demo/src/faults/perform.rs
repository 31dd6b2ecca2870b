//! Execution of a script: byte by byte over HTTP/1, and within the limits of the protocol over
//! HTTP/2.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::Frame;
use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Sleep;

use super::script::{AnswerScript, BodyFraming, ScriptEnd, ScriptStep};
use super::socket::SharedSocket;
use crate::server::MeterTicket;

/// Time for sent HTTP/2 frames to leave before the stream is reset.
const FLUSH_TIME: Duration = Duration::from_millis(50);

/// Executes a script over HTTP/1. Never returns: its last step requests that the connection be
/// dropped, and a caller that leaves drops it earlier.
pub(crate) async fn over_http1(
    script: AnswerScript,
    line: &SharedSocket,
    mut ticket: Option<MeterTicket>,
) {
    // A broken pipe means that the caller left. The ticket is dropped open and records it.
    let done = say(&script, line, &mut ticket).await;
    if done.is_ok() {
        match script.end {
            ScriptEnd::Hold | ScriptEnd::Extra => return pending().await,
            ScriptEnd::Reset | ScriptEnd::Stream(_) => line.reset(),
            ScriptEnd::Proper
            | ScriptEnd::Stale
            | ScriptEnd::Trailers(_)
            | ScriptEnd::Close
            | ScriptEnd::Goodbye => {}
        }
        if let Some(ticket) = ticket.take() {
            ticket.sent();
        }
    }
    line.closing.notify_one();
    pending().await
}

async fn say(
    script: &AnswerScript,
    line: &SharedSocket,
    ticket: &mut Option<MeterTicket>,
) -> io::Result<()> {
    line.write(script.before.clone()).await?;
    if let Some(wait) = script.wait {
        tokio::time::sleep(wait).await;
    }
    let Some(head) = &script.head else { return Ok(()) };
    line.write(head.to_bytes(&script.end).into()).await?;
    for step in &script.body {
        match step {
            ScriptStep::Send { bytes, tokens } => {
                line.write(head.framing.wrap(bytes)).await?;
                if let Some(ticket) = ticket {
                    ticket.produced(*tokens);
                }
                // The caller must not read two pieces at once.
                tokio::task::yield_now().await;
            }
            ScriptStep::Repeat { bytes, times } => {
                let bytes = head.framing.wrap(bytes);
                for _ in 0..*times {
                    line.write(bytes.clone()).await?;
                }
            }
            ScriptStep::Wait(time) => tokio::time::sleep(*time).await,
        }
    }
    line.write(last(head.framing, &script.end)).await
}

/// Returns the bytes after the body.
fn last(framing: BodyFraming, end: &ScriptEnd) -> Bytes {
    let chunked = framing == BodyFraming::Chunked;
    match end {
        ScriptEnd::Proper | ScriptEnd::Stale | ScriptEnd::Goodbye if chunked => {
            Bytes::from_static(b"0\r\n\r\n")
        }
        ScriptEnd::Proper | ScriptEnd::Stale | ScriptEnd::Goodbye => Bytes::new(),
        ScriptEnd::Trailers(list) if chunked => {
            let lines: Vec<String> = list.iter().map(|(k, v)| format!("{k}: {v}\r\n")).collect();
            format!("0\r\n{}\r\n", lines.concat()).into()
        }
        ScriptEnd::Trailers(_)
        | ScriptEnd::Extra
        | ScriptEnd::Close
        | ScriptEnd::Reset
        | ScriptEnd::Hold
        | ScriptEnd::Stream(_) => Bytes::new(),
    }
}

/// Executes a script over HTTP/2. Faults that only HTTP/1 can express end as a reset stream.
pub(crate) async fn over_http2(
    script: AnswerScript,
    line: &Arc<SharedSocket>,
    ticket: Option<MeterTicket>,
) -> Result<Response<ScriptBody>, h2::Error> {
    let AnswerScript { before, head, wait, body, end, refuse: _ } = script;
    if let Some(wait) = wait {
        tokio::time::sleep(wait).await;
    }
    if end == ScriptEnd::Hold && head.is_none() {
        return pending().await;
    }
    if end == ScriptEnd::Close && head.is_none() && !before.is_empty() {
        // The caller may have left.
        let _ = line.write(before).await;
        if let Some(ticket) = ticket {
            ticket.sent();
        }
        line.closing.notify_one();
        return pending().await;
    }
    if end == ScriptEnd::Goodbye {
        line.goodbye.notify_one();
    }
    let reason = match end {
        ScriptEnd::Stream(reason) => reason,
        ScriptEnd::Proper
        | ScriptEnd::Stale
        | ScriptEnd::Trailers(_)
        | ScriptEnd::Extra
        | ScriptEnd::Close
        | ScriptEnd::Reset
        | ScriptEnd::Hold
        | ScriptEnd::Goodbye => h2::Reason::INTERNAL_ERROR,
    };
    let response = head.and_then(|head| {
        let code = head.status.split(' ').next()?.parse().ok()?;
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(code).ok()?;
        for (name, value) in head.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            response.headers_mut().append(name, HeaderValue::from_maybe_shared(value).ok()?);
        }
        Some(response)
    });
    let Some(response) = response else {
        if let Some(ticket) = ticket {
            ticket.sent();
        }
        return Err(h2::Error::from(reason));
    };
    let mut steps = VecDeque::from(body);
    if matches!(end, ScriptEnd::Close | ScriptEnd::Reset | ScriptEnd::Stream(_)) {
        // A reset discards frames that have not left yet.
        steps.push_back(ScriptStep::Wait(FLUSH_TIME));
    }
    let steps = ScriptBody { steps, sleep: None, end: Some(end), ticket };
    Ok(response.map(|()| steps))
}

/// The body of a script over HTTP/2.
pub(crate) struct ScriptBody {
    steps: VecDeque<ScriptStep>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// `None` once it has been sent.
    end: Option<ScriptEnd>,
    ticket: Option<MeterTicket>,
}

impl http_body::Body for ScriptBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        loop {
            if let Some(sleep) = &mut self.sleep {
                ready!(sleep.as_mut().poll(cx));
                self.sleep = None;
            }
            match self.steps.pop_front() {
                Some(ScriptStep::Wait(time)) => {
                    self.sleep = Some(Box::pin(tokio::time::sleep(time)))
                }
                Some(ScriptStep::Send { bytes, tokens }) => {
                    if let Some(ticket) = &mut self.ticket {
                        ticket.produced(tokens);
                    }
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Some(ScriptStep::Repeat { bytes, times }) => {
                    if times > 1 {
                        let times = times - 1;
                        self.steps.push_front(ScriptStep::Repeat { bytes: bytes.clone(), times });
                    }
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                None => return self.finish(),
            }
        }
    }
}

impl ScriptBody {
    fn finish(&mut self) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if self.end == Some(ScriptEnd::Hold) {
            // Only the end of the connection wakes this task.
            return Poll::Pending;
        }
        if let Some(ticket) = self.ticket.take() {
            ticket.sent();
        }
        Poll::Ready(match self.end.take() {
            None
            | Some(
                ScriptEnd::Proper
                | ScriptEnd::Stale
                | ScriptEnd::Extra
                | ScriptEnd::Hold
                | ScriptEnd::Goodbye,
            ) => None,
            Some(ScriptEnd::Close | ScriptEnd::Reset) => {
                Some(Err(h2::Error::from(h2::Reason::INTERNAL_ERROR)))
            }
            Some(ScriptEnd::Stream(reason)) => Some(Err(h2::Error::from(reason))),
            Some(ScriptEnd::Trailers(list)) => {
                let named = |(name, value): &(&'static str, &'static str)| {
                    (HeaderName::from_static(name), HeaderValue::from_static(value))
                };
                Some(Ok(Frame::trailers(list.iter().map(named).collect::<HeaderMap>())))
            }
        })
    }
}
