//! Pipeline of a stream: frames are passed through, or translated as events between two formats.

use bytes::Bytes;
use canon::{
    ApiError, ChatReply, ChatRequest, Event, Loss, ReplyBuilder, StopEnforcer, TextOwners, Usage,
    WireFormat, scrub_for,
};
use dialects::{
    ClientToolCalls, Dialect, FrameAction, ReplyMeter, ReplyStamp, RequestFacts, SseDecoder,
    StreamFrame, StreamMeter, StreamReader, StreamWriter, TextRun, failed_turn,
};

use std::sync::Arc;
use upstream::Provider;

use super::Call;
use super::call_texts::text_owners;
use super::fence::{self, LaneObjects};
use super::object_book::ObjectReceipt;
use super::prepare::{ExpectedReply, LaneTranslation};
use super::reply::{ConvertedReply, check_ending};
use super::settle::FinishedReply;
use super::signature_cache::SignatureCollector;
use super::value_count::check_reply_values;

/// Smallest piece of a provider that has much to send at once, and the room for output of such a
/// provider.
const MIN_BURST_BYTES: usize = 4 << 10;
const BURST_BYTES: usize = 48 << 10;
/// Room for what an event has more when it is written.
const EDIT_BYTES: usize = 64;

/// Converts the provider's bytes to the caller's.
pub(super) struct StreamPipeline {
    decoder: SseDecoder,
    mode: StreamMode,
    /// True if the gateway ended the reply.
    is_truncated: bool,
    /// Collects the ids that the stream hands out.
    made: Option<LaneObjects>,
    owners: Arc<dyn TextOwners>,
}

enum StreamMode {
    /// Caller and provider use the same format.
    PassThrough(Box<dyn StreamMeter>),
    /// Caller and provider use different formats.
    Translated(Box<TranslatedStream>),
}

struct TranslatedStream {
    caller_format: WireFormat,
    reader: Box<dyn StreamReader>,
    writer: Box<dyn StreamWriter>,
    /// Ends the reply where the gateway itself must.
    stop_enforcer: StopEnforcer,
    client_calls: ClientToolCalls,
    signatures: Option<SignatureCollector>,
    events: Vec<Event>,
    /// The texts of repeated events.
    run: TextRun,
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

impl StreamPipeline {
    /// Creates a pipeline for a provider's stream: passed through, translated, or gathered for a
    /// caller that asked for a whole reply.
    pub(super) fn new(call: &Call, facts: &RequestFacts, expected: ExpectedReply) -> Self {
        let ExpectedReply { dialect, provider, is_stream: _, copies: _, translation } = expected;
        let made = fence::made_objects(call, facts, dialect, &provider);
        let owners = text_owners(call, &provider);
        let mode = match translation {
            None => StreamMode::PassThrough(dialect.stream_meter(facts)),
            Some(translation) => StreamMode::Translated(Box::new(TranslatedStream::new(
                call,
                facts,
                dialect,
                *translation,
            ))),
        };
        let route = call.config.routes.get(&*facts.model);
        let is_image = route.is_some_and(|route| route.model.kind == catalog::ModelKind::Image);
        let decoder = if is_image { SseDecoder::for_images() } else { SseDecoder::default() };
        Self { decoder, mode, is_truncated: false, made, owners }
    }

    /// Creates a pipeline for an image stream, which its own meter passes through or rewrites.
    pub(super) fn passing_through(
        call: &Call,
        provider: &Arc<Provider>,
        meter: Box<dyn StreamMeter>,
    ) -> Self {
        Self {
            decoder: SseDecoder::for_images(),
            mode: StreamMode::PassThrough(meter),
            is_truncated: false,
            made: None,
            owners: text_owners(call, provider),
        }
    }

    /// Returns true if the caller's format is not the provider's.
    pub(super) const fn is_translated(&self) -> bool {
        matches!(self.mode, StreamMode::Translated(_))
    }

