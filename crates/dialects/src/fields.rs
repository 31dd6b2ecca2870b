//! Reads JSON objects field by field, so that the remaining fields are known and kept; writes JSON
//! objects.

use canon::{
    CacheBreakpoint, Citation, ExtraFields, Finish, Losses, NeedKind, RequestNeeds, ToolChoiceMode,
    WireFormat,
};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};
use std::collections::HashSet;
use text_scan::plain_length;

use crate::json;
use crate::wire_object::UnknownFields;
use crate::write_json::WriteJson;

/// Loss text for a search in the history of another provider.
pub(crate) const FOREIGN_SEARCH: &str = "a search another provider ran cannot be shown to this one";
/// Loss text for a signature that another provider issued.
pub(crate) const FOREIGN_SIGNATURE: &str = "a signature of another provider is not valid here";

/// Loss text for a file that only its own provider can read.
pub(crate) const FOREIGN_FILE: &str = "a file in another provider's storage cannot be read here";

/// Loss text for media of the model, in a format whose assistant turns hold none.
pub(crate) const MOVED_MEDIA: &str = "an image of the model is sent in a user message here";

/// Notes a loss in place of a value.
pub(crate) fn lose<T>(what: &str, why: &str, losses: &mut Losses) -> Option<T> {
    losses.add(what, why);
    None
}

/// Notes the fields of a turn, part or tool that format `me` cannot carry.
pub(crate) fn note_foreign_fields(
    extras: &ExtraFields,
    me: WireFormat,
    of: &str,
    losses: &mut Losses,
) {
    for (name, value) in extras.foreign_fields(me) {
        note_foreign_field(name, value, of, losses);
    }
}

/// Notes a choice that forces a call, if none of the tools is left to be called.
pub(crate) fn note_lost_choice(choice: &ToolChoiceMode, losses: &mut Losses) {
    let is_forced = match choice {
        ToolChoiceMode::Required | ToolChoiceMode::Tool(_) => true,
        ToolChoiceMode::AnyOf { required, .. } => *required,
        ToolChoiceMode::Unset | ToolChoiceMode::Auto | ToolChoiceMode::Disabled => false,
    };
    losses.add_if(is_forced, "tool_choice", "no tool is left that the model could call");
}

/// Notes the fields of a search that a format cannot carry whose sources stand beside the text. It
/// carries queries and sources, and so the whole action of a plain search.
pub(crate) fn note_search_fields(extras: &ExtraFields, me: WireFormat, losses: &mut Losses) {
    for (name, value) in extras.foreign_fields(me) {
        let action = value.get("type").and_then(Value::as_str).filter(|_| name == "action");
        if action != Some("search") {
            note_foreign_field(name, value, "part", losses);
        }
    }
}

/// Notes one such field. Fields of the object around a part or tool are kept in a note
/// `portunus.in.OBJECT`.
pub(crate) fn note_foreign_field(name: &str, value: &Value, of: &str, losses: &mut Losses) {
    const WHY: &str = "only another format has this field";
    if let (Some(object), Value::Object(fields)) = (name.strip_prefix("portunus.in."), value) {
        for name in fields.keys().filter(|name| is_reported(name)) {
            losses.add(&format!("{object}.{name}"), WHY);
        }
    } else if is_reported(name) && !is_direct_caller(name, value) {
        losses.add(&format!("{of}.{name}"), WHY);
    }
}

/// Fields that protect those who use a program: the answer of a provider that does not know them would look
/// checked and be none. Anthropic's gateways refuse `safeguards` in this way, guardrails are those of
/// Bedrock (<https://docs.aws.amazon.com/bedrock/latest/userguide/guardrails.html>), `safe_prompt` is that of
/// Mistral (<https://docs.mistral.ai/capabilities/guardrailing/>), and Model Armor that of Vertex
/// (<https://cloud.google.com/security-command-center/docs/model-armor-vertex-integration>).
const PROTECTIVE_FIELDS: [&str; 10] = [
    "safeguards",
    "safe_prompt",
    "safePrompt",
    "modelArmorConfig",
    "model_armor_config",
    "guardrails",
    "guardrail_config",
    "guardrailConfig",
    "amazon-bedrock-guardrailConfig",
    "moderation",
];

/// Adds the fields of a request that no translation may drop, by their own names.
pub(crate) fn add_protective(needs: &mut RequestNeeds, rest: &UnknownFields<'_>) {
    // `false` asks for nothing.
    let asks = |(name, value): &(&str, &RawValue)| {
        PROTECTIVE_FIELDS.contains(name) && value.get() != "false"
    };
    for (name, _) in rest.present().filter(asks) {
        needs.add(name.to_owned(), NeedKind::OwnField);
    }
}

