//! A request that is recognised has the facts that its parse tells, and no search finds anything in it.

use canon::WireFormat;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::path::Path;

use super::*;
use crate::{Dialect, MadeObjects, RequestUse, first_address, get, request_media, stored_objects};

fn recognise(dialect: &dyn Dialect, target: &RequestTarget, body: &[u8]) -> Option<RequestFacts> {
    let traits = dialect.traits();
    traits.plain_request.recognise(traits.request_fields, target, body)
}

/// Compares the facts of a recognised body with those of its parse. Returns true if it is recognised.
fn check(format: WireFormat, body: &[u8]) -> bool {
    let dialect = get(format).unwrap();
    let traits = dialect.traits();
    let shown = String::from_utf8_lossy(body);
    let mut is_plain = false;
    for model in ["m", ""] {
        let target =
            RequestTarget { model: Some(model.to_owned()), stream: true, ..Default::default() };
        let Some(facts) = recognise(dialect, &target, body) else { continue };
        is_plain = true;
        let parsed = (dialect.functions().parse)(&target, body, RequestUse::Facts);
        let parsed = parsed.unwrap_or_else(|error| panic!("{error:?}: {shown}")).facts.unwrap();
        // The parse knows less of the texts.
        let (whole, only_text) = (BodyOutline::default(), true);
        let parsed = RequestFacts { outline: whole.clone(), only_text, ..parsed };
        let known = RequestFacts { outline: whole.clone(), ..facts.clone() };
        assert_eq!(known, parsed, "{shown}");
        assert_eq!(stored_objects(traits.objects, body, &whole).unwrap(), [], "{shown}");
        let snake_case = traits.media_urls.allows_snake_case;
        let address = first_address(body, &whole, snake_case, &|_| false).unwrap();
        assert_eq!(address, None, "{shown}");
        let mut data = 0;
        let media = request_media(&traits.media_urls, body, &whole, |_| data += 1).unwrap();
        assert_eq!((media.urls, data), (Vec::new(), 0), "{shown}");
        // Every reply of this format has ids, or none to a plain request.
        let made = MadeObjects::of_request(traits.objects, body, &facts.outline);
        assert_eq!(made.is_some(), format == WireFormat::Responses, "{shown}");
        let chat = dialect.read_request(&target, body).unwrap();
        let both = dialect.parse(&target, body, RequestUse::Both(&|_| true)).unwrap();
        assert_eq!(both.chat.as_deref(), Some(&chat), "{shown}");
    }
    is_plain
}

const FORMATS: [WireFormat; 4] =
    [WireFormat::Chat, WireFormat::Messages, WireFormat::Responses, WireFormat::Native];

fn text() -> impl Strategy<Value = String> {
    let known = select(vec![
        "",
        "x",
        "Say \\\"hi\\\".\\nThen \\\\ go \\/ on",
        "é港🌍",
        "caf\\u00e9 \\ud83d\\ude00",
        "\\ud83d",
        "\\u12",
        "\\x",
        "fileid://a",
        " fileid://a",
        "\\n\\tfileid://a",
        "\\u0066ileid://a",
        "\u{3000}fileid://a",
        "file",
        "https://a.b/c",
        "audio",
        "file_id",
        "\\\"file_id\\\":\\\"f\\\"",
        "user",
        "assistant",
        "text",
        "input_text",
        "data:image/png;base64,AA",
        "\u{1}",
        "\t",
    ]);
    let long = (select(vec!["word ", "é", "a\\n", " "]), 0..800_usize)
        .prop_map(|(text, times)| text.repeat(times));
    prop_oneof![6 => known.prop_map(str::to_owned), 1 => long, 1 => "[ -~]{0,12}"]
}

fn quoted() -> impl Strategy<Value = String> {
    text().prop_map(|text| format!("\"{text}\""))
}

fn object(
    names: Vec<&'static str>,
    values: impl Strategy<Value = String>,
) -> impl Strategy<Value = String> {
    prop::collection::vec((select(names), values), 0..4).prop_map(|fields| {
        let fields: Vec<_> =
            fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", fields.join(","))
    })
}

