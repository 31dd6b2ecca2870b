//! The way back of an error: from the field of the request that a lane refused to the field of the
//! caller's own request, in the caller's notation.
//!
//! A translation merges, splits and moves turns, so an index in the lane's request says nothing
//! about the caller's. Texts, media, ids and names are carried unchanged and in order. The refused
//! value is found again as the same occurrence of the same text. Options are found by the table of
//! fields. This runs only for an error, in one pass over both requests.

use canon::{ApiError, ChatRequest, FunctionTool, MediaSource, Part, PartKind, Tool, WireFormat};
use serde_json::{Map, Value};
use std::borrow::Cow;

use crate::request_option::{RequestOption, described_paths};
use crate::text::to_camel_case;
use crate::wire_object::FieldMeaning;

/// The request that was refused.
#[derive(Clone, Copy, Debug)]
pub enum RefusedRequest<'a> {
    /// The body that was sent to a lane, and its format.
    Body(WireFormat, &'a [u8]),
    /// The parsed request, refused while it was written for a lane.
    Parsed(&'a ChatRequest),
}

/// Returns the error with the paths of the caller's request instead of those of the refused one.
#[must_use]
pub fn with_caller_paths(
    error: ApiError,
    refused: RefusedRequest<'_>,
    caller: WireFormat,
    body: &[u8],
) -> ApiError {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return error.without_param() };
    let caller = RequestTexts::of_body(caller, &body);
    match refused {
        RefusedRequest::Body(format, sent) => {
            let sent = serde_json::from_slice::<Value>(sent).unwrap_or_default();
            PathMap { lane: RequestTexts::of_body(format, &sent), caller }.apply(error)
        }
        RefusedRequest::Parsed(chat) => {
            PathMap { lane: RequestTexts::of_chat(chat), caller }.apply(error)
        }
    }
}

/// The two lists of a request that errors point into.
#[derive(Clone, Copy)]
enum RequestList {
    Conversation,
    Tools,
}

impl RequestList {
    /// Returns the fields that hold the list in a format.
    fn fields(self, format: WireFormat) -> Vec<String> {
        let mut paths = described_paths(crate::request_fields(format));
        paths.retain(|(_, meaning)| match self {
            Self::Conversation => matches!(meaning, FieldMeaning::Conversation),
            Self::Tools => matches!(meaning, FieldMeaning::Tools),
        });
        paths.into_iter().map(|(path, _)| path).collect()
    }

    /// Returns the name of the list in errors about the parsed request.
    const fn parsed_name(self) -> &'static str {
        match self {
            Self::Conversation => "turns",
            Self::Tools => "tools",
        }
    }
}

/// One step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathStep<'a> {
    Key(&'a str),
    Item(usize),
}

/// A text of a request and its path.
#[derive(Debug)]
struct TextLeaf<'a> {
    path: Vec<PathStep<'a>>,
    text: &'a str,
}

impl TextLeaf<'_> {
    /// Returns the text without the prefix of a data URI (RFC 2397), which not all formats have.
    fn payload(&self) -> &str {
        match self.text.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
            Some((_, data)) => data,
            None => self.text,
        }
    }
}

/// The texts of a request, by the two lists that errors point into.
struct RequestTexts<'a> {
    /// The format and the body; `None` for the parsed request.
    body: Option<(WireFormat, &'a Value)>,
    conversation: Vec<TextLeaf<'a>>,
    tools: Vec<TextLeaf<'a>>,
}

impl<'a> RequestTexts<'a> {
    fn of_body(format: WireFormat, body: &'a Value) -> Self {
        let texts = |list: RequestList| {
            let mut found = Vec::new();
            for name in list.fields(format) {
                if let Some((key, value)) = find_field(body, &name, format) {
                    collect_texts(value, &mut vec![PathStep::Key(key)], &mut found);
                }
            }
            found
        };
        let (conversation, tools) = (texts(RequestList::Conversation), texts(RequestList::Tools));
        Self { body: Some((format, body)), conversation, tools }
    }

