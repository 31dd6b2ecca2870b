//! Borrowed view of a chat request. Rules that concern a message are checked while it is parsed.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashSet;

use crate::media_rules::{AcceptedMedia, AudioView, file_data_error, url_error};
use crate::text;
use crate::value_view::{self, AnyObject, AnyString, ValueView};

#[derive(Debug, Deserialize)]
#[serde(expecting = "the body must be a JSON object")]
pub(super) struct ChatRequestView<'a> {
    #[serde(borrow, default)]
    pub(super) model: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) messages: Option<ChatMessageList<'a>>,
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
    pub(super) tools: Option<Vec<ChatToolView<'a>>>,
    #[serde(borrow, default)]
    pub(super) tool_choice: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) functions: Option<Vec<ChatFunctionView<'a>>>,
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
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) service_tier: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) verbosity: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) store: Option<bool>,
    #[serde(borrow, default)]
    pub(super) modalities: Option<Vec<Cow<'a, str>>>,
    #[serde(default)]
    pub(super) web_search_options: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) search_parameters: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "a tool object")]
pub(super) struct ChatToolView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) function: Option<ChatFunctionView<'a>>,
    #[serde(borrow, default)]
    pub(super) custom: Option<ChatFunctionView<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object with a `name`")]
pub(super) struct ChatFunctionView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(default, rename = "parameters")]
    _parameters: Option<AnyObject>,
    #[serde(default, rename = "description")]
    _description: Option<AnyString>,
    #[serde(default, rename = "strict")]
    _strict: Option<bool>,
}

/// A call in the history. Its arguments are JSON text, or free text.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object with a `name`")]
pub(super) struct ChatCalledView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(default, rename = "arguments")]
    _arguments: Option<AnyString>,
    #[serde(default, rename = "input")]
    _input: Option<AnyString>,
}

/// The conversation. Each message is checked while it is parsed, so that only the ids of tool calls
/// and results are kept.
#[derive(Debug, Default)]
pub(super) struct ChatMessageList<'a> {
    pub(super) count: usize,
    /// True if any message has a list of parts as its content.
    pub(super) has_parts: bool,
    pub(super) problem: Option<(String, String)>,
    pub(super) calls: HashSet<Cow<'a, str>>,
    pub(super) answered: HashSet<Cow<'a, str>>,
}

impl<'de> ValueView<'de> for ChatMessageList<'de> {
    const EXPECTED: &'static str = "a list of messages";

    fn from_list<A: SeqAccess<'de>>(mut items: A) -> Result<Option<Self>, A::Error> {
        let mut all = Self::default();
        while let Some(message) = items.next_element::<ChatMessageView<'de>>()? {
            all.has_parts |= matches!(message.content, ChatContentView::Parts { .. });
            all.check(message);
            all.count += 1;
        }
        Ok(Some(all))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ChatMessageList<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        value_view::read::<ChatMessageList<'de>, D>(from)
    }
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "a message object")]
pub(super) struct ChatMessageView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) content: ChatContentView<'a>,
    #[serde(borrow, default)]
    pub(super) tool_calls: Option<Vec<ChatCallView<'a>>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) tool_call_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) function_call: Option<ChatCalledView<'a>>,
    #[serde(default)]
    pub(super) refusal: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) audio: Option<IgnoredAny>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) name: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "a call object")]
pub(super) struct ChatCallView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) function: Option<ChatCalledView<'a>>,
    #[serde(borrow, default)]
    pub(super) custom: Option<ChatCalledView<'a>>,
}

/// Content of a message: absent, text, or parts with the first invalid one.
#[derive(Debug, Default)]
pub(super) enum ChatContentView<'a> {
    #[default]
    Absent,
    Text,
    Parts {
        count: usize,
        problem: Option<(usize, Cow<'a, str>)>,
    },
}

impl<'de> ValueView<'de> for ChatContentView<'de> {
    const EXPECTED: &'static str = "a string or a list of parts";

    fn from_text(_text: &str) -> Option<Self> {
        Some(Self::Text)
    }

    fn from_null() -> Option<Self> {
        Some(Self::Absent)
    }

    fn from_list<A: SeqAccess<'de>>(mut items: A) -> Result<Option<Self>, A::Error> {
        let (mut count, mut problem) = (0, None);
        while let Some(part) = items.next_element::<ChatPartView<'de>>()? {
            if problem.is_none() {
                problem = part.problem().map(|why| (count, why));
            }
            count += 1;
        }
        Ok(Some(Self::Parts { count, problem }))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ChatContentView<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        value_view::read::<ChatContentView<'de>, D>(from)
    }
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "a part object with a `type`")]
pub(super) struct ChatPartView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) image_url: Option<ChatImageUrlView<'a>>,
    #[serde(default)]
    pub(super) input_audio: Option<AudioView>,
    #[serde(borrow, default)]
    pub(super) file: Option<ChatFileView<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object with a `file_data` or a `file_id`")]
