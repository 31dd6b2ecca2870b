//! Calls in a reply that the lane made in another form than the caller's.
//!
//! A custom tool is a function with one string parameter, `input`, where a lane takes none. The shell and the
//! computer of a lane's vendor may stand for the caller's. This module converts their calls back, because it knows which
//! tools the request declared. See
//! <https://platform.openai.com/docs/guides/function-calling#custom-tools>.

use canon::{
    ChatReply, ChatRequest, ClientTool, ClientToolKind, Event, Finish, FinishReason, Loss, Losses,
    Part, PartDelta, PartIndex, PartKind, PartStart, Tool, ToolCall, WireFormat,
};
use std::collections::BTreeMap;

use super::BASH_NAME;
use super::custom::free_text;
use super::lane::{is_named, other_arguments};
use super::patch_calls::CallerPatches;
use super::screen::{CallerScreen, RaisedCall, read_item};

/// Converts calls back into those of the tools that the caller declared.
#[derive(Debug, Default)]
pub struct ClientToolCalls {
    custom: Vec<String>,
    /// Name of the caller's shell, for calls of the messages format's own.
    for_bash: Option<String>,
    /// Name of the caller's shell, for items of the responses format's own.
    for_shell_items: Option<String>,
    /// The caller's computer.
    screen: Option<CallerScreen>,
    /// The caller's tool that changes files.
    patches: Option<CallerPatches>,
    /// Calls that are held back until their arguments are complete.
    held: BTreeMap<PartIndex, HeldCall>,
    /// Places of parts for the caller. One call of a computer may become several.
    places: PartPlaces,
    losses: Losses,
    /// True if an item has become a call, which its format does not report as the reason of the end.
    has_new_call: bool,
    /// True if the reply has a call, and if a call has become a question.
    has_call: bool,
    has_question: bool,
}

/// A call whose arguments are converted.
#[derive(Debug)]
enum HeldCall {
    /// Arguments that become free text.
    Custom(String),
    /// A call in another vendor's words, and its other events.
    Foreign { words: CallWords, call: ToolCall, others: Vec<Event> },
}

/// The words of a call that may have to be translated.
#[derive(Clone, Copy, Debug)]
enum CallWords {
    /// Actions on a screen, of the computer of a format.
    Screen(WireFormat),
    /// Changes of files.
    Patch,
}

/// Places of parts in a stream that has more parts than the lane's.
#[derive(Debug, Default)]
struct PartPlaces {
    /// Number of parts of each candidate so far.
    counts: BTreeMap<u32, u32>,
    /// Places of the open parts, by those of the lane.
    open: BTreeMap<PartIndex, PartIndex>,
    is_moved: bool,
}

impl PartPlaces {
    /// Returns the place of a new part.
    fn next(&mut self, lane: PartIndex) -> PartIndex {
        let place = PartIndex::next(lane.candidate, self.counts.entry(lane.candidate).or_default());
        self.is_moved |= place != lane;
        self.open.insert(lane, place);
        place
    }

    fn of(&self, lane: PartIndex) -> PartIndex {
        self.open.get(&lane).copied().unwrap_or(lane)
    }
}

impl ClientToolCalls {
    /// Creates a converter for the tools of the request.
    pub fn for_request(chat: &ChatRequest) -> Self {
        let custom = chat.tools.iter().filter_map(|tool| {
            if let Tool::Custom { name, .. } = tool { Some(name.clone()) } else { None }
        });
        let screen = CallerScreen::new(chat);
        let patches = CallerPatches::new(chat);
        let mut calls = Self { custom: custom.collect(), screen, patches, ..Self::default() };
        for tool in ClientTool::all_in(&chat.tools) {
            let name = || tool.functions.first().map(|function| function.name.clone());
            match tool.kind {
                ClientToolKind::Shell | ClientToolKind::LocalShell => calls.for_bash = name(),
                ClientToolKind::Bash => calls.for_shell_items = name(),
                ClientToolKind::Computer
                | ClientToolKind::TextEditor
                | ClientToolKind::Memory
                | ClientToolKind::ComputerToolset
                | ClientToolKind::BrowserToolset
                | ClientToolKind::ApplyPatch
                | ClientToolKind::ComputerCalls
                | ClientToolKind::ComputerPreview
                | ClientToolKind::ToolSearch
                | ClientToolKind::FoundTools
                | ClientToolKind::ComputerUse => {}
            }
        }
        if calls.for_bash.is_some() && chat.tools.iter().any(|tool| is_named(tool, BASH_NAME)) {
            calls.for_bash = None;
        }
        calls
    }

