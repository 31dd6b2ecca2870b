//! Reads items and their parts into canon, as found in requests and responses.

use canon::{
    Citation, CodeExecution, CodeResult, ExtraFields, Logprob, Media, MediaKind, MediaSource, Part,
    PartKind, Role, Signature, Tool, ToolCall, ToolResult, Turn, WebSearch,
};
use serde_json::Value;
use std::collections::HashSet;

use super::content::{
    ResponsesAnnotation, ResponsesCall, ResponsesCodeItem, ResponsesFilePart, ResponsesImageItem,
    ResponsesItem, ResponsesMessage, ResponsesPart, ResponsesParts, ResponsesResult,
    ResponsesSearchAction, ResponsesSearchItem,
};
use super::names::{
    CUSTOM_RESULT_EXTRA, MESSAGE_EXTRA, NAMESPACE_FIELD, NESTED_PART_EXTRA, ORIGIN, OWN_AUDIO_EXTRA,
};
use super::objects;
use super::own::{client_tools, tool_names};
use super::read_tools;
use super::signatures::{self, ContentAuthor, SignaturePlace};
use crate::fields::ObjectWriter;
use crate::json;
use crate::openai_values::{
    read_audio, read_cache_mark, read_detail, read_file_data, read_logprobs, read_url,
};
use crate::text::{BorrowedText, owned};
use crate::wire_object::{UnknownFields, raw_value};
use crate::wire_value::{LooseValue, PlacedValue};

/// Content of one item.
#[derive(Debug, PartialEq)]
pub(super) enum ItemContent {
    /// A message of the user, system or developer.
    Turn(Turn),
    /// A message of the assistant.
    AssistantMessage(Vec<Part>),
    /// Another item the model produced.
    ModelItem(Vec<Part>),
    /// An item from the caller's side, such as a tool result.
    CallerItem(Part),
    /// Signature of another item.
    Signature(SignaturePlace, Signature),
}

impl ItemContent {
    /// Returns the parts of a response's item.
    pub(super) fn into_parts(self) -> Vec<Part> {
        match self {
            Self::AssistantMessage(parts) | Self::ModelItem(parts) => parts,
            Self::CallerItem(part) => vec![part],
            Self::Turn(turn) => turn.parts,
            // Envelopes are not opened in a provider's response.
            Self::Signature(..) => Vec::new(),
        }
    }
}

/// Reads items, and collects the log probabilities they contain.
#[derive(Debug)]
pub(super) struct ItemReader {
    /// Sender of the items.
    sender: ContentAuthor,
    /// Log probabilities of a response.
    pub(super) logprobs: Vec<Logprob>,
    /// Tools that a search of the caller has found.
    pub(super) found_tools: Vec<Tool>,
    /// Calls that the provider has run, whose results it has too.
    provider_calls: HashSet<String>,
}

impl ItemReader {
    /// Creates a reader for items of that sender.
    pub(super) fn new(sender: ContentAuthor) -> Self {
        let (found_tools, provider_calls) = (Vec::new(), HashSet::new());
        Self { sender, logprobs: Vec::new(), found_tools, provider_calls }
    }

    /// Reads one item.
    pub(super) fn read(&mut self, item: ResponsesItem<'_>) -> ItemContent {
        match item {
            ResponsesItem::Message(message) => self.read_message(message),
            ResponsesItem::Reasoning(item) => signatures::read(item, self.sender),
            ResponsesItem::FunctionCall(call) => model_item(read_call(call, false)),
            ResponsesItem::CustomCall(call) => model_item(read_call(call, true)),
            ResponsesItem::FunctionResult(result) => self.read_result(result, false),
            ResponsesItem::CustomResult(result) => self.read_result(result, true),
            ResponsesItem::Search(item) => model_item(read_search(item)),
            ResponsesItem::Code(item) => ItemContent::ModelItem(read_code(item)),
            ResponsesItem::Image(item) => model_item(read_image(item)),
            ResponsesItem::Reference(item) => model_item(foreign("item_reference", &item.rest)),
            ResponsesItem::AddedTools(item) => model_item(foreign("additional_tools", &item.rest)),
            ResponsesItem::Unknown(fields) => {
                let kind = fields.text("type").unwrap_or_default();
                let part = foreign(&kind, &fields);
                let is_result = is_caller_item(&kind);
                let part = match self.sender {
                    ContentAuthor::Caller => self.read_client_item(part, is_result),
                    ContentAuthor::Provider => part,
                };
                if is_result { ItemContent::CallerItem(part) } else { model_item(part) }
            }
        }
    }

