//! Media URLs named in a request, each with the JSON path of its field.
//!
//! The rules of a format do not check these URLs. The component that fetches them decides which
//! hosts are allowed.

use canon::{Fault, Origin};
use memchr::memmem;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

use crate::native::camel;
use crate::text::Text;

/// A media URL and the field that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// JSON path of the field.
    pub path: String,
    /// The URL as the caller wrote it.
    pub url: String,
}

/// Object keys from the root to a URL field. List indexes are not part of the path.
type Way = &'static [&'static str];

const CHAT: [Way; 5] = [
    &["messages", "content", "image_url"],
    &["messages", "content", "image_url", "url"],
    &["messages", "content", "video_url"],
    &["messages", "content", "video_url", "url"],
    &["messages", "content", "file", FILE_DATA],
];
const RESPONSES: [Way; 8] = [
    &["input", "content", "image_url"],
    &["input", "content", "image_url", "url"],
    &["input", "content", "file_url"],
    &["input", "content", FILE_DATA],
    &["input", "output", "image_url"],
    &["input", "output", "image_url", "url"],
    &["input", "output", "file_url"],
    &["input", "output", FILE_DATA],
];
const MESSAGES: [Way; 4] = [
    &["messages", "content", "source", "url"],
    &["messages", "content", "source", "content", "source", "url"],
    &["messages", "content", "content", "source", "url"],
    &["messages", "content", "content", "source", "content", "source", "url"],
];
/// Covers conversations (`contents`) and embeddings (`content`, `requests`).
const NATIVE: [Way; 5] = [
    &["contents", "parts", "fileData", "fileUri"],
    &["contents", "parts", "functionResponse", "parts", "fileData", "fileUri"],
    &["systemInstruction", "parts", "fileData", "fileUri"],
    &["content", "parts", "fileData", "fileUri"],
    &["requests", "content", "parts", "fileData", "fileUri"],
];

/// A field for base64 data in which some callers send a URL.
const FILE_DATA: &str = "file_data";

/// Returns every media URL in the request. Most requests have none; a byte search detects that
/// without parsing the body.
pub fn addresses(origin: Origin, body: &[u8]) -> Result<Vec<Address>, Fault> {
    let (ways, signs): (&'static [Way], &[&str]) = match origin {
        Origin::Chat => (&CHAT, &["_url", FILE_DATA]),
        Origin::Responses => (&RESPONSES, &["_url", FILE_DATA]),
        Origin::Messages => (&MESSAGES, &["\"url\""]),
        Origin::Native => (&NATIVE, &["Uri\"", "_uri\""]),
        Origin::Images => return Ok(Vec::new()),
    };
    // A key may be written with JSON escapes.
    let there =
        signs.iter().chain(&["\\u00"]).any(|sign| memmem::find(body, sign.as_bytes()).is_some());
    if !there {
        return Ok(Vec::new());
    }
    let mut found = Found { snake: origin == Origin::Native, path: String::new(), all: Vec::new() };
    let walk = Walk { found: &mut found, ways: ways.to_vec(), depth: 0 };
    let mut from = serde_json::Deserializer::from_slice(body);
    match walk.deserialize(&mut from) {
        Ok(()) => Ok(found.all),
        Err(e) => Err(Fault::invalid("", format!("the body cannot be read: {e}"))),
    }
}

struct Found {
    /// True if keys may be in snake_case as well.
    snake: bool,
    path: String,
    all: Vec<Address>,
}