fn list(items: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop::collection::vec(items, 0..3).prop_map(|items| format!("[{}]", items.join(", ")))
}

fn part() -> impl Strategy<Value = String> {
    let kinds = select(vec!["text", "input_text", "output_text", "image_url", "refusal"]);
    let usual = (kinds, quoted())
        .prop_map(|(kind, text)| format!("{{\"type\":\"{kind}\",\"text\":{text}}}"));
    let bare = quoted().prop_map(|text| format!("{{ \"text\" : {text} }}"));
    let odd = object(vec!["text", "type", "file_id", "url", "cache_control"], quoted());
    prop_oneof![4 => usual, 3 => bare, 1 => odd]
}

fn turn() -> impl Strategy<Value = String> {
    let roles =
        select(vec!["user", "assistant", "system", "developer", "model", "tool", "function"]);
    let content = prop_oneof![3 => quoted(), 2 => list(part()), 1 => Just("null".to_owned())];
    let names = select(vec!["content", "parts"]);
    let more = select(vec![
        "",
        "",
        "",
        ",\"type\":\"message\"",
        ",\"name\":\"n\"",
        ",\"role\":\"user\"",
        ",\"id\":\"msg_1\"",
    ]);
    let usual = (roles, names, content, more).prop_map(|(role, name, content, more)| {
        format!("{{\"role\":\"{role}\",\"{name}\":{content}{more}}}")
    });
    prop_oneof![8 => usual, 1 => part()]
}

fn number() -> impl Strategy<Value = String> {
    let known = select(vec![
        "0",
        "1",
        "0.5",
        "1.0",
        "1.5",
        "-0",
        "00",
        "1.",
        ".5",
        "1e0",
        "1e3",
        "16",
        "15",
        "1024",
        "1073741824",
        "1073741825",
        "99999999999999999999",
        "-1",
        "true",
        "null",
        "\"16\"",
        "0.1234567890123456789",
    ]);
    known.prop_map(str::to_owned)
}

/// Fields of requests of every format, right and wrong ones.
fn field() -> impl Strategy<Value = String> {
    let named = |names: Vec<&'static str>, values: BoxedStrategy<String>| {
        (select(names), values).prop_map(|(name, value)| format!("\"{name}\":{value}")).boxed()
    };
    let words = select(vec!["true", "false", "null", "1", "\"true\""]).prop_map(str::to_owned);
    let options = select(vec![
        "{\"include_usage\":true}",
        "{\"include_usage\": false }",
        "{}",
        "{\"include_usage\":null}",
        "null",
        "{\"include_usage\":true,\"x\":1}",
    ]);
    let config = object(
        vec!["temperature", "topP", "maxOutputTokens", "topK", "max_output_tokens"],
        number(),
    );
    let instruction = prop_oneof![quoted(), list(part()), turn()];
    prop_oneof![
        named(vec!["model"], quoted().boxed()),
        named(vec!["stream", "store"], words.boxed()),
        named(vec!["stream_options"], options.prop_map(str::to_owned).boxed()),
        named(
            vec![
                "max_tokens",
                "max_completion_tokens",
                "max_output_tokens",
                "temperature",
                "top_p",
                "n",
                "seed"
            ],
            number().boxed()
        ),
        named(vec!["generationConfig", "generation_config"], config.boxed()),
        named(vec!["system", "instructions", "systemInstruction"], instruction.boxed()),
        named(
            vec!["user", "safety_identifier", "prompt_cache_key", "container", "x"],
            quoted().boxed()
        ),
        named(vec!["metadata"], object(vec!["user_id", "x"], quoted()).boxed()),
    ]
}