    /// Returns the final error event, if it differs from that of the caller's format.
    pub(super) fn abort_event(&self, error: &ApiError) -> Option<Vec<u8>> {
        match &self.mode {
            StreamMode::PassThrough(meter) => meter.abort_event(error),
            StreamMode::Translated(_) => None,
        }
    }

    /// Runs the one piece of a provider that was asked for a stream. Its first byte decides: an
    /// object is a whole reply, anything else a stream with a wrong content type.
    pub(super) fn run_piece(
        call: &Call,
        facts: &RequestFacts,
        mut expected: ExpectedReply,
        body: Bytes,
    ) -> Result<ConvertedReply, ApiError> {
        let mut out = Vec::new();
        let mut reply = None;
        if body.trim_ascii_start().starts_with(b"{") {
            let owners = text_owners(call, &expected.provider);
            let whole = scrub_for(&owners, || expected.dialect.read_reply(&body))?;
            check_ending(&whole, call)?;
            reply = Some(whole);
            // Pass-through has no events to split a reply into.
            if expected.translation.is_none() {
                let request = call.read_chat()?;
                let translation = LaneTranslation { request, stop_enforcer: None };
                expected.translation = Some(Box::new(translation));
            }
        }
        let mut pipeline = Self::new(call, facts, expected);
        let progress = match (&mut pipeline.mode, reply) {
            (StreamMode::Translated(translated), Some(reply)) => {
                pipeline.made.iter_mut().for_each(|made| made.ids.observe(&body));
                translated.push_reply(reply, &mut out)
            }
            (StreamMode::PassThrough(_), _) | (StreamMode::Translated(_), None) => {
                match pipeline.push_bytes(body, &mut out) {
                    StreamProgress::Ongoing => pipeline.finish(&mut out),
                    end => end,
                }
            }
        };
        match progress {
            StreamProgress::Broken(error) => Err(error),
            StreamProgress::Ongoing | StreamProgress::Complete => {
                Ok(pipeline.into_reply(call, out))
            }
        }
    }

    /// Ends the pipeline of a complete reply for a caller that gets it as one piece.
    pub(super) fn into_reply(mut self, call: &Call, out: Vec<u8>) -> ConvertedReply {
        let recording = self.record_objects(call);
        let finished = self.finished(call);
        ConvertedReply { finished, body: Bytes::from(out), recording }
    }

    /// Records the ids that the stream has handed out. Returns the way of the record to the store if
    /// the stream must not end before it.
    pub(super) fn record_objects(&mut self, call: &Call) -> Option<ObjectReceipt> {
        fence::record_made(call, self.made.as_mut()?)
    }

    fn push_frame(&mut self, frame: &StreamFrame, out: &mut Vec<u8>) -> StreamProgress {
        if let Err(error) = check_reply_values(&frame.data) {
            return StreamProgress::Broken(error);
        }
        let progress = self.mode.push_frame(frame, out);
        let is_finished = self.meter().is_finished;
        if let Some(made) =
            self.made.as_mut().filter(|made| is_finished || !made.ids.is_in_last_event())
        {
            made.ids.observe(&frame.data);
        }
        progress
    }

    /// Feeds bytes of the provider and appends the caller's bytes to `out`.
    pub(super) fn push_bytes(&mut self, bytes: Bytes, out: &mut Vec<u8>) -> StreamProgress {
        // Passed through, output is about as long as input: an event may name a longer model. Other
        // formats may need twice as much.
        let room = match &self.mode {
            StreamMode::PassThrough(_) => bytes.len() + bytes.len() / 8 + EDIT_BYTES,
            StreamMode::Translated(_) => 2 * bytes.len(),
        };
        if out.capacity() - out.len() < room {
            // A burst mostly goes on, and a buffer that grows is copied.
            let is_burst = bytes.len() >= MIN_BURST_BYTES;
            out.reserve(if is_burst { room.max(BURST_BYTES) } else { room });
        }
        self.decoder.push(bytes);
        self.push_repeated(out);
        if self.decoder.release_idle() {
            return StreamProgress::Ongoing;
        }
        let owners = Arc::clone(&self.owners);
        scrub_for(&owners, || self.push_frames(out))
    }

