//! Ids of the items of a response, and its end.

use canon::{Finish, Losses};
use serde_json::Value;
use std::collections::BTreeMap;

use crate::ReplyStamp;
use crate::endings::{self, WrittenEnding};
use crate::fields::ObjectWriter;
use crate::responses::names::ORIGIN;

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
        let ended = |status, cut| Self { status, cut, ..Self::default() };
        let incomplete =
            |reason: &str| Self { reason: Some(reason.to_owned()), ..ended("incomplete", true) };
        let Some(Finish { reason: why, raw, stop_sequence: _ }) = finish else {
            return ended("incomplete", true);
        };
        // A blocked prompt is reported as filtered: clients retry a response that "failed".
        match (raw.for_format(ORIGIN), endings::write(ORIGIN, *why)) {
            (Some("cancelled"), _) => ended("cancelled", false),
            (_, WrittenEnding::Failed) => {
                let message = "the model's turn failed, please retry";
                let error = ObjectWriter::new().set("code", "server_error").set("message", message);
                Self { error: Some(error.into()), ..ended("failed", false) }
            }
            (_, WrittenEnding::Word("completed")) => ended("completed", false),
            (Some("incomplete"), _) => ended("incomplete", true),
            (Some(own), _) if !own.starts_with("status:") => incomplete(own),
            (None | Some(_), WrittenEnding::Word(_) | WrittenEnding::Truncated(_)) => {
                incomplete(endings::write_or_truncated(ORIGIN, *why, losses))
            }
        }
    }
}

/// Generates item ids, numbered per type.
#[derive(Debug, Default)]
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
