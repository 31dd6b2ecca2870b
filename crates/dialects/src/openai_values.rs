//! Values that the chat and the responses formats write alike, because one vendor documents both.

use canon::{
    CacheBreakpoint, ImageDetail, Logprob, Media, MediaKind, MediaSource, PartKind, ResponseFormat,
    TokenLogprob, UserLocation,
};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::fields::{ObjectWriter, number};
use crate::media_rules::base64_error;
use crate::text::{BorrowedText, by_word, owned, word_for};
use crate::wire_object::{UnknownFields, raw_value, wire_object};
use crate::wire_rule::{not_empty, passes};
use crate::wire_value::AnyValue;

/// Reads audio of a caller. Returns the fields that are not described as well.
pub(crate) fn read_audio(audio: AudioInput<'_>) -> (Media, UnknownFields<'_>) {
    let mime = match audio.format.as_deref() {
        Some("mp3") => "audio/mpeg".to_owned(),
        format => format!("audio/{}", format.unwrap_or("wav")),
    };
    let source = MediaSource::Inline { mime, data: owned(audio.data) };
    (Media::new(MediaKind::Audio, source), audio.rest)
}

/// Writes audio as a caller sends it.
pub(crate) fn write_audio(mime: &str, data: &str) -> ObjectWriter {
    let format = match mime {
        "audio/mpeg" | "audio/mp3" => "mp3",
        other => other.strip_prefix("audio/").unwrap_or("wav"),
    };
    ObjectWriter::new().set("data", data).set("format", format)
}

wire_object! {
    /// Audio of a caller.
    pub(crate) struct AudioInput<'a>("an object with `data` and `format`") {
        data required: BorrowedText<'a> where passes(base64_error),
        format required: BorrowedText<'a>,
    }

    /// A tool that takes free text.
    pub(crate) struct CustomTool<'a>("an object with a `name`") {
        name required: BorrowedText<'a> where not_empty,
        description: BorrowedText<'a>,
        format: &'a RawValue,
    }

    /// Kinds of the tokens of a prompt or of an answer.
    pub(crate) struct TokenDetails<'a>("an object") {
        cached_tokens: u64,
        cache_write_tokens: u64,
        audio_tokens: u64,
        image_tokens: u64,
        video_tokens: u64,
        reasoning_tokens: u64,
    }

    /// The place of a search. Chat has it in an object of its own.
    pub(crate) struct SearchLocation<'a>("an object") {
        kind "type": AnyValue,
        approximate: Box<Self>,
        country: BorrowedText<'a>,
        region: BorrowedText<'a>,
        city: BorrowedText<'a>,
        timezone: BorrowedText<'a>,
    }
}

impl SearchLocation<'_> {
    /// Converts to canon.
    pub(crate) fn into_canon(mut self) -> UserLocation {
        let place = self.approximate.take().map_or(self, |near| *near);
        UserLocation {
            country: place.country.map(BorrowedText::into_owned),
            region: place.region.map(BorrowedText::into_owned),
            city: place.city.map(BorrowedText::into_owned),
            timezone: place.timezone.map(BorrowedText::into_owned),
        }
    }
}

/// Adds the fields of a place.
pub(crate) fn write_location(object: ObjectWriter, place: &UserLocation) -> ObjectWriter {
    let UserLocation { country, region, city, timezone } = place;
    object
        .set_some("country", country.as_deref())
        .set_some("region", region.as_deref())
        .set_some("city", city.as_deref())
        .set_some("timezone", timezone.as_deref())
}

/// Reads a URL or a data URI (RFC 2397).
pub(crate) fn read_url(url: &str) -> MediaSource {
    match url.strip_prefix("data:").and_then(|rest| rest.split_once(',')) {
        Some((head, data)) => {
            let mime = head.split(';').next().unwrap_or_default();
            let mime = if mime.is_empty() { "application/octet-stream" } else { mime };
            MediaSource::Inline { mime: mime.to_owned(), data: data.to_owned() }
        }
        None => MediaSource::Url { url: url.to_owned(), mime: None },
    }
}

/// Reads the data of a file: a URL, a data URI, or the bare base64 of clients that omit its prefix.
pub(crate) fn read_file_data(data: &str) -> MediaSource {
    match read_url(data) {
        MediaSource::Url { url, .. } if !url.contains("://") => {
            MediaSource::Inline { mime: "application/pdf".to_owned(), data: url }
        }
        source => source,
    }
}

/// Writes a URL or a data URI; `None` for a source that has neither.
pub(crate) fn write_url(source: &MediaSource) -> Option<String> {
    match source {
        MediaSource::Inline { mime, data } => Some(format!("data:{mime};base64,{data}")),
        MediaSource::Url { url, mime: _ } => Some(url.clone()),
        MediaSource::File { .. } | MediaSource::Text(_) => None,
    }
}

