//! Replies and events that hold only text, read without the general parser.

use canon::{ChatReply, ExtraFields, Finish, Part, RawReason, ReplyCandidate};
use serde_json::Value;
use std::borrow::Cow;

use crate::endings;
use crate::json_reader::JsonReader;
use crate::messages::names::ORIGIN;
use crate::messages::reply::{
    MessagesDelta, MessagesEvent, MessagesReplyBlock, MessagesReplyText, MessagesReplyView,
};
use crate::messages::usage::{
    MessagesCacheCreation, MessagesCounts, MessagesOutputDetails, MessagesServerCounts,
    MessagesUsage,
};
use crate::plain_reply::{self, SeenFields};
use crate::service_tier::USAGE_EXTRA;
use crate::text::{BorrowedText, owned, present};
use crate::wire_object::{NULL, raw_value};
use crate::wire_value::{LooseText, LooseValue};

/// Reads a whole reply; `None` if it has to be parsed.
pub(in crate::messages) fn read(body: &[u8]) -> Option<ChatReply> {
    let view = plain_reply::read(body, read_message)?;
    let word = view.stop_reason?;
    let blocks = view.content.and_then(|content| content.0).filter(|list| !list.is_empty())?;
    let mut parts = Vec::with_capacity(blocks.len());
    for block in blocks {
        let MessagesReplyBlock::Text(block) = block else { return None };
        parts.push(Part::text(owned(block.text)));
    }
    let mut extras = ExtraFields::new();
    for (name, raw) in view.rest.present() {
        extras.insert(ORIGIN, name, raw_value(raw));
    }
    let usage = view.usage.and_then(|usage| usage.0).map(|usage| {
        let mut counts = MessagesCounts::default();
        counts.update(&usage, false);
        let fields = usage.other_fields();
        if !fields.is_empty() {
            extras.insert(ORIGIN, USAGE_EXTRA, Value::Object(fields));
        }
        counts.to_canon()
    });
    let finish = Finish {
        reason: endings::read(ORIGIN, &word),
        raw: RawReason::new(ORIGIN, &*word),
        stop_sequence: view.stop_sequence.map(BorrowedText::into_owned),
    };
    let finish = Some(finish);
    let candidates = vec![ReplyCandidate { parts, finish, ..ReplyCandidate::default() }];
    let (id, model) = (present(view.id), present(view.model));
    Some(ChatReply { id, model, created: None, candidates, usage, extras })
}

/// Reads an event of a stream; `None` if it has to be parsed.
pub(in crate::messages) fn read_event(data: &[u8]) -> Option<MessagesEvent<'_>> {
    plain_reply::read(data, |reader| {
        let (mut event, mut seen) = (MessagesEvent::default(), SeenFields::default());
        reader.each_field(|reader, name| {
            match name {
                "type" => {
                    seen.once(0)?;
                    event.kind = read_text(reader)?;
                }
                "index" => {
                    seen.once(1)?;
                    event.index = Some(u32::try_from(reader.count_or_null()??).ok()?);
                }
                "message" => {
                    seen.once(2)?;
                    event.message = Some(Box::new(read_message(reader)?));
                }
                "delta" => {
                    seen.once(3)?;
                    event.delta = Some(read_delta(reader)?);
                }
                "usage" => {
                    seen.once(4)?;
                    event.usage = Some(LooseValue(Some(Box::new(read_usage(reader)?))));
                }
                _ => return None,
            }
            Some(())
        })?;
        Some(event)
    })
}

fn read_text<'a>(reader: &mut JsonReader<'a>) -> Option<Option<BorrowedText<'a>>> {
    Some(reader.text_or_null()?.map(BorrowedText))
}

