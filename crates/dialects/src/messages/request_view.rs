//! The view of a messages request that the rules need: borrowed from the body and checked while it
//! is parsed.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashSet;

use super::names::GATEWAY_ID_PREFIX;
use super::signatures;
use crate::media_rules::{Base64View, mime_error};
use crate::text;
use crate::value_view::{self, ValueView};

#[derive(Debug, Deserialize)]
#[serde(expecting = "the body must be a JSON object")]
pub(super) struct MessagesRequestView<'a> {
    #[serde(borrow, default)]
    pub(super) model: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) messages: Option<MessageListView<'a>>,
    #[serde(borrow, default)]
    pub(super) max_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) system: Option<MessagesContentView<'a>>,
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
    pub(super) tools: Option<Vec<MessagesToolView<'a>>>,
    #[serde(borrow, default)]
    pub(super) tool_choice: Option<MessagesChoiceView<'a>>,
    #[serde(borrow, default)]
    pub(super) thinking: Option<MessagesThinkingView<'a>>,
    #[serde(borrow, default)]
    pub(super) output_config: Option<OutputConfigView<'a>>,
    #[serde(borrow, default)]
    pub(super) metadata: Option<MessagesMetadataView<'a>>,
    #[serde(borrow, default)]
    pub(super) thread: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) service_tier: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) speed: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "a tool object")]
pub(super) struct MessagesToolView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) input_schema: ValueShape,
    #[serde(borrow, default)]
    pub(super) max_uses: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object with a `type`")]
pub(super) struct MessagesChoiceView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) disable_parallel_tool_use: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object with a `type`")]
pub(super) struct MessagesThinkingView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) budget_tokens: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct OutputConfigView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) effort: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) format: Option<OutputFormatView<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object with a `type`")]
pub(super) struct OutputFormatView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) schema: ValueShape,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct MessagesMetadataView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) user_id: Option<Cow<'a, str>>,
}

/// The kind of a JSON value. The value itself is not kept, so that images are not copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ValueShape {
    #[default]
    Absent,
    Text,
    Empty,
    /// A text that begins like a URL.
    Address,
    /// A text that begins like an envelope of the gateway.
    Wrapped,
    Object,
    Other,
}

impl<'de> ValueView<'de> for ValueShape {
    const EXPECTED: &'static str = "any value";

    fn from_text(text: &str) -> Option<Self> {
        let address = text.starts_with("https://") || text.starts_with("http://");
        Some(match text {
            "" => Self::Empty,
            _ if address => Self::Address,
            _ if text.starts_with(signatures::ENVELOPE_PREFIX) => Self::Wrapped,
            _ => Self::Text,
        })
    }

    fn from_null() -> Option<Self> {
        Some(Self::Absent)
    }

    fn from_object<A: MapAccess<'de>>(mut fields: A) -> Result<Option<Self>, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Some(Self::Object))
    }

    fn from_other() -> Option<Self> {
        Some(Self::Other)
    }
}

impl<'de> Deserialize<'de> for ValueShape {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        value_view::read(from)
    }
}

impl ValueShape {
    const fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Empty | Self::Address | Self::Wrapped)
    }
}

/// The conversation. Messages are checked while they are parsed, and only the ids of calls and
/// results are kept.
#[derive(Debug, Default)]
pub(super) struct MessageListView<'a> {
    pub(super) count: usize,
    pub(super) first_error: Option<(String, String)>,
    /// True if a block was made by the gateway and means nothing to a provider of this format.
    pub(super) has_gateway_blocks: bool,
    /// The first result without a preceding call. The calls of a thread are at the provider.
    pub(super) unmatched_result: Option<(String, String)>,
    calls: HashSet<Cow<'a, str>>,
    answered: HashSet<Cow<'a, str>>,
}

impl<'de> ValueView<'de> for MessageListView<'de> {
    const EXPECTED: &'static str = "a list of messages";

    fn from_list<A: SeqAccess<'de>>(mut items: A) -> Result<Option<Self>, A::Error> {
        let mut all = Self::default();
        while let Some(message) = items.next_element::<MessageView<'de>>()? {
            all.check(message);
            all.count += 1;
        }
        Ok(Some(all))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for MessageListView<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        value_view::read::<MessageListView<'de>, D>(from)
    }
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "a message object")]
struct MessageView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content: MessagesContentView<'a>,
}

/// Content of a message or of the instructions, with the first error in its blocks.
#[derive(Debug, Default)]
pub(super) enum MessagesContentView<'a> {
    #[default]
    Absent,
    Text,
    Blocks(BlockListView<'a>),
}

