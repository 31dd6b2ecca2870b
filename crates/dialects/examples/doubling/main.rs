//! Translates requests and replies whose lists are doubled, for callgrind. `cargo xtask test --only
//! linear` compares the instructions of each pair:
//!
//! `valgrind --tool=callgrind --toggle-collect=doubling::measured --dump-after=doubling::measured doubling`
//!
//! Prints a line per pair: first the half, then the whole of it is measured.

#![expect(clippy::print_stdout, reason = "the pairs are read from the standard output")]

mod shapes;

use canon::{ChatRequest, WireFormat};
use dialects::{BodyOutline, Dialect, LaneSettings, ReplyStamp, RequestTarget, RequestUse};
use serde_json::Value;
use std::error::Error;
use std::hint::black_box;
use std::path::Path;

/// Items of a hostile shape, before they are doubled.
const SHAPE_ITEMS: usize = 1_000;
/// Items of a list in a fixture, before they are doubled.
const LIST_ITEMS: usize = 50;

fn main() -> Result<(), Box<dyn Error>> {
    for shape in shapes::hostile_shapes() {
        let dialect = dialects::get(shape.from).ok_or("an unknown format")?;
        let count = SHAPE_ITEMS.min(shape.most / 2);
        println!("{} request, {}", shape.from, shape.name);
        measured(dialect, translate_request, (shape.body)(count).as_bytes());
        measured(dialect, translate_request, (shape.body)(count * 2).as_bytes());
    }
    for dialect in dialects::all() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let folder = folder.join(dialect.origin().as_str());
        let mut files = std::fs::read_dir(folder)?
            .map(|file| file.map(|file| file.path()))
            .collect::<Result<Vec<_>, _>>()?;
        files.sort();
        for file in files {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let run: fn(&dyn Dialect, &[u8]) = match name.split('.').nth(1) {
                Some("request") => translate_request,
                Some("reply") => translate_reply,
                _ => continue,
            };
            let body: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
            let mut lists = Vec::new();
            find_lists(&body, String::new(), &mut lists);
            for path in lists {
                println!("{} {name}, {path}", dialect.origin());
                for count in [LIST_ITEMS, LIST_ITEMS * 2] {
                    let mut longer = body.clone();
                    if let Some(Value::Array(items)) = longer.pointer_mut(&path) {
                        *items = items.iter().cycle().take(count).cloned().collect();
                    }
                    measured(dialect, run, longer.to_string().as_bytes());
                }
            }
        }
    }
    Ok(())
}

/// Finds the paths of all lists that are not empty.
fn find_lists(value: &Value, path: String, lists: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                find_lists(item, format!("{path}/{at}"), lists);
            }
            if !items.is_empty() {
                lists.push(path);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                find_lists(field, format!("{path}/{name}"), lists);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The function whose instructions callgrind counts.
#[inline(never)]
fn measured(dialect: &dyn Dialect, run: fn(&dyn Dialect, &[u8]), body: &[u8]) {
    run(black_box(dialect), black_box(body));
}

fn target() -> RequestTarget {
    RequestTarget { model: Some("m".to_owned()), ..RequestTarget::default() }
}

/// Checks and reads a request, and writes it in every format. A refusal is fine.
fn translate_request(from: &dyn Dialect, body: &[u8]) {
    let lane = LaneSettings {
        model: "up",
        max_payable_output: None,
        model_max_output: Some(100),
        thinking_range: None,
        cache_field: Some(canon::CacheField::PromptCacheBreakpoint),
        client_tools: &[canon::ToolKind::Custom],
    };
    let chat = from.parse(&target(), body, RequestUse::Both(&|_| true)).map(|parsed| parsed.chat);
    // A request that the rules refuse may have been read without them.
    let chat =
        chat.ok().flatten().or_else(|| from.read_request(&target(), body).ok().map(Box::new));
    let Some(chat) = chat else { return };
    for to in dialects::all() {
        if let Ok((_, losses)) = to.write_request(&chat, &lane) {
            assert!(losses.len() <= canon::MAX_NAMED_LOSSES + 1, "losses are bounded");
        }
    }
    let outline = BodyOutline::default();
    black_box(dialects::request_media(&from.traits().media_urls, body, &outline, |_| {})).ok();
    black_box(dialects::stored_objects(from.traits().objects, body, &outline)).ok();
}

/// Meters and reads a reply, and writes it in every format.
fn translate_reply(from: &dyn Dialect, body: &[u8]) {
    black_box(from.meter_reply(body)).ok();
    let Ok(reply) = from.read_reply(body) else { return };
    let stamp = ReplyStamp { id: "1".to_owned(), created: 1 };
    for format in WireFormat::ALL {
        if let Some(to) = dialects::get(format) {
            black_box(to.write_reply(reply.clone(), &ChatRequest::default(), &stamp));
        }
    }
}
