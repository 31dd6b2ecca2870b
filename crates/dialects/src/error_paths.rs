//! The way back of an error: from the field of the request that a lane refused to the field of the
//! caller's own request, in the caller's notation.
//!
//! A translation merges, splits and moves turns, so an index in the lane's request says nothing
//! about the caller's. Texts, media, ids and names are carried unchanged and in order. The refused
//! value is found again as the same occurrence of the same text. Options are found by the table of
//! fields. This runs only for an error, in one pass over both requests.

use canon::{ApiError, ChatRequest, FunctionTool, MediaSource, Part, PartKind, Tool, WireFormat};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

use crate::json;
use crate::media_rules::split_data_uri;
use crate::request_option::{RequestOption, described_paths};
use crate::text::to_camel_case;
use crate::value_count::{MAX_REQUEST_VALUES, count_values};
use crate::wire_object::FieldMeaning;
use crate::wire_rule::join_path;

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
    // A translation writes the arguments of calls as objects, so that a body can have many values
    // more than the caller's.
    let sent_body = if let RefusedRequest::Body(_, sent) = refused { sent } else { &[] };
    let fits = |body: &[u8]| count_values(body, MAX_REQUEST_VALUES) <= MAX_REQUEST_VALUES;
    if !fits(body) || !fits(sent_body) {
        return error.without_param();
    }
    let Ok(body) = json::read_bytes::<Value>(body) else { return error.without_param() };
    let (format, sent) = match refused {
        RefusedRequest::Body(format, sent) => {
            (Some(format), json::read_bytes(sent).unwrap_or_default())
        }
        RefusedRequest::Parsed(chat) => (None, parsed_body(chat)),
    };
    let lane = FormatBody { format, body: &sent };
    let caller = FormatBody { format: Some(caller), body: &body };
    let lists = lane.lists().into_iter().zip(caller.lists()).collect();
    PathMap { lane, caller, lists }.apply(error)
}

/// Returns the error with its path as the caller spells it. The native format has two spellings.
#[must_use]
pub fn with_own_spelling(error: ApiError, format: WireFormat, body: &[u8]) -> ApiError {
    let is_plain = format != WireFormat::Native
        || !body.contains(&b'_')
        || count_values(body, MAX_REQUEST_VALUES) > MAX_REQUEST_VALUES;
    let Some(path) = error.param().filter(|_| !is_plain) else { return error };
    let Ok(body) = json::read_bytes::<Value>(body) else { return error };
    let steps = parse_path(path);
    let found = FormatBody { format: Some(format), body: &body }.resolve(&steps);
    if found.len() < steps.len() {
        return error;
    }
    let own = write_path(&found);
    let message = error.message().replace(path, &own);
    error.with_message(message).with_param(own)
}

/// Items of an earlier conversation that the gateway inserted before those of the caller.
#[derive(Clone, Copy, Debug)]
pub struct InsertedItems {
    /// List of the items.
    pub list: &'static str,
    /// Field that names the earlier conversation.
    pub source: &'static str,
    /// Number of inserted items.
    pub count: usize,
}

impl InsertedItems {
    /// Returns the path in the caller's own request; `None` if it leads to no item of the list.
    pub fn own_path(&self, path: &str) -> Option<String> {
        let Self { list, source, count } = *self;
        let (at, rest) = path.strip_prefix(list)?.strip_prefix('[')?.split_once(']')?;
        let at: usize = at.parse().ok()?;
        Some(match at.checked_sub(count) {
            Some(at) => format!("{list}[{at}]{rest}"),
            None => source.to_owned(),
        })
    }

    /// Returns an error with the path in the caller's own request.
    #[must_use]
    pub fn restore_path(&self, error: ApiError) -> ApiError {
        let path = error.param().filter(|_| self.count > 0).unwrap_or_default().to_owned();
        let Some(own) = self.own_path(&path) else { return error };
        let message = error.message().replace(&path, &own);
        error.with_message(message).with_param(own)
    }
}

/// A body and its format.
#[derive(Clone, Copy)]
struct FormatBody<'a> {
    /// `None` for the parsed request.
    format: Option<WireFormat>,
    body: &'a Value,
}

/// A list of a request that errors point into: the fields that hold it, and its texts.
struct TextList<'a> {
    fields: Vec<String>,
    texts: Vec<TextLeaf<'a>>,
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
        split_data_uri(self.text).map_or(self.text, |(_, data)| data)
    }
}

