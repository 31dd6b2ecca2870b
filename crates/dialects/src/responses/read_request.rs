//! Reads a responses request into canon.

use canon::{
    ChatRequest, EffortLevel, ExtraFields, JsonSchema, Part, PartKind, ResponseFormat, Role,
    Signature, ThinkingOptions, Tool, Turn,
};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet, VecDeque};

use super::content::{ResponsesAddedTools, ResponsesItem};
use super::names::{
    CUSTOM_RESULT_EXTRA, INCLUDE_ENCRYPTED_REASONING, INCLUDE_LOGPROBS, MESSAGE_EXTRA,
    NAMESPACE_FIELD, ORIGIN, SUMMARIES,
};
use super::own::client_tools;
use super::own::tool_names::ToolNames;
use super::read_content::{ItemContent, ItemReader};
use super::read_tools::{self, ToolPlace};
use super::request::{ResponsesFormat, ResponsesReasoning, ResponsesRequestView};
use super::signatures::{ContentAuthor, SignaturePlace};
use crate::client_tools::separate_names;
use crate::fields::ObjectWriter;
use crate::service_tier::read_request_tier;
use crate::text::{BorrowedText, by_word};
use crate::wire_object::raw_value;
use crate::wire_value::{OpaqueObject, TextOrList, TextOrObject};

/// Reads a request.
pub(super) fn read(view: Box<ResponsesRequestView<'_>>) -> Box<ChatRequest> {
    let mut chat = Box::<ChatRequest>::default();
    view.read_options(&mut chat);
    let mut builder = TurnBuilder::default();
    builder.push_text(Role::System, view.instructions);
    let tools = view.tools.map(|list| list.0).unwrap_or_default();
    read_tools::read(tools, &ToolPlace::default(), &mut builder.tools);
    match view.input {
        None => {}
        Some(TextOrList::Text(text)) => builder.push_text(Role::User, Some(text)),
        Some(TextOrList::List(items)) => builder.read(items),
    }
    (chat.turns, chat.tools) = builder.finish();
    chat.model = view.model.map(|model| model.value.into_owned()).unwrap_or_default();
    chat.extras = view.rest.to_extras(ORIGIN);
    if let Some(choice) = &view.tool_choice {
        let (mode, is_whole) = read_tools::read_choice(choice, &chat.tools);
        chat.tool_choice.mode = mode;
        let kept = (!is_whole).then(|| raw_value(choice.raw));
        chat.extras.insert_some(ORIGIN, "tool_choice", kept);
    }
    let mut include = view.include.map(|list| list.0).unwrap_or_default();
    let top = view.top_logprobs.unwrap_or(0);
    let wants_logprobs = top > 0 || include.iter().any(|word| &**word == INCLUDE_LOGPROBS);
    chat.sampling.logprobs = wants_logprobs.then(|| u32::try_from(top).unwrap_or(0));
    chat.sampling.max_output_tokens = view.max_output_tokens.map(|limit| limit.value);
    include.retain(|word| !matches!(&**word, INCLUDE_LOGPROBS | INCLUDE_ENCRYPTED_REASONING));
    let words = || include.iter().map(|word| Value::from(&**word)).collect();
    chat.extras.insert_some(ORIGIN, "include", (!include.is_empty()).then(words));
    if let Some(reasoning) = view.reasoning {
        let ResponsesReasoning { effort, summary, generate_summary, rest } = reasoning;
        chat.thinking = ThinkingOptions {
            level: effort.as_deref().and_then(EffortLevel::parse),
            display: by_word(&SUMMARIES, &summary.or(generate_summary).unwrap_or_default()),
            ..ThinkingOptions::default()
        };
        rest.keep_in(&mut chat.extras, ORIGIN, "reasoning");
    }
    if let Some(text) = view.text {
        text.read_options(&mut chat);
        chat.response_format = text.format.map_or(ResponseFormat::Text, read_format);
        text.rest.keep_in(&mut chat.extras, ORIGIN, "text");
    }
    chat.state.previous_response = view.previous_response_id.map(BorrowedText::into_owned);
    let conversation = view.conversation.and_then(|name| match name {
        TextOrObject::Text(id) => Some(id),
        TextOrObject::Object(object) => object.id,
    });
    chat.state.conversation = conversation.map(BorrowedText::into_owned);
    chat.state.background = view.background;
    chat.hints.user = view.safety_identifier.or(view.user).map(BorrowedText::into_owned);
    chat.hints.metadata = view.metadata.map(OpaqueObject::to_map).unwrap_or_default();
    chat.hints.service_tier = view.service_tier.map(|word| read_request_tier(ORIGIN, &word));
    chat
}

