//! Properties and examples of the model.

mod counts;
mod native_fields;
mod scripts;

use super::*;
use crate::tokens;
use canon::{
    EffortLevel, ExtraFields, FinishReason, FunctionTool, JsonSchema, Media, MediaKind,
    MediaSource, Role, SamplingOptions, Signature, ThinkingDisplay, ThinkingOptions, Thought, Tool,
    ToolCall, ToolChoiceMode, ToolResult, Turn, WebSearchTool,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn ask(text: &str) -> ChatRequest {
    let turns = vec![Turn::new(Role::User, vec![Part::text(text)])];
    ChatRequest { model: "demo-chat".to_owned(), turns, ..ChatRequest::default() }
}

fn reply(chat: &ChatRequest, origin: WireFormat) -> ChatReply {
    answer(chat, Persona::Model, origin).unwrap()
}

fn parts(chat: &ChatRequest) -> Vec<Part> {
    reply(chat, WireFormat::Chat).candidates.remove(0).parts
}

fn text(chat: &ChatRequest) -> String {
    parts(chat).iter().filter_map(Part::as_text).collect()
}

fn why(reply: &ChatReply) -> FinishReason {
    reply.candidates[0].finish.as_ref().unwrap().reason
}

fn function(name: &str, description: &str, shape: Value) -> Tool {
    Tool::Function(FunctionTool {
        name: name.to_owned(),
        description: Some(description.to_owned()),
        parameters: Some(JsonSchema::new(shape)),
        ..FunctionTool::default()
    })
}

fn weather() -> Tool {
    function(
        "get_weather",
        "Tells how warm and windy a town is",
        json!({"type": "object", "properties": {
            "city": {"type": "string", "minLength": 1},
            "detail": {"enum": ["short", "hourly"]}},
            "required": ["city", "detail"], "additionalProperties": false}),
    )
}

fn bell() -> Tool {
    function(
        "ring_bell",
        "",
        json!({"type": "object", "properties": {"times": {"type": "integer", "minimum": 1}}, "required": ["times"]}),
    )
}

fn with_tools(text: &str, choice: ToolChoiceMode) -> ChatRequest {
    let mut chat = ChatRequest { tools: vec![weather(), bell()], ..ask(text) };
    chat.tool_choice.mode = choice;
    chat
}

fn calls(chat: &ChatRequest) -> Vec<ToolCall> {
    parts(chat)
        .into_iter()
        .filter_map(|part| if let PartKind::ToolCall(call) = part.kind { Some(call) } else { None })
        .collect()
}

fn arguments(call: &ToolCall) -> Value {
    serde_json::from_str(&call.arguments).unwrap()
}

fn cities(chat: &ChatRequest) -> Vec<String> {
    let city = |call: ToolCall| arguments(&call)["city"].as_str().unwrap().to_owned();
    calls(chat).into_iter().map(city).collect()
}

// ---- laws

fn some_text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("Tell me a short story".to_owned()),
        Just("Tell me a long story".to_owned()),
        Just("What is the weather in Paris and Tokyo?".to_owned()),
        Just("Look up the tides of May?".to_owned()),
        Just("Run 12 * 12".to_owned()),
        any::<String>(),
    ]
}

fn some_origin() -> impl Strategy<Value = WireFormat> {
    prop::sample::select(WireFormat::ALL.to_vec())
}

fn some_chat() -> impl Strategy<Value = ChatRequest> {
    let thinking = prop_oneof![
        Just(ThinkingOptions::default()),
        prop::sample::select(EffortLevel::ALL.to_vec())
            .prop_map(|level| ThinkingOptions { level: Some(level), ..ThinkingOptions::default() }),
        (0_u64..60).prop_map(|budget| ThinkingOptions {
            budget: Some(budget),
            display: Some(ThinkingDisplay::Auto),
            ..ThinkingOptions::default()
        }),
    ];
    let tools = prop::sample::subsequence(
        vec![
            weather(),
            bell(),
            Tool::WebSearch(WebSearchTool::default()),
            Tool::CodeExecution(ExtraFields::new()),
        ],
        0..=4,
    );
    let choice = prop::sample::select(vec![
        ToolChoiceMode::Unset,
        ToolChoiceMode::Disabled,
        ToolChoiceMode::Required,
    ]);
    let limit = prop::option::of(1_u64..120);
    (some_text(), thinking, tools, choice, limit, 1_u32..4, prop::option::of(0_u32..4)).prop_map(
        |(text, thinking, tools, choice, max_output, candidates, logprobs)| {
            let mut chat = ChatRequest { thinking, tools, ..ask(&text) };
            chat.tool_choice.mode = choice;
            chat.sampling = SamplingOptions {
                max_output_tokens: max_output,
                logprobs,
                candidates: Some(candidates),
                ..SamplingOptions::default()
            };
            chat
        },
    )
}

