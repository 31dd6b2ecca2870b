//! Provider families: answers that count in the provider's own way, whole and streamed, with the amount
//! that the provider bills for them.

use canon::{Money, WireFormat};
use serde_json::{Value, json};
use std::path::Path;

/// Recorded answers with different ways to count: cached and thinking tokens inside and beside the
/// others, caches that are written, searches, fees, and prices that the provider tells itself.
const NAMES: [&str; 9] = [
    "openai-chat",
    "openai-responses",
    "anthropic-messages",
    "gemini-native",
    "xai-chat",
    "perplexity-research",
    "perplexity-sonar",
    "deepseek-chat",
    "openrouter-chat",
];

/// Pieces of every answer. The last letter of a piece may come with the next one.
const BEGIN: &str = "The harbour is quiet at dawn and the gulls wheel";
const MORE: &str = " over the old customs house while the tide turns as slowly as ever.";
/// Ends of the two pieces, as far as every caller has them.
pub(crate) const BEGIN_SEEN: &str = " whee";
pub(crate) const MORE_SEEN: &str = " ever";

/// Bytes per token of the meter, where no counts are told.
const BYTES_PER_TOKEN: usize = 4;

/// An answer in the pieces between which something can happen.
#[derive(Clone, Debug)]
pub(crate) struct AnswerPieces {
    /// Status line and headers.
    pub(crate) head: Vec<u8>,
    /// First half of the text, and all before it.
    pub(crate) begin: Vec<u8>,
    /// Second half of the text.
    pub(crate) more: Vec<u8>,
    /// Counts and end.
    pub(crate) end: Vec<u8>,
}

/// One provider and its way to count.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) provider: String,
    pub(crate) model: String,
    pub(crate) format: WireFormat,
    /// Price of the told counts.
    pub(crate) bill: Money,
    body: Value,
}

impl Family {
    pub(crate) fn all() -> Vec<Self> {
        NAMES.into_iter().map(Self::read).collect()
    }

    fn read(name: &'static str) -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/portunus/money/recorded");
        let text = std::fs::read_to_string(Path::new(folder).join(format!("{name}.json"))).unwrap();
        let recorded: Value = serde_json::from_str(&text).unwrap();
        let field = |field: &str| recorded[field].as_str().unwrap().to_owned();
        Self {
            name,
            provider: field("provider"),
            model: field("model"),
            format: WireFormat::parse(&field("format")).unwrap(),
            bill: field("usd").parse().unwrap(),
            body: recorded["body"].clone(),
        }
    }

    /// Output tokens of the answer up to the middle or the end of its text, without thinking.
    pub(crate) fn delivered_tokens(is_whole_text: bool) -> u64 {
        let more = if is_whole_text { MORE.len() } else { 0 };
        u64::try_from((BEGIN.len() + more) / BYTES_PER_TOKEN).unwrap()
    }

    pub(crate) fn pieces(&self, stream: bool) -> AnswerPieces {
        if stream { self.streamed() } else { self.whole() }
    }

    fn whole(&self) -> AnswerPieces {
        let mut body = self.body.clone();
        let text = match self.format {
            WireFormat::Chat | WireFormat::Images => body.pointer_mut("/choices/0/message/content"),
            WireFormat::Responses => {
                let items = body["output"].as_array_mut().unwrap();
                items.last_mut().unwrap().pointer_mut("/content/0/text")
            }
            WireFormat::Messages => body.pointer_mut("/content/0/text"),
            WireFormat::Native => body.pointer_mut("/candidates/0/content/parts/0/text"),
        };
        *text.unwrap() = json!(format!("{BEGIN}{MORE}"));
        let body = body.to_string();
        let middle = body.find(MORE).unwrap();
        let counts = middle + body[middle..].find("\"usage").unwrap();
        AnswerPieces {
            head: head("application/json", &format!("content-length: {}", body.len())),
            begin: body.as_bytes()[..middle].to_vec(),
            more: body.as_bytes()[middle..counts].to_vec(),
            end: body.as_bytes()[counts..].to_vec(),
        }
    }

    fn streamed(&self) -> AnswerPieces {
        let [begin, more, end] = match self.format {
            WireFormat::Chat | WireFormat::Images => self.chat_events(),
            WireFormat::Responses => self.responses_events(),
            WireFormat::Messages => self.messages_events(),
            WireFormat::Native => self.native_events(),
        };
        AnswerPieces {
            head: head("text/event-stream", "transfer-encoding: chunked"),
            begin: chunks(&begin),
            more: chunks(&more),
            end: [chunks(&end), b"0\r\n\r\n".to_vec()].concat(),
        }
    }

    fn chat_events(&self) -> [Vec<Value>; 3] {
        let chunk = |choices: Value, usage: &Value| {
            json!({ "id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m",
                    "choices": choices, "usage": usage })
        };
        let delta = |delta: Value, finish: Value| {
            let choice = json!([{ "index": 0, "delta": delta, "finish_reason": finish }]);
            chunk(choice, &Value::Null)
        };
        let text = |text: &str| delta(json!({ "content": text }), Value::Null);
        let begin = delta(json!({ "role": "assistant", "content": "" }), Value::Null);
        [
            [vec![begin], words(BEGIN).map(text).collect()].concat(),
            words(MORE).map(text).collect(),
            vec![
                delta(json!({}), json!("stop")),
                chunk(json!([]), &self.body["usage"]),
                json!("[DONE]"),
            ],
        ]
    }

