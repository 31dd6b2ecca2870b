//! Runs one translation many times, for callgrind. Counts only the function `measured`:
//!
//! `valgrind --tool=callgrind --toggle-collect='*measured*' translate CALLER LANE KIND FOLDER`
//!
//! `KIND` is `facts`, `request`, `reply` or `stream`, and for one format `whole` or `pass`. `FOLDER` holds the samples
//! `FORMAT.request.whole`, `FORMAT.reply.whole` and `FORMAT.reply.stream`.

use bytes::Bytes;
use canon::{ChatRequest, Event, StopEnforcer, WireFormat};
use dialects::{
    Dialect, FrameAction, LaneSettings, ReplyMeter, ReplyStamp, RequestFacts, RequestTarget,
    RequestUse, SseDecoder, TextRun,
};
use std::error::Error;
use std::hint::black_box;
use std::path::Path;

/// Number of measured runs. The figures of callgrind are divided by it.
const RUNS: usize = 100;

/// One translation with its samples.
struct TranslationSample {
    caller: &'static dyn Dialect,
    lane: &'static dyn Dialect,
    request: Bytes,
    reply: Bytes,
    /// The parsed request, for what comes after it.
    chat: ChatRequest,
    stamp: ReplyStamp,
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [caller, lane, kind, folder] = words.as_slice() else {
        return Err("usage: translate CALLER LANE KIND FOLDER".into());
    };
    let sample = |format: &str, what: &str| {
        std::fs::read(Path::new(folder).join(format!("{format}.{what}"))).map(Bytes::from)
    };
    let size = if matches!(kind.as_str(), "stream" | "pass") { "stream" } else { "whole" };
    let (caller, lane_format) = (format(caller)?, format(lane)?);
    let request = sample(caller.origin().as_str(), &format!("request.{size}"))?;
    let sample = TranslationSample {
        caller,
        lane: lane_format,
        chat: caller.read_request(&target(), &request)?,
        request,
        reply: sample(lane, &format!("reply.{size}"))?,
        stamp: ReplyStamp { id: "01234567890123456789".to_owned(), created: 1_700_000_000 },
    };
    let run: fn(&TranslationSample) -> Result<usize, Box<dyn Error>> = match kind.as_str() {
        "facts" => facts,
        "request" => translate_request,
        "reply" => reply,
        "stream" => stream,
        "pass" => pass,
        "whole" => whole,
        other => return Err(format!("unknown kind {other}").into()),
    };
    run(&sample)?;
    for _ in 0..RUNS {
        black_box(measured(run, &sample)?);
    }
    Ok(())
}

fn format(name: &str) -> Result<&'static dyn Dialect, Box<dyn Error>> {
    let found = WireFormat::ALL.into_iter().find(|format| format.as_str() == name);
    Ok(found.and_then(dialects::get).ok_or("unknown format")?)
}

/// The function that callgrind counts.
#[inline(never)]
fn measured(
    run: fn(&TranslationSample) -> Result<usize, Box<dyn Error>>,
    sample: &TranslationSample,
) -> Result<usize, Box<dyn Error>> {
    run(black_box(sample))
}

fn target() -> RequestTarget {
    RequestTarget { model: Some("m".to_owned()), ..RequestTarget::default() }
}

fn facts(sample: &TranslationSample) -> Result<usize, Box<dyn Error>> {
    Ok(sample.caller.read_facts(&target(), &sample.request)?.model.len())
}

fn translate_request(sample: &TranslationSample) -> Result<usize, Box<dyn Error>> {
    let settings = LaneSettings {
        model: "m",
        max_payable_output: None,
        model_max_output: None,
        thinking_range: None,
        cache_field: None,
        client_tools: &[canon::ToolKind::Custom],
    };
    let parsed = sample.caller.parse(&target(), &sample.request, RequestUse::Both(&|_| true))?;
    let chat = parsed.chat.ok_or("the request was not read")?;
    let (written, _) = sample.lane.write_request(&chat, &settings)?;
    Ok(written.body.len())
}

fn reply(sample: &TranslationSample) -> Result<usize, Box<dyn Error>> {
    let reply = sample.lane.read_reply(&sample.reply)?;
    let meter = ReplyMeter::of_reply(&reply);
    let (written, _) = sample.caller.write_reply(reply, &sample.chat, &sample.stamp);
    Ok(written.len() + usize::from(meter.is_finished))
}

fn whole(sample: &TranslationSample) -> Result<usize, Box<dyn Error>> {
    let facts = RequestFacts { model: sample.chat.model.clone(), ..RequestFacts::default() };
    let (meter, body) = sample.caller.pass_reply(&sample.reply, &facts, &sample.stamp)?;
    Ok(body.len() + usize::from(meter.is_finished))
}

fn stream(sample: &TranslationSample) -> Result<usize, Box<dyn Error>> {
    let mut reader = sample.lane.stream_reader();
    let mut writer = sample.caller.stream_writer(&sample.chat, &sample.stamp);
    let mut enforcer = StopEnforcer::forwarding_all(1, sample.lane.origin());
    let mut decoder = SseDecoder::default();
    let mut events: Vec<Event> = Vec::new();
    let mut out = Vec::with_capacity(sample.reply.len());
    decoder.push(sample.reply.clone());
    let mut run = TextRun::default();
    loop {
        let taken = decoder.events().map_or(0, |events| reader.repeat(events, &mut run));
        if taken > 0 {
            writer.push_run(&run, &mut out);
            decoder.skip(taken);
        }
        let Some(frame) = decoder.next_frame()? else { break };
        reader.push(&frame, &mut events)?;
        for event in events.drain(..) {
            enforcer.push(event, &mut |event| writer.push(event, &mut out));
        }
    }
    writer.finish(&mut out);
    Ok(out.len())
}

fn pass(sample: &TranslationSample) -> Result<usize, Box<dyn Error>> {
    let facts = sample.caller.read_facts(&target(), &sample.request)?;
    let mut meter = sample.caller.stream_meter(&facts);
    let mut decoder = SseDecoder::default();
    let mut out = Vec::with_capacity(sample.reply.len());
    decoder.push(sample.reply.clone());
    loop {
        let taken = decoder.events().map_or(0, |events| meter.repeat(events, &mut out));
        decoder.skip(taken);
        let Some(frame) = decoder.next_frame()? else { break };
        match meter.observe(&frame) {
            FrameAction::Forward | FrameAction::Last => meter.write(&frame, &mut out),
            FrameAction::Drop => {}
            FrameAction::Error(error) => return Err(error.into()),
        }
    }
    Ok(out.len())
}