/// Notes the fields of a request that format `me` cannot carry. Options of the stream are not sent
/// to any provider: the gateway writes the caller's stream.
pub(crate) fn note_foreign_options(extras: &ExtraFields, me: WireFormat, losses: &mut Losses) {
    for name in extras.foreign_to(me).filter(|name| *name != "stream_options") {
        losses.add(name, "only the caller's format has this field");
    }
}

/// Returns true if the loss of a field matters. Names and ids of another format and the gateway's
/// own notes do not. The namespace or toolset of a call is part of its name in other formats.
pub(crate) fn is_reported(name: &str) -> bool {
    !matches!(name, "id" | "name" | "namespace" | "toolset_name" | "status" | "type")
        && !name.starts_with("portunus.")
}

/// Returns true for the usual author of a call, the model itself.
fn is_direct_caller(name: &str, value: &Value) -> bool {
    name == "caller" && value.get("type").and_then(Value::as_str) == Some("direct")
}

/// Notes the stop text that ended a reply, for a format that does not report it.
pub(crate) fn note_stop_text(finish: Option<&Finish>, me: WireFormat, losses: &mut Losses) {
    let stop = finish.and_then(|finish| finish.stop_sequence.as_ref());
    if stop.is_some() {
        losses.add("finish.stop", &format!("the {me} format does not report the stop text"));
    }
}

/// Notes a citation without a URL, for a format that cites only sources on the web. Returns true if
/// nothing of it is left to write.
pub(crate) fn note_citation(citation: &Citation, me: WireFormat, losses: &mut Losses) -> bool {
    let Citation { url, title, quote, span: _, extras: _ } = citation;
    if url.is_none() {
        losses.add("citation", &format!("the {me} format cites only sources with a URL"));
    }
    url.is_none() && title.is_none() && quote.is_none()
}

/// Writes a prompt cache breakpoint of the chat and responses formats. Lifetimes of other formats
/// become the next longer one, because providers refuse any other.
pub(crate) fn write_cache_breakpoint(mark: &CacheBreakpoint) -> Value {
    let CacheBreakpoint { ttl } = mark;
    let ttl = ttl.as_deref().map(|ttl| match ttl {
        "5m" => "30m",
        "1h" => "12h",
        other => other,
    });
    ObjectWriter::new().set("mode", "explicit").set_some("ttl", ttl).into()
}

/// Writes a prompt cache breakpoint of the messages format, which has lifetimes of five minutes and one
/// hour; other lifetimes are rounded up to one of them.
pub(crate) fn write_cache_control(mark: &CacheBreakpoint) -> Value {
    let CacheBreakpoint { ttl } = mark;
    let ttl = ttl.as_deref().map(|ttl| match minutes(ttl) {
        Some(0..=5) | None => "5m",
        Some(_) => "1h",
    });
    ObjectWriter::typed("ephemeral").set_some("ttl", ttl).into()
}

fn minutes(ttl: &str) -> Option<u64> {
    let number = |unit: char| ttl.strip_suffix(unit).and_then(|n| n.parse::<u64>().ok());
    number('m')
        .or_else(|| number('h').map(|hours| hours.saturating_mul(60)))
        .or_else(|| number('s').map(|seconds| seconds.div_ceil(60)))
}

/// Writes a JSON object; absent values are left out.
#[derive(Clone, Debug)]
#[must_use]
pub(crate) struct ObjectWriter {
    /// The object without its last brace. A comma follows each field.
    json: Vec<u8>,
    /// Positions of the fields, behind those of the objects around it.
    fields: Vec<usize>,
    /// The number of the first one.
    first: usize,
    /// A bit for each length and first letter of a name.
    names: u64,
}