    fn messages_events(&self) -> [Vec<Value>; 3] {
        let mut usage = self.body["usage"].clone();
        let all = usage.clone();
        // The counts at the begin are those of the prompt.
        usage["output_tokens"] = json!(1);
        usage["server_tool_use"] = Value::Null;
        let message = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                              "content": [], "stop_reason": null, "usage": usage });
        let text = |text: &str| {
            json!({ "type": "content_block_delta", "index": 0,
                    "delta": { "type": "text_delta", "text": text } })
        };
        let begin = vec![
            json!({ "type": "message_start", "message": message }),
            json!({ "type": "content_block_start", "index": 0,
                    "content_block": { "type": "text", "text": "" } }),
        ];
        [
            [begin, words(BEGIN).map(text).collect()].concat(),
            words(MORE).map(text).collect(),
            vec![
                json!({ "type": "content_block_stop", "index": 0 }),
                json!({ "type": "message_delta", "usage": all,
                        "delta": { "stop_reason": "end_turn", "stop_sequence": null } }),
                json!({ "type": "message_stop" }),
            ],
        ]
    }

    fn native_events(&self) -> [Vec<Value>; 3] {
        let chunk = |text: &str, finish: Value, usage: &Value| {
            let content = json!({ "role": "model", "parts": [{ "text": text }] });
            json!({ "candidates": [{ "index": 0, "content": content, "finishReason": finish }],
                    "usageMetadata": usage, "modelVersion": "m" })
        };
        let all = &self.body["usageMetadata"];
        let mut usage = all.clone();
        usage["candidatesTokenCount"] = json!(1);
        usage["thoughtsTokenCount"] = Value::Null;
        usage["totalTokenCount"] = Value::Null;
        let text = |text: &str| chunk(text, Value::Null, &usage);
        // The end of the text comes with the counts.
        let (more, last) = MORE.split_at(MORE.len() - 1);
        [
            words(BEGIN).map(text).collect(),
            words(more).map(text).collect(),
            vec![chunk(last, json!("STOP"), all)],
        ]
    }

    fn responses_events(&self) -> [Vec<Value>; 3] {
        let mut response = self.body.clone();
        let items = response["output"].as_array_mut().unwrap();
        let at = items.len() - 1;
        items[at]["content"][0]["text"] = json!(format!("{BEGIN}{MORE}"));
        let (tools, item) = (items[..at].to_vec(), items[at].clone());
        let mut begun = response.clone();
        begun["status"] = json!("in_progress");
        begun["output"] = json!([]);
        begun["usage"] = Value::Null;
        begun["tool_usage"] = Value::Null;
        let mut opened = item.clone();
        opened["content"] = json!([]);
        opened["status"] = json!("in_progress");
        let mut begin = vec![json!({ "type": "response.created", "response": begun })];
        for (index, tool) in tools.iter().enumerate() {
            for kind in ["added", "done"] {
                let kind = format!("response.output_item.{kind}");
                begin.push(json!({ "type": kind, "output_index": index, "item": tool }));
            }
        }
        let of_part = |kind: &str, name: &str, value: Value| {
            let mut event = json!({ "type": kind, "item_id": item["id"], "output_index": at,
                                    "content_index": 0 });
            event[name] = value;
            event
        };
        let part = |text: &str| json!({ "type": "output_text", "text": text, "annotations": [] });
        let text = |text: &str| of_part("response.output_text.delta", "delta", Value::from(text));
        begin.push(
            json!({ "type": "response.output_item.added", "output_index": at, "item": opened }),
        );
        begin.push(of_part("response.content_part.added", "part", part("")));
        begin.extend(words(BEGIN).map(text));
        let all = format!("{BEGIN}{MORE}");
        let mut events = [
            begin,
            words(MORE).map(text).collect(),
            vec![
                of_part("response.output_text.done", "text", json!(all)),
                of_part("response.content_part.done", "part", part(&all)),
                json!({ "type": "response.output_item.done", "output_index": at, "item": item }),
                json!({ "type": "response.completed", "response": response }),
            ],
        ];
        for (number, event) in events.iter_mut().flatten().enumerate() {
            event["sequence_number"] = json!(number);
        }
        events
    }
}

/// A response head. The connection ends with the answer, so that a test has few open ones.
fn head(kind: &str, length: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n{length}\r\n\r\n")
        .into_bytes()
}

/// The words of a text, each with the blank before it.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.char_indices().skip(1).find(|(_, letter)| *letter == ' ');
        let (word, left) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
        rest = left;
        (!word.is_empty()).then_some(word)
    })
}

/// Events as chunks of a body, each with its name where its format names it.
fn chunks(events: &[Value]) -> Vec<u8> {
    let mut out = Vec::new();
    for event in events {
        let name = event["type"].as_str().map(|name| format!("event: {name}\n"));
        let data = event.as_str().map_or_else(|| event.to_string(), str::to_owned);
        let event = format!("{}data: {data}\n\n", name.unwrap_or_default());
        out.extend_from_slice(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes());
    }
    out
}
