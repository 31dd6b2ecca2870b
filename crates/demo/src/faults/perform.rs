//! A script carried out: byte by byte over HTTP/1, as far as the protocol can say it over HTTP/2.

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

use super::script::{End, Framing, Script, Step};
use super::socket::Line;
use crate::server::Ticket;

/// How long what was sent over HTTP/2 may take to leave before its stream is reset.
const FLUSH: Duration = Duration::from_millis(50);

/// Carries a script out over HTTP/1. Never returns: its last act is to have the connection dropped,
/// and a caller that leaves drops it before.
pub(crate) async fn over_http1(script: Script, line: &Line, mut ticket: Option<Ticket>) {
    // A broken pipe is a caller that left; the ticket, dropped open, says so.
    let done = say(&script, line, &mut ticket).await;
    if done.is_ok() {
        match script.end {
            End::Hold | End::Extra => return pending().await,
            End::Reset | End::Stream(_) => line.reset(),
            End::Proper | End::Stale | End::Trailers(_) | End::Close | End::Goodbye => {}
        }
        if let Some(ticket) = ticket.take() {
            ticket.sent();
        }
    }
    line.closing.notify_one();
    pending().await
}

async fn say(script: &Script, line: &Line, ticket: &mut Option<Ticket>) -> io::Result<()> {
    line.write(script.before.clone()).await?;
    if let Some(wait) = script.wait {
        tokio::time::sleep(wait).await;
    }
    let Some(head) = &script.head else { return Ok(()) };
    line.write(head.to_bytes(&script.end).into()).await?;
    for step in &script.body {
        match step {
            Step::Send { bytes, tokens } => {
                line.write(head.framing.wrap(bytes)).await?;
                if let Some(ticket) = ticket {
                    ticket.produced(*tokens);
                }
                // Pieces must not melt into one read on the other side.
                tokio::task::yield_now().await;
            }
            Step::Repeat { bytes, times } => {
                let bytes = head.framing.wrap(bytes);
                for _ in 0..*times {
                    line.write(bytes.clone()).await?;
                }
            }
            Step::Wait(time) => tokio::time::sleep(*time).await,
        }
    }
    line.write(last(head.framing, &script.end)).await
}

/// What follows the body.
fn last(framing: Framing, end: &End) -> Bytes {
    let chunked = framing == Framing::Chunked;
    match end {
        End::Proper | End::Stale | End::Goodbye if chunked => Bytes::from_static(b"0\r\n\r\n"),
        End::Proper | End::Stale | End::Goodbye => Bytes::new(),
        End::Trailers(list) if chunked => {
            let lines: Vec<String> = list.iter().map(|(k, v)| format!("{k}: {v}\r\n")).collect();
            format!("0\r\n{}\r\n", lines.concat()).into()
        }
        End::Trailers(_) | End::Extra | End::Close | End::Reset | End::Hold | End::Stream(_) => {
            Bytes::new()
        }
    }
}

/// The answer of a script over HTTP/2. What only HTTP/1 could say ends as a reset stream.
pub(crate) async fn over_http2(
    script: Script,
    line: &Arc<Line>,
    ticket: Option<Ticket>,
) -> Result<Response<Steps>, h2::Error> {
    let Script { before, head, wait, body, end, refuse: _ } = script;
    if let Some(wait) = wait {
        tokio::time::sleep(wait).await;
    }
    if end == End::Hold && head.is_none() {
        return pending().await;
    }
    if end == End::Close && head.is_none() && !before.is_empty() {
        // Whoever left meanwhile does not hear it.
        let _ = line.write(before).await;
        if let Some(ticket) = ticket {
            ticket.sent();
        }
        line.closing.notify_one();
        return pending().await;
    }
    if end == End::Goodbye {
        line.goodbye.notify_one();
    }
    let reason = match end {
        End::Stream(reason) => reason,
        End::Proper
        | End::Stale
        | End::Trailers(_)
        | End::Extra
        | End::Close
        | End::Reset
        | End::Hold
        | End::Goodbye => h2::Reason::INTERNAL_ERROR,
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
    if matches!(end, End::Close | End::Reset | End::Stream(_)) {
        // A reset takes back what has not left yet.
        steps.push_back(Step::Wait(FLUSH));
    }
    let steps = Steps { steps, sleep: None, end: Some(end), ticket };
    Ok(response.map(|()| steps))
}

/// The body of a script over HTTP/2.
pub(crate) struct Steps {
    steps: VecDeque<Step>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Taken when it was said.
    end: Option<End>,
    ticket: Option<Ticket>,
}

impl http_body::Body for Steps {
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
                Some(Step::Wait(time)) => self.sleep = Some(Box::pin(tokio::time::sleep(time))),
                Some(Step::Send { bytes, tokens }) => {
                    if let Some(ticket) = &mut self.ticket {
                        ticket.produced(tokens);
                    }
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Some(Step::Repeat { bytes, times }) => {
                    if times > 1 {
                        let times = times - 1;
                        self.steps.push_front(Step::Repeat { bytes: bytes.clone(), times });
                    }
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                None => return self.finish(),
            }
        }
    }
}

impl Steps {
    fn finish(&mut self) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if self.end == Some(End::Hold) {
            // Nothing wakes this up but the caller's leaving.
            return Poll::Pending;
        }
        if let Some(ticket) = self.ticket.take() {
            ticket.sent();
        }
        Poll::Ready(match self.end.take() {
            None | Some(End::Proper | End::Stale | End::Extra | End::Hold | End::Goodbye) => None,
            Some(End::Close | End::Reset) => Some(Err(h2::Error::from(h2::Reason::INTERNAL_ERROR))),
            Some(End::Stream(reason)) => Some(Err(h2::Error::from(reason))),
            Some(End::Trailers(list)) => {
                let named = |(name, value): &(&'static str, &'static str)| {
                    (HeaderName::from_static(name), HeaderValue::from_static(value))
                };
                Some(Ok(Frame::trailers(list.iter().map(named).collect::<HeaderMap>())))
            }
        })
    }
}
