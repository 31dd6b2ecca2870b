//! The view of a turn's parts that the rules need. Parts are checked while they are parsed and
//! hardly anything is copied. Field reference: <https://ai.google.dev/api/caching#Part>.

use crate::media_rules::{base64_error, mime_error};
use crate::text;
use crate::value_view::AnyString;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// An object and nothing else. A derived struct alone would accept a list as well.
#[derive(Debug)]
pub(super) struct ObjectOnly<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ObjectOnly<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = ObjectOnly<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(ObjectOnly)
            }
        }
        from.deserialize_any(ObjectVisitor(PhantomData))
    }
}

/// A list, or one object in place of a list of one.
#[derive(Debug)]
pub(super) struct OneOrMany<T>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ListVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(item) = items.next_element()? {
                    all.push(item);
                }
                Ok(OneOrMany(all))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|one| OneOrMany(vec![one]))
            }
        }
        from.deserialize_any(ListVisitor(PhantomData))
    }
}

/// Summary of the parts of one turn.
#[derive(Debug, Default)]
pub(super) struct NativePartsView<'a> {
    pub(super) count: usize,
    pub(super) media: usize,
    /// True if every part is text.
    pub(super) only_text: bool,
    /// The first invalid part: its index, the field, and the reason.
    pub(super) first_error: Option<(usize, &'static str, &'static str)>,
    pub(super) calls: Vec<NativeCallView<'a>>,
    pub(super) results: Vec<(usize, NativeResultView<'a>)>,
    pub(super) signatures: Vec<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for NativePartsView<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct PartsVisitor;
        impl<'de> Visitor<'de> for PartsVisitor {
            type Value = NativePartsView<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of parts")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut all = NativePartsView { only_text: true, ..NativePartsView::default() };
                while let Some(part) = items.next_element::<ObjectOnly<NativePartView<'de>>>()? {
                    all.check(part.0);
                }
                Ok(all)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let mut all = NativePartsView { only_text: true, ..NativePartsView::default() };
                all.check(NativePartView::deserialize(MapAccessDeserializer::new(map))?);
                Ok(all)
            }
        }
        from.deserialize_any(PartsVisitor)
    }
}

/// All fields a part may have. Any other field is refused.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NativePartView<'a> {
    #[serde(default)]
    text: Option<AnyString>,
    #[serde(borrow, default, alias = "inline_data")]
    inline_data: Option<ObjectOnly<NativeBlobView<'a>>>,
    #[serde(borrow, default, alias = "file_data")]
    file_data: Option<ObjectOnly<NativeFileView<'a>>>,
    #[serde(borrow, default, alias = "function_call")]
    function_call: Option<ObjectOnly<NativeCallView<'a>>>,
    #[serde(borrow, default, alias = "function_response")]
    function_response: Option<ObjectOnly<NativeResultView<'a>>>,
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
    video_metadata: Option<ObjectOnly<NativeClipView>>,
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
struct NativeBlobView<'a> {
    #[serde(borrow, default, alias = "mime_type")]
    mime_type: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    data: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NativeFileView<'a> {
    #[serde(borrow, default, alias = "mime_type")]
    mime_type: Option<Cow<'a, str>>,
    #[serde(borrow, default, alias = "file_uri")]
    file_uri: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NativeClipView {
    #[serde(default, alias = "start_offset", rename = "startOffset")]
    _start: Option<AnyString>,
    #[serde(default, alias = "end_offset", rename = "endOffset")]
    _end: Option<AnyString>,
    #[serde(default)]
    fps: Option<f64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct NativeCallView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(default, rename = "args")]
    _args: Option<ObjectOnly<IgnoredAny>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct NativeResultView<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(default)]
    response: Option<ObjectOnly<IgnoredAny>>,
    #[serde(borrow, default)]
    parts: Option<Box<NativePartsView<'a>>>,
}

impl<'a> NativePartsView<'a> {
    fn check(&mut self, part: NativePartView<'a>) {
        let at = self.count;
        self.count += 1;
        if part.inline_data.is_some() || part.file_data.is_some() {
            self.media += 1;
        }
        if let Some((field, why)) = part.first_error()
            && self.first_error.is_none()
        {
            self.first_error = Some((at, field, why));
        }
        self.only_text &= part.only_text();
        self.signatures.extend(part.thought_signature);
        self.calls.extend(part.function_call.map(|call| call.0));
        if let Some(ObjectOnly(result)) = part.function_response {
            self.media += result.parts.as_ref().map_or(0, |parts| parts.media);
            self.results.push((at, result));
        }
    }
}

impl NativePartView<'_> {
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

    fn first_error(&self) -> Option<(&'static str, &'static str)> {
        match self.payloads() {
            1 => {}
            // ProtoJSON leaves out empty values, so a lone signature stands for an empty text.
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
        if let Some(ObjectOnly(clip)) = &self.video_metadata
            && clip.fps.is_some_and(|fps| !(fps > 0.0 && fps <= 24.0))
        {
            return Some(("videoMetadata.fps", "must be above 0 and at most 24"));
        }
        if let Some(ObjectOnly(blob)) = &self.inline_data {
            return blob.first_error();
        }
        if let Some(ObjectOnly(file)) = &self.file_data {
            return file.first_error();
        }
        if let Some(ObjectOnly(call)) = &self.function_call
            && call.name.as_deref().is_none_or(str::is_empty)
        {
            return Some(("functionCall.name", "is required"));
        }
        if let Some(ObjectOnly(result)) = &self.function_response {
            if result.name.as_deref().is_none_or(str::is_empty) {
                return Some(("functionResponse.name", "is required"));
            }
            if result.response.is_none() && result.parts.is_none() {
                return Some(("functionResponse.response", "is required"));
            }
            if let Some(parts) = &result.parts
                && let Some((_, _, why)) = parts.first_error
            {
                return Some(("functionResponse.parts", why));
            }
        }
        None
    }
}

impl NativeBlobView<'_> {
    fn first_error(&self) -> Option<(&'static str, &'static str)> {
        let Some(mime) = self.mime_type.as_deref() else {
            return Some(("inlineData.mimeType", "is required"));
        };
        if let Some(why) = mime_error(mime) {
            return Some(("inlineData.mimeType", why));
        }
        let Some(data) = self.data.as_deref() else {
            return Some(("inlineData.data", "is required"));
        };
        base64_error(data).map(|why| ("inlineData.data", why))
    }
}

impl NativeFileView<'_> {
    fn first_error(&self) -> Option<(&'static str, &'static str)> {
        // The type is optional here, because some addresses (YouTube videos) imply it.
        if let Some(mime) = self.mime_type.as_deref().filter(|mime| !mime.is_empty())
            && let Some(why) = mime_error(mime)
        {
            return Some(("fileData.mimeType", why));
        }
        self.file_uri.is_none().then_some(("fileData.fileUri", "is required"))
    }
}
