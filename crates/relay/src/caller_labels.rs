//! The end user and the tags of a call, by which its caller finds and groups calls.
//!
//! Headers count more than fields of the body (`dialects/src/caller_labels.rs`). A wrong header is refused. A long
//! text in the body is replaced by its hash, because providers take it.

use canon::{ApiError, SharedText};
use dialects::CallerLabels;
use ledger::CallTags;
use transport::{HeaderBlock, visible_text};

use crate::session_id::{caller_id, hashed_id};

const TAGS_HEADER: &str = "x-portunus-tags";
const END_USER_HEADER: &str = "x-portunus-end-user";
/// Maximum number of tags in headers.
const MAX_TAGS: usize = 16;
const MAX_NAME_BYTES: usize = 64;
const MAX_VALUE_BYTES: usize = 256;

/// The end user and the tags that headers name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HeaderLabels {
    end_user: Option<SharedText>,
    tags: Vec<(String, String)>,
}

impl HeaderLabels {
    /// Reads the header of the end user.
    pub(super) fn set_end_user(&mut self, value: &[u8]) -> Result<(), ApiError> {
        let text = visible_text(value).map(str::trim).filter(|text| text.len() <= MAX_VALUE_BYTES);
        let text = text.ok_or_else(|| {
            let takes = format!("takes visible ASCII characters, at most {MAX_VALUE_BYTES}");
            wrong_header(END_USER_HEADER, &takes)
        })?;
        self.end_user = (!text.is_empty()).then(|| text.into());
        Ok(())
    }

    /// Reads all headers with tags: `name` or `name=value`, separated by commas.
    pub(super) fn set_tags(&mut self, headers: &HeaderBlock) -> Result<(), ApiError> {
        self.tags.clear();
        for value in headers.get_all(TAGS_HEADER) {
            let text = visible_text(value)
                .ok_or_else(|| wrong_header(TAGS_HEADER, "takes visible ASCII characters"))?;
            let tags = text.split(',').map(str::trim).filter(|tag| !tag.is_empty());
            for tag in tags {
                let (name, value) = tag.split_once('=').unwrap_or((tag, ""));
                let (name, value) = (name.trim_end(), value.trim_start());
                let is_short = name.len() <= MAX_NAME_BYTES && value.len() <= MAX_VALUE_BYTES;
                if name.is_empty() || !is_short {
                    let takes = format!(
                        "takes tags like `team=blue`, with names of at most {MAX_NAME_BYTES} and values of \
                         at most {MAX_VALUE_BYTES} characters"
                    );
                    return Err(wrong_header(TAGS_HEADER, &takes));
                }
                if self.tags.len() >= MAX_TAGS {
                    let takes = format!("takes at most {MAX_TAGS} tags");
                    return Err(wrong_header(TAGS_HEADER, &takes));
                }
                self.tags.push((name.to_owned(), value.to_owned()));
            }
        }
        Ok(())
    }

    /// Returns the end user of a call; empty without one.
    pub(super) fn end_user(&self, body: &CallerLabels) -> SharedText {
        let in_body = || body.end_user.as_deref().and_then(caller_id);
        self.end_user.clone().or_else(in_body).unwrap_or_default()
    }

    /// Returns the tags of a call.
    pub(super) fn tags(&self, body: &CallerLabels) -> CallTags {
        if self.tags.is_empty() && body.tags.is_empty() {
            return CallTags::default();
        }
        let kept = |text: &str| caller_id(text).unwrap_or_default();
        // The first equals sign of `name=value` ends the name.
        let kept_name = |name: &str| if name.contains('=') { hashed_id(name) } else { kept(name) };
        let in_header = self.tags.iter().map(|(name, value)| (&**name, &**value));
        let in_header = in_header.map(|(name, value)| (name.into(), value.into()));
        let in_body = body.tags.iter().map(|(name, value)| (kept_name(name), kept(value)));
        in_header.chain(in_body).collect()
    }
}

fn wrong_header(name: &'static str, takes: &str) -> ApiError {
    ApiError::invalid(name, format!("the header `{name}` {takes}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderName, HeaderValue};

    fn tags(values: &[&str]) -> Result<String, ApiError> {
        let mut map = HeaderMap::new();
        for value in values {
            let name = HeaderName::from_static(TAGS_HEADER);
            map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let mut labels = HeaderLabels::default();
        labels.set_tags(&HeaderBlock::from_map(&map))?;
        Ok(labels.tags(&CallerLabels::default()).to_string())
    }

    #[test]
    fn tags_of_all_headers_are_read_and_wrong_ones_are_refused() {
        assert_eq!(tags(&[]).unwrap(), "");
        assert_eq!(
            tags(&[" team = blue ,beta", "a=b=c,team=red,"]).unwrap(),
            "a=b=c, beta, team=blue"
        );
        let many: Vec<String> = (0..17).map(|n| format!("t{n}")).collect();
        assert!(tags(&[&many[..16].join(",")]).is_ok());
        let long = format!("team={}", "x".repeat(257));
        for wrong in [&*many.join(","), "=blue", "ä=b", &long, &"n".repeat(65)] {
            assert_eq!(tags(&[wrong]).unwrap_err().param(), Some(TAGS_HEADER), "{wrong}");
        }
    }

    #[test]
    fn headers_count_more_than_the_body() {
        let body = CallerLabels {
            end_user: Some("of the body".into()),
            tags: vec![
                ("team".into(), "red".into()),
                ("long".into(), "v".repeat(300).into()),
                ("a=b".into(), "c".into()),
            ],
        };
        let mut labels = HeaderLabels::default();
        assert_eq!(labels.end_user(&body).as_str(), "of the body");
        assert_eq!(labels.end_user(&CallerLabels::default()).as_str(), "");
        labels.set_end_user(b" somebody ").unwrap();
        assert_eq!(labels.end_user(&body).as_str(), "somebody");
        labels.tags = vec![("team".to_owned(), "blue".to_owned())];
        let tags = labels.tags(&body);
        assert_eq!(tags.value("team"), Some("blue"));
        assert!(tags.value("long").unwrap().starts_with("sha256:"));
        assert!(!tags.has("a=b=c") && tags.iter().any(|(_, value)| value == "c"));
        for wrong in ["ä".as_bytes(), "x".repeat(257).as_bytes()] {
            let error = labels.set_end_user(wrong).unwrap_err();
            assert_eq!(error.param(), Some(END_USER_HEADER));
        }
    }
}
