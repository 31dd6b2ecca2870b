//! Media of a request: URLs, each with the JSON path of its field, and data in the request itself.
//!
//! The rules of a format do not check these URLs. The component that fetches them decides which
//! hosts are allowed.

use canon::ApiError;
use std::cell::RefCell;

use crate::body_outline::BodyOutline;
use crate::field_scan::{FieldScan, FieldText, KeyPath};
use crate::word_search::Needles;

/// A media URL and the field that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaUrl {
    /// JSON path of the field.
    pub path: String,
    /// The URL as the caller wrote it.
    pub url: String,
}

/// The fields of a format that hold media URLs or data.
#[derive(Debug)]
pub struct MediaUrlFields {
    /// The paths of the fields.
    pub(crate) paths: &'static [KeyPath],
    /// Parts of the keys. A body without any of them has no media.
    pub(crate) needles: Needles,
    /// True if keys may be in snake_case as well.
    pub allows_snake_case: bool,
}

/// The media of a request.
#[derive(Debug, Default)]
pub struct RequestMedia {
    /// Every URL.
    pub urls: Vec<MediaUrl>,
    /// For each data that was handed over, true if it is a plain text, whatever it looks like.
    pub are_texts: Vec<bool>,
}

/// A field for base64 data in which some callers send a URL.
const FILE_DATA: &str = "file_data";
/// The ends of the paths of fields that hold only data. The second is a picture that a tool made.
const DATA_FIELDS: [&str; 2] = [".data", ".result"];
/// The end of the path of one that holds a plain text if the type beside it says so.
const SOURCE_DATA: &str = ".source.data";
const DATA_SCHEME: &str = "data:";

