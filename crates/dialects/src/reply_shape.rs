//! Completes the replies of a provider that uses the caller's own format, by edits of its bytes.
//!
//! Providers leave out fields that the format documents, and clients of some SDKs fail on it. The
//! reply also names the model by the provider's name, not by the one the caller selected. Each
//! format lists its fields in one table, an [`ObjectShape`].

use bytes::Bytes;
use canon::scrub_value;
use simdutf8::basic::from_utf8;
use std::ops::Range;

use crate::json::{self, BodyEdit, BodySegments};
use crate::json_reader::{JsonReader, ReadError};
use crate::known_replies::{self, ReplyEdits, ShapeEdit};
use crate::wire_object::written_value;
use crate::{ReplyStamp, StreamFrame};
use text_scan::plain_length;

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
    /// The position in its list. A present value is noted for the meter.
    NotedPosition(NoteLabel),
    /// A JSON value, or none. The texts of a present value are about the call, and are written without
    /// the operator's secrets.
    Scrubbed(Option<&'static str>),
    /// The same without a value. A present value is noted for the meter.
    NotedScrubbed(NoteLabel),
    /// A value of which some parts are not shown.
    Redacted(&'static Redaction),
    /// A value that is given for this reply, by its JSON pointer.
    Given(&'static str),
    /// None. A present value is noted for the meter.
    Noted(NoteLabel),
    /// A JSON value. A present value is noted for the meter.
    NotedJson(NoteLabel, &'static str),
}

/// A value of which some parts are not shown.
#[derive(Debug)]
pub(crate) struct Redaction {
    /// JSON of an absent value.
    pub(crate) default: &'static str,
    /// Returns true if a value may have such parts. It must depend on nothing but names of fields.
    pub(crate) is_possible: fn(&str) -> bool,
    /// Returns a value without them; `None` if it has none.
    pub(crate) redact: fn(&str) -> Option<String>,
}

impl DefaultValue {
    /// Returns true if the texts of a present value are changed.
    const fn is_scrubbed(self) -> bool {
        matches!(self, Self::Scrubbed(_) | Self::NotedScrubbed(_) | Self::Redacted(_))
    }
}

/// The label of a noted value. Each shape has its own.
pub(crate) type NoteLabel = u8;

/// The documented fields of an object, and the objects inside it.
#[derive(Debug)]
pub(crate) struct ObjectShape {
    pub(crate) fields: &'static [(&'static str, DefaultValue)],
    /// Objects, or lists of objects, that are completed if they are present.
    pub(crate) inside: &'static [(&'static str, &'static ObjectShape)],
    /// Finds the texts of a reply that are output, for its meter.
    pub(crate) find_texts: Option<FindTexts>,
}

/// Returns the places of the texts that are output, which must depend on nothing but the skeleton; `None`
/// if the reply has to be read for them.
pub(crate) type FindTexts = fn(&str, &ReplyEdits) -> Option<Vec<Range<usize>>>;

impl ObjectShape {
    /// Describes an object with described objects inside.
    pub(crate) const fn with_objects(
        fields: &'static [(&'static str, DefaultValue)],
        inside: &'static [(&'static str, &'static Self)],
    ) -> Self {
        Self { fields, inside, find_texts: None }
    }

    /// Describes an object without described objects inside.
    pub(crate) const fn flat(fields: &'static [(&'static str, DefaultValue)]) -> Self {
        Self::with_objects(fields, &[])
    }
}

/// The values of one reply.
pub(crate) struct ReplyValues<'a> {
    model: &'a str,
    stamp: Option<&'a ReplyStamp>,
    /// The values of [`DefaultValue::Given`].
    given: Option<&'a serde_json::Value>,
}

impl<'a> ReplyValues<'a> {
    /// Returns the values of an event.
    pub(crate) const fn of_event(model: &'a str) -> Self {
        Self { model, stamp: None, given: None }
    }
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

/// The values of a reply that its meter wants.
pub(crate) struct NotedReply<'a> {
    text: &'a str,
    found: &'a ReplyEdits,
}

