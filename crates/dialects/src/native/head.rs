//! A native request as the rules see it: borrowed from the body, judged while it is read.

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::fmt;

use super::lenient::camel;
use super::part_heads::{Obj, Parts, Text};
use super::read_tools;
use crate::text;

/// The body. What has its own rules is read a second time, by itself.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Head<'a> {
    #[serde(borrow, default)]
    pub(super) model: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) contents: Contents<'a>,
    #[serde(borrow, default, alias = "system_instruction")]
    pub(super) system_instruction: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) tools: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "tool_config")]
    pub(super) tool_config: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "safety_settings")]
    pub(super) safety_settings: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "generation_config", deserialize_with = "present")]
    pub(super) generation_config: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "cached_content")]
    pub(super) cached_content: Option<Cow<'a, str>>,
    #[serde(borrow, default, alias = "service_tier")]
    pub(super) service_tier: Option<&'a RawValue>,
}

/// A value that is there, even if it is null.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// The conversation. Nothing is kept of it but calls that wait for results, and signatures.
#[derive(Debug, Default)]
pub(super) struct Contents<'a> {
    /// Whether the field is there at all.
    pub(super) told: bool,
    pub(super) count: usize,
    pub(super) media: usize,
    pub(super) broken: Option<(String, String)>,
    pub(super) signatures: Vec<&'a RawValue>,
    waiting: WaitingCalls<'a>,
}

/// Calls of the model's last turn, found by id or by name: a turn may hold hundreds of thousands.
#[derive(Debug, Default)]
struct WaitingCalls<'a> {
    /// The name of each call, and true once it is answered.
    calls: Vec<(Cow<'a, str>, bool)>,
    answered: usize,
    by_id: HashMap<Cow<'a, str>, VecDeque<usize>>,
    by_name: HashMap<Cow<'a, str>, VecDeque<usize>>,
    /// Calls without an id, by name.
    bare_by_name: HashMap<Cow<'a, str>, VecDeque<usize>>,
}

impl<'a> WaitingCalls<'a> {
    fn push(&mut self, id: Option<Cow<'a, str>>, name: Cow<'a, str>) {
        let at = self.calls.len();
        self.by_name.entry(name.clone()).or_default().push_back(at);
        match id {
            Some(id) => self.by_id.entry(id).or_default().push_back(at),
            None => self.bare_by_name.entry(name.clone()).or_default().push_back(at),
        }
        self.calls.push((name, false));
    }

    /// Marks the first unanswered call of a queue as answered and returns its name. Calls that were
    /// answered meanwhile leave the queue.
    fn answer_first(
        calls: &mut [(Cow<'a, str>, bool)],
        queue: Option<&mut VecDeque<usize>>,
    ) -> Option<Cow<'a, str>> {
        let queue = queue?;
        while let Some(at) = queue.pop_front() {
            if let Some((name, answered)) = calls.get_mut(at).filter(|(_, answered)| !*answered) {
                *answered = true;
                return Some(name.clone());
            }
        }
        None
    }

    /// Answers the first waiting call with that id and returns its name.
    fn answer_id(&mut self, id: &str) -> Option<Cow<'a, str>> {
        let name = Self::answer_first(&mut self.calls, self.by_id.get_mut(id))?;
        self.answered += 1;
        Some(name)
    }

    /// Answers the first waiting call of that name, or the first of those without an id.
    fn answer_name(&mut self, name: &str, bare: bool) -> bool {
        let queues = if bare { &mut self.bare_by_name } else { &mut self.by_name };
        let found = Self::answer_first(&mut self.calls, queues.get_mut(name)).is_some();
        self.answered += usize::from(found);
        found
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Contents<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Contents<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of contents")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Contents { told: true, ..Contents::default() })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut all = Contents { told: true, ..Contents::default() };
                while let Some(Obj(content)) = items.next_element::<Obj<Content<'de>>>()? {
                    all.judge(content);
                    all.count += 1;
                }
                all.settle();
                Ok(all)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let mut all = Contents { told: true, ..Contents::default() };
                all.judge(Content::deserialize(MapAccessDeserializer::new(map))?);
                all.count += 1;
                all.settle();
                Ok(all)
            }
        }
        from.deserialize_any(Each)
    }
}

