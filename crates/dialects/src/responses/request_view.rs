//! Borrowed view of a responses request. Items are checked while they are parsed.

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, SeqAccess};
use serde_json::value::RawValue;
use std::borrow::Cow;

use crate::text;
use crate::value_view::{self, AnyObject, ValueView};

#[derive(Debug, Deserialize)]
#[serde(expecting = "the body must be a JSON object")]
pub(super) struct ResponsesRequestView<'a> {
    #[serde(borrow, default)]
    pub(super) model: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) input: Option<InputView<'a>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) instructions: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) previous_response_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) conversation: Option<ObjectNameView<'a>>,
    #[serde(borrow, default)]
    pub(super) prompt: Option<ObjectNameView<'a>>,
    #[serde(default)]
    pub(super) stream: Option<bool>,
    #[serde(borrow, default)]
    pub(super) max_output_tokens: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) max_tool_calls: Option<i64>,
    #[serde(default)]
    pub(super) temperature: Option<f64>,
    #[serde(default)]
    pub(super) top_p: Option<f64>,
    #[serde(default)]
    pub(super) top_logprobs: Option<i64>,
    #[serde(borrow, default)]
    pub(super) tools: Option<Vec<ResponsesToolView<'a>>>,
    #[serde(borrow, default)]
    pub(super) tool_choice: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) parallel_tool_calls: Option<bool>,
    #[serde(borrow, default)]
    pub(super) reasoning: Option<ReasoningView<'a>>,
    #[serde(borrow, default)]
    pub(super) text: Option<TextConfigView<'a>>,
    #[serde(borrow, default)]
    pub(super) include: Option<Vec<Cow<'a, str>>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) truncation: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) metadata: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) store: Option<bool>,
    #[serde(default)]
    pub(super) background: Option<bool>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) user: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) safety_identifier: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) prompt_cache_key: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) service_tier: Option<Cow<'a, str>>,
}

/// The name of a stored object: its id, or an object with the id.
#[derive(Debug)]
pub(super) struct ObjectNameView<'a> {
    pub(super) id: Cow<'a, str>,
}

impl<'de> ValueView<'de> for ObjectNameView<'de> {
    const EXPECTED: &'static str = "an id or an object with an `id`";

    fn from_text(text: &str) -> Option<Self> {
        Some(Self { id: Cow::Owned(text.to_owned()) })
    }

    fn from_object<A: MapAccess<'de>>(fields: A) -> Result<Option<Self>, A::Error> {
        #[derive(Deserialize)]
        struct ObjectIdView<'a> {
            #[serde(borrow, default, deserialize_with = "text::maybe")]
            id: Option<Cow<'a, str>>,
        }
        let view = ObjectIdView::deserialize(MapAccessDeserializer::new(fields))?;
        Ok(view.id.map(|id| Self { id }))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ObjectNameView<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        value_view::read::<ObjectNameView<'de>, D>(from)
    }
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct ReasoningView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) effort: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) summary: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) generate_summary: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct TextConfigView<'a> {
    #[serde(borrow, default)]
    pub(super) format: Option<TextFormatView<'a>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) verbosity: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object with a `type`")]
pub(super) struct TextFormatView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) schema: Option<AnyObject>,
    #[serde(default, rename = "strict")]
    _strict: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "a tool object")]
pub(super) struct ResponsesToolView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) namespace: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) parameters: Option<AnyObject>,
    #[serde(borrow, default)]
    pub(super) tools: Option<Vec<ResponsesToolView<'a>>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) mode: Option<Cow<'a, str>>,
}

/// The conversation: a text, or items. Items are checked while they are parsed, so that only the
/// ids of calls and results are kept.
#[derive(Debug)]
pub(super) enum InputView<'a> {
    Text,
    Items(InputItems<'a>),
}

