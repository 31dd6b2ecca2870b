//! What earns a responses request a 400, found in one pass over its bytes.
//!
//! The pass reads what the flow must know and what the rules need, borrowed from the body; the
//! rest is skipped. Only what a rule of the format forbids is refused: fields, items and tools we
//! do not know are left to the provider.

use bytes::Bytes;
use canon::{Fault, Level, Losses};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashSet;

use super::head::{Head, Input, ToolHead};
use super::write_request::LEAST_OUTPUT;
use super::{names, seals, wire};
use crate::Peek;
use crate::dialect::{Marks, SEARCHES};
use crate::json::{self, Edit};
use crate::judge::{model, refuse, within};

const MOST_ITEMS: usize = 10_000;
const MOST_METADATA: usize = 16;
const MOST_TOOL_CALLS: i64 = 1_000;
const LONGEST_NAME: usize = 4_096;
const LARGEST_LIMIT: u64 = 1 << 30;

/// What an answer can be asked to include.
const INCLUDES: [&str; 8] = [
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
];

/// Reads what the flow must know and applies the format's rules.
pub(super) fn peek(body: &[u8]) -> Result<Peek, Fault> {
    let text = json::text(body)?;
    let head: Head<'_> = json::read(text)?;
    let marks = marks(text, &head);
    let mut peek = check(&head, marks)?;
    if matches!(&head.input, Some(Input::Items(items)) if items.sealed) {
        (peek.edits, peek.losses) = without_envelopes(text);
    }
    Ok(peek)
}

fn marks(text: &str, head: &Head<'_>) -> Marks {
    let range = |value: Option<&RawValue>| value.map(|value| json::range_of(text, value));
    Marks { model: range(head.model), limit: range(head.max_output_tokens), ..Marks::of(text) }
}

fn check(head: &Head<'_>, marks: Marks) -> Result<Peek, Fault> {
    let model = model(head.model)?;
    input(head)?;
    numbers(head)?;
    tools(head)?;
    words(head)?;
    let _ = (&head.instructions, head.parallel_tool_calls, head.store, head.background);
    Ok(Peek {
        model,
        stream: head.stream.unwrap_or(false),
        // The last event always tells the usage, so callers always get it.
        wants_usage: true,
        max_output: limit(head)?,
        candidates: 1,
        tier: json::word(head.service_tier).as_deref().map(wire::read_tier),
        searches: searches(head),
        marks,
        ..Peek::default()
    })
}

