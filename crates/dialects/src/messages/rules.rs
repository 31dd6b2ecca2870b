//! Rules of a messages request that concern more than one field, and the facts that the relay
//! needs.

use canon::{
    ApiError, HostedTools, JsonOutput, MediaKind, NeedKind, PLUGINS_FIELD, RequestNeeds,
    SamplingParameter,
};
use serde_json::value::RawValue;
use std::collections::HashSet;

use super::content::{MessagesBlock, MessagesSource, MessagesTurn};
use super::names::ORIGIN;
use super::own::{client_tools, gateway_blocks};
use super::request::{MessagesRequestView, MessagesTool};
use crate::call_ids::{AnsweredCall, UnansweredCalls};
use crate::caller_labels::CallerLabels;
use crate::carried_media::add_undescribed;
use crate::client_tools::function_bytes;
use crate::dialect::PatchPoints;
use crate::fields::add_protective;
use crate::json;
use crate::media_rules::base64_bytes;
use crate::service_tier::{GEO_FIELD, US, read_request_tier, speed_tier};
use crate::session_sign::SessionSigns;
use crate::wire_object::read_raw;
use crate::wire_rule::{FieldProblem, RuleResult, ensure_at, require};
use crate::wire_value::{PlacedValue, TextOrList};
use crate::{RequestFacts, RequestTarget, RequestUse};

/// Servers that the provider asks,
/// <https://docs.anthropic.com/en/docs/agents-and-tools/mcp-connector>.
const MCP_SERVERS: &str = "mcp_servers";

/// The rule of the output limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitRule {
    /// It is required, and the thinking budget stays below it.
    AboveBudget,
    /// It is required. Thinking between tool calls may exceed it.
    Required,
    /// A request to count tokens has none,
    /// <https://docs.anthropic.com/en/api/messages-count-tokens>.
    Optional,
}

impl LimitRule {
    /// Returns the rule of a request.
    pub(super) const fn of(target: &RequestTarget, wanted: RequestUse<'_>) -> Self {
        match wanted {
            RequestUse::Count => Self::Optional,
            _ if target.interleaved_thinking => Self::Required,
            _ => Self::AboveBudget,
        }
    }
}

/// Checks a request and returns its facts.
pub(super) fn check(
    text: &str,
    view: &MessagesRequestView<'_>,
    rule: LimitRule,
) -> Result<RequestFacts, ApiError> {
    let turns = view.messages.as_ref().map(|list| list.0.as_slice()).unwrap_or_default();
    let checked = check_limit(view, rule)
        .and_then(|()| check_turns(turns, view.thread.is_some()))
        .and_then(|()| check_tools(view));
    checked.map_err(FieldProblem::into_error)?;
    let hosted_tools = hosted_tools(view);
    let user_id = view.metadata.as_ref().and_then(|metadata| metadata.user_id.as_deref());
    let mut facts = RequestFacts {
        model: view.model.as_ref().map(|model| (*model.value).to_owned()).unwrap_or_default(),
        stream: view.stream.unwrap_or(false),
        wants_usage: true,
        max_output_tokens: Some(view.max_tokens.as_ref().map_or(u64::MAX, |limit| limit.value)),
        candidates: 1,
        service_tier: speed_tier(view.is_fast(), is_us(view))
            .or_else(|| view.service_tier.as_deref().map(|word| read_request_tier(ORIGIN, word))),
        client_tool_bytes: client_tool_bytes(view),
        hosted_tools: hosted_tools.with_plugins(view.rest.get(PLUGINS_FIELD).is_some()),
        patch_points: PatchPoints {
            model: PlacedValue::range(view.model.as_ref(), text),
            limit: PlacedValue::range(view.max_tokens.as_ref(), text),
            ..PatchPoints::locate(text)
        },
        only_text: turns.iter().all(|turn| matches!(turn.content, Some(TextOrList::Text(_)))),
        needs: needs(view, turns),
        session: SessionSigns { rest: Some(&view.rest), user_id, ..SessionSigns::default() }
            .session(),
        labels: CallerLabels::read(user_id, None),
        ..RequestFacts::default()
    };
    if turns.iter().flat_map(MessagesTurn::blocks).any(|b| gateway_blocks::loss(b).is_some()) {
        (facts.edits, facts.losses) = gateway_blocks::removal_edits(text);
    }
    Ok(facts)
}