/// A list of blocks, reduced to what the rules need.
#[derive(Debug, Default)]
pub(super) struct BlockListView<'a> {
    pub(super) count: usize,
    pub(super) first_error: Option<(usize, &'static str)>,
    /// The index of the first block that is not text.
    pub(super) first_non_text: Option<usize>,
    /// The index of the first block that a system message cannot hold. Beside text it holds changes
    /// of the tools.
    first_non_system: Option<usize>,
    has_gateway_blocks: bool,
    calls: Vec<(usize, Cow<'a, str>)>,
    results: Vec<(usize, Cow<'a, str>)>,
}

impl<'de> ValueView<'de> for MessagesContentView<'de> {
    const EXPECTED: &'static str = "a string or a list of blocks";

    fn from_text(_text: &str) -> Option<Self> {
        Some(Self::Text)
    }

    fn from_null() -> Option<Self> {
        Some(Self::Absent)
    }

    fn from_list<A: SeqAccess<'de>>(mut items: A) -> Result<Option<Self>, A::Error> {
        let mut blocks = BlockListView::default();
        while let Some(block) = items.next_element::<BlockView<'de>>()? {
            blocks.check(block);
        }
        Ok(Some(Self::Blocks(blocks)))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for MessagesContentView<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        value_view::read::<MessagesContentView<'de>, D>(from)
    }
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "a block object with a `type`")]
struct BlockView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    r#type: Option<Cow<'a, str>>,
    #[serde(default)]
    text: ValueShape,
    #[serde(default)]
    thinking: ValueShape,
    #[serde(default)]
    signature: ValueShape,
    #[serde(default)]
    data: ValueShape,
    #[serde(borrow, default)]
    source: Option<SourceView<'a>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    name: Option<Cow<'a, str>>,
    #[serde(default)]
    input: ValueShape,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    tool_use_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

/// The source of a block: an object in most blocks, a URL in search results.
#[derive(Debug, Default)]
struct SourceView<'a> {
    kind: Option<Cow<'a, str>>,
    media_type: Option<Cow<'a, str>>,
    data: ValueShape,
    encoded: Base64View,
    url: ValueShape,
    file_id: ValueShape,
}

impl<'de> ValueView<'de> for SourceView<'de> {
    const EXPECTED: &'static str = "a source object with a `type`";

    fn from_text(_address: &str) -> Option<Self> {
        Some(Self::default())
    }

    fn from_object<A: MapAccess<'de>>(fields: A) -> Result<Option<Self>, A::Error> {
        #[derive(Deserialize)]
        struct SourceFields<'a> {
            #[serde(borrow, default, deserialize_with = "text::maybe")]
            r#type: Option<Cow<'a, str>>,
            #[serde(borrow, default)]
            media_type: Option<&'a RawValue>,
            #[serde(borrow, default)]
            data: Option<&'a RawValue>,
            #[serde(default)]
            url: ValueShape,
            #[serde(default)]
            file_id: ValueShape,
        }
        let from = serde::de::value::MapAccessDeserializer::new(fields);
        let SourceFields { r#type, media_type, data, url, file_id } =
            SourceFields::deserialize(from)?;
        let media_type = media_type.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let shape = |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or_default();
        // Plain text is data as well.
        let encoded = data
            .filter(|_| r#type.as_deref() == Some("base64"))
            .map(|raw| serde_json::from_str(raw.get()).unwrap_or_default())
            .unwrap_or_default();
        let data = data.map(shape).unwrap_or_default();
        Ok(Some(Self { kind: r#type, media_type, data, encoded, url, file_id }))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for SourceView<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        value_view::read::<SourceView<'de>, D>(from)
    }
}

impl SourceView<'_> {
    fn first_error(&self, block: &str) -> Option<&'static str> {
        let mime = self.media_type.as_deref();
        let why = match self.kind.as_deref() {
            None => "needs a `source` with a `type`",
            Some("base64") if mime.is_none() => "needs a `source.media_type`",
            Some("base64") if mime.is_some_and(|mime| mime_error(mime).is_some()) => {
                "has a `source.media_type` that is not accepted"
            }
            Some("base64")
                if block == "image" && mime.is_some_and(|mime| !mime.starts_with("image/")) =>
            {
                "has a `source.media_type` that is not a picture"
            }
            Some("base64") if matches!(self.encoded, Base64View::Text(Some(_))) => {
                "has a `source.data` that is not valid base64"
            }
            Some("base64" | "text") if !self.data.is_text() => "needs a `source.data`",
            Some("url") if self.url != ValueShape::Address => {
                "needs a `source.url` that is an https address"
            }
            Some("file") if !self.file_id.is_text() => "needs a `source.file_id`",
            Some(_) => return None,
        };
        Some(why)
    }
}

impl<'a> BlockListView<'a> {
    fn check(&mut self, block: BlockView<'a>) {
        let at = self.count;
        self.count += 1;
        self.has_gateway_blocks |= block.is_gateway_block();
        if self.first_error.is_none() {
            self.first_error = block.first_error().map(|why| (at, why));
        }
        if self.first_non_text.is_none() && block.r#type.as_deref() != Some("text") {
            self.first_non_text = Some(at);
        }
        let system =
            matches!(block.r#type.as_deref(), Some("text" | "tool_addition" | "tool_removal"));
        if self.first_non_system.is_none() && !system {
            self.first_non_system = Some(at);
        }
        match (block.r#type.as_deref(), block.id, block.tool_use_id) {
            (Some("tool_use"), Some(id), _) => self.calls.push((at, id)),
            (Some("tool_result"), _, Some(id)) => self.results.push((at, id)),
            _ => {}
        }
    }
}

impl BlockView<'_> {
    fn is_gateway_block(&self) -> bool {
        let is_gateway_id = |id: &Option<Cow<'_, str>>| {
            id.as_deref().is_some_and(|id| id.starts_with(GATEWAY_ID_PREFIX))
        };
        match self.r#type.as_deref() {
            Some("thinking") => {
                matches!(
                    self.signature,
                    ValueShape::Absent | ValueShape::Empty | ValueShape::Wrapped
                )
            }
            Some("redacted_thinking") => self.data == ValueShape::Wrapped,
            _ => is_gateway_id(&self.id) || is_gateway_id(&self.tool_use_id),
        }
    }

    fn first_error(&self) -> Option<&'static str> {
        let named = |text: &Option<Cow<'_, str>>| text.as_ref().is_some_and(|t| !t.is_empty());
        let why = match self.r#type.as_deref() {
            None => "needs a `type`",
            Some("text") if !self.text.is_text() => "needs a `text`",
            Some(block @ ("image" | "document")) => match &self.source {
                None => "needs a `source`",
                Some(source) => return source.first_error(block),
            },
            Some("thinking") if !self.thinking.is_text() => "needs a `thinking` text",
            Some("redacted_thinking") if !self.data.is_text() => "needs a `data` text",
            Some("tool_use") if !named(&self.id) => "needs an `id`",
            Some("tool_use") if !named(&self.name) => "needs a `name`",
            Some("tool_use") if self.input != ValueShape::Object => "needs an `input` object",
            Some("tool_result") if !named(&self.tool_use_id) => "needs a `tool_use_id`",
            Some("tool_result") => return self.content.and_then(result_error),
            Some(_) => return None,
        };
        Some(why)
    }
}

