//! The rules, one line each: what is refused and by which name, and what real clients may send.

use canon::ApiError;
use serde_json::{Value, json};

use super::super::NativeDialect;
use crate::{Dialect as _, RequestFacts, RequestTarget};

fn target() -> RequestTarget {
    RequestTarget { model: Some("m".to_owned()), ..RequestTarget::default() }
}

fn read_facts(target: &RequestTarget, body: &[u8]) -> Result<RequestFacts, ApiError> {
    NativeDialect.read_facts(target, body)
}

fn refused(body: &str) -> (String, String) {
    let fault = read_facts(&target(), body.as_bytes()).expect_err(body);
    (fault.param().unwrap_or_default().to_owned(), fault.message().to_owned())
}

fn with(field: &str) -> String {
    format!(r#"{{"contents":[{{"parts":[{{"text":"x"}}]}}],{field}}}"#)
}

fn config(field: &str) -> String {
    with(&format!(r#""generationConfig":{{{field}}}"#))
}

fn part(part: &str) -> String {
    format!(r#"{{"contents":[{{"parts":[{part}]}}]}}"#)
}

fn turns(contents: &str) -> String {
    format!(r#"{{"contents":[{contents}]}}"#)
}

#[test]
fn invalid_conversation_fields_are_named() {
    let png = r#""inlineData":{"mimeType":"image/png","data":"AAAA"}"#;
    let data =
        |data: &str| part(&format!(r#"{{"inlineData":{{"mimeType":"image/png","data":{data}}}}}"#));
    let mime =
        |mime: &str| part(&format!(r#"{{"inlineData":{{"mimeType":{mime},"data":"AAAA"}}}}"#));
    let file = |uri: &str| part(&format!(r#"{{"fileData":{{"fileUri":"{uri}"}}}}"#));
    let call = r#"{"role":"model","parts":[{"functionCall":{"name":"f","id":"1"}},{"functionCall":{"name":"g"}}]}"#;
    let answers = |answers: &str| turns(&format!(r#"{call},{{"parts":[{answers}]}}"#));
    let cases = [
        (r#"{"contents":[]}"#.to_owned(), "contents"),
        (r#"{"contents":null}"#.to_owned(), "contents"),
        (r#"{"contents":{}}"#.to_owned(), "contents.parts"),
        (r#"{"contents":"hi"}"#.to_owned(), "contents"),
        (r#"{"contents":["hi"]}"#.to_owned(), "contents[0]"),
        (turns("{}"), "contents[0].parts"),
        (turns(r#"{"parts":[]}"#), "contents[0].parts"),
        (turns(r#"{"parts":"x"}"#), "contents[0].parts"),
        (turns(r#"{"role":"system","parts":[{"text":"x"}]}"#), "contents[0].role"),
        (turns(r#"{"role":5,"parts":[{"text":"x"}]}"#), "contents[0].role"),
        (part("{}"), "contents[0].parts[0]"),
        (part("[]"), "contents[0].parts[0]"),
        (part(r#"{"text":5}"#), "contents[0].parts[0].text"),
        (part(&format!(r#"{{"text":"x"}},{{"text":"y",{png}}}"#)), "contents[0].parts[1]"),
        (
            part(&format!(r#"{{{png},"fileData":{{"fileUri":"https://a.example/x"}}}}"#)),
            "contents[0].parts[0]",
        ),
        (part(r#"{"text":"x","unknown":1}"#), "contents[0].parts[0].unknown"),
        (part(r#"{"text":"x","text":"y"}"#), "contents[0].parts[0].text"),
        (part(r#"{"text":"x","thoughtSignature":5}"#), "contents[0].parts[0].thoughtSignature"),
        (part(r#"{"text":"x","thought":"yes"}"#), "contents[0].parts[0].thought"),
        (data(r#""""#), "contents[0].parts[0].inlineData.data"),
        (data(r#""AA=A""#), "contents[0].parts[0].inlineData.data"),
        (data(r#""AAAAA""#), "contents[0].parts[0].inlineData.data"),
        (data(r#""AA AA""#), "contents[0].parts[0].inlineData.data"),
        (data(r#""AAA==""#), "contents[0].parts[0].inlineData.data"),
        (data(r#""data:image/png;base64,AAAA""#), "contents[0].parts[0].inlineData.data"),
        (data("null"), "contents[0].parts[0].inlineData.data"),
        (data("5"), "contents[0].parts[0].inlineData.data"),
        (mime("null"), "contents[0].parts[0].inlineData.mimeType"),
        (mime(r#""""#), "contents[0].parts[0].inlineData.mimeType"),
        (mime(r#""a/b/c""#), "contents[0].parts[0].inlineData.mimeType"),
        (mime(r#""image/png\r\n""#), "contents[0].parts[0].inlineData.mimeType"),
        (mime(r#""text/html""#), "contents[0].parts[0].inlineData.mimeType"),
        (mime(r#""image/svg+xml""#), "contents[0].parts[0].inlineData.mimeType"),
        (part(r#"{"fileData":{"mimeType":"video/mp4"}}"#), "contents[0].parts[0].fileData.fileUri"),
        (file("data:image/png;base64,AAAA"), "contents[0].parts[0].fileData.fileUri"),
        (file("DATA:,x"), "contents[0].parts[0].fileData.fileUri"),
        (part(r#"{"functionCall":{"args":{}}}"#), "contents[0].parts[0].functionCall.name"),
        (
            part(r#"{"functionCall":{"name":"f","args":[]}}"#),
            "contents[0].parts[0].functionCall.args",
        ),
        (
            answers(r#"{"functionResponse":{"name":"f","id":"2","response":{}}}"#),
            "contents[1].parts[0].functionResponse.id",
        ),
        (
            answers(r#"{"functionResponse":{"name":"g","id":"1","response":{}}}"#),
            "contents[1].parts[0].functionResponse.name",
        ),
        (
            answers(r#"{"functionResponse":{"name":"h","response":{}}}"#),
            "contents[1].parts[0].functionResponse.name",
        ),
        (
            answers(r#"{"functionResponse":{"name":"f","response":"x"}}"#),
            "contents[1].parts[0].functionResponse.response",
        ),
        (answers(r#"{"functionResponse":{"name":"f","response":{}}}"#), "contents[1].parts"),
        (
            answers(
                r#"{"functionResponse":{"name":"f","parts":[{"inlineData":{"mimeType":"text/html","data":"AA"}}]}}"#,
            ),
            "contents[1].parts[0].functionResponse.parts[0].inlineData.mimeType",
        ),
        (
            turns(r#"{"parts":[{"functionResponse":{"name":"f","response":{}}}]}"#),
            "contents[0].parts[0].functionResponse.name",
        ),
        (with(r#""systemInstruction":"be kind""#), "systemInstruction"),
        (with(r#""systemInstruction":{}"#), "systemInstruction.parts"),
        (
            with(&format!(r#""systemInstruction":{{"parts":[{{{png}}}]}}"#)),
            "systemInstruction.parts",
        ),
        (with(r#""contents":[]"#), "contents"),
        ("{}".to_owned(), "contents"),
        (r#"{"systemInstruction":{"parts":[{"text":"x"}]}}"#.to_owned(), "contents"),
        (with(r#""generationConfig":{},"generation_config":{}"#), "generationConfig"),
    ];
    for (body, path) in cases {
        let (found, say) = refused(&body);
        assert_eq!(found, path, "{body}: {say}");
        assert!(!say.contains("View") && !say.contains("expected struct"), "{body}: {say}");
        assert!(!say.contains("i64") && !say.contains('\u{1}'), "{body}: {say}");
    }
}

#[test]
fn invalid_settings_are_named() {
    const G: &str = "generationConfig";
    let stop = |items: &str| config(&format!(r#""stopSequences":{items}"#));
    let long = format!(r#"["{}"]"#, "x".repeat(10_000));
    let cases = [
        (with(r#""generationConfig":[]"#), G.to_owned()),
        (with(r#""generationConfig":5"#), G.to_owned()),
        (config(r#""temperature":-0.1"#), format!("{G}.temperature")),
        (config(r#""temperature":2.0001"#), format!("{G}.temperature")),
        (config(r#""temperature":1e308"#), format!("{G}.temperature")),
        (config(r#""temperature":"1""#), format!("{G}.temperature")),
        (config(r#""topP":-1e-9"#), format!("{G}.topP")),
        (config(r#""topP":1.0001"#), format!("{G}.topP")),
        (config(r#""topK":-1"#), format!("{G}.topK")),
        (config(r#""topK":0"#), format!("{G}.topK")),
        (config(r#""topK":1.5"#), format!("{G}.topK")),
        (config(r#""topK":2147483648"#), format!("{G}.topK")),
        (config(r#""maxOutputTokens":0"#), format!("{G}.maxOutputTokens")),
        (config(r#""maxOutputTokens":-1"#), format!("{G}.maxOutputTokens")),
        (config(r#""maxOutputTokens":9223372036854775808"#), format!("{G}.maxOutputTokens")),
        (config(r#""maxOutputTokens":1.0"#), format!("{G}.maxOutputTokens")),
        (config(r#""maxOutputTokens":1,"max_output_tokens":1"#), format!("{G}.maxOutputTokens")),
        (config(r#""candidateCount":0"#), format!("{G}.candidateCount")),
        (config(r#""candidateCount":9"#), format!("{G}.candidateCount")),
        (stop(r#"["a","b","c","d","e","f"]"#), format!("{G}.stopSequences")),
        (stop(r#"[""]"#), format!("{G}.stopSequences")),
        (stop(&long), format!("{G}.stopSequences")),
        (stop(r#"[5]"#), format!("{G}.stopSequences[0]")),
        (config(r#""logprobs":3"#), format!("{G}.logprobs")),
        (config(r#""responseLogprobs":true,"logprobs":21"#), format!("{G}.logprobs")),
        (config(r#""responseLogprobs":true,"logprobs":-1"#), format!("{G}.logprobs")),
        (config(r#""responseLogprobs":"true""#), format!("{G}.responseLogprobs")),
        (config(r#""responseMimeType":"text/html""#), format!("{G}.responseMimeType")),
        (config(r#""responseSchema":{}"#), format!("{G}.responseSchema")),
        (config(r#""responseJsonSchema":"x""#), format!("{G}.responseJsonSchema")),
        (
            config(r#""responseMimeType":"text/plain","responseSchema":{}"#),
            format!("{G}.responseSchema"),
        ),
        (config(r#""responseModalities":["VIDEO"]"#), format!("{G}.responseModalities[0]")),
        (config(r#""responseModalities":[]"#), format!("{G}.responseModalities")),
        (config(r#""responseModalities":["TEXT","TEXT"]"#), format!("{G}.responseModalities[1]")),
        (
            config(r#""thinkingConfig":{"thinkingBudget":1,"thinkingLevel":"LOW"}"#),
            format!("{G}.thinkingConfig"),
        ),
        (
            config(r#""thinkingConfig":{"thinkingLevel":"EXTREME"}"#),
            format!("{G}.thinkingConfig.thinkingLevel"),
        ),
        (
            config(r#""thinkingConfig":{"thinkingBudget":-2}"#),
            format!("{G}.thinkingConfig.thinkingBudget"),
        ),
        (config(r#""thinkingConfig":[]"#), format!("{G}.thinkingConfig")),
        (config(r#""imageConfig":{"aspectRatio":"7:3"}"#), format!("{G}.imageConfig.aspectRatio")),
        (config(r#""imageConfig":{"imageSize":"8K"}"#), format!("{G}.imageConfig.imageSize")),
        (config(r#""imageConfig":{"imageSize":"1k"}"#), format!("{G}.imageConfig.imageSize")),
        (config(r#""mediaResolution":"HUGE""#), format!("{G}.mediaResolution")),
        (config(r#""seed":"x""#), format!("{G}.seed")),
        (config(r#""presencePenalty":"x""#), format!("{G}.presencePenalty")),
        (config(r#""presencePenalty":1e308"#), format!("{G}.presencePenalty")),
        (config(r#""frequencyPenalty":-2.1"#), format!("{G}.frequencyPenalty")),
    ];
    for (body, path) in cases {
        let (found, say) = refused(&body);
        assert_eq!(found, path, "{body}: {say}");
        assert!(!say.contains(" at line "), "{body}: {say}");
    }
}

#[test]
fn invalid_tools_are_named() {
    let mode =
        |mode: &str| with(&format!(r#""toolConfig":{{"functionCallingConfig":{{{mode}}}}}"#));
    let safety = |setting: &str| with(&format!(r#""safetySettings":[{setting}]"#));
    const HATE: &str = r#"{"category":"HARM_CATEGORY_HATE_SPEECH","threshold":"OFF"}"#;
    let spot = |spot: &str| {
        with(&format!(r#""toolConfig":{{"retrievalConfig":{{"latLng":{{{spot}}}}}}}"#))
    };
    let cases = [
        (with(r#""tools":"x""#), "tools"),
        (with(r#""tools":[{}]"#), "tools[0]"),
        (with(r#""tools":[{"codeExecution":{},"vendorSearch":{}}]"#), "tools[0]"),
        (with(r#""tools":[{"googleSearch":{},"vendorSearch":{}}]"#), "tools[0]"),
        (with(r#""tools":[{"vendorSearch":true}]"#), "tools[0].vendorSearch"),
        (with(r#""tools":[{"vendorSearch":[]}]"#), "tools[0].vendorSearch"),
        (
            with(r#""tools":[{"functionDeclarations":[{}]}]"#),
            "tools[0].functionDeclarations[0].name",
        ),
        (
            with(r#""tools":[{"functionDeclarations":[{"name":"a b"}]}]"#),
            "tools[0].functionDeclarations[0].name",
        ),
        (
            with(r#""tools":[{"functionDeclarations":[{"name":5}]}]"#),
            "tools[0].functionDeclarations[0].name",
        ),
        (
            with(r#""tools":[{"functionDeclarations":[{"name":"a","parameters":"x"}]}]"#),
            "tools[0].functionDeclarations[0].parameters",
        ),
        (
            with(r#""tools":[{"functionDeclarations":[{"name":"a","parametersJsonSchema":"x"}]}]"#),
            "tools[0].functionDeclarations[0].parametersJsonSchema",
        ),
        (
            with(
                r#""tools":[{"functionDeclarations":[{"name":"a"}]},{"functionDeclarations":[{"name":"a"}]}]"#,
            ),
            "tools[1].functionDeclarations[0].name",
        ),
        (
            mode(r#""allowedFunctionNames":["gone"]"#),
            "toolConfig.functionCallingConfig.allowedFunctionNames[0]",
        ),
        (with(r#""serviceTier":5"#), "serviceTier"),
        (mode(r#""mode":"REQUIRED""#), "toolConfig.functionCallingConfig.mode"),
        (mode(r#""mode":"ANY""#), "toolConfig.functionCallingConfig.mode"),
        (
            mode(r#""allowedFunctionNames":[""]"#),
            "toolConfig.functionCallingConfig.allowedFunctionNames",
        ),
        (spot(r#""latitude":91"#), "toolConfig.retrievalConfig.latLng.latitude"),
        (spot(r#""longitude":-181"#), "toolConfig.retrievalConfig.latLng.longitude"),
        (spot(r#""latitude":"1""#), "toolConfig.retrievalConfig.latLng.latitude"),
        (safety(r#"{"threshold":"OFF"}"#), "safetySettings[0].category"),
        (safety(r#"{"category":"X","threshold":"OFF"}"#), "safetySettings[0].category"),
        (
            safety(r#"{"category":"HARM_CATEGORY_HATE_SPEECH","threshold":"X"}"#),
            "safetySettings[0].threshold",
        ),
        (safety(&format!("{HATE},{HATE}")), "safetySettings[1].category"),
        (safety(&[HATE; 1_000].join(",")), "safetySettings"),
        (with(r#""cachedContent":"cachedContents/../x""#), "cachedContent"),
        (with(r#""cachedContent":"x""#), "cachedContent"),
        (with(r#""cachedContent":5"#), "cachedContent"),
    ];
    for (body, path) in cases {
        let (found, say) = refused(&body);
        assert_eq!(found, path, "{body}: {say}");
    }
}

#[test]
fn bodies_that_are_not_objects_are_refused() {
    for body in ["", " ", "null", "true", "42", "\"x\"", "[]", "{", "{\"a\":1,}", "{}{}", "{} x"] {
        refused(body);
    }
    assert!(read_facts(&target(), b"{\"labels\":\"\xe9\"}").is_err());
    assert!(read_facts(&target(), "\u{feff}{}".as_bytes()).is_err());
    assert!(read_facts(&RequestTarget::default(), b"{}").is_err());
    let many = vec![r#"{"inlineData":{"mimeType":"image/png","data":"AA"}}"#; 10_000].join(",");
    assert_eq!(refused(&part(&many)).0, "contents");
}

#[test]
fn requests_of_real_clients_are_accepted() {
    let answers = r#"{"role":"model","parts":[{"functionCall":{"name":"f","id":"1"}}]},
        {"role":"model","parts":[{"functionCall":{"name":"f"}}]},
        {"parts":[{"functionResponse":{"name":"f","response":{}}}]},
        {"role":"function","parts":{"functionResponse":{"name":"f","id":"own","response":{}}}}"#;
    let cases = [
        r#"{"contents":{"parts":{"text":"x"}},"unknown":{"a":1}}"#.to_owned(),
        turns(answers),
        part(r#"{"text":"x","thought":null,"inlineData":null}"#),
        part(r#"{"thoughtSignature":"AAAA"}"#),
        part(r#"{"text":"x","partMetadata":{"a_b":1},"videoMetadata":{"fps":1}}"#),
        part(
            r#"{"executable_code":{}},{"codeExecutionResult":{}},{"toolCall":{}},{"tool_response":{}}"#,
        ),
        part(r#"{"inline_data":{"mime_type":"image/png","data":"_-8"}}"#),
        config(r#""temperature":0,"topP":1,"topK":3.0,"maxOutputTokens":"7","candidateCount":8"#),
        config(r#""temperature":2,"topP":0,"stopSequences":["a","b","c","d","e"]"#),
        config(r#""responseMimeType":"text/x.enum","responseSchema":{"type":"STRING"}"#),
        config(r#""responseLogprobs":true,"logprobs":0,"mediaResolution":"media_resolution_low""#),
        config(r#""imageConfig":{"aspectRatio":"1:8","imageSize":"512","personGeneration":"x"}"#),
        config(r#""thinkingConfig":{"thinkingLevel":"minimal","include_thoughts":true}"#),
        config(r#""responseModalities":["AUDIO"],"speechConfig":{}"#),
        with(
            r#""generationConfig":null,"safetySettings":[],"systemInstruction":{"role":"user","parts":[{"text":"x"}]}"#,
        ),
        with(
            r#""tools":{"functionDeclarations":{"name":"a.b:c-d"}},"toolConfig":{"functionCallingConfig":{"mode":"any"}}"#,
        ),
        with(
            r#""tools":[{"newKind":{}},{"mcpServers":[{}]},{"googleSearch":{"x":1}}],"cachedContent":"cachedContents/a-1""#,
        ),
    ];
    for body in cases {
        assert!(
            read_facts(&target(), body.as_bytes()).is_ok(),
            "{body}: {:?}",
            read_facts(&target(), body.as_bytes())
        );
    }
}

#[test]
fn a_list_that_is_too_long_is_refused_before_its_end_is_read() {
    let turn = r#"{"parts":[{"text":"x"}]}"#;
    for (name, item, most) in [("contents", turn, 10_000), ("tools", r#"{"urlContext":{}}"#, 512)] {
        let items = vec![item; most + 1].join(",");
        let (path, message) = refused(&format!(r#"{{"{name}":[{items},}}"#));
        assert_eq!(
            (path.as_str(), message),
            (name, format!("`{name}` must have at most {most} items"))
        );
    }
}

#[test]
fn a_result_that_is_repeated_word_for_word_is_read_once() {
    let result = |id: &str, said: &str| {
        let response = json!({"output": said});
        json!({"functionResponse": {"id": id, "name": "f", "response": response}})
    };
    let body = |results: &[Value]| {
        let calls = json!([{"functionCall": {"id": "a", "name": "f", "args": {}}},
            {"functionCall": {"id": "b", "name": "f", "args": {}}}]);
        json!({"contents": [{"role": "user", "parts": [{"text": "go"}]},
            {"role": "model", "parts": calls}, {"role": "user", "parts": results}]})
        .to_string()
    };
    let read = |results: &[Value]| NativeDialect.read_request(&target(), body(results).as_bytes());
    let (a, b) = (result("a", "1"), result("b", "2"));
    let once = read(&[a.clone(), b.clone()]).unwrap();
    let twice = read(&[a.clone(), b.clone(), a.clone(), b.clone()]).unwrap();
    assert_eq!(twice.turns, once.turns);
    let is_allowed = |third: &Value| {
        let body = body(&[a.clone(), b.clone(), third.clone()]);
        read_facts(&target(), body.as_bytes()).is_ok()
    };
    assert!(is_allowed(&a));
    assert!(!is_allowed(&result("a", "3")));
    assert!(!is_allowed(&result("c", "1")));
}
