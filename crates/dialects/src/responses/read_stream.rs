//! Reads responses events into canon events.
//!
//! Deltas are forwarded as they arrive. A finished item arrives again as a whole and is read like
//! an item of a whole response; anything the deltas did not contain is added then. A stream
//! therefore yields the same reply as a whole response, and a server that sends no deltas works
//! too.

use canon::{
    ApiError, Citation, ErrorKind, Event, ExtraFields, Part, PartDelta, PartIndex, PartKind,
    PartStart, Thought,
};
use serde_json::Value;
use serde_json::value::RawValue;

use super::names::{FINAL_TEXT_EXTRA, NAMESPACE_FIELD, ORIGIN};
use super::read_items::{self, ItemReader};
use super::read_reply::{ResponseFields, parts_of, with_tool_calls};
use super::signatures::ItemSender;
use super::{fault, tool_names, wire};
use crate::fields::JsonPath;
use crate::repeated_text::TextReader;
use crate::sse::{not_json, out_of_order};
use crate::{StreamFrame, StreamReader};

/// Stream reader.
#[derive(Default)]
pub(super) struct ResponsesStreamReader {
    started: bool,
    done: bool,
    slots: u32,
    calls: bool,
    items: Vec<StreamedItem>,
    /// Items with arguments of a call that never started.
    orphans: Vec<u32>,
}

/// An item, by its output index.
struct StreamedItem {
    index: u32,
    /// Id, for servers that leave out the output index.
    id: Option<String>,
    parts: Vec<StreamedPart>,
    done: bool,
}

/// A part of an open item.
struct StreamedPart {
    slot: u32,
    /// Index inside the item.
    at: u32,
    /// Text forwarded so far.
    forwarded: String,
    citations: usize,
    logprobs: usize,
    /// The current summary part, to detect the start of the next one.
    summary: Option<(bool, u32)>,
}