/// Returns what the request asks of its model.
fn needs(view: &MessagesRequestView<'_>, turns: &[MessagesTurn<'_>]) -> RequestNeeds {
    let mut needs = RequestNeeds::default();
    add_protective(&mut needs, &view.rest);
    for (at, turn) in turns.iter().enumerate() {
        add_media(&mut needs, turn.blocks(), &|block| format!("messages[{at}].content[{block}]"));
    }
    for (at, tool) in view.tools.iter().flat_map(|list| &list.0).enumerate() {
        match tool.kind.as_deref().filter(|_| !tool.is_function()) {
            Some(kind) => needs.add_tool(kind, || format!("tools[{at}].type")),
            None => needs.add_tool("function", || format!("tools[{at}]")),
        }
    }
    if view.rest.get(MCP_SERVERS).is_some_and(|servers| servers.get() != "[]") {
        needs.add_tool(MCP_SERVERS, || MCP_SERVERS.to_owned());
    }
    let config = view.output_config.as_ref().and_then(|config| config.format.as_ref());
    let formats =
        [("output_config.format", config), ("output_format", view.output_format.as_ref())];
    for (path, format) in formats {
        if format.is_some_and(|format| format.kind.as_deref() == Some("json_schema")) {
            needs.add(path, NeedKind::Json(JsonOutput::Schema));
        }
    }
    needs.add_parameter("temperature", SamplingParameter::Temperature, view.temperature);
    needs.add_parameter("top_p", SamplingParameter::TopP, view.top_p);
    needs.add_whole_parameter("top_k", SamplingParameter::TopK, view.top_k);
    let stops = view.stop_sequences.as_ref().map(Vec::len);
    needs.add_whole_parameter("stop_sequences", SamplingParameter::StopSequences, stops);
    needs
}

