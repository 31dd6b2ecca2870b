//! A request that is recognised has the facts that its parse tells, and no search finds anything in it.

use canon::WireFormat;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::path::Path;

use super::*;
use crate::{Dialect, MadeObjects, RequestUse, first_address, get, request_media, stored_objects};

fn recognise(dialect: &dyn Dialect, target: &RequestTarget, body: &[u8]) -> Option<RequestFacts> {
    let traits = dialect.traits();
    let fields = (traits.origin, traits.request_fields);
    let found = traits.plain_request.recognise(fields, target, body, None)?;
    assert_eq!(found.chat, None);
    Some(found.facts)
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

const TEXTS: &[&str] = &[
    "",
    "x",
    "Say \\\"hi\\\".\\nThen \\\\ go \\/ on",
    "é港🌍",
    "caf\\u00e9 \\ud83d\\ude00 \\u0000",
    "file",
    "\\n\\n  Hello",
    "\u{3000}x",
    "https://a.b/c",
    "audio",
    "file_id",
    "url",
    "\\\"file_id\\\":\\\"f\\\", \\\"image_url\\\": 1",
    "user",
    "text",
    "data:image/png;base64,AA",
];
const ODD_TEXTS: &[&str] = &[
    "\\ud83d",
    "\\u12",
    "\\u+123",
    "\\x",
    "fileid://a",
    " fileid://a",
    "\\n\\tfileid://a",
    "\u{1}",
    "\\u0066ileid://a",
    "\\u0020fileid://a",
    "\u{3000}fileid://a",
    "\u{feff}fileid://a",
    "\t",
    "\"",
    "\\",
];
const NUMBERS: &[&str] = &["0", "1", "0.5", "1.0", "0.1234567890123456789", "0.70"];
const LIMITS: &[&str] = &["16", "1024", "1073741824"];
const ODD_VALUES: &[&str] = &[
    "-0",
    "00",
    "01",
    "1.",
    ".5",
    "1e0",
    "0e1",
    "1.5",
    "2",
    "-1",
    "15",
    "1073741825",
    "99999999999999999999",
    "16.0",
    "0x10",
    "true",
    "null",
    "\"16\"",
    "{}",
    "[]",
    "[1]",
    "nul",
    "{\"x\":1}",
    "fals",
    "",
];
const ODD_FIELDS: &[&str] = &[
    "\"model\":\"n\"",
    "\"mod\\u0065l\":\"n\"",
    "\"stream\":true",
    "\"n\":1",
    "\"x\":null",
    "\"store\":false",
    "\"container\":\"c\"",
    "\"file_id\":\"f\"",
    "\"max_tokens\":16",
    "\"seed\":1",
    "\"url\":\"https://a.b\"",
    "\"generation_config\":{}",
    "\"type\":\"message\"",
    "\"role\":\"tool\"",
    "\"name\":\"n\"",
    "\"text\":\"t\"",
    "x",
    "",
    "\"cache_control\":{\"type\":\"ephemeral\"}",
    "\"$serde_json::private::RawValue\":\"1\"",
    "\"messages\":[]",
];

/// Writes bodies by chance. One choice of two hundred is odd.
struct BodyWriter(u64);

impl BodyWriter {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn is_odd(&mut self) -> bool {
        self.below(200) == 0
    }

    fn pick(&mut self, usual: &[&'static str], odd: &[&'static str]) -> &'static str {
        let words = if self.is_odd() { odd } else { usual };
        words[self.below(words.len())]
    }

    fn blank(&mut self) -> &'static str {
        ["", "", "", " ", "\n\t\r"][self.below(5)]
    }

    fn text(&mut self) -> String {
        if self.below(8) == 0 {
            let word = self.pick(&["word ", "é", "a\\n", " "], &["\u{2}"]);
            return format!("\"{}\"", word.repeat(self.below(800)));
        }
        format!("\"{}\"", self.pick(TEXTS, ODD_TEXTS))
    }

    fn join(&mut self, [open, close]: [char; 2], mut items: Vec<String>) -> String {
        if open == '{' && self.is_odd() {
            items.push(self.pick(ODD_FIELDS, ODD_FIELDS).to_owned());
        }
        if self.is_odd() {
            items.clear();
        }
        let items: Vec<_> =
            items.iter().map(|item| format!("{}{item}{}", self.blank(), self.blank())).collect();
        format!("{open}{}{close}", items.join(","))
    }

    fn field(&mut self, name: &str, value: &str) -> String {
        let value = if self.is_odd() { self.pick(ODD_VALUES, ODD_VALUES) } else { value };
        format!("\"{name}\"{}:{}{value}", self.blank(), self.blank())
    }

    fn parts(&mut self, shape: &PlainTurn) -> String {
        let parts = (0..=self.below(3)).map(|_| {
            let text = self.text();
            let mut fields = vec![self.field("text", &text)];
            if !shape.part_kinds.is_empty() {
                let kind = self.pick(shape.part_kinds, &["image_url", "refusal", "image"]);
                fields.insert(self.below(2), format!("\"type\":\"{kind}\""));
            }
            self.join(['{', '}'], fields)
        });
        let parts = parts.collect();
        self.join(['[', ']'], parts)
    }

    fn turn(&mut self, shape: &PlainTurn) -> String {
        let roles: Vec<&str> = shape.roles.iter().map(|(word, _)| *word).collect();
        let role = format!("\"{}\"", self.pick(&roles, &["tool", "function", "us\\u0065r"]));
        let content = match shape.may_be_text && self.below(2) == 0 {
            true => self.text(),
            false => self.parts(shape),
        };
        let mut fields = vec![self.field(shape.content, &content)];
        if shape.needs_role != self.is_odd() {
            fields.insert(self.below(2), self.field("role", &role));
        }
        if let Some(kind) = shape.kind.filter(|_| self.below(2) == 0) {
            fields.push(self.field("type", &format!("\"{kind}\"")));
        }
        self.join(['{', '}'], fields)
    }

    fn value(&mut self, shape: &PlainShape, kind: &PlainKind) -> String {
        match kind {
            PlainKind::Model | PlainKind::User | PlainKind::CacheKey => {
                format!("\"{}\"", self.pick(&["m", "a b", "é", "audio", "https://a.b"], ODD_TEXTS))
            }
            PlainKind::Stream => self.pick(&["true", "false"], ODD_VALUES).to_owned(),
            PlainKind::StreamOptions => {
                let usage = self.pick(&["true", "false"], ODD_VALUES);
                let fields = vec![self.field("include_usage", usage)];
                self.join(['{', '}'], fields)
            }
            PlainKind::OutputLimit => self.pick(LIMITS, ODD_VALUES).to_owned(),
            PlainKind::Parameter(_) => self.pick(NUMBERS, ODD_VALUES).to_owned(),
            PlainKind::Turns if shape.takes_one_text && self.below(3) == 0 => self.text(),
            PlainKind::Turns => {
                let turns = (0..=self.below(4)).map(|_| self.turn(&shape.turn)).collect();
                self.join(['[', ']'], turns)
            }
            PlainKind::Instructions => match (shape.instructions, self.is_odd()) {
                (PlainInstructions::Turn, false) => self.turn(&shape.turn),
                (PlainInstructions::TextOrParts, false) if self.below(2) == 0 => {
                    self.parts(&shape.turn)
                }
                (PlainInstructions::Text, true) => self.parts(&shape.turn),
                (_, _) => self.text(),
            },
            PlainKind::Object(inside) => self.object(shape, inside),
        }
    }

    fn object(&mut self, shape: &PlainShape, known: &[PlainField]) -> String {
        let mut fields = Vec::new();
        for field in known {
            let is_there = match field.kind {
                PlainKind::Model | PlainKind::Turns => !self.is_odd(),
                PlainKind::OutputLimit if shape.needs_limit => !self.is_odd(),
                PlainKind::Stream => self.below(2) == 0,
                _ => self.below(4) == 0,
            };
            if is_there {
                let value = self.value(shape, &field.kind);
                let at = self.below(fields.len() + 1);
                fields.insert(at, self.field(field.name, &value));
            }
        }
        self.join(['{', '}'], fields)
    }

    fn body(&mut self, format: WireFormat) -> String {
        let traits = get(format).unwrap().traits();
        let shape = &traits.plain_request;
        let known = shape.known_fields(traits.request_fields, "");
        format!("{}{}{}", self.blank(), self.object(shape, &known), self.blank())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn a_recognised_request_has_the_facts_of_its_parse(format in select(&FORMATS[..]), seed: u64) {
        let body = BodyWriter(seed).body(format);
        check(format, body.as_bytes());
    }

    #[test]
    fn so_has_a_damaged_one(
        format in select(&FORMATS[..]),
        seed: u64,
        at: Index,
        removed in 0..3_usize,
        byte in select(&b"\"\\{}[],:0efn. \x80\xff\n\x00"[..]),
    ) {
        let mut body = BodyWriter(seed).body(format).into_bytes();
        let at = at.index(body.len());
        let end = (at + removed).min(body.len());
        body.splice(at..end, (removed < 2).then_some(byte));
        check(format, &body);
    }
}

/// Guards the test above: most of its bodies must be recognised.
#[test]
fn most_written_bodies_are_recognised() {
    for format in FORMATS {
        let bodies = (0..200).map(|seed| BodyWriter(seed << 20).body(format));
        let recognised = bodies.filter(|body| check(format, body.as_bytes())).count();
        assert!((60..190).contains(&recognised), "{format}: {recognised} of 200");
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
