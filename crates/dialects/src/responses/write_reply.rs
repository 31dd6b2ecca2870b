//! Writes a whole response from canon.

use canon::{ChatReply, Logprob, Losses, Lossy, Part, PartKind, ReplyCandidate, ToolCall};
use serde_json::{Map, Value};

use super::names::{MESSAGE_EXTRA, NAMESPACE_FIELD, NESTED_PART_EXTRA, ORIGIN};
use super::own::tool_names::{self, ToolNames};
use super::reply_items::{DeclaredCall, ItemIds, ResponseEnd, message_item};
use super::response_object::{ResponseEcho, ResponseState};
use super::signatures::{self, SignaturePlace};
use super::write_output;
use crate::ReplyStamp;
use crate::fields::{note_foreign_fields, note_stop_text};
use crate::service_tier::{self, TIER_FIELD};

/// Writes a reply to the given request.
pub(super) fn write(
    reply: ChatReply,
    chat: &canon::ChatRequest,
    stamp: &ReplyStamp,
) -> Lossy<Vec<u8>> {
    let ChatReply { id: _, model: _, created, candidates, usage, extras } = reply;
    let mut losses = Losses::new();
    let tier = service_tier::note_reply_extras(&extras, ORIGIN, &mut losses);
    losses.add_if(
        candidates.len() > 1,
        "reply.candidates",
        "the responses format has a single candidate",
    );
    let created = created.unwrap_or(stamp.created);
    let mut echo = ResponseEcho::from_request(chat, stamp, created);
    for (name, value) in extras.for_format(ORIGIN).into_iter().flatten() {
        echo.set(name, value.clone());
    }
    if let Some(tier) = tier {
        echo.set(TIER_FIELD, Value::from(tier));
    }
    let candidate = candidates.into_iter().next().unwrap_or_default();
    let ReplyCandidate { index: _, parts, finish, logprobs, extras } = candidate;
    service_tier::note_reply_extras(&extras, ORIGIN, &mut losses);
    note_stop_text(finish.as_ref(), ORIGIN, &mut losses);
    let end = ResponseEnd::new(finish.as_ref(), &mut losses);
    let logprobs = if chat.sampling.logprobs.is_some() { logprobs } else { Vec::new() };
    let mut items = OutputWriter {
        names: ToolNames::new(&chat.tools),
        ids: ItemIds::new(stamp),
        items: Vec::new(),
        message: None,
        logprobs,
        losses: &mut losses,
    };
    items.write_parts(&parts);
    let mut output = items.finish();
    if let Some(Value::Object(last)) = output.last_mut()
        && end.cut
        && last.contains_key("status")
    {
        last.insert("status".to_owned(), Value::from("incomplete"));
    }
    let body = echo.with_state(ResponseState {
        status: end.status,
        reason: end.reason.as_deref(),
        error: end.error,
        output,
        usage: Some(usage.unwrap_or_default()),
        completed: (end.status == "completed").then(|| stamp.created.max(created)),
    });
    (body.to_json(), losses.into_vec())
}

/// Writes parts as items.
struct OutputWriter<'a> {
    names: ToolNames,
    ids: ItemIds,
    items: Vec<Value>,
    message: Option<(Option<Value>, Vec<Value>)>,
    /// Written with the first text.
    logprobs: Vec<Logprob>,
    losses: &'a mut Losses,
}