fn read_message<'a>(reader: &mut JsonReader<'a>) -> Option<MessagesReplyView<'a>> {
    let (mut view, mut seen) = (MessagesReplyView::default(), SeenFields::default());
    reader.each_field(|reader, name| {
        match name {
            "id" => {
                seen.once(0)?;
                view.id = read_text(reader)?;
            }
            "type" => {
                seen.once(1)?;
                reader.text()?;
            }
            "role" => {
                seen.once(2)?;
                reader.text()?;
            }
            "model" => {
                seen.once(3)?;
                view.model = read_text(reader)?;
            }
            "content" => {
                seen.once(4)?;
                let mut blocks = Vec::new();
                reader.each_item(|reader| {
                    blocks.push(read_block(reader)?);
                    Some(())
                })?;
                view.content = Some(LooseValue(Some(blocks)));
            }
            "stop_reason" => {
                seen.once(5)?;
                view.stop_reason = read_text(reader)?;
            }
            "stop_sequence" => {
                seen.once(6)?;
                view.stop_sequence = read_text(reader)?;
            }
            "usage" => {
                seen.once(7)?;
                view.usage = Some(LooseValue(Some(Box::new(read_usage(reader)?))));
            }
            "stop_details" => {
                seen.once(8)?;
                reader.null()?;
            }
            "error" => return None,
            _ => view.rest.push(Cow::Borrowed(name), reader.raw()?),
        }
        Some(())
    })?;
    Some(view)
}

fn read_block<'a>(reader: &mut JsonReader<'a>) -> Option<MessagesReplyBlock<'a>> {
    let (mut block, mut seen) = (MessagesReplyText::default(), SeenFields::default());
    let mut is_text = false;
    reader.each_field(|reader, name| {
        match name {
            "type" => {
                seen.once(0)?;
                is_text = reader.text()? == "text";
            }
            "text" => {
                seen.once(1)?;
                block.text = Some(BorrowedText(reader.text()?));
            }
            "citations" => {
                seen.once(2)?;
                reader.null()?;
            }
            _ => return None,
        }
        Some(())
    })?;
    is_text.then_some(MessagesReplyBlock::Text(block))
}

fn read_delta<'a>(reader: &mut JsonReader<'a>) -> Option<MessagesDelta<'a>> {
    let (mut delta, mut seen) = (MessagesDelta::default(), SeenFields::default());
    reader.each_field(|reader, name| {
        match name {
            "type" => {
                seen.once(0)?;
                delta.kind = read_text(reader)?;
            }
            "text" => {
                seen.once(1)?;
                delta.text = read_text(reader)?;
            }
            "stop_reason" => {
                seen.once(2)?;
                delta.stop_reason = read_text(reader)?;
            }
            "stop_sequence" => {
                seen.once(3)?;
                delta.stop_sequence = read_text(reader)?;
            }
            _ => return None,
        }
        Some(())
    })?;
    Some(delta)
}

/// Reads the counts. Their other fields are kept in the order of the body.
fn read_usage<'a>(reader: &mut JsonReader<'a>) -> Option<MessagesUsage<'a>> {
    let (mut usage, mut seen) = (MessagesUsage::default(), SeenFields::default());
    reader.each_field(|reader, name| {
        match name {
            "input_tokens" => {
                seen.once(0)?;
                usage.input_tokens = reader.count_or_null()?;
            }
            "cache_creation_input_tokens" => {
                seen.once(1)?;
                usage.cache_creation_input_tokens = reader.count_or_null()?;
            }
            "cache_read_input_tokens" => {
                seen.once(2)?;
                usage.cache_read_input_tokens = reader.count_or_null()?;
            }
            "output_tokens" => {
                seen.once(3)?;
                usage.output_tokens = reader.count_or_null()?;
            }
            "cache_creation" => {
                seen.once(4)?;
                let mut split = MessagesCacheCreation::default();
                let [short, long] = read_counts(reader, [SHORT_CACHE, LONG_CACHE])?;
                (split.ephemeral_5m_input_tokens, split.ephemeral_1h_input_tokens) = (short, long);
                usage.cache_creation = Some(split);
            }
            "output_tokens_details" => {
                seen.once(5)?;
                let mut details = MessagesOutputDetails::default();
                [details.thinking_tokens] = read_counts(reader, ["thinking_tokens"])?;
                usage.output_tokens_details = Some(details);
            }
            "server_tool_use" => {
                seen.once(6)?;
                let mut counts = MessagesServerCounts::default();
                [counts.web_search_requests] = read_counts(reader, ["web_search_requests"])?;
                usage.server_tool_use = Some(counts);
            }
            "service_tier" => {
                seen.once(7)?;
                usage.service_tier = read_kept(reader, name, &mut usage.rest)?;
            }
            "inference_geo" => {
                seen.once(8)?;
                usage.inference_geo = read_kept(reader, name, &mut usage.rest)?;
            }
            "type" | "iterations" | "speed" => return None,
            _ => usage.rest.push(Cow::Borrowed(name), reader.raw()?),
        }
        Some(())
    })?;
    Some(usage)
}

