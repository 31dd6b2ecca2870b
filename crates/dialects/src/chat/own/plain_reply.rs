//! Completions and chunks that hold only text, read without the general parser.

use canon::{ChatReply, ExtraFields, Finish, Part, RawReason, ReplyCandidate, Usage};
use serde_json::Value;
use std::borrow::Cow;

use crate::chat::names::ORIGIN;
use crate::chat::reply::{ChatChoice, ChatReplyMessage, ChatReplyView};
use crate::chat::usage::ChatUsage;
use crate::endings;
use crate::json_reader::JsonReader;
use crate::openai_values::TokenDetails;
use crate::plain_reply::{self, SeenFields};
use crate::service_tier::TIER_FIELD;
use crate::text::{BorrowedText, present};
use crate::wire_object::raw_value;
use crate::wire_value::{LooseText, LooseValue, TextOrList};

/// The only choice of a completion.
#[derive(Default)]
struct PlainChoice<'a> {
    index: Option<u64>,
    text: Option<Cow<'a, str>>,
    reason: Option<Cow<'a, str>>,
}

/// Reads a whole reply; `None` if it has to be parsed.
pub(in crate::chat) fn read(body: &[u8]) -> Option<ChatReply> {
    let mut choice = None;
    let view = plain_reply::read(body, |reader| {
        read_completion(reader, |reader| {
            choice.is_none().then_some(())?;
            choice = Some(read_choice(reader)?);
            Some(())
        })
    })?;
    let PlainChoice { index, text, reason } = choice?;
    let text = text.filter(|text| !text.is_empty())?;
    let reason = reason.filter(|word| !word.is_empty())?;
    let mut extras = ExtraFields::new();
    for (name, raw) in view.rest.present() {
        extras.insert(ORIGIN, name, raw_value(raw));
    }
    if let Some(LooseText(tier)) = view.service_tier {
        extras.insert(ORIGIN, TIER_FIELD, Value::from(&*tier));
    }
    let why = endings::read_turn(ORIGIN, &reason, false);
    let candidate = ReplyCandidate {
        index: u32::try_from(index.unwrap_or(0)).ok()?,
        parts: vec![Part::text(text)],
        finish: Some(Finish::new(why, RawReason::new(ORIGIN, reason))),
        ..ReplyCandidate::default()
    };
    let usage = ChatUsage::count(view.usage.as_ref());
    Some(ChatReply {
        id: present(view.id),
        model: present(view.model),
        created: view.created,
        candidates: vec![candidate],
        usage: usage.map(|counts| Usage::default().merged(counts)),
        extras,
    })
}

/// Reads a chunk of a stream; `None` if it has to be parsed.
pub(in crate::chat) fn read_chunk(data: &[u8]) -> Option<ChatReplyView<'_>> {
    plain_reply::read(data, |reader| {
        let mut choices = Vec::new();
        let mut view = read_completion(reader, |reader| {
            choices.push(read_chunk_choice(reader)?);
            Some(())
        })?;
        view.choices = view.choices.map(|_| choices);
        Some(view)
    })
}

fn read_chunk_choice<'a>(reader: &mut JsonReader<'a>) -> Option<ChatChoice<'a>> {
    let (mut choice, mut seen) = (ChatChoice::default(), SeenFields::default());
    reader.each_field(|reader, name| {
        match name {
            "index" => {
                seen.once(0)?;
                choice.index = Some(u32::try_from(reader.count_or_null()??).ok()?);
            }
            "delta" => {
                seen.once(1)?;
                let content =
                    read_message(reader)?.map(|text| TextOrList::Text(BorrowedText(text)));
                choice.delta = Some(Box::new(ChatReplyMessage { content, ..Default::default() }));
            }
            "finish_reason" => {
                seen.once(2)?;
                choice.finish_reason = read_text(reader)?;
            }
            "logprobs" => {
                seen.once(3)?;
                reader.null()?;
            }
            _ => return None,
        }
        Some(())
    })?;
    Some(choice)
}

fn read_text<'a>(reader: &mut JsonReader<'a>) -> Option<Option<BorrowedText<'a>>> {
    Some(reader.text_or_null()?.map(BorrowedText))
}

/// Reads a completion or a chunk. The function reads a choice; the list of the result is empty.
fn read_completion<'a>(
    reader: &mut JsonReader<'a>,
    mut read_choice: impl FnMut(&mut JsonReader<'a>) -> Option<()>,
) -> Option<ChatReplyView<'a>> {
    let (mut view, mut seen) = (ChatReplyView::default(), SeenFields::default());
    reader.each_field(|reader, name| {
        match name {
            "id" => {
                seen.once(0)?;
                view.id = read_text(reader)?;
            }
            "object" => {
                seen.once(1)?;
                reader.text()?;
            }
            "created" => {
                seen.once(2)?;
                view.created = reader.count_or_null()?.and_then(|time| i64::try_from(time).ok());
            }
            "model" => {
                seen.once(3)?;
                view.model = read_text(reader)?;
            }
            "choices" => {
                seen.once(4)?;
                reader.each_item(&mut read_choice)?;
                view.choices = Some(Vec::new());
            }
            "usage" => {
                seen.once(5)?;
                if !reader.is_null()? {
                    view.usage = Some(LooseValue(Some(read_usage(reader)?)));
                }
            }
            "service_tier" => {
                seen.once(6)?;
                view.service_tier = reader.text_or_null()?.map(LooseText);
            }
            "error" => {
                seen.once(7)?;
                reader.null()?;
            }
            "obfuscation" => {
                seen.once(8)?;
                reader.text()?;
            }
            _ => view.rest.push(Cow::Borrowed(name), reader.raw()?),
        }
        Some(())
    })?;
    Some(view)
}