    /// Returns true if the request declares no tool of these kinds.
    pub fn is_idle(&self) -> bool {
        let shells = [&self.for_bash, &self.for_shell_items];
        let has_shell = shells.into_iter().any(Option::is_some);
        let has_words = self.screen.is_some() || self.patches.is_some();
        self.custom.is_empty() && !has_shell && !has_words
    }

    /// Returns true if no text of the reply is held back or moved to another part.
    pub fn forwards_text(&self) -> bool {
        self.held.is_empty() && !self.places.is_moved
    }

    /// Returns the losses of a stream so far.
    pub fn take_losses(&mut self) -> Vec<Loss> {
        std::mem::take(&mut self.losses).into_vec()
    }

    /// Converts the calls of a whole reply. Returns the losses of that.
    pub fn convert_reply(&self, reply: &mut ChatReply) -> Vec<Loss> {
        let mut losses = Losses::new();
        if self.is_idle() {
            return losses.into_vec();
        }
        for candidate in &mut reply.candidates {
            let (mut has_new_call, mut has_question) = (false, false);
            let mut parts = Vec::with_capacity(candidate.parts.len());
            for mut part in std::mem::take(&mut candidate.parts) {
                if let PartKind::ToolCall(call) = &mut part.kind {
                    self.rename(&mut call.name);
                    if self.is_wrapped(call) {
                        call.arguments = free_text(&call.arguments);
                        call.custom = true;
                    }
                }
                match self.raised(&part, &mut losses) {
                    Some(raised) => {
                        match raised {
                            RaisedCall::Calls(_) => has_new_call = true,
                            RaisedCall::Question(_) => has_question = true,
                        }
                        parts.extend(raised_parts(part, raised));
                    }
                    None => parts.push(part),
                }
            }
            candidate.parts = parts;
            let Some(finish) = candidate.finish.as_mut() else { continue };
            let is_call = |part: &Part| matches!(part.kind, PartKind::ToolCall(_));
            if has_new_call {
                mark_calls(finish);
            } else if has_question && !candidate.parts.iter().any(is_call) {
                mark_question(finish);
            }
        }
        losses.into_vec()
    }

    /// Returns the caller's calls for a part that a lane's own tool made; `None` for other parts.
    fn raised(&self, part: &Part, losses: &mut Losses) -> Option<RaisedCall> {
        if let Some(name) = &self.for_shell_items
            && let Some(call) = foreign_shell_call(part, name)
        {
            return Some(RaisedCall::Calls(vec![call]));
        }
        match &part.kind {
            PartKind::ToolCall(call) => {
                let words = self.words_of(&call.name).filter(|_| !call.custom)?;
                self.raise(words, call.clone(), losses)
            }
            _ if self.screen.is_none() => None,
            _ => match read_item(part)? {
                Ok(call) => self.raise(CallWords::Screen(WireFormat::Responses), call, losses),
                Err(question) => Some(RaisedCall::Question(question)),
            },
        }
    }

    /// Returns the words that the calls of a function may have; `None` if they are never translated.
    fn words_of(&self, name: &str) -> Option<CallWords> {
        let screen = self.screen.as_ref().and_then(|screen| screen.lane_of(name));
        let is_patch = || self.patches.as_ref().is_some_and(|patches| patches.changes(name));
        screen.map(CallWords::Screen).or_else(|| is_patch().then_some(CallWords::Patch))
    }

    fn raise(&self, words: CallWords, call: ToolCall, losses: &mut Losses) -> Option<RaisedCall> {
        Some(match words {
            CallWords::Screen(lane) => self.screen.as_ref()?.raise(lane, call, losses),
            CallWords::Patch => RaisedCall::Calls(self.patches.as_ref()?.raise(call)),
        })
    }

