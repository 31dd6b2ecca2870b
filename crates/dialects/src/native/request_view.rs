//! The view of a native request that the rules need: borrowed from the body and checked while it is
//! parsed.

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::fmt;

use super::part_view::{NativePartsView, ObjectOnly};
use super::proto_json::to_camel_case;
use super::read_tools;
use crate::text;
use crate::value_view::AnyString;

/// The body. Fields with rules of their own are parsed in a second step.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NativeRequestView<'a> {
    #[serde(borrow, default)]
    pub(super) model: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) contents: NativeContentsView<'a>,
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
    #[serde(borrow, default, alias = "service_tier", deserialize_with = "text::maybe")]
    pub(super) service_tier: Option<Cow<'a, str>>,
}

/// Reads a present value, even if it is null.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// The conversation, reduced to open calls and signatures.
#[derive(Debug, Default)]
pub(super) struct NativeContentsView<'a> {
    /// True if the field is present.
    pub(super) is_present: bool,
    pub(super) count: usize,
    pub(super) media: usize,
    pub(super) first_error: Option<(String, String)>,
    pub(super) signatures: Vec<&'a RawValue>,
    open_calls: OpenCallIndex<'a>,
}

/// Calls of the model's last turn, found by id or by name. A turn may hold hundreds of thousands.
#[derive(Debug, Default)]
struct OpenCallIndex<'a> {
    /// The name of each call, and true once it is answered.
    calls: Vec<(Cow<'a, str>, bool)>,
    answered: usize,
    by_id: HashMap<Cow<'a, str>, VecDeque<usize>>,
    by_name: HashMap<Cow<'a, str>, VecDeque<usize>>,
    /// Calls without an id, by name.
    bare_by_name: HashMap<Cow<'a, str>, VecDeque<usize>>,
}

impl<'a> OpenCallIndex<'a> {
    fn push(&mut self, id: Option<Cow<'a, str>>, name: Cow<'a, str>) {
        let at = self.calls.len();
        self.by_name.entry(name.clone()).or_default().push_back(at);
        match id {
            Some(id) => self.by_id.entry(id).or_default().push_back(at),
            None => self.bare_by_name.entry(name.clone()).or_default().push_back(at),
        }
        self.calls.push((name, false));
    }

    /// Marks the first unanswered call of a queue as answered and returns its name. Calls that
    /// were answered meanwhile leave the queue.
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

impl<'de: 'a, 'a> Deserialize<'de> for NativeContentsView<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ContentsVisitor;
        impl<'de> Visitor<'de> for ContentsVisitor {
            type Value = NativeContentsView<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of contents")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(NativeContentsView { is_present: true, ..NativeContentsView::default() })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut all =
                    NativeContentsView { is_present: true, ..NativeContentsView::default() };
                while let Some(ObjectOnly(content)) =
                    items.next_element::<ObjectOnly<NativeContentView<'de>>>()?
                {
                    all.check(content);
                    all.count += 1;
                }
                all.end_answering_turn();
                Ok(all)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let mut all =
                    NativeContentsView { is_present: true, ..NativeContentsView::default() };
                all.check(NativeContentView::deserialize(MapAccessDeserializer::new(map))?);
                all.count += 1;
                all.end_answering_turn();
                Ok(all)
            }
        }
        from.deserialize_any(ContentsVisitor)
    }
}

/// One turn, or the system instruction.
#[derive(Debug, Deserialize)]
pub(super) struct NativeContentView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) parts: Option<NativePartsView<'a>>,
}

impl<'a> NativeContentsView<'a> {
    fn record_error(&mut self, path: String, why: &str) {
        if self.first_error.is_none() {
            self.first_error = Some((path, why.to_owned()));
        }
    }

    fn check(&mut self, content: NativeContentView<'a>) {
        let index = self.count;
        let model = match content.role.as_deref() {
            None | Some("user" | "function") => false,
            Some("model") => true,
            Some(_) => {
                self.record_error(format!("contents[{index}].role"), "must be `user` or `model`");
                return;
            }
        };
        let Some(parts) = content.parts else {
            self.record_error(format!("contents[{index}].parts"), "is required");
            return;
        };
        if parts.count == 0 {
            self.record_error(format!("contents[{index}].parts"), "must not be empty");
        }
        if let Some((at, field, why)) = parts.first_error {
            let dot = if field.is_empty() { "" } else { "." };
            self.record_error(format!("contents[{index}].parts[{at}]{dot}{field}"), why);
        }
        self.media += parts.media;
        self.signatures.extend(parts.signatures);
        for (at, result) in parts.results {
            let (id, name) = (result.id.as_deref(), result.name.as_deref().unwrap_or_default());
            if let Some((field, why)) = self.match_result(id, name) {
                let path = format!("contents[{index}].parts[{at}].functionResponse{field}");
                self.record_error(path, why);
            }
        }
        if model {
            self.end_answering_turn();
            for call in parts.calls {
                self.open_calls.push(call.id, call.name.unwrap_or_default());
            }
        }
    }

    /// Matches a result to its call: by id, or by name and order if there is no id.
    fn match_result(
        &mut self,
        id: Option<&str>,
        name: &str,
    ) -> Option<(&'static str, &'static str)> {
        let id = id.filter(|id| !id.is_empty());
        if let Some(own) = id.and_then(|id| self.open_calls.answer_id(id)) {
            let why = "is not the name of the call with this `id`";
            return (own != name).then_some((".name", why));
        }
        match self.open_calls.answer_name(name, id.is_some()) {
            true => None,
            false if id.is_some() => Some((".id", "answers no call of the turn before")),
            false => Some((".name", "answers no call of the turn before")),
        }
    }

    /// Ends a turn with results. Either all open calls or none of them must be answered in it.
    fn end_answering_turn(&mut self) {
        if self.open_calls.answered == self.open_calls.calls.len() {
            self.open_calls = OpenCallIndex::default();
        } else if self.open_calls.answered > 0 {
            let why = "must hold one `functionResponse` for every `functionCall` before it";
            self.record_error(format!("contents[{}].parts", self.count.saturating_sub(1)), why);
            self.open_calls = OpenCallIndex::default();
        }
    }
}

/// A tool: its kinds with their settings, and the keys to rename to the provider's names.
#[derive(Debug, Default)]
pub(super) struct NativeToolView<'a> {
    pub(super) kinds: Vec<(String, &'a RawValue)>,
    pub(super) renamed: Vec<(&'a RawValue, &'static str)>,
}

#[derive(Debug, Deserialize)]
pub(super) struct NativeFunctionView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(default, rename = "description")]
    _description: Option<AnyString>,
    #[serde(default, rename = "parameters")]
    _parameters: Option<ObjectOnly<IgnoredAny>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for NativeToolView<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ToolVisitor;
        impl<'de> Visitor<'de> for ToolVisitor {
            type Value = NativeToolView<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a tool object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut tool = NativeToolView::default();
                while let Some(key) = map.next_key::<&'de RawValue>()? {
                    let name: Cow<'_, str> =
                        serde_json::from_str(key.get()).map_err(serde::de::Error::custom)?;
                    let name = to_camel_case(&name).into_owned();
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
        from.deserialize_map(ToolVisitor)
    }
}