fn read_choice<'a>(reader: &mut JsonReader<'a>) -> Option<PlainChoice<'a>> {
    let (mut choice, mut seen) = (PlainChoice::default(), SeenFields::default());
    reader.each_field(|reader, name| {
        match name {
            "index" => {
                seen.once(0)?;
                choice.index = reader.count_or_null()?;
            }
            "message" => {
                seen.once(1)?;
                choice.text = read_message(reader)?;
            }
            "finish_reason" => {
                seen.once(2)?;
                choice.reason = reader.text_or_null()?;
            }
            "logprobs" => {
                seen.once(3)?;
                reader.null()?;
            }
            _ => return None,
        }
        Some(())
    })?;
    Some(choice)
}

/// Reads a message with a text and nothing else.
fn read_message<'a>(reader: &mut JsonReader<'a>) -> Option<Option<Cow<'a, str>>> {
    let (mut text, mut seen) = (None, SeenFields::default());
    reader.each_field(|reader, name| {
        match name {
            "role" => {
                seen.once(0)?;
                reader.text()?;
            }
            "content" => {
                seen.once(1)?;
                text = reader.text_or_null()?;
            }
            "refusal" => {
                seen.once(2)?;
                reader.null()?;
            }
            "annotations" => {
                seen.once(3)?;
                // The list must be empty.
                reader.each_item(|_| None)?;
            }
            _ => return None,
        }
        Some(())
    })?;
    Some(text)
}

fn read_usage<'a>(reader: &mut JsonReader<'a>) -> Option<ChatUsage<'a>> {
    let (mut usage, mut seen) = (ChatUsage::default(), SeenFields::default());
    reader.each_field(|reader, name| {
        match name {
            "prompt_tokens" => {
                seen.once(0)?;
                usage.prompt_tokens = reader.count_or_null()?;
            }
            "completion_tokens" => {
                seen.once(1)?;
                usage.completion_tokens = reader.count_or_null()?;
            }
            "total_tokens" => {
                seen.once(2)?;
                usage.total_tokens = reader.count_or_null()?;
            }
            "prompt_tokens_details" => {
                seen.once(3)?;
                usage.prompt_tokens_details = Some(read_details(reader)?);
            }
            "completion_tokens_details" => {
                seen.once(4)?;
                usage.completion_tokens_details = Some(read_details(reader)?);
            }
            _ => return None,
        }
        Some(())
    })?;
    Some(usage)
}

/// Reads the kinds of tokens. Other fields are not counted.
fn read_details<'a>(reader: &mut JsonReader<'a>) -> Option<TokenDetails<'a>> {
    let (mut details, mut seen) = (TokenDetails::default(), SeenFields::default());
    reader.each_field(|reader, name| {
        let (number, count) = match name {
            "cached_tokens" => (0, &mut details.cached_tokens),
            "cache_write_tokens" => (1, &mut details.cache_write_tokens),
            "audio_tokens" => (2, &mut details.audio_tokens),
            "image_tokens" => (3, &mut details.image_tokens),
            "video_tokens" => (4, &mut details.video_tokens),
            "reasoning_tokens" => (5, &mut details.reasoning_tokens),
            _ => return reader.count_or_null().map(drop),
        };
        seen.once(number)?;
        *count = reader.count_or_null()?;
        Some(())
    })?;
    Some(details)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::read_reply::read_parsed;
    use crate::plain_reply::law::check_bodies;
    use proptest::prelude::*;

    const BODIES: &[&str] = &[
        r#"{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"x","choices":[{"index":0,"message":{"role":"assistant","content":"tide tide","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":16,"completion_tokens":150,"total_tokens":166,"prompt_tokens_details":{"cached_tokens":4,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":5,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_1"}"#,
        r#"{ "choices":[{"finish_reason":"length","message":{"content":"a \"b\" \u00e4","role":"assistant"}}],"vendor":{"a":[1,null]},"none":null,"id":"","created":null,"service_tier":null,"usage":{"prompt_tokens":3,"completion_tokens":9,"total_tokens":20,"prompt_tokens_details":{}} }"#,
        r#"{"choices":[{"index":7,"message":{"content":"é"},"finish_reason":"odd"}],"x":1,"x":2}"#,
        r#"{"choices":[{"index":0,"message":{"content":""},"finish_reason":"stop"}]}"#,
        r#"{"choices":[{"index":0,"message":{"content":"a","tool_calls":[]},"finish_reason":"stop"}]}"#,
        r#"{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"},{"index":1,"message":{"content":"b"},"finish_reason":"stop"}]}"#,
        r#"{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop","vendor":1}],"usage":{"prompt_tokens":1,"cost":0.5}}"#,
        r#"{"choices":[{"index":0,"message":{"content":"a","reasoning_content":"t"},"finish_reason":""}]}"#,
        r#"{"error":{"message":"no"}}"#,
    ];
    /// The number of bodies that need no parser.
    const USUAL: usize = 3;

    proptest! {
        /// A body that is read without a parser is read like a parsed one.
        #[test]
        fn plain_replies_are_read_like_parsed_ones(
            number in 0..BODIES.len(),
            place in any::<prop::sample::Index>(),
            removed in 0..3_usize,
            put in prop::sample::select(plain_reply::law::PIECES),
        ) {
            check_bodies(BODIES[number], place, removed, put, read, read_parsed);
        }
    }

    #[test]
    fn the_usual_replies_are_read_without_a_parser() {
        for body in &BODIES[..USUAL] {
            let read = read(body.as_bytes()).unwrap_or_else(|| panic!("{body}"));
            assert_eq!(read, read_parsed(body.as_bytes()).unwrap(), "{body}");
        }
        assert!(BODIES[USUAL..].iter().all(|body| read(body.as_bytes()).is_none()));
    }
}