/// The name of a field.
#[derive(Clone, Copy)]
enum FieldName<'a> {
    /// A name of the format, which needs no escapes.
    Plain(&'static str),
    Any(&'a str),
}

/// Returns the bit of a name, by which most new names are known to be new.
fn name_bit(name: &str) -> u64 {
    let first = name.as_bytes().first().copied().unwrap_or_default();
    1 << (name.len().wrapping_mul(7).wrapping_add(usize::from(first)) % 64)
}

impl ObjectWriter {
    pub(crate) fn new() -> Self {
        Self::with_room(0)
    }

    /// Starts an object with room for a value of that length.
    pub(crate) fn with_room(bytes: usize) -> Self {
        let mut json = Vec::with_capacity(bytes.saturating_add(json::SPARE_BYTES));
        json.push(b'{');
        Self { json, fields: Vec::with_capacity(16), first: 0, names: 0 }
    }

    /// Starts an object with room for other objects.
    pub(crate) fn with_room_for<'a>(objects: impl IntoIterator<Item = &'a Self>) -> Self {
        Self::with_room(objects.into_iter().map(|object| object.json.len() + 1).sum())
    }

    /// Starts an object that tells its kind in `type`.
    pub(crate) fn typed(kind: &str) -> Self {
        Self::new().set("type", kind)
    }

    /// Returns the position of a field in the list, by its name in JSON at the end of the text.
    fn find(&self, start: usize) -> Option<usize> {
        let (fields, name) = self.json.split_at_checked(start)?;
        let is_same = |at: &usize| fields.get(*at..*at + name.len()) == Some(name);
        let found = self.own_fields().iter().position(is_same);
        found.map(|index| self.first + index)
    }

    /// Returns the positions of the fields.
    fn own_fields(&self) -> &[usize] {
        self.fields.get(self.first..).unwrap_or_default()
    }

    /// Returns the names of all fields, as they stand in JSON.
    fn field_names(&self) -> HashSet<Vec<u8>> {
        let name = |at: &usize| {
            let text = self.json.get(*at..).unwrap_or_default();
            let mut is_escaped = false;
            let end = text.iter().skip(1).position(|byte| {
                let is_end = *byte == b'"' && !is_escaped;
                is_escaped = *byte == b'\\' && !is_escaped;
                is_end
            });
            // The quotes on both sides, and the colon.
            text.get(..end.unwrap_or(0) + 3).unwrap_or_default().to_vec()
        };
        self.own_fields().iter().map(name).collect()
    }

    /// Puts a field in the place of the one of that name, if it may be replaced, or else at the end.
    fn put(&mut self, name: FieldName<'_>, value: Option<&impl WriteJson>, replaces: bool) {
        let start = self.json.len();
        let bit = match name {
            FieldName::Plain(name) => {
                debug_assert_eq!(plain_length(name.as_bytes()), name.len());
                self.json.push(b'"');
                self.json.extend_from_slice(name.as_bytes());
                self.json.extend_from_slice(b"\":");
                name_bit(name)
            }
            FieldName::Any(name) => {
                json::write_string(name, &mut self.json);
                self.json.push(b':');
                name_bit(name)
            }
        };
        let same = if self.names & bit == 0 { None } else { self.find(start) };
        match (value, same) {
            (None, _) => self.json.truncate(start),
            (Some(_), Some(_)) if !replaces => return self.json.truncate(start),
            (Some(value), _) => {
                value.write_json(&mut self.json);
                self.json.push(b',');
            }
        }
        let Some((index, place)) = same.and_then(|at| Some((at, *self.fields.get(at)?))) else {
            if value.is_some() {
                self.names |= bit;
                self.fields.push(start);
            }
            return;
        };
        let length = self.json.len() - start;
        let old = self.fields.get(index + 1).copied().unwrap_or(start) - place;
        self.json.drain(place..place + old);
        if let Some(rest) = self.json.get_mut(place..) {
            rest.rotate_right(length);
        }
        self.fields.iter_mut().skip(index + 1).for_each(|at| *at = *at + length - old);
        if value.is_none() {
            self.fields.remove(index);
        }
    }

    /// Sets a field. A field of that name is replaced.
    pub(crate) fn set(mut self, name: &'static str, value: impl WriteJson) -> Self {
        self.put(FieldName::Plain(name), Some(&value), true);
        self
    }

    /// Sets a field to an object that is written in place. There must be no field of that name.
    pub(crate) fn nest(mut self, name: &'static str, write: impl FnOnce(Self) -> Self) -> Self {
        let start = self.begin_nested(name);
        self.nest_object(write).end_nested(name, start)
    }

    /// Sets a field to an object that is written in place, if it is to be there.
    pub(crate) fn nest_if(
        self,
        is_there: bool,
        name: &'static str,
        write: impl FnOnce(Self) -> Self,
    ) -> Self {
        if is_there { self.nest(name, write) } else { self }
    }

    /// Sets a field to a list of objects that are written in place. There must be no field of that name.
    pub(crate) fn nest_each<T>(
        mut self,
        name: &'static str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(Self, T) -> Self,
    ) -> Self {
        let start = self.begin_nested(name);
        self.json.push(b'[');
        for item in items {
            if canon::is_abandoned() {
                break;
            }
            self = self.nest_object(|object| write(object, item));
            self.json.push(b',');
        }
        self.json.pop_if(|byte| *byte == b',');
        self.json.push(b']');
        self.end_nested(name, start)
    }

    /// Writes the name of a field. Returns its position.
    fn begin_nested(&mut self, name: &'static str) -> usize {
        let start = self.json.len();
        self.json.push(b'"');
        self.json.extend_from_slice(name.as_bytes());
        self.json.extend_from_slice(b"\":");
        debug_assert!(self.names & name_bit(name) == 0 || self.find(start).is_none());
        start
    }

    fn end_nested(mut self, name: &str, start: usize) -> Self {
        self.json.push(b',');
        self.names |= name_bit(name);
        self.fields.push(start);
        self
    }

    fn nest_object(mut self, write: impl FnOnce(Self) -> Self) -> Self {
        let (first, names) = (self.first, self.names);
        (self.first, self.names) = (self.fields.len(), 0);
        self.json.push(b'{');
        let mut object = write(self);
        object.json.pop_if(|byte| *byte == b',');
        object.json.push(b'}');
        object.fields.truncate(object.first);
        (object.first, object.names) = (first, names);
        object
    }

    /// Sets a field whose name is not the format's own.
    pub(crate) fn set_any(mut self, name: &str, value: impl WriteJson) -> Self {
        self.put(FieldName::Any(name), Some(&value), true);
        self
    }

    /// Sets a field if the value is present.
    pub(crate) fn set_some(self, name: &'static str, value: Option<impl WriteJson>) -> Self {
        match value {
            Some(value) => self.set(name, value),
            None => self,
        }
    }

    /// Sets a field unless there is one of that name.
    pub(crate) fn with_default(self, name: &str, value: impl Into<Value>) -> Self {
        self.with_fields([(name, &value.into())])
    }

    /// Adds the extras of a format without overwriting existing fields.
    pub(crate) fn with_extras(self, extras: &ExtraFields, origin: WireFormat) -> Self {
        let fields = extras.for_format(origin).into_iter().flatten();
        // Notes that a reader left for the writer are not part of the format.
        let fields = fields.filter(|(name, _)| !name.starts_with("portunus."));
        self.with_fields(fields)
    }

    /// Adds fields without overwriting existing ones.
    pub(crate) fn with_fields<'a>(
        mut self,
        fields: impl IntoIterator<Item = (impl AsRef<str>, &'a Value)>,
    ) -> Self {
        // The added names differ from each other, so that they are compared only with earlier ones.
        // A caller can send thousands of them.
        const MAX_SEARCHED: usize = 64;
        let mut fields = fields.into_iter().peekable();
        while self.own_fields().len() <= MAX_SEARCHED
            && let Some((name, value)) = fields.next()
        {
            self.put(FieldName::Any(name.as_ref()), Some(value), false);
        }
        let has_more = fields.peek().is_some();
        let known = if has_more { self.field_names() } else { HashSet::new() };
        for (name, value) in fields {
            let start = self.json.len();
            json::write_string(name.as_ref(), &mut self.json);
            self.json.push(b':');
            let written = self.json.get(start..).unwrap_or_default();
            if known.contains(written) {
                self.json.truncate(start);
                continue;
            }
            self.names |= name_bit(name.as_ref());
            value.write_json(&mut self.json);
            self.json.push(b',');
            self.fields.push(start);
        }
        self
    }

    /// Removes a field.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.put(FieldName::Any(name), None::<&Value>, true);
        self
    }

    /// Returns the object without line breaks. Texts that are carried as they are can have some
    /// between their tokens.
    pub(crate) fn on_one_line(mut self) -> Self {
        let line_breaks = self.json.iter_mut().filter(|byte| matches!(**byte, b'\n' | b'\r'));
        line_breaks.for_each(|byte| *byte = b' ');
        self
    }

    /// Returns the object; `None` if it has no fields.
    pub(crate) fn into_filled(self) -> Option<Self> {
        (!self.own_fields().is_empty()).then_some(self)
    }

    /// Adds the fields of an object without overwriting existing ones.
    pub(crate) fn with_object(self, object: Option<&Value>) -> Self {
        self.with_fields(object.and_then(Value::as_object).into_iter().flatten())
    }

    /// Returns the object as JSON text.
    pub(crate) fn into_json(mut self) -> Vec<u8> {
        // The last comma, if there is any field.
        self.json.pop_if(|byte| *byte == b',');
        self.json.push(b'}');
        self.json
    }

    pub(crate) fn into_map(self) -> Map<String, Value> {
        json::read_bytes(&self.into_json()).unwrap_or_default()
    }
}

