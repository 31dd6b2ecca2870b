//! Reads a responses request into canon.

use canon::{
    ApiError, ChatRequest, ConversationState, ExtraFields, JsonSchema, Part, PartKind,
    RequestHints, ResponseFormat, Role, SamplingOptions, Signature, ThinkingOptions, Tool,
    ToolChoice, Turn,
};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet, VecDeque};

use super::names::{
    CUSTOM_RESULT_EXTRA, INCLUDE_ENCRYPTED_REASONING, INCLUDE_LOGPROBS, MESSAGE_EXTRA,
    NAMESPACE_FIELD, ORIGIN,
};
use super::read_items::{ItemReader, ResponseItem};
use super::signatures::ItemSender;
use super::tool_names::ToolNames;
use super::{read_tools, wire};
use crate::fields::{JsonPath, ObjectReader};
use crate::json;
use crate::json_tree::JsonTree;

/// Reads a request. `rules` has checked it before; this reader only checks types.
pub(super) fn read(body: &[u8]) -> Result<ChatRequest, ApiError> {
    let text = json::checked_text(body)?;
    let value: JsonTree<'_> = serde_json::from_str(text)
        .map_err(|e| ApiError::invalid("", format!("the body is not valid JSON: {e}")))?;
    let mut fields = ObjectReader::new(value, &JsonPath::Root)?;

    let model = fields.required("model")?;
    let mut builder = TurnBuilder::default();
    if let Some(text) = fields.string("instructions")? {
        builder.turns.push(Turn::new(Role::System, vec![Part::text(text)]));
    }
    read_tools::read(
        fields.list("tools")?.unwrap_or_default(),
        &JsonPath::Root.key("tools"),
        None,
        &mut builder.tools,
    )?;
    match fields.take("input") {
        None => {}
        Some(Value::String(text)) => {
            builder.turns.push(Turn::new(Role::User, vec![Part::text(text)]));
        }
        Some(Value::Array(list)) => builder.read(list)?,
        Some(_) => return Err(fields.fault("input", "must be a string or a list of items")),
    }
    let (turns, tools) = builder.finish();

    let parallel = fields.flag("parallel_tool_calls")?;
    let given = fields.take("tool_choice");
    let (choice, whole) =
        given.as_ref().map_or((canon::ToolChoiceMode::Unset, true), read_tools::choice);
    let mut include = fields.strings("include")?.unwrap_or_default();
    let sampling = sampling(&mut fields, include.iter().any(|word| word == INCLUDE_LOGPROBS))?;
    include.retain(|word| word != INCLUDE_LOGPROBS && word != INCLUDE_ENCRYPTED_REASONING);
    let reasoning = fields.object("reasoning")?.unwrap_or_default();
    let (thinking, reasoning) = thinking(reasoning)?;
    let shape = fields.object("text")?.unwrap_or_default();
    let (format, verbosity, shape) = text_config(shape)?;
    let state = ConversationState {
        store: fields.flag("store")?,
        previous_response: fields.string("previous_response_id")?,
        background: fields.flag("background")?,
    };
    let user = match fields.string("safety_identifier")? {
        Some(user) => Some(user),
        None => fields.string("user")?,
    };
    let hints = RequestHints {
        user,
        metadata: fields.object("metadata")?.unwrap_or_default(),
        service_tier: fields.string("service_tier")?.as_deref().map(wire::read_tier),
        cache_key: fields.string("prompt_cache_key")?,
        verbosity,
    };
    let stream = fields.flag("stream")?.unwrap_or(false);
    let mut extras = fields.extras(ORIGIN);
    for (name, rest) in [("reasoning", reasoning), ("text", shape)] {
        if !rest.is_empty() {
            extras.insert(ORIGIN, name, Value::Object(rest));
        }
    }
    if !include.is_empty() {
        extras.insert(ORIGIN, "include", Value::from(include));
    }
    if let Some(given) = given.filter(|_| !whole) {
        extras.insert(ORIGIN, "tool_choice", given);
    }
    Ok(ChatRequest {
        model,
        turns,
        tools,
        tool_choice: ToolChoice { mode: choice, parallel },
        sampling,
        thinking,
        response_format: format,
        modalities: Vec::new(),
        image_shape: canon::ImageShape::default(),
        stream,
        state,
        hints,
        extras,
    })
}

