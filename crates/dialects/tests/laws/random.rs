//! Generated conversations through every pair of formats: no panic, and no text is lost.

use canon::{
    ChatRequest, FunctionTool, JsonSchema, Media, MediaKind, MediaSource, Part, PartKind, Role,
    Signature, Thought, Tool, ToolCall, ToolResult, Turn, WireFormat,
};
use dialects::LaneSettings;
use proptest::prelude::*;
use serde_json::json;

use crate::cases::{LANE, pairs, target};
use crate::pairs::assert_texts_kept;

/// A unique text with special characters.
fn words() -> impl Strategy<Value = String> {
    (0_u32..1_000_000, "[a-zé漢🌍\"\\\\\n\t{}<>&$` ]{0,20}")
        .prop_map(|(number, rest)| format!("w{number} {rest}."))
}

fn media() -> impl Strategy<Value = Part> {
    prop_oneof![
        Just((MediaKind::Image, "image/png", "iVBORw0KGgo=")),
        Just((MediaKind::Document, "application/pdf", "JVBERi0xLjQK")),
    ]
    .prop_map(|(kind, mime, data)| {
        let source = MediaSource::Inline { mime: mime.to_owned(), data: data.to_owned() };
        Part::new(PartKind::Media(Media { kind, source, name: None, detail: None, clip: None }))
    })
}

fn thought() -> impl Strategy<Value = Part> {
    let seal = prop::option::of((0..4_usize, "[a-zA-Z0-9+/]{8}"))
        .prop_map(|seal| seal.map(|(at, token)| Signature::new(WireFormat::ALL[at], token)));
    (words(), seal).prop_map(|(text, seal)| {
        Part::new(PartKind::Thought(Thought { text, redacted: false })).with_signature(seal)
    })
}

/// Output of the model, its calls, and their results.
type Exchange = (Vec<Part>, Vec<(String, String, bool)>);

fn exchange() -> impl Strategy<Value = Exchange> {
    let said = prop_oneof![3 => words().prop_map(Part::text), 1 => thought()];
    let result = (
        prop_oneof!["\\{\"a\":[0-9]{1,3}\\}", Just("{".to_owned()), Just(String::new())],
        words(),
        any::<bool>(),
    );
    (prop::collection::vec(said, 0..3), prop::collection::vec(result, 0..3))
}

fn user() -> impl Strategy<Value = Vec<Part>> {
    let part = prop_oneof![4 => words().prop_map(Part::text), 1 => media()];
    prop::collection::vec(part, 1..4)
}

fn chat() -> impl Strategy<Value = ChatRequest> {
    let system = prop::option::of((words(), any::<bool>()));
    let turns = prop::collection::vec((user(), exchange()), 1..4);
    (system, turns, user()).prop_map(|(system, exchanges, last)| {
        let mut turns = Vec::new();
        if let Some((text, developer)) = system {
            let role = if developer { Role::Developer } else { Role::System };
            turns.push(Turn::new(role, vec![Part::text(text)]));
        }
        let mut calls = 0;
        for (asked, (mut said, called)) in exchanges {
            turns.push(Turn::new(Role::User, asked));
            let mut results = Vec::new();
            for (arguments, text, failed) in called {
                calls += 1;
                let (id, name) = (format!("call_{calls}"), "look".to_owned());
                let call = ToolCall { id: id.clone(), name, arguments, custom: false };
                said.push(Part::new(PartKind::ToolCall(call)));
                let parts = vec![Part::text(text)];
                let result =
                    ToolResult { call_id: id, name: None, parts, object: None, is_error: failed };
                results.push(Part::new(PartKind::ToolResult(result)));
            }
            if said.is_empty() {
                said.push(Part::text("Hm."));
            }
            turns.push(Turn::new(Role::Assistant, said));
            if !results.is_empty() {
                turns.push(Turn::new(Role::User, results));
            }
        }
        turns.push(Turn::new(Role::User, last));
        let parameters = Some(JsonSchema::new(json!({"type": "object", "properties": {}})));
        let look = FunctionTool { name: "look".to_owned(), parameters, ..FunctionTool::default() };
        let tools = vec![Tool::Function(look)];
        ChatRequest { model: "house-large".to_owned(), turns, tools, ..ChatRequest::default() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_text_is_lost_between_any_two_formats(chat in chat()) {
        for (from, to) in pairs() {
            let case = format!("{} to {}", from.origin(), to.origin());
            // First in the caller's own format, as it would arrive.
            let lane = LaneSettings { model: &chat.model, max_payable_output: None, model_max_output: Some(8192), thinking_range: None, cache_field: Some(canon::CacheField::PromptCacheBreakpoint), client_tools: &[canon::ToolKind::Custom] };
            let (out, losses) = from.write_request(&chat, &lane).unwrap();
            let body = out.body.to_vec();
            let shown = String::from_utf8_lossy(&body).into_owned();
            prop_assert!(from.read_facts(&target(), &body).is_ok(), "{}: {:?}\n{}", case, from.read_facts(&target(), &body), shown);
            let asked = from.read_request(&target(), &body).unwrap();
            assert_texts_kept(&chat, &asked, &losses, &shown);
            let (out, losses) = to.write_request(&asked, &LANE).unwrap();
            let body = out.body.to_vec();
            let shown = String::from_utf8_lossy(&body).into_owned();
            prop_assert!(to.read_facts(&target(), &body).is_ok(), "{}: {:?}\n{}", case, to.read_facts(&target(), &body), shown);
            let again = to.read_request(&target(), &body).unwrap();
            assert_texts_kept(&asked, &again, &losses, &format!("{case}\n{shown}"));
        }
    }
}
