//! Prompts of coding agents: prescribed calls, dictated words, summaries.

use super::*;

const STEPS: &str = "Use the ring_bell tool with {\"times\": 7}. Use the get_weather tool with \
                     {\"city\": \"Oslo\", \"detail\": \"short\"}.";

/// Appends the calls of an answer and their results to the conversation.
fn run(chat: &mut ChatRequest) -> Vec<ToolCall> {
    let called = calls(chat);
    let results = called.iter().map(|call| {
        Part::new(PartKind::ToolResult(ToolResult {
            call_id: call.id.clone(),
            name: None,
            parts: vec![Part::text(format!("result of {}", call.name))],
            object: None,
            is_error: false,
        }))
    });
    let results = results.collect();
    let parts = called.iter().cloned().map(|call| Part::new(PartKind::ToolCall(call))).collect();
    chat.turns.push(Turn::new(Role::Assistant, parts));
    chat.turns.push(Turn::new(Role::User, results));
    called
}

#[test]
fn prescribed_calls_are_made_one_after_the_other() {
    let mut chat = with_tools(STEPS, ToolChoiceMode::Auto);
    let (first, second) = (run(&mut chat), run(&mut chat));
    assert_eq!(first[0].name, "ring_bell");
    assert_eq!(first[0].arguments, "{\"times\": 7}");
    assert_eq!(second[0].name, "get_weather");
    assert_eq!(arguments(&second[0]), json!({"city": "Oslo", "detail": "short"}));
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first[0].id, second[0].id);
    assert!(calls(&chat).is_empty());
    assert!(text(&chat).starts_with("According to get_weather: result of get_weather."));
}

#[test]
fn a_prescribed_call_is_made_only_if_it_is_possible() {
    assert!(calls(&with_tools(STEPS, ToolChoiceMode::Disabled)).is_empty());
    let other = ToolChoiceMode::Tool("get_weather".to_owned());
    assert_eq!(calls(&with_tools(STEPS, other))[0].name, "get_weather");
    assert!(calls(&ask(STEPS)).is_empty());
}

#[test]
fn dictated_words_and_forbidden_tools_need_no_call() {
    let said = "Say exactly: \"\"\"get_weather\nof Oslo. Twice.\"\"\"";
    let mut chat = with_tools(said, ToolChoiceMode::Auto);
    chat.turns.insert(0, Turn::new(Role::System, vec![Part::text("Be brief.")]));
    assert_eq!(text(&chat), "get_weather\nof Oslo. Twice.");
    let chat = with_tools("Do not call any tools. get_weather?", ToolChoiceMode::Auto);
    assert!(calls(&chat).is_empty());
}

#[test]
fn a_summary_keeps_the_name_of_the_user() {
    for (request, front) in [
        ("Create a detailed summary of the conversation so far.", "The user"),
        ("Do NOT call tools: write a <summary> block.", "<summary>\n"),
        ("Generate a new <state_snapshot> of get_weather.", "<state_snapshot>\n"),
    ] {
        let mut chat = with_tools("My name is Ada. Let us talk.", ToolChoiceMode::Auto);
        chat.turns.push(Turn::new(Role::Assistant, vec![Part::text("Gladly.")]));
        chat.turns.push(Turn::new(Role::User, vec![Part::text(request)]));
        let summary = text(&chat);
        assert!(summary.starts_with(front), "{summary}");
        for role in [Role::User, Role::Assistant] {
            let mut later = ask("What is my name?");
            later.turns.insert(0, Turn::new(role, vec![Part::text(summary.clone())]));
            assert_eq!(text(&later), "You told me that your name is Ada.");
        }
    }
}