/// How many searches there can be: as many as tool calls are allowed.
fn searches(head: &Head<'_>) -> u64 {
    let mut tools = head.tools.iter().flatten().filter_map(|tool| tool.r#type.as_deref());
    if !tools.any(|kind| kind.starts_with("web_search")) {
        return 0;
    }
    head.max_tool_calls.and_then(|most| u64::try_from(most).ok()).unwrap_or(SEARCHES)
}

fn input(head: &Head<'_>) -> Result<(), Fault> {
    // What the conversation goes on from may hold the calls that are answered here.
    let elsewhere = head.previous_response_id.is_some() || head.conversation.is_some();
    if head.previous_response_id.is_some() && head.conversation.is_some() {
        return Err(refuse("conversation", "cannot be given with `previous_response_id`"));
    }
    let optional = elsewhere || head.prompt.is_some();
    let items = match &head.input {
        Some(Input::Text) => return Ok(()),
        None if optional => return Ok(()),
        None => return Err(refuse("input", "is required")),
        Some(Input::Items(items)) => items,
    };
    if items.count == 0 && !optional {
        return Err(refuse("input", "must not be empty"));
    }
    if items.count > MOST_ITEMS {
        return Err(refuse("input", &format!("must have at most {MOST_ITEMS} items")));
    }
    if let Some((path, why)) = &items.broken {
        return Err(refuse(path, why));
    }
    // A list that refers to kept items may refer to the calls.
    match items.unanswerable(elsewhere || items.refers) {
        Some((index, why)) => Err(refuse(&format!("input[{index}].call_id"), why)),
        None => Ok(()),
    }
}

fn numbers(head: &Head<'_>) -> Result<(), Fault> {
    within("temperature", head.temperature, 0.0, 2.0)?;
    within("top_p", head.top_p, 0.0, 1.0)?;
    if head.top_logprobs.is_some_and(|n| !(0..=20).contains(&n)) {
        return Err(refuse("top_logprobs", "must be between 0 and 20"));
    }
    if head.max_tool_calls.is_some_and(|n| !(1..=MOST_TOOL_CALLS).contains(&n)) {
        return Err(refuse("max_tool_calls", &format!("must be between 1 and {MOST_TOOL_CALLS}")));
    }
    Ok(())
}

fn limit(head: &Head<'_>) -> Result<Option<u64>, Fault> {
    match head.max_output_tokens {
        None => Ok(None),
        Some(value) => match serde_json::from_str::<u64>(value.get()) {
            Ok(limit @ LEAST_OUTPUT..=LARGEST_LIMIT) => Ok(Some(limit)),
            _ => Err(refuse(
                "max_output_tokens",
                &format!("must be a whole number of at least {LEAST_OUTPUT}"),
            )),
        },
    }
}

fn tools(head: &Head<'_>) -> Result<(), Fault> {
    let mut names = HashSet::new();
    declared(head.tools.as_deref().unwrap_or_default(), "tools", None, &mut names)?;
    let mut added = false;
    if let Some(Input::Items(items)) = &head.input {
        added = !items.tools.is_empty();
        // A list in the conversation may repeat what was declared before it.
        let mut more = HashSet::new();
        declared(&items.tools, "additional_tools", None, &mut more)?;
        names.extend(more);
    }
    choice(head.tool_choice, &names, head.tools.is_some() || added)
}

fn declared(
    tools: &[ToolHead<'_>],
    path: &str,
    space: Option<&str>,
    names: &mut HashSet<String>,
) -> Result<(), Fault> {
    for (at, tool) in tools.iter().enumerate() {
        let kind = match tool.r#type.as_deref() {
            None => return Err(refuse(&format!("{path}[{at}].type"), "is required")),
            Some(kind) => kind,
        };
        if !matches!(kind, "function" | "custom" | "namespace") {
            continue;
        }
        let name = match tool.name.as_deref() {
            Some(name) if !name.is_empty() => name,
            _ => return Err(refuse(&format!("{path}[{at}].name"), "is required")),
        };
        if kind == "namespace" {
            let inner = tool.tools.as_deref().unwrap_or_default();
            declared(inner, &format!("{path}[{at}].tools"), Some(name), names)?;
            continue;
        }
        let _ = &tool.parameters;
        let name = names::flat(space, name);
        if !names.insert(name) {
            return Err(refuse(&format!("{path}[{at}].name"), "names another tool already"));
        }
    }
    Ok(())
}

fn choice(value: Option<&RawValue>, names: &HashSet<String>, has_tools: bool) -> Result<(), Fault> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Choice<'a> {
        Word(#[serde(borrow)] Cow<'a, str>),
        #[serde(borrow)]
        Named(ToolHead<'a>),
    }
    let Some(value) = value else { return Ok(()) };
    let rule = "must be `none`, `auto`, `required` or an object that names a tool";
    let known = |tool: &ToolHead<'_>| match (tool.r#type.as_deref(), tool.name.as_deref()) {
        (Some("function" | "custom"), Some(name)) => {
            let flat = names::flat(tool.namespace.as_deref(), name);
            if names.contains(&flat) {
                Ok(())
            } else {
                Err(refuse("tool_choice", "names a tool that is not in `tools`"))
            }
        }
        (Some("function" | "custom"), None) | (None, _) => Err(refuse("tool_choice", rule)),
        (Some(_), _) => Ok(()),
    };
    match serde_json::from_str(value.get()) {
        Ok(Choice::Word(word)) => match &*word {
            "none" | "auto" => Ok(()),
            "required" if has_tools => Ok(()),
            "required" => Err(refuse("tool_choice", "needs `tools`")),
            _ => Err(refuse("tool_choice", rule)),
        },
        Ok(Choice::Named(tool)) if tool.r#type.as_deref() == Some("allowed_tools") => {
            if !matches!(tool.mode.as_deref(), None | Some("auto" | "required")) {
                return Err(refuse("tool_choice.mode", "must be `auto` or `required`"));
            }
            tool.tools.iter().flatten().try_for_each(known)
        }
        Ok(Choice::Named(tool)) => known(&tool),
        Err(_) => Err(refuse("tool_choice", rule)),
    }
}