impl<'a> FormatBody<'a> {
    /// Returns the two lists that errors point into: the conversation and the tools.
    fn lists(self) -> [TextList<'a>; 2] {
        [
            self.list("turns", |meaning| matches!(meaning, FieldMeaning::Conversation)),
            self.list("tools", |meaning| matches!(meaning, FieldMeaning::Tools)),
        ]
    }

    /// Returns the list whose fields have a meaning. `parsed` is its name in the parsed request.
    fn list(self, parsed: &str, is_own: fn(&FieldMeaning) -> bool) -> TextList<'a> {
        let described = self.format.map(|format| described_paths(crate::request_fields(format)));
        let fields = match described {
            Some(paths) => {
                paths.into_iter().filter(|(_, own)| is_own(own)).map(|(path, _)| path).collect()
            }
            None => vec![parsed.to_owned()],
        };
        let mut texts = Vec::new();
        for name in &fields {
            if let Some((key, value)) = self.find_field(self.body, name) {
                collect_texts(value, &mut vec![PathStep::Key(key)], &mut texts);
            }
        }
        TextList { fields, texts }
    }

    /// Returns a field under its own name. The native format has two spellings of it.
    fn find_field(self, value: &'a Value, name: &str) -> Option<(&'a str, &'a Value)> {
        let fields: &Map<String, Value> = value.as_object()?;
        if let Some((key, value)) = fields.get_key_value(name) {
            return Some((key, value));
        }
        let camel = to_camel_case(name);
        let mut fields = fields.iter().filter(|_| self.format == Some(WireFormat::Native));
        let found = fields.find(|(key, _)| to_camel_case(key) == camel);
        found.map(|(key, value)| (key.as_str(), value))
    }

    /// Returns true if a path begins with a field.
    fn begins(self, steps: &[PathStep<'_>], field: &str) -> bool {
        let is_native = self.format == Some(WireFormat::Native);
        let mut keys = steps.iter();
        parse_path(field).iter().all(|wanted| match (keys.next(), wanted) {
            (Some(PathStep::Key(key)), PathStep::Key(wanted)) => {
                let key = if is_native { to_camel_case(key) } else { (*key).into() };
                key == *wanted
            }
            _ => false,
        })
    }

    /// Returns the part of a path that leads to a value. Steps that lead nowhere are skipped, because
    /// some providers name the type of a block between its fields.
    fn resolve(self, steps: &[PathStep<'_>]) -> Vec<PathStep<'a>> {
        let (mut value, mut found) = (self.body, Vec::new());
        for step in steps {
            let next = match step {
                PathStep::Key(name) => {
                    self.find_field(value, name).map(|(key, inner)| (PathStep::Key(key), inner))
                }
                PathStep::Item(at) => value.get(*at).map(|inner| (PathStep::Item(*at), inner)),
            };
            if let Some((step, inner)) = next {
                found.push(step);
                value = inner;
            }
        }
        found
    }

    /// Returns the options of the format, each with the path of its field.
    fn options(self) -> impl Iterator<Item = (String, RequestOption)> {
        let fields = self.format.map_or(&[][..], crate::request_fields);
        described_paths(fields).into_iter().filter_map(|(path, meaning)| match meaning {
            FieldMeaning::Option(option) | FieldMeaning::ReadOnly(option) => Some((path, *option)),
            FieldMeaning::Own | FieldMeaning::Conversation | FieldMeaning::Tools => None,
        })
    }

    /// Returns the first field that the request has, else the first one.
    fn present_field<'n>(self, names: impl Iterator<Item = &'n String> + Clone) -> Option<String> {
        let is_present = |name: &&String| {
            let steps = parse_path(name);
            self.resolve(&steps).len() == steps.len()
        };
        names.clone().find(is_present).or_else(|| names.clone().next()).cloned()
    }
}

/// Returns the texts of a parsed request as a body in which the paths of its errors lead to them.
fn parsed_body(chat: &ChatRequest) -> Value {
    let turns = chat.turns.iter().map(|turn| json!({"parts": parsed_parts(&turn.parts)}));
    let tools = chat.tools.iter().map(|tool| match tool {
        Tool::Function(FunctionTool { name, .. }) | Tool::Custom { name, .. } => {
            json!({"name": name})
        }
        Tool::WebSearch(_)
        | Tool::CodeExecution(_)
        | Tool::UrlFetch(_)
        | Tool::Client(_)
        | Tool::Foreign { .. } => Value::Null,
    });
    json!({"turns": turns.collect::<Value>(), "tools": tools.collect::<Value>()})
}

fn parsed_parts(parts: &[Part]) -> Value {
    let part_texts = |part: &Part| {
        let seal = part.signature.as_ref().map(|signature| signature.origin_and_token().1);
        let (texts, inner): (Vec<&String>, &[Part]) = match &part.kind {
            PartKind::Text { text, .. } | PartKind::Refusal(text) => (vec![text], &[]),
            PartKind::Media(media) => match &media.source {
                MediaSource::Inline { data: text, .. }
                | MediaSource::Url { url: text, .. }
                | MediaSource::File { id: text, .. }
                | MediaSource::Text(text) => (vec![text], &[]),
            },
            PartKind::Thought(thought) => (vec![&thought.text], &[]),
            PartKind::ToolCall(call) => (vec![&call.id, &call.name], &[]),
            PartKind::ToolResult(result) => (vec![&result.call_id], &result.parts),
            PartKind::CodeExecution(code) => (vec![&code.code], &[]),
            PartKind::CodeResult(result) => (vec![&result.output], &[]),
            // The caller's own part, with all of its texts.
            PartKind::Foreign { value, .. } => return value.clone(),
            PartKind::WebSearch(_) => (Vec::new(), &[]),
        };
        json!({"seal": seal, "content": texts, "parts": parsed_parts(inner)})
    };
    parts.iter().map(part_texts).collect()
}

fn collect_texts<'a>(
    value: &'a Value,
    path: &mut Vec<PathStep<'a>>,
    found: &mut Vec<TextLeaf<'a>>,
) {
    let mut collect = |step, inner| {
        path.push(step);
        collect_texts(inner, path, found);
        path.pop();
    };
    match value {
        Value::Array(items) => (0..).zip(items).for_each(|(at, i)| collect(PathStep::Item(at), i)),
        Value::Object(fields) => fields.iter().for_each(|(key, f)| collect(PathStep::Key(key), f)),
        // Roles and types are words of a format, not of a caller.
        Value::String(_) if matches!(path.last(), Some(PathStep::Key("role" | "type"))) => {}
        Value::String(text) => found.push(TextLeaf { path: path.clone(), text }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
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
    steps.iter().fold(String::new(), |path, step| match step {
        PathStep::Key(name) => join_path(&path, name),
        PathStep::Item(at) => join_path(&path, &format!("[{at}]")),
    })
}

/// The paths of two requests that mean the same.
struct PathMap<'a> {
    lane: FormatBody<'a>,
    caller: FormatBody<'a>,
    /// The lists of both requests.
    lists: Vec<(TextList<'a>, TextList<'a>)>,
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
        let Self { lane, caller, lists } = self;
        let steps = parse_path(path);
        for (from, to) in lists {
            if from.fields.iter().any(|name| lane.begins(&steps, name)) {
                let found = find_again(&lane.resolve(&steps), &from.texts, &to.texts);
                return found.or_else(|| caller.present_field(to.fields.iter().rev()));
            }
        }
        let fields = lane.options().filter(|(name, _)| lane.begins(&steps, name));
        let (name, option) = fields.max_by_key(|(name, _)| name.len())?;
        let own = caller.options().filter(|(_, other)| *other == option);
        let own: Vec<String> = own.map(|(name, _)| name).collect();
        let own = caller.present_field(own.iter())?;
        // A schema is the same tree in all formats.
        let rest = steps.get(parse_path(&name).len()..).unwrap_or_default();
        let mut whole = parse_path(&own);
        whole.extend(rest);
        let found = caller.resolve(&whole);
        Some(if found.len() > parse_path(&own).len() { write_path(&found) } else { own })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_with_too_many_values_is_not_parsed() {
        let arguments = |values: usize| format!("[{}0]", "0,".repeat(values));
        let caller = |values: usize| {
            json!({"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function",
                "function": {"name": "f", "arguments": format!("{{\"a\":{}}}", arguments(values))}}]}]})
        };
        let lane = |values: usize| {
            let input = arguments(values);
            format!(
                r#"{{"messages":[{{"role":"assistant","content":[{{"type":"tool_use","id":"c","name":"f","input":{{"a":{input}}}}}]}}]}}"#
            )
        };
        for (values, param) in
            [(10, Some("messages[0].tool_calls[0].id")), (MAX_REQUEST_VALUES, None)]
        {
            let error = ApiError::invalid("messages.0.content.0.id", "is wrong");
            let (sent, body) = (lane(values), caller(values).to_string());
            let refused = RefusedRequest::Body(WireFormat::Messages, sent.as_bytes());
            let error = with_caller_paths(error, refused, WireFormat::Chat, body.as_bytes());
            assert_eq!(error.param(), param, "{values}");
        }
    }
}