fn sampling(fields: &mut ObjectReader<'_>, included: bool) -> Result<SamplingOptions, ApiError> {
    let top = fields.count("top_logprobs")?.unwrap_or(0);
    let logprobs = (included || top > 0).then(|| u32::try_from(top).unwrap_or(0));
    Ok(SamplingOptions {
        temperature: fields.number("temperature")?,
        top_p: fields.number("top_p")?,
        max_output_tokens: fields.count("max_output_tokens")?,
        logprobs,
        ..SamplingOptions::default()
    })
}

fn thinking(
    reasoning: Map<String, Value>,
) -> Result<(ThinkingOptions, Map<String, Value>), ApiError> {
    let path = JsonPath::Root.key("reasoning");
    let mut fields = ObjectReader::of(reasoning, &path);
    let level = fields.string("effort")?.as_deref().and_then(canon::EffortLevel::parse);
    let show = fields.string("summary")?;
    let show = match show {
        Some(show) => Some(show),
        None => fields.string("generate_summary")?,
    };
    let show = show.as_deref().and_then(wire::read_show);
    Ok((ThinkingOptions { level, display: show, ..ThinkingOptions::default() }, fields.remaining()))
}

type TextConfig = (ResponseFormat, Option<String>, Map<String, Value>);

fn text_config(text: Map<String, Value>) -> Result<TextConfig, ApiError> {
    let path = JsonPath::Root.key("text");
    let mut fields = ObjectReader::of(text, &path);
    let verbosity = fields.string("verbosity")?;
    let original = fields.object("format")?.unwrap_or_default();
    let at = path.key("format");
    let mut shape = ObjectReader::of(original.clone(), &at);
    let mut unknown = None;
    let format = match shape.string("type")?.as_deref() {
        Some("json_object") => ResponseFormat::Json,
        Some("json_schema") => ResponseFormat::Schema {
            name: shape.string("name")?,
            description: shape.string("description")?,
            strict: shape.flag("strict")?,
            schema: JsonSchema::new(shape.take("schema").unwrap_or_else(|| Map::new().into())),
        },
        Some("text") | None => ResponseFormat::Text,
        Some(_) => {
            unknown = Some(original);
            ResponseFormat::Text
        }
    };
    let mut rest = fields.remaining();
    if let Some(shape) = unknown {
        rest.insert("format".to_owned(), Value::Object(shape));
    }
    Ok((format, verbosity, rest))
}

/// Groups items into turns. Consecutive items of the model are one turn, and so are the results
/// that follow.
#[derive(Default)]
struct TurnBuilder {
    turns: Vec<Turn>,
    tools: Vec<Tool>,
    /// Kind of the last item, which decides where a turn ends.
    last: LastItem,
    call_signatures: HashMap<String, VecDeque<Signature>>,
    next_signature: Option<Signature>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum LastItem {
    #[default]
    Break,
    /// A message of the assistant. `named` is true if it has fields that distinguish it from
    /// another one.
    AssistantMessage {
        named: bool,
    },
    ModelItem,
    CallerItem,
}

impl TurnBuilder {
    fn read(&mut self, list: Vec<Value>) -> Result<(), ApiError> {
        let root = JsonPath::Root.key("input");
        let mut items = ItemReader::new(ItemSender::Caller);
        for (at, value) in list.into_iter().enumerate() {
            let path = root.item(at);
            if value.get("type").and_then(Value::as_str) == Some("additional_tools") {
                self.add_tools(value, &path)?;
                continue;
            }
            let item = items.read(value, &path)?;
            self.add(item);
        }
        Ok(())
    }

    /// Reads tools declared inside the conversation. They keep their position in the extras.
    fn add_tools(&mut self, value: Value, path: &JsonPath<'_>) -> Result<(), ApiError> {
        let mut fields = ObjectReader::new(value, path)?;
        let list = fields.list("tools")?.unwrap_or_default();
        fields.take("type");
        let mut mark = Map::new();
        mark.insert("turn".to_owned(), Value::from(self.turns.len()));
        mark.insert("item".to_owned(), Value::Object(fields.remaining()));
        read_tools::read(list, &path.key("tools"), Some(&Value::Object(mark)), &mut self.tools)?;
        self.last = LastItem::Break;
        Ok(())
    }

