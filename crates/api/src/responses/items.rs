//! Items of a conversation as they are kept, shown and sent to a model.

use serde_json::{Map, Value, json};

/// Ids that the gateway gives to items, one after the other.
pub(crate) struct KeptItemIds {
    stamp: String,
    count: usize,
}

impl KeptItemIds {
    /// Creates ids that have the id of a request in them.
    pub(crate) fn new(request_id: &str) -> Self {
        let stamp = request_id.strip_prefix("req_").unwrap_or(request_id).to_owned();
        Self { stamp, count: 0 }
    }

    /// Returns a new id for an item.
    pub(crate) fn next_id(&mut self, item: &Value) -> String {
        let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
        let prefix = match kind {
            "message" => "msg",
            "reasoning" => "rs",
            "function_call" => "fc",
            "function_call_output" => "fco",
            "custom_tool_call" => "ctc",
            "custom_tool_call_output" => "ctco",
            "web_search_call" => "ws",
            "file_search_call" => "fs",
            "code_interpreter_call" => "ci",
            "image_generation_call" => "ig",
            "computer_call" => "cu",
            "compaction" => "cmp",
            _ => "item",
        };
        self.count += 1;
        format!("{prefix}_{}_{}", self.stamp, self.count)
    }
}

/// Turns plain text content into a list of parts, the form in which items are kept.
pub(super) fn expand_content(item: &mut Value) {
    let Some(item) = item.as_object_mut() else { return };
    let kind = if item.get("role").and_then(Value::as_str) == Some("assistant") {
        "output_text"
    } else {
        "input_text"
    };
    if let Some(content @ Value::String(_)) = item.get_mut("content") {
        let text = content.take();
        *content = match kind {
            "output_text" => json!([{ "type": kind, "text": text, "annotations": [] }]),
            _ => json!([{ "type": kind, "text": text }]),
        };
    }
}

/// Gives an item the type, the content and the id that it is kept with. Returns the id.
pub(crate) fn complete_item(item: &mut Value, ids: &mut KeptItemIds) -> String {
    expand_content(item);
    let own = item.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
    let id = own.map_or_else(|| ids.next_id(item), str::to_owned);
    let Some(fields) = item.as_object_mut() else { return id };
    // The type and the id stand before the rest, as in the items that a model makes.
    let rest = std::mem::take(fields);
    let kind = rest.get("type").cloned().unwrap_or_else(|| "message".into());
    fields.insert("type".to_owned(), kind);
    fields.insert("id".to_owned(), id.as_str().into());
    for (name, value) in rest {
        fields.entry(name).or_insert(value);
    }
    fields.insert("id".to_owned(), id.as_str().into());
    id
}

/// Returns an item as it is shown.
pub(crate) fn shown_item(text: &str) -> Value {
    let mut item: Value = dialects::json::read(text).unwrap_or_default();
    if let Some(fields) = item.as_object_mut()
        && has_status(fields)
    {
        fields.entry("status").or_insert_with(|| "completed".into());
    }
    item
}

fn has_status(item: &Map<String, Value>) -> bool {
    let kind = item.get("type").and_then(Value::as_str);
    matches!(kind, Some("message" | "function_call" | "function_call_output"))
}

/// Returns an item as it is sent to a model. Input has no id, as if the caller had sent it now.
pub(super) fn sent_item(text: &str) -> Value {
    let mut item: Value = dialects::json::read(text).unwrap_or_default();
    if let Some(fields) = item.as_object_mut()
        && is_input(fields)
    {
        fields.shift_remove("id");
    }
    item
}

fn is_input(item: &Map<String, Value>) -> bool {
    let word = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
    match word("type") {
        "message" => word("role") != "assistant",
        kind => kind.ends_with("_output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_completed_once_and_sent_as_it_came() {
        let mut ids = KeptItemIds::new("req_7");
        let mut item = json!({ "role": "user", "content": "Hi" });
        assert_eq!(complete_item(&mut item, &mut ids), "msg_7_1");
        let kept = json!({ "type": "message", "id": "msg_7_1", "role": "user",
            "content": [{ "type": "input_text", "text": "Hi" }] });
        assert_eq!(item.to_string(), kept.to_string());
        assert_eq!(complete_item(&mut item, &mut ids), "msg_7_1");
        assert_eq!(item.to_string(), kept.to_string());
        let sent = json!({ "type": "message", "role": "user",
            "content": [{ "type": "input_text", "text": "Hi" }] });
        assert_eq!(sent_item(&item.to_string()).to_string(), sent.to_string());
        assert_eq!(shown_item(&item.to_string())["status"], "completed");
        let answer =
            json!({ "type": "message", "role": "assistant", "id": "msg_1", "content": [] });
        assert_eq!(sent_item(&answer.to_string()), answer);
    }
}
