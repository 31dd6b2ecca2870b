//! The two roads a stream can take: its own pieces handed on, or events between two formats.

use bytes::Bytes;
use canon::{ChatRequest, Event, ApiError, ReplyBuilder, PartDelta, Loss, ChatReply, Usage};
use dialects::{
    StopEnforcer, CustomToolCalls, SseDecoder, Dialect, StreamFrame, RequestFacts, StreamReader, ReplyMeter, StreamMeter, ReplyStamp, FrameAction,
    StreamWriter, event_tier,
};

use super::Call;
use super::prepare::Speech;
use super::seals::SealWatch;

/// How a provider's bytes become the caller's.
pub(super) struct Road {
    cutter: SseDecoder,
    lane: Lane,
    /// Whether it was ended here.
    cut: bool,
}

enum Lane {
    /// Caller and provider speak the same format.
    Same(Box<dyn StreamMeter>),
    /// They do not.
    Translated(Box<Translated>),
}

struct Translated {
    reader: Box<dyn StreamReader>,
    writer: Box<dyn StreamWriter>,
    /// Ends the answer, where the gateway itself has to.
    brake: StopEnforcer,
    custom: CustomToolCalls,
    seals: Option<SealWatch>,
    events: Vec<Event>,
    said: ReplyMeter,
    losses: Vec<Loss>,
}

/// How far a stream has come after some bytes.
pub(super) enum Course {
    /// More is to come.
    On,
    /// It is complete.
    Complete,
    /// It broke.
    Broken(ApiError),
}

/// What a reply written by us is stamped with.
pub fn stamp(call: &Call) -> ReplyStamp {
    let id = call.id.trim_start_matches("req_").to_owned();
    ReplyStamp { id, created: call.engine.clock.now() / 1_000_000 }
}

fn watch(call: &Call, chat: &ChatRequest) -> Option<SealWatch> {
    SealWatch::of(&call.engine.seals, call.dialect.origin(), chat)
}

impl Road {
    /// For a stream, handed on or translated.
    pub(super) fn new(
        call: &Call,
        peek: &RequestFacts,
        dialect: &'static dyn Dialect,
        speech: Option<Box<Speech>>,
    ) -> Self {
        let lane = match speech {
            None => Lane::Same(dialect.stream_meter(peek)),
            Some(speech) => {
                let Speech { chat, brake } = *speech;
                let writer = call.dialect.stream_writer(&chat, &stamp(call));
                let brake = Lane::brake(&chat, brake, dialect);
                Lane::translated(dialect, CustomToolCalls::for_request(&chat), watch(call, &chat), brake, writer)
            }
        };
        let route = call.config.routes.get(&*peek.model);
        let pictures = route.is_some_and(|route| route.model.kind == catalog::ModelKind::Image);
        let cutter = if pictures { SseDecoder::for_images() } else { SseDecoder::default() };
        Self { cutter, lane, cut: false }
    }

    /// For a stream of pictures, which its own watcher hands on or rewrites.
    pub(super) fn watching(sniffer: Box<dyn StreamMeter>) -> Self {
        Self { cutter: SseDecoder::for_images(), lane: Lane::Same(sniffer), cut: false }
    }

    /// The last words of a stream that broke, where they are not those of the caller's format.
    pub(super) fn last_words(&self, fault: &ApiError) -> Option<Vec<u8>> {
        match &self.lane {
            Lane::Same(sniffer) => sniffer.abort_event(fault),
            Lane::Translated(_) => None,
        }
    }

    /// For a stream whose caller wants the answer whole.
    pub(super) fn gathering(
        call: &Call,
        dialect: &'static dyn Dialect,
        speech: Box<Speech>,
    ) -> Self {
        let Speech { chat, brake } = *speech;
        let (custom, seals) = (CustomToolCalls::for_request(&chat), watch(call, &chat));
        let brake = Lane::brake(&chat, brake, dialect);
        let gather =
            Gather { fold: ReplyBuilder::default(), dialect: call.dialect, chat, stamp: stamp(call) };
        let lane = Lane::translated(dialect, custom, seals, brake, Box::new(gather));
        Self { cutter: SseDecoder::default(), lane, cut: false }
    }