impl Default for ObjectWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl WriteJson for ObjectWriter {
    fn write_json(&self, out: &mut Vec<u8>) {
        if out.capacity() - out.len() < self.json.len() + 1 {
            out.reserve(self.json.len() + json::SPARE_BYTES);
        }
        out.extend_from_slice(self.json.strip_suffix(b",").unwrap_or(&self.json));
        out.push(b'}');
    }
}

impl From<ObjectWriter> for Value {
    fn from(object: ObjectWriter) -> Self {
        Self::Object(object.into_map())
    }
}

/// Returns a number as JSON. Infinities become null, because JSON (RFC 8259) has no infinity.
pub(crate) fn number(value: f64) -> Value {
    // Whole numbers are written without a fraction, as clients print them.
    if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 {
        #[expect(clippy::cast_possible_truncation, reason = "a whole number within 2^53")]
        return Value::from(value as i64);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_replaced_in_their_place() {
        let object = ObjectWriter::new().set("a", 1).set("b", "two").set("c", true);
        let written = |object: ObjectWriter| String::from_utf8(object.into_json()).unwrap();
        for (object, expected) in [
            (object.clone(), r#"{"a":1,"b":"two","c":true}"#),
            (object.clone().set("a", "longer").set("c", 0), r#"{"a":"longer","b":"two","c":0}"#),
            (object.clone().set("b", 2).set("d", 3), r#"{"a":1,"b":2,"c":true,"d":3}"#),
            (object.clone().without("b").set("c", 3), r#"{"a":1,"c":3}"#),
            (object.clone().without("x").without("a").set("a", 1), r#"{"b":"two","c":true,"a":1}"#),
            (ObjectWriter::new().set("a", 1).without("a"), "{}"),
        ] {
            assert_eq!(written(object), expected);
        }
        let more = serde_json::json!({"a": 9, "\"": [null, {"x": {}}]});
        assert_eq!(
            written(object.with_object(Some(&more))),
            r#"{"a":1,"b":"two","c":true,"\"":[null,{"x":{}}]}"#
        );
    }

    #[test]
    fn objects_are_written_in_place_like_their_own() {
        let inner = |object: ObjectWriter| {
            object.set("a", 1).set("b", 2).set("a", "three").without("b").with_default("c", 4)
        };
        let nested = ObjectWriter::new()
            .set("a", 0)
            .nest("x", inner)
            .nest("none", |object| object)
            .nest_each("list", [1, 2], |object, n| inner(object.nest("n", |one| one.set("a", n))))
            .nest_each("empty", [0; 0], |object, _| object)
            .set("a", "last")
            .without("x");
        let own = |n: Option<i32>| {
            let object = n.map(|n| ObjectWriter::new().set("n", ObjectWriter::new().set("a", n)));
            inner(object.unwrap_or_default())
        };
        let flat = ObjectWriter::new()
            .set("a", 0)
            .set("x", own(None))
            .set("none", ObjectWriter::new())
            .set("list", vec![own(Some(1)), own(Some(2))])
            .set("empty", Vec::<ObjectWriter>::new())
            .set("a", "last")
            .without("x");
        assert_eq!(
            String::from_utf8(nested.into_json()).unwrap(),
            String::from_utf8(flat.into_json()).unwrap()
        );
    }

    #[test]
    fn of_many_fields_none_is_written_twice() {
        let many = |from: usize| {
            let fields = (from..from + 200).map(|n| (format!("\"{n}\\"), Value::from(from)));
            Value::Object(fields.collect())
        };
        let object = ObjectWriter::new().with_object(Some(&many(0))).with_object(Some(&many(100)));
        let written = object.clone().set_any("\"150\\", "new").into_json();
        let read: Map<String, Value> = serde_json::from_slice(&written).unwrap();
        assert_eq!(read.len(), 300);
        let text = String::from_utf8(written).unwrap();
        assert_eq!(text.matches(':').count(), 300);
        assert_eq!(read["\"150\\"], "new");
        assert_eq!((&read["\"199\\"], &read["\"200\\"]), (&Value::from(0), &Value::from(100)));
    }

    #[test]
    fn cache_lifetime_is_rounded_up() {
        let ttl = |ttl: &str| {
            write_cache_control(&CacheBreakpoint { ttl: Some(ttl.to_owned()) })["ttl"].clone()
        };
        assert_eq!([ttl("5m"), ttl("30m"), ttl("1h"), ttl("300s")], ["5m", "1h", "1h", "5m"]);
    }
}
