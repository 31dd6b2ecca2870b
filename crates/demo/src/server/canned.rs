//! Prepared answers, to measure a gateway rather than this upstream.

use bytes::Bytes;
use canon::{
    ChatReply, ChatRequest, Event, Finish, FinishReason, Part, RawReason, ReplyCandidate, Usage,
    WireFormat,
};
use dialects::{Dialect, ReplyStamp};
use std::sync::OnceLock;

use super::body::split_events;
use crate::model::finish_word;
use crate::pieces;

/// Number of content events of a prepared stream, without the format's own events.
const CONTENT_EVENTS: usize = 100;

/// A prepared answer of one format.
pub(super) struct CannedAnswer {
    /// The complete answer.
    pub(super) whole: Bytes,
    /// The answer as a stream, one piece for each event.
    pub(super) burst: Vec<Bytes>,
    /// Usage of the answer.
    pub(super) usage: Usage,
}

/// Returns the prepared answer of that format, made once.
pub(super) fn of(dialect: &dyn Dialect) -> &'static CannedAnswer {
    static ALL: [OnceLock<CannedAnswer>; 5] = [const { OnceLock::new() }; 5];
    let [chat, responses, messages, native, images] = &ALL;
    let cell = match dialect.origin() {
        WireFormat::Chat => chat,
        WireFormat::Responses => responses,
        WireFormat::Messages => messages,
        WireFormat::Native => native,
        WireFormat::Images => images,
    };
    cell.get_or_init(|| make(dialect))
}

/// Returns true if a body asks for a stream, without parsing it.
pub(super) fn asks_for_stream(body: &[u8]) -> bool {
    const FIELD: &[u8] = b"\"stream\"";
    body.windows(FIELD.len()).enumerate().any(|(at, window)| {
        window == FIELD && {
            let rest = body.get(at + FIELD.len()..).unwrap_or_default();
            let rest = rest.trim_ascii_start();
            let value = rest.strip_prefix(b":").map(<[u8]>::trim_ascii_start);
            value.is_some_and(|value| value.starts_with(b"true"))
        }
    })
}

fn make(dialect: &dyn Dialect) -> CannedAnswer {
    let chat = ChatRequest { model: "demo-chat".to_owned(), ..ChatRequest::default() };
    let stamp = ReplyStamp { id: "canned".to_owned(), created: super::stamp::now() };
    // Alternating one and two tokens give two pieces per three words.
    let text = "tide ".repeat(CONTENT_EVENTS * 3 / 2);
    let usage = Usage { input: 16, output: crate::tokens::count(&text), ..Usage::default() };
    let (origin, reason) = (dialect.origin(), FinishReason::Stop);
    let finish = Finish::new(reason, RawReason::new(origin, finish_word(origin, reason)));
    let candidate = ReplyCandidate {
        parts: vec![Part::text(text)],
        finish: Some(finish),
        ..ReplyCandidate::default()
    };
    let reply =
        ChatReply { candidates: vec![candidate], usage: Some(usage), ..ChatReply::default() };
    let streamed = ChatRequest { stream: true, ..chat.clone() };
    let mut writer = dialect.stream_writer(&streamed, &stamp);
    let mut burst = Vec::new();
    for event in pieces::events(reply.clone()) {
        if !matches!(event, Event::Extra { .. }) {
            writer.push(event, &mut burst);
        }
    }
    let _ = writer.finish(&mut burst);
    let (whole, _) = dialect.write_reply(reply, &chat, &stamp);
    CannedAnswer { whole: whole.into(), burst: split_events(burst.into()), usage }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prepared_answer_is_finished_in_every_format() {
        for format in
            [WireFormat::Chat, WireFormat::Responses, WireFormat::Messages, WireFormat::Native]
        {
            let dialect = dialects::get(format).unwrap();
            let reply = dialect.read_reply(&of(dialect).whole).unwrap();
            let finish = reply.candidates.first().and_then(|one| one.finish.as_ref()).unwrap();
            assert_eq!(finish.reason, FinishReason::Stop, "{format:?}");
        }
    }
}