/// Counts the tokens of the visible parts of an answer.
fn recount(reply: &ChatReply) -> u64 {
    let parts = reply.candidates.iter().flat_map(|candidate| &candidate.parts);
    parts
        .map(|part| match &part.kind {
            PartKind::Text { text, .. } | PartKind::Refusal(text) => tokens::count(text),
            PartKind::Thought(thought) => tokens::count(&thought.text),
            PartKind::ToolCall(call) => tokens::count(&call.name) + tokens::count(&call.arguments),
            PartKind::CodeExecution(code) => tokens::count(&code.code),
            PartKind::Media(_)
            | PartKind::ToolResult(_)
            | PartKind::CodeResult(_)
            | PartKind::WebSearch(_)
            | PartKind::Foreign { .. } => 0,
        })
        .sum()
}

proptest! {
    #[test]
    fn the_same_request_has_the_same_answer(chat in some_chat(), origin in some_origin()) {
        let streamed = ChatRequest { stream: true, ..chat.clone() };
        prop_assert_eq!(reply(&chat, origin), reply(&streamed, origin));
    }

    #[test]
    fn limits_are_obeyed_and_usage_adds_up(chat in some_chat(), origin in some_origin()) {
        let reply = reply(&chat, origin);
        let usage = reply.usage.unwrap();
        prop_assert_eq!(usage, usage.with_whole_sums());
        prop_assert!(usage.input > 0);
        let count = u64::from(chat.sampling.candidates.unwrap());
        prop_assert_eq!(reply.candidates.len() as u64, count);
        let limit = chat.sampling.max_output_tokens.unwrap_or(u64::MAX);
        prop_assert!(usage.output <= limit.saturating_mul(count));
        if count == 1 && why(&reply) == FinishReason::Length {
            prop_assert_eq!(usage.output, limit);
        }
        let finished = reply.candidates.iter().all(|c| c.finish.as_ref().unwrap().reason != FinishReason::Length);
        let hidden = matches!(origin, WireFormat::Responses | WireFormat::Native | WireFormat::Images)
            && chat.thinking.display.is_none();
        if finished {
            let unseen = if hidden { usage.thinking } else { 0 };
            prop_assert_eq!(usage.output, recount(&reply) + unseen);
        }
    }

    #[test]
    fn the_answer_in_pieces_is_the_answer(chat in some_chat(), origin in some_origin()) {
        let reply = reply(&chat, origin);
        let (mut grammar, mut fold) = (canon::EventGrammar::default(), canon::ReplyBuilder::default());
        for event in crate::pieces::events(reply.clone()) {
            prop_assert_eq!(grammar.push(&event), Ok(()));
            prop_assert_eq!(fold.push(event), Ok(()));
        }
        prop_assert_eq!(grammar.finish(), Ok(()));
        prop_assert_eq!(fold.finish(), reply);
    }

    #[test]
    fn a_text_ends_before_its_stop_text(at in any::<prop::sample::Index>(), length in 1_usize..6) {
        let full = text(&ask("Tell me a short story"));
        let letters: Vec<char> = full.chars().collect();
        let start = at.index(letters.len() - length);
        let stop: String = letters[start..start + length].iter().collect();
        let mut chat = ask("Tell me a short story");
        chat.sampling.stop_sequences = vec!["never there".to_owned(), stop.clone()];
        let reply = reply(&chat, WireFormat::Chat);
        let finish = reply.candidates[0].finish.as_ref().unwrap();
        prop_assert_eq!((finish.reason, finish.stop_sequence.as_deref()), (FinishReason::StopSequence, Some(&*stop)));
        let cut = text(&chat);
        prop_assert!(full.starts_with(&cut) && !cut.contains(&stop));
    }

    #[test]
    fn echo_returns_the_text_unchanged(said in any::<String>()) {
        let reply = answer(&ask(&said), Persona::Echo, WireFormat::Chat).unwrap();
        prop_assert_eq!(reply.candidates[0].parts[0].as_text(), Some(&*said));
    }

    #[test]
    fn generated_json_fits_its_schema(schema in some_schema(), said in some_text()) {
        let chat = ask(&said);
        let prompt = Prompt::read(&chat);
        for item in 0..3 {
            let value = instance::InstanceBuilder::new(&prompt, &schema, SeededRandom::new(item), 0).make();
            prop_assert!(check::fits(&schema, &schema, &value), "{value} for {schema}");
        }
    }
}