/// Returns every media URL in the request, and hands over every text that is data: base64, or a URL of
/// the scheme `data`. Most requests have none; a byte search detects that without parsing the body.
pub fn request_media(
    fields: &MediaUrlFields,
    body: &[u8],
    outline: &BodyOutline,
    take_data: impl FnMut(&str),
) -> Result<RequestMedia, ApiError> {
    let MediaUrlFields { paths, needles, allows_snake_case } = fields;
    let mut media = RequestMedia::default();
    let is_there = |outline: &[u8]| needles.is_in(outline);
    if !outline.needs(body, |scans| scans.media, is_there) {
        return Ok(media);
    }
    let take_data = RefCell::new(take_data);
    let scan = FieldScan {
        paths,
        allows_snake_case: *allows_snake_case,
        wants_parents: true,
        keeps: &|row, text| {
            let path = paths.get(row).copied().unwrap_or_default();
            let is_data = text.starts_with(DATA_SCHEME)
                || DATA_FIELDS.iter().any(|end| path.ends_with(end))
                || (path.ends_with(FILE_DATA) && !text.contains("://"));
            if !is_data {
                return Some(text);
            }
            (*take_data.borrow_mut())(text);
            // Data may be megabytes, which are not copied.
            Some(DATA_SCHEME)
        },
    };
    for FieldText { path, text, parent, .. } in scan.run(body)? {
        match text == DATA_SCHEME {
            true => media.are_texts.push(path.ends_with(SOURCE_DATA) && parent.is("text")),
            false => media.urls.push(MediaUrl { path, url: text }),
        }
    }
    Ok(media)
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::WireFormat;

    fn media_urls(origin: WireFormat, body: &[u8]) -> Result<Vec<MediaUrl>, ApiError> {
        let fields = &crate::get(origin).unwrap().traits().media_urls;
        request_media(fields, body, &BodyOutline::default(), |_| {}).map(|media| media.urls)
    }

    fn found(origin: WireFormat, body: &str) -> Vec<(String, String)> {
        let found = media_urls(origin, body.as_bytes()).unwrap();
        found.into_iter().map(|address| (address.path, address.url)).collect()
    }

    #[test]
    fn finds_media_urls_in_every_format() {
        for (origin, body, path) in [
            (
                WireFormat::Chat,
                r#"{"messages":[{"content":"x"},{"content":[{"text":"y"},{"image_url":{"url":"U"}}]}]}"#,
                "messages[1].content[1].image_url.url",
            ),
            (
                WireFormat::Chat,
                r#"{"messages":[{"content":[{"video_url":{"url":"U"}}]}]}"#,
                "messages[0].content[0].video_url.url",
            ),
            (
                WireFormat::Chat,
                r#"{"messages":[{"content":[{"file":{"file_data":"https://U"}}]}]}"#,
                "messages[0].content[0].file.file_data",
            ),
            (
                WireFormat::Responses,
                r#"{"input":[{"content":[{"image_url":"U"}]}]}"#,
                "input[0].content[0].image_url",
            ),
            (
                WireFormat::Responses,
                r#"{"input":[{"content":[{"image_url":{"url":"U"}}]}]}"#,
                "input[0].content[0].image_url.url",
            ),
            (
                WireFormat::Responses,
                r#"{"input":[{"output":[{"file_url":"U"}]}]}"#,
                "input[0].output[0].file_url",
            ),
            (
                WireFormat::Responses,
                r#"{"input":[{"output":{"image_url":"U"}}]}"#,
                "input[0].output.image_url",
            ),
            (
                WireFormat::Messages,
                r#"{"messages":[{"content":[{"source":{"type":"url","url":"U"}}]}]}"#,
                "messages[0].content[0].source.url",
            ),
            (
                WireFormat::Messages,
                r#"{"messages":[{"content":[{"content":[{"source":{"url":"U"}}]}]}]}"#,
                "messages[0].content[0].content[0].source.url",
            ),
            (
                WireFormat::Messages,
                r#"{"messages":[{"content":[{"source":{"content":[{"source":{"content":[{"source":{"url":"U"}}]}}]}}]}]}"#,
                "messages[0].content[0].source.content[0].source.content[0].source.url",
            ),
            (
                WireFormat::Native,
                r#"{"contents":{"parts":{"file_data":{"file_uri":"U"}}}}"#,
                "contents.parts.fileData.fileUri",
            ),
            (
                WireFormat::Native,
                r#"{"contents":[{"parts":[{"functionResponse":{"parts":[{"fileData":{"fileUri":"U"}}]}}]}]}"#,
                "contents[0].parts[0].functionResponse.parts[0].fileData.fileUri",
            ),
            (
                WireFormat::Native,
                r#"{"requests":[{"content":{"parts":[{"fileData":{"fileUri":"U"}}]}}]}"#,
                "requests[0].content.parts[0].fileData.fileUri",
            ),
        ] {
            let url = if path.ends_with(FILE_DATA) { "https://U" } else { "U" };
            assert_eq!(found(origin, body), [(path.to_owned(), url.to_owned())], "{body}");
        }
    }

    #[test]
    fn finds_data_in_every_format() {
        for (origin, body) in [
            (WireFormat::Chat, r#"{"messages":[{"content":[{"image_url":{"url":"data:AA"}}]}]}"#),
            (
                WireFormat::Chat,
                r#"{"messages":[{"content":[{"input_audio":{"data":"data:AA"}}]}]}"#,
            ),
            (WireFormat::Chat, r#"{"messages":[{"content":[{"file":{"file_data":"data:AA"}}]}]}"#),
            (WireFormat::Responses, r#"{"input":[{"content":[{"file_data":"data:AA"}]}]}"#),
            (
                WireFormat::Responses,
                r#"{"input":[{"content":[{"input_audio":{"data":"data:AA"}}]}]}"#,
            ),
            (WireFormat::Responses, r#"{"input":[{"output":{"image_url":"data:AA"}}]}"#),
            (
                WireFormat::Responses,
                r#"{"input":[{"type":"image_generation_call","result":"data:AA"}]}"#,
            ),
            (WireFormat::Messages, r#"{"messages":[{"content":[{"source":{"data":"data:AA"}}]}]}"#),
            (
                WireFormat::Messages,
                r#"{"messages":[{"content":[{"content":[{"source":{"data":"data:AA"}}]}]}]}"#,
            ),
            (WireFormat::Native, r#"{"contents":{"parts":{"inline_data":{"data":"data:AA"}}}}"#),
            (
                WireFormat::Native,
                r#"{"contents":[{"parts":[{"functionResponse":{"parts":[{"inlineData":{"data":"data:AA"}}]}}]}]}"#,
            ),
        ] {
            let fields = &crate::get(origin).unwrap().traits().media_urls;
            let mut data = Vec::new();
            let take = |text: &str| data.push(text.to_owned());
            let media =
                request_media(fields, body.as_bytes(), &BodyOutline::default(), take).unwrap();
            assert_eq!((media.urls.len(), media.are_texts), (0, vec![false]), "{body}");
            assert_eq!(data, ["data:AA"], "{body}");
        }
    }

    /// A text that looks like base64 is still one: the provider reads its letters.
    #[test]
    fn data_that_is_a_text_is_told_apart() {
        let fields = &crate::get(WireFormat::Messages).unwrap().traits().media_urls;
        for (kinds, want) in [
            (r#""type":"text""#, true),
            (r#""type":"base64""#, false),
            (r#""type":"base64","type":"text""#, false),
        ] {
            for source in
                [format!(r#"{{{kinds},"data":"AA"}}"#), format!(r#"{{"data":"AA",{kinds}}}"#)]
            {
                let body = format!(r#"{{"messages":[{{"content":[{{"source":{source}}}]}}]}}"#);
                let media = request_media(fields, body.as_bytes(), &BodyOutline::default(), |_| {})
                    .unwrap();
                assert_eq!(media.are_texts, [want], "{body}");
            }
        }
    }

    #[test]
    fn finds_urls_behind_escapes_and_duplicate_keys() {
        let body = r#"{"messages":[{"content":[{"image\u005furl":{"url":"A","\u0075rl":"B"}}]}]}"#;
        let urls: Vec<String> =
            found(WireFormat::Chat, body).into_iter().map(|(_, url)| url).collect();
        assert_eq!(urls, ["A", "B"]);
        let body = r#"{"messages":[{"content":[{"source":{"\u0075rl":"A"}}]}]}"#;
        assert_eq!(found(WireFormat::Messages, body).len(), 1);
    }

    #[test]
    fn ignores_other_urls() {
        for (origin, body) in [
            (
                WireFormat::Chat,
                r#"{"messages":[{"content":[{"image_url":{"url":"data:image/png;base64,AA"}}]}]}"#,
            ),
            (WireFormat::Chat, r#"{"messages":[{"content":[{"file":{"file_data":"AAAA"}}]}]}"#),
            (
                WireFormat::Chat,
                r#"{"messages":[{"content":"see image_url"}],"tools":[{"image_url":"U"}]}"#,
            ),
            (
                WireFormat::Messages,
                r#"{"messages":[{"content":[{"type":"tool_use","input":{"url":"U"}}]}]}"#,
            ),
            (
                WireFormat::Messages,
                r#"{"messages":[{"content":[{"type":"search_result","source":"U"}]}],"x":{"url":"U"}}"#,
            ),
            (WireFormat::Messages, r#"{"mcp_servers":[{"url":"U"}],"messages":[]}"#),
            (
                WireFormat::Native,
                r#"{"contents":[{"parts":[{"functionCall":{"args":{"fileUri":"U"}}}]}]}"#,
            ),
            (
                WireFormat::Native,
                r#"{"contents":[{"parts":[{"functionResponse":{"response":{"fileUri":"U"}}}]}]}"#,
            ),
        ] {
            assert_eq!(found(origin, body), [], "{body}");
        }
    }

    #[test]
    fn rejects_a_body_nested_too_deeply() {
        let deep = format!(
            r#"{{"input":[{{"content":{}{}}}],"image_url":1}}"#,
            "[".repeat(200),
            "]".repeat(200)
        );
        assert!(media_urls(WireFormat::Responses, deep.as_bytes()).is_err());
    }
}
