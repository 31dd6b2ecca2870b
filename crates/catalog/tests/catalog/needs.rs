//! The door: what a record says that a model cannot do is refused, and what it does not say is not.

use canon::{JsonOutput, MediaKind, Modality, NeedKind, RequestNeeds, ToolKind};
use catalog::{CapabilityTable, Lane, Model, ModelCapabilities, ModelDirectory, ThinkingSupport};

fn demo(id: &str) -> Option<Model> {
    ModelDirectory::embedded().model(id)?.served_by(|_| true)
}

fn refusal(model: &Model, need: NeedKind) -> Option<String> {
    let mut needs = RequestNeeds::default();
    needs.add("here", need);
    let refused = model.check_needs(&needs).err()?;
    assert_eq!(refused.param(), Some("here"));
    Some(refused.message().to_owned())
}

fn all_needs() -> Vec<NeedKind> {
    vec![
        NeedKind::Media(MediaKind::Video),
        NeedKind::Output(Modality::Audio),
        NeedKind::AspectRatio("1:9".into()),
        NeedKind::ImageSize("9K".into()),
        NeedKind::ThinkingBudget(9_999_999),
        NeedKind::ThinkingLevel,
        NeedKind::Tool(ToolKind::Function),
        NeedKind::UnknownTool("smell".into()),
        NeedKind::Json(JsonOutput::Schema),
        NeedKind::Logprobs,
        NeedKind::Candidates(99),
        NeedKind::Dimensions(9_999_999),
    ]
}

#[test]
fn a_record_refuses_what_it_rules_out() {
    for (id, need, word) in [
        ("demo-echo", NeedKind::Media(MediaKind::Image), "it takes text"),
        ("demo-echo", NeedKind::Output(Modality::Image), "it makes text"),
        ("demo-echo", NeedKind::ThinkingBudget(512), "asks `demo-echo` to think"),
        ("demo-echo", NeedKind::ThinkingLevel, "asks `demo-echo` to think"),
        ("demo-echo", NeedKind::Tool(ToolKind::Function), "it uses no tools"),
        ("demo-echo", NeedKind::Json(JsonOutput::Object), "asks for json"),
        ("demo-chat", NeedKind::Tool(ToolKind::Mcp), "kind mcp"),
        ("demo-chat", NeedKind::UnknownTool("smell".into()), "`smell`; it uses function, custom"),
        ("demo-chat", NeedKind::Candidates(9), "at most 8"),
        ("demo-chat", NeedKind::ThinkingBudget(8_193), "between 0 and 8192"),
        ("demo-image-native", NeedKind::AspectRatio("1:9".into()), "21:9"),
        ("demo-image-native", NeedKind::ImageSize("8K".into()), "1K, 2K, 4K"),
        ("demo-embed", NeedKind::Dimensions(4_097), "1 to 4096"),
    ] {
        let message = refusal(&demo(id).unwrap(), need.clone());
        assert!(
            message.as_ref().is_some_and(|why| why.contains(word)),
            "{id} {need:?} {message:?}"
        );
    }
}

#[test]
fn a_record_takes_what_it_lists() {
    for (id, need) in [
        ("demo-echo", NeedKind::Media(MediaKind::Document)),
        ("demo-chat", NeedKind::Media(MediaKind::Video)),
        ("demo-chat", NeedKind::ThinkingBudget(8_192)),
        ("demo-chat", NeedKind::ThinkingLevel),
        ("demo-chat", NeedKind::Tool(ToolKind::Function)),
        ("demo-chat", NeedKind::Tool(ToolKind::Maps)),
        ("demo-chat", NeedKind::Json(JsonOutput::Schema)),
        ("demo-chat", NeedKind::Logprobs),
        ("demo-chat", NeedKind::Candidates(8)),
        ("demo-embed", NeedKind::Dimensions(4_096)),
    ] {
        assert_eq!(refusal(&demo(id).unwrap(), need.clone()), None, "{id} {need:?}");
    }
}

#[test]
fn what_is_not_known_is_not_judged() {
    let model = Model {
        capabilities: ModelCapabilities::default(),
        lanes: vec![Lane::new("acme", "x")],
        ..demo("demo-chat").unwrap()
    };
    for need in all_needs() {
        assert_eq!(refusal(&model, need.clone()), None, "{need:?}");
    }
}

/// Tags name some tools of a model, and its provider may have more.
#[test]
fn the_tools_of_tags_rule_nothing_out() {
    for entry in ModelDirectory::embedded().models().filter(|entry| entry.provider != "demo") {
        let Some(model) = entry.served_by(|_| true) else { continue };
        let closed = entry.capabilities.tools.as_ref();
        let closed = closed.is_some_and(|tools| !tools.contains(&ToolKind::Other));
        let refused = refusal(&model, NeedKind::UnknownTool("new_kind".into()));
        assert_eq!(refused.is_some(), closed, "{}", entry.id);
    }
}

#[test]
fn an_operator_writes_the_same_fields() {
    let table = CapabilityTable {
        tools: Some(vec![]),
        thinking: Some(ThinkingSupport::Never),
        input: Some(vec!["text".into()]),
        structured_output: Some(vec!["json".into()]),
        ..CapabilityTable::default()
    };
    let mut model = demo("demo-chat").unwrap();
    table.apply(&mut model.capabilities).unwrap();
    assert!(refusal(&model, NeedKind::Tool(ToolKind::Function)).is_some());
    assert!(refusal(&model, NeedKind::ThinkingLevel).is_some());
    assert!(refusal(&model, NeedKind::Media(MediaKind::Image)).is_some());
    assert!(refusal(&model, NeedKind::Json(JsonOutput::Schema)).is_some());
    assert_eq!(refusal(&model, NeedKind::Json(JsonOutput::Object)), None);
    for (table, key) in [
        (
            CapabilityTable { input: Some(vec!["smell".into()]), ..CapabilityTable::default() },
            "input",
        ),
        (
            CapabilityTable {
                structured_output: Some(vec!["xml".into()]),
                ..CapabilityTable::default()
            },
            "structured_output",
        ),
    ] {
        assert_eq!(table.apply(&mut model.capabilities).unwrap_err().key, key);
    }
}