fn some_schema() -> impl Strategy<Value = Value> {
    let word = |low: &'static str, high: &'static str| prop::sample::select(vec![low, high]);
    let leaf = prop_oneof![
        (0_u64..12, 0_u64..12, word("string", "STRING")).prop_map(|(low, more, kind)| {
            json!({"type": kind, "minLength": low, "maxLength": low + more})
        }),
        (-50_i64..50, 0_i64..9, word("integer", "INTEGER")).prop_map(|(low, more, kind)| {
            json!({"type": kind, "minimum": low, "maximum": low + more})
        }),
        (-50_i64..50, 1_i64..7).prop_map(|(low, step)| {
            json!({"type": "integer", "exclusiveMinimum": low, "multipleOf": step})
        }),
        (-9.0_f64..9.0, 0.1_f64..3.0).prop_map(|(low, more)| {
            json!({"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": low + more})
        }),
        Just(json!({"type": "boolean"})),
        Just(json!({"type": "null"})),
        Just(json!({"type": ["null", "string"]})),
        Just(json!({"type": "STRING", "nullable": true, "format": "date-time"})),
        Just(json!({"enum": ["red", 2, null]})),
        Just(json!({"const": {"a": [1]}})),
        Just(json!({"$ref": "#/$defs/leaf"})),
        Just(json!({})),
        Just(json!(true)),
    ];
    let tree = leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            (prop::collection::vec(inner.clone(), 1..4), any::<u8>(), any::<bool>()).prop_map(
                |(fields, required, closed)| {
                    let names = ["city", "name", "age", "x"];
                    let needed: Vec<&str> = names
                        .iter()
                        .take(fields.len())
                        .enumerate()
                        .filter(|(at, _)| required >> at & 1 == 1)
                        .map(|(_, name)| *name)
                        .collect();
                    let fields: Map<String, Value> =
                        names.iter().map(|name| (*name).to_owned()).zip(fields).collect();
                    json!({"type": "object", "properties": fields, "required": needed,
                           "additionalProperties": !closed})
                }
            ),
            (inner.clone(), 0_u64..4, 0_u64..4).prop_map(|(items, low, more)| {
                json!({"type": "array", "items": items, "minItems": low, "maxItems": low + more})
            }),
            (inner.clone(), inner.clone()).prop_map(|(one, two)| json!({"anyOf": [one, two]})),
            inner.clone().prop_map(|one| json!({"oneOf": [{"type": "null"}, {"type": "object",
                "properties": {"kind": {"const": "a"}, "inner": one}, "required": ["kind"]}]})),
            inner.prop_map(|one| json!({"allOf": [
                {"type": "object", "properties": {"a": one}, "required": ["a"]},
                {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}]})),
        ]
    });
    tree.prop_map(|mut schema| {
        if let Value::Object(object) = &mut schema {
            object.insert("$defs".to_owned(), json!({"leaf": {"type": "integer", "minimum": 3}}));
        } else {
            schema = json!({"type": "string"});
        }
        schema
    })
}

// ---- cases

#[test]
fn schemas_as_people_write_them_are_met() {
    let schemas = [
        json!({"type": "object", "properties": {"ship": {"type": "string"}, "masts": {"type": "integer"},
            "crew": {"type": "array", "items": {"type": "string"}}}, "required": ["ship", "masts", "crew"],
            "additionalProperties": false}),
        json!({"type": "ARRAY", "minItems": "3", "items": {"type": "OBJECT", "properties":
            {"city": {"type": "STRING", "minLength": "2"}}, "required": ["city"]}}),
        json!({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
            "value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["value", "next", "children"]}}}),
        json!({"type": "array", "uniqueItems": true, "minItems": 3, "items": {"enum": ["a", "b", "c"]}}),
        json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": false}),
        json!({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2}),
        json!({"type": "object", "required": ["free"]}),
        json!({"type": "integer", "minimum": 5, "exclusiveMinimum": true}),
        json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}),
        json!({"type": "number", "minimum": 0, "maximum": 1}),
        json!({"definitions": {"color": {"enum": ["red", "blue"]}}, "properties":
            {"color": {"$ref": "#/definitions/color"}}}),
    ];
    for schema in schemas {
        let chat = ChatRequest {
            response_format: ResponseFormat::Schema {
                name: None,
                description: None,
                schema: JsonSchema::new(schema.clone()),
                strict: Some(true),
            },
            ..ask("Describe one of the ships")
        };
        let value: Value = serde_json::from_str(&text(&chat)).unwrap();
        assert!(check::fits(&schema, &schema, &value), "{value} for {schema}");
    }
}

