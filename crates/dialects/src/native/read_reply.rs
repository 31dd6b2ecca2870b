//! Reads a provider's whole reply into canon.

use canon::{
    ApiError, ChatReply, ErrorKind, ExtraFields, Finish, FinishReason, Logprob, Part, PartKind,
    RawReason, ReplyCandidate, TokenLogprob,
};
use serde_json::Value;

use super::names::ORIGIN;
use super::proto_json::fields;
use super::{fault, grounding, proto_json, read_part, timestamp, wire};
use crate::endings;
use crate::fields::{JsonPath, ObjectReader};

/// Reads a reply. An error object in place of a reply is returned as that error.
pub(super) fn read(body: &[u8]) -> Result<ChatReply, ApiError> {
    let value: Value = serde_json::from_slice(body).map_err(|e| unreadable(&e.to_string()))?;
    let mut root = fields(value, &JsonPath::Root).map_err(|e| unreadable(e.message()))?;
    if let Some(error) = root.take("error") {
        return Err(fault::read_object(&error));
    }
    let expected = ["candidates", "promptFeedback", "usageMetadata"];
    let mut read = || -> Result<ChatReply, ApiError> {
        let top = NativeReplyHeader::take(&mut root)?;
        let list = proto_json::list(&mut root, "candidates")?;
        if list.is_empty() && top.feedback.is_none() && top.usage.is_none() {
            return Err(unreadable(&format!("there is none of {expected:?}")));
        }
        let mut extras = ExtraFields::new();
        let mut usage = top.usage.and_then(|value| wire::read_usage(value, &mut extras));
        let mut candidates = Vec::new();
        for (at, value) in list.into_iter().enumerate() {
            let (candidate, searches) = candidate(value, at, top.id.as_deref())?;
            if let Some(usage) = &mut usage {
                usage.searches += searches;
            }
            candidates.push(candidate);
        }
        if let Some(feedback) = top.feedback {
            if candidates.is_empty()
                && let Some(finish) = blocked(&feedback)
            {
                candidates
                    .push(ReplyCandidate { finish: Some(finish), ..ReplyCandidate::default() });
            }
            extras.insert(ORIGIN, "promptFeedback", feedback);
        }
        let created = top.created.as_deref().and_then(timestamp::read);
        Ok(ChatReply { id: top.id, model: top.model, created, candidates, usage, extras })
    };
    let mut reply = read().map_err(|e| unreadable(&e.to_string()))?;
    for (name, value) in root.remaining() {
        reply.extras.insert(ORIGIN, &name, value);
    }
    Ok(reply)
}

fn unreadable(why: &str) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "the provider's answer could not be read")
        .with_log_note(format!("not a native answer: {why}"))
}

/// Top-level fields of a reply or a stream chunk.
pub(super) struct NativeReplyHeader {
    pub(super) id: Option<String>,
    pub(super) model: Option<String>,
    pub(super) created: Option<String>,
    pub(super) usage: Option<Value>,
    pub(super) feedback: Option<Value>,
}

impl NativeReplyHeader {
    pub(super) fn take(root: &mut ObjectReader<'_>) -> Result<Self, ApiError> {
        Ok(Self {
            id: root.string("responseId")?.filter(|id| !id.is_empty()),
            model: root.string("modelVersion")?.filter(|model| !model.is_empty()),
            created: root.string("createTime")?,
            usage: root.take("usageMetadata"),
            feedback: root.take("promptFeedback"),
        })
    }
}

/// Returns the finish of a reply whose prompt was blocked; `None` if it was not blocked.
pub(super) fn blocked(feedback: &Value) -> Option<Finish> {
    let word = feedback.get("blockReason").and_then(Value::as_str)?;
    Some(Finish::new(FinishReason::PromptBlocked, RawReason::new(ORIGIN, word)))
}

fn candidate(value: Value, at: usize, id: Option<&str>) -> Result<(ReplyCandidate, u64), ApiError> {
    let mut fields = fields(value, &JsonPath::Root)?;
    let mut side = NativeCandidateFields::take(&mut fields)?;
    let index = side.index.unwrap_or_else(|| u32::try_from(at).unwrap_or(0));
    let mut parts: Vec<Part> = Vec::new();
    let mut calls = 0;
    for value in std::mem::take(&mut side.parts) {
        let invent = |name: &str| wire::invent_id((id, index, calls), name);
        let read = read_part::part(value, &JsonPath::Root, invent)?;
        for part in read.hidden.into_iter().chain(read.part) {
            if matches!(part.kind, PartKind::ToolCall(_)) {
                calls += 1;
            }
            push_merged(&mut parts, part);
        }
    }
    let finish = side.finish.as_ref().map(|word| {
        let reason = endings::read_turn(ORIGIN, word, calls > 0);
        Finish::new(reason, RawReason::new(ORIGIN, word.as_str()))
    });
    cite(&mut parts, &side);
    parts.extend(
        grounding::search(&side.grounding).map(|found| Part::new(PartKind::WebSearch(found))),
    );
    let searches = grounding::searches(&side.grounding);
    let logprobs = side.logprobs.as_ref().map(logprobs).unwrap_or_default();
    let mut extras = fields.extras(ORIGIN);
    for (name, value) in side.into_asides() {
        extras.insert(ORIGIN, name, value);
    }
    Ok((ReplyCandidate { index, parts, finish, logprobs, extras }, searches))
}

