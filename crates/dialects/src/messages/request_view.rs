//! A messages request as the rules see it: borrowed from the body, judged while it is read.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashSet;

use super::{seals, write_answer};
use crate::heads::{self, Outline};
use crate::text;

#[derive(Debug, Deserialize)]
#[serde(expecting = "the body must be a JSON object")]
pub(super) struct Head<'a> {
    #[serde(borrow, default)]
    pub(super) model: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) messages: Option<Messages<'a>>,
    #[serde(borrow, default)]
    pub(super) max_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) system: Option<Content<'a>>,
    #[serde(default)]
    pub(super) stream: Option<bool>,
    #[serde(default)]
    pub(super) temperature: Option<f64>,
    #[serde(default)]
    pub(super) top_p: Option<f64>,
    #[serde(default)]
    pub(super) top_k: Option<i64>,
    #[serde(borrow, default)]
    pub(super) stop_sequences: Option<Vec<Cow<'a, str>>>,
    #[serde(borrow, default)]
    pub(super) tools: Option<Vec<ToolHead<'a>>>,
    #[serde(borrow, default)]
    pub(super) tool_choice: Option<ChoiceHead<'a>>,
    #[serde(borrow, default)]
    pub(super) thinking: Option<ThinkingHead<'a>>,
    #[serde(borrow, default)]
    pub(super) output_config: Option<ConfigHead<'a>>,
    #[serde(borrow, default)]
    pub(super) metadata: Option<MetadataHead<'a>>,
    #[serde(borrow, default)]
    pub(super) thread: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) service_tier: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) speed: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "a tool object")]
pub(super) struct ToolHead<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) input_schema: Shape,
    #[serde(borrow, default)]
    pub(super) max_uses: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object with a `type`")]
pub(super) struct ChoiceHead<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) disable_parallel_tool_use: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object with a `type`")]
pub(super) struct ThinkingHead<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) budget_tokens: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct ConfigHead<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) effort: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) format: Option<FormatHead<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object with a `type`")]
pub(super) struct FormatHead<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) schema: Shape,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct MetadataHead<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) user_id: Option<Cow<'a, str>>,
}

/// What kind of value stands somewhere. Nothing of it is kept, so that pictures are not copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shape {
    #[default]
    Absent,
    Text,
    /// A text of no length.
    Empty,
    /// A text that begins like an address.
    Address,
    /// A text that begins like one of our envelopes.
    Wrapped,
    Object,
    Other,
}

impl<'de> Outline<'de> for Shape {
    const EXPECTED: &'static str = "any value";

    fn text(text: &str) -> Option<Self> {
        let address = text.starts_with("https://") || text.starts_with("http://");
        Some(match text {
            "" => Self::Empty,
            _ if address => Self::Address,
            _ if text.starts_with(seals::WRAPPED) => Self::Wrapped,
            _ => Self::Text,
        })
    }

    fn nothing() -> Option<Self> {
        Some(Self::Absent)
    }

    fn object<A: MapAccess<'de>>(mut fields: A) -> Result<Option<Self>, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Some(Self::Object))
    }

    fn other() -> Option<Self> {
        Some(Self::Other)
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        heads::read(from)
    }
}

impl Shape {
    const fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Empty | Self::Address | Self::Wrapped)
    }
}

/// The conversation. Each message is judged while it is read, so that nothing is kept of it but
/// the ids of calls and results.
#[derive(Debug, Default)]
pub(super) struct Messages<'a> {
    pub(super) count: usize,
    pub(super) broken: Option<(String, String)>,
    /// Whether some block was written by us and means nothing to this format's own provider.
    pub(super) ours: bool,
    /// The first result that answers no call before it. A thread has its calls elsewhere.
    pub(super) unasked: Option<(String, String)>,
    calls: HashSet<Cow<'a, str>>,
    answered: HashSet<Cow<'a, str>>,
}

impl<'de> Outline<'de> for Messages<'de> {
    const EXPECTED: &'static str = "a list of messages";

    fn list<A: SeqAccess<'de>>(mut items: A) -> Result<Option<Self>, A::Error> {
        let mut all = Self::default();
        while let Some(message) = items.next_element::<Message<'de>>()? {
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
struct Message<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content: Content<'a>,
}