impl<'a> NotedReply<'a> {
    /// Returns the values that have a label.
    pub(crate) fn values(&self, label: NoteLabel) -> impl Iterator<Item = &'a str> {
        let Self { text, found } = *self;
        let noted = found.noted.iter().filter(move |(own, _)| *own == label);
        noted.map(|(_, range)| text.get(range.clone()).unwrap_or_default())
    }

    /// Returns all values with their labels.
    pub(crate) fn all(&self) -> impl Iterator<Item = (NoteLabel, &'a str)> {
        let Self { text, found } = *self;
        found
            .noted
            .iter()
            .map(|(label, range)| (*label, text.get(range.clone()).unwrap_or_default()))
    }

    /// Returns the edits that complete the reply.
    pub(crate) fn edits(&self, values: &ReplyValues<'_>) -> Vec<BodyEdit> {
        body_edits(self.text.as_bytes(), &self.found.edits, values)
    }

    /// Returns the number of bytes of the texts that are output. An escape counts as one.
    pub(crate) fn text_bytes(&self) -> u64 {
        let Self { text, found } = *self;
        let counted = |place: &Range<usize>| match found.has_escapes {
            true => json::counted_bytes(text.as_bytes().get(place.clone()).unwrap_or_default()),
            false => place.len() as u64,
        };
        found.texts.iter().map(counted).sum()
    }

    /// Returns the places of the texts that are output.
    pub(crate) fn texts(&self) -> &'a [Range<usize>] {
        &self.found.texts
    }

    /// Returns the number of items in the list of the reply.
    pub(crate) fn items(&self) -> usize {
        self.found.items
    }
}

