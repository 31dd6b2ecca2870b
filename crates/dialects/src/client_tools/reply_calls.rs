//! Calls in a reply that the lane made in another form than the caller's.
//!
//! A custom tool is a function with one string parameter, `input`, where a lane takes none. The shell of a
//! lane's vendor may stand for the caller's. This module converts their calls back, because it knows which
//! tools the request declared. See
//! <https://platform.openai.com/docs/guides/function-calling#custom-tools>.

use canon::{
    ChatReply, ChatRequest, ClientTool, ClientToolKind, Event, Finish, FinishReason, Part,
    PartDelta, PartIndex, PartKind, PartStart, Tool, ToolCall, WireFormat,
};
use std::collections::BTreeMap;

use super::BASH_NAME;
use super::computer_actions::messages_arguments;
use super::custom::free_text;
use super::lane::{is_named, other_arguments};

/// Converts calls back into those of the tools that the caller declared.
#[derive(Debug, Default)]
pub struct ClientToolCalls {
    custom: Vec<String>,
    /// Name of the caller's shell, for calls of the messages format's own.
    for_bash: Option<String>,
    /// Name of the caller's shell, for items of the responses format's own.
    for_shell_items: Option<String>,
    /// Name of the messages format's own computer.
    computer: Option<String>,
    /// Calls that are held back until their arguments are complete.
    held: BTreeMap<PartIndex, HeldCall>,
    /// True if an item has become a call, which its format does not report as the reason of the end.
    has_new_call: bool,
}

/// A call whose arguments are converted.
#[derive(Debug)]
struct HeldCall {
    is_custom: bool,
    arguments: String,
}

impl HeldCall {
    fn converted(self) -> String {
        match self.is_custom {
            true => free_text(&self.arguments),
            false => messages_arguments(&self.arguments).unwrap_or(self.arguments),
        }
    }
}

impl ClientToolCalls {
    /// Creates a converter for the tools of the request.
    pub fn for_request(chat: &ChatRequest) -> Self {
        let custom = chat.tools.iter().filter_map(|tool| {
            if let Tool::Custom { name, .. } = tool { Some(name.clone()) } else { None }
        });
        let mut calls = Self { custom: custom.collect(), ..Self::default() };
        for tool in ClientTool::all_in(&chat.tools) {
            let name = || tool.functions.first().map(|function| function.name.clone());
            match tool.kind {
                ClientToolKind::Shell | ClientToolKind::LocalShell => calls.for_bash = name(),
                ClientToolKind::Bash => calls.for_shell_items = name(),
                ClientToolKind::Computer => calls.computer = name(),
                ClientToolKind::TextEditor
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
        let shells = [&self.for_bash, &self.for_shell_items, &self.computer];
        self.custom.is_empty() && shells.into_iter().all(Option::is_none)
    }

    /// Returns true if no text of the reply is held back.
    pub fn forwards_text(&self) -> bool {
        self.held.is_empty()
    }

    /// Converts the calls of a whole reply.
    pub fn convert_reply(&self, reply: &mut ChatReply) {
        for candidate in &mut reply.candidates {
            let mut has_new_call = false;
            for part in &mut candidate.parts {
                if let PartKind::ToolCall(call) = &mut part.kind {
                    self.rename(&mut call.name);
                    if let Some(is_custom) = self.holds(&call.name, call.custom) {
                        let arguments = std::mem::take(&mut call.arguments);
                        call.arguments = HeldCall { is_custom, arguments }.converted();
                        call.custom = is_custom;
                    }
                } else if let Some(name) = &self.for_shell_items
                    && let Some(call) = foreign_shell_call(part, name)
                {
                    part.kind = PartKind::ToolCall(call);
                    has_new_call = true;
                }
            }
            if let Some(finish) = candidate.finish.as_mut().filter(|_| has_new_call) {
                mark_calls(finish);
            }
        }
    }

    /// Converts the next event of a stream. A call is held back until its arguments are complete if they
    /// are converted.
    pub fn push(&mut self, event: Event, mut out: impl FnMut(Event)) {
        match event {
            Event::PartStart(place, PartStart::ToolCall { id, mut name, custom }) => {
                self.rename(&mut name);
                let held = self.holds(&name, custom);
                if let Some(is_custom) = held {
                    self.held.insert(place, HeldCall { is_custom, arguments: String::new() });
                }
                let custom = held.unwrap_or(custom);
                out(Event::PartStart(place, PartStart::ToolCall { id, name, custom }));
            }
            Event::PartStart(place, PartStart::Complete(part)) => {
                let name = self.for_shell_items.as_deref();
                match name.and_then(|name| foreign_shell_call(&part, name)) {
                    Some(ToolCall { id, name, arguments, custom }) => {
                        self.has_new_call = true;
                        out(Event::PartStart(place, PartStart::ToolCall { id, name, custom }));
                        out(Event::PartDelta(place, PartDelta::Text(arguments)));
                    }
                    None => out(Event::PartStart(place, PartStart::Complete(part))),
                }
            }
            Event::PartDelta(place, PartDelta::Text(text)) => match self.held.get_mut(&place) {
                Some(held) => held.arguments.push_str(&text),
                None => out(Event::PartDelta(place, PartDelta::Text(text))),
            },
            Event::PartEnd(place) => {
                if let Some(held) = self.held.remove(&place) {
                    out(Event::PartDelta(place, PartDelta::Text(held.converted())));
                }
                out(Event::PartEnd(place));
            }
            Event::Finish { candidate, mut finish } => {
                if self.has_new_call {
                    mark_calls(&mut finish);
                }
                out(Event::Finish { candidate, finish });
            }
            other => out(other),
        }
    }

    /// Returns if the arguments of a call are converted, and if the result is free text.
    fn holds(&self, name: &str, is_custom: bool) -> Option<bool> {
        if is_custom {
            return None;
        }
        let is_own = self.custom.iter().any(|own| own == name);
        (is_own || self.computer.as_deref() == Some(name)).then_some(is_own)
    }

    fn rename(&self, name: &mut String) {
        if let Some(own) = self.for_bash.as_ref().filter(|_| name == BASH_NAME) {
            name.clone_from(own);
        }
    }
}

/// Says that a reply ended to have its calls run.
fn mark_calls(finish: &mut Finish) {
    if finish.reason == FinishReason::Stop {
        finish.reason = FinishReason::ToolCalls;
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
