//! Checks of a chat request that lead to status 400, made in one pass over its bytes.
//!
//! The pass borrows the fields that routing and the rules need, and skips the rest. It rejects only
//! what the API reference forbids; unknown fields are left to the provider.
//!
//! See <https://platform.openai.com/docs/api-reference/chat/create>.

use canon::{ApiError, EffortLevel, Losses};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashSet;

use super::request_view::{ChatRequestView, ChatToolView};
use super::wire;
use crate::RequestFacts;
use crate::checks::{check_metadata, check_model, check_range, invalid_field};
use crate::dialect::{DEFAULT_MAX_SEARCHES, PatchPoints};
use crate::json;
use crate::value_view::AnyObject;

const MAX_MESSAGES: usize = 10_000;
const MAX_LOGIT_BIASES: usize = 2_048;
const MAX_OUTPUT_TOKENS: u64 = 1 << 30;

/// Parses the request facts and applies the rules.
pub(super) fn read_facts(body: &[u8]) -> Result<RequestFacts, ApiError> {
    let text = json::checked_text(body)?;
    let view: ChatRequestView<'_> = json::parse(text)?;
    let marks = patch_points(text, &view);
    check(&view, marks)
}

fn patch_points(text: &str, view: &ChatRequestView<'_>) -> PatchPoints {
    let range = |value: Option<&RawValue>| value.map(|value| json::range_of(text, value));
    PatchPoints {
        model: range(view.model),
        limit: range(view.max_completion_tokens).or_else(|| range(view.max_tokens)),
        stream_options: range(view.stream_options),
        ..PatchPoints::locate(text)
    }
}

fn check(view: &ChatRequestView<'_>, marks: PatchPoints) -> Result<RequestFacts, ApiError> {
    let model = check_model(view.model)?;
    let messages =
        view.messages.as_ref().ok_or_else(|| invalid_field("messages", "is required"))?;
    if messages.count == 0 {
        return Err(invalid_field("messages", "must not be empty"));
    }
    if messages.count > MAX_MESSAGES {
        return Err(invalid_field("messages", &format!("must have at most {MAX_MESSAGES} items")));
    }
    if let Some((path, why)) = &messages.problem {
        return Err(invalid_field(path, why));
    }
    check_numbers(view)?;
    check_tools(view)?;
    if view.reasoning_effort.as_deref().is_some_and(|word| EffortLevel::parse(word).is_none()) {
        return Err(invalid_field(
            "reasoning_effort",
            "must be one of `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`",
        ));
    }
    if view.user.as_ref().is_some_and(|user| user.len() > 4_096) {
        return Err(invalid_field("user", "must be at most 4096 bytes"));
    }
    check_objects(view)?;
    check_words(view)?;
    let stream = view.stream.unwrap_or(false);
    let wants_usage = wants_usage(view, stream)?;
    let max_output = output_limit(view)?;
    Ok(RequestFacts {
        model,
        stream,
        json_array: false,
        wants_usage,
        max_output_tokens: max_output,
        candidates: u32::try_from(view.n.unwrap_or(1)).unwrap_or(1),
        service_tier: view.service_tier.as_deref().map(wire::read_tier),
        max_searches: max_searches(view),
        patch_points: marks,
        edits: Vec::new(),
        only_text: !messages.has_parts,
        losses: Losses::new(),
        stored_object: None,
    })
}