/// What a message or the instructions hold: nothing, text, or blocks of which the first broken one
/// is remembered.
#[derive(Debug, Default)]
pub(super) enum Content<'a> {
    #[default]
    Absent,
    Text,
    Blocks(Blocks<'a>),
}

/// A list of blocks, as far as the rules care.
#[derive(Debug, Default)]
pub(super) struct Blocks<'a> {
    pub(super) count: usize,
    pub(super) broken: Option<(usize, &'static str)>,
    /// The first block that is not text.
    pub(super) spoken: Option<usize>,
    ours: bool,
    calls: Vec<(usize, Cow<'a, str>)>,
    results: Vec<(usize, Cow<'a, str>)>,
}

impl<'de> Outline<'de> for Content<'de> {
    const EXPECTED: &'static str = "a string or a list of blocks";

    fn text(_text: &str) -> Option<Self> {
        Some(Self::Text)
    }

    fn nothing() -> Option<Self> {
        Some(Self::Absent)
    }

    fn list<A: SeqAccess<'de>>(mut items: A) -> Result<Option<Self>, A::Error> {
        let mut blocks = Blocks::default();
        while let Some(block) = items.next_element::<BlockHead<'de>>()? {
            blocks.judge(block);
        }
        Ok(Some(Self::Blocks(blocks)))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        heads::read::<Content<'de>, D>(from)
    }
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "a block object with a `type`")]
struct BlockHead<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    r#type: Option<Cow<'a, str>>,
    #[serde(default)]
    text: Shape,
    #[serde(default)]
    thinking: Shape,
    #[serde(default)]
    signature: Shape,
    #[serde(default)]
    data: Shape,
    #[serde(borrow, default)]
    source: Option<SourceHead<'a>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    name: Option<Cow<'a, str>>,
    #[serde(default)]
    input: Shape,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    tool_use_id: Option<Cow<'a, str>>,
}

/// A source is an object in most blocks and an address in search results.
#[derive(Debug, Default)]
struct SourceHead<'a> {
    kind: Option<Cow<'a, str>>,
    media_type: Shape,
    data: Shape,
    url: Shape,
    file_id: Shape,
}

impl<'de> Outline<'de> for SourceHead<'de> {
    const EXPECTED: &'static str = "a source object with a `type`";

    fn text(_address: &str) -> Option<Self> {
        Some(Self::default())
    }

    fn object<A: MapAccess<'de>>(fields: A) -> Result<Option<Self>, A::Error> {
        #[derive(Deserialize)]
        struct Object<'a> {
            #[serde(borrow, default, deserialize_with = "text::maybe")]
            r#type: Option<Cow<'a, str>>,
            #[serde(default)]
            media_type: Shape,
            #[serde(default)]
            data: Shape,
            #[serde(default)]
            url: Shape,
            #[serde(default)]
            file_id: Shape,
        }
        let from = serde::de::value::MapAccessDeserializer::new(fields);
        let Object { r#type, media_type, data, url, file_id } = Object::deserialize(from)?;
        Ok(Some(Self { kind: r#type, media_type, data, url, file_id }))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for SourceHead<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        heads::read::<SourceHead<'de>, D>(from)
    }
}

impl SourceHead<'_> {
    fn broken(&self) -> Option<&'static str> {
        let why = match self.kind.as_deref() {
            None => "needs a `source` with a `type`",
            Some("base64") if !self.media_type.is_text() => "needs a `source.media_type`",
            Some("base64" | "text") if !self.data.is_text() => "needs a `source.data`",
            Some("url") if self.url != Shape::Address => {
                "needs a `source.url` that is an https address"
            }
            Some("file") if !self.file_id.is_text() => "needs a `source.file_id`",
            Some(_) => return None,
        };
        Some(why)
    }
}

impl<'a> Blocks<'a> {
    fn judge(&mut self, block: BlockHead<'a>) {
        let at = self.count;
        self.count += 1;
        self.ours |= block.is_ours();
        if self.broken.is_none() {
            self.broken = block.broken().map(|why| (at, why));
        }
        if self.spoken.is_none() && block.r#type.as_deref() != Some("text") {
            self.spoken = Some(at);
        }
        match (block.r#type.as_deref(), block.id, block.tool_use_id) {
            (Some("tool_use"), Some(id), _) => self.calls.push((at, id)),
            (Some("tool_result"), _, Some(id)) => self.results.push((at, id)),
            _ => {}
        }
    }
}

