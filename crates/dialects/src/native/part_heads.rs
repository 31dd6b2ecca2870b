//! The parts of a turn as the rules see them: judged while they are read, little of them kept.

use crate::text;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// An object and nothing else: a derived struct alone would take a list as well.
#[derive(Debug)]
pub(super) struct Obj<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Obj<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Map<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Map<T> {
            type Value = Obj<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Obj)
            }
        }
        from.deserialize_any(Map(PhantomData))
    }
}

/// A list, or the one object that stands for a list of one.
#[derive(Debug)]
pub(super) struct Many<T>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Many<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct List<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
            type Value = Many<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(item) = items.next_element()? {
                    all.push(item);
                }
                Ok(Many(all))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|one| Many(vec![one]))
            }
        }
        from.deserialize_any(List(PhantomData))
    }
}

/// A string whose words do not matter.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) empty: bool,
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text { empty: text.is_empty() })
            }
        }
        from.deserialize_str(Any)
    }
}

/// What the parts of one turn amount to.
#[derive(Debug, Default)]
pub(super) struct Parts<'a> {
    pub(super) count: usize,
    pub(super) media: usize,
    /// Whether every part is text and nothing else.
    pub(super) only_text: bool,
    /// The first broken part: its number, the field in it, and why.
    pub(super) broken: Option<(usize, &'static str, &'static str)>,
    pub(super) calls: Vec<CallHead<'a>>,
    pub(super) answers: Vec<(usize, AnswerHead<'a>)>,
    pub(super) signatures: Vec<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Parts<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Parts<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of parts")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut all = Parts { only_text: true, ..Parts::default() };
                while let Some(part) = items.next_element::<Obj<PartHead<'de>>>()? {
                    all.judge(part.0);
                }
                Ok(all)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let mut all = Parts { only_text: true, ..Parts::default() };
                all.judge(PartHead::deserialize(MapAccessDeserializer::new(map))?);
                Ok(all)
            }
        }
        from.deserialize_any(Each)
    }
}

/// Every field a part may have; another one is refused.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PartHead<'a> {
    #[serde(default)]
    text: Option<Text>,
    #[serde(borrow, default, alias = "inline_data")]
    inline_data: Option<Obj<BlobHead<'a>>>,
    #[serde(borrow, default, alias = "file_data")]
    file_data: Option<Obj<FileHead<'a>>>,
    #[serde(borrow, default, alias = "function_call")]
    function_call: Option<Obj<CallHead<'a>>>,
    #[serde(borrow, default, alias = "function_response")]
    function_response: Option<Obj<AnswerHead<'a>>>,
    #[serde(default, alias = "executable_code")]
    executable_code: Option<IgnoredAny>,
    #[serde(default, alias = "code_execution_result")]
    code_execution_result: Option<IgnoredAny>,
    #[serde(default, alias = "tool_call")]
    tool_call: Option<IgnoredAny>,
    #[serde(default, alias = "tool_response")]
    tool_response: Option<IgnoredAny>,
    #[serde(default, alias = "audio_transcription")]
    audio_transcription: Option<IgnoredAny>,
    #[serde(default)]
    thought: Option<bool>,
    #[serde(borrow, default, alias = "thought_signature")]
    thought_signature: Option<&'a RawValue>,
    #[serde(default, alias = "video_metadata")]
    video_metadata: Option<Obj<ClipHead>>,
    #[serde(default, alias = "media_resolution", rename = "mediaResolution")]
    _media_resolution: Option<IgnoredAny>,
    #[serde(default, alias = "media_processing", rename = "mediaProcessing")]
    _media_processing: Option<IgnoredAny>,
    #[serde(default, alias = "speech_metadata", rename = "speechMetadata")]
    _speech_metadata: Option<IgnoredAny>,
    #[serde(default, alias = "part_metadata", rename = "partMetadata")]
    _part_metadata: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlobHead<'a> {
    #[serde(borrow, default, alias = "mime_type")]
    mime_type: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    data: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileHead<'a> {
    #[serde(borrow, default, alias = "mime_type")]
    mime_type: Option<Cow<'a, str>>,
    #[serde(borrow, default, alias = "file_uri")]
    file_uri: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClipHead {
    #[serde(default, alias = "start_offset", rename = "startOffset")]
    _start: Option<Text>,
    #[serde(default, alias = "end_offset", rename = "endOffset")]
    _end: Option<Text>,
    #[serde(default)]
    fps: Option<f64>,
}

/// Id and name of a call.
#[derive(Debug, Deserialize)]
pub(super) struct CallHead<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(default, rename = "args")]
    _args: Option<Obj<IgnoredAny>>,
}

/// Id and name of a result.
#[derive(Debug, Deserialize)]
pub(super) struct AnswerHead<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(default)]
    response: Option<Obj<IgnoredAny>>,
    #[serde(borrow, default)]
    parts: Option<Box<Parts<'a>>>,
}