fn read_format(format: ResponsesFormat<'_>) -> ResponseFormat {
    match format.kind.as_deref() {
        Some("json_object") => ResponseFormat::Json,
        Some("json_schema") => ResponseFormat::Schema {
            name: format.name.map(BorrowedText::into_owned),
            description: format.description.map(BorrowedText::into_owned),
            strict: format.strict,
            schema: JsonSchema::new(
                format.schema.map_or_else(|| Map::new().into(), OpaqueObject::to_value),
            ),
        },
        _ => ResponseFormat::Text,
    }
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
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum LastItem {
    #[default]
    Break,
    /// A message of the assistant, and true if it has fields that distinguish it from another one.
    AssistantMessage(bool),
    ModelItem,
    CallerItem,
}

impl TurnBuilder {
    fn push_text(&mut self, role: Role, text: Option<BorrowedText<'_>>) {
        self.turns.extend(text.map(|text| Turn::new(role, vec![Part::text(text.into_owned())])));
    }

    fn read(&mut self, list: Vec<ResponsesItem<'_>>) {
        let mut items = ItemReader::new(ContentAuthor::Caller);
        for item in list {
            match item {
                ResponsesItem::AddedTools(item) => self.add_tools(item),
                item => self.add(items.read(item)),
            }
            self.tools.append(&mut items.found_tools);
        }
    }

    /// Reads tools declared inside the conversation. They keep their position in the extras.
    fn add_tools(&mut self, item: ResponsesAddedTools<'_>) {
        let ResponsesAddedTools { tools, mut rest } = item;
        rest.take("tools");
        let mark = ObjectWriter::new().set("turn", self.turns.len()).set("item", rest.to_map());
        let place = ToolPlace::added(mark.into());
        read_tools::read(tools.map(|list| list.0).unwrap_or_default(), &place, &mut self.tools);
        self.last = LastItem::Break;
    }

    fn add(&mut self, item: ItemContent) {
        match item {
            ItemContent::Turn(turn) => {
                self.turns.push(turn);
                self.last = LastItem::Break;
            }
            ItemContent::AssistantMessage(parts) => {
                let named =
                    parts.iter().any(|part| part.extras.get(ORIGIN, MESSAGE_EXTRA).is_some());
                // Two adjacent messages without distinguishing fields would be merged on the way
                // back.
                let fresh = match self.last {
                    LastItem::Break | LastItem::CallerItem => true,
                    LastItem::AssistantMessage(before) => !named && !before,
                    LastItem::ModelItem => false,
                };
                self.extend(Role::Assistant, fresh, parts);
                self.last = LastItem::AssistantMessage(named);
            }
            ItemContent::ModelItem(parts) => self.extend_model(parts),
            ItemContent::CallerItem(part) => {
                let fresh = self.last != LastItem::CallerItem;
                self.extend(Role::User, fresh, vec![part]);
                self.last = LastItem::CallerItem;
            }
            ItemContent::Signature(place, signature) => match place {
                SignaturePlace::Call(id) => {
                    self.call_signatures.entry(id).or_default().push_back(signature);
                }
                SignaturePlace::Previous => self.sign_previous(signature, false),
                SignaturePlace::Code => self.sign_previous(signature, true),
            },
        }
    }

    /// Signs the code of the previous item, or its last part that is no thought.
    fn sign_previous(&mut self, signature: Signature, is_code: bool) {
        let is_it = |part: &&mut Part| match is_code {
            true => matches!(part.kind, PartKind::CodeExecution(_)),
            false => !matches!(part.kind, PartKind::Thought(_)),
        };
        let before = match self.last {
            LastItem::AssistantMessage(_) | LastItem::ModelItem => self.turns.last_mut(),
            LastItem::Break | LastItem::CallerItem => None,
        };
        match before.and_then(|turn| turn.parts.iter_mut().rev().find(is_it)) {
            Some(part) if part.signature.is_none() => part.signature = Some(signature),
            // Its part is missing.
            _ => self.extend_model(vec![Part::text("").with_signature(Some(signature))]),
        }
    }

    fn extend_model(&mut self, parts: Vec<Part>) {
        let fresh = matches!(self.last, LastItem::Break | LastItem::CallerItem);
        self.extend(Role::Assistant, fresh, parts);
        self.last = LastItem::ModelItem;
    }

    fn extend(&mut self, role: Role, fresh: bool, parts: Vec<Part>) {
        match self.turns.last_mut() {
            Some(turn) if !fresh => turn.parts.extend(parts),
            _ => self.turns.push(Turn::new(role, parts)),
        }
    }

    fn finish(mut self) -> (Vec<Turn>, Vec<Tool>) {
        let is_client = |part: &Part| client_tools::own_item(&part.extras).is_some();
        separate_names(&mut self.tools, &mut self.turns, is_client);
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
