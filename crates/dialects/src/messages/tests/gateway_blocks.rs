//! Blocks of the gateway itself in a history.

use super::*;

#[test]
fn gateway_blocks_are_removed_in_pass_through() {
    let mut parts = foreign();
    parts.insert(1, Part::new(PartKind::WebSearch(canon::WebSearch::default())));
    let own = PartKind::Thought(Thought { text: "mine".to_owned(), redacted: false });
    parts.push(Part::new(own).with_signature(Some(Signature::new(WireFormat::Messages, "RXE="))));
    let (blocks, _) = write_blocks(parts);
    let unsealed = json!({"type": "thinking", "thinking": "hm", "signature": ""});
    let body = json!({"model": "m", "max_tokens": 9, "messages": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": blocks},
        {"role": "assistant", "content": [unsealed]}]});
    let body = Bytes::from(body.to_string());
    let facts = MessagesDialect.read_facts(&RequestTarget::default(), &body).unwrap();
    let sent = MessagesDialect.patch(&body, &facts, &lane("n")).body.to_vec();
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    assert_eq!(
        sent["messages"][1]["content"],
        json!([
            {"type": "text", "text": "first"},
            {"type": "tool_use", "id": "x_0x3A_y", "name": "f", "input": {"a": 1}},
            {"type": "tool_use", "id": "z", "name": "f", "input": {}},
            {"type": "text", "text": "last"},
            {"type": "thinking", "thinking": "mine", "signature": "RXE="}])
    );
    assert_eq!(sent["messages"][2]["content"], json!([{"type": "text", "text": "…"}]));
    assert_eq!((&sent["model"], &sent["messages"][0]["content"]), (&json!("n"), &json!("x")));
}
