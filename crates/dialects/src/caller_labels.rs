//! The end user and the tags that a request names in its body.
//!
//! The end user is `safety_identifier` or `user` of OpenAI's formats
//! (<https://platform.openai.com/docs/guides/safety-best-practices>) and `metadata.user_id` of the messages format
//! (<https://docs.claude.com/en/api/messages>). Tags are the pairs of `metadata` in OpenAI's formats, and of
//! `labels` in the native one (<https://cloud.google.com/vertex-ai/generative-ai/docs/multimodal/add-labels-to-api-calls>).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use crate::json;
use crate::session_sign::SESSION_MARK;
use crate::text::BorrowedText;

/// Name of the end user among the pairs.
const USER_ID: &str = "user_id";
/// Word before the account in a user id of earlier versions of Claude Code.
const ACCOUNT_MARK: &str = "_account_";

/// Fields of an object of texts, by name.
type TextPairs<'a> = BTreeMap<Cow<'a, str>, Cow<'a, str>>;

/// The end user and the tags of a request, as its body names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerLabels {
    /// The end user.
    pub end_user: Option<Box<str>>,
    /// Names and values of the tags.
    pub tags: Vec<(Box<str>, Box<str>)>,
}

impl CallerLabels {
    /// Returns those of a body with these fields. `pairs` is an object of texts; others name nothing.
    pub fn read(user: Option<&str>, pairs: Option<&str>) -> Self {
        let Some(pairs) = pairs.and_then(|pairs| json::read::<TextPairs<'_>>(pairs).ok()) else {
            return Self { end_user: user.and_then(end_user), tags: Vec::new() };
        };
        let end_user = user.and_then(end_user).or_else(|| end_user(pairs.get(USER_ID)?));
        let tags = pairs.into_iter().filter(|(name, _)| name != USER_ID);
        let tags = tags.map(|(name, value)| (name.into(), value.into())).collect();
        Self { end_user, tags }
    }
}

/// Returns the person in the id of a user. Claude Code adds its session, which changes all the time.
fn end_user(id: &str) -> Option<Box<str>> {
    #[derive(Deserialize)]
    struct ClientIds<'a> {
        #[serde(borrow, default)]
        account_uuid: Option<BorrowedText<'a>>,
        #[serde(borrow, default)]
        device_id: Option<BorrowedText<'a>>,
    }
    let not_empty = |text: &str| {
        let text = text.trim();
        (!text.is_empty()).then(|| Box::from(text))
    };
    if id.starts_with('{')
        && let Ok(ClientIds { account_uuid, device_id }) = json::read(id)
    {
        let ids = [account_uuid, device_id].into_iter().flatten();
        let mut named = ids.filter_map(|own| not_empty(&own));
        return named.next().or_else(|| not_empty(id));
    }
    let Some((person, _)) = id.rsplit_once(SESSION_MARK) else { return not_empty(id) };
    let (device, account) = person.split_once(ACCOUNT_MARK).unwrap_or((person, ""));
    not_empty(account).or_else(|| not_empty(device)).or_else(|| not_empty(id))
}

#[cfg(test)]
mod tests {
    use super::CallerLabels;
    use crate::{RequestTarget, get};
    use canon::WireFormat;
    use serde_json::{Value, json};

    const FORMATS: [WireFormat; 4] =
        [WireFormat::Chat, WireFormat::Responses, WireFormat::Messages, WireFormat::Native];

    fn labels(format: WireFormat, fields: &Value) -> CallerLabels {
        let hi = json!([{ "role": "user", "content": "hi" }]);
        let mut body = match format {
            WireFormat::Chat | WireFormat::Images => json!({ "model": "m", "messages": hi }),
            WireFormat::Responses => json!({ "model": "m", "input": "hi" }),
            WireFormat::Messages => json!({ "model": "m", "max_tokens": 20, "messages": hi }),
            WireFormat::Native => json!({ "contents": [{ "parts": [{ "text": "hi" }] }] }),
        };
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let target = RequestTarget { model: Some("m".to_owned()), ..RequestTarget::default() };
        let facts = get(format).unwrap().read_facts(&target, body.to_string().as_bytes());
        facts.unwrap_or_else(|error| panic!("{format} {body}: {error}")).labels
    }

    fn user(format: WireFormat, fields: &Value) -> Option<String> {
        labels(format, fields).end_user.map(String::from)
    }

    #[test]
    fn every_format_names_its_end_user() {
        for format in [WireFormat::Chat, WireFormat::Responses] {
            let of = |fields: Value| user(format, &fields);
            assert_eq!(of(json!({})), None);
            assert_eq!(of(json!({ "user": "u" })).as_deref(), Some("u"));
            assert_eq!(of(json!({ "user": " " })), None);
            assert_eq!(of(json!({ "user": "u", "safety_identifier": "s" })).as_deref(), Some("s"));
            assert_eq!(
                of(json!({ "user": " ", "metadata": { "user_id": "m" } })).as_deref(),
                Some("m")
            );
        }
        let of = |id: &str| user(WireFormat::Messages, &json!({ "metadata": { "user_id": id } }));
        assert_eq!(of("somebody").as_deref(), Some("somebody"));
        let client = |account: &str| {
            json!({ "device_id": "d", "account_uuid": account, "session_id": "s" }).to_string()
        };
        assert_eq!(of(&client("a")).as_deref(), Some("a"));
        assert_eq!(of(&client("")).as_deref(), Some("d"));
        assert_eq!(of("user_h_account_a_session_s").as_deref(), Some("a"));
        assert_eq!(of("user_h_account__session_s").as_deref(), Some("user_h"));
        for odd in ["{}", "{", "[1]", "a b", "_session_"] {
            assert_eq!(of(odd).as_deref(), Some(odd));
        }
        assert_eq!(
            user(WireFormat::Native, &json!({ "labels": { "user_id": "v" } })).as_deref(),
            Some("v")
        );
    }

    #[test]
    fn pairs_are_tags() {
        let pairs = json!({ "team": "blue", "user_id": "somebody", "é": "" });
        for format in FORMATS {
            let name = match format {
                WireFormat::Native => "labels",
                _ => "metadata",
            };
            let CallerLabels { end_user, tags } = labels(format, &json!({ name: pairs }));
            assert_eq!(end_user.as_deref(), Some("somebody"));
            let tags: Vec<(&str, &str)> = tags.iter().map(|(n, v)| (&**n, &**v)).collect();
            // The messages format has no other metadata.
            let wanted = [("team", "blue"), ("é", "")];
            assert_eq!(tags, if format == WireFormat::Messages { &[][..] } else { &wanted });
        }
        for odd in [json!(5), json!(["team"]), json!({ "team": 5 }), json!(null)] {
            assert_eq!(
                labels(WireFormat::Native, &json!({ "labels": odd })),
                CallerLabels::default()
            );
        }
    }
}