impl OutputWriter<'_> {
    fn write_parts(&mut self, parts: &[Part]) {
        let mut parts = parts.iter().peekable();
        while let Some(part) = parts.next() {
            note_foreign_fields(&part.extras, ORIGIN, "part", self.losses);
            if let Some(output) = self.message_part(part) {
                self.add(output, part.extras.get(ORIGIN, MESSAGE_EXTRA));
                // The end of a text may be a separate part because of its signature. It stays in
                // the same message.
                if let Some(signature) = &part.signature {
                    self.close();
                    self.write_signature_item(SignaturePlace::Previous.write(signature));
                }
                continue;
            }
            let outcome = parts.next_if(|next| {
                matches!(
                    (&part.kind, &next.kind),
                    (PartKind::CodeExecution(_), PartKind::CodeResult(_))
                )
            });
            if let Some(outcome) = outcome {
                note_foreign_fields(&outcome.extras, ORIGIN, "part", self.losses);
            }
            // The signature of a part that cannot be written is dropped with it.
            if let Some(item) = self.own_item(part, outcome) {
                self.close();
                self.write_signature(part);
                self.items.push(item);
                if let Some(signature) = outcome.and_then(|outcome| outcome.signature.as_ref()) {
                    self.write_signature_item(SignaturePlace::Previous.write(signature));
                }
            }
        }
    }

    /// Writes an item that only carries a signature.
    fn write_signature_item(&mut self, token: String) {
        let id = self.ids.next("signature");
        self.items.push(signatures::signature_item(token, Some(id)).into());
    }

    /// Writes the signature of a part that is not a thought, right before the item of that part.
    fn write_signature(&mut self, part: &Part) {
        if let Some(signature) = &part.signature
            && !matches!(part.kind, PartKind::Thought(_))
        {
            let token = if let PartKind::ToolCall(call) = &part.kind {
                SignaturePlace::Call(call.id.clone()).write(signature)
            } else {
                SignaturePlace::Next.write(signature)
            };
            self.write_signature_item(token);
        }
    }

    /// Writes a message part. `None` for parts that are items of their own.
    fn message_part(&mut self, part: &Part) -> Option<Value> {
        match &part.kind {
            PartKind::Text { text, citations } => {
                let chances = write_output::logprobs(&std::mem::take(&mut self.logprobs), false);
                Some(write_output::text_part(text, citations, Some(chances), self.losses))
            }
            PartKind::Refusal(text) => Some(write_output::refusal_part(text)),
            PartKind::Foreign { origin, value }
                if *origin == ORIGIN && part.extras.get(ORIGIN, NESTED_PART_EXTRA).is_some() =>
            {
                Some(value.clone())
            }
            PartKind::Media(_)
            | PartKind::Thought(_)
            | PartKind::ToolCall(_)
            | PartKind::ToolResult(_)
            | PartKind::CodeExecution(_)
            | PartKind::CodeResult(_)
            | PartKind::WebSearch(_)
            | PartKind::Foreign { .. } => None,
        }
    }

    fn own_item(&mut self, part: &Part, outcome: Option<&Part>) -> Option<Value> {
        Some(match &part.kind {
            PartKind::Thought(thought) => {
                let id = self.ids.next("rs");
                signatures::write(part, thought, Some(id)).into()
            }
            PartKind::ToolCall(call) => self.call(part, call),
            PartKind::CodeExecution(code) => {
                let has_container = part.extras.get(ORIGIN, "container_id").is_some();
                let id = (!has_container).then(|| self.ids.next("ci"));
                write_output::code_item(Some((part, code)), outcome, id, Some(self.ids.container()))
                    .into()
            }
            PartKind::CodeResult(_) => {
                let id = self.ids.next("ci");
                write_output::code_item(None, Some(part), Some(id), Some(self.ids.container()))
                    .into()
            }
            PartKind::WebSearch(search) => {
                let id = search.id.clone().filter(|id| write_output::is_own_search(id));
                let id = id.unwrap_or_else(|| self.ids.next("ws"));
                write_output::reply_search_item(part, search, id)
            }
            PartKind::Media(media) => {
                let id = self.ids.next("ig");
                match write_output::image_item(part, media, Some(id)) {
                    Some(item) => item.into(),
                    None => {
                        self.losses
                            .add("reply.media", "the responses format has no field for this media");
                        return None;
                    }
                }
            }
            PartKind::Foreign { origin, value } if *origin == ORIGIN => value.clone(),
            PartKind::ToolResult(_) | PartKind::Foreign { .. } => {
                self.losses.add("reply.part", "a part only the provider's format has");
                return None;
            }
            PartKind::Text { .. } | PartKind::Refusal(_) => return None,
        })
    }

    fn call(&mut self, part: &Part, call: &ToolCall) -> Value {
        let kept = part.extras.get(ORIGIN, NAMESPACE_FIELD).and_then(Value::as_str);
        let mut call = DeclaredCall::new(call, &self.names);
        if let (Some(space), None) = (kept, &call.namespace) {
            call.name = tool_names::bare_name(space, &call.name).to_owned();
        }
        let id = self.ids.next(call.prefix());
        // SDKs parse the arguments, and an empty string is not valid JSON.
        let none = call.arguments.is_empty() && !call.custom;
        let arguments = if none { "{}" } else { call.arguments.as_str() };
        let item = call.item(&id, arguments, "completed");
        let Value::Object(mut fields) = item else { return item };
        for (name, value) in part.extras.for_format(ORIGIN).into_iter().flatten() {
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
        let message = message_item(&id, parts);
        self.items.push(
            message.with_extras(&canon::ExtraFields::from_fields(ORIGIN, kept), ORIGIN).into(),
        );
    }

    fn finish(mut self) -> Vec<Value> {
        self.close();
        let left = !self.logprobs.is_empty();
        self.losses.add_if(left, "reply.logprobs", write_output::NO_REFUSAL_LOGPROBS);
        self.items
    }
}