/// The words of the details of an image. `auto` equals no value.
const DETAILS: [(ImageDetail, &str); 3] =
    [(ImageDetail::Low, "low"), (ImageDetail::High, "high"), (ImageDetail::Original, "original")];

/// Reads the detail of an image.
pub(crate) fn read_detail(word: &str) -> Option<ImageDetail> {
    by_word(&DETAILS, word)
}

/// Returns the detail of an image.
pub(crate) fn write_detail(detail: ImageDetail) -> &'static str {
    word_for(&DETAILS, &detail).unwrap_or("auto")
}

/// Reads a cache breakpoint: the formats' own field, or `cache_control` of the messages format,
/// which other vendors accept here.
pub(crate) fn read_cache_mark(rest: &mut UnknownFields<'_>) -> Option<CacheBreakpoint> {
    let mark = rest.take("prompt_cache_breakpoint").or_else(|| rest.take("cache_control"))?;
    Some(read_cache(&raw_value(mark)))
}

/// Reads the lifetime of a cache breakpoint.
pub(crate) fn read_cache(mark: &Value) -> CacheBreakpoint {
    CacheBreakpoint { ttl: mark.get("ttl").and_then(Value::as_str).map(str::to_owned) }
}

/// Reads a list of log probabilities of tokens.
pub(crate) fn read_logprobs(list: &Value) -> Vec<Logprob> {
    let chance = |value: &Value| TokenLogprob {
        token: value.get("token").and_then(Value::as_str).unwrap_or_default().to_owned(),
        id: None,
        logprob: value.get("logprob").and_then(Value::as_f64).unwrap_or_default(),
        bytes: value
            .get("bytes")
            .and_then(Value::as_array)
            .map(|bytes| bytes.iter().filter_map(|b| u8::try_from(b.as_u64()?).ok()).collect()),
    };
    let top = |value: &Value| {
        let list = value.get("top_logprobs").and_then(Value::as_array);
        list.into_iter().flatten().map(chance).collect()
    };
    let list = list.as_array().into_iter().flatten();
    list.map(|token| Logprob { chosen: chance(token), top: top(token) }).collect()
}

/// Writes log probabilities of tokens. Deltas of the responses format have no `bytes`.
pub(crate) fn write_logprobs(list: &[Logprob], with_bytes: bool) -> Value {
    let chance = |chance: &TokenLogprob| {
        let TokenLogprob { token, id: _, logprob, bytes } = chance;
        let bytes = || bytes.clone().unwrap_or_else(|| token.clone().into_bytes());
        ObjectWriter::new()
            .set("token", token.as_str())
            .set("logprob", number(*logprob))
            .set_some("bytes", with_bytes.then(bytes))
    };
    let list = list.iter().map(|Logprob { chosen, top }| {
        let top: Vec<_> = top.iter().map(chance).collect();
        Value::from(chance(chosen).set("top_logprobs", top))
    });
    list.collect()
}

/// Writes code that a model ran, or its output, as a Markdown code block.
pub(crate) fn code_block(part: &PartKind) -> String {
    let (language, code) = match part {
        PartKind::CodeExecution(code) => (code.language.as_str(), &code.code),
        PartKind::CodeResult(result) => ("", &result.output),
        _ => return String::new(),
    };
    format!("```{language}\n{}\n```", code.trim_end_matches('\n'))
}

/// Writes the requested format of the answer. The chat format nests the fields of a schema.
pub(crate) fn write_format(format: &ResponseFormat, is_nested: bool) -> Option<ObjectWriter> {
    let (name, description, schema, strict) = match format {
        ResponseFormat::Text => return None,
        ResponseFormat::Json => return Some(ObjectWriter::typed("json_object")),
        ResponseFormat::Schema { name, description, schema, strict } => {
            (name.as_deref().unwrap_or("answer"), description.as_deref(), schema, *strict)
        }
    };
    let outer = ObjectWriter::typed("json_schema");
    let fields = if is_nested { ObjectWriter::new() } else { outer.clone() }
        .set("name", name)
        .set_some("description", description)
        .set("schema", schema.json.clone())
        .set_some("strict", strict);
    Some(if is_nested { outer.set("json_schema", fields) } else { fields })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name of a provider's file is base64 by its letters, and must not become a URL.
    #[test]
    fn bare_base64_is_the_content_of_a_file() {
        for data in ["JVBERi0x", "files/6wf0bq2kd3OBJ"] {
            let inline =
                MediaSource::Inline { mime: "application/pdf".to_owned(), data: data.to_owned() };
            assert_eq!(read_file_data(data), inline);
        }
        assert!(matches!(read_file_data("https://a.example/b"), MediaSource::Url { .. }));
    }
}
