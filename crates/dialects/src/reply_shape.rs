//! Completes the replies of a provider that uses the caller's own format, by edits of its bytes.
//!
//! Providers leave out fields that the format documents, and clients of some SDKs fail on it. The
//! reply also names the model by the provider's name, not by the one the caller selected. Each
//! format lists its fields in one table, an [`ObjectShape`].

use bytes::Bytes;
use canon::scrub_value;
use memchr::memmem;
use simdutf8::basic::from_utf8;
use std::ops::Range;

use crate::json::{BodyEdit, BodySegments};
use crate::json_reader::{JsonReader, ReadError};
use crate::known_replies::{self, ReplyEdits, ShapeEdit};
use crate::wire_object::written_value;
use crate::{ReplyStamp, StreamFrame};

/// The value of a field that a reply lacks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DefaultValue {
    /// A JSON value.
    Json(&'static str),
    /// The id of the reply, with a prefix.
    Id(&'static str),
    /// The time of the reply, as the format writes it.
    Created(fn(i64) -> String),
    /// The selected model. A present value is replaced.
    SelectedModel,
    /// The selected model, if the reply names none.
    MissingModel,
    /// The position in its list.
    Position,
    /// A JSON value, or none. The texts of a present value are about the call, and are written without
    /// the operator's secrets.
    Scrubbed(Option<&'static str>),
    /// A value that is given for this reply, by its JSON pointer.
    Given(&'static str),
    /// None. A present value is noted for the meter.
    Noted,
    /// A JSON value. A present value is noted for the meter.
    NotedJson(&'static str),
}

/// The documented fields of an object, and the objects inside it.
#[derive(Debug)]
pub(crate) struct ObjectShape {
    pub(crate) fields: &'static [(&'static str, DefaultValue)],
    /// Objects, or lists of objects, that are completed if they are present.
    pub(crate) inside: &'static [(&'static str, &'static ObjectShape)],
}

impl ObjectShape {
    /// Describes an object without described objects inside.
    pub(crate) const fn flat(fields: &'static [(&'static str, DefaultValue)]) -> Self {
        Self { fields, inside: &[] }
    }
}

/// The values of one reply.
struct ReplyValues<'a> {
    model: &'a str,
    stamp: Option<&'a ReplyStamp>,
    /// The values of [`DefaultValue::Given`].
    given: Option<&'a serde_json::Value>,
}

/// Returns a whole reply with its documented fields and the selected model. The provider's bytes
/// are kept apart from the edits.
pub(crate) fn complete(
    body: &Bytes,
    shape: &'static ObjectShape,
    model: &str,
    stamp: &ReplyStamp,
) -> Bytes {
    let edits = edits(body, shape, &ReplyValues { model, stamp: Some(stamp), given: None });
    apply(body, edits).unwrap_or_else(|| body.clone())
}

/// A reply with its documented fields, and the values that its meter wants.
pub(crate) struct NotedReply<'a> {
    pub(crate) completed: Bytes,
    /// The number of items in the list of the reply.
    pub(crate) items: usize,
    values: Vec<(&'static str, &'a str)>,
}

impl<'a> NotedReply<'a> {
    /// Returns the values of a field.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.values.iter().filter(move |(field, _)| *field == name).map(|(_, value)| *value)
    }
}

/// Completes a reply and notes its values in one pass; `None` if it has to be read for an error: it is
/// not an object, has a field twice, no list, or something in the list that is not an object.
pub(crate) fn complete_noted<'a>(
    body: &'a Bytes,
    shape: &'static ObjectShape,
    model: &str,
    stamp: &ReplyStamp,
) -> Option<NotedReply<'a>> {
    let text = from_utf8(body).ok()?;
    let values = ReplyValues { model, stamp: Some(stamp), given: None };
    let ReplyEdits { edits, noted, items, is_regular } = find_edits(text, shape, &values)?;
    if !is_regular {
        return None;
    }
    let edits = body_edits(body, edits, &values);
    let noted = noted.into_iter().map(|(name, place)| Some((name, text.get(place)?)));
    let completed = apply(body, edits).unwrap_or_else(|| body.clone());
    Some(NotedReply { completed, items, values: noted.collect::<Option<_>>()? })
}

