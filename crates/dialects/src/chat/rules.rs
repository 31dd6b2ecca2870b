//! Rules of a chat request that concern more than one field, and the facts that the relay needs.

use canon::{
    ApiError, HostedTools, JsonOutput, MediaKind, Modality, NeedKind, PLUGINS_FIELD, RequestNeeds,
    SamplingParameter,
};
use serde_json::value::RawValue;
use std::collections::HashSet;

use super::content::{ChatMessage, ChatPart};
use super::names::{IMAGES_FIELD, LIMIT_FIELD, MODALITIES, ORIGIN, STREAM_OPTIONS_FIELD};
use super::request::{ChatRequestView, ChatTool};
use crate::RequestFacts;
use crate::call_ids::{AnsweredCall, UnansweredCalls};
use crate::caller_labels::CallerLabels;
use crate::carried_media::add_undescribed;
use crate::dialect::PatchPoints;
use crate::fields::add_protective;
use crate::media_rules::{add_media_at, base64_bytes};
use crate::service_tier::read_request_tier;
use crate::session_sign::{SessionSigns, metadata_user};
use crate::text::by_word;
use crate::wire_rule::{FieldProblem, RuleResult, ensure_at};
use crate::wire_value::{PlacedValue, TextOrList, TextOrObject};

/// Checks a request and returns its facts.
pub(super) fn check(text: &str, view: &ChatRequestView<'_>) -> Result<RequestFacts, ApiError> {
    let checked = check_messages(messages(view))
        .and_then(|()| check_options(view))
        .and_then(|()| check_tools(view));
    checked.map_err(FieldProblem::into_error)?;
    let options = view.stream_options.as_ref().map(|options| &options.value);
    Ok(RequestFacts {
        model: view.model.as_ref().map(|model| (*model.value).to_owned()).unwrap_or_default(),
        stream: view.stream.unwrap_or(false),
        wants_usage: options.and_then(|options| options.include_usage).unwrap_or(false),
        max_output_tokens: view.output_limit(),
        candidates: u32::try_from(view.n.unwrap_or(1)).unwrap_or(1),
        service_tier: view.service_tier.as_deref().map(|word| read_request_tier(ORIGIN, word)),
        predicted_tokens: view.rest.get("prediction").map_or(0, |raw| raw.get().len() as u64),
        hosted_tools: hosted_tools(view).with_plugins(view.rest.get(PLUGINS_FIELD).is_some()),
        reads_storage: view.rest.get(STORAGE_FIELD).is_some(),
        patch_points: PatchPoints {
            model: PlacedValue::range(view.model.as_ref(), text),
            limit: PlacedValue::range(view.limit_field(), text)
                .or_else(|| view.rest.null_range(LIMIT_FIELD, text)),
            stream_options: PlacedValue::range(view.stream_options.as_ref(), text)
                .or_else(|| view.rest.null_range(STREAM_OPTIONS_FIELD, text)),
            ..PatchPoints::locate(text)
        },
        only_text: !messages(view).iter().any(|message| {
            let is_list = matches!(message.content, Some(TextOrList::List(_)));
            is_list || message.rest.get(IMAGES_FIELD).is_some()
        }),
        has_reply_images: messages(view)
            .iter()
            .any(|message| message.role.as_deref() == Some("assistant") && has_images(message)),
        needs: needs(view),
        session: SessionSigns {
            rest: Some(&view.rest),
            cache_key: view.prompt_cache_key.as_deref(),
            user_id: metadata_user(view.metadata).as_deref(),
            conversation: None,
        }
        .session(),
        labels: CallerLabels::read(
            view.safety_identifier.as_deref().or(view.user.as_deref()),
            view.metadata.map(|pairs| pairs.0.get()),
        ),
        ..RequestFacts::default()
    })
}