/// Completes a reply and reads its noted values in one pass; `None` if it has to be read for an error:
/// it is not an object, has a field twice, no list, or something in the list that is not an object.
pub(crate) fn complete_noted<R>(
    body: &Bytes,
    shape: &'static ObjectShape,
    model: &str,
    stamp: &ReplyStamp,
    read: impl FnOnce(&NotedReply<'_>) -> Option<R>,
) -> Option<(R, Bytes)> {
    let text = from_utf8(body).ok()?;
    let values = ReplyValues { model, stamp: Some(stamp), given: None };
    with_noted(text, shape, &values, |found| {
        let meant = read(&NotedReply { text, found })?;
        Some((meant, edited_body(body, &found.edits, &values)))
    })
}

/// Reads the noted values of an event; `None` if it has to be parsed.
pub(crate) fn read_noted<R>(
    frame: &StreamFrame,
    shape: &'static ObjectShape,
    model: &str,
    read: impl FnOnce(&NotedReply<'_>) -> Option<R>,
) -> Option<R> {
    let text = from_utf8(&frame.data).ok()?;
    let values = ReplyValues::of_event(model);
    with_noted(text, shape, &values, |found| read(&NotedReply { text, found }))
}

fn with_noted<R>(
    text: &str,
    shape: &'static ObjectShape,
    values: &ReplyValues<'_>,
    read: impl FnOnce(&ReplyEdits) -> Option<R>,
) -> Option<R> {
    with_edits(text, shape, values, |found| if found.is_regular { read(found) } else { None })?
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
pub(crate) fn apply(body: &Bytes, edits: Vec<BodyEdit>) -> Option<Bytes> {
    if let [BodyEdit { range, replacement }] = &edits[..]
        && let (Some(head), Some(tail)) = (body.get(..range.start), body.get(range.end..))
    {
        return Some(Bytes::from([head, replacement, tail].concat()));
    }
    (!edits.is_empty()).then(|| Bytes::from(BodySegments::with_edits(body, edits).to_vec()))
}

/// Returns the edits that complete a reply or an event.
pub(crate) fn edits(
    body: &[u8],
    shape: &'static ObjectShape,
    values: &ReplyValues<'_>,
) -> Vec<BodyEdit> {
    let found = from_utf8(body).ok().and_then(|text| {
        with_edits(text, shape, values, |found| body_edits(body, &found.edits, values))
    });
    found.unwrap_or_default()
}

/// Returns the edits that change something.
fn body_edits(body: &[u8], edits: &[ShapeEdit], values: &ReplyValues<'_>) -> Vec<BodyEdit> {
    let edits = edits.iter().filter_map(|ShapeEdit { range, json }| {
        let old = body.get(range.clone())?;
        let replacement = match json {
            Some(json) => json.clone(),
            // Most models have their own names, without escapes.
            None if is_string_of(old, values.model) => return None,
            None => Bytes::from(default_json(DefaultValue::SelectedModel, values, 0, None)?),
        };
        (old != &replacement[..]).then(|| BodyEdit { range: range.clone(), replacement })
    });
    edits.collect()
}

/// Returns the body with its edits.
fn edited_body(body: &Bytes, edits: &[ShapeEdit], values: &ReplyValues<'_>) -> Bytes {
    // Most replies lack nothing, and name another model without escapes.
    if let [ShapeEdit { range, json: None }] = edits
        && !values.model.is_empty()
        && is_plain(values.model)
        && let (Some(head), Some(tail)) = (body.get(..range.start), body.get(range.end..))
    {
        if body.get(range.clone()).is_some_and(|old| is_string_of(old, values.model)) {
            return body.clone();
        }
        let parts = [head, b"\"", values.model.as_bytes(), b"\"", tail];
        let mut edited = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| edited.extend_from_slice(part));
        return Bytes::from(edited);
    }
    apply(body, body_edits(body, edits, values)).unwrap_or_else(|| body.clone())
}

/// Returns true if a text stands in a JSON string as it is.
fn is_plain(text: &str) -> bool {
    plain_length(text.as_bytes()) == text.len()
}

/// Returns true if a JSON string is this text without escapes.
fn is_string_of(json: &[u8], text: &str) -> bool {
    let inner = json.strip_prefix(b"\"").and_then(|json| json.strip_suffix(b"\""));
    inner == Some(text.as_bytes()) && is_plain(text)
}

/// Calls a function with the changes that complete a reply or an event; `None` if it is not JSON.
fn with_edits<R>(
    text: &str,
    shape: &'static ObjectShape,
    values: &ReplyValues<'_>,
    read: impl FnOnce(&ReplyEdits) -> R,
) -> Option<R> {
    let mut read = Some(read);
    let known = known_replies::find(text, shape, |found| read.take().map(|read| read(found)));
    if let Some(result) = known {
        return result;
    }
    let pass = run_pass(text, shape, values)?;
    let is_object = text.trim_ascii_start().starts_with('{');
    let is_regular =
        is_object && !pass.has_doubles && pass.lists == 1 && pass.items == pass.objects;
    let CompletionPass { edits, noted, items, is_repeatable, .. } = pass;
    let mut found =
        ReplyEdits { edits, noted, texts: Vec::new(), has_escapes: true, items, is_regular };
    if let Some(find_texts) = shape.find_texts.filter(|_| is_regular) {
        let texts = find_texts(text, &found);
        found.is_regular = texts.is_some();
        found.texts = texts.unwrap_or_default();
    }
    if is_repeatable {
        known_replies::learn(text, shape, &found);
    }
    read.take().map(|read| read(&found))
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
    /// The places of noted values, with their labels.
    noted: Vec<(NoteLabel, Range<usize>)>,
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
            let Some((at, (_, default))) = field.and_then(|at| Some((at, shape.fields.get(at)?)))
            else {
                continue;
            };
            self.has_doubles |= present & (1 << at) != 0;
            present |= 1 << at;
            let range = start..reader.last();
            let value = self.text.get(range.clone()).unwrap_or_default();
            let value = Some(value).filter(|value| *value != "null");
            if let DefaultValue::Noted(label)
            | DefaultValue::NotedJson(label, _)
            | DefaultValue::NotedPosition(label)
            | DefaultValue::NotedScrubbed(label) = default
            {
                self.noted.extend(value.map(|_| (*label, range.clone())));
            }
            if matches!(default, DefaultValue::SelectedModel) {
                self.edits.push(ShapeEdit { range, json: None });
            } else if (value.is_none() || default.is_scrubbed())
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
            DefaultValue::Scrubbed(_) | DefaultValue::NotedScrubbed(_) => present.is_none(),
            DefaultValue::Redacted(redaction) => !present.is_some_and(redaction.is_possible),
            DefaultValue::Json(_)
            | DefaultValue::Position
            | DefaultValue::NotedPosition(_)
            | DefaultValue::Noted(_)
            | DefaultValue::NotedJson(..) => true,
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
    let string = |text: &str| match is_plain(text) {
        true => ["\"", text, "\""].concat(),
        false => serde_json::Value::from(text).to_string(),
    };
    Some(match default {
        DefaultValue::Noted(_) => return None,
        DefaultValue::Json(json) | DefaultValue::NotedJson(_, json) => json.to_owned(),
        DefaultValue::Id(prefix) => string(&format!("{prefix}{}", values.stamp?.id)),
        DefaultValue::Created(write) => write(values.stamp?.created),
        DefaultValue::SelectedModel | DefaultValue::MissingModel => {
            string(Some(values.model).filter(|model| !model.is_empty())?)
        }
        DefaultValue::Position | DefaultValue::NotedPosition(_) => position.to_string(),
        DefaultValue::Given(pointer) => {
            values.given?.pointer(pointer).filter(|value| !value.is_null())?.to_string()
        }
        DefaultValue::Redacted(redaction) => match present {
            Some(present) => (redaction.redact)(present)?,
            None => redaction.default.to_owned(),
        },
        DefaultValue::Scrubbed(_) | DefaultValue::NotedScrubbed(_) => {
            let Some(present) = present else {
                let DefaultValue::Scrubbed(json) = default else { return None };
                return json.map(str::to_owned);
            };
            let value = written_value(present);
            Some(scrub_value(value.clone())).filter(|clean| *clean != value)?.to_string()
        }
    })
}

#[cfg(test)]
#[path = "reply_shape_tests.rs"]
mod tests;