/// Returns a reply or an event with its documented fields, whose values are given.
pub(crate) fn complete_with(
    body: &Bytes,
    shape: &'static ObjectShape,
    given: &serde_json::Value,
) -> Bytes {
    let edits = edits(body, shape, &ReplyValues { model: "", stamp: None, given: Some(given) });
    apply(body, edits).unwrap_or_else(|| body.clone())
}

/// Returns the edited body; `None` without edits.
fn apply(body: &Bytes, edits: Vec<BodyEdit>) -> Option<Bytes> {
    (!edits.is_empty()).then(|| Bytes::from(BodySegments::with_edits(body, edits).to_vec()))
}

fn edits(body: &[u8], shape: &'static ObjectShape, values: &ReplyValues<'_>) -> Vec<BodyEdit> {
    let found = from_utf8(body).ok().and_then(|text| find_edits(text, shape, values));
    found.map(|found| body_edits(body, found.edits, values)).unwrap_or_default()
}

/// Returns the edits that change something.
fn body_edits(body: &[u8], edits: Vec<ShapeEdit>, values: &ReplyValues<'_>) -> Vec<BodyEdit> {
    let model = || default_json(DefaultValue::SelectedModel, values, 0, None).map(Bytes::from);
    let edits = edits.into_iter().filter_map(|ShapeEdit { range, json }| {
        let replacement = json.or_else(model)?;
        (body.get(range.clone())? != &replacement[..]).then_some(BodyEdit { range, replacement })
    });
    edits.collect()
}

/// Returns the changes that complete a reply or an event; `None` if it is not JSON.
fn find_edits(
    text: &str,
    shape: &'static ObjectShape,
    values: &ReplyValues<'_>,
) -> Option<ReplyEdits> {
    let known = known_replies::find(text, shape);
    if known.is_some() {
        return known;
    }
    let pass = run_pass(text, shape, values)?;
    let is_object = text.trim_ascii_start().starts_with('{');
    let is_regular =
        is_object && !pass.has_doubles && pass.lists == 1 && pass.items == pass.objects;
    let CompletionPass { edits, noted, items, is_repeatable, .. } = pass;
    let found = ReplyEdits { edits, noted, items, is_regular };
    if is_repeatable {
        known_replies::learn(text, shape, &found);
    }
    Some(found)
}

/// Makes a pass over a reply; `None` if it is not JSON.
fn run_pass<'t, 'v>(
    text: &'t str,
    shape: &ObjectShape,
    values: &'v ReplyValues<'v>,
) -> Option<CompletionPass<'t, 'v>> {
    let mut pass = CompletionPass {
        text,
        values,
        edits: Vec::new(),
        noted: Vec::new(),
        is_repeatable: true,
        has_doubles: false,
        lists: 0,
        items: 0,
        objects: 0,
    };
    let mut reader = JsonReader::of_reply(text);
    pass.complete_value(&mut reader, shape, None).and_then(|()| reader.end()).ok()?;
    Some(pass)
}

/// One pass over a reply.
struct CompletionPass<'t, 'v> {
    text: &'t str,
    values: &'v ReplyValues<'v>,
    edits: Vec<ShapeEdit>,
    /// The places of noted values, with the names of their fields.
    noted: Vec<(&'static str, Range<usize>)>,
    /// True if the edits do not depend on strings and numbers of the reply, nor on its stamp.
    is_repeatable: bool,
    /// True if an object has a described field twice.
    has_doubles: bool,
    /// Numbers of lists, of their items, and of objects among these.
    lists: usize,
    items: usize,
    objects: usize,
}

impl<'t> CompletionPass<'t, '_> {
    /// Completes an object, or each object of a list. `position` is that in the list.
    fn complete_value(
        &mut self,
        reader: &mut JsonReader<'t>,
        shape: &ObjectShape,
        position: Option<usize>,
    ) -> Result<(), ReadError> {
        match reader.peek() {
            b'{' => self.complete_object(reader, shape, position),
            b'[' => {
                self.lists += 1;
                let mut count = 0;
                reader.enter()?;
                while reader.next_item(b']', count == 0)? {
                    self.complete_value(reader, shape, Some(count))?;
                    count += 1;
                }
                self.items += count;
                Ok(())
            }
            _ => reader.written_value().map(drop),
        }
    }

