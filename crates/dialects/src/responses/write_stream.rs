//! Writes a responses stream from events.
//!
//! Items are written one at a time, each from `output_item.added` to `output_item.done`. Parts that
//! start meanwhile wait for their turn. An item is done only when the next one starts or the
//! response ends, because only then it is known if it was cut.

use canon::{Event, Finish, Loss, Losses, Place, Usage};
use serde_json::Value;
use std::collections::VecDeque;

use super::echo::{Echo, Moment};
use super::live::Live;
use super::write_reply::End;
use super::{ME, fault};
use crate::served::{self, TIER};
use crate::{Stamp, Writer};

/// Stream writer.
pub(super) struct ResponsesWriter {
    echo: Echo,
    stamp: Stamp,
    live: Live,
    /// The part in progress.
    speaking: Option<Place>,
    /// Parts that wait, in the order they started, with their events.
    waiting: VecDeque<(Place, Vec<Event>)>,
    begun: bool,
    broken: bool,
    usage: Option<Usage>,
    finish: Option<Finish>,
    losses: Losses,
}

impl ResponsesWriter {
    pub(super) fn new(chat: &canon::Chat, stamp: &Stamp) -> Self {
        Self {
            echo: Echo::of(chat, stamp, stamp.created),
            stamp: stamp.clone(),
            live: Live::new(chat, stamp),
            speaking: None,
            waiting: VecDeque::new(),
            begun: false,
            broken: false,
            usage: None,
            finish: None,
            losses: Losses::new(),
        }
    }

    /// Writes the two events at the start of each stream.
    fn begin(&mut self, out: &mut Vec<u8>) {
        if self.begun {
            return;
        }
        self.begun = true;
        for name in ["response.created", "response.in_progress"] {
            let moment = Moment { status: "in_progress", ..Moment::default() };
            let response = self.echo.at(moment).to_string();
            self.live.lines.send(name, format_args!("\"response\":{response}"), out);
        }
    }

    /// Handles an event of one part: writes it if it is that part's turn, and keeps it otherwise.
    fn part(&mut self, place: Place, event: Event, out: &mut Vec<u8>) {
        self.begin(out);
        if place.candidate != 0 {
            self.losses.add("reply.candidates", "the responses format gives one answer");
            return;
        }
        match self.speaking {
            Some(speaking) if speaking != place => {
                match self.waiting.iter_mut().find(|(waiting, _)| *waiting == place) {
                    Some((_, events)) => events.push(event),
                    None => self.waiting.push_back((place, vec![event])),
                }
            }
            _ => {
                self.say(place, event, out);
                while self.speaking.is_none()
                    && let Some((place, events)) = self.waiting.pop_front()
                {
                    for event in events {
                        self.say(place, event, out);
                    }
                }
            }
        }
    }

    fn say(&mut self, place: Place, event: Event, out: &mut Vec<u8>) {
        match event {
            Event::Open(_, opening) => {
                self.speaking = Some(place);
                self.live.open(opening, &mut self.losses, out);
            }
            Event::Grow(_, growth) => self.live.grow(growth, &mut self.losses, out),
            Event::Sealed(_, seal) => self.live.seal(seal),
            Event::Close(_) => {
                self.live.close(&mut self.losses, out);
                self.speaking = None;
            }
            Event::Begin { .. }
            | Event::Count(_)
            | Event::Aside { .. }
            | Event::End { .. }
            | Event::Fault(_) => {}
        }
    }
}

impl Writer for ResponsesWriter {
    fn push(&mut self, event: Event, out: &mut Vec<u8>) {
        if self.broken {
            return;
        }
        match event {
            Event::Begin { id: _, model: _, created } => {
                if let Some(created) = created {
                    self.echo.keep("created_at", Value::from(created));
                }
                self.begin(out);
            }
            Event::Open(place, _)
            | Event::Grow(place, _)
            | Event::Sealed(place, _)
            | Event::Close(place) => self.part(place, event, out),
            Event::Count(usage) => {
                self.usage = Some(self.usage.unwrap_or_default().merged(usage));
            }
            Event::Aside { candidate: _, origin, name, value } => {
                if origin == ME {
                    self.echo.keep(&name, value);
                } else if let Some(tier) =
                    served::aside(origin, &name, &value, ME, &mut self.losses)
                {
                    self.echo.keep(TIER, Value::from(tier));
                }
            }
            Event::End { candidate: 0, finish } => {
                self.begin(out);
                self.live.settle(End::of(Some(&finish)).cut, out);
                self.finish = Some(finish);
            }
            Event::End { .. } => {}
            Event::Fault(fault) => {
                self.begin(out);
                self.broken = true;
                let output = std::mem::take(&mut self.live.output);
                let sequence = self.live.lines.sequence;
                fault::write_stream(&fault, &self.echo, output, sequence, out);
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Vec<Loss> {
        if !self.broken {
            self.begin(out);
            let end = End::of(self.finish.as_ref());
            self.live.settle(end.cut, out);
            let output = std::mem::take(&mut self.live.output);
            let name = match end.status {
                "completed" => "response.completed",
                "failed" => "response.failed",
                _ => "response.incomplete",
            };
            let response = self.echo.at(Moment {
                status: end.status,
                reason: end.reason.as_deref(),
                error: end.error,
                output,
                usage: Some(self.usage.unwrap_or_default()),
                completed: (end.status == "completed").then_some(self.stamp.created),
            });
            self.live.lines.send(name, format_args!("\"response\":{response}"), out);
        }
        std::mem::take(&mut self.losses).into_vec()
    }
}