impl BlockHead<'_> {
    fn is_ours(&self) -> bool {
        let made_up = |id: &Option<Cow<'_, str>>| {
            id.as_deref().is_some_and(|id| id.starts_with(write_answer::OUR_ID))
        };
        match self.r#type.as_deref() {
            Some("thinking") => {
                matches!(self.signature, Shape::Absent | Shape::Empty | Shape::Wrapped)
            }
            Some("redacted_thinking") => self.data == Shape::Wrapped,
            _ => made_up(&self.id) || made_up(&self.tool_use_id),
        }
    }

    fn broken(&self) -> Option<&'static str> {
        let named = |text: &Option<Cow<'_, str>>| text.as_ref().is_some_and(|t| !t.is_empty());
        let why = match self.r#type.as_deref() {
            None => "needs a `type`",
            Some("text") if !self.text.is_text() => "needs a `text`",
            Some("image" | "document") => match &self.source {
                None => "needs a `source`",
                Some(source) => return source.broken(),
            },
            Some("thinking") if !self.thinking.is_text() => "needs a `thinking` text",
            Some("redacted_thinking") if !self.data.is_text() => "needs a `data` text",
            Some("tool_use") if !named(&self.id) => "needs an `id`",
            Some("tool_use") if !named(&self.name) => "needs a `name`",
            Some("tool_use") if self.input != Shape::Object => "needs an `input` object",
            Some("tool_result") if !named(&self.tool_use_id) => "needs a `tool_use_id`",
            Some(_) => return None,
        };
        Some(why)
    }
}

impl<'a> Messages<'a> {
    fn judge(&mut self, message: Message<'a>) {
        if self.broken.is_some() {
            return;
        }
        let index = self.count;
        if let Some((field, why)) = wrong_with(&message) {
            self.broken = Some((format!("messages[{index}].{field}"), why.into_owned()));
            return;
        }
        let Content::Blocks(blocks) = message.content else { return };
        self.ours |= blocks.ours;
        for (at, id) in blocks.results {
            let why = if !self.calls.contains(&id) {
                "answers no call: no earlier message has a `tool_use` block with this id"
            } else if self.answered.contains(&id) {
                "was answered before"
            } else {
                self.answered.insert(id);
                continue;
            };
            if self.unasked.is_none() {
                let path = format!("messages[{index}].content[{at}].tool_use_id");
                self.unasked = Some((path, why.to_owned()));
            }
        }
        self.calls.extend(blocks.calls.into_iter().map(|(_, id)| id));
    }
}

/// The field that is wrong and why; the path of a block is part of the field.
fn wrong_with(message: &Message<'_>) -> Option<(String, Cow<'static, str>)> {
    let wrong = |field: &str, why: &'static str| Some((field.to_owned(), Cow::Borrowed(why)));
    let role = match message.role.as_deref() {
        None => return wrong("role", "is required"),
        Some(role @ ("user" | "assistant" | "system")) => role,
        Some(_) => return wrong("role", "must be one of `user`, `assistant`, `system`"),
    };
    let blocks = match &message.content {
        Content::Absent => return wrong("content", "is required"),
        Content::Text => return None,
        Content::Blocks(blocks) => blocks,
    };
    let block = |at: usize, why: &'static str| Some((format!("content[{at}]"), Cow::Borrowed(why)));
    // An empty last turn of the assistant's is a legal, if odd, beginning of its answer.
    if blocks.count == 0 && role != "assistant" {
        return wrong("content", "must not be an empty list");
    }
    if let Some((at, why)) = blocks.broken {
        return block(at, why);
    }
    match (role, blocks.calls.first(), blocks.results.first(), blocks.spoken) {
        ("system", _, _, Some(at)) => block(at, "must be text in a system message"),
        ("user", Some((at, _)), _, _) => block(*at, "is a call, which only an assistant makes"),
        ("assistant", _, Some((at, _)), _) => block(*at, "is a result, which only a user brings"),
        _ => None,
    }
}