    fn complete_object(
        &mut self,
        reader: &mut JsonReader<'t>,
        shape: &ObjectShape,
        position: Option<usize>,
    ) -> Result<(), ReadError> {
        self.objects += usize::from(position.is_some());
        let position = position.unwrap_or_default();
        // The bits of the fields that are present.
        let (mut present, mut first_key) = (0_u32, None);
        reader.enter()?;
        let inside = reader.place();
        while reader.next_item(b'}', first_key.is_none())? {
            first_key.get_or_insert(reader.place());
            let key = reader.name()?;
            let start = reader.place();
            let inner = shape.inside.iter().find(|(name, _)| *name == key).map(|(_, inner)| *inner);
            let field = shape.fields.iter().position(|(name, _)| *name == key);
            match inner {
                Some(inner) => self.complete_value(reader, inner, None)?,
                None => {
                    reader.written_value()?;
                }
            }
            let Some((at, (name, default))) =
                field.and_then(|at| Some((at, shape.fields.get(at)?)))
            else {
                continue;
            };
            self.has_doubles |= present & (1 << at) != 0;
            present |= 1 << at;
            let range = start..reader.last();
            let value = self.text.get(range.clone()).unwrap_or_default();
            let value = Some(value).filter(|value| *value != "null");
            if matches!(default, DefaultValue::Noted | DefaultValue::NotedJson(_)) {
                self.noted.extend(value.map(|_| (*name, range.clone())));
            }
            if matches!(default, DefaultValue::SelectedModel) {
                self.edits.push(ShapeEdit { range, json: None });
            } else if (value.is_none() || matches!(default, DefaultValue::Scrubbed(_)))
                && let Some(json) = self.default_json(*default, position, value)
            {
                self.edits.push(ShapeEdit { range, json: Some(Bytes::from(json)) });
            }
        }
        let mut added = String::new();
        for (at, (name, default)) in shape.fields.iter().enumerate() {
            if present & (1 << at) == 0
                && let Some(json) = self.default_json(*default, position, None)
            {
                added.push_str(&format!("\"{name}\":{json},"));
            }
        }
        if !added.is_empty() {
            if first_key.is_none() {
                added.pop();
            }
            let at = first_key.unwrap_or(inside);
            self.edits.push(ShapeEdit { range: at..at, json: Some(Bytes::from(added)) });
        }
        Ok(())
    }

    fn default_json(
        &mut self,
        default: DefaultValue,
        position: usize,
        present: Option<&str>,
    ) -> Option<String> {
        self.is_repeatable &= match default {
            DefaultValue::Id(_)
            | DefaultValue::Created(_)
            | DefaultValue::Given(_)
            | DefaultValue::SelectedModel
            | DefaultValue::MissingModel => false,
            DefaultValue::Scrubbed(_) => present.is_none(),
            DefaultValue::Json(_)
            | DefaultValue::Position
            | DefaultValue::Noted
            | DefaultValue::NotedJson(_) => true,
        };
        default_json(default, self.values, position, present)
    }
}

/// Returns the JSON of a value. `None` if it is not known: events of a stream have no stamp.
fn default_json(
    default: DefaultValue,
    values: &ReplyValues<'_>,
    position: usize,
    present: Option<&str>,
) -> Option<String> {
    let string = |text: &str| serde_json::Value::from(text).to_string();
    Some(match default {
        DefaultValue::Noted => return None,
        DefaultValue::Json(json) | DefaultValue::NotedJson(json) => json.to_owned(),
        DefaultValue::Id(prefix) => string(&format!("{prefix}{}", values.stamp?.id)),
        DefaultValue::Created(write) => write(values.stamp?.created),
        DefaultValue::SelectedModel | DefaultValue::MissingModel => {
            string(Some(values.model).filter(|model| !model.is_empty())?)
        }
        DefaultValue::Position => position.to_string(),
        DefaultValue::Given(pointer) => {
            values.given?.pointer(pointer).filter(|value| !value.is_null())?.to_string()
        }
        DefaultValue::Scrubbed(json) => {
            let Some(present) = present else { return json.map(str::to_owned) };
            let value = written_value(present);
            Some(scrub_value(value.clone())).filter(|clean| *clean != value)?.to_string()
        }
    })
}

