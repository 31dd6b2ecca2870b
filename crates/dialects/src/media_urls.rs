//! Media URLs named in a request, each with the JSON path of its field.
//!
//! The rules of a format do not check these URLs. The component that fetches them decides which
//! hosts are allowed.

use canon::ApiError;
use memchr::memmem;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

use crate::text::BorrowedText;
use crate::text::to_camel_case;

/// A media URL and the field that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaUrl {
    /// JSON path of the field.
    pub path: String,
    /// The URL as the caller wrote it.
    pub url: String,
}

/// Object keys from the root to a URL field. List indexes are not part of the path.
type KeyPath = &'static [&'static str];

/// The fields of a format that hold media URLs.
#[derive(Debug)]
pub struct MediaUrlFields {
    /// The paths of the fields.
    pub(crate) paths: &'static [KeyPath],
    /// Parts of the keys. A body without any of them has no media URL.
    pub(crate) needles: &'static [&'static str],
    /// True if keys may be in snake_case as well.
    pub(crate) allows_snake_case: bool,
}

/// A field for base64 data in which some callers send a URL.
pub(crate) const FILE_DATA: &str = "file_data";

/// Returns every media URL in the request. Most requests have none; a byte search detects that
/// without parsing the body.
pub fn media_urls(fields: &MediaUrlFields, body: &[u8]) -> Result<Vec<MediaUrl>, ApiError> {
    let MediaUrlFields { paths, needles, allows_snake_case } = fields;
    // A key may be written with JSON escapes.
    let is_present = needles
        .iter()
        .chain(&["\\u00"])
        .any(|needle| memmem::find(body, needle.as_bytes()).is_some());
    if !is_present {
        return Ok(Vec::new());
    }
    let mut scan =
        UrlScan { allows_snake_case: *allows_snake_case, path: String::new(), urls: Vec::new() };
    let visitor = PathVisitor { scan: &mut scan, key_paths: paths.to_vec(), depth: 0 };
    let mut from = serde_json::Deserializer::from_slice(body);
    match visitor.deserialize(&mut from) {
        Ok(()) => Ok(scan.urls),
        Err(e) => Err(ApiError::invalid("", format!("the body cannot be read: {e}"))),
    }
}

/// Visits the values without texts and without fields, which hold nothing to look at.
macro_rules! ignore_scalars {
    () => {
        fn visit_bool<E>(self, _: bool) -> Result<(), E> {
            Ok(())
        }
        fn visit_i64<E>(self, _: i64) -> Result<(), E> {
            Ok(())
        }
        fn visit_u64<E>(self, _: u64) -> Result<(), E> {
            Ok(())
        }
        fn visit_f64<E>(self, _: f64) -> Result<(), E> {
            Ok(())
        }
        fn visit_unit<E>(self) -> Result<(), E> {
            Ok(())
        }
    };
}
pub(crate) use ignore_scalars;

struct UrlScan {
    /// True if keys may be in snake_case as well.
    allows_snake_case: bool,
    path: String,
    urls: Vec<MediaUrl>,
}

/// Visits one value that lies on some of the paths, `depth` keys below the root.
struct PathVisitor<'f> {
    scan: &'f mut UrlScan,
    key_paths: Vec<KeyPath>,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for PathVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PathVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let length = self.scan.path.len();
        while let Some(BorrowedText(key)) = map.next_key::<BorrowedText<'de>>()? {
            let name = if self.scan.allows_snake_case {
                to_camel_case(&key)
            } else {
                Cow::Borrowed(&*key)
            };
            let on =
                |key_path: &&KeyPath| key_path.get(self.depth).is_some_and(|step| *step == name);
            let key_paths: Vec<KeyPath> = self.key_paths.iter().filter(on).copied().collect();
            if key_paths.is_empty() {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if length > 0 {
                self.scan.path.push('.');
            }
            self.scan.path.push_str(&name);
            map.next_value_seed(PathVisitor {
                scan: &mut *self.scan,
                key_paths,
                depth: self.depth + 1,
            })?;
            self.scan.path.truncate(length);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let length = self.scan.path.len();
        for at in 0_usize.. {
            self.scan.path.push_str(&format!("[{at}]"));
            let (scan, key_paths) = (&mut *self.scan, self.key_paths.clone());
            let next =
                list.next_element_seed(PathVisitor { scan, key_paths, depth: self.depth })?;
            self.scan.path.truncate(length);
            if next.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        let Some(key_path) = self.key_paths.iter().find(|key_path| key_path.len() == self.depth)
        else {
            return Ok(());
        };
        let is_data = text.starts_with("data:")
            || (key_path.last() == Some(&FILE_DATA) && !text.contains("://"));
        if !is_data {
            let path = self.scan.path.clone();
            self.scan.urls.push(MediaUrl { path, url: text.to_owned() });
        }
        Ok(())
    }

    ignore_scalars!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::WireFormat;

    fn media_urls(origin: WireFormat, body: &[u8]) -> Result<Vec<MediaUrl>, ApiError> {
        super::media_urls(&crate::get(origin).unwrap().traits().media_urls, body)
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