    fn of_chat(chat: &'a ChatRequest) -> Self {
        let step = |list: RequestList| PathStep::Key(list.parsed_name());
        let mut conversation = Vec::new();
        for (at, turn) in chat.turns.iter().enumerate() {
            let mut path = vec![step(RequestList::Conversation), PathStep::Item(at)];
            collect_parts(&turn.parts, &mut path, &mut conversation);
        }
        let names = chat.tools.iter().enumerate().filter_map(|(at, tool)| {
            let (Tool::Function(FunctionTool { name, .. }) | Tool::Custom { name, .. }) = tool
            else {
                return None;
            };
            let path = vec![step(RequestList::Tools), PathStep::Item(at), PathStep::Key("name")];
            Some(TextLeaf { path, text: name })
        });
        Self { body: None, conversation, tools: names.collect() }
    }

    fn list(&self, list: RequestList) -> &[TextLeaf<'a>] {
        match list {
            RequestList::Conversation => &self.conversation,
            RequestList::Tools => &self.tools,
        }
    }

    /// Returns true if a path leads into a list.
    fn leads_into(&self, steps: &[PathStep<'_>], list: RequestList) -> bool {
        match self.body {
            Some((format, _)) => list.fields(format).iter().any(|name| begins(steps, name, format)),
            None => steps.first() == Some(&PathStep::Key(list.parsed_name())),
        }
    }
}

fn collect_parts<'a>(
    parts: &'a [Part],
    path: &mut Vec<PathStep<'a>>,
    found: &mut Vec<TextLeaf<'a>>,
) {
    path.push(PathStep::Key("parts"));
    for (at, part) in parts.iter().enumerate() {
        path.push(PathStep::Item(at));
        if let Some(signature) = &part.signature {
            let mut path = path.clone();
            path.push(PathStep::Key("seal"));
            found.push(TextLeaf { path, text: signature.origin_and_token().1 });
        }
        let mut add = |text: &'a str| {
            let mut path = path.clone();
            path.push(PathStep::Key("content"));
            found.push(TextLeaf { path, text });
        };
        match &part.kind {
            PartKind::Text { text, .. } | PartKind::Refusal(text) => add(text),
            PartKind::Media(media) => match &media.source {
                MediaSource::Inline { data, .. } => add(data),
                MediaSource::Url { url, .. } => add(url),
                MediaSource::File { id, .. } => add(id),
                MediaSource::Text(text) => add(text),
            },
            PartKind::Thought(thought) => add(&thought.text),
            PartKind::ToolCall(call) => [&call.id, &call.name].into_iter().for_each(|t| add(t)),
            PartKind::ToolResult(result) => {
                add(&result.call_id);
                collect_parts(&result.parts, path, found);
            }
            PartKind::CodeExecution(code) => add(&code.code),
            PartKind::CodeResult(result) => add(&result.output),
            PartKind::WebSearch(_) | PartKind::Foreign { .. } => {}
        }
        path.pop();
    }
    path.pop();
}

fn collect_texts<'a>(
    value: &'a Value,
    path: &mut Vec<PathStep<'a>>,
    found: &mut Vec<TextLeaf<'a>>,
) {
    match value {
        // Roles and types are words of a format, not of a caller.
        Value::String(_) if matches!(path.last(), Some(PathStep::Key("role" | "type"))) => {}
        Value::String(text) => found.push(TextLeaf { path: path.clone(), text }),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                path.push(PathStep::Item(at));
                collect_texts(item, path, found);
                path.pop();
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                path.push(PathStep::Key(key));
                collect_texts(field, path, found);
                path.pop();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns a field under its own name. The native format has two spellings of it.
fn find_field<'a>(
    value: &'a Value,
    name: &str,
    format: WireFormat,
) -> Option<(&'a str, &'a Value)> {
    let fields: &Map<String, Value> = value.as_object()?;
    if let Some((key, value)) = fields.get_key_value(name) {
        return Some((key, value));
    }
    let camel = to_camel_case(name);
    let mut fields = fields.iter().filter(|_| format == WireFormat::Native);
    fields.find(|(key, _)| to_camel_case(key) == camel).map(|(key, value)| (key.as_str(), value))
}

/// Splits a path. Indexes stand in brackets or between dots.
fn parse_path(path: &str) -> Vec<PathStep<'_>> {
    let words = path.split(['.', '[', ']']).filter(|word| !word.is_empty());
    let steps = words.map(|word| match word.parse() {
        Ok(index) => PathStep::Item(index),
        Err(_) => PathStep::Key(word),
    });
    // Google names the message before the field.
    let is_prefix = |step: &PathStep<'_>| match step {
        PathStep::Key(word) => word.eq_ignore_ascii_case("generateContentRequest"),
        PathStep::Item(_) => false,
    };
    steps.skip_while(is_prefix).collect()
}