const SHORT_CACHE: &str = "ephemeral_5m_input_tokens";
const LONG_CACHE: &str = "ephemeral_1h_input_tokens";

/// Reads an object with only these counts.
fn read_counts<const N: usize>(
    reader: &mut JsonReader<'_>,
    names: [&str; N],
) -> Option<[Option<u64>; N]> {
    let (mut counts, mut seen) = ([None; N], SeenFields::default());
    reader.each_field(|reader, name| {
        let at = names.iter().position(|own| *own == name)?;
        seen.once(u32::try_from(at).ok()?)?;
        *counts.get_mut(at)? = reader.count_or_null()?;
        Some(())
    })?;
    Some(counts)
}

/// Reads a word that is kept among the other fields too.
fn read_kept<'a>(
    reader: &mut JsonReader<'a>,
    name: &'a str,
    rest: &mut crate::wire_object::UnknownFields<'a>,
) -> Option<Option<LooseText<'a>>> {
    let raw = reader.raw()?;
    rest.push(Cow::Borrowed(name), raw);
    if raw.get() == NULL {
        return Some(None);
    }
    let word = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    (!word.contains('\\')).then_some(Some(LooseText(Cow::Borrowed(word))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::read_reply::read_parsed;
    use crate::plain_reply::law::check_bodies;
    use proptest::prelude::*;

    const BODIES: &[&str] = &[
        r#"{"id":"msg_1","type":"message","role":"assistant","model":"x","content":[{"type":"text","text":"tide tide"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":16,"cache_creation_input_tokens":4,"cache_read_input_tokens":8,"cache_creation":{"ephemeral_5m_input_tokens":4,"ephemeral_1h_input_tokens":0},"output_tokens":150,"service_tier":"standard"}}"#,
        r#"{ "usage":{"output_tokens":7,"input_tokens":3,"server_tool_use":{"web_search_requests":2},"output_tokens_details":{"thinking_tokens":1},"inference_geo":"us","service_tier":null,"vendor":[1,{"a":null}]},"stop_sequence":"END","stop_reason":"stop_sequence","content":[{"text":"a \"b\" \u00e4","type":"text","citations":null},{"type":"text","text":""}],"vendor":{"a":1},"none":null,"id":"","model":null,"stop_details":null}"#,
        r#"{"content":[{"type":"text","text":"é"}],"stop_reason":"unknown","x":1,"x":2}"#,
        r#"{"content":[{"type":"text","text":"a"}],"stop_reason":null}"#,
        r#"{"content":[],"stop_reason":"end_turn"}"#,
        r#"{"content":[{"type":"tool_use","id":"t","name":"f","input":{}}],"stop_reason":"tool_use"}"#,
        r#"{"content":[{"type":"text","text":"a","citations":[]}],"stop_reason":"end_turn","usage":{"iterations":[],"speed":"fast"}}"#,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"no"}}"#,
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