#[derive(Debug, Default)]
pub(super) struct InputItems<'a> {
    pub(super) count: usize,
    pub(super) problem: Option<(String, String)>,
    /// True if any item carries a signature in an envelope of the gateway.
    pub(super) has_envelopes: bool,
    /// True if any item refers to one stored elsewhere.
    pub(super) has_references: bool,
    /// Ids of the items that refer to others.
    pub(super) references: Vec<(usize, Cow<'a, str>)>,
    /// Ids of the items that the request contains.
    pub(super) ids: Vec<Cow<'a, str>>,
    pub(super) calls: Vec<Cow<'a, str>>,
    pub(super) results: Vec<(usize, Cow<'a, str>)>,
    pub(super) tools: Vec<ResponsesToolView<'a>>,
}

impl<'de> ValueView<'de> for InputView<'de> {
    const EXPECTED: &'static str = "a string or a list of items";

    fn from_text(_text: &str) -> Option<Self> {
        Some(Self::Text)
    }

    fn from_list<A: SeqAccess<'de>>(mut list: A) -> Result<Option<Self>, A::Error> {
        let mut items = InputItems::default();
        while let Some(item) = list.next_element::<ItemView<'de>>()? {
            items.check_item(item);
            items.count += 1;
        }
        Ok(Some(Self::Items(items)))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for InputView<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        value_view::read::<InputView<'de>, D>(from)
    }
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an item object")]
pub(super) struct ItemView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) id: Option<LooseText<'a>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) content: ItemContentView<'a>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) call_id: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) arguments: Option<LooseText<'a>>,
    #[serde(borrow, default)]
    pub(super) input: Option<LooseText<'a>>,
    #[serde(borrow, default)]
    pub(super) output: ItemContentView<'a>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) encrypted_content: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) tools: Option<&'a RawValue>,
}

/// Content of an item: absent, text, or parts with the first invalid one. Unknown item types may
/// hold anything.
#[derive(Debug, Default)]
pub(super) enum ItemContentView<'a> {
    #[default]
    Absent,
    Text,
    Parts {
        problem: Option<(usize, Cow<'a, str>)>,
    },
    Other,
}

impl<'de> ValueView<'de> for ItemContentView<'de> {
    const EXPECTED: &'static str = "a string or a list of parts";

    fn from_text(_text: &str) -> Option<Self> {
        Some(Self::Text)
    }

    fn from_null() -> Option<Self> {
        Some(Self::Absent)
    }

    fn from_list<A: SeqAccess<'de>>(mut list: A) -> Result<Option<Self>, A::Error> {
        let (mut count, mut problem) = (0, None);
        while let Some(PartElement(part)) = list.next_element::<PartElement<'de>>()? {
            if problem.is_none() {
                let why = match part {
                    Some(part) => part.problem(),
                    None => Some(Cow::Borrowed("must be an object with a `type`")),
                };
                problem = why.map(|why| (count, why));
            }
            count += 1;
        }
        Ok(Some(Self::Parts { problem }))
    }

    fn from_other() -> Option<Self> {
        Some(Self::Other)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ItemContentView<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        value_view::read::<ItemContentView<'de>, D>(from)
    }
}

/// Element of a parts list. In unknown item types it need not be a part.
#[derive(Debug)]
struct PartElement<'a>(Option<ResponsesPartView<'a>>);

impl<'de> ValueView<'de> for PartElement<'de> {
    const EXPECTED: &'static str = "a part object with a `type`";

    fn from_object<A: MapAccess<'de>>(fields: A) -> Result<Option<Self>, A::Error> {
        let from = MapAccessDeserializer::new(fields);
        ResponsesPartView::deserialize(from).map(|part| Some(Self(Some(part))))
    }

    fn from_other() -> Option<Self> {
        Some(Self(None))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for PartElement<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        value_view::read::<PartElement<'de>, D>(from)
    }
}

/// Fields of a part that the rules need. In unknown part types they may hold anything.
#[derive(Debug, Deserialize)]
#[serde(expecting = "a part object with a `type`")]
pub(super) struct ResponsesPartView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) text: Option<LooseText<'a>>,
    #[serde(borrow, default)]
    pub(super) image_url: Option<LooseText<'a>>,
    #[serde(borrow, default)]
    pub(super) file_data: Option<LooseText<'a>>,
    #[serde(borrow, default)]
    pub(super) file_url: Option<LooseText<'a>>,
    #[serde(borrow, default)]
    pub(super) file_id: Option<LooseText<'a>>,
    #[serde(borrow, default)]
    pub(super) input_audio: Option<&'a RawValue>,
}

/// A string, or any other JSON value.
#[derive(Debug)]
pub(super) enum LooseText<'a> {
    Text(Cow<'a, str>),
    Other,
}

impl<'de: 'a, 'a> Deserialize<'de> for LooseText<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(from)?;
        // Only the beginning of a URL is checked, and escapes are rare.
        Ok(match raw.get().strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
            Some(text) if !text.contains('\\') => LooseText::Text(Cow::Borrowed(text)),
            Some(_) => serde_json::from_str(raw.get())
                .map_or(LooseText::Other, |text| LooseText::Text(Cow::Owned(text))),
            None => LooseText::Other,
        })
    }
}
