//! The session that a request names in its body.
//!
//! Agents and SDKs name the session of a call in different fields. The first one that is there counts. See
//! <https://platform.openai.com/docs/guides/prompt-caching> for `prompt_cache_key`; `session_id` is a field
//! of OpenRouter (<https://openrouter.ai/docs/guides/features/broadcast/overview>), and Claude Code sends its
//! session within `metadata.user_id`.

use serde::Deserialize;

use crate::json;
use crate::text::BorrowedText;
use crate::wire_object::UnknownFields;
use crate::wire_value::OpaqueObject;

/// Names of a field. The native format reads all names in camel case.
const SESSION_FIELD: [&str; 2] = ["session_id", "sessionId"];
const CACHE_KEY_FIELD: [&str; 2] = ["prompt_cache_key", "promptCacheKey"];
/// Words before the session in a user id of earlier versions of Claude Code:
/// `user_<hash>_account_<uuid>_session_<uuid>`.
pub(crate) const SESSION_MARK: &str = "_session_";

/// Fields of a body that may name its session.
#[derive(Default)]
pub(crate) struct SessionSigns<'a> {
    /// Fields that the format does not describe.
    pub(crate) rest: Option<&'a UnknownFields<'a>>,
    /// `prompt_cache_key`, if the format describes it.
    pub(crate) cache_key: Option<&'a str>,
    /// `metadata.user_id`.
    pub(crate) user_id: Option<&'a str>,
    /// Id of the conversation that the request belongs to.
    pub(crate) conversation: Option<&'a str>,
}

impl SessionSigns<'_> {
    /// Returns the session, if one is named.
    pub(crate) fn session(&self) -> Option<Box<str>> {
        let Self { rest, cache_key, user_id, conversation } = self;
        let own = |names: [&str; 2]| {
            let rest = rest.as_ref().filter(|rest| !rest.is_empty())?;
            names.into_iter().find_map(|name| not_empty(&rest.text(name)?))
        };
        own(SESSION_FIELD)
            .or_else(|| cache_key.and_then(not_empty))
            .or_else(|| own(CACHE_KEY_FIELD))
            .or_else(|| user_id.and_then(session_of_user))
            .or_else(|| conversation.and_then(not_empty))
    }
}

fn not_empty(text: &str) -> Option<Box<str>> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.into())
}

/// Returns the session within a user id. Other ids name a person, whose sessions they do not tell apart.
fn session_of_user(id: &str) -> Option<Box<str>> {
    #[derive(Deserialize)]
    struct ClientIds<'a> {
        #[serde(borrow)]
        session_id: BorrowedText<'a>,
    }
    if id.starts_with('{') {
        let ids: ClientIds<'_> = json::read(id).ok()?;
        return not_empty(&ids.session_id);
    }
    id.rsplit_once(SESSION_MARK).and_then(|(_, session)| not_empty(session))
}

/// Returns `user_id` of metadata that the format does not describe.
pub(crate) fn metadata_user(metadata: Option<OpaqueObject<'_>>) -> Option<String> {
    #[derive(Deserialize)]
    struct UserId<'a> {
        #[serde(borrow)]
        user_id: BorrowedText<'a>,
    }
    let user: UserId<'_> = json::read(metadata?.0.get()).ok()?;
    Some(user.user_id.into_owned())
}

#[cfg(test)]
mod tests {
    use crate::{RequestTarget, get};
    use canon::WireFormat;
    use serde_json::{Value, json};

    const FORMATS: [WireFormat; 4] =
        [WireFormat::Chat, WireFormat::Responses, WireFormat::Messages, WireFormat::Native];

    fn session(format: WireFormat, fields: &Value) -> Option<String> {
        let mut body = match format {
            WireFormat::Chat | WireFormat::Images => {
                json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] })
            }
            WireFormat::Responses => json!({ "model": "m", "input": "hi" }),
            WireFormat::Messages => {
                json!({ "model": "m", "max_tokens": 20, "messages": [{ "role": "user", "content": "hi" }] })
            }
            WireFormat::Native => json!({ "contents": [{ "parts": [{ "text": "hi" }] }] }),
        };
        let (own, fields) = (body.as_object_mut().unwrap(), fields.as_object().unwrap());
        own.extend(fields.clone());
        let target = RequestTarget { model: Some("m".to_owned()), ..RequestTarget::default() };
        let facts = get(format).unwrap().read_facts(&target, body.to_string().as_bytes());
        facts.unwrap_or_else(|error| panic!("{format} {body}: {error}")).session.map(String::from)
    }

    fn claude_code(session: &str) -> String {
        json!({ "device_id": "d", "account_uuid": "", "session_id": session }).to_string()
    }

    /// Each field yields the same session in each format that has it, and the first one counts.
    #[test]
    fn every_field_names_the_session_and_the_first_one_counts() {
        let signs = [
            json!({ "session_id": "s1" }),
            json!({ "prompt_cache_key": "s2" }),
            json!({ "metadata": { "user_id": claude_code("s3") } }),
        ];
        for format in FORMATS {
            // The native format has no metadata.
            let known = if format == WireFormat::Native { 2 } else { signs.len() };
            for first in 0..known {
                let mut fields = json!({});
                for sign in signs.get(first..known).unwrap_or_default() {
                    fields.as_object_mut().unwrap().extend(sign.as_object().unwrap().clone());
                }
                let expected = Some(format!("s{}", first + 1));
                assert_eq!(session(format, &fields), expected, "{format} {fields}");
                let only = signs.get(first).unwrap();
                assert_eq!(session(format, only), expected, "{format} {only}");
            }
            assert_eq!(session(format, &json!({})), None);
        }
    }

    #[test]
    fn only_a_session_within_a_user_id_counts() {
        let of =
            |id: &str| session(WireFormat::Messages, &json!({ "metadata": { "user_id": id } }));
        let uuid = "0b1c2d3e-aaaa-bbbb-cccc-0123456789ab";
        assert_eq!(of(&format!("user_abc_account__session_{uuid}")).as_deref(), Some(uuid));
        assert_eq!(of(&claude_code(uuid)).as_deref(), Some(uuid));
        for id in
            ["u", "user_1", "{}", "{\"session_id\":5}", "{\"session_id\":\" \"}", "a_session_"]
        {
            assert_eq!(of(id), None, "{id}");
        }
    }

    #[test]
    fn values_that_name_nothing_are_passed_over() {
        let chat = |fields: Value| session(WireFormat::Chat, &fields);
        assert_eq!(chat(json!({ "session_id": 5, "prompt_cache_key": "k" })).as_deref(), Some("k"));
        assert_eq!(
            chat(json!({ "session_id": "  ", "prompt_cache_key": " k " })).as_deref(),
            Some("k")
        );
        assert_eq!(chat(json!({ "session_id": null, "user": "someone" })), None);
        let responses = |fields: Value| session(WireFormat::Responses, &fields);
        assert_eq!(responses(json!({ "conversation": "conv_1" })).as_deref(), Some("conv_1"));
        assert_eq!(
            responses(json!({ "conversation": { "id": "conv_1" } })).as_deref(),
            Some("conv_1")
        );
    }
}
