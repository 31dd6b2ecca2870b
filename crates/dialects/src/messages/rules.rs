//! Checks a messages request in one pass over its bytes. A violation is answered with 400.
//!
//! The pass borrows the request facts and the fields with rules from the body and skips the rest.
//! Fields, block types and tools that the gateway does not know are left to the provider.
//! Reference: <https://docs.anthropic.com/en/api/messages>.

use canon::{ApiError, ServiceTier};
use serde_json::value::RawValue;

use super::request_view::{
    MessagesChoiceView, MessagesContentView, MessagesRequestView, ValueShape,
};
use super::thinking::MIN_BUDGET_TOKENS;
use super::tool_names::MAX_NAME_BYTES;
use super::{gateway_blocks, wire};
use crate::RequestFacts;
use crate::checks::{check_model, check_range, invalid_field};
use crate::dialect::{DEFAULT_MAX_SEARCHES, PatchPoints};
use crate::json;

const MAX_MESSAGES: usize = 100_000;
const MAX_TOOLS: usize = 999;
const MAX_SYSTEM_BLOCKS: usize = 1_000;
const MAX_USER_ID_BYTES: usize = 4_096;
const LARGEST_MAX_TOKENS: u64 = 1 << 30;

/// Collects the request facts and applies the rules of the format.
pub(super) fn read_facts(body: &[u8], interleaved: bool) -> Result<RequestFacts, ApiError> {
    read(body, LimitRule::Required, interleaved)
}

fn read(body: &[u8], rule: LimitRule, interleaved: bool) -> Result<RequestFacts, ApiError> {
    let text = json::checked_text(body)?;
    let view: MessagesRequestView<'_> = json::parse(text)?;
    let marks = marks(text, &view);
    let mut facts = check(&view, marks, rule, interleaved)?;
    if view.messages.is_some_and(|messages| messages.has_gateway_blocks) {
        (facts.edits, facts.losses) = gateway_blocks::removal_edits(text);
    }
    Ok(facts)
}

/// Checks a request to count tokens, which has no output limit,
/// <https://docs.anthropic.com/en/api/messages-count-tokens>.
pub(super) fn read_count_facts(body: &[u8]) -> Result<RequestFacts, ApiError> {
    read(body, LimitRule::Optional, true)
}

/// Rule for a missing output limit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LimitRule {
    Required,
    Optional,
}

fn marks(text: &str, view: &MessagesRequestView<'_>) -> PatchPoints {
    let range = |value: Option<&RawValue>| value.map(|value| json::range_of(text, value));
    PatchPoints {
        model: range(view.model),
        limit: range(view.max_tokens),
        ..PatchPoints::locate(text)
    }
}

fn check(
    view: &MessagesRequestView<'_>,
    marks: PatchPoints,
    rule: LimitRule,
    interleaved: bool,
) -> Result<RequestFacts, ApiError> {
    let model = check_model(view.model)?;
    let limit = match (rule, view.max_tokens) {
        (LimitRule::Optional, None) => u64::MAX,
        (LimitRule::Required | LimitRule::Optional, given) => limit(given)?,
    };
    messages(view)?;
    system(view.system.as_ref())?;
    numbers(view)?;
    thinking(view, if interleaved { u64::MAX } else { limit })?;
    tools(view)?;
    if let Some(format) = view.output_config.as_ref().and_then(|config| config.format.as_ref())
        && format.r#type.as_deref() == Some("json_schema")
        && format.schema != ValueShape::Object
    {
        return Err(invalid_field("output_config.format.schema", "must be an object"));
    }
    let _ = view.output_config.as_ref().map(|config| &config.effort);
    let user = view.metadata.as_ref().and_then(|metadata| metadata.user_id.as_ref());
    if user.is_some_and(|user| user.len() > MAX_USER_ID_BYTES) {
        let why = format!("must be at most {MAX_USER_ID_BYTES} bytes");
        return Err(invalid_field("metadata.user_id", &why));
    }
    Ok(RequestFacts {
        model,
        stream: view.stream.unwrap_or(false),
        wants_usage: true,
        max_output_tokens: Some(limit),
        candidates: 1,
        service_tier: tier(view),
        max_searches: searches(view),
        patch_points: marks,
        ..RequestFacts::default()
    })
}