    /// Takes the next events that differ from the one before only in their text. Most events of a
    /// stream do, and need no frame.
    fn push_repeated(&mut self, out: &mut Vec<u8>) {
        // Ids may stand in any event.
        if self.made.as_ref().is_some_and(|made| !made.ids.is_in_last_event()) {
            return;
        }
        let Some(events) = self.decoder.events() else { return };
        let taken = match &mut self.mode {
            StreamMode::PassThrough(meter) => meter.repeat(events, out),
            StreamMode::Translated(translated) => translated.repeat(events, out),
        };
        self.decoder.skip(taken);
    }

    /// Takes all frames that have arrived.
    fn push_frames(&mut self, out: &mut Vec<u8>) -> StreamProgress {
        loop {
            match self.decoder.next_frame() {
                Ok(Some(frame)) => match self.push_frame(&frame, out) {
                    StreamProgress::Ongoing => self.push_repeated(out),
                    end => return end,
                },
                Ok(None) => return StreamProgress::Ongoing,
                Err(error) => return StreamProgress::Broken(error),
            }
        }
    }

    /// Ends the pipeline at the end of the provider's body.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) -> StreamProgress {
        let owners = Arc::clone(&self.owners);
        match self.decoder.finish() {
            Ok(Some(frame)) => match scrub_for(&owners, || self.push_frame(&frame, out)) {
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
            StreamMode::Translated(translated) => translated.truncate(*usage, out),
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

    /// Ends the pipeline of a complete reply. Stores the signatures that a caller of this format may
    /// not send back.
    pub(super) fn finished(&mut self, call: &Call) -> FinishedReply {
        let (mut meter, was_stopped) = (self.meter().clone(), self.was_stopped());
        // The counts of a truncated reply are those that the gateway told its caller.
        meter.is_estimated |= self.is_truncated;
        let mut losses = Vec::new();
        if let StreamMode::Translated(translated) = &mut self.mode {
            losses = std::mem::take(&mut translated.losses);
            if let Some(signatures) = translated.signatures.take() {
                signatures.store_into(&call.engine.signatures, &call.key.record.account_id);
            }
        }
        FinishedReply { meter, losses, was_stopped }
    }

    /// Returns true if the gateway ended the reply, so that the provider's stream must be dropped.
    pub(super) fn was_stopped(&self) -> bool {
        match &self.mode {
            StreamMode::PassThrough(_) => self.is_truncated,
            StreamMode::Translated(translated) => self.is_truncated || translated.was_stopped(),
        }
    }
}

impl StreamMode {
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
    fn new(
        call: &Call,
        facts: &RequestFacts,
        dialect: &'static dyn Dialect,
        translation: LaneTranslation,
    ) -> Self {
        let LaneTranslation { request: chat, stop_enforcer } = translation;
        let candidates = chat.sampling.candidates.unwrap_or(1);
        Self {
            caller_format: call.dialect.origin(),
            reader: dialect.stream_reader(),
            stop_enforcer: stop_enforcer
                .unwrap_or_else(|| StopEnforcer::forwarding_all(candidates, dialect.origin())),
            client_calls: ClientToolCalls::for_request(&chat),
            signatures: SignatureCollector::for_request(
                &call.engine.signatures,
                call.dialect,
                &chat,
            ),
            writer: match facts.stream {
                true => call.dialect.stream_writer(&chat, &call.reply_stamp()),
                false => Box::new(ReplyGatherer {
                    builder: ReplyBuilder::default(),
                    dialect: call.dialect,
                    request: chat,
                    stamp: call.reply_stamp(),
                }),
            },
            events: Vec::new(),
            run: TextRun::default(),
            meter: ReplyMeter::default(),
            losses: Vec::new(),
        }
    }

    fn push_frame(&mut self, frame: &StreamFrame, out: &mut Vec<u8>) -> StreamProgress {
        if let Err(error) = self.reader.push(frame, &mut self.events) {
            return StreamProgress::Broken(error);
        }
        if self.events.iter().any(|event| matches!(event, Event::Finish { .. })) {
            if let Some(error) = self.take_failed_turn(out) {
                return StreamProgress::Broken(error);
            }
            self.meter.is_finished = true;
        }
        self.write(out);
        if self.was_stopped() {
            self.complete(out)
        } else if self.reader.is_done() {
            self.finish(out)
        } else {
            StreamProgress::Ongoing
        }
    }

    /// Takes the first of these events that differ from the one before only in their text. Returns
    /// their length.
    fn repeat(&mut self, events: &[u8], out: &mut Vec<u8>) -> usize {
        if !self.client_calls.forwards_text() || !self.stop_enforcer.forwards_text() {
            return 0;
        }
        let taken = self.reader.repeat(events, &mut self.run);
        if taken > 0 {
            let texts = self.run.joined();
            self.meter.output_bytes += texts.len() as u64;
            if let Some(signatures) = &mut self.signatures {
                signatures.add_text(self.run.place(), texts);
            }
            self.writer.push_run(&self.run, out);
        }
        taken
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> StreamProgress {
        if let Err(error) = self.reader.finish(&mut self.events) {
            return StreamProgress::Broken(error);
        }
        if let Some(error) = self.take_failed_turn(out) {
            return StreamProgress::Broken(error);
        }
        self.write(out);
        self.complete(out)
    }

    /// Returns the error of a turn that failed and whose failure the caller's format cannot express.
    /// The output before it is written; without any, the next lane can still be tried.
    fn take_failed_turn(&mut self, out: &mut Vec<u8>) -> Option<ApiError> {
        if self.was_stopped() {
            return None;
        }
        let (at, error) = self.events.iter().enumerate().find_map(|(at, event)| match event {
            Event::Finish { finish, .. } => Some((at, failed_turn(finish, self.caller_format)?)),
            _ => None,
        })?;
        self.events.truncate(at);
        let is_output =
            |event: &Event| matches!(event, Event::PartStart(..) | Event::PartDelta(..));
        if self.events.iter().any(is_output) {
            self.write(out);
        }
        self.events.clear();
        Some(error)
    }

    fn complete(&mut self, out: &mut Vec<u8>) -> StreamProgress {
        self.meter.is_finished = true;
        self.losses.extend(self.client_calls.take_losses());
        self.losses.extend(self.writer.finish(out));
        StreamProgress::Complete
    }

    /// Returns true if the gateway ended the reply.
    fn was_stopped(&self) -> bool {
        self.stop_enforcer.is_finished()
    }

    /// Ends the reply now, as one that reached its output limit.
    fn truncate(&mut self, usage: Usage, out: &mut Vec<u8>) {
        let events = &mut self.events;
        self.stop_enforcer.cut(usage, &mut |event| events.push(event));
        self.write_events(out, false);
        self.complete(out);
    }

    /// Feeds a whole reply of a provider that was asked for a stream.
    fn push_reply(&mut self, reply: ChatReply, out: &mut Vec<u8>) -> StreamProgress {
        self.events.extend(canon::into_events(reply));
        self.write(out);
        self.complete(out)
    }

    fn write(&mut self, out: &mut Vec<u8>) {
        self.write_events(out, true);
    }

    /// Writes the pending events, through the stop enforcer if `enforce`.
    fn write_events(&mut self, out: &mut Vec<u8>, enforce: bool) {
        let Self {
            caller_format: _,
            reader: _,
            writer,
            stop_enforcer: enforcer,
            client_calls,
            signatures,
            events,
            run: _,
            meter,
            losses: _,
        } = self;
        let mut write = |event: Event| {
            meter.add_event(&event);
            if let Some(signatures) = signatures {
                signatures.observe(&event);
            }
            if client_calls.is_idle() {
                writer.push(event, out);
            } else {
                client_calls.push(event, |event| writer.push(event, out));
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
    request: Box<ChatRequest>,
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

fn cut_short_error(note: &str) -> ApiError {
    ApiError::new(canon::ErrorKind::Interrupted, "the provider's answer broke off before its end")
        .with_log_note(note)
}