fn write_path(steps: &[PathStep<'_>]) -> String {
    let mut path = String::new();
    for step in steps {
        match step {
            PathStep::Key(name) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
            }
            PathStep::Item(at) => path.push_str(&format!("[{at}]")),
        }
    }
    path
}

/// Returns the part of a path that leads to a value. Steps that lead nowhere are skipped, because
/// some providers name the type of a block between its fields.
fn resolve<'a>(
    mut value: &'a Value,
    steps: &[PathStep<'_>],
    format: WireFormat,
) -> Vec<PathStep<'a>> {
    let mut found = Vec::new();
    for step in steps {
        match step {
            PathStep::Key(name) => {
                if let Some((key, inner)) = find_field(value, name, format) {
                    found.push(PathStep::Key(key));
                    value = inner;
                }
            }
            PathStep::Item(at) => {
                if let Some(inner) = value.get(*at) {
                    found.push(PathStep::Item(*at));
                    value = inner;
                }
            }
        }
    }
    found
}

/// The paths of two requests that mean the same.
struct PathMap<'a> {
    lane: RequestTexts<'a>,
    caller: RequestTexts<'a>,
}

impl PathMap<'_> {
    fn apply(&self, error: ApiError) -> ApiError {
        let mut first = None;
        let message = rewrite_paths(error.message(), error.param(), |path| {
            let own = self.translate(path)?;
            first.get_or_insert_with(|| own.clone());
            Some(own)
        });
        let param = match error.param() {
            Some(path) => self.translate(path),
            None => first,
        };
        let error = error.with_message(message);
        match param {
            Some(path) => error.with_param(path),
            None => error.without_param(),
        }
    }

    /// Returns the caller's path; `None` if the caller's format has no such field.
    fn translate(&self, path: &str) -> Option<String> {
        let steps = parse_path(path);
        let (caller, caller_body) = self.caller.body?;
        for list in [RequestList::Conversation, RequestList::Tools] {
            if self.lane.leads_into(&steps, list) {
                let path = match self.lane.body {
                    Some((format, sent)) => resolve(sent, &steps, format),
                    None => steps,
                };
                let found = find_again(&path, self.lane.list(list), self.caller.list(list));
                return found.or_else(|| self.present_field(list.fields(caller).iter().rev()));
            }
        }
        let (lane, _) = self.lane.body?;
        let fields = options(lane).filter(|(name, _)| begins(&steps, name, lane));
        let (name, option) = fields.max_by_key(|(name, _)| name.len())?;
        let own = options(caller).filter(|(_, other)| *other == option);
        let own: Vec<String> = own.map(|(name, _)| name).collect();
        let own = self.present_field(own.iter())?;
        // A schema is the same tree in all formats.
        let rest = steps.get(parse_path(&name).len()..).unwrap_or_default();
        let mut whole = parse_path(&own);
        whole.extend(rest);
        let found = resolve(caller_body, &whole, caller);
        Some(if found.len() > parse_path(&own).len() { write_path(&found) } else { own })
    }

    /// Returns the first field that the caller's request has, else the first one.
    fn present_field<'n>(&self, names: impl Iterator<Item = &'n String> + Clone) -> Option<String> {
        let (caller, body) = self.caller.body?;
        let is_present = |name: &&String| {
            let steps = parse_path(name);
            resolve(body, &steps, caller).len() == steps.len()
        };
        names.clone().find(is_present).or_else(|| names.clone().next()).cloned()
    }
}