/// Returns the requested tier. The fast tier has a field of its own, `speed`.
fn tier(view: &MessagesRequestView<'_>) -> Option<ServiceTier> {
    if json::string_value(view.speed).as_deref() == Some("fast") {
        return Some(ServiceTier::Fast);
    }
    view.service_tier.as_deref().map(wire::read_tier)
}

/// Returns the maximum number of searches. Every search tool may set its own `max_uses`.
fn searches(view: &MessagesRequestView<'_>) -> u64 {
    let tools = view.tools.iter().flatten();
    let search = tools
        .filter(|tool| tool.r#type.as_deref().is_some_and(|kind| kind.starts_with("web_search")));
    let most = search.map(|tool| {
        tool.max_uses.and_then(|most| most.get().parse().ok()).unwrap_or(DEFAULT_MAX_SEARCHES)
    });
    most.fold(0, u64::saturating_add)
}

/// Checks the output limit. Zero is allowed: it only warms the prompt cache.
fn limit(value: Option<&RawValue>) -> Result<u64, ApiError> {
    let value = value.ok_or_else(|| invalid_field("max_tokens", "is required"))?;
    match serde_json::from_str::<u64>(value.get()) {
        Ok(limit @ 0..=LARGEST_MAX_TOKENS) => Ok(limit),
        _ => Err(invalid_field("max_tokens", "must be a whole number of at least 1")),
    }
}

fn messages(view: &MessagesRequestView<'_>) -> Result<(), ApiError> {
    let messages =
        view.messages.as_ref().ok_or_else(|| invalid_field("messages", "is required"))?;
    if messages.count == 0 {
        return Err(invalid_field("messages", "must not be empty"));
    }
    if messages.count > MAX_MESSAGES {
        return Err(invalid_field("messages", &format!("must have at most {MAX_MESSAGES} items")));
    }
    // The provider holds the earlier turns of a thread, and their calls.
    let unmatched_result = messages.unmatched_result.as_ref().filter(|_| view.thread.is_none());
    match messages.first_error.as_ref().or(unmatched_result) {
        Some((path, why)) => Err(invalid_field(path, why)),
        None => Ok(()),
    }
}

fn system(system: Option<&MessagesContentView<'_>>) -> Result<(), ApiError> {
    let Some(MessagesContentView::Blocks(blocks)) = system else { return Ok(()) };
    if blocks.count > MAX_SYSTEM_BLOCKS {
        return Err(invalid_field(
            "system",
            &format!("must have at most {MAX_SYSTEM_BLOCKS} blocks"),
        ));
    }
    if let Some((at, why)) = blocks.first_error {
        return Err(invalid_field(&format!("system[{at}]"), why));
    }
    match blocks.first_non_text {
        Some(at) => Err(invalid_field(&format!("system[{at}]"), "must be a text block")),
        None => Ok(()),
    }
}

fn numbers(view: &MessagesRequestView<'_>) -> Result<(), ApiError> {
    check_range("temperature", view.temperature, 0.0, 1.0)?;
    check_range("top_p", view.top_p, 0.0, 1.0)?;
    if view.top_k.is_some_and(|k| k < 0) {
        return Err(invalid_field("top_k", "must not be below 0"));
    }
    let stops = view.stop_sequences.as_deref().unwrap_or_default();
    if stops.iter().any(|text| text.is_empty()) {
        return Err(invalid_field("stop_sequences", "must not hold an empty string"));
    }
    Ok(())
}

fn thinking(view: &MessagesRequestView<'_>, limit: u64) -> Result<(), ApiError> {
    let Some(thinking) = &view.thinking else { return Ok(()) };
    match thinking.r#type.as_deref() {
        None => return Err(invalid_field("thinking.type", "is required")),
        Some("enabled") => {}
        Some(_) => return Ok(()),
    }
    let path = "thinking.budget_tokens";
    let budget = thinking.budget_tokens.ok_or_else(|| invalid_field(path, "is required"))?;
    match serde_json::from_str::<u64>(budget.get()) {
        Ok(MIN_BUDGET_TOKENS..) => {}
        _ => {
            return Err(invalid_field(
                path,
                &format!("must be a whole number of at least {MIN_BUDGET_TOKENS}"),
            ));
        }
    }
    match serde_json::from_str::<u64>(budget.get()) {
        Ok(budget) if budget >= limit => Err(invalid_field(path, "must be less than `max_tokens`")),
        _ => Ok(()),
    }
}

