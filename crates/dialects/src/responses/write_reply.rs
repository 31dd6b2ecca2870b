//! Writes a whole response from canon.

use canon::{Candidate, Finish, Kind, Logprob, Losses, Lossy, Part, Reply, ToolCall, Why};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

use super::echo::{Echo, Moment};
use super::items::{INSIDE, ITEM};
use super::names::{self, Names};
use super::{ME, output, seals};
use crate::Stamp;
use crate::fields::Object;
use crate::served::{self, TIER};

/// Writes a reply to the given request.
pub(super) fn write(reply: Reply, chat: &canon::Chat, stamp: &Stamp) -> Lossy<Vec<u8>> {
    let Reply { id: _, model: _, created, candidates, usage, extras } = reply;
    let mut losses = Losses::new();
    let tier = served::note(&extras, ME, &mut losses);
    losses.add_if(
        candidates.len() > 1,
        "reply.candidates",
        "the responses format gives one answer",
    );
    let created = created.unwrap_or(stamp.created);
    let mut echo = Echo::of(chat, stamp, created);
    for (name, value) in extras.for_origin(ME).into_iter().flatten() {
        echo.keep(name, value.clone());
    }
    if let Some(tier) = tier {
        echo.keep(TIER, Value::from(tier));
    }
    let candidate = candidates.into_iter().next().unwrap_or_default();
    let Candidate { index: _, parts, finish, logprobs, extras } = candidate;
    served::note(&extras, ME, &mut losses);
    let end = End::of(finish.as_ref());
    let logprobs = if chat.sampling.logprobs.is_some() { logprobs } else { Vec::new() };
    let mut items = Written {
        names: Names::of(&chat.tools),
        ids: Ids::new(stamp),
        items: Vec::new(),
        message: None,
        logprobs,
        losses: &mut losses,
    };
    items.all(&parts);
    let mut output = items.finish();
    if let Some(Value::Object(last)) = output.last_mut()
        && end.cut
        && last.contains_key("status")
    {
        last.insert("status".to_owned(), Value::from("incomplete"));
    }
    let body = echo.at(Moment {
        status: end.status,
        reason: end.reason.as_deref(),
        error: end.error,
        output,
        usage: Some(usage.unwrap_or_default()),
        completed: (end.status == "completed").then(|| stamp.created.max(created)),
    });
    (body.to_string().into_bytes(), losses.into_vec())
}

/// End of a response: its status, and the reason if it is incomplete.
#[derive(Debug, Default)]
pub(super) struct End {
    pub(super) status: &'static str,
    pub(super) reason: Option<String>,
    pub(super) error: Option<Value>,
    /// True if the last item is incomplete.
    pub(super) cut: bool,
}

impl End {
    pub(super) fn of(finish: Option<&Finish>) -> Self {
        let incomplete = |reason: &str| Self {
            status: "incomplete",
            reason: Some(reason.to_owned()),
            cut: true,
            ..Self::default()
        };
        let Some(Finish { why, raw, stop: _ }) = finish else {
            return Self { status: "incomplete", cut: true, ..Self::default() };
        };
        match why {
            Why::Stop | Why::StopText | Why::ToolCalls | Why::Paused => {
                Self { status: "completed", ..Self::default() }
            }
            Why::Length => incomplete("max_output_tokens"),
            // A blocked prompt is reported as filtered: clients retry a response that "failed".
            Why::Filtered | Why::PromptBlocked => incomplete("content_filter"),
            Why::Malformed => {
                let message = "the model's output made no sense, please retry";
                let error = Object::new().set("code", "server_error").set("message", message);
                Self { status: "failed", error: Some(error.into()), ..Self::default() }
            }
            Why::Other => match raw.for_origin(ME) {
                None | Some("completed") => Self { status: "completed", ..Self::default() },
                Some("cancelled") => Self { status: "cancelled", ..Self::default() },
                Some(word) if word.starts_with("status:") => {
                    Self { status: "completed", ..Self::default() }
                }
                Some("incomplete") => Self { status: "incomplete", cut: true, ..Self::default() },
                Some(reason) => incomplete(reason),
            },
        }
    }
}