/// One turn, or the instructions.
#[derive(Debug, Deserialize)]
pub(super) struct Content<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) parts: Option<Parts<'a>>,
}

impl<'a> Contents<'a> {
    fn refuse(&mut self, path: String, why: &str) {
        if self.broken.is_none() {
            self.broken = Some((path, why.to_owned()));
        }
    }

    fn judge(&mut self, content: Content<'a>) {
        let index = self.count;
        let model = match content.role.as_deref() {
            None | Some("user" | "function") => false,
            Some("model") => true,
            Some(_) => {
                self.refuse(format!("contents[{index}].role"), "must be `user` or `model`");
                return;
            }
        };
        let Some(parts) = content.parts else {
            self.refuse(format!("contents[{index}].parts"), "is required");
            return;
        };
        if parts.count == 0 {
            self.refuse(format!("contents[{index}].parts"), "must not be empty");
        }
        if let Some((at, field, why)) = parts.broken {
            let dot = if field.is_empty() { "" } else { "." };
            self.refuse(format!("contents[{index}].parts[{at}]{dot}{field}"), why);
        }
        self.media += parts.media;
        self.signatures.extend(parts.signatures);
        for (at, answer) in parts.answers {
            let (id, name) = (answer.id.as_deref(), answer.name.as_deref().unwrap_or_default());
            if let Some((field, why)) = self.answer(id, name) {
                let path = format!("contents[{index}].parts[{at}].functionResponse{field}");
                self.refuse(path, why);
            }
        }
        if model {
            self.settle();
            for call in parts.calls {
                self.waiting.push(call.id, call.name.unwrap_or_default());
            }
        }
    }

    /// Finds the call a result answers: by its id, or by name and order where there is none.
    fn answer(&mut self, id: Option<&str>, name: &str) -> Option<(&'static str, &'static str)> {
        let id = id.filter(|id| !id.is_empty());
        if let Some(own) = id.and_then(|id| self.waiting.answer_id(id)) {
            let why = "is not the name of the call with this `id`";
            return (own != name).then_some((".name", why));
        }
        match self.waiting.answer_name(name, id.is_some()) {
            true => None,
            false if id.is_some() => Some((".id", "answers no call of the turn before")),
            false => Some((".name", "answers no call of the turn before")),
        }
    }

    /// The turn that answers is over: either none of the calls was answered, or all of them.
    fn settle(&mut self) {
        if self.waiting.answered == self.waiting.calls.len() {
            self.waiting = WaitingCalls::default();
        } else if self.waiting.answered > 0 {
            let why = "must hold one `functionResponse` for every `functionCall` before it";
            self.refuse(format!("contents[{}].parts", self.count.saturating_sub(1)), why);
            self.waiting = WaitingCalls::default();
        }
    }
}

/// A tool: the kinds it holds with their settings, and the keys that need the provider's own name.
#[derive(Debug, Default)]
pub(super) struct ToolHead<'a> {
    pub(super) kinds: Vec<(String, &'a RawValue)>,
    pub(super) renamed: Vec<(&'a RawValue, &'static str)>,
}

#[derive(Debug, Deserialize)]
pub(super) struct FunctionHead<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(default, rename = "description")]
    _description: Option<Text>,
}

impl<'de: 'a, 'a> Deserialize<'de> for ToolHead<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = ToolHead<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a tool object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut tool = ToolHead::default();
                while let Some(key) = map.next_key::<&'de RawValue>()? {
                    let name: Cow<'_, str> =
                        serde_json::from_str(key.get()).map_err(serde::de::Error::custom)?;
                    let name = camel(&name).into_owned();
                    if let Some(own) = read_tools::own_name(&name) {
                        tool.renamed.push((key, own));
                    }
                    if let Some(value) = map.next_value()? {
                        tool.kinds.push((name, value));
                    }
                }
                Ok(tool)
            }
        }
        from.deserialize_map(Each)
    }
}