/// Returns the first error in the content of a tool result.
fn result_error(content: &RawValue) -> Option<&'static str> {
    match serde_json::from_str::<MessagesContentView<'_>>(content.get()) {
        Ok(MessagesContentView::Blocks(blocks)) => blocks.first_error.map(|(_, why)| why),
        Ok(MessagesContentView::Absent | MessagesContentView::Text) => None,
        Err(_) => Some("has a `content` that is neither a string nor a list of blocks"),
    }
}

impl<'a> MessageListView<'a> {
    fn check(&mut self, message: MessageView<'a>) {
        if self.first_error.is_some() {
            return;
        }
        let index = self.count;
        if let Some((field, why)) = message_error(&message) {
            self.first_error = Some((format!("messages[{index}].{field}"), why.into_owned()));
            return;
        }
        let MessagesContentView::Blocks(blocks) = message.content else { return };
        self.has_gateway_blocks |= blocks.has_gateway_blocks;
        for (at, id) in blocks.results {
            let why = if !self.calls.contains(&id) {
                "answers no call: no earlier message has a `tool_use` block with this id"
            } else if self.answered.contains(&id) {
                "was answered before"
            } else {
                self.answered.insert(id);
                continue;
            };
            if self.unmatched_result.is_none() {
                let path = format!("messages[{index}].content[{at}].tool_use_id");
                self.unmatched_result = Some((path, why.to_owned()));
            }
        }
        self.calls.extend(blocks.calls.into_iter().map(|(_, id)| id));
    }
}

/// Returns the invalid field and the reason. The field includes the path of a block.
fn message_error(message: &MessageView<'_>) -> Option<(String, Cow<'static, str>)> {
    let wrong = |field: &str, why: &'static str| Some((field.to_owned(), Cow::Borrowed(why)));
    let role = match message.role.as_deref() {
        None => return wrong("role", "is required"),
        Some(role @ ("user" | "assistant" | "system")) => role,
        Some(_) => return wrong("role", "must be one of `user`, `assistant`, `system`"),
    };
    let blocks = match &message.content {
        MessagesContentView::Absent => return wrong("content", "is required"),
        MessagesContentView::Text => return None,
        MessagesContentView::Blocks(blocks) => blocks,
    };
    let block = |at: usize, why: &'static str| Some((format!("content[{at}]"), Cow::Borrowed(why)));
    // An empty assistant turn is legal: it asks the model to begin the reply.
    if blocks.count == 0 && role != "assistant" {
        return wrong("content", "must not be an empty list");
    }
    if let Some((at, why)) = blocks.first_error {
        return block(at, why);
    }
    match (role, blocks.calls.first(), blocks.results.first(), blocks.first_non_system) {
        ("system", _, _, Some(at)) => {
            block(at, "must be text or a change of the tools in a system message")
        }
        ("user", Some((at, _)), _, _) => block(*at, "is a call, which only an assistant makes"),
        ("assistant", _, Some((at, _)), _) => block(*at, "is a result, which only a user brings"),
        _ => None,
    }
}