#[test]
fn absurd_schemas_end() {
    let bomb = json!({"$defs": {"a": {"type": "array", "minItems": 1_000_000_000, "items": {"$ref": "#/$defs/a"}},
        "b": {"$ref": "#/$defs/b"}, "c": {"allOf": [{"$ref": "#/$defs/c"}, {"$ref": "#/$defs/c"}]},
        "d": {"type": "object", "properties": {"d": {"$ref": "#/$defs/d"}, "e": {"$ref": "#/$defs/d"}},
              "required": ["d", "e"]},
        "f": {"anyOf": [{"$ref": "#/$defs/f"}, {"$ref": "#/$defs/f"}]},
        "g": {"oneOf": [{"$ref": "#/$defs/g"}, {"$ref": "#/$defs/g"}]},
        "h": {"allOf": vec![json!({"$ref": "#/$defs/h"}); 32]}}});
    for name in ["a", "b", "c", "d", "f", "g", "h"] {
        let mut schema = bomb.clone();
        schema["$ref"] = Value::from(format!("#/$defs/{name}"));
        let chat = ask("x");
        let prompt = Prompt::read(&chat);
        instance::InstanceBuilder::new(&prompt, &schema, SeededRandom::new(1), 0).make();
    }
}

#[test]
fn simple_questions_are_answered() {
    assert!(text(&ask("What is 2+2?")).contains("= 4"));
    assert!(text(&ask("What is the capital of France?")).contains("Paris"));
    assert!(text(&ask("Hello there")).starts_with("Hello!"));
    assert!(text(&ask("Who are you?")).contains("demo model"));
    assert!(text(&ask("Explain quantum entanglement")).contains("entanglement"));
    assert_eq!(text(&ask("Count to 4")), "1, 2, 3, 4.");
    assert!(text(&ask("Tell me a long story")).matches("\n\n").count() >= 3);
    assert!(!text(&ask("")).is_empty());
}

#[test]
fn instructions_to_be_brief_are_obeyed() {
    let mut chat = ask("Hello there");
    let full = text(&chat);
    chat.turns.insert(0, Turn::new(Role::System, vec![Part::text("Be brief.")]));
    let brief = text(&chat);
    assert!(full.starts_with(&brief) && brief.len() < full.len(), "{brief}");
}

#[test]
fn a_seed_varies_the_text_only_when_it_is_given() {
    let with = |seed| {
        let mut chat = ask("Tell me a short story");
        chat.sampling.seed = seed;
        text(&chat)
    };
    assert_eq!(with(None), with(None));
    assert_eq!(with(Some(7)), with(Some(7)));
    let different: std::collections::BTreeSet<String> = (0..10).map(|s| with(Some(s))).collect();
    assert!(different.len() > 5);
}

#[test]
fn several_answers_differ() {
    for question in ["Say something", "2+2?", "Hello"] {
        let mut chat = ask(question);
        chat.sampling.candidates = Some(20);
        let reply = reply(&chat, WireFormat::Chat);
        let said = |c: &canon::ReplyCandidate| c.parts[0].as_text().unwrap().to_owned();
        let all: std::collections::BTreeSet<String> = reply.candidates.iter().map(said).collect();
        assert_eq!(all.len(), 20);
    }
}

#[test]
fn a_forced_tool_is_called_with_fitting_arguments() {
    let chat = with_tools("What is the weather in Paris?", ToolChoiceMode::Required);
    let calls = calls(&chat);
    assert_eq!(calls.len(), 1);
    assert_eq!((calls[0].name.as_str(), calls[0].custom), ("get_weather", false));
    assert_eq!(arguments(&calls[0])["city"], "Paris");
    assert_eq!(arguments(&calls[0])["detail"], "short");
    assert!(calls[0].id.starts_with("call_") && calls[0].id.len() == 29);
    assert_eq!(why(&reply(&chat, WireFormat::Chat)), FinishReason::ToolCalls);
}

