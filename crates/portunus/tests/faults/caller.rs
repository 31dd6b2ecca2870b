//! The four formats as a caller writes and reads them.

use canon::Origin;
use serde_json::{Value, json};
use testkit::Got;

/// The text every model is to say: long enough to break off, with characters of every length.
pub(crate) const TEXT: &str = "The harbour is quiet at dawn and gulls wheel over the façade of \
    the old customs house – naïve tourists, 港口, ships 🚢 and a tide that turns as slowly as ever";

/// The formats callers speak.
pub(crate) const FORMATS: [Origin; 4] =
    [Origin::Chat, Origin::Responses, Origin::Messages, Origin::Native];

/// A request for the text, with something before it.
pub(crate) fn ask(format: Origin, model: &str, before: &str, stream: bool) -> (String, Value) {
    let text = format!("{before} Say exactly: {TEXT}");
    let user = json!([{ "role": "user", "content": text }]);
    match format {
        Origin::Chat | Origin::Images => (
            "/v1/chat/completions".to_owned(),
            json!({ "model": model, "messages": user, "stream": stream, "max_tokens": 200 }),
        ),
        Origin::Responses => (
            "/v1/responses".to_owned(),
            json!({ "model": model, "input": user, "stream": stream, "max_output_tokens": 200,
                    "store": false }),
        ),
        Origin::Messages => (
            "/v1/messages".to_owned(),
            json!({ "model": model, "messages": user, "stream": stream, "max_tokens": 200 }),
        ),
        Origin::Native => {
            let operator = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
            (
                format!("/v1beta/models/{model}:{operator}"),
                json!({ "contents": [{ "role": "user", "parts": [{ "text": text }] }],
                        "generationConfig": { "maxOutputTokens": 200 } }),
            )
        }
    }
}

/// The text of a whole answer.
pub(crate) fn whole_text(format: Origin, got: &Got) -> String {
    let body = got.json();
    let texts = |list: &Value| -> String {
        let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter().filter_map(|part| part["text"].as_str()).collect()
    };
    match format {
        Origin::Chat | Origin::Images => {
            body["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
        }
        Origin::Responses => {
            let items = body["output"].as_array().cloned().unwrap_or_default();
            items.iter().map(|item| texts(&item["content"])).collect()
        }
        Origin::Messages => texts(&body["content"]),
        Origin::Native => texts(&body["candidates"][0]["content"]["parts"]),
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
pub(crate) fn events(format: Origin, got: &Got) -> Result<Vec<Event>, String> {
    let text = std::str::from_utf8(&got.body).map_err(|_| "the stream is not UTF-8".to_owned())?;
    let mut events = Vec::new();
    for block in text.split("\n\n").filter(|block| !block.is_empty()) {
        let mut event = Event { name: None, data: String::new() };
        for line in block.lines() {
            if let Some(data) = line.strip_prefix("data: ") {
                event.data.push_str(data);
            } else if let Some(name) = line.strip_prefix("event: ")
                && format != Origin::Native
            {
                event.name = Some(name.to_owned());
            } else if !line.starts_with(':') || format == Origin::Native {
                return Err(format!("a line no client of this format takes: {line:?}"));
            }
        }
        if event.name.is_some() || !event.data.is_empty() {
            events.push(event);
        }
    }
    Ok(events)
}

/// The text of a stream.
pub(crate) fn streamed_text(format: Origin, events: &[Event]) -> String {
    let text = |event: &Event| -> String {
        let data = event.json();
        let said = match format {
            Origin::Chat | Origin::Images => &data["choices"][0]["delta"]["content"],
            Origin::Responses if data["type"] == "response.output_text.delta" => &data["delta"],
            Origin::Messages if data["type"] == "content_block_delta" => &data["delta"]["text"],
            Origin::Responses | Origin::Messages => &Value::Null,
            Origin::Native => {
                let parts = data["candidates"][0]["content"]["parts"].as_array();
                let parts = parts.map(Vec::as_slice).unwrap_or_default();
                return parts.iter().filter_map(|part| part["text"].as_str()).collect();
            }
        };
        said.as_str().unwrap_or_default().to_owned()
    };
    events.iter().map(text).collect()
}

/// How often a stream says that it is complete.
pub(crate) fn ends(format: Origin, events: &[Event]) -> usize {
    let is_end = |event: &&Event| match format {
        Origin::Chat | Origin::Images => event.data == "[DONE]",
        Origin::Responses => event.json()["type"] == "response.completed",
        Origin::Messages => event.json()["type"] == "message_stop",
        Origin::Native => event.json()["candidates"][0]["finishReason"].is_string(),
    };
    events.iter().filter(is_end).count()
}
