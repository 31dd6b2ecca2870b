//! The two roads a stream can take: its own pieces handed on, or events between two formats.

use bytes::Bytes;
use canon::{Chat, Event, Fault, Growth};
use dialects::{
    CustomCalls, Cutter, Dialect, Frame, Peek, Reader, Said, Sniffer, Stamp, Verdict, Writer,
};

use super::Call;
use super::seals::SealWatch;

/// How a provider's bytes become the caller's.
pub(super) struct Road {
    cutter: Cutter,
    lane: Lane,
}

enum Lane {
    /// Caller and provider speak the same format.
    Same(Box<dyn Sniffer>),
    /// They do not.
    Translated(Box<Translated>),
}

struct Translated {
    reader: Box<dyn Reader>,
    writer: Box<dyn Writer>,
    custom: CustomCalls,
    seals: Option<SealWatch>,
    events: Vec<Event>,
    said: Said,
    losses: Vec<String>,
}

/// How far a stream has come after some bytes.
pub(super) enum Course {
    /// More is to come.
    On,
    /// It is complete.
    Complete,
    /// It broke.
    Broken(Fault),
}

/// What a reply written by us is stamped with.
pub(crate) fn stamp(call: &Call) -> Stamp {
    let id = call.id.trim_start_matches("req_").to_owned();
    Stamp { id, created: call.app.clock.now() / 1_000_000 }
}

impl Road {
    pub(super) fn new(
        call: &Call,
        peek: &Peek,
        dialect: &'static dyn Dialect,
        chat: Option<&Chat>,
    ) -> Self {
        let lane = match chat {
            None => Lane::Same(dialect.sniffer(peek)),
            Some(chat) => Lane::Translated(Box::new(Translated {
                reader: dialect.reader(),
                writer: call.dialect.writer(chat, &stamp(call)),
                custom: CustomCalls::of(chat),
                seals: SealWatch::of(call.dialect.origin()),
                events: Vec::new(),
                said: Said::default(),
                losses: Vec::new(),
            })),
        };
        Self { cutter: Cutter::default(), lane }
    }

    /// Takes bytes of the provider's and writes what the caller is to get.
    pub(super) fn take(&mut self, bytes: Bytes, out: &mut Vec<u8>) -> Course {
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

    /// What the answer has said of itself.
    pub(super) fn said(&self) -> &Said {
        match &self.lane {
            Lane::Same(sniffer) => sniffer.said(),
            Lane::Translated(translated) => &translated.said,
        }
    }

    /// The seals a caller of this format may lose on its way.
    pub(super) fn seals(&mut self) -> Option<SealWatch> {
        match &mut self.lane {
            Lane::Same(_) => None,
            Lane::Translated(translated) => translated.seals.take(),
        }
    }

    /// What the translation could not show.
    pub(super) fn losses(&mut self) -> Vec<String> {
        match &mut self.lane {
            Lane::Same(_) => Vec::new(),
            Lane::Translated(translated) => std::mem::take(&mut translated.losses),
        }
    }
}

impl Lane {
    fn frame(&mut self, frame: &Frame, out: &mut Vec<u8>) -> Course {
        match self {
            Self::Same(sniffer) => match sniffer.frame(frame) {
                Verdict::Forward => {
                    sniffer.write(frame, out);
                    Course::On
                }
                Verdict::Swallow => Course::On,
                Verdict::Last => {
                    if !sniffer.said().finished {
                        return Course::Broken(cut_short("the end came without a finish reason"));
                    }
                    sniffer.write(frame, out);
                    Course::Complete
                }
                Verdict::Fault(fault) => Course::Broken(fault),
            },
            Self::Translated(translated) => translated.frame(frame, out),
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Course {
        match self {
            // Everything was said, only the end marker never came.
            Self::Same(sniffer) if sniffer.said().finished => {
                sniffer.write_end(out);
                Course::Complete
            }
            Self::Same(_) => Course::Broken(cut_short("the body ended without a finish reason")),
            Self::Translated(translated) => translated.finish(out),
        }
    }
}

impl Translated {
    fn frame(&mut self, frame: &Frame, out: &mut Vec<u8>) -> Course {
        if let Err(fault) = self.reader.push(frame, &mut self.events) {
            return Course::Broken(fault);
        }
        self.write(out);
        if self.reader.is_done() { self.finish(out) } else { Course::On }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Course {
        if let Err(fault) = self.reader.finish(&mut self.events) {
            return Course::Broken(fault);
        }
        self.write(out);
        self.said.finished = true;
        self.losses.extend(self.writer.finish(out).into_iter().map(|loss| loss.what));
        Course::Complete
    }

    fn write(&mut self, out: &mut Vec<u8>) {
        let Self { reader: _, writer, custom, seals, events, said, losses: _ } = self;
        for event in events.drain(..) {
            hear(&event, said);
            if let Some(seals) = seals {
                seals.see(&event);
            }
            if custom.is_idle() {
                writer.push(event, out);
            } else {
                custom.event(event, |event| writer.push(event, out));
            }
        }
    }
}

/// Keeps count of what an event says.
fn hear(event: &Event, said: &mut Said) {
    match event {
        Event::Count(usage) => {
            said.usage = Some(said.usage.unwrap_or_default().merged(*usage));
        }
        Event::Grow(_, Growth::Text(text)) => said.output_bytes += text.len() as u64,
        Event::Open(..) => said.output_bytes += 1,
        Event::Begin { .. }
        | Event::Grow(..)
        | Event::Sealed(..)
        | Event::Close(_)
        | Event::Aside { .. }
        | Event::End { .. }
        | Event::Fault(_) => {}
    }
}

fn cut_short(note: &str) -> Fault {
    Fault::new(canon::Trouble::Interrupted, "the provider's answer broke off before its end")
        .note(note)
}