#[test]
fn the_choice_decides_which_tool_is_called() {
    let names = |text: &str, choice| {
        let all = calls(&with_tools(text, choice));
        all.into_iter().map(|call| call.name).collect::<Vec<_>>()
    };
    let among = |required| ToolChoiceMode::AnyOf { names: vec!["ring_bell".to_owned()], required };
    let none: [&str; 0] = [];
    assert_eq!(names("hello", ToolChoiceMode::Tool("ring_bell".to_owned())), ["ring_bell"]);
    assert_eq!(names("hello", among(true)), ["ring_bell"]);
    assert_eq!(names("hello", among(false)), none);
    assert_eq!(names("hello", ToolChoiceMode::Required), ["get_weather"]);
    assert_eq!(names("hello", ToolChoiceMode::Auto), none);
    assert_eq!(names("What is the weather in Paris?", ToolChoiceMode::Unset), ["get_weather"]);
    assert_eq!(names("What is the weather in Paris?", among(false)), none);
    assert_eq!(names("What is the weather in Paris?", ToolChoiceMode::Disabled), none);
}

#[test]
fn several_names_make_several_calls_unless_forbidden() {
    let mut chat = with_tools("Weather in Paris and Tokyo, hourly?", ToolChoiceMode::Auto);
    assert_eq!(cities(&chat), ["Paris", "Tokyo"]);
    let made = calls(&chat);
    assert!(made[0].id != made[1].id && arguments(&made[0])["detail"] == "hourly");
    chat.tool_choice.parallel = Some(false);
    assert_eq!(cities(&chat), ["Paris"]);
}

