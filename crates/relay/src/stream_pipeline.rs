//! Pipeline of a stream: frames are passed through, or translated as events between two formats.

use bytes::Bytes;
use canon::{ApiError, ChatReply, ChatRequest, Event, Loss, PartDelta, ReplyBuilder, Usage};
use dialects::{
    CustomToolCalls, Dialect, FrameAction, ReplyMeter, ReplyStamp, RequestFacts, SseDecoder,
    StopEnforcer, StreamFrame, StreamMeter, StreamReader, StreamWriter, event_tier,
};

use super::Call;
use super::prepare::LaneTranslation;
use super::signature_cache::SignatureCollector;

/// Converts the provider's bytes to the caller's.
pub(super) struct StreamPipeline {
    decoder: SseDecoder,
    mode: StreamMode,
    /// True if the gateway ended the reply.
    is_truncated: bool,
}

enum StreamMode {
    /// Caller and provider use the same format.
    PassThrough(Box<dyn StreamMeter>),
    /// Caller and provider use different formats.
    Translated(Box<TranslatedStream>),
}

struct TranslatedStream {
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

fn signature_collector(call: &Call, chat: &ChatRequest) -> Option<SignatureCollector> {
    SignatureCollector::for_request(&call.engine.signatures, call.dialect.origin(), chat)
}

impl StreamPipeline {
    /// Creates a pipeline for a stream, passed through or translated.
    pub(super) fn new(
        call: &Call,
        facts: &RequestFacts,
        dialect: &'static dyn Dialect,
        translation: Option<Box<LaneTranslation>>,
    ) -> Self {
        let mode = match translation {
            None => StreamMode::PassThrough(dialect.stream_meter(facts)),
            Some(translation) => {
                let LaneTranslation { request: chat, stop_enforcer: enforcer } = *translation;
                let writer = call.dialect.stream_writer(&chat, &reply_stamp(call));
                let enforcer = StreamMode::stop_enforcer(&chat, enforcer, dialect);
                StreamMode::translated(
                    dialect,
                    CustomToolCalls::for_request(&chat),
                    signature_collector(call, &chat),
                    enforcer,
                    writer,
                )
            }
        };
        let route = call.config.routes.get(&*facts.model);
        let is_image = route.is_some_and(|route| route.model.kind == catalog::ModelKind::Image);
        let decoder = if is_image { SseDecoder::for_images() } else { SseDecoder::default() };
        Self { decoder, mode, is_truncated: false }
    }

    /// Creates a pipeline for an image stream, which its own meter passes through or rewrites.
    pub(super) fn passing_through(meter: Box<dyn StreamMeter>) -> Self {
        Self {
            decoder: SseDecoder::for_images(),
            mode: StreamMode::PassThrough(meter),
            is_truncated: false,
        }
    }

    /// Returns the final error event, if it differs from that of the caller's format.
    pub(super) fn abort_event(&self, error: &ApiError) -> Option<Vec<u8>> {
        match &self.mode {
            StreamMode::PassThrough(meter) => meter.abort_event(error),
            StreamMode::Translated(_) => None,
        }
    }

    /// Creates a pipeline that gathers a stream into one whole reply.
    pub(super) fn gathering(
        call: &Call,
        dialect: &'static dyn Dialect,
        translation: Box<LaneTranslation>,
    ) -> Self {
        let LaneTranslation { request: chat, stop_enforcer: enforcer } = *translation;
        let (custom_calls, signatures) =
            (CustomToolCalls::for_request(&chat), signature_collector(call, &chat));
        let enforcer = StreamMode::stop_enforcer(&chat, enforcer, dialect);
        let gather = ReplyGatherer {
            builder: ReplyBuilder::default(),
            dialect: call.dialect,
            request: chat,
            stamp: reply_stamp(call),
        };
        let mode =
            StreamMode::translated(dialect, custom_calls, signatures, enforcer, Box::new(gather));
        Self { decoder: SseDecoder::default(), mode, is_truncated: false }
    }

    /// Feeds a whole reply of a provider that was asked for a stream.
    pub(super) fn push_whole(&mut self, reply: ChatReply, out: &mut Vec<u8>) -> StreamProgress {
        match &mut self.mode {
            // Pass-through has no events to split a reply into.
            StreamMode::PassThrough(_) => StreamProgress::Broken(cut_short_error(
                "a whole reply was returned instead of a stream",
            )),
            StreamMode::Translated(translated) => {
                translated.events.extend(canon::into_events(reply));
                translated.write(out);
                translated.complete(out)
            }
        }
    }

    /// Feeds bytes of the provider and appends the caller's bytes to `out`.
    pub(super) fn push_bytes(&mut self, bytes: Bytes, out: &mut Vec<u8>) -> StreamProgress {
        // Output is about as long as input.
        out.reserve(bytes.len());
        self.decoder.push(bytes);
        loop {
            match self.decoder.next_frame() {
                Ok(Some(frame)) => match self.mode.push_frame(&frame, out) {
                    StreamProgress::Ongoing => {}
                    end => return end,
                },
                Ok(None) => return StreamProgress::Ongoing,
                Err(error) => return StreamProgress::Broken(error),
            }
        }
    }

    /// Ends the pipeline at the end of the provider's body.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) -> StreamProgress {
        match self.decoder.finish() {
            Ok(Some(frame)) => match self.mode.push_frame(&frame, out) {
                StreamProgress::Ongoing => {}
                end => return end,
            },
            Ok(None) => {}
            Err(error) => return StreamProgress::Broken(error),
        }
        self.mode.finish(out)
    }