/// Visits one value that lies on some of the paths, `depth` keys below the root.
struct Walk<'f> {
    found: &'f mut Found,
    ways: Vec<Way>,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let length = self.found.path.len();
        while let Some(Text(key)) = map.next_key::<Text<'de>>()? {
            let name = if self.found.snake { camel(&key) } else { Cow::Borrowed(&*key) };
            let on = |way: &&Way| way.get(self.depth).is_some_and(|step| *step == name);
            let ways: Vec<Way> = self.ways.iter().filter(on).copied().collect();
            if ways.is_empty() {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if length > 0 {
                self.found.path.push('.');
            }
            self.found.path.push_str(&name);
            map.next_value_seed(Walk { found: &mut *self.found, ways, depth: self.depth + 1 })?;
            self.found.path.truncate(length);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let length = self.found.path.len();
        for at in 0_usize.. {
            self.found.path.push_str(&format!("[{at}]"));
            let (found, ways) = (&mut *self.found, self.ways.clone());
            let next = list.next_element_seed(Walk { found, ways, depth: self.depth })?;
            self.found.path.truncate(length);
            if next.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        let Some(way) = self.ways.iter().find(|way| way.len() == self.depth) else {
            return Ok(());
        };
        let is_data =
            text.starts_with("data:") || (way.last() == Some(&FILE_DATA) && !text.contains("://"));
        if !is_data {
            let path = self.found.path.clone();
            self.found.all.push(Address { path, url: text.to_owned() });
        }
        Ok(())
    }

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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(origin: Origin, body: &str) -> Vec<(String, String)> {
        let found = addresses(origin, body.as_bytes()).unwrap();
        found.into_iter().map(|address| (address.path, address.url)).collect()
    }

    #[test]
    fn every_place_of_every_format_is_known() {
        for (origin, body, path) in [
            (
                Origin::Chat,
                r#"{"messages":[{"content":"x"},{"content":[{"text":"y"},{"image_url":{"url":"U"}}]}]}"#,
                "messages[1].content[1].image_url.url",
            ),
            (
                Origin::Chat,
                r#"{"messages":[{"content":[{"video_url":{"url":"U"}}]}]}"#,
                "messages[0].content[0].video_url.url",
            ),
            (
                Origin::Chat,
                r#"{"messages":[{"content":[{"file":{"file_data":"https://U"}}]}]}"#,
                "messages[0].content[0].file.file_data",
            ),
            (
                Origin::Responses,
                r#"{"input":[{"content":[{"image_url":"U"}]}]}"#,
                "input[0].content[0].image_url",
            ),
            (
                Origin::Responses,
                r#"{"input":[{"content":[{"image_url":{"url":"U"}}]}]}"#,
                "input[0].content[0].image_url.url",
            ),
            (
                Origin::Responses,
                r#"{"input":[{"output":[{"file_url":"U"}]}]}"#,
                "input[0].output[0].file_url",
            ),
            (
                Origin::Responses,
                r#"{"input":[{"output":{"image_url":"U"}}]}"#,
                "input[0].output.image_url",
            ),
            (
                Origin::Messages,
                r#"{"messages":[{"content":[{"source":{"type":"url","url":"U"}}]}]}"#,
                "messages[0].content[0].source.url",
            ),
            (
                Origin::Messages,
                r#"{"messages":[{"content":[{"content":[{"source":{"url":"U"}}]}]}]}"#,
                "messages[0].content[0].content[0].source.url",
            ),
            (
                Origin::Native,
                r#"{"contents":{"parts":{"file_data":{"file_uri":"U"}}}}"#,
                "contents.parts.fileData.fileUri",
            ),
            (
                Origin::Native,
                r#"{"contents":[{"parts":[{"functionResponse":{"parts":[{"fileData":{"fileUri":"U"}}]}}]}]}"#,
                "contents[0].parts[0].functionResponse.parts[0].fileData.fileUri",
            ),
            (
                Origin::Native,
                r#"{"requests":[{"content":{"parts":[{"fileData":{"fileUri":"U"}}]}}]}"#,
                "requests[0].content.parts[0].fileData.fileUri",
            ),
        ] {
            let url = if path.ends_with(FILE_DATA) { "https://U" } else { "U" };
            assert_eq!(found(origin, body), [(path.to_owned(), url.to_owned())], "{body}");
        }
    }

    #[test]
    fn escapes_and_repeated_keys_hide_nothing() {
        let body = r#"{"messages":[{"content":[{"image\u005furl":{"url":"A","\u0075rl":"B"}}]}]}"#;
        let urls: Vec<String> = found(Origin::Chat, body).into_iter().map(|(_, url)| url).collect();
        assert_eq!(urls, ["A", "B"]);
        let body = r#"{"messages":[{"content":[{"source":{"\u0075rl":"A"}}]}]}"#;
        assert_eq!(found(Origin::Messages, body).len(), 1);
    }

    #[test]
    fn what_is_no_media_is_left_alone() {
        for (origin, body) in [
            (
                Origin::Chat,
                r#"{"messages":[{"content":[{"image_url":{"url":"data:image/png;base64,AA"}}]}]}"#,
            ),
            (Origin::Chat, r#"{"messages":[{"content":[{"file":{"file_data":"AAAA"}}]}]}"#),
            (
                Origin::Chat,
                r#"{"messages":[{"content":"see image_url"}],"tools":[{"image_url":"U"}]}"#,
            ),
            (
                Origin::Messages,
                r#"{"messages":[{"content":[{"type":"tool_use","input":{"url":"U"}}]}]}"#,
            ),
            (
                Origin::Messages,
                r#"{"messages":[{"content":[{"type":"search_result","source":"U"}]}],"x":{"url":"U"}}"#,
            ),
            (Origin::Messages, r#"{"mcp_servers":[{"url":"U"}],"messages":[]}"#),
            (
                Origin::Native,
                r#"{"contents":[{"parts":[{"functionCall":{"args":{"fileUri":"U"}}}]}]}"#,
            ),
            (
                Origin::Native,
                r#"{"contents":[{"parts":[{"functionResponse":{"response":{"fileUri":"U"}}}]}]}"#,
            ),
        ] {
            assert_eq!(found(origin, body), [], "{body}");
        }
    }

    #[test]
    fn a_body_too_deep_to_look_through_is_refused() {
        let deep = format!(
            r#"{{"input":[{{"content":{}{}}}],"image_url":1}}"#,
            "[".repeat(200),
            "]".repeat(200)
        );
        assert!(addresses(Origin::Responses, deep.as_bytes()).is_err());
    }
}
