//! A chat request as the rules see it: borrowed from the body, judged while it is read.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashSet;

use crate::heads::{self, AnyObject, Outline};
use crate::text;

#[derive(Debug, Deserialize)]
#[serde(expecting = "the body must be a JSON object")]
pub(super) struct Head<'a> {
    #[serde(borrow, default)]
    pub(super) model: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) messages: Option<Messages<'a>>,
    #[serde(default)]
    pub(super) stream: Option<bool>,
    #[serde(borrow, default)]
    pub(super) stream_options: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) max_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) max_completion_tokens: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) n: Option<i64>,
    #[serde(default)]
    pub(super) temperature: Option<f64>,
    #[serde(default)]
    pub(super) top_p: Option<f64>,
    #[serde(default)]
    pub(super) presence_penalty: Option<f64>,
    #[serde(default)]
    pub(super) frequency_penalty: Option<f64>,
    #[serde(default)]
    pub(super) top_logprobs: Option<i64>,
    #[serde(default)]
    pub(super) logprobs: Option<bool>,
    #[serde(default)]
    pub(super) seed: Option<i64>,
    #[serde(borrow, default)]
    pub(super) stop: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) tools: Option<Vec<ToolHead<'a>>>,
    #[serde(borrow, default)]
    pub(super) tool_choice: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) functions: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) logit_bias: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) metadata: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) response_format: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) reasoning_effort: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) parallel_tool_calls: Option<bool>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) user: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) service_tier: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) web_search_options: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) search_parameters: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ToolHead<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) function: Option<NameHead<'a>>,
    #[serde(borrow, default)]
    pub(super) custom: Option<NameHead<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct NameHead<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) name: Option<Cow<'a, str>>,
}

/// The conversation. Each message is judged while it is read, so that nothing is kept of it but
/// the ids of calls and results.
#[derive(Debug, Default)]
pub(super) struct Messages<'a> {
    pub(super) count: usize,
    /// Whether any of them is made of parts.
    pub(super) parts: bool,
    pub(super) broken: Option<(String, String)>,
    pub(super) calls: HashSet<Cow<'a, str>>,
    pub(super) answered: HashSet<Cow<'a, str>>,
}

impl<'de> Outline<'de> for Messages<'de> {
    const EXPECTED: &'static str = "a list of messages";

    fn list<A: SeqAccess<'de>>(mut items: A) -> Result<Option<Self>, A::Error> {
        let mut all = Self::default();
        while let Some(message) = items.next_element::<Message<'de>>()? {
            all.parts |= matches!(message.content, Content::Parts { .. });
            all.judge(message);
            all.count += 1;
        }
        Ok(Some(all))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Messages<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        heads::read::<Messages<'de>, D>(from)
    }
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "a message object")]
pub(super) struct Message<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) content: Content<'a>,
    #[serde(borrow, default)]
    pub(super) tool_calls: Option<Vec<CallHead<'a>>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) tool_call_id: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) function_call: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) refusal: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) audio: Option<IgnoredAny>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) name: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CallHead<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) function: Option<NameHead<'a>>,
    #[serde(borrow, default)]
    pub(super) custom: Option<NameHead<'a>>,
}

/// What a message holds: nothing, text, or parts of which the first broken one is remembered.
#[derive(Debug, Default)]
pub(super) enum Content<'a> {
    #[default]
    Absent,
    Text,
    Parts {
        count: usize,
        broken: Option<(usize, Cow<'a, str>)>,
    },
}

impl<'de> Outline<'de> for Content<'de> {
    const EXPECTED: &'static str = "a string or a list of parts";

    fn text(_text: &str) -> Option<Self> {
        Some(Self::Text)
    }

    fn nothing() -> Option<Self> {
        Some(Self::Absent)
    }

    fn list<A: SeqAccess<'de>>(mut items: A) -> Result<Option<Self>, A::Error> {
        let (mut count, mut broken) = (0, None);
        while let Some(part) = items.next_element::<PartHead<'de>>()? {
            if broken.is_none() {
                broken = part.broken().map(|why| (count, why));
            }
            count += 1;
        }
        Ok(Some(Self::Parts { count, broken }))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        heads::read::<Content<'de>, D>(from)
    }
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "a part object with a `type`")]
pub(super) struct PartHead<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) image_url: Option<UrlHead<'a>>,
    #[serde(default)]
    pub(super) input_audio: Option<AnyObject>,
    #[serde(default)]
    pub(super) file: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object with a `url`")]