    /// Converts the next event of a stream. A call is held back until its arguments are complete if they
    /// are converted.
    pub fn push(&mut self, event: Event, mut out: impl FnMut(Event)) {
        match event {
            Event::PartStart(lane, PartStart::ToolCall { id, mut name, custom }) => {
                self.rename(&mut name);
                let call = ToolCall { id, name, arguments: String::new(), custom };
                if let Some(words) = self.words_of(&call.name).filter(|_| !custom) {
                    // Its name and number are known when its arguments are.
                    let held = HeldCall::Foreign { words, call, others: Vec::new() };
                    self.held.insert(lane, held);
                    return;
                }
                self.has_call = true;
                let is_wrapped = self.is_wrapped(&call);
                if is_wrapped {
                    self.held.insert(lane, HeldCall::Custom(String::new()));
                }
                let ToolCall { id, name, arguments: _, custom } = call;
                let custom = custom || is_wrapped;
                let place = self.places.next(lane);
                out(Event::PartStart(place, PartStart::ToolCall { id, name, custom }));
            }
            Event::PartStart(lane, PartStart::Complete(part)) => {
                let mut losses = std::mem::take(&mut self.losses);
                let raised = self.raised(&part, &mut losses);
                self.losses = losses;
                match raised {
                    Some(raised) => self.push_raised(lane, raised, Vec::new(), &mut out),
                    None => {
                        let place = self.places.next(lane);
                        out(Event::PartStart(place, PartStart::Complete(part)));
                    }
                }
            }
            Event::PartStart(lane, start) => out(Event::PartStart(self.places.next(lane), start)),
            Event::PartDelta(lane, delta) => match (self.held.get_mut(&lane), delta) {
                (Some(HeldCall::Custom(text)), PartDelta::Text(more)) => text.push_str(&more),
                (Some(HeldCall::Foreign { call, .. }), PartDelta::Text(more)) => {
                    call.arguments.push_str(&more);
                }
                (Some(HeldCall::Foreign { others, .. }), delta) => {
                    others.push(Event::PartDelta(lane, delta));
                }
                (_, delta) => out(Event::PartDelta(self.places.of(lane), delta)),
            },
            Event::PartSignature(lane, signature) => match self.held.get_mut(&lane) {
                Some(HeldCall::Foreign { others, .. }) => {
                    others.push(Event::PartSignature(lane, signature));
                }
                _ => out(Event::PartSignature(self.places.of(lane), signature)),
            },
            Event::PartEnd(lane) => match self.held.remove(&lane) {
                Some(HeldCall::Foreign { words, call, others }) => {
                    let mut losses = std::mem::take(&mut self.losses);
                    let raised = self.raise(words, call, &mut losses);
                    self.losses = losses;
                    if let Some(raised) = raised {
                        self.push_raised(lane, raised, others, &mut out);
                        self.end_part(lane, &mut out);
                    }
                }
                Some(HeldCall::Custom(arguments)) => {
                    let text = PartDelta::Text(free_text(&arguments));
                    out(Event::PartDelta(self.places.of(lane), text));
                    self.end_part(lane, &mut out);
                }
                None => self.end_part(lane, &mut out),
            },
            Event::Finish { candidate, mut finish } => {
                if self.has_new_call {
                    mark_calls(&mut finish);
                } else if self.has_question && !self.has_call {
                    mark_question(&mut finish);
                }
                out(Event::Finish { candidate, finish });
            }
            other => out(other),
        }
    }

    fn end_part(&mut self, lane: PartIndex, out: &mut impl FnMut(Event)) {
        out(Event::PartEnd(self.places.of(lane)));
        self.places.open.remove(&lane);
    }