/// Maximum searches to reserve money for. This format has no field that limits them.
fn max_searches(view: &ChatRequestView<'_>) -> u64 {
    let mut tools = view.tools.iter().flatten().filter_map(|tool| tool.r#type.as_deref());
    let may = view.web_search_options.is_some()
        || view.search_parameters.is_some()
        || tools.any(|kind| kind.contains("search"));
    if may { DEFAULT_MAX_SEARCHES } else { 0 }
}

fn check_numbers(view: &ChatRequestView<'_>) -> Result<(), ApiError> {
    check_range("temperature", view.temperature, 0.0, 2.0)?;
    check_range("top_p", view.top_p, 0.0, 1.0)?;
    check_range("presence_penalty", view.presence_penalty, -2.0, 2.0)?;
    check_range("frequency_penalty", view.frequency_penalty, -2.0, 2.0)?;
    if view.n.is_some_and(|n| !(1..=128).contains(&n)) {
        return Err(invalid_field("n", "must be between 1 and 128"));
    }
    if view.top_logprobs.is_some_and(|n| !(0..=20).contains(&n)) {
        return Err(invalid_field("top_logprobs", "must be between 0 and 20"));
    }
    if view.top_logprobs.is_some_and(|n| n > 0) && view.logprobs != Some(true) {
        return Err(invalid_field("top_logprobs", "needs `logprobs` to be true"));
    }
    let _ = view.seed;
    Ok(())
}

fn check_tools(view: &ChatRequestView<'_>) -> Result<(), ApiError> {
    let tools = view.tools.as_deref().unwrap_or_default();
    if view.tools.is_some() && view.functions.is_some() {
        return Err(invalid_field(
            "functions",
            "is the old form of `tools`; send only one of them",
        ));
    }
    let mut names = HashSet::with_capacity(tools.len());
    for (at, tool) in tools.iter().enumerate() {
        let declared = match tool.r#type.as_deref() {
            None => return Err(invalid_field(&format!("tools[{at}].type"), "is required")),
            Some("function") => Some(("function", &tool.function)),
            Some("custom") => Some(("custom", &tool.custom)),
            Some(_) => None,
        };
        if let Some((kind, tool)) = declared {
            match tool.as_ref().and_then(|tool| tool.name.as_deref()) {
                Some(name) if !name.is_empty() => {
                    if !names.insert(name) {
                        let path = format!("tools[{at}].{kind}.name");
                        return Err(invalid_field(&path, "is already the name of another tool"));
                    }
                }
                _ => return Err(invalid_field(&format!("tools[{at}].{kind}.name"), "is required")),
            }
        }
    }
    let _ = view.parallel_tool_calls;
    check_functions(view)?;
    check_tool_choice(view.tool_choice, &names, view.tools.is_some())
}

/// Checks the old form of tools.
fn check_functions(view: &ChatRequestView<'_>) -> Result<(), ApiError> {
    let mut names = HashSet::new();
    for (at, function) in view.functions.iter().flatten().enumerate() {
        let path = format!("functions[{at}].name");
        match function.name.as_deref() {
            Some(name) if !name.is_empty() => {
                if !names.insert(name) {
                    return Err(invalid_field(&path, "is already the name of another function"));
                }
            }
            _ => return Err(invalid_field(&path, "is required")),
        }
    }
    Ok(())
}

fn check_tool_choice(
    value: Option<&RawValue>,
    names: &HashSet<&str>,
    has_tools: bool,
) -> Result<(), ApiError> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum ChatToolChoiceView<'a> {
        Word(#[serde(borrow)] Cow<'a, str>),
        #[serde(borrow)]
        Named(ChatToolView<'a>),
    }
    let Some(value) = value else { return Ok(()) };
    let rule = "must be `none`, `auto`, `required` or an object that names a tool";
    match serde_json::from_str(value.get()) {
        Ok(ChatToolChoiceView::Word(word)) => match &*word {
            "none" | "auto" => Ok(()),
            "required" if has_tools => Ok(()),
            "required" => Err(invalid_field("tool_choice", "needs `tools`")),
            _ => Err(invalid_field("tool_choice", rule)),
        },
        Ok(ChatToolChoiceView::Named(tool)) => {
            let name = [&tool.function, &tool.custom]
                .into_iter()
                .flatten()
                .find_map(|t| t.name.as_deref());
            match (tool.r#type.as_deref(), name) {
                (Some("function" | "custom"), Some(name)) if names.contains(name) => Ok(()),
                (Some("function" | "custom"), Some(_)) => {
                    Err(invalid_field("tool_choice", "names a tool that is not in `tools`"))
                }
                (Some("function" | "custom"), None) | (None, _) => {
                    Err(invalid_field("tool_choice", rule))
                }
                (Some(_), _) => Ok(()),
            }
        }
        Err(_) => Err(invalid_field("tool_choice", rule)),
    }
}