impl StreamReader for ResponsesStreamReader {
    fn push(&mut self, frame: &StreamFrame, out: &mut Vec<Event>) -> Result<(), ApiError> {
        if self.done || &frame.data[..] == b"[DONE]" {
            return Ok(());
        }
        frame.check_object()?;
        let text = frame.text();
        let piece: wire::ResponsesEvent<'_> =
            serde_json::from_str(&text).map_err(|e| not_json(&e))?;
        let named = frame.event.as_deref().map(String::from_utf8_lossy);
        let kind = piece.r#type.as_deref().or(named.as_deref()).unwrap_or_default();
        match kind {
            "error" => {
                let error: Value = serde_json::from_str(&text).unwrap_or_default();
                return Err(fault::read(&error));
            }
            "response.created" | "response.in_progress" | "response.queued" => {
                let whole = parse_raw(piece.response);
                if !self.started && whole.is_object() {
                    self.begin(&whole, out);
                }
                return Ok(());
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                return self.finish_response(parse_raw(piece.response), kind, out);
            }
            _ => {}
        }
        let Some(index) = piece.output_index.or_else(|| self.guess_index(kind, &piece)) else {
            return Ok(());
        };
        if self.items.iter().any(|item| item.index == index && item.done) {
            return Ok(());
        }
        if !self.started {
            self.begin(&Value::Null, out);
        }
        match kind {
            "response.output_item.added" => self.added(index, &parse_raw(piece.item), out),
            "response.output_item.done" => self.finish_item(index, parse_raw(piece.item), out)?,
            "response.output_text.delta" => {
                let place = self.open(index, piece.content_index, PartStart::Text, out);
                self.grow(index, place, piece.text(), out);
                let logprobs = read_items::read_logprobs(&parse_raw(piece.logprobs));
                if !logprobs.is_empty() {
                    self.update_part(index, place, |part_state| {
                        part_state.logprobs += logprobs.len()
                    });
                    out.push(Event::PartDelta(place, PartDelta::Logprobs(logprobs)));
                }
            }
            "response.refusal.delta" => {
                let place = self.open(index, piece.content_index, PartStart::Refusal, out);
                self.grow(index, place, piece.text(), out);
            }
            "response.output_text.annotation.added" => {
                if let Some(citation) = read_items::citation(parse_raw(piece.annotation)) {
                    let place = self.open(index, piece.content_index, PartStart::Text, out);
                    self.update_part(index, place, |part_state| part_state.citations += 1);
                    out.push(Event::PartDelta(place, PartDelta::Citation(citation)));
                }
            }
            "response.reasoning_summary_text.delta" => {
                self.add_thinking(
                    index,
                    (false, piece.summary_index.unwrap_or(0)),
                    piece.text(),
                    out,
                );
            }
            "response.reasoning_text.delta" => {
                self.add_thinking(
                    index,
                    (true, piece.content_index.unwrap_or(0)),
                    piece.text(),
                    out,
                );
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                match self.place(index, 0) {
                    Some(place) => self.grow(index, place, piece.text(), out),
                    // The whole item may still come.
                    None => self.orphans.push(index),
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, _out: &mut Vec<Event>) -> Result<(), ApiError> {
        if self.done {
            return Ok(());
        }
        Err(ApiError::new(ErrorKind::Interrupted, "the provider's answer broke off before its end")
            .with_log_note("the responses stream ended without its last event"))
    }

    fn is_done(&self) -> bool {
        self.done
    }
}

impl TextReader for ResponsesStreamReader {
    fn push_text(&mut self, place: PartIndex, text: &str) -> bool {
        let mut parts = self.items.iter_mut().flat_map(|item| &mut item.parts);
        let own = parts.find(|part_state| part_state.slot == place.slot);
        own.map(|part_state| part_state.forwarded.push_str(text)).is_some()
    }
}

fn parse_raw(raw: Option<&RawValue>) -> Value {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

impl ResponsesStreamReader {
    fn begin(&mut self, response: &Value, out: &mut Vec<Event>) {
        self.started = true;
        let text = |name: &str| response.get(name).and_then(Value::as_str).map(str::to_owned);
        #[expect(clippy::cast_possible_truncation, reason = "seconds, at times with a fraction")]
        let created = response.get("created_at").and_then(Value::as_f64).map(|at| at as i64);
        out.push(Event::Start { id: text("id"), model: text("model"), created });
    }

    /// Returns the output index of an event that lacks it: that of the named item, or of the last
    /// one. llama.cpp sends no output index
    /// (<https://github.com/ggml-org/llama.cpp/blob/master/tools/server/server-task.cpp>).
    fn guess_index(&mut self, kind: &str, piece: &wire::ResponsesEvent<'_>) -> Option<u32> {
        let is_item = matches!(kind, "response.output_item.added" | "response.output_item.done");
        let is_delta = kind.ends_with(".delta") || kind.ends_with(".annotation.added");
        if !is_item && !is_delta {
            return None;
        }
        let item = parse_raw(piece.item);
        // Calls of such a server have no id of their own.
        let own = item.get("id").or_else(|| item.get("call_id")).and_then(Value::as_str);
        let named = piece.item_id.as_deref().or(own);
        let known = self.items.iter().find(|item| named.is_some() && item.id.as_deref() == named);
        if let Some(item) = known {
            return Some(item.index);
        }
        let last = self.items.last().filter(|item| !item.done && item.id.is_none());
        let next = || self.items.iter().map(|item| item.index + 1).max().unwrap_or(0);
        let index = match last {
            Some(last) if kind != "response.output_item.added" => last.index,
            _ => next(),
        };
        let id = named.map(str::to_owned);
        self.entry(index).id = id;
        Some(index)
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
        let name = tool_names::flat_name(text(NAMESPACE_FIELD), name);
        self.calls = true;
        self.open(index, Some(0), PartStart::ToolCall { id: id.to_owned(), name, custom }, out);
        // A server that does not stream arguments may send them here.
        let given = text(if custom { "input" } else { "arguments" }).unwrap_or_default();
        if let Some(place) = self.place(index, 0) {
            self.grow(index, place, given.to_owned(), out);
        }
    }

    /// Returns the item with that index. Adds it if it is new.
    fn entry(&mut self, index: u32) -> &mut StreamedItem {
        let at = self.items.iter().position(|item| item.index == index).unwrap_or_else(|| {
            self.items.push(StreamedItem { index, id: None, parts: Vec::new(), done: false });
            self.items.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "found or pushed just above")]
        &mut self.items[at]
    }

    fn place(&self, index: u32, at: u32) -> Option<PartIndex> {
        let item = self.items.iter().find(|item| item.index == index && !item.done)?;
        let part_state = item.parts.iter().find(|part_state| part_state.at == at)?;
        Some(PartIndex::first(part_state.slot))
    }

    /// Returns the part with that index in its item. Opens it if it is new.
    fn open(
        &mut self,
        index: u32,
        at: Option<u32>,
        opening: PartStart,
        out: &mut Vec<Event>,
    ) -> PartIndex {
        let at = at.unwrap_or(0);
        if let Some(place) = self.place(index, at) {
            return place;
        }
        let slot = self.slots;
        self.slots += 1;
        let part_state = StreamedPart {
            slot,
            at,
            forwarded: String::new(),
            citations: 0,
            logprobs: 0,
            summary: None,
        };
        self.entry(index).parts.push(part_state);
        let place = PartIndex::first(slot);
        out.push(Event::PartStart(place, opening));
        place
    }

    fn update_part(
        &mut self,
        index: u32,
        place: PartIndex,
        change: impl FnOnce(&mut StreamedPart),
    ) {
        let item = self.items.iter_mut().find(|item| item.index == index);
        let part_state = item.and_then(|item| {
            item.parts.iter_mut().find(|part_state| part_state.slot == place.slot)
        });
        if let Some(part_state) = part_state {
            change(part_state);
        }
    }

    fn grow(&mut self, index: u32, place: PartIndex, text: String, out: &mut Vec<Event>) {
        if text.is_empty() {
            return;
        }
        self.update_part(index, place, |part_state| part_state.forwarded.push_str(&text));
        out.push(Event::PartDelta(place, PartDelta::Text(text)));
    }

    /// Adds thinking. Summaries are joined by blank lines.
    fn add_thinking(
        &mut self,
        index: u32,
        summary: (bool, u32),
        text: String,
        out: &mut Vec<Event>,
    ) {
        let place = self.open(index, Some(0), PartStart::Thought, out);
        let mut needs_break = false;
        self.update_part(index, place, |part_state| {
            needs_break = part_state.summary.is_some_and(|before| before != summary);
            part_state.summary = Some(summary);
        });
        if needs_break {
            self.grow(index, place, "\n\n".to_owned(), out);
        }
        self.grow(index, place, text, out);
    }

    /// Reads a finished item: adds anything missing and closes its parts.
    fn finish_item(
        &mut self,
        index: u32,
        item: Value,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        self.orphans.retain(|orphan| *orphan != index);
        let mut items = ItemReader::new(ItemSender::Provider);
        let item =
            items.read(item, &JsonPath::Root).map_err(|e| fault::unreadable(&e.to_string()))?;
        let mut logprobs = items.logprobs;
        for (at, part) in (0_u32..).zip(parts_of(item)) {
            self.calls |= matches!(part.kind, PartKind::ToolCall(_));
            let is_text = matches!(part.kind, PartKind::Text { .. });
            match self.entry(index).parts.iter().position(|part_state| part_state.at == at) {
                Some(found) => {
                    let part_state = self.entry(index).parts.swap_remove(found);
                    let missing = if part_state.logprobs == 0 && is_text {
                        std::mem::take(&mut logprobs)
                    } else {
                        Vec::new()
                    };
                    add_missing(&part_state, part, out);
                    let place = PartIndex::first(part_state.slot);
                    if !missing.is_empty() {
                        out.push(Event::PartDelta(place, PartDelta::Logprobs(missing)));
                    }
                    out.push(Event::PartEnd(place));
                }
                None => {
                    let place = PartIndex::first(self.slots);
                    self.slots += 1;
                    let missing = if is_text { std::mem::take(&mut logprobs) } else { Vec::new() };
                    write_whole_part(place, part, missing, out);
                }
            }
        }
        let open = self.entry(index);
        open.done = true;
        let left: Vec<u32> = open.parts.drain(..).map(|part_state| part_state.slot).collect();
        out.extend(left.into_iter().map(|slot| Event::PartEnd(PartIndex::first(slot))));
        Ok(())
    }

    fn finish_response(
        &mut self,
        response: Value,
        kind: &str,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        if kind == "response.failed" {
            let error = response.get("error").cloned().unwrap_or_default();
            return Err(fault::read(&error));
        }
        if !self.started {
            self.begin(&response, out);
        }
        let whole = ResponseFields::read(response)?;
        let ResponseFields { id: _, model: _, created: _, output, finish, usage, extras } = whole;
        for (index, item) in (0_u32..).zip(output) {
            if !self.entry(index).done {
                self.finish_item(index, item, out)?;
            }
        }
        if !self.orphans.is_empty() {
            return Err(out_of_order("arguments of a call that never started"));
        }
        let left = self.items.iter_mut().flat_map(|item| item.parts.drain(..));
        out.extend(left.map(|part_state| Event::PartEnd(PartIndex::first(part_state.slot))));
        for (name, value) in extras.for_format(ORIGIN).into_iter().flatten() {
            let (name, value) = (name.clone(), value.clone());
            out.push(Event::Extra { candidate: None, origin: ORIGIN, name, value });
        }
        out.extend(usage.map(Event::Usage));
        if let Some(finish) = finish {
            let finish = with_tool_calls(finish, self.calls);
            out.push(Event::Finish { candidate: 0, finish });
        }
        self.done = true;
        Ok(())
    }
}

/// Adds anything the deltas of a part did not contain.
fn add_missing(part_state: &StreamedPart, part: Part, out: &mut Vec<Event>) {
    let place = PartIndex::first(part_state.slot);
    let Part { kind, signature, cache_breakpoint: _, extras } = part;
    let (text, citations): (String, Vec<Citation>) = match kind {
        PartKind::Text { text, citations } => (text, citations),
        PartKind::Refusal(text) => (text, Vec::new()),
        PartKind::Thought(Thought { text, redacted: _ }) => (text, Vec::new()),
        PartKind::ToolCall(call) => (call.arguments, Vec::new()),
        PartKind::Media(_)
        | PartKind::ToolResult(_)
        | PartKind::CodeExecution(_)
        | PartKind::CodeResult(_)
        | PartKind::WebSearch(_)
        | PartKind::Foreign { .. } => (String::new(), Vec::new()),
    };
    match text.strip_prefix(&*part_state.forwarded) {
        Some("") => {}
        Some(rest) => out.push(Event::PartDelta(place, PartDelta::Text(rest.to_owned()))),
        // The deltas have been delivered and cannot be taken back. The difference is told.
        None => out.push(Event::PartDelta(
            place,
            PartDelta::Extra {
                origin: ORIGIN,
                name: FINAL_TEXT_EXTRA.to_owned(),
                value: Value::String(text),
            },
        )),
    }
    for citation in citations.into_iter().skip(part_state.citations) {
        out.push(Event::PartDelta(place, PartDelta::Citation(citation)));
    }
    grow_extras(place, &extras, out);
    out.extend(signature.map(|signature| Event::PartSignature(place, signature)));
}

/// Opens and closes a part without deltas.
fn write_whole_part(
    place: PartIndex,
    part: Part,
    logprobs: Vec<canon::Logprob>,
    out: &mut Vec<Event>,
) {
    let Part { kind, signature, cache_breakpoint: cache, extras } = part;
    let mut grown = Vec::new();
    let opening = match kind {
        PartKind::Text { text, citations } => {
            grown.push(PartDelta::Text(text));
            grown.extend(citations.into_iter().map(PartDelta::Citation));
            PartStart::Text
        }
        PartKind::Refusal(text) => {
            grown.push(PartDelta::Text(text));
            PartStart::Refusal
        }
        PartKind::Thought(Thought { text, redacted: false }) => {
            grown.push(PartDelta::Text(text));
            PartStart::Thought
        }
        PartKind::ToolCall(call) => {
            grown.push(PartDelta::Text(call.arguments));
            PartStart::ToolCall { id: call.id, name: call.name, custom: call.custom }
        }
        kind @ (PartKind::Thought(_)
        | PartKind::Media(_)
        | PartKind::ToolResult(_)
        | PartKind::CodeExecution(_)
        | PartKind::CodeResult(_)
        | PartKind::WebSearch(_)
        | PartKind::Foreign { .. }) => {
            let whole =
                Part { kind, signature: None, cache_breakpoint: cache, extras: extras.clone() };
            out.push(Event::PartStart(place, PartStart::Complete(Box::new(whole))));
            out.extend(signature.map(|signature| Event::PartSignature(place, signature)));
            out.push(Event::PartEnd(place));
            return;
        }
    };
    out.push(Event::PartStart(place, opening));
    grown.retain(|growth| !matches!(growth, PartDelta::Text(text) if text.is_empty()));
    out.extend(grown.into_iter().map(|growth| Event::PartDelta(place, growth)));
    if !logprobs.is_empty() {
        out.push(Event::PartDelta(place, PartDelta::Logprobs(logprobs)));
    }
    grow_extras(place, &extras, out);
    out.extend(signature.map(|signature| Event::PartSignature(place, signature)));
    out.push(Event::PartEnd(place));
}

fn grow_extras(place: PartIndex, extras: &ExtraFields, out: &mut Vec<Event>) {
    for (name, value) in extras.for_format(ORIGIN).into_iter().flatten() {
        let (name, value) = (name.clone(), value.clone());
        out.push(Event::PartDelta(place, PartDelta::Extra { origin: ORIGIN, name, value }));
    }
}