fn add_media(
    needs: &mut RequestNeeds,
    blocks: &[MessagesBlock<'_>],
    path: &dyn Fn(usize) -> String,
) {
    for (at, block) in blocks.iter().enumerate() {
        match block {
            MessagesBlock::Image(image) => {
                add_source(needs, image.source.as_deref(), MediaKind::Image, &|| path(at));
            }
            MessagesBlock::Document(document) => {
                add_source(needs, document.source.as_deref(), MediaKind::Document, &|| path(at));
            }
            MessagesBlock::ToolResult(result) => {
                if let Some(TextOrList::List(inner)) = &result.content {
                    add_media(needs, inner, &|block| format!("{}.content[{block}]", path(at)));
                }
            }
            MessagesBlock::Text(_)
            | MessagesBlock::Thinking(_)
            | MessagesBlock::Redacted(_)
            | MessagesBlock::ToolUse(_) => {}
            MessagesBlock::Unknown(fields) => {
                // Blocks of an earlier answer with servers.
                if fields.text("type").is_some_and(|kind| kind.starts_with("mcp_tool_")) {
                    needs.add_tool(MCP_SERVERS, || path(at));
                }
                add_undescribed(needs, fields, || path(at));
            }
        }
    }
}

/// Adds the media of an image or a document. A document may hold images, and a file of another kind.
fn add_source(
    needs: &mut RequestNeeds,
    source: Option<&MessagesSource<'_>>,
    named: MediaKind,
    path: &dyn Fn() -> String,
) {
    match source {
        Some(MessagesSource::Base64(source)) => {
            let mime = source.media_type.as_deref();
            let bytes = source.data.as_deref().map(base64_bytes);
            needs.add_media(mime.map_or(named, MediaKind::from_mime), bytes, path);
        }
        Some(MessagesSource::Unknown(fields)) => {
            needs.add_media(named, None, path);
            let content = fields.get("content").map(read_raw::<TextOrList<'_, MessagesBlock<'_>>>);
            if let Some(Ok(TextOrList::List(blocks))) = content {
                add_media(needs, &blocks, &|at| format!("{}.source.content[{at}]", path()));
            }
        }
        Some(MessagesSource::Url(_) | MessagesSource::File(_) | MessagesSource::Text(_)) | None => {
            needs.add_media(named, None, path);
        }
    }
}

/// Returns true if the call is to be served in the United States.
fn is_us(view: &MessagesRequestView<'_>) -> bool {
    let place = view.rest.get(GEO_FIELD).map(RawValue::get);
    place.and_then(|place| json::read::<String>(place).ok()).is_some_and(|place| place == US)
}

/// Returns the tools of the provider, and servers of the caller that the provider asks.
fn hosted_tools(view: &MessagesRequestView<'_>) -> HostedTools {
    let own = view.tools.iter().flat_map(|list| &list.0).filter(|tool| !tool.is_function());
    let own =
        own.map(|tool| (tool.kind.as_deref(), tool.max_uses.as_ref().and_then(|most| most.0)));
    let is_server = |(name, _): &(&str, _)| *name == MCP_SERVERS;
    let servers = view.rest.present().filter(is_server).map(|(name, _)| (Some(name), None));
    own.chain(servers).map(|(kind, most)| (kind.unwrap_or_default(), most)).collect()
}

fn client_tool_bytes(view: &MessagesRequestView<'_>) -> u64 {
    let kinds = view.tools.iter().flat_map(|list| &list.0).filter_map(|tool| tool.kind.as_deref());
    kinds.map(function_bytes).sum()
}

fn check_limit(view: &MessagesRequestView<'_>, rule: LimitRule) -> RuleResult {
    let limit = view.max_tokens.as_ref().map(|limit| limit.value);
    require("max_tokens", limit.is_some() || rule == LimitRule::Optional)?;
    let thinking = view.thinking.as_ref().map(|thinking| &thinking.value);
    let enabled = thinking.filter(|thinking| thinking.kind.as_deref() == Some("enabled"));
    let budget = enabled.and_then(|thinking| Some(thinking.budget_tokens.as_ref()?.value));
    let is_below = rule != LimitRule::AboveBudget || budget < limit || budget.is_none();
    ensure_at(is_below, "thinking.budget_tokens", "must be less than `max_tokens`")
}

/// Checks that every result answers an earlier call, and every call has one result. The provider holds the earlier turns of a
/// thread, and their calls.
fn check_turns(turns: &[MessagesTurn<'_>], is_thread: bool) -> RuleResult {
    ensure_at(!turns.is_empty(), "messages", "must not be empty")?;
    let mut calls = UnansweredCalls::default();
    for (index, turn) in turns.iter().enumerate().filter(|_| !is_thread) {
        for (at, block) in turn.blocks().iter().enumerate() {
            let MessagesBlock::ToolResult(result) = block else { continue };
            let id = result.tool_use_id.as_deref().unwrap_or_default();
            let why = match calls.answer(id) {
                AnsweredCall::Open => continue,
                AnsweredCall::Answered => "was answered before",
                AnsweredCall::Unknown => {
                    "answers no call: no earlier message has a `tool_use` block with this id"
                }
            };
            let path = format!("messages[{index}].content[{at}].tool_use_id");
            return Err(FieldProblem::new(path, why));
        }
        let ids = turn.blocks().iter().filter_map(|block| match block {
            MessagesBlock::ToolUse(call) => call.id.as_deref(),
            _ => None,
        });
        ids.for_each(|id| calls.add(id));
    }
    Ok(())
}

fn check_tools(view: &MessagesRequestView<'_>) -> RuleResult {
    let tools = view.tools.as_ref().map(|list| list.0.as_slice()).unwrap_or_default();
    let mut names = HashSet::with_capacity(tools.len());
    for (at, tool) in tools.iter().enumerate() {
        if tool.name.as_deref().is_some_and(|name| !names.insert(name)) {
            let path = format!("tools[{at}].name");
            return Err(FieldProblem::new(path, "is the name of another tool too"));
        }
    }
    let Some(choice) = view.tool_choice.as_ref() else { return Ok(()) };
    let kind = choice.kind.as_deref();
    let has_tools = !tools.is_empty() || !matches!(kind, Some("any" | "tool"));
    ensure_at(has_tools, "tool_choice", "needs `tools`")?;
    let Some(name) = choice.name.as_deref().filter(|_| kind == Some("tool")) else {
        return Ok(());
    };
    let is_known = tools.iter().any(|tool| may_be_named(tool, name));
    ensure_at(is_known, "tool_choice.name", "names a tool that is not in `tools`")
}

/// Returns true if a tool choice may name the tool, or a member of the toolset.
fn may_be_named(tool: &MessagesTool<'_>, name: &str) -> bool {
    let kind = tool.kind.as_deref().unwrap_or_default();
    if !tool.is_function()
        && let Some(members) = client_tools::member_names(kind, &tool.rest.to_map())
    {
        return members.iter().any(|member| member == name);
    }
    // Only its server knows the names in another tool set.
    tool.name.as_deref().is_none_or(|own| own == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect as _;
    use crate::messages::MessagesDialect;

    fn read_facts(body: &[u8]) -> Result<RequestFacts, ApiError> {
        MessagesDialect.read_facts(&RequestTarget::default(), body)
    }

    fn read_count_facts(body: &[u8]) -> Result<RequestFacts, ApiError> {
        let parsed = MessagesDialect.parse(&RequestTarget::default(), body, RequestUse::Count);
        parsed.map(|parsed| parsed.facts.unwrap_or_default())
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
            (with_block(r#"{"text":"x"}"#), "messages[0].content[0].type"),
            (with_block(r#"{"type":"text"}"#), "messages[0].content[0].text"),
            (with_block(r#"{"type":"text","text":5}"#), "messages[0].content[0].text"),
            (with_block(r#"{"type":"image"}"#), "messages[0].content[0].source"),
            (with_block(r#"{"type":"image","source":{}}"#), "messages[0].content[0].source.type"),
            (with_block(r#"{"type":"image","source":5}"#), "messages[0].content[0].source"),
            (
                with_block(r#"{"type":"image","source":{"type":"base64","data":"AA"}}"#),
                "messages[0].content[0].source.media_type",
            ),
            (
                with_block(r#"{"type":"image","source":{"type":"url","url":"file:///etc"}}"#),
                "messages[0].content[0].source.url",
            ),
            (image("image/png", "no base64"), "messages[0].content[0].source.data"),
            (image("image/png", ""), "messages[0].content[0].source.data"),
            (image("text/html", "AAAA"), "messages[0].content[0].source.media_type"),
            (image("application/pdf", "AAAA"), "messages[0].content[0].source.media_type"),
            (image("picture", "AAAA"), "messages[0].content[0].source.media_type"),
            (
                with_block(r#"{"type":"tool_result","tool_use_id":"c","content":5}"#),
                "messages[0].content[0].content",
            ),
            (
                with_block(
                    r#"{"type":"tool_result","tool_use_id":"c","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"?"}}]}"#,
                ),
                "messages[0].content[0].content[0].source.data",
            ),
            (with(r#""service_tier":5"#), "service_tier"),
            (
                with_block(r#"{"type":"document","source":{"type":"file"}}"#),
                "messages[0].content[0].source.file_id",
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
                "messages[0].content[0].input",
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
            (with(r#""output_format":{"type":"json_schema","schema":5}"#), "output_format.schema"),
            (with(r#""tools":[{"name":"a","input_schema":{},"strict":1}]"#), "tools[0].strict"),
            (with(r#""model":"again""#), "model"),
        ];
        for (body, path) in cases {
            let (found, say) = refused(&body);
            assert_eq!(found, path, "{body}: {say}");
            assert!(path.is_empty() || !say.contains(" at line "), "{body}: {say}");
            assert!(!say.contains("View") && !say.contains("struct"), "{body}: {say}");
            assert!(!say.contains("i64") && !say.contains('\u{1}'), "{body}: {say}");
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
    fn a_list_that_is_too_long_is_refused_before_its_end() {
        let list = |item: &str, count: usize| format!("[{} oops", format!("{item},").repeat(count));
        let (turn, block) = (r#"{"role":"user","content":"x"}"#, r#"{"type":"text","text":"x"}"#);
        let of_blocks =
            |list: String| with_messages(&format!(r#"[{{"role":"user","content":{list}"#));
        let of_field = |name: &str, list: String| with(&format!("\"{name}\":{list}"));
        for (body, field, most) in [
            (with_messages(&list(turn, 100_001)), "messages", 100_000),
            (of_blocks(list(block, 100_001)), "messages[0].content", 100_000),
            (of_field("system", list(block, 1_001)), "system", 1_000),
            (of_field("tools", list(r#"{"type":"x_1"}"#, 1_000)), "tools", 999),
        ] {
            let why = format!("`{field}` must have at most {most} items");
            assert_eq!(refused(&body), (field.to_owned(), why));
        }
        let (param, why) = refused(&of_field("system", list(block, 1_000)));
        assert!(param.is_empty() && why.contains("is not valid JSON"), "{param} {why}");
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
        let interleaved = RequestTarget { interleaved_thinking: true, ..RequestTarget::default() };
        let long = with(r#""thinking":{"type":"enabled","budget_tokens":9000}"#);
        assert!(
            read_facts(long.as_bytes()).is_err()
                && MessagesDialect.read_facts(&interleaved, long.as_bytes()).is_ok()
        );
        let warm = with("\"a\":1").replace("2000", "0");
        assert_eq!(read_facts(warm.as_bytes()).unwrap().max_output_tokens, Some(0));
        let thread = r#"{"model":"m","max_tokens":9,"thread":{"type":"continue"},"messages":[
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"c"}]}]}"#;
        assert!(read_facts(thread.as_bytes()).is_ok());
    }
}