/// Checks fields whose contents only matter to their own rule.
fn check_objects(view: &ChatRequestView<'_>) -> Result<(), ApiError> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum ChatStopView<'a> {
        One(#[serde(borrow)] Cow<'a, str>),
        Some(#[serde(borrow)] Vec<Cow<'a, str>>),
    }
    #[derive(Deserialize)]
    #[serde(expecting = "an object with a `type`")]
    struct ChatFormatView<'a> {
        #[serde(borrow, default)]
        r#type: Option<Cow<'a, str>>,
        #[serde(borrow, default)]
        json_schema: Option<ChatSchemaView<'a>>,
    }
    #[derive(Deserialize)]
    #[serde(expecting = "an object with a `name`")]
    struct ChatSchemaView<'a> {
        #[serde(borrow, default)]
        name: Option<Cow<'a, str>>,
        #[serde(default, rename = "schema")]
        _schema: Option<AnyObject>,
        #[serde(default, rename = "strict")]
        _strict: Option<bool>,
    }
    if let Some(stop) = view.stop {
        let texts = match serde_json::from_str(stop.get()) {
            Ok(ChatStopView::One(text)) => vec![text],
            Ok(ChatStopView::Some(texts)) => texts,
            Err(_) => return Err(invalid_field("stop", "must be a string or a list of strings")),
        };
        if texts.len() > 4 {
            return Err(invalid_field("stop", "must have at most 4 items"));
        }
        if texts.iter().any(|text| text.is_empty() || text.len() > 4_096) {
            return Err(invalid_field("stop", "must be strings of 1 to 4096 bytes"));
        }
    }
    if let Some(bias) = view.logit_bias {
        let pairs: std::collections::HashMap<Cow<'_, str>, f64> = serde_json::from_str(bias.get())
            .map_err(|_| invalid_field("logit_bias", "must map token ids to numbers"))?;
        if pairs.len() > MAX_LOGIT_BIASES {
            return Err(invalid_field(
                "logit_bias",
                &format!("must have at most {MAX_LOGIT_BIASES} entries"),
            ));
        }
        if pairs
            .iter()
            .any(|(id, bias)| id.parse::<u64>().is_err() || !(-100.0..=100.0).contains(bias))
        {
            return Err(invalid_field(
                "logit_bias",
                "must map token ids to numbers from -100 to 100",
            ));
        }
    }
    check_metadata(view.metadata)?;
    if let Some(format) = view.response_format {
        let format: ChatFormatView<'_> = json::parse_field(format, "response_format")?;
        match format.r#type.as_deref() {
            Some("text" | "json_object") => {}
            Some("json_schema") => {
                if format.json_schema.and_then(|schema| schema.name).is_none() {
                    return Err(invalid_field("response_format.json_schema.name", "is required"));
                }
            }
            _ => {
                return Err(invalid_field(
                    "response_format.type",
                    "must be `text`, `json_object` or `json_schema`",
                ));
            }
        }
    }
    Ok(())
}

/// Checks fields with a fixed set of words.
fn check_words(view: &ChatRequestView<'_>) -> Result<(), ApiError> {
    if !matches!(view.verbosity.as_deref(), None | Some("low" | "medium" | "high")) {
        return Err(invalid_field("verbosity", "must be one of `low`, `medium`, `high`"));
    }
    for (at, word) in view.modalities.iter().flatten().enumerate() {
        if !matches!(&**word, "text" | "audio" | "image") {
            let path = format!("modalities[{at}]");
            return Err(invalid_field(&path, "must be one of `text`, `audio`, `image`"));
        }
    }
    let _ = view.store;
    Ok(())
}

fn wants_usage(view: &ChatRequestView<'_>, stream: bool) -> Result<bool, ApiError> {
    #[derive(Deserialize)]
    struct ChatStreamOptionsView {
        #[serde(default)]
        include_usage: Option<bool>,
    }
    let Some(options) = view.stream_options else { return Ok(false) };
    if !stream {
        return Err(invalid_field("stream_options", "is only allowed when `stream` is true"));
    }
    serde_json::from_str::<ChatStreamOptionsView>(options.get())
        .map(|options| options.include_usage.unwrap_or(false))
        .map_err(|_| invalid_field("stream_options.include_usage", "must be true or false"))
}

