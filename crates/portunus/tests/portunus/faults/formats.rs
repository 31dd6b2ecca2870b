//! Requests and answers of each format, as a client writes and reads them.

use canon::WireFormat;
use serde_json::{Value, json};
use testkit::TestResponse;

/// The text every model is to say: long enough to break off, with characters of every length.
pub(crate) const TEXT: &str = "The harbour is quiet at dawn and gulls wheel over the façade of \
    the old customs house – naïve tourists, 港口, ships 🚢 and a tide that turns as slowly as ever";

/// The formats callers speak.
pub(crate) const FORMATS: [WireFormat; 4] =
    [WireFormat::Chat, WireFormat::Responses, WireFormat::Messages, WireFormat::Native];

/// A request for the text, with something before it.
pub(crate) fn ask(format: WireFormat, model: &str, before: &str, stream: bool) -> (String, Value) {
    let text = format!("{before} Say exactly: {TEXT}");
    let user = json!([{ "role": "user", "content": text }]);
    match format {
        WireFormat::Chat | WireFormat::Images => (
            "/v1/chat/completions".to_owned(),
            json!({ "model": model, "messages": user, "stream": stream, "max_tokens": 200 }),
        ),
        WireFormat::Responses => (
            "/v1/responses".to_owned(),
            json!({ "model": model, "input": user, "stream": stream, "max_output_tokens": 200,
                    "store": false }),
        ),
        WireFormat::Messages => (
            "/v1/messages".to_owned(),
            json!({ "model": model, "messages": user, "stream": stream, "max_tokens": 200 }),
        ),
        WireFormat::Native => {
            let operator = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
            (
                format!("/v1beta/models/{model}:{operator}"),
                json!({ "contents": [{ "role": "user", "parts": [{ "text": text }] }],
                        "generationConfig": { "maxOutputTokens": 200 } }),
            )
        }
    }
}

/// The same for a call of a tool, whose arguments are long enough to break off.
pub(crate) fn ask_for_call(
    format: WireFormat,
    model: &str,
    before: &str,
    stream: bool,
) -> (String, Value) {
    let (path, mut body) = ask(format, model, before, stream);
    let field = json!({ "type": "string", "minLength": 24 });
    let schema = json!({ "type": "object", "required": ["place", "weather", "tide"],
                         "properties": { "place": field, "weather": field, "tide": field } });
    let (tools, choice) = match format {
        WireFormat::Chat | WireFormat::Images => (
            json!([{ "type": "function", "function": { "name": TOOL, "parameters": schema } }]),
            json!({ "type": "function", "function": { "name": TOOL } }),
        ),
        WireFormat::Responses => (
            json!([{ "type": "function", "name": TOOL, "parameters": schema }]),
            json!({ "type": "function", "name": TOOL }),
        ),
        WireFormat::Messages => (
            json!([{ "name": TOOL, "input_schema": schema }]),
            json!({ "type": "tool", "name": TOOL }),
        ),
        WireFormat::Native => {
            body["toolConfig"] = json!({ "functionCallingConfig": { "mode": "ANY" } });
            body["tools"] =
                json!([{ "functionDeclarations": [{ "name": TOOL, "parameters": schema }] }]);
            return (path, body);
        }
    };
    (body["tools"], body["tool_choice"]) = (tools, choice);
    (path, body)
}

/// The tool to call.
pub(crate) const TOOL: &str = "note_harbour";

/// The same for two answers at once, in the formats that can ask for them.
pub(crate) fn ask_for_two(format: WireFormat, model: &str, before: &str) -> (String, Value) {
    let (path, mut body) = ask(format, model, before, false);
    match format {
        WireFormat::Native => body["generationConfig"]["candidateCount"] = json!(2),
        WireFormat::Chat | WireFormat::Responses | WireFormat::Messages | WireFormat::Images => {
            body["n"] = json!(2);
        }
    }
    (path, body)
}

/// A request for the vector of the text.
pub(crate) fn ask_for_vector(format: WireFormat, model: &str, before: &str) -> (String, Value) {
    let text = format!("{before} {TEXT}");
    match format {
        WireFormat::Native => (
            format!("/v1beta/models/{model}:embedContent"),
            json!({ "content": { "parts": [{ "text": text }] } }),
        ),
        WireFormat::Chat | WireFormat::Responses | WireFormat::Messages | WireFormat::Images => {
            ("/v1/embeddings".to_owned(), json!({ "model": model, "input": text }))
        }
    }
}

/// Number of candidates in a whole answer.
pub(crate) fn answers(format: WireFormat, got: &TestResponse) -> usize {
    let body = got.json();
    let list = if format == WireFormat::Native { &body["candidates"] } else { &body["choices"] };
    list.as_array().map_or(1, Vec::len)
}

/// The numbers of a vector; none of anything else.
pub(crate) fn vector(format: WireFormat, got: &TestResponse) -> usize {
    let body = got.json();
    let list = match format {
        WireFormat::Native => &body["embedding"]["values"],
        WireFormat::Chat | WireFormat::Responses | WireFormat::Messages | WireFormat::Images => {
            &body["data"][0]["embedding"]
        }
    };
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter(|number| number.is_number()).count()
}

/// The text of a whole answer.
pub(crate) fn whole_text(format: WireFormat, got: &TestResponse) -> String {
    let body = got.json();
    let texts = |list: &Value| -> String {
        let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter().filter_map(|part| part["text"].as_str()).collect()
    };
    match format {
        WireFormat::Chat | WireFormat::Images => {
            body["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
        }
        WireFormat::Responses => {
            let items = body["output"].as_array().cloned().unwrap_or_default();
            items.iter().map(|item| texts(&item["content"])).collect()
        }
        WireFormat::Messages => texts(&body["content"]),
        WireFormat::Native => texts(&body["candidates"][0]["content"]["parts"]),
    }
}

/// An event of a stream.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) name: Option<String>,
    pub(crate) data: String,
}