    /// Writes calls in place of one. The last stays open.
    fn push_raised(
        &mut self,
        lane: PartIndex,
        raised: RaisedCall,
        others: Vec<Event>,
        out: &mut impl FnMut(Event),
    ) {
        let calls = match raised {
            RaisedCall::Calls(calls) => calls,
            RaisedCall::Question(text) => {
                self.has_question = true;
                let place = self.places.next(lane);
                out(Event::PartStart(place, PartStart::Text));
                out(Event::PartDelta(place, PartDelta::Text(text)));
                return;
            }
        };
        self.has_new_call = true;
        let mut others = Some(others);
        for (number, call) in calls.into_iter().enumerate() {
            if number > 0 {
                self.end_part(lane, out);
            }
            let place = self.places.next(lane);
            let ToolCall { id, name, arguments, custom } = call;
            out(Event::PartStart(place, PartStart::ToolCall { id, name, custom }));
            out(Event::PartDelta(place, PartDelta::Text(arguments)));
            for other in others.take().into_iter().flatten() {
                match other {
                    Event::PartDelta(_, delta) => out(Event::PartDelta(place, delta)),
                    Event::PartSignature(_, signature) => {
                        out(Event::PartSignature(place, signature));
                    }
                    other => out(other),
                }
            }
        }
    }

    /// Returns true for a call of a custom tool as a function.
    fn is_wrapped(&self, call: &ToolCall) -> bool {
        !call.custom && self.custom.contains(&call.name)
    }

    fn rename(&self, name: &mut String) {
        if let Some(own) = self.for_bash.as_ref().filter(|_| name == BASH_NAME) {
            name.clone_from(own);
        }
    }
}

/// Returns the parts in place of one. The first keeps its other fields.
fn raised_parts(part: Part, raised: RaisedCall) -> Vec<Part> {
    let calls = match raised {
        RaisedCall::Calls(calls) => calls,
        RaisedCall::Question(text) => return vec![Part::text(text)],
    };
    let mut first = Some(part);
    let parts = calls.into_iter().map(|call| match first.take() {
        Some(part) => Part { kind: PartKind::ToolCall(call), ..part },
        None => Part::new(PartKind::ToolCall(call)),
    });
    parts.collect()
}

/// Says that a reply ended to have its calls run.
fn mark_calls(finish: &mut Finish) {
    if finish.reason == FinishReason::Stop {
        finish.reason = FinishReason::ToolCalls;
    }
}

/// Says that a reply without a call ended by itself.
fn mark_question(finish: &mut Finish) {
    if finish.reason == FinishReason::ToolCalls {
        finish.reason = FinishReason::Stop;
    }
}

/// Returns the call in place of an item that another vendor's shell made, if the caller has a shell.
fn foreign_shell_call(part: &Part, name: &str) -> Option<ToolCall> {
    let PartKind::Foreign { origin: WireFormat::Responses, value } = &part.kind else {
        return None;
    };
    let call = crate::responses::read_shell_call(value)?;
    let arguments = other_arguments(WireFormat::Messages, &call.arguments);
    Some(ToolCall { name: name.to_owned(), arguments, ..call })
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::{ExtraFields, Part, ReplyBuilder, ReplyCandidate, into_events};

    #[test]
    fn converts_wrapped_calls_whole_and_streamed() {
        let tool = |name: &str| Tool::Custom {
            name: name.to_owned(),
            description: None,
            grammar: None,
            extras: ExtraFields::new(),
        };
        let chat = ChatRequest { tools: vec![tool("patch")], ..ChatRequest::default() };
        let call = |name: &str, arguments: &str, custom| {
            let (id, name, arguments) = ("c".to_owned(), name.to_owned(), arguments.to_owned());
            Part::new(PartKind::ToolCall(ToolCall { id, name, arguments, custom }))
        };
        let reply = |parts| ChatReply {
            candidates: vec![ReplyCandidate { parts, ..ReplyCandidate::default() }],
            ..ChatReply::default()
        };
        let came = reply(vec![
            call("patch", r#"{"input":"*** Begin\n"}"#, false),
            call("patch", "plain", false),
            call("other", r#"{"input":"x"}"#, false),
        ]);
        let meant = reply(vec![
            call("patch", "*** Begin\n", true),
            call("patch", "plain", true),
            call("other", r#"{"input":"x"}"#, false),
        ]);
        let mut whole = came.clone();
        ClientToolCalls::for_request(&chat).convert_reply(&mut whole);
        assert_eq!(whole, meant);

        let mut custom = ClientToolCalls::for_request(&chat);
        let mut fold = ReplyBuilder::default();
        for event in into_events(came) {
            custom.push(event, |event| fold.push(event).unwrap());
        }
        assert_eq!(fold.finish(), meant);
    }
}