pub(super) struct ChatFileView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    file_data: Option<Cow<'a, str>>,
    #[serde(default)]
    file_id: Option<AnyString>,
    #[serde(default, rename = "filename")]
    _filename: Option<AnyString>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object with a `url`")]
pub(super) struct ChatImageUrlView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) url: Option<Cow<'a, str>>,
}

impl ChatPartView<'_> {
    fn problem(&self) -> Option<Cow<'static, str>> {
        let why = match self.r#type.as_deref() {
            None => "needs a `type`",
            Some("text") if self.text.is_none() => "needs a `text`",
            Some("image_url") => match &self.image_url {
                None => "needs an `image_url`",
                Some(ChatImageUrlView { url: None }) => "needs an `image_url.url`",
                Some(ChatImageUrlView { url: Some(url) }) => {
                    let why = url_error(url, AcceptedMedia::Picture)?;
                    return Some(Cow::Owned(format!("has an `image_url.url` that {why}")));
                }
            },
            Some("input_audio") => match &self.input_audio {
                None => "needs an `input_audio`",
                Some(audio) => audio.problem()?,
            },
            Some("file") => match &self.file {
                None => "needs a `file`",
                Some(ChatFileView { file_data: None, file_id: None, .. }) => {
                    "needs a `file.file_data`"
                }
                Some(ChatFileView { file_data: None, .. }) => return None,
                Some(ChatFileView { file_data: Some(data), .. }) => {
                    let why = file_data_error(data)?;
                    return Some(Cow::Owned(format!("has a `file.file_data` that {why}")));
                }
            },
            Some(_) => return None,
        };
        Some(Cow::Borrowed(why))
    }
}

impl<'a> ChatMessageList<'a> {
    fn check(&mut self, message: ChatMessageView<'a>) {
        if self.problem.is_some() {
            return;
        }
        let index = self.count;
        if let Some((field, why)) = self.find_problem(&message) {
            let path = if field.is_empty() {
                format!("messages[{index}]")
            } else {
                format!("messages[{index}].{field}")
            };
            self.problem = Some((path, why));
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
                _ if self.problem.is_none() => {
                    let path = format!("messages[{index}].tool_calls[{at}]");
                    self.problem = Some((path, "needs an `id` and a function `name`".to_owned()));
                }
                _ => {}
            }
        }
        if let Some(id) = message.tool_call_id {
            self.answered.insert(id);
        }
    }

    fn find_problem(&self, message: &ChatMessageView<'_>) -> Option<(&'static str, String)> {
        let problem = |field, why: &str| Some((field, why.to_owned()));
        let Some(role) = message.role.as_deref() else {
            return problem("role", "is required");
        };
        if let Some(name) = message.name.as_deref()
            && (name.len() > 256 || name.chars().any(char::is_control))
        {
            return problem("name", "must be at most 256 bytes without control characters");
        }
        match &message.content {
            ChatContentView::Parts { count: 0, .. } => {
                return problem("content", "must not be an empty list");
            }
            ChatContentView::Parts { problem: Some((at, why)), .. } => {
                return Some(("content", format!("part {at} {why}")));
            }
            ChatContentView::Absent
            | ChatContentView::Text
            | ChatContentView::Parts { problem: None, .. } => {}
        }
        let is_empty = matches!(message.content, ChatContentView::Absent);
        match role {
            "system" | "developer" | "user" if is_empty => problem("content", "is required"),
            "system" | "developer" | "user" => None,
            "assistant" => {
                let has_other_content = message.tool_calls.is_some()
                    || message.function_call.is_some()
                    || message.refusal.is_some()
                    || message.audio.is_some();
                if is_empty && !has_other_content {
                    return problem("content", "is required unless there are `tool_calls`");
                }
                None
            }
            "tool" => match (&message.tool_call_id, is_empty) {
                (None, _) => problem("tool_call_id", "is required in a tool message"),
                (Some(_), true) => problem("content", "is required"),
                (Some(id), false) if !self.calls.contains(id) => problem(
                    "tool_call_id",
                    "answers no call: no earlier assistant message has a `tool_calls` entry \
                     with this id",
                ),
                (Some(id), false) if self.answered.contains(id) => {
                    problem("tool_call_id", "was answered before")
                }
                (Some(_), false) => None,
            },
            "function" if message.name.is_none() => {
                problem("name", "is required in a function message")
            }
            "function" => None,
            _ => problem(
                "role",
                "must be one of `system`, `developer`, `user`, `assistant`, `tool`, `function`",
            ),
        }
    }
}