    /// Takes a whole answer of the provider's instead of a stream.
    pub(super) fn take_whole(&mut self, reply: ChatReply, out: &mut Vec<u8>) -> Course {
        match &mut self.lane {
            // Nothing is translated here, so there is nothing to take apart.
            Lane::Same(_) => Course::Broken(cut_short("a whole answer came instead of a stream")),
            Lane::Translated(translated) => {
                translated.events.extend(canon::into_events(reply));
                translated.write(out);
                translated.complete(out)
            }
        }
    }

    /// Takes bytes of the provider's and writes what the caller is to get.
    pub(super) fn take(&mut self, bytes: Bytes, out: &mut Vec<u8>) -> Course {
        // What comes out is about as long as what came in.
        out.reserve(bytes.len());
        self.cutter.push(bytes);
        loop {
            match self.cutter.next_frame() {
                Ok(Some(frame)) => match self.lane.frame(&frame, out) {
                    Course::On => {}
                    end => return end,
                },
                Ok(None) => return Course::On,
                Err(fault) => return Course::Broken(fault),
            }
        }
    }

    /// The provider's body has ended.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) -> Course {
        match self.cutter.finish() {
            Ok(Some(frame)) => match self.lane.frame(&frame, out) {
                Course::On => {}
                end => return end,
            },
            Ok(None) => {}
            Err(fault) => return Course::Broken(fault),
        }
        self.lane.finish(out)
    }

    /// The provider's body broke. When everything was said before, nothing is lost.
    pub(super) fn give_out(&mut self, fault: ApiError, out: &mut Vec<u8>) -> Course {
        match self.wind_up(out) {
            Course::Complete => Course::Complete,
            Course::On | Course::Broken(_) => Course::Broken(fault),
        }
    }

    /// Ends the answer without waiting for its end marker, if it has given its reason to end.
    pub(super) fn wind_up(&mut self, out: &mut Vec<u8>) -> Course {
        if self.said().is_finished { self.lane.finish(out) } else { Course::On }
    }

    /// Ends the answer here and now, as one that reached its output limit.
    pub(super) fn cut(&mut self, usage: &Usage, out: &mut Vec<u8>) {
        match &mut self.lane {
            Lane::Same(sniffer) => sniffer.write_truncated(usage, out),
            Lane::Translated(translated) => {
                translated.cut(*usage, out);
                translated.complete(out);
            }
        }
        self.cut = true;
    }

    /// What the answer has said of itself.
    pub(super) fn said(&self) -> &ReplyMeter {
        match &self.lane {
            Lane::Same(sniffer) => sniffer.totals(),
            Lane::Translated(translated) => &translated.said,
        }
    }

    /// Everything was said: the seals a caller of this format may not bring back are kept.
    pub(super) fn keep_seals(&mut self, call: &Call) {
        if let Lane::Translated(translated) = &mut self.lane
            && let Some(seals) = translated.seals.take()
        {
            seals.keep(&call.engine.seals, &call.key.record.account_id);
        }
    }

    /// Whether the answer was ended here, so that the provider has to be let go.
    pub(super) fn is_braked(&self) -> bool {
        match &self.lane {
            Lane::Same(_) => self.cut,
            Lane::Translated(translated) => self.cut || translated.is_braked(),
        }
    }

    /// What the translation could not show.
    pub(super) fn losses(&mut self) -> Vec<Loss> {
        match &mut self.lane {
            Lane::Same(_) => Vec::new(),
            Lane::Translated(translated) => std::mem::take(&mut translated.losses),
        }
    }
}

impl Lane {
    /// What ends the answer where the lane cannot, or else lets it pass.
    fn brake(chat: &ChatRequest, brake: Option<StopEnforcer>, dialect: &'static dyn Dialect) -> StopEnforcer {
        let candidates = chat.sampling.candidates.unwrap_or(1);
        brake.unwrap_or_else(|| StopEnforcer::forwarding_all(candidates, dialect.origin()))
    }

    fn translated(
        dialect: &'static dyn Dialect,
        custom: CustomToolCalls,
        seals: Option<SealWatch>,
        brake: StopEnforcer,
        writer: Box<dyn StreamWriter>,
    ) -> Self {
        Self::Translated(Box::new(Translated {
            reader: dialect.stream_reader(),
            writer,
            brake,
            custom,
            seals,
            events: Vec::new(),
            said: ReplyMeter::default(),
            losses: Vec::new(),
        }))
    }