pub(super) struct UrlHead<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) url: Option<Cow<'a, str>>,
}

impl PartHead<'_> {
    fn broken(&self) -> Option<Cow<'static, str>> {
        let why = match self.r#type.as_deref() {
            None => "needs a `type`",
            Some("text") if self.text.is_none() => "needs a `text`",
            Some("image_url") => match &self.image_url {
                None => "needs an `image_url`",
                Some(UrlHead { url: None }) => "needs an `image_url.url`",
                Some(UrlHead { url: Some(url) }) => return broken_url(url).map(Cow::Borrowed),
            },
            Some("input_audio") if self.input_audio.is_none() => "needs an `input_audio`",
            Some("file") if self.file.is_none() => "needs a `file`",
            Some(_) => return None,
        };
        Some(Cow::Borrowed(why))
    }
}

fn broken_url(url: &str) -> Option<&'static str> {
    if url.starts_with("data:") || url.starts_with("https://") || url.starts_with("http://") {
        None
    } else {
        Some("has an `image_url.url` that is neither an https address nor a data URI")
    }
}

impl<'a> Messages<'a> {
    fn judge(&mut self, message: Message<'a>) {
        if self.broken.is_some() {
            return;
        }
        let index = self.count;
        if let Some((field, why)) = self.wrong_with(&message) {
            let path = if field.is_empty() {
                format!("messages[{index}]")
            } else {
                format!("messages[{index}].{field}")
            };
            self.broken = Some((path, why));
        }
        for (at, call) in message.tool_calls.into_iter().flatten().enumerate() {
            let named = [&call.function, &call.custom]
                .into_iter()
                .flatten()
                .any(|tool| tool.name.as_deref().is_some_and(|name| !name.is_empty()));
            match call.id {
                Some(id) if named => {
                    self.calls.insert(id);
                }
                _ if self.broken.is_none() => {
                    let path = format!("messages[{index}].tool_calls[{at}]");
                    self.broken = Some((path, "needs an `id` and a function `name`".to_owned()));
                }
                _ => {}
            }
        }
        if let Some(id) = message.tool_call_id {
            self.answered.insert(id);
        }
    }

    fn wrong_with(&self, message: &Message<'_>) -> Option<(&'static str, String)> {
        let wrong = |field, why: &str| Some((field, why.to_owned()));
        let Some(role) = message.role.as_deref() else {
            return wrong("role", "is required");
        };
        if let Some(name) = message.name.as_deref()
            && (name.len() > 256 || name.chars().any(char::is_control))
        {
            return wrong("name", "must be at most 256 bytes without control characters");
        }
        match &message.content {
            Content::Parts { count: 0, .. } => {
                return wrong("content", "must not be an empty list");
            }
            Content::Parts { broken: Some((at, why)), .. } => {
                return Some(("content", format!("part {at} {why}")));
            }
            Content::Absent | Content::Text | Content::Parts { broken: None, .. } => {}
        }
        let silent = matches!(message.content, Content::Absent);
        match role {
            "system" | "developer" | "user" if silent => wrong("content", "is required"),
            "system" | "developer" | "user" => None,
            "assistant" => {
                let says_something = message.tool_calls.is_some()
                    || message.function_call.is_some()
                    || message.refusal.is_some()
                    || message.audio.is_some();
                if silent && !says_something {
                    return wrong("content", "is required unless there are `tool_calls`");
                }
                None
            }
            "tool" => match (&message.tool_call_id, silent) {
                (None, _) => wrong("tool_call_id", "is required in a tool message"),
                (Some(_), true) => wrong("content", "is required"),
                (Some(id), false) if !self.calls.contains(id) => wrong(
                    "tool_call_id",
                    "answers no call: no earlier assistant message has a `tool_calls` entry \
                     with this id",
                ),
                (Some(id), false) if self.answered.contains(id) => {
                    wrong("tool_call_id", "was answered before")
                }
                (Some(_), false) => None,
            },
            "function" if message.name.is_none() => {
                wrong("name", "is required in a function message")
            }
            "function" => None,
            _ => wrong(
                "role",
                "must be one of `system`, `developer`, `user`, `assistant`, `tool`, `function`",
            ),
        }
    }
}