    /// Reads a call of a tool that the caller runs, or its result. Any other item stays as it is.
    fn read_client_item(&mut self, part: Part, is_result: bool) -> Part {
        let PartKind::Foreign { value, .. } = &part.kind else { return part };
        let call_id = value.get("call_id").and_then(Value::as_str);
        if !is_result {
            let call = client_tools::read_call(value);
            match (&call, call_id) {
                (None, Some(id)) => {
                    self.provider_calls.insert(id.to_owned());
                }
                (Some(_), Some(id)) => {
                    self.provider_calls.remove(id);
                }
                (_, None) => {}
            }
            return call.unwrap_or(part);
        }
        if call_id.is_some_and(|id| self.provider_calls.contains(id)) {
            return part;
        }
        let Some(result) = client_tools::read_result(value) else { return part };
        if let Some(Value::Array(tools)) = value.get("tools") {
            self.found_tools.extend(read_tools::read_found(tools));
        }
        result
    }

    fn read_message(&mut self, message: ResponsesMessage<'_>) -> ItemContent {
        let mut parts = self.read_parts(message.content);
        let extras = item_extras(message.rest);
        let role = match message.role.as_deref() {
            Some("assistant") => {
                // Each part has the fields of its message.
                if let Some(fields) = extras.for_format(ORIGIN) {
                    for part in &mut parts {
                        part.extras.insert(ORIGIN, MESSAGE_EXTRA, Value::Object(fields.clone()));
                    }
                }
                return ItemContent::AssistantMessage(parts);
            }
            Some("system") => Role::System,
            Some("developer") => Role::Developer,
            _ => Role::User,
        };
        ItemContent::Turn(Turn { role, parts, name: None, extras })
    }

    /// Reads a text or a list of parts.
    fn read_parts(&mut self, content: Option<ResponsesParts<'_>>) -> Vec<Part> {
        let parts = content.map(|all| all.into_list(Part::text, |part| self.read_part(part)));
        parts.unwrap_or_default()
    }

    fn read_part(&mut self, part: ResponsesPart<'_>) -> Part {
        let nested = |mut part: Part| {
            part.extras.insert(ORIGIN, NESTED_PART_EXTRA, Value::Bool(true));
            part
        };
        let (mut logprobs, mut own_audio) = (None, None);
        let (kind, mut rest) = match part {
            ResponsesPart::InputText(part) => {
                let text = owned(part.text);
                (PartKind::Text { text, citations: Vec::new() }, part.rest)
            }
            ResponsesPart::OutputText(part) => {
                let text = owned(part.text);
                let citations = part.annotations.into_iter().flatten().map(read_citation).collect();
                logprobs = part.logprobs.map(raw_value);
                (PartKind::Text { text, citations }, part.rest)
            }
            ResponsesPart::Refusal(part) => {
                let text = owned(part.refusal);
                (PartKind::Refusal(text), part.rest)
            }
            ResponsesPart::Image(part) => {
                let source = match (part.image_url, part.file_id) {
                    (None, Some(id)) => MediaSource::File { origin: ORIGIN, id: id.into_owned() },
                    (url, _) => read_url(&url.unwrap_or_default()),
                };
                let detail = part.detail.as_deref().and_then(read_detail);
                let media = Media { detail, ..Media::new(MediaKind::Image, source) };
                (PartKind::Media(media), part.rest)
            }
            ResponsesPart::File(mut part) => (PartKind::Media(read_file(&mut part)), part.rest),
            ResponsesPart::Audio(part) => {
                let (media, rest) = read_audio(part.input_audio.unwrap_or_default());
                own_audio = Some(rest.to_value());
                (PartKind::Media(media), part.rest)
            }
            ResponsesPart::Unknown(fields) => return nested(foreign("", &fields)),
        };
        let cache_breakpoint = read_cache_mark(&mut rest);
        let mut extras = rest.to_extras(ORIGIN);
        extras.insert_some(ORIGIN, OWN_AUDIO_EXTRA, own_audio);
        match (self.sender, logprobs) {
            (ContentAuthor::Provider, Some(list)) => self.logprobs.extend(read_logprobs(&list)),
            (ContentAuthor::Caller, Some(Value::Array(list))) if !list.is_empty() => {
                extras.insert(ORIGIN, "logprobs", Value::Array(list));
            }
            (ContentAuthor::Caller | ContentAuthor::Provider, _) => {}
        }
        Part { kind, signature: None, cache_breakpoint, extras }
    }

