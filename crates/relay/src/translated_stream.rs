//! A stream between two formats: the lane's frames become events, and events the caller's bytes.

use canon::{ApiError, ChatReply, ChatRequest, Event, Loss, Lossy, PartDelta, ReplyBuilder, Usage};
use dialects::{
    CustomToolCalls, Dialect, ReplyMeter, ReplyStamp, RequestFacts, StopEnforcer, StreamFrame,
    StreamReader, StreamWriter, event_tier,
};

use super::Call;
use super::prepare::LaneTranslation;
use super::signature_cache::SignatureCollector;

pub(super) struct TranslatedStream {
    reader: Box<dyn StreamReader>,
    writer: Box<dyn StreamWriter>,
    /// Ends the reply where the gateway itself must.
    stop_enforcer: StopEnforcer,
    custom_calls: CustomToolCalls,
    signatures: Option<SignatureCollector>,
    events: Vec<Event>,
    meter: ReplyMeter,
    losses: Vec<Loss>,
}

/// Progress of a stream.
pub(super) enum StreamProgress {
    /// More data is expected.
    Ongoing,
    /// The reply is complete.
    Complete,
    /// The stream failed.
    Broken(ApiError),
}

/// Returns id and time for replies that the gateway writes.
pub fn reply_stamp(call: &Call) -> ReplyStamp {
    let id = call.id.trim_start_matches("req_").to_owned();
    ReplyStamp { id, created: call.engine.clock.now() / 1_000_000 }
}

/// Translates a whole reply for a caller that asked for one. It is not split into events, because
/// it would only be joined from them again.
pub(super) fn translate_reply(
    call: &Call,
    chat: &ChatRequest,
    mut reply: ChatReply,
) -> Lossy<Vec<u8>> {
    CustomToolCalls::for_request(chat).convert_reply(&mut reply);
    let account_id = &call.key.record.account_id;
    call.engine.signatures.keep_reply(account_id, call.dialect.origin(), chat, &reply);
    call.dialect.write_reply(reply, chat, &reply_stamp(call))
}

impl TranslatedStream {
    pub(super) fn new(
        call: &Call,
        facts: &RequestFacts,
        dialect: &'static dyn Dialect,
        translation: LaneTranslation,
    ) -> Self {
        let LaneTranslation { request: chat, stop_enforcer } = translation;
        let candidates = chat.sampling.candidates.unwrap_or(1);
        Self {
            reader: dialect.stream_reader(),
            stop_enforcer: stop_enforcer
                .unwrap_or_else(|| StopEnforcer::forwarding_all(candidates, dialect.origin())),
            custom_calls: CustomToolCalls::for_request(&chat),
            signatures: SignatureCollector::for_request(
                &call.engine.signatures,
                call.dialect.origin(),
                &chat,
            ),
            writer: match facts.stream {
                true => call.dialect.stream_writer(&chat, &reply_stamp(call)),
                false => Box::new(ReplyGatherer {
                    builder: ReplyBuilder::default(),
                    dialect: call.dialect,
                    request: chat,
                    stamp: reply_stamp(call),
                }),
            },
            events: Vec::new(),
            meter: ReplyMeter::default(),
            losses: Vec::new(),
        }
    }

    pub(super) fn push_frame(&mut self, frame: &StreamFrame, out: &mut Vec<u8>) -> StreamProgress {
        if let Err(error) = self.reader.push(frame, &mut self.events) {
            return StreamProgress::Broken(error);
        }
        self.meter.is_finished |=
            self.events.iter().any(|event| matches!(event, Event::Finish { .. }));
        self.write(out);
        if self.was_stopped() {
            self.complete(out)
        } else if self.reader.is_done() {
            self.finish(out)
        } else {
            StreamProgress::Ongoing
        }
    }

