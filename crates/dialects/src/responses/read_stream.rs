//! Reads responses events into canon events.
//!
//! Deltas are forwarded as they arrive. A finished item arrives again as a whole; anything the
//! deltas did not contain is added then. A stream therefore yields the same reply as a whole
//! response, and a server that sends no deltas works too.

use canon::{
    ApiError, Event, Logprob, Part, PartDelta, PartIndex, PartKind, PartStart, into_part_events,
};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

use super::content::{ResponsesAnnotation, ResponsesItem};
use super::fault;
use super::names::{FINAL_TEXT_EXTRA, NAMESPACE_FIELD, ORIGIN};
use super::own::tool_names;
use super::read_content::{self, ItemReader};
use super::reply::{ResponsesEventView, ResponsesReplyView, parse_raw};
use super::signatures::ContentAuthor;
use crate::json;
use crate::openai_values::read_logprobs;
use crate::repeated_text::TextReader;
use crate::sse::out_of_order;
use crate::text::BorrowedText;
use crate::upstream_error::ensure_ended;
use crate::wire_object::raw_value;
use crate::{StreamFrame, StreamReader};

/// Stream reader.
#[derive(Default)]
pub(super) struct ResponsesStreamReader {
    started: bool,
    done: bool,
    slots: u32,
    calls: bool,
    /// Items by their output index.
    items: BTreeMap<u32, StreamedItem>,
    /// Items with arguments of a call that never started.
    orphans: Vec<u32>,
}

#[derive(Default)]
struct StreamedItem {
    /// Id, for servers that leave out the output index.
    id: Option<String>,
    /// Open parts by their index inside the item.
    parts: BTreeMap<u32, StreamedPart>,
    done: bool,
}

/// A part of an open item.
#[derive(Default)]
struct StreamedPart {
    place: PartIndex,
    /// Text forwarded so far.
    forwarded: String,
    citations: usize,
    has_logprobs: bool,
    /// The current summary part, to detect the start of the next one.
    summary: Option<(bool, u32)>,
}

impl StreamReader for ResponsesStreamReader {
    fn push(&mut self, frame: &StreamFrame, out: &mut Vec<Event>) -> Result<(), ApiError> {
        if self.done || &frame.data[..] == b"[DONE]" {
            return Ok(());
        }
        let event: ResponsesEventView<'_> = frame.read()?;
        let named = frame.event.as_deref().map(String::from_utf8_lossy);
        let kind = event.kind.as_deref().or(named.as_deref()).unwrap_or_default();
        match kind {
            "error" => Err(fault::read(&frame.read()?)),
            "response.created" | "response.in_progress" | "response.queued" => {
                if let Some(response) = parse_raw(event.response) {
                    self.begin(&response, out);
                }
                Ok(())
            }
            "response.completed" | "response.incomplete" => {
                self.read_response(&ResponsesReplyView::parse(event.response)?, out)
            }
            "response.failed" => {
                let response: Option<ResponsesReplyView<'_>> = parse_raw(event.response);
                Err(response.unwrap_or_default().failure())
            }
            _ => self.read_event(kind, &event, out),
        }
    }

    fn finish(&mut self, _out: &mut Vec<Event>) -> Result<(), ApiError> {
        ensure_ended(self.done, "the responses stream ended without its last event")
    }

    fn is_done(&self) -> bool {
        self.done
    }
}

impl TextReader for ResponsesStreamReader {
    fn can_repeat(&self, place: PartIndex) -> bool {
        let mut parts = self.items.values().flat_map(|item| item.parts.values());
        parts.any(|part| part.place == place)
    }

    fn push_text(&mut self, place: PartIndex, text: &str) {
        let mut parts = self.items.values_mut().flat_map(|item| item.parts.values_mut());
        if let Some(own) = parts.find(|part| part.place == place) {
            own.forwarded.push_str(text);
        }
    }
}

impl ResponsesStreamReader {
    fn begin(&mut self, response: &ResponsesReplyView<'_>, out: &mut Vec<Event>) {
        if !self.started {
            self.started = true;
            out.push(Event::Start {
                id: response.id.clone().map(BorrowedText::into_owned),
                model: response.model.clone().map(BorrowedText::into_owned),
                created: response.created(),
            });
        }
    }