    fn read_result(&mut self, result: ResponsesResult<'_>, custom: bool) -> ItemContent {
        let call_id = owned(result.call_id);
        let parts = self.read_parts(result.output);
        let mut extras = item_extras(result.rest);
        extras.insert_some(ORIGIN, CUSTOM_RESULT_EXTRA, custom.then_some(Value::Bool(true)));
        let result = ToolResult { call_id, name: None, parts, object: None, is_error: false };
        ItemContent::CallerItem(Part::new(PartKind::ToolResult(result)).with_extras(extras))
    }
}

fn model_item(part: Part) -> ItemContent {
    ItemContent::ModelItem(vec![part])
}

/// Returns an object of this format as it was sent. The type of a described object is not among its
/// fields.
fn foreign(kind: &str, fields: &UnknownFields<'_>) -> Part {
    let value = ObjectWriter::typed(kind);
    let value = match fields.get("type") {
        Some(_) => fields.to_value(),
        None => value.with_object(Some(&fields.to_value())).into(),
    };
    Part::new(PartKind::Foreign { origin: ORIGIN, value })
}

/// Returns true if an item of an unknown type comes from the caller's side.
fn is_caller_item(kind: &str) -> bool {
    (kind.ends_with("_output") && kind != "program_output")
        || matches!(kind, "mcp_approval_response" | "compaction_trigger" | "configuration_update")
}

/// Returns the unread fields of an item, without `id` and the usual `status`. The service accepts
/// items without an id, and the finish reason covers the status.
fn item_extras(mut rest: UnknownFields<'_>) -> ExtraFields {
    rest.take("id");
    // A caller must not send an item that only this note holds: nothing has checked it.
    rest.take(client_tools::ITEM_EXTRA);
    if let Some("completed" | "in_progress" | "incomplete") = rest.text("status").as_deref() {
        rest.take("status");
    }
    rest.to_extras(ORIGIN)
}

fn read_file(part: &mut ResponsesFilePart<'_>) -> Media {
    let source = match (part.file_data.take(), part.file_url.take(), part.file_id.take()) {
        (Some(data), _, _) => read_file_data(&data),
        (None, None, Some(id)) => MediaSource::File { origin: ORIGIN, id: id.into_owned() },
        (None, url, _) => read_url(&url.unwrap_or_default()),
    };
    let kind = match &source {
        MediaSource::Inline { mime, .. } => match MediaKind::from_mime(mime) {
            // An image sent as a file stays a file: the service processes files differently.
            MediaKind::Image | MediaKind::Document => MediaKind::Document,
            other => other,
        },
        MediaSource::Url { .. } | MediaSource::File { .. } | MediaSource::Text(_) => {
            MediaKind::Document
        }
    };
    let detail = part.detail.as_deref().and_then(read_detail);
    let name = part.filename.take().map(BorrowedText::into_owned);
    Media { name, detail, ..Media::new(kind, source) }
}

