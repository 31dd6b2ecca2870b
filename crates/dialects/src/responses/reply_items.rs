//! Pieces of a response that whole replies and streams share: ids, calls, and the end.

use canon::{Finish, Losses, ToolCall};
use serde_json::Value;
use std::collections::BTreeMap;

use super::names::ORIGIN;
use super::own::tool_names::{self, ToolNames};
use crate::ReplyStamp;
use crate::endings::{self, WrittenEnding};
use crate::fields::ObjectWriter;

/// End of a response: its status, and the reason if it is incomplete.
#[derive(Debug, Default)]
pub(super) struct ResponseEnd {
    pub(super) status: &'static str,
    pub(super) reason: Option<String>,
    pub(super) error: Option<Value>,
    /// True if the last item is incomplete.
    pub(super) cut: bool,
}

impl ResponseEnd {
    pub(super) fn new(finish: Option<&Finish>, losses: &mut Losses) -> Self {
        let incomplete = |reason: &str| Self {
            status: "incomplete",
            reason: Some(reason.to_owned()),
            cut: true,
            ..Self::default()
        };
        let Some(Finish { reason: why, raw, stop_sequence: _ }) = finish else {
            return Self { status: "incomplete", cut: true, ..Self::default() };
        };
        // A blocked prompt is reported as filtered: clients retry a response that "failed".
        match (raw.for_format(ORIGIN), endings::write(ORIGIN, *why)) {
            (Some("cancelled"), _) => Self { status: "cancelled", ..Self::default() },
            (_, WrittenEnding::Failed) => {
                let message = "the model's turn failed, please retry";
                let error = ObjectWriter::new().set("code", "server_error").set("message", message);
                Self { status: "failed", error: Some(error.into()), ..Self::default() }
            }
            (_, WrittenEnding::Word("completed")) => {
                Self { status: "completed", ..Self::default() }
            }
            (Some("incomplete"), _) => Self { status: "incomplete", cut: true, ..Self::default() },
            (Some(own), _) if !own.starts_with("status:") => incomplete(own),
            (None | Some(_), WrittenEnding::Word(_) | WrittenEnding::Truncated(_)) => {
                incomplete(endings::write_or_truncated(ORIGIN, *why, losses))
            }
        }
    }
}

/// Generates item ids, numbered per type, so that a stream and a whole response get the same ids.
#[derive(Debug)]
pub(super) struct ItemIds {
    stamp: String,
    used: BTreeMap<&'static str, usize>,
}

impl ItemIds {
    pub(super) fn new(stamp: &ReplyStamp) -> Self {
        Self { stamp: stamp.id.clone(), used: BTreeMap::new() }
    }

    pub(super) fn next(&mut self, kind: &'static str) -> String {
        let used = self.used.entry(kind).or_default();
        *used += 1;
        // Items that only carry a signature are numbered separately from thoughts.
        let (prefix, mark) = if kind == "signature" { ("rs", "s") } else { (kind, "") };
        format!("{prefix}_{}_{mark}{}", self.stamp, *used - 1)
    }

    /// Id of the container in which code is said to have run.
    pub(super) fn container(&self) -> String {
        format!("cntr_{}", self.stamp)
    }
}

/// Writes an assistant message.
pub(super) fn message_item(id: &str, parts: Vec<Value>) -> ObjectWriter {
    ObjectWriter::new()
        .set("type", "message")
        .set("id", id)
        .set("status", "completed")
        .set("role", "assistant")
        .set("content", parts)
}

/// A tool call with the names of the caller's declaration.
#[derive(Clone, Debug)]
pub(super) struct DeclaredCall {
    pub(super) call_id: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) custom: bool,
    /// True if the input of a custom tool arrives wrapped in JSON, because the provider only has
    /// functions.
    pub(super) wrapped: bool,
    pub(super) arguments: String,
}

impl DeclaredCall {
    pub(super) fn new(call: &ToolCall, names: &ToolNames) -> Self {
        let ToolCall { id, name, arguments, custom } = call;
        let wrapped = !custom && names.is_custom(name);
        let (space, bare) = names.split(name);
        Self {
            call_id: id.clone(),
            namespace: space.map(str::to_owned),
            name: bare.to_owned(),
            custom: *custom || wrapped,
            wrapped,
            arguments: if wrapped {
                tool_names::unwrap_input(arguments)
            } else {
                arguments.clone()
            },
        }
    }

    pub(super) const fn prefix(&self) -> &'static str {
        if self.custom { "ctc" } else { "fc" }
    }

    /// Writes the item with the given arguments.
    pub(super) fn item(&self, id: &str, arguments: &str, status: &str) -> Value {
        let (kind, field) = if self.custom {
            ("custom_tool_call", "input")
        } else {
            ("function_call", "arguments")
        };
        // `custom_tool_call` has no `status`.
        let status = (!self.custom).then_some(status);
        ObjectWriter::new()
            .set("type", kind)
            .set("id", id)
            .set_some("status", status)
            .set("call_id", self.call_id.as_str())
            .set("name", self.name.as_str())
            .set_some("namespace", self.namespace.as_deref())
            .set(field, arguments)
            .into()
    }
}