    pub(super) fn finish(&mut self, out: &mut Vec<u8>) -> StreamProgress {
        if let Err(error) = self.reader.finish(&mut self.events) {
            return StreamProgress::Broken(error);
        }
        self.write(out);
        self.complete(out)
    }

    fn complete(&mut self, out: &mut Vec<u8>) -> StreamProgress {
        self.meter.is_finished = true;
        self.losses.extend(self.writer.finish(out));
        StreamProgress::Complete
    }

    /// Returns true if the gateway ended the reply.
    pub(super) fn was_stopped(&self) -> bool {
        self.stop_enforcer.is_finished()
    }

    /// Ends the reply now, as one that reached its output limit.
    pub(super) fn truncate(&mut self, usage: Usage, out: &mut Vec<u8>) {
        let events = &mut self.events;
        self.stop_enforcer.cut(usage, &mut |event| events.push(event));
        self.write_events(out, false);
        self.complete(out);
    }

    /// Feeds a whole reply of a provider that was asked for a stream.
    pub(super) fn push_reply(&mut self, reply: ChatReply, out: &mut Vec<u8>) {
        self.events.extend(canon::into_events(reply));
        self.write(out);
        self.complete(out);
    }

    /// Returns usage and output so far.
    pub(super) const fn meter(&self) -> &ReplyMeter {
        &self.meter
    }

    /// Takes the losses of the translation, and the signatures that a caller of this format may not
    /// send back.
    pub(super) fn take_results(&mut self) -> (Vec<Loss>, Option<SignatureCollector>) {
        (std::mem::take(&mut self.losses), self.signatures.take())
    }

    fn write(&mut self, out: &mut Vec<u8>) {
        self.write_events(out, true);
    }

    /// Writes the pending events, through the stop enforcer if `enforce`.
    fn write_events(&mut self, out: &mut Vec<u8>, enforce: bool) {
        let Self {
            reader: _,
            writer,
            stop_enforcer: enforcer,
            custom_calls,
            signatures,
            events,
            meter,
            losses: _,
        } = self;
        let mut write = |event: Event| {
            meter_event(&event, meter);
            if let Some(signatures) = signatures {
                signatures.observe(&event);
            }
            if custom_calls.is_idle() {
                writer.push(event, out);
            } else {
                custom_calls.push(event, |event| writer.push(event, out));
            }
        };
        for event in events.drain(..) {
            match enforce {
                false => write(event),
                true if enforcer.is_finished() => {}
                true => enforcer.push(event, &mut write),
            }
        }
        meter.is_estimated = enforcer.is_usage_estimated();
    }
}

/// Writes the whole reply at the end.
struct ReplyGatherer {
    builder: ReplyBuilder,
    dialect: &'static dyn Dialect,
    request: ChatRequest,
    stamp: ReplyStamp,
}

impl StreamWriter for ReplyGatherer {
    fn push(&mut self, event: Event, _out: &mut Vec<u8>) {
        // Stream readers return errors, so no event here is one.
        let _ = self.builder.push(event);
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Vec<Loss> {
        let reply = std::mem::take(&mut self.builder).finish();
        let (body, losses) = self.dialect.write_reply(reply, &self.request, &self.stamp);
        out.extend_from_slice(&body);
        losses
    }
}

/// Adds an event to the meter.
fn meter_event(event: &Event, meter: &mut ReplyMeter) {
    match event {
        Event::Usage(usage) => {
            meter.usage = Some(meter.usage.unwrap_or_default().merged(*usage));
        }
        Event::PartDelta(_, PartDelta::Text(text)) => meter.output_bytes += text.len() as u64,
        Event::PartStart(..) => meter.output_bytes += 1,
        Event::Extra { .. } => meter.service_tier = event_tier(event).or(meter.service_tier.take()),
        Event::Start { .. }
        | Event::PartDelta(..)
        | Event::PartSignature(..)
        | Event::PartEnd(_)
        | Event::Finish { .. }
        | Event::Error(_) => {}
    }
}