fn read_call(call: ResponsesCall<'_>, custom: bool) -> Part {
    let id = call.call_id.map(BorrowedText::into_owned);
    let id = id.or_else(|| call.rest.text("id").map(Into::into)).unwrap_or_default();
    let extras = item_extras(call.rest);
    let space = extras.get(ORIGIN, NAMESPACE_FIELD).and_then(Value::as_str);
    let name = tool_names::flat_name(space, &call.name.unwrap_or_default());
    let arguments = if custom { call.input } else { call.arguments };
    let arguments = arguments.map(|given| given.value.0.into_owned()).unwrap_or_default();
    Part::new(PartKind::ToolCall(ToolCall { id, name, arguments, custom })).with_extras(extras)
}

/// Reads a search. Its `action` stays in the extras as well: canon has no fields for opened pages
/// and search patterns.
fn read_search(item: ResponsesSearchItem<'_>) -> Part {
    let id = item.rest.text("id").map(Into::into);
    let action = item.action.and_then(|LooseValue(action)| action).unwrap_or_default();
    let ResponsesSearchAction { query, queries, sources, rest: _ } = action;
    let queries = queries.filter(|queries| !queries.is_empty());
    let queries = queries.unwrap_or_else(|| query.into_iter().collect());
    let urls = sources.into_iter().flatten().filter_map(|source| source.url);
    let search = WebSearch {
        id,
        queries: queries.into_iter().map(BorrowedText::into_owned).collect(),
        results: urls.map(|url| (url.into_owned(), String::new())).collect(),
    };
    Part::new(PartKind::WebSearch(search)).with_extras(item_extras(item.rest))
}

fn read_code(mut item: ResponsesCodeItem<'_>) -> Vec<Part> {
    if objects::names_own_container(&item) {
        item.rest.take("container_id");
    }
    let id: Option<String> = item.rest.text("id").map(Into::into);
    let code = owned(item.code);
    let extras = item_extras(item.rest);
    let is_error = extras.get(ORIGIN, "status").and_then(Value::as_str) == Some("failed");
    let code = CodeExecution { id: id.clone(), language: "python".to_owned(), code };
    let mut parts = vec![Part::new(PartKind::CodeExecution(code)).with_extras(extras)];
    if let Some(PlacedValue { raw, value: outputs }) = item.outputs {
        let logs = outputs.iter().filter_map(|output| output.logs.as_ref()?.0.as_deref());
        let output = logs.collect::<Vec<_>>().join("\n");
        let mut part = Part::new(PartKind::CodeResult(CodeResult { id, output, is_error }));
        part.extras.insert(ORIGIN, "outputs", raw_value(raw));
        parts.push(part);
    }
    parts
}

fn read_image(item: ResponsesImageItem<'_>) -> Part {
    let ResponsesImageItem { result, mut rest } = item;
    let data = result.and_then(|raw| json::read::<BorrowedText<'_>>(raw.get()).ok());
    let Some(data) = data else {
        if let Some(result) = result {
            rest.push("result".into(), result);
        }
        return foreign("image_generation_call", &rest);
    };
    let format = rest.text("output_format");
    rest.take("output_format");
    let mime = format!("image/{}", format.as_deref().unwrap_or("png"));
    let source = match data.starts_with("data:") {
        true => read_url(&data),
        false => MediaSource::Inline { mime, data: data.into_owned() },
    };
    // The service recognises its own generated images by their id.
    let id = rest.take("id").map(raw_value);
    let media = Media::new(MediaKind::Image, source);
    let mut part = Part::new(PartKind::Media(media)).with_extras(item_extras(rest));
    part.extras.insert_some(ORIGIN, "id", id);
    part
}

/// Reads an annotation. One other than a URL citation is kept as extras.
pub(super) fn read_citation(annotation: ResponsesAnnotation<'_>) -> Citation {
    match annotation {
        ResponsesAnnotation::Url(url) => {
            let at = |index: Option<LooseValue<usize>>| index.and_then(|LooseValue(at)| at);
            Citation {
                url: url.url.map(BorrowedText::into_owned),
                title: url.title.map(BorrowedText::into_owned),
                quote: None,
                span: at(url.start_index).zip(at(url.end_index)),
                extras: url.rest.to_extras(ORIGIN),
            }
        }
        ResponsesAnnotation::Unknown(fields) => {
            Citation { extras: fields.to_extras(ORIGIN), ..Citation::default() }
        }
    }
}
