//! Pieces of a response: ids, calls, and the end.

use canon::{ExtraFields, Finish, Losses, ToolCall};
use serde_json::Value;
use std::collections::BTreeMap;

use super::tool_names::{self, ToolNames};
use crate::ReplyStamp;
use crate::endings::{self, WrittenEnding};
use crate::fields::ObjectWriter;
use crate::responses::names::{NAMESPACE_FIELD, ORIGIN};

/// End of a response: its status, and the reason if it is incomplete.
#[derive(Debug, Default)]
pub(crate) struct ResponseEnd {
    pub(crate) status: &'static str,
    pub(crate) reason: Option<String>,
    pub(crate) error: Option<Value>,
    /// True if the last item is incomplete.
    pub(crate) cut: bool,
}

impl ResponseEnd {
    pub(crate) fn new(finish: Option<&Finish>, losses: &mut Losses) -> Self {
        let incomplete =
            |reason: Option<&str>| (("incomplete", true), reason.map(str::to_owned), None);
        let ((status, cut), reason, error) = match finish {
            None => incomplete(None),
            Some(Finish { reason: why, raw, stop_sequence: _ }) => {
                // A blocked prompt is reported as filtered: clients retry a response that "failed".
                match (raw.for_format(ORIGIN), endings::write(ORIGIN, *why)) {
                    (Some("cancelled"), _) => (("cancelled", false), None, None),
                    (_, WrittenEnding::Failed) => {
                        let message = "the model's turn failed, please retry";
                        let error = ObjectWriter::new().set("code", "server_error");
                        (("failed", false), None, Some(error.set("message", message).into()))
                    }
                    (_, WrittenEnding::Word("completed")) => (("completed", false), None, None),
                    (Some("incomplete"), _) => incomplete(None),
                    (Some(own), _) if !own.starts_with("status:") => incomplete(Some(own)),
                    (None | Some(_), WrittenEnding::Word(_) | WrittenEnding::Truncated(_)) => {
                        incomplete(Some(endings::write_or_truncated(ORIGIN, *why, losses)))
                    }
                }
            }
        };
        Self { status, reason, error, cut }
    }
}

/// Generates item ids, numbered per type.
#[derive(Debug)]
pub(crate) struct ItemIds {
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

/// A tool call with the names of the caller's declaration.
#[derive(Clone, Debug)]
pub(super) struct DeclaredCall {
    pub(super) call_id: String,
    namespace: Option<String>,
    pub(super) name: String,
    pub(super) custom: bool,
    /// True if the input of a custom tool arrives wrapped in JSON, because the provider only has
    /// functions.
    pub(super) wrapped: bool,
    pub(super) arguments: String,
    extras: ExtraFields,
}

impl DeclaredCall {
    /// Creates the call without its arguments.
    pub(super) fn new(call: ToolCall, extras: ExtraFields, names: &ToolNames) -> Self {
        let ToolCall { id, name, arguments: _, custom } = call;
        let wrapped = !custom && names.is_custom(&name);
        let kept = extras.get(ORIGIN, NAMESPACE_FIELD).and_then(Value::as_str);
        let (namespace, bare) = match (names.split(&name), kept) {
            ((None, flat), Some(space)) => (Some(space), tool_names::bare_name(space, flat)),
            (declared, _) => declared,
        };
        Self {
            call_id: id,
            namespace: namespace.map(str::to_owned),
            name: bare.to_owned(),
            custom: custom || wrapped,
            wrapped,
            arguments: String::new(),
            extras,
        }
    }

    /// Returns the prefix of its item's id.
    pub(super) const fn prefix(&self) -> &'static str {
        if self.custom { "ctc" } else { "fc" }
    }

    /// Writes the item.
    pub(super) fn item(&self, id: &str, status: &str) -> ObjectWriter {
        let (kind, field) = call_words(self.custom);
        // `custom_tool_call` has no `status`.
        let status = (!self.custom).then_some(status);
        ObjectWriter::new()
            .set("type", kind)
            .set("id", id)
            .set_some("status", status)
            .set("call_id", self.call_id.as_str())
            .set("name", self.name.as_str())
            .set_some("namespace", self.namespace.as_deref())
            .set(field, self.arguments.as_str())
            .with_extras(&self.extras, ORIGIN)
    }

    /// Returns the name of an event: of a `delta`, or the one that ends the arguments.
    pub(super) const fn event(&self, is_delta: bool) -> &'static str {
        match (self.custom, is_delta) {
            (true, true) => "response.custom_tool_call_input.delta",
            (true, false) => "response.custom_tool_call_input.done",
            (false, true) => "response.function_call_arguments.delta",
            (false, false) => "response.function_call_arguments.done",
        }
    }
}

/// Returns the type of a call's item, and the field of its arguments.
pub(crate) const fn call_words(custom: bool) -> (&'static str, &'static str) {
    if custom { ("custom_tool_call", "input") } else { ("function_call", "arguments") }
}