    /// Reads an event of an item.
    fn read_event(
        &mut self,
        kind: &str,
        event: &ResponsesEventView<'_>,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        let Some(index) = event.output_index.or_else(|| self.guess_index(kind, event)) else {
            return Ok(());
        };
        if self.items.get(&index).is_some_and(|item| item.done) {
            return Ok(());
        }
        self.begin(&ResponsesReplyView::default(), out);
        let at = event.content_index.unwrap_or(0);
        match kind {
            "response.output_item.added" => self.read_added(index, event.item, out),
            "response.output_item.done" => self.finish_item(index, event.item, out)?,
            "response.output_text.delta" => {
                let part = self.part(index, at, PartStart::Text, out);
                part.grow(event.text(), out);
                let logprobs = event.logprobs.map(raw_value).unwrap_or_default();
                part.add_logprobs(read_logprobs(&logprobs), out);
            }
            "response.refusal.delta" => {
                self.part(index, at, PartStart::Refusal, out).grow(event.text(), out);
            }
            "response.output_text.annotation.added" => {
                let annotation: Option<ResponsesAnnotation<'_>> = parse_raw(event.annotation);
                if let Some(citation) = annotation.map(read_content::read_citation) {
                    let part = self.part(index, at, PartStart::Text, out);
                    part.citations += 1;
                    out.push(Event::PartDelta(part.place, PartDelta::Citation(citation)));
                }
            }
            "response.reasoning_summary_text.delta" => {
                let summary = (false, event.summary_index.unwrap_or(0));
                self.part(index, 0, PartStart::Thought, out).think(summary, event.text(), out);
            }
            "response.reasoning_text.delta" => {
                self.part(index, 0, PartStart::Thought, out).think((true, at), event.text(), out);
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                match self.items.entry(index).or_default().parts.get_mut(&0) {
                    Some(part) => part.grow(event.text(), out),
                    // The whole item may still come.
                    None => self.orphans.push(index),
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the output index of an event that lacks it: that of the named item, or of the last
    /// one. llama.cpp sends no output index
    /// (<https://github.com/ggml-org/llama.cpp/blob/master/tools/server/server-task.cpp>).
    fn guess_index(&mut self, kind: &str, event: &ResponsesEventView<'_>) -> Option<u32> {
        let is_item = matches!(kind, "response.output_item.added" | "response.output_item.done");
        let is_delta = kind.ends_with(".delta") || kind.ends_with(".annotation.added");
        if !is_item && !is_delta {
            return None;
        }
        let item: Value = event.item.map(raw_value).unwrap_or_default();
        // Calls of such a server have no id of their own.
        let own = item.get("id").or_else(|| item.get("call_id")).and_then(Value::as_str);
        let named = event.item_id.as_deref().or(own);
        let is_named = |item: &StreamedItem| named.is_some() && item.id.as_deref() == named;
        if let Some((index, _)) = self.items.iter().find(|(_, item)| is_named(item)) {
            return Some(*index);
        }
        let index = match self.items.last_key_value() {
            Some((last, item))
                if !item.done && item.id.is_none() && kind != "response.output_item.added" =>
            {
                *last
            }
            last => last.map_or(0, |(last, _)| last + 1),
        };
        self.items.entry(index).or_default().id = named.map(str::to_owned);
        Some(index)
    }

    /// Opens a tool call at once, because its name is known. Other items are opened with their
    /// first delta.
    fn read_added(&mut self, index: u32, item: Option<&RawValue>, out: &mut Vec<Event>) {
        let (call, custom) = match parse_raw(item) {
            Some(ResponsesItem::FunctionCall(call)) => (call, false),
            Some(ResponsesItem::CustomCall(call)) => (call, true),
            _ => return,
        };
        let (Some(name), Some(id)) = (call.name, call.call_id) else { return };
        self.calls = true;
        let name = tool_names::flat_name(call.rest.text(NAMESPACE_FIELD).as_deref(), &name);
        let opening = PartStart::ToolCall { id: id.into_owned(), name, custom };
        let part = self.part(index, 0, opening, out);
        // A server that does not stream arguments may send them here.
        let given = if custom { call.input } else { call.arguments };
        let given = given.filter(|given| given.raw.get().starts_with('"'));
        part.grow(given.map(|given| given.value.0).unwrap_or_default(), out);
    }

    /// Returns the part with that index in its item. Opens it if it is new.
    fn part(
        &mut self,
        index: u32,
        at: u32,
        opening: PartStart,
        out: &mut Vec<Event>,
    ) -> &mut StreamedPart {
        self.items.entry(index).or_default().parts.entry(at).or_insert_with(|| {
            let place = PartIndex::next(0, &mut self.slots);
            out.push(Event::PartStart(place, opening));
            StreamedPart { place, ..StreamedPart::default() }
        })
    }

    /// Reads a finished item: adds anything missing and closes its parts.
    fn finish_item(
        &mut self,
        index: u32,
        item: Option<&RawValue>,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        self.orphans.retain(|orphan| *orphan != index);
        let item = json::read(item.map_or("null", RawValue::get)).map_err(fault::unreadable)?;
        let mut items = ItemReader::new(ContentAuthor::Provider);
        let parts = items.read(item).into_parts();
        let mut logprobs = items.logprobs;
        let open = self.items.entry(index).or_default();
        for (at, part) in (0_u32..).zip(parts) {
            self.calls |= matches!(part.kind, PartKind::ToolCall(_));
            let is_text = matches!(part.kind, PartKind::Text { .. });
            let missing = if is_text { std::mem::take(&mut logprobs) } else { Vec::new() };
            match open.parts.remove(&at) {
                Some(known) => known.finish(part, missing, out),
                None => {
                    let place = PartIndex::next(0, &mut self.slots);
                    into_part_events(place, part, out);
                    if !missing.is_empty() {
                        let end = out.pop();
                        out.push(Event::PartDelta(place, PartDelta::Logprobs(missing)));
                        out.extend(end);
                    }
                }
            }
        }
        open.done = true;
        open.close(out);
        Ok(())
    }

    /// Reads the response at the end of a stream, or a whole one.
    pub(super) fn read_response(
        &mut self,
        response: &ResponsesReplyView<'_>,
        out: &mut Vec<Event>,
    ) -> Result<(), ApiError> {
        self.begin(response, out);
        if response.error.is_some() {
            return Err(response.failure());
        }
        for (index, item) in (0_u32..).zip(response.items()?) {
            if !self.items.entry(index).or_default().done {
                self.finish_item(index, Some(item), out)?;
            }
        }
        if !self.orphans.is_empty() {
            return Err(out_of_order("arguments of a call that never started"));
        }
        self.items.values_mut().for_each(|item| item.close(out));
        let extra = |(name, value)| Event::Extra { candidate: None, origin: ORIGIN, name, value };
        out.extend(response.extras().into_iter().map(extra));
        out.extend(response.usage().map(Event::Usage));
        let finish = response.finish(self.calls)?;
        out.extend(finish.map(|finish| Event::Finish { candidate: 0, finish }));
        self.done = true;
        Ok(())
    }
}

impl StreamedItem {
    /// Ends the open parts.
    fn close(&mut self, out: &mut Vec<Event>) {
        let open = std::mem::take(&mut self.parts).into_values();
        out.extend(open.map(|part| Event::PartEnd(part.place)));
    }
}

impl StreamedPart {
    fn grow(&mut self, text: Cow<'_, str>, out: &mut Vec<Event>) {
        if !text.is_empty() {
            self.forwarded.push_str(&text);
            out.push(Event::PartDelta(self.place, PartDelta::Text(text.into_owned())));
        }
    }

    /// Adds thinking. Summaries are joined by blank lines.
    fn think(&mut self, summary: (bool, u32), text: Cow<'_, str>, out: &mut Vec<Event>) {
        if self.summary.is_some_and(|before| before != summary) {
            self.grow(Cow::Borrowed("\n\n"), out);
        }
        self.summary = Some(summary);
        self.grow(text, out);
    }

    fn add_logprobs(&mut self, logprobs: Vec<Logprob>, out: &mut Vec<Event>) {
        if !logprobs.is_empty() {
            self.has_logprobs = true;
            out.push(Event::PartDelta(self.place, PartDelta::Logprobs(logprobs)));
        }
    }

    /// Adds anything that the deltas did not contain, and ends the part.
    fn finish(mut self, mut part: Part, logprobs: Vec<Logprob>, out: &mut Vec<Event>) {
        let delta = |delta| Event::PartDelta(self.place, delta);
        let extra = |name: &str, value: Value| {
            delta(PartDelta::Extra { origin: ORIGIN, name: name.to_owned(), value })
        };
        let text = part.text_mut().map(std::mem::take).unwrap_or_default();
        match text.strip_prefix(&*self.forwarded) {
            Some("") => {}
            Some(rest) => out.push(delta(PartDelta::Text(rest.to_owned()))),
            // The deltas have been delivered and cannot be taken back. The difference is told.
            None => out.push(extra(FINAL_TEXT_EXTRA, Value::String(text))),
        }
        if let PartKind::Text { citations, .. } = part.kind {
            let citations = citations.into_iter().skip(self.citations);
            out.extend(citations.map(|citation| delta(PartDelta::Citation(citation))));
        }
        let extras = part.extras.for_format(ORIGIN).into_iter().flatten();
        out.extend(extras.map(|(name, value)| extra(name, value.clone())));
        if !self.has_logprobs {
            self.add_logprobs(logprobs, out);
        }
        out.extend(part.signature.map(|signature| Event::PartSignature(self.place, signature)));
        out.push(Event::PartEnd(self.place));
    }
}