/// Fields of which only some words, or not too long ones, are allowed.
fn words(head: &Head<'_>) -> Result<(), Fault> {
    if let Some(reasoning) = &head.reasoning {
        if reasoning.effort.as_deref().is_some_and(|word| Level::by_word(word).is_none()) {
            return Err(refuse(
                "reasoning.effort",
                "must be one of `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`",
            ));
        }
        for (name, word) in [
            ("reasoning.summary", &reasoning.summary),
            ("reasoning.generate_summary", &reasoning.generate_summary),
        ] {
            if word.as_deref().is_some_and(|word| wire::read_show(word).is_none()) {
                return Err(refuse(name, "must be one of `auto`, `concise`, `detailed`"));
            }
        }
    }
    if let Some(text) = &head.text {
        let verbosity = text.verbosity.as_deref();
        if !matches!(verbosity, None | Some("low" | "medium" | "high")) {
            return Err(refuse("text.verbosity", "must be one of `low`, `medium`, `high`"));
        }
        let format = text.format.as_ref();
        match format.map(|format| (format.r#type.as_deref(), &format.name, &format.schema)) {
            None | Some((Some("text" | "json_object"), _, _)) => {}
            Some((Some("json_schema"), Some(_), Some(_))) => {}
            Some((Some("json_schema"), None, _)) => {
                return Err(refuse("text.format.name", "is required"));
            }
            Some((Some("json_schema"), Some(_), None)) => {
                return Err(refuse("text.format.schema", "is required"));
            }
            Some(_) => {
                return Err(refuse(
                    "text.format.type",
                    "must be `text`, `json_object` or `json_schema`",
                ));
            }
        }
    }
    for (at, word) in head.include.iter().flatten().enumerate() {
        if !INCLUDES.contains(&&**word) {
            return Err(refuse(&format!("include[{at}]"), "is nothing an answer can include"));
        }
    }
    if head.include.as_ref().is_some_and(|words| words.len() > INCLUDES.len() * 4) {
        return Err(refuse("include", "repeats itself"));
    }
    if !matches!(head.truncation.as_deref(), None | Some("auto" | "disabled")) {
        return Err(refuse("truncation", "must be `auto` or `disabled`"));
    }
    for (name, value) in [
        ("user", &head.user),
        ("safety_identifier", &head.safety_identifier),
        ("prompt_cache_key", &head.prompt_cache_key),
        ("previous_response_id", &head.previous_response_id),
    ] {
        if value.as_ref().is_some_and(|value| value.len() > LONGEST_NAME) {
            return Err(refuse(name, &format!("must be at most {LONGEST_NAME} bytes")));
        }
    }
    if let Some(metadata) = head.metadata {
        let pairs: std::collections::HashMap<Cow<'_, str>, Cow<'_, str>> =
            serde_json::from_str(metadata.get())
                .map_err(|_| refuse("metadata", "must map strings to strings"))?;
        if pairs.len() > MOST_METADATA {
            return Err(refuse("metadata", &format!("must have at most {MOST_METADATA} entries")));
        }
    }
    Ok(())
}

/// Edits that take out items which only carry a seal for this gateway, and what is lost with them:
/// the provider would refuse what it cannot open. Read once more, because such items are rare.
fn without_envelopes(text: &str) -> (Vec<Edit>, Losses) {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        input: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Item<'a> {
        #[serde(borrow, default)]
        r#type: Option<Cow<'a, str>>,
        #[serde(borrow, default)]
        encrypted_content: Option<Cow<'a, str>>,
    }
    let mut losses = Losses::new();
    let Ok(body) = serde_json::from_str::<Body<'_>>(text) else { return (Vec::new(), losses) };
    let items: Vec<_> = body
        .input
        .iter()
        .map(|raw| {
            let item: Option<Item<'_>> = serde_json::from_str(raw.get()).ok();
            let item = item.filter(|item| item.r#type.as_deref() == Some("reasoning"));
            let token = item.and_then(|item| item.encrypted_content);
            let lost = token.as_deref().filter(|token| seals::is_envelope(token)).map(seals::loss);
            if let Some((what, why)) = lost {
                losses.add(what, why);
            }
            (json::range_of(text, raw), lost.is_some())
        })
        .collect();
    let mut edits = Vec::new();
    // An item goes together with the comma before it, or, up to the first that stays, behind it.
    let mut kept_end = None;
    for (at, (range, ours)) in items.iter().enumerate() {
        if !ours {
            kept_end = Some(range.end);
            continue;
        }
        let next = items.get(at + 1).map(|(next, _)| next.start);
        let cut = match (kept_end, next) {
            (Some(end), _) => {
                kept_end = Some(range.end);
                end..range.end
            }
            (None, Some(next)) => range.start..next,
            (None, None) => range.clone(),
        };
        edits.push(Edit { at: cut, with: Bytes::new() });
    }
    (edits, losses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Segments;

    fn refused(body: &str) -> (String, String) {
        let fault = peek(body.as_bytes()).expect_err(body);
        (fault.path().unwrap_or_default().to_owned(), fault.say().to_owned())
    }

    /// A valid request with that field added.
    fn with(field: &str) -> String {
        format!(r#"{{"model":"m","input":"x",{field}}}"#)
    }

    fn with_items(items: &str) -> String {
        format!(r#"{{"model":"m","input":[{items}]}}"#)
    }

    fn with_parts(parts: &str) -> String {
        with_items(&format!(r#"{{"role":"user","content":[{parts}]}}"#))
    }

    #[test]
    fn what_the_flow_needs_is_found() {
        let body = with(r#""stream":true,"max_output_tokens":77"#);
        let peek = peek(body.as_bytes()).unwrap();
        assert_eq!((peek.model.as_str(), peek.stream, peek.wants_usage), ("m", true, true));
        assert_eq!((peek.max_output, peek.candidates), (Some(77), 1));
        assert_eq!(&body.as_bytes()[peek.marks.model.unwrap()], br#""m""#);
        assert_eq!(&body.as_bytes()[peek.marks.limit.unwrap()], b"77");
    }

    #[test]
    fn broken_fields_are_named() {
        let call = r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#;
        let answer = r#"{"type":"function_call_output","call_id":"c","output":"1"}"#;
        let tools = r#""tools":[{"type":"function","name":"a"}]"#;
        let many = vec![r#"{"role":"user","content":"x"}"#; MOST_ITEMS + 1].join(",");
        let long = "x".repeat(10_000);
        let cases = [
            (r#"{"input":"x"}"#.to_owned(), "model"),
            (r#"{"model":5,"input":"x"}"#.to_owned(), "model"),
            (r#"{"model":"","input":"x"}"#.to_owned(), "model"),
            (r#"{"model":"m"}"#.to_owned(), "input"),
            (r#"{"model":"m","input":null}"#.to_owned(), "input"),
            (r#"{"model":"m","input":5}"#.to_owned(), "input"),
            (r#"{"model":"m","input":{}}"#.to_owned(), "input"),
            (with_items(""), "input"),
            (with_items(&many), "input"),
            (with_items("5"), "input[0]"),
            (with_items("{}"), "input[0].type"),
            (with_items(r#"{"type":"message","content":"x"}"#), "input[0].role"),
            (with_items(r#"{"role":"root","content":"x"}"#), "input[0].role"),
            (with_items(r#"{"role":"user"}"#), "input[0].content"),
            (with_items(r#"{"role":"user","content":5}"#), "input[0].content"),
            (with_items(r#"{"role":"user","content":{}}"#), "input[0].content"),
            (with_parts("\"x\""), "input[0].content"),
            (with_parts("{}"), "input[0].content"),
            (with_parts(r#"{"type":"input_text"}"#), "input[0].content"),
            (with_parts(r#"{"type":"input_text","text":5}"#), "input[0].content"),
            (with_parts(r#"{"type":"input_image"}"#), "input[0].content"),
            (with_parts(r#"{"type":"input_image","image_url":"ftp://x"}"#), "input[0].content"),
            (with_parts(r#"{"type":"input_image","image_url":{"url":"x"}}"#), "input[0].content"),
            (with_parts(r#"{"type":"input_image","file_id":"file_1"}"#), "input[0].content"),
            (with_parts(r#"{"type":"input_file"}"#), "input[0].content"),
            (with_parts(r#"{"type":"input_file","file_id":"file_1"}"#), "input[0].content"),
            (with_parts(r#"{"type":"input_file","file_url":"file:///x"}"#), "input[0].content"),
            (with_items(r#"{"type":"function_call","name":"f"}"#), "input[0].call_id"),
            (with_items(r#"{"type":"function_call","call_id":"c"}"#), "input[0].name"),
            (with_items(r#"{"type":"function_call_output","output":"1"}"#), "input[0].call_id"),
            (
                with_items(&format!(r#"{call},{{"type":"function_call_output","call_id":"c"}}"#)),
                "input[1].output",
            ),
            (with_items(answer), "input[0].call_id"),
            (with_items(&answer.replace("function_call", "custom_tool_call")), "input[0].call_id"),
            (with_items(&format!("{call},{answer},{answer}")), "input[2].call_id"),
            (with(r#""previous_response_id":"r","conversation":"c""#), "conversation"),
            (with(r#""max_output_tokens":0"#), "max_output_tokens"),
            (with(r#""max_output_tokens":-1"#), "max_output_tokens"),
            (with(r#""max_output_tokens":15"#), "max_output_tokens"),
            (with(r#""max_output_tokens":16.5"#), "max_output_tokens"),
            (with(r#""max_output_tokens":9223372036854775808"#), "max_output_tokens"),
            (with(r#""max_tool_calls":-1"#), "max_tool_calls"),
            (with(r#""max_tool_calls":1000000"#), "max_tool_calls"),
            (with(r#""temperature":9"#), "temperature"),
            (with(r#""temperature":"1""#), "temperature"),
            (with(r#""top_p":1.1"#), "top_p"),
            (with(r#""top_logprobs":21"#), "top_logprobs"),
            (with(r#""stream":"true""#), "stream"),
            (with(r#""store":1"#), "store"),
            (with(r#""background":"no""#), "background"),
            (with(r#""instructions":5"#), "instructions"),
            (with(r#""parallel_tool_calls":"yes""#), "parallel_tool_calls"),
            (with(r#""tools":[{"name":"a"}]"#), "tools[0].type"),
            (with(r#""tools":[{"type":"function"}]"#), "tools[0].name"),
            (with(r#""tools":[{"type":"custom","name":""}]"#), "tools[0].name"),
            (
                with(r#""tools":[{"type":"function","name":"a","parameters":[]}]"#),
                "tools[0].parameters",
            ),
            (
                with(r#""tools":[{"type":"function","name":"a"},{"type":"custom","name":"a"}]"#),
                "tools[1].name",
            ),
            (
                with(r#""tools":[{"type":"namespace","name":"n","tools":[{"type":"function"}]}]"#),
                "tools[0].tools[0].name",
            ),
            (with(r#""tool_choice":"maybe""#), "tool_choice"),
            (with(r#""tool_choice":"required""#), "tool_choice"),
            (with(r#""tool_choice":5"#), "tool_choice"),
            (
                with(&format!(r#"{tools},"tool_choice":{{"type":"function","name":"b"}}"#)),
                "tool_choice",
            ),
            (with(&format!(r#"{tools},"tool_choice":{{"type":"function"}}"#)), "tool_choice"),
            (
                with(&format!(
                    r#"{tools},"tool_choice":{{"type":"allowed_tools","mode":"x","tools":[]}}"#
                )),
                "tool_choice.mode",
            ),
            (with(r#""reasoning":{"effort":"max++"}"#), "reasoning.effort"),
            (with(r#""reasoning":{"summary":5}"#), "reasoning.summary"),
            (with(r#""reasoning":{"summary":"long"}"#), "reasoning.summary"),
            (with(r#""reasoning":"high""#), "reasoning"),
            (with(r#""text":{"verbosity":"huge"}"#), "text.verbosity"),
            (with(r#""text":{"format":{"type":"json_schema","schema":{}}}"#), "text.format.name"),
            (with(r#""text":{"format":{"type":"json_schema","name":"n"}}"#), "text.format.schema"),
            (with(r#""text":{"format":{"type":"xml"}}"#), "text.format.type"),
            (with(r#""include":["secrets"]"#), "include[0]"),
            (with(r#""include":"secrets""#), "include"),
            (with(r#""truncation":"both""#), "truncation"),
            (with(&format!(r#""safety_identifier":"{long}""#)), "safety_identifier"),
            (with(&format!(r#""prompt_cache_key":"{long}""#)), "prompt_cache_key"),
            (with(r#""metadata":{"a":{"b":"c"}}"#), "metadata"),
            (with(r#""model":"again""#), ""),
            (with(r#""temperature":1e400"#), ""),
        ];
        for (body, path) in cases {
            let (found, say) = refused(&body);
            assert_eq!(found, path, "{body}: {say}");
            assert!(path.is_empty() || !say.contains(" at line "), "{body}: {say}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for body in ["", " ", "null", "42", "\"x\"", "[]", "{", "{\"a\":1,}", "{}{}", "{} x"] {
            refused(body);
        }
        assert!(peek(b"{\"model\":\"\xe9\"}").is_err());
        refused(&with_items(r#"{"role":"user","content":"\ud800"}"#));
    }

    #[test]
    fn what_the_provider_may_know_passes() {
        let answer = r#"{"type":"function_call_output","call_id":"c","output":[]}"#;
        for body in [
            with(r#""stream":null,"tools":null,"reasoning":null,"text":null"#),
            with(r#""unknown":{"a":[1]},"tools":[{"type":"brand_new"}]"#),
            with(r#""tool_choice":{"type":"brand_new"}"#),
            with_items(r#"{"type":"brand_new","content":[5,"x"],"output":7}"#),
            with_parts(r#"{"type":"brand_new","text":{}}"#),
            r#"{"model":"m","prompt":{"id":"p"}}"#.to_owned(),
            format!(r#"{{"model":"m","previous_response_id":"r","input":[{answer}]}}"#),
            format!(r#"{{"model":"m","conversation":{{"id":"c"}},"input":[{answer}]}}"#),
            with_items(&format!(r#"{{"type":"item_reference","id":"fc_1"}},{answer}"#)),
        ] {
            assert!(peek(body.as_bytes()).is_ok(), "{body}: {:?}", peek(body.as_bytes()));
        }
    }

    #[test]
    fn items_that_carry_our_seals_are_taken_out() {
        let seal = canon::Seal::new(canon::Origin::Native, "c2ln");
        let ours = serde_json::Value::from(seals::loose(seals::on_call(&seal, "c"), None));
        let ours = ours.to_string();
        let user = r#"{"role":"user","content":"x"}"#;
        for (items, left) in [
            (format!("{user} , {ours}"), user.to_owned()),
            (format!("{ours} , {user}"), user.to_owned()),
            (format!("{ours},{ours} ,{user}"), user.to_owned()),
            (format!("{user},{ours},{ours},{user},{ours}"), format!("{user},{user}")),
            (ours.clone(), String::new()),
        ] {
            let body = Bytes::from(with_items(&items));
            let peek = peek(&body).unwrap();
            let patched = Segments::edited(&body, peek.edits).to_vec();
            assert_eq!(String::from_utf8(patched).unwrap(), with_items(&left), "{items}");
        }
    }
}