/// Returns the options of a format, each with the path of its field.
fn options(format: WireFormat) -> impl Iterator<Item = (String, RequestOption)> {
    let paths = described_paths(crate::request_fields(format)).into_iter();
    paths.filter_map(|(path, meaning)| match meaning {
        FieldMeaning::Option(option) | FieldMeaning::ReadOnly(option) => Some((path, *option)),
        FieldMeaning::Own | FieldMeaning::Conversation | FieldMeaning::Tools => None,
    })
}

/// Returns true if a path begins with a field.
fn begins(steps: &[PathStep<'_>], field: &str, format: WireFormat) -> bool {
    let mut keys = steps.iter();
    parse_path(field).iter().all(|wanted| match (keys.next(), wanted) {
        (Some(PathStep::Key(key)), PathStep::Key(wanted)) => {
            let key = if format == WireFormat::Native { to_camel_case(key) } else { (*key).into() };
            key == *wanted
        }
        _ => false,
    })
}

/// Finds the text at a path in another list: the same occurrence of the same text. Without one at
/// the path itself, a text beside it identifies the part that holds both.
fn find_again(path: &[PathStep<'_>], from: &[TextLeaf<'_>], to: &[TextLeaf<'_>]) -> Option<String> {
    const MAX_TRIED_TEXTS: usize = 8;
    for length in (1..=path.len()).rev() {
        let prefix = path.get(..length)?;
        // A whole list is not identified by one of its texts.
        let inside = |leaf: &&(usize, &TextLeaf<'_>)| {
            leaf.1.path.starts_with(prefix) && (length > 1 || leaf.1.path.len() == 1)
        };
        let numbered: Vec<_> = from.iter().enumerate().collect();
        let mut tried: Vec<_> = numbered.iter().filter(inside).collect();
        tried.sort_by_key(|(_, leaf)| std::cmp::Reverse(leaf.payload().len()));
        for (at, leaf) in tried.into_iter().take(MAX_TRIED_TEXTS) {
            let is_exact = leaf.path.len() == path.len() && length == path.len();
            if leaf.text.is_empty() && !is_exact {
                continue;
            }
            let same = |other: &&TextLeaf<'_>| other.payload() == leaf.payload();
            let before = from.iter().take(*at).filter(same).count();
            let Some(found) = to.iter().filter(same).nth(before) else { continue };
            let last_item = found.path.iter().rposition(|step| matches!(step, PathStep::Item(_)));
            let shown = match last_item {
                Some(at) if !is_exact => found.path.get(..=at).unwrap_or_default(),
                Some(_) | None => found.path.as_slice(),
            };
            return Some(write_path(shown));
        }
    }
    None
}

/// Replaces the paths in a message. A word is a path if it is written like one: with a dot, an
/// index, an underscore or an inner capital, in quotes, or as the known path.
fn rewrite_paths(
    message: &str,
    known: Option<&str>,
    mut translate: impl FnMut(&str) -> Option<String>,
) -> String {
    let is_path_byte = |b: u8| b.is_ascii_alphanumeric() || b"_.[]".contains(&b);
    let mut text = String::with_capacity(message.len());
    let mut rest = message;
    while !rest.is_empty() {
        let start = rest.bytes().position(is_path_byte).unwrap_or(rest.len());
        let (between, tail) = rest.split_at(start);
        text.push_str(between);
        let end = tail.bytes().position(|b| !is_path_byte(b)).unwrap_or(tail.len());
        let (word, after) = tail.split_at(end);
        let bare = word.trim_end_matches(['.', '[']);
        let quote = |c: Option<char>| matches!(c, Some('\'' | '"' | '`'));
        let opens = text.is_empty() && after.starts_with(':');
        let is_quoted = quote(text.chars().next_back()) && quote(after.chars().next());
        let is_path = bare.contains(['.', '[', '_'])
            || bare.chars().skip(1).any(|c| c.is_ascii_uppercase())
            || Some(bare) == known
            || opens
            || is_quoted;
        let own = if is_path { translate(bare).map(Cow::Owned) } else { None };
        text.push_str(&own.unwrap_or(Cow::Borrowed(bare)));
        text.push_str(word.get(bare.len()..).unwrap_or_default());
        rest = after;
    }
    text
}
