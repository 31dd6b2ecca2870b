//! Instructions of reading, metering and translating bodies, without a gateway around it. The suite
//! builds `dialects` optimised anyway, so that this part of a call is checked in every run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::budget::{self, BudgetFile, InstructionBudget, RoadFigures};
use super::counts::CallgrindCounts;
use super::{Delivery, road};
use crate::process::TempFolder;
use crate::tools::{self, cargo};
use crate::workspace;

/// The function of the example `translate` that is counted, and how often it runs.
const MEASURED: &str = "--toggle-collect=translate::measured";
const RUNS: u64 = 100;
/// Events of a streamed reply with text.
const TEXT_EVENTS: usize = 100;
/// Format of the caller, format of the lane, and part of the call.
const TRANSLATIONS: [[&str; 3]; 9] = [
    ["chat", "chat", "facts"],
    ["chat", "chat", "whole"],
    ["chat", "chat", "pass"],
    ["chat", "messages", "request"],
    ["chat", "messages", "reply"],
    ["chat", "messages", "stream"],
    ["messages", "chat", "request"],
    ["messages", "chat", "reply"],
    ["messages", "chat", "stream"],
];

/// Counts all translations. Fails if one costs more than the repository allows.
pub(crate) fn check_translations() -> Result<()> {
    measure()?.check_against(BudgetFile::Translations)
}

/// Counts all translations and prints them.
pub(super) fn measure() -> Result<InstructionBudget> {
    let valgrind = tools::valgrind()?;
    tools::run(&mut cargo(&["build", "--release", "-p", "dialects", "--example", "translate"]))?;
    let folder = TempFolder::new("translations")?;
    write_samples(folder.path())?;
    let mut roads = BTreeMap::new();
    for [caller, lane, part] in TRANSLATIONS {
        let file = folder.path().join("counts");
        let mut command = Command::new(&valgrind);
        command
            .args(["--tool=callgrind", "-q", MEASURED])
            .arg(format!("--callgrind-out-file={}", file.display()))
            .arg(workspace::target().join("release/examples/translate"))
            .args([caller, lane, part])
            .arg(folder.path());
        let output = command.output().context("starting valgrind")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let counts = CallgrindCounts::read(&file)?;
        ensure!(counts.total() > 0, "callgrind counted nothing");
        let figures = RoadFigures { instructions: counts.total() / RUNS, ..RoadFigures::default() };
        let name = format!("{caller} to {lane}, {part}");
        println!("{:>9} {name}", figures.instructions);
        let own = counts.own.into_iter().map(|(name, cost)| (name, cost / RUNS)).collect();
        roads.insert(name, figures.with_dearest(own));
    }
    Ok(InstructionBudget { measured_with: budget::measured_with(), roads })
}

/// Writes a request and a reply of each format, whole and as a stream.
fn write_samples(folder: &Path) -> Result<()> {
    let texts: Vec<String> = (0..TEXT_EVENTS).map(|number| format!(" ship{number}")).collect();
    let text = texts.concat();
    for (size, delivery) in [("whole", Delivery::Whole), ("stream", Delivery::Burst)] {
        // One body that both formats understand.
        let request = road("", "", "m", 900, delivery);
        for format in ["chat", "messages"] {
            fs::write(folder.join(format!("{format}.request.{size}")), request.body())?;
        }
    }
    fs::write(folder.join("chat.reply.whole"), chat_reply(&text))?;
    fs::write(folder.join("chat.reply.stream"), chat_stream(&texts))?;
    fs::write(folder.join("messages.reply.whole"), messages_reply(&text))?;
    fs::write(folder.join("messages.reply.stream"), messages_stream(&texts))?;
    Ok(())
}

fn chat_reply(text: &str) -> String {
    let message = json!({ "role": "assistant", "content": text });
    let reply = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "m",
        "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 200, "completion_tokens": 100, "total_tokens": 300 },
    });
    reply.to_string()
}

fn chat_stream(texts: &[String]) -> String {
    let chunk = |delta: serde_json::Value, reason: Option<&str>| {
        let chunk = json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000,
            "model": "m", "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }],
        });
        format!("data: {chunk}\n\n")
    };
    let first = chunk(json!({ "role": "assistant", "content": "" }), None);
    let texts: String = texts.iter().map(|text| chunk(json!({ "content": text }), None)).collect();
    let last = chunk(json!({}), Some("stop"));
    let usage = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m",
        "choices": [],
        "usage": { "prompt_tokens": 200, "completion_tokens": 100, "total_tokens": 300 },
    });
    format!("{first}{texts}{last}data: {usage}\n\ndata: [DONE]\n\n")
}

fn messages_reply(text: &str) -> String {
    let reply = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [{ "type": "text", "text": text }],
        "stop_reason": "end_turn", "stop_sequence": null,
        "usage": { "input_tokens": 200, "output_tokens": 100 },
    });
    reply.to_string()
}

fn messages_stream(texts: &[String]) -> String {
    let event = |name: &str, data: serde_json::Value| format!("event: {name}\ndata: {data}\n\n");
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": { "input_tokens": 200, "output_tokens": 1 },
    });
    let block = json!({ "type": "text", "text": "" });
    let delta = |text: &String| {
        let delta = json!({ "type": "text_delta", "text": text });
        let data = json!({ "type": "content_block_delta", "index": 0, "delta": delta });
        event("content_block_delta", data)
    };
    let end = json!({ "stop_reason": "end_turn", "stop_sequence": null });
    [
        event("message_start", json!({ "type": "message_start", "message": message })),
        event(
            "content_block_start",
            json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        ),
        texts.iter().map(delta).collect(),
        event("content_block_stop", json!({ "type": "content_block_stop", "index": 0 })),
        event(
            "message_delta",
            json!({ "type": "message_delta", "delta": end, "usage": { "output_tokens": 100 } }),
        ),
        event("message_stop", json!({ "type": "message_stop" })),
    ]
    .concat()
}