fn tools(view: &MessagesRequestView<'_>) -> Result<(), ApiError> {
    let tools = view.tools.as_deref().unwrap_or_default();
    if tools.len() > MAX_TOOLS {
        return Err(invalid_field("tools", &format!("must have at most {MAX_TOOLS} items")));
    }
    let mut names: Vec<&str> = Vec::with_capacity(tools.len());
    let mut complete = true;
    for (at, tool) in tools.iter().enumerate() {
        let own = matches!(tool.r#type.as_deref(), None | Some("custom"));
        let path = format!("tools[{at}].name");
        let Some(name) = tool.name.as_deref() else {
            if own {
                return Err(invalid_field(&path, "is required"));
            }
            // A tool set; only its server knows the names in it.
            complete = false;
            continue;
        };
        if own && !is_name(name) {
            let why =
                format!("must have 1 to {MAX_NAME_BYTES} letters, digits, underscores or dashes");
            return Err(invalid_field(&path, &why));
        }
        if own && tool.input_schema != ValueShape::Object {
            return Err(invalid_field(&format!("tools[{at}].input_schema"), "must be an object"));
        }
        if names.contains(&name) {
            return Err(invalid_field(&path, "is the name of another tool too"));
        }
        names.push(name);
    }
    match &view.tool_choice {
        Some(choice) => check_choice(choice, &names, complete),
        None => Ok(()),
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(allowed)
}

fn check_choice(
    choice: &MessagesChoiceView<'_>,
    names: &[&str],
    complete: bool,
) -> Result<(), ApiError> {
    let _ = choice.disable_parallel_tool_use;
    let none = names.is_empty() && complete;
    match (choice.r#type.as_deref(), choice.name.as_deref()) {
        (Some("auto" | "none"), _) => Ok(()),
        (Some("any" | "tool"), _) if none => Err(invalid_field("tool_choice", "needs `tools`")),
        (Some("any"), _) => Ok(()),
        (Some("tool"), None) => Err(invalid_field("tool_choice.name", "is required")),
        (Some("tool"), Some(name)) if complete && !names.contains(&name) => {
            Err(invalid_field("tool_choice.name", "names a tool that is not in `tools`"))
        }
        (Some("tool"), Some(_)) => Ok(()),
        (Some(_) | None, _) => {
            Err(invalid_field("tool_choice.type", "must be one of `auto`, `any`, `tool`, `none`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_facts(body: &[u8]) -> Result<RequestFacts, ApiError> {
        super::read_facts(body, false)
    }

    fn refused(body: &str) -> (String, String) {
        let fault = read_facts(body.as_bytes()).expect_err(body);
        (fault.param().unwrap_or_default().to_owned(), fault.message().to_owned())
    }

    /// Returns a valid request with the field added.
    fn with(field: &str) -> String {
        let messages = r#"[{"role":"user","content":"x"}]"#;
        format!(r#"{{"model":"m","max_tokens":2000,"messages":{messages},{field}}}"#)
    }

    fn with_messages(messages: &str) -> String {
        format!(r#"{{"model":"m","max_tokens":9,"messages":{messages}}}"#)
    }

    fn with_block(block: &str) -> String {
        with_messages(&format!(r#"[{{"role":"user","content":[{block}]}}]"#))
    }

    fn image(mime: &str, data: &str) -> String {
        with_block(&format!(
            r#"{{"type":"image","source":{{"type":"base64","media_type":"{mime}","data":"{data}"}}}}"#
        ))
    }

    #[test]
    fn a_request_to_count_needs_messages_and_no_limit() {
        let messages = r#""messages":[{"role":"user","content":"x"}]"#;
        assert!(read_count_facts(format!(r#"{{"model":"m",{messages}}}"#).as_bytes()).is_ok());
        let error = read_count_facts(br#"{"model":"m"}"#).unwrap_err();
        assert_eq!(error.param(), Some("messages"));
        let zero = format!(r#"{{"model":"m","max_tokens":"x",{messages}}}"#);
        assert_eq!(read_count_facts(zero.as_bytes()).unwrap_err().param(), Some("max_tokens"));
    }

    #[test]
    fn request_facts_are_found() {
        let body = with(r#""stream":true"#);
        let facts = read_facts(body.as_bytes()).unwrap();
        assert_eq!((facts.model.as_str(), facts.stream, facts.wants_usage), ("m", true, true));
        assert_eq!((facts.max_output_tokens, facts.candidates), (Some(2000), 1));
        assert_eq!(&body.as_bytes()[facts.patch_points.model.unwrap()], br#""m""#);
        assert_eq!(&body.as_bytes()[facts.patch_points.limit.unwrap()], b"2000");
    }

    #[test]
    fn invalid_fields_are_named() {
        let user = r#"[{"role":"user","content":"x"}]"#;
        let tool = r#"{"name":"a","input_schema":{"type":"object"}}"#;
        let call = r#"{"type":"tool_use","id":"c","name":"f","input":{}}"#;
        let result = r#"{"type":"tool_result","tool_use_id":"c","content":"1"}"#;
        let cases = [
            (format!(r#"{{"max_tokens":1,"messages":{user}}}"#), "model"),
            (format!(r#"{{"model":5,"max_tokens":1,"messages":{user}}}"#), "model"),
            (format!(r#"{{"model":"","max_tokens":1,"messages":{user}}}"#), "model"),
            (format!(r#"{{"model":"m","messages":{user}}}"#), "max_tokens"),
            (format!(r#"{{"model":"m","max_tokens":-1,"messages":{user}}}"#), "max_tokens"),
            (format!(r#"{{"model":"m","max_tokens":1.5,"messages":{user}}}"#), "max_tokens"),
            (format!(r#"{{"model":"m","max_tokens":"9","messages":{user}}}"#), "max_tokens"),
            (
                format!(r#"{{"model":"m","max_tokens":9223372036854775808,"messages":{user}}}"#),
                "max_tokens",
            ),
            (r#"{"model":"m","max_tokens":1}"#.to_owned(), "messages"),
            (with_messages("[]"), "messages"),
            (with_messages("{}"), "messages"),
            (with_messages(r#"[{"content":"x"}]"#), "messages[0].role"),
            (with_messages(r#"[{"role":"tool","content":"x"}]"#), "messages[0].role"),
            (with_messages(r#"[{"role":5,"content":"x"}]"#), "messages[0].role"),
            (with_messages(r#"[{"role":"user"}]"#), "messages[0].content"),
            (with_messages(r#"[{"role":"user","content":null}]"#), "messages[0].content"),
            (with_messages(r#"[{"role":"user","content":5}]"#), "messages[0].content"),
            (with_messages(r#"[{"role":"user","content":[]}]"#), "messages[0].content"),
            (with_block(r#""x""#), "messages[0].content[0]"),
            (with_block(r#"{"text":"x"}"#), "messages[0].content[0]"),
            (with_block(r#"{"type":"text"}"#), "messages[0].content[0]"),
            (with_block(r#"{"type":"text","text":5}"#), "messages[0].content[0]"),
            (with_block(r#"{"type":"image"}"#), "messages[0].content[0]"),
            (with_block(r#"{"type":"image","source":{}}"#), "messages[0].content[0]"),
            (with_block(r#"{"type":"image","source":5}"#), "messages[0].content[0].source"),
            (
                with_block(r#"{"type":"image","source":{"type":"base64","data":"AA"}}"#),
                "messages[0].content[0]",
            ),
            (
                with_block(r#"{"type":"image","source":{"type":"url","url":"file:///etc"}}"#),
                "messages[0].content[0]",
            ),
            (image("image/png", "no base64"), "messages[0].content[0]"),
            (image("image/png", ""), "messages[0].content[0]"),
            (image("text/html", "AAAA"), "messages[0].content[0]"),
            (image("application/pdf", "AAAA"), "messages[0].content[0]"),
            (image("picture", "AAAA"), "messages[0].content[0]"),
            (
                with_block(r#"{"type":"tool_result","tool_use_id":"c","content":5}"#),
                "messages[0].content[0]",
            ),
            (
                with_block(
                    r#"{"type":"tool_result","tool_use_id":"c","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"?"}}]}"#,
                ),
                "messages[0].content[0]",
            ),
            (with(r#""service_tier":5"#), "service_tier"),
            (
                with_block(r#"{"type":"document","source":{"type":"file"}}"#),
                "messages[0].content[0]",
            ),
            (with_block(call), "messages[0].content[0]"),
            (with_block(result), "messages[0].content[0].tool_use_id"),
            (
                with_messages(&format!(r#"[{{"role":"assistant","content":[{result}]}}]"#)),
                "messages[0].content[0]",
            ),
            (
                with_messages(
                    r#"[{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":"{}"}]}]"#,
                ),
                "messages[0].content[0]",
            ),
            (
                with_messages(&format!(
                    r#"[{{"role":"assistant","content":[{call}]}},{{"role":"user","content":[{result},{result}]}}]"#
                )),
                "messages[1].content[1].tool_use_id",
            ),
            (
                with_messages(
                    r#"[{"role":"system","content":[{"type":"image","source":{"type":"file","file_id":"f"}}]}]"#,
                ),
                "messages[0].content[0]",
            ),
            (with(r#""system":5"#), "system"),
            (with(r#""system":[{"type":"thinking","thinking":""}]"#), "system[0]"),
            (with(r#""temperature":1.1"#), "temperature"),
            (with(r#""temperature":"1""#), "temperature"),
            (with(r#""top_p":-0.1"#), "top_p"),
            (with(r#""top_k":-1"#), "top_k"),
            (with(r#""stop_sequences":"x""#), "stop_sequences"),
            (with(r#""stop_sequences":[""]"#), "stop_sequences"),
            (with(r#""stream":"true""#), "stream"),
            (with(r#""thinking":{}"#), "thinking.type"),
            (with(r#""thinking":{"type":"enabled"}"#), "thinking.budget_tokens"),
            (
                with(r#""thinking":{"type":"enabled","budget_tokens":1023}"#),
                "thinking.budget_tokens",
            ),
            (
                with(r#""thinking":{"type":"enabled","budget_tokens":2000}"#),
                "thinking.budget_tokens",
            ),
            (with(r#""thinking":{"type":"enabled","budget_tokens":-1}"#), "thinking.budget_tokens"),
            (with(r#""tools":[{"input_schema":{}}]"#), "tools[0].name"),
            (with(r#""tools":[{"name":"a b","input_schema":{}}]"#), "tools[0].name"),
            (with(r#""tools":[{"name":"a","input_schema":[]}]"#), "tools[0].input_schema"),
            (with(&format!(r#""tools":[{tool},{tool}]"#)), "tools[1].name"),
            (with(r#""tool_choice":{"type":"any"}"#), "tool_choice"),
            (with(r#""tool_choice":"auto""#), "tool_choice"),
            (with(r#""tool_choice":{"type":"maybe"}"#), "tool_choice.type"),
            (
                with(&format!(r#""tools":[{tool}],"tool_choice":{{"type":"tool","name":"b"}}"#)),
                "tool_choice.name",
            ),
            (with(r#""metadata":{"user_id":{}}"#), "metadata.user_id"),
            (
                with(&format!(r#""metadata":{{"user_id":"{}"}}"#, "x".repeat(9000))),
                "metadata.user_id",
            ),
            (
                with(r#""output_config":{"format":{"type":"json_schema"}}"#),
                "output_config.format.schema",
            ),
            (with(r#""model":"again""#), ""),
        ];
        for (body, path) in cases {
            let (found, say) = refused(&body);
            assert_eq!(found, path, "{body}: {say}");
            assert!(path.is_empty() || !say.contains(" at line "), "{body}: {say}");
        }
    }

    #[test]
    fn bodies_that_are_not_objects_are_refused() {
        for body in ["", " ", "null", "42", "[]", "{", "{\"a\":1,}", "{}{}", "{} x"] {
            refused(body);
        }
        assert!(read_facts(b"{\"model\":\"\xe9\"}").is_err());
        refused(&with_messages(r#"[{"role":"user","content":"\ud800"}]"#));
        let deep = format!("{}{}", "[".repeat(9999), "]".repeat(9999));
        refused(&with(&format!(r#""x":{deep}"#)));
    }

    #[test]
    fn legal_and_unknown_fields_are_accepted() {
        let conversation = with_messages(
            r#"[{"role":"user","content":"x"},{"role":"user","content":[{"type":"new_block"}]},
                {"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s"},
                    {"type":"redacted_thinking","data":"d"},
                    {"type":"tool_use","id":"c1","name":"f","input":{"a":[1]}},
                    {"type":"server_tool_use","id":"s1","name":"web_search","input":{}}]},
                {"role":"user","content":[
                    {"type":"tool_result","tool_use_id":"c1","is_error":true,"content":[
                        {"type":"tool_reference","tool_name":"t"}]},
                    {"type":"search_result","source":"https://x.example","title":"t","content":[]},
                    {"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}},
                    {"type":"document","source":{"type":"content","content":"x"}}]},
                {"role":"system","content":"new instructions"},
                {"role":"assistant","content":[]}]"#,
        );
        assert!(
            read_facts(conversation.as_bytes()).is_ok(),
            "{:?}",
            read_facts(conversation.as_bytes())
        );
        for field in [
            r#""stream":null"#,
            r#""unknown":{"a":[1]}"#,
            r#""thinking":{"type":"adaptive","display":"omitted"}"#,
            r#""thinking":{"type":"enabled","budget_tokens":1024}"#,
            r#""thinking":{"type":"newer"}"#,
            r#""tools":[{"type":"mcp_toolset","mcp_server_name":"s"}],"tool_choice":{"type":"tool","name":"x"}"#,
            r#""tools":[{"type":"bash_20250124","name":"bash"}],"tool_choice":{"type":"any"}"#,
            r#""system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}]"#,
            r#""output_config":{"effort":"newer"}"#,
            r#""service_tier":"newer","container":{"id":"c"}"#,
        ] {
            assert!(read_facts(with(field).as_bytes()).is_ok(), "{field}");
        }
        let long = with(r#""thinking":{"type":"enabled","budget_tokens":9000}"#);
        assert!(
            read_facts(long.as_bytes()).is_err()
                && super::read_facts(long.as_bytes(), true).is_ok()
        );
        let warm = with("\"a\":1").replace("2000", "0");
        assert_eq!(read_facts(warm.as_bytes()).unwrap().max_output_tokens, Some(0));
        let thread = r#"{"model":"m","max_tokens":9,"thread":{"type":"continue"},"messages":[
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"c"}]}]}"#;
        assert!(read_facts(thread.as_bytes()).is_ok());
    }
}
