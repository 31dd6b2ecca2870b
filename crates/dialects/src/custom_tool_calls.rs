//! Custom (free-text) tools for providers that only have function tools.
//!
//! Chat and responses have custom tools. For the other formats such a tool is written as a function
//! with one string parameter, `input`. A reader of those formats sees an ordinary function call;
//! this module converts it back, because it knows which tools the request declared as custom. See
//! <https://platform.openai.com/docs/guides/function-calling#custom-tools>.

use canon::{Chat, Event, Growth, Kind, Opening, Place, Reply, Tool, ToolCall};
use serde_json::Value;
use std::collections::BTreeMap;

/// Converts function calls back into the custom tool calls the caller declared.
#[derive(Debug, Default)]
pub struct CustomCalls {
    names: Vec<String>,
    /// Arguments of the calls that are still open.
    open: BTreeMap<Place, String>,
}

impl CustomCalls {
    /// Creates a converter for the tools of the request.
    pub fn of(chat: &Chat) -> Self {
        let names = chat.tools.iter().filter_map(|tool| match tool {
            Tool::Custom { name, .. } => Some(name.clone()),
            Tool::Function(_)
            | Tool::Search(_)
            | Tool::Code(_)
            | Tool::Fetch(_)
            | Tool::Foreign { .. } => None,
        });
        Self { names: names.collect(), open: BTreeMap::new() }
    }

    /// Returns true if the request declares no custom tool.
    pub fn is_idle(&self) -> bool {
        self.names.is_empty()
    }

    /// Converts the calls of a whole reply.
    pub fn reply(&self, reply: &mut Reply) {
        let parts = reply.candidates.iter_mut().flat_map(|candidate| &mut candidate.parts);
        for part in parts {
            if let Kind::ToolCall(call @ ToolCall { custom: false, .. }) = &mut part.kind
                && self.names.contains(&call.name)
            {
                call.arguments = free_text(&call.arguments);
                call.custom = true;
            }
        }
    }

    /// Converts the next event of a stream. A custom call is held back until its arguments are
    /// complete.
    pub fn event(&mut self, event: Event, mut out: impl FnMut(Event)) {
        match event {
            Event::Open(place, Opening::ToolCall { id, name, custom: false })
                if self.names.contains(&name) =>
            {
                self.open.insert(place, String::new());
                out(Event::Open(place, Opening::ToolCall { id, name, custom: true }));
            }
            Event::Grow(place, Growth::Text(text)) if self.open.contains_key(&place) => {
                self.open.entry(place).or_default().push_str(&text);
            }
            Event::Close(place) => {
                if let Some(arguments) = self.open.remove(&place) {
                    out(Event::Grow(place, Growth::Text(free_text(&arguments))));
                }
                out(Event::Close(place));
            }
            other => out(other),
        }
    }
}

/// Returns the text inside the wrapper object. Arguments of any other shape are returned unchanged.
fn free_text(arguments: &str) -> String {
    let wrapped: Option<Value> = serde_json::from_str(arguments).ok();
    match wrapped.as_ref().and_then(|object| object.get("input")).and_then(Value::as_str) {
        Some(text) => text.to_owned(),
        None => arguments.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::{Candidate, Extras, Fold, Part, unfold};

    #[test]
    fn converts_wrapped_calls_whole_and_streamed() {
        let tool = |name: &str| Tool::Custom {
            name: name.to_owned(),
            description: None,
            grammar: None,
            extras: Extras::none(),
        };
        let chat = Chat { tools: vec![tool("patch")], ..Chat::default() };
        let call = |name: &str, arguments: &str, custom| {
            let (id, name, arguments) = ("c".to_owned(), name.to_owned(), arguments.to_owned());
            Part::new(Kind::ToolCall(ToolCall { id, name, arguments, custom }))
        };
        let reply = |parts| Reply {
            candidates: vec![Candidate { parts, ..Candidate::default() }],
            ..Reply::default()
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
        CustomCalls::of(&chat).reply(&mut whole);
        assert_eq!(whole, meant);

        let mut custom = CustomCalls::of(&chat);
        let mut fold = Fold::default();
        for event in unfold(came) {
            custom.event(event, |event| fold.push(event).unwrap());
        }
        assert_eq!(fold.finish(), meant);
    }
}
