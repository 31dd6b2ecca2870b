//! Writes a responses stream from events.
//!
//! Items are written one at a time, each from `output_item.added` to `output_item.done`. Parts that
//! start meanwhile wait for their turn. An item is done only when the next one starts or the
//! response ends, because only then it is known if it was cut.

use canon::{ChatRequest, Event, Finish, Loss, PartIndex, Usage};
use serde_json::Value;
use std::collections::VecDeque;

use super::fault;
use super::names::ORIGIN;
use super::own::item_writer::ItemWriter;
use super::own::response_object::{ResponseEcho, ResponseEnd};
use crate::fields::{ObjectWriter, note_stop_text};
use crate::service_tier::{self, TIER_FIELD};
use crate::{ReplyStamp, StreamWriter};

/// Stream writer.
#[derive(Default)]
pub(super) struct ResponsesStreamWriter {
    echo: ResponseEcho,
    /// Time of the reply, and of its creation if the provider reports it.
    created: i64,
    pub(super) items: ItemWriter,
    /// The part in progress.
    current: Option<PartIndex>,
    /// Parts that wait, in the order they started, with their events.
    waiting: VecDeque<(PartIndex, Vec<Event>)>,
    started: bool,
    failed: bool,
    usage: Option<Usage>,
    finish: Option<Finish>,
}

impl ResponsesStreamWriter {
    /// Creates a writer of a stream, or of a whole response without events.
    pub(super) fn new(chat: &ChatRequest, stamp: &ReplyStamp, is_whole: bool) -> Self {
        Self {
            echo: ResponseEcho::from_request(chat, stamp),
            created: stamp.created,
            items: ItemWriter::new(chat, stamp, is_whole),
            started: is_whole,
            ..Self::default()
        }
    }

    /// Writes the two events at the start of each stream.
    fn begin(&mut self) {
        if self.started {
            return;
        }
        self.started = true;
        let state = ResponseEnd { status: "in_progress", ..ResponseEnd::default() };
        let response = self.echo.clone().into_state(state);
        for name in ["response.created", "response.in_progress"] {
            self.items.events.write_response(name, &response);
        }
    }

    /// Ends the response. Returns it with the name of its event.
    pub(super) fn end(&mut self) -> (&'static str, ObjectWriter) {
        let end = ResponseEnd::new(self.finish.as_ref(), &mut self.items.losses);
        self.items.finish_item(end.cut);
        let name = match end.status {
            "completed" => "response.completed",
            "failed" => "response.failed",
            _ => "response.incomplete",
        };
        let output = std::mem::take(&mut self.items.events.output);
        let completed = (end.status == "completed").then_some(self.created);
        let usage = Some(self.usage.unwrap_or_default());
        let end = ResponseEnd { output, usage, completed, ..end };
        (name, std::mem::take(&mut self.echo).into_state(end))
    }

    pub(super) fn take_losses(&mut self) -> Vec<Loss> {
        std::mem::take(&mut self.items.losses).into_vec()
    }

    pub(super) fn note_candidate(&mut self) {
        self.items.losses.add("reply.candidates", "the responses format has a single candidate");
    }

    /// Handles an event of one part: writes it if it is that part's turn, and keeps it otherwise.
    fn part_event(&mut self, place: PartIndex, event: Event) {
        self.begin();
        if place.candidate != 0 {
            return self.note_candidate();
        }
        if self.current.is_some_and(|current| current != place) {
            match self.waiting.iter_mut().find(|(waiting, _)| *waiting == place) {
                Some((_, events)) => events.push(event),
                None => self.waiting.push_back((place, vec![event])),
            }
            return;
        }
        let (mut next, mut ready) = (Some(event), Vec::new().into_iter());
        while let Some(event) = next {
            match event {
                Event::PartStart(place, opening) => {
                    self.current = Some(place);
                    self.items.open_part(opening);
                }
                Event::PartDelta(_, growth) => self.items.add_growth(growth),
                Event::PartSignature(_, signature) => self.items.set_signature(signature),
                _ => {
                    self.items.close_part();
                    self.current = None;
                    let waiting = self.waiting.pop_front();
                    ready = waiting.map(|(_, events)| events).unwrap_or_default().into_iter();
                }
            }
            next = ready.next();
        }
    }

    fn write(&mut self, event: Event) {
        match event {
            Event::Start { id: _, model: _, created } => {
                if let Some(created) = created {
                    self.created = self.created.max(created);
                    self.echo.set("created_at", Value::from(created));
                }
                self.begin();
            }
            Event::PartStart(place, _)
            | Event::PartDelta(place, _)
            | Event::PartSignature(place, _)
            | Event::PartEnd(place) => self.part_event(place, event),
            Event::Usage(usage) => self.usage = Some(usage),
            Event::Extra { candidate: _, origin: ORIGIN, name, value } => {
                self.echo.set(&name, value)
            }
            Event::Extra { candidate: _, origin, name, value } => {
                let losses = &mut self.items.losses;
                let tier = service_tier::note_reply_field(origin, &name, &value, ORIGIN, losses);
                if let Some(tier) = tier {
                    self.echo.set(TIER_FIELD, Value::from(tier));
                }
            }
            Event::Finish { candidate: 0, finish } => {
                self.begin();
                note_stop_text(Some(&finish), ORIGIN, &mut self.items.losses);
                let end = ResponseEnd::new(Some(&finish), &mut self.items.losses);
                self.items.finish_item(end.cut);
                self.finish = Some(finish);
            }
            Event::Finish { .. } => self.note_candidate(),
            Event::Error(fault) => {
                self.begin();
                self.failed = true;
                fault::write_stream_error(&fault, &self.echo, &mut self.items.events);
            }
        }
    }
}

impl StreamWriter for ResponsesStreamWriter {
    fn push(&mut self, event: Event, out: &mut Vec<u8>) {
        if !self.failed {
            std::mem::swap(&mut self.items.events.out, out);
            self.write(event);
            std::mem::swap(&mut self.items.events.out, out);
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Vec<Loss> {
        if !self.failed {
            self.begin();
            let (name, response) = self.end();
            self.items.events.write_response(name, &response);
            out.append(&mut self.items.events.out);
        }
        self.take_losses()
    }
}