    /// Ends the pipeline after a transport error. A reply that has its finish reason is complete
    /// nevertheless.
    pub(super) fn fail(&mut self, error: ApiError, out: &mut Vec<u8>) -> StreamProgress {
        match self.finish_early(out) {
            StreamProgress::Complete => StreamProgress::Complete,
            StreamProgress::Ongoing | StreamProgress::Broken(_) => StreamProgress::Broken(error),
        }
    }

    /// Ends a reply that has its finish reason without waiting for the end marker.
    pub(super) fn finish_early(&mut self, out: &mut Vec<u8>) -> StreamProgress {
        if self.meter().is_finished { self.mode.finish(out) } else { StreamProgress::Ongoing }
    }

    /// Ends the reply now, as one that reached its output limit.
    pub(super) fn truncate(&mut self, usage: &Usage, out: &mut Vec<u8>) {
        match &mut self.mode {
            StreamMode::PassThrough(meter) => meter.write_truncated(usage, out),
            StreamMode::Translated(translated) => {
                translated.truncate(*usage, out);
                translated.complete(out);
            }
        }
        self.is_truncated = true;
    }

    /// Returns usage and output so far.
    pub(super) fn meter(&self) -> &ReplyMeter {
        match &self.mode {
            StreamMode::PassThrough(meter) => meter.totals(),
            StreamMode::Translated(translated) => &translated.meter,
        }
    }

    /// Stores the signatures that a caller of this format may not send back.
    pub(super) fn keep_signatures(&mut self, call: &Call) {
        if let StreamMode::Translated(translated) = &mut self.mode
            && let Some(signatures) = translated.signatures.take()
        {
            signatures.store_into(&call.engine.signatures, &call.key.record.account_id);
        }
    }

    /// Returns true if the gateway ended the reply, so that the provider's stream must be dropped.
    pub(super) fn was_stopped(&self) -> bool {
        match &self.mode {
            StreamMode::PassThrough(_) => self.is_truncated,
            StreamMode::Translated(translated) => self.is_truncated || translated.was_stopped(),
        }
    }

    /// Takes the losses of the translation.
    pub(super) fn losses(&mut self) -> Vec<Loss> {
        match &mut self.mode {
            StreamMode::PassThrough(_) => Vec::new(),
            StreamMode::Translated(translated) => std::mem::take(&mut translated.losses),
        }
    }
}

impl StreamMode {
    /// Returns the enforcer of the request, or one that forwards everything.
    fn stop_enforcer(
        chat: &ChatRequest,
        enforcer: Option<StopEnforcer>,
        dialect: &'static dyn Dialect,
    ) -> StopEnforcer {
        let candidates = chat.sampling.candidates.unwrap_or(1);
        enforcer.unwrap_or_else(|| StopEnforcer::forwarding_all(candidates, dialect.origin()))
    }

    fn translated(
        dialect: &'static dyn Dialect,
        custom_calls: CustomToolCalls,
        signatures: Option<SignatureCollector>,
        enforcer: StopEnforcer,
        writer: Box<dyn StreamWriter>,
    ) -> Self {
        Self::Translated(Box::new(TranslatedStream {
            reader: dialect.stream_reader(),
            writer,
            stop_enforcer: enforcer,
            custom_calls,
            signatures,
            events: Vec::new(),
            meter: ReplyMeter::default(),
            losses: Vec::new(),
        }))
    }

    fn push_frame(&mut self, frame: &StreamFrame, out: &mut Vec<u8>) -> StreamProgress {
        match self {
            Self::PassThrough(meter) => match meter.observe(frame) {
                FrameAction::Forward => {
                    meter.write(frame, out);
                    StreamProgress::Ongoing
                }
                FrameAction::Drop => StreamProgress::Ongoing,
                FrameAction::Last => {
                    if !meter.totals().is_finished {
                        return StreamProgress::Broken(cut_short_error(
                            "the end marker came without a finish reason",
                        ));
                    }
                    meter.write(frame, out);
                    StreamProgress::Complete
                }
                FrameAction::Error(error) => StreamProgress::Broken(error),
            },
            Self::Translated(translated) => translated.push_frame(frame, out),
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> StreamProgress {
        match self {
            // The reply is complete; only its end marker is missing.
            Self::PassThrough(meter) if meter.totals().is_finished => {
                meter.write_end(out);
                StreamProgress::Complete
            }
            Self::PassThrough(_) => {
                StreamProgress::Broken(cut_short_error("the body ended without a finish reason"))
            }
            Self::Translated(translated) => translated.finish(out),
        }
    }
}

impl TranslatedStream {
    fn push_frame(&mut self, frame: &StreamFrame, out: &mut Vec<u8>) -> StreamProgress {
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

    fn finish(&mut self, out: &mut Vec<u8>) -> StreamProgress {
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

    fn was_stopped(&self) -> bool {
        self.stop_enforcer.is_finished()
    }

    fn truncate(&mut self, usage: Usage, out: &mut Vec<u8>) {
        let events = &mut self.events;
        self.stop_enforcer.cut(usage, &mut |event| events.push(event));
        self.write_events(out, false);
    }

    fn write(&mut self, out: &mut Vec<u8>) {
        self.write_events(out, true);
    }

    /// Writes the pending events, through the stop enforcer if `braked`.
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

fn cut_short_error(note: &str) -> ApiError {
    ApiError::new(canon::ErrorKind::Interrupted, "the provider's answer broke off before its end")
        .with_log_note(note)
}
