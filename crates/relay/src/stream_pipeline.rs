//! Pipeline of a reply: frames are passed through, or translated as events between two formats. A
//! whole reply is one piece, passed through or translated at once.

use bytes::Bytes;
use canon::{ApiError, Loss, Usage};
use dialects::{FrameAction, ReplyMeter, RequestFacts, SseDecoder, StreamFrame, StreamMeter};

use super::Call;
use super::prepare::{ExpectedReply, LaneTranslation};
use super::settle::CallAccount;
use super::signature_cache::SignatureCollector;
use super::translated_stream::{StreamProgress, TranslatedStream, translate_reply};

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

/// End of every pipeline: what the account records of a complete reply.
pub(super) struct FinishedReply {
    meter: ReplyMeter,
    losses: Vec<Loss>,
    /// Signatures that a caller of this format may not send back.
    signatures: Option<SignatureCollector>,
    /// True if the gateway ended the reply.
    was_stopped: bool,
}

impl StreamPipeline {
    /// Creates a pipeline for a provider's stream: passed through, translated, or gathered for a
    /// caller that asked for a whole reply.
    pub(super) fn new(call: &Call, facts: &RequestFacts, expected: ExpectedReply) -> Self {
        let ExpectedReply { dialect, is_stream: _, translation } = expected;
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
            StreamMode::Translated(translated) => translated.truncate(*usage, out),
        }
        self.is_truncated = true;
    }

    /// Returns usage and output so far.
    pub(super) fn meter(&self) -> &ReplyMeter {
        match &self.mode {
            StreamMode::PassThrough(meter) => meter.totals(),
            StreamMode::Translated(translated) => translated.meter(),
        }
    }

    /// Ends the pipeline of a complete reply.
    pub(super) fn finished(&mut self) -> FinishedReply {
        let (meter, was_stopped) = (self.meter().clone(), self.was_stopped());
        let (losses, signatures) = match &mut self.mode {
            StreamMode::PassThrough(_) => (Vec::new(), None),
            StreamMode::Translated(translated) => translated.take_results(),
        };
        FinishedReply { meter, losses, signatures, was_stopped }
    }

    /// Returns true if the gateway ended the reply, so that the provider's stream must be dropped.
    pub(super) fn was_stopped(&self) -> bool {
        match &self.mode {
            StreamMode::PassThrough(_) => self.is_truncated,
            StreamMode::Translated(translated) => self.is_truncated || translated.was_stopped(),
        }
    }
}

impl FinishedReply {
    /// Runs a body that arrived as one piece through its pipeline. Returns the caller's bytes as
    /// well.
    ///
    /// The first byte shows what a provider sent that was asked for a stream: an object is a whole
    /// reply, anything else a stream with a wrong content type.
    pub(super) fn from_piece(
        call: &Call,
        facts: &RequestFacts,
        expected: ExpectedReply,
        body: Bytes,
    ) -> Result<(Self, Bytes), ApiError> {
        let mut out = Vec::new();
        if expected.is_stream && !body.trim_ascii_start().starts_with(b"{") {
            let mut pipeline = StreamPipeline::new(call, facts, expected);
            let progress = match pipeline.push_bytes(body, &mut out) {
                StreamProgress::Ongoing => pipeline.finish(&mut out),
                end => end,
            };
            return match progress {
                StreamProgress::Broken(error) => Err(error),
                StreamProgress::Ongoing | StreamProgress::Complete => {
                    Ok((pipeline.finished(), Bytes::from(out)))
                }
            };
        }
        let ExpectedReply { dialect, is_stream, translation } = expected;
        let meter = dialect.meter_reply(&body)?;
        let translation = match translation {
            Some(translation) => translation,
            None if is_stream => {
                let request = call.dialect.read_request(&call.target, &call.body)?;
                Box::new(LaneTranslation { request, stop_enforcer: None })
            }
            None => {
                let (losses, signatures) = (Vec::new(), None);
                return Ok((Self { meter, losses, signatures, was_stopped: false }, body));
            }
        };
        let reply = dialect.read_reply(&body)?;
        if !is_stream {
            let (body, losses) = translate_reply(call, &translation.request, reply);
            let finished = Self { meter, losses, signatures: None, was_stopped: false };
            return Ok((finished, Bytes::from(body)));
        }
        let mut stream = TranslatedStream::new(call, facts, dialect, *translation);
        stream.push_reply(reply, &mut out);
        let (losses, signatures) = stream.take_results();
        let (meter, was_stopped) = (stream.meter().clone(), stream.was_stopped());
        Ok((Self { meter, losses, signatures, was_stopped }, Bytes::from(out)))
    }

    /// Records usage, losses and end in the account, and stores the signatures.
    pub(super) fn record(self, call: &Call, account: &mut CallAccount) {
        let Self { meter, losses, signatures, was_stopped } = self;
        account.record_reply(meter);
        account.add_losses(losses);
        if was_stopped {
            account.note_gateway_stop();
        }
        if let Some(signatures) = signatures {
            signatures.store_into(&call.engine.signatures, &call.key.record.account_id);
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

fn cut_short_error(note: &str) -> ApiError {
    ApiError::new(canon::ErrorKind::Interrupted, "the provider's answer broke off before its end")
        .with_log_note(note)
}