/// Completes the events of a stream. Only the first one is parsed, and a late one where the format
/// needs it, unless the first one lacks fields: the others are searched for the model that it named.
pub(crate) struct StreamCompleter {
    shape: &'static ObjectShape,
    model: String,
    state: CompleterState,
    /// The current event, if it was changed.
    changed: Option<StreamFrame>,
}

enum CompleterState {
    First,
    /// The provider's events lack fields, so that each one is parsed.
    Parse,
    /// The events are complete. The model field stands in each one as in the first: the searched
    /// bytes and their replacement.
    Search(Vec<u8>, Vec<u8>),
    /// Nothing is to be changed.
    Idle,
}

impl StreamCompleter {
    pub(crate) fn new(shape: &'static ObjectShape, model: &str) -> Self {
        Self { shape, model: model.to_owned(), state: CompleterState::First, changed: None }
    }

    /// Takes the next event that may have to be changed.
    pub(crate) fn observe(&mut self, frame: &StreamFrame) {
        let data = &frame.data;
        let found = match &self.state {
            CompleterState::Search(old, new) => replace_first(data, old, new),
            CompleterState::First | CompleterState::Parse | CompleterState::Idle => None,
        };
        let changed = match &self.state {
            CompleterState::Idle => None,
            CompleterState::Search(..) if found.is_some() => found,
            CompleterState::Search(..) if memmem::find(data, MODEL_KEY).is_none() => None,
            // A later event names another model, or names it in another way.
            CompleterState::First | CompleterState::Parse | CompleterState::Search(..) => {
                let values = ReplyValues { model: &self.model, stamp: None, given: None };
                let edits = edits(data, self.shape, &values);
                if matches!(self.state, CompleterState::First) {
                    self.state = later_state(data, &edits);
                }
                apply(data, edits)
            }
        };
        self.changed = changed.map(|data| StreamFrame { event: frame.event.clone(), data });
    }

    /// Takes an event with fields that the first one could not have, such as the counts at the end.
    pub(crate) fn observe_late(&mut self, frame: &StreamFrame) {
        let values = ReplyValues { model: &self.model, stamp: None, given: None };
        let edits = edits(&frame.data, self.shape, &values);
        let changed = apply(&frame.data, edits);
        self.changed = changed.map(|data| StreamFrame { event: frame.event.clone(), data });
    }

    /// Keeps an event that was changed before it was observed, and has to be written in that form.
    pub(crate) fn keep(&mut self, repaired: StreamFrame) {
        self.changed.get_or_insert(repaired);
    }

    /// Forgets the last event, because the current one needs no change.
    pub(crate) fn skip(&mut self) {
        self.changed = None;
    }

    /// Returns the event to write: the current one as changed, or else as it is.
    pub(crate) fn frame<'a>(&'a self, frame: &'a StreamFrame) -> &'a StreamFrame {
        self.changed.as_ref().unwrap_or(frame)
    }
}

/// The name of the field for the model. Inside of texts its quotes are escaped.
const MODEL_KEY: &[u8] = b"\"model\"";

fn replace_first(data: &[u8], old: &[u8], new: &[u8]) -> Option<Bytes> {
    let (head, rest) = data.split_at(memmem::find(data, old)?);
    Some(Bytes::from([head, new, rest.get(old.len()..)?].concat()))
}

