//! Custom (free-text) tools for providers that only have function tools.
//!
//! Chat and responses have custom tools. For the other formats such a tool is written as a function
//! with one string parameter, `input`. A reader of those formats sees an ordinary function call;
//! this module converts it back, because it knows which tools the request declared as custom. See
//! <https://platform.openai.com/docs/guides/function-calling#custom-tools>.

use crate::client_tools::free_text;
use canon::{
    ChatReply, ChatRequest, Event, PartDelta, PartIndex, PartKind, PartStart, Tool, ToolCall,
};
use std::collections::BTreeMap;

/// Converts function calls back into the custom tool calls the caller declared.
#[derive(Debug, Default)]
pub struct CustomToolCalls {
    names: Vec<String>,
    /// Arguments of the calls that are still open.
    open: BTreeMap<PartIndex, String>,
}

impl CustomToolCalls {
    /// Creates a converter for the tools of the request.
    pub fn for_request(chat: &ChatRequest) -> Self {
        let names = chat.tools.iter().filter_map(|tool| {
            if let Tool::Custom { name, .. } = tool { Some(name.clone()) } else { None }
        });
        Self { names: names.collect(), open: BTreeMap::new() }
    }

    /// Returns true if the request declares no custom tool.
    pub fn is_idle(&self) -> bool {
        self.names.is_empty()
    }

    /// Converts the calls of a whole reply.
    pub fn convert_reply(&self, reply: &mut ChatReply) {
        let parts = reply.candidates.iter_mut().flat_map(|candidate| &mut candidate.parts);
        for part in parts {
            if let PartKind::ToolCall(call @ ToolCall { custom: false, .. }) = &mut part.kind
                && self.names.contains(&call.name)
            {
                call.arguments = free_text(&call.arguments);
                call.custom = true;
            }
        }
    }

    /// Converts the next event of a stream. A custom call is held back until its arguments are
    /// complete.
    pub fn push(&mut self, event: Event, mut out: impl FnMut(Event)) {
        match event {
            Event::PartStart(place, PartStart::ToolCall { id, name, custom: false })
                if self.names.contains(&name) =>
            {
                self.open.insert(place, String::new());
                out(Event::PartStart(place, PartStart::ToolCall { id, name, custom: true }));
            }
            Event::PartDelta(place, PartDelta::Text(text)) if self.open.contains_key(&place) => {
                self.open.entry(place).or_default().push_str(&text);
            }
            Event::PartEnd(place) => {
                if let Some(arguments) = self.open.remove(&place) {
                    out(Event::PartDelta(place, PartDelta::Text(free_text(&arguments))));
                }
                out(Event::PartEnd(place));
            }
            other => out(other),
        }
    }
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
        CustomToolCalls::for_request(&chat).convert_reply(&mut whole);
        assert_eq!(whole, meant);

        let mut custom = CustomToolCalls::for_request(&chat);
        let mut fold = ReplyBuilder::default();
        for event in into_events(came) {
            custom.push(event, |event| fold.push(event).unwrap());
        }
        assert_eq!(fold.finish(), meant);
    }
}
