//! Objects in a provider's account that a request names by id and does not contain: files,
//! containers, conversations, caches. And those that a reply hands out.
//!
//! A provider finds them by the operator's credential, so the id of somebody else's object would
//! open it. Each format lists its fields in `objects.rs`; nothing else knows them.

use canon::{ApiError, ErrorKind};
use memchr::memmem;
use std::collections::HashSet;

use crate::body_outline::BodyOutline;
use crate::field_scan::{FieldScan, FieldText, KeyPath};
use crate::word_search::{FILE_TEXT, Needles};

/// Longer ids are cut. None of this length is recorded, because no provider makes them.
const MAX_ID_CHARS: usize = 1_024;
/// Characters of an id in an error.
const MAX_SHOWN_CHARS: usize = 64;
/// Objects of one reply that are recorded at most.
const MAX_MADE_OBJECTS: usize = 256;

/// The names that say for themselves that a provider keeps the object, behind a beginning of the
/// path. A format's own service refuses most of them; its imitations have them.
macro_rules! object_ids {
    ($beginning:literal) => {
        concat!(
            $beginning,
            "file_id|file_ids|container_id|vector_store_id|vector_store_ids|collection_id|\
             collection_ids|knowledge_id|knowledge_base_id|knowledge_base_ids|corpus_id|dataset_id|\
             index_name|index_asset_id|connection_id|project_connection_id|tunnel_id|assistant_id|\
             memory_store_id|memory_store_ids|memory_store_name|library_ids|queue_name|cached_content"
        )
    };
}
pub(crate) use object_ids;

/// One field of a request that names an object.
#[derive(Debug)]
pub(crate) struct ObjectField {
    path: KeyPath,
    /// The word for the object in an error; empty if its key says it.
    kind: &'static str,
    /// The path in an error, if it is not the field's own.
    shown_path: Option<&'static str>,
    /// Words, one of which stands in a body with such an object. The keys of the path by default.
    words: &'static [&'static str],
    /// Returns true for a text that may name an object.
    is_name: fn(&str) -> bool,
    /// Returns true if the text names an object.
    is_object: fn(&FieldText) -> bool,
    /// Returns true if the text is the id of what the body contains, and is looked up nevertheless.
    /// Other texts of such a field are the ids of what the body contains.
    is_contained: Option<fn(&FieldText) -> bool>,
}

/// Returns true for white space and for the byte order mark.
pub(crate) fn is_blank(c: char) -> bool {
    c.is_whitespace() || c == '\u{feff}'
}

impl ObjectField {
    /// A field of which the key says what it names.
    pub(crate) const fn of_key(path: KeyPath) -> Self {
        Self::new(path, "")
    }

    /// A text that names a file, as chat providers read it in a prompt:
    /// <https://help.aliyun.com/zh/model-studio/long-context-qwen-long>.
    pub(crate) const fn file_text(path: KeyPath) -> Self {
        Self::new(path, "File")
            .with_words(&[FILE_TEXT])
            .only_named(|text| text.trim_start_matches(is_blank).starts_with("fileid://"))
    }

    pub(crate) const fn new(path: KeyPath, kind: &'static str) -> Self {
        Self {
            path,
            kind,
            shown_path: None,
            words: &[],
            is_name: |_| true,
            is_object: |_| true,
            is_contained: None,
        }
    }

    /// A body with such an object has one of these words.
    pub(crate) const fn with_words(self, words: &'static [&'static str]) -> Self {
        Self { words, ..self }
    }

    /// The field names an object only with such a text.
    pub(crate) const fn only_named(self, is_name: fn(&str) -> bool) -> Self {
        Self { is_name, ..self }
    }

    /// The field names an object only then.
    pub(crate) const fn only_if(self, is_object: fn(&FieldText) -> bool) -> Self {
        Self { is_object, ..self }
    }

    /// The other texts of the field, and these, are the ids of what the body contains.
    pub(crate) const fn or_contained(self, is_contained: fn(&FieldText) -> bool) -> Self {
        Self { is_contained: Some(is_contained), ..self }
    }

    /// Errors show this path.
    pub(crate) const fn shown_as(self, path: &'static str) -> Self {
        Self { shown_path: Some(path), ..self }
    }

    /// Returns words, one of which every body with such an object has.
    fn needles(&self) -> Vec<String> {
        if !self.words.is_empty() {
            return self.words.iter().map(|word| (*word).to_owned()).collect();
        }
        let is_telling =
            |step: &&str| !step.ends_with(['*', '?']) && !["id", "name", "model"].contains(step);
        let keys = self.path.rsplit('.').find(is_telling).unwrap_or_default().split('|');
        let word = |key: &str| match key.trim_end_matches('s') {
            // One word for one id and for several: few words are found faster.
            stem if stem.ends_with("_id") => format!("\"{stem}"),
            _ => format!("\"{key}\""),
        };
        keys.flat_map(|key| [word(key), word(&snake_case(key))]).collect()
    }
}

