//! Reads responses events into canon events.
//!
//! Deltas are forwarded as they arrive. A finished item arrives again as a whole and is read like
//! an item of a whole response; anything the deltas did not contain is added then. A stream
//! therefore yields the same reply as a whole response, and a server that sends no deltas works
//! too.

use canon::{Citation, Event, Extras, Fault, Growth, Kind, Opening, Part, Place, Thought, Trouble};
use serde_json::Value;
use serde_json::value::RawValue;

use super::items::Items;
use super::read_reply::{Whole, parts_of, with_calls};
use super::seals::Side;
use super::{ME, fault, items, names, wire};
use crate::fields::Path;
use crate::{Frame, Reader};

/// Stream reader.
#[derive(Default)]
pub(super) struct ResponsesReader {
    begun: bool,
    done: bool,
    slots: u32,
    calls: bool,
    items: Vec<Open>,
}

/// An item, by its output index.
struct Open {
    index: u32,
    parts: Vec<Said>,
    done: bool,
}

/// A part of an open item.
struct Said {
    slot: u32,
    /// Index inside the item.
    at: u32,
    /// Bytes of text forwarded so far.
    shown: usize,
    citations: usize,
    logprobs: usize,
    /// The current summary part, to detect the start of the next one.
    summary: Option<(bool, u32)>,
}