    fn add(&mut self, item: ResponseItem) {
        match item {
            ResponseItem::Turn(turn) => {
                self.turns.push(turn);
                self.last = LastItem::Break;
            }
            ResponseItem::AssistantMessage(mut parts) => {
                let named =
                    parts.iter().any(|part| part.extras.get(ORIGIN, MESSAGE_EXTRA).is_some());
                // Two adjacent messages without distinguishing fields would be merged on the way
                // back.
                let fresh = match self.last {
                    LastItem::Break | LastItem::CallerItem => true,
                    LastItem::AssistantMessage { named: before } => !named && !before,
                    LastItem::ModelItem => false,
                };
                self.sign_next(parts.first_mut());
                self.extend(Role::Assistant, fresh, parts);
                self.last = LastItem::AssistantMessage { named };
            }
            ResponseItem::ModelItem(mut parts) => {
                let fresh = matches!(self.last, LastItem::Break | LastItem::CallerItem);
                let thought =
                    matches!(parts.first(), Some(Part { kind: PartKind::Thought(_), .. }));
                if !thought {
                    self.sign_next(parts.first_mut());
                }
                self.extend(Role::Assistant, fresh, parts);
                self.last = LastItem::ModelItem;
            }
            ResponseItem::CallerItem(part) => {
                let fresh = self.last != LastItem::CallerItem;
                self.extend(Role::User, fresh, vec![part]);
                self.last = LastItem::CallerItem;
            }
            ResponseItem::CallSignature(call, signature) => {
                self.call_signatures.entry(call).or_default().push_back(signature);
            }
            ResponseItem::NextSignature(signature) => {
                self.flush_signature();
                self.next_signature = Some(signature);
            }
            ResponseItem::PreviousSignature(signature) => {
                self.sign_previous(signature, |kind| !matches!(kind, PartKind::Thought(_)));
            }
            ResponseItem::CodeSignature(signature) => {
                self.sign_previous(signature, |kind| matches!(kind, PartKind::CodeExecution(_)))
            }
        }
    }

    fn sign_previous(&mut self, signature: Signature, is_it: impl Fn(&PartKind) -> bool) {
        let before = match self.last {
            LastItem::AssistantMessage { .. } | LastItem::ModelItem => self.turns.last_mut(),
            LastItem::Break | LastItem::CallerItem => None,
        };
        let part =
            before.and_then(|turn| turn.parts.iter_mut().rev().find(|part| is_it(&part.kind)));
        match part {
            Some(part) if part.signature.is_none() => part.signature = Some(signature),
            _ => {
                self.next_signature = Some(signature);
                self.flush_signature();
            }
        }
    }

    fn sign_next(&mut self, part: Option<&mut Part>) {
        if let Some(part) = part
            && part.signature.is_none()
            && let Some(signature) = self.next_signature.take()
        {
            part.signature = Some(signature);
        }
    }

    /// Puts a signature whose part is missing on an empty text part.
    fn flush_signature(&mut self) {
        if let Some(signature) = self.next_signature.take() {
            let fresh = matches!(self.last, LastItem::Break | LastItem::CallerItem);
            self.extend(
                Role::Assistant,
                fresh,
                vec![Part::text("").with_signature(Some(signature))],
            );
            self.last = LastItem::ModelItem;
        }
    }

    fn extend(&mut self, role: Role, fresh: bool, parts: Vec<Part>) {
        match self.turns.last_mut() {
            Some(turn) if !fresh => turn.parts.extend(parts),
            _ => self.turns.push(Turn::new(role, parts)),
        }
    }

    fn finish(mut self) -> (Vec<Turn>, Vec<Tool>) {
        self.flush_signature();
        let names = ToolNames::new(&self.tools);
        let mut custom = HashSet::new();
        for part in self.turns.iter_mut().flat_map(|turn| &mut turn.parts) {
            if let PartKind::ToolCall(call) = &part.kind {
                if part.signature.is_none()
                    && let Some(signatures) = self.call_signatures.get_mut(&call.id)
                {
                    // None is left where two calls share an id and one signature.
                    part.signature = signatures.pop_front();
                }
                if call.custom {
                    custom.insert(call.id.clone());
                }
                // The declaration has the namespace already.
                let space = part.extras.get(ORIGIN, NAMESPACE_FIELD).and_then(Value::as_str);
                if space.is_some() && names.split(&call.name).0 == space {
                    part.extras = without_extra(&part.extras, NAMESPACE_FIELD);
                }
            } else if let PartKind::ToolResult(result) = &part.kind
                && custom.contains(&result.call_id)
            {
                part.extras = without_extra(&part.extras, CUSTOM_RESULT_EXTRA);
            }
        }
        (self.turns, self.tools)
    }
}

fn without_extra(extras: &ExtraFields, name: &str) -> ExtraFields {
    let mut fields = extras.for_format(ORIGIN).cloned().unwrap_or_default();
    fields.shift_remove(name);
    ExtraFields::from_fields(ORIGIN, fields)
}