impl Event {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_default()
    }
}

/// A stream cut into its events, as strictly as the strictest client does it: what is not an event
/// of the format is an error.
pub(crate) fn events(format: WireFormat, got: &TestResponse) -> Result<Vec<Event>, String> {
    let text = std::str::from_utf8(&got.body).map_err(|_| "the stream is not UTF-8".to_owned())?;
    if text.starts_with('[') {
        return items(text);
    }
    let mut events = Vec::new();
    for block in text.split("\n\n").filter(|block| !block.is_empty()) {
        let mut event = Event { name: None, data: String::new() };
        for line in block.lines() {
            if let Some(data) = line.strip_prefix("data: ") {
                event.data.push_str(data);
            } else if let Some(name) = line.strip_prefix("event: ")
                && format != WireFormat::Native
            {
                event.name = Some(name.to_owned());
            } else if !line.starts_with(':') || format == WireFormat::Native {
                return Err(format!("a line no client of this format takes: {line:?}"));
            }
        }
        if event.name.is_some() || !event.data.is_empty() {
            events.push(event);
        }
    }
    Ok(events)
}

/// The items of a JSON array, as far as there are any.
fn items(text: &str) -> Result<Vec<Event>, String> {
    let mut events = Vec::new();
    let mut rest = text.strip_prefix('[').unwrap_or_default();
    loop {
        rest = rest.trim_start_matches([',', '\r', '\n', ' ']);
        if rest.is_empty() || rest == "]" {
            return Ok(events);
        }
        let mut read = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        if !matches!(read.next(), Some(Ok(_))) {
            return Err(format!("an item no client of this format takes: {rest:?}"));
        }
        let (item, after) = rest.split_at(read.byte_offset());
        events.push(Event { name: None, data: item.to_owned() });
        rest = after;
    }
}

/// The names and arguments of the tools that are called, one behind the other.
pub(crate) fn called(format: WireFormat, got: &TestResponse, events: Option<&[Event]>) -> String {
    let whole = [got.json()];
    let data: Vec<Value> = match events {
        Some(events) => events.iter().map(Event::json).collect(),
        None => whole.to_vec(),
    };
    let mut said = String::new();
    for data in &data {
        let parts = match format {
            WireFormat::Chat | WireFormat::Images => {
                let choice = &data["choices"][0];
                let some = if choice["delta"].is_object() { "delta" } else { "message" };
                let call = &choice[some]["tool_calls"][0]["function"];
                vec![call["name"].clone(), call["arguments"].clone()]
            }
            WireFormat::Responses => match data["type"].as_str() {
                Some("response.output_item.added") => vec![data["item"]["name"].clone()],
                Some("response.function_call_arguments.delta") => vec![data["delta"].clone()],
                Some(_) => Vec::new(),
                None => each(&data["output"], &["name", "arguments"]),
            },
            WireFormat::Messages => match data["type"].as_str() {
                Some("content_block_start") => vec![data["content_block"]["name"].clone()],
                Some("content_block_delta") => vec![data["delta"]["partial_json"].clone()],
                _ => each(&data["content"], &["name", "input"]),
            },
            WireFormat::Native => {
                let parts = data["candidates"][0]["content"]["parts"].as_array();
                let calls = parts.into_iter().flatten().map(|part| part["functionCall"].clone());
                each(&Value::Array(calls.collect()), &["name", "args"])
            }
        };
        for part in parts {
            match part {
                Value::String(text) => said.push_str(&text),
                Value::Object(_) => said.push_str(&part.to_string()),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {}
            }
        }
    }
    said
}

/// These fields of every item of a list, one after the other.
fn each(list: &Value, names: &[&str]) -> Vec<Value> {
    let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().flat_map(|item| names.iter().map(|name| item[*name].clone())).collect()
}

/// The text of a stream.
pub(crate) fn streamed_text(format: WireFormat, events: &[Event]) -> String {
    let text = |event: &Event| -> String {
        let data = event.json();
        let said = match format {
            WireFormat::Chat | WireFormat::Images => &data["choices"][0]["delta"]["content"],
            WireFormat::Responses if data["type"] == "response.output_text.delta" => &data["delta"],
            WireFormat::Messages if data["type"] == "content_block_delta" => &data["delta"]["text"],
            WireFormat::Responses | WireFormat::Messages => &Value::Null,
            WireFormat::Native => {
                let parts = data["candidates"][0]["content"]["parts"].as_array();
                let parts = parts.map(Vec::as_slice).unwrap_or_default();
                return parts.iter().filter_map(|part| part["text"].as_str()).collect();
            }
        };
        said.as_str().unwrap_or_default().to_owned()
    };
    events.iter().map(text).collect()
}

/// Number of events that declare the stream complete.
pub(crate) fn ends(format: WireFormat, events: &[Event]) -> usize {
    let is_end = |event: &&Event| match format {
        WireFormat::Chat | WireFormat::Images => event.data == "[DONE]",
        WireFormat::Responses => event.json()["type"] == "response.completed",
        WireFormat::Messages => event.json()["type"] == "message_stop",
        WireFormat::Native => event.json()["candidates"][0]["finishReason"].is_string(),
    };
    events.iter().filter(is_end).count()
}