/// Fields of a candidate besides the parts themselves.
pub(super) struct NativeCandidateFields {
    pub(super) index: Option<u32>,
    pub(super) parts: Vec<Value>,
    pub(super) finish: Option<String>,
    pub(super) grounding: Value,
    pub(super) cited: Value,
    pub(super) ratings: Value,
    pub(super) logprobs: Option<Value>,
}

impl NativeCandidateFields {
    pub(super) fn take(candidate: &mut ObjectReader<'_>) -> Result<Self, ApiError> {
        let parts = match candidate.take("content") {
            Some(content) => proto_json::list(&mut fields(content, &JsonPath::Root)?, "parts")?,
            None => Vec::new(),
        };
        let non_empty = |value: Option<Value>| {
            value.filter(|value| value.as_object().is_some_and(|map| !map.is_empty()))
        };
        // The usage has the same count.
        candidate.take("tokenCount");
        Ok(Self {
            index: proto_json::integer(candidate, "index")?.and_then(|n| u32::try_from(n).ok()),
            parts,
            finish: candidate.string("finishReason")?,
            grounding: non_empty(candidate.take("groundingMetadata")).unwrap_or_default(),
            cited: non_empty(candidate.take("citationMetadata"))
                .map(grounding::rename)
                .unwrap_or_default(),
            ratings: candidate
                .take("safetyRatings")
                .filter(|ratings| ratings.as_array().is_some_and(|list| !list.is_empty()))
                .unwrap_or_default(),
            logprobs: candidate.take("logprobsResult"),
        })
    }

    /// Returns the metadata that is kept verbatim in addition to what canon carries of it.
    pub(super) fn into_asides(self) -> impl Iterator<Item = (&'static str, Value)> {
        [
            ("groundingMetadata", self.grounding),
            ("citationMetadata", self.cited),
            ("safetyRatings", self.ratings),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_null())
    }
}

/// Adds a part. Adjacent pieces of one text are merged unless one of them has a signature or
/// extras.
fn push_merged(parts: &mut Vec<Part>, part: Part) {
    let Part { kind, signature: seal, cache_breakpoint: _, extras } = &part;
    let plain = seal.is_none() && extras.is_empty();
    if plain && matches!(kind, PartKind::Text { text, .. } if text.is_empty()) {
        return;
    }
    if let Some(last) = parts.last_mut()
        && plain
        && last.signature.is_none()
        && last.extras.is_empty()
    {
        match (&mut last.kind, kind) {
            (PartKind::Text { text, .. }, PartKind::Text { text: more, .. }) => {
                text.push_str(more);
                return;
            }
            (PartKind::Thought(thought), PartKind::Thought(more)) => {
                thought.text.push_str(&more.text);
                return;
            }
            _ => {}
        }
    }
    parts.push(part);
}

/// Adds the sources to the text that they refer to: the last part, not counting empty parts that
/// carry a signature. A stream splits the last piece off that text if it has the signature.
fn cite(parts: &mut [Part], side: &NativeCandidateFields) {
    let is_empty =
        |part: &Part| matches!(&part.kind, PartKind::Text { text, .. } if text.is_empty());
    let Some(last) = parts.iter().rposition(|part| !is_empty(part)) else { return };
    let plain = |part: &Part| part.signature.is_none() && part.extras.is_empty();
    let text = |at: usize| match parts.get(at).map(|part| &part.kind) {
        Some(PartKind::Text { text, .. }) => Some(text.as_str()),
        _ => None,
    };
    let Some(end) = text(last) else { return };
    let before = last.checked_sub(1).filter(|at| {
        parts.get(last).is_some_and(|part| !plain(part)) && parts.get(*at).is_some_and(plain)
    });
    let first = before.filter(|at| text(*at).is_some()).unwrap_or(last);
    let start = if first == last { "" } else { text(first).unwrap_or_default() };
    let citations = grounding::citations(&side.grounding, &side.cited, &format!("{start}{end}"));
    let lengths = [start.chars().count(), end.chars().count()];
    let lists = grounding::split(citations, if first == last { &lengths[1..] } else { &lengths });
    for (part, list) in parts.iter_mut().skip(first).zip(lists) {
        if let PartKind::Text { citations, .. } = &mut part.kind {
            *citations = list;
        }
    }
}

/// Reads the log probabilities of the tokens.
pub(super) fn logprobs(value: &Value) -> Vec<Logprob> {
    let chance = |value: &Value| TokenLogprob {
        token: value.get("token").and_then(Value::as_str).unwrap_or_default().to_owned(),
        id: value.get("tokenId").and_then(proto_json::whole),
        logprob: value.get("logProbability").and_then(Value::as_f64).unwrap_or_default(),
        bytes: None,
    };
    let list = |value: &Value, name: &str| -> Vec<Value> {
        value.get(name).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let tops = list(value, "topCandidates");
    list(value, "chosenCandidates")
        .iter()
        .enumerate()
        .map(|(at, chosen)| Logprob {
            chosen: chance(chosen),
            top: tops
                .get(at)
                .map(|top| list(top, "candidates").iter().map(chance).collect())
                .unwrap_or_default(),
        })
        .collect()
}