/// Returns what the request asks of its model.
fn needs(view: &ChatRequestView<'_>) -> RequestNeeds {
    let mut needs = RequestNeeds::default();
    add_protective(&mut needs, &view.rest);
    for (at, message) in messages(view).iter().enumerate() {
        if has_images(message) {
            needs.add_media(MediaKind::Image, None, || format!("messages[{at}].{IMAGES_FIELD}"));
        }
        let Some(TextOrList::List(parts)) = &message.content else { continue };
        for (part_at, part) in parts.iter().enumerate() {
            let path = || format!("messages[{at}].content[{part_at}]");
            match part {
                ChatPart::Image(part) => {
                    let url = part.image_url.as_ref().and_then(|image| image.url.as_deref());
                    add_media_at(&mut needs, url, MediaKind::Image, path);
                }
                ChatPart::Video(part) => {
                    let url = part.video_url.as_ref().and_then(|video| video.url.as_deref());
                    add_media_at(&mut needs, url, MediaKind::Video, path);
                }
                ChatPart::Audio(part) => {
                    let sound = part.input_audio.as_ref().and_then(|sound| sound.data.as_deref());
                    needs.add_media(MediaKind::Audio, sound.map(base64_bytes), path);
                }
                ChatPart::File(part) => {
                    let data = part.file.as_ref().and_then(|file| file.file_data.as_deref());
                    add_media_at(&mut needs, data, MediaKind::Document, path);
                }
                ChatPart::Unknown(fields) => add_undescribed(&mut needs, fields, path),
                ChatPart::Text(_) | ChatPart::Refusal(_) => {}
            }
        }
    }
    for (at, word) in view.modalities.iter().flatten().enumerate() {
        let modality = by_word(&MODALITIES, word).filter(|modality| *modality != Modality::Text);
        if let Some(modality) = modality {
            needs.add(format!("modalities[{at}]"), NeedKind::Output(modality));
        }
    }
    if let Some(image) = &view.image_config {
        needs.add("image_config", NeedKind::Output(Modality::Image));
        if let Some(ratio) = image.aspect_ratio.as_deref() {
            needs.add("image_config.aspect_ratio", NeedKind::AspectRatio(ratio.to_owned()));
        }
        if let Some(size) = image.image_size.as_deref() {
            needs.add("image_config.image_size", NeedKind::ImageSize(size.to_owned()));
        }
    }
    add_tools(&mut needs, view);
    let form = view.response_format.as_ref().and_then(|format| match format.kind.as_deref() {
        Some("json_object") => Some(JsonOutput::Object),
        Some("json_schema") => Some(JsonOutput::Schema),
        _ => None,
    });
    if let Some(form) = form {
        needs.add("response_format", NeedKind::Json(form));
    }
    if view.logprobs == Some(true) {
        needs.add("logprobs", NeedKind::Logprobs);
    }
    add_parameters(&mut needs, view);
    let count = view.n.and_then(|count| u32::try_from(count).ok());
    if let Some(count) = count.filter(|count| *count > 1) {
        needs.add("n", NeedKind::Candidates(count));
    }
    needs
}

fn add_parameters(needs: &mut RequestNeeds, view: &ChatRequestView<'_>) {
    for (path, parameter, value) in [
        ("temperature", SamplingParameter::Temperature, view.temperature),
        ("top_p", SamplingParameter::TopP, view.top_p),
        ("presence_penalty", SamplingParameter::PresencePenalty, view.presence_penalty),
        ("frequency_penalty", SamplingParameter::FrequencyPenalty, view.frequency_penalty),
    ] {
        needs.add_parameter(path, parameter, value);
    }
    let stops = view.stop.as_ref().map(|stops| match stops {
        TextOrList::Text(_) => 1,
        TextOrList::List(texts) => texts.len(),
    });
    needs.add_whole_parameter("stop", SamplingParameter::StopSequences, stops);
    needs.add_whole_parameter("top_k", SamplingParameter::TopK, view.top_k);
    needs.add_whole_parameter("seed", SamplingParameter::Seed, view.seed);
    needs.add_whole_parameter("top_logprobs", SamplingParameter::Logprobs, view.top_logprobs);
}