/// Returns the snake_case spelling of a name in camelCase.
pub fn snake_case(key: &str) -> String {
    key.chars().fold(String::new(), |name, c| match c {
        'A'..='Z' => name + "_" + &c.to_ascii_lowercase().to_string(),
        _ => name + &c.to_string(),
    })
}

/// Returns the word for an object by the key of its id: `Vector store` for `vector_store_ids[0]`, and
/// for `vector_store.id`.
fn kind_of(path: &str) -> String {
    let mut keys = path.rsplit('.').map(|key| key.split('[').next().unwrap_or_default());
    let key = keys.find(|key| !matches!(*key, "id" | "name")).unwrap_or("object");
    let word = ["_ids", "_id", "_name"].iter().find_map(|end| key.strip_suffix(end));
    let word = word.unwrap_or(key).replace('_', " ");
    let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
    first.to_uppercase() + rest
}

/// The fields of a format's requests that name objects, and of its replies that hand out ids.
#[derive(Debug)]
pub struct ObjectFields {
    pub(crate) fields: &'static [ObjectField],
    /// The words of the fields. A body without any of them names no object.
    pub(crate) needles: Needles,
    /// True if keys may be in snake_case as well.
    pub(crate) allows_snake_case: bool,
    /// The message of the format's own service if it does not hold an object of this kind and id.
    pub(crate) not_found: fn(&str, &str) -> String,
    /// Returns true if a URL leads to an object of the provider's account.
    pub(crate) is_own_url: fn(&str) -> bool,
    pub(crate) made: MadeFields,
}

impl ObjectFields {
    /// Returns true if a provider of this format would look for an object under this URL.
    pub fn holds_url(&self, url: &str) -> bool {
        (self.is_own_url)(url)
    }

    /// Returns the words of the fields.
    pub(crate) fn words(&self) -> impl Iterator<Item = String> {
        self.fields.iter().flat_map(ObjectField::needles)
    }

    /// Returns the path of every field that names an object, without the indexes of lists, in the
    /// notation of the tables.
    pub fn paths(&self) -> impl Iterator<Item = &'static str> {
        self.fields.iter().map(|field| field.path)
    }
}

/// The fields of replies and events that hand out ids which clients send back.
#[derive(Debug)]
pub(crate) struct MadeFields {
    /// Words of requests, one of which leads to such a reply. `None` means every request.
    pub(crate) triggers: Option<Needles>,
    /// Words of replies and events with such a field.
    pub(crate) needles: &'static [&'static str],
    /// True if the event that ends a stream has all of them.
    pub(crate) is_in_last_event: bool,
    /// Fields of which the next request of the conversation depends.
    pub(crate) paths: &'static [KeyPath],
    /// Further fields, with ids of what the provider stores. Clients may send their content instead.
    pub(crate) stored_paths: &'static [KeyPath],
    /// Words of requests that tell the provider to store nothing.
    pub(crate) unstored: &'static [&'static str],
    /// Returns true if clients cannot send the content of such an object, stored or not.
    pub(crate) is_needed: fn(&FieldText) -> bool,
}

impl MadeFields {
    /// Replies hand out nothing.
    pub(crate) const NONE: Self = Self {
        triggers: None,
        needles: &[],
        is_in_last_event: false,
        paths: &[],
        stored_paths: &[],
        unstored: &[],
        is_needed: |_| false,
    };
}

/// An object that a request names by id and does not contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    /// JSON path of the name.
    pub path: String,
    /// The id.
    pub id: String,
    /// The message of the format's own service if it does not hold the object.
    pub message: String,
    /// True if the body has an object of this id itself. A provider of this format looks for the id
    /// in its storage nevertheless.
    pub is_contained: bool,
}

/// An object that its caller does not own at a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignObject {
    /// The object.
    pub object: StoredObject,
    /// Name of the provider.
    pub provider: String,
}

impl StoredObject {
    /// Returns the error of a lane that does not hold the object.
    pub fn not_found(&self) -> ApiError {
        ApiError::new(ErrorKind::NotFound, self.message.clone()).with_param(self.path.clone())
    }
}