    fn frame(&mut self, frame: &StreamFrame, out: &mut Vec<u8>) -> Course {
        match self {
            Self::Same(sniffer) => match sniffer.observe(frame) {
                FrameAction::Forward => {
                    sniffer.write(frame, out);
                    Course::On
                }
                FrameAction::Drop => Course::On,
                FrameAction::Last => {
                    if !sniffer.totals().is_finished {
                        return Course::Broken(cut_short("the end came without a finish reason"));
                    }
                    sniffer.write(frame, out);
                    Course::Complete
                }
                FrameAction::Error(fault) => Course::Broken(fault),
            },
            Self::Translated(translated) => translated.frame(frame, out),
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Course {
        match self {
            // Everything was said, only the end marker never came.
            Self::Same(sniffer) if sniffer.totals().is_finished => {
                sniffer.write_end(out);
                Course::Complete
            }
            Self::Same(_) => Course::Broken(cut_short("the body ended without a finish reason")),
            Self::Translated(translated) => translated.finish(out),
        }
    }
}

impl Translated {
    fn frame(&mut self, frame: &StreamFrame, out: &mut Vec<u8>) -> Course {
        if let Err(fault) = self.reader.push(frame, &mut self.events) {
            return Course::Broken(fault);
        }
        self.said.is_finished |= self.events.iter().any(|event| matches!(event, Event::Finish { .. }));
        self.write(out);
        if self.is_braked() {
            self.complete(out)
        } else if self.reader.is_done() {
            self.finish(out)
        } else {
            Course::On
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Course {
        if let Err(fault) = self.reader.finish(&mut self.events) {
            return Course::Broken(fault);
        }
        self.write(out);
        self.complete(out)
    }

    fn complete(&mut self, out: &mut Vec<u8>) -> Course {
        self.said.is_finished = true;
        self.losses.extend(self.writer.finish(out));
        Course::Complete
    }

    fn is_braked(&self) -> bool {
        self.brake.is_finished()
    }

    /// Ends the answer here and now.
    fn cut(&mut self, usage: Usage, out: &mut Vec<u8>) {
        let events = &mut self.events;
        self.brake.cut(usage, &mut |event| events.push(event));
        self.pass(out, false);
    }

    fn write(&mut self, out: &mut Vec<u8>) {
        self.pass(out, true);
    }

    /// Hands what was read to the writer, past the brake or behind it.
    fn pass(&mut self, out: &mut Vec<u8>, braked: bool) {
        let Self { reader: _, writer, brake, custom, seals, events, said, losses: _ } = self;
        let mut write = |event: Event| {
            hear(&event, said);
            if let Some(seals) = seals {
                seals.see(&event);
            }
            if custom.is_idle() {
                writer.push(event, out);
            } else {
                custom.push(event, |event| writer.push(event, out));
            }
        };
        for event in events.drain(..) {
            match braked {
                false => write(event),
                true if brake.is_finished() => {}
                true => brake.push(event, &mut write),
            }
        }
        said.is_estimated = brake.is_usage_estimated();
    }
}

/// Writes nothing until the end, and then the answer as a whole.
struct Gather {
    fold: ReplyBuilder,
    dialect: &'static dyn Dialect,
    chat: ChatRequest,
    stamp: ReplyStamp,
}

impl StreamWriter for Gather {
    fn push(&mut self, event: Event, _out: &mut Vec<u8>) {
        // Readers tell a fault as an error, never as an event.
        let _ = self.fold.push(event);
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Vec<Loss> {
        let reply = std::mem::take(&mut self.fold).finish();
        let (body, losses) = self.dialect.write_reply(reply, &self.chat, &self.stamp);
        out.extend_from_slice(&body);
        losses
    }
}

/// Keeps count of what an event says.
fn hear(event: &Event, said: &mut ReplyMeter) {
    match event {
        Event::Usage(usage) => {
            said.usage = Some(said.usage.unwrap_or_default().merged(*usage));
        }
        Event::PartDelta(_, PartDelta::Text(text)) => said.output_bytes += text.len() as u64,
        Event::PartStart(..) => said.output_bytes += 1,
        Event::Extra { .. } => said.service_tier = event_tier(event).or(said.service_tier.take()),
        Event::Start { .. }
        | Event::PartDelta(..)
        | Event::PartSignature(..)
        | Event::PartEnd(_)
        | Event::Finish { .. }
        | Event::Error(_) => {}
    }
}

fn cut_short(note: &str) -> ApiError {
    ApiError::new(canon::ErrorKind::Interrupted, "the provider's answer broke off before its end")
        .with_log_note(note)
}