fn body(format: WireFormat) -> impl Strategy<Value = String> {
    let turns = match format {
        WireFormat::Native => "contents",
        WireFormat::Responses => "input",
        _ => "messages",
    };
    let conversation = prop_oneof![5 => list(turn()), 1 => quoted(), 1 => turn()];
    let before = match format {
        WireFormat::Native => vec!["", "", "\"model\":\"m\","],
        WireFormat::Messages => vec!["\"model\":\"m\",\"max_tokens\":100,", "\"model\":\"m\","],
        _ => vec!["\"model\":\"m\",", "\"model\":\"m\",\"stream\":true,"],
    };
    (select(before), conversation, prop::collection::vec(field(), 0..3)).prop_map(
        move |(before, conversation, fields)| {
            let fields: String = fields.iter().map(|field| format!(", {field}")).collect();
            format!(" {{{before}\"{turns}\" : {conversation}{fields}}}\n")
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_recognised_request_has_the_facts_of_its_parse(
        (format, body) in select(FORMATS.to_vec()).prop_flat_map(|format| (Just(format), body(format))),
    ) {
        check(format, body.as_bytes());
    }

    #[test]
    fn so_has_a_damaged_one(
        (format, body) in select(FORMATS.to_vec()).prop_flat_map(|format| (Just(format), body(format))),
        edits in prop::collection::vec((any::<Index>(), 0..3_usize, select(b"\"\\{}[],:0efn. \x80\xff\n\x00".to_vec())), 1..3),
    ) {
        let mut body = body.into_bytes();
        for (at, removed, byte) in edits {
            let at = at.index(body.len());
            let end = (at + removed).min(body.len());
            body.splice(at..end, (removed < 2).then_some(byte));
        }
        check(format, &body);
    }
}

#[test]
fn the_sample_requests_have_the_facts_of_their_parse() {
    for format in FORMATS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        for entry in std::fs::read_dir(folder.join(format.to_string())).unwrap() {
            let path = entry.unwrap().path();
            if path.to_string_lossy().ends_with(".request.json") {
                check(format, &std::fs::read(path).unwrap());
            }
        }
    }
}

#[test]
fn the_usual_requests_are_recognised() {
    let long = "word \\n \\\"quoted\\\" é ".repeat(500);
    for (format, body) in [
        (
            WireFormat::Chat,
            r#"{"model":"m","messages":[{"role":"user","content":"TEXT"}],"max_tokens":1024}"#,
        ),
        (
            WireFormat::Chat,
            r#"{"messages":[{"role":"system","content":"TEXT"},{"content":[{"type":"text","text":"TEXT"}],"role":"user"},
                {"role":"assistant","content":"TEXT"},{"role":"user","content":"TEXT"}],"model":"m","stream":true,
                "stream_options":{"include_usage":true},"temperature":0.7,"top_p":1,"user":"u","max_completion_tokens":500}"#,
        ),
        (
            WireFormat::Messages,
            r#"{"model":"m","max_tokens":1024,"system":"TEXT","messages":[{"role":"user","content":"TEXT"}],"stream":true,
                "metadata":{"user_id":"u"}}"#,
        ),
        (
            WireFormat::Messages,
            r#"{"model":"m","max_tokens":1024,"system":[{"type":"text","text":"TEXT"}],
                "messages":[{"role":"user","content":[{"type":"text","text":"TEXT"}]}],"temperature":1.0}"#,
        ),
        (WireFormat::Responses, r#"{"model":"m","input":"TEXT"}"#),
        (
            WireFormat::Responses,
            r#"{"model":"m","instructions":"TEXT","input":[{"role":"user","content":"TEXT"},
                {"type":"message","role":"assistant","content":[{"type":"output_text","text":"TEXT"}]}],
                "max_output_tokens":100,"stream":true}"#,
        ),
        (WireFormat::Native, r#"{"contents":[{"parts":[{"text":"TEXT"}]}]}"#),
        (
            WireFormat::Native,
            r#"{"systemInstruction":{"parts":[{"text":"TEXT"}]},"contents":[{"role":"user","parts":[{"text":"TEXT"},{"text":"TEXT"}]}],
                "generationConfig":{"maxOutputTokens":100,"temperature":0.5}}"#,
        ),
        (
            WireFormat::Native,
            r#"{"contents":[{"parts":[{"text":"TEXT"}]}],"generationConfig":{"topP":0.5}}"#,
        ),
    ] {
        for text in ["short", "\\n\\nHello", "é", "", &long] {
            let body = body.replace("TEXT", text);
            assert!(check(format, body.as_bytes()), "{format}: {body}");
        }
    }
}