/// Adds the tools.
fn add_tools(needs: &mut RequestNeeds, view: &ChatRequestView<'_>) {
    for (at, tool) in view.tools.as_deref().unwrap_or_default().iter().enumerate() {
        let path = || format!("tools[{at}].type");
        match tool {
            ChatTool::Function(_) => needs.add_tool("function", path),
            ChatTool::Custom(_) => needs.add_tool("custom", path),
            ChatTool::Unknown(fields) => {
                needs.add_tool(&fields.text("type").unwrap_or_default(), path);
            }
        }
    }
    if view.functions.as_deref().is_some_and(|functions| !functions.is_empty()) {
        needs.add_tool("function", || "functions".to_owned());
    }
    if view.web_search_options.is_some() {
        needs.add_tool("web_search", || "web_search_options".to_owned());
    }
}

fn has_images(message: &ChatMessage<'_>) -> bool {
    let images = message.rest.get(IMAGES_FIELD).map(RawValue::get);
    images.is_some_and(|images| images != "null" && images != "[]")
}

fn messages<'v, 'a>(view: &'v ChatRequestView<'a>) -> &'v [ChatMessage<'a>] {
    view.messages.as_ref().map(|list| list.0.as_slice()).unwrap_or_default()
}

/// Field of Azure whose data become a part of the prompt.
const STORAGE_FIELD: &str = "data_sources";

/// Tools that are not functions are those of a provider. This format has no field that limits them.
fn hosted_tools(view: &ChatRequestView<'_>) -> HostedTools {
    let tools = view.tools.as_deref().unwrap_or_default().iter().filter_map(|tool| match tool {
        ChatTool::Unknown(fields) => Some((fields.text("type").unwrap_or_default(), None)),
        ChatTool::Function(_) | ChatTool::Custom(_) => None,
    });
    let may_search = view.web_search_options.is_some() || view.search_parameters.is_some();
    tools.chain(may_search.then(|| ("web_search".into(), None))).collect()
}