impl<'a> Parts<'a> {
    fn judge(&mut self, part: PartHead<'a>) {
        let at = self.count;
        self.count += 1;
        if part.inline_data.is_some() || part.file_data.is_some() {
            self.media += 1;
        }
        if let Some((field, why)) = part.broken()
            && self.broken.is_none()
        {
            self.broken = Some((at, field, why));
        }
        self.only_text &= part.only_text();
        self.signatures.extend(part.thought_signature);
        self.calls.extend(part.function_call.map(|call| call.0));
        if let Some(Obj(answer)) = part.function_response {
            self.media += answer.parts.as_ref().map_or(0, |parts| parts.media);
            self.answers.push((at, answer));
        }
    }
}

impl PartHead<'_> {
    fn payloads(&self) -> usize {
        [
            self.text.is_some(),
            self.inline_data.is_some(),
            self.file_data.is_some(),
            self.function_call.is_some(),
            self.function_response.is_some(),
            self.executable_code.is_some(),
            self.code_execution_result.is_some(),
            self.tool_call.is_some(),
            self.tool_response.is_some(),
            self.audio_transcription.is_some(),
        ]
        .into_iter()
        .filter(|there| *there)
        .count()
    }

    const fn only_text(&self) -> bool {
        self.inline_data.is_none()
            && self.file_data.is_none()
            && self.function_call.is_none()
            && self.function_response.is_none()
            && self.executable_code.is_none()
            && self.code_execution_result.is_none()
            && self.tool_call.is_none()
            && self.tool_response.is_none()
            && self.audio_transcription.is_none()
            && self.text.is_some()
    }

    fn broken(&self) -> Option<(&'static str, &'static str)> {
        match self.payloads() {
            1 => {}
            // A lone signature stands for an empty text: the format leaves empty values out.
            0 if self.thought_signature.is_some() || self.thought == Some(true) => {}
            0 => return Some(("", "must hold something, such as a `text`")),
            _ if self.inline_data.is_some() && self.file_data.is_some() => {
                return Some(("", "must not hold both `inlineData` and `fileData`"));
            }
            _ => return Some(("", "must hold only one kind of payload")),
        }
        if self.thought_signature.is_some_and(|token| !token.get().starts_with('"')) {
            return Some(("thoughtSignature", "must be a string"));
        }
        if let Some(Obj(clip)) = &self.video_metadata
            && clip.fps.is_some_and(|fps| !(fps > 0.0 && fps <= 24.0))
        {
            return Some(("videoMetadata.fps", "must be above 0 and at most 24"));
        }
        if let Some(Obj(blob)) = &self.inline_data {
            return blob.broken();
        }
        if let Some(Obj(file)) = &self.file_data {
            return file.broken();
        }
        if let Some(Obj(call)) = &self.function_call
            && call.name.as_deref().is_none_or(str::is_empty)
        {
            return Some(("functionCall.name", "is required"));
        }
        if let Some(Obj(answer)) = &self.function_response {
            if answer.name.as_deref().is_none_or(str::is_empty) {
                return Some(("functionResponse.name", "is required"));
            }
            if answer.response.is_none() && answer.parts.is_none() {
                return Some(("functionResponse.response", "is required"));
            }
            if let Some(parts) = &answer.parts
                && let Some((_, _, why)) = parts.broken
            {
                return Some(("functionResponse.parts", why));
            }
        }
        None
    }
}

impl BlobHead<'_> {
    fn broken(&self) -> Option<(&'static str, &'static str)> {
        let Some(mime) = self.mime_type.as_deref() else {
            return Some(("inlineData.mimeType", "is required"));
        };
        if let Some(why) = broken_mime(mime) {
            return Some(("inlineData.mimeType", why));
        }
        let Some(data) = self.data.as_deref() else {
            return Some(("inlineData.data", "is required"));
        };
        broken_base64(data).map(|why| ("inlineData.data", why))
    }
}

impl FileHead<'_> {
    fn broken(&self) -> Option<(&'static str, &'static str)> {
        // Some addresses tell their type by themselves, so here it may be missing.
        if let Some(mime) = self.mime_type.as_deref().filter(|mime| !mime.is_empty())
            && let Some(why) = broken_mime(mime)
        {
            return Some(("fileData.mimeType", why));
        }
        self.file_uri.is_none().then_some(("fileData.fileUri", "is required"))
    }
}

/// What is wrong with a media type.
fn broken_mime(mime: &str) -> Option<&'static str> {
    let rule = "must be a media type such as `image/png`";
    let essence = mime.split(';').next().unwrap_or_default().trim();
    let token = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&b))
    };
    let Some((kind, name)) = essence.split_once('/') else { return Some(rule) };
    if mime.len() > 255 || mime.chars().any(char::is_control) || !token(kind) || !token(name) {
        return Some(rule);
    }
    if matches!(essence, "text/html" | "image/svg+xml") {
        return Some("is a media type that can hold scripts, which is not taken");
    }
    None
}

/// What is wrong with base64 data, in either alphabet, padded or not.
fn broken_base64(data: &str) -> Option<&'static str> {
    if data.is_empty() {
        return Some("must not be empty");
    }
    if data.starts_with("data:") {
        return Some("must be base64 without a `data:` prefix");
    }
    let bare = data.trim_end_matches('=');
    let padding = data.len() - bare.len();
    let fits = if padding == 0 {
        bare.len() % 4 != 1
    } else {
        data.len().is_multiple_of(4) && padding < 3
    };
    let known = bare
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_'));
    (!fits || !known).then_some("must be valid base64")
}