/// Reads the output limit. Two different limits in one request are rejected, because one of them
/// would be ignored silently.
fn output_limit(view: &ChatRequestView<'_>) -> Result<Option<u64>, ApiError> {
    let read = |name, value: Option<&RawValue>| match value {
        None => Ok(None),
        Some(value) => match serde_json::from_str::<u64>(value.get()) {
            Ok(limit @ 1..=MAX_OUTPUT_TOKENS) => Ok(Some(limit)),
            _ => Err(invalid_field(name, "must be a whole number of at least 1")),
        },
    };
    let old = read("max_tokens", view.max_tokens)?;
    let new = read("max_completion_tokens", view.max_completion_tokens)?;
    match (new, old) {
        (Some(new), Some(old)) if new != old => Err(invalid_field(
            "max_tokens",
            "contradicts `max_completion_tokens`; send only one of them",
        )),
        (new, old) => Ok(new.or(old)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> (String, String) {
        let fault = read_facts(body.as_bytes()).expect_err(body);
        (fault.param().unwrap_or_default().to_owned(), fault.message().to_owned())
    }

    /// Returns a valid request with that field added or replaced.
    fn with(field: &str) -> String {
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":"x"}}],{field}}}"#)
    }

    fn with_messages(messages: &str) -> String {
        format!(r#"{{"model":"m","messages":{messages}}}"#)
    }

    fn with_part(part: &str) -> String {
        with_messages(&format!(r#"[{{"role":"user","content":[{part}]}}]"#))
    }

    #[test]
    fn reads_the_request_facts() {
        let body =
            with(r#""stream":true,"stream_options":{"include_usage":true},"max_tokens":7,"n":2"#);
        let facts = read_facts(body.as_bytes()).unwrap();
        assert_eq!((facts.model.as_str(), facts.stream, facts.wants_usage), ("m", true, true));
        assert_eq!((facts.max_output_tokens, facts.candidates), (Some(7), 2));
        assert_eq!(&body.as_bytes()[facts.patch_points.model.unwrap()], br#""m""#);
        assert_eq!(&body.as_bytes()[facts.patch_points.limit.unwrap()], b"7");
    }

    #[test]
    fn accepts_escaped_keys() {
        let body = r#"{"mod\u0065l":"m","messages":[{"role":"user","content":"x"}]}"#;
        assert_eq!(read_facts(body.as_bytes()).unwrap().model, "m");
    }

    #[test]
    fn errors_name_the_invalid_field() {
        let cases = [
            (r#"{"messages":[{"role":"user","content":"x"}]}"#.to_owned(), "model"),
            (r#"{"model":5,"messages":[{"role":"user","content":"x"}]}"#.to_owned(), "model"),
            (r#"{"model":"","messages":[{"role":"user","content":"x"}]}"#.to_owned(), "model"),
            (r#"{"model":"m"}"#.to_owned(), "messages"),
            (with_messages("[]"), "messages"),
            (with_messages("{}"), "messages"),
            (with_messages(r#"[{"content":"x"}]"#), "messages[0].role"),
            (with_messages(r#"[{"role":"root","content":"x"}]"#), "messages[0].role"),
            (with_messages(r#"[{"role":5,"content":"x"}]"#), "messages[0].role"),
            (with_messages(r#"[{"role":"user"}]"#), "messages[0].content"),
            (with_messages(r#"[{"role":"user","content":null}]"#), "messages[0].content"),
            (with_messages(r#"[{"role":"user","content":5}]"#), "messages[0].content"),
            (with_messages(r#"[{"role":"user","content":[]}]"#), "messages[0].content"),
            (with_messages(r#"[{"role":"user","content":["x"]}]"#), "messages[0].content[0]"),
            (
                with_messages(r#"[{"role":"user","content":[{"type":"text"}]}]"#),
                "messages[0].content",
            ),
            (
                with_messages(
                    r#"[{"role":"user","content":[{"type":"image_url","image_url":"x"}]}]"#,
                ),
                "messages[0].content[0].image_url",
            ),
            (
                with_messages(
                    r#"[{"role":"user","content":[{"type":"image_url","image_url":{"url":"ftp://x"}}]}]"#,
                ),
                "messages[0].content",
            ),
            (with_messages(r#"[{"role":"tool","content":"x"}]"#), "messages[0].tool_call_id"),
            (
                with_messages(r#"[{"role":"tool","tool_call_id":"c","content":"x"}]"#),
                "messages[0].tool_call_id",
            ),
            (with(r#""max_tokens":0"#), "max_tokens"),
            (with(r#""max_tokens":1.5"#), "max_tokens"),
            (with(r#""max_tokens":"10""#), "max_tokens"),
            (with(r#""max_tokens":1,"max_completion_tokens":2"#), "max_tokens"),
            (with(r#""n":0"#), "n"),
            (with(r#""n":129"#), "n"),
            (with(r#""temperature":2.1"#), "temperature"),
            (with(r#""temperature":1e400"#), ""),
            (with(r#""top_p":-0.1"#), "top_p"),
            (with(r#""presence_penalty":2.1"#), "presence_penalty"),
            (with(r#""stop":["a","b","c","d","e"]"#), "stop"),
            (with(r#""stop":"""#), "stop"),
            (with(r#""stop":[["a"]]"#), "stop"),
            (with(r#""logit_bias":{"x":1}"#), "logit_bias"),
            (with(r#""logit_bias":{"1":101}"#), "logit_bias"),
            (with(r#""seed":18446744073709551616"#), "seed"),
            (with(r#""metadata":{"a":{"b":"c"}}"#), "metadata"),
            (with(r#""stream_options":{"include_usage":true}"#), "stream_options"),
            (
                with(r#""stream":true,"stream_options":{"include_usage":"yes"}"#),
                "stream_options.include_usage",
            ),
            (with(r#""stream":"true""#), "stream"),
            (with(r#""stream":1"#), "stream"),
            (with(r#""tool_choice":"maybe""#), "tool_choice"),
            (
                with(
                    r#""tools":[{"type":"function","function":{"name":"a"}}],"tool_choice":{"type":"function","function":{"name":"b"}}"#,
                ),
                "tool_choice",
            ),
            (with(r#""tools":[{"type":"function","function":{}}]"#), "tools[0].function.name"),
            (with(r#""tools":[{"function":{"name":"a"}}]"#), "tools[0].type"),
            (with(r#""tools":[],"functions":[]"#), "functions"),
            (with(r#""reasoning_effort":"ultra""#), "reasoning_effort"),
            (with(r#""response_format":{"type":"xml"}"#), "response_format.type"),
            (with(r#""model":"again""#), ""),
            (with(r#""tools":[{"type":"function","function":5}]"#), "tools[0].function"),
            (
                with(r#""tools":[{"type":"function","function":{"name":"a","parameters":"x"}}]"#),
                "tools[0].function.parameters",
            ),
            (
                with(
                    r#""tools":[{"type":"function","function":{"name":"a"}},{"type":"custom","custom":{"name":"a"}}]"#,
                ),
                "tools[1].custom.name",
            ),
            (with(r#""functions":{}"#), "functions"),
            (with(r#""functions":[{}]"#), "functions[0].name"),
            (with(r#""functions":[{"name":"a"},{"name":"a"}]"#), "functions[1].name"),
            (
                with(
                    r#""response_format":{"type":"json_schema","json_schema":{"name":"a","schema":[]}}"#,
                ),
                "response_format.json_schema.schema",
            ),
            (with(r#""verbosity":"loud""#), "verbosity"),
            (with(r#""verbosity":3"#), "verbosity"),
            (with(r#""service_tier":{}"#), "service_tier"),
            (with(r#""store":"yes""#), "store"),
            (with(r#""modalities":"text""#), "modalities"),
            (with(r#""modalities":["smell"]"#), "modalities[0]"),
            (with(&format!(r#""metadata":{{"{}":"x"}}"#, "k".repeat(65))), "metadata"),
            (with(&format!(r#""metadata":{{"k":"{}"}}"#, "v".repeat(513))), "metadata"),
            (
                with_messages(
                    r#"[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":{}}}]}]"#,
                ),
                "messages[0].tool_calls[0].function.arguments",
            ),
            (
                with_part(
                    r#"{"type":"image_url","image_url":{"url":"data:text/html;base64,AAAA"}}"#,
                ),
                "messages[0].content",
            ),
            (
                with_part(r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,?"}}"#),
                "messages[0].content",
            ),
            (with_part(r#"{"type":"input_audio","input_audio":{}}"#), "messages[0].content"),
            (
                with_part(r#"{"type":"input_audio","input_audio":{"data":"?","format":"wav"}}"#),
                "messages[0].content",
            ),
            (
                with_part(r#"{"type":"input_audio","input_audio":{"data":"AAAA"}}"#),
                "messages[0].content",
            ),
            (with_part(r#"{"type":"file","file":{}}"#), "messages[0].content"),
            (
                with_part(r#"{"type":"file","file":{"file_data":"no base64"}}"#),
                "messages[0].content",
            ),
        ];
        for (body, path) in cases {
            let (found, say) = refused(&body);
            assert_eq!(found, path, "{body}: {say}");
            assert!(path.is_empty() || !say.contains(" at line "), "{body}: {say}");
            assert!(!say.contains("View") && !say.contains("struct"), "{body}: {say}");
        }
    }

    #[test]
    fn rejects_a_body_that_is_not_an_object() {
        for body in
            ["", " ", "null", "true", "42", "\"x\"", "[]", "{", "{\"a\":1,}", "{}{}", "{} x"]
        {
            refused(body);
        }
        assert!(read_facts(b"{\"model\":\"\xe9\"}").is_err());
        assert!(read_facts("\u{feff}{}".as_bytes()).is_err());
        refused(&with_messages(r#"[{"role":"user","content":"\ud800"}]"#));
    }

    #[test]
    fn accepts_a_conversation_with_tools() {
        let body = with_messages(
            r#"[{"role":"system","content":"s"},{"role":"user","content":"x"},
                {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{"}}]},
                {"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"21"}]},
                {"role":"assistant","content":"ok","refusal":null,"annotations":[]},
                {"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}},{"type":"anything"}]}]"#,
        );
        assert!(read_facts(body.as_bytes()).is_ok(), "{:?}", read_facts(body.as_bytes()));
        for field in [r#""stream":null"#, r#""max_tokens":null"#, r#""unknown":{"a":[1]}"#] {
            assert!(read_facts(with(field).as_bytes()).is_ok(), "{field}");
        }
    }
}
