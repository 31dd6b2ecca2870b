//! Entry points for untrusted bytes: the frame decoder, and each format's requests, replies,
//! streams and errors. The property tests and the fuzz targets in `fuzz/` call the same functions,
//! which must neither panic nor violate the event grammar.

use ::bytes::Bytes;
use canon::{ChatRequest, EventGrammar, into_events};
use dialects::{
    Dialect, FrameAction, LaneSettings, ReplyStamp, RequestFacts, RequestTarget, SseDecoder,
    StreamFrame,
};

fn target() -> RequestTarget {
    RequestTarget { model: Some("m".to_owned()), stream: true, ..RequestTarget::default() }
}

fn lane() -> LaneSettings<'static> {
    LaneSettings {
        model: "m",
        max_payable_output: Some(99),
        model_max_output: Some(8192),
        thinking_range: None,
        cache_field: None,
        client_tools: &[canon::ToolKind::Custom],
    }
}

fn stamp() -> ReplyStamp {
    ReplyStamp { id: "stamp".to_owned(), created: 1_790_000_000 }
}

/// Splits bytes into frames. The result must not depend on how the bytes are split on the way.
pub(crate) fn cut(bytes: &[u8], at: usize) -> Vec<StreamFrame> {
    let frames = |pieces: &[&[u8]]| {
        let mut cutter = SseDecoder::default();
        let mut frames = Vec::new();
        for piece in pieces {
            cutter.push(Bytes::copy_from_slice(piece));
            while let Ok(Some(frame)) = cutter.next_frame() {
                frames.push(frame);
            }
        }
        if let Ok(last) = cutter.finish() {
            frames.extend(last);
        }
        frames
    };
    let whole = frames(&[bytes]);
    let (front, back) = bytes.split_at(at.min(bytes.len()));
    assert_eq!(frames(&[front, back]), whole);
    whole
}

/// Runs a request: one that passes the rules can be read, patched and written.
pub(crate) fn request(dialect: &dyn Dialect, body: &[u8]) -> Option<ChatRequest> {
    let peek = dialect.read_facts(&target(), body);
    let chat = dialect.read_request(&target(), body);
    if let Ok(peek) = &peek {
        dialect.patch(&Bytes::copy_from_slice(body), peek, &lane());
    }
    let chat = chat.ok()?;
    let _ = dialect.write_request(&chat, &lane());
    peek.is_ok().then_some(chat)
}

/// Runs a reply, or an error in its place.
pub(crate) fn answer(dialect: &dyn Dialect, body: &[u8]) {
    let _ = dialect.meter_reply(body);
    let fault = dialect.read_error(500, body);
    dialect.write_error(&fault, "request");
    let Ok(reply) = dialect.read_reply(body) else { return };
    for caller in dialects::all() {
        caller.write_reply(reply.clone(), &ChatRequest::default(), &stamp());
        let mut writer = caller.stream_writer(&ChatRequest::default(), &stamp());
        let mut out = Vec::new();
        for event in into_events(reply.clone()) {
            writer.push(event, &mut out);
        }
        writer.finish(&mut out);
    }
}

/// Runs a stream through its meter and into a stream of every format.
pub(crate) fn stream(dialect: &dyn Dialect, bytes: &[u8]) {
    let mut reader = dialect.stream_reader();
    let mut sniffer =
        dialect.stream_meter(&RequestFacts { candidates: 1, ..RequestFacts::default() });
    let mut writers: Vec<_> = dialects::all()
        .map(|caller| caller.stream_writer(&ChatRequest::default(), &stamp()))
        .collect();
    let (mut events, mut out) = (Vec::new(), Vec::new());
    let mut grammar = EventGrammar::default();
    let mut watched = true;
    for frame in cut(bytes, bytes.len() / 2) {
        if watched {
            watched = matches!(sniffer.observe(&frame), FrameAction::Forward | FrameAction::Drop);
            sniffer.write(&frame, &mut out);
        }
        let told = reader.push(&frame, &mut events);
        for event in events.drain(..) {
            assert_eq!(grammar.push(&event), Ok(()));
            for writer in &mut writers {
                writer.push(event.clone(), &mut out);
            }
        }
        if told.is_err() {
            return;
        }
    }
    sniffer.write_end(&mut out);
    if reader.finish(&mut events).is_ok() {
        for event in events {
            assert_eq!(grammar.push(&event), Ok(()));
        }
        assert_eq!(grammar.finish(), Ok(()));
    }
    for mut writer in writers {
        writer.finish(&mut out);
    }
}

/// Writes a valid request in every other format and reads it there.
pub(crate) fn cross(from: &dyn Dialect, body: &[u8]) {
    let Some(chat) = request(from, body) else { return };
    for to in dialects::all() {
        let Ok((out, _)) = to.write_request(&chat, &lane()) else { continue };
        let written = out.body.to_vec();
        // A rule may refuse what a misshapen request became, in words that name the field. A type
        // is never wrong.
        let again = to.read_request(&target(), &written);
        let is_fine = again.as_ref().err().is_none_or(|error| error.message().starts_with('`'));
        assert!(is_fine, "{again:?}\n{}", String::from_utf8_lossy(&written));
    }
}
