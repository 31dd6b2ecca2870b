//! Description of a chat completion, whole or as a chunk of a stream.
//!
//! A whole completion is read as a stream of one chunk: its `message` stands where a chunk has a
//! `delta`.
//!
//! See <https://platform.openai.com/docs/api-reference/chat/object> and
//! <https://platform.openai.com/docs/api-reference/chat-streaming/streaming>.

use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;

use super::own::audio::ChatAudio;
use super::usage::ChatUsage;
use crate::json;
use crate::json_reader::JsonReader;
use crate::text::BorrowedText;
use crate::wire_object::wire_object;
use crate::wire_value::{AnyValue, LooseText, LooseValue, TextOrList};

wire_object! {
    /// A completion, or a chunk.
    pub(super) struct ChatReplyView<'a>("a chat completion") {
        id: BorrowedText<'a>,
        object: AnyValue,
        created: i64,
        model: BorrowedText<'a>,
        choices: Vec<ChatChoice<'a>>,
        usage: LooseValue<ChatUsage<'a>>,
        service_tier: LooseText<'a>,
        error: &'a RawValue,
        obfuscation: AnyValue,
    }

    /// The part of a completion or chunk that is metered. Everything else is the provider's business.
    pub(super) struct ChatMeterView<'a>("a chat completion", without_rest) {
        choices: Vec<ChatMeterChoice<'a>>,
        usage: LooseValue<ChatUsage<'a>>,
        service_tier: LooseText<'a>,
        error: &'a RawValue,
    }

    pub(super) struct ChatMeterChoice<'a>("a choice object", without_rest) {
        index: LooseValue<u32>,
        message: &'a RawValue,
        delta: &'a RawValue,
        finish_reason: LooseText<'a>,
        error: &'a RawValue,
    }

    /// The fields of a delta.
    pub(super) struct DeltaFields<'a>("an object") {
        role: AnyValue,
    }

    /// One candidate. Its message is boxed, because it is large and moves with the candidate.
    pub(super) struct ChatChoice<'a>("a choice object") {
        index: u32,
        message: Box<ChatReplyMessage<'a>>,
        delta: Box<ChatReplyMessage<'a>>,
        finish_reason: BorrowedText<'a>,
        logprobs: &'a RawValue,
    }

    /// The message of a candidate, or an addition to it.
    pub(super) struct ChatReplyMessage<'a>("a message object") {
        role: AnyValue,
        content: TextOrList<'a, Value>,
        refusal: BorrowedText<'a>,
        reasoning_content: BorrowedText<'a>,
        reasoning: BorrowedText<'a>,
        reasoning_details: &'a RawValue,
        tool_calls: Vec<ChatReplyCall<'a>>,
        function_call: ChatReplyFunction<'a>,
        annotations: &'a RawValue,
        images: &'a RawValue,
        audio: ChatAudio<'a>,
    }

    /// A tool call, or an addition to it.
    pub(super) struct ChatReplyCall<'a>("a call object") {
        index: u32,
        id: BorrowedText<'a>,
        kind "type": AnyValue,
        function: ChatReplyFunction<'a>,
        custom: ChatReplyFunction<'a>,
        extra_content: &'a RawValue,
    }

    /// Name and arguments of a call. Some providers send the arguments as an object.
    pub(super) struct ChatReplyFunction<'a>("an object") {
        name: BorrowedText<'a>,
        arguments: LooseText<'a>,
        input: LooseText<'a>,
    }
}

impl<'a> ChatReplyView<'a> {
    /// Returns true if the chunk precedes the answer: it has neither an id nor any part of it.
    pub(super) fn is_preface(&self) -> bool {
        let is_empty = |text: &Option<BorrowedText<'_>>| text.as_deref().is_none_or(str::is_empty);
        is_empty(&self.id)
            && is_empty(&self.model)
            && self.choices.as_ref().is_none_or(Vec::is_empty)
            && ChatUsage::count(self.usage.as_ref()).is_none()
    }
}

/// Returns thinking and text of a content. A list of parts may include thinking, as Mistral sends it:
/// <https://docs.mistral.ai/capabilities/reasoning/>.
pub(super) fn split_content(content: Option<TextOrList<'_, Value>>) -> (String, Cow<'_, str>) {
    let parts = match content {
        None => return Default::default(),
        Some(TextOrList::Text(text)) => return (String::new(), text.0),
        Some(TextOrList::List(parts)) => parts,
    };
    let text_of = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
    let thoughts = parts.iter().filter_map(|part| part.get("thinking")?.as_array()).flatten();
    (thoughts.filter_map(text_of).collect(), parts.iter().filter_map(text_of).collect())
}

/// Returns true if a delta holds anything but a role.
pub(super) fn has_output(delta: &str) -> bool {
    delta != "{}" && walk_output(delta).unwrap_or_else(|| read_output(delta))
}

/// Returns true if an object holds anything but one role, by a walk over it; `None` if it has to be
/// read.
fn walk_output(delta: &str) -> Option<bool> {
    let mut reader = JsonReader::of_reply(delta);
    let (mut has_output, mut roles, mut is_first) = (false, 0, true);
    if reader.peek() != b'{' {
        return None;
    }
    reader.enter().ok()?;
    while reader.next_item(b'}', is_first).ok()? {
        is_first = false;
        let is_role = reader.name().ok()? == "role";
        let value = reader.written_value().ok()?;
        roles += usize::from(is_role);
        has_output |= !is_role && !matches!(value, "null" | "\"\"" | "[]" | "{}");
    }
    reader.end().ok()?;
    (roles < 2).then_some(has_output)
}

/// Returns true if a delta holds anything but a role.
fn read_output(delta: &str) -> bool {
    let fields: Option<DeltaFields<'_>> = json::read(delta).ok();
    fields.is_some_and(|fields| {
        let is_empty = |value: &RawValue| matches!(value.get(), "null" | "\"\"" | "[]" | "{}");
        fields.rest.present().any(|(_, value)| !is_empty(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_finds_the_output_that_a_reader_finds() {
        let names = ["role", "content", "vendor", "r\\u006fle"];
        let values = ["null", "\"\"", "[]", "{}", "\"x\"", "1", "[1]", "{\"a\":null}", " \"\" "];
        for first in names {
            for second in names {
                for value in values {
                    for other in values {
                        let delta = format!("{{ \"{first}\":{value},\"{second}\" : {other}}}");
                        let read = read_output(&delta);
                        assert_eq!(has_output(&delta), read, "{delta}");
                        let walked = walk_output(&delta);
                        assert!(walked.is_none_or(|walked| walked == read), "{delta}");
                    }
                }
            }
        }
        for odd in ["[]", "1", "{}", "{", "{\"a\":1,}", "{\"role\":1}}"] {
            assert_eq!(has_output(odd), odd != "{}" && read_output(odd), "{odd}");
        }
    }
}