/// Generates item ids, numbered per type, so that a stream and a whole response get the same ids.
#[derive(Debug)]
pub(super) struct Ids {
    stamp: String,
    used: BTreeMap<&'static str, usize>,
}

impl Ids {
    pub(super) fn new(stamp: &Stamp) -> Self {
        Self { stamp: stamp.id.clone(), used: BTreeMap::new() }
    }

    pub(super) fn next(&mut self, kind: &'static str) -> String {
        let used = self.used.entry(kind).or_default();
        *used += 1;
        // Items that only carry a signature are numbered separately from thoughts.
        let (prefix, apart) = if kind == "seal" { ("rs", "s") } else { (kind, "") };
        format!("{prefix}_{}_{apart}{}", self.stamp, *used - 1)
    }

    /// Id of the container in which code is said to have run.
    pub(super) fn container(&self) -> String {
        format!("cntr_{}", self.stamp)
    }
}

/// Writes parts as items.
struct Written<'a> {
    names: Names,
    ids: Ids,
    items: Vec<Value>,
    message: Option<(Option<Value>, Vec<Value>)>,
    /// Written with the first text.
    logprobs: Vec<Logprob>,
    losses: &'a mut Losses,
}

impl Written<'_> {
    fn all(&mut self, parts: &[Part]) {
        let mut parts = parts.iter().peekable();
        while let Some(part) = parts.next() {
            if let Some(said) = self.said(part) {
                self.add(said, part.extras.get(ME, ITEM));
                // The end of a text may be a separate part because of its signature. It stays in
                // the same message.
                if let Some(seal) = &part.seal {
                    self.close();
                    self.loose(seals::on_neighbour(seal, true));
                }
                continue;
            }
            let outcome = parts.next_if(|next| {
                matches!((&part.kind, &next.kind), (Kind::Code(_), Kind::CodeOutcome(_)))
            });
            // The signature of a part that cannot be written is dropped with it.
            if let Some(item) = self.done(part, outcome) {
                self.close();
                self.seal_of(part);
                self.items.push(item);
                if let Some(seal) = outcome.and_then(|outcome| outcome.seal.as_ref()) {
                    self.loose(seals::on_neighbour(seal, true));
                }
            }
        }
    }

    /// Writes an item that only carries a signature.
    fn loose(&mut self, token: String) {
        let id = self.ids.next("seal");
        self.items.push(seals::loose(token, Some(id)).into());
    }

    /// Writes the signature of a part that is not a thought, right before the item of that part.
    fn seal_of(&mut self, part: &Part) {
        if let Some(seal) = &part.seal
            && !matches!(part.kind, Kind::Thought(_))
        {
            let token = if let Kind::ToolCall(call) = &part.kind {
                seals::on_call(seal, &call.id)
            } else {
                seals::on_neighbour(seal, false)
            };
            self.loose(token);
        }
    }

    /// Writes a message part. `None` for parts that are items of their own.
    fn said(&mut self, part: &Part) -> Option<Value> {
        match &part.kind {
            Kind::Text { text, citations } => {
                let chances = output::logprobs(&std::mem::take(&mut self.logprobs), false);
                Some(output::text(text, citations, Some(chances), self.losses))
            }
            Kind::Refusal(text) => Some(output::refusal(text)),
            Kind::Foreign { origin, value }
                if *origin == ME && part.extras.get(ME, INSIDE).is_some() =>
            {
                Some(value.clone())
            }
            Kind::Media(_)
            | Kind::Thought(_)
            | Kind::ToolCall(_)
            | Kind::ToolResult(_)
            | Kind::Code(_)
            | Kind::CodeOutcome(_)
            | Kind::Search(_)
            | Kind::Foreign { .. } => None,
        }
    }

    fn done(&mut self, part: &Part, outcome: Option<&Part>) -> Option<Value> {
        Some(match &part.kind {
            Kind::Thought(thought) => {
                let id = self.ids.next("rs");
                seals::write(part, thought, Some(id)).into()
            }
            Kind::ToolCall(call) => self.call(part, call),
            Kind::Code(code) => {
                let own = part.extras.get(ME, "container_id").is_some();
                let id = (!own).then(|| self.ids.next("ci"));
                output::code(Some((part, code)), outcome, id, Some(self.ids.container())).into()
            }
            Kind::CodeOutcome(_) => {
                let id = self.ids.next("ci");
                output::code(None, Some(part), Some(id), Some(self.ids.container())).into()
            }
            Kind::Search(search) => {
                let id = search.id.clone().filter(|id| output::is_own_search(id));
                let id = id.unwrap_or_else(|| self.ids.next("ws"));
                output::shown_search(part, search, id)
            }
            Kind::Media(media) => {
                let id = self.ids.next("ig");
                match output::picture(part, media, Some(id)) {
                    Some(item) => item.into(),
                    None => {
                        self.losses
                            .add("reply.media", "the responses format has no place for this media");
                        return None;
                    }
                }
            }
            Kind::Foreign { origin, value } if *origin == ME => value.clone(),
            Kind::ToolResult(_) | Kind::Foreign { .. } => {
                self.losses.add("reply.part", "a part only the provider's format has");
                return None;
            }
            Kind::Text { .. } | Kind::Refusal(_) => return None,
        })
    }

    fn call(&mut self, part: &Part, call: &ToolCall) -> Value {
        let kept = part.extras.get(ME, names::SPACE).and_then(Value::as_str);
        let mut call = Shown::of(call, &self.names);
        if let (Some(space), None) = (kept, &call.space) {
            call.name = names::bare(space, &call.name).to_owned();
        }
        let id = self.ids.next(call.prefix());
        // SDKs parse the arguments, and an empty string is not valid JSON.
        let none = call.arguments.is_empty() && !call.custom;
        let arguments = if none { "{}" } else { call.arguments.as_str() };
        let item = call.item(&id, arguments, "completed");
        let Value::Object(mut fields) = item else { return item };
        for (name, value) in part.extras.for_origin(ME).into_iter().flatten() {
            fields.entry(name.clone()).or_insert_with(|| value.clone());
        }
        Value::Object(fields)
    }

    fn add(&mut self, part: Value, item: Option<&Value>) {
        if self.message.as_ref().is_some_and(|(open, _)| open.as_ref() != item) {
            self.close();
        }
        let (_, parts) = self.message.get_or_insert_with(|| (item.cloned(), Vec::new()));
        parts.push(part);
    }

    fn close(&mut self) {
        let Some((item, parts)) = self.message.take() else { return };
        let kept = match item {
            Some(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        let id = self.ids.next("msg");
        let message = message(&id, parts);
        self.items.push(message.with(&canon::Extras::of(ME, kept), ME).into());
    }

    fn finish(mut self) -> Vec<Value> {
        self.close();
        self.items
    }
}

/// Writes an assistant message.
pub(super) fn message(id: &str, parts: Vec<Value>) -> Object {
    Object::new()
        .set("type", "message")
        .set("id", id)
        .set("status", "completed")
        .set("role", "assistant")
        .set("content", parts)
}

/// A tool call with the names of the caller's declaration.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) call: String,
    pub(super) space: Option<String>,
    pub(super) name: String,
    pub(super) custom: bool,
    /// True if the input of a custom tool arrives wrapped in JSON, because the provider only has
    /// functions.
    pub(super) wrapped: bool,
    pub(super) arguments: String,
}

impl Shown {
    pub(super) fn of(call: &ToolCall, names: &Names) -> Self {
        let ToolCall { id, name, arguments, custom } = call;
        let wrapped = !custom && names.is_custom(name);
        let (space, bare) = names.split(name);
        Self {
            call: id.clone(),
            space: space.map(str::to_owned),
            name: bare.to_owned(),
            custom: *custom || wrapped,
            wrapped,
            arguments: if wrapped { names::unwrapped(arguments) } else { arguments.clone() },
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
        Object::new()
            .set("type", kind)
            .set("id", id)
            .maybe("status", status)
            .set("call_id", self.call.as_str())
            .set("name", self.name.as_str())
            .maybe("namespace", self.space.as_deref())
            .set(field, arguments)
            .into()
    }
}
