//! Writes a responses stream from events.
//!
//! Items are written one at a time, each from `output_item.added` to `output_item.done`. Parts that
//! start meanwhile wait for their turn. An item is done only when the next one starts or the
//! response ends, because only then it is known if it was cut.

use canon::{ChatRequest, Event, Finish, Loss, Losses, PartIndex, Usage};
use serde_json::Value;
use std::collections::VecDeque;

use super::fault;
use super::names::ORIGIN;
use super::own::item_writer::ItemWriter;
use super::own::reply_items::ResponseEnd;
use super::own::response_object::ResponseEcho;
use crate::fields::{ObjectWriter, note_stop_text};
use crate::service_tier::{self, TIER_FIELD};
use crate::{ReplyStamp, StreamWriter};

/// Stream writer.
pub(super) struct ResponsesStreamWriter {
    echo: ResponseEcho,
    /// Time of the reply, and of its creation if the provider reports it.
    created: i64,
    items: ItemWriter,
    /// The part in progress.
    current: Option<PartIndex>,
    /// Parts that wait, in the order they started, with their events.
    waiting: VecDeque<(PartIndex, Vec<Event>)>,
    /// Events of a part that has waited.
    ready: VecDeque<Event>,
    started: bool,
    failed: bool,
    usage: Option<Usage>,
    finish: Option<Finish>,
    losses: Losses,
}

impl ResponsesStreamWriter {
    /// Creates a writer of a stream, or of a whole response without events.
    pub(super) fn new(chat: &ChatRequest, stamp: &ReplyStamp, is_whole: bool) -> Self {
        Self {
            echo: ResponseEcho::from_request(chat, stamp, stamp.created),
            created: stamp.created,
            items: ItemWriter::new(chat, stamp, is_whole),
            current: None,
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            started: is_whole,
            failed: false,
            usage: None,
            finish: None,
            losses: Losses::new(),
        }
    }

    /// Writes the two events at the start of each stream.
    fn begin(&mut self, out: &mut Vec<u8>) {
        if self.started {
            return;
        }
        self.started = true;
        for name in ["response.created", "response.in_progress"] {
            let state = ResponseEnd { status: "in_progress", ..ResponseEnd::default() };
            let response = self.echo.with_state(state, Vec::new(), None, None);
            self.write_response(name, response, out);
        }
    }

    fn write_response(&mut self, name: &str, response: ObjectWriter, out: &mut Vec<u8>) {
        let event = ObjectWriter::new().set("response", response);
        self.items.events.write_object(name, &event, out);
    }

    /// Ends the response. Returns it with the name of its event.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) -> (&'static str, ObjectWriter) {
        let end = ResponseEnd::new(self.finish.as_ref(), &mut self.losses);
        self.items.finish_item(end.cut, out);
        let name = match end.status {
            "completed" => "response.completed",
            "failed" => "response.failed",
            _ => "response.incomplete",
        };
        let output = std::mem::take(&mut self.items.events.output);
        let completed = (end.status == "completed").then_some(self.created);
        let usage = Some(self.usage.unwrap_or_default());
        let response = self.echo.with_state(end, output, usage, completed);
        (name, response)
    }

    pub(super) fn take_losses(&mut self) -> Vec<Loss> {
        std::mem::take(&mut self.losses).into_vec()
    }

    fn note_candidate(&mut self) {
        self.losses.add("reply.candidates", "the responses format has a single candidate");
    }

    /// Handles an event of one part: writes it if it is that part's turn, and keeps it otherwise.
    fn part_event(&mut self, place: PartIndex, event: Event, out: &mut Vec<u8>) {
        self.begin(out);
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
        let mut next = Some(event);
        while let Some(event) = next {
            match event {
                Event::PartStart(place, opening) => {
                    self.current = Some(place);
                    self.items.open_part(opening, &mut self.losses, out);
                }
                Event::PartDelta(_, growth) => self.items.add_growth(growth, &mut self.losses, out),
                Event::PartSignature(_, signature) => self.items.set_signature(signature),
                _ => {
                    self.items.close_part(&mut self.losses, out);
                    self.current = None;
                    let waiting = self.waiting.pop_front();
                    self.ready.extend(waiting.into_iter().flat_map(|(_, events)| events));
                }
            }
            next = self.ready.pop_front();
        }
    }
}

impl StreamWriter for ResponsesStreamWriter {
    fn push(&mut self, event: Event, out: &mut Vec<u8>) {
        if self.failed {
            return;
        }
        match event {
            Event::Start { id: _, model: _, created } => {
                if let Some(created) = created {
                    self.created = self.created.max(created);
                    self.echo.set("created_at", Value::from(created));
                }
                self.begin(out);
            }
            Event::PartStart(place, _)
            | Event::PartDelta(place, _)
            | Event::PartSignature(place, _)
            | Event::PartEnd(place) => self.part_event(place, event, out),
            Event::Usage(usage) => self.usage = Some(usage),
            Event::Extra { candidate: _, origin, name, value } => {
                if origin == ORIGIN {
                    self.echo.set(&name, value);
                } else if let Some(tier) =
                    service_tier::note_reply_field(origin, &name, &value, ORIGIN, &mut self.losses)
                {
                    self.echo.set(TIER_FIELD, Value::from(tier));
                }
            }
            Event::Finish { candidate: 0, finish } => {
                self.begin(out);
                note_stop_text(Some(&finish), ORIGIN, &mut self.losses);
                let end = ResponseEnd::new(Some(&finish), &mut self.losses);
                self.items.finish_item(end.cut, out);
                self.finish = Some(finish);
            }
            Event::Finish { .. } => self.note_candidate(),
            Event::Error(fault) => {
                self.begin(out);
                self.failed = true;
                fault::write_stream_error(&fault, &self.echo, &mut self.items.events, out);
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Vec<Loss> {
        if !self.failed {
            self.begin(out);
            let (name, response) = self.end(out);
            self.write_response(name, response, out);
        }
        self.take_losses()
    }
}