impl Reader for ResponsesReader {
    fn push(&mut self, frame: &Frame, out: &mut Vec<Event>) -> Result<(), Fault> {
        if self.done || &frame.data[..] == b"[DONE]" {
            return Ok(());
        }
        let text = frame.text();
        let piece: wire::Piece<'_> = serde_json::from_str(&text).map_err(|e| broken(&e))?;
        let named = frame.event.as_deref().map(String::from_utf8_lossy);
        let kind = piece.r#type.as_deref().or(named.as_deref()).unwrap_or_default();
        match kind {
            "error" => {
                let error: Value = serde_json::from_str(&text).unwrap_or_default();
                return Err(fault::read(&error));
            }
            "response.created" | "response.in_progress" | "response.queued" => {
                let whole = value(piece.response);
                if !self.begun && whole.is_object() {
                    self.begin(&whole, out);
                }
                return Ok(());
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                return self.end(value(piece.response), kind, out);
            }
            _ => {}
        }
        let Some(index) = piece.output_index else { return Ok(()) };
        if self.items.iter().any(|item| item.index == index && item.done) {
            return Ok(());
        }
        if !self.begun {
            self.begin(&Value::Null, out);
        }
        match kind {
            "response.output_item.added" => self.added(index, &value(piece.item), out),
            "response.output_item.done" => self.item(index, value(piece.item), out)?,
            "response.output_text.delta" => {
                let place = self.open(index, piece.content_index, Opening::Text, out);
                self.grow(index, place, piece.text(), out);
                let chances = items::logprobs(&value(piece.logprobs));
                if !chances.is_empty() {
                    self.count(index, place, |said| said.logprobs += chances.len());
                    out.push(Event::Grow(place, Growth::Logprobs(chances)));
                }
            }
            "response.refusal.delta" => {
                let place = self.open(index, piece.content_index, Opening::Refusal, out);
                self.grow(index, place, piece.text(), out);
            }
            "response.output_text.annotation.added" => {
                if let Some(citation) = items::citation(value(piece.annotation)) {
                    let place = self.open(index, piece.content_index, Opening::Text, out);
                    self.count(index, place, |said| said.citations += 1);
                    out.push(Event::Grow(place, Growth::Citation(citation)));
                }
            }
            "response.reasoning_summary_text.delta" => {
                self.think(index, (false, piece.summary_index.unwrap_or(0)), piece.text(), out);
            }
            "response.reasoning_text.delta" => {
                self.think(index, (true, piece.content_index.unwrap_or(0)), piece.text(), out);
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                if let Some(place) = self.place(index, 0) {
                    self.grow(index, place, piece.text(), out);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, _out: &mut Vec<Event>) -> Result<(), Fault> {
        if self.done {
            return Ok(());
        }
        Err(Fault::new(Trouble::Interrupted, "the provider's answer broke off before its end")
            .note("the responses stream ended without its last event"))
    }

    fn is_done(&self) -> bool {
        self.done
    }
}

fn broken(error: &serde_json::Error) -> Fault {
    Fault::new(Trouble::Interrupted, "the provider sent a piece that is not JSON")
        .note(format!("unreadable responses event: {error}"))
}

fn value(raw: Option<&RawValue>) -> Value {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

impl ResponsesReader {
    fn begin(&mut self, response: &Value, out: &mut Vec<Event>) {
        self.begun = true;
        let text = |name: &str| response.get(name).and_then(Value::as_str).map(str::to_owned);
        #[expect(clippy::cast_possible_truncation, reason = "seconds, at times with a fraction")]
        let created = response.get("created_at").and_then(Value::as_f64).map(|at| at as i64);
        out.push(Event::Begin { id: text("id"), model: text("model"), created });
    }

    /// Opens a tool call at once, because its name is known. Other items are opened with their
    /// first delta.
    fn added(&mut self, index: u32, item: &Value, out: &mut Vec<Event>) {
        let text = |name: &str| item.get(name).and_then(Value::as_str);
        let custom = match text("type") {
            Some("function_call") => false,
            Some("custom_tool_call") => true,
            _ => return,
        };
        let (Some(name), Some(id)) = (text("name"), text("call_id")) else { return };
        let name = names::flat(text(names::SPACE), name);
        self.calls = true;
        self.open(index, Some(0), Opening::ToolCall { id: id.to_owned(), name, custom }, out);
        // A server that does not stream arguments may send them here.
        let given = text(if custom { "input" } else { "arguments" }).unwrap_or_default();
        if let Some(place) = self.place(index, 0) {
            self.grow(index, place, given.to_owned(), out);
        }
    }

    /// Returns the item with that index. Adds it if it is new.
    fn entry(&mut self, index: u32) -> &mut Open {
        let at = self.items.iter().position(|item| item.index == index).unwrap_or_else(|| {
            self.items.push(Open { index, parts: Vec::new(), done: false });
            self.items.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "found or pushed just above")]
        &mut self.items[at]
    }

    fn place(&self, index: u32, at: u32) -> Option<Place> {
        let item = self.items.iter().find(|item| item.index == index && !item.done)?;
        let said = item.parts.iter().find(|said| said.at == at)?;
        Some(Place::first(said.slot))
    }

    /// Returns the part with that index in its item. Opens it if it is new.
    fn open(
        &mut self,
        index: u32,
        at: Option<u32>,
        opening: Opening,
        out: &mut Vec<Event>,
    ) -> Place {
        let at = at.unwrap_or(0);
        if let Some(place) = self.place(index, at) {
            return place;
        }
        let slot = self.slots;
        self.slots += 1;
        let said = Said { slot, at, shown: 0, citations: 0, logprobs: 0, summary: None };
        self.entry(index).parts.push(said);
        let place = Place::first(slot);
        out.push(Event::Open(place, opening));
        place
    }

    fn count(&mut self, index: u32, place: Place, change: impl FnOnce(&mut Said)) {
        let item = self.items.iter_mut().find(|item| item.index == index);
        let said = item.and_then(|item| item.parts.iter_mut().find(|said| said.slot == place.slot));
        if let Some(said) = said {
            change(said);
        }
    }

    fn grow(&mut self, index: u32, place: Place, text: String, out: &mut Vec<Event>) {
        if text.is_empty() {
            return;
        }
        self.count(index, place, |said| said.shown += text.len());
        out.push(Event::Grow(place, Growth::Text(text)));
    }

    /// Adds thinking. Summaries are joined by blank lines.
    fn think(&mut self, index: u32, summary: (bool, u32), text: String, out: &mut Vec<Event>) {
        let place = self.open(index, Some(0), Opening::Thought, out);
        let mut joint = false;
        self.count(index, place, |said| {
            joint = said.summary.is_some_and(|before| before != summary);
            said.summary = Some(summary);
        });
        if joint {
            self.grow(index, place, "\n\n".to_owned(), out);
        }
        self.grow(index, place, text, out);
    }

    /// Reads a finished item: adds anything missing and closes its parts.
    fn item(&mut self, index: u32, item: Value, out: &mut Vec<Event>) -> Result<(), Fault> {
        let mut items = Items::of(Side::Provider);
        let item = items.read(item, &Path::Root).map_err(|e| fault::unreadable(&e.to_string()))?;
        let mut chances = items.logprobs;
        for (at, part) in (0_u32..).zip(parts_of(item)) {
            self.calls |= matches!(part.kind, Kind::ToolCall(_));
            let spoken = matches!(part.kind, Kind::Text { .. });
            match self.entry(index).parts.iter().position(|said| said.at == at) {
                Some(found) => {
                    let said = self.entry(index).parts.swap_remove(found);
                    let missing = if said.logprobs == 0 && spoken {
                        std::mem::take(&mut chances)
                    } else {
                        Vec::new()
                    };
                    complete(&said, part, out);
                    let place = Place::first(said.slot);
                    if !missing.is_empty() {
                        out.push(Event::Grow(place, Growth::Logprobs(missing)));
                    }
                    out.push(Event::Close(place));
                }
                None => {
                    let place = Place::first(self.slots);
                    self.slots += 1;
                    let missing = if spoken { std::mem::take(&mut chances) } else { Vec::new() };
                    open_whole(place, part, missing, out);
                }
            }
        }
        let open = self.entry(index);
        open.done = true;
        let left: Vec<u32> = open.parts.drain(..).map(|said| said.slot).collect();
        out.extend(left.into_iter().map(|slot| Event::Close(Place::first(slot))));
        Ok(())
    }

    fn end(&mut self, response: Value, kind: &str, out: &mut Vec<Event>) -> Result<(), Fault> {
        if kind == "response.failed" {
            let error = response.get("error").cloned().unwrap_or_default();
            return Err(fault::read(&error));
        }
        if !self.begun {
            self.begin(&response, out);
        }
        let whole = Whole::read(response)?;
        let Whole { id: _, model: _, created: _, output, finish, usage, extras } = whole;
        for (index, item) in (0_u32..).zip(output) {
            if !self.entry(index).done {
                self.item(index, item, out)?;
            }
        }
        let left = self.items.iter_mut().flat_map(|item| item.parts.drain(..));
        out.extend(left.map(|said| Event::Close(Place::first(said.slot))));
        for (name, value) in extras.for_origin(ME).into_iter().flatten() {
            let (name, value) = (name.clone(), value.clone());
            out.push(Event::Aside { candidate: None, origin: ME, name, value });
        }
        out.extend(usage.map(Event::Count));
        if let Some(finish) = finish {
            let finish = with_calls(finish, self.calls);
            out.push(Event::End { candidate: 0, finish });
        }
        self.done = true;
        Ok(())
    }
}

/// Adds anything the deltas of a part did not contain.
fn complete(said: &Said, part: Part, out: &mut Vec<Event>) {
    let place = Place::first(said.slot);
    let Part { kind, seal, cache: _, extras } = part;
    let (text, citations): (String, Vec<Citation>) = match kind {
        Kind::Text { text, citations } => (text, citations),
        Kind::Refusal(text) => (text, Vec::new()),
        Kind::Thought(Thought { text, redacted: _ }) => (text, Vec::new()),
        Kind::ToolCall(call) => (call.arguments, Vec::new()),
        Kind::Media(_)
        | Kind::ToolResult(_)
        | Kind::Code(_)
        | Kind::CodeOutcome(_)
        | Kind::Search(_)
        | Kind::Foreign { .. } => (String::new(), Vec::new()),
    };
    if let Some(rest) = text.get(said.shown..).filter(|rest| !rest.is_empty()) {
        out.push(Event::Grow(place, Growth::Text(rest.to_owned())));
    }
    for citation in citations.into_iter().skip(said.citations) {
        out.push(Event::Grow(place, Growth::Citation(citation)));
    }
    grow_extras(place, &extras, out);
    out.extend(seal.map(|seal| Event::Sealed(place, seal)));
}

/// Opens and closes a part without deltas.
fn open_whole(place: Place, part: Part, chances: Vec<canon::Logprob>, out: &mut Vec<Event>) {
    let Part { kind, seal, cache, extras } = part;
    let mut grown = Vec::new();
    let opening = match kind {
        Kind::Text { text, citations } => {
            grown.push(Growth::Text(text));
            grown.extend(citations.into_iter().map(Growth::Citation));
            Opening::Text
        }
        Kind::Refusal(text) => {
            grown.push(Growth::Text(text));
            Opening::Refusal
        }
        Kind::Thought(Thought { text, redacted: false }) => {
            grown.push(Growth::Text(text));
            Opening::Thought
        }
        Kind::ToolCall(call) => {
            grown.push(Growth::Text(call.arguments));
            Opening::ToolCall { id: call.id, name: call.name, custom: call.custom }
        }
        kind @ (Kind::Thought(_)
        | Kind::Media(_)
        | Kind::ToolResult(_)
        | Kind::Code(_)
        | Kind::CodeOutcome(_)
        | Kind::Search(_)
        | Kind::Foreign { .. }) => {
            let whole = Part { kind, seal: None, cache, extras: extras.clone() };
            out.push(Event::Open(place, Opening::Whole(Box::new(whole))));
            out.extend(seal.map(|seal| Event::Sealed(place, seal)));
            out.push(Event::Close(place));
            return;
        }
    };
    out.push(Event::Open(place, opening));
    grown.retain(|growth| !matches!(growth, Growth::Text(text) if text.is_empty()));
    out.extend(grown.into_iter().map(|growth| Event::Grow(place, growth)));
    if !chances.is_empty() {
        out.push(Event::Grow(place, Growth::Logprobs(chances)));
    }
    grow_extras(place, &extras, out);
    out.extend(seal.map(|seal| Event::Sealed(place, seal)));
    out.push(Event::Close(place));
}

fn grow_extras(place: Place, extras: &Extras, out: &mut Vec<Event>) {
    for (name, value) in extras.for_origin(ME).into_iter().flatten() {
        let (name, value) = (name.clone(), value.clone());
        out.push(Event::Grow(place, Growth::Extra { origin: ME, name, value }));
    }
}
