//! Refusals, and replies that end in one.

use super::*;

#[test]
fn thread_is_refused_with_the_code_its_runners_know() {
    let body = br#"{"model":"m","max_tokens":9,"thread":{"type":"create"},"messages":[]}"#;
    let fault = MessagesDialect.read_request(&RequestTarget::default(), body).unwrap_err();
    let (status, body) = MessagesDialect.write_error(&fault, "r");
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status, 400);
    let details = json!({"error_code": "thread_unsupported_request", "unsupported": ["thread"]});
    assert_eq!(body["error"]["details"], details);
}

#[test]
fn refusal_and_hidden_thinking_follow_the_format() {
    let thought = PartKind::Thought(Thought { text: "hm".to_owned(), redacted: false });
    let seal = Some(Signature::new(WireFormat::Native, "n"));
    let parts = vec![
        Part::new(thought.clone()).with_signature(seal),
        Part::new(thought),
        Part::new(PartKind::Refusal("I will not.".to_owned())),
    ];
    let finish = Some(Finish::new(FinishReason::Stop, RawReason::new(WireFormat::Chat, "stop")));
    let candidate = ReplyCandidate { parts, finish, ..ReplyCandidate::default() };
    let reply = ChatReply { candidates: vec![candidate], ..ChatReply::default() };
    let mut asked = ChatRequest::default();
    asked.thinking.display = Some(canon::ThinkingDisplay::Hidden);
    let (whole, _) = MessagesDialect.write_reply(reply.clone(), &asked, &stamp());
    let mut writer = MessagesDialect.stream_writer(&asked, &stamp());
    let mut out = Vec::new();
    for event in into_events(reply) {
        writer.push(event, &mut out);
    }
    writer.finish(&mut out);
    let whole = MessagesDialect.read_reply(&whole).unwrap().candidates;
    assert_eq!(folded(events(&frames(&[&out])).unwrap()).candidates, whole);
    assert_eq!(whole[0].finish.as_ref().unwrap().reason, FinishReason::ContentFilter);
    assert_eq!(whole[0].parts.len(), 2);
    assert_eq!(whole[0].parts[1], Part::text("I will not."));
}