/// Decides by the edits of the first event.
fn later_state(data: &[u8], edits: &[BodyEdit]) -> CompleterState {
    let [BodyEdit { range, replacement }] = edits else {
        return if edits.is_empty() { CompleterState::Idle } else { CompleterState::Parse };
    };
    let front = data.get(..range.start).unwrap_or_default();
    let found = memmem::rfind(front, MODEL_KEY).filter(|_| !range.is_empty());
    // Only white space and the colon stand between the name and the value.
    let between = |at: usize| front.get(at + MODEL_KEY.len()..).unwrap_or_default();
    match found.filter(|at| between(*at).iter().all(|b| matches!(b, b':' | b' '))) {
        Some(at) => {
            let name = front.get(at..).unwrap_or_default();
            let value = data.get(range.clone()).unwrap_or_default();
            CompleterState::Search([name, value].concat(), [name, &replacement[..]].concat())
        }
        None => CompleterState::Parse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM: ObjectShape =
        ObjectShape { fields: &[("index", DefaultValue::Position)], inside: &[] };
    static SHAPE: ObjectShape = ObjectShape {
        fields: &[
            ("model", DefaultValue::SelectedModel),
            ("object", DefaultValue::Json("\"reply\"")),
            ("id", DefaultValue::Id("r-")),
        ],
        inside: &[("list", &ITEM), ("one", &ITEM)],
    };

    /// A field that is written if it is missing, and completed if it is there.
    static NESTED: ObjectShape =
        ObjectShape { fields: &[("list", DefaultValue::Json("[]"))], inside: &[("list", &ITEM)] };

    #[test]
    fn an_empty_object_in_a_required_list_is_completed_in_its_place() {
        let stamp = ReplyStamp { id: "s".to_owned(), created: 0 };
        for (body, expected) in [
            (r#"{"list":[{}],"x":{"a":1}}"#, r#"{"list":[{"index":0}],"x":{"a":1}}"#),
            (
                r#"{"list":[{},{"b":{}},{}],"y":"{}"}"#,
                r#"{"list":[{"index":0},{"index":1,"b":{}},{"index":2}],"y":"{}"}"#,
            ),
            (r#"{"y":"{}"}"#, r#"{"list":[],"y":"{}"}"#),
        ] {
            let out = complete(&Bytes::from(body), &NESTED, "mine", &stamp);
            assert_eq!(String::from_utf8(out.to_vec()).unwrap(), expected);
        }
    }

    fn completed(body: &'static str) -> String {
        let stamp = ReplyStamp { id: "s".to_owned(), created: 0 };
        let out = complete(&Bytes::from(body), &SHAPE, "mine", &stamp);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn only_missing_fields_and_the_model_change() {
        for (body, expected) in [
            (
                r#"{ "object":"own","model": "theirs","id":"x", "other":1.0}"#,
                r#"{ "object":"own","model": "mine","id":"x", "other":1.0}"#,
            ),
            ("{}", r#"{"model":"mine","object":"reply","id":"r-s"}"#),
            (
                r#"{"id":null,"object":"o","model":"mine","list":[{},{"index":7},{"a":1}],"one":{}}"#,
                r#"{"id":"r-s","object":"o","model":"mine","list":[{"index":0},{"index":7},{"index":2,"a":1}],"one":{"index":0}}"#,
            ),
            ("not json", "not json"),
            ("[1]", "[1]"),
        ] {
            assert_eq!(completed(body), expected);
        }
    }

    #[test]
    fn texts_about_the_call_lose_secrets_and_stay_else() {
        static ABOUT: ObjectShape = ObjectShape::flat(&[
            ("why", DefaultValue::Scrubbed(None)),
            ("more", DefaultValue::Scrubbed(Some("null"))),
        ]);
        let stamp = ReplyStamp { id: "s".to_owned(), created: 0 };
        for (body, expected) in [
            (
                r#"{"why":"by  sk-abc1","more":{"a":[1,"at 10.0.0.7"]}}"#,
                r#"{"why":"by [hidden]","more":{"a":[1,"at [hidden]"]}}"#,
            ),
            (
                r#"{"why":"two  spaces","more":{ "a":1 }}"#,
                r#"{"why":"two  spaces","more":{ "a":1 }}"#,
            ),
            (r#"{"why":null,"x":"sk-abc1"}"#, r#"{"more":null,"why":null,"x":"sk-abc1"}"#),
        ] {
            let out = complete(&Bytes::from(body), &ABOUT, "mine", &stamp);
            assert_eq!(String::from_utf8(out.to_vec()).unwrap(), expected);
        }
    }

    #[test]
    fn later_events_are_searched_for_the_first_ones_model() {
        let mut completer = StreamCompleter::new(&SHAPE, "mine");
        let complete = r#"{"object":"o","model": "theirs","text":"\"model\": \"theirs\""}"#;
        for (event, expected) in [
            (complete, complete.replacen("theirs", "mine", 1)),
            (r#"{"text":"a","model": "theirs"}"#, r#"{"text":"a","model": "mine"}"#.to_owned()),
            (r#"{"text":"a"}"#, r#"{"text":"a"}"#.to_owned()),
            (r#"{"object":"o","model":"b"}"#, r#"{"object":"o","model":"mine"}"#.to_owned()),
        ] {
            let frame = StreamFrame::data(event);
            completer.observe(&frame);
            assert_eq!(completer.frame(&frame).data, expected.as_bytes());
        }
    }
}