/// Returns every object that a request names, in the order of the body. Most requests have none; a byte
/// search of the outline detects that without parsing the body.
pub fn stored_objects(
    table: &ObjectFields,
    body: &[u8],
    outline: &BodyOutline,
) -> Result<Vec<StoredObject>, ApiError> {
    let is_there = |outline: &[u8]| table.needles.or_one_is_in(outline, || table.words());
    if !outline.needs(body, |scans| scans.objects, is_there) {
        return Ok(Vec::new());
    }
    let paths: Vec<KeyPath> = table.fields.iter().map(|field| field.path).collect();
    let scan = FieldScan {
        paths: &paths,
        allows_snake_case: table.allows_snake_case,
        wants_parents: true,
        keeps: &|row, text| (table.fields.get(row)?.is_name)(text).then_some(text),
    };
    let found = scan.run(body)?;
    let fields = || found.iter().filter_map(|text| Some((text, table.fields.get(text.row)?)));
    let contained: HashSet<&str> = fields()
        .filter(|(text, field)| field.is_contained.is_some() && !(field.is_object)(text))
        .map(|(text, _)| &*text.text)
        .collect();
    let object = |(text, field): (&FieldText, &ObjectField)| StoredObject {
        path: field.shown_path.map_or_else(|| text.path.clone(), str::to_owned),
        id: text.text.chars().take(MAX_ID_CHARS).collect(),
        message: {
            let shown: String = text.text.chars().take(MAX_SHOWN_CHARS).collect();
            let kind = kind_of(&text.path);
            (table.not_found)(if field.kind.is_empty() { &kind } else { field.kind }, &shown)
        },
        is_contained: field
            .is_contained
            .is_some_and(|is_contained| is_contained(text) || contained.contains(&*text.text)),
    };
    Ok(fields().filter(|(text, field)| (field.is_object)(text)).map(object).collect())
}

/// Returns true for a file in the storage of Google's services: its name, a bucket, or a URL of the
/// service itself. Public files of its storage service have URLs like those of any other host. The
/// guard of URLs refuses every other text.
pub(crate) fn is_google_object(uri: &str) -> bool {
    let uri = uri.to_ascii_lowercase();
    if uri.starts_with("files/") || uri.starts_with("gs:") {
        return true;
    }
    let Some(("https" | "http", rest)) = uri.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = host.split(':').next().unwrap_or_default().trim_end_matches('.');
    let is_service = host == "googleapis.com" || host.ends_with(".googleapis.com");
    is_service && host != "storage.googleapis.com"
}

/// Collects the ids that a reply hands out.
#[derive(Debug)]
pub struct MadeObjects {
    table: &'static MadeFields,
    paths: Vec<KeyPath>,
    is_unstored: bool,
    ids: Vec<String>,
    is_awaited: bool,
}

impl MadeObjects {
    /// Returns a collector for the reply to a request; `None` if no such reply has ids.
    pub fn of_request(
        table: &'static ObjectFields,
        body: &[u8],
        outline: &BodyOutline,
    ) -> Option<Self> {
        let table = &table.made;
        let is_expected = |words: &Needles| {
            outline.needs(body, |scans| scans.made_objects, |outline| words.is_in(outline))
        };
        if table.paths.is_empty() || !table.triggers.as_ref().is_none_or(is_expected) {
            return None;
        }
        let body = outline.of(body);
        let has = |word: &&str| memmem::find(body, word.as_bytes()).is_some();
        let paths = [table.paths, table.stored_paths].concat();
        let is_unstored = table.unstored.iter().any(has);
        Some(Self { table, paths, is_unstored, ids: Vec::new(), is_awaited: false })
    }

    /// Returns true if only the event that ends a stream has to be observed.
    pub fn is_in_last_event(&self) -> bool {
        self.table.is_in_last_event
    }

    /// Returns true if the next request of the conversation depends on an id that was observed.
    pub fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Takes a whole reply, or an event of a stream.
    pub fn observe(&mut self, data: &[u8]) {
        let mut needles = self.table.needles.iter();
        let is_there = needles.any(|word| memmem::find(data, word.as_bytes()).is_some());
        if self.ids.len() >= MAX_MADE_OBJECTS || !is_there {
            return;
        }
        let scan = FieldScan {
            paths: &self.paths,
            allows_snake_case: false,
            wants_parents: true,
            keeps: &|_, text| (1..MAX_ID_CHARS).contains(&text.len()).then_some(text),
        };
        // The readers of the format judge an unreadable reply.
        let found = scan.run(data).unwrap_or_default();
        for field in found {
            let is_stored = field.row >= self.table.paths.len();
            if is_stored && self.is_unstored && !(self.table.is_needed)(&field) {
                continue;
            }
            let FieldText { text, row, .. } = field;
            if self.ids.len() < MAX_MADE_OBJECTS && !self.ids.contains(&text) {
                self.is_awaited |= row < self.table.paths.len();
                self.ids.push(text);
            }
        }
    }

    /// Takes the ids out.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.ids)
    }
}

#[cfg(test)]
#[path = "object_fields_tests.rs"]
mod tests;