/// Checks that every tool message answers an earlier call, and every call has one answer.
fn check_messages(messages: &[ChatMessage<'_>]) -> RuleResult {
    ensure_at(!messages.is_empty(), "messages", "must not be empty")?;
    let mut calls = UnansweredCalls::default();
    for (at, message) in messages.iter().enumerate() {
        let id = message.tool_call_id.as_deref();
        let id = id.filter(|_| message.role.as_deref() == Some("tool"));
        let why = match id.map_or(AnsweredCall::Open, |id| calls.answer(id)) {
            AnsweredCall::Open => "",
            AnsweredCall::Answered => "was answered before",
            AnsweredCall::Unknown => {
                "answers no call: no earlier assistant message has a `tool_calls` entry with this id"
            }
        };
        if !why.is_empty() {
            return Err(FieldProblem::new(format!("messages[{at}].tool_call_id"), why));
        }
        let ids = message.tool_calls.iter().flatten().filter_map(|call| call.id.as_deref());
        ids.for_each(|id| calls.add(id));
    }
    Ok(())
}

fn check_options(view: &ChatRequestView<'_>) -> RuleResult {
    let has_logprobs = view.top_logprobs.is_none_or(|n| n <= 0) || view.logprobs == Some(true);
    ensure_at(has_logprobs, "top_logprobs", "needs `logprobs` to be true")?;
    let is_stream = view.stream_options.is_none() || view.stream == Some(true);
    ensure_at(is_stream, "stream_options", "is only allowed when `stream` is true")?;
    // One of two different limits would be ignored silently.
    let limit = view.output_limit();
    let is_one = view.max_tokens.as_ref().is_none_or(|old| limit == Some(old.value));
    let why = "contradicts `max_completion_tokens`; send only one of them";
    ensure_at(is_one, "max_tokens", why)
}

fn check_tools(view: &ChatRequestView<'_>) -> RuleResult {
    let is_one = view.tools.is_none() || view.functions.is_none();
    ensure_at(is_one, "functions", "is the old form of `tools`; send only one of them")?;
    let tools =
        view.tools.as_deref().unwrap_or_default().iter().enumerate().filter_map(|(at, tool)| {
            match tool {
                ChatTool::Function(tool) => {
                    let name = tool.function.as_ref()?.name.as_deref()?;
                    Some((name, format!("tools[{at}].function.name")))
                }
                ChatTool::Custom(tool) => {
                    let name = tool.custom.as_ref()?.name.as_deref()?;
                    Some((name, format!("tools[{at}].custom.name")))
                }
                ChatTool::Unknown(_) => None,
            }
        });
    let functions = view.functions.as_deref().unwrap_or_default().iter().enumerate().filter_map(
        |(at, function)| Some((function.name.as_deref()?, format!("functions[{at}].name"))),
    );
    let mut names = HashSet::new();
    for (name, path) in tools.chain(functions) {
        ensure_at(names.insert(name), &path, "is already the name of another tool")?;
    }
    let why = match &view.tool_choice {
        Some(TextOrObject::Text(word)) if &**word == "required" && view.tools.is_none() => {
            "needs `tools`"
        }
        Some(TextOrObject::Object(tool))
            if tool.tool_name().is_some_and(|n| !names.contains(n)) =>
        {
            "names a tool that is not in `tools`"
        }
        _ => return Ok(()),
    };
    Err(FieldProblem::new("tool_choice", why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::ChatDialect;
    use crate::{Dialect as _, RequestTarget};

    fn read_facts(body: &[u8]) -> Result<RequestFacts, ApiError> {
        ChatDialect.read_facts(&RequestTarget::default(), body)
    }

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
            // The field that tells the kind may come last.
            (
                with_part(r#"{"image_url":{"url":5},"type":"image_url"}"#),
                "messages[0].content[0].image_url.url",
            ),
            (with_part(r#"{"text":"x"}"#), "messages[0].content[0].type"),
            (with(r#""n":2.5"#), "n"),
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
                "messages[0].content[0].text",
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
                "messages[0].content[0].image_url.url",
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
            (with(r#""temperature":1e400"#), "temperature"),
            (with(r#""top_p":-0.1"#), "top_p"),
            (with(r#""presence_penalty":2.1"#), "presence_penalty"),
            (with(r#""stop":["a","b","c","d","e"]"#), "stop"),
            (with(r#""stop":"""#), "stop"),
            (with(r#""stop":[["a"]]"#), "stop[0]"),
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
            (with(r#""model":"again""#), "model"),
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
                "messages[0].content[0].image_url.url",
            ),
            (
                with_part(r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,?"}}"#),
                "messages[0].content[0].image_url.url",
            ),
            (
                with_part(r#"{"type":"input_audio","input_audio":{}}"#),
                "messages[0].content[0].input_audio.data",
            ),
            (
                with_part(r#"{"type":"input_audio","input_audio":{"data":"?","format":"wav"}}"#),
                "messages[0].content[0].input_audio.data",
            ),
            (
                with_part(r#"{"type":"input_audio","input_audio":{"data":"AAAA"}}"#),
                "messages[0].content[0].input_audio.format",
            ),
            (with_part(r#"{"type":"file","file":{}}"#), "messages[0].content[0].file.file_data"),
            (
                with_part(r#"{"type":"file","file":{"file_data":"no base64"}}"#),
                "messages[0].content[0].file.file_data",
            ),
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
    fn a_list_that_is_too_long_is_refused_before_its_end() {
        let list = |item: &str, count: usize| format!("[{} oops", format!("{item},").repeat(count));
        let message = r#"{"role":"user","content":"x"}"#;
        let (part, function) = (r#"{"type":"text","text":"x"}"#, r#"{"name":"f"}"#);
        let of_messages = |list: String| with_messages(&list);
        let of_parts =
            |list: String| with_messages(&format!(r#"[{{"role":"user","content":{list}"#));
        let of_field = |name: &str, list: String| with(&format!("\"{name}\":{list}"));
        for (body, field, most) in [
            (of_messages(list(message, 10_001)), "messages", 10_000),
            (of_parts(list(part, 10_001)), "messages[0].content", 10_000),
            (of_field("stop", list("\"x\"", 5)), "stop", 4),
            (of_field("tools", list(r#"{"type":"x"}"#, 100_001)), "tools", 100_000),
            (of_field("functions", list(function, 100_001)), "functions", 100_000),
        ] {
            let why = format!("`{field}` must have at most {most} items");
            assert_eq!(refused(&body), (field.to_owned(), why));
        }
        let (param, why) = refused(&of_parts(list(part, 10_000)));
        assert!(param.is_empty() && why.contains("is not valid JSON"), "{param} {why}");
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