#[test]
fn results_are_told_in_words() {
    let mut chat = with_tools("Weather in Paris?", ToolChoiceMode::Unset);
    let asked = parts(&chat);
    let PartKind::ToolCall(call) = &asked[0].kind else { panic!("no call") };
    let result = |failed, text: &str| {
        Part::new(PartKind::ToolResult(ToolResult {
            call_id: call.id.clone(),
            name: None,
            parts: vec![Part::text(text)],
            object: None,
            is_error: failed,
        }))
    };
    chat.turns.push(Turn::new(Role::Assistant, asked.clone()));
    let mut failed = chat.clone();
    chat.turns.push(Turn::new(
        Role::User,
        vec![result(false, r#"{"temp":21}"#), Part::text("(a reminder)")],
    ));
    let said = text(&chat);
    assert!(said.contains("get_weather") && said.contains("temp is 21"), "{said}");
    failed.turns.push(Turn::new(Role::User, vec![result(true, "down")]));
    assert!(text(&failed).contains("problem: down"));
    chat.turns.push(Turn::new(Role::Assistant, vec![Part::text(said)]));
    chat.turns.push(Turn::new(Role::User, vec![Part::text("And the weather in Oslo?")]));
    assert_eq!(cities(&chat), ["Oslo"]);
    let ids: Vec<String> = calls(&chat).into_iter().map(|call| call.id).collect();
    assert!(!ids.contains(&call.id));
}

#[test]
fn a_custom_tool_gets_free_text() {
    let custom = |grammar| Tool::Custom {
        name: "note".to_owned(),
        description: None,
        grammar,
        extras: ExtraFields::new(),
    };
    let mut chat = ChatRequest { tools: vec![custom(None)], ..ask("write this down") };
    chat.tool_choice.mode = ToolChoiceMode::Required;
    assert_eq!(
        (calls(&chat)[0].arguments.as_str(), calls(&chat)[0].custom),
        ("write this down", true)
    );
    chat.tools = vec![custom(Some(json!({"type": "grammar",
        "grammar": {"syntax": "regex", "definition": "^(on|off)$"}})))];
    assert_eq!(calls(&chat)[0].arguments, "on");
}

#[test]
fn json_is_given_when_asked_for() {
    let chat = ChatRequest { response_format: ResponseFormat::Json, ..ask("capital of France") };
    let value: Value = serde_json::from_str(&text(&chat)).unwrap();
    assert!(value["answer"].as_str().unwrap().contains("Paris"));
}

#[test]
fn thinking_is_shown_sealed_and_counted_as_each_format_does() {
    for origin in WireFormat::ALL {
        for show in [None, Some(ThinkingDisplay::Hidden), Some(ThinkingDisplay::Auto)] {
            let mut chat = ask("Think about 5*5");
            chat.thinking = ThinkingOptions {
                budget: Some(1_024),
                display: show,
                ..ThinkingOptions::default()
            };
            let reply = reply(&chat, origin);
            let usage = reply.usage.unwrap();
            assert!(usage.thinking > 0 && usage.thinking < usage.output);
            let parts = &reply.candidates[0].parts;
            let seals = parts.iter().filter(|part| part.signature.is_some()).count();
            assert_eq!(seals, 1, "{origin} {show:?}");
            let shown = show == Some(ThinkingDisplay::Auto)
                || (show.is_none() && matches!(origin, WireFormat::Chat | WireFormat::Messages));
            match (&parts[0].kind, origin) {
                (PartKind::Thought(Thought { text, .. }), _) => assert_eq!(!text.is_empty(), shown),
                (_, origin) => assert!(origin == WireFormat::Native && !shown),
            }
            chat.turns.push(Turn::new(Role::Assistant, parts.clone()));
            chat.turns.push(Turn::new(Role::User, vec![Part::text("And 3+3?")]));
            assert!(answer(&chat, Persona::Model, origin).is_ok());
        }
    }
    let mut chat = ask("hi");
    chat.thinking.level = Some(EffortLevel::Off);
    assert_eq!(reply(&chat, WireFormat::Chat).usage.unwrap().thinking, 0);
}

#[test]
fn a_damaged_seal_in_the_history_is_refused() {
    let mut chat = ask("hi");
    let thought = Part::new(PartKind::Thought(Thought::default()));
    let seal = Some(Signature::new(WireFormat::Messages, "ZGFtYWdlZA=="));
    chat.turns.insert(0, Turn::new(Role::Assistant, vec![thought.with_signature(seal)]));
    let fault = answer(&chat, Persona::Model, WireFormat::Messages).unwrap_err();
    assert_eq!(fault.kind(), canon::ErrorKind::InvalidRequest);
    assert!(answer(&chat, Persona::Model, WireFormat::Chat).is_ok());
}

#[test]
fn a_native_call_is_sealed_even_without_thinking() {
    let chat = with_tools("Weather in Paris and Tokyo?", ToolChoiceMode::Required);
    let parts = &reply(&chat, WireFormat::Native).candidates[0].parts;
    assert_eq!(
        parts.iter().map(|part| part.signature.is_some()).collect::<Vec<_>>(),
        [true, false]
    );
}

#[test]
fn searches_are_grounded() {
    let mut chat = ask("Look up the tides of May");
    chat.tools = vec![Tool::WebSearch(WebSearchTool::default())];
    let reply = reply(&chat, WireFormat::Native);
    let parts = &reply.candidates[0].parts;
    let PartKind::WebSearch(search) = &parts[0].kind else { panic!("no search") };
    assert_eq!(search.queries, ["Look up the tides of May"]);
    assert!(search.results.iter().all(|(url, _)| url.starts_with("https://example.com/")));
    let PartKind::Text { text, citations } = &parts[1].kind else { panic!("no text") };
    for citation in citations {
        let (start, end) = citation.span.unwrap();
        let stretch: String = text.chars().skip(start).take(end - start).collect();
        assert_eq!(citation.quote.as_deref(), Some(&*stretch));
    }
    assert_eq!((citations.len(), reply.usage.unwrap().searches), (2, 1));
    assert!(!parts_of_greeting().iter().any(|part| matches!(part.kind, PartKind::WebSearch(_))));
}

fn parts_of_greeting() -> Vec<Part> {
    parts(&ChatRequest {
        tools: vec![Tool::WebSearch(WebSearchTool::default())],
        ..ask("Hello there")
    })
}

#[test]
fn code_is_run_when_offered() {
    let chat =
        ChatRequest { tools: vec![Tool::CodeExecution(ExtraFields::new())], ..ask("Run 6*7") };
    let parts = parts(&chat);
    assert!(matches!(&parts[0].kind, PartKind::CodeExecution(code) if code.code == "print(6 * 7)"));
    assert!(matches!(&parts[1].kind, PartKind::CodeResult(outcome) if outcome.output == "42\n"));
}
